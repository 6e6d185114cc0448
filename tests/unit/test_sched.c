/* SPDX-License-Identifier: Apache-2.0
 * The scheduler over a tiny model on the cpu backend: the same tokens in any company, after preemption, pause and
 * replay, with a prefix from the cache (F16 and Q8_0 KV, with windows); every request ends exactly once; pages come back.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "sched/sched.h"

enum { MAX_REQ = 64, MAX_TOK = 400, N_CTX = 256 };

struct answer {
	int32_t ids[MAX_TOK];
	uint32_t n, n_done, n_error, finish, n_preempted, n_cached;
	int code;
	char text[8192];
	size_t text_len;
};
struct bench { /* one scheduler and what it said; its clock moves with its steps */
	uint64_t now_ns;
	uint64_t n_steps;
	struct sched *s;
	struct model *m;
	struct answer a[MAX_REQ];
};

static struct plugins *plugins;
static struct backend *backend;

static int step_and_tick(void *ctx, struct step_seq *seqs, uint32_t n, struct error *e)
{
	struct bench *b = ctx;

	b->n_steps++;
	for (uint32_t i = 0; i < n; i++)
		b->now_ns += 200000 + 100000 * seqs[i].n_tokens;
	return model_step(b->m, seqs, n, e);
}

static uint64_t bench_now(void *ctx) { return ((struct bench *)ctx)->now_ns; }

static struct sched_engine engine_of(struct bench *b)
{
	struct sched_engine g = sched_engine_of(b->m);

	g.ctx = b;
	g.step = step_and_tick;
	g.now_ns = bench_now;
	return g;
}

/* ---- sink --------------------------------------------------------------------------------------------------------- */

static void on_state(void *ctx, uint64_t id, uint32_t phase, uint32_t permille)
{
	(void)ctx;
	(void)phase;
	assert_true(id < MAX_REQ && permille <= 1000);
}

static void on_tokens(void *ctx, uint64_t id, const int32_t *ids, uint32_t n_ids, const char *text, size_t len,
	const struct sampler_logprob *lp, uint32_t n_lp)
{
	struct answer *a = &((struct bench *)ctx)->a[id];

	assert_int_equal(a->n_done + a->n_error, 0);
	assert_true(a->n + n_ids <= MAX_TOK && a->text_len + len < sizeof a->text);
	assert_true(utf8_valid(text, len, NULL));
	memcpy(a->ids + a->n, ids, n_ids * sizeof *ids);
	a->n += n_ids;
	memcpy(a->text + a->text_len, text, len);
	a->text_len += len;
	if (n_lp)
		assert_int_equal(lp[0].token, ids[0]);
}

static void on_done(void *ctx, uint64_t id, const struct wire_done *d)
{
	struct answer *a = &((struct bench *)ctx)->a[id];

	a->n_done++;
	a->finish = d->finish;
	a->n_preempted = d->n_preempted;
	a->n_cached = d->n_cached;
	assert_int_equal(a->n_error, 0);
}

static void on_error(void *ctx, uint64_t id, int code, const char *text)
{
	struct answer *a = &((struct bench *)ctx)->a[id];

	a->n_error++;
	a->code = code;
	assert_true(text[0]);
	assert_int_equal(a->n_done, 0);
}

/* ---- bench ---------------------------------------------------------------------------------------------------------- */

struct setting { /* of a bench; zero members: tiny q4_1, F16, plenty of pages */
	const char *model;
	uint32_t kv_type, kv_tokens, n_sessions, max_running;
	bool no_prefix;
};

static struct bench *bench_open_as(const struct setting *k)
{
	struct bench *b = calloc(1, sizeof *b);
	struct model_options o = { .path = tiny_path(k->model ? k->model : "q4_1"), .backend = backend, .n_ctx = N_CTX, .step_tokens = 64,
		.step_seqs = 16, .page_tokens = 16, .kv_type = k->kv_type, .n_sessions = k->n_sessions };
	struct sched_config c = { .max_running = k->max_running, .no_prefix = k->no_prefix };
	struct sched_sink sink = {
		.ctx = b, .state = on_state, .tokens = on_tokens, .done = on_done, .error = on_error
	};
	struct error e = { 0 };

