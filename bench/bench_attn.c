/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels of the cpu backend, for each type of pages: as decoding reads them (few rows, straight from the
 * pages, in cache and from memory: nanoseconds a key of one KV head, and the rate of its bytes) and as a prompt does
 * (many rows over a widened tile: arithmetic, and its share of what register-only multiply-adds reach in the same run).
 * Each thread has pages of its own. The best of several rounds. No checks: those are in the unit tests.
 *
 *   bench_attn [-t THREADS] [-i avx2|avx512]
 */
#include "tools/limits.h"
#include "plugins/cpu/attn.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, PAGE = 32, IN_CACHE = 2048, IN_MEMORY = 65536 };

static const struct {
	const char *name;
	uint32_t type;
} types[] = { { "f32", TNP_F32 }, { "f16", TNP_F16 }, { "q8_0", TNP_Q8_0 }, { "q4_0", TNP_Q4_0 } };

static void noise(float *x, size_t n, uint32_t *seed)
{
	for (size_t i = 0; i < n; i++) {
		*seed = *seed * 1664525u + 1013904223u;
		x[i] = (float)(int32_t)*seed * 0x1p-31f;
	}
}

static void *take(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

	if (!p)
		exit(1);
	memset(p, 0, bytes);
	return p;
}

struct work {
	const struct attn_ops *ops;
	struct attn_shape s;
	uint32_t n_rows, n_pages;
	bool widen;
	uint64_t page_bytes;
	uint8_t *pages;
	float *q, *state, *tile;
};

static void work_fill(struct work *w)
{
	const size_t pad = w->s.pad;
	float *kv = take(2 * pad * sizeof *kv);
	uint32_t seed = 1;

	w->page_bytes = attn_head_bytes(w->s.type, w->s.dim, PAGE);
	w->pages = take(w->page_bytes * w->n_pages);
	w->q = take(w->n_rows * pad * sizeof *w->q);
	w->state = take(w->n_rows * attn_state_floats(w->s.pad) * sizeof *w->state);
	w->tile = take(attn_wide_floats(w->s.pad) * sizeof *w->tile);
	noise(w->q, w->n_rows * pad, &seed);
	for (uint32_t t = 0; t < w->n_pages * PAGE; t++) {
		noise(kv, 2 * pad, &seed);
		w->ops->store(&w->s, w->pages + w->page_bytes * (t / PAGE), t % PAGE, kv, kv + pad);
	}
	free(kv);
}

static void work_free(struct work *w)
{
	free(w->pages);
	free(w->q);
	free(w->state);
	free(w->tile);
}

static void tile_run(const struct work *w, uint32_t page)
{
	const uint32_t most = w->widen ? ATTN_MANY : ATTN_ROWS;
	int32_t lo[ATTN_MANY] = { 0 }, hi[ATTN_MANY];
	const uint8_t *here = w->pages + w->page_bytes * page,
		      *next = w->pages + w->page_bytes * ((page + 1) % w->n_pages);
	const struct attn_half half[4] = { { here, 0 }, { here, ATTN_HALF }, { next, 0 },
		{ next, ATTN_HALF } };
	const size_t stride = attn_state_floats(w->s.pad);

	for (uint32_t r = 0; r < most; r++)
		hi[r] = ATTN_TILE;
	if (w->widen)
		w->ops->widen(&w->s, half, w->tile);
	for (uint32_t r = 0, n; r < w->n_rows; r += n) {
		const float *q = w->q + (size_t)r * w->s.pad;
		float *st = w->state + r * stride;

		n = w->n_rows - r < most ? w->n_rows - r : most;
		if (w->widen)
			w->ops->tile_wide(&w->s, w->tile, n, q, lo, hi, st, stride);
		else
			w->ops->tile_page(&w->s, half, n, q, lo, hi, st, stride);
	}
}

static void work_run(uint32_t thread, uint32_t n_threads, void *arg)
{
	struct work *w = (struct work *)arg + thread;

	(void)n_threads;
	for (uint32_t r = 0; r < w->n_rows; r++)
		attn_state_init(w->state + r * attn_state_floats(w->s.pad), w->s.pad);
	for (uint32_t p = 0; p < w->n_pages; p++)
		tile_run(w, p);
}

/* Nanoseconds a key, on every thread at once. */
static double measure(const struct work *shape, uint32_t threads)
{
	struct work w[LIMIT_THREADS];
	double best = 1e30;

	for (uint32_t i = 0; i < threads; i++) {
		w[i] = *shape;
		work_fill(&w[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		const double s = limit_time(threads, work_run, w);

		best = s < best ? s : best;
	}
	for (uint32_t i = 0; i < threads; i++)
		work_free(&w[i]);
	return best * 1e9 / (shape->n_pages * PAGE);
}

static void line(const struct work *shape, uint32_t threads, double limit)
{
	struct work w = *shape;

	(void)printf("heads of %3u, %3u rows, %5u keys, %-7s:", w.s.dim, w.n_rows, w.n_pages * PAGE,
		w.widen ? "widened" : "pages");
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		double ns, gops, gb;

		w.s.type = types[i].type;
		ns = measure(&w, threads);
		gops = 4.0 * w.s.dim * w.n_rows * threads / ns;
		gb = (double)attn_head_bytes(w.s.type, w.s.dim, PAGE) / PAGE * threads / ns;
		if (w.widen)
			(void)printf("  %s %6.1f GOP/s (%.2f of limit)", types[i].name, gops, gops / limit);
		else
			(void)printf("  %s %6.2f ns/key (%5.1f GB/s)", types[i].name, ns, gb);
	}
	(void)printf("\n");
}

static const struct attn_ops *isa_find(const char *name)
{
	if (!strcmp(name, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &attn_avx2;
	if (!strcmp(name, "avx512") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl"))
		return &attn_avx512;
	return NULL;
}

int main(int argc, char **argv)
{
	static const uint32_t shape[][2] = { { 64, 3 }, { 256, 4 } }; /* SmolLM2-135M, Gemma 3 270M */
	const char *isa = isa_find("avx512") ? "avx512" : "avx2";
	uint32_t threads = 1;
	double limit;
	int c;

	while ((c = getopt(argc, argv, "t:i:")) != -1)
		if (c == 't')
			threads = (uint32_t)atoi(optarg);
		else if (c == 'i')
			isa = optarg;
		else
			return 2;
	if (optind != argc || threads < 1 || threads > LIMIT_THREADS || !isa_find(isa)) {
		(void)fprintf(stderr, "usage: bench_attn [-t THREADS] [-i avx2|avx512], what this CPU has\n");
		return isa_find(isa) ? 2 : 77;
	}
	limit = limit_gops(LIMIT_F32, threads);
	(void)printf("%s, %u threads; f32 multiply-adds %.1f GOP/s\n", isa, threads, limit);
	for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
		for (int way = 0; way < 3; way++) {
			const uint32_t dim = shape[i][0], group = shape[i][1];
			const struct work w = { .ops = isa_find(isa),
				.s = { .dim = dim, .pad = attn_pad(dim), .page = PAGE, .group = group },
				.n_rows = way == 2 ? 32 * group : group,
				.n_pages = (way == 1 ? IN_MEMORY : IN_CACHE) / PAGE,
				.widen = way == 2 };

			line(&w, threads, limit);
		}
	return 0;
}
