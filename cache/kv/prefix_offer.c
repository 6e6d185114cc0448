/* SPDX-License-Identifier: Apache-2.0
 * Taking a sequence's pages into the tree. Every node passed is guarded at once, as room for the next one may be made
 * by dropping old ones; together these guards are the new lease. But the lease ends before a page of which both the tree
 * and the sequence need their own copy: behind it, it would keep from being evicted what the sequence does not use.
 */
#include "cache/kv/prefix_priv.h"

/* A page that is the tree's already belongs to another node: it cannot have two owners. */
static bool may_attach(const struct prefix *p, uint32_t group, uint32_t page)
{
	return !kv_page_cached(p->pages, group, page);
}

/* What both have: the sequence gets the tree's page where that cannot be seen (only whole pages: nobody writes them any
 * more), else the tree gets the sequence's if nobody else needs its own. False: both stay. */
static bool unify(struct prefix *p, struct prefix_node *n, uint32_t group, uint32_t *page)
{
	if (p->c.invariant && n->n_tokens == p->page_tokens) {
		kv_page_ref(p->pages, group, n->page[group]);
		kv_page_unref(p->pages, group, *page);
		*page = n->page[group];
		return true;
	}
	if (kv_page_refs(p->pages, group, n->page[group]) > 1 || !may_attach(p, group, *page))
		return false;
	node_detach(p, n, group);
	node_attach(p, n, group, *page);
	return true;
}

/* Takes what the node has not. False: for some group the tree's page is not the table's. */
static bool node_fill(struct prefix *p, struct prefix_node *n, uint32_t row, struct block_table *t)
{
	bool own = true;

	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint32_t *page = &t->page[g][row];

		if (*page == KV_NO_PAGE || (n->have & 1u << g && *page == n->page[g]))
			continue;
		if (n->have & 1u << g)
			own = unify(p, n, g, page) && own;
		else if (may_attach(p, g, *page))
			node_attach(p, n, g, *page);
		else
			own = false;
	}
	return own;
}

/* A partly filled leaf that the sequence goes on from: the longer page takes its place. */
static bool node_supersede(struct prefix *p, struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens,
	uint32_t row, struct block_table *t)
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint32_t page = t->page[g][row];

		if (page != KV_NO_PAGE && page != n->page[g] && kv_page_cached(p->pages, g, page))
			return false;
	}
	node_extend(p, n, tokens, n_tokens);
	return true;
}

/* The child of `at` for this page of tokens, guarded, made if need be; NULL: nothing further can be kept. */
static struct prefix_node *offer_page(struct prefix *p, struct prefix_node *at, uint32_t tenant,
	const int32_t *tokens, uint32_t n_tokens, struct block_table *t)
{
	uint32_t common, row = node_end(at) / p->page_tokens;
	struct prefix_node *c = node_child(at, tokens, n_tokens, &common);

	if (c && common == n_tokens && c->n_tokens > n_tokens)
		return NULL;
	if (!c || common < c->n_tokens) {
		c = node_create(p, at, tenant, tokens, n_tokens);
		if (c)
			node_guard(p, c);
		return c;
	}
	node_guard(p, c);
	if (c->n_tokens == n_tokens || node_supersede(p, c, tokens, n_tokens, row, t))
		return c;
	if (!--c->n_guards)
		node_list(p, c);
	return NULL;
}

/* Moves the lease, given the guards from the walk to `at`. */
static void lease_move(
	struct prefix *p, struct prefix_node *at, struct prefix_node *own, struct prefix_node **lease)
{
	struct prefix_node *walked = own == at ? NULL : at;

	if (walked)
		path_guard(p, own);
	prefix_release(p, lease);
	prefix_release(p, &walked);
	if (own->parent)
		*lease = own;
}

void prefix_offer(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n_valid, bool last,
	uint32_t traffic_class, uint64_t now_ns, struct block_table *t, struct prefix_node **lease)
{
	struct prefix_node *at = tenant_root(p, tenant), *own = at, *c;
	bool all_own = true;

	(void)now_ns;
	if (!at)
		return;
	while (node_end(at) < n_valid && node_end(at) / p->page_tokens < t->n_pages) {
		uint32_t n = MIN_OF(n_valid - node_end(at), p->page_tokens),
			 row = node_end(at) / p->page_tokens;

		if (n < p->page_tokens && !last)
			break;
		c = offer_page(p, at, tenant, tokens + node_end(at), n, t);
		if (!c)
			break;
		at = c;
		all_own = node_fill(p, c, row, t) && all_own;
		own = all_own ? c : own;
	}
	path_set_class(p, at, traffic_class);
	lease_move(p, at, own, lease);
}
