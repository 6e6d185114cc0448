/* SPDX-License-Identifier: Apache-2.0
 * timer.h: a binary heap that tells each timer its place.
 */
#include "daemon/timer.h"

void timers_finish(struct timers *t)
{
	mem_free(t->heap);
	*t = (struct timers){ 0 };
}

int timers_reserve(struct timers *t, uint32_t n)
{
	struct timer **grown;

	if (n <= t->cap)
		return TENON_OK;
	grown = mem_resize(MEM_DAEMON, t->heap, n * sizeof *grown);
	if (!grown)
		return TENON_E_NOMEM;
	t->heap = grown;
	t->cap = n;
	return TENON_OK;
}

static void put(struct timers *t, uint32_t i, struct timer *one)
{
	t->heap[i] = one;
	one->place = i + 1;
}

static void sift_up(struct timers *t, uint32_t i)
{
	struct timer *one = t->heap[i];

	for (; i && t->heap[(i - 1) / 2]->at_ns > one->at_ns; i = (i - 1) / 2)
		put(t, i, t->heap[(i - 1) / 2]);
	put(t, i, one);
}

static void sift_down(struct timers *t, uint32_t i)
{
	struct timer *one = t->heap[i];

	for (uint32_t child; (child = 2 * i + 1) < t->n; i = child) {
		if (child + 1 < t->n && t->heap[child + 1]->at_ns < t->heap[child]->at_ns)
			child++;
		if (t->heap[child]->at_ns >= one->at_ns)
			break;
		put(t, i, t->heap[child]);
	}
	put(t, i, one);
}

bool timer_set(struct timers *t, struct timer *one, uint64_t at_ns)
{
	if (!one->place) {
		if (t->n == t->cap && timers_reserve(t, t->cap ? 2 * t->cap : 64))
			return false;
		one->at_ns = at_ns;
		put(t, t->n++, one);
	}
	one->at_ns = at_ns;
	sift_up(t, one->place - 1);
	sift_down(t, one->place - 1);
	return true;
}

void timer_clear(struct timers *t, struct timer *one)
{
	uint32_t i = one->place - 1;

	if (!one->place)
		return;
	one->place = 0;
	if (i == --t->n)
		return;
	put(t, i, t->heap[t->n]);
	sift_up(t, i);
	sift_down(t, t->heap[i]->place - 1);
}

uint64_t timers_next(const struct timers *t) { return t->n ? t->heap[0]->at_ns : TIMER_NEVER; }

void timers_run(struct timers *t, uint64_t now_ns)
{
	while (t->n && t->heap[0]->at_ns <= now_ns) {
		struct timer *one = t->heap[0];

		timer_clear(t, one);
		one->fire(one, now_ns);
	}
}
