/* SPDX-License-Identifier: Apache-2.0
 * Requests in and out of the scheduler: create, submit, cancel, pause, end. Step thread only.
 */
#include "sched/sched_priv.h"
#include <string.h>

enum { DEFAULT_WAITING = 1024, DEFAULT_BYTES = 256 << 20, IDS_AT_FIRST = 64 };
#define AGING_MOST_NS 1000000000000000u /* so that keys cannot overflow */

/* ---- ids --------------------------------------------------------------------------------------------------------------- */

static uint32_t slot_of(const struct sched *s, uint64_t id)
{
	return (uint32_t)((id * 0x9e3779b97f4a7c15u) >> 32) & (s->n_ids - 1);
}

struct seq *sched_find(const struct sched *s, uint64_t id)
{
	struct seq *q = s->ids[slot_of(s, id)];

	while (q && q->id != id)
		q = q->same_hash;
	return q;
}

static bool ids_reserve(struct sched *s)
{
	uint32_t old = s->n_ids, n = old ? old * 2 : IDS_AT_FIRST;
	struct seq **was = s->ids, **ids;

	if (s->n_open < old)
		return true;
	ids = mem_zalloc(MEM_SCHED, n, sizeof(struct seq *));
	if (!ids)
		return false;
	s->ids = ids;
	s->n_ids = n;
	for (struct seq *q = s->all.first; q; q = q->next[SEQ_IN_ALL]) {
		q->same_hash = ids[slot_of(s, q->id)];
		ids[slot_of(s, q->id)] = q;
	}
	mem_free(was);
	return true;
}

static void ids_remove(struct sched *s, const struct seq *q)
{
	struct seq **at = &s->ids[slot_of(s, q->id)];

	while (*at != q)
		at = &(*at)->same_hash;
	*at = q->same_hash;
	s->n_open--;
}

/* ---- create ------------------------------------------------------------------------------------------------------------ */

static void fill_defaults(struct sched_config *c, const struct model_info *info)
{
	c->max_running = MIN_OF(c->max_running ? c->max_running : info->step_seqs, info->step_seqs);
	c->max_running = MIN_OF(c->max_running, info->step_out);
	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		struct sched_class_config *t = &c->class[k];

		t->max_waiting = t->max_waiting ? t->max_waiting : DEFAULT_WAITING;
		t->max_waiting_tenant = t->max_waiting_tenant ? t->max_waiting_tenant : t->max_waiting;
		t->max_waiting_bytes = t->max_waiting_bytes ? t->max_waiting_bytes : DEFAULT_BYTES;
	}
	c->max_step_ns = c->max_step_ns ? c->max_step_ns : 25 * NS_PER_MS;
	c->max_prefill_ns = c->max_prefill_ns ? c->max_prefill_ns : 100 * NS_PER_MS;
	c->aging_ns = MIN_OF(c->aging_ns ? c->aging_ns : 10 * NS_PER_S, AGING_MOST_NS);
	c->slack = c->slack > 0 ? c->slack : 0.03;
	c->long_prompt_factor = c->long_prompt_factor > 1 ? c->long_prompt_factor : 2;
	c->offline_min_share = MAX_OF(MIN_OF(c->offline_min_share, 0.9), 0);
}

void sched_configure(struct sched *s, const struct sched_config *c)
{
	memcpy(s->c.class, c->class, sizeof s->c.class);
	s->c.max_step_ns = c->max_step_ns;
	s->c.max_prefill_ns = c->max_prefill_ns;
	s->c.aging_ns = c->aging_ns;
	s->c.slack = c->slack;
	s->c.long_prompt_factor = c->long_prompt_factor;
	s->c.offline_min_share = c->offline_min_share;
	fill_defaults(&s->c, s->c.engine.info);
}

static int buffers_create(struct sched *s, const struct model_info *info, struct error *e)
{
	s->row_width = info->is_encoder ? info->d_model : info->n_vocab;
	s->plan = mem_zalloc(MEM_SCHED, info->step_seqs, sizeof *s->plan);
	s->planned = mem_zalloc(MEM_SCHED, info->step_seqs, sizeof(struct seq *));
	s->pick = mem_zalloc(MEM_SCHED, info->step_seqs, sizeof(struct seq *));
	s->rows = mem_alloc(MEM_SCHED, (size_t)info->step_out * s->row_width * sizeof(float));
	if (s->plan && s->planned && s->pick && s->rows && ids_reserve(s))
		return TENON_OK;
	return error_set(e, TENON_E_NOMEM, "scheduler: out of memory for %u rows", info->step_out);
}

