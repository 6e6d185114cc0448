/* SPDX-License-Identifier: Apache-2.0
 * Writes JSON as json.dumps does (jinja_json.h), and the tojson filter. The text counts as untrusted.
 */
#include "engine/jinja_json.h"
#include "engine/jinja_filters.h"
#include "engine/jinja_int.h"
#include <math.h>
#include <string.h>

struct writer {
	struct jinja *j;
	struct jtext *t;
	const struct jjson_style *style;
	size_t level;
};

static void put(struct writer *w, const char *s) { jtext_put(w->j, w->t, s, strlen(s), false); }

static void put_plain(struct writer *w, const struct jstr *s) { jtext_put(w->j, w->t, s->p, s->len, false); }

static void put_escape(struct writer *w, uint32_t cp)
{
	if (cp >= 0x10000)
		jtext_printf(w->j, w->t, false, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
			0xdc00 + ((cp - 0x10000) & 0x3ff));
	else
		jtext_printf(w->j, w->t, false, "\\u%04x", cp);
}

static void put_string(struct writer *w, const struct jstr *s)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	bool ascii = w->style->ensure_ascii;
	struct jcursor c = jcursor_of(s);
	size_t done = 0;

	jinja_step(w->j, s->len / 8);
	put(w, "\"");
	while (jcursor_next(&c)) {
		const char *known = c.cp && c.cp < 0x80 ? strchr(from, (int)c.cp) : NULL;

		if (!known && c.cp >= 0x20 && (!ascii || c.cp < 0x7f))
			continue;
		jtext_put(w->j, w->t, s->p + done, c.at - done, false);
		done = c.at + c.n;
		jinja_step(w->j, 1);
		if (known)
			jtext_put(w->j, w->t, (char[2]){ '\\', to[known - from] }, 2, false);
		else
			put_escape(w, c.cp);
	}
	jtext_put(w->j, w->t, s->p + done, s->len - done, false);
	put(w, "\"");
}

static void put_newline(struct writer *w)
{
	if (!w->style->indent)
		return;
	put(w, "\n");
	jtext_put_fill(w->j, w->t, w->style->indent, w->level);
}

static void put_value(struct writer *w, struct jval v);

static void put_list(struct writer *w, const struct jlist *l)
{
	put(w, "[");
	w->level++;
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			put_plain(w, w->style->item_sep);
		put_newline(w);
		put_value(w, l->v[i]);
	}
	w->level--;
	if (l->n)
		put_newline(w);
	put(w, "]");
}

static void put_float(struct writer *w, double f)
{
	char text[32];

	if (isfinite(f))
		jtext_put(w->j, w->t, text, jfloat_repr(f, text), false);
	else
		put(w, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static void put_key(struct writer *w, struct jval key)
{
	if (key.kind == JV_STR) {
		put_string(w, key.u.s);
		return;
	}
	if (!jval_is_number(key) && key.kind != JV_NONE)
		jinja_fail(w->j, JFAIL_TYPE, "tojson: '%s' cannot be a key", jval_type_name(key));
	put(w, "\"");
	put_value(w, key);
	put(w, "\"");
}

static const struct jlist *sorted_items(struct writer *w, const struct jdict *d)
{
	struct jlist *items = jlist_new(w->j, d->n), *keys = jlist_new(w->j, d->n);

	for (uint32_t i = 0; i < d->n; i++) {
		jlist_push(w->j, items, jdict_item(w->j, d, i));
		jlist_push(w->j, keys, d->e[i].key);
	}
	jlist_sort(w->j, items, keys, false);
	return items;
}

static void put_dict(struct writer *w, const struct jdict *d)
{
	const struct jlist *sorted = w->style->sort_keys ? sorted_items(w, d) : NULL;

	put(w, "{");
	w->level++;
	for (uint32_t i = 0; i < d->n; i++) {
		if (i)
			put_plain(w, w->style->item_sep);
		put_newline(w);
		put_key(w, sorted ? sorted->v[i].u.list->v[0] : d->e[i].key);
		put_plain(w, w->style->key_sep);
		put_value(w, sorted ? sorted->v[i].u.list->v[1] : d->e[i].value);
	}
	w->level--;
	if (d->n)
		put_newline(w);
	put(w, "}");
}

static void put_value(struct writer *w, struct jval v)
{
	jinja_step(w->j, 1);
	jinja_enter(w->j);
	switch (v.kind) {
	case JV_NONE:
		put(w, "null");
		break;
	case JV_BOOL:
		put(w, v.u.b ? "true" : "false");
		break;
	case JV_INT:
	case JV_BIG:
		jint_put(w->j, w->t, v, 10, false);
		break;
	case JV_FLOAT:
		put_float(w, v.u.f);
		break;
	case JV_STR:
		put_string(w, v.u.s);
		break;
	case JV_LIST:
	case JV_TUPLE:
		put_list(w, v.u.list);
		break;
	case JV_DICT:
		put_dict(w, v.u.dict);
		break;
	default:
		jinja_fail(w->j, JFAIL_TYPE, "tojson: '%s' has no JSON form", jval_type_name(v));
	}
	jinja_leave(w->j);
}

void jjson_dump(struct jinja *j, struct jtext *t, struct jval v, const struct jjson_style *s)
{
	struct writer w = { .j = j, .t = t, .style = s };

	put_value(&w, v);
}

static const struct jstr *indent_of(struct jinja *j, struct jval v)
{
	int64_t n;

	if (v.kind == JV_MISSING || v.kind == JV_NONE)
		return NULL;
	if (v.kind == JV_STR)
		return v.u.s;
	n = jval_index(j, v, "tojson: indent");
	return jstr_repeat(j, jstr_lit(j, " ", false), n < 0 ? 0 : n);
}

static void separators_of(struct jinja *j, struct jval v, struct jjson_style *s)
{
	struct jlist *l;

	s->item_sep = jstr_lit(j, s->indent ? "," : ", ", false);
	s->key_sep = jstr_lit(j, ": ", false);
	if (v.kind == JV_MISSING || v.kind == JV_NONE)
		return;
	l = jlist_of(j, v);
	if (l->n != 2 || l->v[0].kind != JV_STR || l->v[1].kind != JV_STR)
		jinja_fail(j, JFAIL_TYPE, "tojson: separators must be two strings");
	s->item_sep = l->v[0].u.s;
	s->key_sep = l->v[1].u.s;
}

struct jval jfilter_tojson(struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
{
	struct jjson_style s = { .ensure_ascii = argv[0].kind != JV_MISSING && jval_truth(j, argv[0]),
		.sort_keys = argv[3].kind != JV_MISSING && jval_truth(j, argv[3]) };
	struct jtext *t = jtext_new(j, 64);

	(void)call;
	s.indent = indent_of(j, argv[1]);
	separators_of(j, argv[2], &s);
	jjson_dump(j, t, self, &s);
	return jval_str(jtext_str(j, t));
}
