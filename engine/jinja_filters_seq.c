/* SPDX-License-Identifier: Apache-2.0
 * Filters over sequences that give their result at once.
 */
#include "engine/jinja_eval.h"
#include "engine/jinja_filters.h"
#include "engine/jinja_strops.h"
#include <string.h>

struct jval jval_fold(struct jinja *j, struct jval v)
{
	return v.kind == JV_STR ? jval_str(jstr_case(j, v.u.s, JCASE_LOWER)) : v;
}

static struct jval key_of(
	struct jinja *j, const struct jpath *p, struct jval item, struct jval fallback, bool fold)
{
	struct jval v = jpath_get(j, p, item, fallback);

	return fold ? jval_fold(j, v) : v;
}

JFILTER(first)
{
	struct jval v;

	(void)argv;
	(void)call;
	return jiter_next(j, jiter_of(j, self), &v) ? v : jval_undef_hint(j, "first: the sequence is empty");
}

/* An iterator from the end, as reversed() gives it; NULL if the value has no end to start from. */
static struct jiter *reversed(struct jinja *j, struct jval v, const char *shown)
{
	struct jiter *it;

	if (v.kind == JV_STR)
		v = jval_list(jlist_of(j, v));
	if (!jval_iterable(v) || v.kind == JV_ITER || v.kind == JV_UNDEFINED)
		return NULL;
	it = jinja_zalloc(j, 1, sizeof *it);
	it->source = v;
	it->reverse = true;
	it->shown = shown;
	return it;
}

JFILTER(last)
{
	struct jiter *it = reversed(j, self, NULL);
	struct jval v;

	(void)argv;
	(void)call;
	if (!it && self.kind != JV_UNDEFINED)
		jinja_fail(j, JFAIL_TYPE, "last: '%s' cannot be walked from its end", jval_type_name(self));
	return it && jiter_next(j, it, &v) ? v : jval_undef_hint(j, "last: the sequence is empty");
}

JFILTER(reverse)
{
	struct jiter *it;

	(void)argv;
	(void)call;
	if (self.kind == JV_STR)
		return jval_slice(j, self, jval_none(), jval_none(), jval_int(-1));
	it = reversed(j, self, "list_reverseiterator");
	if (!it) {
		struct jlist *l = jlist_of(j, self);
		struct jval all = jval_slice(j, jval_list(l), jval_none(), jval_none(), jval_int(-1));

		if (self.kind == JV_ITER)
			return all;
		it = jiter_of(j, all);
	}
	return jval_iter(it);
}

JFILTER(list)
{
	(void)argv;
	(void)call;
	return jval_list(jlist_of(j, self));
}

JFILTER(random)
{
	int64_t n;

	(void)argv;
	(void)call;
	if (self.kind != JV_LIST && self.kind != JV_TUPLE && self.kind != JV_STR && self.kind != JV_RANGE)
		jinja_fail(j, JFAIL_TYPE, "random: a sequence is needed, not '%s'", jval_type_name(self));
	n = jval_len(j, self);
	if (!n)
		return jval_undef_hint(j, "random: the sequence is empty");
	/* repeatable for the same request: the clock given to the render and the work done so far choose */
	return jval_getitem(j, self,
		jval_int((int64_t)(((uint64_t)j->run->now_s * 0x9e3779b97f4a7c15u ^
					   j->steps * 0xff51afd7ed558ccdu) >>
				 33) %
			n));
}

JFILTER(join)
{
	bool escape = j->run->autoescape, markup = false;
	struct jpath path = jpath_parse(j, argv[1]);
	struct jstr *sep = jarg_given(argv[0]) ? jval_to_str(j, argv[0]) : jstr_lit(j, "", true);
	struct jlist *parts = jlist_of(j, self);

	(void)call;
	for (size_t i = 0; i < parts->n; i++) {
		parts->v[i] = jpath_get(j, &path, parts->v[i], jval_missing());
		markup |= escape && parts->v[i].kind == JV_STR && parts->v[i].u.s->markup;
	}
	markup |= escape && sep->markup;
	for (size_t i = 0; i < parts->n; i++)
		parts->v[i] = jval_str(markup ? jval_escape(j, parts->v[i]) : jval_to_str(j, parts->v[i]));
	return jval_str(jstr_with(j, jstr_join(j, markup ? jstr_escape(j, sep) : sep, parts), markup));
}

static struct jval extreme(
	struct jinja *j, struct jval self, struct jval *argv, enum jorder better, const char *empty)
{
	bool fold = !jarg_bool(j, argv[0], false);
	struct jpath path = jpath_parse(j, argv[1]);
	struct jiter *it = jiter_of(j, self);
	struct jval best, key, v, k;

	if (!jiter_next(j, it, &best))
		return jval_undef_hint(j, empty);
	key = key_of(j, &path, best, jval_missing(), fold);
	while (jiter_next(j, it, &v)) {
		k = key_of(j, &path, v, jval_missing(), fold);
		if (jval_order(j, better, k, key)) {
			best = v;
			key = k;
		}
	}
	return best;
}

