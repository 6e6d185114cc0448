/* SPDX-License-Identifier: Apache-2.0
 * "%" and str.format (jinja_format.h). Fields of str.format reach members through the sandbox.
 */
#include "engine/jinja_format.h"
#include "engine/jinja_int.h"
#include "engine/jinja_strops.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

/* ---- "%" ---- */

struct percent {
	struct jinja *j;
	struct jstr *fmt;
	size_t at; /* bytes of fmt read */
	struct jval arg;
	const struct jlist *args; /* when arg is a tuple */
	size_t used;
	bool mapping;
};

static char percent_peek(const struct percent *p) { return p->at < p->fmt->len ? p->fmt->p[p->at] : 0; }

static struct jval percent_arg(struct percent *p)
{
	size_t n = p->args ? p->args->n : 1;

	if (p->used >= n)
		jinja_fail(p->j, JFAIL_TYPE, "format: too few arguments");
	return p->args ? p->args->v[p->used++] : (p->used++, p->arg);
}

static struct jval percent_key(struct percent *p)
{
	size_t from = p->at + 1, depth = 1;
	struct jval *v;

	for (p->at++; p->at < p->fmt->len; p->at++) {
		if (p->fmt->p[p->at] == '(')
			depth++;
		if (p->fmt->p[p->at] == ')' && !--depth)
			break;
	}
	if (depth)
		jinja_fail(p->j, JFAIL_VALUE, "format: a key is not closed");
	if (p->arg.kind != JV_DICT)
		jinja_fail(p->j, JFAIL_TYPE, "format: a mapping is needed");
	v = jdict_get_str(p->j, p->arg.u.dict, jstr_sub(p->j, p->fmt, from, p->at - from));
	p->at++;
	if (!v)
		jinja_fail(p->j, JFAIL_VALUE, "format: a key is not in the mapping");
	return *v;
}

/* A number or '*'; -1 if neither is there. */
static int64_t percent_number(struct percent *p)
{
	int64_t n = 0;
	bool any = false;

	if (percent_peek(p) == '*') {
		struct jval v = percent_arg(p);

		p->at++;
		if (!jval_is_int(v))
			jinja_fail(p->j, JFAIL_TYPE, "format: * needs an integer");
		return jval_index(p->j, v, "format");
	}
	for (; percent_peek(p) >= '0' && percent_peek(p) <= '9'; p->at++) {
		any = true;
		if (n > 1000000000)
			jinja_fail(p->j, JFAIL_LIMIT, "format: a width or precision is too large");
		n = n * 10 + (percent_peek(p) - '0');
	}
	return any ? n : -1;
}

static struct jspec percent_spec(struct percent *p)
{
	struct jspec s = { .width = -1, .precision = -1 };

	for (;; p->at++) {
		char c = percent_peek(p);

		if (c == '-')
			s.align = '<';
		else if (c == '+')
			s.sign = '+';
		else if (c == ' ')
			s.sign = s.sign ? s.sign : ' ';
		else if (c == '#')
			s.alt = true;
		else if (c == '0')
			s.zero = true;
		else
			break;
	}
	s.width = percent_number(p);
	if (s.width < -1) {
		s.align = '<';
		s.width = s.width == INT64_MIN ? INT64_MAX : -s.width;
	}
	if (percent_peek(p) == '.') {
		p->at++;
		s.precision = percent_number(p);
		if (s.precision < 0)
			s.precision = 0;
	}
	while (percent_peek(p) && strchr("hlL", percent_peek(p)))
		p->at++;
	s.type = percent_peek(p);
	p->at++;
	return s;
}

static struct jstr *ascii_of(struct jinja *j, struct jval v)
{
	struct jstr *r = jval_repr(j, v);
	struct jtext *t = jtext_new(j, r->len);
	struct jcursor c = jcursor_of(r);

	while (jcursor_next(&c)) {
		if (c.cp < 0x80)
			jtext_putc(j, t, (char)c.cp, false);
		else
			jtext_printf(j, t, false,
				c.cp < 0x100		 ? "\\x%02x"
					: c.cp < 0x10000 ? "\\u%04x"
							 : "\\U%08x",
				c.cp);
	}
	return jtext_str(j, t);
}

static void percent_text(struct percent *p, struct jtext *t, struct jspec *s, struct jval v)
{
	struct jinja *j = p->j;
	struct jstr *text = s->type == 's' ? jval_to_str(j, v)
		: s->type == 'r'	   ? jval_repr(j, v)
					   : ascii_of(j, v);

	if (p->fmt->markup)
		text = jstr_escape(j, text);
	if (s->precision >= 0 && (uint64_t)s->precision < text->n_cp)
		text = jstr_sub_cp(j, text, 0, (size_t)s->precision);
	jformat_put(j, t, s, text, '>');
}

