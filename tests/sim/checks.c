/* SPDX-License-Identifier: Apache-2.0
 * What must hold before and after every step, at every refusal and at the end of a history.
 */
#include "tests/sim/sim.h"
#include <string.h>

/* ---- the scheduler's own words ------------------------------------------------------------------------- */

static void check_counts(struct sim *s, const struct sim_view *v)
{
	const struct sched_status *st = &v->status;
	uint32_t n[3] = { 0 };

	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		n[0] += st->class[k].waiting;
		n[1] += st->class[k].running;
		n[2] += st->class[k].paused;
	}
	if (n[0] != st->waiting || n[1] != st->running || n[2] != st->paused)
		sim_fail(s, "counts", "classes: %u waiting, %u running, %u paused; in all: %u, %u, %u", n[0],
			n[1], n[2], st->waiting, st->running, st->paused);
	if (st->waiting + st->running + st->paused != s->n_open || v->n != s->n_open)
		sim_fail(s, "counts", "%u waiting, %u running, %u paused, %zu listed; %u requests are open",
			st->waiting, st->running, st->paused, v->n, s->n_open);
	for (uint32_t g = 0; g < s->w.info.n_groups; g++)
		if (st->pages_free[g] > st->pages_total[g] || st->pages_total[g] != s->w.info.n_pages[g])
			sim_fail(s, "counts", "group %u: %u pages free of %u", g, st->pages_free[g],
				st->pages_total[g]);
}

/* A line of the list against the request. */
static void check_entry(struct sim *s, const struct sched_entry *e)
{
	const struct sim_request *r = sim_find(s, e->id);

	if (!r || r->life != SIM_OPEN) {
		sim_fail(s, "list", "request %llu is listed and not open", (unsigned long long)e->id);
		return;
	}
	if (e->traffic_class != r->ask.traffic_class || e->priority != r->ask.priority ||
		e->aged_priority < e->priority || strcmp(e->tenant, r->ask.tenant ? r->ask.tenant : "") ||
		e->n_prompt != r->n_prompt || e->n_tokens != r->n_prompt + r->n_told ||
		e->past > e->n_tokens || e->n_tokens > e->max_total || e->n_cached > e->n_prompt ||
		e->deadline_ns != r->ask.deadline_ns)
		sim_fail(s, "list",
			"request %llu: class %u, priority %d (%d), tenant '%s', prompt %u, cached %u, tokens %u of %u, past %u",
			(unsigned long long)e->id, e->traffic_class, (int)e->priority, (int)e->aged_priority,
			e->tenant, e->n_prompt, e->n_cached, e->n_tokens, e->max_total, e->past);
	if ((e->wait == SCHED_WAIT_READER) != r->paused ||
		(e->wait == SCHED_WAIT_ONLINE && e->traffic_class == WIRE_ONLINE))
		sim_fail(s, "list", "request %llu (%s) waits for: %s", (unsigned long long)e->id,
			r->paused ? "paused" : "not paused", sched_wait_name(e->wait));
	if (e->behind &&
		(e->behind == e->id || !sim_find(s, e->behind) || sim_find(s, e->behind)->life != SIM_OPEN))
		sim_fail(s, "list", "request %llu waits behind %llu, which is not open",
			(unsigned long long)e->id, (unsigned long long)e->behind);
	if (e->wait == SCHED_WAIT_PREFIX && !e->behind)
		sim_fail(s, "list", "request %llu waits for a prefix and nobody computes it",
			(unsigned long long)e->id);
}

void check_view(struct sim *s, struct sim_view *v)
{
	static const char *const none = "";
	struct sched_entry list[SIM_REQUESTS];

	sched_get_status(s->sched, &v->status);
	v->n = sched_list(s->sched, list, COUNT_OF(list));
	check_counts(s, v);
	for (size_t i = 0; i < v->n && !s->v.failed; i++) {
		v->seen[i].e = list[i];
		v->seen[i].e.tenant = none;
		check_entry(s, &list[i]);
		v->seen[i].placed = i < v->status.running;
		if (v->seen[i].placed ? list[i].wait != SCHED_RUNS && list[i].wait != SCHED_WAIT_ONLINE
				      : list[i].wait == SCHED_RUNS)
			sim_fail(s, "list", "request %llu, line %zu with %u running: %s",
				(unsigned long long)list[i].id, i, v->status.running,
				sched_wait_name(list[i].wait));
		for (size_t k = 0; k < i; k++)
			if (list[k].id == list[i].id)
				sim_fail(s, "list", "request %llu is listed twice",
					(unsigned long long)list[i].id);
	}
	if (!s->n_open)
		check_idle(s);
}

