/* SPDX-License-Identifier: Apache-2.0
 * One tile of attention (attn.h), for vectors of any width: ROWS query rows x 32 keys, as many accumulators for the
 * scores as for the mixing of values. Keys lie [dim][token], so that scores need no sums across lanes. Scales of
 * quantised types are applied once a block of 32 dimensions: to its part of a score, and to the shares that its values
 * are mixed with; a widened tile keeps the numbers and the scales apart too. So reading pages in place and reading the
 * widened tile give the same bits; nor do the bits depend on the width or on ROWS: a score and an output have one sum.
 * One body serves all stored types and 1 to ROWS rows: constants of inline functions.
 *
 * A file that includes this has before it: enum { V (lanes), ROWS }, vec, vec_zero, vec_set, vec_load, vec_store,
 * vec_fma, vec_mul; load_key, load_value; ROWS_EACH(X, type): X(type, 1) ... X(type, ROWS); and `shares`: scores of the
 * live rows become shares, hidden keys get exactly 0, and so do all of a row that is not live; down: by what the old
 * states shrink.
 */
#ifndef PLUGINS_CPU_ATTN_TILE_H
#define PLUGINS_CPU_ATTN_TILE_H
#include "attn.h"
#include "avx2.h"
#include <string.h>

enum {
	TV = ATTN_TILE / V, /* vectors of a tile's keys */
	BLOCK = 32,	    /* dimensions that share a scale */
	MAX_BLOCKS = 1024 / BLOCK,
	FLAT = 64, /* beside TNP_*: a widened tile */
	WIDE = 65  /* the same of a quantised type: scales apart */
};

/* Keys and values of a tile in two halves; strides in elements. */
struct source {
	const void *k[2], *v[2];
	const float *ks, *vs; /* quantised types: scales of keys and of values, both [block][ATTN_TILE] */
	uint32_t k_stride, v_stride;
	bool k_apart;		   /* halves of the keys share no cache line */
	const struct source *next; /* what to fetch meanwhile; itself if there is nothing */
};

INLINE bool has_scales(const uint32_t type) { return type == WIDE || attn_has_scales(type); }

static struct source source_page(const struct attn_shape *s, const struct attn_half half[2])
{
	size_t plane = attn_plane(s->type, s->pad, s->page), column = plane / s->pad / s->page;
	struct source src = { .k_stride = s->page, .v_stride = s->pad };

	for (int h = 0; h < 2; h++) {
		const uint8_t *head = half[h].head;

		src.k[h] = head + half[h].token * (column ? column : 1);
		src.v[h] = head + plane + plane / s->page * half[h].token;
	}
	src.k_apart = ((uintptr_t)src.k[0] ^ (uintptr_t)src.k[1]) >= 64;
	return src;
}

static struct source source_wide(const struct attn_shape *s, const float *tile)
{
	const float *values = tile + (size_t)ATTN_TILE * s->pad;

	return (struct source){ .k = { tile, tile + ATTN_HALF },
		.v = { values, values + (size_t)ATTN_HALF * s->pad },
		.ks = attn_wide_scales(s, tile),
		.vs = attn_wide_scales(s, tile) + ATTN_TILE * (size_t)attn_blocks(s->pad),
		.k_stride = ATTN_TILE,
		.v_stride = s->pad };
}

/* Into L2: a load buffer serves only some 12 GB/s of prefetches into L1, pages in memory come at twice that. */
INLINE void fetch(const uint32_t type, const void *base, size_t i)
{
	const size_t at = type == TNP_F32 ? 4 * i : type == TNP_F16 ? 2 * i : type == TNP_Q8_0 ? i : i / 2;

	if (type < FLAT)
		_mm_prefetch((const char *)base + at, _MM_HINT_T1);
}

/* The compiler would fold a load into each use: load once. */
#ifdef LINEAR_NO_ASM
#define KEEP(y) (void)(y)
#else
#define KEEP(y) __asm__("" : "+v"(y))
#endif

