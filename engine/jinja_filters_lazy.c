/* SPDX-License-Identifier: Apache-2.0
 * Filters that give generators: nothing is computed, and nothing can fail, before an item is asked for; each item
 * is given once.
 */
#include "engine/jinja_filters.h"
#include <string.h>

struct lazy {
	struct jval source;
	struct jiter *from; /* made when the first item is asked for */
	struct jcall call;
	const struct jbuiltin *def; /* filter or test to apply; NULL: none */
	struct jpath path;
	struct jval fallback;
	struct jdict *seen; /* unique */
	bool negate, by_attribute, fold;
};

typedef bool lazy_next_fn(struct jinja *j, struct jiter *it, struct jval *out);

static struct jval generator(struct jinja *j, struct jval source, lazy_next_fn *next, struct lazy init)
{
	struct jiter *it = jinja_zalloc(j, 1, sizeof *it);
	struct lazy *l = jinja_alloc(j, sizeof *l);

	*l = init;
	l->source = source;
	it->next = next;
	it->state = l;
	it->shown = "generator";
	return jval_iter(it);
}

/* Arguments from `off` on, for the filter or test that is applied to each item. */
static struct jcall rest_of(const struct jcall *call, size_t off)
{
	struct jcall c = *call;

	c.args += off;
	c.n -= off;
	return c;
}

/* ---- map ---- */

static void map_prepare(struct jinja *j, struct lazy *l)
{
	struct jval *attribute = jcall_kw(&l->call, "attribute"), *fallback = jcall_kw(&l->call, "default");

	l->by_attribute = !l->call.n && attribute;
	if (l->by_attribute) {
		if (l->call.n_kw > 1u + (fallback != NULL))
			jinja_fail(j, JFAIL_VALUE, "map: an argument that it does not have");
		l->path = jpath_parse(j, *attribute);
		l->fallback = fallback ? *fallback : jval_missing();
		return;
	}
	if (!l->call.n)
		jinja_fail(j, JFAIL_VALUE, "map: the name of a filter is needed");
	l->def = l->call.args[0].kind == JV_STR ? jfilter_find(l->call.args[0].u.s) : NULL;
	if (!l->def)
		jinja_fail(j, JFAIL_VALUE, "map: no filter is named '%s'",
			JSTR_SHOW(jval_to_str(j, l->call.args[0])));
	l->call = rest_of(&l->call, 1);
}

static bool map_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;

	if (!l->from) {
		if (!jval_truth(j, l->source))
			return false;
		map_prepare(j, l);
		l->from = jiter_of(j, l->source);
	}
	if (!jiter_next(j, l->from, out))
		return false;
	*out = l->by_attribute ? jpath_get(j, &l->path, *out, l->fallback)
			       : jbuiltin_call(j, l->def, *out, &l->call);
	return true;
}

JFILTER(map)
{
	(void)argv;
	return generator(j, self, map_next, (struct lazy){ .call = *call });
}

/* ---- select, reject and the two by attribute ---- */

static void select_prepare(struct jinja *j, struct lazy *l)
{
	size_t off = l->by_attribute;

	if (l->by_attribute) {
		if (!l->call.n)
			jinja_fail(j, JFAIL_VALUE, "selectattr: the name of an attribute is needed");
		l->path = jpath_parse(j, l->call.args[0]);
	}
	if (l->call.n <= off)
		return;
	l->def = l->call.args[off].kind == JV_STR ? jtest_find(l->call.args[off].u.s) : NULL;
	if (!l->def)
		jinja_fail(j, JFAIL_VALUE, "select: no test is named '%s'",
			JSTR_SHOW(jval_to_str(j, l->call.args[off])));
	l->call = rest_of(&l->call, off + 1);
}

static bool select_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;

	if (!l->from) {
		if (!jval_truth(j, l->source))
			return false;
		select_prepare(j, l);
		l->from = jiter_of(j, l->source);
	}
	while (jiter_next(j, l->from, out)) {
		struct jval v = l->by_attribute ? jpath_get(j, &l->path, *out, jval_missing()) : *out;

		if (l->def)
			v = jbuiltin_call(j, l->def, v, &l->call);
		if (jval_truth(j, v) != l->negate)
			return true;
	}
	return false;
}

JFILTER(select)
{
	(void)argv;
	return generator(j, self, select_next, (struct lazy){ .call = *call });
}
JFILTER(reject)
{
	(void)argv;
	return generator(j, self, select_next, (struct lazy){ .call = *call, .negate = true });
}

