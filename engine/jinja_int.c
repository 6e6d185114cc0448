/* SPDX-License-Identifier: Apache-2.0
 * Integers of any length (jinja_int.h): schoolbook arithmetic on 32-bit limbs. The length limit keeps one
 * operation under a few milliseconds; work is counted in steps.
 */
#include "engine/jinja_int.h"
#include <math.h>
#include <string.h>

struct limbs { /* a magnitude; `small` holds it when it came from a machine integer */
	const uint32_t *d;
	uint32_t n;
	bool neg;
	uint32_t small[2];
};

static const struct limbs *limbs_of(struct jval v, struct limbs *l)
{
	int64_t i;
	uint64_t m;

	if (v.kind == JV_BIG) {
		*l = (struct limbs){ .d = v.u.big->d, .n = v.u.big->n, .neg = v.u.big->neg };
		return l;
	}
	(void)jval_small(v, &i);
	m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
	*l = (struct limbs){ .n = m >> 32 ? 2
			: m		  ? 1
					  : 0,
		.neg = i < 0,
		.small = { (uint32_t)m, (uint32_t)(m >> 32) } };
	l->d = l->small;
	return l;
}

static struct jbig *big_new(struct jinja *j, uint32_t n)
{
	struct jbig *b;

	if (n > JINT_MAX_LIMBS + 2)
		jinja_fail(j, JFAIL_LIMIT, "an integer of more than %d bits", JINT_MAX_LIMBS * 32);
	b = jinja_zalloc(j, 1, sizeof *b + n * sizeof(uint32_t));
	b->n = n;
	return b;
}

static struct jval normal(struct jinja *j, struct jbig *b)
{
	uint64_t m;

	while (b->n && !b->d[b->n - 1])
		b->n--;
	if (b->n > JINT_MAX_LIMBS)
		jinja_fail(j, JFAIL_LIMIT, "an integer of more than %d bits", JINT_MAX_LIMBS * 32);
	if (b->n <= 2) {
		m = (b->n ? b->d[0] : 0) | (b->n > 1 ? (uint64_t)b->d[1] << 32 : 0);
		if (m <= INT64_MAX)
			return jval_int(b->neg ? -(int64_t)m : (int64_t)m);
		if (b->neg && m == (uint64_t)INT64_MAX + 1)
			return jval_int(INT64_MIN);
	}
	return JV(JV_BIG, big, b);
}

static int mag_cmp(const struct limbs *a, const struct limbs *b)
{
	if (a->n != b->n)
		return a->n > b->n ? 1 : -1;
	for (uint32_t i = a->n; i-- > 0;)
		if (a->d[i] != b->d[i])
			return a->d[i] > b->d[i] ? 1 : -1;
	return 0;
}

static struct jbig *mag_add(struct jinja *j, const struct limbs *a, const struct limbs *b)
{
	uint32_t n = (a->n > b->n ? a->n : b->n) + 1;
	struct jbig *r = big_new(j, n);
	uint64_t carry = 0;

	for (uint32_t i = 0; i < n; i++) {
		carry += (uint64_t)(i < a->n ? a->d[i] : 0) + (i < b->n ? b->d[i] : 0);
		r->d[i] = (uint32_t)carry;
		carry >>= 32;
	}
	return r;
}

static struct jbig *mag_sub(struct jinja *j, const struct limbs *a, const struct limbs *b) /* a >= b */
{
	struct jbig *r = big_new(j, a->n);
	int64_t borrow = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		borrow += (int64_t)a->d[i] - (i < b->n ? b->d[i] : 0);
		r->d[i] = (uint32_t)borrow;
		borrow >>= 32;
	}
	return r;
}

static struct jval add_signed(struct jinja *j, struct jval a, struct jval b, bool flip)
{
	struct limbs la, lb;
	struct jbig *r;

	(void)limbs_of(a, &la);
	(void)limbs_of(b, &lb);
	lb.neg ^= flip;
	jinja_step(j, (la.n + lb.n) / 16);
	if (la.neg == lb.neg) {
		r = mag_add(j, &la, &lb);
		r->neg = la.neg;
	} else if (mag_cmp(&la, &lb) >= 0) {
		r = mag_sub(j, &la, &lb);
		r->neg = la.neg;
	} else {
		r = mag_sub(j, &lb, &la);
		r->neg = lb.neg;
	}
	return normal(j, r);
}

struct jval jint_add(struct jinja *j, struct jval a, struct jval b)
{
	int64_t x, y, r;

	if (jval_small(a, &x) && jval_small(b, &y) && !__builtin_add_overflow(x, y, &r))
		return jval_int(r);
	return add_signed(j, a, b, false);
}

struct jval jint_sub(struct jinja *j, struct jval a, struct jval b)
{
	int64_t x, y, r;

