/* SPDX-License-Identifier: Apache-2.0
 * What goes into a step: online decodes, online prompts by deadline, offline decodes, offline prompts, as far as the
 * step's time goes (budget.c). Within offline work the tenant that got least is first. Step thread only.
 */
#include "sched/sched_priv.h"

/* ---- orders ------------------------------------------------------------------------------------------------------------ */

static int by(double a, double b) { return (a > b) - (a < b); }
static int by_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

typedef int order(const struct sched *s, const struct seq *a, const struct seq *b);

static int longest_ago(const struct sched *s, const struct seq *a, const struct seq *b)
{
	int c = by_u64(a->planned_step, b->planned_step);

	(void)s;
	return c ? c : by_u64(a->order, b->order);
}

static int due_first(const struct sched *s, const struct seq *a, const struct seq *b)
{
	int c = by_u64(seq_ttft_deadline(s, a), seq_ttft_deadline(s, b));

	return c ? c : by_u64(a->admission, b->admission);
}

static int fair_decode(const struct sched *s, const struct seq *a, const struct seq *b)
{
	int c = by(a->tenant->level, b->tenant->level);

	return c ? c : longest_ago(s, a, b);
}

static int fair_prompt(const struct sched *s, const struct seq *a, const struct seq *b)
{
	int c = by(a->tenant->level, b->tenant->level);

	(void)s;
	return c ? c : by_u64(a->admission, b->admission);
}

/* Who computes for somebody online counts as online, unless offline work comes first in this step anyway. */
static uint32_t class_now(const struct sched *s, const struct seq *q)
{
	return owed_much(s) ? q->traffic_class : seq_class(q);
}

/* Runnable sequences of one kind, sorted, into s->pick. A few dozen at most, nearly sorted already. */
static uint32_t gather(struct sched *s, uint32_t traffic_class, bool decode, order *before)
{
	uint32_t n = 0;

	for (struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE]) {
		uint32_t at = n;

		if (q->paged_step != s->step_no || (seq_left(q) == 1 && !q->fresh) != decode ||
			class_now(s, q) != traffic_class)
			continue;
		for (; at && before(s, q, s->pick[at - 1]) < 0; at--)
			s->pick[at] = s->pick[at - 1];
		s->pick[at] = q;
		n++;
	}
	return n;
}

/* ---- adding ------------------------------------------------------------------------------------------------------------ */

static uint32_t tokens_left(const struct sched *s)
{
	return s->c.engine.info->step_tokens - s->shape.n_tokens;
}

static void plan_add(struct sched *s, struct seq *q, uint32_t n)
{
	struct step_seq *p = &s->plan[s->n_plan];
	bool last = n == seq_left(q);

	*p = (struct step_seq){
		.tokens = q->tokens + q->past, .n_tokens = n, .past = q->past, .n_out = last
	};
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++) {
		p->pages[g] = q->table.page[g];
		p->n_pages[g] = q->table.n_pages;
	}
	p->out = last ? s->rows + (size_t)s->n_plan * s->row_width : NULL;
	q->chunk = n;
	q->planned_step = s->step_no;
	s->planned[s->n_plan++] = q;
	cost_shape_add(&s->shape, q->past, n, last);
}

/* Returns what those take alone that wait for their next token; the last token of a prompt goes along. */
static uint64_t plan_online_decodes(struct sched *s)
{
	uint32_t n = gather(s, WIRE_ONLINE, true, longest_ago);
	struct cost_shape alone = { 0 };

	for (uint32_t i = 0; i < n && tokens_left(s); i++) {
		plan_add(s, s->pick[i], 1);
		if (s->pick[i]->answered)
			cost_shape_add(&alone, s->pick[i]->past, 1, 1);
	}
	s->online_shape = s->shape;
	return cost_predict_ns(s->cost, &alone);
}

/* Tokens of q's prompt that go into this step. An encoder takes a text whole or not at all. */
static uint32_t part_of(const struct sched *s, const struct seq *q, uint32_t least, uint64_t budget_ns)
{
	uint32_t most = MIN_OF(seq_left(q), tokens_left(s)),
		 fit = cost_fit_tokens(s->cost, &s->shape, q->past, most, budget_ns);

	if (!sched_encodes(s))
		return MAX_OF(least, fit);
	return most == seq_left(q) && (least || fit == most) ? most : 0;
}

/* `least`: tokens of the first one whatever the budget says. False: time ran out before all had their part. */
static bool plan_prompts(struct sched *s, uint32_t traffic_class, order *before, uint64_t budget_ns,
	uint32_t least, uint64_t now)
{
	uint32_t n = gather(s, traffic_class, false, before);

	for (uint32_t i = 0; i < n; i++) {
		struct seq *q = s->pick[i];
		uint32_t k = part_of(s, q, least, budget_ns);

		if (!k || !tokens_left(s))
			return false;
		k = pages_take_some(s, q, k, now);
		if (!k)
			continue;
		plan_add(s, q, k);
		least = 0;
	}
	return true;
}

static void plan_offline_decodes(struct sched *s, uint64_t budget_ns)
{
	uint32_t n = gather(s, WIRE_OFFLINE, true, fair_decode);

	for (uint32_t i = 0; i < n && tokens_left(s); i++) {
		struct cost_shape with = s->shape;

		cost_shape_add(&with, s->pick[i]->past, 1, 1);
		if (s->n_plan && cost_predict_ns(s->cost, &with) > budget_ns)
			break;
		plan_add(s, s->pick[i], 1);
	}
}

static void plan_online_prompts(struct sched *s, uint64_t alone_ns, uint64_t now)
{
	s->left_out = !plan_prompts(s, WIRE_ONLINE, due_first, budget_prompts(s, alone_ns, now), 1, now);
	s->online_shape = s->shape;
}

/* Nothing rides along while somebody online is left out; an idle device is no use to them either. */
static void plan_offline(struct sched *s, uint64_t alone_ns, uint64_t now)
{
	uint64_t budget = budget_offline(s, alone_ns, now);

	if (s->n_plan && s->owed_ns <= 0 && (s->left_out || sched_online_queued(s)))
		return;
	plan_offline_decodes(s, budget);
	(void)plan_prompts(s, WIRE_OFFLINE, fair_prompt, budget, !s->n_plan, now);
}

/* Where much is owed, offline work comes before online prompts, never before online decodes. */
void sched_plan(struct sched *s, uint64_t now)
{
	uint64_t alone;
	uint32_t n;

	s->n_plan = 0;
	s->left_out = false;
	s->shape = (struct cost_shape){ 0 };
	alone = plan_online_decodes(s);
	s->crowded = budget_crowded(s, alone, now);
	n = s->n_plan;
	if (owed_much(s))
		plan_offline(s, alone, now);
	s->held_prompts = s->n_plan > n;
	if (s->held_prompts)
		return;
	plan_online_prompts(s, alone, now);
	if (!sched_held(s, now))
		plan_offline(s, alone, now);
}
