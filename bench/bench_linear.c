/* SPDX-License-Identifier: Apache-2.0
 * Speed of the CPU plugin's matrix products beside what the same minute's machine can do at most: register-only
 * loops for arithmetic, a plain read loop for memory. Threads spin and split the output rows evenly.
 *
 *   bench_linear [-t THREADS] [-y TYPE] [-s NxK] [-m M] [-e] [-i ISA] [-w MIB] limits|prefill|decode|pack
 *   -e exact precision; -i baseline, avx2 or avx512vnni; -w MiB of weights that decode walks through (more than the last-level cache holds)
 */
#include "tools/limits.h"
#include "plugins/cpu/dequant.h"
#include "plugins/cpu/linear.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REPS = 15 };

struct opts {
	uint32_t threads, type, n, k, m, precision;
	size_t mib;
	const char *name;
	const struct linear_ops *ops;
};

static void *big_alloc(size_t bytes)
{
	const size_t page = (size_t)2 << 20;
	void *p = NULL;

	bytes = (bytes + page - 1) / page * page;
	if (posix_memalign(&p, page, bytes)) {
		fprintf(stderr, "bench_linear: out of memory for %zu bytes; use a smaller -w or -s\n", bytes);
		exit(1);
	}
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0, bytes);
	return p;
}

static uint32_t rng(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (uint32_t)(*s >> 32);
}

/* Any bytes will do for speed, if no scale is an infinity, a NaN or a subnormal. */
static void fill(uint8_t *p, size_t bytes, int floats)
{
	uint64_t s = 7;

	for (size_t i = 0; i < bytes; i++)
		p[i] = floats ? (i % 2 ? 0x3c : 0x11)
			      : (uint8_t)(rng(&s) & 0x7f & (i % 2 ? 0x37 : 0xff)) | 0x10;
}

/* ---- a chain of equal matrices ---- */

struct chain {
	const struct linear_ops *ops;
	struct linear_weight w;
	uint8_t *src, *packed;
	size_t bytes, count; /* of one packed matrix; matrices */
	float *x, *c;
	void *act;
	void *scratch[LIMIT_THREADS];
	uint32_t m, threads, pack_act;
};

static void chain_make(struct chain *h, const struct opts *o, size_t least_bytes)
{
	const size_t src = (size_t)o->n * (o->k / dequant_block(o->type)) * dequant_block_bytes(o->type);
	const struct linear_ops *ops = o->ops;
	const uint64_t own = ops->weight_bytes(o->type, o->precision, o->n, o->k);

	*h = (struct chain){ .ops = ops, .threads = o->threads };
	h->w = (struct linear_weight){ .type = o->type, .precision = o->precision, .n = o->n, .k = o->k };
	h->w.act = ops->act_class(o->type, o->precision, o->n, o->k);
	h->bytes = ((own ? own : src) + 63) / 64 * 64;
	h->count = least_bytes / h->bytes + 1;
	h->src = big_alloc(src);
	fill(h->src, src, dequant_block(o->type) == 1);
	h->packed = big_alloc(h->bytes * h->count);
	for (size_t i = 0; i < h->count; i++)
		if (own)
			ops->weight_pack(&h->w, h->src, 0, o->n, h->packed + i * h->bytes);
		else
			memcpy(h->packed + i * h->bytes, h->src, src);
	for (uint32_t t = 0; t < o->threads; t++)
		h->scratch[t] = big_alloc(ops->scratch_bytes());
}

static void chain_rows(struct chain *h, uint32_t m)
{
	uint64_t s = 3;

	free(h->x);
	free(h->c);
	free(h->act);
	h->m = m;
	h->x = big_alloc((size_t)m * h->w.k * sizeof *h->x);
	h->c = big_alloc((size_t)m * h->w.n * sizeof *h->c);
	for (size_t i = 0; i < (size_t)m * h->w.k; i++)
		h->x[i] = (float)(int32_t)rng(&s) * 0x1p-31f;
	h->act = big_alloc(h->ops->act_bytes(h->w.act, m, h->w.k) + 64);
	h->ops->act_pack(h->w.act, h->x, h->w.k, m, h->w.k, 0, m, h->act);
}

static void chain_free(struct chain *h)
{
	free(h->x);
	free(h->c);
	free(h->act);
	free(h->src);
	free(h->packed);
	for (uint32_t t = 0; t < h->threads; t++)
		free(h->scratch[t]);
}

/* Part `th` of `nt` of [0, n), cut at multiples of `unit`. */
static uint32_t cut_at(uint32_t n, uint32_t unit, uint32_t th, uint32_t nt)
{
	const uint32_t groups = (n + unit - 1) / unit, at = (uint32_t)((uint64_t)groups * th / nt) * unit;

	return at < n ? at : n;
}

