/* SPDX-License-Identifier: Apache-2.0
 * Life of one sequence; see seq.h.
 */
#include "sched/seq.h"
#include <string.h>

/* The longest sequence: the context, or what the pool holds where that is less. */
static uint64_t most_tokens(const struct model_info *info)
{
	uint64_t most = info->n_ctx;

	for (uint32_t g = 0; g < info->n_groups; g++)
		if (!info->window[g])
			most = MIN_OF(most, (uint64_t)info->n_pages[g] * info->page_tokens);
	return most;
}

static int seq_tokens(
	struct seq *q, const struct sched_request *r, const struct model_info *info, struct error *e)
{
	uint64_t want = r->max_tokens ? (uint64_t)r->n_prompt + r->max_tokens : most_tokens(info);

	q->ends_at_context = !r->max_tokens;
	q->max_total = (uint32_t)MAX_OF(MIN_OF(want, info->n_ctx), r->n_prompt + r->n_history);
	if (info->is_encoder)
		q->max_total = r->n_prompt + 1; /* there is no answer that could reach it */
	q->tokens = mem_zalloc(MEM_SCHED, q->max_total + 1u, sizeof *q->tokens);
	if (!q->tokens)
		return error_set(e, TENON_E_NOMEM, "request: out of memory for %u tokens", q->max_total);
	memcpy(q->tokens, r->prompt, r->n_prompt * sizeof *q->tokens);
	if (r->n_history)
		memcpy(q->tokens + r->n_prompt, r->history, r->n_history * sizeof *q->tokens);
	q->n_prompt = r->n_prompt;
	q->n_history = r->n_history;
	q->n_tokens = r->n_prompt + r->n_history;
	return TENON_OK;
}

/* What makes text of rows; an encoder's rows are the answer. */
static int seq_text(
	struct seq *q, const struct sched_request *r, const struct sched_engine *g, struct error *e)
{
	int rc = sampler_create(&r->sampling, g->info->n_vocab, &q->sampler, e);

	if (!rc)
		rc = emitter_create(g->tokenizer, &r->emit, &q->emit, e);
	if (!rc && !buf_reserve(&q->text, 4096))
		rc = error_set(e, TENON_E_NOMEM, "request: out of memory");
	for (uint32_t i = 0; i < q->n_tokens && !rc; i++)
		sampler_accept(q->sampler, q->tokens[i]);
	return rc;
}

int seq_create(const struct sched_request *r, const struct sched_engine *g, struct seq **out, struct error *e)
{
	struct seq *q = mem_zalloc(MEM_SCHED, 1, sizeof *q);
	int rc;

	if (!q)
		return error_set(e, TENON_E_NOMEM, "request: out of memory");
	q->id = r->id;
	q->traffic_class = r->traffic_class;
	q->priority = r->priority;
	q->ttft_ns = r->ttft_ns;
	q->tpot_ns = r->tpot_ns;
	q->reuse = !r->no_reuse;
	q->pin = r->pin && !r->no_reuse;
	q->deadline_ns = r->deadline_ns;
	q->skip_bytes = r->history_text_bytes;
	q->time = r->time;
	q->submitted_ns = g->now_ns(g->ctx);
	q->n_logprobs = r->sampling.n_logprobs;
	buf_init(&q->text, MEM_SCHED, 0);
	rc = seq_tokens(q, r, g->info, e);
	if (!rc && !g->info->is_encoder)
		rc = seq_text(q, r, g, e);
	if (rc) {
		seq_destroy(q);
		return rc;
	}
	*out = q;
	return TENON_OK;
}

void seq_destroy(struct seq *q)
{
	if (!q)
		return;
	sampler_destroy(q->sampler);
	emitter_destroy(q->emit);
	buf_finish(&q->text);
	mem_free(q->tokens);
	mem_free(q);
}

/* Takes away from `text` what the client has already. */
static void skip_told(struct seq *q)
{
	size_t n = (size_t)MIN_OF(q->skip_bytes, q->text.len);

	if (!n)
		return;
	q->text.len -= n;
	memmove(q->text.data, q->text.data + n, q->text.len);
	q->skip_bytes -= n;
}

int seq_replay(struct seq *q, enum emit_end *end, struct error *e)
{
	int rc = TENON_OK;

	*end = EMIT_GO_ON;
	for (uint32_t i = 0; i < q->n_history && !rc && *end == EMIT_GO_ON; i++)
		rc = emitter_push(q->emit, q->tokens[q->n_prompt + i], &q->text, end, e);
	skip_told(q);
	return rc;
}

int seq_push(struct seq *q, int32_t token, enum emit_end *end, struct error *e)
{
	int rc = emitter_push(q->emit, token, &q->text, end, e);

	if (rc)
		return rc;
	skip_told(q);
	if (*end == EMIT_END_TOKEN)
		return TENON_OK;
	q->tokens[q->n_tokens++] = token;
	sampler_accept(q->sampler, token);
	return TENON_OK;
}

uint32_t seq_left(const struct seq *q) { return q->n_tokens - q->past; }

void seq_fill_done(const struct seq *q, uint32_t finish, uint64_t now, struct wire_done *d)
{
	*d = (struct wire_done){ .finish = finish,
		.n_prompt = q->n_prompt,
		.n_generated = q->n_tokens - q->n_prompt,
		.n_cached = q->n_cached,
		.n_preempted = q->n_preempted,
		.n_replayed = q->n_history,
		.time = q->time };
	d->time.queue_ns = q->started_ns ? q->started_ns - q->submitted_ns : now - q->submitted_ns;
	d->time.prefill_ns = q->first_ns ? q->first_ns - q->started_ns : 0;
	d->time.decode_ns = q->first_ns ? q->last_ns - q->first_ns : 0;
	d->time.first_token_ns = q->first_ns && q->time.arrived_ns ? q->first_ns - q->time.arrived_ns : 0;
	d->time.total_ns = q->time.arrived_ns ? now - q->time.arrived_ns : 0;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void link_behind(struct seq_list *l, struct seq *q, struct seq *prev, enum seq_link k)
{
	struct seq *next = prev ? prev->next[k] : l->first;

	q->prev[k] = prev;
	q->next[k] = next;
	*(prev ? &prev->next[k] : &l->first) = q;
	*(next ? &next->prev[k] : &l->last) = q;
	l->n++;
}

void seq_list_append(struct seq_list *l, struct seq *q, enum seq_link k) { link_behind(l, q, l->last, k); }

void seq_list_insert(struct seq_list *l, struct seq *q, enum seq_link k)
{
	struct seq *prev = l->last;

	while (prev && prev->order > q->order)
		prev = prev->prev[k];
	link_behind(l, q, prev, k);
}

void seq_list_remove(struct seq_list *l, struct seq *q, enum seq_link k)
{
	*(q->prev[k] ? &q->prev[k]->next[k] : &l->first) = q->next[k];
	*(q->next[k] ? &q->next[k]->prev[k] : &l->last) = q->prev[k];
	q->prev[k] = q->next[k] = NULL;
	l->n--;
}
