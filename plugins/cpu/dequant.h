/* SPDX-License-Identifier: Apache-2.0
 * GGUF element types to f32, portable. The one place that knows how the bytes of each type lie; the packers of
 * the ISA variants start from the same split forms. Pure functions, nothing is checked here: callers pass whole
 * blocks that lie inside the tensor. Sources need no alignment.
 */
#ifndef PLUGINS_CPU_DEQUANT_H
#define PLUGINS_CPU_DEQUANT_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DEQUANT_K = 256 }; /* elements in a super-block of the K types */

/* A super-block of a K type: w[i] = d * sc[i / 16] * (q[i] - zero) - dmin * mn[i / 16]; types whose scales cover 32
 * elements have each scale twice. */
struct dequant_k {
	uint16_t d, dmin; /* f16 */
	int8_t sc[16];
	uint8_t mn[16];
	int32_t zero;
	uint8_t q[DEQUANT_K];
};

/* Elements and bytes of one block; 0 when the type is unknown here. */
uint32_t dequant_block(uint32_t type);
uint32_t dequant_block_bytes(uint32_t type);

/* n elements from the start of `src`; n is a multiple of the block. */
void dequant_f32(uint32_t type, const void *src, size_t n, float *out);
/* Takes one super-block of a K type apart. */
void dequant_split_k(uint32_t type, const void *src, struct dequant_k *out);

extern const int8_t dequant_iq4nl[16]; /* value of each 4-bit code of IQ4_NL */

static inline uint16_t dequant_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

/* Exact for every f16, subnormals, infinities and NaN included. */
static inline float dequant_f16(uint16_t h)
{
	const uint32_t exp_mant = (uint32_t)(h & 0x7fff) << 13;
	const uint32_t inf = exp_mant >= 0x0f800000 ? 0x7f800000 : 0;
	uint32_t bits = exp_mant;
	float f;

	memcpy(&f, &bits, sizeof f);
	f *= 0x1p112f;
	memcpy(&bits, &f, sizeof bits);
	bits |= inf | (uint32_t)(h & 0x8000) << 16;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline float dequant_bf16(uint16_t h)
{
	const uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}
#endif
