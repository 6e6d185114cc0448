/* SPDX-License-Identifier: Apache-2.0
 * Finding the longest usable prefix and giving its pages to a sequence. A walk down the tree, one node a page; a length
 * is usable if every group without a window has all pages and every other one those within reach of the next token.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

/* What one walk knows: for each group with a window, the first page of the unbroken row that ends here. */
struct reach {
	bool whole; /* groups without a window: unbroken from the start */
	uint32_t row[KV_MAX_GROUPS];
};

static void reach_step(const struct prefix *p, struct reach *r, uint8_t have, uint32_t i)
{
	r->whole = r->whole && !(p->whole & ~have);
	for (uint32_t g = 0; p->windowed && g < p->n_groups; g++)
		if (!(have & 1u << g))
			r->row[g] = i + 1;
}

/* The next token, at `length`, sees [length - window + 1, length). */
static bool reach_holds(const struct prefix *p, const struct reach *r, uint32_t length)
{
	if (!r->whole)
		return false;
	for (uint32_t g = 0; p->windowed && g < p->n_groups; g++) {
		uint64_t start = (uint64_t)r->row[g] * p->page_tokens;

		if (p->windowed & 1u << g && start && start + p->c.window[g] > (uint64_t)length + 1)
			return false;
	}
	return true;
}

/* Records to read until `n` can be used. */
static void count_records(const struct prefix *p, struct prefix_hit *hit)
{
	uint32_t length = hit->n_whole + hit->n_tiered;

	for (const struct prefix_node *n = hit->tiered; n->parent; n = n->parent) {
		uint8_t missing = groups_needed(p, n, length) & (uint8_t)~n->have;

		if (!missing)
			continue;
		if (n->kept[TIER_HOST] && !(missing & ~n->kept[TIER_HOST]))
			hit->n_host++;
		else
			hit->n_disk++;
	}
}

/* Groups that one record or the pages have: a node is brought back from one record only. */
static uint8_t reachable(const struct prefix_node *n)
{
	uint8_t host = n->have | n->kept[TIER_HOST], disk = n->have | n->kept[TIER_DISK];

	return (host & disk) == disk ? host : disk;
}

/* A page of which only a beginning goes on with the text: worth a copy if a prefix can end there. The window of that end
 * may be whole where that of the last page's end is not: then the two are taken together or not at all. */
static void walk_part(const struct prefix *p, struct prefix_node *c, uint32_t common, const struct reach *r,
	uint32_t i, struct prefix_hit *hit)
{
	struct reach with = *r;

	reach_step(p, &with, c->have, i);
	if (!reach_holds(p, &with, c->first + common) || (p->whole | p->windowed) & ~c->have)
		return;
	hit->part = c;
	hit->n_part = common;
	hit->n_whole = c->first;
	hit->node = c->parent->parent ? c->parent : NULL;
}

static void walk(struct prefix *p, struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens,
	struct prefix_hit *hit)
{
	struct reach now = { .whole = true }, later = { .whole = true };
	bool tiers = tier_any(p);
	uint32_t common = 0;

	for (uint32_t i = 0; node_end(n) < n_tokens; i++) {
		struct prefix_node *c = node_child(n, tokens + node_end(n), n_tokens - node_end(n), &common);

		if (!c)
			return;
		if (common < p->page_tokens) {
			walk_part(p, c, common, &now, i, hit);
			return;
		}
		reach_step(p, &now, c->have, i);
		if (reach_holds(p, &now, node_end(c))) {
			hit->n_whole = node_end(c);
			hit->node = hit->safe = c;
		}
		if (tiers) {
			reach_step(p, &later, reachable(c), i);
			if (reach_holds(p, &later, node_end(c)))
				hit->tiered = c;
		} else if (!now.whole) {
			return;
		}
		n = c;
	}
}

void hit_find(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, struct prefix_hit *hit)
{
	struct prefix_node *root = tenant_root(p, tenant);

	*hit = (struct prefix_hit){ 0 };
	if (root)
		walk(p, root, tokens, n, hit);
	if (!hit->tiered || node_end(hit->tiered) <= hit->n_whole) {
		hit->tiered = NULL;
		return;
	}
	hit->n_tiered = node_end(hit->tiered) - hit->n_whole;
	count_records(p, hit);
}

void prefix_find(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, struct prefix_hit *hit)
{
	p->status.lookups++;
	hit_find(p, tenant, tokens, n, hit);
}

