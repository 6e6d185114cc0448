/* SPDX-License-Identifier: Apache-2.0
 * ctl.h: the way to the control socket and back. Single-threaded.
 */
#include "tools/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

enum { ANSWER_MAX_BYTES = 256 << 10 };

static int join(const char *dir, size_t len, char *path, size_t room, struct error *e)
{
	int n = snprintf(path, room, "%.*s/admin", (int)len, dir);

	return n > 0 && (size_t)n < room && n < 107
		? TENON_OK
		: error_set(e, TENON_E_TOO_LONG, "%.80s: too long for a socket", dir);
}

int ctl_path(const char *socket, char *path, size_t room, struct error *e)
{
	const char *env = getenv("TENON_SOCKET"), *run = getenv("XDG_RUNTIME_DIR"),
		   *s = socket ? socket : env, *slash;
	char dir[128];

	if (s && *s) {
		slash = strrchr(s, '/');
		return slash ? join(s, (size_t)(slash - s), path, room, e) : join(".", 1, path, room, e);
	}
	(void)snprintf(dir, sizeof dir, "%.100s/tenon", run && *run ? run : "/run");
	return join(dir, strlen(dir), path, room, e);
}

/* ZeroMQ would wait for a daemon to come; people want to know that there is none. */
static int somebody_there(const char *path, struct error *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc, err;

	if (fd < 0)
		return error_errno(e, TENON_E_IO, errno, "control socket");
	memcpy(a.sun_path, path, strlen(path) + 1);
	rc = connect(fd, (struct sockaddr *)&a, sizeof a);
	err = errno;
	(void)close(fd);
	if (!rc)
		return TENON_OK;
	if (err == EACCES || err == EPERM)
		return error_set(e, TENON_E_DENIED,
			"%s: not allowed for this user; see admin.group in tenond.conf(5)", path);
	return error_set(e, TENON_E_GONE,
		"%s: no tenond listens here; start one, or say where it is with --socket", path);
}

/* A signal, as when a terminal changes its size, is no answer: both go on. */
static int send_whole(void *sock, const char *text)
{
	int n;

	do
		n = zmq_send(sock, text, strlen(text), 0);
	while (n < 0 && errno == EINTR);
	return n;
}

static int receive(void *sock, char *answer, size_t room)
{
	int n;

	do
		n = zmq_recv(sock, answer, room, 0);
	while (n < 0 && errno == EINTR);
	return n;
}

static int exchange(void *sock, const char *path, const char *text, int timeout_ms, char *answer, int *len,
	struct error *e)
{
	char endpoint[128];
	int linger = 0, n;

	(void)snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
	if (zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger) ||
		zmq_setsockopt(sock, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms) ||
		zmq_setsockopt(sock, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms) ||
		zmq_connect(sock, endpoint) || send_whole(sock, text) < 0)
		return error_set(e, TENON_E_IO, "%s: %s", path, zmq_strerror(errno));
	n = receive(sock, answer, ANSWER_MAX_BYTES + 1024);
	if (n < 0 && errno == EAGAIN)
		return error_set(e, TENON_E_TIMEOUT, "%s: no answer within %d ms; try a larger --timeout",
			path, timeout_ms);
	if (n < 0 || n > ANSWER_MAX_BYTES + 1024)
		return error_set(
			e, TENON_E_IO, "%s: %s", path, n < 0 ? zmq_strerror(errno) : "answer is too long");
	*len = n;
	return TENON_OK;
}

static int code_of(const char *name)
{
#define TENON_X(sym, num, text, meaning)                                                                     \
	if (!strcmp(name, text))                                                                             \
		return sym;
	TENON_ERRORS(TENON_X)
#undef TENON_X
	return TENON_E_INTERNAL;
}

static int parse(const char *text, size_t len, json_t **answer, struct error *e)
{
	json_t *o = json_loadb(text, len, 0, NULL), *err = json_object_get(o, "error");
	const char *code = json_string_value(json_object_get(err, "code")),
		   *message = json_string_value(json_object_get(err, "message"));
	int rc = TENON_OK;

	if (!json_is_object(o))
		rc = error_set(e, TENON_E_FORMAT, "the daemon's answer is no JSON object");
	else if (err)
		rc = error_set(e, code_of(code ? code : ""), "%s", message ? message : "the daemon refused");
	if (rc)
		json_decref(o);
	else
		*answer = o;
	return rc;
}

int ctl_ask(const char *path, const json_t *question, int timeout_ms, json_t **answer, struct error *e)
{
	char *buf = mem_alloc(MEM_TOOL, ANSWER_MAX_BYTES + 1024), *text = json_dumps(question, JSON_COMPACT);
	void *ctx = zmq_ctx_new(), *sock = ctx ? zmq_socket(ctx, ZMQ_REQ) : NULL;
	int len = 0, rc = somebody_there(path, e);

	if (!rc && (!buf || !text || !sock))
		rc = error_set(e, TENON_E_NOMEM, "out of memory");
	if (!rc)
		rc = exchange(sock, path, text, timeout_ms, buf, &len, e);
	if (!rc)
		rc = parse(buf, (size_t)len, answer, e);
	if (sock)
		(void)zmq_close(sock);
	if (ctx)
		(void)zmq_ctx_term(ctx);
	free(text);
	mem_free(buf);
	return rc;
}
