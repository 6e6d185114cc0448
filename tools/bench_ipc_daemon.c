/* SPDX-License-Identifier: Apache-2.0
 * bench_ipc.h: pings answered by a daemon's loop (both awake; both parked before each ping), attaching, and what a
 * daemon with 64 idle sessions costs.
 */
#include "tools/bench_ipc.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { IDLE_SESSIONS = 64, IDLE_WINDOWS = 5, PAUSE_US = 3000, SETTLE_MS = 3000 };

static int attach(const struct session *s, int eventfd_bell, uint32_t spin_us, uint64_t ring_bytes,
	struct tenon **t, struct error *e)
{
	struct tenon_options o = { .size = sizeof o,
		.socket = *s->socket ? s->socket : NULL,
		.submit_bytes = ring_bytes,
		.events_bytes = ring_bytes,
		.eventfd_bell = eventfd_bell,
		.spin_us = spin_us };
	struct tenon_error te = { 0 };
	int rc = tenon_connect(&o, t, &te);

	return rc ? error_set(e, rc, "bench: %s", te.text) : TENON_OK;
}

/* ---- ping ------------------------------------------------------------------------------------------------------------ */

static int ping(struct tenon *t, double *us)
{
	static const char data[BENCH_IPC_BYTES] = "ping";
	struct tenon_event ev;
	uint64_t t0 = clock_now_ns();
	int rc = tenon_ping(t, data, sizeof data);

	if (!rc)
		rc = tenon_next(t, &ev, 2000);
	*us = (double)(clock_now_ns() - t0) / 1e3;
	return !rc && ev.kind != TENON_EVENT_PONG ? TENON_E_PROTOCOL : rc;
}

/* parked: the client never spins, and a pause before each ping puts the daemon's loop to sleep too. */
static int measure_ping(json_t *report, const struct session *s, const char *name, int eventfd_bell,
	bool parked, uint64_t n, struct error *e)
{
	double *us = mem_zalloc(MEM_TOOL, n, sizeof *us), warm;
	struct tenon *t = NULL;
	int rc = us ? attach(s, eventfd_bell, parked ? 1 : 2000, 0, &t, e)
		    : error_set(e, TENON_E_NOMEM, "bench: out of memory");

	for (uint64_t i = 0; i < n / 10 && !rc; i++)
		rc = ping(t, &warm);
	for (uint64_t i = 0; i < n && !rc; i++) {
		if (parked)
			(void)usleep(PAUSE_US);
		rc = ping(t, &us[i]);
	}
	if (rc && t)
		(void)error_set(e, rc, "bench: %s: no answer from tenond (%s)", name, tenon_error_name(rc));
	if (!rc)
		(void)bench_add(report, name, "us", us, n);
	tenon_close(t);
	mem_free(us);
	return rc;
}

static int measure_attach(json_t *report, const struct session *s, uint64_t n, struct error *e)
{
	double us[200];
	struct tenon *t;
	int rc = TENON_OK;

	n = MIN_OF(n, (uint64_t)COUNT_OF(us));
	for (uint64_t i = 0; i < n && !rc; i++) {
		uint64_t t0 = clock_now_ns();

		rc = attach(s, 0, 0, 0, &t, e);
		us[i] = (double)(clock_now_ns() - t0) / 1e3;
		if (!rc)
			tenon_close(t);
		(void)usleep(2 * PAUSE_US);
	}
	if (!rc)
		(void)bench_add(report, "attach", "us", us, n);
	return rc;
}

/* ---- idle ------------------------------------------------------------------------------------------------------------ */

/* Who listens there: asked of the socket, since a daemon found by its socket may be anybody's child. */
static pid_t daemon_pid(const struct session *s)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct ucred c = { 0 };
	socklen_t len = sizeof c;
	int fd;

	if (s->daemon > 0 || !*s->socket || strlen(s->socket) >= sizeof a.sun_path)
		return s->daemon;
	memcpy(a.sun_path, s->socket, strlen(s->socket) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a))
		(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len);
	if (fd >= 0)
		(void)close(fd);
	return c.pid;
}

static uint64_t read_number(const char *path)
{
	char text[64];
	FILE *f = fopen(path, "re");
	uint64_t v = f && fgets(text, sizeof text, f) ? strtoull(text, NULL, 10) : 0;

	if (f)
		(void)fclose(f);
	return v;
}

