/* SPDX-License-Identifier: Apache-2.0
 * The scene "tree": the prefix cache without a scheduler. A few sequences find, share, compute, offer and let go, in an
 * order that no scheduler would choose, with evictions, pins, purges, tiers that shrink, files that rot and restarts in
 * between. What the tree may answer is known exactly: every token string that was ever offered is kept here.
 */
#include "tests/sim/sim.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_TREE = 31, N_LIVE = 10, N_OFFERED = 400, N_TENANTS = 3, N_PINS = 16 };

struct live { /* a sequence */
	bool used, trimmed;
	uint32_t tenant, class, n, past;
	int32_t tokens[SIM_CTX];
	uint64_t hash[SIM_CTX + 1];
	struct block_table table;
	struct prefix_node *lease;
};

struct offered {
	uint32_t tenant, n;
	bool whole_only; /* the last page was not full and not offered */
	int32_t tokens[SIM_CTX];
};

struct tree {
	struct sim *s;
	struct rng r;
	struct prefix_config config;
	struct kv_pages *pages;
	struct prefix *prefix;
	uint32_t tenant_id[N_TENANTS], max_n, n_offered, n_pins;
	bool exact; /* nothing was evicted, purged or refused: a hit is as long as it can be */
	struct live live[N_LIVE];
	uint64_t pin[N_PINS];
	struct offered offered[N_OFFERED];
};

static const struct model_info *info_of(const struct tree *t) { return &t->s->w.info; }
static const char *const tenants[N_TENANTS] = { "anna", "bert", "" };

/* ---- set-up --------------------------------------------------------------------------------------------------------- */

static void open_prefix(struct tree *t)
{
	struct error e = { 0 };

	if (!sim_open_tiers(t->s))
		return;
	t->config.host = t->s->host;
	t->config.disk = t->s->disk;
	if (prefix_create(&t->config, &t->prefix, &e)) {
		sim_fail(t->s, "create", "prefix cache: %s", e.text);
		return;
	}
	for (uint32_t k = 0; k < N_TENANTS; k++)
		t->tenant_id[k] = prefix_tenant(t->prefix, tenants[k]);
}

static void close_prefix(struct tree *t)
{
	struct prefix_status st = { 0 };

	if (t->prefix)
		prefix_get_status(t->prefix, &st);
	t->s->v.evicted += st.evicted_pages;
	t->s->v.saved += st.saved_pages;
	t->s->v.restored += st.restored_pages;
	prefix_destroy(t->prefix);
	sim_close_tiers(t->s);
	t->prefix = NULL;
	t->n_pins = 0;
}

static bool tree_open(struct tree *t, uint64_t seed)
{
	const struct model_info *m = info_of(t);
	struct sim_world *w = &t->s->w;
	struct error e = { 0 };

	t->r = rng_of(seed, STREAM_TREE);
	t->max_n = rng_range(&t->r, 2 * m->page_tokens, m->n_ctx);
	if (kv_pages_create(m->n_groups, m->n_pages, m->page_tokens, &t->pages, &e))
		return false;
	t->config = w->config.prefix;
	t->config.pages = t->pages;
	t->config.store = fake_engine(&t->s->fake, NULL).store;
	t->config.share_tenants |= sim_broken(t->s, "tenants");
	t->config.invariant = m->invariant;
	memcpy(t->config.window, m->window, sizeof t->config.window);
	memcpy(t->config.page_bytes, m->page_bytes, sizeof t->config.page_bytes);
	t->exact = m->n_groups == 1 && !m->window[0] && !w->faults.copy && !w->config.prefix.max_node_bytes;
	open_prefix(t);
	return !t->s->v.failed;
}

/* ---- what must hold ------------------------------------------------------------------------------------------------ */

