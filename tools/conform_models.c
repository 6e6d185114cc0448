/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: made-up models, small and whole. Widths divide into blocks of every stored type. Weights are
 * random but sized so that values stay near one, through any number of layers.
 */
#include "tools/conform.h"
#include <math.h>
#include <string.h>

enum {
	D = 256,
	HEADS = 8,
	KV_HEADS = 2,
	HEAD = 32,
	KV = KV_HEADS * HEAD,
	FFN = 512,
	VOCAB = 101,
	LAYERS = 2,
	PLACES = 128,
	EXPERTS = 4,
	TOP_K = 2,
	WINDOW = 9
};

/* ---- pieces ----------------------------------------------------------------------------------------------------- */
static uint32_t rows(struct tnp_make *m, int64_t width) { return tnp_make_rows(m, TNP_N_TOKENS, width); }

static uint32_t matrix(struct tnp_make *m, uint32_t type, int64_t n, int64_t k)
{
	return tnp_make_random(m, type, 1 / sqrt((double)k), n, k, 0);
}

/* [n] floats around `mean` */
static uint32_t vector(struct tnp_make *m, int64_t n, double mean)
{
	float v[1024];
	uint64_t seed = (uint64_t)n * 77 + (uint64_t)(mean * 10);

	for (int64_t i = 0; i < n; i++)
		v[i] = (float)(mean + 0.1 * tnp_rand_normal(&seed));
	return tnp_make_weight(m, TNP_F32, v, n, 0, 0);
}

static uint32_t embed(struct tnp_make *m, uint32_t type, int64_t n_rows, int64_t index)
{
	uint32_t table = tnp_make_random(m, type, 1, n_rows, D, 0), x = rows(m, D);

	tnp_make_node(m, TNP_OP_EMBED, TNP_LIST(table), TNP_LIST(x));
	tnp_make_int(m, TNP_A_INDEX, index);
	return x;
}

static uint32_t linear(struct tnp_make *m, uint32_t type, uint32_t x, int64_t k, int64_t n, int64_t act)
{
	uint32_t y = rows(m, n);

	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, matrix(m, type, n, k)), TNP_LIST(y));
	tnp_make_int(m, TNP_A_ACT, act);
	return y;
}

static uint32_t rmsnorm(struct tnp_make *m, uint32_t x)
{
	uint32_t y = rows(m, D);

	tnp_make_node(m, TNP_OP_RMSNORM, TNP_LIST(x, vector(m, D, 1)), TNP_LIST(y));
	tnp_make_float(m, TNP_A_EPS, 1e-5);
	return y;
}

static uint32_t two(struct tnp_make *m, uint32_t op, uint32_t a, uint32_t b, int64_t width)
{
	uint32_t y = rows(m, width);

	tnp_make_node(m, op, TNP_LIST(a, b), TNP_LIST(y));
	return y;
}

static uint32_t rope(struct tnp_make *m, uint32_t x, int64_t heads, int64_t dims, int64_t mode)
{
	uint32_t y = rows(m, heads * HEAD);

	tnp_make_node(m, TNP_OP_ROPE, TNP_LIST(x), TNP_LIST(y));
	tnp_make_int(m, TNP_A_HEADS, heads);
	tnp_make_int(m, TNP_A_HEAD_DIM, HEAD);
	tnp_make_int(m, TNP_A_ROPE_DIMS, dims);
	tnp_make_int(m, TNP_A_ROPE_MODE, mode);
	return y;
}

static uint32_t attend(struct tnp_make *m, uint32_t q, uint32_t k, uint32_t v, int64_t slot)
{
	uint32_t y = rows(m, D);

	tnp_make_node(m, TNP_OP_ATTEND, TNP_LIST(q, k, v), TNP_LIST(y));
	tnp_make_int(m, TNP_A_HEADS, HEADS);
	tnp_make_int(m, TNP_A_KV_HEADS, KV_HEADS);
	tnp_make_int(m, TNP_A_HEAD_DIM, HEAD);
	tnp_make_int(m, slot < 0 ? TNP_A_CAUSAL : TNP_A_SLOT, slot < 0 ? 0 : slot);
	return y;
}

