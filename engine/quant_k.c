/* SPDX-License-Identifier: Apache-2.0
 * Super-blocks of 256 elements: sub-blocks of 16 or 32 with small integer scales (and minima) under one or two F16
 * factors. Sub-blocks are fitted alone first; their scales become integers under a common factor; then, a few times,
 * each sub-block tries the integers next to its own and the factors are solved again for the codes found.
 */
#include "engine/quant_priv.h"
#include <math.h>
#include <string.h>

enum { MAX_SUBS = 16, ROUNDS = 3 };

static inline float clamp(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }

/* ---- scales with a sign: Q3_K, Q6_K ----------------------------------------------------------------------------------- */

struct signed_k {
	struct quant_range code, scale;
	float d;
	int s[MAX_SUBS]; /* x ~ d s q, sub-blocks of 16 */
	int8_t q[QUANT_K];
};

/* Best integer near the one there is; the loss it leaves. */
static float signed_sub(const struct signed_k *k, const float *x, const float *w, int *s)
{
	float best = INFINITY;
	int at = *s;

	for (int t = at - 1; t <= at + 1; t++) {
		float loss;

		if ((float)t < k->scale.lo || (float)t > k->scale.hi)
			continue;
		loss = quant_loss(x, w, 16, k->d * (float)t, 0, k->code);
		if (loss < best) {
			best = loss;
			*s = t;
		}
	}
	return best;
}

static float signed_round(struct signed_k *k, const float *x, const float *w)
{
	float loss = 0;

	for (int j = 0; j < MAX_SUBS; j++)
		loss += signed_sub(k, x + 16 * j, w + 16 * j, &k->s[j]);
	return loss;
}

static void signed_codes(struct signed_k *k, const float *x)
{
	for (int j = 0; j < MAX_SUBS; j++)
		quant_codes(x + 16 * j, 16, k->d * (float)k->s[j], 0, k->code, k->q + 16 * j);
}

/* The factor that suits the codes best. */
static float signed_solve(const struct signed_k *k, const float *x, const float *w)
{
	double xa = 0, aa = 0;

	for (int i = 0; i < QUANT_K; i++) {
		double a = k->s[i / 16] * k->q[i];

		xa += w[i] * a * x[i];
		aa += w[i] * a * a;
	}
	return aa > 0 ? quant_f16_round((float)(xa / aa)) : k->d;
}

static void signed_fit(struct signed_k *k, const float *x, const float *w)
{
	float fit[MAX_SUBS], most = 0, loss;

	for (int j = 0; j < MAX_SUBS; j++) {
		fit[j] = quant_fit_scale(x + 16 * j, w + 16 * j, 16, k->code);
		most = fabsf(fit[j]) > fabsf(most) ? fit[j] : most;
	}
	k->d = quant_f16_round(most / k->scale.lo);
	for (int j = 0; j < MAX_SUBS; j++)
		k->s[j] = k->d != 0 ? (int)clamp(nearbyintf(fit[j] / k->d), k->scale.lo, k->scale.hi) : 0;
	loss = signed_round(k, x, w);
	signed_codes(k, x);
	for (int i = 0; i < ROUNDS && k->d != 0; i++) {
		struct signed_k t = *k;
		float left;

		t.d = signed_solve(k, x, w);
		left = signed_round(&t, x, w);
		if (!(left < loss))
			break;
		signed_codes(&t, x);
		loss = left;
		*k = t;
	}
}

void quant_q3_k(const float *x, const float *w, uint8_t *b)
{
	struct signed_k k = { .code = { -4, 3 }, .scale = { -32, 31 } };
	uint8_t *high = b, *qs = b + 32, *scales = b + 96;

	signed_fit(&k, x, w);
	memset(b, 0, 108);
	for (int i = 0; i < QUANT_K; i++) {
		int q = k.q[i] + 4;

		high[i % 32] |= (uint8_t)((q >> 2) << (i / 32));
		qs[i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << (i / 32 % 4 * 2));
	}
	for (int j = 0; j < MAX_SUBS; j++) {
		int s = k.s[j] + 32;

		scales[j % 8] |= (uint8_t)((s & 15) << (j / 8 * 4));
		scales[8 + j % 4] |= (uint8_t)((s >> 4) << (j / 4 * 2));
	}
	quant_f16_put(b + 108, k.d);
}

