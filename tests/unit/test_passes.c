/* SPDX-License-Identifier: Apache-2.0
 * Each graph pass alone: where it fires, where it must not, and that `ref` computes the same before and after. Then all of
 * them over graphs at random.
 */
#include "tests/unit/pass_world.h"
#include <math.h>

enum { ROOM = 4096, RANDOM_GRAPHS = 400 };

static graph_tensor norm(struct graph *g, graph_tensor x)
{
	return graph_rmsnorm(g, x, world_vector(g, (uint32_t)graph_width(g, x), 9), 1e-5);
}

/* One node, with the bias inside (TNP_NONE: none). */
static graph_tensor product(
	struct graph *g, graph_tensor x, uint32_t rows, graph_tensor w, graph_tensor bias)
{
	graph_tensor y = graph_rows(g, TNP_N_TOKENS, rows);

	graph_node(g, TNP_OP_LINEAR, (graph_tensor[]){ x, w, bias }, 3, &y, 1);
	return y;
}

/* ---- fold_constants ------------------------------------------------------------------------------------------------- */

static void over_weights(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), w = world_matrix(g, 4, 8, 1), y = graph_rows(g, 8, 4), z, v;

	(void)seed;
	graph_node(g, TNP_OP_TRANSPOSE, &w, 1, &y, 1); /* [8][4], and back by RESHAPE */
	graph_attr_int(g, TNP_A_AXES, 0x01);
	z = graph_rows(g, 4, 8);
	graph_node(g, TNP_OP_RESHAPE, &y, 1, &z, 1);
	v = graph_rows(g, 4, 8);
	graph_node(g, TNP_OP_SCALE, &z, 1, &v, 1);
	graph_attr_float(g, TNP_A_SCALE, 0.5);
	graph_out(g, product(g, x, 4, v, TNP_NONE));
}

/* By hand what over_weights comes to. */
static void weights_folded(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), w = world_matrix(g, 4, 8, 1);
	float v[32], *from = g->constants + g->tensors[w].offset / sizeof(float);

	(void)seed;
	for (uint32_t i = 0; i < 32; i++)
		v[i] = 0.5f * from[i % 4 * 8 + i / 4];
	w = graph_constant_shaped(g, v, 2, (int64_t[TNP_MAX_RANK]){ 4, 8 });
	graph_out(g, product(g, x, 4, w, TNP_NONE));
}

static void sum_of_weights(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), a = world_vector(g, 8, 1), b = world_vector(g, 8, 2);
	graph_tensor c = graph_rows(g, 8, 1), y = graph_rows(g, TNP_N_TOKENS, 8);

	(void)seed;
	g->tensors[c].rank = 1;
	graph_node(g, TNP_OP_ADD, (graph_tensor[]){ a, b }, 2, &c, 1);
	graph_node(g, TNP_OP_MUL, (graph_tensor[]){ c, x }, 2, &y, 1);
	graph_out(g, y);
}

static void sum_folded(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), a = world_vector(g, 8, 1), b = world_vector(g, 8, 2);
	float v[8];

	(void)seed;
	for (uint32_t i = 0; i < 8; i++)
		v[i] = g->constants[g->tensors[a].offset / sizeof(float) + i] +
			g->constants[g->tensors[b].offset / sizeof(float) + i];
	graph_out(g, graph_binary(g, TNP_OP_MUL, x, graph_constant(g, v, 8)));
}

static void scales(struct graph *g, uint64_t seed)
{
	(void)seed;
	graph_out(g, world_scale(g, world_scale(g, world_input(g), 2), 0.25));
}

static void embedding_scaled(struct graph *g, uint64_t seed)
{
	graph_tensor x = graph_embed(g, graph_weight(g, 512, 128, "token_embd.weight"), TNP_INDEX_TOKEN);

	graph_out(g, world_scale(g, x, 3));
	if (seed) /* the unscaled rows are wanted too */
		graph_out(g, x);
}

static void queries_scaled(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g);

	(void)seed;
	graph_out(g, world_attend(g, world_scale(g, x, 3), x, x, 0));
}

/* ---- transpose_reshape ------------------------------------------------------------------------------------------------ */

