/* SPDX-License-Identifier: Apache-2.0
 * Matrix products: values against sums in double, equal bits however the work is cut, nothing written beside the
 * range, hostile numbers. Buffers have exactly the sizes asked for, so a sanitizer build sees any step beyond.
 */
#include "tests/unit/unit.h"
#include "plugins/cpu/dequant.h"
#include "plugins/cpu/linear.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ALIGN	 64
#ifdef LINEAR_QUICK /* for emulators */
enum { MOST = 52, LONG = 4096 };
#else
enum { MOST = 512, LONG = 40960 }; /* tokens, columns */
#endif

static const struct {
	const char *name;
	uint32_t type;
	int d[2]; /* where the f16 scales of a block lie, or -1 */
} types[] = {
	{ "F32", TNP_F32, { -1, -1 } },
	{ "F16", TNP_F16, { -1, -1 } },
	{ "BF16", TNP_BF16, { -1, -1 } },
	{ "Q4_0", TNP_Q4_0, { 0, -1 } },
	{ "Q4_1", TNP_Q4_1, { 0, 2 } },
	{ "Q5_0", TNP_Q5_0, { 0, -1 } },
	{ "Q5_1", TNP_Q5_1, { 0, 2 } },
	{ "Q8_0", TNP_Q8_0, { 0, -1 } },
	{ "IQ4_NL", TNP_IQ4_NL, { 0, -1 } },
	{ "Q2_K", TNP_Q2_K, { 80, 82 } },
	{ "Q3_K", TNP_Q3_K, { 108, -1 } },
	{ "Q4_K", TNP_Q4_K, { 0, 2 } },
	{ "Q5_K", TNP_Q5_K, { 0, 2 } },
	{ "Q6_K", TNP_Q6_K, { 208, -1 } },
};

static uint32_t rng(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (uint32_t)(*s >> 32);
}
static float rng_f32(uint64_t *s) { return (float)(int32_t)rng(s) * 0x1p-31f; }

static void *take(size_t bytes)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, ALIGN, bytes ? bytes : 1), 0);
	return p;
}

#if defined(__x86_64__)
#ifdef LINEAR_EMULATED
unsigned long long emulated_dots;

static bool vnni_runs(void) { return true; }
static bool avxvnni_runs(void) { return true; }
#else
/* CPUID 7.1 EAX bit 4; not every compiler's __builtin_cpu_supports knows its name. */
static bool avxvnni_runs(void)
{
	uint32_t a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
		(a >> 4 & 1);
}

static bool vnni_runs(void)
{
	return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512bw");
}
#endif
#endif

/* What this machine can run, the base first: [n], then NULL. An emulated build leaves the base out, others test it. */
static const struct linear_ops *have[8];

static void variants_find(void)
{
	size_t n = 0;

#ifndef LINEAR_EMULATED
	have[n++] = &linear_base;
#endif
#if defined(__x86_64__)
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return;
	have[n++] = &linear_avx2;
	if (vnni_runs())
		have[n++] = &linear_vnni;
	if (avxvnni_runs())
		have[n++] = &linear_avxvnni;
#elif defined(__aarch64__)
	if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
		have[n++] = &linear_neon;
#endif
}

static const struct linear_ops *variant(size_t i) { return have[i]; }

/* ---- a matrix and its product ---- */

struct mat {
	const struct linear_ops *ops;
	struct linear_weight w;
	uint8_t *src;
	void *own;
	float *f32; /* [n][k] */
};

/* f16 of a number below 65,504, truncated; subnormals become zero */
static uint16_t f16_of(float f)
{
	uint32_t b;

	memcpy(&b, &f, sizeof b);
	if ((b >> 23 & 255) < 113)
		return (uint16_t)(b >> 16 & 0x8000);
	return (uint16_t)((b >> 16 & 0x8000) | (((b >> 23 & 255) - 112) << 10 & 0x7c00) | (b >> 13 & 0x3ff));
}

