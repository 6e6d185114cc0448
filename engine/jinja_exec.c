/* SPDX-License-Identifier: Apache-2.0
 * Statements: what a template prints and sets. Output is appended to j->run->out, byte ranges keeping their trust.
 */
#include "engine/jinja_eval.h"
#include <string.h>

struct jactivation *jactivation_new(
	struct jinja *j, const struct jfunc *f, struct jactivation *outer, struct jcontext *c)
{
	struct jactivation *a = jinja_zalloc(j, 1, sizeof *a + f->n_slots * sizeof(struct jval));

	_Static_assert(JV_MISSING == 0, "cleared slots are unset");
	jinja_step(j, f->n_slots / 16);
	a->outer = outer;
	a->context = c ? c : outer->context;
	return a;
}

static struct jval *slot_of(struct jactivation *a, struct jvar v)
{
	for (uint32_t i = 0; i < v.hops; i++)
		a = a->outer;
	return &a->slots[v.slot];
}

struct jval jcontext_get(struct jinja *j, struct jcontext *c, struct jstr *name)
{
	const struct jbuiltin *global;
	struct jval *v = NULL;

	for (; c && !v; c = c->outer)
		v = jdict_get_str(j, c->vars, name);
	if (!v)
		v = jdict_get_str(j, j->run->inputs, name);
	if (v)
		return *v;
	global = jglobal_find(name);
	return global ? JV(JV_FUNC, func, global) : jval_missing();
}

void jscope_enter(struct jinja *j, struct jactivation *a, const struct jscope *s)
{
	jinja_step(j, s->n_loads / 4);
	for (size_t i = 0; i < s->n_loads; i++) {
		const struct jscope_load *l = &s->loads[i];

		if (l->how == JLOAD_RESOLVE)
			a->slots[l->slot] = jcontext_get(j, a->context, l->name->text);
		else
			a->slots[l->slot] = l->how == JLOAD_ALIAS ? *slot_of(a, l->from) : jval_missing();
	}
}

static void scope_leave(struct jactivation *a, const struct jscope *s)
{
	for (size_t i = 0; i < s->n_loads; i++)
		a->slots[s->loads[i].slot] = jval_missing();
}

static void put(struct jinja *j, struct jval v, bool escape)
{
	jtext_put_str(j, j->run->out, escape ? jval_escape(j, v) : jval_to_str(j, v));
}

struct jstr *jexec_capture(struct jinja *j, struct jactivation *a, const struct jnodes *body)
{
	struct jtext *saved = j->run->out, *text = jtext_new(j, 0);

	j->run->out = text;
	(void)jexec(j, a, body);
	j->run->out = saved;
	return jtext_str(j, text);
}

/* ---- assignment ---- */

static void assign_tuple(struct jinja *j, struct jactivation *a, const struct jnodes *targets, struct jval v)
{
	struct jiter *it;
	struct jlist *items = jlist_new(j, targets->n);
	struct jval item;

	if (!jval_iterable(v))
		jinja_fail(j, JFAIL_TYPE, "'%s' cannot be unpacked", jval_type_name(v));
	it = jiter_of(j, v);
	while (jiter_next(j, it, &item)) {
		if (items->n == targets->n)
			jinja_fail(j, JFAIL_VALUE, "more than %zu values to unpack", targets->n);
		items->v[items->n++] = item;
	}
	if (items->n < targets->n)
		jinja_fail(j, JFAIL_VALUE, "%zu values to unpack, not %zu", items->n, targets->n);
	for (size_t i = 0; i < targets->n; i++)
		jexec_assign(j, a, targets->v[i], items->v[i]);
}

static void assign_member(struct jinja *j, struct jactivation *a, const struct jnode *target, struct jval v)
{
	struct jval ns = *slot_of(a, target->u.name.var);

	if (ns.kind != JV_NAMESPACE)
		jinja_fail(j, JFAIL_TYPE, "only attributes of a namespace can be set");
	jdict_set(j, ns.u.dict, jval_str(target->u.name.attr->text), v);
}

void jexec_assign(struct jinja *j, struct jactivation *a, const struct jnode *target, struct jval v)
{
	jinja_enter(j);
	j->line = target->line;
	if (target->kind == JN_TUPLE) {
		assign_tuple(j, a, &target->u.items, v);
	} else if (target->kind == JN_NSREF) {
		assign_member(j, a, target, v);
	} else {
		*slot_of(a, target->u.name.var) = v;
		if (target->u.name.exported)
			jdict_set(j, a->context->vars, jval_str(target->u.name.name->text), v);
	}
	jinja_leave(j);
}

