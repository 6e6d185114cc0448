/* SPDX-License-Identifier: Apache-2.0
 * Orders and outcomes between a worker's threads (worker_priv.h). Sleeping follows the rule of ipc.h: flag, look again,
 * park; whoever pushes rings only if the flag is up.
 */
#include "daemon/worker_priv.h"
#include <poll.h>
#include <unistd.h>

static void ring_bell(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof one);
}

static void drain_bell(int fd)
{
	uint64_t n;

	(void)!read(fd, &n, sizeof n);
}

bool orders_push(struct orders *q, struct order o)
{
	uint32_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);

	if (tail - atomic_load_explicit(&q->head, memory_order_acquire) == ORDERS_MAX)
		return false;
	q->ring[tail % ORDERS_MAX] = o;
	atomic_store(&q->tail, tail + 1); /* seq_cst, with orders_wait: order before the look at `asleep` */
	if (atomic_exchange(&q->asleep, 0))
		ring_bell(q->bell);
	return true;
}

bool orders_take(struct orders *q, struct order *o)
{
	uint32_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

	if (head == atomic_load_explicit(&q->tail, memory_order_acquire))
		return false;
	*o = q->ring[head % ORDERS_MAX];
	atomic_store_explicit(&q->head, head + 1, memory_order_release);
	return true;
}

void orders_wake(struct orders *q) { ring_bell(q->bell); }

void orders_wait(struct orders *q, int timeout_ms)
{
	struct pollfd p = { .fd = q->bell, .events = POLLIN };

	atomic_store(&q->asleep, 1);
	if (atomic_load(&q->tail) == atomic_load_explicit(&q->head, memory_order_relaxed)) {
		(void)poll(&p, 1, timeout_ms);
		drain_bell(q->bell);
	}
	atomic_store(&q->asleep, 0);
}

void outcomes_push(struct outcomes *q, struct command *c)
{
	(void)pthread_mutex_lock(&q->lock);
	c->next = NULL;
	*q->last = c;
	q->last = &c->next;
	(void)pthread_mutex_unlock(&q->lock);
	ring_bell(q->bell);
}

struct command *outcomes_take(struct outcomes *q)
{
	struct command *c;

	drain_bell(q->bell);
	(void)pthread_mutex_lock(&q->lock);
	c = q->first;
	if (c)
		q->first = c->next;
	if (!q->first)
		q->last = &q->first;
	(void)pthread_mutex_unlock(&q->lock);
	return c;
}

void prepared_free(struct prepared *p)
{
	if (!p)
		return;
	tokens_finish(&p->tokens);
	mem_free(p->body);
	mem_free(p);
}

void command_free(struct command *c)
{
	if (!c)
		return;
	json_decref(c->reply);
	json_decref(c->question);
	settings_finish(&c->settings);
	setup_free(c->setup);
	mem_free(c->path);
	mem_free(c->passes);
	mem_free(c->backend);
	mem_free(c);
}
