/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels for AVX2, FMA and F16C, see attn.h. A tile is 3 query rows x 32 keys: 12 accumulators, for the
 * scores and for the mixing of values alike. Keys lie [dim][token], so that scores need no sums across lanes.
 * Scales of quantised types are applied once a block of 32 dimensions: to its part of a score, and to the shares that its
 * values are mixed with; a widened tile keeps the numbers and the scales apart too. So reading pages in place and reading the
 * widened tile give the same bits. One body serves all stored types and 1 to 3 rows: constants of inline functions.
 */
#include "attn.h"
#include "avx2.h"
#include "half.h"
#include <string.h>
#include <tenon/plugin.h>

enum {
	V = 8,
	TV = ATTN_TILE / V, /* lanes; vectors of a tile's keys */
	BLOCK = 32,	    /* dimensions that share a scale */
	MAX_BLOCKS = 1024 / BLOCK,
	WIDE = 64 /* beside TNP_*: floats with scales, a widened tile of a quantised type */
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

INLINE __m256 from_bytes(__m128i b) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)); }

/* Element i of a plane and the seven after it; not for Q4_0. */
INLINE __m256 load8(const uint32_t type, const void *base, size_t i)
{
	if (type == TNP_F32 || type == WIDE)
		return _mm256_loadu_ps((const float *)base + i);
	if (type == TNP_F16)
		return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)base + i)));
	return from_bytes(_mm_loadl_epi64((const __m128i *)((const int8_t *)base + i)));
}

/* Dimension d of eight tokens. (Sixteen at a time would save the byte types work, but costs all types registers.) */
INLINE __m256 load_key(const uint32_t type, const void *base, uint32_t d, size_t stride, uint32_t token)
{
	const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
	__m128i b;

	if (type != TNP_Q4_0)
		return load8(type, base, d * stride + token);
	b = _mm_loadl_epi64((const __m128i *)((const uint8_t *)base + d / 2 * stride + token));
	b = d % 2 ? _mm_srli_epi16(b, 4) : b;
	return from_bytes(_mm_sub_epi8(_mm_and_si128(b, low), eight));
}

/* Eight dimensions from element i (a multiple of 8) of the values on. */
INLINE __m256 load_value(const uint32_t type, const void *base, size_t i)
{
	const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
	int32_t word;
	__m128i b;

	if (type != TNP_Q4_0)
		return load8(type, base, i);
	memcpy(&word, (const uint8_t *)base + i / 2, sizeof word);
	b = _mm_cvtsi32_si128(word);
	b = _mm_unpacklo_epi8(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(b, 4), low));
	return from_bytes(_mm_sub_epi8(b, eight));
}

/* Into L2: a load buffer serves only some 12 GB/s of prefetches into L1, pages in memory come at twice that. */
INLINE void fetch(const uint32_t type, const void *base, size_t i)
{
	const size_t at = type == TNP_F32 || type == WIDE ? 4 * i
		: type == TNP_F16			  ? 2 * i
		: type == TNP_Q8_0			  ? i
							  : i / 2;

	_mm_prefetch((const char *)base + at, _MM_HINT_T1);
}

/* The compiler would fold a load into each use: load once. */
#define KEEP(y) __asm__("" : "+x"(y))

/* ---- scales -------------------------------------------------------------------------------------- */
/* Eight scales of values, `stride` apart, as floats. */
INLINE __m256 scales_apart(const uint16_t *s, size_t stride)
{
	__m128i h = _mm_cvtsi32_si128(s[0]);

	h = _mm_insert_epi16(h, s[stride], 1);
	h = _mm_insert_epi16(h, s[2 * stride], 2);
	h = _mm_insert_epi16(h, s[3 * stride], 3);
	h = _mm_insert_epi16(h, s[4 * stride], 4);
	h = _mm_insert_epi16(h, s[5 * stride], 5);
	h = _mm_insert_epi16(h, s[6 * stride], 6);
	h = _mm_insert_epi16(h, s[7 * stride], 7);
	return _mm256_cvtph_ps(h);
}

