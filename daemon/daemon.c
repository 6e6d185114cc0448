/* SPDX-License-Identifier: Apache-2.0
 * tenond from start to end: config and its reload, log, signals, private mode, drain. Loop thread.
 */
#include "daemon/daemon.h"
#include "engine/backends.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_CONFIG TENON_SYSCONFDIR "/tenond.conf"
#define STOP_WAIT_MS   2000

/* ---- configuration ----------------------------------------------------------------------------------------------------- */

static int apply_override(struct conf *c, const struct override *o, struct error *e)
{
	char name[160];
	const char *eq = strchr(o->value, '=');

	if (strcmp(o->key, "model"))
		return conf_set(c, o->key, o->value, e);
	if (!eq || eq == o->value || (size_t)(eq - o->value) >= sizeof name || !eq[1])
		return error_set(e, TENON_E_CONFIG, "--model '%.60s': write NAME=PATH", o->value);
	(void)snprintf(name, sizeof name, "%.*s", (int)(eq - o->value), o->value);
	return conf_add_model(c, name, eq + 1, e);
}

static int read_config(const struct daemon_options *o, struct conf *c, struct error *e)
{
	int rc = conf_init(c, e);

	if (!rc && o->config_path)
		rc = conf_read_path(c, o->config_path, e);
	else if (!rc && !o->private_mode && !access(DEFAULT_CONFIG, F_OK))
		rc = conf_read_path(c, DEFAULT_CONFIG, e);
	for (size_t i = 0; i < o->n_overrides && !rc; i++)
		rc = apply_override(c, &o->overrides[i], e);
	for (uint32_t i = 0; i < c->n_models && o->private_mode; i++)
		c->models[i].preload = true; /* whoever started us is about to ask */
	if (rc)
		conf_finish(c);
	return rc;
}

/* conf_complete, and what only the engine can tell. */
static int complete(struct conf *c, struct error *e)
{
	struct backends_list list;
	struct error why = { 0 };
	int rc = conf_complete(c, e);

	if (!rc && backends_parse(c->backend, 0, &list, &why))
		rc = error_set(e, TENON_E_CONFIG, "%s", why.text);
	for (uint32_t i = 0; i < c->n_models && !rc; i++)
		if (backends_parse(c->models[i].backend, 0, &list, &why))
			rc = error_set(e, TENON_E_CONFIG, "model '%.40s': %s", c->models[i].name, why.text);
	return rc;
}

int daemon_check_config(const struct daemon_options *o, struct error *e)
{
	struct conf c;
	int rc = read_config(o, &c, e);

	if (rc)
		return rc;
	rc = complete(&c, e);
	conf_finish(&c);
	return rc;
}

/* A folder of its own beneath $XDG_RUNTIME_DIR or /tmp; short, since socket paths are. */
static int make_private_dir(struct daemon *d, struct error *e)
{
	const char *base = getenv("XDG_RUNTIME_DIR");

	if (!base || !*base || strlen(base) > 60 || access(base, W_OK))
		base = "/tmp";
	(void)snprintf(d->private_dir, sizeof d->private_dir, "%s/tenon-XXXXXX", base);
	if (!mkdtemp(d->private_dir)) {
		int err = errno;

		d->private_dir[0] = 0;
		return error_errno(e, TENON_E_IO, err, "private daemon: no folder in %s", base);
	}
	return conf_set(&d->conf, "runtime_dir", d->private_dir, e) ? e->code
								    : conf_set(&d->conf, "socket", "", e);
}

