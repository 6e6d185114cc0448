/* SPDX-License-Identifier: Apache-2.0
 * Nodes of the prefix tree: making, finding among siblings, guarding, listing, removing. See prefix_priv.h for the
 * rules that hold between them.
 */
#include "cache/kv/prefix_priv.h"
#include <sodium.h>
#include <string.h>

void ring_init(struct ring *r) { r->prev = r->next = r; }

void ring_unlink(struct ring *r)
{
	r->prev->next = r->next;
	r->next->prev = r->prev;
	ring_init(r);
}

void ring_push(struct ring *head, struct ring *r)
{
	r->prev = head;
	r->next = head->next;
	head->next->prev = r;
	head->next = r;
}

/* ---- siblings ------------------------------------------------------------------------------------------------------ */
static struct prefix_node *child_at(const struct prefix_node *n, uint32_t i)
{
	return n->cap_child ? n->child.many[i] : n->child.one;
}

static uint32_t common_tokens(const struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens)
{
	uint32_t i = 0, end = MIN_OF(n->n_tokens, n_tokens);

	while (i < end && n->tokens[i] == tokens[i])
		i++;
	return i;
}

/* Number of children before these tokens in their order. */
static uint32_t child_rank(const struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens)
{
	uint32_t low = 0, high = n->n_child;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2, k;
		const struct prefix_node *c = child_at(n, mid);

		k = common_tokens(c, tokens, n_tokens);
		if (k < n_tokens && (k == c->n_tokens || c->tokens[k] < tokens[k]))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct prefix_node *node_child(
	const struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens, uint32_t *common)
{
	struct prefix_node *best = NULL;
	uint32_t at, k;

	*common = 0;
	if (!n->n_child)
		return NULL;
	if (n->ahead) {
		__builtin_prefetch(&n->ahead->child);
		__builtin_prefetch(n->ahead->tokens);
	}
	at = n->n_child == 1 ? 0 : child_rank(n, tokens, n_tokens);
	for (uint32_t i = at ? at - 1 : 0; i <= at && i < n->n_child; i++) {
		struct prefix_node *c = child_at(n, i);

		k = common_tokens(c, tokens, n_tokens);
		if (k > *common) {
			*common = k;
			best = c;
		}
	}
	return best;
}

static bool children_grow(struct prefix *p, struct prefix_node *n)
{
	uint32_t cap = n->cap_child ? n->cap_child * 2 : 4;
	struct prefix_node **many;

	if (n->n_child < MAX_OF(n->cap_child, 1))
		return true;
	many = mem_resize(MEM_KV, n->cap_child ? n->child.many : NULL, cap * sizeof(struct prefix_node *));
	if (!many)
		return false;
	if (!n->cap_child)
		many[0] = n->child.one;
	n->child.many = many;
	p->status.node_bytes += (cap - n->cap_child) * sizeof(struct prefix_node *);
	n->cap_child = cap;
	return true;
}

static void child_insert(struct prefix_node *n, struct prefix_node *c)
{
	uint32_t at = child_rank(n, c->tokens, c->n_tokens);

	if (n->cap_child) {
		memmove(n->child.many + at + 1, n->child.many + at,
			(n->n_child - at) * sizeof(struct prefix_node *));
		n->child.many[at] = c;
	} else {
		n->child.one = c;
	}
	n->n_child++;
}

static void child_delete(struct prefix *p, struct prefix_node *n, const struct prefix_node *c)
{
	uint32_t at = child_rank(n, c->tokens, c->n_tokens);

	if (n->cap_child)
		memmove(n->child.many + at, n->child.many + at + 1,
			(n->n_child - at - 1) * sizeof(struct prefix_node *));
	if (--n->n_child || !n->cap_child)
		return;
	mem_free(n->child.many);
	p->status.node_bytes -= n->cap_child * sizeof(struct prefix_node *);
	n->cap_child = 0;
}

/* ---- lists and guards ------------------------------------------------------------------------------------------------ */
static bool counts_as_evictable(const struct prefix_node *n)
{
	return n->list == LIST_ONLINE || n->list == LIST_OFFLINE;
}

static void count_evictable(struct prefix *p, const struct prefix_node *n, uint32_t by)
{
	if (!counts_as_evictable(n))
		return;
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (n->have & p->whole & 1u << g)
			p->evictable[g] += by;
}

void node_unlist(struct prefix *p, struct prefix_node *n)
{
	count_evictable(p, n, UINT32_MAX);
	ring_unlink(&n->lru);
	n->list = LIST_NONE;
}

void node_list(struct prefix *p, struct prefix_node *n)
{
	if (n->n_guards || !n->parent)
		return;
	if (n->list)
		node_unlist(p, n);
	if (!(n->have & p->whole))
		n->list = LIST_GHOSTS;
	else
		n->list = n->traffic_class ? LIST_OFFLINE : LIST_ONLINE;
	ring_push(&p->list[n->list], &n->lru);
	count_evictable(p, n, 1);
	p->tend = true;
}

void node_guard(struct prefix *p, struct prefix_node *n)
{
	if (!n->n_guards++ && n->list)
		node_unlist(p, n);
}

void path_guard(struct prefix *p, struct prefix_node *n)
{
	for (; n && n->parent; n = n->parent)
		node_guard(p, n);
}

void path_unguard(struct prefix *p, struct prefix_node *n)
{
	while (n && n->parent) {
		struct prefix_node *parent = n->parent;

		if (!--n->n_guards)
			node_list(p, n);
		n = parent;
	}
}

void path_set_class(struct prefix *p, struct prefix_node *n, uint32_t traffic_class)
{
	for (; n && n->parent && n->traffic_class > traffic_class; n = n->parent) {
		for (uint32_t g = 0; g < p->n_groups; g++)
			if (n->have & p->windowed & 1u << g)
				window_unlink(p, n, g);
		n->traffic_class = (uint8_t)traffic_class;
		for (uint32_t g = 0; g < p->n_groups; g++)
			if (n->have & p->windowed & 1u << g)
				window_link(p, n, g);
	}
}

/* ---- pages --------------------------------------------------------------------------------------------------------- */
void node_attach(struct prefix *p, struct prefix_node *n, uint32_t group, uint32_t page)
{
	kv_page_ref(p->pages, group, page);
	kv_page_set_cached(p->pages, group, page, true);
	n->page[group] = page;
	n->have |= (uint8_t)(1u << group);
	p->status.pages[group]++;
	if (p->windowed & 1u << group)
		window_link(p, n, group);
}

void node_detach(struct prefix *p, struct prefix_node *n, uint32_t group)
{
	if (!(n->have & 1u << group))
		return;
	if (p->windowed & 1u << group)
		window_unlink(p, n, group);
	kv_page_set_cached(p->pages, group, n->page[group], false);
	kv_page_unref(p->pages, group, n->page[group]);
	n->page[group] = KV_NO_PAGE;
	n->have &= (uint8_t) ~(1u << group);
	p->status.pages[group]--;
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */
void chain_root(const struct prefix *p, const struct tenant *t, uint8_t out[CHAIN_BYTES])
{
	char text[TENANT_BYTES + 1] = { p->c.share_tenants ? 's' : 't' };

	if (!p->c.share_tenants)
		memcpy(text + 1, t->name, TENANT_BYTES);
	(void)crypto_generichash(out, CHAIN_BYTES, (const uint8_t *)text, sizeof text, NULL, 0);
}

void chain_next(
	const uint8_t chain[CHAIN_BYTES], const int32_t *tokens, uint32_t n_tokens, uint8_t out[CHAIN_BYTES])
{
	crypto_generichash_state s;

	(void)crypto_generichash_init(&s, NULL, 0, CHAIN_BYTES);
	(void)crypto_generichash_update(&s, chain, CHAIN_BYTES);
	(void)crypto_generichash_update(&s, (const uint8_t *)tokens, n_tokens * sizeof *tokens);
	(void)crypto_generichash_final(&s, out, CHAIN_BYTES);
}

static size_t node_bytes(const struct prefix *p)
{
	return sizeof(struct prefix_node) + p->page_tokens * sizeof(int32_t);
}

static struct prefix_node *node_alloc(struct prefix *p)
{
	struct prefix_node *n;

	while (p->status.node_bytes + node_bytes(p) > p->c.max_node_bytes)
		if (!evict_any_node(p))
			return NULL;
	n = mem_zalloc(MEM_KV, 1, node_bytes(p));
	if (!n)
		return NULL;
	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
		n->page[g] = KV_NO_PAGE;
	ring_init(&n->lru);
	for (uint32_t i = 0; i < N_TIERS; i++) {
		n->slot[i] = KV_TIER_NONE;
		ring_init(&n->tier[i]);
	}
	p->status.node_bytes += node_bytes(p);
	p->status.nodes++;
	return n;
}

static void node_free(struct prefix *p, struct prefix_node *n)
{
	p->status.node_bytes -= node_bytes(p);
	p->status.nodes--;
	mem_free(n);
}

static void set_ahead(const struct prefix_node *n)
{
	struct prefix_node *above = n->parent;

	for (int i = 1; i < AHEAD && above; i++)
		above = above->parent;
	if (above)
		above->ahead = n;
}

struct prefix_node *node_create(struct prefix *p, struct prefix_node *parent, uint32_t tenant,
	const int32_t *tokens, uint32_t n_tokens)
{
	struct prefix_node *n = node_alloc(p);

	if (!n)
		return NULL;
	if (parent && !children_grow(p, parent)) {
		node_free(p, n);
		return NULL;
	}
	ring_push(&p->all, &n->all);
	n->traffic_class = N_CLASSES - 1;
	n->tenant = tenant;
	n->parent = parent;
	n->n_tokens = n_tokens;
	if (n_tokens)
		memcpy(n->tokens, tokens, n_tokens * sizeof *tokens);
	if (!parent) {
		if (tier_any(p))
			chain_root(p, &p->tenant[tenant], n->chain);
		return n;
	}
	n->first = node_end(parent);
	child_insert(parent, n);
	set_ahead(n);
	if (!tier_any(p))
		return n;
	if (parent->parent)
		chain_next(parent->chain, parent->tokens, parent->n_tokens, n->chain);
	else
		memcpy(n->chain, parent->chain, CHAIN_BYTES);
	return n;
}

/* More tokens in a partly filled leaf: its place among the siblings stays, as all differ from it before its end. */
void node_extend(struct prefix *p, struct prefix_node *n, const int32_t *tokens, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < N_TIERS; i++)
		node_drop_record(p, n, i);
	for (uint32_t g = 0; g < p->n_groups; g++)
		node_detach(p, n, g);
	memcpy(n->tokens + n->n_tokens, tokens + n->n_tokens, (n_tokens - n->n_tokens) * sizeof *tokens);
	n->n_tokens = n_tokens;
}

void node_remove(struct prefix *p, struct prefix_node *n)
{
	node_unlist(p, n);
	for (uint32_t g = 0; g < p->n_groups; g++)
		node_detach(p, n, g);
	for (uint32_t i = 0; i < N_TIERS; i++)
		node_drop_record(p, n, i);
	ring_unlink(&n->all);
	if (n->parent)
		child_delete(p, n->parent, n);
	node_free(p, n);
}

static bool is_useless(const struct prefix *p, const struct prefix_node *n)
{
	uint8_t needed = p->whole ? p->whole : p->windowed;

	return n->parent && !n->n_child && !n->n_guards && !(n->have & needed) && !n->kept[TIER_HOST] &&
		!n->kept[TIER_DISK];
}

void node_prune(struct prefix *p, struct prefix_node *n)
{
	while (is_useless(p, n)) {
		struct prefix_node *parent = n->parent;

		node_remove(p, n);
		n = parent;
	}
}
