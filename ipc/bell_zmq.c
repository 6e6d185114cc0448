/* SPDX-License-Identifier: Apache-2.0
 * Doorbell over ZeroMQ (ipc://): the daemon holds one ROUTER for all sessions, a client a DEALER whose routing id is
 * the session's nonce. Messages are empty. ZMQ_FD tells of changes once only, and sending may swallow one, so each end
 * has a `kick` eventfd beside it that keeps its descriptor readable until it was drained.
 * Thread: the hub is the daemon loop's alone; a client's ring and drain may come from two threads (mutex).
 * Never touched in a forked child.
 */
#include "ipc/bell_priv.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define ZBELL_NONCE 16
#define ZBELL_BATCH 256 /* messages taken in one drain: a flood must not hold the loop */
#define ZBELL_WATER                                                                                          \
	128 /* each half of it taken tells the sender, which wakes for nothing; a pipe has room for 256 anyway */
#define ZBELL_CONNECT_MS 200

/* A socket with a context of its own, and the descriptor that tells of it. */
struct zend {
	void *ctx, *sock;
	int kick_fd, watch_fd, zmq_fd;
	bool kicked;
};

static int zend_set(struct zend *z, int option, int value)
{
	return zmq_setsockopt(z->sock, option, &value, sizeof value);
}

static void zend_close(struct zend *z)
{
	if (z->sock)
		(void)zmq_close(z->sock);
	if (z->ctx)
		(void)zmq_ctx_term(z->ctx);
	if (z->watch_fd >= 0)
		(void)close(z->watch_fd);
	if (z->kick_fd >= 0)
		(void)close(z->kick_fd);
}

static bool zend_watch(struct zend *z)
{
	struct epoll_event ev = { .events = EPOLLIN };
	size_t len = sizeof z->zmq_fd;

	z->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (z->kick_fd < 0)
		return false;
	z->watch_fd = bell_watch(z->kick_fd, EPOLLIN);
	return z->watch_fd >= 0 && !zmq_getsockopt(z->sock, ZMQ_FD, &z->zmq_fd, &len) &&
		!epoll_ctl(z->watch_fd, EPOLL_CTL_ADD, z->zmq_fd, &ev);
}

static bool zend_options(struct zend *z)
{
	return !zend_set(z, ZMQ_LINGER, 0) && !zend_set(z, ZMQ_SNDHWM, ZBELL_WATER) &&
		!zend_set(z, ZMQ_RCVHWM, ZBELL_WATER) && !zend_set(z, ZMQ_IMMEDIATE, 1) &&
		!zend_set(z, ZMQ_HANDSHAKE_IVL, 1000) && !zend_set(z, ZMQ_SNDTIMEO, 0) &&
		!zend_set(z, ZMQ_RCVTIMEO, 0);
}

static int zend_open(struct zend *z, int type, int max_sockets, struct error *e)
{
	int64_t max_message = 64;

	*z = (struct zend){ .ctx = zmq_ctx_new(), .kick_fd = -1, .watch_fd = -1 };
	if (z->ctx && !zmq_ctx_set(z->ctx, ZMQ_MAX_SOCKETS, max_sockets) &&
		!zmq_ctx_set(z->ctx, ZMQ_BLOCKY, 0))
		z->sock = zmq_socket(z->ctx, type);
	if (z->sock && zend_options(z) &&
		!zmq_setsockopt(z->sock, ZMQ_MAXMSGSIZE, &max_message, sizeof max_message) && zend_watch(z))
		return TENON_OK;
	error_set(e, TENON_E_NOMEM, "ZeroMQ bell: cannot open a socket: %s", zmq_strerror(errno));
	zend_close(z);
	return TENON_E_NOMEM;
}

static void zend_kick(struct zend *z)
{
	const uint64_t one = 1;

	z->kicked = true;
	(void)!write(z->kick_fd, &one, sizeof one);
}

/* Brings the socket up to date; after a send, whatever came in meanwhile must not go unnoticed. */
static void zend_settle(struct zend *z)
{
	int events = 0;
	size_t len = sizeof events;

	if (!zmq_getsockopt(z->sock, ZMQ_EVENTS, &events, &len) && (events & ZMQ_POLLIN))
		zend_kick(z);
}

