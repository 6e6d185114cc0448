/* SPDX-License-Identifier: Apache-2.0
 * Binary heaps of sequences that know where they stand, so that any one can leave in logarithmic time. Memory comes
 * when a request is submitted; nothing fails later. Step thread only.
 */
#include "sched/sched_priv.h"

static uint32_t *index_of(const struct heap *h, struct seq *q)
{
	return (uint32_t *)(void *)((char *)q + h->index);
}

static void put(struct heap *h, uint32_t at, struct seq *q)
{
	h->v[at] = q;
	*index_of(h, q) = at;
}

static void sift_up(struct heap *h, uint32_t at, struct seq *q)
{
	for (; at && h->before(q, h->v[(at - 1) / 2]); at = (at - 1) / 2)
		put(h, at, h->v[(at - 1) / 2]);
	put(h, at, q);
}

static void sift_down(struct heap *h, uint32_t at, struct seq *q)
{
	for (uint32_t k; (k = 2 * at + 1) < h->n; at = k) {
		if (k + 1 < h->n && h->before(h->v[k + 1], h->v[k]))
			k++;
		if (!h->before(h->v[k], q))
			break;
		put(h, at, h->v[k]);
	}
	put(h, at, q);
}

bool heap_reserve(struct heap *h, uint32_t n)
{
	struct seq **v;
	uint32_t cap = MAX_OF(n, h->cap * 2 + 4);

	if (n <= h->cap)
		return true;
	v = mem_resize(MEM_SCHED, h->v, cap * sizeof(struct seq *));
	if (!v)
		return false;
	h->v = v;
	h->cap = cap;
	return true;
}

void heap_push(struct heap *h, struct seq *q)
{
	h->n++;
	sift_up(h, h->n - 1, q);
}

void heap_remove(struct heap *h, struct seq *q)
{
	uint32_t at = *index_of(h, q);
	struct seq *last = h->v[--h->n];

	if (last == q)
		return;
	if (h->before(last, q))
		sift_up(h, at, last);
	else
		sift_down(h, at, last);
}

void heap_finish(struct heap *h)
{
	mem_free(h->v);
	h->v = NULL;
	h->n = h->cap = 0;
}
