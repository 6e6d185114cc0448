/* SPDX-License-Identifier: Apache-2.0
 * Models split over backends: lists as people write them; at every border and in three parts the same bits as on one device, and
 * ref's numbers where ref has a share; windows, pages copied and moved, encoders, taps, mixed batches, bad sequences; what it
 * takes; what cannot be split.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/graph_priv.h"
#include "engine/model.h"
#include "engine/partition.h"

enum { N_TOKENS = 90, PAGE = 16, N_PAGES = 6, STEP = 96, SEQS = 6, GROUPS = 2, WINDOW = 32 };

static struct plugins *plugins;

/* ---- rigs ------------------------------------------------------------------------------------------------------------ */

struct rig {
	struct backends b;
	struct model *m;
	const struct model_info *info;
};

static struct model_options options(const char *file, uint32_t precision)
{
	return (struct model_options){ .path = tiny_path(file),
		.precision = precision,
		.n_ctx = !strcmp(file, "bert") ? 64 : 96,
		.step_tokens = STEP,
		.step_seqs = SEQS,
		.step_out = STEP,
		.page_tokens = PAGE,
		.n_sessions = 2 * SEQS };
}

/* Each part on a handle of its own where `apart`. */
static int try_open(struct rig *r, const char *list, bool apart, struct model_options *o, struct error *e)
{
	struct backends_list l;
	int rc = backends_parse(list, 0, &l, e);

	*r = (struct rig){ 0 };
	if (!rc)
		rc = backends_open(plugins, &l, &r->b, e);
	for (uint32_t i = 1; apart && i < r->b.n && !rc; i++)
		if (r->b.place[i].backend == r->b.place[0].backend)
			rc = backend_open(plugins, l.part[i].name, 0, &r->b.place[i].backend, e);
	o->places = r->b.place;
	o->n_places = r->b.n;
	if (!rc)
		rc = model_open(o, &r->m, e);
	if (rc)
		backends_close(&r->b);
	else
		r->info = model_info(r->m);
	return rc;
}

static struct rig rig_open(const char *file, const char *list, bool apart, uint32_t precision)
{
	struct model_options o = options(file, precision);
	struct error e = { 0 };
	struct rig r;

	if (try_open(&r, list, apart, &o, &e))
		fail_msg("%s on %s: %s", file, list, e.text);
	assert_string_equal(r.info->backend, list);
	return r;
}

static void rig_close(struct rig *r)
{
	model_close(r->m);
	backends_close(&r->b);
}

static float *rows_for(const struct rig *r, uint32_t n)
{
	return calloc((size_t)n * r->info->n_vocab, sizeof(float));
}

/* Tokens [past, end) in steps of `chunk`; all groups with the same page numbers; holes behind the window of group 0 where
 * `holes`. */
static void run(struct rig *r, const int32_t *tokens, uint32_t past, uint32_t end, uint32_t chunk,
	const uint32_t *pages, bool holes, float *rows)
{
	struct error e = { 0 };

	for (uint32_t n; past < end; past += n) {
		uint32_t near[N_PAGES], left = holes && past + 1 > WINDOW ? (past + 1 - WINDOW) / PAGE : 0;
		struct step_seq s = { .tokens = tokens + past,
			.past = past,
			.pages = { near, pages },
			.n_pages = { N_PAGES, N_PAGES } };

		memcpy(near, pages, sizeof near);
		for (uint32_t i = 0; i < left; i++)
			near[i] = TNP_PAGE_HOLE;
		s.n_tokens = s.n_out = n = MIN_OF(chunk, end - past);
		s.out = rows + (size_t)past * r->info->n_vocab;
		if (model_step(r->m, &s, 1, &e) || s.rc)
			fail_msg("%s: %d %s", r->info->backend, s.rc, e.text);
	}
}

static const uint32_t plain[N_PAGES] = { 0, 1, 2, 3, 4, 5 }, mixed[N_PAGES] = { 9, 3, 11, 6, 2, 7 };

/* ---- lists ----------------------------------------------------------------------------------------------------------- */