static void percent_convert(struct percent *p, struct jtext *t, struct jspec *s, struct jval v)
{
	struct jinja *j = p->j;
	double f;

	if (s->type == 's' || s->type == 'r' || s->type == 'a') {
		percent_text(p, t, s, v);
		return;
	}
	if (s->type == 'c' && v.kind == JV_STR && v.u.s->n_cp == 1) {
		jformat_put(j, t, s, v.u.s, '>');
		return;
	}
	jval_check_defined(j, v);
	if (strchr("eEfFgG", s->type)) {
		if (!jval_is_number(v) || !jval_to_float(j, v, &f))
			jinja_fail(j, JFAIL_TYPE, "format %c: a number is needed, not '%s'", s->type,
				jval_type_name(v));
		v = jval_float(f);
	} else if (strchr("diu", s->type) && v.kind == JV_FLOAT && isfinite(v.u.f)) {
		v = jint_from_double(j, v.u.f);
	} else if (!jval_is_int(v)) {
		jinja_fail(j, JFAIL_TYPE, "format %c: an integer is needed, not '%s'", s->type,
			jval_type_name(v));
	}
	if (s->align == '<')
		s->zero = false;
	jformat_number(j, t, s, v);
}

static void percent_field(struct percent *p, struct jtext *t)
{
	struct jval v = jval_missing();
	struct jspec s;
	size_t from = p->at++;

	if (percent_peek(p) == '(')
		v = percent_key(p);
	s = percent_spec(p);
	if (s.type == '%') {
		jtext_putc(p->j, t, '%', jstr_trusted_at(p->fmt, from));
		return;
	}
	if (!s.type || !strchr("diuoxXeEfFgGcrsa", s.type))
		jinja_fail(p->j, JFAIL_VALUE, "format: a conversion that does not exist");
	percent_convert(p, t, &s, v.kind == JV_MISSING ? percent_arg(p) : v);
}

struct jstr *jformat_percent(struct jinja *j, struct jstr *fmt, struct jval arg)
{
	struct percent p = {
		.j = j, .fmt = fmt, .arg = arg, .args = arg.kind == JV_TUPLE ? arg.u.list : NULL
	};
	struct jtext *t = jtext_new(j, fmt->len);

	p.mapping = arg.kind == JV_DICT || arg.kind == JV_LIST || arg.kind == JV_UNDEFINED ||
		arg.kind == JV_RANGE || arg.kind == JV_BYTES;
	while (p.at < fmt->len) {
		const char *next = memchr(fmt->p + p.at, '%', fmt->len - p.at);
		size_t stop = next ? (size_t)(next - fmt->p) : fmt->len;

		jtext_put_bytes(j, t, fmt, p.at, stop - p.at);
		p.at = stop;
		if (next)
			percent_field(&p, t);
		jinja_step(j, 1);
	}
	if (!p.mapping && p.used < (p.args ? p.args->n : 1))
		jinja_fail(j, JFAIL_TYPE, "format: more arguments than conversions");
	return jstr_with(j, jtext_str(j, t), fmt->markup);
}

/* ---- str.format ---- */

struct braces {
	struct jinja *j;
	const struct jval *args;
	size_t n;
	struct jdict *kwargs;
	int64_t next_auto; /* -1 after an explicit number */
	bool markup;
};

static void braces_text(struct braces *b, struct jtext *t, struct jstr *fmt, int depth);

static bool all_digits(const struct jstr *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (s->p[i] < '0' || s->p[i] > '9')
			return false;
	return s->len > 0 && s->len < 18;
}

static struct jval field_number(struct braces *b, struct jstr *name)
{
	size_t i;

	if (!name->len) {
		if (b->next_auto < 0)
			jinja_fail(b->j, JFAIL_VALUE, "format: numbered and unnumbered fields are mixed");
		i = (size_t)b->next_auto++;
	} else {
		if (b->next_auto > 0)
			jinja_fail(b->j, JFAIL_VALUE, "format: numbered and unnumbered fields are mixed");
		b->next_auto = -1;
		i = (size_t)jint_parse(b->j, name->p, name->len, 10, false).u.i;
	}
	if (i >= b->n)
		jinja_fail(b->j, JFAIL_VALUE, "format: there is no argument number %zu", i);
	return b->args[i];
}

static struct jval field_first(struct braces *b, struct jstr *name)
{
	struct jval *v;

