/* SPDX-License-Identifier: Apache-2.0
 * Products of one 8-row panel of linear_avx2.h, in 256-bit registers, by instructions that add four products of
 * bytes (vpdpbusd) or two of int16 (vpdpwssd) into int32. Whoever includes this defines DPBUSD and DPWSSD as the
 * intrinsics of its instruction set: AVX-VNNI (VEX) or AVX-512 VNNI with VL (EVEX).
 *
 * Bits are those of the AVX2 variant. There a block's exact int32 sum x block scale is rounded to float once; here
 * the exact int32 sum, below 2^17, times the scale as a float is rounded once.
 */
#ifndef PLUGINS_CPU_LINEAR_VNNI_BLOCK_H
#define PLUGINS_CPU_LINEAR_VNNI_BLOCK_H
#include "plugins/cpu/linear_avx2_codes.h"
#if !defined(DPBUSD) || !defined(DPWSSD)
#error "define DPBUSD and DPWSSD first"
#endif

/* What the T tokens of a block share with no one: [token]. */
struct turn {
	_Alignas(32) float s[PANEL];
	_Alignas(
		32) int32_t begin[2][PANEL]; /* what the sums of each half begin with: minus the zero point */
	_Alignas(32) float min[2][PANEL]; /* what the halves' minima are multiplied with                  */
};

INLINE void turn_make(int form, const uint32_t *x, const int T, struct turn *o)
{
	const __m256i one = _mm256_set1_epi16(1);
	const __m256i all = _mm256_madd_epi16(load256(x + X_CORR * T), one);
	const __m256i lo = _mm256_madd_epi16(load256(x + X_CORR16 * T), one), hi = _mm256_sub_epi32(all, lo);
	const __m256 s = _mm256_cvtepi32_ps(_mm256_srli_epi32(load256(x + X_S * T), 16));

	_mm256_store_ps(o->s, s);
	if (form == I8_Z8)
		store256(o->begin[0], all);
	if (form == I8_Z16 || form == I8_Z16_MIN)
		store256(o->begin[0], _mm256_add_epi32(all, all));
	if (form_min(form))
		store256(o->min[0], load256(x + X_SSUM * T));
	if (form_halves(form)) {
		store256(o->begin[0], _mm256_slli_epi32(lo, 2));
		store256(o->begin[1], _mm256_slli_epi32(hi, 2));
	}
	if (form == I8_HALVES_MIN) {
		_mm256_store_ps(o->min[0], _mm256_mul_ps(_mm256_cvtepi32_ps(lo), s));
		_mm256_store_ps(o->min[1], _mm256_mul_ps(_mm256_cvtepi32_ps(hi), s));
	}
}

INLINE int form_begins(int form) { return form != I8_MIN; }
INLINE int form_adds(int form) { return form_min(form) || form == I8_HALVES_MIN; }

/* What the int32 sums of half h of token t begin with. */
INLINE __m256i turn_begin(int form, const struct turn *o, int h, int t)
{
	return form_begins(form) ? _mm256_set1_epi32(o->begin[h][t]) : _mm256_setzero_si256();
}

/* f plus the sums of half h of token t. */
INLINE __m256 turn_add(
	int form, const struct turn *o, int h, int t, __m256i acc, __m256 d, __m256 m, __m256 f)
{
	f = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), _mm256_set1_ps(o->s[t])), d, f);
	return form_adds(form) ? _mm256_fmadd_ps(_mm256_set1_ps(o->min[h][t]), m, f) : f;
}

INLINE void direct_block(
	uint32_t type, const uint8_t *chunk, uint32_t b, const uint32_t *x, __m256 *f, const int T)
{
	const uint8_t *q = chunk + b * type_codes(type);
	const int form = type_form(type);
	__m256i acc[TILE_T];
	struct turn o;
	__m256 d, m;

	turn_make(form, x, T, &o);
	UNROLL
	for (int h = 0; h < 2; h++) {
		UNROLL
		for (int t = 0; t < T; t++)
			if (h == 0 || form_halves(form))
				acc[t] = turn_begin(form, &o, h, t);
		UNROLL
		for (int v = 0; v < 4; v++) {
			const __m256i u = codes_u8(type, q, v, h);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = DPBUSD(acc[t], u, bcast(x + (4 * h + v) * T + t));
		}
		if (h == 0 && !form_halves(form))
			continue;
		scales_i8(type, chunk, b, h, &d, &m);
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = turn_add(form, &o, form_halves(form) ? h : 0, t, acc[t], d, m, f[t]);
	}
}

INLINE void direct_store(const __m256 *f, const float *scale, const struct store *c, const int T)
{
	UNROLL
	for (int t = 0; t < T; t++)
		store_cols(c->c + t * c->ldc, _mm256_mul_ps(f[t], _mm256_set1_ps(scale[t])), c->jn);
}

INLINE void direct_i8(uint32_t type, const uint8_t *panel, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const uint32_t blocks = type_blocks(type), share = (uint32_t)type_chunk(type) / blocks;
	__m256 f[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < nb; i += blocks, panel += type_chunk(type))
		for (uint32_t b = 0; b < blocks; b++, a += T * ACT_I8_BLOCK) {
			UNROLL
			for (uint32_t at = 0; at < share; at += 64)
				_mm_prefetch((const char *)panel + PREFETCH + b * share + at, _MM_HINT_T0);
			direct_block(type, panel, b, (const uint32_t *)a, f, T);
		}
	direct_store(f, scale, c, T);
}

INLINE void direct_i16(uint32_t type, const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK;
	__m256 f[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t b = 0; b < nb; b++, q += bytes, a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_T];

		UNROLL
		for (size_t at = 0; at < bytes; at += 64)
			_mm_prefetch((const char *)q + PREFETCH + at, _MM_HINT_T0);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u = int16_pairs(type, q, i);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = DPWSSD(acc[t], u, bcast(x + i * T + t));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[t]), scales_f16(q + bytes - 16), f[t]);
	}
	direct_store(f, scale, c, T);
}

/* ---- instances: X(a, width) for WIDTHS ---- */

#define DIRECT_FN(kind, type, T)                                                                             \
	static void direct_##type##_##T(const uint8_t *panel, uint32_t nb, const uint8_t *a,                 \
		const float *scale, const struct store *c)                                                   \
	{                                                                                                    \
		direct_##kind(TNP_##type, panel, nb, a, scale, c, T);                                        \
	}
#define DIRECT8_FN(type, T)  DIRECT_FN(i8, type, T)
#define DIRECT16_FN(type, T) DIRECT_FN(i16, type, T)
#define DIRECT_NAME(type, T) direct_##type##_##T,
#endif
