/* SPDX-License-Identifier: Apache-2.0
 * Row and element kernels in plain C, see elem.h: what runs on any machine. Sums are kept in double, so that the
 * compiler's choice of vectors cannot matter.
 */
#include "elem.h"
#include <math.h>
#include <string.h>
#include <tenon/plugin.h>

static void base_rmsnorm(const float *x, const float *w, float eps, size_t n, float *y)
{
	double sum = 0;
	float r;

	for (size_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	r = (float)(1 / sqrt(sum / (double)n + eps));
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] * r * (w ? w[i] : 1);
}

static void base_layernorm(const float *x, const float *w, const float *b, float eps, size_t n, float *y)
{
	double mean = 0, var = 0;
	float m, r;

	for (size_t i = 0; i < n; i++)
		mean += x[i];
	mean /= (double)n;
	for (size_t i = 0; i < n; i++)
		var += (x[i] - mean) * (x[i] - mean);
	m = (float)mean;
	r = (float)(1 / sqrt(var / (double)n + eps));
	for (size_t i = 0; i < n; i++)
		y[i] = (x[i] - m) * r * (w ? w[i] : 1) + (b ? b[i] : 0);
}

static void base_l2norm(const float *x, float eps, size_t n, float *y)
{
	double sum = 0;
	float r;

	for (size_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	r = (float)(1 / fmax(sqrt(sum), eps));
	for (size_t i = 0; i < n; i++)
		y[i] = x[i] * r;
}

static void base_add(const float *a, const float *b, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

static void base_mul(const float *a, const float *b, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = a[i] * b[i];
}

static void base_scale(const float *a, float s, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = a[i] * s;
}

static void base_axpy(const float *x, float s, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] += s * x[i];
}

static void base_softcap(const float *a, float cap, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = cap * tanhf(a[i] / cap);
}

static float act_one(uint32_t act, float x)
{
	switch (act) {
	case TNP_ACT_SILU:
		return x / (1 + expf(-x));
	case TNP_ACT_GELU_TANH:
		return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
	case TNP_ACT_GELU_ERF:
		return 0.5f * x * erfcf(-0.70710678f * x);
	case TNP_ACT_RELU:
		return x < 0 ? 0 : x; /* NaN stays */
	default:
		return x;
	}
}

static void base_act(uint32_t act, const float *x, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = act_one(act, x[i]);
}

static void base_glu(uint32_t act, const float *gate, const float *up, size_t n, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = act_one(act, gate[i]) * up[i];
}

static void base_rope(
	const float *x, const float *cs, uint32_t mode, uint32_t dims, uint32_t head_dim, float *y)
{
	uint32_t half = dims / 2, step = mode == TNP_ROPE_PAIRS ? 2 : 1,
		 apart = mode == TNP_ROPE_PAIRS ? 1 : half;

	for (uint32_t i = 0; i < half; i++) {
		float u = x[i * step], v = x[i * step + apart], c = cs[i], s = cs[half + i];

		y[i * step] = u * c - v * s;
		y[i * step + apart] = u * s + v * c;
	}
	if (y != x)
		memcpy(y + dims, x + dims, (head_dim - dims) * sizeof *y);
}

const struct elem_ops elem_base = {
	.rmsnorm = base_rmsnorm,
	.layernorm = base_layernorm,
	.l2norm = base_l2norm,
	.add = base_add,
	.mul = base_mul,
	.scale = base_scale,
	.axpy = base_axpy,
	.softcap = base_softcap,
	.act = base_act,
	.glu = base_glu,
	.rope = base_rope,
};
