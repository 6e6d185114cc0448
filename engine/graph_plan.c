/* SPDX-License-Identifier: Apache-2.0
 * Memory plan of a graph: each activation lives from the node that writes it to its last reader; tensors are placed by
 * best fit among those alive at the same time, in a few orders of which the best is kept. Slow enough to be simple
 * (thousands of tensors), run once a load.
 */
#include "engine/graph_priv.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, TRIES = 16, MANY = 2000 };

struct life {
	uint32_t tensor, first, last; /* nodes; inputs live from 0, outputs to the end */
	uint64_t bytes, offset;
	uint64_t breadth; /* the most that is alive at any node of its life */
};

static int most_bytes(const struct tnp_tensor *t, const uint64_t most[3], uint64_t *out)
{
	uint64_t n = sizeof(float);

	for (uint32_t i = 0; i < t->rank; i++) {
		uint64_t d = t->dim[i] < 0 ? most[-t->dim[i] - 1] : (uint64_t)t->dim[i];

		if (!checked_mul_u64(n, d, &n))
			return TENON_E_TOO_LONG;
	}
	return checked_align_up(n, ALIGN, out) ? TENON_OK : TENON_E_TOO_LONG;
}

static void lifetimes(const struct graph *g, struct life *l)
{
	for (uint32_t i = 0; i < g->g.n_tensors; i++)
		l[i] = (struct life){ .tensor = i, .first = UINT32_MAX };
	for (uint32_t i = 0; i < g->g.n_in; i++)
		l[g->in[i]].first = 0;
	for (uint32_t i = 0; i < g->g.n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[i];

		for (uint32_t j = 0; j < n->n_out; j++) {
			l[g->edges[n->out0 + j]].first = i;
			l[g->edges[n->out0 + j]].last = i;
		}
		for (uint32_t j = 0; j < n->n_in; j++)
			l[g->edges[n->in0 + j]].last = i;
	}
	for (uint32_t i = 0; i < g->g.n_out; i++)
		l[g->out[i]].last = g->g.n_nodes;
}

static int larger_first(const void *a, const void *b)
{
	const struct life *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->tensor < y->tensor ? -1 : 1;
}

static int broader_first(const void *a, const void *b)
{
	const struct life *x = a, *y = b;

	if (x->breadth != y->breadth)
		return x->breadth < y->breadth ? 1 : -1;
	return larger_first(a, b);
}

static int earlier_first(const void *a, const void *b)
{
	const struct life *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return larger_first(a, b);
}

static int by_offset(const void *a, const void *b)
{
	const struct life *x = *(const struct life *const *)a, *y = *(const struct life *const *)b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The tightest gap among the placed tensors that live at the same time. near: room for n pointers. */
static uint64_t best_fit(const struct life *t, struct life *placed, uint32_t n, struct life **near)
{
	uint64_t at = 0, best = UINT64_MAX, waste = UINT64_MAX;
	uint32_t m = 0;

	for (uint32_t i = 0; i < n; i++)
		if (placed[i].first <= t->last && t->first <= placed[i].last)
			near[m++] = &placed[i];
	qsort(near, m, sizeof *near, by_offset);
	for (uint32_t i = 0; i < m; i++) {
		uint64_t gap = near[i]->offset > at ? near[i]->offset - at : 0;

		if (gap >= t->bytes && gap - t->bytes < waste) {
			best = at;
			waste = gap - t->bytes;
		}
		at = MAX_OF(at, near[i]->offset + near[i]->bytes);
	}
	return best != UINT64_MAX ? best : at;
}

/* The sum of what is alive at each node, and with it each tensor's breadth. sum: [nodes + 2], zero. */
static uint64_t live_bytes(const struct graph *g, struct life *l, uint32_t n, uint64_t *sum)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum[l[i].first] += l[i].bytes;
		sum[l[i].last + 1] -= l[i].bytes;
	}
	for (uint32_t node = 0; node < g->g.n_nodes; node++) {
		sum[node] += node ? sum[node - 1] : 0;
		most = MAX_OF(most, sum[node]);
	}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t node = l[i].first; node <= l[i].last && node < g->g.n_nodes; node++)
			l[i].breadth = MAX_OF(l[i].breadth, sum[node]);
	return most;
}

