/* SPDX-License-Identifier: Apache-2.0
 * ipc - frames through shared memory: segments, rings, doorbells, attach, liveness. Used by libtenon, tenond and
 * workers alike; links libzmq and libc. Rules V1..V11 of docs/ipc.md hold for every consumer: own indices are
 * private, the peer's are loaded once and checked, a frame is copied once, only the copy is validated and used.
 * All access to a peer-written page goes through ipc/shared.h (atomics); a checker forbids anything else.
 * A segment, and the link around it, stays where it was made (the ring ends point into it). Thread class: one
 * producer, one consumer; whatever else touches a link is its owner's to order.
 */
#ifndef IPC_IPC_H
#define IPC_IPC_H
#include "base/base.h"
#include <stdbool.h>
#include <tenon/wire.h>

/* ---- segment: a sealed memfd, header page + ring mapped twice ------------------------------------------- */
struct segment {
	int fd;
	bool writable;
	uint32_t asleep; /* private copy of the flag this side publishes */
	uint64_t ring_bytes;
	struct wire_segment *head; /* mapped page */
	uint8_t *ring;             /* [2 * ring_bytes], the same memory twice */
};
/* Creates, sizes, populates (NOMEM instead of a late SIGBUS), maps, seals. peer_writes: our own map is read-only;
 * else F_SEAL_FUTURE_WRITE too, so that whoever receives the descriptor can only read. Maps are MADV_DONTFORK: a
 * forked child must not call segment_close (its addresses may hold something else), see link_abandon. */
int segment_create(struct segment *s, uint64_t ring_bytes, bool peer_writes, struct error *e);
/* Maps a received descriptor after checking seals, size, magic and version; takes `fd` over, also on failure. */
int segment_open(struct segment *s, int fd, uint64_t ring_bytes, bool writable, struct error *e);
void segment_close(struct segment *s); /* zeroed or half-built is fine */

/* ---- ring ends ------------------------------------------------------------------------------------------ */
/* Producer: one thread. Frames are put privately and become visible together at publish. */
struct ring_out {
	struct segment *own;        /* carries the ring and our tail       */
	const struct segment *peer; /* carries the head we may trust as far as checked */
	uint64_t tail, published, head_seen, capacity;
};
/* Consumer: one thread. */
struct ring_in {
	const struct segment *peer; /* carries the ring and the peer's tail */
	struct segment *own;        /* carries our head                     */
	uint64_t head, tail_seen, capacity;
};
void ring_out_init(struct ring_out *r, struct segment *own, const struct segment *peer);
void ring_in_init(struct ring_in *r, const struct segment *peer, struct segment *own);
uint32_t ring_max_frame(uint64_t ring_bytes); /* a quarter of it */

/* Room for a frame with `body_bytes`: pointer to write all of the body to (8-byte aligned), NULL when the ring is
 * too full or the frame over ring_max_frame (*bad: the peer broke V2, end the session). The frame is part of the
 * batch at once; nothing is visible before ring_publish. */
void *ring_put(struct ring_out *r, uint16_t type, uint16_t flags, uint64_t id, uint32_t body_bytes, bool *bad);
void ring_publish(struct ring_out *r);
uint64_t ring_room(struct ring_out *r, bool *bad); /* bytes free now */

/* Copies the next frame: head to *h, body to body[room] (and one zero behind it if that fits). OK; AGAIN: none;
 * TOO_LONG: body over `room` (V5: only the head was copied, the frame stays); PROTOCOL: indices or length are
 * impossible (V2, V3), the same answer for ever. */
int ring_take(struct ring_in *r, struct wire_head *h, void *body, uint32_t room);
bool ring_ready(struct ring_in *r);     /* something to take (or a broken peer) */
void ring_consumed(struct ring_in *r);  /* publishes our head: call once a batch */

/* ---- doorbells and parking ------------------------------------------------------------------------------ */
struct bell; /* one end: rings the peer, and has a descriptor that becomes readable when rung */
int  bell_ring(struct bell *b);  /* never waits; a lost bell costs <= IPC_PARK_MAX_MS */
int  bell_fd(struct bell *b);
void bell_drain(struct bell *b); /* makes bell_fd unreadable again */
/* After a drain: was there something to take? A bell that rang 64 times in a row for nothing is not heard for
 * BELL_MUTE_MS: a flood of bells costs the one who rings, hardly the one who listens. */
