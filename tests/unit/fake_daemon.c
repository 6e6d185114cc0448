/* SPDX-License-Identifier: Apache-2.0
 * See fake_daemon.h. One thread; parks as tenond does: flag in every session, then look again, then sleep.
 */
#include "tests/unit/fake_daemon.h"
#include "tests/unit/unit.h"
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	(void)fprintf(stderr, "fake daemon: %s\n", what);
	_exit(99);
}

static void answer(struct fake_session *s, uint16_t type, uint64_t id, const void *head, uint32_t head_bytes,
	const void *rest, uint32_t rest_bytes)
{
	bool bad;
	uint8_t *at;

	while (!(at = ring_put(&s->link.out, type, 0, id, head_bytes + rest_bytes, &bad)) && !bad &&
		!*s->stop) {
		link_flush(&s->link);
		(void)usleep(200);
	}
	if (!at)
		return;
	memcpy(at, head, head_bytes);
	if (rest_bytes)
		memcpy(at + head_bytes, rest, rest_bytes);
}

static void answer_error(struct fake_session *s, uint64_t id, int code, const char *text)
{
	struct wire_error r = { .code = code, .text_bytes = (uint32_t)strlen(text) };

	answer(s, WIRE_ERROR, id, &r, sizeof r, text, r.text_bytes);
}

static void answer_done(struct fake_session *s, uint64_t id, uint32_t n)
{
	struct wire_done done = {
		.finish = WIRE_FINISH_STOP, .n_prompt = n, .n_generated = 3, .time.total_ns = 5
	};

	answer(s, WIRE_DONE, id, &done, sizeof done, NULL, 0);
}

static void answer_echo(struct fake_session *s, struct fake_open *o)
{
	struct wire_state st = { .phase = WIRE_PREFILL, .permille = 500 };

	answer(s, WIRE_STATE, o->id, &st, sizeof st, NULL, 0);
	for (size_t i = 0; i < o->text.len; i += 7) {
		struct {
			struct wire_tokens t;
			int32_t ids[2];
		} k = { { 2, (uint32_t)MIN_OF((size_t)7, o->text.len - i) }, { (int32_t)i, (int32_t)o->id } };

		answer(s, WIRE_TOKENS, o->id, &k, sizeof k, o->text.data + i, k.t.text_bytes);
	}
	answer_done(s, o->id, (uint32_t)o->text.len);
}

static void answer_logprobs(struct fake_session *s, struct fake_open *o)
{
	struct {
		struct wire_logprobs l;
		struct wire_logprob p[2];
	} l = { { 2, 0 }, { { 7, -0.5f }, { 8, -1.5f } } };
	struct {
		struct wire_tokens t;
		int32_t ids[1];
	} k = { { 1, 2 }, { 7 } };

	answer(s, WIRE_LOGPROBS, o->id, &l, sizeof l, NULL, 0);
	answer(s, WIRE_TOKENS, o->id, &k, sizeof k, "ab", 2);
	answer(s, WIRE_TOKENS, o->id, &k, sizeof k, "cd", 2);
	answer_done(s, o->id, 1);
}

/* The payload is complete. False: the request stays open. */
static bool finish(struct fake_session *s, struct fake_open *o)
{
	const char *p = o->text.data ? o->text.data : "";

	if (!strncmp(p, "wait", 4))
		return false;
	if (!strncmp(p, "fail", 4))
		answer_error(s, o->id, TENON_E_BACKEND, "the backend failed");
	else if (!strncmp(p, "garbage", 7))
		answer(s, 999, o->id, p, 4, NULL, 0);
	else if (!strncmp(p, "logprobs", 8))
		answer_logprobs(s, o);
	else if (!strncmp(p, "expel", 5))
		answer_error(s, 0, TENON_E_DRAINING, "go away");
	else
		answer_echo(s, o);
	return true;
}

static struct fake_open *find(struct fake_session *s, uint64_t id)
{
	for (int i = 0; i < FAKE_OPEN; i++)
		if (s->open[i].id == id)
			return &s->open[i];
	return NULL;
}

static void forget(struct fake_open *o)
{
	buf_finish(&o->text);
	*o = (struct fake_open){ 0 };
}

