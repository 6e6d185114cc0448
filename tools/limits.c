/* SPDX-License-Identifier: Apache-2.0
 * limits.h: threads, loops of AVX2, the read. Loops of 512 bits stand in limits_avx512.c.
 */
#include "tools/limits.h"
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define OPAQUE(v) __asm__ volatile("" : "+x"(v))

/* ---- threads: started at the first run that needs them, they spin until limit_stop ---- */

static struct pool {
	_Alignas(64) _Atomic uint32_t
		gen; /* bumped to start a run; read with acquire, pairs with fn and arg below */
	_Alignas(64) _Atomic uint32_t left;
	limit_fn *fn; /* NULL: end */
	void *arg;
	uint32_t n, started;
	pthread_t id[LIMIT_THREADS];
} pool;

static void *pool_main(void *arg)
{
	const uint32_t me = (uint32_t)(uintptr_t)arg;
	uint32_t seen = 0;

	for (;;) {
		while (atomic_load_explicit(&pool.gen, memory_order_acquire) == seen)
			_mm_pause();
		seen++;
		if (!pool.fn)
			break;
		if (me < pool.n)
			pool.fn(me, pool.n, pool.arg);
		(void)atomic_fetch_sub_explicit(&pool.left, 1, memory_order_release);
	}
	return NULL;
}

static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void limit_stop(void)
{
	pool.fn = NULL;
	(void)atomic_fetch_add_explicit(&pool.gen, 1, memory_order_release);
	while (pool.started)
		(void)pthread_join(pool.id[--pool.started], NULL);
	atomic_store_explicit(&pool.gen, 0, memory_order_relaxed);
}

/* A thread must not be born into a run: more of them than before begin anew. */
double limit_time(uint32_t threads, limit_fn *fn, void *arg)
{
	double t;

	threads = threads < LIMIT_THREADS ? threads : LIMIT_THREADS;
	if (pool.started && pool.started + 1 < threads)
		limit_stop();
	for (; pool.started + 1 < threads; pool.started++)
		if (pthread_create(
			    &pool.id[pool.started], NULL, pool_main, (void *)(uintptr_t)(pool.started + 1)))
			threads = pool.started + 1;
	t = now_s();
	if (threads == 1) {
		fn(0, 1, arg);
		return now_s() - t;
	}
	pool.fn = fn;
	pool.arg = arg;
	pool.n = threads;
	atomic_store_explicit(&pool.left, pool.started, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&pool.gen, 1, memory_order_release);
	fn(0, threads, arg);
	while (atomic_load_explicit(&pool.left, memory_order_acquire))
		_mm_pause();
	return now_s() - t;
}

static int cmp_double(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void limit_sort(double *t, int n) { qsort(t, (size_t)n, sizeof *t, cmp_double); }

/* ---- arithmetic ---- */

#define LIMIT_FN(name, vec, zero, n_acc, ...)                                                                \
	static void name(uint32_t th, uint32_t nt, void *arg)                                                \
	{                                                                                                    \
		__m256i w = _mm256_set1_epi8(3), a = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);        \
		__m256 d = _mm256_set1_ps(0.5f), f = d;                                                      \
		vec acc[n_acc];                                                                              \
		(void)th, (void)nt;                                                                          \
		LIMIT_UNROLL                                                                                 \
		for (int i = 0; i < n_acc; i++)                                                              \
			acc[i] = zero;                                                                       \
		OPAQUE(w);                                                                                   \
		OPAQUE(one);                                                                                 \
		OPAQUE(d);                                                                                   \
		for (long r = *(long *)arg; r > 0; r--) {                                                    \
			__VA_ARGS__                                                                          \
		}                                                                                            \
		LIMIT_UNROLL                                                                                 \
		for (int i = 0; i < n_acc; i++)                                                              \
			OPAQUE(acc[i]);                                                                      \
		OPAQUE(f);                                                                                   \
		OPAQUE(a);                                                                                   \
	}
#define STEP(...)                                                                                            \
	LIMIT_UNROLL                                                                                         \
	for (int i = 0; i < 8; i++) {                                                                        \
		__VA_ARGS__                                                                                  \
	}

