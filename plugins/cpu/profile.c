/* SPDX-License-Identifier: Apache-2.0
 * Times of the last step, when asked for: from when to when each thread worked on each stage. Threads write places of
 * their own; the host reads between steps. Rows name all nodes of the stage's phase, its main node first.
 */
#include "model.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct span {
	uint64_t begin_ns, end_ns; /* 0: the thread did nothing of this stage */
};
struct profile {
	bool finished; /* the spans are of a finished step */
	uint32_t n_lanes, max_stages;
	struct span span[]; /* [n_lanes][max_stages] */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t n_spans(const struct profile *p) { return (size_t)p->n_lanes * p->max_stages; }

void profile_start(struct profile *p)
{
	p->finished = false;
	memset(p->span, 0, n_spans(p) * sizeof *p->span);
}

void profile_finish(struct profile *p) { p->finished = true; }

void profile_begin(struct profile *p, uint32_t lane, uint32_t stage)
{
	struct span *s = &p->span[(size_t)lane * p->max_stages + stage];

	if (!s->begin_ns)
		s->begin_ns = now_ns();
}

void profile_end(struct profile *p, uint32_t lane, uint32_t stage)
{
	p->span[(size_t)lane * p->max_stages + stage].end_ns = now_ns();
}

static bool profile_on(struct tnp_model *m)
{
	struct profile *p = m->profile;
	uint32_t stages = PLAN_STAGES * m->plan->n_phases + 1;

	if (p)
		return true;
	p = calloc(1, sizeof *p + (size_t)m->plan->n_threads * stages * sizeof *p->span);
	if (!p)
		return false;
	p->n_lanes = m->plan->n_threads;
	p->max_stages = stages;
	m->profile = p;
	return true;
}

/* ---- rows ---------------------------------------------------------------------------------------- */
enum { NODES = PLAN_ROWS + PLAN_SEGS + PLAN_COLS + 2 };

static uint32_t node_add(uint32_t *nodes, uint32_t n, uint32_t node)
{
	for (uint32_t i = 0; i < n; i++)
		if (nodes[i] == node)
			return n;
	nodes[n] = node;
	return n + 1;
}

/* The nodes of a phase. */
static uint32_t phase_nodes(const struct plan *p, const struct plan_phase *ph, uint32_t nodes[NODES])
{
	uint32_t n = node_add(nodes, 0, ph->node);

	for (uint32_t i = 0; i < ph->n_rows; i++)
		n = node_add(nodes, n, p->ops[ph->rows[i]].node);
	for (uint32_t i = 0; i < ph->n_segs; i++)
		n = node_add(nodes, n, p->segs[ph->segs[i]].node);
	for (uint32_t i = 0; i < ph->n_cols; i++)
		n = node_add(nodes, n, p->ops[ph->cols[i]].node);
	if (ph->main == MAIN_ATTEND)
		n = node_add(nodes, n, p->attends[ph->attend].node);
	return ph->main == MAIN_EXPERTS ? node_add(nodes, n, p->experts[ph->experts].node) : n;
}

/* Writes rows as far as there is room; returns how many there are. */
static uint32_t rows_write(const struct tnp_model *m, struct tnp_timing *rows, uint32_t room)
{
	const struct profile *p = m->profile;
	uint32_t nodes[NODES], count = 0;

	for (uint32_t i = 0; i < m->n_stages; i++) {
		const struct stage *s = &m->stage[i];
		uint32_t n = 1;

		nodes[0] = TNP_NONE; /* what serves or crosses all layers */
		if (s->kind != STAGE_ROPES && s->kind != STAGE_GROUP)
			n = phase_nodes(m->plan, &m->plan->phases[s->phase], nodes);
		for (uint32_t lane = 0; lane < p->n_lanes; lane++) {
			struct span at = p->span[(size_t)lane * p->max_stages + i];

			for (uint32_t k = 0; at.end_ns && k < n; k++, count++)
				if (count < room)
					rows[count] =
						(struct tnp_timing){ nodes[k], lane, at.begin_ns, at.end_ns };
		}
	}
	return count;
}

tnp_rc model_profile(
	struct tnp_model *m, uint32_t on, struct tnp_timing *rows, uint32_t *n, struct tnp_error *e)
{
	if (!m)
		return cpu_fail(e, TNP_E_INVALID, 0, "profile: NULL argument");
	if (n)
		*n = m->profile && m->profile->finished ? rows_write(m, rows, rows ? *n : 0) : 0;
	if (!on) {
		free(m->profile);
		m->profile = NULL;
	} else if (!profile_on(m)) {
		return cpu_fail(e, TNP_E_NOMEM, 0, "profile: no memory");
	}
	return TNP_OK;
}
