/* SPDX-License-Identifier: Apache-2.0
 * Self check of a device inside tenon-probe: a graph of three nodes on numbers known beforehand. A build for another
 * processor, or a driver that computes nonsense, shows it here instead of in somebody's answers. What the backend does
 * not claim is not asked of it.
 */
#include "plugins/plugins_priv.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 8, K = 64, M = 32, N_TOKENS = 3, N_OUT = 2, N_NODES = 3 };

struct numbers {
	_Alignas(64) float table[VOCAB][K];
	float w[M][K];
};

/* EMBED -> x, LINEAR -> y, SELECT -> z */
enum tensor { TABLE, WEIGHT, X, Y, Z, N_TENSORS };

#define BEHIND offsetof(struct numbers, w)
static const struct tnp_tensor tensors[N_TENSORS] = {
	[TABLE] = { .type = TNP_F32, .rank = 2, .dim = { VOCAB, K }, .buffer = 0, .bytes = BEHIND },
	[WEIGHT] = { .type = TNP_F32,
		.rank = 2,
		.dim = { M, K },
		.buffer = 0,
		.offset = BEHIND,
		.bytes = M * K * sizeof(float) },
	[X] = { .type = TNP_F32,
		.rank = 2,
		.dim = { TNP_N_TOKENS, K },
		.buffer = TNP_NONE,
		.bytes = N_TOKENS * K * sizeof(float) },
	[Y] = { .type = TNP_F32,
		.rank = 2,
		.dim = { TNP_N_TOKENS, M },
		.buffer = TNP_NONE,
		.offset = 1024,
		.bytes = N_TOKENS * M * sizeof(float) },
	[Z] = { .type = TNP_F32,
		.rank = 2,
		.dim = { TNP_N_OUT, M },
		.buffer = TNP_NONE,
		.offset = 2048,
		.bytes = N_OUT * M * sizeof(float) },
};
static const uint32_t edges[] = { TABLE, X, X, WEIGHT, Y, Y, Z }, outputs[] = { Z };
static const struct tnp_node nodes[N_NODES] = {
	{ .op = TNP_OP_EMBED, .in0 = 0, .n_in = 1, .out0 = 1, .n_out = 1 },
	{ .op = TNP_OP_LINEAR, .in0 = 2, .n_in = 2, .out0 = 4, .n_out = 1 },
	{ .op = TNP_OP_SELECT, .in0 = 5, .n_in = 1, .out0 = 6, .n_out = 1 },
};
static const int32_t tokens[N_TOKENS] = { 5, 0, 7 }, positions[N_TOKENS] = { 0, 1, 2 };
static const uint32_t out_tok[N_OUT] = { 0, 2 };

/* Small whole numbers over 64: every product and sum is exact in any order. */
static void fill(struct numbers *n)
{
	for (int i = 0; i < VOCAB; i++)
		for (int k = 0; k < K; k++)
			n->table[i][k] = (float)((i * 37 + k * 11) % 41 - 20) / 64;
	for (int j = 0; j < M; j++)
		for (int k = 0; k < K; k++)
			n->w[j][k] = (float)((j * 29 + k * 17) % 53 - 26) / 64;
}

/* Within a thousandth of the row's size, as the tolerance for floats is. */
static bool row_right(const struct numbers *n, int32_t token, const float *got)
{
	double want[M], size = 0;

	for (int j = 0; j < M; j++) {
		want[j] = 0;
		for (int k = 0; k < K; k++)
			want[j] += (double)n->table[token][k] * n->w[j][k];
		size = fmax(size, fabs(want[j]));
	}
	for (int j = 0; j < M; j++)
		if (!(fabs(got[j] - want[j]) <= 1e-3 * size))
			return false;
	return true;
}

static int step(const struct tnp_ops *o, struct tnp_dev *d, struct tnp_model *m, float rows[N_OUT][M],
	struct error *e)
{
	static const uint32_t tok0[] = { 0, N_TOKENS }, past[] = { 0 };
	struct tnp_rows out = { .data = rows[0], .stride = M };
	struct tnp_error te = TNP_ERROR_INIT;
	tnp_rc seq_rc = TNP_OK;
	struct tnp_batch b = { .size = sizeof b,
		.n_seqs = 1,
		.n_tokens = N_TOKENS,
		.n_out = N_OUT,
		.token = tokens,
		.pos = positions,
		.tok0 = tok0,
		.past = past,
		.out_tok = out_tok,
		.out = &out,
		.seq_rc = &seq_rc };
	uint64_t ticket = 0;
	int rc = plugin_error(o->name, "batch", o->batch(m, NULL, &b, &ticket, &te), &te, e);

	if (!rc)
		rc = plugin_error(
			o->name, "wait", o->wait(d, ticket, PLUGIN_PROBE_MS * NS_PER_MS, &te), &te, e);
	return rc ? rc : plugin_error(o->name, "step", seq_rc, &te, e);
}

static int run(const struct tnp_ops *o, struct tnp_dev *d, const struct tnp_graph *g, const struct numbers *n,
	struct error *e)
{
	const struct tnp_limits l = { .size = sizeof l,
		.precision = TNP_EXACT,
		.max_tokens = 4,
		.max_seqs = 1,
		.max_out = N_OUT,
		.max_pages_per_seq = 1,
		.kv_type = TNP_F16,
		.page_tokens = 32 };
	struct tnp_error te = TNP_ERROR_INIT;
	float rows[N_OUT][M] = { { 0 } };
	struct tnp_model *m = NULL;
	int rc = plugin_error(o->name, "model_open", o->model_open(d, g, &l, &m, &te), &te, e);

	if (rc)
		return rc;
	rc = step(o, d, m, rows, e);
	o->model_close(m);
	for (int i = 0; !rc && i < N_OUT; i++)
		if (!row_right(n, tokens[out_tok[i]], rows[i]))
			rc = error_set(e, TENON_E_BACKEND,
				"plugin '%s': computes wrong numbers in its self check", o->name);
	return rc;
}

int probe_check(const struct tnp_ops *o, struct tnp_dev *d, struct error *e)
{
	static struct numbers n;
	const struct tnp_span file = { .data = &n, .bytes = sizeof n, .fd = -1 };
	const struct tnp_graph g = { .size = sizeof g,
		.opset = TNP_OPSET,
		.n_tensors = N_TENSORS,
		.n_nodes = N_NODES,
		.n_edges = COUNT_OF(edges),
		.n_buffers = 1,
		.n_out = 1,
		.tensors = tensors,
		.nodes = nodes,
		.edges = edges,
		.buffers = &file,
		.out = outputs,
		.arena_bytes = 4096 };
	struct tnp_verdict v[N_NODES] = { { 0 } };
	struct tnp_error te = TNP_ERROR_INIT;
	int rc;

	fill(&n);
	rc = plugin_error(o->name, "model_check", o->model_check(d, &g, v, &te), &te, e);
	for (int i = 0; !rc && i < N_NODES; i++)
		if (!v[i].ok)
			return TENON_OK;
	return rc ? rc : run(o, d, &g, &n, e);
}
