/* SPDX-License-Identifier: Apache-2.0
 * Thread pool of a device: start, barrier, end. Two words are waited on: `job` by workers without work, `round` by
 * threads inside a job. Each has a count of sleepers, so that nobody makes a system call while all spin.
 * Sleeping protocol: a sleeper counts itself in, then lets the kernel compare the word; the waker changes the word,
 * then reads the count. Both sides are sequentially consistent, so one of them sees the other.
 */
#include "pool.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 40000, SPIN_BURST = 64 };

struct word {
	_Alignas(64) _Atomic uint32_t value;
	_Atomic uint32_t sleepers;
};

struct worker {
	struct pool *pool;
	pthread_t id;
	uint32_t index;
};

struct pool {
	struct word job, round;
	_Alignas(64) _Atomic uint32_t arrived;
	_Alignas(64) pool_fn *fn; /* written before `job` changes; NULL: leave */
	void *arg;
	uint32_t n_threads, n_started;
	bool pin, spin;
	struct worker worker[]; /* [n_threads], 0 unused */
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool word_spin(struct word *w, uint32_t old)
{
	uint64_t end = 0;

	for (;;) {
		for (int i = 0; i < SPIN_BURST; i++) {
			if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
				return true;
			cpu_relax();
		}
		uint64_t now = now_ns();

		if (!end)
			end = now + SPIN_NS;
		else if (now >= end)
			return false;
	}
}

/* Returns when the word is no longer `old`; pairs with word_bump. */
static void word_wait(struct word *w, uint32_t old, bool spin)
{
	if (spin && word_spin(w, old))
		return;
	atomic_fetch_add(&w->sleepers, 1);
	while (atomic_load(&w->value) == old)
		(void)syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
	atomic_fetch_sub(&w->sleepers, 1);
}

static void word_bump(struct word *w)
{
	atomic_fetch_add(&w->value, 1);
	if (atomic_load(&w->sleepers))
		(void)syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
	uint32_t round;

	if (p->n_threads == 1)
		return;
	round = atomic_load_explicit(&p->round.value, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) + 1 < p->n_threads) {
		word_wait(&p->round, round, p->spin);
		return;
	}
	atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
	word_bump(&p->round);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;

	for (uint32_t seen = 0;; seen++) {
		word_wait(&p->job, seen, p->spin);
		if (!p->fn)
			return NULL;
		p->fn(p->arg, w->index, p->n_threads);
		pool_barrier(p);
	}
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
	if (p->n_threads == 1) {
		fn(arg, 0, 1);
		return;
	}
	p->fn = fn;
	p->arg = arg;
	word_bump(&p->job);
	fn(arg, 0, p->n_threads);
	pool_barrier(p);
}

/* The index-th CPU of `mask`, around and around. */
static int nth_cpu(const cpu_set_t *mask, uint32_t index)
{
	uint32_t n = (uint32_t)CPU_COUNT(mask), left = n ? index % n : 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, mask) && left-- == 0)
			return cpu;
	return 0;
}

static int worker_start(struct pool *p, uint32_t index, const cpu_set_t *mask)
{
	static const char digit[] = "0123456789";
	char name[] = "tenon-cpu-000";
	struct worker *w = &p->worker[index];
	pthread_attr_t attr;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return rc;
	*w = (struct worker){ .pool = p, .index = index };
	(void)pthread_attr_setstacksize(&attr, 1u << 20);
	if (p->pin) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(nth_cpu(mask, index), &one);
		(void)pthread_attr_setaffinity_np(&attr, sizeof one, &one);
	}
	rc = pthread_create(&w->id, &attr, worker_main, w);
	(void)pthread_attr_destroy(&attr);
	if (rc)
		return rc;
	for (uint32_t i = 0, v = index; i < 3; i++, v /= 10)
		name[sizeof name - 2 - i] = digit[v % 10];
	(void)pthread_setname_np(w->id, name);
	p->n_started++;
	return 0;
}

/* Workers inherit a mask with every signal blocked: signals are the host's affair. */
static int workers_start(struct pool *p, const cpu_set_t *mask)
{
	sigset_t all, old;
	int rc = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	for (uint32_t i = 1; i < p->n_threads && !rc; i++)
		rc = worker_start(p, i, mask);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int pool_create(uint32_t n_threads, bool pin, struct pool **out)
{
	size_t bytes = sizeof(struct pool) + n_threads * sizeof(struct worker);
	cpu_set_t mask;
	struct pool *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	int rc;

	if (!p)
		return ENOMEM;
	CPU_ZERO(&mask);
	if (sched_getaffinity(0, sizeof mask, &mask))
		CPU_SET(0, &mask);
	*p = (struct pool){ .n_threads = n_threads, .pin = pin };
	p->spin = n_threads <= (uint32_t)CPU_COUNT(&mask);
	rc = workers_start(p, &mask);
	if (rc) {
		pool_destroy(p);
		return rc;
	}
	*out = p;
	return 0;
}

void pool_destroy(struct pool *p)
{
	if (!p)
		return;
	p->fn = NULL;
	word_bump(&p->job);
	for (uint32_t i = 1; i <= p->n_started; i++)
		(void)pthread_join(p->worker[i].id, NULL);
	free(p);
}

uint32_t pool_threads(const struct pool *p) { return p->n_threads; }
