/* SPDX-License-Identifier: Apache-2.0
 * Activations as further outputs of a graph: model.h. They are declared when the graph is built and before anything is
 * done to it, so whatever rewrites graphs keeps them: an output must be there in the end.
 */
#include "engine/graph_priv.h"
#include "engine/model_priv.h"

size_t model_n_taps(const struct model *m) { return m->n_taps; }
const struct model_tap *model_tap_at(const struct model *m, size_t i) { return &m->taps[i]; }

static void tap_add(struct model *m, uint32_t node, graph_tensor t)
{
	struct graph *g = m->graph;
	struct model_tap *tap = &m->taps[m->n_taps];

	if (t == g->out[0])
		return;
	*tap = (struct model_tap){ .layer = g->scopes[node].layer,
		.word = g->scopes[node].word,
		.width = (uint32_t)graph_width(g, t),
		.per_token = (uint32_t)(graph_row_width(g, t) / MAX_OF(graph_width(g, t), 1)),
		.chosen = graph_symbol(g, t) == TNP_N_OUT,
		.of_seqs = graph_symbol(g, t) == TNP_N_SEQS };
	m->tap_out[m->n_taps++] = graph_out_of(g, t);
}

/* A node of matrices, of experts or not: the first activation is what they multiply. */
static void tap_linear(struct model *m, uint32_t node)
{
	const struct graph *g = m->graph;
	const struct tnp_node *n = &g->nodes[node];
	struct model_tap *tap = &m->taps[m->n_taps];

	if ((n->op != TNP_OP_LINEAR && n->op != TNP_OP_MOE_LINEAR) ||
		graph_is_weight(&g->tensors[g->edges[n->in0]]))
		return;
	tap_add(m, node, g->edges[n->in0]);
	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct gguf_tensor *t = graph_file_tensor(g, g->edges[n->in0 + i]);

		if (t && t->rank >= 2 && tap->n_weights < COUNT_OF(tap->weight))
			tap->weight[tap->n_weights++] = t;
	}
}

/* The last node of a part: the next one belongs to another. */
static void tap_part(struct model *m, uint32_t node)
{
	const struct graph *g = m->graph;
	const struct graph_scope *a = &g->scopes[node], *b = &g->scopes[node + 1];

	if (node + 1 < g->g.n_nodes && (a->layer != b->layer || a->word != b->word))
		tap_add(m, node, g->edges[g->nodes[node].out0]);
}

int model_taps_open(struct model *m, enum model_taps kind, struct error *e)
{
	struct graph *g = m->graph;

	if (kind == MODEL_TAPS_NONE || g->e.code || !g->g.n_out)
		return TENON_OK;
	m->taps = mem_zalloc(MEM_ENGINE, g->g.n_nodes, sizeof *m->taps);
	m->tap_out = mem_zalloc(MEM_ENGINE, g->g.n_nodes, sizeof *m->tap_out);
	if (!m->taps || !m->tap_out)
		return error_set(e, TENON_E_NOMEM, "model '%s': no memory", m->name);
	for (uint32_t i = 0; i < g->g.n_nodes; i++) {
		if (kind == MODEL_TAPS_LINEAR)
			tap_linear(m, i);
		else
			tap_part(m, i);
	}
	return TENON_OK;
}

void model_taps_close(struct model *m)
{
	MEM_CLEAR(m->taps);
	MEM_CLEAR(m->tap_out);
	m->n_taps = 0;
}
