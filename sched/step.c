/* SPDX-License-Identifier: Apache-2.0
 * One step: who may run (admit.c), what of it (plan.c), run it, turn rows of logits into tokens, count. Step thread
 * only.
 */
#include "sched/sched_priv.h"
#include <string.h>

/* ---- before ------------------------------------------------------------------------------------------------------------ */

static void expire(struct sched *s, uint64_t now)
{
	struct seq *q;

	while ((q = heap_top(&s->deadlines)) && now >= q->deadline_ns) {
		s->st.class[q->traffic_class].deadline_missed++;
		sched_end_error(s, q, TENON_E_TIMEOUT, "deadline: passed before the answer was complete");
	}
}

/* Between starts: how fast places in the queue open. */
static void note_start(struct sched *s, struct seq *q, uint64_t now)
{
	uint32_t k = q->traffic_class;
	uint64_t gap = s->start_last_ns[k] ? now - s->start_last_ns[k] : 0;

	if (gap)
		s->start_gap_ns[k] = s->start_gap_ns[k] ? (7 * s->start_gap_ns[k] + gap) / 8 : gap;
	s->start_last_ns[k] = now;
	s->st.class[k].wait_ns += now - q->submitted_ns;
	s->st.class[k].cached_tokens += q->n_cached;
}

/* First step of this stay: what the cache gave is counted. */
static void start(struct sched *s, struct seq *q, uint64_t now)
{
	struct sched_class_status *st = &s->st.class[q->traffic_class];

	q->fresh = false;
	q->tenant->served_ns[q->traffic_class] = now;
	st->recomputed_tokens += q->most_past - MIN_OF(q->past, q->most_past);
	if (q->started)
		return;
	q->started = true;
	q->started_ns = now;
	q->n_cached = MIN_OF(q->past, q->n_prompt);
	q->most_past = q->past;
	tenant_charge(q->tenant, 0.1 * q->n_cached);
	note_start(s, q, now);
	s->sink.state(s->sink.ctx, q->id, WIRE_PREFILL, 0);
}

static void start_all(struct sched *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->n_plan; i++)
		if (s->planned[i]->fresh)
			start(s, s->planned[i], now);
}

/* Running sequences, and none of them gets a page though nobody else could hold one. Its own pages may be in the way (twins
 * of cached ones): it starts over from the cache once. After that only pins can be the cause. */
static bool end_hopeless(struct sched *s, uint64_t now)
{
	struct seq *worst = NULL;

	for (struct seq *q = s->running.first; q; q = q->next[SEQ_IN_PLACE])
		if (q->paged_step != s->step_no && (!worst || seq_class(q) < seq_class(worst)))
			worst = q;
	if (!worst || s->holders.n)
		return false;
	if (worst->table.n_pages && !worst->over_again) {
		worst->over_again = true;
		sched_preempt(s, worst, true, now);
		return true;
	}
	sched_end_error(s, worst, TENON_E_NOMEM,
		"request: pinned prefixes hold the KV pages that it needs; unpin some or raise kv_mib");
	return true;
}

/* ---- results ----------------------------------------------------------------------------------------------------------- */

static void note_first(struct sched *s, struct seq *q)
{
	struct sched_class_status *st = &s->st.class[q->traffic_class];

	q->answered = true;
	q->first_ns = q->last_ns;
	if (q->n_history)
		return;
	st->n_ttft++;
	st->ttft_ns += q->first_ns - (q->time.arrived_ns ? q->time.arrived_ns : q->submitted_ns);
	st->ttft_missed += seq_ttft_missed(s, q);
}

/* A new token from its row of logits; ends the sequence when it is time. */
static void take_token(struct sched *s, struct seq *q, float *row)
{
	struct sampler_logprob lp[1 + WIRE_MAX_LOGPROBS];
	uint64_t t0 = sched_now(s);
	enum emit_end end = EMIT_GO_ON;
	uint32_t from = q->n_tokens;
	struct error e = { 0 };
	int32_t token;
	int rc = sampler_pick(q->sampler, row, q->n_tokens, &token, q->n_logprobs ? lp : NULL, &e);

	if (!rc)
		rc = seq_push(q, token, &end, &e);
	if (!rc && end == EMIT_GO_ON && q->n_tokens >= q->max_total)
		rc = emitter_finish(q->emit, &q->text, &e);
	if (rc) {
		sched_end_error(s, q, rc, e.text);
		return;
	}
	q->last_ns = sched_now(s);
	q->time.postprocess_ns += q->last_ns - t0;
	if (!q->answered)
		note_first(s, q);
	s->st.class[q->traffic_class].generated_tokens++;
	tenant_charge(q->tenant, 2);
	sched_tell_tokens(s, q, from, q->n_logprobs && from < q->n_tokens ? lp : NULL);
	if (end != EMIT_GO_ON)
		sched_end_done(s, q, end == EMIT_END_STRING ? WIRE_FINISH_STOP_STRING : WIRE_FINISH_STOP);
	else if (q->n_tokens >= q->max_total)
		sched_end_done(s, q, q->ends_at_context ? WIRE_FINISH_CONTEXT : WIRE_FINISH_LENGTH);
}

