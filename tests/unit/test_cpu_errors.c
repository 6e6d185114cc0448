/* SPDX-License-Identifier: Apache-2.0
 * The cpu plugin against a host that makes mistakes: damaged graphs, bad batches, bad sequences among good ones, bad
 * pages, numbers that are none. Everything has an answer, nothing is touched that should not be.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_drive.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 72, N = 40, PAGE = 16, SEQS = 3 };

static const struct drive_arch arch = { .layers = 2,
	.d = 64,
	.heads = 4,
	.kv_heads = 2,
	.head_dim = 32,
	.ff = 96,
	.vocab = VOCAB,
	.type = TNP_F32,
	.act = TNP_ACT_SILU,
	.window = 20,
	.factors = true };

/* ---- damaged graphs ------------------------------------------------------------------------------ */
struct copy { /* a graph whose arrays are the test's own */
	struct tnp_graph g;
	struct tnp_tensor *tensors;
	struct tnp_node *nodes;
	struct tnp_attr *attrs;
	uint32_t *edges;
};

static void *dup(const void *p, size_t n)
{
	void *q = malloc(n + 1);

	return n ? memcpy(q, p, n) : q;
}

static void copy_make(struct copy *c, const struct tnp_graph *g)
{
	c->g = *g;
	c->g.tensors = c->tensors = dup(g->tensors, g->n_tensors * sizeof *g->tensors);
	c->g.nodes = c->nodes = dup(g->nodes, g->n_nodes * sizeof *g->nodes);
	c->g.attrs = c->attrs = dup(g->attrs, g->n_attrs * sizeof *g->attrs);
	c->g.edges = c->edges = dup(g->edges, g->n_edges * sizeof *g->edges);
}

static void copy_free(struct copy *c)
{
	free(c->tensors);
	free(c->nodes);
	free(c->attrs);
	free(c->edges);
}

/* Puts a hostile number in place of one word of one array. */
static void damage(struct copy *c, uint64_t *seed)
{
	static const uint32_t nasty[] = { 0, 1, 2, 3, 7, 31, 33, 0x7fffffff, 0x80000000, 0xfffffffe,
		0xffffffff };
	struct {
		void *p;
		size_t n;
	} part[] = {
		{ c->tensors, c->g.n_tensors * sizeof *c->tensors },
		{ c->nodes, c->g.n_nodes * sizeof *c->nodes },
		{ c->attrs, c->g.n_attrs * sizeof *c->attrs },
		{ c->edges, c->g.n_edges * sizeof *c->edges },
	};
	size_t i = tnp_rand(seed) % 4, at = tnp_rand(seed) % (part[i].n / 4);
	uint32_t v = nasty[tnp_rand(seed) % (sizeof nasty / sizeof nasty[0])];

	if (tnp_rand(seed) % 3 == 0)
		v = (uint32_t)(tnp_rand(seed) % 70);
	memcpy((uint8_t *)part[i].p + 4 * at, &v, sizeof v);
}

/* A step of three tokens and one of one more if the damaged graph was accepted and still wants the same pool. */
static bool step_any(const struct drive_dev *d, struct tnp_model *m, const struct copy *c)
{
	static float data[1 << 14];
	const struct tnp_kv_slot slot[2] = { { 2, 32, 0, 0 }, { 2, 32, 20, 1 } };
	const struct tnp_kv_spec spec = { .size = sizeof spec,
		.type = TNP_F16,
		.page_tokens = 16,
		.n_slots = 2,
		.n_pages = { 2, 2 },
		.slots = slot };
	const struct tnp_rows rows = { data, 1 << 12 };
	const uint32_t tok0[2] = { 0, 3 }, tok1[2] = { 0, 1 }, past[1] = { 0 }, past1[1] = { 3 },
		       out_tok[1] = { 0 };
	const uint32_t page0[2] = { 0, 1 }, page[1] = { 1 };
	const struct tnp_pages pages[2] = { { page0, page }, { page0, page } };
	const int32_t token[3] = { 1, 2, 0 }, pos[3] = { 1, 2, 0 };
	struct tnp_batch b = { .size = sizeof b,
		.n_seqs = 1,
		.n_tokens = 3,
		.n_out = 1,
		.token = token,
		.pos = pos,
		.tok0 = tok0,
		.past = past,
		.pages = pages,
		.out_tok = out_tok,
		.out = &rows };
	struct tnp_kv *kv = NULL;
	tnp_rc rc[1];
	uint64_t ticket;
	bool ran;

	b.seq_rc = rc;
	if (c->g.n_out > 1 || d->ops->kv_open(m, &spec, &kv, NULL))
		return false;
	ran = !d->ops->batch(m, kv, &b, &ticket, NULL);
	b.n_tokens = 1, b.tok0 = tok1, b.past = past1;
	ran &= !d->ops->batch(m, kv, &b, &ticket, NULL);
	d->ops->kv_close(kv);
	return ran;
}

