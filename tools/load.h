/* SPDX-License-Identifier: Apache-2.0
 * A load of two classes on something that answers: online requests as a Poisson process, offline clients that always
 * have a request in flight, and what was seen of each request, with the same prompts for every server. Servers: tenond
 * over libtenon (load_tenon.c), llama.cpp's server over HTTP (load_http.c). Single-threaded: one loop sends, waits and
 * takes times; it sleeps between events and takes no core from whom it measures.
 */
#ifndef TOOLS_LOAD_H
#define TOOLS_LOAD_H
#include "tools/session.h"

/* ---- prompts ------------------------------------------------------------------------------------------------- */

struct load_text {    /* zero-initialise */
	int32_t *ids; /* a text in the model's tokens; prompts are cut from it */
	size_t n;
	int32_t n_vocab;
	double tokens_per_word;
	char path[4096];
};
/* `file` NULL: the GPL-3 of Debian's common-licenses, else the LICENSE of this source. */
int load_text_open(struct load_text *t, const char *model_path, const char *file, struct error *e);
void load_text_close(struct load_text *t);

uint64_t load_random(uint64_t *state);
/* n ids: four random ones, so that no two prompts share a prefix, then the text from a random place, which goes on at
 * its beginning when it ends. mem_free the result; NULL: out of memory. */
int32_t *load_prompt(const struct load_text *t, uint32_t n, uint64_t *state);

/* ---- requests ------------------------------------------------------------------------------------------------- */

struct load_item { /* one request: what to send, and what was seen of it (times of the monotonic clock, 0: not yet) */
	struct load_item *next;
	int traffic_class; /* enum tenon_class */
	uint32_t client;   /* each has a connection of its own */
	int32_t *ids;	   /* [n_ids], owned until it was sent */
	uint32_t n_ids, n_new, ttft_ms, tpot_ms;
	const char *tenant; /* NULL: the user's own */
	void *server;	    /* the server's own mark */
	uint64_t id;
	uint64_t due_ns, first_ns, last_ns, end_ns;
	uint64_t *token_ns; /* [n_new] */
	uint32_t n_tokens;  /* seen */
	uint32_t n_prompt_done, n_cached, n_preempted;
	bool ended, cancelled; /* cancelled: by us */
	int code;	       /* of its end */
	char why[96];
};
struct load_item *load_item_new(
	int32_t *ids, uint32_t n_ids, uint32_t n_new); /* takes ids over; NULL: out of memory */
void load_items_free(struct load_item *list);
double load_item_ttft_ms(
	const struct load_item *it, uint64_t now_ns); /* without a token: what it has waited */
double load_item_tpot_ms(const struct load_item *it); /* 0: fewer than two tokens */

/* What servers tell. */
void load_item_saw_prompt(struct load_item *it, uint32_t n_done);
void load_item_saw_tokens(struct load_item *it, uint32_t n, uint64_t now_ns);
void load_item_saw_end(struct load_item *it, int code, const char *why, size_t why_len, uint64_t now_ns);

/* ---- servers -------------------------------------------------------------------------------------------------- */

struct load_counters { /* what the server says about its device; sums */
	uint64_t step_ns, steps;
	bool calibrated; /* its cost model */
};
struct load_server { /* zero-initialise; ctx NULL: not open */
	void *ctx;
	int (*submit)(void *ctx, struct load_item *it, struct error *e);
	void (*cancel)(void *ctx, struct load_item *it); /* its end comes as an event, or at once */
	int (*wait)(void *ctx, uint64_t until_ns,
		struct error *e); /* takes events; returns after some, or at the time */
	bool (*counters)(void *ctx, struct load_counters *out); /* false: it does not say */
	json_t *(*about)(void *ctx); /* all it says about itself; NULL: nothing. The member may be NULL */
	void (*close)(void *ctx);
};
/* n_clients sessions with the daemon of `s`, each with its own rings. `model` as session_model gave it. */
int load_tenon_open(struct load_server *out, const struct session *s, const char *model, uint32_t n_clients,
	struct error *e);
/* http://HOST[:PORT][/PREFIX] of llama.cpp's server: POST /completion with token ids, streamed. */
int load_http_open(struct load_server *out, const char *url, uint32_t n_clients, struct error *e);
void load_server_close(struct load_server *s);
/* Waits until all of `list` have ended; those that have not by `until_ns` are cancelled. */
int load_drain(struct load_server *s, struct load_item *list, uint64_t until_ns, struct error *e);
/* Sends one and waits for its end; the item is filled also when it failed (its code is not the result). */
int load_ask(struct load_server *s, struct load_item *it, uint64_t until_ns, struct error *e);

/* ---- blocks --------------------------------------------------------------------------------------------------- */

enum { LOAD_MAX_OFFLINE = 256 };
struct load_plan {
	double seconds, patience_s; /* patience: for online requests that are open at the end */
	uint64_t arrivals,
		prompts; /* seeds: equal ones give the same arrivals, and client by client the same prompts */
	double rate;	 /* online arrivals a second; 0: none */
	uint32_t n_online_prompt, n_online_new, online_ttft_ms, online_tpot_ms;
	uint32_t n_offline_clients, n_offline_prompt, n_offline_new; /* clients 0: none */
	const char *progress; /* shown while it runs, from one share to another; NULL: nothing */
	double progress_from, progress_to;
};
struct load_block {			     /* zero-initialise */
	uint64_t start_ns, stop_ns;	     /* what counts for rates; then online requests drain */
	struct load_item *items;	     /* in the order in which they were sent */
	double offline_tokens;		     /* until stop: prompt tokens computed and tokens generated */
	double open_ns, open_before_stop_ns; /* an online request was open */
	struct load_counters used;	     /* the whole block */
	bool has_used;
};
/* Client 0 is the online one, 1.. are offline (at most LOAD_MAX_OFFLINE). Ends early when the session is interrupted; what
 * was measured by then is in `out`. */
int load_run(struct load_server *s, const struct load_text *t, const struct load_plan *p,
	struct load_block *out, struct error *e);
void load_block_free(struct load_block *b);
double load_block_seconds(const struct load_block *b);
/* Share of the block's time in which the device computed. */
double load_block_busy(const struct load_block *b);
#endif
