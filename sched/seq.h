/* SPDX-License-Identifier: Apache-2.0
 * A request while the scheduler has it. Private to sched/; owner: the step thread.
 *
 * Invariants: tokens[0, n_tokens) is prompt + everything produced; KV is valid for positions [0, past);
 * past <= n_tokens; in decode past == n_tokens - 1 before a step. A sequence that lost its pages (preempted) has
 * past 0 and finds or computes its tokens again: the same bits, since results do not depend on chunking.
 *
 *   QUEUED -> RUNNING -> ended           QUEUED -> FOLLOWS -> QUEUED: an equal prefix is being computed
 *     ^          |  preempted            QUEUED -> RESTORES -> QUEUED: its prefix comes back from a tier
 *     +----------+                       any -> PAUSED -> QUEUED: its client did not read
 */
#ifndef SCHED_SEQ_H
#define SCHED_SEQ_H
#include "sched/sched.h"

enum seq_place { SEQ_NOWHERE, SEQ_QUEUED, SEQ_FOLLOWS, SEQ_RESTORES, SEQ_RUNNING, SEQ_PAUSED };
enum seq_link { SEQ_IN_ALL, SEQ_IN_PLACE, SEQ_IN_HOLDERS, SEQ_LINKS };

struct tenant;
struct seq;
struct seq_list {
	struct seq *first, *last;
	uint32_t n;
};

struct seq {
	struct seq *prev[SEQ_LINKS], *next[SEQ_LINKS];
	struct seq *same_hash;		/* id table */
	uint32_t queue_at, deadline_at; /* own index in those heaps */
	enum seq_place place;
	bool paused, started, answered; /* answered: first new token was told */
	bool fresh;			/* has a place, was in no step since */
	bool over_again;		/* gave all its pages up for its own sake, and got no further since */
	bool reuse, pin, prefilled, holds; /* holds: has pages without a place, is in that list */
	bool restored;			   /* its tier was asked already */
	uint64_t id, order;		   /* order of arrival here */
	struct tenant *tenant;
	uint32_t traffic_class;
	int32_t priority;
	int64_t key; /* order within its tenant: priority and arrival on one scale */
	uint64_t ttft_ns, tpot_ns;
	int32_t *tokens; /* [max_total] */
	uint32_t n_prompt, n_tokens, past, max_total, n_history;
	uint32_t most_past;   /* furthest past ever: what is computed again below it is nobody's service */
	uint32_t n_cached;    /* prompt tokens found at the first admission */
	bool ends_at_context; /* max_total is the context, not what the client asked for */
	struct block_table table;
	struct prefix_node *lease;
	struct seq *leader;    /* FOLLOWS: who computes the shared prefix */
	uint32_t follow_until; /* ... as soon as its past reaches this */
	struct seq_list followers;
	struct sampler *sampler;
	struct emitter *emit;
	uint32_t n_logprobs;
	struct buf text;     /* released by the emitter, not told yet */
	uint64_t skip_bytes; /* text of the history that was told by an earlier worker */
	uint64_t deadline_ns, submitted_ns, started_ns, first_ns, last_ns, told_ns; /* last: was picked; told: end of that step */
	uint32_t n_preempted, chunk;	 /* chunk: tokens of this step */
	uint64_t admission, admitted_ns; /* when it got its place, in order and time */
	uint64_t planned_step;		 /* last step that it was part of */
	uint64_t paged_step;		 /* last step for which it got its page */
	struct wire_timeline time;
};

/* Copies the request. NOMEM, INVALID (sampling, stops). */
int seq_create(
	const struct sched_request *r, const struct sched_engine *g, struct seq **out, struct error *e);
void seq_destroy(struct seq *q); /* has given its pages back */

/* Feeds the history through the emitter: what an earlier worker told is not told again. *ended: the answer was
 * complete already. */
int seq_replay(struct seq *q, enum emit_end *end, struct error *e);

/* Takes one new token: *end tells whether it ends the answer (it is then not part of it if it is an end token). */
int seq_push(struct seq *q, int32_t token, enum emit_end *end, struct error *e);

uint32_t seq_left(const struct seq *q); /* tokens to compute before the next one can be sampled */
void seq_fill_done(const struct seq *q, uint32_t finish, uint64_t now_ns, struct wire_done *d);

void seq_list_append(struct seq_list *l, struct seq *q, enum seq_link k);
void seq_list_insert(struct seq_list *l, struct seq *q, enum seq_link k); /* by order of arrival */
void seq_list_remove(struct seq_list *l, struct seq *q, enum seq_link k);
#endif
