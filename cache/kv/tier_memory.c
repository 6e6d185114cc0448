/* SPDX-License-Identifier: Apache-2.0
 * A tier in host memory: one block a record, its head first. Records and the index count against the limit.
 * Owner: the step thread.
 */
#include "cache/kv/tier_priv.h"
#include <string.h>

static uint64_t memory_bytes(const struct kv_tier *t, uint32_t n_slots, uint32_t n_records, uint32_t cap)
{
	(void)n_slots;
	return n_records * (t->head_bytes + t->data_bytes) + cap * (uint64_t)sizeof(struct tier_slot);
}

static int memory_write(struct kv_tier *t, uint32_t slot, const uint8_t *head,
	const void *const data[KV_MAX_GROUPS], uint32_t groups)
{
	uint8_t *block = mem_alloc(MEM_KV, t->head_bytes + t->data_bytes), *p = block;

	if (!block)
		return TENON_E_NOMEM;
	memcpy(p, head, t->head_bytes);
	p += t->head_bytes;
	for (uint32_t g = 0; g < t->n_groups; g++) {
		if (groups & 1u << g)
			memcpy(p, data[g], t->page_bytes[g]);
		p += t->page_bytes[g];
	}
	t->slot[slot].block = block;
	return TENON_OK;
}

static bool memory_read_head(struct kv_tier *t, uint32_t slot, uint8_t *head)
{
	memcpy(head, t->slot[slot].block, t->head_bytes);
	return true;
}

static bool memory_read_data(
	struct kv_tier *t, uint32_t slot, void *const data[KV_MAX_GROUPS], uint32_t groups)
{
	const uint8_t *p = t->slot[slot].block + t->head_bytes;

	for (uint32_t g = 0; g < t->n_groups; g++) {
		if (groups & 1u << g)
			memcpy(data[g], p, t->page_bytes[g]);
		p += t->page_bytes[g];
	}
	return true;
}

static void memory_erase(struct kv_tier *t, uint32_t slot) { MEM_CLEAR(t->slot[slot].block); }

static bool memory_move(struct kv_tier *t, uint32_t from, uint32_t to)
{
	t->slot[to].block = t->slot[from].block;
	t->slot[from].block = NULL;
	return true;
}

static void memory_cut(struct kv_tier *t, uint32_t n_slots)
{
	(void)t;
	(void)n_slots;
}

const struct tier_media tier_memory = { .bytes = memory_bytes,
	.write = memory_write,
	.read_head = memory_read_head,
	.read_data = memory_read_data,
	.erase = memory_erase,
	.move = memory_move,
	.cut = memory_cut };
