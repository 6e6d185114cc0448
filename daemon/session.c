/* SPDX-License-Identifier: Apache-2.0
 * One session: frames from the client, events to it, the backlog of a slow reader, its end. Loop thread. The client is
 * hostile: a frame is copied once into daemon.frame, and only the copy is looked at.
 */
#include "daemon/daemon.h"
#include <string.h>
#include <sys/epoll.h>

enum { PUMP_FRAMES = 64, PING_MAX_BYTES = 64, INPUT_STOPS_BYTES = 64 << 10, TRIMMED_BYTES = 256 };
#define BLOCKED_POLL_NS (5 * NS_PER_MS)
#define PAUSED_POLL_NS	(20 * NS_PER_MS)

/* ---- events to the client -------------------------------------------------------------------------------------- */

static size_t backlog_bytes(const struct session *s) { return s->backlog.len - s->backlog_at; }

static size_t padded(size_t bytes) { return (bytes + WIRE_ALIGN - 1) & ~(size_t)(WIRE_ALIGN - 1); }

static void blocked_begin(struct session *s)
{
	if (s->blocked_ns)
		return;
	s->blocked_ns = s->d->loop.now_ns;
	(void)timer_set(&s->d->loop.timers, &s->blocked, s->blocked_ns + BLOCKED_POLL_NS);
}

/* Room for one frame at the end of the backlog; the timer drains it. */
static void *backlog_put(struct session *s, uint16_t type, uint64_t id, uint32_t bytes)
{
	struct wire_head h = { .bytes = (uint32_t)sizeof h + bytes, .type = type, .id = id };
	size_t all = padded(h.bytes);
	char *at;

	if (!buf_reserve(&s->backlog, all)) {
		s->backlog.failed = false;
		return NULL;
	}
	at = s->backlog.data + s->backlog.len;
	memcpy(at, &h, sizeof h);
	memset(at + sizeof h, 0, all - sizeof h);
	s->backlog.len += all;
	blocked_begin(s);
	if (backlog_bytes(s) > s->link.tx.ring_bytes)
		s->overflowed = true;
	return at + sizeof h;
}

void *session_put(struct session *s, uint16_t type, uint64_t id, uint32_t bytes, bool *too_long)
{
	bool bad = false;
	void *at = NULL;

	if (s->closed || s->violated)
		return NULL;
	if (sizeof(struct wire_head) + bytes > ring_max_frame(s->link.tx.ring_bytes)) {
		if (too_long)
			*too_long = true;
		return NULL;
	}
	if (!backlog_bytes(s))
		at = ring_put(&s->link.out, type, 0, id, bytes, &bad);
	if (at)
		loop_defer(&s->d->loop, &s->flush);
	else if (bad)
		session_violated(s, TENON_E_PROTOCOL, "ring: impossible indices");
	else
		at = backlog_put(s, type, id, bytes);
	return at;
}

void session_send_error(struct session *s, uint64_t id, int code, const char *text)
{
	size_t len = strnlen(text, TRIMMED_BYTES);
	struct wire_error *w;

	while (len && !utf8_valid(text, len, NULL))
		len--;
	w = session_put(s, WIRE_ERROR, id, (uint32_t)(sizeof *w + len), NULL);
	if (!w)
		return;
	*w = (struct wire_error){ .code = code, .text_bytes = (uint32_t)len };
	memcpy(w + 1, text, len);
}

void session_send_state(struct session *s, uint64_t id, uint32_t phase, uint32_t permille)
{
	struct wire_state *w = session_put(s, WIRE_STATE, id, sizeof *w, NULL);

	if (w)
		*w = (struct wire_state){ .phase = phase, .permille = permille };
}

/* End of the turn: what was put becomes visible; who broke the rules is out. */
static void flush(struct task *t)
{
	struct session *s = CONTAINER_OF(t, struct session, flush);

	link_flush(&s->link);
	if (s->violated)
		session_close(s, "broke the protocol");
}

/* ---- slow readers ------------------------------------------------------------------------------------------------ */

/* True: the backlog is empty. */
static bool backlog_drain(struct session *s)
{
	while (backlog_bytes(s)) {
		const char *at = s->backlog.data + s->backlog_at;
		struct wire_head h;
		bool bad = false;
		void *to;

		memcpy(&h, at, sizeof h);
		to = ring_put(&s->link.out, h.type, 0, h.id, h.bytes - (uint32_t)sizeof h, &bad);
		if (bad) {
			session_violated(s, TENON_E_PROTOCOL, "ring: impossible indices");
			return false;
		}
		if (!to)
			break;
		memcpy(to, at + sizeof h, h.bytes - sizeof h);
		s->backlog_at += padded(h.bytes);
	}
	link_flush(&s->link);
	if (backlog_bytes(s))
		return false;
	buf_clear(&s->backlog);
	s->backlog_at = 0;
	return true;
}

