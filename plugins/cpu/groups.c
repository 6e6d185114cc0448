/* SPDX-License-Identifier: Apache-2.0
 * Cuts a step of sequences that share nothing into groups. A group goes through all phases on one thread: its rows stay
 * in that core's caches and nobody waits for anybody, where phase by phase every row crosses from core to core. Bits
 * are the same either way. Called by the thread that runs the step.
 */
#include "model.h"

/* What the busiest thread gets when each takes the next group as soon as it is free, against an even share; a quarter
 * more is what phases lose. */
static bool groups_even(const struct tnp_model *m, uint32_t n)
{
	const struct step *s = &m->step;
	uint64_t load[GROUP_THREADS] = { 0 }, most = 0;
	uint32_t threads = m->plan->n_threads;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t to = 0;

		for (uint32_t t = 1; t < threads; t++)
			to = load[t] < load[to] ? t : to;
		load[to] += s->tok0[m->group[i].seq1] - s->tok0[m->group[i].seq0];
		most = load[to] > most ? load[to] : most;
	}
	return most * threads * 4 <= (uint64_t)s->n[SPACE_TOKENS] * 5;
}

uint32_t groups_make(struct tnp_model *m)
{
	const struct plan *p = m->plan;
	const struct step *s = &m->step;
	uint32_t total = s->n[SPACE_TOKENS], n = 0, want;

	if (!p->group_tokens)
		return 0;
	want = (total + p->group_tokens - 1) / p->group_tokens;
	want = (want + p->n_threads - 1) / p->n_threads * p->n_threads;
	for (uint32_t seq = 0, first = 0; seq < s->n[SPACE_SEQS]; seq++) {
		uint32_t end = s->tok0[seq + 1];

		if (end - s->tok0[seq] > p->group_tokens)
			return 0;
		if (end - s->tok0[first] > p->group_tokens ||
			(uint64_t)s->tok0[seq] * want >= (uint64_t)total * (n + 1)) {
			if (n + 1 >= p->max_groups)
				return 0;
			m->group[n++] = (struct group){ first, seq };
			first = seq;
		}
		m->group[n] = (struct group){ first, seq + 1 };
	}
	return groups_even(m, n + 1) ? n + 1 : 0;
}
