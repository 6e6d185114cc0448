/* SPDX-License-Identifier: Apache-2.0
 * See gen.h.
 */
#include "tools/gen.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- request ------------------------------------------------------------------------------------------------- */

static int bad(struct error *e, const char *field, const char *what)
{
	return error_set(e, TENON_E_INVALID, "%s: %s", field, what);
}

static int get_float(const json_t *in, const char *key, float *out, struct error *e)
{
	const json_t *v = json_object_get(in, key);

	if (!v || json_is_null(v))
		return TENON_OK;
	if (!json_is_number(v))
		return bad(e, key, "expected a number");
	*out = (float)json_number_value(v);
	return TENON_OK;
}

static int get_int(const json_t *in, const char *key, int64_t lo, int64_t hi, int64_t *out, struct error *e)
{
	const json_t *v = json_object_get(in, key);

	if (!v || json_is_null(v))
		return TENON_OK;
	if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
		return error_set(e, TENON_E_INVALID, "%s: expected an integer from %lld to %lld", key, (long long)lo, (long long)hi);
	*out = json_integer_value(v);
	return TENON_OK;
}

static int get_flag(const json_t *in, const char *key, int *out, struct error *e)
{
	const json_t *v = json_object_get(in, key);

	if (v && !json_is_boolean(v))
		return bad(e, key, "expected true or false");
	*out = json_is_true(v);
	return TENON_OK;
}

static int get_stop(const json_t *in, struct gen_request *g, struct error *e)
{
	const json_t *v = json_object_get(in, "stop");
	size_t n = json_is_array(v) ? json_array_size(v) : json_is_string(v) ? 1 : 0;

	if (!v || json_is_null(v))
		return TENON_OK;
	if (!json_is_array(v) && !json_is_string(v))
		return bad(e, "stop", "expected a string or an array of strings");
	if (n > COUNT_OF(g->stop))
		return bad(e, "stop", "at most 16 strings");
	for (size_t i = 0; i < n; i++) {
		g->stop[i] = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
		if (!g->stop[i])
			return bad(e, "stop", "expected strings");
	}
	g->r.stop = g->stop;
	g->r.n_stop = n;
	return TENON_OK;
}

/* {"id": bias, ...} as in other APIs. */
static int get_bias(json_t *in, struct gen_request *g, struct error *e)
{
	json_t *v = json_object_get(in, "logit_bias"), *b;
	const char *key;
	size_t n = 0;

	if (!v || json_is_null(v))
		return TENON_OK;
	if (!json_is_object(v))
		return bad(e, "logit_bias", "expected an object of token id: bias");
	g->bias = mem_zalloc(MEM_TOOL, json_object_size(v) + 1, sizeof *g->bias);
	if (!g->bias)
		return error_set(e, TENON_E_NOMEM, "logit_bias: out of memory");
	json_object_foreach(v, key, b) {
		char *end;
		long id = strtol(key, &end, 10);

		if (*end || !*key || id < 0 || id > INT32_MAX || !json_is_number(b))
			return bad(e, "logit_bias", "expected an object of token id: bias");
		g->bias[n++] = (struct tenon_bias){ (int32_t)id, (float)json_number_value(b) };
	}
	g->r.bias = g->bias;
	g->r.n_bias = n;
	return TENON_OK;
}

static int get_sampling(const json_t *in, struct tenon_request *r, struct error *e)
{
	int64_t top_k = 0, window = 0, seed = 0, logprobs = 0;
	int rc = get_float(in, "temperature", &r->temperature, e);

	rc = rc ? rc : get_float(in, "top_p", &r->top_p, e);
	rc = rc ? rc : get_float(in, "min_p", &r->min_p, e);
	rc = rc ? rc : get_float(in, "repeat_penalty", &r->repeat_penalty, e);
	rc = rc ? rc : get_float(in, "presence_penalty", &r->presence_penalty, e);
	rc = rc ? rc : get_float(in, "frequency_penalty", &r->frequency_penalty, e);
	rc = rc ? rc : get_int(in, "top_k", 0, INT32_MAX, &top_k, e);
	rc = rc ? rc : get_int(in, "penalty_window", 0, INT32_MAX, &window, e);
	rc = rc ? rc : get_int(in, "seed", INT64_MIN, INT64_MAX, &seed, e);
	rc = rc ? rc : get_int(in, "logprobs", 0, 20, &logprobs, e);
	r->top_k = (uint32_t)top_k;
	r->penalty_window = (uint32_t)window;
	r->seed = (uint64_t)seed;
	r->n_logprobs = (uint32_t)logprobs;
	return rc;
}

