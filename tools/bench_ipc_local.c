/* SPDX-License-Identifier: Apache-2.0
 * bench_ipc.h: round trips of 64 bytes between two threads, and between two processes for the hop to a worker and where
 * both are idle in between, over Tenon's rings and beside them over what else there is: a Unix socket and ZeroMQ. One
 * side asks, the other echoes.
 */
#include "ipc/ipc.h"
#include "tools/bench_ipc.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#define WAY_MAX_NS (5 * NS_PER_S) /* on a busy machine fewer round trips are made */
enum { IDLE_US = 3000 }; /* both processes sleep so long before each, as before each ping to a daemon */

/* Two ends of one way to talk. */
struct duo {
	struct link link[2];
	struct bell_hub *hub; /* end 1 waits on it, when there is one */
	int fd[2];	      /* Unix sockets */
	void *zmq, *zsock[2];
	char dir[32];
	bool park;
	int rc; /* of the echo */
};

/* One round trip: `first` asks and waits, the other end waits and answers. The message begins with *mark, which is
 * what the other end gets. */
typedef int trip_fn(struct duo *d, int end, bool first, char *mark);
#define MARK_LAST 'q'

/* ---- the ways ------------------------------------------------------------------------------------------------------ */

static bool somebody(void *ctx, const uint8_t nonce[16])
{
	(void)ctx;
	(void)nonce;
	return true;
}

static void ring_park(struct duo *d, int end)
{
	struct link *l = &d->link[end];
	bool hub = d->hub && end == 1;
	struct pollfd p = { .fd = hub ? bell_hub_fd(d->hub) : bell_fd(l->bell), .events = POLLIN };

	if (hub)
		bell_hub_drain(d->hub, somebody, NULL);
	else
		bell_drain(l->bell);
	if (!park_begin(&l->tx, &l->in))
		return;
	(void)poll(&p, 1, IPC_PARK_MAX_MS);
	park_end(&l->tx);
}

static int ring_send(struct link *l, char mark)
{
	bool bad;
	void *at = ring_put(&l->out, WIRE_PING, 0, 1, BENCH_IPC_BYTES, &bad);

	if (!at)
		return TENON_E_FULL;
	memset(at, mark, BENCH_IPC_BYTES);
	link_flush(l);
	return TENON_OK;
}

static int ring_receive(struct duo *d, int end, char *mark)
{
	struct link *l = &d->link[end];
	char body[BENCH_IPC_BYTES];
	struct wire_head h;
	int rc;

	while ((rc = ring_take(&l->in, &h, body, sizeof body)) == TENON_E_AGAIN)
		if (d->park)
			ring_park(d, end);
		else
			spin_pause();
	ring_consumed(&l->in);
	*mark = body[0];
	return rc;
}

static int trip_ring(struct duo *d, int end, bool first, char *mark)
{
	int rc = first ? ring_send(&d->link[end], *mark) : ring_receive(d, end, mark);

	if (!rc)
		rc = first ? ring_receive(d, end, mark) : ring_send(&d->link[end], *mark);
	return rc;
}

static bool unix_send(int fd, char mark)
{
	char body[BENCH_IPC_BYTES] = { mark };

	return send(fd, body, sizeof body, MSG_NOSIGNAL) == (ssize_t)sizeof body;
}

static bool unix_receive(int fd, char *mark)
{
	char body[BENCH_IPC_BYTES];
	bool ok = recv(fd, body, sizeof body, 0) == (ssize_t)sizeof body;

	*mark = body[0];
	return ok;
}

static int trip_unix(struct duo *d, int end, bool first, char *mark)
{
	int fd = d->fd[end];
	bool ok = first ? unix_send(fd, *mark) && unix_receive(fd, mark)
			: unix_receive(fd, mark) && unix_send(fd, *mark);

	return ok ? TENON_OK : TENON_E_IO;
}

static bool zmq_say(void *s, char mark)
{
	char body[BENCH_IPC_BYTES] = { mark };

	return zmq_send(s, body, sizeof body, 0) == (int)sizeof body;
}

static bool zmq_hear(void *s, char *mark)
{
	char body[BENCH_IPC_BYTES];
	bool ok = zmq_recv(s, body, sizeof body, 0) == (int)sizeof body;

	*mark = body[0];
	return ok;
}

static int trip_zmq(struct duo *d, int end, bool first, char *mark)
{
	void *s = d->zsock[end];
	bool ok = first ? zmq_say(s, *mark) && zmq_hear(s, mark) : zmq_hear(s, mark) && zmq_say(s, *mark);

	return ok ? TENON_OK : TENON_E_IO;
}

/* ---- setting up and taking down ------------------------------------------------------------------------------------ */

static int duo_dir(struct duo *d, struct error *e)
{
	(void)snprintf(d->dir, sizeof d->dir, "/tmp/tenon-bench-XXXXXX");
	if (mkdtemp(d->dir))
		return TENON_OK;
	*d->dir = 0;
	return error_errno(e, TENON_E_IO, errno, "bench: a folder in /tmp");
}

