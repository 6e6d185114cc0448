/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: graphs around one operator, with random odd shapes. The graph's input is rows of the host; where
 * the operator needs several different activations a LINEAR makes them from it.
 */
#include "tools/conform.h"
#include <math.h>

const uint32_t conform_types[] = { TNP_F32, TNP_F16, TNP_BF16, TNP_Q8_0, TNP_Q4_0, TNP_Q4_1, TNP_Q5_0,
	TNP_Q5_1, TNP_Q2_K, TNP_Q3_K, TNP_Q4_K, TNP_Q5_K, TNP_Q6_K, TNP_IQ4_NL, UINT32_MAX };

const char *conform_type_name(uint32_t type)
{
	static const char *const name[] = { [TNP_F32] = "F32",
		[TNP_F16] = "F16",
		[TNP_BF16] = "BF16",
		[TNP_Q8_0] = "Q8_0",
		[TNP_Q4_0] = "Q4_0",
		[TNP_Q4_1] = "Q4_1",
		[TNP_Q5_0] = "Q5_0",
		[TNP_Q5_1] = "Q5_1",
		[TNP_Q2_K] = "Q2_K",
		[TNP_Q3_K] = "Q3_K",
		[TNP_Q4_K] = "Q4_K",
		[TNP_Q5_K] = "Q5_K",
		[TNP_Q6_K] = "Q6_K",
		[TNP_IQ4_NL] = "IQ4_NL",
		[TNP_I32] = "I32" };

	return type < COUNT_OF(name) && name[type] ? name[type] : "?";
}

uint32_t conform_block(uint32_t type)
{
	if (type == TNP_F32 || type == TNP_F16 || type == TNP_BF16)
		return 1;
	return type >= TNP_Q2_K && type <= TNP_Q6_K ? 256 : 32;
}

uint64_t conform_claims(struct conform *c, struct peer *p, uint32_t op, bool *claimed)
{
	struct tnp_op_cap row[64];
	uint32_t n = COUNT_OF(row);

	*claimed = false;
	if (p->ops->op_caps(p->dev, row, &n, NULL))
		conform_fail(c, "op_caps failed");
	for (uint32_t i = 0; i < n && i < COUNT_OF(row); i++)
		if (row[i].op == op) {
			*claimed = true;
			return row[i].weight_types;
		}
	return 0;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */
static uint32_t pick(struct op_shape *s, uint32_t n) { return (uint32_t)(tnp_rand(s->seed) % n); }

/* Which of n forms of the operator: always the first when the plain form is wanted. */
static uint32_t form(struct op_shape *s, uint32_t n) { return s->plain ? 0 : pick(s, n); }

/* A number of columns that whole blocks fill; for plain types any number will do. */
static int64_t columns(struct op_shape *s)
{
	static const uint8_t odd[] = { 1, 2, 3, 7, 16, 33, 64, 100, 129 };

	if (s->block == 1)
		return odd[pick(s, sizeof odd)];
	return (int64_t)s->block * (1 + pick(s, s->block == 256 ? 2 : 5));
}

static int64_t odd_rows(struct op_shape *s)
{
	static const uint8_t n[] = { 1, 2, 3, 5, 8, 9, 16, 17, 31, 40, 67 };

	return n[pick(s, sizeof n)];
}

static uint32_t act_in(struct tnp_make *m, int64_t width)
{
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, width);

	tnp_make_in(m, x);
	return x;
}

static uint32_t weight(struct tnp_make *m, uint32_t type, int64_t n, int64_t k)
{
	return tnp_make_random(m, type, 1 / sqrt((double)k), n, k, 0);
}

static uint32_t vec(struct tnp_make *m, uint32_t type, int64_t n)
{
	return tnp_make_random(m, type, 1, n, 0, 0);
}

static uint32_t out_rows(struct tnp_make *m, int64_t symbol, int64_t width)
{
	uint32_t y = tnp_make_rows(m, symbol, width);

	tnp_make_out(m, y);
	return y;
}