/* One message without its further parts; `first` gets the beginning of the first one. Length, -1: none. */
static int zend_receive(struct zend *z, void *first, size_t room)
{
	char rest[8];
	int more = 0, n = zmq_recv(z->sock, first, room, ZMQ_DONTWAIT);
	size_t len = sizeof more;

	while (n >= 0 && !zmq_getsockopt(z->sock, ZMQ_RCVMORE, &more, &len) && more)
		(void)zmq_recv(z->sock, rest, sizeof rest, ZMQ_DONTWAIT);
	return n;
}

static void zend_unkick(struct zend *z)
{
	uint64_t n;

	if (z->kicked)
		(void)!read(z->kick_fd, &n, sizeof n);
	z->kicked = false;
}

/* ---- client ------------------------------------------------------------------------------------------------- */

struct bell_dealer {
	struct bell base;
	struct zend z;
	pthread_mutex_t lock; /* a ZeroMQ socket is one thread's at a time */
};

static int dealer_ring(struct bell *b)
{
	struct bell_dealer *d = (void *)b;
	int rc;

	(void)pthread_mutex_lock(&d->lock);
	rc = zmq_send(d->z.sock, "", 0, ZMQ_DONTWAIT) < 0 ? TENON_E_AGAIN : TENON_OK;
	zend_settle(&d->z);
	(void)pthread_mutex_unlock(&d->lock);
	return rc;
}

static int dealer_fd(struct bell *b) { return ((struct bell_dealer *)(void *)b)->z.watch_fd; }

static void dealer_drain(struct bell *b)
{
	struct bell_dealer *d = (void *)b;
	char none[8];
	int n = 0;

	(void)pthread_mutex_lock(&d->lock);
	zend_unkick(&d->z);
	while (n < ZBELL_BATCH && zend_receive(&d->z, none, sizeof none) >= 0)
		n++;
	if (n == ZBELL_BATCH)
		zend_kick(&d->z);
	(void)pthread_mutex_unlock(&d->lock);
}

static void dealer_close(struct bell *b)
{
	struct bell_dealer *d = (void *)b;

	zend_close(&d->z);
	(void)pthread_mutex_destroy(&d->lock);
	mem_free(d);
}

static const struct bell_ops dealer_ops = { dealer_ring, dealer_fd, dealer_drain, dealer_close, NULL };

/* With IMMEDIATE a send before the connection stands is lost, and the first request would wait for a park to end. */
static void dealer_await(struct zend *z)
{
	zmq_pollitem_t item = { .socket = z->sock, .events = ZMQ_POLLOUT };

	(void)zmq_poll(&item, 1, ZBELL_CONNECT_MS);
}

int bell_zmq_connect(const char *endpoint, const uint8_t nonce[16], struct bell **out, struct error *e)
{
	struct bell_dealer *d = mem_zalloc(MEM_IPC, 1, sizeof *d);
	int rc;

	if (!d)
		return error_set(e, TENON_E_NOMEM, "ZeroMQ bell: out of memory");
	rc = zend_open(&d->z, ZMQ_DEALER, 1, e);
	if (rc) {
		mem_free(d);
		return rc;
	}
	d->base.ops = &dealer_ops;
	(void)pthread_mutex_init(&d->lock, NULL);
	if (zmq_setsockopt(d->z.sock, ZMQ_ROUTING_ID, nonce, ZBELL_NONCE) ||
		zmq_connect(d->z.sock, endpoint)) {
		rc = error_set(e, TENON_E_IO, "ZeroMQ bell: cannot connect: %s", zmq_strerror(errno));
		dealer_close(&d->base);
		return rc;
	}
	dealer_await(&d->z);
	*out = &d->base;
	return TENON_OK;
}

/* ---- daemon ------------------------------------------------------------------------------------------------- */

/* Nonces of the sessions: open addressing, a power of two of places, at most half of them taken. Nonces are drawn by
 * us at random, so their first bytes are the hash. */
