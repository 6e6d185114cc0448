/* SPDX-License-Identifier: Apache-2.0
 * A model with windowed and global layers (tiny gemma3: window 32, every second layer): two groups of pages. Rows are the
 * same bits however the work is cut, wherever pages lie, and whether pages behind the window are kept or given to others.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/model.h"

enum { N_TOKENS = 200, PAGE = 16, STEP_TOKENS = 64, WINDOW = 32, MAX_LIST = 32 };

static struct plugins *plugins;

static struct model *open_tiny(const char *backend, uint32_t kv_type, struct backend **b)
{
	struct model_options o = { .path = tiny_path("gemma3"),
		.precision = TNP_EXACT,
		.kv_type = kv_type,
		.n_ctx = 256,
		.step_tokens = STEP_TOKENS,
		.step_seqs = 4,
		.step_out = STEP_TOKENS,
		.page_tokens = PAGE,
		.n_sessions = 3 };
	struct model *m = NULL;
	struct error e = { 0 };

	if (backend_open(plugins, backend, 0, b, &e))
		fail_msg("%s", e.text);
	o.backend = *b;
	if (model_open(&o, &m, &e))
		fail_msg("%s", e.text);
	return m;
}

/* A list for `past` + n tokens: from `first` upwards, `ring` numbers in turn (0: all different); with a ring, holes for
 * what the window has left. */
static uint32_t list_fill(uint32_t *list, uint32_t first, uint32_t ring, uint32_t past, uint32_t n)
{
	uint32_t pages = (past + n + PAGE - 1) / PAGE,
		 left = ring && past + 1 > WINDOW ? (past + 1 - WINDOW) / PAGE : 0;

	for (uint32_t i = 0; i < pages; i++)
		list[i] = i < left ? TNP_PAGE_HOLE : first + (ring ? i % ring : i);
	return pages;
}

static void run(
	struct model *m, const int32_t *tokens, uint32_t chunk, uint32_t first, uint32_t ring, float *rows)
{
	const struct model_info *info = model_info(m);
	uint32_t list[2][MAX_LIST];
	struct error e = { 0 };

	for (uint32_t past = 0; past < N_TOKENS; past += chunk) {
		uint32_t n = MIN_OF(chunk, N_TOKENS - past);
		struct step_seq s = { .tokens = tokens + past,
			.n_tokens = n,
			.past = past,
			.n_out = n,
			.out = rows + (size_t)past * info->n_vocab };

		for (uint32_t g = 0; g < 2; g++) {
			s.n_pages[g] = list_fill(list[g], first, info->window[g] ? ring : 0, past, n);
			s.pages[g] = list[g];
		}
		if (model_step(m, &s, 1, &e) || s.rc)
			fail_msg("chunk %u at %u: %d %s", chunk, past, s.rc, e.text);
	}
}

static void same_bits(const char *backend, uint32_t kv_type)
{
	static const uint32_t chunk[] = { 1, 5, 16, 31, 64 };
	struct backend *b;
	struct model *m = open_tiny(backend, kv_type, &b);
	size_t n = (size_t)N_TOKENS * model_info(m)->n_vocab;
	float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
	int32_t tokens[N_TOKENS];

	tiny_tokens(tokens, N_TOKENS, 3);
	run(m, tokens, 64, 0, 0, want);
	for (size_t i = 0; i < COUNT_OF(chunk); i++) {
		run(m, tokens, chunk[i], (uint32_t)i % 4, 0, got);
		assert_memory_equal(want, got, n * sizeof *want);
		memset(got, 0, n * sizeof *got);
		run(m, tokens, chunk[i], 2, (WINDOW + chunk[i]) / PAGE + 2, got);
		if (memcmp(want, got, n * sizeof *want))
			fail_msg("%s: other bits with holes, chunk %u", backend, chunk[i]);
	}
	free(want);
	free(got);
	model_close(m);
	backend_close(b);
}

static void holes_and_chunks_change_nothing(void **st)
{
	(void)st;
	same_bits("ref", TNP_F16);
	same_bits("cpu", TNP_F16);
	same_bits("cpu", TNP_Q8_0);
	same_bits("cpu", TNP_Q4_0);
}

