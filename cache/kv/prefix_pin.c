/* SPDX-License-Identifier: Apache-2.0
 * Pins and purges. A pin guards the path to its node (whole pages only, so that a pinned page never changes) and holds a
 * reference to the pages of windows that a text going on from there needs. A tenant pays for each page; for one that several
 * of its pins share once, but for those of windows each time.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

static void window_hold(
	struct prefix *p, const struct prefix_node *at, void (*change)(struct kv_pages *, uint32_t, uint32_t))
{
	uint32_t length = node_end(at);

	for (const struct prefix_node *n = at; n->parent; n = n->parent) {
		uint8_t held = groups_needed(p, n, length) & p->windowed & n->have;

		for (uint32_t g = 0; held && g < p->n_groups; g++)
			if (held & 1u << g)
				change(p->pages, g, n->page[g]);
	}
}

/* Before the nodes go: what pins hold is given back. */
void pins_finish(struct prefix *p)
{
	for (size_t i = 0; i < p->n_pins; i++)
		window_hold(p, p->pin[i].node, kv_page_unref);
	mem_free(p->pin);
}

/* Pages per group that a pin at `at` would cost. */
static void pin_cost(const struct prefix *p, const struct prefix_node *at, uint32_t cost[KV_MAX_GROUPS])
{
	for (const struct prefix_node *n = at; n->parent; n = n->parent) {
		uint8_t groups = groups_needed(p, n, node_end(at)) & (uint8_t) ~(n->n_pinned ? p->whole : 0);

		for (uint32_t g = 0; groups && g < p->n_groups; g++)
			cost[g] += groups >> g & 1u;
	}
}

/* Smaller groups in proportion: a window's pool is never all pinned because the other one is large. */
static uint64_t pin_limit(const struct prefix *p, uint32_t group)
{
	uint64_t total = kv_pages_total(p->pages, group), largest = 0;

	for (uint32_t g = 0; g < p->n_groups; g++)
		largest = MAX_OF(largest, kv_pages_total(p->pages, g));
	return p->c.max_pinned_pages ? p->c.max_pinned_pages * total / largest : total / 4;
}

static int pin_check(
	const struct prefix *p, uint32_t tenant, const uint32_t cost[KV_MAX_GROUPS], struct error *e)
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint64_t limit = pin_limit(p, g);
		uint64_t sum = (uint64_t)p->tenant[tenant].pinned[g] + cost[g];

		if (sum > limit)
			return error_set(e, TENON_E_FULL,
				"pin: %llu pages with this one, at most %llu of a tenant can be pinned; unpin others or shorten it",
				(unsigned long long)sum, (unsigned long long)limit);
	}
	return TENON_OK;
}

static bool pins_grow(struct prefix *p)
{
	size_t cap = p->cap_pins ? p->cap_pins * 2 : 8;
	struct pin *pin;

	if (p->n_pins < p->cap_pins)
		return true;
	pin = mem_resize(MEM_KV, p->pin, cap * sizeof *pin);
	if (!pin)
		return false;
	p->pin = pin;
	p->cap_pins = cap;
	return true;
}

static void pin_apply(struct prefix *p, struct pin *pin, const uint32_t cost[KV_MAX_GROUPS])
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		p->tenant[pin->tenant].pinned[g] += cost[g];
		pin->held[g] = p->windowed & 1u << g ? cost[g] : 0;
	}
	for (struct prefix_node *n = pin->node; n->parent; n = n->parent)
		if (!n->n_pinned++)
			n->pin_tenant = pin->tenant;
	path_guard(p, pin->node);
	window_hold(p, pin->node, kv_page_ref);
}

static void pin_undo(struct prefix *p, const struct pin *pin)
{
	window_hold(p, pin->node, kv_page_unref);
	for (uint32_t g = 0; g < p->n_groups; g++)
		p->tenant[pin->tenant].pinned[g] -= pin->held[g];
	for (struct prefix_node *n = pin->node; n->parent; n = n->parent) {
		if (--n->n_pinned)
			continue;
		for (uint32_t g = 0; g < p->n_groups; g++)
			p->tenant[n->pin_tenant].pinned[g] -= p->whole >> g & 1u;
	}
	path_unguard(p, pin->node);
}

int prefix_pin(
	struct prefix *p, uint32_t tenant, const int32_t *tokens, uint32_t n, uint64_t *id, struct error *e)
{
	uint32_t cost[KV_MAX_GROUPS] = { 0 };
	struct prefix_hit hit;
	struct pin *pin;
	int rc;

	hit_find(p, tenant, tokens, n, &hit);
	if (!hit.safe)
		return error_set(e, TENON_E_NOT_FOUND,
			"pin: no whole page of this text is cached; run it once, then pin it");
	for (size_t i = 0; i < p->n_pins; i++)
		if (p->pin[i].node == hit.safe && p->pin[i].tenant == tenant) {
			p->pin[i].count++;
			*id = p->pin[i].id;
			return TENON_OK;
		}
	pin_cost(p, hit.safe, cost);
	rc = pin_check(p, tenant, cost, e);
	if (rc)
		return rc;
	if (!pins_grow(p))
		return error_set(e, TENON_E_NOMEM, "pin: out of memory");
	*id = ++p->last_pin;
	pin = &p->pin[p->n_pins++];
	*pin = (struct pin){ .id = *id, .node = hit.safe, .tenant = tenant, .count = 1 };
	pin_apply(p, pin, cost);
	return TENON_OK;
}

int prefix_unpin(struct prefix *p, uint64_t id, struct error *e)
{
	size_t i = 0;

	while (i < p->n_pins && p->pin[i].id != id)
		i++;
	if (i == p->n_pins)
		return error_set(e, TENON_E_NOT_FOUND, "unpin: no pin %llu", (unsigned long long)id);
	if (--p->pin[i].count)
		return TENON_OK;
	pin_undo(p, &p->pin[i]);
	memmove(p->pin + i, p->pin + i + 1, (--p->n_pins - i) * sizeof *p->pin);
	return TENON_OK;
}

size_t prefix_pins(const struct prefix *p, struct prefix_pin *out, size_t room)
{
	for (size_t i = 0; i < p->n_pins && i < room; i++) {
		const struct prefix_node *at = p->pin[i].node;
		uint32_t n_pages = 0;

		for (const struct prefix_node *n = at; n->parent; n = n->parent)
			n_pages += (uint32_t)__builtin_popcount(groups_needed(p, n, node_end(at)));
		out[i] = (struct prefix_pin){ .id = p->pin[i].id,
			.tenant = p->tenant[p->pin[i].tenant].name,
			.n_tokens = node_end(at),
			.n_pages = n_pages };
	}
	return p->n_pins;
}

/* Children are newer than their parents: one pass from the newest reaches every leaf before what it hangs on. */
uint64_t prefix_purge(struct prefix *p, const char *tenant)
{
	uint64_t freed = 0;
	struct ring *r = p->all.next;

	while (r != &p->all) {
		struct prefix_node *n = NODE_OF(r, all);

		r = r->next;
		if (!n->parent || n->n_child || n->n_guards ||
			(tenant && strcmp(p->tenant[n->tenant].name, tenant)))
			continue;
		for (uint32_t g = 0; g < p->n_groups; g++)
			freed += n->have & 1u << g && kv_page_refs(p->pages, g, n->page[g]) == 1;
		node_remove(p, n);
	}
	return freed;
}
