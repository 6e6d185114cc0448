/* SPDX-License-Identifier: Apache-2.0
 * Attach: both kinds of bell end to end, and everything a hostile client can do to the handshake and to the
 * descriptors it gets. The daemon's side runs in this thread, the client's in another one.
 */
#include "tests/unit/unit.h"
#include "ipc/attach_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif

static const struct attach_limits limits = {
	.ring_default = 1u << 20, .ring_max = 2u << 20, .max_payload_bytes = 1u << 20, .max_in_flight = 16
};

struct world {
	char dir[64], path[96];
	int listen_fd, lock_fd;
	struct bell_hub *hub;
};

static int setup(void **st)
{
	struct world *w = calloc(1, sizeof *w);
	struct error e = { 0 };
	mode_t mask = umask(077); /* a careful user's: the modes are ours all the same */

	strcpy(w->dir, "/tmp/tenon-attach-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	(void)snprintf(w->path, sizeof w->path, "%s/run/attach", w->dir);
	if (attach_listen(w->path, &w->listen_fd, &w->lock_fd, &e))
		fail_msg("%s", e.text);
	(void)umask(mask);
	strcat(w->dir, "/run");
	if (bell_hub_open(w->dir, &w->hub, &e))
		fail_msg("%s", e.text);
	*st = w;
	return 0;
}

static int teardown(void **st)
{
	struct world *w = *st;
	char cmd[128];

	bell_hub_close(w->hub);
	(void)close(w->listen_fd);
	(void)close(w->lock_fd);
	(void)snprintf(cmd, sizeof cmd, "rm -r %.*s", (int)(strlen(w->dir) - 4), w->dir);
	assert_int_equal(system(cmd), 0);
	free(w);
	return 0;
}

static int accept_soon(struct world *w, struct peer_id *who)
{
	struct pollfd p = { .fd = w->listen_fd, .events = POLLIN };
	int fd = -1;

	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(attach_accept(w->listen_fd, &fd, who, NULL), 0);
	return fd;
}

static int hello_soon(int fd, struct wire_hello *h, struct error *e)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 5000), 1);
	return attach_read_hello(fd, h, e);
}

struct client {
	const char *path;
	uint64_t c2d, d2c;
	uint32_t bell;
	struct link link;
	struct wire_welcome w;
	struct error e;
	int rc;
};

static void *client_main(void *arg)
{
	struct client *c = arg;

	c->rc = attach_connect(c->path, c->c2d, c->d2c, c->bell, 5000, &c->link, &c->w, &c->e);
	return NULL;
}

/* A client attached to this process. */
static void attach_pair(struct world *w, struct client *c, struct bell_hub *hub, struct link *d)
{
	struct peer_id who;
	struct wire_hello h;
	struct error e = { 0 };
	pthread_t th;
	int fd;

	c->path = w->path;
	assert_int_equal(pthread_create(&th, NULL, client_main, c), 0);
	fd = accept_soon(w, &who);
	assert_int_equal(who.uid, geteuid());
	assert_int_equal(who.pid, getpid());
	assert_true(who.pidfd >= 0);
	if (hello_soon(fd, &h, &e) || attach_welcome(fd, &h, &limits, hub, 42, d, &e))
		fail_msg("%s", e.text);
	d->pidfd = who.pidfd;
	assert_int_equal(pthread_join(th, NULL), 0);
	if (c->rc)
		fail_msg("%s", c->e.text);
}

static void pass_frame(struct link *from, struct link *to, uint64_t id)
{
	struct wire_head h;
	char body[16];
	bool bad;
	void *at = ring_put(&from->out, WIRE_PING, 0, id, 8, &bad);

	assert_non_null(at);
	memcpy(at, "12345678", 8);
	link_flush(from);
	assert_int_equal(ring_take(&to->in, &h, body, sizeof body), 0);
	assert_int_equal(h.id, id);
	assert_memory_equal(body, "12345678", 8);
	ring_consumed(&to->in);
}

