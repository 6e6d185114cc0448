/* SPDX-License-Identifier: Apache-2.0
 * Prefix cache: creation, tenants, status. See prefix.h and, for what holds inside, prefix_priv.h.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

enum { MAX_TENANTS = 65536 }; /* names are never forgotten; more than this are not cached for */

static int config_check(const struct prefix_config *c, struct error *e)
{
	if (!c->pages || !c->store.copy)
		return error_set(e, TENON_E_INVALID, "prefix cache: no pages or no way to copy one");
	for (uint32_t g = 0; g < kv_pages_groups(c->pages); g++)
		if (!kv_pages_total(c->pages, g))
			return error_set(e, TENON_E_INVALID, "prefix cache: group %u has no pages", g);
	return TENON_OK;
}

static bool windows_init(struct prefix *p)
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint32_t n = kv_pages_total(p->pages, g);

		if (!p->c.window[g]) {
			p->whole |= (uint8_t)(1u << g);
			continue;
		}
		p->windowed |= (uint8_t)(1u << g);
		p->window[g] = mem_zalloc(MEM_KV, (size_t)n + N_CLASSES, sizeof *p->window[g]);
		if (!p->window[g])
			return false;
		for (uint32_t i = n; i < n + N_CLASSES; i++)
			p->window[g][i].prev = p->window[g][i].next = i;
	}
	return true;
}

int prefix_create(const struct prefix_config *c, struct prefix **out, struct error *e)
{
	struct prefix *p;
	int rc = config_check(c, e);

	if (rc)
		return rc;
	p = mem_zalloc(MEM_KV, 1, sizeof *p);
	if (!p)
		return error_set(e, TENON_E_NOMEM, "prefix cache: out of memory");
	p->c = *c;
	p->pages = c->pages;
	p->n_groups = kv_pages_groups(c->pages);
	p->page_tokens = kv_pages_tokens(c->pages);
	if (!p->c.max_node_bytes)
		p->c.max_node_bytes = MAX_NODE_BYTES_DEFAULT;
	ring_init(&p->all);
	for (uint32_t i = 0; i < N_NODE_LISTS; i++)
		ring_init(&p->list[i]);
	if (!windows_init(p))
		rc = error_set(e, TENON_E_NOMEM, "prefix cache: out of memory");
	if (!rc)
		rc = tiers_init(p, e);
	if (rc) {
		prefix_destroy(p);
		return rc;
	}
	tiers_rebuild(p);
	*out = p;
	return TENON_OK;
}

/* Children were made after their parents, so that the newest may always go. Records stay in their tiers. */
static void nodes_destroy(struct prefix *p)
{
	while (p->all.next != &p->all) {
		struct prefix_node *n = NODE_OF(p->all.next, all);

		for (uint32_t g = 0; g < p->n_groups; g++)
			node_detach(p, n, g);
		ring_unlink(&n->all);
		if (n->cap_child)
			mem_free(n->child.many);
		mem_free(n);
	}
}

void prefix_destroy(struct prefix *p)
{
	if (!p)
		return;
	pins_finish(p);
	nodes_destroy(p);
	tiers_finish(p);
	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
		mem_free(p->window[g]);
	mem_free(p->tenant);
	mem_free(p->by_name);
	mem_free(p->chain);
	mem_free(p);
}

/* ---- tenants ------------------------------------------------------------------------------------------------------- */
static uint32_t tenant_rank(const struct prefix *p, const char *name)
{
	uint32_t low = 0, high = p->n_tenants;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (strcmp(p->tenant[p->by_name[mid]].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool tenants_grow(struct prefix *p)
{
	uint32_t cap = p->cap_tenants ? p->cap_tenants * 2 : 8, *by_name;
	struct tenant *t;

	if (p->n_tenants < p->cap_tenants)
		return true;
	t = mem_resize(MEM_KV, p->tenant, cap * sizeof *t);
	if (!t)
		return false;
	p->tenant = t;
	by_name = mem_resize(MEM_KV, p->by_name, cap * sizeof *by_name);
	if (!by_name)
		return false;
	p->by_name = by_name;
	p->cap_tenants = cap;
	return true;
}

uint32_t prefix_tenant(struct prefix *p, const char *name)
{
	uint32_t at, number = p->n_tenants;
	struct tenant *t;

	name = name ? name : "";
	at = tenant_rank(p, name);
	if (at < p->n_tenants && !strcmp(p->tenant[p->by_name[at]].name, name))
		return p->by_name[at];
	if (strlen(name) >= TENANT_BYTES || number >= MAX_TENANTS || !tenants_grow(p))
		return PREFIX_NO_TENANT;
	t = &p->tenant[number];
	*t = (struct tenant){ 0 };
	memcpy(t->name, name, strlen(name));
	if (!p->c.share_tenants || !number) {
		t->root = node_create(p, NULL, number, NULL, 0);
		if (!t->root)
			return PREFIX_NO_TENANT;
	}
	memmove(p->by_name + at + 1, p->by_name + at, (p->n_tenants - at) * sizeof *p->by_name);
	p->by_name[at] = number;
	p->n_tenants++;
	return number;
}

struct prefix_node *tenant_root(const struct prefix *p, uint32_t tenant)
{
	if (tenant >= p->n_tenants)
		return NULL;
	return p->tenant[p->c.share_tenants ? 0 : tenant].root;
}

uint8_t groups_needed(const struct prefix *p, const struct prefix_node *n, uint32_t length)
{
	uint8_t needed = p->whole;

	for (uint32_t g = 0; g < p->n_groups; g++)
		if (p->windowed & 1u << g && (uint64_t)node_end(n) + p->c.window[g] > (uint64_t)length + 1)
			needed |= (uint8_t)(1u << g);
	return needed;
}

void prefix_get_status(const struct prefix *p, struct prefix_status *out)
{
	struct kv_tier_status s;

	*out = p->status;
	for (size_t i = 0; i < p->n_tenants; i++)
		for (uint32_t g = 0; g < p->n_groups; g++)
			out->pinned_pages += p->tenant[i].pinned[g];
	if (p->tier[TIER_HOST].t) {
		kv_tier_get_status(p->tier[TIER_HOST].t, &s);
		out->host_bytes = s.bytes;
		out->host_limit_bytes = s.limit_bytes;
	}
	if (p->tier[TIER_DISK].t) {
		kv_tier_get_status(p->tier[TIER_DISK].t, &s);
		out->disk_bytes = s.bytes;
		out->disk_limit_bytes = s.limit_bytes;
	}
}
