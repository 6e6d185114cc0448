/* SPDX-License-Identifier: Apache-2.0
 * One step: the caller's sequences become the ragged arrays of struct tnp_batch, in memory taken when the model was
 * opened. Every number is checked before the backend sees it; a sequence that fails is left out and told so, the
 * others do not notice. Owner: the step thread.
 */
#include "base/base.h"
#include "engine/model_priv.h"
#include <string.h>

/* Cuts the next part off a block whose size is counted first (base NULL). */
static void *cut(char *base, uint64_t *at, uint64_t n, size_t bytes)
{
	void *p = base ? base + *at : NULL;

	*at = (*at + n * bytes + 63) & ~UINT64_C(63);
	return p;
}

static uint64_t n_rows(const struct model_info *i)
{
	return MAX_OF(i->step_out, i->is_encoder ? i->step_seqs : 0u);
}

/* Rows that output i of the graph may have in a step. */
static uint64_t out_rows(const struct model *m, uint32_t i)
{
	int64_t symbol = graph_symbol(m->graph, m->g->out[i]);

	return symbol == TNP_N_TOKENS  ? m->info.step_tokens
		: symbol == TNP_N_SEQS ? m->info.step_seqs
				       : m->info.step_out;
}

static void layout_outs(struct step_arrays *a, const struct model *m, char *base, uint64_t *at)
{
	struct tnp_rows *out = cut(base, at, m->g->n_out, sizeof *out);

	for (uint32_t i = 1; i < m->g->n_out; i++) {
		uint64_t width = (uint64_t)graph_row_width(m->graph, m->g->out[i]);
		float *rows = cut(base, at, out_rows(m, i) * width, sizeof *rows);

		if (out)
			out[i] = (struct tnp_rows){ .data = rows, .stride = width };
	}
	a->out = out;
}

static uint64_t layout(struct step_arrays *a, const struct model *m, uint32_t max_pages, char *base)
{
	const struct model_info *i = &m->info;
	uint64_t at = 0;

	a->token = cut(base, &at, i->step_tokens, sizeof *a->token);
	a->pos = cut(base, &at, i->step_tokens, sizeof *a->pos);
	a->tok0 = cut(base, &at, i->step_seqs + 1, sizeof *a->tok0);
	a->past = cut(base, &at, i->step_seqs, sizeof *a->past);
	for (uint32_t g = 0; g < i->n_groups; g++) {
		a->page0[g] = cut(base, &at, i->step_seqs + 1, sizeof *a->page0[g]);
		a->page[g] = cut(base, &at, (uint64_t)i->step_seqs * max_pages, sizeof *a->page[g]);
	}
	a->out_tok = cut(base, &at, i->step_out, sizeof *a->out_tok);
	a->seq_rc = cut(base, &at, i->step_seqs, sizeof *a->seq_rc);
	a->part_rc = cut(base, &at, m->parts.n > 1 ? i->step_seqs : 0, sizeof *a->part_rc);
	a->seq_of = cut(base, &at, i->step_seqs, sizeof *a->seq_of);
	layout_outs(a, m, base, &at);
	a->rows = cut(base, &at, n_rows(i) * m->out_width, sizeof *a->rows);
	return at;
}

uint64_t model_step_bytes(const struct model *m, uint32_t max_pages)
{
	struct step_arrays a;

	return layout(&a, m, max_pages, NULL) - n_rows(&m->info) * m->out_width * sizeof *a.rows;
}

int model_step_open(struct model *m, struct error *e)
{
	uint64_t bytes = layout(&m->step, m, m->max_pages, NULL);

	m->step.block = m->parts.split ? mem_zalloc(MEM_ENGINE, bytes, 1) : mem_alloc(MEM_ENGINE, bytes);
	if (!m->step.block)
		return error_set(e, TENON_E_NOMEM, "model '%s': no memory for a step of %u tokens", m->name,
			m->info.step_tokens);
	(void)layout(&m->step, m, m->max_pages, m->step.block);
	m->step.bytes = bytes;
	return TENON_OK;
}

