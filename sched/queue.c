/* SPDX-License-Identifier: Apache-2.0
 * Who waits, where, and who is next. One heap for each tenant and class, in the order of that tenant's own requests:
 * arrival, moved forward by aging_ns for each level of priority (so a waiting request is one level better off after
 * aging_ns, and no heap is ever sorted again). Between tenants only the heads are compared. Step thread only.
 */
#include "sched/sched_priv.h"

bool queue_key_before(const struct seq *a, const struct seq *b)
{
	return a->key != b->key ? a->key < b->key : a->order < b->order;
}

bool queue_deadline_before(const struct seq *a, const struct seq *b)
{
	return a->deadline_ns < b->deadline_ns;
}

void queue_set_key(const struct sched *s, struct seq *q)
{
	q->key = (int64_t)q->submitted_ns - q->priority * (int64_t)s->c.aging_ns;
}

/* ---- places ------------------------------------------------------------------------------------------------------------ */

static bool is_waiting(enum seq_place p) { return p == SEQ_QUEUED || p == SEQ_FOLLOWS || p == SEQ_RESTORES; }

static struct seq_list *list_of(struct sched *s, struct seq *q)
{
	switch (q->place) {
	case SEQ_FOLLOWS:
		return &q->leader->followers;
	case SEQ_RESTORES:
		return &s->restoring;
	case SEQ_RUNNING:
		return &s->running;
	case SEQ_PAUSED:
		return &s->paused;
	default:
		return NULL;
	}
}

/* Unsigned `n` is 1 or its two's complement -1. */
static void count(struct sched *s, struct seq *q, uint32_t n)
{
	uint32_t k = q->traffic_class;

	if (is_waiting(q->place)) {
		q->tenant->waiting[k] += n;
		q->tenant->waiting_bytes[k] += (uint64_t)(int64_t)(int32_t)n * 4 * q->max_total;
		s->st.class[k].waiting += n;
	} else if (q->place == SEQ_RUNNING) {
		q->tenant->running += n;
		s->n_running[k] += n;
		s->st.class[k].running += n;
	} else if (q->place == SEQ_PAUSED) {
		s->st.class[k].paused += n;
	}
}

void queue_enter(struct sched *s, struct seq *q, enum seq_place place)
{
	q->place = place;
	count(s, q, 1);
	if (place == SEQ_QUEUED)
		heap_push(&q->tenant->queue[q->traffic_class], q);
	else if (list_of(s, q))
		seq_list_insert(list_of(s, q), q, SEQ_IN_PLACE);
	q->holds = place != SEQ_RUNNING && q->table.n_pages;
	if (q->holds)
		seq_list_append(&s->holders, q, SEQ_IN_HOLDERS);
	s->epoch++;
	s->stuck = false;
}

void queue_leave(struct sched *s, struct seq *q)
{
	count(s, q, (uint32_t)-1);
	if (q->place == SEQ_QUEUED)
		heap_remove(&q->tenant->queue[q->traffic_class], q);
	else if (list_of(s, q))
		seq_list_remove(list_of(s, q), q, SEQ_IN_PLACE);
	if (q->holds)
		seq_list_remove(&s->holders, q, SEQ_IN_HOLDERS);
	q->holds = false;
	q->place = SEQ_NOWHERE;
	q->leader = NULL;
	s->epoch++;
	s->stuck = false;
}

uint32_t queue_waiting(const struct sched *s, uint32_t traffic_class)
{
	return s->st.class[traffic_class].waiting;
}

/* ---- the order --------------------------------------------------------------------------------------------------------- */

/* Waiting makes a request rise. What a tenant's flood waits behind its own earlier requests does not count; what was
 * preempted keeps its whole wait. */
int32_t queue_aged(const struct sched *s, const struct seq *q, uint64_t now)
{
	uint64_t since = q->submitted_ns, levels;

	if (!q->started)
		since = MAX_OF(since, q->tenant->served_ns[q->traffic_class]);
	levels = now > since ? (now - since) / s->c.aging_ns : 0;
	return q->priority + (int32_t)MIN_OF(levels, 1000000u);
}

bool queue_rank_better(const struct rank *a, const struct rank *b)
{
	if (a->aged != b->aged)
		return a->aged > b->aged;
	if (a->resumed != b->resumed)
		return a->resumed;
	if (a->level != b->level)
		return a->level < b->level;
	return a->order < b->order;
}

/* Aging lifts up to the best priority that waits, not above: among equals shares decide, not who came first. */
static struct rank rank_of(const struct sched *s, const struct seq *q, int32_t most, uint64_t now)
{
	return (struct rank){ MIN_OF(queue_aged(s, q, now), most), q->started, q->tenant->level, q->order };
}

static int32_t most_priority(const struct sched *s, uint32_t traffic_class)
{
	int32_t most = INT32_MIN;

	for (uint32_t i = 0; i < s->n_tenants; i++) {
		const struct seq *q = heap_top(&s->tenants[i]->queue[traffic_class]);

		if (q)
			most = MAX_OF(most, q->priority);
	}
	return most;
}

struct seq *queue_best(const struct sched *s, uint32_t traffic_class, uint64_t now)
{
	int32_t most = most_priority(s, traffic_class);
	struct seq *best = NULL;
	struct rank top = { 0 };

	for (uint32_t i = 0; i < s->n_tenants; i++) {
		struct seq *q = heap_top(&s->tenants[i]->queue[traffic_class]);
		struct rank r;

		if (!q)
			continue;
		r = rank_of(s, q, most, now);
		if (!best || queue_rank_better(&r, &top)) {
			best = q;
			top = r;
		}
	}
	return best;
}
