/* SPDX-License-Identifier: Apache-2.0
 * Row and element kernels for NEON, see elem.h. The last, short vector of a slice goes through the same arithmetic as
 * a full one (on a copy), so an element's value does not depend on where it stands.
 */
#include "elem.h"
#include "neon.h"
#include <math.h>
#include <string.h>
#include <tenon/plugin.h>

enum { W = 4 };

INLINE float32x4_t load(const float *x, size_t n)
{
	float t[W] = { 0 };

	if (n >= W)
		return vld1q_f32(x);
	memcpy(t, x, n * sizeof *x);
	return vld1q_f32(t);
}

INLINE void store(float *y, float32x4_t v, size_t n)
{
	float t[W];

	if (n >= W) {
		vst1q_f32(y, v);
		return;
	}
	vst1q_f32(t, v);
	memcpy(y, t, n * sizeof *y);
}

/* for each vector of n elements: y[i ..] = the expression, which may use i and left */
#define EACH(n, y, expression)                                                                               \
	do {                                                                                                 \
		for (size_t i = 0; i < (n); i += W) {                                                        \
			const size_t left = (n)-i;                                                           \
                                                                                                             \
			store((y) + i, (expression), left);                                                  \
		}                                                                                            \
	} while (0)

/* ---- norms -------------------------------------------------------------------------------------- */
/* Sum of (x - m)^2: four vectors, added in one order. What is missing in the last vector counts as m. */
static float squares(const float *x, float m, size_t n)
{
	const float32x4_t mean = all(m);
	float32x4_t s[4] = { all(0), all(0), all(0), all(0) }, d;
	size_t i = 0;

	for (; i + 4 * W <= n; i += 4 * W)
		UNROLL
	for (size_t j = 0; j < 4; j++) {
		d = vsubq_f32(vld1q_f32(x + i + W * j), mean);
		s[j] = vfmaq_f32(s[j], d, d);
	}
	for (; i + W <= n; i += W) {
		d = vsubq_f32(vld1q_f32(x + i), mean);
		s[0] = vfmaq_f32(s[0], d, d);
	}
	for (size_t j = 0; i < n; i++, j++) {
		d = vsetq_lane_f32(x[i] - m, all(0), 0);
		s[1 + j] = vfmaq_f32(s[1 + j], d, d);
	}
	return vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
}

static float total(const float *x, size_t n)
{
	float32x4_t s = all(0);

	for (size_t i = 0; i < n; i += W)
		s = vaddq_f32(s, load(x + i, n - i));
	return vaddvq_f32(s);
}

static void neon_scale(const float *a, float s, size_t n, float *y)
{
	EACH(n, y, vmulq_n_f32(load(a + i, left), s));
}

static void neon_axpy(const float *x, float s, size_t n, float *y)
{
	EACH(n, y, vfmaq_n_f32(load(y + i, left), load(x + i, left), s));
}

static void neon_rmsnorm(const float *x, const float *w, float eps, size_t n, float *y)
{
	const float r = 1 / sqrtf(squares(x, 0, n) / (float)n + eps);

	if (w)
		EACH(n, y, vmulq_f32(vmulq_n_f32(load(x + i, left), r), load(w + i, left)));
	else
		neon_scale(x, r, n, y);
}

static void neon_layernorm(const float *x, const float *w, const float *b, float eps, size_t n, float *y)
{
	const float m = total(x, n) / (float)n, r = 1 / sqrtf(squares(x, m, n) / (float)n + eps);

	EACH(n, y, vmulq_n_f32(vsubq_f32(load(x + i, left), all(m)), r));
	if (w)
		EACH(n, y, vmulq_f32(load(y + i, left), load(w + i, left)));
	if (b)
		EACH(n, y, vaddq_f32(load(y + i, left), load(b + i, left)));
}

static void neon_l2norm(const float *x, float eps, size_t n, float *y)
{
	const float r = sqrtf(squares(x, 0, n));

	neon_scale(x, 1 / (r > eps ? r : eps), n, y);
}

/* ---- elements ------------------------------------------------------------------------------------- */
static void neon_add(const float *a, const float *b, size_t n, float *y)
{
	EACH(n, y, vaddq_f32(load(a + i, left), load(b + i, left)));
}

static void neon_mul(const float *a, const float *b, size_t n, float *y)
{
	EACH(n, y, vmulq_f32(load(a + i, left), load(b + i, left)));
}

static void neon_softcap(const float *a, float cap, size_t n, float *y)
{
	EACH(n, y, vmulq_n_f32(tanh_f32x4(vdivq_f32(load(a + i, left), all(cap))), cap));
}

/* erfc(z) for z >= 0: Abramowitz and Stegun 7.1.26, absolute error 1.5e-7. */
INLINE float32x4_t erfc_pos(float32x4_t z)
{
	const float32x4_t t = vdivq_f32(all(1.0f), vfmaq_f32(all(1.0f), all(0.3275911f), z));
	float32x4_t p = all(1.061405429f);

	p = vfmaq_f32(all(-1.453152027f), p, t);
	p = vfmaq_f32(all(1.421413741f), p, t);
	p = vfmaq_f32(all(-0.284496736f), p, t);
	p = vfmaq_f32(all(0.254829592f), p, t);
	p = vmulq_f32(p, t);
	return vmulq_f32(p, exp2_neg(vmulq_f32(vmulq_f32(z, z), all(-1.44269504f))));
}

