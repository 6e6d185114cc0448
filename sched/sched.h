/* SPDX-License-Identifier: Apache-2.0
 * Scheduler of one model: requests become sequences, sequences share steps. First form: first come first served,
 * continuous batching, chunked prefill; every decoding sequence gets its token in each step and prompts fill what is
 * left of the step's tokens. Owner: the worker's step thread, which calls everything here. Answers do not depend on
 * who shares a step (model.h). Nothing is allocated between a request's first and last step but what its text needs.
 *
 *   submitted -> waiting -> prefill -> decode -> ended (done or error, told exactly once through the sink)
 *                   ^ no place or pages: stays        paused: keeps its pages, gives up its place in steps
 */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H
#include "cache/kv/pages.h"
#include "engine/emit.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include <tenon/wire.h>

struct sched_config {
	struct model *model;      /* borrowed */
	uint32_t max_running;     /* sequences with pages; 0: the model's step_seqs */
	uint32_t max_waiting;     /* 0: 1024 */
	uint32_t chunk_tokens;    /* most prompt tokens of one sequence in a step while others decode; 0: 128 */
};

/* What the scheduler tells; called from inside sched_step, sched_submit and sched_cancel. Pointers are valid during
 * the call. A sink must not call back into the scheduler. */
struct sched_sink {
	void *ctx;
	void (*state)(void *ctx, uint64_t id, uint32_t phase, uint32_t permille); /* enum wire_phase */
	/* One step's token of a request. lp: [n_lp] chosen token first. */
	void (*tokens)(void *ctx, uint64_t id, const int32_t *ids, uint32_t n_ids, const char *text, size_t text_len,
		const struct sampler_logprob *lp, uint32_t n_lp);
	void (*done)(void *ctx, uint64_t id, const struct wire_done *d);
	void (*error)(void *ctx, uint64_t id, int code, const char *text);
};

struct sched_request { /* copied by submit */
	uint64_t id;
	const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
	uint32_t n_prompt;
	const int32_t *history; /* tokens already produced and told: the answer goes on behind them */
	uint32_t n_history;
	uint64_t history_text_bytes;
	uint32_t max_tokens; /* of the whole answer, history included; 0: to the end of the context */
	struct sampler_params sampling;
	struct emit_options emit;
	uint32_t traffic_class;
	int32_t priority;
	uint64_t deadline_ns; /* absolute, clock_now_ns; 0: none */
	struct wire_timeline time; /* arrived_ns, preprocess_ns, load_ns filled by the caller */
};

struct sched;
int sched_create(const struct sched_config *c, const struct sched_sink *sink, struct sched **out, struct error *e);
/* Open requests are dropped without a word to the sink. */
void sched_destroy(struct sched *s);
/* Refuses at once what can never run (an encoder model is UNSUPPORTED here): TOO_LONG (prompt + max_tokens over the context: names both), NOMEM (more pages
 * than exist), INVALID, FULL (queue). On failure the sink hears nothing. */
int sched_submit(struct sched *s, const struct sched_request *r, struct error *e);
int sched_cancel(struct sched *s, uint64_t id, int code, const char *why); /* told as error(code); NOT_FOUND */
int sched_pause(struct sched *s, uint64_t id);  /* NOT_FOUND */
int sched_resume(struct sched *s, uint64_t id);
/* Runs one step if any sequence can run. OK; AGAIN: nothing to do now; BACKEND: the device is lost, the worker must
 * be replaced (requests stay open: the daemon replays them). */
int sched_step(struct sched *s, struct error *e);

struct sched_status {
	uint32_t waiting, running, paused;
	uint64_t steps, prefill_tokens, decode_tokens, step_ns, ended, cancelled, failed;
	uint32_t pages_free[KV_MAX_GROUPS], pages_total[KV_MAX_GROUPS];
};
void sched_get_status(const struct sched *s, struct sched_status *out);
#endif
