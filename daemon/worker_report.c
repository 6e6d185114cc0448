/* SPDX-License-Identifier: Apache-2.0
 * What the step thread tells about schedulers, caches and requests, and what an administrator does to prefixes. Step
 * thread, between steps; the daemon (admin.c, queue.c) puts names to numbers.
 */
#include "daemon/worker_step.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_ROWS = 200, TENANTS_TOLD = 64, PINS_TOLD = 200 };

#define INT(v) ((json_int_t)(v))

static double ms(uint64_t ns) { return (double)ns / 1e6; }

/* ---- status ------------------------------------------------------------------------------------------------------------ */

static json_t *class_json(const struct sched_class_status *c)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "waiting",
		INT(c->waiting), "running", INT(c->running), "paused", INT(c->paused), "submitted",
		INT(c->submitted), "ended", INT(c->ended), "cancelled", INT(c->cancelled), "failed",
		INT(c->failed), "refused", INT(c->refused), "deadline_missed", INT(c->deadline_missed),
		"ttft_missed", INT(c->ttft_missed), "tpot_tokens", INT(c->tpot_tokens), "tpot_missed",
		INT(c->tpot_missed));
	json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f}", "preempted",
		INT(c->preempted), "recomputed_tokens", INT(c->recomputed_tokens), "prompt_tokens",
		INT(c->prompt_tokens), "cached_tokens", INT(c->cached_tokens), "generated_tokens",
		INT(c->generated_tokens), "wait_ms", ms(c->wait_ns), "ttft_ms", ms(c->ttft_ns), "n_ttft",
		INT(c->n_ttft), "step_ms", ms(c->step_ns));

	(void)json_object_update(o, more);
	json_decref(more);
	return o;
}

static json_t *cost_json(const struct served *m, const struct cost_status *c)
{
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:b, s:b}", "observed",
		INT(c->n_observed - m->observed_before), "predicted_ms", ms(c->predicted_ns), "measured_ms",
		ms(c->measured_ns), "error_mean", c->error_mean, "error_p90", c->error_p90, "calibrated",
		c->calibrated, "kept", m->cost_saved);
}

static json_t *prefix_json(const struct served *m, const struct prefix_status *p)
{
	uint64_t pages = 0;
	json_t *o, *tiers;

	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
		pages += p->pages[g];
	o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "nodes", INT(p->nodes), "node_bytes",
		INT(p->node_bytes), "pages", INT(pages), "pinned_pages", INT(p->pinned_pages), "lookups",
		INT(p->lookups), "hits", INT(p->hits), "hit_tokens", INT(p->hit_tokens), "partial_copies",
		INT(p->partial_copies), "evicted_pages", INT(p->evicted_pages));
	tiers = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "saved_pages", INT(p->saved_pages),
		"restored_pages", INT(p->restored_pages), "tier_misses", INT(p->tier_misses), "host_bytes",
		INT(p->host_bytes), "host_limit_bytes", INT(p->host_limit_bytes), "disk_bytes",
		INT(p->disk_bytes), "disk_limit_bytes", INT(p->disk_limit_bytes), "save_ms", ms(p->save_ns),
		"restore_ms", ms(p->restore_ns));
	(void)json_object_update(o, tiers);
	json_decref(tiers);
	if (*m->tier_why)
		(void)json_object_set_new(o, "no_tier", json_string(m->tier_why));
	return o;
}

static json_t *tenants_json(const struct served *m)
{
	struct sched_tenant_status t[TENANTS_TOLD];
	size_t n = sched_tenants(m->sched, t, TENANTS_TOLD);
	json_t *all = json_array();

	for (size_t i = 0; i < n && i < TENANTS_TOLD; i++)
		(void)json_array_append_new(all,
			json_pack("{s:s, s:f, s:I, s:I, s:I}", "name", t[i].name, "weight",
				t[i].weight / 1000.0, "waiting", INT(t[i].waiting), "running",
				INT(t[i].running), "service", INT(t[i].service)));
	return all;
}

static json_t *pages_json(const struct served *m, const struct sched_status *st)
{
	const struct model_info *info = model_info(m->model);
	json_t *pages = json_array();

	for (uint32_t g = 0; g < info->n_groups && g < KV_MAX_GROUPS; g++)
		(void)json_array_append_new(pages,
			json_pack("{s:I, s:I, s:I, s:I, s:I}", "free", INT(st->pages_free[g]), "total",
				INT(st->pages_total[g]), "cached", INT(st->prefix.pages[g]), "bytes",
				INT(info->page_bytes[g]), "window", INT(info->window[g])));
	return pages;
}

