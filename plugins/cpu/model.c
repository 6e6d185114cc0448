/* SPDX-License-Identifier: Apache-2.0
 * Models: verdicts, sizes, opening (weights are packed by all threads), steps, closing. All sizes come from the plan
 * and are taken in two maps when the model is opened; a step allocates nothing.
 */
#include "model.h"
#include <stdlib.h>
#include <string.h>

/* ---- verdict and sizes --------------------------------------------------------------------------- */
static void text_copy(char *out, size_t n, const char *text)
{
	size_t len = strlen(text);

	len = len < n ? len : n - 1;
	memcpy(out, text, len);
	out[len] = '\0';
}

static tnp_rc graph_take(struct tnp_graph *own, const struct tnp_graph *g, struct tnp_error *e)
{
	tnp_rc rc = cpu_take(own, sizeof *own, g, e);

	return rc ? rc : graph_check(own, e);
}

tnp_rc model_check(struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	struct graph_slots slots;
	struct tnp_graph own = { 0 };
	tnp_rc rc =
		d && g && v ? graph_take(&own, g, e) : cpu_fail(e, TNP_E_INVALID, 0, "model: NULL argument");

	if (rc)
		return rc;
	for (uint32_t i = 0; i < own.n_nodes; i++) {
		struct node_view view;
		const char *why = node_read(d->isa, &own, i, &view);

		v[i] = (struct tnp_verdict){ .ok = !why };
		text_copy(v[i].text, sizeof v[i].text, why ? why : "");
	}
	rc = graph_slots_find(d->isa, &own, &slots, e);
	graph_slots_finish(&slots);
	return rc;
}

/* 64-bit FNV-1a with a seed: four of them tell page formats apart. */
static uint64_t hash_more(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static uint64_t hash_format(const struct plan *p, uint64_t seed)
{
	static const char format[] = "tenon cpu pages 1";
	const struct tnp_graph *g = p->g;
	uint32_t head[4] = { p->lim.kv_type, p->lim.page_tokens, p->lim.precision, p->slots.n };
	uint64_t h = hash_more(0xcbf29ce484222325u ^ seed, format, sizeof format);

	h = hash_more(h, p->isa->name, strlen(p->isa->name));
	h = hash_more(h, head, sizeof head);
	h = hash_more(h, p->slots.slot, p->slots.n * sizeof *p->slots.slot);
	for (uint32_t i = 0; i < g->n_nodes; i++)
		h = hash_more(h, &g->nodes[i].op, sizeof g->nodes[i].op);
	for (uint32_t i = 0; i < g->n_attrs; i++)
		h = hash_more(hash_more(h, &g->attrs[i].key, 4), &g->attrs[i].v, 8);
	for (uint32_t i = 0; i < g->n_tensors; i++)
		h = hash_more(
			hash_more(h, &g->tensors[i].type, 4), g->tensors[i].dim, g->tensors[i].rank * 8ull);
	return h;
}

static uint64_t weights_bytes(const struct plan *p)
{
	return cpu_map_bytes(cpu_round_up(p->packed, 64) + p->n_consts * sizeof(float));
}

static uint64_t heap_bytes(const struct plan *p)
{
	return p->heap_bytes + sizeof(struct tnp_model) + p->n_vals * sizeof(struct rows_ref) +
		p->n_segs * sizeof(void *) + p->n_threads * sizeof(struct lane) +
		(PLAN_STAGES * p->n_phases + 1) * (sizeof(struct stage) + sizeof(uint32_t)) +
		(p->n_phases + 1) * sizeof(uint64_t) + (p->max_groups + 1) * sizeof(struct group);
}

static void sizes_fill(const struct plan *p, struct tnp_sizes *s)
{
	*s = (struct tnp_sizes){ .size = sizeof *s,
		.weights_mapped = p->mapped,
		.weights_own = weights_bytes(p),
		.workspace = p->workspace + heap_bytes(p) };
	for (uint32_t i = 0; i < p->slots.n_groups; i++)
		s->kv_page[i] = plan_page_bytes(p, i, p->lim.kv_type, p->lim.page_tokens);
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t h = hash_format(p, i * 0x9e3779b97f4a7c15u);

		memcpy(s->kv_compat + 8 * i, &h, 8);
	}
}

/* Takes and checks both arguments and plans; the caller keeps `own` as long as the plan. */
static tnp_rc plan_make(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_graph *own, struct plan **out, struct tnp_error *e)
{
	struct tnp_limits lim = { 0 };
	tnp_rc rc = graph_take(own, g, e);

	if (!rc)
		rc = cpu_take(&lim, sizeof lim, l, e);
	if (!rc)
		rc = limits_check(&lim, e);
	if (!rc)
		rc = plan_build(d, own, &lim, out, e);
	return rc;
}

