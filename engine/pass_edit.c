/* SPDX-License-Identifier: Apache-2.0
 * pass_edit.h. Changed nodes get new edges and attributes at the ends of the lists; pass_rebuild leaves the old ones behind.
 */
#include "engine/pass_edit.h"
#include <string.h>

/* ---- the index --------------------------------------------------------------------------------------------------- */

static bool index_room(struct pass_edit *x, uint32_t n)
{
	uint32_t room = n + n / 2 + 64;
	uint32_t **list[] = { &x->maker, &x->uses, &x->same };

	if (n <= x->room)
		return true;
	for (size_t i = 0; i < COUNT_OF(list); i++) {
		uint32_t *p = mem_resize(MEM_ENGINE, *list[i], room * sizeof *p);

		if (!p) {
			graph_fail(x->g, TENON_E_NOMEM, "graph: no memory for the passes");
			return false;
		}
		*list[i] = p;
	}
	x->room = room;
	return true;
}

/* Tensors made since the last look. */
static bool index_follow(struct pass_edit *x)
{
	uint32_t n = x->g->g.n_tensors;

	if (x->g->e.code || !index_room(x, n))
		return false;
	for (; x->n_known < n; x->n_known++) {
		x->maker[x->n_known] = TNP_NONE;
		x->uses[x->n_known] = 0;
		x->same[x->n_known] = x->n_known;
	}
	return true;
}

static graph_tensor follow(struct pass_edit *x, graph_tensor t)
{
	while (x->same[t] != t)
		t = x->same[t] = x->same[x->same[t]];
	return t;
}

bool pass_index(struct pass_edit *x)
{
	const struct graph *g = x->g;

	x->n_known = 0;
	if (!index_follow(x))
		return false;
	for (uint32_t i = 0; i < g->g.n_nodes; i++) {
		for (uint32_t j = 0; j < g->nodes[i].n_in; j++)
			x->uses[g->edges[g->nodes[i].in0 + j]]++;
		for (uint32_t j = 0; j < g->nodes[i].n_out; j++)
			x->maker[g->edges[g->nodes[i].out0 + j]] = i;
	}
	for (uint32_t i = 0; i < g->g.n_out; i++)
		x->uses[g->out[i]]++;
	return true;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static bool take_inputs(struct pass_edit *x, const struct tnp_node *n, struct pass_node *out)
{
	for (uint32_t i = 0; i < n->n_in; i++) {
		graph_tensor t = follow(x, x->g->edges[n->in0 + i]);

		if (graph_is_weight(&x->g->tensors[t])) {
			if (out->n_weight == PASS_WEIGHTS)
				return false;
			out->weight[out->n_weight++] = t;
		} else {
			if (out->n_act == PASS_ACTS)
				return false;
			out->act[out->n_act++] = t;
		}
	}
	return true;
}

bool pass_get(struct pass_edit *x, uint32_t node, struct pass_node *out)
{
	const struct graph *g = x->g;
	const struct tnp_node *n = &g->nodes[node];

	*out = (struct pass_node){ .op = n->op, .n_out = n->n_out, .n_attr = n->n_attr };
	if (!n->op || n->n_out > PASS_OUTS || n->n_attr > PASS_ATTRS || !take_inputs(x, n, out))
		return false;
	for (uint32_t i = 0; i < n->n_out; i++)
		out->out[i] = g->edges[n->out0 + i];
	for (uint32_t i = 0; i < n->n_attr; i++)
		out->attr[i] = g->attrs[n->attr0 + i];
	return true;
}

bool pass_made_by(struct pass_edit *x, graph_tensor t, uint32_t op, uint32_t *at, struct pass_node *out)
{
	uint32_t maker = t == TNP_NONE ? TNP_NONE : x->maker[t];

	if (maker == TNP_NONE || x->g->nodes[maker].op != op || !pass_get(x, maker, out))
		return false;
	*at = maker;
	return true;
}

const struct tnp_tensor *pass_tensor(const struct pass_edit *x, graph_tensor t) { return &x->g->tensors[t]; }

bool pass_is_out(const struct pass_edit *x, graph_tensor t)
{
	for (uint32_t i = 0; i < x->g->g.n_out; i++)
		if (x->g->out[i] == t)
			return true;
	return false;
}

bool pass_same_shape(const struct pass_edit *x, graph_tensor a, graph_tensor b)
{
	const struct tnp_tensor *p = pass_tensor(x, a), *q = pass_tensor(x, b);

	return p->type == q->type && p->rank == q->rank && !memcmp(p->dim, q->dim, p->rank * sizeof *p->dim);
}

bool pass_only_here(const struct pass_edit *x, graph_tensor t)
{
	return x->uses[t] == 1 && !pass_is_out(x, t);
}

const struct tnp_attr *pass_attr(const struct pass_node *n, uint32_t key)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (n->attr[i].key == key)
			return &n->attr[i];
	return NULL;
}

