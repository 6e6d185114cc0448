/* SPDX-License-Identifier: Apache-2.0
 * From graph to plan, see plan.h. Nodes are taken in order; each goes into the earliest phase that may hold it:
 * products join an earlier phase over the same input (Q, K, V; gate and up), element operators on their result
 * follow them there, row operators gather in front of the next main part.
 */
#include "plan_priv.h"
#include <stdlib.h>
#include <string.h>

enum { UNITS_THREAD = 8 }; /* pieces of attention that keep a thread busy until the last */

/* ---- phases and values -------------------------------------------------------------------------- */
struct plan_phase *phase_last(struct plan *p) { return p->n_phases ? &p->phases[p->n_phases - 1] : NULL; }

struct plan_phase *phase_new(struct plan *p, uint32_t space, uint32_t node)
{
	struct plan_phase *ph = &p->phases[p->n_phases++];

	*ph = (struct plan_phase){ .space = space, .node = node, .x = TNP_NONE };
	return ph;
}

uint32_t phase_number(const struct plan *p, const struct plan_phase *ph)
{
	return (uint32_t)(ph - p->phases);
}

void val_use(struct plan *p, uint32_t val, uint32_t phase)
{
	struct plan_val *v = &p->vals[val];

	if (phase > v->used)
		v->used = phase;
	v->n_uses++;
}

void val_make(struct plan *p, uint32_t val, uint32_t phase)
{
	p->vals[val].made = phase;
	if (p->vals[val].used < phase)
		p->vals[val].used = phase;
}

uint32_t val_hidden(struct plan *p, uint32_t like)
{
	p->vals[p->n_vals] = p->vals[like];
	p->vals[p->n_vals].is_out = false;
	p->vals[p->n_vals].n_uses = p->vals[p->n_vals].used = 0;
	p->vals[p->n_vals].made = p->vals[p->n_vals].row_phase = TNP_NONE;
	p->vals[p->n_vals].bind = BIND_ARENA;
	return p->n_vals++;
}

/* Floats for a weight vector; the same tensor is kept once. */
static uint32_t vec_add(struct plan *p, uint32_t tensor)
{
	uint32_t n = (uint32_t)tensor_count(&p->g->tensors[tensor]);

	for (uint32_t i = 0; i < p->n_vecs; i++)
		if (p->vecs[i].tensor == tensor)
			return p->vecs[i].at;
	p->vecs[p->n_vecs++] = (struct plan_vec){ tensor, (uint32_t)p->n_consts, n };
	p->n_consts += cpu_round_up(n, 16);
	return p->vecs[p->n_vecs - 1].at;
}

/* ---- row operators -------------------------------------------------------------------------------- */
static bool is_chooser(uint32_t op) { return op == TNP_OP_SELECT || op == TNP_OP_POOL; }

static bool rows_may_join(
	const struct plan *p, const struct plan_phase *ph, const struct plan_op *o, uint32_t space)
{
	uint32_t at;

	if (!ph || ph->main != MAIN_NONE || ph->space != space || ph->n_rows == PLAN_ROWS)
		return false;
	at = phase_number(p, ph);
	for (uint32_t i = 0; is_chooser(o->op) && i < o->n_in; i++)
		if (p->vals[o->in[i]].made == at)
			return false;
	return true;
}

void rows_place(struct plan *p, const struct plan_op *o)
{
	uint32_t space = p->vals[o->out[0]].space;
	struct plan_phase *ph = phase_last(p);

	if (!rows_may_join(p, ph, o, space))
		ph = phase_new(p, space, o->node);
	ph->rows[ph->n_rows++] = p->n_ops;
	p->ops[p->n_ops++] = *o;
	for (uint32_t i = 0; i < o->n_in; i++)
		val_use(p, o->in[i], phase_number(p, ph));
	for (uint32_t i = 0; i < o->n_out; i++) {
		struct plan_val *v = &p->vals[o->out[i]];

		val_make(p, o->out[i], phase_number(p, ph));
		v->row_phase = phase_number(p, ph);
		v->shadow = ph->shadow;
		ph->shadow += PLAN_SMALL * (uint32_t)cpu_round_up(v->width, 16);
	}
}

