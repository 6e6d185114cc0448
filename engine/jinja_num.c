/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic operators over values, and conversions to int and float, with Python's rules for mixed types.
 */
#include "engine/jinja_int.h"
#include "engine/jinja_format.h"
#include "engine/jinja_unicode.h"
#include <math.h>

static const char *const op_sign[] = { "+", "-", "*", "/", "//", "%", "**" };

_Noreturn static void type_fail(struct jinja *j, enum jop op, struct jval a, struct jval b)
{
	jinja_fail(j, JFAIL_TYPE, "operator %s: not possible between '%s' and '%s'", op_sign[op],
		jval_type_name(a), jval_type_name(b));
}

static double as_double(struct jinja *j, struct jval v)
{
	return v.kind == JV_FLOAT ? v.u.f : jint_to_double(j, v);
}

static double float_mod(double x, double y)
{
	double m = fmod(x, y);

	if (m != 0)
		return (m < 0) != (y < 0) ? m + y : m;
	return copysign(0, y);
}

static double float_floordiv(double x, double y)
{
	double m = fmod(x, y), d = (x - m) / y, whole;

	if (m != 0 && (m < 0) != (y < 0))
		d -= 1;
	if (d == 0)
		return copysign(0, x / y);
	whole = floor(d);
	return d - whole > 0.5 ? whole + 1 : whole;
}

static double float_pow(struct jinja *j, double x, double y)
{
	double r;

	if (x == 0 && y < 0)
		jinja_fail(j, JFAIL_VALUE, "zero cannot be raised to a negative power");
	if (x < 0 && isfinite(x) && isfinite(y) && floor(y) != y)
		jinja_fail(j, JFAIL_TYPE,
			"a negative number to a fractional power is complex, which templates do not have");
	r = pow(x, y);
	if (isinf(r) && isfinite(x) && isfinite(y))
		jinja_fail(j, JFAIL_VALUE, "result of ** is too large for a float");
	return r;
}

static struct jval float_binary(struct jinja *j, enum jop op, double x, double y)
{
	if ((op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD) && y == 0)
		jinja_fail(j, JFAIL_VALUE, "operator %s: division by zero", op_sign[op]);
	switch (op) {
	case JOP_ADD:
		return jval_float(x + y);
	case JOP_SUB:
		return jval_float(x - y);
	case JOP_MUL:
		return jval_float(x * y);
	case JOP_DIV:
		return jval_float(x / y);
	case JOP_FLOORDIV:
		return jval_float(float_floordiv(x, y));
	case JOP_MOD:
		return jval_float(float_mod(x, y));
	default:
		return jval_float(float_pow(j, x, y));
	}
}

static struct jval int_binary(struct jinja *j, enum jop op, struct jval a, struct jval b)
{
	struct jval r;
	int64_t small;

	if ((op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD) && jint_is_zero(b))
		jinja_fail(j, JFAIL_VALUE, "operator %s: division by zero", op_sign[op]);
	switch (op) {
	case JOP_ADD:
		return jint_add(j, a, b);
	case JOP_SUB:
		return jint_sub(j, a, b);
	case JOP_MUL:
		return jint_mul(j, a, b);
	case JOP_DIV:
		return jval_float(jint_true_div(j, a, b));
	case JOP_FLOORDIV:
		jint_divmod(j, a, b, &r, NULL);
		return r;
	case JOP_MOD:
		jint_divmod(j, a, b, NULL, &r);
		return r;
	default:
		break;
	}
	if (jint_is_negative(b))
		return jval_float(float_pow(j, jint_to_double(j, a), jint_to_double(j, b)));
	if (!jval_small(b, &small)) {
		if (jint_bit_length(a) > 1)
			jinja_fail(j, JFAIL_LIMIT, "an integer of more than %d bits", JINT_MAX_LIMBS * 32);
		jint_divmod(j, b, jval_int(2), NULL, &r);
		return jint_is_negative(a) && jint_is_zero(r) ? jval_int(1)
			: jint_is_zero(b)		      ? jval_int(1)
							      : a;
	}
	return jint_pow(j, a, (uint64_t)small);
}

