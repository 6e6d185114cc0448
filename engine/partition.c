/* SPDX-License-Identifier: Apache-2.0
 * partition.h: cutting a graph. Nodes stand in execution order and know their layer; those outside the layers go with their
 * neighbours before them. A part is a copy of its nodes and of the tensors they name, with KV slots counted from 0.
 */
#include "engine/partition.h"
#include "engine/graph_priv.h"
#include <string.h>

enum { MAX_EDGES = 32 };

struct cut {
	struct graph *whole;
	struct part *part;
	graph_tensor *to;	 /* [tensors of the whole] in the part; TNP_NONE: not there yet */
	const uint32_t *maker;	 /* [tensors of the whole] node that writes it; TNP_NONE */
	uint32_t begin, end;	 /* nodes */
	uint32_t slot0, n_slots; /* the first slot of the part; all slots before it are of earlier parts */
	const char *model;
};

static int no_memory(const char *model, struct error *e)
{
	return error_set(e, TENON_E_NOMEM, "model '%.48s': no memory to split it", model);
}

/* ---- which layers ---------------------------------------------------------------------------------------------------- */

static int layers_give(struct partition *p, const struct model_place *place, uint32_t n_places,
	uint32_t n_layers, const char *model, struct error *e)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < n_places; i++) {
		uint32_t left = n_layers - at, rest = n_places - 1 - i; /* of which each needs one */
		uint32_t n = place[i].n_layers ? place[i].n_layers : left;

		if (left <= rest || n > left - rest || (!place[i].n_layers && rest) || (!rest && n != left))
			return error_set(e, TENON_E_INVALID,
				"model '%.48s': has %u layers; backend %s cannot take %u from layer %u on; each of %u parts "
				"takes one or more, the last those that are left",
				model, n_layers, backend_name(place[i].backend), n, at, n_places);
		p->part[i] = (struct part){
			.backend = place[i].backend, .layer0 = at, .n_layers = n, .in = TNP_NONE
		};
		at += n;
	}
	p->n = n_places;
	return TENON_OK;
}

/* Where the nodes of a part end: in front of the first node of a layer behind it. */
static uint32_t nodes_end(const struct graph *g, const struct part *part, bool last)
{
	uint32_t i = 0;
	int border = (int)(part->layer0 + part->n_layers);

	while (i < g->g.n_nodes && (last || g->scopes[i].layer < border))
		i++;
	return i;
}

/* ---- what crosses ---------------------------------------------------------------------------------------------------- */

static int crossing_refused(const struct cut *c, const char *why, struct error *e)
{
	return error_set(e, TENON_E_UNSUPPORTED,
		"model '%.48s': cannot be split between layers %u and %u, in front of backend %s: %s; choose another layer",
		c->model, c->part->layer0 - 1, c->part->layer0, backend_name(c->part->backend), why);
}

static bool is_stream(const struct tnp_tensor *t)
{
	return t->type == TNP_F32 && t->rank == 2 && t->dim[0] == TNP_N_TOKENS;
}

static bool looks_up_tokens(const struct graph *g, const struct tnp_node *n)
{
	if (n->op != TNP_OP_EMBED)
		return false;
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (g->attrs[n->attr0 + i].key == TNP_A_INDEX)
			return g->attrs[n->attr0 + i].v.i == TNP_INDEX_TOKEN;
	return true;
}

/* The one activation that earlier parts make and this one reads becomes an output of the whole. */
static int crossing_find(struct cut *c, struct error *e)
{
	struct graph *g = c->whole;
	graph_tensor in = TNP_NONE;

	for (uint32_t i = c->begin; i < c->end; i++) {
		const struct tnp_node *n = &g->nodes[i];

		if (looks_up_tokens(g, n))
			return crossing_refused(c, "a table of tokens is read behind it", e);
		for (uint32_t j = 0; j < n->n_in; j++) {
			graph_tensor t = g->edges[n->in0 + j];

			if (graph_is_weight(&g->tensors[t]) || c->maker[t] >= c->begin || t == in)
				continue;
			if (in != TNP_NONE || !is_stream(&g->tensors[t]))
				return crossing_refused(c,
					in != TNP_NONE ? "more than one tensor crosses there"
						       : "what crosses there is no row for each token",
					e);
			in = t;
		}
	}
	if (in == TNP_NONE)
		return crossing_refused(c, "nothing crosses there", e);
	c->part->in = graph_out_of(g, in);
	return g->e.code ? no_memory(c->model, e) : TENON_OK;
}

