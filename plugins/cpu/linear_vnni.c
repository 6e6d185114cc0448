/* SPDX-License-Identifier: Apache-2.0
 * AVX-512 VNNI variant: 16 rows of weights in a register, straight from the panel, x up to 12 tokens; sums of a block
 * and of a row stay in registers over the whole of k. vpdpbusd adds four products into int32, so nothing is deferred.
 * Few tokens or many, it is one path: a panel stays in L1 while tiles of tokens run over it, tokens in blocks that
 * stay in L2 while the panels run over them.
 *
 * Bits are those of the AVX2 variant. There a block's exact int32 sum x block scale is rounded to float once; here
 * the exact int32 sum, below 2^17, times the scale as a float is rounded once.
 */
#include "plugins/cpu/linear_vnni_codes.h"

enum { L2_ACT = 256 << 10 }; /* bytes of activations that should stay in L2 */

/* A tile of tokens: its groups, first to third, of which the last may be narrower. */
struct tile {
	const uint8_t *group[VNNI_TILE / VNNI_GROUP];
	const float *scale;
};
typedef void tile16_fn(const uint8_t *panel, uint32_t nb, const struct tile *a, const struct store *c);

/* Word w of token t, of T. */
INLINE const uint32_t *word(const uint32_t *const *x, int w, int t, const int T)
{
	const int g = t / VNNI_GROUP, width = T - g * VNNI_GROUP < VNNI_GROUP ? T % VNNI_GROUP : VNNI_GROUP;

	return x[g] + w * width + t % VNNI_GROUP;
}
INLINE __m512i bcast16(const uint32_t *p) { return _mm512_set1_epi32((int)*p); }
INLINE __m512 bcast16_f32(const uint32_t *p) { return _mm512_castsi512_ps(bcast16(p)); }

INLINE void words_next(const uint32_t **x, int words, const int T)
{
	UNROLL
	for (int g = 0; g * VNNI_GROUP < T; g++)
		x[g] += words * (T - g * VNNI_GROUP < VNNI_GROUP ? T % VNNI_GROUP : VNNI_GROUP);
}

INLINE void tile_store(const __m512 *f, const float *scale, const struct store *c, const int T)
{
	const __mmask16 cols = (__mmask16)(c->jn < VNNI_PANEL ? (1u << c->jn) - 1 : 0xffff);

	UNROLL
	for (int t = 0; t < T; t++)
		_mm512_mask_storeu_ps(c->c + t * c->ldc, cols, _mm512_mul_ps(f[t], _mm512_set1_ps(scale[t])));
}

/* ---- int8 ---- */

/* What the sums of token t begin with: minus the zero point. */
INLINE __m512i sum_begin(int form, const uint32_t *const *x, int t, const int T, int h)
{
	__m512i zero;

	if (form == I8_MIN)
		return _mm512_setzero_si512();
	zero = bcast16(word(x, X_ZERO, t, T));
	if (form == I8_Z8)
		return zero;
	if (form == I8_Z16 || form == I8_Z16_MIN)
		return _mm512_add_epi32(zero, zero);
	if (h)
		return _mm512_slli_epi32(_mm512_sub_epi32(zero, bcast16(word(x, X_ZERO16, t, T))), 2);
	return _mm512_slli_epi32(bcast16(word(x, X_ZERO16, t, T)), 2);
}

/* What a minimum of 16 rows is multiplied with. */
INLINE __m512 min_factor(int form, const uint32_t *const *x, int t, const int T, int h)
{
	__m512i zero;

	if (form != I8_HALVES_MIN)
		return bcast16_f32(word(x, X_MIN, t, T));
	zero = bcast16(word(x, X_ZERO16, t, T));
	if (h)
		zero = _mm512_sub_epi32(bcast16(word(x, X_ZERO, t, T)), zero);
	return _mm512_mul_ps(_mm512_cvtepi32_ps(zero), bcast16_f32(word(x, X_SCALE, t, T)));
}

INLINE void sums_add(int form, const uint32_t *const *x, const __m512i *acc, __m512 d, __m512 m, __m512 *f,
	const int T, int h)
{
	UNROLL
	for (int t = 0; t < T; t++) {
		const __m512 v =
			_mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), bcast16_f32(word(x, X_SCALE, t, T)));

		f[t] = _mm512_fmadd_ps(v, d, f[t]);
		if (form_min(form) || form == I8_HALVES_MIN)
			f[t] = _mm512_fmadd_ps(min_factor(form, x, t, T, h), m, f[t]);
	}
}

