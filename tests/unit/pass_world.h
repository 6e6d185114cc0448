/* SPDX-License-Identifier: Apache-2.0
 * For tests of graph passes: graphs made by hand or by a seed, their shape as one line, and what they compute on `ref`.
 */
#ifndef TESTS_PASS_WORLD_H
#define TESTS_PASS_WORLD_H
#include "tests/unit/tiny.h"
#include "engine/graph_priv.h"
#include "engine/pass.h"

enum { WORLD_TOKENS = 5, WORLD_SEQS = 2, WORLD_OUT = 2, WORLD_WIDTH = 8 };

struct world {
	struct gguf *file; /* graphs want one; nothing of it is used but token_embd.weight */
	struct plugins *plugins;
	struct backend *ref;
};
int world_open(void **state);
int world_close(void **state);

typedef void world_build_fn(struct graph *g, uint64_t seed);

struct world_graph {
	struct graph *g;
	const struct tnp_graph *t;
	struct pass_report report;
};
/* Builds, runs the passes that `passes` leaves on (ask may be NULL), finishes. Fails the test on a fault. */
void world_make(struct world *w, world_build_fn *build, uint64_t seed, const char *passes, pass_ask_fn *ask,
	void *ctx, struct world_graph *out);
void world_free(struct world_graph *w);
/* "LINEAR 1+2>1, ADD 2+0>1": operators with their activations, weights and outputs. */
void world_shape(const struct tnp_graph *t, char *out, size_t room);
/* All outputs one behind the other; returns how many floats. Fails the test when ref does not take the graph. */
size_t world_run(struct world *w, const struct world_graph *g, float *out, size_t room);

/* Weights with values of about one, less where many are added. */
graph_tensor world_matrix(struct graph *g, uint32_t rows, uint32_t columns, uint64_t seed);
graph_tensor world_vector(struct graph *g, uint32_t n, uint64_t seed);
graph_tensor world_input(struct graph *g); /* [tokens][WORLD_WIDTH], the graph's `in` */
/* x by a product of its own. */
graph_tensor world_linear(struct graph *g, graph_tensor x, uint32_t rows, uint64_t seed);
graph_tensor world_act(struct graph *g, graph_tensor x, int64_t act);
graph_tensor world_scale(struct graph *g, graph_tensor x, double s);
graph_tensor world_rope(struct graph *g, graph_tensor x, graph_tensor factors, double scale); /* heads of 4 */
graph_tensor world_attend(struct graph *g, graph_tensor q, graph_tensor k, graph_tensor v, int64_t slot);
/* Rank 3, [first][2][width / 2], and the reverse. */
graph_tensor world_split(struct graph *g, graph_tensor x);
graph_tensor world_join(struct graph *g, graph_tensor x);

world_build_fn world_random; /* a valid graph of about 20 nodes */
#endif
