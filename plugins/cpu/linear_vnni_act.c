/* SPDX-License-Identifier: Apache-2.0
 * Activations in the form of linear_vnni.h. The numbers are those of linear_avx2_act.c, bit by bit; a row becomes what
 * it becomes by itself. Four blocks of a row are quantised at a time, then turned from rows of words into [word][W].
 */
#include "plugins/cpu/linear_avx2_quantise.h"
#include "plugins/cpu/linear_vnni.h"

/* Blocks of a group of tokens on their way: quads of 32-bit words of each token. */
struct group {
	__m128i quad[ACT_GROUP][4][VNNI_GROUP]; /* [block][quad][token] */
};

/* out[v] = words v of the four */
INLINE void transpose4(const __m128i r[4], __m128i out[4])
{
	const __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpacklo_epi32(r[2], r[3]);
	const __m128i c = _mm_unpackhi_epi32(r[0], r[1]), d = _mm_unpackhi_epi32(r[2], r[3]);

	out[0] = _mm_unpacklo_epi64(a, b);
	out[1] = _mm_unpackhi_epi64(a, b);
	out[2] = _mm_unpacklo_epi64(c, d);
	out[3] = _mm_unpackhi_epi64(c, d);
}

/* Sum of the four lanes of each. */
INLINE __m128i sums_across(const __m128i v[4])
{
	__m128i t[4];

	transpose4(v, t);
	return _mm_add_epi32(_mm_add_epi32(t[0], t[1]), _mm_add_epi32(t[2], t[3]));
}

/* 16 floats times `by`, rounded to nearest. */
INLINE __m512i scaled16(const float *p, __m512 by)
{
	return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p), by));
}
INLINE __m128i quantise16(const float *p, __m512 by)
{
	return _mm_max_epi8(_mm512_cvtsepi32_epi8(scaled16(p, by)), _mm_set1_epi8(-127));
}

/* What stands behind the codes of four blocks, a quad each; lo, hi: sums of their first and last 16 codes. */
INLINE void i8_tails(__m128i s, __m128i lo, __m128i hi, __m128i tail[ACT_GROUP])
{
	const __m128i all = _mm_add_epi32(lo, hi), nought = _mm_setzero_si128();
	const __m128 sf = _mm_cvtepi32_ps(s);
	const __m128i rows[4] = { _mm_castps_si128(sf),
		_mm_castps_si128(_mm_mul_ps(sf, _mm_cvtepi32_ps(all))),
		_mm_slli_epi32(_mm_sub_epi32(nought, all), 3), _mm_slli_epi32(_mm_sub_epi32(nought, lo), 3) };

	transpose4(rows, tail);
}

/* n blocks of token t; step is the row's. */
INLINE void i8_group(const float *p, uint32_t n, float step, uint32_t t, struct group *g)
{
	const __m128i one = _mm_set1_epi8(1), nought = _mm_setzero_si128();
	__m128i lo[ACT_GROUP], hi[ACT_GROUP], tail[ACT_GROUP], s;
	__m256i top[ACT_GROUP];
	__m128 by;

	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++)
		top[i] = i < n ? block_top(p + i * QK) : _mm256_setzero_si256();
	s = block_scales(top_across(top), step);
	by = block_steps(s, step);
	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++) {
		__m128i a = nought, b = nought;

		if (i < n) {
			a = quantise16(p + i * QK, _mm512_broadcastss_ps(by));
			b = quantise16(p + i * QK + 16, _mm512_broadcastss_ps(by));
		}
		by = _mm_permute_ps(by, 0x39);
		lo[i] = _mm_dpbusd_epi32(nought, one, a);
		hi[i] = _mm_dpbusd_epi32(nought, one, b);
		g->quad[i][0][t] = a;
		g->quad[i][1][t] = b;
	}
	i8_tails(s, sums_across(lo), sums_across(hi), tail);
	UNROLL
	for (uint32_t i = 0; i < ACT_GROUP; i++)
		g->quad[i][2][t] = tail[i];
}

