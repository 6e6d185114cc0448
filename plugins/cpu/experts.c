/* SPDX-License-Identifier: Apache-2.0
 * Mixtures of experts in a step: choosing experts, sorting pairs (token, rank) by expert, products over the rows of an
 * expert, sums. Rows are only moved: a product gives a row the same bits whatever rows lie beside it, so a token's
 * result does not depend on who shares its experts. Runs on the pool's threads, the sort on one of them.
 */
#include "model.h"
#include <float.h>
#include <math.h>
#include <string.h>

static float *pair_row(const struct tnp_model *m, uint32_t val, uint32_t top_k, uint32_t pair)
{
	struct rows_ref r = m->ref[val];

	return r.p + (size_t)(pair / top_k) * r.ld + (size_t)(pair % top_k) * m->plan->vals[val].last_dim;
}

/* ---- routing ------------------------------------------------------------------------------------------ */
/* Finite, so that a broken row chooses experts like any other. */
static float logits_clean(const float *x, uint32_t n, float *v)
{
	float most = -FLT_MAX;

	for (uint32_t i = 0; i < n; i++) {
		v[i] = x[i] > FLT_MAX ? FLT_MAX : x[i] >= -FLT_MAX ? x[i] : -FLT_MAX;
		most = v[i] > most ? v[i] : most;
	}
	return most;
}

/* The largest that is left, of equals the first; taken ones are minus infinity. */
static uint32_t largest(const float *v, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (v[i] > v[best])
			best = i;
	return best;
}

void route_row(const float *logits, uint32_t n, uint32_t top_k, bool norm, void *ids, float *share)
{
	float left[EXPERTS_LIMIT], most = logits_clean(logits, n, left), sum = 0;

	for (uint32_t i = 0; i < n && !norm; i++)
		sum += expf(left[i] - most);
	for (uint32_t j = 0; j < top_k; j++) {
		int32_t best = (int32_t)largest(left, n);

		share[j] = expf(left[best] - most);
		sum += norm ? share[j] : 0;
		left[best] = -INFINITY;
		memcpy((uint8_t *)ids + j * sizeof best, &best, sizeof best);
	}
	for (uint32_t j = 0; j < top_k; j++)
		share[j] /= sum;
}

/* ---- sorting ------------------------------------------------------------------------------------------ */
static uint32_t *pairs_of(const struct tnp_model *m) { return (uint32_t *)(m->ws + m->plan->pairs); }
static struct plan_group *groups_of(const struct tnp_model *m)
{
	return (struct plan_group *)(m->ws + m->plan->groups);
}

static uint32_t pair_expert(const struct tnp_model *m, const struct plan_experts *x, uint32_t pair)
{
	int32_t id;

	memcpy(&id, m->ref[x->ids].p + (size_t)(pair / x->top_k) * m->ref[x->ids].ld + pair % x->top_k,
		sizeof id);
	return (uint32_t)id;
}

static void pairs_sort(struct tnp_model *m, const struct plan_experts *x, uint32_t n_pairs)
{
	uint32_t *count = (uint32_t *)(m->ws + m->plan->counts), *pair = pairs_of(m), at = 0;

	memset(count, 0, (x->n_experts + 1) * sizeof *count);
	for (uint32_t i = 0; i < n_pairs; i++)
		count[pair_expert(m, x, i)]++;
	for (uint32_t e = 0; e <= x->n_experts; e++) {
		uint32_t n = count[e];

		count[e] = at;
		at += n;
	}
	for (uint32_t i = 0; i < n_pairs; i++)
		pair[count[pair_expert(m, x, i)]++] = i;
}

/* Behind the sort an expert's count is where its pairs end. */
static void groups_cut(struct tnp_model *m, const struct plan_experts *x)
{
	const uint32_t *end = (const uint32_t *)(m->ws + m->plan->counts);
	uint32_t rows = experts_gather_rows(m->dev->isa), first = 0, chunk = 0;
	struct plan_group *g = groups_of(m);

	m->n_groups = 0;
	for (uint32_t e = 0; e < x->n_experts; e++)
		for (; first < end[e]; m->n_groups++) {
			uint32_t n = end[e] - first < EXPERTS_ROWS ? end[e] - first : EXPERTS_ROWS;

			g[m->n_groups] = (struct plan_group){ e, first, n, chunk };
			chunk += (n + rows - 1) / rows;
			first += n;
		}
	m->n_gathers = chunk;
}

void experts_sort(struct tnp_model *m, const struct plan_experts *x, uint32_t n_rows)
{
	pairs_sort(m, x, n_rows * x->top_k);
	groups_cut(m, x);
}

/* ---- gathering ------------------------------------------------------------------------------------------- */
/* Where an array would begin of which only what lies behind `skip` floats is there. */
static float *array_begin(float *p, size_t skip) { return (float *)((uintptr_t)p - skip * sizeof *p); }

/* Prepared rows of a group. */
static uint8_t *group_act(
	const struct lane *l, const struct plan_experts *x, uint32_t class, const struct plan_group *g)
{
	uint32_t number = (uint32_t)(g - groups_of(l->m));

	return l->m->ws + l->m->plan->acts[class] +
		experts_act_at(l->m->dev->isa, class, x->k, g->first, number);
}

