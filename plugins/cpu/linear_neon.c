/* SPDX-License-Identifier: Apache-2.0
 * Matrix products for 64-bit ARM with the dot product instructions (sdot): panels and activations of linear_neon.h.
 * Codes become int8 with their zero point taken off, four columns x four rows a vector; one sdot multiplies it with
 * four activations of a token. A block's sum is exact in int32 and enters the output by one fma, blocks ascending,
 * then the minimum's by another. Int16 activations are two int8 planes: 256 x one sum + the other, exact too.
 * Few tokens read the panel, many share a stretch of it unpacked in L1: one body, one sequence of operations.
 *
 * Run under emulation only so far (tests/emulated): nothing is known about its speed.
 */
#include "plugins/cpu/linear_neon.h"

enum {
	KC = 48,	    /* blocks of a stretch that is unpacked at a time                    */
	DIRECT_MAX = 8,	    /* tokens up to which panels are read directly                       */
	PART_TOKENS = 256,  /* tokens whose partial sums are kept between stretches              */
	L2_ACT = 256 << 10, /* bytes of activations that should stay in L2                       */
	SCR_BYTES = 20 << 10,
	R_MAX = 4, /* panels at a time of one token in floats: two fma chains are too few */
	UNPACKED_D = 256,
	UNPACKED_M = UNPACKED_D + 64,
	UNPACKED_BLOCK = UNPACKED_M + 64 /* int8 [8 g][8 rows][4], f32 d [2 halves][8], f32 m [2][8] */
};

struct scratch {
	_Alignas(64) uint8_t w[SCR_BYTES];
	_Alignas(64) float part[PART_TOKENS * PANEL];
};
_Static_assert((int)KC *(int)UNPACKED_BLOCK <= (int)SCR_BYTES, "scratch");

/* Beside TNP_*: unpacked blocks, by what is done with them. */
enum { UNPACKED = 64, UNPACKED_MIN, UNPACKED_HALVES, UNPACKED_HALVES_MIN, UNPACKED_INT16 };

/* X(type, form) */
#define TYPES(X)                                                                                             \
	X(TNP_Q4_0, UNPACKED)                                                                                \
	X(TNP_Q4_1, UNPACKED_MIN)                                                                            \
	X(TNP_Q5_0, UNPACKED)                                                                                \
	X(TNP_Q5_1, UNPACKED_MIN)                                                                            \
	X(TNP_Q8_0, UNPACKED_INT16)                                                                          \
	X(TNP_IQ4_NL, UNPACKED_INT16)                                                                        \
	X(TNP_Q2_K, UNPACKED_HALVES_MIN)                                                                     \
	X(TNP_Q3_K, UNPACKED_HALVES)                                                                         \
	X(TNP_Q4_K, UNPACKED_MIN)                                                                            \
	X(TNP_Q5_K, UNPACKED_MIN)                                                                            \
	X(TNP_Q6_K, UNPACKED_HALVES)

/* The form of a type; of a form itself. */
INLINE uint32_t form_of(uint32_t type)
{
#define FORM_CASE(type, form)                                                                                \
	case type:                                                                                           \
		return form;
	switch (type) {
		TYPES(FORM_CASE)
	default:
		return type;
	}
}
INLINE int has_min(uint32_t type)
{
	return form_of(type) == UNPACKED_MIN || form_of(type) == UNPACKED_HALVES_MIN;
}
INLINE int has_halves(uint32_t type)
{
	return form_of(type) == UNPACKED_HALVES || form_of(type) == UNPACKED_HALVES_MIN;
}

