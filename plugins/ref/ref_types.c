/* SPDX-License-Identifier: Apache-2.0
 * Stored types of opset 1: what each block of bytes means, as doubles. Blocks are little-endian; a row is whole
 * blocks. Integer times scale (plus minimum) is formed in double, so nothing is rounded.
 */
#include "ref.h"
#include <math.h>
#include <string.h>

/* Widening is exact: the exponent moves from bias 15 to 1023, the fraction from 10 to 52 bits. */
static double f16_value(const uint8_t *p)
{
	uint64_t h = (uint64_t)p[0] | (uint64_t)p[1] << 8, exp = h >> 10 & 31, frac = h & 1023, bits;
	double v;

	if (exp == 0) {
		v = (double)frac * 0x1p-24;
		return h >> 15 ? -v : v;
	}
	bits = h >> 15 << 63 | (exp == 31 ? 2047 : exp + 1008) << 52 | frac << 42;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* Nearest, ties to even; the value is a float already. Too large becomes infinity. */
static uint16_t f16_bits(double x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double a = fabs(x), unit;
	int exp;

	if (isnan(x))
		return 0x7e00;
	if (a >= 65520.0)
		return sign | 0x7c00;
	(void)frexp(a, &exp); /* a = m * 2^exp, 0.5 <= m < 1 */
	if (exp < -13)
		exp = -13; /* below this numbers are subnormal and the step stays */
	unit = ldexp(1.0, exp - 11);
	a = nearbyint(a / unit); /* 0..2048, carries into the exponent by itself */
	return (uint16_t)(sign | ((uint32_t)(exp + 13) * 1024 + (uint32_t)a));
}

static void f16_store(uint8_t *p, double x)
{
	uint16_t h = f16_bits((double)(float)x);

	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

static double f32_value(const uint8_t *p)
{
	float f;

	memcpy(&f, p, 4);
	return f;
}

static void block_f32(const uint8_t *b, double *y) { y[0] = f32_value(b); }
static void block_f16(const uint8_t *b, double *y) { y[0] = f16_value(b); }

static void block_bf16(const uint8_t *b, double *y)
{
	uint8_t wide[4] = { 0, 0, b[0], b[1] };

	y[0] = f32_value(wide);
}

static void block_q8_0(const uint8_t *b, double *y)
{
	double d = f16_value(b);

	for (int i = 0; i < 32; i++)
		y[i] = d * (int8_t)b[2 + i];
}

static void block_q4_0(const uint8_t *b, double *y)
{
	double d = f16_value(b);

	for (int i = 0; i < 16; i++) {
		y[i] = d * ((b[2 + i] & 15) - 8);
		y[i + 16] = d * ((b[2 + i] >> 4) - 8);
	}
}

static void block_q4_1(const uint8_t *b, double *y)
{
	double d = f16_value(b), m = f16_value(b + 2);

	for (int i = 0; i < 16; i++) {
		y[i] = d * (b[4 + i] & 15) + m;
		y[i + 16] = d * (b[4 + i] >> 4) + m;
	}
}

/* Element i of a five-bit block: four bits of qs, the fifth is bit i of qh. */
static int five_bits(const uint8_t *qh, const uint8_t *qs, int i)
{
	int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;

	return low | (qh[i / 8] >> (i % 8) & 1) << 4;
}

static void block_q5_0(const uint8_t *b, double *y)
{
	double d = f16_value(b);

	for (int i = 0; i < 32; i++)
		y[i] = d * (five_bits(b + 2, b + 6, i) - 16);
}

static void block_q5_1(const uint8_t *b, double *y)
{
	double d = f16_value(b), m = f16_value(b + 2);

	for (int i = 0; i < 32; i++)
		y[i] = d * five_bits(b + 4, b + 8, i) + m;
}

static void block_iq4_nl(const uint8_t *b, double *y)
{
	static const int8_t level[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89,
		113 };
	double d = f16_value(b);

	for (int i = 0; i < 16; i++) {
		y[i] = d * level[b[2 + i] & 15];
		y[i + 16] = d * level[b[2 + i] >> 4];
	}
}

/* Two bits: element i sits in byte 32 (i / 128) + i % 32, at bit 2 (i / 32 % 4). */
static int two_bits(const uint8_t *qs, int i) { return qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3; }

static void block_q2_k(const uint8_t *b, double *y)
{
	double d = f16_value(b + 80), dmin = f16_value(b + 82);

	for (int i = 0; i < 256; i++)
		y[i] = d * (b[i / 16] & 15) * two_bits(b + 16, i) - dmin * (b[i / 16] >> 4);
}

/* Six-bit scale j of 16, in 12 bytes: low halves in bytes 0..7, upper two bits in bytes 8..11. */
static int q3_scale(const uint8_t *s, int j)
{
	int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;

	return (low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
}

static void block_q3_k(const uint8_t *b, double *y)
{
	const uint8_t *high = b, *qs = b + 32, *scales = b + 96;
	double d = f16_value(b + 108);

	for (int i = 0; i < 256; i++) {
		int q = two_bits(qs, i) - (high[i % 32] >> (i / 32) & 1 ? 0 : 4);

		y[i] = d * q3_scale(scales, i / 16) * q;
	}
}

/* Six-bit scale and minimum j of 8, in 12 bytes. */
static void k4_scale(const uint8_t *s, int j, int *scale, int *min)
{
	if (j < 4) {
		*scale = s[j] & 63;
		*min = s[j + 4] & 63;
	} else {
		*scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
		*min = s[j + 4] >> 4 | s[j] >> 6 << 4;
	}
}

/* Q4_K without qh, Q5_K with it: sub-blocks of 32, two of them share 32 bytes of nibbles. */
static void k4_block(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, double *y)
{
	double d = f16_value(b), dmin = f16_value(b + 2);

	for (int j = 0; j < 8; j++) {
		int scale, min;

		k4_scale(b + 4, j, &scale, &min);
		for (int l = 0; l < 32; l++) {
			int q = qs[j / 2 * 32 + l] >> (j % 2 * 4) & 15;

			if (qh)
				q |= (qh[l] >> j & 1) << 4;
			y[j * 32 + l] = d * scale * q - dmin * min;
		}
	}
}

static void block_q4_k(const uint8_t *b, double *y) { k4_block(b, NULL, b + 16, y); }
static void block_q5_k(const uint8_t *b, double *y) { k4_block(b, b + 16, b + 48, y); }

static void block_q6_k(const uint8_t *b, double *y)
{
	const uint8_t *ql = b, *qh = b + 128, *scale = b + 192;
	double d = f16_value(b + 208);

	for (int i = 0; i < 256; i++) {
		int half = i / 128, g = i / 32 % 4, l = i % 32;
		int low = ql[half * 64 + g % 2 * 32 + l] >> (g / 2 * 4) & 15;
		int q = (low | (qh[half * 32 + l] >> (2 * g) & 3) << 4) - 32;

		y[i] = d * (int8_t)scale[i / 16] * q;
	}
}

struct stored {
	uint32_t type, block, bytes;
	void (*load)(const uint8_t *b, double *y);
};

static const struct stored stored_types[] = {
	{ TNP_F32, 1, 4, block_f32 },
	{ TNP_F16, 1, 2, block_f16 },
	{ TNP_BF16, 1, 2, block_bf16 },
	{ TNP_Q8_0, 32, 34, block_q8_0 },
	{ TNP_Q4_0, 32, 18, block_q4_0 },
	{ TNP_Q4_1, 32, 20, block_q4_1 },
	{ TNP_Q5_0, 32, 22, block_q5_0 },
	{ TNP_Q5_1, 32, 24, block_q5_1 },
	{ TNP_IQ4_NL, 32, 18, block_iq4_nl },
	{ TNP_Q2_K, 256, 84, block_q2_k },
	{ TNP_Q3_K, 256, 110, block_q3_k },
	{ TNP_Q4_K, 256, 144, block_q4_k },
	{ TNP_Q5_K, 256, 176, block_q5_k },
	{ TNP_Q6_K, 256, 210, block_q6_k },
};

static const struct stored *stored_find(uint32_t type)
{
	for (size_t i = 0; i < sizeof stored_types / sizeof stored_types[0]; i++)
		if (stored_types[i].type == type)
			return &stored_types[i];
	return NULL;
}

uint64_t ref_row_bytes(uint32_t type, uint64_t n)
{
	const struct stored *s = stored_find(type);

	if (!s || n % s->block || n > UINT32_MAX)
		return 0;
	return n / s->block * s->bytes;
}

void ref_row_load(uint32_t type, const void *src, uint64_t n, double *out)
{
	const struct stored *s = stored_find(type);
	const uint8_t *b = src;

	for (uint64_t i = 0; i < n; i += s->block, b += s->bytes)
		s->load(b, out + i);
}

/* ---- keys and values: what ATTEND writes to a page -------------------------------------- */
static int clamp_round(double x, int lo, int hi)
{
	if (isnan(x))
		return 0;
	x = nearbyint(x);
	return x < lo ? lo : x > hi ? hi : (int)x;
}

static void store_q8_0(const double *x, uint8_t *b)
{
	double most = 0, d;

	for (int i = 0; i < 32; i++)
		most = fmax(most, fabs(x[i]));
	f16_store(b, most / 127);
	d = f16_value(b);
	for (int i = 0; i < 32; i++)
		b[2 + i] = d > 0 && isfinite(d) ? (uint8_t)clamp_round(x[i] / d, -127, 127) : 0;
}

/* The element of largest size becomes -8 exactly, so the scale carries its sign. */
static void store_q4_0(const double *x, uint8_t *b)
{
	double most = 0, d;
	int q[32];

	for (int i = 0; i < 32; i++)
		if (fabs(x[i]) > fabs(most))
			most = x[i];
	f16_store(b, most / -8);
	d = f16_value(b);
	for (int i = 0; i < 32; i++)
		q[i] = d != 0 && isfinite(d) ? clamp_round(x[i] / d + 8, 0, 15) : 8;
	for (int i = 0; i < 16; i++)
		b[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

void ref_row_store(uint32_t type, const double *x, uint64_t n, void *dst)
{
	uint8_t *b = dst;

	for (uint64_t i = 0; i < n;) {
		switch (type) {
		case TNP_F32:
			memcpy(b, &(float){ (float)x[i] }, 4);
			b += 4, i++;
			break;
		case TNP_F16:
			f16_store(b, x[i]);
			b += 2, i++;
			break;
		case TNP_Q8_0:
			store_q8_0(x + i, b);
			b += 34, i += 32;
			break;
		default:
			store_q4_0(x + i, b);
			b += 18, i += 32;
		}
	}
}
