/* SPDX-License-Identifier: Apache-2.0
 * Vector functions shared by the NEON files of rows and attention. Every lane depends on its own input only.
 */
#ifndef PLUGINS_CPU_NEON_H
#define PLUGINS_CPU_NEON_H
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE float32x4_t all(float x) { return vdupq_n_f32(x); }
INLINE float32x4_t bits_and(float32x4_t x, uint32x4_t mask)
{
	return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}
INLINE float32x4_t copysign_f32x4(float32x4_t x, float32x4_t sign)
{
	return vbslq_f32(vdupq_n_u32(0x80000000), sign, x);
}

/* 2^x for x <= 0: degree-5 polynomial on [-0.5, 0.5], relative error below 3e-7, exactly 1 at 0; below -126 it is 0. */
INLINE float32x4_t exp2_neg(float32x4_t x)
{
	const float32x4_t n = vrndnq_f32(x), f = vsubq_f32(x, n);
	const int32x4_t e = vshlq_n_s32(vcvtq_s32_f32(n), 23);
	float32x4_t p = all(1.326697039e-03f);

	p = vfmaq_f32(all(9.675459746e-03f), p, f);
	p = vfmaq_f32(all(5.550742616e-02f), p, f);
	p = vfmaq_f32(all(2.402212175e-01f), p, f);
	p = vfmaq_f32(all(6.931469492e-01f), p, f);
	p = vfmaq_f32(all(1.0f), p, f);
	p = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), e));
	return bits_and(p, vcgeq_f32(x, all(-126.0f)));
}

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows. Of NaN it is 1: callers multiply
 * by x, and it shows there. */
INLINE float32x4_t sigmoid(float32x4_t x)
{
	const float32x4_t one = all(1.0f), e = exp2_neg(vmulq_f32(vabsq_f32(x), all(-1.44269504f)));

	return vdivq_f32(vbslq_f32(vcltq_f32(x, all(0.0f)), e, one), vaddq_f32(one, e));
}

/* tanh x = sign(x) (1 - t) / (1 + t), t = e^-2|x|; near 0, where that cancels, x - x^3/3 + 2x^5/15 - 17x^7/315. */
INLINE float32x4_t tanh_f32x4(float32x4_t x)
{
	const float32x4_t one = all(1.0f), t = exp2_neg(vmulq_f32(vabsq_f32(x), all(-2.88539008f)));
	const float32x4_t far = copysign_f32x4(vdivq_f32(vsubq_f32(one, t), vaddq_f32(one, t)), x);
	const float32x4_t s = vmulq_f32(x, x);
	float32x4_t p = all(-17.0f / 315);

	p = vfmaq_f32(all(2.0f / 15), p, s);
	p = vfmaq_f32(all(-1.0f / 3), p, s);
	p = vfmaq_f32(x, vmulq_f32(p, s), x);
	return vbslq_f32(vcltq_f32(vabsq_f32(x), all(0.125f)), p, far);
}
#endif
