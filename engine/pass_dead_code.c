/* SPDX-License-Identifier: Apache-2.0
 * dead_code: from the last node to the first, what nobody reads goes, with all that only it needed. An ATTEND over pages
 * stays: it writes keys and values. Nodes that hand on what they get (SCALE by 1, ACT 0) go too, and so does a norm's second
 * output that nobody reads.
 */
#include "engine/pass_edit.h"

static bool is_read(const struct pass_edit *x, const struct pass_node *n)
{
	for (uint32_t i = 0; i < n->n_out; i++)
		if (x->uses[n->out[i]])
			return true;
	return false;
}

static bool does_nothing(const struct pass_node *n)
{
	const struct tnp_attr *a = pass_attr(n, n->op == TNP_OP_SCALE ? TNP_A_SCALE : TNP_A_ACT);

	if (!a || n->n_act != 1 || n->n_out != 1)
		return false;
	return n->op == TNP_OP_SCALE ? a->is_float && a->v.f == 1
				     : n->op == TNP_OP_ACT && !a->is_float && a->v.i == TNP_ACT_NONE;
}

static void look(struct pass_edit *x, uint32_t i)
{
	struct pass_node n;

	if (!pass_get(x, i, &n))
		return;
	if (!is_read(x, &n)) {
		if (n.op != TNP_OP_ATTEND || !pass_int(&n, TNP_A_CAUSAL, 1))
			pass_drop(x, i);
	} else if (does_nothing(&n) && pass_same_shape(x, n.act[0], n.out[0]) && !pass_is_out(x, n.out[0])) {
		pass_stand_in(x, n.out[0], n.act[0]);
		pass_drop(x, i);
	} else if ((n.op == TNP_OP_RMSNORM || n.op == TNP_OP_LAYERNORM) && n.n_out == 2 &&
		!x->uses[n.out[1]]) {
		n.n_out = 1;
		pass_put(x, i, &n);
	}
}

void pass_dead_code(struct pass_edit *x)
{
	for (uint32_t i = x->g->g.n_nodes; i-- > 0 && !x->g->e.code;)
		look(x, i);
}
