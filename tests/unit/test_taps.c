/* SPDX-License-Identifier: Apache-2.0
 * Activations as further outputs (MODEL_TAPS_*): the same numbers on both backends, the same bits however the work is cut,
 * logits as without them, every matrix once; passes on or off.
 */
#include "base/base.h"
#include "engine/model.h"
#include "tests/unit/tiny.h"
#include <math.h>

enum { N = 48, STEP = 32, PAGE = 16, PAGES = 4 };

static struct plugins *plugins;

struct opened {
	struct backend *b;
	struct model *m;
};

static struct opened open_with(
	const char *file, const char *backend, enum model_taps taps, uint32_t kv_type, const char *passes)
{
	struct model_options o = { .path = tiny_path(file),
		.precision = TNP_EXACT,
		.kv_type = kv_type,
		.kv_f32 = kv_type == TNP_F32,
		.n_ctx = 64,
		.step_tokens = STEP,
		.step_seqs = 1,
		.step_out = STEP,
		.page_tokens = PAGE,
		.n_sessions = 1,
		.taps = taps,
		.passes = passes };
	struct opened x = { NULL, NULL };
	struct error e = { 0 };

	if (backend_open(plugins, backend, 0, &x.b, &e))
		fail_msg("%s", e.text);
	o.backend = x.b;
	if (model_open(&o, &x.m, &e))
		fail_msg("%s", e.text);
	return x;
}

static void close_all(struct opened *x)
{
	model_close(x->m);
	backend_close(x->b);
}

/* All tokens in chunks; the taps' rows one behind the other in rows[tap]. */
static void run(struct opened *x, uint32_t chunk, float *logits, float **rows)
{
	static const uint32_t list[PAGES] = { 0, 1, 2, 3 };
	const struct model_info *info = model_info(x->m);
	int32_t tokens[N];
	struct error e = { 0 };

	tiny_tokens(tokens, N, 5);
	for (uint32_t past = 0, n; past < N; past += n) {
		n = MIN_OF(chunk, N - past);
		struct step_seq s = { .tokens = tokens + past,
			.n_tokens = n,
			.past = past,
			.n_out = n,
			.out = logits + (size_t)past * info->n_vocab };

		for (uint32_t g = 0; g < info->n_groups; g++) {
			s.pages[g] = list;
			s.n_pages[g] = (past + n + PAGE - 1) / PAGE;
		}
		if (model_step(x->m, &s, 1, &e) || s.rc)
			fail_msg("step: %d %s", s.rc, e.text);
		for (size_t i = 0; i < model_n_taps(x->m); i++) {
			const struct model_tap *t = model_tap_at(x->m, i);

			assert_int_equal(t->n_rows, n);
			memcpy(rows[i] + (size_t)past * t->width, t->rows,
				(size_t)n * t->width * sizeof(float));
		}
	}
}

static float **rows_make(const struct opened *x)
{
	float **r = calloc(model_n_taps(x->m) + 1, sizeof *r);

	for (size_t i = 0; i < model_n_taps(x->m); i++)
		r[i] = calloc((size_t)N * model_tap_at(x->m, i)->width, sizeof **r);
	return r;
}

static void rows_free(const struct opened *x, float **r)
{
	for (size_t i = 0; i < model_n_taps(x->m); i++)
		free(r[i]);
	free(r);
}

static double relative(const float *a, const float *b, size_t n)
{
	double s = 0, e = 0;

	for (size_t i = 0; i < n; i++) {
		s += (double)a[i] * a[i];
		e += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
	}
	return s > 0 ? sqrt(e / s) : e;
}