/* Rows that the host wants, and their logits. */
static void head(struct tnp_make *m, uint32_t type, uint32_t x)
{
	uint32_t sel = tnp_make_rows(m, TNP_N_OUT, D), norm = tnp_make_rows(m, TNP_N_OUT, D);
	uint32_t out = tnp_make_rows(m, TNP_N_OUT, VOCAB);

	tnp_make_node(m, TNP_OP_SELECT, TNP_LIST(x), TNP_LIST(sel));
	tnp_make_node(m, TNP_OP_RMSNORM, TNP_LIST(sel, vector(m, D, 1)), TNP_LIST(norm));
	tnp_make_float(m, TNP_A_EPS, 1e-5);
	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(norm, matrix(m, type, VOCAB, D)), TNP_LIST(out));
	tnp_make_out(m, out);
}

/* ---- as an architecture file writes it, before any pass ---------------------------------------------------------- */
static void build_plain(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN);

	for (int l = 0; l < LAYERS; l++) {
		uint32_t h = rmsnorm(m, x);
		uint32_t q = rope(m, linear(m, type, h, D, D, 0), HEADS, HEAD, TNP_ROPE_PAIRS);
		uint32_t k = rope(m, linear(m, type, h, D, KV, 0), KV_HEADS, HEAD, TNP_ROPE_PAIRS);
		uint32_t a = attend(m, q, k, linear(m, type, h, D, KV, 0), l), gate, up;

		x = two(m, TNP_OP_ADD, x, linear(m, type, a, D, D, 0), D);
		h = rmsnorm(m, x);
		gate = linear(m, type, h, D, FFN, TNP_ACT_SILU);
		up = linear(m, type, h, D, FFN, 0);
		x = two(m, TNP_OP_ADD, x, linear(m, type, two(m, TNP_OP_MUL, gate, up, FFN), FFN, D, 0), D);
	}
	head(m, type, x);
}

/* ---- the same after all fusions: one product for q, k, v, one for gate and up, sums inside the norms -------------- */
static void fused_qkv(struct tnp_make *m, uint32_t type, uint32_t h, int64_t slot, uint32_t *out)
{
	uint32_t q = rows(m, D), k = rows(m, KV), v = rows(m, KV), wq = matrix(m, type, D, D);
	uint32_t wk = matrix(m, type, KV, D), wv = matrix(m, type, KV, D), y = rows(m, D);
	uint32_t factors = vector(m, HEAD / 2, 2);

	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(h, wq, wk, wv), TNP_LIST(q, k, v));
	tnp_make_node(m, TNP_OP_ATTEND, TNP_LIST(q, k, v, factors), TNP_LIST(y));
	tnp_make_int(m, TNP_A_HEADS, HEADS);
	tnp_make_int(m, TNP_A_KV_HEADS, KV_HEADS);
	tnp_make_int(m, TNP_A_HEAD_DIM, HEAD);
	tnp_make_int(m, TNP_A_SLOT, slot);
	tnp_make_int(m, TNP_A_ROPE_MODE, TNP_ROPE_PAIRS);
	tnp_make_float(m, TNP_A_ROPE_BASE, 500000);
	*out = y;
}

static uint32_t fused_norm(struct tnp_make *m, uint32_t *x, uint32_t add)
{
	uint32_t y = rows(m, D), sum = rows(m, D);

	tnp_make_node(m, TNP_OP_RMSNORM, TNP_LIST(*x, add, vector(m, D, 1)), TNP_LIST(y, sum));
	tnp_make_float(m, TNP_A_EPS, 1e-5);
	*x = sum;
	return y;
}

