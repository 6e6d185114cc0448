/* SPDX-License-Identifier: Apache-2.0
 * Reading graphs, see graph.h. graph_check proves that indices, shapes and buffers can be followed; everything
 * after it may rely on that. node_read holds the list of what each operator accepts here.
 */
#include "graph.h"
#include <math.h>
#include <stdlib.h>

enum { HEADS_LIMIT = 4096, HEAD_DIM_LIMIT = 1024, COUNT_LIMIT = 1 << 22 };

uint64_t tensor_count(const struct tnp_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->rank; d++)
		n *= (uint64_t)t->dim[d];
	return n;
}

/* An F32 activation with rows of the step, of a width that fits. */
static bool is_rows(const struct tnp_graph *g, uint32_t t)
{
	const struct tnp_tensor *x = &g->tensors[t];

	return x->buffer == TNP_NONE && x->type == TNP_F32 && x->rank >= 2 && x->dim[0] < 0 &&
		tensor_width(x) <= WIDTH_LIMIT;
}

/* ---- the graph as a whole ---------------------------------------------------------------- */
/* Positive dimensions multiplied; 0 when that is too much or a dimension has no meaning. */
static uint64_t dims_count(const struct tnp_tensor *t, uint32_t *symbols)
{
	uint64_t n = 1;

	*symbols = 0;
	for (uint32_t d = 0; d < t->rank; d++) {
		if (t->dim[d] == 0 || t->dim[d] < TNP_N_OUT)
			return 0;
		if (t->dim[d] < 0)
			++*symbols;
		else if (__builtin_mul_overflow(n, (uint64_t)t->dim[d], &n) || n >> 40)
			return 0;
	}
	return n;
}

static const char *weight_wrong(const struct tnp_graph *g, const struct tnp_tensor *t, uint64_t n)
{
	const struct tnp_span *s;
	struct cpu_type type;
	uint64_t last = (uint64_t)t->dim[t->rank - 1];

	if (t->buffer >= g->n_buffers || !g->buffers[t->buffer].data)
		return "tensor: its buffer does not exist";
	s = &g->buffers[t->buffer];
	if (t->offset > s->bytes || t->bytes > s->bytes - t->offset)
		return "tensor: it runs past its buffer";
	if (!cpu_type_info(t->type, &type))
		return NULL; /* an unknown type is refused by the node that uses it */
	if (last % type.block || n / last * (last / type.block) * type.bytes != t->bytes)
		return "tensor: its bytes do not follow from type and dimensions";
	return NULL;
}

static const char *tensor_wrong(const struct tnp_graph *g, const struct tnp_tensor *t)
{
	uint32_t symbols;
	uint64_t n;

	if (t->rank < 1 || t->rank > TNP_MAX_RANK)
		return "tensor: its rank is not 1 to 4";
	n = dims_count(t, &symbols);
	if (!n || symbols > 1 || t->flags)
		return "tensor: dimensions or flags have no meaning";
	if (t->buffer == TNP_NONE)
		return NULL;
	return symbols ? "tensor: a weight without fixed dimensions" : weight_wrong(g, t, n);
}

static bool slice_fits(uint32_t at, uint32_t n, uint32_t of) { return n <= of && at <= of - n; }

static const char *node_wrong(const struct tnp_graph *g, const struct tnp_node *n)
{
	if (!slice_fits(n->in0, n->n_in, g->n_edges) || !slice_fits(n->out0, n->n_out, g->n_edges))
		return "its edges lie outside the list";
	if (!slice_fits(n->attr0, n->n_attr, g->n_attrs))
		return "its attributes lie outside the list";
	for (uint32_t i = 0; i < n->n_in; i++)
		if (g->edges[n->in0 + i] >= g->n_tensors)
			return "an input does not exist";
	for (uint32_t i = 0; i < n->n_out; i++) {
		if (g->edges[n->out0 + i] >= g->n_tensors)
			return "an output does not exist";
		if (g->tensors[g->edges[n->out0 + i]].buffer != TNP_NONE)
			return "an output is a weight";
	}
	return NULL;
}

/* Marks what exists before node 0, then walks the nodes. `made` has a byte a tensor. */
static const char *order_wrong(const struct tnp_graph *g, uint8_t *made, uint32_t *item)
{
	for (uint32_t i = 0; i < g->n_in; i++)
		made[g->in[i]] = 1;
	for (*item = 0; *item < g->n_nodes; ++*item) {
		const struct tnp_node *n = &g->nodes[*item];

		for (uint32_t i = 0; i < n->n_in; i++) {
			uint32_t t = g->edges[n->in0 + i];

			if (g->tensors[t].buffer == TNP_NONE && !made[t])
				return "an input is used before it is made";
		}
		for (uint32_t i = 0; i < n->n_out; i++) {
			uint32_t t = g->edges[n->out0 + i];

			if (made[t])
				return "an output is made twice";
			made[t] = 1;
		}
	}
	for (*item = 0; *item < g->n_out; ++*item)
		if (!made[g->out[*item]])
			return "an output of the graph is never made";
	return NULL;
}