tnp_rc model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	struct tnp_graph own = { 0 };
	struct tnp_sizes sizes;
	struct plan *p = NULL;
	tnp_rc rc = d && g && l && o ? plan_make(d, g, l, &own, &p, e)
				     : cpu_fail(e, TNP_E_INVALID, 0, "model: NULL argument");

	if (rc)
		return rc;
	sizes_fill(p, &sizes);
	cpu_give(o, &sizes, sizeof sizes);
	plan_free(p);
	return TNP_OK;
}

/* ---- weights ----------------------------------------------------------------------------------------- */
struct packing {
	struct tnp_model *m;
	const struct tnp_graph *source; /* the host's, for progress */
	uint64_t step;			/* bytes of packed weights that a piece makes */
	uint32_t pieces;
	_Atomic uint32_t stopped, done;
};

enum { PACK_BYTES = 2 << 20 }; /* a huge page: no two threads wait for the same one */

static const void *seg_source(const struct tnp_model *m, const struct plan_seg *s)
{
	struct cpu_type type = { 1, 1 };

	(void)cpu_type_info(s->w.type, &type);
	return (const uint8_t *)tensor_data(&m->g, s->tensor) +
		(uint64_t)s->row0 * (s->w.k / type.block) * type.bytes;
}

/* The first of a matrix's panels that lies at or behind byte `at` of its packed form. */
static uint32_t panel_from(const struct plan_seg *s, uint32_t panels, uint64_t at)
{
	return at >= s->pack_bytes ? panels : (uint32_t)((at * panels + s->pack_bytes - 1) / s->pack_bytes);
}

/* What lies in bytes [lo, hi) of the packed weights, of the matrix that begins at `at`. */
static void matrix_pack(
	const struct tnp_model *m, const struct plan_seg *s, uint32_t expert, uint64_t lo, uint64_t hi)
{
	const struct linear_ops *ops = m->dev->isa->linear;
	uint32_t rows = ops->panel_rows, panels = (s->w.n + rows - 1) / rows;
	uint64_t at = s->pack + expert * s->stride;
	uint32_t p0 = panel_from(s, panels, lo > at ? lo - at : 0),
		 p1 = panel_from(s, panels, hi > at ? hi - at : 0);

	if (p0 < p1)
		ops->weight_pack(&s->w, (const uint8_t *)seg_source(m, s) + expert * s->src_stride, p0 * rows,
			p1 < panels ? p1 * rows : s->w.n, m->weights + at);
}

static void piece_pack(void *arg, uint32_t thread, uint32_t stage, uint32_t piece)
{
	struct packing *k = arg;
	const struct plan *p = k->m->plan;
	uint64_t lo = piece * k->step, hi = lo + k->step;

	(void)stage;
	if (thread == 0 && cpu_stopping())
		atomic_store_explicit(&k->stopped, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < p->n_segs && !atomic_load_explicit(&k->stopped, memory_order_relaxed); i++) {
		const struct plan_seg *s = &p->segs[i];
		uint64_t end = s->pack + (s->n_experts - 1) * s->stride + s->pack_bytes;

		if (!s->pack_bytes || s->shares != TNP_NONE || s->pack >= hi || end <= lo)
			continue;
		for (uint32_t x = 0; x < s->n_experts; x++)
			matrix_pack(k->m, s, x, lo, hi);
	}
	atomic_fetch_add_explicit(&k->done, 1, memory_order_relaxed);
	if (thread == 0)
		cpu_progress(k->source, atomic_load_explicit(&k->done, memory_order_relaxed), k->pieces);
}

static tnp_rc weights_pack(struct tnp_model *m, const struct tnp_graph *source, struct tnp_error *e)
{
	const struct plan *p = m->plan;
	struct packing k = { .m = m, .source = source, .step = PACK_BYTES };

	while (p->packed / k.step >= POOL_PIECES)
		k.step *= 2;
	k.pieces = (uint32_t)((p->packed + k.step - 1) / k.step);
	for (uint32_t i = 0; i < p->n_segs; i++) {
		const struct plan_seg *s = &p->segs[i];

		m->seg_data[i] = !s->pack_bytes
			? seg_source(m, s)
			: m->weights + (s->shares == TNP_NONE ? s->pack : p->segs[s->shares].pack);
	}
	pool_run(m->dev->pool, piece_pack, &k, &k.pieces, 1);
	return atomic_load(&k.stopped) ? cpu_fail(e, TNP_E_CANCELLED, 0, "model: the host is stopping")
				       : TNP_OK;
}

static void consts_fill(struct tnp_model *m)
{
	float *consts = (float *)(m->weights + cpu_round_up(m->plan->packed, 64));

	for (uint32_t i = 0; i < m->plan->n_vecs; i++) {
		const struct plan_vec *v = &m->plan->vecs[i];

		m->dev->isa->linear->row_f32(
			m->g.tensors[v->tensor].type, tensor_data(&m->g, v->tensor), v->n, 0, consts + v->at);
	}
	m->consts = consts;
}

