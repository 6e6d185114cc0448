/* SPDX-License-Identifier: Apache-2.0
 * The IO thread of a worker: frames from the daemon (checked like a client's), prompts handed to worker_prep.c, orders to
 * the step thread, replies and health back. The only consumer and producer of the `io` link.
 */
#include "daemon/worker.h"
#include "daemon/worker_priv.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	TAKE_FRAMES = 64,
	STATUS_BROKEN = 3,
	STATUS_FAILED = 4,
	STATUS_START = 5,
	PAYLOAD_MAX_BYTES = 64 << 20
};
#define HEALTH_NS NS_PER_S

struct shelf { /* loaded models, as this thread sees them */
	char name[WORKER_NAME_BYTES];
	const struct model *model;
};

struct io {
	struct worker w;
	struct link *link;
	uint8_t *frame;
	uint32_t frame_room;
	struct shelf shelf[WORKER_MODELS_MAX];
	uint32_t n_shelf;
	uint64_t last_id; /* V7 */
	/* the request whose payload comes in */
	uint64_t open_id; /* 0: none */
	struct frame_request f;
	uint8_t *body, *payload;
	uint64_t payload_have;
	json_t *setup;
	uint64_t health_ns;
	bool stop;
	int status;
	struct error error;
};

/* ---- to the daemon ------------------------------------------------------------------------------------------------------------ */

static void *put(struct io *io, uint16_t type, uint64_t id, uint32_t bytes)
{
	void *at;
	bool bad = false;

	while (!(at = ring_put(&io->link->out, type, 0, id, bytes, &bad)) && !bad &&
		bytes < ring_max_frame(io->link->tx.ring_bytes) / 2) {
		link_flush(io->link);
		(void)usleep(1000);
	}
	return at;
}

static void put_error(struct io *io, uint64_t id, int code, const char *text)
{
	size_t len = strnlen(text, 512);
	struct wire_error *w = put(io, WIRE_ERROR, id, (uint32_t)(sizeof *w + len));

	if (!w)
		return;
	*w = (struct wire_error){ .code = code, .text_bytes = (uint32_t)len };
	memcpy(w + 1, text, len);
}

static void reply(struct io *io, uint64_t id, const json_t *o, const struct error *e)
{
	json_t *err = e->code ? json_pack("{s:{s:i, s:s}}", "error", "code", e->code, "text", e->text) : NULL;
	static const char too_long[] =
		"{\"error\":{\"code\":-8,\"text\":\"worker: its answer does not fit its ring\"}}";
	char *text = json_dumps(err ? err : o, JSON_COMPACT);
	void *at = text ? put(io, WIRE_ADMIN_REPLY, id, (uint32_t)strlen(text)) : NULL;

	if (text && !at) {
		(void)strcpy(text, too_long); /* a longer one is what did not fit */
		at = put(io, WIRE_ADMIN_REPLY, id, sizeof too_long - 1);
	}
	if (at)
		memcpy(at, text, strlen(text));
	free(text);
	json_decref(err);
}

/* Published without a bell: whoever looks finds it, nobody is woken for it. */
static void health(struct io *io, uint64_t now_ns)
{
	struct wire_health *h;
	bool bad;

	if (now_ns - io->health_ns < HEALTH_NS)
		return;
	io->health_ns = now_ns;
	link_flush(io->link);
	h = ring_put(&io->link->out, WIRE_HEALTH, 0, 0, sizeof *h, &bad);
	if (!h)
		return;
	*h = (struct wire_health){ .now_ns = now_ns,
		.steps = atomic_load_explicit(&io->w.steps, memory_order_relaxed),
		.running = atomic_load_explicit(&io->w.running, memory_order_relaxed),
		.waiting = atomic_load_explicit(&io->w.waiting, memory_order_relaxed) };
	ring_publish(&io->link->out);
}

/* ---- requests ------------------------------------------------------------------------------------------------------------------ */

