/* SPDX-License-Identifier: Apache-2.0
 * bert, nomic-bert: encoders that give a text one row of unit length. Norms stand behind each part, every token sees all
 * tokens. bert adds a learned row for each position and has biases; nomic-bert turns Q and K, stacks Q, K and V, and gates.
 * What a file has decides, so that relatives with a part more or less need nothing here.
 */
#include "engine/arch.h"
#include <math.h>
#include <stdio.h>

struct encoder {
	const struct arch_params *p;
	struct graph *g;
	uint32_t i;
	bool turns; /* rotary embedding in place of learned positions */
};

static graph_tensor layernorm(const struct encoder *c, graph_tensor x, const char *name)
{
	graph_tensor y = graph_rows(c->g, graph_symbol(c->g, x), graph_width(c->g, x)),
		     in[] = { x, graph_weight(c->g, c->p->d_model, 0, "%s.weight", name),
			     graph_weight(c->g, c->p->d_model, 0, "%s.bias", name) };

	graph_node(c->g, TNP_OP_LAYERNORM, in, 3, &y, 1);
	graph_attr_float(c->g, TNP_A_EPS, c->p->eps);
	return y;
}

static graph_tensor layer_norm(const struct encoder *c, graph_tensor x, const char *part)
{
	char name[64];

	(void)snprintf(name, sizeof name, "blk.%u.%s", c->i, part);
	return layernorm(c, x, name);
}

/* A bert without one of its biases is damaged; nomic-bert may have some. */
static graph_tensor bias_of(const struct encoder *c, int64_t n, const char *part)
{
	return c->turns ? graph_weight_optional(c->g, n, 0, "blk.%u.%s.bias", c->i, part)
			: graph_weight(c->g, n, 0, "blk.%u.%s.bias", c->i, part);
}

/* W x + b + residual of this layer's part, n rows high. */
static graph_tensor product(
	const struct encoder *c, graph_tensor x, int64_t n, const char *part, graph_tensor residual)
{
	graph_tensor w = graph_weight(c->g, n, graph_width(c->g, x), "blk.%u.%s.weight", c->i, part);

	return graph_linear(c->g, x, w, bias_of(c, n, part), residual);
}

static graph_tensor turned(const struct encoder *c, graph_tensor x, uint32_t heads)
{
	graph_tensor y;

	if (!c->turns)
		return x;
	y = graph_unary(c->g, TNP_OP_ROPE, x);
	graph_attr_int(c->g, TNP_A_HEADS, heads);
	graph_attr_int(c->g, TNP_A_HEAD_DIM, c->p->head_dim);
	graph_attr_int(c->g, TNP_A_ROPE_MODE, TNP_ROPE_HALVES);
	graph_attr_int(c->g, TNP_A_ROPE_DIMS, c->p->rope_dims);
	graph_attr_float(c->g, TNP_A_ROPE_BASE, c->p->rope_base);
	if (c->p->rope_scale != 1)
		graph_attr_float(c->g, TNP_A_SCALE, c->p->rope_scale);
	return y;
}

static void qkv(const struct encoder *c, graph_tensor x, const int64_t width[3], graph_tensor out[3])
{
	static const char *const part[3] = { "attn_q", "attn_k", "attn_v" };
	int64_t all = width[0] + width[1] + width[2];
	graph_tensor w = graph_weight_optional(c->g, all, c->p->d_model, "blk.%u.attn_qkv.weight", c->i),
		     in[3] = { x, w, w == TNP_NONE ? w : bias_of(c, all, "attn_qkv") };

	for (uint32_t j = 0; j < 3 && w == TNP_NONE; j++)
		out[j] = product(c, x, width[j], part[j], TNP_NONE);
	if (w == TNP_NONE)
		return;
	for (uint32_t j = 0; j < 3; j++)
		out[j] = graph_rows(c->g, TNP_N_TOKENS, width[j]);
	graph_node(c->g, TNP_OP_LINEAR, in, 3, out, 3);
}

