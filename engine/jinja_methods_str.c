/* SPDX-License-Identifier: Apache-2.0
 * Methods of strings. Markup has the same ones: what it gives is markup, and what is put into it is escaped.
 */
#include "engine/jinja_format.h"
#include "engine/jinja_methods.h"
#include "engine/jinja_strops.h"
#include "base/utf8.h"
#include <string.h>

#define METHOD(name)                                                                                         \
	static struct jval name(                                                                             \
		struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
#define UNUSED_ARGS ((void)j, (void)self, (void)argv, (void)call)

static struct jstr *need_str(struct jinja *j, struct jval v, const char *what)
{
	if (v.kind != JV_STR)
		jinja_fail(j, JFAIL_TYPE, "%s: a string is needed, not '%s'", what, jval_type_name(v));
	return v.u.s;
}

static int64_t opt_int(struct jinja *j, struct jval v, int64_t otherwise, const char *what)
{
	return v.kind == JV_MISSING ? otherwise : jval_index(j, v, what);
}

/* Text that becomes part of s: escaped when s is markup. */
static struct jstr *part_of(struct jinja *j, const struct jstr *s, struct jval v, const char *what)
{
	if (s->markup)
		return jval_escape(j, v);
	return need_str(j, v, what);
}

/* ---- case ---- */

METHOD(m_upper)
{
	UNUSED_ARGS;
	return jval_str(jstr_case(j, self.u.s, JCASE_UPPER));
}
METHOD(m_lower)
{
	UNUSED_ARGS;
	return jval_str(jstr_case(j, self.u.s, JCASE_LOWER));
}
METHOD(m_casefold)
{
	UNUSED_ARGS;
	return jval_str(jstr_case(j, self.u.s, JCASE_FOLD));
}
METHOD(m_capitalize)
{
	UNUSED_ARGS;
	return jval_str(jstr_capitalize(j, self.u.s));
}
METHOD(m_title)
{
	UNUSED_ARGS;
	return jval_str(jstr_title(j, self.u.s));
}
METHOD(m_swapcase)
{
	UNUSED_ARGS;
	return jval_str(jstr_swapcase(j, self.u.s));
}

/* ---- trimming ---- */

static struct jval strip(struct jinja *j, struct jval self, struct jval chars, int sides)
{
	if (chars.kind == JV_MISSING || chars.kind == JV_NONE)
		return jval_str(jstr_strip(j, self.u.s, NULL, sides));
	return jval_str(jstr_strip(j, self.u.s, need_str(j, chars, "strip"), sides));
}

METHOD(m_strip)
{
	UNUSED_ARGS;
	return strip(j, self, argv[0], JSTRIP_BOTH);
}
METHOD(m_lstrip)
{
	UNUSED_ARGS;
	return strip(j, self, argv[0], JSTRIP_LEFT);
}
METHOD(m_rstrip)
{
	UNUSED_ARGS;
	return strip(j, self, argv[0], JSTRIP_RIGHT);
}

METHOD(m_removeprefix)
{
	struct jstr *s = self.u.s, *prefix = need_str(j, argv[0], "removeprefix");

	(void)call;
	if (prefix->len > s->len || memcmp(s->p, prefix->p, prefix->len))
		return self;
	return jval_str(jstr_sub(j, s, prefix->len, s->len - prefix->len));
}

METHOD(m_removesuffix)
{
	struct jstr *s = self.u.s, *suffix = need_str(j, argv[0], "removesuffix");

	(void)call;
	if (!suffix->len || suffix->len > s->len ||
		memcmp(s->p + s->len - suffix->len, suffix->p, suffix->len))
		return self;
	return jval_str(jstr_sub(j, s, 0, s->len - suffix->len));
}

/* ---- padding ---- */

static struct jval pad(struct jinja *j, struct jval self, struct jval *argv, int where)
{
	struct jstr *fill = argv[1].kind == JV_MISSING ? jstr_lit(j, " ", false)
						       : part_of(j, self.u.s, argv[1], "padding");

	if (fill->n_cp != 1)
		jinja_fail(j, JFAIL_TYPE, "padding: the fill must be one character");
	return jval_str(jstr_pad(j, self.u.s, jval_index(j, argv[0], "padding"), fill, where));
}

METHOD(m_center)
{
	UNUSED_ARGS;
	return pad(j, self, argv, JPAD_CENTER);
}
METHOD(m_ljust)
{
	UNUSED_ARGS;
	return pad(j, self, argv, JPAD_RIGHT);
}
METHOD(m_rjust)
{
	UNUSED_ARGS;
	return pad(j, self, argv, JPAD_LEFT);
}

METHOD(m_zfill)
{
	struct jstr *s = self.u.s, *zero = jstr_lit(j, "0", false);
	int64_t width = jval_index(j, argv[0], "zfill");
	size_t sign = s->len && (s->p[0] == '+' || s->p[0] == '-');
	struct jtext *t;

	(void)call;
	if (width <= (int64_t)s->n_cp)
		return self;
	t = jtext_new(j, s->len);
	jtext_put_bytes(j, t, s, 0, sign);
	jtext_put_fill(j, t, zero, (size_t)width - s->n_cp);
	jtext_put_bytes(j, t, s, sign, s->len - sign);
	return jval_str(jstr_with(j, jtext_str(j, t), s->markup));
}

METHOD(m_expandtabs)
{
	struct jstr *s = self.u.s, *space = jstr_lit(j, " ", false);
	int64_t size = opt_int(j, argv[0], 8, "expandtabs"), column = 0;
	struct jtext *t = jtext_new(j, s->len);
	struct jcursor c = jcursor_of(s);

	(void)call;
	jinja_step(j, s->len / 4);
	while (jcursor_next(&c)) {
		if (c.cp == '\t') {
			int64_t n = size > 0 ? size - column % size : 0;

			jtext_put_fill(j, t, space, (size_t)n);
			column += n;
			continue;
		}
		column = c.cp == '\n' || c.cp == '\r' ? 0 : column + 1;
		jtext_put(j, t, s->p + c.at, c.n, c.trusted);
	}
	return jval_str(jstr_with(j, jtext_str(j, t), s->markup));
}

/* ---- searching ---- */

struct window { /* s[start:end] as bytes */
	size_t from, to;
	bool empty; /* start lies behind end or behind the string: nothing is found, not even "" */
};

static int64_t bound(struct jinja *j, struct jval v, int64_t n, int64_t otherwise, const char *what)
{
	int64_t i = v.kind == JV_MISSING || v.kind == JV_NONE ? otherwise : jval_index(j, v, what);

	if (i < 0)
		i = i + n < 0 ? 0 : i + n;
	return i;
}

static struct window window(
	struct jinja *j, const struct jstr *s, struct jval start, struct jval end, const char *what)
{
	int64_t n = (int64_t)s->n_cp, from = bound(j, start, n, 0, what), to = bound(j, end, n, n, what);

	if (to > n)
		to = n;
	if (from > to)
		return (struct window){ .empty = true };
	return (struct window){ .from = jstr_byte_of(s, (size_t)from), .to = jstr_byte_of(s, (size_t)to) };
}

static int64_t find(struct jinja *j, struct jval self, struct jval *argv, bool from_right, const char *what)
{
	struct jstr *s = self.u.s, *needle = need_str(j, argv[0], what);
	struct window w = window(j, s, argv[1], argv[2], what);
	size_t hit;

	if (w.empty)
		return -1;
	hit = from_right ? jstr_rfind(j, s, needle, w.from, w.to) : jstr_find(j, s, needle, w.from, w.to);
	return hit == SIZE_MAX ? -1 : (int64_t)jstr_cp_of(s, hit);
}

static struct jval must_find(struct jinja *j, int64_t at, const char *what)
{
	if (at < 0)
		jinja_fail(j, JFAIL_VALUE, "%s: the text is not there", what);
	return jval_int(at);
}

METHOD(m_find)
{
	UNUSED_ARGS;
	return jval_int(find(j, self, argv, false, "find"));
}
METHOD(m_rfind)
{
	UNUSED_ARGS;
	return jval_int(find(j, self, argv, true, "rfind"));
}
METHOD(m_index)
{
	UNUSED_ARGS;
	return must_find(j, find(j, self, argv, false, "index"), "index");
}
METHOD(m_rindex)
{
	UNUSED_ARGS;
	return must_find(j, find(j, self, argv, true, "rindex"), "rindex");
}

METHOD(m_count)
{
	struct jstr *s = self.u.s, *needle = need_str(j, argv[0], "count");
	struct window w = window(j, s, argv[1], argv[2], "count");
	int64_t n = 0;

	(void)call;
	if (w.empty)
		return jval_int(0);
	if (!needle->len)
		return jval_int((int64_t)jstr_cp_count(s->p + w.from, w.to - w.from) + 1);
	for (size_t at = w.from; (at = jstr_find(j, s, needle, at, w.to)) != SIZE_MAX; at += needle->len) {
		jinja_step(j, 1);
		n++;
	}
	return jval_int(n);
}

static bool affix_is(const struct jstr *s, struct window w, const struct jstr *affix, bool at_end)
{
	if (w.empty || affix->len > w.to - w.from)
		return false;
	return !memcmp(s->p + (at_end ? w.to - affix->len : w.from), affix->p, affix->len);
}

static struct jval affix(struct jinja *j, struct jval self, struct jval *argv, bool at_end, const char *what)
{
	struct window w = window(j, self.u.s, argv[1], argv[2], what);

	if (argv[0].kind != JV_TUPLE)
		return jval_bool(affix_is(self.u.s, w, need_str(j, argv[0], what), at_end));
	for (size_t i = 0; i < argv[0].u.list->n; i++) {
		jinja_step(j, 1);
		if (affix_is(self.u.s, w, need_str(j, argv[0].u.list->v[i], what), at_end))
			return jval_bool(true);
	}
	return jval_bool(false);
}

METHOD(m_startswith)
{
	UNUSED_ARGS;
	return affix(j, self, argv, false, "startswith");
}
METHOD(m_endswith)
{
	UNUSED_ARGS;
	return affix(j, self, argv, true, "endswith");
}

/* ---- splitting and joining ---- */

static struct jval split(struct jinja *j, struct jval self, struct jval *argv, bool from_right)
{
	int64_t max = opt_int(j, argv[1], -1, "split");

	if (argv[0].kind == JV_MISSING || argv[0].kind == JV_NONE)
		return jval_list(jstr_split_space(j, self.u.s, max, from_right));
	return jval_list(jstr_split(j, self.u.s, need_str(j, argv[0], "split"), max, from_right));
}

METHOD(m_split)
{
	UNUSED_ARGS;
	return split(j, self, argv, false);
}
METHOD(m_rsplit)
{
	UNUSED_ARGS;
	return split(j, self, argv, true);
}

METHOD(m_splitlines)
{
	(void)call;
	return jval_list(jstr_splitlines(j, self.u.s, opt_int(j, argv[0], 0, "splitlines") != 0));
}

static struct jval partition(struct jinja *j, struct jval self, struct jval *argv, bool from_right)
{
	struct jstr *s = self.u.s, *sep = need_str(j, argv[0], "partition"), *empty = jstr_sub(j, s, 0, 0);
	struct jlist *l = jlist_new(j, 3);
	size_t hit;

	if (!sep->len)
		jinja_fail(j, JFAIL_VALUE, "partition: the separator is empty");
	hit = from_right ? jstr_rfind(j, s, sep, 0, s->len) : jstr_find(j, s, sep, 0, s->len);
	l->n = 3;
	l->v[0] = jval_str(hit == SIZE_MAX ? (from_right ? empty : s) : jstr_sub(j, s, 0, hit));
	l->v[1] = jval_str(hit == SIZE_MAX ? empty : jstr_sub(j, s, hit, sep->len));
	l->v[2] = jval_str(hit == SIZE_MAX ? (from_right ? s : empty)
					   : jstr_sub(j, s, hit + sep->len, s->len - hit - sep->len));
	return jval_tuple(l);
}

METHOD(m_partition)
{
	UNUSED_ARGS;
	return partition(j, self, argv, false);
}
METHOD(m_rpartition)
{
	UNUSED_ARGS;
	return partition(j, self, argv, true);
}

METHOD(m_join)
{
	struct jlist *parts = jlist_of(j, argv[0]);

	(void)call;
	for (size_t i = 0; i < parts->n; i++) {
		if (self.u.s->markup)
			parts->v[i] = jval_str(jval_escape(j, parts->v[i]));
		(void)need_str(j, parts->v[i], "join");
	}
	return jval_str(jstr_with(j, jstr_join(j, self.u.s, parts), self.u.s->markup));
}

METHOD(m_replace)
{
	struct jstr *from = need_str(j, argv[0], "replace"), *to = part_of(j, self.u.s, argv[1], "replace");

	(void)call;
	return jval_str(jstr_replace(j, self.u.s, from, to, opt_int(j, argv[2], -1, "replace")));
}

/* ---- formatting ---- */

METHOD(m_format)
{
	struct jdict *kwargs = jdict_new(j);

	(void)argv;
	for (size_t i = 0; i < call->n_kw; i++)
		jdict_set(j, kwargs, jval_str(call->kw_names[i]), call->kw[i]);
	return jval_str(jformat_braces(j, self.u.s, call->args, call->n, kwargs));
}

METHOD(m_format_map)
{
	(void)call;
	if (argv[0].kind != JV_DICT)
		jinja_fail(j, JFAIL_TYPE, "format_map: a dict is needed, not '%s'", jval_type_name(argv[0]));
	return jval_str(jformat_braces(j, self.u.s, NULL, 0, argv[0].u.dict));
}

METHOD(m_encode)
{
	(void)call;
	if (argv[0].kind != JV_MISSING) {
		struct jstr *name = jstr_case(j, need_str(j, argv[0], "encode"), JCASE_LOWER);

		if (!jstr_is(name, "utf-8") && !jstr_is(name, "utf8") &&
			!(jstr_is(name, "ascii") && self.u.s->n_cp == self.u.s->len))
			jinja_fail(j, JFAIL_VALUE, "encode: only utf-8 is supported");
	}
	return JV(JV_BYTES, s, jstr_with(j, self.u.s, false));
}

METHOD(m_translate)
{
	struct jtext *t = jtext_new(j, self.u.s->len);
	struct jcursor c = jcursor_of(self.u.s);
	int64_t cp;

	(void)call;
	if (argv[0].kind != JV_DICT)
		jinja_fail(j, JFAIL_TYPE, "translate: a dict is needed, not '%s'", jval_type_name(argv[0]));
	while (jcursor_next(&c)) {
		struct jval *to = jdict_get(j, argv[0].u.dict, jval_int(c.cp));

		if (!to)
			jtext_put(j, t, self.u.s->p + c.at, c.n, c.trusted);
		else if (to->kind == JV_STR)
			jtext_put_str(j, t, to->u.s);
		else if (jval_small(*to, &cp) && cp >= 0 && cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff))
			jtext_put_cp(j, t, (uint32_t)cp, false);
		else if (to->kind != JV_NONE)
			jinja_fail(
				j, JFAIL_TYPE, "translate: a character maps to a string, an integer or none");
	}
	return jval_str(jstr_with(j, jtext_str(j, t), self.u.s->markup));
}

