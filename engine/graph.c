/* SPDX-License-Identifier: Apache-2.0
 * graph.h: the builder. Arrays grow; nothing points into them until graph_finish fixes struct tnp_graph.
 */
#include "engine/graph_priv.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TENSORS = 1 << 18, MAX_NAME = 128 };

void graph_fail(struct graph *g, int code, const char *fmt, ...)
{
	va_list ap;

	if (g->e.code)
		return;
	g->e.code = code;
	va_start(ap, fmt);
	(void)vsnprintf(g->e.text, sizeof g->e.text, fmt, ap);
	va_end(ap);
}

/* Room for one more element behind n; false after a fault. */
static bool grow(struct graph *g, void *array, uint32_t *cap, uint32_t n, uint32_t more, size_t bytes)
{
	void *old, *p;
	uint64_t want = MAX_OF((uint64_t)*cap * 2, (uint64_t)n + more);

	if (g->e.code || n + (uint64_t)more <= *cap)
		return !g->e.code;
	memcpy(&old, array, sizeof old);
	p = want > MAX_TENSORS ? NULL : mem_resize(MEM_ENGINE, old, MAX_OF(want, 64) * bytes);
	if (!p) {
		graph_fail(g, TENON_E_NOMEM, "graph: no memory for %u elements", n + more);
		return false;
	}
	memcpy(array, &p, sizeof p);
	*cap = (uint32_t)MAX_OF(want, 64);
	return true;
}

bool graph_grow_edges(struct graph *g, uint32_t n)
{
	return grow(g, &g->edges, &g->cap_edges, g->g.n_edges, n, sizeof *g->edges);
}

bool graph_grow_attrs(struct graph *g, uint32_t n)
{
	return grow(g, &g->attrs, &g->cap_attrs, g->g.n_attrs, n, sizeof *g->attrs);
}

int graph_create(const struct gguf *file, struct graph **out, struct error *e)
{
	struct graph *g = mem_zalloc(MEM_ENGINE, 1, sizeof *g);

	if (!g)
		return error_set(e, TENON_E_NOMEM, "graph: no memory");
	g->file = file;
	g->scope.layer = -1;
	g->scope.word = "";
	g->g = (struct tnp_graph){ .size = sizeof g->g, .opset = TNP_OPSET };
	*out = g;
	return TENON_OK;
}

