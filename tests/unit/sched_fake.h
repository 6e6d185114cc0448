/* SPDX-License-Identifier: Apache-2.0
 * A backend for tests of the scheduler's policy: known costs, a clock that only its steps move. The prompt of request `id`
 * is the token `id` again and again and so is its answer, unless a test gives other prompts; so a step's spans tell whose
 * they are by their last token. KV contents are not modelled (tests/sim does).
 */
#ifndef TESTS_SCHED_FAKE_H
#define TESTS_SCHED_FAKE_H
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "sched/sched.h"

enum { FAKE_IDS = 2048, FAKE_VOCAB = 500, FAKE_SEQS = 64, FAKE_CTX = 4096 };
#define MS NS_PER_MS

struct heard { /* what the sink was told about a request */
	uint32_t n_tokens, n_done, n_error, n_cached, n_preempted, n_embedded;
	int code;
	uint64_t first_ns, last_ns, worst_gap_ns;
	char text[256];
};
struct span {
	uint32_t token, n, past;
};
struct fake {
	struct sched *s;
	struct model_info info;
	uint64_t now_ns, n_steps, last_ns;   /* last_ns: the last step's time */
	uint64_t base_ns, row_ns;            /* a step: base + rows x row */
	uint32_t noise_permille, slow_permille, dice; /* that, more or less; so many steps take half as long again */
	uint64_t entered_ns, engine_real_ns; /* real time of the last step: when, how long in here */
	struct span span[FAKE_SEQS];
	uint32_t n_spans, n_rows, n_copies;
	int fail;                            /* the next step fails with it */
	struct heard h[FAKE_IDS];
};

static struct gguf *fake_file;
static struct tokenizer *fake_tokenizer;

static inline int fake_setup(void **st)
{
	struct error e = { 0 };

	(void)st;
	if (!gguf_open(tiny_path("q4_1"), &fake_file, &e) && !tokenizer_create(fake_file, &fake_tokenizer, &e))
		return 0;
	(void)fprintf(stderr, "%s\n", e.text);
	return 1;
}

static inline int fake_teardown(void **st)
{
	(void)st;
	tokenizer_destroy(fake_tokenizer);
	gguf_close(fake_file);
	return 0;
}

static inline uint32_t fake_draw(struct fake *f) { return (f->dice = f->dice * 1664525u + 1013904223u) >> 8; }

static inline uint64_t fake_noise(struct fake *f, uint64_t ns)
{
	uint64_t permille = 1000 - f->noise_permille + fake_draw(f) % (2 * f->noise_permille + 1);

	return ns * (fake_draw(f) % 1000 < f->slow_permille ? permille * 3 / 2 : permille) / 1000;
}

static inline int fake_step(void *ctx, struct step_seq *q, uint32_t n, struct error *e)
{
	struct fake *f = ctx;
	uint64_t real = clock_now_ns();

	if (f->fail) {
		int rc = f->fail;

		f->fail = 0;
		return error_set(e, rc, "fake: told to fail");
	}
	f->n_spans = n;
	f->n_rows = 0;
	for (uint32_t i = 0; i < n; i++) {
		f->span[i] = (struct span){ (uint32_t)q[i].tokens[q[i].n_tokens - 1], q[i].n_tokens, q[i].past };
		f->n_rows += q[i].n_tokens;
		q[i].rc = 0;
		if (!q[i].n_out)
			continue;
		memset(q[i].out, 0, FAKE_VOCAB * sizeof *q[i].out);
		q[i].out[f->span[i].token] = 1;
	}
	assert_true(n <= f->info.step_seqs && f->n_rows <= f->info.step_tokens);
	f->last_ns = fake_noise(f, f->base_ns + f->n_rows * f->row_ns);
	f->now_ns += f->last_ns;
	f->n_steps++;
	f->entered_ns = real;
	f->engine_real_ns = clock_now_ns() - real;
	return 0;
}

static inline int fake_copy(void *ctx, uint32_t g, uint32_t from, uint32_t to, uint32_t n, struct error *e)
{
	(void)g, (void)from, (void)to, (void)n, (void)e;
	((struct fake *)ctx)->n_copies++;
	return 0;
}

static inline uint64_t fake_now(void *ctx) { return ((struct fake *)ctx)->now_ns; }

/* ---- sink -------------------------------------------------------------------------------------------------------------- */

static inline void fake_state(void *ctx, uint64_t id, uint32_t phase, uint32_t permille)
{
	(void)ctx, (void)phase;
	assert_true(id < FAKE_IDS && permille <= 1000);
}

static inline void fake_tokens(void *ctx, uint64_t id, const int32_t *ids, uint32_t n, const char *text, size_t len,
	const struct sampler_logprob *lp, uint32_t n_lp)
{
	struct fake *f = ctx;
	struct heard *h = &f->h[id];

	(void)ids, (void)text, (void)len, (void)lp, (void)n_lp;
	assert_int_equal(h->n_done + h->n_error, 0);
	if (!h->n_tokens)
		h->first_ns = f->now_ns;
	else if (f->now_ns - h->last_ns > h->worst_gap_ns)
		h->worst_gap_ns = f->now_ns - h->last_ns;
	h->n_tokens += n;
	h->last_ns = f->now_ns;
}

static inline void fake_done(void *ctx, uint64_t id, const struct wire_done *d)
{
	struct heard *h = &((struct fake *)ctx)->h[id];

	assert_int_equal(h->n_done + h->n_error, 0);
	h->n_done++;
	h->n_cached = d->n_cached;
	h->n_preempted = d->n_preempted;
}

