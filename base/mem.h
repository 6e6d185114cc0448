/* SPDX-License-Identifier: Apache-2.0
 * Memory by area, so that `tenonctl memory` can say who holds what. With jemalloc each area is an arena of its
 * own; else a 16-byte head counts. Every call may return NULL: callers answer TENON_E_NOMEM, nobody aborts.
 * [any thread]. Plain malloc stays for libraries; everything of Tenon's own goes through here.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H
#include <stddef.h>
#include <stdint.h>

/* X(symbol, name shown) */
#define MEM_AREAS(X)               \
	X(MEM_BASE, "base")        \
	X(MEM_IPC, "ipc")          \
	X(MEM_DAEMON, "daemon")    \
	X(MEM_SCHED, "sched")      \
	X(MEM_KV, "kv")            \
	X(MEM_ENGINE, "engine")    \
	X(MEM_TOKENIZER, "tokenizer") \
	X(MEM_TEMPLATE, "template") \
	X(MEM_PLUGIN, "plugin")    \
	X(MEM_TOOL, "tool")

enum mem_area {
#define MEM_X(sym, name) sym,
	MEM_AREAS(MEM_X)
#undef MEM_X
	MEM_N_AREAS
};

void *mem_alloc(enum mem_area area, size_t bytes);             /* not cleared; size 0 gives a pointer to free */
void *mem_zalloc(enum mem_area area, size_t n, size_t bytes);  /* cleared [n][bytes]; NULL on overflow too    */
void *mem_resize(enum mem_area area, void *p, size_t bytes);   /* p may be NULL; old block intact on failure  */
char *mem_strdup(enum mem_area area, const char *s);
char *mem_strndup(enum mem_area area, const char *s, size_t n); /* copies n bytes and terminates              */
void mem_free(void *p);                                        /* NULL is fine                                */

uint64_t mem_area_bytes(enum mem_area area); /* live bytes */
const char *mem_area_name(enum mem_area area);
uint64_t mem_n_allocs(void);                 /* calls so far; what "no allocation on this path" tests count */

/* Test support: the n-th call from now fails once (0 switches off). Costs one relaxed load a call. */
void mem_fail_at(uint64_t n);

/* Frees *p and clears it. */
#define MEM_CLEAR(p) (mem_free(p), (p) = NULL)
#endif
