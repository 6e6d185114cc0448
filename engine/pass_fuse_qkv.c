/* SPDX-License-Identifier: Apache-2.0
 * fuse_qkv: q, k and v of an ATTEND, each made from the same rows by a product of its own (perhaps with a norm, a rotary
 * embedding or a reshape between), become one product with three outputs in the place of the first. The rows are read and
 * quantised once. Not with a residual or an activation, nor where only some have a bias.
 */
#include "engine/pass_edit.h"

enum { PARTS = 3, CHAIN = 8 };

/* Back through nodes that work on one activation. False: no product there. */
static bool product_of(struct pass_edit *x, graph_tensor t, uint32_t *at, struct pass_node *out)
{
	struct pass_node n;

	for (uint32_t i = 0; i < CHAIN && x->maker[t] != TNP_NONE; i++) {
		if (pass_made_by(x, t, TNP_OP_LINEAR, at, out))
			return true;
		if (!pass_get(x, x->maker[t], &n) || n.n_act != 1 || n.n_out != 1)
			return false;
		t = n.act[0];
	}
	return false;
}

static bool plain(const struct pass_edit *x, const struct pass_node *n)
{
	return n->n_act == 1 && n->n_out == 1 && !pass_int(n, TNP_A_ACT, TNP_ACT_NONE) &&
		pass_n_matrices(x, n) == 1 && n->n_weight <= 2;
}

static bool fits(const struct pass_edit *x, const uint32_t at[PARTS], const struct pass_node part[PARTS])
{
	for (uint32_t i = 0; i < PARTS; i++)
		if (!plain(x, &part[i]) || part[i].act[0] != part[0].act[0] ||
			part[i].n_weight != part[0].n_weight || (i && at[i] == at[i - 1]))
			return false;
	return at[0] != at[2];
}

static void look(struct pass_edit *x, const struct pass_node *attend)
{
	struct pass_node part[PARTS], all;
	uint32_t at[PARTS], first;

	if (attend->n_act != PARTS)
		return;
	for (uint32_t i = 0; i < PARTS; i++)
		if (!product_of(x, attend->act[i], &at[i], &part[i]))
			return;
	if (!fits(x, at, part))
		return;
	all = (struct pass_node){
		.op = TNP_OP_LINEAR, .n_act = 1, .act = { part[0].act[0] }, .n_out = PARTS
	};
	all.n_weight = PARTS * part[0].n_weight;
	for (uint32_t i = 0; i < PARTS; i++) {
		all.out[i] = part[i].out[0];
		all.weight[i] = part[i].weight[0];
		if (part[i].n_weight == 2)
			all.weight[PARTS + i] = part[i].weight[1];
	}
	first = MIN_OF(at[0], MIN_OF(at[1], at[2]));
	for (uint32_t i = 0; i < PARTS; i++)
		if (at[i] != first)
			pass_drop(x, at[i]);
	pass_put(x, first, &all);
}

void pass_fuse_qkv(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++)
		if (x->g->nodes[i].op == TNP_OP_ATTEND && pass_get(x, i, &n))
			look(x, &n);
}
