/* SPDX-License-Identifier: Apache-2.0
 * The loops of linear_avx2_i16.h with AVX2's multiply and add, and the unpacking that every variant over these panels
 * uses.
 */
#include "plugins/cpu/linear_avx2.h"
#define mac_i16	    mac32
#define MAC_I16_2X1 MAC32_2X1
#include "plugins/cpu/linear_avx2_i16.h"

enum { Q8_0_DIRECT_MAX = 48, IQ4_NL_DIRECT_MAX = 16 };

/* Blocks [b0, b1) of one panel into column r of the scratch. */
INLINE void unpack_run(uint32_t type, const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)
{
	const uint8_t *q = panel + b0 * i16_chunk(type);

	for (uint32_t b = b0; b < b1; b++, out += I16_SCR_BLOCK, q += i16_chunk(type)) {
		UNROLL
		for (int i = 0; i < 16; i++)
			store256(out + i * TILE_R * 32, int16_pairs(type, q, i));
		_mm256_store_ps((float *)(out + I16_SCR_D), i16_scales(type, q));
	}
}

#define UNPACK_FN(type)                                                                                      \
	static void unpack_##type(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)              \
	{                                                                                                    \
		unpack_run(TNP_##type, panel, b0, b1, out);                                                  \
	}
I16_TYPES(UNPACK_FN)

#define ROW(type) I16_ROW(type, type##_DIRECT_MAX, unpack_##type)
static const struct int_kernel kernels[] = { I16_TYPES(ROW) };

const struct int_kernel *avx2_i16_kernel(uint32_t type)
{
	return type < sizeof kernels / sizeof *kernels && kernels[type].unpack ? kernels + type : NULL;
}
