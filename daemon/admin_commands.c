/* SPDX-License-Identifier: Apache-2.0
 * The commands of the control socket: one line in the table at the end for each. Loop thread. Nothing waits here: what
 * needs the worker is answered when it has answered.
 */
#include "daemon/admin_priv.h"
#include "daemon/process_memory.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIST_MAX = 200, UNLOAD_WAIT_MAX_S = 86400 };
#define WORKER_MS      2000
#define WORKER_LONG_MS 30000
#define BACKENDS_MS    30000

/* ---- what the daemon knows ------------------------------------------------------------------------------------------------ */

static json_t *requests_json(const struct daemon *d)
{
	const struct requests *t = &d->requests;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "open",
		(json_int_t)t->n_open, "orphans", (json_int_t)t->n_orphans, "at_worker",
		(json_int_t)t->n_at_worker, "begun", (json_int_t)t->n_begun, "done", (json_int_t)t->n_done,
		"failed", (json_int_t)t->n_failed, "cancelled", (json_int_t)t->n_cancelled, "replays",
		(json_int_t)t->n_replays, "deadline_missed", (json_int_t)t->n_deadline, "tokens",
		(json_int_t)t->n_tokens, "ttft_ms_mean",
		t->n_ttft ? (double)t->ttft_ns_sum / (double)t->n_ttft / 1e6 : 0.0);
}

static json_t *sessions_brief(const struct daemon *d)
{
	const struct sessions *t = &d->sessions;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "open", (json_int_t)t->n_open,
		"attached", (json_int_t)t->n_attached, "refused", (json_int_t)t->n_refused, "violations",
		(json_int_t)t->n_violations, "frames", (json_int_t)t->n_frames, "slow_cancelled",
		(json_int_t)t->n_slow_cancelled, "waiting_hello", (json_int_t)t->n_hellos, "shared_bytes",
		(json_int_t)t->shared_bytes, "forged_bells", (json_int_t)bell_hub_n_unknown(t->hub));
}

static uint32_t count_fds(void)
{
	uint32_t n = 0;

	for (int fd = 0; fd < 4096; fd++) {
		char link[32], to[8];

		(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		n += readlink(link, to, sizeof to) >= 0;
	}
	return n;
}

static json_t *session_json(const struct session *s)
{
	const struct conf_tenant *t = conf_tenant_of(&s->d->conf, s->account->uid);
	char own[24];
	json_t *o;

	(void)snprintf(own, sizeof own, "uid:%u", s->account->uid);
	o = json_pack("{s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:b}", "session",
		(json_int_t)s->link.session, "uid", (json_int_t)s->account->uid, "pid", (int)s->peer_pid,
		"age_ms", (json_int_t)((s->d->loop.now_ns - s->attached_ns) / NS_PER_MS), "open",
		(json_int_t)s->n_open, "requests", (json_int_t)s->n_requests, "tokens",
		(json_int_t)s->n_tokens, "backlog_bytes", (json_int_t)(s->backlog.len - s->backlog_at),
		"bell", s->bell.fd >= 0 ? "eventfd" : "zmq", "paused", s->paused, "blocked",
		s->blocked_ns != 0);

	(void)json_object_set_new(o, "tenant", json_string(t ? t->name : own));
	return o;
}

static void on_sessions(struct waiter *w)
{
	struct daemon *d = w->a->d;
	json_t *all = json_array();
	uint32_t n = 0;

	LIST_EACH(&d->sessions.open, node)
	if (n++ < LIST_MAX)
		(void)json_array_append_new(all, session_json(CONTAINER_OF(node, struct session, node)));
	admin_answer(w,
		json_pack("{s:o, s:I, s:I}", "sessions", all, "open", (json_int_t)n, "omitted",
			(json_int_t)(n > LIST_MAX ? n - LIST_MAX : 0)));
}

static void on_jobs(struct waiter *w) { admin_answer(w, jobs_json(w->a->d)); }

static void on_drop_job(struct waiter *w, const json_t *q)
{
	const char *name = json_string_value(json_object_get(q, "job"));
	struct error e = { 0 };

	if (job_drop(w->a->d, json_string_value(json_object_get(q, "tenant")), name ? name : "", &e))
		admin_answer_error(w, &e);
	else
		admin_answer(w, json_pack("{s:s, s:s}", "job", name, "state", "dropped"));
}

static void on_models(struct waiter *w)
{
	admin_answer(w, json_pack("{s:o}", "models", models_json(w->a->d)));
}

/* ---- what needs the worker ------------------------------------------------------------------------------------------------ */

/* The worker's answer, or why there is none, goes into the daemon's under `key`. */
static void finish_with(struct waiter *w, const char *key, const json_t *reply, const struct error *e)
{
	json_t *o = w->answer;

	w->answer = NULL;
	if (reply)
		(void)json_object_set_new(o, key, json_deep_copy(reply));
	else
		(void)json_object_set_new(o, key, json_pack("{s:s}", "unavailable", e->text));
	admin_answer(w, o);
}

/* Whoever asks how things are does not want to wait for a load to end. */
static void ask_worker(struct waiter *w, const char *cmd, worker_reply_fn *fn)
{
	struct worker_link *worker = &w->a->d->worker;
	struct box_reading box = { .phase = BOX_IDLE };
	struct error e;

	if (worker->box.page)
		box_read(&worker->box, &box);
	if (box.phase == BOX_IDLE || box.phase == BOX_STEP) {
		worker_link_call(worker, json_pack("{s:s}", "cmd", cmd), WORKER_MS, fn, w);
		return;
	}
	(void)error_set(
		&e, TENON_E_BUSY, "worker: is busy with %s of %s", box_phase_name(box.phase), box.model);
	fn(w->a->d, w, NULL, &e);
}

static void on_status_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	(void)d;
	finish_with(ctx, "serving", reply, e);
}