static bool count_rung(void *ctx, const uint8_t nonce[16])
{
	(void)nonce;
	++*(int *)ctx;
	return true;
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static void zmq_session_end_to_end(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_ZMQ };
	struct link d;
	bool bad;
	int rung = 0;

	attach_pair(w, &c, w->hub, &d);
	assert_int_equal(c.w.session, 42);
	assert_int_equal(c.w.c2d_bytes, limits.ring_default);
	pass_frame(&c.link, &d, 7);
	pass_frame(&d, &c.link, 8);
	for (int i = 0; i < 3; i++) {
		assert_true(park_begin(&d.tx, &d.in));
		(void)ring_put(&c.link.out, WIRE_PING, 0, 1, 0, &bad);
		link_flush(&c.link);
		rung = 0;
		for (int tries = 0; !rung && tries < 100; tries++) {
			(void)readable(bell_hub_fd(w->hub), 50);
			bell_hub_drain(w->hub, count_rung, &rung);
		}
		assert_int_equal(rung, 1);
		d.in.head = d.in.tail_seen = c.link.out.tail;
		ring_consumed(&d.in);
		assert_true(park_begin(&c.link.tx, &c.link.in));
		(void)ring_put(&d.out, WIRE_PONG, 0, 1, 0, &bad);
		link_flush(&d);
		assert_true(readable(bell_fd(c.link.bell), 5000));
		bell_drain(c.link.bell);
		assert_false(readable(bell_fd(c.link.bell), 0));
		c.link.in.head = c.link.in.tail_seen = d.out.tail;
		park_end(&c.link.tx);
		park_end(&d.tx);
	}
	link_close(&c.link);
	assert_true(readable(d.sock, 1000));
	link_close(&d);
}

static void eventfd_session_end_to_end(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_EVENTFD, .c2d = WIRE_RING_MIN, .d2c = 64u << 20 };
	struct link d;
	bool bad;

	attach_pair(w, &c, w->hub, &d);
	assert_int_equal(c.w.c2d_bytes, WIRE_RING_MIN);
	assert_int_equal(c.w.d2c_bytes, limits.ring_max);
	pass_frame(&c.link, &d, 7);
	pass_frame(&d, &c.link, 8);
	assert_true(park_begin(&d.tx, &d.in));
	(void)ring_put(&c.link.out, WIRE_PING, 0, 1, 0, &bad);
	assert_false(readable(bell_fd(d.bell), 0));
	link_flush(&c.link);
	assert_true(readable(bell_fd(d.bell), 0));
	bell_drain(d.bell);
	assert_false(readable(bell_fd(d.bell), 0));
	link_close(&c.link);
	link_close(&d);
}

static void without_a_hub_the_bell_is_an_eventfd(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_ZMQ };
	struct link d;

	attach_pair(w, &c, NULL, &d);
	assert_int_equal(c.w.bell, WIRE_BELL_EVENTFD);
	pass_frame(&c.link, &d, 1);
	link_close(&c.link);
	link_close(&d);
}

/* Forged, flooded and unknown bells are counted and forgotten. */
static void stranger_at_the_bell_is_counted(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_ZMQ };
	void *ctx = zmq_ctx_new(), *s = zmq_socket(ctx, ZMQ_DEALER);
	struct link d;
	int rung = 0, linger = 0;

	attach_pair(w, &c, w->hub, &d);
	(void)zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
	(void)zmq_setsockopt(s, ZMQ_ROUTING_ID, "sixteen bytes id", 16);
	assert_int_equal(zmq_connect(s, bell_hub_endpoint(w->hub)), 0);
	for (int i = 0; i < 300; i++)
		(void)zmq_send(s, "parts", 5, i % 3 ? 0 : ZMQ_SNDMORE);
	for (int tries = 0; tries < 200 && bell_hub_n_unknown(w->hub) < 100; tries++) {
		(void)readable(bell_hub_fd(w->hub), 20);
		bell_hub_drain(w->hub, count_rung, &rung);
	}
	assert_true(bell_hub_n_unknown(w->hub) >= 100);
	assert_int_equal(rung, 0);
	assert_int_equal(bell_ring(c.link.bell), 0);
	for (int tries = 0; tries < 100 && !rung; tries++) {
		(void)readable(bell_hub_fd(w->hub), 20);
		bell_hub_drain(w->hub, count_rung, &rung);
	}
	assert_int_equal(rung, 1);
	(void)zmq_close(s);
	(void)zmq_ctx_term(ctx);
	link_close(&c.link);
	link_close(&d);
}

static bool futile_rung(void *ctx, const uint8_t nonce[16])
{
	(void)count_rung(ctx, nonce);
	return false;
}

