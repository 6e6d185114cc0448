/* SPDX-License-Identifier: Apache-2.0
 * From tiers back into the tree: restoring a path, saving ahead in idle time, rebuilding after a start, new limits. A record
 * is read into scratch and checked before a page is taken for it; a page is the tree's only when all of it is written.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

/* ---- how long it takes ----------------------------------------------------------------------------------------------- */
static void measured(struct tier *t, uint64_t ns)
{
	uint64_t off = ns > t->mean_ns ? ns - t->mean_ns : t->mean_ns - ns;

	if (!t->mean_ns) {
		t->mean_ns = MAX_OF(ns, 1);
		return;
	}
	t->deviation_ns = (3 * t->deviation_ns + off) / 4;
	t->mean_ns = MAX_OF((7 * t->mean_ns + ns) / 8, 1);
}

/* Before the first read: a slow disk, slow memory. */
static uint64_t predicted_ns(const struct prefix *p, uint32_t tier)
{
	const struct tier *t = &p->tier[tier];
	uint64_t bytes = 0;

	if (t->mean_ns)
		return t->mean_ns + t->deviation_ns;
	for (uint32_t g = 0; g < p->n_groups; g++)
		bytes += p->c.page_bytes[g];
	return tier == TIER_DISK ? NS_PER_MS + bytes * 10 : bytes * 2;
}

uint64_t prefix_restore_ns(const struct prefix *p, const struct prefix_hit *hit)
{
	return hit->n_host * predicted_ns(p, TIER_HOST) + hit->n_disk * predicted_ns(p, TIER_DISK);
}

/* ---- one node ------------------------------------------------------------------------------------------------------ */
static bool record_get(struct prefix *p, struct prefix_node *n, uint32_t tier)
{
	struct kv_record r = node_record(p, n, n->kept[tier]);
	void *data[KV_MAX_GROUPS];

	record_scratch(p, n->kept[tier], p->scratch_in, data);
	if (!kv_tier_get(p->tier[tier].t, n->slot[tier], &r, data, NULL))
		return true;
	p->status.tier_misses++;
	node_drop_record(p, n, tier);
	return false;
}

static bool take_pages(struct prefix *p, uint8_t groups, uint32_t page[KV_MAX_GROUPS])
{
	uint32_t want[KV_MAX_GROUPS];

	for (uint32_t g = 0; g < p->n_groups; g++)
		want[g] = groups >> g & 1u;
	if (!prefix_evict(p, want, 0))
		return false;
	for (uint32_t g = 0; g < p->n_groups; g++)
		page[g] = want[g] ? kv_page_take(p->pages, g) : KV_NO_PAGE;
	return true;
}

static bool write_pages(struct prefix *p, uint8_t groups, const uint32_t page[KV_MAX_GROUPS])
{
	void *data[KV_MAX_GROUPS];

	record_scratch(p, groups, p->scratch_in, data);
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (data[g] && p->c.store.write(p->c.store.ctx, g, page[g], data[g], NULL))
			return false;
	return true;
}

/* Attaching takes a reference of its own; the one of taking is given back, whether the page is wanted or not. */
static bool swap_in(struct prefix *p, struct prefix_node *n, uint8_t groups, uint32_t tier)
{
	uint32_t page[KV_MAX_GROUPS];
	bool ok;

	if (!take_pages(p, groups, page))
		return false;
	ok = write_pages(p, groups, page);
	for (uint32_t g = 0; g < p->n_groups; g++) {
		if (ok && groups & 1u << g)
			node_attach(p, n, g, page[g]);
		kv_page_unref(p->pages, g, page[g]);
	}
	if (ok) {
		p->status.restored_pages += (uint64_t)__builtin_popcount(groups);
		return true;
	}
	p->status.tier_misses++;
	node_drop_record(p, n, tier);
	return false;
}

/* A guarded node: making room for it cannot take it away. */
static bool node_restore(struct prefix *p, struct prefix_node *n, uint8_t missing)
{
	for (uint32_t i = 0; i < N_TIERS; i++) {
		uint64_t start_ns = prefix_now_ns(p), ns;
		bool ok;

		if (missing & ~n->kept[i] || !record_get(p, n, i))
			continue;
		ok = swap_in(p, n, missing, i);
		ns = prefix_now_ns(p) - start_ns;
		p->status.restore_ns += ns;
		if (ok)
			measured(&p->tier[i], ns);
		return ok;
	}
	return false;
}

/* ---- a path -------------------------------------------------------------------------------------------------------- */
static bool chain_room(struct prefix *p, uint32_t n)
{
	struct prefix_node **chain;

	if (n <= p->cap_chain)
		return true;
	chain = mem_resize(MEM_KV, p->chain, (size_t)n * sizeof(struct prefix_node *));
	if (!chain)
		return false;
	p->chain = chain;
	p->cap_chain = n;
	return true;
}