static void on_status(struct waiter *w)
{
	struct daemon *d = w->a->d;
	json_t *loop = json_pack("{s:I, s:I, s:I}", "turns", (json_int_t)d->loop.n_turns, "parks",
		(json_int_t)d->loop.n_parks, "spins", (json_int_t)d->loop.n_spins);

	w->answer = json_pack("{s:s, s:i, s:I, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "version",
		PACKAGE_VERSION, "pid", (int)getpid(), "uptime_ms",
		(json_int_t)((clock_now_ns() - d->started_ns) / NS_PER_MS), "state",
		d->draining ? "draining" : "running", "socket", d->conf.socket, "descriptors",
		(int)count_fds(), "sessions", sessions_brief(d), "requests", requests_json(d), "worker",
		worker_link_json(&d->worker), "models", models_json(d), "loop", loop);
	ask_worker(w, "status", on_status_reply);
}

static void on_list_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	json_t *o = queue_json(d, reply), *worker;

	(void)json_object_set_new(o, "totals", requests_json(d));
	worker = reply ? json_pack("{s:O}", "models", json_object_get(reply, "models"))
		       : json_pack("{s:s}", "unavailable", e->text);
	(void)json_object_set_new(o, "worker", worker);
	admin_answer(ctx, o);
}

static void on_queue(struct waiter *w) { ask_worker(w, "list", on_list_reply); }

static json_t *own_memory(const struct daemon *d)
{
	json_t *o = process_memory_json();

	(void)json_object_set_new(o, "sessions_shared", json_integer((json_int_t)d->sessions.shared_bytes));
	return o;
}

static json_int_t int_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* A model's part of the ledger: what its load took, and what its pages and tiers hold now. */
static json_t *ledger_entry(const struct model_entry *m, const json_t *now)
{
	const json_t *pages = json_object_get(now, "pages"), *prefix = json_object_get(now, "prefix");
	json_int_t used = 0, cached = 0, set = 0, pinned, total = int_of(prefix, "host_bytes");
	json_t *items = json_object_get(m->info, "ledger"), *item;
	const char *key;
	json_t *o = json_deep_copy(m->info);

	for (size_t g = 0; g < json_array_size(pages); g++) {
		const json_t *p = json_array_get(pages, g);

		used += (int_of(p, "total") - int_of(p, "free")) * int_of(p, "bytes");
		cached += int_of(p, "cached") * int_of(p, "bytes");
		set += int_of(p, "bytes");
	}
	/* pins are counted over all groups: whole sets of pages */
	pinned = json_array_size(pages)
		? int_of(prefix, "pinned_pages") * set / (json_int_t)json_array_size(pages)
		: 0;
	json_object_foreach(items, key, item) total += json_integer_value(item);
	(void)json_object_update_new(o,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kv_used", used, "kv_cached", cached,
			"kv_pinned", pinned, "host_tier", int_of(prefix, "host_bytes"), "host_tier_limit",
			int_of(prefix, "host_limit_bytes"), "disk_tier", int_of(prefix, "disk_bytes"),
			"disk_tier_limit", int_of(prefix, "disk_limit_bytes"), "total", total));
	return o;
}

