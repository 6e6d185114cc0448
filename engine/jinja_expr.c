/* SPDX-License-Identifier: Apache-2.0
 * Expressions of templates: recursive descent, one function a level of precedence, loosest first.
 */
#include "engine/jinja_parser.h"
#include <string.h>

static struct jnode *parse_unary(struct jparser *p, bool with_filter);
static struct jnode *parse_not(struct jparser *p);

static struct jnode *binary_node(
	struct jparser *p, enum jnode_kind kind, struct jnode *left, struct jnode *right, enum jop op)
{
	struct jnode *n = jparser_node(p, kind, left->line);

	n->u.binary.left = left;
	n->u.binary.right = right;
	n->u.binary.op = op;
	return n;
}

static struct jnode *parse_and(struct jparser *p)
{
	struct jnode *left = parse_not(p);

	while (jparser_skip_word(p, "and"))
		left = binary_node(p, JN_AND, left, parse_not(p), 0);
	return left;
}

static struct jnode *parse_or(struct jparser *p)
{
	struct jnode *left = parse_and(p);

	while (jparser_skip_word(p, "or"))
		left = binary_node(p, JN_OR, left, parse_and(p), 0);
	return left;
}

static struct jnode *parse_cond(struct jparser *p)
{
	struct jnode *yes = parse_or(p), *n;

	while (jparser_skip_word(p, "if")) {
		n = jparser_node(p, JN_COND, yes->line);
		n->u.cond.yes = yes;
		n->u.cond.test = parse_or(p);
		n->u.cond.no = jparser_skip_word(p, "else") ? jexpr_parse(p, true) : NULL;
		yes = n;
	}
	return yes;
}

struct jnode *jexpr_parse(struct jparser *p, bool with_cond)
{
	struct jnode *n;

	jparser_enter(p);
	n = with_cond ? parse_cond(p) : parse_or(p);
	jparser_leave(p);
	return n;
}

static struct jnode *parse_power(struct jparser *p)
{
	struct jnode *left = parse_unary(p, true);

	while (jparser_skip(p, JT_POW))
		left = binary_node(p, JN_BINARY, left, parse_unary(p, true), JOP_POW);
	return left;
}

static struct jnode *parse_product(struct jparser *p)
{
	struct jnode *left = parse_power(p);

	for (;;) {
		enum jtoken_kind k = jparser_peek(p, 0)->kind;
		enum jop op = k == JT_MUL  ? JOP_MUL
			: k == JT_DIV	   ? JOP_DIV
			: k == JT_FLOORDIV ? JOP_FLOORDIV
					   : JOP_MOD;

		if (k != JT_MUL && k != JT_DIV && k != JT_FLOORDIV && k != JT_MOD)
			return left;
		(void)jparser_next(p);
		left = binary_node(p, JN_BINARY, left, parse_power(p), op);
	}
}

static struct jnode *parse_concat(struct jparser *p)
{
	struct jnode *first = parse_product(p), *n;

	if (!jparser_is(p, JT_TILDE))
		return first;
	n = jparser_node(p, JN_CONCAT, first->line);
	jnodes_push(p->j, &n->u.items, first);
	while (jparser_skip(p, JT_TILDE))
		jnodes_push(p->j, &n->u.items, parse_product(p));
	return n;
}

static struct jnode *parse_sum(struct jparser *p)
{
	struct jnode *left = parse_concat(p);

	while (jparser_is(p, JT_ADD) || jparser_is(p, JT_SUB)) {
		enum jop op = jparser_next(p)->kind == JT_ADD ? JOP_ADD : JOP_SUB;

		left = binary_node(p, JN_BINARY, left, parse_concat(p), op);
	}
	return left;
}

/* Eats a comparison operator; false if there is none. */
static bool compare_op(struct jparser *p, enum jcompare *op)
{
	static const struct {
		enum jtoken_kind kind;
		enum jcompare op;
	} table[] = { { JT_EQ, JCMP_EQ }, { JT_NE, JCMP_NE }, { JT_LT, JCMP_LT }, { JT_LE, JCMP_LE },
		{ JT_GT, JCMP_GT }, { JT_GE, JCMP_GE } };

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		*op = table[i].op;
		if (jparser_skip(p, table[i].kind))
			return true;
	}
	*op = JCMP_IN;
	if (jparser_skip_word(p, "in"))
		return true;
	*op = JCMP_NOT_IN;
	if (!jparser_is_word(p, 0, "not") || !jparser_is_word(p, 1, "in"))
		return false;
	p->at += 2;
	return true;
}

