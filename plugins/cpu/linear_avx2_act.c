/* SPDX-License-Identifier: Apache-2.0
 * Activations as the integer kernels want them (linear_avx2.h has the form). What a row becomes depends on that row
 * alone. A row with an infinity or a NaN gets the scale NaN, so that its outputs are NaN and seen as such; a row
 * whose greatest magnitude is below 1e-30 counts as zero, because its scale would leave the range of floats.
 *
 * Four blocks of a row are quantised at a time, then turned from rows of words into the tile's [word][T].
 */
#include "plugins/cpu/linear_avx2_quantise.h"

/* Blocks of a tile on their way: quads of 32-bit words, in the order of the form, of each token. */
struct group {
	__m128i quad[ACT_GROUP][4][PANEL]; /* [block][quad][token] */
};

/* ---- int8 ---- */

/* int16 pair sums of each of four vectors, over the lower and over the upper 128 bits. */
INLINE __m256i pairs_across(const __m256i v[ACT_GROUP])
{
	const __m256i a =
		_mm256_add_epi16(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
	const __m256i b =
		_mm256_add_epi16(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));

	return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

INLINE __m256i scaled(const float *p, __m256 by)
{
	return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p), by));
}

/* 32 floats times `by`, rounded to nearest, in -127..127, in order. */
INLINE __m256i quantise_i8(const float *p, __m256 by)
{
	const __m256i a = _mm256_packs_epi32(scaled(p, by), scaled(p + 8, by));
	const __m256i b = _mm256_packs_epi32(scaled(p + 16, by), scaled(p + 24, by));
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

	return _mm256_max_epi8(
		_mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order), _mm256_set1_epi8(-127));
}

/* What stands behind the codes of four blocks, a quad each. */
INLINE void i8_tails(__m256i pairs, __m128i s, __m128i tail[ACT_GROUP])
{
	const __m128i lo = _mm256_castsi256_si128(pairs),
		      all = _mm_add_epi16(lo, _mm256_extracti128_si256(pairs, 1));
	const __m128i sum = _mm_madd_epi16(all, _mm_set1_epi16(1)), eight = _mm_set1_epi16(-8);
	const __m128 ssum = _mm_mul_ps(_mm_cvtepi32_ps(s), _mm_cvtepi32_ps(sum));
	const __m128i corr = _mm_mullo_epi16(all, eight), corr16 = _mm_mullo_epi16(lo, eight);
	const __m128i twice = _mm_or_si128(s, _mm_slli_epi32(s, 16));
	const __m128i a = _mm_unpacklo_epi32(corr, twice),
		      b = _mm_unpacklo_epi32(_mm_castps_si128(ssum), corr16);
	const __m128i c = _mm_unpackhi_epi32(corr, twice),
		      d = _mm_unpackhi_epi32(_mm_castps_si128(ssum), corr16);

	tail[0] = _mm_unpacklo_epi64(a, b);
	tail[1] = _mm_unpackhi_epi64(a, b);
	tail[2] = _mm_unpacklo_epi64(c, d);
	tail[3] = _mm_unpackhi_epi64(c, d);
}

/* n blocks of token t; step is the row's. */
INLINE void i8_group(const float *p, uint32_t n, float step, uint32_t t, struct group *g)
{
	__m256i top[ACT_GROUP], pair[ACT_GROUP];
	__m128i s, tail[ACT_GROUP];
	__m128 by;

	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++)
		top[i] = i < n ? block_top(p + i * QK) : _mm256_setzero_si256();
	s = block_scales(top_across(top), step);
	by = block_steps(s, step);
	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++) {
		__m256i q = _mm256_setzero_si256();

		if (i < n)
			q = quantise_i8(p + i * QK, _mm256_broadcastss_ps(by));
		by = _mm_permute_ps(by, 0x39);
		pair[i] = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
		g->quad[i][0][t] = _mm256_castsi256_si128(q);
		g->quad[i][1][t] = _mm256_extracti128_si256(q, 1);
	}
	i8_tails(pairs_across(pair), s, tail);
	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++)
		g->quad[i][2][t] = tail[i];
}

/* ---- int16 ---- */

INLINE void i16_group(const float *p, uint32_t n, float step, uint32_t t, struct group *g)
{
	const __m256 by = _mm256_set1_ps(1.0f / step);

	for (uint32_t h = 0; h < 2 * n; h++, p += 16) {
		const __m256i q =
			_mm256_permute4x64_epi64(_mm256_packs_epi32(scaled(p, by), scaled(p + 8, by)), 0xd8);

		g->quad[h / 2][h % 2 * 2][t] = _mm256_castsi256_si128(q);
		g->quad[h / 2][h % 2 * 2 + 1][t] = _mm256_extracti128_si256(q, 1);
	}
}

