/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 4: paged KV. The right answer of a sequence is what it gets alone, in one step, over pages
 * 0, 1, 2 ...; pages shuffled, chunks, company, shared prefixes, holes, copies must not change it: not by a bit where
 * the plugin claims invariance, else within its tolerance.
 */
#include "tools/conform.h"
#include <stdlib.h>
#include <string.h>

#define MOST_SEQS 20u
#define MOST_LEN  56u
#define POOL	  256u

/* A text with the rows it gets alone, and how far it has come in the shared run. */
struct text {
	int32_t token[MOST_LEN];
	uint32_t n, done;
	uint32_t page[TNP_MAX_GROUPS][MOST_LEN];
	float *want, *got; /* [n][width] */
};

struct bench { /* one model, opened once on the plugin under test */
	struct conform *c;
	struct tnp_make *make;
	const struct tnp_graph *g;
	struct run_limits lim;
	struct run_model m;
	uint64_t width, seed;
	uint32_t n_free[TNP_MAX_GROUPS], free_page[TNP_MAX_GROUPS][POOL];
	struct text text[MOST_SEQS];
};

/* ---- setting up -------------------------------------------------------------------------------------------------- */
static void shuffle_pages(struct bench *b)
{
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++) {
		b->n_free[g] = POOL;
		for (uint32_t i = 0; i < POOL; i++)
			b->free_page[g][i] = i;
		for (uint32_t i = POOL - 1; i > 0; i--) {
			uint32_t k = (uint32_t)(tnp_rand(&b->seed) % (i + 1)), t = b->free_page[g][i];

			b->free_page[g][i] = b->free_page[g][k];
			b->free_page[g][k] = t;
		}
	}
}

static uint32_t page_take(struct bench *b, uint32_t g) { return b->free_page[g][--b->n_free[g]]; }

static uint32_t pages_for(const struct bench *b, uint32_t n)
{
	return (n + b->lim.page_tokens - 1) / b->lim.page_tokens;
}

static void bench_open(struct conform *c, struct bench *b, const char *model, uint32_t kv_type)
{
	struct tnp_error e = { .size = sizeof e };

	*b = (struct bench){ .c = c, .seed = c->seed * 31 + kv_type };
	b->make = made_model_for(c, made_model_find(model), &b->g);
	if (!b->make)
		conform_skip(c, "does not take model '%s'", model);
	b->lim = conform_limits(c);
	b->lim.kv_type = kv_type;
	b->lim.n_pages = POOL;
	b->lim.max_tokens = 512;
	b->width = run_width(b->g, b->g->out[0]);
	if (run_open(&b->m, &c->sut, b->g, &b->lim, &e))
		conform_fail(c, "open: %s", e.text);
	shuffle_pages(b);
}

static void bench_close(struct bench *b)
{
	run_close(&b->m);
	for (uint32_t i = 0; i < MOST_SEQS; i++) {
		free(b->text[i].want);
		free(b->text[i].got);
	}
	tnp_make_destroy(b->make);
}

/* A text of n tokens; the first `shared` are those of `from`, which may be NULL. */
static void text_make(struct bench *b, struct text *t, uint32_t n, const struct text *from, uint32_t shared)
{
	*t = (struct text){ .n = n };
	for (uint32_t i = 0; i < n; i++)
		t->token[i] = from && i < shared ? from->token[i] : (int32_t)(tnp_rand(&b->seed) % 101);
	t->want = calloc(n * b->width, sizeof(float));
	t->got = calloc(n * b->width, sizeof(float));
	if (!t->want || !t->got)
		conform_fail(b->c, "plugin-conform itself is out of memory");
}

/* Alone and contiguous, on a pool of its own. */
static void text_alone(struct bench *b, struct text *t)
{
	struct run_seq s = { .token = t->token, .n = t->n, .n_out = t->n, .out = { t->want } };
	struct tnp_error e = { .size = sizeof e };
	struct run_model m;

	if (run_open(&m, &b->c->sut, b->g, &b->lim, &e))
		conform_fail(b->c, "open: %s", e.text);
	run_alone(b->c, &m, &s);
	run_close(&m);
}