/* clang-format off */
LIMIT_FN(loop_plain, __m256i, _mm256_setzero_si256(), 8,
	STEP(
		OPAQUE(a);
		__m256i t = _mm256_maddubs_epi16(w, a);
		OPAQUE(t);
		acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(t, one));
		OPAQUE(acc[i]);
	))
LIMIT_FN(loop_deferred, __m256i, _mm256_setzero_si256(), 8,
	LIMIT_UNROLL
	for (int k = 0; k < 8; k++) {
		STEP(
			OPAQUE(a);
			__m256i t = _mm256_maddubs_epi16(w, a);
			OPAQUE(t);
			acc[i] = _mm256_add_epi16(acc[i], t);
			OPAQUE(acc[i]);
		)
	}
	STEP(
		__m256 t = _mm256_cvtepi32_ps(_mm256_madd_epi16(acc[i], one));
		t = _mm256_fmadd_ps(t, d, d);
		OPAQUE(t);
		f = t;
	))
LIMIT_FN(loop_madd16, __m256i, _mm256_setzero_si256(), 8,
	STEP(
		OPAQUE(a);
		__m256i t = _mm256_madd_epi16(w, a);
		OPAQUE(t);
		acc[i] = _mm256_add_epi32(acc[i], t);
		OPAQUE(acc[i]);
	))
LIMIT_FN(loop_f32, __m256, _mm256_setzero_ps(), 12,
	LIMIT_UNROLL
	for (int i = 0; i < 12; i++) {
		acc[i] = _mm256_fmadd_ps(d, d, acc[i]);
		OPAQUE(acc[i]);
	})
/* clang-format on */

static const struct limit_loop loops[LIMIT_VNNI] = { { loop_plain, 8 * 64 }, { loop_deferred, 8 * 8 * 64 },
	{ loop_madd16, 8 * 32 }, { loop_f32, 12 * 16 } };

const char *limit_name(enum limit l)
{
	static const char *const names[LIMIT_N] = { "plain", "deferred", "madd16", "f32", "vnni", "vnni16",
		"f32.512" };

	return names[l];
}

bool limit_here(enum limit l)
{
	if (l < LIMIT_VNNI)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return l == LIMIT_F32_512 ? __builtin_cpu_supports("avx512f") : __builtin_cpu_supports("avx512vnni");
}

double limit_gops(enum limit l, uint32_t threads)
{
	const struct limit_loop *loop = l < LIMIT_VNNI ? &loops[l] : &limit_loops_512[l - LIMIT_VNNI];
	long turns = (long)(1e9 / loop->ops);
	double best = 1e9;

	if (!limit_here(l))
		return 0;
	for (int r = 0; r < 12; r++) {
		const double t = limit_time(threads, loop->fn, &turns);

		best = t < best ? t : best;
	}
	return loop->ops * (double)turns * threads / best * 1e-9;
}

/* ---- memory ---- */

struct read_job {
	const uint8_t *p;
	size_t n;
};

static void read_part(uint32_t th, uint32_t nt, void *arg)
{
	const struct read_job *j = arg;
	const size_t len = j->n / nt / 256 * 256;
	const uint8_t *p = j->p + th * len;
	__m256i s = _mm256_setzero_si256();

	for (size_t i = 0; i < len; i += 256) {
		LIMIT_UNROLL
		for (int k = 0; k < 4; k++)
			_mm_prefetch((const char *)p + i + 4096 + 64 * k, _MM_HINT_T0);
		LIMIT_UNROLL
		for (int k = 0; k < 8; k++)
			s = _mm256_xor_si256(s, _mm256_loadu_si256((const __m256i *)(p + i) + k));
	}
	OPAQUE(s);
}

double limit_read(const void *buf, size_t bytes, uint32_t threads)
{
	struct read_job j = { buf, bytes };
	double best = 1e9;

	for (int r = 0; r < 9; r++) {
		const double t = limit_time(threads, read_part, &j);

		best = t < best ? t : best;
	}
	return (double)bytes / best * 1e-9;
}
