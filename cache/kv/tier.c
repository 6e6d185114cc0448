/* SPDX-License-Identifier: Apache-2.0
 * Tiers: what identifies a record, limits, slots. See tier.h and tier_priv.h. BLAKE2b, keyed with the maker's key, as
 * checksum: a page that another maker wrote fails like a damaged one. In memory pages have no checksum: they are as
 * safe there as the pages they came from.
 */
#include "cache/kv/tier_priv.h"
#include <sodium.h>
#include <string.h>

static uint64_t tier_now(const struct kv_tier *t) { return t->now_ns ? t->now_ns(t->ctx) : clock_now_ns(); }

/* ---- life ---------------------------------------------------------------------------------------------------------- */
static int geometry(struct kv_tier *t, const struct kv_tier_config *c, struct error *e)
{
	uint64_t head = sizeof(struct tier_head) + (uint64_t)c->page_tokens * sizeof(int32_t);

	if (!c->n_groups || c->n_groups > KV_MAX_GROUPS || !c->page_tokens || c->page_tokens > 65536)
		return error_set(e, TENON_E_INVALID, "tier: %u groups of %u tokens a page", c->n_groups,
			c->page_tokens);
	t->n_groups = c->n_groups;
	t->page_tokens = c->page_tokens;
	memcpy(t->compat, c->compat, sizeof t->compat);
	t->head_bytes = (uint32_t)(head + 63) / 64 * 64;
	for (uint32_t g = 0; g < c->n_groups; g++) {
		t->page_bytes[g] = c->page_bytes[g];
		if (!c->page_bytes[g] || !checked_add_u64(t->data_bytes, c->page_bytes[g], &t->data_bytes) ||
			t->data_bytes > TIER_MAX_RECORD_BYTES)
			return error_set(e, TENON_E_INVALID,
				"tier: pages of %llu bytes; at most %u for one of each group",
				(unsigned long long)c->page_bytes[g], (unsigned)TIER_MAX_RECORD_BYTES);
	}
	return TENON_OK;
}

int kv_tier_open(const struct kv_tier_config *c, struct kv_tier **out, struct error *e)
{
	struct kv_tier *t = mem_zalloc(MEM_KV, 1, sizeof *t);
	int rc;

	if (!t)
		return error_set(e, TENON_E_NOMEM, "tier: out of memory");
	t->fd = -1;
	t->now_ns = c->now_ns;
	t->ctx = c->ctx;
	t->refuse_ns = TIER_REFUSE_NS;
	t->media = c->path ? &tier_file : &tier_memory;
	t->status.limit_bytes = c->limit_bytes;
	rc = geometry(t, c, e);
	if (!rc) {
		t->head = mem_zalloc(MEM_KV, 1, t->head_bytes);
		if (!t->head)
			rc = error_set(e, TENON_E_NOMEM, "tier: out of memory");
	}
	if (!rc && c->path)
		rc = tier_file_open(t, c->path, e);
	if (rc) {
		kv_tier_close(t);
		return rc;
	}
	*out = t;
	return TENON_OK;
}

void kv_tier_close(struct kv_tier *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n_slots; i++)
		mem_free(t->slot[i].block);
	tier_file_close(t);
	mem_free(t->slot);
	mem_free(t->head);
	mem_free(t->order);
	mem_free(t);
}

bool kv_tier_fits(
	const struct kv_tier *t, uint32_t n_groups, uint32_t page_tokens, const uint64_t *page_bytes)
{
	return t->n_groups == n_groups && t->page_tokens == page_tokens &&
		!memcmp(t->page_bytes, page_bytes, n_groups * sizeof *page_bytes);
}

/* ---- what identifies a record -------------------------------------------------------------------------------------- */
void tier_sum(const struct kv_tier *t, const uint8_t *p, size_t n, uint8_t out[TIER_SUM_BYTES])
{
	(void)crypto_generichash(out, TIER_SUM_BYTES, p, n, t->compat, sizeof t->compat);
}

static void data_sum(const struct kv_tier *t, const void *const data[KV_MAX_GROUPS], uint32_t groups,
	uint8_t out[TIER_SUM_BYTES])
{
	crypto_generichash_state s;

	(void)crypto_generichash_init(&s, t->compat, sizeof t->compat, TIER_SUM_BYTES);
	for (uint32_t g = 0; g < t->n_groups; g++)
		if (groups & 1u << g)
			(void)crypto_generichash_update(&s, data[g], t->page_bytes[g]);
	(void)crypto_generichash_final(&s, out, TIER_SUM_BYTES);
}

