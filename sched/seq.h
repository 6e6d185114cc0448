/* SPDX-License-Identifier: Apache-2.0
 * A request while the scheduler has it. Private to sched/; owner: the step thread.
 *
 * Invariants: tokens[0, n_tokens) is prompt + everything produced; KV is valid for positions [0, past);
 * past <= n_tokens; in decode past == n_tokens - 1 before a step. A sequence that lost its pages (preempted) has
 * past 0 and computes its tokens again: the same bits, since results do not depend on chunking.
 */
#ifndef SCHED_SEQ_H
#define SCHED_SEQ_H
#include "sched/sched.h"

enum seq_place { SEQ_WAITING, SEQ_RUNNING };

struct seq {
	struct seq *prev, *next; /* in the list of its place, oldest first */
	enum seq_place place;
	bool paused, started, answered; /* answered: first new token was told */
	uint64_t id;
	int32_t *tokens; /* [max_total] */
	uint32_t n_prompt, n_tokens, past, max_total, n_history;
	bool ends_at_context; /* max_total is the context, not what the client asked for */
	struct block_table table;
	struct sampler *sampler;
	struct emitter *emit;
	uint32_t n_logprobs;
	struct buf text;      /* released by the emitter, not told yet */
	uint64_t skip_bytes;  /* text of the history that was told by an earlier worker */
	uint64_t deadline_ns, submitted_ns, started_ns, first_ns, last_ns;
	uint32_t n_preempted, chunk; /* chunk: tokens of this step */
	uint32_t out_row;
	struct wire_timeline time;
};

/* Copies the request. NOMEM, INVALID (sampling, stops). */
int seq_create(const struct sched_request *r, const struct sched_engine *g, struct seq **out, struct error *e);
void seq_destroy(struct seq *q, struct kv_pages *pages);

/* Feeds the history through the emitter: what an earlier worker told is not told again. *ended: the answer was
 * complete already. */
int seq_replay(struct seq *q, enum emit_end *end, struct error *e);

/* Takes one new token: *end tells whether it ends the answer (it is then not part of it if it is an end token). */
int seq_push(struct seq *q, int32_t token, enum emit_end *end, struct error *e);

uint32_t seq_left(const struct seq *q); /* tokens to compute before the next one can be sampled */
void seq_fill_done(const struct seq *q, uint32_t finish, uint64_t now_ns, struct wire_done *d);
#endif
