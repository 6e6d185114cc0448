/* SPDX-License-Identifier: Apache-2.0
 * AVX-512 VNNI variant: panels, activations, scratch and drivers of the AVX2 variant (linear_avx2.h), kernels of its
 * own. vpdpbusd adds four products into int32, so nothing is deferred: one instruction in place of two, two panels
 * in one register, the running sums in registers too.
 *
 * Bits are those of the AVX2 variant. There a block's exact int32 sum x block scale is rounded to float once; here
 * the exact int32 sum, below 2^17, times the scale as a float is rounded once.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum { I8_DIRECT_MAX = 8, I16_DIRECT_MAX = 8 };

/* What the T tokens of a block share with no one: [token]. */
struct turn {
	_Alignas(32) float s[PANEL];
	_Alignas(
		32) int32_t begin[2][PANEL]; /* what the sums of each half begin with: minus the zero point */
	_Alignas(32) float min[2][PANEL]; /* what the halves' minima are multiplied with                  */
};

INLINE void turn_make(int form, const uint32_t *x, const int T, struct turn *o)
{
	const __m256i one = _mm256_set1_epi16(1);
	const __m256i all = _mm256_madd_epi16(load256(x + X_CORR * T), one);
	const __m256i lo = _mm256_madd_epi16(load256(x + X_CORR16 * T), one), hi = _mm256_sub_epi32(all, lo);
	const __m256 s = _mm256_cvtepi32_ps(_mm256_srli_epi32(load256(x + X_S * T), 16));

	_mm256_store_ps(o->s, s);
	if (form == I8_Z8)
		store256(o->begin[0], all);
	if (form == I8_Z16 || form == I8_Z16_MIN)
		store256(o->begin[0], _mm256_add_epi32(all, all));
	if (form_min(form))
		store256(o->min[0], load256(x + X_SSUM * T));
	if (form_halves(form)) {
		store256(o->begin[0], _mm256_slli_epi32(lo, 2));
		store256(o->begin[1], _mm256_slli_epi32(hi, 2));
	}
	if (form == I8_HALVES_MIN) {
		_mm256_store_ps(o->min[0], _mm256_mul_ps(_mm256_cvtepi32_ps(lo), s));
		_mm256_store_ps(o->min[1], _mm256_mul_ps(_mm256_cvtepi32_ps(hi), s));
	}
}

INLINE int form_begins(int form) { return form != I8_MIN; }
INLINE int form_adds(int form) { return form_min(form) || form == I8_HALVES_MIN; }

/* ---- few tokens: a panel x T ---- */

INLINE void direct_half(
	int form, const struct turn *o, int h, const __m256i *acc, __m256 d, __m256 m, __m256 *f, const int T)
{
	UNROLL
	for (int t = 0; t < T; t++) {
		f[t] = _mm256_fmadd_ps(
			_mm256_mul_ps(_mm256_cvtepi32_ps(acc[t]), _mm256_set1_ps(o->s[t])), d, f[t]);
		if (form_adds(form))
			f[t] = _mm256_fmadd_ps(_mm256_set1_ps(o->min[h][t]), m, f[t]);
	}
}

INLINE void direct_block(
	uint32_t type, const uint8_t *chunk, uint32_t b, const uint32_t *x, __m256 *f, const int T)
{
	const uint8_t *q = chunk + b * type_codes(type);
	const int form = type_form(type);
	__m256i acc[TILE_T];
	struct turn o;
	__m256 d, m;

	turn_make(form, x, T, &o);
	UNROLL
	for (int h = 0; h < 2; h++) {
		UNROLL
		for (int t = 0; t < T; t++)
			if (h == 0 || form_halves(form))
				acc[t] = form_begins(form) ? _mm256_set1_epi32(o.begin[h][t])
							   : _mm256_setzero_si256();
		UNROLL
		for (int v = 0; v < 4; v++) {
			const __m256i u = codes_u8(type, q, v, h);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = _mm256_dpbusd_epi32(acc[t], u, bcast(x + (4 * h + v) * T + t));
		}
		if (h == 0 && !form_halves(form))
			continue;
		scales_i8(type, chunk, b, h, &d, &m);
		direct_half(form, &o, form_halves(form) ? h : 0, acc, d, m, f, T);
	}
}

