/* SPDX-License-Identifier: Apache-2.0
 * Reading the panels of linear_avx2.h: codes and scales of one block of 32 columns, for the types whose codes are
 * unsigned bytes of 2 to 6 bits. Everything is inlined with a constant type, so each kernel keeps only its case.
 */
#ifndef PLUGINS_CPU_LINEAR_AVX2_CODES_H
#define PLUGINS_CPU_LINEAR_AVX2_CODES_H
#include "plugins/cpu/linear_avx2.h"

/* Scratch: blocks of two panels R, unpacked.
 *   int8 kernels    u8 [8 k4][R][8 rows][4], f32 d [2 halves][R][8], f32 m [2 halves][R][8]
 *   int16 kernels   int16 [16 k2][R][8 rows][2], f32 d [R][8] */
enum {
	I8_KC = 24, /* blocks of a stretch: three super-blocks */
	I8_SCR_D = 8 * TILE_R * 32,
	I8_SCR_M = I8_SCR_D + 2 * TILE_N * 4,
	I8_SCR_BLOCK = I8_SCR_M + 2 * TILE_N * 4,
	I16_KC = 18,
	I16_SCR_D = 16 * TILE_R * 32,
	I16_SCR_BLOCK = I16_SCR_D + TILE_N * 4
};
_Static_assert((int)I8_KC *(int)I8_SCR_BLOCK <= (int)SCR_BYTES, "scratch");
_Static_assert((int)I16_KC *(int)I16_SCR_BLOCK <= (int)SCR_BYTES, "scratch");

/* How a type's codes u become weights in the int8 kernels. HALVES: one scale for each 16 columns.
 *   Z8, Z16, HALVES (zero 32)   d * (u - zero)
 *   MIN, Z16_MIN                d * (u - zero) + m
 *   HALVES_MIN (zero 32)        d * (u - 32) - 8 * m: corr16 holds -8 x the sums that m multiplies */
enum i8_form { I8_Z8, I8_MIN, I8_Z16, I8_Z16_MIN, I8_HALVES, I8_HALVES_MIN };

/* X(a, width) for each width of a tile; X(type, form); X(form); X(type) */
#define WIDTHS(X, a)	  X(a, 1) X(a, 2) X(a, 3) X(a, 4) X(a, 5) X(a, 6)
#define WIDTHS_WIDE(X, a) WIDTHS(X, a) X(a, 7) X(a, 8)
#define I8_TYPES(X)                                                                                          \
	X(Q4_0, I8_Z8)                                                                                       \
	X(Q4_1, I8_MIN)                                                                                      \
	X(Q5_0, I8_Z16)                                                                                      \
	X(Q5_1, I8_Z16_MIN)                                                                                  \
	X(Q2_K, I8_HALVES_MIN)                                                                               \
	X(Q3_K, I8_HALVES)                                                                                   \
	X(Q4_K, I8_MIN)                                                                                      \
	X(Q5_K, I8_Z16_MIN)                                                                                  \
	X(Q6_K, I8_HALVES)
#define I8_FORMS(X)  X(I8_Z8) X(I8_MIN) X(I8_Z16) X(I8_Z16_MIN) X(I8_HALVES) X(I8_HALVES_MIN)
#define I16_TYPES(X) X(Q8_0) X(IQ4_NL)

INLINE int form_halves(int form) { return form == I8_HALVES || form == I8_HALVES_MIN; }
INLINE int form_min(int form) { return form == I8_MIN || form == I8_Z16_MIN; }

INLINE int type_form(uint32_t type)
{
	switch (type) {
	case TNP_Q4_0:
		return I8_Z8;
	case TNP_Q4_1:
	case TNP_Q4_K:
		return I8_MIN;
	case TNP_Q5_0:
		return I8_Z16;
	case TNP_Q5_1:
	case TNP_Q5_K:
		return I8_Z16_MIN;
	case TNP_Q2_K:
		return I8_HALVES_MIN;
	}
	return I8_HALVES;
}

/* Bytes of chunk, bytes of a block's codes inside it, blocks of a chunk */
INLINE size_t type_chunk(uint32_t type)
{
	switch (type) {
	case TNP_Q4_0:
		return 144;
	case TNP_Q4_1:
		return 160;
	case TNP_Q5_0:
		return 176;
	case TNP_Q5_1:
		return 192;
	case TNP_Q2_K:
		return 672;
	case TNP_Q3_K:
		return 912;
	case TNP_Q4_K:
		return 1184;
	case TNP_Q5_K:
		return 1440;
	}
	return 1680;
}
INLINE size_t type_codes(uint32_t type)
{
	switch (type) {
	case TNP_Q5_0:
	case TNP_Q5_1:
	case TNP_Q5_K:
		return 160;
	case TNP_Q2_K:
		return 64;
	case TNP_Q3_K:
		return 96;
	case TNP_Q6_K:
		return 192;
	}
	return 128;
}
INLINE uint32_t type_blocks(uint32_t type)
{
	switch (type) {
	case TNP_Q2_K:
	case TNP_Q3_K:
	case TNP_Q4_K:
	case TNP_Q5_K:
	case TNP_Q6_K:
		return DEQUANT_K / QK;
	}
	return 1;
}