static tnp_rc lists_check(const struct tnp_graph *g, struct tnp_error *e)
{
	if (!g->opset)
		return cpu_fail(e, TNP_E_INVALID, 0, "graph: no operator set");
	if (g->n_tensors > COUNT_LIMIT || g->n_nodes > COUNT_LIMIT || g->n_edges > COUNT_LIMIT ||
		g->n_attrs > COUNT_LIMIT)
		return cpu_fail(e, TNP_E_INVALID, 0, "graph: too many tensors, nodes, edges or attributes");
	if ((g->n_tensors && !g->tensors) || (g->n_nodes && !g->nodes) || (g->n_edges && !g->edges) ||
		(g->n_attrs && !g->attrs) || (g->n_buffers && !g->buffers) || (g->n_in && !g->in) ||
		(g->n_out && !g->out))
		return cpu_fail(e, TNP_E_INVALID, 0, "graph: a list is missing");
	if (g->n_in > 1 || !g->n_out || !g->n_nodes)
		return cpu_fail(e, TNP_E_INVALID, 0, "graph: two inputs, no outputs or no nodes");
	for (uint32_t i = 0; i < g->n_buffers; i++)
		if (g->buffers[i].flags)
			return cpu_fail(e, TNP_E_INVALID, i, "graph: unknown flags of a buffer");
	return TNP_OK;
}

/* What crosses the graph's border: rows of floats. */
static tnp_rc border_check(const struct tnp_graph *g, struct tnp_error *e)
{
	for (uint32_t i = 0; i < g->n_in; i++)
		if (g->in[i] >= g->n_tensors || !is_rows(g, g->in[i]) ||
			g->tensors[g->in[i]].dim[0] != TNP_N_TOKENS)
			return cpu_fail(e, TNP_E_INVALID, i, "graph: its input has no row for each token");
	for (uint32_t i = 0; i < g->n_out; i++)
		if (g->out[i] >= g->n_tensors || !is_rows(g, g->out[i]))
			return cpu_fail(e, TNP_E_INVALID, i, "graph: an output has no rows of the step");
	return TNP_OK;
}

tnp_rc graph_check(const struct tnp_graph *g, struct tnp_error *e)
{
	const char *why = NULL;
	uint32_t item = 0;
	uint8_t *made;
	tnp_rc rc = lists_check(g, e);

	if (rc)
		return rc;
	for (item = 0; item < g->n_tensors && !why; item++)
		why = tensor_wrong(g, &g->tensors[item]);
	for (uint32_t i = 0; i < g->n_nodes && !why; i++) {
		why = node_wrong(g, &g->nodes[i]);
		item = i + 1;
	}
	if (why)
		return cpu_fail(e, TNP_E_INVALID, item - 1, why);
	rc = border_check(g, e);
	if (rc)
		return rc;
	made = calloc((size_t)g->n_tensors + 1, 1);
	if (!made)
		return cpu_fail(e, TNP_E_NOMEM, 0, "graph: no memory to check it");
	why = order_wrong(g, made, &item);
	free(made);
	return why ? cpu_fail(e, TNP_E_INVALID, item, why) : TNP_OK;
}

/* ---- one node ------------------------------------------------------------------------------ */
static const char *edges_sort(const struct tnp_graph *g, const struct tnp_node *n, struct node_view *v)
{
	for (uint32_t i = 0; i < n->n_in; i++) {
		uint32_t t = g->edges[n->in0 + i];
		bool weight = g->tensors[t].buffer != TNP_NONE;

		if (weight ? v->n_weight == NODE_WEIGHTS : v->n_act == NODE_ACTS)
			return "too many inputs";
		if (weight)
			v->weight[v->n_weight++] = t;
		else
			v->act[v->n_act++] = t;
	}
	if (n->n_out > NODE_OUTS)
		return "too many outputs";
	for (uint32_t i = 0; i < n->n_out; i++)
		v->out[v->n_out++] = g->edges[n->out0 + i];
	return NULL;
}

#define A(key) (1u << TNP_A_##key)
#define A_ROPE (A(ROPE_DIMS) | A(ROPE_BASE) | A(ROPE_MODE))
#define A_REAL (A(EPS) | A(SCALE) | A(CAP) | A(ROPE_BASE))