METHOD(m_maketrans)
{
	struct jdict *d = jdict_new(j);
	struct jstr *from, *to;
	struct jcursor a, b;

	(void)self;
	(void)call;
	if (argv[1].kind == JV_MISSING && argv[0].kind == JV_DICT) {
		for (uint32_t i = 0; i < argv[0].u.dict->n; i++) {
			struct jentry *e = &argv[0].u.dict->e[i];
			struct jcursor c;

			if (e->key.kind == JV_STR) {
				c = jcursor_of(e->key.u.s);
				if (e->key.u.s->n_cp != 1 || !jcursor_next(&c))
					jinja_fail(
						j, JFAIL_VALUE, "maketrans: keys must be one character long");
				jdict_set(j, d, jval_int(c.cp), e->value);
			} else {
				jdict_set(j, d, e->key, e->value);
			}
		}
		return jval_dict(d);
	}
	from = need_str(j, argv[0], "maketrans");
	to = need_str(j, argv[1], "maketrans");
	if (from->n_cp != to->n_cp)
		jinja_fail(j, JFAIL_VALUE, "maketrans: both strings must have the same length");
	for (a = jcursor_of(from), b = jcursor_of(to); jcursor_next(&a) && jcursor_next(&b);)
		jdict_set(j, d, jval_int(a.cp), jval_int(b.cp));
	if (argv[2].kind != JV_MISSING)
		for (a = jcursor_of(need_str(j, argv[2], "maketrans")); jcursor_next(&a);)
			jdict_set(j, d, jval_int(a.cp), jval_none());
	return jval_dict(d);
}

