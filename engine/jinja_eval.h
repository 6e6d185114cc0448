/* SPDX-License-Identifier: Apache-2.0
 * Running a parsed template: contexts, activations, expressions (jinja_eval.c) and statements (jinja_exec.c).
 */
#ifndef ENGINE_JINJA_EVAL_H
#define ENGINE_JINJA_EVAL_H
#include "engine/jinja_loop.h"

struct jcontext {		/* where names are looked up that no scope holds */
	struct jdict *vars;	/* set at the top of the template or block */
	struct jcontext *outer; /* NULL: then come inputs and built-in globals */
};

struct jactivation { /* variables of one call of a function (struct jfunc) */
	struct jactivation *outer;
	struct jcontext *context;
	struct jval slots[];
};

struct jmacro {
	const struct jnode_macro *node;
	struct jactivation *outer;
	bool autoescape;
};

struct jblockref {
	const struct jnode_block *block;
	struct jcontext *context;
};

struct jinja_run {
	const struct jinja_template *t;
	struct jdict *inputs;
	struct jtext *out; /* where output goes now */
	bool autoescape;
	int64_t now_s;
};

static inline bool jnode_escapes(const struct jinja *j, const struct jnode *n)
{
	return n->escape == JESCAPE_ON || (n->escape == JESCAPE_ASK && j->run->autoescape);
}

enum jflow { JFLOW_NEXT, JFLOW_BREAK, JFLOW_CONTINUE };

struct jval jeval(struct jinja *j, struct jactivation *a, const struct jnode *n);
enum jflow jexec(struct jinja *j, struct jactivation *a, const struct jnodes *body);
/* Runs body with output going to a text of its own. */
struct jstr *jexec_capture(struct jinja *j, struct jactivation *a, const struct jnodes *body);
struct jactivation *jactivation_new(
	struct jinja *j, const struct jfunc *f, struct jactivation *outer, struct jcontext *c);
void jscope_enter(struct jinja *j, struct jactivation *a, const struct jscope *s);
void jexec_assign(struct jinja *j, struct jactivation *a, const struct jnode *target, struct jval v);
void jexec_args(struct jinja *j, struct jactivation *a, const struct jargs *args, struct jcall *call);
struct jval jexec_filter(
	struct jinja *j, struct jactivation *a, const struct jnode *n, struct jval text); /* of a block */

struct jval jmacro_call(struct jinja *j, const struct jmacro *m, struct jcall *call);
bool jmacro_attribute(struct jinja *j, const struct jmacro *m, const struct jstr *name, struct jval *out);
struct jval jblock_call(struct jinja *j, const struct jblockref *b);
struct jval jloop_call(struct jinja *j, struct jloop *l, struct jval iterable); /* recursion */
struct jval jcontext_get(
	struct jinja *j, struct jcontext *c, struct jstr *name); /* JV_MISSING if nobody knows it */
const struct jnode_block *jblock_find(struct jinja *j, const struct jstr *name);

/* Renders into out. */
void jinja_render(struct jinja *j, const struct jinja_template *t, struct jdict *inputs, int64_t now_s,
	struct jtext *out);
#endif