static void text_pages(struct bench *b, struct text *t)
{
	for (uint32_t g = 0; g < b->m.n_groups; g++)
		for (uint32_t i = 0; i < pages_for(b, t->n); i++)
			t->page[g][i] = page_take(b, g);
}

static void compare(struct bench *b, const char *what, const float *got, const float *want, uint64_t rows)
{
	bool same = !memcmp(got, want, rows * b->width * sizeof(float));

	if (b->c->sut.info.features & TNP_F_INVARIANT) {
		b->c->result->n_cases++;
		if (!same)
			conform_fail(
				b->c, "%s: other bits than alone, though TNP_F_INVARIANT is claimed", what);
		return;
	}
	conform_near(
		b->c, what, got, want, rows * b->width, 2 * conform_tolerance(TNP_EXACT, b->lim.kv_type));
}

/* The next n tokens of a text, every row wanted. */
static struct run_seq text_next(const struct bench *b, struct text *t, uint32_t n)
{
	struct run_seq s = { .token = t->token + t->done,
		.n = n,
		.past = t->done,
		.n_out = n,
		.n_page = pages_for(b, t->done + n),
		.out = { t->got + t->done * b->width } };

	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		s.page[g] = t->page[g];
	return s;
}

static void step(struct bench *b, struct run_seq *s, uint32_t n)
{
	struct tnp_error e = { .size = sizeof e };
	tnp_rc rc = run_batch(b->c, &b->m, s, n, &e);

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = s[i].rc;
	if (rc)
		conform_fail(b->c, "batch: %s: %s", conform_code(rc), e.text);
}

/* ---- the real batch: many sequences, prefill chunks and decodes together ---------------------------------------------- */
static uint32_t chunk_of(struct bench *b, const struct text *t)
{
	uint32_t left = t->n - t->done,
		 n = tnp_rand(&b->seed) % 3 ? 1 : 1 + (uint32_t)(tnp_rand(&b->seed) % 17);

	return MIN_OF(n, left);
}

static void mixed_run(struct bench *b, uint32_t n_texts)
{
	for (uint32_t round = 0;; round++) {
		struct run_seq s[MOST_SEQS];
		uint32_t who[MOST_SEQS], n = 0;

		for (uint32_t i = 0; i < n_texts; i++) {
			struct text *t = &b->text[i];

			if (t->done == t->n)
				continue;
			who[n] = i;
			s[n++] = text_next(b, t, chunk_of(b, t));
		}
		if (!n)
			return;
		conform_note(b->c, "step %u of a mixed run: %u sequences", round, n);
		step(b, s, n);
		for (uint32_t k = 0; k < n; k++)
			b->text[who[k]].done += s[k].n;
	}
}

static void mixed(struct conform *c, const char *model, uint32_t kv_type)
{
	struct bench *b = calloc(1, sizeof *b);

	if (!b)
		conform_fail(c, "plugin-conform itself is out of memory");
	bench_open(c, b, model, kv_type);
	for (uint32_t i = 0; i < MOST_SEQS; i++) {
		conform_note(c, "model %s, KV %s, text %u alone", model, conform_type_name(kv_type), i);
		text_make(b, &b->text[i], 5 + (uint32_t)(tnp_rand(&b->seed) % (MOST_LEN - 20)), NULL, 0);
		text_alone(b, &b->text[i]);
		text_pages(b, &b->text[i]);
	}
	mixed_run(b, MOST_SEQS);
	conform_note(c, "model %s, KV %s: 20 sequences in one batch", model, conform_type_name(kv_type));
	for (uint32_t i = 0; i < MOST_SEQS; i++)
		compare(b, "rows of a sequence in company", b->text[i].got, b->text[i].want, b->text[i].n);
	bench_close(b);
	free(b);
}

static void plain_mixed(struct conform *c, uint32_t kv_type) { mixed(c, "plain", kv_type); }

/* A check for each type that pages may hold. */
static void each_type(struct conform *c, void (*check)(struct conform *c, uint32_t kv_type))
{
	conform_open(c);
	for (uint32_t k = 0; k < 64; k++)
		if (c->kv_types >> k & 1)
			check(c, k);
	conform_close(c);
}

static void check_mixed(struct conform *c) { each_type(c, plain_mixed); }

