/* SPDX-License-Identifier: Apache-2.0
 * Shared by the two allocators behind mem.h; included once by each.
 */
#ifndef BASE_MEM_COMMON_H
#define BASE_MEM_COMMON_H
#include "base/checked.h"
#include "base/mem.h"
#include <stdatomic.h>
#include <string.h>

static _Atomic uint64_t n_allocs, fail_at;

uint64_t mem_n_allocs(void) { return atomic_load_explicit(&n_allocs, memory_order_relaxed); }

void mem_fail_at(uint64_t n)
{
	atomic_store_explicit(&fail_at, n ? mem_n_allocs() + n : 0, memory_order_relaxed);
}

/* Counts the call; true when it is the one that has to fail. */
static bool mem_count(void)
{
	uint64_t n = atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed) + 1;

	return n == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *mem_zalloc(enum mem_area area, size_t n, size_t bytes)
{
	size_t all;
	void *p;

	if (!checked_mul_size(n, bytes, &all))
		return NULL;
	p = mem_alloc(area, all);
	return p ? memset(p, 0, all) : NULL;
}

char *mem_strndup(enum mem_area area, const char *s, size_t n)
{
	size_t all;
	char *p;

	if (!checked_add_size(n, 1, &all))
		return NULL;
	p = mem_alloc(area, all);
	if (!p)
		return NULL;
	memcpy(p, s, n);
	p[n] = 0;
	return p;
}

char *mem_strdup(enum mem_area area, const char *s) { return mem_strndup(area, s, strlen(s)); }

const char *mem_area_name(enum mem_area area)
{
	static const char *const names[] = {
#define MEM_X(sym, name) name,
		MEM_AREAS(MEM_X)
#undef MEM_X
	};

	return (unsigned)area < MEM_N_AREAS ? names[area] : "unknown";
}
#endif
