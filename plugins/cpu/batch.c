/* SPDX-License-Identifier: Apache-2.0
 * Everything a batch says is checked here, once, before a thread looks at it: what breaks the whole batch fails the
 * call, what concerns one sequence only fails that one (seq_rc). The sequences that passed are packed, and attention
 * is cut into units.
 */
#include "model.h"
#include <string.h>

/* ---- the batch as a whole ---------------------------------------------------------------------- */
static bool ascends(const uint32_t *v, uint32_t n, uint32_t least)
{
	for (uint32_t i = 1; i < n; i++)
		if (v[i] < v[i - 1] || v[i] - v[i - 1] < least)
			return false;
	return true;
}

static const char *counts_wrong(const struct tnp_model *m, const struct tnp_batch *b)
{
	const struct tnp_limits *l = &m->plan->lim;

	if (b->n_tokens > l->max_tokens || b->n_seqs > l->max_seqs || b->n_out > l->max_out)
		return "batch: more tokens, sequences or output rows than the model was opened for";
	if (!b->n_seqs)
		return b->n_tokens || b->n_out ? "batch: tokens without sequences" : NULL;
	if (!b->tok0 || !b->past || !b->pos || !b->seq_rc || (b->n_out && !b->out_tok) ||
		(m->plan->n_vocab && !b->token) || (m->g.n_in && !b->in))
		return "batch: an array is missing";
	if (b->tok0[0] || b->tok0[b->n_seqs] != b->n_tokens || !ascends(b->tok0, b->n_seqs + 1, 0))
		return "batch: tok0 does not cut the tokens";
	if (b->n_out && (!ascends(b->out_tok, b->n_out, 1) || b->out_tok[b->n_out - 1] >= b->n_tokens))
		return "batch: out_tok does not ascend or lies outside the tokens";
	return NULL;
}

static const char *places_wrong(const struct tnp_model *m, const struct tnp_kv *k, const struct tnp_batch *b)
{
	const struct plan *p = m->plan;
	const uint32_t rows[N_SPACES] = {
		[SPACE_TOKENS] = b->n_tokens, [SPACE_SEQS] = b->n_seqs, [SPACE_OUT] = b->n_out
	};

	if (b->n_seqs && p->slots.n && (!k || k->m != m || !b->pages))
		return "batch: no pool of this model, or no page lists";
	for (uint32_t g = 0; g < p->slots.n_groups && b->n_seqs; g++)
		if (!b->pages[g].page0 || !b->pages[g].page || !ascends(b->pages[g].page0, b->n_seqs + 1, 0))
			return "batch: page lists are missing or do not ascend";
	for (uint32_t i = 0; i < m->g.n_out; i++) {
		const struct plan_val *v = &p->vals[m->g.out[i]];

		if (rows[v->space] && (!b->out || !b->out[i].data || b->out[i].stride < v->width))
			return "batch: no room for an output";
	}
	return NULL;
}

/* ---- one sequence --------------------------------------------------------------------------------- */
static const char *tokens_wrong(const struct plan *p, const struct tnp_batch *b, uint32_t seq)
{
	if (b->tok0[seq] == b->tok0[seq + 1])
		return "sequence: no token in this step";
	for (uint32_t t = b->tok0[seq]; t < b->tok0[seq + 1]; t++) {
		if (p->n_vocab && (b->token[t] < 0 || (uint32_t)b->token[t] >= p->n_vocab))
			return "sequence: a token outside its table";
		if (b->pos[t] < 0 || (p->n_pos && (uint32_t)b->pos[t] >= p->n_pos))
			return "sequence: a position outside its table";
	}
	return NULL;
}