static uint64_t parent_of(int pid)
{
	char path[64], line[512], *end;
	FILE *f;
	uint64_t ppid = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof line, f) && (end = strrchr(line, ')')) != NULL && strlen(end) > 4)
		ppid = strtoull(end + 4, NULL, 10);
	if (f)
		(void)fclose(f);
	return ppid;
}

typedef uint64_t thread_fn(int pid, const char *tid);

/* Nanoseconds on a processor, from schedstat (CPU ticks are too coarse here). */
static uint64_t thread_ns(int pid, const char *tid)
{
	char path[320];

	(void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, tid);
	return read_number(path);
}

/* How often it went to sleep, and so was woken. */
static uint64_t thread_sleeps(int pid, const char *tid)
{
	static const char key[] = "voluntary_ctxt_switches:";
	char path[320], line[256];
	uint64_t n = 0;
	FILE *f;

	(void)snprintf(path, sizeof path, "/proc/%d/task/%s/status", pid, tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, sizeof key - 1))
			n = strtoull(line + sizeof key - 1, NULL, 10);
	if (f)
		(void)fclose(f);
	return n;
}

static uint64_t process_sum(int pid, thread_fn *of)
{
	char path[320];
	struct dirent *d;
	uint64_t sum = 0;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir)) != NULL)
		if (*d->d_name != '.')
			sum += of(pid, d->d_name);
	if (dir)
		(void)closedir(dir);
	return sum;
}

/* The daemon and its children (workers). */
static uint64_t family_sum(pid_t daemon, thread_fn *of)
{
	uint64_t sum = process_sum(daemon, of);
	struct dirent *d;
	DIR *dir = opendir("/proc");

	while (dir && (d = readdir(dir)) != NULL) {
		int pid = atoi(d->d_name);

		if (pid > 0 && parent_of(pid) == (uint64_t)daemon)
			sum += process_sum(pid, of);
	}
	if (dir)
		(void)closedir(dir);
	return sum;
}

static void idle_windows(json_t *report, pid_t pid, uint64_t share)
{
	double used[IDLE_WINDOWS], woken[IDLE_WINDOWS];

	(void)usleep(SETTLE_MS * 1000);
	for (int i = 0; i < IDLE_WINDOWS; i++) {
		uint64_t t0 = clock_now_ns(), cpu = family_sum(pid, thread_ns),
			 n = family_sum(pid, thread_sleeps), ns;

		(void)usleep((useconds_t)(20000 * MIN_OF(share, UINT64_C(100))));
		ns = clock_now_ns() - t0;
		used[i] = (double)(family_sum(pid, thread_ns) - cpu) / (double)ns;
		woken[i] = (double)(family_sum(pid, thread_sleeps) - n) * 1e9 / (double)ns;
	}
	(void)bench_add(report, "idle.cpu", "share", used, IDLE_WINDOWS);
	(void)bench_add(report, "idle.wakes", "1/s", woken, IDLE_WINDOWS);
}

static int measure_idle(json_t *report, const struct session *s, uint64_t share, struct error *e)
{
	struct tenon *t[IDLE_SESSIONS] = { NULL };
	pid_t pid = daemon_pid(s);
	int rc = TENON_OK;

	if (pid <= 0)
		return TENON_OK;
	for (int i = 0; i < IDLE_SESSIONS && !rc; i++) {
		rc = attach(s, 0, 0, (uint64_t)64 << 10, &t[i], e);
		(void)usleep(2 * PAUSE_US);
	}
	if (!rc)
		idle_windows(report, pid, share);
	for (int i = 0; i < IDLE_SESSIONS; i++)
		tenon_close(t[i]);
	return rc;
}

int bench_ipc_daemon(json_t *report, uint64_t share, struct session *s, struct error *e)
{
	uint64_t many = MAX_OF(200000 * share / 100, UINT64_C(20)),
		 few = MAX_OF(1000 * share / 100, UINT64_C(20));
	int rc = measure_ping(report, s, "ping.awake", 0, false, many, e);

	if (!rc)
		rc = measure_ping(report, s, "ping.zmq", 0, true, few, e);
	if (!rc)
		rc = measure_ping(report, s, "ping.eventfd", 1, true, few, e);
	if (!rc)
		rc = measure_attach(report, s, few / 10, e);
	return rc ? rc : measure_idle(report, s, share, e);
}