INLINE float32x4_t act_vec(const uint32_t act, float32x4_t x)
{
	float32x4_t t;

	switch (act) {
	case TNP_ACT_SILU:
		return vmulq_f32(x, sigmoid(x));
	case TNP_ACT_GELU_TANH: /* (1 + tanh u) / 2 = sigmoid(2u) */
		t = vmulq_f32(vmulq_f32(x, x), x);
		t = vfmaq_f32(x, t, all(0.044715f));
		return vmulq_f32(x, sigmoid(vmulq_f32(t, all(1.59576912f))));
	case TNP_ACT_GELU_ERF:
		t = vmulq_f32(all(0.5f), erfc_pos(vmulq_f32(vabsq_f32(x), all(0.70710678f))));
		return vmulq_f32(x, vbslq_f32(vcltq_f32(x, all(0)), t, vsubq_f32(all(1.0f), t)));
	case TNP_ACT_RELU:
		return vmaxq_f32(x, all(0)); /* NaN stays */
	default:
		return x;
	}
}

/* y = act(x) * up, or act(x). `act` is constant in every call, so that each gets a loop of its own. */
INLINE void act_loop(const uint32_t act, const float *x, const float *up, size_t n, float *y)
{
	if (up)
		EACH(n, y, vmulq_f32(act_vec(act, load(x + i, left)), load(up + i, left)));
	else
		EACH(n, y, act_vec(act, load(x + i, left)));
}

static void neon_glu(uint32_t act, const float *gate, const float *up, size_t n, float *y)
{
	if (act == TNP_ACT_SILU)
		act_loop(TNP_ACT_SILU, gate, up, n, y);
	else if (act == TNP_ACT_GELU_TANH)
		act_loop(TNP_ACT_GELU_TANH, gate, up, n, y);
	else if (act == TNP_ACT_GELU_ERF)
		act_loop(TNP_ACT_GELU_ERF, gate, up, n, y);
	else if (act == TNP_ACT_RELU)
		act_loop(TNP_ACT_RELU, gate, up, n, y);
	else
		neon_mul(gate, up, n, y);
}

static void neon_act(uint32_t act, const float *x, size_t n, float *y)
{
	if (act == TNP_ACT_SILU)
		act_loop(TNP_ACT_SILU, x, NULL, n, y);
	else if (act == TNP_ACT_GELU_TANH)
		act_loop(TNP_ACT_GELU_TANH, x, NULL, n, y);
	else if (act == TNP_ACT_GELU_ERF)
		act_loop(TNP_ACT_GELU_ERF, x, NULL, n, y);
	else if (act == TNP_ACT_RELU)
		act_loop(TNP_ACT_RELU, x, NULL, n, y);
	else if (y != x)
		memcpy(y, x, n * sizeof *y);
}

/* ---- rotary embedding ------------------------------------------------------------------------------- */
/* Pairs (u, v) that lie apart: (u c - v s, u s + v c), four at a time, products rounded as the scalar rest has them. */
INLINE void turn(float32x4_t *u, float32x4_t *v, float32x4_t c, float32x4_t s)
{
	const float32x4_t x = vsubq_f32(vmulq_f32(*u, c), vmulq_f32(*v, s));

	*v = vaddq_f32(vmulq_f32(*u, s), vmulq_f32(*v, c));
	*u = x;
}

static void neon_rope(
	const float *x, const float *cs, uint32_t mode, uint32_t dims, uint32_t head_dim, float *y)
{
	const uint32_t half = dims / 2, step = mode == TNP_ROPE_PAIRS ? 2 : 1,
		       apart = mode == TNP_ROPE_PAIRS ? 1 : half;
	uint32_t i = 0;

	for (; i + W <= half; i += W) {
		const float32x4_t c = vld1q_f32(cs + i), s = vld1q_f32(cs + half + i);
		float32x4x2_t p;

		if (mode == TNP_ROPE_PAIRS)
			p = vld2q_f32(x + (size_t)2 * i);
		else
			p = (float32x4x2_t){ { vld1q_f32(x + i), vld1q_f32(x + half + i) } };
		turn(&p.val[0], &p.val[1], c, s);
		if (mode == TNP_ROPE_PAIRS) {
			vst2q_f32(y + (size_t)2 * i, p);
		} else {
			vst1q_f32(y + i, p.val[0]);
			vst1q_f32(y + half + i, p.val[1]);
		}
	}
	for (; i < half; i++) {
		const float u = x[i * step], v = x[i * step + apart], c = cs[i], s = cs[half + i];

		y[i * step] = u * c - v * s;
		y[i * step + apart] = u * s + v * c;
	}
	if (y != x)
		memcpy(y + dims, x + dims, (head_dim - dims) * sizeof *y);
}

const struct elem_ops elem_neon = {
	.rmsnorm = neon_rmsnorm,
	.layernorm = neon_layernorm,
	.l2norm = neon_l2norm,
	.add = neon_add,
	.mul = neon_mul,
	.scale = neon_scale,
	.axpy = neon_axpy,
	.softcap = neon_softcap,
	.act = neon_act,
	.glu = neon_glu,
	.rope = neon_rope,
};