/* Scales of a tile in pages: keys have them [block][page], values [token][blocks]. out: both [block][ATTN_TILE]. */
static void scales_gather(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const size_t plane = attn_plane(s->type, s->pad, s->page), blocks = attn_blocks(s->pad);
	float *values = out + blocks * ATTN_TILE;

	for (uint32_t j = 0; j < TV; j++) {
		const struct attn_half *h = &half[j / 2];
		const uint16_t *k = (const uint16_t *)(h->head + 2 * plane) + h->token + j % 2 * V;
		const uint16_t *v = (const uint16_t *)(h->head + 2 * plane) + blocks * s->page +
			(h->token + j % 2 * (size_t)V) * blocks;

		for (uint32_t b = 0; b < blocks; b++) {
			_mm256_storeu_ps(out + b * ATTN_TILE + V * j, load8(TNP_F16, k, b * s->page));
			_mm256_storeu_ps(values + b * ATTN_TILE + V * j, scales_apart(v + b, blocks));
		}
	}
}

/* ---- scores -------------------------------------------------------------------------------------- */
/* acc[r][j] += q[r][d] * k[d][8j..], d over [d0, d1). */
INLINE void score_dims(const uint32_t type, const uint32_t R, __m256 acc[ATTN_ROWS][TV], const float *q,
	size_t ldq, const struct source *src, uint32_t d0, uint32_t d1)
{
	for (uint32_t d = d0; d < d1; d++) {
		__m256 x[ATTN_ROWS];

		fetch(type, src->next->k[0], (size_t)d * src->k_stride);
		if (src->next->k_apart)
			fetch(type, src->next->k[1], (size_t)d * src->k_stride);

		UNROLL
		for (uint32_t r = 0; r < R; r++)
			x[r] = _mm256_broadcast_ss(q + r * ldq + d);
		UNROLL
		for (uint32_t j = 0; j < TV; j++) {
			__m256 y = load_key(type, src->k[j / 2], d, src->k_stride, j % 2 * V);

			KEEP(y);
			UNROLL
			for (uint32_t r = 0; r < R; r++)
				acc[r][j] = _mm256_fmadd_ps(x[r], y, acc[r][j]);
		}
	}
}

/* p = the scores of dimensions [d0, d1), times ks if there are scales, on top of p unless d0 is 0. */
INLINE void score_block(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, const float *ks, uint32_t d0, uint32_t d1,
	float p[ATTN_ROWS][ATTN_TILE])
{
	__m256 acc[ATTN_ROWS][TV];

	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		acc[r][j] = _mm256_setzero_ps();
	score_dims(type, R, acc, q, s->pad, src, d0, d1);
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++) {
		__m256 y = acc[r][j];

		if (has_scales(type))
			y = _mm256_fmadd_ps(y, _mm256_loadu_ps(ks + V * j),
				d0 ? _mm256_load_ps(&p[r][V * j]) : _mm256_setzero_ps());
		_mm256_store_ps(&p[r][V * j], y);
	}
}

INLINE void scores(const uint32_t type, const uint32_t R, const struct attn_shape *s,
	const struct source *src, const float *q, float p[ATTN_ROWS][ATTN_TILE])
{
	if (!has_scales(type))
		score_block(type, R, s, src, q, NULL, 0, s->dim, p);
	for (uint32_t d = 0; has_scales(type) && d < s->dim; d += BLOCK)
		score_block(type, R, s, src, q, src->ks + d, d, s->dim < d + BLOCK ? s->dim : d + BLOCK, p);
}

/* ---- softmax ---------------------------------------------------------------------------------------- */
INLINE __m256 seen(int32_t lo, int32_t hi, uint32_t j)
{
	const __m256i at =
		_mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)(V * j)));
	const __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(hi), at),
		_mm256_cmpgt_epi32(at, _mm256_set1_epi32(lo - 1)));

	return _mm256_castsi256_ps(in);
}

