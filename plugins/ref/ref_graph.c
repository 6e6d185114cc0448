/* SPDX-License-Identifier: Apache-2.0
 * Is a graph well formed (else the host broke the contract: INVALID), and is each of its nodes one that opset 1
 * defines (else the verdict "no")? What passes here runs: the operators check nothing themselves.
 */
#include "ref.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLOTS 4096u

bool ref_is_weight(const struct tnp_tensor *t) { return t->buffer != TNP_NONE; }
int64_t ref_last(const struct tnp_tensor *t) { return t->dim[t->rank - 1]; }

int64_t ref_width(const struct tnp_tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 1; i < t->rank; i++)
		n *= t->dim[i] < 0 ? 0 : t->dim[i];
	return n;
}

/* ---- form ------------------------------------------------------------------------------------ */
static const char *tensor_fault(const struct tnp_graph *g, const struct tnp_tensor *t)
{
	uint64_t n = 1, row;
	int symbols = 0;

	if (t->rank < 1 || t->rank > TNP_MAX_RANK)
		return "rank is not 1 to 4";
	for (uint32_t i = 0; i < t->rank; i++) {
		if (t->dim[i] == 0 || t->dim[i] < TNP_N_OUT)
			return "a dimension is neither positive nor a known symbol";
		if (t->dim[i] < 0)
			symbols++;
		else if (__builtin_mul_overflow(n, (uint64_t)t->dim[i], &n) || n >> 48)
			return "too many elements";
	}
	if (t->flags)
		return "unknown flags";
	if (!ref_is_weight(t))
		return symbols > 1 ? "more than one symbolic dimension" : NULL;
	if (symbols || t->buffer >= g->n_buffers || !g->buffers[t->buffer].data)
		return "a weight needs fixed dimensions and a mapped buffer";
	if (t->bytes > g->buffers[t->buffer].bytes || t->offset > g->buffers[t->buffer].bytes - t->bytes)
		return "runs past the end of its buffer";
	row = ref_row_bytes(t->type, (uint64_t)ref_last(t));
	if (row && n / (uint64_t)ref_last(t) * row != t->bytes)
		return "bytes do not follow from type and dimensions";
	return NULL;
}

/* A slice [first, first + n) of an array of `all`. */
static bool slice_ok(uint32_t first, uint32_t n, uint32_t all) { return n <= all && first <= all - n; }

/* Activations are written once, before anything reads them. */
static const char *order_fault(const struct tnp_graph *g, uint8_t *written, uint32_t *item)
{
	for (uint32_t i = 0; i < g->n_in; i++)
		written[g->in[i]] = 1;
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[i];

		*item = i;
		for (uint32_t j = 0; j < n->n_in; j++)
			if (!ref_is_weight(&g->tensors[g->edges[n->in0 + j]]) &&
				!written[g->edges[n->in0 + j]])
				return "reads a tensor that nothing has written";
		for (uint32_t j = 0; j < n->n_out; j++) {
			uint32_t t = g->edges[n->out0 + j];

			if (ref_is_weight(&g->tensors[t]) || written[t]++)
				return "writes a weight, or a tensor a second time";
		}
	}
	for (uint32_t i = 0; i < g->n_out; i++) {
		*item = i;
		if (!written[g->out[i]])
			return "an output of the graph is never written";
	}
	return NULL;
}

static const char *index_fault(const struct tnp_graph *g, uint32_t *item)
{
	for (uint32_t i = 0; i < g->n_edges; i++)
		if (g->edges[ *item = i] >= g->n_tensors)
			return "an edge names no tensor";
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[ *item = i];

		if (!slice_ok(n->in0, n->n_in, g->n_edges) || !slice_ok(n->out0, n->n_out, g->n_edges) ||
			!slice_ok(n->attr0, n->n_attr, g->n_attrs))
			return "a node's slice runs past its array";
	}
	for (uint32_t i = 0; i < g->n_in; i++)
		if (g->in[ *item = i] >= g->n_tensors || ref_is_weight(&g->tensors[g->in[i]]))
			return "an input of the graph is no activation";
	for (uint32_t i = 0; i < g->n_out; i++)
		if (g->out[ *item = i] >= g->n_tensors || ref_is_weight(&g->tensors[g->out[i]]))
			return "an output of the graph is no activation";
	return NULL;
}