/* Random codes; byte >= 0: all code bytes are that byte. */
static void fill_src(size_t ty, uint8_t *src, size_t blocks, int byte, uint64_t *seed)
{
	const uint32_t bytes = dequant_block_bytes(types[ty].type);

	for (size_t i = 0; i < blocks; i++, src += bytes) {
		if (types[ty].d[0] < 0) {
			const float v = rng_f32(seed) * 0.1f;
			uint16_t half = types[ty].type == TNP_F16 ? f16_of(v) : 0;

			memcpy(src,
				types[ty].type == TNP_F16 ? (const void *)&half
							  : (const char *)&v + 4 - bytes,
				bytes);
			continue;
		}
		for (uint32_t b = 0; b < bytes; b++)
			src[b] = (uint8_t)(byte < 0 ? rng(seed) : (uint32_t)byte);
		for (int s = 0; s < 2 && types[ty].d[s] >= 0; s++) {
			const uint16_t d =
				f16_of(s ? -0.02f * (1.5f + rng_f32(seed)) : 0.003f * (1.5f + rng_f32(seed)));

			memcpy(src + types[ty].d[s], &d, 2);
		}
	}
}

/* Packs in cuts of `step` panels. */
static void mat_make(struct mat *m, const struct linear_ops *ops, size_t ty, uint32_t precision, uint32_t n,
	uint32_t k, int byte, uint32_t step)
{
	const uint32_t type = types[ty].type, block = dequant_block(type);
	const size_t blocks = (size_t)n * (k / block);
	uint64_t seed = 88172645463325252u + n * 31u + k;
	uint64_t own = ops->weight_bytes(type, precision, n, k);

	*m = (struct mat){ .ops = ops,
		.src = take(blocks * dequant_block_bytes(type)),
		.f32 = take((size_t)n * k * sizeof(float)) };
	fill_src(ty, m->src, blocks, byte, &seed);
	dequant_f32(type, m->src, (size_t)n * k, m->f32);
	m->w = (struct linear_weight){ .type = type,
		.precision = precision,
		.act = ops->act_class(type, precision, n, k),
		.n = n,
		.k = k };
	assert_in_range(m->w.act, 0, ACT_N_CLASSES - 1);
	m->own = own ? take(own) : NULL;
	for (uint32_t j = 0; own && j < n; j += step * ops->panel_rows)
		ops->weight_pack(&m->w, m->src, j,
			n - j < step * ops->panel_rows ? n : j + step * ops->panel_rows, m->own);
	m->w.data = own ? m->own : m->src;
}

static void mat_free(struct mat *m)
{
	free(m->src);
	free(m->own);
	free(m->f32);
}

/* c[m][ldc]; activations packed in cuts of `astep` groups, columns computed in cuts of `nstep` panels, last first. */
static void mat_run(
	const struct mat *a, const float *x, uint32_t m, float *c, size_t ldc, uint32_t astep, uint32_t nstep)
{
	const struct linear_ops *o = a->ops;
	const uint64_t bytes = o->act_bytes(a->w.act, m, a->w.k);
	void *act = bytes ? take(bytes) : NULL, *scratch = take(o->scratch_bytes());
	const uint32_t cut = nstep * o->panel_rows;

	for (uint32_t i = 0; bytes && i < m; i += astep * o->act_rows)
		o->act_pack(a->w.act, x, a->w.k, m, a->w.k, i,
			m - i < astep * o->act_rows ? m : i + astep * o->act_rows, act);
	for (uint32_t j = (a->w.n - 1) / cut * cut;; j -= cut) {
		o->run(&a->w, bytes ? act : x, m, j, a->w.n - j < cut ? a->w.n : j + cut, c, ldc, scratch);
		if (!j)
			break;
	}
	free(act);
	free(scratch);
}

static float *rows_make(uint32_t m, uint32_t k, uint64_t seed)
{
	float *x = take((size_t)m * k * sizeof *x);

	for (size_t i = 0; i < (size_t)m * k; i++)
		x[i] = rng_f32(&seed) * (i % 97 == 0 ? 20.0f : 1.0f);
	return x;
}

/* ---- values ---- */

