/* SPDX-License-Identifier: Apache-2.0
 * A daemon of a hundred lines for tests of the client: attaches, answers by what the prompt says, dies when told.
 *   "echo ..."   STATE, then the payload back in TOKENS of 7 bytes, then DONE
 *   "wait"       nothing until CANCEL, which is answered by ERROR cancelled
 *   "fail"       ERROR backend       "garbage"  a frame of an unknown type
 *   "logprobs"   LOGPROBS and TOKENS, then DONE
 *   "expel"      ERROR with id 0 (draining), then the socket is closed
 */
#ifndef TESTS_FAKE_DAEMON_H
#define TESTS_FAKE_DAEMON_H
#include "ipc/ipc.h"
#include <pthread.h>
#include <stdatomic.h>

enum { FAKE_SESSIONS = 8, FAKE_OPEN = 64, FAKE_DEAF_MS = 20000 };

struct fake_open {
	uint64_t id, wanted, got;
	char head[64]; /* beginning of the payload */
	struct buf text;
};

struct fake_session {
	struct link link;
	const _Atomic int *stop;
	uint64_t last_id;
	struct fake_open open[FAKE_OPEN];
};

struct fake_daemon {
	char dir[64], path[96];
	struct attach_limits limits;
	struct bell_hub *hub;
	int listen_fd, lock_fd, wake_fd;
	pthread_t thread;
	_Atomic int stop;   /* 1: end; sessions are closed */
	_Atomic int deaf;   /* 1: reads no ring */
	_Atomic int silent; /* 1: rings no bell: peers wake by their own timers */
	_Atomic int loses; /* so many bells of clients are lost: it sleeps on, for FAKE_DEAF_MS */
	_Atomic int n_sessions, n_frames, n_violations;
	struct fake_session *sessions[FAKE_SESSIONS];
};

void fake_daemon_start(struct fake_daemon *d);
void fake_daemon_stop(struct fake_daemon *d); /* ends abruptly, as a crash would look to clients */
void fake_daemon_clean(struct fake_daemon *d);
#endif