/* The nodes that miss something on the way to `at`, from the root on, in p->chain. The disk hears of its part. */
static uint32_t collect_missing(struct prefix *p, struct prefix_node *at)
{
	uint32_t n_chain = 0, length = node_end(at);

	for (struct prefix_node *n = at; n->parent; n = n->parent) {
		uint8_t needed = groups_needed(p, n, length);

		window_touch(p, n, needed & n->have);
		if (needed & ~n->have)
			p->chain[n_chain++] = n;
	}
	for (uint32_t i = 0; i < n_chain / 2; i++) {
		struct prefix_node *n = p->chain[i];

		p->chain[i] = p->chain[n_chain - 1 - i];
		p->chain[n_chain - 1 - i] = n;
	}
	return n_chain;
}

static void hint_some(struct prefix *p, uint32_t n_chain)
{
	uint32_t slots[64], n = 0;

	for (uint32_t i = 0; i < n_chain && n < COUNT_OF(slots); i++)
		if (!p->chain[i]->kept[TIER_HOST] && p->chain[i]->kept[TIER_DISK])
			slots[n++] = p->chain[i]->slot[TIER_DISK];
	if (n)
		kv_tier_hint(p->tier[TIER_DISK].t, slots, n);
}

uint32_t prefix_restore(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n,
	uint64_t budget_ns, uint64_t now_ns)
{
	uint64_t start_ns = prefix_now_ns(p), before = p->status.restored_pages;
	struct prefix_node *failed = NULL;
	struct prefix_hit hit;
	uint32_t n_chain, length;

	(void)now_ns;
	hit_find(p, tenant, tokens, n, &hit);
	if (!hit.tiered || !chain_room(p, node_end(hit.tiered) / p->page_tokens))
		return 0;
	path_guard(p, hit.tiered);
	length = node_end(hit.tiered);
	n_chain = collect_missing(p, hit.tiered);
	hint_some(p, n_chain);
	for (uint32_t i = 0; i < n_chain && !failed; i++) {
		struct prefix_node *at = p->chain[i];

		if (i && prefix_now_ns(p) - start_ns >= budget_ns)
			break;
		if (!node_restore(p, at, groups_needed(p, at, length) & (uint8_t)~at->have))
			failed = at;
		else
			tier_touch(p, at);
	}
	path_unguard(p, hit.tiered);
	if (failed)
		node_prune(p, failed);
	return (uint32_t)(p->status.restored_pages - before);
}

/* ---- idle time ----------------------------------------------------------------------------------------------------- */
/* One first read of each tier, so that predictions do not rest on a guess. */
static void probe(struct prefix *p)
{
	for (uint32_t i = 0; i < N_TIERS; i++) {
		struct tier *t = &p->tier[i];
		struct prefix_node *n;
		uint64_t start_ns;

		if (t->mean_ns || t->kept.next == &t->kept)
			continue;
		n = NODE_OF(t->kept.next, tier[i]);
		kv_tier_make_cold(t->t, n->slot[i]);
		start_ns = prefix_now_ns(p);
		if (record_get(p, n, i))
			measured(t, prefix_now_ns(p) - start_ns);
		else
			node_prune(p, n);
	}
}

bool prefix_tend(struct prefix *p, uint64_t budget_ns, uint64_t now_ns)
{
	static const enum node_list order[] = { LIST_OFFLINE, LIST_ONLINE };
	uint64_t start_ns = prefix_now_ns(p);

	(void)now_ns;
	if (!tier_any(p) || !p->tend)
		return false;
	for (size_t i = 0; i < COUNT_OF(order); i++) {
		struct ring *head = &p->list[order[i]];

		for (struct ring *r = head->prev; r != head; r = r->prev) {
			struct prefix_node *n = NODE_OF(r, lru);

			if (node_is_saved(n))
				continue;
			if (!node_save(p, n, false))
				goto done;
			if (prefix_now_ns(p) - start_ns >= budget_ns)
				return true;
		}
	}
done:
	p->tend = false;
	probe(p);
	return false;
}

/* ---- limits -------------------------------------------------------------------------------------------------------- */
struct limit_change {
	struct prefix *p;
	uint32_t tier;
};

static void record_gone(void *ctx, uint32_t slot)
{
	struct limit_change *c = ctx;
	struct tier *t = &c->p->tier[c->tier];
	struct prefix_node *n = slot < t->cap ? t->owner[slot] : NULL;

	if (!n)
		return;
	tier_disown(c->p, n, c->tier);
	node_prune(c->p, n);
}

static void record_moved(void *ctx, uint32_t from, uint32_t to)
{
	struct limit_change *c = ctx;
	struct tier *t = &c->p->tier[c->tier];

	if (from >= t->cap || !t->owner[from])
		return;
	t->owner[to] = t->owner[from];
	t->owner[from] = NULL;
	t->owner[to]->slot[c->tier] = to;
}

void prefix_set_limits(struct prefix *p, uint64_t host_bytes, uint64_t disk_bytes)
{
	uint64_t bytes[N_TIERS] = { [TIER_HOST] = host_bytes, [TIER_DISK] = disk_bytes };

	for (uint32_t i = 0; i < N_TIERS; i++) {
		struct limit_change c = { p, i };

		if (p->tier[i].t)
			kv_tier_set_limit(p->tier[i].t, bytes[i], record_gone, record_moved, &c);
	}
	p->tend = true;
}