/* Every matrix once. */
static void chain_part(uint32_t th, uint32_t nt, void *arg)
{
	struct chain *h = arg;
	const uint32_t n0 = cut_at(h->w.n, 2 * h->ops->panel_rows, th, nt),
		       n1 = cut_at(h->w.n, 2 * h->ops->panel_rows, th + 1, nt);

	for (size_t i = 0; i < h->count; i++) {
		struct linear_weight w = h->w;

		w.data = h->packed + i * h->bytes;
		h->ops->run(&w, h->w.act == ACT_F32 ? (void *)h->x : h->act, h->m, n0, n1, h->c, w.n,
			h->scratch[th]);
	}
}

static void act_part(uint32_t th, uint32_t nt, void *arg)
{
	struct chain *h = arg;

	h->ops->act_pack(h->w.act, h->x, h->w.k, h->m, h->w.k, cut_at(h->m, h->ops->act_rows, th, nt),
		cut_at(h->m, h->ops->act_rows, th + 1, nt), h->act);
}

static void pack_part(uint32_t th, uint32_t nt, void *arg)
{
	struct chain *h = arg;

	for (size_t i = 0; i < h->count; i++)
		h->ops->weight_pack(&h->w, h->src, cut_at(h->w.n, h->ops->panel_rows, th, nt),
			cut_at(h->w.n, h->ops->panel_rows, th + 1, nt), h->packed + i * h->bytes);
}

/* ---- commands ---- */

static enum limit limit_of(const struct chain *h)
{
	return h->w.act == ACT_F32 ? LIMIT_F32 : h->w.act == ACT_I16 ? LIMIT_MADD16 : LIMIT_DEFERRED;
}

static void prefill(const struct opts *o)
{
	const double work = 2.0 * o->m * o->n * o->k;
	double t[REPS], q[REPS], limit;
	struct chain h;

	chain_make(&h, o, 0);
	chain_rows(&h, o->m);
	limit = limit_gops(limit_of(&h), o->threads);
	for (int r = 0; r < REPS; r++) {
		q[r] = limit_time(o->threads, act_part, &h);
		t[r] = q[r] + limit_time(o->threads, chain_part, &h);
	}
	limit_sort(t, REPS);
	limit_sort(q, REPS);
	printf("%-7s %-6s %5u x %5u m %3u, %u threads: %6.1f best %6.1f median GOP/s, %.2f of the %s limit %.1f; preparing rows %.1f %%\n",
		o->ops->isa, o->name, o->n, o->k, o->m, o->threads, work / t[0] * 1e-9,
		work / t[REPS / 2] * 1e-9, work / t[0] * 1e-9 / limit, limit_name(limit_of(&h)), limit,
		100 * q[0] / t[0]);
	chain_free(&h);
}

static void decode(const struct opts *o)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	struct chain h;
	double read, gb;

	chain_make(&h, o, o->mib << 20);
	gb = (double)(h.bytes * h.count) * 1e-9;
	read = limit_read(h.packed, h.bytes * h.count, o->threads);
	printf("%-7s %-6s %5u x %5u, %zu MiB, %u threads; plain read %.1f GB/s\n", o->ops->isa, o->name, o->n,
		o->k, h.bytes * h.count >> 20, o->threads, read);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const uint32_t m = o->m == 512 ? sizes[i] : o->m;
		double t[REPS];

		chain_rows(&h, m);
		for (int r = 0; r < REPS; r++)
			t[r] = limit_time(o->threads, chain_part, &h);
		limit_sort(t, REPS);
		printf("  m %2u: %5.1f best %5.1f median GB/s (%.2f of read), %6.1f GOP/s, %.2f x the time of m 1's read\n",
			m, gb / t[0], gb / t[REPS / 2], gb / t[0] / read,
			2e-9 * m * (double)o->n * o->k * (double)h.count / t[0], t[0] / (gb / read));
		if (o->m != 512)
			break;
	}
	chain_free(&h);
}

static void pack(const struct opts *o)
{
	double t[REPS], one[REPS];
	struct chain h;

	chain_make(&h, o, o->mib << 20);
	for (int r = 0; r < REPS; r++)
		t[r] = limit_time(o->threads, pack_part, &h);
	chain_rows(&h, 1);
	for (int r = 0; r < REPS; r++) {
		one[r] = 0;
		for (int i = 0; i < 1000; i++)
			one[r] += limit_time(1, act_part, &h);
	}
	limit_sort(t, REPS);
	limit_sort(one, REPS);
	printf("%-7s %-6s %5u x %5u, %u threads: packing %5.1f best %5.1f median GB/s written; preparing one row of %u: %.2f us\n",
		o->ops->isa, o->name, o->n, o->k, o->threads, (double)(h.bytes * h.count) / t[0] * 1e-9,
		(double)(h.bytes * h.count) / t[REPS / 2] * 1e-9, o->k, one[0] * 1e3);
	chain_free(&h);
}