/* Scores of one row become shares; returns by what the old state shrinks. Hidden keys get exactly 0. */
static __m256 shares(float *p, float cap, int32_t lo, int32_t hi, float *st)
{
	__m256 x[TV], top, down, sum;
	float most;

	for (uint32_t j = 0; j < TV; j++) {
		x[j] = _mm256_load_ps(p + V * j);
		if (cap > 0)
			x[j] = _mm256_mul_ps(tanh_ps(x[j]), _mm256_set1_ps(cap));
		if (lo > 0 || hi < ATTN_TILE)
			x[j] = _mm256_blendv_ps(_mm256_set1_ps(-1e30f), x[j], seen(lo, hi, j));
	}
	most = hmax(_mm256_max_ps(_mm256_max_ps(x[0], x[1]), _mm256_max_ps(x[2], x[3])));
	most = most > st[0] ? most : st[0];
	top = _mm256_set1_ps(most);
	down = exp2_neg(_mm256_sub_ps(_mm256_set1_ps(st[0]), top));
	st[0] = most;
	for (uint32_t j = 0; j < TV; j++) {
		x[j] = exp2_neg(_mm256_sub_ps(x[j], top));
		if (lo > 0 || hi < ATTN_TILE)
			x[j] = _mm256_and_ps(x[j], seen(lo, hi, j));
		_mm256_store_ps(p + V * j, x[j]);
	}
	sum = _mm256_add_ps(_mm256_add_ps(x[0], x[1]), _mm256_add_ps(x[2], x[3]));
	_mm256_storeu_ps(st + V, _mm256_fmadd_ps(_mm256_loadu_ps(st + V), down, sum));
	return down;
}

/* ---- values ------------------------------------------------------------------------------------------ */
/* Shares times the scales of dimensions h and on. */
INLINE void shares_scale(
	const uint32_t R, const float *vs, float from[ATTN_ROWS][ATTN_TILE], float to[ATTN_ROWS][ATTN_TILE])
{
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < TV; j++)
		_mm256_store_ps(&to[r][V * j],
			_mm256_mul_ps(_mm256_load_ps(&from[r][V * j]), _mm256_loadu_ps(vs + V * j)));
}

/* o[r][h .. h + 8 NV) = o * down[r] + p[r] x v */
INLINE void mix(const uint32_t type, const uint32_t R, const uint32_t NV, const struct source *src,
	uint32_t h, float shares[ATTN_ROWS][ATTN_TILE], const __m256 down[ATTN_ROWS], float *st[ATTN_ROWS],
	const bool live[ATTN_ROWS])
{
	_Alignas(32) float scaled[ATTN_ROWS][ATTN_TILE];
	float(*p)[ATTN_TILE] = has_scales(type) ? scaled : shares;
	__m256 o[ATTN_ROWS][TV];

	if (has_scales(type))
		shares_scale(R, src->vs + h / BLOCK * (size_t)ATTN_TILE, shares, scaled);
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		o[r][j] = _mm256_mul_ps(_mm256_loadu_ps(st[r] + ATTN_STATE_HEAD + h + V * j), down[r]);
	for (uint32_t half = 0; half < 2; half++) {
		for (uint32_t i = 0; i < ATTN_HALF; i++) {
			__m256 x[ATTN_ROWS];

			fetch(type, src->next->v[half], (size_t)i * src->v_stride + h);
			UNROLL
			for (uint32_t r = 0; r < R; r++)
				x[r] = _mm256_broadcast_ss(&p[r][half * ATTN_HALF + i]);
			UNROLL
			for (uint32_t j = 0; j < NV; j++) {
				__m256 y =
					load_value(type, src->v[half], (size_t)i * src->v_stride + h + V * j);

				KEEP(y);
				UNROLL
				for (uint32_t r = 0; r < R; r++)
					o[r][j] = _mm256_fmadd_ps(x[r], y, o[r][j]);
			}
		}
	}
	UNROLL
	for (uint32_t r = 0; r < R; r++)
		UNROLL
	for (uint32_t j = 0; j < NV; j++)
		if (live[r])
			_mm256_storeu_ps(st[r] + ATTN_STATE_HEAD + h + V * j, o[r][j]);
}

