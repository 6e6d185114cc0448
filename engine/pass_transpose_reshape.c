/* SPDX-License-Identifier: Apache-2.0
 * transpose_reshape: TRANSPOSE behind TRANSPOSE becomes one or none, RESHAPE behind RESHAPE one, and one that changes no
 * dimension goes. A RESHAPE goes too where all who read it look at rows and their whole width only (ROPE, ATTEND) and it leaves
 * the first dimension alone: the bytes are the same.
 */
#include "engine/pass_edit.h"

static uint32_t axis_of(int64_t axes, uint32_t i) { return (uint32_t)((uint64_t)axes >> (4 * i) & 15); }

static bool axes_valid(int64_t axes, uint32_t rank)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < rank; i++)
		seen |= axis_of(axes, i) < rank ? 1u << axis_of(axes, i) : 0;
	return axes >= 0 && axes >> (4 * rank) == 0 && seen == (1u << rank) - 1;
}

static int64_t axes_identity(uint32_t rank) { return 0x3210 & ((1 << (4 * rank)) - 1); }

/* y's dimension i is x's dimension second[i], which is its input's first[second[i]]. */
static int64_t axes_compose(int64_t first, int64_t second, uint32_t rank)
{
	int64_t both = 0;

	for (uint32_t i = 0; i < rank; i++)
		both |= (int64_t)axis_of(first, axis_of(second, i)) << (4 * i);
	return both;
}

/* Readers take n's input for its output. An output of the graph needs somebody who makes it, and leaves only once. */
static void step_over(struct pass_edit *x, uint32_t i, const struct pass_node *n)
{
	graph_tensor from = n->act[0], to = n->out[0];

	if (pass_is_out(x, to) && (x->maker[from] == TNP_NONE || pass_is_out(x, from)))
		return;
	pass_stand_in(x, to, from);
	pass_drop(x, i);
}

static void look_transpose(struct pass_edit *x, uint32_t i, struct pass_node *n)
{
	uint32_t rank = pass_tensor(x, n->act[0])->rank, at;
	int64_t axes = pass_int(n, TNP_A_AXES, -1);
	struct pass_node first;

	if (!axes_valid(axes, rank))
		return;
	if (axes == axes_identity(rank)) {
		step_over(x, i, n);
		return;
	}
	if (!pass_made_by(x, n->act[0], TNP_OP_TRANSPOSE, &at, &first) || first.n_act != 1 ||
		!axes_valid(pass_int(&first, TNP_A_AXES, -1), rank))
		return;
	pass_set_int(n, TNP_A_AXES, axes_compose(pass_int(&first, TNP_A_AXES, -1), axes, rank));
	n->act[0] = first.act[0];
	pass_put(x, i, n);
}

/* ---- reshapes ------------------------------------------------------------------------------------------------------- */

/* All but the first dimension multiplied; 0: one of them is symbolic. */
static int64_t width(const struct tnp_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t d = 1; d < t->rank; d++)
		if (t->dim[d] < 1 || !checked_mul_u64(n, (uint64_t)t->dim[d], &n) || n > INT32_MAX)
			return 0;
	return (int64_t)n;
}

static bool same_rows(const struct pass_edit *x, graph_tensor a, graph_tensor b)
{
	const struct tnp_tensor *p = pass_tensor(x, a), *q = pass_tensor(x, b);

	return p->rank >= 2 && q->rank >= 2 && p->dim[0] == q->dim[0] && width(p) && width(p) == width(q);
}

/* How many inputs of ROPE and ATTEND name t. */
static uint32_t *width_uses(struct pass_edit *x)
{
	uint32_t *n = mem_zalloc(MEM_ENGINE, x->n_known, sizeof *n);
	struct pass_node r;

	if (!n)
		graph_fail(x->g, TENON_E_NOMEM, "graph: no memory for the passes");
	for (uint32_t i = 0; n && i < x->g->g.n_nodes; i++)
		if ((x->g->nodes[i].op == TNP_OP_ROPE || x->g->nodes[i].op == TNP_OP_ATTEND) &&
			pass_get(x, i, &r))
			for (uint32_t j = 0; j < r.n_act; j++)
				n[r.act[j]]++;
	return n;
}

static void look_reshape(struct pass_edit *x, uint32_t i, struct pass_node *n, const uint32_t *by_width)
{
	graph_tensor from = n->act[0], to = n->out[0];
	struct pass_node first;
	uint32_t at;

	if (pass_same_shape(x, from, to) ||
		(same_rows(x, from, to) && x->uses[to] == by_width[to] && !pass_is_out(x, to))) {
		step_over(x, i, n);
	} else if (pass_made_by(x, from, TNP_OP_RESHAPE, &at, &first) && first.n_act == 1) {
		n->act[0] = first.act[0];
		pass_put(x, i, n);
	}
}

void pass_transpose_reshape(struct pass_edit *x)
{
	uint32_t *by_width = NULL;
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++) {
		uint32_t op = x->g->nodes[i].op;

		if ((op != TNP_OP_TRANSPOSE && op != TNP_OP_RESHAPE) || !pass_get(x, i, &n) || n.n_act != 1 ||
			n.n_out != 1)
			continue;
		if (!by_width)
			by_width = width_uses(x);
		if (op == TNP_OP_TRANSPOSE)
			look_transpose(x, i, &n);
		else if (by_width)
			look_reshape(x, i, &n, by_width);
	}
	mem_free(by_width);
}