static void lists_are_read(void **st)
{
	static const struct {
		const char *text;
		uint32_t n, device, layers; /* of the first part */
	} good[] = {
		{ NULL, 1, 3, 0 },
		{ "", 1, 3, 0 },
		{ "cpu", 1, 3, 0 },
		{ "cpu:1", 1, 1, 0 },
		{ "cpu=15,ref", 2, 3, 15 },
		{ "a_b-c:0=1024,ref:255=1,cpu", 3, 0, 1024 },
		{ "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h", 8, 3, 1 },
	};
	static const char *const bad[] = { ",", "cpu,", "cpu,ref", "cpu=15", "cpu=15,", "cpu=0,ref",
		"cpu=1025,ref", "cpu=,ref", "cpu=-1,ref", "cpu=1x,ref", "cpu:256=1,ref", "cpu:=1,ref",
		"cpu=1:2,ref", "=3,ref", ":1", "cpu=1,,ref", "cpu=99999999999999999999,ref",
		"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i", "name_that_is_longer_than_any_plugins=1,cpu",
		"cpu=1,ref=2" };
	struct backends_list l;
	struct error e = { 0 };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		assert_int_equal(backends_parse(good[i].text, 3, &l, &e), TENON_OK);
		assert_int_equal(l.n, good[i].n);
		assert_int_equal(l.part[0].device, good[i].device);
		assert_int_equal(l.part[0].n_layers, good[i].layers);
		assert_int_equal(l.part[l.n - 1].n_layers, 0);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		if (backends_parse(bad[i], 0, &l, &e) != TENON_E_INVALID ||
			!strstr(e.text, "as in cpu=15,ref"))
			fail_msg("'%s' was taken: %s", bad[i], e.text);
}

static void equal_parts_share_a_handle(void **st)
{
	struct rig r = rig_open("gemma3", "cpu=1,ref=2,cpu", false, TNP_EXACT);
	struct backends b = r.b;
	char text[BACKENDS_TEXT_BYTES];

	(void)st;
	assert_ptr_equal(b.place[0].backend, b.place[2].backend);
	assert_ptr_not_equal(b.place[0].backend, b.place[1].backend);
	assert_true(backends_use(&b, "ref") && !backends_use(&b, "null"));
	b.place[1].device = 255;
	backends_text(b.place, b.n, text);
	assert_string_equal(text, "cpu=1,ref:255=2,cpu");
	rig_close(&r);
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

static void every_border(const char *file, uint32_t precision)
{
	static const uint32_t chunk[] = { 90, 31, 1 };
	struct rig one = rig_open(file, "cpu", false, precision),
		   ref = rig_open(file, "ref", false, TNP_EXACT);
	size_t n = (size_t)N_TOKENS * one.info->n_vocab;
	float *bits = rows_for(&one, N_TOKENS), *right = rows_for(&one, N_TOKENS),
	      *got = rows_for(&one, N_TOKENS);
	int32_t tokens[N_TOKENS];

	tiny_tokens(tokens, N_TOKENS, 3);
	run(&one, tokens, 0, N_TOKENS, N_TOKENS, plain, false, bits);
	run(&ref, tokens, 0, N_TOKENS, N_TOKENS, plain, false, right);
	for (uint32_t at = 1; at < one.info->n_layers; at++) {
		for (size_t k = 0; k < 3; k++) {
			char list[32];
			struct rig r;

			(void)snprintf(list, sizeof list,
				k == 0		 ? "cpu=%u,cpu"
					: k == 1 ? "cpu=%u,ref"
						 : "ref=%u,cpu",
				at);
			r = rig_open(file, list, at % 2, precision);
			for (size_t c = 0; c < (k ? 1 : COUNT_OF(chunk)); c++) {
				run(&r, tokens, 0, N_TOKENS, chunk[c], c ? mixed : plain, false, got);
				if (!k && memcmp(got, bits, n * sizeof *got))
					fail_msg("%s on %s: other bits than cpu alone, chunks of %u", file,
						list, chunk[c]);
			}
			if (!(tiny_error(got, right, n) < (precision == TNP_EXACT ? 0.003 : 0.08)))
				fail_msg("%s on %s: error %g", file, list, tiny_error(got, right, n));
			rig_close(&r);
		}
	}
	free(bits);
	free(right);
	free(got);
	rig_close(&one);
	rig_close(&ref);
}

static void numbers_at_every_border(void **st)
{
	static const char *const exact[] = { "q4_1", "gemma3", "phi3", "qwen2", "qwen3", "mixtral",
		"qwen3moe", "factors" };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(exact); i++)
		every_border(exact[i], TNP_EXACT);
	every_border("q4_1", TNP_FAST);
	every_border("q8_0", TNP_FAST);
}

