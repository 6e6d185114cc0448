/* SPDX-License-Identifier: Apache-2.0
 * Encoders of weight types against the decoders of plugins/ref, which are the specification: errors within what each
 * type allows, weights that are heeded, blocks of zeros, constants, spikes and tiny or huge numbers.
 */
#include "base/base.h"
#include "engine/gguf.h"
#include "engine/quant.h"
#include "plugins/ref/ref.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <string.h>

enum { N = 4096, ROW = 256 };

struct bound { /* relative error of normally distributed numbers: between what no encoder reaches and what ours must */
	uint32_t type;
	double least, most;
};
static const struct bound bounds[] = { { TNP_F32, 0, 0 }, { TNP_F16, 1e-4, 3e-4 }, { TNP_BF16, 1e-3, 2.2e-3 },
	{ TNP_Q8_0, 3e-3, 5.5e-3 }, { TNP_Q4_0, 0.06, 0.084 }, { TNP_Q4_1, 0.05, 0.073 },
	{ TNP_Q5_0, 0.03, 0.042 }, { TNP_Q5_1, 0.025, 0.036 }, { TNP_IQ4_NL, 0.05, 0.077 },
	{ TNP_Q2_K, 0.2, 0.275 }, { TNP_Q3_K, 0.1, 0.152 }, { TNP_Q4_K, 0.05, 0.074 },
	{ TNP_Q5_K, 0.025, 0.037 }, { TNP_Q6_K, 0.012, 0.018 } };

static uint32_t state;

static float uniform(void)
{
	state = state * 1664525 + 1013904223;
	return (float)(state >> 8) / (1 << 24);
}

/* Sum of twelve: near enough to normal. */
static float normal(void)
{
	float s = -6;

	for (int i = 0; i < 12; i++)
		s += uniform();
	return s;
}

static void fill(float *x, float scale, uint32_t seed)
{
	state = seed;
	for (int i = 0; i < N; i++)
		x[i] = scale * normal();
}

static uint8_t coded[N * 4];
static double decoded[N];

static double relative(const float *x, const double *y, int n)
{
	double s = 0, e = 0;

	for (int i = 0; i < n; i++) {
		s += (double)x[i] * x[i];
		e += (x[i] - y[i]) * (x[i] - y[i]);
	}
	return s > 0 ? sqrt(e / s) : sqrt(e);
}

static double through(uint32_t type, const float *x, const float *w, int n)
{
	quant_encode(type, x, w, (size_t)n, coded);
	ref_row_load(type, coded, (uint64_t)n, decoded);
	for (int i = 0; i < n; i++)
		assert_true(isfinite(decoded[i]));
	return relative(x, decoded, n);
}

static void errors_are_within_bounds(void **s)
{
	float x[N];

	(void)s;
	for (size_t i = 0; i < COUNT_OF(bounds); i++)
		for (int scale = -4; scale <= 8; scale += 4) {
			double e;

			fill(x, ldexpf(0.04f, scale), 3 + (uint32_t)scale);
			e = through(bounds[i].type, x, NULL, N);
			if (e < bounds[i].least || e > bounds[i].most)
				fail_msg("%s at 2^%d: relative error %g, not within %g..%g",
					gguf_type_name(bounds[i].type), scale, e, bounds[i].least,
					bounds[i].most);
		}
}

static void decoding_is_that_of_ref(void **s)
{
	float x[N], y[N];

	(void)s;
	fill(x, 0.3f, 17);
	for (size_t i = 0; i < COUNT_OF(bounds); i++) {
		(void)through(bounds[i].type, x, NULL, N);
		quant_decode(bounds[i].type, coded, N, y);
		for (int k = 0; k < N; k++)
			assert_true(fabs(y[k] - decoded[k]) <= 1e-6 * (fabs(decoded[k]) + 0.1));
	}
}

/* What bytes decode to is encoded without loss (up to a code that has two names). */
static void values_of_a_type_survive(void **s)
{
	float x[N], y[N];

	(void)s;
	fill(x, 1, 23);
	for (size_t i = 0; i < COUNT_OF(bounds); i++) {
		double e;

		(void)through(bounds[i].type, x, NULL, N);
		quant_decode(bounds[i].type, coded, N, y);
		e = through(bounds[i].type, y, NULL, N);
		if (e > bounds[i].most * 0.2)
			fail_msg("%s: a second pass loses %g", gguf_type_name(bounds[i].type), e);
	}
}

