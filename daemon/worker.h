/* SPDX-License-Identifier: Apache-2.0
 * The worker: models, scheduler and backend, as a process of its own or a thread of the daemon. Two threads:
 *
 *   IO thread (whoever calls worker_run): frames from the daemon, prompts to tokens, replies, health
 *   step thread: opens the backend, loads models, runs steps, publishes tokens
 *   (loading thread: while a model is loaded beside others, on a device handle of its own)
 *
 * Orders go from IO to step through a ring without locks; what comes back over the step thread's own link needs none.
 */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H
#include "daemon/worker_link.h"

/* Runs until told to stop (0) or until only a fresh process helps (nonzero, the reason on stderr). Borrows `ends`. */
int worker_run(struct worker_ends *ends, struct log *log, bool own_process);
/* `tenond --worker LIST`: descriptors as worker_start.c wrote them down. Returns the exit status. */
int worker_main(const char *list);
#endif
