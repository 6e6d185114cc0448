/* SPDX-License-Identifier: Apache-2.0
 * load.h: llama.cpp's server as a peer, over plain HTTP/1.1 on a connection per request: POST /completion with token
 * ids, streamed as server-sent events, one event a token; return_progress makes it tell how far a prompt is. Only what
 * that needs is read of HTTP: the status line, chunked or plain bodies. What comes is checked, lengths are bounded.
 */
#include "tools/load.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_MAX = 1024, HEAD_MAX_BYTES = 16 << 10, LINE_MAX_BYTES = 4 << 20 };

enum part { PART_HEAD, PART_PLAIN, PART_SIZE, PART_CHUNK, PART_CHUNK_END, PART_END };

struct call { /* one request on its connection */
	struct load_item *it;
	int fd;
	bool connected;
	enum part part;
	uint64_t chunk_left;
	size_t sent;
	struct buf out, frame, line; /* frame: the head, or what stands between chunks; line: of the body */
};
struct load_http {
	char host[256], port[8], prefix[256];
	struct addrinfo *address;
	struct call *call[OPEN_MAX];
	uint32_t n;
};

/* ---- calls ---------------------------------------------------------------------------------------------------- */

static void call_free(struct call *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	buf_finish(&c->out);
	buf_finish(&c->frame);
	buf_finish(&c->line);
	mem_free(c);
}

static void end(struct call *c, int code, const char *why)
{
	if (!c->it->ended)
		load_item_saw_end(c->it, code, why, strlen(why), clock_now_ns());
	c->part = PART_END;
}

static bool write_request(const struct load_http *l, struct call *c)
{
	struct buf body;
	bool ok;

	buf_init(&body, MEM_TOOL, 0);
	(void)buf_puts(&body, "{\"prompt\":[");
	for (uint32_t i = 0; i < c->it->n_ids; i++)
		(void)buf_printf(&body, i ? ",%d" : "%d", (int)c->it->ids[i]);
	(void)buf_printf(&body,
		"],\"n_predict\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"return_progress\":true,"
		"\"return_tokens\":true,\"cache_prompt\":true}",
		c->it->n_new);
	(void)buf_printf(&c->out,
		"POST %s/completion HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n",
		l->prefix, l->host, l->port, body.len);
	ok = !body.failed && buf_append(&c->out, body.data, body.len);
	buf_finish(&body);
	return ok;
}

static int submit(void *ctx, struct load_item *it, struct error *e)
{
	struct load_http *l = ctx;
	const struct addrinfo *a = l->address;
	struct call *c = l->n < OPEN_MAX ? mem_zalloc(MEM_TOOL, 1, sizeof *c) : NULL;
	int one = 1;

	if (!c)
		return error_set(e, TENON_E_NOMEM, "load: out of memory, or over %d requests open", OPEN_MAX);
	*c = (struct call){ .it = it,
		.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) };
	buf_init(&c->out, MEM_TOOL, 0);
	buf_init(&c->frame, MEM_TOOL, HEAD_MAX_BYTES);
	buf_init(&c->line, MEM_TOOL, LINE_MAX_BYTES);
	if (c->fd < 0 || !write_request(l, c) ||
		(connect(c->fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS)) {
		call_free(c);
		return error_errno(e, TENON_E_GONE, errno, "http://%s:%s", l->host, l->port);
	}
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	MEM_CLEAR(it->ids);
	l->call[l->n++] = c;
	return TENON_OK;
}

static void cancel(void *ctx, struct load_item *it)
{
	struct load_http *l = ctx;

	for (uint32_t i = 0; i < l->n; i++)
		if (l->call[i]->it == it)
			end(l->call[i], TENON_E_CANCELLED, "cancelled");
}

/* ---- what comes ------------------------------------------------------------------------------------------------ */