JFILTER(max)
{
	(void)call;
	return extreme(j, self, argv, JORDER_GT, "max: the sequence is empty");
}
JFILTER(min)
{
	(void)call;
	return extreme(j, self, argv, JORDER_LT, "min: the sequence is empty");
}

JFILTER(sum)
{
	struct jpath path = jpath_parse(j, argv[0]);
	struct jval total = jarg_given(argv[1]) ? argv[1] : jval_int(0), v;
	struct jiter *it = jiter_of(j, self);

	(void)call;
	if (total.kind == JV_STR || total.kind == JV_BYTES)
		jinja_fail(j, JFAIL_TYPE, "sum: strings are joined, not summed");
	while (jiter_next(j, it, &v))
		total = jval_binary(j, JOP_ADD, total, jpath_get(j, &path, v, jval_missing()));
	return total;
}

/* Paths of "a,b.c": the sort filter compares by each in turn. */
static size_t paths_of(struct jinja *j, struct jval attribute, struct jpath **out)
{
	struct jlist *names;

	if (attribute.kind != JV_STR) {
		*out = jinja_alloc(j, sizeof **out);
		(*out)[0] = jpath_parse(j, attribute);
		return 1;
	}
	names = jstr_split(j, attribute.u.s, jstr_lit(j, ",", true), -1, false);
	*out = jinja_alloc_n(j, names->n, sizeof **out);
	for (size_t i = 0; i < names->n; i++)
		(*out)[i] = jpath_parse(j, names->v[i]);
	return names->n;
}

JFILTER(sort)
{
	bool reverse = jarg_flag(j, argv[0], "sort: reverse"), fold = !jarg_bool(j, argv[1], false);
	struct jlist *l = jlist_of(j, self), *keys = jlist_new(j, l->n);
	struct jpath *paths;
	size_t n = paths_of(j, argv[2], &paths);

	(void)call;
	for (size_t i = 0; i < l->n; i++) {
		struct jlist *key = jlist_new(j, n);

		for (size_t k = 0; k < n; k++)
			key->v[key->n++] = key_of(j, &paths[k], l->v[i], jval_missing(), fold);
		keys->v[keys->n++] = jval_list(key);
	}
	jlist_sort(j, l, keys, reverse);
	return jval_list(l);
}

JFILTER(dictsort)
{
	bool fold = !jarg_bool(j, argv[0], false), by_value = false,
	     reverse = jarg_flag(j, argv[2], "dictsort: reverse");
	struct jlist *l, *keys;

	(void)call;
	if (jarg_given(argv[1])) {
		by_value = argv[1].kind == JV_STR && jstr_is(argv[1].u.s, "value");
		if (!by_value && (argv[1].kind != JV_STR || !jstr_is(argv[1].u.s, "key")))
			jinja_fail(j, JFAIL_VALUE, "dictsort: by must be 'key' or 'value'");
	}
	jval_check_defined(j, self);
	if (self.kind != JV_DICT)
		jinja_fail(j, JFAIL_TYPE, "dictsort: a dict is needed, not '%s'", jval_type_name(self));
	l = jlist_new(j, self.u.dict->n);
	keys = jlist_new(j, self.u.dict->n);
	for (uint32_t i = 0; i < self.u.dict->n; i++) {
		struct jval key = by_value ? self.u.dict->e[i].value : self.u.dict->e[i].key;

		jlist_push(j, l, jdict_item(j, self.u.dict, i));
		jlist_push(j, keys, fold ? jval_fold(j, key) : key);
	}
	jlist_sort(j, l, keys, reverse);
	return jval_list(l);
}

static void group_push(struct jinja *j, struct jlist *groups, struct jval key)
{
	struct jlist *pair = jlist_new(j, 2);

	pair->v[0] = key;
	pair->v[1] = jval_list(jlist_new(j, 0));
	pair->n = 2;
	jlist_push(j, groups, (struct jval){ .kind = JV_TUPLE, .flag = 1, .u.list = pair });
}

JFILTER(groupby)
{
	bool fold = !jarg_bool(j, argv[2], false);
	struct jpath path = jpath_parse(j, argv[0]);
	struct jlist *l = jlist_of(j, self), *keys = jlist_new(j, l->n), *groups = jlist_new(j, 0),
		     *both = jlist_new(j, l->n);
	struct jval last = jval_missing();

	(void)call;
	for (size_t i = 0; i < l->n; i++) {
		struct jlist *pair = jlist_new(j, 2);

		pair->n = 2;
		pair->v[0] = key_of(j, &path, l->v[i], argv[1], fold);
		pair->v[1] = l->v[i];
		jlist_push(j, keys, pair->v[0]);
		jlist_push(j, both, jval_tuple(pair));
	}
	jlist_sort(j, both, keys, false);
	for (size_t i = 0; i < both->n; i++) {
		struct jval key = both->v[i].u.list->v[0], item = both->v[i].u.list->v[1];

		if (!i || !jval_eq(j, key, last))
			group_push(j, groups, key_of(j, &path, item, argv[1], false));
		last = key;
		jlist_push(j, groups->v[groups->n - 1].u.list->v[1].u.list, item);
	}
	return jval_list(groups);
}
