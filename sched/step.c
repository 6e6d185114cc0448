/* SPDX-License-Identifier: Apache-2.0
 * One step: choose sequences and spans, give them pages, run the batch, turn logits into tokens. Step thread only.
 *
 * Order: every running sequence that decodes, then prompts, oldest first. When pages run out the youngest running
 * sequence gives its pages back and waits again at the head of the queue; the oldest always gets on, because no
 * request is admitted that the pool could not hold alone.
 */
#include "sched/sched_priv.h"
#include <string.h>

enum { CHUNK_TOKENS = 128 };

/* ---- who runs ------------------------------------------------------------------------------------------------ */

static void expire(struct sched *s, struct seq_list *l, uint64_t now)
{
	for (struct seq *q = l->first, *next; q; q = next) {
		next = q->next;
		if (q->deadline_ns && now >= q->deadline_ns)
			sched_end_error(
				s, q, TENON_E_TIMEOUT, "deadline: passed before the answer was complete");
	}
}

static void preempt(struct sched *s, struct seq *q)
{
	block_table_release(&q->table, s->pages);
	q->past = 0;
	q->n_preempted++;
	seq_list_remove(&s->running, q);
	q->place = SEQ_WAITING;
	seq_list_prepend(&s->waiting, q);
}

/* The one to give up its pages for `q`: paused ones first, else the youngest; NULL: nobody younger than q. */
static struct seq *victim(struct sched *s, const struct seq *q)
{
	for (struct seq *v = s->running.last; v && v != q; v = v->prev)
		if (v->paused && v->table.n_pages)
			return v;
	return s->running.last != q ? s->running.last : NULL;
}

static bool in_plan(const struct sched *s, const struct seq *q)
{
	for (uint32_t i = 0; i < s->n_plan; i++)
		if (s->planned[i] == q)
			return true;
	return false;
}

/* Pages for `n` more tokens of q; takes them from younger sequences that are not in this step yet. */
static bool get_pages(struct sched *s, struct seq *q, uint32_t n)
{
	while (block_table_cover(&q->table, s->pages, (uint64_t)q->past + n)) {
		struct seq *v = victim(s, q);

		if (!v || in_plan(s, v))
			return false;
		preempt(s, v);
	}
	return true;
}

/* Moves waiting sequences to running while there are places and pages for their next chunk. */
static void admit(struct sched *s)
{
	uint32_t active = 0, pages_kept = 0;

	for (const struct seq *q = s->running.first; q; q = q->next)
		active += !q->paused;
	for (struct seq *q = s->waiting.first, *next; q && active < s->c.max_running; q = next) {
		uint32_t need = block_table_missing(&q->table, s->pages, q->n_tokens + 1u);

		next = q->next;
		if (q->paused)
			continue;
		for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
			if (kv_pages_free(s->pages, g) < (uint64_t)need + pages_kept)
				return;
		pages_kept += need;
		seq_list_remove(&s->waiting, q);
		q->place = SEQ_RUNNING;
		seq_list_append(&s->running, q);
		active++;
	}
}

/* ---- the plan ------------------------------------------------------------------------------------------------ */

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
	p->out = last ? s->logits + (size_t)s->n_plan * s->n_vocab : NULL;
	q->chunk = n;
	s->planned[s->n_plan++] = q;
}

static uint32_t plan_decodes(struct sched *s, uint32_t budget)
{
	for (struct seq *q = s->running.first, *next; q; q = next) {
		next = q->next;
		if (q->paused || seq_left(q) != 1 || s->n_plan >= s->c.max_running || !budget)
			continue;
		if (get_pages(s, q, 1)) {
			plan_add(s, q, 1);
			budget--;
		}
		next = q->next; /* preempting a younger one may have changed it */
	}
	return budget;
}

static void plan_prompts(struct sched *s, uint32_t budget)
{
	bool others = s->n_plan > 0;

	for (struct seq *q = s->running.first; q && budget; q = q->next) {
		uint32_t n = MIN_OF(seq_left(q), budget);

		if (q->paused || seq_left(q) == 1 || s->n_plan >= s->c.max_running)
			continue;
		if (others)
			n = MIN_OF(n, CHUNK_TOKENS);
		if (!get_pages(s, q, n))
			continue;
		plan_add(s, q, n);
		budget -= n;
	}
}

/* ---- the results ---------------------------------------------------------------------------------------------- */

static void start_clock(struct sched *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->n_plan; i++)
		if (!s->planned[i]->started) {
			s->planned[i]->started = true;
			s->planned[i]->started_ns = now;
			s->sink.state(s->sink.ctx, s->planned[i]->id, WIRE_PREFILL, 0);
		}
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
	if (!q->answered) {
		q->answered = true;
		q->first_ns = q->last_ns;
	}
	sched_tell_tokens(s, q, from, q->n_logprobs && from < q->n_tokens ? lp : NULL);
	if (end != EMIT_GO_ON)
		sched_end_done(s, q, end == EMIT_END_STRING ? WIRE_FINISH_STOP_STRING : WIRE_FINISH_STOP);
	else if (q->n_tokens >= q->max_total)
		sched_end_done(s, q, q->ends_at_context ? WIRE_FINISH_CONTEXT : WIRE_FINISH_LENGTH);
}

static void take_result(struct sched *s, struct seq *q, struct step_seq *p)
{
	if (p->rc) {
		sched_end_error(s, q, p->rc, "step: the backend refused this sequence");
		return;
	}
	*(p->n_tokens == 1 && p->n_out ? &s->st.decode_tokens : &s->st.prefill_tokens) += p->n_tokens;
	q->past += p->n_tokens;
	if (p->n_out)
		take_token(s, q, p->out);
	else
		s->sink.state(s->sink.ctx, q->id, WIRE_PREFILL, (uint32_t)(1000ull * q->past / q->n_tokens));
}

int sched_step(struct sched *s, struct error *e)
{
	const struct model_info *info = s->c.engine.info;
	uint64_t t0 = sched_now(s);
	int rc;

	expire(s, &s->running, t0);
	expire(s, &s->waiting, t0);
	admit(s);
	s->n_plan = 0;
	plan_prompts(s, plan_decodes(s, info->step_tokens));
	if (!s->n_plan)
		return TENON_E_AGAIN;
	start_clock(s, t0);
	rc = s->c.engine.step(s->c.engine.ctx, s->plan, s->n_plan, e);
	s->st.steps++;
	s->st.step_ns += sched_now(s) - t0;
	if (rc == TENON_E_BACKEND)
		return rc;
	for (uint32_t i = 0; i < s->n_plan; i++) {
		if (rc)
			s->plan[i].rc = rc;
		take_result(s, s->planned[i], &s->plan[i]);
	}
	return TENON_OK;
}
