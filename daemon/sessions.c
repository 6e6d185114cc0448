/* SPDX-License-Identifier: Apache-2.0
 * All sessions: the listener, HELLO within a second, quotas and accounts of users, the hub of ZeroMQ doorbells.
 * Loop thread. Nothing here waits for a peer.
 */
#include "daemon/daemon.h"
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ACCEPT_BATCH = 16, ACCOUNTS_MAX = 1024, OVERFLOW_UID = 65534 };
#define HELLO_NS   NS_PER_S
#define BLOCK_NS   (10 * NS_PER_S)
#define MINUTE_NS  (60 * NS_PER_S)
#define STARVED_NS (100 * NS_PER_MS)

struct hello { /* connected, but has not said HELLO */
	struct node node;
	struct daemon *d;
	struct watch sock;
	struct timer timeout;
	struct peer_id who;
	struct account *account;
	struct error
		refusal; /* decided already; told once HELLO is read, or closing would throw the answer away */
};

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

static void accounts_prune(struct daemon *d)
{
	struct sessions *t = &d->sessions;

	LIST_EACH(&t->accounts, n)
	{
		struct account *a = CONTAINER_OF(n, struct account, node);

		if (a->n_sessions || a->n_in_flight || d->loop.now_ns - a->attach_ns < MINUTE_NS)
			continue;
		node_remove(n);
		t->n_accounts--;
		mem_free(a);
	}
}

static struct account *account_of(struct daemon *d, uint32_t uid)
{
	struct sessions *t = &d->sessions;
	struct account *a;

	LIST_EACH(&t->accounts, n)
	{
		a = CONTAINER_OF(n, struct account, node);
		if (a->uid == uid)
			return a;
	}
	if (t->n_accounts >= ACCOUNTS_MAX)
		accounts_prune(d);
	a = t->n_accounts < 2 * ACCOUNTS_MAX ? mem_zalloc(MEM_DAEMON, 1, sizeof *a) : NULL;
	if (!a)
		return NULL;
	a->uid = uid;
	a->attach_tokens = d->conf.limits.attaches_per_s;
	a->attach_ns = d->loop.now_ns;
	list_append(&t->accounts, &a->node);
	t->n_accounts++;
	return a;
}

void account_violation(struct daemon *d, struct account *a)
{
	if (d->loop.now_ns - a->violation_ns > MINUTE_NS)
		a->n_violations = 0;
	a->violation_ns = d->loop.now_ns;
	if (++a->n_violations < SESSION_VIOLATIONS_MAX)
		return;
	a->n_violations = 0;
	a->blocked_until_ns = d->loop.now_ns + BLOCK_NS;
	TOPIC_LOG(d, LOG_WARN, "session",
		"uid=%u blocked for %llu s: broke the protocol %d times within a minute", a->uid,
		(unsigned long long)(BLOCK_NS / NS_PER_S), SESSION_VIOLATIONS_MAX);
}

static bool account_may_attach(struct daemon *d, struct account *a)
{
	double rate = d->conf.limits.attaches_per_s;

	a->attach_tokens += rate * (double)(d->loop.now_ns - a->attach_ns) / (double)NS_PER_S;
	a->attach_tokens = MIN_OF(a->attach_tokens, rate);
	a->attach_ns = d->loop.now_ns;
	if (a->attach_tokens < 1)
		return false;
	a->attach_tokens -= 1;
	return true;
}

/* ---- attach ---------------------------------------------------------------------------------------------------------- */

static void close_peer(int fd, struct peer_id *who)
{
	(void)close(fd);
	if (who->pidfd >= 0)
		(void)close(who->pidfd);
}

static void refuse(struct daemon *d, int fd, struct peer_id *who, int code, const char *text)
{
	d->sessions.n_refused++;
	TOPIC_LOG(d, LOG_INFO, "attach", "refused uid=%u pid=%d: %s", who->uid, who->pid, text);
	attach_refuse(fd, code, text);
	close_peer(fd, who);
}

static uint64_t clipped(const struct conf *c, uint64_t wanted)
{
	return MIN_OF(wanted ? wanted : c->limits.ring_bytes, c->limits.ring_max_bytes);
}