/* ---- refusals -------------------------------------------------------------------------------------------------------------- */

static uint64_t pages_needed(const struct sim *s, const struct sim_request *r)
{
	uint64_t n = (uint64_t)r->n_prompt + (r->ask.max_tokens ? r->ask.max_tokens : 1);

	return (n + s->w.info.page_tokens - 1) / s->w.info.page_tokens;
}

void check_submit(struct sim *s, struct sim_request *r, int rc, const struct error *e)
{
	bool late = r->ask.deadline_ns && r->ask.deadline_ns <= s->fake.now_ns;
	int behind = r->ask.time.arrived_ns < r->ask.deadline_ns ? TENON_E_TIMEOUT : TENON_E_INVALID;
	int want = r->refusal;

	if (!want && late)
		want = behind;
	if (!want && s->w.info.n_groups == 1 && pages_needed(s, r) > s->w.info.n_pages[0])
		want = TENON_E_NOMEM;
	if (want && rc != want && !(late && rc == behind))
		sim_fail(s, "refusal", "request %llu: %s (%s); %s was right", (unsigned long long)r->ask.id,
			error_name(rc), e->text, error_name(want));
	if (!want && rc && rc != TENON_E_FULL && rc != TENON_E_NOMEM)
		sim_fail(s, "refusal", "request %llu: %s (%s) without a cause", (unsigned long long)r->ask.id,
			error_name(rc), e->text);
	if (rc && (!e->text[0] || e->code != rc))
		sim_fail(s, "refusal", "request %llu: %s without a sentence", (unsigned long long)r->ask.id,
			error_name(rc));
}

/* ---- a step -------------------------------------------------------------------------------------------------------------------- */

/* Its last word is one of the backend's. */
static bool failed_now(const struct sim_request *r)
{
	return r->life == SIM_ERROR && r->code != TENON_E_CANCELLED && r->code != TENON_E_TIMEOUT;
}

/* May row k be this request's: same prefix, and the place where it stood before the step. */
static bool fits(const struct sim *s, const struct sim_request *r, uint32_t k, bool spoken)
{
	const struct fake_row *row = &s->fake.row[k];
	uint32_t end = row->past + row->n, had;

	if (r->life == SIM_FUTURE || r->life == SIM_REFUSED || (r->heard == s->fake.n_steps) != spoken)
		return false;
	if (spoken ? row->failed != failed_now(r) : r->life != SIM_OPEN)
		return false;
	if (r->was_past && r->was_past != row->past)
		return false;
	if (spoken && !row->failed && (row->n_out > 0) != (r->told_now || r->life == SIM_DONE))
		return false;
	had = r->n_prompt + r->n_told - (spoken ? r->told_now : 0);
	return (row->n_out ? end == had : end < had) && r->hash[end] == row->end_hash;
}

/* Finds a request for row k, moving other rows to other requests if need be (Kuhn's matching). */
static bool match(struct sim *s, uint32_t k, bool spoken, int8_t owner[SIM_REQUESTS], bool seen[SIM_REQUESTS])
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		if (seen[i] || !fits(s, &s->w.request[i], k, spoken))
			continue;
		seen[i] = true;
		if (owner[i] >= 0 && !match(s, (uint32_t)owner[i], spoken, owner, seen))
			continue;
		owner[i] = (int8_t)k;
		s->fake.row[k].request = (int32_t)i;
		return true;
	}
	return false;
}

/* What a request had before the step and goes on from: who was preempted in it may have come back anywhere, and so may
 * who is over. */
static void note_before(struct sim *s, const struct sim_seen *before)
{
	struct sim_request *r = sim_find(s, before->e.id);
	bool there = false, preempted = false;

	for (size_t i = 0; i < s->after->n; i++)
		if (s->after->seen[i].e.id == before->e.id) {
			there = true;
			preempted = s->after->seen[i].e.n_preempted != before->e.n_preempted;
		}
	r->stayed = before->placed && !preempted;
	r->was_past = r->stayed && there ? before->e.past : 0;
}

/* Whose spans were they? Twins make it a question: prefix and place name the candidates, those first that the scheduler
 * spoke about in this step. */
