/* SPDX-License-Identifier: Apache-2.0
 * Members of values as templates may see them: attributes, items, slices, attribute paths. The sandbox: what begins
 * with an underscore and what would change a list or dict exists but is unsafe, which is an undefined value whose
 * use fails with a security error.
 */
#include "engine/jinja_eval.h"
#include "engine/jinja_int.h"
#include "base/utf8.h"
#include <string.h>

static bool in_list(const char *const *names, const struct jstr *name)
{
	for (; *names; names++)
		if (jstr_is(name, *names))
			return true;
	return false;
}

/* Special attributes that every dict really has: they hide keys of the same name. */
static bool is_dict_special(const struct jstr *name)
{
	static const char *const names[] = { "__class__", "__doc__", "__init__", "__new__", "__repr__",
		"__str__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__",
		"__getattribute__", "__setattr__", "__delattr__", "__dir__", "__format__", "__sizeof__",
		"__reduce__", "__reduce_ex__", "__subclasshook__", "__init_subclass__", "__len__",
		"__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__reversed__",
		"__or__", "__ror__", "__ior__", "__class_getitem__", "__getstate__", NULL };

	return in_list(names, name);
}

/* The same of undefined values: reading these does not fail, using what they give does. */
static bool is_undef_special(const struct jstr *name)
{
	static const char *const names[] = { "__add__", "__radd__", "__sub__", "__rsub__", "__mul__",
		"__rmul__", "__div__", "__rdiv__", "__truediv__", "__rtruediv__", "__floordiv__",
		"__rfloordiv__", "__mod__", "__rmod__", "__pos__", "__neg__", "__call__", "__int__",
		"__float__", "__complex__", "__pow__", "__rpow__", "__bool__", "__getattr__", "__slots__",
		"__module__", "__aiter__", "_fail_with_undefined_error", "_undefined_message",
		"_undefined_hint", "_undefined_obj", "_undefined_name", "_undefined_exception", NULL };
	static const char *const not [] = { "__setitem__", "__delitem__", "__contains__", "__reversed__",
		"__or__", "__ror__", "__ior__", "__class_getitem__", NULL };

	return in_list(names, name) || (is_dict_special(name) && !in_list(not, name));
}

static bool is_dunder(const struct jstr *name)
{
	return name->len > 4 && !memcmp(name->p, "__", 2) && !memcmp(name->p + name->len - 2, "__", 2);
}

static bool changes(struct jval obj, const struct jstr *name)
{
	static const char *const list[] = { "append", "clear", "pop", "reverse", "insert", "sort", "extend",
		"remove", NULL };
	static const char *const dict[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };

	return obj.kind == JV_LIST ? in_list(list, name) : obj.kind == JV_DICT && in_list(dict, name);
}

static struct jval unsafe(struct jinja *j, struct jval obj, struct jstr *name)
{
	return jval_undef_member(j, JUNDEF_UNSAFE, obj, jval_str(name));
}

static bool number_attribute(struct jval obj, const struct jstr *name, struct jval *out)
{
	bool is_float = obj.kind == JV_FLOAT;

	if (jstr_is(name, "real") || (!is_float && jstr_is(name, "numerator")))
		*out = obj.kind == JV_BOOL ? jval_int(obj.u.b) : obj;
	else if (jstr_is(name, "imag"))
		*out = is_float ? jval_float(0) : jval_int(0);
	else if (!is_float && jstr_is(name, "denominator"))
		*out = jval_int(1);
	else
		return false;
	return true;
}

static bool range_attribute(const struct jrange *r, const struct jstr *name, struct jval *out)
{
	if (jstr_is(name, "start"))
		*out = jval_int(r->start);
	else if (jstr_is(name, "stop"))
		*out = jval_int(r->stop);
	else if (jstr_is(name, "step"))
		*out = jval_int(r->step);
	else
		return false;
	return true;
}

static bool cycler_attribute(struct jinja *j, struct jval obj, const struct jstr *name, struct jval *out)
{
	const struct jcycler *c = obj.u.cycler;

	if (obj.kind == JV_CYCLER && jstr_is(name, "current"))
		*out = c->items->v[c->at];
	else if (obj.kind == JV_CYCLER && jstr_is(name, "items"))
		*out = jval_tuple(c->items);
	else if (obj.kind == JV_CYCLER && jstr_is(name, "pos"))
		*out = jval_int((int64_t)c->at);
	else if (obj.kind == JV_JOINER && jstr_is(name, "sep"))
		*out = jval_str(c->sep);
	else if (obj.kind == JV_JOINER && jstr_is(name, "used"))
		*out = jval_bool(c->used);
	else
		return false;
	(void)j;
	return true;
}