void graph_destroy(struct graph *g)
{
	if (!g)
		return;
	mem_free(g->tensors);
	mem_free(g->sources);
	mem_free(g->nodes);
	mem_free(g->scopes);
	mem_free(g->attrs);
	mem_free(g->edges);
	mem_free(g->constants);
	mem_free(g->out);
	mem_free(g);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

graph_tensor graph_tensor_add(struct graph *g, const struct tnp_tensor *t, const struct gguf_tensor *source)
{
	uint32_t n = g->g.n_tensors;

	if (!grow(g, &g->tensors, &g->cap_tensors, n, 1, sizeof *g->tensors) ||
		!grow(g, &g->sources, &g->cap_sources, n, 1, sizeof *g->sources))
		return TNP_NONE;
	g->tensors[n] = *t;
	g->sources[n] = source;
	g->g.n_tensors++;
	return n;
}

static void shape_text(char *out, size_t room, const uint64_t *dim, uint32_t rank)
{
	size_t n = (size_t)snprintf(out, room, "[");

	for (uint32_t i = 0; i < rank && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%llu", i ? ", " : "", (unsigned long long)dim[i]);
	if (n < room)
		(void)snprintf(out + n, room - n, "]");
}

static bool shape_is(const struct gguf_tensor *t, const uint64_t *want, uint32_t rank)
{
	for (uint32_t i = 0; i < 4; i++)
		if (t->dim[i] != (i < rank ? want[i] : 1))
			return false;
	return true;
}

/* Dimensions end with a 0. */
static graph_tensor weight(struct graph *g, const int64_t dim[3], bool optional, const char *fmt, va_list ap)
{
	uint64_t want[3] = { (uint64_t)dim[0], (uint64_t)dim[1], (uint64_t)dim[2] };
	uint32_t rank = dim[2] ? 3 : dim[1] ? 2 : 1;
	const struct gguf_tensor *t;
	char name[MAX_NAME], have[64], need[64];

	if (g->e.code)
		return TNP_NONE;
	(void)vsnprintf(name, sizeof name, fmt, ap);
	t = gguf_tensor_find(g->file, name);
	if (!t) {
		if (!optional)
			graph_fail(g, TENON_E_FORMAT, "tensor '%s': is missing from the file", name);
		return TNP_NONE;
	}
	if (!shape_is(t, want, rank)) {
		shape_text(have, sizeof have, t->dim, t->rank);
		shape_text(need, sizeof need, want, rank);
		graph_fail(g, TENON_E_FORMAT, "tensor '%s': has shape %s, the metadata asks for %s", name,
			have, need);
		return TNP_NONE;
	}
	for (uint32_t i = 0; i < g->g.n_tensors; i++)
		if (g->sources[i] == t)
			return i;
	return graph_tensor_add(g,
		&(struct tnp_tensor){ .type = t->type,
			.rank = rank,
			.dim = { dim[0], dim[1], dim[2] },
			.buffer = 0,
			.offset = t->offset,
			.bytes = t->bytes },
		t);
}

graph_tensor graph_weight(struct graph *g, int64_t d0, int64_t d1, const char *name, ...)
{
	graph_tensor t;
	va_list ap;

	va_start(ap, name);
	t = weight(g, (const int64_t[3]){ d0, d1 }, false, name, ap);
	va_end(ap);
	return t;
}

graph_tensor graph_weight_optional(struct graph *g, int64_t d0, int64_t d1, const char *name, ...)
{
	graph_tensor t;
	va_list ap;

	va_start(ap, name);
	t = weight(g, (const int64_t[3]){ d0, d1 }, true, name, ap);
	va_end(ap);
	return t;
}

graph_tensor graph_weight_experts(struct graph *g, int64_t d0, int64_t d1, int64_t d2, const char *name, ...)
{
	graph_tensor t;
	va_list ap;

	va_start(ap, name);
	t = weight(g, (const int64_t[3]){ d0, d1, d2 }, false, name, ap);
	va_end(ap);
	return t;
}

graph_tensor graph_weight_first_row(struct graph *g, int64_t width, const char *name)
{
	const struct gguf_tensor *t = gguf_tensor_find(g->file, name);

	if (g->e.code || !t)
		return TNP_NONE;
	if (t->rank != 2 || t->dim[1] != (uint64_t)width) {
		graph_fail(g, TENON_E_FORMAT,
			"tensor '%s': has no rows of %lld numbers, which the metadata asks for", name,
			(long long)width);
		return TNP_NONE;
	}
	return graph_tensor_add(g,
		&(struct tnp_tensor){ .type = t->type,
			.rank = 1,
			.dim = { width },
			.buffer = 0,
			.offset = t->offset,
			.bytes = t->bytes / t->dim[0] },
		t);
}

graph_tensor graph_constant_shaped(
	struct graph *g, const float *v, uint32_t rank, const int64_t dim[TNP_MAX_RANK])
{
	enum { ALIGN = 64 / sizeof(float) };
	struct tnp_tensor t = { .type = TNP_F32, .rank = rank, .buffer = 1 };
	uint32_t at = (g->n_constants + ALIGN - 1) / ALIGN * ALIGN, n = 1;

	for (uint32_t i = 0; i < rank; i++) {
		t.dim[i] = dim[i];
		n *= (uint32_t)dim[i];
	}
	if (!grow(g, &g->constants, &g->cap_constants, at, n, sizeof *g->constants))
		return TNP_NONE;
	memset(g->constants + g->n_constants, 0, (at - g->n_constants) * sizeof *v);
	memcpy(g->constants + at, v, n * sizeof *v);
	g->n_constants = at + n;
	t.offset = at * sizeof *v;
	t.bytes = n * sizeof *v;
	return graph_tensor_add(g, &t, NULL);
}

graph_tensor graph_constant(struct graph *g, const float *v, uint32_t n)
{
	return graph_constant_shaped(g, v, 1, (int64_t[TNP_MAX_RANK]){ n });
}

graph_tensor graph_rows(struct graph *g, int64_t symbol, int64_t width)
{
	return graph_tensor_add(g,
		&(struct tnp_tensor){
			.type = TNP_F32, .rank = 2, .dim = { symbol, width }, .buffer = TNP_NONE },
		NULL);
}

graph_tensor graph_ranked(struct graph *g, uint32_t type, int64_t symbol, int64_t d1, int64_t d2)
{
	return graph_tensor_add(g,
		&(struct tnp_tensor){
			.type = type, .rank = d2 ? 3 : 2, .dim = { symbol, d1, d2 }, .buffer = TNP_NONE },
		NULL);
}

int64_t graph_width(const struct graph *g, graph_tensor t)
{
	return g->e.code || t >= g->g.n_tensors ? 0 : g->tensors[t].dim[g->tensors[t].rank - 1];
}

int64_t graph_row_width(const struct graph *g, graph_tensor t)
{
	int64_t n = graph_width(g, t);

	for (uint32_t d = 1; n && d + 1 < g->tensors[t].rank; d++)
		n *= g->tensors[t].dim[d];
	return n;
}

int64_t graph_symbol(const struct graph *g, graph_tensor t)
{
	return g->e.code || t >= g->g.n_tensors ? 0 : g->tensors[t].dim[0];
}

const struct gguf_tensor *graph_file_tensor(const struct graph *g, graph_tensor t)
{
	return t < g->g.n_tensors ? g->sources[t] : NULL;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

void graph_scope(struct graph *g, int layer, const char *word)
{
	g->scope.layer = layer;
	g->scope.word = word;
}

/* Appends the tensors that are there; returns where they begin. */
static uint32_t edges_add(struct graph *g, const graph_tensor *t, uint32_t n, uint32_t *n_added)
{
	uint32_t at = g->g.n_edges;

	*n_added = 0;
	if (!grow(g, &g->edges, &g->cap_edges, at, n, sizeof *g->edges))
		return at;
	for (uint32_t i = 0; i < n; i++)
		if (t[i] != TNP_NONE) {
			g->edges[g->g.n_edges++] = t[i];
			++*n_added;
		}
	return at;
}

void graph_node(struct graph *g, uint32_t op, const graph_tensor *in, uint32_t n_in, const graph_tensor *out,
	uint32_t n_out)
{
	struct tnp_node node = { .op = op, .attr0 = g->g.n_attrs };
	uint32_t n = g->g.n_nodes;

	if (!grow(g, &g->nodes, &g->cap_nodes, n, 1, sizeof *g->nodes) ||
		!grow(g, &g->scopes, &g->cap_scopes, n, 1, sizeof *g->scopes))
		return;
	node.in0 = edges_add(g, in, n_in, &node.n_in);
	node.out0 = edges_add(g, out, n_out, &node.n_out);
	if (g->e.code)
		return;
	g->nodes[n] = node;
	g->scopes[n] = g->scope;
	g->g.n_nodes++;
}

void graph_attr_add(struct graph *g, const struct tnp_attr *a)
{
	if (g->e.code || !g->g.n_nodes ||
		!grow(g, &g->attrs, &g->cap_attrs, g->g.n_attrs, 1, sizeof *g->attrs))
		return;
	g->attrs[g->g.n_attrs++] = *a;
	g->nodes[g->g.n_nodes - 1].n_attr++;
}

void graph_attr_int(struct graph *g, uint32_t key, int64_t v)
{
	graph_attr_add(g, &(struct tnp_attr){ .key = key, .v.i = v });
}

void graph_attr_float(struct graph *g, uint32_t key, double v)
{
	graph_attr_add(g, &(struct tnp_attr){ .key = key, .is_float = 1, .v.f = v });
}

void graph_in(struct graph *g, graph_tensor t)
{
	if (g->g.n_in == COUNT_OF(g->in))
		graph_fail(g, TENON_E_INTERNAL, "graph: more than one input");
	else
		g->in[g->g.n_in++] = t;
}

void graph_out(struct graph *g, graph_tensor t)
{
	if (grow(g, &g->out, &g->cap_out, g->g.n_out, 1, sizeof *g->out))
		g->out[g->g.n_out++] = t;
}

uint32_t graph_out_of(struct graph *g, graph_tensor t)
{
	for (uint32_t i = 0; i < g->g.n_out; i++)
		if (g->out[i] == t)
			return i;
	graph_out(g, t);
	return g->g.n_out - 1;
}

graph_tensor graph_embed(struct graph *g, graph_tensor table, uint32_t index)
{
	graph_tensor y = graph_rows(g, TNP_N_TOKENS, graph_width(g, table));

	graph_node(g, TNP_OP_EMBED, &table, 1, &y, 1);
	graph_attr_int(g, TNP_A_INDEX, index);
	return y;
}

graph_tensor graph_rmsnorm(struct graph *g, graph_tensor x, graph_tensor w, double eps)
{
	graph_tensor y = graph_rows(g, graph_symbol(g, x), graph_width(g, x)), in[] = { x, w };

	graph_node(g, TNP_OP_RMSNORM, in, 2, &y, 1);
	graph_attr_float(g, TNP_A_EPS, eps);
	return y;
}

graph_tensor graph_unary(struct graph *g, uint32_t op, graph_tensor x)
{
	graph_tensor y = graph_rows(g, graph_symbol(g, x), graph_width(g, x));

	graph_node(g, op, &x, 1, &y, 1);
	return y;
}

graph_tensor graph_binary(struct graph *g, uint32_t op, graph_tensor a, graph_tensor b)
{
	graph_tensor y = graph_rows(g, graph_symbol(g, a), graph_width(g, a)), in[] = { a, b };

	graph_node(g, op, in, 2, &y, 1);
	return y;
}

graph_tensor graph_linear(
	struct graph *g, graph_tensor x, graph_tensor w, graph_tensor bias, graph_tensor residual)
{
	graph_tensor y = graph_rows(g, graph_symbol(g, x), graph_symbol(g, w)), in[] = { x, w };

	graph_node(g, TNP_OP_LINEAR, in, 2, &y, 1);
	if (bias != TNP_NONE)
		y = graph_binary(g, TNP_OP_ADD, y, bias);
	return residual == TNP_NONE ? y : graph_binary(g, TNP_OP_ADD, residual, y);
}

graph_tensor graph_glu(
	struct graph *g, graph_tensor x, const graph_tensor w[2], const graph_tensor bias[2], uint32_t act)
{
	graph_tensor gate = graph_linear(g, x, w[0], bias[0], TNP_NONE),
		     up = graph_linear(g, x, w[1], bias[1], TNP_NONE);

	gate = graph_unary(g, TNP_OP_ACT, gate);
	graph_attr_int(g, TNP_A_ACT, act);
	return graph_binary(g, TNP_OP_MUL, gate, up);
}

graph_tensor graph_select(struct graph *g, graph_tensor x)
{
	graph_tensor y = graph_rows(g, TNP_N_OUT, graph_width(g, x));

	graph_node(g, TNP_OP_SELECT, &x, 1, &y, 1);
	return y;
}

/* ---- the result ----------------------------------------------------------------------------------------------------- */

static const char *const op_names[] = { [TNP_OP_EMBED] = "EMBED",
	[TNP_OP_LINEAR] = "LINEAR",
	[TNP_OP_RMSNORM] = "RMSNORM",
	[TNP_OP_LAYERNORM] = "LAYERNORM",
	[TNP_OP_ROPE] = "ROPE",
	[TNP_OP_ATTEND] = "ATTEND",
	[TNP_OP_GLU] = "GLU",
	[TNP_OP_ACT] = "ACT",
	[TNP_OP_ADD] = "ADD",
	[TNP_OP_MUL] = "MUL",
	[TNP_OP_SCALE] = "SCALE",
	[TNP_OP_SOFTCAP] = "SOFTCAP",
	[TNP_OP_SELECT] = "SELECT",
	[TNP_OP_POOL] = "POOL",
	[TNP_OP_L2NORM] = "L2NORM",
	[TNP_OP_MOE_ROUTE] = "MOE_ROUTE",
	[TNP_OP_MOE_LINEAR] = "MOE_LINEAR",
	[TNP_OP_MOE_SUM] = "MOE_SUM",
	[TNP_OP_TRANSPOSE] = "TRANSPOSE",
	[TNP_OP_RESHAPE] = "RESHAPE" };

const char *graph_op_name(uint32_t op)
{
	return op < COUNT_OF(op_names) && op_names[op] ? op_names[op] : "?";
}

void graph_node_name(const struct graph *g, uint32_t i, char *out, size_t room)
{
	const struct graph_scope *s = &g->scopes[i];

	if (s->layer >= 0)
		(void)snprintf(
			out, room, "layer %d, %s: %s", s->layer, s->word, graph_op_name(g->nodes[i].op));
	else
		(void)snprintf(out, room, "%s: %s", s->word, graph_op_name(g->nodes[i].op));
}

const struct tnp_graph *graph_view(struct graph *g)
{
	g->buffers[0] = (struct tnp_span){ .fd = gguf_fd(g->file) };
	g->buffers[0].data = gguf_map(g->file, &g->buffers[0].bytes);
	g->buffers[1] = (struct tnp_span){
		.data = g->constants, .bytes = g->n_constants * sizeof *g->constants, .fd = -1
	};
	g->g.n_buffers = g->n_constants ? 2 : 1;
	g->g.tensors = g->tensors;
	g->g.nodes = g->nodes;
	g->g.attrs = g->attrs;
	g->g.edges = g->edges;
	g->g.buffers = g->buffers;
	g->g.in = g->in;
	g->g.out = g->out;
	return &g->g;
}

const struct tnp_graph *graph_finish(
	struct graph *g, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_out, struct error *e)
{
	if (!g->e.code && (!g->g.n_nodes || !g->g.n_out))
		graph_fail(g, TENON_E_INTERNAL, "graph: has no nodes or no output");
	if (g->e.code) {
		if (e)
			*e = g->e;
		return NULL;
	}
	if (graph_plan(g, max_tokens, max_seqs, max_out, e))
		return NULL;
	return graph_view(g);
}

uint64_t graph_live_bytes(const struct graph *g) { return g->live_bytes; }

/* ---- KV slots ------------------------------------------------------------------------------------------------------- */

static int64_t attr_of(const struct graph *g, const struct tnp_node *n, uint32_t key, int64_t otherwise)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (g->attrs[n->attr0 + i].key == key)
			return g->attrs[n->attr0 + i].v.i;
	return otherwise;
}

/* A slot reaches as far as the node that looks back furthest. */
static void slot_join(struct tnp_kv_slot *s, const struct graph *g, const struct tnp_node *n)
{
	uint32_t window = (uint32_t)attr_of(g, n, TNP_A_WINDOW, 0);

	if (!s->heads)
		s->window = window;
	else if (!window || (s->window && window > s->window))
		s->window = window;
	s->heads = (uint32_t)attr_of(g, n, TNP_A_KV_HEADS, 0);
	s->head_dim = (uint32_t)attr_of(g, n, TNP_A_HEAD_DIM, 0);
}

static bool groups_number(struct graph_slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t group = 0;

		while (group < s->n_groups && s->window[group] != s->slot[i].window)
			group++;
		if (group == TNP_MAX_GROUPS)
			return false;
		if (group == s->n_groups)
			s->window[s->n_groups++] = s->slot[i].window;
		s->slot[i].group = group;
	}
	return true;
}

int graph_slots(const struct graph *g, struct graph_slots *out, struct error *e)
{
	struct graph_slots s = { 0 };

	for (uint32_t i = 0; i < g->g.n_nodes; i++)
		if (g->nodes[i].op == TNP_OP_ATTEND && attr_of(g, &g->nodes[i], TNP_A_CAUSAL, 1))
			s.n = MAX_OF(s.n, (uint32_t)attr_of(g, &g->nodes[i], TNP_A_SLOT, 0) + 1);
	s.slot = mem_zalloc(MEM_ENGINE, s.n ? s.n : 1, sizeof *s.slot);
	if (!s.slot)
		return error_set(e, TENON_E_NOMEM, "graph: no memory for %u KV slots", s.n);
	for (uint32_t i = 0; i < g->g.n_nodes; i++)
		if (g->nodes[i].op == TNP_OP_ATTEND && attr_of(g, &g->nodes[i], TNP_A_CAUSAL, 1))
			slot_join(&s.slot[attr_of(g, &g->nodes[i], TNP_A_SLOT, 0)], g, &g->nodes[i]);
	if (!groups_number(&s)) {
		mem_free(s.slot);
		return error_set(e, TENON_E_UNSUPPORTED, "graph: layers with more than %u different windows",
			TNP_MAX_GROUPS);
	}
	*out = s;
	return TENON_OK;
}
