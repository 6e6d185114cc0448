/* SPDX-License-Identifier: Apache-2.0
 * Pages of every KV type on both backends: a copied part of a page, a page read and written back elsewhere, and pages
 * shared by two sequences lead to the same bits as computing everything anew. Both groups of the tiny gemma3 model.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/model.h"

enum { N_TOKENS = 80, PAGE = 16, N_PAGES = N_TOKENS / PAGE, STEP_TOKENS = 80 };

static struct plugins *plugins;

struct rig {
	struct backend *b;
	struct model *m;
	const struct model_info *info;
	int32_t tokens[N_TOKENS];
	float *want, *got; /* [N_TOKENS][n_vocab] */
};

static void rig_open(struct rig *r, const char *backend, uint32_t kv_type)
{
	struct model_options o = { .path = tiny_path("gemma3"),
		.precision = TNP_EXACT,
		.kv_type = kv_type,
		.kv_f32 = kv_type == TNP_F32,
		.n_ctx = 96,
		.step_tokens = STEP_TOKENS,
		.step_seqs = 2,
		.step_out = STEP_TOKENS,
		.page_tokens = PAGE,
		.n_sessions = 5 };
	struct error e = { 0 };

	*r = (struct rig){ 0 };
	if (backend_open(plugins, backend, 0, &r->b, &e))
		fail_msg("%s", e.text);
	o.backend = r->b;
	if (model_open(&o, &r->m, &e))
		fail_msg("%s", e.text);
	r->info = model_info(r->m);
	assert_int_equal(r->info->kv_type, kv_type);
	assert_true(r->info->n_pages[0] >= 4 * N_PAGES && r->info->n_pages[1] >= 4 * N_PAGES);
	r->want = calloc((size_t)N_TOKENS * r->info->n_vocab, sizeof(float));
	r->got = calloc((size_t)N_TOKENS * r->info->n_vocab, sizeof(float));
	tiny_tokens(r->tokens, N_TOKENS, 6);
}

static void rig_close(struct rig *r)
{
	free(r->want);
	free(r->got);
	model_close(r->m);
	backend_close(r->b);
}

/* Tokens [past, end) over these pages, the same numbers in both groups. */
static void run(struct rig *r, const uint32_t *pages, uint32_t past, uint32_t end, float *rows)
{
	struct step_seq s = { .tokens = r->tokens + past,
		.n_tokens = end - past,
		.past = past,
		.n_out = end - past,
		.out = rows + (size_t)past * r->info->n_vocab,
		.pages = { pages, pages },
		.n_pages = { N_PAGES, N_PAGES } };

	assert_int_equal(model_step(r->m, &s, 1, NULL), TENON_OK);
	assert_int_equal(s.rc, TENON_OK);
}

static void same_from(const struct rig *r, uint32_t first, const char *what)
{
	size_t at = (size_t)first * r->info->n_vocab;

	if (memcmp(r->want + at, r->got + at, (N_TOKENS - first) * (size_t)r->info->n_vocab * sizeof(float)))
		fail_msg("KV type %u: other bits with %s at token %u", r->info->kv_type, what, first);
}

/* A second sequence begins with n tokens of the first: whole pages shared, the rest of a page copied. */
static void shared_and_copied(struct rig *r)
{
	static const uint32_t a[N_PAGES] = { 0, 1, 2, 3, 4 }, own[N_PAGES] = { 9, 8, 7, 6, 5 };

	run(r, a, 0, N_TOKENS, r->want);
	for (uint32_t n = 1; n < N_TOKENS; n += n % PAGE == 0 ? 1 : 5) {
		uint32_t b[N_PAGES], whole = n / PAGE;

		memcpy(b, own, sizeof b);
		memcpy(b, a, whole * sizeof *b);
		for (uint32_t g = 0; g < 2 && n % PAGE; g++)
			assert_int_equal(
				model_kv_copy(r->m, g, a[whole], b[whole], n % PAGE, NULL), TENON_OK);
		run(r, b, n, N_TOKENS, r->got);
		same_from(r, n, "a copied page");
		run(r, a, n, N_TOKENS, r->got);
		same_from(r, n, "the page that was copied from");
	}
}

static void move_page(struct rig *r, uint32_t from, uint32_t to)
{
	for (uint32_t g = 0; g < 2; g++) {
		size_t bytes = r->info->page_bytes[g];
		uint8_t *one = malloc(bytes), *two = malloc(bytes);

		assert_int_equal(model_kv_read(r->m, g, from, one, NULL), TENON_OK);
		assert_int_equal(model_kv_write(r->m, g, to, one, NULL), TENON_OK);
		assert_int_equal(model_kv_read(r->m, g, to, two, NULL), TENON_OK);
		assert_memory_equal(one, two, bytes);
		free(one);
		free(two);
	}
}

/* n tokens, then all pages move through bytes to other numbers, the last of them partly filled. */
static void read_and_written(struct rig *r)
{
	static const uint32_t a[N_PAGES] = { 10, 11, 12, 13, 14 }, b[N_PAGES] = { 17, 16, 15, 19, 18 };

	for (uint32_t n = 1; n < N_TOKENS; n += 13) {
		run(r, a, 0, n, r->got);
		for (uint32_t i = 0; i < (n + PAGE - 1) / PAGE; i++)
			move_page(r, a[i], b[i]);
		run(r, b, n, N_TOKENS, r->got);
		same_from(r, 0, "pages moved");
	}
}

static void pages_of_every_type(void **st)
{
	static const uint32_t type[] = { TNP_F32, TNP_F16, TNP_Q8_0, TNP_Q4_0 };
	static const char *const backend[] = { "ref", "cpu" };

	(void)st;
	for (size_t b = 0; b < COUNT_OF(backend); b++)
		for (size_t i = 0; i < COUNT_OF(type); i++) {
			struct rig r;

			rig_open(&r, backend[b], type[i]);
			shared_and_copied(&r);
			read_and_written(&r);
			rig_close(&r);
		}
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
	const struct CMUnitTest t[] = { cmocka_unit_test(pages_of_every_type) };

	return cmocka_run_group_tests(t, open_plugins, close_plugins);
}