static void limits(const struct opts *o)
{
	const size_t bytes = o->mib << 20;
	void *buf = big_alloc(bytes);

	for (int l = 0; l < LIMIT_N; l++)
		printf("%-10s %6.1f GOP/s, %u threads\n", limit_name((enum limit)l),
			limit_gops((enum limit)l, o->threads), o->threads);
	printf("read       %6.1f GB/s, %zu MiB\n", limit_read(buf, bytes, o->threads), o->mib);
	free(buf);
}

/* ---- command line ---- */

static const struct {
	const char *name;
	uint32_t type;
} types[] = { { "Q4_0", TNP_Q4_0 }, { "Q4_1", TNP_Q4_1 }, { "Q5_0", TNP_Q5_0 }, { "Q5_1", TNP_Q5_1 },
	{ "Q8_0", TNP_Q8_0 }, { "IQ4_NL", TNP_IQ4_NL }, { "Q2_K", TNP_Q2_K }, { "Q3_K", TNP_Q3_K },
	{ "Q4_K", TNP_Q4_K }, { "Q5_K", TNP_Q5_K }, { "Q6_K", TNP_Q6_K }, { "F16", TNP_F16 },
	{ "BF16", TNP_BF16 }, { "F32", TNP_F32 } };

static int each(const struct opts *given, const char *want, int shape, const char *cmd)
{
	static const uint32_t shapes[][2] = { { 576, 576 }, { 1536, 576 }, { 576, 1536 }, { 2048, 2048 } };
	int done = 0;

	for (size_t t = 0; t < sizeof types / sizeof *types; t++)
		for (size_t s = 0;
			s < (shape || *cmd != 'p' || cmd[1] == 'a' ? 1 : sizeof shapes / sizeof *shapes);
			s++) {
			struct opts o = *given;

			if (strcmp(want, types[t].name) != 0 && strcmp(want, "all") != 0)
				continue;
			o.type = types[t].type;
			o.name = types[t].name;
			if (!shape) {
				const size_t at = *cmd == 'd' ? 1 : s;

				o.n = shapes[at][0];
				o.k = dequant_block(o.type) == 256 ? (shapes[at][1] + 255) / 256 * 256
								   : shapes[at][1];
			}
			if (o.ops->act_class(o.type, o.precision, o.n, o.k) == ACT_N_CLASSES) {
				fprintf(stderr,
					"bench_linear: %s cannot have %u columns; choose a multiple of %u\n",
					o.name, o.k, dequant_block(o.type));
				return 2;
			}
			(*cmd == 'd' ? decode : cmd[1] == 'a' ? pack : prefill)(&o);
			done++;
		}
	return done ? 0 : 2;
}

static const struct linear_ops *isa_find(const char *name)
{
	static const struct linear_ops *const all[] = { &linear_base, &linear_avx2, &linear_vnni };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i]->isa, name))
			return all[i];
	return NULL;
}

int main(int argc, char **argv)
{
	struct opts o = { .threads = 1, .m = 512, .mib = 288, .ops = &linear_avx2 };
	const char *want = "Q4_1";
	int shape = 0, c;

	while ((c = getopt(argc, argv, "t:y:s:m:w:ei:")) != -1)
		if (c == 't')
			o.threads = (uint32_t)atoi(optarg);
		else if (c == 'y')
			want = optarg;
		else if (c == 's')
			shape = sscanf(optarg, "%ux%u", &o.n, &o.k) == 2;
		else if (c == 'm')
			o.m = (uint32_t)atoi(optarg);
		else if (c == 'w')
			o.mib = (size_t)atoi(optarg);
		else if (c == 'i')
			o.ops = isa_find(optarg);
		else if (c == 'e')
			o.precision = TNP_EXACT;
		else
			return 2;
	if (optind + 1 != argc || o.threads < 1 || o.threads > LIMIT_THREADS || !o.m || !o.ops || !o.mib ||
		!strchr("lpd", *argv[optind])) {
		fprintf(stderr,
			"usage: bench_linear [-t THREADS] [-y TYPE|all] [-s NxK] [-m M] [-e] [-i ISA] [-w MIB] limits|prefill|decode|pack\n");
		return 2;
	}
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
		fprintf(stderr, "bench_linear: this CPU has no AVX2; nothing to measure\n");
		return 77;
	}
	if (o.ops == &linear_vnni && !__builtin_cpu_supports("avx512vnni")) {
		fprintf(stderr, "bench_linear: this CPU has no AVX-512 VNNI; use another -i\n");
		return 77;
	}
	if (*argv[optind] == 'l') {
		limits(&o);
		return 0;
	}
	return each(&o, want, shape, argv[optind]);
}
