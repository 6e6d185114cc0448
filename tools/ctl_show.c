/* SPDX-License-Identifier: Apache-2.0
 * ctl.h: answers of the daemon for people.
 */
#include "tools/ctl.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void show_table(const json_t *rows, const char *const *columns, const char *none)
{
	struct buf text;

	buf_init(&text, MEM_TOOL, 0);
	ctl_table(&text, rows, columns, none);
	(void)fwrite(text.data, 1, text.len, stdout);
	buf_finish(&text);
}

/* ---- commands ---------------------------------------------------------------------------------------------------------------- */

void ctl_show_models(const json_t *a)
{
	static const char *const columns[] = { "NAME:name:s", "STATE:state:s", "REQUESTS:requests:n",
		"PRECISION:precision:s", "KV:kv:s", "LOADS:loads:n", "LOAD:load_ms:t", "IDLE:idle_ms:t",
		"DEATHS:deaths:n", "LAST ERROR:last_error:s", NULL };

	show_table(json_object_get(a, "models"), columns,
		"no models; name one in tenond.conf, or put NAME.gguf into the model folder");
}

static void show_worker(const json_t *w)
{
	(void)printf("worker      %s (%s, pid %lld), %s", ctl_str(w, "state"), ctl_str(w, "isolation"),
		ctl_num(w, "pid"), ctl_str(w, "doing"));
	if (json_object_get(w, "model"))
		(void)printf(" %s", ctl_str(w, "model"));
	(void)printf("; %lld steps, %lld running, %lld waiting; %lld starts, %lld deaths\n",
		ctl_num(w, "steps"), ctl_num(w, "running"), ctl_num(w, "waiting"), ctl_num(w, "starts"),
		ctl_num(w, "deaths"));
	if (json_object_get(w, "about"))
		(void)printf("backend     %s on %s\n", ctl_str(json_object_get(w, "about"), "backend"),
			ctl_str(json_object_get(w, "about"), "device"));
	if (json_object_get(w, "last_death"))
		(void)printf("last death  %s\n", ctl_str(w, "last_death"));
}

/* A row for each class of each model. */
static void show_classes(const json_t *models)
{
	static const char *const names[] = { "online", "offline" };
	static const char *const columns[] = { "MODEL:model:s", "CLASS:class:s", "WAITING:waiting:n",
		"RUNNING:running:n", "ENDED:ended:n", "REFUSED:refused:n", "LATE:deadline_missed:n",
		"PREEMPTED:preempted:n", "RECOMPUTED:recomputed_tokens:n", "PROMPT:prompt_tokens:n",
		"CACHED:cached_tokens:n", "NEW:generated_tokens:n", "TTFT:ttft_mean_ms:t", NULL };
	json_t *rows = json_array();

	for (size_t i = 0; i < 2 * json_array_size(models); i++) {
		const json_t *m = json_array_get(models, i / 2);
		json_t *o = json_copy(json_object_get(m, names[i % 2]));
		long long n = ctl_num(o, "n_ttft");

		(void)json_object_set_new(o, "model", json_string(ctl_str(m, "name")));
		(void)json_object_set_new(o, "class", json_string(names[i % 2]));
		if (n)
			(void)json_object_set_new(o, "ttft_mean_ms",
				json_integer((json_int_t)(json_number_value(json_object_get(o, "ttft_ms")) /
					(double)n)));
		(void)json_array_append_new(rows, o);
	}
	show_table(rows, columns, "");
	json_decref(rows);
}

static void show_cost(const json_t *m)
{
	const json_t *cost = json_object_get(m, "cost");
	double n = (double)MAX_OF(ctl_num(cost, "observed"), 1);

	(void)printf(
		"%s: %lld steps of %.2f ms (predicted %.2f ms; lately wrong by %.0f %%, nine of ten within %.0f %%), %s\n",
		ctl_str(m, "name"), ctl_num(cost, "observed"),
		json_number_value(json_object_get(cost, "measured_ms")) / n,
		json_number_value(json_object_get(cost, "predicted_ms")) / n,
		100 * json_number_value(json_object_get(cost, "error_mean")),
		100 * json_number_value(json_object_get(cost, "error_p90")),
		json_is_true(json_object_get(cost, "calibrated")) ? "calibrated" : "not calibrated yet");
}

static void show_serving(const json_t *s)
{
	const json_t *models = json_object_get(s, "models");

	if (json_object_get(s, "unavailable"))
		(void)printf("\n%s\n", ctl_str(s, "unavailable"));
	if (!json_array_size(models))
		return;
	(void)puts("");
	show_classes(models);
	(void)puts("");
	for (size_t i = 0; i < json_array_size(models); i++)
		show_cost(json_array_get(models, i));
	(void)puts("");
	ctl_show_prefix(s);
}

