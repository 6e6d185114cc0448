/* SPDX-License-Identifier: Apache-2.0
 * Integers of any length (up to 65,536 bits) for the template interpreter. All functions take JV_INT, JV_BIG or
 * JV_BOOL and give JV_INT when the result fits 64 bits.
 */
#ifndef ENGINE_JINJA_INT_H
#define ENGINE_JINJA_INT_H
#include "engine/jinja_value.h"

enum { JINT_MAX_LIMBS = 2048, JINT_MAX_DIGITS = 4300 }; /* the latter is Python's limit for text of an int */

struct jbig { /* sign and magnitude, least limb first, no leading zeros */
	uint32_t n;
	bool neg;
	uint32_t d[];
};

struct jval jint_add(struct jinja *j, struct jval a, struct jval b);
struct jval jint_sub(struct jinja *j, struct jval a, struct jval b);
struct jval jint_mul(struct jinja *j, struct jval a, struct jval b);
/* Floored quotient and remainder, as Python has them; b is not zero. Either may be NULL. */
void jint_divmod(struct jinja *j, struct jval a, struct jval b, struct jval *quot, struct jval *rem);
struct jval jint_pow(struct jinja *j, struct jval a, uint64_t exponent);
double jint_true_div(struct jinja *j, struct jval a, struct jval b); /* correctly rounded; b is not zero */
int jint_cmp(struct jval a, struct jval b);
int jint_cmp_double(struct jinja *j, struct jval a, double f); /* f is not NaN */
bool jint_is_zero(struct jval v);
bool jint_is_negative(struct jval v);
double jint_to_double(struct jinja *j, struct jval v);	 /* fails on overflow */
struct jval jint_from_double(struct jinja *j, double f); /* cut towards zero; f is finite */
struct jval jint_parse(struct jinja *j, const char *digits, size_t n, uint32_t base,
	bool neg); /* digits checked by the caller */
void jint_put(struct jinja *j, struct jtext *t, struct jval v, uint32_t base,
	bool trusted); /* digits with sign, no prefix */
uint64_t jint_hash(struct jval v);
uint32_t jint_bit_length(struct jval v);
uint32_t jint_bit_count(struct jval v);
#endif
