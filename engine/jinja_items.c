/* SPDX-License-Identifier: Apache-2.0
 * Lists, dictionaries and iteration (jinja_value.h).
 */
#include "engine/jinja_value.h"
#include "base/utf8.h"
#include <string.h>

struct jlist *jlist_new(struct jinja *j, size_t cap)
{
	struct jlist *l = jinja_alloc(j, sizeof *l);

	*l = (struct jlist){ .v = cap ? jinja_alloc_n(j, cap, sizeof *l->v) : NULL, .cap = cap };
	return l;
}

void jlist_push(struct jinja *j, struct jlist *l, struct jval v)
{
	l->cap = jinja_grow(j, &l->v, l->cap, l->n + 1, sizeof *l->v);
	l->v[l->n++] = v;
}

struct jlist *jlist_of(struct jinja *j, struct jval iterable)
{
	struct jlist *l = jlist_new(
		j, jval_has_len(iterable) && iterable.kind != JV_LOOP ? (size_t)jval_len(j, iterable) : 0);
	struct jiter *it;
	struct jval v;

	if (iterable.kind == JV_LIST || iterable.kind == JV_TUPLE) {
		jinja_step(j, l->cap / 8);
		if (l->cap)
			memcpy(l->v, iterable.u.list->v, l->cap * sizeof *l->v);
		l->n = l->cap;
		return l;
	}
	it = jiter_of(j, iterable);
	while (jiter_next(j, it, &v))
		jlist_push(j, l, v);
	return l;
}

/* ---- sorting: merge sort of indices, so that it is stable and failing halfway harms nothing ---- */

struct sorter {
	struct jinja *j;
	const struct jlist *keys;
	bool reverse;
};

static bool comes_before(const struct sorter *s, size_t a, size_t b)
{
	return s->reverse ? jval_order(s->j, JORDER_LT, s->keys->v[b], s->keys->v[a])
			  : jval_order(s->j, JORDER_LT, s->keys->v[a], s->keys->v[b]);
}

static void merge(const struct sorter *s, const size_t *from, size_t *to, size_t lo, size_t mid, size_t hi)
{
	size_t a = lo, b = mid;

	for (size_t i = lo; i < hi; i++) {
		if (b < hi && (a >= mid || comes_before(s, from[b], from[a])))
			to[i] = from[b++];
		else
			to[i] = from[a++];
	}
}

void jlist_sort(struct jinja *j, struct jlist *l, const struct jlist *keys, bool reverse)
{
	struct sorter s = { .j = j, .keys = keys, .reverse = reverse };
	size_t *from = jinja_alloc_n(j, l->n, sizeof *from), *to = jinja_alloc_n(j, l->n, sizeof *to), *t;
	struct jval *sorted = jinja_alloc_n(j, l->n, sizeof *sorted);

	for (size_t i = 0; i < l->n; i++)
		from[i] = i;
	for (size_t width = 1; width < l->n; width *= 2) {
		for (size_t lo = 0; lo < l->n; lo += 2 * width) {
			size_t mid = lo + width < l->n ? lo + width : l->n,
			       hi = lo + 2 * width < l->n ? lo + 2 * width : l->n;

			merge(&s, from, to, lo, mid, hi);
		}
		t = from;
		from = to;
		to = t;
	}
	for (size_t i = 0; i < l->n; i++)
		sorted[i] = l->v[from[i]];
	l->v = sorted;
	l->cap = l->n;
}

/* ---- dictionaries ---- */

struct jdict *jdict_new(struct jinja *j) { return jinja_zalloc(j, 1, sizeof(struct jdict)); }

static bool key_is(struct jinja *j, const struct jentry *e, uint64_t hash, struct jval key)
{
	return e->hash == hash && (jval_same(e->key, key) || jval_eq(j, e->key, key));
}

/* The entry of key, or NULL; *slot: where the index has or would have it. */
static struct jentry *dict_find(
	struct jinja *j, const struct jdict *d, uint64_t hash, struct jval key, uint32_t *slot)
{
	uint32_t at, probes = 0;

	if (!d->index) {
		for (uint32_t i = 0; i < d->n; i++)
			if (key_is(j, &d->e[i], hash, key))
				return &d->e[i];
		return NULL;
	}
	for (at = (uint32_t)hash & (d->n_index - 1); d->index[at]; at = (at + 1) & (d->n_index - 1)) {
		if (++probes > 8) /* keys chosen to collide cost steps, not time */
			jinja_step(j, 1);
		if (key_is(j, &d->e[d->index[at] - 1], hash, key)) {
			*slot = at;
			return &d->e[d->index[at] - 1];
		}
	}
	*slot = at;
	return NULL;
}

static void dict_reindex(struct jinja *j, struct jdict *d, uint32_t n_index)
{
	d->index = jinja_zalloc(j, n_index, sizeof *d->index);
	d->n_index = n_index;
	jinja_step(j, d->n / 4);
	for (uint32_t i = 0; i < d->n; i++) {
		uint32_t at = (uint32_t)d->e[i].hash & (n_index - 1);

		while (d->index[at])
			at = (at + 1) & (n_index - 1);
		d->index[at] = i + 1;
	}
}