static uint32_t count(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v < 0 ? 0 : v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* One "data:" line of the stream. */
static void take_data(struct call *c, const char *text, size_t len)
{
	json_t *o = json_loadb(text, len, 0, NULL), *progress = json_object_get(o, "prompt_progress"),
	       *err = json_object_get(o, "error");
	uint32_t predicted = count(o, "tokens_predicted");
	const char *message = json_string_value(json_object_get(err, "message"));

	if (err)
		end(c, TENON_E_BACKEND, message ? message : "the server reports an error");
	else if (progress)
		load_item_saw_prompt(c->it, count(progress, "processed"));
	else if (predicted > c->it->n_tokens)
		load_item_saw_tokens(c->it, predicted - c->it->n_tokens, clock_now_ns());
	if (json_is_true(json_object_get(o, "stop"))) {
		c->it->n_cached = count(json_object_get(o, "timings"), "cache_n");
		end(c, TENON_OK, "");
	}
	json_decref(o);
}

static void trim(struct buf *l)
{
	while (l->len && (l->data[l->len - 1] == '\r' || l->data[l->len - 1] == '\n'))
		l->data[--l->len] = 0;
}

/* The head is whole: its first line says how it went. */
static void take_head(struct call *c)
{
	const char *h = c->frame.data;
	bool ok = !strncmp(h, "HTTP/1.1 200", 12) || !strncmp(h, "HTTP/1.0 200", 12);
	char why[64];

	(void)snprintf(why, sizeof why, "%.*s", (int)strcspn(h, "\r\n"), h);
	c->part = strcasestr(h, "transfer-encoding: chunked") ? PART_SIZE : PART_PLAIN;
	if (!ok)
		end(c, TENON_E_BACKEND, why);
	buf_clear(&c->frame);
}

/* Bytes of the head and between chunks, up to the end of a line. */
static size_t take_frame(struct call *c, const char *data, size_t n)
{
	const char *nl = memchr(data, '\n', n);
	size_t use = nl ? (size_t)(nl - data) + 1 : n;

	if (!buf_append(&c->frame, data, use)) {
		end(c, TENON_E_TOO_LONG, "the answer's head is over its limit");
	} else if (c->part == PART_HEAD) {
		if (c->frame.len >= 4 && !memcmp(c->frame.data + c->frame.len - 4, "\r\n\r\n", 4))
			take_head(c);
	} else if (nl) {
		trim(&c->frame);
		c->chunk_left = c->part == PART_SIZE ? strtoull(c->frame.data, NULL, 16) : 0;
		c->part = c->part == PART_CHUNK_END ? PART_SIZE : c->chunk_left ? PART_CHUNK : PART_END;
		buf_clear(&c->frame);
	}
	return use;
}

/* Bytes of the body, up to the end of a line or chunk. */
static size_t take_body(struct call *c, const char *data, size_t n)
{
	const char *nl = memchr(data, '\n', n);
	size_t use = nl ? (size_t)(nl - data) + 1 : n;

	if (c->part == PART_CHUNK)
		use = (size_t)MIN_OF((uint64_t)use, c->chunk_left);
	if (!buf_append(&c->line, data, use)) {
		end(c, TENON_E_TOO_LONG, "a line of the answer is over its limit");
		return use;
	}
	if (c->part == PART_CHUNK && !(c->chunk_left -= use))
		c->part = PART_CHUNK_END;
	if (c->line.data[c->line.len - 1] == '\n') {
		trim(&c->line);
		if (c->line.len > 5 && !memcmp(c->line.data, "data:", 5))
			take_data(c, c->line.data + 5, c->line.len - 5);
		buf_clear(&c->line);
	}
	return use;
}

static void take_bytes(struct call *c, const char *data, size_t n)
{
	while (n && c->part != PART_END) {
		bool body = c->part == PART_CHUNK || c->part == PART_PLAIN;
		size_t use = body ? take_body(c, data, n) : take_frame(c, data, n);

		data += use;
		n -= use;
	}
}

static void read_some(struct call *c)
{
	char data[65536];
	ssize_t n;

	while (c->part != PART_END && (n = recv(c->fd, data, sizeof data, 0)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n < 0) {
			end(c, TENON_E_GONE, strerror(errno));
			return;
		}
		take_bytes(c, data, (size_t)n);
	}
	end(c, TENON_E_GONE, "the connection ended before the answer");
}

static void write_some(struct call *c)
{
	ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EWOULDBLOCK)
		end(c, TENON_E_GONE, strerror(errno));
	c->sent += n > 0 ? (size_t)n : 0;
}

