/* SPDX-License-Identifier: Apache-2.0
 * The reference plugin against numbers worked out by hand. What all backends have to do, chunks, pages and company
 * included, is checked by plugin-conform.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_make.h"
#include <dlfcn.h>
#include <math.h>
#include <string.h>

static const struct tnp_ops *ops;
static struct tnp_dev *dev;

static const char *host_config(void *ctx, const char *key)
{
	(void)ctx;
	return strcmp(key, "threads") ? NULL : "2";
}

static int load(void **state)
{
	static const struct tnp_host host = { .size = sizeof host, .abi_major = 1, .config = host_config };
	const char *build = getenv("TENON_BUILDDIR");
	char path[4096];
	tnp_entry_fn *entry;
	void *so;

	(void)state;
	(void)snprintf(path, sizeof path, "%s/plugins/stage/ref.so", build ? build : ".");
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!so)
		return -1;
	*(void **)&entry = dlsym(so, TNP_ENTRY_NAME);
	ops = entry(1, 1);
	return ops->start(&host, NULL) || ops->dev_open(0, &dev, NULL);
}

static int unload(void **state)
{
	(void)state;
	ops->dev_close(dev);
	return ops->stop(NULL);
}

static const struct tnp_limits limits = { .size = sizeof limits,
	.precision = TNP_EXACT,
	.max_tokens = 64,
	.max_seqs = 8,
	.max_out = 64,
	.max_pages_per_seq = 16,
	.kv_type = TNP_F32,
	.page_tokens = 4 };

/* ---- one step ------------------------------------------------------------------------------------------------ */
/* Opens the graph of `m`, runs n tokens of one sequence in page 0, rows of the first output to out [n][width]. Tokens are
 * all 0, positions 0, 1, 2 ...; `in` feeds the graph's input, `spec` the pool, if there is one. */
static void run_step(struct tnp_make *m, const struct tnp_kv_spec *spec, uint32_t n, const float *in,
	float *out, uint64_t width)
{
	const uint32_t page[1] = { 0 }, page0[2] = { 0, 1 }, tok0[2] = { 0, n }, past[1] = { 0 };
	const struct tnp_pages pages[TNP_MAX_GROUPS] = { { page0, page } };
	const struct tnp_graph *g = tnp_make_graph(m);
	struct tnp_error e = { .size = sizeof e };
	struct tnp_rows rows = { out, width };
	struct tnp_batch b = {
		.size = sizeof b, .n_seqs = 1, .n_tokens = n, .tok0 = tok0, .past = past, .pages = pages
	};
	int32_t token[8] = { 0 }, pos[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct tnp_model *model;
	struct tnp_kv *kv = NULL;
	uint64_t ticket;
	tnp_rc rc = TNP_E_INTERNAL;

	b.token = token;
	b.pos = pos;
	b.in = in;
	b.out = &rows;
	b.seq_rc = &rc;
	assert_non_null(g);
	if (ops->model_open(dev, g, &limits, &model, &e) || (spec && ops->kv_open(model, spec, &kv, &e)) ||
		ops->batch(model, kv, &b, &ticket, &e) || ops->wait(dev, ticket, 0, &e))
		fail_msg("%s", e.text);
	assert_int_equal(rc, TNP_OK);
	ops->kv_close(kv);
	ops->model_close(model);
}

static void run_rows(struct tnp_make *m, uint32_t n, const float *in, float *out, uint64_t width)
{
	run_step(m, NULL, n, in, out, width);
}

static void near(const float *got, const double *want, int n)
{
	for (int i = 0; i < n; i++)
		if (fabs(got[i] - want[i]) > 1e-6 * (1 + fabs(want[i])))
			fail_msg("element %d: %.9g, want %.9g", i, (double)got[i], want[i]);
}

static void linear_by_hand(void **state)
{
	struct tnp_make *m = tnp_make_create(1);
	const float w[6] = { 1, 2, 3, -1, 0.5f, 0 }, bias[3] = { 10, 20, -30 }, in[4] = { 1, 2, -1, 4 };
	/* rows of the stack: (1, 2), (3, -1), (0.5, 0); y = relu(W x + b) */
	const double want[6] = { 15, 21, 0, 17, 13, 0 };
	float out[6];
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 2), y = tnp_make_rows(m, TNP_N_TOKENS, 3);
	uint32_t a = tnp_make_weight(m, TNP_F32, w, 2, 2, 0), c = tnp_make_weight(m, TNP_F32, w + 4, 1, 2, 0);
	uint32_t b = tnp_make_weight(m, TNP_F32, bias, 3, 0, 0);

	(void)state;
	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, a, c, b), TNP_LIST(y));
	tnp_make_int(m, TNP_A_ACT, TNP_ACT_RELU);
	tnp_make_in(m, x);
	tnp_make_out(m, y);
	run_rows(m, 2, in, out, 3);
	near(out, want, 6);
	tnp_make_destroy(m);
}

