/* SPDX-License-Identifier: Apache-2.0
 * A parsed template: tokens, syntax tree, and where each variable lives. Built by jinja_lexer.c, jinja_parser.c,
 * jinja_expr.c and jinja_scope.c in one arena; immutable afterwards, so that threads may share it.
 */
#ifndef ENGINE_JINJA_AST_H
#define ENGINE_JINJA_AST_H
#include "engine/jinja_value.h"

/* ---- tokens ---- */

enum jtoken_kind {
	JT_EOF,
	JT_DATA,
	JT_BLOCK_BEGIN,
	JT_BLOCK_END,
	JT_VAR_BEGIN,
	JT_VAR_END,
	JT_NAME,
	JT_STRING,
	JT_INTEGER,
	JT_FLOAT,
	JT_ADD,
	JT_SUB,
	JT_DIV,
	JT_FLOORDIV,
	JT_MUL,
	JT_MOD,
	JT_POW,
	JT_TILDE,
	JT_LBRACKET,
	JT_RBRACKET,
	JT_LPAREN,
	JT_RPAREN,
	JT_LBRACE,
	JT_RBRACE,
	JT_EQ,
	JT_NE,
	JT_GT,
	JT_GE,
	JT_LT,
	JT_LE,
	JT_ASSIGN,
	JT_DOT,
	JT_COLON,
	JT_PIPE,
	JT_COMMA,
	JT_SEMICOLON
};

struct jtoken {
	enum jtoken_kind kind;
	uint32_t line;
	struct jval value; /* DATA, NAME, STRING: str; INTEGER; FLOAT */
};

struct jtokens {
	struct jtoken *v; /* [n], the last is JT_EOF */
	size_t n, cap;
};
void jinja_lex(struct jinja *j, const char *src, size_t len, struct jtokens *out);
const char *jtoken_describe(const struct jtoken *t, char *out, size_t room); /* for messages */

/* ---- tree ---- */

struct jname { /* interned: same text, same pointer */
	struct jstr *text;
	uint64_t hash;
	struct jname *next;
	struct jbinding *bound; /* innermost binding while scopes are resolved */
};

struct jvar { /* a slot of the activation `hops` functions further out */
	uint32_t hops, slot;
};

enum jnode_kind {
	/* expressions */
	JN_CONST,
	JN_NAME,
	JN_NSREF,
	JN_TUPLE,
	JN_LIST,
	JN_DICT,
	JN_COND,
	JN_OR,
	JN_AND,
	JN_NOT,
	JN_COMPARE,
	JN_CONCAT,
	JN_BINARY,
	JN_NEG,
	JN_POS,
	JN_GETATTR,
	JN_GETITEM,
	JN_SLICE,
	JN_CALL,
	JN_FILTER,
	JN_TEST,
	/* statements */
	JN_OUTPUT,
	JN_FOR,
	JN_IF,
	JN_WITH,
	JN_AUTOESCAPE,
	JN_BLOCK,
	JN_EXTENDS,
	JN_INCLUDE,
	JN_IMPORT,
	JN_FROM,
	JN_MACRO,
	JN_CALLBLOCK,
	JN_FILTERBLOCK,
	JN_SET,
	JN_SETBLOCK,
	JN_BREAK,
	JN_CONTINUE,
	JN_GENERATION
};

struct jnodes {
	struct jnode **v;
	size_t n, cap;
};

struct jargs { /* of a call, filter or test */
	struct jnodes pos;
	struct jname **kw_names; /* [kw.n] */
	struct jnodes kw;
	struct jnode *dyn_args, *dyn_kwargs; /* *x, **x */
};

enum jcompare { JCMP_EQ, JCMP_NE, JCMP_LT, JCMP_LE, JCMP_GT, JCMP_GE, JCMP_IN, JCMP_NOT_IN };

/* Does output here escape HTML? Fixed by the autoescape block around it, not by who calls the macro it stands in. */
enum jescape { JESCAPE_OFF, JESCAPE_ON, JESCAPE_ASK /* as the render is set when it gets here */ };

