/* SPDX-License-Identifier: Apache-2.0
 * Floating-point numbers as Python prints, reads and rounds them. Relies on the C library's correctly rounded
 * conversions in the C locale, which no part of Tenon changes.
 */
#include "engine/jinja_value.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds one unit in the last place of decimal digits "d.ddd"; false when that would carry out. */
static bool digits_up(char *s)
{
	for (size_t i = strlen(s); i-- > 0;) {
		if (s[i] == '.')
			continue;
		if (s[i] != '9') {
			s[i]++;
			return true;
		}
		s[i] = '0';
	}
	return false;
}

/* The shortest decimal that reads back as f, in %e form. The nearest decimal of a length may miss where the gap
 * below f is half the gap above (powers of two): there the next one up may still hit. */
static void shortest(double f, char out[40])
{
	int exponent;
	bool power = frexp(f, &exponent) == 0.5;

	for (int digits = 0; digits < 17; digits++) {
		char *e, up[40];

		(void)snprintf(out, 40, "%.*e", digits, f);
		if (strtod(out, NULL) == f)
			return;
		if (!power)
			continue;
		memcpy(up, out, sizeof up);
		e = strchr(up, 'e');
		if (!e)
			continue;
		*e = 0;
		if (digits_up(up)) {
			*e = 'e';
			if (strtod(up, NULL) == f) {
				memcpy(out, up, sizeof up);
				return;
			}
		}
	}
}

size_t jfloat_repr(double f, char out[32])
{
	char e[40], digits[24];
	int n = 0, point;
	size_t at = 0;

	if (!isfinite(f))
		return (size_t)snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
	shortest(fabs(f), e);
	for (const char *p = e; *p && *p != 'e'; p++)
		if (*p != '.' && n < 20)
			digits[n++] = *p;
	point = atoi(strchr(e, 'e') + 1) + 1;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	if (signbit(f))
		out[at++] = '-';
	if (point > 16 || point <= -4) {
		out[at++] = digits[0];
		if (n > 1)
			out[at++] = '.';
		memcpy(out + at, digits + 1, (size_t)n - 1);
		at += (size_t)n - 1;
		return at +
			(size_t)snprintf(out + at, 32 - at, "e%c%02d", point > 0 ? '+' : '-', abs(point - 1));
	}
	if (point <= 0) {
		at += (size_t)snprintf(out + at, 32 - at, "0.%.*s", -point, "0000");
		memcpy(out + at, digits, (size_t)n);
		at += (size_t)n;
	} else {
		for (int i = 0; i < point; i++)
			out[at++] = i < n ? digits[i] : '0';
		out[at++] = '.';
		if (n > point) {
			memcpy(out + at, digits + point, (size_t)(n - point));
			at += (size_t)(n - point);
		} else {
			out[at++] = '0';
		}
	}
	out[at] = 0;
	return at;
}

/* Copies a number without its underscores, each of which must stand between digits; false otherwise. */
static bool underscores_out(const char *s, size_t len, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (s[i] == '_') {
			if (!i || i + 1 == len || s[i - 1] < '0' || s[i - 1] > '9' || s[i + 1] < '0' ||
				s[i + 1] > '9')
				return false;
			continue;
		}
		if (n + 1 >= room)
			return false;
		out[n++] = s[i];
	}
	out[n] = 0;
	return true;
}

static bool word_is(const char *s, const char *word)
{
	for (; *s && *word; s++, word++)
		if ((*s | 32) != *word)
			return false;
	return !*s && !*word;
}

bool jfloat_parse(const char *s, size_t len, double *out)
{
	char text[512], *p = text, *end;
	bool digits = false;

	if (!underscores_out(s, len, text, sizeof text))
		return false;
	if (*p == '+' || *p == '-')
		p++;
	if (word_is(p, "inf") || word_is(p, "infinity") || word_is(p, "nan")) {
		*out = (*p | 32) == 'n' ? (double)NAN : (double)INFINITY;
		if (text[0] == '-')
			*out = -*out;
		return true;
	}
	for (const char *q = p; *q; q++) {
		digits |= *q >= '0' && *q <= '9';
		if (!strchr("0123456789.eE+-", *q))
			return false;
	}
	if (!digits)
		return false;
	*out = strtod(text, &end);
	return !*end;
}

/* Rounds half to even at 10^cut, exactly: on the decimal digits, as dividing first would round twice. */
static double round_tens(double f, size_t cut)
{
	char text[400] = "0", out[420];
	const char *rest;
	size_t len, keep;
	bool more;

	(void)snprintf(text + 1, sizeof text - 1, "%.0f", trunc(fabs(f))); /* the 0 in front takes a carry */
	len = strlen(text);
	if (len <= cut)
		return copysign(0, f);
	keep = len - cut;
	rest = text + keep;
	more = strspn(rest + 1, "0") < cut - 1 || trunc(f) != f;
	(void)snprintf(out, sizeof out, "%.*s", (int)keep, text);
	if (rest[0] > '5' || (rest[0] == '5' && (more || (text[keep - 1] & 1))))
		(void)digits_up(out);
	(void)snprintf(out + keep, sizeof out - keep, "e%d", (int)cut);
	return copysign(strtod(out, NULL), f);
}

double jfloat_round(double f, int64_t digits)
{
	char text[700];

	if (!isfinite(f) || digits > 323)
		return f;
	if (digits < -308)
		return copysign(0, f);
	if (digits < 0)
		return round_tens(f, (size_t)-digits);
	(void)snprintf(text, sizeof text, "%.*f", (int)digits, f);
	return strtod(text, NULL);
}