	b->now_ns = NS_PER_S;
	/* a token of K and V: 3 layers x 2 heads x 32 x 2 x f16 */
	if (!k->n_sessions)
		o.kv_bytes = (uint64_t)(k->kv_tokens ? k->kv_tokens : 16 * N_CTX) * 3 * 2 * 32 * 2 * 2;
	if (model_open(&o, &b->m, &e))
		fail_msg("%s", e.text);
	c.engine = engine_of(b);
	if (sched_create(&c, &sink, &b->s, &e))
		fail_msg("%s", e.text);
	return b;
}

/* kv_tokens: what the pool holds in all; 0: plenty. */
static struct bench *bench_open(uint32_t kv_tokens, uint32_t max_running)
{
	return bench_open_as(&(struct setting){ .kv_tokens = kv_tokens, .max_running = max_running });
}

static void bench_close(struct bench *b)
{
	struct sched_status st;

	sched_get_status(b->s, &st);
	assert_int_equal(st.running + st.waiting, 0);
	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
		assert_int_equal(st.pages_free[g], st.pages_total[g]);
	sched_destroy(b->s);
	model_close(b->m);
	free(b);
}

static void make_prompt(uint32_t id, int32_t *p, uint32_t n)
{
	uint32_t seed = id * 2654435761u + 17;

	for (uint32_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (int32_t)(seed >> 16) % 500;
	}
}

static uint32_t prompt_len(uint32_t id) { return 1 + id * 37 % 90; }

/* Request `id` is always the same: prompt, and every third one draws. */
static int submit(struct bench *b, uint32_t id, uint32_t max_tokens, const int32_t *history, uint32_t n_history, uint64_t told,
	struct error *e)
{
	int32_t prompt[N_CTX];
	struct sched_request r = { .id = id, .prompt = prompt, .n_prompt = prompt_len(id), .history = history, .n_history = n_history,
		.history_text_bytes = told, .max_tokens = max_tokens, .emit.ignore_eos = true };

	make_prompt(id, prompt, r.n_prompt);
	if (id % 3 == 0)
		r.sampling = (struct sampler_params){ .temperature = 0.9f, .seed = id, .repeat_penalty = 1.1f, .n_logprobs = id % 2 * 3 };
	return sched_submit(b->s, &r, e);
}

static void run_out(struct bench *b)
{
	struct error e = { 0 };
	int rc;

	while (!(rc = sched_step(b->s, &e)))
		;
	assert_int_equal(rc, TENON_E_AGAIN);
}

static void same_answer(const struct answer *x, const struct answer *y)
{
	assert_int_equal(x->n, y->n);
	assert_memory_equal(x->ids, y->ids, x->n * sizeof *x->ids);
	assert_int_equal(x->text_len, y->text_len);
	assert_memory_equal(x->text, y->text, x->text_len);
}

/* What each request answers when nobody else is there. */
static struct answer *alone(uint32_t id, uint32_t max_tokens)
{
	static struct answer kept[MAX_REQ];
	static uint32_t asked[MAX_REQ];
	struct bench *b;

	if (asked[id] != max_tokens) {
		b = bench_open(0, 0);
		assert_int_equal(submit(b, id, max_tokens, NULL, 0, 0, NULL), 0);
		run_out(b);
		assert_int_equal(b->a[id].n_done, 1);
		assert_int_equal(b->a[id].n, max_tokens);
		assert_int_equal(b->a[id].finish, WIRE_FINISH_LENGTH);
		kept[id] = b->a[id];
		asked[id] = max_tokens;
		bench_close(b);
	}
	return &kept[id];
}

