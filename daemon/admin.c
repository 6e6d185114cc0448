/* SPDX-License-Identifier: Apache-2.0
 * The control socket: a ZeroMQ ROUTER at DIR/admin, one JSON object in, one out, at most 64 KiB each. Loop thread. Who may
 * connect is decided by the folder and the socket's mode; what comes is checked all the same. Nothing here waits:
 * answers that need the worker come when it has answered.
 */
#include "daemon/daemon.h"
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { BATCH = 16, MESSAGE_MAX_BYTES = 64 << 10, ID_MAX_BYTES = 64, WAITERS_MAX = 64, LIST_MAX = 200 };
#define WORKER_MS   2000
#define BACKENDS_MS 30000

struct waiter {		  /* one question on its way */
	struct node node; /* in admin.waiters */
	struct admin *a;
	uint8_t id[ID_MAX_BYTES];
	size_t id_len;
	bool delimiter;		   /* asked by a REQ socket */
	json_t *answer;		   /* what the daemon itself knows of it */
	struct model_entry *model; /* load, unload: waits for this one */
};

struct admin {
	struct daemon *d;
	void *ctx, *sock;
	char path[112];
	struct watch watch;
	struct timer soon;
	struct task again; /* a send may have swallowed the descriptor's edge */
	struct list waiters;
	uint32_t n_waiters;
	uint64_t n_questions;
};

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

static void send_text(struct waiter *w, const char *text, size_t len)
{
	void *sock = w->a->sock;

	if (zmq_send(sock, w->id, w->id_len, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 &&
		(!w->delimiter || zmq_send(sock, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0))
		(void)zmq_send(sock, text, len, ZMQ_DONTWAIT);
	loop_defer(&w->a->d->loop, &w->a->again);
}

static void waiter_free(struct waiter *w)
{
	node_remove(&w->node);
	w->a->n_waiters--;
	if (w->model)
		w->model->pending--;
	json_decref(w->answer);
	mem_free(w);
}

/* Takes both references. */
static void answer(struct waiter *w, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	static const char too_long[] =
		"{\"error\":{\"code\":\"too_long\",\"message\":\"admin: the answer is over 64 KiB\"}}";

	if (text && strlen(text) <= MESSAGE_MAX_BYTES)
		send_text(w, text, strlen(text));
	else
		send_text(w, too_long, sizeof too_long - 1);
	free(text);
	json_decref(o);
	waiter_free(w);
}

static void answer_error(struct waiter *w, const struct error *e)
{
	answer(w, json_pack("{s:{s:s, s:s}}", "error", "code", error_name(e->code), "message", e->text));
}

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

static void on_status(struct waiter *w)
{
	struct daemon *d = w->a->d;
	json_t *loop = json_pack("{s:I, s:I, s:I}", "turns", (json_int_t)d->loop.n_turns, "parks",
		(json_int_t)d->loop.n_parks, "spins", (json_int_t)d->loop.n_spins);

	answer(w,
		json_pack("{s:s, s:i, s:I, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "version",
			PACKAGE_VERSION, "pid", (int)getpid(), "uptime_ms",
			(json_int_t)((clock_now_ns() - d->started_ns) / NS_PER_MS), "state",
			d->draining ? "draining" : "running", "socket", d->conf.socket, "descriptors",
			(int)count_fds(), "sessions", sessions_brief(d), "requests", requests_json(d),
			"worker", worker_link_json(&d->worker), "models", models_json(d), "loop", loop));
}

static json_t *session_json(const struct session *s)
{
	return json_pack("{s:I, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:b}", "session",
		(json_int_t)s->link.session, "uid", (json_int_t)s->account->uid, "pid", (int)s->peer_pid,
		"age_ms", (json_int_t)((s->d->loop.now_ns - s->attached_ns) / NS_PER_MS), "open",
		(json_int_t)s->n_open, "requests", (json_int_t)s->n_requests, "tokens",
		(json_int_t)s->n_tokens, "backlog_bytes", (json_int_t)(s->backlog.len - s->backlog_at),
		"bell", s->bell.fd >= 0 ? "eventfd" : "zmq", "paused", s->paused, "blocked",
		s->blocked_ns != 0);
}

static void on_sessions(struct waiter *w)
{
	struct daemon *d = w->a->d;
	json_t *all = json_array();
	uint32_t n = 0;

	LIST_EACH(&d->sessions.open, node)
	if (n++ < LIST_MAX)
		(void)json_array_append_new(all, session_json(CONTAINER_OF(node, struct session, node)));
	answer(w,
		json_pack("{s:o, s:I, s:I}", "sessions", all, "open", (json_int_t)n, "omitted",
			(json_int_t)(n > LIST_MAX ? n - LIST_MAX : 0)));
}

static void on_models(struct waiter *w) { answer(w, json_pack("{s:o}", "models", models_json(w->a->d))); }

static json_t *request_json(const struct daemon *d, const struct request *r)
{
	static const char *const states[] = { "filling", "waiting", "sending", "running" };

	return json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:s, s:i, s:b, s:I}", "session",
		(json_int_t)(r->session ? r->session->link.session : 0), "id", (json_int_t)r->id, "model",
		r->model ? r->model->name : "", "state", r->session ? states[r->state] : "cancelling",
		"prompt_bytes", (json_int_t)r->payload_bytes, "tokens", (json_int_t)r->n_ids, "age_ms",
		(json_int_t)(r->time.arrived_ns ? (d->loop.now_ns - r->time.arrived_ns) / NS_PER_MS : 0),
		"class", r->f.r.traffic_class == WIRE_OFFLINE ? "offline" : "online", "priority",
		(int)r->f.r.priority, "paused", r->paused, "replayed", (json_int_t)r->n_replayed);
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
	answer(w, o);
}