/* ---- loops ---- */

struct filtered { /* the generator behind "for ... if ..." */
	const struct jnode_for *node;
	struct jactivation *a;
	struct jiter *from;
};

static bool filtered_next(struct jinja *j, struct jiter *it, struct jval *out)
{
	struct filtered *f = it->state;

	while (jiter_next(j, f->from, out)) {
		jexec_assign(j, f->a, f->node->test_target, *out);
		if (jval_truth(j, jeval(j, f->a, f->node->test)))
			return true;
	}
	return false;
}

static struct jval filtered_of(
	struct jinja *j, struct jactivation *a, const struct jnode_for *n, struct jval iterable)
{
	struct jiter *it = jinja_zalloc(j, 1, sizeof *it);
	struct filtered *f = jinja_alloc(j, sizeof *f);

	jscope_enter(j, a, &n->test_scope);
	*f = (struct filtered){ .node = n, .a = a, .from = jiter_of(j, iterable) };
	it->next = filtered_next;
	it->state = f;
	it->shown = "generator";
	return jval_iter(it);
}

/* Rounds of a loop in activation a; `outer` is the one that its test and iterable belong to. As in Jinja, a round
 * that ends early by break or continue does not count against the else part. */
static enum jflow run_loop(struct jinja *j, struct jactivation *a, struct jactivation *outer,
	const struct jnode_for *n, struct jval iterable, int64_t depth0)
{
	struct jloop *l = jloop_new(j, n->test ? filtered_of(j, outer, n, iterable) : iterable);
	enum jflow flow = JFLOW_NEXT;
	struct jval item;
	bool whole = false;

	if (n->recursive) {
		l->node = n;
		l->outer = outer;
		l->depth0 = depth0;
	}
	if (n->has_loop)
		*slot_of(a, n->loop) = JV(JV_LOOP, loop, l);
	while (flow != JFLOW_BREAK && jloop_next(j, l, &item)) {
		jexec_assign(j, a, n->target, item);
		jscope_enter(j, a, &n->scope);
		flow = jexec(j, a, &n->body);
		whole |= flow == JFLOW_NEXT;
	}
	scope_leave(a, &n->scope);
	if (whole || !n->otherwise.n)
		return JFLOW_NEXT;
	jscope_enter(j, a, &n->else_scope);
	flow = jexec(j, a, &n->otherwise);
	scope_leave(a, &n->else_scope);
	return flow;
}

static enum jflow exec_for(struct jinja *j, struct jactivation *a, const struct jnode_for *n)
{
	struct jval iterable = jeval(j, a, n->iter);

	if (!n->recursive)
		return run_loop(j, a, a, n, iterable, 0);
	return run_loop(j, jactivation_new(j, n->func, a, NULL), a, n, iterable, 0);
}

struct jval jloop_call(struct jinja *j, struct jloop *l, struct jval iterable)
{
	struct jtext *saved = j->run->out, *text = jtext_new(j, 0);

	if (!l->node)
		jinja_fail(j, JFAIL_TYPE, "loop: only a loop marked 'recursive' can be called");
	j->run->out = text;
	(void)run_loop(j, jactivation_new(j, l->node->func, l->outer, NULL), l->outer, l->node, iterable,
		l->depth0 + 1);
	j->run->out = saved;
	return jval_str(jstr_with(j, jtext_str(j, text), j->run->autoescape));
}

/* ---- macros ---- */

static struct jval macro_of(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jmacro *m = jinja_alloc(j, sizeof *m);

	*m = (struct jmacro){ .node = n->u.macro, .outer = a };
	return JV(JV_MACRO, macro, m);
}

/* Takes the keyword argument out of the call; JV_MISSING if it was not given. */
static struct jval take_kw(struct jcall *call, const struct jstr *name)
{
	for (size_t i = 0; i < call->n_kw; i++) {
		struct jval v;

		if (!jstr_eq(call->kw_names[i], name))
			continue;
		v = call->kw[i];
		call->n_kw--;
		memmove(call->kw + i, call->kw + i + 1, (call->n_kw - i) * sizeof *call->kw);
		memmove(call->kw_names + i, call->kw_names + i + 1, (call->n_kw - i) * sizeof(struct jstr *));
		return v;
	}
	return jval_missing();
}

static struct jval kwargs_dict(struct jinja *j, const struct jcall *call)
{
	struct jdict *d = jdict_new(j);

	for (size_t i = 0; i < call->n_kw; i++)
		jdict_set(j, d, jval_str(call->kw_names[i]), call->kw[i]);
	return jval_dict(d);
}

