/* SPDX-License-Identifier: Apache-2.0
 * Products with float weights (F32, F16, BF16), used where they lie: a pair of panels x up to 6 tokens, one fma an
 * output and column, k ascending. A pair meets all tiles of a block of tokens before the next pair: it comes from
 * memory once and then from the caches.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum {
	BLOCK_TOKENS = 96, /* tokens whose activations should stay in L2 */
	STEP = 4	   /* columns between prefetches                 */
};

/* What a tile fetches while it runs: with one tile the stream ahead, into L1; else its share of the next pair, which
 * would not fit there beside this one, into L2. */
struct fetch {
	const uint8_t *at;
	size_t step; /* bytes for STEP columns */
	int whole;
};

INLINE size_t float_bytes(uint32_t type) { return type == TNP_F32 ? 4 : 2; }

INLINE __m256 load_floats(uint32_t type, const uint8_t *p)
{
	if (type == TNP_F32)
		return _mm256_loadu_ps((const float *)p);
	if (type == TNP_F16)
		return _mm256_cvtph_ps(load128(p));
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

INLINE void column(
	uint32_t type, const uint8_t *p, const float *x, size_t ldx, __m256 acc[TILE_T][TILE_R], const int T)
{
	const __m256 a = load_floats(type, p), b = load_floats(type, p + float_bytes(type) * PANEL);

	UNROLL
	for (int t = 0; t < T; t++) {
		const __m256 v = _mm256_broadcast_ss(x + t * ldx);

		acc[t][0] = _mm256_fmadd_ps(v, a, acc[t][0]);
		acc[t][1] = _mm256_fmadd_ps(v, b, acc[t][1]);
	}
}

INLINE void fetch_step(const struct fetch *f, const uint8_t *at, const size_t bytes)
{
	UNROLL
	for (size_t i = 0; i < bytes; i += 64)
		if (f->whole)
			_mm_prefetch((const char *)at + i, _MM_HINT_T0);
		else
			_mm_prefetch((const char *)at + i, _MM_HINT_T1);
}

INLINE void tile(uint32_t type, const uint8_t *p, uint32_t k, const struct fetch *f, const float *x,
	const struct store *c, const int T)
{
	const size_t bytes = float_bytes(type) * TILE_N, ldx = k;
	const uint8_t *next = f->at;
	__m256 acc[TILE_T][TILE_R];
	uint32_t i = 0;

	UNROLL
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = _mm256_setzero_ps();
	for (; k - i >= STEP; i += STEP, x += STEP, next += f->step) {
		fetch_step(f, next, STEP * bytes);
		UNROLL
		for (int u = 0; u < STEP; u++, p += bytes)
			column(type, p, x + u, ldx, acc, T);
	}
	for (; i < k; i++, x++, p += bytes)
		column(type, p, x, ldx, acc, T);
	UNROLL
	for (int t = 0; t < T; t++) {
		store_cols(c->c + t * c->ldc, acc[t][0], c->jn);
		if (c->jn > PANEL)
			store_cols(c->c + t * c->ldc + PANEL, acc[t][1], c->jn - PANEL);
	}
}

typedef void tile_float_fn(
	const uint8_t *p, uint32_t k, const struct fetch *f, const float *x, const struct store *c);

#define FLOATS(X) X(F32) X(F16) X(BF16)
#define TILE_FN(type, T)                                                                                     \
	static void tile_##type##_##T(                                                                       \
		const uint8_t *p, uint32_t k, const struct fetch *f, const float *x, const struct store *c)  \
	{                                                                                                    \
		tile(TNP_##type, p, k, f, x, c, T);                                                          \
	}
#define TILE_FNS(type)	   WIDTHS(TILE_FN, type)
#define TILE_NAME(type, T) tile_##type##_##T,
#define TILE_ROW(type)	   [TNP_##type] = { NULL, WIDTHS(TILE_NAME, type) },
FLOATS(TILE_FNS)
static tile_float_fn *const tiles_float[][TILE_T + 1] = { FLOATS(TILE_ROW) };

/* A pair of panels x the tokens of x. */
static void pair_run(const struct linear_weight *w, const uint8_t *pair, const float *x,
	const struct tiles *tiles, const struct store *c)
{
	const size_t column = 2 * (size_t)avx2_chunk_bytes(w->type), k = w->k, share = k / tiles->n * column;

	for (uint32_t t = 0; t < tiles->n; t++) {
		const size_t first = tiles_first(tiles, t);
		const struct store out = { c->c + first * c->ldc, c->ldc, c->jn };
		const struct fetch one = { pair + PREFETCH, STEP * column, 1 },
				   more = { pair + k * column + share * t, STEP * column / tiles->n, 0 };

		tiles_float[w->type][tiles_width(tiles, t)](
			pair, w->k, tiles->n == 1 ? &one : &more, x + first * k, &out);
	}
}

void avx2_float_run(const struct linear_weight *w, const float *x, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc)
{
	for (uint32_t i0 = 0, i1; i0 < m; i0 = i1) {
		i1 = m - i0 < BLOCK_TOKENS ? m : i0 + BLOCK_TOKENS;
		const struct tiles tiles = tiles_of(i1 - i0, TILE_T);

		for (uint32_t n = n0; n < n1; n += TILE_N) {
			const struct store out = { c + i0 * ldc + n, ldc, n1 - n };

			pair_run(w, pair_at(w, n), x + (size_t)i0 * w->k, &tiles, &out);
		}
	}
}
