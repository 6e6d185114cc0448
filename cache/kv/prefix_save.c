/* SPDX-License-Identifier: Apache-2.0
 * From the tree into its tiers: host memory first, then disk. A full tier makes room by giving away its oldest record, the
 * host's to the disk. A tier that cannot take a record costs only that record.
 */
#include "cache/kv/prefix_priv.h"
#include <string.h>

uint64_t prefix_now_ns(const struct prefix *p)
{
	return p->c.store.now_ns ? p->c.store.now_ns(p->c.store.ctx) : clock_now_ns();
}

static uint64_t record_bytes(const struct prefix *p)
{
	uint64_t sum = 0;

	for (uint32_t g = 0; g < p->n_groups; g++)
		sum += p->c.page_bytes[g];
	return sum;
}

bool tiers_init(struct prefix *p, struct error *e)
{
	struct kv_tier *t[N_TIERS] = { p->c.host, p->c.disk };

	for (uint32_t i = 0; i < N_TIERS; i++) {
		ring_init(&p->tier[i].kept);
		if (t[i] && p->c.store.read && p->c.store.write)
			p->tier[i].t = t[i];
		if (p->tier[i].t && !kv_tier_fits(t[i], p->n_groups, p->page_tokens, p->c.page_bytes))
			return error_set(e, TENON_E_INVALID,
				"prefix cache: a tier is made for pages of another shape");
	}
	if (!tier_any(p))
		return TENON_OK;
	p->scratch_out = mem_alloc(MEM_KV, record_bytes(p));
	p->scratch_in = mem_alloc(MEM_KV, record_bytes(p));
	if (!p->scratch_out || !p->scratch_in)
		return error_set(e, TENON_E_NOMEM, "prefix cache: out of memory for moving pages");
	return TENON_OK;
}

void tiers_finish(struct prefix *p)
{
	for (uint32_t i = 0; i < N_TIERS; i++)
		mem_free(p->tier[i].owner);
	mem_free(p->scratch_out);
	mem_free(p->scratch_in);
}

bool tier_any(const struct prefix *p) { return p->tier[TIER_HOST].t || p->tier[TIER_DISK].t; }

struct kv_record node_record(const struct prefix *p, const struct prefix_node *n, uint8_t groups)
{
	struct kv_record r = { .first = n->first,
		.n_tokens = n->n_tokens,
		.groups = groups,
		.traffic_class = n->traffic_class,
		.tokens = n->tokens };

	memcpy(r.chain, n->chain, sizeof r.chain);
	memcpy(r.tenant, p->tenant[n->tenant].name, sizeof r.tenant);
	return r;
}

void record_scratch(const struct prefix *p, uint8_t groups, uint8_t *scratch, void *data[KV_MAX_GROUPS])
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		data[g] = groups & 1u << g ? scratch : NULL;
		scratch += p->c.page_bytes[g];
	}
}

/* ---- who has which record ------------------------------------------------------------------------------------------ */
bool tier_reserve(struct prefix *p, uint32_t tier, uint32_t slot)
{
	struct tier *t = &p->tier[tier];
	uint32_t cap = MAX_OF(slot + 1, t->cap * 2);
	struct prefix_node **owner;

	if (slot < t->cap)
		return true;
	owner = mem_resize(MEM_KV, t->owner, (size_t)cap * sizeof(struct prefix_node *));
	if (!owner)
		return false;
	memset(owner + t->cap, 0, (cap - t->cap) * sizeof(struct prefix_node *));
	t->owner = owner;
	t->cap = cap;
	return true;
}

void tier_own(struct prefix *p, struct prefix_node *n, uint32_t tier, uint32_t slot, uint8_t groups)
{
	struct tier *t = &p->tier[tier];

	t->owner[slot] = n;
	n->slot[tier] = slot;
	n->kept[tier] = groups;
	ring_unlink(&n->tier[tier]);
	ring_push(&t->kept, &n->tier[tier]);
}

void tier_disown(struct prefix *p, struct prefix_node *n, uint32_t tier)
{
	p->tier[tier].owner[n->slot[tier]] = NULL;
	n->slot[tier] = KV_TIER_NONE;
	n->kept[tier] = 0;
	ring_unlink(&n->tier[tier]);
}

void node_drop_record(struct prefix *p, struct prefix_node *n, uint32_t tier)
{
	if (!n->kept[tier])
		return;
	kv_tier_drop(p->tier[tier].t, n->slot[tier]);
	tier_disown(p, n, tier);
}

