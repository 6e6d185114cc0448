/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include <time.h>

static uint64_t clock_read(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void) { return clock_read(CLOCK_MONOTONIC); }
uint64_t clock_wall_ns(void) { return clock_read(CLOCK_REALTIME); }