	if (jval_small(a, &x) && jval_small(b, &y) && !__builtin_sub_overflow(x, y, &r))
		return jval_int(r);
	return add_signed(j, a, b, true);
}

struct jval jint_mul(struct jinja *j, struct jval a, struct jval b)
{
	struct limbs la, lb;
	struct jbig *r;
	int64_t x, y, p;

	if (jval_small(a, &x) && jval_small(b, &y) && !__builtin_mul_overflow(x, y, &p))
		return jval_int(p);
	(void)limbs_of(a, &la);
	(void)limbs_of(b, &lb);
	jinja_step(j, 1 + (uint64_t)la.n * lb.n / 16);
	r = big_new(j, la.n + lb.n);
	r->neg = la.neg != lb.neg;
	for (uint32_t i = 0; i < la.n; i++) {
		uint64_t carry = 0;

		for (uint32_t k = 0; k < lb.n; k++) {
			carry += (uint64_t)la.d[i] * lb.d[k] + r->d[i + k];
			r->d[i + k] = (uint32_t)carry;
			carry >>= 32;
		}
		r->d[i + lb.n] = (uint32_t)carry;
	}
	return normal(j, r);
}

/* q = n / d for one limb d, in place; returns the remainder. */
static uint32_t div_small(uint32_t *q, const uint32_t *num, uint32_t n, uint32_t d)
{
	uint64_t rem = 0;

	for (uint32_t i = n; i-- > 0;) {
		rem = rem << 32 | num[i];
		q[i] = (uint32_t)(rem / d);
		rem %= d;
	}
	return (uint32_t)rem;
}

/* One digit of the quotient (Knuth, volume 2, 4.3.1, algorithm D): u[0, n + 1) -= q * v[0, n). */
static uint32_t div_digit(uint32_t *u, const uint32_t *v, uint32_t n)
{
	uint64_t num = (uint64_t)u[n] << 32 | u[n - 1], q = num / v[n - 1], rem = num % v[n - 1], carry = 0;
	int64_t borrow = 0;

	while (q >> 32 || q * v[n - 2] > (rem << 32 | u[n - 2])) {
		q--;
		rem += v[n - 1];
		if (rem >> 32)
			break;
	}
	for (uint32_t i = 0; i < n; i++) {
		carry += q * v[i];
		borrow += (int64_t)u[i] - (uint32_t)carry;
		u[i] = (uint32_t)borrow;
		borrow >>= 32;
		carry >>= 32;
	}
	borrow += (int64_t)u[n] - (int64_t)carry;
	u[n] = (uint32_t)borrow;
	if (borrow >= 0)
		return (uint32_t)q;
	carry = 0;
	for (uint32_t i = 0; i < n; i++) {
		carry += (uint64_t)u[i] + v[i];
		u[i] = (uint32_t)carry;
		carry >>= 32;
	}
	u[n] += (uint32_t)carry;
	return (uint32_t)q - 1;
}

static void shift_left(uint32_t *out, const uint32_t *in, uint32_t n, unsigned bits) /* writes n + 1 limbs */
{
	uint64_t carry = 0;

	for (uint32_t i = 0; i < n; i++) {
		carry |= (uint64_t)in[i] << bits;
		out[i] = (uint32_t)carry;
		carry >>= 32;
	}
	out[n] = (uint32_t)carry;
}

/* Quotient and remainder of magnitudes, cut towards zero. */
static void mag_divmod(
	struct jinja *j, const struct limbs *a, const struct limbs *b, struct jbig **quot, struct jbig **rem)
{
	struct jbig *q = big_new(j, a->n >= b->n ? a->n - b->n + 1 : 1),
		    *r = big_new(j, a->n > b->n ? a->n + 1 : b->n + 1), *v;
	unsigned bits;

	jinja_step(j, 1 + (uint64_t)q->n * b->n / 8);
	*quot = q;
	*rem = r;
	if (mag_cmp(a, b) < 0) {
		memcpy(r->d, a->d, a->n * sizeof(uint32_t));
		return;
	}
	if (b->n == 1) {
		r->d[0] = div_small(q->d, a->d, a->n, b->d[0]);
		return;
	}
	bits = (unsigned)__builtin_clz(b->d[b->n - 1]);
	v = big_new(j, b->n + 1);
	shift_left(v->d, b->d, b->n, bits);
	shift_left(r->d, a->d, a->n, bits);
	for (uint32_t i = a->n - b->n + 1; i-- > 0;)
		q->d[i] = div_digit(r->d + i, v->d, b->n);
	for (uint32_t i = 0; i < b->n; i++)
		r->d[i] = (uint32_t)(((uint64_t)r->d[i + 1] << 32 | r->d[i]) >> bits);
	for (uint32_t i = b->n; i < r->n; i++)
		r->d[i] = 0;
}

