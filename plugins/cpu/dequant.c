/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/cpu/dequant.h"
#include <tenon/plugin.h>

const int8_t dequant_iq4nl[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

/* X(type, elements, bytes) */
#define DEQUANT_TYPES(X)                                                                                     \
	X(F32, 1, 4)                                                                                         \
	X(F16, 1, 2)                                                                                         \
	X(BF16, 1, 2)                                                                                        \
	X(Q4_0, 32, 18)                                                                                      \
	X(Q4_1, 32, 20)                                                                                      \
	X(Q5_0, 32, 22)                                                                                      \
	X(Q5_1, 32, 24)                                                                                      \
	X(Q8_0, 32, 34)                                                                                      \
	X(IQ4_NL, 32, 18)                                                                                    \
	X(Q2_K, 256, 84)                                                                                     \
	X(Q3_K, 256, 110)                                                                                    \
	X(Q4_K, 256, 144)                                                                                    \
	X(Q5_K, 256, 176)                                                                                    \
	X(Q6_K, 256, 210)

uint32_t dequant_block(uint32_t type)
{
	switch (type) {
#define DEQUANT_X(t, elements, bytes)                                                                        \
	case TNP_##t:                                                                                        \
		return elements;
		DEQUANT_TYPES(DEQUANT_X)
#undef DEQUANT_X
	}
	return 0;
}

uint32_t dequant_block_bytes(uint32_t type)
{
	switch (type) {
#define DEQUANT_X(t, elements, bytes)                                                                        \
	case TNP_##t:                                                                                        \
		return bytes;
		DEQUANT_TYPES(DEQUANT_X)
#undef DEQUANT_X
	}
	return 0;
}

/* ---- floats ---- */

static void f16_to_f32(const uint8_t *restrict src, size_t n, float *restrict out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = dequant_f16(dequant_u16(src + 2 * i));
}

static void bf16_to_f32(const uint8_t *restrict src, size_t n, float *restrict out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = dequant_bf16(dequant_u16(src + 2 * i));
}

/* ---- blocks of 32: f16 d, [f16 m], [32 high bits], 16 bytes of nibbles: element i low, i + 16 high ---- */

/* Codes of 16 bytes: low nibbles first. */
static inline void nibbles(const uint8_t *restrict q, uint8_t *restrict code)
{
	for (int i = 0; i < 16; i++)
		code[i] = q[i] & 15;
	for (int i = 0; i < 16; i++)
		code[16 + i] = q[i] >> 4;
}

static inline void codes_to_f32(const uint8_t *restrict code, float d, float m, int zero, float *restrict out)
{
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)(code[i] - zero) + m;
}

static void q4_to_f32(const uint8_t *q, float d, float m, int zero, float *out)
{
	uint8_t code[32];

	nibbles(q, code);
	codes_to_f32(code, d, m, zero, out);
}

static void q5_to_f32(const uint8_t *high, const uint8_t *q, float d, float m, int zero, float *out)
{
	uint8_t code[32];
	uint32_t h;

	memcpy(&h, high, sizeof h);
	nibbles(q, code);
	for (int i = 0; i < 32; i++)
		code[i] |= (uint8_t)((h >> i & 1) << 4);
	codes_to_f32(code, d, m, zero, out);
}

static void q8_to_f32(const int8_t *restrict q, float d, float *restrict out)
{
	for (int i = 0; i < 32; i++)
		out[i] = d * (float)q[i];
}

static void iq4nl_to_f32(const uint8_t *q, float d, float *out)
{
	for (int i = 0; i < 16; i++) {
		out[i] = d * (float)dequant_iq4nl[q[i] & 15];
		out[i + 16] = d * (float)dequant_iq4nl[q[i] >> 4];
	}
}

static void block32_to_f32(uint32_t type, const uint8_t *src, float *out)
{
	const float d = dequant_f16(dequant_u16(src));

	switch (type) {
	case TNP_Q4_0:
		q4_to_f32(src + 2, d, 0, 8, out);
		break;
	case TNP_Q4_1:
		q4_to_f32(src + 4, d, dequant_f16(dequant_u16(src + 2)), 0, out);
		break;
	case TNP_Q5_0:
		q5_to_f32(src + 2, src + 6, d, 0, 16, out);
		break;
	case TNP_Q5_1:
		q5_to_f32(src + 4, src + 8, d, dequant_f16(dequant_u16(src + 2)), 0, out);
		break;
	case TNP_Q8_0:
		q8_to_f32((const int8_t *)src + 2, d, out);
		break;
	case TNP_IQ4_NL:
		iq4nl_to_f32(src + 2, d, out);
		break;
	}
}

/* ---- super-blocks of 256 ---- */

/* One plane of bits of 32 bytes, moved up and added to 32 codes. */
static inline void plane_add(const uint8_t *restrict src, int shift, int mask, int up, uint8_t *restrict q)
{
	for (int i = 0; i < 32; i++)
		q[i] |= (uint8_t)((src[i] >> shift & mask) << up);
}

/* Pairs of bits: 32 bytes hold 128 elements, i % 32 at bits i / 32 * 2. */
static void pairs_add(const uint8_t *src, int up, uint8_t *q)
{
	for (int half = 0; half < 2; half++)
		for (int j = 0; j < 4; j++)
			plane_add(src + 32 * half, 2 * j, 3, up, q + 128 * half + 32 * j);
}

