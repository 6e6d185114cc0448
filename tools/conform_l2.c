/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 2: operators. What is claimed is run and compared with the reference, what is not claimed must
 * be refused, by verdict and by model_open alike; broken graphs are INVALID everywhere. Nothing may crash.
 */
#include "tools/conform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 40u
#define MAX_WIDTH  4096u

/* ---- running one graph on both -------------------------------------------------------------------------------- */
struct rows {
	float *in, *got[RUN_OUTS], *want[RUN_OUTS];
	int32_t token[MAX_TOKENS];
};

static void rows_make(struct conform *c, struct rows *r, const struct tnp_graph *g, uint64_t *seed)
{
	uint64_t width = g->n_in ? run_width(g, g->in[0]) : 1;

	r->in = calloc(MAX_TOKENS * width, sizeof(float));
	for (uint64_t i = 0; r->in && i < MAX_TOKENS * width; i++)
		r->in[i] = (float)tnp_rand_normal(seed);
	for (uint32_t o = 0; o < RUN_OUTS; o++) {
		uint64_t n = o < g->n_out ? MAX_TOKENS * run_width(g, g->out[o]) : 1;

		r->got[o] = calloc(n, sizeof(float));
		r->want[o] = calloc(n, sizeof(float));
		if (!r->in || !r->got[o] || !r->want[o])
			conform_fail(c, "plugin-conform itself is out of memory");
	}
	for (uint32_t i = 0; i < MAX_TOKENS; i++)
		r->token[i] = (int32_t)(tnp_rand(seed) % 64);
}

static void rows_free(struct rows *r)
{
	free(r->in);
	for (uint32_t o = 0; o < RUN_OUTS; o++) {
		free(r->got[o]);
		free(r->want[o]);
	}
}

/* The rows of one sequence of n tokens starting at token `from` of `r`. */
static struct run_seq part(
	const struct rows *r, const struct tnp_graph *g, uint32_t from, uint32_t n, bool want)
{
	struct run_seq s = { .token = r->token + from, .n = n, .n_out = n };

	if (g->n_in)
		s.in = r->in + from * run_width(g, g->in[0]);
	for (uint32_t o = 0; o < g->n_out; o++)
		s.out[o] = (want ? r->want[o] : r->got[o]) + from * run_width(g, g->out[o]);
	return s;
}

/* Two sequences in one batch, pages one after the other. */
static void run_two(struct conform *c, struct peer *p, const struct tnp_graph *g,
	const struct run_limits *lim, struct rows *r, const uint32_t *n, bool want)
{
	struct tnp_error e = { .size = sizeof e };
	struct run_seq s[2] = { part(r, g, 0, n[0], want), part(r, g, n[0], n[1], want) };
	uint32_t page[2 * MAX_TOKENS], at = 0, n_seqs = n[1] ? 2 : 1;
	struct run_model m;
	tnp_rc rc;

	for (uint32_t i = 0; i < n_seqs; i++) {
		s[i].n_page = (n[i] + lim->page_tokens - 1) / lim->page_tokens;
		s[i].page[0] = page + at;
		for (uint32_t k = 0; k < s[i].n_page; k++, at++)
			page[at] = at;
	}
	rc = run_open(&m, p, g, lim, &e);
	if (rc)
		conform_fail(c, "the verdict is yes, opening says %s: %s", conform_code(rc), e.text);
	rc = run_batch(c, &m, s, n_seqs, &e);
	if (rc || s[0].rc || s[n_seqs - 1].rc)
		conform_fail(c, "claimed, but the batch fails: %s: %s",
			conform_code(rc		  ? rc
					: s[0].rc ? s[0].rc
						  : s[1].rc),
			e.text);
	run_close(&m);
}

static void refused_everywhere(struct conform *c, const struct tnp_graph *g)
{
	struct run_limits r = conform_limits(c);
	struct tnp_error e = { .size = sizeof e };
	struct tnp_sizes sizes = { .size = sizeof sizes };
	struct tnp_model *model = NULL;
	struct tnp_limits lim;
	tnp_rc rc;

	run_limits_set(&lim, &r);
	rc = c->sut.ops->model_open(c->sut.dev, g, &lim, &model, &e);
	if (rc != TNP_E_UNSUPPORTED || model)
		conform_fail(c, "the verdict is no, but model_open says %s, want TNP_E_UNSUPPORTED",
			conform_code(rc));
	rc = c->sut.ops->model_sizes(c->sut.dev, g, &lim, &sizes, &e);
	if (rc != TNP_E_UNSUPPORTED)
		conform_fail(c, "the verdict is no, but model_sizes says %s, want TNP_E_UNSUPPORTED",
			conform_code(rc));
	c->result->n_refused++;
}