static int begin(struct fake_daemon *d, struct fake_session *s, const struct wire_head *h, const void *body)
{
	struct fake_open *o = find(s, 0);
	struct frame_request f;
	int rc = frame_request_parse(
		body, h->bytes - (uint32_t)sizeof *h, h->flags, true, d->limits.max_payload_bytes, &f, NULL);

	if (rc || h->id <= s->last_id || !o)
		return TENON_E_PROTOCOL;
	s->last_id = o->id = h->id;
	o->wanted = f.r.payload_bytes;
	buf_init(&o->text, MEM_IPC, 0);
	must(buf_append(&o->text, f.payload, f.payload_here), "memory");
	if ((h->flags & WIRE_LAST) && finish(s, o))
		forget(o);
	return TENON_OK;
}

static int frame(struct fake_daemon *d, struct fake_session *s, const struct wire_head *h, const void *body)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;
	struct fake_open *o = h->id ? find(s, h->id) : NULL;

	d->n_frames++;
	if (h->type == WIRE_PING)
		return answer(s, WIRE_PONG, h->id, body, bytes, NULL, 0), TENON_OK;
	if (h->type == WIRE_BEGIN)
		return begin(d, s, h, body);
	if (h->type == WIRE_CANCEL && h->id && h->id <= s->last_id) {
		if (o) {
			answer_error(s, h->id, TENON_E_CANCELLED, "cancelled");
			forget(o);
		}
		return TENON_OK;
	}
	if (!o || (h->type != WIRE_DATA && h->type != WIRE_END))
		return TENON_E_PROTOCOL;
	if (h->type == WIRE_DATA)
		return buf_append(&o->text, body, bytes) && o->text.len <= o->wanted ? TENON_OK
										     : TENON_E_PROTOCOL;
	if (o->text.len != o->wanted)
		return TENON_E_PROTOCOL;
	if (finish(s, o))
		forget(o);
	return TENON_OK;
}

static void drop(struct fake_daemon *d, int i)
{
	struct fake_session *s = d->sessions[i];

	for (int k = 0; k < FAKE_OPEN; k++)
		forget(&s->open[k]);
	link_close(&s->link);
	free(s);
	d->sessions[i] = NULL;
	d->n_sessions--;
}

/* Reads what there is; false when the session ended. */
static bool serve(struct fake_daemon *d, struct fake_session *s)
{
	const uint32_t room = ring_max_frame(s->link.rx.ring_bytes);
	void *body = malloc(room);
	struct wire_head h;
	bool alive = true;
	int rc;

	must(body, "memory");
	while (alive && !d->deaf && (rc = ring_take(&s->link.in, &h, body, room)) != TENON_E_AGAIN) {
		if (!rc)
			rc = frame(d, s, &h, body);
		if (rc) {
			d->n_violations++;
			answer_error(s, 0, TENON_E_PROTOCOL, "protocol");
			alive = false;
		}
		ring_consumed(&s->link.in);
	}
	free(body);
	if (d->silent)
		ring_publish(&s->link.out);
	else
		link_flush(&s->link);
	return alive;
}

static void welcome(struct fake_daemon *d)
{
	struct fake_session *s = calloc(1, sizeof *s);
	struct pollfd p = { .events = POLLIN };
	struct wire_hello hello;
	struct peer_id who;
	int i = 0;

	while (i < FAKE_SESSIONS && d->sessions[i])
		i++;
	must(s && i < FAKE_SESSIONS, "too many sessions");
	if (attach_accept(d->listen_fd, &p.fd, &who, NULL)) {
		free(s);
		return;
	}
	(void)poll(&p, 1, 1000);
	if (attach_read_hello(p.fd, &hello, NULL) ||
		attach_welcome(p.fd, &hello, &d->limits, d->hub, (uint64_t)i, &s->link, NULL)) {
		(void)close(p.fd);
		(void)close(who.pidfd);
		free(s);
		return;
	}
	s->link.pidfd = who.pidfd;
	s->stop = &d->stop;
	d->sessions[i] = s;
	d->n_sessions++;
}

static bool somebody(void *ctx, const uint8_t nonce[16])
{
	(void)ctx;
	(void)nonce;
	return true;
}

static int watch(struct fake_daemon *d, struct pollfd *p)
{
	int n = 0;

	p[n++] = (struct pollfd){ .fd = d->listen_fd, .events = POLLIN };
	p[n++] = (struct pollfd){ .fd = d->wake_fd, .events = POLLIN };
	p[n++] = (struct pollfd){ .fd = bell_hub_fd(d->hub), .events = POLLIN };
	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (d->sessions[i]) {
			p[n++] = (struct pollfd){ .fd = d->sessions[i]->link.sock, .events = POLLRDHUP };
			p[n++] =
				(struct pollfd){ .fd = bell_fd(d->sessions[i]->link.bell), .events = POLLIN };
		}
	return n;
}

