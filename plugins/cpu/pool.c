/* SPDX-License-Identifier: Apache-2.0
 * Thread pool of a device, see pool.h. One word says what there is to do: number of the stage, how many pieces it has,
 * which is next. A claim is a compare-and-swap on it. Threads add what they finished to `done`; whoever completes
 * the stage publishes the next one. A stage without pieces means: job over.
 *
 * Sleeping: a sleeper counts itself in, then looks at the word once more; the publisher changes the word, then reads
 * the count. Both sides are sequentially consistent, so one of them sees the other.
 * The end: `quit` is set before the last word is published and read after a word was seen, so who saw the last word
 * knows that no other will come.
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

struct worker {
	struct pool *pool;
	pthread_t id;
	uint32_t index;
};

struct pool {
	_Alignas(64) _Atomic uint64_t word; /* [24 stage][20 pieces][20 next], see word_make */
	_Alignas(64) _Atomic uint32_t done; /* pieces of this stage */
	_Alignas(64) _Atomic uint32_t sleepers;
	_Atomic uint32_t epoch; /* what sleepers wait on; moves when one of them must look */
	_Atomic bool quit;
	/* Written before the word is published, read after a claim: */
	_Alignas(64) pool_fn *fn;
	void *arg;
	const uint32_t *pieces;
	uint32_t n_stages, stage, sequence;
	uint32_t n_threads, n_started;
	bool pin, spin;
	struct worker worker[]; /* [n_threads], 0 unused */
};

static uint64_t word_make(uint32_t sequence, uint32_t pieces)
{
	return (uint64_t)(sequence & 0xffffff) << 40 | (uint64_t)pieces << 20;
}
static uint32_t word_pieces(uint64_t w) { return w >> 20 & POOL_PIECES; }
static uint32_t word_next(uint64_t w) { return w & POOL_PIECES; }

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

/* ---- waiting ------------------------------------------------------------------------------- */
static bool word_spin(struct pool *p, uint64_t old)
{
	uint64_t end = 0;

	for (;;) {
		for (int i = 0; i < SPIN_BURST; i++) {
			if (atomic_load_explicit(&p->word, memory_order_acquire) != old)
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

/* Returns when the word may have changed; pairs with word_publish. */
static void word_wait(struct pool *p, uint64_t old)
{
	uint32_t epoch;

	if (p->spin && word_spin(p, old))
		return;
	atomic_fetch_add(&p->sleepers, 1);
	epoch = atomic_load(&p->epoch);
	if (atomic_load(&p->word) == old)
		(void)syscall(SYS_futex, &p->epoch, FUTEX_WAIT_PRIVATE, epoch, NULL, NULL, 0);
	atomic_fetch_sub(&p->sleepers, 1);
}

static void word_publish(struct pool *p, uint32_t pieces)
{
	atomic_store(&p->word, word_make(++p->sequence, pieces));
	if (!atomic_load(&p->sleepers))
		return;
	atomic_fetch_add(&p->epoch, 1);
	(void)syscall(SYS_futex, &p->epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- working ------------------------------------------------------------------------------- */
/* The next stage with pieces from `stage` on, or the end of the job. Only the thread that completed a stage (or the
 * caller, before the first) is here. */
static void stage_begin(struct pool *p, uint32_t stage)
{
	while (stage < p->n_stages && !p->pieces[stage])
		stage++;
	p->stage = stage;
	word_publish(p, stage < p->n_stages ? p->pieces[stage] : 0);
}

/* Claims the next piece; false when there is none in the word that was seen, which *seen then holds. */
static bool piece_claim(struct pool *p, uint64_t *seen)
{
	uint64_t w = atomic_load_explicit(&p->word, memory_order_acquire);

	while (word_next(w) < word_pieces(w))
		if (atomic_compare_exchange_weak_explicit(
			    &p->word, &w, w + 1, memory_order_acq_rel, memory_order_acquire)) {
			*seen = w;
			return true;
		}
	*seen = w;
	return false;
}

/* Holding a piece keeps the stage from ending, so all claims up to the next failure are of one stage. */
static void stage_work(struct pool *p, uint32_t thread, uint64_t seen)
{
	uint32_t stage = p->stage, total = word_pieces(seen), n = 0;

	do {
		p->fn(p->arg, thread, stage, word_next(seen));
		n++;
	} while (piece_claim(p, &seen));
	if (atomic_fetch_add_explicit(&p->done, n, memory_order_acq_rel) + n < total)
		return;
	atomic_store_explicit(&p->done, 0, memory_order_relaxed);
	stage_begin(p, stage + 1);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t seen;

	for (;;)
		if (piece_claim(w->pool, &seen))
			stage_work(w->pool, w->index, seen);
		else if (atomic_load(&w->pool->quit))
			return NULL;
		else
			word_wait(w->pool, seen);
}

static void run_alone(pool_fn *fn, void *arg, const uint32_t *pieces, uint32_t n_stages)
{
	for (uint32_t i = 0; i < n_stages; i++)
		for (uint32_t j = 0; j < pieces[i]; j++)
			fn(arg, 0, i, j);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, const uint32_t *pieces, uint32_t n_stages)
{
	uint64_t seen;

	if (p->n_threads == 1) {
		run_alone(fn, arg, pieces, n_stages);
		return;
	}
	p->fn = fn;
	p->arg = arg;
	p->pieces = pieces;
	p->n_stages = n_stages;
	stage_begin(p, 0);
	for (;;) {
		if (piece_claim(p, &seen))
			stage_work(p, 0, seen);
		else if (!word_pieces(seen))
			return;
		else
			word_wait(p, seen);
	}
}

/* ---- threads -------------------------------------------------------------------------------- */
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
	atomic_store(&p->quit, true);
	word_publish(p, 0);
	for (uint32_t i = 1; i <= p->n_started; i++)
		(void)pthread_join(p->worker[i].id, NULL);
	free(p);
}

uint32_t pool_threads(const struct pool *p) { return p->n_threads; }
