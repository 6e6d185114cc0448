/* SPDX-License-Identifier: Apache-2.0
 * The pool of keys and values: one map a group, [page][slot][KV head]; what a head's part looks like stands in
 * attn.h. Whatever is stored is finite, so that a masked key can never reach a sum.
 */
#include "cpus.h"
#include "model.h"
#include <stdlib.h>
#include <string.h>

/* The spec must say what the graph and the limits said. */
static tnp_rc spec_check(const struct plan *p, const struct tnp_kv_spec *s, struct tnp_error *e)
{
	if (s->type != p->lim.kv_type || s->page_tokens != p->lim.page_tokens)
		return cpu_fail(e, TNP_E_INVALID, 0,
			"kv: type or page differ from the limits that the model was opened with");
	if (s->n_slots != p->slots.n || (s->n_slots && !s->slots))
		return cpu_fail(e, TNP_E_INVALID, 0, "kv: number of slots differs from the graph's");
	for (uint32_t i = 0; i < s->n_slots; i++) {
		const struct tnp_kv_slot *a = &s->slots[i], *b = &p->slots.slot[i];

		if (a->heads != b->heads || a->head_dim != b->head_dim || a->window != b->window ||
			a->group != b->group)
			return cpu_fail(e, TNP_E_INVALID, i, "kv: a slot differs from the graph's");
	}
	for (uint32_t i = 0; i < TNP_MAX_GROUPS; i++)
		if (s->n_pages[i] >= TNP_PAGE_HOLE || (i < p->slots.n_groups && !s->n_pages[i]) ||
			(i >= p->slots.n_groups && s->n_pages[i]))
			return cpu_fail(e, TNP_E_INVALID, i,
				"kv: number of pages out of range, or of a group that is not there");
	return TNP_OK;
}

static bool group_map(struct tnp_kv *k, uint32_t group)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(k->n_pages[group], k->page_bytes[group], &bytes) ||
		bytes > cpus_mem_total())
		return false;
	k->map_bytes[group] = bytes;
	k->mem[group] = cpu_map(bytes);
	k->seen[group] = calloc(k->n_pages[group], 1);
	return k->mem[group] && k->seen[group];
}

static bool slots_place(struct tnp_kv *k, const struct plan *p)
{
	k->slot_off = calloc((size_t)p->slots.n + 1, sizeof *k->slot_off);
	k->head_bytes = calloc((size_t)p->slots.n + 1, sizeof *k->head_bytes);
	if (!k->slot_off || !k->head_bytes)
		return false;
	for (uint32_t i = 0; i < p->slots.n; i++) {
		const struct tnp_kv_slot *s = &p->slots.slot[i];

		k->head_bytes[i] = attn_head_bytes(p->lim.kv_type, s->head_dim, p->lim.page_tokens);
		k->slot_off[i] = k->page_bytes[s->group];
		k->page_bytes[s->group] += s->heads * k->head_bytes[i];
	}
	return true;
}

tnp_rc kv_open(struct tnp_model *m, const struct tnp_kv_spec *spec, struct tnp_kv **o, struct tnp_error *e)
{
	struct tnp_kv_spec s = { 0 };
	struct tnp_kv *k;
	tnp_rc rc = m && spec && o ? cpu_take(&s, sizeof s, spec, e)
				   : cpu_fail(e, TNP_E_INVALID, 0, "kv: NULL argument");

	if (!rc)
		rc = spec_check(m->plan, &s, e);
	if (rc)
		return rc;
	k = calloc(1, sizeof *k);
	if (!k)
		return cpu_fail(e, TNP_E_NOMEM, 0, "kv: no memory");
	k->m = m;
	memcpy(k->n_pages, s.n_pages, sizeof k->n_pages);
	if (!slots_place(k, m->plan))
		rc = TNP_E_NOMEM;
	for (uint32_t i = 0; i < m->plan->slots.n_groups && !rc; i++)
		if (!group_map(k, i))
			rc = TNP_E_NOMEM;
	if (rc) {
		kv_close(k);
		return cpu_fail(e, rc, 0, "kv: no memory for the pages");
	}
	*o = k;
	return TNP_OK;
}

void kv_close(struct tnp_kv *k)
{
	if (!k)
		return;
	for (uint32_t i = 0; i < TNP_MAX_GROUPS; i++) {
		cpu_unmap(k->mem[i], k->map_bytes[i]);
		free(k->seen[i]);
	}
	free(k->slot_off);
	free(k->head_bytes);
	free(k);
}

