/* SPDX-License-Identifier: Apache-2.0
 * ledger.h. The largest settings are found by halving: the ledger is cheap (the backend plans, nothing is allocated) and
 * grows with context and sessions.
 */
#include "engine/ledger.h"
#include "base/base.h"
#include "engine/model_priv.h"
#include <stdio.h>

enum {
	DEFAULT_POOL_TOKENS = 4096,
	MAX_SESSIONS = 1 << 20,
	NODE_BYTES = 256,     /* of a node of the prefix tree, beside its tokens */
	SAMPLER_BYTES = 8,    /* of a candidate of the sampler */
	SEQ_BYTES = 12 << 10, /* a sequence's text, emitter, lists */
	BASE_BYTES = 18
		<< 20 /* measured: tenond 8 MiB, its worker with the cpu backend 10 MiB; libraries in both */
};

static const char *const keys[] = {
#define X(name, key, text) key,
	LEDGER_ITEMS(X)
#undef X
};
static const char *const texts[] = {
#define X(name, key, text) text,
	LEDGER_ITEMS(X)
#undef X
};

const char *ledger_key(enum ledger_item i) { return (unsigned)i < LEDGER_N ? keys[i] : "?"; }
const char *ledger_text(enum ledger_item i) { return (unsigned)i < LEDGER_N ? texts[i] : "?"; }

/* ---- pages ---------------------------------------------------------------------------------------------------------- */

static uint64_t pages_of(const struct model_info *i, uint64_t tokens)
{
	return tokens / i->page_tokens + (tokens % i->page_tokens != 0);
}

/* What a window's tokens span, wherever they begin, and the page that the next token begins. */
static uint64_t windowed(const struct model_info *i, uint32_t group, uint64_t all, uint32_t n_seqs)
{
	uint64_t each = pages_of(i, i->window[group]) + 2;

	return i->window[group] ? MIN_OF(all, each * n_seqs + pages_of(i, i->step_tokens)) : all;
}

uint64_t ledger_pages(const struct model_info *i, uint32_t group, uint64_t n_tokens, uint32_t n_seqs)
{
	return windowed(i, group, pages_of(i, n_tokens) * n_seqs, n_seqs);
}

/* A pool for `tokens` tokens of at most n_seqs sequences. */
static void pool_fill(const struct model *m, uint64_t pages, uint32_t n_seqs, struct ledger *l)
{
	for (uint32_t g = 0; g < m->info.n_groups; g++)
		l->n_pages[g] = windowed(&m->info, g, pages, n_seqs);
}

static bool pool_bytes(const struct model *m, const struct ledger *l, uint64_t *out)
{
	uint64_t sum = 0, bytes;

	for (uint32_t g = 0; g < m->info.n_groups; g++)
		if (l->n_pages[g] >= UINT32_MAX ||
			!checked_mul_u64(l->n_pages[g], l->sizes.kv_page[g], &bytes) ||
			!checked_add_u64(sum, bytes, &sum))
			return false;
	*out = sum;
	return true;
}

/* The largest pool that kv_bytes hold, at least one page. */
static void pool_by_bytes(const struct model *m, uint64_t kv_bytes, struct ledger *l)
{
	uint64_t lo = 1, hi = UINT32_MAX - 1;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo + 1) / 2, bytes;

		pool_fill(m, mid, m->info.step_seqs, l);
		if (pool_bytes(m, l, &bytes) && bytes <= kv_bytes)
			lo = mid;
		else
			hi = mid - 1;
	}
	pool_fill(m, lo, m->info.step_seqs, l);
}

static void pool_choose(const struct model *m, const struct ledger_ask *a, uint32_t n_ctx, struct ledger *l)
{
	uint64_t tokens = a->least ? n_ctx : MAX_OF(n_ctx, (uint32_t)DEFAULT_POOL_TOKENS);

	if (a->n_sessions)
		pool_fill(m, pages_of(&m->info, n_ctx) * a->n_sessions, a->n_sessions, l);
	else if (a->kv_bytes)
		pool_by_bytes(m, a->kv_bytes, l);
	else
		pool_fill(m, pages_of(&m->info, tokens), a->least ? 1 : m->info.step_seqs, l);
}

/* ---- the items ------------------------------------------------------------------------------------------------------ */

static struct tnp_limits limits_at(const struct model *m, uint32_t n_ctx)
{
	struct tnp_limits l = model_limits(m);

	l.max_pages_per_seq = (uint32_t)pages_of(&m->info, n_ctx);
	return l;
}

/* Nodes hold a page's tokens each; holes of windows make no nodes of their own. */
static uint64_t prefix_bytes(const struct model *m, const struct ledger *l)
{
	uint64_t most = 0;

	for (uint32_t g = 0; g < m->info.n_groups; g++)
		most = MAX_OF(most, l->n_pages[g]);
	return most * (NODE_BYTES + 4ull * m->info.page_tokens);
}

