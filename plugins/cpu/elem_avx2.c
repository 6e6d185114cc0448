/* SPDX-License-Identifier: Apache-2.0
 * Row and element kernels for AVX2 with FMA, see elem.h. The last, short vector of a slice goes through the same
 * arithmetic as a full one (on a copy), so an element's value does not depend on where it stands.
 */
#include "elem.h"
#include "avx2.h"
#include <math.h>
#include <string.h>
#include <tenon/plugin.h>

enum { W = 8 };

INLINE __m256 load_part(const float *x, size_t n)
{
	float t[W] = { 0 };

	memcpy(t, x, n * sizeof *x);
	return _mm256_loadu_ps(t);
}

INLINE void store_part(float *y, __m256 v, size_t n)
{
	float t[W];

	_mm256_storeu_ps(t, v);
	memcpy(y, t, n * sizeof *y);
}

/* ---- norms -------------------------------------------------------------------------------------- */
/* Sum of (x - m)^2: four vectors, added in one order. */
static float squares(const float *x, float m, size_t n)
{
	const __m256 mean = _mm256_set1_ps(m);
	__m256 s[4] = { _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps() };
	float rest = 0;
	size_t i = 0;

	for (; i + 4 * W <= n; i += 4 * W)
		UNROLL
	for (size_t j = 0; j < 4; j++) {
		__m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i + W * j), mean);

		s[j] = _mm256_fmadd_ps(d, d, s[j]);
	}
	for (; i + W <= n; i += W) {
		__m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), mean);

		s[0] = _mm256_fmadd_ps(d, d, s[0]);
	}
	for (; i < n; i++)
		rest += (x[i] - m) * (x[i] - m);
	return hsum(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]))) + rest;
}

static float total(const float *x, size_t n)
{
	__m256 s = _mm256_setzero_ps();
	float rest = 0;
	size_t i = 0;

	for (; i + W <= n; i += W)
		s = _mm256_add_ps(s, _mm256_loadu_ps(x + i));
	for (; i < n; i++)
		rest += x[i];
	return hsum(s) + rest;
}

static void avx2_scale(const float *a, float s, size_t n, float *y)
{
	const __m256 f = _mm256_set1_ps(s);
	size_t i = 0;

	for (; i + W <= n; i += W)
		_mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(a + i), f));
	for (; i < n; i++)
		y[i] = a[i] * s;
}

static void avx2_axpy(const float *x, float s, size_t n, float *y)
{
	const __m256 f = _mm256_set1_ps(s);
	size_t i = 0;

	for (; i + W <= n; i += W)
		_mm256_storeu_ps(y + i, _mm256_fmadd_ps(f, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
	for (; i < n; i++)
		y[i] = fmaf(s, x[i], y[i]);
}

static void avx2_rmsnorm(const float *x, const float *w, float eps, size_t n, float *y)
{
	const float r = 1 / sqrtf(squares(x, 0, n) / (float)n + eps);
	const __m256 f = _mm256_set1_ps(r);
	size_t i = 0;

	for (; i + W <= n; i += W)
		_mm256_storeu_ps(y + i,
			_mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), f), _mm256_loadu_ps(w + i)));
	for (; i < n; i++)
		y[i] = x[i] * r * w[i];
}

static void avx2_layernorm(const float *x, const float *w, const float *b, float eps, size_t n, float *y)
{
	const float m = total(x, n) / (float)n, r = 1 / sqrtf(squares(x, m, n) / (float)n + eps);
	const __m256 mean = _mm256_set1_ps(m), f = _mm256_set1_ps(r);
	size_t i = 0;

	for (; i + W <= n; i += W) {
		__m256 d = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), mean), f);

		d = _mm256_mul_ps(d, _mm256_loadu_ps(w + i));
		_mm256_storeu_ps(y + i, b ? _mm256_add_ps(d, _mm256_loadu_ps(b + i)) : d);
	}
	for (; i < n; i++) {
		float d = (x[i] - m) * r * w[i];

		y[i] = b ? d + b[i] : d;
	}
}

