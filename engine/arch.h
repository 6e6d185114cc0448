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
};

struct arch {
	const char *name; /* general.architecture */
	void (*build)(
		const struct gguf *f, const struct arch_params *p, struct graph *g); /* faults stick in g */
};

/* The architecture of the file. FORMAT: no such key; UNSUPPORTED: by name, with those there are. */
int arch_find(const struct gguf *f, const struct arch **out, struct error *e);
/* Reads NAME.block_count and so on; every number is in range and heads divide. FORMAT, UNSUPPORTED. */
int arch_params_read(const struct gguf *f, const struct arch *a, struct arch_params *out, struct error *e);

void arch_llama_build(const struct gguf *f, const struct arch_params *p, struct graph *g);
#endif
