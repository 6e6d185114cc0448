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

EMULATED_OUT_OF_LINE __m512 emulated_cvtepi32_ps(__m512i v)
{
	simde__m512i_private a = simde__m512i_to_private(v);
	simde__m512_private r;

	for (int i = 0; i < 16; i++)
		r.f32[i] = (float)a.i32[i];
	return simde__m512_from_private(r);
}
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(v) emulated_cvtepi32_ps(v)
#endif
