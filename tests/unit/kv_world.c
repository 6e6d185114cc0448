/* SPDX-License-Identifier: Apache-2.0
 * See kv_world.h.
 */
#include "tests/unit/kv_world.h"
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

static bool fails(uint64_t *counter) { return *counter && !--*counter; }

static int copy(void *ctx, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	struct world *w = ctx;

	w->n_copies++;
	if (fails(&w->fail_copy))
		return error_set(e, TENON_E_BACKEND, "copy: made to fail; nothing to do");
	assert_int_not_equal(from, to);
	memset(w->place[group] + (size_t)to * w->page_tokens, 0, w->page_tokens * sizeof(uint64_t));
	memcpy(w->place[group] + (size_t)to * w->page_tokens, w->place[group] + (size_t)from * w->page_tokens,
		n_tokens * sizeof(uint64_t));
	return TENON_OK;
}

static int page_read(void *ctx, uint32_t group, uint32_t page, void *out, struct error *e)
{
	struct world *w = ctx;

	w->n_reads++;
	if (fails(&w->fail_read))
		return error_set(e, TENON_E_BACKEND, "read: made to fail; nothing to do");
	memcpy(out, w->place[group] + (size_t)page * w->page_tokens, w->page_tokens * sizeof(uint64_t));
	return TENON_OK;
}

static int page_write(void *ctx, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	struct world *w = ctx;

	w->n_writes++;
	if (fails(&w->fail_write))
		return error_set(e, TENON_E_BACKEND, "write: made to fail; nothing to do");
	memcpy(w->place[group] + (size_t)page * w->page_tokens, in, w->page_tokens * sizeof(uint64_t));
	return TENON_OK;
}

static uint64_t now(void *ctx)
{
	struct world *w = ctx;

	return w->now_ns += 1000;
}

void world_reopen(struct world *w)
{
	prefix_destroy(w->prefix);
	w->prefix = NULL;
	assert_int_equal(prefix_create(&w->config, &w->prefix, NULL), TENON_OK);
}

void world_open(struct world *w)
{
	assert_int_equal(kv_pages_create(w->n_groups, w->n_pages, w->page_tokens, &w->pages, NULL), TENON_OK);
	w->config.pages = w->pages;
	w->config.store = (struct prefix_store){
		.ctx = w, .copy = copy, .read = page_read, .write = page_write, .now_ns = now
	};
	for (uint32_t g = 0; g < w->n_groups; g++) {
		w->place[g] = calloc((size_t)w->n_pages[g] * w->page_tokens, sizeof(uint64_t));
		assert_non_null(w->place[g]);
		w->config.window[g] = w->window[g];
		w->config.page_bytes[g] = w->page_tokens * sizeof(uint64_t);
	}
	world_reopen(w);
}

uint32_t world_begin(struct world *w)
{
	world_open(w);
	return prefix_tenant(w->prefix, "t");
}

void world_close(struct world *w)
{
	prefix_destroy(w->prefix);
	w->prefix = NULL;
	for (uint32_t g = 0; g < w->n_groups; g++) {
		assert_int_equal(kv_pages_free(w->pages, g), w->n_pages[g]);
		free(w->place[g]);
	}
	kv_pages_destroy(w->pages);
}

struct kv_tier_config world_tier(const struct world *w, const char *path, uint64_t limit_bytes)
{
	struct kv_tier_config c = { .path = path,
		.limit_bytes = limit_bytes,
		.n_groups = w->n_groups,
		.page_tokens = w->page_tokens };

	memset(c.compat, 7, sizeof c.compat);
	for (uint32_t g = 0; g < w->n_groups; g++)
		c.page_bytes[g] = w->page_tokens * sizeof(uint64_t);
	return c;
}

/* ---- sequences ----------------------------------------------------------------------------------------------------- */
/* Places before the reach of the token at `next` may be holes; what is there must be right. */
static void check_group(const struct world *w, const struct seq *s, uint32_t g, uint32_t n)
{
	uint64_t h = g;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t page = s->table.page[g][i / w->page_tokens];

		h = mix(h, (uint32_t)s->tokens[i]);
		if (page != KV_NO_PAGE)
			assert_int_equal(w->place[g][(size_t)page * w->page_tokens + i % w->page_tokens], h);
		else
			assert_true(w->window[g] && i + w->window[g] <= n);
	}
}

