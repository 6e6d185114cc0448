/* SPDX-License-Identifier: Apache-2.0
 * A worker by hand, for tests of the daemon: the test takes its frames and puts its events, in the daemon's own thread,
 * so that every order of things can be tried and every call counted.
 */
#ifndef TESTS_FAKE_WORKER_H
#define TESTS_FAKE_WORKER_H
#include "daemon/daemon.h"

enum { FAKE_REQUESTS = 64 };

struct fake_request {
	uint64_t id;
	uint32_t n_history, history_text;
	int32_t history[64];
	char payload[64], tenant[64];
	uint32_t tenant_weight, flags, job_bytes;
	uint32_t payload_bytes;
	bool whole, cancelled, paused;
};

struct fake_worker {
	struct worker_ends *ends; /* NULL: none is running */
	int end_fd;
	uint32_t n_starts, n_loads, n_unloads, n_pauses, n_resumes;
	struct fake_request request[FAKE_REQUESTS];
	uint32_t n_requests;
	bool refuse_setup, refuse_load, mute, answer_cancel;
	bool asked_to_stop;
};

/* The one that worker_start_fake starts. */
extern struct fake_worker fake;
worker_start_fn worker_start_fake;
/* Takes what the daemon sent: answers commands, notes requests. */
void fake_take(void);
void fake_tokens(uint64_t id, int32_t first, uint32_t n, const char *text);
void fake_put(uint16_t type, uint64_t id, const void *body, uint32_t bytes);
void fake_done(uint64_t id);
void fake_error(uint64_t id, int code, const char *text);
void fake_flush(void);
/* Its process has ended, as far as the daemon can tell. */
void fake_die(void);
struct fake_request *fake_find(const char *payload); /* the latest with that payload */
#endif
