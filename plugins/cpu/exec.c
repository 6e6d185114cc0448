/* SPDX-License-Identifier: Apache-2.0
 * One step: all threads walk the phases of the plan, see plan.h. Work inside a phase is claimed in pieces from a
 * counter; which thread does a piece never matters to its bits.
 */
#include "model.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS_PIECE = 8, LANE_PIECES = 8 };

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Next piece [*at, *at + n) of a counter, false when `end` is reached. */
static bool piece_claim(struct counter *c, uint32_t n, uint32_t end, uint32_t *at)
{
	*at = atomic_fetch_add_explicit(&c->next, n, memory_order_relaxed);
	return *at < end;
}

static struct counter *phase_counter(const struct lane *l, uint32_t which)
{
	return &l->m->counter[2 * l->phase + which];
}

/* ---- activations of a product ------------------------------------------------------------------ */
static uint64_t act_bytes(const struct lane *l, uint32_t class, uint32_t m, uint32_t k)
{
	return l->m->dev->isa->linear->act_bytes(class, m, k);
}

/* Where the prepared rows of a class lie: the thread's own place, the common one, or x itself. */
static void *act_place(const struct lane *l, uint32_t class, struct rows_ref x)
{
	const struct plan *p = l->m->plan;
	const struct plan_phase *ph = &p->phases[l->phase];

	if (!act_bytes(l, class, l->m->step.n[ph->space], ph->k))
		return x.p;
	return l->alone ? l->own + p->t_act[class] : l->m->ws + p->acts[class];
}

static void acts_pack(const struct lane *l, uint32_t r0, uint32_t r1)
{
	const struct plan_phase *ph = &l->m->plan->phases[l->phase];
	const struct linear_ops *ops = l->m->dev->isa->linear;
	struct rows_ref x = lane_rows(l, ph->x);
	uint32_t m = l->m->step.n[ph->space];

	for (uint32_t c = 0; c < ACT_N_CLASSES; c++)
		if ((ph->classes >> c & 1) && act_bytes(l, c, m, ph->k))
			ops->act_pack(c, x.p, x.ld, m, ph->k, r0, r1, act_place(l, c, x));
}

/* ---- products ------------------------------------------------------------------------------------ */
/* Bias, activation function, residual: y = act(Wx + b) + r. */
static void seg_finish(const struct lane *l, const struct plan_seg *s, struct rows_ref c, uint32_t m,
	uint32_t j0, uint32_t j1)
{
	const struct elem_ops *ops = l->m->dev->isa->elem;
	struct rows_ref r = { NULL, 0 };

	if (s->bias == TNP_NONE && !s->act && s->residual == TNP_NONE)
		return;
	if (s->residual != TNP_NONE)
		r = lane_rows(l, s->residual);
	for (uint32_t i = 0; i < m; i++) {
		float *y = c.p + i * c.ld + s->col + j0;

		if (s->bias != TNP_NONE)
			ops->add(y, l->m->consts + s->bias + j0, j1 - j0, y);
		if (s->act)
			ops->act(s->act, y, j1 - j0, y);
		if (r.p)
			ops->add(y, r.p + i * r.ld + s->col + j0, j1 - j0, y);
	}
}

static void seg_run(const struct lane *l, uint32_t seg, uint32_t m, uint32_t j0, uint32_t j1)
{
	const struct plan *p = l->m->plan;
	const struct plan_seg *s = &p->segs[seg];
	struct rows_ref c = lane_rows(l, s->out), x = lane_rows(l, p->phases[l->phase].x);
	struct linear_weight w = s->w;

	w.data = l->m->seg_data[seg];
	l->m->dev->isa->linear->run(
		&w, act_place(l, s->w.act, x), m, j0, j1, c.p + s->col, c.ld, l->own + p->t_scratch);
	seg_finish(l, s, c, m, j0, j1);
}

static uint32_t panels(uint32_t n, uint32_t rows) { return (n + rows - 1) / rows; }

/* Panels [p0, p1) of all products in a row. */
static void panels_run(
	const struct lane *l, const struct plan_phase *ph, uint32_t m, uint32_t p0, uint32_t p1)
{
	const struct plan *p = l->m->plan;
	uint32_t rows = l->m->dev->isa->linear->panel_rows, first = 0;

	for (uint32_t i = 0; i < ph->n_segs && first < p1; i++) {
		uint32_t n = p->segs[ph->segs[i]].w.n, count = panels(n, rows);
		uint32_t a = p0 > first ? p0 - first : 0, z = p1 - first < count ? p1 - first : count;

		if (a < z)
			seg_run(l, ph->segs[i], m, a * rows, z * rows < n ? z * rows : n);
		first += count;
	}
}

