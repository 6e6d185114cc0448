/* SPDX-License-Identifier: Apache-2.0
 * client.h - the client library of Tenon: submit requests to tenond through shared memory, read tokens back.
 *
 *   struct tenon *t;
 *   struct tenon_request r = TENON_REQUEST_INIT;
 *   struct tenon_event ev;
 *   r.model = "smollm2-135m";  r.messages = "[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]";
 *   if (tenon_connect(NULL, &t, NULL) || tenon_submit(t, &r, NULL, NULL)) ...
 *   while (!tenon_next(t, &ev, -1) && !ev.last)
 *           fwrite(ev.text, 1, ev.text_len, stdout);
 *   tenon_close(t);
 *
 * Links libzmq and libc only. Thread class: every function may be called from any thread; calls on one handle
 * exclude each other, except that tenon_submit and tenon_cancel go on while another thread waits in tenon_next.
 * After fork() the child gets TENON_E_FORKED from every call but tenon_close. No function aborts, exits,
 * changes signal dispositions or prints. Functions return 0 or a negative code of tenon/error.h.
 */
#ifndef TENON_CLIENT_H
#define TENON_CLIENT_H
#include <stddef.h>
#include <stdint.h>
#include <tenon/error.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API __attribute__((visibility("default")))

struct tenon; /* one session with the daemon */

struct tenon_error {
	int code;
	char text[256]; /* always terminated */
};

struct tenon_options { /* zero-initialise; a zero member means its default */
	size_t size;             /* sizeof(struct tenon_options)                                       */
	const char *socket;      /* NULL: $TENON_SOCKET, else $XDG_RUNTIME_DIR/tenon/attach, else /run/tenon/attach */
	uint64_t submit_bytes;   /* ring sizes: powers of two; 1 MiB each                              */
	uint64_t events_bytes;
	int timeout_ms;          /* for connecting; 2000                                               */
	int eventfd_bell;        /* 1: eventfd instead of ZeroMQ doorbells (half the wake-up time)     */
	uint32_t spin_us;        /* longest spin before parking; 0: adaptive                           */
};

enum tenon_class { TENON_ONLINE = 0, TENON_OFFLINE = 1 };

struct tenon_bias { int32_t token; float bias; };

/* A request. Give exactly one of prompt (text; what the model asks for, such as BOS, is added), messages (JSON:
 * an array, or an object as for `tenon template`) and ids (nothing is added). Everything is copied by submit. */
struct tenon_request {
	size_t size; /* sizeof(struct tenon_request) */
	const char *model; /* name or path as the daemon knows it; NULL: its default model */
	const char *prompt;
	size_t prompt_len; /* 0: strlen */
	const char *messages;
	size_t messages_len; /* 0: strlen */
	const int32_t *ids;
	size_t n_ids;
	uint32_t max_tokens; /* 0: until the model stops or its context is full */
	float temperature;   /* 0: greedy */
	float top_p, min_p;
	uint32_t top_k;
	float repeat_penalty, presence_penalty, frequency_penalty;
	uint32_t penalty_window;
	uint64_t seed;       /* equal seeds give equal answers */
	const char *const *stop; /* [n_stop] */
	size_t n_stop;
	const struct tenon_bias *bias; /* [n_bias] */
	size_t n_bias;
	uint32_t n_logprobs;
	int traffic_class; /* enum tenon_class */
	int priority;      /* -100..100 */
	uint64_t deadline_ns;
	int ignore_eos, show_special;
	int embed;          /* 1: an encoder's EMBEDDING in place of text; sampling, stops and max_tokens mean nothing */
	const char *tenant; /* for whom; NULL: this user's own. Others only as the daemon's `tenants` allow */
	uint32_t ttft_ms, tpot_ms; /* wanted times to first token and per token; 0: what the class is set to */
	int no_reuse;       /* 1: computes the whole prompt, though its prefix may be cached */
	int pin;            /* 1: keeps the prompt's pages for later requests (templates, long documents) */
	int durable;        /* 1, offline only: goes on when this session ends; `job` names its answer */
	const char *job;    /* of one tenant, one at a time has a name; at most 63 bytes */
	int collect;        /* 1: no input; the answer of the durable request `job`, from its beginning, also while it runs.
			       NOT_FOUND: there is none, or it was kept long enough */
};
#define TENON_REQUEST_INIT { .size = sizeof(struct tenon_request), .top_p = 1.0f, .repeat_penalty = 1.0f }