/* ---- the server ------------------------------------------------------------------------------------------------- */

static bool sweep(struct load_http *l)
{
	uint32_t kept = 0, was = l->n;

	for (uint32_t i = 0; i < was; i++) {
		if (l->call[i]->part == PART_END)
			call_free(l->call[i]);
		else
			l->call[kept++] = l->call[i];
	}
	l->n = kept;
	return kept != was;
}

static int wait_events(void *ctx, uint64_t until_ns, struct error *e)
{
	struct load_http *l = ctx;
	struct pollfd fds[OPEN_MAX];
	uint64_t now = clock_now_ns(), left = until_ns > now ? MIN_OF(until_ns - now, NS_PER_S) : 0;
	struct timespec ts = { .tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S) };

	(void)e;
	if (sweep(l))
		return TENON_OK;
	for (uint32_t i = 0; i < l->n; i++)
		fds[i] = (struct pollfd){ .fd = l->call[i]->fd,
			.events = l->call[i]->sent < l->call[i]->out.len ? POLLIN | POLLOUT : POLLIN };
	if (ppoll(fds, l->n, &ts, NULL) <= 0)
		return TENON_OK;
	for (uint32_t i = 0; i < l->n; i++) {
		if (fds[i].revents & POLLOUT)
			write_some(l->call[i]);
		if (fds[i].revents & (POLLIN | POLLHUP | POLLERR))
			read_some(l->call[i]);
	}
	(void)sweep(l);
	return TENON_OK;
}

static bool counters(void *ctx, struct load_counters *out)
{
	(void)ctx;
	*out = (struct load_counters){ 0 };
	return false;
}

static void close_all(void *ctx)
{
	struct load_http *l = ctx;

	for (uint32_t i = 0; i < l->n; i++)
		call_free(l->call[i]);
	if (l->address)
		freeaddrinfo(l->address);
	mem_free(l);
}

static int parse_url(struct load_http *l, const char *url, struct error *e)
{
	const char *at = url + strlen("http://"), *colon, *slash;
	size_t host, port = 0;

	if (strncmp(url, "http://", strlen("http://")))
		return error_set(e, TENON_E_INVALID, "'%.200s': only http://HOST[:PORT][/PREFIX]", url);
	slash = at + strcspn(at, "/");
	colon = memchr(at, ':', (size_t)(slash - at));
	host = (size_t)((colon ? colon : slash) - at);
	port = colon ? (size_t)(slash - colon - 1) : 0;
	if (!host || host >= sizeof l->host || port >= sizeof l->port || strlen(slash) >= sizeof l->prefix ||
		strpbrk(url, "\r\n ?#"))
		return error_set(e, TENON_E_INVALID, "'%.200s': only http://HOST[:PORT][/PREFIX]", url);
	(void)snprintf(l->host, sizeof l->host, "%.*s", (int)host, at);
	(void)snprintf(l->port, sizeof l->port, "%.*s", port ? (int)port : 2, port ? colon + 1 : "80");
	(void)snprintf(l->prefix, sizeof l->prefix, "%s", slash);
	for (size_t n = strlen(l->prefix); n && l->prefix[n - 1] == '/'; n--)
		l->prefix[n - 1] = 0;
	return TENON_OK;
}

int load_http_open(struct load_server *out, const char *url, uint32_t n_clients, struct error *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct load_http *l = mem_zalloc(MEM_TOOL, 1, sizeof *l);
	int rc, bad;

	(void)n_clients;
	if (!l)
		return error_set(e, TENON_E_NOMEM, "load: out of memory");
	rc = parse_url(l, url, e);
	bad = rc ? 0 : getaddrinfo(l->host, l->port, &hints, &l->address);
	if (bad)
		rc = error_set(e, TENON_E_NOT_FOUND, "'%.200s': %s", url, gai_strerror(bad));
	if (rc) {
		close_all(l);
		return rc;
	}
	*out = (struct load_server){ .ctx = l,
		.submit = submit,
		.cancel = cancel,
		.wait = wait_events,
		.counters = counters,
		.close = close_all };
	return TENON_OK;
}
