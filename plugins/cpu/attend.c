/* SPDX-License-Identifier: Apache-2.0
 * Attention over pages, the part between the phases (exec.c) and the kernels (attn.h): which keys a row sees, where
 * they lie, in which order segments are merged. Runs on the pool's threads; a unit belongs to one of them.
 */
#include "model.h"
#include <string.h>

#define EMPTY -1e30f

enum { AHEAD = 12, LINE = 16 }; /* rows; floats of a cache line */

struct span { /* keys that some row of the unit sees */
	uint32_t lo, hi;
};

/* All that is the same for the tiles of a unit. */
struct view {
	const struct lane *l;
	const struct plan_attend *a;
	const struct unit *u;
	uint32_t kv_head, group, past, len, n_rows;
	const uint32_t *page;
	uint32_t n_pages;
	float *q, *seg, *total, *tile;
	size_t stride; /* floats of a state */
};

static struct span token_sees(const struct view *w, uint32_t tok)
{
	uint32_t hi = w->a->causal ? w->past + tok + 1 : w->len, window = w->a->shape.window;

	return (struct span){ window && hi > window ? hi - window : 0, hi };
}

/* Where a unit's row is among the queries or the results. */
static float *row_at(const struct view *w, struct rows_ref x, uint32_t r)
{
	const struct attn_shape *s = &w->a->shape;
	const size_t tok = w->l->m->step.tok0[w->u->seq] + (size_t)w->u->tok0 + r / s->group;

	return x.p + tok * x.ld + ((size_t)w->kv_head * s->group + r % s->group) * s->dim;
}

/* Rows of a token lie side by side, those of the next on another memory page, which the processor does not foresee. */
static void row_fetch(const struct view *w, struct rows_ref x, uint32_t r, bool write)
{
	const float *row = row_at(w, x, r < w->n_rows ? r : w->n_rows - 1);

	for (uint32_t d = 0; d < w->a->shape.dim; d += LINE)
		if (write)
			__builtin_prefetch(row + d, 1);
		else
			__builtin_prefetch(row + d, 0);
}

/* ---- storing ------------------------------------------------------------------------------------- */
static void token_store(const struct lane *l, const struct plan_attend *a, uint32_t tok, uint32_t kv_head)
{
	const struct step *s = &l->m->step;
	uint32_t seq = s->seq_of[tok], place = s->past[seq] + (tok - s->tok0[seq]), T = a->shape.page;
	uint32_t group = l->m->plan->slots.slot[a->slot].group;
	struct rows_ref k = lane_rows(l, a->k), v = lane_rows(l, a->v);
	uint32_t page;

	page = s->page[group][seq][place / T];
	l->m->dev->isa->attn->store(&a->shape, kv_head_at(s->kv, group, page, a->slot, kv_head), place % T,
		k.p + tok * k.ld + (size_t)kv_head * a->shape.dim,
		v.p + tok * v.ld + (size_t)kv_head * a->shape.dim);
}

void attend_store(const struct lane *l, const struct plan_attend *a, uint32_t t0, uint32_t t1)
{
	for (uint32_t h = 0; h < a->shape.kv_heads; h++)
		for (uint32_t t = t0; t < t1; t++)
			token_store(l, a, t, h);
}

/* ---- tiles ----------------------------------------------------------------------------------------- */
/* Where 16 keys lie; false when no page holds them (dropped, or past the end). */
static bool half_find(const struct view *w, uint32_t kv_head, uint32_t key, struct attn_half *h)
{
	uint32_t T = w->a->shape.page, i = key / T;

	if (i >= w->n_pages || w->page[i] == TNP_PAGE_HOLE)
		return false;
	h->head = kv_head_at(w->l->m->step.kv, w->group, w->page[i], w->a->slot, kv_head);
	h->token = key % T;
	return true;
}

/* A half without a page is hidden from every row: any readable keys will do. */
static bool halves_find(const struct view *w, uint32_t kv_head, uint32_t key, struct attn_half half[2])
{
	bool first = half_find(w, kv_head, key, &half[0]),
	     second = half_find(w, kv_head, key + ATTN_HALF, &half[1]);

	if (!first)
		half[0] = half[1];
	if (!second)
		half[1] = half[0];
	return first || second;
}

/* The keys likely to be wanted next: of this head, else of its neighbour. */
static void next_find(const struct view *w, uint32_t key, uint32_t end, struct attn_half half[4])
{
	uint32_t next = key + ATTN_TILE, head = w->kv_head;

	if (next >= end) {
		next = end - 1 - (end - 1) % ATTN_SEGMENT;
		head = head + 1 < w->a->shape.kv_heads ? head + 1 : head;
	}
	if (!halves_find(w, head, next, half + 2))
		memcpy(half + 2, half, 2 * sizeof *half);
}

