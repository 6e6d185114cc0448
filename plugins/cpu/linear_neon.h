/* SPDX-License-Identifier: Apache-2.0
 * Inside linear_neon*.c: forms of packed weights and prepared activations of the NEON variant.
 *
 * A matrix is packed in panels of 8 rows, a panel in chunks along k: 32 columns, or 256 for the K types. A group g =
 * 0..7 is four columns of a block of 32: byte 4r + j of its 32 bytes is row r, column 4g + j. Codes are cut in fields,
 * each a plane of vectors of that byte order:
 *   nibbles   4 vectors: v has group v in its low halves, group 4 + v in its high ones
 *   pairs     2 vectors: bits 2v, 2v + 1 of h are of group 4h + v
 *   bits      1 vector: bit g is of group g
 * After the codes of a chunk come its scales, [..][8 rows]. Panels follow each other without gaps.
 */
#ifndef PLUGINS_CPU_LINEAR_NEON_H
#define PLUGINS_CPU_LINEAR_NEON_H
#include "plugins/cpu/dequant.h"
#include "plugins/cpu/linear.h"
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
	QK = 32,   /* columns of a block                                                       */
	PANEL = 8, /* rows of a panel: two vectors of int32                                    */
	TILE_T = 4 /* tokens of a tile: 8 sums of integers, 8 of floats, 4 vectors of activations */
};
#define K_MAX (1u << 28)
#define N_MAX (1u << 30)

/* Chunks: codes of all blocks, then scales. K types: scales [16][8], or [8][8] and minima [8][8], f16 d[8], f16 dmin[8];
 * the others: f16 d[8], f16 m[8]. */
struct neon_form {
	uint16_t k, bytes; /* columns and bytes of a chunk; k 1: floats */
};
/* NULL: unknown type */
const struct neon_form *neon_form(uint32_t type);

void neon_weight_pack(const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst);

/* Prepared activations: float scale[m], padded to 64 bytes, then rows of blocks:
 *   ACT_I8    int8 q[32], struct neon_block; the block stands for scale * s * q
 *   ACT_I16   int8 hi[32], int8 lo[32]: scale * (256 hi + lo) */
struct neon_block {
	float s;
	float sum, half[2]; /* s x sum of q: of all columns, of each 16 */
};
enum { ACT_I8_BLOCK = QK + sizeof(struct neon_block), ACT_I16_BLOCK = 2 * QK };

static inline size_t act_scales_bytes(uint32_t m) { return ((size_t)m * sizeof(float) + 63) & ~(size_t)63; }

void neon_act_pack(uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1,
	void *dst);
#endif
