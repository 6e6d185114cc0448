/* SPDX-License-Identifier: Apache-2.0
 * fuse_bias_act: what LINEAR can do behind its product, act(W x + bias) + residual, goes into it, each only in that order:
 * ADD of a weight as long as a row, ACT, ADD of rows. Only where nobody else reads what lies between. A residual is there
 * before its ADD, so the product moves to the ADD's place.
 */
#include "engine/pass_edit.h"

/* t is one product's only output, read here alone, and nothing was added to it yet. */
static bool product_of(struct pass_edit *x, graph_tensor t, uint32_t *at, struct pass_node *out)
{
	return pass_only_here(x, t) && pass_made_by(x, t, TNP_OP_LINEAR, at, out) && out->n_act == 1 &&
		out->n_out == 1;
}

/* The product gives what node i behind it gave. */
static void absorb(struct pass_edit *x, uint32_t at, uint32_t i, struct pass_node *linear, graph_tensor out)
{
	linear->out[0] = out;
	pass_drop(x, i);
	pass_put(x, at, linear);
}

static void look_bias(struct pass_edit *x, uint32_t i, const struct pass_node *add)
{
	const struct tnp_tensor *b = pass_tensor(x, add->weight[0]);
	struct pass_node linear;
	uint32_t at;

	if (!product_of(x, add->act[0], &at, &linear) || pass_int(&linear, TNP_A_ACT, TNP_ACT_NONE) ||
		pass_n_matrices(x, &linear) != linear.n_weight || linear.n_weight == PASS_WEIGHTS ||
		b->rank != 1 || b->dim[0] != pass_tensor(x, add->out[0])->dim[1])
		return;
	linear.weight[linear.n_weight++] = add->weight[0];
	absorb(x, at, i, &linear, add->out[0]);
}

static void look_act(struct pass_edit *x, uint32_t i, const struct pass_node *act)
{
	int64_t kind = pass_int(act, TNP_A_ACT, TNP_ACT_NONE);
	struct pass_node linear;
	uint32_t at;

	if (kind == TNP_ACT_NONE || !product_of(x, act->act[0], &at, &linear) ||
		pass_int(&linear, TNP_A_ACT, TNP_ACT_NONE))
		return;
	pass_set_int(&linear, TNP_A_ACT, kind);
	absorb(x, at, i, &linear, act->out[0]);
}

/* Of two products the later one takes the other's result. */
static void look_residual(struct pass_edit *x, uint32_t i, const struct pass_node *add)
{
	struct pass_node linear, other;
	uint32_t at, other_at, k;

	if (add->act[0] == add->act[1] || !pass_same_shape(x, add->act[0], add->act[1]))
		return;
	k = product_of(x, add->act[1], &at, &linear) ? 1 : 0;
	if (k && product_of(x, add->act[0], &other_at, &other) && other_at > at)
		k = 0;
	if (!k && !product_of(x, add->act[0], &at, &linear))
		return;
	linear.act[linear.n_act++] = add->act[1 - k];
	linear.out[0] = add->out[0];
	pass_drop(x, at);
	pass_put(x, i, &linear);
}

void pass_fuse_bias_act(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++) {
		uint32_t op = x->g->nodes[i].op;

		if ((op != TNP_OP_ADD && op != TNP_OP_ACT) || !pass_get(x, i, &n) || !n.n_act ||
			n.n_out != 1 || pass_tensor(x, n.out[0])->rank != 2 ||
			!pass_same_shape(x, n.act[0], n.out[0]))
			continue;
		if (op == TNP_OP_ACT && n.n_act == 1)
			look_act(x, i, &n);
		else if (op == TNP_OP_ADD && n.n_act == 1 && n.n_weight == 1)
			look_bias(x, i, &n);
		else if (op == TNP_OP_ADD && n.n_act == 2)
			look_residual(x, i, &n);
	}
}
