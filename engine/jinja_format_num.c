/* SPDX-License-Identifier: Apache-2.0
 * Numbers by a format: sign, prefix, digits, grouping, padding (jinja_format.h).
 */
#include "engine/jinja_format.h"
#include "engine/jinja_int.h"
#include "engine/jinja_strops.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PRECISION = 4096 };

static const struct jstr space = { .p = " ", .len = 1, .n_cp = 1, .taint = JTAINT_UNTRUSTED };

void jformat_put(
	struct jinja *j, struct jtext *t, const struct jspec *s, const struct jstr *text, char default_align)
{
	char align = s->align ? s->align : default_align;
	int where = align == '<' ? JPAD_RIGHT : align == '^' ? JPAD_CENTER : JPAD_LEFT;
	struct jstr *padded;

	if (align == '^' && s->width > (int64_t)text->n_cp) { /* format() puts the odd one to the right */
		int64_t left = (s->width - (int64_t)text->n_cp) / 2;

		padded = jstr_pad(j, text, (int64_t)text->n_cp + left, s->fill ? s->fill : &space, JPAD_LEFT);
		padded = jstr_pad(j, padded, s->width, s->fill ? s->fill : &space, JPAD_RIGHT);
	} else {
		padded = jstr_pad(j, text, s->width, s->fill ? s->fill : &space, where);
	}
	jtext_put_str(j, t, padded);
}

struct number { /* its parts as text */
	char sign[2], prefix[3];
	const char *digits; /* before the point */
	size_t n_digits;
	const char *rest; /* point, fraction, exponent, percent sign */
	size_t n_rest;
};

/* Digits with separators every `every`, at least `width` characters wide by zeros in front. */
static struct jstr *grouped(struct jinja *j, const struct number *n, char group, size_t every, int64_t width)
{
	size_t zeros = 0, seps, all = n->n_digits;
	struct jtext *t;

	if (width > (int64_t)j->text_max)
		jinja_fail(j, JFAIL_LIMIT, "a text of more than %zu bytes", j->text_max);
	if (width > 0 && !group && (size_t)width > all)
		zeros = (size_t)width - all;
	while (group && width > 0 &&
		all + zeros + (all + zeros ? (all + zeros - 1) / every : 0) < (size_t)width)
		zeros++;
	t = jtext_new(j, all + zeros);
	jinja_step(j, (all + zeros) / 4);
	seps = group ? all + zeros : 0;
	for (size_t i = 0; i < all + zeros; i++) {
		if (i && seps && (seps - i) % every == 0)
			jtext_putc(j, t, group, false);
		jtext_putc(j, t, i < zeros ? '0' : n->digits[i - zeros], false);
	}
	return jtext_str(j, t);
}

static void put_number(
	struct jinja *j, struct jtext *t, const struct jspec *s, const struct number *n, size_t every)
{
	bool zeros = s->align == '=' || (!s->align && s->zero);
	bool filled =
		zeros && (!s->fill || (s->fill->len == 1 && s->fill->p[0] == '0')) && (s->zero || s->fill);
	size_t around = strlen(n->sign) + strlen(n->prefix) + n->n_rest;
	struct jspec pad = *s;
	struct jtext *out = jtext_new(j, 32);
	struct jstr *digits = grouped(j, n, s->group, every, filled ? s->width - (int64_t)around : 0);

	jtext_printf(j, out, false, "%s%s", n->sign, n->prefix);
	if (zeros && !filled && s->width > (int64_t)(around + digits->n_cp))
		jtext_put_fill(j, out, s->fill ? s->fill : &space, (size_t)s->width - around - digits->n_cp);
	jtext_put_str(j, out, digits);
	jtext_put(j, out, n->rest, n->n_rest, false);
	if (zeros)
		pad.align = '>';
	jformat_put(j, t, &pad, jtext_str(j, out), '>');
}

static void set_sign(struct number *n, const struct jspec *s, bool negative)
{
	n->sign[0] = negative ? '-' : s->sign;
	n->sign[1] = 0;
}