static void avx2_l2norm(const float *x, float eps, size_t n, float *y)
{
	const float r = sqrtf(squares(x, 0, n));

	avx2_scale(x, 1 / (r > eps ? r : eps), n, y);
}

/* ---- elements ------------------------------------------------------------------------------------- */
static void avx2_add(const float *a, const float *b, size_t n, float *y)
{
	size_t i = 0;

	for (; i + W <= n; i += W)
		_mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
	for (; i < n; i++)
		y[i] = a[i] + b[i];
}

static void avx2_mul(const float *a, const float *b, size_t n, float *y)
{
	size_t i = 0;

	for (; i + W <= n; i += W)
		_mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
	for (; i < n; i++)
		y[i] = a[i] * b[i];
}

static void avx2_softcap(const float *a, float cap, size_t n, float *y)
{
	const __m256 c = _mm256_set1_ps(cap);

	for (size_t i = 0; i < n; i += W) {
		size_t left = n - i < W ? n - i : W;
		__m256 x = left == W ? _mm256_loadu_ps(a + i) : load_part(a + i, left);

		x = _mm256_mul_ps(c, tanh_ps(_mm256_div_ps(x, c)));
		if (left == W)
			_mm256_storeu_ps(y + i, x);
		else
			store_part(y + i, x, left);
	}
}

/* erfc(z) for z >= 0: Abramowitz and Stegun 7.1.26, absolute error 1.5e-7. */
INLINE __m256 erfc_pos(__m256 z)
{
	const __m256 one = _mm256_set1_ps(1.0f);
	const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(_mm256_set1_ps(0.3275911f), z, one));
	__m256 p = _mm256_set1_ps(1.061405429f);

	p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(-1.453152027f));
	p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(1.421413741f));
	p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(-0.284496736f));
	p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(0.254829592f));
	p = _mm256_mul_ps(p, t);
	return _mm256_mul_ps(p, exp2_neg(_mm256_mul_ps(_mm256_mul_ps(z, z), _mm256_set1_ps(-1.44269504f))));
}

INLINE __m256 act_vec(const uint32_t act, __m256 x)
{
	const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
	__m256 t;

	switch (act) {
	case TNP_ACT_SILU:
		return _mm256_mul_ps(x, sigmoid(x));
	case TNP_ACT_GELU_TANH: /* (1 + tanh u) / 2 = sigmoid(2u) */
		t = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
		t = _mm256_fmadd_ps(t, _mm256_set1_ps(0.044715f), x);
		return _mm256_mul_ps(x, sigmoid(_mm256_mul_ps(t, _mm256_set1_ps(1.59576912f))));
	case TNP_ACT_GELU_ERF:
		t = _mm256_mul_ps(half, erfc_pos(_mm256_mul_ps(abs_ps(x), _mm256_set1_ps(0.70710678f))));
		return _mm256_mul_ps(x, _mm256_blendv_ps(_mm256_sub_ps(one, t), t, x));
	case TNP_ACT_RELU:
		return _mm256_max_ps(_mm256_setzero_ps(), x); /* second operand: NaN stays */
	default:
		return x;
	}
}

/* y = act(x) * up, or act(x). `act` is constant in every call, so that each gets a loop of its own. */
INLINE void act_loop(const uint32_t act, const float *x, const float *up, size_t n, float *y)
{
	size_t i = 0;

	for (; i + W <= n; i += W) {
		__m256 v = act_vec(act, _mm256_loadu_ps(x + i));

		_mm256_storeu_ps(y + i, up ? _mm256_mul_ps(v, _mm256_loadu_ps(up + i)) : v);
	}
	if (i < n) {
		__m256 v = act_vec(act, load_part(x + i, n - i));

		store_part(y + i, up ? _mm256_mul_ps(v, load_part(up + i, n - i)) : v, n - i);
	}
}

