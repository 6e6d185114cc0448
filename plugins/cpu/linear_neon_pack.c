/* SPDX-License-Identifier: Apache-2.0
 * GGUF rows into the panels of linear_neon.h, and activations into its rows of blocks. Rows past a matrix's last are
 * packed as copies of the last; their outputs are never stored. What a row of activations becomes depends on that row
 * alone: one with an infinity or a NaN gets the scale NaN, one whose greatest magnitude is below 1e-30 counts as zero.
 */
#include "plugins/cpu/linear_neon.h"
#include <float.h>
#include <math.h>

/* ---- weights ---- */

const struct neon_form *neon_form(uint32_t type)
{
	static const struct neon_form forms[] = {
		[TNP_F32] = { 1, 32 },
		[TNP_F16] = { 1, 16 },
		[TNP_BF16] = { 1, 16 },
		[TNP_Q4_0] = { 32, 144 },
		[TNP_Q4_1] = { 32, 160 },
		[TNP_Q5_0] = { 32, 176 },
		[TNP_Q5_1] = { 32, 192 },
		[TNP_Q8_0] = { 32, 272 },
		[TNP_IQ4_NL] = { 32, 144 },
		[TNP_Q2_K] = { 256, 672 },
		[TNP_Q3_K] = { 256, 912 },
		[TNP_Q4_K] = { 256, 1184 },
		[TNP_Q5_K] = { 256, 1440 },
		[TNP_Q6_K] = { 256, 1680 },
	};

	return type < sizeof forms / sizeof *forms && forms[type].k ? forms + type : NULL;
}

/* Elements of `bytes` bytes, [k][8 rows]. */
INLINE void elements_put(
	const uint8_t *const row[PANEL], size_t from, uint32_t n, const size_t bytes, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t r = 0; r < PANEL; r++, out += bytes)
			memcpy(out, row[r] + from + i * bytes, bytes);
}

static void elements_put4(const uint8_t *const row[PANEL], size_t from, uint32_t n, uint8_t *out)
{
	elements_put(row, from, n, 4, out);
}

static void elements_put2(const uint8_t *const row[PANEL], size_t from, uint32_t n, uint8_t *out)
{
	elements_put(row, from, n, 2, out);
}

/* 32 bits, one an element, as the plane of bits has them. */
static uint32_t bits_spread(uint32_t all)
{
	uint32_t out = 0;

	for (int j = 0; j < 4; j++) {
		uint32_t x = all >> j & 0x11111111;

		x = (x | x >> 3) & 0x03030303;
		x = (x | x >> 6) & 0x000f000f;
		out |= ((x | x >> 12) & 0xff) << 8 * j;
	}
	return out;
}

static void bits_put(const uint8_t *const row[PANEL], size_t from, uint8_t *out)
{
	for (uint32_t r = 0; r < PANEL; r++) {
		uint32_t word;

		memcpy(&word, row[r] + from, 4);
		word = bits_spread(word);
		memcpy(out + 4 * r, &word, 4);
	}
}

/* Blocks of 32 columns; a GGUF block has f16 d, [f16 m], [32 high bits], codes. */
static void chunk_pack(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	const int min = type == TNP_Q4_1 || type == TNP_Q5_1, high = type == TNP_Q5_0 || type == TNP_Q5_1;
	const size_t head = min ? 4 : 2;
	const uint32_t words = type == TNP_Q8_0 ? 8 : 4;

	elements_put4(row, head + (high ? 4 : 0), words, out);
	out += words * 32;
	if (high) {
		bits_put(row, head, out);
		out += 32;
	}
	elements_put2(row, 0, min ? 2 : 1, out);
}

/* Bits [shift, shift + bits) of n groups of codes, group i at bit i x bits. */
static uint32_t plane(const uint32_t *code, uint32_t n, uint32_t shift, uint32_t bits)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < n; i++)
		out |= (code[i] >> shift & ((1u << bits) - 1) * 0x01010101u) << i * bits;
	return out;
}

/* Row r of a block of 32 columns of a K type. */
static void block_put(uint32_t type, const uint8_t *q, uint8_t *out)
{
	uint32_t code[8], word[6], n = 4;

	memcpy(code, q, sizeof code);
	if (type == TNP_Q2_K || type == TNP_Q3_K) {
		word[0] = plane(code, 4, 0, 2);
		word[1] = plane(code + 4, 4, 0, 2);
		word[2] = plane(code, 8, 2, 1);
		n = type == TNP_Q2_K ? 2 : 3;
	} else {
		for (uint32_t v = 0; v < 4; v++)
			word[v] = (code[v] & 0x0f0f0f0f) | (code[4 + v] & 0x0f0f0f0f) << 4;
		word[4] = type == TNP_Q6_K ? plane(code, 4, 4, 2) : plane(code, 8, 4, 1);
		word[5] = plane(code + 4, 4, 4, 2);
		n = type == TNP_Q6_K ? 6 : type == TNP_Q5_K ? 5 : 4;
	}
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + 32 * i, word + i, 4);
}

