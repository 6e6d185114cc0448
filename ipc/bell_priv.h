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
};

struct bell {
	const struct bell_ops *ops;
	uint32_t
		rung; /* the peer's `asleep` that was answered last; even at first, so never equal to a sleeper's */
};

/* The two descriptors of an eventfd bell, which stay its own; false for another kind. */
bool bell_eventfd_fds(const struct bell *b, int *ring_fd, int *wait_fd);

/* An epoll descriptor that watches `fd`; -1 with errno. Used where a plain level will not do. */
int bell_watch(int fd, uint32_t events);
#endif
