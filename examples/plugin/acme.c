/* SPDX-License-Identifier: Apache-2.0
 * A small backend plugin to start from: it takes chains of matrix products with F32 weights, refuses everything
 * else, and keeps every rule of the contract. Build: `make && make check`, with the installed header alone.
 * A real backend grows from here: operators in node_wrong and node_run, memory in model_open, pages in kv_open.
 */
#include <stdlib.h>
#include <string.h>
#include <tenon/plugin.h>

static struct tnp_host host; /* services; valid between start and stop */
struct tnp_dev {
	uint64_t ticket; /* last one given out */
};
struct tnp_model {
	struct tnp_dev *dev;
	struct tnp_graph g;
	struct tnp_limits lim;
	uint64_t width; /* of the widest activation */
	float *row[2];	/* [width] what a node reads and writes: our operators never look across rows */
};

/* ---- rules R1 to R3 ------------------------------------------------------------------------------------ */
static tnp_rc fail(struct tnp_error *e, tnp_rc rc, const char *text)
{
	if (e && e->size >= sizeof *e) {
		e->rc = rc;
		strncpy(e->text, text, sizeof e->text - 1)[sizeof e->text - 1] = 0;
	}
	return rc;
}

/* Copies a struct of the host: a missing tail is zero, a tail that we do not know must be. */
static tnp_rc take(void *own, uint32_t own_size, const void *theirs, struct tnp_error *e)
{
	uint32_t size = *(const uint32_t *)theirs;

	for (uint32_t i = own_size; i < size; i++)
		if (((const char *)theirs)[i])
			return fail(e, TNP_E_UNSUPPORTED, "a member of a newer header is set");
	memset(own, 0, own_size);
	memcpy(own, theirs, size < own_size ? size : own_size);
	return TNP_OK;
}

/* Fills a record of the host: never past the room that it says there is. */
static tnp_rc give(void *theirs, void *own, uint32_t own_size)
{
	uint32_t room = *(uint32_t *)theirs < own_size ? *(uint32_t *)theirs : own_size;

	memcpy(own, &room, sizeof room);
	memcpy(theirs, own, room);
	return TNP_OK;
}

/* ---- plugin and device ----------------------------------------------------------------------------------- */
static tnp_rc start(const struct tnp_host *h, struct tnp_error *e) { return take(&host, sizeof host, h, e); }
static tnp_rc stop(struct tnp_error *e) { return (void)e, TNP_OK; }
static tnp_rc dev_count(uint32_t *n, struct tnp_error *e) { return (void)e, *n = 1, TNP_OK; }

static tnp_rc dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	struct tnp_device d = { .kind = TNP_OTHER, .name = "Acme example", .features = TNP_F_INVARIANT };

	d.mem_total = d.mem_max_alloc = 1u << 30;
	return i ? fail(e, TNP_E_INVALID, "no such device") : give(o, &d, sizeof d);
}

static tnp_rc dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	struct tnp_dev *d = i ? NULL : calloc(1, sizeof *d);

	return d ? *o = d, TNP_OK : fail(e, i ? TNP_E_INVALID : TNP_E_NOMEM, "no such device, or no memory");
}

static void dev_close(struct tnp_dev *d) { free(d); }
static tnp_rc dev_memory(struct tnp_dev *d, uint64_t *n, struct tnp_error *e)
{
	return (void)d, (void)e, *n = 1u << 30, TNP_OK;
}

static tnp_rc op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	if (rows && *n)
		rows[0] =
			(struct tnp_op_cap){ TNP_OP_LINEAR, 0, 1u << TNP_F32, 1u << TNP_F32, 1u << TNP_F32 };
	return (void)d, (void)e, *n = 1, TNP_OK;
}