/* ---- a tile --------------------------------------------------------------------------------------------- */
INLINE void tile(const uint32_t type, const uint32_t R, const struct attn_shape *s, const struct source *src,
	const float *q, const int32_t *lo, const int32_t *hi, float *state, size_t stride)
{
	_Alignas(32) float p[ATTN_ROWS][ATTN_TILE];
	__m256 down[ATTN_ROWS];
	float *st[ATTN_ROWS];
	bool live[ATTN_ROWS];
	uint32_t h = 0;

	scores(type, R, s, src, q, p);
	for (uint32_t r = 0; r < R; r++) {
		st[r] = state + r * stride;
		live[r] = lo[r] < hi[r];
		if (live[r]) {
			down[r] = shares(p[r], s->cap, lo[r], hi[r], st[r]);
		} else {
			memset(p[r], 0, sizeof p[r]);
			down[r] = _mm256_setzero_ps();
		}
	}
	for (; h + TV * V <= s->pad; h += TV * V)
		mix(type, R, TV, src, h, p, down, st, live);
	for (; h < s->pad; h += V)
		mix(type, R, 1, src, h, p, down, st, live);
}

#define TILE_ROWS(type)                                                                                      \
	static __attribute__((noinline)) void tile_##type(const struct attn_shape *s,                        \
		const struct source *src, uint32_t n, const float *q, const int32_t *lo, const int32_t *hi,  \
		float *st, size_t stride)                                                                    \
	{                                                                                                    \
		if (n == 3)                                                                                  \
			tile(type, 3, s, src, q, lo, hi, st, stride);                                        \
		else if (n == 2)                                                                             \
			tile(type, 2, s, src, q, lo, hi, st, stride);                                        \
		else                                                                                         \
			tile(type, 1, s, src, q, lo, hi, st, stride);                                        \
	}
TILE_ROWS(TNP_F32)
TILE_ROWS(TNP_F16)
TILE_ROWS(TNP_Q8_0)
TILE_ROWS(TNP_Q4_0)
TILE_ROWS(WIDE)

static void avx2_tile_wide(const struct attn_shape *s, const float *wide, uint32_t n, const float *q,
	const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	struct source src = source_wide(s, wide);

	src.next = &src;
	if (attn_has_scales(s->type))
		tile_WIDE(s, &src, n, q, lo, hi, st, stride);
	else
		tile_TNP_F32(s, &src, n, q, lo, hi, st, stride);
}

static void avx2_tile_page(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
	const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride)
{
	float scale[2 * MAX_BLOCKS * ATTN_TILE];
	struct source src = source_page(s, half);
	const struct source next = source_page(s, half + 2);

	src.next = &next;
	if (attn_has_scales(s->type)) {
		scales_gather(s, half, scale);
		src.ks = scale;
		src.vs = scale + (size_t)attn_blocks(s->pad) * ATTN_TILE;
	}
	if (s->type == TNP_F16)
		tile_TNP_F16(s, &src, n, q, lo, hi, st, stride);
	else if (s->type == TNP_Q8_0)
		tile_TNP_Q8_0(s, &src, n, q, lo, hi, st, stride);
	else if (s->type == TNP_Q4_0)
		tile_TNP_Q4_0(s, &src, n, q, lo, hi, st, stride);
	else
		tile_TNP_F32(s, &src, n, q, lo, hi, st, stride);
}

/* ---- widening --------------------------------------------------------------------------------------------- */
INLINE void widen(const uint32_t type, const struct attn_shape *s, const struct source *src, float *out)
{
	float *values = out + (size_t)ATTN_TILE * s->pad;

	for (uint32_t d = 0; d < s->pad; d++)
		for (uint32_t j = 0; j < TV; j++)
			_mm256_storeu_ps(out + (size_t)d * ATTN_TILE + V * j,
				load_key(type, src->k[j / 2], d, src->k_stride, j % 2 * V));
	for (uint32_t t = 0; t < ATTN_TILE; t++)
		for (uint32_t h = 0; h < s->pad; h += V) {
			uint32_t half = t / ATTN_HALF, i = t % ATTN_HALF;
			__m256 y = load_value(type, src->v[half], (size_t)i * src->v_stride + h);

			_mm256_storeu_ps(values + (size_t)t * s->pad + h, y);
		}
}