static int check_quota(struct daemon *d, const struct account *a, const struct wire_hello *h, struct error *e)
{
	const struct conf *c = &d->conf;
	uint64_t bytes = clipped(c, h->c2d_bytes) + clipped(c, h->d2c_bytes);

	if (d->sessions.n_open >= c->limits.sessions)
		return error_set(e, TENON_E_NOMEM, "attach: all %u sessions are taken", c->limits.sessions);
	if (a->n_sessions >= c->limits.sessions_per_uid)
		return error_set(e, TENON_E_NOMEM, "attach: this user's %u sessions are taken",
			c->limits.sessions_per_uid);
	if (a->shared_bytes + bytes > c->limits.shared_bytes_per_uid)
		return error_set(e, TENON_E_NOMEM, "attach: this user's shared memory (%llu MiB) is used up",
			(unsigned long long)(c->limits.shared_bytes_per_uid >> 20));
	if (d->sessions.shared_bytes + bytes > d->sessions.shared_max_bytes)
		return error_set(e, TENON_E_NOMEM, "attach: shared memory for sessions is used up");
	return TENON_OK;
}

static void admit(
	struct daemon *d, int fd, struct peer_id *who, const struct wire_hello *h, struct account *a)
{
	struct error e = { 0 };
	struct session *s = NULL;
	int rc = check_quota(d, a, h, &e);

	if (!rc)
		s = session_create(d, who, fd, h, a, &e);
	if (!s) {
		refuse(d, fd, who, e.code, e.text);
		return;
	}
	a->n_sessions++;
	a->shared_bytes += s->link.tx.ring_bytes + s->link.rx.ring_bytes;
	d->sessions.shared_bytes += s->link.tx.ring_bytes + s->link.rx.ring_bytes;
	d->sessions.n_open++;
	d->sessions.n_attached++;
	list_append(&d->sessions.open, &s->node);
	TOPIC_LOG(d, LOG_DEBUG, "attach", "session=%llu uid=%u pid=%d", (unsigned long long)s->link.session,
		who->uid, who->pid);
}

static void hello_forget(struct hello *h)
{
	loop_unwatch(&h->d->loop, &h->sock);
	timer_clear(&h->d->loop.timers, &h->timeout);
	node_remove(&h->node);
	h->d->sessions.n_hellos--;
	list_append(&h->d->sessions.dead_hellos, &h->node);
	loop_defer(&h->d->loop, &h->d->sessions.reap);
}

/* True: answered one way or the other, the descriptors are no longer the caller's. */
static bool try_hello(
	struct daemon *d, int fd, struct peer_id *who, struct account *a, const struct error *refusal)
{
	struct wire_hello h;
	struct error e = { 0 };
	int rc = attach_read_hello(fd, &h, &e);

	if (rc == TENON_E_AGAIN)
		return false;
	if (rc == TENON_E_GONE) {
		close_peer(fd, who);
		return true;
	}
	if (rc == TENON_E_PROTOCOL && a)
		account_violation(d, a);
	if (refusal->code)
		refuse(d, fd, who, refusal->code, refusal->text);
	else if (rc)
		refuse(d, fd, who, rc, e.text);
	else
		admit(d, fd, who, &h, a);
	return true;
}

static void on_hello(struct watch *w, uint32_t events)
{
	struct hello *h = CONTAINER_OF(w, struct hello, sock);
	int fd = h->sock.fd;

	(void)events;
	loop_unwatch(&h->d->loop, &h->sock);
	if (try_hello(h->d, fd, &h->who, h->account, &h->refusal)) {
		hello_forget(h);
	} else if (loop_watch(&h->d->loop, &h->sock, fd, EPOLLIN | EPOLLRDHUP, NULL)) {
		close_peer(fd, &h->who);
		hello_forget(h);
	}
}

static void on_hello_timeout(struct timer *t, uint64_t now_ns)
{
	struct hello *h = CONTAINER_OF(t, struct hello, timeout);
	int fd = h->sock.fd;

	(void)now_ns;
	loop_unwatch(&h->d->loop, &h->sock);
	refuse(h->d, fd, &h->who, TENON_E_TIMEOUT, "attach: no HELLO within a second");
	hello_forget(h);
}

static void await_hello(
	struct daemon *d, int fd, struct peer_id *who, struct account *a, const struct error *refusal)
{
	struct hello *h = d->sessions.n_hellos < d->conf.limits.pending_attaches
		? mem_zalloc(MEM_DAEMON, 1, sizeof *h)
		: NULL;

