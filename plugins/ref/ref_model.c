/* SPDX-License-Identifier: Apache-2.0
 * Models: which nodes are taken, what memory a model needs, and getting it. Activations share buffers: one is
 * free for the next tensor as soon as its last reader has run. Weights are used where the host mapped them.
 */
#include "ref.h"
#include <stdlib.h>
#include <string.h>

tnp_rc ref_model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	struct tnp_graph own;
	tnp_rc rc = ref_graph_take(&own, g, e);

	(void)d;
	for (uint32_t i = 0; rc == TNP_OK && i < own.n_nodes; i++) {
		struct ref_node n;

		(void)ref_node_check(&own, i, &n, &v[i]);
	}
	return rc;
}

/* ---- planning ----------------------------------------------------------------------------------- */
static uint64_t most_elements(const struct tnp_model *m, const struct tnp_tensor *t)
{
	const uint64_t most[] = { m->lim.max_out, m->lim.max_seqs,
		m->lim.max_tokens }; /* N_OUT, N_SEQS, N_TOKENS */
	uint64_t n = 1;

	for (uint32_t i = 0; i < t->rank; i++)
		n *= t->dim[i] < 0 ? most[t->dim[i] - TNP_N_OUT] : (uint64_t)t->dim[i];
	return n;
}

/* The free buffer that wastes or grows least; a new one when none is free. */
static uint32_t buf_pick(struct tnp_model *m, uint64_t n)
{
	uint32_t best = m->n_bufs;
	uint64_t cost = UINT64_MAX;

	for (uint32_t i = 0; i < m->n_bufs; i++) {
		uint64_t c = m->buf[i].n > n ? m->buf[i].n - n : n - m->buf[i].n;

		if (!m->buf[i].busy && c < cost) {
			best = i;
			cost = c;
		}
	}
	if (best == m->n_bufs)
		m->n_bufs++;
	m->buf[best].busy = true;
	if (m->buf[best].n < n)
		m->buf[best].n = n;
	return best;
}

/* last[t]: the node after which tensor t is not needed any more; the graph's outputs are needed to the end. */
static void lifetimes(const struct tnp_graph *g, uint32_t *last)
{
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[i];

		for (uint32_t j = 0; j < n->n_out; j++)
			last[g->edges[n->out0 + j]] = i;
		for (uint32_t j = 0; j < n->n_in; j++)
			last[g->edges[n->in0 + j]] = i;
	}
	for (uint32_t i = 0; i < g->n_out; i++)
		last[g->out[i]] = g->n_nodes;
}

static void plan_release(struct tnp_model *m, const uint32_t *last, uint32_t node, uint32_t first, uint32_t n)
{
	for (uint32_t j = first; j < first + n; j++) {
		uint32_t t = m->g.edges[j];

		if (!ref_is_weight(&m->g.tensors[t]) && last[t] == node)
			m->buf[m->buf_of[t]].busy = false;
	}
}

static bool plan_buffers(struct tnp_model *m)
{
	const struct tnp_graph *g = &m->g;
	uint32_t *last = calloc(g->n_tensors, sizeof *last);

	m->buf = calloc(g->n_tensors, sizeof *m->buf);
	m->buf_of = calloc(g->n_tensors, sizeof *m->buf_of);
	if (!last || !m->buf || !m->buf_of) {
		free(last);
		return false;
	}
	lifetimes(g, last);
	for (uint32_t i = 0; i < g->n_in; i++)
		m->buf_of[g->in[i]] = buf_pick(m, most_elements(m, &g->tensors[g->in[i]]));
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[i];

		for (uint32_t j = n->out0; j < n->out0 + n->n_out; j++)
			m->buf_of[g->edges[j]] = buf_pick(m, most_elements(m, &g->tensors[g->edges[j]]));
		plan_release(m, last, i, n->in0, n->n_in);
		plan_release(m, last, i, n->out0, n->n_out);
	}
	free(last);
	return true;
}

