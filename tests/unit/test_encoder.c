/* SPDX-License-Identifier: Apache-2.0
 * Encoders: what a model says about itself, rows beside bad sequences, and files that are damaged or ask for what is not
 * supported. That the rows are right, tests/cli/embed checks against double precision.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/model.h"
#include <math.h>

enum { WIDTH = 96, N_CTX = 64, TEXTS = 60, STEP = 512 };

static struct plugins *plugins;
static struct backend *backend;

static struct model_options options(const char *path)
{
	return (struct model_options){ .path = path, .backend = backend, .step_tokens = 16, .step_seqs = 8 };
}

static struct model *open_tiny(const char *name)
{
	struct model_options o = options(tiny_path(name));
	struct model *m = NULL;
	struct error e = { 0 };

	if (model_open(&o, &m, &e))
		fail_msg("%s", e.text);
	return m;
}

static void info_tells_the_kind(void **st)
{
	struct model *m = open_tiny("bert"), *n = open_tiny("nomic_bert");
	const struct model_info *i = model_info(m);

	(void)st;
	assert_true(i->is_encoder && model_info(n)->is_encoder);
	assert_int_equal(i->pooling, TNP_POOL_MEAN);
	assert_int_equal(model_info(n)->pooling, TNP_POOL_FIRST);
	assert_int_equal(i->n_groups, 0);
	assert_int_equal(i->kv_bytes, 0);
	assert_int_equal(i->n_ctx, N_CTX);
	assert_int_equal(i->step_tokens, N_CTX); /* the longest text goes into one step, whatever was asked */
	model_close(m);
	model_close(n);
}

static void run(struct model *m, struct step_seq *s, uint32_t n)
{
	struct error e = { 0 };

	if (model_step(m, s, n, &e))
		fail_msg("%s", e.text);
}

/* Good texts get the same bits beside texts that cannot run as alone, wherever their rows lie. */
static void bad_sequences_leave_the_others_alone(void **st)
{
	static float alone[2][WIDTH], row[8][WIDTH];
	struct model *m = open_tiny("bert");
	int32_t t[N_CTX + 1];

	(void)st;
	tiny_tokens(t, N_CTX + 1, 3);
	for (uint32_t i = 0; i < 2; i++) {
		struct step_seq s = { .tokens = t + 7 * i, .n_tokens = 9 + i, .n_out = 1, .out = alone[i] };

		run(m, &s, 1);
		assert_int_equal(s.rc, TENON_OK);
	}
	for (uint32_t k = 0; k < 4; k++) {
		int32_t foreign[] = { 5, k ? -1 : 100000 };
		struct step_seq bad[] = { { .tokens = foreign, .n_tokens = 2, .n_out = 1, .out = row[4] },
			{ .tokens = t, .n_tokens = 4, .past = 1, .n_out = 1, .out = row[4] },
			{ .tokens = t, .n_tokens = 0, .n_out = 1, .out = row[4] },
			{ .tokens = t, .n_tokens = 4, .n_out = 1 } };
		struct step_seq s[3] = { { .tokens = t, .n_tokens = 9, .n_out = 1, .out = row[2 * (k % 2)] },
			bad[k], { .tokens = t + 7, .n_tokens = 10, .n_out = 1, .out = row[1] } };

		memset(row, 0, sizeof row);
		run(m, s, 3);
		assert_int_equal(s[1].rc, TENON_E_INVALID);
		assert_int_equal(s[0].rc | s[2].rc, TENON_OK);
		assert_memory_equal(s[0].out, alone[0], sizeof alone[0]);
		assert_memory_equal(row[1], alone[1], sizeof alone[1]);
		for (uint32_t i = 0; i < WIDTH; i++)
			assert_true(row[4][i] == 0);
	}
	model_close(m);
}

/* Lengths of a step's texts: many that are alike, few, and some that are much longer. */
static uint32_t length(uint32_t kind, uint32_t i)
{
	return kind == 0 ? 1 + i * 7 % 15 : kind == 1 ? 30 + i % 2 : i % 8 ? 1 + i % 3 : N_CTX;
}

