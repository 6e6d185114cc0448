/* SPDX-License-Identifier: Apache-2.0
 * Prefix cache: a radix tree over token ids whose edges own KV pages, one tree a tenant. Exact tokens are compared,
 * never hashes. A node covers one page of tokens (the last of a chain may be partly filled); a request shares whole pages by
 * reference and gets a copy of a page that it shares only in part. A page in the tree that no sequence uses can be
 * evicted: offline before online, then least recently used, leaves first, pinned ones never. What is evicted may go on
 * in a tier (tier.h) and come back when that is cheaper than computing it again; tokens stay in the tree meanwhile.
 *
 * Groups with a window (pages.h): a page behind the window may be a hole; a prefix then counts only up to the longest
 * length whose window is whole in every group. Of such a group any page that no table refers to can be evicted.
 *
 * Owner: the step thread. Allocates through MEM_KV; a node that cannot be allocated is not cached, nothing fails.
 * A look-up of 8,000 tokens in a tree of 100,000 pages takes at most 50 us.
 */
#ifndef CACHE_KV_PREFIX_H
#define CACHE_KV_PREFIX_H
#include "cache/kv/pages.h"

/* How pages are copied and moved: the backend's functions through model.h, or a simulation's. */
struct prefix_store {
	void *ctx;
	/* first n_tokens of page `from` into `to` */
	int (*copy)(void *ctx, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e);
	/* a page as page_bytes[group] bytes; both NULL: this backend cannot, there are no tiers */
	int (*read)(void *ctx, uint32_t group, uint32_t page, void *out, struct error *e);
	int (*write)(void *ctx, uint32_t group, uint32_t page, const void *in, struct error *e);
	/* clock by which budgets and transfers are measured; NULL: clock_now_ns. A simulation gives its own */
	uint64_t (*now_ns)(void *ctx);
};

struct kv_tier;
struct prefix_config {
	/* filled by the scheduler */
	struct kv_pages *pages;   /* borrowed */
	struct prefix_store store;
	uint32_t window[KV_MAX_GROUPS];
	uint64_t page_bytes[KV_MAX_GROUPS];
	bool invariant; /* equal tokens give equal bits: a page computed twice may be replaced by its twin */
	/* the owner's wishes */
	bool share_tenants;       /* one tree for all: timing tells tenants about each other */
	uint32_t max_pinned_pages; /* of one tenant, in the largest group, in others in proportion; 0: a quarter */
	uint64_t max_node_bytes;  /* memory for nodes; 0: 64 MiB. Old leaves without pages go first */
	struct kv_tier *host, *disk; /* borrowed, may be NULL; evicted pages go to host, then to disk */
};

struct prefix;
struct prefix_node;
int prefix_create(const struct prefix_config *c, struct prefix **out, struct error *e);
void prefix_destroy(struct prefix *p); /* gives its pages back; tiers keep what they have */

/* A small number for a tenant's name; the same name gives the same number. PREFIX_NO_TENANT, for which nothing is ever
 * cached: out of memory, a name of 64 bytes or more, over 65,536 names. */
#define PREFIX_NO_TENANT 0xffffffffu
uint32_t prefix_tenant(struct prefix *p, const char *name);

/* ---- finding and sharing ------------------------------------------------------------------------------------------- */
struct prefix_hit { /* valid until the tree is changed */
	struct prefix_node *node; /* last node shared as a whole; NULL: none */
	struct prefix_node *part; /* node whose first n_part tokens go on with the prompt; NULL: none */
	uint32_t n_whole, n_part; /* tokens: whole pages; more from `part` (needs a page and a copy) */
	uint32_t n_tiered;        /* tokens further on that lie in a tier, whole pages behind n_whole */
	struct prefix_node *tiered; /* the last of these */
	struct prefix_node *safe; /* as `node`; earlier where a window is whole only together with the part */
	uint32_t n_host, n_disk;  /* records to read for n_tiered */
};
/* The longest usable prefix of tokens[0, n). */
void prefix_find(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, struct prefix_hit *hit);
/* Fills an empty table with the hit's pages and marks them used now by this class. Returns tokens covered: n_whole +
 * n_part; n_whole (with windows sometimes less) if there was no page for the copy, even by evicting, or the copy
 * failed. *lease (starts NULL) keeps the nodes from being evicted until prefix_release: release it after the table. */