static void damaged_graphs(void **state)
{
	const struct tnp_limits lim = { .size = sizeof lim,
		.precision = TNP_FAST,
		.max_tokens = 8,
		.max_seqs = 2,
		.max_out = 8,
		.max_pages_per_seq = 4,
		.kv_type = TNP_F16,
		.page_tokens = 16 };
	struct tnp_make *g = drive_arch_make(&arch, 3);
	uint32_t answers[2] = { 0 }, ran = 0;
	uint64_t seed = 21;
	struct drive_dev d;

	(void)state;
	drive_open(&d, "cpu", "1", NULL);
	for (uint32_t i = 0; i < 3000; i++) {
		struct tnp_error e = { .size = sizeof e };
		struct tnp_sizes sizes = { .size = sizeof sizes };
		struct tnp_verdict *v;
		struct tnp_model *m = NULL;
		struct copy c;
		tnp_rc check, open;
		bool all = true;

		copy_make(&c, tnp_make_graph(g));
		for (uint32_t j = 0; j <= i % 3; j++)
			damage(&c, &seed);
		v = calloc(c.g.n_nodes, sizeof *v);
		check = d.ops->model_check(d.dev, &c.g, v, &e);
		for (uint32_t j = 0; j < c.g.n_nodes; j++)
			all &= v[j].ok == 1;
		open = d.ops->model_open(d.dev, &c.g, &lim, &m, &e);
		assert_int_equal(d.ops->model_sizes(d.dev, &c.g, &lim, &sizes, &e), open);
		if (check)
			assert_int_equal(open, check);
		else if (all != (open == TNP_OK))
			fail_msg("verdict and open part: %s", e.text);
		answers[open == TNP_OK]++;
		if (!open)
			ran += step_any(&d, m, &c);
		d.ops->model_close(m);
		copy_free(&c);
		free(v);
	}
	assert_true(answers[0] > 500 && answers[1] > 100 && ran > 100);
	drive_close(&d);
	tnp_make_destroy(g);
}

/* ---- batches --------------------------------------------------------------------------------------- */
/* Three sequences of five tokens each on pages of their own, and every array a test may spoil. */
struct given {
	int32_t token[16], pos[16];
	uint32_t tok0[SEQS + 1], past[SEQS], page0[SEQS + 1], page[2][SEQS], out_tok[SEQS];
	float logits[SEQS * VOCAB];
	tnp_rc rc[SEQS];
	struct tnp_pages pages[2];
	struct tnp_rows rows;
	struct tnp_batch b;
};

static void given_fill(struct given *x)
{
	memset(x, 0, sizeof *x);
	for (uint32_t i = 0; i < 15; i++) {
		x->token[i] = (int32_t)(3 * i + 1);
		x->pos[i] = (int32_t)(i % 5);
	}
	for (uint32_t i = 0; i < SEQS; i++) {
		x->tok0[i + 1] = 5 * (i + 1);
		x->page0[i + 1] = i + 1;
		x->page[0][i] = 2 * i + 1;
		x->page[1][i] = i;
		x->out_tok[i] = 5 * i + 4;
		x->rc[i] = 77;
	}
	for (uint32_t i = 0; i < SEQS * VOCAB; i++)
		x->logits[i] = -99;
	x->pages[0] = (struct tnp_pages){ x->page0, x->page[0] };
	x->pages[1] = (struct tnp_pages){ x->page0, x->page[1] };
	x->rows = (struct tnp_rows){ x->logits, VOCAB };
	x->b = (struct tnp_batch){ .size = sizeof x->b,
		.n_seqs = SEQS,
		.n_tokens = 15,
		.n_out = SEQS,
		.token = x->token,
		.pos = x->pos,
		.tok0 = x->tok0,
		.past = x->past,
		.pages = x->pages,
		.out_tok = x->out_tok,
		.out = &x->rows,
		.seq_rc = x->rc };
}

