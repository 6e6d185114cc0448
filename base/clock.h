/* SPDX-License-Identifier: Apache-2.0
 * Time. Everything measured or scheduled uses the monotonic clock; the wall clock is for log lines only.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

uint64_t clock_now_ns(void);  /* CLOCK_MONOTONIC [any thread] */
uint64_t clock_wall_ns(void); /* CLOCK_REALTIME               */
#endif