/* Vector v, half h, against all tokens. */
INLINE void codes_add(
	uint32_t type, const uint8_t *q, const uint32_t *const *x, __m512i *acc, const int T, int v, int h)
{
	const __m512i u = codes16(type, q, v, h);

	UNROLL
	for (int t = 0; t < T; t++)
		acc[t] = _mm512_dpbusd_epi32(acc[t], u, bcast16(word(x, 4 * h + v, t, T)));
}

INLINE void block_i8(
	uint32_t type, const uint8_t *chunk, uint32_t b, const uint32_t *const *x, __m512 *f, const int T)
{
	const uint8_t *q = chunk + b * 2 * type_codes(type);
	const int form = type_form(type), halves = form_halves(form);
	__m512 d, m = _mm512_setzero_ps();
	__m512i acc[VNNI_TILE];

	UNROLL
	for (int h = 0; h < 1 + halves; h++) {
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = sum_begin(form, x, t, T, h);
		UNROLL
		for (int v = 0; v < 4; v++) {
			codes_add(type, q, x, acc, T, v, h);
			if (!halves)
				codes_add(type, q, x, acc, T, v, 1);
		}
		scales16(type, chunk, b, h, &d, &m);
		sums_add(form, x, acc, d, m, f, T, h);
	}
}

INLINE void tile_i8(uint32_t type, const uint8_t *panel, uint32_t nb, const struct tile *a,
	const struct store *c, const int T)
{
	const uint32_t blocks = type_blocks(type), share = 2 * (uint32_t)type_chunk(type) / blocks;
	const uint32_t *x[VNNI_TILE / VNNI_GROUP];
	__m512 f[VNNI_TILE];

	UNROLL
	for (int g = 0; g * VNNI_GROUP < T; g++)
		x[g] = (const uint32_t *)a->group[g];
	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm512_setzero_ps();
	for (uint32_t i = 0; i < nb; i += blocks, panel += 2 * type_chunk(type))
		for (uint32_t b = 0; b < blocks; b++) {
			UNROLL
			for (uint32_t at = 0; at < share; at += 64)
				_mm_prefetch((const char *)panel + PREFETCH + b * share + at, _MM_HINT_T0);
			block_i8(type, panel, b, x, f, T);
			words_next(x, X_BLOCK, T);
		}
	tile_store(f, a->scale, c, T);
}

/* ---- int16 ---- */

INLINE void tile_i16(uint32_t type, const uint8_t *q, uint32_t nb, const struct tile *a,
	const struct store *c, const int T)
{
	const size_t bytes = type == TNP_Q8_0 ? 2 * Q8_CHUNK : 2 * IQ4_CHUNK;
	const uint32_t *x[VNNI_TILE / VNNI_GROUP];
	__m512 f[VNNI_TILE];

	UNROLL
	for (int g = 0; g * VNNI_GROUP < T; g++)
		x[g] = (const uint32_t *)a->group[g];
	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm512_setzero_ps();
	for (uint32_t b = 0; b < nb; b++, q += bytes) {
		__m512i acc[VNNI_TILE];

		UNROLL
		for (size_t at = 0; at < bytes; at += 64)
			_mm_prefetch((const char *)q + PREFETCH + at, _MM_HINT_T0);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm512_setzero_si512();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m512i u = int16_pairs16(type, q, i);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = _mm512_dpwssd_epi32(acc[t], u, bcast16(word(x, i, t, T)));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = _mm512_fmadd_ps(
				_mm512_cvtepi32_ps(acc[t]), scales16_f16(q + bytes - 32), f[t]);
		words_next(x, X16_BLOCK, T);
	}
	tile_store(f, a->scale, c, T);
}

/* ---- instances ---- */

#define TILES_8(X, a)  X(a, 1) X(a, 2) X(a, 3) X(a, 4) X(a, 5) X(a, 6) X(a, 7) X(a, 8)
#define TILES_12(X, a) TILES_8(X, a) X(a, 9) X(a, 10) X(a, 11) X(a, 12)
/* X(type, kind, tokens): with a scale for each 16 columns, twelve tokens would spill. */
#define TYPES(X)                                                                                             \
	X(Q4_0, i8, 12)                                                                                      \
	X(Q4_1, i8, 12)                                                                                      \
	X(Q5_0, i8, 12)                                                                                      \
	X(Q5_1, i8, 12)                                                                                      \
	X(Q2_K, i8, 8)                                                                                       \
	X(Q3_K, i8, 8)                                                                                       \
	X(Q4_K, i8, 12)                                                                                      \
	X(Q5_K, i8, 12)                                                                                      \
	X(Q6_K, i8, 8)                                                                                       \
	X(Q8_0, i16, 12)                                                                                     \
	X(IQ4_NL, i16, 12)
