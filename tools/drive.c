/* SPDX-License-Identifier: Apache-2.0
 * drive.h. In a group with a window a sequence's pages go round: those behind the window are holes.
 */
#include "tools/drive.h"
#include "base/base.h"
#include "engine/logits.h"
#include <string.h>

/* Token `at` of sequence i. */
static int32_t *token_at(const struct drive *d, uint32_t i, uint32_t at)
{
	return d->tokens + i * ((size_t)d->info->n_ctx + 1) + at;
}

static uint32_t pages_of(const struct drive *d, uint32_t tokens)
{
	return (tokens + d->info->page_tokens - 1) / d->info->page_tokens;
}

int drive_init(struct drive *d, struct model *m, uint32_t n_seqs, struct error *e)
{
	uint32_t seed = 1;

	*d = (struct drive){ .model = m, .info = model_info(m), .n_seqs = n_seqs };
	if (d->info->is_encoder)
		return error_set(e, TENON_E_UNSUPPORTED,
			"'%.64s' is an encoder: it gives embeddings, not text; see tenon bench embed",
			d->info->name);
	d->seq_pages = pages_of(d, d->info->n_ctx);
	d->tokens = mem_zalloc(MEM_TOOL, n_seqs * ((size_t)d->info->n_ctx + 1), sizeof *d->tokens);
	d->logits = mem_zalloc(MEM_TOOL, (size_t)n_seqs * d->info->n_vocab, sizeof *d->logits);
	d->pages =
		mem_zalloc(MEM_TOOL, (size_t)n_seqs * d->info->n_groups * d->seq_pages + 1, sizeof *d->pages);
	d->seqs = mem_zalloc(MEM_TOOL, n_seqs, sizeof *d->seqs);
	if (!d->tokens || !d->logits || !d->pages || !d->seqs)
		return error_set(
			e, TENON_E_NOMEM, "no memory for the tokens and pages of %u sequences", n_seqs);
	for (size_t i = 0; i < n_seqs * ((size_t)d->info->n_ctx + 1); i++) {
		seed = seed * 1664525u + 1013904223u;
		d->tokens[i] = (int32_t)((seed >> 8) % d->info->n_vocab);
	}
	return TENON_OK;
}

void drive_finish(struct drive *d)
{
	mem_free(d->tokens);
	mem_free(d->logits);
	mem_free(d->pages);
	mem_free(d->seqs);
	*d = (struct drive){ 0 };
}

uint32_t drive_chunk(const struct drive *d, uint32_t n_seqs) { return d->info->step_tokens / n_seqs; }

/* Pages that a sequence has in use at most. */
static uint32_t pages_live(const struct drive *d, uint32_t group, uint32_t n_seqs, uint32_t n_tokens)
{
	uint32_t all = pages_of(d, n_tokens), window = d->info->window[group];

	return window ? MIN_OF(all, pages_of(d, window + drive_chunk(d, n_seqs)) + 1) : all;
}

bool drive_fits(const struct drive *d, uint32_t n_seqs, uint32_t n_tokens)
{
	if (n_seqs > d->n_seqs || n_tokens > d->info->n_ctx || !drive_chunk(d, n_seqs))
		return false;
	for (uint32_t g = 0; g < d->info->n_groups; g++)
		if (d->info->n_pages[g] / n_seqs < pages_live(d, g, n_seqs, n_tokens))
			return false;
	return true;
}

/* Page k of the sequence's history lies in page k mod (its share) of its share; those out of reach are holes. */
static void pages_list(struct drive *d, uint32_t i, uint32_t n_seqs, uint32_t past, uint32_t n)
{
	for (uint32_t g = 0; g < d->info->n_groups; g++) {
		uint32_t *page = d->pages + ((size_t)i * d->info->n_groups + g) * d->seq_pages;
		uint32_t share = d->info->n_pages[g] / n_seqs, window = d->info->window[g],
			 count = pages_of(d, past + n);
		uint32_t first = window && past > window ? (past - window) / d->info->page_tokens : 0;

		for (uint32_t k = 0; k < count; k++)
			page[k] = k < first ? TNP_PAGE_HOLE : i * share + k % share;
		d->seqs[i].pages[g] = page;
		d->seqs[i].n_pages[g] = count;
	}
}

int drive_step(struct drive *d, uint32_t n_seqs, uint32_t past, uint32_t n, bool out, struct error *e)
{
	int rc;

	if (!drive_fits(d, n_seqs, past + n))
		return error_set(e, TENON_E_INVALID,
			"%u sequences of %u tokens: over the model's context or pool", n_seqs, past + n);
	for (uint32_t i = 0; i < n_seqs; i++) {
		d->seqs[i] = (struct step_seq){ .tokens = token_at(d, i, past),
			.n_tokens = n,
			.past = past,
			.n_out = out,
			.out = out ? d->logits + (size_t)i * d->info->n_vocab : NULL };
		pages_list(d, i, n_seqs, past, n);
	}
	rc = model_step(d->model, d->seqs, n_seqs, e);
	for (uint32_t i = 0; i < n_seqs && !rc; i++)
		rc = d->seqs[i].rc ? error_set(e, d->seqs[i].rc, "sequence %u: refused by the backend", i)
				   : TENON_OK;
	return rc;
}

void drive_sample(struct drive *d, uint32_t n_seqs, uint32_t at)
{
	for (uint32_t i = 0; i < n_seqs; i++) {
		const float *row = d->logits + (size_t)i * d->info->n_vocab;
		int32_t best = logits_top(row, d->info->n_vocab);

		*token_at(d, i, at) = best < 0 ? 0 : best;
	}
}

int drive_prefill(struct drive *d, uint32_t n_seqs, uint32_t n, struct error *e)
{
	uint32_t chunk = drive_chunk(d, n_seqs);
	int rc = TENON_OK;

	for (uint32_t at = 0; at < n && !rc; at += chunk)
		rc = drive_step(d, n_seqs, at, MIN_OF(chunk, n - at), at + chunk >= n, e);
	return rc;
}

int drive_decode(struct drive *d, uint32_t n_seqs, uint32_t past, uint32_t n, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t k = 0; k < n && !rc; k++) {
		rc = drive_step(d, n_seqs, past + k, 1, true, e);
		if (!rc)
			drive_sample(d, n_seqs, past + k + 1);
	}
	return rc;
}
