/* SPDX-License-Identifier: Apache-2.0
 * loop.h. Parking follows the rule of ipc.h: flag, look again, sleep. Spinning follows the rule of ipc/park.c: all or
 * nothing, given up after three misses, taken up again when a park turned out shorter than a spin, and only while
 * the owner allows it and the machine has a core to spare.
 */
#include "daemon/loop.h"
#include "ipc/ipc.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_MAX = 64, SPIN_MISSES_MAX = 3 };
#define POLL_NS	       (50 * NS_PER_US) /* most time between two looks at descriptors while busy */
#define SPIN_NS	       (400 * NS_PER_US)
#define SPIN_POLL_NS   (25 * NS_PER_US)
#define RECENT_NS      (1 * NS_PER_MS)	/* no spin unless something came so lately */
#define QUIET_NS       (10 * NS_PER_MS) /* a source quiet for so long dozes though the loop is busy */
#define SWEEP_BUSY_NS  (50 * NS_PER_MS)
#define SWEEP_IDLE_NS  (1 * NS_PER_S)
#define SWEEP_AFTER_NS (2 * NS_PER_S)
#define LOAD_NS	       (20 * NS_PER_MS) /* how long an answer of /proc/loadavg is believed */

int loop_init(struct loop *l, struct error *e)
{
	cpu_set_t set;

	*l = (struct loop){ .may_spin = true, .n_cpus = 1 };
	list_init(&l->awake);
	list_init(&l->asleep);
	list_init(&l->tasks);
	if (!sched_getaffinity(0, sizeof set, &set))
		l->n_cpus = (uint32_t)CPU_COUNT(&set);
	l->now_ns = clock_now_ns();
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0)
		return error_errno(e, TENON_E_IO, errno, "event loop");
	return TENON_OK;
}

void loop_finish(struct loop *l)
{
	if (l->epoll >= 0)
		(void)close(l->epoll);
	l->epoll = -1;
	timers_finish(&l->timers);
}

int loop_watch(struct loop *l, struct watch *w, int fd, uint32_t events, struct error *e)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev))
		return error_errno(e, TENON_E_NOMEM, errno, "event loop: cannot watch a descriptor");
	w->fd = fd;
	return TENON_OK;
}

void loop_unwatch(struct loop *l, struct watch *w)
{
	if (w->fd >= 0)
		(void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	w->fd = -1;
}

static void set_awake(struct loop *l, struct source *s, bool awake)
{
	node_remove(&s->node);
	list_append(awake ? &l->awake : &l->asleep, &s->node);
	s->awake = awake;
}

void loop_add(struct loop *l, struct source *s)
{
	s->active_ns = l->now_ns;
	set_awake(l, s, true);
}

void loop_remove(struct loop *l, struct source *s)
{
	(void)l;
	node_remove(&s->node);
}

void loop_wake(struct loop *l, struct source *s)
{
	if (!node_linked(&s->node) || s->awake)
		return;
	s->rise(s);
	s->active_ns = l->now_ns;
	set_awake(l, s, true);
}

void loop_defer(struct loop *l, struct task *t)
{
	if (!node_linked(&t->node))
		list_append(&l->tasks, &t->node);
}

/* ---- one turn ------------------------------------------------------------------------------------------------------ */

/* A pump may remove any source, so the list is walked by taking its first node as often as it had nodes. */
static bool pump_all(struct loop *l)
{
	struct list turn;
	bool any = false;
	struct node *n;

	list_init(&turn);
	while ((n = list_first(&l->awake)) != NULL) {
		node_remove(n);
		list_append(&turn, n);
	}
	while ((n = list_first(&turn)) != NULL) {
		struct source *s = CONTAINER_OF(n, struct source, node);

		node_remove(n);
		list_append(&l->awake, n);
		if (!s->ready(s))
			continue;
		any = true;
		if (s->pump(s))
			l->active_ns = s->active_ns = l->now_ns;
	}
	return any;
}

static void run_tasks(struct loop *l)
{
	struct node *n;

	while ((n = list_first(&l->tasks)) != NULL) {
		struct task *t = CONTAINER_OF(n, struct task, node);

		node_remove(n);
		t->run(t);
	}
}

/* Handlers may unwatch and free others of the same batch: they do so through tasks or by leaving the struct in place
 * until the turn is over, so an event of a watch with fd -1 is stale. */
static void poll_descriptors(struct loop *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS_MAX];
	int n = epoll_wait(l->epoll, ev, EVENTS_MAX, timeout_ms);

	l->now_ns = l->polled_ns = clock_now_ns();
	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (w->fd >= 0)
			w->ready(w, ev[i].events);
	}
}

