/* SPDX-License-Identifier: Apache-2.0
 * The part of cmocka that the tests run under an emulator use, for targets that have no cmocka library. A failure
 * prints where it is and ends the program.
 */
#ifndef TESTS_EMULATED_CMOCKA_H
#define TESTS_EMULATED_CMOCKA_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail_msg(...)                                                                                        \
	do {                                                                                                 \
		(void)fprintf(stderr, __VA_ARGS__);                                                          \
		(void)fprintf(stderr, "\n%s:%d: failed\n", __FILE__, __LINE__);                              \
		exit(1);                                                                                     \
	} while (0)
#define shim_check(ok)                                                                                       \
	do {                                                                                                 \
		if (!(ok))                                                                                   \
			fail_msg("%s", #ok);                                                                 \
	} while (0)
#define assert_true(x)		   shim_check(x)
#define assert_false(x)		   shim_check(!(x))
#define assert_null(p)		   shim_check((p) == NULL)
#define assert_non_null(p)	   shim_check((p) != NULL)
#define assert_ptr_equal(a, b)	   shim_check((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b)	   shim_check((intmax_t)(a) == (intmax_t)(b))
#define assert_int_not_equal(a, b) shim_check((intmax_t)(a) != (intmax_t)(b))
#define assert_in_range(x, lo, hi)                                                                           \
	shim_check((uintmax_t)(x) >= (uintmax_t)(lo) && (uintmax_t)(x) <= (uintmax_t)(hi))
#define assert_memory_equal(a, b, n) shim_check(memcmp((a), (b), (n)) == 0)
#define assert_string_equal(a, b)    shim_check(strcmp((a), (b)) == 0)

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};
#define cmocka_unit_test(f)                                                                                  \
	{                                                                                                    \
#f, f                                                                                        \
	}
#define cmocka_run_group_tests(tests, setup, teardown)                                                       \
	shim_run((tests), sizeof(tests) / sizeof *(tests), (setup), (teardown))

static inline int shim_run(
	const struct CMUnitTest *tests, size_t n, int (*setup)(void **state), int (*teardown)(void **state))
{
	void *state = NULL;

	shim_check(!setup || setup(&state) == 0);
	for (size_t i = 0; i < n; i++) {
		(void)printf("[ RUN      ] %s\n", tests[i].name);
		(void)fflush(stdout);
		tests[i].run(&state);
		(void)printf("[       OK ] %s\n", tests[i].name);
	}
	shim_check(!teardown || teardown(&state) == 0);
	(void)printf("[  PASSED  ] %zu test(s).\n", n);
	return 0;
}
#endif
