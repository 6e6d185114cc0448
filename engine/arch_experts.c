/* SPDX-License-Identifier: Apache-2.0
 * The feed-forward part of a mixture of experts, in plain operators; files hold the experts of a layer as one tensor:
 *	ids, share = route(Wrouter h)
 *	y = sum over the chosen e of share[e] * Wdown[e] (act(Wgate[e] h) * Wup[e] h)
 */
#include "base/base.h"
#include "engine/arch.h"

static graph_tensor of_each(const struct arch_layer *l, graph_tensor ids, uint32_t type, int64_t width)
{
	return graph_ranked(l->g, type, graph_symbol(l->g, ids), l->p->n_experts_used, width);
}

static graph_tensor route(const struct arch_layer *l, graph_tensor h, graph_tensor *ids)
{
	const struct arch_params *p = l->p;
	graph_tensor in[2] = { h,
		graph_weight(l->g, p->n_experts, p->d_model, "blk.%u.ffn_gate_inp.weight", l->i) },
		     out[2] = { of_each(l, h, TNP_I32, 0), of_each(l, h, TNP_F32, 0) };

	graph_node(l->g, TNP_OP_MOE_ROUTE, in, 2, out, 2);
	graph_attr_int(l->g, TNP_A_TOP_K, p->n_experts_used);
	graph_attr_int(l->g, TNP_A_NORM, p->experts_norm);
	*ids = out[0];
	return out[1];
}

static graph_tensor linear(
	const struct arch_layer *l, graph_tensor x, graph_tensor ids, const char *part, int64_t n, int64_t k)
{
	graph_tensor in[3] = { x, ids,
		graph_weight_experts(l->g, l->p->n_experts, n, k, "blk.%u.ffn_%s_exps.weight", l->i, part) };
	graph_tensor y = of_each(l, ids, TNP_F32, n);

	graph_node(l->g, TNP_OP_MOE_LINEAR, in, 3, &y, 1);
	return y;
}

graph_tensor arch_experts(const struct arch_layer *l, graph_tensor h)
{
	const struct arch_params *p = l->p;
	int64_t m = p->n_ff_expert;
	graph_tensor ids, share = route(l, h, &ids), gate = linear(l, h, ids, "gate", m, p->d_model),
			  up = linear(l, h, ids, "up", m, p->d_model), in[2], y;

	y = of_each(l, ids, TNP_F32, m);
	graph_node(l->g, TNP_OP_ACT, &gate, 1, &y, 1);
	graph_attr_int(l->g, TNP_A_ACT, l->act);
	in[0] = y, in[1] = up;
	y = of_each(l, ids, TNP_F32, m);
	graph_node(l->g, TNP_OP_MUL, in, 2, &y, 1);
	in[0] = linear(l, y, ids, "down", p->d_model, m), in[1] = share;
	y = graph_rows(l->g, graph_symbol(l->g, h), p->d_model);
	graph_node(l->g, TNP_OP_MOE_SUM, in, 2, &y, 1);
	return y;
}