/* Parts whose first group is not the model's first, with pages behind the window dropped. */
static void three_parts_and_windows(void **st)
{
	static const char *const list[] = { "cpu=1,cpu=1,cpu", "cpu=1,cpu=2,cpu", "cpu=2,cpu=1,cpu",
		"cpu=1,cpu=1,cpu=1,cpu" };
	struct rig one = rig_open("gemma3", "cpu", false, TNP_FAST);
	size_t bytes = (size_t)N_TOKENS * one.info->n_vocab * sizeof(float);
	float *want = rows_for(&one, N_TOKENS), *got = rows_for(&one, N_TOKENS);
	int32_t tokens[N_TOKENS];

	(void)st;
	assert_true(one.info->window[0] == WINDOW && one.info->n_groups == GROUPS);
	tiny_tokens(tokens, N_TOKENS, 5);
	run(&one, tokens, 0, N_TOKENS, N_TOKENS, plain, false, want);
	for (size_t i = 0; i < COUNT_OF(list); i++) {
		struct rig r = rig_open("gemma3", list[i], true, TNP_FAST);

		assert_memory_equal(r.info->window, one.info->window, sizeof one.info->window);
		assert_memory_equal(r.info->n_pages, one.info->n_pages, sizeof one.info->n_pages);
		run(&r, tokens, 0, N_TOKENS, 7, mixed, true, got);
		assert_memory_equal(want, got, bytes);
		rig_close(&r);
	}
	free(want);
	free(got);
	rig_close(&one);
}

/* Prefill chunks and decodes of several sequences in one step, one of which cannot run, against each alone. */
static void mixed_batches(void **st)
{
	struct rig r = rig_open("q4_1", "cpu=1,ref=1,cpu", false, TNP_FAST);
	uint32_t width = r.info->n_vocab, pages[SEQS][2];
	int32_t tokens[SEQS][2 * PAGE];
	float *rows = rows_for(&r, SEQS), *keep = rows_for(&r, SEQS);
	struct step_seq s[SEQS];

	(void)st;
	for (uint32_t i = 0; i < SEQS; i++) {
		struct step_seq before = {
			.tokens = tokens[i], .n_tokens = 5 + i, .pages = { pages[i] }, .n_pages = { 2 }
		};

		tiny_tokens(tokens[i], 2 * PAGE, 10 + i);
		pages[i][0] = 2 * i;
		pages[i][1] = 2 * i + 1;
		s[i] = before;
		s[i].n_tokens = i % 2 ? 1 : 11 + i;
		s[i].past = i < 2 ? 0 : before.n_tokens;
		s[i].tokens += s[i].past;
		s[i].n_out = 1;
		s[i].out = keep + (size_t)i * width;
		if (s[i].past)
			assert_int_equal(model_step(r.m, &before, 1, NULL), TENON_OK);
		assert_int_equal(model_step(r.m, &s[i], 1, NULL), TENON_OK);
		s[i].out = rows + (size_t)i * width;
	}
	pages[3][0] = pages[2][0]; /* 2 and 3 write the same page: the later of them cannot run */
	assert_int_equal(model_step(r.m, s, SEQS, NULL), TENON_OK);
	for (uint32_t i = 0; i < SEQS; i++) {
		if (i == 2 || i == 3)
			continue;
		assert_int_equal(s[i].rc, TENON_OK);
		assert_memory_equal(rows + (size_t)i * width, keep + (size_t)i * width, width * sizeof *rows);
	}
	assert_true(s[2].rc == TENON_E_INVALID || s[3].rc == TENON_E_INVALID);
	free(rows);
	free(keep);
	rig_close(&r);
}

/* ---- pages ----------------------------------------------------------------------------------------------------------- */