static tnp_rc page_check(const struct tnp_kv *k, uint32_t group, uint32_t page, struct tnp_error *e)
{
	if (!k || group >= k->m->plan->slots.n_groups || page >= k->n_pages[group])
		return cpu_fail(e, TNP_E_INVALID, page, "kv: no such group or page");
	return TNP_OK;
}

/* Rows of `n` elements out of `page`, of every row of a plane [rows][page]. */
static void plane_copy(uint8_t *to, const uint8_t *from, size_t rows, size_t row_bytes, size_t bytes)
{
	for (size_t i = 0; i < rows; i++)
		memcpy(to + i * row_bytes, from + i * row_bytes, bytes);
}

/* The first n tokens of one head: keys are columns, values are rows. */
static void head_copy(
	uint8_t *to, const uint8_t *from, uint32_t type, uint32_t pad, uint32_t page, uint32_t n)
{
	size_t plane = attn_plane(type, pad, page), blocks = (pad + 31) / 32;
	size_t rows = type == TNP_Q4_0 ? pad / 2 : pad, scales = 2 * plane + 2 * blocks * page;

	plane_copy(to, from, rows, plane / rows, plane / rows / page * n);
	memcpy(to + plane, from + plane, plane / page * n);
	if (!attn_has_scales(type))
		return;
	plane_copy(to + 2 * plane, from + 2 * plane, blocks, page * 2u, n * 2u);
	memcpy(to + scales, from + scales, n * blocks * 2);
}

tnp_rc kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct tnp_error *e)
{
	tnp_rc rc = page_check(k, group, from, e);
	const struct plan *p;

	if (!rc)
		rc = page_check(k, group, to, e);
	if (rc)
		return rc;
	p = k->m->plan;
	if (n_tokens > p->lim.page_tokens || from == to)
		return cpu_fail(
			e, TNP_E_INVALID, n_tokens, "kv: more tokens than a page has, or a page onto itself");
	for (uint32_t i = 0; i < p->slots.n; i++)
		for (uint32_t h = 0; p->slots.slot[i].group == group && h < p->slots.slot[i].heads; h++)
			head_copy(kv_head_at(k, group, to, i, h), kv_head_at(k, group, from, i, h),
				p->lim.kv_type, attn_pad(p->slots.slot[i].head_dim), p->lim.page_tokens,
				n_tokens);
	return TNP_OK;
}

tnp_rc kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e)
{
	tnp_rc rc = page_check(k, group, page, e);

	if (!rc && !out)
		rc = cpu_fail(e, TNP_E_INVALID, 0, "kv: NULL argument");
	if (!rc)
		memcpy(out, k->mem[group] + page * k->page_bytes[group], k->page_bytes[group]);
	return rc;
}

/* Infinities and NaN in bytes from outside become zero. */
static void halves_clean(uint16_t *h, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((h[i] & 0x7c00u) == 0x7c00u)
			h[i] = 0;
}

static void floats_clean(uint32_t *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((f[i] & 0x7f800000u) == 0x7f800000u)
			f[i] = 0;
}

static void head_clean(uint8_t *head, uint32_t type, uint32_t pad, uint32_t page)
{
	size_t n = 2 * (size_t)pad * page;

	if (type == TNP_F32)
		floats_clean((uint32_t *)head, n);
	else if (type == TNP_F16)
		halves_clean((uint16_t *)head, n);
	else
		halves_clean((uint16_t *)(head + 2 * attn_plane(type, pad, page)),
			2 * (size_t)((pad + 31) / 32) * page);
}

tnp_rc kv_write(struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e)
{
	tnp_rc rc = page_check(k, group, page, e);
	const struct plan *p;

	if (!rc && !in)
		rc = cpu_fail(e, TNP_E_INVALID, 0, "kv: NULL argument");
	if (rc)
		return rc;
	p = k->m->plan;
	memcpy(k->mem[group] + page * k->page_bytes[group], in, k->page_bytes[group]);
	for (uint32_t i = 0; i < p->slots.n; i++)
		for (uint32_t h = 0; p->slots.slot[i].group == group && h < p->slots.slot[i].heads; h++)
			head_clean(kv_head_at(k, group, page, i, h), p->lim.kv_type,
				attn_pad(p->slots.slot[i].head_dim), p->lim.page_tokens);
	return TNP_OK;
}