static void odd_blocks(void **s)
{
	static const float kind[][2] = { { 0, 0 }, { 1, 0 }, { -3, 0 }, { 1e-30f, 1e-30f }, { 1e-7f, 1e-8f },
		{ 1000, 1 }, { 30000, 20000 }, { 1e30f, 1e30f }, { 3e38f, 0 }, { -2e38f, 2e38f } };
	float x[ROW];

	(void)s;
	for (size_t i = 0; i < COUNT_OF(bounds); i++)
		for (size_t k = 0; k < COUNT_OF(kind); k++) {
			double e;

			state = (uint32_t)k;
			for (int j = 0; j < ROW; j++)
				x[j] = kind[k][0] + kind[k][1] * (uniform() - 0.5f);
			e = through(bounds[i].type, x, NULL, ROW);
			if (k == 0)
				assert_true(e == 0);
			if ((k == 1 || k == 2) && bounds[i].type != TNP_F32 && e > 0.02)
				fail_msg("%s: a constant row loses %g", gguf_type_name(bounds[i].type), e);
		}
}

/* One large element must not vanish, nor take all others with it beyond what the type can do. */
static void spikes(void **s)
{
	float x[ROW];

	(void)s;
	for (size_t i = 0; i < COUNT_OF(bounds); i++) {
		state = 5;
		for (int j = 0; j < ROW; j++)
			x[j] = 0.01f * normal();
		x[77] = -2;
		assert_true(through(bounds[i].type, x, NULL, ROW) < 0.12);
		assert_true(fabs(decoded[77] + 2) < 0.2);
	}
}

static void weights_are_heeded(void **s)
{
	float x[N], w[N];

	(void)s;
	fill(x, 0.1f, 99);
	for (int i = 0; i < N; i++)
		w[i] = i % 7 == 3 ? 50 : 0.1f;
	for (size_t i = 0; i < COUNT_OF(bounds); i++) {
		double with = 0, without = 0;

		if (bounds[i].type <= TNP_F16 || bounds[i].type == TNP_BF16)
			continue;
		(void)through(bounds[i].type, x, NULL, N);
		for (int k = 0; k < N; k++)
			without += w[k] * (x[k] - decoded[k]) * (x[k] - decoded[k]);
		(void)through(bounds[i].type, x, w, N);
		for (int k = 0; k < N; k++)
			with += w[k] * (x[k] - decoded[k]) * (x[k] - decoded[k]);
		if (!(with < 0.85 * without))
			fail_msg("%s: weighted error %g with weights, %g without",
				gguf_type_name(bounds[i].type), with, without);
	}
}

static void weights_of_zero(void **s)
{
	float x[N], w[N] = { 0 };

	(void)s;
	fill(x, 0.1f, 7);
	for (size_t i = 0; i < COUNT_OF(bounds); i++)
		assert_true(through(bounds[i].type, x, w, N) <= bounds[i].most);
}

static void measuring_counts_what_was_lost(void **s)
{
	float x[N], y[N], w[N];
	struct quant_error sum = { 0 };

	(void)s;
	fill(x, 0.1f, 31);
	for (int i = 0; i < N; i++)
		w[i] = 2;
	quant_encode_measured(TNP_Q4_K, x, w, N / 2, coded, y, &sum);
	quant_encode_measured(TNP_Q4_K, x + N / 2, w, N / 2, coded + N / 2 / 256 * 144, y, &sum);
	ref_row_load(TNP_Q4_K, coded, N, decoded);
	assert_true(fabs(quant_error_relative(&sum) - relative(x, decoded, N)) < 1e-6);
	assert_true(fabs(sum.weighted_noise - 2 * sum.noise) < 1e-6 * sum.noise);
	assert_true(sum.most > 0 && sum.most < 0.1f);
}

static void names(void **s)
{
	uint32_t t = 0;

	(void)s;
	assert_true(quant_type_find("q4_k", &t) && t == TNP_Q4_K);
	assert_true(quant_type_find("IQ4_NL", &t) && t == TNP_IQ4_NL);
	assert_false(quant_type_find("I32", &t) || quant_type_find("q4", &t) || quant_type_find("", &t));
	assert_true(quant_can(TNP_BF16) && !quant_can(TNP_I32) && !quant_can(99));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_are_within_bounds),
		cmocka_unit_test(decoding_is_that_of_ref),
		cmocka_unit_test(values_of_a_type_survive),
		cmocka_unit_test(odd_blocks),
		cmocka_unit_test(spikes),
		cmocka_unit_test(weights_are_heeded),
		cmocka_unit_test(weights_of_zero),
		cmocka_unit_test(measuring_counts_what_was_lost),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
