/* SPDX-License-Identifier: Apache-2.0
 * What a loaded model takes, item by item, known before anything is allocated: model_open refuses by it, `tenon plan`
 * prints it. Sizes of weights, workspace and pages come from the backend, the rest from the same layouts that the code
 * allocates by. Memory that is never touched (rows of logits of sequences that are not there) is not counted.
 */
#ifndef ENGINE_LEDGER_H
#define ENGINE_LEDGER_H
#include "base/error.h"
#include "engine/backends.h"
#include <stdbool.h>
#include <stdint.h>
#include <tenon/plugin.h>

/* X(name, key in JSON, for people), in the order of printing */
#define LEDGER_ITEMS(X)                                                                                      \
	X(WEIGHTS_MAPPED, "weights_mapped", "weights, read in the mapped file")                              \
	X(WEIGHTS_OWN, "weights_own", "weights, the backend's own")                                          \
	X(WORKSPACE, "workspace", "workspace, activations included")                                         \
	X(STEP, "step", "lists of a step")                                                                   \
	X(ROWS, "rows", "rows of logits")                                                                    \
	X(KV, "kv", "keys and values")                                                                       \
	X(TEXT, "text", "tokenizer, template, graph")                                                        \
	X(SEQS, "sequences", "tokens and samplers of sequences")                                             \
	X(PREFIX, "prefix", "prefix tree")                                                                   \
	X(TIER, "host_tier", "pages kept in host memory")                                                    \
	X(BASE, "base", "daemon and worker themselves")

enum ledger_item {
#define X(name, key, text) LEDGER_##name,
	LEDGER_ITEMS(X)
#undef X
		LEDGER_N
};

struct model;
struct model_info;

struct ledger_ask {	/* zero members: the defaults of model_open */
	uint32_t n_ctx; /* 0: the model's */
	uint32_t
		n_sessions; /* sequences of n_ctx tokens that the pool holds; 0: kv_bytes or the default pool */
	uint64_t kv_bytes;	  /* of the pool, where n_sessions is 0 */
	uint64_t host_tier_bytes; /* limit of the tier in host memory */
	bool least;		  /* the smallest pool that holds one sequence */
};

struct ledger {
	uint64_t bytes[LEDGER_N];
	uint64_t total; /* of all items */
	uint64_t
		loaded; /* without the processes themselves: what model_open weighs against the memory that is left */
	uint64_t peak;	/* beyond `loaded`, for a moment while opening */
	uint64_t arena; /* of the workspace: activations by lifetimes */
	uint64_t n_pages[TNP_MAX_GROUPS];
	struct tnp_sizes sizes;			/* sums over the parts (model_part_at) */
	struct tnp_sizes part[MODEL_MAX_PARTS]; /* of each, kv_page by groups of its own */
	uint64_t part_kv[MODEL_MAX_PARTS];	/* its pages, of LEDGER_KV */
};

/* TOO_LONG: more than 2^64 bytes or 2^32 pages; what the backend's model_sizes says. */
int ledger_make(const struct model *m, const struct ledger_ask *a, struct ledger *out, struct error *e);

/* Pages of a group that n_seqs sequences of n_tokens hold at most at a time, if those behind a window are given back
 * after each step: windowed groups need the window, and the tokens of one step on top for all together. */
uint64_t ledger_pages(const struct model_info *i, uint32_t group, uint64_t n_tokens, uint32_t n_seqs);

/* The most whose ledger is at most `budget` (total; with `loaded_only` loaded and peak); 0: none. Contexts come in whole
 * pages, up to the model's own. */
uint32_t ledger_most_context(
	const struct model *m, const struct ledger_ask *a, uint64_t budget, bool loaded_only);
uint32_t ledger_most_sessions(
	const struct model *m, const struct ledger_ask *a, uint64_t budget, bool loaded_only);

/* OK, or NOMEM that tells the shortfall and the largest settings that would fit. */
int ledger_check(const struct model *m, const struct ledger_ask *a, const struct ledger *l,
	uint64_t available, struct error *e);

const char *ledger_key(enum ledger_item i);
const char *ledger_text(enum ledger_item i);

/* Bytes that this process may still take: what the kernel calls available, less where a control group allows less. */
uint64_t memory_available(void);
/* "1.5 GiB" */
void memory_text(uint64_t bytes, char *out, size_t room);
#endif
