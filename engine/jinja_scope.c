/* SPDX-License-Identifier: Apache-2.0
 * Decides for every variable of a template where it lives, with Jinja's rules: a frame (template, loop body, macro,
 * with ...) first collects the names that it loads and stores, not looking into frames inside it; a name stored
 * here but known further out starts as a copy of that; one that only some branches of an `if` store starts as the
 * context's value; one that every path stores first starts unset, even if the context knows it. Then the frame's
 * code is walked and each name gets its slot.
 */
#include "engine/jinja_parser.h"
#include <string.h>

struct jbinding { /* a name in a frame */
	struct jname *name;
	struct frame *frame;
	struct jbinding *outer;	      /* what the name meant around this frame */
	struct jbinding *next;	      /* of the frame, in order of definition */
	struct jbinding *stored_next; /* newest first: names stored in the frame */
	struct jbinding *alias;
	enum jload load;
	uint32_t slot;
	bool stored;
};

struct frame {
	struct frame *parent;
	struct jfunc *func;
	struct jscope *scope;
	struct jbinding *first, **last;
	struct jbinding *stored;
	bool toplevel, in_loop;
};

struct resolver {
	struct jinja *j;
	struct jinja_template *t;
};

typedef void child_fn(void *ctx, struct jnode *n);

static void each(const struct jnodes *l, child_fn *fn, void *ctx)
{
	for (size_t i = 0; i < l->n; i++)
		fn(ctx, l->v[i]);
}

static void maybe(struct jnode *n, child_fn *fn, void *ctx)
{
	if (n)
		fn(ctx, n);
}

static void each_arg(const struct jargs *a, child_fn *fn, void *ctx)
{
	each(&a->pos, fn, ctx);
	each(&a->kw, fn, ctx);
	maybe(a->dyn_args, fn, ctx);
	maybe(a->dyn_kwargs, fn, ctx);
}

static void each_child_expr(struct jnode *n, child_fn *fn, void *ctx)
{
	switch (n->kind) {
	case JN_TUPLE:
	case JN_LIST:
	case JN_DICT:
	case JN_CONCAT:
	case JN_OUTPUT:
		each(&n->u.items, fn, ctx);
		break;
	case JN_COND:
		fn(ctx, n->u.cond.test);
		fn(ctx, n->u.cond.yes);
		maybe(n->u.cond.no, fn, ctx);
		break;
	case JN_OR:
	case JN_AND:
	case JN_BINARY:
		fn(ctx, n->u.binary.left);
		fn(ctx, n->u.binary.right);
		break;
	case JN_NOT:
	case JN_NEG:
	case JN_POS:
	case JN_EXTENDS:
		fn(ctx, n->u.operand);
		break;
	case JN_COMPARE:
		fn(ctx, n->u.compare.first);
		each(&n->u.compare.rest, fn, ctx);
		break;
	case JN_GETATTR:
		fn(ctx, n->u.attr.of);
		break;
	case JN_GETITEM:
		fn(ctx, n->u.item.of);
		fn(ctx, n->u.item.index);
		break;
	case JN_SLICE:
		maybe(n->u.slice.start, fn, ctx);
		maybe(n->u.slice.stop, fn, ctx);
		maybe(n->u.slice.step, fn, ctx);
		break;
	case JN_CALL:
	case JN_FILTER:
	case JN_TEST:
		maybe(n->u.call.of, fn, ctx);
		each_arg(n->u.call.args, fn, ctx);
		break;
	default:
		break;
	}
}