static void check_mixed_parallel(struct conform *c)
{
	conform_open(c);
	mixed(c, "parallel", c->kv_type);
	conform_close(c);
}

static void check_mixed_experts(struct conform *c)
{
	conform_open(c);
	mixed(c, "experts", c->kv_type);
	conform_close(c);
}

static void check_mixed_fused(struct conform *c)
{
	conform_open(c);
	mixed(c, "fused", c->kv_types >> TNP_F16 & 1 ? TNP_F16 : c->kv_type);
	conform_close(c);
}

/* ---- shared prefixes ------------------------------------------------------------------------------------------------------ */
/* Full pages of a prefix serve two sequences; a page half full is copied for the second. */
static void shared(struct conform *c, uint32_t kv_type)
{
	struct bench *b = calloc(1, sizeof *b);
	struct tnp_error e = { .size = sizeof e };
	uint32_t prefix, full;
	struct run_seq s[2];
	struct text *a, *d;

	bench_open(c, b, "plain", kv_type);
	a = &b->text[0];
	d = &b->text[1];
	prefix = 2 * b->lim.page_tokens + b->lim.page_tokens / 2;
	full = prefix / b->lim.page_tokens;
	text_make(b, a, MIN_OF(prefix + 9, MOST_LEN), NULL, 0);
	text_make(b, d, MIN_OF(prefix + 9, MOST_LEN), a, prefix);
	text_alone(b, a);
	text_alone(b, d);
	text_pages(b, a);
	text_pages(b, d);
	conform_note(c, "the first sequence writes a prefix of %u tokens", prefix);
	s[0] = text_next(b, a, prefix);
	step(b, s, 1);
	a->done = d->done = prefix;
	memcpy(d->got, a->got, prefix * b->width * sizeof(float));
	for (uint32_t g = 0; g < b->m.n_groups; g++) {
		memcpy(d->page[g], a->page[g], full * sizeof(uint32_t));
		if (prefix % b->lim.page_tokens &&
			c->sut.ops->kv_copy(b->m.kv, g, a->page[g][full], d->page[g][full],
				prefix % b->lim.page_tokens, &e))
			conform_fail(c, "kv_copy: %s", e.text);
	}
	conform_note(c, "both go on from the shared prefix");
	s[0] = text_next(b, d, d->n - prefix);
	s[1] = text_next(b, a, a->n - prefix);
	step(b, s, 2);
	compare(b, "the sequence that wrote the prefix", a->got, a->want, a->n);
	compare(b, "the sequence that shares it", d->got, d->want, d->n);
	bench_close(b);
	free(b);
}

static void check_shared(struct conform *c) { each_type(c, shared); }

/* ---- bytes of pages ---------------------------------------------------------------------------------------------------------- */
/* Pages move to a second pool under other numbers; nothing else of the first is kept. */
static void moved(struct conform *c, uint32_t kv_type)
{
	struct bench *b = calloc(1, sizeof *b), *other = calloc(1, sizeof *other);
	const struct tnp_ops *t;
	struct text *a;
	uint32_t half;
	struct run_seq s;

	if (!(c->sut.info.features & TNP_F_KV_IO))
		conform_skip(c, "TNP_F_KV_IO is not claimed");
	t = c->sut.ops;
	bench_open(c, b, "plain", kv_type);
	bench_open(c, other, "plain", kv_type);
	shuffle_pages(other);
	if (memcmp(b->m.sizes.kv_compat, other->m.sizes.kv_compat, 32))
		conform_fail(c, "kv_compat differs between two openings of one model");
	a = &b->text[0];
	text_make(b, a, 3 * b->lim.page_tokens + 3, NULL, 0);
	text_alone(b, a);
	text_pages(b, a);
	half = 2 * b->lim.page_tokens + 1;
	s = text_next(b, a, half);
	step(b, &s, 1);
	a->done = half;
	for (uint32_t g = 0; g < b->m.n_groups; g++)
		for (uint32_t i = 0; i < pages_for(b, half); i++) {
			uint8_t *bytes = calloc(1, b->m.sizes.kv_page[g] + 1);
			uint32_t to = page_take(other, g);
			struct tnp_error e = { .size = sizeof e };

			conform_note(c, "page %u: out of one pool, into another", i);
			bytes[b->m.sizes.kv_page[g]] = 0x5c;
			if (t->kv_read(b->m.kv, g, a->page[g][i], bytes, &e) ||
				t->kv_write(other->m.kv, g, to, bytes, &e))
				conform_fail(c, "kv_read or kv_write: %s", e.text);
			if (bytes[b->m.sizes.kv_page[g]] != 0x5c)
				conform_fail(c, "kv_read writes more than kv_page bytes");
			a->page[g][i] = to;
			free(bytes);
		}
	for (uint32_t g = 0; g < b->m.n_groups; g++)
		for (uint32_t i = pages_for(b, half); i < pages_for(b, a->n); i++)
			a->page[g][i] = page_take(other, g);
	conform_note(c, "going on in the second pool");
	s = text_next(other, a, a->n - half);
	step(other, &s, 1);
	compare(b, "a sequence that moved", a->got, a->want, a->n);
	bench_close(b);
	bench_close(other);
	free(b);
	free(other);
}