/* Bytes of a block's codes; of a chunk; blocks of a chunk. */
INLINE size_t type_codes(uint32_t type)
{
	switch (type) {
	case TNP_Q2_K:
		return 64;
	case TNP_Q3_K:
		return 96;
	case TNP_Q5_0:
	case TNP_Q5_1:
	case TNP_Q5_K:
		return 160;
	case TNP_Q6_K:
		return 192;
	case TNP_Q8_0:
		return 256;
	}
	return 128;
}
INLINE uint32_t type_blocks(uint32_t type)
{
	return type >= TNP_Q2_K && type <= TNP_Q6_K ? DEQUANT_K / QK : 1;
}
INLINE size_t type_chunk(uint32_t type)
{
	const size_t codes = type_blocks(type) * type_codes(type);

	switch (type) {
	case TNP_Q4_1:
	case TNP_Q5_1:
		return codes + 32;
	case TNP_Q2_K:
	case TNP_Q4_K:
	case TNP_Q5_K:
		return codes + 160;
	case TNP_Q3_K:
	case TNP_Q6_K:
		return codes + 144;
	case UNPACKED:
	case UNPACKED_MIN:
	case UNPACKED_HALVES:
	case UNPACKED_HALVES_MIN:
	case UNPACKED_INT16:
		return UNPACKED_BLOCK;
	}
	return codes + 16;
}

/* ---- reading a block ---- */

/* `bits` bits from bit `shift` on of each byte. */
INLINE uint8x16_t field(const uint8_t *p, int shift, int bits)
{
	const uint8x16_t v = vld1q_u8(p);

	return vandq_u8(
		shift ? vshlq_u8(v, vdupq_n_s8((int8_t)-shift)) : v, vdupq_n_u8((uint8_t)((1 << bits) - 1)));
}

/* Group g of rows 4r .. 4r + 3 of the block whose codes begin at q, zero point taken off. */
INLINE int8x16_t codes(uint32_t type, const uint8_t *q, int g, int r)
{
	const int v = g % 4, h = g / 4;
	int8_t zero = 0;
	uint8x16_t u;

	q += 16 * r;
	if (form_of(type) == type || type == TNP_Q8_0)
		return vld1q_s8((const int8_t *)q + 32 * g);
	if (type == TNP_Q2_K || type == TNP_Q3_K)
		u = field(q + 32 * h, 2 * v, 2);
	else
		u = field(q + 32 * v, 4 * h, 4);
	if (type == TNP_IQ4_NL)
		return vqtbl1q_s8(vld1q_s8(dequant_iq4nl), u);
	if (type == TNP_Q3_K)
		u = vorrq_u8(u, vshlq_n_u8(field(q + 64, g, 1), 2));
	if (type == TNP_Q5_0 || type == TNP_Q5_1 || type == TNP_Q5_K)
		u = vorrq_u8(u, vshlq_n_u8(field(q + 128, g, 1), 4));
	if (type == TNP_Q6_K)
		u = vorrq_u8(u, vshlq_n_u8(field(q + 128 + 32 * h, 2 * v, 2), 4));
	zero = type == TNP_Q4_0	   ? 8
		: type == TNP_Q5_0 ? 16
		: type == TNP_Q3_K ? 4
		: type == TNP_Q6_K ? 32
				   : 0;
	return zero ? vsubq_s8(vreinterpretq_s8_u8(u), vdupq_n_s8(zero)) : vreinterpretq_s8_u8(u);
}

INLINE float32x4_t halves_f32(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
/* Four bytes & mask. */
INLINE float32x4_t bytes_u8(const uint8_t *p, int shift, int bits)
{
	uint32_t word;

	memcpy(&word, p, sizeof word);
	word = word >> shift & ((1u << bits) - 1) * 0x01010101u;
	return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word)))));
}
INLINE float32x4_t bytes_i8(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof word);
	return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word)))));
}