static void move_page(struct rig *r, uint32_t group, uint32_t from, uint32_t to)
{
	size_t bytes = r->info->page_bytes[group];
	char *one = malloc(bytes), *two = malloc(bytes);

	assert_int_equal(model_kv_read(r->m, group, from, one, NULL), TENON_OK);
	assert_int_equal(model_kv_write(r->m, group, to, one, NULL), TENON_OK);
	assert_int_equal(model_kv_read(r->m, group, to, two, NULL), TENON_OK);
	assert_memory_equal(one, two, bytes);
	free(one);
	free(two);
}

/* A prefix that another sequence has computed: whole pages moved through bytes, the rest of a page copied. */
static void pages_hold_all_parts(void **st)
{
	static const char *const list[] = { "cpu=1,ref", "ref=3,cpu", "cpu=2,ref=1,cpu" };
	int32_t tokens[N_TOKENS];

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 6);
	for (size_t i = 0; i < COUNT_OF(list); i++) {
		struct rig r = rig_open("gemma3", list[i], false, TNP_EXACT);
		size_t bytes = (size_t)N_TOKENS * r.info->n_vocab * sizeof(float);
		float *want = rows_for(&r, N_TOKENS), *got = rows_for(&r, N_TOKENS);

		run(&r, tokens, 0, N_TOKENS, N_TOKENS, plain, false, want);
		memcpy(got, want, bytes);
		for (uint32_t g = 0; g < GROUPS; g++) {
			move_page(&r, g, plain[0], mixed[0]);
			move_page(&r, g, plain[1], mixed[1]);
			assert_int_equal(model_kv_copy(r.m, g, plain[2], mixed[2], 9, NULL), TENON_OK);
		}
		run(&r, tokens, 2 * PAGE + 9, N_TOKENS, 20, mixed, false, got);
		assert_memory_equal(want, got, bytes);
		assert_int_equal(model_kv_read(r.m, GROUPS, 0, got, NULL), TENON_E_INVALID);
		assert_int_equal(model_kv_write(r.m, 0, r.info->n_pages[0], got, NULL), TENON_E_INVALID);
		assert_int_equal(model_kv_copy(r.m, 0, 0, r.info->n_pages[0], 1, NULL), TENON_E_INVALID);
		free(want);
		free(got);
		rig_close(&r);
	}
}

static void pages_of_one_kind_alone_may_be_exchanged(void **st)
{
	static const char *const list[] = { "cpu", "ref", "cpu=1,cpu", "cpu=1,ref", "cpu=2,ref",
		"ref=1,cpu" };
	struct rig r[COUNT_OF(list)], again = rig_open("q4_1", "cpu=1,ref", true, TNP_EXACT);

	(void)st;
	for (size_t i = 0; i < COUNT_OF(list); i++) {
		r[i] = rig_open("q4_1", list[i], false, TNP_EXACT);
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(r[i].info->kv_compat, r[k].info->kv_compat, 32);
	}
	assert_memory_equal(r[3].info->kv_compat, again.info->kv_compat, 32);
	for (size_t i = 0; i < COUNT_OF(list); i++)
		rig_close(&r[i]);
	rig_close(&again);
}

/* ---- encoders, taps --------------------------------------------------------------------------------------------------- */

static void encoder(const char *file)
{
	struct rig one = rig_open(file, "cpu", false, TNP_FAST);
	int32_t tokens[SEQS][8];
	float want[SEQS][128], got[SEQS][128];

	assert_true(one.info->d_model <= 128);
	for (uint32_t at = 0; at < one.info->n_layers; at++) {
		char list[32] = "cpu";
		struct step_seq s[SEQS];
		struct error e = { 0 };
		struct rig r;

		if (at)
			(void)snprintf(list, sizeof list, "cpu=%u,cpu", at);
		r = rig_open(file, list, true, TNP_FAST);
		for (uint32_t i = 0; i < SEQS; i++) {
			tiny_tokens(tokens[i], 8, i);
			s[i] = (struct step_seq){ .tokens = tokens[i], .n_tokens = 1 + i, .out = got[i] };
		}
		s[2].n_tokens = 0;
		if (model_step(r.m, s, SEQS, &e))
			fail_msg("%s", e.text);
		for (uint32_t i = 0; i < SEQS; i++) {
			assert_int_equal(s[i].rc, i == 2 ? TENON_E_INVALID : TENON_OK);
			if (!at)
				memcpy(want[i], got[i], sizeof want[i]);
			else if (i != 2)
				assert_memory_equal(want[i], got[i], one.info->d_model * sizeof(float));
		}
		rig_close(&r);
	}
	rig_close(&one);
}