static bool record_check(const struct kv_tier *t, const struct kv_record *r)
{
	return r->n_tokens && r->n_tokens <= t->page_tokens && r->groups && !(r->groups >> t->n_groups) &&
		!(r->first % t->page_tokens) && r->first <= UINT32_MAX - r->n_tokens &&
		memchr(r->tenant, 0, sizeof r->tenant);
}

static void head_make(
	struct kv_tier *t, const struct kv_record *r, uint64_t serial, const void *const data[KV_MAX_GROUPS])
{
	struct tier_head h = { .serial = serial,
		.magic = TIER_RECORD_MAGIC,
		.first = r->first,
		.n_tokens = r->n_tokens,
		.groups = r->groups,
		.traffic_class = r->traffic_class };

	memcpy(h.chain, r->chain, sizeof h.chain);
	memcpy(h.tenant, r->tenant, strlen(r->tenant));
	if (t->media->checked)
		data_sum(t, data, r->groups, h.data_sum);
	memset(t->head, 0, t->head_bytes);
	memcpy(t->head, &h, sizeof h);
	memcpy(t->head + sizeof h, r->tokens, r->n_tokens * sizeof *r->tokens);
	tier_sum(t, t->head + TIER_SUM_BYTES, t->head_bytes - TIER_SUM_BYTES, t->head);
}

static void record_of(const struct tier_head *h, struct kv_record *r)
{
	*r = (struct kv_record){ .first = h->first,
		.n_tokens = h->n_tokens,
		.groups = h->groups,
		.traffic_class = h->traffic_class };
	memcpy(r->chain, h->chain, sizeof r->chain);
	memcpy(r->tenant, h->tenant, sizeof r->tenant);
}

bool tier_head_check(const struct kv_tier *t, const uint8_t *head)
{
	uint8_t sum[TIER_SUM_BYTES];
	struct tier_head h;
	struct kv_record r;

	memcpy(&h, head, sizeof h);
	record_of(&h, &r);
	if (h.magic != TIER_RECORD_MAGIC || !h.serial || !record_check(t, &r))
		return false;
	tier_sum(t, head + TIER_SUM_BYTES, t->head_bytes - TIER_SUM_BYTES, sum);
	return !memcmp(sum, head, sizeof sum);
}