/* Places [past, end) are written, [first in reach, end) must have pages. */
static const char *list_wrong(const struct tnp_kv *k, const struct tnp_batch *b, uint32_t group, uint32_t seq)
{
	const struct plan *p = k->m->plan;
	const struct tnp_pages *list = &b->pages[group];
	const uint32_t *page = list->page + list->page0[seq];
	uint64_t T = p->lim.page_tokens, window = p->slots.window[group], past = b->past[seq];
	uint64_t end = past + (b->tok0[seq + 1] - b->tok0[seq]),
		 have = list->page0[seq + 1] - list->page0[seq];
	uint64_t reach = window && past + 1 > window ? past + 1 - window : 0;

	if (have > p->lim.max_pages_per_seq || end > have * T)
		return "sequence: its page list is too short or too long";
	for (uint64_t i = 0; i < have; i++) {
		bool needed = (i + 1) * T > reach && i * T<end, written = (i + 1) * T> past && i * T < end;

		if (page[i] >= k->n_pages[group] && (needed || page[i] != TNP_PAGE_HOLE))
			return "sequence: a page outside the pool, or a hole within reach";
		if (written && k->seen[group][page[i]] > 1)
			return "sequence: would write a page that is listed twice";
	}
	return NULL;
}

/* How often each page stands in all lists, counted up to two; `count` false clears the counts again. */
static void lists_count(struct tnp_kv *k, const struct tnp_batch *b, uint32_t group, bool count)
{
	const struct tnp_pages *list = &b->pages[group];
	uint8_t *seen = k->seen[group];

	for (uint32_t i = list->page0[0]; i < list->page0[b->n_seqs]; i++) {
		uint32_t page = list->page[i];

		if (page < k->n_pages[group])
			seen[page] = count ? (uint8_t)(seen[page] + (seen[page] < 2)) : 0;
	}
}

static void seqs_check(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, struct tnp_error *e)
{
	const struct plan *p = m->plan;
	bool told = false;

	for (uint32_t g = 0; g < p->slots.n_groups; g++)
		lists_count(k, b, g, true);
	for (uint32_t i = 0; i < b->n_seqs; i++) {
		const char *why = tokens_wrong(p, b, i);

		for (uint32_t g = 0; g < p->slots.n_groups && !why; g++)
			why = list_wrong(k, b, g, i);
		b->seq_rc[i] = why ? TNP_E_INVALID : TNP_OK;
		if (why && !told)
			(void)cpu_fail(e, TNP_E_INVALID, i, why);
		told |= why != NULL;
	}
	for (uint32_t g = 0; g < p->slots.n_groups; g++)
		lists_count(k, b, g, false);
}

/* ---- packing ------------------------------------------------------------------------------------------ */
static void seq_pack(struct step *s, const struct plan *p, const struct tnp_batch *b, uint32_t from)
{
	uint32_t to = s->n[SPACE_SEQS]++, at = s->n[SPACE_TOKENS], n = b->tok0[from + 1] - b->tok0[from];

	for (uint32_t i = 0; i < n; i++) {
		s->token[at + i] = b->token ? b->token[b->tok0[from] + i] : 0;
		s->pos[at + i] = b->pos[b->tok0[from] + i];
		s->seq_of[at + i] = to;
		s->from[SPACE_TOKENS][at + i] = b->tok0[from] + i;
	}
	for (uint32_t g = 0; g < p->slots.n_groups; g++) {
		s->page[g][to] = b->pages[g].page + b->pages[g].page0[from];
		s->n_pages[g][to] = b->pages[g].page0[from + 1] - b->pages[g].page0[from];
	}
	s->past[to] = b->past[from];
	s->from[SPACE_SEQS][to] = from;
	s->n[SPACE_TOKENS] += n;
	s->tok0[to + 1] = s->n[SPACE_TOKENS];
	s->single &= n == 1;
}

/* Rows wanted of sequence `from`, packed last; *at walks through out_tok. */
static void outs_pack(struct step *s, const struct tnp_batch *b, uint32_t from, uint32_t *at)
{
	uint32_t first = s->tok0[s->n[SPACE_SEQS] - 1];

	while (*at < b->n_out && b->out_tok[*at] < b->tok0[from])
		++*at;
	for (; *at < b->n_out && b->out_tok[*at] < b->tok0[from + 1]; ++*at) {
		s->out_tok[s->n[SPACE_OUT]] = first + b->out_tok[*at] - b->tok0[from];
		s->from[SPACE_OUT][s->n[SPACE_OUT]++] = *at;
	}
}