static uint64_t sweep_interval(const struct loop *l)
{
	return l->now_ns - l->active_ns < SWEEP_AFTER_NS ? SWEEP_BUSY_NS : SWEEP_IDLE_NS;
}

static void sweep(struct loop *l)
{
	if (l->now_ns - l->swept_ns < sweep_interval(l))
		return;
	l->swept_ns = l->now_ns;
	LIST_EACH(&l->asleep, n)
	{
		struct source *s = CONTAINER_OF(n, struct source, node);

		if (s->ready(s))
			loop_wake(l, s);
	}
}

/* `quiet`: only those that have been still for a while. False: something came. */
static bool doze_all(struct loop *l, bool quiet)
{
	LIST_EACH(&l->awake, n)
	{
		struct source *s = CONTAINER_OF(n, struct source, node);

		if (quiet && l->now_ns - s->active_ns < QUIET_NS)
			continue;
		if (!s->doze(s))
			return false;
		set_awake(l, s, false);
	}
	return true;
}

/* ---- spinning -------------------------------------------------------------------------------------------------------- */

static bool machine_idle(struct loop *l)
{
	if (l->now_ns - l->load_ns >= LOAD_NS) {
		l->load_ns = l->now_ns;
		l->machine_idle = spin_runnable() <= l->n_cpus;
	}
	return l->machine_idle;
}

static bool any_ready(struct loop *l)
{
	LIST_EACH(&l->awake, n)
	{
		struct source *s = CONTAINER_OF(n, struct source, node);

		if (s->ready(s))
			return true;
	}
	return false;
}

/* True: something came to a ring. Descriptors are served meanwhile. */
static bool spin(struct loop *l)
{
	uint64_t began = l->now_ns, now = began;

	if (!l->may_spin || !l->spinning_pays || l->n_cpus < 2 || began - l->active_ns > RECENT_NS ||
		list_empty(&l->awake))
		return false;
	l->n_spins++;
	while (now - began < SPIN_NS && now < timers_next(&l->timers)) {
		for (int i = 0; i < 8; i++) {
			if (any_ready(l)) {
				l->now_ns = clock_now_ns();
				l->spin_misses = 0;
				return true;
			}
			spin_pause();
		}
		now = clock_now_ns();
		if (now - l->polled_ns > SPIN_POLL_NS)
			poll_descriptors(l, 0);
	}
	l->now_ns = now;
	if (++l->spin_misses >= SPIN_MISSES_MAX)
		l->spinning_pays = false;
	return false;
}

/* After a park: would a spin have caught what ended it? */
static void learn(struct loop *l)
{
	bool found = any_ready(l);

	if (!found || l->spinning_pays || !l->may_spin || l->now_ns - l->parked_ns > 2 * SPIN_NS ||
		!machine_idle(l))
		return;
	l->spinning_pays = true;
	l->spin_misses = 0;
}

/* ---- parking ---------------------------------------------------------------------------------------------------------- */

static int park_ms(const struct loop *l, int max_ms)
{
	uint64_t until = timers_next(&l->timers), wait_ms;

	if (!list_empty(&l->asleep))
		until = MIN_OF(until, l->swept_ns + sweep_interval(l));
	if (until == TIMER_NEVER)
		return max_ms;
	if (until <= l->now_ns)
		return 0;
	wait_ms = (until - l->now_ns + NS_PER_MS - 1) / NS_PER_MS;
	wait_ms = MIN_OF(wait_ms, (uint64_t)3600000);
	return max_ms >= 0 && (uint64_t)max_ms < wait_ms ? max_ms : (int)wait_ms;
}

/* A descriptor served while spinning may have ended the loop, or left tasks that somebody waits for. */
static void park(struct loop *l, int max_ms)
{
	if (l->stop || !list_empty(&l->tasks) || !doze_all(l, false))
		return;
	l->parked_ns = l->now_ns;
	l->n_parks++;
	poll_descriptors(l, park_ms(l, max_ms));
	sweep(l);
	learn(l);
}

bool loop_work(struct loop *l)
{
	bool any;

	l->n_turns++;
	l->now_ns = clock_now_ns();
	any = pump_all(l);
	run_tasks(l);
	timers_run(&l->timers, l->now_ns);
	run_tasks(l);
	return any;
}

void loop_turn(struct loop *l, int max_ms)
{
	bool any = loop_work(l);

	if (l->stop)
		return;
	if (!any && !spin(l)) {
		park(l, max_ms);
	} else if (l->now_ns - l->polled_ns > POLL_NS) {
		poll_descriptors(l, 0);
		sweep(l);
		(void)doze_all(l, true);
	}
	run_tasks(l);
}

void loop_run(struct loop *l)
{
	while (!l->stop)
		loop_turn(l, -1);
}