static bool block_attribute(
	struct jinja *j, const struct jblockref *b, const struct jstr *name, struct jval *out)
{
	if (jstr_is(name, "name"))
		*out = jval_str(b->block->name->text);
	else if (jstr_is(name, "super"))
		*out = jval_undef_hint(j, "there is no parent block");
	else
		return false;
	return true;
}

static bool plain_attribute(struct jinja *j, struct jval obj, struct jstr *name, struct jval *out)
{
	struct jval *member;

	switch (obj.kind) {
	case JV_BOOL:
	case JV_INT:
	case JV_BIG:
	case JV_FLOAT:
		return number_attribute(obj, name, out);
	case JV_RANGE:
		return range_attribute(obj.u.range, name, out);
	case JV_TUPLE:
		if (obj.flag != 1 || (!jstr_is(name, "grouper") && !jstr_is(name, "list")))
			return false;
		*out = obj.u.list->v[jstr_is(name, "list")];
		return true;
	case JV_VIEW:
		*out = jval_dict(obj.u.dict);
		return jstr_is(name, "mapping");
	case JV_LOOP:
		return jloop_attribute(j, obj, name, out);
	case JV_MACRO:
		return jmacro_attribute(j, obj.u.macro, name, out);
	case JV_CYCLER:
	case JV_JOINER:
		return cycler_attribute(j, obj, name, out);
	case JV_BLOCK:
		return block_attribute(j, obj.u.blockref, name, out);
	case JV_NAMESPACE:
		member = jdict_get_str(j, obj.u.dict, name);
		if (member)
			*out = *member;
		return member != NULL;
	default:
		return false;
	}
}

bool jval_attribute(struct jinja *j, struct jval obj, struct jstr *name, struct jval *out)
{
	const struct jbuiltin *def;
	struct jmethod *m;

	if (obj.kind == JV_UNDEFINED && !is_undef_special(name)) {
		if (is_dunder(name))
			return false;
		jval_undef_fail(j, obj);
	}
	if (obj.kind == JV_UNDEFINED || (obj.kind == JV_DICT ? is_dict_special(name) : is_dunder(name))) {
		*out = unsafe(j, obj, name);
		return true;
	}
	if (changes(obj, name)) {
		*out = unsafe(j, obj, name);
		return true;
	}
	if (plain_attribute(j, obj, name, out)) {
		if (name->len && name->p[0] == '_')
			*out = unsafe(j, obj, name);
		return true;
	}
	def = jmethod_find(obj, name);
	if (!def)
		return false;
	m = jinja_alloc(j, sizeof *m);
	*m = (struct jmethod){ .self = obj, .def = def };
	*out = JV(JV_METHOD, method, m);
	return true;
}

static struct jval block_reference(struct jinja *j, struct jval self, const struct jnode_block *block)
{
	struct jblockref *b = jinja_alloc(j, sizeof *b);

	*b = (struct jblockref){ .block = block, .context = self.u.context };
	return JV(JV_BLOCK, blockref, b);
}

/* An index into n elements, negative ones counted from the end; false when outside. */
static bool index_in(struct jval key, size_t n, size_t *out)
{
	int64_t i;

	if (!jval_small(key, &i))
		return false;
	if (i < 0)
		i += (int64_t)n;
	*out = (size_t)i;
	return i >= 0 && (size_t)i < n;
}

static bool hashable(struct jinja *j, struct jval v)
{
	bool ok = v.kind != JV_LIST && v.kind != JV_DICT && (v.kind != JV_VIEW || v.flag == JVIEW_VALUES);

	if (v.kind != JV_TUPLE)
		return ok;
	jinja_enter(j);
	for (size_t i = 0; ok && i < v.u.list->n; i++)
		ok = hashable(j, v.u.list->v[i]);
	jinja_leave(j);
	return ok;
}

