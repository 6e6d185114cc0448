/* SPDX-License-Identifier: Apache-2.0
 * Rotary embedding and attention: the other half of the specification (see ref_ops.c). A token's place is
 * past + its index among the tokens of its sequence in this step: it decides the page and the mask. Its angle
 * comes from batch->pos. Keys and values are always read back as stored.
 */
#include "ref.h"
#include <math.h>
#include <string.h>

/* ---- rotary embedding ------------------------------------------------------------------------ */
/* One head in place. Pair i of ROPE_DIMS / 2 turns by pos * SCALE / factor[i] / ROPE_BASE^(2 i / ROPE_DIMS);
 * dimensions from ROPE_DIMS on stay. */
static void rope_head(const struct ref_attrs *a, double scale, const double *factor, double pos, double *x)
{
	int64_t half = a->rope_dims / 2;

	for (int64_t i = 0; i < half; i++) {
		double angle = pos * scale * pow(a->rope_base, -2.0 * (double)i / (double)a->rope_dims) /
			(factor ? factor[i] : 1);
		double *p = a->rope_mode == TNP_ROPE_PAIRS ? x + 2 * i : x + i;
		double *q = a->rope_mode == TNP_ROPE_PAIRS ? p + 1 : p + half;
		double u = *p, v = *q;

		*p = u * cos(angle) - v * sin(angle);
		*q = u * sin(angle) + v * cos(angle);
	}
}

/* The frequency factors are the node's only weight; they stand at the start of the first thread's row. */
static const double *rope_factors(const struct ref_call *c)
{
	if (!c->n_w)
		return NULL;
	ref_row_load(c->w[0].type, c->w[0].w, (uint64_t)c->a->rope_dims / 2, c->step->m->row);
	return c->step->m->row;
}

static void rope_rows(const struct ref_call *c, double scale, const double *factor, double *x)
{
	for (uint32_t t = 0; t < c->step->n_tokens; t++)
		for (int64_t h = 0; h < c->a->heads; h++)
			rope_head(c->a, scale, factor, c->step->pos[t],
				x + (t * c->a->heads + h) * c->a->head_dim);
}

void ref_op_rope(struct ref_call *c)
{
	memcpy(c->y[0].v, c->x[0].v, c->x[0].rows * c->x[0].cols * sizeof(double));
	rope_rows(c, c->a->scale, rope_factors(c), c->y[0].v);
}

/* ---- pages ------------------------------------------------------------------------------------- */
/* The stored head `h` of K (which = 0) or V (1) at a place of a sequence. */
static uint8_t *kv_head(const struct ref_call *c, uint32_t seq, uint64_t place, int which, int64_t h)
{
	struct tnp_kv *k = c->step->kv;
	const struct ref_slot *slot = &c->step->m->slots.slot[c->a->slot];
	const struct tnp_pages *list = &c->step->b->pages[slot->group];
	uint32_t from_seq = c->step->from_seq[seq];
	uint32_t page = list->page[list->page0[from_seq] + place / k->page_tokens];
	uint64_t row =
		((uint64_t)which * k->page_tokens + place % k->page_tokens) * slot->heads + (uint64_t)h;

	return k->mem[slot->group] + page * k->page_bytes[slot->group] + k->slot_off[c->a->slot] +
		row * ref_row_bytes(k->type, slot->head_dim);
}

/* ---- attention --------------------------------------------------------------------------------- */
struct attend { /* q [n][HEADS][d], k, v [n][KV_HEADS][d] of this step */
	struct ref_call *c;
	const double *q, *k, *v, *factor;
};

/* Head h of this step's key or value of token t, turned if the node carries the rotary embedding. */
static void fresh_head(const struct attend *a, uint64_t t, int which, int64_t h, double *out)
{
	const struct ref_attrs *at = a->c->a;
	uint64_t d = (uint64_t)at->head_dim, from = (t * (uint64_t)at->kv_heads + (uint64_t)h) * d;

	memcpy(out, (which ? a->v : a->k) + from, d * sizeof *out);
	if (!which && REF_GIVEN(at, TNP_A_ROPE_MODE))
		rope_head(at, 1, a->factor, a->c->step->pos[t], out);
}

static void store_all(const struct attend *a, double *tmp)
{
	const struct ref_step *s = a->c->step;
	uint64_t d = (uint64_t)a->c->a->head_dim;

	for (uint32_t t = 0; t < s->n_tokens; t++) {
		uint32_t seq = s->seq_of[t];
		uint64_t place = s->past[seq] + (t - s->tok0[seq]);

		for (int64_t h = 0; h < a->c->a->kv_heads; h++)
			for (int which = 0; which < 2; which++) {
				fresh_head(a, t, which, h, tmp);
				ref_row_store(s->kv->type, tmp, d, kv_head(a->c, seq, place, which, h));
			}
	}
}

