/* SPDX-License-Identifier: Apache-2.0
 * Methods of lists, tuples, dictionaries, numbers, bytes, ranges and cyclers. Those that would change a list or
 * dictionary are kept back by the sandbox (jinja_member.c) and do not exist here.
 */
#include "engine/jinja_methods.h"
#include "engine/jinja_int.h"
#include "engine/jinja_strops.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define METHOD(name)                                                                                         \
	static struct jval name(                                                                             \
		struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
#define UNUSED_ARGS ((void)j, (void)self, (void)argv, (void)call)

/* ---- lists and tuples ---- */

METHOD(list_copy)
{
	UNUSED_ARGS;
	return jval_list(jlist_of(j, self));
}

METHOD(list_count)
{
	int64_t n = 0;

	(void)call;
	for (size_t i = 0; i < self.u.list->n; i++)
		n += jval_same(self.u.list->v[i], argv[0]) || jval_eq(j, self.u.list->v[i], argv[0]);
	return jval_int(n);
}

METHOD(list_index)
{
	int64_t n = (int64_t)self.u.list->n, from = 0, to = n;

	(void)call;
	if (argv[1].kind != JV_MISSING)
		from = jval_index(j, argv[1], "index");
	if (argv[2].kind != JV_MISSING)
		to = jval_index(j, argv[2], "index");
	from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
	to = to < 0 ? to + n : to > n ? n : to;
	for (int64_t i = from; i < to; i++)
		if (jval_same(self.u.list->v[i], argv[0]) || jval_eq(j, self.u.list->v[i], argv[0]))
			return jval_int(i);
	jinja_fail(j, JFAIL_VALUE, "index: the value is not there");
}

/* ---- dictionaries ---- */

static struct jval view(struct jval self, enum jview what)
{
	return (struct jval){ .kind = JV_VIEW, .flag = (uint8_t)what, .u.dict = self.u.dict };
}

METHOD(dict_items)
{
	UNUSED_ARGS;
	return view(self, JVIEW_ITEMS);
}
METHOD(dict_keys)
{
	UNUSED_ARGS;
	return view(self, JVIEW_KEYS);
}
METHOD(dict_values)
{
	UNUSED_ARGS;
	return view(self, JVIEW_VALUES);
}
METHOD(dict_copy)
{
	UNUSED_ARGS;
	return jval_dict(jdict_copy(j, self.u.dict));
}

METHOD(dict_get)
{
	struct jval *v = jdict_get(j, self.u.dict, argv[0]);

	(void)call;
	return v ? *v : argv[1].kind == JV_MISSING ? jval_none() : argv[1];
}

METHOD(dict_fromkeys)
{
	struct jdict *d = jdict_new(j);
	struct jiter *it = jiter_of(j, argv[0]);
	struct jval key;

	(void)self;
	(void)call;
	while (jiter_next(j, it, &key))
		jdict_set(j, d, key, argv[1].kind == JV_MISSING ? jval_none() : argv[1]);
	return jval_dict(d);
}

METHOD(view_isdisjoint)
{
	struct jiter *it = jiter_of(j, argv[0]);
	struct jval v;

	(void)call;
	while (jiter_next(j, it, &v))
		if (jval_contains(j, self, v))
			return jval_bool(false);
	return jval_bool(true);
}

/* ---- numbers ---- */

METHOD(int_bit_length)
{
	UNUSED_ARGS;
	return jval_int(jint_bit_length(self));
}
METHOD(int_bit_count)
{
	UNUSED_ARGS;
	return jval_int(jint_bit_count(self));
}
METHOD(number_conjugate)
{
	UNUSED_ARGS;
	return jval_plus(j, self);
}

METHOD(float_is_integer)
{
	UNUSED_ARGS;
	return jval_bool(isfinite(self.u.f) && trunc(self.u.f) == self.u.f);
}

static struct jval pair(struct jinja *j, struct jval a, struct jval b)
{
	struct jlist *l = jlist_new(j, 2);

	l->v[0] = a;
	l->v[1] = b;
	l->n = 2;
	return jval_tuple(l);
}

METHOD(number_as_integer_ratio)
{
	struct jval denominator = jval_int(1);
	double f = self.u.f;

	(void)argv;
	(void)call;
	if (self.kind != JV_FLOAT)
		return pair(j, jval_plus(j, self), jval_int(1));
	if (!isfinite(f))
		jinja_fail(j, JFAIL_VALUE, "as_integer_ratio: not a finite number");
	while (trunc(f) != f) {
		f *= 2;
		denominator = jint_add(j, denominator, denominator);
	}
	return pair(j, jint_from_double(j, f), denominator);
}

METHOD(float_hex)
{
	char text[64];
	int exponent;
	double m = frexp(fabs(self.u.f), &exponent);
	uint64_t bits = (uint64_t)ldexp(m, 53);

	(void)argv;
	(void)call;
	if (!isfinite(self.u.f))
		return jval_str(jval_repr(j, self));
	if (bits && exponent < -1021) { /* subnormal: no leading one */
		bits >>= -1021 - exponent;
		exponent = -1021;
	}
	(void)snprintf(text, sizeof text, "%s0x%d.%013llxp%+d", signbit(self.u.f) ? "-" : "",
		(int)(bits >> 52), (unsigned long long)(bits & 0xfffffffffffff), bits ? exponent - 1 : 0);
	if (!bits)
		(void)snprintf(text, sizeof text, "%s0x0.0p+0", signbit(self.u.f) ? "-" : "");
	return jval_str(jstr_copy(j, text, strlen(text), false));
}

/* ---- bytes ---- */

METHOD(bytes_decode)
{
	UNUSED_ARGS;
	if (!utf8_valid(self.u.s->p, self.u.s->len, NULL))
		jinja_fail(j, JFAIL_VALUE, "decode: not valid UTF-8");
	return jval_str(jstr_copy(j, self.u.s->p, self.u.s->len, jstr_trusted(self.u.s)));
}

METHOD(bytes_hex)
{
	struct jtext *t = jtext_new(j, self.u.s->len * 2);

	(void)argv;
	(void)call;
	for (size_t i = 0; i < self.u.s->len; i++)
		jtext_printf(j, t, false, "%02x", (uint8_t)self.u.s->p[i]);
	return jval_str(jtext_str(j, t));
}

/* ---- ranges and cyclers ---- */

METHOD(range_count)
{
	(void)call;
	return jval_int(jval_contains(j, self, argv[0]));
}

METHOD(range_index)
{
	struct jiter *it = jiter_of(j, self);
	struct jval v;

	(void)call;
	for (int64_t i = 0; jiter_next(j, it, &v); i++)
		if (jval_eq(j, v, argv[0]))
			return jval_int(i);
	jinja_fail(j, JFAIL_VALUE, "index: the value is not there");
}

METHOD(cycler_next)
{
	struct jcycler *c = self.u.cycler;
	struct jval v = c->items->v[c->at];

	UNUSED_ARGS;
	c->at = (c->at + 1) % c->items->n;
	return v;
}

METHOD(cycler_reset)
{
	UNUSED_ARGS;
	self.u.cycler->at = 0;
	return jval_none();
}

static const struct jbuiltin list_methods[] = { { "copy", list_copy, "/", 0 },
	{ "count", list_count, "/value", 1 }, { "index", list_index, "/value,start,stop", 1 } };
static const struct jbuiltin tuple_methods[] = { { "count", list_count, "/value", 1 },
	{ "index", list_index, "/value,start,stop", 1 } };
static const struct jbuiltin dict_methods[] = { { "copy", dict_copy, "/", 0 },
	{ "fromkeys", dict_fromkeys, "/keys,value", 1 }, { "get", dict_get, "/key,default", 1 },
	{ "items", dict_items, "/", 0 }, { "keys", dict_keys, "/", 0 }, { "values", dict_values, "/", 0 } };
static const struct jbuiltin view_methods[] = { { "isdisjoint", view_isdisjoint, "/other", 1 } };
static const struct jbuiltin int_methods[] = { { "as_integer_ratio", number_as_integer_ratio, "/", 0 },
	{ "bit_count", int_bit_count, "/", 0 }, { "bit_length", int_bit_length, "/", 0 },
	{ "conjugate", number_conjugate, "/", 0 } };
static const struct jbuiltin float_methods[] = { { "as_integer_ratio", number_as_integer_ratio, "/", 0 },
	{ "conjugate", number_conjugate, "/", 0 }, { "hex", float_hex, "/", 0 },
	{ "is_integer", float_is_integer, "/", 0 } };
static const struct jbuiltin bytes_methods[] = { { "decode", bytes_decode, "encoding,errors", 0 },
	{ "hex", bytes_hex, "/", 0 } };
static const struct jbuiltin range_methods[] = { { "count", range_count, "/value", 1 },
	{ "index", range_index, "/value", 1 } };
static const struct jbuiltin cycler_methods[] = { { "next", cycler_next, "/", 0 },
	{ "reset", cycler_reset, "/", 0 } };

#define FIND(table) jbuiltin_find(table, sizeof table / sizeof table[0], name)

const struct jbuiltin *jmethod_find(struct jval self, const struct jstr *name)
{
	switch (self.kind) {
	case JV_STR:
		return jmethod_find_str(self.u.s, name);
	case JV_LIST:
		return FIND(list_methods);
	case JV_TUPLE:
		return FIND(tuple_methods);
	case JV_DICT:
		return FIND(dict_methods);
	case JV_VIEW:
		return self.flag == JVIEW_VALUES ? NULL : FIND(view_methods);
	case JV_BOOL:
	case JV_INT:
	case JV_BIG:
		return FIND(int_methods);
	case JV_FLOAT:
		return FIND(float_methods);
	case JV_BYTES:
		return FIND(bytes_methods);
	case JV_RANGE:
		return FIND(range_methods);
	case JV_CYCLER:
		return FIND(cycler_methods);
	default:
		return NULL;
	}
}