static bool arrays_given(const struct tnp_graph *g)
{
	return (g->tensors || !g->n_tensors) && (g->nodes || !g->n_nodes) && (g->attrs || !g->n_attrs) &&
		(g->edges || !g->n_edges) && (g->buffers || !g->n_buffers) && (g->in || !g->n_in) &&
		(g->out || !g->n_out);
}

/* The host's arrays stay where they are (they live until model_close); only the head is copied. */
tnp_rc ref_graph_take(struct tnp_graph *out, const struct tnp_graph *g, struct tnp_error *e)
{
	tnp_rc rc = ref_take(out, sizeof *out, g, "graph", e);
	const char *why;
	uint32_t item = 0;
	uint8_t *written;

	if (rc)
		return rc;
	if (!out->opset || !arrays_given(out) || out->n_in > 1 || !out->n_out || !out->n_nodes)
		return ref_fail(e, TNP_E_INVALID, 0,
			"graph: no opset, nodes or outputs, a missing array, or two inputs");
	for (uint32_t i = 0; i < out->n_tensors; i++)
		if ((why = tensor_fault(out, &out->tensors[i])))
			return ref_fail(e, TNP_E_INVALID, i, "tensor %u: %s", i, why);
	if ((why = index_fault(out, &item)))
		return ref_fail(e, TNP_E_INVALID, item, "graph: %s (%u)", why, item);
	written = calloc(out->n_tensors, 1);
	if (!written)
		return ref_fail(e, TNP_E_NOMEM, 0, "graph: no memory for %u tensors", out->n_tensors);
	why = order_fault(out, written, &item);
	free(written);
	return why ? ref_fail(e, TNP_E_INVALID, item, "node %u: %s", item, why) : TNP_OK;
}

/* ---- attributes ------------------------------------------------------------------------------- */
#define A(key)	 (1u << TNP_A_##key)
#define A_FLOATS (A(EPS) | A(SCALE) | A(CAP) | A(ROPE_BASE))
#define A_ROPE	 (A(ROPE_DIMS) | A(ROPE_BASE) | A(ROPE_MODE))

static bool attr_set(struct ref_attrs *a, const struct tnp_attr *v)
{
	int64_t *whole[] = { [TNP_A_ACT] = &a->act,
		[TNP_A_GROUP] = &a->group,
		[TNP_A_HEADS] = &a->heads,
		[TNP_A_KV_HEADS] = &a->kv_heads,
		[TNP_A_HEAD_DIM] = &a->head_dim,
		[TNP_A_SLOT] = &a->slot,
		[TNP_A_WINDOW] = &a->window,
		[TNP_A_CAUSAL] = &a->causal,
		[TNP_A_ROPE_DIMS] = &a->rope_dims,
		[TNP_A_ROPE_MODE] = &a->rope_mode,
		[TNP_A_POOL_KIND] = &a->pool_kind,
		[TNP_A_TOP_K] = &a->top_k,
		[TNP_A_NORM] = &a->norm,
		[TNP_A_INDEX] = &a->index,
		[TNP_A_AXES] = &a->axes };
	double *real[] = { [TNP_A_EPS] = &a->eps,
		[TNP_A_SCALE] = &a->scale,
		[TNP_A_CAP] = &a->cap,
		[TNP_A_ROPE_BASE] = &a->rope_base };
	bool is_real = A_FLOATS >> v->key & 1;

	if (!!v->is_float != is_real || (a->given >> v->key & 1))
		return false;
	if (is_real)
		*real[v->key] = v->v.f;
	else
		*whole[v->key] = v->v.i;
	a->given |= 1u << v->key;
	return !is_real || isfinite(v->v.f);
}

/* Every number is small and not negative, so that products of two do not overflow. */
static bool attrs_sane(struct ref_attrs *a)
{
	const int64_t small[] = { a->group, a->heads, a->kv_heads, a->head_dim, a->slot, a->window,
		a->rope_dims, a->top_k };

	for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
		if (small[i] < 0 || small[i] > INT32_MAX)
			return false;
	if (!REF_GIVEN(a, TNP_A_ROPE_DIMS))
		a->rope_dims = a->head_dim;
	return a->act >= TNP_ACT_NONE && a->act <= TNP_ACT_RELU && a->causal >= 0 && a->causal <= 1 &&
		a->rope_mode >= TNP_ROPE_PAIRS && a->rope_mode <= TNP_ROPE_HALVES &&
		a->pool_kind >= TNP_POOL_MEAN && a->pool_kind <= TNP_POOL_LAST && a->norm >= 0 &&
		a->norm <= 1 && a->index >= TNP_INDEX_TOKEN && a->index <= TNP_INDEX_POS && a->eps >= 0 &&
		a->cap >= 0 && a->rope_base > 0;
}

