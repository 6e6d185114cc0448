/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels for AVX-512 F, BW and VL: tiles of 6 query rows (attn_tile.h), the rest is the AVX2 variant's, and
 * so are the bits. Nibbles become numbers by a look-up, for which only their low four bits count.
 */
#include "attn_avx2.h"
#include "avx2.h"
#include <string.h>

enum { V = 16, ROWS = 6 };
#define ROWS_EACH(X, type) X(type, 1) X(type, 2) X(type, 3) X(type, 4) X(type, 5) X(type, 6)

typedef __m512 vec;
INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vec_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
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
INLINE vec exp2_wide(vec x)
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

/* Keys [lo, hi) of vector j. */
INLINE __mmask16 seen(int32_t lo, int32_t hi, uint32_t j)
{
	const uint64_t below = (1ull << hi) - (1ull << lo);

	return (__mmask16)(below >> (V * j));
}

static void scores_cap(float *p, float cap)
{
	for (uint32_t i = 0; i < ATTN_TILE; i += 8)
		_mm256_storeu_ps(p + i, _mm256_mul_ps(tanh_ps(_mm256_loadu_ps(p + i)), _mm256_set1_ps(cap)));
}

INLINE __m256 low(vec x) { return _mm512_castps512_ps256(x); }
INLINE __m256 high(vec x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }

/* The largest lane of each of eight vectors. */
INLINE __m256 tops(const __m256 x[8])
{
	__m256 a[4], b[2];

	UNROLL
	for (int i = 0; i < 4; i++)
		a[i] = _mm256_max_ps(_mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]),
			_mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]));
	UNROLL
	for (int i = 0; i < 2; i++)
		b[i] = _mm256_max_ps(_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),
			_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
	return _mm256_max_ps(
		_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
}

/* Shares of one row, whose top is known; the eight sums are added in the AVX2 variant's order. */
INLINE void row_shares(float *p, vec x0, vec x1, __mmask16 see0, __mmask16 see1, vec top, float *st, vec down)
{
	__m256 sum;

	x0 = _mm512_maskz_mov_ps(see0, exp2_wide(_mm512_sub_ps(x0, top)));
	x1 = _mm512_maskz_mov_ps(see1, exp2_wide(_mm512_sub_ps(x1, top)));
	vec_store(p, x0);
	vec_store(p + V, x1);
	sum = _mm256_add_ps(_mm256_add_ps(low(x0), high(x0)), _mm256_add_ps(low(x1), high(x1)));
	_mm256_storeu_ps(st + 8, _mm256_fmadd_ps(_mm256_loadu_ps(st + 8), low(down), sum));
}

/* All rows at once: their tops and what the old states shrink by fit one vector. A row that is not live sees nothing,
 * its top stays and its shares are zeros. */
INLINE void shares(const uint32_t R, uint32_t live, float cap, const int32_t *lo, const int32_t *hi,
	float p[ROWS][ATTN_TILE], float *state, size_t stride, vec down[ROWS])
{
	const vec hidden = _mm512_set1_ps(-1e30f);
	__m256 top[8], old, most;
	_Alignas(32) float is[8];
	vec x[ROWS][2], shrink;
	__mmask16 see[ROWS][2];

	UNROLL
	for (uint32_t r = 0; r < 8; r++)
		top[r] = low(hidden);
	UNROLL
	for (uint32_t r = 0; r < R; r++) {
		if (cap > 0)
			scores_cap(p[r], cap);
		for (uint32_t j = 0; j < 2; j++) {
			see[r][j] = live >> r & 1 ? seen(lo[r], hi[r], j) : 0;
			x[r][j] = _mm512_mask_loadu_ps(hidden, see[r][j], p[r] + V * j);
		}
		top[r] = _mm256_max_ps(_mm256_max_ps(low(x[r][0]), high(x[r][0])),
			_mm256_max_ps(low(x[r][1]), high(x[r][1])));
	}
	old = _mm256_setr_ps(state[0], R > 1 ? state[stride] : 0, R > 2 ? state[2 * stride] : 0,
		R > 3 ? state[3 * stride] : 0, R > 4 ? state[4 * stride] : 0, R > 5 ? state[5 * stride] : 0,
		0, 0);
	most = _mm256_max_ps(tops(top), old);
	shrink = _mm512_castps256_ps512(exp2_neg(_mm256_sub_ps(old, most)));
	_mm256_store_ps(is, most);
	UNROLL
	for (uint32_t r = 0; r < R; r++) {
		float *st = state + r * stride;

		if (!(live >> r & 1)) {
			memset(p[r], 0, sizeof p[r]);
			down[r] = vec_zero();
			continue;
		}
		down[r] = _mm512_permutexvar_ps(_mm512_set1_epi32((int)r), shrink);
		row_shares(p[r], x[r][0], x[r][1], see[r][0], see[r][1],
			_mm512_permutexvar_ps(_mm512_set1_epi32((int)r), _mm512_castps256_ps512(most)), st,
			down[r]);
		st[0] = is[r];
	}
}