static void compare_with_alone(struct model *m, uint32_t kind, uint32_t n, uint32_t bad)
{
	static float row[TEXTS][WIDTH], alone[WIDTH];
	static int32_t t[TEXTS][N_CTX];
	struct step_seq s[TEXTS];
	int32_t foreign = -1;

	for (uint32_t i = 0; i < n; i++) {
		tiny_tokens(t[i], N_CTX, 9 * kind + i);
		s[i] = (struct step_seq){
			.tokens = t[i], .n_tokens = length(kind, i), .n_out = 1, .out = row[i]
		};
		if (i == bad)
			s[i] = (struct step_seq){
				.tokens = &foreign, .n_tokens = 1, .n_out = 1, .out = row[i]
			};
	}
	run(m, s, n);
	for (uint32_t i = 0; i < n; i++) {
		struct step_seq one = {
			.tokens = t[i], .n_tokens = length(kind, i), .n_out = 1, .out = alone
		};

		assert_int_equal(s[i].rc, i == bad ? TENON_E_INVALID : TENON_OK);
		if (i == bad)
			continue;
		run(m, &one, 1);
		assert_memory_equal(row[i], alone, model_info(m)->d_model * sizeof *alone);
	}
}

/* With more than one thread a step goes in groups of texts where they are even, else phase by phase. */
static void texts_together_as_alone(void **st)
{
	static const char *const name[] = { "bert", "nomic_bert" }, *const threads[] = { "1", "2", "3" };
	struct error e = { 0 };
	char dir[4096];

	(void)st;
	for (size_t k = 0; k < COUNT_OF(name) * COUNT_OF(threads); k++) {
		const char *dirs[] = { dir };
		struct plugin_option o = { "cpu", "threads", threads[k / COUNT_OF(name)] };
		struct plugins_config c = { .dirs = dirs, .n_dirs = 1, .options = &o, .n_options = 1 };
		struct model_options mo = options(tiny_path(name[k % COUNT_OF(name)]));
		struct plugins *p = NULL;
		struct backend *b = NULL;
		struct model *m = NULL;

		mo.step_tokens = STEP;
		mo.step_seqs = TEXTS;
		if (plugins_default_dir(dir, sizeof dir, &e) || plugins_open(&c, &p, &e) ||
			backend_open(p, "cpu", 0, &b, &e) || (mo.backend = b, model_open(&mo, &m, &e)))
			fail_msg("%s", e.text);
		compare_with_alone(m, 0, TEXTS, TEXTS);
		compare_with_alone(m, 0, TEXTS, 20);
		compare_with_alone(m, 1, 16, TEXTS);
		compare_with_alone(m, 1, 3, TEXTS);
		compare_with_alone(m, 2, 40, 0);
		model_close(m);
		backend_close(b);
		plugins_close(p);
	}
}

static void rows_have_unit_length_up_to_the_whole_context(void **st)
{
	static float row[8][WIDTH];
	struct model *m = open_tiny("bert");
	struct error e = { 0 };
	int32_t t[N_CTX + 1];

	(void)st;
	tiny_tokens(t, N_CTX + 1, 4);
	for (uint32_t n = 1; n <= N_CTX; n += 21) {
		struct step_seq s = { .tokens = t, .n_tokens = n, .n_out = 1, .out = row[0] };
		double sum = 0;

		run(m, &s, 1);
		assert_int_equal(s.rc, TENON_OK);
		for (uint32_t i = 0; i < WIDTH; i++)
			sum += (double)row[0][i] * row[0][i];
		assert_true(fabs(sum - 1) < 1e-5);
	}
	assert_int_equal(
		model_step(m,
			&(struct step_seq){ .tokens = t, .n_tokens = N_CTX + 1, .n_out = 1, .out = row[0] },
			1, &e),
		TENON_E_INVALID);
	model_close(m);
}