/* For whom, and how what is cached is used. */
static int get_sharing(const json_t *in, struct tenon_request *r, struct error *e)
{
	const json_t *tenant = json_object_get(in, "tenant"), *reuse = json_object_get(in, "reuse"),
		     *job = json_object_get(in, "job");
	int64_t ttft = 0, tpot = 0;
	int rc = get_int(in, "ttft_ms", 0, 3600000, &ttft, e);

	rc = rc ? rc : get_int(in, "tpot_ms", 0, 3600000, &tpot, e);
	rc = rc ? rc : get_flag(in, "pin", &r->pin, e);
	rc = rc ? rc : get_flag(in, "durable", &r->durable, e);
	rc = rc ? rc : get_flag(in, "collect", &r->collect, e);
	if (rc)
		return rc;
	if (reuse && !json_is_boolean(reuse))
		return bad(e, "reuse", "expected true or false");
	if (tenant && !json_is_string(tenant))
		return bad(e, "tenant", "expected a string");
	if (job && !json_is_string(job))
		return bad(e, "job", "expected a string");
	r->job = json_string_value(job);
	r->no_reuse = json_is_false(reuse);
	r->tenant = json_string_value(tenant);
	r->ttft_ms = (uint32_t)ttft;
	r->tpot_ms = (uint32_t)tpot;
	return TENON_OK;
}

static int get_limits(const json_t *in, struct tenon_request *r, struct error *e)
{
	const json_t *cls = json_object_get(in, "class");
	int64_t max_tokens = 0, priority = 0, deadline = 0;
	int rc = get_int(in, "max_tokens", 0, UINT32_MAX, &max_tokens, e);

	rc = rc ? rc : get_int(in, "priority", -100, 100, &priority, e);
	rc = rc ? rc : get_int(in, "deadline_ms", 1, INT32_MAX, &deadline, e);
	rc = rc ? rc : get_flag(in, "ignore_eos", &r->ignore_eos, e);
	rc = rc ? rc : get_flag(in, "show_special", &r->show_special, e);
	if (rc)
		return rc;
	if (cls && (!json_is_string(cls) || (strcmp(json_string_value(cls), "online") && strcmp(json_string_value(cls), "offline"))))
		return bad(e, "class", "expected \"online\" or \"offline\"");
	r->traffic_class = cls && !strcmp(json_string_value(cls), "offline") ? TENON_OFFLINE : TENON_ONLINE;
	r->max_tokens = (uint32_t)max_tokens;
	r->priority = (int)priority;
	r->deadline_ns = (uint64_t)deadline * NS_PER_MS;
	return TENON_OK;
}

