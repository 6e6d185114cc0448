/* SPDX-License-Identifier: Apache-2.0
 * Commands of the daemon as JSON, and what a worker tells about itself. IO thread, but for the list of backends, which
 * a helper thread makes: a probe may take seconds.
 */
#include "daemon/config.h"
#include "daemon/process_memory.h"
#include "daemon/worker_priv.h"
#include "engine/ledger.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t number(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

int worker_parse_load(const json_t *cmd, struct command *c, struct error *e)
{
	const char *kv = string(cmd, "kv");

	if (!*string(cmd, "model") || strlen(string(cmd, "model")) >= sizeof c->model ||
		!*string(cmd, "path"))
		return error_set(e, TENON_E_INVALID, "load: names no model or no file");
	(void)snprintf(c->model, sizeof c->model, "%s", string(cmd, "model"));
	c->path = mem_strdup(MEM_DAEMON, string(cmd, "path"));
	c->passes = mem_strdup(MEM_DAEMON, string(cmd, "passes"));
	c->backend = mem_strdup(MEM_DAEMON, string(cmd, "backend"));
	if (!c->path || !c->passes || !c->backend)
		return error_set(e, TENON_E_NOMEM, "load: out of memory");
	c->options = (struct model_options){
		.precision = strcmp(string(cmd, "precision"), "exact") ? TNP_FAST : TNP_EXACT,
		.kv_f32 = !strcmp(kv, "f32"),
		.kv_type = !strcmp(kv, "q8_0") ? TNP_Q8_0
			: !strcmp(kv, "q4_0")  ? TNP_Q4_0
			: !strcmp(kv, "f32")   ? TNP_F32
					       : TNP_F16,
		.passes = c->passes,
		.n_ctx = (uint32_t)number(cmd, "context"),
		.kv_bytes = number(cmd, "kv_bytes"),
		.n_sessions = (uint32_t)number(cmd, "kv_sessions"),
		.step_tokens = (uint32_t)number(cmd, "step_tokens"),
		.step_seqs = (uint32_t)number(cmd, "step_seqs"),
		.page_tokens = (uint32_t)number(cmd, "page_tokens"),
	};
	return settings_parse(json_object_get(cmd, "settings"), &c->settings, e);
}

/* ---- setup ------------------------------------------------------------------------------------------------------------------ */

void setup_free(struct setup *s)
{
	if (!s)
		return;
	json_decref(s->command);
	mem_free(s->backend);
	mem_free(s);
}

static void parse_options(struct setup *s, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list) && s->n_options < COUNT_OF(s->options); i++) {
		const json_t *o = json_array_get(list, i);
		struct plugin_option one = { .plugin = json_string_value(json_array_get(o, 0)),
			.key = json_string_value(json_array_get(o, 1)),
			.value = json_string_value(json_array_get(o, 2)) };

		if (one.plugin && one.key && one.value)
			s->options[s->n_options++] = one;
	}
}

int worker_parse_setup(const json_t *cmd, struct command *c, struct error *e)
{
	const json_t *dirs = json_object_get(cmd, "plugin_dirs");
	struct setup *s = mem_zalloc(MEM_DAEMON, 1, sizeof *s);

	if (!s || !(s->backend = mem_strdup(MEM_DAEMON, string(cmd, "backend"))) ||
		!(s->command = json_deep_copy(cmd))) {
		setup_free(s);
		return error_set(e, TENON_E_NOMEM, "setup: out of memory");
	}
	c->setup = s;
	s->device = (uint32_t)number(cmd, "device");
	s->cache_dir =
		*string(s->command, "plugin_cache_dir") ? string(s->command, "plugin_cache_dir") : NULL;
	parse_options(s, json_object_get(s->command, "options"));
	for (size_t i = 0; i < json_array_size(dirs) && s->n_dirs < COUNT_OF(s->dirs); i++)
		s->dirs[s->n_dirs++] =
			json_string_value(json_array_get(json_object_get(s->command, "plugin_dirs"), i));
	if (s->n_dirs)
		return TENON_OK;
	s->dirs[s->n_dirs++] = s->default_dir;
	return plugins_default_dir(s->default_dir, sizeof s->default_dir, e);
}

