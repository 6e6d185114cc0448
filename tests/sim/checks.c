/* SPDX-License-Identifier: Apache-2.0
 * What must hold before and after every step, at every refusal and at the end of a history.
 */
#include "tests/sim/sim.h"
#include <string.h>

/* ---- the scheduler's own words ------------------------------------------------------------------------------------------- */

void check_view(struct sim *s, struct sim_view *v)
{
	const struct sched_status *st = &v->status;

	sched_get_status(s->sched, &v->status);
	if (st->waiting + st->running < s->n_open || st->waiting + st->running > s->n_open)
		sim_fail(s, "counts", "%u waiting, %u running, %u paused; %u requests are open", st->waiting,
			st->running, st->paused, s->n_open);
	for (uint32_t g = 0; g < s->w.info.n_groups; g++)
		if (st->pages_free[g] > st->pages_total[g] || st->pages_total[g] != s->w.info.n_pages[g])
			sim_fail(s, "counts", "group %u: %u pages free of %u", g, st->pages_free[g],
				st->pages_total[g]);
}

/* ---- refusals -------------------------------------------------------------------------------------------------------------- */

static uint64_t pages_needed(const struct sim *s, const struct sim_request *r)
{
	uint64_t n = (uint64_t)r->n_prompt + (r->ask.max_tokens ? r->ask.max_tokens : 1);

	return (n + s->w.info.page_tokens - 1) / s->w.info.page_tokens;
}

void check_submit(struct sim *s, struct sim_request *r, int rc, const struct error *e)
{
	int want = r->refusal;

	if (!want && s->w.info.n_groups == 1 && pages_needed(s, r) > s->w.info.n_pages[0])
		want = TENON_E_NOMEM;
	if (want && rc != want)
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

/* Whose spans were they? Twins make it a question: prefix and place name the candidates, those first that the scheduler
 * spoke about in this step. */
static void attribute(struct sim *s)
{
	int8_t owner[SIM_REQUESTS];

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

/* An error that is neither a cancel nor a deadline belongs to a sequence that the fake failed. */
static void check_errors(struct sim *s)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		struct sim_request *r = &s->w.request[i];

		if (failed_now(r) && r->heard == s->fake.n_steps && r->failed_in != s->fake.n_steps)
			sim_fail(s, "error", "request %llu: %s, but nothing failed",
				(unsigned long long)r->ask.id, error_name(r->code));
	}
}

static void check_deadlines(struct sim *s)
{
	uint64_t began = s->fake.now_ns - (s->fake.ran ? s->fake.last_ns : 0);

	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];

		if (r->life == SIM_OPEN && r->ask.deadline_ns && r->ask.deadline_ns < began)
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
}

/* ---- the end --------------------------------------------------------------------------------------------------------------------- */

void check_end(struct sim *s)
{
	struct sched_status st;

	sched_get_status(s->sched, &st);
	if (st.running || st.waiting || st.paused)
		sim_fail(s, "idle", "at the end %u run, %u wait, %u are paused", st.running, st.waiting,
			st.paused);
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];

		if (r->life == SIM_FUTURE || r->life == SIM_OPEN || r->n_done + r->n_error > 1)
			sim_fail(s, "once", "request %llu: %u times done, %u errors",
				(unsigned long long)r->ask.id, r->n_done, r->n_error);
	}
	for (uint32_t g = 0; g < s->w.info.n_groups; g++)
		if (st.pages_free[g] != st.pages_total[g])
			sim_fail(s, "leak", "group %u: %u of %u pages are free at the end", g,
				st.pages_free[g], st.pages_total[g]);
}
