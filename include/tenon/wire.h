/* SPDX-License-Identifier: Apache-2.0
 * wire.h - what lies in shared memory between a client and tenond, and between tenond and its workers. Enough to
 * write another client; docs/ipc.md says how a session begins and ends. Fixed-width little-endian integers,
 * explicit padding, no pointers, names, locks or counts of references. Version 1.
 *
 * Two sealed memfds a session, one a direction, each written by one side only:
 *
 *   offset 0      struct wire_segment (one page): the writer's indices and its asleep flag
 *   offset 4096   ring of ring_bytes (a power of two), mapped twice in a row so that no frame wraps
 *
 * A segment holds the tail of the ring it carries and the head of the opposite ring. Counters are free-running
 * 64-bit byte counts. A frame is a 16-byte head and its body, padded to 8 bytes; none is larger than a quarter of
 * the ring. A longer prompt travels as BEGIN, DATA ..., END.
 */
#ifndef TENON_WIRE_H
#define TENON_WIRE_H
#include <stdint.h>

#define WIRE_MAGIC       0x4e4e4554u /* "TENN" */
#define WIRE_VERSION     1u
#define WIRE_RING_OFFSET 4096u
#define WIRE_RING_MIN    (64u << 10)
#define WIRE_RING_MAX    (64u << 20)
#define WIRE_ALIGN       8u

struct wire_segment {
	uint32_t magic, version;
	uint64_t ring_bytes;
	uint8_t pad0[48];
	uint64_t tail; /* bytes this side has published in this segment's ring; release store        */
	uint8_t pad1[56];
	uint64_t head; /* bytes this side has consumed from the other segment's ring; release store  */
	uint8_t pad2[56];
	uint32_t asleep; /* odd: this side parks and wants its bell rung, once for each odd value    */
	uint8_t pad3[60];
};

struct wire_head {
	uint32_t bytes; /* whole frame: head + body, without the padding */
	uint16_t type;  /* enum wire_type  */
	uint16_t flags; /* WIRE_LAST, else 0 */
	uint64_t id;    /* request; BEGIN ids ascend within a session; 0 where no request is meant */
};
#define WIRE_LAST 1u /* BEGIN: the whole payload is in this frame */

enum wire_type {
	/* client -> daemon, daemon -> worker */
	WIRE_BEGIN = 1, /* struct wire_request, then its variable parts, then payload (all with WIRE_LAST) */
	WIRE_DATA = 2,  /* next payload bytes of an open BEGIN                                            */
	WIRE_END = 3,   /* payload complete                                                               */
	WIRE_CANCEL = 4,
	WIRE_PING = 5, /* 0..64 bytes, echoed                                                            */
	/* daemon -> client, worker -> daemon */
	WIRE_STATE = 16,    /* struct wire_state                                                          */
	WIRE_TOKENS = 17,   /* struct wire_tokens, int32 ids[n_tokens], text                              */
	WIRE_LOGPROBS = 18, /* struct wire_logprobs, struct wire_logprob[n]: belongs to the next TOKENS   */
	WIRE_DONE = 19,     /* struct wire_done: ends the request                                         */
	WIRE_ERROR = 20,    /* struct wire_error, text: ends the request (id 0: the session)              */
	WIRE_PONG = 21,
	WIRE_EMBEDDING = 22, /* struct wire_embedding, float[n]                                           */
	/* daemon <-> worker only */
	WIRE_PAUSE = 48,  /* stop decoding this request: its client does not read                         */
	WIRE_RESUME = 49,
	WIRE_ADMIN = 50,  /* JSON object; answered by WIRE_ADMIN_REPLY with the same id                   */
	WIRE_ADMIN_REPLY = 51,
	WIRE_HEALTH = 52  /* worker -> daemon, at least once a second: struct wire_health                 */
};

enum wire_input { WIRE_TEXT = 1, WIRE_MESSAGES = 2, WIRE_IDS = 3 };
enum wire_class { WIRE_ONLINE = 0, WIRE_OFFLINE = 1 };

/* Body of BEGIN. Variable parts follow in this order, each padded to 4 bytes: model name [model_bytes]; stop
 * strings [n_stop] as uint32 length + bytes padded to 4; bias [n_bias] as struct wire_bias; history ids
 * [n_history] (workers only); tenant name [tenant_bytes]; job name [job_bytes]; then payload. */
