/* SPDX-License-Identifier: Apache-2.0
 * Products of 2- to 6-bit weights with int8 activations, in 256-bit registers, as loops over steps of an instruction
 * set. Who includes this has defined
 *   struct turn             what the T tokens of a block need beside their codes
 *   turn_make               fills it
 *   turn_begin              what the integer sums of token t, half h, begin with: minus the zero point
 *   struct cell, cell_make  what the sums of token t, half h, are multiplied with
 *   cell_add                f plus the sums
 *   mac_i8, mul_i8          acc plus codes x activations; without acc
 *   MAC_I8_2X1, MUL_I8_2X1  the same with one word of activations against two vectors of codes; MUL: acc is zero
 * Blocks ascending, one or two fmas a block: one sequence of float operations on an output in both loops and in all
 * instruction sets.
 *   few tokens   straight from the panel, 8 rows x up to 6 tokens
 *   many         two panels x a stretch of k unpacked to bytes in L1, then all tiles of tokens over them
 */
#ifndef PLUGINS_CPU_LINEAR_AVX2_I8_H
#define PLUGINS_CPU_LINEAR_AVX2_I8_H
#include "plugins/cpu/linear_avx2_codes.h"

/* ---- few tokens ---- */

INLINE void direct_block(
	uint32_t type, const uint8_t *chunk, uint32_t b, const uint32_t *x, __m256 *f, const int T)
{
	const uint8_t *q = chunk + b * type_codes(type);
	const int form = type_form(type), halves = form_halves(form);
	__m256i acc[WIDE_T];
	struct turn o;
	__m256 d, m;

	turn_make(form, x, T, &o);
	UNROLL
	for (int h = 0; h < 2; h++) {
		UNROLL
		for (int t = 0; t < T; t++)
			if (h == 0 || halves)
				acc[t] = form == I8_MIN ? _mm256_setzero_si256() : turn_begin(form, &o, h, t);
		UNROLL
		for (int v = 0; v < 4; v++) {
			const __m256i u = codes_u8(type, q, v, h);

			UNROLL
			for (int t = 0; t < T; t++)
				if (form == I8_MIN && h == 0 && v == 0)
					acc[t] = mul_i8(u, bcast(x + t));
				else
					acc[t] = mac_i8(acc[t], u, bcast(x + (4 * h + v) * T + t));
		}
		if (h == 0 && !halves)
			continue;
		scales_i8(type, chunk, b, h, &d, &m);
		UNROLL
		for (int t = 0; t < T; t++) {
			const struct cell cell = cell_make(form, &o, halves ? h : 0, t);

			f[t] = cell_add(form, &cell, acc[t], d, m, f[t]);
		}
	}
}

/* One panel x T tokens. */
INLINE void direct_i8(uint32_t type, const uint8_t *panel, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const uint32_t blocks = type_blocks(type), share = (uint32_t)type_chunk(type) / blocks;
	__m256 f[WIDE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < nb; i += blocks, panel += type_chunk(type))
		for (uint32_t b = 0; b < blocks; b++, a += T * ACT_I8_BLOCK) {
			UNROLL
			for (uint32_t at = 0; at < share; at += 64)
				_mm_prefetch((const char *)panel + PREFETCH + b * share + at, _MM_HINT_T0);
			direct_block(type, panel, b, (const uint32_t *)a, f, T);
		}
	direct_store(f, scale, c, T);
}

/* ---- many tokens ---- */

/* Keeps the compiler from moving what p points at into registers across a loop. */
#define OPAQUE_PTR(p) __asm__("" : "+r"(p))

/* Codes of vectors [g0, g0 + n) against T tokens. */
INLINE void tile_codes(int form, const uint8_t *w, const uint32_t *x, __m256i (*acc)[TILE_T], const int g0,
	const int n, const int T)
{
	UNROLL
	for (int g = g0; g < g0 + n; g++) {
		const __m256i u0 = _mm256_load_si256((const __m256i *)w + g * TILE_R);
		const __m256i u1 = _mm256_load_si256((const __m256i *)w + g * TILE_R + 1);

		UNROLL
		for (int t = 0; t < T; t++)
			if (form == I8_MIN && g == 0)
				MUL_I8_2X1(acc[0][t], acc[1][t], u0, u1, x + g * T + t);
			else
				MAC_I8_2X1(acc[0][t], acc[1][t], u0, u1, x + g * T + t);
	}
}

/* The running sums f[T][R][8] stay in memory: registers are needed for the integer sums. */
INLINE void tile_sums(int form, const uint8_t *w, const struct turn *o, __m256i (*acc)[TILE_T], float *f,
	const int T, const int h)
{
	__m256 d[TILE_R], m[TILE_R];

	UNROLL
	for (int r = 0; r < TILE_R; r++) {
		d[r] = _mm256_load_ps((const float *)(w + I8_SCR_D) + (h * TILE_R + r) * PANEL);
		m[r] = _mm256_load_ps((const float *)(w + I8_SCR_M) + (h * TILE_R + r) * PANEL);
	}
	UNROLL
	for (int t = 0; t < T; t++) {
		const struct cell cell = cell_make(form, o, h, t);

		UNROLL
		for (int r = 0; r < TILE_R; r++) {
			float *p = f + (t * TILE_R + r) * PANEL;

			_mm256_store_ps(p, cell_add(form, &cell, acc[r][t], d[r], m[r], _mm256_load_ps(p)));
		}
	}
}

INLINE void tile_i8(int form, const uint8_t *w, uint32_t nb, const uint8_t *a, float *f,
	const struct ahead *ahead, const int T)
{
	const int halves = 1 + form_halves(form);

	for (uint32_t b = 0; b < nb; b++, w += I8_SCR_BLOCK, a += T * ACT_I8_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_R][TILE_T];
		struct turn o;

		OPAQUE_PTR(f);
		ahead_fetch(ahead, b);
		turn_make(form, x, T, &o);
		UNROLL
		for (int h = 0; h < halves; h++) {
			UNROLL
			for (int t = 0; t < T; t++)
				acc[0][t] = acc[1][t] = turn_begin(form, &o, h, t);
			tile_codes(form, w, x, acc, h * 8 / halves, 8 / halves, T);
			tile_sums(form, w, &o, acc, f, T, h);
		}
	}
}

/* ---- instances and rows of the table ---- */

#define DIRECT_I8_FN(type, T)                                                                                \
	static void direct_##type##_##T(const uint8_t *panel, uint32_t nb, const uint8_t *a,                 \
		const float *scale, const struct store *c)                                                   \
	{                                                                                                    \
		direct_i8(TNP_##type, panel, nb, a, scale, c, T);                                            \
	}
#define TILE_I8_FN(form, T)                                                                                  \
	static void tile_##form##_##T(                                                                       \
		const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const struct ahead *ahead)        \
	{                                                                                                    \
		tile_i8(form, w, nb, a, f, ahead, T);                                                        \
	}
#define DIRECT_I8_FNS(type, form) WIDTHS_WIDE(DIRECT_I8_FN, type)
#define TILE_I8_FNS(form)	  WIDTHS(TILE_I8_FN, form)
I8_TYPES(DIRECT_I8_FNS)
I8_FORMS(TILE_I8_FNS)

#define I8_NAME(name, T) name##_##T,
#define I8_ROW(type, form, most, unpack)                                                                     \
	[TNP_##type] = { ACT_I8_BLOCK, I8_KC, most, unpack, { NULL, WIDTHS_WIDE(I8_NAME, direct_##type) },   \
		{ NULL, WIDTHS(I8_NAME, tile_##form) } },
#endif
