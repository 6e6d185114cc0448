/* SPDX-License-Identifier: Apache-2.0
 * A loop over rows cut into equal runs, one a thread; the caller is thread 0. Which thread computes a row does
 * not change its bits. Threads sleep between calls, block all signals and are joined by ref_pool_destroy.
 */
#include "ref.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct helper {
	struct ref_pool *pool;
	uint32_t number;
	pthread_t thread;
};

struct ref_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	uint32_t n_threads, n_started, n_busy;
	uint64_t round; /* counts calls; a helper runs once in each */
	bool end;
	ref_rows_fn *fn;
	void *arg;
	uint64_t n;
	struct helper helper[]; /* [n_threads - 1] */
};

static void run_part(struct ref_pool *p, uint32_t number)
{
	uint64_t each = (p->n + p->n_threads - 1) / p->n_threads;
	uint64_t row0 = each * number, row1 = row0 + each < p->n ? row0 + each : p->n;

	if (row0 < row1)
		p->fn(p->arg, number, row0, row1);
}

static void *helper_main(void *arg)
{
	struct helper *h = arg;
	struct ref_pool *p = h->pool;
	uint64_t seen = 0;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->end && p->round == seen)
			pthread_cond_wait(&p->work, &p->lock);
		if (p->end)
			break;
		seen = p->round;
		pthread_mutex_unlock(&p->lock);
		run_part(p, h->number);
		pthread_mutex_lock(&p->lock);
		if (--p->n_busy == 0)
			pthread_cond_signal(&p->done);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static bool start_helpers(struct ref_pool *p)
{
	sigset_t all, old;
	bool ok = true;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	for (uint32_t i = 0; ok && i + 1 < p->n_threads; i++) {
		p->helper[i] = (struct helper){ .pool = p, .number = i + 1 };
		ok = pthread_create(&p->helper[i].thread, NULL, helper_main, &p->helper[i]) == 0;
		p->n_started += ok;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ok;
}

struct ref_pool *ref_pool_create(uint32_t n_threads)
{
	struct ref_pool *p = calloc(1, sizeof *p + n_threads * sizeof p->helper[0]);

	if (!p)
		return NULL;
	p->n_threads = n_threads;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	if (!start_helpers(p)) {
		ref_pool_destroy(p);
		return NULL;
	}
	return p;
}

void ref_pool_destroy(struct ref_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->end = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->n_started; i++)
		pthread_join(p->helper[i].thread, NULL);
	pthread_cond_destroy(&p->done);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

uint32_t ref_pool_threads(const struct ref_pool *p) { return p->n_threads; }

void ref_par_rows(struct ref_pool *p, uint64_t n, ref_rows_fn *fn, void *arg)
{
	p->fn = fn;
	p->arg = arg;
	p->n = n;
	if (p->n_threads == 1) {
		run_part(p, 0);
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->round++;
	p->n_busy = p->n_threads - 1;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	run_part(p, 0);
	pthread_mutex_lock(&p->lock);
	while (p->n_busy)
		pthread_cond_wait(&p->done, &p->lock);
	pthread_mutex_unlock(&p->lock);
}