/* The step thread takes orders between steps; more than ORDERS_MAX in one step is more than the daemon has requests. */
static void order(struct io *io, enum order_kind kind, uint64_t id, void *what)
{
	while (!orders_push(&io->w.orders, (struct order){ .kind = kind, .id = id, .what = what }))
		(void)usleep(1000);
}

static const struct model *shelf_find(const struct io *io, const char *name, uint32_t len)
{
	for (uint32_t i = 0; i < io->n_shelf; i++)
		if (strlen(io->shelf[i].name) == len && !memcmp(io->shelf[i].name, name, len))
			return io->shelf[i].model;
	return NULL;
}

static void open_clear(struct io *io)
{
	mem_free(io->payload);
	mem_free(io->body);
	io->payload = io->body = NULL;
	io->open_id = 0;
}

/* The payload is complete. */
static void finish_request(struct io *io)
{
	const struct model *m = shelf_find(io, io->f.model, io->f.r.model_bytes);
	struct prepared *p = NULL;
	struct error e = { 0 };
	int rc = m ? worker_prepare(m, &io->f, io->open_id, io->payload, io->body, &p, &e)
		   : error_set(&e, TENON_E_NOT_FOUND, "request: its model is not loaded");

	if (rc) {
		put_error(io, io->open_id, rc, e.text);
	} else {
		io->body = NULL; /* the prepared request's */
		order(io, ORDER_SUBMIT, io->open_id, p);
	}
	open_clear(io);
}

static int take_payload(struct io *io, const uint8_t *data, uint32_t bytes, struct error *e)
{
	if (bytes > io->f.r.payload_bytes - io->payload_have)
		return error_set(e, TENON_E_PROTOCOL, "payload is longer than announced");
	if (bytes)
		memcpy(io->payload + io->payload_have, data, bytes);
	io->payload_have += bytes;
	return TENON_OK;
}

static int on_begin(struct io *io, const struct wire_head *h, uint32_t bytes, struct error *e)
{
	int rc;

	if (h->id <= io->last_id || io->open_id)
		return error_set(e, TENON_E_PROTOCOL, "BEGIN out of order");
	io->last_id = h->id;
	io->body = mem_alloc(MEM_DAEMON, bytes);
	if (!io->body)
		goto no_memory;
	memcpy(io->body, io->frame, bytes);
	rc = frame_request_parse(io->body, bytes, h->flags, false, PAYLOAD_MAX_BYTES, &io->f, e);
	if (rc)
		return rc;
	io->payload = mem_alloc(MEM_DAEMON, io->f.r.payload_bytes);
	if (!io->payload)
		goto no_memory;
	io->open_id = h->id;
	io->payload_have = 0;
	rc = take_payload(io, io->f.payload, io->f.payload_here, e);
	if (!rc && (h->flags & WIRE_LAST))
		finish_request(io);
	return rc;
no_memory:
	open_clear(io);
	put_error(io, h->id, TENON_E_NOMEM, "request: the worker is out of memory");
	return TENON_OK;
}

static int on_payload(struct io *io, const struct wire_head *h, uint32_t bytes, struct error *e)
{
	if (h->id != io->open_id)
		return h->id <= io->last_id ? TENON_OK
					    : error_set(e, TENON_E_PROTOCOL, "payload of no request");
	if (h->type == WIRE_DATA)
		return take_payload(io, io->frame, bytes, e);
	if (bytes || io->payload_have != io->f.r.payload_bytes)
		return error_set(e, TENON_E_PROTOCOL, "payload is shorter than announced");
	finish_request(io);
	return TENON_OK;
}

static void on_steer(struct io *io, const struct wire_head *h)
{
	if (h->type == WIRE_PAUSE)
		order(io, ORDER_PAUSE, h->id, NULL);
	else if (h->type == WIRE_RESUME)
		order(io, ORDER_RESUME, h->id, NULL);
	else if (h->id != io->open_id)
		order(io, ORDER_CANCEL, h->id, NULL);
	else {
		put_error(io, h->id, TENON_E_CANCELLED, "request: cancelled");
		open_clear(io);
	}
}

