/* SPDX-License-Identifier: Apache-2.0
 * EXACT products of quantised weights: float activations, used where they lie. Blocks of weights become f32 in
 * the scratch, [k][R panels][8], exactly as dequant.c has them; one fma an output and column, k ascending, in every
 * path. Fewer tokens take more panels at a time: an fma chain needs eight or more beside it to hide its latency.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum {
	R_MAX = 8,
	MANY_TOKENS = 96 /* tokens that share an unpacked stretch, their partial sums in L1 */
};
_Static_assert((int)MANY_TOKENS <= (int)PART_TOKENS, "scratch");

typedef void load_fn(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride);

/* ---- a block of weights as f32, out[k][stride] ---- */

/* A call reads a short piece of a panel, then others of its panel's neighbours: what the next one will want. */
INLINE void ahead(const uint8_t *p, size_t distance, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 64)
		_mm_prefetch((const char *)p + distance + at, _MM_HINT_T0);
}

INLINE void load_codes(
	uint32_t type, const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	const size_t share = type_chunk(type) / type_blocks(type);

	for (uint32_t b = k0 / QK; b < (k0 + kn) / QK; b++) {
		const uint32_t in = b % type_blocks(type);
		const uint8_t *chunk = panel + b / type_blocks(type) * type_chunk(type),
			      *q = chunk + in * type_codes(type);

		ahead(panel + b * share, kn / QK * share, share);
		UNROLL
		for (int h = 0; h < 2; h++) {
			__m256 d, m;

			scales_raw(type, chunk, in, h, &d, &m);
			UNROLL
			for (int v = 0; v < 4; v++) {
				const __m256i code = codes_raw(type, q, v, h);

				UNROLL
				for (int i = 0; i < 4; i++, out += stride) {
					const __m256i u = _mm256_and_si256(
						_mm256_srli_epi32(code, 8 * i), _mm256_set1_epi32(255));

					_mm256_store_ps(out, _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(u), m));
				}
			}
		}
	}
}

/* Two columns, as int16 pairs. */
INLINE void load_pairs(__m256i pair, __m256 d, float *out, size_t stride)
{
	const __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(pair, 16), 16),
		      odd = _mm256_srai_epi32(pair, 16);

	_mm256_store_ps(out, _mm256_mul_ps(d, _mm256_cvtepi32_ps(even)));
	_mm256_store_ps(out + stride, _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd)));
}

INLINE void load_int8(
	uint32_t type, const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK;
	const uint8_t *q = panel + k0 / QK * bytes;

	for (uint32_t b = 0; b < kn / QK; b++, q += bytes) {
		ahead(q, kn / QK * bytes, bytes);
		UNROLL
		for (int i = 0; i < 16; i++, out += 2 * stride)
			load_pairs(int16_pairs(type, q, i), scales_f16(q + bytes - 16), out, stride);
	}
}

static void load_Q8_0(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	load_int8(TNP_Q8_0, panel, k0, kn, out, stride);
}

static void load_IQ4_NL(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	load_int8(TNP_IQ4_NL, panel, k0, kn, out, stride);
}