static const struct {
	uint32_t allowed, needed;
} attr_rules[] = {
	[TNP_OP_EMBED] = { A(SCALE) | A(INDEX), 0 },
	[TNP_OP_LINEAR] = { A(ACT), 0 },
	[TNP_OP_RMSNORM] = { A(EPS) | A(GROUP), A(EPS) },
	[TNP_OP_LAYERNORM] = { A(EPS) | A(GROUP), A(EPS) },
	[TNP_OP_ROPE] = { A_ROPE | A(HEADS) | A(HEAD_DIM) | A(SCALE), A(HEADS) | A(HEAD_DIM) | A(ROPE_MODE) },
	[TNP_OP_ATTEND] = { A_ROPE | A(SLOT) | A(HEADS) | A(KV_HEADS) | A(HEAD_DIM) | A(SCALE) | A(WINDOW) |
			A(CAP) | A(CAUSAL),
		A(HEADS) | A(KV_HEADS) | A(HEAD_DIM) },
	[TNP_OP_GLU] = { A(ACT), A(ACT) },
	[TNP_OP_ACT] = { A(ACT), A(ACT) },
	[TNP_OP_SCALE] = { A(SCALE), A(SCALE) },
	[TNP_OP_SOFTCAP] = { A(CAP), A(CAP) },
	[TNP_OP_POOL] = { A(POOL_KIND), A(POOL_KIND) },
	[TNP_OP_L2NORM] = { A(EPS), 0 },
	[TNP_OP_MOE_ROUTE] = { A(TOP_K) | A(NORM), A(TOP_K) },
	[TNP_OP_MOE_LINEAR] = { A(ACT), 0 },
	[TNP_OP_MOE_SUM] = { 0, 0 },
	[TNP_OP_RESHAPE] = { 0, 0 },
};

static const char *attrs_sort(const struct tnp_graph *g, const struct tnp_node *n, struct node_view *v)
{
	uint32_t given = 0;

	for (uint32_t i = 0; i < n->n_attr; i++) {
		const struct tnp_attr *a = &g->attrs[n->attr0 + i];

		if (a->key >= ATTR_LIMIT || !(attr_rules[n->op].allowed >> a->key & 1))
			return "an attribute is unknown here";
		if (!!a->is_float != (A_REAL >> a->key & 1) || (a->is_float && !(fabs(a->v.f) <= 1e30)))
			return "an attribute is no number of its kind";
		if (v->has[a->key])
			return "an attribute is given twice";
		v->has[a->key] = true;
		given |= 1u << a->key;
		if (a->is_float)
			v->f[a->key] = a->v.f;
		else
			v->i[a->key] = a->v.i;
	}
	return (given & attr_rules[n->op].needed) == attr_rules[n->op].needed ? NULL
									      : "an attribute is missing";
}

static void default_real(struct node_view *v, uint32_t key, double value)
{
	if (!v->has[key])
		v->f[key] = value;
}

static void default_whole(struct node_view *v, uint32_t key, int64_t value)
{
	if (!v->has[key])
		v->i[key] = value;
}

static bool in_range(const struct node_view *v, uint32_t key, int64_t lo, int64_t hi)
{
	return v->i[key] >= lo && v->i[key] <= hi;
}

/* [rows][width], nothing between */
static bool is_matrix(const struct tnp_graph *g, uint32_t t)
{
	return is_rows(g, t) && g->tensors[t].rank == 2;
}

static uint32_t width(const struct tnp_graph *g, uint32_t t)
{
	return (uint32_t)tensor_width(&g->tensors[t]);
}
static bool same_rows(const struct tnp_graph *g, uint32_t a, uint32_t b)
{
	return g->tensors[a].dim[0] == g->tensors[b].dim[0];
}
static bool same_shape(const struct tnp_graph *g, uint32_t a, uint32_t b)
{
	return same_rows(g, a, b) && width(g, a) == width(g, b);
}

/* Vectors are turned into floats when the model is opened. */
static bool is_vector(const struct tnp_graph *g, uint32_t t, uint64_t n)
{
	const struct tnp_tensor *x = &g->tensors[t];

	return (x->type == TNP_F32 || x->type == TNP_F16 || x->type == TNP_BF16) && tensor_count(x) == n;
}

static bool is_aligned(const struct tnp_graph *g, uint32_t t)
{
	return (uintptr_t)tensor_data(g, t) % (g->tensors[t].type == TNP_F32 ? 4 : 2) == 0;
}