static uint32_t fused_ffn(struct tnp_make *m, uint32_t type, uint32_t h, uint32_t residual)
{
	uint32_t gate_up = rows(m, 2 * FFN), g = rows(m, FFN), y = rows(m, D);
	uint32_t wg = matrix(m, type, FFN, D), wu = matrix(m, type, FFN, D);

	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(h, wg, wu), TNP_LIST(gate_up));
	tnp_make_node(m, TNP_OP_GLU, TNP_LIST(gate_up), TNP_LIST(g));
	tnp_make_int(m, TNP_A_ACT, TNP_ACT_SILU);
	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(g, residual, matrix(m, type, D, FFN)), TNP_LIST(y));
	return y;
}

static void build_fused(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN), h = rmsnorm(m, x);

	for (int l = 0; l < LAYERS; l++) {
		uint32_t a;

		fused_qkv(m, type, h, l, &a);
		h = fused_norm(m, &x, linear(m, type, a, D, D, 0));
		x = fused_ffn(m, type, h, x);
		h = rmsnorm(m, x);
	}
	head(m, type, x);
}

/* ---- windows in every other layer, two groups of pages, norms per head, capped scores ------------------------------ */
static uint32_t head_norm(struct tnp_make *m, uint32_t x, int64_t heads)
{
	uint32_t y = rows(m, heads * HEAD);

	tnp_make_node(m, TNP_OP_RMSNORM, TNP_LIST(x, vector(m, HEAD, 1)), TNP_LIST(y));
	tnp_make_float(m, TNP_A_EPS, 1e-6);
	tnp_make_int(m, TNP_A_GROUP, HEAD);
	return y;
}

static void build_windowed(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN), out = rows(m, D);

	for (int l = 0; l < 2 * LAYERS; l++) {
		uint32_t h = rmsnorm(m, x), a, q, k;

		q = rope(m, head_norm(m, linear(m, type, h, D, D, 0), HEADS), HEADS, HEAD, TNP_ROPE_HALVES);
		k = rope(m, head_norm(m, linear(m, type, h, D, KV, 0), KV_HEADS), KV_HEADS, HEAD,
			TNP_ROPE_HALVES);
		a = attend(m, q, k, linear(m, type, h, D, KV, 0), l);
		tnp_make_float(m, TNP_A_SCALE, 0.2);
		tnp_make_float(m, TNP_A_CAP, 3);
		if (l % 2 == 0)
			tnp_make_int(m, TNP_A_WINDOW, WINDOW);
		x = two(m, TNP_OP_ADD, x, rmsnorm(m, linear(m, type, a, D, D, 0)), D);
		h = linear(m, type, rmsnorm(m, x), D, FFN, TNP_ACT_GELU_TANH);
		x = two(m, TNP_OP_ADD, x, linear(m, type, h, FFN, D, 0), D);
	}
	tnp_make_node(m, TNP_OP_SOFTCAP, TNP_LIST(x), TNP_LIST(out));
	tnp_make_float(m, TNP_A_CAP, 5);
	head(m, type, out);
}

/* ---- a mixture of experts ------------------------------------------------------------------------------------------ */
static uint32_t experts(struct tnp_make *m, uint32_t type, uint32_t h)
{
	uint32_t ids = tnp_make_tensor(m, TNP_I32, TNP_N_TOKENS, TOP_K, 0, 0), share = rows(m, TOP_K),
		 y = rows(m, D);
	uint32_t gate_up = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, TOP_K, 2 * FFN, 0);
	uint32_t g = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, TOP_K, FFN, 0);
	uint32_t down = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, TOP_K, D, 0);
	uint32_t wg = tnp_make_random(m, type, 0.06, EXPERTS, FFN, D),
		 wu = tnp_make_random(m, type, 0.06, EXPERTS, FFN, D);
	uint32_t wd = tnp_make_random(m, type, 0.04, EXPERTS, D, FFN);

	tnp_make_node(m, TNP_OP_MOE_ROUTE, TNP_LIST(h, tnp_make_random(m, TNP_F32, 0.06, EXPERTS, D, 0)),
		TNP_LIST(ids, share));
	tnp_make_int(m, TNP_A_TOP_K, TOP_K);
	tnp_make_int(m, TNP_A_NORM, 1);
	tnp_make_node(m, TNP_OP_MOE_LINEAR, TNP_LIST(h, ids, wg, wu), TNP_LIST(gate_up));
	tnp_make_node(m, TNP_OP_GLU, TNP_LIST(gate_up), TNP_LIST(g));
	tnp_make_int(m, TNP_A_ACT, TNP_ACT_SILU);
	tnp_make_node(m, TNP_OP_MOE_LINEAR, TNP_LIST(g, ids, wd), TNP_LIST(down));
	tnp_make_node(m, TNP_OP_MOE_SUM, TNP_LIST(down, share), TNP_LIST(y));
	return y;
}

