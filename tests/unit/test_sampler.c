/* SPDX-License-Identifier: Apache-2.0
 * Sampling against hand-computed distributions.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/sampler.h"
#include <math.h>
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
	share((struct sampler_params){ .temperature = 1, .min_p = 0.3f }, got); /* e^-1 = .368 stays, e^-2 goes */
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
	struct sampler *s = make((struct sampler_params){ .presence_penalty = 0.5f, .frequency_penalty = 0.25f, .penalty_window = 3 });

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
	struct sampler_params bad[] = { { .temperature = NAN }, { .temperature = -1 }, { .top_p = 2 }, { .min_p = -1 },
		{ .n_logprobs = 21 }, { .repeat_penalty = INFINITY }, { .bias = (struct sampler_bias[]){ { V, 1 } }, .n_bias = 1 },
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
