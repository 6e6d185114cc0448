/* SPDX-License-Identifier: Apache-2.0
 * Threads of one device. A job is one function run by all threads at once; inside it they meet at barriers, so a
 * whole step costs one start and one barrier a phase. The caller of pool_run is thread 0.
 * Waiting: a bounded spin, then a futex, so that idle or crowded machines lose no core.
 */
#ifndef PLUGINS_CPU_POOL_H
#define PLUGINS_CPU_POOL_H
#include <stdbool.h>
#include <stdint.h>

struct pool;
typedef void pool_fn(void *arg, uint32_t thread, uint32_t n_threads);

/* 0 or a positive errno. n_threads >= 1. `pin`: worker i runs on the i-th CPU of the affinity mask only. */
int pool_create(uint32_t n_threads, bool pin, struct pool **out);
void pool_destroy(struct pool *p);
uint32_t pool_threads(const struct pool *p);
void pool_run(struct pool *p, pool_fn *fn, void *arg); /* one caller at a time */
void pool_barrier(struct pool *p);		       /* from within fn, by all threads */
#endif