static const struct plan_group *gather_group(const struct tnp_model *m, uint32_t piece)
{
	const struct plan_group *g = groups_of(m);
	uint32_t lo = 0, hi = m->n_groups;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		*(g[mid].chunk0 <= piece ? &lo : &hi) = mid;
	}
	return g + lo;
}

static void rows_gather(const struct lane *l, const struct plan_experts *x, const struct plan_group *g,
	uint32_t r0, uint32_t r1, float *to)
{
	const uint32_t *pair = pairs_of(l->m) + g->first;
	struct rows_ref in = l->m->ref[x->x];

	for (uint32_t r = r0; r < r1; r++, to += x->k)
		memcpy(to,
			x->own_rows ? pair_row(l->m, x->x, x->top_k, pair[r])
				    : in.p + (size_t)(pair[r] / x->top_k) * in.ld,
			x->k * sizeof *to);
}

void experts_gather(const struct lane *l, const struct plan_experts *x, uint32_t piece, uint32_t rows)
{
	const struct linear_ops *ops = l->m->dev->isa->linear;
	const struct plan_group *g = gather_group(l->m, piece);
	uint32_t r0 = (piece - g->chunk0) * rows, r1 = g->n - r0 < rows ? g->n : r0 + rows;
	float *own = (float *)(l->own + l->m->plan->t_gather);

	rows_gather(l, x, g, r0, r1, own);
	for (uint32_t c = 0; c < ACT_N_CLASSES; c++) {
		uint8_t *to;

		if (!(x->classes >> c & 1))
			continue;
		to = group_act(l, x, c, g);
		if (ops->act_bytes(c, 1, x->k))
			ops->act_pack(c, array_begin(own, (size_t)r0 * x->k), x->k, g->n, x->k, r0, r1, to);
		else
			memcpy((float *)to + (size_t)r0 * x->k, own, (size_t)(r1 - r0) * x->k * sizeof *own);
	}
}

/* ---- products ------------------------------------------------------------------------------------------- */
/* Columns [j0, j1) of a segment for all rows of a group, to `tile` [rows][EXPERTS_COLS]. */
static void tile_make(const struct lane *l, const struct plan_experts *x, const struct plan_group *g,
	uint32_t seg, uint32_t j0, uint32_t j1, float *tile)
{
	const struct plan_seg *s = &l->m->plan->segs[seg];
	struct linear_weight w = s->w;

	w.data = (const uint8_t *)l->m->seg_data[seg] + g->expert * s->stride;
	l->m->dev->isa->linear->run(&w, group_act(l, x, s->w.act, g), g->n, j0, j1, array_begin(tile, j0),
		EXPERTS_COLS, l->own + l->m->plan->t_scratch);
	for (uint32_t i = 0; x->act && i < g->n; i++)
		l->m->dev->isa->elem->act(
			x->act, tile + (size_t)i * EXPERTS_COLS, j1 - j0, tile + (size_t)i * EXPERTS_COLS);
}

/* Segment of a piece of the columns, which then counts from its begin. */
static uint32_t seg_find(const struct plan *p, const struct plan_experts *x, uint32_t *chunk)
{
	for (uint32_t i = 0;; i++) {
		uint32_t n = (p->segs[x->segs[i]].w.n + EXPERTS_COLS - 1) / EXPERTS_COLS;

		if (*chunk < n)
			return x->segs[i];
		*chunk -= n;
	}
}

static void item_run(const struct lane *l, const struct plan_experts *x, uint32_t item)
{
	const struct plan_group *g = groups_of(l->m) + item / x->chunks;
	const uint32_t *pair = pairs_of(l->m) + g->first;
	uint32_t chunk = item % x->chunks, seg = seg_find(l->m->plan, x, &chunk), j0 = chunk * EXPERTS_COLS;
	const struct plan_seg *s = &l->m->plan->segs[seg];
	uint32_t j1 = s->w.n - j0 < EXPERTS_COLS ? s->w.n : j0 + EXPERTS_COLS;
	float *tile = (float *)(l->own + l->m->plan->t_tile), *up = tile + (size_t)g->n * EXPERTS_COLS;

	tile_make(l, x, g, seg, j0, j1, tile);
	if (x->glu)
		tile_make(l, x, g, x->segs[1], j0, j1, up);
	for (uint32_t i = 0; i < g->n; i++) {
		float *y = pair_row(l->m, x->out, x->top_k, pair[i]) + s->col + j0;
		size_t at = (size_t)i * EXPERTS_COLS;

		if (x->glu)
			l->m->dev->isa->elem->glu(x->glu_act, tile + at, up + at, j1 - j0, y);
		else
			memcpy(y, tile + at, (j1 - j0) * sizeof *y);
	}
}

void experts_run(const struct lane *l, const struct plan_experts *x, uint32_t item, uint32_t n)
{
	uint32_t end = l->m->n_groups * x->chunks;

	for (end = end - item < n ? end : item + n; item < end; item++)
		item_run(l, x, item);
}

/* ---- sums ------------------------------------------------------------------------------------------------- */
void experts_sum_row(
	const struct elem_ops *ops, const float *x, const float *share, uint32_t top_k, uint32_t n, float *y)
{
	ops->scale(x, share[0], n, y);
	for (uint32_t j = 1; j < top_k; j++)
		ops->axpy(x + (size_t)j * n, share[j], n, y);
}
