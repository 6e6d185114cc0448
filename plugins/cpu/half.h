/* SPDX-License-Identifier: Apache-2.0
 * Half-precision numbers in plain C, for the parts that must run without F16C. Rounds to nearest, ties to even.
 */
#ifndef PLUGINS_CPU_HALF_H
#define PLUGINS_CPU_HALF_H
#include <stdint.h>
#include <string.h>

#define HALF_MAX 65504.0f

static inline float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = h >> 10 & 31, man = h & 1023, bits;
	float f;

	if (exp == 0) {
		f = (float)man * 5.9604644775390625e-8f; /* 2^-24 */
		memcpy(&bits, &f, sizeof bits);
		bits |= sign;
	} else {
		bits = sign | (exp == 31 ? 0x7f800000u : (exp + 112) << 23) | man << 13;
	}
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* Finite result for any input: what is too large is clamped, NaN becomes the largest number. */
static inline uint16_t half_from_float(float f)
{
	uint32_t bits, sign, man, lost;
	int32_t exp;

	if (!(f <= HALF_MAX))
		f = HALF_MAX;
	if (f < -HALF_MAX)
		f = -HALF_MAX;
	memcpy(&bits, &f, sizeof bits);
	sign = bits >> 16 & 0x8000u;
	exp = (int32_t)(bits >> 23 & 255) - 112;
	man = bits & 0x7fffffu;
	if (exp <= 0) {
		uint32_t shift = (uint32_t)(14 - exp);

		if (shift > 24)
			return (uint16_t)sign;
		man |= 0x800000u;
		lost = man & ((1u << shift) - 1);
		man >>= shift;
		man += lost > 1u << (shift - 1) || (lost == 1u << (shift - 1) && (man & 1));
		return (uint16_t)(sign | man);
	}
	lost = man & 0x1fffu;
	man = (uint32_t)exp << 10 | man >> 13;
	man += lost > 0x1000u || (lost == 0x1000u && (man & 1));
	return (uint16_t)(sign | man);
}
#endif