static void avx2_widen(const struct attn_shape *s, const struct attn_half half[2], float *out)
{
	const struct source src = source_page(s, half);

	if (attn_has_scales(s->type))
		scales_gather(s, half, attn_wide_scales(s, out));
	if (s->type == TNP_F16)
		widen(TNP_F16, s, &src, out);
	else if (s->type == TNP_Q8_0)
		widen(TNP_Q8_0, s, &src, out);
	else if (s->type == TNP_Q4_0)
		widen(TNP_Q4_0, s, &src, out);
	else
		widen(TNP_F32, s, &src, out);
}

static void avx2_gather(const struct attn_shape *s, const float *k, const float *v, size_t ldk, size_t ldv,
	uint32_t n, float *out)
{
	float *scale = attn_wide_scales(s, out);

	attn_base.gather(s, k, v, ldk, ldv, n, out);
	for (uint32_t i = 0; attn_has_scales(s->type) && i < 2 * attn_blocks(s->pad) * ATTN_TILE; i++)
		scale[i] = 1;
}

/* ---- storing, merging, finishing ---------------------------------------------------------------------------- */
/* min and max return their second operand for NaN: it becomes the largest number. */
INLINE __m128i to_half(__m256 x)
{
	x = _mm256_min_ps(x, _mm256_set1_ps(HALF_MAX));
	x = _mm256_max_ps(x, _mm256_set1_ps(-HALF_MAX));
	return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static void store_f16(const struct attn_shape *s, uint16_t *page, uint32_t at, const float *k, const float *v)
{
	uint16_t *keys = page + at, *values = page + (size_t)s->pad * s->page + (size_t)at * s->pad;

	for (uint32_t d = 0; d < s->dim; d += V) {
		uint16_t h[V];

		_mm_storeu_si128((__m128i *)(values + d), to_half(_mm256_loadu_ps(v + d)));
		_mm_storeu_si128((__m128i *)h, to_half(_mm256_loadu_ps(k + d)));
		for (uint32_t i = 0; i < V; i++)
			keys[(size_t)(d + i) * s->page] = h[i];
	}
}

static void avx2_store(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v)
{
	if (s->type == TNP_F16 && s->dim == s->pad)
		store_f16(s, (uint16_t *)head, at, k, v);
	else
		attn_base.store(s, head, at, k, v);
}

static void avx2_merge(uint32_t pad, const float *from, float *into)
{
	const float most = from[0] > into[0] ? from[0] : into[0];
	const __m256 a = exp2_neg(_mm256_set1_ps(into[0] - most)),
		     b = exp2_neg(_mm256_set1_ps(from[0] - most));

	into[0] = most;
	for (uint32_t i = V; i < ATTN_STATE_HEAD + pad; i += V)
		_mm256_storeu_ps(into + i,
			_mm256_fmadd_ps(
				_mm256_loadu_ps(into + i), a, _mm256_mul_ps(_mm256_loadu_ps(from + i), b)));
}

static void avx2_finish(uint32_t dim, const float *st, float *out)
{
	const float inverse = 1 / hsum(_mm256_loadu_ps(st + V));
	const __m256 f = _mm256_set1_ps(inverse);
	uint32_t i = 0;

	for (; i + V <= dim; i += V)
		_mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(st + ATTN_STATE_HEAD + i), f));
	for (; i < dim; i++)
		out[i] = st[ATTN_STATE_HEAD + i] * inverse;
}

const struct attn_ops attn_avx2 = {
	.store = avx2_store,
	.widen = avx2_widen,
	.gather = avx2_gather,
	.tile_wide = avx2_tile_wide,
	.tile_page = avx2_tile_page,
	.merge = avx2_merge,
	.finish = avx2_finish,
};
