/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels for NEON, see attn.h. A tile is 3 query rows x 32 keys: 24 accumulators of the 32 registers, for
 * the scores and for the mixing of values alike. Keys lie [dim][token], so that scores need no sums across lanes.
 * Scales of quantised types are applied once a block of 32 dimensions: to its part of a score, and to the shares that
 * its values are mixed with; a widened tile keeps the numbers and the scales apart too. So reading pages in place and
 * reading the widened tile give the same bits. One body serves all stored types and 1 to 3 rows.
 *
 * Run under emulation only so far (tests/emulated): nothing is known about its speed.
 */
#include "attn.h"
#include "half.h"
#include "neon.h"
#include <string.h>
#include <tenon/plugin.h>

enum {
	ROWS = 3, /* most of a tile */
	V = 4,
	TV = ATTN_TILE / V, /* lanes; vectors of a tile's keys */
	HV = ATTN_HALF / V, /* vectors of a half */
	SUMS = 8	    /* where a state has the sums of shares */
};

INLINE float32x4_t from_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

/* The lower four of eight signed bytes. */
INLINE float32x4_t from_bytes(int8x8_t b) { return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(b)))); }

INLINE uint8x8_t load_bytes(const void *p, size_t n)
{
	uint32_t word = 0;

	memcpy(&word, p, n);
	return vcreate_u8(word);
}

INLINE int8x8_t less_eight(uint8x8_t nibbles) { return vsub_s8(vreinterpret_s8_u8(nibbles), vdup_n_s8(8)); }

/* Element i of a plane and the three after it; not for Q4_0. */
INLINE float32x4_t load_four(const uint32_t type, const void *base, size_t i)
{
	if (type == TNP_F16)
		return from_f16((const uint16_t *)base + i);
	if (type == TNP_Q8_0)
		return from_bytes(vreinterpret_s8_u8(load_bytes((const uint8_t *)base + i, 4)));
	return vld1q_f32((const float *)base + i);
}

/* Dimension d of four tokens. */
INLINE float32x4_t load_key(const uint32_t type, const void *base, uint32_t d, size_t stride, uint32_t token)
{
	uint8x8_t b;

	if (type != TNP_Q4_0)
		return load_four(type, base, d * stride + token);
	b = load_bytes((const uint8_t *)base + d / 2 * stride + token, 4);
	b = d % 2 ? vshr_n_u8(b, 4) : vand_u8(b, vdup_n_u8(15));
	return from_bytes(less_eight(b));
}

/* Four dimensions from element i (a multiple of 4) of the values on. */
INLINE float32x4_t load_value(const uint32_t type, const void *base, size_t i)
{
	uint8x8_t b;

	if (type != TNP_Q4_0)
		return load_four(type, base, i);
	b = load_bytes((const uint8_t *)base + i / 2, 2);
	b = vzip1_u8(vand_u8(b, vdup_n_u8(15)), vshr_n_u8(b, 4));
	return from_bytes(less_eight(b));
}

INLINE void vec_store(float *p, float32x4_t x) { vst1q_f32(p, x); }

#include "attn_source.h"

void attn_scales_gather(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const size_t plane = attn_plane(s->type, s->pad, s->page), blocks = attn_blocks(s->pad);
	float *values = out + blocks * ATTN_TILE;

	for (uint32_t t = 0; t < ATTN_TILE; t++) {
		const struct attn_half *h = &half[t / ATTN_HALF];
		const uint16_t *k = (const uint16_t *)(h->head + 2 * plane), *v = k + blocks * s->page;
		const size_t token = h->token + t % ATTN_HALF;

		for (uint32_t b = 0; b < blocks; b++) {
			out[b * ATTN_TILE + t] = half_to_float(k[b * s->page + token]);
			values[b * ATTN_TILE + t] = half_to_float(v[token * blocks + b]);
		}
	}
}

/* ---- scores -------------------------------------------------------------------------------------- */
/* p = the scores of dimensions [d0, d1), times ks if there are scales, on top of p unless d0 is 0. */
INLINE void score_block(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, uint32_t d0, uint32_t d1, float p[ROWS][ATTN_TILE])
{
	float32x4_t acc[ROWS][TV];

	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		acc[r][j] = all(0);
	for (uint32_t d = d0; d < d1; d++) {
		UNROLL
		for (uint32_t j = 0; j < TV; j++) {
			const float32x4_t y = load_key(type, src->k[j / HV], d, src->k_stride, j % HV * V);

			UNROLL
			for (uint32_t r = 0; r < R; r++)
				acc[r][j] = vfmaq_n_f32(acc[r][j], y, q[r * (size_t)s->pad + d]);
		}
	}
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++) {
		float32x4_t y = acc[r][j];

		if (has_scales(type))
			y = vfmaq_f32(d0 ? vld1q_f32(&p[r][V * j]) : all(0), y,
				vld1q_f32(src->ks + d0 / BLOCK * (size_t)ATTN_TILE + V * j));
		vst1q_f32(&p[r][V * j], y);
	}
}