static int reuse_create(struct sched *s, const struct model_info *info, struct error *e)
{
	struct prefix_config *p = &s->c.prefix;

	if (s->c.no_prefix || info->is_encoder)
		return TENON_OK;
	p->pages = s->pages;
	p->store = s->c.engine.store;
	if (!p->store.now_ns && p->store.ctx == s->c.engine.ctx)
		p->store.now_ns = s->c.engine.now_ns;
	p->invariant = info->invariant;
	for (uint32_t g = 0; g < info->n_groups && g < KV_MAX_GROUPS; g++) {
		p->window[g] = info->window[g];
		p->page_bytes[g] = info->page_bytes[g];
	}
	return prefix_create(p, &s->prefix, e);
}

int sched_create(
	const struct sched_config *c, const struct sched_sink *sink, struct sched **out, struct error *e)
{
	const struct model_info *info = c->engine.info;
	struct sched *s;
	int rc;

	s = mem_zalloc(MEM_SCHED, 1, sizeof *s);
	if (!s)
		return error_set(e, TENON_E_NOMEM, "scheduler: out of memory");
	s->c = *c;
	s->sink = *sink;
	s->cost = c->cost;
	s->own_cost = !c->cost;
	s->deadlines =
		(struct heap){ .before = queue_deadline_before, .index = offsetof(struct seq, deadline_at) };
	fill_defaults(&s->c, info);
	late_begin(s);
	rc = kv_pages_create(info->n_groups, info->n_pages, info->page_tokens, &s->pages, e);
	if (!rc && s->own_cost)
		rc = cost_create(&s->cost, e);
	if (!rc)
		rc = buffers_create(s, info, e);
	if (!rc)
		rc = reuse_create(s, info, e);
	if (rc)
		sched_destroy(s);
	else
		*out = s;
	return rc;
}

void sched_destroy(struct sched *s)
{
	if (!s)
		return;
	for (struct seq *q = s->all.first, *next; q; q = next) {
		next = q->next[SEQ_IN_ALL];
		pages_drop(s, q, false, 0);
		seq_destroy(q);
	}
	prefix_destroy(s->prefix);
	kv_pages_destroy(s->pages);
	if (s->own_cost)
		cost_destroy(s->cost);
	tenants_finish(s);
	heap_finish(&s->deadlines);
	mem_free(s->ids);
	mem_free(s->plan);
	mem_free(s->planned);
	mem_free(s->pick);
	mem_free(s->rows);
	mem_free(s);
}

/* ---- ends -------------------------------------------------------------------------------------------------------------- */

void sched_tell_tokens(struct sched *s, struct seq *q, uint32_t from, const struct sampler_logprob *lp)
{
	if (from == q->n_tokens && !q->text.len)
		return;
	s->sink.tokens(s->sink.ctx, q->id, q->tokens + from, q->n_tokens - from, q->text.data, q->text.len,
		lp, lp ? 1 + q->n_logprobs : 0);
	buf_clear(&q->text);
}

/* Whoever waits for q looks again; what q computed stays findable unless it may be wrong. */
static void take_out(struct sched *s, struct seq *q, bool offer)
{
	uint64_t now = sched_now(s);

	share_let_go(s, q, true);
	queue_leave(s, q);
	pages_drop(s, q, offer, now);
	seq_list_remove(&s->all, q, SEQ_IN_ALL);
	ids_remove(s, q);
	if (q->deadline_ns)
		heap_remove(&s->deadlines, q);
	tenant_close(s, q->tenant, now);
}

void sched_end_done(struct sched *s, struct seq *q, uint32_t finish)
{
	struct wire_done d;

	seq_fill_done(q, finish, sched_now(s), &d);
	take_out(s, q, true);
	s->st.ended++;
	s->st.class[q->traffic_class].ended++;
	s->sink.done(s->sink.ctx, q->id, &d);
	seq_destroy(q);
}

