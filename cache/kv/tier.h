/* SPDX-License-Identifier: Apache-2.0
 * A slower place for evicted prefix pages: host memory or a file. Fixed-size records: one page of every group, with what
 * identifies it: the maker's key (backend, weights, KV type), tenant, the chain of tokens before it, its own tokens, a
 * checksum. The limit counts every byte taken (records, index and the file's head), is checked before anything is
 * allocated or written, also holds for a single record, and can be changed while running. A file survives restarts: what
 * is found in it is checked record by record, anything odd is dropped; another maker's file is replaced.
 * Owner: the step thread.
 */
#ifndef CACHE_KV_TIER_H
#define CACHE_KV_TIER_H
#include "base/base.h"
#include "cache/kv/pages.h"

struct kv_tier_config {
	const char *path;     /* file; NULL: memory. Made with mode 0600 in an existing folder; locked against others */
	uint64_t limit_bytes;
	uint8_t compat[32];   /* pages may be exchanged where this is equal */
	uint32_t n_groups, page_tokens;
	uint64_t page_bytes[KV_MAX_GROUPS];
	uint64_t (*now_ns)(void *ctx); /* NULL: clock_now_ns */
	void *ctx;
};

struct kv_tier;
/* IO (also: the path holds somebody's other file), BUSY (another process has the file), NOMEM, INVALID (geometry). A damaged
 * file is no error: it begins empty, or with the records that are whole. */
int kv_tier_open(const struct kv_tier_config *c, struct kv_tier **out, struct error *e);
void kv_tier_close(struct kv_tier *t);

#define KV_TIER_NONE UINT32_MAX
struct kv_record {
	uint8_t chain[32];  /* hash over tenant and all tokens before this page: finds the parent after a restart */
	char tenant[64];
	uint32_t first;     /* position of the first token */
	uint32_t n_tokens;  /* valid ones in this page */
	uint32_t groups;    /* bit g: the group's page is there (else a hole) */
	uint32_t traffic_class;
	const int32_t *tokens; /* [n_tokens] */
};
/* Keeps a record: data[g] for every group in r->groups. FULL (limit; nothing was allocated or written), IO (a full disk
 * counts, and further puts are refused for a while). */
int kv_tier_put(struct kv_tier *t, const struct kv_record *r, const void *const data[KV_MAX_GROUPS], uint32_t *slot,
	struct error *e);
/* Reads a record into scratch and checks everything against `expect` (chain, tenant, tokens, groups). FORMAT: it is not
 * that or damaged; IO. The record stays. */
int kv_tier_get(struct kv_tier *t, uint32_t slot, const struct kv_record *expect, void *const data[KV_MAX_GROUPS],
	struct error *e);
void kv_tier_drop(struct kv_tier *t, uint32_t slot);
bool kv_tier_has_room(const struct kv_tier *t); /* one more record is within the limit */
/* The tier was opened for pages of this shape. */
bool kv_tier_fits(const struct kv_tier *t, uint32_t n_groups, uint32_t page_tokens, const uint64_t *page_bytes);
/* Makes the next kv_tier_get of this one as slow as a first read: what was written lately is in the kernel's cache. */
void kv_tier_make_cold(struct kv_tier *t, uint32_t slot);
/* Tells the kernel that these will be read soon. */
void kv_tier_hint(struct kv_tier *t, const uint32_t *slots, uint32_t n);
/* Walks records, for rebuilding a tree after a start: parents before children (ascending first). *slot starts as
 * KV_TIER_NONE; records may be dropped on the way, not put. False: end. */
bool kv_tier_each(struct kv_tier *t, uint32_t *slot, struct kv_record *r, int32_t *tokens /* [page_tokens] */);
/* Lower than what is held: calls gone(slot) for each record that had to go (most lately kept stay), moved(from, to) for
 * records that changed places. Afterwards bytes <= limit. */
void kv_tier_set_limit(struct kv_tier *t, uint64_t bytes, void (*gone)(void *ctx, uint32_t slot),
	void (*moved)(void *ctx, uint32_t from, uint32_t to), void *ctx);

struct kv_tier_status { uint64_t bytes, limit_bytes, records, puts, gets, bad, io_errors; double read_bytes_per_ns, write_bytes_per_ns; };
void kv_tier_get_status(const struct kv_tier *t, struct kv_tier_status *out);
#endif
