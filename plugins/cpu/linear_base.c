/* SPDX-License-Identifier: Apache-2.0
 * Matrix products in portable C: the variant every machine can run, and the meaning the others are tested
 * against. Weights are read where the file has them; 8 rows x 256 columns at a time become f32 in the scratch,
 * laid out [k][8], and 4 tokens run over them. One product and one addition a step, k ascending.
 */
#include "plugins/cpu/dequant.h"
#include "plugins/cpu/linear.h"
#include "plugins/cpu/unroll.h"
#include <string.h>

enum { PANEL = 8, STRETCH = 256, TOKENS = 4 };
#define K_MAX (1u << 28)

typedef float f32x4 __attribute__((vector_size(16)));

struct scratch {
	f32x4 w[STRETCH][2]; /* [k][8 rows] */
	float row[PANEL][STRETCH];
};

/* One cut of the product: columns [k0, k0 + kn), output rows [j0, j0 + jn) of c. */
struct cut {
	const float *x;
	size_t ldx;
	float *c;
	size_t ldc;
	uint32_t k0, kn, jn;
};

static uint32_t base_act_class(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const uint32_t block = dequant_block(type);

	if (!block || !n || !k || k % block || k > K_MAX || precision > TNP_EXACT)
		return ACT_N_CLASSES;
	return ACT_F32;
}

static uint64_t base_weight_bytes(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	(void)type, (void)precision, (void)n, (void)k;
	return 0;
}

static void base_weight_pack(
	const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst)
{
	(void)w, (void)src, (void)n0, (void)n1, (void)dst;
}

static uint64_t base_act_bytes(uint32_t act, uint32_t m, uint32_t k)
{
	(void)act, (void)m, (void)k;
	return 0;
}

static void base_act_pack(
	uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1, void *dst)
{
	(void)act, (void)x, (void)ldx, (void)m, (void)k, (void)m0, (void)m1, (void)dst;
}

static uint64_t base_scratch_bytes(void) { return sizeof(struct scratch); }

static size_t row_bytes(uint32_t type, uint32_t k)
{
	return (size_t)(k / dequant_block(type)) * dequant_block_bytes(type);
}

static void base_row_f32(uint32_t type, const void *src, uint32_t k, uint64_t row, float *out)
{
	dequant_f32(type, (const uint8_t *)src + row * row_bytes(type, k), k, out);
}

/* Rows [j0, j0 + jn) x columns of the cut into s->w; missing rows of the panel hold what was there before. */
static void stretch_load(const struct linear_weight *w, uint32_t j0, const struct cut *u, struct scratch *s)
{
	const size_t row = row_bytes(w->type, w->k), first = row_bytes(w->type, u->k0);
	const float(*r)[STRETCH] = (const float(*)[STRETCH])s->row;

	for (uint32_t i = 0; i < u->jn; i++)
		dequant_f32(
			w->type, (const uint8_t *)w->data + (size_t)(j0 + i) * row + first, u->kn, s->row[i]);
	for (uint32_t k = 0; k < u->kn; k++) {
		s->w[k][0] = (f32x4){ r[0][k], r[1][k], r[2][k], r[3][k] };
		s->w[k][1] = (f32x4){ r[4][k], r[5][k], r[6][k], r[7][k] };
	}
}

/* T tokens from `i` on; sums so far are in c. */
INLINE void tokens_run(const struct cut *u, const f32x4 (*w)[2], uint32_t i, const uint32_t T)
{
	const float *x = u->x + (size_t)i * u->ldx + u->k0;
	float *c = u->c + (size_t)i * u->ldc, part[TOKENS][PANEL] = { 0 };
	f32x4 sum[TOKENS][2];

	for (uint32_t t = 0; u->k0 && t < T; t++)
		memcpy(part[t], c + t * u->ldc, u->jn * sizeof *c);
	memcpy(sum, part, sizeof sum);
	for (uint32_t k = 0; k < u->kn; k++) {
		UNROLL
		for (uint32_t t = 0; t < T; t++) {
			const float v = x[t * u->ldx + k];
			const f32x4 vv = { v, v, v, v };

			sum[t][0] += vv * w[k][0];
			sum[t][1] += vv * w[k][1];
		}
	}
	memcpy(part, sum, sizeof part);
	for (uint32_t t = 0; t < T; t++)
		memcpy(c + t * u->ldc, part[t], u->jn * sizeof *c);
}

static void base_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, void *scratch)
{
	struct scratch *s = scratch;
	struct cut u = { .x = act, .ldx = w->k, .ldc = ldc };

	for (uint32_t j = n0; j < n1; j += PANEL) {
		u.c = c + j;
		u.jn = n1 - j < PANEL ? n1 - j : PANEL;
		for (u.k0 = 0; u.k0 < w->k; u.k0 += STRETCH) {
			uint32_t i = 0;

			u.kn = w->k - u.k0 < STRETCH ? w->k - u.k0 : STRETCH;
			stretch_load(w, j, &u, s);
			for (; m - i >= TOKENS; i += TOKENS)
				tokens_run(&u, s->w, i, TOKENS);
			for (; i < m; i++)
				tokens_run(&u, s->w, i, 1);
		}
	}
}

const struct linear_ops linear_base = {
	.isa = "baseline",
	.act_class = base_act_class,
	.weight_bytes = base_weight_bytes,
	.panel_rows = PANEL,
	.weight_pack = base_weight_pack,
	.act_rows = 1,
	.act_bytes = base_act_bytes,
	.act_pack = base_act_pack,
	.scratch_bytes = base_scratch_bytes,
	.run = base_run,
	.row_f32 = base_row_f32,
};
