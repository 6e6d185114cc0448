/* SPDX-License-Identifier: Apache-2.0
 * A step's time, as the cost model predicted it when the step was planned (a copy is kept), against what the
 * configuration allows; and the time that offline work is owed where it has a share.
 */
#include "tests/sim/sim.h"

#define ALLOW_NS   1000 /* rounding */
#define OWED_STEPS 6.0
#define LEAST_OWED 4.0	 /* offline steps owed before online prompts stand back */
#define OWED_CAP   100.0 /* offline steps; a debt grows no larger */

static bool online(const struct sim_request *r) { return r->ask.traffic_class == WIRE_ONLINE; }

static struct sim_request *of_row(struct sim *s, uint32_t k) { return &s->w.request[s->fake.row[k].request]; }

static bool behind(const struct sim_view *v, uint64_t leader)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->seen[i].e.behind == leader && v->seen[i].e.wait == SCHED_WAIT_PREFIX &&
			v->seen[i].e.traffic_class == WIRE_ONLINE)
			return true;
	return false;
}

/* Somebody online that begins with the same page waits, and may have waited for this one while the step was planned. */
bool sim_may_have_led(struct sim *s, const struct sim_request *r)
{
	uint32_t n = s->w.info.page_tokens;

	for (size_t i = 0; i < s->before->n; i++) {
		const struct sim_request *q = sim_find(s, s->before->seen[i].e.id);

		if (q != r && online(q) && !s->before->seen[i].placed &&
			MIN_OF(q->n_prompt + q->n_told, r->n_prompt + r->n_told) >= n &&
			q->hash[n] == r->hash[n])
			return !s->w.config.no_prefix;
	}
	return false;
}

/* An offline prompt that somebody online waits for counts as online. */
bool sim_counts_online(struct sim *s, uint32_t k)
{
	const struct sim_request *r = of_row(s, k);

	return online(r) || behind(s->before, r->ask.id) || behind(s->after, r->ask.id) ||
		sim_may_have_led(s, r);
}

/* Who got its place just now counts as a prompt, also with one token to compute: it waited for a place, not for a token. */
static bool decodes(const struct sim *s, const struct fake_row *row)
{
	return row->n == 1 && row->n_out == 1 && s->w.request[row->request].stayed;
}

struct parts { /* predicted, and what is in it */
	uint64_t all, online, alone,
		least; /* alone: online decodes only; least: with one token of one online prompt */
	uint32_t n_offline, n_prompts, n_targets, n_answered;
	uint64_t due_ns; /* the first token of a decode with a target is due then */
};

static void add(struct cost_shape *s, const struct fake_row *row, uint32_t n)
{
	cost_shape_add(s, row->past, n, n == row->n ? row->n_out : 0);
}

static uint64_t target_of(const struct sim *s, const struct sim_request *r)
{
	return r->ask.tpot_ns ? r->ask.tpot_ns : s->w.config.class[WIRE_ONLINE].tpot_ns;
}

static void note_decode(struct sim *s, const struct sim_request *r, struct parts *p)
{
	bool answered = r->answered_in && r->answered_in < s->fake.n_steps;
	uint64_t last_ns;

	p->n_answered += answered && online(r);
	if (!answered || !online(r) || !target_of(s, r))
		return;
	p->n_targets++;
	last_ns = r->heard == s->fake.n_steps && r->told_now ? r->before_last_ns : r->last_ns;
	p->due_ns = MIN_OF(p->due_ns, last_ns + target_of(s, r));
}

static void split(struct sim *s, struct parts *p)
{
	struct cost_shape all = { 0 }, on = { 0 }, alone = { 0 }, least;
	const struct fake_row *prompt = NULL;

	*p = (struct parts){ .due_ns = UINT64_MAX };
	for (uint32_t k = 0; k < s->fake.n_rows; k++) {
		const struct fake_row *row = &s->fake.row[k];

		add(&all, row, row->n);
		if (!sim_counts_online(s, k)) {
			p->n_offline++;
			continue;
		}
		add(&on, row, row->n);
		if (decodes(s, row)) {
			add(&alone, row, row->n);
			note_decode(s, of_row(s, k), p);
			continue;
		}
		p->n_prompts++;
		prompt = prompt ? prompt : row;
	}
	least = alone;
	if (prompt)
		cost_shape_add(&least, prompt->past, 1, 1);
	p->all = cost_predict_ns(s->cost_then, &all);
	p->online = cost_predict_ns(s->cost_then, &on);
	p->alone = cost_predict_ns(s->cost_then, &alone);
	p->least = cost_predict_ns(s->cost_then, &least);
}

