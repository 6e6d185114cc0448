/* SPDX-License-Identifier: Apache-2.0
 * Inside the graph: what the builder (graph.c), the planner (graph_plan.c), the passes, taps.c and partition.c share.
 */
#ifndef ENGINE_GRAPH_PRIV_H
#define ENGINE_GRAPH_PRIV_H
#include "base/base.h"
#include "engine/graph.h"

struct graph_scope {
	int layer;
	const char *word;
};

struct graph {
	const struct gguf *file;
	struct error e; /* the first fault; code 0: none */
	struct tnp_tensor *tensors;
	const struct gguf_tensor **sources; /* [tensors] of the file; NULL: not from the file */
	struct tnp_node *nodes;
	struct graph_scope *scopes; /* [nodes] */
	struct tnp_attr *attrs;
	uint32_t *edges;
	float *constants;
	uint32_t cap_tensors, cap_sources, cap_nodes, cap_scopes, cap_attrs, cap_edges, cap_constants,
		n_constants, cap_out;
	uint32_t in[1], *out;
	struct graph_scope scope;
	struct tnp_span buffers[2];
	struct tnp_graph g;
	uint64_t live_bytes;
};

static inline bool graph_is_weight(const struct tnp_tensor *t) { return t->buffer != TNP_NONE; }

/* Room for n more; false after a fault. */
bool graph_grow_edges(struct graph *g, uint32_t n);
bool graph_grow_attrs(struct graph *g, uint32_t n);
/* Appends; TNP_NONE after a fault. source: of the file, or NULL. */
graph_tensor graph_tensor_add(struct graph *g, const struct tnp_tensor *t, const struct gguf_tensor *source);
void graph_attr_add(struct graph *g, const struct tnp_attr *a); /* to the node made last */
/* The output that is this tensor, made if there is none yet. */
uint32_t graph_out_of(struct graph *g, graph_tensor t);
/* graph_constant of any shape. */
graph_tensor graph_constant_shaped(struct graph *g, const float *v, uint32_t rank, const int64_t dim[TNP_MAX_RANK]);

/* Offsets, bytes and arena_bytes of the activations. NOMEM. */
int graph_plan(struct graph *g, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_out, struct error *e);
#endif