/* A client that rings without sending anything: heard 64 times, then for a while not at all, and so on. */
static void flooding_client_is_muted(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_ZMQ };
	uint64_t began, most, n_rings = 0;
	struct link d;
	int rung = 0;

	attach_pair(w, &c, w->hub, &d);
	began = clock_now_ns();
	while (rung < 3 * 64 && clock_now_ns() - began < 60 * NS_PER_S) {
		n_rings += bell_ring(c.link.bell) == TENON_OK;
		if (readable(bell_hub_fd(w->hub), 0))
			bell_hub_drain(w->hub, futile_rung, &rung);
	}
	most = 64 * ((clock_now_ns() - began) / (BELL_MUTE_MS * NS_PER_MS) + 2);
	assert_true(n_rings > 64 && rung >= 3 * 64);
	assert_true((uint64_t)rung <= most);
	rung = 0;
	for (int tries = 0; tries < 3000 && !rung; tries++) {
		(void)bell_ring(c.link.bell);
		(void)readable(bell_hub_fd(w->hub), 20);
		bell_hub_drain(w->hub, count_rung, &rung);
	}
	assert_true(rung > 0);
	link_close(&c.link);
	link_close(&d);
}

static void second_daemon_is_refused(void **st)
{
	struct world *w = *st;
	struct error e = { 0 };
	int fd, lock;

	assert_int_equal(attach_listen(w->path, &fd, &lock, &e), TENON_E_BUSY);
	assert_non_null(strstr(e.text, "another tenond"));
}

static void listener_guards_its_directory(void **st)
{
	struct world *w = *st;
	char path[160];
	struct stat s;
	int fd, lock;

	assert_int_equal(stat(w->path, &s), 0);
	assert_int_equal(s.st_mode & 07777, 0660);
	assert_int_equal(stat(w->dir, &s), 0);
	assert_int_equal(s.st_mode & 07777, 0750);
	assert_int_equal(chmod(w->dir, 0777), 0);
	(void)snprintf(path, sizeof path, "%s/other", w->dir);
	assert_int_equal(attach_listen(path, &fd, &lock, NULL), TENON_E_DENIED);
	memset(path, 'x', 120);
	path[0] = '/';
	path[120] = 0;
	assert_int_equal(attach_listen(path, &fd, &lock, NULL), TENON_E_TOO_LONG);
	assert_int_equal(attach_listen("nodirectory", &fd, &lock, NULL), TENON_E_INVALID);
}

static void nobody_listens(void **st)
{
	struct link l;
	struct wire_welcome w;
	struct error e = { 0 };

	(void)st;
	assert_int_equal(attach_connect("/tmp/tenon-no-such/attach", 0, 0, WIRE_BELL_ZMQ, 100, &l, &w, &e),
		TENON_E_GONE);
	assert_non_null(strstr(e.text, "is tenond running"));
}

static void silent_daemon_times_out(void **st)
{
	struct world *w = *st;
	struct link l;
	struct wire_welcome answer;
	uint64_t t0 = clock_now_ns();

	assert_int_equal(
		attach_connect(w->path, 0, 0, WIRE_BELL_ZMQ, 60, &l, &answer, NULL), TENON_E_TIMEOUT);
	assert_true(clock_now_ns() - t0 >= 50 * NS_PER_MS);
}

static void refusal_carries_code_and_text(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_ZMQ, .path = w->path };
	struct peer_id who;
	struct wire_hello h;
	pthread_t th;
	int fd;

	assert_int_equal(pthread_create(&th, NULL, client_main, &c), 0);
	fd = accept_soon(w, &who);
	assert_int_equal(hello_soon(fd, &h, NULL), 0);
	attach_refuse(fd, TENON_E_DENIED, "user is not\x1b on the list");
	assert_int_equal(pthread_join(th, NULL), 0);
	assert_int_equal(c.rc, TENON_E_DENIED);
	assert_non_null(strstr(c.e.text, "not  on the list"));
	(void)close(fd);
	(void)close(who.pidfd);
}

/* ---- hostile HELLO ------------------------------------------------------------------------------------------ */

static int raw_connect(struct world *w)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, w->path, strlen(w->path) + 1);
	assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof a), 0);
	return s;
}

static struct wire_hello good_hello(void)
{
	return (struct wire_hello){ .magic = WIRE_MAGIC,
		.size = sizeof(struct wire_hello),
		.version_min = 1,
		.version_max = 1,
		.bell = WIRE_BELL_ZMQ };
}