static void pools_follow_the_windows(void **st)
{
	struct backend *b;
	struct model *m = open_tiny("cpu", TNP_F16, &b);
	const struct model_info *i = model_info(m);

	(void)st;
	assert_int_equal(i->n_groups, 2);
	assert_int_equal(i->window[0], WINDOW);
	assert_int_equal(i->window[1], 0);
	assert_int_equal(i->n_pages[0], 3 * (2 + 2) + STEP_TOKENS / PAGE);
	assert_int_equal(i->n_pages[1], 3 * 256 / PAGE);
	assert_int_equal(i->kv_bytes, i->n_pages[0] * i->page_bytes[0] + i->n_pages[1] * i->page_bytes[1]);
	model_close(m);
	backend_close(b);
}

/* A hole where the window still reaches is refused for that sequence alone. */
static void a_hole_in_the_window(void **st)
{
	struct backend *b;
	struct model *m = open_tiny("cpu", TNP_F16, &b);
	uint32_t list[2][MAX_LIST], n = 0;
	int32_t tokens[N_TOKENS];
	float *row = calloc(2 * (size_t)model_info(m)->n_vocab, sizeof *row);
	struct step_seq s[2] = { { 0 } };

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 4);
	for (uint32_t g = 0; g < 2; g++)
		n = list_fill(list[g], 0, 0, 0, 49);
	for (uint32_t i = 0; i < 2; i++)
		s[i] = (struct step_seq){ .tokens = tokens,
			.n_tokens = 48,
			.n_out = 1,
			.out = row + i * model_info(m)->n_vocab,
			.pages = { list[0], list[1] },
			.n_pages = { n, n } };
	assert_int_equal(model_step(m, s, 1, NULL), TENON_OK);
	assert_int_equal(s[0].rc, TENON_OK);
	s[0].tokens = tokens + 48;
	s[0].n_tokens = 1;
	s[0].past = 48;
	list[0][0] = TNP_PAGE_HOLE; /* token 48 sees 17 to 48: page 0 is behind */
	assert_int_equal(model_step(m, s, 1, NULL), TENON_OK);
	assert_int_equal(s[0].rc, TENON_OK);
	list[0][1] = TNP_PAGE_HOLE;
	assert_int_equal(model_step(m, s, 1, NULL), TENON_OK);
	assert_int_equal(s[0].rc, TENON_E_INVALID);
	free(row);
	model_close(m);
	backend_close(b);
}

static void patterns_of_layers(void **st)
{
	static const struct {
		const char *key;
		uint32_t value;
		int code;
		uint32_t n_groups;
	} t[] = {
		{ "gemma3.attention.sliding_window_pattern", 0, TENON_E_FORMAT, 0 },
		{ "gemma3.attention.sliding_window_pattern", 1, TENON_OK, 1 },
		{ "gemma3.attention.sliding_window_pattern", 4, TENON_OK, 2 },
		{ "gemma3.attention.sliding_window_pattern", 1024, TENON_OK, 1 },
		{ "gemma3.attention.sliding_window_pattern", 1025, TENON_E_FORMAT, 0 },
		{ "gemma3.attention.sliding_window", 0, TENON_OK, 1 },
		{ "gemma3.final_logit_softcapping", 0, TENON_OK, 2 },
		{ "gemma3.final_logit_softcapping", 0xbf800000, TENON_E_FORMAT, 0 },
		{ "gemma3.attn_logit_softcapping", 0x7fc00000, TENON_E_FORMAT, 0 },
	};
	struct backend *b = NULL;

	(void)st;
	assert_int_equal(backend_open(plugins, "cpu", 0, &b, NULL), TENON_OK);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct model_options o = { .backend = b, .measure_only = true };
		struct model *m = NULL;
		struct error e = { 0 };
		struct tiny f;

		tiny_load(&f, "gemma3");
		tiny_set_u32(&f, t[i].key, t[i].value);
		tiny_save(&f);
		o.path = f.path;
		if (model_open(&o, &m, &e) != t[i].code || (t[i].code && !strstr(e.text, t[i].key)))
			fail_msg("%s = %u: %d '%s'", t[i].key, t[i].value, e.code, e.text);
		if (m)
			assert_int_equal(model_info(m)->n_groups, t[i].n_groups);
		model_close(m);
		tiny_free(&f);
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
		cmocka_unit_test(pools_follow_the_windows),
		cmocka_unit_test(holes_and_chunks_change_nothing),
		cmocka_unit_test(a_hole_in_the_window),
		cmocka_unit_test(patterns_of_layers),
	};

	return cmocka_run_group_tests(t, open_plugins, close_plugins);
}