static int open_saved(struct tiny *f, struct error *e)
{
	struct model_options o = options(f->path);
	struct model *m = NULL;
	int rc;

	tiny_save(f);
	rc = model_open(&o, &m, e);
	model_close(m);
	return rc;
}

static void hostile_metadata(void **st)
{
	static const struct {
		const char *key;
		uint32_t value;
		int code;
		const char *word;
	} t[] = { { "bert.pooling_type", 0, TENON_E_UNSUPPORTED, "pooling_type" },
		{ "bert.pooling_type", 4, TENON_E_UNSUPPORTED, "ranking" },
		{ "bert.pooling_type", 5, TENON_E_FORMAT, "pooling_type" },
		{ "bert.pooling_type", 3, TENON_OK, NULL },
		{ "bert.attention.head_count", 5, TENON_E_FORMAT, "head_count" },
		{ "bert.context_length", 65, TENON_E_FORMAT, "position_embd.weight" },
		{ "bert.embedding_length", 48, TENON_E_FORMAT, "token_embd.weight" },
		{ "bert.feed_forward_length", 161, TENON_E_FORMAT, "ffn_" },
		{ "bert.block_count", 4, TENON_E_FORMAT, "blk.3" },
		{ "bert.attention.layer_norm_epsilon", 0x7fc00000, TENON_E_FORMAT, "layer_norm_epsilon" } };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct error e = { 0 };
		struct tiny f;
		int rc;

		tiny_load(&f, "bert");
		tiny_set_u32(&f, t[i].key, t[i].value);
		rc = open_saved(&f, &e);
		if (rc != t[i].code || (rc && !strstr(e.text, t[i].word)))
			fail_msg("%s = %u: %d '%s'", t[i].key, (unsigned)t[i].value, rc, e.text);
		tiny_free(&f);
	}
}

static void missing_tensors_are_named(void **st)
{
	static const char *const name[][2] = { { "position_embd.weight", "positiox_embd.weight" },
		{ "token_embd_norm.bias", "token_embd_norx.bias" },
		{ "blk.1.attn_k.bias", "blk.1.attn_x.bias" },
		{ "blk.2.ffn_down.weight", "blk.2.ffn_dowx.weight" },
		{ "blk.0.layer_output_norm.weight", "blk.0.layer_output_norx.weight" } };
	struct error e = { 0 };
	struct tiny f;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(name); i++) {
		tiny_load(&f, "bert");
		tiny_rename(&f, name[i][0], name[i][1]);
		if (open_saved(&f, &e) != TENON_E_FORMAT || !strstr(e.text, name[i][0]))
			fail_msg("%s: '%s'", name[i][0], e.text);
		tiny_free(&f);
	}
	tiny_load(&f, "bert"); /* a family without types of tokens */
	tiny_rename(&f, "token_types.weight", "token_typex.weight");
	assert_int_equal(open_saved(&f, &e), TENON_OK);
	tiny_free(&f);
	tiny_load(&f, "bert");
	tiny_behind(&f, "bert.attention.causal")[4] = 1;
	assert_int_equal(open_saved(&f, &e), TENON_E_UNSUPPORTED);
	assert_non_null(strstr(e.text, "causal"));
	tiny_free(&f);
}

static int open_all(void **st)
{
	struct error e = { 0 };

	(void)st;
	return tiny_plugins(&plugins) || backend_open(plugins, "cpu", 0, &backend, &e);
}

static int close_all(void **st)
{
	(void)st;
	backend_close(backend);
	plugins_close(plugins);
	return 0;
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(info_tells_the_kind),
		cmocka_unit_test(bad_sequences_leave_the_others_alone),
		cmocka_unit_test(texts_together_as_alone),
		cmocka_unit_test(rows_have_unit_length_up_to_the_whole_context),
		cmocka_unit_test(hostile_metadata),
		cmocka_unit_test(missing_tensors_are_named),
	};

	return cmocka_run_group_tests(t, open_all, close_all);
}
