/* SPDX-License-Identifier: Apache-2.0
 * How a worker comes to life and how its end is learnt: `tenond --worker` with inherited descriptors, or a thread that
 * runs the same code. Loop thread.
 */
#include "daemon/daemon.h"
#include "daemon/worker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

uint64_t worker_count_oom_kills(void)
{
	char line[128];
	unsigned long long n = 0;
	FILE *f = fopen("/proc/vmstat", "re");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "oom_kill %llu", &n) == 1)
			break;
	if (f)
		(void)fclose(f);
	return n;
}

/* ---- process ------------------------------------------------------------------------------------------------------------- */

/* What the child gets besides 0, 1 and 2; written down for its command line. */
static int describe(
	const struct worker_link *w, const struct worker_ends *ends, char *out, size_t room, int fds[12])
{
	struct link_fds io = link_export(&ends->io), tok = link_export(&ends->tok);
	int n = snprintf(out, room, "%d,%d,%d,%d,%llu,%d,%d,%d,%d,%llu,%d,%d,%d,%d,%d", io.tx, io.rx, io.ring,
		io.wait, (unsigned long long)io.ring_bytes, tok.tx, tok.rx, tok.ring, tok.wait,
		(unsigned long long)tok.ring_bytes, ends->box.fd, w->d->log_fd, (int)log_get_level(w->d->log),
		(int)w->d->conf.log.format, (int)getpid());
	const int all[] = { io.tx, io.rx, io.ring, io.wait, tok.tx, tok.rx, tok.ring, tok.wait,
		ends->box.fd };

	memcpy(fds, all, sizeof all);
	return n > 0 && (size_t)n < room ? (int)COUNT_OF(all) : -1;
}

/* Our own file; when an upgrade has replaced it since, what we run still, whose protocol we speak. */
static bool find_self(char *path, size_t room)
{
	ssize_t len = readlink("/proc/self/exe", path, room - 1);

	if (len <= 0)
		return false;
	path[len] = 0;
	if (access(path, X_OK))
		(void)snprintf(path, room, "/proc/self/exe");
	return true;
}