static void every_wrong_hello_is_typed(void **st)
{
	static const struct {
		size_t at;
		uint64_t value;
		size_t len;
		int rc;
	} t[] = { { offsetof(struct wire_hello, magic), 1, 4, TENON_E_PROTOCOL },
		{ offsetof(struct wire_hello, size), 127, 4, TENON_E_PROTOCOL },
		{ offsetof(struct wire_hello, version_min), 2, 4, TENON_E_VERSION },
		{ offsetof(struct wire_hello, version_max), 0, 4, TENON_E_VERSION },
		{ offsetof(struct wire_hello, version_min), UINT32_MAX, 4, TENON_E_VERSION },
		{ offsetof(struct wire_hello, c2d_bytes), 1, 8, TENON_E_INVALID },
		{ offsetof(struct wire_hello, c2d_bytes), 65535, 8, TENON_E_INVALID },
		{ offsetof(struct wire_hello, c2d_bytes), 3 << 16, 8, TENON_E_INVALID },
		{ offsetof(struct wire_hello, d2c_bytes), 1ull << 40, 8, TENON_E_INVALID },
		{ offsetof(struct wire_hello, d2c_bytes), UINT64_MAX, 8, TENON_E_INVALID },
		{ offsetof(struct wire_hello, bell), 0, 4, TENON_E_INVALID },
		{ offsetof(struct wire_hello, bell), 3, 4, TENON_E_INVALID },
		{ offsetof(struct wire_hello, features), 1, 4, TENON_E_PROTOCOL } };
	struct wire_hello h, out;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		h = good_hello();
		memcpy((char *)&h + t[i].at, &t[i].value, t[i].len);
		assert_int_equal(attach_check_hello(&h, sizeof h, &out, NULL), t[i].rc);
	}
	for (size_t i = 0; i < sizeof h.reserved0; i++) {
		h = good_hello();
		h.reserved0[i] = 1;
		assert_int_equal(attach_check_hello(&h, sizeof h, &out, NULL), TENON_E_PROTOCOL);
	}
	h = good_hello();
	h.version_max = 9;
	h.d2c_bytes = WIRE_RING_MAX;
	assert_int_equal(attach_check_hello(&h, sizeof h, &out, NULL), 0);
}

static void hello_of_every_length(void **st)
{
	struct world *w = *st;
	uint8_t message[200] = { 0 };
	struct wire_hello h = good_hello(), out;
	struct peer_id who;

	memcpy(message, &h, sizeof h);
	for (size_t n = 1; n <= sizeof message; n += n < 126 ? 25 : 1) {
		int s = raw_connect(w), fd = accept_soon(w, &who);

		assert_int_equal(attach_read_hello(fd, &out, NULL), TENON_E_AGAIN);
		assert_int_equal(send(s, message, n, 0), n);
		assert_int_equal(hello_soon(fd, &out, NULL), n == sizeof h ? 0 : TENON_E_PROTOCOL);
		(void)close(s);
		assert_int_equal(hello_soon(fd, &out, NULL), TENON_E_GONE);
		(void)close(fd);
		(void)close(who.pidfd);
	}
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* 1 and 200 descriptors with HELLO: refused, and none is left in the daemon. */
static void extra_descriptors_are_refused(void **st)
{
	struct world *w = *st;
	static const unsigned counts[] = { 1, 200 };
	struct wire_hello h = good_hello(), out;
	struct peer_id who;

	for (size_t k = 0; k < COUNT_OF(counts); k++) {
		int s = raw_connect(w), fd = accept_soon(w, &who), before = count_fds();
		char control[CMSG_SPACE(200 * sizeof(int))] = { 0 };
		struct iovec io = { &h, sizeof h };
		struct msghdr m = { .msg_iov = &io,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = CMSG_SPACE(counts[k] * sizeof(int)) };
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(counts[k] * sizeof(int));
		for (unsigned i = 0; i < counts[k]; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &s, sizeof s);
		assert_int_equal(sendmsg(s, &m, 0), sizeof h);
		assert_int_equal(hello_soon(fd, &out, NULL), TENON_E_PROTOCOL);
		assert_int_equal(count_fds(), before);
		(void)close(s);
		(void)close(fd);
		(void)close(who.pidfd);
	}
}

static void every_wrong_welcome_is_typed(void **st)
{
	struct wire_welcome good = { .magic = WIRE_MAGIC,
		.size = sizeof good,
		.version = 1,
		.c2d_bytes = WIRE_RING_MIN,
		.d2c_bytes = WIRE_RING_MIN,
		.bell = WIRE_BELL_ZMQ,
		.max_in_flight = 1,
		.nonce = { 1 },
		.bell_endpoint = "ipc://x" };
	struct wire_welcome w = good, out;

	(void)st;
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), 0);
	assert_int_equal(attach_check_welcome(&w, sizeof w - 1, 2, &out, NULL), TENON_E_PROTOCOL);
	assert_int_equal(attach_check_welcome(&w, sizeof w, 4, &out, NULL), TENON_E_PROTOCOL);
	assert_int_equal(attach_check_welcome(&w, sizeof w, 0, &out, NULL), TENON_E_PROTOCOL);
	w.version = 2;
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), TENON_E_VERSION);
	w = good;
	w.rc = 5;
	assert_int_equal(attach_check_welcome(&w, sizeof w, 0, &out, NULL), TENON_E_PROTOCOL);
	w.rc = TENON_E_NOMEM;
	memset(w.text, 'a', sizeof w.text);
	assert_int_equal(attach_check_welcome(&w, sizeof w, 0, &out, NULL), TENON_E_NOMEM);
	w = good;
	w.d2c_bytes = WIRE_RING_MIN + 4096;
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), TENON_E_PROTOCOL);
	w = good;
	w.max_in_flight = UINT32_MAX;
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), TENON_E_PROTOCOL);
	w = good;
	memset(w.bell_endpoint, 'i', sizeof w.bell_endpoint);
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), TENON_E_PROTOCOL);
	w = good;
	strcpy(w.bell_endpoint, "tcp://127.0.0.1:1");
	assert_int_equal(attach_check_welcome(&w, sizeof w, 2, &out, NULL), TENON_E_PROTOCOL);
}