/* ---- what kind of characters ---- */

static struct jval every(struct jinja *j, const struct jstr *s, bool (*is)(uint32_t))
{
	struct jcursor c = jcursor_of(s);

	jinja_step(j, s->len / 8);
	while (jcursor_next(&c))
		if (!is(c.cp))
			return jval_bool(false);
	return jval_bool(s->len > 0);
}

static bool is_decimal(uint32_t cp) { return junicode_decimal(cp) >= 0; }
static bool is_alnum(uint32_t cp) { return junicode_is_alnum(cp) || junicode_is_digit(cp); }

METHOD(m_isalpha)
{
	UNUSED_ARGS;
	return every(j, self.u.s, junicode_is_alpha);
}
METHOD(m_isalnum)
{
	UNUSED_ARGS;
	return every(j, self.u.s, is_alnum);
}
METHOD(m_isdecimal)
{
	UNUSED_ARGS;
	return every(j, self.u.s, is_decimal);
}
METHOD(m_isdigit)
{
	UNUSED_ARGS;
	return every(j, self.u.s, junicode_is_digit);
}
METHOD(m_isnumeric)
{
	UNUSED_ARGS;
	return every(j, self.u.s, junicode_is_numeric);
}
METHOD(m_isspace)
{
	UNUSED_ARGS;
	return every(j, self.u.s, junicode_is_space);
}
METHOD(m_isascii)
{
	UNUSED_ARGS;
	return jval_bool(jstr_cp_count(self.u.s->p, self.u.s->len) == self.u.s->len);
}