static const char *embed_wrong(const struct tnp_graph *g, struct node_view *v)
{
	const struct tnp_tensor *w;
	struct cpu_type type;

	default_real(v, TNP_A_SCALE, 1);
	if (v->n_weight != 1 || v->n_out != 1 || v->n_act)
		return "EMBED wants one table and one output";
	w = &g->tensors[v->weight[0]];
	if (w->rank != 2 || !cpu_type_info(w->type, &type) || w->dim[0] > INT32_MAX)
		return "EMBED: the table's type or rank is not supported";
	if (!is_rows(g, v->out[0]) || g->tensors[v->out[0]].dim[0] != TNP_N_TOKENS)
		return "EMBED wants a row for each token";
	if (width(g, v->out[0]) != (uint64_t)w->dim[1])
		return "EMBED: widths differ";
	return in_range(v, TNP_A_INDEX, TNP_INDEX_TOKEN, TNP_INDEX_POS) ? NULL : "EMBED: unknown INDEX";
}

/* A matrix of n rows that the kernels take in both precisions. */
static bool is_product(const struct cpu_isa *isa, uint32_t type, int64_t n, uint32_t k)
{
	return n <= WIDTH_LIMIT && isa->linear->act_class(type, TNP_FAST, (uint32_t)n, k) < ACT_N_CLASSES &&
		isa->linear->act_class(type, TNP_EXACT, (uint32_t)n, k) < ACT_N_CLASSES;
}

/* Matrices come first, biases after them; both are stacked by rows, the outputs split the stack. */
static const char *linear_wrong(const struct cpu_isa *isa, const struct tnp_graph *g, struct node_view *v)
{
	uint64_t rows = 0, biased = 0, outs = 0;
	uint32_t i = 0, k;

	if (v->n_act < 1 || v->n_act > 2 || v->n_weight < 1 || v->n_out < 1)
		return "LINEAR wants x, perhaps a residual, weights and outputs";
	if (!in_range(v, TNP_A_ACT, TNP_ACT_NONE, TNP_ACT_RELU))
		return "LINEAR: unknown ACT";
	if (!is_matrix(g, v->act[0]))
		return "LINEAR: x has no rows";
	k = width(g, v->act[0]);
	for (; i < v->n_weight && g->tensors[v->weight[i]].rank == 2; i++) {
		const struct tnp_tensor *w = &g->tensors[v->weight[i]];

		if (w->dim[1] != k || w->dim[0] > WIDTH_LIMIT)
			return "LINEAR: columns of W and width of x differ";
		if (!is_product(isa, w->type, w->dim[0], k))
			return "LINEAR: type of W is not supported";
		if (!is_aligned(g, v->weight[i]))
			return "LINEAR: W is not aligned";
		rows += (uint64_t)w->dim[0];
	}
	for (; i < v->n_weight; i++) {
		uint64_t n = tensor_count(&g->tensors[v->weight[i]]);

		if (g->tensors[v->weight[i]].rank != 1 || !is_vector(g, v->weight[i], n))
			return "LINEAR: a bias is no vector of floats";
		biased += n;
	}
	for (i = 0; i < v->n_out; i++) {
		if (!is_matrix(g, v->out[i]) || !same_rows(g, v->out[i], v->act[0]))
			return "LINEAR: rows of x and an output differ";
		outs += width(g, v->out[i]);
	}
	if (rows != outs || (biased && biased != rows))
		return "LINEAR: rows of W, of the bias and width of the outputs differ";
	if (v->n_act == 2 &&
		(v->n_out != 1 || !is_matrix(g, v->act[1]) || !same_shape(g, v->act[1], v->out[0])))
		return "LINEAR: the residual is not like the output";
	return NULL;
}

static const char *norm_wrong(const struct tnp_graph *g, struct node_view *v, bool centred)
{
	const struct tnp_tensor *x;
	uint32_t w;

	if (v->n_act < 1 || v->n_act > 2 || v->n_weight < 1 || v->n_weight > (centred ? 2u : 1u) ||
		v->n_out < 1 || v->n_out > 2)
		return "norm: wrong number of inputs or outputs";
	if (v->n_out == 2 && v->n_act != 2)
		return "norm: a sum needs a residual";
	for (uint32_t i = 0; i < v->n_act; i++)
		if (!is_rows(g, v->act[i]) || !same_shape(g, v->act[i], v->act[0]))
			return "norm: inputs differ in shape";
	for (uint32_t i = 0; i < v->n_out; i++)
		if (!is_rows(g, v->out[i]) || !same_shape(g, v->out[i], v->act[0]))
			return "norm: an output differs in shape";
	x = &g->tensors[v->act[0]];
	w = (uint32_t)x->dim[x->rank - 1];
	if (!v->i[TNP_A_GROUP])
		v->i[TNP_A_GROUP] = w;
	if (!in_range(v, TNP_A_GROUP, 1, w) || w % v->i[TNP_A_GROUP])
		return "norm: GROUP does not divide the width";
	for (uint32_t i = 0; i < v->n_weight; i++)
		if (!is_vector(g, v->weight[i], (uint64_t)v->i[TNP_A_GROUP]))
			return "norm: weight is no vector of floats of the group's length";
	return v->f[TNP_A_EPS] >= 0 ? NULL : "norm: EPS is negative";
}