void model_step_close(struct model *m) { MEM_CLEAR(m->step.block); }

/* ---- checks --------------------------------------------------------------------------------------------------------- */

static int check_limits(const struct model *m, const struct step_seq *s, uint32_t n, struct error *e)
{
	const struct model_info *i = &m->info;
	uint64_t tokens = 0, rows = 0;

	if (!n || n > i->step_seqs)
		return error_set(
			e, TENON_E_INVALID, "step: %u sequences, 1 to %u are allowed", n, i->step_seqs);
	for (uint32_t k = 0; k < n; k++) {
		tokens += s[k].n_tokens;
		rows += s[k].n_out;
	}
	if (tokens > i->step_tokens || (!i->is_encoder && rows > i->step_out))
		return error_set(e, TENON_E_INVALID,
			"step: %llu tokens and %llu rows, at most %u and %u are allowed",
			(unsigned long long)tokens, (unsigned long long)rows, i->step_tokens, i->step_out);
	return TENON_OK;
}

static bool pages_ok(const struct model *m, const struct step_seq *s)
{
	uint64_t end = (uint64_t)s->past + s->n_tokens,
		 need = (end + m->info.page_tokens - 1) / m->info.page_tokens;

	for (uint32_t g = 0; g < m->info.n_groups; g++) {
		if (s->n_pages[g] < need || !s->pages[g])
			return false;
		for (uint64_t i = 0; i < need; i++)
			if (s->pages[g][i] >= m->info.n_pages[g] && s->pages[g][i] != TNP_PAGE_HOLE)
				return false;
	}
	return true;
}

static bool seq_ok(const struct model *m, const struct step_seq *s)
{
	uint32_t rows = m->info.is_encoder ? 0 : s->n_out;

	if (!s->n_tokens || rows > s->n_tokens || (rows && !s->out) ||
		(m->info.is_encoder && (!s->out || s->past)))
		return false;
	if ((uint64_t)s->past + s->n_tokens > m->info.n_ctx)
		return false;
	for (uint32_t i = 0; i < s->n_tokens; i++)
		if (s->tokens[i] < 0 || (uint32_t)s->tokens[i] >= m->info.n_vocab)
			return false;
	return pages_ok(m, s);
}

/* ---- filling -------------------------------------------------------------------------------------------------------- */

struct fill {
	uint32_t n_seqs, n_tokens, n_out;
	float *rows; /* where row 0 goes, if all rows lie in one piece */
	bool in_pieces;
};

static void fill_pages(struct model *m, struct fill *f, const struct step_seq *s)
{
	uint64_t end = (uint64_t)s->past + s->n_tokens;
	uint32_t need = (uint32_t)((end + m->info.page_tokens - 1) / m->info.page_tokens);

	for (uint32_t g = 0; g < m->info.n_groups; g++) {
		uint32_t at = m->step.page0[g][f->n_seqs];

		memcpy(m->step.page[g] + at, s->pages[g], need * sizeof *s->pages[g]);
		m->step.page0[g][f->n_seqs + 1] = at + need;
	}
}

static void fill_rows(struct model *m, struct fill *f, const struct step_seq *s)
{
	uint32_t row = m->info.is_encoder ? f->n_seqs : f->n_out, n = m->info.is_encoder ? 1 : s->n_out;

	if (!n)
		return;
	if (!f->rows)
		f->rows = s->out;
	else if (s->out != f->rows + (uint64_t)row * m->out_width)
		f->in_pieces = true;
	for (uint32_t i = 0; i < s->n_out && !m->info.is_encoder; i++)
		m->step.out_tok[f->n_out++] = f->n_tokens + s->n_tokens - s->n_out + i;
}