/* obj[key] proper; false where Python raises TypeError or LookupError. */
static bool subscript(struct jinja *j, struct jval obj, struct jval key, struct jval *out)
{
	const struct jnode_block *block;
	struct jval *member;
	size_t i;

	switch (obj.kind) {
	case JV_DICT:
		member = hashable(j, key) ? jdict_get(j, obj.u.dict, key) : NULL;
		if (member)
			*out = *member;
		return member != NULL;
	case JV_LIST:
	case JV_TUPLE:
		if (!index_in(key, obj.u.list->n, &i))
			return false;
		*out = obj.u.list->v[i];
		return true;
	case JV_STR:
		if (!index_in(key, obj.u.s->n_cp, &i))
			return false;
		*out = jval_str(jstr_sub_cp(j, obj.u.s, i, 1));
		return true;
	case JV_BYTES:
		if (!index_in(key, obj.u.s->len, &i))
			return false;
		*out = jval_int((uint8_t)obj.u.s->p[i]);
		return true;
	case JV_RANGE:
		if (!index_in(key, (size_t)obj.u.range->n, &i))
			return false;
		*out = jval_int(jrange_at(obj.u.range, (int64_t)i));
		return true;
	case JV_SELF:
		block = key.kind == JV_STR ? jblock_find(j, key.u.s) : NULL;
		if (block)
			*out = block_reference(j, obj, block);
		return block != NULL;
	case JV_UNDEFINED:
		jval_undef_fail(j, obj);
	default:
		return false;
	}
}

struct jval jval_getattr(struct jinja *j, struct jval obj, struct jstr *name)
{
	struct jval v;

	if (jval_attribute(j, obj, name, &v) || subscript(j, obj, jval_str(name), &v))
		return v;
	return jval_undef_member(j, JUNDEF_ATTR, obj, jval_str(name));
}

struct jval jval_getitem(struct jinja *j, struct jval obj, struct jval key)
{
	struct jval v;

	if (subscript(j, obj, key, &v) || (key.kind == JV_STR && jval_attribute(j, obj, key.u.s, &v)))
		return v;
	return jval_undef_member(j, JUNDEF_ITEM, obj, key);
}

/* ---- slices ---- */

struct slice { /* n indices from `start`; `stop` as Python clamps it */
	int64_t start, stop, step, n;
};

static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
	if (i < 0)
		i = i + n < 0 ? (step < 0 ? -1 : 0) : i + n;
	else if (i >= n)
		i = step < 0 ? n - 1 : n;
	return i;
}

static struct slice slice_of(
	struct jinja *j, int64_t n, struct jval start, struct jval stop, struct jval step)
{
	int64_t by = step.kind == JV_NONE ? 1 : jval_index(j, step, "slice"), from, to;

	if (!by)
		jinja_fail(j, JFAIL_VALUE, "slice: the step cannot be 0");
	if (by == INT64_MIN)
		by = -INT64_MAX;
	from = start.kind == JV_NONE ? (by < 0 ? n - 1 : 0) : clamp(jval_index(j, start, "slice"), n, by);
	to = stop.kind == JV_NONE ? (by < 0 ? -1 : n) : clamp(jval_index(j, stop, "slice"), n, by);
	if (by > 0 ? from >= to : from <= to)
		return (struct slice){ .start = from, .stop = to, .step = by };
	return (struct slice){ .start = from,
		.stop = to,
		.step = by,
		.n = by > 0 ? (to - from - 1) / by + 1 : (from - to - 1) / -by + 1 };
}

static struct jstr *slice_str(struct jinja *j, const struct jstr *s, struct slice sl)
{
	struct jtext *t;
	uint32_t *at = NULL;
	size_t n = 0;

	if (sl.step == 1 || !sl.n)
		return jstr_sub_cp(j, s, sl.n ? (size_t)sl.start : 0, (size_t)sl.n);
	jinja_step(j, s->n_cp / 8 + (size_t)sl.n / 4);
	t = jtext_new(j, (size_t)sl.n);
	if (s->n_cp != s->len) {
		at = jinja_alloc_n(j, s->n_cp, sizeof *at);
		for (size_t i = 0; i < s->len; i += utf8_decode(s->p + i, s->len - i, NULL))
			at[n++] = (uint32_t)i;
	}
	for (int64_t i = 0, k = sl.start; i < sl.n; i++, k += sl.step) {
		size_t byte = at ? at[k] : (size_t)k,
		       end = at ? ((size_t)k + 1 < n ? at[k + 1] : s->len) : byte + 1;

		jtext_put(j, t, s->p + byte, end - byte, jstr_trusted_at(s, byte));
	}
	return jstr_with(j, jtext_str(j, t), s->markup);
}

