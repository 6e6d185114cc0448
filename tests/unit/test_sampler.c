/* SPDX-License-Identifier: Apache-2.0
 * Sampling against hand-computed distributions.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/logits.h"
#include "engine/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 5, DRAWS = 20000 };
static const float row[V] = { 1.0f, 3.0f, 2.0f, 3.0f, -1.0f };

static struct sampler *make(struct sampler_params p)
{
	struct sampler *s = NULL;
	struct error e;

	assert_int_equal(sampler_create(&p, V, &s, &e), 0);
	return s;
}

static int32_t pick(struct sampler *s, uint64_t pos, struct sampler_logprob *lp)
{
	float l[V];
	int32_t t = -1;
	struct error e;

	memcpy(l, row, sizeof l);
	assert_int_equal(sampler_pick(s, l, pos, &t, lp, &e), 0);
	return t;
}

static void greedy_takes_the_lowest_of_equals(void **st)
{
	struct sampler *s = make((struct sampler_params){ 0 });

	(void)st;
	assert_int_equal(pick(s, 0, NULL), 1);
	sampler_destroy(s);
}

static void share(struct sampler_params p, double out[V])
{
	struct sampler *s = make(p);

	memset(out, 0, V * sizeof *out);
	for (uint64_t i = 0; i < DRAWS; i++)
		out[pick(s, i, NULL)] += 1.0 / DRAWS;
	sampler_destroy(s);
}

static void draws_follow_the_distribution(void **st)
{
	double got[V], z = 0;

	(void)st;
	for (int t = 1; t <= 2; t++) {
		share((struct sampler_params){ .temperature = (float)t, .seed = 7 }, got);
		z = 0;
		for (int i = 0; i < V; i++)
			z += exp(row[i] / t);
		for (int i = 0; i < V; i++)
			assert_true(fabs(got[i] - exp(row[i] / t) / z) < 0.015);
	}
}

static void truncations_keep_prefixes(void **st)
{
	double got[V];

	(void)st;
	share((struct sampler_params){ .temperature = 1, .top_k = 2 }, got);
	assert_true(got[1] > 0.45 && got[3] > 0.45 && got[0] + got[2] + got[4] == 0);
	/* p: .0537 .3966 .1459 .3966 .0073: 0.7 is reached with the second, 0.9 with the third */
	share((struct sampler_params){ .temperature = 1, .top_p = 0.7f }, got);
	assert_true(got[2] == 0 && got[1] > 0);
	share((struct sampler_params){ .temperature = 1, .top_p = 0.9f }, got);
	assert_true(got[2] > 0 && got[0] == 0);
	share((struct sampler_params){ .temperature = 1, .min_p = 0.3f },
		got); /* e^-1 = .368 stays, e^-2 goes */
	assert_true(got[2] > 0 && got[0] == 0 && got[4] == 0);
	/* within top-2 the mass is one half each: 0.4 needs the first only */
	share((struct sampler_params){ .temperature = 1, .top_k = 2, .top_p = 0.4f }, got);
	assert_true(fabs(got[1] - 1) < 1e-9);
}

static void draws_depend_on_seed_and_position_alone(void **st)
{
	struct sampler *a = make((struct sampler_params){ .temperature = 1, .seed = 3 });
	struct sampler *b = make((struct sampler_params){ .temperature = 1, .seed = 3 });
	struct sampler *c = make((struct sampler_params){ .temperature = 1, .seed = 4 });
	int differ = 0;

	(void)st;
	for (uint64_t i = 100; i-- > 0;)
		(void)pick(a, i, NULL);
	for (uint64_t i = 0; i < 100; i++) {
		int32_t t = pick(b, i, NULL);

		assert_int_equal(t, pick(a, i, NULL));
		differ += t != pick(c, i, NULL);
	}
	assert_true(differ > 20);
	sampler_destroy(a);
	sampler_destroy(b);
	sampler_destroy(c);
}

