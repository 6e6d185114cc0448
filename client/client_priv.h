/* SPDX-License-Identifier: Apache-2.0
 * Inside of a session handle. Two locks, so that submitting goes on while another thread waits for events: `out_lock`
 * orders what writes the submission ring, `in_lock` what reads the event ring, parks and owns the event's memory.
 * The table of open requests has a lock of its own, held for a few instructions. No lock is held twice or nested
 * other than out/in before ids; who holds in_lock only tries out_lock.
 */
#ifndef CLIENT_CLIENT_PRIV_H
#define CLIENT_CLIENT_PRIV_H
#include "ipc/ipc.h"
#include <pthread.h>
#include <stdatomic.h>
#include <tenon/client.h>

#define CLIENT_ALIVE_MAGIC 0x54454e4eu
#define CLIENT_CHECK_NS                                                                                      \
	(50 * NS_PER_MS) /* how often a caller that never parks looks whether the daemon lives */

/* Ids of open requests: places[id & mask] and on, 0 is free. */
struct open_ids {
	pthread_mutex_t lock;
	uint64_t *places;
	uint32_t mask, n, limit;
};

struct tenon {
	volatile uint32_t *alive; /* a page that a forked child finds empty */
	struct link link;
	uint64_t max_payload;
	int timeout_ms;
	int watch_fd, timer_fd; /* epoll over bell, socket and timer; see next.c */
	_Atomic int dead;	/* code once the session has ended */
	_Atomic uint64_t checked_ns;
	struct open_ids ids;

	pthread_mutex_t out_lock;
	uint64_t next_id;

	pthread_mutex_t in_lock;
	struct spin spin;
	bool armed;    /* the asleep flag stands since tenon_poll_arm */
	uint8_t *body; /* [room]: the frame that the last event points into */
	uint32_t room;
	uint64_t logprobs_id; /* of the LOGPROBS that wait for their TOKENS; 0: none */
	uint32_t n_logprobs;
	struct tenon_logprob logprobs[WIRE_MAX_LOGPROBS + 1];
};

bool open_ids_init(struct open_ids *o, uint32_t limit);
void open_ids_finish(struct open_ids *o);
bool open_ids_add(struct open_ids *o, uint64_t id);    /* false: as many open as allowed */
bool open_ids_remove(struct open_ids *o, uint64_t id); /* false: was not open */
bool open_ids_has(struct open_ids *o, uint64_t id);
uint32_t open_ids_count(struct open_ids *o);

static inline bool client_forked(const struct tenon *t) { return *t->alive != CLIENT_ALIVE_MAGIC; }

/* Code of the ended session, else 0. Asks the kernel at most every CLIENT_CHECK_NS, or at once with `now`. */
int client_dead(struct tenon *t, bool now);
void client_set_dead(struct tenon *t, int code); /* the first code stays */
int client_watch_open(struct tenon *t, struct error *e);

/* Fills the caller's record (may be NULL) from ours; returns `rc`. */
int client_error(struct tenon_error *out, int rc, const struct error *e);
/* A code without a text of its own. */
int client_fail(struct tenon_error *out, int rc);
#endif