static struct jnode *parse_compare(struct jparser *p)
{
	struct jnode *first = parse_sum(p), *n = NULL;
	enum jcompare op;
	size_t cap = 0;

	while (compare_op(p, &op)) {
		if (!n) {
			n = jparser_node(p, JN_COMPARE, first->line);
			n->u.compare.first = first;
		}
		cap = jinja_grow(p->j, &n->u.compare.ops, cap, n->u.compare.rest.n + 1, 1);
		n->u.compare.ops[n->u.compare.rest.n] = (uint8_t)op;
		jnodes_push(p->j, &n->u.compare.rest, parse_sum(p));
	}
	return n ? n : first;
}

static struct jnode *parse_not(struct jparser *p)
{
	struct jnode *n;

	if (!jparser_is_word(p, 0, "not"))
		return parse_compare(p);
	n = jparser_node(p, JN_NOT, jparser_next(p)->line);
	jparser_enter(p);
	n->u.operand = parse_not(p);
	jparser_leave(p);
	return n;
}

/* ---- calls, filters, tests ---- */

static void kw_push(struct jparser *p, struct jargs *a)
{
	size_t cap = a->kw.cap;
	struct jname *name = jparser_name(p);

	for (size_t i = 0; i < a->kw.n; i++)
		if (a->kw_names[i] == name)
			jparser_fail(p, jparser_peek(p, 0)->line, "argument '%s' is given twice",
				JSTR_SHOW(name->text));
	jinja_step(p->j, a->kw.n / 4);
	(void)jparser_next(p);
	jnodes_push(p->j, &a->kw, jexpr_parse(p, true));
	if (a->kw.cap != cap)
		a->kw_names = jinja_realloc(
			p->j, a->kw_names, cap * sizeof(struct jname *), a->kw.cap * sizeof(struct jname *));
	a->kw_names[a->kw.n - 1] = name;
}

static struct jargs *parse_args(struct jparser *p)
{
	struct jargs *a = jinja_zalloc(p->j, 1, sizeof *a);
	uint32_t line = jparser_expect(p, JT_LPAREN, "'('")->line;

	for (bool first = true; !jparser_is(p, JT_RPAREN); first = false) {
		bool ok = true;

		if (!first) {
			(void)jparser_expect(p, JT_COMMA, "','");
			if (jparser_is(p, JT_RPAREN))
				break;
		}
		if (jparser_skip(p, JT_MUL)) {
			ok = !a->dyn_args && !a->dyn_kwargs;
			a->dyn_args = jexpr_parse(p, true);
		} else if (jparser_skip(p, JT_POW)) {
			ok = !a->dyn_kwargs;
			a->dyn_kwargs = jexpr_parse(p, true);
		} else if (jparser_is(p, JT_NAME) && jparser_peek(p, 1)->kind == JT_ASSIGN) {
			ok = !a->dyn_kwargs;
			kw_push(p, a);
		} else {
			ok = !a->dyn_args && !a->dyn_kwargs && !a->kw.n;
			jnodes_push(p->j, &a->pos, jexpr_parse(p, true));
		}
		if (!ok)
			jparser_fail(p, line, "arguments in an order that calls cannot have");
	}
	(void)jparser_expect(p, JT_RPAREN, "')'");
	return a;
}

static struct jnode *call_node(
	struct jparser *p, enum jnode_kind kind, struct jnode *of, struct jargs *args, uint32_t line)
{
	struct jnode *n = jparser_node(p, kind, line);

	n->u.call.of = of;
	n->u.call.args = args;
	return n;
}

static struct jnode *parse_call(struct jparser *p, struct jnode *of)
{
	uint32_t line = jparser_peek(p, 0)->line;

	return call_node(p, JN_CALL, of, parse_args(p), line);
}

/* A name that may have dots: filters and tests of extensions are called so; none is known here. */
static struct jname *dotted_name(struct jparser *p)
{
	struct jname *name = jparser_name(p);
	struct jtext *t = NULL;
	struct jstr *s;

	while (jparser_skip(p, JT_DOT)) {
		if (!t) {
			t = jtext_new(p->j, 32);
			jtext_put_str(p->j, t, name->text);
		}
		jtext_putc(p->j, t, '.', true);
		jtext_put_str(p->j, t, jparser_name(p)->text);
	}
	if (!t)
		return name;
	s = jtext_str(p->j, t);
	s->text = NULL;
	return jname_intern(p->j, p->t, s);
}

