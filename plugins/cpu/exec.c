/* SPDX-License-Identifier: Apache-2.0
 * One step: the phases of the plan as stages of a job, see plan.h and pool.h. Which thread does a piece never matters to
 * its bits. With few rows a thread makes them for itself when it claims its first piece of a phase; the first piece
 * of all makes them in the arena, where later phases find them.
 */
#include "model.h"
#include <stdlib.h>
#include <string.h>

enum {
	ROWS_PIECE = 12,
	LANE_PIECES = 2,
	EXPERTS_PIECES = 64,
	PIECE_BYTES = 32 << 10,
	TAPER = 4,
	GROUP_FLOATS = 8192
};

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

	if (!act_bytes(l, class, l->n[ph->space], ph->k))
		return x.p + l->first[ph->space] * x.ld;
	if (l->grouped)
		return l->m->ws + p->acts[class] + l->index * p->group_acts[class];
	return l->alone ? l->own + p->t_act[class] : l->m->ws + p->acts[class];
}

static void acts_pack(const struct lane *l, uint32_t r0, uint32_t r1)
{
	const struct plan_phase *ph = &l->m->plan->phases[l->phase];
	const struct linear_ops *ops = l->m->dev->isa->linear;
	struct rows_ref x = lane_rows(l, ph->x);
	uint32_t m = l->n[ph->space], first = l->first[ph->space];

	for (uint32_t c = 0; c < ACT_N_CLASSES; c++)
		if ((ph->classes >> c & 1) && act_bytes(l, c, m, ph->k))
			ops->act_pack(c, x.p + first * x.ld, x.ld, m, ph->k, r0 - first, r1 - first,
				act_place(l, c, x));
}

/* ---- products ------------------------------------------------------------------------------------ */
/* Bias, activation function, residual: y = act(Wx + b) + r. */
static void seg_finish(const struct lane *l, const struct plan_seg *s, struct rows_ref c, uint32_t space,
	uint32_t j0, uint32_t j1)
{
	const struct elem_ops *ops = l->m->dev->isa->elem;
	const uint32_t end = l->first[space] + l->n[space];
	struct rows_ref r = { NULL, 0 };

	if (s->bias == TNP_NONE && !s->act && s->residual == TNP_NONE)
		return;
	if (s->residual != TNP_NONE)
		r = lane_rows(l, s->residual);
	for (uint32_t i = l->first[space]; i < end; i++) {
		float *y = c.p + i * c.ld + s->col + j0;

		if (s->bias != TNP_NONE)
			ops->add(y, l->m->consts + s->bias + j0, j1 - j0, y);
		if (s->act)
			ops->act(s->act, y, j1 - j0, y);
		if (r.p)
			ops->add(y, r.p + i * r.ld + s->col + j0, j1 - j0, y);
	}
}

static void seg_run(const struct lane *l, uint32_t seg, uint32_t j0, uint32_t j1)
{
	const struct plan *p = l->m->plan;
	const struct plan_seg *s = &p->segs[seg];
	const uint32_t space = p->phases[l->phase].space;
	struct rows_ref c = lane_rows(l, s->out), x = lane_rows(l, p->phases[l->phase].x);
	struct linear_weight w = s->w;

	w.data = l->m->seg_data[seg];
	l->m->dev->isa->linear->run(&w, act_place(l, s->w.act, x), l->n[space], j0, j1,
		c.p + l->first[space] * c.ld + s->col, c.ld, l->own + p->t_scratch);
	seg_finish(l, s, c, space, j0, j1);
}

static uint32_t panels(uint32_t n, uint32_t rows) { return (n + rows - 1) / rows; }

/* Panels [p0, p1) of all products in a row. */
static void panels_run(const struct lane *l, const struct plan_phase *ph, uint32_t p0, uint32_t p1)
{
	const struct plan *p = l->m->plan;
	uint32_t rows = l->m->dev->isa->linear->panel_rows, first = 0;

	for (uint32_t i = 0; i < ph->n_segs && first < p1; i++) {
		uint32_t n = p->segs[ph->segs[i]].w.n, count = panels(n, rows);
		uint32_t a = p0 > first ? p0 - first : 0, z = p1 - first < count ? p1 - first : count;

		if (a < z)
			seg_run(l, ph->segs[i], a * rows, z * rows < n ? z * rows : n);
		first += count;
	}
}

