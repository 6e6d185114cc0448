/* SPDX-License-Identifier: Apache-2.0
 * graph_cost.h.
 */
#include "engine/graph_cost.h"
#include "base/base.h"
#include "engine/gguf.h"

static uint64_t mul(uint64_t a, uint64_t b)
{
	uint64_t n;

	return checked_mul_u64(a, b, &n) ? n : UINT64_MAX;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	uint64_t n;

	return checked_add_u64(a, b, &n) ? n : UINT64_MAX;
}

static uint64_t count(const struct tnp_tensor *x, const struct graph_step *s)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < x->rank; d++)
		n = mul(n,
			x->dim[d] == TNP_N_TOKENS	  ? s->n_tokens
				: x->dim[d] == TNP_N_SEQS ? s->n_seqs
				: x->dim[d] == TNP_N_OUT  ? s->n_out
							  : (uint64_t)x->dim[d]);
	return n;
}

static int64_t whole(const struct tnp_graph *t, const struct tnp_node *n, uint32_t key, int64_t otherwise)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (t->attrs[n->attr0 + i].key == key && !t->attrs[n->attr0 + i].is_float)
			return t->attrs[n->attr0 + i].v.i;
	return otherwise;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Of E experts no more are read than rows choose. */
static uint64_t experts_read(const struct tnp_graph *t, const struct tnp_node *n, const struct graph_step *s,
	const struct tnp_tensor *w)
{
	uint64_t experts = (uint64_t)w->dim[0],
		 chosen = n->n_in > 1 ? count(&t->tensors[t->edges[n->in0 + 1]], s) : experts;

	return mul(w->bytes / experts, MIN_OF(chosen, experts));
}

static uint64_t weight_bytes(const struct tnp_graph *t, const struct tnp_node *n, const struct graph_step *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct tnp_tensor *w = &t->tensors[t->edges[n->in0 + i]];

		if (w->buffer == TNP_NONE)
			continue;
		if (n->op == TNP_OP_EMBED && w->rank == 2 && w->dim[0] > 0)
			sum = add(sum, mul(w->bytes / (uint64_t)w->dim[0], s->n_tokens));
		else if (n->op == TNP_OP_MOE_LINEAR && w->rank == 3 && w->dim[0] > 0)
			sum = add(sum, experts_read(t, n, s, w));
		else
			sum = add(sum, w->bytes);
	}
	return sum;
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

/* Places that the step's tokens see, all tokens together. */
static uint64_t places_seen(uint64_t n, uint64_t past, uint64_t window, bool causal)
{
	uint64_t sum = 0, ramp;

	if (!causal)
		return mul(n, n);
	if (!window)
		return add(mul(n, past), mul(n, n + 1) / 2);
	ramp = past + 1 >= window ? 0 : MIN_OF(n, window - past - 1); /* tokens that see less than a window */
	sum = add(mul(ramp, past), mul(ramp, ramp + 1) / 2);
	return add(sum, mul(n - ramp, window));
}

static void attend(
	const struct tnp_graph *t, const struct tnp_node *n, const struct graph_step *s, struct graph_cost *c)
{
	bool causal = whole(t, n, TNP_A_CAUSAL, 1) != 0;
	uint64_t d = (uint64_t)whole(t, n, TNP_A_HEAD_DIM, 0),
		 window = (uint64_t)whole(t, n, TNP_A_WINDOW, 0),
		 kv = mul(2 * d, (uint64_t)whole(t, n, TNP_A_KV_HEADS, 0)), reach = add(s->past, s->n_tokens);
	uint32_t elements = 1, bytes = 4;

	c->operations = mul(mul(4 * d, (uint64_t)whole(t, n, TNP_A_HEADS, 0)),
		places_seen(s->n_tokens, s->past, window, causal));
	if (!causal || !gguf_type_block(s->kv_type, &elements, &bytes))
		return;
	if (window)
		reach = MIN_OF(reach, window + s->n_tokens);
	c->kv_bytes = mul(kv / elements * bytes, add(reach, s->n_tokens));
}

/* ---- a node ---------------------------------------------------------------------------------------------------------- */

static uint64_t products(const struct tnp_graph *t, const struct tnp_node *n, const struct graph_step *s)
{
	const struct tnp_tensor *x = n->n_in ? &t->tensors[t->edges[n->in0]] : NULL;
	uint64_t outs = 0;

	for (uint32_t i = 0; i < n->n_out; i++)
		outs = add(outs, count(&t->tensors[t->edges[n->out0 + i]], s));
	return x && x->dim[x->rank - 1] > 0 ? mul(outs, 2 * (uint64_t)x->dim[x->rank - 1]) : 0;
}

/* Operations on each number of the output, or of the input where that is larger. */
static uint32_t per_number(uint32_t op)
{
	switch (op) {
	case TNP_OP_LAYERNORM:
		return 6;
	case TNP_OP_RMSNORM:
		return 4;
	case TNP_OP_ROPE:
	case TNP_OP_L2NORM:
		return 3;
	case TNP_OP_SOFTCAP:
	case TNP_OP_MOE_SUM:
		return 2;
	case TNP_OP_SELECT:
	case TNP_OP_RESHAPE:
	case TNP_OP_TRANSPOSE:
	case TNP_OP_EMBED:
		return 0;
	}
	return 1;
}

void graph_node_cost(
	const struct tnp_graph *t, uint32_t node, const struct graph_step *s, struct graph_cost *out)
{
	const struct tnp_node *n = &t->nodes[node];
	uint64_t numbers = 0, most = 0;

	*out = (struct graph_cost){ .weight_bytes = weight_bytes(t, n, s) };
	for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
		const struct tnp_tensor *x =
			&t->tensors[t->edges[i < n->n_in ? n->in0 + i : n->out0 + i - n->n_in]];

		if (x->buffer != TNP_NONE)
			continue;
		numbers = add(numbers, count(x, s));
		most = MAX_OF(most, count(x, s));
	}
	out->activation_bytes = mul(numbers, sizeof(float));
	if (n->op == TNP_OP_ATTEND)
		attend(t, n, s, out);
	else if (n->op == TNP_OP_LINEAR || n->op == TNP_OP_MOE_LINEAR)
		out->operations = products(t, n, s);
	else if (n->op == TNP_OP_MOE_ROUTE && n->n_in == 2)
		out->operations = mul(2 * (uint64_t)t->tensors[t->edges[n->in0 + 1]].dim[0], most);
	else
		out->operations = mul(per_number(n->op), most);
}

void graph_total_cost(const struct tnp_graph *t, const struct graph_step *s, struct graph_cost *out)
{
	*out = (struct graph_cost){ 0 };
	for (uint32_t i = 0; i < t->n_nodes; i++) {
		struct graph_cost c;

		graph_node_cost(t, i, s, &c);
		out->weight_bytes = add(out->weight_bytes, c.weight_bytes);
		out->activation_bytes = add(out->activation_bytes, c.activation_bytes);
		out->kv_bytes = add(out->kv_bytes, c.kv_bytes);
		out->operations = add(out->operations, c.operations);
	}
}