static tnp_rc kv_caps(struct tnp_dev *d, uint64_t *types, uint32_t *lo, uint32_t *hi, struct tnp_error *e)
{
	return (void)d, (void)e, *types = TNP_TYPES(TNP_F32), *lo = 1, *hi = 1024, TNP_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------ */
/* We take chains: each node reads what the one before it wrote, the first what the host feeds, the host reads the
 * last. A graph that cannot even be followed is no chain either. */
static uint32_t edge(const struct tnp_graph *g, uint32_t first, uint32_t i)
{
	return first < g->n_edges && i < g->n_edges - first ? g->edges[first + i] : TNP_NONE;
}

static int is_rows(const struct tnp_graph *g, uint32_t i)
{
	const struct tnp_tensor *t = i < g->n_tensors ? &g->tensors[i] : NULL;

	return t && t->type == TNP_F32 && t->rank == 2 && t->dim[0] == TNP_N_TOKENS && t->dim[1] > 0 &&
		t->dim[1] < 1 << 24 && t->buffer == TNP_NONE && !t->flags;
}

static int is_matrix(const struct tnp_graph *g, uint32_t i, int64_t rows, int64_t cols)
{
	const struct tnp_tensor *t = i < g->n_tensors ? &g->tensors[i] : NULL;
	uint64_t room = t && t->buffer < g->n_buffers ? g->buffers[t->buffer].bytes : 0;

	return t && t->type == TNP_F32 && t->rank == 2 && t->dim[0] == rows && t->dim[1] == cols &&
		!t->flags && t->bytes == (uint64_t)(rows * cols) * 4 && t->bytes <= room &&
		t->offset <= room - t->bytes;
}

static const char *node_wrong(const struct tnp_graph *g, uint32_t i)
{
	const struct tnp_node *n = &g->nodes[i];
	const struct tnp_attr *a = n->n_attr == 1 && n->attr0 < g->n_attrs ? &g->attrs[n->attr0] : NULL;
	uint32_t x = edge(g, n->in0, 0), y = edge(g, n->out0, 0);
	uint32_t before = i ? edge(g, n[-1].out0, 0) : g->n_in == 1 ? g->in[0] : TNP_NONE;

	if (n->op != TNP_OP_LINEAR || n->flags)
		return "not an operator of ours";
	if (n->n_in != 2 || n->n_out != 1 || (n->n_attr && !a))
		return "number of inputs, outputs or attributes";
	if (a && (a->key != TNP_A_ACT || a->is_float || (a->v.i != TNP_ACT_NONE && a->v.i != TNP_ACT_RELU)))
		return "attribute";
	if (!is_rows(g, x) || !is_rows(g, y) || x != before || g->n_out != 1 ||
		(g->out[0] == y) != (i + 1 == g->n_nodes))
		return "not rows in a chain";
	return is_matrix(g, edge(g, n->in0, 1), g->tensors[y].dim[1], g->tensors[x].dim[1]) ? NULL : "matrix";
}

static tnp_rc graph_take(struct tnp_graph *g, const struct tnp_graph *theirs, struct tnp_error *e)
{
	tnp_rc rc = take(g, sizeof *g, theirs, e);

	if (rc ||
		(g->n_nodes && g->n_out && g->tensors && g->nodes && g->edges && g->out &&
			(!g->n_in || g->in) && (!g->n_attrs || g->attrs) && (!g->n_buffers || g->buffers)))
		return rc;
	return fail(e, TNP_E_INVALID, "the graph lacks an array");
}

static tnp_rc model_check(
	struct tnp_dev *d, const struct tnp_graph *p, struct tnp_verdict *v, struct tnp_error *e)
{
	struct tnp_graph g;
	tnp_rc rc = graph_take(&g, p, e);

	(void)d;
	for (uint32_t i = 0; !rc && i < g.n_nodes; i++)
		v[i] = (struct tnp_verdict){ .ok = !node_wrong(&g, i) };
	return rc;
}

/* ---- models ---------------------------------------------------------------------------------------------------- */
/* Checks graph and limits and counts bytes; takes no memory that stays. */
static tnp_rc model_take(struct tnp_model *m, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *s, struct tnp_error *e)
{
	tnp_rc rc = graph_take(&m->g, g, e);

	*s = (struct tnp_sizes){ .kv_compat = "acme-1" };
	if (!rc)
		rc = take(&m->lim, sizeof m->lim, l, e);
	for (uint32_t i = 0; !rc && i < m->g.n_nodes; i++)
		if (node_wrong(&m->g, i))
			rc = fail(e, TNP_E_UNSUPPORTED, "a node is not one of ours");
	for (uint32_t i = 0; !rc && i < m->g.n_tensors; i++)
		if (is_rows(&m->g, i) && (uint64_t)m->g.tensors[i].dim[1] > m->width)
			m->width = (uint64_t)m->g.tensors[i].dim[1];
		else if (m->g.tensors[i].buffer != TNP_NONE)
			s->weights_mapped += m->g.tensors[i].bytes;
	s->workspace = 2 * m->width * sizeof(float);
	return rc;
}

static tnp_rc model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	struct tnp_model m = { .dev = d };
	struct tnp_sizes s;
	tnp_rc rc = model_take(&m, g, l, &s, e);

	return rc ? rc : give(o, &s, sizeof s);
}

static void model_close(struct tnp_model *m) { free(m ? m->row[0] : NULL), free(m); }

static tnp_rc model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m = calloc(1, sizeof *m);
	struct tnp_sizes s;
	tnp_rc rc = m ? model_take(m, g, l, &s, e) : TNP_E_NOMEM;
	uint64_t limit = m && m->lim.workspace_limit ? m->lim.workspace_limit : UINT64_MAX;

	if (!rc && (s.workspace > limit || !(m->row[0] = malloc(s.workspace))))
		rc = fail(e, TNP_E_NOMEM, "no memory, or over the limit");
	if (rc)
		return model_close(m), rc;
	m->row[1] = m->row[0] + m->width;
	m->dev = d;
	*o = m;
	return TNP_OK;
}

