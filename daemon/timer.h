/* SPDX-License-Identifier: Apache-2.0
 * Timers of one thread: a heap of structs that live in their owners. Nothing ticks while no timer is set.
 */
#ifndef DAEMON_TIMER_H
#define DAEMON_TIMER_H
#include "base/base.h"

struct timer {
	uint64_t at_ns;
	uint32_t place; /* 1 + index in the heap; 0: not set */
	void (*fire)(struct timer *t, uint64_t now_ns);
};

struct timers {
	struct timer **heap; /* [n], earliest first */
	uint32_t n, cap;
};

#define TIMER_NEVER UINT64_MAX

void timers_finish(struct timers *t);
/* Room for so many timers at once, so that timer_set cannot fail below that. NOMEM. */
int timers_reserve(struct timers *t, uint32_t n);
/* Sets or moves it. False: no memory (it keeps its old time, if any). */
bool timer_set(struct timers *t, struct timer *one, uint64_t at_ns);
void timer_clear(struct timers *t, struct timer *one); /* not set: nothing happens */
uint64_t timers_next(const struct timers *t);	       /* TIMER_NEVER: none */
/* Fires what is due; a timer is unset before its function runs, which may set and clear any. */
void timers_run(struct timers *t, uint64_t now_ns);
#endif