/* The template's part of the entry as an object of its own. */
static int get_messages(json_t *in, struct gen_request *g, struct error *e)
{
	static const char *const keys[] = { "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "extra" };
	json_t *o = json_object();

	for (size_t i = 0; i < COUNT_OF(keys); i++)
		if (json_object_get(in, keys[i]))
			(void)json_object_set(o, keys[i], json_object_get(in, keys[i]));
	g->messages = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	g->r.messages = g->messages;
	return g->messages ? TENON_OK : error_set(e, TENON_E_NOMEM, "messages: out of memory");
}

static int get_input(json_t *in, struct gen_request *g, struct error *e)
{
	const json_t *prompt = json_object_get(in, "prompt"), *ids = json_object_get(in, "ids");
	bool messages = json_object_get(in, "messages") != NULL;

	if (json_is_true(json_object_get(in, "collect")) && !prompt && !ids && !messages)
		return TENON_OK;
	if ((prompt != NULL) + (ids != NULL) + messages != 1)
		return bad(e, "prompt", "give exactly one of prompt, messages and ids");
	if (messages)
		return get_messages(in, g, e);
	if (ids) {
		g->r.ids = NULL;
		int rc = cli_json_ids(ids, &g->ids, &g->r.n_ids, e);

		g->r.ids = g->ids;
		return rc;
	}
	if (!json_is_string(prompt))
		return bad(e, "prompt", "expected a string");
	g->r.prompt = json_string_value(prompt);
	g->r.prompt_len = json_string_length(prompt);
	return g->r.prompt_len ? TENON_OK : bad(e, "prompt", "empty");
}

int gen_request_parse(const json_t *in_const, struct gen_request *g, struct error *e)
{
	json_t *in = json_incref((json_t *)(uintptr_t)in_const); /* jansson's iterators want it non-const */
	int rc;

	*g = (struct gen_request){ .r = TENON_REQUEST_INIT };
	rc = get_input(in, g, e);
	rc = rc ? rc : get_sampling(in, &g->r, e);
	rc = rc ? rc : get_limits(in, &g->r, e);
	rc = rc ? rc : get_sharing(in, &g->r, e);
	rc = rc ? rc : get_stop(in, g, e);
	rc = rc ? rc : get_bias(in, g, e);
	json_decref(in);
	if (rc)
		gen_request_finish(g);
	return rc;
}

void gen_request_finish(struct gen_request *g)
{
	free(g->messages);
	mem_free(g->ids);
	mem_free(g->bias);
	g->messages = NULL;
	g->ids = NULL;
	g->bias = NULL;
}

/* ---- answer --------------------------------------------------------------------------------------------------- */

const char *gen_finish_name(int finish)
{
	switch (finish) {
	case TENON_FINISH_STOP:
		return "stop";
	case TENON_FINISH_STOP_STRING:
		return "stop_string";
	case TENON_FINISH_LENGTH:
		return "length";
	case TENON_FINISH_CONTEXT:
		return "context";
	}
	return "unknown";
}

int gen_answer_init(struct gen_answer *a)
{
	*a = (struct gen_answer){ .ids = json_array() };
	buf_init(&a->text, MEM_TOOL, 0);
	return a->ids && buf_puts(&a->text, "") ? TENON_OK : TENON_E_NOMEM;
}

void gen_answer_finish(struct gen_answer *a)
{
	buf_finish(&a->text);
	json_decref(a->ids);
	json_decref(a->logprobs);
	json_decref(a->final);
	*a = (struct gen_answer){ 0 };
}

static json_t *ids_json(const struct tenon_event *ev)
{
	json_t *ids = json_array();

	for (size_t i = 0; i < ev->n_ids; i++)
		(void)json_array_append_new(ids, json_integer(ev->ids[i]));
	return ids;
}

static json_t *logprobs_json(const struct tenon_event *ev)
{
	json_t *lp = json_array();

	for (size_t i = 0; i < ev->n_logprobs; i++)
		(void)json_array_append_new(lp, json_pack("[i, f]", (int)ev->logprobs[i].token,
			isfinite(ev->logprobs[i].logprob) ? (double)ev->logprobs[i].logprob : -1e30));
	return lp;
}

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static json_t *done_json(const struct tenon_event *ev)
{
	const struct tenon_timeline *t = &ev->time;
	double tpot = ev->n_generated > 1 ? ms(t->decode_ns) / (ev->n_generated - 1) : 0;

	return json_pack("{s:s, s:{s:i, s:i, s:i, s:i, s:i}, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}}", "finish",
		gen_finish_name(ev->finish), "usage", "prompt_tokens", (int)ev->n_prompt, "completion_tokens", (int)ev->n_generated,
		"cached_tokens", (int)ev->n_cached, "preempted", (int)ev->n_preempted, "replayed_tokens", (int)ev->n_replayed,
		"timeline", "preprocess_ms", ms(t->preprocess_ns), "load_ms", ms(t->load_ns), "queue_ms", ms(t->queue_ns),
		"prefill_ms", ms(t->prefill_ns), "decode_ms", ms(t->decode_ns), "postprocess_ms", ms(t->postprocess_ns),
		"transport_ms", ms(t->transport_ns), "ttft_ms", ms(t->first_token_ns), "tpot_ms", tpot, "total_ms", ms(t->total_ns));
}

static json_t *error_json(const struct tenon_event *ev)
{
	return json_pack("{s:{s:s, s:s%}}", "error", "code", tenon_error_name(ev->code), "message", ev->text ? ev->text : "",
		ev->text ? ev->text_len : (size_t)0);
}

bool gen_answer_add(struct gen_answer *a, const struct tenon_event *ev)
{
	if (ev->kind == TENON_EVENT_TOKENS) {
		json_t *ids = ids_json(ev);

		(void)json_array_extend(a->ids, ids);
		json_decref(ids);
		(void)buf_append(&a->text, ev->text, ev->text_len);
		if (ev->n_logprobs) {
			a->logprobs = a->logprobs ? a->logprobs : json_array();
			(void)json_array_append_new(a->logprobs, logprobs_json(ev));
		}
	} else if (ev->kind == TENON_EVENT_DONE) {
		a->final = done_json(ev);
	} else if (ev->kind == TENON_EVENT_ERROR) {
		a->failed = true;
		a->final = error_json(ev);
	}
	return ev->last;
}

json_t *gen_answer_json(const struct gen_answer *a)
{
	json_t *o = json_object();

	if (!a->failed) {
		(void)json_object_set(o, "ids", a->ids);
		(void)json_object_set_new(o, "text", json_stringn(a->text.data, a->text.len));
		if (a->logprobs)
			(void)json_object_set(o, "logprobs", a->logprobs);
	}
	if (a->final)
		(void)json_object_update(o, a->final);
	return o;
}

json_t *gen_event_json(const struct tenon_event *ev)
{
	json_t *o;

	switch (ev->kind) {
	case TENON_EVENT_TOKENS:
		o = json_pack("{s:s, s:o, s:s%}", "event", "tokens", "ids", ids_json(ev), "text", ev->text, ev->text_len);
		if (o && ev->n_logprobs)
			(void)json_object_set_new(o, "logprobs", logprobs_json(ev));
		return o;
	case TENON_EVENT_DONE:
		o = json_pack("{s:s}", "event", "done");
		break;
	case TENON_EVENT_ERROR:
		o = json_pack("{s:s}", "event", "error");
		break;
	case TENON_EVENT_STATE:
		return json_pack("{s:s, s:i, s:i}", "event", "state", "phase", ev->phase, "permille", ev->permille);
	default:
		return NULL;
	}
	json_t *rest = ev->kind == TENON_EVENT_DONE ? done_json(ev) : error_json(ev);

	(void)json_object_update(o, rest);
	json_decref(rest);
	return o;
}

void gen_print_timeline(const struct tenon_event *d, FILE *to)
{
	const struct tenon_timeline *t = &d->time;
	const struct { const char *name; uint64_t ns; const char *note; } rows[] = {
		{ "load", t->load_ns, "waiting for the model to load" },
		{ "preprocess", t->preprocess_ns, "chat template, tokenizer" },
		{ "queue", t->queue_ns, "waiting for the first step" },
		{ "prefill", t->prefill_ns, "prompt to first token" },
		{ "decode", t->decode_ns, "first token to last" },
		{ "postprocess", t->postprocess_ns, "sampling, stop rules, text (inside the two above)" },
		{ "transport", t->transport_ns, "worker to daemon, sum" },
		{ "total", t->total_ns, "" },
	};

	(void)fprintf(to, "\n%-12s %10s\n", "timeline", "ms");
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		(void)fprintf(to, "%-12s %10.2f  %s\n", rows[i].name, ms(rows[i].ns), rows[i].note);
	(void)fprintf(to, "first token after %.1f ms; %u prompt tokens (%u cached), %u new tokens", ms(t->first_token_ns), d->n_prompt,
		d->n_cached, d->n_generated);
	if (t->prefill_ns)
		(void)fprintf(to, "; prefill %.0f tok/s", 1e9 * (d->n_prompt - d->n_cached) / (double)t->prefill_ns);
	if (d->n_generated > 1 && t->decode_ns)
		(void)fprintf(to, ", decode %.1f tok/s", 1e9 * (d->n_generated - 1) / (double)t->decode_ns);
	(void)fprintf(to, "; finish: %s\n", gen_finish_name(d->finish));
}