static struct jval rest_tuple(struct jinja *j, const struct jcall *call, size_t from)
{
	struct jlist *l = jlist_new(j, call->n > from ? call->n - from : 0);

	for (size_t i = from; i < call->n; i++)
		l->v[l->n++] = call->args[i];
	return jval_tuple(l);
}

static void macro_bind(
	struct jinja *j, struct jactivation *a, const struct jnode_macro *m, struct jcall *call)
{
	const char *name = m->name ? JSTR_SHOW(m->name->text) : "caller";

	for (size_t i = 0; i < m->args.n; i++) {
		const struct jnode *arg = m->args.v[i];

		if (i < call->n) {
			a->slots[arg->u.name.var.slot] = call->args[i];
			continue;
		}
		a->slots[arg->u.name.var.slot] = take_kw(call, arg->u.name.name->text);
	}
	if (m->uses_caller && !m->explicit_caller) {
		struct jval c = take_kw(call, jstr_lit(j, "caller", true));

		if (c.kind == JV_MISSING || c.kind == JV_NONE)
			c = jval_undef_hint(j, "no caller is defined");
		a->slots[m->caller.slot] = c;
	}
	if (m->uses_kwargs)
		a->slots[m->kwargs.slot] = kwargs_dict(j, call);
	else if (call->n_kw)
		jinja_fail(j, JFAIL_TYPE, "macro '%s' has no parameter '%s'", name,
			JSTR_SHOW(call->kw_names[0]));
	if (m->uses_varargs)
		a->slots[m->varargs.slot] = rest_tuple(j, call, m->args.n);
	else if (call->n > m->args.n)
		jinja_fail(j, JFAIL_TYPE, "macro '%s' takes no more than %zu arguments", name, m->args.n);
}

static void macro_defaults(struct jinja *j, struct jactivation *a, const struct jnode_macro *m)
{
	size_t first = m->args.n - m->defaults.n;

	for (size_t i = 0; i < m->args.n; i++) {
		struct jval *slot = &a->slots[m->args.v[i]->u.name.var.slot];

		if (slot->kind != JV_MISSING)
			continue;
		*slot = i < first ? jval_undef_hint(j, "a parameter of a macro was not given")
				  : jeval(j, a, m->defaults.v[i - first]);
	}
}

struct jval jmacro_call(struct jinja *j, const struct jmacro *m, struct jcall *call)
{
	struct jactivation *a = jactivation_new(j, m->node->func, m->outer, NULL);

	macro_bind(j, a, m->node, call);
	jscope_enter(j, a, &m->node->scope);
	macro_defaults(j, a, m->node);
	return jval_str(jstr_with(j, jexec_capture(j, a, &m->node->body), j->run->autoescape));
}

void jmacro_repr_put(struct jinja *j, struct jtext *t, const struct jmacro *m)
{
	jtext_put(j, t, "<Macro ", 7, false);
	if (m->node->name)
		jstr_repr_put(j, t, m->node->name->text, false);
	else
		jtext_put(j, t, "anonymous", 9, false);
	jtext_putc(j, t, '>', false);
}

bool jmacro_attribute(struct jinja *j, const struct jmacro *m, const struct jstr *name, struct jval *out)
{
	struct jlist *args;

	if (jstr_is(name, "name")) {
		*out = m->node->name ? jval_str(m->node->name->text) : jval_none();
	} else if (jstr_is(name, "arguments")) {
		args = jlist_new(j, m->node->args.n);
		for (size_t i = 0; i < m->node->args.n; i++)
			args->v[args->n++] = jval_str(m->node->args.v[i]->u.name.name->text);
		*out = jval_tuple(args);
	} else if (jstr_is(name, "caller")) {
		*out = jval_bool(m->node->uses_caller);
	} else if (jstr_is(name, "catch_kwargs")) {
		*out = jval_bool(m->node->uses_kwargs);
	} else if (jstr_is(name, "catch_varargs")) {
		*out = jval_bool(m->node->uses_varargs);
	} else {
		return false;
	}
	return true;
}

/* Output that Jinja writes as it is: it must be text. */
static void put_text(struct jinja *j, struct jval v)
{
	if (v.kind != JV_STR)
		jinja_fail(j, JFAIL_TYPE, "a block must give text, not '%s'", jval_type_name(v));
	jtext_put_str(j, j->run->out, v.u.s);
}

static void exec_callblock(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	const struct jnode *call_node = n->u.macro->call;
	struct jval callee = jeval(j, a, call_node->u.call.of);
	struct jcall call = { 0 };

	jexec_args(j, a, call_node->u.call.args, &call);
	jcall_push_kw(j, &call, jstr_lit(j, "caller", true), macro_of(j, a, n));
	j->line = n->line;
	put_text(j, jval_call(j, callee, &call));
}