static void items_fill(const struct model *m, const struct ledger_ask *a, uint32_t n_ctx, struct ledger *l)
{
	const struct model_info *i = &m->info;
	uint64_t rows = i->is_encoder ? i->step_seqs
				      : MIN_OF(a->n_sessions ? a->n_sessions : i->step_seqs, i->step_out),
		 seqs = i->is_encoder ? 0 : MAX_OF(a->n_sessions, rows);

	l->bytes[LEDGER_WEIGHTS_MAPPED] = l->sizes.weights_mapped;
	l->bytes[LEDGER_WEIGHTS_OWN] = l->sizes.weights_own;
	l->bytes[LEDGER_WORKSPACE] = l->sizes.workspace;
	l->bytes[LEDGER_STEP] = model_step_bytes(m, (uint32_t)pages_of(i, n_ctx));
	l->bytes[LEDGER_ROWS] = 2 * rows * m->out_width * sizeof(float);
	l->bytes[LEDGER_TEXT] = m->text_bytes;
	l->bytes[LEDGER_SEQS] = seqs * (4ull * n_ctx + (uint64_t)SAMPLER_BYTES * i->n_vocab + SEQ_BYTES);
	l->bytes[LEDGER_PREFIX] = prefix_bytes(m, l);
	l->bytes[LEDGER_TIER] = a->host_tier_bytes;
	l->bytes[LEDGER_BASE] = BASE_BYTES;
	l->arena = MIN_OF(partition_arena_bytes(&m->parts), l->sizes.workspace);
	l->peak = l->sizes.open_peak;
	for (uint32_t k = 0; k < m->parts.n; k++)
		l->part_kv[k] = partition_kv_bytes(&m->parts.part[k], &l->part[k], l->n_pages);
}

int ledger_make(const struct model *m, const struct ledger_ask *a, struct ledger *out, struct error *e)
{
	uint32_t n_ctx = a->n_ctx ? a->n_ctx : m->info.n_ctx;
	struct tnp_limits lim = limits_at(m, n_ctx);
	struct ledger l = { .sizes = { .size = sizeof l.sizes } };
	int rc = partition_sizes(&m->parts, &lim, l.part, &l.sizes, e);
	uint64_t sum = 0;
	bool ok;

	if (rc)
		return rc;
	pool_choose(m, a, n_ctx, &l);
	ok = pool_bytes(m, &l, &l.bytes[LEDGER_KV]);
	items_fill(m, a, n_ctx, &l);
	for (uint32_t i = 0; i < LEDGER_N && ok; i++)
		ok = checked_add_u64(sum, l.bytes[i], &sum);
	if (!ok || sum + l.peak < sum)
		return error_set(
			e, TENON_E_TOO_LONG, "model '%s': needs more than 2^64 bytes or 2^32 pages", m->name);
	l.total = sum;
	l.loaded = sum - l.bytes[LEDGER_BASE];
	*out = l;
	return TENON_OK;
}

/* ---- what would fit ------------------------------------------------------------------------------------------------- */

static bool fits(const struct model *m, const struct ledger_ask *a, uint64_t budget, bool loaded_only)
{
	struct ledger l;

	return !ledger_make(m, a, &l, NULL) && (loaded_only ? l.loaded + l.peak : l.total) <= budget;
}

uint32_t ledger_most_context(
	const struct model *m, const struct ledger_ask *a, uint64_t budget, bool loaded_only)
{
	uint32_t lo = 0, hi = m->info.n_ctx_train / m->info.page_tokens;
	struct ledger_ask at = *a;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo + 1) / 2;

		at.n_ctx = mid * m->info.page_tokens;
		if (fits(m, &at, budget, loaded_only))
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo * m->info.page_tokens;
}

uint32_t ledger_most_sessions(
	const struct model *m, const struct ledger_ask *a, uint64_t budget, bool loaded_only)
{
	uint32_t lo = 0, hi = MAX_SESSIONS;
	struct ledger_ask at = *a;

	while (lo < hi) {
		at.n_sessions = lo + (hi - lo + 1) / 2;
		if (fits(m, &at, budget, loaded_only))
			lo = at.n_sessions;
		else
			hi = at.n_sessions - 1;
	}
	return lo;
}

/* "at most ... fit", or that nothing does. */
static void advice(const struct model *m, const struct ledger_ask *a, const struct ledger *l,
	uint64_t available, char *out, size_t room)
{
	struct ledger_ask one = { .n_ctx = a->n_ctx, .host_tier_bytes = a->host_tier_bytes, .least = true };
	uint64_t rest = l->loaded + l->peak - l->bytes[LEDGER_KV];
	uint32_t most = ledger_most_context(m, a->n_sessions ? a : &one, available, true);
	char kv[32];

	if (a->n_sessions) {
		(void)snprintf(out, room,
			"at most %u tokens fit for %u sessions, or %u sessions of %u tokens", most,
			a->n_sessions, ledger_most_sessions(m, a, available, true),
			a->n_ctx ? a->n_ctx : m->info.n_ctx);
	} else if (a->kv_bytes && rest < available && fits(m, &one, available, true)) {
		memory_text(available - rest, kv, sizeof kv);
		(void)snprintf(out, room, "at most %s of keys and values fit", kv);
	} else if (most) {
		(void)snprintf(out, room, "at most %u tokens fit", most);
	} else {
		(void)snprintf(out, room, "no context is short enough");
	}
}

int ledger_check(const struct model *m, const struct ledger_ask *a, const struct ledger *l,
	uint64_t available, struct error *e)
{
	uint64_t all = l->loaded + l->peak;
	char need[32], have[32], lack[32], most[128];

	if (all <= available)
		return TENON_OK;
	memory_text(all, need, sizeof need);
	memory_text(available, have, sizeof have);
	memory_text(all - available, lack, sizeof lack);
	advice(m, a, l, available, most, sizeof most);
	return error_set(e, TENON_E_NOMEM,
		"model '%.40s': needs %s at a context of %u tokens, %s are available (%s too little); %s",
		m->name, need, a->n_ctx ? a->n_ctx : m->info.n_ctx, have, lack, most);
}
