/* SPDX-License-Identifier: Apache-2.0
 * The cpu plugin against the reference plugin, whole models: made-up architectures over weight types, stored KV
 * types, head sizes, windows, caps. Single operators are plugin-conform's affair.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_drive.h"
#include <math.h>
#include <string.h>

enum { N = 70, LONG = 600 };

static int32_t tokens[LONG];

static void tokens_fill(uint32_t vocab)
{
	uint64_t s = 17;

	for (uint32_t i = 0; i < LONG; i++)
		tokens[i] = (int32_t)(tnp_rand(&s) % vocab);
}

/* Logits of the last `n_out` of n tokens: all but the last 3 in two chunks, then one by one. */
static void run(const char *plugin, const char *isa, const struct drive_arch *a, uint32_t precision,
	uint32_t kv, uint32_t page, uint32_t n, float *out)
{
	struct tnp_make *g = drive_arch_make(a, 5);
	struct drive_seq seq = { .token = tokens };
	struct drive_model m;
	struct drive_dev d;

	tokens_fill(a->vocab);
	drive_open(&d, plugin, "2", isa);
	drive_model_open(&m, &d, g, a, precision, kv, page, 99);
	drive_step(&m, &(struct drive_part){ &seq, n - 33, 0, NULL }, 1);
	drive_step(&m, &(struct drive_part){ &seq, 30, 30, out }, 1);
	for (uint32_t i = 30; i < 33; i++)
		drive_step(&m, &(struct drive_part){ &seq, 1, 1, out + (size_t)i * a->vocab }, 1);
	drive_model_close(&m);
	drive_close(&d);
	tnp_make_destroy(g);
}

/* Root mean square of the difference over that of the right values. */
static double distance(const float *got, const float *want, size_t n)
{
	double d = 0, w = 0;

	for (size_t i = 0; i < n; i++) {
		d += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		w += (double)want[i] * want[i];
	}
	return sqrt(d / w);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The middle of the distances of 33 rows. */
static double distance_usual(const float *got, const float *want, size_t width)
{
	double row[33];

	for (size_t i = 0; i < 33; i++)
		row[i] = distance(got + i * width, want + i * width, width);
	qsort(row, 33, sizeof row[0], by_size);
	return row[16];
}

/* Of mixtures in fast precision the middle of the rows counts: rounded activations choose another expert where two are
 * nearly equal. */
static void compare(const char *name, const struct drive_arch *a, uint32_t kv, uint32_t page, uint32_t n,
	double exact, double fast)
{
	static const char *const isas[] = { NULL, "baseline" };
	size_t count = 33 * (size_t)a->vocab;
	float *want = calloc(count, sizeof *want), *got = calloc(count, sizeof *got);

	run("ref", NULL, a, TNP_EXACT, kv, page, n, want);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
			double far;

			run("cpu", isas[i], a, p, kv, page, n, got);
			far = a->experts && p == TNP_FAST ? distance_usual(got, want, a->vocab)
							  : distance(got, want, count);
			if (!(far <= (p == TNP_EXACT ? exact : fast)))
				fail_msg("%s, %s, %s: distance %.3g", name, isas[i] ? isas[i] : "best",
					p == TNP_EXACT ? "exact" : "fast", far);
		}
	free(want);
	free(got);
}

static const struct drive_arch plain = { .layers = 2,
	.d = 64,
	.heads = 6,
	.kv_heads = 2,
	.head_dim = 32,
	.ff = 96,
	.vocab = 160,
	.type = TNP_Q8_0,
	.act = TNP_ACT_SILU };

static void weight_types(void **state)
{
	static const uint32_t types[] = { TNP_F32, TNP_F16, TNP_BF16, TNP_Q4_0, TNP_Q4_1, TNP_Q5_0, TNP_Q5_1,
		TNP_Q8_0, TNP_IQ4_NL };

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		struct drive_arch a = plain;
		char name[32];

		a.type = types[i];
		a.fused = i % 2;
		(void)snprintf(name, sizeof name, "type %u", types[i]);
		compare(name, &a, TNP_F16, 32, N, 2e-3, 0.05);
	}
}

static void super_blocks(void **state)
{
	static const uint32_t types[] = { TNP_Q2_K, TNP_Q3_K, TNP_Q4_K, TNP_Q5_K, TNP_Q6_K };

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		struct drive_arch a = plain;
		char name[32];

		a.type = types[i];
		a.layers = 1;
		a.d = a.ff = 256;
		a.heads = 4;
		a.head_dim = 64;
		a.fused = i % 2;
		(void)snprintf(name, sizeof name, "type %u", types[i]);
		compare(name, &a, TNP_F32, 16, 40, 2e-3, 0.05);
	}
}

