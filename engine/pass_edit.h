/* SPDX-License-Identifier: Apache-2.0
 * For the passes: reading and changing nodes, with who makes a tensor and how many read it kept true on the way. A pass
 * looks at a node, follows its inputs back to their makers, and puts or drops nodes; nodes keep their places until the pass
 * ends, so a number stays good. A tensor may stand in for another from the next look on.
 */
#ifndef ENGINE_PASS_EDIT_H
#define ENGINE_PASS_EDIT_H
#include "engine/graph_priv.h"
#include "engine/pass.h"

enum { PASS_ACTS = 4, PASS_WEIGHTS = 8, PASS_OUTS = 4, PASS_ATTRS = 16 };

struct pass_node { /* one node, taken apart */
	uint32_t op, n_act, n_weight, n_out, n_attr;
	graph_tensor act[PASS_ACTS], weight[PASS_WEIGHTS], out[PASS_OUTS];
	struct tnp_attr attr[PASS_ATTRS];
};

struct pass_edit {
	struct graph *g;
	uint32_t *maker;    /* [room] node that writes a tensor, or TNP_NONE */
	uint32_t *uses;	    /* [room] inputs of nodes and outputs of the graph that name it */
	graph_tensor *same; /* [room] the tensor in its place: itself, or one that must be asked again */
	uint32_t room, n_known;
	uint32_t changes;
	const struct pass_options *o;
	struct graph *fresh; /* what pass_emit appends to */
};

/* ---- looking -------------------------------------------------------------------------------------------------- */
/* False for a place that was dropped, and for a node with more of something than any pass handles. */
bool pass_get(struct pass_edit *x, uint32_t node, struct pass_node *out);
/* The maker of t if it is an operator `op`: its place in *at. */
bool pass_made_by(struct pass_edit *x, graph_tensor t, uint32_t op, uint32_t *at, struct pass_node *out);
const struct tnp_tensor *pass_tensor(const struct pass_edit *x, graph_tensor t);
bool pass_is_out(const struct pass_edit *x, graph_tensor t); /* of the graph */
bool pass_same_shape(const struct pass_edit *x, graph_tensor a, graph_tensor b);
/* One reader and no output of the graph: whoever takes its reader's place may take its maker's too. */
bool pass_only_here(const struct pass_edit *x, graph_tensor t);
const struct tnp_attr *pass_attr(const struct pass_node *n, uint32_t key); /* NULL: not given */
int64_t pass_int(const struct pass_node *n, uint32_t key, int64_t otherwise);
double pass_float(const struct pass_node *n, uint32_t key, double otherwise);
/* A product's matrices come first among its weights, then its biases. */
uint32_t pass_n_matrices(const struct pass_edit *x, const struct pass_node *n);

/* ---- changing --------------------------------------------------------------------------------------------------- */
void pass_put(struct pass_edit *x, uint32_t node, const struct pass_node *n);
void pass_drop(struct pass_edit *x, uint32_t node);
/* Readers of `from`, the graph's outputs included, read `to` from now on. */
void pass_stand_in(struct pass_edit *x, graph_tensor from, graph_tensor to);
void pass_set_int(struct pass_node *n, uint32_t key, int64_t v); /* replaces or adds */
void pass_set_float(struct pass_node *n, uint32_t key, double v);
void pass_unset(struct pass_node *n, uint32_t key);
graph_tensor pass_rows(struct pass_edit *x, int64_t symbol, int64_t width);
/* Like an activation of two or three dimensions, but for the last. */
graph_tensor pass_rows_like(struct pass_edit *x, graph_tensor t, int64_t last);
graph_tensor pass_constant(
	struct pass_edit *x, const float *v, uint32_t rank, const int64_t dim[TNP_MAX_RANK]);
/* Values of an F32 weight (copied: they may lie anywhere); false: it is none, or longer than `most`. mem_free(*out). */
bool pass_values(struct pass_edit *x, graph_tensor t, uint64_t most, float **out, uint64_t *n);

/* ---- for the driver and for layout ---------------------------------------------------------------------------------- */
/* Every node again, in order; `each` emits what shall stand in its place with pass_emit (nothing: it goes). */
void pass_rebuild(
	struct pass_edit *x, bool (*each)(struct pass_edit *x, void *ctx, uint32_t node), void *ctx);
void pass_emit(struct pass_edit *x, const struct pass_node *n);
bool pass_index(struct pass_edit *x); /* counts makers and readers anew; false after a fault */

#define PASS(name, line) void pass_##name(struct pass_edit *x);
#include "engine/passes.def"
#undef PASS
#endif
