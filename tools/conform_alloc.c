/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: libc's allocator with a switch that makes it fail. The program's own malloc comes before libc's for
 * every object loaded into it, plugins included, so that "no memory" can be tried at each single allocation. Off in
 * sanitizer builds, which bring an allocator of their own. [any thread]
 */
#include "tools/conform_alloc.h"
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
bool conform_sanitized(void) { return true; }
#else
bool conform_sanitized(void) { return false; }
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)
#define INTERPOSE 1
#endif

#ifdef INTERPOSE
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

/* Allocations until one fails; 0: never. Relaxed: a count, nothing is published through it. */
static _Atomic uint64_t left;
static _Atomic uint64_t n_failed;

static bool fails_now(void)
{
	uint64_t v = atomic_load_explicit(&left, memory_order_relaxed);

	while (v &&
		!atomic_compare_exchange_weak_explicit(
			&left, &v, v - 1, memory_order_relaxed, memory_order_relaxed))
		;
	if (v != 1)
		return false;
	atomic_fetch_add_explicit(&n_failed, 1, memory_order_relaxed);
	errno = ENOMEM;
	return true;
}

/* Seen by all objects in the process, although the build hides symbols. */
#pragma GCC visibility push(default)
void *malloc(size_t n) { return fails_now() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t bytes) { return fails_now() ? NULL : __libc_calloc(n, bytes); }
void *realloc(void *p, size_t n) { return fails_now() ? NULL : __libc_realloc(p, n); }
void *memalign(size_t align, size_t n) { return fails_now() ? NULL : __libc_memalign(align, n); }
void *aligned_alloc(size_t align, size_t n) { return fails_now() ? NULL : __libc_memalign(align, n); }

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p = fails_now() ? NULL : __libc_memalign(align, n);

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
#pragma GCC visibility pop

bool conform_alloc_works(void) { return true; }
void conform_alloc_fail_at(uint64_t n)
{
	atomic_store_explicit(&n_failed, 0, memory_order_relaxed);
	atomic_store_explicit(&left, n, memory_order_relaxed);
}
uint64_t conform_alloc_failed(void)
{
	atomic_store_explicit(&left, 0, memory_order_relaxed);
	return atomic_load_explicit(&n_failed, memory_order_relaxed);
}
#else
bool conform_alloc_works(void) { return false; }
void conform_alloc_fail_at(uint64_t n) { (void)n; }
uint64_t conform_alloc_failed(void) { return 0; }
#endif
