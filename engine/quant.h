/* SPDX-License-Identifier: Apache-2.0
 * Encoders of the weight types: floats to the blocks that GGUF files hold. Each searches for the scales with the least
 * (weighted) squared error; decoding is plugins/cpu/dequant.h's, which agrees with plugins/ref. Pure functions of their
 * arguments, the same bytes on every machine and for every number of threads. [any thread]
 */
#ifndef ENGINE_QUANT_H
#define ENGINE_QUANT_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every type that Tenon multiplies with: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K..Q6_K, IQ4_NL. */
bool quant_can(uint32_t type);
/* "Q4_K", any case. False: no such type, or none that can be written. */
bool quant_type_find(const char *name, uint32_t *type);

/* n elements, whole blocks, all finite. weight: [n], >= 0, what an element's squared error counts; NULL: all alike. F16
 * is rounded to nearest and clamped to its range. */
void quant_encode(uint32_t type, const float *x, const float *weight, size_t n, void *out);
void quant_decode(uint32_t type, const void *src, size_t n, float *out);

struct quant_error {	      /* sums over elements; add those of parts up */
	double signal, noise; /* x^2 and (x - decoded)^2 */
	double weighted_signal,
		weighted_noise; /* the same, times the weight; equal to the above without weights */
	float most;		/* largest |x - decoded| */
};
/* Encodes n elements as above, decodes them into `scratch` [n] and adds up what was lost. */
void quant_encode_measured(uint32_t type, const float *x, const float *weight, size_t n, void *out,
	float *scratch, struct quant_error *sum);
double quant_error_relative(
	const struct quant_error *e); /* sqrt(noise / signal); 0 where there is no signal */
#endif