/* The same columns of all products, then the column operators on them. */
static void columns_run(
	const struct lane *l, const struct plan_phase *ph, uint32_t m, uint32_t p0, uint32_t p1)
{
	uint32_t rows = l->m->dev->isa->linear->panel_rows, j0 = p0 * rows;
	uint32_t j1 = p1 * rows < ph->cols_n ? p1 * rows : ph->cols_n;

	for (uint32_t i = 0; i < ph->n_segs; i++)
		seg_run(l, ph->segs[i], m, j0, j1);
	for (uint32_t i = 0; i < ph->n_cols; i++)
		cols_run(l, &l->m->plan->ops[ph->cols[i]], 0, m, j0, j1);
}

static void products_run(const struct lane *l, const struct plan_phase *ph, uint32_t m)
{
	const struct plan *p = l->m->plan;
	uint32_t rows = l->m->dev->isa->linear->panel_rows, total = 0, piece, at;

	for (uint32_t i = 0; i < ph->n_segs; i++)
		total += panels(p->segs[ph->segs[i]].w.n, rows);
	if (ph->n_cols)
		total = panels(ph->cols_n, rows);
	piece = l->n_threads == 1 ? total : total / (l->n_threads * LANE_PIECES);
	piece = piece ? piece : 1;
	while (piece_claim(phase_counter(l, 1), piece, total, &at)) {
		uint32_t end = total - at < piece ? total : at + piece;

		if (ph->n_cols)
			columns_run(l, ph, m, at, end);
		else
			panels_run(l, ph, m, at, end);
	}
}

/* ---- attention ------------------------------------------------------------------------------------- */
static void units_run(const struct lane *l, const struct plan_attend *a, bool store)
{
	const struct step *s = &l->m->step;
	uint32_t heads = a->shape.kv_heads, end = s->n_units[a->units] * heads, at;

	while (piece_claim(phase_counter(l, 1), 1, end, &at))
		attend_unit(l, a, &s->units[a->units][at / heads], at % heads, store);
}

/* ---- a phase ------------------------------------------------------------------------------------------ */
static bool stores(const struct lane *l, const struct plan_phase *ph)
{
	const struct plan_attend *a = &l->m->plan->attends[ph->attend];

	return ph->main == MAIN_ATTEND && a->causal && a->k != TNP_NONE;
}

static void rows_do(const struct lane *l, const struct plan_phase *ph, uint32_t r0, uint32_t r1)
{
	for (uint32_t i = 0; i < ph->n_rows; i++)
		rows_run(l, &l->m->plan->ops[ph->rows[i]], r0, r1);
	if (ph->main == MAIN_LINEAR)
		acts_pack(l, r0, r1);
}

/* Few rows: each thread has its own copy. Without a main part nobody needs one but thread 0. */
static void rows_alone(const struct lane *l, const struct plan_phase *ph, uint32_t m)
{
	if (ph->main != MAIN_NONE || l->thread == 0)
		rows_do(l, ph, 0, m);
	if (!stores(l, ph) || l->m->step.single)
		return;
	attend_store(l, &l->m->plan->attends[ph->attend], 0, m, l->thread, l->n_threads);
	pool_barrier(l->m->dev->pool);
}

static void rows_shared(const struct lane *l, const struct plan_phase *ph, uint32_t m)
{
	uint32_t group = l->m->dev->isa->linear->act_rows, piece = (uint32_t)cpu_round_up(ROWS_PIECE, group),
		 at;

	while (piece_claim(phase_counter(l, 0), piece, m, &at)) {
		uint32_t end = m - at < piece ? m : at + piece;

		rows_do(l, ph, at, end);
		if (stores(l, ph))
			attend_store(l, &l->m->plan->attends[ph->attend], at, end, 0, 1);
	}
	if (ph->main != MAIN_NONE)
		pool_barrier(l->m->dev->pool);
}

static void phase_run(struct lane *l, uint32_t number)
{
	const struct plan_phase *ph = &l->m->plan->phases[number];
	uint32_t m = l->m->step.n[ph->space];

	if (!m)
		return;
	l->phase = number;
	l->alone = m < PLAN_SMALL;
	if (l->alone)
		rows_alone(l, ph, m);
	else
		rows_shared(l, ph, m);
	if (ph->main == MAIN_LINEAR)
		products_run(l, ph, m);
	if (ph->main == MAIN_ATTEND)
		units_run(l, &l->m->plan->attends[ph->attend], l->alone && l->m->step.single);
	pool_barrier(l->m->dev->pool);
}

