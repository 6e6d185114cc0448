/* SPDX-License-Identifier: Apache-2.0
 * The cost model against machines whose costs are known: it comes close within some hundred noisy steps, is not thrown
 * off by outliers, stays sane where nothing was measured, and takes no damaged bytes.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "sched/cost.h"
#include <math.h>
#include <string.h>

struct machine {
	double base, row, bend, row2, attended, seq, out; /* ns; rows beyond `bend` cost row2 */
	uint32_t noise_permille, outlier_permille;
};
static const struct machine cpu = { 6e6, 0.5e6, 8, 0.9e6, 150, 2e4, 1e5, 50, 30 },
			    gpu = { 9e6, 1e3, 64, 4e4, 3, 1e3, 2e3, 30, 20 },
			    slow = { 300e6, 20e6, 4, 90e6, 5e4, 1e6, 3e6, 40, 0 };

static uint32_t next(uint32_t *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

static double truth(const struct machine *m, const struct cost_shape *s)
{
	double rows = s->n_tokens;

	return m->base + m->row * (fmin(rows, m->bend) - 1) + m->row2 * fmax(rows - m->bend, 0) +
	       m->attended * (double)s->attended + m->seq * s->n_seqs + m->out * s->n_out;
}

static uint64_t measure(const struct machine *m, const struct cost_shape *s, uint32_t *seed)
{
	double ns = truth(m, s), share = (double)(next(seed) % (2 * m->noise_permille + 1)) - m->noise_permille;

	ns *= 1 + share / 1000;
	if (next(seed) % 1000 < m->outlier_permille)
		ns *= 2 + next(seed) % 12;
	return (uint64_t)ns;
}

/* Decodes of a few sequences, chunks of prompts, and both together. */
static struct cost_shape draw(uint32_t *seed)
{
	static const uint32_t seqs[] = { 1, 1, 2, 3, 4, 8, 16, 32 }, chunks[] = { 5, 16, 40, 64, 100, 128, 200, 256, 400, 512 };
	uint32_t kind = next(seed) % 3, n = kind == 1 ? 0 : seqs[next(seed) % 8];
	struct cost_shape s = { 0 };

	for (uint32_t i = 0; i < n; i++)
		cost_shape_add(&s, 20 + next(seed) % 1000, 1, 1);
	if (kind)
		cost_shape_add(&s, next(seed) % 1000, chunks[next(seed) % 10], next(seed) % 2);
	return s;
}

static struct cost_model *learned(const struct machine *m, uint32_t n, uint32_t seed)
{
	struct cost_model *c;

	assert_int_equal(cost_create(&c, NULL), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct cost_shape s = draw(&seed);

		cost_observe(c, &s, measure(m, &s, &seed));
	}
	return c;
}

/* Mean of |predicted - true| / true over shapes as they come. */
static double mean_error(const struct cost_model *c, const struct machine *m, uint32_t seed)
{
	double sum = 0;

	for (int i = 0; i < 500; i++) {
		struct cost_shape s = draw(&seed);

		sum += fabs((double)cost_predict_ns(c, &s) - truth(m, &s)) / truth(m, &s) / 500;
	}
	return sum;
}

static void comes_close_within_some_hundred_steps(void **st)
{
	const struct machine *machines[] = { &cpu, &gpu, &slow };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(machines); i++) {
		for (uint32_t seed = 1; seed <= 5; seed++) {
			struct cost_model *c = learned(machines[i], 300, seed);
			double err = mean_error(c, machines[i], seed + 1000);

			if (err > 0.10)
				fail_msg("machine %zu, seed %u: mean error %.3f", i, seed, err);
			cost_destroy(c);
		}
	}
}

static void outliers_are_not_learned(void **st)
{
	struct cost_model *c = learned(&cpu, 400, 3);
	struct cost_shape s = { 0 };
	uint64_t before, after;

	(void)st;
	cost_shape_add(&s, 100, 1, 1);
	before = cost_predict_ns(c, &s);
	cost_observe(c, &s, before * 50);
	after = cost_predict_ns(c, &s);
	assert_true(after < before + before / 10);
	cost_destroy(c);
}

/* The whole machine becomes half as fast: the model follows within some dozen steps. */
static void follows_a_machine_that_changes(void **st)
{
	struct machine half = cpu;
	struct cost_model *c = learned(&cpu, 300, 4);
	uint32_t seed = 99;

	(void)st;
	half.base *= 2, half.row *= 2, half.row2 *= 2, half.attended *= 2, half.out *= 2;
	half.outlier_permille = 0;
	for (int i = 0; i < 200; i++) {
		struct cost_shape s = draw(&seed);

		cost_observe(c, &s, measure(&half, &s, &seed));
	}
	assert_true(mean_error(c, &half, 7) < 0.15);
	cost_destroy(c);
}

/* Only decodes of one to four sequences were seen: larger steps are still predicted larger, and within reason. */
static void stays_sane_where_nothing_was_seen(void **st)
{
	struct cost_model *c;
	uint32_t seed = 5;
	uint64_t last = 0;

	(void)st;
	assert_int_equal(cost_create(&c, NULL), 0);
	for (int i = 0; i < 2000; i++) {
		struct cost_shape s = { 0 };

		for (uint32_t k = 0; k <= (uint32_t)i % 4; k++)
			cost_shape_add(&s, 50 + next(&seed) % 100, 1, 1);
		cost_observe(c, &s, measure(&cpu, &s, &seed));
	}
	for (uint32_t n = 1; n <= 8192; n *= 2) {
		struct cost_shape s = { 0 };
		uint64_t ns;

		cost_shape_add(&s, 0, n, 1);
		ns = cost_predict_ns(c, &s);
		assert_true(ns >= last);
		assert_true((double)ns < 20 * truth(&cpu, &s) && (double)ns > truth(&cpu, &s) / 20);
		last = ns;
	}
	cost_destroy(c);
}

