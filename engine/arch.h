/* SPDX-License-Identifier: Apache-2.0
 * Architectures: each is one file that builds a graph from a model file's metadata; it holds no loops over data. The
 * hyperparameters that nearly all share are read and checked here once.
 */
#ifndef ENGINE_ARCH_H
#define ENGINE_ARCH_H
#include "engine/graph.h"

struct arch_params {
	uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, n_ff, n_ctx_train, n_vocab;
	uint32_t rope_dims, window;   /* window 0: all tokens */
	double rope_base, rope_scale; /* positions are multiplied by rope_scale */
	double eps;
	uint32_t n_experts, n_experts_used, n_ff_expert; /* n_experts 0: every layer has one feed-forward */
	bool experts_norm;				 /* shares of the chosen experts add up to one */
	bool encoder;
	uint32_t pooling; /* TNP_POOL_* of an encoder */
};

struct arch {
	const char *name; /* general.architecture */
	bool encoder;	  /* gives a row for each text, not for each token */
	void (*build)(
		const struct gguf *f, const struct arch_params *p, struct graph *g); /* faults stick in g */
	uint32_t experts; /* enum arch_experts_kind */
};
enum arch_experts_kind { ARCH_EXPERTS_NONE, ARCH_EXPERTS_MAY, ARCH_EXPERTS_MUST };

/* The architecture of the file. FORMAT: no such key; UNSUPPORTED: by name, with those there are. */
int arch_find(const struct gguf *f, const struct arch **out, struct error *e);
/* Reads NAME.block_count and so on; every number is in range and heads divide. FORMAT, UNSUPPORTED. */
int arch_params_read(const struct gguf *f, const struct arch *a, struct arch_params *out, struct error *e);

void arch_bert_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_nomic_bert_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_llama_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_gemma3_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_mixtral_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_phi3_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_qwen2_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_qwen3_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
void arch_qwen3moe_build(const struct gguf *f, const struct arch_params *p, struct graph *g);

/* ---- parts that decoders share (arch_parts.c) ------------------------------------------------------------------- */
struct arch_layer { /* begin with arch_layer_of, change what differs */
	const struct arch_params *p;
	struct graph *g;
	uint32_t i;
	bool last;
	graph_tensor factors; /* of the rotary embedding; may be TNP_NONE */
	uint32_t rope_mode, window, act;
	double rope_base, rope_scale; /* positions are multiplied by rope_scale */
	double scale, cap;	      /* of the scores: factor, cap (0: none) */
	bool stacked;		      /* one matrix for q, k and v, one for gate and up */
	bool head_norms;	      /* norm over each head of q and k (attn_q_norm, attn_k_norm) */
	bool post_norms; /* norm of what attention and feed-forward add (post_attention_norm, post_ffw_norm) */
};
struct arch_layer arch_layer_of(const struct arch_params *p,
	struct graph *g); /* rotary halves, 1/sqrt(head), SiLU, the file's window */
void arch_layer_begin(struct arch_layer *l, uint32_t i);
/* rope_freqs.weight or TNP_NONE. */
graph_tensor arch_rope_factors(struct graph *g, const struct arch_params *p);
graph_tensor arch_embedding(const struct arch_params *p, struct graph *g);
graph_tensor arch_attention(const struct arch_layer *l, graph_tensor x);
graph_tensor arch_feed_forward(const struct arch_layer *l, graph_tensor x);
/* What the experts chosen for each row of h add (arch_experts.c). */
graph_tensor arch_experts(const struct arch_layer *l, graph_tensor h);
graph_tensor arch_head(
	const struct arch_params *p, struct graph *g, graph_tensor x); /* output.weight, else the embedding */
void arch_decoder_build(struct arch_layer *l);			       /* all of it, layers alike */
#endif