/* Half a step of the quantised activations, summed over |w|, and some rounding of the float sums. */
static double tolerance(const struct mat *a, const float *x, const float *w)
{
	double row = 0, step = 0, sum = 0;

	for (uint32_t i = 0; i < a->w.k; i++)
		row = fmax(row, fabs((double)x[i]));
	for (uint32_t i = 0; i < a->w.k; i++) {
		double top = 0;

		for (uint32_t b = i / 32 * 32; a->w.act == ACT_I8 && b < i / 32 * 32 + 32; b++)
			top = fmax(top, fabs((double)x[b]));
		step += fabs((double)w[i]) *
			(a->w.act == ACT_I8		      ? (top + row / 32767) / 127
					: a->w.act == ACT_I16 ? row / 32767
							      : 0);
		sum += fabs((double)w[i] * (double)x[i]);
	}
	return 0.505 * step + 3e-6 * sum + 1e-30;
}

static void check_values(const struct mat *a, const float *x, uint32_t m, const float *c, size_t ldc)
{
	for (uint32_t i = 0; i<m; i += m> 8 ? 5 : 1)
		for (uint32_t j = i % 3; j < a->w.n; j += 3) {
			const float *w = a->f32 + (size_t)j * a->w.k, *row = x + (size_t)i * a->w.k;
			double want = 0, got = (double)c[i * ldc + j];

			for (uint32_t k = 0; k < a->w.k; k++)
				want += (double)w[k] * (double)row[k];
			if (!(fabs(got - want) <= tolerance(a, row, w)))
				fail_msg(
					"%s type %u precision %u n %u k %u m %u at [%u][%u]: %.9g, want %.9g within %.2g",
					a->ops->isa, a->w.type, a->w.precision, a->w.n, a->w.k, m, i, j, got,
					want, tolerance(a, row, w));
		}
}

static void one_shape(
	const struct linear_ops *ops, size_t ty, uint32_t precision, uint32_t n, uint32_t k, uint32_t m)
{
	const size_t ldc = n + 3;
	float *c = take(m * ldc * sizeof *c), *x = rows_make(m, k, n + k);
	struct mat a;

	mat_make(&a, ops, ty, precision, n, k, -1, 2);
	for (size_t i = 0; i < m * ldc; i++)
		c[i] = 12345.0f;
	mat_run(&a, x, m, c, ldc, 1, 3);
	check_values(&a, x, m, c, ldc);
	for (size_t i = 0; i < m * ldc; i++)
		assert_true(i % ldc < n || c[i] == 12345.0f);
	mat_free(&a);
	free(c);
	free(x);
}

static void products_are_right(void **st)
{
	static const uint32_t shapes[][3] = { { 1, 1, 1 }, { 7, 1, 5 }, { 8, 2, 19 }, { 17, 3, 2 },
		{ 40, 2, 3 }, { 33, 5, 40 }, { 70, 1, 1 } };

	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++)
			for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++)
				for (size_t s = 0; s < COUNT(shapes); s++)
					one_shape(variant(v), t, p, shapes[s][0],
						shapes[s][1] * dequant_block(types[t].type), shapes[s][2]);
}

/* Long rows: more than one stretch of k, odd numbers of blocks, and float rows of no round length. */
static void long_rows_are_right(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++) {
			const uint32_t block = dequant_block(types[t].type);

			for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
				one_shape(variant(v), t, p, 24,
					block == 1	      ? 1543
						: block == 32 ? 67 * 32
							      : 9 * 256,
					25);
				one_shape(variant(v), t, p, 9, block == 1 ? LONG - 959 : LONG, 1);
			}
		}
}

/* Codes and activations at their ends, where int16 sums are widest: x is exact in int8, so only rounding is left;
 * one lane that did not fit would be off by more than a hundredth. */