enum tenon_event_kind {
	TENON_EVENT_STATE = 1,  /* queued, loading, prefill: see phase, permille                   */
	TENON_EVENT_TOKENS,     /* ids and text; text may be empty, never ends inside a character  */
	TENON_EVENT_DONE,       /* finish, usage, timeline; last                                   */
	TENON_EVENT_ERROR,      /* code and text; last                                             */
	TENON_EVENT_EMBEDDING,  /* embedding; DONE follows                                         */
	TENON_EVENT_PONG
};
enum tenon_finish { TENON_FINISH_STOP = 1, TENON_FINISH_STOP_STRING, TENON_FINISH_LENGTH, TENON_FINISH_CONTEXT };

struct tenon_logprob { int32_t token; float logprob; };
struct tenon_timeline { /* ns; see tenon/wire.h */
	uint64_t arrived_ns, preprocess_ns, queue_ns, prefill_ns, decode_ns, postprocess_ns, transport_ns, load_ns,
		first_token_ns, total_ns;
};

/* Pointers stay valid until the next tenon_next on the handle. */
struct tenon_event {
	int kind;
	int last; /* 1: the request has ended with this event */
	uint64_t request;
	const char *text; /* TOKENS: new text; ERROR: message; PONG: echo. Terminated behind text_len. */
	size_t text_len;
	const int32_t *ids; /* [n_ids] */
	size_t n_ids;
	const struct tenon_logprob *logprobs; /* [n_logprobs]: chosen token first */
	size_t n_logprobs;
	const float *embedding; /* [n_embedding] */
	size_t n_embedding;
	int phase, permille; /* STATE: enum wire_phase */
	int code;            /* ERROR */
	int finish;
	uint32_t n_prompt, n_generated, n_cached, n_preempted, n_replayed;
	struct tenon_timeline time;
};

/* Attaches. GONE: nobody listens there; DENIED, VERSION, NOMEM (quota), TIMEOUT. `o` and `err` may be NULL. */
TENON_API int tenon_connect(const struct tenon_options *o, struct tenon **out, struct tenon_error *err);

/* Submits without waiting for the answer. *id (may be NULL) names the request in events. FULL: the ring has no
 * room now, or too many requests are open; nothing was sent (<= 1 us for a request that fits the ring at all);
 * INVALID, TOO_LONG, GONE. A payload over a quarter of the ring is sent in several frames and may wait for room up to
 * the connect timeout; TIMEOUT: it did so in vain and was given up. */
TENON_API int tenon_submit(struct tenon *t, const struct tenon_request *r, uint64_t *id, struct tenon_error *err);
/* The same, waiting up to timeout_ms (-1: for ever) while the ring is full or as many requests are open as the daemon
 * allows (somebody must read their events meanwhile). */
TENON_API int tenon_submit_wait(struct tenon *t, const struct tenon_request *r, int timeout_ms, uint64_t *id,
	struct tenon_error *err);

/* Next event of any request. timeout_ms 0: AGAIN if there is none; -1: waits for ever; else TIMEOUT. GONE: the
 * daemon has ended (noticed within 100 ms); every open request is lost and the handle only closes. */
TENON_API int tenon_next(struct tenon *t, struct tenon_event *ev, int timeout_ms);

/* For poll/epoll loops: readable when events may be waiting. Call tenon_next(..., 0) until AGAIN, then
 * tenon_poll_arm, which returns 0 when it is right to sleep and AGAIN when events came meanwhile. */
TENON_API int tenon_fd(struct tenon *t);
TENON_API int tenon_poll_arm(struct tenon *t);

/* Asks to end a request; its last event says CANCELLED (or DONE, if that was earlier). NOT_FOUND: not open; FULL: no
 * room for it in the ring within the connect timeout. */
TENON_API int tenon_cancel(struct tenon *t, uint64_t id);

/* Sends a ping answered by the daemon's loop with a PONG event; len <= 64. */
TENON_API int tenon_ping(struct tenon *t, const void *data, size_t len);

/* Ends the session: open online requests are cancelled. NULL is fine. */
TENON_API void tenon_close(struct tenon *t);

TENON_API const char *tenon_error_name(int code);
TENON_API const char *tenon_version(void);

#ifdef __cplusplus
}
#endif
#endif
