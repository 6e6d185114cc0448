/* SPDX-License-Identifier: Apache-2.0
 * All open requests, and why each waits: running ones, then waiting ones in the order in which they would start if
 * nobody else came. Allocates; for people, not for steps. Step thread only.
 */
#include "sched/sched_priv.h"
#include <stdlib.h>
#include <string.h>

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

/* One tenant's queue of a class in its own order, gone through up to `at`. */
struct line {
	const struct tenant *tenant;
	struct seq **v;
	uint32_t n, at;
	double level; /* as if those before `at` had run */
};

static uint32_t lines_make(const struct sched *s, uint32_t k, struct line *lines, struct seq **v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_tenants; i++) {
		const struct tenant *t = s->tenants[i];

		if (!t->queue[k].n)
			continue;
		memcpy(v, t->queue[k].v, t->queue[k].n * sizeof(struct seq *));
		qsort(v, t->queue[k].n, sizeof(struct seq *), by_key);
		lines[n++] = (struct line){ .tenant = t, .v = v, .n = t->queue[k].n, .level = t->level };
		v += t->queue[k].n;
	}
	return n;
}

/* As queue_best caps aging. */
static int32_t lines_most(const struct line *lines, uint32_t n)
{
	int32_t most = INT32_MIN;

	for (uint32_t i = 0; i < n; i++)
		if (lines[i].at < lines[i].n)
			most = MAX_OF(most, lines[i].v[lines[i].at]->priority);
	return most;
}

/* Who was served just now has waited for nothing since, but for what was preempted. */
static struct rank line_rank(const struct sched *s, const struct line *l, int32_t most, uint64_t now)
{
	const struct seq *q = l->v[l->at];
	int32_t aged = l->at && !q->started ? q->priority : queue_aged(s, q, now);

	return (struct rank){ MIN_OF(aged, most), q->started, l->level, q->order };
}

static struct line *lines_next(const struct sched *s, struct line *lines, uint32_t n, uint64_t now)
{
	int32_t most = lines_most(lines, n);
	struct line *best = NULL;
	struct rank top = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		struct rank r;

		if (lines[i].at == lines[i].n)
			continue;
		r = line_rank(s, &lines[i], most, now);
		if (!best || queue_rank_better(&r, &top)) {
			best = &lines[i];
			top = r;
		}
	}
	return best;
}

/* Its first is charged with all that it may still cost. */
static void line_pass(struct line *l)
{
	const struct seq *q = l->v[l->at++];

	l->level += 1000.0 *
		((double)(q->n_prompt - MIN_OF(q->most_past, q->n_prompt)) +
			2.0 * (q->max_total - q->n_tokens)) /
		l->tenant->weight;
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
static void add_class(
	const struct sched *s, struct listing *l, uint32_t k, struct line *lines, uint32_t n, uint64_t now)
{
	int32_t most = lines_most(lines, n);
	uint64_t ahead = 0;
	struct line *t;

	while (l->n < l->room && (t = lines_next(s, lines, n, now)) != NULL) {
		const struct seq *q = t->v[t->at];
		struct sched_entry e =
			entry_of(s, q, ahead || !s->blocked[k] ? SCHED_WAIT_TURN : s->blocked[k], now);

		e.aged_priority = MAX_OF(MIN_OF(e.aged_priority, most), q->priority);
		e.behind = ahead;
		ahead = q->id;
		line_pass(t);
		add(l, e);
	}
	for (uint32_t i = 0; i < n; i++)
		l->n += lines[i].n - lines[i].at;
}

static void add_queued(const struct sched *s, struct listing *l, uint64_t now)
{
	struct line *lines = mem_zalloc(MEM_SCHED, s->n_tenants + 1u, sizeof *lines);
	struct seq **v = mem_zalloc(MEM_SCHED, s->n_open + 1u, sizeof(struct seq *));

	for (uint32_t k = 0; lines && v && k < SCHED_CLASSES; k++)
		add_class(s, l, k, lines, lines_make(s, k, lines, v), now);
	mem_free(v);
	mem_free(lines);
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