static void check_bytes(struct conform *c) { each_type(c, moved); }

/* ---- windows ------------------------------------------------------------------------------------------------------------------- */
/* Pages that the window has left become holes, and their numbers go to another sequence that overwrites them. */
static void windowed(struct conform *c, uint32_t kv_type)
{
	struct bench *b = calloc(1, sizeof *b);
	struct text *a, *d;

	bench_open(c, b, "windowed", kv_type);
	a = &b->text[0];
	d = &b->text[1];
	text_make(b, a, MOST_LEN, NULL, 0);
	text_make(b, d, 20, NULL, 0);
	text_alone(b, a);
	text_alone(b, d);
	text_pages(b, a);
	while (a->done < a->n) {
		struct run_seq s = text_next(b, a, MIN_OF(7u, a->n - a->done));

		conform_note(c, "token %u, pages behind the window are holes", a->done);
		step(b, &s, 1);
		a->done += s.n;
		for (uint32_t g = 0; g < b->m.n_groups; g++)
			for (uint32_t i = 0; b->m.window[g] &&
				(i + 1) * b->lim.page_tokens + b->m.window[g] <= a->done + 1;
				i++)
				if (a->page[g][i] != TNP_PAGE_HOLE) {
					b->free_page[g][b->n_free[g]++] = a->page[g][i];
					a->page[g][i] = TNP_PAGE_HOLE;
				}
		if (!d->done && a->done > 30) {
			text_pages(b, d);
			s = text_next(b, d, d->n);
			step(b, &s, 1);
			d->done = d->n;
		}
	}
	compare(b, "a sequence with holes", a->got, a->want, a->n);
	compare(b, "one that got its old pages", d->got, d->want, d->n);
	bench_close(b);
	free(b);
}

static void check_window(struct conform *c) { each_type(c, windowed); }

/* ---- faults of one sequence --------------------------------------------------------------------------------------------------- */
struct fault {
	const char *what;
	void (*bend)(struct run_arrays *a, const struct bench *b);
};

static void token_high(struct run_arrays *a, const struct bench *b) { (void)b, a->token[a->tok0[1]] = 101; }
static void token_low(struct run_arrays *a, const struct bench *b) { (void)b, a->token[a->tok0[1]] = -1; }
static void token_huge(struct run_arrays *a, const struct bench *b)
{
	(void)b, a->token[a->tok0[2] - 1] = INT32_MAX;
}
static void pos_low(struct run_arrays *a, const struct bench *b) { (void)b, a->pos[a->tok0[1]] = -5; }
static void page_high(struct run_arrays *a, const struct bench *b)
{
	(void)b, a->page[0][a->page0[0][1]] = POOL;
}
static void page_hole(struct run_arrays *a, const struct bench *b)
{
	(void)b, a->page[0][a->page0[0][1]] = TNP_PAGE_HOLE;
}
static void page_twice(struct run_arrays *a, const struct bench *b)
{
	(void)b;
	a->page[0][a->page0[0][1]] = a->page[0][a->page0[0][1] + 1];
}
static void past_high(struct run_arrays *a, const struct bench *b)
{
	(void)b, a->past[1] += 10 * b->lim.page_tokens;
}
static void past_huge(struct run_arrays *a, const struct bench *b) { (void)b, a->past[1] = UINT32_MAX; }