/* w = d x code + m of rows 4r .. 4r + 3, block b of the chunk, half h. *m stays for types without. */
INLINE void scales(
	uint32_t type, const uint8_t *chunk, uint32_t b, int h, int r, float32x4_t *d, float32x4_t *m)
{
	const uint8_t *s = chunk + type_blocks(type) * type_codes(type) + 8 * r; /* of f16s */
	const uint8_t *sc = s - 4 * r;						 /* of bytes */

	switch (type) {
	case TNP_Q4_K:
	case TNP_Q5_K:
		*d = vmulq_f32(halves_f32(s + 128), bytes_u8(sc + b * PANEL, 0, 8));
		*m = vnegq_f32(vmulq_f32(halves_f32(s + 144), bytes_u8(sc + 64 + b * PANEL, 0, 8)));
		break;
	case TNP_Q2_K:
		sc += (2 * b + (uint32_t)h) * PANEL;
		*d = vmulq_f32(halves_f32(s + 128), bytes_u8(sc, 0, 4));
		*m = vnegq_f32(vmulq_f32(halves_f32(s + 144), bytes_u8(sc, 4, 4)));
		break;
	case TNP_Q3_K:
	case TNP_Q6_K:
		*d = vmulq_f32(halves_f32(s + 128), bytes_i8(sc + (2 * b + (uint32_t)h) * PANEL));
		break;
	default:
		if (form_of(type) == type) {
			*d = vld1q_f32((const float *)(chunk + UNPACKED_D) + h * PANEL + 4 * r);
			*m = vld1q_f32((const float *)(chunk + UNPACKED_M) + h * PANEL + 4 * r);
			break;
		}
		*d = halves_f32(s);
		if (has_min(type))
			*m = halves_f32(s + 16);
	}
}

/* Blocks [b0, b1) of a panel in the form of UNPACKED. */
INLINE void unpack(uint32_t type, const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)
{
	for (uint32_t b = b0; b < b1; b++, out += UNPACKED_BLOCK) {
		const uint32_t in = b % type_blocks(type);
		const uint8_t *chunk = panel + b / type_blocks(type) * type_chunk(type);
		float *d = (float *)(out + UNPACKED_D), *m = (float *)(out + UNPACKED_M);

		for (int r = 0; r < 2; r++) {
			float32x4_t scale, min = vdupq_n_f32(0);

			UNROLL
			for (int g = 0; g < 8; g++)
				vst1q_s8((int8_t *)out + 32 * g + 16 * r,
					codes(type, chunk + in * type_codes(type), g, r));
			for (int h = 0; h < 2; h++) {
				scales(type, chunk, in, h, r, &scale, &min);
				vst1q_f32(d + h * PANEL + 4 * r, scale);
				vst1q_f32(m + h * PANEL + 4 * r, min);
			}
		}
	}
}

/* ---- a panel x T tokens, integers ---- */

INLINE int32x4_t dot(int32x4_t sum, int8x16_t w, int8x16_t x, int lane)
{
	switch (lane) {
	case 0:
		return vdotq_laneq_s32(sum, w, x, 0);
	case 1:
		return vdotq_laneq_s32(sum, w, x, 1);
	case 2:
		return vdotq_laneq_s32(sum, w, x, 2);
	default:
		return vdotq_laneq_s32(sum, w, x, 3);
	}
}

