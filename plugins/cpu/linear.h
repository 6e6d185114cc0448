/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of the CPU plugin: c[m][n] = x[m][k] * W[n][k]^T, weights in any GGUF type. Inside the plugin
 * only. An ISA variant (linear_base.c, linear_avx2.c, later others) is one table of these functions; nothing in
 * a variant's translation unit runs before the table was chosen.
 *
 * Border between the graph interpreter (exec.c: threads, memory, order) and the kernels (no threads, no memory):
 * the kernels are pure functions over ranges, so the caller may cut the work as it likes.
 *
 * Invariance: c[i][j] depends on row i of x and row j of W only. For one output the float additions run along k
 * ascending, one accumulator, one order, whatever m, the range or the thread; k is never split.
 * Input: infinities and NaN in x may give any value in the same row of c, in no other row, and never a fault.
 * Tails: any n >= 1 and k >= 1 that the weight type's block divides.
 */
#ifndef PLUGINS_CPU_LINEAR_H
#define PLUGINS_CPU_LINEAR_H
#include <tenon/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How activations are prepared. One prepared block serves every product over the same x and class. */
enum act_class {
	ACT_F32, /* as they are: EXACT, and F32/F16/BF16 weights                                   */
	ACT_I8,	 /* int8, an integer scale a block of 32 and a float scale a row: 4- to 6-bit types */
	ACT_I16, /* int16, a float scale a row: Q8_0, IQ4_NL                                        */
	ACT_N_CLASSES
};

/* Weight matrix as prepared by `weight_pack`. The caller owns `data` (64-byte aligned; may be the mapped file
 * itself where weight_bytes said 0: used in place). */
struct linear_weight {
	uint32_t type, precision; /* TNP_Q4_1 ..., TNP_FAST | TNP_EXACT */
	uint32_t act;		  /* enum act_class                     */
	uint32_t n, k;		  /* rows (outputs), columns            */
	const void *data;
};

struct linear_ops {
	const char *isa; /* "baseline", "avx2", "avxvnni", "avx512vnni", "neon-dotprod" */
	/* Class for a product, or ACT_N_CLASSES when this variant does not take it. Pure. */
	uint32_t (*act_class)(uint32_t type, uint32_t precision, uint32_t n, uint32_t k);
	/* Bytes of the packed form; 0: the file's bytes are used in place. */
	uint64_t (*weight_bytes)(uint32_t type, uint32_t precision, uint32_t n, uint32_t k);
	/* Rows are packed, cut and computed in groups of `panel_rows`: ranges n0, n1 below are multiples of it (n1
	 * may also be n). */
	uint32_t panel_rows;
	/* Packs rows [n0, n1) of `src` (GGUF layout, whole matrix) into their place in `dst` (whole matrix). */
	void (*weight_pack)(
		const struct linear_weight *w, const void *src, uint32_t n0, uint32_t n1, void *dst);

	/* Prepared activations of m rows. `act_rows`: rows are prepared in groups of this many (a tile); ranges
	 * m0, m1 are multiples of it (m1 may also be m). For ACT_F32 act_bytes may be 0: x is used in place and
	 * `act` below is then x itself with row stride ldx == k. */
	uint32_t act_rows;
	uint64_t (*act_bytes)(uint32_t act, uint32_t m, uint32_t k);
	void (*act_pack)(uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0,
		uint32_t m1, void *dst);

	/* c[i][j] for all i < m and n0 <= j < n1; c points at column 0 of row 0. `scratch`: scratch_bytes() of the
	 * calling thread, 64-byte aligned. */
	uint64_t (*scratch_bytes)(void);
	void (*run)(const struct linear_weight *w, const void *act, uint32_t m, uint32_t n0, uint32_t n1,
		float *c, size_t ldc, void *scratch);

	/* Dequantises row `row` of a matrix in GGUF layout (EMBED). */
	void (*row_f32)(uint32_t type, const void *src, uint32_t k, uint64_t row, float *out);
};

/* The variants built in: the first everywhere, the others for their processors. linear_avx2 needs AVX2, FMA and F16C;
 * linear_avxvnni AVX-VNNI as well, linear_vnni AVX-512 F, BW, VL and VNNI; both give the bits of linear_avx2.
 * linear_neon needs NEON with dot products (sdot). */
extern const struct linear_ops linear_base;
#if defined(__x86_64__)
extern const struct linear_ops linear_avx2, linear_avxvnni, linear_vnni;
#elif defined(__aarch64__)
extern const struct linear_ops linear_neon;
#endif
#endif