static json_t *status_of(struct served *m)
{
	struct sched_status st;
	json_t *o;

	sched_get_status(m->sched, &st);
	o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:o}", "name", m->name,
		"waiting", INT(st.waiting), "running", INT(st.running), "paused", INT(st.paused), "steps",
		INT(st.steps), "prefill_tokens", INT(st.prefill_tokens), "decode_tokens",
		INT(st.decode_tokens), "step_ms", ms(st.step_ns), "ended", INT(st.ended), "cancelled",
		INT(st.cancelled), "failed", INT(st.failed), "pages", pages_json(m, &st));
	if (!o)
		return json_object();
	(void)json_object_set_new(o, "online", class_json(&st.class[WIRE_ONLINE]));
	(void)json_object_set_new(o, "offline", class_json(&st.class[WIRE_OFFLINE]));
	(void)json_object_set_new(o, "cost", cost_json(m, &st.cost));
	if (sched_prefix(m->sched))
		(void)json_object_set_new(o, "prefix", prefix_json(m, &st.prefix));
	(void)json_object_set_new(o, "tenants", tenants_json(m));
	return o;
}

json_t *worker_status_json(struct stepper *s)
{
	json_t *models = json_array();

	for (uint32_t i = 0; i < s->n_served; i++)
		(void)json_array_append_new(models, status_of(s->served[i]));
	return json_pack("{s:o}", "models", models);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

static const char *state_of(const struct sched_entry *q)
{
	if (q->wait == SCHED_WAIT_READER)
		return "paused";
	if (q->wait != SCHED_RUNS)
		return "waiting";
	return q->past < q->n_prompt ? "prefill" : "decode";
}

/* Why it waits, for people; the daemon names who stands before it. */
static const char *why_of(const struct sched_entry *q)
{
	static const char *const words[] = { [SCHED_RUNS] = "",
		[SCHED_WAIT_TURN] = "others of its class come first, by priority or fair share",
		[SCHED_WAIT_PLACE] = "all places are taken and none may be taken from its owner",
		[SCHED_WAIT_PAGES] = "no KV pages are free",
		[SCHED_WAIT_PREFIX] = "another request computes the prefix that both share",
		[SCHED_WAIT_RESTORE] = "its prefix comes back from a tier",
		[SCHED_WAIT_ONLINE] = "online work has the device",
		[SCHED_WAIT_READER] = "its client does not read" };

	return (size_t)q->wait < COUNT_OF(words) && words[q->wait] ? words[q->wait] : "";
}

static json_t *entry_json(const struct sched_entry *q)
{
	return json_pack("{s:I, s:I, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "id", INT(q->id),
		"behind", INT(q->behind), "state", state_of(q), "wait", sched_wait_name(q->wait), "why",
		why_of(q), "aged", (int)q->aged_priority, "prompt_tokens", INT(q->n_prompt), "cached",
		INT(q->n_cached), "generated", INT(q->n_tokens - MIN_OF(q->n_prompt, q->n_tokens)), "total",
		INT(q->max_total), "preempted", INT(q->n_preempted), "waited_ms",
		INT(q->waited_ns / NS_PER_MS));
}

/* With the status, since whoever looks at requests wants to know what the schedulers do. */
json_t *worker_list_json(struct stepper *s)
{
	struct sched_entry *rows = mem_alloc(MEM_DAEMON, LIST_ROWS * sizeof *rows);
	json_t *all = json_array(), *o = worker_status_json(s);
	size_t room = rows ? LIST_ROWS : 0;

	for (uint32_t i = 0; i < s->n_served && room; i++) {
		size_t n = MIN_OF(sched_list(s->served[i]->sched, rows, room), room);

		for (size_t k = 0; k < n; k++)
			(void)json_array_append_new(all, entry_json(&rows[k]));
		room -= n;
	}
	mem_free(rows);
	(void)json_object_set_new(o, "entries", all);
	return o;
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------------- */

static void add_pins(const struct served *m, json_t *all)
{
	struct prefix_pin pins[PINS_TOLD];
	size_t n = prefix_pins(sched_prefix(m->sched), pins, PINS_TOLD);
	char id[WORKER_NAME_BYTES + 24];

	for (size_t i = 0; i < n && i < PINS_TOLD; i++) {
		(void)snprintf(id, sizeof id, "%s/%llu", m->name, (unsigned long long)pins[i].id);
		(void)json_array_append_new(all,
			json_pack("{s:s, s:s, s:s, s:I, s:I}", "id", id, "model", m->name, "tenant",
				pins[i].tenant, "tokens", INT(pins[i].n_tokens), "pages",
				INT(pins[i].n_pages)));
	}
}

/* "MODEL/ID"; a model's name may hold slashes itself. */
static int unpin(struct stepper *s, const char *id, struct error *e)
{
	const char *slash = strrchr(id, '/');
	char name[WORKER_NAME_BYTES], *end;
	struct served *m;
	unsigned long long number;

	if (!slash || slash == id || (size_t)(slash - id) >= sizeof name || !slash[1])
		return error_set(
			e, TENON_E_INVALID, "unpin '%.60s': write an id as `prefix pins` shows it", id);
	(void)snprintf(name, sizeof name, "%.*s", (int)(slash - id), id);
	number = strtoull(slash + 1, &end, 10);
	m = *end ? NULL : served_find(s, name);
	if (!m || !sched_prefix(m->sched))
		return error_set(e, TENON_E_NOT_FOUND, "unpin '%.60s': no such pin; see `prefix pins`", id);
	m->restless = true;
	return prefix_unpin(sched_prefix(m->sched), number, e);
}

struct limits { /* a question's; -1: as it is */
	json_int_t host_bytes, disk_bytes;
};

static int set_limits(struct served *m, const struct limits *l, struct error *e)
{
	struct sched_status st;

	sched_get_status(m->sched, &st);
	if ((l->host_bytes > 0 && !m->host) || (l->disk_bytes > 0 && !m->disk))
		return error_set(e, TENON_E_UNSUPPORTED, "model '%.40s' has no such tier: %.120s", m->name,
			*m->tier_why
				? m->tier_why
				: "it was loaded with disk_mib = 0; set that in the configuration and load it again");
	if (l->host_bytes >= 0)
		m->host_limit_bytes = (uint64_t)l->host_bytes;
	m->restless = true;
	prefix_set_limits(sched_prefix(m->sched), m->host_limit_bytes,
		l->disk_bytes >= 0 ? (uint64_t)l->disk_bytes : st.prefix.disk_limit_bytes);
	return TENON_OK;
}

static json_int_t limit_of(const json_t *q, const char *key)
{
	const json_t *v = json_object_get(q, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

/* One model's part of a question; adds what it has to say to `all`. */
static int prefix_one(struct served *m, const char *what, const json_t *q, json_t *all, struct error *e)
{
	const struct limits l = { limit_of(q, "host_bytes"), limit_of(q, "disk_bytes") };
	struct prefix *p = sched_prefix(m->sched);
	struct prefix_status st;
	uint64_t freed = 0;
	json_t *o;

	if (!strcmp(what, "pins")) {
		add_pins(m, all);
		return TENON_OK;
	}
	if (!strcmp(what, "limits") && set_limits(m, &l, e))
		return e->code;
	if (!strcmp(what, "purge"))
		freed = prefix_purge(p, json_string_value(json_object_get(q, "tenant")));
	prefix_get_status(p, &st);
	o = prefix_json(m, &st);
	(void)json_object_set_new(o, "model", json_string(m->name));
	if (!strcmp(what, "purge"))
		(void)json_object_set_new(o, "freed_pages", json_integer(INT(freed)));
	(void)json_array_append_new(all, o);
	return TENON_OK;
}

void worker_prefix(struct stepper *s, struct command *c)
{
	const char *what = json_string_value(json_object_get(c->question, "do"));
	const char *id = json_string_value(json_object_get(c->question, "id"));
	json_t *all = json_array();
	uint32_t n = 0;
	int rc = TENON_OK;

	if (what && !strcmp(what, "unpin")) {
		rc = unpin(s, id ? id : "", &c->error);
	} else {
		for (uint32_t i = 0; i < s->n_served && !rc && what; i++) {
			struct served *m = s->served[i];

			if (!sched_prefix(m->sched) || (*c->model && strcmp(c->model, m->name)))
				continue;
			n++;
			rc = prefix_one(m, what, c->question, all, &c->error);
		}
		if (!rc && *c->model && !n)
			rc = error_set(&c->error, TENON_E_NOT_FOUND,
				"prefix: model '%.40s' is not loaded, or reuse is off", c->model);
	}
	if (rc)
		json_decref(all);
	else
		c->reply = json_pack("{s:o}", what && !strcmp(what, "pins") ? "pins" : "models", all);
}
