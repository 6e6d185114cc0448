/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels, every variant this machine has: values against sums in double over what the pages hold, equal
 * bits from pages and from a widened tile, for any number of rows and for the variants of one machine, rows that see
 * nothing left alone. Buffers have exactly the sizes asked for, so a sanitizer build sees any step beyond.
 */
#include "tests/unit/unit.h"
#include "plugins/cpu/attn.h"
#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { TILES = 3, KEYS = TILES * ATTN_TILE, N = ATTN_MANY - 3 }; /* N: query rows */

static const uint32_t types[] = { TNP_F32, TNP_F16, TNP_Q8_0, TNP_Q4_0 };
static const uint32_t dims[] = { 8, 20, 32, 64, 80, 96, 128, 256 };

#if defined(__x86_64__)
static bool avx512_runs(void)
{
#ifdef ATTN_EMULATED
	return true;
#else
	return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
}
#endif

static const struct attn_ops *variant(size_t i)
{
#if defined(__x86_64__)
	if (i == 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &attn_avx2;
	if (i == 2 && avx512_runs())
		return &attn_avx512;
#endif
	return i == 0 ? &attn_base : NULL;
}

static float rng_f32(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (float)(int32_t)(*s >> 32) * 0x1p-31f;
}

static void *take(size_t bytes)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, 64, bytes), 0);
	memset(p, 0, bytes);
	return p;
}

/* ---- some pages and queries ---- */

struct world {
	struct attn_shape s;
	uint64_t page_bytes;
	uint8_t *pages;
	float *q;	      /* [N][pad] */
	int32_t lo[N], hi[N]; /* keys that a row sees, of all */
};

static void world_make(
	struct world *w, const struct attn_ops *ops, uint32_t type, uint32_t dim, uint32_t page, float cap)
{
	/* a few of each kind; then as in a prompt, each row sees one more; windows */
	static const int32_t lo[N] = { 0, 0, 5, 40, 0, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 70, 71, 72, 73, 30 },
			     hi[N] = { KEYS, 70, 90, 41, 32, 64, 4, 5, 6, 7, 8, 9, 76, 77, KEYS, 78, 79, 80,
				     81, 34, 1 };
	const uint32_t pad = attn_pad(dim);
	float *kv = take(2 * (size_t)pad * sizeof *kv);
	uint64_t seed = 88172645463325252u + dim;

	*w = (struct world){ .s = { .type = type, .dim = dim, .pad = pad, .page = page, .cap = cap },
		.page_bytes = attn_head_bytes(type, dim, page),
		.q = take(N * (size_t)pad * sizeof *w->q) };
	memcpy(w->lo, lo, sizeof lo);
	memcpy(w->hi, hi, sizeof hi);
	w->pages = take(w->page_bytes * (KEYS / page));
	for (uint32_t t = 0; t < KEYS; t++) {
		for (uint32_t d = 0; d < dim; d++) {
			kv[d] = 3 * rng_f32(&seed);
			kv[pad + d] = rng_f32(&seed);
		}
		ops->store(&w->s, w->pages + w->page_bytes * (t / page), t % page, kv, kv + pad);
	}
	for (uint32_t i = 0; i < N * pad; i++)
		w->q[i] = i % pad < dim ? rng_f32(&seed) * (cap > 0 ? 0.2f : 1.0f) : 0;
	free(kv);
}

static void world_free(struct world *w)
{
	free(w->pages);
	free(w->q);
}

static void halves(const struct world *w, uint32_t tile, struct attn_half half[2])
{
	for (uint32_t h = 0; h < 2; h++) {
		const uint32_t key = tile * ATTN_TILE + h * ATTN_HALF;

		half[h] = (struct attn_half){ w->pages + w->page_bytes * (key / w->s.page), key % w->s.page };
	}
}

static int32_t clip(int32_t at, uint32_t tile)
{
	at -= (int32_t)(tile * ATTN_TILE);
	return at < 0 ? 0 : at > ATTN_TILE ? ATTN_TILE : at;
}

static float *states_make(const struct world *w)
{
	float *st = take(N * attn_state_floats(w->s.pad) * sizeof *st);

	for (uint32_t r = 0; r < N; r++)
		attn_state_init(st + r * attn_state_floats(w->s.pad), w->s.pad);
	return st;
}

