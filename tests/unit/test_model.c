/* SPDX-License-Identifier: Apache-2.0
 * Opening tiny models and running steps: the same bits however the work is cut, bad sequences beside good ones,
 * hostile files, the ledger.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/model.h"

enum { N_TOKENS = 90, STEP_TOKENS = 128, STEP_SEQS = 8, STEP_OUT = 100 };

static struct plugins *plugins;

static struct backend *open_backend(const char *name)
{
	struct backend *b = NULL;
	struct error e = { 0 };

	if (backend_open(plugins, name, 0, &b, &e))
		fail_msg("%s", e.text);
	return b;
}

static struct model_options options(struct backend *b, const char *path, uint32_t precision)
{
	return (struct model_options){ .path = path,
		.backend = b,
		.precision = precision,
		.n_ctx = 256,
		.step_tokens = STEP_TOKENS,
		.step_seqs = STEP_SEQS,
		.step_out = STEP_OUT,
		.page_tokens = 16 };
}

static struct model *open_tiny(struct backend *b, const char *name, uint32_t precision)
{
	struct model_options o = options(b, tiny_path(name), precision);
	struct model *m = NULL;
	struct error e = { 0 };

	if (model_open(&o, &m, &e))
		fail_msg("%s", e.text);
	return m;
}

/* Pages first, first + step, ... */
static void make_pages(uint32_t *p, uint32_t n, uint32_t first, uint32_t step)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = first + i * step;
}

/* All rows of one sequence in steps of `chunk`. */
static void run_chunks(struct model *m, const int32_t *tokens, uint32_t n, uint32_t chunk,
	const uint32_t *pages, float *rows)
{
	uint32_t width = model_info(m)->n_vocab;
	struct error e = { 0 };

	for (uint32_t past = 0; past < n; past += chunk) {
		uint32_t len = MIN_OF(chunk, n - past);
		struct step_seq s = { .tokens = tokens + past,
			.n_tokens = len,
			.past = past,
			.n_out = len,
			.out = rows + (size_t)past * width,
			.pages = { pages },
			.n_pages = { (past + len + 15) / 16 } };

		if (model_step(m, &s, 1, &e))
			fail_msg("%s", e.text);
		assert_int_equal(s.rc, TENON_OK);
	}
}

static float *rows_for(struct model *m, uint32_t n)
{
	return calloc((size_t)n * model_info(m)->n_vocab, sizeof(float));
}

static void chunks_and_pages_change_nothing(const char *backend, const char *model, uint32_t precision)
{
	static const uint32_t chunk[] = { 1, 7, 16, 33, 90 };
	struct backend *b = open_backend(backend);
	struct model *m = open_tiny(b, model, precision);
	size_t bytes = (size_t)N_TOKENS * model_info(m)->n_vocab * sizeof(float);
	float *want = rows_for(m, N_TOKENS), *got = rows_for(m, N_TOKENS);
	int32_t tokens[N_TOKENS];
	uint32_t pages[6];

	tiny_tokens(tokens, N_TOKENS, 1);
	make_pages(pages, 6, 0, 1);
	run_chunks(m, tokens, N_TOKENS, 64, pages, want);
	for (size_t i = 0; i < COUNT_OF(chunk); i++) {
		make_pages(pages, 6, 39 - (uint32_t)i, (uint32_t)-7);
		run_chunks(m, tokens, N_TOKENS, chunk[i], pages, got);
		if (memcmp(want, got, bytes))
			fail_msg("%s, %s: other bits with steps of %u", backend, model, chunk[i]);
	}
	free(want);
	free(got);
	model_close(m);
	backend_close(b);
}

static void same_bits_however_cut(void **st)
{
	(void)st;
	chunks_and_pages_change_nothing("ref", "q4_1", TNP_EXACT);
	chunks_and_pages_change_nothing("cpu", "q4_1", TNP_EXACT);
	chunks_and_pages_change_nothing("cpu", "q4_1", TNP_FAST);
	chunks_and_pages_change_nothing("cpu", "q8_0", TNP_FAST);
	chunks_and_pages_change_nothing("cpu", "f16", TNP_FAST);
	chunks_and_pages_change_nothing("cpu", "scaled", TNP_FAST);
	chunks_and_pages_change_nothing("ref", "scaled", TNP_EXACT);
}