/* ---- KV slots --------------------------------------------------------------------------------------------------------- */

static int64_t *slot_of(struct graph *g, const struct tnp_node *n)
{
	for (uint32_t i = 0; n->op == TNP_OP_ATTEND && i < n->n_attr; i++)
		if (g->attrs[n->attr0 + i].key == TNP_A_SLOT)
			return &g->attrs[n->attr0 + i].v.i;
	return NULL;
}

/* Slots before slot0 are pages of another pool. */
static int slots_check(struct cut *c, struct error *e)
{
	for (uint32_t i = c->begin; i < c->end; i++) {
		const int64_t *slot = slot_of(c->whole, &c->whole->nodes[i]);

		if (slot && *slot < (int64_t)c->slot0)
			return crossing_refused(
				c, "a layer behind it reads the keys and values of one in front of it", e);
		if (slot)
			c->n_slots = MAX_OF(c->n_slots, (uint32_t)*slot - c->slot0 + 1);
	}
	return TENON_OK;
}

/* ---- the copy --------------------------------------------------------------------------------------------------------- */

static graph_tensor tensor_copy(struct cut *c, graph_tensor t)
{
	const struct tnp_tensor *x = &c->whole->tensors[t];

	if (c->to[t] == TNP_NONE)
		c->to[t] = x->buffer == 1
			? graph_constant_shaped(c->part->graph,
				  c->whole->constants + x->offset / sizeof(float), x->rank, x->dim)
			: graph_tensor_add(c->part->graph, x, c->whole->sources[t]);
	return c->to[t];
}

static void node_copy(struct cut *c, uint32_t i)
{
	const struct graph *g = c->whole;
	const struct tnp_node *n = &g->nodes[i];
	graph_tensor t[2 * MAX_EDGES], *out = t + MAX_EDGES;

	if (n->n_in > MAX_EDGES || n->n_out > MAX_EDGES) {
		graph_fail(c->part->graph, TENON_E_UNSUPPORTED, "graph: a node of more than %d tensors",
			MAX_EDGES);
		return;
	}
	for (uint32_t j = 0; j < n->n_in; j++)
		t[j] = tensor_copy(c, g->edges[n->in0 + j]);
	for (uint32_t j = 0; j < n->n_out; j++)
		out[j] = tensor_copy(c, g->edges[n->out0 + j]);
	graph_scope(c->part->graph, g->scopes[i].layer, g->scopes[i].word);
	graph_node(c->part->graph, n->op, t, n->n_in, out, n->n_out);
	for (uint32_t j = 0; j < n->n_attr; j++) {
		struct tnp_attr a = g->attrs[n->attr0 + j];

		if (n->op == TNP_OP_ATTEND && a.key == TNP_A_SLOT)
			a.v.i -= c->slot0;
		graph_attr_add(c->part->graph, &a);
	}
}

/* Outputs of the whole that this part makes, in their order. */
static int outs_copy(struct cut *c, struct error *e)
{
	const struct graph *g = c->whole;
	struct part *p = c->part;

	p->outs = mem_zalloc(MEM_ENGINE, g->g.n_out, sizeof *p->outs);
	p->rows = mem_zalloc(MEM_ENGINE, g->g.n_out, sizeof *p->rows);
	if (!p->outs || !p->rows)
		return no_memory(c->model, e);
	for (uint32_t i = 0; i < g->g.n_out; i++)
		if (c->maker[g->out[i]] >= c->begin && c->maker[g->out[i]] < c->end) {
			p->outs[p->n_outs++] = i;
			graph_out(p->graph, tensor_copy(c, g->out[i]));
		}
	return TENON_OK;
}

