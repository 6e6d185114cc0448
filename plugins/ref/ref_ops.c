/* SPDX-License-Identifier: Apache-2.0
 * Every operator of opset 1 but rotary embedding and attention (ref_attend.c): this text is the specification.
 * x are the activations, w the weights, y the outputs of a node, in the order of docs/plugin-abi.md. Each is
 * [rows][cols], cols being its last dimension. Shapes have been checked (ref_graph.c); all sums run upwards.
 */
#include "ref.h"
#include <math.h>
#include <string.h>

/* ---- functions of one number ------------------------------------------------------------- */
static double act(int64_t kind, double x)
{
	switch (kind) {
	case TNP_ACT_SILU:
		return x / (1 + exp(-x));
	case TNP_ACT_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	case TNP_ACT_GELU_ERF:
		return 0.5 * x * (1 + erf(x / sqrt(2)));
	case TNP_ACT_RELU:
		return x > 0 ? x : 0;
	default:
		return x;
	}
}

void ref_op_act(struct ref_call *c)
{
	for (uint64_t i = 0; i < c->y[0].rows * c->y[0].cols; i++)
		c->y[0].v[i] = act(c->a->act, c->x[0].v[i]);
}

void ref_op_scale(struct ref_call *c)
{
	for (uint64_t i = 0; i < c->y[0].rows * c->y[0].cols; i++)
		c->y[0].v[i] = c->x[0].v[i] * c->a->scale;
}

void ref_op_softcap(struct ref_call *c)
{
	for (uint64_t i = 0; i < c->y[0].rows * c->y[0].cols; i++)
		c->y[0].v[i] = c->a->cap * tanh(c->x[0].v[i] / c->a->cap);
}

/* ---- functions of two numbers: the second operand may be one row for all, or one number a row ---- */
static double operand(const struct ref_view *b, uint64_t row, uint64_t col)
{
	uint64_t r = b->rows == 1 ? 0 : row, k = b->cols == 1 ? 0 : col;

	return b->v[r * b->cols + k];
}

/* An operand that is a weight is brought into the caller's row buffer first: it is one row. */
static struct ref_view second_operand(struct ref_call *c)
{
	struct ref_view b;

	if (c->n_x > 1)
		return c->x[1];
	b = c->w[0];
	b.v = c->step->m->row;
	ref_row_load(b.type, b.w, b.cols, b.v);
	return b;
}

void ref_op_add(struct ref_call *c)
{
	struct ref_view x = c->x[0], b = second_operand(c), y = c->y[0];

	for (uint64_t r = 0; r < y.rows; r++)
		for (uint64_t k = 0; k < y.cols; k++)
			y.v[r * y.cols + k] = x.v[r * x.cols + k] + operand(&b, r, k);
}

void ref_op_mul(struct ref_call *c)
{
	struct ref_view x = c->x[0], b = second_operand(c), y = c->y[0];

	for (uint64_t r = 0; r < y.rows; r++)
		for (uint64_t k = 0; k < y.cols; k++)
			y.v[r * y.cols + k] = x.v[r * x.cols + k] * operand(&b, r, k);
}

/* x is [gate | up]: y = act(gate) * up */
void ref_op_glu(struct ref_call *c)
{
	struct ref_view x = c->x[0], y = c->y[0];

	for (uint64_t r = 0; r < y.rows; r++)
		for (uint64_t k = 0; k < y.cols; k++)
			y.v[r * y.cols + k] =
				act(c->a->act, x.v[r * x.cols + k]) * x.v[r * x.cols + y.cols + k];
}

/* ---- rows from a table, rows chosen, rows pooled ------------------------------------------- */
void ref_op_embed(struct ref_call *c)
{
	const int32_t *at = c->a->index == TNP_INDEX_POS ? c->step->pos : c->step->token;
	struct ref_view w = c->w[0], y = c->y[0];
	uint64_t bytes = ref_row_bytes(w.type, w.cols);

	for (uint64_t t = 0; t < y.rows; t++) {
		ref_row_load(w.type, w.w + (uint64_t)at[t] * bytes, w.cols, y.v + t * y.cols);
		for (uint64_t k = 0; k < y.cols; k++)
			y.v[t * y.cols + k] *= c->a->scale;
	}
}