JFILTER(selectattr)
{
	(void)argv;
	return generator(j, self, select_next, (struct lazy){ .call = *call, .by_attribute = true });
}

JFILTER(rejectattr)
{
	(void)argv;
	return generator(
		j, self, select_next, (struct lazy){ .call = *call, .by_attribute = true, .negate = true });
}

/* ---- unique, items ---- */

static bool unique_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;
	struct jval key;

	if (!l->from) {
		l->from = jiter_of(j, l->source);
		l->seen = jdict_new(j);
	}
	while (jiter_next(j, l->from, out)) {
		key = jpath_get(j, &l->path, *out, jval_missing());
		if (l->fold)
			key = jval_fold(j, key);
		if (jdict_get(j, l->seen, key))
			continue;
		jdict_set(j, l->seen, key, jval_none());
		return true;
	}
	return false;
}

JFILTER(unique)
{
	(void)call;
	return generator(j, self, unique_next,
		(struct lazy){ .fold = !jarg_bool(j, argv[0], false), .path = jpath_parse(j, argv[1]) });
}

static bool items_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;

	if (!l->from) {
		if (l->source.kind == JV_UNDEFINED)
			return false;
		if (l->source.kind != JV_DICT)
			jinja_fail(j, JFAIL_TYPE, "items: a mapping is needed, not '%s'",
				jval_type_name(l->source));
		l->from = jiter_of(
			j, (struct jval){ .kind = JV_VIEW, .flag = JVIEW_ITEMS, .u.dict = l->source.u.dict });
	}
	return jiter_next(j, l->from, out);
}

JFILTER(items)
{
	(void)argv;
	(void)call;
	return generator(j, self, items_next, (struct lazy){ 0 });
}

/* ---- batch, slice: argument 0 is a number, argument 1 what fills the last group ---- */

static struct jlist *batches(struct jinja *j, struct lazy *l)
{
	int64_t size = jval_index(j, l->call.args[0], "batch");
	struct jlist *out = jlist_new(j, 0), *group = jlist_new(j, 0);
	struct jiter *it = jiter_of(j, l->source);
	struct jval v;

	while (jiter_next(j, it, &v)) {
		if ((int64_t)group->n == size) {
			jlist_push(j, out, jval_list(group));
			group = jlist_new(j, 0);
		}
		jlist_push(j, group, v);
	}
	if (!group->n)
		return out;
	while (l->fallback.kind != JV_MISSING && l->fallback.kind != JV_NONE && (int64_t)group->n < size) {
		jinja_step(j, 1);
		jlist_push(j, group, l->fallback);
	}
	jlist_push(j, out, jval_list(group));
	return out;
}

static struct jlist *slices(struct jinja *j, struct lazy *l)
{
	int64_t n = jval_index(j, l->call.args[0], "slice"), each, extra;
	struct jlist *all = jlist_of(j, l->source), *out = jlist_new(j, 0);
	size_t at = 0;

	if (!n)
		jinja_fail(j, JFAIL_VALUE, "slice: into no slices");
	each = n > 0 ? (int64_t)all->n / n : 0;
	extra = n > 0 ? (int64_t)all->n % n : 0;
	for (int64_t i = 0; i < n; i++) {
		struct jlist *group = jlist_new(j, 0);

		jinja_step(j, 1);
		for (int64_t k = 0; k < each + (i < extra); k++)
			jlist_push(j, group, all->v[at++]);
		if (l->fallback.kind != JV_MISSING && l->fallback.kind != JV_NONE && i >= extra)
			jlist_push(j, group, l->fallback);
		jlist_push(j, out, jval_list(group));
	}
	return out;
}

static bool batch_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;

	if (!l->from)
		l->from = jiter_of(j, jval_list(batches(j, l)));
	return jiter_next(j, l->from, out);
}

static bool slice_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct lazy *l = it->state;

	if (!l->from)
		l->from = jiter_of(j, jval_list(slices(j, l)));
	return jiter_next(j, l->from, out);
}

static struct jval grouping(struct jinja *j, struct jval self, struct jval *argv, lazy_next_fn *next)
{
	struct lazy l = { .fallback = argv[1] };

	jcall_push(j, &l.call, argv[0]);
	return generator(j, self, next, l);
}

JFILTER(batch)
{
	(void)call;
	return grouping(j, self, argv, batch_next);
}
JFILTER(slice)
{
	(void)call;
	return grouping(j, self, argv, slice_next);
}