static void set_paused(struct session *s, bool paused)
{
	s->paused = paused;
	for (uint32_t i = 0; i < s->n_open; i++)
		request_set_paused(s->open[i], paused);
}

/* Durable ones end for this session only. */
static void fail_all(struct session *s, int code, const char *text)
{
	while (s->n_open) {
		struct request *r = s->open[s->n_open - 1];

		if (r->job && r->state != REQUEST_FILLING) {
			session_send_error(s, r->id, code, text);
			request_leave(r);
		} else {
			request_fail(r, code, text);
		}
	}
}

/* The ring was full: is there room now, and if not, for how long has it been so? */
static void blocked_check(struct timer *t, uint64_t now_ns)
{
	struct session *s = CONTAINER_OF(t, struct session, blocked);
	const struct conf *c = &s->d->conf;

	if (backlog_drain(s)) {
		s->blocked_ns = 0;
		s->overflowed = false;
		set_paused(s, false);
		loop_wake(&s->d->loop, &s->source); /* it may have dozed without its flag */
		return;
	}
	if (s->violated)
		return;
	if (now_ns - s->blocked_ns > c->slow_reader.cancel_s * NS_PER_S || s->overflowed) {
		s->d->sessions.n_slow_cancelled += s->n_open;
		fail_all(s, TENON_E_SLOW_READER,
			"request: its events were not read in time; read them as they come");
	} else if (!s->paused && now_ns - s->blocked_ns > c->slow_reader.pause_ms * NS_PER_MS) {
		set_paused(s, true);
	}
	(void)timer_set(&s->d->loop.timers, t, now_ns + (s->paused ? PAUSED_POLL_NS : BLOCKED_POLL_NS));
}

/* ---- open requests ----------------------------------------------------------------------------------------------- */

