/* SPDX-License-Identifier: Apache-2.0
 * Inside linear_avx2*.c: forms of packed weights and prepared activations, and the few vector helpers they share.
 *
 * A matrix is packed in panels of 8 rows, a panel in chunks along k: 32 columns, or 256 for the K types. In a
 * block of 32 columns, vector v = 0..3 of nibbles has in byte 4r + j of its low half row r, k = 4v + j, of its
 * high half k = 16 + 4v + j; further bits of the same codes lie in vectors of the same byte order. After the codes
 * come the scales, [..][8 rows]. Panels follow each other without gaps, so a product reads one stream. Floats lie
 * in pairs of panels, [k][16 rows], the last pair whole.
 */
#ifndef PLUGINS_CPU_LINEAR_AVX2_H
#define PLUGINS_CPU_LINEAR_AVX2_H
#include "plugins/cpu/dequant.h"
#include "plugins/cpu/linear.h"
#include "plugins/cpu/unroll.h"
#include <immintrin.h>

enum {
	QK = 32,    /* columns of a block                                           */
	PANEL = 8,  /* rows of a panel: one per 32-bit lane                         */
	TILE_T = 6, /* a tile is at most 6 tokens x 2 panels: 12 accumulators of 16, */
	WIDE_T = 8, /* or, if there are no more tokens, 8 x 1 panel                  */
	TILE_R = 2,
	TILE_N = TILE_R * PANEL,
	PREFETCH = 4096,     /* bytes ahead in the weight stream                             */
	TILES_EVEN_MAX = 48, /* tokens that are cut into even tiles                         */
	PART_TOKENS = 264    /* tokens whose partial sums are kept between stretches         */
};
#define K_MAX (1u << 28)
#define N_MAX (1u << 30)

/* Tiles of tokens: sixes and a rest when there are many; few are cut as evenly as can be, wide tiles first; up to
 * `whole` are one. */
struct tiles {
	uint32_t n, width, n_wide; /* n_wide tiles of width + 1, then tiles of width */
	uint32_t m;
};

static inline struct tiles tiles_of(uint32_t m, uint32_t whole)
{
	const uint32_t n = m <= whole ? m != 0 : m / TILE_T + (m % TILE_T != 0);

	if (m > TILES_EVEN_MAX)
		return (struct tiles){ .n = n, .width = TILE_T, .m = m };
	return (struct tiles){ .n = n, .width = n ? m / n : 0, .n_wide = n ? m % n : 0, .m = m };
}
static inline uint32_t tiles_first(const struct tiles *t, uint32_t tile)
{
	return tile * t->width + (tile < t->n_wide ? tile : t->n_wide);
}
static inline uint32_t tiles_width(const struct tiles *t, uint32_t tile)
{
	const uint32_t width = t->width + (tile < t->n_wide), left = t->m - tiles_first(t, tile);

	return left < width ? left : width;
}
static inline uint32_t tiles_find(const struct tiles *t, uint32_t tok)
{
	const uint32_t wide = t->n_wide * (t->width + 1);

	return tok < wide ? tok / (t->width + 1) : t->n_wide + (tok - wide) / t->width;
}

/* Prepared activations: float scale[m], padded to 64 bytes, then tiles of T tokens, in each for every block:
 *   ACT_I8   uint32 q[8 k4][T]    four int8
 *            int16  corr[T][2]    -8 x sum of q over k % 4 in {0,1} and {2,3}: takes a zero point off in int16
 *            int16  s[T][2]       block scale 1..32767, twice; the block stands for scale * s * q
 *            float  ssum[T]       s x sum of q, for types with a minimum
 *            int16  corr16[T][2]  corr of the first 16 columns, for types with two scales in a block
 *   ACT_I16  uint32 q[16 k2][T]   two int16 */
enum { ACT_I8_BLOCK = 48, ACT_I16_BLOCK = 64, X_CORR = 8, X_S = 9, X_SSUM = 10, X_CORR16 = 11 };
enum { ACT_SLACK = 32 }; /* bytes behind the last tile that may be read, for vectors wider than it */

static inline size_t act_scales_bytes(uint32_t m) { return ((size_t)m * sizeof(float) + 63) & ~(size_t)63; }

/* Where results go: columns [0, jn) of c, row by row. */
struct store {
	float *c;
	size_t ldc;
	uint32_t jn;
};

/* The table's functions; see struct linear_ops. */
uint32_t avx2_act_class(uint32_t type, uint32_t precision, uint32_t n, uint32_t k);
uint64_t avx2_weight_bytes(uint32_t type, uint32_t precision, uint32_t n, uint32_t k);
uint64_t avx2_act_bytes(uint32_t act, uint32_t m, uint32_t k);
uint64_t avx2_scratch_bytes(void);
void avx2_row_f32(uint32_t type, const void *src, uint32_t k, uint64_t row, float *out);
void avx2_act_pack(uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1,
	void *dst);
