/* SPDX-License-Identifier: Apache-2.0
 * AVX-VNNI variant, for processors that have vpdpbusd in its VEX form only (no AVX-512): panels, activations, scratch,
 * loops and drivers of the AVX2 variant (linear_avx2.h), with steps of its own that add four products of bytes or two
 * of int16 into int32. Never run on hardware so far, only through emulated intrinsics (tests/emulated): nothing is
 * known about its speed.
 *
 * Bits are those of the AVX2 variant. There a block's exact int32 sum x block scale is rounded to float once; here
 * the exact int32 sum, below 2^17, times the scale as a float is rounded once.
 */
#include "plugins/cpu/linear_avx2_codes.h"

enum { DIRECT_MAX = 8 };

/* ---- steps for int8 ---- */

struct turn { /* [half][token] */
	_Alignas(32) float s[PANEL];
	_Alignas(32) int32_t begin[2][PANEL]; /* of the sums                              */
	_Alignas(32) float min[2][PANEL];     /* what the minima are multiplied with */
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

INLINE __m256i turn_begin(int form, const struct turn *o, int h, int t)
{
	return form == I8_MIN ? _mm256_setzero_si256() : _mm256_set1_epi32(o->begin[h][t]);
}

struct cell {
	__m256 s, min;
};

INLINE int form_adds(int form) { return form_min(form) || form == I8_HALVES_MIN; }

INLINE struct cell cell_make(int form, const struct turn *o, int h, int t)
{
	return (struct cell){ _mm256_set1_ps(o->s[t]),
		form_adds(form) ? _mm256_set1_ps(o->min[h][t]) : _mm256_setzero_ps() };
}

INLINE __m256 cell_add(int form, const struct cell *c, __m256i acc, __m256 d, __m256 m, __m256 f)
{
	f = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(acc), c->s), d, f);
	return form_adds(form) ? _mm256_fmadd_ps(c->min, m, f) : f;
}

#define mac_i8	     _mm256_dpbusd_avx_epi32
#define mul_i8(u, q) mac_i8(_mm256_setzero_si256(), (u), (q))
#define MAC_2X1(mac, a0, a1, u0, u1, p)                                                                      \
	do {                                                                                                 \
		const __m256i q_ = bcast(p);                                                                 \
		(a0) = mac((a0), (u0), q_);                                                                  \
		(a1) = mac((a1), (u1), q_);                                                                  \
	} while (0)
#define MAC_I8_2X1(a0, a1, u0, u1, p) MAC_2X1(mac_i8, a0, a1, u0, u1, p)
#define MUL_I8_2X1		      MAC_I8_2X1
#include "plugins/cpu/linear_avx2_i8.h"

/* ---- steps for int16 ---- */

#define mac_i16			       _mm256_dpwssd_avx_epi32
#define MAC_I16_2X1(a0, a1, u0, u1, p) MAC_2X1(mac_i16, a0, a1, u0, u1, p)
#include "plugins/cpu/linear_avx2_i16.h"

/* ---- the table; unpacking is the AVX2 variant's ---- */

#define ROW8(type, form) I8_ROW(type, form, DIRECT_MAX, NULL)
#define ROW16(type)	 I16_ROW(type, DIRECT_MAX, NULL)
static const struct int_kernel kernels[] = { I8_TYPES(ROW8) I16_TYPES(ROW16) };

static void avxvnni_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
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

const struct linear_ops linear_avxvnni = {
	.isa = "avxvnni",
	.act_class = avx2_act_class,
	.weight_bytes = avx2_weight_bytes,
	.panel_rows = TILE_N,
	.weight_pack = avx2_weight_pack,
	.act_rows = TILE_T,
	.act_bytes = avx2_act_bytes,
	.act_pack = avx2_act_pack,
	.scratch_bytes = avx2_scratch_bytes,
	.run = avxvnni_run,
	.row_f32 = avx2_row_f32,
};
