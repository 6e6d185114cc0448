/* SPDX-License-Identifier: Apache-2.0
 * Parts that decoder architectures share, arch.h. A layer, in plain operators that the passes (pass.h) put together:
 *	h = rmsnorm(x);  q = Wq h;  k = Wk h;  v = Wv h;  a = attend(rope q, rope k, v);  x = Wo a + x
 *	h = rmsnorm(x);  x = Wdown (act(Wgate h) * Wup h) + x
 * Behind the last attention only rows that somebody reads go on: SELECT stands there, not before the head.
 */
#include "base/base.h"
#include "engine/arch.h"
#include <math.h>

graph_tensor arch_rope_factors(struct graph *g, const struct arch_params *p)
{
	return graph_weight_optional(g, p->rope_dims / 2, 0, "rope_freqs.weight");
}

static void qkv_stacked(
	const struct arch_layer *l, graph_tensor h, const int64_t width[3], graph_tensor out[3])
{
	int64_t all = width[0] + width[1] + width[2];
	graph_tensor in[3] = { h, graph_weight(l->g, all, l->p->d_model, "blk.%u.attn_qkv.weight", l->i),
		graph_weight_optional(l->g, all, 0, "blk.%u.attn_qkv.bias", l->i) };

	for (uint32_t j = 0; j < 3; j++)
		out[j] = graph_rows(l->g, TNP_N_TOKENS, width[j]);
	graph_node(l->g, TNP_OP_LINEAR, in, 3, out, 3);
}

/* All three biases or none: a file with some of them is damaged. */
static void qkv(const struct arch_layer *l, graph_tensor h, graph_tensor out[3])
{
	static const char *const part[3] = { "q", "k", "v" };
	const struct arch_params *p = l->p;
	int64_t width[3] = { (int64_t)p->n_heads * p->head_dim, (int64_t)p->n_kv_heads * p->head_dim,
		(int64_t)p->n_kv_heads * p->head_dim };
	uint32_t n_bias = 0;

	if (l->stacked) {
		qkv_stacked(l, h, width, out);
		return;
	}
	for (uint32_t j = 0; j < 3; j++) {
		graph_tensor w =
			graph_weight(l->g, width[j], p->d_model, "blk.%u.attn_%s.weight", l->i, part[j]);
		graph_tensor bias =
			graph_weight_optional(l->g, width[j], 0, "blk.%u.attn_%s.bias", l->i, part[j]);

		n_bias += bias != TNP_NONE;
		out[j] = graph_linear(l->g, h, w, bias, TNP_NONE);
	}
	if (n_bias % 3)
		graph_fail(l->g, TENON_E_FORMAT,
			"layer %u: only some of attn_q.bias, attn_k.bias and attn_v.bias are there", l->i);
}

/* A norm over each head's numbers, one weight for all heads. */
static graph_tensor head_norm(const struct arch_layer *l, graph_tensor x, const char *part)
{
	graph_tensor y = graph_rmsnorm(l->g, x,
		graph_weight(l->g, l->p->head_dim, 0, "blk.%u.attn_%s_norm.weight", l->i, part), l->p->eps);

	graph_attr_int(l->g, TNP_A_GROUP, l->p->head_dim);
	return y;
}

static graph_tensor rope(const struct arch_layer *l, graph_tensor x, uint32_t heads)
{
	graph_tensor y = graph_rows(l->g, graph_symbol(l->g, x), graph_width(l->g, x)),
		     in[] = { x, l->factors };

	graph_node(l->g, TNP_OP_ROPE, in, 2, &y, 1);
	graph_attr_int(l->g, TNP_A_HEADS, heads);
	graph_attr_int(l->g, TNP_A_HEAD_DIM, l->p->head_dim);
	graph_attr_int(l->g, TNP_A_ROPE_MODE, l->rope_mode);
	graph_attr_int(l->g, TNP_A_ROPE_DIMS, l->p->rope_dims);
	graph_attr_float(l->g, TNP_A_ROPE_BASE, l->rope_base);
	if (l->rope_scale != 1)
		graph_attr_float(l->g, TNP_A_SCALE, l->rope_scale);
	return y;
}

/* W y + bias + x; where the architecture norms what a part adds, x + norm(W y + bias). */
static graph_tensor sum(const struct arch_layer *l, graph_tensor y, graph_tensor w, graph_tensor bias,
	graph_tensor x, const char *norm)
{
	if (!l->post_norms)
		return graph_linear(l->g, y, w, bias, x);
	y = graph_rmsnorm(l->g, graph_linear(l->g, y, w, bias, TNP_NONE),
		graph_weight(l->g, l->p->d_model, 0, "blk.%u.%s.weight", l->i, norm), l->p->eps);
	return graph_binary(l->g, TNP_OP_ADD, x, y);
}

