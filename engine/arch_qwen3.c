/* SPDX-License-Identifier: Apache-2.0
 * qwen3, dense: like qwen2 without biases, with a norm over each head of Q and K in front of the rotary embedding.
 */
#include "engine/arch.h"

void arch_qwen3_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	(void)f;
	l.factors = arch_rope_factors(g, p);
	l.head_norms = true;
	arch_decoder_build(&l);
}