void sched_end_error(struct sched *s, struct seq *q, int code, const char *text)
{
	struct sched_class_status *st = &s->st.class[q->traffic_class];
	bool cancelled = code == TENON_E_CANCELLED;

	take_out(s, q, cancelled || code == TENON_E_TIMEOUT);
	*(cancelled ? &s->st.cancelled : &s->st.failed) += 1;
	*(cancelled ? &st->cancelled : &st->failed) += 1;
	s->sink.error(s->sink.ctx, q->id, code, text);
	seq_destroy(q);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

static int join(struct sched *s, struct seq *q, const struct sched_request *r, struct error *e)
{
	struct tenant *t = tenant_get(s, r->tenant ? r->tenant : "", q->submitted_ns, e);

	if (!t)
		return TENON_E_NOMEM;
	if (!ids_reserve(s) || (q->deadline_ns && !heap_reserve(&s->deadlines, s->deadlines.n + 1)))
		return error_set(e, TENON_E_NOMEM, "request: out of memory for the queue");
	if (tenant_open(s, t, r->tenant_weight, e))
		return TENON_E_NOMEM;
	q->tenant = t;
	q->order = ++s->n_submitted;
	queue_set_key(s, q);
	seq_list_append(&s->all, q, SEQ_IN_ALL);
	q->same_hash = s->ids[slot_of(s, q->id)];
	s->ids[slot_of(s, q->id)] = q;
	s->n_open++;
	if (q->deadline_ns)
		heap_push(&s->deadlines, q);
	queue_enter(s, q, SEQ_QUEUED);
	return TENON_OK;
}

static int take_in(struct sched *s, const struct sched_request *r, struct error *e)
{
	enum emit_end end;
	struct seq *q;
	int rc = seq_create(r, &s->c.engine, &q, e);

	if (rc)
		return rc;
	rc = seq_replay(q, &end, e);
	if (!rc)
		rc = join(s, q, r, e);
	if (rc) {
		seq_destroy(q);
		return rc;
	}
	s->st.class[q->traffic_class].submitted++;
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

int sched_submit(struct sched *s, const struct sched_request *r, struct error *e)
{
	int rc = sched_check(s, r, tenant_find(s, r->tenant ? r->tenant : ""), e);

	if (!rc)
		rc = take_in(s, r, e);
	if (rc && r->traffic_class < SCHED_CLASSES)
		s->st.class[r->traffic_class].refused++;
	return rc;
}

int sched_cancel(struct sched *s, uint64_t id, int code, const char *why)
{
	struct seq *q = sched_find(s, id);

	if (!q)
		return TENON_E_NOT_FOUND;
	sched_end_error(s, q, code, why);
	return TENON_OK;
}

int sched_pause(struct sched *s, uint64_t id)
{
	struct seq *q = sched_find(s, id);

	if (!q)
		return TENON_E_NOT_FOUND;
	if (q->place == SEQ_PAUSED)
		return TENON_OK;
	share_let_go(s, q, true);
	queue_leave(s, q);
	queue_enter(s, q, SEQ_PAUSED);
	return TENON_OK;
}

/* Goes on at once where there is a place; else it waits with its pages. */
int sched_resume(struct sched *s, uint64_t id)
{
	struct seq *q = sched_find(s, id);

	if (!q)
		return TENON_E_NOT_FOUND;
	if (q->place != SEQ_PAUSED)
		return TENON_OK;
	queue_leave(s, q);
	queue_enter(s, q, q->table.n_pages && s->running.n < s->c.max_running ? SEQ_RUNNING : SEQ_QUEUED);
	return TENON_OK;
}

struct prefix *sched_prefix(struct sched *s) { return s->prefix; }

void sched_set_company(struct sched *s, bool online_elsewhere)
{
	s->epoch += s->company != online_elsewhere;
	s->stuck &= s->company == online_elsewhere;
	s->company = online_elsewhere;
}

/* What is stuck may still have passed its deadline, and what was held back may have its share coming by now. */
enum sched_want sched_wants(const struct sched *s)
{
	const struct sched_class_status *c = s->st.class;
	const struct seq *due = heap_top(&s->deadlines);
	uint64_t now = sched_now(s);
	bool online = c[WIRE_ONLINE].running + c[WIRE_ONLINE].waiting,
	     offline = c[WIRE_OFFLINE].running + c[WIRE_OFFLINE].waiting && !sched_held(s, now),
	     passed = due && now >= due->deadline_ns;

	if ((online && !s->stuck) || (passed && due->traffic_class == WIRE_ONLINE))
		return SCHED_WANT_ONLINE;
	if (passed)
		return SCHED_WANT_OFFLINE;
	if (s->stuck)
		return offline && s->company ? SCHED_WANT_OFFLINE : SCHED_WANT_NOTHING;
	return offline ? SCHED_WANT_OFFLINE : SCHED_WANT_NOTHING;
}

void sched_get_status(const struct sched *s, struct sched_status *out)
{
	*out = s->st;
	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		out->waiting += s->st.class[k].waiting;
		out->running += s->st.class[k].running;
		out->paused += s->st.class[k].paused;
	}
	for (uint32_t g = 0; g < kv_pages_groups(s->pages); g++)
		out->pages_total[g] = kv_pages_total(s->pages, g);
	pages_avail(s, out->pages_free);
	cost_get_status(s->cost, &out->cost);
	if (s->prefix)
		prefix_get_status(s->prefix, &out->prefix);
}
