/* SPDX-License-Identifier: Apache-2.0
 * Statements of templates: text, {{ }} and {% %} blocks into a tree (jinja_ast.h). Tags are Jinja's own, loop
 * controls and generation blocks.
 */
#include "engine/jinja_parser.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void jparser_fail(struct jparser *p, uint32_t line, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	p->j->line = line;
	jinja_fail(p->j, JFAIL_SYNTAX, "%s", text);
}

void jparser_enter(struct jparser *p)
{
	p->j->line = jparser_peek(p, 0)->line;
	for (int i = 0; i < JPARSER_LEVEL; i++)
		jinja_enter(p->j);
}

void jparser_leave(struct jparser *p) { p->j->depth -= JPARSER_LEVEL; }

struct jtoken *jparser_peek(struct jparser *p, size_t ahead)
{
	return &p->toks.v[p->at + ahead < p->toks.n ? p->at + ahead : p->toks.n - 1];
}

bool jparser_is(struct jparser *p, enum jtoken_kind kind) { return jparser_peek(p, 0)->kind == kind; }

bool jparser_is_word(struct jparser *p, size_t ahead, const char *word)
{
	struct jtoken *t = jparser_peek(p, ahead);

	return t->kind == JT_NAME && jstr_is(t->value.u.s, word);
}

struct jtoken *jparser_next(struct jparser *p)
{
	struct jtoken *t = jparser_peek(p, 0);

	jinja_step(p->j, 1);
	if (p->at + 1 < p->toks.n)
		p->at++;
	return t;
}

bool jparser_skip(struct jparser *p, enum jtoken_kind kind)
{
	if (!jparser_is(p, kind))
		return false;
	(void)jparser_next(p);
	return true;
}

bool jparser_skip_word(struct jparser *p, const char *word)
{
	if (!jparser_is_word(p, 0, word))
		return false;
	(void)jparser_next(p);
	return true;
}

struct jtoken *jparser_expect(struct jparser *p, enum jtoken_kind kind, const char *what)
{
	struct jtoken *t = jparser_peek(p, 0);
	char got[64];

	if (t->kind != kind)
		jparser_fail(p, t->line, "%s is needed, not %s", what, jtoken_describe(t, got, sizeof got));
	return jparser_next(p);
}

static void expect_word(struct jparser *p, const char *word)
{
	if (!jparser_skip_word(p, word)) {
		struct jtoken *t = jparser_peek(p, 0);
		char got[64];

		jparser_fail(p, t->line, "'%s' is needed, not %s", word, jtoken_describe(t, got, sizeof got));
	}
}

struct jname *jparser_name(struct jparser *p)
{
	return jname_intern(p->j, p->t, jparser_expect(p, JT_NAME, "a name")->value.u.s);
}

struct jnode *jparser_node(struct jparser *p, enum jnode_kind kind, uint32_t line)
{
	struct jnode *n = jinja_zalloc(p->j, 1, sizeof *n);

	n->kind = kind;
	n->line = line;
	return n;
}

void jnodes_push(struct jinja *j, struct jnodes *l, struct jnode *n)
{
	l->cap = jinja_grow(j, &l->v, l->cap, l->n + 1, sizeof(struct jnode *));
	l->v[l->n++] = n;
}

/* ---- interned names ---- */

static void names_rehash(struct jinja *j, struct jinja_template *t, size_t n)
{
	struct jname **table = jinja_zalloc(j, n, sizeof(struct jname *));

	for (size_t i = 0; i < t->n_names; i++) {
		for (struct jname *e = t->names[i], *next; e; e = next) {
			next = e->next;
			e->next = table[e->hash & (n - 1)];
			table[e->hash & (n - 1)] = e;
		}
	}
	t->names = table;
	t->n_names = n;
}

struct jname *jname_intern(struct jinja *j, struct jinja_template *t, struct jstr *text)
{
	uint64_t hash = jstr_hash(text);
	struct jname *e;