/* ---- sharing ------------------------------------------------------------------------------------------------------- */
/* Rows of whole pages, from the last to the first; holes where the window of a token at `length` does not reach. */
static void table_fill(struct prefix *p, struct prefix_node *n, uint32_t length, struct block_table *t)
{
	t->n_pages = node_end(n) / p->page_tokens;
	for (; n->parent; n = n->parent) {
		uint32_t row = n->first / p->page_tokens;
		uint8_t needed = groups_needed(p, n, length);

		for (uint32_t g = 0; g < p->n_groups; g++) {
			t->page[g][row] = KV_NO_PAGE;
			if (!(needed & n->have & 1u << g))
				continue;
			t->page[g][row] = n->page[g];
			kv_page_ref(p->pages, g, n->page[g]);
		}
		if (needed & p->windowed)
			window_touch(p, n, needed & n->have);
	}
}

static void table_drop_last(struct prefix *p, struct block_table *t)
{
	t->n_pages--;
	for (uint32_t g = 0; g < p->n_groups; g++)
		kv_page_unref(p->pages, g, t->page[g][t->n_pages]);
}

/* A copy of the part's first tokens in fresh pages at the end of the table; makes room for them if need be. */
static bool copy_part(struct prefix *p, struct prefix_node *part, uint32_t n_tokens, struct block_table *t)
{
	uint32_t want[KV_MAX_GROUPS] = { 0 }, row = t->n_pages;

	for (uint32_t g = 0; g < p->n_groups; g++)
		want[g] = 1;
	if (!prefix_evict(p, want, 0) || block_table_cover(t, p->pages, (uint64_t)(row + 1) * p->page_tokens))
		return false;
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (p->c.store.copy(p->c.store.ctx, g, part->page[g], t->page[g][row], n_tokens, NULL)) {
			table_drop_last(p, t);
			return false;
		}
	p->status.partial_copies++;
	return true;
}

/* The part's pages may not leave while room for the copy is made: those of a window are held by a reference. */
static uint32_t share_part(
	struct prefix *p, const struct prefix_hit *hit, uint32_t traffic_class, struct block_table *t)
{
	struct prefix_node *part = hit->part;
	uint32_t page[KV_MAX_GROUPS], n = 0;

	path_guard(p, part);
	memcpy(page, part->page, sizeof page);
	for (uint32_t g = 0; g < p->n_groups; g++)
		kv_page_ref(p->pages, g, page[g]);
	if (copy_part(p, part, hit->n_part, t)) {
		n = hit->n_part;
		path_set_class(p, part, traffic_class);
	}
	for (uint32_t g = 0; g < p->n_groups; g++)
		kv_page_unref(p->pages, g, page[g]);
	path_unguard(p, part);
	return n;
}

static void share_whole(struct prefix *p, struct prefix_node *n, uint32_t length, uint32_t traffic_class,
	struct block_table *t, struct prefix_node **lease)
{
	if (!n)
		return;
	path_guard(p, n);
	path_set_class(p, n, traffic_class);
	*lease = n;
	table_fill(p, n, length, t);
}

/* What was taken with a part that could not be copied, and has no use without it. */
static uint32_t share_safe(struct prefix *p, const struct prefix_hit *hit, uint32_t traffic_class,
	struct block_table *t, struct prefix_node **lease)
{
	struct prefix_node *all = *lease;

	for (uint32_t row = t->n_pages; row-- > 0;)
		table_drop_last(p, t);
	*lease = NULL;
	share_whole(p, hit->safe, hit->safe ? node_end(hit->safe) : 0, traffic_class, t, lease);
	prefix_release(p, &all);
	return hit->safe ? node_end(hit->safe) : 0;
}

uint32_t prefix_share(struct prefix *p, const struct prefix_hit *hit, uint32_t traffic_class, uint64_t now_ns,
	struct block_table *t, struct prefix_node **lease)
{
	bool together = hit->node != hit->safe;
	uint32_t n = hit->n_whole, n_part = 0;

	(void)now_ns;
	if (t->n_pages || *lease ||
		block_table_reserve(t, p->pages, hit->n_whole / p->page_tokens + (hit->n_part != 0)))
		return 0;
	share_whole(p, hit->node, together ? n + hit->n_part : n, traffic_class, t, lease);
	if (hit->n_part)
		n_part = share_part(p, hit, traffic_class, t);
	if (!n_part && together)
		n = share_safe(p, hit, traffic_class, t, lease);
	p->status.hits += n + n_part != 0;
	p->status.hit_tokens += n + n_part;
	return n + n_part;
}

void prefix_release(struct prefix *p, struct prefix_node **lease)
{
	struct prefix_node *n = *lease;

	*lease = NULL;
	if (!n)
		return;
	path_unguard(p, n);
	node_prune(p, n);
}