/* `n` activations of the given widths, each made from the graph's input. */
static void fan_out(struct tnp_make *m, struct op_shape *s, const int64_t *width, uint32_t n, uint32_t *out)
{
	int64_t k = MAX_OF(conform_block(s->helper), 32u);
	uint32_t x = act_in(m, k);

	for (uint32_t i = 0; i < n; i++) {
		out[i] = tnp_make_rows(m, TNP_N_TOKENS, width[i]);
		tnp_make_node(
			m, TNP_OP_LINEAR, TNP_LIST(x, weight(m, s->helper, width[i], k)), TNP_LIST(out[i]));
	}
}

/* ---- tables, rows ------------------------------------------------------------------------------------------------- */
static void build_embed(struct tnp_make *m, struct op_shape *s)
{
	int64_t d = columns(s);

	tnp_make_node(m, TNP_OP_EMBED, TNP_LIST(tnp_make_random(m, s->type, 1, 64, d, 0)),
		TNP_LIST(out_rows(m, TNP_N_TOKENS, d)));
	if (form(s, 2))
		tnp_make_int(m, TNP_A_INDEX, form(s, 2));
	if (form(s, 2))
		tnp_make_float(m, TNP_A_SCALE, 2.5);
}

static void build_select(struct tnp_make *m, struct op_shape *s)
{
	int64_t d = odd_rows(s);

	tnp_make_node(m, TNP_OP_SELECT, TNP_LIST(act_in(m, d)), TNP_LIST(out_rows(m, TNP_N_OUT, d)));
}

static void build_pool(struct tnp_make *m, struct op_shape *s)
{
	int64_t d = odd_rows(s);

	tnp_make_node(m, TNP_OP_POOL, TNP_LIST(act_in(m, d)), TNP_LIST(out_rows(m, TNP_N_SEQS, d)));
	tnp_make_int(m, TNP_A_POOL_KIND, form(s, 3));
}

/* ---- products ------------------------------------------------------------------------------------------------------- */
/* One matrix and one output, perhaps with bias, activation function and residual. */
static void build_linear(struct tnp_make *m, struct op_shape *s)
{
	int64_t k = columns(s), n = s->plain || pick(s, 3) ? odd_rows(s) : k;
	bool residual = n == k && !s->plain, bias = form(s, 2);
	uint32_t x = act_in(m, k), w = weight(m, s->type, n, k), b = bias ? vec(m, TNP_F32, n) : 0;
	uint32_t y = out_rows(m, TNP_N_TOKENS, n), in[4] = { x }, n_in = 1;

	if (residual)
		in[n_in++] = x;
	in[n_in++] = w;
	if (bias)
		in[n_in++] = b;
	tnp_make_node(m, TNP_OP_LINEAR, in, n_in, TNP_LIST(y));
	if (form(s, 2))
		tnp_make_int(m, TNP_A_ACT, form(s, 5));
}

/* Matrices stacked, outputs cutting the stack elsewhere, biases cut in a third way. */
static void build_linear_stack(struct tnp_make *m, struct op_shape *s)
{
	int64_t k = columns(s), a = 2 + odd_rows(s), b = odd_rows(s), c = 1 + pick(s, 2);
	uint32_t x = act_in(m, k), w0 = weight(m, s->type, a, k), w1 = weight(m, s->type, b, k);
	uint32_t b0 = vec(m, TNP_F32, a), b1 = vec(m, TNP_F32, b);
	uint32_t y0 = out_rows(m, TNP_N_TOKENS, c), y1 = out_rows(m, TNP_N_TOKENS, a + b - c);

	if (form(s, 2))
		tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, w0, w1, b0, b1), TNP_LIST(y0, y1));
	else
		tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, w0, w1), TNP_LIST(y0, y1));
}