static graph_tensor attention(const struct encoder *c, graph_tensor x)
{
	const struct arch_params *p = c->p;
	int64_t kv = (int64_t)p->n_kv_heads * p->head_dim, q = (int64_t)p->n_heads * p->head_dim;
	graph_tensor in[3], y;

	graph_scope(c->g, (int)c->i, "attn");
	qkv(c, x, (int64_t[3]){ q, kv, kv }, in);
	in[0] = turned(c, in[0], p->n_heads);
	in[1] = turned(c, in[1], p->n_kv_heads);
	y = graph_rows(c->g, TNP_N_TOKENS, q);
	graph_node(c->g, TNP_OP_ATTEND, in, 3, &y, 1);
	graph_attr_int(c->g, TNP_A_HEADS, p->n_heads);
	graph_attr_int(c->g, TNP_A_KV_HEADS, p->n_kv_heads);
	graph_attr_int(c->g, TNP_A_HEAD_DIM, p->head_dim);
	graph_attr_int(c->g, TNP_A_CAUSAL, 0);
	graph_attr_float(c->g, TNP_A_SCALE, 1 / sqrt(p->head_dim));
	return layer_norm(c, product(c, y, p->d_model, "attn_output", x), "attn_output_norm");
}

static graph_tensor activated(const struct encoder *c, graph_tensor x, uint32_t act)
{
	graph_tensor y = graph_unary(c->g, TNP_OP_ACT, x);

	graph_attr_int(c->g, TNP_A_ACT, act);
	return y;
}

static graph_tensor feed_forward(const struct encoder *c, graph_tensor x)
{
	const struct arch_params *p = c->p;
	bool gated =
		graph_weight_optional(c->g, p->n_ff, p->d_model, "blk.%u.ffn_gate.weight", c->i) != TNP_NONE;
	graph_tensor h;

	graph_scope(c->g, (int)c->i, "ffn");
	if (gated) {
		h = activated(c, product(c, x, p->n_ff, "ffn_gate", TNP_NONE), TNP_ACT_SILU);
		h = graph_binary(c->g, TNP_OP_MUL, h, product(c, x, p->n_ff, "ffn_up", TNP_NONE));
	} else {
		h = activated(c, product(c, x, p->n_ff, "ffn_up", TNP_NONE), TNP_ACT_GELU_ERF);
	}
	return layer_norm(c, product(c, h, p->d_model, "ffn_down", x), "layer_output_norm");
}

/* All tokens are of the first type: one text, not a pair. */
static graph_tensor embedding(const struct encoder *c)
{
	const struct arch_params *p = c->p;
	graph_tensor x, type;

	graph_scope(c->g, -1, "embedding");
	x = graph_embed(
		c->g, graph_weight(c->g, p->n_vocab, p->d_model, "token_embd.weight"), TNP_INDEX_TOKEN);
	type = graph_weight_first_row(c->g, p->d_model, "token_types.weight");
	if (type != TNP_NONE)
		x = graph_binary(c->g, TNP_OP_ADD, x, type);
	if (!c->turns)
		x = graph_binary(c->g, TNP_OP_ADD, x,
			graph_embed(c->g,
				graph_weight(c->g, p->n_ctx_train, p->d_model, "position_embd.weight"),
				TNP_INDEX_POS));
	return layernorm(c, x, "token_embd_norm");
}

static graph_tensor pooled(const struct encoder *c, graph_tensor x)
{
	graph_tensor y = graph_rows(c->g, TNP_N_SEQS, c->p->d_model);

	graph_scope(c->g, -1, "pooling");
	graph_node(c->g, TNP_OP_POOL, &x, 1, &y, 1);
	graph_attr_int(c->g, TNP_A_POOL_KIND, c->p->pooling);
	return graph_unary(c->g, TNP_OP_L2NORM, y);
}

static void build(struct encoder *c)
{
	graph_tensor x = embedding(c);

	for (; c->i < c->p->n_layers; c->i++)
		x = feed_forward(c, attention(c, x));
	graph_out(c->g, pooled(c, x));
}

void arch_bert_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct encoder c = { .p = p, .g = g };

	(void)f;
	build(&c);
}

void arch_nomic_bert_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct encoder c = { .p = p, .g = g, .turns = true };

	(void)f;
	build(&c);
}