/* ---- column operators ----------------------------------------------------------------------------- */
/* All products of the phase have n rows. */
static bool segs_have(const struct plan *p, const struct plan_phase *ph, uint32_t n)
{
	for (uint32_t i = 0; i < ph->n_segs; i++)
		if (p->segs[ph->segs[i]].w.n != n)
			return false;
	return true;
}

/* The phase whose columns the operator may follow, or NULL. */
static struct plan_phase *cols_home(struct plan *p, const struct plan_op *o)
{
	uint32_t n = p->vals[o->out[0]].width, at = 0;
	struct plan_phase *ph;

	if (p->vals[o->out[0]].last_dim != n)
		return NULL;
	for (uint32_t i = 0; i < o->n_in; i++)
		at = p->vals[o->in[i]].made > at ? p->vals[o->in[i]].made : at;
	if (at >= p->n_phases)
		return NULL;
	ph = &p->phases[at];
	if (ph->main != MAIN_LINEAR || ph->n_cols == PLAN_COLS || !segs_have(p, ph, n))
		return NULL;
	for (uint32_t i = 0; i < o->n_in; i++) {
		const struct plan_val *v = &p->vals[o->in[i]];
		bool own = v->made == at && v->in_cols;

		if (own && v->width != (o->op == TNP_OP_GLU ? 2 * n : n))
			return NULL;
		if (!own && o->op == TNP_OP_GLU)
			return NULL;
	}
	return ph;
}

static bool is_element(uint32_t op)
{
	return op == TNP_OP_GLU || op == TNP_OP_ACT || op == TNP_OP_SCALE || op == TNP_OP_SOFTCAP ||
		op == TNP_OP_ADD || op == TNP_OP_MUL;
}

static bool cols_place(struct plan *p, const struct plan_op *o)
{
	struct plan_phase *ph = is_element(o->op) ? cols_home(p, o) : NULL;

	if (!ph)
		return false;
	ph->cols[ph->n_cols++] = p->n_ops;
	ph->cols_n = p->vals[o->out[0]].width;
	p->ops[p->n_ops++] = *o;
	for (uint32_t i = 0; i < o->n_in; i++)
		val_use(p, o->in[i], phase_number(p, ph));
	val_make(p, o->out[0], phase_number(p, ph));
	p->vals[o->out[0]].in_cols = true;
	return true;
}

/* ---- products --------------------------------------------------------------------------------------- */
/* Next border among the rows of a stack: of a matrix, an output or a GLU's half. */
static uint32_t stack_next(const struct builder *b, const struct node_view *v, uint32_t row)
{
	uint64_t end = UINT32_MAX, at = 0;

	for (uint32_t i = 0; i < v->n_weight && b->p->g->tensors[v->weight[i]].rank == 2; i++) {
		at += (uint64_t)b->p->g->tensors[v->weight[i]].dim[0];
		end = at > row && at < end ? at : end;
	}
	at = 0;
	for (uint32_t i = 0; i < v->n_out; i++) {
		uint32_t half = b->glu_half[v->out[i]];

		if (half && at + half > row && at + half < end)
			end = at + half;
		at += b->p->vals[v->out[i]].width;
		end = at > row && at < end ? at : end;
	}
	return (uint32_t)end;
}

static uint32_t biases_add(struct plan *p, const struct node_view *v)
{
	uint32_t first = TNP_NONE;

	for (uint32_t i = 0; i < v->n_weight; i++) {
		const struct tnp_tensor *t = &p->g->tensors[v->weight[i]];

		if (t->rank != 1)
			continue;
		if (first == TNP_NONE)
			first = (uint32_t)p->n_consts;
		p->vecs[p->n_vecs++] =
			(struct plan_vec){ v->weight[i], (uint32_t)p->n_consts, (uint32_t)tensor_count(t) };
		p->n_consts += tensor_count(t);
	}
	p->n_consts = cpu_round_up(p->n_consts, 16);
	return first;
}

/* Which matrix and output row `row` of the stack belongs to. */
static void seg_locate(const struct plan *p, const struct node_view *v, uint32_t row, struct plan_seg *s)
{
	uint32_t i = 0, r = row;

	for (; r >= p->g->tensors[v->weight[i]].dim[0]; i++)
		r -= (uint32_t)p->g->tensors[v->weight[i]].dim[0];
	s->tensor = v->weight[i];
	s->row0 = r;
	for (i = 0, r = row; r >= p->vals[v->out[i]].width; i++)
		r -= p->vals[v->out[i]].width;
	s->out = v->out[i];
	s->col = r;
}

