/* SPDX-License-Identifier: Apache-2.0
 * Calling: arguments, built-in functions (filters, tests, methods, globals) and how their parameters are bound.
 */
#ifndef ENGINE_JINJA_CALL_H
#define ENGINE_JINJA_CALL_H
#include "engine/jinja_ast.h"

struct jcall {
	struct jval *args; /* [n] */
	size_t n, cap;
	struct jstr **kw_names; /* [n_kw] */
	struct jval *kw;	/* [n_kw] */
	size_t n_kw, cap_kw;
};

enum { JCALL_MAX_PARAMS = 8 };

/* `self`: what is filtered, tested, or has the method. argv: one per parameter, JV_MISSING where not given. */
typedef struct jval jbuiltin_fn(
	struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call);

struct jbuiltin {
	const char *name;
	jbuiltin_fn *fn;
	const char *params; /* "a,b,c"; a leading '/': given by position only; NULL: any, fn reads `call` */
	uint8_t required;   /* how many of them must be given */
};

struct jmethod {
	struct jval self;
	const struct jbuiltin *def;
};

void jcall_push(struct jinja *j, struct jcall *c, struct jval v);
void jcall_push_kw(struct jinja *j, struct jcall *c, struct jstr *name,
	struct jval v);						/* a type error when given twice */
struct jval *jcall_kw(const struct jcall *c, const char *name); /* NULL if not given */
struct jval jbuiltin_call(
	struct jinja *j, const struct jbuiltin *def, struct jval self, const struct jcall *call);
struct jval jval_call(struct jinja *j, struct jval callee, struct jcall *call);
bool jval_callable(struct jval v);
bool jmethod_eq(struct jinja *j, const struct jmethod *a, const struct jmethod *b);

/* Binary search by name in a table sorted by it. */
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, size_t n, const struct jstr *name);
const struct jbuiltin *jfilter_find(const struct jstr *name);
const struct jbuiltin *jtest_find(const struct jstr *name);
const struct jbuiltin *jglobal_find(const struct jstr *name);
const struct jbuiltin *jmethod_find(struct jval self, const struct jstr *name);

/* obj.name and obj[key] as the sandbox allows them; undefined when there is no such member. */
struct jval jval_getattr(struct jinja *j, struct jval obj, struct jstr *name);
struct jval jval_getitem(struct jinja *j, struct jval obj, struct jval key);
/* The attribute alone, without obj[name]: false if there is none. */
bool jval_attribute(struct jinja *j, struct jval obj, struct jstr *name, struct jval *out);
struct jval jval_slice(
	struct jinja *j, struct jval obj, struct jval start, struct jval stop, struct jval step);

/* "a.b,0" style paths of map, sort, groupby ...: one path. `fallback` replaces undefined steps unless missing. */
struct jpath {
	struct jval *part;
	size_t n;
};
struct jpath jpath_parse(struct jinja *j, struct jval attribute);
struct jval jpath_get(struct jinja *j, const struct jpath *p, struct jval item, struct jval fallback);

void jmacro_repr_put(struct jinja *j, struct jtext *t, const struct jmacro *m);
#endif