/* Children in the order in which Jinja visits them, which decides whether a name counts as used before stored. */
static void each_child(struct jnode *n, child_fn *fn, void *ctx)
{
	switch (n->kind) {
	case JN_FOR:
		fn(ctx, n->u.loop->target);
		fn(ctx, n->u.loop->iter);
		each(&n->u.loop->body, fn, ctx);
		each(&n->u.loop->otherwise, fn, ctx);
		maybe(n->u.loop->test, fn, ctx);
		break;
	case JN_IF:
		for (size_t i = 0; i < n->u.branch->n; i++) {
			fn(ctx, n->u.branch->tests[i]);
			each(&n->u.branch->bodies[i], fn, ctx);
		}
		each(&n->u.branch->otherwise, fn, ctx);
		break;
	case JN_WITH:
		each(&n->u.with->targets, fn, ctx);
		each(&n->u.with->values, fn, ctx);
		each(&n->u.with->body, fn, ctx);
		break;
	case JN_AUTOESCAPE:
		fn(ctx, n->u.escape.value);
		each(&n->u.escape.body, fn, ctx);
		break;
	case JN_INCLUDE:
		fn(ctx, n->u.include.of);
		break;
	case JN_IMPORT:
	case JN_FROM:
		fn(ctx, n->u.import->of);
		break;
	case JN_MACRO:
	case JN_CALLBLOCK:
	case JN_GENERATION:
		maybe(n->u.macro->call, fn, ctx);
		each(&n->u.macro->args, fn, ctx);
		each(&n->u.macro->defaults, fn, ctx);
		each(&n->u.macro->body, fn, ctx);
		break;
	case JN_FILTERBLOCK:
		each(&n->u.filterblock->body, fn, ctx);
		fn(ctx, n->u.filterblock->filter);
		break;
	case JN_SET:
		fn(ctx, n->u.set.target);
		fn(ctx, n->u.set.value);
		break;
	case JN_SETBLOCK:
		fn(ctx, n->u.setblock->target);
		maybe(n->u.setblock->filter, fn, ctx);
		each(&n->u.setblock->body, fn, ctx);
		break;
	default:
		each_child_expr(n, fn, ctx);
		break;
	}
}

/* ---- which of some special names does a body use before it stores them? ---- */

struct undeclared {
	struct jinja *j;
	const char *const *names; /* [n] */
	unsigned n, open, found;  /* bit sets */
	bool scoped_block;	  /* met one */
};

static void undeclared_visit(void *ctx, struct jnode *n)
{
	struct undeclared *u = ctx;

	jinja_step(u->j, 1);
	if (n->kind == JN_BLOCK) {
		u->scoped_block |= n->u.block->scoped;
		return;
	}
	if (n->kind == JN_NAME) {
		for (unsigned i = 0; i < u->n; i++) {
			if (!(u->open >> i & 1) || !jstr_is(n->u.name.name->text, u->names[i]))
				continue;
			if (n->u.name.store)
				u->open &= ~(1u << i);
			else
				u->found |= 1u << i;
		}
		return;
	}
	jinja_enter(u->j);
	each_child(n, undeclared_visit, u);
	jinja_leave(u->j);
}

static struct undeclared undeclared_in(
	struct resolver *r, const struct jnodes *body, const char *const *names, unsigned n)
{
	struct undeclared u = { .j = r->j, .names = names, .n = n, .open = (1u << n) - 1 };

	each(body, undeclared_visit, &u);
	return u;
}

/* ---- bindings ---- */

static void frame_begin(struct frame *f, struct frame *parent, struct jfunc *func, struct jscope *scope)
{
	*f = (struct frame){
		.parent = parent, .func = func, .scope = scope, .in_loop = parent && parent->in_loop
	};
	f->last = &f->first;
}

static struct jbinding *bind(struct resolver *r, struct frame *f, struct jname *name, enum jload load)
{
	struct jbinding *b = jinja_zalloc(r->j, 1, sizeof *b);

	*b = (struct jbinding){
		.name = name, .frame = f, .outer = name->bound, .load = load, .slot = f->func->n_slots++
	};
	name->bound = b;
	*f->last = b;
	f->last = &b->next;
	return b;
}

static struct jbinding *own(const struct frame *f, const struct jname *name)
{
	return name->bound && name->bound->frame == f ? name->bound : NULL;
}

