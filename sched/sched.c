/* SPDX-License-Identifier: Apache-2.0
 * Requests in and out of the scheduler: submit, cancel, pause, end. Step thread only.
 */
#include "sched/sched_priv.h"
#include <string.h>

enum { DEFAULT_WAITING = 1024 };

/* ---- lists -------------------------------------------------------------------------------------------------- */

void seq_list_append(struct seq_list *l, struct seq *q)
{
	q->prev = l->last;
	q->next = NULL;
	*(l->last ? &l->last->next : &l->first) = q;
	l->last = q;
	l->n++;
}

void seq_list_prepend(struct seq_list *l, struct seq *q)
{
	q->prev = NULL;
	q->next = l->first;
	*(l->first ? &l->first->prev : &l->last) = q;
	l->first = q;
	l->n++;
}

void seq_list_remove(struct seq_list *l, struct seq *q)
{
	*(q->prev ? &q->prev->next : &l->first) = q->next;
	*(q->next ? &q->next->prev : &l->last) = q->prev;
	q->prev = q->next = NULL;
	l->n--;
}

static struct seq *find(struct sched *s, uint64_t id)
{
	for (struct seq *q = s->running.first; q; q = q->next)
		if (q->id == id)
			return q;
	for (struct seq *q = s->waiting.first; q; q = q->next)
		if (q->id == id)
			return q;
	return NULL;
}

/* ---- create ------------------------------------------------------------------------------------------------- */

static int buffers_create(struct sched *s, const struct model_info *info)
{
	s->n_vocab = info->n_vocab;
	s->plan = mem_zalloc(MEM_SCHED, info->step_seqs, sizeof *s->plan);
	s->planned = mem_zalloc(MEM_SCHED, info->step_seqs, sizeof(struct seq *));
	s->logits = mem_alloc(MEM_SCHED, (size_t)info->step_out * info->n_vocab * sizeof(float));
	return s->plan && s->planned && s->logits ? TENON_OK : TENON_E_NOMEM;
}

int sched_create(
	const struct sched_config *c, const struct sched_sink *sink, struct sched **out, struct error *e)
{
	const struct model_info *info = c->engine.info;
	struct sched *s;
	int rc;

	if (info->is_encoder)
		return error_set(e, TENON_E_UNSUPPORTED, "model '%s': an encoder gives embeddings, not text",
			info->name);
	s = mem_zalloc(MEM_SCHED, 1, sizeof *s);
	if (!s)
		return error_set(e, TENON_E_NOMEM, "scheduler: out of memory");
	s->c = *c;
	s->sink = *sink;
	s->c.max_running = MIN_OF(c->max_running ? c->max_running : info->step_seqs, info->step_seqs);
	s->c.max_running = MIN_OF(s->c.max_running, info->step_out);
	for (uint32_t k = 0; k < SCHED_CLASSES; k++)
		if (!s->c.class[k].max_waiting)
			s->c.class[k].max_waiting = DEFAULT_WAITING;
	rc = kv_pages_create(info->n_groups, info->n_pages, info->page_tokens, &s->pages, e);
	if (!rc && buffers_create(s, info))
		rc = error_set(
			e, TENON_E_NOMEM, "scheduler: out of memory for %u rows of logits", info->step_out);
	if (rc)
		sched_destroy(s);
	else
		*out = s;
	return rc;
}

static void list_destroy(struct seq_list *l, struct kv_pages *pages)
{
	for (struct seq *q = l->first, *next; q; q = next) {
		next = q->next;
		seq_destroy(q, pages);
	}
}

void sched_destroy(struct sched *s)
{
	if (!s)
		return;
	list_destroy(&s->running, s->pages);
	list_destroy(&s->waiting, s->pages);
	kv_pages_destroy(s->pages);
	mem_free(s->plan);
	mem_free(s->planned);
	mem_free(s->logits);
	mem_free(s);
}

/* ---- the last word ------------------------------------------------------------------------------------------ */

static void take_out(struct sched *s, struct seq *q)
{
	seq_list_remove(q->place == SEQ_RUNNING ? &s->running : &s->waiting, q);
}

void sched_tell_tokens(struct sched *s, struct seq *q, uint32_t from, const struct sampler_logprob *lp)
{
	if (from == q->n_tokens && !q->text.len)
		return;
	s->sink.tokens(s->sink.ctx, q->id, q->tokens + from, q->n_tokens - from, q->text.data, q->text.len,
		lp, lp ? 1 + q->n_logprobs : 0);
	buf_clear(&q->text);
}