/* dup2 onto itself clears close-on-exec in the child. */
static int file_actions(posix_spawn_file_actions_t *fa, const int *fds, int n, int words, int log_fd)
{
	int rc = posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (!rc && log_fd != STDOUT_FILENO)
		rc = posix_spawn_file_actions_addopen(fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	for (int i = 0; i < n && !rc; i++)
		rc = posix_spawn_file_actions_adddup2(fa, fds[i], fds[i]);
	if (!rc && log_fd > STDERR_FILENO)
		rc = posix_spawn_file_actions_adddup2(fa, log_fd, log_fd);
	if (!rc && log_fd == STDERR_FILENO) /* the log goes to our stderr, its own stderr to us */
		rc = posix_spawn_file_actions_adddup2(fa, STDERR_FILENO, STDOUT_FILENO);
	return rc ? rc : posix_spawn_file_actions_adddup2(fa, words, STDERR_FILENO);
}

static int spawn(struct worker_link *w, const struct worker_ends *ends, int words, pid_t *pid)
{
	char list[256], self[4096], name[] = "tenond", flag[] = "--worker",
				    *argv[] = { name, flag, list, NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int fds[12], n = describe(w, ends, list, sizeof list, fds), rc;

	if (n < 0 || !find_self(self, sizeof self))
		return EINVAL;
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawnattr_init(&attr);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setsigdefault(&attr, &all);
	(void)posix_spawnattr_setpgroup(&attr, 0); /* a terminal's Ctrl-C is for the daemon */
	(void)posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	rc = file_actions(&fa, fds, n, words, w->d->log_fd);
	if (!rc)
		rc = posix_spawn(pid, self, &fa, &attr, argv, environ);
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)posix_spawnattr_destroy(&attr);
	return rc;
}

static int watch_process(struct worker_link *w, int words, struct error *e)
{
	int pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	int rc = pidfd < 0 ? error_errno(e, TENON_E_NOMEM, errno, "worker: no pidfd")
			   : loop_watch(&w->d->loop, &w->end, pidfd, EPOLLIN, e);

	if (!rc)
		rc = loop_watch(&w->d->loop, &w->words_fd, words, EPOLLIN, e);
	if (rc) {
		(void)kill(w->pid, SIGKILL);
		(void)waitpid(w->pid, NULL, 0);
		loop_unwatch(&w->d->loop, &w->end);
		if (pidfd >= 0)
			(void)close(pidfd);
	}
	return rc;
}

int worker_start_process(struct worker_link *w, struct worker_ends *ends, struct error *e)
{
	int words[2], err;
	pid_t pid = 0;

	if (pipe2(words, O_CLOEXEC | O_NONBLOCK)) {
		worker_ends_free(ends);
		return error_errno(e, TENON_E_NOMEM, errno, "worker: no pipe");
	}
	err = spawn(w, ends, words[1], &pid);
	worker_ends_free(ends);
	(void)close(words[1]);
	if (err) {
		(void)close(words[0]);
		return error_errno(e, TENON_E_IO, err, "worker: cannot start /proc/self/exe");
	}
	w->pid = pid;
	w->threaded = false;
	if (!watch_process(w, words[0], e))
		return TENON_OK;
	(void)close(words[0]);
	return e->code ? e->code : TENON_E_NOMEM;
}

static bool wait_process(struct worker_link *w, char *text, size_t room, bool *outsider)
{
	int status, fd = w->end.fd;
	pid_t pid = waitpid(w->pid, &status, WNOHANG);

	if (!pid || (pid < 0 && errno == EINTR))
		return false;
	loop_unwatch(&w->d->loop, &w->end);
	(void)close(fd);
	*outsider = false;
	if (pid < 0) {
		(void)snprintf(text, room, "has gone");
	} else if (WIFEXITED(status)) {
		(void)snprintf(text, room, "ended with status %d", WEXITSTATUS(status));
	} else if (WTERMSIG(status) == SIGKILL && worker_count_oom_kills() > w->oom_kills) {
		(void)snprintf(text, room, "killed for want of memory");
	} else {
		*outsider = WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM;
		(void)snprintf(
			text, room, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	}
	return true;
}

/* ---- thread --------------------------------------------------------------------------------------------------------------- */

struct body {
	struct worker_ends *ends;
	struct log *log;
	int end_fd; /* eventfd: written when it has ended */
};

static void *run_thread(void *p)
{
	struct body *b = p;
	const uint64_t one = 1;

	(void)worker_run(b->ends, b->log, false);
	worker_ends_free(b->ends);
	(void)!write(b->end_fd, &one, sizeof one);
	mem_free(b);
	return NULL;
}

int worker_start_thread(struct worker_link *w, struct worker_ends *ends, struct error *e)
{
	struct body *b = mem_zalloc(MEM_DAEMON, 1, sizeof *b);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), err = ENOMEM;

	if (b && fd >= 0 && !loop_watch(&w->d->loop, &w->end, fd, EPOLLIN, e)) {
		*b = (struct body){ .ends = ends, .log = w->d->log, .end_fd = fd };
		err = pthread_create(&w->thread, NULL, run_thread, b);
	}
	if (!err) {
		w->threaded = true;
		w->pid = (int)getpid();
		return TENON_OK;
	}
	loop_unwatch(&w->d->loop, &w->end);
	if (fd >= 0)
		(void)close(fd);
	mem_free(b);
	worker_ends_free(ends);
	return error_errno(e, TENON_E_NOMEM, err, "worker: no thread");
}

static bool wait_thread(struct worker_link *w, char *text, size_t room, bool *outsider)
{
	uint64_t n;
	int fd = w->end.fd;

	if (read(fd, &n, sizeof n) < 0)
		return false;
	(void)pthread_join(w->thread, NULL);
	loop_unwatch(&w->d->loop, &w->end);
	(void)close(fd);
	*outsider = false;
	(void)snprintf(text, room, "its thread has ended");
	return true;
}

/* ---- both ------------------------------------------------------------------------------------------------------------------- */

bool worker_wait(struct worker_link *w, char *text, size_t room, bool *outsider)
{
	if (w->end.fd < 0)
		return true;
	return w->threaded ? wait_thread(w, text, room, outsider) : wait_process(w, text, room, outsider);
}

/* A thread cannot be killed: it is asked, and a hung one stays until the daemon is restarted. */
void worker_terminate(struct worker_link *w)
{
	if (!w->threaded && w->pid > 0)
		(void)kill(w->pid, SIGKILL);
	else if (w->threaded)
		worker_link_call(w, json_pack("{s:s}", "cmd", "stop"), 0, worker_no_reply, NULL);
}
