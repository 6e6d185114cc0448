/* SPDX-License-Identifier: Apache-2.0
 * AVX2's steps for the loops of linear_avx2_i8.h, and the unpacking that every variant over these panels uses.
 *
 * Eight maddubs of a block are added in int16. Sums wrap on the way, but the final value of every lane fits: with
 * the zero point taken off the greatest is 16 * 16 * 127 = 32,512 (5 bits, 32 columns; 6 bits, 16 columns), without
 * one 16 * 15 * 127 = 30,480. The madd that widens multiplies by the activation's block scale (below 2^31), one fma
 * by the weight's scale adds to the output.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum { DIRECT_MAX = 16, DIRECT_MAX_MORE = 8 }; /* MORE: codes of more than nibbles, longer to unpack */

/* ---- steps ---- */

struct turn {
	const uint32_t *x;
	int T;
};

INLINE void turn_make(int form, const uint32_t *x, const int T, struct turn *o)
{
	(void)form;
	*o = (struct turn){ x, T };
}

INLINE __m256i turn_begin(int form, const struct turn *o, int h, int t)
{
	const __m256i corr = bcast(o->x + X_CORR * o->T + t);

	if (form == I8_MIN)
		return _mm256_setzero_si256();
	if (form == I8_Z8)
		return corr;
	if (form == I8_Z16 || form == I8_Z16_MIN)
		return _mm256_add_epi16(corr, corr);
	return _mm256_slli_epi16(h ? _mm256_sub_epi16(corr, bcast(o->x + X_CORR16 * o->T + t))
				   : bcast(o->x + X_CORR16 * o->T + t),
		2);
}

struct cell {
	__m256i s, corr;
	__m256 ssum;
};

INLINE struct cell cell_make(int form, const struct turn *o, int h, int t)
{
	const uint32_t *x = o->x + t;
	struct cell c = {
		.s = bcast(x + X_S * o->T), .corr = _mm256_setzero_si256(), .ssum = _mm256_setzero_ps()
	};

	if (form_min(form))
		c.ssum = bcast_f32(x + X_SSUM * o->T);
	if (form == I8_HALVES_MIN)
		c.corr = bcast(x + X_CORR16 * o->T);
	if (form == I8_HALVES_MIN && h)
		c.corr = _mm256_sub_epi16(bcast(x + X_CORR * o->T), c.corr);
	return c;
}

INLINE __m256 scaled_add(__m256i acc, __m256i s, __m256 d, __m256 f)
{
	return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(acc, s)), d, f);
}

INLINE __m256 cell_add(int form, const struct cell *c, __m256i acc, __m256 d, __m256 m, __m256 f)
{
	f = scaled_add(acc, c->s, d, f);
	if (form_min(form))
		f = _mm256_fmadd_ps(c->ssum, m, f);
	else if (form == I8_HALVES_MIN)
		f = scaled_add(c->corr, c->s, m, f);
	return f;
}

#define mac_i8	   mac16
#define mul_i8	   _mm256_maddubs_epi16
#define MAC_I8_2X1 MAC16_2X1
#define MUL_I8_2X1 MUL16_2X1
#include "plugins/cpu/linear_avx2_i8.h"

/* ---- unpacking ---- */

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

#define UNPACK_FN(type, form)                                                                                \
	static void unpack_##type(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)              \
	{                                                                                                    \
		unpack_run(TNP_##type, panel, b0, b1, out);                                                  \
	}
I8_TYPES(UNPACK_FN)

/* ---- the table ---- */

#define NIBBLES(type)	(TNP_##type == TNP_Q4_0 || TNP_##type == TNP_Q4_1 || TNP_##type == TNP_Q4_K)
#define ROW(type, form) I8_ROW(type, form, NIBBLES(type) ? DIRECT_MAX : DIRECT_MAX_MORE, unpack_##type)
static const struct int_kernel kernels[] = { I8_TYPES(ROW) };

const struct int_kernel *avx2_i8_kernel(uint32_t type)
{
	return type < sizeof kernels / sizeof *kernels && kernels[type].unpack ? kernels + type : NULL;
}
