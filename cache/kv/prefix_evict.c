/* SPDX-License-Identifier: Apache-2.0
 * Giving way. Groups without a window: whole nodes, from the ends of the lists, offline before online. Groups with one:
 * single pages that no sequence refers to, in the order of their last use, also from paths that are in use: what a
 * window has left behind is only worth keeping for others.
 */
#include "cache/kv/prefix_priv.h"

/* ---- pages of groups with a window --------------------------------------------------------------------------------- */
static uint32_t window_head(const struct prefix *p, uint32_t group, uint32_t traffic_class)
{
	return kv_pages_total(p->pages, group) + (traffic_class != 0);
}

void window_link(struct prefix *p, struct prefix_node *n, uint32_t group)
{
	struct window_page *w = p->window[group];
	uint32_t head = window_head(p, group, n->traffic_class), i = n->page[group];

	w[i] = (struct window_page){ .prev = head, .next = w[head].next, .owner = n };
	w[w[head].next].prev = i;
	w[head].next = i;
}

void window_unlink(struct prefix *p, const struct prefix_node *n, uint32_t group)
{
	struct window_page *w = p->window[group];
	uint32_t i = n->page[group];

	w[w[i].prev].next = w[i].next;
	w[w[i].next].prev = w[i].prev;
	w[i].owner = NULL;
}

void window_touch(struct prefix *p, struct prefix_node *n, uint32_t groups)
{
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (groups & p->windowed & 1u << g) {
			window_unlink(p, n, g);
			window_link(p, n, g);
		}
}

/* The last idle page of a class's list; those in use that stand behind it go to the front. */
static struct prefix_node *window_last_idle(struct prefix *p, uint32_t group, uint32_t traffic_class)
{
	struct window_page *w = p->window[group];
	uint32_t head = window_head(p, group, traffic_class);

	for (uint32_t i = p->status.pages[group]; i && w[head].prev != head; i--) {
		struct prefix_node *n = w[w[head].prev].owner;

		if (kv_page_refs(p->pages, group, n->page[group]) == 1)
			return n;
		window_touch(p, n, 1u << group);
	}
	return NULL;
}

static bool evict_window_page(struct prefix *p, uint32_t group)
{
	struct prefix_node *n;

	if (!kv_pages_idle(p->pages, group))
		return false;
	n = window_last_idle(p, group, 1);
	if (!n)
		n = window_last_idle(p, group, 0);
	if (!n)
		return false;
	if (!n->n_guards)
		(void)node_save(p, n, true);
	node_detach(p, n, group);
	p->status.evicted_pages++;
	node_prune(p, n);
	return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */
static bool in_use(const struct prefix *p, const struct prefix_node *n)
{
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (n->have & p->whole & 1u << g && kv_page_refs(p->pages, g, n->page[g]) > 1)
			return true;
	return false;
}

/* The last of a list whose pages nobody uses; those in use, whose owner has no lease on them, go to the front. */
static struct prefix_node *list_last_idle(struct prefix *p, enum node_list list)
{
	struct ring *head = &p->list[list];

	for (uint64_t i = p->status.nodes; i && head->prev != head; i--) {
		struct prefix_node *n = NODE_OF(head->prev, lru);

		if (!in_use(p, n))
			return n;
		node_list(p, n);
	}
	return NULL;
}

static struct prefix_node *next_to_go(struct prefix *p)
{
	struct prefix_node *n = list_last_idle(p, LIST_OFFLINE);

	return n ? n : list_last_idle(p, LIST_ONLINE);
}

/* Without a record the node has no use any more, unless something hangs below it. */
static void evict_node(struct prefix *p, struct prefix_node *n)
{
	(void)node_save(p, n, true);
	node_unlist(p, n);
	for (uint32_t g = 0; g < p->n_groups; g++) {
		p->status.evicted_pages += n->have >> g & 1u;
		node_detach(p, n, g);
	}
	tier_touch(p, n);
	node_list(p, n);
	node_prune(p, n);
}

bool evict_any_node(struct prefix *p)
{
	static const enum node_list order[] = { LIST_GHOSTS, LIST_OFFLINE, LIST_ONLINE };

	for (size_t i = 0; i < COUNT_OF(order); i++) {
		struct ring *head = &p->list[order[i]];

		for (struct ring *r = head->prev; r != head; r = r->prev) {
			struct prefix_node *n = NODE_OF(r, lru), *parent = n->parent;

			if (n->n_child)
				continue;
			for (uint32_t g = 0; g < p->n_groups; g++)
				p->status.evicted_pages += n->have >> g & 1u;
			node_remove(p, n);
			node_prune(p, parent);
			return true;
		}
	}
	return false;
}

static uint8_t groups_short(const struct prefix *p, const uint32_t want[KV_MAX_GROUPS])
{
	uint8_t mask = 0;

	for (uint32_t g = 0; g < p->n_groups; g++)
		if (kv_pages_free(p->pages, g) < want[g])
			mask |= (uint8_t)(1u << g);
	return mask;
}

bool prefix_evict(struct prefix *p, const uint32_t want[KV_MAX_GROUPS], uint64_t now_ns)
{
	uint8_t mask;

	(void)now_ns;
	while ((mask = groups_short(p, want))) {
		struct prefix_node *n = NULL;

		if (mask & p->windowed) {
			if (!evict_window_page(p, (uint32_t)__builtin_ctz(mask & p->windowed)))
				return false;
			continue;
		}
		n = prefix_evictable(p, (uint32_t)__builtin_ctz(mask)) ? next_to_go(p) : NULL;
		if (!n)
			return false;
		evict_node(p, n);
	}
	return true;
}

uint32_t prefix_evictable(const struct prefix *p, uint32_t group)
{
	uint32_t idle = kv_pages_idle(p->pages, group);

	return p->windowed & 1u << group ? idle : MIN_OF(idle, p->evictable[group]);
}