	if (!name->len || all_digits(name))
		return field_number(b, name);
	v = b->kwargs ? jdict_get_str(b->j, b->kwargs, name) : NULL;
	if (!v)
		jinja_fail(b->j, JFAIL_VALUE, "format: there is no argument '%s'", JSTR_SHOW(name));
	return *v;
}

/* "first.attribute[index]..." */
static struct jval field_value(struct braces *b, struct jstr *name)
{
	size_t at = 0, stop, len = name->len;
	struct jval v;

	for (; at < len && name->p[at] != '.' && name->p[at] != '['; at++)
		;
	v = field_first(b, jstr_sub(b->j, name, 0, at));
	while (at < len) {
		bool item = name->p[at] == '[';
		struct jstr *part;

		for (stop = at + 1; stop < len &&
			(item ? name->p[stop] != ']' : name->p[stop] != '.' && name->p[stop] != '[');
			stop++)
			;
		part = jstr_sub(b->j, name, at + 1, stop - at - 1);
		if (!part->len || (item && stop >= len))
			jinja_fail(b->j, JFAIL_VALUE, "format: a malformed field name");
		if (!item)
			v = jval_getattr(b->j, v, part);
		else
			v = jval_getitem(b->j, v,
				all_digits(part) ? jint_parse(b->j, part->p, part->len, 10, false)
						 : jval_str(part));
		at = stop + item;
		if (at < len && name->p[at] != '.' && name->p[at] != '[')
			jinja_fail(b->j, JFAIL_VALUE, "format: a malformed field name");
	}
	return v;
}

static int64_t spec_number(struct jinja *j, const struct jstr *s, size_t *at)
{
	int64_t n = 0;
	size_t from = *at;

	for (; *at < s->len && s->p[*at] >= '0' && s->p[*at] <= '9'; ++*at) {
		if (n > 1000000000)
			jinja_fail(j, JFAIL_LIMIT, "format: a width or precision is too large");
		n = n * 10 + (s->p[*at] - '0');
	}
	return *at > from ? n : -1;
}

static bool is_align(const struct jstr *s, size_t at) { return at < s->len && strchr("<>=^", s->p[at]); }

static struct jspec spec_parse(struct jinja *j, struct jstr *s)
{
	struct jspec spec = { .width = -1, .precision = -1 };
	size_t at = 0, first = s->len ? utf8_decode(s->p, s->len, NULL) : 0;

	if (first && is_align(s, first)) {
		spec.fill = jstr_sub(j, s, 0, first);
		spec.align = s->p[first];
		at = first + 1;
	} else if (is_align(s, 0)) {
		spec.align = s->p[at++];
	}
	if (at < s->len && strchr("+- ", s->p[at])) {
		spec.sign = s->p[at] == '-' ? 0 : s->p[at];
		at++;
	}
	if (at < s->len && s->p[at] == '#') {
		spec.alt = true;
		at++;
	}
	if (at < s->len && s->p[at] == '0') {
		spec.zero = true;
		if (!spec.fill)
			spec.fill = jstr_lit(j, "0", false);
		at++;
	}
	spec.width = spec_number(j, s, &at);
	if (at < s->len && (s->p[at] == ',' || s->p[at] == '_'))
		spec.group = s->p[at++];
	if (at < s->len && s->p[at] == '.') {
		at++;
		spec.precision = spec_number(j, s, &at);
		if (spec.precision < 0)
			jinja_fail(j, JFAIL_VALUE, "format: a precision is missing");
	}
	if (at < s->len)
		spec.type = s->p[at++];
	if (at < s->len)
		jinja_fail(j, JFAIL_VALUE, "format: '%s' is no format", JSTR_SHOW(s));
	return spec;
}

static void format_str(struct braces *b, struct jtext *t, const struct jspec *s, struct jstr *text)
{
	if ((s->type && s->type != 's') || s->sign || s->alt || s->align == '=' || s->group)
		jinja_fail(b->j, JFAIL_VALUE, "format: not a format of strings");
	if (s->precision >= 0 && (uint64_t)s->precision < text->n_cp)
		text = jstr_sub_cp(b->j, text, 0, (size_t)s->precision);
	jformat_put(b->j, t, s, text, '<');
}

