/* SPDX-License-Identifier: Apache-2.0
 * Mixtures of experts in a plan, see plan.h: a router is a product in float precision and a row operator behind it; a
 * MOE_LINEAR is the main part of a phase of its own, with the GLU that alone reads it.
 */
#include "plan_priv.h"

uint64_t experts_act_at(const struct cpu_isa *isa, uint32_t class, uint32_t k, uint32_t first, uint32_t group)
{
	const struct linear_ops *l = isa->linear;
	uint64_t rows = l->act_bytes(class, first, k), one = l->act_bytes(class, 1, k);

	if (!one) { /* floats, one row behind the other */
		rows = (uint64_t)first * k * sizeof(float);
		one = 0;
	}
	return cpu_round_up(rows, 64) + group * (cpu_round_up(one, 64) + 128);
}

/* ---- placing --------------------------------------------------------------------------------------- */
/* Whole floats in any precision: which experts a token gets must not hang on rounded activations. */
static uint32_t router_add(struct plan *p, const struct node_view *v, uint32_t logits)
{
	struct plan_seg *s = &p->segs[p->n_segs];
	const struct tnp_tensor *t = &p->g->tensors[v->weight[0]];

	*s = (struct plan_seg){ .node = v->node,
		.tensor = v->weight[0],
		.bias = TNP_NONE,
		.residual = TNP_NONE,
		.out = logits,
		.w = { .type = t->type,
			.precision = TNP_EXACT,
			.n = (uint32_t)t->dim[0],
			.k = (uint32_t)t->dim[1] } };
	s->w.act = p->isa->linear->act_class(s->w.type, s->w.precision, s->w.n, s->w.k);
	seg_size(p, s);
	return p->n_segs++;
}

void route_place(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	uint32_t logits = val_hidden(p, v->act[0]), seg = router_add(p, v, logits);
	struct plan_op o = { .op = TNP_OP_MOE_ROUTE,
		.node = v->node,
		.n_in = 1,
		.n_out = 2,
		.in = { logits },
		.out = { v->out[0], v->out[1] },
		.vec = { TNP_NONE, TNP_NONE },
		.top_k = (uint32_t)v->i[TNP_A_TOP_K],
		.norm = v->i[TNP_A_NORM] };

	p->vals[logits].width = p->vals[logits].last_dim = p->segs[seg].w.n;
	val_make(p, logits, phase_number(p, linear_join(p, v, seg, 1)));
	p->vals[logits].in_cols = true;
	rows_place(p, &o);
}

/* Rows [row, end) of one matrix of each expert; `col`: of the output. */
static void seg_add(struct plan *p, struct plan_experts *x, const struct node_view *v, uint32_t weight,
	uint32_t row, uint32_t end, uint32_t col)
{
	struct plan_seg *s = &p->segs[p->n_segs];
	const struct tnp_tensor *t = &p->g->tensors[v->weight[weight]];

	*s = (struct plan_seg){ .node = v->node,
		.tensor = v->weight[weight],
		.row0 = row,
		.bias = TNP_NONE,
		.residual = TNP_NONE,
		.out = x->out,
		.col = col,
		.w = { .type = t->type, .precision = p->lim.precision, .n = end - row, .k = x->k } };
	s->w.act = p->isa->linear->act_class(s->w.type, s->w.precision, s->w.n, s->w.k);
	seg_size(p, s);
	x->classes |= 1u << s->w.act;
	x->segs[x->n_segs++] = p->n_segs++;
}

/* One segment a matrix; the one in which a GLU's halves meet is cut there. */
static void segs_add(struct plan *p, struct plan_experts *x, const struct node_view *v, uint32_t half)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < v->n_weight; i++) {
		uint32_t n = (uint32_t)p->g->tensors[v->weight[i]].dim[1];

		if (half > at && half < at + n) {
			seg_add(p, x, v, i, 0, half - at, at);
			seg_add(p, x, v, i, half - at, n, half);
		} else {
			seg_add(p, x, v, i, 0, n, at);
		}
		at += n;
	}
}

/* The GLU that alone reads the result goes with it, if its halves are a segment each: what lies between is never
 * more than a tile. */
static void glu_join(struct builder *b, struct plan_experts *x)
{
	struct plan *p = b->p;
	uint32_t node = b->glu_node[x->out];
	struct node_view v;

	if (node == TNP_NONE || b->reads[x->out] != 1 || x->n_segs != 2 ||
		p->segs[x->segs[0]].w.n != p->segs[x->segs[1]].w.n || node_read(p->isa, p->g, node, &v))
		return;
	b->done[node] = 1;
	x->glu = true;
	x->glu_act = (uint32_t)v.i[TNP_A_ACT];
	x->out = v.out[0];
}