static void norms_by_hand(void **state)
{
	struct tnp_make *m = tnp_make_create(1);
	const float w[2] = { 2, 3 }, b[2] = { 1, -1 }, in[4] = { 3, 4, 0, 2 };
	float out[4];
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 4), y = tnp_make_rows(m, TNP_N_TOKENS, 4);
	uint32_t z = tnp_make_rows(m, TNP_N_TOKENS, 4);
	uint32_t wt = tnp_make_weight(m, TNP_F32, w, 2, 0, 0), bt = tnp_make_weight(m, TNP_F32, b, 2, 0, 0);
	/* a pair of different elements becomes -1 and 1, lower one first, whatever RMSNORM made of them */
	const double want[4] = { -1, 2, -1, 2 };

	(void)state;
	tnp_make_node(m, TNP_OP_RMSNORM, TNP_LIST(x, wt), TNP_LIST(y));
	tnp_make_float(m, TNP_A_EPS, 0);
	tnp_make_int(m, TNP_A_GROUP, 2);
	tnp_make_node(m, TNP_OP_LAYERNORM, TNP_LIST(y, wt, bt), TNP_LIST(z));
	tnp_make_float(m, TNP_A_EPS, 0);
	tnp_make_int(m, TNP_A_GROUP, 2);
	tnp_make_in(m, x);
	tnp_make_out(m, z);
	run_rows(m, 1, in, out, 4);
	near(out, want, 4);
	tnp_make_destroy(m);
}

/* Two experts, top 1: token 0 = (1, 0) goes to expert 1, token 1 = (0, 2) to expert 0. */
static void experts_by_hand(void **state)
{
	struct tnp_make *m = tnp_make_create(1);
	const float router[4] = { 0, 1, 1, 0 }, experts[4] = { 2, 5, 7, 3 }, in[4] = { 1, 0, 0, 2 };
	const double want[2] = { 7 * exp(1) / (1 + exp(1)), 10 * exp(2) / (1 + exp(2)) };
	float out[2];
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 2),
		 ids = tnp_make_tensor(m, TNP_I32, TNP_N_TOKENS, 1, 0, 0);
	uint32_t share = tnp_make_rows(m, TNP_N_TOKENS, 1), y = tnp_make_rows(m, TNP_N_TOKENS, 1);
	uint32_t rows = tnp_make_tensor(m, TNP_F32, TNP_N_TOKENS, 1, 1, 0);
	uint32_t r = tnp_make_weight(m, TNP_F32, router, 2, 2, 0),
		 w = tnp_make_weight(m, TNP_F32, experts, 2, 1, 2);

	(void)state;
	tnp_make_node(m, TNP_OP_MOE_ROUTE, TNP_LIST(x, r), TNP_LIST(ids, share));
	tnp_make_int(m, TNP_A_TOP_K, 1);
	tnp_make_node(m, TNP_OP_MOE_LINEAR, TNP_LIST(x, ids, w), TNP_LIST(rows));
	tnp_make_node(m, TNP_OP_MOE_SUM, TNP_LIST(rows, share), TNP_LIST(y));
	tnp_make_in(m, x);
	tnp_make_out(m, y);
	run_rows(m, 2, in, out, 1);
	near(out, want, 2);
	tnp_make_destroy(m);
}

/* ---- stored types, against values of an independent reader ------------------------------------------------ */
/* One row of the type through EMBED, token 0. */
static void row_check(uint32_t type, const uint8_t *data, uint32_t n, const float *want)
{
	struct tnp_make *m = tnp_make_create(1);
	uint32_t y = tnp_make_rows(m, TNP_N_TOKENS, n), w = tnp_make_weight(m, type, data, 1, n, 0);
	float *out = calloc(n, sizeof *out);

	tnp_make_node(m, TNP_OP_EMBED, TNP_LIST(w), TNP_LIST(y));
	tnp_make_out(m, y);
	run_rows(m, 1, NULL, out, n);
	for (uint32_t i = 0; i < n; i++) /* the reader rounds to float after each operation, we once */
		if (fabsf(out[i] - want[i]) > 4e-7f * (fabsf(want[i]) + 1))
			fail_msg("type %u element %u: %.9g, want %.9g", type, i, (double)out[i],
				(double)want[i]);
	free(out);
	tnp_make_destroy(m);
}

static void stored_types(void **state)
{
	FILE *f = fopen(unit_src("tests/data/linear/dequant.bin"), "rb");
	uint32_t head[3], n = 0;
	uint8_t data[4096];
	float want[4096];

	(void)state;
	assert_non_null(f);
	while (fread(head, sizeof head, 1, f) == 1) {
		assert_true(head[1] <= sizeof data && head[2] <= 4096);
		assert_int_equal(fread(data, 1, head[1], f), head[1]);
		assert_int_equal(fread(want, sizeof *want, head[2], f), head[2]);
		row_check(head[0], data, head[2], want);
		n++;
	}
	(void)fclose(f);
	assert_int_equal(n, 11);
}