static json_t *ledger(struct daemon *d, const json_t *serving)
{
	const json_t *list = json_object_get(serving, "models");
	json_t *all = json_object();

	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);
		const json_t *now = NULL;

		if (m->state != MODEL_LOADED || !m->info)
			continue;
		for (size_t i = 0; i < json_array_size(list) && !now; i++) {
			const char *name =
				json_string_value(json_object_get(json_array_get(list, i), "name"));

			if (name && !strcmp(name, m->name))
				now = json_array_get(list, i);
		}
		(void)json_object_set_new(all, m->name, ledger_entry(m, now));
	}
	return all;
}

static void on_memory_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	(void)d;
	finish_with(ctx, "worker", reply, e);
}

static void on_memory_status(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct waiter *w = ctx;
	json_t *models = ledger(d, reply), *m;
	json_int_t sum = 0;
	const char *name;

	(void)e;
	json_object_foreach(models, name, m) sum += int_of(m, "total");
	w->answer = json_pack("{s:o, s:o, s:I, s:I, s:b}", "daemon", own_memory(d), "models", models,
		"models_total", sum, "limit", (json_int_t)d->conf.memory.limit_bytes, "one_process",
		d->worker.threaded);
	worker_link_call(&d->worker, json_pack("{s:s}", "cmd", "memory"), WORKER_MS, on_memory_reply, w);
}

static void on_memory(struct waiter *w) { ask_worker(w, "status", on_memory_status); }

static void on_backends_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct waiter *w = ctx;

	(void)d;
	if (reply)
		admin_answer(w,
			json_pack("{s:O, s:s}", "backends", json_object_get(reply, "backends"), "in_use",
				json_string_value(json_object_get(d->worker.about, "backend"))
					? json_string_value(json_object_get(d->worker.about, "backend"))
					: ""));
	else
		admin_answer_error(w, e);
}

static void on_backends(struct waiter *w)
{
	worker_link_call(
		&w->a->d->worker, json_pack("{s:s}", "cmd", "backends"), BACKENDS_MS, on_backends_reply, w);
}

/* ---- what changes something ------------------------------------------------------------------------------------------------- */

static void wait_for(struct waiter *w, struct model_entry *m)
{
	w->model = m;
	m->pending++;
}

static void on_load(struct waiter *w, const json_t *q)
{
	struct daemon *d = w->a->d;
	const char *name = json_string_value(json_object_get(q, "model"));
	struct model_entry *m = name ? models_lookup(d, name) : NULL;
	struct error e = { 0 };

	if (m)
		model_revive(m);
	if (!name)
		(void)error_set(&e, TENON_E_INVALID, "load: names no model");
	else if (!models_find(d, name, strlen(name), &m, &e) && worker_link_hopeless(&d->worker))
		e = d->worker.last_death;
	if (e.code) {
		admin_answer_error(w, &e);
	} else if (m->state == MODEL_LOADED) {
		admin_answer(w, json_pack("{s:s, s:s}", "model", m->name, "state", "loaded"));
	} else {
		wait_for(w, m);
		model_load(m);
	}
}

static void on_unload(struct waiter *w, const json_t *q)
{
	const char *name = json_string_value(json_object_get(q, "model"));
	struct model_entry *m = name ? models_lookup(w->a->d, name) : NULL;
	json_int_t wait_s = json_integer_value(json_object_get(q, "wait_s"));
	struct error e = { 0 };

	if (!m)
		(void)error_set(&e, TENON_E_NOT_FOUND, "unload: no model of that name");
	else if (wait_s < 0 || wait_s > UNLOAD_WAIT_MAX_S)
		(void)error_set(&e, TENON_E_INVALID, "unload: wait 0 to %d seconds", UNLOAD_WAIT_MAX_S);
	else
		(void)model_leave(m, json_is_true(json_object_get(q, "force")), (uint64_t)wait_s * 1000, &e);
	if (e.code)
		admin_answer_error(w, &e);
	else
		wait_for(w, m);
}

/* The worker's answer is the daemon's. */
static void on_passed(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	(void)d;
	if (reply)
		admin_answer(ctx, json_deep_copy(reply));
	else
		admin_answer_error(ctx, e);
}

