/* SPDX-License-Identifier: Apache-2.0
 * Doorbell over a pair of eventfds. Both ends share the open file, so a hostile peer may fill the counter and switch
 * O_NONBLOCK off: a write of 1 would then wait for ever. Therefore a bell is rung by writing 0, which the kernel never
 * makes wait, to a counter that starts at 1 and is never read; the waiter sees it as an edge (EPOLLET). A peer that
 * empties the counter makes its own bell deaf and costs itself IPC_PARK_MAX_MS.
 * Thread: ring by the producer, the rest by the consumer.
 */
#include "ipc/bell_priv.h"
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

struct bell_eventfd {
	struct bell base;
	int ring_fd, wait_fd, watch_fd, timer_fd; /* timer_fd: -1 until the first mute */
	uint32_t futile;
};

static int eventfd_ring(struct bell *b)
{
	struct bell_eventfd *v = (void *)b;
	const uint64_t zero = 0;
	ssize_t n;

	do
		n = write(v->ring_fd, &zero, sizeof zero);
	while (n < 0 && errno == EINTR);
	return n < 0 ? TENON_E_IO : TENON_OK;
}

static int eventfd_fd(struct bell *b) { return ((struct bell_eventfd *)(void *)b)->watch_fd; }

static void eventfd_listen(struct bell_eventfd *v, uint32_t events)
{
	struct epoll_event ev = { .events = events };

	(void)epoll_ctl(v->watch_fd, EPOLL_CTL_MOD, v->wait_fd, &ev);
}

/* The end of a mute looks like a ring, so that one that came meanwhile is not missed. */
static void eventfd_drain(struct bell *b)
{
	struct bell_eventfd *v = (void *)b;
	struct epoll_event ev[2];
	uint64_t n_expired;
	int n = epoll_wait(v->watch_fd, ev, 2, 0);

	for (int i = 0; i < n; i++)
		if (ev[i].data.u32) {
			(void)!read(v->timer_fd, &n_expired, sizeof n_expired);
			eventfd_listen(v, EPOLLIN | EPOLLET);
		}
}

static void eventfd_found(struct bell *b, bool found)
{
	struct bell_eventfd *v = (void *)b;

	v->futile = found ? 0 : v->futile + 1;
	if (v->futile < BELL_FUTILE_MAX || !bell_mute_timer(&v->timer_fd, v->watch_fd))
		return;
	v->futile = 0;
	eventfd_listen(v, 0);
}

static void eventfd_close(struct bell *b)
{
	struct bell_eventfd *v = (void *)b;

	if (v->watch_fd >= 0)
		(void)close(v->watch_fd);
	if (v->timer_fd >= 0)
		(void)close(v->timer_fd);
	(void)close(v->wait_fd);
	(void)close(v->ring_fd);
	mem_free(v);
}

static const struct bell_ops eventfd_ops = { eventfd_ring, eventfd_fd, eventfd_drain, eventfd_close,
	eventfd_found };

int bell_eventfd_create(int ring_fd, int wait_fd, struct bell **out, struct error *e)
{
	struct bell_eventfd *v = mem_zalloc(MEM_IPC, 1, sizeof *v);

	if (!v) {
		(void)close(ring_fd);
		(void)close(wait_fd);
		return error_set(e, TENON_E_NOMEM, "eventfd bell: out of memory");
	}
	*v = (struct bell_eventfd){
		.base.ops = &eventfd_ops, .ring_fd = ring_fd, .wait_fd = wait_fd, .timer_fd = -1
	};
	v->watch_fd = bell_watch(wait_fd, EPOLLIN | EPOLLET);
	if (v->watch_fd < 0) {
		int err = errno;

		eventfd_close(&v->base);
		return error_errno(e, TENON_E_IO, err, "eventfd bell: cannot watch its descriptor");
	}
	eventfd_drain(&v->base);
	*out = &v->base;
	return TENON_OK;
}

bool bell_eventfd_fds(const struct bell *b, int *ring_fd, int *wait_fd)
{
	const struct bell_eventfd *v = (const void *)b;

	if (!b || b->ops != &eventfd_ops)
		return false;
	*ring_fd = v->ring_fd;
	*wait_fd = v->wait_fd;
	return true;
}