/* Index of `id`, or of where it would stand. */
static uint32_t open_place(const struct session *s, uint64_t id)
{
	uint32_t lo = 0, hi = s->n_open;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (s->open[mid]->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct request *request_of_session(const struct session *s, uint64_t id)
{
	uint32_t i = open_place(s, id);

	return i < s->n_open && s->open[i]->id == id ? s->open[i] : NULL;
}

/* Ids ascend, so a new one belongs at the end. */
int session_adopt(struct session *s, struct request *r)
{
	struct request **grown;

	if (s->n_open == s->cap_open) {
		uint32_t cap = s->cap_open ? 2 * s->cap_open : 16;

		grown = mem_resize(MEM_DAEMON, s->open, cap * sizeof(*grown));
		if (!grown)
			return TENON_E_NOMEM;
		s->open = grown;
		s->cap_open = cap;
	}
	s->open[s->n_open++] = r;
	return TENON_OK;
}

void session_forget(struct session *s, struct request *r)
{
	uint32_t i = open_place(s, r->id);

	if (i < s->n_open && s->open[i] == r) {
		memmove(&s->open[i], &s->open[i + 1], (s->n_open - i - 1) * sizeof(*s->open));
		s->n_open--;
	}
}

/* ---- frames from the client -------------------------------------------------------------------------------------- */

static int on_begin(
	struct session *s, const struct wire_head *h, const uint8_t *body, uint32_t bytes, struct error *e)
{
	struct frame_request f;
	int rc;

	if (!h->id || h->id <= s->last_id)
		return error_set(e, TENON_E_PROTOCOL, "BEGIN: ids must ascend");
	s->last_id = h->id;
	s->n_requests++;
	rc = frame_request_parse(body, bytes, h->flags, true, s->d->conf.limits.prompt_bytes, &f, e);
	if (rc == TENON_E_PROTOCOL)
		return rc;
	if (rc) {
		s->d->requests.n_failed++;
		session_send_error(s, h->id, rc, e->text);
		return TENON_OK;
	}
	if (!request_begin(s, h->id, &f, body, bytes, h->flags & WIRE_LAST))
		return error_set(e, TENON_E_PROTOCOL, "BEGIN: payload differs from its announced length");
	return TENON_OK;
}

/* DATA, END, CANCEL. Requests that have ended meanwhile, or were refused at BEGIN, are passed over. */
static int on_open(
	struct session *s, const struct wire_head *h, const uint8_t *body, uint32_t bytes, struct error *e)
{
	struct request *r = request_of_session(s, h->id);

	if (!h->id || h->id > s->last_id)
		return error_set(e, TENON_E_PROTOCOL, "frame: names a request that was never begun");
	if (h->type != WIRE_DATA && bytes)
		return error_set(e, TENON_E_PROTOCOL, "frame: has a body where none belongs");
	if (!r)
		return TENON_OK;
	if (h->type == WIRE_CANCEL) {
		request_fail(r, TENON_E_CANCELLED, "request: cancelled by its client");
		return TENON_OK;
	}
	if (r->state != REQUEST_FILLING)
		return error_set(e, TENON_E_PROTOCOL, "frame: payload after its end");
	if ((h->type == WIRE_DATA ? request_data(r, body, bytes) : request_end(r)) != TENON_OK)
		return error_set(e, TENON_E_PROTOCOL, "frame: payload differs from its announced length");
	return TENON_OK;
}

static int on_ping(
	struct session *s, const struct wire_head *h, const uint8_t *body, uint32_t bytes, struct error *e)
{
	void *to;

	if (bytes > PING_MAX_BYTES)
		return error_set(e, TENON_E_PROTOCOL, "PING: over 64 bytes");
	to = session_put(s, WIRE_PONG, h->id, bytes, NULL);
	if (to)
		memcpy(to, body, bytes);
	return TENON_OK;
}

static int on_frame(struct session *s, const struct wire_head *h, const uint8_t *body, struct error *e)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;

	s->d->sessions.n_frames++;
	if (h->flags && h->type != WIRE_BEGIN)
		return error_set(e, TENON_E_PROTOCOL, "frame: unknown flags");
	switch (h->type) {
	case WIRE_BEGIN:
		return on_begin(s, h, body, bytes, e);
	case WIRE_DATA:
	case WIRE_END:
	case WIRE_CANCEL:
		return on_open(s, h, body, bytes, e);
	case WIRE_PING:
		return on_ping(s, h, body, bytes, e);
	default:
		return error_set(e, TENON_E_PROTOCOL, "frame: type %u is not for clients", h->type);
	}
}

static struct session *of_source(struct source *src) { return CONTAINER_OF(src, struct session, source); }

static bool source_ready(struct source *src)
{
	struct session *s = of_source(src);

	return !s->violated && backlog_bytes(s) <= INPUT_STOPS_BYTES && ring_ready(&s->link.in);
}

static bool source_pump(struct source *src)
{
	struct session *s = of_source(src);
	struct wire_head h;
	struct error e = { 0 };
	int rc = TENON_OK;

	for (int n = 0; n < PUMP_FRAMES && !rc && !s->violated; n++) {
		rc = ring_take(&s->link.in, &h, s->d->frame, s->d->frame_room);
		if (rc == TENON_E_TOO_LONG || rc == TENON_E_PROTOCOL)
			(void)error_set(&e, rc, "ring: impossible indices or length");
		else if (!rc)
			rc = on_frame(s, &h, s->d->frame, &e);
	}
	ring_consumed(&s->link.in);
	if (rc && rc != TENON_E_AGAIN)
		session_violated(s, TENON_E_PROTOCOL, e.text);
	return true;
}

static bool source_doze(struct source *src)
{
	struct session *s = of_source(src);

	return backlog_bytes(s) > INPUT_STOPS_BYTES ? (park_end(&s->link.tx), true)
						    : park_begin(&s->link.tx, &s->link.in);
}

static void source_rise(struct source *src) { park_end(&of_source(src)->link.tx); }

/* ---- life ----------------------------------------------------------------------------------------------------------- */

static void on_hangup(struct session *s) { session_close(s, "the client has gone"); }

static void on_sock(struct watch *w, uint32_t events)
{
	(void)events; /* nothing travels on it: any event is its end */
	on_hangup(CONTAINER_OF(w, struct session, sock));
}

static void on_pid(struct watch *w, uint32_t events)
{
	(void)events;
	on_hangup(CONTAINER_OF(w, struct session, pid));
}

static void on_bell(struct watch *w, uint32_t events)
{
	struct session *s = CONTAINER_OF(w, struct session, bell);

	(void)events;
	bell_drain(s->link.bell);
	loop_wake(&s->d->loop, &s->source);
	bell_found(s->link.bell, ring_ready(&s->link.in));
}

static int watch_all(struct session *s, struct error *e)
{
	struct loop *l = &s->d->loop;
	int rc = loop_watch(l, &s->sock, s->link.sock, EPOLLIN | EPOLLRDHUP, e);

	if (!rc && s->link.pidfd >= 0)
		rc = loop_watch(l, &s->pid, s->link.pidfd, EPOLLIN, e);
	if (!rc && bell_fd(s->link.bell) != bell_hub_fd(s->d->sessions.hub))
		rc = loop_watch(l, &s->bell, bell_fd(s->link.bell), EPOLLIN, e);
	return rc;
}

static void unwatch_all(struct session *s)
{
	loop_unwatch(&s->d->loop, &s->sock);
	loop_unwatch(&s->d->loop, &s->pid);
	loop_unwatch(&s->d->loop, &s->bell);
}

struct session *session_create(struct daemon *d, const struct peer_id *who, int fd,
	const struct wire_hello *hello, struct account *a, struct error *e)
{
	const struct attach_limits lim = { .ring_default = d->conf.limits.ring_bytes,
		.ring_max = d->conf.limits.ring_max_bytes,
		.max_payload_bytes = d->conf.limits.prompt_bytes,
		.max_in_flight = d->conf.limits.in_flight_per_uid };
	struct session *s = mem_zalloc(MEM_DAEMON, 1, sizeof *s);

	if (!s || attach_welcome(fd, hello, &lim, d->sessions.hub, ++d->sessions.next_id, &s->link, e)) {
		if (!s)
			(void)error_set(e, TENON_E_NOMEM, "attach: out of memory");
		mem_free(s);
		return NULL;
	}
	s->link.pidfd = who->pidfd;
	s->d = d;
	s->account = a;
	s->peer_pid = who->pid;
	s->attached_ns = d->loop.now_ns;
	s->sock = (struct watch){ .fd = -1, .ready = on_sock };
	s->pid = (struct watch){ .fd = -1, .ready = on_pid };
	s->bell = (struct watch){ .fd = -1, .ready = on_bell };
	s->flush.run = flush;
	s->blocked.fire = blocked_check;
	s->source = (struct source){
		.ready = source_ready, .pump = source_pump, .doze = source_doze, .rise = source_rise
	};
	buf_init(&s->backlog, MEM_DAEMON, 0);
	if (watch_all(s, e)) {
		unwatch_all(s);
		s->link.sock = s->link.pidfd = -1; /* stay the caller's */
		link_close(&s->link);
		mem_free(s);
		return NULL;
	}
	loop_add(&d->loop, &s->source);
	return s;
}

void session_violated(struct session *s, int code, const char *text)
{
	struct wire_error *w;
	size_t len = strlen(text);
	bool bad;

	if (s->closed || s->violated)
		return;
	s->violated = true;
	TOPIC_LOG(s->d, LOG_WARN, "session", "session=%llu uid=%u broke the protocol: %s",
		(unsigned long long)s->link.session, s->account->uid, text);
	s->d->sessions.n_violations++;
	account_violation(s->d, s->account);
	w = ring_put(&s->link.out, WIRE_ERROR, 0, 0, (uint32_t)(sizeof *w + len), &bad);
	if (w) {
		*w = (struct wire_error){ .code = code, .text_bytes = (uint32_t)len };
		memcpy(w + 1, text, len);
	}
	loop_defer(&s->d->loop, &s->flush);
}

void session_close(struct session *s, const char *why)
{
	struct daemon *d = s->d;

	if (s->closed)
		return;
	s->closed = true;
	TOPIC_LOG(d, LOG_DEBUG, "session", "session=%llu closed open=%u: %s",
		(unsigned long long)s->link.session, s->n_open, why);
	while (s->n_open)
		request_leave(s->open[s->n_open - 1]);
	loop_remove(&d->loop, &s->source);
	node_remove(&s->flush.node);
	timer_clear(&d->loop.timers, &s->blocked);
	unwatch_all(s);
	s->account->n_sessions--;
	s->account->shared_bytes -= s->link.tx.ring_bytes + s->link.rx.ring_bytes;
	d->sessions.shared_bytes -= s->link.tx.ring_bytes + s->link.rx.ring_bytes;
	d->sessions.n_open--;
	node_remove(&s->node);
	list_append(&d->sessions.dead, &s->node);
	loop_defer(&d->loop, &d->sessions.reap);
}
