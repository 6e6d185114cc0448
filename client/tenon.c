/* SPDX-License-Identifier: Apache-2.0
 * Sessions of libtenon: connect, close, is the daemon alive, errors. include/tenon/client.h is the manual.
 * A forked child is recognised by a page that the kernel empties for it (MADV_WIPEONFORK): no system call, no handler.
 * Thread: any; see client_priv.h for the locks.
 */
#include "client/client_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT_RING_DEFAULT (1u << 20)
#define CLIENT_ALIVE_BYTES  4096u

_Static_assert(sizeof(struct tenon_error) == sizeof(struct error), "both records are the same");

int client_error(struct tenon_error *out, int rc, const struct error *e)
{
	if (out) {
		out->code = rc;
		memcpy(out->text, e->text, sizeof out->text);
	}
	return rc;
}

int client_fail(struct tenon_error *out, int rc)
{
	struct error e;

	return out ? client_error(out, error_set(&e, rc, "%s", error_meaning(rc)), &e) : rc;
}

/* ---- is the daemon alive ------------------------------------------------------------------------------------ */

void client_set_dead(struct tenon *t, int code)
{
	int none = 0;

	(void)atomic_compare_exchange_strong(&t->dead, &none, code);
}

/* Nothing but the daemon's end is expected on the socket; whatever else comes is thrown away. */
static bool client_hung_up(struct tenon *t)
{
	struct pollfd p = { .fd = t->link.sock, .events = POLLIN | POLLRDHUP };
	char none[8];
	ssize_t n;

	if (poll(&p, 1, 0) <= 0)
		return false;
	if (p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL))
		return true;
	n = recv(t->link.sock, none, sizeof none, MSG_DONTWAIT);
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

int client_dead(struct tenon *t, bool now)
{
	int dead = atomic_load_explicit(&t->dead, memory_order_acquire);
	uint64_t at;

	if (dead)
		return dead;
	at = clock_now_ns();
	if (!now && at - atomic_load_explicit(&t->checked_ns, memory_order_relaxed) < CLIENT_CHECK_NS)
		return 0;
	atomic_store_explicit(&t->checked_ns, at, memory_order_relaxed);
	if (client_hung_up(t))
		client_set_dead(t, TENON_E_GONE);
	return atomic_load_explicit(&t->dead, memory_order_acquire);
}

/* ---- connect ------------------------------------------------------------------------------------------------ */

/* The caller's options over our defaults; a struct of an older header is shorter. */
static int connect_options(const struct tenon_options *o, struct tenon_options *out, struct error *e)
{
	*out = (struct tenon_options){ .size = sizeof *out };
	if (o && (o->size < sizeof o->size || o->size > sizeof *o))
		return error_set(e, TENON_E_INVALID,
			"tenon_options: size is %zu; set it to sizeof(struct tenon_options)", o->size);
	if (o)
		memcpy(out, o, o->size);
	if (!out->submit_bytes)
		out->submit_bytes = CLIENT_RING_DEFAULT;
	if (!out->events_bytes)
		out->events_bytes = CLIENT_RING_DEFAULT;
	if (out->timeout_ms <= 0)
		out->timeout_ms = 2000;
	return TENON_OK;
}

static int connect_at(struct tenon *t, const char *path, const struct tenon_options *o,
	struct wire_welcome *w, struct error *e)
{
	return attach_connect(path, o->submit_bytes, o->events_bytes,
		o->eventfd_bell ? WIRE_BELL_EVENTFD : WIRE_BELL_ZMQ, o->timeout_ms, &t->link, w, e);
}

/* The first place that is named, else a user's daemon before the system's. */
static int connect_link(
	struct tenon *t, const struct tenon_options *o, struct wire_welcome *w, struct error *e)
{
	const char *path = o->socket ? o->socket : secure_getenv("TENON_SOCKET");
	const char *run = secure_getenv("XDG_RUNTIME_DIR");
	char own[108];
	int n, rc;

	if (path)
		return connect_at(t, path, o, w, e);
	n = run ? snprintf(own, sizeof own, "%s/tenon/attach", run) : 0;
	if (n > 0 && (size_t)n < sizeof own) {
		rc = connect_at(t, own, o, w, e);
		if (rc != TENON_E_GONE)
			return rc;
	}
	return connect_at(t, "/run/tenon/attach", o, w, e);
}

static int connect_fork_guard(struct tenon *t, struct error *e)
{
	void *page =
		mmap(NULL, CLIENT_ALIVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return error_errno(e, TENON_E_NOMEM, errno, "connect: no memory");
	t->alive = page;
	if (madvise(page, CLIENT_ALIVE_BYTES, MADV_WIPEONFORK))
		return error_errno(e, TENON_E_UNSUPPORTED, errno,
			"connect: this kernel cannot mark memory for forked children");
	*t->alive = CLIENT_ALIVE_MAGIC;
	return TENON_OK;
}

static int connect_build(struct tenon *t, const struct tenon_options *o, struct error *e)
{
	struct wire_welcome w;
	int rc = connect_fork_guard(t, e);

	if (!rc)
		rc = connect_link(t, o, &w, e);
	if (rc)
		return rc;
	t->max_payload = w.max_payload_bytes;
	t->timeout_ms = o->timeout_ms;
	t->room = ring_max_frame(w.d2c_bytes);
	t->body = mem_alloc(MEM_IPC, t->room);
	if (!t->body || !open_ids_init(&t->ids, w.max_in_flight))
		return error_set(e, TENON_E_NOMEM, "connect: out of memory");
	spin_init(&t->spin, o->spin_us ? o->spin_us : w.bell == WIRE_BELL_EVENTFD ? 100 : 200);
	return client_watch_open(t, e);
}

int tenon_connect(const struct tenon_options *o, struct tenon **out, struct tenon_error *err)
{
	struct error e = { 0 };
	struct tenon_options mine;
	struct tenon *t;
	int rc = connect_options(o, &mine, &e);

	if (rc)
		return client_error(err, rc, &e);
	t = mem_zalloc(MEM_IPC, 1, sizeof *t);
	if (!t)
		return client_fail(err, TENON_E_NOMEM);
	t->link.sock = t->link.pidfd = t->watch_fd = t->timer_fd = -1;
	t->next_id = 1;
	(void)pthread_mutex_init(&t->out_lock, NULL);
	(void)pthread_mutex_init(&t->in_lock, NULL);
	rc = connect_build(t, &mine, &e);
	if (rc) {
		tenon_close(t);
		return client_error(err, rc, &e);
	}
	*out = t;
	return TENON_OK;
}

/* A child that inherited the handle has neither the maps nor the threads of ZeroMQ. */
static void close_link(struct tenon *t)
{
	if (t->alive && client_forked(t))
		link_abandon(&t->link);
	else
		link_close(&t->link);
}

void tenon_close(struct tenon *t)
{
	if (!t)
		return;
	close_link(t);
	if (t->watch_fd >= 0)
		(void)close(t->watch_fd);
	if (t->timer_fd >= 0)
		(void)close(t->timer_fd);
	if (t->alive)
		(void)munmap((void *)(uintptr_t)t->alive, CLIENT_ALIVE_BYTES);
	open_ids_finish(&t->ids);
	mem_free(t->body);
	mem_free(t);
}

const char *tenon_error_name(int code) { return error_name(code); }
const char *tenon_version(void) { return PACKAGE_VERSION; }
