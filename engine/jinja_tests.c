/* SPDX-License-Identifier: Apache-2.0
 * Tests: what stands behind `is`, and the names that select and reject take.
 */
#include "engine/jinja_call.h"
#include "engine/jinja_methods.h"
#include <string.h>

#define TEST(name)                                                                                           \
	static struct jval name(                                                                             \
		struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
#define UNUSED_ARGS ((void)j, (void)argv, (void)call)

static struct jval is(bool b) { return jval_bool(b); }

TEST(t_defined)
{
	UNUSED_ARGS;
	return is(self.kind != JV_UNDEFINED);
}
TEST(t_undefined)
{
	UNUSED_ARGS;
	return is(self.kind == JV_UNDEFINED);
}
TEST(t_none)
{
	UNUSED_ARGS;
	return is(self.kind == JV_NONE);
}
TEST(t_boolean)
{
	UNUSED_ARGS;
	return is(self.kind == JV_BOOL);
}
TEST(t_true)
{
	UNUSED_ARGS;
	return is(self.kind == JV_BOOL && self.u.b);
}
TEST(t_false)
{
	UNUSED_ARGS;
	return is(self.kind == JV_BOOL && !self.u.b);
}
TEST(t_integer)
{
	UNUSED_ARGS;
	return is(self.kind == JV_INT || self.kind == JV_BIG);
}
TEST(t_float)
{
	UNUSED_ARGS;
	return is(self.kind == JV_FLOAT);
}
TEST(t_number)
{
	UNUSED_ARGS;
	return is(jval_is_number(self));
}
TEST(t_string)
{
	UNUSED_ARGS;
	return is(self.kind == JV_STR);
}
TEST(t_mapping)
{
	UNUSED_ARGS;
	return is(self.kind == JV_DICT);
}
TEST(t_iterable)
{
	UNUSED_ARGS;
	return is(jval_iterable(self) || self.kind == JV_LOOP);
}
TEST(t_callable)
{
	UNUSED_ARGS;
	return is(jval_callable(self));
}
TEST(t_escaped)
{
	UNUSED_ARGS;
	return is(self.kind == JV_STR && self.u.s->markup);
}
TEST(t_filter)
{
	UNUSED_ARGS;
	(void)jval_hash(j, self); /* what cannot be a key cannot be looked for */
	return is(self.kind == JV_STR && jfilter_find(self.u.s));
}
TEST(t_test)
{
	UNUSED_ARGS;
	(void)jval_hash(j, self); /* what cannot be a key cannot be looked for */
	return is(self.kind == JV_STR && jtest_find(self.u.s));
}
TEST(t_sameas)
{
	UNUSED_ARGS;
	return is(jval_same(self, argv[0]));
}
TEST(t_lower)
{
	UNUSED_ARGS;
	return is(jstr_is_case(j, jval_to_str(j, self), false));
}
TEST(t_upper)
{
	UNUSED_ARGS;
	return is(jstr_is_case(j, jval_to_str(j, self), true));
}
TEST(t_in)
{
	UNUSED_ARGS;
	return is(jval_contains(j, argv[0], self));
}
TEST(t_eq)
{
	UNUSED_ARGS;
	return is(jval_eq(j, self, argv[0]));
}
TEST(t_ne)
{
	UNUSED_ARGS;
	return is(!jval_eq(j, self, argv[0]));
}
TEST(t_lt)
{
	UNUSED_ARGS;
	return is(jval_order(j, JORDER_LT, self, argv[0]));
}
TEST(t_le)
{
	UNUSED_ARGS;
	return is(jval_order(j, JORDER_LE, self, argv[0]));
}
TEST(t_gt)
{
	UNUSED_ARGS;
	return is(jval_order(j, JORDER_GT, self, argv[0]));
}
TEST(t_ge)
{
	UNUSED_ARGS;
	return is(jval_order(j, JORDER_GE, self, argv[0]));
}

TEST(t_sequence)
{
	UNUSED_ARGS;
	return is(jval_has_len(self) && self.kind != JV_VIEW && self.kind != JV_LOOP);
}

/* self % by == rest */
static struct jval leaves(struct jinja *j, struct jval self, struct jval by, int64_t rest)
{
	return is(jval_eq(j, jval_binary(j, JOP_MOD, self, by), jval_int(rest)));
}

TEST(t_divisibleby)
{
	UNUSED_ARGS;
	return leaves(j, self, argv[0], 0);
}
TEST(t_even)
{
	UNUSED_ARGS;
	return leaves(j, self, jval_int(2), 0);
}
TEST(t_odd)
{
	UNUSED_ARGS;
	return leaves(j, self, jval_int(2), 1);
}

static const struct jbuiltin tests[] = {
	{ "!=", t_ne, "/other", 1 },
	{ "<", t_lt, "/other", 1 },
	{ "<=", t_le, "/other", 1 },
	{ "==", t_eq, "/other", 1 },
	{ ">", t_gt, "/other", 1 },
	{ ">=", t_ge, "/other", 1 },
	{ "boolean", t_boolean, "", 0 },
	{ "callable", t_callable, "/", 0 },
	{ "defined", t_defined, "", 0 },
	{ "divisibleby", t_divisibleby, "num", 1 },
	{ "eq", t_eq, "/other", 1 },
	{ "equalto", t_eq, "/other", 1 },
	{ "escaped", t_escaped, "", 0 },
	{ "even", t_even, "", 0 },
	{ "false", t_false, "", 0 },
	{ "filter", t_filter, "", 0 },
	{ "float", t_float, "", 0 },
	{ "ge", t_ge, "/other", 1 },
	{ "greaterthan", t_gt, "/other", 1 },
	{ "gt", t_gt, "/other", 1 },
	{ "in", t_in, "seq", 1 },
	{ "integer", t_integer, "", 0 },
	{ "iterable", t_iterable, "", 0 },
	{ "le", t_le, "/other", 1 },
	{ "lessthan", t_lt, "/other", 1 },
	{ "lower", t_lower, "", 0 },
	{ "lt", t_lt, "/other", 1 },
	{ "mapping", t_mapping, "", 0 },
	{ "ne", t_ne, "/other", 1 },
	{ "none", t_none, "", 0 },
	{ "number", t_number, "", 0 },
	{ "odd", t_odd, "", 0 },
	{ "sameas", t_sameas, "other", 1 },
	{ "sequence", t_sequence, "", 0 },
	{ "string", t_string, "", 0 },
	{ "test", t_test, "", 0 },
	{ "true", t_true, "", 0 },
	{ "undefined", t_undefined, "", 0 },
	{ "upper", t_upper, "", 0 },
};

const struct jbuiltin *jtest_find(const struct jstr *name)
{
	return jbuiltin_find(tests, sizeof tests / sizeof tests[0], name);
}
