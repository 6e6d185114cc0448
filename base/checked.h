/* SPDX-License-Identifier: Apache-2.0
 * The one place for overflow tests: true when the result fits and is stored. Never write such a test by hand.
 */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool checked_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool checked_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* [off, off + len) lies inside [0, size) */
static inline bool checked_range(uint64_t off, uint64_t len, uint64_t size) { return len <= size && off <= size - len; }

/* Rounds up to a power of two `align`; false on overflow. */
static inline bool checked_align_up(uint64_t v, uint64_t align, uint64_t *out)
{
	if (!checked_add_u64(v, align - 1, out))
		return false;
	*out &= ~(align - 1);
	return true;
}
#endif
