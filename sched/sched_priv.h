/* SPDX-License-Identifier: Apache-2.0
 * The scheduler's own state, shared by the files of sched/. Who does what: README.md.
 */
#ifndef SCHED_PRIV_H
#define SCHED_PRIV_H
#include "sched/seq.h"

struct heap { /* of sequences, smallest first; each knows its index */
	struct seq **v;
	uint32_t n, cap;
	bool (*before)(const struct seq *a, const struct seq *b);
	size_t index; /* offset of the index in struct seq */
};
bool heap_reserve(struct heap *h, uint32_t n);
void heap_push(struct heap *h, struct seq *q); /* room was reserved */
void heap_remove(struct heap *h, struct seq *q);
void heap_finish(struct heap *h);
static inline struct seq *heap_top(const struct heap *h) { return h->n ? h->v[0] : NULL; }

struct tenant {
	char *name;
	uint32_t weight, prefix_id;
	uint32_t open, waiting[SCHED_CLASSES], running;
	uint64_t waiting_bytes[SCHED_CLASSES];
	uint64_t served_ns[SCHED_CLASSES]; /* a request of it got its place last */
	uint64_t idle_ns;
	double service, level; /* weighted tokens; the same divided by the weight */
	struct heap queue[SCHED_CLASSES];
};

struct calibration {
	uint32_t shape, round;
};

struct sched {
	struct sched_config c;
	struct sched_sink sink;
	struct kv_pages *pages;
	struct prefix *prefix; /* NULL: no reuse */
	struct cost_model *cost;
	bool own_cost, company, stuck;

	struct seq **ids; /* [n_ids], a power of two: hash table of everything open */
	uint32_t n_ids, n_open;
	struct seq_list all, running, holders, restoring,
		paused; /* by arrival; holders: pages without a place */
	struct heap deadlines;
	struct tenant **tenants;
	uint32_t n_tenants, cap_tenants;
	double idle_level; /* of the tenant that was served last before all were idle */
	uint64_t n_submitted, n_admitted, epoch, last_victim;

	enum sched_wait blocked[SCHED_CLASSES]; /* why the first of each class does not start */
	uint64_t blocked_epoch[SCHED_CLASSES];
	int64_t blocked_spare[SCHED_CLASSES][KV_MAX_GROUPS];
	uint32_t n_running[SCHED_CLASSES];
	uint64_t start_gap_ns[SCHED_CLASSES], start_last_ns[SCHED_CLASSES]; /* between starts, smoothed */
	double owed_ns; /* time that offline work has coming (offline_min_share), as of owed_at_ns */
	uint64_t owed_at_ns;
	bool owed_counts; /* offline work has waited since */

	struct step_seq *plan; /* [step_seqs] */
	struct seq **planned;  /* [step_seqs] */
	struct seq **pick;     /* [step_seqs], scratch */
	float *rows;	       /* [step_out][row_width]: logits, or an encoder's embeddings */
	uint32_t n_plan, row_width;
	struct cost_shape shape, online_shape; /* of the plan; without its offline part */
	uint64_t step_no;
	double late;   /* of a prediction: kept back from targets for the time per token */
	bool crowded;  /* online decodes miss one of theirs, or nearly, by themselves */
	bool left_out; /* the step had no time for all online prompts */
	bool held_prompts; /* ... because offline work had its share coming */
	struct calibration calibration;
	struct sched_status st;
};

static inline uint64_t sched_now(const struct sched *s) { return s->c.engine.now_ns(s->c.engine.ctx); }
static inline bool sched_encodes(const struct sched *s) { return s->c.engine.info->is_encoder; }
/* An offline prompt that somebody online waits for counts as online. */
uint32_t seq_class(const struct seq *q);

/* ---- sched.c ----------------------------------------------------------------------------------------------------- */
struct seq *sched_find(const struct sched *s, uint64_t id);
/* Takes q from where it is, tells the sink the last word and frees it. */
void sched_end_done(struct sched *s, struct seq *q, uint32_t finish);
void sched_end_error(struct sched *s, struct seq *q, int code, const char *text);
/* Tells text and tokens [from, n_tokens) of q. */
void sched_tell_tokens(struct sched *s, struct seq *q, uint32_t from, const struct sampler_logprob *lp);
int sched_check(const struct sched *s, const struct sched_request *r, const struct tenant *t,
	struct error *e); /* check.c */

