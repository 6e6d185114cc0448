/* SPDX-License-Identifier: Apache-2.0
 * The CPU plugin's own declarations: host services, devices, error helpers, element types.
 * plugin.c fills the table; graph.c reads and judges graphs; plan.c turns one into phases and sizes; model.c packs
 * weights; exec.c runs steps; kv.c keeps the pages. Everything but wait() runs on the host's one thread a device.
 */
#ifndef PLUGINS_CPU_CPU_H
#define PLUGINS_CPU_CPU_H
#include <tenon/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "attn.h"
#include "elem.h"
#include "linear.h"
#include "pool.h"

/* One choice of instruction sets: a table a concern. */
struct cpu_isa {
	const char *name;
	const struct linear_ops *linear;
	const struct elem_ops *elem;
	const struct attn_ops *attn;
};

struct tnp_dev {
	const struct cpu_isa *isa;
	struct pool *pool;
	uint64_t next_ticket;
};

extern const struct cpu_isa cpu_isa_base, cpu_isa_avx2, cpu_isa_avxvnni, cpu_isa_vnni, cpu_isa_neon;

/* ---- plugin.c ---- */
const char *cpu_config(const char *key); /* NULL when not set */
bool cpu_stopping(void);
void cpu_progress(const struct tnp_graph *g, uint64_t done, uint64_t total); /* of model_open */
tnp_rc cpu_fail(struct tnp_error *e, tnp_rc rc, uint32_t item, const char *text);
/* Copies a caller's struct of at least its `size` member; UNSUPPORTED on an unknown tail that is not zero. */
tnp_rc cpu_take(void *own, uint32_t own_size, const void *theirs, struct tnp_error *e);
/* Fills a caller's struct as far as it reaches; its `size` then says how far that was. */
void cpu_give(void *theirs, const void *own, uint32_t own_size);

/* ---- types ---- */
struct cpu_type {
	uint32_t block, bytes;
};
bool cpu_type_info(uint32_t type, struct cpu_type *out);

/* ---- memory: zeroed, 2 MiB aligned maps with huge pages asked for ---- */
uint64_t cpu_map_bytes(uint64_t bytes); /* what a map of so many bytes takes */
void *cpu_map(uint64_t bytes);		/* NULL when there is none           */
void cpu_unmap(void *p, uint64_t bytes);

static inline uint64_t cpu_round_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }
#endif