	if (!h) {
		refuse(d, fd, who, TENON_E_BUSY, "attach: too many connections without a HELLO; try again");
		return;
	}
	*h = (struct hello){ .d = d,
		.who = *who,
		.account = a,
		.refusal = *refusal,
		.sock = { .fd = -1, .ready = on_hello },
		.timeout.fire = on_hello_timeout };
	if (!timer_set(&d->loop.timers, &h->timeout, d->loop.now_ns + HELLO_NS) ||
		loop_watch(&d->loop, &h->sock, fd, EPOLLIN | EPOLLRDHUP, NULL)) {
		timer_clear(&d->loop.timers, &h->timeout);
		refuse(d, fd, who, TENON_E_NOMEM, "attach: out of memory");
		mem_free(h);
		return;
	}
	list_append(&d->sessions.hellos, &h->node);
	d->sessions.n_hellos++;
}

static int check_peer(struct daemon *d, const struct peer_id *who, struct account *a, struct error *e)
{
	bool known = who->uid != OVERFLOW_UID && who->pidfd >= 0;

	if (d->draining)
		return error_set(e, TENON_E_DRAINING, "attach: the daemon is shutting down");
	if (!known && !d->conf.limits.allow_unknown_uid)
		return error_set(e, TENON_E_DENIED,
			"attach: user or process of another namespace (limits.allow_unknown_uid)");
	if (!a)
		return error_set(e, TENON_E_NOMEM, "attach: out of memory");
	if (a->blocked_until_ns > d->loop.now_ns)
		return error_set(
			e, TENON_E_DENIED, "attach: blocked for some seconds after breaking the protocol");
	if (!account_may_attach(d, a))
		return error_set(e, TENON_E_BUSY, "attach: too many attaches a second; try again");
	return TENON_OK;
}

static void greet(struct daemon *d, int fd, struct peer_id *who)
{
	struct account *a = account_of(d, who->uid);
	struct error refusal = { 0 };

	(void)check_peer(d, who, a, &refusal);
	if (!try_hello(d, fd, who, a, &refusal))
		await_hello(d, fd, who, a, &refusal);
}

static void on_listen(struct watch *w, uint32_t events)
{
	struct daemon *d = CONTAINER_OF(w, struct daemon, sessions.listen);
	struct peer_id who;
	struct error e = { 0 };
	int fd, rc = TENON_OK;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH && !rc; i++) {
		rc = attach_accept(d->sessions.listen_fd, &fd, &who, &e);
		if (!rc)
			greet(d, fd, &who);
	}
	if (rc != TENON_E_NOMEM)
		return;
	TOPIC_LOG(d, LOG_WARN, "attach", "%s", e.text);
	loop_unwatch(&d->loop, w);
	(void)timer_set(&d->loop.timers, &d->sessions.resume_accept, d->loop.now_ns + STARVED_NS);
}

static void resume_accept(struct timer *t, uint64_t now_ns)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, sessions.resume_accept);

	if (loop_watch(&d->loop, &d->sessions.listen, d->sessions.listen_fd, EPOLLIN, NULL))
		(void)timer_set(&d->loop.timers, t, now_ns + STARVED_NS);
}

/* ---- doorbells --------------------------------------------------------------------------------------------------- */

/* True if there was something to take. */
static bool rung(void *ctx, const uint8_t nonce[16])
{
	struct daemon *d = ctx;

	LIST_EACH(&d->sessions.open, n)
	{
		struct session *s = CONTAINER_OF(n, struct session, node);

		if (!memcmp(s->link.nonce, nonce, sizeof s->link.nonce)) {
			loop_wake(&d->loop, &s->source);
			return s->source.ready(&s->source);
		}
	}
	return false;
}

static void on_hub(struct watch *w, uint32_t events)
{
	struct daemon *d = CONTAINER_OF(w, struct daemon, sessions.hub_watch);

	(void)events;
	bell_hub_drain(d->sessions.hub, rung, d);
}

/* ---- life ----------------------------------------------------------------------------------------------------------- */

