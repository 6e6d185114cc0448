/* SPDX-License-Identifier: Apache-2.0
 * Truth, equality, order, hash and membership of values (jinja_value.h).
 */
#include "engine/jinja_int.h"
#include "engine/jinja_loop.h"
#include <math.h>
#include <string.h>

static const char *const kind_names[JV_N_KINDS] = {
	[JV_MISSING] = "missing",
	[JV_UNDEFINED] = "Undefined",
	[JV_NONE] = "NoneType",
	[JV_BOOL] = "bool",
	[JV_INT] = "int",
	[JV_BIG] = "int",
	[JV_FLOAT] = "float",
	[JV_STR] = "str",
	[JV_BYTES] = "bytes",
	[JV_LIST] = "list",
	[JV_TUPLE] = "tuple",
	[JV_DICT] = "dict",
	[JV_RANGE] = "range",
	[JV_VIEW] = "dict_view",
	[JV_ITER] = "generator",
	[JV_NAMESPACE] = "Namespace",
	[JV_MACRO] = "Macro",
	[JV_LOOP] = "LoopContext",
	[JV_FUNC] = "function",
	[JV_METHOD] = "method",
	[JV_CYCLER] = "Cycler",
	[JV_JOINER] = "Joiner",
	[JV_SELF] = "TemplateReference",
	[JV_BLOCK] = "BlockReference",
};

const char *jkind_type_name(enum jkind k) { return kind_names[k]; }

const char *jval_type_name(struct jval v)
{
	static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };

	if (v.kind == JV_VIEW)
		return views[v.flag];
	if (v.kind == JV_ITER && v.u.iter->shown)
		return v.u.iter->shown;
	if (v.kind == JV_STR && v.u.s->markup)
		return "Markup";
	return kind_names[v.kind];
}

static struct jval undef_new(struct jinja *j, struct jundef u)
{
	struct jundef *p = jinja_alloc(j, sizeof *p);

	*p = u;
	return JV(JV_UNDEFINED, undef, p);
}

struct jval jval_undef_name(struct jinja *j, struct jstr *name)
{
	return undef_new(j, (struct jundef){ .kind = JUNDEF_NAME, .key = jval_str(name) });
}

struct jval jval_undef_hint(struct jinja *j, const char *hint)
{
	return undef_new(j, (struct jundef){ .kind = JUNDEF_HINT, .hint = hint });
}

struct jval jval_undef_member(struct jinja *j, enum jundef_kind kind, struct jval obj, struct jval key)
{
	return undef_new(j, (struct jundef){ .kind = kind, .of = obj.kind, .key = key });
}

void jval_undef_fail(struct jinja *j, struct jval v)
{
	const struct jundef *u = v.u.undef;
	char key[96] = "";

	if (u->kind == JUNDEF_HINT)
		jinja_fail(j, JFAIL_UNDEFINED, "%s", u->hint);
	if (u->key.kind == JV_STR)
		(void)jstr_show(u->key.u.s, key, sizeof key);
	else
		(void)jstr_show(jval_repr(j, u->key), key, sizeof key);
	if (u->kind == JUNDEF_NAME)
		jinja_fail(j, JFAIL_UNDEFINED, "'%s' is undefined", key);
	if (u->kind == JUNDEF_UNSAFE)
		jinja_fail(j, JFAIL_SECURITY, "attribute '%s' of '%s' is not for templates", key,
			jkind_type_name(u->of));
	jinja_fail(j, JFAIL_UNDEFINED, "'%s' has no %s '%s'", jkind_type_name(u->of),
		u->kind == JUNDEF_ATTR ? "attribute" : "element", key);
}

bool jval_truth(struct jinja *j, struct jval v)
{
	switch (v.kind) {
	case JV_MISSING:
	case JV_UNDEFINED:
	case JV_NONE:
		return false;
	case JV_BOOL:
		return v.u.b;
	case JV_INT:
		return v.u.i != 0;
	case JV_FLOAT:
		return v.u.f != 0;
	case JV_STR:
	case JV_BYTES:
		return v.u.s->len > 0;
	case JV_LIST:
	case JV_TUPLE:
		return v.u.list->n > 0;
	case JV_DICT:
	case JV_VIEW:
		return v.u.dict->n > 0;
	case JV_RANGE:
		return v.u.range->n > 0;
	case JV_LOOP:
		return jloop_length(j, v.u.loop) > 0;
	default:
		return true;
	}
}