void ref_op_select(struct ref_call *c)
{
	struct ref_view x = c->x[0], y = c->y[0];

	for (uint64_t i = 0; i < y.rows; i++)
		memcpy(y.v + i * y.cols, x.v + c->step->out_tok[i] * x.cols, y.cols * sizeof *y.v);
}

void ref_op_pool(struct ref_call *c)
{
	struct ref_view x = c->x[0], y = c->y[0];

	for (uint64_t s = 0; s < y.rows; s++) {
		uint64_t first = c->step->tok0[s], end = c->step->tok0[s + 1];

		for (uint64_t k = 0; k < y.cols; k++) {
			double sum = 0;

			if (c->a->pool_kind == TNP_POOL_FIRST)
				sum = x.v[first * x.cols + k];
			else if (c->a->pool_kind == TNP_POOL_LAST)
				sum = x.v[(end - 1) * x.cols + k];
			else
				for (uint64_t t = first; t < end; t++)
					sum += x.v[t * x.cols + k] / (double)(end - first);
			y.v[s * y.cols + k] = sum;
		}
	}
}

/* ---- norms ---------------------------------------------------------------------------------- */
/* One group of n numbers, in place: (x - mean) / sqrt(mean square + eps) * w + b; no mean for RMSNORM. */
static void norm_group(double *x, uint64_t n, bool centre, double eps, const double *w, const double *b)
{
	double mean = 0, square = 0;

	if (centre)
		for (uint64_t i = 0; i < n; i++)
			mean += x[i] / (double)n;
	for (uint64_t i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean) / (double)n;
	for (uint64_t i = 0; i < n; i++)
		x[i] = (x[i] - mean) / sqrt(square + eps) * w[i] + (b ? b[i] : 0);
}

/* y0 = norm(x + residual), y1 = x + residual */
static void norm(struct ref_call *c, bool centre)
{
	struct ref_view x = c->x[0], y = c->y[0];
	uint64_t n = x.rows * x.cols, group = c->a->group ? (uint64_t)c->a->group : x.cols;
	double *w = c->step->m->row, *b = c->n_w > 1 ? w + group : NULL;

	ref_row_load(c->w[0].type, c->w[0].w, group, w);
	if (b)
		ref_row_load(c->w[1].type, c->w[1].w, group, b);
	for (uint64_t i = 0; i < n; i++)
		y.v[i] = x.v[i] + (c->n_x > 1 ? c->x[1].v[i] : 0);
	if (c->n_y > 1)
		memcpy(c->y[1].v, y.v, n * sizeof *y.v);
	for (uint64_t i = 0; i < n; i += group)
		norm_group(y.v + i, group, centre, c->a->eps, w, b);
}

void ref_op_rmsnorm(struct ref_call *c) { norm(c, false); }
void ref_op_layernorm(struct ref_call *c) { norm(c, true); }

void ref_op_l2norm(struct ref_call *c)
{
	struct ref_view x = c->x[0], y = c->y[0];

	for (uint64_t r = 0; r < y.rows; r++) {
		double sum = 0;

		for (uint64_t k = 0; k < y.cols; k++)
			sum += x.v[r * x.cols + k] * x.v[r * x.cols + k];
		for (uint64_t k = 0; k < y.cols; k++)
			y.v[r * y.cols + k] = x.v[r * x.cols + k] / fmax(sqrt(sum), c->a->eps);
	}
}