/* Packed bytes, or the earlier segment that packs the same rows. */
void seg_size(struct plan *p, struct plan_seg *s)
{
	const struct linear_ops *l = p->isa->linear;
	const struct tnp_tensor *t = &p->g->tensors[s->tensor];
	struct cpu_type type = { 1, 0 };
	uint64_t row_bytes;

	(void)cpu_type_info(t->type, &type);
	row_bytes = (uint64_t)s->w.k / type.block * type.bytes;
	s->shares = TNP_NONE;
	s->n_experts = t->rank == 3 ? (uint32_t)t->dim[0] : 1;
	s->stride = s->src_stride = row_bytes * (uint64_t)t->dim[t->rank - 2];
	s->pack_bytes = l->weight_bytes(s->w.type, s->w.precision, s->w.n, s->w.k);
	if (!s->pack_bytes) {
		p->mapped += row_bytes * s->w.n * s->n_experts;
		return;
	}
	s->stride = cpu_round_up(s->pack_bytes, 64);
	for (uint32_t i = 0; i < p->n_segs; i++)
		if (p->segs[i].tensor == s->tensor && p->segs[i].row0 == s->row0 &&
			p->segs[i].w.n == s->w.n && p->segs[i].w.precision == s->w.precision) {
			s->shares = i;
			return;
		}
	s->pack = p->packed;
	p->packed += s->stride * s->n_experts + 4096; /* streams are prefetched past their end */
}

/* Splits the node's stack of rows into segments seg[n_segs ..]; returns how many. */
static uint32_t segs_make(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	uint32_t first = p->n_segs, bias = biases_add(p, v), total = 0;

	for (uint32_t i = 0; i < v->n_out; i++)
		total += p->vals[v->out[i]].width;
	for (uint32_t row = 0; row < total;) {
		uint32_t next = stack_next(b, v, row);
		struct plan_seg *s = &p->segs[p->n_segs];
		const struct tnp_tensor *t;

		*s = (struct plan_seg){ .node = v->node,
			.act = (uint32_t)v->i[TNP_A_ACT],
			.bias = bias == TNP_NONE ? TNP_NONE : bias + row,
			.residual = v->n_act > 1 ? v->act[1] : TNP_NONE };
		seg_locate(p, v, row, s);
		t = &p->g->tensors[s->tensor];
		s->w = (struct linear_weight){ .type = t->type,
			.precision = p->lim.precision,
			.n = next - row,
			.k = (uint32_t)t->dim[1] };
		s->w.act = p->isa->linear->act_class(s->w.type, s->w.precision, s->w.n, s->w.k);
		seg_size(p, s);
		p->n_segs++;
		row = next;
	}
	return p->n_segs - first;
}

static bool linear_may_join(const struct plan *p, const struct plan_phase *ph, const struct node_view *v,
	uint32_t first, uint32_t n)
{
	if (ph->main != MAIN_LINEAR || ph->x != v->act[0] || ph->n_segs + n > PLAN_SEGS)
		return false;
	if (v->n_act > 1 && p->vals[v->act[1]].made >= phase_number(p, ph))
		return false;
	for (uint32_t i = first; ph->n_cols && i < first + n; i++)
		if (p->segs[i].w.n != ph->cols_n)
			return false;
	return true;
}

static struct plan_phase *linear_home(struct plan *p, const struct node_view *v, uint32_t first, uint32_t n)
{
	uint32_t made = p->vals[v->act[0]].made == TNP_NONE ? 0 : p->vals[v->act[0]].made;
	struct plan_phase *ph;

	for (uint32_t i = p->n_phases; i-- > made;)
		if (linear_may_join(p, &p->phases[i], v, first, n))
			return &p->phases[i];
	ph = phase_last(p);
	if (!ph || ph->main != MAIN_NONE || ph->space != p->vals[v->act[0]].space)
		ph = phase_new(p, p->vals[v->act[0]].space, v->node);
	ph->main = MAIN_LINEAR;
	ph->node = v->node;
	ph->x = v->act[0];
	ph->k = p->vals[v->act[0]].width;
	return ph;
}

