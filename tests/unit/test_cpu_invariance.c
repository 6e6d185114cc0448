/* SPDX-License-Identifier: Apache-2.0
 * The cpu plugin's promise, bit for bit: a token's row depends on the tokens before it in its own sequence, and on
 * nothing else. Each case compares logits of one sequence computed in one go, alone, with one thread, on pages in
 * order, with the same sequence cut, mixed, shuffled and shared out in other ways.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_drive.h"
#include <string.h>

enum { N = 330, OTHERS = 17 };

static int32_t tokens[N], others[OTHERS][N];

static const struct drive_arch archs[] = {
	{ .layers = 2,
		.d = 96,
		.heads = 6,
		.kv_heads = 2,
		.head_dim = 32,
		.ff = 160,
		.vocab = 72,
		.type = TNP_Q4_1,
		.type_down = TNP_Q8_0,
		.act = TNP_ACT_SILU,
		.fused = true },
	{ .layers = 2,
		.d = 64,
		.heads = 4,
		.kv_heads = 1,
		.head_dim = 64,
		.ff = 96,
		.vocab = 72,
		.type = TNP_Q5_0,
		.act = TNP_ACT_GELU_TANH,
		.window = 40,
		.cap = 12,
		.qk_norm = true,
		.rope_mode = TNP_ROPE_HALVES,
		.type_down = TNP_F16 },
};

struct setup {
	const struct drive_arch *arch;
	uint32_t precision, kv, page;
	const char *threads, *isa;
	uint64_t shuffle;
};

static void tokens_fill(void)
{
	uint64_t s = 4;

	for (uint32_t i = 0; i < N; i++)
		tokens[i] = (int32_t)(tnp_rand(&s) % 72);
	for (uint32_t j = 0; j < OTHERS; j++)
		for (uint32_t i = 0; i < N; i++)
			others[j][i] = (int32_t)(tnp_rand(&s) % 72);
}

/* A run of the sequence: `cut` says how many tokens the next step takes, `company` what else is in it. */
typedef uint32_t cut_fn(uint32_t at);
static uint32_t cut_whole(uint32_t at) { return N - at; }
static uint32_t cut_ones(uint32_t at) { return at < N - 80 ? N - 80 : 1; }
static uint32_t cut_odd(uint32_t at) { return at % 3 ? 1 : at % 5 ? 7 : 61; }
static uint32_t cut_nines(uint32_t at) { return at ? 9 : 33; }

static uint32_t company_add(struct drive_part *part, struct drive_seq *seqs, uint32_t step)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < OTHERS; j++) {
		uint32_t len = j % 4 == 0 && step % 3 == 0 ? 13 : 1;

		if (seqs[j].past + len <= N && (step + j) % 4 != 1)
			part[n++] = (struct drive_part){ &seqs[j], len, 0, NULL };
	}
	return n;
}

static void run(const struct setup *s, cut_fn *cut, bool company, float *out)
{
	struct tnp_make *g = drive_arch_make(s->arch, 11);
	struct drive_seq me = { .token = tokens }, *seqs = calloc(OTHERS, sizeof *seqs);
	struct drive_part part[OTHERS + 1];
	struct drive_model m;
	struct drive_dev d;

	for (uint32_t j = 0; j < OTHERS; j++)
		seqs[j].token = others[j];
	drive_open(&d, "cpu", s->threads, s->isa);
	drive_model_open(&m, &d, g, s->arch, s->precision, s->kv, s->page, s->shuffle);
	for (uint32_t step = 0; me.past < N; step++) {
		uint32_t n = company ? company_add(part, seqs, step) : 0, mine = n / 2;
		uint32_t take = cut(me.past) < N - me.past ? cut(me.past) : N - me.past;

		memmove(part + mine + 1, part + mine, (n - mine) * sizeof *part);
		part[mine] = (struct drive_part){ &me, take, take, out + (size_t)me.past * 72 };
		drive_step(&m, part, n + 1);
	}
	drive_model_close(&m);
	drive_close(&d);
	tnp_make_destroy(g);
	free(seqs);
}

static void same(const char *what, const float *want, const float *got)
{
	for (uint32_t i = 0; i < N; i++)
		if (memcmp(want + (size_t)i * 72, got + (size_t)i * 72, 72 * sizeof *got))
			fail_msg("%s: row %u differs", what, i);
}

static void compare_all(struct setup s)
{
	float *want = calloc(N * 72, sizeof *want), *got = calloc(N * 72, sizeof *got);

	s.threads = "1";
	run(&s, cut_whole, false, want);
	s.threads = "2";
	run(&s, cut_whole, false, got);
	same("two threads", want, got);
	s.shuffle = 3;
	run(&s, cut_odd, false, got);
	same("odd chunks, shuffled pages", want, got);
	run(&s, cut_ones, false, got);
	same("decoding", want, got);
	s.threads = "1";
	run(&s, cut_nines, true, got);
	same("company", want, got);
	s.threads = "3";
	s.shuffle = 8;
	s.page = s.page == 32 ? 16 : 32;
	run(&s, cut_odd, true, got);
	same("company, three threads, other pages", want, got);
	s.page = 48;
	run(&s, cut_ones, true, got);
	same("company, decoding, pages of 48", want, got);
	free(want);
	free(got);
}

/* experts: 0: none */
static void all_with(const char *isa, uint32_t arch, uint32_t kv, uint32_t experts, uint32_t top_k)
{
	struct drive_arch a = archs[arch];

	a.experts = experts;
	a.top_k = top_k;
	tokens_fill();
	for (uint32_t p = TNP_FAST; p <= TNP_EXACT; p++)
		compare_all((struct setup){ &a, p, kv, 32, NULL, isa, 0 });
}

static void all_of(const char *isa, uint32_t arch, uint32_t kv) { all_with(isa, arch, kv, 0, 0); }

static void plain_f16(void **state) { (void)state, all_of(NULL, 0, TNP_F16); }
static void plain_q8(void **state) { (void)state, all_of(NULL, 0, TNP_Q8_0); }
static void windows_f16(void **state) { (void)state, all_of(NULL, 1, TNP_F16); }
static void windows_q8(void **state) { (void)state, all_of(NULL, 1, TNP_Q8_0); }
static void windows_f32(void **state) { (void)state, all_of(NULL, 1, TNP_F32); }
static void plain_q4(void **state) { (void)state, all_of(NULL, 0, TNP_Q4_0); }
static void baseline_f16(void **state) { (void)state, all_of("baseline", 0, TNP_F16); }
static void experts_few_of_many(void **state) { (void)state, all_with(NULL, 0, TNP_F16, 7, 3); }
/* every token has both: more rows than a group holds */
static void experts_all(void **state) { (void)state, all_with(NULL, 1, TNP_F16, 2, 2); }
static void experts_baseline(void **state) { (void)state, all_with("baseline", 1, TNP_F32, 5, 1); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_f16),
		cmocka_unit_test(plain_q8),
		cmocka_unit_test(windows_f16),
		cmocka_unit_test(windows_q8),
		cmocka_unit_test(windows_f32),
		cmocka_unit_test(plain_q4),
		cmocka_unit_test(baseline_f16),
		cmocka_unit_test(experts_few_of_many),
		cmocka_unit_test(experts_all),
		cmocka_unit_test(experts_baseline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
