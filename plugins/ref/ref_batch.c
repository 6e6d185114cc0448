/* SPDX-License-Identifier: Apache-2.0
 * One step: check every number the host gave, pack the sequences that passed, run the nodes in order, write
 * the rows of the graph's outputs as floats. A sequence that fails is left out; the others do not notice.
 */
#include "ref.h"
#include <string.h>

/* ---- the batch as a whole ------------------------------------------------------------------------ */
static uint32_t rows_of_symbol(int64_t symbol, uint32_t n_tokens, uint32_t n_seqs, uint32_t n_out)
{
	return symbol == TNP_N_TOKENS ? n_tokens : symbol == TNP_N_SEQS ? n_seqs : n_out;
}

static bool ascending(const uint32_t *v, uint32_t n, uint32_t step)
{
	for (uint32_t i = 1; i < n; i++)
		if (v[i] < v[i - 1] || v[i] - v[i - 1] < step)
			return false;
	return true;
}

static const char *rows_fault(const struct tnp_model *m, const struct tnp_batch *b)
{
	for (uint32_t i = 0; i < m->g.n_out; i++) {
		const struct tnp_tensor *t = &m->g.tensors[m->g.out[i]];

		if (!rows_of_symbol(t->dim[0], b->n_tokens, b->n_seqs, b->n_out))
			continue;
		if (!b->out || !b->out[i].data || b->out[i].stride < (uint64_t)ref_width(t))
			return "no room for an output";
	}
	return NULL;
}

static const char *lists_fault(const struct tnp_model *m, const struct tnp_kv *k, const struct tnp_batch *b)
{
	if (!k || k->m != m || !b->pages)
		return "the graph attends over the past, but there is no pool of this model, or no page lists";
	for (uint32_t g = 0; g < m->slots.n_groups; g++)
		if (!b->pages[g].page0 || !b->pages[g].page ||
			!ascending(b->pages[g].page0, b->n_seqs + 1, 0))
			return "page lists are missing or not ascending";
	return NULL;
}

static const char *batch_fault(const struct tnp_model *m, const struct tnp_kv *k, const struct tnp_batch *b)
{
	if (b->n_seqs > m->lim.max_seqs || b->n_tokens > m->lim.max_tokens || b->n_out > m->lim.max_out)
		return "over the limits the model was opened with";
	if (!b->n_seqs)
		return b->n_tokens || b->n_out ? "tokens without sequences" : NULL;
	if (!b->tok0 || !b->past || !b->seq_rc || !b->pos || (m->n_vocab && !b->token) ||
		(m->g.n_in && !b->in) || (b->n_out && !b->out_tok))
		return "an array is missing";
	if (b->tok0[0] != 0 || b->tok0[b->n_seqs] != b->n_tokens || !ascending(b->tok0, b->n_seqs + 1, 0))
		return "tok0 does not cut the tokens";
	if (b->n_out && (!ascending(b->out_tok, b->n_out, 1) || b->out_tok[b->n_out - 1] >= b->n_tokens))
		return "out_tok is not ascending or out of range";
	return m->slots.n && lists_fault(m, k, b) ? lists_fault(m, k, b) : rows_fault(m, b);
}

/* ---- one sequence ---------------------------------------------------------------------------------- */
static const char *tokens_fault(const struct tnp_model *m, const struct tnp_batch *b, uint32_t s)
{
	if (b->tok0[s] == b->tok0[s + 1])
		return "has no token in this step";
	for (uint32_t t = b->tok0[s]; t < b->tok0[s + 1]; t++) {
		if (m->n_vocab && (b->token[t] < 0 || (uint32_t)b->token[t] >= m->n_vocab))
			return "token out of range";
		if (b->pos[t] < 0 || (m->n_pos && (uint32_t)b->pos[t] >= m->n_pos))
			return "position out of range";
	}
	return NULL;
}