struct bell_hub {
	struct zend z;
	char endpoint[128];
	struct bell_routed **places;
	size_t n_places, n_taken;
	uint64_t n_unknown;
	uint32_t futile;
	int timer_fd;
	bool muted;
};

struct bell_routed {
	struct bell base;
	struct bell_hub *hub;
	uint8_t nonce[ZBELL_NONCE];
};

static size_t hub_hash(const struct bell_hub *h, const uint8_t *nonce)
{
	uint64_t v;

	memcpy(&v, nonce, sizeof v);
	return (size_t)(v ^ v >> 32) & (h->n_places - 1);
}

/* The place that holds `nonce`, else the empty one where it belongs. */
static size_t hub_place(const struct bell_hub *h, const uint8_t *nonce)
{
	size_t i = hub_hash(h, nonce);

	while (h->places[i] && memcmp(h->places[i]->nonce, nonce, ZBELL_NONCE))
		i = (i + 1) & (h->n_places - 1);
	return i;
}

static bool hub_grow(struct bell_hub *h)
{
	struct bell_routed **old = h->places;
	size_t n_old = h->n_places;
	struct bell_routed **more = mem_zalloc(MEM_IPC, n_old ? 2 * n_old : 64, sizeof(*more));

	if (!more)
		return false;
	h->places = more;
	h->n_places = n_old ? 2 * n_old : 64;
	for (size_t i = 0; i < n_old; i++)
		if (old[i])
			h->places[hub_place(h, old[i]->nonce)] = old[i];
	mem_free(old);
	return true;
}

/* Takes one out and moves up those behind it that would no longer be found. */
static void hub_forget(struct bell_hub *h, const uint8_t *nonce)
{
	size_t i = hub_place(h, nonce), j = i;

	if (!h->places[i])
		return;
	h->places[i] = NULL;
	h->n_taken--;
	for (j = (j + 1) & (h->n_places - 1); h->places[j]; j = (j + 1) & (h->n_places - 1)) {
		struct bell_routed *moved = h->places[j];

		h->places[j] = NULL;
		h->places[hub_place(h, moved->nonce)] = moved;
	}
}