static void encoders_at_every_border(void **st)
{
	(void)st;
	encoder("bert");
	encoder("nomic_bert");
}

/* The layers' outputs, of which one is also what goes to the other part. */
static void taps_of_all_parts(void **st)
{
	static const uint32_t pages[N_PAGES] = { 0, 1, 2, 3, 4, 5 };
	static const char *const list[] = { "cpu", "cpu=1,cpu=1,cpu" };
	int32_t tokens[N_TOKENS];
	struct rig r[2];
	float *rows;

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 9);
	for (int i = 0; i < 2; i++) {
		struct model_options o = options("q4_1", TNP_EXACT);
		struct error e = { 0 };

		o.taps = MODEL_TAPS_LAYERS;
		if (try_open(&r[i], list[i], false, &o, &e))
			fail_msg("%s", e.text);
		rows = rows_for(&r[i], 40);
		run(&r[i], tokens, 0, 40, 40, pages, false, rows);
		free(rows);
	}
	assert_int_equal(model_n_taps(r[0].m), model_n_taps(r[1].m));
	assert_true(model_n_taps(r[0].m) >= 6);
	for (size_t t = 0; t < model_n_taps(r[0].m); t++) {
		const struct model_tap *a = model_tap_at(r[0].m, t), *b = model_tap_at(r[1].m, t);

		assert_true(a->layer == b->layer && a->n_rows == b->n_rows && a->width == b->width &&
			a->n_rows == 40);
		assert_memory_equal(a->rows, b->rows, (size_t)a->n_rows * a->width * sizeof(float));
	}
	rig_close(&r[0]);
	rig_close(&r[1]);
}

/* ---- what it takes ---------------------------------------------------------------------------------------------------- */

static void memory_is_the_sum(void **st)
{
	struct rig one = rig_open("gemma3", "cpu", false, TNP_FAST),
		   two = rig_open("gemma3", "cpu=1,cpu", true, TNP_FAST);
	const struct ledger *a = model_ledger(one.m), *b = model_ledger(two.m);
	struct model_part part = model_part_at(two.m, 1);
	struct model_options o = options("gemma3", TNP_FAST);
	struct error e = { 0 };
	struct rig r;

	(void)st;
	for (uint32_t g = 0; g < GROUPS; g++)
		assert_int_equal(one.info->page_bytes[g], two.info->page_bytes[g]);
	assert_int_equal(a->bytes[LEDGER_KV], b->bytes[LEDGER_KV]);
	assert_true(b->bytes[LEDGER_WEIGHTS_OWN] + b->bytes[LEDGER_WEIGHTS_MAPPED] >=
		a->bytes[LEDGER_WEIGHTS_OWN] + a->bytes[LEDGER_WEIGHTS_MAPPED]);
	assert_true(b->bytes[LEDGER_WORKSPACE] > a->bytes[LEDGER_WORKSPACE]);
	assert_true(part.layer0 == 1 && part.n_layers == 3 && part.compute);
	assert_int_equal(part.copied_bytes, two.info->d_model * sizeof(float));
	assert_true(b->bytes[LEDGER_STEP] >= a->bytes[LEDGER_STEP] + STEP * part.copied_bytes);
	assert_int_equal(model_part_at(one.m, 0).copied_bytes, 0);
	assert_int_equal(model_n_parts(one.m), 1);
	o.memory_limit = b->loaded + b->peak - 4096;
	assert_int_equal(try_open(&r, "cpu=1,cpu", false, &o, &e), TENON_E_NOMEM);
	rig_close(&one);
	rig_close(&two);
}