uint32_t prefix_share(struct prefix *p, const struct prefix_hit *hit, uint32_t traffic_class, uint64_t now_ns,
	struct block_table *t, struct prefix_node **lease);
void prefix_release(struct prefix *p, struct prefix_node **lease);

/* Offers a sequence's pages: KV of tokens[0, n_valid) lies in `t` and is not written again. Offer before trimming
 * windows: what they leave behind may serve others. Nodes come for whole pages not in the tree yet (they
 * take a reference); `last`: also for a partly filled page at the end. The lease moves to the deepest node. With
 * `invariant`, pages of t that the tree holds already are exchanged for the tree's and freed; without, it is the tree that
 * changes if its page is idle, and the lease ends before the first page that the tree and `t` have each their own of. */
void prefix_offer(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n_valid, bool last,
	uint32_t traffic_class, uint64_t now_ns, struct block_table *t, struct prefix_node **lease);

/* ---- giving way ---------------------------------------------------------------------------------------------------- */
/* Evicts until group g has want[g] free pages for all g, or nothing is left to evict; true: there are. */
bool prefix_evict(struct prefix *p, const uint32_t want[KV_MAX_GROUPS], uint64_t now_ns);
/* Pages that eviction could free. */
uint32_t prefix_evictable(const struct prefix *p, uint32_t group);

/* ---- tiers --------------------------------------------------------------------------------------------------------- */
/* Predicted time to bring a hit's tiered tokens back: mean and deviation of restores so far; prefix_tend measures the first
 * read of a tier, before that it is a pessimistic guess. */
uint64_t prefix_restore_ns(const struct prefix *p, const struct prefix_hit *hit);
/* Brings pages back for up to about budget_ns (at least one): reads into scratch, checks, writes into fresh pages, then
 * makes them the tree's. A page that is damaged, cut off or of another making leaves the tree and counts as a miss.
 * Returns the pages restored; find again afterwards. */
uint32_t prefix_restore(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, uint64_t budget_ns,
	uint64_t now_ns);
/* Saves, for up to about budget_ns, pages that would be evicted next. True: there is more to do. */
bool prefix_tend(struct prefix *p, uint64_t budget_ns, uint64_t now_ns);
/* New limits of the tiers, effective at once and to the byte (0: nothing is kept there). */
void prefix_set_limits(struct prefix *p, uint64_t host_bytes, uint64_t disk_bytes);

/* ---- pins and tenants ------------------------------------------------------------------------------------------------ */
/* Pins the whole pages of tokens[0, n) that are cached; the same place again gives the same id, and needs as many unpins.
 * FULL: the tenant's share of pins is used up (names the limit); NOT_FOUND: nothing of it is cached. */
int prefix_pin(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, uint64_t *id, struct error *e);
int prefix_unpin(struct prefix *p, uint64_t id, struct error *e); /* NOT_FOUND */
struct prefix_pin { uint64_t id; const char *tenant; uint32_t n_tokens, n_pages; };
size_t prefix_pins(const struct prefix *p, struct prefix_pin *out, size_t room);
/* Drops everything unused (neither leased nor pinned) of one tenant (NULL: of all), tiers included. Returns pages freed. */
uint64_t prefix_purge(struct prefix *p, const char *tenant);

struct prefix_status {
	uint64_t nodes, node_bytes, pages[KV_MAX_GROUPS], pinned_pages, lookups, hits, hit_tokens, partial_copies;
	uint64_t evicted_pages, saved_pages, restored_pages, tier_misses; /* misses: damaged, foreign, unreadable, disk full */
	uint64_t host_bytes, host_limit_bytes, disk_bytes, disk_limit_bytes;
	uint64_t save_ns, restore_ns; /* sums */
};
void prefix_get_status(const struct prefix *p, struct prefix_status *out);
#endif