void seq_check(const struct world *w, const struct seq *s)
{
	for (uint32_t g = 0; g < w->n_groups; g++)
		check_group(w, s, g, s->computed);
}

void seq_begin(
	struct world *w, struct seq *s, uint32_t tenant, uint32_t traffic_class, int32_t *tokens, uint32_t n)
{
	struct prefix_hit hit;

	*s = (struct seq){ .tenant = tenant, .traffic_class = traffic_class, .tokens = tokens, .n = n };
	prefix_find(w->prefix, tenant, tokens, n - 1, &hit);
	s->shared = prefix_share(w->prefix, &hit, traffic_class, w->now_ns, &s->table, &s->lease);
	assert_true(s->shared == hit.n_whole + hit.n_part || (s->shared <= hit.n_whole && hit.n_part) ||
		(!s->shared && w->starving));
	assert_int_equal(s->table.n_pages, (s->shared + w->page_tokens - 1) / w->page_tokens);
	s->computed = s->shared;
	seq_check(w, s);
}

static void compute_group(struct world *w, const struct seq *s, uint32_t g, uint32_t upto)
{
	uint64_t h = g;

	for (uint32_t i = 0; i < upto; i++) {
		uint32_t page = s->table.page[g][i / w->page_tokens];

		h = mix(h, (uint32_t)s->tokens[i]);
		if (i < s->computed)
			continue;
		assert_int_not_equal(page, KV_NO_PAGE);
		w->place[g][(size_t)page * w->page_tokens + i % w->page_tokens] = h;
	}
}

bool seq_compute(struct world *w, struct seq *s, uint32_t upto)
{
	uint32_t missing = block_table_missing(&s->table, w->pages, upto), want[KV_MAX_GROUPS];

	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
		want[g] = missing;
	if (!prefix_evict(w->prefix, want, w->now_ns) || block_table_cover(&s->table, w->pages, upto))
		return false;
	for (uint32_t g = 0; g < w->n_groups; g++)
		compute_group(w, s, g, upto);
	s->computed = upto;
	for (uint32_t g = 0; g < w->n_groups; g++)
		if (w->window[g] && upto + 1 > w->window[g])
			(void)block_table_trim(&s->table, w->pages, g, upto + 1 - w->window[g]);
	return true;
}

void seq_offer(struct world *w, struct seq *s, bool last)
{
	prefix_offer(w->prefix, s->tenant, s->tokens, s->computed, last, s->traffic_class, w->now_ns,
		&s->table, &s->lease);
	seq_check(w, s);
}

void seq_drop(struct world *w, struct seq *s)
{
	block_table_release(&s->table, w->pages);
	prefix_release(w->prefix, &s->lease);
}

uint32_t seq_run(struct world *w, uint32_t tenant, uint32_t traffic_class, int32_t *tokens, uint32_t n)
{
	struct seq s;

	seq_begin(w, &s, tenant, traffic_class, tokens, n);
	for (uint32_t upto = s.computed; upto < n;) {
		upto = MIN_OF(upto + w->page_tokens, n);
		if (!seq_compute(w, &s, upto))
			break;
		seq_offer(w, &s, false);
	}
	seq_offer(w, &s, true);
	seq_drop(w, &s);
	return s.shared;
}

uint32_t world_found(struct world *w, uint32_t tenant, const int32_t *tokens, uint32_t n)
{
	struct prefix_hit hit;

	prefix_find(w->prefix, tenant, tokens, n, &hit);
	return hit.n_whole + hit.n_part;
}

bool world_evict(struct world *w, uint32_t n_more)
{
	uint32_t want[KV_MAX_GROUPS] = { 0 };

	for (uint32_t g = 0; g < w->n_groups; g++)
		want[g] = kv_pages_free(w->pages, g) + n_more;
	return prefix_evict(w->prefix, want, w->now_ns);
}

void text_make(int32_t *tokens, uint32_t n, int32_t base)
{
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = base + (int32_t)i;
}

uint32_t next_random(uint64_t *s, uint32_t below)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) % below);
}
