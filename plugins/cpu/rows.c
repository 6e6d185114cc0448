/* SPDX-License-Identifier: Apache-2.0
 * Operators on whole rows and on columns of rows: finds the memory and calls the kernels of elem.h. Runs on the
 * pool's threads, each with rows or columns of its own.
 */
#include "model.h"
#include <math.h>
#include <string.h>

static const struct elem_ops *kernels(const struct lane *l) { return l->m->dev->isa->elem; }
static float *row(struct rows_ref r, uint32_t i) { return r.p + (size_t)i * r.ld; }

/* ---- element operators -------------------------------------------------------------------------- */
static void add_number(const float *x, float b, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] + b;
}

static void two_numbers(const struct lane *l, uint32_t op, const float *x, float b, size_t n, float *y)
{
	if (op == TNP_OP_ADD)
		add_number(x, b, n, y);
	else
		kernels(l)->scale(x, b, n, y);
}

/* x with a vector over the last dimension, which may be shorter than the row (whole rows only, then). */
static void with_vector(
	const struct lane *l, const struct plan_op *o, const float *x, uint32_t j0, uint32_t n, float *y)
{
	const float *v = l->m->consts + o->vec[0];
	void (*fn)(const float *, const float *, size_t, float *) =
		o->op == TNP_OP_ADD ? kernels(l)->add : kernels(l)->mul;

	if (o->vec_len == 1) {
		two_numbers(l, o->op, x, v[0], n, y);
		return;
	}
	for (uint32_t at = 0; at < n;) {
		uint32_t from = (j0 + at) % o->vec_len,
			 len = o->vec_len - from < n - at ? o->vec_len - from : n - at;

		fn(x + at, v + from, len, y + at);
		at += len;
	}
}

static void binary_row(const struct lane *l, const struct plan_op *o, uint32_t i, uint32_t j0, uint32_t n)
{
	const float *x = row(lane_rows(l, o->in[0]), i) + j0;
	float *y = row(lane_rows(l, o->out[0]), i) + j0;

	if (o->n_in == 1)
		with_vector(l, o, x, j0, n, y);
	else if (l->m->plan->vals[o->in[1]].width == 1)
		two_numbers(l, o->op, x, row(lane_rows(l, o->in[1]), i)[0], n, y);
	else if (o->op == TNP_OP_ADD)
		kernels(l)->add(x, row(lane_rows(l, o->in[1]), i) + j0, n, y);
	else
		kernels(l)->mul(x, row(lane_rows(l, o->in[1]), i) + j0, n, y);
}

/* Halves lie side by side in the last dimension; n: all of it, or columns of a row that has no other. */
static void glu_row(const struct lane *l, const struct plan_op *o, uint32_t i, uint32_t j0, uint32_t n)
{
	uint32_t half = l->m->plan->vals[o->out[0]].last_dim;
	const float *x = row(lane_rows(l, o->in[0]), i) + j0;
	float *y = row(lane_rows(l, o->out[0]), i) + j0;

	for (uint32_t at = 0; at < n; at += half)
		kernels(l)->glu(
			o->act, x + 2 * (size_t)at, x + 2 * (size_t)at + half, n < half ? n : half, y + at);
}

static void element_row(const struct lane *l, const struct plan_op *o, uint32_t i, uint32_t j0, uint32_t n)
{
	const float *x = row(lane_rows(l, o->in[0]), i) + j0;
	float *y = row(lane_rows(l, o->out[0]), i) + j0;

	switch (o->op) {
	case TNP_OP_GLU:
		glu_row(l, o, i, j0, n);
		break;
	case TNP_OP_ACT:
		kernels(l)->act(o->act, x, n, y);
		break;
	case TNP_OP_SCALE:
		kernels(l)->scale(x, o->scale, n, y);
		break;
	case TNP_OP_SOFTCAP:
		kernels(l)->softcap(x, o->cap, n, y);
		break;
	default:
		binary_row(l, o, i, j0, n);
	}
}

void cols_run(
	const struct lane *l, const struct plan_op *o, uint32_t r0, uint32_t r1, uint32_t j0, uint32_t j1)
{
	for (uint32_t i = r0; i < r1; i++)
		element_row(l, o, i, j0, j1 - j0);
}

/* ---- rows ----------------------------------------------------------------------------------------- */
static void embed_row(const struct lane *l, const struct plan_op *o, uint32_t i)
{
	const struct step *s = &l->m->step;
	const struct tnp_tensor *t = &l->m->g.tensors[o->table];
	float *y = row(lane_rows(l, o->out[0]), i);
	int32_t at = o->index == TNP_INDEX_POS ? s->pos[i] : s->token[i];

	l->m->dev->isa->linear->row_f32(
		t->type, tensor_data(&l->m->g, o->table), (uint32_t)t->dim[1], (uint64_t)at, y);
	if (o->scale != 1)
		kernels(l)->scale(y, o->scale, (size_t)t->dim[1], y);
}