static void extremes_are_exact(void **st)
{
	static const int bytes[] = { 0x00, 0xff, 0x0f, 0xf0, 0x77, 0x88 };
	enum { N = 16, M = 21 };

	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 3; t < COUNT(types); t++)
			for (size_t b = 0; b < COUNT(bytes); b++)
				for (int sign = 0; sign < 3; sign++) {
					const uint32_t k = 2 * dequant_block(types[t].type);
					float *x = take(M * k * sizeof *x), c[M * N];
					uint64_t seed = b + 1;
					struct mat a;

					for (uint32_t i = 0; i < M * k; i++)
						x[i] = sign == 2 ? (rng(&seed) & 1 ? 127.0f : -127.0f)
							: sign	 ? 127.0f
								 : -127.0f;
					mat_make(&a, variant(v), t, TNP_FAST, N, k, bytes[b], 1);
					for (uint32_t m = M; m >= 1; m -= 20) {
						mat_run(&a, x, m, c, N, 1, 1);
						for (uint32_t i = 0; i < m * N; i++) {
							const float *w = a.f32 + (size_t)(i % N) * k,
								    *row = x + (size_t)(i / N) * k;
							double want = 0, sum = 0;

							for (uint32_t j = 0; j < k; j++) {
								want += (double)w[j] * (double)row[j];
								sum += fabs((double)w[j] * (double)row[j]);
							}
							if (!(fabs((double)c[i] - want) <=
								    2e-5 * sum + 1e-5 * k))
								fail_msg(
									"%s %s bytes %02x sign %d m %u: %.9g, want %.9g",
									variant(v)->isa, types[t].name,
									(unsigned)bytes[b], sign, m,
									(double)c[i], want);
						}
						if (m == 1)
							break;
					}
					mat_free(&a);
					free(x);
				}
}

/* x = one unit vector a row: EXACT gives back the dequantised weights, bit by bit. */
static void exact_gives_the_weights_back(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++) {
			const uint32_t n = 19,
				       k = 2 * dequant_block(types[t].type) < 64
				? 37
				: 2 * dequant_block(types[t].type);
			float *x = take((size_t)k * k * sizeof *x), *c = take((size_t)k * n * sizeof *c);
			struct mat a;

			memset(x, 0, (size_t)k * k * sizeof *x);
			for (uint32_t i = 0; i < k; i++)
				x[(size_t)i * k + i] = 1.0f;
			mat_make(&a, variant(v), t, TNP_EXACT, n, k, -1, 1);
			mat_run(&a, x, k, c, n, 1, 1);
			for (uint32_t i = 0; i < k; i++)
				for (uint32_t j = 0; j < n; j++)
					assert_true(c[(size_t)i * n + j] == a.f32[(size_t)j * k + i]);
			mat_free(&a);
			free(x);
			free(c);
		}
}

/* ---- equal bits ---- */

static void check_bits(const struct mat *a, const float *x, const float *all, uint32_t most)
{
	static const uint32_t more[] = { 64, 128 };
	const uint32_t n = a->w.n;
	float *c = take((size_t)most * n * sizeof *c);

	for (uint32_t s = 1; s <= 33 + COUNT(more); s++) {
		const uint32_t m = s <= 33 ? s : more[s - 34], from = most > m ? (s * 37) % (most - m) : 0;

		if (m > most)
			break;
		mat_run(a, x + (size_t)from * a->w.k, m, c, n, 1 + s % 3, 1 + s % 5);
		if (memcmp(c, all + (size_t)from * n, (size_t)m * n * sizeof *c))
			fail_msg("%s type %u precision %u: %u rows from %u differ", a->ops->isa, a->w.type,
				a->w.precision, m, from);
	}
	free(c);
}

static void bits_do_not_depend_on_the_batch(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++)
			for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
				const uint32_t block = dequant_block(types[t].type), n = 72,
					       most = t == 4 ? MOST
					: MOST < 140	     ? MOST
							     : 140;
				const uint32_t k = block == 1 ? 333 : block == 32 ? 29 * 32 : 4 * 256;
				float *x = rows_make(most, k, 99),
				      *all = take((size_t)most * n * sizeof *all);
				struct mat a;

				mat_make(&a, variant(v), t, p, n, k, -1, 1);
				mat_run(&a, x, most, all, n, 100, 100);
				check_bits(&a, x, all, most);
				mat_free(&a);
				free(x);
				free(all);
			}
}

/* The variants built on AVX2's panels or activations agree bit by bit with it. */
static void bits_do_not_depend_on_the_instruction_set(void **st)
{
	enum { N = 56, M = 59, V = COUNT(have) };
	static float c[V][M * N];

	(void)st;
	for (size_t t = 0; t < COUNT(types); t++) {
		const uint32_t block = dequant_block(types[t].type), k = block == 256 ? 5 * 256 : 27 * 32;
		float *x = rows_make(M, k, 17);

		for (uint32_t m = 5; m <= M; m += 54) {
			size_t first = V;

			for (size_t v = 0; variant(v); v++) {
				struct mat a;

				if (!strcmp(variant(v)->isa, "baseline"))
					continue;
				mat_make(&a, variant(v), t, TNP_FAST, N, k, -1, 1);
				mat_run(&a, x, m, c[v], N, 1, 2);
				mat_free(&a);
				first = first == V ? v : first;
				assert_memory_equal(c[first], c[v], (size_t)m * N * sizeof(float));
			}
		}
		free(x);
	}
}