/* Pages [lo, hi) of a list are those the step reads or writes; from `first` on it writes. */
static const char *list_fault(
	const struct tnp_model *m, const struct tnp_kv *k, const struct tnp_batch *b, uint32_t s, uint32_t g)
{
	const uint32_t *list = b->pages[g].page + b->pages[g].page0[s];
	uint64_t n = b->pages[g].page0[s + 1] - b->pages[g].page0[s], past = b->past[s],
		 window = m->slots.window[g];
	uint64_t end = past + (b->tok0[s + 1] - b->tok0[s]), first = past / k->page_tokens;
	uint64_t lo = window && past + 1 > window ? (past + 1 - window) / k->page_tokens : 0;
	uint64_t hi = (end + k->page_tokens - 1) / k->page_tokens;

	if (n > m->lim.max_pages_per_seq || hi > n)
		return "page list too short or too long";
	for (uint64_t i = 0; i < n; i++) {
		if (list[i] >= k->n_pages[g] && (list[i] != TNP_PAGE_HOLE || (i >= lo && i < hi)))
			return "page out of range, or a hole where the step needs a page";
		if (i >= first && i < hi && k->seen[g][list[i]] > 1)
			return "would write to a page that is listed twice";
	}
	return NULL;
}

/* Counts in how many places of all lists a page stands, up to two; `add` 0 clears the counts again. */
static void lists_count(const struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint8_t add)
{
	for (uint32_t g = 0; g < m->slots.n_groups; g++)
		for (uint32_t i = b->pages[g].page0[0]; i < b->pages[g].page0[b->n_seqs]; i++) {
			uint32_t page = b->pages[g].page[i];

			if (page >= k->n_pages[g])
				continue;
			if (!add)
				k->seen[g][page] = 0;
			else if (k->seen[g][page] < 2)
				k->seen[g][page]++;
		}
}

static const char *seq_fault(
	const struct tnp_model *m, const struct tnp_kv *k, const struct tnp_batch *b, uint32_t s)
{
	const char *why = tokens_fault(m, b, s);

	for (uint32_t g = 0; !why && g < m->slots.n_groups; g++)
		why = list_fault(m, k, b, s, g);
	return why;
}

static void seqs_check(
	const struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, struct tnp_error *e)
{
	bool told = false;

	lists_count(m, k, b, 1);
	for (uint32_t s = 0; s < b->n_seqs; s++) {
		const char *why = seq_fault(m, k, b, s);

		b->seq_rc[s] = why ? TNP_E_INVALID : TNP_OK;
		if (why && !told)
			(void)ref_fail(e, TNP_E_INVALID, s, "sequence %u: %s", s, why);
		told |= why != NULL;
	}
	lists_count(m, k, b, 0);
}

/* ---- packing ------------------------------------------------------------------------------------------ */
static void step_arrays(struct ref_step *s, const struct tnp_model *m)
{
	uint32_t *at = m->index, nt = m->lim.max_tokens, ns = m->lim.max_seqs;

	s->token = (int32_t *)at;
	s->pos = (int32_t *)(at += nt);
	s->seq_of = at += nt;
	s->from_tok = at += nt;
	s->tok0 = at += nt;
	s->past = at += ns + 1;
	s->from_seq = at += ns + 1;
	s->out_tok = at += ns + 1;
	s->from_out = at + m->lim.max_out;
}

static void pack_tokens(struct ref_step *s, uint32_t from)
{
	const struct tnp_batch *b = s->b;

	for (uint32_t t = b->tok0[from]; t < b->tok0[from + 1]; t++) {
		uint32_t to = s->n_tokens++;

		s->token[to] = b->token ? b->token[t] : 0;
		s->pos[to] = b->pos[t];
		s->seq_of[to] = s->n_seqs;
		s->from_tok[to] = t;
	}
}

/* Rows wanted of sequence `from`, whose first token is packed at `first`. */
static void pack_out(struct ref_step *s, uint32_t from, uint32_t first, uint32_t *at)
{
	const struct tnp_batch *b = s->b;

	while (*at < b->n_out && b->out_tok[*at] < b->tok0[from])
		++*at;
	for (; *at < b->n_out && b->out_tok[*at] < b->tok0[from + 1]; ++*at) {
		s->out_tok[s->n_out] = first + b->out_tok[*at] - b->tok0[from];
		s->from_out[s->n_out++] = *at;
	}
}

static void step_pack(struct ref_step *s)
{
	uint32_t out = 0;

	s->tok0[0] = 0;
	for (uint32_t i = 0; i < s->b->n_seqs; i++) {
		uint32_t first = s->n_tokens;

		if (s->b->seq_rc[i])
			continue;
		pack_tokens(s, i);
		pack_out(s, i, first, &out);
		s->past[s->n_seqs] = s->b->past[i];
		s->from_seq[s->n_seqs] = i;
		s->tok0[++s->n_seqs] = s->n_tokens;
	}
}

