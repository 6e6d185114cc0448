/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels for AVX-512 F, BW and VL: tiles of attn_tile.h, the rest is the AVX2 variant's, and so are the
 * bits. Nibbles become numbers by a look-up, for which only their low four bits count.
 */
#include "attn_avx2.h"
#include "avx2.h"

enum { V = 16 };

typedef __m512 vec;
INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vec_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }

/* Element i of a plane and the 15 after it; not for Q4_0. */
INLINE vec load16(const uint32_t type, const void *base, size_t i)
{
	if (type == TNP_F16)
		return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)base + i)));
	if (type == TNP_Q8_0)
		return _mm512_cvtepi32_ps(
			_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)((const int8_t *)base + i))));
	return _mm512_loadu_ps((const float *)base + i);
}

INLINE vec nibbles(__m512i n)
{
	const vec value = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

	return _mm512_permutexvar_ps(n, value);
}

/* Dimension d of 16 tokens. */
INLINE vec load_key(const uint32_t type, const void *base, uint32_t d, size_t stride, uint32_t token)
{
	__m512i n;

	if (type != TNP_Q4_0)
		return load16(type, base, d * stride + token);
	n = _mm512_cvtepu8_epi32(
		_mm_loadu_si128((const __m128i *)((const uint8_t *)base + d / 2 * stride + token)));
	return nibbles(d % 2 ? _mm512_srli_epi32(n, 4) : n);
}

/* 16 dimensions from element i (a multiple of 16) of the values on. */
INLINE vec load_value(const uint32_t type, const void *base, size_t i)
{
	const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28),
		      word = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
	__m512i n;

	if (type != TNP_Q4_0)
		return load16(type, base, i);
	n = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)((const uint8_t *)base + i / 2)));
	return nibbles(_mm512_srlv_epi32(_mm512_permutexvar_epi32(word, n), shift));
}

/* ---- softmax ---------------------------------------------------------------------------------------- */
/* exp2_neg of avx2.h, bit by bit. */
INLINE vec vec_exp2(vec x)
{
	const __mmask16 ok = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
	const vec n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
		  f = _mm512_sub_ps(x, n);
	vec p = _mm512_set1_ps(1.326697039e-03f);

	p = vec_fma(p, f, _mm512_set1_ps(9.675459746e-03f));
	p = vec_fma(p, f, _mm512_set1_ps(5.550742616e-02f));
	p = vec_fma(p, f, _mm512_set1_ps(2.402212175e-01f));
	p = vec_fma(p, f, _mm512_set1_ps(6.931469492e-01f));
	p = vec_fma(p, f, _mm512_set1_ps(1.0f));
	return _mm512_maskz_scalef_ps(ok, p, n);
}

typedef __mmask16 mask;
/* Keys [lo, hi) of vector j. */
INLINE mask keys_seen(int32_t lo, int32_t hi, uint32_t j)
{
	const uint64_t below = (1ull << hi) - (1ull << lo);

	return (mask)(below >> (V * j));
}
INLINE vec vec_hide(vec x, mask m) { return _mm512_mask_mov_ps(_mm512_set1_ps(-1e30f), m, x); }
INLINE vec vec_only(vec x, mask m) { return _mm512_maskz_mov_ps(m, x); }

INLINE __m256 low(vec x) { return _mm512_castps512_ps256(x); }
INLINE __m256 high(vec x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }

/* In the AVX2 variant's order. */
INLINE __m256 vec_sums(const vec x[2])
{
	return _mm256_add_ps(_mm256_add_ps(low(x[0]), high(x[0])), _mm256_add_ps(low(x[1]), high(x[1])));
}

#include "attn_tile.h"

/* Heads that are no multiple of 32 end in shorter vectors: the AVX2 variant's work. */
static void avx512_tile_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	(s->pad % BLOCK ? attn_avx2.tile_wide : tile_of_wide)(s, wide, n, q, lo, hi, st, stride);
}

static void avx512_tile_page(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	(s->pad % BLOCK ? attn_avx2.tile_page : tile_of_page)(s, half, n, q, lo, hi, st, stride);
}

static void avx512_widen(const struct attn_shape *s, const struct attn_half half[2], float *tile)
{
	(s->pad % V ? attn_avx2.widen : tile_widen)(s, half, tile);
}

const struct attn_ops attn_avx512 = {
	.store = attn_avx2_store,
	.widen = avx512_widen,
	.gather = attn_gather,
	.tile_wide = avx512_tile_wide,
	.tile_page = avx512_tile_page,
	.merge = attn_avx2_merge,
	.finish = attn_avx2_finish,
};
