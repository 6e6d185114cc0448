/* SPDX-License-Identifier: Apache-2.0
 * Products of 8-bit weights (Q8_0, and IQ4_NL through its table) with int16 activations, in 256-bit registers: 32
 * products of at most 128 * 32767 stay below 2^31, so a block's sum is exact in int32 and needs no trick; one fma a
 * block by the weight's scale, blocks ascending. Two paths, as in linear_avx2_i8.h. Who includes this has defined
 * mac_i16, acc plus pairs of codes x activations, and MAC_I16_2X1, the same with one word of activations against two vectors.
 */
#ifndef PLUGINS_CPU_LINEAR_AVX2_I16_H
#define PLUGINS_CPU_LINEAR_AVX2_I16_H
#include "plugins/cpu/linear_avx2_codes.h"

INLINE size_t i16_chunk(uint32_t type) { return type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK; }
INLINE __m256 i16_scales(uint32_t type, const uint8_t *q) { return scales_f16(q + i16_chunk(type) - 16); }
INLINE __m256 i16_add(__m256i acc, __m256 d, __m256 f)
{
	return _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), d, f);
}

/* One panel x T tokens. */
INLINE void direct_i16(uint32_t type, const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	__m256 f[WIDE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t b = 0; b < nb; b++, q += i16_chunk(type), a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[WIDE_T];

		UNROLL
		for (size_t line = 0; line < i16_chunk(type); line += 64)
			_mm_prefetch((const char *)q + PREFETCH + line, _MM_HINT_T0);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u = int16_pairs(type, q, i);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = mac_i16(acc[t], u, bcast(x + i * T + t));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = i16_add(acc[t], i16_scales(type, q), f[t]);
	}
	direct_store(f, scale, c, T);
}

/* Two unpacked panels x T tokens; the running sums f[T][R][8] stay in memory. */
INLINE void tile_i16(
	const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const struct ahead *ahead, const int T)
{
	for (uint32_t b = 0; b < nb; b++, w += I16_SCR_BLOCK, a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_R][TILE_T];

		ahead_fetch(ahead, b);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[0][t] = acc[1][t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u0 = _mm256_load_si256((const __m256i *)w + i * TILE_R);
			const __m256i u1 = _mm256_load_si256((const __m256i *)w + i * TILE_R + 1);

			UNROLL
			for (int t = 0; t < T; t++)
				MAC_I16_2X1(acc[0][t], acc[1][t], u0, u1, x + i * T + t);
		}
		UNROLL
		for (int t = 0; t < T; t++)
			UNROLL
		for (int r = 0; r < TILE_R; r++) {
			float *p = f + (t * TILE_R + r) * PANEL;
			const __m256 d = _mm256_load_ps((const float *)(w + I16_SCR_D) + r * PANEL);

			_mm256_store_ps(p, i16_add(acc[r][t], d, _mm256_load_ps(p)));
		}
	}
}

/* ---- instances and rows of the table ---- */

#define DIRECT_I16_FN(type, T)                                                                               \
	static void direct_##type##_##T(                                                                     \
		const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale, const struct store *c)  \
	{                                                                                                    \
		direct_i16(TNP_##type, q, nb, a, scale, c, T);                                               \
	}
#define TILE_I16_FN(name, T)                                                                                 \
	static void tile_##name##_##T(                                                                       \
		const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const struct ahead *ahead)        \
	{                                                                                                    \
		tile_i16(w, nb, a, f, ahead, T);                                                             \
	}
#define DIRECT_I16_FNS(type) WIDTHS_WIDE(DIRECT_I16_FN, type)
I16_TYPES(DIRECT_I16_FNS)
WIDTHS(TILE_I16_FN, pairs)

#define I16_NAME(name, T) name##_##T,
#define I16_ROW(type, most, unpack)                                                                          \
	[TNP_##type] = { ACT_I16_BLOCK, I16_KC, most, unpack,                                                \
		{ NULL, WIDTHS_WIDE(I16_NAME, direct_##type) }, { NULL, WIDTHS(I16_NAME, tile_pairs) } },
#endif