void quant_q6_k(const float *x, const float *w, uint8_t *b)
{
	struct signed_k k = { .code = { -32, 31 }, .scale = { -128, 127 } };
	uint8_t *ql = b, *qh = b + 128;

	signed_fit(&k, x, w);
	memset(b, 0, 192);
	for (int i = 0; i < QUANT_K; i++) {
		int q = k.q[i] + 32, half = i / 128, g = i / 32 % 4, l = i % 32;

		ql[half * 64 + g % 2 * 32 + l] |= (uint8_t)((q & 15) << (g / 2 * 4));
		qh[half * 32 + l] |= (uint8_t)((q >> 4) << (2 * g));
	}
	for (int j = 0; j < MAX_SUBS; j++)
		b[192 + j] = (uint8_t)k.s[j];
	quant_f16_put(b + 208, k.d);
}

/* ---- scale and minimum: Q2_K, Q4_K, Q5_K ----------------------------------------------------------------------------- */

struct affine_k { /* x ~ d s q - dmin m */
	struct quant_range code;
	int n_subs, size, most; /* sub-blocks, their elements, largest s and m */
	float d, dmin;
	int s[MAX_SUBS], m[MAX_SUBS];
	int8_t q[QUANT_K];
};

static float affine_sub(const struct affine_k *k, const float *x, const float *w, int *s, int *m)
{
	int s0 = *s, m0 = *m;
	float best = INFINITY;

	for (int t = s0 - 1; t <= s0 + 1; t++)
		for (int u = m0 - 1; u <= m0 + 1; u++) {
			float loss;

			if (t < 0 || u < 0 || t > k->most || u > k->most)
				continue;
			loss = quant_loss(x, w, k->size, k->d * (float)t, -k->dmin * (float)u, k->code);
			if (loss < best) {
				best = loss;
				*s = t;
				*m = u;
			}
		}
	return best;
}

static float affine_round(struct affine_k *k, const float *x, const float *w)
{
	float loss = 0;

	for (int j = 0; j < k->n_subs; j++)
		loss += affine_sub(k, x + k->size * j, w + k->size * j, &k->s[j], &k->m[j]);
	return loss;
}

static void affine_codes(struct affine_k *k, const float *x)
{
	for (int j = 0; j < k->n_subs; j++)
		quant_codes(x + k->size * j, k->size, k->d * (float)k->s[j], -k->dmin * (float)k->m[j],
			k->code, k->q + k->size * j);
}

/* Both factors by least squares for the codes there are; a factor that would turn negative stays as it was. */
static void affine_solve(struct affine_k *k, const float *x, const float *w)
{
	double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0, det, d, dmin;

	for (int i = 0; i < QUANT_K; i++) {
		int j = i / k->size;
		double a = k->s[j] * k->q[i], b = -k->m[j];

		aa += w[i] * a * a;
		ab += w[i] * a * b;
		bb += w[i] * b * b;
		xa += w[i] * a * x[i];
		xb += w[i] * b * x[i];
	}
	det = aa * bb - ab * ab;
	d = det > 0 ? (xa * bb - xb * ab) / det : aa > 0 ? (xa - k->dmin * ab) / aa : k->d;
	dmin = det > 0 ? (xb * aa - xa * ab) / det : k->dmin;
	if (d > 0)
		k->d = quant_f16_round((float)d);
	if (dmin > 0)
		k->dmin = quant_f16_round((float)dmin);
}

