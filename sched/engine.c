/* SPDX-License-Identifier: Apache-2.0
 * A loaded model as what the scheduler runs on. Step thread.
 */
#include "sched/sched.h"

static int step(void *ctx, struct step_seq *seqs, uint32_t n_seqs, struct error *e)
{
	return model_step(ctx, seqs, n_seqs, e);
}

static int copy(void *ctx, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	return model_kv_copy(ctx, group, from, to, n_tokens, e);
}

static int read_page(void *ctx, uint32_t group, uint32_t page, void *out, struct error *e)
{
	return model_kv_read(ctx, group, page, out, e);
}

static int write_page(void *ctx, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	return model_kv_write(ctx, group, page, in, e);
}

static uint64_t now(void *ctx)
{
	(void)ctx;
	return clock_now_ns();
}

struct sched_engine sched_engine_of(struct model *m)
{
	const struct model_info *i = model_info(m);

	return (struct sched_engine){ .ctx = m,
		.info = i,
		.tokenizer = model_tokenizer(m),
		.step = step,
		.store = { .ctx = m,
			.copy = copy,
			.read = i->kv_io ? read_page : NULL,
			.write = i->kv_io ? write_page : NULL },
		.now_ns = now };
}