/* All tiles for all rows, `rows` at a time. */
static float *run(const struct world *w, const struct attn_ops *ops, uint32_t rows, bool widen)
{
	const size_t stride = attn_state_floats(w->s.pad);
	float *st = states_make(w), *wide = take(attn_wide_floats(w->s.pad) * sizeof *wide);

	for (uint32_t t = 0; t < TILES; t++) {
		struct attn_half half[4];
		int32_t lo[N], hi[N];

		halves(w, t, half);
		halves(w, (t + 1) % TILES, half + 2);
		ops->widen(&w->s, half, wide);
		for (uint32_t r = 0; r < N; r++) {
			lo[r] = clip(w->lo[r], t);
			hi[r] = clip(w->hi[r], t);
		}
		for (uint32_t r = 0, n; r < N; r += n) {
			const float *q = w->q + (size_t)r * w->s.pad;

			n = N - r < rows ? N - r : rows;
			if (widen)
				ops->tile_wide(&w->s, wide, n, q, lo + r, hi + r, st + r * stride, stride);
			else
				ops->tile_page(&w->s, half, n, q, lo + r, hi + r, st + r * stride, stride);
		}
	}
	free(wide);
	return st;
}

/* ---- values ---- */

/* What row r should give, from the values that the plain variant reads in the pages. */
static void want_row(const struct world *w, uint32_t r, double *out)
{
	const uint32_t pad = w->s.pad;
	float *wide = take(attn_wide_floats(pad) * sizeof *wide);
	double sum = 0;

	memset(out, 0, w->s.dim * sizeof *out);
	for (int32_t key = w->lo[r]; key < w->hi[r]; key++) {
		struct attn_half half[2];
		double score = 0, share;

		if (key == w->lo[r] || key % ATTN_TILE == 0) {
			halves(w, (uint32_t)key / ATTN_TILE, half);
			attn_base.widen(&w->s, half, wide);
		}
		for (uint32_t d = 0; d < w->s.dim; d++)
			score += (double)w->q[r * pad + d] *
				(double)wide[d * ATTN_TILE + (uint32_t)key % ATTN_TILE];
		share = exp2(w->s.cap > 0 ? (double)w->s.cap * tanh(score) : score);
		sum += share;
		for (uint32_t d = 0; d < w->s.dim; d++)
			out[d] += share * (double)wide[ATTN_TILE * pad + (uint32_t)key % ATTN_TILE * pad + d];
	}
	for (uint32_t d = 0; d < w->s.dim; d++)
		out[d] /= sum;
	free(wide);
}

static void check_values(const struct world *w, const struct attn_ops *ops, const float *st)
{
	double *want = take(w->s.dim * sizeof *want);
	float *got = take(w->s.dim * sizeof *got);

	for (uint32_t r = 0; r < N; r++) {
		want_row(w, r, want);
		ops->finish(w->s.dim, st + r * attn_state_floats(w->s.pad), got);
		for (uint32_t d = 0; d < w->s.dim; d++)
			if (!(fabs((double)got[d] - want[d]) < 2e-5))
				fail_msg("type %u dim %u row %u [%u]: %.9g, want %.9g", w->s.type, w->s.dim,
					r, d, (double)got[d], want[d]);
	}
	free(want);
	free(got);
}

static void for_each_world(void (*fn)(const struct world *, const struct attn_ops *))
{
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++)
			for (size_t d = 0; d < COUNT(dims); d++)
				for (uint32_t page = 16; page <= 96; page *= 6)
					for (int cap = 0; cap < 2; cap++) {
						struct world w;

						world_make(&w, variant(v), types[t], dims[d], page,
							cap ? 8.0f : 0.0f);
						fn(&w, variant(v));
						world_free(&w);
					}
}

static void values_world(const struct world *w, const struct attn_ops *ops)
{
	float *st = run(w, ops, N, true);

	check_values(w, ops, st);
	free(st);
}

static void tiles_are_right(void **st)
{
	(void)st;
	for_each_world(values_world);
}

/* ---- equal bits ---- */

static void check_bits(const struct world *w, const float *a, const float *b, const char *what)
{
	if (memcmp(a, b, N * attn_state_floats(w->s.pad) * sizeof *a))
		fail_msg("type %u dim %u page %u cap %g: %s differ", w->s.type, w->s.dim, w->s.page,
			(double)w->s.cap, what);
}