	if (t->n_interned >= t->n_names)
		names_rehash(j, t, t->n_names ? t->n_names * 2 : 64);
	for (e = t->names[hash & (t->n_names - 1)]; e; e = e->next) {
		jinja_step(j, 1);
		if (e->hash == hash && jstr_eq(e->text, text))
			return e;
	}
	e = jinja_zalloc(j, 1, sizeof *e);
	e->text = text;
	e->hash = hash;
	e->next = t->names[hash & (t->n_names - 1)];
	t->names[hash & (t->n_names - 1)] = e;
	t->n_interned++;
	return e;
}

/* ---- bodies ---- */

static void parse_body(struct jparser *p, struct jnodes *body, const char *const *ends);

/* Closes the opening tag and parses up to one of the words in `ends`, which is left as the current token. */
static void parse_until(struct jparser *p, struct jnodes *body, const char *const *ends)
{
	uint32_t line = jparser_peek(p, 0)->line;

	(void)jparser_skip(p, JT_COLON);
	(void)jparser_expect(p, JT_BLOCK_END, "'%}'");
	parse_body(p, body, ends);
	if (jparser_is(p, JT_EOF))
		jparser_fail(p, line, "the template ends inside a block: {%% %s %%} is missing", ends[0]);
}

static void parse_to_end(struct jparser *p, struct jnodes *body, const char *end)
{
	const char *const ends[] = { end, NULL };

	parse_until(p, body, ends);
	(void)jparser_next(p);
}

static struct jnode *clone_target(struct jparser *p, const struct jnode *n)
{
	struct jnode *c = jparser_node(p, n->kind, n->line);

	*c = *n;
	if (n->kind == JN_TUPLE) {
		c->u.items = (struct jnodes){ 0 };
		for (size_t i = 0; i < n->u.items.n; i++)
			jnodes_push(p->j, &c->u.items, clone_target(p, n->u.items.v[i]));
	}
	return c;
}

static struct jnode *parse_for(struct jparser *p)
{
	static const char *const ends[] = { "endfor", "else", NULL };
	struct jnode *n = jparser_node(p, JN_FOR, jparser_next(p)->line);
	struct jnode_for *f = n->u.loop = jinja_zalloc(p->j, 1, sizeof *f);

	p->loops++;
	f->target = jexpr_target(p, 0, "in");
	expect_word(p, "in");
	f->iter = jexpr_tuple(p, JTUPLE_NO_COND, "recursive");
	if (jparser_skip_word(p, "if")) {
		f->test = jexpr_parse(p, true);
		f->test_target = clone_target(p, f->target);
	}
	f->recursive = jparser_skip_word(p, "recursive");
	parse_until(p, &f->body, ends);
	if (jparser_skip_word(p, "else"))
		parse_to_end(p, &f->otherwise, "endfor");
	else
		(void)jparser_next(p);
	p->loops--;
	return n;
}

static struct jnode *parse_if(struct jparser *p)
{
	static const char *const ends[] = { "endif", "elif", "else", NULL };
	struct jnode *n = jparser_node(p, JN_IF, jparser_next(p)->line);
	struct jnode_if *f = n->u.branch = jinja_zalloc(p->j, 1, sizeof *f);

	do {
		size_t cap = f->cap;

		f->cap = jinja_grow(p->j, &f->tests, cap, f->n + 1, sizeof(struct jnode *));
		if (f->cap != cap)
			f->bodies = jinja_realloc(
				p->j, f->bodies, cap * sizeof *f->bodies, f->cap * sizeof *f->bodies);
		f->bodies[f->n] = (struct jnodes){ 0 };
		f->tests[f->n] = jexpr_tuple(p, JTUPLE_NO_COND, NULL);
		parse_until(p, &f->bodies[f->n], ends);
		f->n++;
	} while (jparser_skip_word(p, "elif"));
	if (jparser_skip_word(p, "else"))
		parse_to_end(p, &f->otherwise, "endif");
	else
		(void)jparser_next(p);
	return n;
}