struct jnode *jexpr_filters(struct jparser *p, struct jnode *node, bool inline_start)
{
	while (inline_start || jparser_is(p, JT_PIPE)) {
		uint32_t line;
		struct jname *name;
		struct jargs *args;

		if (!inline_start)
			(void)jparser_next(p);
		inline_start = false;
		line = jparser_peek(p, 0)->line;
		name = dotted_name(p);
		args = jparser_is(p, JT_LPAREN) ? parse_args(p) : jinja_zalloc(p->j, 1, sizeof *args);
		node = call_node(p, JN_FILTER, node, args, line);
		node->u.call.name = name;
		node->u.call.def = jfilter_find(name->text);
	}
	return node;
}

static struct jnode *parse_primary(struct jparser *p, bool with_namespace);
static struct jnode *parse_postfix(struct jparser *p, struct jnode *node);

/* Does a test's single argument without parentheses begin here? */
static bool test_argument_here(struct jparser *p)
{
	switch (jparser_peek(p, 0)->kind) {
	case JT_NAME:
		return !jparser_is_word(p, 0, "else") && !jparser_is_word(p, 0, "or") &&
			!jparser_is_word(p, 0, "and");
	case JT_STRING:
	case JT_INTEGER:
	case JT_FLOAT:
	case JT_LBRACKET:
	case JT_LBRACE:
		return true;
	default:
		return false;
	}
}

static struct jnode *parse_test(struct jparser *p, struct jnode *of)
{
	uint32_t line = jparser_next(p)->line;
	bool negated = jparser_skip_word(p, "not");
	struct jname *name = dotted_name(p);
	struct jargs *args;
	struct jnode *n, *inverse;

	if (jparser_is(p, JT_LPAREN)) {
		args = parse_args(p);
	} else {
		args = jinja_zalloc(p->j, 1, sizeof *args);
		if (test_argument_here(p)) {
			if (jparser_is_word(p, 0, "is"))
				jparser_fail(p, line, "tests with 'is' cannot be chained");
			jnodes_push(p->j, &args->pos, parse_postfix(p, parse_primary(p, false)));
		}
	}
	n = call_node(p, JN_TEST, of, args, line);
	n->u.call.name = name;
	n->u.call.def = jtest_find(name->text);
	if (!negated)
		return n;
	inverse = jparser_node(p, JN_NOT, line);
	inverse->u.operand = n;
	return inverse;
}

/* ---- postfix ---- */

static struct jnode *parse_slice_part(struct jparser *p)
{
	if (jparser_is(p, JT_COLON) || jparser_is(p, JT_RBRACKET) || jparser_is(p, JT_COMMA))
		return NULL;
	return jexpr_parse(p, true);
}

static struct jnode *parse_index(struct jparser *p)
{
	uint32_t line = jparser_peek(p, 0)->line;
	struct jnode *first = NULL, *n;

	if (!jparser_is(p, JT_COLON)) {
		first = jexpr_parse(p, true);
		if (!jparser_is(p, JT_COLON))
			return first;
	}
	(void)jparser_next(p);
	n = jparser_node(p, JN_SLICE, line);
	n->u.slice.start = first;
	n->u.slice.stop = parse_slice_part(p);
	if (jparser_skip(p, JT_COLON))
		n->u.slice.step = parse_slice_part(p);
	return n;
}

static struct jnode *parse_brackets(struct jparser *p, struct jnode *of, uint32_t line)
{
	struct jnode *n = jparser_node(p, JN_GETITEM, line), *tuple;
	struct jnodes parts = { 0 };

	while (!jparser_is(p, JT_RBRACKET)) {
		if (parts.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		jnodes_push(p->j, &parts, parse_index(p));
	}
	(void)jparser_next(p);
	n->u.item.of = of;
	if (parts.n == 1) {
		n->u.item.index = parts.v[0];
		return n;
	}
	for (size_t i = 0; i < parts.n; i++)
		if (parts.v[i]->kind == JN_SLICE)
			jparser_fail(p, line, "slices in more than one dimension");
	tuple = jparser_node(p, JN_TUPLE, line);
	tuple->u.items = parts;
	n->u.item.index = tuple;
	return n;
}

static struct jnode *parse_subscript(struct jparser *p, struct jnode *of)
{
	struct jtoken *t = jparser_next(p), *what;
	struct jnode *n;