METHOD(m_isprintable)
{
	(void)argv;
	(void)call;
	return jval_bool(!self.u.s->len || every(j, self.u.s, junicode_is_printable).u.b);
}

METHOD(m_isidentifier)
{
	struct jcursor c = jcursor_of(self.u.s);

	(void)argv;
	(void)call;
	jinja_step(j, self.u.s->len / 8);
	while (jcursor_next(&c))
		if (c.at ? !junicode_is_name_part(c.cp) : !junicode_is_name_start(c.cp))
			return jval_bool(false);
	return jval_bool(self.u.s->len > 0);
}

bool jstr_is_case(struct jinja *j, const struct jstr *s, bool upper)
{
	struct jcursor c = jcursor_of(s);
	bool cased = false;

	jinja_step(j, s->len / 8);
	while (jcursor_next(&c)) {
		if ((upper ? junicode_is_lower(c.cp) : junicode_is_upper(c.cp)) || junicode_is_title(c.cp))
			return false;
		cased |= upper ? junicode_is_upper(c.cp) : junicode_is_lower(c.cp);
	}
	return cased;
}

METHOD(m_isupper)
{
	UNUSED_ARGS;
	return jval_bool(jstr_is_case(j, self.u.s, true));
}
METHOD(m_islower)
{
	UNUSED_ARGS;
	return jval_bool(jstr_is_case(j, self.u.s, false));
}