/* After the first steps nothing is allocated. */
static void steps_allocate_nothing(void **st)
{
	struct rig r = rig_open("gemma3", "cpu=1,cpu=2,ref", false, TNP_FAST);
	float *rows = rows_for(&r, N_TOKENS);
	int32_t tokens[N_TOKENS];
	uint64_t before;

	(void)st;
	tiny_tokens(tokens, N_TOKENS, 2);
	run(&r, tokens, 0, N_TOKENS, 30, plain, false, rows);
	before = mem_n_allocs();
	run(&r, tokens, 0, N_TOKENS, 30, plain, false, rows);
	assert_int_equal(mem_n_allocs(), before);
	free(rows);
	rig_close(&r);
}

/* ---- refusals --------------------------------------------------------------------------------------------------------- */

static void lists_that_do_not_fit_the_model(void **st)
{
	static const struct {
		const char *list, *words;
		int code;
	} t[] = {
		{ "cpu=3,ref", "has 3 layers; backend cpu cannot take 3 from layer 0 on", TENON_E_INVALID },
		{ "cpu=1,ref=2,cpu", "backend ref cannot take 2 from layer 1 on", TENON_E_INVALID },
		{ "cpu=1,ref=1,cpu=1,ref", "each of 4 parts takes one or more", TENON_E_INVALID },
		{ "cpu=1,nothere", "nothere", TENON_E_NOT_FOUND },
		{ "cpu=1,cpu:7", "device 7", TENON_E_NOT_FOUND },
		{ "toy10=1,cpu", "backend toy10 does not take embedding: EMBED", TENON_E_UNSUPPORTED },
		{ "cpu=1,toy10", "give these layers to another backend", TENON_E_UNSUPPORTED },
	};

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct model_options o = options("q4_1", TNP_EXACT);
		struct error e = { 0 };
		struct rig r;

		if (try_open(&r, t[i].list, false, &o, &e) != t[i].code || !strstr(e.text, t[i].words))
			fail_msg("%s: %d %s", t[i].list, e.code, e.text);
	}
}

struct sketch { /* a graph with two layers of our own */
	struct gguf *f;
	struct graph *g;
	graph_tensor x;
};

static struct sketch sketch_open(void)
{
	struct sketch s;

	assert_int_equal(gguf_open(tiny_path("f32"), &s.f, NULL), TENON_OK);
	assert_int_equal(graph_create(s.f, &s.g, NULL), TENON_OK);
	graph_scope(s.g, -1, "embedding");
	s.x = graph_embed(s.g, graph_weight(s.g, 512, 128, "token_embd.weight"), TNP_INDEX_TOKEN);
	graph_scope(s.g, 0, "one");
	return s;
}

static graph_tensor scaled(struct sketch *s, graph_tensor x)
{
	graph_tensor y = graph_unary(s->g, TNP_OP_SCALE, x);

	graph_attr_float(s->g, TNP_A_SCALE, 2);
	return y;
}

static graph_tensor attended(struct sketch *s, graph_tensor x, uint32_t n_in, uint32_t slot)
{
	graph_tensor y = graph_rows(s->g, TNP_N_TOKENS, 128), in[] = { x, x, x };

	graph_node(s->g, TNP_OP_ATTEND, in, n_in, &y, 1);
	graph_attr_int(s->g, TNP_A_SLOT, slot);
	graph_attr_int(s->g, TNP_A_HEADS, 4);
	graph_attr_int(s->g, TNP_A_KV_HEADS, 4);
	graph_attr_int(s->g, TNP_A_HEAD_DIM, 32);
	return y;
}

/* Cut in two; code and words of the refusal, or the parts left for a look. */
static int sketch_cut(
	struct sketch *s, graph_tensor out, uint64_t fail_at, struct partition *p, struct error *e)
{
	struct backend *b = NULL;
	struct model_place place[2];
	int rc;

	assert_int_equal(backend_open(plugins, "ref", 0, &b, NULL), TENON_OK);
	place[0] = (struct model_place){ .backend = b, .n_layers = 1 };
	place[1] = (struct model_place){ .backend = b };
	graph_out(s->g, out);
	*p = (struct partition){ 0 };
	mem_fail_at(fail_at);
	rc = partition_cut(p, s->g, place, 2, 2, "sketch", e);
	mem_fail_at(0);
	backend_close(b);
	return rc;
}

static void sketch_close(struct sketch *s, struct partition *p)
{
	partition_finish(p);
	graph_destroy(s->g);
	gguf_close(s->f);
}

