/* SPDX-License-Identifier: Apache-2.0
 * The pprint filter: values over lines of 80 characters, where Python's pprint breaks them; keys sorted.
 */
#include "engine/jinja_filters.h"
#include "engine/jinja_strops.h"
#include <string.h>

enum { WIDTH = 80 };

struct printer {
	struct jinja *j;
	struct jtext *t;
};

static void print(struct printer *p, struct jval v, int64_t indent, int64_t allowance, int level);

static void put(struct printer *p, const char *s) { jtext_put(p->j, p->t, s, strlen(s), false); }

static void put_break(struct printer *p, const char *before, int64_t indent)
{
	put(p, before);
	put(p, "\n");
	jtext_put_fill(p->j, p->t, jstr_lit(p->j, " ", false), (size_t)indent);
}

/* The items of a dictionary by key, if its keys have an order; else as they are. */
static struct jlist *items_of(struct jinja *j, const struct jdict *d)
{
	struct jlist *items = jlist_new(j, d->n), *keys = jlist_new(j, d->n);
	bool text = true, number = true;

	for (uint32_t i = 0; i < d->n; i++) {
		jlist_push(j, items, jdict_item(j, d, i));
		jlist_push(j, keys, d->e[i].key);
		text &= d->e[i].key.kind == JV_STR;
		number &= jval_is_number(d->e[i].key);
	}
	if (text || number)
		jlist_sort(j, items, keys, false);
	return items;
}

/* The same value with every dictionary in sorted order: what repr() has to show on one line. */
static struct jval sorted(struct jinja *j, struct jval v)
{
	struct jlist *items;
	struct jdict *d;

	jinja_step(j, 1);
	jinja_enter(j);
	if (v.kind == JV_LIST || v.kind == JV_TUPLE) {
		items = jlist_of(j, v);
		for (size_t i = 0; i < items->n; i++)
			items->v[i] = sorted(j, items->v[i]);
		v.u.list = items;
	} else if (v.kind == JV_DICT) {
		items = items_of(j, v.u.dict);
		d = jdict_new(j);
		for (size_t i = 0; i < items->n; i++)
			jdict_set(j, d, items->v[i].u.list->v[0], sorted(j, items->v[i].u.list->v[1]));
		v.u.dict = d;
	}
	jinja_leave(j);
	return v;
}

static void print_list(struct printer *p, struct jval v, int64_t indent, int64_t allowance, int level)
{
	const struct jlist *l = v.u.list;
	bool tuple = v.kind == JV_TUPLE;

	put(p, tuple ? "(" : "[");
	allowance += tuple && l->n == 1 ? 2 : 1;
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			put_break(p, ",", indent + 1);
		print(p, l->v[i], indent + 1, i + 1 == l->n ? allowance : 1, level);
	}
	put(p, tuple ? (l->n == 1 ? ",)" : ")") : "]");
}

static void print_dict(struct printer *p, const struct jdict *d, int64_t indent, int64_t allowance, int level)
{
	put(p, "{");
	for (uint32_t i = 0; i < d->n; i++) {
		struct jstr *key = jval_repr(p->j, d->e[i].key);

		if (i)
			put_break(p, ",", indent + 1);
		jtext_put_str(p->j, p->t, key);
		put(p, ": ");
		print(p, d->e[i].value, indent + 1 + (int64_t)key->n_cp + 2,
			i + 1 == d->n ? allowance + 1 : 1, level);
	}
	put(p, "}");
}

/* Words of a line, each with the white space behind it. */
static struct jlist *words_of(struct jinja *j, const struct jstr *s)
{
	struct jlist *l = jlist_new(j, 0);
	struct jcursor c = jcursor_of(s);
	size_t from = 0;
	bool spaced = false;

	while (jcursor_next(&c)) {
		bool space = junicode_is_space(c.cp);

		if (spaced && !space) {
			jlist_push(j, l, jval_str(jstr_sub(j, s, from, c.at - from)));
			from = c.at;
		}
		spaced = space;
	}
	if (from < s->len)
		jlist_push(j, l, jval_str(jstr_sub(j, s, from, s->len - from)));
	return l;
}

static int64_t repr_width(struct jinja *j, const struct jstr *s)
{
	return (int64_t)jval_repr(j, jval_str(s))->n_cp;
}

/* Cuts one line between words so that each piece is at most so wide when quoted; the last one has less room. */
static void cut_line(
	struct jinja *j, struct jlist *pieces, const struct jstr *line, int64_t width, int64_t less)
{
	struct jlist *words = words_of(j, line);
	struct jstr *piece = jstr_lit(j, "", false);

	for (size_t i = 0; i < words->n; i++) {
		struct jstr *longer = jstr_concat(j, piece, words->v[i].u.s);

		if (repr_width(j, longer) > (i + 1 == words->n ? width - less : width)) {
			if (piece->len)
				jlist_push(j, pieces, jval_str(piece));
			piece = words->v[i].u.s;
		} else {
			piece = longer;
		}
	}
	if (piece->len)
		jlist_push(j, pieces, jval_str(piece));
}

static void print_str(struct printer *p, struct jstr *s, int64_t indent, int64_t allowance, int level)
{
	struct jinja *j = p->j;
	struct jlist *lines = jstr_splitlines(j, s, true), *pieces = jlist_new(j, 0);
	bool parens = level == 1;

	indent += parens;
	allowance += parens;
	for (size_t i = 0; i < lines->n; i++) {
		struct jstr *line = lines->v[i].u.s;
		int64_t less = i + 1 == lines->n ? allowance : 0;

		if (repr_width(j, line) <= WIDTH - indent - less)
			jlist_push(j, pieces, jval_str(line));
		else
			cut_line(j, pieces, line, WIDTH - indent, less);
	}
	parens &= pieces->n != 1;
	if (parens)
		put(p, "(");
	for (size_t i = 0; i < pieces->n; i++) {
		if (i)
			put_break(p, "", indent);
		jstr_repr_put(j, p->t, pieces->v[i].u.s, false);
	}
	if (parens)
		put(p, ")");
}

static void print(struct printer *p, struct jval v, int64_t indent, int64_t allowance, int level)
{
	struct jstr *flat = jval_repr(p->j, v);

	jinja_enter(p->j);
	if ((int64_t)flat->n_cp <= WIDTH - indent - allowance)
		jtext_put_str(p->j, p->t, flat);
	else if (v.kind == JV_LIST || v.kind == JV_TUPLE)
		print_list(p, v, indent, allowance, level + 1);
	else if (v.kind == JV_DICT)
		print_dict(p, v.u.dict, indent, allowance, level + 1);
	else if (v.kind == JV_STR && !v.u.s->markup && v.u.s->len)
		print_str(p, v.u.s, indent, allowance, level + 1);
	else
		jtext_put_str(p->j, p->t, flat);
	jinja_leave(p->j);
}

JFILTER(pprint)
{
	struct printer p = { .j = j, .t = jtext_new(j, 128) };

	(void)argv;
	(void)call;
	print(&p, sorted(j, self), 0, 0, 0);
	return jval_str(jtext_str(j, p.t));
}