/* The same columns of all products, then the column operators on them. */
static void columns_run(const struct lane *l, const struct plan_phase *ph, uint32_t p0, uint32_t p1)
{
	uint32_t r0 = l->first[ph->space], r1 = r0 + l->n[ph->space];
	uint32_t rows = l->m->dev->isa->linear->panel_rows, j0 = p0 * rows;
	uint32_t j1 = p1 * rows < ph->cols_n ? p1 * rows : ph->cols_n;

	for (uint32_t i = 0; i < ph->n_segs; i++)
		seg_run(l, ph->segs[i], j0, j1);
	for (uint32_t i = 0; i < ph->n_cols; i++)
		cols_run(l, &l->m->plan->ops[ph->cols[i]], r0, r1, j0, j1);
}

static void products_run(const struct lane *l, const struct plan_phase *ph, uint32_t p0, uint32_t p1)
{
	if (ph->n_cols)
		columns_run(l, ph, p0, p1);
	else
		panels_run(l, ph, p0, p1);
}

/* ---- stages ------------------------------------------------------------------------------------------ */
/* Panels of a phase's products: of all in a row, or of one where columns go together. */
static uint32_t phase_panels(const struct tnp_model *m, const struct plan_phase *ph)
{
	uint32_t rows = m->dev->isa->linear->panel_rows, n = 0;

	if (ph->n_cols)
		return panels(ph->cols_n, rows);
	for (uint32_t i = 0; i < ph->n_segs; i++)
		n += panels(m->plan->segs[ph->segs[i]].w.n, rows);
	return n;
}

/* Rows of a piece: as many pieces as threads or a multiple, so that few rows keep all threads busy too. */
static uint32_t piece_rows(const struct tnp_model *m, uint32_t rows)
{
	uint32_t threads = m->plan->n_threads, n = (rows + ROWS_PIECE - 1) / ROWS_PIECE;

	n = (n + threads - 1) / threads * threads;
	return (uint32_t)cpu_round_up((rows + n - 1) / n, m->dev->isa->linear->act_rows);
}

/* Panels of a piece: two a thread, since each begins a stream of weights anew (of 8 to 24 a thread, decode lost a fifth), but
 * none too small to be worth a claim; panels_stage cuts the last ones, so that a slow thread can be helped. */
static uint32_t piece_panels(const struct tnp_model *m, const struct plan_phase *ph, uint32_t total)
{
	uint64_t work = 0, pieces, most = (uint64_t)m->plan->n_threads * LANE_PIECES;

	if (m->plan->n_threads == 1)
		return total;
	for (uint32_t i = 0; i < ph->n_segs; i++)
		work += (uint64_t)m->plan->segs[ph->segs[i]].w.n * ph->k / 2;
	pieces = work * m->step.n[ph->space] / PIECE_BYTES;
	pieces = pieces > most ? most : pieces;
	pieces = pieces < m->plan->n_threads ? m->plan->n_threads : pieces;
	return (uint32_t)((total + pieces - 1) / pieces);
}

static bool stores(const struct tnp_model *m, const struct plan_phase *ph)
{
	const struct plan_attend *a = &m->plan->attends[ph->attend];

	return ph->main == MAIN_ATTEND && a->causal && a->k != TNP_NONE;
}

static void stage_add(
	struct tnp_model *m, uint32_t phase, enum stage_kind kind, bool alone, uint32_t pieces, uint32_t size)
{
	m->stage[m->n_stages] = (struct stage){ phase, kind, size, alone, UINT32_MAX };
	m->pieces[m->n_stages++] = pieces;
}

static void rows_stage(struct tnp_model *m, uint32_t phase, enum stage_kind kind, uint32_t rows)
{
	uint32_t size = rows ? piece_rows(m, rows) : 1;

	stage_add(m, phase, kind, false, (rows + size - 1) / size, size);
}

/* The last quarter of the panels in pieces of a quarter, so that the threads end together. */
static void panels_stage(struct tnp_model *m, uint32_t phase, bool alone)
{
	uint32_t total = phase_panels(m, &m->plan->phases[phase]),
		 size = piece_panels(m, &m->plan->phases[phase], total), small = (size + TAPER - 1) / TAPER;
	uint32_t whole = size < total ? total / size * (TAPER - 1) / TAPER : 1;

	stage_add(m, phase, STAGE_MAIN, alone,
		whole + (whole * size < total ? (total - whole * size + small - 1) / small : 0), size);
	m->stage[m->n_stages - 1].whole = whole;
}

/* Where piece `piece` of a stage begins. */
static uint32_t piece_at(const struct stage *s, uint32_t piece)
{
	uint32_t small = (s->size + TAPER - 1) / TAPER;

	return piece <= s->whole ? piece * s->size : s->whole * s->size + (piece - s->whole) * small;
}