static uint32_t chunks_count(const struct plan *p, const struct plan_experts *x)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->n_segs && (i == 0 || !x->glu); i++)
		n += (p->segs[x->segs[i]].w.n + EXPERTS_COLS - 1) / EXPERTS_COLS;
	return n;
}

tnp_rc experts_place(struct builder *b, const struct node_view *v)
{
	struct plan *p = b->p;
	const struct tnp_tensor *w = &p->g->tensors[v->weight[0]];
	struct plan_experts *x = &p->experts[p->n_experts];
	uint64_t pairs = (uint64_t)plan_cap(p, p->vals[v->act[1]].space) * p->vals[v->act[1]].width;
	struct plan_phase *ph = phase_last(p);

	if (pairs > 1u << 22)
		return cpu_fail(
			b->e, TNP_E_UNSUPPORTED, v->node, "limits: too many tokens for so many experts");
	*x = (struct plan_experts){ .node = v->node,
		.x = v->act[0],
		.ids = v->act[1],
		.out = v->out[0],
		.top_k = p->vals[v->act[1]].width,
		.k = (uint32_t)w->dim[2],
		.act = (uint32_t)v->i[TNP_A_ACT],
		.own_rows = p->g->tensors[v->act[0]].rank == 3,
		.sort = b->sorted_by != v->act[1],
		.n_experts = (uint32_t)w->dim[0],
		.max_pairs = (uint32_t)pairs };
	x->max_groups = (pairs < x->n_experts ? x->max_pairs : x->n_experts) + x->max_pairs / EXPERTS_ROWS;
	b->sorted_by = v->act[1];
	segs_add(p, x, v, b->glu_node[x->out] == TNP_NONE ? 0 : p->vals[x->out].last_dim / 2);
	glu_join(b, x);
	x->chunks = chunks_count(p, x);
	if (!ph || ph->main != MAIN_NONE || ph->space != p->vals[x->ids].space)
		ph = phase_new(p, p->vals[x->ids].space, v->node);
	ph->main = MAIN_EXPERTS;
	ph->node = v->node;
	ph->experts = p->n_experts++;
	val_use(p, x->x, phase_number(p, ph));
	val_use(p, x->ids, phase_number(p, ph));
	val_make(p, x->out, phase_number(p, ph));
	return TNP_OK;
}

/* ---- memory ----------------------------------------------------------------------------------------- */
void experts_acts(const struct plan *p, uint64_t bytes[ACT_N_CLASSES])
{
	for (uint32_t i = 0; i < p->n_experts; i++)
		for (uint32_t c = 0; c < ACT_N_CLASSES; c++) {
			const struct plan_experts *x = &p->experts[i];
			uint64_t n = x->classes >> c & 1
				? experts_act_at(p->isa, c, x->k, x->max_pairs, x->max_groups)
				: 0;

			bytes[c] = n > bytes[c] ? n : bytes[c];
		}
}

void experts_thread_plan(struct plan *p, uint64_t *at)
{
	uint64_t tile = 0, gather = 0;

	for (uint32_t i = 0; i < p->n_experts; i++) {
		const struct plan_experts *x = &p->experts[i];
		uint64_t rows = x->max_pairs < EXPERTS_ROWS ? x->max_pairs : EXPERTS_ROWS,
			 n = rows * EXPERTS_COLS * (x->glu ? 2 : 1),
			 k = (uint64_t)experts_gather_rows(p->isa) * x->k;

		tile = n > tile ? n : tile;
		gather = k > gather ? k : gather;
	}
	p->t_tile = plan_take(at, tile * sizeof(float));
	p->t_gather = plan_take(at, gather * sizeof(float));
}

void experts_workspace_plan(struct plan *p, uint64_t *at)
{
	uint64_t pairs = 0, groups = 0, experts = 0;

	for (uint32_t i = 0; i < p->n_experts; i++) {
		const struct plan_experts *x = &p->experts[i];

		pairs = x->max_pairs > pairs ? x->max_pairs : pairs;
		groups = x->max_groups > groups ? x->max_groups : groups;
		experts = x->n_experts > experts ? x->n_experts : experts;
	}
	p->pairs = plan_take(at, pairs * sizeof(uint32_t));
	p->groups = plan_take(at, groups * sizeof(struct plan_group));
	p->counts = plan_take(at, (experts + 1) * sizeof(uint32_t));
}