static void reap(struct task *t)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, sessions.reap);
	struct node *n;

	while ((n = list_first(&d->sessions.dead)) != NULL) {
		struct session *s = CONTAINER_OF(n, struct session, node);

		node_remove(n);
		link_close(&s->link);
		buf_finish(&s->backlog);
		mem_free(s->open);
		mem_free(s);
	}
	while ((n = list_first(&d->sessions.dead_hellos)) != NULL) {
		node_remove(n);
		mem_free(CONTAINER_OF(n, struct hello, node));
	}
}

/* The folder and its sockets for the group that may attach. */
static int give_to_group(const struct conf *c, struct error *e)
{
	char bell[128];
	const char *const paths[] = { c->runtime_dir, c->socket, bell };
	const struct group *g = *c->socket_group ? getgrnam(c->socket_group) : NULL;

	if (!*c->socket_group)
		return TENON_OK;
	if (!g)
		return error_set(
			e, TENON_E_CONFIG, "socket_group: no group '%.32s' on this machine", c->socket_group);
	(void)snprintf(bell, sizeof bell, "%s/bell", c->runtime_dir);
	for (size_t i = 0; i < COUNT_OF(paths); i++)
		if (chown(paths[i], (uid_t)-1, g->gr_gid))
			return error_errno(e, TENON_E_IO, errno, "%s: cannot give it to group %.32s",
				paths[i], c->socket_group);
	return TENON_OK;
}

static int open_all(struct daemon *d, struct error *e)
{
	struct sessions *t = &d->sessions;
	int rc = attach_listen(d->conf.socket, &t->listen_fd, &t->lock_fd, e);
	if (!rc)
		rc = bell_hub_open(d->conf.runtime_dir, &t->hub, e);
	if (!rc)
		rc = give_to_group(&d->conf, e);
	if (!rc)
		rc = loop_watch(&d->loop, &t->hub_watch, bell_hub_fd(t->hub), EPOLLIN, e);
	return rc ? rc : loop_watch(&d->loop, &t->listen, t->listen_fd, EPOLLIN, e);
}

int sessions_open(struct daemon *d, struct error *e)
{
	struct sessions *t = &d->sessions;
	int rc;

	*t = (struct sessions){ .listen_fd = -1, .lock_fd = -1 };
	list_init(&t->open);
	list_init(&t->dead);
	list_init(&t->accounts);
	list_init(&t->hellos);
	list_init(&t->dead_hellos);
	t->listen = (struct watch){ .fd = -1, .ready = on_listen };
	t->hub_watch = (struct watch){ .fd = -1, .ready = on_hub };
	t->reap.run = reap;
	t->resume_accept.fire = resume_accept;
	t->shared_max_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) / 4 * (uint64_t)sysconf(_SC_PAGESIZE);
	rc = open_all(d, e);
	if (rc)
		sessions_close(d);
	return rc;
}

/* Who is there is told, once the last event is in the ring. */
static void close_open(struct daemon *d)
{
	LIST_EACH(&d->sessions.open, n)
	{
		struct session *s = CONTAINER_OF(n, struct session, node);

		session_send_error(s, 0, TENON_E_GONE, "session: the daemon has ended");
		link_flush(&s->link);
		session_close(s, "the daemon ends");
	}
	LIST_EACH(&d->sessions.hellos, n)
	{
		struct hello *h = CONTAINER_OF(n, struct hello, node);
		int fd = h->sock.fd;

		loop_unwatch(&d->loop, &h->sock);
		refuse(d, fd, &h->who, TENON_E_DRAINING, "attach: the daemon is shutting down");
		hello_forget(h);
	}
}

void sessions_close(struct daemon *d)
{
	struct sessions *t = &d->sessions;

	if (!t->open.head.next)
		return;
	close_open(d);
	reap(&t->reap);
	node_remove(&t->reap.node);
	LIST_EACH(&t->accounts, n)
	{
		node_remove(n);
		mem_free(CONTAINER_OF(n, struct account, node));
	}
	timer_clear(&d->loop.timers, &t->resume_accept);
	loop_unwatch(&d->loop, &t->listen);
	loop_unwatch(&d->loop, &t->hub_watch);
	bell_hub_close(t->hub);
	t->hub = NULL;
	if (t->listen_fd >= 0) {
		(void)unlink(d->conf.socket);
		(void)close(t->listen_fd);
	}
	if (t->lock_fd >= 0)
		(void)close(t->lock_fd);
	t->listen_fd = t->lock_fd = -1;
}
