/* SPDX-License-Identifier: Apache-2.0
 * Filters that give text.
 */
#include "engine/jinja_eval.h"
#include "engine/jinja_filters.h"
#include "engine/jinja_format.h"
#include "engine/jinja_strops.h"
#include "engine/jinja_wrap.h"
#include <stdio.h>
#include <string.h>

static struct jstr *plain_str(struct jinja *j, struct jval v)
{
	return jstr_with(j, jval_to_str(j, v), false);
}

static struct jstr *need_str(struct jinja *j, struct jval v, const char *what)
{
	jval_check_defined(j, v);
	if (v.kind != JV_STR)
		jinja_fail(j, JFAIL_TYPE, "%s: a string is needed, not '%s'", what, jval_type_name(v));
	return v.u.s;
}

static struct jstr *opt_str(struct jinja *j, struct jval v, const char *otherwise, const char *what)
{
	return jarg_given(v) && v.kind != JV_NONE ? need_str(j, v, what) : jstr_lit(j, otherwise, true);
}

#define UNUSED_ARGS ((void)argv, (void)call)

JFILTER(upper)
{
	UNUSED_ARGS;
	return jval_str(jstr_case(j, jval_to_str(j, self), JCASE_UPPER));
}
JFILTER(lower)
{
	UNUSED_ARGS;
	return jval_str(jstr_case(j, jval_to_str(j, self), JCASE_LOWER));
}
JFILTER(capitalize)
{
	UNUSED_ARGS;
	return jval_str(jstr_capitalize(j, jval_to_str(j, self)));
}
JFILTER(string)
{
	UNUSED_ARGS;
	return jval_str(jval_to_str(j, self));
}
JFILTER(safe)
{
	UNUSED_ARGS;
	return jval_str(jstr_with(j, jval_to_str(j, self), true));
}
JFILTER(escape)
{
	UNUSED_ARGS;
	return jval_str(jval_escape(j, self));
}
JFILTER(forceescape)
{
	UNUSED_ARGS;
	return jval_str(jstr_escape(j, plain_str(j, self)));
}
JFILTER(striptags)
{
	UNUSED_ARGS;
	return jval_str(jstr_striptags(j, plain_str(j, self)));
}

static bool begins_word(uint32_t cp)
{
	return cp < 0x80 && cp && strchr("-({[<", (int)cp) ? true : junicode_is_space(cp);
}

JFILTER(title)
{
	struct jstr *s = jval_to_str(j, self), *word;
	struct jtext *t = jtext_new(j, s->len);
	struct jcursor c = jcursor_of(s);
	size_t from = 0, first = 0;

	UNUSED_ARGS;
	for (bool more = true, prev = true; more;) {
		bool boundary;

		more = jcursor_next(&c);
		boundary = !more || begins_word(c.cp);
		if (more && (boundary == prev) && c.at) {
			continue;
		} else if (c.at > from) { /* the stretch [from, c.at) ended */
			word = jstr_sub(j, s, from, first);
			jtext_put_str(j, t, jstr_case(j, word, JCASE_UPPER));
			word = jstr_sub(j, s, from + first, c.at - from - first);
			jtext_put_str(j, t, jstr_case(j, word, JCASE_LOWER));
		}
		from = c.at;
		first = c.n;
		prev = boundary;
	}
	return jval_str(jtext_str(j, t));
}

JFILTER(trim)
{
	(void)call;
	return jval_str(jstr_strip(j, jval_to_str(j, self),
		jarg_given(argv[0]) && argv[0].kind != JV_NONE ? need_str(j, argv[0], "trim") : NULL,
		JSTRIP_BOTH));
}

JFILTER(center)
{
	(void)call;
	return jval_str(jstr_pad(j, jval_to_str(j, self), jarg_int(j, argv[0], 80, "center"),
		jstr_lit(j, " ", false), JPAD_CENTER));
}

JFILTER(replace)
{
	int64_t count = argv[2].kind == JV_NONE ? -1 : jarg_int(j, argv[2], -1, "replace: count");
	struct jstr *s = jval_to_str(j, self), *from = jval_to_str(j, argv[0]), *to = jval_to_str(j, argv[1]);

	(void)call;
	if (!j->run->autoescape)
		return jval_str(jstr_replace(j, jstr_with(j, s, false), from, to, count));
	if (from->markup || (to->markup && !s->markup))
		s = jstr_escape(j, s);
	return jval_str(jstr_replace(j, s, from, s->markup ? jstr_escape(j, to) : to, count));
}

