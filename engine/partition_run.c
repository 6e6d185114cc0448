/* SPDX-License-Identifier: Apache-2.0
 * partition.h: sizes, memory and steps of the parts. The step thread's; nothing is allocated in a step.
 */
#include "engine/partition.h"
#include <sodium.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------------------------------- */

/* False: over 2^64. Parts are opened one after the other, so the largest peak is enough. */
static bool sizes_add(struct tnp_sizes *sum, const struct tnp_sizes *s, const struct part *p)
{
	bool ok = checked_add_u64(sum->weights_mapped, s->weights_mapped, &sum->weights_mapped) &&
		checked_add_u64(sum->weights_own, s->weights_own, &sum->weights_own) &&
		checked_add_u64(sum->workspace, s->workspace, &sum->workspace);

	sum->open_peak = MAX_OF(sum->open_peak, s->open_peak);
	for (uint32_t g = 0; g < p->slots.n_groups; g++) {
		uint64_t *page = &sum->kv_page[p->group[g]];

		ok = ok && checked_add_u64(*page, s->kv_page[g], page);
	}
	return ok;
}

int partition_sizes(const struct partition *p, const struct tnp_limits *lim,
	struct tnp_sizes each[MODEL_MAX_PARTS], struct tnp_sizes *out, struct error *e)
{
	struct tnp_sizes sum = { .size = sizeof sum };
	crypto_generichash_state h;

	(void)crypto_generichash_init(&h, NULL, 0, sizeof sum.kv_compat);
	for (uint32_t i = 0; i < p->n; i++) {
		const struct part *part = &p->part[i];
		int rc;

		each[i] = (struct tnp_sizes){ .size = sizeof each[i] };
		rc = backend_model_sizes(part->backend, part->g, lim, &each[i], e);
		if (rc)
			return rc;
		if (!sizes_add(&sum, &each[i], part))
			return error_set(e, TENON_E_TOO_LONG, "model: needs more than 2^64 bytes");
		(void)crypto_generichash_update(&h, (const uint8_t *)&part->n_layers, sizeof part->n_layers);
		(void)crypto_generichash_update(&h, each[i].kv_compat, sizeof each[i].kv_compat);
	}
	(void)crypto_generichash_final(&h, sum.kv_compat, sizeof sum.kv_compat);
	if (p->n == 1)
		memcpy(sum.kv_compat, each[0].kv_compat, sizeof sum.kv_compat);
	*out = sum;
	return TENON_OK;
}

uint64_t partition_kv_bytes(
	const struct part *p, const struct tnp_sizes *s, const uint64_t n_pages[TNP_MAX_GROUPS])
{
	uint64_t sum = 0;

	for (uint32_t g = 0; g < p->slots.n_groups; g++)
		sum += n_pages[p->group[g]] * s->kv_page[g];
	return sum;
}

uint64_t partition_arena_bytes(const struct partition *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n; i++)
		sum += p->part[i].g->arena_bytes;
	return sum;
}