/* The sum goes to its own output where there is one, else into the result first. */
static void norm_row(const struct lane *l, const struct plan_op *o, uint32_t i)
{
	const float *x = row(lane_rows(l, o->in[0]), i), *w = l->m->consts + o->vec[0];
	const float *b = o->vec[1] == TNP_NONE ? NULL : l->m->consts + o->vec[1];
	float *y = row(lane_rows(l, o->out[0]), i);
	uint32_t width = l->m->plan->vals[o->in[0]].width;

	if (o->n_in == 2) {
		float *sum = o->n_out == 2 ? row(lane_rows(l, o->out[1]), i) : y;

		kernels(l)->add(x, row(lane_rows(l, o->in[1]), i), width, sum);
		x = sum;
	}
	for (uint32_t j = 0; j < width; j += o->group)
		if (o->op == TNP_OP_RMSNORM)
			kernels(l)->rmsnorm(x + j, w, o->eps, o->group, y + j);
		else
			kernels(l)->layernorm(x + j, w, b, o->eps, o->group, y + j);
}

static void rope_row(const struct lane *l, const struct plan_op *o, uint32_t i)
{
	const float *x = row(lane_rows(l, o->in[0]), i);
	float *y = row(lane_rows(l, o->out[0]), i);
	const float *cs = (const float *)(l->m->ws + l->m->plan->ropes[o->rope].offset) + (size_t)i * o->dims;

	for (uint32_t h = 0; h < o->heads; h++)
		kernels(l)->rope(x + (size_t)h * o->head_dim, cs, o->mode, o->dims, o->head_dim,
			y + (size_t)h * o->head_dim);
}

static void pool_row(const struct lane *l, const struct plan_op *o, uint32_t i)
{
	const struct step *s = &l->m->step;
	struct rows_ref x = lane_rows(l, o->in[0]);
	float *y = row(lane_rows(l, o->out[0]), i);
	uint32_t first = s->tok0[i], end = s->tok0[i + 1], width = l->m->plan->vals[o->out[0]].width;

	memcpy(y, row(x, o->pool == TNP_POOL_LAST ? end - 1 : first), width * sizeof *y);
	if (o->pool != TNP_POOL_MEAN)
		return;
	for (uint32_t t = first + 1; t < end; t++)
		kernels(l)->add(y, row(x, t), width, y);
	kernels(l)->scale(y, 1.0f / (float)(end - first), width, y);
}

static void row_run(const struct lane *l, const struct plan_op *o, uint32_t i)
{
	uint32_t width = l->m->plan->vals[o->out[0]].width;

	switch (o->op) {
	case TNP_OP_EMBED:
		embed_row(l, o, i);
		break;
	case TNP_OP_RMSNORM:
	case TNP_OP_LAYERNORM:
		norm_row(l, o, i);
		break;
	case TNP_OP_ROPE:
		rope_row(l, o, i);
		break;
	case TNP_OP_SELECT:
		memcpy(row(lane_rows(l, o->out[0]), i), row(lane_rows(l, o->in[0]), l->m->step.out_tok[i]),
			width * sizeof(float));
		break;
	case TNP_OP_POOL:
		pool_row(l, o, i);
		break;
	case TNP_OP_MOE_ROUTE:
		route_row(row(lane_rows(l, o->in[0]), i), l->m->plan->vals[o->in[0]].width, o->top_k, o->norm,
			row(lane_rows(l, o->out[0]), i), row(lane_rows(l, o->out[1]), i));
		break;
	case TNP_OP_MOE_SUM:
		experts_sum_row(kernels(l), row(lane_rows(l, o->in[0]), i), row(lane_rows(l, o->in[1]), i),
			l->m->plan->vals[o->in[1]].width, width, row(lane_rows(l, o->out[0]), i));
		break;
	case TNP_OP_L2NORM:
		kernels(l)->l2norm(
			row(lane_rows(l, o->in[0]), i), o->eps, width, row(lane_rows(l, o->out[0]), i));
		break;
	default:
		element_row(l, o, i, 0, width);
	}
}

void rows_run(const struct lane *l, const struct plan_op *o, uint32_t r0, uint32_t r1)
{
	for (uint32_t i = r0; i < r1; i++)
		row_run(l, o, i);
}

/* Cosines and sines of tokens [t0, t1); angles in double, since positions are large. */
void rope_table(const struct tnp_model *m, const struct plan_rope *r, uint32_t t0, uint32_t t1)
{
	float *table = (float *)(m->ws + r->offset);
	const float *factor = r->factors == TNP_NONE ? NULL : m->consts + r->factors;
	uint32_t half = r->dims / 2;

	for (uint32_t i = 0; i < half; i++) {
		double turn = r->scale * pow(r->base, -2.0 * i / r->dims) / (factor ? (double)factor[i] : 1);

		for (uint32_t t = t0; t < t1; t++) {
			double angle = m->step.pos[t] * turn;

			table[(size_t)t * r->dims + i] = (float)cos(angle);
			table[(size_t)t * r->dims + half + i] = (float)sin(angle);
		}
	}
}