JFILTER(format)
{
	struct jlist *args = jlist_new(j, call->n);
	struct jdict *kwargs;

	(void)argv;
	if (call->n && call->n_kw)
		jinja_fail(j, JFAIL_VALUE, "format: either positions or names, not both");
	if (!call->n_kw) {
		for (size_t i = 0; i < call->n; i++)
			args->v[args->n++] = call->args[i];
		return jval_str(jformat_percent(j, jval_to_str(j, self), jval_tuple(args)));
	}
	kwargs = jdict_new(j);
	for (size_t i = 0; i < call->n_kw; i++)
		jdict_set(j, kwargs, jval_str(call->kw_names[i]), call->kw[i]);
	return jval_str(jformat_percent(j, jval_to_str(j, self), jval_dict(kwargs)));
}

JFILTER(indent)
{
	struct jstr *s = need_str(j, self, "indent"), *by, *newline = jstr_lit(j, "\n", jstr_trusted(s));
	bool first = jarg_bool(j, argv[1], false), blank = jarg_bool(j, argv[2], false);
	struct jlist *lines = jstr_splitlines(j, jstr_concat(j, s, newline), false);
	struct jtext *t = jtext_new(j, s->len);

	(void)call;
	by = argv[0].kind == JV_STR
		? argv[0].u.s
		: jstr_repeat(j, jstr_lit(j, " ", jstr_trusted(s)), jarg_int(j, argv[0], 4, "indent: width"));
	if (s->markup)
		by = jstr_escape(j, by);
	for (size_t i = 0; i < lines->n; i++) {
		if (i)
			jtext_put_str(j, t, newline);
		if (i ? blank || lines->v[i].u.s->len : first)
			jtext_put_str(j, t, by);
		jtext_put_str(j, t, lines->v[i].u.s);
	}
	return jval_str(jstr_with(j, jtext_str(j, t), s->markup));
}

JFILTER(truncate)
{
	int64_t length = jarg_int(j, argv[0], 255, "truncate: length"), leeway;
	bool kill = jarg_bool(j, argv[1], false);
	struct jstr *s, *tail = opt_str(j, argv[2], "...", "truncate: end");
	struct jlist *parts;

	(void)call;
	leeway = argv[3].kind == JV_NONE ? 5 : jarg_int(j, argv[3], 5, "truncate: leeway");
	if (length < (int64_t)tail->n_cp || leeway < 0)
		jinja_fail(j, JFAIL_VALUE,
			"truncate: the length is less than that of the end, or the leeway is negative");
	if (length > INT64_MAX - leeway || jval_len(j, self) <= length + leeway)
		return self;
	s = need_str(j, self, "truncate");
	s = jstr_sub_cp(j, s, 0, (size_t)length - tail->n_cp);
	if (!kill) {
		parts = jstr_split(j, s, jstr_lit(j, " ", true), 1, true);
		s = parts->v[0].u.s;
	}
	return jval_binary(j, JOP_ADD, jval_str(s), jval_str(tail));
}

JFILTER(wordcount)
{
	struct jcursor c = jcursor_of(jval_to_str(j, self));
	bool in_word = false;
	int64_t n = 0;

	UNUSED_ARGS;
	jinja_step(j, c.s->len / 8);
	while (jcursor_next(&c)) {
		n += !in_word && junicode_is_word(c.cp);
		in_word = junicode_is_word(c.cp);
	}
	return jval_int(n);
}

JFILTER(wordwrap)
{
	struct jstr *s = need_str(j, self, "wordwrap"),
		    *newline = opt_str(j, argv[2], "\n", "wordwrap: wrapstring");
	struct jwrap w = { .width = jarg_int(j, argv[0], 79, "wordwrap: width"),
		.break_long = jarg_bool(j, argv[1], true),
		.break_hyphens = jarg_bool(j, argv[3], true) };
	struct jlist *paragraphs = jstr_splitlines(j, s, false);

	(void)call;
	for (size_t i = 0; i < paragraphs->n; i++)
		paragraphs->v[i] = jval_str(jstr_join(j, newline, jwrap_lines(j, paragraphs->v[i].u.s, &w)));
	return jval_str(jstr_with(j, jstr_join(j, newline, paragraphs), false));
}

