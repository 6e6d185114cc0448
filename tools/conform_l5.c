/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 5: behaviour. Broken batches, bits that must not change, growth over many steps, an
 * allocation failing at every place in turn, and what a plugin must leave alone in its process.
 */
#include "tools/conform.h"
#include "tools/conform_alloc.h"
#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT 24u

extern char **environ;

/* ---- a model with one text ------------------------------------------------------------------------------------------ */
struct bench {
	struct conform *c;
	struct tnp_make *make;
	const struct tnp_graph *g;
	struct run_limits lim;
	struct run_model m;
	uint64_t width;
	int32_t token[TEXT];
	uint32_t page[TEXT];
};

/* model NULL: any */
static void bench_open_model(struct conform *c, struct bench *b, uint32_t precision, const char *model)
{
	struct tnp_error e = { .size = sizeof e };
	uint64_t seed = c->seed;

	*b = (struct bench){ .c = c, .lim = conform_limits(c) };
	b->lim.precision = precision;
	b->make = model ? made_model_for(c, made_model_find(model), &b->g) : made_model_any(c, &b->g);
	if (!b->make)
		conform_skip(c, "does not take model '%s'", model ? model : "any");
	b->width = run_width(b->g, b->g->out[0]);
	if (run_open(&b->m, &c->sut, b->g, &b->lim, &e))
		conform_fail(c, "open: %s", e.text);
	for (uint32_t i = 0; i < TEXT; i++) {
		b->token[i] = (int32_t)(tnp_rand(&seed) % 101);
		b->page[i] = (i * 7 + 3) % b->lim.n_pages;
	}
}

static void bench_open(struct conform *c, struct bench *b, uint32_t precision)
{
	bench_open_model(c, b, precision, NULL);
}

static void bench_close(struct bench *b)
{
	run_close(&b->m);
	tnp_make_destroy(b->make);
}

static struct run_seq tokens(const struct bench *b, uint32_t past, uint32_t n, float *out)
{
	struct run_seq s = { .token = b->token + past, .n = n, .past = past, .n_out = n, .out = { out } };

	s.n_page = (past + n + b->lim.page_tokens - 1) / b->lim.page_tokens;
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		s.page[g] = b->page;
	return s;
}

static float *rows(const struct bench *b, uint32_t n)
{
	float *p = calloc(n * b->width, sizeof *p);

	if (!p)
		conform_fail(b->c, "plugin-conform itself is out of memory");
	return p;
}

/* ---- whole batches that are refused ----------------------------------------------------------------------------------- */
struct broken {
	const char *what;
	void (*bend)(struct run_arrays *a);
	bool tokens; /* only where the graph has tokens, pages and chosen rows */
};

static void no_tok0(struct run_arrays *a) { a->b.tok0 = NULL; }
static void no_past(struct run_arrays *a) { a->b.past = NULL; }
static void no_token(struct run_arrays *a) { a->b.token = NULL; }
static void no_pos(struct run_arrays *a) { a->b.pos = NULL; }
static void no_rc(struct run_arrays *a) { a->b.seq_rc = NULL; }
static void no_pages(struct run_arrays *a) { a->b.pages = NULL; }
static void no_list(struct run_arrays *a) { a->pages[0].page0 = NULL; }
static void no_out(struct run_arrays *a) { a->b.out = NULL; }
static void no_data(struct run_arrays *a) { a->out[0].data = NULL; }
static void narrow(struct run_arrays *a) { a->out[0].stride = a->out_width[0] - 1; }
static void tok0_start(struct run_arrays *a) { a->tok0[0] = 1; }
static void tok0_end(struct run_arrays *a) { a->tok0[2]++; }
static void tok0_down(struct run_arrays *a) { a->tok0[1] = a->tok0[2] + 5; }
static void list_down(struct run_arrays *a) { a->page0[0][1] = a->page0[0][2] + 9; }
static void out_high(struct run_arrays *a) { a->out_tok[a->b.n_out - 1] = a->b.n_tokens; }
static void out_equal(struct run_arrays *a) { a->out_tok[1] = a->out_tok[0]; }
static void many_tokens(struct run_arrays *a) { a->b.n_tokens = 0x7fffffff; }
static void many_seqs(struct run_arrays *a) { a->b.n_seqs = 0xffffffff; }
static void many_out(struct run_arrays *a) { a->b.n_out = 0xffffffff; }

