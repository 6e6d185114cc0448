/* SPDX-License-Identifier: Apache-2.0
 * A made-up backend for tests of the prefix cache: each place of a page holds a hash of all tokens up to it, so that a
 * page given to the wrong text shows at once. Sequences compute, share, offer and end as a scheduler would have them.
 */
#ifndef TESTS_KV_WORLD_H
#define TESTS_KV_WORLD_H
#include "cache/kv/prefix.h"
#include "cache/kv/tier.h"
#include "tests/unit/unit.h"

struct world {
	uint32_t n_groups, page_tokens, n_pages[KV_MAX_GROUPS], window[KV_MAX_GROUPS];
	struct kv_pages *pages;
	uint64_t *place[KV_MAX_GROUPS]; /* [n_pages][page_tokens] */
	struct prefix *prefix;
	struct prefix_config config;
	uint64_t now_ns, n_copies, n_reads, n_writes;
	bool starving; /* allocations fail: a table may not get its room */
	uint64_t fail_copy, fail_read, fail_write; /* the n-th call from now fails; 0: none */
};

struct seq {
	uint32_t tenant, traffic_class;
	int32_t *tokens; /* borrowed */
	uint32_t n, computed, shared;
	struct block_table table;
	struct prefix_node *lease;
};

/* Members of w->config that are set before stay; n_groups, page_tokens, n_pages and window are the caller's. */
void world_open(struct world *w);
uint32_t world_begin(struct world *w); /* opens it; the number of a tenant "t" */
void world_reopen(struct world *w); /* another prefix cache over the same pages and tiers */
void world_close(struct world *w);  /* checks that every page came back */
struct kv_tier_config world_tier(const struct world *w, const char *path, uint64_t limit_bytes);

/* Finds and shares what there is for tokens[0, n - 1), and checks what it got. */
void seq_begin(
	struct world *w, struct seq *s, uint32_t tenant, uint32_t traffic_class, int32_t *tokens, uint32_t n);
/* Computes up to `upto` tokens (evicts for pages), gives back what its windows left behind. False: no pages. */
bool seq_compute(struct world *w, struct seq *s, uint32_t upto);
void seq_offer(struct world *w, struct seq *s, bool last);
void seq_check(const struct world *w, const struct seq *s);
void seq_drop(struct world *w, struct seq *s); /* gives everything back without an offer */
/* All of it: begin, compute, offer also the last page, end. Returns how much was shared. */
uint32_t seq_run(struct world *w, uint32_t tenant, uint32_t traffic_class, int32_t *tokens, uint32_t n);
uint32_t world_found(
	struct world *w, uint32_t tenant, const int32_t *tokens, uint32_t n); /* whole and part */
bool world_evict(struct world *w, uint32_t n_more); /* n_more pages of every group */

/* tokens[i] = base + i */
void text_make(int32_t *tokens, uint32_t n, int32_t base);
uint32_t next_random(uint64_t *s, uint32_t below);
#endif
