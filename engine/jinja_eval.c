/* SPDX-License-Identifier: Apache-2.0
 * Expressions: from a tree to a value.
 */
#include "engine/jinja_eval.h"
#include <string.h>

static struct jval eval_name(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval v;

	for (uint32_t i = 0; i < n->u.name.var.hops; i++)
		a = a->outer;
	v = a->slots[n->u.name.var.slot];
	return v.kind == JV_MISSING ? jval_undef_name(j, n->u.name.name->text) : v;
}

static struct jlist *eval_list(struct jinja *j, struct jactivation *a, const struct jnodes *items)
{
	struct jlist *l = jlist_new(j, items->n);

	for (size_t i = 0; i < items->n; i++)
		l->v[l->n++] = jeval(j, a, items->v[i]);
	return l;
}

static struct jval eval_dict(struct jinja *j, struct jactivation *a, const struct jnodes *items)
{
	struct jdict *d = jdict_new(j);

	for (size_t i = 0; i + 1 < items->n; i += 2) {
		struct jval key = jeval(j, a, items->v[i]);

		jdict_set(j, d, key, jeval(j, a, items->v[i + 1]));
	}
	return jval_dict(d);
}

static struct jval eval_concat(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jlist *l = eval_list(j, a, &n->u.items);
	bool escape = jnode_escapes(j, n);
	struct jstr *s;
	bool markup = false;

	for (size_t i = 0; i < l->n; i++)
		markup |= escape && l->v[i].kind == JV_STR && l->v[i].u.s->markup;
	s = markup ? jval_escape(j, l->v[0]) : jval_to_str(j, l->v[0]);
	for (size_t i = 1; i < l->n; i++)
		s = jstr_concat(j, s, markup ? jval_escape(j, l->v[i]) : jval_to_str(j, l->v[i]));
	return jval_str(jstr_with(j, s, markup));
}

static bool compare(struct jinja *j, enum jcompare op, struct jval x, struct jval y)
{
	switch (op) {
	case JCMP_EQ:
		return jval_eq(j, x, y);
	case JCMP_NE:
		return !jval_eq(j, x, y);
	case JCMP_LT:
		return jval_order(j, JORDER_LT, x, y);
	case JCMP_LE:
		return jval_order(j, JORDER_LE, x, y);
	case JCMP_GT:
		return jval_order(j, JORDER_GT, x, y);
	case JCMP_GE:
		return jval_order(j, JORDER_GE, x, y);
	case JCMP_IN:
		return jval_contains(j, y, x);
	default:
		return !jval_contains(j, y, x);
	}
}

static struct jval eval_compare(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval left = jeval(j, a, n->u.compare.first);

	for (size_t i = 0; i < n->u.compare.rest.n; i++) {
		struct jval right = jeval(j, a, n->u.compare.rest.v[i]);

		if (!compare(j, (enum jcompare)n->u.compare.ops[i], left, right))
			return jval_bool(false);
		left = right;
	}
	return jval_bool(true);
}

static struct jval eval_getitem(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval of = jeval(j, a, n->u.item.of), part[3];
	const struct jnode *index = n->u.item.index;

	if (index->kind != JN_SLICE)
		return jval_getitem(j, of, jeval(j, a, index));
	part[0] = index->u.slice.start ? jeval(j, a, index->u.slice.start) : jval_none();
	part[1] = index->u.slice.stop ? jeval(j, a, index->u.slice.stop) : jval_none();
	part[2] = index->u.slice.step ? jeval(j, a, index->u.slice.step) : jval_none();
	return jval_slice(j, of, part[0], part[1], part[2]);
}