/* text * n, list * n, and the other way round. */
static struct jval repeat(struct jinja *j, struct jval seq, struct jval times)
{
	int64_t n = jval_index(j, times, "operator *");
	struct jlist *l, *from = seq.u.list;

	if (seq.kind == JV_STR || seq.kind == JV_BYTES)
		return (struct jval){ .kind = seq.kind, .u.s = jstr_repeat(j, seq.u.s, n) };
	if (n < 0)
		n = 0;
	if (from->n && (uint64_t)n > j->memory_max / sizeof(struct jval) / from->n)
		jinja_fail(j, JFAIL_LIMIT, "a list repeated %lld times", (long long)n);
	l = jlist_new(j, from->n * (size_t)n);
	jinja_step(j, from->n * (size_t)n / 8);
	while (n-- > 0)
		for (size_t i = 0; i < from->n; i++)
			l->v[l->n++] = from->v[i];
	return (struct jval){ .kind = seq.kind, .u.list = l };
}

static bool is_sequence(struct jval v)
{
	return v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_BYTES;
}

static struct jval list_concat(struct jinja *j, struct jval a, struct jval b)
{
	struct jlist *l = jlist_new(j, a.u.list->n + b.u.list->n);

	jinja_step(j, (a.u.list->n + b.u.list->n) / 8);
	for (size_t i = 0; i < a.u.list->n; i++)
		l->v[l->n++] = a.u.list->v[i];
	for (size_t i = 0; i < b.u.list->n; i++)
		l->v[l->n++] = b.u.list->v[i];
	return (struct jval){ .kind = a.kind, .u.list = l };
}

static struct jval str_add(struct jinja *j, struct jstr *a, struct jstr *b)
{
	bool markup = a->markup || b->markup;

	if (markup && !b->markup)
		b = jstr_escape(j, b);
	if (markup && !a->markup)
		a = jstr_escape(j, a);
	return jval_str(jstr_with(j, jstr_concat(j, a, b), markup));
}

struct jval jval_binary(struct jinja *j, enum jop op, struct jval a, struct jval b)
{
	if (op == JOP_ADD && a.kind == JV_STR && b.kind == JV_STR)
		return str_add(j, a.u.s, b.u.s);
	if (op == JOP_MOD && a.kind == JV_STR)
		return jval_str(jformat_percent(j, a.u.s, b));
	jval_check_defined(j, a);
	jval_check_defined(j, b);
	if (jval_is_int(a) && jval_is_int(b))
		return int_binary(j, op, a, b);
	if (jval_is_number(a) && jval_is_number(b))
		return float_binary(j, op, as_double(j, a), as_double(j, b));
	if (op == JOP_ADD && a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE))
		return list_concat(j, a, b);
	if (op == JOP_ADD && a.kind == JV_BYTES && b.kind == JV_BYTES)
		return (struct jval){ .kind = JV_BYTES, .u.s = jstr_concat(j, a.u.s, b.u.s) };
	if (op == JOP_MUL && is_sequence(a) && jval_is_int(b))
		return repeat(j, a, b);
	if (op == JOP_MUL && is_sequence(b) && jval_is_int(a))
		return repeat(j, b, a);
	type_fail(j, op, a, b);
}

struct jval jval_negate(struct jinja *j, struct jval v)
{
	jval_check_defined(j, v);
	if (v.kind == JV_FLOAT)
		return jval_float(-v.u.f);
	if (jval_is_int(v))
		return jint_sub(j, jval_int(0), v);
	jinja_fail(j, JFAIL_TYPE, "unary -: not possible for '%s'", jval_type_name(v));
}

struct jval jval_plus(struct jinja *j, struct jval v)
{
	jval_check_defined(j, v);
	if (v.kind == JV_BOOL)
		return jval_int(v.u.b);
	if (jval_is_number(v))
		return v;
	jinja_fail(j, JFAIL_TYPE, "unary +: not possible for '%s'", jval_type_name(v));
}