static void experts_stages(struct tnp_model *m, uint32_t number, uint32_t rows)
{
	const struct plan_phase *ph = &m->plan->phases[number];

	if (ph->n_rows)
		rows_stage(m, number, STAGE_ROWS, rows);
	if (m->plan->experts[ph->experts].sort)
		stage_add(m, number, STAGE_SORT, false, 1, 1);
	stage_add(m, number, STAGE_GATHER, false, 1, experts_gather_rows(m->dev->isa));
	stage_add(m, number, STAGE_MAIN, false, 1, 1);
}

/* Sorts, and says how many pieces the stages up to the next sort have. */
static void sort_piece(struct tnp_model *m, uint32_t stage)
{
	const struct plan_phase *ph = &m->plan->phases[m->stage[stage].phase];
	uint32_t most = m->plan->n_threads * EXPERTS_PIECES;

	experts_sort(m, &m->plan->experts[ph->experts], m->step.n[ph->space]);
	for (uint32_t i = stage + 1; i < m->n_stages && m->stage[i].kind != STAGE_SORT; i++) {
		struct stage *s = &m->stage[i];
		const struct plan_phase *at = &m->plan->phases[s->phase];
		uint32_t items;

		if (at->main != MAIN_EXPERTS || s->kind == STAGE_ROWS)
			continue;
		items = s->kind == STAGE_GATHER ? m->n_gathers
						: m->n_groups * m->plan->experts[at->experts].chunks;
		if (s->kind == STAGE_MAIN)
			s->size = (items + most - 1) / most;
		m->pieces[i] = s->kind == STAGE_MAIN ? (items + s->size - 1) / s->size : items;
	}
}

/* Keys of one step are all stored before any is read, unless each sequence has one token: then the thread that
 * needs a key stores it. */
static void phase_stages(struct tnp_model *m, uint32_t number)
{
	const struct plan_phase *ph = &m->plan->phases[number];
	uint32_t rows = m->step.n[ph->space];
	bool alone = rows < PLAN_SMALL && (m->step.single || !stores(m, ph)) && ph->main != MAIN_NONE;

	if (!rows)
		return;
	if (ph->main == MAIN_EXPERTS) {
		experts_stages(m, number, rows);
		return;
	}
	if (!alone)
		rows_stage(m, number, STAGE_ROWS, rows);
	if (ph->main == MAIN_LINEAR) {
		panels_stage(m, number, alone);
	} else if (ph->main == MAIN_ATTEND) {
		const struct plan_attend *a = &m->plan->attends[ph->attend];

		stage_add(m, number, STAGE_MAIN, alone, m->step.n_units[a->units] * a->shape.kv_heads, 1);
	}
}

static void lane_whole(struct lane *l)
{
	for (uint32_t i = 0; i < N_SPACES; i++) {
		l->first[i] = 0;
		l->n[i] = l->m->step.n[i];
	}
}

static void stages_make(struct tnp_model *m)
{
	const struct plan *p = m->plan;
	uint32_t groups;

	m->n_stages = 0;
	for (uint32_t i = 0; i < p->n_threads; i++)
		lane_whole(&m->lane[i]);
	if (p->n_ropes)
		rows_stage(m, 0, STAGE_ROPES, m->step.n[SPACE_TOKENS]);
	groups = m->profile ? 0 : groups_make(m);
	if (groups)
		stage_add(m, 0, STAGE_GROUP, false, groups, 1);
	for (uint32_t i = 0; i < p->n_phases && !groups; i++)
		phase_stages(m, i);
}

/* ---- pieces -------------------------------------------------------------------------------------------- */
static void rows_do(const struct lane *l, const struct plan_phase *ph, uint32_t r0, uint32_t r1)
{
	for (uint32_t i = 0; i < ph->n_rows; i++)
		rows_run(l, &l->m->plan->ops[ph->rows[i]], r0, r1);
	if (ph->main == MAIN_LINEAR)
		acts_pack(l, r0, r1);
}

static void rows_piece(const struct lane *l, const struct plan_phase *ph, uint32_t r0, uint32_t r1)
{
	rows_do(l, ph, r0, r1);
	if (stores(l->m, ph))
		attend_store(l, &l->m->plan->attends[ph->attend], r0, r1);
}