static void on_worker_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	(void)d;
	finish_with(ctx, "worker", reply, e);
}

static void ask_worker(struct waiter *w, const char *cmd, uint64_t timeout_ms, json_t *own)
{
	w->answer = own;
	worker_link_call(&w->a->d->worker, json_pack("{s:s}", "cmd", cmd), timeout_ms, on_worker_reply, w);
}

static void on_queue(struct waiter *w)
{
	struct daemon *d = w->a->d;
	json_t *all = json_array();
	uint32_t n = 0;

	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		if (d->requests.slot[i] && n++ < LIST_MAX)
			(void)json_array_append_new(all, request_json(d, d->requests.slot[i]));
	ask_worker(w, "status", WORKER_MS,
		json_pack("{s:o, s:I, s:o}", "requests", all, "omitted",
			(json_int_t)(n > LIST_MAX ? n - LIST_MAX : 0), "totals", requests_json(d)));
}

static json_t *own_memory(const struct daemon *d)
{
	json_t *areas = json_object();
	long size = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	for (int a = 0; a < MEM_N_AREAS; a++)
		(void)json_object_set_new(areas, mem_area_name((enum mem_area)a),
			json_integer((json_int_t)mem_area_bytes((enum mem_area)a)));
	if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		(void)fclose(f);
	return json_pack("{s:o, s:I, s:I, s:I}", "areas", areas, "resident",
		(json_int_t)resident * sysconf(_SC_PAGESIZE), "allocations", (json_int_t)mem_n_allocs(),
		"sessions_shared", (json_int_t)d->sessions.shared_bytes);
}

static json_t *ledger(struct daemon *d)
{
	json_t *all = json_object();

	LIST_EACH(&d->models.all, n)
	{
		struct model_entry *m = CONTAINER_OF(n, struct model_entry, node);

		if (m->state == MODEL_LOADED && m->info)
			(void)json_object_set(all, m->name, m->info);
	}
	return all;
}

static void on_memory(struct waiter *w)
{
	struct daemon *d = w->a->d;

	ask_worker(w, "memory", WORKER_MS,
		json_pack("{s:o, s:o, s:b}", "daemon", own_memory(d), "models", ledger(d), "one_process",
			d->worker.threaded));
}

static void on_backends_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct waiter *w = ctx;

	(void)d;
	if (reply)
		answer(w,
			json_pack("{s:O, s:s}", "backends", json_object_get(reply, "backends"), "in_use",
				json_string_value(json_object_get(d->worker.about, "backend"))
					? json_string_value(json_object_get(d->worker.about, "backend"))
					: ""));
	else
		answer_error(w, e);
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
		answer_error(w, &e);
	} else if (m->state == MODEL_LOADED) {
		answer(w, json_pack("{s:s, s:s}", "model", m->name, "state", "loaded"));
	} else {
		wait_for(w, m);
		model_load(m);
	}
}