static struct jstr *slice_bytes(struct jinja *j, const struct jstr *s, struct slice sl)
{
	struct jtext *t = jtext_new(j, (size_t)sl.n);

	jinja_step(j, (size_t)sl.n / 4);
	for (int64_t i = 0, k = sl.start; i < sl.n; i++, k += sl.step)
		jtext_putc(j, t, s->p[k], false);
	return jtext_str(j, t);
}

static struct jlist *slice_list(struct jinja *j, const struct jlist *from, struct slice sl)
{
	struct jlist *l = jlist_new(j, (size_t)sl.n);

	jinja_step(j, (size_t)sl.n / 8);
	for (int64_t i = 0, k = sl.start; i < sl.n; i++, k += sl.step)
		l->v[l->n++] = from->v[k];
	return l;
}

static struct jrange *slice_range(struct jinja *j, const struct jrange *from, struct slice sl)
{
	struct jrange *r = jinja_alloc(j, sizeof *r);

	*r = (struct jrange){
		.start = jrange_at(from, sl.start), .stop = jrange_at(from, sl.stop), .n = sl.n
	};
	if (__builtin_mul_overflow(from->step, sl.step, &r->step))
		jinja_fail(j, JFAIL_LIMIT, "slice: the step is too large");
	return r;
}

struct jval jval_slice(
	struct jinja *j, struct jval obj, struct jval start, struct jval stop, struct jval step)
{
	struct slice sl;

	jval_check_defined(j, obj);
	if (obj.kind != JV_STR && obj.kind != JV_BYTES && obj.kind != JV_LIST && obj.kind != JV_TUPLE &&
		obj.kind != JV_RANGE)
		jinja_fail(j, JFAIL_TYPE, "'%s' cannot be sliced", jval_type_name(obj));
	sl = slice_of(j, jval_len(j, obj), start, stop, step);
	switch (obj.kind) {
	case JV_STR:
		return jval_str(slice_str(j, obj.u.s, sl));
	case JV_BYTES:
		return JV(JV_BYTES, s, slice_bytes(j, obj.u.s, sl));
	case JV_RANGE:
		return JV(JV_RANGE, range, slice_range(j, obj.u.range, sl));
	default:
		return (struct jval){ .kind = obj.kind, .u.list = slice_list(j, obj.u.list, sl) };
	}
}

/* ---- paths ---- */

static struct jval path_part(struct jinja *j, struct jstr *part)
{
	bool digits = part->len > 0;

	for (size_t i = 0; i < part->len; i++)
		digits &= part->p[i] >= '0' && part->p[i] <= '9';
	return digits && part->len < JINT_MAX_DIGITS ? jint_parse(j, part->p, part->len, 10, false)
						     : jval_str(part);
}

struct jpath jpath_parse(struct jinja *j, struct jval attribute)
{
	struct jpath p = { 0 };
	struct jstr *s = attribute.u.s;
	size_t n = 1, from = 0;

	if (attribute.kind == JV_NONE || attribute.kind == JV_MISSING)
		return p;
	if (attribute.kind != JV_STR) {
		p.part = jinja_alloc(j, sizeof *p.part);
		p.part[p.n++] = attribute;
		return p;
	}
	jinja_work(j, s->len * 8);
	for (size_t i = 0; i < s->len; i++)
		n += s->p[i] == '.';
	p.part = jinja_alloc_n(j, n, sizeof *p.part);
	for (size_t i = 0; i <= s->len; i++) {
		if (i < s->len && s->p[i] != '.')
			continue;
		p.part[p.n++] = path_part(j, jstr_sub(j, s, from, i - from));
		from = i + 1;
	}
	return p;
}

struct jval jpath_get(struct jinja *j, const struct jpath *p, struct jval item, struct jval fallback)
{
	for (size_t i = 0; i < p->n; i++) {
		item = jval_getitem(j, item, p->part[i]);
		if (item.kind == JV_UNDEFINED && fallback.kind != JV_MISSING && fallback.kind != JV_NONE)
			item = fallback;
	}
	return item;
}
