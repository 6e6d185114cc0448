/* SPDX-License-Identifier: Apache-2.0
 * Calls and their arguments (jinja_call.h).
 */
#include "engine/jinja_eval.h"
#include <string.h>

void jcall_push(struct jinja *j, struct jcall *c, struct jval v)
{
	c->cap = jinja_grow(j, &c->args, c->cap, c->n + 1, sizeof *c->args);
	c->args[c->n++] = v;
}

void jcall_push_kw(struct jinja *j, struct jcall *c, struct jstr *name, struct jval v)
{
	size_t cap = c->cap_kw;

	jinja_step(j, c->n_kw / 4);
	for (size_t i = 0; i < c->n_kw; i++)
		if (jstr_eq(c->kw_names[i], name))
			jinja_fail(j, JFAIL_TYPE, "argument '%s' is given twice", JSTR_SHOW(name));
	c->cap_kw = jinja_grow(j, &c->kw, cap, c->n_kw + 1, sizeof *c->kw);
	if (c->cap_kw != cap)
		c->kw_names = jinja_realloc(
			j, c->kw_names, cap * sizeof(struct jstr *), c->cap_kw * sizeof(struct jstr *));
	c->kw_names[c->n_kw] = name;
	c->kw[c->n_kw++] = v;
}

struct jval *jcall_kw(const struct jcall *c, const char *name)
{
	for (size_t i = 0; i < c->n_kw; i++)
		if (jstr_is(c->kw_names[i], name))
			return &c->kw[i];
	return NULL;
}

/* Index of the parameter called `name` in "a,b,c"; n if there is none. */
static size_t param_find(const char *params, const struct jstr *name)
{
	size_t i = 0;

	while (*params) {
		size_t len = strcspn(params, ",");

		if (len == name->len && !memcmp(params, name->p, len))
			return i;
		params += len + (params[len] == ',');
		i++;
	}
	return i;
}

static size_t param_count(const char *params)
{
	size_t n = *params != 0;

	for (; *params; params++)
		n += *params == ',';
	return n;
}

struct jval jbuiltin_call(
	struct jinja *j, const struct jbuiltin *def, struct jval self, const struct jcall *call)
{
	struct jval argv[JCALL_MAX_PARAMS], r;
	const char *params = def->params;
	size_t n, at;

	jinja_enter(j);
	memset(argv, 0, sizeof argv);
	if (params) {
		if (*params == '/') {
			params++;
			if (call->n_kw)
				jinja_fail(j, JFAIL_TYPE, "%s: takes no named arguments", def->name);
		}
		n = param_count(params);
		if (call->n > n)
			jinja_fail(j, JFAIL_TYPE, "%s: takes no more than %zu arguments", def->name, n);
		for (size_t i = 0; i < call->n; i++)
			argv[i] = call->args[i];
		for (size_t i = 0; i < call->n_kw; i++) {
			at = param_find(params, call->kw_names[i]);
			if (at >= n || argv[at].kind != JV_MISSING)
				jinja_fail(j, JFAIL_TYPE, "%s: argument '%s' is unknown or given twice",
					def->name, JSTR_SHOW(call->kw_names[i]));
			argv[at] = call->kw[i];
		}
		for (size_t i = 0; i < def->required; i++)
			if (argv[i].kind == JV_MISSING)
				jinja_fail(j, JFAIL_TYPE, "%s: an argument is missing", def->name);
	}
	r = def->fn(j, self, argv, call);
	jinja_leave(j);
	return r;
}

bool jval_callable(struct jval v)
{
	return v.kind == JV_FUNC || v.kind == JV_METHOD || v.kind == JV_MACRO || v.kind == JV_LOOP ||
		v.kind == JV_JOINER || v.kind == JV_BLOCK || v.kind == JV_UNDEFINED;
}

bool jmethod_eq(struct jinja *j, const struct jmethod *a, const struct jmethod *b)
{
	(void)j;
	return a->def == b->def && jval_same(a->self, b->self);
}

static void need_args(struct jinja *j, const struct jcall *call, size_t n, const char *what)
{
	if (call->n != n || call->n_kw)
		jinja_fail(j, JFAIL_TYPE, "%s: takes %zu argument%s", what, n, n == 1 ? "" : "s");
}

struct jval jval_call(struct jinja *j, struct jval callee, struct jcall *call)
{
	struct jval r;

	jinja_enter(j);
	switch (callee.kind) {
	case JV_FUNC:
		r = jbuiltin_call(j, callee.u.func, jval_missing(), call);
		break;
	case JV_METHOD:
		r = jbuiltin_call(j, callee.u.method->def, callee.u.method->self, call);
		break;
	case JV_MACRO:
		r = jmacro_call(j, callee.u.macro, call);
		break;
	case JV_LOOP:
		need_args(j, call, 1, "loop");
		r = jloop_call(j, callee.u.loop, call->args[0]);
		break;
	case JV_JOINER:
		need_args(j, call, 0, "joiner");
		r = callee.u.cycler->used ? jval_str(callee.u.cycler->sep) : jval_str(jstr_lit(j, "", true));
		callee.u.cycler->used = true;
		break;
	case JV_BLOCK:
		need_args(j, call, 0, "block");
		r = jblock_call(j, callee.u.blockref);
		break;
	case JV_UNDEFINED:
		jval_undef_fail(j, callee);
	default:
		jinja_fail(j, JFAIL_TYPE, "'%s' cannot be called", jval_type_name(callee));
	}
	jinja_leave(j);
	return r;
}

const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, size_t n, const struct jstr *name)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2, len = strlen(table[mid].name);
		int c = memcmp(table[mid].name, name->p, len < name->len ? len : name->len);

		if (!c)
			c = (len > name->len) - (len < name->len);
		if (!c)
			return &table[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}
