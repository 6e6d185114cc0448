/* SPDX-License-Identifier: Apache-2.0
 * quant.h: the table of types, blocks of 32, and measuring.
 */
#include "base/base.h"
#include "engine/gguf.h"
#include "engine/quant_priv.h"
#include "plugins/cpu/dequant.h"
#include <math.h>
#include <string.h>
#include <strings.h>
#include <tenon/plugin.h>

static void put_f32(const float *x, const float *w, uint8_t *b)
{
	(void)w;
	memcpy(b, x, sizeof *x);
}

static void put_f16(const float *x, const float *w, uint8_t *b)
{
	(void)w;
	quant_f16_put(b, *x);
}

/* Nearest, ties to even; the largest finite number for what would become infinite. */
static void put_bf16(const float *x, const float *w, uint8_t *b)
{
	uint32_t bits;

	(void)w;
	memcpy(&bits, x, sizeof bits);
	bits += 0x7fff + (bits >> 16 & 1);
	if ((bits >> 23 & 255) == 255)
		bits = (bits & 0x80000000) | 0x7f7f0000;
	b[0] = (uint8_t)(bits >> 16);
	b[1] = (uint8_t)(bits >> 24);
}

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------------ */

/* Codes 0..15 or the low halves of 0..31: element i beside element i + 16. */
static void put_nibbles(const int8_t *q, uint8_t *b)
{
	for (int i = 0; i < 16; i++)
		b[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

/* The fifth bit of each code, then the nibbles. */
static void put_fives(const int8_t *q, uint8_t *b)
{
	uint32_t high = 0;

	for (int i = 0; i < 32; i++)
		high |= (uint32_t)(q[i] >> 4 & 1) << i;
	memcpy(b, &high, sizeof high);
	put_nibbles(q, b + 4);
}

/* x ~ d q, q in -half..half-1, stored as q + half. */
static void scaled(const float *x, const float *w, int half, uint8_t *b, int8_t *q)
{
	const struct quant_range r = { (float)-half, (float)half - 1 };
	float d = quant_f16_round(quant_fit_scale(x, w, QUANT_BLOCK, r));

	quant_f16_put(b, d);
	quant_codes(x, QUANT_BLOCK, d, 0, r, q);
	for (int i = 0; i < QUANT_BLOCK; i++)
		q[i] = (int8_t)(q[i] + half);
}

/* x ~ d q + m, q in 0..hi. */
static void shifted(const float *x, const float *w, int hi, uint8_t *b, int8_t *q)
{
	float d, m;

	quant_fit_affine(x, w, QUANT_BLOCK, (float)hi, false, &d, &m);
	d = quant_f16_round(d);
	m = quant_f16_round(m);
	quant_f16_put(b, d);
	quant_f16_put(b + 2, m);
	quant_codes(x, QUANT_BLOCK, d, m, (struct quant_range){ 0, (float)hi }, q);
}

static void put_q8_0(const float *x, const float *w, uint8_t *b)
{
	const struct quant_range r = { -127, 127 };
	float d = quant_f16_round(quant_fit_scale(x, w, QUANT_BLOCK, r));
	int8_t q[QUANT_BLOCK];

	quant_f16_put(b, d);
	quant_codes(x, QUANT_BLOCK, d, 0, r, q);
	memcpy(b + 2, q, sizeof q);
}

static void put_q4_0(const float *x, const float *w, uint8_t *b)
{
	int8_t q[QUANT_BLOCK];

	scaled(x, w, 8, b, q);
	put_nibbles(q, b + 2);
}

static void put_q5_0(const float *x, const float *w, uint8_t *b)
{
	int8_t q[QUANT_BLOCK];

	scaled(x, w, 16, b, q);
	put_fives(q, b + 2);
}

static void put_q4_1(const float *x, const float *w, uint8_t *b)
{
	int8_t q[QUANT_BLOCK];

	shifted(x, w, 15, b, q);
	put_nibbles(q, b + 4);
}

static void put_q5_1(const float *x, const float *w, uint8_t *b)
{
	int8_t q[QUANT_BLOCK];

	shifted(x, w, 31, b, q);
	put_fives(q, b + 4);
}

static void put_iq4_nl(const float *x, const float *w, uint8_t *b)
{
	float d = quant_f16_round(quant_fit_levels(x, w, QUANT_BLOCK, dequant_iq4nl));
	int8_t q[QUANT_BLOCK];

	quant_f16_put(b, d);
	quant_codes_levels(x, QUANT_BLOCK, d, dequant_iq4nl, q);
	put_nibbles(q, b + 2);
}

/* ---- the table --------------------------------------------------------------------------------------------------------- */

static const struct encoder {
	uint32_t type;
	void (*put)(const float *x, const float *w, uint8_t *b); /* one block */
} encoders[] = {
	{ TNP_F32, put_f32 },
	{ TNP_F16, put_f16 },
	{ TNP_BF16, put_bf16 },
	{ TNP_Q8_0, put_q8_0 },
	{ TNP_Q4_0, put_q4_0 },
	{ TNP_Q4_1, put_q4_1 },
	{ TNP_Q5_0, put_q5_0 },
	{ TNP_Q5_1, put_q5_1 },
	{ TNP_IQ4_NL, put_iq4_nl },
	{ TNP_Q2_K, quant_q2_k },
	{ TNP_Q3_K, quant_q3_k },
	{ TNP_Q4_K, quant_q4_k },
	{ TNP_Q5_K, quant_q5_k },
	{ TNP_Q6_K, quant_q6_k },
};

static const struct encoder *encoder_of(uint32_t type)
{
	for (size_t i = 0; i < COUNT_OF(encoders); i++)
		if (encoders[i].type == type)
			return &encoders[i];
	return NULL;
}

bool quant_can(uint32_t type) { return encoder_of(type); }

bool quant_type_find(const char *name, uint32_t *type)
{
	for (size_t i = 0; i < COUNT_OF(encoders); i++)
		if (!strcasecmp(name, gguf_type_name(encoders[i].type))) {
			*type = encoders[i].type;
			return true;
		}
	return false;
}

/* A block whose weights are all zero counts like one without weights. */
static const float *block_weights(const float *w, size_t n, const float *ones)
{
	for (size_t i = 0; w && i < n; i++)
		if (w[i] > 0)
			return w;
	return ones;
}

void quant_encode(uint32_t type, const float *x, const float *weight, size_t n, void *out)
{
	const struct encoder *c = encoder_of(type);
	float ones[QUANT_K];
	uint32_t block, bytes;
	uint8_t *b = out;

	if (!c || !gguf_type_block(type, &block, &bytes))
		return;
	for (size_t i = 0; i < COUNT_OF(ones); i++)
		ones[i] = 1;
	for (size_t i = 0; i + block <= n; i += block, b += bytes)
		c->put(x + i, block_weights(weight ? weight + i : NULL, block, ones), b);
}

void quant_decode(uint32_t type, const void *src, size_t n, float *out) { dequant_f32(type, src, n, out); }

void quant_encode_measured(uint32_t type, const float *x, const float *weight, size_t n, void *out,
	float *scratch, struct quant_error *sum)
{
	quant_encode(type, x, weight, n, out);
	quant_decode(type, out, n, scratch);
	for (size_t i = 0; i < n; i++) {
		double v = x[i], e = v - scratch[i], w = weight ? weight[i] : 1;

		sum->signal += v * v;
		sum->noise += e * e;
		sum->weighted_signal += w * v * v;
		sum->weighted_noise += w * e * e;
		sum->most = MAX_OF(sum->most, (float)fabs(e));
	}
}

double quant_error_relative(const struct quant_error *e)
{
	return e->signal > 0 ? sqrt(e->noise / e->signal) : 0;
}
