/* SPDX-License-Identifier: Apache-2.0
 * Client's side of attaching: connect, HELLO, WELCOME with descriptors, maps and bell. Waits no longer than told.
 * Thread: any; nothing is shared until the link is handed out.
 */
#include "ipc/attach_priv.h"
#include "ipc/bell_priv.h"
#include "ipc/link_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT_MAX_FDS = 4 };

/* What came with WELCOME; a taken descriptor is -1. */
struct arrived {
	int fd[CONNECT_MAX_FDS];
	unsigned n;
};

static int connect_left_ms(uint64_t until_ns)
{
	uint64_t now = clock_now_ns();

	return now >= until_ns ? 0 : (int)((until_ns - now) / NS_PER_MS + 1);
}

static int connect_code(int err)
{
	if (err == ENOENT || err == ECONNREFUSED || err == ENOTDIR)
		return TENON_E_GONE;
	return err == EACCES || err == EPERM ? TENON_E_DENIED : TENON_E_IO;
}

/* A full backlog answers EAGAIN at once (a Unix socket has nothing to poll for then), hence the short sleeps. */
static int connect_socket(const char *path, uint64_t until_ns, int *out, struct error *e)
{
	const struct timespec nap = { .tv_nsec = 2 * (long)NS_PER_MS };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s, err;

	if (strlen(path) >= sizeof a.sun_path)
		return error_set(
			e, TENON_E_TOO_LONG, "socket %.60s...: over 107 bytes; use a shorter path", path);
	s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return error_errno(e, TENON_E_IO, errno, "socket %s", path);
	memcpy(a.sun_path, path, strlen(path) + 1);
	while (connect(s, (struct sockaddr *)&a, sizeof a)) {
		err = errno;
		if ((err == EAGAIN || err == EINTR) && connect_left_ms(until_ns)) {
			(void)nanosleep(&nap, NULL);
			continue;
		}
		(void)close(s);
		if (err == EAGAIN)
			return error_set(e, TENON_E_TIMEOUT,
				"socket %s: tenond is too busy to accept; try again", path);
		return error_errno(e, connect_code(err), err, "socket %s: is tenond running?", path);
	}
	*out = s;
	return TENON_OK;
}

static void connect_drop(struct arrived *a)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->fd[i] >= 0)
			(void)close(a->fd[i]);
	a->n = 0;
}

static void connect_collect(struct msghdr *m, struct arrived *a)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n && a->n < CONNECT_MAX_FDS; i++)
			memcpy(&a->fd[a->n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

static int connect_receive(
	int s, uint8_t *message, size_t room, size_t *got, struct arrived *a, struct error *e)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(CONNECT_MAX_FDS * sizeof(int))];
	} control;
	struct iovec io = { message, room };
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control
	};
	ssize_t n = recvmsg(s, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return TENON_E_AGAIN;
	if (n <= 0)
		return error_set(e, TENON_E_GONE, "attach: tenond hung up");
	connect_collect(&m, a);
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return error_set(e, TENON_E_PROTOCOL, "attach: tenond's answer is too long");
	*got = (size_t)n;
	return TENON_OK;
}

/* Text from the other side, for people: terminated and without control characters. */
static void connect_clean(char *text, size_t room)
{
	text[room - 1] = 0;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
}

static int connect_refused(struct wire_welcome *w, struct error *e)
{
	connect_clean(w->text, sizeof w->text);
	if (w->rc > 0 || !strcmp(error_name(w->rc), "unknown"))
		w->rc = TENON_E_PROTOCOL;
	return error_set(e, w->rc, "tenond refused: %s", *w->text ? w->text : error_meaning(w->rc));
}

static bool connect_ring_valid(uint64_t bytes)
{
	return bytes >= WIRE_RING_MIN && bytes <= WIRE_RING_MAX && !(bytes & (bytes - 1));
}

