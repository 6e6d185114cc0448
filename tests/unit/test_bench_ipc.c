/* SPDX-License-Identifier: Apache-2.0
 * tenon bench ipc: every way is measured, with the names of the contract and figures that make sense.
 */
#include "tests/unit/unit.h"
#include "tools/bench_ipc.h"
#include <string.h>

static void every_way_is_measured(void **st)
{
	static const char *const names[] = { "hop.awake", "hop.parked", "baseline.unix.idle",
		"baseline.zmq.idle", "ring.awake", "bell.zmq", "bell.eventfd", "baseline.unix",
		"baseline.zmq" };
	json_t *report = bench_report("bench ipc", NULL), *results;
	struct error e = { 0 };

	(void)st;
	if (bench_ipc_local(report, 1, &e))
		fail_msg("%s", e.text);
	results = json_object_get(report, "results");
	assert_int_equal(json_array_size(results), COUNT_OF(names));
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		const json_t *r = json_array_get(results, i);

		assert_string_equal(json_string_value(json_object_get(r, "name")), names[i]);
		assert_string_equal(json_string_value(json_object_get(r, "unit")), "us");
		assert_true(json_integer_value(json_object_get(r, "n")) > 0);
		assert_true(json_number_value(json_object_get(r, "min")) > 0.05);
		assert_true(json_number_value(json_object_get(r, "p50")) <=
			json_number_value(json_object_get(r, "p99")));
	}
	json_decref(report);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_way_is_measured) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