/* ---- matrix products ------------------------------------------------------------------------ */
/* Four partial sums, element i in sum i % 4: the order depends on n alone. */
static double dot(const double *a, const double *b, uint64_t n)
{
	double s[4] = { 0, 0, 0, 0 };
	uint64_t i = 0;

	for (; i + 4 <= n; i += 4)
		for (int j = 0; j < 4; j++)
			s[j] += a[i + j] * b[i + j];
	for (; i < n; i++)
		s[i % 4] += a[i] * b[i];
	return (s[0] + s[1]) + (s[2] + s[3]);
}

/* The matrices of a node stacked by rows, their biases likewise, and the outputs that split the stack: row
 * `r` of the stack. */
struct stacked {
	const uint8_t *w;
	double bias;
	uint32_t type;
	double *y;
	uint64_t stride;
};

static struct stacked stack_row(const struct ref_call *c, uint64_t r)
{
	struct stacked s = { 0 };
	uint64_t at = r;
	uint32_t i = 0;

	for (; at >= c->w[i].rows; i++)
		at -= c->w[i].rows;
	s.type = c->w[i].type;
	s.w = c->w[i].w + at * ref_row_bytes(s.type, c->w[i].cols);
	for (at = r; i < c->n_w && c->w[i].rank > 1; i++)
		;
	for (; i < c->n_w; at -= c->w[i].cols, i++)
		if (at < c->w[i].cols) {
			uint64_t one = ref_row_bytes(c->w[i].type, 1);

			ref_row_load(c->w[i].type, c->w[i].w + at * one, 1, &s.bias);
			break;
		}
	for (at = r, i = 0; at >= c->y[i].cols; i++)
		at -= c->y[i].cols;
	s.y = c->y[i].v + at;
	s.stride = c->y[i].cols;
	return s;
}

/* y = act(W x + b) + residual. A weight row is unpacked once a step and meets every token. */
static void linear_rows(void *arg, uint32_t thread, uint64_t row0, uint64_t row1)
{
	struct ref_call *c = arg;
	struct tnp_model *m = c->step->m;
	const struct ref_view *x = &c->x[0];
	double *row = m->row + thread * m->row_len;

	for (uint64_t r = row0; r < row1; r++) {
		struct stacked s = stack_row(c, r);

		ref_row_load(s.type, s.w, x->cols, row);
		for (uint64_t t = 0; t < x->rows; t++) {
			double v = act(c->a->act, dot(x->v + t * x->cols, row, x->cols) + s.bias);

			if (c->n_x > 1)
				v += c->x[1].v[t * s.stride + r];
			s.y[t * s.stride] = v;
		}
	}
}

static uint64_t stack_rows(const struct ref_call *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->n_y; i++)
		n += c->y[i].cols;
	return n;
}

void ref_op_linear(struct ref_call *c) { ref_par_rows(c->step->m->dev->pool, stack_rows(c), linear_rows, c); }

/* ---- mixture of experts --------------------------------------------------------------------- */
/* Shares are a softmax over all experts; the TOP_K largest are kept in order, the lower number first among
 * equals; NORM divides them by their sum. */
static void route_token(
	const struct ref_call *c, double *share, uint64_t n_experts, double *ids, double *kept)
{
	double most = -INFINITY, sum = 0, total = 0;

	for (uint64_t e = 0; e < n_experts; e++)
		most = fmax(most, share[e]);
	for (uint64_t e = 0; e < n_experts; e++)
		sum += share[e] = exp(share[e] - most);
	for (int64_t k = 0; k < c->a->top_k; k++) {
		uint64_t best = 0;

		for (uint64_t e = 1; e < n_experts; e++)
			if (share[e] > share[best])
				best = e;
		ids[k] = (double)best;
		kept[k] = share[best] / sum;
		total += kept[k];
		share[best] = -1; /* taken */
	}
	for (int64_t k = 0; c->a->norm && k < c->a->top_k; k++)
		kept[k] /= total;
}

