/* SPDX-License-Identifier: Apache-2.0
 * The AVX2 variant's table, and the driver that lays a product out over its integer kernels: which stretch of
 * weights, which tokens, in which order. Integer sums are exact and every float addition is made by a kernel in the
 * order of k, so nothing decided here can change a bit of the result.
 */
#include "plugins/cpu/linear_avx2.h"

enum { L2_ACT = 256 << 10 }; /* bytes of activations that should stay in L2 */

struct job {
	const struct linear_weight *w;
	const struct int_kernel *fn;
	struct tiles tiles;
	const float *scale; /* [m]             */
	const uint8_t *a;   /* tiles           */
	uint32_t nb;	    /* blocks of a row */
	struct scratch *s;
};

static const uint8_t *tile_at(const struct job *j, uint32_t tile, uint32_t b)
{
	const size_t first = tiles_first(&j->tiles, tile);

	return j->a + (first * j->nb + (size_t)b * tiles_width(&j->tiles, tile)) * j->fn->act_block;
}

/* Few tokens: a panel stays in L1 while the tiles run over it. */
static void few_run(const struct job *j, uint32_t n0, uint32_t n1, float *c, size_t ldc)
{
	for (uint32_t n = n0; n < n1; n += PANEL) {
		const uint8_t *panel = panel_at(j->w, n / PANEL);

		for (uint32_t t = 0; t < j->tiles.n; t++) {
			const size_t first = tiles_first(&j->tiles, t);
			const struct store out = { c + first * ldc + n, ldc,
				n1 - n < PANEL ? n1 - n : PANEL };

			j->fn->direct[tiles_width(&j->tiles, t)](
				panel, j->nb, tile_at(j, t, 0), j->scale + first, &out);
		}
	}
}

/* Where sums will go: rows that may lie anywhere in the memory. */
static void rows_fetch(const struct store *c, uint32_t T)
{
	for (uint32_t t = 0; t < T; t++)
		_mm_prefetch((const char *)(c->c + t * c->ldc), _MM_HINT_T0);
}

/* The compiler must not see that this is a memset: of this size it becomes `rep stos`, 2 % of a product. */
static void part_zero(float *f, uint32_t T)
{
	__m256 zero = _mm256_setzero_ps();

	__asm__("" : "+x"(zero));
	for (uint32_t i = 0; i < T * TILE_R; i++)
		_mm256_store_ps(f + i * PANEL, zero);
}

/* Sums of T tokens, scaled, to c. */
static void part_store(const float *f, const float *scale, uint32_t T, const struct store *c)
{
	for (uint32_t t = 0; t < T; t++, f += TILE_N) {
		const __m256 s = _mm256_set1_ps(scale[t]);

		store_cols(c->c + t * c->ldc, _mm256_mul_ps(_mm256_load_ps(f), s), c->jn);
		if (c->jn > PANEL)
			store_cols(c->c + t * c->ldc + PANEL, _mm256_mul_ps(_mm256_load_ps(f + PANEL), s),
				c->jn - PANEL);
	}
}

/* Behind what a tile of nb blocks fetched, if more is needed. */
static void ahead_move(struct ahead *a, uint32_t nb, uint32_t need)
{
	const uint32_t n = a->lines * nb;

	for (uint32_t r = 0; r < TILE_R; r++)
		a->p[r] += (size_t)n * 64;
	a->done += n;
	if (a->done >= need)
		a->lines = 0;
}

/* Tiles [t0, t1) over the blocks [b0, b1) in the scratch, while `bytes` of each panel ahead are fetched: unpacking them
 * would wait for the memory else (a third of the time with 12 tokens). Partial sums wait in a small buffer, not in c, whose
 * rows may lie a power of two apart and evict each other. */
static void stretch_run(const struct job *j, uint32_t b0, uint32_t b1, uint32_t t0, uint32_t t1,
	struct ahead ahead, uint32_t bytes, const struct store *c)
{
	const size_t tok0 = tiles_first(&j->tiles, t0);
	const uint32_t steps = (t1 - t0) * (b1 - b0), lines = bytes / 64 + 1;

	ahead.lines = (lines + steps - 1) / steps;
	for (uint32_t t = t0; t < t1; t++) {
		const uint32_t T = tiles_width(&j->tiles, t);
		const size_t first = tiles_first(&j->tiles, t);
		const struct store out = { c->c + first * c->ldc, c->ldc, c->jn };
		float *f = j->s->part + (b1 - b0 < j->nb ? (first - tok0) * TILE_N : 0);

		if (b1 == j->nb)
			rows_fetch(&out, T);
		if (b0 == 0)
			part_zero(f, T);
		j->fn->tile[T](j->s->w, b1 - b0, tile_at(j, t, b0), f, &ahead);
		ahead_move(&ahead, b1 - b0, lines);
		if (b1 == j->nb)
			part_store(f, j->scale + first, T, &out);
	}
}

/* Two panels (one, doubled, at the end of an odd range) x tiles [t0, t1), k in even stretches of whole chunks. The
 * panels of row `next` come then. */