INLINE void direct_store(const __m256 *f, const float *scale, const struct store *c, const int T)
{
	UNROLL
	for (int t = 0; t < T; t++)
		store_cols(c->c + t * c->ldc, _mm256_mul_ps(f[t], _mm256_set1_ps(scale[t])), c->jn);
}

INLINE void direct_i8(uint32_t type, const uint8_t *panel, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const uint32_t blocks = type_blocks(type), share = (uint32_t)type_chunk(type) / blocks;
	__m256 f[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < nb; i += blocks, panel += type_chunk(type))
		for (uint32_t b = 0; b < blocks; b++, a += T * ACT_I8_BLOCK) {
			UNROLL
			for (uint32_t at = 0; at < share; at += 64)
				_mm_prefetch((const char *)panel + PREFETCH + b * share + at, _MM_HINT_T0);
			direct_block(type, panel, b, (const uint32_t *)a, f, T);
		}
	direct_store(f, scale, c, T);
}

INLINE void direct_i16(uint32_t type, const uint8_t *q, uint32_t nb, const uint8_t *a, const float *scale,
	const struct store *c, const int T)
{
	const size_t bytes = type == TNP_Q8_0 ? Q8_CHUNK : IQ4_CHUNK;
	__m256 f[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		f[t] = _mm256_setzero_ps();
	for (uint32_t b = 0; b < nb; b++, q += bytes, a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_T];

		UNROLL
		for (size_t at = 0; at < bytes; at += 64)
			_mm_prefetch((const char *)q + PREFETCH + at, _MM_HINT_T0);
		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u = int16_pairs(type, q, i);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = _mm256_dpwssd_epi32(acc[t], u, bcast(x + i * T + t));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			f[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[t]), scales_f16(q + bytes - 16), f[t]);
	}
	direct_store(f, scale, c, T);
}

/* ---- many tokens: two unpacked panels, one register, x T ---- */

INLINE void tile_i8(int form, const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	const int halves = 1 + form_halves(form), n = 8 / halves;
	__m512 sum[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		sum[t] = _mm512_load_ps(f + t * TILE_N);
	for (uint32_t b = 0; b < nb; b++, w += I8_SCR_BLOCK, a += T * ACT_I8_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		struct turn o;

		turn_make(form, x, T, &o);
		UNROLL
		for (int h = 0; h < halves; h++) {
			const __m512 d = _mm512_load_ps((const float *)(w + I8_SCR_D) + h * TILE_N);
			const __m512 m = _mm512_load_ps((const float *)(w + I8_SCR_M) + h * TILE_N);
			__m512i acc[TILE_T];

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = form_begins(form) ? _mm512_set1_epi32(o.begin[h][t])
							   : _mm512_setzero_si512();
			UNROLL
			for (int g = h * n; g < h * n + n; g++) {
				const __m512i u = _mm512_load_si512(w + g * 64);

				UNROLL
				for (int t = 0; t < T; t++)
					acc[t] = _mm512_dpbusd_epi32(
						acc[t], u, _mm512_set1_epi32((int)x[g * T + t]));
			}
			UNROLL
			for (int t = 0; t < T; t++) {
				const __m512 v =
					_mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), _mm512_set1_ps(o.s[t]));

				sum[t] = _mm512_fmadd_ps(v, d, sum[t]);
				if (form_adds(form))
					sum[t] = _mm512_fmadd_ps(_mm512_set1_ps(o.min[h][t]), m, sum[t]);
			}
		}
	}
	UNROLL
	for (int t = 0; t < T; t++)
		_mm512_store_ps(f + t * TILE_N, sum[t]);
}