/* ---- commands ------------------------------------------------------------------------------------------------------------------ */

static int kind_of(const char *name)
{
	static const struct {
		const char *name;
		int kind;
	} kinds[] = { { "setup", COMMAND_SETUP }, { "load", COMMAND_LOAD }, { "unload", COMMAND_UNLOAD },
		{ "configure", COMMAND_CONFIGURE }, { "status", COMMAND_STATUS }, { "list", COMMAND_LIST },
		{ "prefix", COMMAND_PREFIX } };

	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			return kinds[i].kind;
	return COMMAND_BACKENDS;
}

static void send_command(struct io *io, const json_t *cmd, const char *name, uint64_t id)
{
	struct command *c = mem_zalloc(MEM_DAEMON, 1, sizeof *c);
	struct error e = { 0 };
	int rc = TENON_OK;

	if (!c) {
		(void)error_set(&e, TENON_E_NOMEM, "worker: out of memory");
		reply(io, id, NULL, &e);
		return;
	}
	c->id = id;
	c->kind = kind_of(name);
	switch (c->kind) {
	case COMMAND_SETUP:
		rc = worker_parse_setup(cmd, c, &e);
		break;
	case COMMAND_LOAD:
		rc = worker_parse_load(cmd, c, &e);
		break;
	case COMMAND_CONFIGURE:
		rc = settings_parse(json_object_get(cmd, "settings"), &c->settings, &e);
		break;
	case COMMAND_PREFIX:
		c->question = json_deep_copy(cmd);
		/* fall through */
	case COMMAND_UNLOAD:
		(void)snprintf(c->model, sizeof c->model, "%s",
			json_string_value(json_object_get(cmd, "model"))
				? json_string_value(json_object_get(cmd, "model"))
				: "");
		break;
	case COMMAND_BACKENDS:
		rc = io->w.probing ? error_set(&e, TENON_E_BUSY, "backends: are being probed; try again")
				   : worker_list_backends(&io->w, io->setup, c, &e);
		break;
	default:
		break;
	}
	if (rc) {
		reply(io, id, NULL, &e);
		command_free(c);
	} else if (c->kind != COMMAND_BACKENDS) {
		order(io, ORDER_COMMAND, id, c);
	}
}

/* No request of an unloading model is prepared any more; those before it are with the step thread. */
static void shelf_remove(struct io *io, const char *name)
{
	for (uint32_t i = 0; i < io->n_shelf; i++)
		if (!strcmp(io->shelf[i].name, name))
			io->shelf[i--] = io->shelf[--io->n_shelf];
}

static void set_level(struct io *io, const json_t *cmd)
{
	const char *name = json_string_value(json_object_get(cmd, "level"));
	enum log_level level;

	if (name && log_level_parse(name, &level))
		log_set_level(io->w.log, level);
}

static int on_command(struct io *io, const struct wire_head *h, uint32_t bytes, struct error *e)
{
	json_t *cmd = json_loadb((const char *)io->frame, bytes, 0, NULL), *o = NULL;
	const char *name = json_string_value(json_object_get(cmd, "cmd"));
	const struct error none = { 0 };

	if (!name) {
		json_decref(cmd);
		return error_set(e, TENON_E_PROTOCOL, "command is no JSON object with a name");
	}
	if (!strcmp(name, "stop")) {
		io->stop = true;
	} else if (!strcmp(name, "memory")) {
		o = worker_memory_json();
		reply(io, h->id, o, &none);
	} else if (!strcmp(name, "log-level")) {
		set_level(io, cmd);
		o = json_object();
		reply(io, h->id, o, &none);
	} else {
		if (!strcmp(name, "setup") && !io->setup)
			io->setup = json_deep_copy(cmd);
		if (!strcmp(name, "unload"))
			shelf_remove(io,
				json_string_value(json_object_get(cmd, "model"))
					? json_string_value(json_object_get(cmd, "model"))
					: "");
		send_command(io, cmd, name, h->id);
	}
	json_decref(o);
	json_decref(cmd);
	return TENON_OK;
}