/* The pages of a sequence hold its prefix, as far as its next token looks back. */
static void check_content(struct tree *t, const struct live *q, const char *after)
{
	const struct model_info *m = info_of(t);

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t from = m->window[g] && q->past + 1 > m->window[g] ? q->past + 1 - m->window[g] : 0;

		for (uint32_t p = from; p < q->past; p++) {
			uint32_t i = p / m->page_tokens,
				 page = i < q->table.n_pages ? q->table.page[g][i] : KV_NO_PAGE;

			if (page >= m->n_pages[g])
				sim_fail(t->s, "pages",
					"after %s: group %u has no page for position %u of %u", after, g, p,
					q->past);
			else if (!kv_page_refs(t->pages, g, page))
				sim_fail(t->s, "pages", "after %s: group %u: page %u of a sequence is free",
					after, g, page);
			else if (t->s->fake.slot[g][(size_t)page * m->page_tokens + p % m->page_tokens] !=
				q->hash[p + 1])
				sim_fail(t->s, "kv",
					"after %s: group %u: position %u of %u (page %u) holds something else",
					after, g, p, q->past, page);
			if (t->s->v.failed)
				return;
		}
	}
}

/* Every reference belongs to a sequence or to the tree; in a group with a window also to a pin. */
static void check_refs(struct tree *t, const char *after)
{
	struct prefix_status st;
	struct prefix_pin pins[N_PINS];
	uint64_t n_pinned = 0;

	prefix_get_status(t->prefix, &st);
	t->exact &= !st.evicted_pages;
	for (size_t i = prefix_pins(t->prefix, pins, N_PINS); i-- > 0;)
		n_pinned += pins[i].n_pages;
	for (uint32_t g = 0; g < info_of(t)->n_groups; g++) {
		uint64_t refs = 0, held = 0, free = 0, most = info_of(t)->window[g] ? n_pinned : 0;

		for (uint32_t p = 0; p < info_of(t)->n_pages[g]; p++) {
			refs += kv_page_refs(t->pages, g, p);
			free += !kv_page_refs(t->pages, g, p);
		}
		for (uint32_t i = 0; i < N_LIVE; i++)
			for (uint32_t k = 0; t->live[i].used && k < t->live[i].table.n_pages; k++)
				held += t->live[i].table.page[g][k] != KV_NO_PAGE;
		if (refs < held + st.pages[g] || refs > held + st.pages[g] + most ||
			free != kv_pages_free(t->pages, g))
			sim_fail(t->s, "leak",
				"after %s: group %u: %llu references; sequences hold %llu, the tree says %llu; %llu free",
				after, g, (unsigned long long)refs, (unsigned long long)held,
				(unsigned long long)st.pages[g], (unsigned long long)free);
		if (prefix_evictable(t->prefix, g) > st.pages[g])
			sim_fail(t->s, "counts", "after %s: group %u: %u evictable of %llu", after, g,
				prefix_evictable(t->prefix, g), (unsigned long long)st.pages[g]);
	}
}

/* Longest prefix that this tenant may find: of what it (or anybody, where trees are shared) ever offered. */
static uint32_t longest(const struct tree *t, const struct live *q)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < t->n_offered; i++) {
		const struct offered *o = &t->offered[i];
		uint32_t n = 0;

		if (o->tenant != q->tenant && !t->s->w.config.prefix.share_tenants)
			continue;
		while (n < o->n && n < q->n && o->tokens[n] == q->tokens[n])
			n++;
		best = MAX_OF(best, n);
	}
	return best;
}

/* ---- sequences ------------------------------------------------------------------------------------------------------ */