/* Positions divided by two, and all frequencies divided by two; without either the answer is another one. */
static void rope_scaling_and_factors_meet(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m[2] = { open_tiny(b, "scaled", TNP_EXACT), open_tiny(b, "factors", TNP_EXACT) };
	size_t n = (size_t)N_TOKENS * model_info(m[0])->n_vocab;
	float *scaled = rows_for(m[0], N_TOKENS), *factors = rows_for(m[1], N_TOKENS), *plain;
	int32_t tokens[N_TOKENS];
	uint32_t pages[6];
	struct model_options o;
	struct error e = { 0 };
	struct tiny f;

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 8);
	make_pages(pages, 6, 0, 1);
	run_chunks(m[0], tokens, N_TOKENS, 32, pages, scaled);
	run_chunks(m[1], tokens, N_TOKENS, 32, pages, factors);
	assert_memory_equal(scaled, factors, n * sizeof(float));
	assert_int_equal(model_info(m[0])->window[0], 24);
	model_close(m[1]);
	tiny_load(&f, "scaled");
	tiny_set_u32(&f, "llama.rope.scaling.factor", 0x3f800000); /* 1.0 */
	tiny_save(&f);
	o = options(b, f.path, TNP_EXACT);
	assert_int_equal(model_open(&o, &m[1], &e), TENON_OK);
	plain = rows_for(m[1], N_TOKENS);
	run_chunks(m[1], tokens, N_TOKENS, 32, pages, plain);
	assert_true(tiny_error(plain, scaled, n) > 0.01);
	tiny_free(&f);
	free(scaled);
	free(factors);
	free(plain);
	model_close(m[0]);
	model_close(m[1]);
	backend_close(b);
}

/* One batch of prefill chunks and decodes of 8 sequences, rows in one piece or not, against each alone. */
static void same_bits_in_company(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = open_tiny(b, "q4_1", TNP_FAST);
	uint32_t width = model_info(m)->n_vocab, pages[STEP_SEQS][6], past[STEP_SEQS], len[STEP_SEQS];
	int32_t tokens[STEP_SEQS][N_TOKENS];
	float *alone = rows_for(m, N_TOKENS), *mixed = rows_for(m, STEP_SEQS),
	      *spread = rows_for(m, 2 * STEP_SEQS);
	struct step_seq s[STEP_SEQS];
	struct error e = { 0 };

	(void)st;
	for (uint32_t turn = 0; turn < 2; turn++) {
		for (uint32_t i = 0; i < STEP_SEQS; i++) {
			tiny_tokens(tokens[i], N_TOKENS, 10 + i);
			make_pages(pages[i], 6, i, STEP_SEQS);
			past[i] = i % 2 ? 40 + i : 16 * (i / 4);
			len[i] = i % 2 ? 1 : 9 + i;
			run_chunks(m, tokens[i], past[i] ? past[i] : 1, 16, pages[i], alone);
			s[i] = (struct step_seq){ .tokens = tokens[i] + past[i],
				.n_tokens = len[i],
				.past = past[i],
				.n_out = 1,
				.out = turn ? spread + (size_t)(2 * i) * width : mixed + (size_t)i * width,
				.pages = { pages[i] },
				.n_pages = { 6 } };
		}
		assert_int_equal(model_step(m, s, STEP_SEQS, &e), TENON_OK);
		for (uint32_t i = 0; i < STEP_SEQS; i++) {
			assert_int_equal(s[i].rc, TENON_OK);
			run_chunks(m, tokens[i], past[i] + len[i], 90, pages[i], alone);
			assert_memory_equal(s[i].out, alone + (size_t)(past[i] + len[i] - 1) * width,
				width * sizeof(float));
		}
	}
	free(alone);
	free(mixed);
	free(spread);
	model_close(m);
	backend_close(b);
}