/* What each layer 1 does with the layer before it, and why that cannot be cut. */
static void borders_that_cannot_be(void **st)
{
	static const char *const words[] = { "more than one tensor crosses there", "no row for each token",
		"a table of tokens is read behind it", "reads the keys and values of one in front of it",
		"nothing crosses there" };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(words); i++) {
		struct sketch s = sketch_open();
		struct partition p;
		struct error e = { 0 };
		graph_tensor y = i == 3 ? attended(&s, s.x, 3, 0) : scaled(&s, s.x), z = y;

		if (i == 1)
			z = graph_select(s.g, y);
		graph_scope(s.g, 1, "two");
		if (i == 0)
			z = graph_binary(s.g, TNP_OP_ADD, y, s.x);
		else if (i == 2)
			z = graph_binary(s.g, TNP_OP_ADD, y,
				graph_embed(s.g, graph_weight(s.g, 512, 128, "token_embd.weight"),
					TNP_INDEX_TOKEN));
		else if (i == 3)
			z = attended(&s, y, 1, 0);
		else if (i == 1)
			z = scaled(&s, z);
		if (sketch_cut(&s, z, 0, &p, &e) != TENON_E_UNSUPPORTED || !strstr(e.text, words[i]))
			fail_msg("%s: %d '%s'", words[i], e.code, e.text);
		sketch_close(&s, &p);
	}
}

/* Attention in each layer. */
static graph_tensor sketch_attention(struct sketch *s)
{
	graph_tensor y = attended(s, s->x, 3, 0);

	graph_scope(s->g, 1, "two");
	y = attended(s, y, 3, 1);
	graph_scope(s->g, -1, "head");
	return scaled(s, y);
}

/* Slots are counted anew, outputs find their part, the border is one of them. */
static void a_cut_graph(void **st)
{
	struct sketch s = sketch_open();
	graph_tensor out = sketch_attention(&s);
	struct partition p;
	struct error e = { 0 };
	const struct tnp_graph *t;

	(void)st;
	if (sketch_cut(&s, out, 0, &p, &e))
		fail_msg("%s", e.text);
	assert_int_equal(p.n, 2);
	assert_true(p.part[0].in == TNP_NONE && p.part[1].in == 1);
	assert_true(p.part[0].n_outs == 1 && p.part[0].outs[0] == 1 && p.part[1].n_outs == 1 &&
		p.part[1].outs[0] == 0);
	t = graph_view(p.part[0].graph);
	assert_true(t->n_nodes == 2 && t->n_tensors == 3 && t->n_in == 0 && t->n_out == 1);
	t = graph_view(p.part[1].graph);
	assert_true(t->n_nodes == 2 && t->n_tensors == 3 && t->n_in == 1 && t->n_out == 1);
	for (uint32_t i = 0; i < t->nodes[0].n_attr; i++)
		if (t->attrs[t->nodes[0].attr0 + i].key == TNP_A_SLOT)
			assert_int_equal(t->attrs[t->nodes[0].attr0 + i].v.i, 0);
	sketch_close(&s, &p);
}

static void no_memory_to_cut(void **st)
{
	uint64_t n = 0;
	int rc;

	(void)st;
	do {
		struct sketch s = sketch_open();
		graph_tensor out = sketch_attention(&s);
		struct partition p;

		rc = sketch_cut(&s, out, ++n, &p, NULL);
		assert_true(rc == TENON_OK || rc == TENON_E_NOMEM);
		sketch_close(&s, &p);
	} while (rc);
	assert_true(n > 20);
}

/* ---- faults of a part --------------------------------------------------------------------------------------------------- */

static char dir[2][4096];

/* The build's backends, and the old toy that takes few operators. */
static int plugins_list(const struct plugin_option *o, size_t n, struct plugins **out)
{
	static const char *dirs[] = { dir[0], dir[1] };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 2, .options = o, .n_options = n };
	const char *build = getenv("TENON_BUILDDIR");

	(void)snprintf(dir[1], sizeof dir[1], "%s/tests/abi/1.0/stage", build ? build : ".");
	return plugins_default_dir(dir[0], sizeof dir[0], NULL) || plugins_open(&c, out, NULL) ? -1 : 0;
}