static int integer_of(float v, float unit, int most)
{
	return unit > 0 ? (int)clamp(nearbyintf(v / unit), 0, (float)most) : 0;
}

static void affine_fit(struct affine_k *k, const float *x, const float *w)
{
	float d[MAX_SUBS], m[MAX_SUBS], most_d = 0, most_m = 0, loss;

	for (int j = 0; j < k->n_subs; j++) {
		quant_fit_affine(x + k->size * j, w + k->size * j, k->size, k->code.hi, true, &d[j], &m[j]);
		most_d = fmaxf(most_d, d[j]);
		most_m = fmaxf(most_m, -m[j]);
	}
	k->d = quant_f16_round(most_d / (float)k->most);
	k->dmin = quant_f16_round(most_m / (float)k->most);
	for (int j = 0; j < k->n_subs; j++) {
		k->s[j] = integer_of(d[j], k->d, k->most);
		k->m[j] = integer_of(-m[j], k->dmin, k->most);
	}
	loss = affine_round(k, x, w);
	affine_codes(k, x);
	for (int i = 0; i < ROUNDS; i++) {
		struct affine_k t = *k;
		float left;

		affine_solve(&t, x, w);
		left = affine_round(&t, x, w);
		if (!(left < loss))
			break;
		affine_codes(&t, x);
		loss = left;
		*k = t;
	}
}

void quant_q2_k(const float *x, const float *w, uint8_t *b)
{
	struct affine_k k = { .code = { 0, 3 }, .n_subs = 16, .size = 16, .most = 15 };

	affine_fit(&k, x, w);
	memset(b, 0, 80);
	for (int j = 0; j < 16; j++)
		b[j] = (uint8_t)(k.s[j] | k.m[j] << 4);
	for (int i = 0; i < QUANT_K; i++)
		b[16 + i / 128 * 32 + i % 32] |= (uint8_t)(k.q[i] << (i / 32 % 4 * 2));
	quant_f16_put(b + 80, k.d);
	quant_f16_put(b + 82, k.dmin);
}

/* Six-bit scales and minima of eight sub-blocks in 12 bytes. */
static void put_sixes(const struct affine_k *k, uint8_t *p)
{
	for (int j = 0; j < 4; j++) {
		p[j] = (uint8_t)(k->s[j] | k->s[j + 4] >> 4 << 6);
		p[j + 4] = (uint8_t)(k->m[j] | k->m[j + 4] >> 4 << 6);
		p[j + 8] = (uint8_t)((k->s[j + 4] & 15) | (k->m[j + 4] & 15) << 4);
	}
}

static void put_k_nibbles(const int8_t *q, uint8_t *p)
{
	for (int i = 0; i < 128; i++) {
		int low = i / 32 * 64 + i % 32;

		p[i] = (uint8_t)((q[low] & 15) | (q[low + 32] & 15) << 4);
	}
}

void quant_q4_k(const float *x, const float *w, uint8_t *b)
{
	struct affine_k k = { .code = { 0, 15 }, .n_subs = 8, .size = 32, .most = 63 };

	affine_fit(&k, x, w);
	quant_f16_put(b, k.d);
	quant_f16_put(b + 2, k.dmin);
	put_sixes(&k, b + 4);
	put_k_nibbles(k.q, b + 16);
}

void quant_q5_k(const float *x, const float *w, uint8_t *b)
{
	struct affine_k k = { .code = { 0, 31 }, .n_subs = 8, .size = 32, .most = 63 };

	affine_fit(&k, x, w);
	quant_f16_put(b, k.d);
	quant_f16_put(b + 2, k.dmin);
	put_sixes(&k, b + 4);
	memset(b + 16, 0, 32);
	for (int i = 0; i < QUANT_K; i++)
		b[16 + i % 32] |= (uint8_t)((k.q[i] >> 4 & 1) << (i / 32));
	put_k_nibbles(k.q, b + 48);
}