struct opened {
	struct drive_dev d;
	struct drive_model m;
	struct tnp_make *g;
};

static void opened_make(struct opened *o, const struct drive_arch *a)
{
	o->g = drive_arch_make(a, 3);
	drive_open(&o->d, "cpu", "2", NULL);
	drive_model_open(&o->m, &o->d, o->g, a, TNP_FAST, TNP_F16, PAGE, 0);
}

static void opened_free(struct opened *o)
{
	drive_model_close(&o->m);
	drive_close(&o->d);
	tnp_make_destroy(o->g);
}

static tnp_rc batch(struct opened *o, struct given *x)
{
	struct tnp_error e = { .size = sizeof e };
	uint64_t ticket = 0;
	tnp_rc rc = o->d.ops->batch(o->m.model, o->m.kv, &x->b, &ticket, &e);

	if (rc) {
		assert_int_equal(ticket, 0);
		assert_true(e.rc == rc && e.text[0]);
	} else {
		assert_int_equal(o->d.ops->wait(o->d.dev, ticket, 0, NULL), TNP_OK);
	}
	return rc;
}

typedef void spoil_fn(struct given *x);
static void many_tokens(struct given *x) { x->b.n_tokens = 5000; }
static void many_seqs(struct given *x) { x->b.n_seqs = 5000; }
static void tok0_start(struct given *x) { x->tok0[0] = 1; }
static void tok0_end(struct given *x) { x->tok0[SEQS] = 14; }
static void tok0_falls(struct given *x) { x->tok0[1] = 11; }
static void page0_falls(struct given *x) { x->page0[1] = 3, x->page0[2] = 2; }
static void out_falls(struct given *x) { x->out_tok[1] = 4; }
static void out_range(struct given *x) { x->out_tok[2] = 15; }
static void no_token(struct given *x) { x->b.token = NULL; }
static void no_past(struct given *x) { x->b.past = NULL; }
static void no_rc(struct given *x) { x->b.seq_rc = NULL; }
static void no_pages(struct given *x) { x->b.pages = NULL; }
static void no_list(struct given *x) { x->pages[1].page = NULL; }
static void no_room(struct given *x) { x->rows.stride = VOCAB - 1; }
static void no_rows(struct given *x) { x->rows.data = NULL; }
static void no_size(struct given *x) { x->b.size = 2; }

static void whole_batches(void **state)
{
	static spoil_fn *const spoil[] = { many_tokens, many_seqs, tok0_start, tok0_end, tok0_falls,
		page0_falls, out_falls, out_range, no_token, no_past, no_rc, no_pages, no_list, no_room,
		no_rows, no_size };
	struct opened o;
	struct given x;
	uint64_t ticket;

	(void)state;
	opened_make(&o, &arch);
	for (size_t i = 0; i < sizeof spoil / sizeof spoil[0]; i++) {
		given_fill(&x);
		spoil[i](&x);
		if (batch(&o, &x) != TNP_E_INVALID)
			fail_msg("fault %zu was accepted", i);
		assert_int_equal(x.rc[0], 77);
	}
	given_fill(&x);
	assert_int_equal(o.d.ops->batch(o.m.model, NULL, &x.b, &ticket, NULL), TNP_E_INVALID);
	assert_int_equal(batch(&o, &x), TNP_OK);
	x.b = (struct tnp_batch){ .size = sizeof x.b };
	assert_int_equal(batch(&o, &x), TNP_OK);
	assert_int_equal(o.d.ops->wait(o.d.dev, 1u << 20, 0, NULL), TNP_E_INVALID);
	opened_free(&o);
}