static bool routed_send(struct bell_routed *r)
{
	return zmq_send(r->hub->z.sock, r->nonce, ZBELL_NONCE, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
		zmq_send(r->hub->z.sock, "", 0, ZMQ_DONTWAIT) >= 0;
}

/* A peer that has just connected is known only after the socket was brought up to date, hence the second try. */
static int routed_ring(struct bell *b)
{
	struct bell_routed *r = (void *)b;
	bool ok = routed_send(r);
	bool again = !ok && errno == EHOSTUNREACH;

	zend_settle(&r->hub->z);
	return ok || (again && routed_send(r)) ? TENON_OK : TENON_E_AGAIN;
}

static int routed_fd(struct bell *b) { return bell_hub_fd(((struct bell_routed *)(void *)b)->hub); }
static void routed_drain(struct bell *b) { (void)b; } /* the hub's owner drains for all */

static void routed_close(struct bell *b)
{
	struct bell_routed *r = (void *)b;

	hub_forget(r->hub, r->nonce);
	mem_free(r);
}

static const struct bell_ops routed_ops = { routed_ring, routed_fd, routed_drain, routed_close, NULL };

int bell_hub_bell(struct bell_hub *h, const uint8_t nonce[16], struct bell **out)
{
	struct bell_routed *r;
	size_t i;

	if (2 * h->n_taken >= h->n_places && !hub_grow(h))
		return TENON_E_NOMEM;
	i = hub_place(h, nonce);
	if (h->places[i])
		return TENON_E_BUSY;
	r = mem_zalloc(MEM_IPC, 1, sizeof *r);
	if (!r)
		return TENON_E_NOMEM;
	r->base.ops = &routed_ops;
	r->hub = h;
	memcpy(r->nonce, nonce, ZBELL_NONCE);
	h->places[i] = r;
	h->n_taken++;
	*out = &r->base;
	return TENON_OK;
}

static int hub_bind(struct bell_hub *h, const char *dir, struct error *e)
{
	const char *path = h->endpoint + strlen("ipc://");
	int n = snprintf(h->endpoint, sizeof h->endpoint, "ipc://%s/bell", dir);

	if (n < 0 || (size_t)n >= sizeof h->endpoint || strlen(path) > 107)
		return error_set(e, TENON_E_TOO_LONG,
			"ZeroMQ bell: %.60s...: over 107 bytes; choose a shorter directory", dir);
	(void)unlink(path);
	if (zend_set(&h->z, ZMQ_ROUTER_MANDATORY, 1) || zend_set(&h->z, ZMQ_ROUTER_HANDOVER, 0) ||
		zmq_bind(h->z.sock, h->endpoint))
		return error_set(
			e, TENON_E_IO, "ZeroMQ bell: cannot bind %.90s: %s", path, zmq_strerror(errno));
	if (chmod(path, 0660))
		return error_errno(e, TENON_E_IO, errno, "ZeroMQ bell: cannot set the mode of %.90s", path);
	return TENON_OK;
}

int bell_hub_open(const char *dir, struct bell_hub **out, struct error *e)
{
	struct bell_hub *h = mem_zalloc(MEM_IPC, 1, sizeof *h);
	int rc;

	if (!h || !hub_grow(h)) {
		mem_free(h);
		return error_set(e, TENON_E_NOMEM, "ZeroMQ bell: out of memory");
	}
	h->timer_fd = -1;
	rc = zend_open(&h->z, ZMQ_ROUTER, 1, e);
	if (!rc) {
		rc = hub_bind(h, dir, e);
		if (!rc) {
			*out = h;
			return TENON_OK;
		}
		zend_close(&h->z);
	}
	mem_free(h->places);
	mem_free(h);
	return rc;
}

const char *bell_hub_endpoint(const struct bell_hub *h) { return h->endpoint; }
int bell_hub_fd(const struct bell_hub *h) { return h->z.watch_fd; }
uint64_t bell_hub_n_unknown(const struct bell_hub *h) { return h->n_unknown; }

static void hub_listen(struct bell_hub *h, bool listen)
{
	struct epoll_event ev = { .events = listen ? EPOLLIN : 0 };

	h->muted = !listen;
	(void)epoll_ctl(h->z.watch_fd, EPOLL_CTL_MOD, h->z.zmq_fd, &ev);
}

/* Muted: messages stay where they are, and ZeroMQ stops reading from who sends too many. */
static bool hub_is_muted(struct bell_hub *h)
{
	uint64_t n_expired;

	if (h->muted && read(h->timer_fd, &n_expired, sizeof n_expired) == sizeof n_expired)
		hub_listen(h, true);
	return h->muted;
}

static void hub_judge(struct bell_hub *h, bool found)
{
	h->futile = found ? 0 : h->futile + 1;
	if (h->futile < BELL_FUTILE_MAX || !bell_mute_timer(&h->timer_fd, h->z.watch_fd))
		return;
	h->futile = 0;
	hub_listen(h, false);
}

void bell_hub_drain(struct bell_hub *h, bool (*rung)(void *ctx, const uint8_t nonce[16]), void *ctx)
{
	uint8_t nonce[ZBELL_NONCE + 1];
	int n = 0, len;

	zend_unkick(&h->z);
	if (hub_is_muted(h))
		return;
	for (; n < ZBELL_BATCH && !h->muted && (len = zend_receive(&h->z, nonce, sizeof nonce)) >= 0; n++) {
		bool known = len == ZBELL_NONCE && h->places[hub_place(h, nonce)];

		h->n_unknown += !known;
		hub_judge(h, known && rung(ctx, nonce));
	}
	if (n == ZBELL_BATCH)
		zend_kick(&h->z);
}

void bell_hub_close(struct bell_hub *h)
{
	if (!h)
		return;
	zend_close(&h->z);
	if (h->timer_fd >= 0)
		(void)close(h->timer_fd);
	(void)unlink(h->endpoint + strlen("ipc://"));
	mem_free(h->places);
	mem_free(h);
}