static void mark_stored(struct frame *f, struct jbinding *b)
{
	if (b->stored)
		return;
	b->stored = true;
	b->stored_next = f->stored;
	f->stored = b;
}

static void sym_store(struct resolver *r, struct frame *f, struct jname *name)
{
	struct jbinding *b = own(f, name), *outer = name->bound;

	if (!b) {
		b = bind(r, f, name, outer ? JLOAD_ALIAS : JLOAD_MISSING);
		b->alias = outer;
	}
	mark_stored(f, b);
}

static void sym_load(struct resolver *r, struct frame *f, struct jname *name)
{
	if (!name->bound)
		(void)bind(r, f, name, JLOAD_RESOLVE);
}

static struct jbinding *sym_param(struct resolver *r, struct frame *f, struct jname *name)
{
	struct jbinding *b = own(f, name);

	if (!b)
		b = bind(r, f, name, JLOAD_PARAM);
	b->load = JLOAD_PARAM;
	mark_stored(f, b);
	return b;
}

/* Names that began to be stored inside branches: they start as what they are outside. */
static void branches_join(struct frame *f, const struct jbinding *since)
{
	for (struct jbinding *b = f->stored; b && b != since; b = b->stored_next) {
		b->alias = b->outer;
		b->load = b->outer ? JLOAD_ALIAS : JLOAD_RESOLVE;
	}
}

struct symbols { /* visitor that collects names of one frame */
	struct resolver *r;
	struct frame *f;
	bool params; /* names met are parameters: targets of for and with */
};

static void sym_visit(void *ctx, struct jnode *n);

static void sym_if(struct symbols *s, struct jnode_if *b)
{
	const struct jbinding *since;

	sym_visit(s, b->tests[0]);
	since = s->f->stored;
	for (size_t i = 0; i < b->n; i++) {
		if (i)
			sym_visit(s, b->tests[i]);
		each(&b->bodies[i], sym_visit, s);
	}
	each(&b->otherwise, sym_visit, s);
	branches_join(s->f, since);
}

static void sym_visit(void *ctx, struct jnode *n)
{
	struct symbols *s = ctx;

	jinja_step(s->r->j, 1);
	jinja_enter(s->r->j);
	switch (n->kind) {
	case JN_NAME:
		if (s->params || n->u.name.param)
			(void)sym_param(s->r, s->f, n->u.name.name);
		else if (n->u.name.store)
			sym_store(s->r, s->f, n->u.name.name);
		else
			sym_load(s->r, s->f, n->u.name.name);
		break;
	case JN_NSREF:
		sym_load(s->r, s->f, n->u.name.name);
		break;
	case JN_IF:
		sym_if(s, n->u.branch);
		break;
	case JN_MACRO:
		sym_store(s->r, s->f, n->u.macro->name);
		break;
	case JN_IMPORT:
	case JN_FROM:
		sym_visit(s, n->u.import->of);
		for (size_t i = 0; i < n->u.import->n; i++)
			sym_store(s->r, s->f, n->u.import->names[i]);
		break;
	case JN_SET:
		sym_visit(s, n->u.set.value);
		sym_visit(s, n->u.set.target);
		break;
	case JN_FOR:
		sym_visit(s, n->u.loop->iter);
		break;
	case JN_CALLBLOCK:
		sym_visit(s, n->u.macro->call);
		break;
	case JN_FILTERBLOCK:
		sym_visit(s, n->u.filterblock->filter);
		break;
	case JN_WITH:
		each(&n->u.with->values, sym_visit, s);
		break;
	case JN_SETBLOCK:
		sym_visit(s, n->u.setblock->target);
		break;
	case JN_AUTOESCAPE:
	case JN_GENERATION:
	case JN_BLOCK:
		break;
	default:
		each_child_expr(n, sym_visit, s);
		break;
	}
	jinja_leave(s->r->j);
}