static void remove_private_dir(struct daemon *d)
{
	static const char *const names[] = { "attach", "attach.lock", "bell", "admin" };
	char path[192];

	if (!d->private_dir[0])
		return;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		(void)snprintf(path, sizeof path, "%s/%s", d->private_dir, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(d->private_dir);
}

static int open_log_file(const struct conf *c, struct error *e)
{
	int fd;

	if (!*c->log.file)
		return STDERR_FILENO;
	fd = open(c->log.file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		(void)error_errno(e, TENON_E_IO, errno, "log file %.150s", c->log.file);
	return fd;
}

static int open_log(struct daemon *d, struct error *e)
{
	d->log_fd = open_log_file(&d->conf, e);
	if (d->log_fd < 0)
		return TENON_E_IO;
	d->log =
		log_create(d->log_fd, (enum log_format)d->conf.log.format, (enum log_level)d->conf.log.level);
	return d->log ? TENON_OK : error_set(e, TENON_E_NOMEM, "log: out of memory");
}

/* What only a restart changes stays as it was. */
static int keep_fixed(struct daemon *d, struct conf *fresh, struct error *e)
{
	const struct {
		const char *key, *old, *new;
	} keys[] = {
		{ "runtime_dir", d->conf.runtime_dir, fresh->runtime_dir },
		{ "socket", d->conf.socket, fresh->socket },
		{ "backend", d->conf.backend, fresh->backend },
		{ "log.file", d->conf.log.file, fresh->log.file },
	};
	int rc = TENON_OK;

	for (size_t i = 0; i < COUNT_OF(keys) && !rc; i++) {
		if (*keys[i].new &&strcmp(keys[i].new, keys[i].old))
			TOPIC_LOG(d, LOG_WARN, "config", "%s: a change needs a restart", keys[i].key);
		rc = conf_set_default(fresh, keys[i].key, keys[i].old, e);
	}
	fresh->isolation = d->conf.isolation;
	fresh->worker.ring_bytes = d->conf.worker.ring_bytes;
	return rc;
}

static void reopen_log_file(struct daemon *d)
{
	struct error e = { 0 };
	int fd = *d->conf.log.file ? open_log_file(&d->conf, &e) : -1;

	if (fd < 0)
		return;
	(void)dup3(fd, d->log_fd, O_CLOEXEC);
	(void)close(fd);
}

void daemon_reload(struct daemon *d)
{
	struct conf fresh;
	struct error e = { 0 };
	int rc = read_config(&d->options, &fresh, &e);

	reopen_log_file(d);
	if (!rc && ((rc = keep_fixed(d, &fresh, &e)) || (rc = complete(&fresh, &e))))
		conf_finish(&fresh);
	if (rc) {
		TOPIC_LOG(d, LOG_ERROR, "config", "not reloaded, the old one stays: %s", e.text);
		return;
	}
	conf_finish(&d->conf);
	d->conf = fresh;
	log_set_level(d->log, (enum log_level)d->conf.log.level);
	if (models_configure(d, &e))
		TOPIC_LOG(d, LOG_ERROR, "config", "%s", e.text);
	TOPIC_LOG(d, LOG_INFO, "config", "reloaded models=%u", d->conf.n_models);
	if (d->worker.state != WORKER_UP)
		return;
	worker_link_call(&d->worker,
		json_pack("{s:s, s:o}", "cmd", "configure", "settings", settings_json(&d->conf)), 0,
		worker_no_reply, NULL);
	models_worker_up(d);
}

/* ---- ending ---------------------------------------------------------------------------------------------------------------- */

void daemon_stop(struct daemon *d) { d->loop.stop = true; }

static void on_drain_timeout(struct timer *t, uint64_t now_ns)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, drain);

	(void)now_ns;
	TOPIC_LOG(d, LOG_WARN, "daemon", "drain_s has passed with %u requests open", d->requests.n_open);
	daemon_stop(d);
}

void daemon_drain(struct daemon *d)
{
	if (d->draining)
		return;
	d->draining = true;
	notify_send(d, "STOPPING=1");
	TOPIC_LOG(d, LOG_INFO, "daemon", "draining requests=%u", d->requests.n_open);
	if (!d->requests.n_open ||
		!timer_set(&d->loop.timers, &d->drain, d->loop.now_ns + d->conf.drain_s * NS_PER_S))
		daemon_stop(d);
}

void daemon_request_gone(struct daemon *d)
{
	if (d->draining && !d->requests.n_open)
		daemon_stop(d);
}

/* ---- signals, parent --------------------------------------------------------------------------------------------------------- */

static void on_signal(struct watch *w, uint32_t events)
{
	struct daemon *d = CONTAINER_OF(w, struct daemon, signals);
	struct signalfd_siginfo si;

	(void)events;
	while (read(w->fd, &si, sizeof si) == (ssize_t)sizeof si) {
		if (si.ssi_signo == SIGHUP)
			daemon_reload(d);
		else if (si.ssi_signo == SIGINT && d->options.private_mode)
			continue; /* a terminal's Ctrl-C is for the program that started us */
		else if (d->draining)
			daemon_stop(d);
		else
			daemon_drain(d);
	}
}

static int open_signals(struct daemon *d, struct error *e)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(e, TENON_E_IO, errno, "signals");
	return loop_watch(&d->loop, &d->signals, fd, EPOLLIN, e);
}

static void on_parent(struct watch *w, uint32_t events)
{
	(void)events;
	daemon_stop(CONTAINER_OF(w, struct daemon, parent));
}