static void penalties_look_back_one_window(void **st)
{
	struct sampler *s = make((struct sampler_params){
		.presence_penalty = 0.5f, .frequency_penalty = 0.25f, .penalty_window = 3 });

	(void)st;
	sampler_accept(s, 1);
	assert_int_equal(pick(s, 0, NULL), 3); /* 3 - .75 < 3 */
	sampler_accept(s, 3);
	assert_int_equal(pick(s, 1, NULL), 1);
	sampler_accept(s, 3);
	sampler_accept(s, 3); /* the 1 has left the window */
	assert_int_equal(pick(s, 2, NULL), 1);
	sampler_destroy(s);
	s = make((struct sampler_params){ .repeat_penalty = 2, .penalty_window = 8 });
	sampler_accept(s, 1);
	sampler_accept(s, 3);
	assert_int_equal(pick(s, 0, NULL), 2); /* 1.5 and 1.5 against 2 */
	sampler_destroy(s);
}

static void logprobs_are_of_the_raw_row(void **st)
{
	struct sampler_bias ban[2] = { { 1, -100 }, { 3, -100 } };
	struct sampler *s = make((struct sampler_params){ .bias = ban, .n_bias = 2, .n_logprobs = 3 });
	struct sampler_logprob lp[4];
	double z = 0;

	(void)st;
	for (int i = 0; i < V; i++)
		z += exp(row[i]);
	assert_int_equal(pick(s, 0, lp), 2);
	assert_int_equal(lp[0].token, 2);
	assert_true(fabs(lp[0].logprob - (2 - log(z))) < 1e-5);
	assert_int_equal(lp[1].token, 1);
	assert_int_equal(lp[2].token, 3);
	assert_int_equal(lp[3].token, 2);
	assert_true(fabs(lp[1].logprob - (3 - log(z))) < 1e-5);
	sampler_destroy(s);
}

static void garbage_is_refused(void **st)
{
	struct sampler *s = make((struct sampler_params){ 0 });
	float nan_row[V] = { NAN, NAN, NAN, NAN, NAN }, one[V] = { NAN, -INFINITY, 4, NAN, INFINITY };
	struct sampler_params bad[] = { { .temperature = NAN }, { .temperature = -1 }, { .top_p = 2 },
		{ .min_p = -1 }, { .n_logprobs = 21 }, { .repeat_penalty = INFINITY },
		{ .bias = (struct sampler_bias[]){ { V, 1 } }, .n_bias = 1 },
		{ .bias = (struct sampler_bias[]){ { 0, NAN } }, .n_bias = 1 } };
	struct sampler *none = NULL;
	struct error e;
	int32_t t;

	(void)st;
	assert_int_equal(sampler_pick(s, nan_row, 0, &t, NULL, &e), TENON_E_BACKEND);
	assert_int_equal(sampler_pick(s, one, 0, &t, NULL, &e), 0);
	assert_int_equal(t, 2);
	sampler_destroy(s);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(sampler_create(&bad[i], V, &none, &e), TENON_E_INVALID);
	assert_null(none);
}

/* ---- large vocabularies --------------------------------------------------------------------------------------- */

enum { LARGE = 3001 };

static float *large_row(uint32_t seed, float spread)
{
	float *x = calloc(LARGE, sizeof *x);

	assert_non_null(x);
	for (uint32_t i = 0; i < LARGE; i++) {
		seed = seed * 1664525u + 1013904223u;
		x[i] = spread * (float)(int32_t)seed * 0x1p-31f;
	}
	return x;
}

static void rows_are_read_right(void **st)
{
	float tops[LARGE / LOGITS_BLOCK + 1];

	(void)st;
	for (uint32_t seed = 0; seed < 40; seed++) {
		float *x = large_row(seed, 9.0f), floor;
		uint32_t n = seed % 2 ? LARGE : 1 + seed * 7, reach = 0, k = 1 + seed % 5;
		int32_t top = -1;
		double sum = 0;

		x[seed] = NAN;
		x[seed * 3 % LARGE] = seed % 3 ? INFINITY : -INFINITY;
		x[n - 1] = seed % 4 ? x[n - 1] : 9.5f;
		for (uint32_t i = 0; i < n; i++)
			if (isfinite(x[i]) && (top < 0 || x[i] > x[top]))
				top = (int32_t)i;
		assert_int_equal(logits_top(x, n), top);
		if (top < 0)
			goto next;
		for (uint32_t i = 0; i < n; i++)
			sum += isfinite(x[i]) ? exp(((double)x[i] - x[top]) * 1.25) : 0;
		assert_true(fabs(logits_sum(x, n, x[top], 1.25f) / sum - 1) < 1e-6);
		floor = logits_floor(x, n, k, tops);
		for (uint32_t i = 0; i < n; i++)
			reach += isfinite(x[i]) && x[i] >= floor;
		assert_true(k > n / LOGITS_BLOCK + 1 || reach >= k);
	next:
		free(x);
	}
	assert_int_equal(logits_top((const float[]){ -0.0f, 0.0f }, 2), 0);
	assert_int_equal(logits_top((const float[]){ NAN, -INFINITY }, 2), -1);
}