	if (t->kind == JT_LBRACKET)
		return parse_brackets(p, of, t->line);
	what = jparser_peek(p, 0);
	if (what->kind == JT_NAME) {
		n = jparser_node(p, JN_GETATTR, t->line);
		n->u.attr.of = of;
		n->u.attr.name = jparser_name(p);
		return n;
	}
	if (what->kind != JT_INTEGER)
		jparser_fail(p, what->line, "after '.' a name or an integer is needed");
	(void)jparser_next(p);
	n = jparser_node(p, JN_GETITEM, t->line);
	n->u.item.of = of;
	n->u.item.index = jparser_node(p, JN_CONST, what->line);
	n->u.item.index->u.value = what->value;
	return n;
}

static struct jnode *parse_postfix(struct jparser *p, struct jnode *node)
{
	for (;;) {
		if (jparser_is(p, JT_DOT) || jparser_is(p, JT_LBRACKET))
			node = parse_subscript(p, node);
		else if (jparser_is(p, JT_LPAREN))
			node = parse_call(p, node);
		else
			return node;
	}
}

static struct jnode *parse_filter_chain(struct jparser *p, struct jnode *node)
{
	for (;;) {
		if (jparser_is(p, JT_PIPE))
			node = jexpr_filters(p, node, false);
		else if (jparser_is_word(p, 0, "is"))
			node = parse_test(p, node);
		else if (jparser_is(p, JT_LPAREN))
			node = parse_call(p, node);
		else
			return node;
	}
}

static struct jnode *parse_unary(struct jparser *p, bool with_filter)
{
	struct jnode *n;

	if (jparser_is(p, JT_SUB) || jparser_is(p, JT_ADD)) {
		struct jtoken *t = jparser_next(p);

		n = jparser_node(p, t->kind == JT_SUB ? JN_NEG : JN_POS, t->line);
		jparser_enter(p);
		n->u.operand = parse_unary(p, false);
		jparser_leave(p);
	} else {
		n = parse_primary(p, false);
	}
	n = parse_postfix(p, n);
	return with_filter ? parse_filter_chain(p, n) : n;
}

/* ---- primaries ---- */

static struct jnode *const_node(struct jparser *p, struct jval v, uint32_t line)
{
	struct jnode *n = jparser_node(p, JN_CONST, line);

	if (v.kind == JV_STR)
		(void)jstr_hash(v.u.s); /* now: later it is shared between threads */
	n->u.value = v;
	return n;
}

static struct jnode *parse_word(struct jparser *p, bool with_namespace)
{
	struct jtoken *t = jparser_peek(p, 0);
	struct jname *name = jparser_name(p);
	struct jnode *n;

	if (jstr_is(name->text, "true") || jstr_is(name->text, "True"))
		return const_node(p, jval_bool(true), t->line);
	if (jstr_is(name->text, "false") || jstr_is(name->text, "False"))
		return const_node(p, jval_bool(false), t->line);
	if (jstr_is(name->text, "none") || jstr_is(name->text, "None"))
		return const_node(p, jval_none(), t->line);
	n = jparser_node(p, JN_NAME, t->line);
	n->u.name.name = name;
	if (with_namespace && jparser_skip(p, JT_DOT)) {
		n->kind = JN_NSREF;
		n->u.name.attr = jparser_name(p);
	}
	return n;
}

static struct jnode *parse_strings(struct jparser *p)
{
	struct jtoken *t = jparser_next(p);
	struct jtext *all;
	struct jstr *s;

	if (!jparser_is(p, JT_STRING))
		return const_node(p, t->value, t->line);
	all = jtext_new(p->j, 64);
	jtext_put_str(p->j, all, t->value.u.s);
	while (jparser_is(p, JT_STRING))
		jtext_put_str(p->j, all, jparser_next(p)->value.u.s);
	s = jtext_str(p->j, all);
	s->text = NULL;
	return const_node(p, jval_str(s), t->line);
}

static struct jnode *parse_list(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_LIST, jparser_next(p)->line);

	while (!jparser_is(p, JT_RBRACKET)) {
		if (n->u.items.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		if (jparser_is(p, JT_RBRACKET))
			break;
		jnodes_push(p->j, &n->u.items, jexpr_parse(p, true));
	}
	(void)jparser_next(p);
	return n;
}

static struct jnode *parse_dict(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_DICT, jparser_next(p)->line);

