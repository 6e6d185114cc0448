/* SPDX-License-Identifier: Apache-2.0
 * KV pages as plain numbers: who uses which, how often. What is inside a page is the backend's affair. A group is
 * a set of layers of equal reach with its own pages (plugin.h). A block table is one sequence's list of pages.
 * Owner: the step thread. No allocation after create, but for a block table's growth.
 */
#ifndef CACHE_KV_PAGES_H
#define CACHE_KV_PAGES_H
#include "base/base.h"

#define KV_MAX_GROUPS 4u
#define KV_NO_PAGE    0xffffffffu

struct kv_pages;
/* n_pages[n_groups]; page_tokens tokens each. Without groups (a model that keeps nothing) tables cover what they like. */
int kv_pages_create(uint32_t n_groups, const uint32_t *n_pages, uint32_t page_tokens, struct kv_pages **out,
	struct error *e);
void kv_pages_destroy(struct kv_pages *p);
uint32_t kv_pages_free(const struct kv_pages *p, uint32_t group);
uint32_t kv_pages_total(const struct kv_pages *p, uint32_t group);
uint32_t kv_pages_tokens(const struct kv_pages *p); /* per page */
uint32_t kv_pages_groups(const struct kv_pages *p);
uint32_t kv_page_refs(const struct kv_pages *p, uint32_t group, uint32_t page); /* 0: free */
uint32_t kv_page_take(struct kv_pages *p, uint32_t group); /* one reference; KV_NO_PAGE: none free */
void kv_page_ref(struct kv_pages *p, uint32_t group, uint32_t page);
void kv_page_unref(struct kv_pages *p, uint32_t group, uint32_t page); /* the last one frees it */
/* What the prefix tree owns is marked, once; the mark goes with the last reference. Idle: marked pages that nobody else
 * refers to. */
void kv_page_set_cached(struct kv_pages *p, uint32_t group, uint32_t page, bool cached);
bool kv_page_cached(const struct kv_pages *p, uint32_t group, uint32_t page);
uint32_t kv_pages_idle(const struct kv_pages *p, uint32_t group);

struct block_table { /* zero-initialise */
	/* [n_pages], from position 0; KV_NO_PAGE: a hole. A group's holes stand before its pages */
	uint32_t *page[KV_MAX_GROUPS];
	uint32_t n_pages, cap;
};
/* Makes the table cover n_tokens positions: takes pages of every group, or none at all (NOMEM: not enough free). */
int block_table_cover(struct block_table *t, struct kv_pages *p, uint64_t n_tokens);
int block_table_reserve(
	struct block_table *t, const struct kv_pages *p, uint32_t n_pages); /* room only; NOMEM */
/* Pages missing to cover n_tokens. */
uint32_t block_table_missing(const struct block_table *t, const struct kv_pages *p, uint64_t n_tokens);
/* Gives back the pages of `group` that end at or before first_position (what a window no longer reaches) and leaves holes
 * (KV_NO_PAGE is the plugin's TNP_PAGE_HOLE). Returns the pages given back. Costs only what it gives back. */
uint32_t block_table_trim(struct block_table *t, struct kv_pages *p, uint32_t group, uint64_t first_position);
void block_table_release(
	struct block_table *t, struct kv_pages *p); /* gives all pages back, frees the table */
#endif