static void on_outcome(struct io *io, struct command *c)
{
	if (c->kind == COMMAND_FAILED) {
		io->error = c->error;
		io->status = STATUS_FAILED;
		io->stop = true;
	} else {
		if (c->kind == COMMAND_BACKENDS) {
			(void)pthread_join(io->w.probe_thread, NULL);
			io->w.probing = false;
		}
		if (c->loaded && io->n_shelf < WORKER_MODELS_MAX) {
			io->shelf[io->n_shelf].model = c->loaded;
			memcpy(io->shelf[io->n_shelf++].name, c->model, sizeof c->model);
		}
		reply(io, c->id, c->reply, &c->error);
	}
	command_free(c);
}

/* ---- the loop ------------------------------------------------------------------------------------------------------------------ */

static int on_frame(struct io *io, const struct wire_head *h, struct error *e)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;
	void *at;

	switch (h->type) {
	case WIRE_BEGIN:
		return on_begin(io, h, bytes, e);
	case WIRE_DATA:
	case WIRE_END:
		return on_payload(io, h, bytes, e);
	case WIRE_CANCEL:
	case WIRE_PAUSE:
	case WIRE_RESUME:
		on_steer(io, h);
		return TENON_OK;
	case WIRE_PING:
		at = put(io, WIRE_PONG, h->id, bytes);
		if (at)
			memcpy(at, io->frame, bytes);
		return TENON_OK;
	case WIRE_ADMIN:
		return on_command(io, h, bytes, e);
	default:
		return error_set(e, TENON_E_PROTOCOL, "frame of an unknown type");
	}
}

static bool take_frames(struct io *io)
{
	struct wire_head h;
	bool any = false;
	int rc = TENON_OK;

	for (int n = 0; n < TAKE_FRAMES && !rc && !io->stop; n++) {
		rc = ring_take(&io->link->in, &h, io->frame, io->frame_room);
		if (rc == TENON_E_PROTOCOL || rc == TENON_E_TOO_LONG)
			(void)error_set(&io->error, rc, "ring: impossible indices or length");
		else if (!rc)
			rc = on_frame(io, &h, &io->error);
		any |= !rc;
	}
	ring_consumed(&io->link->in);
	if (rc && rc != TENON_E_AGAIN) {
		io->status = STATUS_BROKEN;
		io->stop = true;
	}
	return any;
}

static bool take_outcomes(struct io *io)
{
	struct command *c;
	bool any = false;

	while ((c = outcomes_take(&io->w.outcomes)) != NULL) {
		on_outcome(io, c);
		any = true;
	}
	return any;
}

/* A process dies with its daemon (PR_SET_PDEATHSIG); a thread is told to stop. */
static void park(struct io *io)
{
	struct pollfd p[] = { { .fd = bell_fd(io->link->bell), .events = POLLIN },
		{ .fd = io->w.outcomes.bell, .events = POLLIN } };

	if (!park_begin(&io->link->tx, &io->link->in))
		return;
	(void)poll(p, 2, (int)(HEALTH_NS / NS_PER_MS));
	park_end(&io->link->tx);
	if (p[0].revents)
		bell_drain(io->link->bell);
}

static void run(struct io *io)
{
	while (!io->stop) {
		bool any = take_frames(io);

		any |= take_outcomes(io);
		link_flush(io->link);
		health(io, clock_now_ns());
		if (!any && !io->stop)
			park(io);
	}
}

/* ---- life ----------------------------------------------------------------------------------------------------------------------- */

