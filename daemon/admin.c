/* SPDX-License-Identifier: Apache-2.0
 * The control socket: a ZeroMQ ROUTER at DIR/admin, one JSON object in, one out, at most 64 and 256 KiB. Loop thread. Who may
 * connect is decided by the folder and the socket's mode; what comes is checked all the same. Nothing here waits:
 * answers that need the worker come when it has answered.
 */
#include "daemon/admin_priv.h"
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { BATCH = 16, QUESTION_MAX_BYTES = 64 << 10, ANSWER_MAX_BYTES = 256 << 10, WAITERS_MAX = 64 };

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
void admin_answer(struct waiter *w, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	static const char too_long[] =
		"{\"error\":{\"code\":\"too_long\",\"message\":\"admin: the answer is over 256 KiB\"}}";

	if (text && strlen(text) <= ANSWER_MAX_BYTES)
		send_text(w, text, strlen(text));
	else
		send_text(w, too_long, sizeof too_long - 1);
	free(text);
	json_decref(o);
	waiter_free(w);
}

void admin_answer_error(struct waiter *w, const struct error *e)
{
	admin_answer(
		w, json_pack("{s:{s:s, s:s}}", "error", "code", error_name(e->code), "message", e->text));
}

/* ---- questions ---------------------------------------------------------------------------------------------------------------- */

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
		admin_dispatch(w, zmq_msg_data(&body), zmq_msg_size(&body));
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
	int64_t most = QUESTION_MAX_BYTES;
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
	admin_answer_error(CONTAINER_OF(n, struct waiter, node), &e);
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
