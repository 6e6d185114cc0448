/* SPDX-License-Identifier: Apache-2.0
 * Functions that every template knows: Jinja's own, and raise_exception and strftime_now of chat templates.
 */
#include "engine/jinja_eval.h"
#include "engine/jinja_filters.h"
#include "engine/jinja_int.h"
#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000 };

#define GLOBAL(name)                                                                                         \
	static struct jval name(                                                                             \
		struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)

static int64_t range_arg(struct jinja *j, struct jval v)
{
	if (v.kind == JV_BIG)
		jinja_fail(j, JFAIL_LIMIT, "range: a bound of more than 64 bits");
	return jval_index(j, v, "range");
}

GLOBAL(g_range)
{
	struct jrange *r = jinja_zalloc(j, 1, sizeof *r);
	uint64_t span, step;

	(void)self;
	(void)call;
	r->step = 1;
	if (!jarg_given(argv[1])) {
		r->stop = range_arg(j, argv[0]);
	} else {
		r->start = range_arg(j, argv[0]);
		r->stop = range_arg(j, argv[1]);
		r->step = jarg_given(argv[2]) ? range_arg(j, argv[2]) : 1;
	}
	if (!r->step)
		jinja_fail(j, JFAIL_VALUE, "range: the step cannot be 0");
	if (r->step > 0 ? r->start < r->stop : r->start > r->stop) {
		span = r->step > 0 ? (uint64_t)r->stop - (uint64_t)r->start
				   : (uint64_t)r->start - (uint64_t)r->stop;
		step = r->step > 0 ? (uint64_t)r->step : 0 - (uint64_t)r->step;
		span = (span - 1) / step + 1;
		if (span > RANGE_MAX)
			jinja_fail(j, JFAIL_LIMIT, "range: more than %d numbers", RANGE_MAX);
		r->n = (int64_t)span;
	}
	return JV(JV_RANGE, range, r);
}

/* dict(...) and namespace(...): one mapping or iterable of pairs, then names. */
static struct jdict *dict_from(struct jinja *j, const struct jcall *call, const char *what)
{
	struct jdict *d = jdict_new(j);
	struct jiter *it;
	struct jval v;

	if (call->n > 1)
		jinja_fail(j, JFAIL_TYPE, "%s: takes no more than one argument by position", what);
	if (call->n && call->args[0].kind == JV_DICT) {
		d = jdict_copy(j, call->args[0].u.dict);
	} else if (call->n) {
		it = jiter_of(j, call->args[0]);
		while (jiter_next(j, it, &v)) {
			struct jlist *pair = jlist_of(j, v);

			if (pair->n != 2)
				jinja_fail(j, JFAIL_VALUE, "%s: pairs are needed", what);
			jdict_set(j, d, pair->v[0], pair->v[1]);
		}
	}
	for (size_t i = 0; i < call->n_kw; i++)
		jdict_set(j, d, jval_str(call->kw_names[i]), call->kw[i]);
	return d;
}

GLOBAL(g_dict)
{
	(void)self;
	(void)argv;
	return jval_dict(dict_from(j, call, "dict"));
}

GLOBAL(g_namespace)
{
	(void)self;
	(void)argv;
	return JV(JV_NAMESPACE, dict, dict_from(j, call, "namespace"));
}

GLOBAL(g_cycler)
{
	struct jcycler *c = jinja_zalloc(j, 1, sizeof *c);

	(void)self;
	(void)argv;
	if (!call->n || call->n_kw)
		jinja_fail(j, JFAIL_VALUE, "cycler: at least one item, and no names");
	c->items = jlist_new(j, call->n);
	for (size_t i = 0; i < call->n; i++)
		c->items->v[c->items->n++] = call->args[i];
	return JV(JV_CYCLER, cycler, c);
}

GLOBAL(g_joiner)
{
	struct jcycler *c = jinja_zalloc(j, 1, sizeof *c);

	(void)self;
	(void)call;
	c->sep = jarg_given(argv[0]) ? jval_to_str(j, argv[0]) : jstr_lit(j, ", ", true);
	return JV(JV_JOINER, cycler, c);
}

GLOBAL(g_lipsum)
{
	(void)self;
	(void)argv;
	(void)call;
	jinja_fail(j, JFAIL_VALUE, "lipsum: filler text is not available in chat templates");
}

GLOBAL(g_raise)
{
	struct jstr *s = jval_to_str(j, argv[0]);

	(void)self;
	(void)call;
	jinja_fail_message(j, JFAIL_RAISE, s->p, s->len);
}

/* The format piece by piece: it may hold zero bytes, and a result of length 0 is no error. */
GLOBAL(g_strftime)
{
	struct jtext *t = jtext_new(j, 64);
	time_t now = (time_t)j->run->now_s;
	char one[256], fmt[8];
	struct jstr *s;
	struct tm tm;

	(void)self;
	(void)call;
	if (argv[0].kind != JV_STR)
		jinja_fail(
			j, JFAIL_TYPE, "strftime_now: a string is needed, not '%s'", jval_type_name(argv[0]));
	s = argv[0].u.s;
	if (!gmtime_r(&now, &tm))
		jinja_fail(j, JFAIL_VALUE, "strftime_now: the clock is out of range");
	for (size_t i = 0, n; i < s->len; i += n) {
		const char *next = memchr(s->p + i, '%', s->len - i);

		jinja_step(j, 4);
		if (next != s->p + i) {
			n = (next ? (size_t)(next - s->p) : s->len) - i;
			jtext_put_bytes(j, t, s, i, n);
			continue;
		}
		n = 2 + (i + 2 < s->len && strchr("-_0^#EO", s->p[i + 1]));
		if (i + n > s->len || (uint8_t)s->p[i + n - 1] >= 0x80) {
			n = 1;
			jtext_put_bytes(j, t, s, i, 1);
			continue;
		}
		memcpy(fmt, s->p + i, n);
		fmt[n] = 0;
		if (s->p[i + n - 1] == 'f') { /* microseconds, which the clock given does not have */
			jtext_put(j, t, "000000", 6, jstr_trusted_at(s, i));
			continue;
		}
		if (strchr("zZ", s->p[i + n - 1])) /* naive times have no zone */
			continue;
		jtext_put(j, t, one, strftime(one, sizeof one, fmt, &tm), jstr_trusted_at(s, i));
	}
	return jval_str(jtext_str(j, t));
}

static const struct jbuiltin globals[] = {
	{ "cycler", g_cycler, NULL, 0 },
	{ "dict", g_dict, NULL, 0 },
	{ "joiner", g_joiner, "sep", 0 },
	{ "lipsum", g_lipsum, NULL, 0 },
	{ "namespace", g_namespace, NULL, 0 },
	{ "raise_exception", g_raise, "message", 1 },
	{ "range", g_range, "/start,stop,step", 1 },
	{ "strftime_now", g_strftime, "format", 1 },
};

const struct jbuiltin *jglobal_find(const struct jstr *name)
{
	return jbuiltin_find(globals, sizeof globals / sizeof globals[0], name);
}