static void format_int(struct jinja *j, struct jtext *t, const struct jspec *s, struct jval v)
{
	char type = s->type ? s->type : 'd';
	uint32_t base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
	struct number n = { .rest = "" };
	struct jtext digits;
	struct jstr *text;
	char *copy;

	set_sign(&n, s, jint_is_negative(v));
	jtext_init(j, &digits, 24);
	jint_put(j, &digits, v, base, false);
	text = jtext_str(j, &digits);
	copy = jinja_alloc(j, text->len);
	memcpy(copy, text->p, text->len);
	if (type == 'X')
		for (size_t i = 0; i < text->len; i++)
			copy[i] = copy[i] >= 'a' ? (char)(copy[i] - 32) : copy[i];
	n.digits = copy + (jint_is_negative(v) ? 1 : 0);
	n.n_digits = text->len - (jint_is_negative(v) ? 1 : 0);
	if (s->precision > (int64_t)n.n_digits) { /* of "%": least number of digits */
		struct jstr *wide = grouped(j, &n, 0, 3, s->precision);

		n.digits = wide->p;
		n.n_digits = wide->len;
	}
	if (s->alt && base != 10)
		n.prefix[0] = '0', n.prefix[1] = type;
	put_number(j, t, s, &n, base == 10 ? 3 : 4);
}

/* The digits of |f| by C's printf, `type` one of e E f F g G; *n: their number. */
static char *float_digits(struct jinja *j, double f, char type, bool alt, int precision, size_t *n)
{
	char fmt[8] = "%";
	char *out;

	(void)snprintf(fmt, sizeof fmt, alt ? "%%#.*%c" : "%%.*%c", type);
	out = jinja_alloc(j, (size_t)precision + 350);
	*n = (size_t)snprintf(out, (size_t)precision + 350, fmt, precision, f);
	return out;
}

/* No type: like g, but with a digit behind the point unless there is an exponent. */
static char *float_plain(struct jinja *j, double f, const struct jspec *s, size_t *n)
{
	char *out;

	if (s->precision < 0) {
		out = jinja_alloc(j, 32);
		*n = jfloat_repr(f, out);
		return out;
	}
	out = float_digits(j, f, 'g', s->alt, s->precision ? (int)s->precision : 1, n);
	if (memchr(out, 'e', *n) || memchr(out, '.', *n))
		return out;
	if ((int64_t)*n >= s->precision && s->precision > 0 && *n > 0 && (int64_t)*n == s->precision)
		return float_digits(j, f, 'e', s->alt, (int)s->precision - 1, n);
	memcpy(out + *n, ".0", 2);
	*n += 2;
	return out;
}

static void format_float(struct jinja *j, struct jtext *t, const struct jspec *s, double f)
{
	char type = s->type == 'n' ? 'g' : s->type == '%' ? 'f' : s->type;
	double m = fabs(s->type == '%' ? f * 100 : f);
	struct number n = { 0 };
	char *out;
	size_t len;

	if (s->precision > MAX_PRECISION)
		jinja_fail(j, JFAIL_LIMIT, "format: a precision of more than %d", MAX_PRECISION);
	set_sign(&n, s, signbit(f) && !isnan(f));
	if (!isfinite(m)) {
		out = isnan(m) ? "nan" : "inf";
		if (type == 'E' || type == 'F' || type == 'G')
			out = isnan(m) ? "NAN" : "INF";
		len = 3;
	} else if (!type) {
		out = float_plain(j, m, s, &len);
	} else {
		out = float_digits(j, m, type, s->alt, s->precision < 0 ? 6 : (int)s->precision, &len);
	}
	n.digits = out;
	while (n.n_digits < len && out[n.n_digits] >= '0' && out[n.n_digits] <= '9')
		n.n_digits++;
	n.rest = out + n.n_digits;
	n.n_rest = len - n.n_digits;
	if (s->type == '%') {
		char *with = jinja_alloc(j, n.n_rest + 1);

		memcpy(with, n.rest, n.n_rest);
		with[n.n_rest++] = '%';
		n.rest = with;
	}
	put_number(j, t, s, &n, 3);
}

static void format_char(struct jinja *j, struct jtext *t, const struct jspec *s, struct jval v)
{
	struct jtext *one = jtext_new(j, 4);
	int64_t cp;

	if (!jval_small(v, &cp) || cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		jinja_fail(j, JFAIL_VALUE, "format c: not a character");
	jtext_put_cp(j, one, (uint32_t)cp, false);
	jformat_put(j, t, s, jtext_str(j, one), '<');
}

void jformat_number(struct jinja *j, struct jtext *t, const struct jspec *s, struct jval v)
{
	struct jspec plain = *s;

	if (s->type == 'c') {
		format_char(j, t, s, v);
	} else if (v.kind == JV_FLOAT) {
		format_float(j, t, s, v.u.f);
	} else if (s->type && strchr("eEfFgG%", s->type)) {
		format_float(j, t, s, jint_to_double(j, v));
	} else {
		if (s->type == 'n' || s->type == 'i' || s->type == 'u')
			plain.type = 'd';
		format_int(j, t, &plain, v);
	}
}
