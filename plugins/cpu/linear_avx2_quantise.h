/* SPDX-License-Identifier: Apache-2.0
 * The scales of quantised activations, shared by the variants whose results agree bit by bit: of a row, and of its
 * blocks of 32, four at a time.
 */
#ifndef PLUGINS_CPU_LINEAR_AVX2_QUANTISE_H
#define PLUGINS_CPU_LINEAR_AVX2_QUANTISE_H
#include "plugins/cpu/linear_avx2.h"
#include <float.h>
#include <math.h>

enum { ACT_S_MAX = 32767, ACT_GROUP = 4 };
#define ROW_MIN 1e-30f

/* Greatest |x| of 32 as bits: among these NaN > infinity > all numbers. */
INLINE __m256i block_top(const float *p)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
	__m256i top = _mm256_and_si256(load256(p), magnitude);

	UNROLL
	for (int i = 1; i < 4; i++)
		top = _mm256_max_epi32(top, _mm256_and_si256(load256(p + 8 * i), magnitude));
	return top;
}

static inline float row_top(const float *row, uint32_t k)
{
	__m256i top = _mm256_setzero_si256();
	__m128i x;

	for (uint32_t i = 0; i < k; i += QK)
		top = _mm256_max_epi32(top, block_top(row + i));
	x = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
	x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
	x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
	return _mm_cvtss_f32(_mm_castsi128_ps(x));
}

/* The scale that is stored; *step is what to quantise by: infinite, so that everything becomes zero, for a row
 * that has no scale of its own. */
static inline float row_scale(const float *row, uint32_t k, float levels, float *step)
{
	const float top = row_top(row, k);

	*step = INFINITY;
	if (!(top <= FLT_MAX))
		return NAN;
	if (top < ROW_MIN)
		return 0.0f;
	*step = top / levels;
	return *step;
}

/* Greatest lane of each of four vectors of bits. */
INLINE __m128i top_across(const __m256i v[ACT_GROUP])
{
	const __m256i a =
		_mm256_max_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
	const __m256i b =
		_mm256_max_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
	const __m256i c = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));

	return _mm_max_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
}

/* Block scales of four blocks: the smallest integers above top / (127 x step). */
INLINE __m128i block_scales(__m128i top, float step)
{
	const __m128 s = _mm_mul_ps(_mm_castsi128_ps(top), _mm_set1_ps(1.0f / (127.0f * step)));

	return _mm_add_epi32(_mm_cvttps_epi32(_mm_min_ps(s, _mm_set1_ps(ACT_S_MAX - 1))), _mm_set1_epi32(1));
}

/* What four blocks are multiplied with to become codes. */
INLINE __m128 block_steps(__m128i s, float step)
{
	return _mm_div_ps(_mm_set1_ps(1.0f), _mm_mul_ps(_mm_cvtepi32_ps(s), _mm_set1_ps(step)));
}
#endif