static void draw_tokens(struct tree *t, struct live *q)
{
	uint32_t n = 0, tail;

	if (t->n_offered && rng_chance(&t->r, 800)) {
		const struct offered *o = &t->offered[rng_below(&t->r, t->n_offered)];

		n = rng_chance(&t->r, 400) ? o->n : rng_range(&t->r, 0, o->n);
		n = MIN_OF(n, t->max_n - 1);
		memcpy(q->tokens, o->tokens, n * sizeof *q->tokens);
	}
	tail = rng_chance(&t->r, 300) ? 1 : rng_range(&t->r, 1, t->max_n - n);
	for (uint32_t i = 0; i < tail; i++)
		q->tokens[n++] = (int32_t)rng_below(&t->r, rng_chance(&t->r, 500) ? 2 : SIM_VOCAB);
	q->n = n;
	q->hash[0] = SIM_HASH_NOTHING;
	for (uint32_t i = 0; i < n; i++)
		q->hash[i + 1] = sim_hash(q->hash[i], q->tokens[i]);
}

/* How far a hit reaches, against what is possible and, as long as nothing was thrown away, against what is due. */
static void check_hit(struct tree *t, const struct live *q, const struct prefix_hit *h)
{
	uint32_t most = longest(t, q), page = info_of(t)->page_tokens;

	if (h->n_whole % page || h->n_part >= page || (h->n_part && !h->part) || (h->n_whole && !h->node))
		sim_fail(t->s, "hit", "%u tokens in whole pages, %u in part; pages of %u", h->n_whole,
			h->n_part, page);
	if (h->n_whole + h->n_part > most)
		sim_fail(t->s, "hit", "%u + %u tokens found; tenant %u never offered more than %u of these",
			h->n_whole, h->n_part, q->tenant, most);
	if (t->exact && h->n_whole + h->n_part < most)
		sim_fail(t->s, "hit", "%u + %u tokens found, %u are there", h->n_whole, h->n_part, most);
	if (h->n_tiered &&
		(h->n_tiered % page || h->n_whole + h->n_tiered > q->n ||
			(!t->s->w.host_tier && !t->s->w.disk_tier)))
		sim_fail(t->s, "hit", "%u tokens in a tier behind %u of %u", h->n_tiered, h->n_whole, q->n);
}

static void restore(struct tree *t, struct live *q)
{
	uint64_t budget = rng_chance(&t->r, 500) ? 0 : rng_below(&t->r, 1000000);
	uint32_t n = prefix_restore(
		t->prefix, t->tenant_id[q->tenant], q->tokens, q->n, budget, t->s->fake.now_ns);

	sim_log(t->s, "restored %u pages", n);
}

static void start(struct tree *t, struct live *q)
{
	struct prefix_hit h = { 0 };
	uint32_t covered;

	*q = (struct live){ .tenant = rng_below(&t->r, N_TENANTS), .class = rng_below(&t->r, 2) };
	draw_tokens(t, q);
	prefix_find(t->prefix, t->tenant_id[q->tenant], q->tokens, q->n, &h);
	check_hit(t, q, &h);
	if (h.n_tiered && rng_chance(&t->r, 800)) {
		(void)prefix_restore_ns(t->prefix, &h);
		restore(t, q);
		prefix_find(t->prefix, t->tenant_id[q->tenant], q->tokens, q->n, &h);
		check_hit(t, q, &h);
	}
	q->used = true;
	covered = prefix_share(t->prefix, &h, q->class, t->s->fake.now_ns, &q->table, &q->lease);
	/* with windows a part that cannot be copied may take whole pages with it */
	if (covered != h.n_whole + h.n_part &&
		(info_of(t)->n_groups + !!info_of(t)->window[0] > 1 ? covered > h.n_whole
								    : covered != h.n_whole))
		sim_fail(t->s, "hit", "%u tokens shared of %u + %u", covered, h.n_whole, h.n_part);
	if (t->exact && covered < h.n_whole + h.n_part && kv_pages_free(t->pages, 0))
		sim_fail(t->s, "hit", "%u tokens shared of %u + %u, and pages are free", covered, h.n_whole,
			h.n_part);
	q->past = covered;
	t->s->v.hit_tokens += covered;
	sim_log(t->s, "seq %u of tenant %u: %u tokens, %u + %u found, %u shared", (uint32_t)(q - t->live),
		q->tenant, q->n, h.n_whole, h.n_part, covered);
	check_content(t, q, "sharing");
}