#define CODES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)
#define CODES_FN(type)                                                                                       \
	static void load_##type(const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)   \
	{                                                                                                    \
		load_codes(TNP_##type, panel, k0, kn, out, stride);                                          \
	}
#define CODES_ROW(type) [TNP_##type] = load_##type,
CODES(CODES_FN)

static load_fn *const loads[] = { CODES(CODES_ROW) CODES_ROW(Q8_0) CODES_ROW(IQ4_NL) };

/* ---- R panels x T tokens over kn columns; sums f[T][R][8] ---- */

typedef void tile_f32_fn(const float *w, uint32_t kn, const float *x, size_t ldx, float *f);

INLINE void tile_run(
	const float *w, uint32_t kn, const float *x, size_t ldx, float *f, const int R, const int T)
{
	__m256 acc[R_MAX * TILE_T];

	UNROLL
	for (int i = 0; i < R * T; i++)
		acc[i] = _mm256_load_ps(f + i * PANEL);
	for (uint32_t k = 0; k < kn; k++, w += R * PANEL) {
		UNROLL
		for (int t = 0; t < T; t++) {
			const __m256 v = _mm256_broadcast_ss(x + t * ldx + k);

			UNROLL
			for (int r = 0; r < R; r++)
				acc[t * R + r] =
					_mm256_fmadd_ps(v, _mm256_load_ps(w + r * PANEL), acc[t * R + r]);
		}
	}
	UNROLL
	for (int i = 0; i < R * T; i++)
		_mm256_store_ps(f + i * PANEL, acc[i]);
}

/* X(R, T) */
#define SHAPES(X) X(8, 1) X(2, 1) X(4, 2) X(2, 2) X(4, 3) X(2, 3) X(2, 4) X(2, 5) X(2, 6)
#define SHAPE_FN(R, T)                                                                                       \
	static void tile_##R##_##T(const float *w, uint32_t kn, const float *x, size_t ldx, float *f)        \
	{                                                                                                    \
		tile_run(w, kn, x, ldx, f, R, T);                                                            \
	}
#define SHAPE_ROW(R, T) [R][T] = tile_##R##_##T,
SHAPES(SHAPE_FN)
static tile_f32_fn *const tiles_f32[R_MAX + 1][TILE_T + 1] = { SHAPES(SHAPE_ROW) };

/* ---- driver ---- */

struct job {
	const struct linear_weight *w;
	const float *x;
	float *c;
	size_t ldc;
	uint32_t R;  /* panels at a time   */
	uint32_t n1; /* end of the columns */
	struct scratch *s;
};

static void row_store(const struct job *j, uint32_t n, uint32_t i, const float *f)
{
	for (uint32_t r = 0; r < j->R && n + r * PANEL < j->n1; r++) {
		const uint32_t at = n + r * PANEL;

		store_cols(j->c + (size_t)i * j->ldc + at, _mm256_load_ps(f + r * PANEL), j->n1 - at);
	}
}

/* R panels from column n x tokens [i0, i1). */
static void strip_run(const struct job *j, uint32_t n, uint32_t i0, uint32_t i1)
{
	const uint32_t step = SCR_BYTES / (j->R * PANEL * sizeof(float)) / QK * QK, k = j->w->k;
	const struct tiles tiles = tiles_of(i1 - i0);
	float *w = (float *)j->s->w, *f;

	memset(j->s->part, 0, (size_t)(i1 - i0) * j->R * PANEL * sizeof *f);
	for (uint32_t k0 = 0, kn; k0 < k; k0 += kn) {
		kn = k - k0 < step ? k - k0 : step;
		for (uint32_t r = 0; r < j->R; r++)
			loads[j->w->type](panel_at(j->w, n / PANEL + (n + r * PANEL < j->n1 ? r : 0)), k0, kn,
				w + r * PANEL, j->R * PANEL);
		for (uint32_t t = 0; t < tiles.n; t++) {
			const size_t first = tiles_first(&tiles, t);
			const uint32_t T = tiles_width(&tiles, t);

			tiles_f32[j->R][T](
				w, kn, j->x + (i0 + first) * k + k0, k, j->s->part + first * j->R * PANEL);
		}
	}
	f = j->s->part;
	for (uint32_t i = i0; i < i1; i++, f += j->R * PANEL)
		row_store(j, n, i, f);
}

void avx2_f32_run(const struct linear_weight *w, const float *x, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, struct scratch *scratch)
{
	struct job j = { .w = w, .x = x, .c = c, .ldc = ldc, .n1 = n1, .s = scratch };
	const uint32_t wide = m == 1 ? 8 : m <= 3 ? 4 : 2;

	for (uint32_t i0 = 0; i0 < m; i0 += MANY_TOKENS) {
		const uint32_t i1 = m - i0 < MANY_TOKENS ? m : i0 + MANY_TOKENS;

		for (uint32_t n = n0; n < n1; n += j.R * PANEL) {
			j.R = n1 - n >= wide * PANEL ? wide : TILE_R;
			strip_run(&j, n, i0, i1);
		}
	}
}