/* Doubles that one thread needs beside the activations: rows of the weights, or a head and its scores. */
static uint64_t row_need(const struct tnp_model *m, uint32_t i)
{
	const struct tnp_node *n = &m->g.nodes[i];
	uint64_t need = 0, places = (uint64_t)m->lim.max_pages_per_seq * m->lim.page_tokens;

	for (uint32_t j = 0; j < n->n_in; j++) {
		const struct tnp_tensor *t = &m->g.tensors[m->g.edges[n->in0 + j]];

		if (ref_is_weight(t))
			need += (uint64_t)ref_last(t) + (n->op == TNP_OP_MOE_ROUTE ? (uint64_t)t->dim[0] : 0);
	}
	if (n->op == TNP_OP_ATTEND)
		need = 2 * (uint64_t)m->node[i].a.head_dim +
			(places > m->lim.max_tokens ? places : m->lim.max_tokens);
	return need;
}

static void table_least(uint32_t *least, const struct tnp_tensor *table)
{
	uint32_t n = table->dim[0] > INT32_MAX ? INT32_MAX : (uint32_t)table->dim[0];

	if (!*least || n < *least)
		*least = n;
}

static tnp_rc nodes_take(struct tnp_model *m, struct tnp_error *e)
{
	for (uint32_t i = 0; i < m->g.n_nodes; i++) {
		const struct tnp_node *n = &m->g.nodes[i];
		struct tnp_verdict v;
		uint64_t need;

		if (!ref_node_check(&m->g, i, &m->node[i], &v))
			return ref_fail(e, TNP_E_UNSUPPORTED, i, "node %u: %s", i, v.text);
		need = row_need(m, i);
		m->row_len = need > m->row_len ? need : m->row_len;
		if (n->op == TNP_OP_EMBED)
			table_least(m->node[i].a.index == TNP_INDEX_POS ? &m->n_pos : &m->n_vocab,
				&m->g.tensors[m->g.edges[n->in0]]);
	}
	return TNP_OK;
}

static tnp_rc limits_check(const struct tnp_model *m, struct tnp_error *e)
{
	const struct tnp_limits *l = &m->lim;
	const struct tnp_graph *g = &m->g;

	if (!l->max_tokens || !l->max_seqs || l->max_tokens > 1u << 24 || l->max_seqs > 1u << 24 ||
		l->max_out > 1u << 24)
		return ref_fail(e, TNP_E_INVALID, 0, "limits: tokens, sequences or rows out of range");
	if (l->precision > TNP_EXACT)
		return ref_fail(e, TNP_E_UNSUPPORTED, 0, "limits: precision %u", l->precision);
	for (uint32_t i = 0; i < g->n_in + g->n_out; i++) {
		const struct tnp_tensor *t = &g->tensors[i < g->n_in ? g->in[i] : g->out[i - g->n_in]];

		if (t->type != TNP_F32 || t->rank < 2 || t->dim[0] >= 0 ||
			(i < g->n_in && t->dim[0] != TNP_N_TOKENS))
			return ref_fail(
				e, TNP_E_UNSUPPORTED, i, "graph: inputs and outputs are rows of floats");
	}
	if (!m->slots.n)
		return TNP_OK;
	if (!l->page_tokens || !l->max_pages_per_seq)
		return ref_fail(e, TNP_E_INVALID, 0, "limits: no pages");
	if (l->kv_type >= 64 || !(REF_KV_TYPES >> l->kv_type & 1) || l->page_tokens > REF_PAGE_MAX)
		return ref_fail(e, TNP_E_UNSUPPORTED, 0, "limits: KV type or page size");
	for (uint32_t i = 0; i < m->slots.n_groups; i++)
		if (!ref_page_bytes(&m->slots, i, l->kv_type, l->page_tokens, NULL))
			return ref_fail(e, TNP_E_UNSUPPORTED, i,
				"limits: heads do not divide into blocks of the KV type");
	return TNP_OK;
}

