/* SPDX-License-Identifier: Apache-2.0
 * Scheduler of one model: requests become sequences, sequences share steps. Owner: the worker's step thread, which
 * calls everything here. Answers do not depend on who shares a step, on chunking, preemption or reuse (model.h).
 *
 *   submitted -> waiting -> prefill -> decode -> ended (done or error, told exactly once through the sink)
 *                   ^ no place, no pages, not its turn; waits for an equal prefix that another one computes
 *
 * Classes: online (somebody waits) before offline (batch). Within a class: priority, raised by one for each
 * `aging_ns` of waiting (since its arrival or its tenant's last start), at most to the best that waits; between tenants
 * of one priority: fair shares in weighted tokens (virtual counters, Sheng et al., OSDI 2024: who was idle starts at the
 * level of the others); within a tenant: order of arrival.
 *
 * A step: online decodes; online prompts, earliest first-token deadline first (without a target: when its turn came);
 * offline decodes, then offline prompts, as far as the step's time budget goes, which a cost model gives (cost.h):
 *   - no online work: max_step_ns, or the smallest step there is
 *   - online sequences decode: what they would take alone, plus `slack` (strict), or up to their tpot target; online
 *     prompts may stretch it to `long_prompt_factor`
 * Preemption happens between steps, for places and for pages: least progress lost first, nobody twice in a row unless
 * there is no other; the pages stay findable in the prefix cache until somebody needs them.
 */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H
#include "cache/kv/pages.h"
#include "cache/kv/prefix.h"
#include "engine/emit.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "sched/cost.h"
#include <tenon/wire.h>

enum { SCHED_CLASSES = 2 }; /* indexed by enum wire_class */

/* What steps run on: a loaded model (sched_engine_of), or a simulation's fake. Errors as in model.h. */
struct sched_engine {
	void *ctx;
	const struct model_info *info;     /* borrowed */
	const struct tokenizer *tokenizer; /* borrowed */
	int (*step)(void *ctx, struct step_seq *seqs, uint32_t n_seqs, struct error *e);
	struct prefix_store store;         /* copies and moves pages (prefix.h) */
	uint64_t (*now_ns)(void *ctx);     /* monotonic */
};
struct sched_engine sched_engine_of(struct model *m);

struct sched_class_config {
	uint64_t ttft_ns, tpot_ns;   /* targets; 0: none (ttft), strict (tpot) */
	uint32_t max_waiting;        /* requests; 0: 1024 */
	uint32_t max_waiting_tenant; /* of one tenant; 0: max_waiting */
	uint64_t max_waiting_bytes;  /* prompts and answers' room, at 4 bytes a token; 0: 256 MiB */
};

struct sched_config { /* zero members mean defaults */
	struct sched_engine engine;
	uint32_t max_running;     /* sequences with a place; 0: the model's step_seqs */
	struct sched_class_config class[SCHED_CLASSES];
	uint64_t max_step_ns;     /* offline-only steps; 0: 25 ms */
	uint64_t max_prefill_ns;  /* online prompts with nobody decoding: most that a newcomer waits; 0: 100 ms */
	uint64_t aging_ns;        /* one level of priority for each; 0: 10 s */
	double slack;             /* strict: offline may cost online decodes this share; 0: 0.03 */
	double long_prompt_factor; /* online prompts may stretch others' time per token; 0: 2 */
	double offline_min_share; /* 0..0.9: of the time, given to offline work whatever waits; 0: none */
	bool no_prefix;           /* no reuse at all */
	struct prefix_config prefix; /* sched_create fills pages, groups and store */
	struct cost_model *cost;  /* borrowed, may be NULL: starts from generic guesses */
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
	/* An encoder's answer, in place of tokens. */
	void (*embedding)(void *ctx, uint64_t id, const float *row, uint32_t n, uint32_t n_prompt);
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
	uint32_t traffic_class;     /* enum wire_class */
	int32_t priority;           /* -100..100 */
	const char *tenant;         /* NULL: "" */
	uint32_t tenant_weight;     /* thousandths; 0: 1000 */
	uint64_t ttft_ns, tpot_ns;  /* 0: the class's */
	bool no_reuse, pin;
	bool again; /* an earlier scheduler had taken it in: a full queue does not refuse it */
	uint64_t deadline_ns; /* absolute, engine's clock; 0: none */
	struct wire_timeline time; /* arrived_ns, preprocess_ns, load_ns filled by the caller */
};

struct sched;
int sched_create(const struct sched_config *c, const struct sched_sink *sink, struct sched **out, struct error *e);
/* New limits and targets from now on: class, max_step_ns, max_prefill_ns, aging_ns (of requests to come), slack,
 * long_prompt_factor, offline_min_share; zero members mean defaults. Nothing else of `c` is looked at. */