/* Head h of the key (which = 0) or value (1) at `place`: from the pages, or from this step's rows (CAUSAL 0). */
static void head_at(const struct attend *a, uint32_t seq, uint64_t place, int which, int64_t h, double *out)
{
	const struct ref_call *c = a->c;

	if (c->a->causal)
		ref_row_load(
			c->step->kv->type, kv_head(c, seq, place, which, h), (uint64_t)c->a->head_dim, out);
	else
		fresh_head(a, c->step->tok0[seq] + place, which, h, out);
}

/* Scores of places [lo, hi), softmax over them, and the values mixed by the shares. */
static void attend_head(const struct attend *a, uint64_t t, int64_t h, uint64_t lo, uint64_t hi, double *tmp)
{
	const struct ref_attrs *at = a->c->a;
	uint64_t d = (uint64_t)at->head_dim;
	const double *q = a->q + (t * (uint64_t)at->heads + (uint64_t)h) * d;
	double *score = tmp + d, *y = a->c->y[0].v + (t * (uint64_t)at->heads + (uint64_t)h) * d;
	double most = -INFINITY, sum = 0;
	uint32_t seq = a->c->step->seq_of[t];
	int64_t kv_h = h / (at->heads / at->kv_heads);

	for (uint64_t p = lo; p < hi; p++) {
		double s = 0;

		head_at(a, seq, p, 0, kv_h, tmp);
		for (uint64_t i = 0; i < d; i++)
			s += q[i] * tmp[i];
		s *= at->scale;
		if (at->cap > 0)
			s = at->cap * tanh(s / at->cap);
		score[p - lo] = s;
		most = fmax(most, s);
	}
	for (uint64_t p = lo; p < hi; p++)
		sum += score[p - lo] = exp(score[p - lo] - most);
	memset(y, 0, d * sizeof *y);
	for (uint64_t p = lo; p < hi; p++) {
		head_at(a, seq, p, 1, kv_h, tmp);
		for (uint64_t i = 0; i < d; i++)
			y[i] += score[p - lo] / sum * tmp[i];
	}
}

/* A token sees itself and what is before it, the last WINDOW places of that when there is a window; with
 * CAUSAL 0 it sees all tokens of its sequence in this step. */
static void attend_rows(void *arg, uint32_t thread, uint64_t row0, uint64_t row1)
{
	struct attend *a = arg;
	struct ref_step *s = a->c->step;
	const struct ref_attrs *at = a->c->a;
	double *tmp = s->m->row + thread * s->m->row_len + at->head_dim; /* behind the factors */

	for (uint64_t r = row0; r < row1; r++) {
		uint64_t t = r / (uint64_t)at->heads;
		uint32_t seq = s->seq_of[t];
		uint64_t lo = 0, hi = s->past[seq] + (t - s->tok0[seq]) + 1;

		if (!at->causal)
			hi = s->tok0[seq + 1] - s->tok0[seq];
		else if (at->window && hi > (uint64_t)at->window)
			lo = hi - (uint64_t)at->window;
		attend_head(a, t, (int64_t)(r % (uint64_t)at->heads), lo, hi, tmp);
	}
}

/* x: q, k, v; or q alone, then the keys and values are those an earlier node of this step put into the slot.
 * With ROPE_MODE given, q and k are turned first: q in the output, where each head waits for its turn. */
void ref_op_attend(struct ref_call *c)
{
	struct ref_step *s = c->step;
	struct attend a = { .c = c, .q = c->x[0].v, .factor = rope_factors(c) };

	if (c->n_x > 1) {
		a.k = c->x[1].v;
		a.v = c->x[2].v;
	}
	if (REF_GIVEN(c->a, TNP_A_ROPE_MODE)) {
		memcpy(c->y[0].v, a.q, c->x[0].rows * c->x[0].cols * sizeof *a.q);
		rope_rows(c, 1, a.factor, c->y[0].v);
		a.q = c->y[0].v;
	}
	if (c->a->causal && c->n_x > 1)
		store_all(&a, s->m->row + c->a->head_dim);
	ref_par_rows(s->m->dev->pool, (uint64_t)s->n_tokens * (uint64_t)c->a->heads, attend_rows, &a);
}
