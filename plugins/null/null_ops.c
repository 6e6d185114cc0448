/* SPDX-License-Identifier: Apache-2.0
 * The plugin that takes every graph and computes nothing: all rows are zero. For tests of what stands around a
 * backend, and for measuring it. It follows the graph only as far as it must to know slots and rows; a broken graph is
 * not its concern. Thread: the host's one per device.
 */
#include <tenon/plugin.h>
#include <stdlib.h>
#include <string.h>

struct tnp_dev {
	uint64_t ticket;
};
struct tnp_model {
	struct tnp_dev *dev;
	struct tnp_graph g;
	struct tnp_limits lim;
};
struct tnp_kv {
	struct tnp_model *m;
	uint64_t n_pages[TNP_MAX_GROUPS];
};

#define PAGE_BYTES 64u /* what kv_read and kv_write move: nothing depends on it */

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Rules R2 and R3. */
static tnp_rc take(void *own, uint32_t own_bytes, const void *theirs)
{
	uint32_t size;

	if (!theirs)
		return TNP_E_INVALID;
	memcpy(&size, theirs, sizeof size);
	for (uint32_t i = own_bytes; i < size; i++)
		if (((const uint8_t *)theirs)[i])
			return TNP_E_UNSUPPORTED;
	memset(own, 0, own_bytes);
	memcpy(own, theirs, min_u32(size, own_bytes));
	return TNP_OK;
}

static tnp_rc null_start(const struct tnp_host *h, struct tnp_error *e)
{
	struct tnp_host own;

	(void)e;
	return take(&own, sizeof own, h);
}

static tnp_rc null_stop(struct tnp_error *e)
{
	(void)e;
	return TNP_OK;
}

static tnp_rc null_dev_count(uint32_t *n, struct tnp_error *e)
{
	(void)e;
	*n = 1;
	return TNP_OK;
}

static tnp_rc null_dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	struct tnp_device d = { .kind = TNP_OTHER,
		.name = "null",
		.driver = "tenon",
		.isa = "any",
		.features = TNP_F_INVARIANT | TNP_F_KV_IO,
		.mem_total = 1ull << 40,
		.mem_max_alloc = 1ull << 40,
		.numa_node = -1 };

	(void)e;
	if (i)
		return TNP_E_INVALID;
	d.size = min_u32(o->size, sizeof d);
	memcpy(o, &d, d.size);
	return TNP_OK;
}

static tnp_rc null_dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	struct tnp_dev *d = i ? NULL : calloc(1, sizeof *d);

	(void)e;
	if (!d)
		return i ? TNP_E_INVALID : TNP_E_NOMEM;
	*o = d;
	return TNP_OK;
}

static void null_dev_close(struct tnp_dev *d) { free(d); }

static tnp_rc null_dev_memory(struct tnp_dev *d, uint64_t *free_bytes, struct tnp_error *e)
{
	(void)d, (void)e;
	*free_bytes = 1ull << 40;
	return TNP_OK;
}

static tnp_rc null_op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	uint32_t room = rows ? *n : 0;

	(void)d, (void)e;
	for (uint32_t op = TNP_OP_EMBED; op <= TNP_OP_RESHAPE && op <= room; op++)
		rows[op - 1] = (struct tnp_op_cap){ op, 0, ~0ull, ~0ull, ~0ull };
	*n = TNP_OP_RESHAPE;
	return TNP_OK;
}

static tnp_rc null_kv_caps(
	struct tnp_dev *d, uint64_t *types, uint32_t *page_min, uint32_t *page_max, struct tnp_error *e)
{
	(void)d, (void)e;
	*types = TNP_TYPES(TNP_F32) | TNP_TYPES(TNP_F16) | TNP_TYPES(TNP_Q8_0) | TNP_TYPES(TNP_Q4_0);
	*page_min = 1;
	*page_max = 65536;
	return TNP_OK;
}

static tnp_rc null_model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	struct tnp_graph own;
	tnp_rc rc = take(&own, sizeof own, g);

	(void)d, (void)e;
	for (uint32_t i = 0; !rc && i < own.n_nodes; i++)
		v[i] = (struct tnp_verdict){ .ok = 1 };
	return rc;
}

static tnp_rc null_model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	struct tnp_sizes s = { .workspace = sizeof(struct tnp_model), .kv_compat = "tenon-null" };
	struct tnp_limits lim;
	struct tnp_graph own;
	tnp_rc rc = take(&own, sizeof own, g);

	(void)d, (void)e;
	if (!rc)
		rc = take(&lim, sizeof lim, l);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < TNP_MAX_GROUPS; i++)
		s.kv_page[i] = PAGE_BYTES;
	s.size = min_u32(o->size, sizeof s);
	memcpy(o, &s, s.size);
	return TNP_OK;
}

