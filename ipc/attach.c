/* SPDX-License-Identifier: Apache-2.0
 * Daemon's side of attaching: the listener, who is there, HELLO in, WELCOME with descriptors out. Nothing waits.
 * All memory is the daemon's; a peer's descriptor is never received (the kernel drops it) nor mapped.
 * Thread: the daemon's loop.
 */
#include "ipc/attach_priv.h"
#include "ipc/bell_priv.h"
#include "ipc/link_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

_Static_assert(sizeof(struct wire_welcome) == 328, "layout of WELCOME is the protocol");

/* ---- listener ----------------------------------------------------------------------------------------------- */

/* The socket's directory: made if missing; nobody else may be able to put another socket in its place. */
static int attach_directory(const char *path, struct error *e)
{
	const char *slash = strrchr(path, '/');
	char dir[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	struct stat st;

	if (!slash || slash == path)
		return error_set(
			e, TENON_E_INVALID, "socket %s: not a full path; give one inside a directory", path);
	(void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
	if (mkdir(dir, 0750) ? errno != EEXIST : chmod(dir, 0750)) /* whatever the umask takes away */
		return error_errno(e, TENON_E_IO, errno, "socket directory %s: cannot create", dir);
	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return error_set(e, TENON_E_IO, "socket directory %s: not a directory", dir);
	if ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
		return error_set(e, TENON_E_DENIED,
			"socket directory %s: anybody may write there; use mode 0750", dir);
	return TENON_OK;
}

static int attach_lock(const char *path, int *lock_fd, struct error *e)
{
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 8];
	int fd, err;

	(void)snprintf(name, sizeof name, "%s.lock", path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(e, TENON_E_IO, errno, "lock file %s", name);
	if (!flock(fd, LOCK_EX | LOCK_NB)) {
		*lock_fd = fd;
		return TENON_OK;
	}
	err = errno;
	(void)close(fd);
	if (err == EWOULDBLOCK)
		return error_set(e, TENON_E_BUSY,
			"socket %s: another tenond serves it; stop that one or choose another path", path);
	return error_errno(e, TENON_E_IO, err, "lock file %s", name);
}

static int attach_bind(const char *path, int *fd, struct error *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (s < 0)
		return error_errno(e, TENON_E_IO, errno, "socket %s", path);
	memcpy(a.sun_path, path, strlen(path) + 1);
	(void)unlink(path);
	if (!fchmod(s, 0600) && !bind(s, (struct sockaddr *)&a, sizeof a) && !listen(s, 64) &&
		!chmod(path, 0660)) {
		*fd = s;
		return TENON_OK;
	}
	err = errno;
	(void)close(s);
	return error_errno(e, TENON_E_IO, err, "socket %s: cannot listen", path);
}

int attach_listen(const char *path, int *fd, int *lock_fd, struct error *e)
{
	int rc, lock = -1;

	if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return error_set(
			e, TENON_E_TOO_LONG, "socket %.60s...: over 107 bytes; choose a shorter path", path);
	rc = attach_directory(path, e);
	if (!rc)
		rc = attach_lock(path, &lock, e);
	if (rc)
		return rc;
	rc = attach_bind(path, fd, e);
	if (rc)
		(void)close(lock);
	else
		*lock_fd = lock;
	return rc;
}

/* ---- who is there ------------------------------------------------------------------------------------------- */

/* Kernels before 6.5 name the peer by pid only: take a pidfd of that number and believe it only if the peer was
 * still connected afterwards, so that the number had not been given away by then. */
static int attach_pidfd(int fd, pid_t pid)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	int pidfd = -1;
	socklen_t len = sizeof pidfd;

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) && pidfd >= 0)
		return pidfd;
	pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd >= 0 && (poll(&p, 1, 0) < 0 || (p.revents & (POLLRDHUP | POLLHUP)))) {
		(void)close(pidfd);
		return -1;
	}
	return pidfd;
}

int attach_accept(int listen_fd, int *fd, struct peer_id *who, struct error *e)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	int s;

	do
		s = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (s < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (s < 0 && errno == EAGAIN)
		return TENON_E_AGAIN;
	if (s < 0)
		return error_errno(e, TENON_E_NOMEM, errno, "attach: cannot accept");
	if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		(void)close(s);
		return error_set(e, TENON_E_IO, "attach: peer without credentials");
	}
	*fd = s;
	*who = (struct peer_id){
		.uid = cred.uid, .gid = cred.gid, .pid = cred.pid, .pidfd = attach_pidfd(s, cred.pid)
	};
	return TENON_OK;
}

/* ---- HELLO -------------------------------------------------------------------------------------------------- */

static bool attach_ring_valid(uint64_t bytes)
{
	return !bytes || (bytes >= WIRE_RING_MIN && bytes <= WIRE_RING_MAX && !(bytes & (bytes - 1)));
}

int attach_check_hello(const void *message, size_t bytes, struct wire_hello *h, struct error *e)
{
	if (bytes != sizeof *h)
		return error_set(e, TENON_E_PROTOCOL, "hello: wrong size");
	memcpy(h, message, sizeof *h);
	if (h->magic != WIRE_MAGIC || h->size != sizeof *h)
		return error_set(e, TENON_E_PROTOCOL, "hello: wrong magic or size");
	if (h->version_min > WIRE_VERSION || h->version_max < WIRE_VERSION)
		return error_set(e, TENON_E_VERSION,
			"hello: versions %u to %u offered, this daemon speaks %u to %u", h->version_min,
			h->version_max, WIRE_VERSION, WIRE_VERSION);
	if (h->features)
		return error_set(e, TENON_E_PROTOCOL, "hello: unknown features");
	for (size_t i = 0; i < sizeof h->reserved0; i++)
		if (h->reserved0[i])
			return error_set(e, TENON_E_PROTOCOL, "hello: reserved bytes are not zero");
	if (!attach_ring_valid(h->c2d_bytes) || !attach_ring_valid(h->d2c_bytes))
		return error_set(e, TENON_E_INVALID, "hello: ring size is not a power of two in %u..%u",
			WIRE_RING_MIN, WIRE_RING_MAX);
	if (h->bell != WIRE_BELL_ZMQ && h->bell != WIRE_BELL_EVENTFD)
		return error_set(e, TENON_E_INVALID, "hello: unknown kind of doorbell");
	return TENON_OK;
}

