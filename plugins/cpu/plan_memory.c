/* SPDX-License-Identifier: Apache-2.0
 * Memory of a plan: values in the arena by lifetimes, what a thread needs for itself, places in the workspace. All of it is
 * known before anything is taken.
 */
#include "plan_priv.h"
#include <stdlib.h>
#include <string.h>

enum { GROUP_TOKENS = 128, GROUP_TOKENS_LEAST = 48, GROUPS_EACH = 2 };

/* Arena by lifetimes: walks the phases, first hole that fits. `hole` lists free stretches in order of place. */
struct hole {
	uint64_t at, n;
};

static void hole_give(struct hole *h, uint32_t *n, uint64_t at, uint64_t len)
{
	uint32_t i = 0;

	while (i < *n && h[i].at < at)
		i++;
	memmove(h + i + 1, h + i, (*n - i) * sizeof *h);
	h[i] = (struct hole){ at, len };
	++*n;
	if (i + 1 < *n && h[i].at + h[i].n == h[i + 1].at) {
		h[i].n += h[i + 1].n;
		memmove(h + i + 1, h + i + 2, (*n - i - 2) * sizeof *h);
		--*n;
	}
	if (i && h[i - 1].at + h[i - 1].n == h[i].at) {
		h[i - 1].n += h[i].n;
		memmove(h + i, h + i + 1, (*n - i - 1) * sizeof *h);
		--*n;
	}
}

static uint64_t hole_take(struct hole *h, uint32_t *n, uint64_t len, uint64_t *end)
{
	uint64_t at;

	for (uint32_t i = 0; i < *n; i++)
		if (h[i].n >= len) {
			at = h[i].at;
			h[i].at += len;
			h[i].n -= len;
			if (!h[i].n) {
				memmove(h + i, h + i + 1, (*n - i - 1) * sizeof *h);
				--*n;
			}
			return at;
		}
	at = *end;
	*end += len;
	return at;
}

static uint64_t val_floats(const struct plan_val *v, const uint32_t cap[N_SPACES])
{
	return cpu_round_up((uint64_t)v->width * cap[v->space], 16);
}

/* Values sorted by the phase that makes them (`order`) and by the phase after which they are free (`ends`). */
static int by_made(const void *a, const void *b)
{
	const struct plan_val *x = *(struct plan_val *const *)a, *y = *(struct plan_val *const *)b;

	return x->made != y->made ? (x->made > y->made) - (x->made < y->made) : (x > y) - (x < y);
}
static int by_used(const void *a, const void *b)
{
	const struct plan_val *x = *(struct plan_val *const *)a, *y = *(struct plan_val *const *)b;

	return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : (x > y) - (x < y);
}

static uint64_t *place(struct plan_val *v, bool grouped) { return grouped ? &v->group_arena : &v->arena; }

/* With so many rows of each space; `grouped`: the places go to group_arena. Returns the floats, 0 for want of memory. */
static uint64_t arena_fit(struct plan *p, const uint32_t cap[N_SPACES], bool grouped)
{
	struct plan_val **order = calloc(2 * (size_t)p->n_vals + 1, sizeof *order),
			**ends = order + p->n_vals;
	struct hole *hole = calloc((size_t)p->n_vals + 2, sizeof *hole);
	uint32_t n = 0, freed = 0, holes = 0;
	uint64_t end = 16; /* so that it is never 0 */

	for (uint32_t i = 0; order && i < p->n_vals; i++)
		if (p->vals[i].made != TNP_NONE && p->vals[i].bind == BIND_ARENA)
			order[n++] = &p->vals[i];
	if (order && hole) {
		memcpy(ends, order, n * sizeof *order);
		qsort(order, n, sizeof *order, by_made);
		qsort(ends, n, sizeof *ends, by_used);
		for (uint32_t i = 0; i < n; i++) {
			for (; freed < n && ends[freed]->used < order[i]->made; freed++)
				hole_give(hole, &holes, *place(ends[freed], grouped),
					val_floats(ends[freed], cap));
			*place(order[i], grouped) = hole_take(hole, &holes, val_floats(order[i], cap), &end);
		}
	}
	end = order && hole ? end : 0;
	free(order);
	free(hole);
	return end;
}