/* ---- scores -------------------------------------------------------------------------------------- */
/* acc[r][j] += q[r][d] * k[d][8j..], d over [d0, d1). */
INLINE void score_dims(const uint32_t type, const uint32_t R, vec acc[ROWS][TV], const float *q, size_t ldq,
	const struct source *src, uint32_t d0, uint32_t d1)
{
	for (uint32_t d = d0; d < d1; d++) {
		vec x[ROWS];

		fetch(type, src->next->k[0], (size_t)d * src->k_stride);
		if (src->next->k_apart)
			fetch(type, src->next->k[1], (size_t)d * src->k_stride);

		UNROLL
		for (uint32_t r = 0; r < R; r++)
			x[r] = vec_set(q[r * ldq + d]);
		UNROLL
		for (uint32_t j = 0; j < TV; j++) {
			vec y = load_key(
				type, src->k[j * V / ATTN_HALF], d, src->k_stride, j * V % ATTN_HALF);

			KEEP(y);
			UNROLL
			for (uint32_t r = 0; r < R; r++)
				acc[r][j] = vec_fma(x[r], y, acc[r][j]);
		}
	}
}

/* p = the scores of dimensions [d0, d1), times ks if there are scales, on top of p unless d0 is 0. */
INLINE void score_block(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, const float *ks, uint32_t d0, uint32_t d1,
	float p[ROWS][ATTN_TILE])
{
	vec acc[ROWS][TV];

	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		acc[r][j] = vec_zero();
	score_dims(type, R, acc, q, s->pad, src, d0, d1);
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++) {
		vec y = acc[r][j];

		if (has_scales(type))
			y = vec_fma(y, vec_load(ks + V * j), d0 ? vec_load(&p[r][V * j]) : vec_zero());
		vec_store(&p[r][V * j], y);
	}
}

typedef void score_fn(const struct attn_shape *s, const struct source *src, const float *q, const float *ks,
	uint32_t d0, uint32_t d1, float p[ROWS][ATTN_TILE]);

INLINE void scores(const uint32_t type, score_fn *fn, const struct attn_shape *s, const struct source *src,
	const float *q, float p[ROWS][ATTN_TILE])
{
	if (!has_scales(type))
		fn(s, src, q, NULL, 0, s->dim, p);
	for (uint32_t d = 0; has_scales(type) && d < s->dim; d += BLOCK)
		fn(s, src, q, src->ks + d, d, s->dim < d + BLOCK ? s->dim : d + BLOCK, p);
}

/* ---- values ------------------------------------------------------------------------------------------ */
/* Shares times the scales of dimensions h and on. */
INLINE void shares_scale(
	const uint32_t R, const float *vs, float from[ROWS][ATTN_TILE], float to[ROWS][ATTN_TILE])
{
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		vec_store(&to[r][V * j], vec_mul(vec_load(&from[r][V * j]), vec_load(vs + V * j)));
}

/* NV vectors of each row's o from dimension h on: o * down[r] + p[r] x v; rows that are not in `live` are left alone. */
INLINE void mix(const uint32_t type, const uint32_t R, const uint32_t NV, const struct source *src,
	uint32_t h, float p[ROWS][ATTN_TILE], const vec down[ROWS], float *o, size_t stride, uint32_t live)
{
	vec sum[ROWS][TV];

	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		sum[r][j] = vec_mul(vec_load(o + r * stride + V * j), down[r]);
	for (uint32_t half = 0; half < 2; half++)
		for (uint32_t i = 0; i < ATTN_HALF; i++) {
			vec x[ROWS];

			fetch(type, src->next->v[half], (size_t)i * src->v_stride + h);
			UNROLL
			for (uint32_t r = 0; r < R; r++)
				x[r] = vec_set(p[r][half * ATTN_HALF + i]);
			UNROLL
			for (uint32_t j = 0; j < NV; j++) {
				vec y = load_value(type, src->v[half], (size_t)i * src->v_stride + h + V * j);

				KEEP(y);
				UNROLL
				for (uint32_t r = 0; r < R; r++)
					sum[r][j] = vec_fma(x[r], y, sum[r][j]);
			}
		}
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		if (live >> r & 1)
			vec_store(o + r * stride + V * j, sum[r][j]);
}

typedef void mix_fn(const struct source *src, uint32_t h, float p[ROWS][ATTN_TILE], const vec down[ROWS],
	float *o, size_t stride, uint32_t live);