static void strip_run(
	const struct job *j, uint32_t n, uint32_t next, uint32_t t0, uint32_t t1, const struct store *c)
{
	const size_t chunk = avx2_chunk_bytes(j->w->type);
	const uint32_t unit = avx2_chunk_k(j->w->type) / QK, stretches = (j->nb + j->fn->kc - 1) / j->fn->kc;
	const uint32_t step = ((j->nb + stretches - 1) / stretches + unit - 1) / unit * unit;

	for (uint32_t b0 = 0, b1; b0 < j->nb; b0 = b1) {
		struct ahead ahead = { .lines = 0 };

		b1 = j->nb - b0 < step ? j->nb : b0 + step;
		for (uint32_t r = 0; r < TILE_R; r++) {
			const uint8_t *panel = panel_at(j->w, n / PANEL + (r * PANEL < c->jn ? r : 0));

			j->fn->unpack(panel, b0, b1, j->s->w + r * 32);
			ahead.p[r] =
				b1 < j->nb ? panel + b1 / unit * chunk : panel_at(j->w, next / PANEL + r);
		}
		stretch_run(j, b0, b1, t0, t1, ahead, (uint32_t)(step / unit * chunk), c);
	}
}

/* Many tokens: in blocks whose activations stay in L2, the panels of the range over each. */
static void many_run(const struct job *j, uint32_t n0, uint32_t n1, float *c, size_t ldc)
{
	const size_t fit = L2_ACT / ((size_t)j->nb * TILE_T * j->fn->act_block), most = PART_TOKENS / TILE_T;
	const uint32_t room = (uint32_t)(fit < 8 ? 8 : fit > most ? most : fit);
	const uint32_t blocks = (j->tiles.n + room - 1) / room, per = (j->tiles.n + blocks - 1) / blocks;

	for (uint32_t t0 = 0; t0 < j->tiles.n; t0 += per)
		for (uint32_t n = n0; n < n1; n += TILE_N) {
			const struct store out = { c + n, ldc, n1 - n < TILE_N ? n1 - n : TILE_N };

			const bool again = n1 - n <= TILE_N && j->tiles.n - t0 > per;

			strip_run(j, n, again ? n0 : n + TILE_N, t0,
				j->tiles.n - t0 < per ? j->tiles.n : t0 + per, &out);
		}
}

/* ---- the table ---- */

uint32_t avx2_act_class(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const uint32_t block = dequant_block(type);

	if (!block || !n || n > N_MAX || !k || k > K_MAX || k % block || precision > TNP_EXACT)
		return ACT_N_CLASSES;
	if (block == 1 || precision == TNP_EXACT)
		return ACT_F32;
	return type == TNP_Q8_0 || type == TNP_IQ4_NL ? ACT_I16 : ACT_I8;
}

uint64_t avx2_weight_bytes(uint32_t type, uint32_t precision, uint32_t n, uint32_t k)
{
	const uint64_t pairs = ((uint64_t)n + TILE_N - 1) / TILE_N,
		       panels = ((uint64_t)n + PANEL - 1) / PANEL;

	(void)precision;
	if (!avx2_chunk_k(type))
		return 0;
	return (is_float(type) ? 2 * pairs : panels) * (k / avx2_chunk_k(type)) * avx2_chunk_bytes(type);
}

uint64_t avx2_act_bytes(uint32_t act, uint32_t m, uint32_t k)
{
	if (act != ACT_I8 && act != ACT_I16)
		return 0;
	return act_scales_bytes(m) + (uint64_t)m * (k / QK) * (act == ACT_I8 ? ACT_I8_BLOCK : ACT_I16_BLOCK) +
		ACT_SLACK;
}

uint64_t avx2_scratch_bytes(void) { return sizeof(struct scratch); }

void avx2_run_with(const struct int_kernel *fn, const struct linear_weight *w, const void *act, uint32_t m,
	uint32_t n0, uint32_t n1, float *c, size_t ldc, void *scratch)
{
	struct job j = {
		.w = w, .fn = fn, .tiles = tiles_of(m, WIDE_T), .scale = act, .nb = w->k / QK, .s = scratch
	};

	if (is_float(w->type)) {
		avx2_float_run(w, act, m, n0, n1, c, ldc);
		return;
	}
	if (w->act == ACT_F32) {
		avx2_f32_run(w, act, m, n0, n1, c, ldc, scratch);
		return;
	}
	j.a = (const uint8_t *)act + act_scales_bytes(m);
	if (m <= fn->direct_max)
		few_run(&j, n0, n1, c, ldc);
	else
		many_run(&j, n0, n1, c, ldc);
}

static void avx2_run(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, void *scratch)
{
	avx2_run_with(w->act == ACT_I8 ? avx2_i8_kernel(w->type) : avx2_i16_kernel(w->type), w, act, m, n0,
		n1, c, ldc, scratch);
}

void avx2_row_f32(uint32_t type, const void *src, uint32_t k, uint64_t row, float *out)
{
	const size_t bytes = (size_t)(k / dequant_block(type)) * dequant_block_bytes(type);

	dequant_f32(type, (const uint8_t *)src + row * bytes, k, out);
}

/* Rows may be prepared in any cut, whole tiles fastest. Ranges of columns are cut at pairs of panels: at an odd one, a
 * product of many tokens would compute a panel twice. */
const struct linear_ops linear_avx2 = {
	.isa = "avx2",
	.act_class = avx2_act_class,
	.weight_bytes = avx2_weight_bytes,
	.panel_rows = TILE_N,
	.weight_pack = avx2_weight_pack,
	.act_rows = 1,
	.act_bytes = avx2_act_bytes,
	.act_pack = avx2_act_pack,
	.scratch_bytes = avx2_scratch_bytes,
	.run = avx2_run,
	.row_f32 = avx2_row_f32,
};