#include "attn_tile.h"

/* Heads that are no multiple of 32 end in shorter vectors: the AVX2 variant's work, fewer rows at a time. */
static void avx512_tile_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	if (s->pad % BLOCK == 0) {
		tile_of_wide(s, wide, n, q, lo, hi, st, stride);
		return;
	}
	for (uint32_t i = 0, m; i < n; i += m) {
		m = n - i < attn_avx2.rows ? n - i : attn_avx2.rows;
		attn_avx2.tile_wide(
			s, wide, m, q + (size_t)i * s->pad, lo + i, hi + i, st + i * stride, stride);
	}
}

static void avx512_tile_page(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	if (s->pad % BLOCK == 0) {
		tile_of_page(s, half, n, q, lo, hi, st, stride);
		return;
	}
	for (uint32_t i = 0, m; i < n; i += m) {
		m = n - i < attn_avx2.rows ? n - i : attn_avx2.rows;
		attn_avx2.tile_page(
			s, half, m, q + (size_t)i * s->pad, lo + i, hi + i, st + i * stride, stride);
	}
}

/* ---- widening --------------------------------------------------------------------------------------------- */
INLINE void widen(const uint32_t type, const struct attn_shape *s, const struct source *src, float *out)
{
	float *value = out + (size_t)ATTN_TILE * s->pad;

	for (uint32_t d = 0; d < s->pad; d++, out += ATTN_TILE) {
		vec_store(out, load_key(type, src->k[0], d, src->k_stride, 0));
		vec_store(out + V, load_key(type, src->k[1], d, src->k_stride, 0));
	}
	for (uint32_t t = 0; t < ATTN_TILE; t++)
		for (uint32_t h = 0; h < s->pad; h += V, value += V)
			vec_store(value,
				load_value(type, src->v[t / ATTN_HALF],
					(size_t)(t % ATTN_HALF) * src->v_stride + h));
}

static void avx512_widen(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const struct source src = source_page(s, half);

	if (s->pad % V) {
		attn_avx2_widen(s, half, out);
		return;
	}
	if (attn_has_scales(s->type))
		attn_scales_gather(s, half, attn_wide_scales(s, out));
	if (s->type == TNP_F16)
		widen(TNP_F16, s, &src, out);
	else if (s->type == TNP_Q8_0)
		widen(TNP_Q8_0, s, &src, out);
	else if (s->type == TNP_Q4_0)
		widen(TNP_Q4_0, s, &src, out);
	else
		widen(TNP_F32, s, &src, out);
}

const struct attn_ops attn_avx512 = {
	.rows = ROWS,
	.store = attn_avx2_store,
	.widen = avx512_widen,
	.gather = attn_avx2_gather,
	.tile_wide = avx512_tile_wide,
	.tile_page = avx512_tile_page,
	.merge = attn_avx2_merge,
	.finish = attn_avx2_finish,
};