static void cpu_agrees_with_ref(void **st)
{
	static const char *const model[] = { "q4_1", "q4_0", "q8_0", "f16", "f32", "scaled" };
	struct backend *ref = open_backend("ref"), *cpu = open_backend("cpu");
	int32_t tokens[N_TOKENS];
	uint32_t pages[6];

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 3);
	make_pages(pages, 6, 3, 2);
	for (size_t i = 0; i < COUNT_OF(model); i++) {
		struct model *r = open_tiny(ref, model[i], TNP_EXACT);
		struct model *c[2] = { open_tiny(cpu, model[i], TNP_EXACT),
			open_tiny(cpu, model[i], TNP_FAST) };
		float *want = rows_for(r, N_TOKENS), *got = rows_for(r, N_TOKENS);
		size_t n = (size_t)N_TOKENS * model_info(r)->n_vocab;

		run_chunks(r, tokens, N_TOKENS, 90, pages, want);
		for (int fast = 0; fast < 2; fast++) {
			double limit = fast ? 0.08 : 0.003, err;

			run_chunks(c[fast], tokens, N_TOKENS, 31, pages, got);
			err = tiny_error(got, want, n);
			if (!(err < limit))
				fail_msg("%s, %s: error %g", model[i], fast ? "fast" : "exact", err);
			model_close(c[fast]);
		}
		free(want);
		free(got);
		model_close(r);
	}
	backend_close(ref);
	backend_close(cpu);
}

static void info_is_the_files(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = open_tiny(b, "q4_1", TNP_FAST);
	const struct model_info *i = model_info(m);
	struct tokens t = { 0 };
	struct error e = { 0 };

	(void)st;
	assert_string_equal(i->arch, "llama");
	assert_string_equal(i->name, "tiny");
	assert_true(i->n_vocab == 512 && i->n_layers == 3 && i->d_model == 128 && i->n_heads == 4 &&
		i->n_kv_heads == 2);
	assert_true(i->head_dim == 32 && i->n_ctx_train == 2048 && i->n_ctx == 256 && i->kv_type == TNP_F16);
	assert_int_equal(i->n_groups, 1);
	assert_int_equal(i->n_pages[0], 256); /* 4096 tokens in pages of 16 */
	assert_int_equal(i->kv_bytes, i->page_bytes[0] * 256);
	assert_true(
		i->page_bytes[0] >= 3 * 2 * 2 * 16 * 32 * 2); /* layers, K and V, heads, tokens, dim, bytes */
	assert_true(i->n_params > 400000);
	assert_int_equal(model_check_file(m, &e), TENON_OK);
	assert_int_equal(model_tokens_from_text(m, "The sky is blue", 15, &t, &e), TENON_OK);
	assert_true(t.n > 3);
	tokens_finish(&t);
	model_close(m);
	backend_close(b);
}

static void bad_sequences_leave_the_others_alone(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = open_tiny(b, "q4_1", TNP_FAST);
	uint32_t width = model_info(m)->n_vocab, pages[6], far_pages[6] = { 0, 1, 2, 999999, 4, 5 };
	int32_t good[N_TOKENS], bad[N_TOKENS], low[N_TOKENS];
	float *rows = rows_for(m, 6), *want = rows_for(m, N_TOKENS);
	struct error e = { 0 };

	(void)st;
	tiny_tokens(good, N_TOKENS, 5);
	memcpy(bad, good, sizeof bad);
	memcpy(low, good, sizeof low);
	bad[3] = 512;
	low[3] = -1;
	make_pages(pages, 6, 50, 1);
	struct step_seq s[] = {
		{ .tokens = bad,
			.n_tokens = 10,
			.n_out = 1,
			.out = rows,
			.pages = { far_pages },
			.n_pages = { 1 } },
		{ .tokens = good,
			.n_tokens = 10,
			.n_out = 1,
			.out = rows + width,
			.pages = { pages },
			.n_pages = { 1 } },
		{ .tokens = low,
			.n_tokens = 10,
			.n_out = 1,
			.out = rows,
			.pages = { far_pages },
			.n_pages = { 1 } },
		{ .tokens = good,
			.n_tokens = 30,
			.n_out = 1,
			.out = rows,
			.pages = { far_pages },
			.n_pages = { 1 } },
		{ .tokens = good,
			.n_tokens = 1,
			.past = 63,
			.n_out = 1,
			.out = rows,
			.pages = { far_pages },
			.n_pages = { 6 } },
		{ .tokens = good,
			.n_tokens = 1,
			.past = 256,
			.n_out = 1,
			.out = rows,
			.pages = { far_pages },
			.n_pages = { 20 } },
	};
	assert_int_equal(model_step(m, s, COUNT_OF(s), &e), TENON_OK);
	for (size_t i = 0; i < COUNT_OF(s); i++)
		assert_int_equal(s[i].rc, i == 1 ? TENON_OK : TENON_E_INVALID);
	run_chunks(m, good, 10, 10, pages, want);
	assert_memory_equal(rows + width, want + (size_t)9 * width, width * sizeof(float));
	s[1].n_tokens = 0;
	assert_int_equal(model_step(m, s + 1, 1, &e), TENON_OK);
	assert_int_equal(s[1].rc, TENON_E_INVALID);
	free(rows);
	free(want);
	model_close(m);
	backend_close(b);
}