/* ---- hostile descriptors ------------------------------------------------------------------------------------ */

static void client_cannot_change_sizes(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_EVENTFD };
	struct link d;
	off_t size;

	attach_pair(w, &c, w->hub, &d);
	size = WIRE_RING_OFFSET + (off_t)c.w.c2d_bytes;
	for (int i = 0; i < 2; i++) {
		int fd = i ? c.link.rx.fd : c.link.tx.fd;

		assert_int_equal(ftruncate(fd, 0), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(ftruncate(fd, size + 4096), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(pwrite(fd, "x", 1, size), -1);
		assert_int_equal(fallocate(fd, 0, size, 4096), -1);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
		assert_int_equal(errno, EPERM);
	}
	pass_frame(&c.link, &d, 1);
	link_close(&c.link);
	link_close(&d);
}

static void client_cannot_write_what_the_daemon_owns(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_EVENTFD };
	struct link d;
	char path[64];
	int fd;

	attach_pair(w, &c, w->hub, &d);
	assert_int_equal(pwrite(c.link.rx.fd, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c.link.rx.fd, 0), MAP_FAILED);
	assert_int_equal(mprotect(c.link.rx.head, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(fallocate(c.link.rx.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), -1);
	assert_int_equal(madvise(c.link.rx.head, 4096, MADV_REMOVE), -1);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", c.link.rx.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
		assert_int_equal(pwrite(fd, "x", 1, 0), -1);
		(void)close(fd);
	}
	pass_frame(&d, &c.link, 5);
	link_close(&c.link);
	link_close(&d);
}

/* Punching holes is allowed in the client's own segment: its frames read as zero, which is no frame. */
static void punched_frame_ends_the_session(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_EVENTFD };
	struct wire_head h;
	struct link d;
	char body[64];
	bool bad;

	attach_pair(w, &c, w->hub, &d);
	(void)ring_put(&c.link.out, WIRE_PING, 0, 1, 8, &bad);
	link_flush(&c.link);
	assert_int_equal(
		fallocate(c.link.tx.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 1 << 20), 0);
	assert_int_equal(ring_take(&d.in, &h, body, sizeof body), TENON_E_PROTOCOL);
	link_close(&c.link);
	link_close(&d);
}

