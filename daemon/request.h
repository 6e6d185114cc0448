/* SPDX-License-Identifier: Apache-2.0
 * Requests: from BEGIN to their last event. Each keeps its checked parameters, its prompt, and the token ids that its
 * client already has, so that a new worker can go on from there. Owner: the loop thread.
 *
 *   FILLING (payload comes in) -> WAITING (for its model) -> SENDING -> RUNNING -> ended
 *                                    ^-------- worker died ----'----------'
 *
 * A request whose client no longer waits (cancelled, gone) is an orphan: it stays, and counts against its user, until the
 * worker confirms. A durable one whose session has ended is detached: it goes on, and its answer is kept (jobs.h), until
 * it ends or another session adopts it. Towards a worker a request has an id of its own: a counter above 12 bits of slot number.
 */
#ifndef DAEMON_REQUEST_H
#define DAEMON_REQUEST_H
#include "daemon/loop.h"
#include "ipc/ipc.h"

struct account;
struct daemon;
struct model_entry;
struct session;

enum { REQUEST_SLOT_BITS = 12, REQUESTS_MAX = (1 << REQUEST_SLOT_BITS) - 1 };

enum request_state { REQUEST_FILLING, REQUEST_WAITING, REQUEST_SENDING, REQUEST_RUNNING };

struct request {
	struct node node;    /* in its model's `waiting`, the worker's `outgoing`, or none */
	struct node control; /* in the worker's `controls` while something is to be told */
	struct daemon *d;
	uint64_t id, wid; /* the client's, the worker's (0: not told a worker) */
	uint32_t slot;
	enum request_state state;
	struct session *session; /* NULL: an orphan, or detached */
	struct job *job; /* durable: where its answer is kept; NULL: it is not, or has ended for its tenant */
	bool detached;	 /* durable, and its session has ended: goes on without one */
	struct account *account;
	struct model_entry *model;
	struct frame_request f; /* points into body, ids and payload */
	uint8_t *body;		/* what BEGIN said */
	uint8_t *payload;	/* [payload_bytes] */
	uint64_t payload_bytes, payload_have, payload_sent;
	bool begun;   /* BEGIN is in the worker's ring */
	int32_t *ids; /* [n_ids]: tokens that the client has or will get from its ring or backlog */
	uint32_t n_ids, cap_ids;
	uint64_t text_bytes;			  /* text told with them */
	bool embedded;				  /* its EMBEDDING was passed on */
	bool cancel_wanted, pause_wanted, paused; /* paused: what the worker was told last */
	bool lost;				  /* an earlier worker had it: tell RESUMED */
	char tenant[WIRE_MAX_TENANT_BYTES + 1];	  /* for whom, decided at BEGIN */
	uint32_t tenant_weight;			  /* thousandths */
	uint32_t n_replayed;
	struct timer deadline;
	uint64_t waiting_ns; /* since when it waits for its model; 0: it does not */
	struct wire_timeline time;
};

struct requests {
	struct request *slot[REQUESTS_MAX + 1];
	uint16_t free[REQUESTS_MAX + 1];
	uint32_t n_free, n_open, n_orphans, n_at_worker;
	uint64_t counter; /* upper bits of wid */
	uint64_t n_begun, n_done, n_failed, n_cancelled, n_replays, n_tokens, n_stale, n_deadline;
	uint64_t ttft_ns_sum, n_ttft;
};

void requests_init(struct requests *t);
void requests_finish(struct daemon *d);

/* From a client's BEGIN, already parsed; `body` is copied. Answers errors to the client itself; false: PROTOCOL. */
bool request_begin(struct session *s, uint64_t id, const struct frame_request *f, const uint8_t *body,
	uint32_t bytes, bool last);
int request_data(struct request *r, const uint8_t *data, uint32_t bytes); /* PROTOCOL: more than announced */
int request_end(struct request *r);					  /* PROTOCOL: less than announced */
/* Ends it for the client with an error; what the worker has of it is cancelled. */
void request_fail(struct request *r, int code, const char *text);
/* Every request of a model, for its client with CANCELLED. */
void requests_cancel_of(struct daemon *d, const struct model_entry *m, const char *text);
/* The client is gone: nobody is told. */
void request_drop(struct request *r);
/* The session is gone: a durable request goes on without it, any other is dropped. */
void request_leave(struct request *r);
/* Another session takes a detached request over, under an id of its own. False: no memory. */
bool request_adopt(struct request *r, struct session *s, uint64_t id);
struct request *request_of_session(const struct session *s, uint64_t id);

/* Its model is loaded: off to the worker. */
void request_dispatch(struct request *r);
/* The worker is gone: what it had waits again, in the order of arrival; orphans end. */
void requests_requeue(struct daemon *d);
void request_set_paused(struct request *r, bool paused);

/* A frame of the worker about a request. PROTOCOL: the worker breaks the rules. Allocates nothing and makes no system
 * call while the client reads (TOKENS beyond the reserved history aside). */
int request_event(struct daemon *d, const struct wire_head *h, const uint8_t *body, struct error *e);
/* Frames for the worker; true: all of it is in the ring. */
bool request_put(struct request *r, struct ring_out *out, bool *bad);
#endif