static void limits_of_a_step_are_kept(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = open_tiny(b, "q4_1", TNP_FAST);
	int32_t tokens[STEP_TOKENS + 1] = { 0 };
	uint32_t pages[16];
	struct step_seq s[STEP_SEQS + 1] = { { 0 } };
	struct error e = { 0 };

	(void)st;
	make_pages(pages, 16, 0, 1);
	for (size_t i = 0; i < COUNT_OF(s); i++)
		s[i] = (struct step_seq){
			.tokens = tokens, .n_tokens = 1, .pages = { pages }, .n_pages = { 16 }
		};
	assert_int_equal(model_step(m, s, 0, &e), TENON_E_INVALID);
	assert_int_equal(model_step(m, s, STEP_SEQS + 1, &e), TENON_E_INVALID);
	s[0].n_tokens = STEP_TOKENS + 1;
	assert_int_equal(model_step(m, s, 1, &e), TENON_E_INVALID);
	s[0].n_tokens = STEP_TOKENS;
	s[0].n_out = STEP_OUT + 1;
	assert_int_equal(model_step(m, s, 1, &e), TENON_E_INVALID);
	s[0].n_out = 0;
	assert_int_equal(model_step(m, s, 1, &e), TENON_OK);
	assert_int_equal(s[0].rc, TENON_OK);
	assert_int_equal(model_kv_copy(m, 0, 1, 2, 16, &e), TENON_OK);
	assert_int_equal(model_kv_copy(m, 0, 1, 1, 16, &e), TENON_E_INVALID);
	assert_int_equal(model_kv_copy(m, 1, 1, 2, 16, &e), TENON_E_INVALID);
	assert_int_equal(model_kv_copy(m, 0, 1, 256, 16, &e), TENON_E_INVALID);
	assert_int_equal(model_kv_copy(m, 0, 1, 2, 17, &e), TENON_E_INVALID);
	model_close(m);
	backend_close(b);
}

static void steps_do_not_allocate(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = open_tiny(b, "q4_1", TNP_FAST);
	float *rows = rows_for(m, N_TOKENS);
	int32_t tokens[N_TOKENS];
	uint32_t pages[6];
	uint64_t before;

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 5);
	make_pages(pages, 6, 0, 1);
	before = mem_n_allocs();
	run_chunks(m, tokens, N_TOKENS, 7, pages, rows);
	assert_int_equal(mem_n_allocs(), before);
	free(rows);
	model_close(m);
	backend_close(b);
}

static uint64_t total(const struct model_info *i)
{
	return i->weights_mapped_bytes + i->weights_own_bytes + i->workspace_bytes + i->open_peak_bytes +
		i->kv_bytes;
}