/* One random graph of the case; true when the plugin takes it. */
static bool try_one(struct conform *c, const struct op_case *oc, struct op_shape *s, struct run_limits lim)
{
	static const uint8_t n_first[] = { 1, 2, 3, 7, 16, 19, 33 };
	uint32_t n[2] = { n_first[tnp_rand(s->seed) % sizeof n_first], tnp_rand(s->seed) % 8 };
	struct tnp_make *m = tnp_make_create(tnp_rand(s->seed));
	const struct tnp_graph *g;
	struct rows r;
	bool taken;

	if (!m)
		conform_fail(c, "plugin-conform itself is out of memory");
	oc->build(m, s);
	g = tnp_make_graph(m);
	if (!g || !run_taken(&c->ref, g))
		conform_fail(c, "plugin-conform made a graph that the reference does not take");
	taken = run_taken(&c->sut, g);
	if (!taken) {
		refused_everywhere(c, g);
		tnp_make_destroy(m);
		return false;
	}
	rows_make(c, &r, g, s->seed);
	run_two(c, &c->ref, g, &lim, &r, n, true);
	run_two(c, &c->sut, g, &lim, &r, n, false);
	for (uint32_t o = 0; o < g->n_out; o++) {
		double tol = oc->exact_only
			? 1e-5
			: conform_tolerance(lim.precision, oc->pool ? lim.kv_type : TNP_F32);
		uint64_t rows = g->tensors[g->out[o]].dim[0] == TNP_N_SEQS ? 1 : n[0] + n[1];

		conform_near(c, "output", r.got[o], r.want[o], rows * run_width(g, g->out[o]), tol);
	}
	rows_free(&r);
	tnp_make_destroy(m);
	return taken;
}

/* ---- claimed ------------------------------------------------------------------------------------------------------ */
static void claimed_type(struct conform *c, const struct op_case *oc, struct op_shape *s)
{
	uint32_t rounds = c->thorough ? 40 : 6, taken = 0;

	for (uint32_t i = 0; i < rounds; i++)
		for (uint32_t precision = TNP_FAST; precision <= TNP_EXACT; precision++) {
			struct run_limits lim = conform_limits(c);

			lim.precision = precision;
			s->plain = i == 0;
			for (uint32_t k = 0; oc->pool && i % 2 && k < 64; k++)
				if ((c->kv_types >> k & 1) && tnp_rand(s->seed) % 2)
					lim.kv_type = k;
			conform_note(c, "%s %s, %s, KV %s, round %u", oc->name,
				oc->weight ? conform_type_name(s->type) : "",
				precision == TNP_FAST ? "fast" : "exact", conform_type_name(lim.kv_type), i);
			taken += try_one(c, oc, s, lim);
		}
	if (!taken && !oc->variant)
		conform_fail(c, "claimed in op_caps, but no graph with it is taken");
}

/* A matrix type that only feeds the operator under test. */
static uint32_t helper_type(struct conform *c)
{
	bool claimed;
	uint64_t types = conform_claims(c, &c->sut, TNP_OP_LINEAR, &claimed);

	for (uint32_t i = 0; conform_types[i] != UINT32_MAX; i++)
		if (types >> conform_types[i] & 1)
			return conform_types[i];
	return TNP_F32;
}

static void run_case(struct conform *c, const struct op_case *oc)
{
	uint64_t seed = c->seed * 1000003 + (uint64_t)(oc - op_cases);
	struct op_shape s = { .seed = &seed, .type = TNP_F32, .helper = helper_type(c), .block = 1 };
	bool claimed;
	uint64_t types = conform_claims(c, &c->sut, oc->op, &claimed);

	if (!claimed) {
		conform_note(c, "%s, which is not claimed", oc->name);
		if (try_one(c, oc, &s, conform_limits(c)))
			conform_fail(c, "not claimed in op_caps, but taken");
		return;
	}
	if (!oc->weight) {
		claimed_type(c, oc, &s);
		return;
	}
	for (uint32_t i = 0; conform_types[i] != UINT32_MAX; i++) {
		s.type = conform_types[i];
		s.block = conform_block(s.type);
		if (types >> s.type & 1) {
			claimed_type(c, oc, &s);
			continue;
		}
		conform_note(c, "%s %s, which is not claimed", oc->name, conform_type_name(s.type));
		if (try_one(c, oc, &s, conform_limits(c)))
			conform_fail(c, "type not claimed in op_caps, but taken");
	}
}

/* Cases [first, end) of the list, by name. */
static void run_cases(struct conform *c, const char *first, const char *last)
{
	const struct op_case *oc = op_cases;

	conform_open(c);
	while (oc->name && strcmp(oc->name, first))
		oc++;
	for (; oc->name; oc++) {
		run_case(c, oc);
		if (!strcmp(oc->name, last))
			break;
	}
	conform_close(c);
}

