/* SPDX-License-Identifier: Apache-2.0
 * Threads of one device. A job is a row of stages, a stage a number of pieces; a stage begins when every piece of the
 * one before is done. Threads claim pieces, so a thread that the machine keeps from running delays nobody unless it
 * was stopped in the midst of a piece: on a busy machine the caller goes on alone. The caller of pool_run is thread 0.
 * Waiting: a bounded spin, then a futex, so that idle or crowded machines lose no core.
 */
#ifndef PLUGINS_CPU_POOL_H
#define PLUGINS_CPU_POOL_H
#include <stdbool.h>
#include <stdint.h>

enum { POOL_PIECES = (1 << 20) - 1 }; /* most of a stage */

struct pool;
/* Does one piece. Two calls with the same `thread` never run at once; all that earlier stages wrote is visible. */
typedef void pool_fn(void *arg, uint32_t thread, uint32_t stage, uint32_t piece);

/* 0 or a positive errno. n_threads >= 1. `pin`: worker i runs on the i-th CPU of the affinity mask only. */
int pool_create(uint32_t n_threads, bool pin, struct pool **out);
void pool_destroy(struct pool *p);
uint32_t pool_threads(const struct pool *p);
/* Returns when all n_stages stages are done. One caller at a time. pieces[i] may be 0. */
void pool_run(struct pool *p, pool_fn *fn, void *arg, const uint32_t *pieces, uint32_t n_stages);
#endif
