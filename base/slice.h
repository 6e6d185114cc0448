/* SPDX-License-Identifier: Apache-2.0
 * How long the kernel lets a thread run before it looks who else wants to. A token's way to its reader takes
 * microseconds of two or three threads, but compute threads keep every core busy, and a woken thread gets one at once
 * only where its slice is shorter than that of whoever runs there (EEVDF, Linux 6.12 on). So those who deliver ask for
 * short slices, those who compute for long ones. Shares of the machine stay as they are: nobody gains time.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H
#include <stdint.h>

#define SLICE_DELIVER_NS (100 * UINT64_C(1000))
#define SLICE_COMPUTE_NS (20 * UINT64_C(1000000))

/* The calling thread and those that it starts from now on. A wish: kernels before 6.12 have no use for it, threads under real-time
 * and other policies keep what they have. [any thread] */
void slice_ask(uint64_t ns);
#endif
