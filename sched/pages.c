/* SPDX-License-Identifier: Apache-2.0
 * Who gets KV pages. What only the prefix cache holds goes first, then sequences (preempt.c). The oldest of a class
 * always gets on, because nothing is admitted that the pool could not hold alone. Step thread only.
 */
#include "sched/sched_priv.h"

static uint64_t in_pages(const struct sched *s, uint64_t tokens)
{
	uint32_t pt = kv_pages_tokens(s->pages);

	return tokens / pt + (tokens % pt != 0);
}

/* First position that group g still reads when the next token stands at `past`. */
static uint64_t reach(const struct sched *s, uint32_t g, uint64_t past)
{
	uint64_t w = s->c.engine.info->window[g];

	return w && past > w ? past - w : 0;
}

/* A chunk may be cut to what there is, so a windowed group is asked for its window and two pages at most. */
void pages_need(const struct sched *s, const struct seq *q, uint64_t upto, uint32_t need[KV_MAX_GROUPS])
{
	uint32_t missing = block_table_missing(&q->table, s->pages, upto);

	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++) {
		uint64_t w = s->c.engine.info->window[g], most, live;

		need[g] = missing;
		if (!w)
			continue;
		most = in_pages(s, w) + 2;
		live = q->table.n_pages -
			MIN_OF(reach(s, g, q->past) / kv_pages_tokens(s->pages), q->table.n_pages);
		need[g] = (uint32_t)MIN_OF(missing, most > live ? most - live : 0);
	}
}

void pages_avail(const struct sched *s, uint32_t avail[KV_MAX_GROUPS])
{
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		avail[g] = kv_pages_free(s->pages, g) + (s->prefix ? prefix_evictable(s->prefix, g) : 0);
}

static bool free_pages(const struct sched *s, uint32_t more)
{
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		if (kv_pages_free(s->pages, g) < more)
			return false;
	return true;
}

static bool evict(struct sched *s, uint32_t more, uint64_t now)
{
	uint32_t want[KV_MAX_GROUPS] = { 0 };

	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		want[g] = more;
	return s->prefix && prefix_evict(s->prefix, want, now);
}

bool pages_take(struct sched *s, struct seq *q, uint32_t n, uint64_t now)
{
	uint64_t upto = (uint64_t)q->past + n;

	for (;;) {
		uint32_t more = block_table_missing(&q->table, s->pages, upto);
		struct seq *v;

		if (free_pages(s, more) || evict(s, more, now))
			return !block_table_cover(&q->table, s->pages, upto);
		v = victim_for_pages(s, q, false);
		if (v)
			sched_preempt(s, v, true, now);
		else if (q->lease) /* guards twins of its own pages where the backend is not invariant */
			prefix_release(s->prefix, &q->lease);
		else
			return false;
	}
}

uint32_t pages_take_some(struct sched *s, struct seq *q, uint32_t n, uint64_t now)
{
	uint32_t avail[KV_MAX_GROUPS], least = UINT32_MAX, more, pt = kv_pages_tokens(s->pages);
	uint64_t covered = (uint64_t)q->table.n_pages * pt, room;

	pages_avail(s, avail);
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		least = MIN_OF(least, avail[g]);
	room = covered + (uint64_t)least * pt;
	n = (uint32_t)MIN_OF(n, room - MIN_OF(room, q->past));
	more = block_table_missing(&q->table, s->pages, (uint64_t)q->past + n);
	if ((free_pages(s, more) || evict(s, more, now)) &&
		!block_table_cover(&q->table, s->pages, (uint64_t)q->past + n))
		return n;
	return (uint32_t)MIN_OF(n, covered - MIN_OF(covered, q->past));
}

/* Who cannot go on gives way itself: what it holds helps the others, and its place. */
static void prepare_one(struct sched *s, struct seq *q, uint64_t now)
{
	if (q->place != SEQ_RUNNING)
		return;
	if (pages_take(s, q, 1, now))
		q->paged_step = s->step_no;
	else if (!q->fresh && s->running.n + s->holders.n > 1)
		sched_preempt(s, q, true, now);
}

static void prepare_class(struct sched *s, uint32_t traffic_class, uint64_t now)
{
	uint32_t n = 0;

	for (struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		if (seq_class(q) == traffic_class)
			s->pick[n++] = q;
	for (uint32_t i = 0; i < n; i++)
		prepare_one(s, s->pick[i], now);
}

void pages_prepare(struct sched *s, uint64_t now)
{
	prepare_class(s, WIRE_ONLINE, now);
	prepare_class(s, WIRE_OFFLINE, now);
}

void pages_trim(struct sched *s, struct seq *q)
{
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		if (reach(s, g, q->past))
			(void)block_table_trim(&q->table, s->pages, g, reach(s, g, q->past));
}

/* With `offer` the prefix cache keeps what it can. */
void pages_drop(struct sched *s, struct seq *q, bool offer, uint64_t now)
{
	if (offer)
		share_offer(s, q, true, now);
	block_table_release(&q->table, s->pages);
	if (s->prefix)
		prefix_release(s->prefix, &q->lease);
	q->past = 0;
}