struct wire_request {
	uint32_t size;          /* of this struct as the sender knew it, 112 at least; a larger tail must be zero */
	uint32_t input;         /* enum wire_input: UTF-8 text; JSON of messages (engine/chat.h); int32 ids */
	uint64_t payload_bytes; /* all frames together */
	uint32_t model_bytes, n_stop, n_bias, traffic_class;
	int32_t priority;       /* -100..100, higher first                */
	uint32_t max_tokens;    /* 0: up to the context length            */
	uint64_t deadline_ns;   /* from arrival; 0: none                  */
	uint64_t seed;
	float temperature, top_p, min_p;  /* temperature 0: greedy; top_p 1 and min_p 0: off */
	uint32_t top_k;                   /* 0: off */
	float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
	uint32_t penalty_window;          /* tokens looked back; 0: 64 */
	uint32_t n_logprobs;              /* 0: none, else up to 20 alternatives a token */
	uint32_t flags;                   /* WIRE_R_* */
	uint32_t n_history;               /* workers only: tokens already produced, to go on from */
	uint32_t arrived_s;         /* workers only: wall clock of arrival, so that a replayed template tells the same date */
	uint64_t history_text_bytes;      /* workers only: text already sent for them */
	uint32_t tenant_bytes;      /* for whom; 0: the tenant of the session's user. Workers always get a name  */
	uint32_t tenant_weight;     /* workers only: share of this tenant in thousandths of one                   */
	uint32_t ttft_ms, tpot_ms;  /* wanted time to first token and per token; 0: what the class is set to     */
	uint32_t job_bytes;         /* DURABLE, COLLECT: under which name the tenant's answer is kept            */
	uint32_t reserved0;         /* must be 0                                                                 */
};
#define WIRE_R_IGNORE_EOS     1u
#define WIRE_R_ECHO_SPECIAL   2u /* special tokens appear in the text */
#define WIRE_R_EMBED          4u /* answer with EMBEDDING */
#define WIRE_R_NO_REUSE       8u  /* computes the whole prompt, though its prefix may be cached */
#define WIRE_R_PIN            16u /* keeps the prompt's pages until unpinned or the tenant's share of pins is used up */
#define WIRE_R_DURABLE        32u /* offline only: goes on when the client is gone, and its answer is kept for a while */
#define WIRE_R_COLLECT        64u /* no payload: the events of a durable request of this tenant, from its first token */
#define WIRE_R_AGAIN          128u /* workers only: a worker that died had taken it in */
#define WIRE_R_ALL            255u
#define WIRE_MAX_STOP         16u
#define WIRE_MAX_STOP_BYTES   256u
#define WIRE_MAX_BIAS         1024u
#define WIRE_MAX_MODEL_BYTES  255u
#define WIRE_MAX_TENANT_BYTES 63u
#define WIRE_MAX_JOB_BYTES    63u
#define WIRE_MAX_LOGPROBS     20u
#define WIRE_MAX_ERROR_BYTES  4096u

struct wire_bias { int32_t token; float bias; };

enum wire_phase { WIRE_QUEUED = 1, WIRE_LOADING, WIRE_PREFILL, WIRE_RESUMED };
struct wire_state { uint32_t phase, permille; }; /* progress of LOADING and PREFILL */
struct wire_tokens { uint32_t n_tokens, text_bytes; };
struct wire_logprob { int32_t token; float logprob; };
struct wire_logprobs { uint32_t n, reserved0; }; /* [0] the chosen token, then the best ones */
struct wire_embedding { uint32_t n, n_prompt; };

enum wire_finish { WIRE_FINISH_STOP = 1, WIRE_FINISH_STOP_STRING, WIRE_FINISH_LENGTH, WIRE_FINISH_CONTEXT };

/* Where the time went, in ns on the daemon's monotonic clock; a member that does not apply is 0. */
struct wire_timeline {
	uint64_t arrived_ns;       /* daemon read END                               */
	uint64_t preprocess_ns;    /* template and tokenizer, duration              */
	uint64_t queue_ns;         /* waited for its first step                     */
	uint64_t prefill_ns;       /* first step to first token                     */
	uint64_t decode_ns;        /* first token to last                           */
	uint64_t postprocess_ns;   /* sampling, stop rules, text: sum               */
	uint64_t transport_ns;     /* worker's publish to daemon's hand-over: sum   */
	uint64_t load_ns;          /* waited for its model to load                  */
	uint64_t first_token_ns;   /* arrival to first token handed over: TTFT      */
	uint64_t total_ns;         /* arrival to this frame                         */
};
struct wire_done {
	uint32_t finish, n_prompt, n_generated, n_cached; /* n_cached: prompt tokens not computed again */
	uint32_t n_preempted, n_replayed, flags, reserved0;
	struct wire_timeline time;
};
struct wire_error { int32_t code; uint32_t text_bytes; };
struct wire_health { uint64_t now_ns, steps; uint32_t running, waiting; };

/* ---- attach: one HELLO from the client, one WELCOME with descriptors, over SOCK_SEQPACKET ---- */
enum { WIRE_BELL_ZMQ = 1, WIRE_BELL_EVENTFD = 2 };
struct wire_hello {
	uint32_t magic, size; /* size = 128 */
	uint32_t version_min, version_max;
	uint64_t c2d_bytes, d2c_bytes; /* wanted; 0: default */
	uint32_t bell, features;       /* features: none defined, must be 0 */
	uint8_t reserved0[88];         /* must be 0 */
};
/* Descriptors: {C2D, D2C} and with BELL_EVENTFD {daemon's, client's}. On refusal rc is set and none is sent. An
 * eventfd's counter starts at 1 and is never read: it is rung by writing 0, which cannot block whatever the peer
 * does to the descriptor, and waited for with EPOLLET. `bell` may differ from the one asked for. */
struct wire_welcome {
	uint32_t magic, size;
	int32_t rc;
	uint32_t version;
	uint64_t session, c2d_bytes, d2c_bytes;
	uint64_t max_payload_bytes;
	uint32_t bell, max_in_flight;
	uint8_t nonce[16];     /* routing id of the client's DEALER */
	char bell_endpoint[128]; /* "ipc://..." for BELL_ZMQ        */
	char text[128];        /* why refused */
};
#endif