static void build_experts(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN), h = rmsnorm(m, x), a;

	fused_qkv(m, type, h, 0, &a);
	h = fused_norm(m, &x, linear(m, type, a, D, D, 0));
	head(m, type, two(m, TNP_OP_ADD, x, experts(m, type, h), D));
}

/* ---- an encoder: every token sees all, one vector a text ------------------------------------------------------------ */
static uint32_t layernorm(struct tnp_make *m, uint32_t x)
{
	uint32_t y = rows(m, D), w = vector(m, D, 1), b = vector(m, D, 0);

	tnp_make_node(m, TNP_OP_LAYERNORM, TNP_LIST(x, w, b), TNP_LIST(y));
	tnp_make_float(m, TNP_A_EPS, 1e-12);
	return y;
}

static uint32_t biased(struct tnp_make *m, uint32_t type, uint32_t x, int64_t k, int64_t n, int64_t act)
{
	uint32_t y = rows(m, n), w = matrix(m, type, n, k), b = vector(m, n, 0);

	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, w, b), TNP_LIST(y));
	tnp_make_int(m, TNP_A_ACT, act);
	return y;
}

static void build_encoder(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN), pooled = tnp_make_rows(m, TNP_N_SEQS, D);
	uint32_t out = tnp_make_rows(m, TNP_N_SEQS, D);

	x = two(m, TNP_OP_ADD, x, embed(m, type, PLACES, TNP_INDEX_POS), D);
	x = layernorm(m, two(m, TNP_OP_ADD, x, vector(m, D, 0), D));
	for (int l = 0; l < LAYERS; l++) {
		uint32_t q = biased(m, type, x, D, D, 0), k = biased(m, type, x, D, KV, 0);
		uint32_t a = attend(m, q, k, biased(m, type, x, D, KV, 0), -1);

		x = layernorm(m, two(m, TNP_OP_ADD, x, biased(m, type, a, D, D, 0), D));
		a = biased(m, type, x, D, FFN, TNP_ACT_GELU_ERF);
		x = layernorm(m, two(m, TNP_OP_ADD, x, biased(m, type, a, FFN, D, 0), D));
	}
	tnp_make_node(m, TNP_OP_POOL, TNP_LIST(x), TNP_LIST(pooled));
	tnp_make_int(m, TNP_A_POOL_KIND, TNP_POOL_MEAN);
	tnp_make_node(m, TNP_OP_L2NORM, TNP_LIST(pooled), TNP_LIST(out));
	tnp_make_out(m, out);
}

/* ---- an architecture no real model has: attention and feed-forward side by side behind one LayerNorm, rotary
 * embedding on half of each head, a scaled residual; layers 1 and up read the keys of layer 0 ------------------------ */
static uint32_t shared_attend(struct tnp_make *m, uint32_t q)
{
	uint32_t y = rows(m, D);

	tnp_make_node(m, TNP_OP_ATTEND, TNP_LIST(q), TNP_LIST(y));
	tnp_make_int(m, TNP_A_HEADS, HEADS);
	tnp_make_int(m, TNP_A_KV_HEADS, KV_HEADS);
	tnp_make_int(m, TNP_A_HEAD_DIM, HEAD);
	tnp_make_int(m, TNP_A_SLOT, 0);
	return y;
}