static void low_token(struct given *x) { x->token[7] = -1; }
static void high_token(struct given *x) { x->token[7] = VOCAB; }
static void low_pos(struct given *x) { x->pos[7] = -5; }
static void page_range(struct given *x) { x->page[0][1] = 100000; }
static void page_hole(struct given *x) { x->page[1][1] = TNP_PAGE_HOLE; }
static void far_past(struct given *x) { x->past[1] = 12; }
static void vast_past(struct given *x) { x->past[1] = UINT32_MAX; }

/* The second sequence is bad: it alone fails, its row stays, the others get the bits they get without it. */
static void one_bad_sequence(void **state)
{
	static spoil_fn *const spoil[] = { low_token, high_token, low_pos, page_range, page_hole, far_past,
		vast_past };
	struct opened o;
	struct given good, x;

	(void)state;
	opened_make(&o, &arch);
	given_fill(&good);
	assert_int_equal(batch(&o, &good), TNP_OK);
	for (size_t i = 0; i < sizeof spoil / sizeof spoil[0]; i++) {
		given_fill(&x);
		spoil[i](&x);
		assert_int_equal(batch(&o, &x), TNP_OK);
		if (x.rc[0] || x.rc[1] != TNP_E_INVALID || x.rc[2])
			fail_msg("fault %zu: codes %d %d %d", i, x.rc[0], x.rc[1], x.rc[2]);
		assert_memory_equal(x.logits, good.logits, VOCAB * sizeof(float));
		assert_memory_equal(x.logits + 2 * VOCAB, good.logits + 2 * VOCAB, VOCAB * sizeof(float));
		for (uint32_t j = 0; j < VOCAB; j++)
			assert_true(x.logits[VOCAB + j] == -99);
	}
	given_fill(&x);
	x.page[0][2] = x.page[0][0];
	assert_int_equal(batch(&o, &x), TNP_OK);
	assert_true(x.rc[0] == TNP_E_INVALID && x.rc[1] == TNP_OK && x.rc[2] == TNP_E_INVALID);
	assert_memory_equal(x.logits + VOCAB, good.logits + VOCAB, VOCAB * sizeof(float));
	opened_free(&o);
}

/* ---- pages ------------------------------------------------------------------------------------------ */
static void pages_move(void **state)
{
	struct opened o;
	struct given x;
	float want[VOCAB];
	uint8_t *bytes;
	struct tnp_sizes sizes = { .size = sizeof sizes };

	(void)state;
	opened_make(&o, &arch);
	assert_int_equal(o.d.ops->model_sizes(o.d.dev, tnp_make_graph(o.g), &o.m.lim, &sizes, NULL), TNP_OK);
	given_fill(&x);
	assert_int_equal(batch(&o, &x), TNP_OK);
	x.b.n_seqs = 1, x.b.n_tokens = 1, x.b.n_out = 1;
	x.tok0[1] = 1, x.past[0] = 5, x.pos[0] = 5, x.out_tok[0] = 0;
	assert_int_equal(batch(&o, &x), TNP_OK);
	memcpy(want, x.logits, sizeof want);
	/* five tokens of each page go to others, by copy and through bytes; the step is repeated there */
	assert_int_equal(o.d.ops->kv_copy(o.m.kv, 0, x.page[0][0], 40, 5, NULL), TNP_OK);
	bytes = malloc(sizes.kv_page[1]);
	assert_int_equal(o.d.ops->kv_read(o.m.kv, 1, x.page[1][0], bytes, NULL), TNP_OK);
	assert_int_equal(o.d.ops->kv_write(o.m.kv, 1, 41, bytes, NULL), TNP_OK);
	x.page[0][0] = 40, x.page[1][0] = 41;
	assert_int_equal(batch(&o, &x), TNP_OK);
	assert_memory_equal(x.logits, want, sizeof want);
	/* hostile bytes stay finite */
	memset(bytes, 0xff, sizes.kv_page[1]);
	assert_int_equal(o.d.ops->kv_write(o.m.kv, 1, 41, bytes, NULL), TNP_OK);
	assert_int_equal(batch(&o, &x), TNP_OK);
	for (uint32_t i = 0; i < VOCAB; i++)
		assert_true(isfinite(x.logits[i]));
	assert_int_equal(o.d.ops->kv_copy(o.m.kv, 0, 1, 1, 5, NULL), TNP_E_INVALID);
	assert_int_equal(o.d.ops->kv_copy(o.m.kv, 0, 1, 2, PAGE + 1, NULL), TNP_E_INVALID);
	assert_int_equal(o.d.ops->kv_copy(o.m.kv, 2, 1, 2, 1, NULL), TNP_E_INVALID);
	assert_int_equal(o.d.ops->kv_read(o.m.kv, 0, 1u << 30, bytes, NULL), TNP_E_INVALID);
	free(bytes);
	opened_free(&o);
}

