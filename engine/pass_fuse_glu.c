/* SPDX-License-Identifier: Apache-2.0
 * fuse_glu: act(gate x) * (up x) becomes one product with one output of both, and GLU. The activation may stand alone or
 * already be part of gate's product. Only where nobody else reads gate, up or the activation's result. Products of experts
 * (MOE_LINEAR) by the same numbers go together likewise.
 */
#include "engine/pass_edit.h"
#include <string.h>

struct half {
	uint32_t at;
	struct pass_node n;
};

static bool half_fits(const struct pass_edit *x, const struct half *h)
{
	return h->n.n_act == (h->n.op == TNP_OP_MOE_LINEAR ? 2 : 1) && h->n.n_out == 1 &&
		pass_n_matrices(x, &h->n) == 1 && h->n.n_weight <= 2;
}

/* t is a product, of experts or not. */
static bool product_of(struct pass_edit *x, graph_tensor t, struct half *h)
{
	return pass_made_by(x, t, TNP_OP_LINEAR, &h->at, &h->n) ||
		pass_made_by(x, t, TNP_OP_MOE_LINEAR, &h->at, &h->n);
}

/* t is act(gate): *act, and the place of an ACT of its own, or TNP_NONE. */
static bool gate_of(struct pass_edit *x, graph_tensor t, struct half *gate, int64_t *act, uint32_t *act_at)
{
	struct pass_node n;

	*act_at = TNP_NONE;
	if (product_of(x, t, gate)) {
		*act = pass_int(&gate->n, TNP_A_ACT, TNP_ACT_NONE);
		return *act != TNP_ACT_NONE && half_fits(x, gate);
	}
	if (!pass_made_by(x, t, TNP_OP_ACT, act_at, &n) || n.n_act != 1 || !pass_only_here(x, n.act[0]) ||
		!pass_same_shape(x, n.act[0], t) || !product_of(x, n.act[0], gate))
		return false;
	*act = pass_int(&n, TNP_A_ACT, TNP_ACT_NONE);
	return *act != TNP_ACT_NONE && !pass_int(&gate->n, TNP_A_ACT, TNP_ACT_NONE) && half_fits(x, gate);
}

static bool up_of(struct pass_edit *x, graph_tensor t, struct half *up)
{
	return product_of(x, t, up) && half_fits(x, up) && !pass_int(&up->n, TNP_A_ACT, TNP_ACT_NONE);
}

static void put(struct pass_edit *x, uint32_t mul, struct pass_node *n, const struct half *gate,
	const struct half *up, int64_t act)
{
	const struct tnp_tensor *y = pass_tensor(x, n->out[0]);
	struct pass_node both = { .op = gate->n.op,
		.n_act = gate->n.n_act,
		.act = { gate->n.act[0], gate->n.act[1] },
		.n_weight = 2 * gate->n.n_weight,
		.weight = { gate->n.weight[0], up->n.weight[0] },
		.n_out = 1 };

	if (gate->n.n_weight == 2) {
		both.weight[2] = gate->n.weight[1];
		both.weight[3] = up->n.weight[1];
	}
	both.out[0] = pass_rows_like(x, n->out[0], 2 * y->dim[y->rank - 1]);
	if (both.out[0] == TNP_NONE)
		return;
	pass_drop(x, MAX_OF(gate->at, up->at));
	pass_put(x, MIN_OF(gate->at, up->at), &both);
	*n = (struct pass_node){
		.op = TNP_OP_GLU, .n_act = 1, .act = { both.out[0] }, .n_out = 1, .out = { n->out[0] }
	};
	pass_set_int(n, TNP_A_ACT, act);
	pass_put(x, mul, n);
}

static bool try(struct pass_edit *x, uint32_t i, struct pass_node *n, graph_tensor a, graph_tensor b)
{
	struct half gate, up;
	uint32_t act_at;
	int64_t act;

	if (!gate_of(x, a, &gate, &act, &act_at) || !up_of(x, b, &up) || gate.at == up.at ||
		gate.n.op != up.n.op || gate.n.n_act != up.n.n_act ||
		memcmp(gate.n.act, up.n.act, gate.n.n_act * sizeof *gate.n.act) ||
		gate.n.n_weight != up.n.n_weight)
		return false;
	if (act_at != TNP_NONE)
		pass_drop(x, act_at);
	put(x, i, n, &gate, &up, act);
	return true;
}

void pass_fuse_glu(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++) {
		if (x->g->nodes[i].op != TNP_OP_MUL || !pass_get(x, i, &n) || n.n_act != 2 || n.n_out != 1 ||
			n.act[0] == n.act[1] || pass_tensor(x, n.out[0])->rank < 2 ||
			pass_tensor(x, n.out[0])->rank > 3 || !pass_same_shape(x, n.act[0], n.act[1]) ||
			!pass_same_shape(x, n.act[0], n.out[0]) || !pass_only_here(x, n.act[0]) ||
			!pass_only_here(x, n.act[1]))
			continue;
		if (!try(x, i, &n, n.act[0], n.act[1]))
			(void)try(x, i, &n, n.act[1], n.act[0]);
	}
}