static bool attrs_read(const struct tnp_graph *g, const struct tnp_node *n, uint32_t allowed, uint32_t needed,
	struct ref_attrs *a)
{
	*a = (struct ref_attrs){ .scale = 1, .rope_base = 10000, .causal = 1 };
	for (uint32_t i = 0; i < n->n_attr; i++) {
		const struct tnp_attr *v = &g->attrs[n->attr0 + i];

		if (v->key >= 32 || !(allowed >> v->key & 1) || !attr_set(a, v))
			return false;
	}
	return (a->given & needed) == needed && attrs_sane(a);
}

/* ---- shapes ----------------------------------------------------------------------------------- */
struct io { /* a node's tensors by kind */
	uint32_t n_x, n_w, n_y;
	const struct tnp_tensor *x[REF_MAX_IN], *w[REF_MAX_IN], *y[REF_MAX_OUT];
};

struct rows {
	int64_t symbol, times;
}; /* all dimensions but the last, multiplied; symbol 0: none */

static struct rows rows_of(const struct tnp_tensor *t)
{
	struct rows r = { 0, 1 };

	for (uint32_t i = 0; i + 1 < t->rank; i++) {
		if (t->dim[i] < 0)
			r.symbol = t->dim[i];
		else
			r.times *= t->dim[i];
	}
	return r;
}

static bool same_rows(const struct tnp_tensor *a, const struct tnp_tensor *b)
{
	struct rows x = rows_of(a), y = rows_of(b);

	return x.symbol == y.symbol && x.times == y.times;
}

static bool same_shape(const struct tnp_tensor *a, const struct tnp_tensor *b)
{
	return same_rows(a, b) && ref_last(a) == ref_last(b);
}

/* [first][width], however the width is cut */
static bool shape_is(const struct tnp_tensor *t, int64_t first, int64_t width)
{
	return t->rank >= 2 && t->dim[0] == first && ref_width(t) == width;
}

static bool vector_is(const struct tnp_tensor *t, int64_t n) { return t->rank == 1 && t->dim[0] == n; }

/* ---- operators: shape_* is true when the node is as opset 1 says ------------------------------- */
static bool shape_embed(const struct io *o, const struct ref_attrs *a)
{
	(void)a;
	return o->w[0]->rank == 2 && o->y[0]->rank == 2 && shape_is(o->y[0], TNP_N_TOKENS, o->w[0]->dim[1]);
}

/* Matrices first, then biases; rows of the outputs together are the rows of the matrices together. */
static bool shape_linear(const struct io *o, const struct ref_attrs *a)
{
	int64_t rows = 0, bias = 0, out = 0;

	(void)a;
	for (uint32_t i = 0; i < o->n_w; i++) {
		if (o->w[i]->rank == 2 && !bias && o->w[i]->dim[1] == ref_last(o->x[0]) && i < 4)
			rows += o->w[i]->dim[0];
		else if (o->w[i]->rank == 1 && rows)
			bias += o->w[i]->dim[0];
		else
			return false;
	}
	for (uint32_t i = 0; i < o->n_y; i++) {
		if (!same_rows(o->x[0], o->y[i]) || ref_last(o->y[i]) < 0)
			return false;
		out += ref_last(o->y[i]);
	}
	return out == rows && (!bias || bias == rows) &&
		(o->n_x == 1 || (o->n_y == 1 && same_shape(o->x[1], o->y[0])));
}

static bool shape_norm(const struct io *o, const struct ref_attrs *a)
{
	int64_t width = ref_last(o->x[0]), group = a->group ? a->group : width;

	if (width < 0 || width % group || !vector_is(o->w[0], group) ||
		(o->n_w > 1 && !vector_is(o->w[1], group)))
		return false;
	return same_shape(o->x[0], o->y[0]) && (o->n_x == 1 || same_shape(o->x[0], o->x[1])) &&
		(o->n_y == 1 || (o->n_x == 2 && same_shape(o->x[0], o->y[1])));
}