/* ---- numbers that are none --------------------------------------------------------------------------- */
/* A token whose embedding is NaN or infinite spoils its own sequence only: neither those beside it nor those that
 * get its pages later. */
static void not_numbers(void **state)
{
	struct opened o;
	struct given good, x;
	const struct tnp_graph *g;
	float *table;

	(void)state;
	opened_make(&o, &arch);
	g = tnp_make_graph(o.g);
	table = (float *)((uintptr_t)g->buffers[0].data + g->tensors[0].offset);
	for (uint32_t i = 0; i < arch.d; i++)
		table[2 * arch.d + i] = i % 2 ? NAN : INFINITY;
	given_fill(&good);
	assert_int_equal(batch(&o, &good), TNP_OK);
	given_fill(&x);
	x.token[6] = 2;
	assert_int_equal(batch(&o, &x), TNP_OK);
	assert_memory_equal(x.logits, good.logits, VOCAB * sizeof(float));
	assert_memory_equal(x.logits + 2 * VOCAB, good.logits + 2 * VOCAB, VOCAB * sizeof(float));
	given_fill(&x);
	assert_int_equal(batch(&o, &x), TNP_OK);
	assert_memory_equal(x.logits, good.logits, sizeof x.logits);
	opened_free(&o);
}

/* ---- tables and arguments ------------------------------------------------------------------------------ */
static void arguments(void **state)
{
	struct {
		struct tnp_limits l;
		uint64_t more;
	} lim = { .more = 1 };
	struct tnp_error e = { .size = sizeof e };
	struct tnp_model *m;
	struct tnp_kv *kv = NULL;
	struct tnp_kv_spec spec = { .size = sizeof spec, .type = TNP_F32, .page_tokens = PAGE, .n_slots = 2 };
	struct opened o;
	uint64_t before;

	(void)state;
	opened_make(&o, &arch);
	lim.l = o.m.lim;
	lim.l.size = sizeof lim;
	assert_int_equal(
		o.d.ops->model_open(o.d.dev, tnp_make_graph(o.g), &lim.l, &m, &e), TNP_E_UNSUPPORTED);
	lim.more = 0;
	assert_int_equal(o.d.ops->model_open(o.d.dev, tnp_make_graph(o.g), &lim.l, &m, &e), TNP_OK);
	o.d.ops->model_close(m);
	lim.l.workspace_limit = 4096;
	assert_int_equal(o.d.ops->model_open(o.d.dev, tnp_make_graph(o.g), &lim.l, &m, &e), TNP_E_NOMEM);
	lim.l.workspace_limit = 0;
	lim.l.page_tokens = 24;
	assert_int_equal(
		o.d.ops->model_open(o.d.dev, tnp_make_graph(o.g), &lim.l, &m, &e), TNP_E_UNSUPPORTED);
	assert_int_equal(o.d.ops->kv_open(o.m.model, &spec, &kv, &e), TNP_E_INVALID);
	assert_null(kv);
	o.d.ops->kv_close(NULL);
	o.d.ops->model_close(NULL);
	o.d.ops->dev_close(NULL);
	assert_int_equal(o.d.ops->dev_memory(o.d.dev, &before, &e), TNP_OK);
	assert_true(before > 1 << 20);
	opened_free(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_graphs),
		cmocka_unit_test(whole_batches),
		cmocka_unit_test(one_bad_sequence),
		cmocka_unit_test(pages_move),
		cmocka_unit_test(not_numbers),
		cmocka_unit_test(arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