int attach_check_welcome(
	const void *message, size_t bytes, unsigned n_fds, struct wire_welcome *w, struct error *e)
{
	if (bytes != sizeof *w)
		return error_set(e, TENON_E_PROTOCOL, "welcome: wrong size");
	memcpy(w, message, sizeof *w);
	if (w->magic != WIRE_MAGIC || w->size != sizeof *w)
		return error_set(e, TENON_E_PROTOCOL, "welcome: wrong magic or size");
	if (w->rc)
		return connect_refused(w, e);
	if (w->version != WIRE_VERSION)
		return error_set(e, TENON_E_VERSION, "welcome: version %u, this library speaks %u",
			w->version, WIRE_VERSION);
	if (!connect_ring_valid(w->c2d_bytes) || !connect_ring_valid(w->d2c_bytes) || !w->max_in_flight ||
		w->max_in_flight > 1u << 20)
		return error_set(e, TENON_E_PROTOCOL, "welcome: impossible sizes");
	if ((w->bell != WIRE_BELL_ZMQ || n_fds != 2) && (w->bell != WIRE_BELL_EVENTFD || n_fds != 4))
		return error_set(e, TENON_E_PROTOCOL, "welcome: bell and descriptors do not agree");
	if (w->bell == WIRE_BELL_ZMQ &&
		(!memchr(w->bell_endpoint, 0, sizeof w->bell_endpoint) ||
			strncmp(w->bell_endpoint, "ipc://", 6) || !w->nonce[0]))
		return error_set(e, TENON_E_PROTOCOL, "welcome: impossible doorbell");
	return TENON_OK;
}

static int connect_take(struct arrived *a, unsigned i)
{
	int fd = a->fd[i];

	a->fd[i] = -1;
	return fd;
}

/* The daemon names its bell as it sees it. In another mount namespace it lies beside the attach socket instead. */
static void connect_endpoint(struct wire_welcome *w, const char *path)
{
	const char *slash = strrchr(path, '/');
	char beside[sizeof w->bell_endpoint];
	int n;

	if (!slash || !access(w->bell_endpoint + strlen("ipc://"), F_OK))
		return;
	n = snprintf(beside, sizeof beside, "ipc://%.*s/bell", (int)(slash - path), path);
	if (n > 0 && (size_t)n < sizeof beside && !access(beside + strlen("ipc://"), F_OK))
		memcpy(w->bell_endpoint, beside, (size_t)n + 1);
}

/* Every opener takes its descriptor over, also on failure. */
static int connect_build(
	struct link *l, struct wire_welcome *w, struct arrived *a, const char *path, struct error *e)
{
	int rc = segment_open(&l->tx, connect_take(a, 0), w->c2d_bytes, true, e);

	if (!rc)
		rc = segment_open(&l->rx, connect_take(a, 1), w->d2c_bytes, false, e);
	if (rc)
		return rc;
	if (w->bell == WIRE_BELL_EVENTFD) {
		int daemons = connect_take(a, 2), ours = connect_take(a, 3);

		rc = bell_eventfd_create(daemons, ours, &l->bell, e);
	} else {
		connect_endpoint(w, path);
		rc = bell_zmq_connect(w->bell_endpoint, w->nonce, &l->bell, e);
	}
	if (!rc)
		link_rings(l);
	return rc;
}

static int connect_shake(int s, const struct wire_hello *h, const char *path, uint64_t until_ns,
	struct link *l, struct wire_welcome *w, struct error *e)
{
	struct pollfd p = { .fd = s, .events = POLLIN };
	uint8_t message[sizeof *w + 1];
	struct arrived a = { .n = 0 };
	size_t got = 0;
	int rc, left;

	if (send(s, h, sizeof *h, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof *h)
		return error_set(e, TENON_E_GONE, "attach: tenond hung up");
	do {
		left = connect_left_ms(until_ns);
		if (!left)
			return error_set(e, TENON_E_TIMEOUT, "attach: tenond does not answer");
		rc = poll(&p, 1, left) < 0 ? TENON_E_AGAIN
					   : connect_receive(s, message, sizeof message, &got, &a, e);
	} while (rc == TENON_E_AGAIN);
	if (!rc)
		rc = attach_check_welcome(message, got, a.n, w, e);
	if (!rc)
		rc = connect_build(l, w, &a, path, e);
	connect_drop(&a);
	return rc;
}

int attach_connect(const char *path, uint64_t c2d_bytes, uint64_t d2c_bytes, uint32_t bell, int timeout_ms,
	struct link *out, struct wire_welcome *w, struct error *e)
{
	struct wire_hello h = { .magic = WIRE_MAGIC,
		.size = sizeof h,
		.version_min = WIRE_VERSION,
		.version_max = WIRE_VERSION,
		.c2d_bytes = c2d_bytes,
		.d2c_bytes = d2c_bytes,
		.bell = bell };
	uint64_t until_ns = clock_now_ns() + (uint64_t)MAX_OF(timeout_ms, 0) * NS_PER_MS;
	int s = -1, rc = connect_socket(path, until_ns, &s, e);

	link_init(out);
	if (rc)
		return rc;
	rc = connect_shake(s, &h, path, until_ns, out, w, e);
	out->sock = s;
	if (rc)
		link_close(out);
	else
		out->session = w->session;
	return rc;
}