/* sum[r][t] += codes x activations of the 16 columns of half h; tokens lie lda apart. */
INLINE void half_dots(uint32_t type, const uint8_t *q, const uint8_t *a, size_t lda, int h,
	int32x4_t sum[2][TILE_T], const int T)
{
	int8x16_t x[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		x[t] = vld1q_s8((const int8_t *)a + (size_t)t * lda + 16 * h);
	UNROLL
	for (int v = 0; v < 4; v++)
		UNROLL
	for (int r = 0; r < 2; r++) {
		const int8x16_t w = codes(type, q, 4 * h + v, r);

		UNROLL
		for (int t = 0; t < T; t++)
			sum[r][t] = dot(sum[r][t], w, x[t], v);
	}
}

/* What a block's, or a half's, sums add to the output. `part`: -1 the whole block, 0 or 1 a half. */
INLINE void sums_add(uint32_t type, const uint8_t *chunk, uint32_t b, int part, const uint8_t *a, size_t lda,
	int32x4_t sum[2][TILE_T], float32x4_t f[TILE_T][2], const int T)
{
	UNROLL
	for (int r = 0; r < 2; r++) {
		float32x4_t d, m = vdupq_n_f32(0);

		scales(type, chunk, b, part > 0, r, &d, &m);
		UNROLL
		for (int t = 0; t < T; t++) {
			const struct neon_block *x = (const struct neon_block *)(a + (size_t)t * lda + QK);
			float32x4_t v = vcvtq_f32_s32(sum[r][t]);

			if (form_of(type) != UNPACKED_INT16)
				v = vmulq_n_f32(v, x->s);
			f[t][r] = vfmaq_f32(f[t][r], v, d);
			if (has_min(type))
				f[t][r] = vfmaq_n_f32(f[t][r], m, part < 0 ? x->sum : x->half[part > 0]);
			sum[r][t] = vdupq_n_s32(0);
		}
	}
}

INLINE void block_add(uint32_t type, const uint8_t *chunk, uint32_t b, const uint8_t *a, size_t lda,
	float32x4_t f[TILE_T][2], const int T)
{
	const uint8_t *q = chunk + b * type_codes(type);
	int32x4_t sum[2][TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		sum[0][t] = sum[1][t] = vdupq_n_s32(0);
	half_dots(type, q, a, lda, 0, sum, T);
	if (has_halves(type))
		sums_add(type, chunk, b, 0, a, lda, sum, f, T);
	half_dots(type, q, a, lda, 1, sum, T);
	if (form_of(type) == UNPACKED_INT16) {
		UNROLL
		for (int t = 0; t < T; t++) {
			sum[0][t] = vshlq_n_s32(sum[0][t], 8);
			sum[1][t] = vshlq_n_s32(sum[1][t], 8);
		}
		half_dots(type, q, a + QK, lda, 0, sum, T);
		half_dots(type, q, a + QK, lda, 1, sum, T);
	}
	sums_add(type, chunk, b, has_halves(type) ? 1 : -1, a, lda, sum, f, T);
}

/* nb blocks from w on, which begins a chunk, on top of the sums f[T][8]. */
INLINE void product(
	uint32_t type, const uint8_t *w, uint32_t nb, const uint8_t *a, size_t lda, float *f, const int T)
{
	const size_t block = form_of(type) == UNPACKED_INT16 ? ACT_I16_BLOCK : ACT_I8_BLOCK;
	float32x4_t sum[TILE_T][2];

	UNROLL
	for (int t = 0; t < T; t++) {
		sum[t][0] = vld1q_f32(f + t * PANEL);
		sum[t][1] = vld1q_f32(f + t * PANEL + 4);
	}
	for (uint32_t i = 0; i < nb; i += type_blocks(type), w += type_chunk(type))
		for (uint32_t b = 0; b < type_blocks(type); b++, a += block)
			block_add(type, w, b, a, lda, sum, T);
	UNROLL
	for (int t = 0; t < T; t++) {
		vst1q_f32(f + t * PANEL, sum[t][0]);
		vst1q_f32(f + t * PANEL + 4, sum[t][1]);
	}
}

/* ---- instances ---- */

typedef void product_fn(const uint8_t *w, uint32_t nb, const uint8_t *a, size_t lda, float *f);
typedef void unpack_fn(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out);

#define WIDTHS(X, a) X(a, 1) X(a, 2) X(a, 3) X(a, 4)
#define FORMS(X)                                                                                             \
	X(UNPACKED, ) X(UNPACKED_MIN, ) X(UNPACKED_HALVES, ) X(UNPACKED_HALVES_MIN, ) X(UNPACKED_INT16, )
#define PRODUCT_FN(type, T)                                                                                  \
	static void product_##type##_##T(                                                                    \
		const uint8_t *w, uint32_t nb, const uint8_t *a, size_t lda, float *f)                       \
	{                                                                                                    \
		product(type, w, nb, a, lda, f, T);                                                          \
	}
#define PRODUCT_FNS(type, form) WIDTHS(PRODUCT_FN, type)
#define UNPACK_FN(type, form)                                                                                \
	static void unpack_##type(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out)              \
	{                                                                                                    \
		unpack(type, panel, b0, b1, out);                                                            \
	}
TYPES(PRODUCT_FNS)
FORMS(PRODUCT_FNS)
TYPES(UNPACK_FN)

#define PRODUCT_NAME(type, T)	product_##type##_##T,
#define PRODUCT_ROW(type, form) [type] = { NULL, WIDTHS(PRODUCT_NAME, type) },
#define UNPACK_ROW(type, form)	[type] = unpack_##type,
static product_fn *const products[][TILE_T + 1] = { TYPES(PRODUCT_ROW) FORMS(PRODUCT_ROW) };
static unpack_fn *const unpacks[] = { TYPES(UNPACK_ROW) };

/* ---- driver of the integer products ---- */

struct job {
	const struct linear_weight *w;
	const float *scale; /* [m]  */
	const uint8_t *a;   /* rows */
	size_t lda;
	float *c;
	size_t ldc;
	struct scratch *s;
};

static const uint8_t *panel_at(const struct linear_weight *w, uint32_t panel)
{
	const struct neon_form *f = neon_form(w->type);

	return (const uint8_t *)w->data + (size_t)panel * (w->k / f->k) * f->bytes;
}

/* Sums of rows [i0, i1), times their scales where there are any, to columns [n, n + jn). */
static void sums_store(const struct job *j, const float *f, uint32_t i0, uint32_t i1, uint32_t n, uint32_t jn)
{
	for (uint32_t i = i0; i < i1; i++, f += PANEL)
		for (uint32_t r = 0; r < jn; r++)
			j->c[i * j->ldc + n + r] = j->scale ? f[r] * j->scale[i] : f[r];
}

static void few_run(const struct job *j, uint32_t m, uint32_t n0, uint32_t n1)
{
	for (uint32_t n = n0; n < n1; n += PANEL)
		for (uint32_t i = 0, T; i < m; i += T) {
			float f[TILE_T * PANEL] = { 0 };

			T = m - i < TILE_T ? m - i : TILE_T;
			products[j->w->type][T](
				panel_at(j->w, n / PANEL), j->w->k / QK, j->a + i * j->lda, j->lda, f);
			sums_store(j, f, i, i + T, n, n1 - n < PANEL ? n1 - n : PANEL);
		}
}

/* A panel x tokens [i0, i1). */
static void panel_run(const struct job *j, uint32_t n, uint32_t jn, uint32_t i0, uint32_t i1)
{
	const uint32_t nb = j->w->k / QK, form = form_of(j->w->type);
	const size_t block = form == UNPACKED_INT16 ? ACT_I16_BLOCK : ACT_I8_BLOCK;

	memset(j->s->part, 0, (size_t)(i1 - i0) * PANEL * sizeof *j->s->part);
	for (uint32_t b0 = 0, b1; b0 < nb; b0 = b1) {
		b1 = nb - b0 < KC ? nb : b0 + KC;
		unpacks[j->w->type](panel_at(j->w, n / PANEL), b0, b1, j->s->w);
		for (uint32_t i = i0, T; i < i1; i += T) {
			T = i1 - i < TILE_T ? i1 - i : TILE_T;
			products[form][T](j->s->w, b1 - b0, j->a + i * j->lda + b0 * block, j->lda,
				j->s->part + (size_t)(i - i0) * PANEL);
		}
	}
	sums_store(j, j->s->part, i0, i1, n, jn);
}

static void many_run(const struct job *j, uint32_t m, uint32_t n0, uint32_t n1)
{
	const size_t fit = L2_ACT / j->lda;
	const uint32_t step = fit < 32 ? 32
		: fit > PART_TOKENS    ? PART_TOKENS
				       : (uint32_t)fit / TILE_T * TILE_T;

	for (uint32_t i = 0; i < m; i += step)
		for (uint32_t n = n0; n < n1; n += PANEL)
			panel_run(j, n, n1 - n < PANEL ? n1 - n : PANEL, i, m - i < step ? m : i + step);
}

/* ---- floats: w [k][R panels][8] in the scratch, one fma an output and column, k ascending ---- */

/* Columns [k0, k0 + kn) of a panel as dequant.c has them. */
INLINE void load_codes(
	uint32_t type, const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	for (uint32_t b = k0 / QK; b < (k0 + kn) / QK; b++, out += QK * stride) {
		const uint32_t in = b % type_blocks(type);
		const uint8_t *chunk = panel + b / type_blocks(type) * type_chunk(type);

		for (int r = 0; r < 2; r++)
			UNROLL
		for (int g = 0; g < 8; g++) {
			const int32x4_t c =
				vreinterpretq_s32_s8(codes(type, chunk + in * type_codes(type), g, r));
			float32x4_t d, m = vdupq_n_f32(0);

			scales(type, chunk, in, g / 4, r, &d, &m);
			UNROLL
			for (int j = 0; j < 4; j++) {
				const float32x4_t u = vcvtq_f32_s32(
					vshlq_s32(vshlq_s32(c, vdupq_n_s32(24 - 8 * j)), vdupq_n_s32(-24)));

				vst1q_f32(out + (size_t)(4 * g + j) * stride + 4 * r,
					has_min(type) ? vfmaq_f32(m, d, u) : vmulq_f32(d, u));
			}
		}
	}
}

static void load_TNP_F32(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	for (uint32_t k = 0; k < kn; k++)
		memcpy(out + k * stride, panel + ((size_t)k0 + k) * PANEL * 4, PANEL * 4);
}

static void load_TNP_F16(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	const uint8_t *p = panel + (size_t)k0 * PANEL * 2;

	for (uint32_t k = 0; k < kn; k++, p += PANEL * 2) {
		vst1q_f32(out + k * stride, halves_f32(p));
		vst1q_f32(out + k * stride + 4, halves_f32(p + 8));
	}
}

static void load_TNP_BF16(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	const uint8_t *p = panel + (size_t)k0 * PANEL * 2;

	for (uint32_t k = 0; k < kn; k++, p += PANEL * 2) {
		const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(p));

		vst1q_f32(out + k * stride, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)));
		vst1q_f32(out + k * stride + 4, vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16)));
	}
}