/* ---- queue.c: who waits and who is next -------------------------------------------------------------------------- */
void queue_enter(struct sched *s, struct seq *q, enum seq_place place);
void queue_leave(struct sched *s, struct seq *q);
struct seq *queue_best(const struct sched *s, uint32_t traffic_class, uint64_t now);
int32_t queue_aged(const struct sched *s, const struct seq *q, uint64_t now);
uint32_t queue_waiting(const struct sched *s, uint32_t traffic_class);
struct rank { /* decides between the first requests of tenants */
	int32_t aged; /* at most the best priority that waits */
	bool resumed;
	double level;
	uint64_t order;
};
bool queue_rank_better(const struct rank *a, const struct rank *b);
void queue_set_key(const struct sched *s, struct seq *q);
bool queue_deadline_before(const struct seq *a, const struct seq *b);
bool queue_key_before(const struct seq *a, const struct seq *b);

/* ---- tenant.c ---------------------------------------------------------------------------------------------------- */
struct tenant *tenant_find(const struct sched *s, const char *name);
struct tenant *tenant_get(struct sched *s, const char *name, uint64_t now, struct error *e);
int tenant_open(struct sched *s, struct tenant *t, uint32_t weight, struct error *e); /* one request more */
void tenant_close(struct sched *s, struct tenant *t, uint64_t now);
void tenant_charge(struct tenant *t, double tokens);
void tenants_finish(struct sched *s);

/* ---- admit.c, pages.c, preempt.c --------------------------------------------------------------------------------- */
void sched_admit(struct sched *s, uint64_t now);
void sched_admit_undo(struct sched *s, uint64_t now);
bool sched_online_queued(const struct sched *s);
uint32_t sched_places(const struct sched *s, uint32_t traffic_class); /* most of a class at once */

/* Pages of each group that q lacks to hold `upto` tokens. */
void pages_need(const struct sched *s, const struct seq *q, uint64_t upto, uint32_t need[KV_MAX_GROUPS]);
/* Pages of each group that could be had without preempting anybody. */
void pages_avail(const struct sched *s, uint32_t avail[KV_MAX_GROUPS]);
/* Covers `n` more tokens of q, evicting and preempting; false: not now. */
bool pages_take(struct sched *s, struct seq *q, uint32_t n, uint64_t now);
/* Covers at most n more tokens with what can be had without preempting; returns how many. */
uint32_t pages_take_some(struct sched *s, struct seq *q, uint32_t n, uint64_t now);
/* Gives one page to every running sequence that needs one for its next token, oldest first. */
void pages_prepare(struct sched *s, uint64_t now);
void pages_trim(struct sched *s, struct seq *q);
void pages_drop(struct sched *s, struct seq *q, bool offer, uint64_t now);

/* q gives up its place and waits again; `pages`: also what it holds (the prefix cache keeps what it can). */
void sched_preempt(struct sched *s, struct seq *q, bool pages, uint64_t now);
struct seq *victim_for_place(const struct sched *s);
/* `admission`: q only wants to start. */
struct seq *victim_for_pages(const struct sched *s, const struct seq *q, bool admission);
bool victim_may_be(const struct sched *s, const struct seq *v, const struct seq *q, bool admission);

/* ---- share.c: prefixes ------------------------------------------------------------------------------------------- */
/* SCHED_RUNS: `hit` is what it may start from; else q stepped aside. */
enum sched_wait share_look(struct sched *s, struct seq *q, struct prefix_hit *hit);
void share_take(struct sched *s, struct seq *q, const struct prefix_hit *hit, uint64_t now);
void share_offer(struct sched *s, struct seq *q, bool last, uint64_t now);
void share_let_go(
	struct sched *s, struct seq *leader, bool all); /* followers that need not wait any longer */
bool share_restore(struct sched *s, uint64_t budget_ns, uint64_t now);

/* ---- plan.c, budget.c -------------------------------------------------------------------------------------------- */
void sched_plan(struct sched *s, uint64_t now);
bool budget_crowded(const struct sched *s, uint64_t alone_ns, uint64_t now);
uint64_t budget_prompts(const struct sched *s, uint64_t alone_ns, uint64_t now);
uint64_t budget_offline(const struct sched *s, uint64_t alone_ns, uint64_t now);
void late_begin(struct sched *s);
void late_end(struct sched *s, uint64_t began_ns, uint64_t now); /* after a step that began then */
uint64_t budget_restore(const struct sched *s);
uint64_t seq_ttft_deadline(const struct sched *s, const struct seq *q);
bool seq_ttft_missed(const struct sched *s, const struct seq *q);

double owed_now(const struct sched *s, uint64_t now); /* time that offline work has coming */
bool owed_much(const struct sched *s);		      /* so much that online prompts stand back */
bool sched_held(const struct sched *s, uint64_t now); /* offline work waits for another model */
void owed_begin(struct sched *s, uint64_t now);
void owed_end(struct sched *s, uint64_t offline_ns);
#endif