tnp_rc batch_check(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, struct tnp_error *e)
{
	struct step *s = &m->step;
	const char *why = counts_wrong(m, b);
	uint32_t at = 0;

	if (!why)
		why = places_wrong(m, k, b);
	if (why)
		return cpu_fail(e, TNP_E_INVALID, 0, why);
	s->b = b;
	s->kv = k;
	s->single = true;
	s->tok0[0] = s->n[SPACE_TOKENS] = s->n[SPACE_SEQS] = s->n[SPACE_OUT] = 0;
	if (!b->n_seqs)
		return TNP_OK;
	seqs_check(m, k, b, e);
	for (uint32_t i = 0; i < b->n_seqs; i++) {
		if (b->seq_rc[i])
			continue;
		seq_pack(s, m->plan, b, i);
		outs_pack(s, b, i, &at);
	}
	return TNP_OK;
}

/* ---- units of attention --------------------------------------------------------------------------- */
struct reach { /* segments with keys that tokens [tok0, tok0 + n) of a sequence see */
	uint32_t seg0, n_seg;
};

static uint32_t seq_len(const struct step *s, uint32_t seq) { return s->tok0[seq + 1] - s->tok0[seq]; }

static struct reach reach_of(
	const struct plan_units *u, const struct step *s, uint32_t seq, uint32_t tok0, uint32_t n)
{
	uint32_t first = s->past[seq] + tok0 + 1, end = s->past[seq] + tok0 + n, lo;

	if (!u->causal)
		return (struct reach){ 0, (seq_len(s, seq) + ATTN_SEGMENT - 1) / ATTN_SEGMENT };
	lo = u->window && first > u->window ? (first - u->window) / ATTN_SEGMENT : 0;
	return (struct reach){ lo, (end - 1) / ATTN_SEGMENT + 1 - lo };
}

/* Prompts: blocks of tokens, the last (with most keys) first. */
static void prompt_units(
	const struct plan_units *u, const struct step *s, uint32_t seq, struct unit *out, uint32_t *n)
{
	uint32_t len = seq_len(s, seq), block = len < u->whole_tok ? (u->block + 1) / 2 : u->block;

	for (uint32_t at = (len - 1) / block * block;; at -= block) {
		uint32_t count = len - at < block ? len - at : block;
		struct reach r = reach_of(u, s, seq, at, count);

		out[(*n)++] = (struct unit){ seq, at, count, r.seg0, r.n_seg, TNP_NONE, 0, 1 };
		if (!at)
			return;
	}
}

/* One token: whole, or a unit a segment when too few tokens would keep the threads busy. */
static void token_units(const struct plan_units *u, const struct step *s, uint32_t seq, bool split,
	struct unit *out, uint32_t *n)
{
	struct reach r = reach_of(u, s, seq, 0, 1);

	if (!split || r.n_seg == 1) {
		out[(*n)++] = (struct unit){ seq, 0, 1, r.seg0, r.n_seg, TNP_NONE, 0, 1 };
		return;
	}
	for (uint32_t i = r.n_seg; i-- > 0;)
		out[(*n)++] = (struct unit){ seq, 0, 1, r.seg0 + i, 1, seq, i, r.n_seg };
}

void batch_units(struct tnp_model *m)
{
	struct step *s = &m->step;

	for (uint32_t c = 0; c < m->plan->n_units; c++) {
		const struct plan_units *u = &m->plan->units[c];
		bool split = s->single && u->causal && s->n[SPACE_SEQS] <= u->n_split;
		uint32_t n = 0;

		for (uint32_t i = 0; i < s->n[SPACE_SEQS]; i++)
			if (seq_len(s, i) > 1)
				prompt_units(u, s, i, s->units[c], &n);
		for (uint32_t i = 0; i < s->n[SPACE_SEQS]; i++)
			if (seq_len(s, i) == 1)
				token_units(u, s, i, split, s->units[c], &n);
		s->n_units[c] = n;
	}
}
