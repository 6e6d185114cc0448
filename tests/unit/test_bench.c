/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"
#include "tools/bench.h"

static void statistics_are_order_statistics(void **st)
{
	double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 }, hundred[200];
	struct bench_stat s;

	(void)st;
	bench_stat_of(odd, 3, &s);
	assert_true(s.n == 3 && s.median == 3 && s.min == 1 && s.max == 5 && s.p50 == 3 && s.p99 == 5);
	bench_stat_of(even, 4, &s);
	assert_true(s.median == 2.5 && s.p50 == 2);
	for (size_t i = 0; i < COUNT_OF(hundred); i++)
		hundred[i] = (double)(COUNT_OF(hundred) - i);
	bench_stat_of(hundred, COUNT_OF(hundred), &s);
	assert_true(s.p99 == 198 && s.p50 == 100 && s.max == 200);
	bench_stat_of(NULL, 0, &s);
	assert_true(s.n == 0 && s.median == 0);
}

static double ratio_of(json_t *result, const char *peer)
{
	return json_number_value(
		json_object_get(json_object_get(json_object_get(result, "peers"), peer), "ratio"));
}

static void ratio_of_peers_is_better_when_larger(void **st)
{
	double ours[] = { 30, 20, 10 }, slow[] = { 10 }, late[] = { 40 };
	json_t *report = bench_report("test", json_pack("{s:s}", "name", "m")), *rate, *time;

	(void)st;
	rate = bench_add(report, "decode.128", "tok/s", ours, 3);
	bench_add_peer(rate, "llama", slow, 1, true);
	time = bench_add(report, "start", "ms", ours, 3);
	bench_add_peer(time, "llama", late, 1, false);
	bench_add_peer(time, "other", slow, 1, false);
	assert_true(ratio_of(rate, "llama") == 2 && ratio_of(time, "llama") == 2 &&
		ratio_of(time, "other") == 0.5);
	assert_int_equal(json_array_size(json_object_get(report, "results")), 2);
	assert_non_null(json_object_get(json_object_get(report, "machine"), "kernel"));
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(report, "model"), "name")), "m");
	json_decref(report);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(statistics_are_order_statistics),
		cmocka_unit_test(ratio_of_peers_is_better_when_larger),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