typedef void load_fn(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride);
#define LOAD_FN(type, form)                                                                                  \
	static void load_##type(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)   \
	{                                                                                                    \
		load_codes(type, panel, k0, kn, out, stride);                                                \
	}
TYPES(LOAD_FN)
#define LOAD_ROW(type, form) [type] = load_##type,
static load_fn *const loads[] = { TYPES(LOAD_ROW) LOAD_ROW(TNP_F32, ) LOAD_ROW(TNP_F16, )
		LOAD_ROW(TNP_BF16, ) };

/* R panels x T tokens; sums f[T][R][8]. */
INLINE void tile_f32(
	const float *w, uint32_t kn, const float *x, size_t ldx, float *f, const int R, const int T)
{
	float32x4_t sum[2 * TILE_T];

	UNROLL
	for (int i = 0; i < 2 * R * T; i++)
		sum[i] = vld1q_f32(f + 4 * i);
	for (uint32_t k = 0; k < kn; k++, w += R * PANEL) {
		UNROLL
		for (int t = 0; t < T; t++) {
			const float v = x[(size_t)t * ldx + k];

			UNROLL
			for (int r = 0; r < 2 * R; r++)
				sum[t * 2 * R + r] = vfmaq_n_f32(sum[t * 2 * R + r], vld1q_f32(w + 4 * r), v);
		}
	}
	UNROLL
	for (int i = 0; i < 2 * R * T; i++)
		vst1q_f32(f + 4 * i, sum[i]);
}