static void check_embed(struct conform *c) { run_cases(c, "embed", "embed"); }
static void check_linear(struct conform *c) { run_cases(c, "linear", "linear-stack"); }
static void check_norms(struct conform *c) { run_cases(c, "rmsnorm", "layernorm"); }
static void check_rope(struct conform *c) { run_cases(c, "rope", "rope"); }
static void check_attend(struct conform *c) { run_cases(c, "attend", "attend-all"); }
static void check_elements(struct conform *c) { run_cases(c, "glu", "softcap"); }
static void check_rows(struct conform *c) { run_cases(c, "select", "l2norm"); }
static void check_experts(struct conform *c) { run_cases(c, "experts", "experts"); }
static void check_shapes(struct conform *c) { run_cases(c, "transpose", "reshape"); }

/* ---- nodes outside opset 1 -------------------------------------------------------------------------------------------- */
struct bend { /* a LINEAR node and all it names, to be bent */
	struct tnp_node node;
	struct tnp_attr attr[2];
	struct tnp_tensor tensor[4];
	uint32_t edge[4], in[1], out[1];
	struct tnp_span span;
	struct tnp_graph g;
	float data[64];
};

/* y [n][4] = W [4][8] x [n][8] */
static void bend_init(struct bend *b)
{
	*b = (struct bend){ .node = { .op = TNP_OP_LINEAR, .n_in = 2, .out0 = 2, .n_out = 1, .n_attr = 1 },
		.attr = { { .key = TNP_A_ACT, .v.i = TNP_ACT_NONE } },
		.edge = { 0, 1, 2 },
		.in = { 0 },
		.out = { 2 } };
	b->tensor[0] = (struct tnp_tensor){
		.type = TNP_F32, .rank = 2, .dim = { TNP_N_TOKENS, 8 }, .buffer = TNP_NONE
	};
	b->tensor[1] = (struct tnp_tensor){ .type = TNP_F32, .rank = 2, .dim = { 4, 8 }, .bytes = 128 };
	b->tensor[2] = (struct tnp_tensor){
		.type = TNP_F32, .rank = 2, .dim = { TNP_N_TOKENS, 4 }, .buffer = TNP_NONE
	};
	b->span = (struct tnp_span){ .data = b->data, .bytes = 128, .fd = -1 };
	b->g = (struct tnp_graph){ .size = sizeof b->g,
		.opset = TNP_OPSET,
		.n_tensors = 3,
		.n_nodes = 1,
		.n_edges = 3,
		.n_attrs = 1,
		.n_buffers = 1,
		.n_in = 1,
		.n_out = 1,
		.tensors = b->tensor,
		.nodes = &b->node,
		.attrs = b->attr,
		.edges = b->edge,
		.buffers = &b->span,
		.in = b->in,
		.out = b->out };
}

static void bend_no(struct conform *c, struct bend *b, const char *what)
{
	struct tnp_verdict v = { 0 };
	tnp_rc rc;

	conform_note(c, "a node with %s", what);
	rc = c->sut.ops->model_check(c->sut.dev, &b->g, &v, NULL);
	if (rc)
		conform_fail(
			c, "model_check says %s; a node that is not known is a verdict", conform_code(rc));
	if (v.ok)
		conform_fail(c, "taken");
	if (!memchr(v.text, 0, sizeof v.text))
		conform_fail(c, "the verdict's text is not terminated");
	refused_everywhere(c, &b->g);
	bend_init(b);
}

static void check_unknown(struct conform *c)
{
	struct bend b;

	conform_open(c);
	bend_init(&b);
	b.node.op = 7777;
	bend_no(c, &b, "an operator from the future");
	b.node.op = 0;
	bend_no(c, &b, "operator 0");
	b.node.flags = 1;
	bend_no(c, &b, "an unknown flag");
	b.attr[0].key = 31;
	bend_no(c, &b, "an attribute from the future");
	b.attr[0].key = 1u << 31;
	bend_no(c, &b, "an attribute with a huge number");
	b.attr[0].key = TNP_A_EPS, b.attr[0].is_float = 1;
	bend_no(c, &b, "an attribute of another operator");
	b.attr[0].is_float = 1;
	bend_no(c, &b, "an integer attribute given as float");
	b.attr[0].v.i = 99;
	bend_no(c, &b, "an unknown activation function");
	b.node.n_in = 1;
	bend_no(c, &b, "no weight");
	b.node.out0 = 0, b.node.n_out = 0;
	b.g.out = b.in;
	bend_no(c, &b, "no output");
	b.tensor[1].dim[1] = 4, b.tensor[1].dim[0] = 8;
	bend_no(c, &b, "a matrix the wrong way round");
	b.tensor[2].dim[1] = 5;
	bend_no(c, &b, "an output too wide");
	b.tensor[2].dim[0] = TNP_N_SEQS;
	bend_no(c, &b, "other rows going out than in");
	b.tensor[1].type = 77;
	bend_no(c, &b, "a weight of an unknown type");
	conform_close(c);
}