void tier_touch(struct prefix *p, struct prefix_node *n)
{
	for (uint32_t i = 0; i < N_TIERS; i++)
		if (n->kept[i]) {
			ring_unlink(&n->tier[i]);
			ring_push(&p->tier[i].kept, &n->tier[i]);
		}
}

/* ---- saving -------------------------------------------------------------------------------------------------------- */
static void record_put(struct prefix *p, struct prefix_node *n, uint32_t tier, uint8_t groups,
	void *const data[KV_MAX_GROUPS])
{
	struct kv_record r = node_record(p, n, groups);
	const void *in[KV_MAX_GROUPS];
	uint32_t slot;

	memcpy(in, data, sizeof in);
	if (kv_tier_put(p->tier[tier].t, &r, in, &slot, NULL))
		p->status.tier_misses++;
	else if (tier_reserve(p, tier, slot))
		tier_own(p, n, tier, slot, groups);
	else
		kv_tier_drop(p->tier[tier].t, slot);
}

static struct prefix_node *oldest_kept(const struct prefix *p, uint32_t tier)
{
	const struct ring *head = &p->tier[tier].kept;

	return head->prev == head ? NULL : NODE_OF(head->prev, tier[tier]);
}

static bool make_room(struct prefix *p, uint32_t tier, enum tier_room room);

/* What leaves the device or the host in the midst of work. Offline work without end would write all that it ever computed
 * to the disk, at the cost of what is there: it gets what is free. */
static enum tier_room room_when_leaving(const struct prefix_node *n, uint32_t tier)
{
	return tier == TIER_DISK && n->traffic_class ? ROOM_FREE : ROOM_ANY;
}

/* A host's record goes on to the disk, as far as there is one. */
static void demote(struct prefix *p, struct prefix_node *n)
{
	struct kv_record r = node_record(p, n, n->kept[TIER_HOST]);
	void *data[KV_MAX_GROUPS];

	if (n->kept[TIER_DISK] || !make_room(p, TIER_DISK, room_when_leaving(n, TIER_DISK)))
		return;
	record_scratch(p, n->kept[TIER_HOST], p->scratch_out, data);
	if (kv_tier_get(p->tier[TIER_HOST].t, n->slot[TIER_HOST], &r, data, NULL))
		p->status.tier_misses++;
	else
		record_put(p, n, TIER_DISK, n->kept[TIER_HOST], data);
}

/* Until one more record fits, the oldest ones leave, as far as `room` lets them. */
static bool make_room(struct prefix *p, uint32_t tier, enum tier_room room)
{
	struct tier *t = &p->tier[tier];

	if (!t->t)
		return false;
	while (!kv_tier_has_room(t->t)) {
		struct prefix_node *old = oldest_kept(p, tier);

		if (!old || room == ROOM_FREE || (room == ROOM_OF_GHOSTS && old->have))
			return false;
		if (tier == TIER_HOST)
			demote(p, old);
		node_drop_record(p, old, tier);
		node_prune(p, old);
	}
	return true;
}

static bool read_pages(struct prefix *p, const struct prefix_node *n, void *const data[KV_MAX_GROUPS])
{
	for (uint32_t g = 0; g < p->n_groups; g++)
		if (n->have & 1u << g && p->c.store.read(p->c.store.ctx, g, n->page[g], data[g], NULL))
			return false;
	return true;
}

bool node_is_saved(const struct prefix_node *n)
{
	return !(n->have & ~n->kept[TIER_HOST]) || !(n->have & ~n->kept[TIER_DISK]);
}

bool node_save(struct prefix *p, struct prefix_node *n, bool leaving)
{
	uint64_t start_ns;
	void *data[KV_MAX_GROUPS];

	if (node_is_saved(n) || !tier_any(p))
		return false;
	start_ns = prefix_now_ns(p);
	for (uint32_t i = 0; i < N_TIERS && !node_is_saved(n); i++) {
		node_drop_record(p, n, i);
		if (!make_room(p, i, leaving ? room_when_leaving(n, i) : ROOM_OF_GHOSTS))
			continue;
		record_scratch(p, n->have, p->scratch_out, data);
		if (!read_pages(p, n, data))
			break;
		record_put(p, n, i, n->have, data);
	}
	p->status.save_ns += prefix_now_ns(p) - start_ns;
	if (!node_is_saved(n))
		return false;
	p->status.saved_pages += (uint64_t)__builtin_popcount(n->have);
	return true;
}
