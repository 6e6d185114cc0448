/* SPDX-License-Identifier: Apache-2.0
 * Reading the panels of linear_vnni.h, 16 rows at a time; as linear_avx2_codes.h, which says what the codes and scales
 * mean. Everything is inlined with a constant type.
 */
#ifndef PLUGINS_CPU_LINEAR_VNNI_CODES_H
#define PLUGINS_CPU_LINEAR_VNNI_CODES_H
#include "plugins/cpu/linear_vnni.h"

INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

INLINE __m512i bits_move16(__m512i v, int from, int to)
{
	return to > from    ? _mm512_slli_epi16(v, (unsigned)(to - from))
		: to < from ? _mm512_srli_epi16(v, (unsigned)(from - to))
			    : v;
}
INLINE __m512i bits_pick16(__m512i v, int from, int to, int mask)
{
	return _mm512_and_si512(bits_move16(v, from, to), _mm512_set1_epi8((char)mask));
}

/* Codes as the kernels take them, of vector v, half h of the block whose codes begin at q. */
INLINE __m512i codes16(uint32_t type, const uint8_t *q, int v, int h)
{
	__m512i low;

	if (type == TNP_Q2_K)
		return _mm512_or_si512(bits_pick16(load512(q + 64 * h), 2 * v, 0, 3), _mm512_set1_epi8(32));
	if (type == TNP_Q3_K)
		return _mm512_add_epi8(_mm512_or_si512(bits_pick16(load512(q + 64 * h), 2 * v, 0, 3),
					       bits_pick16(load512(q + 128), 4 * h + v, 2, 4)),
			_mm512_set1_epi8(28));
	low = bits_pick16(load512(q + 64 * v), 4 * h, 0, 15);
	if (type == TNP_Q5_0 || type == TNP_Q5_1 || type == TNP_Q5_K)
		return _mm512_or_si512(low, bits_pick16(load512(q + 256), 4 * h + v, 4, 16));
	if (type == TNP_Q6_K)
		return _mm512_or_si512(low, bits_pick16(load512(q + 256 + 64 * h), 2 * v, 4, 48));
	return low;
}

INLINE __m512 scales16_f16(const uint8_t *p) { return _mm512_cvtph_ps(load256(p)); }
INLINE __m512 bytes16_u8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v)); }
INLINE __m512 bytes16_i8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }
INLINE __m512 negated(__m512 v)
{
	return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)));
}

/* Scale and minimum of 16 rows, block b of the chunk, half h, as the kernels take them; *m stays as it is where the
 * form has none. */
INLINE void scales16(uint32_t type, const uint8_t *chunk, uint32_t b, int h, __m512 *d, __m512 *m)
{
	const uint8_t *s = chunk + 2 * type_blocks(type) * type_codes(type);
	const __m128i four = _mm_set1_epi8(15);

	switch (type) {
	case TNP_Q4_0:
	case TNP_Q5_0:
		*d = scales16_f16(s);
		break;
	case TNP_Q4_1:
	case TNP_Q5_1:
		*d = scales16_f16(s);
		*m = scales16_f16(s + 32);
		break;
	case TNP_Q4_K:
	case TNP_Q5_K:
		*d = _mm512_mul_ps(scales16_f16(s + 256), bytes16_u8(load128(s + b * 16)));
		*m = negated(_mm512_mul_ps(scales16_f16(s + 288), bytes16_u8(load128(s + 128 + b * 16))));
		break;
	case TNP_Q2_K:
		s += (2 * b + (uint32_t)h) * 16;
		*d = _mm512_mul_ps(
			scales16_f16(chunk + 1024 + 256), bytes16_u8(_mm_and_si128(load128(s), four)));
		*m = _mm512_mul_ps(scales16_f16(chunk + 1024 + 288),
			bytes16_u8(_mm_and_si128(_mm_srli_epi16(load128(s), 4), four)));
		*m = _mm512_mul_ps(negated(*m), _mm512_set1_ps(-0.125f));
		break;
	default:
		*d = _mm512_mul_ps(
			scales16_f16(s + 256), bytes16_i8(load128(s + (2 * b + (uint32_t)h) * 16)));
		break;
	}
	if (type_form(type) == I8_Z16_MIN)
		*m = _mm512_fmadd_ps(*d, _mm512_set1_ps(16.0f), *m);
}

/* Columns 2i, 2i + 1 of 16 rows as int16 pairs; q is the chunk. */
INLINE __m512i int16_pairs16(uint32_t type, const uint8_t *q, int i)
{
	__m256i code;

	if (type == TNP_Q8_0)
		return _mm512_cvtepi8_epi16(load256(q + 32 * i));
	code = load256(q + 32 * (i % 8));
	code = _mm256_and_si256(i < 8 ? code : _mm256_srli_epi16(code, 4), _mm256_set1_epi8(15));
	return _mm512_cvtepi8_epi16(
		_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(dequant_iq4nl)), code));
}
#endif