/* Router, one matrix per expert, sum: what goes in and comes out are plain rows. */
static void build_moe(struct tnp_make *m, struct op_shape *s)
{
	int64_t k = columns(s), n = odd_rows(s), e = 1 + pick(s, 6), top = 1 + pick(s, (uint32_t)e);
	uint32_t x = act_in(m, k),
		 router_type = conform_block(s->helper) == 1 && form(s, 2) ? s->helper : s->type;
	uint32_t router = weight(m, router_type, e, k);
	uint32_t w = tnp_make_random(m, s->type, 1 / sqrt((double)k), e, n, k);
	uint32_t ids = tnp_make_tensor(m, TNP_I32, TNP_N_TOKENS, top, 0, 0),
		 share = out_rows(m, TNP_N_TOKENS, top);
	uint32_t rows = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, top, n, 0);

	tnp_make_node(m, TNP_OP_MOE_ROUTE, TNP_LIST(x, router), TNP_LIST(ids, share));
	tnp_make_int(m, TNP_A_TOP_K, top);
	tnp_make_int(m, TNP_A_NORM, form(s, 2));
	tnp_make_node(m, TNP_OP_MOE_LINEAR, TNP_LIST(x, ids, w), TNP_LIST(rows));
	tnp_make_int(m, TNP_A_ACT, form(s, 5));
	tnp_make_node(m, TNP_OP_MOE_SUM, TNP_LIST(rows, share), TNP_LIST(out_rows(m, TNP_N_TOKENS, n)));
}

/* ---- norms ------------------------------------------------------------------------------------------------------------- */
static void build_norm(struct tnp_make *m, struct op_shape *s, uint32_t op)
{
	int64_t group = columns(s), d = group * (1 + pick(s, 3));
	bool grouped = d != group || form(s, 2), residual = form(s, 2),
	     bias = op == TNP_OP_LAYERNORM && form(s, 2);
	uint32_t x = act_in(m, d), in[4] = { x }, n_in = 1, out[2], n_out = 1;

	if (residual)
		in[n_in++] = x;
	in[n_in++] = vec(m, s->type, group);
	if (bias)
		in[n_in++] = vec(m, s->type, group);
	out[0] = out_rows(m, TNP_N_TOKENS, d);
	if (residual && form(s, 2))
		out[n_out++] = out_rows(m, TNP_N_TOKENS, d);
	tnp_make_node(m, op, in, n_in, out, n_out);
	tnp_make_float(m, TNP_A_EPS, 1e-5);
	if (grouped)
		tnp_make_int(m, TNP_A_GROUP, group);
}

static void build_rmsnorm(struct tnp_make *m, struct op_shape *s) { build_norm(m, s, TNP_OP_RMSNORM); }
static void build_layernorm(struct tnp_make *m, struct op_shape *s) { build_norm(m, s, TNP_OP_LAYERNORM); }

/* One input, one output of its shape, one attribute. */
static void same(struct tnp_make *m, struct op_shape *s, uint32_t op)
{
	int64_t d = odd_rows(s);

	tnp_make_node(m, op, TNP_LIST(act_in(m, d)), TNP_LIST(out_rows(m, TNP_N_TOKENS, d)));
}

static void build_l2norm(struct tnp_make *m, struct op_shape *s) { same(m, s, TNP_OP_L2NORM); }

/* ---- element by element -------------------------------------------------------------------------------------------------- */
static void build_act(struct tnp_make *m, struct op_shape *s)
{
	same(m, s, TNP_OP_ACT);
	tnp_make_int(m, TNP_A_ACT, form(s, 5));
}

static void build_scale(struct tnp_make *m, struct op_shape *s)
{
	same(m, s, TNP_OP_SCALE);
	tnp_make_float(m, TNP_A_SCALE, -0.37);
}

static void build_softcap(struct tnp_make *m, struct op_shape *s)
{
	same(m, s, TNP_OP_SOFTCAP);
	tnp_make_float(m, TNP_A_CAP, 0.8);
}

static void build_glu(struct tnp_make *m, struct op_shape *s)
{
	int64_t d = odd_rows(s);

	tnp_make_node(m, TNP_OP_GLU, TNP_LIST(act_in(m, 2 * d)), TNP_LIST(out_rows(m, TNP_N_TOKENS, d)));
	tnp_make_int(m, TNP_A_ACT, form(s, 5));
}

