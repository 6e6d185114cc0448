/* SPDX-License-Identifier: Apache-2.0
 * What a client gets: frames become events; waiting in tenon_next or in the caller's own poll loop. One epoll
 * descriptor covers the bell, the socket (daemon's end) and a timer that ends every sleep in a foreign loop after
 * IPC_PARK_MAX_MS. Neither allocates nor enters the kernel while frames come. Thread: any, under in_lock.
 */
#include "client/client_priv.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum watch_tag { WATCH_BELL, WATCH_SOCKET, WATCH_TIMER, WATCH_N };

_Static_assert(sizeof(struct tenon_logprob) == sizeof(struct wire_logprob), "both are the same");
_Static_assert(sizeof(struct tenon_timeline) == sizeof(struct wire_timeline), "both are the same");

/* ---- frames to events --------------------------------------------------------------------------------------- */

static void event_tokens(struct tenon *t, struct tenon_event *ev)
{
	struct wire_tokens k;

	memcpy(&k, t->body, sizeof k);
	ev->kind = TENON_EVENT_TOKENS;
	ev->ids = (const int32_t *)(const void *)(t->body + sizeof k);
	ev->n_ids = k.n_tokens;
	ev->text = (const char *)t->body + sizeof k + 4 * k.n_tokens;
	ev->text_len = k.text_bytes;
	if (t->logprobs_id == ev->request) {
		ev->logprobs = t->logprobs;
		ev->n_logprobs = t->n_logprobs;
	}
	t->logprobs_id = 0;
}

static void event_keep_logprobs(struct tenon *t, uint64_t id)
{
	struct wire_logprobs l;

	memcpy(&l, t->body, sizeof l);
	memcpy(t->logprobs, t->body + sizeof l, l.n * sizeof *t->logprobs);
	t->n_logprobs = l.n;
	t->logprobs_id = id;
}

static void event_done(struct tenon *t, struct tenon_event *ev)
{
	struct wire_done d;

	memcpy(&d, t->body, sizeof d);
	ev->kind = TENON_EVENT_DONE;
	ev->last = 1;
	ev->finish = (int)d.finish;
	ev->n_prompt = d.n_prompt;
	ev->n_generated = d.n_generated;
	ev->n_cached = d.n_cached;
	ev->n_preempted = d.n_preempted;
	ev->n_replayed = d.n_replayed;
	memcpy(&ev->time, &d.time, sizeof ev->time);
}

static void event_error(struct tenon *t, struct tenon_event *ev)
{
	struct wire_error r;

	memcpy(&r, t->body, sizeof r);
	ev->kind = TENON_EVENT_ERROR;
	ev->last = 1;
	ev->code = r.code;
	ev->text = (const char *)t->body + sizeof r;
	ev->text_len = r.text_bytes;
}

static void event_state(struct tenon *t, struct tenon_event *ev)
{
	struct wire_state s;

	memcpy(&s, t->body, sizeof s);
	ev->kind = TENON_EVENT_STATE;
	ev->phase = (int)s.phase;
	ev->permille = (int)s.permille;
}

static void event_embedding(struct tenon *t, struct tenon_event *ev)
{
	struct wire_embedding m;

	memcpy(&m, t->body, sizeof m);
	ev->kind = TENON_EVENT_EMBEDDING;
	ev->embedding = (const float *)(const void *)(t->body + sizeof m);
	ev->n_embedding = m.n;
	ev->n_prompt = m.n_prompt;
}

/* True when the frame is an event for the caller. Answers to requests that are not open (given up half-way) are
 * dropped. */
