/* SPDX-License-Identifier: Apache-2.0
 * cmocka with the headers it forgets; paths of test data.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* "$TENON_SRCDIR/rel" in a static buffer: valid until the next call. */
static inline const char *unit_src(const char *rel)
{
	static char path[4096];
	const char *top = getenv("TENON_SRCDIR");

	(void)snprintf(path, sizeof path, "%s/%s", top ? top : ".", rel);
	return path;
}
#endif
