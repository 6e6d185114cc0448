/* SPDX-License-Identifier: Apache-2.0
 * Reads JSON (jinja_json.h). The text is hostile.
 */
#include "engine/jinja_json.h"
#include "engine/jinja_int.h"
#include "base/utf8.h"
#include <string.h>

struct reader {
	struct jinja *j;
	const char *s;
	size_t len, at;
};

_Noreturn static void bad(struct reader *r, const char *what)
{
	jinja_fail(r->j, JFAIL_JSON, "%s at byte %zu", what, r->at);
}

static char peek(const struct reader *r) { return r->at < r->len ? r->s[r->at] : 0; }

static void skip_space(struct reader *r)
{
	while (r->at < r->len &&
		(r->s[r->at] == ' ' || r->s[r->at] == '\t' || r->s[r->at] == '\n' || r->s[r->at] == '\r'))
		r->at++;
}

static uint32_t hex4(struct reader *r)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++, r->at++) {
		char c = peek(r);

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v * 16 + (uint32_t)((c | 32) - 'a' + 10);
		else
			bad(r, "a malformed \\u escape");
	}
	return v;
}

static void read_escape(struct reader *r, struct jtext *t)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = peek(r);
	const char *known = c ? strchr(from, c) : NULL;
	uint32_t cp, low;

	r->at++;
	if (known) {
		jtext_putc(r->j, t, to[known - from], false);
		return;
	}
	if (c != 'u')
		bad(r, "an escape that JSON does not have");
	cp = hex4(r);
	if (cp >= 0xd800 && cp <= 0xdbff) {
		if (peek(r) != '\\' || r->at + 1 >= r->len || r->s[r->at + 1] != 'u')
			bad(r, "half of a surrogate pair");
		r->at += 2;
		low = hex4(r);
		if (low < 0xdc00 || low > 0xdfff)
			bad(r, "half of a surrogate pair");
		cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
	} else if (cp >= 0xdc00 && cp <= 0xdfff) {
		bad(r, "half of a surrogate pair");
	}
	jtext_put_cp(r->j, t, cp, false);
}

/* Eats bytes up to the next quote or backslash. */
static void plain_bytes(struct reader *r)
{
	while (r->at < r->len && r->s[r->at] != '"' && r->s[r->at] != '\\') {
		if ((uint8_t)r->s[r->at] < 0x20)
			bad(r, "a control character inside a string");
		r->at++;
	}
	if (r->at >= r->len)
		bad(r, "a string that is not closed");
}

static struct jstr *read_string(struct reader *r)
{
	size_t from = ++r->at;
	struct jtext *t;

	plain_bytes(r);
	if (peek(r) == '"')
		return jstr_ref(r->j, r->s + from, r->at++ - from, false);
	t = jtext_new(r->j, (r->at - from) * 2);
	for (;;) {
		jtext_put(r->j, t, r->s + from, r->at - from, false);
		if (peek(r) == '"')
			break;
		r->at++;
		read_escape(r, t);
		from = r->at;
		plain_bytes(r);
	}
	r->at++;
	return jtext_str(r->j, t);
}

static size_t read_digits(struct reader *r)
{
	size_t from = r->at;

	while (peek(r) >= '0' && peek(r) <= '9')
		r->at++;
	return r->at - from;
}

static bool word(struct reader *r, const char *w)
{
	size_t n = strlen(w);

	if (n > r->len - r->at || memcmp(r->s + r->at, w, n))
		return false;
	r->at += n;
	return true;
}

/* Text of any length: strtod needs a terminated copy. */
static double read_float(struct reader *r, size_t from)
{
	size_t n = r->at - from;
	double f = 0;

	if (n > 500 || !jfloat_parse(r->s + from, n, &f))
		bad(r, "a number that is too long");
	return f;
}

static struct jval read_number(struct reader *r)
{
	size_t from = r->at, digits, n;
	bool neg = word(r, "-"), real = false;

	if (neg && word(r, "Infinity"))
		return jval_float(-(double)__builtin_inf());
	digits = r->at;
	n = read_digits(r);
	if (!n || (n > 1 && r->s[digits] == '0'))
		bad(r, "a malformed number");
	if (peek(r) == '.') {
		r->at++;
		real = true;
		if (!read_digits(r))
			bad(r, "a malformed number");
	}
	if (peek(r) == 'e' || peek(r) == 'E') {
		r->at++;
		real = true;
		if (peek(r) == '+' || peek(r) == '-')
			r->at++;
		if (!read_digits(r))
			bad(r, "a malformed number");
	}
	if (real)
		return jval_float(read_float(r, from));
	if (n > JINT_MAX_DIGITS)
		bad(r, "an integer of too many digits");
	return jint_parse(r->j, r->s + digits, n, 10, neg);
}

