/* SPDX-License-Identifier: Apache-2.0
 * All open requests, and why each waits: running ones, then waiting ones in the order in which they would start if
 * nobody else came. Allocates; for people, not for steps. Step thread only.
 */
#include "sched/sched_priv.h"
#include <stdlib.h>

const char *sched_wait_name(enum sched_wait w)
{
	static const char *const names[] = { [SCHED_RUNS] = "runs",
		[SCHED_WAIT_TURN] = "turn",
		[SCHED_WAIT_PLACE] = "place",
		[SCHED_WAIT_PAGES] = "pages",
		[SCHED_WAIT_PREFIX] = "prefix",
		[SCHED_WAIT_RESTORE] = "restore",
		[SCHED_WAIT_ONLINE] = "online",
		[SCHED_WAIT_READER] = "reader" };

	return (unsigned)w < COUNT_OF(names) ? names[w] : "unknown";
}

/* ---- the order of starting --------------------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
	const struct seq *x = *(const struct seq *const *)a, *y = *(const struct seq *const *)b;

	return queue_key_before(x, y) ? -1 : queue_key_before(y, x);
}

/* Each queued request as its tenant's turns go: how often the tenant was served before, counted on its level. */
struct turn {
	struct seq *q;
	int32_t aged;
	double level;
};

static int by_turn(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	if (x->q->traffic_class != y->q->traffic_class)
		return x->q->traffic_class < y->q->traffic_class ? -1 : 1;
	if (x->aged != y->aged)
		return x->aged > y->aged ? -1 : 1;
	if (x->q->started != y->q->started)
		return x->q->started ? -1 : 1;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	return x->q->order < y->q->order ? -1 : 1;
}

static int32_t most_waiting(struct seq *const *v, uint32_t n, uint32_t k)
{
	int32_t most = INT32_MIN;

	for (uint32_t i = 0; i < n; i++)
		if (v[i]->traffic_class == k)
			most = MAX_OF(most, v[i]->priority);
	return most;
}

/* Turns of one tenant's queue: what stands before a request is charged before it. */
static uint32_t turns_of(const struct sched *s, const struct tenant *t, uint32_t k, uint64_t now,
	struct seq **v, struct turn *out)
{
	uint32_t n = t->queue[k].n;
	double level = t->level;

	for (uint32_t i = 0; i < n; i++)
		v[i] = t->queue[k].v[i];
	if (n)
		qsort(v, n, sizeof(struct seq *), by_key);
	for (uint32_t i = 0; i < n; i++) {
		int32_t aged = queue_aged(s, v[i], now);

		out[i] = (struct turn){ v[i], MIN_OF(aged, MAX_OF(most_waiting(v, n, k), v[i]->priority)),
			level };
		level += 1000.0 * ((double)v[i]->n_prompt + 2.0 * (v[i]->max_total - v[i]->n_prompt)) /
			t->weight;
	}
	return n;
}

static struct turn *turns(const struct sched *s, uint64_t now, uint32_t *n)
{
	struct turn *out = mem_zalloc(MEM_SCHED, s->n_open + 1u, sizeof *out);
	struct seq **v = mem_zalloc(MEM_SCHED, s->n_open + 1u, sizeof(struct seq *));

	*n = 0;
	for (uint32_t i = 0; out && v && i < s->n_tenants; i++)
		for (uint32_t k = 0; k < SCHED_CLASSES; k++)
			*n += turns_of(s, s->tenants[i], k, now, v, out + *n);
	if (*n)
		qsort(out, *n, sizeof *out, by_turn);
	mem_free(v);
	return out;
}

/* ---- entries ----------------------------------------------------------------------------------------------------------- */

static enum sched_wait aside_why(const struct seq *q)
{
	if (q->place == SEQ_PAUSED)
		return SCHED_WAIT_READER;
	return q->place == SEQ_FOLLOWS ? SCHED_WAIT_PREFIX : SCHED_WAIT_RESTORE;
}

static struct sched_entry entry_of(
	const struct sched *s, const struct seq *q, enum sched_wait why, uint64_t now)
{
	return (struct sched_entry){ .id = q->id,
		.behind = q->leader ? q->leader->id : 0,
		.tenant = q->tenant->name,
		.traffic_class = q->traffic_class,
		.priority = q->priority,
		.aged_priority = q->place == SEQ_RUNNING ? q->priority : queue_aged(s, q, now),
		.wait = why,
		.n_prompt = q->n_prompt,
		.n_cached = q->n_cached,
		.n_tokens = q->n_tokens,
		.past = q->past,
		.max_total = q->max_total,
		.n_preempted = q->n_preempted,
		.waited_ns = (q->started ? q->started_ns : now) - q->submitted_ns,
		.age_ns = now - q->submitted_ns,
		.deadline_ns = q->deadline_ns };
}

struct listing {
	struct sched_entry *out;
	size_t room, n;
};

static void add(struct listing *l, struct sched_entry e)
{
	if (l->n < l->room)
		l->out[l->n] = e;
	l->n++;
}

/* The first of its class waits for what the class lacks, the others for those before them. */
static void add_queued(const struct sched *s, struct listing *l, uint64_t now)
{
	uint64_t ahead[SCHED_CLASSES] = { 0 };
	uint32_t n;
	struct turn *t = turns(s, now, &n);

	for (uint32_t i = 0; t && i < n; i++) {
		const struct seq *q = t[i].q;
		enum sched_wait why = s->blocked[q->traffic_class];
		struct sched_entry e =
			entry_of(s, q, ahead[q->traffic_class] || !why ? SCHED_WAIT_TURN : why, now);

		e.behind = ahead[q->traffic_class];
		ahead[q->traffic_class] = q->id;
		add(l, e);
	}
	mem_free(t);
}

size_t sched_list(struct sched *s, struct sched_entry *out, size_t room)
{
	struct listing l = { out, room, 0 };
	uint64_t now = sched_now(s);

	for (const struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		add(&l, entry_of(s, q, SCHED_RUNS, now));
	for (const struct seq *q = s->all.first; q; q = q->next[SEQ_IN_ALL])
		if (q->place == SEQ_FOLLOWS || q->place == SEQ_RESTORES)
			add(&l, entry_of(s, q, aside_why(q), now));
	add_queued(s, &l, now);
	for (const struct seq *q = s->paused.first; q; q = q->next[SEQ_IN_PLACE])
		add(&l, entry_of(s, q, aside_why(q), now));
	return l.n;
}