INLINE void i16_group(const float *p, uint32_t n, float step, uint32_t t, struct group *g)
{
	const __m512 by = _mm512_set1_ps(1.0f / step);

	for (uint32_t h = 0; h < 2 * n; h++, p += 16) {
		const __m256i q = _mm512_cvtsepi32_epi16(scaled16(p, by));

		g->quad[h / 2][h % 2 * 2][t] = _mm256_castsi256_si128(q);
		g->quad[h / 2][h % 2 * 2 + 1][t] = _mm256_extracti128_si256(q, 1);
	}
}

/* A block of W tokens. */
INLINE void block_put(const __m128i (*quad)[VNNI_GROUP], int n_quads, uint32_t *dst, const uint32_t W)
{
	UNROLL
	for (int i = 0; i < n_quads; i++) {
		__m128i v[4];

		if (W == 1) {
			_mm_storeu_si128((__m128i *)(dst + 4 * i), quad[i][0]);
			continue;
		}
		transpose4(quad[i], v);
		UNROLL
		for (uint32_t w = 0; w < 4; w++)
			if (W == 4)
				_mm_storeu_si128((__m128i *)(dst + (4 * (uint32_t)i + w) * 4), v[w]);
			else
				_mm_mask_storeu_epi32(
					dst + (4 * (uint32_t)i + w) * W, (__mmask8)((1 << W) - 1), v[w]);
	}
}

/* W rows from x on, nb blocks each; scale: of the first. */
INLINE void group_pack(
	int i8, const float *x, size_t ldx, uint32_t nb, uint32_t *dst, float *scale, const uint32_t W)
{
	const int n_quads = i8 ? 3 : 4;
	float step[VNNI_GROUP];
	struct group g;

	memset(&g, 0, sizeof g);
	for (uint32_t t = 0; t < W; t++)
		scale[t] =
			row_scale(x + t * ldx, nb * QK, i8 ? 127.0f * ACT_S_MAX : (float)ACT_S_MAX, step + t);
	for (uint32_t b = 0; b < nb; b += ACT_GROUP) {
		const uint32_t n = nb - b < ACT_GROUP ? nb - b : ACT_GROUP;

		for (uint32_t t = 0; t < W; t++)
			if (!i8)
				i16_group(x + t * ldx + (size_t)b * QK, n, step[t], t, &g);
			else if (n == ACT_GROUP)
				i8_group(x + t * ldx + (size_t)b * QK, ACT_GROUP, step[t], t, &g);
			else
				i8_group(x + t * ldx + (size_t)b * QK, n, step[t], t, &g);
		for (uint32_t i = 0; i < n; i++, dst += (uint32_t)n_quads * 4 * W)
			block_put(g.quad[i], n_quads, dst, W);
	}
}

#define GROUP_FN(name, i8, W)                                                                                \
	static void name(const float *x, size_t ldx, uint32_t nb, uint32_t *dst, float *scale)               \
	{                                                                                                    \
		group_pack(i8, x, ldx, nb, dst, scale, W);                                                   \
	}
GROUP_FN(i8_1, 1, 1)
GROUP_FN(i8_2, 1, 2)
GROUP_FN(i8_3, 1, 3)
GROUP_FN(i8_4, 1, 4)
GROUP_FN(i16_1, 0, 1)
GROUP_FN(i16_2, 0, 2)
GROUP_FN(i16_3, 0, 3)
GROUP_FN(i16_4, 0, 4)

typedef void group_fn(const float *x, size_t ldx, uint32_t nb, uint32_t *dst, float *scale);
static group_fn *const group_fns[2][VNNI_GROUP] = { { i16_1, i16_2, i16_3, i16_4 },
	{ i8_1, i8_2, i8_3, i8_4 } };

void vnni_act_pack(
	uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1, void *dst)
{
	const uint32_t nb = k / QK, words = nb * (act == ACT_I8 ? X_BLOCK : X16_BLOCK);
	uint32_t *body = (uint32_t *)((uint8_t *)dst + act_scales_bytes(m));

	if (act != ACT_I8 && act != ACT_I16)
		return;
	for (uint32_t i = m0; i < m1; i += VNNI_GROUP) {
		const uint32_t W = m - i < VNNI_GROUP ? m - i : VNNI_GROUP;

		group_fns[act == ACT_I8][W - 1](
			x + i * ldx, ldx, nb, body + (size_t)i * words, (float *)dst + i);
	}
}
