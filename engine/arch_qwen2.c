/* SPDX-License-Identifier: Apache-2.0
 * qwen2: Qwen 1.5, 2 and 2.5. Biases on Q, K and V; rotary pairs lie half a head apart. The window that some files name
 * is not used by these models as published, but a file that has it means it.
 */
#include "engine/arch.h"

void arch_qwen2_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	struct arch_layer l = arch_layer_of(p, g);

	(void)f;
	l.factors = arch_rope_factors(g, p);
	arch_decoder_build(&l);
}