/* Rows of infinities and NaN: their own outputs are not finite, no other row notices. */
static void odd_rows_stay_alone(void **st)
{
	static const float odd[] = { INFINITY, -INFINITY, NAN, 3e38f, 1e-38f, 1e-45f };
	enum { N = 20, M = 31 };

	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++)
			for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
				const uint32_t k = dequant_block(types[t].type) == 256 ? 512 : 96;
				float *x = rows_make(M, k, 5), clean[M * N], dirty[M * N];
				struct mat a;

				mat_make(&a, variant(v), t, p, N, k, -1, 9);
				for (uint32_t m = 4; m <= M; m += 9) {
					float *y = take((size_t)m * k * sizeof *y);

					memcpy(y, x, (size_t)m * k * sizeof *y);
					mat_run(&a, x, m, clean, N, 1, 1);
					for (uint32_t i = 0; i < COUNT(odd); i++)
						for (uint32_t j = 0; 5 * i + 1 < m && j < k; j++)
							y[(5 * i + 1) * k + j] = j == 7 || i > 2
								? odd[i]
								: y[(5 * i + 1) * k + j];
					mat_run(&a, y, m, dirty, N, 1, 1);
					for (uint32_t i = 0; i < m; i++)
						if (i % 5 != 1 || i / 5 >= COUNT(odd))
							assert_memory_equal(clean + i * N, dirty + i * N,
								N * sizeof *clean);
						else
							for (uint32_t j = 0; j < N; j++)
								assert_true(i / 5 < 3 ? a.w.act == ACT_F32 ||
											!isfinite(
												dirty[i * N +
													j])
										      : i / 5 == 3 ||
											isfinite(dirty[i * N +
												j]));
					free(y);
				}
				mat_free(&a);
				free(x);
			}
}

/* Weights whose scales are infinities or NaN must not fault, and leave the other outputs alone. */
static void odd_weights_stay_alone(void **st)
{
	enum { N = 24, M = 20 };

	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 3; t < COUNT(types); t++)
			for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
				const uint32_t k = 2 * dequant_block(types[t].type),
					       row = 2 * dequant_block_bytes(types[t].type);
				float *x = rows_make(M, k, 3), clean[M * N], dirty[M * N];
				const uint16_t inf = 0x7c00;
				struct mat a;

				mat_make(&a, variant(v), t, p, N, k, -1, 9);
				mat_run(&a, x, M, clean, N, 9, 9);
				memcpy(a.src + 10 * row + types[t].d[0], &inf, 2);
				if (a.own)
					a.ops->weight_pack(&a.w, a.src, 0, 16, a.own);
				mat_run(&a, x, M, dirty, N, 9, 9);
				for (uint32_t i = 0; i < M * N; i++)
					assert_true(
						i % N == 10 || !memcmp(clean + i, dirty + i, sizeof *clean));
				mat_free(&a);
				free(x);
			}
}

static void shapes_it_cannot_do_are_refused(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++) {
		const struct linear_ops *o = variant(v);

		assert_int_equal(o->act_class(TNP_Q4_1, TNP_FAST, 8, 33), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_Q4_K, TNP_FAST, 8, 128), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_Q4_1, TNP_FAST, 0, 32), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_Q4_1, TNP_FAST, 8, 0), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_Q4_1, 2, 8, 32), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_I32, TNP_FAST, 8, 32), ACT_N_CLASSES);
		assert_int_equal(o->act_class(9, TNP_FAST, 8, 32), ACT_N_CLASSES);
		assert_int_equal(o->act_class(0xffffffff, TNP_FAST, 8, 32), ACT_N_CLASSES);
		assert_int_equal(o->act_class(TNP_F32, TNP_FAST, 1, 1), ACT_F32);
	}
}