graph_tensor arch_attention(const struct arch_layer *l, graph_tensor x)
{
	const struct arch_params *p = l->p;
	graph_tensor norm = graph_weight(l->g, p->d_model, 0, "blk.%u.attn_norm.weight", l->i), y, in[3];

	graph_scope(l->g, (int)l->i, "attn");
	qkv(l, graph_rmsnorm(l->g, x, norm, p->eps), in);
	if (l->head_norms) {
		in[0] = head_norm(l, in[0], "q");
		in[1] = head_norm(l, in[1], "k");
	}
	in[0] = rope(l, in[0], p->n_heads);
	in[1] = rope(l, in[1], p->n_kv_heads);
	y = graph_rows(l->g, TNP_N_TOKENS, (int64_t)p->n_heads * p->head_dim);
	graph_node(l->g, TNP_OP_ATTEND, in, 3, &y, 1);
	graph_attr_int(l->g, TNP_A_SLOT, l->i);
	graph_attr_int(l->g, TNP_A_HEADS, p->n_heads);
	graph_attr_int(l->g, TNP_A_KV_HEADS, p->n_kv_heads);
	graph_attr_int(l->g, TNP_A_HEAD_DIM, p->head_dim);
	graph_attr_float(l->g, TNP_A_SCALE, l->scale);
	if (l->window)
		graph_attr_int(l->g, TNP_A_WINDOW, l->window);
	if (l->cap > 0)
		graph_attr_float(l->g, TNP_A_CAP, l->cap);
	if (l->last) {
		y = graph_select(l->g, y);
		x = graph_select(l->g, x);
	}
	return sum(l, y,
		graph_weight(l->g, p->d_model, (int64_t)p->n_heads * p->head_dim, "blk.%u.attn_output.weight",
			l->i),
		graph_weight_optional(l->g, p->d_model, 0, "blk.%u.attn_output.bias", l->i), x,
		"post_attention_norm");
}

/* act(gate) * up of a matrix that holds both. */
static graph_tensor glu_stacked(const struct arch_layer *l, graph_tensor h)
{
	graph_tensor w = graph_weight(
			     l->g, 2 * (int64_t)l->p->n_ff, l->p->d_model, "blk.%u.ffn_up.weight", l->i),
		     both = graph_linear(l->g, h, w, TNP_NONE, TNP_NONE),
		     y = graph_rows(l->g, graph_symbol(l->g, h), l->p->n_ff);

	graph_node(l->g, TNP_OP_GLU, &both, 1, &y, 1);
	graph_attr_int(l->g, TNP_A_ACT, l->act);
	return y;
}

static graph_tensor glu(const struct arch_layer *l, graph_tensor h)
{
	const struct arch_params *p = l->p;
	graph_tensor w[2] = { graph_weight(l->g, p->n_ff, p->d_model, "blk.%u.ffn_gate.weight", l->i),
		graph_weight(l->g, p->n_ff, p->d_model, "blk.%u.ffn_up.weight", l->i) };
	graph_tensor bias[2] = { graph_weight_optional(l->g, p->n_ff, 0, "blk.%u.ffn_gate.bias", l->i),
		graph_weight_optional(l->g, p->n_ff, 0, "blk.%u.ffn_up.bias", l->i) };

	if ((bias[0] == TNP_NONE) != (bias[1] == TNP_NONE))
		graph_fail(l->g, TENON_E_FORMAT,
			"layer %u: only one of ffn_gate.bias and ffn_up.bias is there", l->i);
	return graph_glu(l->g, h, w, bias, l->act);
}

graph_tensor arch_feed_forward(const struct arch_layer *l, graph_tensor x)
{
	const struct arch_params *p = l->p;
	graph_tensor h;

	graph_scope(l->g, (int)l->i, "ffn");
	h = graph_rmsnorm(l->g, x, graph_weight(l->g, p->d_model, 0, "blk.%u.ffn_norm.weight", l->i), p->eps);
	if (p->n_experts)
		return graph_binary(l->g, TNP_OP_ADD, x, arch_experts(l, h));
	h = l->stacked ? glu_stacked(l, h) : glu(l, h);
	return sum(l, h, graph_weight(l->g, p->d_model, p->n_ff, "blk.%u.ffn_down.weight", l->i),
		graph_weight_optional(l->g, p->d_model, 0, "blk.%u.ffn_down.bias", l->i), x, "post_ffw_norm");
}

struct arch_layer arch_layer_of(const struct arch_params *p, struct graph *g)
{
	return (struct arch_layer){ .p = p,
		.g = g,
		.factors = TNP_NONE,
		.rope_mode = TNP_ROPE_HALVES,
		.rope_base = p->rope_base,
		.rope_scale = p->rope_scale,
		.scale = 1 / sqrt(p->head_dim),
		.window = p->window,
		.act = TNP_ACT_SILU };
}

void arch_layer_begin(struct arch_layer *l, uint32_t i)
{
	l->i = i;
	l->last = i + 1 == l->p->n_layers;
}

graph_tensor arch_embedding(const struct arch_params *p, struct graph *g)
{
	graph_scope(g, -1, "embedding");
	return graph_embed(g, graph_weight(g, p->n_vocab, p->d_model, "token_embd.weight"), TNP_INDEX_TOKEN);
}

graph_tensor arch_head(const struct arch_params *p, struct graph *g, graph_tensor x)
{
	graph_tensor w;

	graph_scope(g, -1, "head");
	x = graph_rmsnorm(g, x, graph_weight(g, p->d_model, 0, "output_norm.weight"), p->eps);
	w = graph_weight_optional(g, p->n_vocab, p->d_model, "output.weight");
	if (w == TNP_NONE)
		w = graph_weight(g, p->n_vocab, p->d_model, "token_embd.weight");
	return graph_linear(g, x, w, TNP_NONE, TNP_NONE);
}

void arch_decoder_build(struct arch_layer *l)
{
	graph_tensor x = arch_embedding(l->p, l->g);

	for (uint32_t i = 0; i < l->p->n_layers; i++) {
		arch_layer_begin(l, i);
		x = arch_feed_forward(l, arch_attention(l, x));
	}
	graph_out(l->g, arch_head(l->p, l->g, x));
}
