/* SPDX-License-Identifier: Apache-2.0
 * Vector functions shared by the AVX2 files of rows and attention. Every lane depends on its own input only.
 */
#ifndef PLUGINS_CPU_AVX2_H
#define PLUGINS_CPU_AVX2_H
#include "plugins/cpu/unroll.h"
#include <immintrin.h>

/* 2^x for x <= 0: degree-5 polynomial on [-0.5, 0.5], relative error below 3e-7, exactly 1 at 0; below -126 it is 0. */
INLINE __m256 exp2_neg(__m256 x)
{
	const __m256 ok = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_GE_OQ);
	const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
		     f = _mm256_sub_ps(x, n);
	__m256 p = _mm256_set1_ps(1.326697039e-03f);
	__m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);

	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.675459746e-03f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.550742616e-02f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.402212175e-01f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.931469492e-01f));
	p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
	return _mm256_and_ps(_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e)), ok);
}

INLINE __m256 abs_ps(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows. NaN stays NaN. */
INLINE __m256 sigmoid(__m256 x)
{
	const __m256 one = _mm256_set1_ps(1.0f);
	const __m256 e = exp2_neg(_mm256_mul_ps(abs_ps(x), _mm256_set1_ps(-1.44269504f)));

	return _mm256_div_ps(_mm256_blendv_ps(one, e, x), _mm256_add_ps(one, e));
}

/* tanh x = sign(x) (1 - t) / (1 + t), t = e^-2|x|; near 0, where that cancels, x - x^3/3 + 2x^5/15 - 17x^7/315. */
INLINE __m256 tanh_ps(__m256 x)
{
	const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
	const __m256 t = exp2_neg(_mm256_mul_ps(abs_ps(x), _mm256_set1_ps(-2.88539008f)));
	const __m256 far = _mm256_or_ps(_mm256_div_ps(_mm256_sub_ps(one, t), _mm256_add_ps(one, t)), sign);
	const __m256 s = _mm256_mul_ps(x, x);
	__m256 p = _mm256_set1_ps(-17.0f / 315);

	p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(2.0f / 15));
	p = _mm256_fmadd_ps(p, s, _mm256_set1_ps(-1.0f / 3));
	p = _mm256_fmadd_ps(_mm256_mul_ps(p, s), x, x);
	return _mm256_blendv_ps(far, p, _mm256_cmp_ps(abs_ps(x), _mm256_set1_ps(0.125f), _CMP_LT_OQ));
}

INLINE float hmax(__m256 v)
{
	__m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	x = _mm_max_ps(x, _mm_movehl_ps(x, x));
	return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

INLINE float hsum(__m256 v)
{
	__m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	x = _mm_add_ps(x, _mm_movehl_ps(x, x));
	return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
#endif
