/* SPDX-License-Identifier: Apache-2.0
 * Chat templates (chat.h): limits, the variables that a template sees, continuing the last message, spans.
 * The interpreter itself is jinja_*.c.
 */
#include "engine/chat.h"
#include "engine/jinja_eval.h"
#include "engine/jinja_json.h"
#include "engine/jinja_strops.h"
#include <string.h>

/* Generous for real templates (the largest known is 60 kB and takes some thousand steps for a long chat), small
 * enough that a bomb ends within a tenth of a second. */
enum {
	SOURCE_BYTES = 1 << 20,
	OUTPUT_BYTES = 8 << 20,
	MEMORY_BYTES = 64 << 20,
	STEPS = 3000000,
	DEPTH = 1000
};

struct chat_template {
	struct jinja j; /* holds the arena of the tree */
	struct jinja_template *t;
	struct chat_limits limits;
};

static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static struct chat_limits limits_of(const struct chat_limits *l)
{
	struct chat_limits r = l ? *l : (struct chat_limits){ 0 };

	r.source_bytes = r.source_bytes ? r.source_bytes : SOURCE_BYTES;
	r.output_bytes = r.output_bytes ? r.output_bytes : OUTPUT_BYTES;
	r.memory_bytes = r.memory_bytes ? r.memory_bytes : MEMORY_BYTES;
	r.steps = r.steps ? r.steps : STEPS;
	r.depth = r.depth ? r.depth : DEPTH;
	return r;
}

static int failure_code(enum jinja_failure why)
{
	switch (why) {
	case JFAIL_LIMIT:
		return TENON_E_TOO_LONG;
	case JFAIL_NOMEM:
		return TENON_E_NOMEM;
	case JFAIL_JSON:
		return TENON_E_FORMAT;
	default:
		return TENON_E_TEMPLATE;
	}
}

/* The failure as an error; what a template raises is handed on in its own words. */
static int report(const struct jinja *j, struct buf *full, struct error *e)
{
	int code = failure_code(j->why);
	struct error own;
	struct jstr text = { .p = j->message, .len = j->message_len };

	if (j->why == JFAIL_RAISE) {
		own.code = code;
		(void)jstr_show(&text, own.text, sizeof own.text);
		if (full)
			(void)buf_append(full, j->message, j->message_len);
	} else {
		if (j->why == JFAIL_JSON)
			(void)error_set(&own, code, "chat request: %s", j->text);
		else if (j->line)
			(void)error_set(&own, code, "chat template: line %u: %s", j->line, j->text);
		else
			(void)error_set(&own, code, "chat template: %s", j->text);
		if (full)
			(void)buf_puts(full, own.text);
	}
	if (e)
		*e = own;
	return code;
}

/* ---- parsing ---- */

struct parsing {
	const char *src;
	size_t len;
	struct jinja_template *t;
};

static void parse(struct jinja *j, void *arg)
{
	struct parsing *p = arg;

	p->t = jinja_parse(j, p->src, p->len);
}

int chat_template_parse(const char *src, size_t len, const struct chat_limits *limits,
	struct chat_template **out, struct error *e)
{
	struct chat_template *t = mem_zalloc(MEM_TEMPLATE, 1, sizeof *t);
	struct parsing p = { .src = src, .len = len };
	int rc;

	if (!t)
		return error_set(e, TENON_E_NOMEM, "chat template: out of memory");
	t->limits = limits_of(limits);
	if (len > t->limits.source_bytes) {
		rc = error_set(e, TENON_E_TOO_LONG, "chat template: %zu bytes; the limit is %zu", len,
			t->limits.source_bytes);
		mem_free(t);
		return rc;
	}
	jinja_init(&t->j, t->limits.memory_bytes, t->limits.steps, t->limits.depth, t->limits.output_bytes);
	if (jinja_protect(&t->j, parse, &p)) {
		rc = report(&t->j, NULL, e);
		chat_template_free(t);
		return rc;
	}
	t->t = p.t;
	*out = t;
	return TENON_OK;
}

void chat_template_free(struct chat_template *t)
{
	if (!t)
		return;
	jinja_finish(&t->j);
	mem_free(t);
}

/* ---- what a template sees ---- */

struct rendering {
	const struct chat_template *t;
	const struct chat_input *in;
	struct jtext *text;
	const struct jstr *continued; /* the last message's text, to be cut behind; NULL: no */
};

