/* SPDX-License-Identifier: Apache-2.0
 * llama: Llama 1 to 3, SmolLM2, TinyLlama, Mistral. GGUF stores the rows of Q and K permuted so that a rotary pair is
 * two neighbours (TNP_ROPE_PAIRS); rope_freqs.weight holds Llama 3's frequency factors.
 *
 * A layer, with the operators that opset 1 lets a node hold together:
 *	h = rmsnorm(x);  q, k, v = [Wq; Wk; Wv] h;  a = attend(rope q, rope k, v);  x = Wo a + x
 *	h = rmsnorm(x);  x = Wdown (silu(Wgate h) * Wup h) + x
 * Behind the last attention only rows that somebody reads go on: SELECT stands there, not before the head.
 */
#include "base/base.h"
#include "engine/arch.h"
#include <math.h>

struct layer {
	const struct arch_params *p;
	struct graph *g;
	uint32_t i;
	graph_tensor factors; /* of the rotary embedding; may be TNP_NONE */
	bool last;
};

/* Linear scaling of positions becomes frequency factors, since ATTEND knows no other scale: pos * s / (f base^..). */
static graph_tensor rope_factors(struct graph *g, const struct arch_params *p)
{
	graph_tensor t = graph_weight_optional(g, p->rope_dims / 2, 0, "rope_freqs.weight");
	float *f;

	if (p->rope_scale == 1)
		return t;
	if (t != TNP_NONE) {
		graph_fail(g, TENON_E_UNSUPPORTED,
			"llama.rope.scaling: together with rope_freqs.weight it is not supported");
		return TNP_NONE;
	}
	f = mem_alloc(MEM_ENGINE, p->rope_dims / 2 * sizeof *f);
	if (!f) {
		graph_fail(g, TENON_E_NOMEM, "graph: no memory");
		return TNP_NONE;
	}
	for (uint32_t i = 0; i < p->rope_dims / 2; i++)
		f[i] = (float)(1 / p->rope_scale);
	t = graph_constant(g, f, p->rope_dims / 2);
	mem_free(f);
	return t;
}

/* All three biases or none: together they must be as long as the stacked rows. */
static void qkv(const struct layer *l, graph_tensor h, graph_tensor out[3])
{
	static const char *const part[3] = { "q", "k", "v" };
	const struct arch_params *p = l->p;
	int64_t width[3] = { (int64_t)p->n_heads * p->head_dim, (int64_t)p->n_kv_heads * p->head_dim,
		(int64_t)p->n_kv_heads * p->head_dim };
	graph_tensor in[7] = { h };
	uint32_t n_bias = 0;

	for (uint32_t j = 0; j < 3; j++) {
		in[1 + j] = graph_weight(l->g, width[j], p->d_model, "blk.%u.attn_%s.weight", l->i, part[j]);
		in[4 + j] = graph_weight_optional(l->g, width[j], 0, "blk.%u.attn_%s.bias", l->i, part[j]);
		n_bias += in[4 + j] != TNP_NONE;
		out[j] = graph_rows(l->g, TNP_N_TOKENS, width[j]);
	}
	if (n_bias % 3)
		graph_fail(l->g, TENON_E_FORMAT,
			"layer %u: only some of attn_q.bias, attn_k.bias and attn_v.bias are there", l->i);
	graph_node(l->g, TNP_OP_LINEAR, in, 7, out, 3);
}

static graph_tensor attention(const struct layer *l, graph_tensor x)
{
	const struct arch_params *p = l->p;
	graph_tensor norm = graph_weight(l->g, p->d_model, 0, "blk.%u.attn_norm.weight", l->i), y, in[4];

	graph_scope(l->g, (int)l->i, "attn");
	qkv(l, graph_rmsnorm(l->g, x, norm, p->eps), in);
	in[3] = l->factors;
	y = graph_rows(l->g, TNP_N_TOKENS, (int64_t)p->n_heads * p->head_dim);
	graph_node(l->g, TNP_OP_ATTEND, in, 4, &y, 1);
	graph_attr_int(l->g, TNP_A_SLOT, l->i);
	graph_attr_int(l->g, TNP_A_HEADS, p->n_heads);
	graph_attr_int(l->g, TNP_A_KV_HEADS, p->n_kv_heads);
	graph_attr_int(l->g, TNP_A_HEAD_DIM, p->head_dim);
	graph_attr_float(l->g, TNP_A_SCALE, 1 / sqrt(p->head_dim));
	graph_attr_int(l->g, TNP_A_ROPE_MODE, TNP_ROPE_PAIRS);
	graph_attr_int(l->g, TNP_A_ROPE_DIMS, p->rope_dims);
	graph_attr_float(l->g, TNP_A_ROPE_BASE, p->rope_base);
	if (p->window)
		graph_attr_int(l->g, TNP_A_WINDOW, p->window);
	if (l->last) {
		y = graph_select(l->g, y);
		x = graph_select(l->g, x);
	}
	return graph_linear(l->g, y,
		graph_weight(l->g, p->d_model, (int64_t)p->n_heads * p->head_dim, "blk.%u.attn_output.weight",
			l->i),
		graph_weight_optional(l->g, p->d_model, 0, "blk.%u.attn_output.bias", l->i), x);
}

static graph_tensor feed_forward(const struct layer *l, graph_tensor x)
{
	const struct arch_params *p = l->p;
	graph_tensor norm = graph_weight(l->g, p->d_model, 0, "blk.%u.ffn_norm.weight", l->i);
	graph_tensor w[2] = { graph_weight(l->g, p->n_ff, p->d_model, "blk.%u.ffn_gate.weight", l->i),
		graph_weight(l->g, p->n_ff, p->d_model, "blk.%u.ffn_up.weight", l->i) };
	graph_tensor bias[2] = { graph_weight_optional(l->g, p->n_ff, 0, "blk.%u.ffn_gate.bias", l->i),
		graph_weight_optional(l->g, p->n_ff, 0, "blk.%u.ffn_up.bias", l->i) };
	graph_tensor h;

	graph_scope(l->g, (int)l->i, "ffn");
	if ((bias[0] == TNP_NONE) != (bias[1] == TNP_NONE))
		graph_fail(l->g, TENON_E_FORMAT,
			"layer %u: only one of ffn_gate.bias and ffn_up.bias is there", l->i);
	h = graph_glu(l->g, graph_rmsnorm(l->g, x, norm, p->eps), w, bias, TNP_ACT_SILU);
	return graph_linear(l->g, h, graph_weight(l->g, p->d_model, p->n_ff, "blk.%u.ffn_down.weight", l->i),
		graph_weight_optional(l->g, p->d_model, 0, "blk.%u.ffn_down.bias", l->i), x);
}

void arch_llama_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	graph_tensor table = graph_weight(g, p->n_vocab, p->d_model, "token_embd.weight"), head, x;
	struct layer l = { .p = p, .g = g, .factors = rope_factors(g, p) };

	(void)f;
	graph_scope(g, -1, "embedding");
	x = graph_embed(g, table, TNP_INDEX_TOKEN);
	for (l.i = 0; l.i < p->n_layers; l.i++) {
		l.last = l.i + 1 == p->n_layers;
		x = feed_forward(&l, attention(&l, x));
	}
	graph_scope(g, -1, "head");
	x = graph_rmsnorm(g, x, graph_weight(g, p->d_model, 0, "output_norm.weight"), p->eps);
	head = graph_weight_optional(g, p->n_vocab, p->d_model, "output.weight");
	graph_out(g, graph_linear(g, x, head != TNP_NONE ? head : table, TNP_NONE, TNP_NONE));
}
