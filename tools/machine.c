/* SPDX-License-Identifier: Apache-2.0
 * machine.h. Without AVX2 only reading is measured: arithmetic shares are then left out.
 */
#include "tools/machine.h"
#include "base/base.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef TENON_LIMITS
#include "tools/limits.h"
#endif

enum { READ_BYTES = 256 << 20, READ_THREADS = 64, READ_REPEATS = 5 };

const char *machine_unit_name(enum machine_unit u)
{
	static const char *const names[MACHINE_UNITS] = { "int8", "int16", "f32" };

	return names[u];
}

bool machine_is_wide(const char *isa) { return !isa || strstr(isa, "512"); }

/* ---- limits --------------------------------------------------------------------------------------------------------- */

#ifdef TENON_LIMITS
static bool measure_loops(struct machine_meter *m, uint32_t threads, bool wide, struct machine *out)
{
	static const enum limit loops[MACHINE_UNITS][2] = { { LIMIT_DEFERRED, LIMIT_VNNI },
		{ LIMIT_MADD16, LIMIT_VNNI16 }, { LIMIT_F32, LIMIT_F32_512 } };

	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
		return false;
	for (int u = 0; u < MACHINE_UNITS; u++)
		for (int w = 0; w <= wide; w++) {
			double gops = limit_gops(loops[u][w], threads);

			if (gops <= out->gops[u])
				continue;
			out->gops[u] = gops;
			out->loop[u] = limit_name(loops[u][w]);
		}
	out->read_gb_s = limit_read(m->block, READ_BYTES, threads);
	limit_stop();
	return true;
}
#else
static bool measure_loops(struct machine_meter *m, uint32_t threads, bool wide, struct machine *out)
{
	(void)m, (void)threads, (void)wide, (void)out;
	return false;
}
#endif

struct reader {
	const uint64_t *p;
	size_t n;
	uint64_t sum;
};

static void *read_all(void *arg)
{
	struct reader *rd = arg;
	uint64_t s[8] = { 0 };

	for (size_t i = 0; i + 8 <= rd->n; i += 8)
		for (int k = 0; k < 8; k++)
			s[k] += rd->p[i + (size_t)k];
	rd->sum = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
	return NULL;
}

/* In plain C, for machines that the loops do not know. */
static double read_plain(const uint64_t *block, uint32_t threads)
{
	struct reader rd[READ_THREADS];
	pthread_t th[READ_THREADS];
	uint32_t n = MIN_OF(threads, READ_THREADS), made = 0;
	size_t part = READ_BYTES / sizeof *block / n;
	uint64_t t0 = clock_now_ns();

	for (uint32_t i = 0; i < n; i++) {
		rd[made] = (struct reader){ .p = block + part * i, .n = part };
		made += !pthread_create(&th[made], NULL, read_all, &rd[made]);
	}
	for (uint32_t i = 0; i < made; i++)
		(void)pthread_join(th[i], NULL);
	return (double)READ_BYTES * made / n / (double)(clock_now_ns() - t0);
}

int machine_measure(
	struct machine_meter *m, uint32_t threads, bool wide, struct machine *out, struct error *e)
{
	*out = (struct machine){ 0 };
	if (!m->block) {
		m->block = mem_alloc(MEM_TOOL, READ_BYTES);
		if (!m->block)
			return error_set(e, TENON_E_NOMEM, "no memory (%d MiB) to measure reading with",
				READ_BYTES >> 20);
		memset(m->block, 1, READ_BYTES);
	}
	if (measure_loops(m, threads, wide, out))
		return TENON_OK;
	for (int r = 0; r < READ_REPEATS; r++)
		out->read_gb_s = MAX_OF(out->read_gb_s, read_plain(m->block, threads));
	return TENON_OK;
}

void machine_meter_finish(struct machine_meter *m)
{
	mem_free(m->block);
	m->block = NULL;
}

/* ---- what a step needs ---------------------------------------------------------------------------------------------- */

enum machine_unit machine_node_unit(const struct tnp_graph *t, uint32_t node, uint32_t precision)
{
	const struct tnp_node *n = &t->nodes[node];

	if (precision == TNP_EXACT || (n->op != TNP_OP_LINEAR && n->op != TNP_OP_MOE_LINEAR))
		return MACHINE_F32;
	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct tnp_tensor *w = &t->tensors[t->edges[n->in0 + i]];

		if (w->buffer == TNP_NONE || w->rank < 2)
			continue;
		if (w->type == TNP_F32 || w->type == TNP_F16 || w->type == TNP_BF16)
			return MACHINE_F32;
		return w->type == TNP_Q8_0 ? MACHINE_INT16 : MACHINE_INT8;
	}
	return MACHINE_F32;
}

/* Attention is counted for each sequence, all else for the rows of all. */
void machine_node_cost(
	const struct tnp_graph *t, uint32_t node, const struct machine_step *s, struct graph_cost *out)
{
	bool each = t->nodes[node].op == TNP_OP_ATTEND && s->n_seqs;
	uint32_t by = each ? s->n_seqs : 1;
	const struct graph_step step = { .n_tokens = each ? s->tokens : s->tokens * s->n_seqs,
		.n_seqs = each ? 1 : s->n_seqs,
		.n_out = each ? 1 : s->n_out,
		.past = s->past,
		.kv_type = s->kv_type };

	graph_node_cost(t, node, &step, out);
	out->weight_bytes *= by;
	out->activation_bytes *= by;
	out->kv_bytes *= by;
	out->operations *= by;
}

void machine_need_add(const struct tnp_graph *t, const struct machine_step *s, struct machine_need *n)
{
	for (uint32_t i = 0; i < t->n_nodes; i++) {
		struct graph_cost c;

		machine_node_cost(t, i, s, &c);
		n->ops[machine_node_unit(t, i, s->precision)] += (double)c.operations;
		n->bytes += (double)c.weight_bytes + (double)c.kv_bytes;
	}
}

double machine_ops_s(const struct machine *m, const struct machine_need *n)
{
	double s = 0;

	for (int u = 0; u < MACHINE_UNITS; u++) {
		if (n->ops[u] > 0 && m->gops[u] <= 0)
			return 0;
		s += n->ops[u] > 0 ? n->ops[u] / m->gops[u] * 1e-9 : 0;
	}
	return s;
}

double machine_read_s(const struct machine *m, const struct machine_need *n)
{
	return m->read_gb_s > 0 ? n->bytes / m->read_gb_s * 1e-9 : 0;
}