static double or_default(double v, double d) { return v > 0 ? v : d; }

static void over(struct sim *s, const char *rule, uint64_t ns, uint64_t most)
{
	if (ns > most + ALLOW_NS)
		sim_fail(s, "budget",
			"%s: a step of %u sequences is predicted to take %.3f ms, the budget is %.3f ms",
			rule, s->fake.n_rows, (double)ns / 1e6, (double)most / 1e6);
}

static void check_prompts(struct sim *s, const struct parts *p)
{
	const struct sched_config *c = &s->w.config;
	double factor = or_default(c->long_prompt_factor, 2);
	uint64_t most = c->max_prefill_ns ? c->max_prefill_ns : 100 * SIM_MS;

	if (!p->n_prompts || p->n_targets)
		return;
	if (p->n_answered)
		over(s, "prompts beside decodes", p->online,
			MAX_OF((uint64_t)((double)p->alone * factor), p->least));
	else
		over(s, "prompts alone", p->online, MAX_OF(most, p->least));
}

static void check_offline(struct sim *s, const struct parts *p)
{
	const struct sched_config *c = &s->w.config;
	uint64_t most = c->max_step_ns ? c->max_step_ns : 25 * SIM_MS, now = s->step_began_ns;
	double slack = or_default(c->slack, 0.03);

	if (!p->n_offline || c->offline_min_share > 0)
		return;
	if (!p->online) {
		if (s->fake.n_rows > 1 || s->fake.row[0].n > 1)
			over(s, "offline only", p->all, most);
		return;
	}
	if (p->n_targets == p->n_answered && p->n_targets)
		over(s, "offline beside decodes with targets", p->all,
			MAX_OF(p->due_ns > now ? p->due_ns - now : 0,
				(uint64_t)((double)p->online * (1 + slack))));
	else if (p->n_answered && !p->n_targets)
		over(s, "offline beside decodes", p->all, (uint64_t)((double)p->alone * (1 + slack)));
}

void check_budgets(struct sim *s)
{
	struct parts p;

	for (uint32_t k = 0; k < s->fake.n_rows; k++)
		if (!online(of_row(s, k)) && sim_may_have_led(s, of_row(s, k)))
			return;
	split(s, &p);
	check_prompts(s, &p);
	check_offline(s, &p);
}

/* ---- the share of offline work ------------------------------------------------------------------------------------ */

static bool in_step(const struct sim *s, uint64_t id)
{
	for (uint32_t k = 0; k < s->fake.n_rows && s->fake.ran; k++)
		if (s->w.request[s->fake.row[k].request].ask.id == id)
			return true;
	return false;
}

/* Some offline request could have used the step and was not in it. */
static bool offline_wants(const struct sim *s, const struct sim_view *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->seen[i].e.traffic_class == WIRE_OFFLINE && v->seen[i].e.wait != SCHED_WAIT_READER &&
			!in_step(s, v->seen[i].e.id))
			return true;
	return false;
}

/* Whether all places could be filled with the longest requests: only then is it time alone that is shared. */
static bool memory_plenty(const struct sim *s, uint32_t places)
{
	uint64_t whole = s->w.info.n_ctx / s->w.info.page_tokens + 2;

	return s->w.info.n_pages[0] >= (places + 1) * whole + s->before->status.prefix.pinned_pages;
}

/* Offline work was in the step and no online prompt: surely, or maybe, where an offline prompt may have had online followers
 * that the list does not show. (The last token of a prompt goes along with the decodes, also of a prompt that stands back.) */
static bool without_prompts(struct sim *s, bool surely)
{
	bool offline = false;

	for (uint32_t k = 0; k < s->fake.n_rows && s->fake.ran; k++) {
		bool counts = surely ? sim_counts_online(s, k) : online(of_row(s, k));

		if (counts && !decodes(s, &s->fake.row[k]))
			return false;
		offline |= !counts;
	}
	return offline;
}

