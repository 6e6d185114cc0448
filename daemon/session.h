/* SPDX-License-Identifier: Apache-2.0
 * Sessions: attaching, quotas per user, frames from clients (V1..V11), events to clients, slow readers, liveness.
 * Owner: the loop thread.
 *
 * A session's events go straight into its ring. When that is full they wait in the session's backlog, in order; its
 * requests pause at the worker after slow_reader.pause_ms, go on when the backlog is empty again, and end with
 * SLOW_READER after slow_reader.cancel_s. While the backlog is long, nothing is read from the client.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H
#include "daemon/loop.h"
#include "ipc/ipc.h"

struct daemon;
struct request;

struct account {	  /* one user; lives while it has sessions or a recent past */
	struct node node; /* in sessions.accounts */
	uint32_t uid;
	uint32_t n_sessions, n_in_flight, n_violations; /* violations: within the last minute */
	uint64_t shared_bytes, blocked_until_ns, violation_ns;
	double attach_tokens; /* token bucket, attaches_per_s a second */
	uint64_t attach_ns;
};

struct session {
	struct node node; /* in sessions.open or sessions.dead */
	struct daemon *d;
	struct account *account;
	struct link link;
	struct source source;
	struct watch sock, pid, bell;
	struct task flush;
	struct timer blocked;
	uint64_t attached_ns, last_id; /* V7 */
	int32_t peer_pid;
	struct request **open; /* [n_open], ascending client ids */
	uint32_t n_open, cap_open, n_filling;
	struct buf backlog; /* whole frames: struct wire_head, body, padding to 8 */
	size_t backlog_at;
	uint64_t blocked_ns; /* since when the ring is full; 0: it is not */
	bool closed, violated, paused, overflowed;
	uint64_t n_requests, n_tokens;
};

struct sessions {
	struct list open, dead, accounts, hellos, dead_hellos;
	uint32_t n_open, n_hellos, n_accounts;
	uint64_t next_id, n_attached, n_refused, n_violations, n_frames, n_slow_cancelled;
	int listen_fd, lock_fd;
	struct watch listen, hub_watch;
	struct bell_hub *hub;
	struct task reap;
	struct timer resume_accept;		 /* after running out of descriptors */
	uint64_t shared_bytes, shared_max_bytes; /* of all sessions: at most a quarter of the memory */
};

/* Rules broken so often within a minute block the user for a while. */
enum { SESSION_VIOLATIONS_MAX = 3, SESSION_FILLING_MAX = 16 };

/* Binds the sockets in the runtime directory. BUSY: another daemon serves there. */
int sessions_open(struct daemon *d, struct error *e);
void sessions_close(struct daemon *d);

/* An event for the client: room for `bytes` of body, in the ring or the backlog; NULL: no memory (the session is
 * ended) or the frame can never fit its ring (*too_long). Visible at the end of the turn. */
void *session_put(struct session *s, uint16_t type, uint64_t id, uint32_t bytes, bool *too_long);
void session_send_error(struct session *s, uint64_t id, int code, const char *text);
void session_send_state(struct session *s, uint64_t id, uint32_t phase, uint32_t permille);
/* The peer broke the rules: it is told, the session ends with the turn, the user's account remembers. */
void session_violated(struct session *s, int code, const char *text);
/* Ends it; requests are cancelled, memory goes at the end of the turn. */
void session_close(struct session *s, const char *why);
/* Lists of open requests: adding cannot be done twice; forgetting is for requests that have ended for the client. */
int session_adopt(struct session *s, struct request *r);
void session_forget(struct session *s, struct request *r);

/* sessions.c: an attached peer becomes a session; its account. */
struct session *session_create(struct daemon *d, const struct peer_id *who, int fd,
	const struct wire_hello *hello, struct account *a, struct error *e);
void account_violation(struct daemon *d, struct account *a);
#endif
