/* SPDX-License-Identifier: Apache-2.0
 * Inside the encoders: fits of one block (quant_fit.c) and the super-blocks of 256 (quant_k.c).
 */
#ifndef ENGINE_QUANT_PRIV_H
#define ENGINE_QUANT_PRIV_H
#include "engine/quant.h"

enum { QUANT_LANES = 8, QUANT_BLOCK = 32, QUANT_K = 256 };

struct quant_range { /* of integer codes */
	float lo, hi;
};

/* All n are multiples of QUANT_LANES, at most QUANT_BLOCK; w > 0 somewhere. */

/* x ~ d q with q in the range: the d of least weighted error found. 0 for a block of zeros. */
float quant_fit_scale(const float *x, const float *w, int n, struct quant_range r);
/* x ~ d q + m with q in 0..hi; with `below`, m <= 0. d >= 0. */
void quant_fit_affine(const float *x, const float *w, int n, float hi, bool below, float *d, float *m);
/* x ~ d level[q], 16 ascending levels. */
float quant_fit_levels(const float *x, const float *w, int n, const int8_t *level);

/* Codes of a fit as they are stored (d and m after rounding). */
void quant_codes(const float *x, int n, float d, float m, struct quant_range r, int8_t *q);
void quant_codes_levels(const float *x, int n, float d, const int8_t *level, int8_t *q);
/* Weighted squared error of those codes. */
float quant_loss(const float *x, const float *w, int n, float d, float m, struct quant_range r);

float quant_f16_round(float v); /* to the nearest F16, clamped */
void quant_f16_put(uint8_t *p, float v);

/* One super-block of 256. */
void quant_q2_k(const float *x, const float *w, uint8_t *b);
void quant_q3_k(const float *x, const float *w, uint8_t *b);
void quant_q4_k(const float *x, const float *w, uint8_t *b);
void quant_q5_k(const float *x, const float *w, uint8_t *b);
void quant_q6_k(const float *x, const float *w, uint8_t *b);
#endif