static const char *heads_wrong(const struct node_view *v)
{
	if (!in_range(v, TNP_A_HEADS, 1, HEADS_LIMIT) || !in_range(v, TNP_A_HEAD_DIM, 1, HEAD_DIM_LIMIT))
		return "HEADS or HEAD_DIM is out of range";
	return NULL;
}

/* ROPE_* of a ROPE or an ATTEND node; factors may be its one weight. */
static const char *rope_attrs_wrong(const struct tnp_graph *g, struct node_view *v)
{
	default_whole(v, TNP_A_ROPE_DIMS, v->i[TNP_A_HEAD_DIM]);
	default_real(v, TNP_A_ROPE_BASE, 10000);
	if (!in_range(v, TNP_A_ROPE_DIMS, 2, v->i[TNP_A_HEAD_DIM]) || v->i[TNP_A_ROPE_DIMS] % 2)
		return "ROPE_DIMS is odd or out of range";
	if (!in_range(v, TNP_A_ROPE_MODE, TNP_ROPE_PAIRS, TNP_ROPE_HALVES))
		return "unknown ROPE_MODE";
	if (!(v->f[TNP_A_ROPE_BASE] > 0))
		return "ROPE_BASE is not positive";
	if (v->n_weight > 1 ||
		(v->n_weight && !is_vector(g, v->weight[0], (uint64_t)v->i[TNP_A_ROPE_DIMS] / 2)))
		return "frequency factors are no vector of ROPE_DIMS / 2 floats";
	return NULL;
}

static const char *rope_wrong(const struct tnp_graph *g, struct node_view *v)
{
	const char *why = heads_wrong(v);

	default_real(v, TNP_A_SCALE, 1);
	if (why)
		return why;
	if (v->n_act != 1 || v->n_out != 1 || !is_rows(g, v->act[0]) || !is_rows(g, v->out[0]) ||
		!same_shape(g, v->act[0], v->out[0]) || g->tensors[v->act[0]].dim[0] != TNP_N_TOKENS)
		return "ROPE wants one input and one output alike, a row for each token";
	if (width(g, v->act[0]) != v->i[TNP_A_HEADS] * v->i[TNP_A_HEAD_DIM])
		return "ROPE: width is not HEADS x HEAD_DIM";
	return rope_attrs_wrong(g, v);
}

static const char *attend_inputs_wrong(const struct tnp_graph *g, const struct node_view *v)
{
	int64_t d = v->i[TNP_A_HEAD_DIM];

	if ((v->n_act != 3 && v->n_act != 1) || v->n_out != 1)
		return "ATTEND wants q, k, v (or q alone) and one output";
	for (uint32_t i = 0; i < v->n_act; i++)
		if (!is_rows(g, v->act[i]) || g->tensors[v->act[i]].dim[0] != TNP_N_TOKENS ||
			width(g, v->act[i]) != d * v->i[i ? TNP_A_KV_HEADS : TNP_A_HEADS])
			return "ATTEND: q, k or v has a wrong shape";
	if (!is_rows(g, v->out[0]) || !same_shape(g, v->out[0], v->act[0]))
		return "ATTEND: the output is not like q";
	return NULL;
}

static const char *attend_wrong(const struct tnp_graph *g, struct node_view *v)
{
	const char *why = heads_wrong(v);

	default_whole(v, TNP_A_CAUSAL, 1);
	if (why)
		return why;
	default_real(v, TNP_A_SCALE, 1 / sqrt((double)v->i[TNP_A_HEAD_DIM]));
	if (!in_range(v, TNP_A_KV_HEADS, 1, v->i[TNP_A_HEADS]) || v->i[TNP_A_HEADS] % v->i[TNP_A_KV_HEADS])
		return "ATTEND: KV_HEADS does not divide HEADS";
	if (!in_range(v, TNP_A_SLOT, 0, SLOT_LIMIT - 1) || !in_range(v, TNP_A_WINDOW, 0, INT32_MAX) ||
		!in_range(v, TNP_A_CAUSAL, 0, 1) || !(v->f[TNP_A_CAP] >= 0))
		return "ATTEND: SLOT, WINDOW, CAUSAL or CAP is out of range";
	why = attend_inputs_wrong(g, v);
	if (why)
		return why;
	if (!v->i[TNP_A_CAUSAL] && (v->i[TNP_A_WINDOW] || v->n_act != 3))
		return "ATTEND: WINDOW and q alone need CAUSAL";
	if (v->i[TNP_A_CAUSAL] && !v->has[TNP_A_SLOT])
		return "ATTEND: CAUSAL needs a SLOT";
	if (v->has[TNP_A_ROPE_MODE])
		return rope_attrs_wrong(g, v);
	if (v->has[TNP_A_ROPE_DIMS] || v->has[TNP_A_ROPE_BASE])
		return "ATTEND: ROPE_* without ROPE_MODE";
	return v->n_weight ? "ATTEND: a weight without ROPE_MODE" : NULL;
}

