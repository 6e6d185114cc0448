/* SPDX-License-Identifier: Apache-2.0
 * Trying a plugin in a process of its own (probe_main.c). The child gets the checked descriptor, a pipe and nothing
 * else; it has PLUGIN_PROBE_MS to answer. Its answer is checked like a message from a stranger. Good answers are kept
 * as a blob beside an identity made of the object's, the boot and the libraries installed.
 */
#include "plugins/plugins_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 258, MAX_STAGES = 8 };
#define CACHE_KEY "tenon.probe"

struct cached {
	uint8_t identity[32];
	struct probe_result result;
};

static const char *stage_text(char stage)
{
	switch (stage) {
	case 'o':
		return "being loaded and started";
	case 'd':
		return "listing its devices";
	case 'c':
		return "opening and checking its devices";
	case 'l':
		return "stopping";
	}
	return "being started";
}

/* What makes an old answer worthless: another object, kernel or driver (boot), other libraries, other options. */
static void identity(const struct plugin *p, const uint8_t object[32], uint8_t out[32])
{
	crypto_generichash_state st;
	struct stat libs = { 0 };
	char boot[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		ssize_t n = read(fd, boot, sizeof boot - 1);

		boot[n > 0 ? n : 0] = 0;
		(void)close(fd);
	}
	(void)stat("/etc/ld.so.cache", &libs);
	(void)crypto_generichash_init(&st, NULL, 0, 32);
	(void)crypto_generichash_update(&st, object, 32);
	(void)crypto_generichash_update(&st, (const uint8_t *)boot, sizeof boot);
	(void)crypto_generichash_update(&st, (const uint8_t *)&libs.st_mtim, sizeof libs.st_mtim);
	for (size_t i = 0; i < p->host.n_options; i++) {
		const struct plugin_option *o = &p->host.options[i];

		if (strcmp(o->plugin, p->host.name))
			continue;
		(void)crypto_generichash_update(&st, (const uint8_t *)o->key, strlen(o->key) + 1);
		(void)crypto_generichash_update(&st, (const uint8_t *)o->value, strlen(o->value) + 1);
	}
	(void)crypto_generichash_final(&st, out, 32);
}

static bool result_ok(struct probe_result *r)
{
	if (r->magic != PROBE_MAGIC || r->bytes != sizeof *r || r->n_devices > PLUGIN_MAX_DEVICES ||
		r->code > 0)
		return false;
	r->vendor[sizeof r->vendor - 1] = r->version[sizeof r->version - 1] = r->text[sizeof r->text - 1] = 0;
	for (uint32_t i = 0; i < r->n_devices; i++) {
		struct tnp_device *d = &r->device[i];

		d->name[sizeof d->name - 1] = d->driver[sizeof d->driver - 1] = d->isa[sizeof d->isa - 1] = 0;
	}
	return true;
}

static bool cached_result(const struct plugin *p, const uint8_t id[32], struct probe_result *r)
{
	const struct tnp_host *h = &p->host.table;
	struct cached c;
	uint64_t len = sizeof c;

	if (h->blob_get(h->ctx, CACHE_KEY, &c, &len) || len != sizeof c || memcmp(c.identity, id, 32) ||
		!result_ok(&c.result))
		return false;
	*r = c.result;
	return true;
}

static void keep_result(const struct plugin *p, const uint8_t id[32], const struct probe_result *r)
{
	const struct tnp_host *h = &p->host.table;
	struct cached c;

	memset(&c, 0, sizeof c);
	memcpy(c.identity, id, 32);
	c.result = *r;
	(void)h->blob_put(h->ctx, CACHE_KEY, &c, sizeof c);
}

static bool probe_binary(char *path, size_t room)
{
	char root[4000];

	if (plugin_build_root(root, sizeof root))
		return (size_t)snprintf(path, room, "%s/tenon-probe", root) < room;
	return (size_t)snprintf(path, room, "%s/tenon-probe", TENON_LIBEXECDIR) < room;
}

struct child {
	char *argv[MAX_ARGS], *own[MAX_ARGS];
	size_t n_own;
};

static void child_free(struct child *c)
{
	for (size_t i = 0; i < c->n_own; i++)
		mem_free(c->own[i]);
}

static bool child_args(struct child *c, char *binary, const struct plugin *p)
{
	size_t n = 3;

	c->argv[0] = binary;
	c->argv[1] = (char *)p->host.name;
	c->argv[2] = (char *)(p->manifest.no_self_check ? "skip" : "check");
	for (size_t i = 0; i < p->host.n_options && n < MAX_ARGS - 1; i++) {
		const struct plugin_option *o = &p->host.options[i];
		struct buf b;

		if (strcmp(o->plugin, p->host.name))
			continue;
		buf_init(&b, MEM_PLUGIN, 0);
		(void)buf_printf(&b, "%s=%s", o->key, o->value);
		c->own[c->n_own] = buf_take(&b, NULL);
		if (!c->own[c->n_own])
			return false;
		c->argv[n++] = c->own[c->n_own++];
	}
	return true;
}