int jnum_cmp(struct jinja *j, struct jval a, struct jval b, bool *unordered)
{
	*unordered = (a.kind == JV_FLOAT && isnan(a.u.f)) || (b.kind == JV_FLOAT && isnan(b.u.f));
	if (*unordered)
		return 1;
	if (a.kind == JV_FLOAT && b.kind == JV_FLOAT)
		return (a.u.f > b.u.f) - (a.u.f < b.u.f);
	if (a.kind == JV_FLOAT)
		return -jint_cmp_double(j, b, a.u.f);
	if (b.kind == JV_FLOAT)
		return jint_cmp_double(j, a, b.u.f);
	return jint_cmp(a, b);
}

int64_t jval_index(struct jinja *j, struct jval v, const char *what)
{
	int64_t i;

	jval_check_defined(j, v);
	if (jval_small(v, &i))
		return i;
	if (v.kind == JV_BIG)
		return v.u.big->neg ? INT64_MIN : INT64_MAX;
	jinja_fail(j, JFAIL_TYPE, "%s: an integer is needed, not '%s'", what, jval_type_name(v));
}

/* Cuts white space off and turns digits of other scripts into ASCII ones, as int() and float() read them. */
static struct jstr *number_text(struct jinja *j, struct jstr *s)
{
	struct jtext t;
	struct jcursor c = jcursor_of(s);
	size_t end = 0;

	jtext_init(j, &t, s->len);
	while (jcursor_next(&c)) {
		int digit = junicode_decimal(c.cp);
		bool space = junicode_is_space(c.cp);

		if (space && !t.used)
			continue;
		if (digit >= 0)
			jtext_putc(j, &t, (char)('0' + digit), false);
		else
			jtext_put(j, &t, s->p + c.at, c.n, false);
		if (!space)
			end = t.used;
	}
	t.used = end;
	if (t.n_runs)
		t.runs[0].end = end;
	return jtext_str(j, &t);
}

static int digit_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
}

/* int(text, base): sign, prefix, digits with single underscores between them. */
static bool int_parse(struct jinja *j, struct jstr *s, int64_t base, struct jval *out)
{
	const char *p, *end;
	char *digits;
	size_t n = 0;
	bool neg = false, after_prefix = false, last_under = true, nonzero = false;

	s = number_text(j, s);
	p = s->p;
	end = p + s->len;
	if (p < end && (*p == '+' || *p == '-'))
		neg = *p++ == '-';
	if (end - p >= 2 && p[0] == '0') {
		int64_t is = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : (p[1] | 32) == 'b' ? 2 : 0;

		if (is && (base == is || base == 0)) {
			p += 2;
			base = is;
			after_prefix = true;
			last_under = false;
		}
	}
	if (base == 0) {
		base = 10;
		for (const char *q = p; q < end && *p == '0'; q++)
			nonzero |= *q != '0' && *q != '_';
		if (nonzero)
			return false;
	}
	digits = jinja_alloc(j, (size_t)(end - p) + 1);
	for (; p < end; p++) {
		if (*p == '_') {
			if (last_under || (!n && !after_prefix))
				return false;
			last_under = true;
			continue;
		}
		if (digit_of(*p) >= base)
			return false;
		digits[n++] = *p;
		last_under = false;
	}
	if (!n || last_under ||
		(n > JINT_MAX_DIGITS && base != 2 && base != 4 && base != 8 && base != 16 && base != 32))
		return false;
	*out = jint_parse(j, digits, n, (uint32_t)base, neg);
	return true;
}

bool jval_to_int(struct jinja *j, struct jval v, int64_t base, struct jval *out)
{
	int64_t i;

	if (v.kind == JV_STR || v.kind == JV_BYTES)
		return base >= 0 && base != 1 && base <= 36 && int_parse(j, v.u.s, base, out);
	if (v.kind == JV_FLOAT) {
		if (!isfinite(v.u.f))
			return false;
		*out = jint_from_double(j, v.u.f);
		return true;
	}
	if (jval_small(v, &i))
		v = jval_int(i);
	*out = v;
	return jval_is_int(v);
}

bool jval_to_float(struct jinja *j, struct jval v, double *out)
{
	if (v.kind == JV_STR || v.kind == JV_BYTES) {
		struct jstr *s = number_text(j, v.u.s);

		return jfloat_parse(s->p, s->len, out);
	}
	if (!jval_is_number(v))
		return false;
	*out = as_double(j, v);
	return true;
}