static bool make_room(struct tree *t, const struct live *q, uint32_t n)
{
	uint32_t missing = block_table_missing(&q->table, t->pages, n), want[KV_MAX_GROUPS] = { 0 };
	bool ok, due = true;

	for (uint32_t g = 0; g < info_of(t)->n_groups; g++) {
		want[g] = missing;
		due &= kv_pages_free(t->pages, g) + prefix_evictable(t->prefix, g) >= missing;
	}
	ok = prefix_evict(t->prefix, want, t->s->fake.now_ns);
	for (uint32_t g = 0; g < info_of(t)->n_groups; g++)
		if (ok && kv_pages_free(t->pages, g) < missing)
			sim_fail(t->s, "evict", "says that %u pages of group %u are free; %u are", missing, g,
				kv_pages_free(t->pages, g));
	if (!ok && due && info_of(t)->n_groups == 1)
		sim_fail(t->s, "evict", "%u pages are wanted, %u are free and %u evictable", missing,
			kv_pages_free(t->pages, 0), prefix_evictable(t->prefix, 0));
	return ok;
}

/* Computes some tokens: writes only into pages that are its alone. */
static void compute(struct tree *t, struct live *q)
{
	const struct model_info *m = info_of(t);
	uint32_t more = rng_chance(&t->r, 300) ? 1 : rng_range(&t->r, 1, 3 * m->page_tokens);
	uint32_t n = MIN_OF(q->n, q->past + more);

	if (n == q->past || !make_room(t, q, n))
		return;
	if (block_table_cover(&q->table, t->pages, n)) {
		sim_fail(t->s, "pages", "eviction made room for %u tokens, and the table cannot cover them",
			n);
		return;
	}
	for (uint32_t g = 0; g < m->n_groups; g++)
		for (uint32_t p = q->past; p < n; p++) {
			uint32_t page = q->table.page[g][p / m->page_tokens];

			if (page >= m->n_pages[g] || kv_page_refs(t->pages, g, page) != 1) {
				sim_fail(t->s, "shared",
					"group %u: position %u is written into page %u, which has %u owners",
					g, p, page,
					page < m->n_pages[g] ? kv_page_refs(t->pages, g, page) : 0);
				return;
			}
			t->s->fake.slot[g][(size_t)page * m->page_tokens + p % m->page_tokens] =
				q->hash[p + 1];
		}
	q->past = n;
	t->s->fake.now_ns += 100000;
}

static void trim(struct tree *t, struct live *q)
{
	const struct model_info *m = info_of(t);

	for (uint32_t g = 0; g < m->n_groups; g++)
		if (m->window[g] && q->past + 1 > m->window[g])
			(void)block_table_trim(&q->table, t->pages, g, q->past + 1 - m->window[g]);
	check_content(t, q, "trimming");
}

static void finish(struct tree *t, struct live *q)
{
	block_table_release(&q->table, t->pages);
	prefix_release(t->prefix, &q->lease);
	if (q->lease)
		sim_fail(t->s, "lease", "is not NULL after its release");
	q->used = false;
}

static void offer(struct tree *t, struct live *q)
{
	bool last = rng_chance(&t->r, 400);
	struct offered *o = &t->offered[t->n_offered];
	uint32_t page = info_of(t)->page_tokens;

	if (!q->past || t->n_offered == N_OFFERED)
		return;
	prefix_offer(t->prefix, t->tenant_id[q->tenant], q->tokens, q->past, last, q->class,
		t->s->fake.now_ns, &q->table, &q->lease);
	*o = (struct offered){ .tenant = q->tenant, .n = last ? q->past : q->past / page * page };
	memcpy(o->tokens, q->tokens, o->n * sizeof *o->tokens);
	t->n_offered += o->n > 0;
	sim_log(t->s, "seq %u offers %u tokens, last %d", (uint32_t)(q - t->live), q->past, last);
	check_content(t, q, "offering");
	if (last)
		finish(t, q);
}

