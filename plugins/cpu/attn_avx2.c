/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels for AVX2, FMA and F16C: tiles of attn_tile.h, and what is not worth more for wider registers: storing,
 * merging.
 */
#include "attn_avx2.h"
#include "avx2.h"
#include "half.h"
#include <string.h>
#include <tenon/plugin.h>

enum { V = 8 };

typedef __m256 vec;
INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
INLINE vec vec_set(float x) { return _mm256_set1_ps(x); }
INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vec_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
INLINE vec vec_exp2(vec x) { return exp2_neg(x); }

INLINE __m256 from_bytes(__m128i b) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)); }

/* Element i of a plane and the seven after it; not for Q4_0. */
INLINE __m256 load8(const uint32_t type, const void *base, size_t i)
{
	if (type != TNP_F16 && type != TNP_Q8_0)
		return _mm256_loadu_ps((const float *)base + i);
	if (type == TNP_F16)
		return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)base + i)));
	return from_bytes(_mm_loadl_epi64((const __m128i *)((const int8_t *)base + i)));
}

/* Dimension d of eight tokens. (Sixteen at a time would save the byte types work, but costs all types registers.) */
INLINE __m256 load_key(const uint32_t type, const void *base, uint32_t d, size_t stride, uint32_t token)
{
	const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
	__m128i b;

	if (type != TNP_Q4_0)
		return load8(type, base, d * stride + token);
	b = _mm_loadl_epi64((const __m128i *)((const uint8_t *)base + d / 2 * stride + token));
	b = d % 2 ? _mm_srli_epi16(b, 4) : b;
	return from_bytes(_mm_sub_epi8(_mm_and_si128(b, low), eight));
}

/* Eight dimensions from element i (a multiple of 8) of the values on. */
INLINE __m256 load_value(const uint32_t type, const void *base, size_t i)
{
	const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
	int32_t word;
	__m128i b;

	if (type != TNP_Q4_0)
		return load8(type, base, i);
	memcpy(&word, (const uint8_t *)base + i / 2, sizeof word);
	b = _mm_cvtsi32_si128(word);
	b = _mm_unpacklo_epi8(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(b, 4), low));
	return from_bytes(_mm_sub_epi8(b, eight));
}

/* ---- scales -------------------------------------------------------------------------------------- */
/* Eight scales of values, `stride` apart, as floats. */
INLINE __m256 scales_apart(const uint16_t *s, size_t stride)
{
	__m128i h = _mm_cvtsi32_si128(s[0]);

	h = _mm_insert_epi16(h, s[stride], 1);
	h = _mm_insert_epi16(h, s[2 * stride], 2);
	h = _mm_insert_epi16(h, s[3 * stride], 3);
	h = _mm_insert_epi16(h, s[4 * stride], 4);
	h = _mm_insert_epi16(h, s[5 * stride], 5);
	h = _mm_insert_epi16(h, s[6 * stride], 6);
	h = _mm_insert_epi16(h, s[7 * stride], 7);
	return _mm256_cvtph_ps(h);
}

/* Scales of a tile in pages: keys have them [block][page], values [token][blocks]. out: both [block][ATTN_TILE]. */
void attn_scales_gather(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const size_t plane = attn_plane(s->type, s->pad, s->page), blocks = attn_blocks(s->pad);
	float *values = out + blocks * ATTN_TILE;

	for (uint32_t j = 0; j < ATTN_TILE / V; j++) {
		const struct attn_half *h = &half[j / 2];
		const uint16_t *k = (const uint16_t *)(h->head + 2 * plane) + h->token + j % 2 * V;
		const uint16_t *v = (const uint16_t *)(h->head + 2 * plane) + blocks * s->page +
			(h->token + j % 2 * (size_t)V) * blocks;

		for (uint32_t b = 0; b < blocks; b++) {
			_mm256_storeu_ps(out + b * ATTN_TILE + V * j, load8(TNP_F16, k, b * s->page));
			_mm256_storeu_ps(values + b * ATTN_TILE + V * j, scales_apart(v + b, blocks));
		}
	}
}

/* ---- softmax ---------------------------------------------------------------------------------------- */
typedef __m256 mask;
/* Keys [lo, hi) of vector j. */
INLINE mask keys_seen(int32_t lo, int32_t hi, uint32_t j)
{
	const __m256i at =
		_mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)(V * j)));
	const __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(hi), at),
		_mm256_cmpgt_epi32(at, _mm256_set1_epi32(lo - 1)));

	return _mm256_castsi256_ps(in);
}
INLINE vec vec_hide(vec x, mask m) { return _mm256_blendv_ps(_mm256_set1_ps(-1e30f), x, m); }
INLINE vec vec_only(vec x, mask m) { return _mm256_and_ps(x, m); }
INLINE __m256 vec_sums(const vec x[4])
{
	return _mm256_add_ps(_mm256_add_ps(x[0], x[1]), _mm256_add_ps(x[2], x[3]));
}

#include "attn_tile.h"

/* ---- storing, merging, finishing ---------------------------------------------------------------------------- */
/* min and max return their second operand for NaN: it becomes the largest number. */
INLINE __m128i to_half(__m256 x)
{
	x = _mm256_min_ps(x, _mm256_set1_ps(HALF_MAX));
	x = _mm256_max_ps(x, _mm256_set1_ps(-HALF_MAX));
	return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static void store_f16(const struct attn_shape *s, uint16_t *page, uint32_t at, const float *k, const float *v)
{
	uint16_t *keys = page + at, *values = page + (size_t)s->pad * s->page + (size_t)at * s->pad;

	for (uint32_t d = 0; d < s->dim; d += V) {
		uint16_t h[V];

		_mm_storeu_si128((__m128i *)(values + d), to_half(_mm256_loadu_ps(v + d)));
		_mm_storeu_si128((__m128i *)h, to_half(_mm256_loadu_ps(k + d)));
		for (uint32_t i = 0; i < V; i++)
			keys[(size_t)(d + i) * s->page] = h[i];
	}
}

void attn_avx2_store(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	if (s->type == TNP_F16 && s->dim == s->pad)
		store_f16(s, (uint16_t *)head, at, k, v);
	else
		attn_base.store(s, head, at, k, v);
}

void attn_avx2_merge(uint32_t pad, const float *from, float *into)
{
	const float most = from[0] > into[0] ? from[0] : into[0];
	const __m256 a = exp2_neg(_mm256_set1_ps(into[0] - most)),
		     b = exp2_neg(_mm256_set1_ps(from[0] - most));

	into[0] = most;
	for (uint32_t i = V; i < ATTN_STATE_HEAD + pad; i += V)
		_mm256_storeu_ps(into + i,
			_mm256_fmadd_ps(
				_mm256_loadu_ps(into + i), a, _mm256_mul_ps(_mm256_loadu_ps(from + i), b)));
}

void attn_avx2_finish(uint32_t dim, const float *st, float *out)
{
	const float inverse = 1 / hsum(_mm256_loadu_ps(st + V));
	const __m256 f = _mm256_set1_ps(inverse);
	uint32_t i = 0;

	for (; i + V <= dim; i += V)
		_mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(st + ATTN_STATE_HEAD + i), f));
	for (; i < dim; i++)
		out[i] = st[ATTN_STATE_HEAD + i] * inverse;
}

const struct attn_ops attn_avx2 = {
	.store = attn_avx2_store,
	.widen = tile_widen,
	.gather = attn_gather,
	.tile_wide = tile_of_wide,
	.tile_page = tile_of_page,
	.merge = attn_avx2_merge,
	.finish = attn_avx2_finish,
};
