/* SPDX-License-Identifier: Apache-2.0
 * qwen3moe: Qwen3 30B-A3B and 235B-A22B. Attention as in qwen3, every layer's feed-forward a mixture of small experts.
 */
#include "engine/arch.h"

void arch_qwen3moe_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	(void)f;
	l.factors = arch_rope_factors(g, p);
	l.head_norms = true;
	arch_decoder_build(&l);
}