static tnp_rc null_model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	struct tnp_model *m = calloc(1, sizeof *m);
	tnp_rc rc;

	(void)e;
	if (!m)
		return TNP_E_NOMEM;
	m->dev = d;
	rc = take(&m->g, sizeof m->g, g);
	if (!rc)
		rc = take(&m->lim, sizeof m->lim, l);
	if (rc)
		free(m);
	else
		*o = m;
	return rc;
}

static void null_model_close(struct tnp_model *m) { free(m); }

static tnp_rc null_kv_open(
	struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	struct tnp_kv_spec own;
	tnp_rc rc = take(&own, sizeof own, s);
	struct tnp_kv *k = rc ? NULL : calloc(1, sizeof *k);

	(void)e;
	if (!k)
		return rc ? rc : TNP_E_NOMEM;
	k->m = m;
	memcpy(k->n_pages, own.n_pages, sizeof k->n_pages);
	*o = k;
	return TNP_OK;
}

static void null_kv_close(struct tnp_kv *k) { free(k); }

static tnp_rc page_check(const struct tnp_kv *k, uint32_t group, uint32_t page)
{
	return group < TNP_MAX_GROUPS && page < k->n_pages[group] ? TNP_OK : TNP_E_INVALID;
}

static tnp_rc null_kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct tnp_error *e)
{
	(void)e;
	if (n_tokens > k->m->lim.page_tokens || page_check(k, group, from))
		return TNP_E_INVALID;
	return page_check(k, group, to);
}

static tnp_rc null_kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e)
{
	(void)e;
	if (page_check(k, group, page))
		return TNP_E_INVALID;
	memset(out, 0, PAGE_BYTES);
	return TNP_OK;
}

static tnp_rc null_kv_write(
	struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e)
{
	(void)in, (void)e;
	return page_check(k, group, page);
}

/* Zero rows for every output; the batch is taken at its word but for the limits. */
static tnp_rc null_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *batch,
	uint64_t *ticket, struct tnp_error *e)
{
	struct tnp_batch b;
	tnp_rc rc = take(&b, sizeof b, batch);

	(void)k, (void)e;
	if (rc)
		return rc;
	if (b.n_tokens > m->lim.max_tokens || b.n_seqs > m->lim.max_seqs || b.n_out > m->lim.max_out)
		return TNP_E_INVALID;
	for (uint32_t o = 0; o < m->g.n_out; o++) {
		const struct tnp_tensor *t = &m->g.tensors[m->g.out[o]];
		uint32_t n = t->dim[0] == TNP_N_TOKENS ? b.n_tokens
			: t->dim[0] == TNP_N_SEQS      ? b.n_seqs
						       : b.n_out;
		uint64_t width = 1;

		for (uint32_t i = 1; i < t->rank; i++)
			width *= (uint64_t)t->dim[i];
		for (uint32_t r = 0; r < n; r++)
			memset(b.out[o].data + r * b.out[o].stride, 0, width * sizeof(float));
	}
	for (uint32_t s = 0; s < b.n_seqs; s++)
		b.seq_rc[s] = TNP_OK;
	*ticket = ++m->dev->ticket;
	return TNP_OK;
}

static tnp_rc null_wait(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	(void)timeout_ns, (void)e;
	return ticket && ticket <= d->ticket ? TNP_OK : TNP_E_INVALID;
}

extern const struct tnp_ops null_ops; /* null.c, and the plugin `fault` around it */
const struct tnp_ops null_ops = {
	.size = sizeof null_ops,
	.abi_major = TNP_ABI_MAJOR,
	.abi_minor = TNP_ABI_MINOR,
	.name = "null",
	.vendor = "Tenon",
	.version = "1",
	.start = null_start,
	.stop = null_stop,
	.dev_count = null_dev_count,
	.dev_info = null_dev_info,
	.dev_open = null_dev_open,
	.dev_close = null_dev_close,
	.dev_memory = null_dev_memory,
	.op_caps = null_op_caps,
	.kv_caps = null_kv_caps,
	.model_check = null_model_check,
	.model_sizes = null_model_sizes,
	.model_open = null_model_open,
	.model_close = null_model_close,
	.kv_open = null_kv_open,
	.kv_close = null_kv_close,
	.kv_copy = null_kv_copy,
	.batch = null_batch,
	.wait = null_wait,
	.kv_read = null_kv_read,
	.kv_write = null_kv_write,
};