/* 0, subnormals, one, the largest, negative; the same numbers as bfloat16. */
static void half_types(void **state)
{
	const uint16_t f16[8] = { 0, 1, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0xc000, 0x3555 };
	const uint16_t bf16[4] = { 0, 0x3f80, 0xc000, 0x4049 };
	const float want16[8] = { 0, 0x1p-24f, 1023 * 0x1p-24f, 0x1p-14f, 1, 65504, -2, 0.333251953125f };
	const float want_b[4] = { 0, 1, -2, 3.140625f };

	(void)state;
	row_check(TNP_F16, (const uint8_t *)f16, 8, want16);
	row_check(TNP_BF16, (const uint8_t *)bf16, 4, want_b);
}

/* ---- attention by hand ---------------------------------------------------------------------------------------- */
/* Two heads of 2 over one KV head; the value rows are (1, 0), (0, 1), (10, 10), the keys are equal but for token 2. */
static void attention_by_hand(void **state)
{
	struct tnp_make *m = tnp_make_create(1);
	/* x = q (4) | k (2) | v (2), taken apart by matrices of ones and zeros */
	const float in[3 * 8] = { 1, 0, 0, 1, 1, 0, 1, 0, /**/ 1, 0, 0, 1, 1, 0, 0, 1, /**/ 1, 0, 0, 1, 3, 0,
		10, 10 };
	float eye[8 * 8] = { 0 }, out[3 * 4];
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 8), q = tnp_make_rows(m, TNP_N_TOKENS, 4),
		 k = tnp_make_rows(m, TNP_N_TOKENS, 2);
	uint32_t v = tnp_make_rows(m, TNP_N_TOKENS, 2), y = tnp_make_rows(m, TNP_N_TOKENS, 4), w;
	const double e = exp(3), f = exp(1), a = f / (2 * f + e), b = e / (2 * f + e);
	const double want[12] = { 1, 0, 1, 0, /**/ 0.5, 0.5, 0.5, 0.5, /**/ a + 10 * b, a + 10 * b, 11 / 3.0,
		11 / 3.0 };
	const struct tnp_kv_slot slot = { 1, 2, 0, 0 };
	const struct tnp_kv_spec spec = { .size = sizeof spec,
		.type = TNP_F32,
		.page_tokens = 4,
		.n_slots = 1,
		.n_pages = { 1 },
		.slots = &slot };

	(void)state;
	for (int i = 0; i < 8; i++)
		eye[i * 9] = 1;
	w = tnp_make_weight(m, TNP_F32, eye, 8, 8, 0);
	tnp_make_node(m, TNP_OP_LINEAR, TNP_LIST(x, w), TNP_LIST(q, k, v));
	tnp_make_node(m, TNP_OP_ATTEND, TNP_LIST(q, k, v), TNP_LIST(y));
	tnp_make_int(m, TNP_A_HEADS, 2);
	tnp_make_int(m, TNP_A_KV_HEADS, 1);
	tnp_make_int(m, TNP_A_HEAD_DIM, 2);
	tnp_make_int(m, TNP_A_SLOT, 0);
	tnp_make_float(m, TNP_A_SCALE, 1);
	tnp_make_in(m, x);
	tnp_make_out(m, y);
	run_step(m, &spec, 3, in, out, 4);
	near(out, want, 12);
	tnp_make_destroy(m);
}

/* A quarter turn: pair (2i, 2i + 1) against (i, i + d / 2), the second pair ten thousand ^ (1/2) slower. */
static void rope_by_hand(void **state)
{
	for (int mode = 0; mode < 2; mode++) {
		struct tnp_make *m = tnp_make_create(1);
		const float in[2 * 4] = { 9, 9, 9, 9, 1, 2, 3, 4 };
		const double c = cos(1), s = sin(1), d = cos(0.01), t = sin(0.01);
		const double pairs[4] = { c - 2 * s, s + 2 * c, 3 * d - 4 * t, 3 * t + 4 * d };
		const double halves[4] = { c - 3 * s, 2 * d - 4 * t, s + 3 * c, 2 * t + 4 * d };
		uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 4), y = tnp_make_rows(m, TNP_N_TOKENS, 4);
		float out[8];

		(void)state;
		tnp_make_node(m, TNP_OP_ROPE, TNP_LIST(x), TNP_LIST(y));
		tnp_make_int(m, TNP_A_HEADS, 1);
		tnp_make_int(m, TNP_A_HEAD_DIM, 4);
		tnp_make_int(m, TNP_A_ROPE_MODE, mode);
		tnp_make_in(m, x);
		tnp_make_out(m, y);
		run_rows(m, 2, in, out, 4);
		assert_true(out[0] == 9 && out[3] == 9);
		near(out + 4, mode ? halves : pairs, 4);
		tnp_make_destroy(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_by_hand),
		cmocka_unit_test(norms_by_hand),
		cmocka_unit_test(experts_by_hand),
		cmocka_unit_test(stored_types),
		cmocka_unit_test(half_types),
		cmocka_unit_test(attention_by_hand),
		cmocka_unit_test(rope_by_hand),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
