/* SPDX-License-Identifier: Apache-2.0
 * Nodes for records that a tier has from an earlier life. Records come with parents before children; a table from the
 * hash behind a node to the node finds the parent. What has no parent, or is not what its hash says, is dropped.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

struct by_end { /* open addressing over the hash of all tokens up to a node's end */
	struct prefix_node **slot;
	uint32_t mask; /* a power of two - 1, at least twice the records */
};

static uint32_t hash_start(const struct by_end *t, const uint8_t end[CHAIN_BYTES])
{
	uint32_t h;

	memcpy(&h, end, sizeof h);
	return h & t->mask;
}

static void end_hash(const struct prefix_node *n, uint8_t out[CHAIN_BYTES])
{
	chain_next(n->chain, n->tokens, n->n_tokens, out);
}

static void table_add(struct by_end *t, struct prefix_node *n)
{
	uint8_t end[CHAIN_BYTES];
	uint32_t i;

	end_hash(n, end);
	for (i = hash_start(t, end); t->slot[i]; i = (i + 1) & t->mask)
		if (t->slot[i] == n)
			return;
	t->slot[i] = n;
}

static struct prefix_node *table_find(const struct by_end *t, const uint8_t end[CHAIN_BYTES])
{
	uint8_t have[CHAIN_BYTES];

	for (uint32_t i = hash_start(t, end); t->slot[i]; i = (i + 1) & t->mask) {
		end_hash(t->slot[i], have);
		if (!memcmp(have, end, CHAIN_BYTES))
			return t->slot[i];
	}
	return NULL;
}

static struct prefix_node *find_parent(
	struct prefix *p, const struct by_end *t, const struct kv_record *r, uint32_t tenant)
{
	struct prefix_node *root = tenant_root(p, tenant), *parent;

	if (!root)
		return NULL;
	if (!r->first)
		return memcmp(root->chain, r->chain, CHAIN_BYTES) ? NULL : root;
	parent = table_find(t, r->chain);
	return parent && node_end(parent) == r->first && parent->n_tokens == p->page_tokens ? parent : NULL;
}

/* The node of a record: there already from another tier, or new. No old node is dropped for it. */
static struct prefix_node *adopt(
	struct prefix *p, struct prefix_node *parent, const struct kv_record *r, uint32_t tenant)
{
	uint64_t room = sizeof(struct prefix_node) + 3 * p->page_tokens * sizeof(int32_t) + 64;
	uint32_t common, cap = parent->cap_child * 2;
	struct prefix_node *n = node_child(parent, r->tokens, r->n_tokens, &common);

	if (n && (common == r->n_tokens || common == n->n_tokens))
		return n->n_tokens == r->n_tokens ? n : NULL;
	if (p->status.node_bytes + room + cap * sizeof(struct prefix_node *) > p->c.max_node_bytes)
		return NULL;
	n = node_create(p, parent, tenant, r->tokens, r->n_tokens);
	if (!n)
		return NULL;
	node_list(p, n);
	path_set_class(p, n, MIN_OF(r->traffic_class, N_CLASSES - 1));
	return n;
}

/* Leaves first out: deeper ones stand nearer to the end of the lists. */
static void put_last(struct ring *head, struct ring *r)
{
	ring_unlink(r);
	ring_push(head->prev, r);
}

static void rebuild_record(
	struct prefix *p, uint32_t tier, uint32_t slot, const struct kv_record *r, struct by_end *t)
{
	uint32_t tenant = prefix_tenant(p, r->tenant);
	struct prefix_node *parent = find_parent(p, t, r, tenant), *n = NULL;

	if (parent && tier_reserve(p, tier, slot))
		n = adopt(p, parent, r, tenant);
	if (!n || n->kept[tier]) {
		kv_tier_drop(p->tier[tier].t, slot);
		return;
	}
	tier_own(p, n, tier, slot, (uint8_t)r->groups);
	put_last(&p->tier[tier].kept, &n->tier[tier]);
	put_last(&p->list[n->list], &n->lru);
	table_add(t, n);
}

static void rebuild_tier(struct prefix *p, uint32_t tier, struct by_end *t, int32_t *tokens)
{
	struct kv_record r;
	uint32_t slot = KV_TIER_NONE;

	while (kv_tier_each(p->tier[tier].t, &slot, &r, tokens))
		rebuild_record(p, tier, slot, &r, t);
}

/* Records that no node has would never make room. */
static void forget_all(struct prefix *p)
{
	struct kv_tier_status s;

	for (uint32_t i = 0; i < N_TIERS; i++)
		if (p->tier[i].t) {
			kv_tier_get_status(p->tier[i].t, &s);
			kv_tier_set_limit(p->tier[i].t, 0, NULL, NULL, NULL);
			kv_tier_set_limit(p->tier[i].t, s.limit_bytes, NULL, NULL, NULL);
		}
}

void tiers_rebuild(struct prefix *p)
{
	struct kv_tier_status s;
	struct by_end t = { 0 };
	uint64_t records = 0;
	int32_t *tokens;

	for (uint32_t i = 0; i < N_TIERS; i++)
		if (p->tier[i].t) {
			kv_tier_get_status(p->tier[i].t, &s);
			records += s.records;
		}
	if (!records || records > UINT32_MAX / 4)
		return;
	while (t.mask < records * 2)
		t.mask = t.mask * 2 + 1;
	t.slot = mem_zalloc(MEM_KV, (size_t)t.mask + 1, sizeof(struct prefix_node *));
	tokens = mem_zalloc(MEM_KV, p->page_tokens, sizeof *tokens);
	for (uint32_t i = 0; t.slot && tokens && i < N_TIERS; i++)
		if (p->tier[i].t)
			rebuild_tier(p, i, &t, tokens);
	if (!t.slot || !tokens)
		forget_all(p);
	mem_free(t.slot);
	mem_free(tokens);
}
