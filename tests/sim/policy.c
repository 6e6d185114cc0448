/* SPDX-License-Identifier: Apache-2.0
 * What the scheduler promises about who gets what, looked at from outside: its own list before and after a step, and the
 * spans that the fake was given. Nothing here knows how it decides.
 */
#include "tests/sim/sim.h"
#include <string.h>

struct look {				       /* one request around a step */
	const struct sim_seen *before, *after; /* NULL: not open then */
	const struct fake_row *row;	       /* NULL: not in the step */
};

static uint32_t index_of(const struct sim *s, const struct sim_request *r)
{
	return (uint32_t)(r - s->w.request);
}

static void looks_fill(struct sim *s, struct look look[SIM_REQUESTS])
{
	memset(look, 0, SIM_REQUESTS * sizeof *look);
	for (size_t i = 0; i < s->before->n; i++)
		look[index_of(s, sim_find(s, s->before->seen[i].e.id))].before = &s->before->seen[i];
	for (size_t i = 0; i < s->after->n; i++)
		look[index_of(s, sim_find(s, s->after->seen[i].e.id))].after = &s->after->seen[i];
	for (uint32_t k = 0; k < s->fake.n_rows && s->fake.ran; k++)
		look[s->fake.row[k].request].row = &s->fake.row[k];
}

static bool online(const struct sim_request *r) { return r->ask.traffic_class == WIRE_ONLINE; }
static unsigned long long id_of(const struct sim_request *r) { return (unsigned long long)r->ask.id; }

static bool waits(const struct sim_seen *v)
{
	return v && !v->placed &&
		(v->e.wait == SCHED_WAIT_TURN || v->e.wait == SCHED_WAIT_PLACE ||
			v->e.wait == SCHED_WAIT_PAGES);
}

/* It could have been in the step and was not: waited for its turn, a place or pages before, and does so still. */
static bool left_out(const struct sim_request *r, const struct look *l)
{
	return !l->row && !r->paused && waits(l->before) && waits(l->after);
}

/* Somebody has the first page of what it begins with still to compute, or a tier was asked for it: it may have waited for
 * that in between, without the list showing it. */
static bool may_have_followed(struct sim *s, const struct sim_request *r)
{
	uint32_t n = s->w.info.page_tokens;

	if (s->w.config.no_prefix || s->w.host_tier || s->w.disk_tier)
		return !s->w.config.no_prefix;
	for (size_t i = 0; i < s->before->n; i++) {
		const struct sim_request *q = sim_find(s, s->before->seen[i].e.id);

		if (q != r && s->before->seen[i].e.past + 1 < s->before->seen[i].e.n_tokens &&
			MIN_OF(q->n_prompt + q->n_told, r->n_prompt + r->n_told) >= n &&
			q->hash[n] == r->hash[n])
			return true;
	}
	return false;
}

/* ---- classes ------------------------------------------------------------------------------------------------------------ */

/* Every online sequence that decodes gets its token, unless it was preempted just now or begins a page. */
static void check_decodes(struct sim *s, const struct look *look)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];
		const struct look *l = &look[i];

		if (!online(r) || !l->before || !l->after || l->row || r->paused || !l->before->placed ||
			!l->after->placed || l->before->e.past + 1 != l->before->e.n_tokens ||
			l->before->e.past % s->w.info.page_tokens == 0)
			continue;
		if (l->after->e.n_preempted == l->before->e.n_preempted)
			sim_fail(s, "decode", "online request %llu decodes and got no token in a step",
				id_of(r));
	}
}

static uint64_t pages_of(const struct sim *s, uint64_t n_tokens)
{
	return n_tokens / s->w.info.page_tokens + 2;
}

/* Some online request waits for pages that it could not have if all offline work gave up its own. */
static bool memory_short(const struct sim *s)
{
	uint64_t held = s->before->status.prefix.pinned_pages, need = 0;

	for (size_t i = 0; i < s->before->n; i++) {
		const struct sim_seen *v = &s->before->seen[i];

		if (v->e.traffic_class == WIRE_ONLINE && (v->placed || v->e.past))
			held += pages_of(s, v->e.n_tokens);
	}
	for (size_t i = 0; i < s->after->n; i++)
		if (s->after->seen[i].e.traffic_class == WIRE_ONLINE &&
			s->after->seen[i].e.wait == SCHED_WAIT_PAGES)
			need = pages_of(s, s->after->seen[i].e.n_tokens);
	return need && held + need > s->w.info.n_pages[0];
}

/* Online waits for a place or for pages, or its prompt was left out, while offline work was in the step. */
static void check_class(struct sim *s, const struct look *look)
{
	const struct sim_request *offline = NULL;

	for (uint32_t k = 0; k < s->fake.n_rows; k++)
		if (!sim_counts_online(s, k))
			offline = &s->w.request[s->fake.row[k].request];
	if (!offline || memory_short(s))
		return;
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];
		const struct look *l = &look[i];
		bool idle = l->before && l->after && !l->row && !r->paused && l->after->placed;

		if (online(r) && (left_out(r, l) || idle) && !may_have_followed(s, r))
			sim_fail(s, "class",
				"offline request %llu was in a step, online request %llu was not (%s)",
				id_of(offline), id_of(r), sched_wait_name(l->after->e.wait));
	}
}