/* None of our graphs attends over the past, so there is never a pool. */
static tnp_rc kv_open(
	struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	return (void)m, (void)s, (void)o, fail(e, TNP_E_INVALID, "no slots in this graph");
}
static void kv_close(struct tnp_kv *k) { (void)k; }
static tnp_rc kv_copy(struct tnp_kv *k, uint32_t g, uint32_t a, uint32_t b, uint32_t n, struct tnp_error *e)
{
	return (void)k, (void)g, (void)a, (void)b, (void)n, fail(e, TNP_E_INVALID, "no pages");
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */
static void node_run(const struct tnp_graph *g, const struct tnp_node *n, const float *x, float *y)
{
	const struct tnp_tensor *t = &g->tensors[edge(g, n->in0, 1)];
	const float *w = (const float *)((const char *)g->buffers[t->buffer].data + t->offset);
	int relu = n->n_attr && g->attrs[n->attr0].v.i == TNP_ACT_RELU;

	for (int64_t r = 0; r < t->dim[0]; r++, w += t->dim[1]) {
		double sum = 0;

		for (int64_t i = 0; i < t->dim[1]; i++)
			sum += (double)w[i] * x[i];
		y[r] = relu && sum < 0 ? 0 : (float)sum;
	}
}

static int batch_broken(const struct tnp_model *m, const struct tnp_batch *b)
{
	uint64_t width = (uint64_t)m->g.tensors[m->g.out[0]].dim[1];

	if (b->n_seqs > m->lim.max_seqs || b->n_tokens > m->lim.max_tokens || !b->n_seqs)
		return b->n_seqs || b->n_tokens;
	if (!b->tok0 || !b->seq_rc || !b->in || !b->out || !b->out[0].data || b->out[0].stride < width)
		return 1;
	for (uint32_t s = 0; s < b->n_seqs; s++)
		if (b->tok0[s] > b->tok0[s + 1])
			return 1;
	return b->tok0[0] || b->tok0[b->n_seqs] != b->n_tokens;
}

static tnp_rc batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *theirs, uint64_t *ticket,
	struct tnp_error *e)
{
	size_t in = (size_t)m->g.tensors[m->g.in[0]].dim[1], out = (size_t)m->g.tensors[m->g.out[0]].dim[1];
	struct tnp_batch b;
	tnp_rc rc = take(&b, sizeof b, theirs, e);

	(void)k;
	if (rc || batch_broken(m, &b))
		return rc ? rc : fail(e, TNP_E_INVALID, "the batch cannot be followed");
	for (uint32_t t = 0; t < b.n_tokens; t++) {
		memcpy(m->row[0], b.in + t * in, in * sizeof(float));
		for (uint32_t i = 0; i < m->g.n_nodes; i++)
			node_run(&m->g, &m->g.nodes[i], m->row[i % 2], m->row[(i + 1) % 2]);
		memcpy(b.out[0].data + t * b.out[0].stride, m->row[m->g.n_nodes % 2], out * sizeof(float));
	}
	for (uint32_t s = 0; s < b.n_seqs; s++)
		b.seq_rc[s] = b.tok0[s] == b.tok0[s + 1] ? TNP_E_INVALID : TNP_OK;
	*ticket = ++m->dev->ticket;
	return TNP_OK;
}

/* Steps are done when batch returns. */
static tnp_rc wait_ticket(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	return (void)timeout_ns,
	       ticket && ticket <= d->ticket ? TNP_OK : fail(e, TNP_E_INVALID, "no such ticket");
}

/* clang-format off */
static const struct tnp_ops ops = {
	.size = sizeof ops, .abi_major = TNP_ABI_MAJOR, .abi_minor = TNP_ABI_MINOR,
	.name = "acme", .vendor = "Acme", .version = "1.0", .start = start, .stop = stop,
	.dev_count = dev_count, .dev_info = dev_info, .dev_open = dev_open, .dev_close = dev_close, .dev_memory = dev_memory,
	.op_caps = op_caps, .kv_caps = kv_caps, .model_check = model_check, .model_sizes = model_sizes,
	.model_open = model_open, .model_close = model_close, .kv_open = kv_open, .kv_close = kv_close, .kv_copy = kv_copy,
	.batch = batch, .wait = wait_ticket
};

tnp_entry_fn tnp_entry;
const struct tnp_ops *tnp_entry(uint32_t want, uint32_t least)
{
	return want >= TNP_ABI_MAJOR && least <= TNP_ABI_MAJOR ? &ops : NULL;
}