static bool event_fill(struct tenon *t, const struct wire_head *h, struct tenon_event *ev)
{
	*ev = (struct tenon_event){ .request = h->id };
	if (h->type == WIRE_PONG) {
		ev->kind = TENON_EVENT_PONG;
		ev->text = (const char *)t->body;
		ev->text_len = h->bytes - sizeof *h;
		return true;
	}
	if (!open_ids_has(&t->ids, h->id))
		return false;
	switch (h->type) {
	case WIRE_STATE:
		event_state(t, ev);
		break;
	case WIRE_TOKENS:
		event_tokens(t, ev);
		break;
	case WIRE_DONE:
		event_done(t, ev);
		break;
	case WIRE_ERROR:
		event_error(t, ev);
		break;
	case WIRE_EMBEDDING:
		event_embedding(t, ev);
		break;
	default:
		event_keep_logprobs(t, h->id);
		return false;
	}
	if (ev->last)
		(void)open_ids_remove(&t->ids, h->id);
	return true;
}

/* An error about the session itself: nothing comes after it. */
static int event_session_error(struct tenon *t)
{
	struct wire_error r;

	memcpy(&r, t->body, sizeof r);
	client_set_dead(t, r.code);
	return r.code;
}

/* OK with an event, AGAIN when there is none, or the code that ended the session. */
static int event_take(struct tenon *t, struct tenon_event *ev)
{
	struct wire_head h;
	int rc;

	for (;;) {
		rc = ring_take(&t->link.in, &h, t->body, t->room);
		if (rc == TENON_E_AGAIN)
			return rc;
		if (!rc && h.type == WIRE_HEALTH)
			rc = TENON_E_PROTOCOL;
		if (!rc)
			rc = frame_event_check(&h, t->body, NULL);
		if (rc) {
			client_set_dead(t, TENON_E_PROTOCOL);
			return TENON_E_PROTOCOL;
		}
		ring_consumed(&t->link.in);
		if (h.type == WIRE_ERROR && !h.id)
			return event_session_error(t);
		if (event_fill(t, &h, ev))
			return TENON_OK;
	}
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

static int watch_add(int ep, int fd, uint32_t events, enum watch_tag tag)
{
	struct epoll_event ev = { .events = events, .data.u32 = tag };

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

int client_watch_open(struct tenon *t, struct error *e)
{
	t->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	t->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (t->watch_fd < 0 || t->timer_fd < 0 ||
		watch_add(t->watch_fd, bell_fd(t->link.bell), EPOLLIN, WATCH_BELL) ||
		watch_add(t->watch_fd, t->link.sock, EPOLLIN | EPOLLRDHUP, WATCH_SOCKET) ||
		watch_add(t->watch_fd, t->timer_fd, EPOLLIN, WATCH_TIMER))
		return error_errno(e, TENON_E_NOMEM, errno, "connect: no descriptor to wait on");
	return TENON_OK;
}

/* Whoever holds the lock is sending, and rings. */
static void watch_remind(struct tenon *t)
{
	if (pthread_mutex_trylock(&t->out_lock))
		return;
	(void)peer_remind(&t->link.out, t->link.bell);
	(void)pthread_mutex_unlock(&t->out_lock);
}

/* Waits and clears what made it end; the socket is asked what it means. */
static void watch_wait(struct tenon *t, int timeout_ms)
{
	struct epoll_event ev[WATCH_N];
	uint64_t n_expired;
	int n = epoll_wait(t->watch_fd, ev, WATCH_N, timeout_ms);
	bool vain = !n && timeout_ms;

	for (int i = 0; i < n; i++) {
		if (ev[i].data.u32 == WATCH_BELL)
			bell_drain(t->link.bell);
		else if (ev[i].data.u32 == WATCH_SOCKET)
			(void)client_dead(t, true);
		else
			vain |= read(t->timer_fd, &n_expired, sizeof n_expired) == sizeof n_expired;
	}
	if (vain)
		watch_remind(t);
}

static void next_disarm(struct tenon *t)
{
	if (t->armed)
		park_end(&t->link.tx);
	t->armed = false;
}

/* Until the deadline, but never longer than a park may last. */
static int next_park_ms(uint64_t until_ns)
{
	uint64_t now = clock_now_ns(), left;

	if (until_ns <= now)
		return 0;
	left = (until_ns - now + NS_PER_MS - 1) / NS_PER_MS;
	return (int)MIN_OF(left, (uint64_t)IPC_PARK_MAX_MS);
}

static void next_park(struct tenon *t, uint64_t until_ns)
{
	if (!park_begin(&t->link.tx, &t->link.in))
		return;
	watch_wait(t, next_park_ms(until_ns));
	park_end(&t->link.tx);
	spin_woken(&t->spin, ring_ready(&t->link.in));
}

static int next_wait(struct tenon *t, struct tenon_event *ev, int timeout_ms)
{
	uint64_t until_ns = timeout_ms < 0 ? UINT64_MAX
		: timeout_ms		   ? clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS
					   : 0;
	int dead, rc;

	next_disarm(t);
	for (;;) {
		dead = client_dead(t, false);
		rc = event_take(t, ev);
		if (rc != TENON_E_AGAIN)
			return rc;
		if (dead)
			return dead;
		if (!timeout_ms)
			return TENON_E_AGAIN;
		if (clock_now_ns() >= until_ns)
			return TENON_E_TIMEOUT;
		if (!spin_ready(&t->spin, &t->link.in))
			next_park(t, until_ns);
	}
}

/* Thread sanitizers of some compilers do not know pthread_mutex_clocklock; their builds wait on the wall clock. */
static int next_lock_until(struct tenon *t, int timeout_ms)
{
	struct timespec until;
#ifdef __SANITIZE_THREAD__
	const clockid_t id = CLOCK_REALTIME;
#else
	const clockid_t id = CLOCK_MONOTONIC;
#endif

	(void)clock_gettime(id, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * (long)NS_PER_MS;
	if (until.tv_nsec >= (long)NS_PER_S) {
		until.tv_nsec -= (long)NS_PER_S;
		until.tv_sec++;
	}
#ifdef __SANITIZE_THREAD__
	return pthread_mutex_timedlock(&t->in_lock, &until);
#else
	return pthread_mutex_clocklock(&t->in_lock, id, &until);
#endif
}

/* A free lock is taken without asking for the time. */
static int next_lock(struct tenon *t, int timeout_ms)
{
	if (timeout_ms < 0)
		return pthread_mutex_lock(&t->in_lock);
	if (!pthread_mutex_trylock(&t->in_lock))
		return 0;
	return timeout_ms ? next_lock_until(t, timeout_ms) : EBUSY;
}

int tenon_next(struct tenon *t, struct tenon_event *ev, int timeout_ms)
{
	int rc;

	if (client_forked(t))
		return TENON_E_FORKED;
	if (next_lock(t, timeout_ms))
		return timeout_ms ? TENON_E_TIMEOUT : TENON_E_AGAIN;
	rc = next_wait(t, ev, timeout_ms);
	(void)pthread_mutex_unlock(&t->in_lock);
	return rc;
}

int tenon_fd(struct tenon *t) { return client_forked(t) ? TENON_E_FORKED : t->watch_fd; }

/* Bells from before are cleared first: one that comes after the flag was set must stay visible. */
static int poll_arm(struct tenon *t)
{
	struct itimerspec once = { .it_value.tv_nsec = IPC_PARK_MAX_MS * (long)NS_PER_MS };

	next_disarm(t);
	watch_wait(t, 0);
	if (client_dead(t, false) || !park_begin(&t->link.tx, &t->link.in))
		return TENON_E_AGAIN;
	t->armed = true;
	if (open_ids_count(&t->ids))
		(void)timerfd_settime(t->timer_fd, 0, &once, NULL);
	return TENON_OK;
}

int tenon_poll_arm(struct tenon *t)
{
	int rc;

	if (client_forked(t))
		return TENON_E_FORKED;
	(void)pthread_mutex_lock(&t->in_lock);
	rc = poll_arm(t);
	(void)pthread_mutex_unlock(&t->in_lock);
	return rc;
}