/* All dimensions. Shares meet the scales of a block before its values. */
INLINE void values(const uint32_t type, const uint32_t R, mix_fn *all, mix_fn *one, uint32_t pad,
	const struct source *src, float p[ROWS][ATTN_TILE], const vec down[ROWS], float *o, size_t stride,
	uint32_t live)
{
	_Alignas(64) float scaled[ROWS][ATTN_TILE];
	float(*share)[ATTN_TILE] = has_scales(type) ? scaled : p;

	for (uint32_t h = 0; h < pad;) {
		if (has_scales(type) && h % BLOCK == 0)
			shares_scale(R, src->vs + h, p, scaled);
		if (h + TV * V <= pad) {
			all(src, h, share, down, o + h, stride, live);
			h += TV * V;
		} else {
			one(src, h, share, down, o + h, stride, live);
			h += V;
		}
	}
}

/* ---- a tile --------------------------------------------------------------------------------------------- */
INLINE void tile(const uint32_t type, const uint32_t R, score_fn *score, mix_fn *all, mix_fn *one,
	const struct attn_shape *s, const struct source *src, const float *q, const int32_t *lo,
	const int32_t *hi, float *state, size_t stride)
{
	_Alignas(64) float p[ROWS][ATTN_TILE];
	vec down[ROWS];
	uint32_t live = 0;

	scores(type, score, s, src, q, p);
	for (uint32_t r = 0; r < R; r++)
		live |= (uint32_t)(lo[r] < hi[r]) << r;
	shares(R, live, s->cap, lo, hi, p, state, stride, down);
	values(type, R, all, one, s->pad, src, p, down, state + ATTN_STATE_HEAD, stride, live);
}

typedef void attn_tile_fn(const struct attn_shape *s, const struct source *src, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride);

/* The loops are functions of their own: in one body with all else compilers keep their values in memory. */
#define TILE_FN(type, R)                                                                                     \
	static __attribute__((noinline)) void score_##type##_##R(const struct attn_shape *s,                 \
		const struct source *src, const float *q, const float *ks, uint32_t d0, uint32_t d1,         \
		float p[ROWS][ATTN_TILE])                                                                    \
	{                                                                                                    \
		score_block(type, R, s, src, q, ks, d0, d1, p);                                              \
	}                                                                                                    \
	static __attribute__((noinline)) void mix_##type##_##R(const struct source *src, uint32_t h,         \
		float p[ROWS][ATTN_TILE], const vec down[ROWS], float *o, size_t stride, uint32_t live)      \
	{                                                                                                    \
		mix(type, R, TV, src, h, p, down, o, stride, live);                                          \
	}                                                                                                    \
	static __attribute__((noinline)) void mix_one_##type##_##R(const struct source *src, uint32_t h,     \
		float p[ROWS][ATTN_TILE], const vec down[ROWS], float *o, size_t stride, uint32_t live)      \
	{                                                                                                    \
		mix(type, R, 1, src, h, p, down, o, stride, live);                                           \
	}                                                                                                    \
	static void tile_##type##_##R(const struct attn_shape *s, const struct source *src, const float *q,  \
		const int32_t *lo, const int32_t *hi, float *st, size_t stride)                              \
	{                                                                                                    \
		tile(type, R, score_##type##_##R, mix_##type##_##R, mix_one_##type##_##R, s, src, q, lo, hi, \
			st, stride);                                                                         \
	}
#define TILE_FNS(type)	   ROWS_EACH(TILE_FN, type)
#define TILE_NAME(type, R) tile_##type##_##R,
#define TILE_TYPE(type)	   [type] = { NULL, ROWS_EACH(TILE_NAME, type) },
#define TILE_TYPES(X)	   X(TNP_F32) X(TNP_F16) X(TNP_Q8_0) X(TNP_Q4_0) X(FLAT) X(WIDE)
TILE_TYPES(TILE_FNS)
static attn_tile_fn *const tiles[][ROWS + 1] = { TILE_TYPES(TILE_TYPE) };

static void tile_of_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	struct source src = source_wide(s, wide);

	src.next = &src;
	tiles[attn_has_scales(s->type) ? WIDE : FLAT][n](s, &src, q, lo, hi, st, stride);
}

static void tile_of_page(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	_Alignas(64) float scale[2 * MAX_BLOCKS * ATTN_TILE];
	struct source src = source_page(s, half);
	const struct source next = source_page(s, half + 2);

	src.next = &next;
	if (attn_has_scales(s->type)) {
		attn_scales_gather(s, half, scale);
		src.ks = scale;
		src.vs = scale + (size_t)attn_blocks(s->pad) * ATTN_TILE;
	}
	tiles[s->type][n](s, &src, q, lo, hi, st, stride);
}
#endif