/* The context that a refusal names fits into the same limit; a page more does not. */
static void ledger_refuses_and_names_what_fits(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model_options o;
	struct model *m = NULL;
	struct error e = { 0 };
	uint64_t engine = mem_area_bytes(MEM_ENGINE);
	struct tiny f;
	const char *most;
	unsigned fits = 0;

	(void)st;
	tiny_load(&f, "q4_1");
	tiny_set_u32(&f, "llama.context_length", 100000);
	tiny_save(&f);
	o = options(b, f.path, TNP_FAST);
	o.n_ctx = 65536;
	o.measure_only = true;
	assert_int_equal(model_open(&o, &m, &e), TENON_OK);
	assert_int_equal(model_info(m)->n_pages[0], 4096);
	o.memory_limit = total(model_info(m)) * 2 / 3;
	assert_int_equal(model_step(m, &(struct step_seq){ 0 }, 1, &e), TENON_E_INVALID);
	model_close(m);
	o.measure_only = false;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_NOMEM);
	assert_int_equal(mem_area_bytes(MEM_ENGINE), engine);
	most = strstr(e.text, "at most ");
	assert_non_null(most);
	assert_int_equal(sscanf(most, "at most %u tokens fit", &fits), 1);
	assert_true(fits > 1000 && fits < 65536);
	o.n_ctx = fits;
	assert_int_equal(model_open(&o, &m, &e), TENON_OK);
	assert_true(total(model_info(m)) <= o.memory_limit);
	model_close(m);
	o.n_ctx = fits + 16;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_NOMEM);
	o.memory_limit = 1000;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_NOMEM);
	assert_non_null(strstr(e.text, "no context is short enough"));
	tiny_free(&f);
	backend_close(b);
}

static void hostile_metadata(void **st)
{
	static const struct {
		const char *key;
		uint32_t value;
		int code;
		const char *want;
	} t[] = {
		{ "llama.block_count", 0, TENON_E_FORMAT, "llama.block_count: is 0" },
		{ "llama.block_count", 4, TENON_E_FORMAT, "tensor 'blk.3.attn_norm.weight': is missing" },
		{ "llama.block_count", 0xffffffff, TENON_E_FORMAT, "must be 1 to 1024" },
		{ "llama.embedding_length", 0, TENON_E_FORMAT, "llama.embedding_length: is 0" },
		{ "llama.embedding_length", 64, TENON_E_FORMAT, "32 must be even and at most the head's 16" },
		{ "llama.embedding_length", 256, TENON_E_FORMAT,
			"tensor 'token_embd.weight': has shape [512, 128]" },
		{ "llama.embedding_length", 0x7fffffff, TENON_E_FORMAT, "llama.embedding_length" },
		{ "llama.feed_forward_length", 255, TENON_E_FORMAT,
			"tensor 'blk.0.ffn_gate.weight': has shape [256, 128]" },
		{ "llama.attention.head_count", 0, TENON_E_FORMAT, "head_count: is 0" },
		{ "llama.attention.head_count", 3, TENON_E_FORMAT, "3 heads cannot share 2 KV heads" },
		{ "llama.attention.head_count", 8, TENON_E_FORMAT,
			"rope.dimension_count: 32 must be even and at most the head's 16" },
		{ "llama.attention.head_count_kv", 0, TENON_E_FORMAT, "head_count_kv: is 0" },
		{ "llama.attention.head_count_kv", 4, TENON_E_FORMAT,
			"tensor 'blk.0.attn_k.weight': has shape [64, 128]" },
		{ "llama.attention.layer_norm_rms_epsilon", 0x7fc00000, TENON_E_FORMAT,
			"layer_norm_rms_epsilon" },
		{ "llama.attention.layer_norm_rms_epsilon", 0xbf800000, TENON_E_FORMAT,
			"layer_norm_rms_epsilon" },
		{ "llama.rope.dimension_count", 31, TENON_E_FORMAT, "rope.dimension_count: 31 must be even" },
		{ "llama.rope.dimension_count", 34, TENON_E_FORMAT, "at most the head's 32" },
		{ "llama.rope.freq_base", 0, TENON_E_FORMAT, "rope.freq_base" },
		{ "llama.rope.scaling.factor", 0, TENON_E_FORMAT, "rope.scaling.factor: is 0" },
		{ "llama.rope.scaling.factor", 0x7f800000, TENON_E_FORMAT, "rope.scaling.factor" },
		{ "llama.context_length", 0, TENON_E_FORMAT, "context_length: is 0" },
		{ "llama.context_length", 255, TENON_E_TOO_LONG,
			"a context of 256 tokens; it was made for 255" },
	};
	struct backend *b = open_backend("cpu");

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct tiny f;
		struct model_options o;
		struct model *m = NULL;
		struct error e = { 0 };

		tiny_load(&f, strstr(t[i].key, "scaling") ? "scaled" : "q4_1");
		tiny_set_u32(&f, t[i].key, t[i].value);
		tiny_save(&f);
		o = options(b, f.path, TNP_FAST);
		assert_int_equal(model_open(&o, &m, &e), t[i].code);
		if (!strstr(e.text, t[i].want))
			fail_msg("%s = %u: '%s', want '%s'", t[i].key, t[i].value, e.text, t[i].want);
		assert_null(m);
		tiny_free(&f);
	}
	backend_close(b);
}