/* The second operand: rows of the same width, a number a row, or a weight. */
static void build_two(struct tnp_make *m, struct op_shape *s, uint32_t op)
{
	int64_t width[2] = { odd_rows(s), 1 };
	uint32_t a[2];

	if (pick(s, 3) == 0 && !s->plain) {
		a[0] = act_in(m, width[0]);
		a[1] = vec(m, TNP_F32, width[0]);
	} else {
		width[1] = form(s, 2) ? width[0] : 1;
		fan_out(m, s, width, 2, a);
	}
	tnp_make_node(m, op, a, 2, TNP_LIST(out_rows(m, TNP_N_TOKENS, width[0])));
}

static void build_add(struct tnp_make *m, struct op_shape *s) { build_two(m, s, TNP_OP_ADD); }
static void build_mul(struct tnp_make *m, struct op_shape *s) { build_two(m, s, TNP_OP_MUL); }

/* ---- positions ------------------------------------------------------------------------------------------------------------ */
struct heads {
	int64_t heads, kv_heads, dim;
};

static struct heads heads_pick(struct op_shape *s)
{
	static const uint8_t dim[] = { 32, 64, 96, 128 }, group[] = { 1, 2, 3, 8 };
	struct heads h = { .kv_heads = 1 + pick(s, 3), .dim = dim[pick(s, sizeof dim)] };

	h.heads = h.kv_heads * group[pick(s, sizeof group)];
	return h;
}

static void rope_attrs(struct tnp_make *m, struct op_shape *s, int64_t dim)
{
	tnp_make_int(m, TNP_A_ROPE_MODE, form(s, 2));
	if (form(s, 2))
		tnp_make_int(m, TNP_A_ROPE_DIMS, dim / 2);
	else
		tnp_make_int(m, TNP_A_ROPE_DIMS, dim);
	if (form(s, 2))
		tnp_make_float(m, TNP_A_ROPE_BASE, 50000);
}

static void build_rope(struct tnp_make *m, struct op_shape *s)
{
	struct heads h = heads_pick(s);
	int64_t d = h.heads * h.dim;

	tnp_make_node(m, TNP_OP_ROPE, TNP_LIST(act_in(m, d)), TNP_LIST(out_rows(m, TNP_N_TOKENS, d)));
	tnp_make_int(m, TNP_A_HEADS, h.heads);
	tnp_make_int(m, TNP_A_HEAD_DIM, h.dim);
	rope_attrs(m, s, h.dim);
	if (form(s, 2))
		tnp_make_float(m, TNP_A_SCALE, 0.25);
}

static struct heads attend_node(struct tnp_make *m, struct op_shape *s, uint32_t factors)
{
	struct heads h = heads_pick(s);
	const int64_t width[3] = { h.heads * h.dim, h.kv_heads * h.dim, h.kv_heads * h.dim };
	uint32_t in[4];

	fan_out(m, s, width, 3, in);
	if (factors)
		in[3] = vec(m, TNP_F32, h.dim / 2);
	tnp_make_node(m, TNP_OP_ATTEND, in, factors ? 4 : 3, TNP_LIST(out_rows(m, TNP_N_TOKENS, width[0])));
	tnp_make_int(m, TNP_A_HEADS, h.heads);
	tnp_make_int(m, TNP_A_KV_HEADS, h.kv_heads);
	tnp_make_int(m, TNP_A_HEAD_DIM, h.dim);
	return h;
}

static void build_attend(struct tnp_make *m, struct op_shape *s)
{
	(void)attend_node(m, s, 0);
	tnp_make_int(m, TNP_A_SLOT, 0);
	if (form(s, 2))
		tnp_make_float(m, TNP_A_SCALE, 0.3);
	if (form(s, 2))
		tnp_make_int(m, TNP_A_WINDOW, 1 + pick(s, 20));
	if (form(s, 2))
		tnp_make_float(m, TNP_A_CAP, 1.5);
}

static void build_attend_rope(struct tnp_make *m, struct op_shape *s)
{
	bool factors = form(s, 2);
	struct heads h = attend_node(m, s, factors);

	tnp_make_int(m, TNP_A_SLOT, 0);
	tnp_make_int(m, TNP_A_ROPE_MODE, form(s, 2));
	if (!factors && form(s, 2))
		tnp_make_int(m, TNP_A_ROPE_DIMS, h.dim / 2);
	tnp_make_float(m, TNP_A_ROPE_BASE, 10000);
}