static graph_tensor turned(struct graph *g, graph_tensor x, int64_t axes)
{
	const struct tnp_tensor t = g->tensors[x];
	graph_tensor y = graph_rows(g, t.dim[axes & 15], 1);

	g->tensors[y].rank = 3;
	for (uint32_t i = 0; i < 3; i++)
		g->tensors[y].dim[i] = t.dim[axes >> (4 * i) & 15];
	graph_node(g, TNP_OP_TRANSPOSE, &x, 1, &y, 1);
	graph_attr_int(g, TNP_A_AXES, axes);
	return y;
}

static void there_and_back(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_split(g, norm(g, world_input(g)));

	x = turned(g, turned(g, x, 0x120), seed ? 0x210 : 0x120);
	graph_out(g, norm(g, world_join(g, x)));
}

static void three_turns(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_split(g, world_input(g));

	(void)seed;
	x = turned(g, turned(g, turned(g, x, 0x021), 0x102), 0x120); /* the first two come to nothing */
	x = world_join(g, turned(g, x, 0x210));
	graph_out(g, world_act(g, x, TNP_ACT_SILU));
}

static void heads_split_for_attention(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), s = world_split(g, x);

	graph_out(g, world_attend(g, s, world_rope(g, x, TNP_NONE, 1), x, 0));
	if (seed) { /* somebody wants the heads apart */
		graph_tensor y = graph_rows(g, TNP_N_TOKENS, 2);

		g->tensors[y] = g->tensors[s];
		graph_node(g, TNP_OP_ACT, &s, 1, &y, 1);
		graph_attr_int(g, TNP_A_ACT, TNP_ACT_RELU);
		graph_out(g, y);
	}
}

/* ---- common_subexpressions, dead_code ----------------------------------------------------------------------------------- */

static void twins(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), a = world_linear(g, x, 8, 1), b = world_linear(g, x, 8, 1 + seed);

	graph_out(
		g, graph_binary(g, TNP_OP_MUL, world_act(g, a, TNP_ACT_RELU), world_act(g, b, TNP_ACT_RELU)));
}

static void twins_that_leave(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g);

	(void)seed;
	graph_out(g, world_act(g, x, TNP_ACT_RELU));
	graph_out(g, world_act(g, x, TNP_ACT_RELU));
}

static void twins_that_write(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), a = world_attend(g, x, x, x, seed ? -1 : 0),
		     b = world_attend(g, x, x, x, seed ? -1 : 0);

	graph_out(g, graph_binary(g, TNP_OP_ADD, a, b));
}

static void unread(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), y = world_scale(g, world_act(g, x, TNP_ACT_NONE), 1);

	(void)seed;
	(void)world_act(g, world_linear(g, y, 16, 1), TNP_ACT_SILU);
	(void)world_attend(g, x, x, x, -1);
	(void)world_attend(g, x, x, x, 0); /* writes */
	graph_out(g, world_act(g, y, TNP_ACT_RELU));
}

static void second_output_unread(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g),
		     y[2] = { graph_rows(g, TNP_N_TOKENS, 8), graph_rows(g, TNP_N_TOKENS, 8) };

	graph_node(g, TNP_OP_RMSNORM, (graph_tensor[]){ x, x, world_vector(g, 8, 1) }, 3, y, 2);
	graph_attr_float(g, TNP_A_EPS, 1e-5);
	graph_out(g, y[0]);
	if (seed)
		graph_out(g, y[1]);
}

/* ---- fusions of products --------------------------------------------------------------------------------------------------- */

enum { QKV_PLAIN, QKV_BIASED, QKV_SOME_BIASED, QKV_OTHER_ROWS, QKV_SHARED, QKV_READ_ELSEWHERE, QKV_NORMED };

static void qkv(struct graph *g, uint64_t kind)
{
	graph_tensor x = world_input(g), part[3], other = kind == QKV_OTHER_ROWS ? norm(g, x) : x;

	for (uint32_t i = 0; i < 3; i++) {
		bool biased = kind == QKV_BIASED || (kind == QKV_SOME_BIASED && !i);
		uint32_t rows = i ? 4 : 8;

		part[i] = product(g, i == 2 ? other : x, rows, world_matrix(g, rows, 8, i),
			biased ? world_vector(g, rows, 10 + i) : TNP_NONE);
	}
	if (kind == QKV_READ_ELSEWHERE)
		graph_out(g, part[1]);
	if (kind == QKV_NORMED)
		part[0] = norm(g, part[0]);
	graph_out(g, world_attend(g, part[0], part[1], kind == QKV_SHARED ? part[1] : part[2], 0));
	if (kind == QKV_SHARED)
		graph_out(g, part[2]);
}