static void missing_and_unknown_things(void **st)
{
	static const struct {
		const char *from, *to;
		int code;
		const char *want;
	} t[] = {
		{ "general.architecture", "general.architectura", TENON_E_NOT_FOUND, "general.architecture" },
		{ "llama", "lamas", TENON_E_UNSUPPORTED,
			"architecture 'lamas': not supported; supported: llama" },
		{ "llama.block_count", "llama.block_kount", TENON_E_NOT_FOUND, "llama.block_count" },
		{ "llama.vocab_size", "llama.expert_cnt", TENON_OK, "" },
		{ "token_embd.weight", "token_embx.weight", TENON_E_FORMAT,
			"tensor 'token_embd.weight': is missing" },
		{ "blk.1.ffn_up.weight", "blk.1.ffn_ub.weight", TENON_E_FORMAT,
			"tensor 'blk.1.ffn_up.weight': is missing" },
		{ "output_norm.weight", "output_nurm.weight", TENON_E_FORMAT,
			"tensor 'output_norm.weight': is missing" },
		{ "linear", "linaer", TENON_E_UNSUPPORTED, "rope.scaling.type: 'linaer' is not supported" },
		{ "blk.1.attn_k.bias", "blk.1.attn_k.bios", TENON_E_FORMAT,
			"layer 1: only some of attn_q.bias" },
		{ "blk.0.ffn_up.bias", "blk.0.ffn_ub.bias", TENON_E_FORMAT,
			"layer 0: only one of ffn_gate.bias" },
		{ "tokenizer.ggml.model", "tokenizer.ggml.nodel", TENON_E_NOT_FOUND, "tokenizer.ggml.model" },
	};
	struct backend *b = open_backend("cpu");

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct tiny f;
		struct model_options o;
		struct model *m = NULL;
		struct error e = { 0 };

		tiny_load(&f, "scaled");
		memcpy(tiny_behind(&f, t[i].from) - strlen(t[i].from), t[i].to, strlen(t[i].from));
		tiny_save(&f);
		o = options(b, f.path, TNP_FAST);
		if (model_open(&o, &m, &e) != t[i].code)
			fail_msg("%s -> %s: %d '%s'", t[i].from, t[i].to, e.code, e.text);
		if (!strstr(e.text, t[i].want))
			fail_msg("%s: '%s', want '%s'", t[i].from, e.text, t[i].want);
		model_close(m);
		tiny_free(&f);
	}
	backend_close(b);
}

static void rotary_factors_by_length_are_refused(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = NULL;
	struct error e = { 0 };
	struct model_options o;
	struct tiny f;

	(void)st;
	tiny_load(&f, "phi3");
	tiny_rename(&f, "blk.0.attn_output.weight", "rope_factors_long.weight");
	tiny_save(&f);
	o = options(b, f.path, TNP_FAST);
	assert_int_equal(model_open(&o, &m, &e), TENON_E_UNSUPPORTED);
	assert_non_null(strstr(e.text, "rope_factors_long.weight"));
	tiny_free(&f);
	backend_close(b);
}