struct plan_phase *linear_join(struct plan *p, const struct node_view *v, uint32_t first, uint32_t n)
{
	struct plan_phase *ph = linear_home(p, v, first, n);

	for (uint32_t i = first; i < first + n; i++) {
		ph->segs[ph->n_segs++] = i;
		ph->classes |= 1u << p->segs[i].w.act;
	}
	for (uint32_t i = 0; i < v->n_act; i++)
		val_use(p, v->act[i], phase_number(p, ph));
	return ph;
}

static void linear_place(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	uint32_t first = p->n_segs, n = segs_make(b, v), at = phase_number(p, linear_join(p, v, first, n));

	for (uint32_t i = 0; i < v->n_out; i++) {
		val_make(p, v->out[i], at);
		p->vals[v->out[i]].in_cols = true;
	}
}

/* ---- operators of other kinds ------------------------------------------------------------------------ */
static uint32_t rope_find(struct plan *p, const struct node_view *v, double scale)
{
	struct plan_rope r = { .dims = (uint32_t)v->i[TNP_A_ROPE_DIMS],
		.base = v->f[TNP_A_ROPE_BASE],
		.scale = scale,
		.factors = TNP_NONE,
		.tensor = v->n_weight ? v->weight[0] : TNP_NONE };

	for (uint32_t i = 0; i < p->n_ropes; i++)
		if (p->ropes[i].dims == r.dims && p->ropes[i].base == r.base &&
			p->ropes[i].scale == r.scale && p->ropes[i].tensor == r.tensor)
			return i;
	if (p->n_ropes == PLAN_ROPES)
		return TNP_NONE;
	if (r.tensor != TNP_NONE)
		r.factors = vec_add(p, r.tensor);
	p->ropes[p->n_ropes] = r;
	return p->n_ropes++;
}

static tnp_rc rope_place(
	struct builder *b, const struct node_view *v, uint32_t in, uint32_t out, uint32_t heads, double scale)
{
	struct plan_op o = { .op = TNP_OP_ROPE,
		.node = v->node,
		.n_in = 1,
		.n_out = 1,
		.in = { in },
		.out = { out },
		.heads = heads,
		.head_dim = (uint32_t)v->i[TNP_A_HEAD_DIM],
		.mode = (uint32_t)v->i[TNP_A_ROPE_MODE],
		.dims = (uint32_t)v->i[TNP_A_ROPE_DIMS],
		.vec = { TNP_NONE, TNP_NONE } };

	o.rope = rope_find(b->p, v, scale);
	if (o.rope == TNP_NONE)
		return cpu_fail(
			b->e, TNP_E_UNSUPPORTED, v->node, "graph: more than 8 kinds of rotary embedding");
	rows_place(b->p, &o);
	return TNP_OK;
}

/* Work is cut alike for layers of the same window and heads; `block` tokens share a widened tile, half as many of a
 * sequence whose whole blocks would be few pieces for the threads. */
static uint32_t units_find(struct plan *p, const struct attn_shape *s, bool causal)
{
	uint32_t block = 24576 / (s->pad * s->group);
	struct plan_units u = { .window = s->window, .kv_heads = s->kv_heads, .causal = causal };

	u.block = block < 1 ? 1 : block > 64 ? 64 : block;
	u.whole_tok = UNITS_THREAD * p->n_threads * u.block / u.kv_heads;
	for (uint32_t i = 0; i < p->n_units; i++)
		if (p->units[i].window == u.window && p->units[i].kv_heads == u.kv_heads &&
			p->units[i].block == u.block && p->units[i].causal == u.causal)
			return i;
	if (p->n_units == PLAN_UNITS)
		return TNP_NONE;
	p->units[p->n_units] = u;
	return p->n_units++;
}

