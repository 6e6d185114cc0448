/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 3: whole made-up models, prefill and then token by token, against the reference; an encoder;
 * and one architecture that no real model has. A plugin that does not take a model is not wrong, but says so here.
 */
#include "tools/conform.h"
#include <stdlib.h>
#include <string.h>

#define TEXT 30u

/* ---- one model on one peer ---------------------------------------------------------------------------------------- */
static void tokens_make(const struct conform *c, const struct made_model *mm, int32_t *token, uint32_t n)
{
	uint64_t seed = c->seed + 99;

	for (uint32_t i = 0; i < n; i++)
		token[i] = (int32_t)(tnp_rand(&seed) % mm->n_vocab);
}

/* Rows of all tokens: the first 19 in one step, then one at a time. Encoders see the whole text at once. */
static void text_run(struct conform *c, struct peer *p, const struct tnp_graph *g,
	const struct run_limits *lim, const struct made_model *mm, const int32_t *token, float *out)
{
	struct tnp_error e = { .size = sizeof e };
	uint64_t width = run_width(g, g->out[0]);
	uint32_t page[TEXT], first = mm->encoder ? TEXT : 19;
	struct run_model m;
	tnp_rc rc = run_open(&m, p, g, lim, &e);

	if (rc)
		conform_fail(c, "open: %s: %s", conform_code(rc), e.text);
	for (uint32_t i = 0; i < TEXT; i++)
		page[i] = i;
	for (uint32_t at = 0, n = first; at < TEXT; at += n, n = 1) {
		struct run_seq s = {
			.token = token + at, .n = n, .past = at, .n_out = n, .out = { out + at * width }
		};

		s.n_page = (at + n + lim->page_tokens - 1) / lim->page_tokens;
		for (uint32_t k = 0; k < TNP_MAX_GROUPS; k++)
			s.page[k] = page;
		rc = run_batch(c, &m, &s, 1, &e);
		if (rc || s.rc)
			conform_fail(c, "token %u: %s: %s", at, conform_code(rc ? rc : s.rc), e.text);
	}
	run_close(&m);
}

/* True when the plugin takes the model with weights of this type. */
static bool try_type(struct conform *c, const struct made_model *mm, uint32_t type, uint32_t precision)
{
	struct tnp_make *m = tnp_make_create(c->seed + type);
	struct run_limits lim = conform_limits(c);
	int32_t token[TEXT];
	const struct tnp_graph *g;
	float *got, *want;
	uint64_t n;
	bool taken;

	if (m)
		mm->build(m, type);
	g = m ? tnp_make_graph(m) : NULL;
	if (!g || !run_taken(&c->ref, g))
		conform_fail(c, "plugin-conform made a graph that the reference does not take");
	taken = run_taken(&c->sut, g);
	if (taken) {
		n = (mm->encoder ? 1 : TEXT) * run_width(g, g->out[0]);
		got = calloc(n, sizeof *got);
		want = calloc(n, sizeof *want);
		if (!got || !want)
			conform_fail(c, "plugin-conform itself is out of memory");
		lim.precision = precision;
		tokens_make(c, mm, token, TEXT);
		text_run(c, &c->ref, g, &lim, mm, token, want);
		text_run(c, &c->sut, g, &lim, mm, token, got);
		conform_near(c, mm->encoder ? "vector" : "logits", got, want, n,
			3 * conform_tolerance(precision, lim.kv_type));
		free(got);
		free(want);
	}
	tnp_make_destroy(m);
	return taken;
}

static void check_model(struct conform *c, const char *name)
{
	static const uint32_t few[] = { TNP_F32, TNP_Q8_0, TNP_Q4_1, TNP_Q4_K, UINT32_MAX };
	const struct made_model *mm = made_model_find(name);
	const uint32_t *types = c->thorough ? conform_types : few;
	uint32_t taken = 0;

	conform_open(c);
	for (uint32_t i = 0; types[i] != UINT32_MAX; i++)
		for (uint32_t precision = TNP_FAST; precision <= TNP_EXACT; precision++) {
			conform_note(c, "model %s, weights %s, %s", name, conform_type_name(types[i]),
				precision == TNP_FAST ? "fast" : "exact");
			taken += try_type(c, mm, types[i], precision);
		}
	if (!taken)
		conform_skip(c, "does not take this model");
	conform_close(c);
}

static void check_plain(struct conform *c) { check_model(c, "plain"); }
static void check_fused(struct conform *c) { check_model(c, "fused"); }
static void check_windowed(struct conform *c) { check_model(c, "windowed"); }
static void check_experts(struct conform *c) { check_model(c, "experts"); }
static void check_encoder(struct conform *c) { check_model(c, "encoder"); }
static void check_parallel(struct conform *c) { check_model(c, "parallel"); }

