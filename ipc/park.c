/* SPDX-License-Identifier: Apache-2.0
 * Sleeping and waking: the calls every bell has, the asleep flag, and how long to look before sleeping.
 * Rule: a bell is a hint, the ring is the truth, every park ends by itself after IPC_PARK_MAX_MS.
 * Thread: park_* and spin_* the consumer, peer_* the producer.
 */
#include "ipc/bell_priv.h"
#include "ipc/shared.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SPIN_LOAD_NS (20 * NS_PER_MS) /* how long a look at the machine's load is believed */

int bell_ring(struct bell *b) { return b->ops->ring(b); }
int bell_fd(struct bell *b) { return b->ops->fd(b); }
void bell_drain(struct bell *b) { b->ops->drain(b); }

void bell_close(struct bell *b)
{
	if (b)
		b->ops->close(b);
}

void bell_found(struct bell *b, bool found)
{
	if (b->ops->found)
		b->ops->found(b, found);
}

bool bell_mute_timer(int *timer_fd, int ep)
{
	struct itimerspec once = { .it_value.tv_nsec = BELL_MUTE_MS * (long)NS_PER_MS };
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = 1 };

	if (*timer_fd < 0) {
		*timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (*timer_fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, *timer_fd, &ev)) {
			(void)close(*timer_fd);
			*timer_fd = -1;
		}
	}
	return *timer_fd >= 0 && !timerfd_settime(*timer_fd, 0, &once, NULL);
}

int bell_watch(int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	if (ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev)) {
		(void)close(ep);
		return -1;
	}
	return ep;
}

bool peer_wake(const struct segment *peer_asleep_in, struct bell *b)
{
	uint32_t asleep = shared_asleep(peer_asleep_in);

	if (!(asleep & 1) || asleep == b->rung || bell_ring(b))
		return false;
	b->rung = asleep;
	return true;
}

bool peer_remind(const struct ring_out *out, struct bell *b)
{
	uint32_t asleep = shared_asleep(out->peer);

	if (!(asleep & 1) || shared_head(out->peer) == out->published)
		return false;
	b->rung = asleep;
	return !bell_ring(b);
}

bool park_begin(struct segment *own, struct ring_in *r)
{
	own->asleep = (own->asleep + 1) | 1;
	shared_asleep_set(own, own->asleep);
	if (!ring_ready(r))
		return true;
	park_end(own);
	return false;
}

void park_end(struct segment *own)
{
	own->asleep = (own->asleep + 1) & ~1u;
	shared_asleep_set(own, own->asleep);
}

void spin_init(struct spin *s, uint32_t cap_us)
{
	cpu_set_t set;

	*s = (struct spin){ .n_cpus = 1 };
	if (!sched_getaffinity(0, sizeof set, &set))
		s->n_cpus = (uint32_t)CPU_COUNT(&set);
	s->cap_us = s->now_us = s->n_cpus > 1 ? cap_us : 0;
}

bool spin_ready(struct spin *s, struct ring_in *r)
{
	uint64_t until;

	if (ring_ready(r))
		return true;
	s->began_ns = clock_now_ns();
	if (!s->now_us)
		return false;
	until = s->began_ns + s->now_us * NS_PER_US;
	do {
		for (int i = 0; i < 8; i++) {
			if (ring_ready(r)) {
				s->misses = 0;
				return true;
			}
			spin_pause();
		}
	} while (clock_now_ns() < until);
	if (++s->misses >= 3)
		s->now_us = 0;
	return false;
}

/* The fourth field of /proc/loadavg begins with it. */
uint32_t spin_runnable(void)
{
	char text[128], *field = text;
	int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		(void)close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	for (int i = 0; i < 3 && field; i++)
		field = strchr(field, ' ') ? strchr(field, ' ') + 1 : NULL;
	return field ? (uint32_t)strtoul(field, NULL, 10) : 0;
}

static bool spin_machine_idle(struct spin *s)
{
	uint64_t now = clock_now_ns();

	if (now - s->asked_ns >= SPIN_LOAD_NS) {
		s->asked_ns = now;
		s->machine_idle = spin_runnable() <= s->n_cpus;
	}
	return s->machine_idle;
}

void spin_woken(struct spin *s, bool found)
{
	uint64_t waited = clock_now_ns() - s->began_ns;

	if (!found || s->now_us || waited > 2 * s->cap_us * NS_PER_US || !spin_machine_idle(s))
		return;
	s->now_us = s->cap_us;
	s->misses = 0;
}
