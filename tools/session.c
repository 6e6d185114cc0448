/* SPDX-License-Identifier: Apache-2.0
 * See session.h.
 */
#include "tools/session.h"
#include "engine/backends.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_TIMEOUT_MS = 20000 };

static volatile sig_atomic_t interrupted;

static void on_int(int sig)
{
	(void)sig;
	interrupted = 1;
}

void session_catch_int(void)
{
	struct sigaction sa = { .sa_handler = on_int, .sa_flags = (int)SA_RESETHAND };

	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
}

int session_interrupted(void) { return interrupted; }

bool session_option(int c, const char *arg, struct session_options *o, const char **model)
{
	const char **to = c == 'm' ? model : c == 1000 ? &o->socket : c == 1001 ? &o->backend
		: c == 1002 ? &o->precision : c == 1003 ? &o->kv : c == 1004 ? &o->ctx : NULL;

	if (to)
		*to = arg;
	return to != NULL;
}

static bool wants_private(const struct session_options *o) { return o->backend || o->precision || o->kv || o->ctx || o->config || o->set[0]; }

int session_options_check(const char *cmd, const struct session_options *o)
{
	struct backends_list list;
	struct error e = { 0 };

	if (o->backend && backends_parse(o->backend, 0, &list, &e))
		return cli_usage(cmd, "--%s", e.text);
	if (o->socket && wants_private(o))
		return cli_usage(cmd, "--socket: a running daemon has its own --backend, --precision, --kv and --ctx; leave them out");
	return CLI_OK;
}

const char *session_model(const struct session *s, const char *m, char *path, size_t room, struct error *e)
{
	char abs[PATH_MAX];

	m = m ? m : SESSION_DEFAULT_MODEL;
	if (!s->daemon && !strchr(m, '/'))
		return m;
	if (cli_model_path(m, path, room, e))
		return NULL;
	if (!realpath(path, abs) || (size_t)snprintf(path, room, "%s", abs) >= room) {
		(void)error_errno(e, TENON_E_NOT_FOUND, errno, "model '%.64s'", m);
		return NULL;
	}
	return path;
}

/* tenond beside this program (build tree, one folder up under libtool), in the sibling sbin, else on PATH. */
static void find_tenond(char *path, size_t room)
{
	static const char *const places[] = { "tenond", "../tenond", "../sbin/tenond" };
	char self[3072];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	self[n > 0 ? n : 0] = 0;
	slash = strrchr(self, '/');
	if (slash)
		*slash = 0;
	for (size_t i = 0; slash && i < COUNT_OF(places); i++) {
		(void)snprintf(path, room, "%s/%s", self, places[i]);
		if (!access(path, X_OK))
			return;
	}
	(void)snprintf(path, room, "tenond");
}

static size_t daemon_args(const struct session_options *o, char *fd, char ctx[32], const char *exe, const char **argv)
{
	size_t n = 0;

	argv[n++] = exe;
	argv[n++] = "--private";
	argv[n++] = "--ready-fd";
	argv[n++] = fd;
	argv[n++] = "--log-level";
	argv[n++] = "warn";
	if (o->config) {
		argv[n++] = "--config";
		argv[n++] = o->config;
	}
	if (o->backend) {
		argv[n++] = "--backend";
		argv[n++] = o->backend;
	}
	if (o->precision) {
		argv[n++] = "--precision";
		argv[n++] = o->precision;
	}
	if (o->kv) {
		argv[n++] = "--kv";
		argv[n++] = o->kv;
	}
	if (o->ctx) {
		(void)snprintf(ctx, 32, "context=%.16s", o->ctx);
		argv[n++] = "--set";
		argv[n++] = ctx;
	}
	for (size_t i = 0; i < COUNT_OF(o->set) && o->set[i]; i++) {
		argv[n++] = "--set";
		argv[n++] = o->set[i];
	}
	argv[n] = NULL;
	return n;
}