bool partition_has(const struct partition *p, uint64_t feature)
{
	bool all = true;

	for (uint32_t i = 0; i < p->n; i++)
		all = all && backend_has(p->part[i].backend, feature);
	return all;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static int pool_open(
	struct part *p, const struct tnp_limits *lim, const uint32_t n_pages[TNP_MAX_GROUPS], struct error *e)
{
	struct tnp_kv_spec k = { .size = sizeof k,
		.type = lim->kv_type,
		.page_tokens = lim->page_tokens,
		.n_slots = p->slots.n,
		.slots = p->slots.slot };

	for (uint32_t g = 0; g < p->slots.n_groups; g++)
		k.n_pages[g] = n_pages[p->group[g]];
	return p->slots.n ? backend_kv_open(p->bm, &k, e) : TENON_OK;
}

/* Where one part's progress stands among all. */
struct share {
	const struct backend_progress *to;
	uint64_t before, own, all; /* bytes of weights */
};

static uint64_t weights_of(const struct tnp_sizes *s) { return s->weights_own + s->weights_mapped; }

static void share_tell(void *ctx, uint64_t done, uint64_t total)
{
	const struct share *s = ctx;

	s->to->tell(
		s->to->ctx, s->before + (uint64_t)((double)s->own * (double)done / (double)total), s->all);
}

int partition_open(struct partition *p, const struct tnp_limits *lim,
	const struct tnp_sizes each[MODEL_MAX_PARTS], const uint32_t n_pages[TNP_MAX_GROUPS],
	const struct backend_progress *progress, struct error *e)
{
	struct share share = { .to = progress };
	const struct backend_progress mine = { share_tell, &share };
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n; i++)
		share.all += weights_of(&each[i]);
	for (uint32_t i = 0; i < p->n && !rc; i++) {
		struct part *part = &p->part[i];

		memcpy(part->page_bytes, each[i].kv_page, sizeof part->page_bytes);
		share.own = weights_of(&each[i]);
		rc = backend_model_open(
			part->backend, part->g, lim, progress && share.all ? &mine : NULL, &part->bm, e);
		share.before += share.own;
		if (!rc)
			rc = pool_open(part, lim, n_pages, e);
	}
	return rc;
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

/* What of the batch concerns this part. pages: [groups] for it. */
static struct tnp_batch batch_of(struct part *p, const struct tnp_batch *b, struct tnp_pages *pages)
{
	struct tnp_batch mine = *b;

	for (uint32_t g = 0; g < p->slots.n_groups; g++)
		pages[g] = b->pages[p->group[g]];
	for (uint32_t i = 0; i < p->n_outs; i++)
		p->rows[i] = b->out[p->outs[i]];
	mine.pages = pages;
	mine.out = p->rows;
	if (p->in != TNP_NONE) {
		mine.token = NULL;
		mine.in = b->out[p->in].data;
	}
	return mine;
}

int partition_batch(struct partition *p, const struct tnp_batch *b, tnp_rc *part_rc, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n && !rc; i++) {
		struct tnp_pages pages[TNP_MAX_GROUPS] = { { 0 } };
		struct tnp_batch mine = batch_of(&p->part[i], b, pages);

		mine.seq_rc = i ? part_rc : b->seq_rc;
		for (uint32_t s = 0; s < b->n_seqs; s++)
			mine.seq_rc[s] = TNP_OK;
		rc = backend_batch(p->part[i].bm, &mine, e);
		for (uint32_t s = 0; s < b->n_seqs && i; s++)
			if (b->seq_rc[s] == TNP_OK)
				b->seq_rc[s] = part_rc[s];
	}
	return rc;
}

/* ---- pages ----------------------------------------------------------------------------------------------------------- */

/* The part's group that is this one of the model's, or n_groups. */
static uint32_t group_in(const struct part *p, uint32_t group)
{
	uint32_t g = 0;

	while (g < p->slots.n_groups && p->group[g] != group)
		g++;
	return g;
}

int partition_kv_copy(
	struct partition *p, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n && !rc; i++) {
		uint32_t g = group_in(&p->part[i], group);

		if (g < p->part[i].slots.n_groups)
			rc = backend_kv_copy(p->part[i].bm, g, from, to, n_tokens, e);
	}
	return rc;
}

/* The bytes of a page: those of the parts, one behind the other. */
int partition_kv_read(struct partition *p, uint32_t group, uint32_t page, void *out, struct error *e)
{
	char *at = out;
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n && !rc; i++) {
		uint32_t g = group_in(&p->part[i], group);

		if (g == p->part[i].slots.n_groups)
			continue;
		rc = backend_kv_read(p->part[i].bm, g, page, at, e);
		at += p->part[i].page_bytes[g];
	}
	return rc;
}

int partition_kv_write(struct partition *p, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	const char *at = in;
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n && !rc; i++) {
		uint32_t g = group_in(&p->part[i], group);

		if (g == p->part[i].slots.n_groups)
			continue;
		rc = backend_kv_write(p->part[i].bm, g, page, at, e);
		at += p->part[i].page_bytes[g];
	}
	return rc;
}