/* Limits for all models also hold for those that are loaded later, until the configuration is read again. */
static void keep_limits(struct conf *c, const json_t *q)
{
	const json_t *host = json_object_get(q, "host_bytes"), *disk = json_object_get(q, "disk_bytes");

	if (json_object_get(q, "model"))
		return;
	if (json_is_integer(host) && json_integer_value(host) >= 0)
		c->prefix.host_bytes = (uint64_t)json_integer_value(host);
	if (json_is_integer(disk) && json_integer_value(disk) >= 0)
		c->prefix.disk_bytes = (uint64_t)json_integer_value(disk);
}

static void on_prefix(struct waiter *w, const json_t *q)
{
	static const char *const things[] = { "status", "limits", "pins", "unpin", "purge" };
	const char *what = json_string_value(json_object_get(q, "do"));
	struct error e;
	size_t i = 0;

	while (what && i < COUNT_OF(things) && strcmp(things[i], what))
		i++;
	if (!what || i == COUNT_OF(things)) {
		(void)error_set(&e, TENON_E_INVALID, "prefix: say status, limits, pins, unpin or purge");
		admin_answer_error(w, &e);
		return;
	}
	if (!strcmp(what, "limits"))
		keep_limits(&w->a->d->conf, q);
	worker_link_call(&w->a->d->worker, json_deep_copy(q), WORKER_LONG_MS, on_passed, w);
}

void admin_model_settled(struct daemon *d, struct model_entry *m, const struct error *e)
{
	if (!d->admin)
		return;
	LIST_EACH(&d->admin->waiters, n)
	{
		struct waiter *w = CONTAINER_OF(n, struct waiter, node);

		if (w->model != m)
			continue;
		if (e)
			admin_answer_error(w, e);
		else
			admin_answer(w,
				json_pack("{s:s, s:s, s:I}", "model", m->name, "state",
					model_state_name(m->state), "load_ms",
					(json_int_t)(m->load_ns / NS_PER_MS)));
	}
}

static void on_log_level(struct waiter *w, const json_t *q)
{
	struct daemon *d = w->a->d;
	const char *name = json_string_value(json_object_get(q, "level"));
	enum log_level level;
	struct error e;

	if (name && !log_level_parse(name, &level)) {
		(void)error_set(&e, TENON_E_INVALID, "log-level: write error, warn, info, debug or trace");
		admin_answer_error(w, &e);
		return;
	}
	if (name) {
		log_set_level(d->log, level);
		worker_link_call(&d->worker, json_pack("{s:s, s:s}", "cmd", "log-level", "level", name),
			WORKER_MS, worker_no_reply, NULL);
	}
	admin_answer(w,
		json_pack("{s:s, s:I}", "level", log_level_name(log_get_level(d->log)), "dropped",
			(json_int_t)log_n_dropped(d->log)));
}

static void on_drain(struct waiter *w)
{
	struct daemon *d = w->a->d;

	admin_answer(w, json_pack("{s:s, s:I}", "state", "draining", "open", (json_int_t)d->requests.n_open));
	daemon_drain(d);
}

static void on_reload(struct waiter *w)
{
	struct daemon *d = w->a->d;

	admin_answer(w, json_pack("{s:s}", "state", "reloading"));
	daemon_reload(d);
}

/* ---- all of them ---------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*plain)(struct waiter *w);
	void (*with)(struct waiter *w, const json_t *q);
} commands[] = {
	{ "status", on_status, NULL },
	{ "sessions", on_sessions, NULL },
	{ "models", on_models, NULL },
	{ "jobs", on_jobs, NULL },
	{ "drop-job", NULL, on_drop_job },
	{ "queue", on_queue, NULL },
	{ "memory", on_memory, NULL },
	{ "backends", on_backends, NULL },
	{ "load", NULL, on_load },
	{ "unload", NULL, on_unload },
	{ "prefix", NULL, on_prefix },
	{ "log-level", NULL, on_log_level },
	{ "drain", on_drain, NULL },
	{ "reload", on_reload, NULL },
};

void admin_dispatch(struct waiter *w, const char *text, size_t len)
{
	json_error_t why;
	json_t *q = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	const char *cmd = json_string_value(json_object_get(q, "cmd"));
	struct error e;
	size_t i = 0;

	while (cmd && i < COUNT_OF(commands) && strcmp(commands[i].name, cmd))
		i++;
	if (!cmd || i == COUNT_OF(commands)) {
		(void)error_set(&e, TENON_E_INVALID,
			cmd ? "admin: unknown command" : "admin: not a JSON object with \"cmd\"");
		admin_answer_error(w, &e);
	} else if (commands[i].plain) {
		commands[i].plain(w);
	} else {
		commands[i].with(w, q);
	}
	json_decref(q);
}