static uint64_t place(struct life *l, uint32_t n, struct life **near)
{
	uint64_t arena = 0;

	for (uint32_t i = 0; i < n; i++) {
		l[i].offset = best_fit(&l[i], l, i, near);
		arena = MAX_OF(arena, l[i].offset + l[i].bytes);
	}
	return arena;
}

/* Places l as it is ordered now; kept where that is the best so far. */
static void try_order(struct graph *g, struct life *l, uint32_t n, struct life **near, uint64_t *arena)
{
	*arena = place(l, n, near);
	if (*arena >= g->g.arena_bytes)
		return;
	g->g.arena_bytes = *arena;
	for (uint32_t i = 0; i < n; i++) {
		g->tensors[l[i].tensor].offset = l[i].offset;
		g->tensors[l[i].tensor].bytes = l[i].bytes;
	}
}

/* Whatever reaches the arena's top comes first in the next order. */
static void top_first(struct life *l, uint32_t n, uint64_t arena)
{
	struct life top;
	uint32_t i = 0;

	while (i + 1 < n && l[i].offset + l[i].bytes != arena)
		i++;
	top = l[i];
	memmove(l + 1, l, i * sizeof *l);
	l[0] = top;
}

/* No order is the best for every graph: a few are tried until one reaches the lower bound. */
static void place_best(struct graph *g, struct life *l, uint32_t n, struct life **near)
{
	int (*const orders[])(const void *, const void *) = { larger_first, broader_first, earlier_first };
	uint64_t arena = 0;

	g->g.arena_bytes = UINT64_MAX;
	for (size_t i = 0; i < COUNT_OF(orders) && g->g.arena_bytes > g->live_bytes; i++) {
		qsort(l, n, sizeof *l, orders[i]);
		try_order(g, l, n, near, &arena);
		for (uint32_t k = 0; k < (n > MANY ? 1 : TRIES) && g->g.arena_bytes > g->live_bytes; k++) {
			top_first(l, n, arena);
			try_order(g, l, n, near, &arena);
		}
	}
	if (!n)
		g->g.arena_bytes = 0;
}

int graph_plan(struct graph *g, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_out, struct error *e)
{
	const uint64_t most[3] = { max_tokens, max_seqs,
		max_out }; /* TNP_N_TOKENS -1, TNP_N_SEQS -2, TNP_N_OUT -3 */
	uint32_t all = g->g.n_tensors, n = 0;
	struct life *l = mem_zalloc(MEM_ENGINE, all, sizeof *l);
	struct life **near = mem_zalloc(MEM_ENGINE, all, sizeof *near);
	uint64_t *sum = mem_zalloc(MEM_ENGINE, g->g.n_nodes + 2, sizeof *sum);
	int rc = l && near && sum ? TENON_OK
				  : error_set(e, TENON_E_NOMEM, "graph: no memory to plan %u tensors", all);

	if (!rc)
		lifetimes(g, l);
	for (uint32_t i = 0; !rc && i < all; i++) {
		if (graph_is_weight(&g->tensors[i]) || l[i].first == UINT32_MAX)
			continue;
		if (most_bytes(&g->tensors[i], most, &l[i].bytes))
			rc = error_set(e, TENON_E_TOO_LONG, "graph: an activation of more than 2^64 bytes");
		l[n++] = l[i];
	}
	if (!rc) {
		g->live_bytes = live_bytes(g, l, n, sum);
		place_best(g, l, n, near);
	}
	mem_free(l);
	mem_free(near);
	mem_free(sum);
	return rc;
}