static bool rope_ok(const struct io *o, const struct ref_attrs *a)
{
	return a->rope_dims > 0 && a->rope_dims % 2 == 0 && a->rope_dims <= a->head_dim &&
		(!o->n_w || vector_is(o->w[0], a->rope_dims / 2));
}

static bool shape_rope(const struct io *o, const struct ref_attrs *a)
{
	int64_t width = a->heads * a->head_dim;

	return width > 0 && rope_ok(o, a) && shape_is(o->x[0], TNP_N_TOKENS, width) &&
		shape_is(o->y[0], TNP_N_TOKENS, width);
}

static bool shape_attend(const struct io *o, const struct ref_attrs *a)
{
	int64_t width = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	bool turns = REF_GIVEN(a, TNP_A_ROPE_MODE);

	if (width < 1 || kv < 1 || a->heads % a->kv_heads || (turns && !rope_ok(o, a)) ||
		(!turns && o->n_w) || (!turns && (a->given & A_ROPE)))
		return false;
	if (a->causal ? !REF_GIVEN(a, TNP_A_SLOT) || a->slot >= MAX_SLOTS : a->window || o->n_x != 3)
		return false;
	if (!shape_is(o->x[0], TNP_N_TOKENS, width) || !shape_is(o->y[0], TNP_N_TOKENS, width) || o->n_x == 2)
		return false;
	return o->n_x == 1 || (shape_is(o->x[1], TNP_N_TOKENS, kv) && shape_is(o->x[2], TNP_N_TOKENS, kv));
}

static bool shape_glu(const struct io *o, const struct ref_attrs *a)
{
	(void)a;
	return same_rows(o->x[0], o->y[0]) && ref_last(o->y[0]) > 0 &&
		ref_last(o->x[0]) == 2 * ref_last(o->y[0]);
}

static bool shape_same(const struct io *o, const struct ref_attrs *a)
{
	(void)a;
	return same_shape(o->x[0], o->y[0]);
}

static bool shape_softcap(const struct io *o, const struct ref_attrs *a)
{
	return a->cap > 0 && shape_same(o, a);
}

static bool shape_two(const struct io *o, const struct ref_attrs *a)
{
	const struct tnp_tensor *b = o->n_x > 1 ? o->x[1] : o->w[0];
	struct rows r = rows_of(b);
	bool one_row = !r.symbol && r.times == 1;

	if (o->n_x + o->n_w != 2 || !shape_same(o, a) || (o->n_w && !one_row))
		return false;
	return (one_row || same_rows(b, o->x[0])) && (ref_last(b) == 1 || ref_last(b) == ref_last(o->x[0]));
}

static bool shape_select(const struct io *o, const struct ref_attrs *a)
{
	(void)a;
	return o->x[0]->rank == 2 && o->y[0]->rank == 2 && o->x[0]->dim[0] == TNP_N_TOKENS &&
		shape_is(o->y[0], TNP_N_OUT, o->x[0]->dim[1]);
}

static bool shape_pool(const struct io *o, const struct ref_attrs *a)
{
	(void)a;
	return o->x[0]->rank == 2 && o->y[0]->rank == 2 && o->x[0]->dim[0] == TNP_N_TOKENS &&
		shape_is(o->y[0], TNP_N_SEQS, o->x[0]->dim[1]);
}

static bool shape_route(const struct io *o, const struct ref_attrs *a)
{
	const struct tnp_tensor *x = o->x[0], *w = o->w[0];

	return x->rank == 2 && x->dim[0] < 0 && w->rank == 2 && w->dim[1] == x->dim[1] && a->top_k >= 1 &&
		a->top_k <= w->dim[0] && o->y[0]->rank == 2 && o->y[1]->rank == 2 &&
		shape_is(o->y[0], x->dim[0], a->top_k) && shape_is(o->y[1], x->dim[0], a->top_k);
}

static bool shape_moe_linear(const struct io *o, const struct ref_attrs *a)
{
	const struct tnp_tensor *x = o->x[0], *ids = o->x[1], *y = o->y[0];
	int64_t rows = 0;

	(void)a;
	for (uint32_t i = 0; i < o->n_w; i++) {
		if (o->w[i]->rank != 3 || o->w[i]->dim[0] != o->w[0]->dim[0] ||
			o->w[i]->dim[2] != ref_last(x))
			return false;
		rows += o->w[i]->dim[1];
	}
	if (ids->rank != 2 || y->rank != 3 || x->dim[0] != ids->dim[0] || y->dim[0] != ids->dim[0] ||
		y->dim[1] != ids->dim[1] || y->dim[2] != rows)
		return false;
	return x->rank == 2 || (x->rank == 3 && x->dim[1] == ids->dim[1]);
}