static const struct broken broken[] = { { "no tok0", no_tok0, false }, { "no past", no_past, true },
	{ "no tokens", no_token, true }, { "no positions", no_pos, true },
	{ "no room for codes", no_rc, false }, { "no page lists", no_pages, true },
	{ "a page list without its slices", no_list, true }, { "no outputs", no_out, false },
	{ "an output without memory", no_data, false }, { "a stride less than the width", narrow, false },
	{ "tok0 that starts at 1", tok0_start, false }, { "tok0 that ends too late", tok0_end, false },
	{ "tok0 that falls", tok0_down, false }, { "page lists that fall", list_down, true },
	{ "a row wanted past the tokens", out_high, true }, { "a row wanted twice", out_equal, true },
	{ "two billion tokens", many_tokens, false }, { "four billion sequences", many_seqs, false },
	{ "four billion rows", many_out, true } };

static void check_broken(struct conform *c)
{
	struct tnp_error e = { .size = sizeof e };
	struct bench b;
	float *out;

	conform_open(c);
	bench_open(c, &b, TNP_EXACT);
	out = rows(&b, TEXT);
	for (size_t i = 0; i < COUNT_OF(broken); i++) {
		struct run_seq s[2] = { tokens(&b, 0, 6, out), tokens(&b, 0, 5, out) };
		uint32_t other[TEXT];
		struct run_arrays a;
		float *data;
		tnp_rc rc;

		if (broken[i].tokens && !b.m.n_slots)
			continue;
		for (uint32_t k = 0; k < TEXT; k++)
			other[k] = b.page[k] + 1;
		for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
			s[1].page[g] = other;
		conform_note(c, "a batch with %s", broken[i].what);
		run_make(c, &b.m, s, 2, &a);
		data = a.out[0].data;
		broken[i].bend(&a);
		rc = run_call(&b.m, &a, &e);
		if (rc != TNP_E_INVALID)
			conform_fail(c, "%s, want TNP_E_INVALID", conform_code(rc));
		a.out[0].data = data;
		run_free(&a);
		c->result->n_cases++;
	}
	conform_note(c, "a good batch after all these");
	{
		struct run_seq s = tokens(&b, 0, TEXT, out);

		if (run_batch(c, &b.m, &s, 1, &e) || s.rc)
			conform_fail(c, "fails: %s", e.text);
	}
	free(out);
	bench_close(&b);
	conform_close(c);
}

/* ---- tickets and pages ---------------------------------------------------------------------------------------------------- */
static void want(struct conform *c, tnp_rc got, tnp_rc right, const char *what)
{
	conform_note(c, "%s", what);
	if (got != right)
		conform_fail(c, "%s, want %s", conform_code(got), conform_code(right));
	c->result->n_cases++;
}

static void pool_calls(struct conform *c, struct bench *b)
{
	const struct tnp_ops *t = c->sut.ops;
	struct tnp_kv *kv = NULL;
	struct tnp_kv_spec spec = { .size = sizeof spec,
		.type = b->lim.kv_type,
		.page_tokens = b->lim.page_tokens,
		.n_slots = b->m.n_slots,
		.slots = b->m.slot };

	want(c, t->kv_copy(b->m.kv, 0, 0, b->lim.n_pages, 1, NULL), TNP_E_INVALID,
		"kv_copy to a page outside the pool");
	want(c, t->kv_copy(b->m.kv, 0, TNP_PAGE_HOLE, 1, 1, NULL), TNP_E_INVALID, "kv_copy from a hole");
	want(c, t->kv_copy(b->m.kv, TNP_MAX_GROUPS, 0, 1, 1, NULL), TNP_E_INVALID,
		"kv_copy in a group that is not there");
	want(c, t->kv_copy(b->m.kv, 0, 0, 1, b->lim.page_tokens + 1, NULL), TNP_E_INVALID,
		"kv_copy of more than a page");
	want(c, t->kv_open(b->m.model, &spec, &kv, NULL), TNP_E_INVALID, "kv_open without pages");
	spec.n_pages[0] = 4;
	spec.page_tokens *= 2;
	want(c, t->kv_open(b->m.model, &spec, &kv, NULL), TNP_E_INVALID, "kv_open with another page size");
	spec.page_tokens /= 2;
	spec.n_slots--;
	want(c, t->kv_open(b->m.model, &spec, &kv, NULL), TNP_E_INVALID, "kv_open with a slot too few");
	spec.n_slots++;
	b->m.slot[0].heads++;
	want(c, t->kv_open(b->m.model, &spec, &kv, NULL), TNP_E_INVALID, "kv_open with other heads");
	b->m.slot[0].heads--;
	if (kv)
		conform_fail(c, "a handle was written although the call failed");
}

