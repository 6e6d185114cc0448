/* SPDX-License-Identifier: Apache-2.0
 * The daemon's one event loop: descriptors (epoll), timers, and rings in shared memory. A ring is a `source`: while
 * awake it is polled without a system call; before the loop parks, or when it has been quiet for a while, its asleep
 * flag is raised and its bell watched instead. An idle loop parks without ticking faster than once a second; a ring
 * whose bell was lost is found by a sweep (50 ms while anything was active lately, else 1 s).
 */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H
#include "daemon/list.h"
#include "daemon/timer.h"

struct watch {	/* one descriptor in epoll */
	int fd; /* -1: not watched */
	void (*ready)(struct watch *w, uint32_t events);
};

struct source {		  /* one ring that others fill */
	struct node node; /* in `awake` or `asleep` */
	bool awake;
	uint64_t active_ns;
	bool (*ready)(struct source *s); /* something to take? no side effects */
	bool (*pump)(struct source *
			s); /* takes a batch; true if it was more than a sign of life; may remove the source */
	bool (*doze)(struct source *s); /* raises the asleep flag; false: something came, flag down again */
	void (*rise)(struct source *s); /* lowers it */
};

struct task { /* runs once at the end of the turn in which it was queued */
	struct node node;
	void (*run)(struct task *t);
};

struct loop {
	int epoll;
	bool stop;
	struct timers timers;
	struct list awake, asleep; /* sources */
	struct list tasks;
	uint64_t now_ns; /* of this turn */
	uint64_t polled_ns, swept_ns, active_ns, parked_ns, load_ns;
	bool may_spin; /* set by the owner: nobody needs this core */
	bool spinning_pays, machine_idle;
	uint32_t spin_misses, n_cpus;
	uint64_t n_turns, n_parks, n_spins; /* for status */
};

int loop_init(struct loop *l, struct error *e);
void loop_finish(struct loop *l);

int loop_watch(struct loop *l, struct watch *w, int fd, uint32_t events, struct error *e);
void loop_unwatch(struct loop *l, struct watch *w); /* not watched: nothing happens */

void loop_add(struct loop *l, struct source *s);    /* awake */
void loop_remove(struct loop *l, struct source *s); /* in neither list: nothing happens */
void loop_wake(struct loop *l, struct source *s);   /* its bell rang */
void loop_defer(struct loop *l, struct task *t);    /* queued already: nothing happens */

/* What needs no look at descriptors: awake rings, tasks, timers. No system call of its own. True: there was something. */
bool loop_work(struct loop *l);
/* One turn: pump, run tasks and timers, look at descriptors; parks up to max_ms (-1: as long as it takes) when nothing
 * is there. */
void loop_turn(struct loop *l, int max_ms);
void loop_run(struct loop *l); /* until `stop` */
#endif
