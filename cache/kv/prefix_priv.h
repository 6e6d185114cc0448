/* SPDX-License-Identifier: Apache-2.0
 * Inside of the prefix cache. A node is one page of tokens below the page before it; the root of a tenant holds none.
 * Siblings are sorted by tokens and none is the beginning of another, so that the longest common prefix with any text
 * is that with one of two neighbours.
 *
 * Order of giving way: a path is guarded from root to leaf while somebody leases or pinned it. When the last guard goes,
 * its nodes are put to the front of a list, leaf first; so whatever hangs below a node always stands behind it, and the
 * end of a list is the one that was used longest ago and has nothing below that is worth more. No clock is needed.
 * Pages of groups with a window leave one by one, in an order of their own (prefix_evict.c).
 * Owner: the step thread.
 */
#ifndef CACHE_KV_PREFIX_PRIV_H
#define CACHE_KV_PREFIX_PRIV_H
#include "cache/kv/prefix.h"
#include "cache/kv/tier.h"
#include <stddef.h>

enum { TIER_HOST, TIER_DISK, N_TIERS };
enum { AHEAD = 4 };	/* levels: a walk waits for memory at every node otherwise */
enum { N_CLASSES = 2 }; /* 0 online, 1 offline */
enum node_list { LIST_NONE, LIST_ONLINE, LIST_OFFLINE, LIST_GHOSTS, N_NODE_LISTS };
enum tier_room { ROOM_FREE, ROOM_OF_GHOSTS, ROOM_ANY }; /* at whose cost a record may be kept */
enum { CHAIN_BYTES = 32, TENANT_BYTES = sizeof((struct kv_record *)0)->tenant };
#define MAX_NODE_BYTES_DEFAULT (UINT64_C(64) << 20)

struct ring {
	struct ring *prev, *next;
};

/* What a walk down the tree reads stands together, next to the tokens. */
struct prefix_node {
	struct ring lru, all, tier[N_TIERS];
	uint8_t chain[CHAIN_BYTES]; /* hash of tenant and tokens before; only with tiers */
	uint32_t slot[N_TIERS];
	uint32_t tenant, pin_tenant; /* who offered it; who pays for the pin */
	uint32_t n_pinned;	     /* pins here and below */
	uint8_t list;
	uint8_t kept[N_TIERS];	    /* groups in the record; 0: no record */
	struct prefix_node *parent; /* NULL: a root */
	union {
		struct prefix_node *one, **many;
	} child; /* sorted by tokens; one: cap_child is 0 */
	uint32_t n_child, cap_child;
	const struct prefix_node
		*ahead;		  /* what was made AHEAD levels below last; for prefetching, never followed */
	uint32_t first, n_tokens; /* positions [first, first + n_tokens) */
	uint32_t page[KV_MAX_GROUPS];
	uint32_t n_guards; /* leases and pins here and below */
	uint8_t have;	   /* bit g: page[g] is there */
	uint8_t traffic_class;
	int32_t tokens[]; /* room for a page */
};

/* Pages of a group with a window, by number; entries n and n + 1 are the heads of the classes' lists. */
struct window_page {
	uint32_t prev, next;
	struct prefix_node *owner;
};

struct tenant {
	char name[TENANT_BYTES];
	struct prefix_node *root; /* NULL: uses tenant 0's (share_tenants) */
	uint32_t pinned[KV_MAX_GROUPS];
};

struct pin {
	uint64_t id;
	struct prefix_node *node;
	uint32_t tenant, count;
	uint32_t held[KV_MAX_GROUPS]; /* pages of windows */
};

struct tier {
	struct kv_tier *t;	    /* NULL: none */
	struct prefix_node **owner; /* [cap] by slot */
	uint32_t cap;
	struct ring kept;		/* front: lately saved, evicted or restored */
	uint64_t mean_ns, deviation_ns; /* of bringing back one record; 0: not measured */
};

struct prefix {
	struct prefix_config c;
	struct kv_pages *pages;
	uint32_t n_groups, page_tokens;
	uint8_t whole, windowed; /* groups without and with a window, as masks */
	struct tenant *tenant;
	uint32_t *by_name; /* tenants' numbers, sorted by name */
	uint32_t n_tenants, cap_tenants;
	struct ring list[N_NODE_LISTS], all;
	uint32_t evictable[KV_MAX_GROUPS]; /* of groups without a window */
	struct window_page *window[KV_MAX_GROUPS];
	struct tier tier[N_TIERS];
	uint8_t *scratch_out, *scratch_in; /* a record each: going to a tier, coming from one */
	struct prefix_node **chain;
	uint32_t cap_chain;
	bool tend; /* nodes came to a list that may have to be saved */
	struct pin *pin;
	size_t n_pins, cap_pins;
	uint64_t last_pin;
	struct prefix_status status;
};