static void exec_generation(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jcall none = { 0 };
	struct jactivation *own = jactivation_new(j, n->u.macro->func, a, NULL);

	macro_bind(j, own, n->u.macro, &none);
	jscope_enter(j, own, &n->u.macro->scope);
	(void)jexec(j, own, &n->u.macro->body);
}

/* ---- blocks of a template ---- */

const struct jnode_block *jblock_find(struct jinja *j, const struct jstr *name)
{
	const struct jnode_block *b = j->run->t->blocks;

	while (b && !jstr_eq(b->name->text, name))
		b = b->next;
	return b;
}

static struct jval self_of(struct jcontext *c) { return JV(JV_SELF, context, c); }

static void run_block(struct jinja *j, const struct jnode_block *b, struct jcontext *c)
{
	struct jactivation *a = jactivation_new(j, b->func, NULL, c);

	jinja_enter(j);
	if (b->uses_self)
		a->slots[b->self.slot] = self_of(c);
	if (b->uses_super)
		a->slots[b->super.slot] = jval_undef_hint(j, "there is no parent block");
	jscope_enter(j, a, &b->scope);
	(void)jexec(j, a, &b->body);
	jinja_leave(j);
}

struct jval jblock_call(struct jinja *j, const struct jblockref *b)
{
	struct jtext *saved = j->run->out, *text = jtext_new(j, 0);

	j->run->out = text;
	run_block(j, b->block, b->context);
	j->run->out = saved;
	return jval_str(jstr_with(j, jtext_str(j, text), j->run->autoescape));
}

static struct jcontext *context_new(struct jinja *j, struct jcontext *outer)
{
	struct jcontext *c = jinja_alloc(j, sizeof *c);

	*c = (struct jcontext){ .vars = jdict_new(j), .outer = outer };
	return c;
}

static void exec_block(struct jinja *j, struct jactivation *a, const struct jnode_block *b)
{
	struct jcontext *c = a->context;

	if (b->required)
		jinja_fail(j, JFAIL_VALUE, "required block '%s' is not there", JSTR_SHOW(b->name->text));
	if (b->scoped) {
		c = context_new(j, c);
		for (size_t i = 0; i < b->around->n_seen; i++) {
			struct jval v = *slot_of(a, b->around->seen_at[i]);

			if (v.kind != JV_MISSING)
				jdict_set(j, c->vars, jval_str(b->around->seen[i]->text), v);
		}
	}
	run_block(j, b, c);
}

/* ---- the other statements ---- */

_Noreturn static void no_loader(struct jinja *j)
{
	jinja_fail(j, JFAIL_TYPE,
		"a chat template is alone: there are no other templates to include, import or extend");
}

static void exec_include(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	struct jval v = jeval(j, a, n->u.include.of);

	if (n->u.include.ignore_missing && (v.kind == JV_LIST || v.kind == JV_TUPLE) && !v.u.list->n)
		return;
	no_loader(j);
}

static enum jflow exec_with(struct jinja *j, struct jactivation *a, const struct jnode_with *n)
{
	enum jflow flow;

	jscope_enter(j, a, &n->scope);
	for (size_t i = 0; i < n->targets.n; i++)
		jexec_assign(j, a, n->targets.v[i], jeval(j, a, n->values.v[i]));
	flow = jexec(j, a, &n->body);
	scope_leave(a, &n->scope);
	return flow;
}

static enum jflow exec_autoescape(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	bool saved = j->run->autoescape;
	enum jflow flow;

	jscope_enter(j, a, n->u.escape.scope);
	j->run->autoescape = jval_truth(j, jeval(j, a, n->u.escape.value));
	flow = jexec(j, a, &n->u.escape.body);
	j->run->autoescape = saved;
	scope_leave(a, n->u.escape.scope);
	return flow;
}

/* Runs a body whose output is kept back; break and continue drop it, as they leave before it is used. */
static enum jflow capture(
	struct jinja *j, struct jactivation *a, const struct jnodes *body, struct jstr **out)
{
	struct jtext *saved = j->run->out, *text = jtext_new(j, 0);
	enum jflow flow;

	j->run->out = text;
	flow = jexec(j, a, body);
	j->run->out = saved;
	*out = jstr_with(j, jtext_str(j, text), j->run->autoescape);
	return flow;
}

static enum jflow exec_filterblock(struct jinja *j, struct jactivation *a, const struct jnode_filterblock *n)
{
	struct jstr *text;
	enum jflow flow;