static void collect(struct resolver *r, struct frame *f, const struct jnodes *body)
{
	struct symbols s = { .r = r, .f = f };

	each(body, sym_visit, &s);
}

static void collect_node(struct resolver *r, struct frame *f, struct jnode *n, bool params)
{
	struct symbols s = { .r = r, .f = f, .params = params };

	if (n)
		sym_visit(&s, n);
}

static struct jvar var_of(const struct frame *at, const struct jbinding *b)
{
	struct jvar v = { .slot = b->slot };

	for (const struct jfunc *f = at->func; f && f != b->frame->func; f = f->outer)
		v.hops++;
	return v;
}

/* All names are known: the frame's scope says how each begins. */
static void frame_enter(struct resolver *r, struct frame *f)
{
	struct jscope *s = f->scope;

	for (struct jbinding *b = f->first; b; b = b->next) {
		if (b->load == JLOAD_PARAM)
			continue;
		s->cap_loads = jinja_grow(r->j, &s->loads, s->cap_loads, s->n_loads + 1, sizeof *s->loads);
		s->loads[s->n_loads] =
			(struct jscope_load){ .how = b->load, .slot = b->slot, .name = b->name };
		if (b->load == JLOAD_ALIAS)
			s->loads[s->n_loads].from = var_of(f, b->alias);
		s->n_loads++;
	}
}

static void frame_leave(struct frame *f)
{
	for (struct jbinding *b = f->first; b; b = b->next)
		b->name->bound = b->outer;
}

static struct jfunc *func_new(struct resolver *r, struct jfunc *outer)
{
	struct jfunc *f = jinja_zalloc(r->j, 1, sizeof *f);

	f->outer = outer;
	return f;
}

/* ---- walking code ---- */

struct walk {
	struct resolver *r;
	struct frame *f;
	bool soft; /* inside `if`: unknown filters and tests matter only when reached */
	enum jescape escape;
};

static void walk_expr(void *ctx, struct jnode *n);
static void walk_body(struct walk *w, const struct jnodes *body);

static void walk_call(struct walk *w, struct jnode *n)
{
	if (n->kind != JN_CALL && !n->u.call.def && !w->soft) {
		w->r->j->line = n->line;
		jinja_fail(w->r->j, JFAIL_SYNTAX, "no %s is named '%s'",
			n->kind == JN_FILTER ? "filter" : "test", JSTR_SHOW(n->u.call.name->text));
	}
	each_child_expr(n, walk_expr, w);
}

static void walk_expr(void *ctx, struct jnode *n)
{
	struct walk *w = ctx, inner = *w;

	jinja_step(w->r->j, 1);
	jinja_enter(w->r->j);
	switch (n->kind) {
	case JN_NAME:
	case JN_NSREF:
		if (!n->u.name.name->bound) /* names that only a set block's filter uses */
			jinja_fail(w->r->j, JFAIL_SYNTAX, "name '%s' is not known here",
				JSTR_SHOW(n->u.name.name->text));
		n->u.name.var = var_of(w->f, n->u.name.name->bound);
		n->u.name.exported = n->u.name.store && n->kind == JN_NAME && w->f->toplevel;
		break;
	case JN_COND:
		inner.soft = true;
		each_child_expr(n, walk_expr, &inner);
		break;
	case JN_CALL:
	case JN_FILTER:
	case JN_TEST:
		walk_call(w, n);
		break;
	default:
		n->escape = w->escape;
		each_child_expr(n, walk_expr, w);
		break;
	}
	jinja_leave(w->r->j);
}

static void walk_in(struct walk *w, struct frame *f, const struct jnodes *body)
{
	struct walk inner = { .r = w->r, .f = f, .escape = w->escape };

	walk_body(&inner, body);
}

static void walk_expr_in(struct walk *w, struct frame *f, struct jnode *n)
{
	struct walk inner = { .r = w->r, .f = f, .escape = w->escape };

	if (n)
		walk_expr(&inner, n);
}

