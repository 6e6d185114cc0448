/* SPDX-License-Identifier: Apache-2.0
 * Building a graph (struct tnp_graph, docs/plugin-abi.md) from a model file: an architecture calls these functions in
 * execution order and looks at the outcome once, in graph_finish: the first fault sticks and later calls do nothing.
 * Weights stay in the mapped file (buffer 0); small folded constants lie in buffer 1. Activations have symbolic
 * dimensions; graph_finish gives them suggested places in one arena by their lifetimes.
 * Owner: one thread. The file must outlive the graph.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H
#include "base/error.h"
#include "engine/gguf.h"
#include <stdbool.h>
#include <tenon/plugin.h>

struct graph;
typedef uint32_t graph_tensor; /* TNP_NONE: none, or the graph has failed */

int graph_create(const struct gguf *file, struct graph **out, struct error *e);
void graph_destroy(struct graph *g);

/* ---- tensors --------------------------------------------------------------------------------------------------- */
/* A weight of the file by its name, with exactly these dimensions, outermost first; d1 0: a vector. FORMAT when it is
 * missing or has another shape. Asking twice gives the same tensor. */
graph_tensor graph_weight(struct graph *g, int64_t d0, int64_t d1, const char *name, ...)
	__attribute__((format(printf, 4, 5)));
/* The same, or TNP_NONE when the file has none of that name. */
graph_tensor graph_weight_optional(struct graph *g, int64_t d0, int64_t d1, const char *name, ...)
	__attribute__((format(printf, 4, 5)));
/* A matrix [d1][d2] for each of d0 experts. */
graph_tensor graph_weight_experts(struct graph *g, int64_t d0, int64_t d1, int64_t d2, const char *name, ...)
	__attribute__((format(printf, 5, 6)));
/* The first row of a matrix of that width as a vector, or TNP_NONE when the file has none of that name. */
graph_tensor graph_weight_first_row(struct graph *g, int64_t width, const char *name);
/* A constant F32 vector, copied. */
graph_tensor graph_constant(struct graph *g, const float *v, uint32_t n);
/* [TNP_N_*][width], F32. */
graph_tensor graph_rows(struct graph *g, int64_t symbol, int64_t width);
/* [TNP_N_*][d1][d2], d2 0: [TNP_N_*][d1]. */
graph_tensor graph_ranked(struct graph *g, uint32_t type, int64_t symbol, int64_t d1, int64_t d2);
/* Width and symbol of such a tensor; 0 after a fault. */
int64_t graph_width(const struct graph *g, graph_tensor t);
int64_t graph_symbol(const struct graph *g, graph_tensor t);
/* Numbers of a whole row: all dimensions but the first. */
int64_t graph_row_width(const struct graph *g, graph_tensor t);

/* ---- nodes ------------------------------------------------------------------------------------------------------ */
/* What the following nodes belong to, for messages: a layer (or -1) and a constant word such as "attn". */
void graph_scope(struct graph *g, int layer, const char *word);
/* Appends a node; TNP_NONE among the inputs is left out. Attributes go to the node made last. */
void graph_node(struct graph *g, uint32_t op, const graph_tensor *in, uint32_t n_in, const graph_tensor *out,
	uint32_t n_out);
void graph_attr_int(struct graph *g, uint32_t key, int64_t v);
void graph_attr_float(struct graph *g, uint32_t key, double v);
void graph_in(struct graph *g, graph_tensor t);
void graph_out(struct graph *g, graph_tensor t);
/* Records a fault found by the caller. */
void graph_fail(struct graph *g, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The usual nodes, each returning its output. Biases and residuals may be TNP_NONE. */
graph_tensor graph_embed(struct graph *g, graph_tensor table, uint32_t index);
graph_tensor graph_rmsnorm(struct graph *g, graph_tensor x, graph_tensor w, double eps);
/* One input (two inputs, the first like the output), no attribute yet. */
graph_tensor graph_unary(struct graph *g, uint32_t op, graph_tensor x);
graph_tensor graph_binary(struct graph *g, uint32_t op, graph_tensor a, graph_tensor b);
/* W x + bias + residual, in plain nodes: the passes (pass.h) fuse them. */
graph_tensor graph_linear(
	struct graph *g, graph_tensor x, graph_tensor w, graph_tensor bias, graph_tensor residual);
/* act(w[0] x) * w[1] x, in plain nodes. */
graph_tensor graph_glu(
	struct graph *g, graph_tensor x, const graph_tensor w[2], const graph_tensor bias[2], uint32_t act);
graph_tensor graph_select(struct graph *g, graph_tensor x);

/* ---- the result -------------------------------------------------------------------------------------------------- */
/* Plans the arena for these limits; NULL (e filled) when anything failed before. Valid until graph_destroy. */
const struct tnp_graph *graph_finish(
	struct graph *g, uint32_t max_tokens, uint32_t max_seqs, uint32_t max_out, struct error *e);
/* The graph as it stands, without places in an arena; valid until it changes. */
const struct tnp_graph *graph_view(struct graph *g);
/* The largest set of activations alive at once: no plan can take less than this. */
uint64_t graph_live_bytes(const struct graph *g);
/* "layer 3, attn: LINEAR" for node i. */
void graph_node_name(const struct graph *g, uint32_t i, char *out, size_t room);
/* The file's tensor behind a weight; NULL for activations and constants. */
const struct gguf_tensor *graph_file_tensor(const struct graph *g, graph_tensor t);
const char *graph_op_name(uint32_t op); /* "LINEAR"; "?" outside the opset */

/* Windows of the KV slots and which group each is in, as docs/plugin-abi.md numbers them. */
struct graph_slots {
	struct tnp_kv_slot *slot; /* [n] */
	uint32_t n, n_groups;
	uint32_t window[TNP_MAX_GROUPS];
};
int graph_slots(const struct graph *g, struct graph_slots *out, struct error *e); /* mem_free(out->slot) */
#endif
