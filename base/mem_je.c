/* SPDX-License-Identifier: Apache-2.0
 * mem.h over jemalloc: one arena an area, made at the first allocation from it. The thread caches are left out:
 * they would mix areas and count freed blocks as live. The token path allocates nothing, so nobody pays.
 */
#include "base/mem_common.h"
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdio.h>

static _Atomic unsigned arenas[MEM_N_AREAS]; /* arena index + 1; 0: not made yet */
static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned arena_make(enum mem_area area)
{
	unsigned idx, known;
	size_t len = sizeof idx;

	(void)pthread_mutex_lock(&arenas_lock);
	known = atomic_load_explicit(&arenas[area], memory_order_acquire);
	if (!known && !mallctl("arenas.create", &idx, &len, NULL, 0)) {
		known = idx + 1;
		atomic_store_explicit(&arenas[area], known, memory_order_release);
	}
	(void)pthread_mutex_unlock(&arenas_lock);
	return known;
}

/* Flags for mallocx; without an arena (none could be made) the default one serves, uncounted. */
static int area_flags(enum mem_area area)
{
	unsigned known = atomic_load_explicit(&arenas[area], memory_order_acquire);

	if (!known)
		known = arena_make(area);
	return (known ? MALLOCX_ARENA(known - 1) : 0) | MALLOCX_TCACHE_NONE;
}

void *mem_alloc(enum mem_area area, size_t bytes)
{
	return mem_count() || bytes > PTRDIFF_MAX ? NULL : mallocx(bytes ? bytes : 1, area_flags(area));
}

void *mem_resize(enum mem_area area, void *p, size_t bytes)
{
	if (!p)
		return mem_alloc(area, bytes);
	return mem_count() || bytes > PTRDIFF_MAX ? NULL : rallocx(p, bytes ? bytes : 1, area_flags(area));
}

void mem_free(void *p)
{
	if (p)
		dallocx(p, MALLOCX_TCACHE_NONE);
}

static uint64_t arena_stat(unsigned arena, const char *kind)
{
	char name[64];
	size_t v = 0, len = sizeof v;

	(void)snprintf(name, sizeof name, "stats.arenas.%u.%s.allocated", arena, kind);
	return mallctl(name, &v, &len, NULL, 0) ? 0 : v;
}

uint64_t mem_area_bytes(enum mem_area area)
{
	uint64_t epoch = 1;
	size_t len = sizeof epoch;
	unsigned known = (unsigned)area < MEM_N_AREAS ? atomic_load(&arenas[area]) : 0;

	if (!known)
		return 0;
	(void)mallctl("epoch", &epoch, &len, &epoch, len);
	return arena_stat(known - 1, "small") + arena_stat(known - 1, "large");
}
