/* SPDX-License-Identifier: Apache-2.0
 * fuse_residual_norm: ADD and the norm behind it become a norm with a residual in the ADD's place; the sum is its second
 * output where somebody else reads it too.
 */
#include "engine/pass_edit.h"

static void look(struct pass_edit *x, uint32_t i, struct pass_node *norm)
{
	graph_tensor sum = norm->act[0];
	struct pass_node add;
	uint32_t at;

	if (!pass_made_by(x, sum, TNP_OP_ADD, &at, &add) || add.n_act != 2 || add.n_out != 1 ||
		!pass_same_shape(x, add.act[0], add.act[1]) || !pass_same_shape(x, add.act[0], sum) ||
		!pass_same_shape(x, norm->out[0], sum))
		return;
	norm->act[0] = add.act[0];
	norm->act[1] = add.act[1];
	norm->n_act = 2;
	if (!pass_only_here(x, sum))
		norm->out[norm->n_out++] = sum;
	pass_drop(x, i);
	pass_put(x, at, norm);
}

void pass_fuse_residual_norm(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++)
		if ((x->g->nodes[i].op == TNP_OP_RMSNORM || x->g->nodes[i].op == TNP_OP_LAYERNORM) &&
			pass_get(x, i, &n) && n.n_act == 1 && n.n_out == 1)
			look(x, i, &n);
}