static int part_copy(struct cut *c, struct error *e)
{
	struct graph *g;
	int rc = graph_create(c->whole->file, &c->part->graph, e);

	if (rc)
		return rc;
	g = c->part->graph;
	memset(c->to, 0xff, c->whole->g.n_tensors * sizeof *c->to);
	if (c->part->in != TNP_NONE)
		graph_in(g, tensor_copy(c, c->whole->out[c->part->in]));
	for (uint32_t i = c->begin; i < c->end; i++)
		node_copy(c, i);
	rc = outs_copy(c, e);
	return rc || !g->e.code ? rc : error_set(e, g->e.code, "%s", g->e.text);
}

/* ---- all parts --------------------------------------------------------------------------------------------------------- */

static uint32_t *makers(const struct graph *g)
{
	uint32_t *maker = mem_alloc(MEM_ENGINE, (g->g.n_tensors + 1) * sizeof *maker);

	if (!maker)
		return NULL;
	memset(maker, 0xff, g->g.n_tensors * sizeof *maker);
	for (uint32_t i = 0; i < g->g.n_nodes; i++)
		for (uint32_t j = 0; j < g->nodes[i].n_out; j++)
			maker[g->edges[g->nodes[i].out0 + j]] = i;
	return maker;
}

/* First all that crosses, so that the outputs of the whole are known when the parts are made. */
static int parts_make(struct partition *p, struct cut *c, struct error *e)
{
	struct cut each[MODEL_MAX_PARTS];
	int rc = TENON_OK;

	for (uint32_t i = 0; i < p->n && !rc; i++) {
		c->part = &p->part[i];
		c->begin = c->end;
		c->end = nodes_end(c->whole, c->part, i + 1 == p->n);
		c->slot0 += c->n_slots;
		c->n_slots = 0;
		rc = slots_check(c, e);
		if (!rc && i)
			rc = crossing_find(c, e);
		each[i] = *c;
	}
	for (uint32_t i = 0; i < p->n && !rc; i++)
		rc = part_copy(&each[i], e);
	return rc;
}

static int part_alone(struct partition *p, struct graph *whole, const char *model, struct error *e)
{
	struct part *one = &p->part[0];

	one->graph = whole;
	one->n_outs = whole->g.n_out;
	one->outs = mem_zalloc(MEM_ENGINE, one->n_outs, sizeof *one->outs);
	one->rows = mem_zalloc(MEM_ENGINE, one->n_outs, sizeof *one->rows);
	for (uint32_t i = 0; one->outs && i < one->n_outs; i++)
		one->outs[i] = i;
	return one->outs && one->rows ? TENON_OK : no_memory(model, e);
}

int partition_cut(struct partition *p, struct graph *whole, const struct model_place *place,
	uint32_t n_places, uint32_t n_layers, const char *model, struct error *e)
{
	struct cut c = { .whole = whole, .model = model };
	uint32_t *maker;
	int rc = n_places <= MODEL_MAX_PARTS
		? layers_give(p, place, n_places, n_layers, model, e)
		: error_set(e, TENON_E_INVALID, "model '%.48s': more than %d parts", model, MODEL_MAX_PARTS);

	if (rc || n_places == 1)
		return rc ? rc : part_alone(p, whole, model, e);
	if (whole->e.code)
		return error_set(e, whole->e.code, "%s", whole->e.text);
	p->split = true;
	c.maker = maker = makers(whole);
	c.to = mem_alloc(MEM_ENGINE, (whole->g.n_tensors + 1) * sizeof *c.to);
	rc = maker && c.to ? parts_make(p, &c, e) : no_memory(model, e);
	mem_free(maker);
	mem_free(c.to);
	return rc;
}

int partition_slots(struct partition *p, const struct graph_slots *whole, struct error *e)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct part *part = &p->part[i];
		int rc = graph_slots(part->graph, &part->slots, e);

		if (rc)
			return rc;
		for (uint32_t g = 0; g < part->slots.n_groups; g++)
			while (part->group[g] + 1 < whole->n_groups &&
				whole->window[part->group[g]] != part->slots.window[g])
				part->group[g]++;
	}
	return TENON_OK;
}

void partition_finish(struct partition *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct part *part = &p->part[i];

		backend_model_close(part->bm);
		if (p->split)
			graph_destroy(part->graph);
		mem_free(part->slots.slot);
		mem_free(part->outs);
		mem_free(part->rows);
	}
	*p = (struct partition){ 0 };
}