static void attend_shape(const struct plan *p, const struct node_view *v, struct attn_shape *s)
{
	double scale = v->f[TNP_A_SCALE], cap = v->f[TNP_A_CAP];
	const double log2e = 1.4426950408889634;

	*s = (struct attn_shape){ .type = p->lim.kv_type,
		.page = p->lim.page_tokens,
		.dim = (uint32_t)v->i[TNP_A_HEAD_DIM],
		.heads = (uint32_t)v->i[TNP_A_HEADS],
		.kv_heads = (uint32_t)v->i[TNP_A_KV_HEADS],
		.window = (uint32_t)v->i[TNP_A_WINDOW],
		.cap = (float)(cap * log2e) };
	s->pad = attn_pad(s->dim);
	s->group = s->heads / s->kv_heads;
	s->scale = (float)(cap > 0 ? scale / cap : scale * log2e);
}

static tnp_rc attend_place(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	struct plan_attend a = { .node = v->node,
		.q = v->act[0],
		.k = TNP_NONE,
		.v = TNP_NONE,
		.out = v->out[0],
		.slot = (uint32_t)v->i[TNP_A_SLOT],
		.causal = v->i[TNP_A_CAUSAL] };
	struct plan_phase *ph;
	tnp_rc rc = TNP_OK;

	attend_shape(p, v, &a.shape);
	if (v->n_act > 1) {
		a.k = v->act[1];
		a.v = v->act[2];
	}
	if (v->has[TNP_A_ROPE_MODE]) {
		a.q = val_hidden(p, v->act[0]);
		rc = rope_place(b, v, v->act[0], a.q, a.shape.heads, 1);
		if (!rc && v->n_act > 1) {
			a.k = val_hidden(p, v->act[1]);
			rc = rope_place(b, v, v->act[1], a.k, a.shape.kv_heads, 1);
		}
		if (rc)
			return rc;
	}
	a.units = units_find(p, &a.shape, a.causal);
	if (a.units == TNP_NONE)
		return cpu_fail(b->e, TNP_E_UNSUPPORTED, v->node, "graph: more than 8 kinds of attention");
	ph = phase_last(p);
	if (!ph || ph->main != MAIN_NONE || ph->space != SPACE_TOKENS)
		ph = phase_new(p, SPACE_TOKENS, v->node);
	ph->main = MAIN_ATTEND;
	ph->node = v->node;
	ph->attend = p->n_attends;
	p->attends[p->n_attends++] = a;
	val_use(p, a.q, phase_number(p, ph));
	for (uint32_t i = 0; i < 2 && a.k != TNP_NONE; i++)
		val_use(p, i ? a.v : a.k, phase_number(p, ph));
	val_make(p, a.out, phase_number(p, ph));
	return TNP_OK;
}

static void table_note(struct plan *p, const struct node_view *v)
{
	uint32_t rows = (uint32_t)p->g->tensors[v->weight[0]].dim[0];
	uint32_t *least = v->i[TNP_A_INDEX] == TNP_INDEX_POS ? &p->n_pos : &p->n_vocab;
	uint64_t bytes = p->g->tensors[v->weight[0]].bytes;

	if (!*least || rows < *least)
		*least = rows;
	p->mapped += bytes;
}

/* Everything that is neither a product nor attention. */
static tnp_rc other_place(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	struct plan_op o = { .op = v->op,
		.node = v->node,
		.n_in = v->n_act,
		.n_out = v->n_out,
		.vec = { TNP_NONE, TNP_NONE },
		.eps = (float)v->f[TNP_A_EPS],
		.scale = (float)v->f[TNP_A_SCALE],
		.cap = (float)v->f[TNP_A_CAP],
		.act = (uint32_t)v->i[TNP_A_ACT],
		.group = (uint32_t)v->i[TNP_A_GROUP],
		.index = (uint32_t)v->i[TNP_A_INDEX],
		.pool = (uint32_t)v->i[TNP_A_POOL_KIND] };

	if (v->op == TNP_OP_ROPE)
		return rope_place(b, v, v->act[0], v->out[0], (uint32_t)v->i[TNP_A_HEADS], v->f[TNP_A_SCALE]);
	memcpy(o.in, v->act, (v->n_act < 2 ? v->n_act : 2) * sizeof o.in[0]);
	memcpy(o.out, v->out, (v->n_out < 2 ? v->n_out : 2) * sizeof o.out[0]);
	if (v->op == TNP_OP_EMBED) {
		o.n_in = 0;
		o.table = v->weight[0];
		table_note(p, v);
	} else {
		for (uint32_t i = 0; i < v->n_weight; i++) {
			o.vec[i] = vec_add(p, v->weight[i]);
			o.vec_len = (uint32_t)tensor_count(&p->g->tensors[v->weight[i]]);
		}
	}
	if (!cols_place(p, &o))
		rows_place(p, &o);
	return TNP_OK;
}