/* Also the answer to `prefix status`, where the models are the prefixes. */
void ctl_show_prefix(const json_t *a)
{
	static const char *const columns[] = { "PREFIXES:model:s", "PAGES:pages:n", "PINNED:pinned_pages:n",
		"LOOKUPS:lookups:n", "HITS:hits:n", "TOKENS:hit_tokens:n", "EVICTED:evicted_pages:n",
		"SAVED:saved_pages:n", "RESTORED:restored_pages:n", "MISSES:tier_misses:n",
		"MEMORY:host_bytes:b", "OF:host_limit_bytes:b", "DISK:disk_bytes:b", "OF:disk_limit_bytes:b",
		NULL };
	const json_t *models = json_object_get(a, "models");
	json_t *rows = json_array();

	for (size_t i = 0; i < json_array_size(models); i++) {
		const json_t *m = json_array_get(models, i), *p = json_object_get(m, "prefix");
		json_t *o = json_copy((json_t *)(uintptr_t)(json_object_get(m, "model") ? m : p));

		if (p)
			(void)json_object_set_new(o, "model", json_string(ctl_str(m, "name")));
		(void)json_array_append_new(rows, o);
	}
	show_table(rows, columns, "no model with a prefix cache is loaded");
	for (size_t i = 0; i < json_array_size(rows); i++)
		if (json_object_get(json_array_get(rows, i), "no_tier"))
			(void)printf("%s: no tier: %s\n", ctl_str(json_array_get(rows, i), "model"),
				ctl_str(json_array_get(rows, i), "no_tier"));
	json_decref(rows);
}

void ctl_show_jobs(const json_t *a)
{
	static const char *const columns[] = { "JOB:job:s", "TENANT:tenant:s", "STATE:state:s",
		"TOKENS:tokens:n", "BYTES:bytes:b", "AGE:age_ms:t", "KEPT:kept_ms:t", "ERROR:error:s", NULL };
	char text[32];

	show_table(json_object_get(a, "jobs"), columns, "no durable requests");
	if (ctl_num(a, "n"))
		(void)printf("%lld in all, answers take %s\n", ctl_num(a, "n"),
			ctl_bytes_text(ctl_num(a, "bytes"), text));
}

void ctl_show_pins(const json_t *a)
{
	static const char *const columns[] = { "ID:id:s", "TENANT:tenant:s", "TOKENS:tokens:n",
		"PAGES:pages:n", NULL };

	show_table(json_object_get(a, "pins"), columns, "no pins");
}

void ctl_show_status(const json_t *a)
{
	const json_t *s = json_object_get(a, "sessions"), *r = json_object_get(a, "requests");
	char up[32], shared[32];

	(void)printf("tenond %s, pid %lld, %s for %s, at %s\n", ctl_str(a, "version"), ctl_num(a, "pid"),
		ctl_str(a, "state"), ctl_time_text(ctl_num(a, "uptime_ms"), up), ctl_str(a, "socket"));
	(void)printf(
		"sessions    %lld open (%s shared), %lld so far, %lld refused, %lld broke the protocol\n",
		ctl_num(s, "open"), ctl_bytes_text(ctl_num(s, "shared_bytes"), shared),
		ctl_num(s, "attached"), ctl_num(s, "refused"), ctl_num(s, "violations"));
	(void)printf(
		"requests    %lld open, %lld done, %lld failed, %lld cancelled, %lld replayed; %lld tokens, first after %.1f ms on average\n",
		ctl_num(r, "open"), ctl_num(r, "done"), ctl_num(r, "failed"), ctl_num(r, "cancelled"),
		ctl_num(r, "replays"), ctl_num(r, "tokens"),
		json_real_value(json_object_get(r, "ttft_ms_mean")));
	show_worker(json_object_get(a, "worker"));
	(void)puts("");
	ctl_show_models(a);
	show_serving(json_object_get(a, "serving"));
}

/* A name in a list such as "cpu=15,ref". */
static bool list_names(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *s = list; *s; s += strcspn(s, ","), s += *s == ',')
		if (strcspn(s, ":=,") == len && !strncmp(s, name, len))
			return true;
	return false;
}

void ctl_show_backends(const json_t *a)
{
	static const char *const columns[] = { "NAME:name:s", "STATE:state:s", "VERSION:version:s",
		"VARIANT:variant:s", "VENDOR:vendor:s", "REASON:reason:s", NULL };
	static const char *const devices[] = { "DEVICE:name:s", "ISA:isa:s", "MEMORY:memory:b", NULL };
	const json_t *all = json_object_get(a, "backends");

	show_table(all, columns, "no backends");
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *b = json_array_get(all, i);

		if (!json_array_size(json_object_get(b, "devices")))
			continue;
		(void)printf("\n%s%s\n", ctl_str(b, "name"),
			list_names(ctl_str(a, "in_use"), ctl_str(b, "name")) ? " (in use)" : "");
		show_table(json_object_get(b, "devices"), devices, "");
	}
}

