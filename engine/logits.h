/* SPDX-License-Identifier: Apache-2.0
 * What the sampler asks of a whole row of logits. A vocabulary of 50,000 is much for a loop that carries an index or calls exp:
 * these look at several numbers at a time, in plain C, with the same bits on every machine. Pure, any thread.
 */
#ifndef ENGINE_LOGITS_H
#define ENGINE_LOGITS_H
#include <stdint.h>

/* Index of the greatest finite x[i], the first among equals; -1: nothing is finite. */
int32_t logits_top(const float *x, uint32_t n);
/* Sum of exp((x[i] - top) * scale) over the finite x[i], none of which is above `top`; scale >= 0. Relative error below 1e-6. */
double logits_sum(const float *x, uint32_t n, float top, float scale);
/* A number that at least k of the finite x[i] reach, and not many more, for k up to n / LOGITS_BLOCK; else -infinity.
 * tops[n / LOGITS_BLOCK + 1]: scratch. */
enum { LOGITS_BLOCK = 64 };
float logits_floor(const float *x, uint32_t n, uint32_t k, float *tops);
#endif