static const char *glu_wrong(const struct tnp_graph *g, struct node_view *v)
{
	const struct tnp_tensor *x, *y;

	if (v->n_act != 1 || v->n_out != 1 || v->n_weight || !is_rows(g, v->act[0]) || !is_rows(g, v->out[0]))
		return "GLU wants one input and one output";
	x = &g->tensors[v->act[0]];
	y = &g->tensors[v->out[0]];
	if (x->rank != y->rank || x->dim[x->rank - 1] != 2 * y->dim[y->rank - 1])
		return "GLU wants an input of twice the output's width";
	for (uint32_t d = 0; d + 1 < x->rank; d++)
		if (x->dim[d] != y->dim[d])
			return "GLU wants an input of as many rows as the output";
	return in_range(v, TNP_A_ACT, TNP_ACT_NONE, TNP_ACT_RELU) ? NULL : "GLU: unknown ACT";
}

/* One input, one output of its shape. */
static const char *unary_wrong(const struct tnp_graph *g, struct node_view *v)
{
	if (v->n_act != 1 || v->n_out != 1 || v->n_weight || !is_rows(g, v->act[0]) ||
		!is_rows(g, v->out[0]) || !same_shape(g, v->act[0], v->out[0]))
		return "wants one input and one output alike";
	switch (v->op) {
	case TNP_OP_ACT:
		return in_range(v, TNP_A_ACT, TNP_ACT_NONE, TNP_ACT_RELU) ? NULL : "ACT: unknown ACT";
	case TNP_OP_SOFTCAP:
		return v->f[TNP_A_CAP] > 0 ? NULL : "SOFTCAP: CAP is not positive";
	case TNP_OP_SCALE:
		return NULL;
	default:
		default_real(v, TNP_A_EPS, 1e-12);
		return g->tensors[v->act[0]].rank == 2 && v->f[TNP_A_EPS] >= 0 ? NULL
									       : "L2NORM: rank is not 2";
	}
}

/* Second operand: alike, one number a row, one number, or a vector over the last dimension. */
static const char *binary_wrong(const struct tnp_graph *g, struct node_view *v)
{
	const struct tnp_tensor *x;
	uint64_t n;

	if (v->n_act + v->n_weight != 2 || v->n_act < 1 || v->n_out != 1 || !is_rows(g, v->act[0]) ||
		!is_rows(g, v->out[0]) || !same_shape(g, v->act[0], v->out[0]))
		return "wants two operands and an output like the first";
	x = &g->tensors[v->act[0]];
	if (v->n_act == 2) {
		n = width(g, v->act[1]);
		return is_rows(g, v->act[1]) && same_rows(g, v->act[1], v->act[0]) &&
				(n == width(g, v->act[0]) || n == 1)
			? NULL
			: "the second operand does not fit the first";
	}
	n = tensor_count(&g->tensors[v->weight[0]]);
	return is_vector(g, v->weight[0], n) && (n == 1 || n == (uint64_t)x->dim[x->rank - 1])
		? NULL
		: "the second operand does not fit the first";
}

static const char *choose_wrong(const struct tnp_graph *g, struct node_view *v)
{
	int64_t rows = v->op == TNP_OP_SELECT ? TNP_N_OUT : TNP_N_SEQS;

	if (v->n_act != 1 || v->n_out != 1 || v->n_weight || !is_matrix(g, v->act[0]) ||
		!is_matrix(g, v->out[0]) || width(g, v->act[0]) != width(g, v->out[0]) ||
		g->tensors[v->act[0]].dim[0] != TNP_N_TOKENS || g->tensors[v->out[0]].dim[0] != rows)
		return v->op == TNP_OP_SELECT ? "SELECT wants token rows and gives output rows"
					      : "POOL wants token rows and gives sequence rows";
	if (v->op == TNP_OP_POOL && !in_range(v, TNP_A_POOL_KIND, TNP_POOL_MEAN, TNP_POOL_LAST))
		return "POOL: unknown POOL_KIND";
	return NULL;
}

/* Numbers of experts: [rows][k]. */
static bool is_numbers(const struct tnp_graph *g, uint32_t t)
{
	const struct tnp_tensor *x = &g->tensors[t];

	return x->buffer == TNP_NONE && x->type == TNP_I32 && x->rank == 2 && x->dim[0] < 0 &&
		x->dim[1] > 0 && x->dim[1] <= EXPERTS_LIMIT;
}