typedef void tile_f32_fn(const float *w, uint32_t kn, const float *x, size_t ldx, float *f);
#define TILE_F32_FN(R, T)                                                                                    \
	static void tile_f32_##R##_##T(const float *w, uint32_t kn, const float *x, size_t ldx, float *f)    \
	{                                                                                                    \
		tile_f32(w, kn, x, ldx, f, R, T);                                                            \
	}
WIDTHS(TILE_F32_FN, 1)
TILE_F32_FN(4, 1)
#define TILE_F32_NAME(R, T) tile_f32_##R##_##T,
static tile_f32_fn *const tiles_f32[] = { NULL, WIDTHS(TILE_F32_NAME, 1) };

/* R panels from column n on x tokens [i0, i1); R is 1 unless there is one token. */
static void strip_f32(const struct job *j, uint32_t n, uint32_t n1, uint32_t R, uint32_t i0, uint32_t i1)
{
	const uint32_t k = j->w->k, step = SCR_BYTES / (R * PANEL * sizeof(float)) / QK * QK;
	float *w = (float *)j->s->w, *f = j->s->part;

	memset(f, 0, (size_t)(i1 - i0) * R * PANEL * sizeof *f);
	for (uint32_t k0 = 0, kn; k0 < k; k0 += kn) {
		kn = k - k0 < step ? k - k0 : step;
		for (uint32_t r = 0; r < R; r++)
			loads[j->w->type](panel_at(j->w, n / PANEL + r), k0, kn, w + r * PANEL, R * PANEL);
		for (uint32_t i = i0, T; i < i1; i += T) {
			const float *x = (const float *)j->a + (size_t)i * k + k0;

			T = i1 - i < TILE_T ? i1 - i : TILE_T;
			(R == 1 ? tiles_f32[T] : tile_f32_4_1)(w, kn, x, k, f + (size_t)(i - i0) * PANEL);
		}
	}
	for (uint32_t r = 0; r < R; r++, n += PANEL)
		sums_store(j, f + r * PANEL, i0, i1, n, n1 - n < PANEL ? n1 - n : PANEL);
}

