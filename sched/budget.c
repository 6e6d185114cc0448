/* SPDX-License-Identifier: Apache-2.0
 * How long may this step take? Times come from the cost model, promises from the requests and their classes
 * (docs/scheduling.md has the formulas). Looks at the plan as far as it is made. Step thread only.
 */
#include "sched/sched_priv.h"

#define DELIVERY_NS (300 * NS_PER_US) /* by so much a token's way to its client varies */
#define LATE_FIRST  0.3 /* share of a prediction that is kept back from a target, before anything is known */
#define LATE_MOST   1.0
#define LATE_LEAST  0.005
#define LATE_SHARE                                                                                           \
	0.005 /* of tokens may miss their target; 99 of 100 are promised, their way to the client included */
#define LATE_STEP    0.1  /* of itself, by which it rises for each that does */
#define PROMPT_LEAST 1.25 /* of decodes alone: what prompts get even where a target is tighter */
#define PROMPT_WAITS 32	  /* times that target: as long a prompt stands back first */
#define OWED_STEPS   4.0  /* offline steps owed before online prompts stand back; most of them in one step */
#define OWED_ALONE   10.0 /* or of what online decodes take alone */
#define OWED_MOST    100.0

static uint64_t scaled(uint64_t ns, double by) { return (uint64_t)((double)ns * by); }

/* ---- promises ---------------------------------------------------------------------------------------------------------- */

static uint64_t tpot_of(const struct sched *s, const struct seq *q)
{
	return q->tpot_ns ? q->tpot_ns : s->c.class[q->traffic_class].tpot_ns;
}

static uint64_t ttft_of(const struct sched *s, const struct seq *q)
{
	return q->ttft_ns ? q->ttft_ns : s->c.class[q->traffic_class].ttft_ns;
}

static uint64_t arrival(const struct seq *q)
{
	return q->time.arrived_ns ? q->time.arrived_ns : q->submitted_ns;
}

static uint64_t due_of(const struct sched *s, const struct seq *q, uint64_t without_target)
{
	return ttft_of(s, q) ? arrival(q) + ttft_of(s, q) : without_target;
}

/* Without a target it is due when its turn has come. A prompt that others wait for is due when the first of them is. */
uint64_t seq_ttft_deadline(const struct sched *s, const struct seq *q)
{
	uint64_t due = q->traffic_class == WIRE_ONLINE ? due_of(s, q, q->admitted_ns) : UINT64_MAX;

	for (const struct seq *f = q->followers.first; f; f = f->next[SEQ_IN_PLACE])
		if (f->traffic_class == WIRE_ONLINE)
			due = MIN_OF(due, due_of(s, f, q->admitted_ns));
	return due;
}

bool seq_ttft_missed(const struct sched *s, const struct seq *q)
{
	return ttft_of(s, q) && q->first_ns > arrival(q) + ttft_of(s, q);
}

/* ---- online ------------------------------------------------------------------------------------------------------------ */

/* When q's next token is due, less its way to the client. */
static uint64_t due_next(const struct sched *s, const struct seq *q)
{
	uint64_t tpot = tpot_of(s, q);

	return q->told_ns + tpot - MIN_OF(DELIVERY_NS, tpot / 16);
}

/* What the step may take so that q's next token comes in time, counted from its last one. */
static uint64_t until_due(const struct sched *s, const struct seq *q, uint64_t now)
{
	uint64_t due = due_next(s, q);

	return due > now ? scaled(due - now, 1 / (1 + s->late)) : 0;
}

void late_begin(struct sched *s) { s->late = LATE_FIRST; }

/* One token that had a target. What is kept back rises with each that comes too late and falls with each that does not,
 * so that in the long run LATE_SHARE of them are too late, whatever the reason: predictions, stolen time, what comes between
 * two steps. Where that could not help nothing is learned. */
static void late_note(struct sched *s, const struct seq *q, uint64_t now)
{
	struct sched_class_status *st = &s->st.class[q->traffic_class];
	double step = MAX_OF(s->late, LATE_LEAST) * LATE_STEP;

	if (!tpot_of(s, q) || !q->told_ns)
		return;
	st->tpot_tokens++;
	st->tpot_missed += now > q->told_ns + tpot_of(s, q);
	if (q->traffic_class != WIRE_ONLINE || s->crowded)
		return;
	s->late += now > due_next(s, q) ? (1 - LATE_SHARE) * step : -LATE_SHARE * step;
	s->late = MAX_OF(MIN_OF(s->late, LATE_MOST), LATE_LEAST);
}

/* Tokens of a step leave together when it is done, so gaps are counted from there. (Who ended is not counted.) */
void late_end(struct sched *s, uint64_t began_ns, uint64_t now)
{
	for (struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE]) {
		if (q->planned_step != s->step_no || q->last_ns < began_ns)
			continue;
		late_note(s, q, now);
		q->told_ns = now;
	}
}

/* Is the i-th of the plan an online decode? */
static bool decodes_online(const struct sched *s, uint32_t i)
{
	return s->planned[i]->traffic_class == WIRE_ONLINE && s->plan[i].n_tokens == 1 &&
		s->planned[i]->answered;
}

/* Least over the planned online decodes: `strict` x alone where there is no target, else the target's rest. */
static uint64_t decodes_allow(
	const struct sched *s, uint64_t alone_ns, double strict, double least, uint64_t now)
{
	uint64_t limit = UINT64_MAX, ns;

	for (uint32_t i = 0; i < s->n_plan; i++) {
		const struct seq *q = s->planned[i];

		if (!decodes_online(s, i))
			continue;
		if (tpot_of(s, q))
			ns = MAX_OF(until_due(s, q, now), scaled(alone_ns, least));
		else
			ns = scaled(alone_ns, strict);
		limit = MIN_OF(limit, ns);
	}
	return limit;
}