/* An online request waited that lacked nothing but the step: it has a place and has not begun, or waits for its turn and
 * nobody before it for a place, pages or a prefix. */
static bool prompts_stand_back(const struct sim *s)
{
	bool placed = false, turn = false, lacks = false;

	for (size_t i = 0; i < s->after->n; i++) {
		const struct sched_entry *e = &s->after->seen[i].e;
		bool is_turn = e->wait == SCHED_WAIT_TURN, runs = e->wait == SCHED_RUNS;

		if (e->traffic_class != WIRE_ONLINE || e->wait == SCHED_WAIT_READER)
			continue;
		placed |= runs && !e->past;
		turn |= is_turn;
		lacks |= !is_turn && !runs;
	}
	return placed || (turn && !lacks);
}

static bool offline_open(const struct sim_view *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->seen[i].e.traffic_class == WIRE_OFFLINE && v->seen[i].e.wait != SCHED_WAIT_READER)
			return true;
	return false;
}

/* The most that offline work can be owed when a step begins: the share of all time while some of it was open. What it got
 * is paid, and a step in which online prompts stood back is paid as a whole. The scheduler forgets debts that this account
 * keeps (all offline work was in a step), never the other way round. So online prompts may stand back only while this
 * account has LEAST_OWED steps, and they stand back, beyond the share, no longer than the debt that had run up before:
 * nothing has to be allowed for. */
static void check_held(struct sim *s, uint64_t most, uint64_t got, bool held)
{
	double share = s->w.config.offline_min_share, limit = OWED_CAP * (double)most;
	uint64_t whole = s->after->status.step_ns - s->before->status.step_ns;

	s->may_owe_ns = s->owes
		? MIN_OF(s->may_owe_ns + share * (double)(s->step_began_ns - s->owed_at_ns), limit)
		: 0;
	s->owes = share > 0 && offline_open(s->before);
	s->owed_at_ns = s->step_began_ns;
	if (held && s->may_owe_ns + ALLOW_NS < LEAST_OWED * (double)most)
		sim_fail(s, "share",
			"online prompts stood back for a step of %.3f ms, and offline work had at most %.3f ms coming",
			(double)whole / 1e6, s->may_owe_ns / 1e6);
	s->may_owe_ns = MAX_OF(s->may_owe_ns - (double)(held ? whole : got), 0);
}

/* What offline work is behind its share, in steps: never more than a few. A step without online prompts was paid as a whole
 * if much was owed, whoever stood back. Where memory is short, or all places were taken before it came, offline work waits
 * for an online request to end. */
void check_share(struct sim *s)
{
	double share = s->w.config.offline_min_share, step;
	uint32_t places = MIN_OF(
		s->w.config.max_running ? s->w.config.max_running : s->w.info.step_seqs, s->w.info.step_out);
	uint64_t most = s->w.config.max_step_ns ? s->w.config.max_step_ns : 25 * SIM_MS,
		 dt = s->fake.now_ns - s->step_began_ns;
	uint64_t got =
		s->after->status.class[WIRE_OFFLINE].step_ns - s->before->status.class[WIRE_OFFLINE].step_ns;

	s->longest_step_ns = MAX_OF(s->longest_step_ns, dt);
	step = (double)(most + s->longest_step_ns);
	check_held(s, most, got,
		share > 0 && without_prompts(s, true) && memory_plenty(s, places) && prompts_stand_back(s));
	if (share > 0 && without_prompts(s, false))
		got = dt;
	if (share <= 0 || places < 2 || !offline_wants(s, s->before) || !offline_wants(s, s->after) ||
		!memory_plenty(s, places)) {
		s->owed_ns = 0;
		return;
	}
	if (s->after->status.running == places && !s->after->status.class[WIRE_OFFLINE].running)
		return;
	s->owed_ns = MAX_OF(s->owed_ns + share * (double)dt - (double)got, 0);
	s->v.most_owed = MAX_OF(s->v.most_owed, s->owed_ns / step);
	if (s->owed_ns > OWED_STEPS * step)
		sim_fail(s, "share", "offline work is %.1f steps behind its share of %.2f", s->owed_ns / step,
			share);
}