/* With n rows from r on goes their share of fetching the next tile, where it is a whole page, as usual. */
static void page_fetch(const struct view *w, const struct attn_half next[2], uint32_t r, uint32_t n)
{
	const struct attn_shape *s = &w->a->shape;
	const uint64_t lines = s->page == ATTN_TILE ? attn_head_bytes(s->type, s->dim, s->page) / 64 : 0;

	for (uint64_t i = lines * r / w->n_rows; i < lines * (r + n) / w->n_rows; i++)
		__builtin_prefetch(next->head + 64 * i, 0, 2);
}

static void tile_fill(const struct view *w, uint32_t key, const struct attn_half half[2])
{
	const struct attn_shape *s = &w->a->shape;
	const struct attn_ops *ops = w->l->m->dev->isa->attn;
	struct rows_ref k, v;
	uint32_t n = w->len - key < ATTN_TILE ? w->len - key : ATTN_TILE;
	size_t first = w->l->m->step.tok0[w->u->seq] + (size_t)key, col = (size_t)w->kv_head * s->dim;

	if (w->a->causal) {
		ops->widen(s, half, w->tile);
		return;
	}
	k = lane_rows(w->l, w->a->k);
	v = lane_rows(w->l, w->a->v);
	ops->gather(s, k.p + first * k.ld + col, v.p + first * v.ld + col, k.ld, v.ld, n, w->tile);
}

static int32_t clip(uint32_t at, uint32_t key)
{
	return at < key ? 0 : at - key > ATTN_TILE ? ATTN_TILE : (int32_t)(at - key);
}

/* What rows [first, first + n) of the unit see of a tile; false when it is nothing. */
static bool rows_see(const struct view *w, uint32_t key, uint32_t first, uint32_t n, int32_t *lo, int32_t *hi)
{
	const uint32_t group = w->a->shape.group;
	uint32_t tok = first / group, end = (tok + 1) * group;
	bool any = false;

	for (uint32_t r = first; r < first + n; tok++, end += group) {
		const struct span sees = token_sees(w, w->u->tok0 + tok);
		const int32_t from = clip(sees.lo, key), to = clip(sees.hi, key);

		any |= from < to;
		for (; r < end && r < first + n; r++) {
			lo[r - first] = from;
			hi[r - first] = to;
		}
	}
	return any;
}

/* Do all rows of the unit see all of a tile? */
static bool tile_is_seen(const struct view *w, uint32_t key)
{
	const struct span first = token_sees(w, w->u->tok0),
			  last = token_sees(w, w->u->tok0 + w->u->n_tok - 1);

	return last.lo <= key && key + ATTN_TILE <= first.hi;
}

/* One tile for all rows of the unit, whose states are at `st`. */
static void tile_run(const struct view *w, uint32_t key, uint32_t end, float *st)
{
	const struct attn_shape *s = &w->a->shape;
	const struct attn_ops *ops = w->l->m->dev->isa->attn;
	const bool direct = w->a->causal && ops->tile_page && w->n_rows <= ATTN_ROWS,
		   seen = tile_is_seen(w, key);
	struct attn_half half[4] = { { 0 } };
	int32_t lo[ATTN_MANY], hi[ATTN_MANY];
	bool any = false;

	if (w->a->causal) {
		(void)halves_find(w, w->kv_head, key, half);
		next_find(w, key, end, half);
	}
	if (!direct)
		tile_fill(w, key, half);
	for (uint32_t r = 0; r < w->n_rows; r += ATTN_MANY) {
		const uint32_t n = w->n_rows - r < ATTN_MANY ? w->n_rows - r : ATTN_MANY;
		const float *q = w->q + (size_t)r * s->pad;

		if (!r || !seen)
			any = rows_see(w, key, r, n, lo, hi);
		if (!direct && w->a->causal)
			page_fetch(w, half + 2, r, n);
		if (!any)
			continue;
		if (direct)
			ops->tile_page(s, half, n, q, lo, hi, st, w->stride);
		else
			ops->tile_wide(s, w->tile, n, q, lo, hi, st + r * w->stride, w->stride);
	}
}

static void segment_run(const struct view *w, uint32_t seg, struct span all, float *st)
{
	uint32_t key = seg * ATTN_SEGMENT, end = key + ATTN_SEGMENT < all.hi ? key + ATTN_SEGMENT : all.hi;

	for (uint32_t r = 0; r < w->n_rows; r++)
		attn_state_init(st + r * w->stride, w->a->shape.pad);
	if (key < all.lo)
		key = all.lo / ATTN_TILE * ATTN_TILE;
	for (; key < end; key += ATTN_TILE)
		tile_run(w, key, end, st);
}