static void more_rows_never_cost_less(void **st)
{
	(void)st;
	for (uint32_t seed = 1; seed <= 10; seed++) {
		struct cost_model *c = learned(seed % 2 ? &cpu : &gpu, seed * 40, seed);
		uint64_t last = 0;

		for (uint32_t n = 1; n < 1000; n++) {
			struct cost_shape s = { 0 };

			cost_shape_add(&s, 100, n, 1);
			assert_true(cost_predict_ns(c, &s) >= last);
			last = cost_predict_ns(c, &s);
		}
		cost_destroy(c);
	}
}

static void fits_as_it_predicts(void **st)
{
	struct cost_model *c = learned(&cpu, 300, 8);
	uint32_t seed = 77;

	(void)st;
	for (int i = 0; i < 2000; i++) {
		struct cost_shape with = { 0 }, s, more;
		uint32_t past = next(&seed) % 2000, max = 1 + next(&seed) % 600, n;
		uint64_t budget = next(&seed) % 400 * NS_PER_MS;

		if (i % 2)
			with = draw(&seed);
		n = cost_fit_tokens(c, &with, past, max, budget);
		s = more = with;
		assert_true(n <= max);
		cost_shape_add(&s, past, n, n == max);
		assert_true(!n || cost_predict_ns(c, &s) <= budget);
		if (n == max)
			continue;
		cost_shape_add(&more, past, n + 1, n + 1 == max);
		assert_true(cost_predict_ns(c, &more) > budget);
	}
	assert_int_equal(cost_fit_tokens(c, &(struct cost_shape){ 0 }, 0, 0, NS_PER_S), 0);
	cost_destroy(c);
}

static void a_prefill_is_the_sum_of_its_steps(void **st)
{
	struct cost_model *c = learned(&cpu, 300, 9);
	struct cost_shape a = { 0 }, b = { 0 };

	(void)st;
	cost_shape_add(&a, 64, 128, 0);
	cost_shape_add(&b, 192, 72, 1);
	assert_int_equal(cost_prefill_ns(c, 64, 200, 128), cost_predict_ns(c, &a) + cost_predict_ns(c, &b));
	assert_int_equal(cost_prefill_ns(c, 0, 0, 128), 0);
	assert_true(cost_prefill_ns(c, 0, 8000, 512) > cost_prefill_ns(c, 0, 4000, 512));
	cost_destroy(c);
}

static void bytes_come_back_or_are_refused(void **st)
{
	unsigned char b[COST_SAVE_BYTES], bad[COST_SAVE_BYTES];
	struct cost_model *c = learned(&cpu, 300, 10), *d;
	struct cost_shape s = { 0 };
	struct cost_status status;
	size_t n;
	uint64_t fresh;

	(void)st;
	cost_set_calibrated(c);
	n = cost_save(c, b, sizeof b);
	assert_true(n > 0 && n <= sizeof b);
	assert_int_equal(cost_save(c, bad, n - 1), 0);
	assert_int_equal(cost_create(&d, NULL), 0);
	cost_shape_add(&s, 300, 40, 1);
	fresh = cost_predict_ns(d, &s);
	for (size_t len = 0; len < n; len++)
		assert_int_equal(cost_load(d, b, len, NULL), TENON_E_FORMAT);
	for (size_t i = 0; i < n; i++) {
		memcpy(bad, b, n);
		bad[i] ^= (unsigned char)(1u << i % 8);
		assert_int_equal(cost_load(d, bad, n, NULL), TENON_E_FORMAT);
		assert_int_equal(cost_predict_ns(d, &s), fresh);
	}
	assert_int_equal(cost_load(d, b, n, NULL), 0);
	assert_int_equal(cost_predict_ns(d, &s), cost_predict_ns(c, &s));
	cost_get_status(d, &status);
	assert_true(status.calibrated && status.n_observed == 300 && status.error_mean < 1);
	cost_destroy(c);
	cost_destroy(d);
}

static void absurd_measurements_do_no_harm(void **st)
{
	struct cost_model *c = learned(&cpu, 100, 11);
	struct cost_shape s = { 0 }, none = { 0 };
	uint64_t ns;

	(void)st;
	cost_shape_add(&s, UINT32_MAX, UINT32_MAX, UINT32_MAX);
	cost_observe(c, &s, 1);
	cost_observe(c, &s, UINT64_MAX);
	cost_observe(c, &none, 5);
	cost_observe(c, &s, 0);
	s = (struct cost_shape){ 0 };
	cost_shape_add(&s, 10, 1, 1);
	for (int i = 0; i < 200; i++)
		cost_observe(c, &s, 7 * NS_PER_MS);
	ns = cost_predict_ns(c, &s);
	assert_true(ns > 6 * NS_PER_MS && ns < 8 * NS_PER_MS);
	assert_int_equal(cost_predict_ns(c, &none), 0);
	cost_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_close_within_some_hundred_steps),
		cmocka_unit_test(outliers_are_not_learned),
		cmocka_unit_test(follows_a_machine_that_changes),
		cmocka_unit_test(stays_sane_where_nothing_was_seen),
		cmocka_unit_test(more_rows_never_cost_less),
		cmocka_unit_test(fits_as_it_predicts),
		cmocka_unit_test(a_prefill_is_the_sum_of_its_steps),
		cmocka_unit_test(bytes_come_back_or_are_refused),
		cmocka_unit_test(absurd_measurements_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
