/* SPDX-License-Identifier: Apache-2.0
 * layout: which form of a node a backend gets is asked, not assumed. The backend's verdicts on the whole graph decide: a fused
 * node that it refuses is cut by one step (residual, outputs, activation, bias; gate and up; ROPE) and all is asked again,
 * until nothing is refused or nothing can be cut. Plain nodes that it still refuses may be ones it takes only as part of
 * others: then fusions that were switched off run after all. What stays refused is told when the model is opened.
 */
#include "engine/pass_edit.h"

enum { ASKS = 12 };

struct cutting {
	struct tnp_verdict *v; /* [nodes] */
	uint8_t *pair;	       /* [nodes] 1: a product and the GLU that reads it, both to be cut */
};

static struct pass_node unary(uint32_t op, graph_tensor from, graph_tensor to)
{
	return (struct pass_node){ .op = op, .n_act = 1, .act = { from }, .n_out = 1, .out = { to } };
}

static struct pass_node binary(uint32_t op, graph_tensor a, graph_tensor b, graph_tensor to)
{
	return (struct pass_node){ .op = op, .n_act = 2, .act = { a, b }, .n_out = 1, .out = { to } };
}

/* Rows like t's, of its whole width. */
static graph_tensor rows_like(struct pass_edit *x, graph_tensor t)
{
	const struct tnp_tensor *r = pass_tensor(x, t);
	int64_t width = 1;

	for (uint32_t d = 1; d < r->rank; d++)
		width *= r->dim[d];
	return pass_rows(x, r->dim[0], width);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* One bias a matrix, as long as its rows, or none. */
static bool biases_split(const struct pass_edit *x, const struct pass_node *n, uint32_t matrices)
{
	if (n->n_weight == matrices)
		return true;
	for (uint32_t i = 0; i < matrices; i++)
		if (n->n_weight != 2 * matrices ||
			pass_tensor(x, n->weight[matrices + i])->dim[0] !=
				pass_tensor(x, n->weight[i])->dim[0])
			return false;
	return true;
}

static struct pass_node product_part(
	const struct pass_node *n, uint32_t matrices, uint32_t i, graph_tensor out)
{
	struct pass_node part = *n;

	part.n_weight = n->n_weight == matrices ? 1 : 2;
	part.weight[0] = n->weight[i];
	if (part.n_weight == 2)
		part.weight[1] = n->weight[matrices + i];
	part.n_out = 1;
	part.out[0] = out;
	return part;
}

static bool cut_outputs(struct pass_edit *x, const struct pass_node *n)
{
	uint32_t matrices = pass_n_matrices(x, n);

	if (n->n_out < 2 || matrices != n->n_out || !biases_split(x, n, matrices))
		return false;
	for (uint32_t i = 0; i < matrices; i++)
		if (pass_tensor(x, n->out[i])->dim[1] != pass_tensor(x, n->weight[i])->dim[0])
			return false;
	for (uint32_t i = 0; i < matrices; i++) {
		struct pass_node part = product_part(n, matrices, i, n->out[i]);

		pass_emit(x, &part);
	}
	return true;
}

static bool cut_linear(struct pass_edit *x, struct pass_node *n)
{
	graph_tensor last = n->out[0], y;
	struct pass_node behind;

	if (n->n_act != 2 && n->n_out > 1)
		return cut_outputs(x, n);
	if (n->n_act != 2 && !pass_attr(n, TNP_A_ACT) && (pass_n_matrices(x, n) != 1 || n->n_weight != 2))
		return false;
	y = rows_like(x, last);
	if (n->n_act == 2) {
		behind = binary(TNP_OP_ADD, y, n->act[1], last);
		n->n_act = 1;
	} else if (pass_attr(n, TNP_A_ACT)) {
		behind = unary(TNP_OP_ACT, y, last);
		pass_set_int(&behind, TNP_A_ACT, pass_int(n, TNP_A_ACT, TNP_ACT_NONE));
		pass_unset(n, TNP_A_ACT);
	} else {
		behind = unary(TNP_OP_ADD, y, last);
		behind.weight[behind.n_weight++] = n->weight[--n->n_weight];
	}
	n->out[0] = y;
	pass_emit(x, n);
	pass_emit(x, &behind);
	return true;
}

/* ---- gate and up ---------------------------------------------------------------------------------------------------- */

/* The product of a GLU, of experts or not, if both can be cut together. */
static bool pair_of(struct pass_edit *x, const struct pass_node *glu, uint32_t *at, struct pass_node *linear)
{
	uint32_t rank = pass_tensor(x, glu->out[0])->rank, op = rank == 3 ? TNP_OP_MOE_LINEAR : TNP_OP_LINEAR;

	return glu->n_act == 1 && glu->n_out == 1 && (rank == 2 || rank == 3) &&
		pass_only_here(x, glu->act[0]) && pass_made_by(x, glu->act[0], op, at, linear) &&
		linear->n_act == rank - 1 && linear->n_out == 1 && !pass_attr(linear, TNP_A_ACT) &&
		pass_n_matrices(x, linear) == 2 && biases_split(x, linear, 2) &&
		pass_tensor(x, linear->weight[0])->dim[rank - 2] ==
		pass_tensor(x, linear->weight[1])->dim[rank - 2];
}

static void find_pairs(struct pass_edit *x, struct cutting *c)
{
	struct pass_node glu, linear;
	uint32_t at;

	for (uint32_t i = 0; i < x->g->g.n_nodes; i++)
		if (x->g->nodes[i].op == TNP_OP_GLU && pass_get(x, i, &glu) &&
			pair_of(x, &glu, &at, &linear) && (!c->v[i].ok || !c->v[at].ok))
			c->pair[i] = c->pair[at] = 1;
}

static void cut_pair(struct pass_edit *x, const struct pass_node *glu)
{
	struct pass_node linear, part, n;
	graph_tensor half[3];
	uint32_t at;

	if (!pair_of(x, glu, &at, &linear))
		return;
	for (uint32_t i = 0; i < 3; i++)
		half[i] = pass_rows_like(x, glu->out[0], graph_width(x->g, glu->out[0]));
	for (uint32_t i = 0; i < 2; i++) {
		part = product_part(&linear, 2, i, half[i]);
		pass_emit(x, &part);
	}
	n = unary(TNP_OP_ACT, half[0], half[2]);
	pass_set_int(&n, TNP_A_ACT, pass_int(glu, TNP_A_ACT, TNP_ACT_NONE));
	pass_emit(x, &n);
	n = binary(TNP_OP_MUL, half[2], half[1], glu->out[0]);
	pass_emit(x, &n);
}

/* ---- the others ------------------------------------------------------------------------------------------------------ */

static bool cut_norm(struct pass_edit *x, struct pass_node *n)
{
	struct pass_node add;

	if (n->n_act != 2)
		return false;
	add = binary(TNP_OP_ADD, n->act[0], n->act[1], n->n_out == 2 ? n->out[1] : rows_like(x, n->act[0]));
	n->n_act = n->n_out = 1;
	n->act[0] = add.out[0];
	pass_emit(x, &add);
	pass_emit(x, n);
	return true;
}

static void cut_rope(struct pass_edit *x, const struct pass_node *attend, struct pass_node *to, uint32_t part)
{
	static const uint32_t keys[] = { TNP_A_ROPE_MODE, TNP_A_ROPE_DIMS, TNP_A_ROPE_BASE };
	struct pass_node rope = unary(TNP_OP_ROPE, attend->act[part], rows_like(x, attend->act[part]));

	pass_set_int(&rope, TNP_A_HEADS, pass_int(attend, part ? TNP_A_KV_HEADS : TNP_A_HEADS, 0));
	pass_set_int(&rope, TNP_A_HEAD_DIM, pass_int(attend, TNP_A_HEAD_DIM, 0));
	for (size_t i = 0; i < COUNT_OF(keys); i++)
		if (pass_attr(attend, keys[i]))
			rope.attr[rope.n_attr++] = *pass_attr(attend, keys[i]);
	rope.n_weight = attend->n_weight;
	rope.weight[0] = attend->weight[0];
	to->act[part] = rope.out[0];
	pass_emit(x, &rope);
}

static bool cut_attend(struct pass_edit *x, const struct pass_node *n)
{
	struct pass_node plain = *n;

	if (!pass_attr(n, TNP_A_ROPE_MODE))
		return false;
	cut_rope(x, n, &plain, 0);
	if (n->n_act == 3)
		cut_rope(x, n, &plain, 1);
	plain.n_weight = 0;
	pass_unset(&plain, TNP_A_ROPE_MODE);
	pass_unset(&plain, TNP_A_ROPE_DIMS);
	pass_unset(&plain, TNP_A_ROPE_BASE);
	pass_emit(x, &plain);
	return true;
}

static bool cut_embed(struct pass_edit *x, struct pass_node *n)
{
	struct pass_node scale;

	if (!pass_attr(n, TNP_A_SCALE))
		return false;
	scale = unary(TNP_OP_SCALE, rows_like(x, n->out[0]), n->out[0]);
	pass_set_float(&scale, TNP_A_SCALE, pass_float(n, TNP_A_SCALE, 1));
	pass_unset(n, TNP_A_SCALE);
	n->out[0] = scale.act[0];
	pass_emit(x, n);
	pass_emit(x, &scale);
	return true;
}

static bool cut(struct pass_edit *x, void *ctx, uint32_t i)
{
	struct cutting *c = ctx;
	struct pass_node n;
	bool done = false;

	if ((c->v[i].ok && !c->pair[i]) || !pass_get(x, i, &n))
		return false;
	if (c->pair[i]) {
		if (n.op == TNP_OP_GLU)
			cut_pair(x, &n);
		done = true;
	} else if (n.op == TNP_OP_LINEAR) {
		done = cut_linear(x, &n);
	} else if (n.op == TNP_OP_RMSNORM || n.op == TNP_OP_LAYERNORM) {
		done = cut_norm(x, &n);
	} else if (n.op == TNP_OP_ATTEND) {
		done = cut_attend(x, &n);
	} else if (n.op == TNP_OP_EMBED) {
		done = cut_embed(x, &n);
	}
	x->changes += done;
	return done;
}

/* ---- asking ------------------------------------------------------------------------------------------------------------ */

/* One question and its cuts. *refused: nodes that the backend does not take. */
static bool ask_and_cut(struct pass_edit *x, uint32_t *refused)
{
	uint32_t n = x->g->g.n_nodes, before = x->changes;
	struct cutting c = { .v = mem_zalloc(MEM_ENGINE, n, sizeof *c.v),
		.pair = mem_zalloc(MEM_ENGINE, n, 1) };
	struct error e = { 0 };
	int rc = c.v && c.pair ? x->o->ask(x->o->ctx, graph_view(x->g), c.v, &e)
			       : error_set(&e, TENON_E_NOMEM, "graph: no memory to ask a backend");

	*refused = 0;
	if (rc)
		graph_fail(x->g, rc, "%s", e.text);
	for (uint32_t i = 0; !rc && i < n; i++)
		*refused += !c.v[i].ok;
	if (!rc && *refused) {
		find_pairs(x, &c);
		pass_rebuild(x, cut, &c);
	}
	mem_free(c.v);
	mem_free(c.pair);
	return x->changes != before;
}

/* The fusions that were switched off. */
static bool fuse_after_all(struct pass_edit *x)
{
	uint32_t before = x->changes;

	for (uint32_t id = PASS_fuse_bias_act; id < PASS_layout && !x->g->e.code; id++)
		if (x->o->off >> id & 1) {
			pass_at(id)->run(x);
			pass_rebuild(x, NULL, NULL);
		}
	return x->changes != before;
}

void pass_layout(struct pass_edit *x)
{
	bool fused = false;
	uint32_t refused;

	for (uint32_t i = 0; x->o->ask && i < ASKS && !x->g->e.code; i++) {
		if (ask_and_cut(x, &refused))
			continue;
		if (!refused || fused || !fuse_after_all(x))
			return;
		fused = true;
	}
}
