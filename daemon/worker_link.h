/* SPDX-License-Identifier: Apache-2.0
 * The daemon's side of its worker: starting it, both links to it, watching over it, replacing it. Owner: the loop thread.
 *
 * A worker has two links. `io`: everything to the worker; from its IO thread replies, failed preparations, health.
 * `tok`: from its step thread states, tokens, ends. So each ring has one producer and one consumer and nobody takes
 * a lock on the way of a token.
 *
 *   DOWN (backing off) -> STARTING -> UP -> DOWN ...;  any -> ENDED
 */
#ifndef DAEMON_WORKER_LINK_H
#define DAEMON_WORKER_LINK_H
#include "daemon/box.h"
#include "daemon/loop.h"
#include "ipc/ipc.h"
#include <jansson.h>
#include <pthread.h>

struct daemon;
struct request;
struct worker_link;

enum worker_state { WORKER_DOWN, WORKER_STARTING, WORKER_UP, WORKER_ENDED };
enum { WORKER_CALLS_MAX = 64, WORKER_WORDS_BYTES = 1024 };

/* `reply` is NULL and `e` says why when none came. */
typedef void worker_reply_fn(struct daemon *d, void *ctx, const json_t *reply, const struct error *e);

struct worker_call {
	uint64_t id; /* 0: free */
	worker_reply_fn *fn;
	void *ctx;
	struct timer timeout;
	struct worker_link *w;
};

struct worker_ring { /* one of the two links, as a source of the loop */
	struct link link;
	struct source source;
	struct watch bell;
	struct worker_link *w;
};

struct worker_ends { /* the worker's half; stays where it is (rings point into it) */
	struct link io, tok;
	struct box box;
};

/* How a worker comes to life; takes `ends` over, also on failure (worker_ends_free). */
typedef int worker_start_fn(struct worker_link *w, struct worker_ends *ends, struct error *e);

struct worker_link {
	struct daemon *d;
	enum worker_state state;
	worker_start_fn *start;
	struct worker_ring io, tok;
	struct box box;
	struct task flush;
	/* the process, or the thread */
	int pid;
	pthread_t thread;
	bool threaded;
	struct watch end, words_fd; /* pidfd, or the thread's eventfd; the process's stderr */
	char why[160];		    /* why it was killed by us; "" */
	bool load_hung;		    /* ... a load beside the steps */
	/* to be told */
	struct list outgoing; /* requests, first come first served */
	struct list controls; /* requests with something to cancel, pause, resume */
	struct timer retry;   /* the ring was full */
	struct worker_call calls[WORKER_CALLS_MAX];
	uint64_t next_call;
	/* supervision */
	struct timer restart, watchdog;
	uint32_t backoff_ms;
	uint64_t started_ns, heard_ns, oom_kills, done_before;
	uint32_t n_starts, n_deaths, n_early; /* early: deaths in a row before it was up */
	char words[WORKER_WORDS_BYTES];	      /* the end of what it wrote to stderr */
	size_t words_len;
	struct error last_death;
	struct wire_health health;
	json_t *about;	       /* its answer to `setup` */
	uint64_t transport_ns; /* of the batch being handled: publish to hand-over */
};

int worker_link_init(struct daemon *d, struct error *e);
void worker_link_start(struct worker_link *w); /* now, or after the back-off */
/* Ends it: asks, waits up to `wait_ms`, kills. */
void worker_link_stop(struct worker_link *w, int wait_ms);
void worker_link_finish(struct worker_link *w);
/* It broke the rules, hung or failed: kill and replace. */
void worker_link_kill(struct worker_link *w, const char *why);

void worker_link_submit(struct worker_link *w, struct request *r);  /* append to outgoing */
void worker_link_control(struct worker_link *w, struct request *r); /* cancel_wanted, pause_wanted changed */
/* Sends a JSON command; takes `cmd`. The reply comes later, NULL at once when no worker is up. */
void worker_link_call(
	struct worker_link *w, json_t *cmd, uint64_t timeout_ms, worker_reply_fn *fn, void *ctx);

worker_reply_fn worker_no_reply; /* for commands whose outcome does not matter */

json_t *worker_link_json(struct worker_link *w);
const char *worker_state_name(enum worker_state s);

/* No worker could be started lately: requests fail at once instead of waiting. */
bool worker_link_hopeless(const struct worker_link *w);

/* The two real ways to start one; tests bring their own. */
worker_start_fn worker_start_process, worker_start_thread;
void worker_ends_free(struct worker_ends *ends);
/* worker_start.c: how it ended, in words; false: not yet. `outsider`: killed by somebody else. */
bool worker_wait(struct worker_link *w, char *text, size_t room, bool *outsider);
void worker_terminate(struct worker_link *w);
uint64_t worker_count_oom_kills(void);
#endif
