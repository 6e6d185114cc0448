/* SPDX-License-Identifier: Apache-2.0
 * Products of 8-bit weights (Q8_0, and IQ4_NL through its table) with int16 activations: 32 products of at most
 * 128 * 32767 stay below 2^31, so a block's sum is exact in int32 and needs no trick; one fma a block by the
 * weight's scale, blocks ascending. Two paths, as in linear_avx2_i8.c.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum { DIRECT_MAX = 64 };

INLINE size_t chunk_bytes(uint32_t type) { return type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK; }
INLINE __m256 chunk_scales(uint32_t type, const uint8_t *q) { return scales_f16(q + chunk_bytes(type) - 16); }

INLINE __m256 cell(__m256i acc, __m256 d, __m256 f) { return _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), d, f); }

/* One panel x T tokens. */
INLINE void direct_run(uint32_t type, const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	__m256 f[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t b = 0; b < nb; b++, q += chunk_bytes(type), a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_T];

		for (size_t line = 0; line < chunk_bytes(type); line += 64)
			_mm_prefetch((const char *)q + PREFETCH + line, _MM_HINT_T0);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u = int16_pairs(type, q, i);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = mac32(acc[t], u, bcast(x + i * T + t));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = cell(acc[t], chunk_scales(type, q), f[t]);
	}
	UNROLL
	for (int t = 0; t < T; t++)
		store_cols(c->c + t * c->ldc, _mm256_mul_ps(f[t], _mm256_set1_ps(scale[t])), c->jn);
}

/* Blocks [b0, b1) of one panel into column r of the scratch. */
INLINE void unpack_run(uint32_t type, const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)
{
	const uint8_t *q = panel + b0 * chunk_bytes(type);

	for (uint32_t b = b0; b < b1; b++, out += I16_SCR_BLOCK, q += chunk_bytes(type)) {
		UNROLL
		for (int i = 0; i < 16; i++)
			store256(out + i * TILE_R * 32, int16_pairs(type, q, i));
		_mm256_store_ps((float *)(out + I16_SCR_D), chunk_scales(type, q));
	}
}

INLINE void tile_run(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	for (uint32_t b = 0; b < nb; b++, w += I16_SCR_BLOCK, a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_R][TILE_T];

		UNROLL
		for (int t = 0; t < T; t++)
			acc[0][t] = acc[1][t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u0 = _mm256_load_si256((const __m256i *)w + i * TILE_R);
			const __m256i u1 = _mm256_load_si256((const __m256i *)w + i * TILE_R + 1);

			UNROLL
			for (int t = 0; t < T; t++)
				MAC32_2X1(acc[0][t], acc[1][t], u0, u1, x + i * T + t);
		}
		UNROLL
		for (int t = 0; t < T; t++)
			UNROLL
		for (int r = 0; r < TILE_R; r++) {
			float *p = f + (t * TILE_R + r) * PANEL;
			const __m256 d = _mm256_load_ps((const float *)(w + I16_SCR_D) + r * PANEL);

			_mm256_store_ps(p, cell(acc[r][t], d, _mm256_load_ps(p)));
		}
	}
}

/* ---- instances ---- */

#define DIRECT_FN(type, T)                                                                                   \
	static void direct_##type##_##T(                                                                     \
		const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale, const struct store *c)  \
	{                                                                                                    \
		direct_run(TNP_##type, q, nb, a, scale, c, T);                                               \
	}
#define TILE_FN(a, T)                                                                                        \
	static void tile_##T(const uint8_t *w, uint32_t nb, const uint8_t *x, float *f)                      \
	{                                                                                                    \
		tile_run(w, nb, x, f, T);                                                                    \
	}
#define TYPE_FNS(type)                                                                                       \
	WIDTHS(DIRECT_FN, type)                                                                              \
	static void unpack_##type(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)              \
	{                                                                                                    \
		unpack_run(TNP_##type, panel, b0, b1, out);                                                  \
	}
I16_TYPES(TYPE_FNS)
WIDTHS(TILE_FN, 0)

#define DIRECT_NAME(type, T) direct_##type##_##T,
#define TILE_NAME(a, T)	     tile_##T,
#define TYPE_ROW(type)                                                                                       \
	[TNP_##type] = { ACT_I16_BLOCK, I16_KC, DIRECT_MAX, unpack_##type,                                   \
		{ NULL, WIDTHS(DIRECT_NAME, type) }, { NULL, WIDTHS(TILE_NAME, 0) } },

static const struct int_kernel kernels[] = { I16_TYPES(TYPE_ROW) };

const struct int_kernel *avx2_i16_kernel(uint32_t type)
{
	return type < sizeof kernels / sizeof *kernels && kernels[type].unpack ? kernels + type : NULL;
}
