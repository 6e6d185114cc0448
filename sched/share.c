/* SPDX-License-Identifier: Apache-2.0
 * Prefixes: what a request finds, whom it waits for, what it leaves behind. A request whose prefix another one is just
 * computing waits for it instead of computing it twice; who computes counts as urgent as the most urgent of those
 * (seq_class). Whatever happens to that one, its followers look again. Step thread only.
 */
#include "sched/sched_priv.h"
#include <string.h>

static bool shares(const struct sched *s, const struct seq *q)
{
	return s->prefix && q->reuse && q->tenant->prefix_id != PREFIX_NO_TENANT;
}

/* ---- waiting for an equal prefix --------------------------------------------------------------------------------------- */

/* How far r will have computed what q begins with, in whole pages; 0: not a page more than `cached`. */
static uint32_t gain(const struct sched *s, const struct seq *q, const struct seq *r, uint32_t cached)
{
	uint32_t pt = kv_pages_tokens(s->pages), most = MIN_OF(q->n_tokens - 1, r->n_tokens), n = cached + pt;

	if (n > most || memcmp(q->tokens, r->tokens, n * sizeof *q->tokens))
		return 0;
	while (n < most && q->tokens[n] == r->tokens[n])
		n++;
	n -= n % pt;
	return n >= cached + pt && r->past < n ? n : 0;
}

static bool may_lead(const struct sched *s, const struct seq *r, const struct seq *q)
{
	return r != q && shares(s, r) && seq_left(r) > 1 &&
		(s->c.prefix.share_tenants || r->tenant == q->tenant);
}

static bool follow(struct sched *s, struct seq *q, uint32_t cached)
{
	struct seq *leader = NULL;
	uint32_t most = 0;

	for (struct seq *r = s->running.first; r; r = r->next[SEQ_IN_PLACE]) {
		uint32_t n = may_lead(s, r, q) ? gain(s, q, r, cached) : 0;

		if (n <= most)
			continue;
		most = n;
		leader = r;
	}
	if (!leader)
		return false;
	queue_leave(s, q);
	q->leader = leader;
	q->follow_until = most;
	queue_enter(s, q, SEQ_FOLLOWS);
	return true;
}

void share_let_go(struct sched *s, struct seq *leader, bool all)
{
	for (struct seq *f = leader->followers.first, *next; f; f = next) {
		next = f->next[SEQ_IN_PLACE];
		if (!all && leader->past < f->follow_until)
			continue;
		queue_leave(s, f);
		queue_enter(s, f, SEQ_QUEUED);
	}
}

/* ---- tiers ------------------------------------------------------------------------------------------------------------- */

static bool worth_restoring(const struct sched *s, const struct seq *q, const struct prefix_hit *hit)
{
	return hit->n_tiered && !q->restored &&
		prefix_restore_ns(s->prefix, hit) <
		cost_prefill_ns(s->cost, hit->n_whole, hit->n_tiered, s->c.engine.info->step_tokens);
}

static void find(const struct sched *s, const struct seq *q, struct prefix_hit *hit)
{
	prefix_find(s->prefix, q->tenant->prefix_id, q->tokens, q->n_tokens - 1, hit);
}

static struct seq *first_to_restore(const struct sched *s)
{
	for (struct seq *q = s->restoring.first; q; q = q->next[SEQ_IN_PLACE])
		if (q->traffic_class == WIRE_ONLINE)
			return q;
	return s->restoring.first;
}

bool share_restore(struct sched *s, uint64_t budget_ns, uint64_t now)
{
	struct seq *q;

	while ((q = first_to_restore(s))) {
		struct prefix_hit hit;

		find(s, q, &hit);
		if (worth_restoring(s, q, &hit) &&
			prefix_restore(
				s->prefix, q->tenant->prefix_id, q->tokens, q->n_tokens - 1, budget_ns, now))
			return true;
		q->restored = true;
		queue_leave(s, q);
		queue_enter(s, q, SEQ_QUEUED);
	}
	return false;
}

/* ---- finding and leaving ----------------------------------------------------------------------------------------------- */

enum sched_wait share_look(struct sched *s, struct seq *q, struct prefix_hit *hit)
{
	*hit = (struct prefix_hit){ 0 };
	if (!shares(s, q) || q->table.n_pages || q->n_tokens < 2)
		return SCHED_RUNS;
	find(s, q, hit);
	if (worth_restoring(s, q, hit)) {
		queue_leave(s, q);
		queue_enter(s, q, SEQ_RESTORES);
		return SCHED_WAIT_RESTORE;
	}
	return follow(s, q, hit->n_whole + hit->n_part) ? SCHED_WAIT_PREFIX : SCHED_RUNS;
}

void share_take(struct sched *s, struct seq *q, const struct prefix_hit *hit, uint64_t now)
{
	if (hit->n_whole + hit->n_part)
		q->past = prefix_share(s->prefix, hit, q->traffic_class, now, &q->table, &q->lease);
}

void share_offer(struct sched *s, struct seq *q, bool last, uint64_t now)
{
	if (shares(s, q) && q->past)
		prefix_offer(s->prefix, q->tenant->prefix_id, q->tokens, q->past, last, q->traffic_class, now,
			&q->table, &q->lease);
}
