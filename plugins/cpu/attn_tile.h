/* SPDX-License-Identifier: Apache-2.0
 * One tile of attention (attn.h), for vectors of any width: query rows x 32 keys, up to ROWS rows at a time with at most
 * twelve sums in registers, for the scores as for the mixing of values. Keys lie [dim][token], so that scores need no
 * sums across lanes. Scales of quantised types are applied once a block of 32 dimensions: to its part of a score, and to
 * the shares that its values are mixed with; a widened tile keeps the numbers and the scales apart too. So reading pages
 * in place and reading the widened tile give the same bits; nor do the bits depend on the width or on the number of rows:
 * a score and an output have one sum. One body serves all stored types and 1 to ROWS rows: constants of inline functions.
 *
 * Many rows go through in steps, all scores first, then all shares, then all values: the shares are one long chain of
 * operations for a few rows, of many rows they overlap.
 *
 * A file that includes this has before it: enum { V (lanes) }, vec, vec_zero, vec_set, vec_load, vec_store, vec_add,
 * vec_sub, vec_mul, vec_fma, vec_exp2; load_key, load_value; mask (of V keys), keys_seen, vec_hide (what is not in the
 * mask becomes -1e30), vec_only (becomes 0) and vec_sums (the vectors of a tile, added up to eight lanes).
 */
#ifndef PLUGINS_CPU_ATTN_TILE_H
#define PLUGINS_CPU_ATTN_TILE_H
#include "attn.h"
#include "attn_avx2.h"
#include "attn_source.h"
#include "avx2.h"
#include <string.h>

enum {
	TV = ATTN_TILE / V, /* vectors of a tile's keys */
	ROWS = ATTN_ROWS,
	MOST = 4, /* vectors at once */
	LANES = 8 /* of the vector that has a number of each of up to ROWS rows */
};

/* Keys of the tile that some of the rows see; which rows see any, and which see all (bits). */
struct reach {
	uint32_t lo, hi, live, whole;
};

/* Vectors of keys that R rows take at once, so that the sums and what they are made of fit the registers, 16 of eight
 * lanes or 32 of 16. */
INLINE uint32_t keys_wide(const uint32_t R) { return R > 3 && TV > 2 ? 2 : TV; }
/* The same of values; scales are those of a block. */
INLINE uint32_t values_wide(const uint32_t type, const uint32_t R)
{
	return V == 16 && !has_scales(type) ? 4 : keys_wide(R);
}
/* Vectors that any head is a multiple of. */
enum { VALUES_LEAST = V == 16 ? 2 : 1 };

/* Into L2: a load buffer serves only some 12 GB/s of prefetches into L1, pages in memory come at twice that. */
INLINE void fetch(const uint32_t type, const void *base, size_t i)
{
	const size_t at = type == TNP_F32 ? 4 * i : type == TNP_F16 ? 2 * i : type == TNP_Q8_0 ? i : i / 2;

	if (type < FLAT)
		_mm_prefetch((const char *)base + at, _MM_HINT_T1);
}

/* The compiler would fold a load into each use: load once. It would work out every address of a block at once and keep
 * them all: forget where a row came from. */
#ifdef CPU_SANITIZED
#define KEEP(y)	  (void)(y)
#define FORGET(p) (void)(p)
#else
#define KEEP(y)	  __asm__("" : "+v"(y))
#define FORGET(p) __asm__("" : "+r"(p))
#endif

/* ---- sums of products ---------------------------------------------------------------------------- */
/* Vector j of a dimension of the keys (`at`: which), or of a token's values (`at`: its first element). */
INLINE vec line_load(
	const bool keys, const uint32_t type, const void *const *base, size_t at, uint32_t stride, uint32_t j)
{
	vec y = keys ? load_key(type, base[j * V / ATTN_HALF], (uint32_t)at, stride, j * V % ATTN_HALF)
		     : load_value(type, *base, at + (size_t)V * j);

	KEEP(y);
	return y;
}

