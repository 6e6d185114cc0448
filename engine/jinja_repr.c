/* SPDX-License-Identifier: Apache-2.0
 * str() and repr() of values as Python writes them, and HTML escaping. Text made here counts as untrusted, except
 * that a string stays what it was.
 */
#include "engine/jinja_call.h"
#include "engine/jinja_int.h"
#include "engine/jinja_loop.h"
#include "engine/jinja_unicode.h"
#include <string.h>

static void put(struct jinja *j, struct jtext *t, const char *s) { jtext_put(j, t, s, strlen(s), false); }

static void repr_char(struct jinja *j, struct jtext *t, const struct jcursor *c, char quote, bool ascii_only)
{
	uint32_t cp = c->cp;

	if (cp == (uint32_t)quote || cp == '\\')
		jtext_printf(j, t, false, "\\%c", (int)cp);
	else if (cp == '\n' || cp == '\r' || cp == '\t')
		put(j, t, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
	else if (cp < 0x7f && cp >= 0x20)
		jtext_putc(j, t, (char)cp, false);
	else if (!ascii_only && junicode_is_printable(cp))
		jtext_put(j, t, c->s->p + c->at, c->n, false);
	else if (cp < 0x100)
		jtext_printf(j, t, false, "\\x%02x", cp);
	else
		jtext_printf(j, t, false, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

void jstr_repr_put(struct jinja *j, struct jtext *t, const struct jstr *s, bool ascii_only)
{
	char quote = memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'';
	struct jcursor c = jcursor_of(s);

	jinja_step(j, s->len / 4);
	jtext_putc(j, t, quote, false);
	while (jcursor_next(&c))
		repr_char(j, t, &c, quote, ascii_only);
	jtext_putc(j, t, quote, false);
}

static void repr_bytes(struct jinja *j, struct jtext *t, const struct jstr *s)
{
	char quote = memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'';

	jinja_step(j, s->len / 4);
	jtext_printf(j, t, false, "b%c", quote);
	for (size_t i = 0; i < s->len; i++) {
		unsigned char c = (unsigned char)s->p[i];

		if (c == quote || c == '\\')
			jtext_printf(j, t, false, "\\%c", c);
		else if (c == '\n' || c == '\r' || c == '\t')
			put(j, t, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
		else if (c >= 0x20 && c < 0x7f)
			jtext_putc(j, t, (char)c, false);
		else
			jtext_printf(j, t, false, "\\x%02x", c);
	}
	jtext_putc(j, t, quote, false);
}

static void repr_list(struct jinja *j, struct jtext *t, const struct jlist *l, char open, char close)
{
	jtext_putc(j, t, open, false);
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			put(j, t, ", ");
		jval_repr_put(j, t, l->v[i]);
	}
	if (open == '(' && l->n == 1)
		jtext_putc(j, t, ',', false);
	jtext_putc(j, t, close, false);
}

static void repr_dict(struct jinja *j, struct jtext *t, const struct jdict *d)
{
	jtext_putc(j, t, '{', false);
	for (uint32_t i = 0; i < d->n; i++) {
		if (i)
			put(j, t, ", ");
		jval_repr_put(j, t, d->e[i].key);
		put(j, t, ": ");
		jval_repr_put(j, t, d->e[i].value);
	}
	jtext_putc(j, t, '}', false);
}

static void repr_range(struct jinja *j, struct jtext *t, const struct jrange *r)
{
	jtext_printf(j, t, false, "range(%lld, %lld", (long long)r->start, (long long)r->stop);
	if (r->step != 1)
		jtext_printf(j, t, false, ", %lld", (long long)r->step);
	jtext_putc(j, t, ')', false);
}

static void repr_float(struct jinja *j, struct jtext *t, double f)
{
	char text[32];

	jtext_put(j, t, text, jfloat_repr(f, text), false);
}

static void repr_object(struct jinja *j, struct jtext *t, struct jval v)
{
	switch (v.kind) {
	case JV_NAMESPACE:
		put(j, t, "<Namespace ");
		repr_dict(j, t, v.u.dict);
		put(j, t, ">");
		break;
	case JV_MACRO:
		jmacro_repr_put(j, t, v.u.macro);
		break;
	case JV_LOOP:
		jtext_printf(j, t, false, "<LoopContext %lld/%lld>", (long long)v.u.loop->index0 + 1,
			(long long)jloop_length(j, v.u.loop));
		break;
	case JV_SELF:
		put(j, t, "<TemplateReference None>");
		break;
	case JV_FUNC:
		jtext_printf(j, t, false, "<function %s>", v.u.func->name);
		break;
	case JV_METHOD:
		jtext_printf(j, t, false, "<method %s of %s>", v.u.method->def->name,
			jval_type_name(v.u.method->self));
		break;
	default:
		jtext_printf(j, t, false, "<%s object>", jval_type_name(v));
		break;
	}
}

void jval_repr_put(struct jinja *j, struct jtext *t, struct jval v)
{
	jinja_step(j, 1);
	jinja_enter(j);
	switch (v.kind) {
	case JV_UNDEFINED:
		put(j, t, "Undefined");
		break;
	case JV_NONE:
		put(j, t, "None");
		break;
	case JV_BOOL:
		put(j, t, v.u.b ? "True" : "False");
		break;
	case JV_INT:
		jtext_printf(j, t, false, "%lld", (long long)v.u.i);
		break;
	case JV_BIG:
		jint_put(j, t, v, 10, false);
		break;
	case JV_FLOAT:
		repr_float(j, t, v.u.f);
		break;
	case JV_STR:
		if (v.u.s->markup)
			put(j, t, "Markup(");
		jstr_repr_put(j, t, v.u.s, false);
		if (v.u.s->markup)
			put(j, t, ")");
		break;
	case JV_BYTES:
		repr_bytes(j, t, v.u.s);
		break;
	case JV_LIST:
		repr_list(j, t, v.u.list, '[', ']');
		break;
	case JV_TUPLE:
		repr_list(j, t, v.u.list, '(', ')');
		break;
	case JV_DICT:
		repr_dict(j, t, v.u.dict);
		break;
	case JV_RANGE:
		repr_range(j, t, v.u.range);
		break;
	case JV_VIEW:
		jtext_printf(j, t, false, "%s(", jval_type_name(v));
		repr_list(j, t, jlist_of(j, v), '[', ']');
		put(j, t, ")");
		break;
	default:
		repr_object(j, t, v);
		break;
	}
	jinja_leave(j);
}

struct jstr *jval_repr(struct jinja *j, struct jval v)
{
	struct jtext *t = jtext_new(j, 0);

	jval_repr_put(j, t, v);
	return jtext_str(j, t);
}

struct jstr *jval_to_str(struct jinja *j, struct jval v)
{
	if (v.kind == JV_STR)
		return v.u.s;
	return v.kind == JV_UNDEFINED ? jstr_lit(j, "", true) : jval_repr(j, v);
}

static const char *html_entity(char c)
{
	return c == '&'	    ? "&amp;"
		: c == '<'  ? "&lt;"
		: c == '>'  ? "&gt;"
		: c == '"'  ? "&#34;"
		: c == '\'' ? "&#39;"
			    : NULL;
}

struct jstr *jstr_escape(struct jinja *j, const struct jstr *s)
{
	struct jtext *t;
	size_t done = 0;

	if (s->markup)
		return (struct jstr *)s;
	t = jtext_new(j, s->len);
	for (size_t i = 0; i < s->len; i++) {
		const char *entity = html_entity(s->p[i]);

		if (!entity)
			continue;
		jtext_put_bytes(j, t, s, done, i - done);
		jtext_put(j, t, entity, strlen(entity), jstr_trusted_at(s, i));
		done = i + 1;
	}
	jinja_work(j, s->len);
	if (!done)
		return jstr_with(j, s, true);
	jtext_put_bytes(j, t, s, done, s->len - done);
	return jstr_with(j, jtext_str(j, t), true);
}

struct jstr *jval_escape(struct jinja *j, struct jval v) { return jstr_escape(j, jval_to_str(j, v)); }