static const struct fault faults[] = { { "a token past the vocabulary", token_high },
	{ "token -1", token_low }, { "a huge token", token_huge }, { "a negative position", pos_low },
	{ "a page outside the pool", page_high }, { "a hole where it reads", page_hole },
	{ "one page twice in its list, to be written", page_twice },
	{ "a page list too short for its past", past_high }, { "a huge past", past_huge } };

static void fault_run(struct bench *b, const struct fault *f)
{
	struct tnp_error e = { .size = sizeof e };
	struct run_seq s[3];
	struct run_arrays a;
	tnp_rc rc;

	conform_note(b->c, "the middle one of three sequences has %s", f->what);
	for (uint32_t i = 0; i < 3; i++) {
		b->text[i].done = 0;
		memset(b->text[i].got, 0, b->text[i].n * b->width * sizeof(float));
		s[i] = text_next(b, &b->text[i], b->text[i].n);
	}
	run_make(b->c, &b->m, s, 3, &a);
	f->bend(&a, b);
	rc = run_call(&b->m, &a, &e);
	if (rc)
		conform_fail(b->c, "the whole batch fails: %s: %s", conform_code(rc), e.text);
	run_take(b->c, &b->m, s, 3, &a);
	run_free(&a);
	if (s[1].rc != TNP_E_INVALID || s[0].rc || s[2].rc)
		conform_fail(b->c, "codes %s, %s, %s; want OK, TNP_E_INVALID, OK", conform_code(s[0].rc),
			conform_code(s[1].rc), conform_code(s[2].rc));
	compare(b, "its neighbour before", b->text[0].got, b->text[0].want, b->text[0].n);
	compare(b, "its neighbour behind", b->text[2].got, b->text[2].want, b->text[2].n);
}

static void check_faults(struct conform *c)
{
	struct bench *b = calloc(1, sizeof *b);

	conform_open(c);
	bench_open(c, b, "plain", c->kv_type);
	for (uint32_t i = 0; i < 3; i++) {
		text_make(b, &b->text[i], 2 * b->lim.page_tokens + 1 + i, NULL, 0);
		text_alone(b, &b->text[i]);
		text_pages(b, &b->text[i]);
	}
	for (size_t i = 0; i < COUNT_OF(faults); i++)
		fault_run(b, &faults[i]);
	bench_close(b);
	free(b);
	conform_close(c);
}

/* ---- a step again ---------------------------------------------------------------------------------------------------------------- */
/* After a step that was lost the host repeats it, or repeats it with other tokens: only places below past count. */
static void check_repeat(struct conform *c)
{
	struct bench *b = calloc(1, sizeof *b);
	struct text *a;
	struct run_seq s;

	conform_open(c);
	bench_open(c, b, "plain", c->kv_type);
	a = &b->text[0];
	text_make(b, a, 23, NULL, 0);
	text_alone(b, a);
	text_pages(b, a);
	s = text_next(b, a, 10);
	step(b, &s, 1);
	a->done = 10;
	for (int i = 0; i < 3; i++) {
		int32_t other[13] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 };

		conform_note(c, "the same places with other tokens, time %d", i + 1);
		s = text_next(b, a, 13);
		s.token = other;
		step(b, &s, 1);
		conform_note(c, "and again with the right ones");
		s = text_next(b, a, 13);
		step(b, &s, 1);
		compare(b, "a repeated step", a->got, a->want, a->n);
	}
	bench_close(b);
	free(b);
	conform_close(c);
}

const struct conform_check conform_l4[] = {
	{ 4, "pages.mixed", check_mixed },
	{ 4, "pages.mixed-fused", check_mixed_fused },
	{ 4, "pages.mixed-parallel", check_mixed_parallel },
	{ 4, "pages.mixed-experts", check_mixed_experts },
	{ 4, "pages.shared", check_shared },
	{ 4, "pages.bytes", check_bytes },
	{ 4, "pages.window", check_window },
	{ 4, "pages.faults", check_faults },
	{ 4, "pages.repeat", check_repeat },
	{ 4, NULL, NULL },
};
