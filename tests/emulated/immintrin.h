/* SPDX-License-Identifier: Apache-2.0
 * Stands in front of the compiler's <immintrin.h> (by -isystem) where kernels are built for a processor that lacks
 * their instructions: what is above AVX2 becomes a function of SIMDe, made of plain C and AVX2. Names that this
 * SIMDe does not have follow at the end. The build must not switch the real instructions on.
 */
#ifndef TESTS_EMULATED_IMMINTRIN_H
#define TESTS_EMULATED_IMMINTRIN_H
#if defined(__AVX512F__) || defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#error "emulated kernels must be built without AVX-512 and AVX-VNNI"
#endif
#include_next <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#define SIMDE_NO_INLINE
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

/* The dot products are some hundred instructions each: out of line, or the kernels take minutes to compile. How
 * often they ran is counted, so that a test can see that it tested them. */
#define EMULATED_OUT_OF_LINE static __attribute__((noinline, unused))
extern unsigned long long emulated_dots;
#define EMULATED_DOT(name, type)                                                                             \
	EMULATED_OUT_OF_LINE type emulated_##name(type s, type a, type b)                                    \
	{                                                                                                    \
		emulated_dots++;                                                                             \
		return simde_##name(s, a, b);                                                                \
	}
EMULATED_DOT(mm256_dpbusd_epi32, __m256i)
EMULATED_DOT(mm256_dpwssd_epi32, __m256i)
EMULATED_DOT(mm512_dpbusd_epi32, __m512i)
EMULATED_DOT(mm512_dpwssd_epi32, __m512i)
#undef _mm256_dpbusd_epi32
#undef _mm256_dpwssd_epi32
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#define _mm256_dpbusd_epi32(s, a, b) emulated_mm256_dpbusd_epi32(s, a, b)
#define _mm256_dpwssd_epi32(s, a, b) emulated_mm256_dpwssd_epi32(s, a, b)
#define _mm512_dpbusd_epi32(s, a, b) emulated_mm512_dpbusd_epi32(s, a, b)
#define _mm512_dpwssd_epi32(s, a, b) emulated_mm512_dpwssd_epi32(s, a, b)

/* AVX-VNNI has the instructions of AVX-512 VNNI under other names. */
#undef _mm256_dpbusd_avx_epi32
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpbusd_avx_epi32(s, a, b) emulated_mm256_dpbusd_epi32(s, a, b)
#define _mm256_dpwssd_avx_epi32(s, a, b) emulated_mm256_dpwssd_epi32(s, a, b)

/* ---- what this SIMDe lacks: two halves, each by the AVX2 instruction of the same name ---- */
#define EMULATED_HALVES(name, to, from, lower, upper)                                                        \
	EMULATED_OUT_OF_LINE to emulated_##name(from v)                                                      \
	{                                                                                                    \
		to##_halves h;                                                                               \
                                                                                                             \
		h.half[0] = _mm256_##name(lower);                                                            \
		h.half[1] = _mm256_##name(upper);                                                            \
		return h.all;                                                                                \
	}
typedef union {
	__m512 all;
	__m256 half[2];
} __m512_halves;
typedef union {
	__m512i all;
	__m256i half[2];
} __m512i_halves;
EMULATED_OUT_OF_LINE __m512_halves emulated_halves(__m512 v) { return (__m512_halves){ v }; }
EMULATED_OUT_OF_LINE __m512i_halves emulated_halves_i(__m512i v) { return (__m512i_halves){ v }; }
EMULATED_HALVES(cvtepi32_ps, __m512, __m512i, emulated_halves_i(v).half[0], emulated_halves_i(v).half[1])
EMULATED_HALVES(cvtps_epi32, __m512i, __m512, emulated_halves(v).half[0], emulated_halves(v).half[1])
EMULATED_HALVES(cvtph_ps, __m512, __m256i, _mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1))
EMULATED_HALVES(cvtepi8_epi32, __m512i, __m128i, v, _mm_bsrli_si128(v, 8))
EMULATED_HALVES(cvtepu8_epi32, __m512i, __m128i, v, _mm_bsrli_si128(v, 8))

EMULATED_OUT_OF_LINE void emulated_mask_storeu_ps(void *p, unsigned k, __m512 v)
{
	for (int i = 0; i < 16; i++)
		if (k >> i & 1)
			((float *)p)[i] = v[i];
}
EMULATED_OUT_OF_LINE void emulated_mm_mask_storeu_epi32(void *p, unsigned k, __m128i v)
{
	for (int i = 0; i < 4; i++)
		if (k >> i & 1)
			((int *)p)[i] = ((__v4si)v)[i];
}
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_mask_storeu_ps
#undef _mm_mask_storeu_epi32
#define _mm512_cvtepi32_ps(v)	       emulated_cvtepi32_ps(v)
#define _mm512_cvtps_epi32(v)	       emulated_cvtps_epi32(v)
#define _mm512_cvtph_ps(v)	       emulated_cvtph_ps(v)
#define _mm512_cvtepi8_epi32(v)	       emulated_cvtepi8_epi32(v)
#define _mm512_cvtepu8_epi32(v)	       emulated_cvtepu8_epi32(v)
#define _mm512_mask_storeu_ps(p, k, v) emulated_mask_storeu_ps(p, k, v)
#define _mm_mask_storeu_epi32(p, k, v) emulated_mm_mask_storeu_epi32(p, k, v)
#endif