static bool shape_moe_sum(const struct io *o, const struct ref_attrs *a)
{
	const struct tnp_tensor *x = o->x[0], *share = o->x[1], *y = o->y[0];

	(void)a;
	return x->rank == 3 && share->rank == 2 && y->rank == 2 && x->dim[0] == share->dim[0] &&
		x->dim[1] == share->dim[1] && y->dim[0] == x->dim[0] && y->dim[1] == x->dim[2];
}

static bool shape_transpose(const struct io *o, const struct ref_attrs *a)
{
	uint32_t seen = 0, rank = o->x[0]->rank;

	if (rank != o->y[0]->rank || a->axes < 0 || a->axes >> (4 * rank))
		return false;
	for (uint32_t i = 0; i < rank; i++) {
		uint32_t from = (uint32_t)(a->axes >> (4 * i) & 15);

		if (from >= rank || o->y[0]->dim[i] != o->x[0]->dim[from])
			return false;
		seen |= 1u << from;
	}
	return seen == (1u << rank) - 1;
}

static bool shape_reshape(const struct io *o, const struct ref_attrs *a)
{
	struct rows x = rows_of(o->x[0]), y = rows_of(o->y[0]);
	int64_t last_x = ref_last(o->x[0]), last_y = ref_last(o->y[0]);

	(void)a;
	if (last_x < 0)
		x.symbol = last_x, last_x = 1;
	if (last_y < 0)
		y.symbol = last_y, last_y = 1;
	return x.symbol == y.symbol && x.times * last_x == y.times * last_y;
}

/* ---- the table of opset 1 --------------------------------------------------------------------- */
struct op_rule {
	ref_op_fn *run;
	bool (*shape)(const struct io *o, const struct ref_attrs *a);
	uint32_t allowed, needed; /* attributes */
	uint8_t x_min, x_max, w_min, w_max, y_min, y_max;
};

static const struct op_rule op_rules[] = {
	[TNP_OP_EMBED] = { ref_op_embed, shape_embed, A(SCALE) | A(INDEX), 0, 0, 0, 1, 1, 1, 1 },
	[TNP_OP_LINEAR] = { ref_op_linear, shape_linear, A(ACT), 0, 1, 2, 1, 8, 1, 4 },
	[TNP_OP_RMSNORM] = { ref_op_rmsnorm, shape_norm, A(EPS) | A(GROUP), A(EPS), 1, 2, 1, 1, 1, 2 },
	[TNP_OP_LAYERNORM] = { ref_op_layernorm, shape_norm, A(EPS) | A(GROUP), A(EPS), 1, 2, 1, 2, 1, 2 },
	[TNP_OP_ROPE] = { ref_op_rope, shape_rope, A_ROPE | A(HEADS) | A(HEAD_DIM) | A(SCALE),
		A(HEADS) | A(HEAD_DIM) | A(ROPE_MODE), 1, 1, 0, 1, 1, 1 },
	[TNP_OP_ATTEND] = { ref_op_attend, shape_attend,
		A_ROPE | A(SLOT) | A(HEADS) | A(KV_HEADS) | A(HEAD_DIM) | A(SCALE) | A(WINDOW) | A(CAP) |
			A(CAUSAL),
		A(HEADS) | A(KV_HEADS) | A(HEAD_DIM), 1, 3, 0, 1, 1, 1 },
	[TNP_OP_GLU] = { ref_op_glu, shape_glu, A(ACT), A(ACT), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_ACT] = { ref_op_act, shape_same, A(ACT), A(ACT), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_ADD] = { ref_op_add, shape_two, 0, 0, 1, 2, 0, 1, 1, 1 },
	[TNP_OP_MUL] = { ref_op_mul, shape_two, 0, 0, 1, 2, 0, 1, 1, 1 },
	[TNP_OP_SCALE] = { ref_op_scale, shape_same, A(SCALE), A(SCALE), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_SOFTCAP] = { ref_op_softcap, shape_softcap, A(CAP), A(CAP), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_SELECT] = { ref_op_select, shape_select, 0, 0, 1, 1, 0, 0, 1, 1 },
	[TNP_OP_POOL] = { ref_op_pool, shape_pool, A(POOL_KIND), A(POOL_KIND), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_L2NORM] = { ref_op_l2norm, shape_same, A(EPS), 0, 1, 1, 0, 0, 1, 1 },
	[TNP_OP_MOE_ROUTE] = { ref_op_moe_route, shape_route, A(TOP_K) | A(NORM), A(TOP_K), 1, 1, 1, 1, 2,
		2 },
	[TNP_OP_MOE_LINEAR] = { ref_op_moe_linear, shape_moe_linear, A(ACT), 0, 2, 2, 1, 4, 1, 1 },
	[TNP_OP_MOE_SUM] = { ref_op_moe_sum, shape_moe_sum, 0, 0, 2, 2, 0, 0, 1, 1 },
	[TNP_OP_TRANSPOSE] = { ref_op_transpose, shape_transpose, A(AXES), A(AXES), 1, 1, 0, 0, 1, 1 },
	[TNP_OP_RESHAPE] = { ref_op_reshape, shape_reshape, 0, 0, 1, 1, 0, 0, 1, 1 },
};