/* Three sequences of 20 tokens in one step; one after the other where `alone`. */
static int three_step(struct rig *r, bool alone, float *rows, int rc[3])
{
	static const uint32_t pages[3][2] = { { 0, 1 }, { 2, 3 }, { 4, 5 } };
	int32_t tokens[3][20];
	struct step_seq s[3];
	int all = 0;

	for (uint32_t i = 0; i < 3; i++) {
		tiny_tokens(tokens[i], 20, 30 + i);
		s[i] = (struct step_seq){ .tokens = tokens[i],
			.n_tokens = 20,
			.n_out = 1,
			.out = rows + i * r->info->n_vocab,
			.pages = { pages[i] },
			.n_pages = { 2 } };
	}
	for (uint32_t i = 0; i < 3 && alone; i++)
		all = all ? all : model_step(r->m, &s[i], 1, NULL);
	if (!alone)
		all = model_step(r->m, s, 3, NULL);
	for (uint32_t i = 0; i < 3; i++)
		rc[i] = s[i].rc;
	return all;
}

/* The backend in the middle does as told in its fourth step. */
static void faulty(const char *deed, int whole, int one)
{
	char inner[4200];
	const struct plugin_option o[] = { { "fault", "inner", inner }, { "fault", "do", deed },
		{ "fault", "code", "nomem" }, { "fault", "call", "4" } };
	struct plugins *all = plugins;
	struct rig r;
	float *want, *got;
	int rc[3];

	(void)snprintf(inner, sizeof inner, "%s/cpu.so", dir[0]);
	assert_int_equal(plugins_list(o, COUNT_OF(o), &plugins), 0);
	r = rig_open("q4_1", "ref=1,fault=1,ref", false, TNP_EXACT);
	want = rows_for(&r, 3);
	got = rows_for(&r, 3);
	assert_int_equal(three_step(&r, true, want, rc), TENON_OK);
	assert_int_equal(three_step(&r, false, got, rc), whole);
	for (int i = 0; i < 3 && !whole; i++) {
		size_t at = (size_t)i * r.info->n_vocab;

		assert_int_equal(rc[i], i % 2 ? TENON_OK : one);
		if (!rc[i])
			assert_memory_equal(want + at, got + at, r.info->n_vocab * sizeof *got);
	}
	assert_int_equal(three_step(&r, false, got, rc), TENON_OK);
	assert_true(!rc[0] && !rc[1] && !rc[2]);
	assert_memory_equal(want, got, 3 * r.info->n_vocab * sizeof *got);
	free(want);
	free(got);
	rig_close(&r);
	plugins_close(plugins);
	plugins = all;
}

/* A step that fails in one part can be repeated; a sequence that does has that part's code, and the others their rows. */
static void a_part_that_fails(void **st)
{
	(void)st;
	faulty("error", TENON_E_NOMEM, TENON_OK);
	faulty("seq", TENON_OK, TENON_E_NOMEM);
}

/* ---- all ------------------------------------------------------------------------------------------------------------- */

static int open_plugins(void **st)
{
	(void)st;
	return plugins_list(NULL, 0, &plugins);
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
		cmocka_unit_test(lists_are_read),
		cmocka_unit_test(equal_parts_share_a_handle),
		cmocka_unit_test(numbers_at_every_border),
		cmocka_unit_test(three_parts_and_windows),
		cmocka_unit_test(mixed_batches),
		cmocka_unit_test(pages_hold_all_parts),
		cmocka_unit_test(pages_of_one_kind_alone_may_be_exchanged),
		cmocka_unit_test(encoders_at_every_border),
		cmocka_unit_test(taps_of_all_parts),
		cmocka_unit_test(memory_is_the_sum),
		cmocka_unit_test(steps_allocate_nothing),
		cmocka_unit_test(lists_that_do_not_fit_the_model),
		cmocka_unit_test(borders_that_cannot_be),
		cmocka_unit_test(a_cut_graph),
		cmocka_unit_test(no_memory_to_cut),
		cmocka_unit_test(a_part_that_fails),
	};

	return cmocka_run_group_tests(t, open_plugins, close_plugins);
}