void sched_end_done(struct sched *s, struct seq *q, uint32_t finish)
{
	struct wire_done d;

	seq_fill_done(q, finish, sched_now(s), &d);
	take_out(s, q);
	s->st.ended++;
	s->sink.done(s->sink.ctx, q->id, &d);
	seq_destroy(q, s->pages);
}

void sched_end_error(struct sched *s, struct seq *q, int code, const char *text)
{
	take_out(s, q);
	*(code == TENON_E_CANCELLED ? &s->st.cancelled : &s->st.failed) += 1;
	s->sink.error(s->sink.ctx, q->id, code, text);
	seq_destroy(q, s->pages);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

/* Everything that makes a request impossible for ever, or the queue full now. */
static int check(const struct sched *s, const struct sched_request *r, struct error *e)
{
	const struct model_info *info = s->c.engine.info;
	uint64_t total = (uint64_t)r->n_prompt + (r->max_tokens ? r->max_tokens : 1);

	if (!r->n_prompt)
		return error_set(e, TENON_E_INVALID, "prompt: empty; give at least one token");
	if (total > info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG,
			"prompt of %u tokens and max_tokens %u: the context holds %u; shorten one of them",
			r->n_prompt, r->max_tokens, info->n_ctx);
	if (r->n_history && (uint64_t)r->n_prompt + r->n_history > info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG, "history of %u tokens: over the context of %u",
			r->n_history, info->n_ctx);
	for (uint32_t i = 0; i < r->n_prompt; i++)
		if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= info->n_vocab)
			return error_set(e, TENON_E_INVALID,
				"prompt: token id %d at %u is outside the vocabulary of %u",
				(int)r->prompt[i], i, info->n_vocab);
	for (uint32_t g = 0; g < info->n_groups; g++)
		if ((total + info->page_tokens - 1) / info->page_tokens > info->n_pages[g])
			return error_set(e, TENON_E_NOMEM,
				"request of %llu tokens: the KV pool holds %llu; raise kv_bytes or ask for less",
				(unsigned long long)total,
				(unsigned long long)info->n_pages[g] * info->page_tokens);
	if (s->waiting.n >= s->c.class[r->traffic_class % SCHED_CLASSES].max_waiting)
		return error_set(
			e, TENON_E_FULL, "queue: %u requests wait already; try again later", s->waiting.n);
	return TENON_OK;
}

int sched_submit(struct sched *s, const struct sched_request *r, struct error *e)
{
	enum emit_end end;
	struct seq *q;
	int rc = check(s, r, e);

	if (!rc && find(s, r->id))
		rc = error_set(e, TENON_E_INVALID, "request id: in use");
	if (!rc)
		rc = seq_create(r, &s->c.engine, &q, e);
	if (rc)
		return rc;
	rc = seq_replay(q, &end, e);
	if (rc) {
		seq_destroy(q, s->pages);
		return rc;
	}
	q->place = SEQ_WAITING;
	seq_list_append(&s->waiting, q);
	if (r->n_history) {
		sched_tell_tokens(s, q, q->n_tokens, NULL);
		s->sink.state(s->sink.ctx, q->id, WIRE_RESUMED, 1000);
	}
	if (end == EMIT_END_STRING)
		sched_end_done(s, q, WIRE_FINISH_STOP_STRING);
	else if (q->n_tokens >= q->max_total)
		sched_end_done(s, q, q->ends_at_context ? WIRE_FINISH_CONTEXT : WIRE_FINISH_LENGTH);
	return TENON_OK;
}

int sched_cancel(struct sched *s, uint64_t id, int code, const char *why)
{
	struct seq *q = find(s, id);

	if (!q)
		return TENON_E_NOT_FOUND;
	sched_end_error(s, q, code, why);
	return TENON_OK;
}

static int set_paused(struct sched *s, uint64_t id, bool paused)
{
	struct seq *q = find(s, id);

	if (!q)
		return TENON_E_NOT_FOUND;
	q->paused = paused;
	return TENON_OK;
}

int sched_pause(struct sched *s, uint64_t id) { return set_paused(s, id, true); }
int sched_resume(struct sched *s, uint64_t id) { return set_paused(s, id, false); }

void sched_get_status(const struct sched *s, struct sched_status *out)
{
	*out = s->st;
	out->waiting = s->waiting.n;
	out->running = s->running.n;
	out->paused = 0;
	for (const struct seq *q = s->running.first; q; q = q->next)
		out->paused += q->paused;
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++) {
		out->pages_free[g] = kv_pages_free(s->pages, g);
		out->pages_total[g] = kv_pages_total(s->pages, g);
	}
}
