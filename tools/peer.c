/* SPDX-License-Identifier: Apache-2.0
 * See peer.h.
 */
#include "tools/peer.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *peer_bench_dir(void)
{
	const char *dir = getenv("TENON_BENCH_DIR");

	return dir && *dir ? dir : TENON_SOURCE_DIR "/bench";
}

/* Runs bench/make-venv; its last line is the interpreter. */
static int venv_python(const char *name, char *path, size_t room, struct error *e)
{
	char cmd[4096];
	FILE *f;

	(void)snprintf(cmd, sizeof cmd, "'%s/make-venv' %s", peer_bench_dir(), name);
	f = popen(cmd, "re");
	if (!f)
		return error_errno(e, TENON_E_IO, errno, "peer %s: make-venv", name);
	path[0] = 0;
	while (fgets(path, (int)room, f))
		;
	path[strcspn(path, "\n")] = 0;
	if (pclose(f) || !path[0])
		return error_set(e, TENON_E_NOT_FOUND,
			"peer %s: %s/make-venv failed; its message stands above", name, peer_bench_dir());
	return TENON_OK;
}

static int spawn(struct peer *p, char *const argv[], struct error *e)
{
	posix_spawn_file_actions_t fa;
	int in[2], out[2], rc;

	if (pipe2(in, O_CLOEXEC))
		return error_errno(e, TENON_E_IO, errno, "peer: pipe");
	if (pipe2(out, O_CLOEXEC)) {
		(void)close(in[0]);
		(void)close(in[1]);
		return error_errno(e, TENON_E_IO, errno, "peer: pipe");
	}
	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawn_file_actions_adddup2(&fa, in[0], STDIN_FILENO);
	(void)posix_spawn_file_actions_adddup2(&fa, out[1], STDOUT_FILENO);
	(void)posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&p->pid, argv[0], &fa, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)close(in[0]);
	(void)close(out[1]);
	p->to = fdopen(in[1], "w");
	p->from = fdopen(out[0], "r");
	if (rc || !p->to || !p->from) {
		p->pid = rc ? 0 : p->pid;
		return error_errno(e, TENON_E_IO, rc ? rc : errno, "peer: cannot start %s", argv[0]);
	}
	return TENON_OK;
}

int peer_start(struct peer *p, const char *name, const char *model, uint32_t threads, uint32_t n_ctx,
	uint32_t slots, struct error *e)
{
	char python[4096], script[4096], t[16], c[16], s[16];
	char *argv[] = { python, script, (char *)(uintptr_t)model, t, c, s, NULL };
	double ready;
	int rc = venv_python(name, python, sizeof python, e);

	if (rc)
		return rc;
	(void)snprintf(script, sizeof script, "%s/peer_%s.py", peer_bench_dir(), name);
	(void)snprintf(t, sizeof t, "%u", threads);
	(void)snprintf(c, sizeof c, "%u", n_ctx);
	(void)snprintf(s, sizeof s, "%u", slots);
	rc = spawn(p, argv, e);
	rc = rc ? rc : peer_ask(p, NULL, "ready", &ready, e);
	if (rc)
		peer_stop(p);
	return rc;
}

/* An answer without the number that was asked for. */
static int refusal(const json_t *o, const char *line, struct error *e)
{
	const char *refused = json_string_value(json_object_get(o, "refused")),
		   *failed = json_string_value(json_object_get(o, "error"));

	if (refused)
		return error_set(e, TENON_E_UNSUPPORTED, "refuses the file: %.200s", refused);
	if (failed)
		return error_set(e, TENON_E_BACKEND, "fails: %.200s", failed);
	return error_set(e, TENON_E_FORMAT, "peer: answered '%.80s'", line);
}

int peer_ask(struct peer *p, const char *cmd, const char *key, double *out, struct error *e)
{
	char line[4096];
	json_t *o, *v;
	int rc;

	if (cmd && (fprintf(p->to, "%s\n", cmd) < 0 || fflush(p->to)))
		return error_set(e, TENON_E_GONE, "peer: it has ended");
	if (!fgets(line, sizeof line, p->from))
		return error_set(e, TENON_E_GONE, "peer: it has ended");
	o = json_loads(line, 0, NULL);
	v = json_object_get(o, key);
	*out = json_is_true(v) ? 1 : json_number_value(v);
	rc = *out > 0 ? TENON_OK : refusal(o, line, e);
	json_decref(o);
	return rc;
}

void peer_stop(struct peer *p)
{
	if (p->to)
		(void)fclose(p->to);
	if (p->from)
		(void)fclose(p->from);
	if (p->pid > 0) {
		(void)kill(p->pid, SIGTERM);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	*p = (struct peer){ 0 };
}