static int open_eventfd(struct duo *d, struct error *e)
{
	return link_pair(WIRE_RING_MIN, &d->link[0], &d->link[1], e);
}

static int open_awake(struct duo *d, struct error *e)
{
	d->park = false;
	return open_eventfd(d, e);
}

/* The links' eventfds give way to the bells that a client and the daemon would have. */
static int open_bell_zmq(struct duo *d, struct error *e)
{
	uint8_t nonce[16];
	int rc = open_eventfd(d, e);

	if (!rc)
		rc = duo_dir(d, e);
	if (!rc)
		rc = bell_hub_open(d->dir, &d->hub, e);
	if (rc)
		return rc;
	if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
		return error_errno(e, TENON_E_IO, errno, "bench: random numbers");
	nonce[0] |= 1;
	for (int i = 0; i < 2; i++) {
		bell_close(d->link[i].bell);
		d->link[i].bell = NULL;
	}
	rc = bell_zmq_connect(bell_hub_endpoint(d->hub), nonce, &d->link[0].bell, e);
	return rc ? rc : bell_hub_bell(d->hub, nonce, &d->link[1].bell);
}

static int open_unix(struct duo *d, struct error *e)
{
	if (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, d->fd))
		return TENON_OK;
	return error_errno(e, TENON_E_IO, errno, "bench: socketpair");
}

/* End 0 connects to where end 1 binds. */
static int zmq_end(struct duo *d, int end, struct error *e)
{
	const int linger_ms = 1000, patience_ms = 5000; /* the last answer still leaves */
	char endpoint[64];
	void *s;

	if (!d->zmq)
		d->zmq = zmq_ctx_new();
	s = d->zsock[end] = d->zmq ? zmq_socket(d->zmq, ZMQ_PAIR) : NULL;
	(void)snprintf(endpoint, sizeof endpoint, "ipc://%s/pair", d->dir);
	if (s && !zmq_setsockopt(s, ZMQ_LINGER, &linger_ms, sizeof linger_ms) &&
		!zmq_setsockopt(s, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms) &&
		!(end ? zmq_bind(s, endpoint) : zmq_connect(s, endpoint)))
		return TENON_OK;
	return error_set(e, TENON_E_IO, "bench: ZeroMQ: %s", zmq_strerror(errno));
}

static int open_zmq(struct duo *d, struct error *e)
{
	int rc = duo_dir(d, e);

	for (int end = 1; end >= 0 && !rc; end--)
		rc = zmq_end(d, end, e);
	return rc;
}

static void zmq_finish(struct duo *d)
{
	for (int i = 0; i < 2; i++)
		if (d->zsock[i])
			(void)zmq_close(d->zsock[i]);
	if (d->zmq)
		(void)zmq_ctx_term(d->zmq);
}

static void duo_close(struct duo *d)
{
	char path[64];

	zmq_finish(d);
	for (int i = 0; i < 2; i++) {
		link_close(&d->link[i]);
		if (d->fd[i] > 0)
			(void)close(d->fd[i]);
	}
	bell_hub_close(d->hub);
	if (!*d->dir)
		return;
	(void)snprintf(path, sizeof path, "%s/pair", d->dir);
	(void)unlink(path);
	(void)rmdir(d->dir);
}

/* ---- measuring ------------------------------------------------------------------------------------------------------ */

static const struct way {
	const char *name;
	int (*open)(struct duo *d, struct error *e);
	trip_fn *trip;
	uint64_t n;
} ways[] = { { "ring.awake", open_awake, trip_ring, 200000 }, { "bell.zmq", open_bell_zmq, trip_ring, 5000 },
	{ "bell.eventfd", open_eventfd, trip_ring, 10000 }, { "baseline.unix", open_unix, trip_unix, 10000 },
	{ "baseline.zmq", open_zmq, trip_zmq, 5000 } };

struct echo {
	struct duo *d;
	trip_fn *trip;
};

static void *echo_main(void *arg)
{
	struct echo *x = arg;
	char mark = 0;

	while (mark != MARK_LAST && !x->d->rc)
		x->d->rc = x->trip(x->d, 1, false, &mark);
	return NULL;
}

/* Up to n round trips, as many as the time allows; the first tenth warms up, for half of the time at most. Returns how
 * many were measured, one at least. */