/* ---- everything else ------------------------------------------------------------------------------------------------- */

static void evict(struct tree *t)
{
	uint32_t want[KV_MAX_GROUPS] = { 0 };
	for (uint32_t g = 0; g < info_of(t)->n_groups; g++)
		want[g] = rng_below(&t->r, info_of(t)->n_pages[g] + 1);
	(void)prefix_evict(t->prefix, want, t->s->fake.now_ns);
}

static void pin(struct tree *t, const struct live *q)
{
	struct error e = { 0 };
	uint64_t id = 0;
	int rc;

	if (t->n_pins == N_PINS)
		return;
	rc = prefix_pin(t->prefix, t->tenant_id[q->tenant], q->tokens, q->n, &id, &e);
	if (!rc)
		t->pin[t->n_pins++] = id;
	else if ((rc != TENON_E_FULL && rc != TENON_E_NOT_FOUND) || !e.text[0])
		sim_fail(t->s, "pin", "%s (%s)", error_name(rc), e.text);
	if (prefix_pins(t->prefix, NULL, 0) > t->n_pins)
		sim_fail(t->s, "pin", "%zu pins are listed, %u were given", prefix_pins(t->prefix, NULL, 0),
			t->n_pins);
}

static void unpin(struct tree *t)
{
	struct error e = { 0 };

	if (!t->n_pins)
		return;
	if (prefix_unpin(t->prefix, t->pin[--t->n_pins], &e))
		sim_fail(t->s, "pin", "cannot be taken away: %s", e.text);
	for (uint32_t i = 0; i < t->n_pins; i++) /* a text pinned twice has one pin that counts */
		if (t->pin[i] == t->pin[t->n_pins])
			return;
	if (prefix_unpin(t->prefix, t->pin[t->n_pins], &e) != TENON_E_NOT_FOUND)
		sim_fail(t->s, "pin", "can be taken away twice");
}

/* Purged: whatever nothing holds is gone, in tiers too; pins and what they hold stay. */
static void purge(struct tree *t)
{
	uint32_t k = rng_below(&t->r, N_TENANTS + 1);

	sim_log(t->s, "purges %s", k < N_TENANTS ? tenants[k] : "all");
	(void)prefix_purge(t->prefix, k < N_TENANTS ? tenants[k] : NULL);
}

static void set_limits(struct tree *t)
{
	uint64_t host = rng_chance(&t->r, 200) ? 0 : rng_next(&t->r) % (t->s->w.host_bytes + 1);
	uint64_t disk = rng_chance(&t->r, 200) ? 0 : rng_next(&t->r) % (t->s->w.disk_bytes + 1);

	sim_set_limits(t->s, t->prefix, host, disk);
}

static void restart(struct tree *t)
{
	sim_log(t->s, "restart");
	for (uint32_t i = 0; i < N_LIVE; i++)
		if (t->live[i].used)
			finish(t, &t->live[i]);
	close_prefix(t);
	for (uint32_t g = 0; g < info_of(t)->n_groups; g++)
		if (kv_pages_free(t->pages, g) != info_of(t)->n_pages[g])
			sim_fail(t->s, "leak", "group %u: %u pages of %u are free after prefix_destroy", g,
				kv_pages_free(t->pages, g), info_of(t)->n_pages[g]);
	if (rng_chance(&t->r, 300))
		sim_rot(t->s, &t->r);
	fake_forget(&t->s->fake);
	open_prefix(t);
}