METHOD(m_istitle)
{
	struct jcursor c = jcursor_of(self.u.s);
	bool in_word = false, cased = false;

	(void)argv;
	(void)call;
	jinja_step(j, self.u.s->len / 8);
	while (jcursor_next(&c)) {
		bool starts = junicode_is_upper(c.cp) || junicode_is_title(c.cp),
		     lower = junicode_is_lower(c.cp);

		if (starts ? in_word : lower && !in_word)
			return jval_bool(false);
		in_word = starts || lower;
		cased |= in_word;
	}
	return jval_bool(cased);
}

METHOD(m_striptags)
{
	UNUSED_ARGS;
	return jval_str(jstr_with(j, jstr_striptags(j, jstr_with(j, self.u.s, false)), false));
}

static const struct jbuiltin methods[] = {
	{ "capitalize", m_capitalize, "/", 0 },
	{ "casefold", m_casefold, "/", 0 },
	{ "center", m_center, "/w,f", 1 },
	{ "count", m_count, "/sub,start,end", 1 },
	{ "encode", m_encode, "encoding,errors", 0 },
	{ "endswith", m_endswith, "/suffix,start,end", 1 },
	{ "expandtabs", m_expandtabs, "tabsize", 0 },
	{ "find", m_find, "/sub,start,end", 1 },
	{ "format", m_format, NULL, 0 },
	{ "format_map", m_format_map, "/m", 1 },
	{ "index", m_index, "/sub,start,end", 1 },
	{ "isalnum", m_isalnum, "/", 0 },
	{ "isalpha", m_isalpha, "/", 0 },
	{ "isascii", m_isascii, "/", 0 },
	{ "isdecimal", m_isdecimal, "/", 0 },
	{ "isdigit", m_isdigit, "/", 0 },
	{ "isidentifier", m_isidentifier, "/", 0 },
	{ "islower", m_islower, "/", 0 },
	{ "isnumeric", m_isnumeric, "/", 0 },
	{ "isprintable", m_isprintable, "/", 0 },
	{ "isspace", m_isspace, "/", 0 },
	{ "istitle", m_istitle, "/", 0 },
	{ "isupper", m_isupper, "/", 0 },
	{ "join", m_join, "/iterable", 1 },
	{ "ljust", m_ljust, "/w,f", 1 },
	{ "lower", m_lower, "/", 0 },
	{ "lstrip", m_lstrip, "/chars", 0 },
	{ "maketrans", m_maketrans, "/x,y,z", 1 },
	{ "partition", m_partition, "/sep", 1 },
	{ "removeprefix", m_removeprefix, "/p", 1 },
	{ "removesuffix", m_removesuffix, "/s", 1 },
	{ "replace", m_replace, "/old,new,count", 2 },
	{ "rfind", m_rfind, "/sub,start,end", 1 },
	{ "rindex", m_rindex, "/sub,start,end", 1 },
	{ "rjust", m_rjust, "/w,f", 1 },
	{ "rpartition", m_rpartition, "/sep", 1 },
	{ "rsplit", m_rsplit, "sep,maxsplit", 0 },
	{ "rstrip", m_rstrip, "/chars", 0 },
	{ "split", m_split, "sep,maxsplit", 0 },
	{ "splitlines", m_splitlines, "keepends", 0 },
	{ "startswith", m_startswith, "/prefix,start,end", 1 },
	{ "strip", m_strip, "/chars", 0 },
	{ "swapcase", m_swapcase, "/", 0 },
	{ "title", m_title, "/", 0 },
	{ "translate", m_translate, "/table", 1 },
	{ "upper", m_upper, "/", 0 },
	{ "zfill", m_zfill, "/width", 1 },
};

const struct jbuiltin *jmethod_find_str(const struct jstr *self, const struct jstr *name)
{
	static const struct jbuiltin striptags = { "striptags", m_striptags, "/", 0 };

	if (self->markup && jstr_is(name, "striptags"))
		return &striptags;
	return jbuiltin_find(methods, sizeof methods / sizeof methods[0], name);
}
