/* SPDX-License-Identifier: Apache-2.0
 * What the step thread owns: the backends and the models it serves, each with scheduler, cost model and tiers. Private to
 * worker_step.c (the thread, orders, events), worker_serve.c (loading and unloading) and worker_report.c (JSON).
 */
#ifndef DAEMON_WORKER_STEP_H
#define DAEMON_WORKER_STEP_H
#include "cache/kv/tier.h"
#include "daemon/worker_priv.h"
#include "engine/ledger.h"

struct stepper;

struct served {
	char name[WORKER_NAME_BYTES];
	struct model *model;
	struct backends own; /* where it was loaded beside others or names its own; none: the worker's */
	struct sched *sched;
	struct stepper *owner;
	struct cost_model *cost;
	bool keep_cost;		  /* what was learned goes to cost_path */
	bool cost_saved;	  /* ... and the calibration is there */
	uint64_t observed_before; /* steps that earlier starts have learned from */
	char cost_path[4096];
	struct kv_tier *host, *disk; /* NULL: none, tier_why says why if one was wanted */
	char tier_why[256];
	uint64_t host_limit_bytes;
	bool restless; /* sched_tend may have something to do */
	uint64_t tended_ns;
	uint32_t running, waiting; /* as last looked at */
};

/* A load beside the steps of others: a thread that reads a file and lets a device of its own take it. One at a time. */
struct loader {
	pthread_t thread;
	bool running;
	_Atomic bool done; /* set by the thread, last */
	struct command *c; /* the thread's while it runs */
	struct backends backends;
	struct model *model;
	struct orders *orders;	       /* rung when done */
	struct command *first, **last; /* loads that wait for it */
};

struct stepper {
	struct worker *w;
	struct link *tok;
	struct box *box;
	struct setup *setup; /* plugins borrow its strings */
	struct plugins *plugins;
	struct backends_list list;
	struct backends backends; /* of list */
	struct sched_sink sink;
	struct served *served[WORKER_MODELS_MAX];
	uint32_t n_served, turn; /* turn: who is asked first for the next step */
	struct loader loader;
	struct backend_progress progress, beside; /* of a load: into the box */
	bool stop, failed, idle;
};

/* worker_step.c: the last word to a command */
void worker_answer(struct stepper *s, struct command *c);

/* worker_serve.c */
struct served *served_find(const struct stepper *s, const char *name); /* NULL: not loaded */
void worker_setup(struct stepper *s, struct command *c);
/* True: done, or refused; false: goes on beside the steps, its outcome comes later (worker_load_poll). */
bool worker_load(struct stepper *s, struct command *c);
/* How far a load is, into the box (ctx). [any thread] */
void worker_load_tell(void *ctx, uint64_t done, uint64_t total);
void worker_load_tell_beside(void *ctx, uint64_t done, uint64_t total);
/* Takes what the loading thread has finished. */
void worker_load_poll(struct stepper *s);
void worker_load_stop(struct stepper *s); /* waits for it and throws it away */
void worker_unload(struct stepper *s, struct command *c);
void worker_configure(struct stepper *s, struct command *c);
void served_close(struct stepper *s, uint32_t i);
/* What was learned about the cost of steps, for the next start. */
void served_keep_cost(struct served *m);

/* worker_report.c */
json_t *worker_status_json(struct stepper *s);
json_t *worker_list_json(struct stepper *s);
void worker_prefix(struct stepper *s, struct command *c);
#endif