static struct jnode *parse_with(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_WITH, jparser_next(p)->line), *target;
	struct jnode_with *w = n->u.with = jinja_zalloc(p->j, 1, sizeof *w);

	while (!jparser_is(p, JT_BLOCK_END)) {
		if (w->targets.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		target = jexpr_target(p, 0, NULL);
		if (target->kind == JN_NAME)
			target->u.name.param = true;
		jnodes_push(p->j, &w->targets, target);
		(void)jparser_expect(p, JT_ASSIGN, "'='");
		jnodes_push(p->j, &w->values, jexpr_parse(p, true));
	}
	parse_to_end(p, &w->body, "endwith");
	return n;
}

static struct jnode *parse_autoescape(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_AUTOESCAPE, jparser_next(p)->line);

	n->u.escape.value = jexpr_parse(p, true);
	n->u.escape.scope = jinja_zalloc(p->j, 1, sizeof(struct jscope));
	parse_to_end(p, &n->u.escape.body, "endautoescape");
	return n;
}

static bool only_space(const struct jnodes *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct jnode *n = body->v[i];

		if (n->kind != JN_OUTPUT)
			return false;
		for (size_t k = 0; k < n->u.items.n; k++) {
			const struct jnode *c = n->u.items.v[k];

			if (c->kind != JN_CONST || c->u.value.kind != JV_STR)
				return false;
			for (size_t b = 0; b < c->u.value.u.s->len; b++)
				if (!strchr(" \t\n\r\f\v", c->u.value.u.s->p[b]))
					return false;
		}
	}
	return true;
}

static struct jnode *parse_block(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_BLOCK, jparser_next(p)->line);
	struct jnode_block *b = n->u.block = jinja_zalloc(p->j, 1, sizeof *b);
	const char *const ends[] = { "endblock", NULL };

	b->name = jparser_name(p);
	b->scoped = jparser_skip_word(p, "scoped");
	b->required = jparser_skip_word(p, "required");
	parse_until(p, &b->body, ends);
	(void)jparser_next(p);
	if (b->required && !only_space(&b->body))
		jparser_fail(p, n->line, "a required block may only hold white space");
	if (jparser_is(p, JT_NAME) && jstr_eq(jparser_peek(p, 0)->value.u.s, b->name->text))
		(void)jparser_next(p);
	for (struct jnode_block *o = p->t->blocks; o; o = o->next) {
		jinja_step(p->j, 1);
		if (o->name == b->name)
			jparser_fail(p, n->line, "block '%s' is defined twice", JSTR_SHOW(b->name->text));
	}
	b->next = p->t->blocks;
	p->t->blocks = b;
	return n;
}

/* ---- what would need other templates: parsed, and refused when reached ---- */

static bool skip_context(struct jparser *p)
{
	if ((!jparser_is_word(p, 0, "with") && !jparser_is_word(p, 0, "without")) ||
		!jparser_is_word(p, 1, "context"))
		return false;
	p->at += 2;
	return true;
}

static struct jnode *parse_extends(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_EXTENDS, jparser_next(p)->line);

	n->u.operand = jexpr_parse(p, true);
	return n;
}

static struct jnode *parse_include(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_INCLUDE, jparser_next(p)->line);

	n->u.include.of = jexpr_parse(p, true);
	if (jparser_is_word(p, 0, "ignore") && jparser_is_word(p, 1, "missing")) {
		n->u.include.ignore_missing = true;
		p->at += 2;
	}
	(void)skip_context(p);
	return n;
}

static void import_push(struct jparser *p, struct jnode_import *i, struct jname *name)
{
	i->cap = jinja_grow(p->j, &i->names, i->cap, i->n + 1, sizeof(struct jname *));
	i->names[i->n++] = name;
}

static struct jnode *parse_import(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_IMPORT, jparser_next(p)->line);

	n->u.import = jinja_zalloc(p->j, 1, sizeof *n->u.import);
	n->u.import->of = jexpr_parse(p, true);
	expect_word(p, "as");
	import_push(p, n->u.import, jexpr_target_name(p)->u.name.name);
	(void)skip_context(p);
	return n;
}

