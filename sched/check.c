/* SPDX-License-Identifier: Apache-2.0
 * Admission at the door: what can never run and what finds the queue full is refused at once, with the limit and
 * what would work. Step thread only.
 */
#include "sched/sched_priv.h"
#include <stdio.h>

enum { PRIORITY_MAX = 100, RETRY_MAX_S = 600 };

static int check_words(const struct sched *s, const struct sched_request *r, struct error *e)
{
	if (r->traffic_class >= SCHED_CLASSES)
		return error_set(
			e, TENON_E_INVALID, "class %u: unknown; 0 is online, 1 is offline", r->traffic_class);
	if (r->priority < -PRIORITY_MAX || r->priority > PRIORITY_MAX)
		return error_set(
			e, TENON_E_INVALID, "priority %d: out of range; give -100 to 100", (int)r->priority);
	if (r->deadline_ns && r->deadline_ns <= sched_now(s) && r->time.arrived_ns &&
		r->time.arrived_ns < r->deadline_ns)
		return error_set(e, TENON_E_TIMEOUT, "deadline: passed on the way to the queue");
	if (r->deadline_ns && r->deadline_ns <= sched_now(s))
		return error_set(
			e, TENON_E_INVALID, "deadline: has passed already; give a later one or none");
	if (!r->n_prompt)
		return error_set(e, TENON_E_INVALID, "prompt: empty; give at least one token");
	return TENON_OK;
}

static int check_length(const struct sched *s, const struct sched_request *r, struct error *e)
{
	const struct model_info *info = s->c.engine.info;
	uint64_t total = (uint64_t)r->n_prompt + (r->max_tokens ? r->max_tokens : 1);

	if (info->is_encoder && r->n_history)
		return error_set(e, TENON_E_INVALID, "history: an encoder has none to go on from");
	if (info->is_encoder && r->n_prompt > info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG, "text of %u tokens: the model takes %u; shorten it",
			r->n_prompt, info->n_ctx);
	if (!info->is_encoder && r->n_prompt >= info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG,
			"prompt of %u tokens: the context holds %u; shorten it to %u or less", r->n_prompt,
			info->n_ctx, info->n_ctx - 1);
	if (!info->is_encoder && total > info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG,
			"prompt of %u tokens and max_tokens %u: the context holds %u; ask for %u or less",
			r->n_prompt, r->max_tokens, info->n_ctx, info->n_ctx - r->n_prompt);
	if (r->n_history && (uint64_t)r->n_prompt + r->n_history > info->n_ctx)
		return error_set(e, TENON_E_TOO_LONG, "history of %u tokens: over the context of %u",
			r->n_history, info->n_ctx);
	for (uint32_t i = 0; i < r->n_prompt; i++)
		if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= info->n_vocab)
			return error_set(e, TENON_E_INVALID,
				"prompt: token id %d at %u is outside the vocabulary of %u",
				(int)r->prompt[i], i, info->n_vocab);
	return TENON_OK;
}

/* What would fit: a shorter answer, else a shorter prompt; a window's pages do not depend on either. */
static int pool_too_small(
	const struct sched_request *r, uint64_t total, uint64_t holds, bool windowed, struct error *e)
{
	char or_less[80] = "";

	if (!windowed && r->n_prompt < holds)
		(void)snprintf(or_less, sizeof or_less, ", or ask for max_tokens of %llu or less",
			(unsigned long long)(holds - r->n_prompt));
	else if (!windowed)
		(void)snprintf(or_less, sizeof or_less, ", or shorten the prompt to %llu or less",
			(unsigned long long)(holds - 1));
	return error_set(e, TENON_E_NOMEM,
		"request of %llu tokens: the KV pool holds %llu; raise kv_mib or kv_sessions%s",
		(unsigned long long)total, (unsigned long long)holds, or_less);
}

/* A group with a window never needs more than the window, a page that begins and one that ends. */
static int check_pages(const struct sched *s, const struct sched_request *r, struct error *e)
{
	const struct model_info *info = s->c.engine.info;
	uint64_t total = (uint64_t)r->n_prompt + (r->max_tokens ? r->max_tokens : 1), pt = info->page_tokens;

	for (uint32_t g = 0; g < info->n_groups; g++) {
		uint64_t need = (total + pt - 1) / pt;

		if (info->window[g])
			need = MIN_OF(need, (info->window[g] + pt - 1) / pt + 2);
		if (need > info->n_pages[g])
			return pool_too_small(r, total, info->n_pages[g] * pt, info->window[g], e);
	}
	return TENON_OK;
}

/* A place in the queue opens with each start. */
static uint32_t retry_s(const struct sched *s, uint32_t k)
{
	uint64_t gap = s->start_gap_ns[k], waits = sched_now(s) - s->start_last_ns[k];

	if (!gap)
		return 1;
	return (uint32_t)MIN_OF(
		(MAX_OF(gap, s->start_last_ns[k] ? waits : 0) + NS_PER_S - 1) / NS_PER_S, RETRY_MAX_S);
}

static int check_queue(
	const struct sched *s, const struct sched_request *r, const struct tenant *t, struct error *e)
{
	static const char *const names[SCHED_CLASSES] = {
		[WIRE_ONLINE] = "online", [WIRE_OFFLINE] = "offline"
	};
	uint32_t k = r->traffic_class, mine = t ? t->waiting[k] : 0;
	const struct sched_class_config *c = &s->c.class[k];
	uint64_t held = 0, bytes = 4 * ((uint64_t)r->n_prompt + r->max_tokens);

	for (uint32_t i = 0; i < s->n_tenants; i++)
		held += s->tenants[i]->waiting_bytes[k];
	if (s->st.class[k].waiting >= c->max_waiting)
		return error_set(e, TENON_E_FULL,
			"queue: %u %s requests wait, the limit is %u; try again in about %u s",
			s->st.class[k].waiting, names[k], c->max_waiting, retry_s(s, k));
	if (mine >= c->max_waiting_tenant)
		return error_set(e, TENON_E_FULL,
			"queue: %u %s requests of this tenant wait, the limit is %u; try again in about %u s",
			mine, names[k], c->max_waiting_tenant, retry_s(s, k));
	if (held + bytes > c->max_waiting_bytes)
		return error_set(e, TENON_E_FULL,
			"queue: %s requests that wait hold %llu bytes, %llu more are over the limit of %llu; try again in about %u s",
			names[k], (unsigned long long)held, (unsigned long long)bytes,
			(unsigned long long)c->max_waiting_bytes, retry_s(s, k));
	return TENON_OK;
}

int sched_check(const struct sched *s, const struct sched_request *r, const struct tenant *t, struct error *e)
{
	int rc = check_words(s, r, e);

	if (!rc)
		rc = check_length(s, r, e);
	if (!rc)
		rc = check_pages(s, r, e);
	if (!rc && sched_find(s, r->id))
		rc = error_set(e, TENON_E_INVALID, "request id: in use");
	if (!rc && !r->n_history && !r->again)
		rc = check_queue(s, r, t, e);
	return rc;
}