static void chunk_k_pack(uint32_t type, const uint8_t *const row[PANEL], uint8_t *out)
{
	const int two = type == TNP_Q4_K || type == TNP_Q5_K;
	const size_t codes = (neon_form(type)->bytes - 160u + (two || type == TNP_Q2_K ? 0 : 16)) / 8;
	uint8_t *s = out + 8 * codes;
	struct dequant_k k;

	for (uint32_t r = 0; r < PANEL; r++) {
		dequant_split_k(type, row[r], &k);
		for (size_t b = 0; b < DEQUANT_K / QK; b++)
			block_put(type, k.q + b * QK, out + b * codes + 4 * r);
		for (uint32_t g = 0; g < 16; g++)
			s[g * PANEL + r] = type == TNP_Q2_K ? (uint8_t)(k.sc[g] | k.mn[g] << 4)
				: !two			    ? (uint8_t)k.sc[g]
				: g < 8			    ? (uint8_t)k.sc[2 * g]
							    : k.mn[2 * (g - 8)];
		memcpy(s + 128 + 2 * r, &k.d, 2);
		if (two || type == TNP_Q2_K)
			memcpy(s + 144 + 2 * r, &k.dmin, 2);
	}
}

static void panel_pack(uint32_t type, const uint8_t *row[PANEL], uint32_t k, uint8_t *out)
{
	const struct neon_form *f = neon_form(type);

	if (f->k == 1) {
		(f->bytes == 16 ? elements_put2 : elements_put4)(row, 0, k, out);
		return;
	}
	for (uint32_t i = 0; i < k; i += f->k, out += f->bytes) {
		(f->k == DEQUANT_K ? chunk_k_pack : chunk_pack)(type, row, out);
		for (uint32_t r = 0; r < PANEL; r++)
			row[r] += dequant_block_bytes(type);
	}
}

void neon_weight_pack(const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst)
{
	const struct neon_form *f = neon_form(w->type);
	const uint8_t *row[PANEL];

	if (!f)
		return;
	for (uint32_t j = n0; j < n1; j += PANEL) {
		const size_t chunks = w->k / f->k, stride = chunks * dequant_block_bytes(w->type);

		for (uint32_t r = 0; r < PANEL; r++)
			row[r] = (const uint8_t *)src + (j + r < w->n ? j + r : w->n - 1) * stride;
		panel_pack(w->type, row, w->k, (uint8_t *)dst + j / PANEL * chunks * f->bytes);
	}
}

/* ---- activations ---- */

enum { S_MAX = 32767, I16_LEVELS = 127 * 256 }; /* the high byte of 32,512 still rounds to 127 */
#define ROW_MIN 1e-30f

/* Greatest |x|; as bits NaN > infinity > all numbers. n is a multiple of 32. */
static float top_of(const float *x, uint32_t n)
{
	uint32x4_t top[2] = { vdupq_n_u32(0), vdupq_n_u32(0) };
	uint32_t bits;
	float f;

	for (uint32_t i = 0; i < n; i += 8) {
		top[0] = vmaxq_u32(top[0], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
		top[1] = vmaxq_u32(top[1], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i + 4))));
	}
	bits = vmaxvq_u32(vmaxq_u32(top[0], top[1]));
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* The scale that is stored; *step is what to quantise by: infinite, so that everything becomes zero, for a row
 * that has no scale of its own. */
static float row_scale(const float *x, uint32_t k, float levels, float *step)
{
	const float top = top_of(x, k);

	*step = INFINITY;
	if (!(top <= FLT_MAX))
		return NAN;
	if (top < ROW_MIN)
		return 0.0f;
	*step = top / levels;
	return *step;
}

/* Eight floats times `by`, rounded to nearest; NaN becomes 0. */
INLINE int16x8_t rounded(const float *x, float by)
{
	const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), by)),
			b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), by));

	return vcombine_s16(vqmovn_s32(a), vqmovn_s32(b));
}

/* The block's scale is the smallest integer above top / (127 x step). */
static void i8_block(const float *x, float step, int8_t *out)
{
	const float s = top_of(x, QK) * (1.0f / (127.0f * step));
	const float scale = (float)((int32_t)(s < S_MAX - 1 ? s : S_MAX - 1) + 1), by = 1.0f / (scale * step);
	struct neon_block b = { .s = scale };
	int32_t sum[2];

	for (int h = 0; h < 2; h++, x += 16) {
		const int8x16_t q = vcombine_s8(vqmovn_s16(rounded(x, by)), vqmovn_s16(rounded(x + 8, by)));
		const int8x16_t kept = vmaxq_s8(q, vdupq_n_s8(-127));

		vst1q_s8(out + 16 * h, kept);
		sum[h] = vaddlvq_s8(kept);
		b.half[h] = scale * (float)sum[h];
	}
	b.sum = scale * (float)(sum[0] + sum[1]);
	memcpy(out + QK, &b, sizeof b);
}

static void i16_block(const float *x, float step, int8_t *out)
{
	const float by = 1.0f / step;

	for (int i = 0; i < QK; i += 8) {
		const int16x8_t v = rounded(x + i, by);

		vst1_s8(out + i, vrshrn_n_s16(v, 8));
		vst1_s8(out + QK + i, vmovn_s16(v));
	}
}

void neon_act_pack(
	uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1, void *dst)
{
	const size_t block = act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK;
	const float levels = act == ACT_I8 ? 127.0f * S_MAX : (float)I16_LEVELS;

	if (act != ACT_I8 && act != ACT_I16)
		return;
	for (uint32_t i = m0; i < m1; i++) {
		const float *row = x + i * ldx;
		int8_t *out = (int8_t *)dst + act_scales_bytes(m) + i * (k / QK) * block;
		float step;

		((float *)dst)[i] = row_scale(row, k, levels, &step);
		for (uint32_t b = 0; b < k / QK; b++, row += QK, out += block)
			(act == ACT_I8 ? i8_block : i16_block)(row, step, out);
	}
}
