/* SPDX-License-Identifier: Apache-2.0
 * Fits of one block by search: a grid of scales around the one that maps the largest element to the last code; for each
 * the codes by rounding, then the scale that is best for those codes in closed form (least squares), judged by the error
 * that it leaves; the winner is rounded and solved again until it stands still. Sums run in eight lanes, so that
 * compilers can vectorise them without changing a bit.
 */
#include "engine/quant_priv.h"
#include "plugins/cpu/half.h"
#include <math.h>

enum { REFINE = 4 };

float quant_f16_round(float v) { return half_to_float(half_from_float(v)); }

void quant_f16_put(uint8_t *p, float v)
{
	uint16_t h = half_from_float(v);

	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

/* Nearest integer, ties to even, for |v| < 2^22. */
static inline float nearest(float v) { return v + 0x1.8p23f - 0x1.8p23f; }

static inline float code(float v, struct quant_range r)
{
	v = v < r.lo ? r.lo : v;
	return nearest(v > r.hi ? r.hi : v);
}

static float lanes_sum(const float *s)
{
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static inline float inverse(float d) { return d != 0 ? 1 / d : 0; }

void quant_codes(const float *x, int n, float d, float m, struct quant_range r, int8_t *q)
{
	float id = inverse(d);

	for (int i = 0; i < n; i++)
		q[i] = (int8_t)code((x[i] - m) * id, r);
}

float quant_loss(const float *x, const float *w, int n, float d, float m, struct quant_range r)
{
	float sum[QUANT_LANES] = { 0 }, id = inverse(d);

	for (int i = 0; i < n; i += QUANT_LANES)
		for (int l = 0; l < QUANT_LANES; l++) {
			float u = x[i + l] - m, e = u - d * code(u * id, r);

			sum[l] += w[i + l] * e * e;
		}
	return lanes_sum(sum);
}

/* ---- a scale alone --------------------------------------------------------------------------------------------------- */

/* Best d for the codes that id = 1/d gives; what it takes off the error sum w x^2. */
static float gain_scale(const float *x, const float *w, int n, float id, struct quant_range r, float *d)
{
	float xq[QUANT_LANES] = { 0 }, qq[QUANT_LANES] = { 0 }, a, b;

	for (int i = 0; i < n; i += QUANT_LANES)
		for (int l = 0; l < QUANT_LANES; l++) {
			float q = code(x[i + l] * id, r), wq = w[i + l] * q;

			xq[l] += wq * x[i + l];
			qq[l] += wq * q;
		}
	a = lanes_sum(xq);
	b = lanes_sum(qq);
	*d = b > 0 ? a / b : 0;
	return b > 0 ? a * *d : 0;
}

static float largest(const float *x, int n)
{
	float most = 0;

	for (int i = 0; i < n; i++)
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	return most;
}

/* The grid: codes that the largest element may get, in steps fine enough for the width of the codes. A range that is
 * longer below zero is tried both ways round. */
float quant_fit_scale(const float *x, const float *w, int n, struct quant_range r)
{
	float most = largest(x, n), best = -1, d = 0, end = r.hi > -r.lo ? r.hi : -r.lo;
	float from = end > 64 ? end - 2 : end * 0.75f, to = end > 64 ? end + 0.5f : end * 1.2f;
	float step = (to - from) / (end > 64 ? 5 : 18);

	if (!(fabsf(most) >= 0x1p-120f))
		return 0;
	for (int sign = -1; sign <= (r.lo < -r.hi ? 1 : -1); sign += 2)
		for (float c = from; c <= to; c += step) {
			float id = (float)sign * c / most, t, gain = gain_scale(x, w, n, id, r, &t);

			if (gain > best) {
				best = gain;
				d = t;
			}
		}
	for (int k = 0; k < REFINE && d != 0; k++) {
		float t, gain = gain_scale(x, w, n, 1 / d, r, &t);

		if (!(gain > best))
			break;
		best = gain;
		d = t;
	}
	return d;
}

/* ---- scale and minimum ------------------------------------------------------------------------------------------------ */

struct affine { /* x ~ d q + m; x and m are taken from the block's smallest element, so that sums do not cancel */
	float d, m, loss;
};

/* Codes by `from`, then d and m by least squares, m at most `top`. */
static struct affine solve(const float *x, const float *w, int n, float hi, float top, struct affine from)
{
	float s1[QUANT_LANES] = { 0 }, sq[QUANT_LANES] = { 0 }, sqq[QUANT_LANES] = { 0 },
	      sx[QUANT_LANES] = { 0 }, sxq[QUANT_LANES] = { 0 }, sxx[QUANT_LANES] = { 0 },
	      id = inverse(from.d);
	float a, b, c, u, v, det;
	struct affine out = from;

	for (int i = 0; i < n; i += QUANT_LANES)
		for (int l = 0; l < QUANT_LANES; l++) {
			float xi = x[i + l], wi = w[i + l];
			float q = code((xi - from.m) * id, (struct quant_range){ 0, hi }), wq = wi * q;

			s1[l] += wi;
			sq[l] += wq;
			sqq[l] += wq * q;
			sx[l] += wi * xi;
			sxq[l] += wq * xi;
			sxx[l] += wi * xi * xi;
		}
	a = lanes_sum(sqq), b = lanes_sum(sq), c = lanes_sum(s1), u = lanes_sum(sxq), v = lanes_sum(sx);
	det = a * c - b * b;
	if (det > 0) {
		out.d = (u * c - v * b) / det;
		out.m = (v * a - u * b) / det;
	}
	if (det <= 0 || out.m > top || out.d < 0) {
		out.m = from.m < top ? from.m : top;
		out.d = a > 0 ? (u - out.m * b) / a : 0;
	}
	out.loss = lanes_sum(sxx) - 2 * (out.d * u + out.m * v) +
		(out.d * out.d * a + 2 * out.d * out.m * b + out.m * out.m * c);
	return out;
}

void quant_fit_affine(const float *x, const float *w, int n, float hi, bool below, float *d, float *m)
{
	float lo = x[0], high = x[0], y[QUANT_BLOCK], top;
	struct affine best = { 0, 0, INFINITY };

	for (int i = 1; i < n; i++) {
		lo = x[i] < lo ? x[i] : lo;
		high = x[i] > high ? x[i] : high;
	}
	if (below && lo > 0)
		lo = 0;
	for (int i = 0; i < n; i++)
		y[i] = x[i] - lo;
	top = below ? -lo : INFINITY;
	*d = 0;
	*m = lo;
	if (!(high - lo >= 0x1p-120f))
		return;
	for (int k = -9; k <= 10; k++) {
		struct affine t = { (high - lo) / (hi + 0.1f * (float)k), 0, 0 };

		t = solve(y, w, n, hi, top, t);
		if (hi < 8)
			t = solve(y, w, n, hi, top, t);
		best = t.loss < best.loss ? t : best;
	}
	for (int k = 0; k < REFINE; k++) {
		struct affine t = solve(y, w, n, hi, top, best);

		if (!(t.loss < best.loss))
			break;
		best = t;
	}
	*d = best.d > 0 ? best.d : 0;
	*m = best.m + lo;
}

/* ---- given levels ------------------------------------------------------------------------------------------------------ */

static int level_of(float v, const int8_t *level)
{
	int i = 0;

	for (int k = 1; k < 16; k++)
		i += v > 0.5f * (float)(level[k - 1] + level[k]);
	return i;
}

void quant_codes_levels(const float *x, int n, float d, const int8_t *level, int8_t *q)
{
	float id = inverse(d);

	for (int i = 0; i < n; i++)
		q[i] = (int8_t)level_of(x[i] * id, level);
}

static float gain_levels(const float *x, const float *w, int n, float id, const int8_t *level, float *d)
{
	float a = 0, b = 0;

	for (int i = 0; i < n; i++) {
		float q = level[level_of(x[i] * id, level)];

		a += w[i] * q * x[i];
		b += w[i] * q * q;
	}
	*d = b > 0 ? a / b : 0;
	return b > 0 ? a * *d : 0;
}

float quant_fit_levels(const float *x, const float *w, int n, const int8_t *level)
{
	float most = largest(x, n), best = -1, d = 0;

	if (!(fabsf(most) >= 0x1p-120f))
		return 0;
	for (int sign = -1; sign <= 1; sign += 2)
		for (float c = 90; c <= 145; c += 5) {
			float t, gain = gain_levels(x, w, n, (float)sign * c / most, level, &t);

			if (gain > best) {
				best = gain;
				d = t;
			}
		}
	for (int k = 0; k < REFINE && d != 0; k++) {
		float t, gain = gain_levels(x, w, n, 1 / d, level, &t);

		if (!(gain > best))
			break;
		best = gain;
		d = t;
	}
	return d;
}