	jscope_enter(j, a, &n->scope);
	flow = capture(j, a, &n->body, &text);
	if (flow == JFLOW_NEXT)
		put_text(j, jexec_filter(j, a, n->filter, jval_str(text)));
	scope_leave(a, &n->scope);
	return flow;
}

static enum jflow exec_setblock(struct jinja *j, struct jactivation *a, const struct jnode_setblock *n)
{
	struct jstr *text;
	struct jval v;
	enum jflow flow;

	jscope_enter(j, a, &n->scope);
	flow = capture(j, a, &n->body, &text);
	if (flow == JFLOW_NEXT) {
		v = n->filter ? jexec_filter(j, a, n->filter, jval_str(text)) : jval_str(text);
		if (j->run->autoescape)
			v = jval_str(jstr_with(j, jval_to_str(j, v), true));
		jexec_assign(j, a, n->target, v);
	}
	scope_leave(a, &n->scope);
	return flow;
}

static void exec_output(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	bool escape = jnode_escapes(j, n);

	for (size_t i = 0; i < n->u.items.n; i++)
		put(j, jeval(j, a, n->u.items.v[i]), escape);
}

static enum jflow exec_if(struct jinja *j, struct jactivation *a, const struct jnode_if *n)
{
	for (size_t i = 0; i < n->n; i++)
		if (jval_truth(j, jeval(j, a, n->tests[i])))
			return jexec(j, a, &n->bodies[i]);
	return jexec(j, a, &n->otherwise);
}

static void exec_namespace_check(struct jinja *j, struct jactivation *a, const struct jnode *target)
{
	if (target->kind == JN_NSREF && slot_of(a, target->u.name.var)->kind != JV_NAMESPACE)
		jinja_fail(j, JFAIL_TYPE, "only attributes of a namespace can be set");
}

static enum jflow exec_one(struct jinja *j, struct jactivation *a, const struct jnode *n)
{
	switch (n->kind) {
	case JN_OUTPUT:
		exec_output(j, a, n);
		return JFLOW_NEXT;
	case JN_IF:
		return exec_if(j, a, n->u.branch);
	case JN_FOR:
		return exec_for(j, a, n->u.loop);
	case JN_SET:
		exec_namespace_check(j, a, n->u.set.target);
		jexec_assign(j, a, n->u.set.target, jeval(j, a, n->u.set.value));
		return JFLOW_NEXT;
	case JN_SETBLOCK:
		return exec_setblock(j, a, n->u.setblock);
	case JN_MACRO:
		jexec_assign(j, a, n->u.macro->target, macro_of(j, a, n));
		return JFLOW_NEXT;
	case JN_CALLBLOCK:
		exec_callblock(j, a, n);
		return JFLOW_NEXT;
	case JN_GENERATION:
		exec_generation(j, a, n);
		return JFLOW_NEXT;
	case JN_FILTERBLOCK:
		return exec_filterblock(j, a, n->u.filterblock);
	case JN_WITH:
		return exec_with(j, a, n->u.with);
	case JN_AUTOESCAPE:
		return exec_autoescape(j, a, n);
	case JN_BLOCK:
		exec_block(j, a, n->u.block);
		return JFLOW_NEXT;
	case JN_BREAK:
		return JFLOW_BREAK;
	case JN_CONTINUE:
		return JFLOW_CONTINUE;
	case JN_INCLUDE:
		exec_include(j, a, n);
		return JFLOW_NEXT;
	default:
		no_loader(j);
	}
}

enum jflow jexec(struct jinja *j, struct jactivation *a, const struct jnodes *body)
{
	enum jflow flow = JFLOW_NEXT;

	jinja_enter(j);
	for (size_t i = 0; i < body->n && flow == JFLOW_NEXT; i++) {
		jinja_step(j, 1);
		j->line = body->v[i]->line;
		flow = exec_one(j, a, body->v[i]);
	}
	jinja_leave(j);
	return flow;
}

void jinja_render(struct jinja *j, const struct jinja_template *t, struct jdict *inputs, int64_t now_s,
	struct jtext *out)
{
	struct jinja_run run = { .t = t, .inputs = inputs, .out = out, .now_s = now_s };
	struct jcontext *c;
	struct jactivation *a;

	j->run = &run;
	c = context_new(j, NULL);
	a = jactivation_new(j, t->func, NULL, c);
	if (t->uses_self)
		a->slots[t->self.slot] = self_of(c);
	jscope_enter(j, a, &t->scope);
	(void)jexec(j, a, &t->body);
	j->run = NULL;
}