/* sum[r][j] += x[r * ldx] * vector j0 + j. What there is less of stays in registers: vectors or factors. */
INLINE void line_add(const bool keys, const uint32_t type, const uint32_t R, const uint32_t N,
	vec sum[ROWS][MOST], const float *x, size_t ldx, const void *const *base, size_t at, uint32_t stride,
	const uint32_t j0)
{
	const bool rows = N > 2 || V > 8;
	const uint32_t n_few = rows ? R : N, n_many = rows ? N : R;
	vec few[ROWS];

	UNROLL
	for (uint32_t i = 0; i < n_few; i++)
		few[i] = rows ? vec_set(x[i * ldx]) : line_load(keys, type, base, at, stride, j0 + i);
	UNROLL
	for (uint32_t i = 0; i < n_many; i++) {
		const vec y = rows ? line_load(keys, type, base, at, stride, j0 + i) : vec_set(x[i * ldx]);

		UNROLL
		for (uint32_t k = 0; k < n_few; k++) {
			vec *to = rows ? &sum[k][i] : &sum[i][k];

			*to = vec_fma(few[k], y, *to);
		}
	}
}

/* ---- scores -------------------------------------------------------------------------------------- */
/* p = the scores of vectors [j0, j0 + N) in dimensions [d0, d1), times ks if there are scales, on top of p unless d0
 * is 0. */
INLINE void score_keys(const uint32_t type, const uint32_t R, const uint32_t N, const uint32_t j0,
	const struct attn_shape *s, const struct source *src, const float *q, const float *ks, uint32_t d0,
	uint32_t d1, float (*p)[ATTN_TILE])
{
	vec sum[ROWS][MOST];

	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < N; j++)
		sum[r][j] = vec_zero();
	for (uint32_t d = d0; d < d1; d++) {
		if (!j0)
			fetch(type, src->next->k[0], (size_t)d * src->k_stride);
		if (!j0 && src->next->k_apart)
			fetch(type, src->next->k[1], (size_t)d * src->k_stride);
		line_add(true, type, R, N, sum, q + d, s->pad, src->k, d, src->k_stride, j0);
	}
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < N; j++) {
		float *to = &p[r][V * (j0 + j)];
		vec y = sum[r][j];

		if (has_scales(type))
			y = vec_fma(y, vec_load(ks + V * (j0 + j)), d0 ? vec_load(to) : vec_zero());
		vec_store(to, y);
	}
}

INLINE void scores_clear(const uint32_t R, uint32_t j, uint32_t n, float (*p)[ATTN_TILE])
{
	for (uint32_t r = 0; r < R; r++)
		memset(&p[r][V * j], 0, n * V * sizeof **p);
}

/* Vectors that no row sees are left out where nothing is to be fetched meanwhile; their scores are zeros. */
INLINE void score_block(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, const float *ks, uint32_t d0, uint32_t d1,
	const struct reach *see, float (*p)[ATTN_TILE])
{
	const uint32_t most = keys_wide(R), half = ATTN_HALF / V;

	if (type < FLAT || most <= half || see->hi > ATTN_HALF) {
		UNROLL
		for (uint32_t j = 0; j < TV; j += most)
			if (type < FLAT || (see->lo < (j + most) * V && see->hi > j * V))
				score_keys(type, R, most, j, s, src, q, ks, d0, d1, p);
			else
				scores_clear(R, j, most, p);
	} else {
		score_keys(type, R, half, 0, s, src, q, ks, d0, d1, p);
		scores_clear(R, half, half, p);
	}
}

typedef void score_fn(const struct attn_shape *s, const struct source *src, const float *q, const float *ks,
	uint32_t d0, uint32_t d1, const struct reach *see, float (*p)[ATTN_TILE]);

static void scores(const bool scales, score_fn *fn, const struct attn_shape *s, const struct source *src,
	const float *q, const struct reach *see, float (*p)[ATTN_TILE])
{
	const uint32_t step = scales ? BLOCK : s->dim;

	for (uint32_t d = 0; d < s->dim; d += step)
		fn(s, src, q, scales ? src->ks + d : NULL, d, s->dim - d < step ? s->dim : d + step, see, p);
}

/* ---- softmax ---------------------------------------------------------------------------------------- */
static void scores_cap(float *p, float cap)
{
	for (uint32_t i = 0; i < ATTN_TILE; i += LANES)
		_mm256_storeu_ps(p + i, _mm256_mul_ps(tanh_ps(_mm256_loadu_ps(p + i)), _mm256_set1_ps(cap)));
}