static const char *disturb(struct tree *t, struct live *q)
{
	uint32_t k = rng_below(&t->r, 100);
	bool tiers = t->s->w.host_tier || t->s->w.disk_tier;

	if (k < 30) {
		t->exact = false;
		evict(t);
		return "evicting";
	}
	if (k < 45) {
		pin(t, q);
		return "pinning";
	}
	if (k < 55) {
		unpin(t);
		return "unpinning";
	}
	if (k < 60) {
		t->exact = false;
		purge(t);
		return "purging";
	}
	if (k < 64) {
		t->exact = false;
		restart(t);
		return "restarting";
	}
	if (!tiers)
		return "nothing";
	if (k < 72)
		set_limits(t);
	else if (k < 75)
		sim_rot(t->s, &t->r);
	else
		(void)prefix_tend(t->prefix, rng_below(&t->r, 1000000), t->s->fake.now_ns);
	return "tending tiers";
}

static const char *act(struct tree *t)
{
	struct live *q = &t->live[rng_below(&t->r, N_LIVE)];
	uint32_t k = rng_below(&t->r, 100);

	t->s->fake.now_ns += 1000;
	if (k < 8 && !t->exact)
		return disturb(t, q);
	if (k < 1)
		return disturb(t, q);
	if (!q->used) {
		start(t, q);
		return "sharing";
	}
	if (k < 60) {
		compute(t, q);
		if (t->s->w.info.n_groups > 1 && rng_chance(&t->r, 500))
			trim(t, q);
		return "computing";
	}
	if (k < 85) {
		offer(t, q);
		return "offering";
	}
	finish(t, q);
	return "releasing";
}

/* Nothing is left: pages, nodes, bytes of tiers. */
static void tree_end(struct tree *t)
{
	struct prefix_status st;

	for (uint32_t i = 0; i < N_LIVE; i++)
		if (t->live[i].used)
			finish(t, &t->live[i]);
	while (t->n_pins)
		unpin(t);
	if (prefix_pins(t->prefix, NULL, 0))
		sim_fail(t->s, "pin", "%zu pins are left", prefix_pins(t->prefix, NULL, 0));
	check_refs(t, "the end");
	(void)prefix_purge(t->prefix, NULL);
	prefix_get_status(t->prefix, &st);
	for (uint32_t g = 0; g < info_of(t)->n_groups; g++)
		if (st.pages[g] || kv_pages_free(t->pages, g) != info_of(t)->n_pages[g])
			sim_fail(t->s, "leak",
				"group %u: after a purge of all %llu pages are in the tree, %u of %u free", g,
				(unsigned long long)st.pages[g], kv_pages_free(t->pages, g),
				info_of(t)->n_pages[g]);
	if (st.nodes > N_TENANTS || st.pinned_pages)
		sim_fail(t->s, "leak", "after a purge of all there are %llu nodes, %llu pinned pages",
			(unsigned long long)st.nodes, (unsigned long long)st.pinned_pages);
}

void sim_tree_play(struct sim *s, uint64_t seed)
{
	struct tree *t = calloc(1, sizeof *t);
	uint32_t n;

	if (!t) {
		sim_fail(s, "world", "out of memory");
		return;
	}
	t->s = s;
	if (tree_open(t, seed)) {
		n = rng_range(&t->r, 50, 600);
		for (uint32_t i = 0; i < n && !s->v.failed; i++) {
			const char *after = act(t);

			s->fake.n_steps++;
			if (s->v.failed)
				break;
			check_refs(t, after);
			check_limits(s, t->prefix);
			for (uint32_t k = 0; k < N_LIVE && !s->v.failed; k++)
				if (t->live[k].used)
					check_content(t, &t->live[k], after);
		}
		if (!s->v.failed)
			tree_end(t);
	}
	for (uint32_t i = 0; i < N_LIVE; i++)
		if (t->live[i].used) {
			block_table_release(&t->live[i].table, t->pages);
			if (t->prefix)
				prefix_release(t->prefix, &t->live[i].lease);
		}
	close_prefix(t);
	kv_pages_destroy(t->pages);
	free(t);
}