static void compare(const char *file, enum model_taps kind, const char *passes)
{
	struct opened a = open_with(file, "ref", kind, TNP_F32, "-all"),
		      b = open_with(file, "cpu", kind, TNP_F32, passes);
	size_t n_logits = (size_t)N * model_info(a.m)->n_vocab;
	float **x = rows_make(&a), **y = rows_make(&b), **z = rows_make(&b);
	float *l = calloc(3 * n_logits, sizeof *l);

	assert_int_equal(model_n_taps(a.m), model_n_taps(b.m));
	run(&a, STEP, l, x);
	run(&b, STEP, l + n_logits, y);
	run(&b, 5, l + 2 * n_logits, z);
	assert_memory_equal(l + n_logits, l + 2 * n_logits, n_logits * sizeof *l);
	for (size_t i = 0; i < model_n_taps(a.m); i++) {
		const struct model_tap *t = model_tap_at(a.m, i);
		size_t n = (size_t)N * t->width;

		if (relative(x[i], y[i], n) > 1e-3)
			fail_msg("%s, tap %zu (layer %d, %s): relative error %g", file, i, t->layer, t->word,
				relative(x[i], y[i], n));
		assert_memory_equal(y[i], z[i], n * sizeof **y);
	}
	rows_free(&a, x);
	rows_free(&b, y);
	rows_free(&b, z);
	free(l);
	close_all(&a);
	close_all(&b);
}

static void backends_agree(void **s)
{
	static const char *const file[] = { "f32", "gemma3", "qwen3", "q4_1" };

	(void)s;
	for (size_t i = 0; i < COUNT_OF(file); i++) {
		compare(file[i], MODEL_TAPS_LAYERS, NULL);
		compare(file[i], MODEL_TAPS_LINEAR, NULL);
	}
	compare("f32", MODEL_TAPS_LAYERS, "-all");
}

static void logits_stay(void **s)
{
	struct opened a = open_with("f32", "cpu", MODEL_TAPS_NONE, TNP_F16, NULL),
		      b = open_with("f32", "cpu", MODEL_TAPS_LINEAR, TNP_F16, NULL);
	size_t n = (size_t)N * model_info(a.m)->n_vocab;
	float *l = calloc(2 * n, sizeof *l), **none = rows_make(&a), **rows = rows_make(&b);

	(void)s;
	assert_int_equal(model_n_taps(a.m), 0);
	run(&a, STEP, l, none);
	run(&b, STEP, l + n, rows);
	assert_memory_equal(l, l + n, n * sizeof *l);
	assert_true(model_ledger(b.m)->total > model_ledger(a.m)->total);
	rows_free(&a, none);
	rows_free(&b, rows);
	free(l);
	close_all(&a);
	close_all(&b);
}

/* Each part of each layer in order; the last part's rows are those asked for. */
static void parts(void **s)
{
	struct opened x = open_with("gemma3", "cpu", MODEL_TAPS_LAYERS, TNP_F16, NULL);
	size_t n = model_n_taps(x.m);

	(void)s;
	assert_int_equal(n, 1 + 2 * model_info(x.m)->n_layers);
	assert_int_equal(model_tap_at(x.m, 0)->layer, -1);
	for (size_t i = 1; i < n; i++) {
		const struct model_tap *t = model_tap_at(x.m, i);

		assert_int_equal(t->layer, (i - 1) / 2);
		assert_string_equal(t->word, i % 2 ? "attn" : "ffn");
		assert_int_equal(t->width, model_info(x.m)->d_model);
		assert_int_equal(t->chosen, i + 2 >= n);
	}
	close_all(&x);
}

static void every_matrix_once(void **s)
{
	struct opened x = open_with("f32", "cpu", MODEL_TAPS_LINEAR, TNP_F16, NULL);
	const struct gguf *g = model_file(x.m);

	(void)s;
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *w = gguf_tensor_at(g, i);
		uint32_t n = 0;

		for (size_t k = 0; k < model_n_taps(x.m); k++)
			for (uint32_t j = 0; j < model_tap_at(x.m, k)->n_weights; j++)
				if (model_tap_at(x.m, k)->weight[j] == w) {
					assert_int_equal(model_tap_at(x.m, k)->width, w->dim[1]);
					n++;
				}
		assert_int_equal(n, w->rank == 2);
	}
	close_all(&x);
}

static int setup(void **s)
{
	(void)s;
	return tiny_plugins(&plugins);
}

static int teardown(void **s)
{
	(void)s;
	plugins_close(plugins);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(backends_agree),
		cmocka_unit_test(logits_stay),
		cmocka_unit_test(parts),
		cmocka_unit_test(every_matrix_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