void ctl_show_sessions(const json_t *a)
{
	static const char *const columns[] = { "SESSION:session:n", "UID:uid:n", "TENANT:tenant:s",
		"PID:pid:n", "AGE:age_ms:t", "OPEN:open:n", "REQUESTS:requests:n", "TOKENS:tokens:n",
		"BACKLOG:backlog_bytes:b", "PAUSED:paused:f", "BELL:bell:s", NULL };

	show_table(json_object_get(a, "sessions"), columns, "no sessions");
	if (ctl_num(a, "omitted"))
		(void)printf("... and %lld more\n", ctl_num(a, "omitted"));
}

void ctl_show_queue(const json_t *a)
{
	static const char *const columns[] = { "SESSION:session:n", "ID:id:n", "MODEL:model:s",
		"TENANT:tenant:s", "CLASS:class:s", "PRIO:priority:n", "AGED:aged:n", "STATE:state:s",
		"WAITED:waited_ms:t", "PROMPT:prompt_tokens:n", "CACHED:cached:n", "TOKENS:tokens:n",
		"TOTAL:total:n", "PREEMPTED:preempted:n", "WHY:why:s", NULL };
	static const char *const models[] = { "MODEL:name:s", "WAITING:waiting:n", "RUNNING:running:n",
		"PAUSED:paused:n", "STEPS:steps:n", "PREFILL:prefill_tokens:n", "DECODE:decode_tokens:n",
		NULL };
	const json_t *worker = json_object_get(a, "worker");

	show_table(json_object_get(a, "requests"), columns, "no requests");
	if (ctl_num(a, "omitted"))
		(void)printf("... and %lld more\n", ctl_num(a, "omitted"));
	if (json_object_get(worker, "unavailable"))
		(void)printf("\n%s\n", ctl_str(worker, "unavailable"));
	else if (json_array_size(json_object_get(worker, "models")))
		(void)puts("");
	if (json_array_size(json_object_get(worker, "models")))
		show_table(json_object_get(worker, "models"), models, "");
}

static void show_areas(const char *who, const json_t *m)
{
	const json_t *areas = json_object_get(m, "areas"), *v;
	const char *key;
	char text[32];

	if (!areas) {
		(void)printf("%-10s %s\n", who, ctl_str(m, "unavailable"));
		return;
	}
	(void)printf("%-10s %s resident\n", who, ctl_bytes_text(ctl_num(m, "resident"), text));
	json_object_foreach((json_t *)(uintptr_t)areas, key, v) if (json_integer_value(v))(void)
		printf("  %-12s %12s\n", key, ctl_bytes_text(json_integer_value(v), text));
}

static void show_part(const char *words, long long bytes)
{
	char text[32];

	(void)printf("  %-20s %12s\n", words, ctl_bytes_text(bytes, text));
}

/* Items of the load, then who holds the pool and what lies in tiers. */
static void show_ledger(const char *name, const json_t *m)
{
	static const struct {
		const char *key, *words;
	} now[] = {
		{ "kv_used", "of kv: requests" },
		{ "kv_cached", "of kv: prefixes" },
		{ "kv_pinned", "of kv: pinned" },
		{ "host_tier", "prefixes in memory" },
		{ "disk_tier", "prefixes on disk" },
	};
	json_t *items = json_object_get(m, "ledger"), *v;
	const char *key;
	char text[32];

	(void)printf("model %-16s %12s\n", name, ctl_bytes_text(ctl_num(m, "total"), text));
	json_object_foreach(items, key, v) show_part(key, json_integer_value(v));
	for (size_t i = 0; i < COUNT_OF(now); i++)
		if (ctl_num(m, now[i].key))
			show_part(now[i].words, ctl_num(m, now[i].key));
}

void ctl_show_memory(const json_t *a)
{
	const json_t *models = json_object_get(a, "models"), *m, *worker = json_object_get(a, "worker");
	const char *name;
	char sum[32], rest[32];

	show_areas("daemon", json_object_get(a, "daemon"));
	if (!json_is_true(json_object_get(a, "one_process")))
		show_areas("worker", worker);
	(void)printf("%-10s %s\n", "sessions",
		ctl_bytes_text(ctl_num(json_object_get(a, "daemon"), "sessions_shared"), sum));
	json_object_foreach((json_t *)(uintptr_t)models, name, m) show_ledger(name, m);
	(void)printf("all models %s", ctl_bytes_text(ctl_num(a, "models_total"), sum));
	if (ctl_num(a, "limit"))
		(void)printf(" of %s", ctl_bytes_text(ctl_num(a, "limit"), rest));
	if (json_object_get(worker, "available"))
		(void)printf("; the machine has %s left", ctl_bytes_text(ctl_num(worker, "available"), rest));
	(void)puts("");
}

void ctl_show_pairs(const json_t *a)
{
	const json_t *v;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)a, key, v)
	{
		if (json_is_string(v))
			(void)printf("%s: %s\n", key, json_string_value(v));
		else if (json_is_integer(v))
			(void)printf("%s: %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(v));
	}
}