static bool same_record(const struct tier_head *h, const uint8_t *tokens, const struct kv_record *r)
{
	return h->first == r->first && h->n_tokens == r->n_tokens && h->groups == r->groups &&
		!memcmp(h->chain, r->chain, sizeof h->chain) && !strcmp(h->tenant, r->tenant) &&
		!memcmp(tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
}

/* ---- slots and limits ---------------------------------------------------------------------------------------------- */
static void update_bytes(struct kv_tier *t)
{
	t->status.bytes = t->media->bytes(t, t->n_slots, (uint32_t)t->status.records, t->cap);
}

static uint32_t free_slot(struct kv_tier *t)
{
	while (t->hint < t->n_slots && t->slot[t->hint].serial)
		t->hint++;
	return t->hint;
}

/* Room in the index for one more record, 0: over the limit. While it grows the old one is there too, and counts. */
static uint32_t cap_for(const struct kv_tier *t, uint32_t slot)
{
	uint32_t n_slots = MAX_OF(slot + 1, t->n_slots), n = (uint32_t)t->status.records + 1;
	uint64_t limit = t->status.limit_bytes;

	if (slot >= TIER_MAX_SLOTS)
		return 0;
	if (slot < t->cap)
		return t->media->bytes(t, n_slots, n, t->cap) <= limit ? t->cap : 0;
	if (t->media->bytes(t, n_slots, n, t->cap * 2 + t->cap + 8) <= limit)
		return t->cap * 2 + 8;
	return t->media->bytes(t, n_slots, n, t->cap + t->cap + 1) <= limit ? t->cap + 1 : 0;
}

static bool slots_grow(struct kv_tier *t, uint32_t cap)
{
	struct tier_slot *slot;

	if (cap == t->cap)
		return true;
	slot = mem_zalloc(MEM_KV, cap, sizeof *slot);
	if (!slot)
		return false;
	if (t->n_slots)
		memcpy(slot, t->slot, t->n_slots * sizeof *slot);
	mem_free(t->slot);
	t->slot = slot;
	t->cap = cap;
	return true;
}

static void slot_use(struct kv_tier *t, uint32_t slot, uint64_t serial, uint32_t first)
{
	t->slot[slot].serial = serial;
	t->slot[slot].first = first;
	t->n_slots = MAX_OF(t->n_slots, slot + 1);
	t->status.records++;
	update_bytes(t);
}

bool tier_found(struct kv_tier *t, uint32_t slot, const uint8_t *head)
{
	struct tier_head h;

	memcpy(&h, head, sizeof h);
	if (!slots_grow(t, slot < t->cap ? t->cap : slot + slot / 2 + 8))
		return false;
	t->last_serial = MAX_OF(t->last_serial, MIN_OF(h.serial, UINT64_MAX / 2));
	slot_use(t, slot, h.serial, h.first);
	return true;
}

bool kv_tier_has_room(const struct kv_tier *t)
{
	uint32_t slot = t->hint;

	while (slot < t->n_slots && t->slot[slot].serial)
		slot++;
	return cap_for(t, slot);
}

/* Free slots at the end go with the last record before them. */
static void slot_free(struct kv_tier *t, uint32_t slot)
{
	uint32_t n = t->n_slots;

	t->slot[slot].serial = 0;
	t->status.records--;
	t->hint = MIN_OF(t->hint, slot);
	while (n && !t->slot[n - 1].serial)
		n--;
	if (n < t->n_slots) {
		t->n_slots = n;
		t->media->cut(t, n);
	}
	update_bytes(t);
}

void kv_tier_drop(struct kv_tier *t, uint32_t slot)
{
	if (slot >= t->n_slots || !t->slot[slot].serial)
		return;
	t->media->erase(t, slot);
	slot_free(t, slot);
}

/* ---- put and get --------------------------------------------------------------------------------------------------- */
static void rate(double *bytes_per_ns, uint64_t bytes, uint64_t ns)
{
	double now = (double)bytes / (double)MAX_OF(ns, 1);

	*bytes_per_ns = *bytes_per_ns > 0 ? 0.8 * *bytes_per_ns + 0.2 * now : now;
}

static int put_failed(struct kv_tier *t, int rc, uint64_t now_ns, struct error *e)
{
	t->media->cut(t, t->n_slots);
	if (rc == TENON_E_NOMEM)
		return error_set(e, rc, "tier: out of memory for a record");
	t->status.io_errors++;
	t->refuse_until_ns = now_ns + t->refuse_ns;
	return error_set(e, rc, "tier: a record could not be written; free space on its disk");
}

int kv_tier_put(struct kv_tier *t, const struct kv_record *r, const void *const data[KV_MAX_GROUPS],
	uint32_t *slot, struct error *e)
{
	uint64_t start_ns = tier_now(t);
	uint32_t at = free_slot(t), cap = cap_for(t, at);
	int rc;

	if (!record_check(t, r))
		return error_set(e, TENON_E_INVALID, "tier: not a record of this tier");
	if (!cap)
		return error_set(e, TENON_E_FULL,
			"tier: %llu bytes are taken of %llu and a record needs %llu; raise the limit",
			(unsigned long long)t->status.bytes, (unsigned long long)t->status.limit_bytes,
			(unsigned long long)(t->head_bytes + t->data_bytes));
	if (start_ns < t->refuse_until_ns)
		return error_set(
			e, TENON_E_IO, "tier: the last write failed; it is tried again in some seconds");
	if (!slots_grow(t, cap))
		return error_set(e, TENON_E_NOMEM, "tier: out of memory for the index");
	head_make(t, r, t->last_serial + 1, data);
	rc = t->media->write(t, at, t->head, data, r->groups);
	if (rc)
		return put_failed(t, rc, start_ns, e);
	slot_use(t, at, ++t->last_serial, r->first);
	t->status.puts++;
	rate(&t->status.write_bytes_per_ns, t->data_bytes, tier_now(t) - start_ns);
	*slot = at;
	return TENON_OK;
}

int kv_tier_get(struct kv_tier *t, uint32_t slot, const struct kv_record *expect,
	void *const data[KV_MAX_GROUPS], struct error *e)
{
	uint64_t start_ns = tier_now(t);
	uint8_t sum[TIER_SUM_BYTES];
	const void *in[KV_MAX_GROUPS];
	struct tier_head h;

	if (slot >= t->n_slots || !t->slot[slot].serial || !t->media->read_head(t, slot, t->head) ||
		!tier_head_check(t, t->head))
		goto bad;
	memcpy(&h, t->head, sizeof h);
	if (!same_record(&h, t->head + sizeof h, expect) || !t->media->read_data(t, slot, data, h.groups))
		goto bad;
	memcpy(in, data, sizeof in);
	if (t->media->checked) {
		data_sum(t, in, h.groups, sum);
		if (memcmp(sum, h.data_sum, sizeof sum))
			goto bad;
	}
	t->status.gets++;
	rate(&t->status.read_bytes_per_ns, t->data_bytes, tier_now(t) - start_ns);
	return TENON_OK;
bad:
	t->status.bad++;
	return error_set(e, TENON_E_FORMAT, "tier: a record is damaged or another one; it counts as a miss");
}

/* ---- walking ------------------------------------------------------------------------------------------------------- */
static int compare_u64(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

static void order_make(struct kv_tier *t)
{
	MEM_CLEAR(t->order);
	t->n_order = t->at_order = 0;
	if (!t->status.records)
		return;
	t->order = mem_alloc(MEM_KV, t->status.records * sizeof *t->order);
	for (uint32_t i = 0; t->order && i < t->n_slots; i++)
		if (t->slot[i].serial)
			t->order[t->n_order++] = (uint64_t)t->slot[i].first << 32 | i;
	if (t->order)
		qsort(t->order, t->n_order, sizeof *t->order, compare_u64);
}

bool kv_tier_each(struct kv_tier *t, uint32_t *slot, struct kv_record *r, int32_t *tokens)
{
	struct tier_head h;

	if (*slot == KV_TIER_NONE)
		order_make(t);
	while (t->at_order < t->n_order) {
		uint32_t at = (uint32_t)t->order[t->at_order++];

		if (at >= t->n_slots || !t->slot[at].serial)
			continue;
		if (!t->media->read_head(t, at, t->head) || !tier_head_check(t, t->head)) {
			t->status.bad++;
			kv_tier_drop(t, at);
			continue;
		}
		memcpy(&h, t->head, sizeof h);
		record_of(&h, r);
		memcpy(tokens, t->head + sizeof h, r->n_tokens * sizeof *tokens);
		r->tokens = tokens;
		*slot = at;
		return true;
	}
	MEM_CLEAR(t->order);
	t->n_order = t->at_order = 0;
	return false;
}

/* ---- limits while running ------------------------------------------------------------------------------------------ */
/* The most records that fit: slots without gaps, an index without spare room. */
static uint32_t most_records(const struct kv_tier *t, uint64_t limit)
{
	uint32_t low = 0, high = TIER_MAX_SLOTS;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (t->media->bytes(t, mid, mid, mid) <= limit)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

/* The serial from which on at most n records are kept: found by halving, as nothing may be allocated here. */
static uint64_t oldest_of(const struct kv_tier *t, uint32_t n)
{
	uint64_t low = 1, high = UINT64_MAX;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;
		uint32_t count = 0;

		for (uint32_t i = 0; i < t->n_slots; i++)
			count += t->slot[i].serial >= mid;
		if (count <= n)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static void drop_before(struct kv_tier *t, uint64_t serial, void (*gone)(void *ctx, uint32_t slot), void *ctx)
{
	for (uint32_t i = t->n_slots; i-- > 0;)
		if (i < t->n_slots && t->slot[i].serial && t->slot[i].serial < serial) {
			kv_tier_drop(t, i);
			if (gone)
				gone(ctx, i);
		}
}

/* Records from the end into gaps, then the end is cut off. */
static void close_gaps(struct kv_tier *t, void (*gone)(void *ctx, uint32_t slot),
	void (*moved)(void *ctx, uint32_t from, uint32_t to), void *ctx)
{
	uint32_t to;

	while ((to = free_slot(t)) < t->n_slots) {
		uint32_t from = t->n_slots - 1;
		struct tier_slot s = t->slot[from];

		if (!t->media->move(t, from, to)) {
			kv_tier_drop(t, from);
			if (gone)
				gone(ctx, from);
			continue;
		}
		t->slot[to].serial = s.serial;
		t->slot[to].first = s.first;
		t->status.records++;
		slot_free(t, from);
		if (moved)
			moved(ctx, from, to);
	}
}

static void index_shrink(struct kv_tier *t)
{
	struct tier_slot *slot;

	if (!t->n_slots) {
		MEM_CLEAR(t->slot);
		t->cap = 0;
	} else if (t->n_slots < t->cap) {
		slot = mem_resize(MEM_KV, t->slot, t->n_slots * sizeof *slot);
		if (slot) {
			t->slot = slot;
			t->cap = t->n_slots;
		}
	}
	update_bytes(t);
}

void kv_tier_set_limit(struct kv_tier *t, uint64_t bytes, void (*gone)(void *ctx, uint32_t slot),
	void (*moved)(void *ctx, uint32_t from, uint32_t to), void *ctx)
{
	uint32_t most;

	t->status.limit_bytes = bytes;
	if (t->status.bytes <= bytes)
		return;
	most = most_records(t, bytes);
	if (t->status.records > most)
		drop_before(t, oldest_of(t, most), gone, ctx);
	close_gaps(t, gone, moved, ctx);
	index_shrink(t);
}

void kv_tier_get_status(const struct kv_tier *t, struct kv_tier_status *out) { *out = t->status; }