/* The largest lane of each of eight vectors. */
INLINE __m256 tops(const __m256 x[LANES])
{
	__m256 a[4], b[2];

	UNROLL
	for (int i = 0; i < 4; i++)
		a[i] = _mm256_max_ps(_mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]),
			_mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]));
	UNROLL
	for (int i = 0; i < 2; i++)
		b[i] = _mm256_max_ps(_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),
			_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
	return _mm256_max_ps(
		_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
}

/* The largest of each eight scores of a row that count. */
INLINE __m256 row_top(float *p, bool whole, int32_t lo, int32_t hi)
{
	UNROLL
	for (uint32_t j = 0; !whole && j < TV; j++)
		vec_store(p + V * j, vec_hide(vec_load(p + V * j), keys_seen(lo, hi, j)));
	return _mm256_max_ps(_mm256_max_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + LANES)),
		_mm256_max_ps(_mm256_loadu_ps(p + 2 * LANES), _mm256_loadu_ps(p + 3 * LANES)));
}

/* The largest score of each row so far, and by what the old states shrink: those of up to ROWS rows fit one vector. A row
 * that is not live keeps its top. */
static void tops_find(uint32_t n, const struct reach *see, float cap, const int32_t *lo, const int32_t *hi,
	float (*p)[ATTN_TILE], const float *state, size_t stride, float top[LANES], float down[LANES])
{
	__m256 x[LANES], old, most;
	const float *was[ROWS];

	UNROLL
	for (uint32_t r = 0; r < LANES; r++) {
		x[r] = _mm256_set1_ps(-1e30f);
		if (r >= ROWS || !(see->live >> r & 1))
			continue;
		if (cap > 0)
			scores_cap(p[r], cap);
		x[r] = row_top(p[r], see->whole >> r & 1, lo[r], hi[r]);
	}
	UNROLL
	for (uint32_t r = 0; r < ROWS; r++)
		was[r] = state + (r < n ? r * stride : 0);
	old = _mm256_setr_ps(*was[0], *was[1], *was[2], *was[3], *was[4], *was[5], 0, 0);
	most = _mm256_max_ps(tops(x), old);
	_mm256_store_ps(top, most);
	_mm256_store_ps(down, exp2_neg(_mm256_sub_ps(old, most)));
}

/* Scores of one row become shares, hidden keys get exactly 0. */
INLINE void row_shares(float *p, bool whole, int32_t lo, int32_t hi, float top, float down, float *st)
{
	vec x[TV];

	UNROLL
	for (uint32_t j = 0; j < TV; j++) {
		x[j] = vec_exp2(vec_sub(vec_load(p + V * j), vec_set(top)));
		if (!whole)
			x[j] = vec_only(x[j], keys_seen(lo, hi, j));
		vec_store(p + V * j, x[j]);
	}
	_mm256_storeu_ps(
		st + LANES, _mm256_fmadd_ps(_mm256_loadu_ps(st + LANES), _mm256_set1_ps(down), vec_sums(x)));
	st[0] = top;
}

static void rows_share(uint32_t n, const struct reach *see, const int32_t *lo, const int32_t *hi,
	float (*p)[ATTN_TILE], const float *top, const float *down, float *state, size_t stride)
{
	for (uint32_t r = 0; r < n; r++)
		if (see->whole >> r & 1)
			row_shares(p[r], true, 0, ATTN_TILE, top[r], down[r], state + r * stride);
		else if (see->live >> r & 1)
			row_shares(p[r], false, lo[r], hi[r], top[r], down[r], state + r * stride);
}