/* ---- into the tile ---- */

/* A block of all T tokens. Vectors of eight tokens are stored one over the other's end, so the last block of a
 * tile, behind which something else lies, takes a way round. */
INLINE void tile_put(const __m128i (*quad)[PANEL], int n_quads, uint32_t *dst, uint32_t T, int last)
{
	uint32_t around[ACT_I16_BLOCK / 4 * WIDE_T + PANEL], *out = last ? around : dst;

	UNROLL
	for (int i = 0; i < n_quads; i++) {
		__m256i v[4];

		transpose_words(quad[i], v);
		UNROLL
		for (int w = 0; w < 4; w++)
			store256(out + (4 * i + w) * (int)T, v[w]);
	}
	if (last)
		memcpy(dst, around, (size_t)n_quads * 4 * T * sizeof *dst);
}

/* A block of tokens [t0, t1). */
INLINE void columns_put(
	const __m128i (*quad)[PANEL], int n_quads, uint32_t *dst, uint32_t T, uint32_t t0, uint32_t t1)
{
	for (uint32_t t = t0; t < t1; t++)
		for (int i = 0; i < n_quads; i++) {
			uint32_t word[4];

			_mm_storeu_si128((__m128i *)word, quad[i][t]);
			for (uint32_t w = 0; w < 4; w++)
				dst[(4 * (uint32_t)i + w) * T + t] = word[w];
		}
}

/* Where a call works: columns [t0, t1) of a tile of T tokens, rows from x on. */
struct place {
	const float *x;
	size_t ldx;
	uint32_t nb, T, t0, t1;
	uint32_t *dst;
};

/* Blocks [b, b + n), n <= ACT_GROUP. */
INLINE void group_pack(
	int i8, const struct place *a, const float *step, uint32_t b, const uint32_t n, struct group *g)
{
	const int n_quads = i8 ? 3 : 4;
	uint32_t *dst = a->dst + (size_t)b * (uint32_t)n_quads * 4 * a->T;

	for (uint32_t t = a->t0; t < a->t1; t++) {
		const float *p = a->x + (t - a->t0) * a->ldx + (size_t)b * QK;

		if (i8)
			i8_group(p, n, step[t], t, g);
		else
			i16_group(p, n, step[t], t, g);
	}
	for (uint32_t i = 0; i < n; i++, dst += (uint32_t)n_quads * 4 * a->T)
		if (a->T == 1)
			for (int w = 0; w < n_quads; w++)
				_mm_storeu_si128((__m128i *)dst + w, g->quad[i][w][0]);
		else if (a->t1 - a->t0 == a->T)
			tile_put(g->quad[i], n_quads, dst, a->T, b + i + 1 == a->nb);
		else
			columns_put(g->quad[i], n_quads, dst, a->T, a->t0, a->t1);
}

/* `scale`: of row t0. */
INLINE void tile_pack(int i8, const struct place *a, float *scale)
{
	const uint32_t whole = a->nb / ACT_GROUP * ACT_GROUP;
	float step[WIDE_T];
	struct group g;

	if (a->T > 1)
		memset(&g, 0, sizeof g);
	for (uint32_t t = a->t0; t < a->t1; t++)
		scale[t - a->t0] = row_scale(a->x + (t - a->t0) * a->ldx, a->nb * QK,
			i8 ? 127.0f * ACT_S_MAX : (float)ACT_S_MAX, step + t);
	for (uint32_t b = 0; b < whole; b += ACT_GROUP)
		group_pack(i8, a, step, b, ACT_GROUP, &g);
	if (a->nb > whole)
		group_pack(i8, a, step, whole, a->nb - whole, &g);
}

static void i8_pack(const struct place *a, float *scale) { tile_pack(1, a, scale); }
static void i16_pack(const struct place *a, float *scale) { tile_pack(0, a, scale); }

void avx2_act_pack(
	uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1, void *dst)
{
	const struct tiles tiles = tiles_of(m, WIDE_T);
	const size_t token = (size_t)(k / QK) * (act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK);
	uint8_t *body = (uint8_t *)dst + act_scales_bytes(m);

	if (act != ACT_I8 && act != ACT_I16)
		return;
	for (uint32_t i = m0, end; i < m1; i = end) {
		const uint32_t tile = tiles_find(&tiles, i), first = tiles_first(&tiles, tile),
			       T = tiles_width(&tiles, tile);
		struct place a = { x + i * ldx, ldx, k / QK, T, i - first, 0,
			(uint32_t *)(body + first * token) };

		end = m1 - first < T ? m1 : first + T;
		a.t1 = end - first;
		(act == ACT_I8 ? i8_pack : i16_pack)(&a, (float *)dst + i);
	}
}
