/* SPDX-License-Identifier: Apache-2.0
 * Inside linear_vnni*.c: forms of packed weights and prepared activations of the AVX-512 VNNI variant.
 *
 * A panel has 16 rows: two of the AVX2 variant's panels, vector by vector. So a block of 32 columns has four vectors
 * of nibbles of 64 bytes, and each scale stands 16 times side by side; chunks, their order and all other bits are
 * as in linear_avx2.h. Matrices for ACT_F32 stay in that variant's form.
 *
 * Prepared activations: float scale[m], padded to 64 bytes, then groups of W = 4 tokens (the last of what is left),
 * in each for every block of 32 columns:
 *   ACT_I8   uint32 q[8 k4][W]    four int8
 *            float  s[W]          block scale; the block stands for scale * s * q
 *            float  ssum[W]       s x sum of q, for types with a minimum
 *            int32  zero[W]       -8 x sum of q
 *            int32  zero16[W]     the same of the first 16 columns
 *   ACT_I16  uint32 q[16 k2][W]   two int16
 * A group's form does not depend on what else is computed, so a kernel takes any groups together as its tile.
 */
#ifndef PLUGINS_CPU_LINEAR_VNNI_H
#define PLUGINS_CPU_LINEAR_VNNI_H
#include "plugins/cpu/linear_avx2_codes.h"

enum {
	VNNI_PANEL = 16,
	VNNI_GROUP = 4,
	VNNI_TILE = 12, /* tokens: 12 sums of a block, 12 of a row, and 8 registers more */
	X_BLOCK = ACT_I8_BLOCK / 4,
	X_SCALE = 8,
	X_MIN = 9,
	X_ZERO = 10,
	X_ZERO16 = 11,
	X16_BLOCK = ACT_I16_BLOCK / 4
};

void vnni_act_pack(uint32_t act, const float *x, size_t ldx, uint32_t m, uint32_t k, uint32_t m0, uint32_t m1,
	void *dst);
#endif