/* ---- tests ---------------------------------------------------------------------------------------------------------- */

static void company_changes_nothing(void **st)
{
	struct bench *b = bench_open(0, 0);

	(void)st;
	for (uint32_t id = 0; id < 24; id++) {
		assert_int_equal(submit(b, id, 20, NULL, 0, 0, NULL), 0);
		if (id % 5 == 4)
			(void)sched_step(b->s, NULL);
	}
	run_out(b);
	for (uint32_t id = 0; id < 24; id++) {
		assert_int_equal(b->a[id].n_done, 1);
		same_answer(&b->a[id], alone(id, 20));
	}
	bench_close(b);
}

/* A pool of 192 tokens for sequences of up to 110: they push each other out and come back with the same tokens. */
static void preemption_changes_nothing(void **st)
{
	struct bench *b = bench_open(192, 0);
	uint32_t preempted = 0;

	(void)st;
	for (uint32_t id = 0; id < 16; id++)
		assert_int_equal(submit(b, id, 40, NULL, 0, 0, NULL), 0);
	run_out(b);
	for (uint32_t id = 0; id < 16; id++) {
		assert_int_equal(b->a[id].n_done, 1);
		same_answer(&b->a[id], alone(id, 40));
		preempted += b->a[id].n_preempted;
	}
	assert_true(preempted > 0);
	bench_close(b);
}

/* A worker died after any number of tokens, with any part of their text told: the rest follows seamlessly. */
static void replay_goes_on_where_it_stopped(void **st)
{
	(void)st;
	for (uint32_t id = 2; id < 5; id++) {
		const struct answer *whole = alone(id, 20);

		for (uint32_t cut = 1; cut <= 20; cut += 3) {
			struct bench *first = bench_open(0, 0), *b = bench_open(0, 0);
			struct answer joined;

			assert_int_equal(submit(first, id, 20, NULL, 0, 0, NULL), 0);
			while (first->a[id].n < cut)
				assert_int_equal(sched_step(first->s, NULL), 0);
			joined = first->a[id];
			joined.n_done = 0;
			(void)sched_cancel(first->s, id, TENON_E_CANCELLED, "worker is gone");
			b->a[id] = joined;
			assert_int_equal(submit(b, id, 20, joined.ids, joined.n, joined.text_len, NULL), 0);
			run_out(b);
			assert_int_equal(b->a[id].n_done, 1);
			same_answer(&b->a[id], whole);
			bench_close(b);
			bench_close(first);
		}
	}
}

static void cancel_at_any_point(void **st)
{
	(void)st;
	for (uint32_t after = 0; after < 30; after++) {
		struct bench *b = bench_open(256, 4);

		for (uint32_t id = 0; id < 8; id++)
			assert_int_equal(submit(b, id, 12, NULL, 0, 0, NULL), 0);
		for (uint32_t k = 0; k < after; k++)
			(void)sched_step(b->s, NULL);
		for (uint32_t id = after % 3; id < 8; id += 2) {
			int rc = sched_cancel(b->s, id, TENON_E_CANCELLED, "cancelled by the client");

			assert_int_equal(rc, b->a[id].n_done ? TENON_E_NOT_FOUND : 0);
			assert_int_equal(b->a[id].n_done + b->a[id].n_error, 1);
		}
		run_out(b);
		for (uint32_t id = 0; id < 8; id++) {
			assert_int_equal(b->a[id].n_done + b->a[id].n_error, 1);
			if (b->a[id].n_done)
				same_answer(&b->a[id], alone(id, 12));
		}
		assert_int_equal(sched_cancel(b->s, 60, TENON_E_CANCELLED, "x"), TENON_E_NOT_FOUND);
		bench_close(b);
	}
}

