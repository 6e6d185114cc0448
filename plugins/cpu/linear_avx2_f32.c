/* SPDX-License-Identifier: Apache-2.0
 * EXACT products of quantised weights: float activations, used where they lie. Blocks of weights become f32 in
 * the scratch, [k][R panels][8], exactly as dequant.c has them; one fma an output and column, k ascending, in every
 * path. For few tokens they go into the sums at once instead.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum {
	FEW_T = 2,	 /* tokens up to which weights are not put down in between */
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

/* Column i of 4 in a vector of codes. */
INLINE __m256 code_float(__m256i code, const int i, __m256 d, __m256 m)
{
	const __m256i u = _mm256_and_si256(_mm256_srli_epi32(code, 8 * i), _mm256_set1_epi32(255));

	return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(u), m);
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
				for (int i = 0; i < 4; i++, out += stride)
					_mm256_store_ps(out, code_float(code, i, d, m));
			}
		}
	}
}

/* Two columns, as int16 pairs. */
INLINE void pair_floats(__m256i pair, __m256 d, __m256 out[2])
{
	const __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(pair, 16), 16),
		      odd = _mm256_srai_epi32(pair, 16);

	out[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(even));
	out[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd));
}

INLINE void load_int8(
	uint32_t type, const uint8_t *panel, uint32_t k0, uint32_t kn, float *out, size_t stride)
{
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK;
	const uint8_t *q = panel + k0 / QK * bytes;

	for (uint32_t b = 0; b < kn / QK; b++, q += bytes) {
		ahead(q, kn / QK * bytes, bytes);
		UNROLL
		for (int i = 0; i < 16; i++, out += 2 * stride) {
			__m256 w[2];

			pair_floats(int16_pairs(type, q, i), scales_f16(q + bytes - 16), w);
			_mm256_store_ps(out, w[0]);
			_mm256_store_ps(out + stride, w[1]);
		}
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

/* ---- a pair of panels x T tokens over kn columns; sums f[T][2][8] ---- */

typedef void tile_f32_fn(const float *w, uint32_t kn, const float *x, size_t ldx, float *f);

INLINE void tile_run(const float *w, uint32_t kn, const float *x, size_t ldx, float *f, const int T)
{
	__m256 acc[TILE_R * TILE_T];

	UNROLL
	for (int i = 0; i < TILE_R * T; i++)
		acc[i] = _mm256_load_ps(f + i * PANEL);
	for (uint32_t k = 0; k < kn; k++, w += TILE_N) {
		UNROLL
		for (int t = 0; t < T; t++) {
			const __m256 v = _mm256_broadcast_ss(x + t * ldx + k);

			UNROLL
			for (int r = 0; r < TILE_R; r++)
				acc[t * TILE_R + r] = _mm256_fmadd_ps(
					v, _mm256_load_ps(w + r * PANEL), acc[t * TILE_R + r]);
		}
	}
	UNROLL
	for (int i = 0; i < TILE_R * T; i++)
		_mm256_store_ps(f + i * PANEL, acc[i]);
}

#define TILE_FN(name, T)                                                                                     \
	static void tile_##T(const float *w, uint32_t kn, const float *x, size_t ldx, float *f)              \
	{                                                                                                    \
		tile_run(w, kn, x, ldx, f, T);                                                               \
	}
#define TILE_NAME(name, T) tile_##T,
WIDTHS(TILE_FN, )
static tile_f32_fn *const tiles_f32[TILE_T + 1] = { NULL, WIDTHS(TILE_NAME, ) };

/* ---- few tokens: a pair of panels x T, weights go from codes into the sums ---- */

INLINE void few_add(__m256 w[TILE_R], const float *x, size_t ldx, __m256 acc[FEW_T][TILE_R], const int T)
{
	UNROLL
	for (int t = 0; t < T; t++) {
		const __m256 v = _mm256_broadcast_ss(x + t * ldx);

		UNROLL
		for (int r = 0; r < TILE_R; r++)
			acc[t][r] = _mm256_fmadd_ps(v, w[r], acc[t][r]);
	}
}

INLINE void few_codes(uint32_t type, const uint8_t *const chunk[TILE_R], uint32_t in, const float *x,
	size_t ldx, __m256 acc[FEW_T][TILE_R], const int T)
{
	UNROLL
	for (int h = 0; h < 2; h++) {
		__m256 d[TILE_R], m[TILE_R], w[TILE_R];
		__m256i code[TILE_R];

		for (int r = 0; r < TILE_R; r++)
			scales_raw(type, chunk[r], in, h, d + r, m + r);
		UNROLL
		for (int v = 0; v < 4; v++) {
			for (int r = 0; r < TILE_R; r++)
				code[r] = codes_raw(type, chunk[r] + in * type_codes(type), v, h);
			UNROLL
			for (int i = 0; i < 4; i++, x++) {
				for (int r = 0; r < TILE_R; r++)
					w[r] = code_float(code[r], i, d[r], m[r]);
				few_add(w, x, ldx, acc, T);
			}
		}
	}
}

INLINE void few_int8(uint32_t type, const uint8_t *const q[TILE_R], const float *x, size_t ldx,
	__m256 acc[FEW_T][TILE_R], const int T)
{
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK;

	UNROLL
	for (int i = 0; i < 16; i++, x += 2) {
		__m256 w[TILE_R][2], at[TILE_R];

		for (int r = 0; r < TILE_R; r++)
			pair_floats(int16_pairs(type, q[r], i), scales_f16(q[r] + bytes - 16), w[r]);
		for (int u = 0; u < 2; u++) {
			for (int r = 0; r < TILE_R; r++)
				at[r] = w[r][u];
			few_add(at, x + u, ldx, acc, T);
		}
	}
}

/* The next pair is fetched meanwhile. */
INLINE void few_run(uint32_t type, const uint8_t *const panel[TILE_R], uint32_t k, const float *x,
	const struct store *c, const int T)
{
	const int int8 = type == TNP_Q8_0 || type == TNP_IQ4_NL;
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : int8 ? IQ4_CHUNK : type_chunk(type);
	const uint32_t blocks = int8 ? 1 : type_blocks(type);
	const uint8_t *chunk[TILE_R] = { panel[0], panel[1] },
		      *next = panel[0] + 2 * (k / QK / blocks) * bytes;
	__m256 acc[FEW_T][TILE_R];

	UNROLL
	for (int t = 0; t < T; t++)
		acc[t][0] = acc[t][1] = _mm256_setzero_ps();
	for (uint32_t b = 0, in = 0; b < k / QK; b++, x += QK) {
		for (size_t at = 0; at < 2 * bytes / blocks; at += 64)
			_mm_prefetch((const char *)next + at, _MM_HINT_T1);
		next += 2 * bytes / blocks;
		if (int8)
			few_int8(type, chunk, x, k, acc, T);
		else
			few_codes(type, chunk, in, x, k, acc, T);
		if (++in < blocks)
			continue;
		in = 0;
		chunk[0] += bytes;
		chunk[1] += bytes;
	}
	UNROLL
	for (int t = 0; t < T; t++) {
		store_cols(c->c + t * c->ldc, acc[t][0], c->jn);
		if (c->jn > PANEL)
			store_cols(c->c + t * c->ldc + PANEL, acc[t][1], c->jn - PANEL);
	}
}

typedef void few_fn(const uint8_t *const panel[TILE_R], uint32_t k, const float *x, const struct store *c);

#define ALL_CODES(X)	 CODES(X) X(Q8_0) X(IQ4_NL)
#define FEW_WIDTHS(X, a) X(a, 1) X(a, 2)
#define FEW_FN(type, T)                                                                                      \
	static void few_##type##_##T(                                                                        \
		const uint8_t *const panel[TILE_R], uint32_t k, const float *x, const struct store *c)       \
	{                                                                                                    \
		few_run(TNP_##type, panel, k, x, c, T);                                                      \
	}
#define FEW_FNS(type)	  FEW_WIDTHS(FEW_FN, type)
#define FEW_NAME(type, T) few_##type##_##T,
#define FEW_ROW(type)	  [TNP_##type] = { NULL, FEW_WIDTHS(FEW_NAME, type) },
ALL_CODES(FEW_FNS)
static few_fn *const fews[][FEW_T + 1] = { ALL_CODES(FEW_ROW) };

/* ---- driver ---- */

/* The second panel of a pair; the first again where there is none. */
static const uint8_t *panel_beside(const struct linear_weight *w, uint32_t n, uint32_t n1)
{
	return panel_at(w, n / PANEL + (n1 - n > PANEL));
}

struct job {
	const struct linear_weight *w;
	const float *x;
	float *c;
	size_t ldc;
	uint32_t n1; /* end of the columns */
	struct scratch *s;
};

/* A pair of panels from column n x tokens [i0, i1). */
static void strip_run(const struct job *j, uint32_t n, uint32_t i0, uint32_t i1)
{
	const uint32_t step = SCR_BYTES / (TILE_N * sizeof(float)) / QK * QK, k = j->w->k;
	const struct tiles tiles = tiles_of(i1 - i0, TILE_T);
	float *w = (float *)j->s->w, *f = j->s->part;

	memset(f, 0, (size_t)(i1 - i0) * TILE_N * sizeof *f);
	for (uint32_t k0 = 0, kn; k0 < k; k0 += kn) {
		kn = k - k0 < step ? k - k0 : step;
		loads[j->w->type](panel_at(j->w, n / PANEL), k0, kn, w, TILE_N);
		loads[j->w->type](panel_beside(j->w, n, j->n1), k0, kn, w + PANEL, TILE_N);
		for (uint32_t t = 0; t < tiles.n; t++) {
			const size_t first = tiles_first(&tiles, t);

			tiles_f32[tiles_width(&tiles, t)](
				w, kn, j->x + (i0 + first) * k + k0, k, f + first * TILE_N);
		}
	}
	for (uint32_t i = i0; i < i1; i++, f += TILE_N) {
		float *c = j->c + (size_t)i * j->ldc + n;

		store_cols(c, _mm256_load_ps(f), j->n1 - n);
		if (j->n1 - n > PANEL)
			store_cols(c + PANEL, _mm256_load_ps(f + PANEL), j->n1 - n - PANEL);
	}
}

void avx2_f32_run(const struct linear_weight *w, const float *x, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, struct scratch *scratch)
{
	struct job j = { .w = w, .x = x, .c = c, .ldc = ldc, .n1 = n1, .s = scratch };

	for (uint32_t n = n0; m <= FEW_T && n < n1; n += TILE_N) {
		const uint8_t *const panel[TILE_R] = { panel_at(w, n / PANEL), panel_beside(w, n, n1) };
		const struct store out = { c + n, ldc, n1 - n };

		fews[w->type][m](panel, w->k, x, &out);
	}
	for (uint32_t i0 = 0; m > FEW_T && i0 < m; i0 += MANY_TOKENS)
		for (uint32_t n = n0; n < n1; n += TILE_N)
			strip_run(&j, n, i0, m - i0 < MANY_TOKENS ? m : i0 + MANY_TOKENS);
}