void jdict_set(struct jinja *j, struct jdict *d, struct jval key, struct jval value)
{
	uint64_t hash = jval_hash(j, key);
	uint32_t slot = 0;
	struct jentry *e = dict_find(j, d, hash, key, &slot);

	if (e) {
		e->value = value;
		return;
	}
	if (d->n >= UINT32_MAX / 8)
		jinja_fail(j, JFAIL_LIMIT, "a dictionary of too many keys");
	d->cap = (uint32_t)jinja_grow(j, &d->e, d->cap, (size_t)d->n + 1, sizeof *d->e);
	d->e[d->n++] = (struct jentry){ .hash = hash, .key = key, .value = value };
	if (d->index && d->n * 2 <= d->n_index)
		d->index[slot] = d->n;
	else if (d->n > 8)
		dict_reindex(j, d, d->n_index ? d->n_index * 2 : 32);
}

struct jval *jdict_get(struct jinja *j, const struct jdict *d, struct jval key)
{
	uint32_t slot;
	uint64_t hash = jval_hash(j, key);
	struct jentry *e = d->n ? dict_find(j, d, hash, key, &slot) : NULL;

	return e ? &e->value : NULL;
}

struct jval *jdict_get_str(struct jinja *j, const struct jdict *d, struct jstr *key)
{
	return jdict_get(j, d, jval_str(key));
}

struct jdict *jdict_copy(struct jinja *j, const struct jdict *d)
{
	struct jdict *c = jdict_new(j);

	jinja_step(j, d->n / 4);
	*c = *d;
	c->cap = d->n;
	c->e = jinja_alloc_n(j, d->n, sizeof *c->e);
	if (d->n)
		memcpy(c->e, d->e, d->n * sizeof *c->e);
	if (d->index) {
		c->index = jinja_alloc_n(j, d->n_index, sizeof *c->index);
		memcpy(c->index, d->index, d->n_index * sizeof *c->index);
	}
	return c;
}

struct jval jdict_item(struct jinja *j, const struct jdict *d, size_t i)
{
	struct jlist *pair = jlist_new(j, 2);

	pair->v[0] = d->e[i].key;
	pair->v[1] = d->e[i].value;
	pair->n = 2;
	return jval_tuple(pair);
}

/* ---- iteration ---- */

bool jval_iterable(struct jval v)
{
	switch (v.kind) {
	case JV_UNDEFINED:
	case JV_STR:
	case JV_BYTES:
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
	case JV_RANGE:
	case JV_VIEW:
	case JV_ITER:
		return true;
	default:
		return false;
	}
}

struct jiter *jiter_of(struct jinja *j, struct jval v)
{
	struct jiter *it;

	if (v.kind == JV_ITER)
		return v.u.iter;
	if (!jval_iterable(v))
		jinja_fail(j, JFAIL_TYPE, "'%s' cannot be iterated", jval_type_name(v));
	it = jinja_zalloc(j, 1, sizeof *it);
	it->source = v;
	return it;
}

int64_t jrange_at(const struct jrange *r, int64_t i) { return r->start + i * r->step; }

static struct jval str_at(struct jinja *j, struct jiter *it)
{
	struct jstr *s = it->source.u.s;
	size_t n = utf8_decode(s->p + it->at, s->len - it->at, NULL), at = it->at;

	it->at += n ? n : 1;
	return jval_str(jstr_with(j, jstr_sub(j, s, at, n ? n : 1), false));
}

static struct jval dict_at(struct jinja *j, struct jval source, size_t i)
{
	const struct jdict *d = source.u.dict;

	if (source.kind == JV_VIEW && source.flag == JVIEW_ITEMS)
		return jdict_item(j, d, i);
	return source.kind == JV_VIEW && source.flag == JVIEW_VALUES ? d->e[i].value : d->e[i].key;
}

bool jiter_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct jval src = it->source;
	size_t n, i;

	jinja_step(j, 1);
	if (it->done)
		return false;
	if (it->next) {
		it->done = !it->next(j, it, out);
		return !it->done;
	}
	if (src.kind == JV_STR) {
		it->done = it->at >= src.u.s->len;
		if (!it->done)
			*out = str_at(j, it);
		return !it->done;
	}
	n = (size_t)jval_len(j, src);
	if (it->at >= n) {
		it->done = true;
		return false;
	}
	i = it->reverse ? n - 1 - it->at : it->at;
	it->at++;
	switch (src.kind) {
	case JV_BYTES:
		*out = jval_int((uint8_t)src.u.s->p[i]);
		break;
	case JV_LIST:
	case JV_TUPLE:
		*out = src.u.list->v[i];
		break;
	case JV_RANGE:
		*out = jval_int(jrange_at(src.u.range, (int64_t)i));
		break;
	default:
		*out = dict_at(j, src, i);
		break;
	}
	return true;
}
