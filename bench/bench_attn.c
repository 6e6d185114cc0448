/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels of the cpu backend, one thread: nanoseconds a key of one KV head, for each type of pages, as decoding
 * reads them (few rows, straight from the pages, in cache and from memory) and as a prompt does (many rows over a
 * widened tile). The best of several rounds. No checks: those are in the unit tests.
 */
#include "plugins/cpu/attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, PAGE = 32, IN_CACHE = 2048, IN_MEMORY = 65536 };

static const struct {
	const char *name;
	uint32_t type;
} types[] = { { "f32", TNP_F32 }, { "f16", TNP_F16 }, { "q8_0", TNP_Q8_0 }, { "q4_0", TNP_Q4_0 } };

static double now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void noise(float *x, size_t n)
{
	static uint32_t seed = 1;

	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		x[i] = (float)(int32_t)seed * 0x1p-31f;
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

	w->page_bytes = attn_head_bytes(w->s.type, w->s.dim, PAGE);
	w->pages = take(w->page_bytes * w->n_pages);
	w->q = take(w->n_rows * pad * sizeof *w->q);
	w->state = take(w->n_rows * attn_state_floats(w->s.pad) * sizeof *w->state);
	w->tile = take(attn_wide_floats(w->s.pad) * sizeof *w->tile);
	noise(w->q, w->n_rows * pad);
	for (uint32_t t = 0; t < w->n_pages * PAGE; t++) {
		noise(kv, 2 * pad);
		attn_avx2.store(&w->s, w->pages + w->page_bytes * (t / PAGE), t % PAGE, kv, kv + pad);
	}
	free(kv);
}

static void tile_run(const struct work *w, uint32_t page)
{
	static const int32_t lo[ATTN_ROWS] = { 0 }, hi[ATTN_ROWS] = { ATTN_TILE, ATTN_TILE, ATTN_TILE };
	const uint8_t *here = w->pages + w->page_bytes * page,
		      *next = w->pages + w->page_bytes * ((page + 1) % w->n_pages);
	const struct attn_half half[4] = { { here, 0 }, { here, ATTN_HALF }, { next, 0 },
		{ next, ATTN_HALF } };
	const size_t stride = attn_state_floats(w->s.pad);

	if (w->widen)
		attn_avx2.widen(&w->s, half, w->tile);
	for (uint32_t r = 0; r < w->n_rows; r += ATTN_ROWS) {
		uint32_t n = w->n_rows - r < ATTN_ROWS ? w->n_rows - r : ATTN_ROWS;
		const float *q = w->q + (size_t)r * w->s.pad;

		if (w->widen)
			attn_avx2.tile_wide(&w->s, w->tile, n, q, lo, hi, w->state + r * stride, stride);
		else
			attn_avx2.tile_page(&w->s, half, n, q, lo, hi, w->state + r * stride, stride);
	}
}

static double measure(uint32_t type, uint32_t dim, uint32_t group, uint32_t n_rows, bool widen, uint32_t keys)
{
	struct work w = { .s = { .type = type,
				  .dim = dim,
				  .pad = attn_pad(dim),
				  .page = PAGE,
				  .heads = group,
				  .kv_heads = 1,
				  .group = group,
				  .scale = 0.1f },
		.n_rows = n_rows,
		.n_pages = keys / PAGE,
		.widen = widen };
	double best = 1e30;

	work_fill(&w);
	for (int round = 0; round < ROUNDS; round++) {
		double t0, ns;

		for (uint32_t r = 0; r < n_rows; r++)
			attn_state_init(w.state + r * attn_state_floats(w.s.pad), w.s.pad);
		t0 = now_ns();
		for (uint32_t p = 0; p < w.n_pages; p++)
			tile_run(&w, p);
		ns = (now_ns() - t0) / keys;
		best = ns < best ? ns : best;
	}
	free(w.pages);
	free(w.q);
	free(w.state);
	free(w.tile);
	return best;
}

static void line(const char *what, uint32_t dim, uint32_t group, uint32_t n_rows, bool widen, uint32_t keys)
{
	(void)printf("heads of %3u, %3u rows, %5u keys, %-8s", dim, n_rows, keys, what);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		(void)printf(
			"  %s %8.2f", types[i].name, measure(types[i].type, dim, group, n_rows, widen, keys));
	(void)printf("  ns/key\n");
}

int main(void)
{
	static const uint32_t shape[][2] = { { 64, 3 }, { 256, 4 } }; /* SmolLM2-135M, Gemma 3 270M */

	for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
		line("pages", shape[i][0], shape[i][1], shape[i][1], false, IN_CACHE);
		line("pages", shape[i][0], shape[i][1], shape[i][1], false, IN_MEMORY);
		line("widened", shape[i][0], shape[i][1], 32 * shape[i][1], true, IN_CACHE);
	}
	return 0;
}