static struct jval read_value(struct reader *r);

static struct jval read_array(struct reader *r)
{
	struct jlist *l = jlist_new(r->j, 0);

	r->at++;
	skip_space(r);
	while (peek(r) != ']') {
		if (l->n) {
			if (peek(r) != ',')
				bad(r, "',' or ']' is missing");
			r->at++;
		}
		jlist_push(r->j, l, read_value(r));
		skip_space(r);
	}
	r->at++;
	return jval_list(l);
}

static struct jval read_object(struct reader *r)
{
	struct jdict *d = jdict_new(r->j);
	bool first = true;

	r->at++;
	skip_space(r);
	while (peek(r) != '}') {
		struct jval key;

		if (!first) {
			if (peek(r) != ',')
				bad(r, "',' or '}' is missing");
			r->at++;
			skip_space(r);
		}
		first = false;
		if (peek(r) != '"')
			bad(r, "a key must be a string");
		key = jval_str(read_string(r));
		skip_space(r);
		if (peek(r) != ':')
			bad(r, "':' is missing");
		r->at++;
		jdict_set(r->j, d, key, read_value(r));
		skip_space(r);
	}
	r->at++;
	return jval_dict(d);
}

static struct jval read_value(struct reader *r)
{
	struct jval v;

	jinja_step(r->j, 1);
	jinja_enter(r->j);
	skip_space(r);
	switch (peek(r)) {
	case '"':
		v = jval_str(read_string(r));
		break;
	case '[':
		v = read_array(r);
		break;
	case '{':
		v = read_object(r);
		break;
	default:
		if (word(r, "true"))
			v = jval_bool(true);
		else if (word(r, "false"))
			v = jval_bool(false);
		else if (word(r, "null"))
			v = jval_none();
		else if (word(r, "NaN"))
			v = jval_float((double)__builtin_nan(""));
		else if (word(r, "Infinity"))
			v = jval_float((double)__builtin_inf());
		else
			v = read_number(r);
	}
	jinja_leave(r->j);
	return v;
}

struct jval jjson_parse(struct jinja *j, const char *text, size_t len)
{
	struct reader r = { .j = j, .s = text, .len = len };
	struct jval v;

	if (!utf8_valid(text, len, &r.at))
		bad(&r, "invalid UTF-8");
	r.at = 0;
	v = read_value(&r);
	skip_space(&r);
	if (r.at < len)
		bad(&r, "something follows the value");
	return v;
}

/* ---- members without values ---- */

/* End of the string whose quote is at `at`, behind its closing quote. */
static size_t string_end(const char *s, size_t len, size_t at)
{
	for (at++; at < len && s[at] != '"'; at++)
		at += s[at] == '\\';
	return at < len ? at + 1 : len;
}

bool jjson_member(const char *text, size_t len, const char *key, const char **value, size_t *value_len)
{
	size_t at = 0, depth = 0, from = 0, n = strlen(key);
	bool found = false, inside = false, want_key = false;

	for (; at < len; at++) {
		char c = text[at];

		if (inside && depth == 1 && (c == ',' || c == '}')) {
			*value_len = at - from;
			inside = false;
		}
		if (c == '{' || c == '[')
			want_key = ++depth == 1;
		else if (c == '}' || c == ']')
			depth -= depth > 0;
		else if (c == ',' && depth == 1)
			want_key = true;
		else if (c == '"') {
			size_t end = string_end(text, len, at);

			if (depth == 1 && want_key && end - at == n + 2 && !memcmp(text + at + 1, key, n)) {
				for (from = end; from < len && text[from] != ':'; from++)
					;
				from += from < len;
				*value = text + from;
				*value_len = len - from;
				found = inside = true;
			}
			want_key = false;
			at = end - 1;
		}
	}
	while (found && *value_len && strchr(" \t\r\n", (*value)[0])) {
		++*value;
		--*value_len;
	}
	while (found && *value_len && strchr(" \t\r\n", (*value)[*value_len - 1]))
		--*value_len;
	return found;
}