enum {
	GLU_PLAIN,
	GLU_UP_FIRST,
	GLU_ACT_INSIDE,
	GLU_BOTH_ACT,
	GLU_NO_ACT,
	GLU_GATE_READ,
	GLU_ACT_READ,
	GLU_OTHER_ROWS,
	GLU_ONE_BIAS,
	GLU_SAME
};

static void glu(struct graph *g, uint64_t kind)
{
	graph_tensor x = world_input(g), y = kind == GLU_OTHER_ROWS ? norm(g, x) : x,
		     gate = world_linear(g, x, 16, 1),
		     up = kind == GLU_SAME ? gate : world_linear(g, y, 16, 2), a = gate;

	if (kind == GLU_ONE_BIAS)
		gate = product(g, x, 16, world_matrix(g, 16, 8, 4), world_vector(g, 16, 5));
	if (kind == GLU_ACT_INSIDE) {
		a = world_linear(g, x, 16, 4);
		graph_attr_int(g, TNP_A_ACT, TNP_ACT_GELU_TANH);
	} else if (kind != GLU_NO_ACT) {
		a = world_act(g, gate, TNP_ACT_SILU);
	}
	if (kind == GLU_BOTH_ACT)
		up = world_act(g, up, TNP_ACT_SILU);
	graph_out(g,
		kind == GLU_UP_FIRST ? graph_binary(g, TNP_OP_MUL, up, a)
				     : graph_binary(g, TNP_OP_MUL, a, up));
	if (kind == GLU_GATE_READ)
		graph_out(g, gate);
	if (kind == GLU_ACT_READ)
		graph_out(g, a);
}

enum {
	TAIL_ALL,
	TAIL_BIAS_READ,
	TAIL_ACT_THEN_BIAS,
	TAIL_RESIDUAL_THEN_ACT,
	TAIL_SELF,
	TAIL_TWO_PRODUCTS,
	TAIL_LATE,
	TAIL_ONE_NUMBER
};

static void tail(struct graph *g, uint64_t kind)
{
	graph_tensor x = world_input(g), y = world_linear(g, x, 8, 1), b = world_vector(g, 8, 2), z = y;

	if (kind == TAIL_ONE_NUMBER) {
		z = graph_binary(g, TNP_OP_ADD, y, world_vector(g, 1, 2));
	} else if (kind == TAIL_SELF) {
		z = graph_binary(g, TNP_OP_ADD, y, y);
	} else if (kind == TAIL_TWO_PRODUCTS) {
		z = graph_binary(g, TNP_OP_ADD, world_linear(g, x, 8, 3), y);
	} else if (kind == TAIL_LATE) {
		z = graph_binary(g, TNP_OP_ADD, y, norm(g, x));
	} else if (kind == TAIL_RESIDUAL_THEN_ACT) {
		z = world_act(g, graph_binary(g, TNP_OP_ADD, x, y), TNP_ACT_RELU);
	} else if (kind == TAIL_ACT_THEN_BIAS) {
		z = graph_binary(g, TNP_OP_ADD, world_act(g, y, TNP_ACT_RELU), b);
	} else {
		z = graph_binary(g, TNP_OP_ADD, y, b);
		z = graph_binary(g, TNP_OP_ADD, x, world_act(g, z, TNP_ACT_GELU_ERF));
	}
	graph_out(g, z);
	if (kind == TAIL_BIAS_READ)
		graph_out(g, y);
}

/* ---- residual and norm, rotary embedding --------------------------------------------------------------------------------------- */

enum { SUM_ONCE, SUM_READ_AFTER, SUM_LEAVES, SUM_ONE_ROW, SUM_TWO_NORMS };

static void sum_norm(struct graph *g, uint64_t kind)
{
	graph_tensor x = world_input(g), y = world_act(g, x, TNP_ACT_SILU),
		     s = graph_binary(g, TNP_OP_ADD, x, kind == SUM_ONE_ROW ? world_vector(g, 8, 3) : y), n;

	if (kind == SUM_READ_AFTER)
		y = world_act(g, s, TNP_ACT_RELU); /* between the sum and the norm */
	n = norm(g, s);
	graph_out(g, kind == SUM_READ_AFTER ? graph_binary(g, TNP_OP_MUL, n, y) : n);
	if (kind == SUM_LEAVES)
		graph_out(g, s);
	if (kind == SUM_TWO_NORMS)
		graph_out(g, graph_rmsnorm(g, s, world_vector(g, 8, 4), 1e-6));
}