static void check_calls(struct conform *c)
{
	const struct tnp_ops *t;
	struct bench b;

	conform_open(c);
	bench_open(c, &b, TNP_EXACT);
	t = c->sut.ops;
	want(c, t->wait(c->sut.dev, 0, 0, NULL), TNP_E_INVALID, "wait for ticket 0");
	want(c, t->wait(c->sut.dev, 1u << 30, 0, NULL), TNP_E_INVALID, "wait for a ticket never given out");
	if (b.m.n_slots)
		pool_calls(c, &b);
	t->kv_close(NULL);
	t->model_close(NULL);
	t->dev_close(NULL);
	bench_close(&b);
	conform_close(c);
}

/* ---- bits that must not change ---------------------------------------------------------------------------------------------- */
static void chunks(struct conform *c, struct bench *b, uint32_t chunk, float *out)
{
	struct tnp_error e = { .size = sizeof e };

	for (uint32_t at = 0; at < TEXT; at += chunk) {
		struct run_seq s = tokens(b, at, MIN_OF(chunk, TEXT - at), out + at * b->width);

		if (run_batch(c, &b->m, &s, 1, &e) || s.rc)
			conform_fail(c, "batch: %s", e.text);
	}
}

static void invariance(struct conform *c, const char *model)
{
	static const uint32_t chunk[] = { 1, 2, 3, 5, 8, 11, 16, 23 };

	conform_open(c);
	if (!(c->sut.info.features & TNP_F_INVARIANT))
		conform_skip(c, "TNP_F_INVARIANT is not claimed");
	for (uint32_t precision = TNP_FAST; precision <= TNP_EXACT; precision++) {
		struct bench b;
		float *whole, *cut;

		bench_open_model(c, &b, precision, model);
		whole = rows(&b, TEXT);
		cut = rows(&b, TEXT);
		chunks(c, &b, TEXT, whole);
		for (size_t i = 0; i < COUNT_OF(chunk); i++) {
			conform_note(
				c, "%s, chunks of %u", precision == TNP_FAST ? "fast" : "exact", chunk[i]);
			chunks(c, &b, chunk[i], cut);
			if (memcmp(whole, cut, TEXT * b.width * sizeof *cut))
				conform_fail(c, "other bits than in one step");
			c->result->n_cases++;
		}
		free(whole);
		free(cut);
		bench_close(&b);
	}
	conform_close(c);
}

static void check_invariance(struct conform *c) { invariance(c, NULL); }
static void check_invariance_experts(struct conform *c) { invariance(c, "experts"); }