int64_t pass_int(const struct pass_node *n, uint32_t key, int64_t otherwise)
{
	const struct tnp_attr *a = pass_attr(n, key);

	return a && !a->is_float ? a->v.i : otherwise;
}

double pass_float(const struct pass_node *n, uint32_t key, double otherwise)
{
	const struct tnp_attr *a = pass_attr(n, key);

	return a && a->is_float ? a->v.f : otherwise;
}

uint32_t pass_n_matrices(const struct pass_edit *x, const struct pass_node *n)
{
	uint32_t i = 0;

	while (i < n->n_weight && pass_tensor(x, n->weight[i])->rank >= 2)
		i++;
	return i;
}

/* ---- changing ------------------------------------------------------------------------------------------------------ */

static uint32_t put_edges(
	struct pass_edit *x, const graph_tensor *a, uint32_t n_a, const graph_tensor *b, uint32_t n_b)
{
	uint32_t at = x->g->g.n_edges;

	if (!graph_grow_edges(x->g, n_a + n_b))
		return at;
	for (uint32_t i = 0; i < n_a; i++)
		x->g->edges[x->g->g.n_edges++] = a[i];
	for (uint32_t i = 0; i < n_b; i++)
		x->g->edges[x->g->g.n_edges++] = b[i];
	return at;
}

/* The node's place reads and writes nothing any more. */
static void forget(struct pass_edit *x, uint32_t node)
{
	struct tnp_node *n = &x->g->nodes[node];

	for (uint32_t i = 0; n->op && i < n->n_in; i++)
		x->uses[follow(x, x->g->edges[n->in0 + i])]--;
	for (uint32_t i = 0; n->op && i < n->n_out; i++)
		if (x->maker[x->g->edges[n->out0 + i]] == node)
			x->maker[x->g->edges[n->out0 + i]] = TNP_NONE;
	*n = (struct tnp_node){ 0 };
}

void pass_put(struct pass_edit *x, uint32_t node, const struct pass_node *n)
{
	struct graph *g = x->g;
	struct tnp_node *to = &g->nodes[node];
	uint32_t in0, out0, attr0 = g->g.n_attrs;

	if (!index_follow(x) || !graph_grow_attrs(g, n->n_attr))
		return;
	in0 = put_edges(x, n->act, n->n_act, n->weight, n->n_weight);
	out0 = put_edges(x, n->out, n->n_out, NULL, 0);
	if (g->e.code)
		return;
	forget(x, node);
	for (uint32_t i = 0; i < n->n_attr; i++)
		g->attrs[g->g.n_attrs++] = n->attr[i];
	*to = (struct tnp_node){ .op = n->op,
		.in0 = in0,
		.n_in = n->n_act + n->n_weight,
		.out0 = out0,
		.n_out = n->n_out,
		.attr0 = attr0,
		.n_attr = n->n_attr };
	for (uint32_t i = 0; i < to->n_in; i++)
		x->uses[g->edges[in0 + i]]++;
	for (uint32_t i = 0; i < to->n_out; i++)
		x->maker[g->edges[out0 + i]] = node;
	x->changes++;
}

void pass_drop(struct pass_edit *x, uint32_t node)
{
	forget(x, node);
	x->changes++;
}

void pass_stand_in(struct pass_edit *x, graph_tensor from, graph_tensor to)
{
	if (!index_follow(x))
		return;
	to = follow(x, to);
	x->same[from] = to;
	x->uses[to] += x->uses[from];
	x->uses[from] = 0;
	for (uint32_t i = 0; i < x->g->g.n_out; i++)
		if (x->g->out[i] == from)
			x->g->out[i] = to;
	x->changes++;
}

void pass_unset(struct pass_node *n, uint32_t key)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (n->attr[i].key == key) {
			n->n_attr--;
			memmove(&n->attr[i], &n->attr[i + 1], (n->n_attr - i) * sizeof *n->attr);
			return;
		}
}

/* A full list drops the last: no operator has as many as there is room for. */
static void set(struct pass_node *n, const struct tnp_attr *a)
{
	uint32_t i = 0;

	while (i < n->n_attr && n->attr[i].key != a->key)
		i++;
	if (i == PASS_ATTRS)
		i--;
	n->attr[i] = *a;
	n->n_attr = MAX_OF(n->n_attr, i + 1);
}

