/* SPDX-License-Identifier: Apache-2.0
 * The scheduler's own state, shared by sched.c (requests in and out) and step.c (plan and run a step).
 */
#ifndef SCHED_PRIV_H
#define SCHED_PRIV_H
#include "sched/seq.h"

struct seq_list {
	struct seq *first, *last;
	uint32_t n;
};

struct sched {
	struct sched_config c;
	struct sched_sink sink;
	struct kv_pages *pages;
	struct seq_list waiting, running; /* both oldest first; a preempted sequence goes to the head of waiting */
	struct step_seq *plan;            /* [step_seqs] */
	struct seq **planned;             /* [step_seqs] */
	float *logits;                    /* [step_out][n_vocab] */
	uint32_t n_plan, n_vocab;
	struct sched_status st;
};

static inline uint64_t sched_now(const struct sched *s) { return s->c.engine.now_ns(s->c.engine.ctx); }

void seq_list_append(struct seq_list *l, struct seq *q);
void seq_list_prepend(struct seq_list *l, struct seq *q);
void seq_list_remove(struct seq_list *l, struct seq *q);

/* Takes q out of its list, tells the sink the last word and frees it. */
void sched_end_done(struct sched *s, struct seq *q, uint32_t finish);
void sched_end_error(struct sched *s, struct seq *q, int code, const char *text);
/* Tells text and tokens [from, n_tokens) of q. */
void sched_tell_tokens(struct sched *s, struct seq *q, uint32_t from, const struct sampler_logprob *lp);
#endif