/* Moves bits of each byte from position `from` to `to`; what crosses a byte's border is for the caller's mask. */
INLINE __m256i bits_move(__m256i v, int from, int to)
{
	return to > from ? _mm256_slli_epi16(v, to - from) : to < from ? _mm256_srli_epi16(v, from - to) : v;
}
INLINE __m256i bits_pick(__m256i v, int from, int to, int mask)
{
	return _mm256_and_si256(bits_move(v, from, to), _mm256_set1_epi8((char)mask));
}

/* Codes as stored, of vector v, half h (0: k = 4v.., 1: k = 16 + 4v..) of the block whose codes begin at q. */
INLINE __m256i codes_raw(uint32_t type, const uint8_t *q, int v, int h)
{
	__m256i low;

	if (type == TNP_Q2_K)
		return bits_pick(load256(q + 32 * h), 2 * v, 0, 3);
	if (type == TNP_Q3_K)
		return _mm256_or_si256(bits_pick(load256(q + 32 * h), 2 * v, 0, 3),
			bits_pick(load256(q + 64), 4 * h + v, 2, 4));
	low = bits_pick(load256(q + 32 * v), 4 * h, 0, 15);
	if (type == TNP_Q5_0 || type == TNP_Q5_1 || type == TNP_Q5_K)
		return _mm256_or_si256(low, bits_pick(load256(q + 128), 4 * h + v, 4, 16));
	if (type == TNP_Q6_K)
		return _mm256_or_si256(low, bits_pick(load256(q + 128 + 32 * h), 2 * v, 4, 48));
	return low;
}

/* The same as the int8 kernels take them: shifted where the form's zero point is not the type's. */
INLINE __m256i codes_u8(uint32_t type, const uint8_t *q, int v, int h)
{
	const __m256i raw = codes_raw(type, q, v, h);

	if (type == TNP_Q2_K)
		return _mm256_or_si256(raw, _mm256_set1_epi8(32));
	return type == TNP_Q3_K ? _mm256_add_epi8(raw, _mm256_set1_epi8(28)) : raw;
}

/* eight bytes as floats */
INLINE __m256 bytes_u8(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)); }
INLINE __m256 bytes_i8(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); }
INLINE __m128i load64(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }

/* Scale d and what is added, m, of 8 rows, block b of the chunk, half h: w = d * raw code + m; for types with a
 * symmetric zero point *m stays as it is when `zero` is 0 and becomes -zero * d else. */
INLINE void scales_raw(uint32_t type, const uint8_t *chunk, uint32_t b, int h, __m256 *d, __m256 *m)
{
	const uint8_t *s = chunk + type_blocks(type) * type_codes(type),
		      *sc = s + (2 * b + (uint32_t)h) * PANEL;

	switch (type) {
	case TNP_Q4_0:
	case TNP_Q5_0:
		*d = scales_f16(s);
		*m = _mm256_mul_ps(*d, _mm256_set1_ps(type == TNP_Q4_0 ? -8.0f : -16.0f));
		break;
	case TNP_Q4_1:
	case TNP_Q5_1:
		*d = scales_f16(s);
		*m = scales_f16(s + 16);
		break;
	case TNP_Q4_K:
	case TNP_Q5_K:
		*d = _mm256_mul_ps(scales_f16(s + 128), bytes_u8(load64(s + b * PANEL)));
		*m = _mm256_mul_ps(scales_f16(s + 144), bytes_u8(load64(s + 64 + b * PANEL)));
		*m = _mm256_xor_ps(*m, _mm256_set1_ps(-0.0f));
		break;
	case TNP_Q2_K:
		*d = _mm256_mul_ps(
			scales_f16(s + 128), bytes_u8(_mm_and_si128(load64(sc), _mm_set1_epi8(15))));
		*m = _mm256_mul_ps(scales_f16(s + 144),
			bytes_u8(_mm_and_si128(_mm_srli_epi16(load64(sc), 4), _mm_set1_epi8(15))));
		*m = _mm256_xor_ps(*m, _mm256_set1_ps(-0.0f));
		break;
	case TNP_Q3_K:
	case TNP_Q6_K:
		*d = _mm256_mul_ps(scales_f16(s + 128), bytes_i8(load64(sc)));
		*m = _mm256_mul_ps(*d, _mm256_set1_ps(type == TNP_Q3_K ? -4.0f : -32.0f));
		break;
	}
}

/* The same as the int8 forms take them; see enum i8_form for the meaning of *m. */
INLINE void scales_i8(uint32_t type, const uint8_t *chunk, uint32_t b, int h, __m256 *d, __m256 *m)
{
	scales_raw(type, chunk, b, h, d, m);
	if (type_form(type) == I8_Z16_MIN)
		*m = _mm256_fmadd_ps(*d, _mm256_set1_ps(16.0f), *m);
	else if (type == TNP_Q2_K)
		*m = _mm256_mul_ps(*m, _mm256_set1_ps(-0.125f));
}

/* ---- 8-bit weights ---- */

enum { Q8_CHUNK = 272, IQ4_CHUNK = 144 }; /* bytes; the last 16 are f16 d of 8 rows */

/* Columns 2i, 2i + 1 of 8 rows as int16 pairs; q is the chunk. */
INLINE __m256i int16_pairs(uint32_t type, const uint8_t *q, int i)
{
	__m128i code;

	if (type == TNP_Q8_0)
		return _mm256_cvtepi8_epi16(load128(q + 16 * i));
	code = load128(q + 16 * (i % 8));
	code = _mm_and_si128(i < 8 ? code : _mm_srli_epi16(code, 4), _mm_set1_epi8(15));
	return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load128(dequant_iq4nl), code));
}
#endif
