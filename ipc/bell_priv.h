/* SPDX-License-Identifier: Apache-2.0
 * What a doorbell implementation fills in. A bell is a hint: any call may be lost, doubled or forged.
 */
#ifndef IPC_BELL_PRIV_H
#define IPC_BELL_PRIV_H
#include "ipc/ipc.h"

struct bell_ops {
	int (*ring)(struct bell *b);
	int (*fd)(struct bell *b);
	void (*drain)(struct bell *b);
	void (*close)(struct bell *b);
	void (*found)(struct bell *b, bool found); /* NULL: does not care */
};

#define BELL_FUTILE_MAX 64 /* rings in a row for nothing before it is muted */

struct bell {
	const struct bell_ops *ops;
	uint32_t
		rung; /* the peer's `asleep` that was answered last; even at first, so never equal to a sleeper's */
};

/* The two descriptors of an eventfd bell, which stay its own; false for another kind. */
bool bell_eventfd_fds(const struct bell *b, int *ring_fd, int *wait_fd);

/* Arms a one-shot timer of BELL_MUTE_MS, made at first use and watched by epoll descriptor `ep` with data 1. */
bool bell_mute_timer(int *timer_fd, int ep);

/* An epoll descriptor that watches `fd`; -1 with errno. Used where a plain level will not do. */
int bell_watch(int fd, uint32_t events);
#endif
