/* SPDX-License-Identifier: Apache-2.0
 * A graph as text for tests: a line a node, activations numbered in the order in which they are made, weights by name,
 * attributes by key. Two graphs that compute the same in the same way have the same text, whatever their indices are.
 */
#ifndef TESTS_GRAPH_TEXT_H
#define TESTS_GRAPH_TEXT_H
#include "base/base.h"
#include "engine/graph.h"

/* Appends the text of t, which graph_finish or graph_view gave for g. */
void graph_text(const struct graph *g, const struct tnp_graph *t, struct buf *out);
#endif
