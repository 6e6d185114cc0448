/* SPDX-License-Identifier: Apache-2.0
 * A plugin as it could have been written for ABI 1.0: it takes graphs of one SCALE node. Frozen with the header beside
 * it: today's host must go on loading and running it as it is.
 */
#include <stdlib.h>
#include <string.h>
#include <tenon/plugin.h>

struct tnp_dev {
	uint64_t ticket;
};
struct tnp_model {
	struct tnp_dev *dev;
	uint64_t width;
	double by;
};

static tnp_rc tail(const void *p, uint32_t own)
{
	uint32_t size = *(const uint32_t *)p;

	for (uint32_t i = own; i < size; i++)
		if (((const char *)p)[i])
			return TNP_E_UNSUPPORTED;
	return TNP_OK;
}

static tnp_rc start(const struct tnp_host *h, struct tnp_error *e) { return (void)e, tail(h, sizeof *h); }
static tnp_rc stop(struct tnp_error *e) { return (void)e, TNP_OK; }
static tnp_rc dev_count(uint32_t *n, struct tnp_error *e) { return (void)e, *n = 1, TNP_OK; }

static tnp_rc dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	struct tnp_device d = { .kind = TNP_OTHER, .name = "toy of 1.0", .mem_total = 1 << 20 };

	(void)e;
	d.size = o->size < sizeof d ? o->size : sizeof d;
	memcpy(o, &d, d.size);
	return i ? TNP_E_INVALID : TNP_OK;
}

static tnp_rc dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	(void)e;
	if (i)
		return TNP_E_INVALID;
	*o = calloc(1, sizeof **o);
	return *o ? TNP_OK : TNP_E_NOMEM;
}

static void dev_close(struct tnp_dev *d) { free(d); }

static tnp_rc dev_memory(struct tnp_dev *d, uint64_t *n, struct tnp_error *e)
{
	return (void)d, (void)e, *n = 1 << 20, TNP_OK;
}

static tnp_rc op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	(void)d, (void)e;
	if (rows && *n)
		rows[0] = (struct tnp_op_cap){ TNP_OP_SCALE, 0, TNP_TYPES(TNP_F32), 0, TNP_TYPES(TNP_F32) };
	*n = 1;
	return TNP_OK;
}

static tnp_rc kv_caps(struct tnp_dev *d, uint64_t *types, uint32_t *lo, uint32_t *hi, struct tnp_error *e)
{
	return (void)d, (void)e, *types = 1, *lo = 1, *hi = 1, TNP_OK;
}

static tnp_rc model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	(void)d, (void)e;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		v[i] = (struct tnp_verdict){ .ok = g->n_nodes == 1 && g->nodes[i].op == TNP_OP_SCALE };
	return tail(g, sizeof *g);
}

static tnp_rc model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	struct tnp_sizes s = { .workspace = sizeof(struct tnp_model) };

	(void)d, (void)e, (void)l;
	s.size = o->size < sizeof s ? o->size : sizeof s;
	memcpy(o, &s, s.size);
	return tail(g, sizeof *g);
}

static tnp_rc model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m;

	(void)e;
	if (tail(g, sizeof *g) || tail(l, sizeof *l) || g->n_nodes != 1 || g->nodes[0].op != TNP_OP_SCALE)
		return TNP_E_UNSUPPORTED;
	m = calloc(1, sizeof *m);
	if (!m)
		return TNP_E_NOMEM;
	m->dev = d;
	m->width = (uint64_t)g->tensors[g->out[0]].dim[1];
	m->by = g->attrs[g->nodes[0].attr0].v.f;
	*o = m;
	return TNP_OK;
}

static void model_close(struct tnp_model *m) { free(m); }

static tnp_rc kv_open(
	struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	return (void)m, (void)s, (void)o, (void)e, TNP_E_INVALID;
}

static void kv_close(struct tnp_kv *k) { (void)k; }

static tnp_rc kv_copy(struct tnp_kv *k, uint32_t g, uint32_t a, uint32_t b, uint32_t n, struct tnp_error *e)
{
	return (void)k, (void)g, (void)a, (void)b, (void)n, (void)e, TNP_E_INVALID;
}

static tnp_rc batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	struct tnp_error *e)
{
	(void)k, (void)e;
	if (tail(b, sizeof *b))
		return TNP_E_UNSUPPORTED;
	for (uint32_t t = 0; t < b->n_tokens; t++)
		for (uint64_t i = 0; i < m->width; i++)
			b->out[0].data[t * b->out[0].stride + i] = (float)(m->by * b->in[t * m->width + i]);
	for (uint32_t s = 0; s < b->n_seqs; s++)
		b->seq_rc[s] = TNP_OK;
	*ticket = ++m->dev->ticket;
	return TNP_OK;
}

static tnp_rc wait_done(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	return (void)timeout_ns, (void)e, ticket && ticket <= d->ticket ? TNP_OK : TNP_E_INVALID;
}

static const struct tnp_ops table = { .size = sizeof table,
	.abi_major = 1,
	.name = "toy10",
	.vendor = "Tenon",
	.version = "1.0",
	.start = start,
	.stop = stop,
	.dev_count = dev_count,
	.dev_info = dev_info,
	.dev_open = dev_open,
	.dev_close = dev_close,
	.dev_memory = dev_memory,
	.op_caps = op_caps,
	.kv_caps = kv_caps,
	.model_check = model_check,
	.model_sizes = model_sizes,
	.model_open = model_open,
	.model_close = model_close,
	.kv_open = kv_open,
	.kv_close = kv_close,
	.kv_copy = kv_copy,
	.batch = batch,
	.wait = wait_done };

__attribute__((visibility("default"))) tnp_entry_fn tnp_entry;

const struct tnp_ops *tnp_entry(uint32_t want, uint32_t least)
{
	return want >= 1 && least <= 1 ? &table : NULL;
}
