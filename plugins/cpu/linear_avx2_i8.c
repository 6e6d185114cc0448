/* SPDX-License-Identifier: Apache-2.0
 * Products of 2- to 6-bit weights with int8 activations.
 *
 * Eight maddubs of a block are added in int16. Sums wrap on the way, but the final value of every lane fits: with
 * the zero point taken off the greatest is 16 * 16 * 127 = 32,512 (5 bits, 32 columns; 6 bits, 16 columns), without
 * one 16 * 15 * 127 = 30,480. The madd that widens multiplies by the activation's block scale (below 2^31), one fma
 * by the weight's scale adds to the output. That fma, blocks ascending, is the only float addition: two paths, one
 * sequence of operations on an output.
 *   few tokens   straight from the panel, 8 rows x up to 6 tokens
 *   many         two panels x a stretch of k unpacked to bytes in L1, then all tiles of tokens over them
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum { DIRECT_MAX = 48 };

/* ---- one output and block ---- */

INLINE __m256 cell(__m256i acc, __m256i s, __m256 d, __m256 f)
{
	return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(acc, s)), d, f);
}

/* What the int16 sums of token t begin with: minus the zero point. */
INLINE __m256i sum_begin(int form, const uint32_t *x, int t, const int T, int h)
{
	const __m256i corr = bcast(x + X_CORR * T + t);

	if (form == I8_MIN)
		return _mm256_setzero_si256();
	if (form == I8_Z8)
		return corr;
	if (form == I8_Z16 || form == I8_Z16_MIN)
		return _mm256_add_epi16(corr, corr);
	return _mm256_slli_epi16(
		h ? _mm256_sub_epi16(corr, bcast(x + X_CORR16 * T + t)) : bcast(x + X_CORR16 * T + t), 2);
}

/* What the sums of token t, half h, are multiplied with. */
struct cell_x {
	__m256i s, corr;
	__m256 ssum;
};

INLINE struct cell_x cell_x(int form, const uint32_t *x, int t, const int T, int h)
{
	struct cell_x c = {
		.s = bcast(x + X_S * T + t), .corr = _mm256_setzero_si256(), .ssum = _mm256_setzero_ps()
	};

	if (form_min(form))
		c.ssum = bcast_f32(x + X_SSUM * T + t);
	if (form == I8_HALVES_MIN)
		c.corr = bcast(x + X_CORR16 * T + t);
	if (form == I8_HALVES_MIN && h)
		c.corr = _mm256_sub_epi16(bcast(x + X_CORR * T + t), c.corr);
	return c;
}

/* f plus the sums in acc. */
INLINE __m256 cell_add(int form, const struct cell_x *x, __m256i acc, __m256 d, __m256 m, __m256 f)
{
	f = cell(acc, x->s, d, f);
	if (form_min(form))
		f = _mm256_fmadd_ps(x->ssum, m, f);
	else if (form == I8_HALVES_MIN)
		f = cell(x->corr, x->s, m, f);
	return f;
}

/* ---- few tokens ---- */

INLINE void direct_half(uint32_t type, const uint8_t *q, const uint32_t *x, __m256i *acc, const int T, int h)
{
	UNROLL
	for (int v = 0; v < 4; v++) {
		const __m256i u = codes_u8(type, q, v, h);

		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = mac16(acc[t], u, bcast(x + (4 * h + v) * T + t));
	}
}

INLINE void direct_block(
	uint32_t type, const uint8_t *chunk, uint32_t b, const uint32_t *x, __m256 *f, const int T)
{
	const uint8_t *q = chunk + b * type_codes(type);
	const int form = type_form(type);
	__m256i acc[TILE_T];
	__m256 d, m;

	UNROLL
	for (int t = 0; t < T; t++)
		acc[t] = sum_begin(form, x, t, T, 0);
	direct_half(type, q, x, acc, T, 0);
	if (form_halves(form)) {
		scales_i8(type, chunk, b, 0, &d, &m);
		UNROLL
		for (int t = 0; t < T; t++) {
			const struct cell_x cx = cell_x(form, x, t, T, 0);

			f[t] = cell_add(form, &cx, acc[t], d, m, f[t]);
			acc[t] = sum_begin(form, x, t, T, 1);
		}
	}
	direct_half(type, q, x, acc, T, 1);
	scales_i8(type, chunk, b, 1, &d, &m);
	UNROLL
	for (int t = 0; t < T; t++) {
		const struct cell_x cx = cell_x(form, x, t, T, 1);

		f[t] = cell_add(form, &cx, acc[t], d, m, f[t]);
	}
}