	while (!jparser_is(p, JT_RBRACE)) {
		if (n->u.items.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		if (jparser_is(p, JT_RBRACE))
			break;
		jnodes_push(p->j, &n->u.items, jexpr_parse(p, true));
		(void)jparser_expect(p, JT_COLON, "':'");
		jnodes_push(p->j, &n->u.items, jexpr_parse(p, true));
	}
	(void)jparser_next(p);
	return n;
}

static struct jnode *parse_primary(struct jparser *p, bool with_namespace)
{
	struct jtoken *t = jparser_peek(p, 0);
	struct jnode *n;
	char what[64];

	switch (t->kind) {
	case JT_NAME:
		return parse_word(p, with_namespace);
	case JT_STRING:
		return parse_strings(p);
	case JT_INTEGER:
	case JT_FLOAT:
		return const_node(p, jparser_next(p)->value, t->line);
	case JT_LPAREN:
		(void)jparser_next(p);
		n = jexpr_tuple(p, JTUPLE_PARENS, NULL);
		(void)jparser_expect(p, JT_RPAREN, "')'");
		return n;
	case JT_LBRACKET:
		return parse_list(p);
	case JT_LBRACE:
		return parse_dict(p);
	default:
		jparser_fail(
			p, t->line, "an expression is needed, not %s", jtoken_describe(t, what, sizeof what));
	}
}

static bool tuple_ends(struct jparser *p, const char *end_word)
{
	return jparser_is(p, JT_VAR_END) || jparser_is(p, JT_BLOCK_END) || jparser_is(p, JT_RPAREN) ||
		(end_word && jparser_is_word(p, 0, end_word));
}

struct jnode *jexpr_tuple(struct jparser *p, unsigned mode, const char *end_word)
{
	uint32_t line = jparser_peek(p, 0)->line;
	struct jnodes items = { 0 };
	bool is_tuple = false;
	struct jnode *n;
	char what[64];

	for (;;) {
		if (items.n)
			(void)jparser_expect(p, JT_COMMA, "','");
		if (tuple_ends(p, end_word))
			break;
		if (mode & JTUPLE_TARGET)
			n = parse_primary(p, mode & JTUPLE_NAMESPACE);
		else
			n = jexpr_parse(p, !(mode & JTUPLE_NO_COND));
		jnodes_push(p->j, &items, n);
		if (!jparser_is(p, JT_COMMA))
			break;
		is_tuple = true;
	}
	if (!is_tuple && items.n)
		return items.v[0];
	if (!is_tuple && !(mode & JTUPLE_PARENS))
		jparser_fail(p, line, "an expression is needed, not %s",
			jtoken_describe(jparser_peek(p, 0), what, sizeof what));
	n = jparser_node(p, JN_TUPLE, line);
	n->u.items = items;
	return n;
}

/* ---- targets of assignments ---- */

static void mark_store(struct jparser *p, struct jnode *n)
{
	jparser_enter(p);
	if (n->kind == JN_TUPLE) {
		for (size_t i = 0; i < n->u.items.n; i++)
			mark_store(p, n->u.items.v[i]);
	} else if (n->kind == JN_NAME) {
		n->u.name.store = true;
		if (p->loops && jstr_is(n->u.name.name->text, "loop"))
			jparser_fail(p, n->line, "'loop' cannot be assigned inside a for block");
	} else if (n->kind != JN_NSREF) {
		jparser_fail(p, n->line, "this cannot be assigned to");
	}
	jparser_leave(p);
}

struct jnode *jexpr_target(struct jparser *p, unsigned mode, const char *end_word)
{
	struct jnode *n = jexpr_tuple(p, JTUPLE_TARGET | mode, end_word);

	mark_store(p, n);
	return n;
}

struct jnode *jexpr_target_name(struct jparser *p)
{
	struct jnode *n = jparser_node(p, JN_NAME, jparser_peek(p, 0)->line);
	static const char *const words[] = { "true", "false", "none", "True", "False", "None" };

	n->u.name.name = jparser_name(p);
	n->u.name.store = true;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (jstr_is(n->u.name.name->text, words[i]))
			jparser_fail(p, n->line, "'%s' cannot be assigned to", words[i]);
	return n;
}