struct plugins_config setup_plugins(const struct setup *s, struct log *log)
{
	return (struct plugins_config){ .dirs = s->dirs,
		.n_dirs = s->n_dirs,
		.options = s->options,
		.n_options = s->n_options,
		.cache_dir = s->cache_dir,
		.log = log };
}

/* ---- backends --------------------------------------------------------------------------------------------------------------- */

static json_t *backend_json(const struct plugin_info *p)
{
	static const char *const states[] = { "listed", "usable", "unusable", "quarantined" };
	json_t *devices = json_array();

	for (uint32_t i = 0; i < p->n_devices; i++)
		(void)json_array_append_new(devices,
			json_pack("{s:s, s:s, s:I}", "name", p->devices[i].name, "isa", p->devices[i].isa,
				"memory", (json_int_t)p->devices[i].mem_total));
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "name", p->name ? p->name : "", "vendor",
		p->vendor ? p->vendor : "", "version", p->version ? p->version : "", "variant",
		p->variant ? p->variant : "", "state", states[p->state], "reason", p->reason ? p->reason : "",
		"devices", devices);
}

struct probe_job {
	struct worker *w;
	struct command *c; /* owns the setup it reads */
};

static void *probe_main(void *arg)
{
	struct probe_job *job = arg;
	struct command *c = job->c;
	struct plugins_config pc = setup_plugins(c->setup, NULL);
	struct plugins *p = NULL;
	json_t *all = json_array();

	if (!plugins_open(&pc, &p, &c->error))
		for (size_t i = 0; i < plugins_count(p); i++) {
			(void)plugins_probe(p, i, NULL);
			(void)json_array_append_new(all, backend_json(plugins_at(p, i)));
		}
	plugins_close(p);
	c->reply = json_pack("{s:o}", "backends", all);
	outcomes_push(&job->w->outcomes, c);
	mem_free(job);
	return NULL;
}

int worker_list_backends(struct worker *w, const json_t *setup, struct command *c, struct error *e)
{
	struct probe_job *job = mem_zalloc(MEM_DAEMON, 1, sizeof *job);
	int rc = job ? worker_parse_setup(setup, c, e)
		     : error_set(e, TENON_E_NOMEM, "backends: out of memory");

	if (!rc)
		*job = (struct probe_job){ .w = w, .c = c };
	if (!rc && pthread_create(&w->probe_thread, NULL, probe_main, job))
		rc = error_set(e, TENON_E_NOMEM, "backends: no thread");
	if (rc)
		mem_free(job);
	w->probing = !rc;
	return rc;
}

/* ---- about itself ------------------------------------------------------------------------------------------------------------ */

/* What it took, item by item; the tier in memory is counted by what it holds, the processes by themselves. */
static json_t *ledger_json(const struct ledger *l)
{
	json_t *o = json_object();

	for (int i = 0; i < LEDGER_N; i++)
		if (i != LEDGER_TIER && i != LEDGER_BASE)
			(void)json_object_set_new(
				o, ledger_key((enum ledger_item)i), json_integer((json_int_t)l->bytes[i]));
	return o;
}

json_t *worker_model_json(const struct model *m)
{
	const struct model_info *i = model_info(m);
	json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "arch",
		i->arch, "name", i->name ? i->name : "", "backend", i->backend, "params",
		(json_int_t)i->n_params, "context", (json_int_t)i->n_ctx, "context_trained",
		(json_int_t)i->n_ctx_train, "step_tokens", (json_int_t)i->step_tokens, "step_seqs",
		(json_int_t)i->step_seqs, "weights_mapped", (json_int_t)i->weights_mapped_bytes,
		"weights_own", (json_int_t)i->weights_own_bytes, "workspace", (json_int_t)i->workspace_bytes,
		"kv", (json_int_t)i->kv_bytes, "page_tokens", (json_int_t)i->page_tokens);

	(void)json_object_set_new(o, "ledger", ledger_json(model_ledger(m)));
	return o;
}

json_t *worker_memory_json(void)
{
	json_t *o = process_memory_json();

	(void)json_object_set_new(o, "available", json_integer((json_int_t)memory_available()));
	return o;
}