void ref_op_moe_route(struct ref_call *c)
{
	struct ref_view x = c->x[0], w = c->w[0];
	double *share = c->step->m->row, *row = share + w.rows;
	uint64_t bytes = ref_row_bytes(w.type, w.cols), top_k = (uint64_t)c->a->top_k;

	for (uint64_t t = 0; t < x.rows; t++) {
		for (uint64_t e = 0; e < w.rows; e++) {
			ref_row_load(w.type, w.w + e * bytes, w.cols, row);
			share[e] = dot(x.v + t * x.cols, row, x.cols);
		}
		route_token(c, share, w.rows, c->y[0].v + t * top_k, c->y[1].v + t * top_k);
	}
}

/* Row r of the stack of one expert's matrices. */
static const uint8_t *expert_row(const struct ref_call *c, uint64_t expert, uint64_t r, uint32_t *type)
{
	uint32_t i = 0;

	for (; r >= c->w[i].dim[1]; i++)
		r -= c->w[i].dim[1];
	*type = c->w[i].type;
	return c->w[i].w + (expert * c->w[i].dim[1] + r) * ref_row_bytes(*type, c->w[i].cols);
}

/* x [n][D] serves all ranks of its token, x [n][k][D] has a row for each: y = act(W[expert] x). */
static void moe_rows(void *arg, uint32_t thread, uint64_t row0, uint64_t row1)
{
	struct ref_call *c = arg;
	struct tnp_model *m = c->step->m;
	struct ref_view x = c->x[0], ids = c->x[1], y = c->y[0];
	double *row = m->row + thread * m->row_len;
	uint64_t per_x = y.rows / (x.rows ? x.rows : 1);

	for (uint64_t r = row0; r < row1; r++) {
		uint64_t expert = r / y.cols;
		bool loaded = false;

		for (uint64_t i = 0; i < y.rows; i++) {
			uint32_t type;
			const uint8_t *src;

			if ((uint64_t)ids.v[i] != expert)
				continue;
			src = expert_row(c, expert, r % y.cols, &type);
			if (!loaded)
				ref_row_load(type, src, x.cols, row);
			loaded = true;
			y.v[i * y.cols + r % y.cols] =
				act(c->a->act, dot(x.v + i / per_x * x.cols, row, x.cols));
		}
	}
}

void ref_op_moe_linear(struct ref_call *c)
{
	ref_par_rows(c->step->m->dev->pool, c->w[0].dim[0] * c->y[0].cols, moe_rows, c);
}

/* Added in order of rank. */
void ref_op_moe_sum(struct ref_call *c)
{
	struct ref_view x = c->x[0], share = c->x[1], y = c->y[0];
	uint64_t top_k = share.cols;

	for (uint64_t t = 0; t < y.rows; t++)
		for (uint64_t k = 0; k < y.cols; k++) {
			double sum = 0;

			for (uint64_t i = t * top_k; i < (t + 1) * top_k; i++)
				sum += share.v[i] * x.v[i * x.cols + k];
			y.v[t * y.cols + k] = sum;
		}
}

/* ---- shapes --------------------------------------------------------------------------------- */
/* Dimension i of the output is dimension (AXES >> 4 i) & 15 of the input. */
void ref_op_transpose(struct ref_call *c)
{
	struct ref_view x = c->x[0], y = c->y[0];
	uint64_t step[TNP_MAX_RANK], n = x.rows * x.cols;

	for (uint32_t i = 0; i < x.rank; i++) {
		step[i] = 1;
		for (uint32_t j = (uint32_t)(c->a->axes >> (4 * i) & 15) + 1; j < x.rank; j++)
			step[i] *= x.dim[j];
	}
	for (uint64_t at = 0; at < n; at++) {
		uint64_t rest = at, from = 0;

		for (uint32_t i = x.rank; i-- > 0; rest /= y.dim[i])
			from += rest % y.dim[i] * step[i];
		y.v[at] = x.v[from];
	}
}

void ref_op_reshape(struct ref_call *c)
{
	memcpy(c->y[0].v, c->x[0].v, c->x[0].rows * c->x[0].cols * sizeof(double));
}