/* Most tokens of a group; 0 where a row needs another sequence's, or where there would be too few for the threads. */
static uint32_t groups_tokens(const struct plan *p)
{
	uint32_t n = p->lim.max_tokens / (GROUPS_EACH * p->n_threads);
	bool apart = !p->slots.n && !p->n_experts;

	for (uint32_t i = 0; i < p->n_attends; i++)
		apart &= !p->attends[i].causal;
	for (uint32_t i = 0; i < p->n_phases; i++)
		apart &= p->phases[i].space != SPACE_OUT;
	for (uint32_t i = 0; i < p->g->n_out; i++)
		apart &= p->vals[p->g->out[i]].bind == BIND_OUT;
	n = n < GROUP_TOKENS ? n : GROUP_TOKENS;
	return apart && p->n_threads > 1 && p->n_threads <= GROUP_THREADS && n >= GROUP_TOKENS_LEAST ? n : 0;
}

tnp_rc arena_plan(struct builder *b)
{
	struct plan *p = b->p;
	const uint32_t all[N_SPACES] = { p->lim.max_tokens, p->lim.max_seqs, p->lim.max_out };
	uint64_t floats = arena_fit(p, all, false), group;

	p->arena_bytes = floats * sizeof(float);
	p->group_tokens = groups_tokens(p);
	if (p->group_tokens && floats) {
		const uint32_t few[N_SPACES] = { p->group_tokens, p->group_tokens };

		group = arena_fit(p, few, true);
		p->group_bytes = cpu_round_up(group * sizeof(float), 4096);
		p->max_groups = p->n_threads + 2 * (p->lim.max_tokens / p->group_tokens);
		floats = group;
		if (p->group_bytes * p->n_threads > p->arena_bytes)
			p->arena_bytes = p->group_bytes * p->n_threads;
	}
	return floats ? TNP_OK : cpu_fail(b->e, TNP_E_NOMEM, 0, "plan: no memory");
}

void binds_plan(struct plan *p)
{
	const struct tnp_graph *g = p->g;

	for (uint32_t i = 0; i < g->n_in; i++) {
		p->vals[g->in[i]].bind = BIND_IN;
		p->vals[g->in[i]].bind_index = i;
	}
	for (uint32_t i = 0; i < g->n_out; i++) {
		struct plan_val *v = &p->vals[g->out[i]];

		if (!v->is_out && !v->n_uses && v->bind == BIND_ARENA) {
			v->bind = BIND_OUT;
			v->bind_index = i;
		}
		v->is_out = true;
		v->used = p->n_phases;
	}
}

uint64_t plan_take(uint64_t *at, uint64_t bytes)
{
	uint64_t place = *at;

	*at += cpu_round_up(bytes, 64);
	return place;
}

/* What one thread needs for itself. */
static void thread_plan(struct plan *p)
{
	uint64_t at = 0, act[ACT_N_CLASSES] = { 0 }, shadow = 0, attend = 0;

	for (uint32_t i = 0; i < p->n_phases; i++) {
		const struct plan_phase *ph = &p->phases[i];

		if (ph->main != MAIN_EXPERTS) /* their rows are never a thread's own */
			shadow = ph->shadow > shadow ? ph->shadow : shadow;
		for (uint32_t c = 0; c < ACT_N_CLASSES; c++) {
			uint64_t n =
				ph->classes >> c & 1 ? p->isa->linear->act_bytes(c, PLAN_SMALL, ph->k) : 0;

			act[c] = n > act[c] ? n : act[c];
		}
	}
	for (uint32_t i = 0; i < p->n_attends; i++) {
		const struct attn_shape *s = &p->attends[i].shape;
		uint64_t rows = (uint64_t)p->units[p->attends[i].units].block * s->group;
		uint64_t n = rows * (s->pad + 2 * attn_state_floats(s->pad)) + attn_wide_floats(s->pad);

		attend = n > attend ? n : attend;
	}
	p->t_scratch = plan_take(&at, p->isa->linear->scratch_bytes());
	for (uint32_t c = 0; c < ACT_N_CLASSES; c++)
		p->t_act[c] = plan_take(&at, act[c]);
	p->t_shadow = plan_take(&at, shadow * sizeof(float));
	p->t_attend = plan_take(&at, attend * sizeof(float));
	experts_thread_plan(p, &at);
	p->thread_bytes = cpu_round_up(at, 4096);
}