void jint_divmod(struct jinja *j, struct jval a, struct jval b, struct jval *quot, struct jval *rem)
{
	struct limbs la, lb;
	struct jbig *bq, *br;
	struct jval q, r;
	int64_t x, y;

	if (jval_small(a, &x) && jval_small(b, &y) && !(x == INT64_MIN && y == -1)) {
		int64_t m = x % y, d = x / y;

		if (m && (m < 0) != (y < 0)) {
			m += y;
			d--;
		}
		q = jval_int(d);
		r = jval_int(m);
	} else {
		(void)limbs_of(a, &la);
		(void)limbs_of(b, &lb);
		mag_divmod(j, &la, &lb, &bq, &br);
		bq->neg = la.neg != lb.neg;
		br->neg = la.neg;
		q = normal(j, bq);
		r = normal(j, br);
		if (!jint_is_zero(r) && la.neg != lb.neg) {
			q = jint_sub(j, q, jval_int(1));
			r = jint_add(j, r, b);
		}
	}
	if (quot)
		*quot = q;
	if (rem)
		*rem = r;
}

struct jval jint_pow(struct jinja *j, struct jval a, uint64_t exponent)
{
	struct jval r = jval_int(1);
	uint32_t bits = jint_bit_length(a);

	if (bits > 1 && exponent > (uint64_t)JINT_MAX_LIMBS * 32 / (bits - 1))
		jinja_fail(j, JFAIL_LIMIT, "an integer of more than %d bits", JINT_MAX_LIMBS * 32);
	for (; exponent; exponent >>= 1) {
		if (exponent & 1)
			r = jint_mul(j, r, a);
		if (exponent > 1)
			a = jint_mul(j, a, a);
	}
	return r;
}

bool jint_is_zero(struct jval v)
{
	int64_t i;

	return jval_small(v, &i) && !i;
}

bool jint_is_negative(struct jval v)
{
	int64_t i;

	return jval_small(v, &i) ? i < 0 : v.u.big->neg;
}

int jint_cmp(struct jval a, struct jval b)
{
	struct limbs la, lb;
	int64_t x, y;
	int c;

	if (jval_small(a, &x) && jval_small(b, &y))
		return (x > y) - (x < y);
	(void)limbs_of(a, &la);
	(void)limbs_of(b, &lb);
	if (la.neg != lb.neg)
		return la.neg ? -1 : 1;
	c = mag_cmp(&la, &lb);
	return la.neg ? -c : c;
}

uint32_t jint_bit_length(struct jval v)
{
	struct limbs l;

	(void)limbs_of(v, &l);
	return l.n ? l.n * 32 - (uint32_t)__builtin_clz(l.d[l.n - 1]) : 0;
}

uint32_t jint_bit_count(struct jval v)
{
	struct limbs l;
	uint32_t n = 0;

	(void)limbs_of(v, &l);
	for (uint32_t i = 0; i < l.n; i++)
		n += (uint32_t)__builtin_popcount(l.d[i]);
	return n;
}

/* The magnitude as a double, correctly rounded: the highest 64 bits, the last of them standing for all below. */
static double mag_to_double(const struct limbs *l, bool below, int exponent)
{
	uint64_t top = 0;
	uint32_t at = l->n, bits;
	int shift;

	if (!l->n)
		return 0;
	bits = l->n * 32 - (uint32_t)__builtin_clz(l->d[l->n - 1]);
	shift = (int)bits - 64;
	while (at-- > 0) {
		int place = (int)at * 32 - shift;

		if (place >= 0)
			top |= (uint64_t)l->d[at] << place;
		else if (place > -32) {
			top |= l->d[at] >> -place;
			below |= (l->d[at] & ((1u << -place) - 1)) != 0;
		} else
			below |= l->d[at] != 0;
	}
	return ldexp((double)(top | below), shift + exponent);
}

double jint_to_double(struct jinja *j, struct jval v)
{
	struct limbs l;
	int64_t i;
	double f;

	if (jval_small(v, &i))
		return (double)i;
	(void)limbs_of(v, &l);
	f = mag_to_double(&l, false, 0);
	if (isinf(f))
		jinja_fail(j, JFAIL_VALUE, "an integer is too large for a float");
	return l.neg ? -f : f;
}