static void walk_for_test(struct walk *w, struct jnode_for *l)
{
	struct frame f;

	frame_begin(&f, w->f, w->f->func, &l->test_scope);
	collect_node(w->r, &f, l->test_target, true);
	collect_node(w->r, &f, l->test, false);
	frame_enter(w->r, &f);
	walk_expr_in(w, &f, l->test_target);
	walk_expr_in(w, &f, l->test);
	frame_leave(&f);
}

static void walk_for(struct walk *w, struct jnode_for *l)
{
	static const char *const special[] = { "loop" };
	struct undeclared u = undeclared_in(w->r, &l->body, special, 1);
	struct jinja *j = w->r->j;
	struct frame f;

	walk_expr(w, l->iter);
	if (l->test)
		walk_for_test(w, l);
	l->func = l->recursive ? func_new(w->r, w->f->func) : w->f->func;
	l->has_loop = l->recursive || u.found || u.scoped_block;
	frame_begin(&f, w->f, l->func, &l->scope);
	f.in_loop = true;
	if (l->has_loop)
		l->loop =
			var_of(&f, sym_param(w->r, &f, jname_intern(j, w->r->t, jstr_lit(j, "loop", true))));
	collect_node(w->r, &f, l->target, true);
	collect(w->r, &f, &l->body);
	frame_enter(w->r, &f);
	walk_expr_in(w, &f, l->target);
	walk_in(w, &f, &l->body);
	frame_leave(&f);
	frame_begin(&f, w->f, l->func, &l->else_scope);
	f.in_loop = !l->recursive && w->f->in_loop;
	collect(w->r, &f, &l->otherwise);
	frame_enter(w->r, &f);
	walk_in(w, &f, &l->otherwise);
	frame_leave(&f);
}

static void walk_if(struct walk *w, struct jnode_if *b)
{
	struct walk inner = { .r = w->r, .f = w->f, .soft = true, .escape = w->escape };

	for (size_t i = 0; i < b->n; i++) {
		walk_expr(&inner, b->tests[i]);
		walk_body(&inner, &b->bodies[i]);
	}
	walk_body(&inner, &b->otherwise);
}

static void walk_with(struct walk *w, struct jnode_with *n)
{
	struct frame f;

	each(&n->values, walk_expr, w);
	frame_begin(&f, w->f, w->f->func, &n->scope);
	for (size_t i = 0; i < n->targets.n; i++)
		collect_node(w->r, &f, n->targets.v[i], true);
	collect(w->r, &f, &n->body);
	frame_enter(w->r, &f);
	for (size_t i = 0; i < n->targets.n; i++)
		walk_expr_in(w, &f, n->targets.v[i]);
	walk_in(w, &f, &n->body);
	frame_leave(&f);
}

static void walk_autoescape(struct walk *w, struct jnode *n)
{
	struct jnode *value = n->u.escape.value;
	struct walk inner = *w;
	struct frame f;

	frame_begin(&f, w->f, w->f->func, n->u.escape.scope);
	collect_node(w->r, &f, n->u.escape.value, false);
	collect(w->r, &f, &n->u.escape.body);
	frame_enter(w->r, &f);
	walk_expr_in(w, &f, value);
	inner.escape = value->kind != JN_CONST	      ? JESCAPE_ASK
		: jval_truth(w->r->j, value->u.value) ? JESCAPE_ON
						      : JESCAPE_OFF;
	walk_in(&inner, &f, &n->u.escape.body);
	frame_leave(&f);
}

static void walk_filterblock(struct walk *w, struct jnode_filterblock *n)
{
	struct frame f;

	frame_begin(&f, w->f, w->f->func, &n->scope);
	collect(w->r, &f, &n->body);
	collect_node(w->r, &f, n->filter, false);
	frame_enter(w->r, &f);
	walk_in(w, &f, &n->body);
	walk_expr_in(w, &f, n->filter);
	frame_leave(&f);
}

