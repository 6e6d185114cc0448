/* SPDX-License-Identifier: Apache-2.0
 * Inside of a tier: what memory and file have in common (tier.c) and what each does its own way (struct tier_media).
 * A slot is a place for one record; slots in use have a serial, which grows with each record kept.
 * Owner: the step thread.
 */
#ifndef CACHE_KV_TIER_PRIV_H
#define CACHE_KV_TIER_PRIV_H
#include "cache/kv/tier.h"
#include <sys/types.h>

enum { TIER_SUM_BYTES = 32, TIER_MAX_RECORD_BYTES = 1 << 30 };
#define TIER_MAX_SLOTS	  0x7fffffffu
#define TIER_RECORD_MAGIC 0x544e5243u
#define TIER_REFUSE_NS	  (5 * NS_PER_S)

/* As it stands in memory and in a file, tokens behind it, then zeros up to head_bytes. */
struct tier_head {
	uint8_t head_sum[TIER_SUM_BYTES]; /* over all of the head behind this, keyed by compat */
	uint8_t data_sum[TIER_SUM_BYTES]; /* over the pages, keyed by compat; zeros in memory */
	uint8_t chain[32];
	char tenant[64];
	uint64_t serial;
	uint32_t magic, first, n_tokens, groups, traffic_class, pad;
};

struct tier_slot {
	uint64_t serial; /* 0: free */
	uint8_t *block;	 /* memory only */
	uint32_t first, pad;
};

struct tier_io { /* a file's calls; tests put failing ones here */
	ssize_t (*read)(int fd, void *p, size_t n, off_t at);
	ssize_t (*write)(int fd, const void *p, size_t n, off_t at);
	int (*truncate)(int fd, off_t bytes);
};

struct tier_media {
	bool checked; /* pages carry a checksum */
	/* Bytes taken with this many slots, records and room in the index. */
	uint64_t (*bytes)(const struct kv_tier *t, uint32_t n_slots, uint32_t n_records, uint32_t cap);
	int (*write)(struct kv_tier *t, uint32_t slot, const uint8_t *head,
		const void *const data[KV_MAX_GROUPS], uint32_t groups);
	bool (*read_head)(struct kv_tier *t, uint32_t slot, uint8_t *head);
	bool (*read_data)(struct kv_tier *t, uint32_t slot, void *const data[KV_MAX_GROUPS], uint32_t groups);
	void (*erase)(struct kv_tier *t, uint32_t slot);
	bool (*move)(struct kv_tier *t, uint32_t from, uint32_t to);
	void (*cut)(struct kv_tier *t, uint32_t n_slots); /* the rest is free */
};

struct kv_tier {
	const struct tier_media *media;
	uint32_t n_groups, page_tokens;
	uint64_t page_bytes[KV_MAX_GROUPS], data_bytes;
	uint32_t head_bytes;
	uint8_t compat[32];
	uint64_t (*now_ns)(void *ctx);
	void *ctx;
	struct tier_slot *slot;	     /* [cap]; those behind n_slots are free and take no room in a file */
	uint32_t n_slots, cap, hint; /* no free slot before hint */
	uint64_t last_serial, refuse_until_ns, refuse_ns;
	uint8_t *head;	 /* [head_bytes] scratch */
	uint64_t *order; /* kv_tier_each: first << 32 | slot, ascending */
	uint32_t n_order, at_order;
	struct kv_tier_status status;
	struct tier_io io;
	int fd;
	bool has_head;
};

extern const struct tier_media tier_memory, tier_file;
int tier_file_open(
	struct kv_tier *t, const char *path, struct error *e); /* calls tier_found for each whole record */
void tier_file_close(struct kv_tier *t);
bool tier_head_check(const struct kv_tier *t, const uint8_t *head);	/* whole, and its numbers in range */
bool tier_found(struct kv_tier *t, uint32_t slot, const uint8_t *head); /* false: out of memory */
void tier_sum(const struct kv_tier *t, const uint8_t *p, size_t n, uint8_t out[TIER_SUM_BYTES]);
#endif
