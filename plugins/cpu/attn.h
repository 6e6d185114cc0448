/* SPDX-License-Identifier: Apache-2.0
 * Paged attention. Keys are visited in tiles of 32 by absolute position, whatever the page size; tiles form segments
 * of 256 keys whose states are merged in ascending order. All float operations of a query row depend on that row
 * and the keys it sees, so any chunking, batch or thread count gives the same bits.
 *
 * A page of one KV head, T tokens, head size rounded up to d = 8n:
 *   F32, F16:  k [d][T]  v [T][d]
 *   Q8_0:      k int8 [d][T]  v int8 [T][d]  k scales f16 [d/32 up][T]  v scales f16 [T][d/32 up]
 *   Q4_0:      k [d/2][T]     v [T][d/2]     scales as for Q8_0; a byte holds dimensions 2i (low half) and 2i + 1
 * Unused tokens and padded dimensions are finite.
 */
#ifndef PLUGINS_CPU_ATTN_H
#define PLUGINS_CPU_ATTN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <tenon/plugin.h>

enum {
	ATTN_TILE = 32,
	ATTN_HALF = 16,
	ATTN_SEGMENT = 256,
	ATTN_ROWS = 6,
	ATTN_MANY = 24,
	ATTN_STATE_HEAD = 16
};

struct attn_shape {			 /* fixed for a layer */
	uint32_t type;			 /* TNP_F32, TNP_F16, TNP_Q8_0, TNP_Q4_0: how pages are stored */
	uint32_t dim, pad, page;	 /* head size, rounded up to 8, tokens of a page */
	uint32_t heads, kv_heads, group; /* group = heads / kv_heads */
	uint32_t window;		 /* 0: sees everything before */
	float scale;			 /* of the scores, times log2(e) where cap == 0 */
	float cap;			 /* 0: none */
};

/* 16 keys of one KV head inside a page. */
struct attn_half {
	const uint8_t *head; /* start of the head's block */
	uint32_t token;	     /* first token, a multiple of 16 */
};

/* State of one query row: m, 7 unused, l[8], o[pad]. */
static inline size_t attn_state_floats(uint32_t pad) { return ATTN_STATE_HEAD + pad; }
uint64_t attn_head_bytes(
	uint32_t type, uint32_t dim, uint32_t page); /* page of one KV head, a multiple of 64 */
static inline bool attn_has_scales(uint32_t type) { return type == TNP_Q8_0 || type == TNP_Q4_0; }
/* Bytes of the keys, or of the values, of one head in a page. */
static inline size_t attn_plane(uint32_t type, uint32_t pad, uint32_t page)
{
	size_t n = (size_t)pad * page;

	return type == TNP_F32 ? 4 * n : type == TNP_F16 ? 2 * n : type == TNP_Q8_0 ? n : n / 2;
}
static inline uint32_t attn_pad(uint32_t dim) { return (dim + 7) & ~7u; }

static inline uint32_t attn_blocks(uint32_t pad) { return (pad + 31) / 32; }
/* A widened tile: k [pad][32], v [32][pad], and room for scales of both [attn_blocks][32] (kernels that keep them apart). */
static inline size_t attn_wide_floats(uint32_t pad)
{
	return 2 * (size_t)ATTN_TILE * (pad + attn_blocks(pad));
}
static inline float *attn_wide_scales(const struct attn_shape *s, const float *tile)
{
	return (float *)(uintptr_t)tile + 2 * (size_t)ATTN_TILE * s->pad;
}

struct attn_ops {
	/* Rounds one token's key and value to the pool's type and stores them as token `at` of the page. Values that
	 * the type cannot hold are clamped, so that nothing stored is infinite or NaN. */
	void (*store)(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v);
	/* Two halves as floats, attn_wide_floats of them. */
	void (*widen)(const struct attn_shape *s, const struct attn_half half[2], float *tile);
	/* The same from n <= 32 rows of this step's k and v (row stride ld), zeros behind. */
	void (*gather)(const struct attn_shape *s, const float *k, const float *v, size_t ldk, size_t ldv,
		uint32_t n, float *tile);
	/* One tile for n <= ATTN_MANY rows; row i sees keys lo[i] <= key < hi[i] of the tile and is left alone when there
	 * are none. q [n][pad] is scaled; st + i * stride is row i's state. */
	void (*tile_wide)(const struct attn_shape *s, const float *tile, uint32_t n, const float *q,
		const int32_t *lo, const int32_t *hi, float *st, size_t stride);
	/* n <= ATTN_ROWS rows straight from the pages; the same bits. half[2], half[3]: keys to fetch meanwhile. */
	void (*tile_page)(const struct attn_shape *s, const struct attn_half half[4], uint32_t n,
		const float *q, const int32_t *lo, const int32_t *hi, float *st, size_t stride);
	void (*merge)(uint32_t pad, const float *from, float *into); /* `into` holds the earlier keys */
	void (*finish)(uint32_t dim, const float *st, float *out);   /* o / sum(l)                    */
};

/* `gather` of all variants. */
void attn_gather(const struct attn_shape *s, const float *k, const float *v, size_t ldk, size_t ldv,
	uint32_t n, float *tile);
/* Scales of a tile in pages: keys have them [block][page], values [token][blocks]. out: both [block][ATTN_TILE].
 * Not of the plain variant. */
void attn_scales_gather(const struct attn_shape *s, const struct attn_half half[2], float *out);

extern const struct attn_ops attn_base;
#if defined(__x86_64__)
extern const struct attn_ops attn_avx2, attn_avx512;
#elif defined(__aarch64__)
extern const struct attn_ops attn_neon;
#endif

static inline void attn_state_init(float *st, uint32_t pad)
{
	memset(st, 0, attn_state_floats(pad) * sizeof *st);
	st[0] = -1e30f;
}
#endif
