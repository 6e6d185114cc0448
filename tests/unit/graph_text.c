/* SPDX-License-Identifier: Apache-2.0
 * graph_text.h.
 */
#include "tests/unit/graph_text.h"
#include <string.h>

static void put_shape(const struct tnp_tensor *x, struct buf *out)
{
	for (uint32_t d = 0; d < x->rank; d++)
		(void)buf_printf(out, "%s%lld", d ? "," : "[", (long long)x->dim[d]);
	(void)buf_puts(out, "]");
}

static void put_constant(const struct tnp_graph *t, const struct tnp_tensor *x, struct buf *out)
{
	const char *data = (const char *)t->buffers[x->buffer].data + x->offset;

	(void)buf_puts(out, "constant");
	put_shape(x, out);
	for (uint64_t i = 0; i + sizeof(float) <= x->bytes; i += sizeof(float)) {
		float v;

		memcpy(&v, data + i, sizeof v);
		(void)buf_printf(out, " %.9g", (double)v);
	}
}

static void put_edge(
	const struct graph *g, const struct tnp_graph *t, const uint32_t *number, uint32_t e, struct buf *out)
{
	const struct tnp_tensor *x = &t->tensors[e];
	const struct gguf_tensor *w = graph_file_tensor(g, e);

	if (w)
		(void)buf_printf(out, " %.*s", (int)w->name.len, w->name.s);
	else if (x->buffer == TNP_NONE)
		(void)buf_printf(out, " %%%u", number[e]);
	else {
		(void)buf_puts(out, " ");
		put_constant(t, x, out);
	}
}

/* Keys in ascending order; a key is below 32. */
static void put_attrs(const struct tnp_graph *t, const struct tnp_node *n, struct buf *out)
{
	for (uint32_t key = 0; key < 32; key++)
		for (uint32_t i = 0; i < n->n_attr; i++) {
			const struct tnp_attr *a = &t->attrs[n->attr0 + i];

			if (a->key == key && a->is_float)
				(void)buf_printf(out, " %u=%.17g", key, a->v.f);
			else if (a->key == key)
				(void)buf_printf(out, " %u:%lld", key, (long long)a->v.i);
		}
}

void graph_text(const struct graph *g, const struct tnp_graph *t, struct buf *out)
{
	uint32_t *number = mem_zalloc(MEM_TOOL, t->n_tensors, sizeof *number), made = 0;
	char name[96];

	for (uint32_t i = 0; number && i < t->n_in; i++)
		number[t->in[i]] = made++;
	for (uint32_t i = 0; number && i < t->n_nodes; i++) {
		const struct tnp_node *n = &t->nodes[i];

		graph_node_name(g, i, name, sizeof name);
		(void)buf_puts(out, name);
		for (uint32_t j = 0; j < n->n_in; j++)
			put_edge(g, t, number, t->edges[n->in0 + j], out);
		(void)buf_puts(out, " ->");
		for (uint32_t j = 0; j < n->n_out; j++) {
			uint32_t y = t->edges[n->out0 + j];

			number[y] = made++;
			(void)buf_printf(out, " %%%u", number[y]);
			put_shape(&t->tensors[y], out);
		}
		put_attrs(t, n, out);
		(void)buf_puts(out, "\n");
	}
	(void)buf_puts(out, "out");
	for (uint32_t i = 0; number && i < t->n_out; i++)
		(void)buf_printf(out, " %%%u", number[t->out[i]]);
	(void)buf_puts(out, "\n");
	mem_free(number);
}