static void paused_requests_wait_and_others_pass(void **st)
{
	struct bench *b = bench_open(0, 2);

	(void)st;
	for (uint32_t id = 0; id < 4; id++)
		assert_int_equal(submit(b, id, 16, NULL, 0, 0, NULL), 0);
	for (int k = 0; k < 6; k++)
		(void)sched_step(b->s, NULL);
	assert_int_equal(sched_pause(b->s, 0), 0);
	run_out(b);
	assert_int_equal(b->a[0].n_done, 0);
	for (uint32_t id = 1; id < 4; id++)
		assert_int_equal(b->a[id].n_done, 1);
	assert_int_equal(sched_resume(b->s, 0), 0);
	run_out(b);
	same_answer(&b->a[0], alone(0, 16));
	assert_int_equal(sched_pause(b->s, 0), TENON_E_NOT_FOUND);
	bench_close(b);
}

/* ---- reuse ------------------------------------------------------------------------------------------------------------ */

enum { TURNS = 8 };
struct talk { /* requests that share parts of their prompts */
	int32_t prompt[TURNS][N_CTX];
	uint32_t n[TURNS], max_tokens[TURNS];
	struct answer want[TURNS];
};

static int ask(struct bench *b, const struct talk *t, uint32_t k, uint32_t traffic_class)
{
	struct sched_request r = { .id = k, .prompt = t->prompt[k], .n_prompt = t->n[k], .max_tokens = t->max_tokens[k],
		.traffic_class = traffic_class, .emit.ignore_eos = true };

	if (k % 2)
		r.sampling = (struct sampler_params){ .temperature = 0.9f, .seed = k };
	return sched_submit(b->s, &r, NULL);
}

static void put(struct talk *t, uint32_t k, const int32_t *from, uint32_t n, uint32_t tail)
{
	memcpy(t->prompt[k], from, n * sizeof *from);
	make_prompt(100 + k, t->prompt[k] + n, tail);
	t->n[k] = n + tail;
	t->max_tokens[k] = 12 + 5 * (k % 3);
}

/* Answers of requests by themselves, without any cache. */
static void solve(struct talk *t, uint32_t k, const struct setting *base)
{
	struct setting alone = { .model = base->model, .kv_type = base->kv_type, .n_sessions = 2, .no_prefix = true };
	struct bench *b = bench_open_as(&alone);

	assert_int_equal(ask(b, t, k, WIRE_ONLINE), 0);
	run_out(b);
	assert_int_equal(b->a[k].n_done, 1);
	t->want[k] = b->a[k];
	bench_close(b);
}

/* 0; the same again; parting from it in the middle of a page, at its border, early; a next turn; two twins of another. */
static void talk_make(struct talk *t, const struct setting *base)
{
	int32_t turn[N_CTX] = { 0 };

	put(t, 0, turn, 0, 100);
	solve(t, 0, base);
	memcpy(turn, t->prompt[0], 100 * sizeof *turn);
	memcpy(turn + 100, t->want[0].ids, t->want[0].n * sizeof *turn);
	put(t, 1, turn, 100, 0);
	put(t, 2, turn, 75, 40);
	put(t, 3, turn, 64, 30);
	put(t, 4, turn, 9, 60);
	put(t, 5, turn, 100 + t->want[0].n, 25);
	put(t, 6, turn, 0, 120);
	put(t, 7, t->prompt[6], 120, 0);
	for (uint32_t k = 1; k < TURNS; k++)
		solve(t, k, base);
}

static void check_talk(struct bench *b, const struct talk *t)
{
	for (uint32_t k = 0; k < TURNS; k++) {
		assert_int_equal(b->a[k].n_done, 1);
		same_answer(&b->a[k], &t->want[k]);
	}
}

