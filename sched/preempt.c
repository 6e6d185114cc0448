/* SPDX-License-Identifier: Apache-2.0
 * Who gives way: for a place, an offline sequence; for pages, those without a place first, then offline ones, then
 * younger online ones. Among equals: who got its place just now, latest first; then not the last victim, then whoever
 * loses least. Step thread only.
 */
#include "sched/sched_priv.h"

uint32_t seq_class(const struct seq *q)
{
	for (const struct seq *f = q->followers.first; f; f = f->next[SEQ_IN_PLACE])
		if (f->traffic_class < q->traffic_class)
			return f->traffic_class;
	return q->traffic_class;
}

/* ---- giving way -------------------------------------------------------------------------------------------------------- */

void sched_preempt(struct sched *s, struct seq *q, bool pages, uint64_t now)
{
	bool keeps = !pages && !(s->prefix && q->reuse), paused = q->place == SEQ_PAUSED,
	     ran = q->place == SEQ_RUNNING && !q->fresh;

	share_let_go(s, q, true);
	queue_leave(s, q);
	if (!keeps)
		pages_drop(s, q, true, now);
	q->prefilled = q->fresh = false;
	if (ran) {
		q->n_preempted++;
		s->last_victim = q->id;
		s->st.class[q->traffic_class].preempted++;
	}
	queue_enter(s, q, paused ? SEQ_PAUSED : SEQ_QUEUED);
}

/* ---- whom -------------------------------------------------------------------------------------------------------------- */

struct loss {
	uint32_t rank;	    /* smaller gives way earlier */
	uint64_t admission; /* who got a place in this very decision: when; 0: it ran already */
	bool again;
	uint32_t lost, past;
};

/* Who has not run in this stay loses nothing, and goes back into its queue last in, first out: whatever the cache gave
 * it, it must not start before somebody who was admitted earlier. */
static bool less(const struct loss *a, const struct loss *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank;
	if (a->admission != b->admission)
		return a->admission > b->admission;
	if (a->again != b->again)
		return !a->again;
	if (a->lost != b->lost)
		return a->lost < b->lost;
	return a->past < b->past;
}

/* Tokens computed again later: what the prefix cache does not keep. */
static uint32_t lost(const struct sched *s, const struct seq *v)
{
	return s->prefix && v->reuse ? v->past % kv_pages_tokens(s->pages) : v->past;
}

static void consider(
	const struct sched *s, struct seq *v, uint32_t rank, struct seq **best, struct loss *least)
{
	struct loss l = { rank, v->fresh ? v->admission : 0, v->id == s->last_victim, lost(s, v), v->past };

	if (*best && !(less(&l, least)))
		return;
	*best = v;
	*least = l;
}

struct seq *victim_for_place(const struct sched *s)
{
	struct seq *best = NULL;
	struct loss least = { 0 };

	for (struct seq *v = s->running.last; v; v = v->prev[SEQ_IN_PLACE])
		if (seq_class(v) == WIRE_OFFLINE)
			consider(s, v, 0, &best, &least);
	return best;
}

enum { RANK_NO = UINT8_MAX };

/* Without a place: offline ones for anybody, online ones for an online sequence only. */
static uint32_t rank_holder(const struct seq *v, const struct seq *q)
{
	if (v->traffic_class == WIRE_OFFLINE)
		return 0;
	return seq_class(q) == WIRE_ONLINE ? 2 : RANK_NO;
}

static uint32_t rank_running(const struct sched *s, const struct seq *v, const struct seq *q, bool admission)
{
	bool last_share = s->c.offline_min_share > 0 && s->n_running[WIRE_OFFLINE] <= 1;

	if (v->planned_step == s->step_no && !admission)
		return RANK_NO;
	if (seq_class(q) == WIRE_ONLINE && seq_class(v) == WIRE_OFFLINE)
		return last_share ? 4 : 1;
	if (admission || seq_class(v) != seq_class(q) || v->order < q->order)
		return RANK_NO;
	return 3;
}

static uint32_t rank(const struct sched *s, const struct seq *v, const struct seq *q, bool admission)
{
	if (!v->table.n_pages || v == q)
		return RANK_NO;
	return v->holds ? rank_holder(v, q) : rank_running(s, v, q, admission);
}

bool victim_may_be(const struct sched *s, const struct seq *v, const struct seq *q, bool admission)
{
	return rank(s, v, q, admission) != RANK_NO;
}

struct seq *victim_for_pages(const struct sched *s, const struct seq *q, bool admission)
{
	struct seq *best = NULL;
	struct loss least = { 0 };

	for (struct seq *v = s->holders.last; v; v = v->prev[SEQ_IN_HOLDERS])
		if (victim_may_be(s, v, q, admission))
			consider(s, v, rank(s, v, q, admission), &best, &least);
	for (struct seq *v = s->running.last; v; v = v->prev[SEQ_IN_PLACE])
		if (victim_may_be(s, v, q, admission))
			consider(s, v, rank(s, v, q, admission), &best, &least);
	return best;
}