static struct jnode *parse_from(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_FROM, jparser_next(p)->line);
	struct jnode_import *i = n->u.import = jinja_zalloc(p->j, 1, sizeof *n->u.import);

	i->of = jexpr_parse(p, true);
	expect_word(p, "import");
	for (bool first = true;; first = false) {
		struct jname *name;

		if (!first)
			(void)jparser_expect(p, JT_COMMA, "','");
		if (skip_context(p))
			return n;
		name = jexpr_target_name(p)->u.name.name;
		if (name->text->p[0] == '_')
			jparser_fail(p, n->line, "names that begin with '_' cannot be imported");
		import_push(p, i, jparser_skip_word(p, "as") ? jexpr_target_name(p)->u.name.name : name);
		if (skip_context(p) || !jparser_is(p, JT_COMMA))
			return n;
	}
}

/* ---- macros, calls, assignments ---- */

static void parse_signature(struct jparser *p, struct jnode_macro *m)
{
	(void)jparser_expect(p, JT_LPAREN, "'('");
	while (!jparser_is(p, JT_RPAREN)) {
		struct jnode *arg;

		if (m->args.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		arg = jexpr_target_name(p);
		arg->u.name.param = true;
		for (size_t i = 0; i < m->args.n; i++)
			if (m->args.v[i]->u.name.name == arg->u.name.name)
				jparser_fail(p, arg->line, "parameter '%s' is named twice",
					JSTR_SHOW(arg->u.name.name->text));
		jinja_step(p->j, m->args.n / 4);
		if (jparser_skip(p, JT_ASSIGN))
			jnodes_push(p->j, &m->defaults, jexpr_parse(p, true));
		else if (m->defaults.n)
			jparser_fail(
				p, arg->line, "a parameter without a default follows one with a default");
		jnodes_push(p->j, &m->args, arg);
	}
	(void)jparser_next(p);
}

static struct jnode *macro_node(struct jparser *p, enum jnode_kind kind)
{
	struct jnode *n = jparser_node(p, kind, jparser_next(p)->line);

	n->u.macro = jinja_zalloc(p->j, 1, sizeof *n->u.macro);
	return n;
}

static struct jnode *parse_macro(struct jparser *p)
{
	struct jnode *n = macro_node(p, JN_MACRO), *target = jexpr_target_name(p);

	n->u.macro->name = target->u.name.name;
	n->u.macro->target = target;
	parse_signature(p, n->u.macro);
	parse_to_end(p, &n->u.macro->body, "endmacro");
	return n;
}

static struct jnode *parse_call_block(struct jparser *p)
{
	struct jnode *n = macro_node(p, JN_CALLBLOCK);

	if (jparser_is(p, JT_LPAREN))
		parse_signature(p, n->u.macro);
	n->u.macro->call = jexpr_parse(p, true);
	if (n->u.macro->call->kind != JN_CALL)
		jparser_fail(p, n->line, "a call block needs a call");
	parse_to_end(p, &n->u.macro->body, "endcall");
	return n;
}

static struct jnode *parse_generation(struct jparser *p)
{
	struct jnode *n = macro_node(p, JN_GENERATION);

	parse_to_end(p, &n->u.macro->body, "endgeneration");
	return n;
}

static struct jnode *parse_filter_block(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_FILTERBLOCK, jparser_next(p)->line);

	n->u.filterblock = jinja_zalloc(p->j, 1, sizeof *n->u.filterblock);
	n->u.filterblock->filter = jexpr_filters(p, NULL, true);
	parse_to_end(p, &n->u.filterblock->body, "endfilter");
	return n;
}