static void on_unload(struct waiter *w, const json_t *q)
{
	const char *name = json_string_value(json_object_get(q, "model"));
	struct model_entry *m = name ? models_lookup(w->a->d, name) : NULL;
	struct error e = { 0 };

	if (!m)
		(void)error_set(&e, TENON_E_NOT_FOUND, "unload: no model of that name");
	else
		(void)model_unload(m, &e);
	if (e.code)
		answer_error(w, &e);
	else
		wait_for(w, m);
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
			answer_error(w, e);
		else
			answer(w,
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
		answer_error(w, &e);
		return;
	}
	if (name) {
		log_set_level(d->log, level);
		worker_link_call(&d->worker, json_pack("{s:s, s:s}", "cmd", "log-level", "level", name),
			WORKER_MS, worker_no_reply, NULL);
	}
	answer(w,
		json_pack("{s:s, s:I}", "level", log_level_name(log_get_level(d->log)), "dropped",
			(json_int_t)log_n_dropped(d->log)));
}

static void on_drain(struct waiter *w)
{
	struct daemon *d = w->a->d;

	answer(w, json_pack("{s:s, s:I}", "state", "draining", "open", (json_int_t)d->requests.n_open));
	daemon_drain(d);
}

static void on_reload(struct waiter *w)
{
	struct daemon *d = w->a->d;

	answer(w, json_pack("{s:s}", "state", "reloading"));
	daemon_reload(d);
}

/* ---- questions ---------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*plain)(struct waiter *w);
	void (*with)(struct waiter *w, const json_t *q);
} commands[] = {
	{ "status", on_status, NULL },
	{ "sessions", on_sessions, NULL },
	{ "models", on_models, NULL },
	{ "queue", on_queue, NULL },
	{ "memory", on_memory, NULL },
	{ "backends", on_backends, NULL },
	{ "load", NULL, on_load },
	{ "unload", NULL, on_unload },
	{ "log-level", NULL, on_log_level },
	{ "drain", on_drain, NULL },
	{ "reload", on_reload, NULL },
};

static void dispatch(struct waiter *w, const char *text, size_t len)
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
		answer_error(w, &e);
	} else if (commands[i].plain) {
		commands[i].plain(w);
	} else {
		commands[i].with(w, q);
	}
	json_decref(q);
}

static bool more_parts(void *sock)
{
	int more = 0;
	size_t len = sizeof more;

	return !zmq_getsockopt(sock, ZMQ_RCVMORE, &more, &len) && more;
}

/* [id] ([""]) [JSON]; whatever else is dropped. False: none there. */
static bool take_question(struct admin *a)
{
	struct waiter *w = mem_zalloc(MEM_DAEMON, 1, sizeof *w);
	zmq_msg_t body;
	int n = w ? zmq_recv(a->sock, w->id, sizeof w->id, ZMQ_DONTWAIT) : -1;
	bool ok = n > 0 && n <= ID_MAX_BYTES && more_parts(a->sock);
	uint32_t parts = 0;

	if (n < 0) {
		mem_free(w);
		return false;
	}
	(void)zmq_msg_init(&body);
	while (more_parts(a->sock)) {
		if (parts++ && zmq_msg_size(&body))
			ok = false; /* only an empty part may stand before the last one */
		w->delimiter = parts > 1;
		if (zmq_msg_recv(&body, a->sock, ZMQ_DONTWAIT) < 0)
			break;
	}
	if (ok && parts >= 1 && parts <= 2 && a->n_waiters < WAITERS_MAX) {
		w->a = a;
		w->id_len = (size_t)n;
		list_append(&a->waiters, &w->node);
		a->n_waiters++;
		a->n_questions++;
		dispatch(w, zmq_msg_data(&body), zmq_msg_size(&body));
	} else {
		mem_free(w);
	}
	(void)zmq_msg_close(&body);
	return true;
}

static bool readable(struct admin *a)
{
	int events = 0;
	size_t len = sizeof events;

	return !zmq_getsockopt(a->sock, ZMQ_EVENTS, &events, &len) && (events & ZMQ_POLLIN);
}

static void take_questions(struct admin *a)
{
	for (int i = 0; i < BATCH && readable(a) && take_question(a); i++)
		;
	if (readable(a)) /* the descriptor's edge is gone: the rest in the next turn */
		(void)timer_set(&a->d->loop.timers, &a->soon, a->d->loop.now_ns + 1);
}