static inline void fake_error(void *ctx, uint64_t id, int code, const char *text)
{
	struct heard *h = &((struct fake *)ctx)->h[id];

	assert_int_equal(h->n_done + h->n_error, 0);
	h->n_error++;
	h->code = code;
	(void)snprintf(h->text, sizeof h->text, "%s", text);
}

/* The row names the text by its last token. */
static inline void fake_embedding(void *ctx, uint64_t id, const float *row, uint32_t n, uint32_t n_prompt)
{
	struct fake *f = ctx;

	assert_int_equal(n, FAKE_VOCAB);
	assert_int_equal(f->h[id].n_done + f->h[id].n_error + f->h[id].n_tokens, 0);
	assert_true(n_prompt > 0 && row[id % FAKE_VOCAB] == 1);
	f->h[id].n_embedded++;
	f->h[id].last_ns = f->now_ns;
}

/* ---- one scheduler ----------------------------------------------------------------------------------------------------- */

/* A step takes 8 ms + 1 ms a row, pages hold 16 tokens. Without pages: an encoder. */
static inline struct fake *fake_open(struct sched_config c, uint32_t n_pages)
{
	struct fake *f = calloc(1, sizeof *f);
	struct sched_sink sink = { f, fake_state, fake_tokens, fake_done, fake_error, fake_embedding };
	struct error e = { 0 };

	f->info = (struct model_info){ .name = "fake", .n_vocab = FAKE_VOCAB, .n_ctx = FAKE_CTX, .page_tokens = 16, .step_tokens = 512,
		.step_seqs = FAKE_SEQS, .step_out = FAKE_SEQS, .n_groups = n_pages ? 1 : 0, .invariant = true };
	if (!n_pages) {
		f->info.is_encoder = true;
		f->info.d_model = FAKE_VOCAB;
		f->info.n_ctx = f->info.step_tokens;
	}
	f->info.n_pages[0] = n_pages;
	f->info.page_bytes[0] = 1024;
	f->now_ns = NS_PER_S;
	f->base_ns = 8 * MS;
	f->row_ns = MS;
	c.engine = (struct sched_engine){ .ctx = f, .info = &f->info, .tokenizer = fake_tokenizer, .step = fake_step,
		.store = { .ctx = f, .copy = fake_copy }, .now_ns = fake_now };
	if (sched_create(&c, &sink, &f->s, &e))
		fail_msg("%s", e.text);
	return f;
}

static inline void fake_close(struct fake *f)
{
	struct sched_status st;

	sched_get_status(f->s, &st);
	assert_int_equal(st.running + st.waiting + st.paused, 0);
	assert_int_equal(st.pages_free[0] + st.prefix.pinned_pages, st.pages_total[0]);
	sched_destroy(f->s);
	free(f);
}

struct ask {
	uint32_t id, n_prompt, max_tokens, traffic_class;
	int32_t priority;
	const char *tenant;
	uint32_t weight;
	uint64_t ttft_ns, tpot_ns, deadline_ns;
	bool no_reuse, pin, again;
	int32_t token; /* of the prompt; 0: the id */
};

static inline int fake_ask(struct fake *f, struct ask a, struct error *e)
{
	static int32_t prompt[FAKE_CTX];
	struct sched_request r = { .id = a.id, .prompt = prompt, .n_prompt = a.n_prompt, .max_tokens = a.max_tokens,
		.traffic_class = a.traffic_class, .priority = a.priority, .tenant = a.tenant, .tenant_weight = a.weight,
		.ttft_ns = a.ttft_ns, .tpot_ns = a.tpot_ns, .deadline_ns = a.deadline_ns, .no_reuse = a.no_reuse, .pin = a.pin, .again = a.again,
		.emit.ignore_eos = true };

	for (uint32_t i = 0; i < a.n_prompt; i++)
		prompt[i] = a.token ? a.token : (int32_t)a.id;
	return sched_submit(f->s, &r, e);
}

#define ASK(f, ...) assert_int_equal(fake_ask(f, (struct ask){ __VA_ARGS__ }, NULL), 0)

/* Rows of request `id` in the last step. */
static inline uint32_t rows_of(const struct fake *f, uint32_t id)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_spans; i++)
		n += f->span[i].token == id ? f->span[i].n : 0;
	return n;
}

static inline void one_step(struct fake *f) { assert_int_equal(sched_step(f->s, NULL), 0); }
static inline void steps(struct fake *f, uint32_t n)
{
	while (n--)
		one_step(f);
}

static inline void run_out(struct fake *f)
{
	int rc;

	while (!(rc = sched_step(f->s, NULL)))
		;
	assert_int_equal(rc, TENON_E_AGAIN);
}

/* Enough steps of all kinds for the cost model to know this machine. */
static inline void learn(struct fake *f)
{
	static const uint32_t n_prompt[] = { 1, 3, 30, 100, 300 };

	for (uint32_t k = 0; k < 60; k++) {
		for (uint32_t i = 0; i <= k % 6; i++)
			ASK(f, .id = 480 + i, .n_prompt = n_prompt[(k + i) % 5], .max_tokens = 4, .no_reuse = true);
		run_out(f);
		memset(&f->h[480], 0, 6 * sizeof *f->h);
	}
}

static inline const struct sched_entry *entry_of(struct fake *f, uint64_t id)
{
	static struct sched_entry list[FAKE_IDS];
	size_t n = sched_list(f->s, list, FAKE_IDS);

	for (size_t i = 0; i < n; i++)
		if (list[i].id == id)
			return &list[i];
	fail_msg("request %d is not listed", (int)id);
	return NULL;
}
#endif