/* Activations come before weights. */
static bool io_read(const struct tnp_graph *g, const struct tnp_node *n, struct io *o)
{
	*o = (struct io){ .n_y = n->n_out };
	if (n->n_in > 2 * REF_MAX_IN || n->n_out > REF_MAX_OUT)
		return false;
	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct tnp_tensor *t = &g->tensors[g->edges[n->in0 + i]];

		if (ref_is_weight(t) ? o->n_w == REF_MAX_IN : o->n_w > 0 || o->n_x == REF_MAX_IN)
			return false;
		if (ref_is_weight(t))
			o->w[o->n_w++] = t;
		else
			o->x[o->n_x++] = t;
	}
	for (uint32_t i = 0; i < n->n_out; i++)
		o->y[i] = &g->tensors[g->edges[n->out0 + i]];
	return true;
}

/* Activations are F32, but for the expert numbers. */
static bool types_ok(uint32_t op, const struct io *o)
{
	for (uint32_t i = 0; i < o->n_x; i++)
		if (o->x[i]->type != (op == TNP_OP_MOE_LINEAR && i == 1 ? TNP_I32 : TNP_F32))
			return false;
	for (uint32_t i = 0; i < o->n_y; i++)
		if (o->y[i]->type != (op == TNP_OP_MOE_ROUTE && i == 0 ? TNP_I32 : TNP_F32))
			return false;
	for (uint32_t i = 0; i < o->n_w; i++)
		if (!ref_row_bytes(o->w[i]->type, (uint64_t)ref_last(o->w[i])))
			return false;
	return true;
}

/* Expert numbers come from a router over as many experts as the matrices hold. */
static bool experts_agree(const struct tnp_graph *g, const struct tnp_node *n, const struct io *o)
{
	for (const struct tnp_node *r = g->nodes; r < n; r++)
		if (r->op == TNP_OP_MOE_ROUTE && r->n_out && r->n_in &&
			g->edges[r->out0] == g->edges[n->in0 + 1])
			return g->tensors[g->edges[r->in0 + r->n_in - 1]].dim[0] == o->w[0]->dim[0];
	return false;
}

static bool counts_ok(const struct op_rule *r, const struct io *o)
{
	return o->n_x >= r->x_min && o->n_x <= r->x_max && o->n_w >= r->w_min && o->n_w <= r->w_max &&
		o->n_y >= r->y_min && o->n_y <= r->y_max;
}

static void defaults(uint32_t op, struct ref_attrs *a)
{
	if (op == TNP_OP_ATTEND && !REF_GIVEN(a, TNP_A_SCALE))
		a->scale = 1 / sqrt((double)a->head_dim);
	if (op == TNP_OP_L2NORM && !REF_GIVEN(a, TNP_A_EPS))
		a->eps = 1e-12;
}

static const char *node_fault(const struct tnp_graph *g, uint32_t i, struct ref_node *out)
{
	const struct tnp_node *n = &g->nodes[i];
	const struct op_rule *r = n->op < sizeof op_rules / sizeof op_rules[0] ? &op_rules[n->op] : NULL;
	struct io o;

	if (!r || !r->run)
		return "operator not in opset 1";
	if (n->flags)
		return "unknown flags";
	if (!io_read(g, n, &o) || !counts_ok(r, &o))
		return "number or order of inputs or outputs";
	if (!types_ok(n->op, &o))
		return "type of a tensor";
	if (!attrs_read(g, n, r->allowed, r->needed, &out->a))
		return "attribute missing, unknown or out of range";
	if (!r->shape(&o, &out->a))
		return "shapes do not fit";
	if (n->op == TNP_OP_MOE_LINEAR && !experts_agree(g, n, &o))
		return "expert numbers are not from a router of this size";
	defaults(n->op, &out->a);
	out->run = r->run;
	return NULL;
}

