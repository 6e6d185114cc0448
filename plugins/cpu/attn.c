/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels in plain C, see attn.h: what runs on any machine. Everything goes through the widened tile.
 */
#include "attn.h"
#include "half.h"
#include <math.h>
#include <string.h>
#include <tenon/plugin.h>

uint64_t attn_head_bytes(uint32_t type, uint32_t dim, uint32_t page)
{
	uint32_t pad = attn_pad(dim);
	uint64_t scales = attn_has_scales(type) ? 4ull * attn_blocks(pad) * page : 0;

	return (2 * attn_plane(type, pad, page) + scales + 63) / 64 * 64;
}

/* ---- storing -------------------------------------------------------------------------------- */
static float clamped(float f)
{
	const float most = 3.0e38f;

	return !(f <= most) ? most : f < -most ? -most : f;
}

static void store_f32(const struct attn_shape *s, float *page, uint32_t at, const float *k, const float *v)
{
	float *values = page + (size_t)s->pad * s->page + (size_t)at * s->pad;

	for (uint32_t i = 0; i < s->dim; i++) {
		page[(size_t)i * s->page + at] = clamped(k[i]);
		values[i] = clamped(v[i]);
	}
}

static void store_f16(const struct attn_shape *s, uint16_t *page, uint32_t at, const float *k, const float *v)
{
	uint16_t *values = page + (size_t)s->pad * s->page + (size_t)at * s->pad;

	for (uint32_t i = 0; i < s->dim; i++) {
		page[(size_t)i * s->page + at] = half_from_float(k[i]);
		values[i] = half_from_float(v[i]);
	}
}

/* n <= 32 values become q x scale; consecutive q lie `step` apart. */
static uint16_t block_store(const float *x, uint32_t n, int8_t *q, size_t step)
{
	float most = 0, inverse;
	uint16_t scale;

	for (uint32_t i = 0; i < n; i++) {
		float a = fabsf(clamped(x[i]));

		most = a > most ? a : most;
	}
	scale = half_from_float(most / 127);
	inverse = most > 0 ? 127 / most : 0;
	for (uint32_t i = 0; i < n; i++) {
		float r = rintf(clamped(x[i]) * inverse);

		q[i * step] = (int8_t)(r > 127 ? 127 : r < -127 ? -127 : r);
	}
	return scale;
}

static void store_q8(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	uint32_t blocks = attn_blocks(s->pad);
	int8_t *keys = (int8_t *)head, *values = keys + (size_t)s->pad * s->page;
	uint16_t *ks = (uint16_t *)(values + (size_t)s->pad * s->page), *vs = ks + (size_t)blocks * s->page;

	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t n = s->dim - 32 * b < 32 ? s->dim - 32 * b : 32;

		ks[(size_t)b * s->page + at] =
			block_store(k + 32 * b, n, keys + (size_t)32 * b * s->page + at, s->page);
		vs[(size_t)at * blocks + b] =
			block_store(v + 32 * b, n, values + (size_t)at * s->pad + 32 * b, 1);
	}
}

/* n <= 32 values become (q - 8) x scale, the largest of them -8 x scale; q of dimensions 2i and 2i + 1 share a byte,
 * bytes lie `step` apart. */
static uint16_t nibbles_store(const float *x, uint32_t n, uint8_t *q, size_t step)
{
	float most = 0, inverse;
	uint16_t scale;

	for (uint32_t i = 0; i < n; i++)
		if (fabsf(clamped(x[i])) > fabsf(most))
			most = clamped(x[i]);
	scale = half_from_float(most / -8);
	inverse = most != 0 ? -8 / most : 0;
	for (uint32_t i = 0; i < n; i++) {
		float r = rintf(clamped(x[i]) * inverse) + 8;
		uint8_t v = (uint8_t)(r > 15 ? 15 : r < 0 ? 0 : r), *at = q + i / 2 * step;

		*at = (uint8_t)(i % 2 ? (*at & 15) | v << 4 : v | 8 << 4);
	}
	return scale;
}

static void store_q4(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	uint32_t blocks = attn_blocks(s->pad);
	size_t plane = attn_plane(TNP_Q4_0, s->pad, s->page);
	uint16_t *ks = (uint16_t *)(head + 2 * plane), *vs = ks + (size_t)blocks * s->page;

	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t n = s->dim - 32 * b < 32 ? s->dim - 32 * b : 32;

		ks[(size_t)b * s->page + at] =
			nibbles_store(k + 32 * b, n, head + (size_t)16 * b * s->page + at, s->page);
		vs[(size_t)at * blocks + b] =
			nibbles_store(v + 32 * b, n, head + plane + ((size_t)at * s->pad + 32 * b) / 2, 1);
	}
}

static void base_store(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	switch (s->type) {
	case TNP_F32:
		store_f32(s, (float *)head, at, k, v);
		break;
	case TNP_F16:
		store_f16(s, (uint16_t *)head, at, k, v);
		break;
	case TNP_Q8_0:
		store_q8(s, head, at, k, v);
		break;
	default:
		store_q4(s, head, at, k, v);
	}
}

/* ---- widening --------------------------------------------------------------------------------- */
/* Where dimension `dim` of a token's key or value stands: number of the element in its plane. */
static size_t element_at(const struct attn_shape *s, bool value, uint32_t dim, uint32_t token)
{
	return value ? (size_t)token * s->pad + dim : (size_t)dim * s->page + token;
}

