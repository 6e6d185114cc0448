/* SPDX-License-Identifier: Apache-2.0
 * See pages.h. Free pages form a stack, so that pages used last are used again first (they are warm).
 */
#include "cache/kv/pages.h"
#include <string.h>

#define CACHED 0x80000000u /* in a page's count: the prefix tree has one of the references */

struct group {
	uint32_t *refs;	 /* [n], with CACHED */
	uint32_t *stack; /* [n], the first n_free are free */
	uint32_t n, n_free, n_idle;
};

struct kv_pages {
	struct group group[KV_MAX_GROUPS];
	uint32_t n_groups, page_tokens;
};

static bool group_init(struct group *g, uint32_t n)
{
	g->refs = mem_zalloc(MEM_KV, n, sizeof *g->refs);
	g->stack = mem_zalloc(MEM_KV, n, sizeof *g->stack);
	if (!g->refs || !g->stack)
		return false;
	g->n = g->n_free = n;
	for (uint32_t i = 0; i < n; i++)
		g->stack[i] = n - 1 - i;
	return true;
}

int kv_pages_create(uint32_t n_groups, const uint32_t *n_pages, uint32_t page_tokens, struct kv_pages **out,
	struct error *e)
{
	struct kv_pages *p;

	if (n_groups > KV_MAX_GROUPS || !page_tokens)
		return error_set(
			e, TENON_E_INVALID, "pages: %u groups of %u tokens a page", n_groups, page_tokens);
	p = mem_zalloc(MEM_KV, 1, sizeof *p);
	if (!p)
		return error_set(e, TENON_E_NOMEM, "pages: out of memory");
	p->n_groups = n_groups;
	p->page_tokens = page_tokens;
	for (uint32_t g = 0; g < n_groups; g++)
		if (!group_init(&p->group[g], n_pages[g])) {
			kv_pages_destroy(p);
			return error_set(
				e, TENON_E_NOMEM, "pages: out of memory for a list of %u", n_pages[g]);
		}
	*out = p;
	return TENON_OK;
}

void kv_pages_destroy(struct kv_pages *p)
{
	if (!p)
		return;
	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
		mem_free(p->group[g].refs);
		mem_free(p->group[g].stack);
	}
	mem_free(p);
}

uint32_t kv_pages_free(const struct kv_pages *p, uint32_t group) { return p->group[group].n_free; }
uint32_t kv_pages_total(const struct kv_pages *p, uint32_t group) { return p->group[group].n; }
uint32_t kv_pages_tokens(const struct kv_pages *p) { return p->page_tokens; }
uint32_t kv_pages_groups(const struct kv_pages *p) { return p->n_groups; }

uint32_t kv_pages_idle(const struct kv_pages *p, uint32_t group) { return p->group[group].n_idle; }

uint32_t kv_page_refs(const struct kv_pages *p, uint32_t group, uint32_t page)
{
	return p->group[group].refs[page] & ~CACHED;
}

bool kv_page_cached(const struct kv_pages *p, uint32_t group, uint32_t page)
{
	return p->group[group].refs[page] & CACHED;
}

/* Every change of a count or mark passes here, so that n_idle is right. */
static void page_set(struct group *g, uint32_t page, uint32_t refs)
{
	g->n_idle -= g->refs[page] == (CACHED | 1);
	g->n_idle += refs == (CACHED | 1);
	g->refs[page] = refs;
}

uint32_t kv_page_take(struct kv_pages *p, uint32_t group)
{
	struct group *g = &p->group[group];
	uint32_t page;

	if (!g->n_free)
		return KV_NO_PAGE;
	page = g->stack[--g->n_free];
	g->refs[page] = 1;
	return page;
}

void kv_page_ref(struct kv_pages *p, uint32_t group, uint32_t page)
{
	struct group *g = &p->group[group];

	page_set(g, page, g->refs[page] + 1);
}

void kv_page_unref(struct kv_pages *p, uint32_t group, uint32_t page)
{
	struct group *g = &p->group[group];

	if (page == KV_NO_PAGE || page >= g->n || !g->refs[page])
		return;
	if ((g->refs[page] & ~CACHED) > 1) {
		page_set(g, page, g->refs[page] - 1);
		return;
	}
	page_set(g, page, 0);
	g->stack[g->n_free++] = page;
}

void kv_page_set_cached(struct kv_pages *p, uint32_t group, uint32_t page, bool cached)
{
	struct group *g = &p->group[group];

	page_set(g, page, cached ? g->refs[page] | CACHED : g->refs[page] & ~CACHED);
}

static uint64_t pages_for(const struct kv_pages *p, uint64_t n_tokens)
{
	return n_tokens / p->page_tokens + (n_tokens % p->page_tokens != 0);
}

uint32_t block_table_missing(const struct block_table *t, const struct kv_pages *p, uint64_t n_tokens)
{
	uint64_t want = pages_for(p, n_tokens);

	return want <= t->n_pages ? 0 : (uint32_t)MIN_OF(want - t->n_pages, UINT32_MAX);
}

static bool table_grow(struct block_table *t, uint32_t n_groups, uint32_t want)
{
	uint32_t cap = MAX_OF(want, t->cap + t->cap / 2 + 8);

	if (want <= t->cap)
		return true;
	for (uint32_t g = 0; g < n_groups; g++) {
		uint32_t *page = mem_resize(MEM_KV, t->page[g], (size_t)cap * sizeof *page);

		if (!page)
			return false;
		t->page[g] = page;
	}
	t->cap = cap;
	return true;
}

int block_table_reserve(struct block_table *t, const struct kv_pages *p, uint32_t n_pages)
{
	return table_grow(t, p->n_groups, n_pages) ? TENON_OK : TENON_E_NOMEM;
}

int block_table_cover(struct block_table *t, struct kv_pages *p, uint64_t n_tokens)
{
	uint32_t more = block_table_missing(t, p, n_tokens);

	for (uint32_t g = 0; g < p->n_groups; g++)
		if (p->group[g].n_free < more)
			return TENON_E_NOMEM;
	if (!more)
		return TENON_OK;
	if (!table_grow(t, p->n_groups, t->n_pages + more))
		return TENON_E_NOMEM;
	for (uint32_t i = 0; i < more; i++, t->n_pages++)
		for (uint32_t g = 0; g < p->n_groups; g++)
			t->page[g][t->n_pages] = kv_page_take(p, g);
	return TENON_OK;
}

uint32_t block_table_trim(struct block_table *t, struct kv_pages *p, uint32_t group, uint64_t first_position)
{
	uint64_t end = MIN_OF(first_position / p->page_tokens, t->n_pages);
	uint32_t n = 0;

	while (end && t->page[group][end - 1] != KV_NO_PAGE) {
		kv_page_unref(p, group, t->page[group][--end]);
		t->page[group][end] = KV_NO_PAGE;
		n++;
	}
	return n;
}

void block_table_release(struct block_table *t, struct kv_pages *p)
{
	for (uint32_t g = 0; g < p->n_groups; g++) {
		for (uint32_t i = t->n_pages; i-- > 0;)
			kv_page_unref(p, g, t->page[g][i]);
		mem_free(t->page[g]);
	}
	*t = (struct block_table){ 0 };
}