static const char *route_wrong(const struct cpu_isa *isa, const struct tnp_graph *g, struct node_view *v)
{
	const struct tnp_tensor *w;
	int64_t k = v->i[TNP_A_TOP_K];

	if (v->n_act != 1 || v->n_weight != 1 || v->n_out != 2 || !is_matrix(g, v->act[0]))
		return "MOE_ROUTE wants x, a router and two outputs";
	w = &g->tensors[v->weight[0]];
	if (w->rank != 2 || w->dim[1] != width(g, v->act[0]) || w->dim[0] > EXPERTS_LIMIT ||
		!is_product(isa, w->type, w->dim[0], (uint32_t)w->dim[1]) || !is_aligned(g, v->weight[0]))
		return "MOE_ROUTE: the router's shape or type is not supported";
	if (k < 1 || k > w->dim[0] || !in_range(v, TNP_A_NORM, 0, 1))
		return "MOE_ROUTE: TOP_K or NORM is out of range";
	if (!is_numbers(g, v->out[0]) || !is_matrix(g, v->out[1]) || g->tensors[v->out[0]].dim[1] != k ||
		width(g, v->out[1]) != k || !same_rows(g, v->out[0], v->act[0]) ||
		!same_rows(g, v->out[1], v->act[0]))
		return "MOE_ROUTE wants numbers and shares of TOP_K experts";
	return NULL;
}

/* The router that made the numbers `ids` before node `end` chooses among n experts. */
static bool routed(const struct tnp_graph *g, uint32_t end, uint32_t ids, int64_t n)
{
	for (uint32_t i = 0; i < end; i++) {
		const struct tnp_node *r = &g->nodes[i];

		if (r->op == TNP_OP_MOE_ROUTE && r->n_out && r->n_in && g->edges[r->out0] == ids)
			return g->tensors[g->edges[r->in0 + r->n_in - 1]].dim[0] == n;
	}
	return false;
}

/* One matrix an expert in each weight, stacked by rows. */
static const char *experts_wrong(const struct cpu_isa *isa, const struct tnp_graph *g, struct node_view *v)
{
	const struct tnp_tensor *x, *ids, *y;
	int64_t rows = 0;

	if (v->n_act != 2 || v->n_weight < 1 || v->n_weight > 4 || v->n_out != 1 || !is_rows(g, v->act[0]) ||
		!is_numbers(g, v->act[1]) || !is_rows(g, v->out[0]))
		return "MOE_LINEAR wants x, expert numbers, 1 to 4 weights and one output";
	x = &g->tensors[v->act[0]], ids = &g->tensors[v->act[1]], y = &g->tensors[v->out[0]];
	if (!in_range(v, TNP_A_ACT, TNP_ACT_NONE, TNP_ACT_RELU))
		return "MOE_LINEAR: unknown ACT";
	for (uint32_t i = 0; i < v->n_weight; i++) {
		const struct tnp_tensor *w = &g->tensors[v->weight[i]];

		if (w->rank != 3 || w->dim[2] != x->dim[x->rank - 1] ||
			w->dim[0] != g->tensors[v->weight[0]].dim[0])
			return "MOE_LINEAR: columns of W and width of x, or numbers of experts differ";
		if (!is_product(isa, w->type, w->dim[1], (uint32_t)w->dim[2]) || !is_aligned(g, v->weight[i]))
			return "MOE_LINEAR: type of W is not supported, or W is not aligned";
		if (w->dim[0] > EXPERTS_LIMIT || w->dim[0] * w->dim[1] > EXPERT_ROWS_LIMIT)
			return "MOE_LINEAR: too many experts or rows";
		rows += w->dim[1];
	}
	if (x->dim[0] != ids->dim[0] || y->dim[0] != ids->dim[0] || y->rank != 3 ||
		y->dim[1] != ids->dim[1] || y->dim[2] != rows ||
		(x->rank != 2 && (x->rank != 3 || x->dim[1] != ids->dim[1])))
		return "MOE_LINEAR: rows of x, of the numbers and of the output differ";
	return routed(g, v->node, v->act[1], g->tensors[v->weight[0]].dim[0])
		? NULL
		: "MOE_LINEAR: the numbers are from no router over as many experts";
}

static const char *experts_sum_wrong(const struct tnp_graph *g, const struct node_view *v)
{
	const struct tnp_tensor *x;

	if (v->n_act != 2 || v->n_weight || v->n_out != 1 || !is_rows(g, v->act[0]) ||
		!is_matrix(g, v->act[1]) || !is_matrix(g, v->out[0]))
		return "MOE_SUM wants rows of experts, shares and one output";
	x = &g->tensors[v->act[0]];
	return x->rank == 3 && same_rows(g, v->act[0], v->act[1]) && same_rows(g, v->act[0], v->out[0]) &&
			x->dim[1] == width(g, v->act[1]) && x->dim[2] == width(g, v->out[0])
		? NULL
		: "MOE_SUM: rows, shares and output do not fit";
}