/* ---- graphs that cannot be followed ------------------------------------------------------------------------------------- */
/* INVALID, or no verdict of yes and then UNSUPPORTED: never taken. */
static void not_taken(struct conform *c, const char *what, tnp_rc rc)
{
	if (rc != TNP_E_INVALID && rc != TNP_E_UNSUPPORTED)
		conform_fail(
			c, "%s says %s, want TNP_E_INVALID or TNP_E_UNSUPPORTED", what, conform_code(rc));
}

static void bend_invalid(struct conform *c, struct bend *b, const char *what)
{
	struct run_limits r = conform_limits(c);
	struct tnp_sizes sizes = { .size = sizeof sizes };
	struct tnp_verdict v[2] = { { 0 } };
	struct tnp_model *model = NULL;
	struct tnp_limits lim;
	tnp_rc rc;

	conform_note(c, "a graph with %s", what);
	run_limits_set(&lim, &r);
	rc = c->sut.ops->model_check(c->sut.dev, &b->g, v, NULL);
	if (rc ? rc != TNP_E_INVALID : v[0].ok)
		conform_fail(c, "model_check says %s%s, want TNP_E_INVALID or the verdict no",
			conform_code(rc), rc ? "" : " and yes");
	not_taken(c, "model_sizes", c->sut.ops->model_sizes(c->sut.dev, &b->g, &lim, &sizes, NULL));
	not_taken(c, "model_open", c->sut.ops->model_open(c->sut.dev, &b->g, &lim, &model, NULL));
	if (model)
		conform_fail(c, "model_open fails but writes a handle");
	c->result->n_cases++;
	bend_init(b);
}

static void check_broken(struct conform *c)
{
	struct bend b;

	conform_open(c);
	bend_init(&b);
	b.edge[0] = 3;
	bend_invalid(c, &b, "an edge to a tensor that is not there");
	b.node.in0 = 0xfffffff0u;
	bend_invalid(c, &b, "inputs past the edges");
	b.node.n_out = 0xffffffffu;
	bend_invalid(c, &b, "four billion outputs");
	b.node.attr0 = 1;
	bend_invalid(c, &b, "attributes past the array");
	b.tensor[1].buffer = 1;
	bend_invalid(c, &b, "a weight in a buffer that is not there");
	b.tensor[1].offset = 4;
	bend_invalid(c, &b, "a weight that runs past its buffer");
	b.tensor[1].offset = UINT64_MAX - 60;
	bend_invalid(c, &b, "a weight whose end wraps around");
	b.tensor[1].bytes = 64;
	bend_invalid(c, &b, "bytes that do not follow from the shape");
	b.tensor[1].dim[0] = INT64_MAX / 4;
	bend_invalid(c, &b, "more elements than 64 bits count");
	b.tensor[1].dim[0] = 0;
	bend_invalid(c, &b, "a dimension of zero");
	b.tensor[0].dim[0] = -9;
	bend_invalid(c, &b, "an unknown symbol");
	b.tensor[0].rank = 5;
	bend_invalid(c, &b, "rank 5");
	b.tensor[0].rank = 0;
	bend_invalid(c, &b, "rank 0");
	b.g.n_in = 0;
	bend_invalid(c, &b, "a tensor read that nothing wrote");
	b.edge[2] = 0;
	bend_invalid(c, &b, "a tensor written twice");
	b.out[0] = 3;
	bend_invalid(c, &b, "an output that is not there");
	b.g.n_out = 0;
	bend_invalid(c, &b, "no outputs");
	b.g.tensors = NULL;
	bend_invalid(c, &b, "an array missing");
	conform_close(c);
}

const struct conform_check conform_l2[] = {
	{ 2, "operators.embed", check_embed },
	{ 2, "operators.linear", check_linear },
	{ 2, "operators.norms", check_norms },
	{ 2, "operators.rope", check_rope },
	{ 2, "operators.attend", check_attend },
	{ 2, "operators.elements", check_elements },
	{ 2, "operators.rows", check_rows },
	{ 2, "operators.experts", check_experts },
	{ 2, "operators.shapes", check_shapes },
	{ 2, "operators.unknown", check_unknown },
	{ 2, "operators.broken", check_broken },
	{ 2, NULL, NULL },
};
