/* SPDX-License-Identifier: Apache-2.0
 * mem.h over libc: a head of 16 bytes keeps area and size. For libtenon and for sanitizer builds.
 */
#include "base/mem_common.h"
#include <stdlib.h>

struct head {
	uint64_t bytes;
	uint32_t area, magic;
};
_Static_assert(sizeof(struct head) == 16, "blocks stay aligned to 16");
#define HEAD_MAGIC 0x6d656d21u

static _Atomic uint64_t live[MEM_N_AREAS];

static void *head_fill(struct head *h, enum mem_area area, size_t bytes)
{
	*h = (struct head){ .bytes = bytes, .area = area, .magic = HEAD_MAGIC };
	atomic_fetch_add_explicit(&live[area], bytes, memory_order_relaxed);
	return h + 1;
}

void *mem_alloc(enum mem_area area, size_t bytes)
{
	size_t all;
	struct head *h;

	if (mem_count() || !checked_add_size(bytes, sizeof *h, &all))
		return NULL;
	h = malloc(all + !bytes); /* a pointer behind the head's end would look like a leak to a leak checker */
	return h ? head_fill(h, area, bytes) : NULL;
}

void *mem_resize(enum mem_area area, void *p, size_t bytes)
{
	struct head *h = p ? (struct head *)p - 1 : NULL, old;
	size_t all;

	if (!p)
		return mem_alloc(area, bytes);
	if (mem_count() || !checked_add_size(bytes, sizeof *h, &all))
		return NULL;
	old = *h;
	h = realloc(h, all + !bytes);
	if (!h)
		return NULL;
	atomic_fetch_sub_explicit(&live[old.area], old.bytes, memory_order_relaxed);
	return head_fill(h, area, bytes);
}

void mem_free(void *p)
{
	struct head *h;

	if (!p)
		return;
	h = (struct head *)p - 1;
	if (h->magic != HEAD_MAGIC)
		abort(); /* our own bug: not a block of ours, or freed twice */
	h->magic = 0;
	atomic_fetch_sub_explicit(&live[h->area], h->bytes, memory_order_relaxed);
	free(h);
}

uint64_t mem_area_bytes(enum mem_area area)
{
	return (unsigned)area < MEM_N_AREAS ? atomic_load_explicit(&live[area], memory_order_relaxed) : 0;
}