/* Everything but the memory that is large. */
static tnp_rc model_plan(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m = calloc(1, sizeof *m);
	tnp_rc rc;

	if (!m)
		return ref_fail(e, TNP_E_NOMEM, 0, "model: no memory");
	m->dev = d;
	rc = ref_take(&m->lim, sizeof m->lim, l, "limits", e);
	if (rc == TNP_OK)
		rc = ref_graph_take(&m->g, g, e);
	if (rc == TNP_OK && !(m->node = calloc(m->g.n_nodes, sizeof *m->node)))
		rc = ref_fail(e, TNP_E_NOMEM, 0, "model: no memory");
	if (rc == TNP_OK)
		rc = nodes_take(m, e);
	if (rc == TNP_OK)
		rc = ref_slots_find(&m->g, &m->slots, e);
	if (rc == TNP_OK)
		rc = limits_check(m, e);
	if (rc == TNP_OK && !plan_buffers(m))
		rc = ref_fail(e, TNP_E_NOMEM, 0, "model: no memory");
	if (rc) {
		ref_model_close(m);
		return rc;
	}
	m->n_index = 4 * (uint64_t)m->lim.max_tokens + 3 * ((uint64_t)m->lim.max_seqs + 1) +
		2 * (uint64_t)m->lim.max_out;
	*o = m;
	return TNP_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------------- */
static uint64_t workspace(const struct tnp_model *m)
{
	uint64_t n =
		m->row_len * ref_pool_threads(m->dev->pool) * sizeof(double) + m->n_index * sizeof *m->index;

	for (uint32_t i = 0; i < m->n_bufs; i++)
		n += m->buf[i].n * sizeof(double);
	return n;
}

/* A tensor that several nodes read counts once, however often it is described. */
static uint64_t weights_mapped(const struct tnp_graph *g)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const struct tnp_tensor *t = &g->tensors[i];
		bool seen = !ref_is_weight(t);

		for (uint32_t j = 0; j < i && !seen; j++)
			seen = g->tensors[j].buffer == t->buffer && g->tensors[j].offset == t->offset;
		sum += seen ? 0 : t->bytes;
	}
	return sum;
}

tnp_rc ref_model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	struct tnp_sizes s = { 0 };
	struct tnp_model *m;
	tnp_rc rc = model_plan(d, g, l, &m, e);

	if (rc)
		return rc;
	s.size = o->size < sizeof s ? o->size : sizeof s;
	s.weights_mapped = weights_mapped(&m->g);
	s.workspace = workspace(m);
	for (uint32_t i = 0; i < m->slots.n_groups; i++)
		s.kv_page[i] = ref_page_bytes(&m->slots, i, m->lim.kv_type, m->lim.page_tokens, NULL);
	ref_kv_compat(m, s.kv_compat);
	memcpy(o, &s, s.size);
	ref_model_close(m);
	return TNP_OK;
}

/* ---- open and close ---------------------------------------------------------------------------------- */
static bool model_alloc(struct tnp_model *m)
{
	if (workspace(m) > ref_mem_total() ||
		(m->lim.workspace_limit && workspace(m) > m->lim.workspace_limit))
		return false;
	m->index = calloc(m->n_index, sizeof *m->index);
	m->row = calloc(m->row_len * ref_pool_threads(m->dev->pool) + 1, sizeof *m->row);
	for (uint32_t i = 0; i < m->n_bufs; i++) {
		m->buf[i].v = calloc(m->buf[i].n + 1, sizeof *m->buf[i].v);
		if (!m->buf[i].v)
			return false;
	}
	return m->index && m->row;
}

tnp_rc ref_model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m;
	tnp_rc rc = model_plan(d, g, l, &m, e);

	if (rc)
		return rc;
	if (!model_alloc(m)) {
		ref_model_close(m);
		return ref_fail(e, TNP_E_NOMEM, 0, "model: no memory for the workspace, or over its limit");
	}
	*o = m;
	return TNP_OK;
}

void ref_model_close(struct tnp_model *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_bufs; i++)
		free(m->buf[i].v);
	free(m->buf);
	free(m->buf_of);
	free(m->row);
	free(m->index);
	free(m->node);
	ref_slots_finish(&m->slots);
	free(m);
}
