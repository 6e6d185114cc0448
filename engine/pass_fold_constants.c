/* SPDX-License-Identifier: Apache-2.0
 * fold_constants: SCALE, ADD, MUL, RESHAPE and TRANSPOSE over F32 weights alone are computed now and become a weight. SCALE
 * behind SCALE, EMBED or in front of the queries of ATTEND becomes an attribute there.
 */
#include "engine/pass_edit.h"
#include <math.h>

enum { MOST_FLOATS = 1 << 22 };

/* ---- nodes over weights ---------------------------------------------------------------------------------------------- */

struct values {
	float *v;
	uint64_t n;
};

static bool two(const struct pass_node *n, struct values *a, const struct values *b, int64_t last)
{
	if (!b->n || (b->n != a->n && b->n != 1 && b->n != (uint64_t)last))
		return false;
	for (uint64_t i = 0; i < a->n; i++) {
		double p = a->v[i], q = b->v[i % b->n];

		a->v[i] = (float)(n->op == TNP_OP_ADD ? p + q : p * q);
	}
	return true;
}

/* Element i of the output is read where its coordinates, permuted, say. False: no memory, or the shapes do not fit. */
static bool transpose(
	struct values *a, const struct tnp_tensor *from, const struct tnp_tensor *to, int64_t axes)
{
	uint64_t stride[TNP_MAX_RANK] = { 0 }, step = 1;
	float *v;

	for (uint32_t d = from->rank; d-- > 0; step *= (uint64_t)from->dim[d])
		stride[d] = step;
	for (uint32_t d = 0; d < to->rank; d++)
		if (from->rank != to->rank || axes < 0 || (axes >> (4 * d) & 15) >= from->rank ||
			to->dim[d] != from->dim[axes >> (4 * d) & 15])
			return false;
	v = mem_alloc(MEM_ENGINE, a->n * sizeof *v);
	for (uint64_t i = 0; v && i < a->n; i++) {
		uint64_t rest = i, at = 0;

		for (uint32_t d = to->rank; d-- > 0; rest /= (uint64_t)to->dim[d])
			at += rest % (uint64_t)to->dim[d] * stride[axes >> (4 * d) & 15];
		v[i] = a->v[at];
	}
	if (!v)
		return false;
	mem_free(a->v);
	a->v = v;
	return true;
}

static uint64_t count(const struct tnp_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->rank; d++)
		if (t->dim[d] < 1 || !checked_mul_u64(n, (uint64_t)t->dim[d], &n))
			return 0;
	return n;
}

static bool compute(struct pass_edit *x, const struct pass_node *n, struct values *a, const struct values *b)
{
	const struct tnp_tensor *from = pass_tensor(x, n->weight[0]), *to = pass_tensor(x, n->out[0]);

	if (count(to) != a->n || n->n_weight != (n->op == TNP_OP_ADD || n->op == TNP_OP_MUL ? 2 : 1))
		return false;
	if (n->op == TNP_OP_ADD || n->op == TNP_OP_MUL)
		return two(n, a, b, from->dim[from->rank - 1]);
	if (n->op == TNP_OP_TRANSPOSE)
		return transpose(a, from, to, pass_int(n, TNP_A_AXES, -1));
	for (uint64_t i = 0; n->op == TNP_OP_SCALE && i < a->n; i++)
		a->v[i] = (float)(a->v[i] * pass_float(n, TNP_A_SCALE, 1));
	return true;
}

static void fold(struct pass_edit *x, uint32_t i, const struct pass_node *n)
{
	struct values a = { 0 }, b = { 0 };
	graph_tensor t;

	if (pass_values(x, n->weight[0], MOST_FLOATS, &a.v, &a.n) &&
		(n->n_weight < 2 || pass_values(x, n->weight[1], MOST_FLOATS, &b.v, &b.n)) &&
		compute(x, n, &a, &b)) {
		const struct tnp_tensor to = *pass_tensor(x, n->out[0]);

		t = pass_constant(x, a.v, to.rank, to.dim);
		if (t != TNP_NONE) {
			pass_stand_in(x, n->out[0], t);
			pass_drop(x, i);
		}
	}
	mem_free(a.v);
	mem_free(b.v);
}

/* ---- scales ------------------------------------------------------------------------------------------------------------ */

static void scale_scale(struct pass_edit *x, uint32_t i, struct pass_node *n)
{
	struct pass_node inner;
	uint32_t at;

	if (pass_made_by(x, n->act[0], TNP_OP_SCALE, &at, &inner) && inner.n_act == 1) {
		pass_set_float(
			n, TNP_A_SCALE, pass_float(n, TNP_A_SCALE, 1) * pass_float(&inner, TNP_A_SCALE, 1));
		n->act[0] = inner.act[0];
		pass_put(x, i, n);
	} else if (pass_made_by(x, n->act[0], TNP_OP_EMBED, &at, &inner) && pass_only_here(x, n->act[0]) &&
		pass_same_shape(x, n->act[0], n->out[0])) {
		pass_set_float(&inner, TNP_A_SCALE,
			pass_float(&inner, TNP_A_SCALE, 1) * pass_float(n, TNP_A_SCALE, 1));
		inner.out[0] = n->out[0];
		pass_drop(x, i);
		pass_put(x, at, &inner);
	}
}

static void attend_scale(struct pass_edit *x, uint32_t i, struct pass_node *n)
{
	int64_t d = pass_int(n, TNP_A_HEAD_DIM, 0);
	struct pass_node inner;
	uint32_t at;

	if (d < 1 || !n->n_act || !pass_made_by(x, n->act[0], TNP_OP_SCALE, &at, &inner) || inner.n_act != 1)
		return;
	pass_set_float(n, TNP_A_SCALE,
		pass_float(n, TNP_A_SCALE, 1 / sqrt((double)d)) * pass_float(&inner, TNP_A_SCALE, 1));
	n->act[0] = inner.act[0];
	pass_put(x, i, n);
}

/* A sum or product whose first operand has become a weight: the activation comes first. */
static void in_order(struct pass_edit *x, uint32_t i, const struct pass_node *n)
{
	const struct tnp_node *raw = &x->g->nodes[i];

	if (n->n_act == 1 && n->n_weight == 1 && x->g->edges[raw->in0] != n->act[0] &&
		pass_same_shape(x, n->act[0], n->out[0]))
		pass_put(x, i, n);
}

void pass_fold_constants(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++) {
		if (!pass_get(x, i, &n) || n.n_out != 1)
			continue;
		if (n.op == TNP_OP_ATTEND)
			attend_scale(x, i, &n);
		else if (n.op != TNP_OP_SCALE && n.op != TNP_OP_ADD && n.op != TNP_OP_MUL &&
			n.op != TNP_OP_RESHAPE && n.op != TNP_OP_TRANSPOSE)
			continue;
		else if (!n.n_act && n.n_weight)
			fold(x, i, &n);
		else if (n.op == TNP_OP_SCALE && n.n_act == 1)
			scale_scale(x, i, &n);
		else if (n.op == TNP_OP_ADD || n.op == TNP_OP_MUL)
			in_order(x, i, &n);
	}
}