/* An encoder's answer is there after one step. */
static void take_row(struct sched *s, struct seq *q, const float *row, uint64_t now)
{
	q->last_ns = now;
	note_first(s, q);
	s->sink.embedding(s->sink.ctx, q->id, row, s->row_width, q->n_prompt);
	sched_end_done(s, q, WIRE_FINISH_STOP);
}

/* Prompt tokens that were never computed before are the tenant's service. */
static void charge_prompt(struct sched *s, struct seq *q)
{
	uint32_t from = MIN_OF(q->most_past, q->n_prompt), to = MIN_OF(q->past, q->n_prompt);

	if (to > from) {
		tenant_charge(q->tenant, to - from);
		s->st.class[q->traffic_class].prompt_tokens += to - from;
	}
	if (q->past > q->most_past)
		q->over_again = false;
	q->most_past = MAX_OF(q->most_past, q->past);
}

/* Whole pages become findable as they are done, and followers go on. */
static void share_progress(struct sched *s, struct seq *q, uint32_t n, bool complete, uint64_t now)
{
	uint32_t pt = kv_pages_tokens(s->pages);
	uint64_t pin;

	if (q->prefilled)
		return;
	if (q->past / pt != (q->past - n) / pt)
		share_offer(s, q, false, now);
	q->prefilled = complete;
	s->epoch += complete;
	if (q->followers.n)
		share_let_go(s, q, complete);
	if (complete && q->pin && s->prefix && !q->answered)
		(void)prefix_pin(s->prefix, q->tenant->prefix_id, q->tokens, q->n_prompt, &pin, NULL);
}

static void take_result(struct sched *s, struct seq *q, struct step_seq *p, uint64_t now)
{
	if (p->rc) {
		sched_end_error(s, q, p->rc, "step: the backend refused this sequence");
		return;
	}
	*(p->n_tokens == 1 && p->n_out ? &s->st.decode_tokens : &s->st.prefill_tokens) += p->n_tokens;
	q->past += p->n_tokens;
	charge_prompt(s, q);
	share_progress(s, q, p->n_tokens, p->n_out, now);
	pages_trim(s, q);
	if (sched_encodes(s))
		take_row(s, q, p->out, now);
	else if (p->n_out)
		take_token(s, q, p->out);
	else
		s->sink.state(s->sink.ctx, q->id, WIRE_PREFILL, (uint32_t)(1000ull * q->past / q->n_tokens));
}

/* ---- the step ---------------------------------------------------------------------------------------------------------- */

/* All offline work that there is was in the step, each with all it could use: nothing is owed to it. */
static bool offline_served(const struct sched *s)
{
	uint32_t n = 0;

	if (s->st.class[WIRE_OFFLINE].waiting)
		return false;
	for (uint32_t i = 0; i < s->n_plan; i++)
		n += s->planned[i]->traffic_class == WIRE_OFFLINE && s->plan[i].n_out;
	return n == s->n_running[WIRE_OFFLINE];
}

/* Learns, and splits the time between the classes as predicted. A step that held online prompts back for offline work
 * pays its debt as a whole: beside others its own part may cost next to nothing. */
static void account(struct sched *s, uint64_t ns, bool served)
{
	uint64_t all = cost_predict_ns(s->cost, &s->shape),
		 online = cost_predict_ns(s->cost, &s->online_shape), offline;

	offline = all ? (uint64_t)((double)ns * (double)(all - MIN_OF(online, all)) / (double)all) : 0;
	s->st.class[WIRE_ONLINE].step_ns += ns - offline;
	s->st.class[WIRE_OFFLINE].step_ns += offline;
	s->st.steps++;
	s->st.step_ns += ns;
	if (served)
		s->owed_ns = 0;
	owed_end(s, s->held_prompts ? ns : offline);
	cost_observe(s->cost, &s->shape, ns);
}

enum { DECISIONS = 4 };

/* Who runs and what of it. False: nothing can. */
static bool decide(struct sched *s, uint64_t now)
{
	bool progress = false;

	for (uint32_t i = 0; i < DECISIONS; i++) {
		sched_admit(s, now);
		if (s->restoring.n && !i)
			progress = share_restore(s, budget_restore(s), now);
		pages_prepare(s, now);
		sched_plan(s, now);
		start_all(s, now);
		if (s->n_plan || !end_hopeless(s, now))
			break;
		progress = true;
	}
	sched_admit_undo(s, now);
	s->stuck = !s->n_plan && !progress; /* until something happens */
	return !s->stuck;
}

int sched_step(struct sched *s, struct error *e)
{
	uint64_t now = sched_now(s), t0, t1;
	bool served;
	int rc;

	s->step_no++;
	expire(s, now);
	owed_begin(s, now);
	if (!decide(s, now))
		return TENON_E_AGAIN;
	if (!s->n_plan)
		return TENON_OK;
	t0 = sched_now(s);
	rc = s->c.engine.step(s->c.engine.ctx, s->plan, s->n_plan, e);
	t1 = sched_now(s);
	if (rc == TENON_E_BACKEND)
		return rc;
	served = offline_served(s); /* results end sequences */
	for (uint32_t i = 0; i < s->n_plan; i++) {
		if (rc)
			s->plan[i].rc = rc;
		take_result(s, s->planned[i], &s->plan[i], t1);
	}
	late_end(s, t0, sched_now(s));
	account(s, sched_now(s) - t0, served); /* picking tokens is part of what the next one waits for */
	return TENON_OK;
}