/* ---- not a number ------------------------------------------------------------------------------------------------------------ */
/* Rows of one sequence full of NaN and infinities: its neighbour's rows stay as they are without it. */
static void nan_run(struct conform *c, const struct tnp_graph *g, uint32_t precision)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, 1 };
	struct run_limits lim = conform_limits(c);
	uint64_t in = run_width(g, g->in[0]), out = run_width(g, g->out[0]), seed = c->seed;
	float *bad = calloc(5 * in, sizeof *bad), *good = calloc(5 * in, sizeof *good);
	float *alone = calloc(5 * out, sizeof *alone), *beside = calloc(5 * out, sizeof *beside);
	struct run_seq s[2] = { { .in = bad, .n = 5 }, { .in = good, .n = 5, .out = { beside } } };
	struct run_seq one = { .in = good, .n = 5, .out = { alone } };
	struct tnp_error e = { .size = sizeof e };
	struct run_model m;

	if (!bad || !good || !alone || !beside)
		conform_fail(c, "plugin-conform itself is out of memory");
	for (uint64_t i = 0; i < 5 * in; i++) {
		bad[i] = tnp_rand(&seed) % 3 ? (float)tnp_rand_normal(&seed)
					     : odd[tnp_rand(&seed) % COUNT_OF(odd)];
		good[i] = (float)tnp_rand_normal(&seed);
	}
	lim.precision = precision;
	conform_note(c, "rows of NaN beside good ones, %s", precision == TNP_FAST ? "fast" : "exact");
	if (run_open(&m, &c->sut, g, &lim, &e) || run_batch(c, &m, &one, 1, &e) || run_batch(c, &m, s, 2, &e))
		conform_fail(c, "%s", e.text);
	if (one.rc || s[1].rc)
		conform_fail(c, "the good sequence fails");
	conform_near(c, "the good sequence", beside, alone, 5 * out, conform_tolerance(precision, TNP_F32));
	if ((c->sut.info.features & TNP_F_INVARIANT) && memcmp(beside, alone, 5 * out * sizeof *alone))
		conform_fail(c, "other bits than alone, though TNP_F_INVARIANT is claimed");
	run_close(&m);
	free(bad);
	free(good);
	free(alone);
	free(beside);
}

static void nan_model(struct conform *c, const char *model)
{
	const struct made_model *mm = made_model_find(model);
	uint32_t taken = 0;

	conform_open(c);
	for (uint32_t i = 0; conform_types[i] != UINT32_MAX; i++) {
		struct tnp_make *m = tnp_make_create(c->seed);
		const struct tnp_graph *g;

		if (m)
			mm->build(m, conform_types[i]);
		g = m ? tnp_make_graph(m) : NULL;
		if (!g)
			conform_fail(c, "plugin-conform itself is out of memory");
		for (uint32_t p = TNP_FAST; run_taken(&c->sut, g) && p <= TNP_EXACT; p++, taken++)
			nan_run(c, g, p);
		tnp_make_destroy(m);
	}
	if (!taken)
		conform_skip(c, "does not take model '%s'", model);
	conform_close(c);
}

static void check_nan(struct conform *c) { nan_model(c, "chain"); }
static void check_nan_experts(struct conform *c) { nan_model(c, "expert-chain"); }

/* ---- allocations that fail ------------------------------------------------------------------------------------------------------ */
/* Opens, steps and closes with the n-th allocation failing; every call may say NOMEM, none may crash or lie. */
static bool starved(
	struct conform *c, struct bench *b, const struct tnp_limits *lim, struct run_arrays *a, uint64_t n)
{
	const struct tnp_ops *t = c->sut.ops;
	struct tnp_kv_spec spec = { .size = sizeof spec,
		.type = lim->kv_type,
		.page_tokens = lim->page_tokens,
		.n_slots = b->m.n_slots,
		.slots = b->m.slot };
	struct run_model m = b->m;
	uint64_t failed;
	tnp_rc rc;

	for (uint32_t g = 0; g < b->m.n_groups; g++)
		spec.n_pages[g] = b->lim.n_pages;
	m.model = NULL;
	m.kv = NULL;
	conform_alloc_fail_at(n);
	rc = t->model_open(c->sut.dev, b->g, lim, &m.model, NULL);
	if (!rc && b->m.n_slots)
		rc = t->kv_open(m.model, &spec, &m.kv, NULL);
	if (!rc)
		rc = run_call(&m, a, NULL);
	failed = conform_alloc_failed();
	if (rc && rc != TNP_E_NOMEM)
		conform_fail(c, "%s, want TNP_OK or TNP_E_NOMEM", conform_code(rc));
	if (rc && !failed)
		conform_fail(c, "TNP_E_NOMEM, but no allocation failed");
	t->kv_close(m.kv);
	t->model_close(m.model);
	c->result->n_cases++;
	return failed;
}