struct jnode {
	enum jnode_kind kind;
	uint32_t line;
	enum jescape escape; /* OUTPUT, CONCAT */
	union {
		struct jval value; /* CONST */
		struct {
			struct jname *name, *attr; /* attr: NSREF */
			struct jvar var;
			bool store, param, exported; /* exported: a store that blocks see too */
		} name;				     /* NAME, NSREF */
		struct jnodes items;		     /* TUPLE, LIST, CONCAT, OUTPUT; DICT: key, value, ... */
		struct {
			struct jnode *test, *yes, *no;
		} cond; /* COND; `no` may be NULL */
		struct {
			struct jnode *left, *right;
			enum jop op;
		} binary;	       /* OR, AND, BINARY */
		struct jnode *operand; /* NOT, NEG, POS, EXTENDS */
		struct {
			struct jnode *first;
			struct jnodes rest;
			uint8_t *ops;
		} compare; /* ops[rest.n]: enum jcompare */
		struct {
			struct jnode *of;
			struct jname *name;
		} attr; /* GETATTR */
		struct {
			struct jnode *of, *index;
		} item; /* GETITEM */
		struct {
			struct jnode *start, *stop, *step;
		} slice; /* SLICE; each may be NULL */
		struct {
			struct jnode *
				of; /* what is called, filtered or tested; NULL: the text of a filter block */
			struct jargs *args;
			struct jname *name;	    /* of the filter or test */
			const struct jbuiltin *def; /* NULL: unknown, an error only when reached */
		} call;				    /* CALL, FILTER, TEST */
		struct jnode_for *loop;
		struct jnode_if *branch;
		struct jnode_with *with;
		struct {
			struct jnode *value;
			struct jscope *scope;
			struct jnodes body;
		} escape; /* AUTOESCAPE */
		struct jnode_block *block;
		struct {
			struct jnode *of;
			bool ignore_missing;
		} include;
		struct jnode_import *import;	       /* IMPORT, FROM */
		struct jnode_macro *macro;	       /* MACRO, CALLBLOCK, GENERATION */
		struct jnode_filterblock *filterblock; /* FILTERBLOCK */
		struct {
			struct jnode *target, *value;
		} set;				 /* SET */
		struct jnode_setblock *setblock; /* SETBLOCK */
	} u;
};

/* How variables of a scope begin: done each time it is entered. */
enum jload { JLOAD_PARAM, JLOAD_RESOLVE, JLOAD_ALIAS, JLOAD_MISSING };

struct jscope_load {
	enum jload how;
	uint32_t slot;
	struct jname *name; /* RESOLVE: looked up in the context */
	struct jvar from;   /* ALIAS: copied */
};

struct jscope {
	struct jscope_load *loads;
	size_t n_loads, cap_loads;
	/* names stored in this scope and those around it: what a scoped block sees */
	struct jname **seen;  /* [n_seen] */
	struct jvar *seen_at; /* [n_seen] */
	size_t n_seen, cap_seen;
};

struct jfunc { /* code with an activation of its own: the template, a block, macro, call block, recursive loop */
	struct jfunc *outer; /* whose activation is linked; NULL: none */
	uint32_t n_slots;
};

struct jnode_for {
	struct jnode *target, *test_target, *iter, *test;
	struct jnodes body, otherwise;
	bool recursive, has_loop;
	struct jvar loop;   /* the `loop` variable when has_loop */
	struct jfunc *func; /* recursive: its own */
	struct jscope scope, test_scope, else_scope;
};

struct jnode_if {	       /* if, then its elifs in order */
	struct jnode **tests;  /* [n] */
	struct jnodes *bodies; /* [n] */
	size_t n, cap;
	struct jnodes otherwise;
};

struct jnode_with {
	struct jnodes targets, values, body;
	struct jscope scope;
};

struct jnode_block {
	struct jname *name;
	bool scoped, required;
	struct jscope *around; /* scoped: what it sees of the place where it stands */
	struct jnodes body;
	struct jfunc *func;
	struct jscope scope;
	bool uses_self, uses_super;
	struct jvar self, super;
	struct jnode_block *next;
};

struct jnode_import {
	struct jnode *of;
	struct jname **names; /* stored */
	size_t n, cap;
};

struct jnode_macro { /* macro; call block: `call` is what is called with it as caller; generation: neither */
	struct jname *name;		    /* NULL for call blocks */
	struct jnode *target;		    /* macro: the name stored */
	struct jnodes args, defaults, body; /* defaults belong to the last arguments */
	struct jnode *call;
	struct jfunc *func;
	struct jscope scope;
	bool uses_caller, uses_kwargs, uses_varargs, explicit_caller;
	struct jvar caller, kwargs, varargs;
};

struct jnode_filterblock {
	struct jnode *filter; /* chain whose innermost `of` is NULL */
	struct jnodes body;
	struct jscope scope;
};

struct jnode_setblock {
	struct jnode *target, *filter; /* filter may be NULL */
	struct jnodes body;
	struct jscope scope;
};

struct jinja_template {
	struct jnodes body;
	struct jfunc *func;
	struct jscope scope;
	bool uses_self;
	struct jvar self;
	struct jnode_block *blocks;
	struct jname **names; /* [n_names] hash table of interned names */
	size_t n_names, n_interned;
};

/* Fails with JFAIL_SYNTAX (j->line set) or a limit. */
struct jinja_template *jinja_parse(struct jinja *j, const char *src, size_t len);
struct jname *jname_intern(struct jinja *j, struct jinja_template *t, struct jstr *text);
void jnodes_push(struct jinja *j, struct jnodes *l, struct jnode *n);
#endif
