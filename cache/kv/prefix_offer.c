/* SPDX-License-Identifier: Apache-2.0
 * Taking a sequence's pages into the tree. Every node passed is guarded at once, as room for the next one may be made
 * by dropping old ones; together these guards are the new lease.
 */
#include "cache/kv/prefix_priv.h"

/* A page that is the tree's already belongs to another node: it cannot have two owners. */
static bool may_attach(const struct prefix *p, uint32_t group, uint32_t page)
{
	return page != KV_NO_PAGE && !kv_page_cached(p->pages, group, page);
}

/* Takes what the node has not; exchanges what both have (only whole pages: nobody writes them any more). */
static void node_fill(struct prefix *p, struct prefix_node *n, uint32_t row, struct block_table *t)
{
	bool exchange = p->c.invariant && n->n_tokens == p->page_tokens;

	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint32_t *page = &t->page[g][row];

		if (!(n->have & 1u << g)) {
			if (may_attach(p, g, *page))
				node_attach(p, n, g, *page);
		} else if (exchange && *page != KV_NO_PAGE && *page != n->page[g]) {
			kv_page_ref(p->pages, g, n->page[g]);
			kv_page_unref(p->pages, g, *page);
			*page = n->page[g];
		}
	}
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

/* The child of `at` for this page of tokens, made if need be; NULL: nothing further can be kept. */
static struct prefix_node *offer_page(struct prefix *p, struct prefix_node *at, uint32_t tenant,
	const int32_t *tokens, uint32_t n_tokens, struct block_table *t)
{
	uint32_t common, row = node_end(at) / p->page_tokens;
	struct prefix_node *c = node_child(at, tokens, n_tokens, &common);

	if (c && common == n_tokens && c->n_tokens > n_tokens)
		return NULL;
	if (c && common == c->n_tokens) {
		node_guard(p, c);
		if (c->n_tokens < n_tokens && !node_supersede(p, c, tokens, n_tokens, row, t)) {
			if (!--c->n_guards)
				node_list(p, c);
			return NULL;
		}
	} else {
		c = node_create(p, at, tenant, tokens, n_tokens);
		if (!c)
			return NULL;
		node_guard(p, c);
	}
	node_fill(p, c, row, t);
	return c;
}

void prefix_offer(struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n_valid, bool last,
	uint32_t traffic_class, uint64_t now_ns, struct block_table *t, struct prefix_node **lease)
{
	struct prefix_node *root = tenant_root(p, tenant), *at = root, *c;

	(void)now_ns;
	if (!root)
		return;
	while (node_end(at) < n_valid && node_end(at) / p->page_tokens < t->n_pages) {
		uint32_t n = MIN_OF(n_valid - node_end(at), p->page_tokens);

		if (n < p->page_tokens && !last)
			break;
		c = offer_page(p, at, tenant, tokens + node_end(at), n, t);
		if (!c)
			break;
		at = c;
	}
	path_set_class(p, at, traffic_class);
	prefix_release(p, lease);
	if (at != root)
		*lease = at;
}