static tnp_rc node_place(struct builder *b, uint32_t node)
{
	struct node_view v;
	const char *why = node_read(b->p->isa, b->p->g, node, &v);

	if (why)
		return cpu_fail(b->e, TNP_E_UNSUPPORTED, node, why);
	if (b->done[node])
		return TNP_OK;
	switch (v.op) {
	case TNP_OP_LINEAR:
		linear_place(b, &v);
		return TNP_OK;
	case TNP_OP_ATTEND:
		return attend_place(b, &v);
	case TNP_OP_MOE_ROUTE:
		route_place(b, &v);
		return TNP_OK;
	case TNP_OP_MOE_LINEAR:
		return experts_place(b, &v);
	default:
		return other_place(b, &v);
	}
}

/* ---- whole -------------------------------------------------------------------------------------------- */
static bool arrays_make(struct builder *b)
{
	struct plan *p = b->p;
	const struct tnp_graph *g = p->g;
	uint64_t segs = 0, vecs = 0, attends = 0, glus = 0, routes = 0, experts = 0, vals, ops, phases;

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		attends += g->nodes[i].op == TNP_OP_ATTEND;
		glus += g->nodes[i].op == TNP_OP_GLU;
		routes += g->nodes[i].op == TNP_OP_MOE_ROUTE;
		experts += g->nodes[i].op == TNP_OP_MOE_LINEAR;
		segs += g->nodes[i].op == TNP_OP_LINEAR ? NODE_WEIGHTS + NODE_OUTS : 0;
		vecs += g->nodes[i].n_in;
	}
	segs += glus + routes + EXPERTS_SEGS * experts + 1;
	vals = g->n_tensors + 2 * attends + routes + 1;
	ops = g->n_nodes + 2 * attends + 1;
	phases = g->n_nodes + 2 * attends + routes + 2;
	p->vals = calloc(vals, sizeof *p->vals);
	p->ops = calloc(ops, sizeof *p->ops);
	p->segs = calloc(segs, sizeof *p->segs);
	p->attends = calloc(attends + 1, sizeof *p->attends);
	p->experts = calloc(experts + 1, sizeof *p->experts);
	p->phases = calloc(phases, sizeof *p->phases);
	p->vecs = calloc(vecs + 1, sizeof *p->vecs);
	b->glu_half = calloc(3 * ((size_t)g->n_tensors + 1), sizeof *b->glu_half);
	b->done = calloc(g->n_nodes, 1);
	p->heap_bytes = sizeof *p + vals * sizeof *p->vals + ops * sizeof *p->ops + segs * sizeof *p->segs +
		(attends + 1) * sizeof *p->attends + (experts + 1) * sizeof *p->experts +
		phases * sizeof *p->phases + (vecs + 1) * sizeof *p->vecs;
	return p->vals && p->ops && p->segs && p->attends && p->experts && p->phases && p->vecs &&
		b->glu_half && b->done;
}

/* Who reads a tensor. */
static void reads_count(struct builder *b)
{
	const struct tnp_graph *g = b->p->g;

	b->glu_node = b->glu_half + g->n_tensors;
	b->reads = b->glu_node + g->n_tensors;
	for (uint32_t i = 0; i < g->n_tensors; i++)
		b->glu_node[i] = TNP_NONE;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		for (uint32_t j = 0; j < g->nodes[i].n_in; j++)
			b->reads[g->edges[g->nodes[i].in0 + j]]++;
	for (uint32_t i = 0; i < g->n_out; i++)
		b->reads[g->out[i]]++;
}