/* Only the three standard descriptors (to nowhere), the object and the pipe; default signals; a group of its own. */
static int spawn(char *binary, char *const *argv, int object, int out, pid_t *pid)
{
	static char *const env[] = { (char *)"LC_ALL=C", (char *)"PATH=/usr/bin:/bin", NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int rc = posix_spawn_file_actions_init(&fa);

	if (rc)
		return rc;
	rc = posix_spawnattr_init(&at);
	if (rc) {
		(void)posix_spawn_file_actions_destroy(&fa);
		return rc;
	}
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	for (int fd = 0; !rc && fd <= 2; fd++)
		rc = posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
	rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, object, PROBE_FD_MODULE);
	rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, out, PROBE_FD_RESULT);
	rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(&fa, PROBE_FD_RESULT + 1);
	(void)posix_spawnattr_setsigmask(&at, &none);
	(void)posix_spawnattr_setsigdefault(&at, &all);
	(void)posix_spawnattr_setpgroup(&at, 0);
	(void)posix_spawnattr_setflags(
		&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	rc = rc ? rc : posix_spawn(pid, binary, &fa, &at, argv, env);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&fa);
	return rc;
}

/* Reads to the end of the pipe or of the time allowed; false: time is up. */
static bool listen_to(int fd, char *out, size_t room, size_t *len)
{
	uint64_t end = clock_now_ns() + PLUGIN_PROBE_MS * NS_PER_MS;

	for (;;) {
		uint64_t now = clock_now_ns();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (now >= end)
			return false;
		if (poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) <= 0)
			continue;
		n = read(fd, out + *len, room - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || *len == room)
			return true;
		*len += (size_t)n;
	}
}

/* Fills `r`, or says in `r` what went wrong with the child. */
static void judge(const char *msg, size_t len, bool in_time, int status, struct probe_result *r)
{
	size_t n = 0;

	while (n < len && strchr(PROBE_STAGES, msg[n]) && msg[n])
		n++;
	if (in_time && WIFEXITED(status) && !WEXITSTATUS(status) && len - n == sizeof *r) {
		memcpy(r, msg + n, sizeof *r);
		if (result_ok(r))
			return;
	}
	memset(r, 0, sizeof *r);
	r->code = TENON_E_BACKEND;
	if (!in_time)
		(void)snprintf(r->text, sizeof r->text, "did not answer within %d s while %s",
			PLUGIN_PROBE_MS / 1000, stage_text(n ? msg[n - 1] : 0));
	else if (WIFSIGNALED(status))
		(void)snprintf(r->text, sizeof r->text, "crashed (signal %d, %s) while %s", WTERMSIG(status),
			strsignal(WTERMSIG(status)), stage_text(n ? msg[n - 1] : 0));
	else
		(void)snprintf(r->text, sizeof r->text, "ended the process (status %d) while %s",
			WIFEXITED(status) ? WEXITSTATUS(status) : -1, stage_text(n ? msg[n - 1] : 0));
}

static int run_child(const struct plugin *p, int object, struct probe_result *r, struct error *e)
{
	struct child c = { .n_own = 0 };
	char binary[4096], msg[sizeof *r + MAX_STAGES];
	size_t len = 0;
	int pipe_fd[2], safe_fd, status = 0, rc;
	bool in_time;
	pid_t pid;

	if (!probe_binary(binary, sizeof binary) || !child_args(&c, binary, p)) {
		child_free(&c);
		return error_set(e, TENON_E_NOMEM, "plugin '%s': no memory to probe it", p->info.name);
	}
	if (pipe2(pipe_fd, O_CLOEXEC)) {
		child_free(&c);
		return error_errno(e, TENON_E_IO, errno, "plugin '%s': no pipe to probe it", p->info.name);
	}
	/* out of the way of the numbers that the child's descriptors get */
	safe_fd = fcntl(pipe_fd[1], F_DUPFD_CLOEXEC, 16);
	(void)close(pipe_fd[1]);
	rc = safe_fd < 0 ? errno : spawn(binary, c.argv, object, safe_fd, &pid);
	child_free(&c);
	if (safe_fd >= 0)
		(void)close(safe_fd);
	if (rc) {
		(void)close(pipe_fd[0]);
		return error_errno(
			e, TENON_E_IO, rc, "plugin '%s': cannot start %.128s", p->info.name, binary);
	}
	in_time = listen_to(pipe_fd[0], msg, sizeof msg, &len);
	(void)close(pipe_fd[0]);
	if (!in_time)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	judge(msg, len, in_time, status, r);
	return TENON_OK;
}

int plugins_probe(struct plugins *list, size_t i, struct error *e)
{
	struct plugin *p = i < list->n ? list->list[i] : NULL;
	struct probe_result r = { 0 };
	uint8_t object[32], id[32];
	int fd, safe_fd, rc;

	if (!p)
		return error_set(e, TENON_E_INVALID, "plugin %zu: there are %zu", i, list->n);
	if (!p->variant || p->info.state == PLUGIN_UNUSABLE)
		return error_set(e, TENON_E_UNSUPPORTED, "plugin '%s': %s", p->info.name, p->info.reason);
	rc = plugin_open_object(p, &fd, object, e);
	if (rc) {
		plugin_set_state(p, PLUGIN_UNUSABLE, "%s", e ? e->text : "its file cannot be opened");
		return rc;
	}
	safe_fd = fcntl(fd, F_DUPFD_CLOEXEC, 16);
	(void)close(fd);
	if (safe_fd < 0)
		return error_errno(e, TENON_E_IO, errno, "plugin '%s': no descriptor left", p->info.name);
	identity(p, object, id);
	if (!cached_result(p, id, &r)) {
		rc = run_child(p, safe_fd, &r, e);
		if (!rc && !r.code)
			keep_result(p, id, &r);
	}
	(void)close(safe_fd);
	if (rc)
		return rc;
	plugin_take_result(p, &r);
	return r.code ? error_set(e, r.code, "plugin '%s': %s", p->info.name, p->info.reason) : TENON_OK;
}