static uint64_t duo_trips(struct duo *d, trip_fn *trip, uint32_t idle_us, double *us, uint64_t n, int *rc)
{
	uint64_t until = clock_now_ns() + WAY_MAX_NS, warm = MIN_OF(n / 10, UINT64_C(500)), i;
	bool last = false;

	for (i = 0; !last && !*rc; i++) {
		uint64_t t0, t1;
		char mark = 'p';

		if (idle_us)
			(void)usleep(idle_us);
		t0 = clock_now_ns();
		if (t0 > until - WAY_MAX_NS / 2)
			warm = MIN_OF(warm, i);
		last = i + 1 == n + warm || t0 > until;
		mark = last ? MARK_LAST : mark;
		*rc = trip(d, 0, true, &mark);
		t1 = clock_now_ns();
		if (i >= warm)
			us[i - warm] = (double)(t1 - t0) / 1e3;
	}
	return i > warm ? i - warm : 0;
}

static int measure(json_t *report, const struct way *w, uint64_t n, struct error *e)
{
	struct duo d = { .park = true };
	struct echo x = { &d, w->trip };
	double *us = mem_zalloc(MEM_TOOL, n, sizeof *us);
	pthread_t th;
	int rc = us ? w->open(&d, e) : error_set(e, TENON_E_NOMEM, "bench: out of memory");

	if (!rc && pthread_create(&th, NULL, echo_main, &x))
		rc = error_set(e, TENON_E_NOMEM, "bench: no thread");
	if (!rc) {
		n = duo_trips(&d, w->trip, 0, us, n, &rc);
		(void)pthread_join(th, NULL);
		if (rc || d.rc)
			rc = error_set(e, rc ? rc : d.rc, "bench: %s: no answer", w->name);
	}
	if (!rc)
		(void)bench_add(report, w->name, "us", us, n);
	duo_close(&d);
	mem_free(us);
	return rc;
}

/* ---- between two processes ------------------------------------------------------------------------------------------- */

/* The child stands for a worker: it rebuilds the link from the descriptors that a worker inherits. */
static int join_link(struct duo *d, int end, struct error *e)
{
	struct link_fds f = link_export(&d->link[1]);

	return end ? link_import(&f, &d->link[1], e) : TENON_OK;
}

static int join_unix(struct duo *d, int end, struct error *e)
{
	(void)d;
	(void)end;
	(void)e;
	return TENON_OK;
}

static const struct apart {
	const char *name;
	int (*open)(struct duo *d, struct error *e);	      /* before the fork */
	int (*join)(struct duo *d, int end, struct error *e); /* after it, in each process */
	trip_fn *trip;
	bool park;
	uint32_t idle_us;
	uint64_t n;
} aparts[] = { { "hop.awake", open_eventfd, join_link, trip_ring, false, 0, 200000 },
	{ "hop.parked", open_eventfd, join_link, trip_ring, true, 0, 10000 },
	{ "baseline.unix.idle", open_unix, join_unix, trip_unix, false, IDLE_US, 1000 },
	{ "baseline.zmq.idle", duo_dir, zmq_end, trip_zmq, false, IDLE_US, 1000 } };

static void apart_child(struct duo *d, const struct apart *a)
{
	struct echo x = { d, a->trip };

	if (a->join(d, 1, NULL))
		_exit(1);
	(void)echo_main(&x);
	zmq_finish(d);
	_exit(d->rc != 0);
}

static int apart_trips(
	struct duo *d, const struct apart *a, pid_t child, double *us, uint64_t *n, struct error *e)
{
	int status = 0, rc = a->join(d, 0, e);

	if (!rc)
		*n = duo_trips(d, a->trip, a->idle_us, us, *n, &rc);
	if (rc)
		(void)kill(child, SIGKILL);
	if (waitpid(child, &status, 0) != child || status)
		rc = TENON_E_IO;
	return rc ? error_set(e, rc, "bench: %s: no answer", a->name) : TENON_OK;
}

static int measure_apart(json_t *report, const struct apart *a, uint64_t n, struct error *e)
{
	struct duo d = { .park = a->park };
	double *us = mem_zalloc(MEM_TOOL, n, sizeof *us);
	int rc = us ? a->open(&d, e) : error_set(e, TENON_E_NOMEM, "bench: out of memory");
	pid_t pid = rc ? -1 : fork();

	if (!pid)
		apart_child(&d, a);
	if (!rc && pid < 0)
		rc = error_errno(e, TENON_E_NOMEM, errno, "bench: fork");
	if (!rc)
		rc = apart_trips(&d, a, pid, us, &n, e);
	if (!rc)
		(void)bench_add(report, a->name, "us", us, n);
	duo_close(&d);
	mem_free(us);
	return rc;
}

static uint64_t scaled(uint64_t n, uint64_t share) { return MAX_OF(n * share / 100, UINT64_C(20)); }

int bench_ipc_local(json_t *report, uint64_t share, struct error *e)
{
	int rc = TENON_OK;

	for (size_t i = 0; i < COUNT_OF(aparts) && !rc; i++)
		rc = measure_apart(report, &aparts[i], scaled(aparts[i].n, share), e);
	for (size_t i = 0; i < COUNT_OF(ways) && !rc; i++)
		rc = measure(report, &ways[i], scaled(ways[i].n, share), e);
	return rc;
}
