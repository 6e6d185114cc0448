/* SPDX-License-Identifier: Apache-2.0
 * llama: Llama 1 to 3, SmolLM2, TinyLlama, Mistral. GGUF stores the rows of Q and K permuted so that a rotary pair is
 * two neighbours (TNP_ROPE_PAIRS); rope_freqs.weight holds Llama 3's frequency factors. With experts
 * it is Mixtral.
 */
#include "engine/arch.h"

void arch_llama_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	if (p->n_experts) {
		arch_mixtral_build(f, p, g);
		return;
	}
	l.rope_mode = TNP_ROPE_PAIRS;
	l.factors = arch_rope_factors(g, p);
	arch_decoder_build(&l);
}