static void format_value(struct braces *b, struct jtext *t, struct jstr *spec_text, struct jval v)
{
	struct jspec s;

	if (!spec_text->len) {
		jtext_put_str(b->j, t, jval_to_str(b->j, v));
		return;
	}
	s = spec_parse(b->j, spec_text);
	if (v.kind == JV_STR) {
		format_str(b, t, &s, v.u.s);
	} else if (jval_is_number(v)) {
		const char *types = v.kind == JV_FLOAT ? "eEfFgGn%" : "bcdoxXneEfFgG%";

		if ((s.type && !strchr(types, s.type)) ||
			(s.precision >= 0 && jval_is_int(v) && (!s.type || strchr("bcdoxXn", s.type))))
			jinja_fail(b->j, JFAIL_VALUE, "format: not a format of '%s'", jval_type_name(v));
		jformat_number(b->j, t, &s, v);
	} else {
		jinja_fail(b->j, JFAIL_TYPE, "format: '%s' takes no format", jval_type_name(v));
	}
}

/* Index of the ':' or '!' that ends the field's name. */
static size_t name_end(const struct jstr *f)
{
	bool in_item = false;

	for (size_t i = 0; i < f->len; i++) {
		if (f->p[i] == '[')
			in_item = true;
		else if (f->p[i] == ']')
			in_item = false;
		else if (!in_item && (f->p[i] == ':' || f->p[i] == '!'))
			return i;
	}
	return f->len;
}

static void braces_field(struct braces *b, struct jtext *t, struct jstr *f, int depth)
{
	struct jinja *j = b->j;
	size_t at = name_end(f);
	struct jval v = field_value(b, jstr_sub(j, f, 0, at));
	struct jtext *spec = jtext_new(j, 16), *out = jtext_new(j, 16);
	struct jstr *text;

	if (at < f->len && f->p[at] == '!') {
		char c = at + 1 < f->len ? f->p[at + 1] : 0;

		if ((c != 'r' && c != 's' && c != 'a') || (at + 2 < f->len && f->p[at + 2] != ':'))
			jinja_fail(j, JFAIL_VALUE, "format: an unknown conversion");
		v = jval_str(c == 'r' ? jval_repr(j, v) : c == 's' ? jval_to_str(j, v) : ascii_of(j, v));
		at += 2;
	}
	if (at < f->len)
		braces_text(b, spec, jstr_sub(j, f, at + 1, f->len - at - 1), depth + 1);
	if (b->markup && v.kind == JV_STR && v.u.s->markup) {
		if (spec->used)
			jinja_fail(j, JFAIL_VALUE, "format: markup takes no format");
		jtext_put_str(j, t, v.u.s);
		return;
	}
	format_value(b, out, jtext_str(j, spec), v);
	text = jtext_str(j, out);
	jtext_put_str(j, t, b->markup ? jstr_escape(j, text) : text);
}

/* End of the field that begins behind '{' at `at`: the index of its '}'. */
static size_t field_end(struct jinja *j, const struct jstr *fmt, size_t at)
{
	size_t depth = 1;

	for (; at < fmt->len; at++) {
		if (fmt->p[at] == '{')
			depth++;
		else if (fmt->p[at] == '}' && !--depth)
			return at;
	}
	jinja_fail(j, JFAIL_VALUE, "format: '{' is not closed");
}

static void braces_text(struct braces *b, struct jtext *t, struct jstr *fmt, int depth)
{
	struct jinja *j = b->j;

	if (depth > 2)
		jinja_fail(j, JFAIL_VALUE, "format: fields are nested too deep");
	for (size_t at = 0; at < fmt->len;) {
		size_t stop = at;

		jinja_step(j, 1);
		while (stop < fmt->len && fmt->p[stop] != '{' && fmt->p[stop] != '}')
			stop++;
		jtext_put_bytes(j, t, fmt, at, stop - at);
		if (stop >= fmt->len)
			return;
		if (stop + 1 < fmt->len && fmt->p[stop + 1] == fmt->p[stop]) {
			jtext_put_bytes(j, t, fmt, stop, 1);
			at = stop + 2;
			continue;
		}
		if (fmt->p[stop] == '}')
			jinja_fail(j, JFAIL_VALUE, "format: a '}' stands alone");
		at = field_end(j, fmt, stop + 1);
		braces_field(b, t, jstr_sub(j, fmt, stop + 1, at - stop - 1), depth);
		at++;
	}
}

struct jstr *jformat_braces(
	struct jinja *j, struct jstr *fmt, const struct jval *args, size_t n, struct jdict *kwargs)
{
	struct braces b = { .j = j, .args = args, .n = n, .kwargs = kwargs, .markup = fmt->markup };
	struct jtext *t = jtext_new(j, fmt->len);

	braces_text(&b, t, fmt, 1);
	return jstr_with(j, jtext_str(j, t), fmt->markup);
}
