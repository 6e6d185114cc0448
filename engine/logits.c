/* SPDX-License-Identifier: Apache-2.0
 * See logits.h. A lane that is not finite counts as -infinity: it is no maximum, and its weight is zero.
 */
#include "engine/logits.h"
#include "base/base.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 4, STREAMS = 4 }; /* a vector of every 64-bit machine; sums and maxima in flight */
#define EXPONENT 0x7f800000
#define LOG2_E	 1.44269504f
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef double doubles __attribute__((vector_size(4 * LANES))); /* half as many */
typedef int32_t words __attribute__((vector_size(4 * LANES)));

static inline words pick(words mask, words a, words b) { return (a & mask) | (b & ~mask); }

static inline floats load(const float *x)
{
	words bits;

	memcpy(&bits, x, sizeof bits);
	return (floats)pick((bits & EXPONENT) != EXPONENT, bits, (words)((floats){ 0 } - INFINITY));
}

static inline floats greater(floats a, floats b) { return (floats)pick(a > b, (words)a, (words)b); }

/* ---- maxima ---------------------------------------------------------------------------------------------- */

static float block_top(const float *x, uint32_t n)
{
	floats top[STREAMS];
	float lane[LANES], most = -INFINITY;
	uint32_t i = 0;

	for (uint32_t j = 0; j < STREAMS; j++)
		top[j] = (floats){ 0 } - INFINITY;
	for (; i + STREAMS * LANES <= n; i += STREAMS * LANES)
		for (uint32_t j = 0; j < STREAMS; j++)
			top[j] = greater(load(x + i + j * LANES), top[j]);
	top[0] = greater(greater(top[0], top[1]), greater(top[2], top[3]));
	memcpy(lane, &top[0], sizeof lane);
	for (uint32_t j = 0; j < LANES; j++)
		most = lane[j] > most ? lane[j] : most;
	for (; i < n; i++)
		most = isfinite(x[i]) && x[i] > most ? x[i] : most;
	return most;
}

int32_t logits_top(const float *x, uint32_t n)
{
	float most = -INFINITY;
	uint32_t at = n;

	for (uint32_t i = 0; i < n; i += LOGITS_BLOCK) {
		float top = block_top(x + i, MIN_OF(LOGITS_BLOCK, n - i));

		if (top > most) {
			most = top;
			at = i;
		}
	}
	if (at == n)
		return -1;
	while (x[at] != most)
		at++;
	return (int32_t)at;
}

static int descending(const void *a, const void *b)
{
	float x, y;

	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x < y) - (x > y);
}

/* The k-th greatest of the blocks' maxima: k blocks reach it. */
float logits_floor(const float *x, uint32_t n, uint32_t k, float *tops)
{
	uint32_t blocks = 0;

	for (uint32_t i = 0; i < n; i += LOGITS_BLOCK)
		tops[blocks++] = block_top(x + i, MIN_OF(LOGITS_BLOCK, n - i));
	if (!k || k > blocks)
		return -INFINITY;
	qsort(tops, blocks, sizeof *tops, descending);
	return tops[k - 1];
}

/* ---- weights ----------------------------------------------------------------------------------------------- */

/* 2^x for x <= 0; below -126: 0. Polynomial of degree 5 on [-0.5, 0.5], relative error below 3e-7. */
static inline floats exp2_neg(floats x)
{
	const floats magic = (floats){ 0 } + 12582912.0f; /* adding it rounds to a whole number */
	words seen = x >= -126.0f;
	floats n, f, p;

	x = (floats)((words)x & seen);
	n = (x + magic) - magic;
	f = x - n;
	p = f * 1.326697039e-03f + 9.675459746e-03f;
	p = p * f + 5.550742616e-02f;
	p = p * f + 2.402212175e-01f;
	p = p * f + 6.931469492e-01f;
	p = p * f + 1.0f;
	return (floats)(((words)p + (__builtin_convertvector(n, words) << 23)) & seen);
}

double logits_sum(const float *x, uint32_t n, float top, float scale)
{
	doubles even = { 0 }, odd = { 0 };
	double all;
	uint32_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		floats w = exp2_neg((load(x + i) - top) * (scale * LOG2_E));

		even += (doubles){ (double)w[0], (double)w[2] };
		odd += (doubles){ (double)w[1], (double)w[3] };
	}
	all = even[0] + even[1] + odd[0] + odd[1];
	for (; i < n; i++)
		if (isfinite(x[i]))
			all += exp(((double)x[i] - top) * scale);
	return all;
}