/* Single bits: 32 bytes hold 256 elements, i % 32 at bit i / 32. */
static void singles_add(const uint8_t *src, int up, uint8_t *q)
{
	for (int j = 0; j < 8; j++)
		plane_add(src, j, 1, up, q + 32 * j);
}

/* 16 scales and minima of 4 bits; 64 bytes of 2 bits */
static void q2k_split(const uint8_t *s, struct dequant_k *o)
{
	o->d = dequant_u16(s + 80);
	o->dmin = dequant_u16(s + 82);
	for (int i = 0; i < 16; i++) {
		o->sc[i] = (int8_t)(s[i] & 15);
		o->mn[i] = s[i] >> 4;
	}
	pairs_add(s + 16, 0, o->q);
}

/* 32 bytes of high bits, 64 of low pairs, 12 of scales: sixteen 6-bit numbers, low nibbles first */
static void q3k_split(const uint8_t *s, struct dequant_k *o)
{
	const uint8_t *sc = s + 96;

	o->d = dequant_u16(s + 108);
	o->zero = 4;
	for (int i = 0; i < 16; i++) {
		const int nibble = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4,
			  top = sc[8 + i % 4] >> (i / 4 * 2) & 3;

		o->sc[i] = (int8_t)((nibble | top << 4) - 32);
	}
	pairs_add(s + 32, 0, o->q);
	singles_add(s, 2, o->q);
}

/* Scale and minimum j of 8, 6 bits each, in the 12 bytes that Q4_K and Q5_K share */
static void k4_scale(const uint8_t *s, int j, struct dequant_k *o)
{
	const int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
	const int mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;

	o->sc[2 * j] = o->sc[2 * j + 1] = (int8_t)sc;
	o->mn[2 * j] = o->mn[2 * j + 1] = (uint8_t)mn;
}

/* 32 bytes hold 64 elements: nibble low is i, high is i + 32; Q5_K has 32 bytes of single bits on top */
static void q45k_split(const uint8_t *s, const uint8_t *high, const uint8_t *nibbles, struct dequant_k *o)
{
	o->d = dequant_u16(s);
	o->dmin = dequant_u16(s + 2);
	for (int j = 0; j < 8; j++)
		k4_scale(s + 4, j, o);
	for (int j = 0; j < 8; j++)
		plane_add(nibbles + j / 2 * 32, j % 2 * 4, 15, 0, o->q + 32 * j);
	if (high)
		singles_add(high, 4, o->q);
}

/* 128 bytes of nibbles, 64 of high pairs, 16 int8 scales, d; in each half of 128: nibble of byte i % 64 */
static void q6k_split(const uint8_t *s, struct dequant_k *o)
{
	o->d = dequant_u16(s + 208);
	o->zero = 32;
	memcpy(o->sc, s + 192, 16);
	for (int j = 0; j < 8; j++)
		plane_add(s + j / 4 * 64 + j % 2 * 32, j % 4 / 2 * 4, 15, 0, o->q + 32 * j);
	pairs_add(s + 128, 4, o->q);
}

void dequant_split_k(uint32_t type, const void *src, struct dequant_k *out)
{
	const uint8_t *s = src;

	memset(out, 0, sizeof *out);
	switch (type) {
	case TNP_Q2_K:
		q2k_split(s, out);
		break;
	case TNP_Q3_K:
		q3k_split(s, out);
		break;
	case TNP_Q4_K:
		q45k_split(s, NULL, s + 16, out);
		break;
	case TNP_Q5_K:
		q45k_split(s, s + 16, s + 48, out);
		break;
	case TNP_Q6_K:
		q6k_split(s, out);
		break;
	}
}

static inline void group_to_f32(const uint8_t *restrict q, float d, float m, int zero, float *restrict out)
{
	for (int i = 0; i < 16; i++)
		out[i] = d * (float)(q[i] - zero) - m;
}

static void block256_to_f32(uint32_t type, const uint8_t *src, float *out)
{
	struct dequant_k k;
	float d, dmin;

	dequant_split_k(type, src, &k);
	d = dequant_f16(k.d);
	dmin = dequant_f16(k.dmin);
	for (int g = 0; g < 16; g++)
		group_to_f32(k.q + 16 * g, d * (float)k.sc[g], dmin * (float)k.mn[g], k.zero, out + 16 * g);
}

void dequant_f32(uint32_t type, const void *src, size_t n, float *out)
{
	const uint32_t block = dequant_block(type), bytes = dequant_block_bytes(type);
	const uint8_t *s = src;

	if (type == TNP_F32)
		memcpy(out, src, n * sizeof *out);
	else if (type == TNP_F16)
		f16_to_f32(s, n, out);
	else if (type == TNP_BF16)
		bf16_to_f32(s, n, out);
	else if (block == 32)
		for (size_t i = 0; i < n; i += 32, s += bytes)
			block32_to_f32(type, s, out + i);
	else if (block == DEQUANT_K)
		for (size_t i = 0; i < n; i += DEQUANT_K, s += bytes)
			block256_to_f32(type, s, out + i);
}