/* ---- prefix_node.c --------------------------------------------------------------------------------------------------- */
#define NODE_OF(ring_, member) ((struct prefix_node *)((char *)(ring_)-offsetof(struct prefix_node, member)))
void ring_init(struct ring *r);
void ring_unlink(struct ring *r);
void ring_push(struct ring *head, struct ring *r);

static inline uint32_t node_end(const struct prefix_node *n) { return n->first + n->n_tokens; }
struct prefix_node *node_create(struct prefix *p, struct prefix_node *parent, uint32_t tenant,
	const int32_t *tokens,
	uint32_t n_tokens); /* below a guarded parent (or a root); NULL: out of memory */
void node_extend(struct prefix *p, struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens);
void node_remove(
	struct prefix *p, struct prefix_node *n); /* no children, no guards; gives back what it has */
void node_prune(
	struct prefix *p, struct prefix_node *n); /* removes it, and then its parents, as far as useless */
/* The child that shares most with tokens[0, n): *common of them, at least one; else NULL. */
struct prefix_node *node_child(
	const struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens, uint32_t *common);
void node_unlist(struct prefix *p, struct prefix_node *n);
void node_list(
	struct prefix *p, struct prefix_node *n); /* to the front of the list where it belongs, if any */
void node_guard(struct prefix *p, struct prefix_node *n); /* this one alone */
void path_guard(struct prefix *p, struct prefix_node *n); /* up to the root */
void path_unguard(struct prefix *p, struct prefix_node *n);
void path_set_class(struct prefix *p, struct prefix_node *n, uint32_t traffic_class); /* guarded */
void node_attach(
	struct prefix *p, struct prefix_node *n, uint32_t group, uint32_t page); /* takes a reference */
void node_detach(struct prefix *p, struct prefix_node *n, uint32_t group);
void chain_root(const struct prefix *p, const struct tenant *t, uint8_t out[CHAIN_BYTES]);
void chain_next(
	const uint8_t chain[CHAIN_BYTES], const int32_t *tokens, uint32_t n_tokens, uint8_t out[CHAIN_BYTES]);

/* ---- prefix.c -------------------------------------------------------------------------------------------------------- */
struct prefix_node *tenant_root(const struct prefix *p, uint32_t tenant); /* NULL: no such tenant */
/* Groups that `n` must have for a prefix of `length` tokens. */
uint8_t groups_needed(const struct prefix *p, const struct prefix_node *n, uint32_t length);

/* ---- prefix_find.c, prefix_pin.c ------------------------------------------------------------------------------------- */
void hit_find(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, struct prefix_hit *hit);
void pins_finish(struct prefix *p);

/* ---- prefix_evict.c -------------------------------------------------------------------------------------------------- */
void window_link(struct prefix *p, struct prefix_node *n, uint32_t group);
void window_unlink(struct prefix *p, const struct prefix_node *n, uint32_t group);
void window_touch(struct prefix *p, struct prefix_node *n, uint32_t groups); /* used now */
bool evict_any_node(struct prefix *p); /* a leaf with all it has, to make room for another node */

/* ---- prefix_save.c, prefix_rebuild.c --------------------------------------------------------------------------------- */
bool tiers_init(struct prefix *p, struct error *e);
void tiers_finish(struct prefix *p);
void tiers_rebuild(struct prefix *p); /* nodes for what is found in the disk tier */
bool tier_any(const struct prefix *p);
bool node_is_saved(const struct prefix_node *n); /* all that it has, in one record */
/* Into a tier that has or can make room; leaving: its pages go now, else only at the cost of nodes that have none. True: it
 * is there now. */
bool node_save(struct prefix *p, struct prefix_node *n, bool leaving);
void node_drop_record(struct prefix *p, struct prefix_node *n, uint32_t tier);
void tier_touch(struct prefix *p, struct prefix_node *n);
void tier_own(struct prefix *p, struct prefix_node *n, uint32_t tier, uint32_t slot, uint8_t groups);
void tier_disown(struct prefix *p, struct prefix_node *n, uint32_t tier);
bool tier_reserve(struct prefix *p, uint32_t tier, uint32_t slot); /* room to note the owner of this slot */
uint64_t prefix_now_ns(const struct prefix *p);
struct kv_record node_record(const struct prefix *p, const struct prefix_node *n, uint8_t groups);
void record_scratch(const struct prefix *p, uint8_t groups, uint8_t *scratch, void *data[KV_MAX_GROUPS]);
#endif
