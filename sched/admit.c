/* SPDX-License-Identifier: Apache-2.0
 * From waiting to running: a place, pages for what is to be computed, the longest prefix that somebody has or is about
 * to have. The first of a class that lacks places or pages holds those behind it back, so that nobody starves; who waits
 * for a prefix steps aside. While nothing changes, nobody is looked at again. Step thread only.
 */
#include "sched/sched_priv.h"

enum {
	LOOKS = 16,	/* requests that may step aside in one step */
	RETRY_STEPS = 8 /* who found nothing left in a step tries again after so many */
};

/* ---- places ------------------------------------------------------------------------------------------------------------ */

uint32_t sched_places(const struct sched *s, uint32_t k)
{
	uint32_t kept, asked = s->n_running[WIRE_OFFLINE] + s->st.class[WIRE_OFFLINE].waiting;

	if (k == WIRE_OFFLINE || s->c.offline_min_share <= 0)
		return s->c.max_running;
	if (s->c.max_running == 1) /* it changes hands */
		return !(asked && owed_much(s));
	kept = MAX_OF((uint32_t)(s->c.offline_min_share * s->c.max_running), 1u);
	return s->c.max_running - MIN_OF(kept, asked);
}

static bool place_for(const struct sched *s, uint32_t k, struct seq **victim)
{
	*victim = NULL;
	if (s->n_running[k] >= sched_places(s, k))
		return false;
	if (s->running.n < s->c.max_running)
		return true;
	*victim = k == WIRE_ONLINE ? victim_for_place(s) : NULL;
	return *victim;
}

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

/* What running sequences still need for tokens that they have is promised to them, unless they would give way. */
static void add_promised(const struct sched *s, uint32_t traffic_class, uint32_t need[KV_MAX_GROUPS])
{
	for (const struct seq *r = s->running.first; r; r = r->next[SEQ_IN_PLACE]) {
		uint32_t more[KV_MAX_GROUPS];

		if (seq_class(r) > traffic_class)
			continue;
		pages_need(s, r, r->n_tokens + 1u, more);
		for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
			need[g] += more[g];
	}
}

/* Pages that preempting for q could give, at most. */
static void add_victims(const struct sched *s, const struct seq *q, uint32_t avail[KV_MAX_GROUPS])
{
	uint64_t more = 0;

	for (const struct seq *v = s->running.first; v; v = v->next[SEQ_IN_PLACE])
		more += victim_may_be(s, v, q, true) ? v->table.n_pages : 0;
	for (const struct seq *v = s->holders.first; v; v = v->next[SEQ_IN_HOLDERS])
		more += victim_may_be(s, v, q, true) ? v->table.n_pages : 0;
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		avail[g] = (uint32_t)MIN_OF(avail[g] + more, UINT32_MAX);
}

static bool enough(
	const struct sched *s, const uint32_t need[KV_MAX_GROUPS], const uint32_t avail[KV_MAX_GROUPS])
{
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		if (need[g] > avail[g])
			return false;
	return true;
}

/* The hit's own pages may be among those that could be evicted: they are not counted twice. */
static void room_for(const struct sched *s, const struct seq *q, const struct prefix_hit *hit,
	uint32_t need[KV_MAX_GROUPS], uint32_t avail[KV_MAX_GROUPS])
{
	uint32_t found = hit->n_whole / kv_pages_tokens(s->pages);

	pages_need(s, q, q->n_tokens + 1u, need);
	pages_avail(s, avail);
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++) {
		uint32_t idle = kv_pages_free(s->pages, g), kept = avail[g] - idle;

		need[g] -= MIN_OF(need[g], found);
		avail[g] = idle + kept - MIN_OF(kept, found);
	}
	add_promised(s, q->traffic_class, need);
}

/* An offline sequence leaves one page for each running one, so that it is not thrown out again at once. Nobody is
 * preempted if that would not be enough. */
static bool pages_for(struct sched *s, struct seq *q, const struct prefix_hit *hit, uint64_t now)
{
	uint32_t need[KV_MAX_GROUPS], avail[KV_MAX_GROUPS];

	if (!s->running.n && !s->holders.n)
		return true;
	room_for(s, q, hit, need, avail);
	if (q->traffic_class == WIRE_OFFLINE)
		for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
			need[g] += s->running.n;
	if (enough(s, need, avail))
		return true;
	add_victims(s, q, avail);
	if (!enough(s, need, avail))
		return false;
	for (struct seq *v; (v = victim_for_pages(s, q, true));) {
		sched_preempt(s, v, true, now);
		room_for(s, q, hit, need, avail);
		if (enough(s, need, avail))
			return true;
	}
	return !s->running.n && !s->holders.n;
}

/* What is left of the pages when all promises are kept. */
static void spare_pages(const struct sched *s, uint32_t traffic_class, int64_t spare[KV_MAX_GROUPS])
{
	uint32_t avail[KV_MAX_GROUPS], promised[KV_MAX_GROUPS] = { 0 };

	pages_avail(s, avail);
	add_promised(s, traffic_class, promised);
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		spare[g] = (int64_t)avail[g] - promised[g];
}

/* ---- admission --------------------------------------------------------------------------------------------------------- */

static enum sched_wait admit_one(struct sched *s, struct seq *q, uint64_t now)
{
	struct seq *victim;
	struct prefix_hit hit;
	enum sched_wait why = share_look(s, q, &hit);
	uint64_t epoch = s->epoch;