/* True when every session may sleep. */
static bool park_all(struct fake_daemon *d)
{
	bool sleep = true;

	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (d->sessions[i] && !d->deaf &&
			!park_begin(&d->sessions[i]->link.tx, &d->sessions[i]->link.in))
			sleep = false;
	return sleep;
}

static bool lost(void *ctx, const uint8_t nonce[16])
{
	struct fake_daemon *d = ctx;

	(void)nonce;
	if (d->loses)
		d->loses--;
	return true;
}

/* Clears one session's bell, or the hub's, as if it had not come. */
static void lose(struct fake_daemon *d, const struct pollfd *p)
{
	int at = 4;

	if (p[2].revents & POLLIN)
		bell_hub_drain(d->hub, lost, d);
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		if (!d->sessions[i])
			continue;
		if (p[at].revents & POLLIN) {
			bell_drain(d->sessions[i]->link.bell);
			(void)lost(d, NULL);
		}
		at += 2;
	}
}

static bool nothing_but_bells(const struct pollfd *p, int n)
{
	bool other = p[0].revents || p[1].revents;

	for (int at = 3; at < n; at += 2)
		other |= p[at].revents != 0;
	return !other;
}

/* While bells are to be lost, those that come are cleared, and the flags stay up. */
static void doze(struct fake_daemon *d, struct pollfd *p, int n)
{
	int rung = poll(p, (nfds_t)n, IPC_PARK_MAX_MS);

	while (d->loses && rung > 0 && nothing_but_bells(p, n)) {
		lose(d, p);
		rung = poll(p, (nfds_t)n, FAKE_DEAF_MS);
	}
}

static void turn(struct fake_daemon *d)
{
	struct pollfd p[3 + 2 * FAKE_SESSIONS];
	int n = watch(d, p), at = 3;
	bool hub_quiet;

	if (park_all(d))
		doze(d, p, n);
	else
		(void)poll(p, (nfds_t)n, 0);
	hub_quiet = !(p[2].revents & POLLIN);
	if (!hub_quiet)
		bell_hub_drain(d->hub, somebody, NULL);
	for (int i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_session *s = d->sessions[i];
		bool gone;

		if (!s)
			continue;
		gone = p[at].revents & (POLLRDHUP | POLLHUP);
		if (p[at + 1].revents & POLLIN)
			bell_drain(s->link.bell);
		at += 2;
		park_end(&s->link.tx);
		if (!serve(d, s) || gone)
			drop(d, i);
	}
	if (p[0].revents & POLLIN)
		welcome(d);
}

static void *fake_main(void *arg)
{
	struct fake_daemon *d = arg;

	while (!d->stop)
		turn(d);
	for (int i = 0; i < FAKE_SESSIONS; i++)
		if (d->sessions[i])
			drop(d, i);
	bell_hub_close(d->hub);
	(void)close(d->listen_fd);
	(void)close(d->lock_fd);
	return NULL;
}

void fake_daemon_start(struct fake_daemon *d)
{
	char run[80];

	if (!d->limits.ring_max)
		d->limits = (struct attach_limits){ .ring_default = 1u << 20,
			.ring_max = 16u << 20,
			.max_payload_bytes = 8u << 20,
			.max_in_flight = 32 };
	if (!*d->dir) {
		strcpy(d->dir, "/tmp/tenon-fake-XXXXXX");
		must(mkdtemp(d->dir), "directory");
	}
	(void)snprintf(run, sizeof run, "%s/run", d->dir);
	(void)snprintf(d->path, sizeof d->path, "%s/attach", run);
	d->stop = d->deaf = d->silent = d->loses = d->n_sessions = d->n_frames = d->n_violations = 0;
	d->wake_fd = eventfd(0, EFD_CLOEXEC);
	must(!attach_listen(d->path, &d->listen_fd, &d->lock_fd, NULL) &&
			!bell_hub_open(run, &d->hub, NULL) && !pthread_create(&d->thread, NULL, fake_main, d),
		"start");
}

void fake_daemon_stop(struct fake_daemon *d)
{
	const uint64_t one = 1;

	d->stop = 1;
	must(write(d->wake_fd, &one, sizeof one) == sizeof one && !pthread_join(d->thread, NULL), "stop");
	(void)close(d->wake_fd);
}

void fake_daemon_clean(struct fake_daemon *d)
{
	char cmd[128];

	(void)snprintf(cmd, sizeof cmd, "rm -r '%s'", d->dir);
	must(!system(cmd), "clean");
}
