/* SPDX-License-Identifier: Apache-2.0
 * Random histories of the real scheduler and prefix cache over a fake backend and a clock that only steps move. One seed
 * is one history, on any machine. The parts: sim_rng.c draws; fake_engine.c is backend, KV and clock; request.c makes
 * requests and computes, each by itself, the one right answer; world.c draws the scene; history.c plays it; checks.c
 * looks at every step. One thread, nothing shared between two histories but the vocabulary.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H
#include "base/base.h"
#include "sched/sched.h"

enum { SIM_VOCAB = 64, SIM_REQUESTS = 200, SIM_TENANTS = 6, SIM_SEQS = 16, SIM_EVENTS = 2048, SIM_CTX = 512 };
#define SIM_MS	1000000ull
#define SIM_SEC 1000000000ull

/* ---- numbers (sim_rng.c) -------------------------------------------------------------------------------------------- */

struct rng {
	uint64_t state;
};
uint64_t sim_mix(uint64_t a, uint64_t b);
struct rng rng_of(uint64_t seed, uint64_t stream);
uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);		     /* 0..n-1 */
uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi); /* lo..hi */
bool rng_chance(struct rng *r, uint32_t permille);
uint64_t rng_wait(
	struct rng *r, uint64_t mean); /* about exponential; integers only, so that no libm decides */

/* ---- requests (request.c) ------------------------------------------------------------------------------------------- */

enum sim_life { SIM_FUTURE, SIM_OPEN, SIM_DONE, SIM_ERROR, SIM_REFUSED };

struct sim_request {
	struct sched_request ask; /* prompt and stops point into this request */
	int32_t *tokens;	  /* [n_prompt + n_answer]: prompt, then the one right answer */
	uint64_t *hash;		  /* [n_prompt + n_answer + 1]: of the first i tokens */
	uint32_t n_prompt, n_answer, finish, tenant;
	struct buf text; /* of the answer */
	struct emit_stop stop;
	char stop_text[8];
	struct sampler_bias bias;
	int refusal; /* the code that submit has to answer for what is wrong with it; 0: nothing is */

	enum sim_life life;
	bool paused, cancel, started, stayed; /* stayed: had a place before the step and kept it */
	int code;
	uint32_t n_told, told_now, n_done, n_error, n_replays;
	size_t told_bytes;
	uint64_t submitted_ns, open_ns, first_ns, ended_ns; /* open: by this scheduler */
	uint32_t was_past;  /* KV that it had before the step, where it had a place; 0: none, or not known */
	uint64_t heard;	    /* number of the last step that said something about it; told_now: tokens in it */
	uint64_t failed_in; /* step in which the fake failed its sequence */
	uint64_t answered_in;		  /* step of the first token that this scheduler told */
	uint64_t last_ns, before_last_ns; /* of the last two tokens */
};

struct tokenizer;
struct sim_vocab;
int sim_vocab_create(struct sim_vocab **out);
void sim_vocab_destroy(struct sim_vocab *v);
const struct tokenizer *sim_vocab_tokenizer(const struct sim_vocab *v);

/* The row of logits behind a prefix. */
void sim_logits(uint64_t hash, float *row);
uint64_t sim_hash(uint64_t before, int32_t token);
#define SIM_HASH_NOTHING 0x9e3779b97f4a7c15ull
/* Room for prompt and answer; the caller fills ask and tokens[0, n_prompt). */
void sim_request_prepare(struct sim_request *r, uint32_t n_ctx);
/* Generates the answer, alone: one token after the other, no scheduler, no pages. */
int sim_request_solve(struct sim_request *r, const struct tokenizer *t, uint32_t n_ctx, struct error *e);
void sim_request_free(struct sim_request *r);

/* ---- the scene (world.c) -------------------------------------------------------------------------------------------- */

enum sim_event_kind {
	EV_SUBMIT,
	EV_CANCEL,
	EV_PAUSE,
	EV_RESUME,
	EV_PURGE,
	EV_LIMITS,
	EV_COMPANY,
	EV_UNPIN,
	EV_TEND,
	EV_CONFIGURE
};
struct sim_event {
	uint64_t at_ns;
	enum sim_event_kind kind;
	uint32_t order, who; /* request, tenant, or on/off */
	uint64_t a, b;
};

struct sim_cost {		     /* hidden from the scheduler */
	uint64_t base_ns, row_ns[4]; /* rows 2..4, 5..16, 17..64, more */
	uint64_t seq_ns, out_ns, attended_ps;
	uint32_t noise_permille, outlier_permille, outlier_factor;
};

struct sim_faults { /* permille a step or a call */
	uint32_t seq, step, copy, read, write, tier;
	uint32_t deaths; /* how often the device is lost */
};