void bell_found(struct bell *b, bool found);
#define BELL_MUTE_MS 20
void bell_close(struct bell *b);

int bell_eventfd_create(int ring_fd, int wait_fd, struct bell **out, struct error *e); /* takes both descriptors */
/* ZeroMQ, client side: DEALER with the nonce as routing id. */
int bell_zmq_connect(const char *endpoint, const uint8_t nonce[16], struct bell **out, struct error *e);

/* ZeroMQ, daemon side: one ROUTER for all sessions. bell_hub_drain calls `rung` with each nonce that rang, which says
 * whether there was something to take (see bell_found; here all sessions' bells are muted together); unknown nonces are
 * counted and dropped. */
struct bell_hub;
int  bell_hub_open(const char *dir, struct bell_hub **out, struct error *e); /* binds DIR/bell */
const char *bell_hub_endpoint(const struct bell_hub *h);
int  bell_hub_fd(const struct bell_hub *h);
void bell_hub_drain(struct bell_hub *h, bool (*rung)(void *ctx, const uint8_t nonce[16]), void *ctx);
int  bell_hub_bell(struct bell_hub *h, const uint8_t nonce[16], struct bell **out); /* rings that session */
uint64_t bell_hub_n_unknown(const struct bell_hub *h); /* bells of nobody's nonce: a forger */
void bell_hub_close(struct bell_hub *h); /* after all of its bells */

#define IPC_PARK_MAX_MS 50

/* After publishing: rings when, and only when, the peer has flagged itself asleep, once for each time it did (the
 * flag counts; odd is asleep). True if it rang. */
bool peer_wake(const struct segment *peer_asleep_in, struct bell *b);
/* After a wait for an answer that nothing ended: a peer that sleeps on what was published has lost its bell, and gets
 * another. True if it rang. */
bool peer_remind(const struct ring_out *out, struct bell *b);
/* Before parking: set own flag, fence, look again. True: nothing came, park on the descriptors (at most
 * IPC_PARK_MAX_MS), then call park_end. False: do not park (flag already cleared). */
bool park_begin(struct segment *own, struct ring_in *r);
void park_end(struct segment *own);

/* Adaptive spin: all or nothing (a spin shorter than a park would make both sides park over and over). Polls the
 * ring for cap_us while that pays: three misses in a row switch it off, a wait that ended within about a park's
 * cost switches it on again, unless more threads want to run than there are cores. */
struct spin {
	uint32_t cap_us, now_us, misses, n_cpus;
	bool machine_idle;
	uint64_t began_ns; /* of the wait that the last miss began */
	uint64_t asked_ns; /* when the machine's load was looked at last */
};
void spin_init(struct spin *s, uint32_t cap_us); /* cap 0: never spins; a machine of one core: neither */
bool spin_ready(struct spin *s, struct ring_in *r); /* true: something came while spinning */
uint32_t spin_runnable(void); /* threads of the whole machine that want to run now; 0 unknown; reads a file */
static inline void spin_pause(void) /* between two looks */
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}
void spin_woken(struct spin *s, bool found);        /* after the park that followed a miss; found: by a frame */

/* ---- link: the two rings, segments and bell of one session, as both sides hold it ------------------------ */
struct link {
	struct segment tx, rx; /* tx is written by us */
	struct ring_out out;
	struct ring_in in;
	struct bell *bell;
	int sock;   /* attach socket, lifetime of the session; -1 inside a process */
	int pidfd;  /* of the peer, -1 unknown */
	uint64_t session;
	uint8_t nonce[16]; /* daemon's side of a session with a ZeroMQ bell: which one rang; else zero */
};
void link_close(struct link *l); /* zeroed or half-built is fine */
/* For a forked child: closes descriptors, touches neither maps nor ZeroMQ (their few pages stay until exit). */
void link_abandon(struct link *l);
/* Publishes and wakes the peer if it sleeps. No system call unless it does. */
void link_flush(struct link *l);