void avx2_weight_pack(const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst);
/* The same with panels of 16 rows: each vector of one panel is followed by that of the next. Not for floats. */
void avx2_weight_pack_pairs(
	const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst);
size_t avx2_chunk_bytes(uint32_t type); /* bytes of a chunk; 0: unknown type */
uint32_t avx2_chunk_k(uint32_t type);	/* columns of a chunk                 */

/* Integer kernels of one type. They agree on the form of the scratch, so any can use what one unpack wrote. */
typedef void direct_fn(
	const uint8_t *panel, uint32_t nb, const uint8_t *a, const float *scale, const struct store *c);
typedef void unpack_fn(const uint8_t *panel, uint32_t b0, uint32_t b1, uint8_t *out);
/* Weights of two panels that are needed next; a tile fetches so many lines of each with every block. */
struct ahead {
	const uint8_t *p[TILE_R];
	uint32_t lines, done;
};
typedef void tile_fn(const uint8_t *w, uint32_t nb, const uint8_t *a, float *f, const struct ahead *ahead);

struct int_kernel {
	uint32_t act_block;	       /* bytes of a token's block in the prepared activations             */
	uint32_t kc;		       /* blocks of a stretch of k that is unpacked at a time              */
	uint32_t direct_max;	       /* tokens, WIDE_T at least, up to which panels are used directly    */
	unpack_fn *unpack;	       /* blocks [b0, b1) of a panel into its column (32 bytes) of scratch */
	direct_fn *direct[WIDE_T + 1]; /* one panel x T tokens, to c                             */
	tile_fn *tile[TILE_T + 1];     /* two unpacked panels x T tokens, into sums f[T][R][8]   */
};
const struct int_kernel *avx2_i8_kernel(uint32_t type);
const struct int_kernel *avx2_i16_kernel(uint32_t type);

/* linear_ops.run with given kernels; fn is not used for ACT_F32. */
void avx2_run_with(const struct int_kernel *fn, const struct linear_weight *w, const void *act, uint32_t m,
	uint32_t n0, uint32_t n1, float *c, size_t ldc, void *scratch);

/* Scratch of every path: unpacked weights (in L1) and partial sums. */
enum { SCR_BYTES = 20 << 10 };
struct scratch {
	_Alignas(64) uint8_t w[SCR_BYTES];
	_Alignas(64) float part[PART_TOKENS * TILE_N];
};

/* Float weights, and other weights with ACT_F32; see linear_ops.run. */
void avx2_float_run(const struct linear_weight *w, const float *x, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc);
void avx2_f32_run(const struct linear_weight *w, const float *x, uint32_t m, uint32_t n0, uint32_t n1,
	float *c, size_t ldc, struct scratch *scratch);

static inline int is_float(uint32_t type) { return type == TNP_F32 || type == TNP_F16 || type == TNP_BF16; }

/* Not for floats. */
static inline const uint8_t *panel_at(const struct linear_weight *w, uint32_t panel)
{
	return (const uint8_t *)w->data +
		(size_t)panel * (w->k / avx2_chunk_k(w->type)) * avx2_chunk_bytes(w->type);
}

/* Floats: pair of panels n / 16, [k][16]. */
static inline const uint8_t *pair_at(const struct linear_weight *w, uint32_t n)
{
	return (const uint8_t *)w->data + (size_t)(n / TILE_N) * w->k * 2 * avx2_chunk_bytes(w->type);
}

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE void store256(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }
INLINE __m256i bcast(const uint32_t *p) { return _mm256_castps_si256(_mm256_broadcast_ss((const float *)p)); }
INLINE __m256 bcast_f32(const uint32_t *p) { return _mm256_broadcast_ss((const float *)p); }
/* eight f16 scales */
INLINE __m256 scales_f16(const uint8_t *p) { return _mm256_cvtph_ps(load128(p)); }

/* out[v] = 32-bit words v of all rows, rows in order */
INLINE void transpose_words(const __m128i r[PANEL], __m256i out[4])
{
	__m256i p[4], a, b, c, d;

	UNROLL
	for (int i = 0; i < 4; i++)
		p[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(r[i]), r[i + 4], 1);
	a = _mm256_unpacklo_epi32(p[0], p[1]);
	b = _mm256_unpacklo_epi32(p[2], p[3]);
	c = _mm256_unpackhi_epi32(p[0], p[1]);
	d = _mm256_unpackhi_epi32(p[2], p[3]);
	out[0] = _mm256_unpacklo_epi64(a, b);
	out[1] = _mm256_unpackhi_epi64(a, b);
	out[2] = _mm256_unpacklo_epi64(c, d);
	out[3] = _mm256_unpackhi_epi64(c, d);
}