static void talk_with_hits(const struct setting *base, const struct talk *t)
{
	struct setting k = *base;
	struct bench *b;

	k.n_sessions = 8;
	b = bench_open_as(&k);
	assert_int_equal(ask(b, t, 0, WIRE_ONLINE), 0);
	run_out(b);
	for (uint32_t i = 1; i < TURNS; i++)
		assert_int_equal(ask(b, t, i, i % 3 == 0), 0);
	run_out(b);
	check_talk(b, t);
	assert_int_equal(b->a[0].n_cached, 0);
	assert_true(b->a[1].n_cached >= 96 && b->a[2].n_cached >= 64 && b->a[3].n_cached == 64 && b->a[5].n_cached >= 96);
	if (!base->model) { /* without windows a hit ends anywhere in a page */
		assert_int_equal(b->a[1].n_cached, 99);
		assert_int_equal(b->a[2].n_cached, 75);
		assert_int_equal(b->a[5].n_cached, 100 + b->a[0].n - 1);
	}
	assert_true(b->a[6].n_cached + b->a[7].n_cached >= 112);
	bench_close(b);
}

/* Online requests push offline ones out of their places, again and again. */
static void talk_with_preemption(const struct setting *base, const struct talk *t)
{
	struct setting k = *base;
	struct bench *b;
	uint32_t preempted = 0;

	k.n_sessions = 8;
	k.max_running = 2;
	b = bench_open_as(&k);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(ask(b, t, i, WIRE_OFFLINE), 0);
	for (uint32_t i = 4; i < TURNS; i++) {
		for (int n = 0; n < 7; n++)
			(void)sched_step(b->s, NULL);
		assert_int_equal(ask(b, t, i, WIRE_ONLINE), 0);
	}
	run_out(b);
	check_talk(b, t);
	for (uint32_t i = 0; i < 4; i++)
		preempted += b->a[i].n_preempted;
	assert_true(preempted > 0);
	bench_close(b);
}

/* Room for one full context: pages are evicted and computed again all the time. */
static void talk_with_eviction(const struct setting *base, const struct talk *t)
{
	struct setting k = *base;
	struct sched_status s;
	struct bench *b;

	k.n_sessions = 1;
	b = bench_open_as(&k);
	for (int round = 0; round < 3; round++) {
		memset(b->a, 0, sizeof b->a);
		for (uint32_t i = 0; i < TURNS; i++) {
			assert_int_equal(ask(b, t, i, i % 2), 0);
			if (i % 3 == 2)
				run_out(b);
		}
		run_out(b);
		check_talk(b, t);
	}
	sched_get_status(b->s, &s);
	assert_true(s.prefix.evicted_pages > 0 && s.prefix.hit_tokens > 0);
	bench_close(b);
}

static void reuse_changes_nothing(void **st)
{
	static const struct setting settings[] = { { 0 }, { .kv_type = TNP_Q8_0 }, { .model = "gemma3" },
		{ .model = "gemma3", .kv_type = TNP_Q8_0 } };
	struct talk *t = calloc(1, sizeof *t);

	(void)st;
	for (size_t i = 0; i < COUNT_OF(settings); i++) {
		talk_make(t, &settings[i]);
		talk_with_hits(&settings[i], t);
		talk_with_preemption(&settings[i], t);
		talk_with_eviction(&settings[i], t);
	}
	free(t);
}

/* ---- the door --------------------------------------------------------------------------------------------------------- */

static void what_can_never_run_is_refused(void **st)
{
	struct bench *b = bench_open(64, 0);
	int32_t bad[3] = { 1, 1 << 20, 2 }, ok[3] = { 1, 2, 3 };
	struct sched_request r = { .id = 1, .prompt = ok, .n_prompt = 3, .max_tokens = 8 };
	struct error e = { 0 };

	(void)st;
	r.n_prompt = 0;
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_INVALID);
	r.n_prompt = 3;
	r.prompt = bad;
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_INVALID);
	assert_non_null(strstr(e.text, "1048576"));
	r.prompt = ok;
	r.max_tokens = N_CTX;
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_TOO_LONG);
	r.max_tokens = 100; /* the pool holds 64 */
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_NOMEM);
	r.max_tokens = 8;
	r.sampling.temperature = -1;
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_INVALID);
	r.sampling.temperature = 0;
	assert_int_equal(sched_submit(b->s, &r, &e), 0);
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_INVALID); /* the id is in use */
	run_out(b);
	assert_int_equal(b->a[1].n_done, 1);
	bench_close(b);
}