/* ---- values ------------------------------------------------------------------------------------------ */
/* N vectors of each row's o: o * down[r] + p[r] x v from dimension h on, from part after part of the tile keys [lo, hi). */
INLINE void mix_keys(const uint32_t type, const uint32_t R, const uint32_t N, const struct source *src,
	uint32_t h, uint32_t lo, uint32_t hi, float (*p)[ATTN_TILE], const float *down, const float *o,
	size_t stride, vec sum[ROWS][MOST])
{
	const uint32_t parts = type < FLAT ? 2 : 1; /* a widened tile has its halves side by side */

	UNROLL
	for (uint32_t r = 0; r < R; r++, o += stride) {
		FORGET(o);
		UNROLL
		for (uint32_t j = 0; j < N; j++)
			sum[r][j] = vec_mul(vec_load(o + V * j), vec_set(down[r]));
	}
	for (uint32_t part = 0; part < parts; part++) {
		size_t at = (size_t)lo * src->v_stride + h;

		for (uint32_t i = lo; i < hi; i++, at += src->v_stride) {
			UNROLL
			for (uint32_t j = 0; j < N * V; j += BLOCK)
				fetch(type, src->next->v[part], at + j);
			line_add(false, type, R, N, sum, *p + part * ATTN_HALF + i, ATTN_TILE, &src->v[part],
				at, 0, 0);
		}
	}
}

/* Keys that no row sees are left out where nothing is to be fetched meanwhile: they would add zeros. Only the sign of a
 * zero could tell, so it is made positive in rows that do not see the whole tile. Rows that are not live are left alone. */
INLINE void mix(const uint32_t type, const uint32_t R, const uint32_t N, const struct source *src, uint32_t h,
	const struct reach *see, float (*p)[ATTN_TILE], const float *down, float *o, size_t stride)
{
	const uint32_t n = type < FLAT ? ATTN_HALF : ATTN_TILE, live = see->live, whole = see->whole;
	const bool all = whole == (1u << R) - 1;
	vec sum[ROWS][MOST];

	if (type < FLAT || all)
		mix_keys(type, R, N, src, h, 0, n, p, down, o, stride, sum);
	else
		mix_keys(type, R, N, src, h, see->lo, see->hi, p, down, o, stride, sum);
	UNROLL
	for (uint32_t r = 0; r < R; r++, o += stride) {
		FORGET(o);
		UNROLL
		for (uint32_t j = 0; !all && j < N; j++)
			sum[r][j] = vec_add(sum[r][j], vec_set(whole >> r & 1 ? -0.0f : 0.0f));
		UNROLL
		for (uint32_t j = 0; j < N; j++)
			if (live >> r & 1)
				vec_store(o + V * j, sum[r][j]);
	}
}

/* Shares times the scales of a block's values. */
static void shares_scale(uint32_t n, const float *vs, float (*from)[ATTN_TILE], float (*to)[ATTN_TILE])
{
	for (uint32_t r = 0; r < n; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		vec_store(&to[r][V * j], vec_mul(vec_load(&from[r][V * j]), vec_load(vs + V * j)));
}

typedef void mix_fn(const struct source *src, uint32_t h, const struct reach *see, float (*p)[ATTN_TILE],
	const float *down, float *o, size_t stride);
/* ---- a tile --------------------------------------------------------------------------------------------- */
struct kernel { /* for one type and number of rows */
	score_fn *score;
	mix_fn *mix, *mix_least; /* values_wide, VALUES_LEAST vectors */
};

/* The loops are functions of their own: in one body with all else compilers keep their values in memory. */
#define KERNEL_FNS(type, R)                                                                                  \
	static void score_##type##_##R(const struct attn_shape *s, const struct source *src, const float *q, \
		const float *ks, uint32_t d0, uint32_t d1, const struct reach *see, float(*p)[ATTN_TILE])    \
	{                                                                                                    \
		score_block(type, R, s, src, q, ks, d0, d1, see, p);                                         \
	}                                                                                                    \
	static void mix_##type##_##R(const struct source *src, uint32_t h, const struct reach *see,          \
		float(*p)[ATTN_TILE], const float *down, float *o, size_t stride)                            \
	{                                                                                                    \
		mix(type, R, values_wide(type, R), src, h, see, p, down, o, stride);                         \
	}                                                                                                    \
	static void mix_least_##type##_##R(const struct source *src, uint32_t h, const struct reach *see,    \
		float(*p)[ATTN_TILE], const float *down, float *o, size_t stride)                            \
	{                                                                                                    \
		mix(type, R, VALUES_LEAST, src, h, see, p, down, o, stride);                                 \
	}
