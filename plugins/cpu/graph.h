/* SPDX-License-Identifier: Apache-2.0
 * Graphs as the host hands them in, read as hostile: graph_check looks at every index once, node_read turns one
 * node into a checked view. Both judge the same things, so verdict and open agree.
 */
#ifndef PLUGINS_CPU_GRAPH_H
#define PLUGINS_CPU_GRAPH_H
#include "cpu.h"

enum {
	NODE_ACTS = 4,
	NODE_WEIGHTS = 8,
	NODE_OUTS = 4,
	ATTR_LIMIT = TNP_A_AXES + 1,
	WIDTH_LIMIT = 1 << 24,
	SLOT_LIMIT = 4096,
	EXPERTS_LIMIT = 4096,
	EXPERT_ROWS_LIMIT = 1 << 26 /* of all experts: so many that their pieces can be counted by a pool */
};
enum space { SPACE_TOKENS, SPACE_SEQS, SPACE_OUT, N_SPACES }; /* what dim[0] of an activation counts */

/* One node, decoded. Inputs are told apart by their storage: weights lie in a buffer, activations do not, and each
 * kind keeps its order. */
struct node_view {
	uint32_t op, node;
	uint32_t n_act, n_weight, n_out;
	uint32_t act[NODE_ACTS], weight[NODE_WEIGHTS], out[NODE_OUTS]; /* tensor numbers */
	bool has[ATTR_LIMIT];
	int64_t i[ATTR_LIMIT];
	double f[ATTR_LIMIT];
};

/* Counts, indices, shapes, buffers, every tensor made once and before it is used. INVALID with the reason. */
tnp_rc graph_check(const struct tnp_graph *g, struct tnp_error *e);
/* Why this plugin does not take the node; NULL when it does. The graph has passed graph_check. */
const char *node_read(
	const struct cpu_isa *isa, const struct tnp_graph *g, uint32_t node, struct node_view *v);

/* What the pool must hold, from the ATTEND nodes: slots without gaps; the reach of a slot is that of the node
 * that looks back furthest; each reach not seen before, in order of slots, opens the next group. */
struct graph_slots {
	uint32_t n, n_groups;
	uint32_t window[TNP_MAX_GROUPS];
	struct tnp_kv_slot *slot; /* [n], heap */
};
tnp_rc graph_slots_find(
	const struct cpu_isa *isa, const struct tnp_graph *g, struct graph_slots *out, struct tnp_error *e);
void graph_slots_finish(struct graph_slots *s);

static inline const struct tnp_tensor *graph_tensor(const struct tnp_graph *g, uint32_t t)
{
	return &g->tensors[t];
}
/* Product of all dimensions but the first; of a vector its length. */
static inline uint64_t tensor_width(const struct tnp_tensor *t)
{
	uint64_t w = 1;

	for (uint32_t d = t->rank > 1 ? 1 : 0; d < t->rank; d++)
		w *= (uint64_t)t->dim[d];
	return w;
}
static inline enum space tensor_space(const struct tnp_tensor *t) { return (enum space)(-t->dim[0] - 1); }
static inline const void *tensor_data(const struct tnp_graph *g, uint32_t t)
{
	return (const uint8_t *)g->buffers[g->tensors[t].buffer].data + g->tensors[t].offset;
}
uint64_t tensor_count(const struct tnp_tensor *t); /* elements of a weight */
#endif