static void check_starved(struct conform *c)
{
	uint64_t most = c->thorough ? 20000 : 400;
	struct tnp_limits lim;
	struct run_arrays a;
	struct run_seq s;
	struct bench b;
	float *out;

	if (!conform_alloc_works())
		conform_skip(c, "this build cannot make allocations fail");
	conform_open(c);
	bench_open(c, &b, TNP_EXACT);
	out = rows(&b, 5);
	s = tokens(&b, 0, 5, out);
	run_limits_set(&lim, &b.lim);
	run_make(c, &b.m, &s, 1, &a);
	for (uint64_t n = 1; n <= most; n++) {
		conform_note(c, "allocation %llu fails", (unsigned long long)n);
		if (!starved(c, &b, &lim, &a, n))
			break;
	}
	run_free(&a);
	free(out);
	bench_close(&b);
	conform_close(c);
}

/* The same around start and dev_open. */
static void check_starved_start(struct conform *c)
{
	const struct tnp_ops *t;
	void *so;

	if (!conform_alloc_works())
		conform_skip(c, "this build cannot make allocations fail");
	t = conform_load(c, c->path, &so);
	for (uint64_t n = 1; n <= 200; n++) {
		struct tnp_dev *dev = NULL;
		uint64_t failed;
		tnp_rc rc, opened = TNP_OK;

		conform_note(c, "allocation %llu fails in start or dev_open", (unsigned long long)n);
		conform_alloc_fail_at(n);
		rc = t->start(conform_host(), NULL);
		if (!rc)
			opened = t->dev_open(0, &dev, NULL);
		failed = conform_alloc_failed();
		if ((rc && rc != TNP_E_NOMEM) || (opened && opened != TNP_E_NOMEM))
			conform_fail(c, "%s, want TNP_OK or TNP_E_NOMEM", conform_code(rc ? rc : opened));
		t->dev_close(dev);
		if (!rc && t->stop(NULL))
			conform_fail(c, "stop fails");
		c->result->n_cases++;
		if (!failed)
			break;
	}
}

/* ---- steps without growth ---------------------------------------------------------------------------------------------------------- */
static uint64_t resident_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long size, resident = 0;

	if (f && fscanf(f, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	if (f)
		(void)fclose(f);
	return resident;
}

static void check_steps(struct conform *c)
{
	uint32_t n = c->thorough ? 20000 : 600;
	struct tnp_error e = { .size = sizeof e };
	uint64_t first = 0, last;
	struct bench b;
	float *out;

	conform_open(c);
	bench_open(c, &b, TNP_EXACT);
	out = rows(&b, TEXT);
	for (uint32_t i = 0; i < n; i++) {
		struct run_seq s = tokens(&b, i % TEXT, 1, out);

		if (i == n / 4)
			first = resident_pages();
		if (run_batch(c, &b.m, &s, 1, &e) || s.rc)
			conform_fail(c, "step %u: %s", i, e.text);
	}
	last = resident_pages();
	if (last > first + 256)
		conform_fail(
			c, "memory grew by %llu pages in %u steps", (unsigned long long)(last - first), n);
	free(out);
	bench_close(&b);
	conform_close(c);
}

/* ---- what is not the plugin's ------------------------------------------------------------------------------------------------------- */
struct process { /* what a plugin must leave as it was */
	struct sigaction action[65];
	sigset_t mask;
	mode_t umask;
	char cwd[1024], locale[256];
	uint64_t env;
};

/* FNV-1a over the environment */
static uint64_t env_digest(void)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (char **v = environ; *v; v++)
		for (const char *s = *v; *s; s++)
			h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

static void process_read(struct process *p)
{
	memset(p, 0, sizeof *p);
	for (int i = 1; i < 65; i++)
		(void)sigaction(i, NULL, &p->action[i]);
	(void)sigprocmask(SIG_SETMASK, NULL, &p->mask);
	p->umask = umask(0);
	(void)umask(p->umask);
	if (!getcwd(p->cwd, sizeof p->cwd))
		p->cwd[0] = 0;
	(void)snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
	p->env = env_digest();
}

static void process_compare(struct conform *c, const struct process *a, const struct process *b)
{
	for (int i = 1; i < 65; i++)
		if (a->action[i].sa_handler != b->action[i].sa_handler)
			conform_fail(c, "the handler of signal %d was changed", i);
	for (int i = 1; i < 32; i++)
		if (sigismember(&a->mask, i) != sigismember(&b->mask, i))
			conform_fail(c, "the signal mask was changed (signal %d)", i);
	if (a->umask != b->umask)
		conform_fail(c, "umask was changed");
	if (strcmp(a->cwd, b->cwd))
		conform_fail(c, "the working directory was changed");
	if (strcmp(a->locale, b->locale))
		conform_fail(c, "the locale was changed");
	if (a->env != b->env)
		conform_fail(c, "the environment was changed");
}

/* Rule R7: the plugin's own threads take none of the process's signals. */
static void threads_check(struct conform *c)
{
	static const int those[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE };
	DIR *d = opendir("/proc/self/task");
	char path[320], line[128];

	for (struct dirent *t = d ? readdir(d) : NULL; t; t = readdir(d)) {
		unsigned long long blocked = ~0ull;
		FILE *f;

		if (t->d_name[0] == '.' || strtol(t->d_name, NULL, 10) == (long)getpid())
			continue;
		(void)snprintf(path, sizeof path, "/proc/self/task/%s/status", t->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof line, f))
			(void)sscanf(line, "SigBlk: %llx", &blocked);
		if (f)
			(void)fclose(f);
		for (size_t i = 0; i < COUNT_OF(those); i++)
			if (!(blocked >> (those[i] - 1) & 1))
				conform_fail(c, "a thread of the plugin does not block signal %d", those[i]);
	}
	if (d)
		(void)closedir(d);
}