/* Stores up to 8 columns of one row. */
INLINE void store_cols(float *c, __m256 v, uint32_t n)
{
	float tmp[PANEL];

	if (n >= PANEL) {
		_mm256_storeu_ps(c, v);
		return;
	}
	_mm256_storeu_ps(tmp, v);
	for (uint32_t i = 0; i < n; i++)
		c[i] = tmp[i];
}

INLINE void ahead_fetch(const struct ahead *a, uint32_t b)
{
	for (size_t at = (size_t)b * a->lines * 64, n = a->lines; n; n--, at += 64)
		for (int r = 0; r < TILE_R; r++)
			_mm_prefetch((const char *)a->p[r] + at, _MM_HINT_T0);
}

/* A panel's sums f of T tokens, scaled, to c. */
INLINE void direct_store(const __m256 *f, const float *scale, const struct store *c, const int T)
{
	UNROLL
	for (int t = 0; t < T; t++)
		store_cols(c->c + t * c->ldc, _mm256_mul_ps(f[t], _mm256_set1_ps(scale[t])), c->jn);
}

/* ---- the steps that are assembly: compilers re-associate integer sums, hoist loads and then spill ---- */
#ifdef CPU_SANITIZED
INLINE __m256i mac16(__m256i acc, __m256i u, __m256i q)
{
	return _mm256_add_epi16(acc, _mm256_maddubs_epi16(u, q));
}
INLINE __m256i mac32(__m256i acc, __m256i u, __m256i q)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(u, q));
}
#define MUL16_2X1(a0, a1, u0, u1, p)                                                                         \
	do {                                                                                                 \
		(a0) = _mm256_maddubs_epi16((u0), bcast(p));                                                 \
		(a1) = _mm256_maddubs_epi16((u1), bcast(p));                                                 \
	} while (0)
#define MAC16_2X1(a0, a1, u0, u1, p)                                                                         \
	do {                                                                                                 \
		(a0) = mac16((a0), (u0), bcast(p));                                                          \
		(a1) = mac16((a1), (u1), bcast(p));                                                          \
	} while (0)
#define MAC32_2X1(a0, a1, u0, u1, p)                                                                         \
	do {                                                                                                 \
		(a0) = mac32((a0), (u0), bcast(p));                                                          \
		(a1) = mac32((a1), (u1), bcast(p));                                                          \
	} while (0)
#else
/* acc += maddubs(u, q), sums of pairs in int16, modulo 2^16 */
INLINE __m256i mac16(__m256i acc, __m256i u, __m256i q)
{
	__m256i t;

	__asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc), "=&x"(t) : "x"(u), "x"(q));
	return acc;
}
/* acc += madd(u, q), int16 pairs into int32 */
INLINE __m256i mac32(__m256i acc, __m256i u, __m256i q)
{
	__m256i t;

	__asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(t) : "x"(u), "x"(q));
	return acc;
}
/* one 32-bit word at p, broadcast, against two weight vectors: first products, then sums */
#define MUL16_2X1(a0, a1, u0, u1, p)                                                                         \
	__asm__ volatile("vpbroadcastd %2, %1\n\tvpmaddubsw %1, %3, %0\n\tvpmaddubsw %1, %4, %1"             \
			 : "=&x"(a0), "=&x"(a1)                                                              \
			 : "m"(*(p)), "x"(u0), "x"(u1))
#define MAC16_2X1(a0, a1, u0, u1, p)                                                                         \
	do {                                                                                                 \
		__m256i q_, t_;                                                                              \
		__asm__ volatile("vpbroadcastd %4, %2\n\tvpmaddubsw %2, %5, %3\n\tvpaddw %3, %0, %0\n\t"     \
				 "vpmaddubsw %2, %6, %2\n\tvpaddw %2, %1, %1"                                \
				 : "+x"(a0), "+x"(a1), "=&x"(q_), "=&x"(t_)                                  \
				 : "m"(*(p)), "x"(u0), "x"(u1));                                             \
	} while (0)
#define MAC32_2X1(a0, a1, u0, u1, p)                                                                         \
	do {                                                                                                 \
		__m256i q_, t_;                                                                              \
		__asm__ volatile("vpbroadcastd %4, %2\n\tvpmaddwd %2, %5, %3\n\tvpaddd %3, %0, %0\n\t"       \
				 "vpmaddwd %2, %6, %2\n\tvpaddd %2, %1, %1"                                  \
				 : "+x"(a0), "+x"(a1), "=&x"(q_), "=&x"(t_)                                  \
				 : "m"(*(p)), "x"(u0), "x"(u1));                                             \
	} while (0)
#endif
#endif