enum {
	ROPE_PLAIN,
	ROPE_FACTORS,
	ROPE_SCALED,
	ROPE_BOTH,
	ROPE_Q_ALONE,
	ROPE_UNLIKE,
	ROPE_READ,
	ROPE_SAME,
	ROPE_UNSLOTTED
};

static void rope(struct graph *g, uint64_t kind)
{
	graph_tensor x = world_input(g), f = world_vector(g, 2, 1);
	bool factors = kind == ROPE_FACTORS || kind == ROPE_BOTH;
	double scale = kind == ROPE_SCALED || kind == ROPE_BOTH ? 0.25 : 1;
	graph_tensor q = world_rope(g, world_linear(g, x, 8, 1), factors ? f : TNP_NONE, scale),
		     k = world_linear(g, x, 8, 2);

	if (kind == ROPE_SAME)
		k = q;
	else if (kind != ROPE_Q_ALONE)
		k = world_rope(g, k, factors ? f : TNP_NONE, kind == ROPE_UNLIKE ? 0.5 : scale);
	graph_out(g, world_attend(g, q, k, x, kind == ROPE_UNSLOTTED ? -1 : 0));
	if (kind == ROPE_READ)
		graph_out(g, k);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *pass;
	world_build_fn *build;
	uint64_t seed;
	const char *shape;     /* behind the pass and dead_code; NULL: the pass must not fire */
	world_build_fn *alike; /* computes the same; NULL: build does, without passes */
} cases[] = {
	{ "fold_constants", over_weights, 0, "LINEAR 1+1>1", weights_folded },
	{ "fold_constants", sum_of_weights, 0, "MUL 1+1>1", sum_folded },
	{ "fold_constants", scales, 0, "SCALE 1+0>1", NULL },
	{ "fold_constants", queries_scaled, 0, "ATTEND 3+0>1", NULL },
	{ "fold_constants", embedding_scaled, 0, "EMBED 0+1>1", NULL },
	{ "fold_constants", embedding_scaled, 1, NULL, NULL },
	{ "transpose_reshape", there_and_back, 0, "RMSNORM 1+1>1, RMSNORM 1+1>1", NULL },
	{ "transpose_reshape", there_and_back, 1,
		"RMSNORM 1+1>1, RESHAPE 1+0>1, TRANSPOSE 1+0>1, RESHAPE 1+0>1, RMSNORM 1+1>1", NULL },
	{ "transpose_reshape", three_turns, 0, "RESHAPE 1+0>1, TRANSPOSE 1+0>1, RESHAPE 1+0>1, ACT 1+0>1",
		NULL },
	{ "transpose_reshape", heads_split_for_attention, 0, "ROPE 1+0>1, ATTEND 3+0>1", NULL },
	{ "transpose_reshape", heads_split_for_attention, 1, NULL, NULL },
	{ "common_subexpressions", twins, 0, "LINEAR 1+1>1, ACT 1+0>1, MUL 2+0>1", NULL },
	{ "common_subexpressions", twins, 1, NULL, NULL },
	{ "common_subexpressions", twins_that_leave, 0, NULL, NULL },
	{ "common_subexpressions", twins_that_write, 0, NULL, NULL },
	{ "common_subexpressions", twins_that_write, 1, "ATTEND 3+0>1, ADD 2+0>1", NULL },
	{ "dead_code", unread, 0, "ATTEND 3+0>1, ACT 1+0>1", NULL },
	{ "dead_code", second_output_unread, 0, "RMSNORM 2+1>1", NULL },
	{ "dead_code", second_output_unread, 1, NULL, NULL },
	{ "fuse_qkv", qkv, QKV_PLAIN, "LINEAR 1+3>3, ATTEND 3+0>1", NULL },
	{ "fuse_qkv", qkv, QKV_BIASED, "LINEAR 1+6>3, ATTEND 3+0>1", NULL },
	{ "fuse_qkv", qkv, QKV_NORMED, "LINEAR 1+3>3, RMSNORM 1+1>1, ATTEND 3+0>1", NULL },
	{ "fuse_qkv", qkv, QKV_READ_ELSEWHERE, "LINEAR 1+3>3, ATTEND 3+0>1", NULL },
	{ "fuse_qkv", qkv, QKV_SOME_BIASED, NULL, NULL },
	{ "fuse_qkv", qkv, QKV_OTHER_ROWS, NULL, NULL },
	{ "fuse_qkv", qkv, QKV_SHARED, NULL, NULL },
	{ "fuse_glu", glu, GLU_PLAIN, "LINEAR 1+2>1, GLU 1+0>1", NULL },
	{ "fuse_glu", glu, GLU_UP_FIRST, "LINEAR 1+2>1, GLU 1+0>1", NULL },
	{ "fuse_glu", glu, GLU_ACT_INSIDE, "LINEAR 1+2>1, GLU 1+0>1", NULL },
	{ "fuse_glu", glu, GLU_BOTH_ACT, NULL, NULL },
	{ "fuse_glu", glu, GLU_NO_ACT, NULL, NULL },
	{ "fuse_glu", glu, GLU_GATE_READ, NULL, NULL },
	{ "fuse_glu", glu, GLU_ACT_READ, NULL, NULL },
	{ "fuse_glu", glu, GLU_OTHER_ROWS, NULL, NULL },
	{ "fuse_glu", glu, GLU_ONE_BIAS, NULL, NULL },
	{ "fuse_glu", glu, GLU_SAME, NULL, NULL },
	{ "fuse_bias_act", tail, TAIL_ALL, "LINEAR 2+2>1", NULL },
	{ "fuse_bias_act", tail, TAIL_ACT_THEN_BIAS, "LINEAR 1+1>1, ADD 1+1>1", NULL },
	{ "fuse_bias_act", tail, TAIL_RESIDUAL_THEN_ACT, "LINEAR 2+1>1, ACT 1+0>1", NULL },
	{ "fuse_bias_act", tail, TAIL_TWO_PRODUCTS, "LINEAR 1+1>1, LINEAR 2+1>1", NULL },
	{ "fuse_bias_act", tail, TAIL_LATE, "RMSNORM 1+1>1, LINEAR 2+1>1", NULL },
	{ "fuse_bias_act", tail, TAIL_BIAS_READ, NULL, NULL },
	{ "fuse_bias_act", tail, TAIL_SELF, NULL, NULL },
	{ "fuse_bias_act", tail, TAIL_ONE_NUMBER, NULL, NULL },
	{ "fuse_residual_norm", sum_norm, SUM_ONCE, "ACT 1+0>1, RMSNORM 2+1>1", NULL },
	{ "fuse_residual_norm", sum_norm, SUM_READ_AFTER, "ACT 1+0>1, RMSNORM 2+1>2, ACT 1+0>1, MUL 2+0>1",
		NULL },
	{ "fuse_residual_norm", sum_norm, SUM_LEAVES, "ACT 1+0>1, RMSNORM 2+1>2", NULL },
	{ "fuse_residual_norm", sum_norm, SUM_TWO_NORMS, "ACT 1+0>1, RMSNORM 2+1>2, RMSNORM 1+1>1", NULL },
	{ "fuse_residual_norm", sum_norm, SUM_ONE_ROW, NULL, NULL },
	{ "fuse_rope_kv", rope, ROPE_PLAIN, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+0>1", NULL },
	{ "fuse_rope_kv", rope, ROPE_FACTORS, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+1>1", NULL },
	{ "fuse_rope_kv", rope, ROPE_SCALED, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+1>1", NULL },
	{ "fuse_rope_kv", rope, ROPE_BOTH, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+1>1", NULL },
	{ "fuse_rope_kv", rope, ROPE_UNSLOTTED, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+0>1", NULL },
	{ "fuse_rope_kv", rope, ROPE_Q_ALONE, NULL, NULL },
	{ "fuse_rope_kv", rope, ROPE_UNLIKE, NULL, NULL },
	{ "fuse_rope_kv", rope, ROPE_READ, NULL, NULL },
	{ "fuse_rope_kv", rope, ROPE_SAME, NULL, NULL },
};

static double worst(const float *a, const float *b, size_t n)
{
	double most = 0, size = 1e-3;

	for (size_t i = 0; i < n; i++) {
		size = fmax(size, fabs((double)b[i]));
		most = fmax(most, fabs((double)a[i] - b[i]));
	}
	return most / size;
}

static void compare(
	struct world *w, const struct world_graph *a, const struct world_graph *b, const char *what)
{
	static float x[ROOM], y[ROOM];
	size_t n = world_run(w, a, x, ROOM);

	assert_int_equal(n, world_run(w, b, y, ROOM));
	if (!(worst(x, y, n) < 2e-5))
		fail_msg("%s: results differ by %g", what, worst(x, y, n));
}

static uint32_t pass_number(const char *name)
{
	uint32_t i = 0;

	while (i < PASS_N && strcmp(pass_at(i)->name, name))
		i++;
	assert_true(i < PASS_N);
	return i;
}

static void each_pass_alone(void **st)
{
	struct world *w = *st;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct world_graph g, before;
		char only[80], shape[512], what[64];
		bool fired;

		(void)snprintf(only, sizeof only, "-all,+dead_code,+%s", cases[i].pass);
		(void)snprintf(what, sizeof what, "case %zu, %s", i, cases[i].pass);
		world_make(w, cases[i].build, cases[i].seed, only, NULL, NULL, &g);
		world_make(w, cases[i].alike ? cases[i].alike : cases[i].build, cases[i].seed, "-all", NULL,
			NULL, &before);
		fired = g.report.pass[pass_number(cases[i].pass)].changes > 0;
		world_shape(g.t, shape, sizeof shape);
		if (fired != (cases[i].shape != NULL))
			fail_msg("%s: %s: %s", what, fired ? "fired" : "did not fire", shape);
		if (fired && strcmp(shape, cases[i].shape))
			fail_msg("%s:\n  got  %s\n  want %s", what, shape, cases[i].shape);
		compare(w, &g, &before, what);
		world_free(&g);
		world_free(&before);
	}
}

/* ---- all of them --------------------------------------------------------------------------------------------------------------------- */

static void random_graphs_compute_the_same(void **st)
{
	struct world *w = *st;
	uint32_t fired[PASS_N] = { 0 };

	for (uint64_t seed = 0; seed < RANDOM_GRAPHS; seed++) {
		struct world_graph before, after;
		char what[32];

		(void)snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
		world_make(w, world_random, seed, "-all", NULL, NULL, &before);
		world_make(w, world_random, seed, NULL, NULL, NULL, &after);
		compare(w, &after, &before, what);
		assert_true(after.report.n_after <= before.report.n_after);
		for (uint32_t i = 0; i < PASS_N; i++)
			fired[i] += after.report.pass[i].changes;
		world_free(&before);
		world_free(&after);
	}
	for (uint32_t i = 0; i < PASS_layout; i++)
		if (!fired[i] && i != PASS_fold_constants)
			fail_msg("%s never fired: the graphs do not try it", pass_at(i)->name);
}

/* What the passes made is what they leave alone. */
static void a_second_run_changes_nothing(void **st)
{
	struct world *w = *st;

	for (uint64_t seed = 0; seed < 100; seed++) {
		struct pass_options o = { 0 };
		struct pass_report r;
		struct world_graph g;

		world_make(w, world_random, seed, NULL, NULL, NULL, &g);
		assert_true(g.report.rounds < 16);
		graph_passes_run(g.g, &o, &r);
		assert_int_equal(r.rounds, 1);
		assert_int_equal(r.n_before, r.n_after);
		world_free(&g);
	}
}

static void names_are_checked(void **st)
{
	struct error e = { 0 };
	uint64_t off = 1;

	(void)st;
	assert_int_equal(pass_names_parse(NULL, &off, &e), TENON_OK);
	assert_int_equal(off, 0);
	assert_int_equal(pass_names_parse("-fuse_qkv,-layout", &off, &e), TENON_OK);
	assert_int_equal(off, 1u << PASS_fuse_qkv | 1u << PASS_layout);
	assert_int_equal(pass_names_parse("-all,+dead_code", &off, &e), TENON_OK);
	assert_int_equal(off, ((1u << PASS_N) - 1) & ~(1u << PASS_dead_code));
	for (size_t i = 0; i < 7; i++) {
		static const char *const bad[] = { "fuse_qkv", "-", "-fuse", "-fuse_qkvv", ",",
			"-layout,,-layout", "+\xff" };

		assert_int_equal(pass_names_parse(bad[i], &off, &e), TENON_E_INVALID);
		assert_non_null(strstr(e.text, "fuse_residual_norm"));
	}
}

/* ---- odd graphs ------------------------------------------------------------------------------------------------------------------------ */

/* More of everything than any pass handles: left alone. */
static void crowded(struct graph *g, uint64_t seed)
{
	graph_tensor x = world_input(g), in[20], y = graph_rows(g, TNP_N_TOKENS, 8);

	for (uint32_t i = 0; i < 20; i++)
		in[i] = seed ? x : world_vector(g, 8, i);
	graph_node(g, TNP_OP_ADD, in, 20, &y, 1);
	graph_node(g, TNP_OP_LINEAR, NULL, 0, NULL, 0);
	graph_node(g, 99, &y, 1, NULL, 0);
	graph_node(g, TNP_OP_ATTEND, (graph_tensor[]){ y, y, y }, 3, NULL, 0);
	graph_node(g, TNP_OP_RMSNORM, &y, 1, NULL, 0);
	graph_node(g, TNP_OP_MUL, (graph_tensor[]){ y, y }, 2, NULL, 0);
	graph_node(g, TNP_OP_SCALE, &y, 1, (graph_tensor[]){ graph_rows(g, TNP_N_TOKENS, 8) }, 1);
	graph_attr_int(g, TNP_A_SCALE, 1);
	for (uint32_t i = 0; i < 20; i++)
		graph_attr_int(g, TNP_A_EPS, 1);
	graph_out(g, y);
}

static int takes_all(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	(void)ctx;
	(void)e;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		v[i].ok = 1;
	return TENON_OK;
}

static int takes_nothing(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	++*(uint32_t *)ctx;
	(void)v;
	(void)e;
	assert_true(g->n_nodes > 0);
	return TENON_OK;
}

static void odd_graphs_are_left_alone(void **st)
{
	struct world *w = *st;

	for (uint64_t seed = 0; seed < 2; seed++) {
		struct world_graph g;
		uint32_t asked = 0;

		world_make(w, crowded, seed, NULL, takes_nothing, &asked, &g);
		assert_true(asked >= 1 && asked < 20);
		world_free(&g);
	}
}

static void a_failed_graph_stays_failed(void **st)
{
	struct world *w = *st;
	struct pass_options o = { 0 };
	struct pass_report r;
	struct error e = { 0 };
	struct graph *g;

	assert_int_equal(graph_create(w->file, &g, &e), TENON_OK);
	graph_fail(g, TENON_E_FORMAT, "first");
	graph_passes_run(g, &o, &r);
	assert_null(graph_finish(g, 1, 1, 1, &e));
	assert_string_equal(e.text, "first");
	graph_destroy(g);
	assert_int_equal(graph_create(w->file, &g, &e), TENON_OK);
	graph_passes_run(g, &o, &r); /* nothing in it */
	assert_int_equal(r.n_after, 0);
	graph_destroy(g);
}

static void no_memory_at_any_point(void **st)
{
	struct world *w = *st;
	uint64_t before = mem_area_bytes(MEM_ENGINE);
	uint32_t ran = 0;

	for (uint64_t n = 1; !ran; n++) {
		struct pass_options o = { .ask = takes_all };
		struct error e = { 0 };
		struct graph *g;

		assert_int_equal(graph_create(w->file, &g, &e), TENON_OK);
		world_random(g, 7);
		mem_fail_at(n);
		graph_passes_run(g, &o, NULL);
		mem_fail_at(0);
		ran = graph_finish(g, 4, 2, 2, &e) != NULL;
		assert_true(ran || e.code == TENON_E_NOMEM);
		graph_destroy(g);
		assert_true(n < 10000);
	}
	assert_int_equal(mem_area_bytes(MEM_ENGINE), before);
}

/* ---- layout ----------------------------------------------------------------------------------------------------------------------------- */

/* A backend that takes some forms only. */
enum {
	NO_RESIDUAL = 1,
	NO_OUTPUTS = 2,
	NO_ACT = 4,
	NO_BIAS = 8,
	NO_GLU = 16,
	NO_NORM_SUM = 32,
	NO_ROPE_MODE = 64,
	NO_ROPE = 128
};

static bool has_attr(const struct tnp_graph *g, const struct tnp_node *n, uint32_t key)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (g->attrs[n->attr0 + i].key == key)
			return true;
	return false;
}

static bool takes(const struct tnp_graph *g, const struct tnp_node *n, uint32_t refuses)
{
	uint32_t acts = 0, biases = 0;

	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct tnp_tensor *x = &g->tensors[g->edges[n->in0 + i]];

		acts += x->buffer == TNP_NONE;
		biases += x->buffer != TNP_NONE && x->rank == 1;
	}
	switch (n->op) {
	case TNP_OP_LINEAR:
		return !(refuses & NO_RESIDUAL && acts == 2) && !(refuses & NO_OUTPUTS && n->n_out > 1) &&
			!(refuses & NO_ACT && has_attr(g, n, TNP_A_ACT)) && !(refuses & NO_BIAS && biases);
	case TNP_OP_GLU:
		return !(refuses & NO_GLU);
	case TNP_OP_RMSNORM:
	case TNP_OP_LAYERNORM:
		return !(refuses & NO_NORM_SUM && acts == 2);
	case TNP_OP_ATTEND:
		return !(refuses & NO_ROPE_MODE && has_attr(g, n, TNP_A_ROPE_MODE));
	case TNP_OP_ROPE:
		return !(refuses & NO_ROPE);
	}
	return true;
}

static int choosy(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	(void)e;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		v[i].ok = takes(g, &g->nodes[i], *(uint32_t *)ctx);
	return TENON_OK;
}

/* Nothing of what it refuses is left, and the results stay. */
static void the_backend_decides(void **st)
{
	static const uint32_t refusals[] = { NO_RESIDUAL, NO_OUTPUTS, NO_ACT, NO_BIAS | NO_ACT, NO_GLU,
		NO_NORM_SUM, NO_ROPE_MODE,
		NO_RESIDUAL | NO_OUTPUTS | NO_ACT | NO_BIAS | NO_GLU | NO_NORM_SUM | NO_ROPE_MODE };
	struct world *w = *st;

	for (uint64_t seed = 0; seed < 160; seed++) {
		uint32_t refuses = refusals[seed % COUNT_OF(refusals)];
		struct world_graph before, after;
		char what[48];

		(void)snprintf(what, sizeof what, "seed %llu, refuses %u", (unsigned long long)seed, refuses);
		world_make(w, world_random, seed, "-all", NULL, NULL, &before);
		world_make(w, world_random, seed, NULL, choosy, &refuses, &after);
		for (uint32_t i = 0; i < after.t->n_nodes; i++)
			if (!takes(after.t, &after.t->nodes[i], refuses))
				fail_msg("%s: node %u (%s) is left", what, i,
					graph_op_name(after.t->nodes[i].op));
		compare(w, &after, &before, what);
		world_free(&before);
		world_free(&after);
	}
}

/* ROPE alone is refused, the fusion was switched off: it runs all the same. Without layout nobody asks. */
static void what_it_only_takes_fused_is_fused(void **st)
{
	uint32_t refuses = NO_ROPE;
	struct world *w = *st;
	struct world_graph g;
	char shape[256];

	world_make(w, rope, ROPE_PLAIN, "-fuse_rope_kv", choosy, &refuses, &g);
	world_shape(g.t, shape, sizeof shape);
	assert_string_equal(shape, "LINEAR 1+1>1, LINEAR 1+1>1, ATTEND 3+0>1");
	world_free(&g);
	world_make(w, rope, ROPE_PLAIN, "-fuse_rope_kv,-layout", choosy, &refuses, &g);
	assert_int_equal(g.t->n_nodes, 5);
	world_free(&g);
	world_make(w, rope, ROPE_UNLIKE, NULL, choosy, &refuses, &g); /* cannot be fused: stays, and ends */
	assert_int_equal(g.t->n_nodes, 5);
	world_free(&g);
}

static int loses_its_device(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	(void)ctx;
	(void)g;
	(void)v;
	return error_set(e, TENON_E_BACKEND, "device: gone");
}

static void what_the_backend_fails_with_is_told(void **st)
{
	struct pass_options o = { .ask = loses_its_device };
	struct world *w = *st;
	struct error e = { 0 };
	struct graph *g;

	assert_int_equal(graph_create(w->file, &g, &e), TENON_OK);
	rope(g, ROPE_PLAIN);
	graph_passes_run(g, &o, NULL);
	assert_null(graph_finish(g, 4, 2, 2, &e));
	assert_int_equal(e.code, TENON_E_BACKEND);
	assert_string_equal(e.text, "device: gone");
	graph_destroy(g);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(each_pass_alone),
		cmocka_unit_test(random_graphs_compute_the_same),
		cmocka_unit_test(a_second_run_changes_nothing),
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(odd_graphs_are_left_alone),
		cmocka_unit_test(a_failed_graph_stays_failed),
		cmocka_unit_test(no_memory_at_any_point),
		cmocka_unit_test(the_backend_decides),
		cmocka_unit_test(what_it_only_takes_fused_is_fused),
		cmocka_unit_test(what_the_backend_fails_with_is_told),
	};

	return cmocka_run_group_tests(t, world_open, world_close);
}
