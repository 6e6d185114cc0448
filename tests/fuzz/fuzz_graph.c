/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a model file, up to its graph behind the passes. Either refused with a code and a text, or every weight lies
 * inside the file, every edge names a tensor, and every activation has a place in the arena.
 */
#include "base/base.h"
#include "engine/arch.h"
#include "engine/pass.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_tensor(const struct tnp_graph *t, const struct tnp_tensor *x)
{
	must(x->rank >= 1 && x->rank <= TNP_MAX_RANK);
	if (x->buffer == TNP_NONE) {
		must(checked_range(x->offset, x->bytes, t->arena_bytes));
		return;
	}
	must(x->buffer < t->n_buffers && checked_range(x->offset, x->bytes, t->buffers[x->buffer].bytes));
	for (uint32_t i = 0; i < x->rank; i++)
		must(x->dim[i] > 0);
}

static void check_graph(const struct tnp_graph *t)
{
	for (uint32_t i = 0; i < t->n_tensors; i++)
		check_tensor(t, &t->tensors[i]);
	for (uint32_t i = 0; i < t->n_edges; i++)
		must(t->edges[i] < t->n_tensors);
	for (uint32_t i = 0; i < t->n_nodes; i++) {
		const struct tnp_node *n = &t->nodes[i];

		must(checked_range(n->in0, n->n_in, t->n_edges) &&
			checked_range(n->out0, n->n_out, t->n_edges) &&
			checked_range(n->attr0, n->n_attr, t->n_attrs));
	}
	must(t->n_out == 1 && t->out[0] < t->n_tensors);
}

static int run(const struct gguf *f, struct error *e)
{
	struct graph_slots slots = { 0 };
	const struct tnp_graph *t;
	const struct arch *a;
	struct arch_params p;
	struct graph *g = NULL;
	int rc = arch_find(f, &a, e);

	if (!rc)
		rc = arch_params_read(f, a, &p, e);
	if (!rc)
		rc = graph_create(f, &g, e);
	if (rc)
		return rc;
	a->build(f, &p, g);
	graph_passes_run(g, &(struct pass_options){ 0 }, NULL);
	t = graph_finish(g, 512, 32, 16, e);
	if (t) {
		check_graph(t);
		rc = graph_slots(g, &slots, e);
	}
	mem_free(slots.slot);
	graph_destroy(g);
	return t ? rc : e->code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf *f = NULL;
	struct error e = { 0 };
	int rc = gguf_open_memory(data, size, &f, &e);

	if (!rc)
		rc = run(f, &e);
	must(!rc || (rc < 0 && e.code == rc && e.text[0]));
	gguf_close(f);
	return 0;
}