static void main_piece(struct lane *l, const struct plan_phase *ph, const struct stage *s, uint32_t piece)
{
	uint32_t p0 = piece_at(s, piece), p1 = piece_at(s, piece + 1);

	if (s->alone && l->ready != l->m->stage_base + (uint32_t)(s - l->m->stage)) {
		l->ready = l->m->stage_base + (uint32_t)(s - l->m->stage);
		l->shadowed = piece != 0;
		rows_do(l, ph, 0, l->n[ph->space]);
	}
	if (ph->main == MAIN_EXPERTS) {
		experts_run(l, &l->m->plan->experts[ph->experts], p0, s->size);
	} else if (ph->main == MAIN_LINEAR) {
		uint32_t total = phase_panels(l->m, ph);

		p1 = p1 < total ? p1 : total;
		products_run(l, ph, p0, p1);
	} else {
		const struct plan_attend *a = &l->m->plan->attends[ph->attend];
		const struct unit *u = &l->m->step.units[a->units][piece / a->shape.kv_heads];

		attend_unit(l, a, u, piece % a->shape.kv_heads, s->alone && stores(l->m, ph));
	}
}

/* Some columns at a time, so that bias, activation function and residual find them in the cache. */
static void group_products(const struct lane *l, const struct plan_phase *ph)
{
	uint32_t total = phase_panels(l->m, ph), size = l->n[ph->space] * l->m->dev->isa->linear->panel_rows;

	size = size < GROUP_FLOATS ? GROUP_FLOATS / size : 1;
	for (uint32_t p0 = 0; p0 < total; p0 += size)
		products_run(l, ph, p0, total - p0 < size ? total : p0 + size);
}

static void group_attend(const struct lane *l, const struct plan_attend *a, const struct group *g)
{
	const struct step *s = &l->m->step;

	for (uint32_t i = 0; i < s->n_units[a->units]; i++) {
		const struct unit *u = &s->units[a->units][i];

		for (uint32_t h = 0; h < a->shape.kv_heads && u->seq >= g->seq0 && u->seq < g->seq1; h++)
			attend_unit(l, a, u, h, false);
	}
}

/* All phases for a few sequences. */
static void group_run(struct lane *l, const struct group *g)
{
	const struct tnp_model *m = l->m;

	l->grouped = true;
	l->first[SPACE_SEQS] = g->seq0;
	l->n[SPACE_SEQS] = g->seq1 - g->seq0;
	l->first[SPACE_TOKENS] = m->step.tok0[g->seq0];
	l->n[SPACE_TOKENS] = m->step.tok0[g->seq1] - m->step.tok0[g->seq0];
	for (l->phase = 0; l->phase < m->plan->n_phases; l->phase++) {
		const struct plan_phase *ph = &m->plan->phases[l->phase];
		uint32_t r0 = l->first[ph->space];

		rows_do(l, ph, r0, r0 + l->n[ph->space]);
		if (ph->main == MAIN_LINEAR)
			group_products(l, ph);
		else if (ph->main == MAIN_ATTEND)
			group_attend(l, &m->plan->attends[ph->attend], g);
	}
	l->grouped = false;
}

static void piece_run(void *arg, uint32_t thread, uint32_t stage, uint32_t piece)
{
	struct tnp_model *m = arg;
	const struct stage *s = &m->stage[stage];
	const struct plan_phase *ph = &m->plan->phases[s->phase];
	struct lane *l = &m->lane[thread];
	uint32_t rows = s->kind == STAGE_ROPES ? m->step.n[SPACE_TOKENS] : m->step.n[ph->space];
	uint32_t r0 = piece * s->size, r1 = rows - r0 < s->size ? rows : r0 + s->size;

	if (m->profile)
		profile_begin(m->profile, thread, stage);
	l->phase = s->phase;
	l->alone = s->alone;
	switch (s->kind) {
	case STAGE_ROPES:
		for (uint32_t i = 0; i < m->plan->n_ropes; i++)
			rope_table(m, &m->plan->ropes[i], r0, r1);
		break;
	case STAGE_ROWS:
		rows_piece(l, ph, r0, r1);
		break;
	case STAGE_SORT:
		sort_piece(m, stage);
		break;
	case STAGE_GATHER:
		experts_gather(l, &m->plan->experts[ph->experts], piece, s->size);
		break;
	case STAGE_GROUP:
		group_run(l, &m->group[piece]);
		break;
	default:
		main_piece(l, ph, s, piece);
	}
	if (m->profile)
		profile_end(m->profile, thread, stage);
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
	if (m->profile)
		profile_start(m->profile);
	m->stage_base += m->n_stages;
	stages_make(m);
	refs_bind(m, spill);
	pool_run(m->dev->pool, piece_run, m, m->pieces, m->n_stages);
	outs_copy(m, spill != NULL);
	if (m->profile)
		profile_finish(m->profile);
	free(spill);
	return TNP_OK;
}