/* ---- open and close ------------------------------------------------------------------------------------ */
/* Cuts the arrays of a packed batch out of the workspace: pointers first, for their alignment. */
static void step_fill(struct step *s, const struct plan *p, uint8_t *at)
{
	uint32_t nt = p->lim.max_tokens, ns = p->lim.max_seqs, no = p->lim.max_out, *n;

	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++, at += ns * sizeof *s->page[g])
		s->page[g] = (const uint32_t **)(void *)at;
	n = (uint32_t *)(void *)at;
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++, n += ns)
		s->n_pages[g] = n;
	s->tok0 = n;
	s->past = n += ns + 1;
	s->from[SPACE_SEQS] = n += ns;
	s->token = (int32_t *)(n += ns);
	s->pos = (int32_t *)(n += nt);
	s->seq_of = n += nt;
	s->from[SPACE_TOKENS] = n += nt;
	s->out_tok = n += nt;
	s->from[SPACE_OUT] = n + no;
}

static void refs_fill(struct tnp_model *m)
{
	const struct plan *p = m->plan;

	for (uint32_t i = 0; i < p->n_vals; i++)
		if (p->vals[i].made != TNP_NONE)
			m->ref[i] = (struct rows_ref){ (float *)(m->ws + p->arena) + p->vals[i].arena,
				p->vals[i].width };
	m->counter = (struct counter *)(m->ws + p->counters);
	step_fill(&m->step, p, m->ws + p->step);
	for (uint32_t i = 0; i < p->n_units; i++)
		m->step.units[i] = (struct unit *)(m->ws + p->units[i].offset);
	for (uint32_t i = 0; i < p->n_threads; i++)
		m->lane[i] = (struct lane){ .m = m,
			.own = m->ws + p->threads + i * p->thread_bytes,
			.index = i,
			.ready = UINT64_MAX };
}

static bool model_alloc(struct tnp_model *m)
{
	const struct plan *p = m->plan;

	m->weights_bytes = weights_bytes(p);
	m->weights = cpu_map(m->weights_bytes);
	m->ws = cpu_map(p->workspace);
	m->ref = calloc((size_t)p->n_vals + 1, sizeof *m->ref);
	m->seg_data = calloc((size_t)p->n_segs + 1, sizeof *m->seg_data);
	m->lane = aligned_alloc(64, p->n_threads * sizeof *m->lane);
	m->group = calloc((size_t)p->max_groups + 1, sizeof *m->group);
	m->stage = calloc(PLAN_STAGES * (size_t)p->n_phases + 1, sizeof *m->stage);
	m->pieces = calloc(PLAN_STAGES * (size_t)p->n_phases + 1, sizeof *m->pieces);
	return m->weights && m->ws && m->ref && m->seg_data && m->lane && m->group && m->stage && m->pieces;
}

static tnp_rc model_fill(struct tnp_model *m, const struct tnp_graph *source, struct tnp_error *e)
{
	const struct plan *p = m->plan;

	if (p->lim.workspace_limit && p->workspace + heap_bytes(p) > p->lim.workspace_limit)
		return cpu_fail(e, TNP_E_NOMEM, 0, "model: workspace is larger than the limit");
	if (!model_alloc(m))
		return cpu_fail(e, TNP_E_NOMEM, 0, "model: no memory for weights and workspace");
	refs_fill(m);
	consts_fill(m);
	return weights_pack(m, source, e);
}

tnp_rc model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m;
	tnp_rc rc;

	if (!d || !g || !l || !o)
		return cpu_fail(e, TNP_E_INVALID, 0, "model: NULL argument");
	m = calloc(1, sizeof *m);
	if (!m)
		return cpu_fail(e, TNP_E_NOMEM, 0, "model: no memory");
	m->dev = d;
	rc = plan_make(d, g, l, &m->g, &m->plan, e);
	if (!rc)
		rc = model_fill(m, g, e);
	if (rc)
		model_close(m);
	else
		*o = m;
	return rc;
}

void model_close(struct tnp_model *m)
{
	if (!m)
		return;
	cpu_unmap(m->weights, m->weights_bytes);
	cpu_unmap(m->ws, m->plan ? m->plan->workspace : 0);
	free(m->ref);
	free(m->seg_data);
	free(m->lane);
	free(m->group);
	free(m->stage);
	free(m->pieces);
	free(m->profile);
	plan_free(m->plan);
	free(m);
}

/* ---- steps --------------------------------------------------------------------------------------------- */
tnp_rc model_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *batch, uint64_t *ticket,
	struct tnp_error *e)
{
	struct tnp_batch b = { 0 };
	tnp_rc rc = m && batch && ticket ? cpu_take(&b, sizeof b, batch, e)
					 : cpu_fail(e, TNP_E_INVALID, 0, "batch: NULL argument");

	if (!rc)
		rc = batch_check(m, k, &b, e);
	if (rc)
		return rc;
	if (m->step.n[SPACE_SEQS]) {
		batch_units(m);
		rc = exec_step(m, e);
	}
	m->step.b = NULL;
	if (rc)
		return rc;
	*ticket = ++m->dev->next_ticket;
	return TNP_OK;
}