static uint32_t segments_max(const struct plan *p, uint32_t window)
{
	uint64_t keys = (uint64_t)p->lim.max_pages_per_seq * p->lim.page_tokens;
	uint64_t n = (keys + ATTN_SEGMENT - 1) / ATTN_SEGMENT, seen = (uint64_t)window / ATTN_SEGMENT + 2;

	if (window && seen < n)
		n = seen;
	return n ? (uint32_t)n : 1;
}

/* Decoding few sequences, their segments are shared out; that needs a place for the states. */
static void units_plan(struct plan *p, uint64_t *at)
{
	for (uint32_t i = 0; i < p->n_units; i++) {
		struct plan_units *u = &p->units[i];
		uint32_t n = u->causal && p->n_threads > 1 ? (4 * p->n_threads - 1) / u->kv_heads : 0;

		u->n_split = n < p->lim.max_seqs ? n : p->lim.max_seqs;
		u->max_units = p->lim.max_tokens / ((u->block + 1) / 2) + p->lim.max_seqs +
			u->n_split * segments_max(p, u->window);
		u->offset = plan_take(at, (uint64_t)u->max_units * 32);
		if (u->n_split * u->kv_heads > p->split_heads)
			p->split_heads = u->n_split * u->kv_heads;
		if (u->n_split && segments_max(p, u->window) > p->max_segments)
			p->max_segments = segments_max(p, u->window);
	}
	for (uint32_t i = 0; i < p->n_attends; i++) {
		const struct attn_shape *s = &p->attends[i].shape;
		uint64_t n = s->group * attn_state_floats(s->pad);

		p->split_state = n > p->split_state ? n : p->split_state;
	}
	p->split_bytes = (uint64_t)p->split_heads * p->max_segments * p->split_state * sizeof(float);
}

/* Arrays of the packed batch (struct step): four a token, two a row of output, a few a sequence. */
static uint64_t plan_step_bytes(const struct plan *p)
{
	return 16ull * p->lim.max_tokens + 8ull * p->lim.max_out + 64ull * (p->lim.max_seqs + 1ull);
}

static void groups_acts(struct plan *p)
{
	for (uint32_t c = 0; c < ACT_N_CLASSES && p->group_tokens; c++) {
		for (uint32_t i = 0; i < p->n_phases; i++) {
			const struct plan_phase *ph = &p->phases[i];
			uint64_t n = ph->classes >> c & 1
				? p->isa->linear->act_bytes(c, p->group_tokens, ph->k)
				: 0;

			n = cpu_round_up(n, 64);
			p->group_acts[c] = n > p->group_acts[c] ? n : p->group_acts[c];
		}
		if (p->group_acts[c] * p->n_threads > p->act_bytes[c])
			p->act_bytes[c] = p->group_acts[c] * p->n_threads;
	}
}

void workspace_plan(struct plan *p)
{
	uint64_t at = 0;

	p->arena = plan_take(&at, p->arena_bytes);
	for (uint32_t i = 0; i < p->n_ropes; i++)
		p->ropes[i].offset =
			plan_take(&at, (uint64_t)p->lim.max_tokens * p->ropes[i].dims * sizeof(float));
	for (uint32_t i = 0; i < p->n_phases; i++)
		for (uint32_t c = 0; c < ACT_N_CLASSES; c++) {
			const struct plan_phase *ph = &p->phases[i];
			uint32_t cap = plan_cap(p, ph->space);
			uint64_t n = ph->classes >> c & 1 ? p->isa->linear->act_bytes(c, cap, ph->k) : 0;

			p->act_bytes[c] = n > p->act_bytes[c] ? n : p->act_bytes[c];
		}
	experts_acts(p, p->act_bytes);
	groups_acts(p);
	for (uint32_t c = 0; c < ACT_N_CLASSES; c++)
		p->acts[c] = plan_take(&at, p->act_bytes[c]);
	thread_plan(p);
	at = cpu_round_up(at, 4096);
	p->threads = plan_take(&at, p->thread_bytes * p->n_threads);
	units_plan(p, &at);
	p->split = plan_take(&at, p->split_bytes);
	p->counters = plan_take(&at, (uint64_t)p->split_heads * 64);
	p->step = plan_take(&at, plan_step_bytes(p));
	experts_workspace_plan(p, &at);
	p->workspace = cpu_map_bytes(at);
}
