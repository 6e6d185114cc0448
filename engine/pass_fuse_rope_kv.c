/* SPDX-License-Identifier: Apache-2.0
 * fuse_rope_kv: ROPE of q and of k in front of an ATTEND becomes its ROPE_MODE, so that turned keys go to their pages without
 * lying in between. Both must turn alike and be read here alone. ATTEND knows no scale of positions: it becomes frequency
 * factors, pos * s / (f * base^..) = pos / (f / s * base^..).
 */
#include "engine/pass_edit.h"

enum { MOST_FACTORS = 1 << 16 };

static double rope_scale(const struct pass_node *n) { return pass_float(n, TNP_A_SCALE, 1); }

static bool turn_alike(const struct pass_node *q, const struct pass_node *k)
{
	int64_t d = pass_int(q, TNP_A_HEAD_DIM, 0);

	return pass_int(k, TNP_A_HEAD_DIM, 0) == d &&
		pass_int(q, TNP_A_ROPE_MODE, -1) == pass_int(k, TNP_A_ROPE_MODE, -1) &&
		pass_int(q, TNP_A_ROPE_DIMS, d) == pass_int(k, TNP_A_ROPE_DIMS, d) &&
		pass_float(q, TNP_A_ROPE_BASE, 10000) == pass_float(k, TNP_A_ROPE_BASE, 10000) &&
		rope_scale(q) == rope_scale(k) && q->n_weight == k->n_weight &&
		(!q->n_weight || q->weight[0] == k->weight[0]);
}

/* Factors with the scale in them: false where they cannot be told now. */
static bool factors_of(struct pass_edit *x, const struct pass_node *q, graph_tensor *out)
{
	int64_t half = pass_int(q, TNP_A_ROPE_DIMS, pass_int(q, TNP_A_HEAD_DIM, 0)) / 2;
	double scale = rope_scale(q);
	float *f = NULL;
	uint64_t n = 0;

	*out = q->n_weight ? q->weight[0] : TNP_NONE;
	if (scale == 1)
		return true;
	if (half < 1 || half > MOST_FACTORS || !(scale > 0))
		return false;
	if (q->n_weight && (!pass_values(x, q->weight[0], MOST_FACTORS, &f, &n) || n != (uint64_t)half)) {
		mem_free(f);
		return false;
	}
	if (!q->n_weight)
		f = mem_alloc(MEM_ENGINE, (size_t)half * sizeof *f);
	for (int64_t i = 0; f && i < half; i++)
		f[i] = (float)((q->n_weight ? f[i] : 1) / scale);
	if (!f)
		graph_fail(x->g, TENON_E_NOMEM, "graph: no memory for the passes");
	else
		*out = pass_constant(x, f, 1, (int64_t[TNP_MAX_RANK]){ half });
	mem_free(f);
	return *out != TNP_NONE;
}

static bool rope_of(struct pass_edit *x, graph_tensor t, int64_t heads, int64_t head_dim, uint32_t *at,
	struct pass_node *out)
{
	return pass_only_here(x, t) && pass_made_by(x, t, TNP_OP_ROPE, at, out) && out->n_act == 1 &&
		out->n_out == 1 && out->n_weight <= 1 && pass_int(out, TNP_A_HEADS, 0) == heads &&
		pass_int(out, TNP_A_HEAD_DIM, 0) == head_dim;
}

static void look(struct pass_edit *x, uint32_t i, struct pass_node *n)
{
	int64_t d = pass_int(n, TNP_A_HEAD_DIM, 0);
	struct pass_node q, k;
	uint32_t q_at, k_at;
	graph_tensor factors;

	if (n->n_act != 3 || n->n_weight || pass_attr(n, TNP_A_ROPE_MODE) || n->act[0] == n->act[1] ||
		!rope_of(x, n->act[0], pass_int(n, TNP_A_HEADS, 0), d, &q_at, &q) ||
		!rope_of(x, n->act[1], pass_int(n, TNP_A_KV_HEADS, 0), d, &k_at, &k) || !turn_alike(&q, &k) ||
		!factors_of(x, &q, &factors))
		return;
	n->act[0] = q.act[0];
	n->act[1] = k.act[0];
	if (factors != TNP_NONE)
		n->weight[n->n_weight++] = factors;
	pass_set_int(n, TNP_A_ROPE_MODE, pass_int(&q, TNP_A_ROPE_MODE, 0));
	pass_set_int(n, TNP_A_ROPE_DIMS, pass_int(&q, TNP_A_ROPE_DIMS, d));
	pass_set_float(n, TNP_A_ROPE_BASE, pass_float(&q, TNP_A_ROPE_BASE, 10000));
	pass_put(x, i, n);
	pass_drop(x, q_at);
	pass_drop(x, k_at);
}

void pass_fuse_rope_kv(struct pass_edit *x)
{
	struct pass_node n;

	for (uint32_t i = 0; i < x->g->g.n_nodes && !x->g->e.code; i++)
		if (x->g->nodes[i].op == TNP_OP_ATTEND && pass_get(x, i, &n))
			look(x, i, &n);
}