/* The only online request that has not answered yet gets its first chunk in the very next step, whatever offline work
 * holds, if online work alone would fit. */
static void check_first_chunk(struct sim *s, const struct look *look)
{
	uint64_t pages = s->before->status.prefix.pinned_pages, place = 0;
	const struct sim_request *r = NULL;
	uint32_t n_new = 0, places = s->w.config.max_running ? s->w.config.max_running : s->w.info.step_seqs;

	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *q = &s->w.request[i];

		if (!look[i].before || !online(q))
			continue;
		pages += (q->n_prompt + q->n_answer) / s->w.info.page_tokens + 2;
		place += !q->paused;
		if ((!look[i].before->placed || look[i].before->e.past + 1 < look[i].before->e.n_tokens) &&
			!q->paused && ++n_new)
			r = q;
	}
	if (n_new != 1 || place > MIN_OF(places, s->w.info.step_out) || pages > s->w.info.n_pages[0])
		return;
	if (left_out(r, &look[index_of(s, r)]) && !may_have_followed(s, r))
		sim_fail(s, "first chunk",
			"online request %llu, alone with offline work, is not in the step (%s)", id_of(r),
			sched_wait_name(look[index_of(s, r)].after->e.wait));
}

/* Whom an online request waits for goes before offline work. */
static void check_followers(struct sim *s, const struct look *look)
{
	bool offline = false;

	for (uint32_t k = 0; k < s->fake.n_rows; k++)
		offline |= !sim_counts_online(s, k);
	for (uint32_t i = 0; i < s->w.n_requests && offline; i++) {
		const struct look *l = &look[i];
		const struct sim_request *leader;

		if (!online(&s->w.request[i]) || !l->before || !l->after ||
			l->before->e.wait != SCHED_WAIT_PREFIX || l->after->e.wait != SCHED_WAIT_PREFIX ||
			l->before->e.behind != l->after->e.behind)
			continue;
		leader = sim_find(s, l->after->e.behind);
		if (!look[index_of(s, leader)].row)
			sim_fail(s, "prefix",
				"online request %llu waits for request %llu, which was not in a step that offline work was in",
				id_of(&s->w.request[i]), id_of(leader));
	}
}

/* ---- order ------------------------------------------------------------------------------------------------------------------ */

/* One level of priority is worth aging_ns of waiting. */
static int64_t key_of(const struct sim *s, const struct sim_request *r)
{
	int64_t aging = (int64_t)(s->w.config.aging_ns ? s->w.config.aging_ns : 10 * SIM_SEC);

	return (int64_t)r->open_ns - r->ask.priority * aging;
}

static bool earlier(const struct sim *s, const struct sim_request *a, const struct sim_request *b)
{
	int64_t x = key_of(s, a), y = key_of(s, b);

	return x != y ? x < y : a->ask.id < b->ask.id;
}

static const char *tenant_of(const struct sim_request *r) { return r->ask.tenant ? r->ask.tenant : ""; }

static bool has_ttft(const struct sim *s, const struct sim_request *r)
{
	return r->ask.ttft_ns || s->w.config.class[online(r) ? WIRE_ONLINE : WIRE_OFFLINE].ttft_ns;
}

/* Within a class and a tenant nobody gets a place before somebody who is due earlier and could start as well;
 * targets for the first token make an order of their own. */
static void check_order(struct sim *s, const struct look *look)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];

		if (r->started || !waits(look[i].before) || sim_may_have_led(s, r) ||
			!(look[i].row || (look[i].after && look[i].after->placed)))
			continue;
		for (uint32_t k = 0; k < s->w.n_requests; k++) {
			const struct sim_request *q = &s->w.request[k];

			if (k == i || q->started || has_ttft(s, q) || has_ttft(s, r) ||
				q->ask.traffic_class != r->ask.traffic_class ||
				strcmp(tenant_of(q), tenant_of(r)))
				continue;
			if (left_out(q, &look[k]) && earlier(s, q, r) && !may_have_followed(s, q) &&
				look[k].after->e.n_preempted == look[k].before->e.n_preempted)
				sim_fail(s, "order",
					"request %llu (priority %d) started before %llu (priority %d) of the same tenant, which waits: %s",
					id_of(r), (int)r->ask.priority, id_of(q), (int)q->ask.priority,
					sched_wait_name(look[k].after->e.wait));
		}
	}
}

static void mark_started(struct sim *s)
{
	for (uint32_t k = 0; k < s->fake.n_rows && s->fake.ran; k++)
		s->w.request[s->fake.row[k].request].started = true;
}