	if (why)
		return why;
	if (!pages_for(s, q, &hit, now))
		return SCHED_WAIT_PAGES;
	if (!place_for(s, q->traffic_class, &victim))
		return SCHED_WAIT_PLACE;
	if (victim)
		sched_preempt(s, victim, false, now);
	if (s->epoch != epoch) /* who gave way also changed what is cached */
		why = share_look(s, q, &hit);
	if (why)
		return why;
	queue_leave(s, q);
	share_take(s, q, &hit, now);
	q->fresh = true;
	q->admission = ++s->n_admitted;
	q->admitted_ns = now;
	queue_enter(s, q, SEQ_RUNNING);
	return SCHED_RUNS;
}

/* Nothing happened since that could help the first of class k. */
static bool still_blocked(const struct sched *s, uint32_t k)
{
	int64_t spare[KV_MAX_GROUPS];

	if (!s->blocked[k] || s->blocked_epoch[k] != s->epoch || s->step_no % RETRY_STEPS == 0)
		return false;
	if (s->blocked[k] != SCHED_WAIT_PAGES)
		return true;
	spare_pages(s, k, spare);
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		if (spare[g] > s->blocked_spare[k][g])
			return false;
	return true;
}

static enum sched_wait no_place(const struct sched *s, uint32_t k)
{
	return k == WIRE_OFFLINE && s->n_running[WIRE_ONLINE] ? SCHED_WAIT_ONLINE : SCHED_WAIT_PLACE;
}

/* Prompt tokens of those that have a place and were in no step yet: more than fit into one need not come in. */
static uint32_t fresh_tokens(const struct sched *s, uint32_t k)
{
	uint32_t n = 0;

	for (const struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		if (q->fresh && q->traffic_class == k)
			n += seq_left(q);
	return n;
}

/* Fills up to `most` places of a class. */
static void admit_class(struct sched *s, uint32_t k, uint32_t most, uint64_t now)
{
	uint32_t looks = 0, room = s->c.engine.info->step_tokens;
	struct seq *q, *victim;

	if (still_blocked(s, k))
		return;
	s->blocked[k] = SCHED_RUNS;
	while (s->n_running[k] < most && !s->blocked[k] && fresh_tokens(s, k) < room) {
		if (looks == LOOKS) {
			s->blocked[k] = SCHED_WAIT_TURN;
			break;
		}
		if (!place_for(s, k, &victim)) {
			s->blocked[k] = no_place(s, k);
			break;
		}
		q = queue_best(s, k, now);
		if (!q)
			break;
		s->blocked[k] = admit_one(s, q, now);
		if (s->blocked[k] != SCHED_WAIT_PREFIX && s->blocked[k] != SCHED_WAIT_RESTORE)
			continue;
		looks++;
		s->blocked[k] = SCHED_RUNS;
	}
	if (!s->blocked[k] && s->n_running[k] >= s->c.max_running)
		s->blocked[k] = no_place(s, k);
	s->blocked_epoch[k] = looks == LOOKS ? UINT64_MAX : s->epoch;
	spare_pages(s, k, s->blocked_spare[k]);
}

/* Online work that waits for its turn, a place or pages. */
bool sched_online_queued(const struct sched *s)
{
	for (uint32_t i = 0; i < s->n_tenants; i++)
		if (s->tenants[i]->queue[WIRE_ONLINE].n)
			return true;
	return false;
}

void sched_admit(struct sched *s, uint64_t now)
{
	uint32_t kept = s->c.max_running - sched_places(s, WIRE_ONLINE);
	bool held = sched_held(s, now);

	if (kept && !held)
		admit_class(s, WIRE_OFFLINE, kept, now);
	if (!(kept && s->blocked[WIRE_OFFLINE] == SCHED_WAIT_PAGES &&
		    s->owed_ns > 10.0 * (double)s->c.max_step_ns))
		admit_class(s, WIRE_ONLINE, s->c.max_running, now);
	if (!held && !sched_online_queued(s)) {
		admit_class(s, WIRE_OFFLINE, s->c.max_running, now);
		return;
	}
	s->blocked[WIRE_OFFLINE] = SCHED_WAIT_ONLINE;
	s->blocked_epoch[WIRE_OFFLINE] = UINT64_MAX;
}

/* Who got a place and was not put into the step goes back into the queue: the place is for whoever is next then. */
void sched_admit_undo(struct sched *s, uint64_t now)
{
	uint32_t undone[SCHED_CLASSES] = { 0 };
	bool held;

	for (struct seq *q = s->running.first, *next; q; q = next) {
		next = q->next[SEQ_IN_PLACE];
		if (!q->fresh)
			continue;
		undone[q->traffic_class]++;
		q->fresh = false;
		share_let_go(s, q, true);
		queue_leave(s, q);
		if (!q->past || (s->prefix && q->reuse))
			pages_drop(s, q, false, now);
		queue_enter(s, q, SEQ_QUEUED);
	}
	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		if (!undone[k])
			continue;
		held = k == WIRE_OFFLINE && s->online_shape.n_tokens;
		s->blocked[k] = held ? SCHED_WAIT_ONLINE : SCHED_WAIT_TURN;
		s->blocked_epoch[k] = held ? s->epoch : UINT64_MAX;
	}
}