static void fill_seq(struct model *m, struct fill *f, const struct step_seq *s, uint32_t index)
{
	struct step_arrays *a = &m->step;

	a->seq_of[f->n_seqs] = index;
	a->past[f->n_seqs] = s->past;
	fill_pages(m, f, s);
	fill_rows(m, f, s);
	memcpy(a->token + f->n_tokens, s->tokens, s->n_tokens * sizeof *s->tokens);
	for (uint32_t i = 0; i < s->n_tokens; i++)
		a->pos[f->n_tokens + i] = (int32_t)(s->past + i);
	f->n_tokens += s->n_tokens;
	a->tok0[++f->n_seqs] = f->n_tokens;
}

static void fill_all(struct model *m, struct fill *f, struct step_seq *s, uint32_t n)
{
	*f = (struct fill){ 0 };
	m->step.tok0[0] = 0;
	for (uint32_t g = 0; g < m->info.n_groups; g++)
		m->step.page0[g][0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		s[i].rc = seq_ok(m, &s[i]) ? TENON_OK : TENON_E_INVALID;
		if (!s[i].rc)
			fill_seq(m, f, &s[i], i);
	}
}

/* ---- the step ------------------------------------------------------------------------------------------------------- */

static int seq_code(tnp_rc rc)
{
	switch (rc) {
	case TNP_OK:
		return TENON_OK;
	case TNP_E_INVALID:
		return TENON_E_INVALID;
	case TNP_E_UNSUPPORTED:
		return TENON_E_UNSUPPORTED;
	case TNP_E_NOMEM:
		return TENON_E_NOMEM;
	case TNP_E_CANCELLED:
		return TENON_E_CANCELLED;
	}
	return TENON_E_BACKEND;
}

/* Results to their sequences: codes, and rows that had to go through our memory. */
static void hand_out(struct model *m, const struct fill *f, struct step_seq *s)
{
	uint32_t row = 0;

	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct step_seq *q = &s[m->step.seq_of[i]];
		uint32_t n = m->info.is_encoder ? 1 : q->n_out;

		q->rc = seq_code(m->step.seq_rc[i]);
		if (f->in_pieces && n && !q->rc)
			memcpy(q->out, m->step.rows + (uint64_t)row * m->out_width,
				(uint64_t)n * m->out_width * sizeof *q->out);
		row += n;
	}
}

int model_step(struct model *m, struct step_seq *seqs, uint32_t n_seqs, struct error *e)
{
	struct tnp_pages pages[TNP_MAX_GROUPS] = { { 0 } };
	struct tnp_batch b;
	struct fill f;
	int rc = m->opened ? check_limits(m, seqs, n_seqs, e)
			   : error_set(e, TENON_E_INVALID, "step: the model was only measured");

	if (rc)
		return rc;
	fill_all(m, &f, seqs, n_seqs);
	if (!f.n_seqs)
		return TENON_OK;
	for (uint32_t g = 0; g < m->info.n_groups; g++)
		pages[g] = (struct tnp_pages){ .page0 = m->step.page0[g], .page = m->step.page[g] };
	m->step.out[0] = (struct tnp_rows){ .data = f.in_pieces || !f.rows ? m->step.rows : f.rows,
		.stride = m->out_width };
	b = (struct tnp_batch){ .size = sizeof b,
		.n_seqs = f.n_seqs,
		.n_tokens = f.n_tokens,
		.n_out = f.n_out,
		.token = m->step.token,
		.pos = m->step.pos,
		.tok0 = m->step.tok0,
		.past = m->step.past,
		.pages = pages,
		.out_tok = m->step.out_tok,
		.out = m->step.out,
		.seq_rc = m->step.seq_rc };
	rc = partition_batch(&m->parts, &b, m->step.part_rc, e);
	if (rc)
		return rc;
	hand_out(m, &f, seqs);
	for (uint32_t i = 0; i < m->n_taps; i++) {
		m->taps[i].rows = m->step.out[m->tap_out[i]].data;
		m->taps[i].n_rows = (m->taps[i].of_seqs			? f.n_seqs
						    : m->taps[i].chosen ? f.n_out
									: f.n_tokens) *
			m->taps[i].per_token;
	}
	return rc;
}