bool ref_node_check(const struct tnp_graph *g, uint32_t i, struct ref_node *out, struct tnp_verdict *v)
{
	const char *why = node_fault(g, i, out);

	if (v) {
		*v = (struct tnp_verdict){ .ok = !why };
		(void)snprintf(v->text, sizeof v->text, "%s", why ? why : "");
	}
	return !why;
}

/* ---- slots and groups -------------------------------------------------------------------------- */
void ref_slots_finish(struct ref_slots *s)
{
	free(s->slot);
	*s = (struct ref_slots){ 0 };
}

/* A slot reaches as far as the node that looks back furthest. */
static bool slot_join(struct ref_slot *s, const struct ref_attrs *a)
{
	uint32_t window = (uint32_t)a->window;

	if (!s->used) {
		*s = (struct ref_slot){ (uint32_t)a->kv_heads, (uint32_t)a->head_dim, window, 0, true };
		return true;
	}
	if (s->heads != a->kv_heads || s->head_dim != a->head_dim)
		return false;
	if (!window || (s->window && window > s->window))
		s->window = window;
	return true;
}

/* Slots in ascending order; each reach not seen before opens the next group. */
static bool groups_number(struct ref_slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t g = 0;

		while (g < s->n_groups && s->window[g] != s->slot[i].window)
			g++;
		if (g == TNP_MAX_GROUPS)
			return false;
		if (g == s->n_groups)
			s->window[s->n_groups++] = s->slot[i].window;
		s->slot[i].group = g;
	}
	return true;
}

static const char *slots_fault(struct ref_slots *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (!s->slot[i].used)
			return "slots are not numbered without gaps";
	return groups_number(s) ? NULL : "more than four different windows";
}

/* Nodes that are refused do not count: model_open fails on them anyway. */
tnp_rc ref_slots_find(const struct tnp_graph *g, struct ref_slots *out, struct tnp_error *e)
{
	const char *why;

	*out = (struct ref_slots){ .slot = calloc(MAX_SLOTS, sizeof *out->slot) };
	if (!out->slot)
		return ref_fail(e, TNP_E_NOMEM, 0, "slots: no memory");
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		struct ref_node n;

		if (g->nodes[i].op != TNP_OP_ATTEND || !ref_node_check(g, i, &n, NULL) || !n.a.causal)
			continue;
		if (!slot_join(&out->slot[n.a.slot], &n.a)) {
			ref_slots_finish(out);
			return ref_fail(
				e, TNP_E_INVALID, i, "node %u: its slot was given other heads before", i);
		}
		if (out->n <= (uint32_t)n.a.slot)
			out->n = (uint32_t)n.a.slot + 1;
	}
	why = slots_fault(out);
	if (why) {
		ref_slots_finish(out);
		return ref_fail(e, TNP_E_INVALID, 0, "slots: %s", why);
	}
	return TNP_OK;
}

/* ---- what op_caps answers ----------------------------------------------------------------------- */
uint32_t ref_op_caps(struct tnp_op_cap *rows, uint32_t room)
{
	uint32_t n = 0;

	for (uint32_t op = 0; op < sizeof op_rules / sizeof op_rules[0]; op++) {
		const struct op_rule *r = &op_rules[op];

		if (!r->run)
			continue;
		if (n < room)
			rows[n] = (struct tnp_op_cap){ .op = op,
				.in_types = r->x_max ? TNP_TYPES(TNP_F32) : 0,
				.weight_types = r->w_max ? REF_WEIGHT_TYPES : 0,
				.out_types = TNP_TYPES(TNP_F32) };
		if (n < room && op == TNP_OP_MOE_LINEAR)
			rows[n].in_types |= TNP_TYPES(TNP_I32);
		if (n < room && op == TNP_OP_MOE_ROUTE)
			rows[n].out_types |= TNP_TYPES(TNP_I32);
		n++;
	}
	return n;
}