static void unsealed_or_wrong_descriptors_are_not_mapped(void **st)
{
	struct segment s;
	int fd = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct segment good;

	(void)st;
	assert_int_equal(ftruncate(fd, WIRE_RING_OFFSET + WIRE_RING_MIN), 0);
	assert_int_equal(segment_open(&s, dup(fd), WIRE_RING_MIN, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	assert_int_equal(segment_open(&s, dup(fd), WIRE_RING_MIN, false, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_open(&s, dup(fd), WIRE_RING_MIN, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_open(&s, dup(fd), 2 * WIRE_RING_MIN, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_open(&s, dup(fd), 5, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_open(&s, dup(fd), 0, true, NULL), TENON_E_PROTOCOL);
	(void)close(fd);
	fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(segment_open(&s, fd, WIRE_RING_MIN, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_open(&s, -1, WIRE_RING_MIN, true, NULL), TENON_E_PROTOCOL);
	assert_int_equal(segment_create(&good, WIRE_RING_MIN, true, NULL), 0);
	assert_int_equal(segment_open(&s, dup(good.fd), WIRE_RING_MIN, true, NULL), 0);
	segment_close(&s);
	segment_close(&good);
}

/* MADV_DONTFORK: a child of the client that touches the rings dies, the rings stay right. */
static void forked_child_cannot_touch_the_rings(void **st)
{
	struct world *w = *st;
	struct client c = { .bell = WIRE_BELL_EVENTFD };
	struct link d;
	int status = 0;
	pid_t pid;

	attach_pair(w, &c, w->hub, &d);
	pid = fork();
	if (!pid) {
		(void)signal(SIGSEGV, SIG_DFL);
		c.link.tx.ring[0] = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_false(WIFEXITED(status) && !WEXITSTATUS(status));
	pass_frame(&c.link, &d, 5);
	link_close(&c.link);
	link_close(&d);
}

/* A client that forked keeps the socket open after its death; the pidfd tells. */
static void death_of_a_forked_client_is_seen(void **st)
{
	struct world *w = *st;
	struct peer_id who;
	int go[2], ready[2], fd, status;
	char one;
	pid_t pid;

	assert_int_equal(pipe(go) || pipe(ready), 0);
	pid = fork();
	if (!pid) {
		(void)raw_connect(w);
		if (!fork()) {
			(void)!write(ready[1], "x", 1);
			_exit(read(go[0], &one, 1) != 1);
		}
		_exit(read(go[0], &one, 1) != 1);
	}
	fd = accept_soon(w, &who);
	assert_int_equal(who.pid, pid);
	assert_int_equal(read(ready[0], &one, 1), 1);
	assert_false(readable(who.pidfd, 0));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(readable(who.pidfd, 1000));
	assert_false(readable(fd, 20));
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)close(go[0]);
	(void)close(go[1]);
	(void)close(ready[0]);
	(void)close(ready[1]);
	(void)close(fd);
	(void)close(who.pidfd);
}

static void failed_allocations_leave_nothing_behind(void **st)
{
	struct world *w = *st;
	static const uint32_t kinds[] = { WIRE_BELL_ZMQ, WIRE_BELL_EVENTFD };
	struct link a, b;

	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		struct wire_hello h = good_hello();
		int before = 0;

		h.bell = kinds[k];
		for (uint64_t n = 1;; n++) {
			int s[2], rc;
			struct link l;

			assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
			before = count_fds();
			mem_fail_at(n);
			rc = attach_welcome(s[0], &h, &limits, w->hub, 1, &l, NULL);
			mem_fail_at(0);
			if (rc) {
				assert_int_equal(rc, TENON_E_NOMEM);
				assert_int_equal(count_fds(), before);
				(void)close(s[0]);
			} else {
				link_close(&l);
			}
			(void)close(s[1]);
			if (!rc)
				break;
		}
	}
	for (uint64_t n = 1; n <= 2; n++) {
		int before = count_fds();

		mem_fail_at(n);
		assert_int_equal(link_pair(WIRE_RING_MIN, &a, &b, NULL), TENON_E_NOMEM);
		mem_fail_at(0);
		assert_int_equal(count_fds(), before);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(zmq_session_end_to_end), T(eventfd_session_end_to_end),
		T(without_a_hub_the_bell_is_an_eventfd), T(stranger_at_the_bell_is_counted),
		T(flooding_client_is_muted), T(second_daemon_is_refused), T(listener_guards_its_directory),
		T(nobody_listens), T(silent_daemon_times_out), T(refusal_carries_code_and_text),
		T(every_wrong_hello_is_typed), T(hello_of_every_length), T(extra_descriptors_are_refused),
		T(every_wrong_welcome_is_typed), T(client_cannot_change_sizes),
		T(client_cannot_write_what_the_daemon_owns), T(punched_frame_ends_the_session),
		T(unsealed_or_wrong_descriptors_are_not_mapped), T(forked_child_cannot_touch_the_rings),
		T(death_of_a_forked_client_is_seen), T(failed_allocations_leave_nothing_behind) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
