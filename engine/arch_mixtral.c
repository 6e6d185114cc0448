/* SPDX-License-Identifier: Apache-2.0
 * Mixtral 8x7B and 8x22B: files call them llama and give an expert_count. Attention is Mistral's, each layer's feed-forward
 * a mixture. Files of the first days, with a tensor for each expert (ffn_gate.0.weight), are refused by name.
 */
#include "engine/arch.h"

void arch_mixtral_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	if (gguf_tensor_find(f, "blk.0.ffn_gate.0.weight"))
		graph_fail(g, TENON_E_UNSUPPORTED,
			"tensor 'blk.0.ffn_gate.0.weight': a tensor for each expert is not supported; convert the model anew");
	l.rope_mode = TNP_ROPE_PAIRS;
	l.factors = arch_rope_factors(g, p);
	arch_decoder_build(&l);
}