static void walk_setblock(struct walk *w, struct jnode_setblock *n)
{
	struct frame f;

	frame_begin(&f, w->f, w->f->func, &n->scope);
	collect(w->r, &f, &n->body);
	frame_enter(w->r, &f);
	walk_in(w, &f, &n->body);
	walk_expr_in(w, &f, n->filter);
	frame_leave(&f);
	walk_expr(w, n->target);
}

static struct jname *special_name(struct resolver *r, const char *name)
{
	return jname_intern(r->j, r->t, jstr_lit(r->j, name, true));
}

static bool has_arg(const struct jnode_macro *m, const char *name, size_t *at)
{
	for (*at = 0; *at < m->args.n; ++*at)
		if (jstr_is(m->args.v[*at]->u.name.name->text, name))
			return true;
	return false;
}

/* caller, kwargs and varargs are parameters of macros that use them. */
static void macro_specials(struct walk *w, struct frame *f, struct jnode *n)
{
	static const char *const special[] = { "caller", "kwargs", "varargs" };
	struct jnode_macro *m = n->u.macro;
	unsigned found = undeclared_in(w->r, &m->body, special, 3).found;
	size_t at;

	m->explicit_caller = has_arg(m, "caller", &at);
	m->uses_caller = found & 1;
	if (m->uses_caller && m->explicit_caller && at < m->args.n - m->defaults.n) {
		w->r->j->line = n->line;
		jinja_fail(w->r->j, JFAIL_SYNTAX, "parameter 'caller' needs a default");
	}
	m->uses_kwargs = found & 2 && !has_arg(m, "kwargs", &at);
	m->uses_varargs = found & 4 && !has_arg(m, "varargs", &at);
	if (m->uses_caller && !m->explicit_caller)
		m->caller = var_of(f, sym_param(w->r, f, special_name(w->r, "caller")));
	if (m->uses_kwargs)
		m->kwargs = var_of(f, sym_param(w->r, f, special_name(w->r, "kwargs")));
	if (m->uses_varargs)
		m->varargs = var_of(f, sym_param(w->r, f, special_name(w->r, "varargs")));
}

static void walk_macro(struct walk *w, struct jnode *n)
{
	struct jnode_macro *m = n->u.macro;
	struct frame f;

	m->func = func_new(w->r, w->f->func);
	frame_begin(&f, w->f, m->func, &m->scope);
	f.in_loop = false;
	collect(w->r, &f, &m->args);
	collect(w->r, &f, &m->defaults);
	macro_specials(w, &f, n);
	collect(w->r, &f, &m->body);
	frame_enter(w->r, &f);
	for (size_t i = 0; i < m->args.n; i++)
		walk_expr_in(w, &f, m->args.v[i]);
	for (size_t i = 0; i < m->defaults.n; i++)
		walk_expr_in(w, &f, m->defaults.v[i]);
	walk_in(w, &f, &m->body);
	frame_leave(&f);
	if (m->call)
		walk_expr(w, m->call);
	if (m->target)
		walk_expr(w, m->target);
}

/* Names that the frames around a scoped block have stored, innermost first. */
static void block_surroundings(struct walk *w, struct jnode_block *b)
{
	struct jscope *s = b->around = jinja_zalloc(w->r->j, 1, sizeof *s);

	for (const struct frame *f = w->f; f; f = f->parent) {
		for (const struct jbinding *v = f->first; v; v = v->next) {
			size_t cap = s->cap_seen;

			jinja_step(w->r->j, 1);
			if (!v->stored || v->name->bound != v)
				continue;
			s->cap_seen =
				jinja_grow(w->r->j, &s->seen, cap, s->n_seen + 1, sizeof(struct jname *));
			if (s->cap_seen != cap)
				s->seen_at = jinja_realloc(w->r->j, s->seen_at, cap * sizeof *s->seen_at,
					s->cap_seen * sizeof *s->seen_at);
			s->seen[s->n_seen] = v->name;
			s->seen_at[s->n_seen++] = var_of(w->f, v);
		}
	}
}