static void avx2_glu(uint32_t act, const float *gate, const float *up, size_t n, float *y)
{
	switch (act) {
	case TNP_ACT_SILU:
		act_loop(TNP_ACT_SILU, gate, up, n, y);
		break;
	case TNP_ACT_GELU_TANH:
		act_loop(TNP_ACT_GELU_TANH, gate, up, n, y);
		break;
	case TNP_ACT_GELU_ERF:
		act_loop(TNP_ACT_GELU_ERF, gate, up, n, y);
		break;
	case TNP_ACT_RELU:
		act_loop(TNP_ACT_RELU, gate, up, n, y);
		break;
	default:
		avx2_mul(gate, up, n, y);
	}
}

static void avx2_act(uint32_t act, const float *x, size_t n, float *y)
{
	switch (act) {
	case TNP_ACT_SILU:
		act_loop(TNP_ACT_SILU, x, NULL, n, y);
		break;
	case TNP_ACT_GELU_TANH:
		act_loop(TNP_ACT_GELU_TANH, x, NULL, n, y);
		break;
	case TNP_ACT_GELU_ERF:
		act_loop(TNP_ACT_GELU_ERF, x, NULL, n, y);
		break;
	case TNP_ACT_RELU:
		act_loop(TNP_ACT_RELU, x, NULL, n, y);
		break;
	default:
		if (y != x)
			memcpy(y, x, n * sizeof *y);
	}
}

/* ---- rotary embedding ------------------------------------------------------------------------------- */
/* Four pairs (u, v) at a time: y = (u c - v s, v c + u s). */
static uint32_t rope_pairs(const float *x, const float *cs, uint32_t half, float *y)
{
	uint32_t i = 0;

	for (; i + 4 <= half; i += 4) {
		const __m256 a = _mm256_loadu_ps(x + 2 * i), b = _mm256_permute_ps(a, 0xb1);
		const __m128 c4 = _mm_loadu_ps(cs + i), s4 = _mm_loadu_ps(cs + half + i);
		const __m256 c = _mm256_set_m128(_mm_unpackhi_ps(c4, c4), _mm_unpacklo_ps(c4, c4));
		const __m256 s = _mm256_set_m128(_mm_unpackhi_ps(s4, s4), _mm_unpacklo_ps(s4, s4));

		_mm256_storeu_ps(y + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
	}
	return i;
}

static uint32_t rope_halves(const float *x, const float *cs, uint32_t half, float *y)
{
	uint32_t i = 0;

	for (; i + W <= half; i += W) {
		const __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(x + half + i);
		const __m256 c = _mm256_loadu_ps(cs + i), s = _mm256_loadu_ps(cs + half + i);

		_mm256_storeu_ps(y + i, _mm256_sub_ps(_mm256_mul_ps(u, c), _mm256_mul_ps(v, s)));
		_mm256_storeu_ps(y + half + i, _mm256_add_ps(_mm256_mul_ps(u, s), _mm256_mul_ps(v, c)));
	}
	return i;
}

static void avx2_rope(
	const float *x, const float *cs, uint32_t mode, uint32_t dims, uint32_t head_dim, float *y)
{
	uint32_t half = dims / 2, step = mode == TNP_ROPE_PAIRS ? 2 : 1,
		 apart = mode == TNP_ROPE_PAIRS ? 1 : half;
	uint32_t i = mode == TNP_ROPE_PAIRS ? rope_pairs(x, cs, half, y) : rope_halves(x, cs, half, y);

	for (; i < half; i++) {
		float u = x[i * step], v = x[i * step + apart], c = cs[i], s = cs[half + i];

		y[i * step] = u * c - v * s;
		y[i * step + apart] = u * s + v * c;
	}
	if (y != x)
		memcpy(y + dims, x + dims, (head_dim - dims) * sizeof *y);
}

const struct elem_ops elem_avx2 = {
	.rmsnorm = avx2_rmsnorm,
	.layernorm = avx2_layernorm,
	.l2norm = avx2_l2norm,
	.add = avx2_add,
	.mul = avx2_mul,
	.scale = avx2_scale,
	.axpy = avx2_axpy,
	.softcap = avx2_softcap,
	.act = avx2_act,
	.glu = avx2_glu,
	.rope = avx2_rope,
};