static void bits_world(const struct world *w, const struct attn_ops *ops)
{
	float *all = run(w, ops, N, true);

	for (uint32_t rows = 1; rows < N; rows += rows <= ATTN_ROWS ? 1 : 6)
		for (int wide = rows > ATTN_ROWS; wide < 2; wide++) {
			float *st;

			if (!wide && !ops->tile_page)
				continue;
			st = run(w, ops, rows, wide);
			check_bits(w, all, st, wide ? "numbers of rows" : "pages and widened tiles");
			free(st);
		}
	free(all);
}

static void bits_do_not_depend_on_rows_or_place(void **st)
{
	(void)st;
	for_each_world(bits_world);
}

/* What the variants beyond the first store, and make of it. */
static void variants_world(const struct world *w, const struct attn_ops *ops)
{
	struct world other;
	float *a, *b;

	if (ops != variant(1) || !variant(2))
		return;
	world_make(&other, variant(2), w->s.type, w->s.dim, w->s.page, w->s.cap);
	assert_memory_equal(w->pages, other.pages, w->page_bytes * (KEYS / w->s.page));
	a = run(w, variant(1), ATTN_ROWS, false);
	b = run(&other, variant(2), ATTN_ROWS, false);
	check_bits(w, a, b, "instruction sets");
	free(a);
	free(b);
	world_free(&other);
}

static void bits_do_not_depend_on_the_instruction_set(void **st)
{
	(void)st;
	for_each_world(variants_world);
}

/* ---- merging, and rows that see nothing ---- */

/* Tiles into states of their own, merged in order, are near one state that saw them all. */
static void merge_world(const struct world *w, const struct attn_ops *ops)
{
	const size_t stride = attn_state_floats(w->s.pad);
	struct world part = *w;
	float *first, *rest;

	for (uint32_t r = 0; r < N; r++)
		part.hi[r] = w->lo[r] + (w->hi[r] - w->lo[r] + 1) / 2;
	first = run(&part, ops, N, true);
	for (uint32_t r = 0; r < N; r++) {
		part.lo[r] = part.hi[r];
		part.hi[r] = w->hi[r];
	}
	rest = run(&part, ops, N, true);
	for (uint32_t r = 0; r < N; r++)
		if (part.lo[r] < part.hi[r])
			ops->merge(w->s.pad, rest + r * stride, first + r * stride);
	check_values(w, ops, first);
	free(first);
	free(rest);
}

static void states_merge(void **st)
{
	(void)st;
	for_each_world(merge_world);
}

static void blind_world(const struct world *w, const struct attn_ops *ops)
{
	const size_t stride = attn_state_floats(w->s.pad);
	struct world none = *w;
	float *fresh = states_make(w), *st, *all = run(w, ops, N, true);

	for (uint32_t r = 0; r < N; r += 2)
		none.hi[r] = none.lo[r];
	st = run(&none, ops, N, true);
	for (uint32_t r = 0; r < N; r++)
		assert_memory_equal(st + r * stride, (r % 2 ? all : fresh) + r * stride, stride * sizeof *st);
	free(fresh);
	free(all);
	free(st);
}

static void rows_that_see_nothing_are_left_alone(void **st)
{
	(void)st;
	for_each_world(blind_world);
}

/* Scores far apart: shares underflow to nothing, nothing overflows. */
static void far_scores_are_harmless(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++) {
			struct world w;
			float *state;

			world_make(&w, variant(v), types[t], 64, 32, 0);
			for (uint32_t i = 0; i < N * w.s.pad; i++)
				w.q[i] *= 1e4f;
			state = run(&w, variant(v), N, true);
			for (uint32_t i = 0; i < N * attn_state_floats(w.s.pad); i++)
				assert_true(isfinite(state[i]));
			free(state);
			world_free(&w);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tiles_are_right),
		cmocka_unit_test(bits_do_not_depend_on_rows_or_place),
		cmocka_unit_test(bits_do_not_depend_on_the_instruction_set),
		cmocka_unit_test(states_merge),
		cmocka_unit_test(rows_that_see_nothing_are_left_alone),
		cmocka_unit_test(far_scores_are_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