#define TILE_FN(kind, type, T)                                                                               \
	static void tile_##type##_##T(                                                                       \
		const uint8_t *panel, uint32_t nb, const struct tile *a, const struct store *c)              \
	{                                                                                                    \
		tile_##kind(TNP_##type, panel, nb, a, c, T);                                                 \
	}
#define FN_i8(type, T)		TILE_FN(i8, type, T)
#define FN_i16(type, T)		TILE_FN(i16, type, T)
#define FNS(type, kind, tokens) TILES_##tokens(FN_##kind, type)
TYPES(FNS)

#define TILE_NAME(type, T)	tile_##type##_##T,
#define ROW(type, kind, tokens) [TNP_##type] = { tokens, { NULL, TILES_##tokens(TILE_NAME, type) } },

static const struct kernel {
	uint32_t tokens; /* of the widest tile */
	tile16_fn *tile[VNNI_TILE + 1];
} kernels[] = { TYPES(ROW) };

/* ---- layout of a product ---- */

struct job {
	const struct linear_weight *w;
	const float *scale;
	const uint8_t *a; /* groups                        */
	size_t token;	  /* bytes of a prepared row       */
	size_t panel;	  /* bytes of a panel              */
	uint32_t width;	  /* tokens of a tile, but the last */
};

/* Tokens [i0, i1) against panel n / 16. */
static void panel_run(const struct job *j, uint32_t n, uint32_t i0, uint32_t i1, const struct store *c)
{
	const uint8_t *panel = (const uint8_t *)j->w->data + n / VNNI_PANEL * j->panel;

	for (uint32_t i = i0; i < i1; i += j->width) {
		const uint32_t T = i1 - i < j->width ? i1 - i : j->width;
		const struct store out = { c->c + i * c->ldc, c->ldc, c->jn };
		struct tile a = { .scale = j->scale + i };

		for (uint32_t g = 0; g * VNNI_GROUP < T; g++)
			a.group[g] = j->a + (i + g * VNNI_GROUP) * j->token;
		kernels[j->w->type].tile[T](panel, j->w->k / QK, &a, &out);
	}
}

/* Tokens of a tile, a multiple of four: as even as they can be. */
static uint32_t tile_width(uint32_t m, uint32_t tokens)
{
	const uint32_t groups = (m + VNNI_GROUP - 1) / VNNI_GROUP, most = tokens / VNNI_GROUP;
	const uint32_t tiles = (groups + most - 1) / most;

	return tiles ? (groups + tiles - 1) / tiles * VNNI_GROUP : VNNI_GROUP;
}

static void vnni_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, void *scratch)
{
	const uint32_t nb = w->k / QK;
	struct job j = { .w = w, .scale = act };
	uint32_t block;

	if (w->act == ACT_F32) {
		avx2_run_with(NULL, w, act, m, n0, n1, c, ldc, scratch);
		return;
	}
	j.width = tile_width(m, kernels[w->type].tokens);
	j.a = (const uint8_t *)act + act_scales_bytes(m);
	j.token = (size_t)nb * (w->act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK);
	j.panel = 2 * (w->k / avx2_chunk_k(w->type)) * avx2_chunk_bytes(w->type);
	block = (uint32_t)(L2_ACT / j.token / j.width) * j.width;
	block = block < 2 * j.width ? 2 * j.width : block;
	for (uint32_t i0 = 0; i0 < m; i0 += block)
		for (uint32_t n = n0; n < n1; n += VNNI_PANEL) {
			const struct store out = { c + n, ldc, n1 - n < VNNI_PANEL ? n1 - n : VNNI_PANEL };

			panel_run(&j, n, i0, m - i0 < block ? m : i0 + block, &out);
		}
}

/* ---- the table ---- */

static uint64_t vnni_weight_bytes(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const uint32_t act = avx2_act_class(type, precision, n, k);

	if (act == ACT_N_CLASSES)
		return 0;
	return avx2_weight_bytes(
		type, precision, act == ACT_F32 ? n : (n + VNNI_PANEL - 1) / VNNI_PANEL * VNNI_PANEL, k);
}

static void vnni_weight_pack(
	const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst)
{
	(w->act == ACT_F32 ? avx2_weight_pack : avx2_weight_pack_pairs)(w, src, n0, n1, dst);
}

const struct linear_ops linear_vnni = {
	.isa = "avx512vnni",
	.act_class = avx2_act_class,
	.weight_bytes = vnni_weight_bytes,
	.panel_rows = VNNI_PANEL,
	.weight_pack = vnni_weight_pack,
	.act_rows = VNNI_GROUP,
	.act_bytes = avx2_act_bytes,
	.act_pack = vnni_act_pack,
	.scratch_bytes = avx2_scratch_bytes,
	.run = vnni_run,
	.row_f32 = avx2_row_f32,
};