static struct jnode *parse_set(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_SET, jparser_next(p)->line),
		     *target = jexpr_target(p, JTUPLE_NAMESPACE, NULL);

	if (jparser_skip(p, JT_ASSIGN)) {
		n->u.set.target = target;
		n->u.set.value = jexpr_tuple(p, 0, NULL);
		return n;
	}
	n->kind = JN_SETBLOCK;
	n->u.setblock = jinja_zalloc(p->j, 1, sizeof *n->u.setblock);
	n->u.setblock->target = target;
	n->u.setblock->filter = jexpr_filters(p, NULL, false);
	parse_to_end(p, &n->u.setblock->body, "endset");
	return n;
}

static struct jnode *parse_print(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_OUTPUT, jparser_next(p)->line);

	while (!jparser_is(p, JT_BLOCK_END)) {
		if (n->u.items.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		jnodes_push(p->j, &n->u.items, jexpr_parse(p, true));
	}
	return n;
}

static struct jnode *parse_break(struct jparser *p)
{
	return jparser_node(p, JN_BREAK, jparser_next(p)->line);
}
static struct jnode *parse_continue(struct jparser *p)
{
	return jparser_node(p, JN_CONTINUE, jparser_next(p)->line);
}

static struct jnode *parse_statement(struct jparser *p)
{
	static const struct {
		const char *tag;
		struct jnode *(*parse)(struct jparser *);
	} tags[] = {
		{ "for", parse_for },
		{ "if", parse_if },
		{ "set", parse_set },
		{ "macro", parse_macro },
		{ "call", parse_call_block },
		{ "filter", parse_filter_block },
		{ "with", parse_with },
		{ "generation", parse_generation },
		{ "break", parse_break },
		{ "continue", parse_continue },
		{ "print", parse_print },
		{ "block", parse_block },
		{ "autoescape", parse_autoescape },
		{ "extends", parse_extends },
		{ "include", parse_include },
		{ "import", parse_import },
		{ "from", parse_from },
	};
	struct jtoken *t = jparser_peek(p, 0);

	if (t->kind != JT_NAME)
		jparser_fail(p, t->line, "after '{%%' the name of a tag is needed");
	for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
		if (jstr_is(t->value.u.s, tags[i].tag))
			return tags[i].parse(p);
	jparser_fail(p, t->line, "unknown or misplaced tag '%s'", JSTR_SHOW(t->value.u.s));
}

static bool at_end_word(struct jparser *p, const char *const *ends)
{
	for (; ends && *ends; ends++)
		if (jparser_is_word(p, 0, *ends))
			return true;
	return false;
}

static struct jnode *data_node(struct jparser *p)
{
	struct jtoken *t = jparser_next(p);
	struct jnode *n = jparser_node(p, JN_CONST, t->line);

	n->u.value = t->value;
	return n;
}

static void parse_body(struct jparser *p, struct jnodes *body, const char *const *ends)
{
	struct jnode *out = NULL;

	jparser_enter(p);
	while (!jparser_is(p, JT_EOF)) {
		if (jparser_skip(p, JT_BLOCK_BEGIN)) {
			out = NULL;
			if (at_end_word(p, ends))
				break;
			jnodes_push(p->j, body, parse_statement(p));
			(void)jparser_expect(p, JT_BLOCK_END, "'%}'");
			continue;
		}
		if (!out) {
			out = jparser_node(p, JN_OUTPUT, jparser_peek(p, 0)->line);
			jnodes_push(p->j, body, out);
		}
		if (jparser_skip(p, JT_VAR_BEGIN)) {
			jnodes_push(p->j, &out->u.items, jexpr_tuple(p, 0, NULL));
			(void)jparser_expect(p, JT_VAR_END, "'}}'");
		} else {
			jnodes_push(p->j, &out->u.items, data_node(p));
		}
	}
	jparser_leave(p);
}

struct jinja_template *jinja_parse(struct jinja *j, const char *src, size_t len)
{
	struct jparser p = { .j = j };

	p.t = jinja_zalloc(j, 1, sizeof *p.t);
	jinja_lex(j, src, len, &p.toks);
	parse_body(&p, &p.t->body, NULL);
	jscope_resolve(j, p.t);
	return p.t;
}
