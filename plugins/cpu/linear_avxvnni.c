/* SPDX-License-Identifier: Apache-2.0
 * AVX-VNNI variant, for processors that have vpdpbusd in its VEX form only (no AVX-512): panels, activations, scratch
 * and drivers of the AVX2 variant (linear_avx2.h), kernels of its own with 16 registers of 256 bits. Gives the bits
 * of the AVX2 variant. Never run on hardware so far, only through emulated intrinsics (tests/emulated): nothing is
 * known about its speed.
 */
#define DPBUSD _mm256_dpbusd_avx_epi32
#define DPWSSD _mm256_dpwssd_avx_epi32
#include "plugins/cpu/linear_vnni_block.h"

enum { I8_DIRECT_MAX = 8, I16_DIRECT_MAX = 8 };

/* ---- many tokens: two unpacked panels x T; 12 sums, 2 weight vectors and 1 broadcast fill the registers, so the
 * running float sums f[T][R][8] stay in memory ---- */

INLINE void tile_i8(int form, const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	const int halves = 1 + form_halves(form), n = 8 / halves;

	for (uint32_t b = 0; b < nb; b++, w += I8_SCR_BLOCK, a += T * ACT_I8_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		struct turn o;

		turn_make(form, x, T, &o);
		UNROLL
		for (int h = 0; h < halves; h++) {
			__m256i acc[TILE_R][TILE_T];

			UNROLL
			for (int t = 0; t < T; t++)
				acc[0][t] = acc[1][t] = turn_begin(form, &o, h, t);
			UNROLL
			for (int g = h * n; g < h * n + n; g++) {
				const __m256i u0 = load256(w + g * 64), u1 = load256(w + g * 64 + 32);

				UNROLL
				for (int t = 0; t < T; t++) {
					const __m256i q = bcast(x + g * T + t);

					acc[0][t] = DPBUSD(acc[0][t], u0, q);
					acc[1][t] = DPBUSD(acc[1][t], u1, q);
				}
			}
			UNROLL
			for (int r = 0; r < TILE_R; r++) {
				const float *d = (const float *)(w + I8_SCR_D) + h * TILE_N + r * PANEL;
				const float *m = (const float *)(w + I8_SCR_M) + h * TILE_N + r * PANEL;

				UNROLL
				for (int t = 0; t < T; t++) {
					float *p = f + (t * TILE_R + r) * PANEL;

					_mm256_store_ps(p,
						turn_add(form, &o, h, t, acc[r][t], _mm256_load_ps(d),
							_mm256_load_ps(m), _mm256_load_ps(p)));
				}
			}
		}
	}
}

INLINE void tile_i16(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const int T)
{
	for (uint32_t b = 0; b < nb; b++, w += I16_SCR_BLOCK, a += T * ACT_I16_BLOCK) {
		const uint32_t *x = (const uint32_t *)a;
		__m256i acc[TILE_R][TILE_T];

		UNROLL
		for (int t = 0; t < T; t++)
			acc[0][t] = acc[1][t] = _mm256_setzero_si256();
		UNROLL
		for (int i = 0; i < 16; i++) {
			const __m256i u0 = load256(w + i * 64), u1 = load256(w + i * 64 + 32);

			UNROLL
			for (int t = 0; t < T; t++) {
				const __m256i q = bcast(x + i * T + t);

				acc[0][t] = DPWSSD(acc[0][t], u0, q);
				acc[1][t] = DPWSSD(acc[1][t], u1, q);
			}
		}
		UNROLL
		for (int t = 0; t < T; t++)
			UNROLL
		for (int r = 0; r < TILE_R; r++) {
			float *p = f + (t * TILE_R + r) * PANEL;
			const __m256 d = _mm256_load_ps((const float *)(w + I16_SCR_D) + r * PANEL);

			_mm256_store_ps(
				p, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][t]), d, _mm256_load_ps(p)));
		}
	}
}

/* ---- instances ---- */

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

#define TILE_NAME(form, T) tile_##form##_##T,
#define I8_ROW(type, form)                                                                                   \
	[TNP_##type] = { ACT_I8_BLOCK, I8_KC, I8_DIRECT_MAX, NULL, { NULL, WIDTHS(DIRECT_NAME, type) },      \
		{ NULL, WIDTHS(TILE_NAME, form) } },
#define I16_ROW(type)                                                                                        \
	[TNP_##type] = { ACT_I16_BLOCK, I16_KC, I16_DIRECT_MAX, NULL, { NULL, WIDTHS(DIRECT_NAME, type) },   \
		{ NULL, WIDTHS(TILE_NAME, int16) } },

/* Unpacking is the AVX2 variant's. */
static const struct int_kernel kernels[] = { I8_TYPES(I8_ROW) I16_TYPES(I16_ROW) };

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