static struct jval member(struct jinja *j, const struct jdict *d, const char *key)
{
	struct jval *v = jdict_get_str(j, d, jstr_lit(j, key, true));

	return v ? *v : jval_missing();
}

static void set(struct jinja *j, struct jdict *d, const char *key, struct jval v)
{
	jdict_set(j, d, jval_str(jstr_lit(j, key, true)), v);
}

static void set_all(struct jinja *j, struct jdict *to, struct jval from, const char *what, bool trusted)
{
	if (from.kind == JV_MISSING || from.kind == JV_NONE)
		return;
	if (from.kind != JV_DICT)
		jinja_fail(j, JFAIL_JSON, "%s is no object", what);
	for (uint32_t i = 0; i < from.u.dict->n; i++) {
		struct jval v = from.u.dict->e[i].value;

		if (trusted && v.kind == JV_STR)
			v = jval_str(jstr_retaint(j, v.u.s, true));
		jdict_set(j, to, from.u.dict->e[i].key, v);
	}
}

static struct jval with_tag(struct jinja *j, struct rendering *r, struct jval text)
{
	if (text.kind != JV_STR)
		jinja_fail(j, JFAIL_JSON, "continue_final_message: the last message has no text");
	r->continued = text.u.s;
	return jval_str(jstr_concat(j, text.u.s, jstr_lit(j, continue_tag, false)));
}

/* The content of a message with the tag behind its text, or behind the last of its parts that is text. */
static struct jval tagged_content(struct jinja *j, struct rendering *r, struct jval content)
{
	struct jlist *parts;

	if (content.kind != JV_LIST)
		return with_tag(j, r, content);
	parts = jlist_of(j, content);
	for (size_t i = parts->n; i-- > 0;) {
		struct jdict *part = parts->v[i].kind == JV_DICT ? parts->v[i].u.dict : NULL;
		struct jval text = part ? member(j, part, "text") : jval_missing();

		if (text.kind == JV_MISSING)
			continue;
		part = jdict_copy(j, part);
		set(j, part, "text", with_tag(j, r, text));
		parts->v[i] = jval_dict(part);
		return jval_list(parts);
	}
	jinja_fail(j, JFAIL_JSON, "continue_final_message: the last message has no text");
}

static struct jval tagged_messages(struct jinja *j, struct rendering *r, struct jval messages)
{
	struct jlist *l = jlist_of(j, messages);
	struct jdict *last = l->n && l->v[l->n - 1].kind == JV_DICT ? l->v[l->n - 1].u.dict : NULL;
	struct jval content = last ? member(j, last, "content") : jval_missing();

	if (content.kind == JV_MISSING)
		jinja_fail(j, JFAIL_JSON, "continue_final_message: the last message has no content");
	last = jdict_copy(j, last);
	set(j, last, "content", tagged_content(j, r, content));
	l->v[l->n - 1] = jval_dict(last);
	return jval_list(l);
}

static void set_given(struct jinja *j, struct jdict *d, const char *key, struct jval v)
{
	if (v.kind != JV_MISSING && v.kind != JV_NONE)
		set(j, d, key, v);
}

static struct jdict *variables(struct jinja *j, struct rendering *r, const struct jdict *request)
{
	struct jdict *vars = jdict_new(j);
	struct jval messages = member(j, request, "messages"),
		    prompt = member(j, request, "add_generation_prompt");
	struct jval go_on = member(j, request, "continue_final_message");
	const char *bos = r->in->bos, *eos = r->in->eos;

	if (messages.kind != JV_LIST)
		jinja_fail(j, JFAIL_JSON, "messages is missing or no array");
	if (go_on.kind != JV_MISSING && jval_truth(j, go_on))
		messages = tagged_messages(j, r, messages);
	if (prompt.kind == JV_MISSING || prompt.kind == JV_NONE)
		prompt = jval_bool(r->in->default_generation_prompt && !r->continued);
	if (bos)
		set(j, vars, "bos_token", jval_str(jstr_lit(j, bos, true)));
	if (eos)
		set(j, vars, "eos_token", jval_str(jstr_lit(j, eos, true)));
	set_all(j, vars, member(j, request, "special_tokens"), "special_tokens", true);
	set(j, vars, "tools", jval_none()); /* defined, even when nobody gives them */
	set(j, vars, "documents", jval_none());
	set_all(j, vars, member(j, request, "extra"), "extra", false);
	set_given(j, vars, "tools", member(j, request, "tools"));
	set_given(j, vars, "documents", member(j, request, "documents"));
	set(j, vars, "messages", messages);
	set(j, vars, "add_generation_prompt", prompt);
	return vars;
}