static void walk_loop_control(struct walk *w, struct jnode *n)
{
	if (w->f->in_loop)
		return;
	w->r->j->line = n->line;
	jinja_fail(w->r->j, JFAIL_SYNTAX, "'%s' outside a loop", n->kind == JN_BREAK ? "break" : "continue");
}

static void walk_statement(struct walk *w, struct jnode *n)
{
	switch (n->kind) {
	case JN_FOR:
		walk_for(w, n->u.loop);
		break;
	case JN_IF:
		walk_if(w, n->u.branch);
		break;
	case JN_WITH:
		walk_with(w, n->u.with);
		break;
	case JN_AUTOESCAPE:
		walk_autoescape(w, n);
		break;
	case JN_BLOCK:
		if (n->u.block->scoped)
			block_surroundings(w, n->u.block);
		break;
	case JN_EXTENDS:
		if (!w->f->toplevel) {
			w->r->j->line = n->line;
			jinja_fail(w->r->j, JFAIL_SYNTAX, "'extends' inside another block");
		}
		walk_expr(w, n->u.operand);
		break;
	case JN_INCLUDE:
		walk_expr(w, n->u.include.of);
		break;
	case JN_IMPORT:
	case JN_FROM:
		walk_expr(w, n->u.import->of);
		break;
	case JN_MACRO:
	case JN_CALLBLOCK:
	case JN_GENERATION:
		walk_macro(w, n);
		break;
	case JN_FILTERBLOCK:
		walk_filterblock(w, n->u.filterblock);
		break;
	case JN_SET:
		walk_expr(w, n->u.set.value);
		walk_expr(w, n->u.set.target);
		break;
	case JN_SETBLOCK:
		walk_setblock(w, n->u.setblock);
		break;
	case JN_BREAK:
	case JN_CONTINUE:
		walk_loop_control(w, n);
		break;
	default:
		n->escape = w->escape;
		each_child_expr(n, walk_expr, w);
		break;
	}
}

static void walk_body(struct walk *w, const struct jnodes *body)
{
	jinja_enter(w->r->j);
	for (size_t i = 0; i < body->n; i++) {
		jinja_step(w->r->j, 1);
		walk_statement(w, body->v[i]);
	}
	jinja_leave(w->r->j);
}

static void resolve_block(struct resolver *r, struct jnode_block *b)
{
	static const char *const special[] = { "self", "super" };
	unsigned found = undeclared_in(r, &b->body, special, 2).found;
	struct frame f;
	struct walk w = { .r = r, .f = &f };

	b->func = func_new(r, NULL);
	frame_begin(&f, NULL, b->func, &b->scope);
	b->uses_self = found & 1;
	b->uses_super = found & 2;
	if (b->uses_self)
		b->self = var_of(&f, sym_param(r, &f, special_name(r, "self")));
	if (b->uses_super)
		b->super = var_of(&f, sym_param(r, &f, special_name(r, "super")));
	collect(r, &f, &b->body);
	frame_enter(r, &f);
	walk_body(&w, &b->body);
	frame_leave(&f);
}

void jscope_resolve(struct jinja *j, struct jinja_template *t)
{
	static const char *const special[] = { "self" };
	struct resolver r = { .j = j, .t = t };
	struct frame f;
	struct walk w = { .r = &r, .f = &f };

	t->func = func_new(&r, NULL);
	frame_begin(&f, NULL, t->func, &t->scope);
	f.toplevel = true;
	t->uses_self = undeclared_in(&r, &t->body, special, 1).found;
	if (t->uses_self)
		t->self = var_of(&f, sym_param(&r, &f, special_name(&r, "self")));
	collect(&r, &f, &t->body);
	frame_enter(&r, &f);
	walk_body(&w, &t->body);
	frame_leave(&f);
	for (struct jnode_block *b = t->blocks; b; b = b->next)
		resolve_block(&r, b);
}