static void attribute(struct sim *s)
{
	int8_t owner[SIM_REQUESTS];

	for (uint32_t i = 0; i < s->w.n_requests; i++)
		s->w.request[i].was_past = 0;
	for (size_t i = 0; i < s->before->n; i++)
		note_before(s, &s->before->seen[i]);
	memset(owner, -1, sizeof owner);
	for (uint32_t k = 0; k < s->fake.n_rows; k++) {
		bool seen[SIM_REQUESTS] = { false }, again[SIM_REQUESTS] = { false };

		if (!match(s, k, true, owner, seen) && !match(s, k, false, owner, again))
			sim_fail(s, "kv", "nobody's span [%u, +%u), %u rows", s->fake.row[k].past,
				s->fake.row[k].n, s->fake.row[k].n_out);
	}
	for (uint32_t k = 0; k < s->fake.n_rows && !s->v.failed; k++)
		if (s->fake.row[k].failed)
			s->w.request[s->fake.row[k].request].failed_in = s->fake.n_steps;
}

/* What pins hold nobody can have. */
static bool out_of_pages(const struct sim *s, const struct sim_request *r)
{
	return r->code == TENON_E_NOMEM && s->before->status.prefix.pinned_pages;
}

/* An error that is neither a cancel nor a deadline belongs to a sequence that the fake failed. */
static void check_errors(struct sim *s)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		struct sim_request *r = &s->w.request[i];

		if (failed_now(r) && r->heard == s->fake.n_steps && r->failed_in != s->fake.n_steps &&
			!out_of_pages(s, r))
			sim_fail(s, "error", "request %llu: %s, but nothing failed",
				(unsigned long long)r->ask.id, error_name(r->code));
	}
}

static void check_deadlines(struct sim *s)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];

		if (r->life == SIM_OPEN && r->ask.deadline_ns && r->ask.deadline_ns < s->step_began_ns)
			sim_fail(s, "deadline", "request %llu lives on behind its deadline",
				(unsigned long long)r->ask.id);
	}
}

void check_step(struct sim *s, int rc)
{
	if (rc == TENON_OK)
		attribute(s);
	if (rc == TENON_OK)
		check_errors(s);
	check_deadlines(s);
	check_limits(s, sched_prefix(s->sched));
	if (!s->v.failed)
		check_policy(s);
}

/* ---- idle, and the end ----------------------------------------------------------------------------------- */

/* Nothing is open: nothing runs, and every page is free or only the cache's. What is pinned cannot be given away. */
void check_idle(struct sim *s)
{
	struct sched_status st;
	uint64_t pinned;

	if (s->v.failed)
		return;
	sched_get_status(s->sched, &st);
	pinned = st.prefix.pinned_pages;
	if (st.running || st.waiting || st.paused)
		sim_fail(s, "idle", "nothing is open; %u run, %u wait, %u are paused", st.running, st.waiting,
			st.paused);
	for (uint32_t g = 0; g < s->w.info.n_groups; g++)
		if (st.pages_free[g] + pinned < st.pages_total[g])
			sim_fail(s, "leak", "nothing is open; group %u: %u of %u pages are free, %llu pinned",
				g, st.pages_free[g], st.pages_total[g], (unsigned long long)pinned);
}

/* After a purge of everything. */
void check_end(struct sim *s)
{
	struct sched_status st;

	sched_get_status(s->sched, &st);
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];

		if (r->life == SIM_FUTURE || r->life == SIM_OPEN || r->n_done + r->n_error > 1)
			sim_fail(s, "once", "request %llu: %u times done, %u errors",
				(unsigned long long)r->ask.id, r->n_done, r->n_error);
	}
	for (uint32_t g = 0; g < s->w.info.n_groups; g++)
		if (st.pages_free[g] != st.pages_total[g] || st.prefix.pages[g])
			sim_fail(s, "leak", "group %u: %u of %u pages are free at the end, %llu in the cache",
				g, st.pages_free[g], st.pages_total[g],
				(unsigned long long)st.prefix.pages[g]);
	if (st.prefix.nodes > s->w.n_tenants || st.prefix.pinned_pages)
		sim_fail(s, "leak", "at the end the cache has %llu nodes and %llu pinned pages",
			(unsigned long long)st.prefix.nodes, (unsigned long long)st.prefix.pinned_pages);
}