bool jval_same(struct jval a, struct jval b)
{
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case JV_NONE:
	case JV_MISSING:
		return true;
	case JV_BOOL:
		return a.u.b == b.u.b;
	case JV_INT:
		return a.u.i == b.u.i;
	case JV_FLOAT:
		return memcmp(&a.u.f, &b.u.f, sizeof a.u.f) == 0;
	case JV_STR: /* Python keeps one object for each short Latin-1 string */
		return a.u.s == b.u.s ||
			(a.u.s->len <= 2 && a.u.s->n_cp <= 1 && a.u.s->markup == b.u.s->markup &&
				(uint8_t)(a.u.s->len ? a.u.s->p[0] : 0) < 0xc4 && jstr_eq(a.u.s, b.u.s));
	case JV_VIEW:
		return false; /* each call makes a new one */
	default:
		return a.u.list == b.u.list;
	}
}

static bool list_eq(struct jinja *j, const struct jlist *a, const struct jlist *b)
{
	bool eq = a->n == b->n;

	jinja_enter(j);
	for (size_t i = 0; eq && i < a->n; i++)
		eq = jval_same(a->v[i], b->v[i]) || jval_eq(j, a->v[i], b->v[i]);
	jinja_leave(j);
	return eq;
}

static bool dict_eq(struct jinja *j, const struct jdict *a, const struct jdict *b, bool values)
{
	bool eq = a->n == b->n;

	jinja_enter(j);
	for (uint32_t i = 0; eq && i < a->n; i++) {
		struct jval *other = jdict_get(j, b, a->e[i].key);

		eq = other &&
			(!values || jval_same(a->e[i].value, *other) || jval_eq(j, a->e[i].value, *other));
	}
	jinja_leave(j);
	return eq;
}

static bool range_eq(const struct jrange *a, const struct jrange *b)
{
	return a->n == b->n && (!a->n || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

bool jval_eq(struct jinja *j, struct jval a, struct jval b)
{
	bool unordered;

	jinja_step(j, 1);
	if (jval_is_number(a) && jval_is_number(b))
		return jnum_cmp(j, a, b, &unordered) == 0;
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case JV_UNDEFINED:
		return true;
	case JV_STR:
	case JV_BYTES:
		jinja_work(j, a.u.s->len == b.u.s->len ? a.u.s->len : 0);
		return jstr_eq(a.u.s, b.u.s);
	case JV_LIST:
	case JV_TUPLE:
		return list_eq(j, a.u.list, b.u.list);
	case JV_DICT:
		return dict_eq(j, a.u.dict, b.u.dict, true);
	case JV_VIEW:
		return a.flag == b.flag && a.flag != JVIEW_VALUES &&
			dict_eq(j, a.u.dict, b.u.dict, a.flag == JVIEW_ITEMS);
	case JV_RANGE:
		return range_eq(a.u.range, b.u.range);
	case JV_METHOD:
		return jmethod_eq(j, a.u.method, b.u.method);
	default:
		return jval_same(a, b);
	}
}

static bool order_holds(enum jorder op, int c)
{
	return op == JORDER_LT ? c < 0 : op == JORDER_LE ? c <= 0 : op == JORDER_GT ? c > 0 : c >= 0;
}

static bool list_order(struct jinja *j, enum jorder op, const struct jlist *a, const struct jlist *b)
{
	size_t n = a->n < b->n ? a->n : b->n, i = 0;
	bool holds;

	jinja_enter(j);
	while (i < n && (jval_same(a->v[i], b->v[i]) || jval_eq(j, a->v[i], b->v[i])))
		i++;
	holds = i < n ? jval_order(j, op, a->v[i], b->v[i]) : order_holds(op, (a->n > b->n) - (a->n < b->n));
	jinja_leave(j);
	return holds;
}

bool jval_order(struct jinja *j, enum jorder op, struct jval a, struct jval b)
{
	static const char *const sign[] = { "<", "<=", ">", ">=" };
	bool unordered;
	int c;

	jinja_step(j, 1);
	jval_check_defined(j, a);
	jval_check_defined(j, b);
	if (jval_is_number(a) && jval_is_number(b)) {
		c = jnum_cmp(j, a, b, &unordered);
		return !unordered && order_holds(op, c);
	}
	if (a.kind == b.kind && (a.kind == JV_STR || a.kind == JV_BYTES)) {
		jinja_work(j, a.u.s->len);
		return order_holds(op, jstr_cmp(a.u.s, b.u.s));
	}
	if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE))
		return list_order(j, op, a.u.list, b.u.list);
	jinja_fail(j, JFAIL_TYPE, "operator %s: '%s' and '%s' have no order", sign[op], jval_type_name(a),
		jval_type_name(b));
}

static bool iter_contains(struct jinja *j, struct jiter *it, struct jval item)
{
	struct jval v;

	while (jiter_next(j, it, &v))
		if (jval_same(v, item) || jval_eq(j, v, item))
			return true;
	return false;
}