void sched_configure(struct sched *s, const struct sched_config *c);
/* Open requests are dropped without a word to the sink. */
void sched_destroy(struct sched *s);
/* Requests to an encoder (model_info.is_encoder) take one step, whole, and no pages: sampling, emit, max_tokens, reuse
 * and pin mean nothing there. Refuses at once what can never run: TOO_LONG (prompt + max_tokens over the
 * context: names both), NOMEM (more pages than exist), INVALID (class, priority, deadline in the past), TIMEOUT (its
 * deadline has passed since time.arrived_ns), FULL (queue of
 * the class or of the tenant: names the limit and when to try again). On failure the sink hears nothing. */
int sched_submit(struct sched *s, const struct sched_request *r, struct error *e);
int sched_cancel(struct sched *s, uint64_t id, int code, const char *why); /* told as error(code); NOT_FOUND */
int sched_pause(struct sched *s, uint64_t id);  /* keeps its pages, gives up its place; NOT_FOUND */
int sched_resume(struct sched *s, uint64_t id);
/* Runs one step if any sequence can run. OK; AGAIN: nothing to do now; BACKEND: the device is lost, the worker must
 * be replaced (requests stay open: the daemon replays them). */
int sched_step(struct sched *s, struct error *e);

/* ---- several models on one device ------------------------------------------------------------------------------- */
enum sched_want { SCHED_WANT_NOTHING, SCHED_WANT_OFFLINE, SCHED_WANT_ONLINE };
enum sched_want sched_wants(const struct sched *s); /* most urgent work that could run now */
/* Another model on this device has online work: from now on this one holds offline work back, except for
 * offline_min_share. */
void sched_set_company(struct sched *s, bool online_elsewhere);

/* ---- idle time --------------------------------------------------------------------------------------------------- */
/* Up to about budget_ns of work that nobody waits for: one piece of calibration (after the first answer, while the cost
 * model is not calibrated), saving pages to a tier. False: nothing left to do. */
bool sched_tend(struct sched *s, uint64_t budget_ns);

/* ---- what is going on --------------------------------------------------------------------------------------------- */
enum sched_wait {
	SCHED_RUNS,          /* it does not wait */
	SCHED_WAIT_TURN,     /* behind others of its class: priority or fair share */
	SCHED_WAIT_PLACE,    /* all places are taken and nobody can be preempted for it */
	SCHED_WAIT_PAGES,    /* KV pages */
	SCHED_WAIT_PREFIX,   /* `behind` computes the prefix they share */
	SCHED_WAIT_RESTORE,  /* its prefix comes back from a tier */
	SCHED_WAIT_ONLINE,   /* offline: online work has the device */
	SCHED_WAIT_READER    /* paused: its client does not read */
};
const char *sched_wait_name(enum sched_wait w);
struct sched_entry {
	uint64_t id, behind; /* behind: the request it waits for; 0: none in particular */
	const char *tenant;  /* valid until the scheduler is called again */
	uint32_t traffic_class;
	int32_t priority, aged_priority;
	enum sched_wait wait;
	uint32_t n_prompt, n_cached, n_tokens, past, max_total, n_preempted;
	uint64_t waited_ns, age_ns, deadline_ns;
};
/* All open requests: running ones first, then waiting ones in the order in which they would start. Returns how many
 * there are; fills at most `room`. */
size_t sched_list(struct sched *s, struct sched_entry *out, size_t room);

struct sched_class_status {
	uint32_t waiting, running, paused; /* running: has a place; paused: neither waits nor runs */
	uint64_t submitted, ended, cancelled, failed, refused, deadline_missed, ttft_missed;
	uint64_t tpot_tokens, tpot_missed; /* tokens behind another one with a target; told later than that */
	uint64_t preempted, recomputed_tokens, prompt_tokens, cached_tokens, generated_tokens;
	uint64_t wait_ns, ttft_ns, n_ttft; /* sums */
	uint64_t step_ns;                  /* share of step time by predicted cost */
};
struct sched_status {
	uint32_t waiting, running, paused; /* running: has a place; paused: neither waits nor runs */
	uint64_t steps, prefill_tokens, decode_tokens, step_ns, ended, cancelled, failed;
	uint32_t pages_free[KV_MAX_GROUPS], pages_total[KV_MAX_GROUPS]; /* free: with those that only the prefix cache holds */
	struct sched_class_status class[SCHED_CLASSES];
	struct cost_status cost;
	struct prefix_status prefix;
};
void sched_get_status(const struct sched *s, struct sched_status *out);
struct sched_tenant_status { const char *name; uint32_t weight, waiting, running; uint64_t service; /* weighted tokens */ };
size_t sched_tenants(const struct sched *s, struct sched_tenant_status *out, size_t room);
struct prefix *sched_prefix(struct sched *s); /* for pins, limits, listing; NULL without reuse */
#endif
