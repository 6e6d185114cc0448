/* SPDX-License-Identifier: Apache-2.0
 * The `loop` of a for block (jinja_loop.h). What it can tell without looking ahead it does not look ahead for.
 */
#include "engine/jinja_eval.h"

struct jloop *jloop_new(struct jinja *j, struct jval iterable)
{
	struct jloop *l = jinja_zalloc(j, 1, sizeof *l);

	l->iterable = iterable;
	l->it = jiter_of(j, iterable);
	l->index0 = l->length = -1;
	return l;
}

bool jloop_next(struct jinja *j, struct jloop *l, struct jval *item)
{
	if (l->after.kind != JV_MISSING) {
		*item = l->after;
		l->after = jval_missing();
	} else if (!jiter_next(j, l->it, item)) {
		return false;
	}
	l->index0++;
	l->before = l->current;
	l->current = *item;
	return true;
}

int64_t jloop_length(struct jinja *j, struct jloop *l)
{
	struct jlist *rest;

	if (l->length >= 0)
		return l->length;
	if (jval_has_len(l->iterable)) {
		l->length = jval_len(j, l->iterable);
		return l->length;
	}
	rest = jlist_of(j, jval_iter(l->it));
	l->it = jiter_of(j, jval_list(rest));
	l->length = (int64_t)rest->n + l->index0 + 1 + (l->after.kind != JV_MISSING);
	return l->length;
}

static bool peek(struct jinja *j, struct jloop *l)
{
	return l->after.kind != JV_MISSING || jiter_next(j, l->it, &l->after);
}

static struct jval loop_cycle(struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
{
	int64_t at = self.u.loop->index0;

	(void)argv;
	if (!call->n)
		jinja_fail(j, JFAIL_TYPE, "loop.cycle: no items are given");
	return call->args[(size_t)(at < 0 ? 0 : at) % call->n];
}

static struct jval loop_changed(
	struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)
{
	struct jlist *args = jlist_new(j, call->n);
	struct jloop *l = self.u.loop;

	(void)argv;
	for (size_t i = 0; i < call->n; i++)
		args->v[args->n++] = call->args[i];
	if (l->changed && jval_eq(j, jval_list(l->changed), jval_list(args)))
		return jval_bool(false);
	l->changed = args;
	return jval_bool(true);
}

static struct jval loop_method(struct jinja *j, struct jval self, const struct jbuiltin *def)
{
	struct jmethod *m = jinja_alloc(j, sizeof *m);

	*m = (struct jmethod){ .self = self, .def = def };
	return JV(JV_METHOD, method, m);
}

static bool loop_number(struct jinja *j, struct jloop *l, const struct jstr *name, int64_t *out)
{
	static const char *const names[] = { "index0", "index", "length", "revindex", "revindex0", "depth",
		"depth0" };
	size_t i = 0;

	while (i < sizeof names / sizeof names[0] && !jstr_is(name, names[i]))
		i++;
	switch (i) {
	case 0:
		*out = l->index0;
		break;
	case 1:
		*out = l->index0 + 1;
		break;
	case 2:
		*out = jloop_length(j, l);
		break;
	case 3:
		*out = jloop_length(j, l) - l->index0;
		break;
	case 4:
		*out = jloop_length(j, l) - l->index0 - 1;
		break;
	case 5:
		*out = l->depth0 + 1;
		break;
	case 6:
		*out = l->depth0;
		break;
	default:
		return false;
	}
	return true;
}

bool jloop_attribute(struct jinja *j, struct jval loop, const struct jstr *name, struct jval *out)
{
	static const struct jbuiltin cycle = { "cycle", loop_cycle, NULL, 0 },
				     changed = { "changed", loop_changed, NULL, 0 };
	struct jloop *l = loop.u.loop;
	int64_t number;

	if (loop_number(j, l, name, &number))
		*out = jval_int(number);
	else if (jstr_is(name, "first"))
		*out = jval_bool(l->index0 == 0);
	else if (jstr_is(name, "last"))
		*out = jval_bool(!peek(j, l));
	else if (jstr_is(name, "previtem"))
		*out = l->index0 == 0 ? jval_undef_hint(j, "there is no previous item") : l->before;
	else if (jstr_is(name, "nextitem"))
		*out = peek(j, l) ? l->after : jval_undef_hint(j, "there is no next item");
	else if (jstr_is(name, "cycle"))
		*out = loop_method(j, loop, &cycle);
	else if (jstr_is(name, "changed"))
		*out = loop_method(j, loop, &changed);
	else
		return false;
	return true;
}