/* "ready SOCKET" for whoever started us; its end of the pipe closing ends a private daemon. */
static int tell_parent(struct daemon *d, struct error *e)
{
	char line[192];
	int n = snprintf(line, sizeof line, "ready %s\n", d->conf.socket);

	if (d->options.ready_fd < 0)
		return TENON_OK;
	if (write(d->options.ready_fd, line, (size_t)n) != n)
		return error_set(e, TENON_E_GONE, "private daemon: nobody reads --ready-fd");
	if (!d->options.private_mode)
		return TENON_OK;
	return loop_watch(&d->loop, &d->parent, d->options.ready_fd, EPOLLRDHUP, e);
}

/* ---- life ----------------------------------------------------------------------------------------------------------------------- */

static int open_all(struct daemon *d, struct error *e)
{
	int rc = open_log(d, e);

	if (!rc)
		rc = loop_init(&d->loop, e);
	if (!rc)
		rc = timers_reserve(&d->loop.timers, 1024)
			? error_set(e, TENON_E_NOMEM, "daemon: out of memory")
			: TENON_OK;
	d->frame_room = ring_max_frame(MAX_OF(d->conf.limits.ring_max_bytes, d->conf.worker.ring_bytes));
	d->frame = rc ? NULL : mem_alloc(MEM_DAEMON, d->frame_room);
	if (!rc && !d->frame)
		rc = error_set(e, TENON_E_NOMEM, "daemon: out of memory");
	if (!rc)
		rc = open_signals(d, e);
	if (!rc)
		rc = sessions_open(d, e);
	if (!rc)
		rc = worker_link_init(d, e);
	if (!rc)
		worker_link_start(&d->worker);
	if (!rc)
		rc = models_configure(d, e);
	if (!rc)
		rc = admin_open(d, e);
	return rc ? rc : tell_parent(d, e);
}

int daemon_open(struct daemon *d, const struct daemon_options *o, struct error *e)
{
	int rc;

	*d = (struct daemon){
		.options = *o, .started_ns = clock_now_ns(), .log_fd = -1, .loop.epoll = -1, .notify.fd = -1
	};
	d->signals = (struct watch){ .fd = -1, .ready = on_signal };
	d->parent = (struct watch){ .fd = -1, .ready = on_parent };
	d->drain.fire = on_drain_timeout;
	requests_init(&d->requests);
	jobs_init(&d->jobs);
	models_init(&d->models);
	rc = read_config(o, &d->conf, e);
	if (rc)
		return rc;
	if (o->private_mode)
		rc = make_private_dir(d, e);
	if (!rc)
		rc = complete(&d->conf, e);
	if (!rc)
		rc = open_all(d, e);
	if (rc) {
		daemon_close(d);
		return rc;
	}
	(void)notify_open(d);
	notify_send(d, "READY=1");
	TOPIC_LOG(d, LOG_INFO, "daemon", "ready pid=%d socket=%s isolation=%s models=%u", (int)getpid(),
		d->conf.socket, d->conf.isolation == ISOLATION_THREAD ? "thread" : "process",
		d->conf.n_models);
	return TENON_OK;
}

/* What still runs ends with a typed error. */
static void end_requests(struct daemon *d)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *r = d->requests.slot[i];

		if (r && (r->session || r->job))
			request_fail(r, TENON_E_DRAINING, "request: the daemon has ended");
	}
}

void daemon_close(struct daemon *d)
{
	int fd = d->signals.fd;

	if (d->loop.epoll >= 0 && d->sessions.open.head.next) {
		notify_send(d, "STOPPING=1");
		end_requests(d);
		requests_finish(d);
		jobs_finish(d);
		sessions_close(d);
		worker_link_stop(&d->worker, STOP_WAIT_MS);
		admin_close(d);
		models_finish(d);
		worker_link_finish(&d->worker);
	}
	timer_clear(&d->loop.timers, &d->drain);
	loop_unwatch(&d->loop, &d->parent);
	loop_unwatch(&d->loop, &d->signals);
	if (fd >= 0)
		(void)close(fd);
	notify_close(d);
	if (d->log)
		TOPIC_LOG(d, LOG_INFO, "daemon", "ended");
	loop_finish(&d->loop);
	MEM_CLEAR(d->frame);
	remove_private_dir(d);
	if (d->log_fd > STDERR_FILENO)
		(void)close(d->log_fd);
	log_destroy(d->log);
	d->log = NULL;
	conf_finish(&d->conf);
}