static void the_queue_has_an_end_and_deadlines_pass(void **st)
{
	struct bench *b = bench_open(0, 0);
	int32_t prompt[2] = { 5, 6 };
	struct sched_request r = { .prompt = prompt, .n_prompt = 2, .max_tokens = 4, .emit.ignore_eos = true };
	struct sched_sink sink = {
		.ctx = b, .state = on_state, .tokens = on_tokens, .done = on_done, .error = on_error
	};
	struct error e = { 0 };
	struct sched *small;

	(void)st;
	r.id = 1;
	r.deadline_ns = b->now_ns;
	assert_int_equal(sched_submit(b->s, &r, &e), TENON_E_INVALID);
	r.deadline_ns = b->now_ns + 1;
	assert_int_equal(sched_submit(b->s, &r, &e), 0);
	b->now_ns++;
	run_out(b);
	assert_int_equal(b->a[1].code, TENON_E_TIMEOUT);
	bench_close(b);

	b = bench_open(0, 0);
	sink.ctx = b;
	assert_int_equal(sched_create(&(struct sched_config){ .engine = engine_of(b), .class[0].max_waiting = 2 }, &sink, &small, &e), 0);
	for (r.id = 1, r.deadline_ns = 0; r.id <= 2; r.id++)
		assert_int_equal(sched_submit(small, &r, &e), 0);
	assert_int_equal(sched_submit(small, &r, &e), TENON_E_FULL);
	sched_destroy(small);
	bench_close(b);
}

static void memory_failures_leave_nothing(void **st)
{
	struct bench *b = bench_open(0, 0);
	struct error e;
	int rc = TENON_E_NOMEM;
	uint64_t before;

	(void)st;
	assert_int_equal(submit(b, 4, 8, NULL, 0, 0, &e), 0); /* its tenant stays known */
	run_out(b);
	before = mem_area_bytes(MEM_SCHED);
	for (uint64_t n = 1; rc == TENON_E_NOMEM; n++) {
		mem_fail_at(n);
		rc = submit(b, 3, 8, NULL, 0, 0, &e);
		mem_fail_at(0);
		if (rc)
			assert_int_equal(mem_area_bytes(MEM_SCHED), before);
		assert_true(n < 100);
	}
	assert_int_equal(rc, 0);
	run_out(b);
	assert_int_equal(b->a[3].n_done, 1);
	bench_close(b);
}

static int setup(void **st)
{
	static char dir[4096];
	static const char *dirs[1] = { dir };
	struct error e = { 0 };

	(void)st;
	if (plugins_default_dir(dir, sizeof dir, &e) || plugins_open(&(struct plugins_config){ .dirs = dirs, .n_dirs = 1 }, &plugins, &e) ||
		backend_open(plugins, "cpu", 0, &backend, &e)) {
		(void)fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	return 0;
}

static int teardown(void **st)
{
	(void)st;
	backend_close(backend);
	plugins_close(plugins);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(company_changes_nothing),
		cmocka_unit_test(preemption_changes_nothing),
		cmocka_unit_test(replay_goes_on_where_it_stopped),
		cmocka_unit_test(cancel_at_any_point),
		cmocka_unit_test(paused_requests_wait_and_others_pass),
		cmocka_unit_test(reuse_changes_nothing),
		cmocka_unit_test(what_can_never_run_is_refused),
		cmocka_unit_test(the_queue_has_an_end_and_deadlines_pass),
		cmocka_unit_test(memory_failures_leave_nothing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
