/* SPDX-License-Identifier: Apache-2.0
 * systemd's readiness protocol: datagrams to $NOTIFY_SOCKET. Without it nothing happens. Loop thread.
 */
#include "daemon/daemon.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(struct daemon *d, const char *state)
{
	if (d->notify.fd >= 0)
		(void)send(d->notify.fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_watchdog(struct timer *t, uint64_t now_ns)
{
	struct daemon *d = CONTAINER_OF(t, struct daemon, notify.watchdog);

	notify_send(d, "WATCHDOG=1");
	(void)timer_set(&d->loop.timers, t, now_ns + d->notify.interval_ns);
}

static int connect_to(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	int fd;

	if (len < 2 || len >= sizeof a.sun_path || (path[0] != '/' && path[0] != '@'))
		return -1;
	memcpy(a.sun_path, path, len);
	if (path[0] == '@') /* abstract */
		a.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 &&
		connect(fd, (struct sockaddr *)&a,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len))) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

int notify_open(struct daemon *d)
{
	const char *path = getenv("NOTIFY_SOCKET"), *usec = getenv("WATCHDOG_USEC"),
		   *pid = getenv("WATCHDOG_PID");

	d->notify.fd = path ? connect_to(path) : -1;
	d->notify.watchdog.fire = on_watchdog;
	if (d->notify.fd < 0 || !usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
		return TENON_OK;
	d->notify.interval_ns = strtoull(usec, NULL, 10) * NS_PER_US / 2;
	if (d->notify.interval_ns)
		(void)timer_set(&d->loop.timers, &d->notify.watchdog, d->loop.now_ns + d->notify.interval_ns);
	return TENON_OK;
}

void notify_close(struct daemon *d)
{
	timer_clear(&d->loop.timers, &d->notify.watchdog);
	if (d->notify.fd > 0)
		(void)close(d->notify.fd);
	d->notify.fd = -1;
}
