/* SPDX-License-Identifier: Apache-2.0
 * KV pages. A page of a group holds, for each slot of the group in order, K [tokens][heads][head_dim] and V the
 * same, each head a row of the stored type. Memory is cleared, so a place never written reads as zero.
 */
#include "ref.h"
#include <stdlib.h>
#include <string.h>

uint64_t ref_page_bytes(
	const struct ref_slots *s, uint32_t group, uint32_t type, uint32_t page_tokens, uint64_t *slot_off)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t head = ref_row_bytes(type, s->slot[i].head_dim), part;

		if (s->slot[i].group != group)
			continue;
		if (slot_off)
			slot_off[i] = at;
		if (!head || __builtin_mul_overflow(head * 2 * page_tokens, s->slot[i].heads, &part) ||
			__builtin_add_overflow(at, part, &at))
			return 0;
	}
	return at;
}

/* FNV-1a over what decides the layout of a page. */
void ref_kv_compat(const struct tnp_model *m, uint8_t out[32])
{
	uint64_t h = 0xcbf29ce484222325ull;
	uint32_t head[2] = { m->lim.kv_type, m->lim.page_tokens };

	for (uint32_t i = 0; i < 2; i++)
		h = (h ^ head[i]) * 0x100000001b3ull;
	for (uint32_t i = 0; i < m->slots.n; i++) {
		h = (h ^ m->slots.slot[i].heads) * 0x100000001b3ull;
		h = (h ^ m->slots.slot[i].head_dim) * 0x100000001b3ull;
		h = (h ^ m->slots.slot[i].group) * 0x100000001b3ull;
	}
	memset(out, 0, 32);
	memcpy(out, "tenonref", 8);
	memcpy(out + 8, &h, sizeof h);
}

/* The host's description must be what the graph says. */
static tnp_rc spec_check(const struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_error *e)
{
	if (s->type != m->lim.kv_type || s->page_tokens != m->lim.page_tokens || s->n_slots != m->slots.n ||
		(s->n_slots && !s->slots))
		return ref_fail(e, TNP_E_INVALID, 0,
			"kv_open: type, page size or number of slots are not the model's");
	for (uint32_t i = 0; i < s->n_slots; i++) {
		const struct tnp_kv_slot *a = &s->slots[i];
		const struct ref_slot *b = &m->slots.slot[i];

		if (a->heads != b->heads || a->head_dim != b->head_dim || a->window != b->window ||
			a->group != b->group)
			return ref_fail(
				e, TNP_E_INVALID, i, "kv_open: slot %u is not as the graph uses it", i);
	}
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		if (g < m->slots.n_groups ? s->n_pages[g] == 0 : s->n_pages[g] != 0)
			return ref_fail(
				e, TNP_E_INVALID, g, "kv_open: group %u has the wrong number of pages", g);
	return TNP_OK;
}

static bool pool_alloc(struct tnp_kv *k)
{
	const struct ref_slots *s = &k->m->slots;
	uint64_t total = 0, bytes;

	for (uint32_t g = 0; g < s->n_groups; g++) {
		k->page_bytes[g] = ref_page_bytes(s, g, k->type, k->page_tokens, k->slot_off);
		if (k->n_pages[g] >= TNP_PAGE_HOLE ||
			__builtin_mul_overflow(k->n_pages[g], k->page_bytes[g], &bytes) ||
			__builtin_add_overflow(total, bytes, &total) || total > ref_mem_total())
			return false;
	}
	for (uint32_t g = 0; g < s->n_groups; g++) {
		k->mem[g] = calloc(k->n_pages[g], k->page_bytes[g]);
		k->seen[g] = calloc(k->n_pages[g], 1);
		if (!k->mem[g] || !k->seen[g])
			return false;
	}
	return true;
}

tnp_rc ref_kv_open(struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	struct tnp_kv_spec spec;
	tnp_rc rc = ref_take(&spec, sizeof spec, s, "kv_open", e);
	struct tnp_kv *k;

	if (rc == TNP_OK)
		rc = spec_check(m, &spec, e);
	if (rc)
		return rc;
	k = calloc(1, sizeof *k + (m->slots.n + 1) * sizeof *k->slot_off);
	if (!k)
		return ref_fail(e, TNP_E_NOMEM, 0, "kv_open: no memory");
	k->m = m;
	k->type = spec.type;
	k->page_tokens = spec.page_tokens;
	k->slot_off = (uint64_t *)(k + 1);
	memcpy(k->n_pages, spec.n_pages, sizeof k->n_pages);
	if (!pool_alloc(k)) {
		ref_kv_close(k);
		return ref_fail(e, TNP_E_NOMEM, 0, "kv_open: no memory for the pages");
	}
	*o = k;
	return TNP_OK;
}

void ref_kv_close(struct tnp_kv *k)
{
	for (uint32_t g = 0; k && g < TNP_MAX_GROUPS; g++) {
		free(k->mem[g]);
		free(k->seen[g]);
	}
	free(k);
}

static uint8_t *page_at(struct tnp_kv *k, uint32_t group, uint32_t page)
{
	if (group >= k->m->slots.n_groups || page >= k->n_pages[group])
		return NULL;
	return k->mem[group] + page * k->page_bytes[group];
}

tnp_rc ref_kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct tnp_error *e)
{
	const uint8_t *src = page_at(k, group, from);
	uint8_t *dst = page_at(k, group, to);

	if (!src || !dst || from == to || n_tokens > k->page_tokens)
		return ref_fail(
			e, TNP_E_INVALID, group, "kv_copy: group, page or number of tokens out of range");
	for (uint32_t i = 0; i < k->m->slots.n; i++) {
		const struct ref_slot *s = &k->m->slots.slot[i];
		uint64_t token = s->heads * ref_row_bytes(k->type, s->head_dim);

		if (s->group != group)
			continue;
		memcpy(dst + k->slot_off[i], src + k->slot_off[i], n_tokens * token);
		memcpy(dst + k->slot_off[i] + k->page_tokens * token,
			src + k->slot_off[i] + k->page_tokens * token, n_tokens * token);
	}
	return TNP_OK;
}

tnp_rc ref_kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e)
{
	const uint8_t *src = page_at(k, group, page);

	if (!src)
		return ref_fail(e, TNP_E_INVALID, group, "kv_read: group or page out of range");
	memcpy(out, src, k->page_bytes[group]);
	return TNP_OK;
}

tnp_rc ref_kv_write(struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e)
{
	uint8_t *dst = page_at(k, group, page);

	if (!dst)
		return ref_fail(e, TNP_E_INVALID, group, "kv_write: group or page out of range");
	memcpy(dst, in, k->page_bytes[group]);
	return TNP_OK;
}