/* One of the planned online decodes may miss its target whatever is kept back. Called when the plan holds no more. */
bool budget_crowded(const struct sched *s, uint64_t alone_ns, uint64_t now)
{
	for (uint32_t i = 0; i < s->n_plan; i++)
		if (s->planned[i]->answered && tpot_of(s, s->planned[i]) &&
			now + scaled(alone_ns, PROMPT_LEAST) > due_next(s, s->planned[i]))
			return true;
	return false;
}

/* Where decodes have no time left in their targets a prompt stands back (it gets a token a step): another decode beside them
 * would make it worse. Not for ever: a target that cannot be kept must not keep others out. */
static bool prompts_stand_back(const struct sched *s, uint64_t now)
{
	uint64_t tpot = 0, since = now;

	for (uint32_t i = 0; i < s->n_plan; i++)
		tpot = decodes_online(s, i) ? MAX_OF(tpot, tpot_of(s, s->planned[i])) : tpot;
	for (const struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		if (seq_class(q) == WIRE_ONLINE && seq_left(q) > 1)
			since = MIN_OF(since, arrival(q));
	return now - since < PROMPT_WAITS * MIN_OF(tpot, NS_PER_S);
}

uint64_t budget_prompts(const struct sched *s, uint64_t alone_ns, uint64_t now)
{
	double least = prompts_stand_back(s, now) ? 1 : PROMPT_LEAST;
	uint64_t limit = decodes_allow(s, alone_ns, s->c.long_prompt_factor, least, now);

	return limit == UINT64_MAX ? s->c.max_prefill_ns : limit;
}

/* ---- offline ----------------------------------------------------------------------------------------------------------- */

/* How much later the online prompts could be done and all still be in time; 0: not, or one has no target. */
static uint64_t spare_ns(const struct sched *s, uint64_t now)
{
	uint64_t due = UINT64_MAX, left = 0;

	for (const struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE]) {
		if (seq_left(q) < 2 || seq_class(q) != WIRE_ONLINE)
			continue;
		if (!ttft_of(s, q))
			return 0;
		due = MIN_OF(due, seq_ttft_deadline(s, q));
		left += cost_prefill_ns(s->cost, q->past, seq_left(q), s->c.engine.info->step_tokens);
	}
	return due > now + left ? due - now - left : 0;
}

static bool prompt_planned(const struct sched *s)
{
	for (uint32_t i = 0; i < s->n_plan; i++)
		if (!s->planned[i]->answered || s->plan[i].n_tokens > 1)
			return true;
	return false;
}

/* Called when the plan holds its online part. */
uint64_t budget_offline(const struct sched *s, uint64_t alone_ns, uint64_t now)
{
	uint64_t so_far = cost_predict_ns(s->cost, &s->shape), limit, spare;
	double most = MAX_OF(OWED_STEPS * (double)s->c.max_step_ns, OWED_ALONE * (double)alone_ns);
	double owed = MIN_OF(s->owed_ns, most);

	if (!s->n_plan)
		return s->c.max_step_ns;
	limit = s->left_out ? so_far : decodes_allow(s, alone_ns, 1 + s->c.slack, 1, now);
	if (prompt_planned(s) && !s->left_out) {
		spare = MIN_OF(spare_ns(s, now) / 2, s->c.max_step_ns);
		limit = MIN_OF(limit, so_far + MAX_OF(spare, scaled(so_far, s->c.slack)));
	}
	return MAX_OF(limit, so_far + (uint64_t)owed);
}

/* A slice for bringing pages back, before the step itself. */
uint64_t budget_restore(const struct sched *s)
{
	struct cost_shape decodes = { 0 };
	uint64_t alone;

	for (const struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		if (q->traffic_class == WIRE_ONLINE && seq_left(q) == 1)
			cost_shape_add(&decodes, q->past, 1, 1);
	alone = cost_predict_ns(s->cost, &decodes);
	if (!alone)
		return s->n_running[WIRE_ONLINE] ? s->c.max_step_ns : s->c.max_prefill_ns;
	return scaled(alone, s->c.long_prompt_factor - 1);
}

/* ---- offline_min_share ------------------------------------------------------------------------------------------------- */

double owed_now(const struct sched *s, uint64_t now)
{
	double owed = s->owed_ns;

	if (s->owed_counts && now > s->owed_at_ns)
		owed += s->c.offline_min_share * (double)(now - s->owed_at_ns);
	return MIN_OF(owed, OWED_MOST * (double)s->c.max_step_ns);
}

bool owed_much(const struct sched *s) { return s->owed_ns >= OWED_STEPS * (double)s->c.max_step_ns; }

bool sched_held(const struct sched *s, uint64_t now)
{
	return s->company && !(s->c.offline_min_share > 0 && owed_now(s, now) >= (double)s->c.max_step_ns);
}

void owed_begin(struct sched *s, uint64_t now)
{
	const struct sched_class_status *st = &s->st.class[WIRE_OFFLINE];

	s->owed_ns = owed_now(s, now);
	s->owed_at_ns = now;
	s->owed_counts = s->c.offline_min_share > 0 && st->running + st->waiting;
	if (!s->owed_counts)
		s->owed_ns = 0;
}

void owed_end(struct sched *s, uint64_t offline_ns)
{
	s->owed_ns = MAX_OF(s->owed_ns - (double)offline_ns, 0);
}