static void f32_run(const struct job *j, uint32_t m, uint32_t n0, uint32_t n1)
{
	for (uint32_t i = 0; i < m; i += PART_TOKENS)
		for (uint32_t n = n0, R; n < n1; n += R * PANEL) {
			R = m == 1 && n1 - n >= R_MAX * PANEL ? R_MAX : 1;
			strip_f32(j, n, n1, R, i, m - i < PART_TOKENS ? m : i + PART_TOKENS);
		}
}

/* ---- the table ---- */

static uint32_t neon_act_class(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const struct neon_form *f = neon_form(type);

	if (!f || !n || n > N_MAX || !k || k > K_MAX || k % f->k || precision > TNP_EXACT)
		return ACT_N_CLASSES;
	if (f->k == 1 || precision == TNP_EXACT)
		return ACT_F32;
	return type == TNP_Q8_0 || type == TNP_IQ4_NL ? ACT_I16 : ACT_I8;
}

static uint64_t neon_weight_bytes(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const struct neon_form *f = neon_form(type);

	(void)precision;
	return f ? ((uint64_t)n + PANEL - 1) / PANEL * (k / f->k) * f->bytes : 0;
}

static uint64_t neon_act_bytes(uint32_t act, uint32_t m, uint32_t k)
{
	if (act != ACT_I8 && act != ACT_I16)
		return 0;
	return act_scales_bytes(m) + (uint64_t)m * (k / QK) * (act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK);
}

static uint64_t neon_scratch_bytes(void) { return sizeof(struct scratch); }

static void neon_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, void *scratch)
{
	struct job j = { .w = w, .a = act, .c = c, .ldc = ldc, .s = scratch };

	if (w->act == ACT_F32) {
		f32_run(&j, m, n0, n1);
		return;
	}
	j.scale = act;
	j.a += act_scales_bytes(m);
	j.lda = (size_t)(w->k / QK) * (w->act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK);
	if (m <= DIRECT_MAX)
		few_run(&j, m, n0, n1);
	else
		many_run(&j, m, n0, n1);
}

static void neon_row_f32(uint32_t type, const void *src, uint32_t k, uint64_t row, float *out)
{
	const size_t bytes = (size_t)(k / dequant_block(type)) * dequant_block_bytes(type);

	dequant_f32(type, (const uint8_t *)src + row * bytes, k, out);
}

const struct linear_ops linear_neon = {
	.isa = "neon-dotprod",
	.act_class = neon_act_class,
	.weight_bytes = neon_weight_bytes,
	.panel_rows = PANEL,
	.weight_pack = neon_weight_pack,
	.act_rows = 1,
	.act_bytes = neon_act_bytes,
	.act_pack = neon_act_pack,
	.scratch_bytes = neon_scratch_bytes,
	.run = neon_run,
	.row_f32 = neon_row_f32,
};