static void build_attend_all(struct tnp_make *m, struct op_shape *s)
{
	(void)attend_node(m, s, 0);
	tnp_make_int(m, TNP_A_CAUSAL, 0);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------------------ */
static void build_reshape(struct tnp_make *m, struct op_shape *s)
{
	int64_t a = odd_rows(s), b = 1 + pick(s, 5);
	uint32_t x = act_in(m, a * b), cut = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, a, b, 0);

	tnp_make_node(m, TNP_OP_RESHAPE, TNP_LIST(x), TNP_LIST(cut));
	tnp_make_node(m, TNP_OP_RESHAPE, TNP_LIST(cut), TNP_LIST(out_rows(m, TNP_N_TOKENS, a * b)));
}

/* [n][a][b] -> [a][n][b] -> [n][b][a], so that the second is no undoing of the first */
static void build_transpose(struct tnp_make *m, struct op_shape *s)
{
	int64_t a = odd_rows(s), b = 1 + pick(s, 5);
	uint32_t x = act_in(m, a * b), cut = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, a, b, 0);
	uint32_t t = tnp_make_tensor(m, TNP_F32, a, TNP_N_TOKENS, b, 0),
		 y = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, b, a, 0);

	tnp_make_node(m, TNP_OP_RESHAPE, TNP_LIST(x), TNP_LIST(cut));
	tnp_make_node(m, TNP_OP_TRANSPOSE, TNP_LIST(cut), TNP_LIST(t));
	tnp_make_int(m, TNP_A_AXES, 1 | 0 << 4 | 2 << 8);
	tnp_make_node(m, TNP_OP_TRANSPOSE, TNP_LIST(t), TNP_LIST(y));
	tnp_make_int(m, TNP_A_AXES, 1 | 2 << 4 | 0 << 8);
	tnp_make_out(m, y);
}

/* ---- the list ------------------------------------------------------------------------------------------------------------------- */
const struct op_case op_cases[] = {
	{ TNP_OP_EMBED, "embed", true, true, false, false, build_embed },
	{ TNP_OP_LINEAR, "linear", true, false, false, false, build_linear },
	{ TNP_OP_LINEAR, "linear-stack", true, false, false, true, build_linear_stack },
	{ TNP_OP_RMSNORM, "rmsnorm", true, true, false, false, build_rmsnorm },
	{ TNP_OP_LAYERNORM, "layernorm", true, true, false, false, build_layernorm },
	{ TNP_OP_ROPE, "rope", false, true, false, false, build_rope },
	{ TNP_OP_ATTEND, "attend", false, false, true, false, build_attend },
	{ TNP_OP_ATTEND, "attend-rope", false, false, true, true, build_attend_rope },
	{ TNP_OP_ATTEND, "attend-all", false, false, false, true, build_attend_all },
	{ TNP_OP_GLU, "glu", false, true, false, false, build_glu },
	{ TNP_OP_ACT, "act", false, true, false, false, build_act },
	{ TNP_OP_ADD, "add", false, false, false, false, build_add },
	{ TNP_OP_MUL, "mul", false, false, false, false, build_mul },
	{ TNP_OP_SCALE, "scale", false, true, false, false, build_scale },
	{ TNP_OP_SOFTCAP, "softcap", false, true, false, false, build_softcap },
	{ TNP_OP_SELECT, "select", false, true, false, false, build_select },
	{ TNP_OP_POOL, "pool", false, true, false, false, build_pool },
	{ TNP_OP_L2NORM, "l2norm", false, true, false, false, build_l2norm },
	{ TNP_OP_MOE_LINEAR, "experts", true, false, false, false, build_moe },
	{ TNP_OP_TRANSPOSE, "transpose", false, true, false, false, build_transpose },
	{ TNP_OP_RESHAPE, "reshape", false, true, false, false, build_reshape },
	{ 0, NULL, false, false, false, false, NULL },
};