INLINE void scores(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, float p[ROWS][ATTN_TILE])
{
	const uint32_t step = has_scales(type) ? BLOCK : s->dim;

	for (uint32_t d = 0; d < s->dim; d += step)
		score_block(type, R, s, src, q, d, s->dim - d < step ? s->dim : d + step, p);
}

/* ---- softmax ---------------------------------------------------------------------------------------- */
INLINE uint32x4_t seen(int32_t lo, int32_t hi, uint32_t j)
{
	static const int32_t lanes[V] = { 0, 1, 2, 3 };
	const int32x4_t at = vaddq_s32(vld1q_s32(lanes), vdupq_n_s32((int32_t)(V * j)));

	return vandq_u32(vcltq_s32(at, vdupq_n_s32(hi)), vcgeq_s32(at, vdupq_n_s32(lo)));
}

/* Scores of one row become shares; returns by what the old state shrinks. Hidden keys get exactly 0. */
static float32x4_t shares(float *p, float cap, int32_t lo, int32_t hi, float *st)
{
	float32x4_t x[TV], top = all(st[0]), down, sum[4];
	float most;

	for (uint32_t j = 0; j < TV; j++) {
		x[j] = vld1q_f32(p + V * j);
		if (cap > 0)
			x[j] = vmulq_n_f32(tanh_f32x4(x[j]), cap);
		x[j] = vbslq_f32(seen(lo, hi, j), x[j], all(-1e30f));
		top = vmaxnmq_f32(top, x[j]);
	}
	most = vmaxnmvq_f32(top);
	down = exp2_neg(all(st[0] - most));
	st[0] = most;
	for (uint32_t j = 0; j < TV; j++) {
		x[j] = bits_and(exp2_neg(vsubq_f32(x[j], all(most))), seen(lo, hi, j));
		vst1q_f32(p + V * j, x[j]);
	}
	for (uint32_t j = 0; j < 4; j++)
		sum[j] = vaddq_f32(x[j], x[j + 4]);
	sum[0] = vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3]));
	vst1q_f32(st + SUMS, vfmaq_f32(sum[0], vld1q_f32(st + SUMS), down));
	return down;
}

/* ---- values ------------------------------------------------------------------------------------------ */
/* o[r][h .. h + V NV) = o * down[r] + p[r] x v, shares times the values' scales if there are any */
INLINE void mix(const uint32_t type, const uint32_t R, const uint32_t NV, const struct source *src,
	uint32_t h, float shares[ROWS][ATTN_TILE], const float32x4_t down[ROWS], float *st[ROWS],
	const bool live[ROWS])
{
	float scaled[ROWS][ATTN_TILE];
	float(*p)[ATTN_TILE] = has_scales(type) ? scaled : shares;
	float32x4_t o[ROWS][TV];

	for (uint32_t r = 0; has_scales(type) && r < R; r++)
		for (uint32_t t = 0; t < ATTN_TILE; t++)
			scaled[r][t] = shares[r][t] * src->vs[h / BLOCK * (size_t)ATTN_TILE + t];
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		o[r][j] = vmulq_f32(vld1q_f32(st[r] + ATTN_STATE_HEAD + h + V * j), down[r]);
	for (uint32_t t = 0; t < ATTN_TILE; t++) {
		const void *v = src->v[t / ATTN_HALF];
		const size_t at = t % ATTN_HALF * (size_t)src->v_stride + h;

		UNROLL
		for (uint32_t j = 0; j < NV; j++) {
			const float32x4_t y = load_value(type, v, at + V * j);

			UNROLL
			for (uint32_t r = 0; r < R; r++)
				o[r][j] = vfmaq_n_f32(o[r][j], y, p[r][t]);
		}
	}
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		if (live[r])
			vst1q_f32(st[r] + ATTN_STATE_HEAD + h + V * j, o[r][j]);
}

