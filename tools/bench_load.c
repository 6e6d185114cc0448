/* SPDX-License-Identifier: Apache-2.0
 * See bench_load.h.
 */
#include "tools/bench_load.h"
#include "tools/open_model.h"
#include <stdlib.h>
#include <string.h>

enum { WAKE_S = 600, WAKE_PROMPT = 32, WAKE_NEW = 4 };

int bench_load_option(const char *cmd, int c, const char *arg, struct bench_load_options *o)
{
	if (session_option(c, arg, &o->so, &o->model))
		return 1;
	switch (c) {
	case 1010:
		o->text = arg;
		return 1;
	case 1015:
		o->tokenizer = arg;
		return 1;
	case 1011:
		o->vs_url = arg;
		return 1;
	case 1012:
		return cli_parse_u64(cmd, "--seed", arg, 0, INT64_MAX, &o->seed) ? 1 : -1;
	case 1013:
		return cli_parse_u64(cmd, "--kv-mib", arg, 1, 1 << 24, &o->kv_mib) ? 1 : -1;
	case 1014:
		o->json = true;
		return 1;
	}
	return 0;
}

int bench_load_check(const char *cmd, const struct bench_load_options *o)
{
	if (o->so.socket && o->kv_mib)
		return cli_usage(cmd,
			"--socket: a running daemon has its own memory for keys and values; leave --kv-mib out");
	if (o->tokenizer && !o->so.socket)
		return cli_usage(
			cmd, "--tokenizer: only with --socket; a private daemon takes the file itself");
	return session_options_check(cmd, &o->so);
}

/* MiB of keys and values that hold so many tokens, and one context at least; 0: let the daemon choose. */
static uint64_t kv_mib_for(const struct bench_load *l, const struct bench_load_options *o, struct error *e)
{
	struct open_options oo = {
		.model = l->path, .backend = o->so.backend, .precision = o->so.precision, .kv = o->so.kv
	};
	struct opened m = { 0 };
	uint64_t bytes = 0, tokens;

	oo.o.measure_only = true;
	oo.o.n_ctx = o->so.ctx ? (uint32_t)strtoul(o->so.ctx, NULL, 10) : 0;
	if (!open_model(&oo, &m, e)) {
		const struct model_info *i = model_info(m.model);

		tokens = MAX_OF((uint64_t)i->n_ctx, UINT64_C(4096));
		bytes = MAX_OF(i->kv_bytes,
			(uint64_t)((double)i->kv_bytes / (double)tokens * (double)o->kv_tokens * 1.1));
	}
	open_model_close(&m);
	return (bytes + (1 << 20) - 1) >> 20;
}

static void add_set(struct session_options *so, const char *text)
{
	for (size_t i = 0; i + 1 < COUNT_OF(so->set); i++)
		if (!so->set[i]) {
			so->set[i] = text;
			return;
		}
}

static int open_daemon(
	struct bench_load *l, const struct bench_load_options *o, uint32_t n_clients, struct error *e)
{
	int rc = session_open(&o->so, &l->session, e);

	if (rc)
		return rc;
	l->model = session_model(&l->session, o->model, l->name, sizeof l->name, e);
	return l->model ? load_tenon_open(&l->ours, &l->session, l->model, n_clients, e) : e->code;
}

int bench_load_wake(struct bench_load *l, struct load_server *s, struct error *e)
{
	uint64_t state = 7;
	struct load_item *it =
		load_item_new(load_prompt(&l->text, WAKE_PROMPT, &state), WAKE_PROMPT, WAKE_NEW);
	int rc = it ? load_ask(s, it, clock_now_ns() + WAKE_S * NS_PER_S, e)
		    : error_set(e, TENON_E_NOMEM, "load: out of memory");

	if (!rc && session_interrupted())
		rc = error_set(e, TENON_E_CANCELLED, "interrupted");
	else if (!rc && it->code)
		rc = error_set(e, it->code, "%s: %s", s == &l->peer ? "peer" : "tenond", it->why);
	load_items_free(it);
	return rc;
}

int bench_load_open(struct bench_load *l, struct bench_load_options *o, uint32_t n_clients, struct error *e)
{
	const char *file = o->tokenizer ? o->tokenizer : o->model ? o->model : SESSION_DEFAULT_MODEL;
	int rc = cli_model_path(file, l->path, sizeof l->path, e);

	rc = rc ? rc : load_text_open(&l->text, l->path, o->text, e);
	if (!rc && o->vs_url) {
		rc = load_http_open(&l->peer, o->vs_url, n_clients, e);
		rc = rc ? rc : bench_load_wake(l, &l->peer, e);
	}
	if (!rc && !o->so.socket) {
		uint64_t mib = o->kv_mib ? o->kv_mib : kv_mib_for(l, o, e);

		(void)snprintf(l->kv, sizeof l->kv, "kv_mib=%llu", (unsigned long long)mib);
		add_set(&o->so, l->kv);
		rc = mib ? rc : e->code;
	}
	rc = rc ? rc : open_daemon(l, o, n_clients, e);
	return rc ? rc : bench_load_wake(l, &l->ours, e);
}

int bench_load_reopen(
	struct bench_load *l, const struct bench_load_options *o, uint32_t n_clients, struct error *e)
{
	int rc;

	load_server_close(&l->ours);
	session_close(&l->session);
	rc = open_daemon(l, o, n_clients, e);
	return rc ? rc : bench_load_wake(l, &l->ours, e);
}

void bench_load_close(struct bench_load *l)
{
	load_server_close(&l->ours);
	load_server_close(&l->peer);
	session_close(&l->session);
	load_text_close(&l->text);
}

void bench_check_add(
	json_t *checks, const char *name, double measured, const char *must_be, double limit, bool ok)
{
	(void)json_array_append_new(checks,
		json_pack("{s:s, s:f, s:f, s:s, s:b}", "name", name, "measured", measured, "limit", limit,
			"must_be", must_be, "ok", ok));
}

void bench_load_print(json_t *report, json_t *checks, bool as_json)
{
	(void)json_object_set(report, "checks", checks);
	(void)bench_print(report, as_json);
	for (size_t i = 0; i < json_array_size(checks) && !as_json; i++) {
		const json_t *c = json_array_get(checks, i);

		(void)printf("%-7s %s: %.4g, %s %.4g\n",
			json_is_true(json_object_get(c, "ok")) ? "ok" : "missed",
			json_string_value(json_object_get(c, "name")),
			json_number_value(json_object_get(c, "measured")),
			json_string_value(json_object_get(c, "must_be")),
			json_number_value(json_object_get(c, "limit")));
	}
	json_decref(checks);
}

json_t *bench_load_model_json(const struct bench_load *l)
{
	const char *slash = strrchr(l->path, '/');

	return json_pack("{s:s, s:s}", "name", slash ? slash + 1 : l->path, "keys_values", l->kv);
}