static void rows_for_the_embedding(void **st)
{
	(void)st;
	for (size_t v = 0; variant(v); v++)
		for (size_t t = 0; t < COUNT(types); t++) {
			const uint32_t k = 3 * dequant_block(types[t].type);
			float *row = take(k * sizeof *row);
			struct mat a;

			mat_make(&a, variant(v), t, TNP_EXACT, 5, k, -1, 1);
			for (uint32_t r = 0; r < 5; r++) {
				a.ops->row_f32(types[t].type, a.src, k, r, row);
				assert_memory_equal(row, a.f32 + r * k, k * sizeof *row);
			}
			mat_free(&a);
			free(row);
		}
}

#ifdef LINEAR_EMULATED
/* That the emulated instructions are what was tested, in both shapes of a product and for both classes. */
static void emulated_kernels_ran(void **st)
{
	static const size_t kinds[] = { 4, 7 }; /* Q4_1, Q8_0 */

	(void)st;
	for (size_t v = 1; variant(v); v++)
		for (size_t t = 0; t < COUNT(kinds); t++)
			for (uint32_t m = 1; m <= 41; m += 40) {
				const unsigned long long before = emulated_dots;

				one_shape(variant(v), kinds[t], TNP_FAST, 32, 64, m);
				assert_true(emulated_dots > before);
			}
	assert_ptr_equal(variant(1), &linear_vnni);
	assert_ptr_equal(variant(2), &linear_avxvnni);
}
#endif

/* Blocks and their values as another implementation has them (tests/data/linear/generate.py). */
static void blocks_are_read_as_others_do(void **st)
{
	FILE *f = fopen(unit_src("tests/data/linear/dequant.bin"), "rb");
	uint32_t head[3], n = 0; /* type, bytes, elements */

	(void)st;
	assert_non_null(f);
	for (; fread(head, sizeof head, 1, f) == 1; n++) {
		uint8_t *src = take(head[1]);
		float *want = take(head[2] * sizeof *want), *got = take(head[2] * sizeof *got);

		assert_int_equal(fread(src, 1, head[1], f), head[1]);
		assert_int_equal(fread(want, sizeof *want, head[2], f), head[2]);
		assert_int_equal(head[2] / dequant_block(head[0]) * dequant_block_bytes(head[0]), head[1]);
		dequant_f32(head[0], src, head[2], got);
		for (uint32_t i = 0; i < head[2]; i++)
			if (got[i] != want[i])
				fail_msg("type %u element %u: %.9g, want %.9g", head[0], i, (double)got[i],
					(double)want[i]);
		free(src);
		free(want);
		free(got);
	}
	assert_int_equal(n, 11);
	(void)fclose(f);
}

static void every_f16_is_right(void **st)
{
	(void)st;
	for (uint32_t h = 0; h < 0x10000; h++) {
		const int exp = h >> 10 & 31, mant = h & 1023;
		const float f = dequant_f16((uint16_t)h),
			    mag = exp ? ldexpf((float)(1024 + mant), exp - 25) : ldexpf((float)mant, -24);

		if (exp == 31)
			assert_true(mant ? isnan(f) : isinf(f) && signbit(f) == (int)(h >> 15) * signbit(f));
		else
			assert_true(f == (h >> 15 ? -mag : mag) && !signbit(f) == !(h >> 15));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_f16_is_right),
		cmocka_unit_test(blocks_are_read_as_others_do),
		cmocka_unit_test(products_are_right),
		cmocka_unit_test(long_rows_are_right),
		cmocka_unit_test(extremes_are_exact),
		cmocka_unit_test(exact_gives_the_weights_back),
		cmocka_unit_test(bits_do_not_depend_on_the_batch),
		cmocka_unit_test(bits_do_not_depend_on_the_instruction_set),
		cmocka_unit_test(odd_rows_stay_alone),
		cmocka_unit_test(odd_weights_stay_alone),
		cmocka_unit_test(shapes_it_cannot_do_are_refused),
		cmocka_unit_test(rows_for_the_embedding),
#ifdef LINEAR_EMULATED
		cmocka_unit_test(emulated_kernels_ran),
#endif
	};

	variants_find();
	for (size_t v = 0; variant(v); v++)
		(void)printf("variant %s\n", variant(v)->isa);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
