/* SPDX-License-Identifier: Apache-2.0
 * Measures steps of chosen shapes while nobody waits, so that the cost model knows the backend before the first crowd.
 * Runs on free pages that nobody has, which are given back; the rows are thrown away. After the first answer, since
 * only then everything is mapped and warm. Step thread only.
 */
#include "sched/sched_priv.h"
#include <string.h>

static const struct shape {
	uint32_t n_seqs, n_tokens, past; /* n_tokens each */
} shapes[] = {
	{ 1, 1, 32 },
	{ 2, 1, 32 },
	{ 4, 1, 32 },
	{ 8, 1, 32 },
	{ 16, 1, 32 },
	{ 32, 1, 32 },
	{ 1, 8, 0 },
	{ 1, 16, 0 },
	{ 1, 32, 0 },
	{ 1, 64, 0 },
	{ 1, 128, 0 },
	{ 1, 256, 0 },
	{ 1, 512, 0 },
	{ 1, 1, 768 },
	{ 8, 1, 256 },
	{ 1, 32, 512 },
	{ 2, 16, 256 },
	{ 4, 4, 64 },
};
enum { ROUNDS = 3 };

struct scratch {		   /* pages and tokens of one shape */
	struct block_table *table; /* [n_seqs] */
	int32_t *tokens;
	uint32_t n;
};

static void scratch_finish(struct sched *s, struct scratch *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		block_table_release(&c->table[i], s->pages);
	mem_free(c->table);
	mem_free(c->tokens);
}

/* Tokens of ascending ids: what they are does not change how long they take. */
static bool scratch_create(struct sched *s, const struct shape *p, struct scratch *c)
{
	bool ok;

	*c = (struct scratch){ .table = mem_zalloc(MEM_SCHED, p->n_seqs, sizeof *c->table),
		.tokens = mem_zalloc(MEM_SCHED, p->n_tokens, sizeof *c->tokens) };
	ok = c->table && c->tokens;
	for (uint32_t i = 0; ok && i < p->n_tokens; i++)
		c->tokens[i] = (int32_t)(i % s->c.engine.info->n_vocab);
	for (; ok && c->n < p->n_seqs; c->n++)
		ok = !block_table_cover(&c->table[c->n], s->pages, (uint64_t)p->past + p->n_tokens);
	if (!ok)
		scratch_finish(s, c);
	return ok;
}

static struct cost_shape cost_of(const struct shape *p)
{
	struct cost_shape c = { 0 };

	for (uint32_t i = 0; i < p->n_seqs; i++)
		cost_shape_add(&c, p->past, p->n_tokens, 1);
	return c;
}

/* Not more than what the model takes, nor longer than a newcomer may wait. */
static bool suits(const struct sched *s, const struct shape *p)
{
	const struct model_info *i = s->c.engine.info;
	struct cost_shape c = cost_of(p);

	if (i->is_encoder && p->past)
		return false;
	return p->n_seqs <= s->c.max_running && c.n_tokens <= i->step_tokens &&
		p->past + p->n_tokens <= i->n_ctx && cost_predict_ns(s->cost, &c) <= s->c.max_prefill_ns;
}

static void fill(struct sched *s, const struct shape *p, const struct scratch *c)
{
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		s->plan[i] = (struct step_seq){ .tokens = c->tokens,
			.n_tokens = p->n_tokens,
			.past = p->past,
			.n_out = 1,
			.out = s->rows + (size_t)i * s->row_width };
		for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++) {
			s->plan[i].pages[g] = c->table[i].page[g];
			s->plan[i].n_pages[g] = c->table[i].n_pages;
		}
	}
}

static void measure(struct sched *s, const struct shape *p)
{
	struct cost_shape shape = cost_of(p);
	struct scratch c;
	uint64_t t0;

	if (!scratch_create(s, p, &c))
		return;
	fill(s, p, &c);
	t0 = sched_now(s);
	if (!s->c.engine.step(s->c.engine.ctx, s->plan, p->n_seqs, NULL))
		cost_observe(s->cost, &shape, sched_now(s) - t0);
	scratch_finish(s, &c);
	s->n_plan = 0;
}

/* One shape; false: all were measured. */
static bool calibrate(struct sched *s)
{
	struct calibration *c = &s->calibration;
	const struct shape *p;

	while (c->round < ROUNDS) {
		p = &shapes[c->shape];
		if (++c->shape == COUNT_OF(shapes)) {
			c->shape = 0;
			c->round++;
		}
		if (!suits(s, p))
			continue;
		measure(s, p);
		return true;
	}
	cost_set_calibrated(s->cost);
	return false;
}

static bool nobody_waits(const struct sched *s)
{
	return !(s->running.n + queue_waiting(s, WIRE_ONLINE) + queue_waiting(s, WIRE_OFFLINE));
}

bool sched_tend(struct sched *s, uint64_t budget_ns)
{
	uint64_t t0 = sched_now(s), used = 0;

	while (s->st.ended && !cost_calibrated(s->cost) && nobody_waits(s)) {
		if (calibrate(s) && (used = sched_now(s) - t0) >= budget_ns)
			return true;
	}
	return s->prefix && prefix_tend(s->prefix, budget_ns - MIN_OF(used, budget_ns), sched_now(s));
}