static void check_threads(struct conform *c)
{
	struct bench b;
	float *out;

	if (conform_sanitized())
		conform_skip(c, "sanitizers have threads of their own");
	conform_open(c);
	bench_open(c, &b, TNP_FAST);
	out = rows(&b, TEXT);
	chunks(c, &b, TEXT, out);
	threads_check(c);
	free(out);
	bench_close(&b);
	conform_close(c);
}

static void check_manners(struct conform *c)
{
	struct process before, after;
	int pipe_fd[2], out = dup(1), err = dup(2);
	struct bench b;
	float *rows_out;
	char byte;

	if (pipe(pipe_fd) || out < 0 || err < 0 || fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK) < 0 ||
		dup2(pipe_fd[1], 1) < 0 || dup2(pipe_fd[1], 2) < 0)
		conform_fail(c, "plugin-conform cannot make a pipe");
	process_read(&before);
	conform_open(c);
	bench_open(c, &b, TNP_FAST);
	rows_out = rows(&b, TEXT);
	chunks(c, &b, 5, rows_out);
	free(rows_out);
	bench_close(&b);
	conform_close(c);
	(void)fflush(NULL);
	process_read(&after);
	(void)dup2(out, 1);
	(void)dup2(err, 2);
	conform_note(c, "from start to stop");
	process_compare(c, &before, &after);
	if (read(pipe_fd[0], &byte, 1) > 0)
		conform_fail(c, "wrote to standard output or standard error; use host->log");
	(void)close(pipe_fd[0]);
	(void)close(pipe_fd[1]);
	(void)close(out);
	(void)close(err);
}

const struct conform_check conform_l5[] = {
	{ 5, "behaviour.broken-batches", check_broken },
	{ 5, "behaviour.broken-calls", check_calls },
	{ 5, "behaviour.invariance", check_invariance },
	{ 5, "behaviour.invariance-experts", check_invariance_experts },
	{ 5, "behaviour.nan", check_nan },
	{ 5, "behaviour.nan-experts", check_nan_experts },
	{ 5, "behaviour.steps", check_steps },
	{ 5, "behaviour.starved", check_starved },
	{ 5, "behaviour.starved-start", check_starved_start },
	{ 5, "behaviour.threads", check_threads },
	{ 5, "behaviour.manners", check_manners },
	{ 5, NULL, NULL },
};