struct sim_world {
	const char *name;
	struct model_info info;
	struct sim_cost cost;
	struct sim_faults faults;
	struct sched_config config;
	bool host_tier, disk_tier;
	uint64_t host_bytes, disk_bytes;
	uint32_t n_tenants, weight[SIM_TENANTS];
	const char *tenant_name[SIM_TENANTS];
	uint32_t n_requests, n_events;
	struct sim_request request[SIM_REQUESTS];
	struct sim_event event[SIM_EVENTS];
	/* which claims hold in this scene */
	bool fair;	  /* all tenants stay backlogged until the first one runs dry */
	bool steady_cost; /* no outliers, no faults: predictions may be held against budgets */
};
size_t sim_world_names(const char *const **out);
/* NULL: the seed chooses. False: no such scene. */
bool sim_world_make(struct sim_world *w, uint64_t seed, const char *name, const struct tokenizer *t);
/* Other limits and targets, as an administrator sets them while running. */
void sim_world_reconfigure(struct sim_world *w, uint64_t seed);
void sim_world_free(struct sim_world *w);

/* ---- the fake (fake_engine.c) --------------------------------------------------------------------------------------- */

struct fake_row { /* one sequence's part of a step */
	uint64_t end_hash;
	uint32_t past, n, n_out;
	int32_t request; /* filled by checks.c: index, -1: unknown */
	bool failed;
};
struct sim;
struct fake {
	struct sim *sim;
	uint64_t now_ns, n_steps;
	struct rng noise, faults;
	uint64_t *slot[KV_MAX_GROUPS];	 /* [n_pages][page_tokens]: hash of all tokens up to this one */
	uint64_t *writer[KV_MAX_GROUPS]; /* [n_pages]: step * SIM_SEQS + sequence that wrote last */
	struct fake_row row[SIM_SEQS];
	uint32_t n_rows;
	struct cost_shape shape;
	uint64_t predicted_ns, last_ns;
	uint64_t die_at;		       /* step; 0: never */
	bool ran, died, whole_failed, tending; /* tending: steps are the scheduler's own (calibration) */
};
int fake_create(struct fake *f, struct sim *s, uint64_t seed);
void fake_destroy(struct fake *f);
void fake_forget(struct fake *f); /* a new device: whatever was in its pages */
struct sched_engine fake_engine(struct fake *f, const struct tokenizer *t);

/* ---- one history (history.c, checks.c) ------------------------------------------------------------------------------ */

struct sim_options {
	bool verbose;
	const char *what;  /* scene; NULL: any */
	const char *fault; /* --break: what to do wrong */
	const struct sim_vocab *vocab;
};
struct sim_verdict {
	bool failed;
	char what[24], text[480];
	uint64_t steps, requests, preempted, replays, hit_tokens, restored, evicted, saved, fair_steps;
	double most_owed;
};

struct sim_seen { /* one request as sched_list told it */
	struct sched_entry e;
	bool placed; /* among the running ones */
};
struct sim_view { /* the scheduler between two steps */
	struct sim_seen seen[SIM_REQUESTS];
	size_t n;
	struct sched_status status;
};

struct sim {
	struct sim_options o;
	struct sim_world w;
	struct fake fake;
	struct sched *sched;
	struct cost_model *cost, *cost_then; /* then: as it was when the last step was planned */
	struct kv_tier *host, *disk;
	char disk_dir[96], disk_path[104];
	uint64_t host_limit, disk_limit;
	struct sim_view *before, *after;
	bool company, stepping;
	enum sched_want wants; /* what it said before the step */
	uint32_t next_event, n_open;
	uint64_t last_victim;
	/* shares */
	uint64_t service[SIM_TENANTS];
	double largest; /* weighted tokens of the largest request */
	bool all_backlogged;
	double owed_ns, may_owe_ns; /* time that offline work should have had by now: at least, at most */
	bool owes;		    /* some was open at owed_at_ns */
	uint64_t step_began_ns, longest_step_ns, owed_at_ns;
	struct sim_verdict v;
};

void sim_run(uint64_t seed, const struct sim_options *o, struct sim_verdict *out);
/* The first failure of a history counts. `what` is the check's name. */
void sim_fail(struct sim *s, const char *what, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void sim_log(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sim_broken(const struct sim *s, const char *how);
struct sim_request *sim_find(struct sim *s, uint64_t id);

void check_view(struct sim *s, struct sim_view *v); /* fills it and looks whether it agrees with itself */
void check_step(struct sim *s, int rc);		    /* between before and after */
void check_submit(struct sim *s, struct sim_request *r, int rc, const struct error *e);
void check_idle(struct sim *s);
void check_end(struct sim *s);
void check_policy(struct sim *s);  /* policy.c; after a step that went well */
void check_budgets(struct sim *s); /* budgets.c */
void check_share(struct sim *s);
bool sim_counts_online(struct sim *s, uint32_t row);
bool sim_may_have_led(struct sim *s, const struct sim_request *r);
void sim_tree_play(struct sim *s, uint64_t seed); /* tree.c */

/* ---- tiers (tiers.c) -------------------------------------------------------------------------------------------------- */

bool sim_open_tiers(struct sim *s);
void sim_close_tiers(struct sim *s);
void sim_remove_tiers(struct sim *s); /* folder and file */
void sim_set_limits(struct sim *s, struct prefix *p, uint64_t host_bytes, uint64_t disk_bytes);
void sim_rot(struct sim *s, struct rng *r);
void check_limits(struct sim *s, const struct prefix *p);
#endif