struct ranked {
	float logit;
	int32_t token;
};

static int by_logit(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->token - y->token;
}

/* The distribution that p leaves, in plain words: all in order, cut, as shares of one. Returns how many there are. */
static uint32_t plain(const struct sampler_params *p, const float *x, struct ranked *r, double *w)
{
	uint32_t n = 0, kept = 0, most;
	double total = 0, sum = 0;

	for (uint32_t i = 0; i < LARGE; i++)
		r[n++] = (struct ranked){ x[i], (int32_t)i };
	qsort(r, n, sizeof *r, by_logit);
	most = p->top_k && p->top_k < n ? p->top_k : n;
	for (uint32_t i = 0; i < most; i++)
		total += w[i] = exp(((double)r[i].logit - r[0].logit) / p->temperature);
	while (kept < most && (!kept || (sum < (p->top_p > 0 ? p->top_p : 1) * total && w[kept] >= p->min_p)))
		sum += w[kept++];
	for (uint32_t i = 0; i < kept; i++)
		w[i] /= sum;
	return kept;
}

/* Shares of the first ranks, over many draws: candidates that are left out early must not change them. */
static void large_distributions_are_those_of_all_candidates(void **st)
{
	static const struct sampler_params cases[] = { { .temperature = 1.0f },
		{ .temperature = 1.0f, .top_p = 0.9f }, { .temperature = 0.7f, .top_k = 20 },
		{ .temperature = 1.5f, .min_p = 0.05f }, { .temperature = 1.0f, .top_k = 50, .top_p = 0.8f },
		{ .temperature = 0.8f, .top_p = 0.95f, .min_p = 0.02f },
		{ .temperature = 1.0f, .top_k = 2999 }, { .temperature = 1e-6f, .top_p = 0.5f } };
	enum { TRIES = 4000, RANKS = 8 };
	float *x = large_row(5, 12.0f), *copy = large_row(5, 12.0f);
	struct ranked *r = calloc(LARGE, sizeof *r);
	double *w = calloc(LARGE, sizeof *w);

	(void)st;
	assert_true(r && w);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		uint32_t kept = plain(&cases[c], x, r, w), last = 0;
		double seen[RANKS] = { 0 };
		struct sampler *s = NULL;
		struct error e;

		assert_int_equal(sampler_create(&cases[c], LARGE, &s, &e), 0);
		for (uint64_t i = 0; i < TRIES; i++) {
			int32_t token;
			uint32_t rank = 0;

			assert_int_equal(sampler_pick(s, copy, i, &token, NULL, &e), 0);
			while (r[rank].token != token)
				rank++;
			last = rank > last ? rank : last;
			if (rank < RANKS)
				seen[rank] += 1.0 / TRIES;
		}
		assert_true(last < kept);
		for (uint32_t i = 0; i < RANKS && i < kept; i++)
			assert_true(fabs(seen[i] - w[i]) < 4.5 * sqrt(w[i] / TRIES) + 1e-4);
		sampler_destroy(s);
	}
	free(x);
	free(copy);
	free(r);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_lowest_of_equals),
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(truncations_keep_prefixes),
		cmocka_unit_test(draws_depend_on_seed_and_position_alone),
		cmocka_unit_test(penalties_look_back_one_window),
		cmocka_unit_test(logprobs_are_of_the_raw_row),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(rows_are_read_right),
		cmocka_unit_test(large_distributions_are_those_of_all_candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
