/* SPDX-License-Identifier: Apache-2.0
 * What a node costs in a step, counted and not measured: bytes that must move at least once, and arithmetic. A product of
 * two numbers and its addition are two operations; a function such as exp is one. [any thread]
 */
#ifndef ENGINE_GRAPH_COST_H
#define ENGINE_GRAPH_COST_H
#include <tenon/plugin.h>

struct graph_step {
	uint32_t n_tokens, n_seqs,
		n_out; /* rows of the step; the tokens are one sequence's as far as attention goes */
	uint64_t past; /* places of that sequence before this step */
	uint32_t kv_type;
};
struct graph_cost {
	uint64_t
		weight_bytes; /* read; of a table only the rows looked up, of experts those that can be chosen */
	uint64_t activation_bytes; /* read and written, four bytes a number */
	uint64_t kv_bytes;	   /* read and written */
	uint64_t operations;
};

/* Saturates where a made-up graph would overflow. */
void graph_node_cost(
	const struct tnp_graph *t, uint32_t node, const struct graph_step *s, struct graph_cost *out);
void graph_total_cost(const struct tnp_graph *t, const struct graph_step *s, struct graph_cost *out);
#endif