/* ---- merging --------------------------------------------------------------------------------------- */
/* Rows that saw nothing in a segment are left as they are, bit for bit. */
static void state_merge(const struct view *w, const float *from, float *into)
{
	if (from[0] <= EMPTY)
		return;
	if (into[0] <= EMPTY)
		memcpy(into, from, w->stride * sizeof *into);
	else
		w->l->m->dev->isa->attn->merge(w->a->shape.pad, from, into);
}

static void rows_finish(const struct view *w)
{
	const struct attn_shape *s = &w->a->shape;
	struct rows_ref out = lane_rows(w->l, w->a->out);

	for (uint32_t r = 0; r < w->n_rows; r++) {
		row_fetch(w, out, r + AHEAD, true);
		w->l->m->dev->isa->attn->finish(s->dim, w->total + r * w->stride, row_at(w, out, r));
	}
}

/* A part's states go to the common place; whoever brings the last part merges all in order. The counter's
 * release and acquire make the other parts' states visible. */
static void part_deliver(const struct view *w)
{
	const struct plan *p = w->l->m->plan;
	uint32_t pair = w->u->split * w->a->shape.kv_heads + w->kv_head;
	float *common = (float *)(w->l->m->ws + p->split) + (size_t)pair * p->max_segments * p->split_state;
	struct counter *c = &w->l->m->counter[pair];

	memcpy(common + (size_t)w->u->part * p->split_state, w->seg, w->n_rows * w->stride * sizeof(float));
	if (atomic_fetch_add_explicit(&c->next, 1, memory_order_acq_rel) + 1 < w->u->n_parts)
		return;
	atomic_store_explicit(&c->next, 0, memory_order_relaxed);
	memcpy(w->total, common, w->n_rows * w->stride * sizeof(float));
	for (uint32_t i = 1; i < w->u->n_parts; i++)
		for (uint32_t r = 0; r < w->n_rows; r++)
			state_merge(w, common + (size_t)i * p->split_state + r * w->stride,
				w->total + r * w->stride);
	rows_finish(w);
}

/* ---- a unit ------------------------------------------------------------------------------------------ */
static void queries_load(const struct view *w)
{
	const struct attn_shape *s = &w->a->shape;
	struct rows_ref q = lane_rows(w->l, w->a->q);

	for (uint32_t r = 0; r < w->n_rows; r++) {
		float *dst = w->q + (size_t)r * s->pad;

		row_fetch(w, q, r + AHEAD, false);
		w->l->m->dev->isa->elem->scale(row_at(w, q, r), s->scale, s->dim, dst);
		memset(dst + s->dim, 0, (s->pad - s->dim) * sizeof *dst);
	}
}

static struct view view_make(
	const struct lane *l, const struct plan_attend *a, const struct unit *u, uint32_t kv_head)
{
	const struct plan *p = l->m->plan;
	const struct step *s = &l->m->step;
	struct view w = { .l = l,
		.a = a,
		.u = u,
		.kv_head = kv_head,
		.past = s->past[u->seq],
		.len = s->tok0[u->seq + 1] - s->tok0[u->seq],
		.n_rows = u->n_tok * a->shape.group,
		.stride = attn_state_floats(a->shape.pad) };
	size_t rows = (size_t)p->units[a->units].block * a->shape.group;

	if (a->causal) {
		w.group = p->slots.slot[a->slot].group;
		w.page = s->page[w.group][u->seq];
		w.n_pages = s->n_pages[w.group][u->seq];
	}
	w.q = (float *)(l->own + p->t_attend);
	w.seg = w.q + rows * a->shape.pad;
	w.total = w.seg + rows * w.stride;
	w.tile = w.total + rows * w.stride;
	return w;
}

/* `store`: the unit puts its token's key and value into the page first, if it looks at that end. */
void attend_unit(
	const struct lane *l, const struct plan_attend *a, const struct unit *u, uint32_t kv_head, bool store)
{
	struct view w = view_make(l, a, u, kv_head);
	struct span all = { token_sees(&w, u->tok0).lo, token_sees(&w, u->tok0 + u->n_tok - 1).hi };

	if (store && a->k != TNP_NONE && (u->seg0 + u->n_seg) * ATTN_SEGMENT >= all.hi)
		token_store(l, a, l->m->step.tok0[u->seq], kv_head);
	queries_load(&w);
	if (u->split != TNP_NONE) {
		segment_run(&w, u->seg0, all, w.seg);
		part_deliver(&w);
		return;
	}
	segment_run(&w, u->seg0, all, w.total);
	for (uint32_t i = 1; i < u->n_seg; i++) {
		segment_run(&w, u->seg0 + i, all, w.seg);
		for (uint32_t r = 0; r < w.n_rows; r++)
			state_merge(&w, w.seg + r * w.stride, w.total + r * w.stride);
	}
	rows_finish(&w);
}
