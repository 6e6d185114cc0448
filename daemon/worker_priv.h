/* SPDX-License-Identifier: Apache-2.0
 * What the two threads of a worker share, and the parts that one of them alone uses. Private to worker*.c.
 */
#ifndef DAEMON_WORKER_PRIV_H
#define DAEMON_WORKER_PRIV_H
#include "daemon/box.h"
#include "daemon/worker.h"
#include "engine/model.h"
#include "ipc/ipc.h"
#include "sched/sched.h"
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WORKER_MODELS_MAX = 32, ORDERS_MAX = 8192, WORKER_NAME_BYTES = 256 };

struct prepared { /* a request with its tokens, ready for the scheduler */
	struct sched_request request;
	char model[WORKER_NAME_BYTES], tenant[WIRE_MAX_TENANT_BYTES + 1];
	struct tokens tokens;
	uint8_t *body; /* what stop strings, bias and history point into */
	struct emit_stop stops[WIRE_MAX_STOP];
	bool cancelled;
};
void prepared_free(struct prepared *p);

struct setup { /* what the worker opens its backends with */
	char *backend;
	uint32_t device;
	json_t *command; /* owns the strings below */
	const char *dirs[16];
	size_t n_dirs;
	char default_dir[4096];
	struct plugin_option options[256];
	size_t n_options;
	const char *cache_dir;
};

struct settings { /* what the daemon's configuration says about scheduling and caching (settings.c) */
	struct sched_config sched; /* without engine, cost and the scheduler's part of prefix */
	bool calibrate;
	uint32_t pinned_percent;
	uint64_t host_bytes, disk_bytes, memory_limit;
	char *disk_dir; /* owned; NULL: none */
};
void settings_finish(struct settings *s);

struct command { /* slow work for the step thread; goes back to the IO thread with its outcome */
	enum {
		COMMAND_SETUP,
		COMMAND_LOAD,
		COMMAND_UNLOAD,
		COMMAND_CONFIGURE,
		COMMAND_STATUS,
		COMMAND_LIST,
		COMMAND_PREFIX,
		COMMAND_BACKENDS,
		COMMAND_FAILED
	} kind;
	uint64_t id; /* of the ADMIN frame */
	char model[WORKER_NAME_BYTES];
	char *path, *passes, *backend; /* backend "": the worker's */
	struct model_options options;
	struct settings settings; /* LOAD, CONFIGURE */
	struct setup *setup;
	json_t *question; /* PREFIX: what is asked */
	/* outcome */
	struct error error;
	json_t *reply;
	struct model *loaded; /* LOAD: for the IO thread to prepare requests with */
	struct command *next;
};
void command_free(struct command *c);

enum order_kind { ORDER_SUBMIT, ORDER_CANCEL, ORDER_PAUSE, ORDER_RESUME, ORDER_COMMAND, ORDER_STOP };
struct order {
	enum order_kind kind;
	uint64_t id;
	void *what; /* struct prepared, struct command */
};

struct orders { /* one producer (IO), one consumer (step) */
	struct order ring[ORDERS_MAX];
	_Atomic uint32_t head, tail, asleep;
	int bell; /* eventfd */
};
bool orders_push(struct orders *q, struct order o); /* false: full */
bool orders_take(struct orders *q, struct order *o);
void orders_wake(struct orders *q);		    /* [any thread] the consumer looks around soon */
void orders_wait(struct orders *q, int timeout_ms); /* parks until there is one; -1: as long as it takes */

struct outcomes { /* step and helper threads -> IO; rare, so a mutex will do */
	pthread_mutex_t lock;
	struct command *first, **last;
	int bell; /* eventfd */
};
void outcomes_push(struct outcomes *q, struct command *c);
struct command *outcomes_take(struct outcomes *q);

struct worker {
	struct worker_ends *ends;
	struct log *log;
	struct orders orders;
	struct outcomes outcomes;
	pthread_t step_thread, probe_thread;
	bool probing; /* IO thread's: one at a time */
	_Atomic uint64_t steps;
	_Atomic uint32_t running, waiting; /* as the scheduler last said */
	_Atomic bool stopping;
};

/* worker_step.c */
void *worker_step_main(void *worker);
/* worker_prep.c: tokens of a request. On failure the client's error. */
int worker_prepare(const struct model *m, const struct frame_request *f, uint64_t id, const uint8_t *payload,
	uint8_t *body, struct prepared **out, struct error *e);
/* worker_admin.c: commands as JSON, and back. The reply to `command` is a new reference. */
int worker_parse_load(const json_t *cmd, struct command *c, struct error *e);
int worker_parse_setup(const json_t *cmd, struct command *c, struct error *e);
struct plugins_config setup_plugins(const struct setup *s, struct log *log);
json_t *worker_model_json(const struct model *m);
json_t *worker_memory_json(void);
/* worker_settings.c */
int settings_parse(const json_t *o, struct settings *out, struct error *e);
void setup_free(struct setup *s);
/* Probes every backend in a thread of its own; takes c on success, and its outcome follows. */
int worker_list_backends(struct worker *w, const json_t *setup, struct command *c, struct error *e);
#endif