/* A pair of connected links without a socket: tenond and its worker (descriptors inherited or same process). Bells
 * are eventfds. link_export lists the descriptors a child process needs (close-on-exec; they stay the link's),
 * link_import rebuilds the link from copies of them. */
int link_pair(uint64_t ring_bytes, struct link *a, struct link *b, struct error *e);
struct link_fds { int tx, rx, ring, wait; uint64_t ring_bytes; };
struct link_fds link_export(const struct link *l);
int link_import(const struct link_fds *f, struct link *l, struct error *e); /* takes the descriptors */

/* ---- attach ---------------------------------------------------------------------------------------------- */
struct peer_id { uint32_t uid, gid; int32_t pid; int pidfd; };
struct attach_limits {
	uint64_t ring_default, ring_max, max_payload_bytes;
	uint32_t max_in_flight;
};
/* Listener at `path` (its directory is made 0750 if missing, socket 0660); an exclusive lock file PATH.lock is taken
 * first: BUSY when another daemon has it. Both descriptors are the caller's. */
int  attach_listen(const char *path, int *fd, int *lock_fd, struct error *e);
/* One connection, non-blocking: who is it (SO_PEERCRED, pidfd; pidfd -1 and pid 0 for a peer of a foreign pid
 * namespace). AGAIN: none; NOMEM: out of descriptors. */
int  attach_accept(int listen_fd, int *fd, struct peer_id *who, struct error *e);
/* Reads HELLO if it is there: AGAIN, GONE, PROTOCOL (wrong size, extra descriptors, reserved bits), INVALID (ring
 * sizes, bell), VERSION, else OK. */
int  attach_read_hello(int fd, struct wire_hello *hello, struct error *e);
/* Accepts: makes segments and bell, sends WELCOME. hub may be NULL (eventfd only, whatever HELLO says). `fd` becomes
 * out->sock, also `who.pidfd` may be put into out->pidfd; on failure both stay the caller's. */
int  attach_welcome(int fd, const struct wire_hello *hello, const struct attach_limits *lim, struct bell_hub *hub,
	uint64_t session, struct link *out, struct error *e);
void attach_refuse(int fd, int code, const char *text); /* sends WELCOME with rc, does not close */
/* Client side. */
int  attach_connect(const char *path, uint64_t c2d_bytes, uint64_t d2c_bytes, uint32_t bell, int timeout_ms,
	struct link *out, struct wire_welcome *w, struct error *e);

/* ---- frames: the one place where bodies are built and checked (V6) ----------------------------------------- */
/* A request as checked; pointers go into the copied body. */
struct frame_request {
	struct wire_request r; /* tail filled with zero */
	const char *model;     /* [r.model_bytes], not terminated */
	struct { const char *s; uint32_t len; } stop[WIRE_MAX_STOP];
	const struct wire_bias *bias;
	const int32_t *history;
	const char *tenant;     /* [r.tenant_bytes], not terminated */
	const char *job;        /* [r.job_bytes], not terminated */
	const uint8_t *payload; /* first part (all of it with WIRE_LAST) */
	uint32_t payload_here;
};
/* Checks the body of BEGIN: sizes, ranges, enums, flags, finite floats, cross-field rules. from_client: history
 * must be empty. INVALID/PROTOCOL/TOO_LONG with the field's name. */
int frame_request_parse(const void *body, uint32_t bytes, uint16_t flags, bool from_client, uint64_t max_payload,
	struct frame_request *out, struct error *e);
/* The same rules for one that is about to be written. */
int frame_request_check(const struct frame_request *f, bool from_client, uint64_t max_payload, struct error *e);
/* Bytes that BEGIN needs apart from payload; writes it to out[room]. */
uint32_t frame_request_bytes(const struct frame_request *f); /* counts as in f->r; f->r.size is set by write */
uint32_t frame_request_write(const struct frame_request *f, void *out, uint32_t room);
/* Checks a body coming from daemon or worker (TOKENS, LOGPROBS, DONE, ERROR, STATE, EMBEDDING, HEALTH): lengths
 * and counts agree. */
int frame_event_check(const struct wire_head *h, const void *body, struct error *e);
#endif