static void vals_make(struct builder *b)
{
	struct plan *p = b->p;
	const struct tnp_graph *g = p->g;

	p->n_vals = g->n_tensors;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const struct tnp_tensor *t = &g->tensors[i];

		p->vals[i] = (struct plan_val){ .made = TNP_NONE, .row_phase = TNP_NONE };
		if (t->buffer != TNP_NONE || t->dim[0] >= 0 || tensor_width(t) > WIDTH_LIMIT)
			continue;
		p->vals[i].width = (uint32_t)tensor_width(t);
		p->vals[i].last_dim = t->rank > 1 ? (uint32_t)t->dim[t->rank - 1] : 1;
		p->vals[i].space = tensor_space(t);
	}
	for (uint32_t i = 0; i < g->n_in; i++)
		p->vals[g->in[i]].made = 0;
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		struct node_view v;

		if (g->nodes[i].op != TNP_OP_GLU || node_read(p->isa, g, i, &v))
			continue;
		b->glu_half[v.act[0]] = p->vals[v.out[0]].width;
		b->glu_node[v.act[0]] = i;
	}
}

static tnp_rc plan_fill(struct builder *b)
{
	struct plan *p = b->p;
	tnp_rc rc = graph_slots_find(p->isa, p->g, &p->slots, b->e);

	if (rc)
		return rc;
	if (p->slots.n && (p->lim.page_tokens < 16 || p->lim.page_tokens > 64 || p->lim.page_tokens % 16))
		return cpu_fail(b->e, TNP_E_UNSUPPORTED, 0, "limits: a page holds 16, 32, 48 or 64 tokens");
	if (p->slots.n && p->lim.kv_type != TNP_F32 && p->lim.kv_type != TNP_F16 &&
		p->lim.kv_type != TNP_Q8_0 && p->lim.kv_type != TNP_Q4_0)
		return cpu_fail(
			b->e, TNP_E_UNSUPPORTED, 0, "limits: keys and values are F32, F16, Q8_0 or Q4_0");
	if (!arrays_make(b))
		return cpu_fail(b->e, TNP_E_NOMEM, 0, "plan: no memory");
	reads_count(b);
	vals_make(b);
	for (uint32_t i = 0; i < p->g->n_nodes && !rc; i++)
		rc = node_place(b, i);
	if (rc)
		return rc;
	if (p->n_consts > UINT32_MAX / 2)
		return cpu_fail(b->e, TNP_E_UNSUPPORTED, 0, "graph: weight vectors are too long");
	binds_plan(p);
	rc = arena_plan(b);
	if (!rc)
		workspace_plan(p);
	return rc;
}

tnp_rc plan_build(const struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct plan **out, struct tnp_error *e)
{
	struct builder b = { .p = calloc(1, sizeof *b.p), .e = e, .sorted_by = TNP_NONE };
	tnp_rc rc;

	if (!b.p)
		return cpu_fail(e, TNP_E_NOMEM, 0, "plan: no memory");
	b.p->g = g;
	b.p->isa = d->isa;
	b.p->lim = *l;
	b.p->n_threads = pool_threads(d->pool);
	rc = plan_fill(&b);
	free(b.glu_half);
	free(b.done);
	if (rc)
		plan_free(b.p);
	else
		*out = b.p;
	return rc;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	graph_slots_finish(&p->slots);
	free(p->vals);
	free(p->ops);
	free(p->segs);
	free(p->attends);
	free(p->experts);
	free(p->phases);
	free(p->vecs);
	free(p);
}

uint64_t plan_page_bytes(const struct plan *p, uint32_t group, uint32_t type, uint32_t page_tokens)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->slots.n; i++) {
		const struct tnp_kv_slot *s = &p->slots.slot[i];

		if (s->group == group)
			n += s->heads * attn_head_bytes(type, s->head_dim, page_tokens);
	}
	return n;
}

tnp_rc limits_check(const struct tnp_limits *l, struct tnp_error *e)
{
	if (l->precision > TNP_EXACT)
		return cpu_fail(e, TNP_E_UNSUPPORTED, 0, "limits: unknown precision");
	if (!l->max_tokens || !l->max_seqs || l->max_tokens > 1u << 20 || l->max_seqs > 1u << 16 ||
		l->max_out > 1u << 20)
		return cpu_fail(e, TNP_E_INVALID, 0, "limits: tokens, sequences or output rows out of range");
	if (l->max_pages_per_seq > 1u << 24)
		return cpu_fail(e, TNP_E_INVALID, 0, "limits: too many pages a sequence");
	return TNP_OK;
}