JFILTER(filesizeformat)
{
	static const char *const decimal[] = { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" };
	static const char *const binary[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" };
	bool two = jarg_bool(j, argv[0], false);
	double bytes, base = two ? 1024 : 1000, unit = base;
	char text[400];
	size_t i = 0;

	(void)call;
	jval_check_defined(j, self);
	if (!jval_to_float(j, self, &bytes))
		jinja_fail(
			j, JFAIL_VALUE, "filesizeformat: a number is needed, not '%s'", jval_type_name(self));
	if (bytes == 1) {
		return jval_str(jstr_lit(j, "1 Byte", false));
	} else if (bytes < base) {
		struct jstr *whole = NULL;
		struct jval v;

		if (!jval_to_int(j, jval_float(bytes), 10, &v))
			jinja_fail(j, JFAIL_VALUE, "filesizeformat: not a finite number");
		whole = jval_to_str(j, v);
		return jval_str(jstr_concat(j, whole, jstr_lit(j, " Bytes", false)));
	}
	for (unit = base * base; bytes >= unit && i < 7; i++)
		unit *= base;
	(void)snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, (two ? binary : decimal)[i]);
	return jval_str(jstr_copy(j, text, strlen(text), false));
}

/* ---- URLs and XML ---- */

static void put_quoted(struct jinja *j, struct jtext *t, const struct jstr *s, bool query)
{
	jinja_step(j, s->len / 4);
	for (size_t i = 0; i < s->len; i++) {
		uint8_t c = (uint8_t)s->p[i];
		bool alnum = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');

		if (alnum || (c && strchr("_.-~", c)) || (c == '/' && !query))
			jtext_putc(j, t, (char)c, jstr_trusted_at(s, i));
		else if (c == ' ' && query)
			jtext_putc(j, t, '+', false);
		else
			jtext_printf(j, t, false, "%%%02X", c);
	}
}

static void put_pair(struct jinja *j, struct jtext *t, struct jval pair)
{
	struct jlist *kv = jlist_of(j, pair);

	if (kv->n != 2)
		jinja_fail(j, JFAIL_VALUE, "urlencode: pairs are needed");
	if (t->used)
		jtext_putc(j, t, '&', true);
	put_quoted(j, t, jval_to_str(j, kv->v[0]), true);
	jtext_putc(j, t, '=', true);
	put_quoted(j, t, jval_to_str(j, kv->v[1]), true);
}

JFILTER(urlencode)
{
	struct jtext *t = jtext_new(j, 64);
	struct jiter *it;
	struct jval v;

	UNUSED_ARGS;
	if (self.kind == JV_STR || self.kind == JV_BYTES || !jval_iterable(self)) {
		put_quoted(j, t, self.kind == JV_BYTES ? self.u.s : jval_to_str(j, self), false);
		return jval_str(jtext_str(j, t));
	}
	if (self.kind == JV_DICT)
		self = (struct jval){ .kind = JV_VIEW, .flag = JVIEW_ITEMS, .u.dict = self.u.dict };
	it = jiter_of(j, self);
	while (jiter_next(j, it, &v))
		put_pair(j, t, v);
	return jval_str(jtext_str(j, t));
}

static bool attribute_name_ok(const struct jstr *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (!s->p[i] || strchr(" \t\n\r\f\v/>=", s->p[i]))
			return !s->p[i];
	return true;
}

JFILTER(xmlattr)
{
	struct jtext *t = jtext_new(j, 64);
	bool autospace = jarg_bool(j, argv[0], true);

	(void)call;
	jval_check_defined(j, self);
	if (self.kind != JV_DICT)
		jinja_fail(j, JFAIL_TYPE, "xmlattr: a dict is needed, not '%s'", jval_type_name(self));
	for (uint32_t i = 0; i < self.u.dict->n; i++) {
		struct jentry *e = &self.u.dict->e[i];

		if (e->value.kind == JV_NONE || e->value.kind == JV_UNDEFINED)
			continue;
		if (!attribute_name_ok(need_str(j, e->key, "xmlattr")))
			jinja_fail(
				j, JFAIL_VALUE, "xmlattr: a character that names of attributes cannot have");
		if (t->used || autospace)
			jtext_putc(j, t, ' ', true);
		jtext_put_str(j, t, jval_escape(j, e->key));
		jtext_put(j, t, "=\"", 2, true);
		jtext_put_str(j, t, jval_escape(j, e->value));
		jtext_putc(j, t, '"', true);
	}
	return jval_str(jstr_with(j, jtext_str(j, t), j->run->autoescape));
}
