/* SPDX-License-Identifier: Apache-2.0
 * Which models there are, where their files lie, and which the worker holds: load on first use, unload when idle, out of
 * service after too many deaths. Owner: the loop thread.
 *
 *   UNLOADED -> LOADING -> LOADED -> UNLOADING -> UNLOADED;   any -> QUARANTINED (until `tenonctl models load`)
 */
#ifndef DAEMON_MODELS_H
#define DAEMON_MODELS_H
#include "daemon/config.h"
#include "daemon/list.h"
#include "daemon/timer.h"
#include <jansson.h>

struct daemon;
struct request;

enum { MODEL_DEATHS_MAX = 16, MODELS_DYNAMIC_MAX = 256 };
enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING, MODEL_QUARANTINED };

struct model_entry {
	struct node node; /* in models.all */
	struct daemon *d;
	char *name, *given; /* given: path of the config or the client; NULL: NAME.gguf in the model folder */
	char *path;	    /* as resolved at the last load; NULL before */
	struct conf_model conf; /* without its strings */
	char *passes, *backend; /* the strings of it that a load needs */
	bool configured;	/* named in the config: stays listed while unloaded */
	enum model_state state;
	uint32_t n_requests;	  /* open, orphans included */
	struct list waiting;	  /* requests */
	struct timer idle, leave, look; /* leave: how long an unload waits for open requests; look: how far a load is */
	bool leaving;		  /* is to be unloaded when the last request has ended; takes no new ones */
	uint32_t load_permille; /* while it is loaded */
	uint64_t load_began_ns, loaded_ns, used_ns, n_loads, load_ns;
	json_t *info;	   /* what the worker said of it */
	struct error last; /* why the last load failed, or why it is out of service */
	uint64_t death_ns[MODEL_DEATHS_MAX];
	uint32_t n_deaths;
	uint32_t pending; /* administrators who wait for it to be loaded or unloaded */
};

struct models {
	struct list all;
	uint32_t n_all;
};

void models_init(struct models *m);
void models_finish(struct daemon *d);
/* Brings the list in line with the config: new entries come, entries gone from it leave once unused. */
int models_configure(struct daemon *d, struct error *e);

/* What a client or administrator named; an empty name is the default model. NOT_FOUND, INVALID, DENIED, BACKEND (out of
 * service). Creates the entry if the file is there. */
int models_find(struct daemon *d, const char *name, size_t len, struct model_entry **out, struct error *e);
struct model_entry *models_lookup(struct daemon *d, const char *name);

void model_enqueue(struct model_entry *m, struct request *r); /* waits, or goes on at once */
void model_load(struct model_entry *m);			      /* if it is not, and a worker is there */
int model_unload(struct model_entry *m, struct error *e);     /* BUSY: in use; NOT_FOUND: not loaded */
/* The same, but not at once where requests are open: takes no new ones meanwhile, cancels those with `force`, else gives up
 * after wait_ms and serves on. Whoever waits for it is told (admin_model_settled). */
int model_leave(struct model_entry *m, bool force, uint64_t wait_ms, struct error *e);
void model_revive(struct model_entry *m); /* back into service */
void model_request_begun(struct model_entry *m);
void model_request_gone(struct model_entry *m); /* one of n_requests has ended */

/* The worker is up, or down. `blame`: what it was doing when it died, NULL if no model is at fault. */
void models_worker_up(struct daemon *d);
void models_worker_down(struct daemon *d, const char *blame, const char *words);
/* No worker can be had: whoever waits is told. */
void models_worker_failed(struct daemon *d, int code, const char *text);

const char *model_state_name(enum model_state s);
json_t *models_json(struct daemon *d);
#endif