const char *node_read(
	const struct cpu_isa *isa, const struct tnp_graph *g, uint32_t node, struct node_view *v)
{
	const struct tnp_node *n = &g->nodes[node];
	const char *why;

	*v = (struct node_view){ .op = n->op, .node = node };
	if (n->op == 0 || n->op >= sizeof attr_rules / sizeof attr_rules[0] || n->flags)
		return "this operator is not supported";
	why = edges_sort(g, n, v);
	if (!why)
		why = attrs_sort(g, n, v);
	if (why)
		return why;
	switch (n->op) {
	case TNP_OP_EMBED:
		return embed_wrong(g, v);
	case TNP_OP_LINEAR:
		return linear_wrong(isa, g, v);
	case TNP_OP_RMSNORM:
		return norm_wrong(g, v, false);
	case TNP_OP_LAYERNORM:
		return norm_wrong(g, v, true);
	case TNP_OP_ROPE:
		return rope_wrong(g, v);
	case TNP_OP_ATTEND:
		return attend_wrong(g, v);
	case TNP_OP_GLU:
		return glu_wrong(g, v);
	case TNP_OP_ACT:
	case TNP_OP_SCALE:
	case TNP_OP_SOFTCAP:
	case TNP_OP_L2NORM:
		return unary_wrong(g, v);
	case TNP_OP_ADD:
	case TNP_OP_MUL:
		return binary_wrong(g, v);
	case TNP_OP_SELECT:
	case TNP_OP_POOL:
		return choose_wrong(g, v);
	case TNP_OP_MOE_ROUTE:
		return route_wrong(isa, g, v);
	case TNP_OP_MOE_LINEAR:
		return experts_wrong(isa, g, v);
	case TNP_OP_MOE_SUM:
		return experts_sum_wrong(g, v);
	default:
		return "this operator is not supported";
	}
}

/* ---- slots ----------------------------------------------------------------------------------- */
void graph_slots_finish(struct graph_slots *s)
{
	free(s->slot);
	*s = (struct graph_slots){ 0 };
}

static bool slot_join(struct tnp_kv_slot *s, const struct node_view *v)
{
	uint32_t window = (uint32_t)v->i[TNP_A_WINDOW];

	if (!s->heads) {
		*s = (struct tnp_kv_slot){ (uint32_t)v->i[TNP_A_KV_HEADS], (uint32_t)v->i[TNP_A_HEAD_DIM],
			window, 0 };
		return true;
	}
	if (s->heads != v->i[TNP_A_KV_HEADS] || s->head_dim != v->i[TNP_A_HEAD_DIM])
		return false;
	if (!window || (s->window && window > s->window))
		s->window = window;
	return true;
}

static const char *groups_number(struct graph_slots *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t group = 0;

		if (!s->slot[i].heads)
			return "slots are not numbered without gaps";
		while (group < s->n_groups && s->window[group] != s->slot[i].window)
			group++;
		if (group == TNP_MAX_GROUPS)
			return "more than four different windows";
		if (group == s->n_groups)
			s->window[s->n_groups++] = s->slot[i].window;
		s->slot[i].group = group;
	}
	return NULL;
}

tnp_rc graph_slots_find(
	const struct cpu_isa *isa, const struct tnp_graph *g, struct graph_slots *out, struct tnp_error *e)
{
	const char *why = NULL;
	uint32_t item = 0;

	*out = (struct graph_slots){ .slot = calloc(SLOT_LIMIT, sizeof *out->slot) };
	if (!out->slot)
		return cpu_fail(e, TNP_E_NOMEM, 0, "slots: no memory");
	for (uint32_t i = 0; i < g->n_nodes && !why; i++) {
		struct node_view v;

		if (g->nodes[i].op != TNP_OP_ATTEND || node_read(isa, g, i, &v) || !v.i[TNP_A_CAUSAL])
			continue;
		item = i;
		if (!slot_join(&out->slot[v.i[TNP_A_SLOT]], &v))
			why = "a slot is used with other heads than before";
		if (out->n <= (uint32_t)v.i[TNP_A_SLOT])
			out->n = (uint32_t)v.i[TNP_A_SLOT] + 1;
	}
	if (!why)
		why = groups_number(out);
	if (!why)
		return TNP_OK;
	graph_slots_finish(out);
	return cpu_fail(e, TNP_E_INVALID, item, why);
}