static bool range_contains(const struct jrange *r, int64_t i)
{
	int64_t last = jrange_at(r, r->n - 1);

	if (!r->n || (r->step > 0 ? i < r->start || i > last : i > r->start || i < last))
		return false;
	return (i - r->start) % r->step == 0;
}

static bool bytes_contain(struct jinja *j, struct jstr *s, struct jval item)
{
	if (item.kind == JV_BYTES)
		return jstr_find(j, s, item.u.s, 0, s->len) != SIZE_MAX;
	return memchr(s->p, (int)(jval_index(j, item, "operator in") & 255), s->len) != NULL;
}

bool jval_contains(struct jinja *j, struct jval in, struct jval item)
{
	int64_t i;

	switch (in.kind) {
	case JV_STR:
		if (item.kind != JV_STR)
			jinja_fail(j, JFAIL_TYPE, "operator in: only a str can be in a str, not '%s'",
				jval_type_name(item));
		return jstr_find(j, in.u.s, item.u.s, 0, in.u.s->len) != SIZE_MAX;
	case JV_BYTES:
		return bytes_contain(j, in.u.s, item);
	case JV_DICT:
		return jdict_get(j, in.u.dict, item) != NULL;
	case JV_RANGE:
		if (jval_small(item, &i))
			return range_contains(in.u.range, i);
		break;
	case JV_VIEW:
		if (in.flag == JVIEW_KEYS)
			return jdict_get(j, in.u.dict, item) != NULL;
		break;
	default:
		break;
	}
	if (!jval_iterable(in))
		jinja_fail(j, JFAIL_TYPE, "operator in: '%s' holds no elements", jval_type_name(in));
	return iter_contains(j, jiter_of(j, in), item);
}

static uint64_t float_hash(struct jinja *j, double f)
{
	uint64_t bits;

	if (isfinite(f) && trunc(f) == f)
		return jint_hash(jint_from_double(j, f));
	memcpy(&bits, &f, sizeof bits);
	return (bits ^ bits >> 32) * 0x9e3779b97f4a7c15u;
}

static uint64_t tuple_hash(struct jinja *j, const struct jlist *l)
{
	uint64_t h = 0x27d4eb2f165667c5u;

	jinja_enter(j);
	for (size_t i = 0; i < l->n; i++)
		h = (h ^ jval_hash(j, l->v[i])) * 0x9e3779b185ebca87u;
	jinja_leave(j);
	return h ^ l->n;
}

uint64_t jval_hash(struct jinja *j, struct jval v)
{
	jinja_step(j, 1);
	switch (v.kind) {
	case JV_BOOL:
	case JV_INT:
	case JV_BIG:
		return jint_hash(v);
	case JV_FLOAT:
		return float_hash(j, v.u.f);
	case JV_STR:
	case JV_BYTES:
		if (!v.u.s->hash)
			jinja_work(j, v.u.s->len * 4);
		return jstr_hash(v.u.s);
	case JV_TUPLE:
		return tuple_hash(j, v.u.list);
	case JV_NONE:
	case JV_UNDEFINED:
		return 0x165667b19e3779f9u + v.kind;
	case JV_RANGE:
		return jint_hash(jval_int(v.u.range->n ? v.u.range->start + v.u.range->n : 0));
	case JV_LIST:
	case JV_DICT:
	case JV_VIEW:
		if (v.kind != JV_VIEW || v.flag != JVIEW_VALUES)
			jinja_fail(
				j, JFAIL_TYPE, "'%s' cannot be a key or member of a set", jval_type_name(v));
		break;
	default:
		break;
	}
	return (uint64_t)(uintptr_t)v.u.list * 0x9e3779b97f4a7c15u;
}

bool jval_has_len(struct jval v)
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
	case JV_LOOP:
		return true;
	default:
		return false;
	}
}

int64_t jval_len(struct jinja *j, struct jval v)
{
	switch (v.kind) {
	case JV_UNDEFINED:
		return 0;
	case JV_STR:
		return (int64_t)v.u.s->n_cp;
	case JV_BYTES:
		return (int64_t)v.u.s->len;
	case JV_LIST:
	case JV_TUPLE:
		return (int64_t)v.u.list->n;
	case JV_DICT:
	case JV_VIEW:
		return v.u.dict->n;
	case JV_RANGE:
		return v.u.range->n;
	case JV_LOOP:
		return jloop_length(j, v.u.loop);
	default:
		jinja_fail(j, JFAIL_TYPE, "'%s' has no length", jval_type_name(v));
	}
}