static void on_soon(struct timer *t, uint64_t now_ns)
{
	(void)now_ns;
	take_questions(CONTAINER_OF(t, struct admin, soon));
}

static void on_again(struct task *t) { take_questions(CONTAINER_OF(t, struct admin, again)); }

static void on_readable(struct watch *w, uint32_t events)
{
	(void)events;
	take_questions(CONTAINER_OF(w, struct admin, watch));
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------- */

static int set_option(struct admin *a, int option, int value)
{
	return zmq_setsockopt(a->sock, option, &value, sizeof value);
}

static int bind_socket(struct admin *a, struct error *e)
{
	int64_t most = MESSAGE_MAX_BYTES;
	char endpoint[128];

	(void)snprintf(endpoint, sizeof endpoint, "ipc://%s", a->path);
	(void)unlink(a->path);
	if (set_option(a, ZMQ_LINGER, 100) || set_option(a, ZMQ_SNDHWM, 64) ||
		set_option(a, ZMQ_RCVHWM, 64) || set_option(a, ZMQ_HANDSHAKE_IVL, 1000) ||
		zmq_setsockopt(a->sock, ZMQ_MAXMSGSIZE, &most, sizeof most) || zmq_bind(a->sock, endpoint))
		return error_set(e, TENON_E_IO, "admin socket %.100s: %s", a->path, zmq_strerror(errno));
	if (chmod(a->path, 0660))
		return error_errno(e, TENON_E_IO, errno, "admin socket %.100s", a->path);
	return TENON_OK;
}

static int give_to_group(struct admin *a, struct error *e)
{
	const char *name = a->d->conf.admin.group;
	const struct group *g = *name ? getgrnam(name) : NULL;

	if (!*name)
		return TENON_OK;
	if (!g)
		return error_set(e, TENON_E_CONFIG, "admin.group: no group '%.32s' on this machine", name);
	if (chown(a->path, (uid_t)-1, g->gr_gid))
		return error_errno(e, TENON_E_IO, errno, "admin socket %.100s", a->path);
	return TENON_OK;
}

static int watch_socket(struct admin *a, struct error *e)
{
	int fd = -1;
	size_t len = sizeof fd;

	if (zmq_getsockopt(a->sock, ZMQ_FD, &fd, &len))
		return error_set(e, TENON_E_IO, "admin socket: %s", zmq_strerror(errno));
	return loop_watch(&a->d->loop, &a->watch, fd, EPOLLIN | EPOLLET, e);
}

int admin_open(struct daemon *d, struct error *e)
{
	struct admin *a = mem_zalloc(MEM_DAEMON, 1, sizeof *a);
	int rc;

	if (!a)
		return error_set(e, TENON_E_NOMEM, "admin socket: out of memory");
	d->admin = a;
	a->d = d;
	a->watch = (struct watch){ .fd = -1, .ready = on_readable };
	a->again.run = on_again;
	a->soon.fire = on_soon;
	list_init(&a->waiters);
	if ((size_t)snprintf(a->path, sizeof a->path, "%s/admin", d->conf.runtime_dir) >= 107)
		return error_set(e, TENON_E_TOO_LONG, "runtime_dir %.60s...: too long for a socket",
			d->conf.runtime_dir);
	a->ctx = zmq_ctx_new();
	a->sock = a->ctx ? zmq_socket(a->ctx, ZMQ_ROUTER) : NULL;
	if (!a->sock)
		return error_set(e, TENON_E_NOMEM, "admin socket: %s", zmq_strerror(errno));
	rc = bind_socket(a, e);
	if (!rc)
		rc = give_to_group(a, e);
	if (!rc)
		rc = watch_socket(a, e);
	return rc;
}

/* After the worker's end: only those remain who wait for a model. */
void admin_close(struct daemon *d)
{
	struct admin *a = d->admin;
	struct error e;

	if (!a)
		return;
	(void)error_set(&e, TENON_E_DRAINING, "admin: the daemon has ended");
	LIST_EACH(&a->waiters, n)
	answer_error(CONTAINER_OF(n, struct waiter, node), &e);
	d->admin = NULL;
	loop_unwatch(&d->loop, &a->watch);
	timer_clear(&d->loop.timers, &a->soon);
	node_remove(&a->again.node);
	if (a->sock)
		(void)zmq_close(a->sock);
	if (a->ctx)
		(void)zmq_ctx_term(a->ctx);
	(void)unlink(a->path);
	mem_free(a);
}