/* Ctrl-C in a terminal reaches the whole foreground group; a group of its own lets the command end it in order. */
static int spawn_daemon(const struct session_options *o, struct session *s, struct error *e)
{
	const char *argv[17 + 2 * COUNT_OF(o->set)];
	char exe[4096], fd[16], ctx[32];
	posix_spawnattr_t attr;
	int sv[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return error_errno(e, TENON_E_IO, errno, "tenond: socketpair");
	find_tenond(exe, sizeof exe);
	(void)fcntl(sv[1], F_SETFD, 0);
	(void)snprintf(fd, sizeof fd, "%d", sv[1]);
	(void)daemon_args(o, fd, ctx, exe, argv);
	(void)posix_spawnattr_init(&attr);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	(void)posix_spawnattr_setpgroup(&attr, 0);
	rc = posix_spawnp(&s->daemon, exe, NULL, &attr, (char *const *)(void *)argv, environ);
	(void)posix_spawnattr_destroy(&attr);
	(void)close(sv[1]);
	if (rc) {
		(void)close(sv[0]);
		s->daemon = 0;
		return error_errno(e, TENON_E_NOT_FOUND, rc, "tenond: cannot start %s", exe);
	}
	s->ready_fd = sv[0];
	return TENON_OK;
}

/* Reads the socket's path from a private daemon. */
static int wait_ready(const struct session *s, char *path, size_t room, struct error *e)
{
	size_t len = 0;
	uint64_t until = clock_now_ns() + READY_TIMEOUT_MS * NS_PER_MS;

	while (!len || path[len - 1] != '\n') {
		struct pollfd p = { .fd = s->ready_fd, .events = POLLIN };
		uint64_t now = clock_now_ns();
		ssize_t n;

		if (interrupted)
			return error_set(e, TENON_E_CANCELLED, "interrupted");
		if (now >= until)
			return error_set(e, TENON_E_TIMEOUT, "tenond: a private daemon was not ready within %d s", READY_TIMEOUT_MS / 1000);
		if (poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0)
			continue;
		n = read(s->ready_fd, path + len, room - 1 - len);
		if (n <= 0 || len + (size_t)n >= room - 1)
			return error_set(e, TENON_E_GONE, "tenond: a private daemon ended before it was ready; its message stands above");
		len += (size_t)n;
	}
	path[len - 1] = 0;
	if (strncmp(path, "ready ", 6))
		return error_set(e, TENON_E_GONE, "tenond: %.200s", strncmp(path, "error ", 6) ? path : path + 6);
	memmove(path, path + 6, len - 6);
	return TENON_OK;
}

static int connect_to(const char *socket, int eventfd_bell, struct session *s, struct error *e)
{
	struct tenon_options to = { .size = sizeof to, .socket = socket, .eventfd_bell = eventfd_bell };
	struct tenon_error te = { 0 };
	const char *from = socket ? socket : getenv("TENON_SOCKET");
	int rc = tenon_connect(&to, &s->t, &te);

	(void)snprintf(s->socket, sizeof s->socket, "%s", from ? from : "");
	return rc ? error_set(e, rc, "%s", te.text) : TENON_OK;
}

int session_open(const struct session_options *o, struct session *s, struct error *e)
{
	char path[512];
	int rc;

	*s = (struct session){ .ready_fd = -1 };
	if (!wants_private(o)) {
		rc = connect_to(o->socket, o->eventfd_bell, s, e);
		if (!rc || o->socket || getenv("TENON_SOCKET"))
			return rc;
	}
	rc = spawn_daemon(o, s, e);
	if (!rc)
		rc = wait_ready(s, path, sizeof path, e);
	if (!rc)
		rc = connect_to(path, o->eventfd_bell, s, e);
	if (rc)
		session_close(s);
	return rc;
}

void session_close(struct session *s)
{
	tenon_close(s->t);
	s->t = NULL;
	if (s->ready_fd >= 0)
		(void)close(s->ready_fd);
	s->ready_fd = -1;
	if (s->daemon > 0)
		while (waitpid(s->daemon, NULL, 0) < 0 && errno == EINTR)
			;
	s->daemon = 0;
}
