/* SPDX-License-Identifier: Apache-2.0
 * Attention kernels of the AVX2 variant that the AVX-512 variant uses too; see attn.h.
 */
#ifndef PLUGINS_CPU_ATTN_AVX2_H
#define PLUGINS_CPU_ATTN_AVX2_H
#include "attn.h"

void attn_avx2_store(const struct attn_shape *s, uint8_t *head, uint32_t at, const float *k, const float *v);
void attn_avx2_merge(uint32_t pad, const float *from, float *into);
void attn_avx2_finish(uint32_t dim, const float *st, float *out);
#endif