/* ---- layer splits: a graph that starts and ends with rows ------------------------------------------------------------ */
static void split_build(struct tnp_make *m, uint32_t type)
{
	uint32_t x = tnp_make_rows(m, TNP_N_TOKENS, 64), h = tnp_make_rows(m, TNP_N_TOKENS, 64),
		 y = tnp_make_rows(m, TNP_N_TOKENS, 64);
	float one[64];

	for (int i = 0; i < 64; i++)
		one[i] = 1;
	tnp_make_in(m, x);
	tnp_make_node(
		m, TNP_OP_RMSNORM, TNP_LIST(x, tnp_make_weight(m, TNP_F32, one, 64, 0, 0)), TNP_LIST(h));
	tnp_make_float(m, TNP_A_EPS, 1e-5);
	tnp_make_node(
		m, TNP_OP_LINEAR, TNP_LIST(h, x, tnp_make_random(m, type, 0.125, 64, 64, 0)), TNP_LIST(y));
	tnp_make_out(m, h);
	tnp_make_out(m, y);
}

/* Two graph outputs of the same rows; the batch names no tokens. */
static void check_split(struct conform *c)
{
	struct tnp_make *m = tnp_make_create(c->seed);
	uint64_t seed = c->seed + 5;
	float in[9 * 64], got[2][9 * 64], want[2][9 * 64];
	struct tnp_error e = { .size = sizeof e };
	const struct tnp_graph *g;

	conform_open(c);
	if (m)
		split_build(m, TNP_F32);
	g = m ? tnp_make_graph(m) : NULL;
	if (!g || !run_taken(&c->sut, g))
		conform_skip(c, "does not take this graph");
	for (size_t i = 0; i < COUNT_OF(in); i++)
		in[i] = (float)tnp_rand_normal(&seed);
	for (int k = 0; k < 2; k++) {
		struct run_seq s = {
			.in = in, .n = 9, .n_out = 0, .out = { k ? got[0] : want[0], k ? got[1] : want[1] }
		};
		struct run_limits lim = conform_limits(c);
		struct run_arrays a;
		struct run_model rm;

		if (run_open(&rm, k ? &c->sut : &c->ref, g, &lim, &e))
			conform_fail(c, "open: %s", e.text);
		run_make(c, &rm, &s, 1, &a);
		a.b.token = NULL;
		if (run_call(&rm, &a, &e))
			conform_fail(c, "batch: %s", e.text);
		run_take(c, &rm, &s, 1, &a);
		if (s.rc)
			conform_fail(c, "the sequence fails: %s", e.text);
		run_free(&a);
		run_close(&rm);
	}
	conform_near(c, "first output", got[0], want[0], COUNT_OF(in), 1e-3);
	conform_near(c, "second output", got[1], want[1], COUNT_OF(in), 1e-3);
	tnp_make_destroy(m);
	conform_close(c);
}

/* Opening twice lets the plugin find what it stored the first time; the answer must not change. */
static void check_blobs(struct conform *c)
{
	const struct made_model *mm = made_model_find("plain");
	struct run_limits lim;
	int32_t token[TEXT];
	const struct tnp_graph *g;
	struct tnp_make *m;
	float *a, *b;
	uint64_t n;

	conform_open(c);
	m = made_model_for(c, mm, &g);
	if (!m)
		conform_skip(c, "takes no whole model");
	lim = conform_limits(c);
	n = TEXT * run_width(g, g->out[0]);
	a = calloc(n, sizeof *a);
	b = calloc(n, sizeof *b);
	if (!a || !b)
		conform_fail(c, "plugin-conform itself is out of memory");
	tokens_make(c, mm, token, TEXT);
	text_run(c, &c->sut, g, &lim, mm, token, a);
	text_run(c, &c->sut, g, &lim, mm, token, b);
	if (memcmp(a, b, n * sizeof *a))
		conform_near(
			c, "logits of a second opening", b, a, n, conform_tolerance(TNP_EXACT, lim.kv_type));
	free(a);
	free(b);
	tnp_make_destroy(m);
	conform_close(c);
}

const struct conform_check conform_l3[] = {
	{ 3, "models.plain", check_plain },
	{ 3, "models.fused", check_fused },
	{ 3, "models.windowed", check_windowed },
	{ 3, "models.experts", check_experts },
	{ 3, "models.encoder", check_encoder },
	{ 3, "models.parallel", check_parallel },
	{ 3, "models.split", check_split },
	{ 3, "models.blobs", check_blobs },
	{ 3, NULL, NULL },
};