void jexec_args(struct jinja *j, struct jactivation *a, const struct jargs *args, struct jcall *call)
{
	struct jiter *it;
	struct jval v;

	for (size_t i = 0; i < args->pos.n; i++)
		jcall_push(j, call, jeval(j, a, args->pos.v[i]));
	if (args->dyn_args) {
		it = jiter_of(j, jeval(j, a, args->dyn_args));
		while (jiter_next(j, it, &v))
			jcall_push(j, call, v);
	}
	for (size_t i = 0; i < args->kw.n; i++)
		jcall_push_kw(j, call, args->kw_names[i]->text, jeval(j, a, args->kw.v[i]));
	if (!args->dyn_kwargs)
		return;
	v = jeval(j, a, args->dyn_kwargs);
	if (v.kind != JV_DICT)
		jinja_fail(j, JFAIL_TYPE, "what follows ** must be a dict, not '%s'", jval_type_name(v));
	for (uint32_t i = 0; i < v.u.dict->n; i++) {
		if (v.u.dict->e[i].key.kind != JV_STR)
			jinja_fail(j, JFAIL_TYPE, "names of arguments must be strings");
		jcall_push_kw(j, call, v.u.dict->e[i].key.u.s, v.u.dict->e[i].value);
	}
}

static struct jval eval_call(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval callee = jeval(j, a, n->u.call.of);
	struct jcall call = { 0 };

	jexec_args(j, a, n->u.call.args, &call);
	j->line = n->line;
	return jval_call(j, callee, &call);
}

static struct jval apply(struct jinja *j, struct jactivation *a, const struct jnode *n, struct jval self)
{
	struct jcall call = { 0 };

	jexec_args(j, a, n->u.call.args, &call);
	j->line = n->line;
	if (!n->u.call.def)
		jinja_fail(j, JFAIL_SYNTAX, "no %s is named '%s'", n->kind == JN_FILTER ? "filter" : "test",
			JSTR_SHOW(n->u.call.name->text));
	return jbuiltin_call(j, n->u.call.def, self, &call);
}

struct jval jexec_filter(struct jinja *j, struct jactivation *a, const struct jnode *n, struct jval text)
{
	struct jval self;

	jinja_enter(j);
	self = n->u.call.of ? jexec_filter(j, a, n->u.call.of, text) : text;
	jinja_leave(j);
	return apply(j, a, n, self);
}

static struct jval eval_deep(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval v;

	switch (n->kind) {
	case JN_TUPLE:
		return jval_tuple(eval_list(j, a, &n->u.items));
	case JN_LIST:
		return jval_list(eval_list(j, a, &n->u.items));
	case JN_DICT:
		return eval_dict(j, a, &n->u.items);
	case JN_COND:
		if (jval_truth(j, jeval(j, a, n->u.cond.test)))
			return jeval(j, a, n->u.cond.yes);
		if (n->u.cond.no)
			return jeval(j, a, n->u.cond.no);
		return jval_undef_hint(j, "an inline if without an else was false");
	case JN_OR:
		v = jeval(j, a, n->u.binary.left);
		return jval_truth(j, v) ? v : jeval(j, a, n->u.binary.right);
	case JN_AND:
		v = jeval(j, a, n->u.binary.left);
		return jval_truth(j, v) ? jeval(j, a, n->u.binary.right) : v;
	case JN_NOT:
		return jval_bool(!jval_truth(j, jeval(j, a, n->u.operand)));
	case JN_COMPARE:
		return eval_compare(j, a, n);
	case JN_CONCAT:
		return eval_concat(j, a, n);
	case JN_BINARY:
		v = jeval(j, a, n->u.binary.left);
		return jval_binary(j, n->u.binary.op, v, jeval(j, a, n->u.binary.right));
	case JN_NEG:
		return jval_negate(j, jeval(j, a, n->u.operand));
	case JN_POS:
		return jval_plus(j, jeval(j, a, n->u.operand));
	case JN_GETATTR:
		return jval_getattr(j, jeval(j, a, n->u.attr.of), n->u.attr.name->text);
	case JN_GETITEM:
		return eval_getitem(j, a, n);
	case JN_CALL:
		return eval_call(j, a, n);
	case JN_FILTER:
	case JN_TEST:
		return apply(j, a, n, jeval(j, a, n->u.call.of));
	default:
		jinja_fail(j, JFAIL_SYNTAX, "this is no expression");
	}
}

struct jval jeval(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval v;

	jinja_step(j, 1);
	if (n->kind == JN_CONST)
		return n->u.value;
	if (n->kind == JN_NAME)
		return eval_name(j, a, n);
	jinja_enter(j);
	j->line = n->line;
	v = eval_deep(j, a, n);
	jinja_leave(j);
	return v;
}