static float nibble(
	const struct attn_shape *s, const uint8_t *plane, bool value, uint32_t dim, uint32_t token)
{
	uint8_t b = plane[value ? ((size_t)token * s->pad + dim) / 2 : (size_t)(dim / 2) * s->page + token];

	return (float)((dim % 2 ? b >> 4 : b & 15) - 8);
}

static float element(
	const struct attn_shape *s, const uint8_t *head, bool value, uint32_t dim, uint32_t token)
{
	size_t bytes = attn_plane(s->type, s->pad, s->page), at = element_at(s, value, dim, token);
	const uint8_t *plane = head + (value ? bytes : 0);
	const uint16_t *scale = (const uint16_t *)(head + 2 * bytes);
	uint32_t blocks = attn_blocks(s->pad);

	if (s->type == TNP_F32)
		return ((const float *)plane)[at];
	if (s->type == TNP_F16)
		return half_to_float(((const uint16_t *)plane)[at]);
	scale += value ? (size_t)blocks * s->page + (size_t)token * blocks + dim / 32
		       : (size_t)(dim / 32) * s->page + token;
	return half_to_float(*scale) *
		(s->type == TNP_Q8_0 ? (float)((const int8_t *)plane)[at]
				     : nibble(s, plane, value, dim, token));
}

static void base_widen(const struct attn_shape *s, const struct attn_half half[2], float *tile)
{
	float *values = tile + (size_t)ATTN_TILE * s->pad;

	for (uint32_t d = 0; d < s->pad; d++)
		for (uint32_t t = 0; t < ATTN_TILE; t++) {
			const struct attn_half *h = &half[t / ATTN_HALF];
			uint32_t token = h->token + t % ATTN_HALF;

			tile[(size_t)d * ATTN_TILE + t] = element(s, h->head, false, d, token);
			values[(size_t)t * s->pad + d] = element(s, h->head, true, d, token);
		}
}

void attn_gather(const struct attn_shape *s, const float *k, const float *v, size_t ldk, size_t ldv,
	uint32_t n, float *tile)
{
	float *values = tile + (size_t)ATTN_TILE * s->pad, *scale = attn_wide_scales(s, tile);

	memset(tile, 0, 2 * sizeof *tile * ATTN_TILE * s->pad);
	for (uint32_t t = 0; t < n; t++)
		for (uint32_t d = 0; d < s->dim; d++) {
			tile[(size_t)d * ATTN_TILE + t] = clamped(k[t * ldk + d]);
			values[(size_t)t * s->pad + d] = clamped(v[t * ldv + d]);
		}
	for (uint32_t i = 0; attn_has_scales(s->type) && i < 2 * attn_blocks(s->pad) * ATTN_TILE; i++)
		scale[i] = 1;
}

/* ---- one tile ----------------------------------------------------------------------------------- */
static float score(const struct attn_shape *s, const float *tile, const float *q, int32_t key)
{
	float sum = 0;

	for (uint32_t d = 0; d < s->pad; d++)
		sum += q[d] * tile[(size_t)d * ATTN_TILE + (size_t)key];
	return s->cap > 0 ? s->cap * tanhf(sum) : sum;
}

/* Scores are powers of two: log2(e) is part of the scale. */
static void row_tile(
	const struct attn_shape *s, const float *tile, const float *q, int32_t lo, int32_t hi, float *st)
{
	const float *values = tile + (size_t)ATTN_TILE * s->pad;
	float p[ATTN_TILE], top = st[0], down, *o = st + ATTN_STATE_HEAD;

	for (int32_t i = lo; i < hi; i++) {
		p[i] = score(s, tile, q, i);
		top = p[i] > top ? p[i] : top;
	}
	down = exp2f(st[0] - top);
	st[0] = top;
	st[8] *= down;
	for (uint32_t d = 0; d < s->pad; d++)
		o[d] *= down;
	for (int32_t i = lo; i < hi; i++) {
		float share = exp2f(p[i] - top);

		st[8] += share;
		for (uint32_t d = 0; d < s->pad; d++)
			o[d] += share * values[(size_t)i * s->pad + d];
	}
}

static void base_tile_wide(const struct attn_shape *s, const float *tile, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	for (uint32_t i = 0; i < n; i++)
		if (lo[i] < hi[i])
			row_tile(s, tile, q + (size_t)i * s->pad, lo[i], hi[i], st + i * stride);
}

static void base_merge(uint32_t pad, const float *from, float *into)
{
	float top = from[0] > into[0] ? from[0] : into[0];
	float a = exp2f(into[0] - top), b = exp2f(from[0] - top);

	into[0] = top;
	for (uint32_t i = 8; i < ATTN_STATE_HEAD + pad; i++)
		into[i] = into[i] * a + from[i] * b;
}

static void base_finish(uint32_t dim, const float *st, float *out)
{
	for (uint32_t i = 0; i < dim; i++)
		out[i] = st[ATTN_STATE_HEAD + i] / st[8];
}

const struct attn_ops attn_base = {
	.store = base_store,
	.widen = base_widen,
	.gather = attn_gather,
	.tile_wide = base_tile_wide,
	.tile_page = NULL,
	.merge = base_merge,
	.finish = base_finish,
};
