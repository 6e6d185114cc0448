/* SPDX-License-Identifier: Apache-2.0
 * Activations as the integer kernels want them (linear_avx2.h has the form). A row's result is a function of that
 * row alone. A row with an infinity or a NaN gets the scale NaN, so that its outputs are NaN and seen as such; a
 * row below 1e-30 counts as zero, because its scale would leave the range of floats.
 */
#include "plugins/cpu/linear_avx2.h"
#include <float.h>

enum { S_MAX = 32767 };
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

INLINE uint32_t max_across(__m256i v)
{
	__m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
	x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(x);
}

static inline float as_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static float row_top(const float *row, uint32_t k)
{
	__m256i top = _mm256_setzero_si256();

	for (uint32_t i = 0; i < k; i += QK)
		top = _mm256_max_epi32(top, block_top(row + i));
	return as_f32(max_across(top));
}

/* 32 floats times inv, rounded to nearest, in -127..127, in order. */
INLINE __m256i quantise_i8(const float *p, __m256 inv)
{
	const __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p), inv)),
		_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p + 8), inv)));
	const __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p + 16), inv)),
		_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p + 24), inv)));
	const __m256i q = _mm256_permutevar8x32_epi32(
		_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));

	return _mm256_max_epi8(q, _mm256_set1_epi8(-127));
}

/* Block scale: the smallest integer above top / (127 x row scale) that keeps |q| <= 127. */
static inline int block_scale(float top, float to_s)
{
	const float s = top * to_s;

	return s < (float)(S_MAX - 1) ? (int)s + 1 : S_MAX;
}

/* One block into column t of a tile of T tokens. */
INLINE void i8_block(const float *p, float to_s, float scale, uint32_t *dst, uint32_t T)
{
	const int s = block_scale(as_f32(max_across(block_top(p))), to_s);
	const __m256i q = quantise_i8(p, _mm256_set1_ps(1.0f / ((float)s * scale)));
	const __m256i pair = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
	__m128i lo = _mm256_castsi256_si128(pair), all = _mm_add_epi16(lo, _mm256_extracti128_si256(pair, 1));
	uint32_t word[8];
	int sum;

	lo = _mm_add_epi16(lo, _mm_unpackhi_epi64(lo, lo));
	lo = _mm_add_epi16(lo, _mm_shuffle_epi32(lo, 1));
	all = _mm_add_epi16(all, _mm_unpackhi_epi64(all, all));
	all = _mm_add_epi16(all, _mm_shuffle_epi32(all, 1));
	sum = _mm_cvtsi128_si32(_mm_madd_epi16(all, _mm_set1_epi16(1)));
	store256(word, q);
	UNROLL
	for (uint32_t g = 0; g < 8; g++)
		dst[g * T] = word[g];
	dst[X_CORR * T] = (uint32_t)_mm_cvtsi128_si32(_mm_mullo_epi16(all, _mm_set1_epi16(-8)));
	dst[X_S * T] = (uint32_t)s * 0x10001u;
	((float *)dst)[X_SSUM * T] = (float)s * (float)sum;
	dst[X_CORR16 * T] = (uint32_t)_mm_cvtsi128_si32(_mm_mullo_epi16(lo, _mm_set1_epi16(-8)));
}

/* A row that has no scale of its own: zero, or not finite. */
static void row_blank(uint32_t *dst, uint32_t T, uint32_t words)
{
	for (uint32_t i = 0; i < words; i++)
		dst[(size_t)i * T] = 0;
}

static float i8_row(const float *x, uint32_t k, uint32_t *dst, uint32_t T)
{
	const float top = row_top(x, k), scale = top / (127.0f * S_MAX);

	if (!(top >= ROW_MIN) || top > FLT_MAX) {
		row_blank(dst, T, k / QK * (ACT_I8_BLOCK / 4));
		return top < ROW_MIN ? 0.0f : __builtin_nanf("");
	}
	for (uint32_t i = 0; i < k; i += QK, dst += (size_t)T * (ACT_I8_BLOCK / 4))
		i8_block(x + i, 1.0f / (127.0f * scale), scale, dst, T);
	return scale;
}

static float i16_row(const float *x, uint32_t k, uint32_t *dst, uint32_t T)
{
	const float top = row_top(x, k);
	__m256 inv;

	if (!(top >= ROW_MIN) || top > FLT_MAX) {
		row_blank(dst, T, k / 2);
		return top < ROW_MIN ? 0.0f : __builtin_nanf("");
	}
	inv = _mm256_set1_ps((float)S_MAX / top);
	for (uint32_t i = 0; i < k; i += 16, dst += (size_t)8 * T) {
		const __m256i lo = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inv));
		const __m256i hi = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), inv));
		uint32_t word[8];

		store256(word, _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8));
		UNROLL
		for (uint32_t g = 0; g < 8; g++)
			dst[g * T] = word[g];
	}
	return top / (float)S_MAX;
}

void avx2_act_pack(
	uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1, void *dst)
{
	const struct tiles tiles = tiles_of(m);
	const size_t token = (size_t)(k / QK) * (act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK);
	float *scale = dst;

	if (act != ACT_I8 && act != ACT_I16)
		return;
	for (uint32_t i = m0; i < m1; i++) {
		const uint32_t tile = tiles_find(&tiles, i), first = tiles_first(&tiles, tile),
			       T = tiles_width(&tiles, tile);
		uint32_t *out =
			(uint32_t *)((uint8_t *)dst + act_scales_bytes(m) + first * token) + (i - first);

		scale[i] = act == ACT_I8 ? i8_row(x + i * ldx, k, out, T) : i16_row(x + i * ldx, k, out, T);
	}
}