double jint_true_div(struct jinja *j, struct jval a, struct jval b)
{
	const int64_t exact = (int64_t)1 << 53;
	struct limbs la, lb, q;
	struct jbig *num, *bq, *br;
	int64_t x, y;
	uint32_t shift;
	bool below = false;
	double f;

	if (jval_small(a, &x) && jval_small(b, &y) && x >= -exact && x <= exact && y >= -exact && y <= exact)
		return (double)x / (double)y;
	(void)limbs_of(a, &la);
	(void)limbs_of(b, &lb);
	shift = lb.n + 3 > la.n ? lb.n + 3 - la.n : 0;
	num = big_new(j, la.n + shift);
	memcpy(num->d + shift, la.d, la.n * sizeof(uint32_t));
	q = (struct limbs){ .d = num->d, .n = la.n ? num->n : 0 };
	mag_divmod(j, &q, &lb, &bq, &br);
	for (uint32_t i = 0; i < br->n; i++)
		below |= br->d[i] != 0;
	while (bq->n && !bq->d[bq->n - 1])
		bq->n--;
	q = (struct limbs){ .d = bq->d, .n = bq->n };
	f = mag_to_double(&q, below, -(int)shift * 32);
	if (isinf(f))
		jinja_fail(j, JFAIL_VALUE, "the quotient of two integers is too large for a float");
	return la.neg != lb.neg ? -f : f;
}

struct jval jint_from_double(struct jinja *j, double f)
{
	int exponent;
	double m = fabs(trunc(f));
	uint64_t bits;
	struct jbig *b;

	if (m < 9e18)
		return jval_int((int64_t)trunc(f));
	m = frexp(m, &exponent);
	bits = (uint64_t)ldexp(m, 53);
	exponent -= 53;
	b = big_new(j, (uint32_t)exponent / 32 + 3);
	b->neg = f < 0;
	for (int i = 0; i < 53; i++)
		if (bits >> i & 1)
			b->d[(i + exponent) / 32] |= 1u << (i + exponent) % 32;
	return normal(j, b);
}

int jint_cmp_double(struct jinja *j, struct jval a, double f)
{
	struct jval whole;
	int c;

	if (isinf(f))
		return f > 0 ? -1 : 1;
	whole = jint_from_double(j, f);
	c = jint_cmp(a, whole);
	if (c || trunc(f) == f)
		return c;
	return f > 0 ? -1 : 1;
}

struct jval jint_parse(struct jinja *j, const char *digits, size_t n, uint32_t base, bool neg)
{
	struct jbig *b;
	size_t bits_per = base > 16 ? 6 : base > 8 ? 4 : base > 2 ? 3 : 1;

	if (n > (size_t)JINT_MAX_LIMBS * 32 / bits_per)
		jinja_fail(j, JFAIL_LIMIT, "an integer of %zu digits", n);
	b = big_new(j, (uint32_t)(n * bits_per / 32 + 2));
	jinja_step(j, 1 + (uint64_t)n * b->n / 16);
	b->neg = neg;
	b->n = 0;
	for (size_t i = 0; i < n; i++) {
		char c = digits[i];
		uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);

		for (uint32_t k = 0; k < b->n; k++) {
			carry += (uint64_t)b->d[k] * base;
			b->d[k] = (uint32_t)carry;
			carry >>= 32;
		}
		if (carry)
			b->d[b->n++] = (uint32_t)carry;
	}
	return normal(j, b);
}

void jint_put(struct jinja *j, struct jtext *t, struct jval v, uint32_t base, bool trusted)
{
	struct limbs l;
	uint32_t *work, n;
	char *out, *at;
	size_t room;

	(void)limbs_of(v, &l);
	if (base == 10 && (uint64_t)l.n * 32 * 30103 / 100000 > JINT_MAX_DIGITS + 10)
		jinja_fail(j, JFAIL_VALUE, "an integer of more than %d digits cannot be printed",
			JINT_MAX_DIGITS);
	jinja_step(j, 1 + (uint64_t)l.n * l.n / 8);
	room = (size_t)l.n * 32 + 2;
	out = jinja_alloc(j, room);
	at = out + room;
	work = jinja_alloc_n(j, l.n + 1, sizeof *work);
	memcpy(work, l.d, l.n * sizeof *work);
	n = l.n;
	do {
		*--at = "0123456789abcdef"[n ? div_small(work, work, n, base) : 0];
		while (n && !work[n - 1])
			n--;
	} while (n);
	if (base == 10 && (size_t)(out + room - at) > JINT_MAX_DIGITS)
		jinja_fail(j, JFAIL_VALUE, "an integer of more than %d digits cannot be printed",
			JINT_MAX_DIGITS);
	if (l.neg)
		*--at = '-';
	jtext_put(j, t, at, (size_t)(out + room - at), trusted);
}

uint64_t jint_hash(struct jval v)
{
	struct limbs l;
	uint64_t h = 0x9e3779b97f4a7c15u;

	(void)limbs_of(v, &l);
	h ^= l.neg;
	for (uint32_t i = 0; i < l.n; i++)
		h = (h ^ l.d[i]) * 0xff51afd7ed558ccdu;
	return h ^ h >> 31;
}