#define ROWS_EACH(X, type) X(type, 1) X(type, 2) X(type, 3) X(type, 4) X(type, 5) X(type, 6)
#define TYPES_EACH(X)	   X(TNP_F32) X(TNP_F16) X(TNP_Q8_0) X(TNP_Q4_0) X(FLAT) X(WIDE)
#define KERNELS(type)	   ROWS_EACH(KERNEL_FNS, type)
#define KERNEL(type, R)	   { score_##type##_##R, mix_##type##_##R, mix_least_##type##_##R },
#define KERNEL_TYPE(type)  [type] = { { NULL, NULL, NULL }, ROWS_EACH(KERNEL, type) },
TYPES_EACH(KERNELS)
static const struct kernel kernels[][ROWS + 1] = { TYPES_EACH(KERNEL_TYPE) };

/* All dimensions of n <= ROWS rows. Shares meet the scales of a block before its values. */
static void values(uint32_t type, uint32_t n, uint32_t pad, const struct source *src, const struct reach *see,
	float (*p)[ATTN_TILE], const float *down, float *o, size_t stride)
{
	_Alignas(64) float scaled[ROWS][ATTN_TILE];
	const uint32_t step = values_wide(type, n) * V;
	const struct kernel *k = &kernels[type][n];

	for (uint32_t h = 0, dims; h < pad; h += dims) {
		if (has_scales(type) && h % BLOCK == 0)
			shares_scale(n, src->vs + h, p, scaled);
		dims = h + step <= pad ? step : VALUES_LEAST * V;
		(dims == step ? k->mix : k->mix_least)(
			src, h, see, has_scales(type) ? scaled : p, down, o + h, stride);
	}
}

static struct reach reach_of(uint32_t n, const int32_t *lo, const int32_t *hi)
{
	struct reach see = { .lo = ATTN_TILE };

	for (uint32_t r = 0; r < n; r++) {
		see.whole |= (uint32_t)(!lo[r] && hi[r] == ATTN_TILE) << r;
		if (lo[r] >= hi[r])
			continue;
		see.live |= 1u << r;
		see.lo = (uint32_t)lo[r] < see.lo ? (uint32_t)lo[r] : see.lo;
		see.hi = (uint32_t)hi[r] > see.hi ? (uint32_t)hi[r] : see.hi;
	}
	return see;
}

static uint32_t rows_of(uint32_t n, uint32_t first) { return n - first < ROWS ? n - first : ROWS; }

/* n <= ATTN_MANY rows. */
static void rows_run(uint32_t type, const struct attn_shape *s, const struct source *src, uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *state, size_t stride)
{
	_Alignas(64) float p[ATTN_MANY][ATTN_TILE];
	_Alignas(32) float top[ATTN_MANY / ROWS][LANES], down[ATTN_MANY / ROWS][LANES];
	struct reach see[ATTN_MANY / ROWS];

	for (uint32_t r = 0, i = 0; r < n; r += ROWS, i++) {
		see[i] = reach_of(rows_of(n, r), lo + r, hi + r);
		if (see[i].live)
			scores(has_scales(type), kernels[type][rows_of(n, r)].score, s, src,
				q + (size_t)r * s->pad, &see[i], p + r);
	}
	for (uint32_t r = 0, i = 0; r < n; r += ROWS, i++)
		if (see[i].live)
			tops_find(rows_of(n, r), &see[i], s->cap, lo + r, hi + r, p + r, state + r * stride,
				stride, top[i], down[i]);
	for (uint32_t r = 0, i = 0; r < n; r += ROWS, i++)
		rows_share(rows_of(n, r), &see[i], lo + r, hi + r, p + r, top[i], down[i], state + r * stride,
			stride);
	for (uint32_t r = 0, i = 0; r < n; r += ROWS, i++)
		if (see[i].live)
			values(type, rows_of(n, r), s->pad, src, &see[i], p + r, down[i],
				state + r * stride + ATTN_STATE_HEAD, stride);
}

static void tile_of_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	struct source src = source_wide(s, wide);

	src.next = &src;
	rows_run(attn_has_scales(s->type) ? WIDE : FLAT, s, &src, n, q, lo, hi, st, stride);
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
	rows_run(s->type, s, &src, n, q, lo, hi, st, stride);
}
#endif