INLINE void tile_i16(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	__m512 sum[TILE_T];

	UNROLL
	for (int t = 0; t < T; t++)
		sum[t] = _mm512_load_ps(f + t * TILE_N);
	for (uint32_t b = 0; b < nb; b++, w += I16_SCR_BLOCK, a += T * ACT_I16_BLOCK) {
		const __m512 d = _mm512_load_ps((const float *)(w + I16_SCR_D));
		const uint32_t *x = (const uint32_t *)a;
		__m512i acc[TILE_T];

		UNROLL
		for (int t = 0; t < T; t++)
			acc[t] = _mm512_setzero_si512();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m512i u = _mm512_load_si512(w + i * 64);

			UNROLL
			for (int t = 0; t < T; t++)
				acc[t] = _mm512_dpwssd_epi32(acc[t], u, _mm512_set1_epi32((int)x[i * T + t]));
		}
		UNROLL
		for (int t = 0; t < T; t++)
			sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[t]), d, sum[t]);
	}
	UNROLL
	for (int t = 0; t < T; t++)
		_mm512_store_ps(f + t * TILE_N, sum[t]);
}

/* ---- instances ---- */

#define DIRECT_FN(kind, type, T)                                                                             \
	static void direct_##type##_##T(const uint8_t *panel, uint32_t nb, const uint8_t *a,                 \
		const float *scale, const struct store *c)                                                   \
	{                                                                                                    \
		direct_##kind(TNP_##type, panel, nb, a, scale, c, T);                                        \
	}
#define DIRECT8_FN(type, T)  DIRECT_FN(i8, type, T)
#define DIRECT16_FN(type, T) DIRECT_FN(i16, type, T)
#define TILE8_FN(form, T)                                                                                    \
	static void tile_##form##_##T(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f)             \
	{                                                                                                    \
		tile_i8(form, w, nb, a, f, T);                                                               \
	}
#define TILE16_FN(name, T)                                                                                   \
	static void tile_##name##_##T(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f)             \
	{                                                                                                    \
		tile_i16(w, nb, a, f, T);                                                                    \
	}
#define I8_TYPE_FNS(type, form) WIDTHS(DIRECT8_FN, type)
#define I8_FORM_FNS(form)	WIDTHS(TILE8_FN, form)
#define I16_TYPE_FNS(type)	WIDTHS(DIRECT16_FN, type)
I8_TYPES(I8_TYPE_FNS)
I8_FORMS(I8_FORM_FNS)
I16_TYPES(I16_TYPE_FNS)
WIDTHS(TILE16_FN, int16)

#define DIRECT_NAME(type, T) direct_##type##_##T,
#define TILE_NAME(form, T)   tile_##form##_##T,
#define I8_ROW(type, form)                                                                                   \
	[TNP_##type] = { ACT_I8_BLOCK, I8_KC, I8_DIRECT_MAX, NULL, { NULL, WIDTHS(DIRECT_NAME, type) },      \
		{ NULL, WIDTHS(TILE_NAME, form) } },
#define I16_ROW(type)                                                                                        \
	[TNP_##type] = { ACT_I16_BLOCK, I16_KC, I16_DIRECT_MAX, NULL, { NULL, WIDTHS(DIRECT_NAME, type) },   \
		{ NULL, WIDTHS(TILE_NAME, int16) } },

/* Unpacking is the AVX2 variant's. */
static const struct int_kernel kernels[] = { I8_TYPES(I8_ROW) I16_TYPES(I16_ROW) };

static void vnni_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, void *scratch)
{
	struct int_kernel fn;

	if (w->act == ACT_F32) {
		avx2_run_with(NULL, w, act, m, n0, n1, c, ldc, scratch);
		return;
	}
	fn = kernels[w->type];
	fn.unpack = (w->act == ACT_I8 ? avx2_i8_kernel(w->type) : avx2_i16_kernel(w->type))->unpack;
	avx2_run_with(&fn, w, act, m, n0, n1, c, ldc, scratch);
}

const struct linear_ops linear_vnni = {
	.isa = "avx512vnni",
	.act_class = avx2_act_class,
	.weight_bytes = avx2_weight_bytes,
	.panel_rows = TILE_N,
	.weight_pack = avx2_weight_pack,
	.act_rows = TILE_T,
	.act_bytes = avx2_act_bytes,
	.act_pack = avx2_act_pack,
	.scratch_bytes = avx2_scratch_bytes,
	.run = vnni_run,
	.row_f32 = avx2_row_f32,
};