static void heads_and_pages(void **state)
{
	static const struct {
		uint32_t dim, heads, kv_heads, kv, page;
	} cases[] = {
		{ 64, 3, 3, TNP_F16, 16 },
		{ 64, 8, 1, TNP_F32, 48 },
		{ 128, 4, 1, TNP_Q8_0, 32 },
		{ 256, 4, 2, TNP_F16, 64 },
		{ 40, 5, 5, TNP_F16, 32 },
		{ 20, 7, 1, TNP_F16, 32 },
		{ 64, 6, 2, TNP_Q4_0, 32 },
		{ 96, 4, 4, TNP_Q4_0, 16 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct drive_arch a = plain;
		char name[64];

		a.type = TNP_F32;
		a.layers = 1;
		a.head_dim = cases[i].dim;
		a.heads = cases[i].heads;
		a.kv_heads = cases[i].kv_heads;
		a.fused = i % 2;
		(void)snprintf(name, sizeof name, "head %u x %u / %u", cases[i].dim, a.heads, a.kv_heads);
		compare(name, &a, cases[i].kv, cases[i].page, N,
			cases[i].kv == TNP_Q8_0 || cases[i].kv == TNP_Q4_0 ? 0.02 : 2e-3, 0.05);
	}
}

static void families(void **state)
{
	struct drive_arch a = plain;

	(void)state;
	a.window = 24, a.cap = 10, a.act = TNP_ACT_GELU_TANH, a.qk_norm = true, a.rope_mode = TNP_ROPE_HALVES;
	compare("windows and caps", &a, TNP_F16, 16, N, 2e-3, 0.05);
	a = plain, a.biased = a.factors = true, a.rope_dims = 16, a.act = TNP_ACT_GELU_ERF;
	compare("biases, factors, short rope", &a, TNP_F16, 32, N, 2e-3, 0.05);
	a = plain, a.fused = a.factors = true, a.rope_mode = TNP_ROPE_HALVES, a.act = TNP_ACT_RELU;
	compare("fused", &a, TNP_Q8_0, 32, N, 0.03, 0.06);
	a = plain, a.layers = 2, a.window = 300, a.type_down = TNP_Q4_0;
	compare("long", &a, TNP_F16, 32, LONG, 2e-3, 0.05);
}

/* More than two megabytes of packed weights: threads make a piece each, whose ends lie amid matrices and experts. */
static void weights_in_several_pieces(void **state)
{
	struct drive_arch a = plain;

	(void)state;
	a.layers = 1, a.d = 416, a.ff = 1001, a.type = TNP_F16;
	compare("pieces", &a, TNP_F16, 32, 40, 2e-3, 0.05);
	a.d = 160, a.ff = 520, a.type = TNP_F32, a.experts = 5, a.top_k = 2;
	compare("pieces of experts", &a, TNP_F16, 32, 40, 2e-3, 0.05);
}

static void mixtures(void **state)
{
	static const uint32_t types[] = { TNP_F32, TNP_F16, TNP_BF16, TNP_Q4_0, TNP_Q4_1, TNP_Q5_0, TNP_Q5_1,
		TNP_Q8_0, TNP_IQ4_NL, TNP_Q2_K, TNP_Q3_K, TNP_Q4_K, TNP_Q5_K, TNP_Q6_K };

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		struct drive_arch a = plain;
		char name[32];

		a.type = types[i];
		a.layers = 1;
		a.fused = i % 2;
		a.qk_norm = i % 4 == 3;
		a.experts = 3 + (uint32_t)i % 5;
		a.top_k = 1 + (uint32_t)i % 3;
		if (types[i] >= TNP_Q2_K && types[i] <= TNP_Q6_K)
			a.d = a.ff = 256, a.heads = 4, a.head_dim = 64;
		(void)snprintf(name, sizeof name, "experts of type %u", types[i]);
		compare(name, &a, TNP_F16, 32, N, 2e-3, 0.05);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weight_types),
		cmocka_unit_test(super_blocks),
		cmocka_unit_test(heads_and_pages),
		cmocka_unit_test(families),
		cmocka_unit_test(weights_in_several_pieces),
		cmocka_unit_test(mixtures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