static uint32_t scaled(struct tnp_make *m, uint32_t x, double by)
{
	uint32_t y = rows(m, D);

	tnp_make_node(m, TNP_OP_SCALE, TNP_LIST(x), TNP_LIST(y));
	tnp_make_float(m, TNP_A_SCALE, by);
	return y;
}

static void build_parallel(struct tnp_make *m, uint32_t type)
{
	uint32_t x = embed(m, type, VOCAB, TNP_INDEX_TOKEN);

	tnp_make_float(m, TNP_A_SCALE, 1.5);
	for (int l = 0; l < LAYERS; l++) {
		uint32_t h = layernorm(m, x), a, f;
		uint32_t q = rope(m, biased(m, type, h, D, D, 0), HEADS, HEAD / 2, TNP_ROPE_HALVES);

		if (l == 0) {
			uint32_t k =
				rope(m, biased(m, type, h, D, KV, 0), KV_HEADS, HEAD / 2, TNP_ROPE_HALVES);

			a = attend(m, q, k, biased(m, type, h, D, KV, 0), 0);
		} else {
			a = shared_attend(m, q);
		}
		a = biased(m, type, a, D, D, 0);
		f = biased(m, type, biased(m, type, h, D, FFN, TNP_ACT_GELU_ERF), FFN, D, 0);
		x = two(m, TNP_OP_ADD, scaled(m, x, 0.7), two(m, TNP_OP_ADD, a, f, D), D);
	}
	head(m, type, x);
}

/* ---- the least that is worth a backend: rows in, two products, rows out ------------------------------------------ */
static void build_chain(struct tnp_make *m, uint32_t type)
{
	uint32_t x = rows(m, D), h = linear(m, type, x, D, FFN, TNP_ACT_RELU);

	tnp_make_in(m, x);
	tnp_make_out(m, linear(m, type, h, FFN, D, 0));
}

static void build_expert_chain(struct tnp_make *m, uint32_t type)
{
	uint32_t x = rows(m, D);

	tnp_make_in(m, x);
	tnp_make_out(m, experts(m, type, x));
}

/* ---- the list ---------------------------------------------------------------------------------------------------------- */
const struct made_model made_models[] = {
	{ "plain", build_plain, false, VOCAB, 256 },
	{ "fused", build_fused, false, VOCAB, 256 },
	{ "windowed", build_windowed, false, VOCAB, 256 },
	{ "experts", build_experts, false, VOCAB, 256 },
	{ "encoder", build_encoder, true, VOCAB, 256 },
	{ "parallel", build_parallel, false, VOCAB, 256 },
	{ "chain", build_chain, false, VOCAB, 256 },
	{ "expert-chain", build_expert_chain, false, VOCAB, 256 },
	{ NULL, NULL, false, 0, 0 },
};

const struct made_model *made_model_find(const char *name)
{
	for (const struct made_model *mm = made_models; mm->name; mm++)
		if (!strcmp(mm->name, name))
			return mm;
	return NULL;
}

struct tnp_make *made_model_for(struct conform *c, const struct made_model *mm, const struct tnp_graph **g)
{
	static const uint32_t order[] = { TNP_Q8_0, TNP_Q4_1, TNP_F16, TNP_F32, TNP_Q4_0, TNP_Q4_K, TNP_BF16,
		TNP_Q6_K };

	for (size_t i = 0; i < COUNT_OF(order); i++) {
		struct tnp_make *m = tnp_make_create(c->seed);

		if (!m)
			conform_fail(c, "plugin-conform itself is out of memory");
		mm->build(m, order[i]);
		*g = tnp_make_graph(m);
		if (*g && run_taken(&c->sut, *g))
			return m;
		tnp_make_destroy(m);
	}
	return NULL;
}

struct tnp_make *made_model_any(struct conform *c, const struct tnp_graph **g)
{
	static const char *const order[] = { "plain", "fused", "chain" };

	for (size_t i = 0; i < COUNT_OF(order); i++) {
		struct tnp_make *m = made_model_for(c, made_model_find(order[i]), g);

		if (m)
			return m;
	}
	return NULL;
}