/* ---- preemption ----------------------------------------------------------------------------------------------------------------- */

/* Nobody is the victim of online work twice in a row while another offline request ran that lost nothing. Among
 * themselves offline requests only take from younger ones, so there may be no other: silent where an offline one began a page. */
static void check_victims(struct sim *s, const struct look *look)
{
	const struct sim_request *again = NULL, *other = NULL, *victim = NULL;
	uint32_t n_victims = 0, page = s->w.info.page_tokens;
	bool for_online = false, for_offline = false;

	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];
		const struct look *l = &look[i];

		for_online |= l->row && online(r);
		if (!l->before || !l->after)
			continue;
		if (l->after->e.n_preempted > l->before->e.n_preempted) {
			n_victims++;
			victim = r;
			again = r->ask.id == s->last_victim && l->before->e.past % page ? r : again;
		} else if (!online(r) && l->before->placed && l->after->placed && !sim_may_have_led(s, r)) {
			for_offline |= l->before->e.past % page == 0;
			other = r;
		}
	}
	if (n_victims == 1 && again && !online(again) && other && for_online && !for_offline &&
		s->w.config.offline_min_share <= 0)
		sim_fail(s, "victim", "offline request %llu is preempted twice in a row, and %llu runs on",
			id_of(again), id_of(other));
	if (n_victims)
		s->last_victim = n_victims == 1 ? victim->ask.id : 0;
}

/* Online work is not preempted while offline work holds a place. */
static void check_online_victims(struct sim *s, const struct look *look)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++) {
		const struct sim_request *r = &s->w.request[i];
		const struct look *l = &look[i];

		if (!online(r) || !l->before || !l->after || r->paused ||
			l->after->e.n_preempted == l->before->e.n_preempted ||
			s->w.config.offline_min_share > 0)
			continue;
		for (uint32_t k = 0; k < s->fake.n_rows && s->fake.ran; k++)
			if (!sim_counts_online(s, k))
				sim_fail(s, "victim",
					"online request %llu was preempted, offline request %llu was in the step",
					id_of(r), id_of(&s->w.request[s->fake.row[k].request]));
	}
}

/* ---- shares -------------------------------------------------------------------------------------------------------------------------- */

static const struct sched_tenant_status *tenant_status(
	const struct sched_tenant_status *t, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(t[i].name, name))
			return &t[i];
	return NULL;
}

/* While all tenants have a queue, what they got since then, by weight, differs by no more than what their running
 * requests may still be owed: the bound of virtual token counters, 2 x places x the largest request. */
static void check_shares(struct sim *s)
{
	struct sched_tenant_status t[SIM_TENANTS + 1];
	size_t n = MIN_OF(sched_tenants(s->sched, t, COUNT_OF(t)), COUNT_OF(t));
	double least = 0, most = 0, bound = 0;
	uint32_t places = s->w.config.max_running ? s->w.config.max_running : s->w.info.step_seqs;

	for (uint32_t k = 0; k < s->w.n_tenants; k++) {
		const struct sched_tenant_status *x = tenant_status(t, n, s->w.tenant_name[k]);
		double weight = s->w.weight[k] ? s->w.weight[k] / 1000.0 : 1, got;

		if (!x || !x->waiting) {
			s->all_backlogged = false;
			return;
		}
		if (!s->all_backlogged)
			s->service[k] = x->service;
		got = (double)(x->service - s->service[k]) / weight;
		least = k ? MIN_OF(least, got) : got;
		most = k ? MAX_OF(most, got) : got;
		bound = MAX_OF(bound, 2.0 * MIN_OF(places, s->w.info.step_out) * s->largest / weight);
	}
	s->all_backlogged = true;
	s->v.fair_steps++;
	if (most - least > bound)
		sim_fail(s, "shares",
			"tenants that all waited got between %.0f and %.0f weighted tokens; the bound is %.0f",
			least, most, bound);
}

/* Who shares the device with others does not call online work offline. (Nothing: it stood still, and looks again.) */
static void check_wants(struct sim *s, const struct look *look)
{
	for (uint32_t i = 0; i < s->w.n_requests; i++)
		if (look[i].row && online(&s->w.request[i]) && s->wants == SCHED_WANT_OFFLINE)
			sim_fail(s, "wants",
				"online request %llu was in a step, and before it only offline work was wanted",
				id_of(&s->w.request[i]));
}

void check_policy(struct sim *s)
{
	struct look look[SIM_REQUESTS];

	looks_fill(s, look);
	if (s->fake.ran && s->w.config.offline_min_share <= 0) {
		check_decodes(s, look);
		check_class(s, look);
		check_first_chunk(s, look);
		check_followers(s, look);
		check_budgets(s);
	}
	check_wants(s, look);
	check_order(s, look);
	mark_started(s);
	check_victims(s, look);
	check_online_victims(s, look);
	check_share(s);
	if (s->w.fair)
		check_shares(s);
}