static int start(struct io *io)
{
	io->frame_room = ring_max_frame(io->link->rx.ring_bytes);
	io->frame = mem_alloc(MEM_DAEMON, io->frame_room);
	io->w.orders.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	io->w.outcomes.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	io->w.outcomes.last = &io->w.outcomes.first;
	(void)pthread_mutex_init(&io->w.outcomes.lock, NULL);
	if (!io->frame || io->w.orders.bell < 0 || io->w.outcomes.bell < 0)
		return error_set(&io->error, TENON_E_NOMEM, "no memory");
	if (pthread_create(&io->w.step_thread, NULL, worker_step_main, &io->w))
		return error_set(&io->error, TENON_E_NOMEM, "no thread");
	return TENON_OK;
}

static void finish(struct io *io, bool started)
{
	struct command *c;

	if (started) {
		atomic_store(&io->w.stopping, true);
		order(io, ORDER_STOP, 0, NULL);
		(void)pthread_join(io->w.step_thread, NULL);
	}
	if (io->w.probing)
		(void)pthread_join(io->w.probe_thread, NULL);
	while ((c = outcomes_take(&io->w.outcomes)) != NULL)
		command_free(c);
	open_clear(io);
	json_decref(io->setup);
	(void)close(io->w.orders.bell);
	(void)close(io->w.outcomes.bell);
	(void)pthread_mutex_destroy(&io->w.outcomes.lock);
	mem_free(io->frame);
}

int worker_run(struct worker_ends *ends, struct log *log, bool own_process)
{
	struct io *io = mem_zalloc(MEM_DAEMON, 1, sizeof *io);
	bool started;
	int status;

	if (!io)
		return STATUS_START;
	io->w.ends = ends;
	io->w.log = log;
	io->link = &ends->io;
	started = !start(io);
	if (started)
		run(io);
	status = started ? io->status : STATUS_START;
	if (status)
		(void)fprintf(stderr, "%s\n", io->error.text);
	if (status == STATUS_FAILED && own_process)
		_exit(status); /* a lost device may hang whoever closes it */
	finish(io, started);
	mem_free(io);
	return status;
}

static int import(
	const char *list, struct worker_ends *ends, int *log_fd, int *level, int *format, int *parent)
{
	struct link_fds io = { 0 }, tok = { 0 };
	unsigned long long io_bytes, tok_bytes;
	struct error e = { 0 };
	int box;

	if (sscanf(list, "%d,%d,%d,%d,%llu,%d,%d,%d,%d,%llu,%d,%d,%d,%d,%d", &io.tx, &io.rx, &io.ring,
		    &io.wait, &io_bytes, &tok.tx, &tok.rx, &tok.ring, &tok.wait, &tok_bytes, &box, log_fd,
		    level, format, parent) != 15) {
		(void)fputs("tenond --worker: is started by tenond, not by hand\n", stderr);
		return STATUS_START;
	}
	io.ring_bytes = io_bytes;
	tok.ring_bytes = tok_bytes;
	if (!link_import(&io, &ends->io, &e) && !link_import(&tok, &ends->tok, &e) &&
		!box_open(&ends->box, box, &e))
		return 0;
	(void)fprintf(stderr, "%s\n", e.text);
	return STATUS_START;
}

int worker_main(const char *list)
{
	struct worker_ends *ends = mem_zalloc(MEM_DAEMON, 1, sizeof *ends);
	int log_fd = -1, level = LOG_INFO, format = LOG_TEXT, parent = 0, status = ends ? 0 : STATUS_START;
	struct log *log;

	if (!status)
		status = import(list, ends, &log_fd, &level, &format, &parent);
	if (status) {
		worker_ends_free(ends);
		return status;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return STATUS_START; /* the daemon has died meanwhile */
	(void)prctl(PR_SET_NAME, "tenon-worker");
	log = log_create(log_fd == STDERR_FILENO ? STDOUT_FILENO : log_fd, (enum log_format)format,
		(enum log_level)level);
	status = worker_run(ends, log, true);
	log_destroy(log);
	worker_ends_free(ends);
	return status;
}