/* ---- running -------------------------------------------------------------------------------------------- */
static struct ref_view view(struct ref_step *s, uint32_t index)
{
	const struct tnp_tensor *t = &s->m->g.tensors[index];
	struct ref_view v = { .rows = 1, .rank = t->rank, .type = t->type };

	for (uint32_t i = 0; i < t->rank; i++)
		v.dim[i] = t->dim[i] >= 0 ? (uint64_t)t->dim[i]
					  : rows_of_symbol(t->dim[i], s->n_tokens, s->n_seqs, s->n_out);
	v.cols = v.dim[t->rank - 1];
	for (uint32_t i = 0; i + 1 < t->rank; i++)
		v.rows *= v.dim[i];
	if (ref_is_weight(t))
		v.w = (const uint8_t *)s->m->g.buffers[t->buffer].data + t->offset;
	else
		v.v = s->m->buf[s->m->buf_of[index]].v;
	return v;
}

static void run_node(struct ref_step *s, uint32_t i)
{
	const struct tnp_graph *g = &s->m->g;
	const struct tnp_node *n = &g->nodes[i];
	struct ref_call c = { .step = s, .a = &s->m->node[i].a, .n_y = n->n_out };

	for (uint32_t j = 0; j < n->n_in; j++) {
		struct ref_view v = view(s, g->edges[n->in0 + j]);

		if (v.w)
			c.w[c.n_w++] = v;
		else
			c.x[c.n_x++] = v;
	}
	for (uint32_t j = 0; j < n->n_out; j++)
		c.y[j] = view(s, g->edges[n->out0 + j]);
	s->m->node[i].run(&c);
}

static void rows_in(struct ref_step *s)
{
	for (uint32_t i = 0; i < s->m->g.n_in; i++) {
		uint64_t width = (uint64_t)ref_width(&s->m->g.tensors[s->m->g.in[i]]);
		double *to = s->m->buf[s->m->buf_of[s->m->g.in[i]]].v;

		for (uint32_t t = 0; t < s->n_tokens; t++)
			for (uint64_t k = 0; k < width; k++)
				to[t * width + k] = s->b->in[s->from_tok[t] * width + k];
	}
}

static void rows_out(const struct ref_step *s)
{
	const struct tnp_graph *g = &s->m->g;

	for (uint32_t i = 0; i < g->n_out; i++) {
		const struct tnp_tensor *t = &g->tensors[g->out[i]];
		uint64_t width = (uint64_t)ref_width(t);
		uint32_t n = rows_of_symbol(t->dim[0], s->n_tokens, s->n_seqs, s->n_out);
		const uint32_t *from = t->dim[0] == TNP_N_TOKENS ? s->from_tok
			: t->dim[0] == TNP_N_SEQS		 ? s->from_seq
								 : s->from_out;
		const double *v = s->m->buf[s->m->buf_of[g->out[i]]].v;

		for (uint32_t r = 0; r < n; r++)
			for (uint64_t k = 0; k < width; k++)
				s->b->out[i].data[from[r] * s->b->out[i].stride + k] =
					(float)v[r * width + k];
	}
}

tnp_rc ref_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *batch, uint64_t *ticket,
	struct tnp_error *e)
{
	struct tnp_batch b;
	struct ref_step s = { .m = m, .kv = k, .b = &b };
	tnp_rc rc = ref_take(&b, sizeof b, batch, "batch", e);
	const char *why;

	if (rc)
		return rc;
	why = batch_fault(m, k, &b);
	if (why)
		return ref_fail(e, TNP_E_INVALID, 0, "batch: %s", why);
	if (b.n_seqs) {
		seqs_check(m, k, &b, e);
		step_arrays(&s, m);
		step_pack(&s);
	}
	if (s.n_tokens) {
		rows_in(&s);
		for (uint32_t i = 0; i < m->g.n_nodes; i++)
			run_node(&s, i);
		rows_out(&s);
	}
	*ticket = ++m->dev->ticket;
	return TNP_OK;
}