static void wrong_options(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model *m = NULL;
	struct error e = { 0 };
	struct model_options o = options(b, tiny_path("q4_1"), TNP_FAST);

	(void)st;
	o.n_ctx = 4096;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_TOO_LONG);
	o = options(b, tiny_path("q4_1"), TNP_FAST);
	o.page_tokens = 24;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_INVALID);
	o.page_tokens = 1024;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_UNSUPPORTED);
	o.page_tokens = 16;
	o.kv_type = TNP_IQ4_NL;
	assert_int_equal(model_open(&o, &m, &e), TENON_E_UNSUPPORTED);
	assert_non_null(strstr(e.text, "IQ4_NL"));
	o = options(b, "/nonexistent.gguf", TNP_FAST);
	assert_true(model_open(&o, &m, &e) < 0);
	assert_null(m);
	backend_close(b);
}

static void a_changed_file_is_noticed(void **st)
{
	struct backend *b = open_backend("cpu");
	struct tiny f;
	struct model_options o;
	struct model *m = NULL;
	struct error e = { 0 };
	FILE *file;

	(void)st;
	tiny_load(&f, "q4_1");
	tiny_save(&f);
	o = options(b, f.path, TNP_FAST);
	assert_int_equal(model_open(&o, &m, &e), TENON_OK);
	assert_int_equal(model_check_file(m, &e), TENON_OK);
	file = fopen(f.path, "ae");
	assert_int_equal(fputc(0, file), 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(model_check_file(m, &e), TENON_E_FORMAT);
	model_close(m);
	tiny_free(&f);
	backend_close(b);
}

/* Truncated at every 4 KiB: an error each time, never a crash. */
static void truncated_files(void **st)
{
	struct backend *b = open_backend("cpu");
	struct tiny f;
	size_t whole;

	(void)st;
	tiny_load(&f, "q4_1");
	whole = f.len;
	for (f.len = 0; f.len < whole; f.len += 4096) {
		struct model_options o = options(b, f.path, TNP_FAST);
		struct model *m = NULL;
		struct error e = { 0 };

		tiny_save(&f);
		assert_true(model_open(&o, &m, &e) < 0);
		assert_true(e.text[0]);
	}
	tiny_free(&f);
	backend_close(b);
}

static void no_memory_at_any_point(void **st)
{
	struct backend *b = open_backend("cpu");
	struct model_options o = options(b, tiny_path("q4_1"), TNP_FAST);
	uint64_t before = mem_area_bytes(MEM_ENGINE), tokens = mem_area_bytes(MEM_TOKENIZER);
	int rc = TENON_E_NOMEM;

	(void)st;
	for (uint64_t n = 1; rc; n += n < 150 ? 1 : 37) {
		struct model *m = NULL;
		struct error e = { 0 };

		mem_fail_at(n);
		rc = model_open(&o, &m, &e);
		mem_fail_at(0);
		if (rc && rc != TENON_E_NOMEM)
			fail_msg("allocation %u: %d '%s'", (unsigned)n, rc, e.text);
		model_close(m);
		assert_int_equal(mem_area_bytes(MEM_ENGINE), before);
		assert_int_equal(mem_area_bytes(MEM_TOKENIZER), tokens);
		assert_true(n < 100000);
	}
	backend_close(b);
}

static int open_plugins(void **st)
{
	(void)st;
	return tiny_plugins(&plugins);
}

static int close_plugins(void **st)
{
	(void)st;
	plugins_close(plugins);
	return 0;
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(info_is_the_files),
		cmocka_unit_test(same_bits_however_cut),
		cmocka_unit_test(rope_scaling_and_factors_meet),
		cmocka_unit_test(same_bits_in_company),
		cmocka_unit_test(cpu_agrees_with_ref),
		cmocka_unit_test(bad_sequences_leave_the_others_alone),
		cmocka_unit_test(limits_of_a_step_are_kept),
		cmocka_unit_test(steps_do_not_allocate),
		cmocka_unit_test(ledger_refuses_and_names_what_fits),
		cmocka_unit_test(hostile_metadata),
		cmocka_unit_test(missing_and_unknown_things),
		cmocka_unit_test(rotary_factors_by_length_are_refused),
		cmocka_unit_test(wrong_options),
		cmocka_unit_test(a_changed_file_is_noticed),
		cmocka_unit_test(truncated_files),
		cmocka_unit_test(no_memory_at_any_point),
	};

	return cmocka_run_group_tests(t, open_plugins, close_plugins);
}