/* ---- a tile --------------------------------------------------------------------------------------------- */
INLINE void tile(const uint32_t type, const uint32_t R, const struct attn_shape *s, const struct source *src,
	const float *q, const int32_t *lo, const int32_t *hi, float *state, size_t stride)
{
	float p[ROWS][ATTN_TILE];
	float32x4_t down[ROWS];
	float *st[ROWS];
	bool live[ROWS];
	uint32_t h = 0;

	scores(type, R, s, src, q, p);
	for (uint32_t r = 0; r < R; r++) {
		st[r] = state + r * stride;
		live[r] = lo[r] < hi[r];
		if (live[r]) {
			down[r] = shares(p[r], s->cap, lo[r], hi[r], st[r]);
		} else {
			memset(p[r], 0, sizeof p[r]);
			down[r] = all(0);
		}
	}
	for (; h + TV * V <= s->pad; h += TV * V)
		mix(type, R, TV, src, h, p, down, st, live);
	for (; h < s->pad; h += 2 * V)
		mix(type, R, 2, src, h, p, down, st, live);
}

typedef void tile_fn(const struct attn_shape *s, const struct source *src, const float *q, const int32_t *lo,
	const int32_t *hi, float *st, size_t stride);
#define TILE_FN(type, R)                                                                                     \
	static void tile_##type##_##R(const struct attn_shape *s, const struct source *src, const float *q,  \
		const int32_t *lo, const int32_t *hi, float *st, size_t stride)                              \
	{                                                                                                    \
		tile(type, R, s, src, q, lo, hi, st, stride);                                                \
	}
#define TILE_FNS(type) TILE_FN(type, 1) TILE_FN(type, 2) TILE_FN(type, 3)
#define TILE_ROW(type) [type] = { NULL, tile_##type##_1, tile_##type##_2, tile_##type##_3 },
#define STORED(X)      X(TNP_F32) X(TNP_F16) X(TNP_Q8_0) X(TNP_Q4_0) X(FLAT) X(WIDE)
STORED(TILE_FNS)
static tile_fn *const tiles[][ROWS + 1] = { STORED(TILE_ROW) };

static void rows_run(uint32_t type, const struct attn_shape *s, const struct source *src, uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	for (uint32_t r = 0; r < n; r += ROWS)
		tiles[type][n - r < ROWS ? n - r : ROWS](
			s, src, q + (size_t)r * s->pad, lo + r, hi + r, st + r * stride, stride);
}

static void neon_tile_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	const struct source src = source_wide(s, wide);

	rows_run(attn_has_scales(s->type) ? WIDE : FLAT, s, &src, n, q, lo, hi, st, stride);
}

static void neon_tile_page(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	float scale[2 * MAX_BLOCKS * ATTN_TILE];
	struct source src = source_page(s, half);

	if (attn_has_scales(s->type)) {
		attn_scales_gather(s, half, scale);
		src.ks = scale;
		src.vs = scale + (size_t)attn_blocks(s->pad) * ATTN_TILE;
	}
	rows_run(s->type, s, &src, n, q, lo, hi, st, stride);
}

/* ---- storing, merging, finishing ---------------------------------------------------------------------------- */
static void neon_store(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	attn_base.store(s, head, at, k, v);
}

static void neon_merge(uint32_t pad, const float *from, float *into)
{
	const float most = from[0] > into[0] ? from[0] : into[0];
	const float32x4_t a = exp2_neg(all(into[0] - most)), b = exp2_neg(all(from[0] - most));

	into[0] = most;
	for (uint32_t i = SUMS; i < ATTN_STATE_HEAD + pad; i += V)
		vst1q_f32(into + i, vfmaq_f32(vmulq_f32(vld1q_f32(from + i), b), vld1q_f32(into + i), a));
}

static void neon_finish(uint32_t dim, const float *st, float *out)
{
	const float inverse = 1 / vaddvq_f32(vld1q_f32(st + SUMS));
	uint32_t i = 0;

	for (; i + V <= dim; i += V)
		vst1q_f32(out + i, vmulq_n_f32(vld1q_f32(st + ATTN_STATE_HEAD + i), inverse));
	for (; i < dim; i++)
		out[i] = st[ATTN_STATE_HEAD + i] * inverse;
}

const struct attn_ops attn_neon = {
	.store = neon_store,
	.widen = tile_widen,
	.gather = attn_gather,
	.tile_wide = neon_tile_wide,
	.tile_page = neon_tile_page,
	.merge = neon_merge,
	.finish = neon_finish,
};