/* One panel x T tokens. */
INLINE void direct_run(uint32_t type, const uint8_t *panel, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const uint32_t blocks = type_blocks(type), share = (uint32_t)type_chunk(type) / blocks;
	__m256 f[TILE_T];

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
	UNROLL
	for (int t = 0; t < T; t++)
		store_cols(c->c + t * c->ldc, _mm256_mul_ps(f[t], _mm256_set1_ps(scale[t])), c->jn);
}

/* ---- many tokens ---- */

/* Keeps the compiler from moving what p points at into registers across a loop. */
#define OPAQUE_PTR(p) __asm__("" : "+r"(p))

/* Blocks [b0, b1) of one panel into column r of the scratch. */
INLINE void unpack_run(uint32_t type, const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)
{
	for (uint32_t b = b0; b < b1; b++, out += I8_SCR_BLOCK) {
		const uint32_t in = b % type_blocks(type);
		const uint8_t *chunk = panel + b / type_blocks(type) * type_chunk(type),
			      *q = chunk + in * type_codes(type);
		__m256 d, m;

		UNROLL
		for (int h = 0; h < 2; h++) {
			UNROLL
			for (int v = 0; v < 4; v++)
				store256(out + (4 * h + v) * TILE_R * 32, codes_u8(type, q, v, h));
			scales_i8(type, chunk, in, h, &d, &m);
			_mm256_store_ps((float *)(out + I8_SCR_D + h * TILE_N * 4), d);
			_mm256_store_ps((float *)(out + I8_SCR_M + h * TILE_N * 4), m);
		}
	}
}

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
				MUL16_2X1(acc[0][t], acc[1][t], u0, u1, x + g * T + t);
			else
				MAC16_2X1(acc[0][t], acc[1][t], u0, u1, x + g * T + t);
	}
}

/* The running sums f[T][R][8] stay in memory: registers are needed for the int16 sums. */
INLINE void tile_sums(int form, const uint8_t *w, const uint32_t *x, __m256i (*acc)[TILE_T], float *f,
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
		const struct cell_x cx = cell_x(form, x, t, T, h);

		UNROLL
		for (int r = 0; r < TILE_R; r++) {
			float *p = f + (t * TILE_R + r) * PANEL;

			_mm256_store_ps(p, cell_add(form, &cx, acc[r][t], d[r], m[r], _mm256_load_ps(p)));
		}
	}
}

INLINE void tile_run(int form, const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	for (uint32_t b = 0; b < nb; b++, w += I8_SCR_BLOCK, a += T * ACT_I8_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_R][TILE_T];

		OPAQUE_PTR(f);
		UNROLL
		for (int h = 0; h < 1 + form_halves(form); h++) {
			UNROLL
			for (int t = 0; t < T; t++)
				acc[0][t] = acc[1][t] = sum_begin(form, x, t, T, h);
			tile_codes(form, w, x, acc, 4 * h, form_halves(form) ? 4 : 8, T);
			tile_sums(form, w, x, acc, f, T, h);
		}
	}
}

/* ---- instances ---- */

#define DIRECT_FN(type, T)                                                                                   \
	static void direct_##type##_##T(const uint8_t *panel, uint32_t nb, const uint8_t *a,                 \
		const float *scale, const struct store *c)                                                   \
	{                                                                                                    \
		direct_run(TNP_##type, panel, nb, a, scale, c, T);                                           \
	}
#define UNPACK_FN(type, form)                                                                                \
	static void unpack_##type(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)              \
	{                                                                                                    \
		unpack_run(TNP_##type, panel, b0, b1, out);                                                  \
	}
#define TILE_FN(form, T)                                                                                     \
	static void tile_##form##_##T(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f)             \
	{                                                                                                    \
		tile_run(form, w, nb, a, f, T);                                                              \
	}
#define TYPE_FNS(type, form) WIDTHS(DIRECT_FN, type) UNPACK_FN(type, form)
#define FORM_FNS(form)	     WIDTHS(TILE_FN, form)
I8_TYPES(TYPE_FNS)
I8_FORMS(FORM_FNS)

#define DIRECT_NAME(type, T) direct_##type##_##T,
#define TILE_NAME(form, T)   tile_##form##_##T,
#define TYPE_ROW(type, form)                                                                                 \
	[TNP_##type] = { ACT_I8_BLOCK, I8_KC, DIRECT_MAX, unpack_##type,                                     \
		{ NULL, WIDTHS(DIRECT_NAME, type) }, { NULL, WIDTHS(TILE_NAME, form) } },

static const struct int_kernel kernels[] = { I8_TYPES(TYPE_ROW) };

const struct int_kernel *avx2_i8_kernel(uint32_t type)
{
	return type < sizeof kernels / sizeof *kernels && kernels[type].unpack ? kernels + type : NULL;
}
