/* SPDX-License-Identifier: Apache-2.0
 * Passes over a graph between its builder and graph_finish: architectures emit plain operators, the passes make of them
 * what backends run fast. Each pass is engine/pass_NAME.c and can be switched off by name (docs/passes.md). They run in the
 * order of passes.def until none of them changes anything. What the graph computes stays.
 * Owner: the thread that owns the graph.
 */
#ifndef ENGINE_PASS_H
#define ENGINE_PASS_H
#include "engine/graph.h"

enum pass_id {
#define PASS(name, line) PASS_##name,
#include "engine/passes.def"
#undef PASS
	PASS_N
};

struct pass_edit; /* a graph while it is changed: pass_edit.h */
struct graph_pass {
	const char *name, *line;
	void (*run)(struct pass_edit *x);
};
const struct graph_pass *pass_at(enum pass_id id);

/* What a backend says to each node of a graph: v[n_nodes]. */
typedef int pass_ask_fn(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e);

struct pass_options {
	uint64_t off;	  /* bit a pass_id: does not run */
	pass_ask_fn *ask; /* for layout; NULL: takes everything */
	void *ctx;
};
struct pass_report {
	uint32_t rounds, n_before, n_after; /* nodes */
	struct {
		uint32_t changes; /* places where the pass fired */
		int32_t nodes;	  /* by how many nodes the graph grew */
	} pass[PASS_N];
};

/* A list of names behind '-' (off) or '+' (on), with commas between: "-fuse_qkv,-layout"; "all" names every pass. Those not
 * named are on. NULL and "" are everything on. INVALID: an unknown name, with those there are. */
int pass_names_parse(const char *text, uint64_t *off, struct error *e);
/* Faults stick in g as the builder's do: graph_finish tells of them. A graph that has failed is left alone. Errors of `ask`
 * become the graph's. report may be NULL. */
void graph_passes_run(struct graph *g, const struct pass_options *o, struct pass_report *report);
#endif
