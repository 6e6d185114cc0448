/* SPDX-License-Identifier: Apache-2.0
 * What the machine can do at most, measured in the same run as what is compared with it: register-only loops in the
 * instruction mixtures of the kernels, and a plain read of a buffer. Also the clock and the threads of these runs.
 * Needs AVX2 and FMA: ask limit_here() first. For bench_linear, tenon bench model and tenon profile; one thread.
 */
#ifndef TOOLS_LIMITS_H
#define TOOLS_LIMITS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIMIT_THREADS = 64 };
enum limit {
	LIMIT_PLAIN,	/* maddubs, madd, add32 for each product           */
	LIMIT_DEFERRED, /* 8 x (maddubs, add16), then madd, convert, fma   */
	LIMIT_MADD16,	/* int16 madd, add32                               */
	LIMIT_F32,	/* fma                                             */
	LIMIT_VNNI,	/* dpbusd of 512 bits                              */
	LIMIT_VNNI16,	/* dpwssd of 512 bits                              */
	LIMIT_F32_512,	/* fma of 512 bits                                 */
	LIMIT_N
};
/* Before every loop over sums, for the files of the loops: one that stays puts them into memory, and the limit halves. */
#ifdef __clang__
#define LIMIT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LIMIT_UNROLL _Pragma("GCC unroll 16")
#endif

typedef void limit_fn(uint32_t thread, uint32_t n_threads, void *arg);

struct limit_loop {
	limit_fn *fn; /* arg: long, how many turns */
	double ops;   /* of one turn */
};
extern const struct limit_loop limit_loops_512[3]; /* from LIMIT_VNNI on */

const char *limit_name(enum limit l);
bool limit_here(enum limit l); /* has this CPU the instructions? */
/* Best of a few short runs; multiply and add count as two. 0: the instructions are missing. */
double limit_gops(enum limit l, uint32_t threads);
double limit_read(
	const void *buf, size_t bytes, uint32_t threads);     /* GB/s, best of a few                    */
double limit_time(uint32_t threads, limit_fn *fn, void *arg); /* seconds of one run on spinning threads */
void limit_stop(void);					      /* ends the spinning threads            */
void limit_sort(double *t, int n);
#endif