void pass_set_int(struct pass_node *n, uint32_t key, int64_t v)
{
	set(n, &(struct tnp_attr){ .key = key, .v.i = v });
}

void pass_set_float(struct pass_node *n, uint32_t key, double v)
{
	set(n, &(struct tnp_attr){ .key = key, .is_float = 1, .v.f = v });
}

graph_tensor pass_rows(struct pass_edit *x, int64_t symbol, int64_t width)
{
	graph_tensor t = graph_rows(x->g, symbol, width);

	return index_follow(x) ? t : TNP_NONE;
}

graph_tensor pass_rows_like(struct pass_edit *x, graph_tensor t, int64_t last)
{
	const struct tnp_tensor *r = pass_tensor(x, t);
	graph_tensor y = graph_ranked(
		x->g, r->type, r->dim[0], r->rank == 3 ? r->dim[1] : last, r->rank == 3 ? last : 0);

	return index_follow(x) ? y : TNP_NONE;
}

graph_tensor pass_constant(
	struct pass_edit *x, const float *v, uint32_t rank, const int64_t dim[TNP_MAX_RANK])
{
	graph_tensor t = graph_constant_shaped(x->g, v, rank, dim);

	return index_follow(x) ? t : TNP_NONE;
}

bool pass_values(struct pass_edit *x, graph_tensor t, uint64_t most, float **out, uint64_t *n)
{
	const struct tnp_tensor *w = pass_tensor(x, t);
	const char *data = (const char *)x->g->constants;
	uint64_t room = x->g->n_constants * sizeof(float), count = w->bytes / sizeof(float);

	if (w->buffer == 0 && x->g->file)
		data = gguf_map(x->g->file, &room);
	if (w->buffer > 1 || w->type != TNP_F32 || count > most || !data ||
		!checked_range(w->offset, w->bytes, room))
		return false;
	*out = mem_alloc(MEM_ENGINE, w->bytes);
	if (!*out) {
		graph_fail(x->g, TENON_E_NOMEM, "graph: no memory to fold constants");
		return false;
	}
	memcpy(*out, data + w->offset, w->bytes);
	*n = count;
	return true;
}

/* ---- all nodes again ------------------------------------------------------------------------------------------------ */

static void copy_attrs(struct graph *to, const struct tnp_attr *a, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		graph_attr_add(to, &a[i]);
}

void pass_emit(struct pass_edit *x, const struct pass_node *n)
{
	graph_tensor in[PASS_ACTS + PASS_WEIGHTS];

	memcpy(in, n->act, n->n_act * sizeof *in);
	memcpy(in + n->n_act, n->weight, n->n_weight * sizeof *in);
	graph_node(x->fresh, n->op, in, n->n_act + n->n_weight, n->out, n->n_out);
	copy_attrs(x->fresh, n->attr, n->n_attr);
}

/* The new lists take the old ones' place. */
static void move_lists(struct graph *to, struct graph *from)
{
	mem_free(to->nodes);
	mem_free(to->scopes);
	mem_free(to->attrs);
	mem_free(to->edges);
	to->nodes = from->nodes;
	to->scopes = from->scopes;
	to->attrs = from->attrs;
	to->edges = from->edges;
	to->cap_nodes = from->cap_nodes;
	to->cap_scopes = from->cap_scopes;
	to->cap_attrs = from->cap_attrs;
	to->cap_edges = from->cap_edges;
	to->g.n_nodes = from->g.n_nodes;
	to->g.n_attrs = from->g.n_attrs;
	to->g.n_edges = from->g.n_edges;
	if (from->e.code)
		graph_fail(to, from->e.code, "%s", from->e.text);
}

void pass_rebuild(struct pass_edit *x, bool (*each)(struct pass_edit *x, void *ctx, uint32_t node), void *ctx)
{
	struct graph *g = x->g, fresh = { 0 };

	if (!index_follow(x))
		return;
	for (uint32_t i = 0; i < g->g.n_edges; i++)
		g->edges[i] = follow(x, g->edges[i]);
	x->fresh = &fresh;
	for (uint32_t i = 0; i < g->g.n_nodes && !g->e.code && !fresh.e.code; i++) {
		const struct tnp_node *n = &g->nodes[i];

		fresh.scope = g->scopes[i];
		if (!n->op || (each && each(x, ctx, i)))
			continue;
		graph_node(&fresh, n->op, g->edges + n->in0, n->n_in, g->edges + n->out0, n->n_out);
		copy_attrs(&fresh, g->attrs + n->attr0, n->n_attr);
	}
	x->fresh = NULL;
	move_lists(g, &fresh);
	(void)pass_index(x);
}