/* ---- rendering ---- */

/* Cuts behind the continued message: at the last tag; if the template has trimmed the message, trailing space of
 * what stands before goes too. */
static void cut(struct jinja *j, struct rendering *r)
{
	struct jstr *all = jtext_str(j, r->text), *tag = jstr_lit(j, continue_tag, true), *kept;
	struct jstr *bare = jstr_strip(j, tag, NULL, JSTRIP_RIGHT),
		    *message = jstr_strip(j, r->continued, NULL, JSTRIP_BOTH);
	size_t at = jstr_rfind(j, all, bare, 0, all->len);

	if (at == SIZE_MAX || jstr_find(j, all, message, 0, all->len) == SIZE_MAX)
		jinja_fail(j, JFAIL_VALUE,
			"the template does not write the last message, so that it cannot be continued");
	kept = jstr_sub(j, all, 0, at);
	if (all->len - at < tag->len || memcmp(all->p + at, tag->p, tag->len))
		kept = jstr_strip(j, kept, NULL, JSTRIP_RIGHT);
	r->text = jtext_new(j, kept->len);
	jtext_put_str(j, r->text, kept);
}

/* A bare array of messages stands for an object with nothing else in it. */
static struct jval only_messages(struct jinja *j, struct jval messages)
{
	struct jdict *d = jdict_new(j);

	set(j, d, "messages", messages);
	return jval_dict(d);
}

static void render(struct jinja *j, void *arg)
{
	struct rendering *r = arg;
	struct jval request = jjson_parse(j, r->in->json, r->in->json_len);

	if (request.kind == JV_LIST && !r->in->raw_context)
		request = only_messages(j, request);
	if (request.kind != JV_DICT)
		jinja_fail(j, JFAIL_JSON, "neither an object nor an array of messages");
	r->text = jtext_new(j, 0);
	jinja_render(j, r->t->t, r->in->raw_context ? request.u.dict : variables(j, r, request.u.dict),
		r->in->now_s, r->text);
	j->line = 0;
	if (r->continued)
		cut(j, r);
}

/* Copies the result out of the arena. */
static int take(const struct jtext *t, struct chat_text *out, struct error *e)
{
	char *text = mem_alloc(MEM_TEMPLATE, t->used + 1);
	struct text_span *spans = mem_zalloc(MEM_TEMPLATE, t->n_runs ? t->n_runs : 1, sizeof *spans);
	size_t at = 0;

	if (!text || !spans) {
		mem_free(text);
		mem_free(spans);
		return error_set(e, TENON_E_NOMEM, "chat template: no memory for %zu bytes of text", t->used);
	}
	if (t->used)
		memcpy(text, t->data, t->used);
	text[t->used] = 0;
	for (size_t i = 0; i < t->n_runs; i++) {
		spans[i] = (struct text_span){
			.off = at, .len = t->runs[i].end - at, .trusted = t->runs[i].trusted
		};
		at = t->runs[i].end;
	}
	chat_text_finish(out);
	*out = (struct chat_text){ .text = text, .len = t->used, .spans = spans, .n_spans = t->n_runs };
	return TENON_OK;
}

int chat_render(const struct chat_template *t, const struct chat_input *in, struct chat_text *out,
	struct buf *full, struct error *e)
{
	struct jinja j;
	struct rendering r = { .t = t, .in = in };
	int rc;

	jinja_init(&j, t->limits.memory_bytes, t->limits.steps, t->limits.depth, t->limits.output_bytes);
	if (jinja_protect(&j, render, &r))
		rc = report(&j, full, e);
	else
		rc = take(r.text, out, e);
	jinja_finish(&j);
	return rc;
}

void chat_text_finish(struct chat_text *t)
{
	MEM_CLEAR(t->text);
	MEM_CLEAR(t->spans);
	t->len = t->n_spans = 0;
}

bool chat_json_member(const char *json, size_t len, const char *key, const char **value, size_t *value_len)
{
	return jjson_member(json, len, key, value, value_len);
}
