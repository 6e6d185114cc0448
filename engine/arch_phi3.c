/* SPDX-License-Identifier: Apache-2.0
 * phi3: Phi-3 and Phi-3.5 mini and medium, Phi-4. Q, K and V are one matrix, gate and up are one; rotary pairs lie half
 * a head apart. Models for long contexts choose other rotary factors by the length of the text, which would change what
 * is cached already: refused by name.
 */
#include "engine/arch.h"

void arch_phi3_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	if (gguf_tensor_find(f, "rope_factors_long.weight"))
		graph_fail(g, TENON_E_UNSUPPORTED,
			"tensor 'rope_factors_long.weight': rotary factors that depend on the length of the text are not supported");
	l.factors = arch_rope_factors(g, p);
	l.stacked = true;
	arch_decoder_build(&l);
}
