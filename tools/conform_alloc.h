/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: makes the n-th allocation from now fail, once, wherever in the process it is made. [any thread]
 */
#ifndef TOOLS_CONFORM_ALLOC_H
#define TOOLS_CONFORM_ALLOC_H
#include <stdbool.h>
#include <stdint.h>

bool conform_sanitized(void);		/* memory freed is kept, threads of its own run */
bool conform_alloc_works(void);		/* false: sanitizer build or another libc */
void conform_alloc_fail_at(uint64_t n); /* 0: off                                 */
uint64_t conform_alloc_failed(void);	/* failures since then; switches off      */
#endif
