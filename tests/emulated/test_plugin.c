/* SPDX-License-Identifier: Apache-2.0
 * The cpu plugin of another processor under an emulator: what it chooses by itself, and small made-up models against
 * the reference plugin, prompt and decode. One thread: emulated ones that spin only wait for each other.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_drive.h"
#include <math.h>
#include <string.h>

enum { PROMPT = 40, STEPS = 3, OUT = PROMPT / 2 + STEPS, VOCAB = 96 };

static void best_is_chosen(void **st)
{
	struct tnp_device info = { .size = sizeof info };
	struct tnp_error e = { .size = sizeof e };
	struct drive_dev d;

	(void)st;
	drive_open(&d, "cpu", "1", NULL);
	assert_int_equal(d.ops->dev_info(0, &info, &e), TNP_OK);
	assert_string_equal(info.isa, "neon-dotprod");
	drive_close(&d);
}

/* Logits of the second half of the prompt and of each further token. */
static void run(const char *plugin, const struct drive_arch *a, uint32_t precision, uint32_t kv, float *out)
{
	struct tnp_make *g = drive_arch_make(a, 5);
	int32_t tokens[PROMPT + STEPS];
	struct drive_seq seq = { .token = tokens };
	struct drive_model m;
	struct drive_dev d;

	for (int32_t i = 0; i < PROMPT + STEPS; i++)
		tokens[i] = (i * 37 + 11) % VOCAB;
	drive_open(&d, plugin, "1", NULL);
	drive_model_open(&m, &d, g, a, precision, kv, 32, 99);
	drive_step(&m, &(struct drive_part){ &seq, PROMPT, PROMPT / 2, out }, 1);
	for (uint32_t i = PROMPT / 2; i < OUT; i++)
		drive_step(&m, &(struct drive_part){ &seq, 1, 1, out + (size_t)i * VOCAB }, 1);
	drive_model_close(&m);
	drive_close(&d);
	tnp_make_destroy(g);
}

static void compare(const struct drive_arch *a, uint32_t kv)
{
	const bool rounded = kv == TNP_Q8_0 || kv == TNP_Q4_0; /* a code may differ by one */
	static float want[OUT * VOCAB], got[OUT * VOCAB];

	run("ref", a, TNP_EXACT, kv, want);
	for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++) {
		double far = 0, all = 0;

		run("cpu", a, p, kv, got);
		for (size_t i = 0; i < OUT * VOCAB; i++) {
			far += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
			all += (double)want[i] * want[i];
		}
		if (!(sqrt(far / all) <= (p == TNP_FAST ? 0.05 : rounded ? 0.02 : 2e-3)))
			fail_msg(
				"type %u kv %u precision %u: distance %.3g", a->type, kv, p, sqrt(far / all));
	}
}

static void models_are_right(void **st)
{
	static const uint32_t types[] = { TNP_F16, TNP_Q4_0, TNP_Q8_0, TNP_Q5_1, TNP_Q4_K, TNP_Q6_K };
	static const uint32_t kv[] = { TNP_F16, TNP_Q8_0, TNP_Q4_0, TNP_F32 };
	struct drive_arch a = { .layers = 2,
		.d = 256,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 64,
		.ff = 256,
		.vocab = VOCAB,
		.act = TNP_ACT_SILU };

	(void)st;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		a.type = types[i];
		a.fused = i % 2;
		a.cap = i == 3 ? 20 : 0;
		a.window = i == 2 ? 24 : 0;
		a.act = i == 4 ? TNP_ACT_GELU_TANH : TNP_ACT_SILU;
		compare(&a, kv[i % 4]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(best_is_chosen),
		cmocka_unit_test(models_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