/* Without room for control data the kernel installs no descriptor and says MSG_CTRUNC. */
int attach_read_hello(int fd, struct wire_hello *hello, struct error *e)
{
	uint8_t message[sizeof *hello + 1];
	struct iovec io = { message, sizeof message };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	struct wire_hello h;
	ssize_t n;
	int rc;

	do
		n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return TENON_E_AGAIN;
	if (n <= 0)
		return error_set(e, TENON_E_GONE, "hello: the client hung up");
	if (m.msg_flags & (MSG_CTRUNC | MSG_TRUNC))
		return error_set(e, TENON_E_PROTOCOL, "hello: too long, or with descriptors");
	rc = attach_check_hello(message, (size_t)n, &h, e);
	if (!rc)
		*hello = h;
	return rc;
}

/* ---- WELCOME ------------------------------------------------------------------------------------------------ */

static uint64_t attach_clip(uint64_t wanted, const struct attach_limits *lim)
{
	uint64_t bytes = wanted ? wanted : lim->ring_default;

	return MAX_OF(MIN_OF(bytes, lim->ring_max), (uint64_t)WIRE_RING_MIN);
}

/* A routing id must not begin with a zero byte. */
static int attach_nonce(uint8_t nonce[16])
{
	if (getrandom(nonce, 16, 0) != 16)
		return TENON_E_IO;
	nonce[0] |= 1;
	return TENON_OK;
}

/* fds: {daemon's, client's} for the client to use, both still open here for sending; -1 with ZeroMQ. */
static int attach_bell(
	struct link *l, struct wire_welcome *w, struct bell_hub *hub, int fds[2], struct error *e)
{
	int copy[2];

	if (w->bell == WIRE_BELL_ZMQ) {
		(void)snprintf(w->bell_endpoint, sizeof w->bell_endpoint, "%s", bell_hub_endpoint(hub));
		if (attach_nonce(w->nonce) || bell_hub_bell(hub, w->nonce, &l->bell))
			return error_set(e, TENON_E_NOMEM, "attach: no memory for a doorbell");
		return TENON_OK;
	}
	for (int i = 0; i < 2; i++) {
		fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		copy[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
	}
	if (copy[0] >= 0 && copy[1] >= 0)
		return bell_eventfd_create(copy[1], copy[0], &l->bell, e);
	for (int i = 0; i < 2; i++)
		if (copy[i] >= 0)
			(void)close(copy[i]);
	return error_errno(e, TENON_E_NOMEM, errno, "attach: no descriptor for a doorbell");
}

static bool attach_send(int fd, const struct wire_welcome *w, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control = { 0 };
	struct iovec io = { (void *)(uintptr_t)w, sizeof *w };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds) {
		struct cmsghdr *c;

		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof *w;
}

static void attach_forget_fd(struct segment *s)
{
	(void)close(s->fd);
	s->fd = -1;
}

static int attach_build(struct link *l, struct wire_welcome *w, struct bell_hub *hub, int fd, struct error *e)
{
	int fds[4] = { -1, -1, -1, -1 };
	int rc = segment_create(&l->rx, w->c2d_bytes, true, e);

	if (!rc)
		rc = segment_create(&l->tx, w->d2c_bytes, false, e);
	if (!rc)
		rc = attach_bell(l, w, hub, fds + 2, e);
	fds[0] = l->rx.fd;
	fds[1] = l->tx.fd;
	if (!rc && !attach_send(fd, w, fds, w->bell == WIRE_BELL_EVENTFD ? 4 : 2))
		rc = error_set(e, TENON_E_GONE, "attach: the client hung up");
	for (int i = 2; i < 4; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	return rc;
}

int attach_welcome(int fd, const struct wire_hello *hello, const struct attach_limits *lim,
	struct bell_hub *hub, uint64_t session, struct link *out, struct error *e)
{
	struct wire_welcome w = { .magic = WIRE_MAGIC,
		.size = sizeof w,
		.version = WIRE_VERSION,
		.session = session,
		.c2d_bytes = attach_clip(hello->c2d_bytes, lim),
		.d2c_bytes = attach_clip(hello->d2c_bytes, lim),
		.max_payload_bytes = lim->max_payload_bytes,
		.bell = hub ? hello->bell : WIRE_BELL_EVENTFD,
		.max_in_flight = lim->max_in_flight };
	int rc;

	link_init(out);
	rc = attach_build(out, &w, hub, fd, e);
	if (rc) {
		link_close(out);
		return rc;
	}
	attach_forget_fd(&out->rx);
	attach_forget_fd(&out->tx);
	link_rings(out);
	out->sock = fd;
	out->session = session;
	memcpy(out->nonce, w.nonce, sizeof out->nonce);
	return TENON_OK;
}

void attach_refuse(int fd, int code, const char *text)
{
	struct wire_welcome w = {
		.magic = WIRE_MAGIC, .size = sizeof w, .rc = code, .version = WIRE_VERSION
	};

	(void)snprintf(w.text, sizeof w.text, "%s", text);
	(void)attach_send(fd, &w, NULL, 0);
}
