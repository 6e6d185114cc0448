/* SPDX-License-Identifier: Apache-2.0
 * score.h.
 */
#include "tools/score.h"
#include "base/base.h"
#include <string.h>

/* Odd page numbers from the top, then even ones. */
static void scatter(uint32_t *order, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t odd = 2; odd-- > 0;)
		for (uint32_t i = n; i-- > 0;)
			if (i % 2 == odd)
				order[at++] = i;
}

uint32_t score_width(const struct score *s)
{
	const struct model_info *i = model_info(s->m);

	return i->is_encoder ? i->d_model : i->n_vocab;
}

static int take_memory(struct score *s, struct error *e)
{
	const struct model_info *i = model_info(s->m);
	uint32_t most = i->n_ctx / i->page_tokens + 1;

	s->rows = mem_zalloc(MEM_TOOL, (size_t)SCORE_OUT * score_width(s), sizeof *s->rows);
	for (uint32_t g = 0; g < i->n_groups; g++) {
		s->order[g] = mem_zalloc(MEM_TOOL, i->n_pages[g], sizeof *s->order[g]);
		s->pages[g] = mem_zalloc(MEM_TOOL, most, sizeof *s->pages[g]);
		if (!s->order[g] || !s->pages[g])
			return error_set(e, TENON_E_NOMEM, "no memory for lists of pages");
		scatter(s->order[g], i->n_pages[g]);
	}
	return s->rows ? TENON_OK : error_set(e, TENON_E_NOMEM, "no memory for rows of scores");
}

int score_open(struct open_options *o, uint64_t n_ctx, uint64_t chunk, bool encoders_too, struct score *s,
	struct error *e)
{
	int rc;

	*s = (struct score){ .chunk = (uint32_t)MIN_OF(chunk, SCORE_TOKENS) };
	o->o.step_tokens = SCORE_TOKENS;
	o->o.step_seqs = 1;
	o->o.step_out = SCORE_OUT;
	o->o.n_ctx = (uint32_t)n_ctx;
	rc = open_model(o, &s->opened, e);
	s->m = s->opened.model;
	if (!rc && model_info(s->m)->is_encoder && !encoders_too)
		rc = error_set(e, TENON_E_UNSUPPORTED,
			"model '%s': an encoder gives embeddings, not text; see tenon embed",
			model_info(s->m)->name);
	return rc ? rc : take_memory(s, e);
}

void score_close(struct score *s)
{
	MEM_CLEAR(s->rows);
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++) {
		MEM_CLEAR(s->order[g]);
		MEM_CLEAR(s->pages[g]);
	}
	open_model_close(&s->opened);
}

/* Tokens of the next step from `past`: a chunk, and not more rows than there is room for. */
static uint32_t step_length(const struct score *s, uint32_t past, uint32_t n, uint32_t first_row)
{
	uint32_t len = MIN_OF(n - past, s->chunk);

	if (past + len > first_row && past + len - MAX_OF(first_row, past) > SCORE_OUT)
		len = MAX_OF(first_row, past) - past + SCORE_OUT;
	return len;
}

/* Page lists of a step: pages in turn, holes for what lies behind the window of its first token. */
static void fill_pages(struct score *s, struct step_seq *q)
{
	const struct model_info *i = model_info(s->m);
	uint32_t n = (q->past + q->n_tokens + i->page_tokens - 1) / i->page_tokens;

	for (uint32_t g = 0; g < i->n_groups; g++) {
		uint32_t w = i->window[g],
			 holes = w && q->past + 1 > w ? (q->past + 1 - w) / i->page_tokens : 0;

		for (uint32_t p = 0; p < n; p++)
			s->pages[g][p] = p < holes ? TNP_PAGE_HOLE : s->order[g][p % i->n_pages[g]];
		q->pages[g] = s->pages[g];
		q->n_pages[g] = n;
	}
}

int score_step(struct score *s, const int32_t *ids, uint32_t past, uint32_t n, uint32_t n_out, struct error *e)
{
	struct step_seq q = { .tokens = ids, .n_tokens = n, .past = past, .n_out = n_out, .out = s->rows };
	int rc;

	fill_pages(s, &q);
	rc = model_step(s->m, &q, 1, e);
	return !rc && q.rc ? error_set(e, q.rc, "ids: %s", error_meaning(q.rc)) : rc;
}

int score_embed(struct score *s, const int32_t *ids, uint32_t n, struct error *e)
{
	return score_step(s, ids, 0, n, 1, e);
}

int score_run(struct score *s, const int32_t *ids, uint32_t n, uint32_t n_rows, score_fn *fn, void *ctx,
	struct error *e)
{
	uint32_t first_row = n - MIN_OF(n_rows, n);

	for (uint32_t past = 0, len; past < n; past += len) {
		uint32_t n_out;
		int rc;

		len = step_length(s, past, n, first_row);
		n_out = past + len > first_row ? past + len - MAX_OF(first_row, past) : 0;
		rc = score_step(s, ids + past, past, len, n_out, e);
		if (!rc && n_out)
			rc = fn(ctx, past + len - n_out, s->rows, n_out, e);
		if (rc)
			return rc;
	}
	return TENON_OK;
}