static void ropes_run(const struct lane *l)
{
	const struct plan *p = l->m->plan;
	uint32_t m = l->m->step.n[SPACE_TOKENS], at;

	while (piece_claim(&l->m->counter[2 * p->n_phases], ROWS_PIECE, m, &at))
		for (uint32_t i = 0; i < p->n_ropes; i++)
			rope_table(l->m, &p->ropes[i], at, m - at < ROWS_PIECE ? m : at + ROWS_PIECE);
	pool_barrier(l->m->dev->pool);
}

static void step_thread(void *arg, uint32_t thread, uint32_t n_threads)
{
	struct tnp_model *m = arg;
	const struct plan *p = m->plan;
	struct lane l = { .m = m,
		.thread = thread,
		.n_threads = n_threads,
		.own = m->ws + p->threads + thread * p->thread_bytes };

	if (p->n_ropes)
		ropes_run(&l);
	for (uint32_t i = 0; i < p->n_phases; i++) {
		if (m->times && thread == 0)
			m->times[i] = now_ns();
		phase_run(&l, i);
	}
	if (m->times && thread == 0)
		m->times[p->n_phases] = now_ns();
}

/* ---- values that live outside the arena -------------------------------------------------------------- */
static bool is_bound(const struct tnp_model *m, uint32_t out)
{
	const struct plan_val *v = &m->plan->vals[m->g.out[out]];

	return v->bind == BIND_OUT && v->bind_index == out;
}

/* Rows of the batch are those of the step unless a sequence failed: then rows must move, and bound values live in
 * a block of their own, the only memory that a step ever takes. */
static uint64_t spill_floats(const struct tnp_model *m)
{
	const struct step *s = &m->step;
	uint64_t n = m->g.n_in ? (uint64_t)m->plan->vals[m->g.in[0]].width * s->n[SPACE_TOKENS] : 0;

	for (uint32_t i = 0; i < m->g.n_out; i++) {
		const struct plan_val *v = &m->plan->vals[m->g.out[i]];

		n += is_bound(m, i) ? (uint64_t)v->width * s->n[v->space] : 0;
	}
	return n + 1;
}

static void refs_bind(struct tnp_model *m, float *spill)
{
	const struct plan *p = m->plan;
	const struct tnp_batch *b = m->step.b;

	if (m->g.n_in) {
		uint32_t width = p->vals[m->g.in[0]].width;

		for (uint32_t i = 0; spill && i < m->step.n[SPACE_TOKENS]; i++)
			memcpy(spill + (size_t)i * width,
				b->in + (size_t)m->step.from[SPACE_TOKENS][i] * width, width * sizeof *spill);
		/* only read */
		m->ref[m->g.in[0]] = (struct rows_ref){ spill ? spill : (float *)(uintptr_t)b->in, width };
		spill = spill ? spill + (size_t)width * m->step.n[SPACE_TOKENS] : NULL;
	}
	for (uint32_t i = 0; i < m->g.n_out; i++) {
		const struct plan_val *v = &p->vals[m->g.out[i]];

		if (!is_bound(m, i) || !m->step.n[v->space])
			continue;
		m->ref[m->g.out[i]] = spill ? (struct rows_ref){ spill, v->width }
					    : (struct rows_ref){ b->out[i].data, b->out[i].stride };
		spill = spill ? spill + (size_t)v->width * m->step.n[v->space] : NULL;
	}
}

static void outs_copy(struct tnp_model *m, bool spilled)
{
	const struct plan *p = m->plan;
	const struct step *s = &m->step;

	for (uint32_t i = 0; i < m->g.n_out; i++) {
		const struct plan_val *v = &p->vals[m->g.out[i]];
		struct rows_ref from = m->ref[m->g.out[i]];

		if (is_bound(m, i) && !spilled)
			continue;
		for (uint32_t r = 0; r < s->n[v->space]; r++)
			memcpy(s->b->out[i].data + s->from[v->space][r] * s->b->out[i].stride,
				from.p + r * from.ld, v->width * sizeof(float));
	}
}

tnp_rc exec_step(struct tnp_model *m, struct tnp_error *e)
{
	bool whole = m->step.n[SPACE_SEQS] == m->step.b->n_seqs;
	float *spill = whole ? NULL : malloc(spill_floats(m) * sizeof *spill);

	if (!whole && !spill)
		return cpu_fail(e, TNP_E_NOMEM, 0, "batch: no memory to leave out the sequences that failed");
	for (uint32_t i = 0; i < 2 * m->plan->n_phases + 2; i++)
		atomic_store_explicit(&m->counter[i].next, 0, memory_order_relaxed);
	refs_bind(m, spill);
	pool_run(m->dev->pool, step_thread, m);
	outs_copy(m, spill != NULL);
	m->profiled = m->times != NULL;
	free(spill);
	return TNP_OK;
}
