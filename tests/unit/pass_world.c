/* SPDX-License-Identifier: Apache-2.0
 * pass_world.h.
 */
#include "tests/unit/pass_world.h"
#include "tests/unit/tnp_make.h"
#include <math.h>

/* ---- the world ------------------------------------------------------------------------------------------------------ */

int world_open(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct error e = { 0 };

	if (!w || tiny_plugins(&w->plugins) || backend_open(w->plugins, "ref", 0, &w->ref, &e) ||
		gguf_open(tiny_path("f32"), &w->file, &e)) {
		(void)fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	*state = w;
	return 0;
}

int world_close(void **state)
{
	struct world *w = *state;

	gguf_close(w->file);
	backend_close(w->ref);
	plugins_close(w->plugins);
	free(w);
	return 0;
}

void world_make(struct world *w, world_build_fn *build, uint64_t seed, const char *passes, pass_ask_fn *ask,
	void *ctx, struct world_graph *out)
{
	struct pass_options o = { .ask = ask, .ctx = ctx };
	struct error e = { 0 };

	*out = (struct world_graph){ 0 };
	assert_int_equal(pass_names_parse(passes, &o.off, &e), TENON_OK);
	assert_int_equal(graph_create(w->file, &out->g, &e), TENON_OK);
	build(out->g, seed);
	graph_passes_run(out->g, &o, &out->report);
	out->t = graph_finish(out->g, WORLD_TOKENS, WORLD_SEQS, WORLD_OUT, &e);
	if (!out->t)
		fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
}

void world_free(struct world_graph *w)
{
	graph_destroy(w->g);
	*w = (struct world_graph){ 0 };
}

void world_shape(const struct tnp_graph *t, char *out, size_t room)
{
	size_t at = 0;

	*out = 0;
	for (uint32_t i = 0; i < t->n_nodes && at < room; i++) {
		const struct tnp_node *n = &t->nodes[i];
		uint32_t weights = 0;

		for (uint32_t j = 0; j < n->n_in; j++)
			weights += t->tensors[t->edges[n->in0 + j]].buffer != TNP_NONE;
		at += (size_t)snprintf(out + at, room - at, "%s%s %u+%u>%u", i ? ", " : "",
			graph_op_name(n->op), n->n_in - weights, weights, n->n_out);
	}
}

/* ---- running ---------------------------------------------------------------------------------------------------------- */

static void open_pool(const struct graph *g, struct backend_model *m)
{
	struct error e = { 0 };
	struct graph_slots s;
	struct tnp_kv_spec spec = { .size = sizeof spec, .type = TNP_F32, .page_tokens = 16 };

	assert_int_equal(graph_slots(g, &s, &e), TENON_OK);
	spec.n_slots = s.n;
	spec.slots = s.slot;
	for (uint32_t i = 0; i < s.n_groups; i++)
		spec.n_pages[i] = WORLD_SEQS;
	if (s.n && backend_kv_open(m, &spec, &e))
		fail_msg("%s", e.text);
	mem_free(s.slot);
}

static uint32_t rows_of(const struct tnp_tensor *x)
{
	return x->dim[0] == TNP_N_TOKENS ? WORLD_TOKENS : x->dim[0] == TNP_N_SEQS ? WORLD_SEQS : WORLD_OUT;
}

static size_t batch(struct backend_model *m, const struct tnp_graph *t, float *out, size_t room)
{
	static const int32_t token[WORLD_TOKENS] = { 3, 1, 4, 1, 5 }, pos[WORLD_TOKENS] = { 0, 1, 2, 0, 1 };
	static const uint32_t tok0[] = { 0, 3, 5 }, past[] = { 0, 0 }, page0[] = { 0, 1, 2 },
			      page[] = { 1, 0 }, rows[] = { 1, 4 };
	struct tnp_pages pages[TNP_MAX_GROUPS];
	struct tnp_rows to[4];
	tnp_rc seq_rc[WORLD_SEQS];
	float in[WORLD_TOKENS * WORLD_WIDTH];
	struct error e = { 0 };
	size_t at = 0;

	for (size_t i = 0; i < COUNT_OF(in); i++)
		in[i] = (float)sin(1.0 + 0.7 * (double)i);
	for (size_t i = 0; i < TNP_MAX_GROUPS; i++)
		pages[i] = (struct tnp_pages){ page0, page };
	for (uint32_t i = 0; i < t->n_out; i++) {
		const struct tnp_tensor *x = &t->tensors[t->out[i]];
		uint64_t width = 1;

		for (uint32_t d = 1; d < x->rank; d++)
			width *= (uint64_t)x->dim[d];
		to[i] = (struct tnp_rows){ out + at, width };
		at += width * rows_of(x);
		assert_true(at <= room);
	}
	if (backend_batch(m,
		    &(struct tnp_batch){ .size = sizeof(struct tnp_batch),
			    .n_seqs = WORLD_SEQS,
			    .n_tokens = WORLD_TOKENS,
			    .n_out = WORLD_OUT,
			    .token = token,
			    .pos = pos,
			    .tok0 = tok0,
			    .past = past,
			    .pages = pages,
			    .out_tok = rows,
			    .in = t->n_in ? in : NULL,
			    .out = to,
			    .seq_rc = seq_rc },
		    &e))
		fail_msg("%s", e.text);
	assert_true(seq_rc[0] == TNP_OK && seq_rc[1] == TNP_OK);
	return at;
}

size_t world_run(struct world *w, const struct world_graph *g, float *out, size_t room)
{
	struct tnp_limits lim = { .size = sizeof lim,
		.precision = TNP_EXACT,
		.max_tokens = WORLD_TOKENS,
		.max_seqs = WORLD_SEQS,
		.max_out = WORLD_OUT,
		.max_pages_per_seq = 1,
		.kv_type = TNP_F32,
		.page_tokens = 16 };
	struct tnp_verdict *v = calloc(g->t->n_nodes, sizeof *v);
	struct backend_model *m = NULL;
	struct error e = { 0 };
	char name[96];
	size_t n;

	if (backend_model_check(w->ref, g->t, v, &e))
		fail_msg("%s", e.text);
	for (uint32_t i = 0; i < g->t->n_nodes; i++)
		if (!v[i].ok) {
			graph_node_name(g->g, i, name, sizeof name);
			fail_msg("node %u, %s: %s", i, name, v[i].text);
		}
	free(v);
	if (backend_model_open(w->ref, g->t, &lim, NULL, &m, &e))
		fail_msg("%s", e.text);
	open_pool(g->g, m);
	n = batch(m, g->t, out, room);
	backend_model_close(m);
	return n;
}

/* ---- parts ---------------------------------------------------------------------------------------------------------------- */

static graph_tensor weight(struct graph *g, uint32_t rank, int64_t d0, int64_t d1, uint64_t seed)
{
	size_t n = (size_t)(d0 * (rank == 2 ? d1 : 1));
	float *v = calloc(n, sizeof *v);
	graph_tensor t;

	assert_non_null(v);
	for (size_t i = 0; i < n; i++)
		v[i] = (float)(tnp_rand_normal(&seed) / (rank == 2 ? sqrt((double)d1) : 1) + (rank == 1));
	t = graph_constant_shaped(g, v, rank, (int64_t[TNP_MAX_RANK]){ d0, d1 });
	free(v);
	return t;
}

graph_tensor world_matrix(struct graph *g, uint32_t rows, uint32_t columns, uint64_t seed)
{
	return weight(g, 2, rows, columns, seed);
}

graph_tensor world_vector(struct graph *g, uint32_t n, uint64_t seed) { return weight(g, 1, n, 0, seed); }

graph_tensor world_input(struct graph *g)
{
	graph_tensor x = graph_rows(g, TNP_N_TOKENS, WORLD_WIDTH);

	graph_in(g, x);
	return x;
}

graph_tensor world_linear(struct graph *g, graph_tensor x, uint32_t rows, uint64_t seed)
{
	return graph_linear(
		g, x, world_matrix(g, rows, (uint32_t)graph_width(g, x), seed), TNP_NONE, TNP_NONE);
}

graph_tensor world_act(struct graph *g, graph_tensor x, int64_t act)
{
	graph_tensor y = graph_unary(g, TNP_OP_ACT, x);

	graph_attr_int(g, TNP_A_ACT, act);
	return y;
}

graph_tensor world_scale(struct graph *g, graph_tensor x, double s)
{
	graph_tensor y = graph_unary(g, TNP_OP_SCALE, x);

	graph_attr_float(g, TNP_A_SCALE, s);
	return y;
}

graph_tensor world_rope(struct graph *g, graph_tensor x, graph_tensor factors, double scale)
{
	graph_tensor y = graph_rows(g, graph_symbol(g, x), graph_width(g, x)), in[] = { x, factors };

	graph_node(g, TNP_OP_ROPE, in, 2, &y, 1);
	graph_attr_int(g, TNP_A_HEADS, graph_width(g, x) / 4);
	graph_attr_int(g, TNP_A_HEAD_DIM, 4);
	graph_attr_int(g, TNP_A_ROPE_MODE, TNP_ROPE_HALVES);
	if (scale != 1)
		graph_attr_float(g, TNP_A_SCALE, scale);
	return y;
}

graph_tensor world_attend(struct graph *g, graph_tensor q, graph_tensor k, graph_tensor v, int64_t slot)
{
	const struct tnp_tensor *t = &g->tensors[q];
	int64_t width = t->rank == 3 ? t->dim[1] * t->dim[2] : t->dim[1],
		kv = g->tensors[v].rank == 3 ? g->tensors[v].dim[1] * g->tensors[v].dim[2]
					     : g->tensors[v].dim[1];
	graph_tensor y = graph_rows(g, TNP_N_TOKENS, width), in[] = { q, k, v };

	graph_node(g, TNP_OP_ATTEND, in, 3, &y, 1);
	graph_attr_int(g, TNP_A_HEADS, width / 4);
	graph_attr_int(g, TNP_A_KV_HEADS, kv / 4);
	graph_attr_int(g, TNP_A_HEAD_DIM, 4);
	if (slot >= 0)
		graph_attr_int(g, TNP_A_SLOT, slot);
	else
		graph_attr_int(g, TNP_A_CAUSAL, 0);
	return y;
}

static graph_tensor reshape(struct graph *g, graph_tensor x, uint32_t rank, int64_t d1, int64_t d2)
{
	graph_tensor y = graph_rows(g, g->tensors[x].dim[0], d1);

	if (y == TNP_NONE)
		return y;
	g->tensors[y].rank = rank;
	g->tensors[y].dim[2] = rank == 3 ? d2 : 0;
	graph_node(g, TNP_OP_RESHAPE, &x, 1, &y, 1);
	return y;
}

graph_tensor world_split(struct graph *g, graph_tensor x)
{
	return reshape(g, x, 3, 2, graph_width(g, x) / 2);
}

graph_tensor world_join(struct graph *g, graph_tensor x)
{
	return reshape(g, x, 2, g->tensors[x].dim[1] * g->tensors[x].dim[2], 0);
}

/* ---- at random --------------------------------------------------------------------------------------------------------------- */

enum { MOST = 64 };

struct draw {
	struct graph *g;
	uint64_t seed;
	graph_tensor rows[MOST]; /* [tokens][width], width 8 or 16 */
	uint32_t n, slots;
};

static uint32_t below(struct draw *d, uint32_t n) { return (uint32_t)(tnp_rand(&d->seed) % n); }

static graph_tensor any(struct draw *d)
{
	uint32_t back = 1 + below(d, 6);

	return d->rows[d->n - MIN_OF(d->n, back)];
}

/* Another of x's width, perhaps x. */
static graph_tensor like(struct draw *d, graph_tensor x)
{
	for (uint32_t i = 0; i < 8; i++) {
		graph_tensor y = d->rows[below(d, d->n)];

		if (graph_width(d->g, y) == graph_width(d->g, x))
			return y;
	}
	return x;
}

static graph_tensor norm(struct draw *d, graph_tensor x)
{
	uint32_t op = below(d, 2) ? TNP_OP_RMSNORM : TNP_OP_LAYERNORM, w = (uint32_t)graph_width(d->g, x);
	graph_tensor y = graph_rows(d->g, TNP_N_TOKENS, w), in[] = { x, world_vector(d->g, w, below(d, 4)) };

	graph_node(d->g, op, in, 2, &y, 1);
	graph_attr_float(d->g, TNP_A_EPS, 1e-5);
	return y;
}

static graph_tensor transpose(struct draw *d, graph_tensor x)
{
	const struct tnp_tensor t = d->g->tensors[x];
	graph_tensor y = graph_rows(d->g, t.dim[0], t.dim[2]);

	d->g->tensors[y].rank = 3;
	d->g->tensors[y].dim[2] = t.dim[1];
	graph_node(d->g, TNP_OP_TRANSPOSE, &x, 1, &y, 1);
	graph_attr_int(d->g, TNP_A_AXES, 0x120);
	return y;
}

static graph_tensor twisted(struct draw *d, graph_tensor x)
{
	graph_tensor y = world_split(d->g, x);

	for (uint32_t i = below(d, 4); i > 0; i--)
		y = transpose(d, y);
	return world_join(d->g, y);
}

static graph_tensor attention(struct draw *d, graph_tensor x)
{
	uint32_t shared = below(d, 4), kinds = below(d, 4);
	graph_tensor q = world_linear(d->g, x, 8, below(d, 9)), k = world_linear(d->g, x, 8, below(d, 9)),
		     v = world_linear(d->g, shared ? x : like(d, x), 8, below(d, 9)),
		     f = kinds == 1 ? world_vector(d->g, 2, 5) : TNP_NONE;

	if (kinds) {
		q = world_rope(d->g, q, f, kinds == 2 ? 0.5 : 1);
		k = world_rope(d->g, k, f, kinds == 2 ? 0.5 : 1);
	}
	if (!below(d, 3))
		q = world_scale(d->g, q, 0.75);
	return world_attend(d->g, q, k, v, below(d, 3) ? (int64_t)d->slots++ : -1);
}

static graph_tensor gated(struct draw *d, graph_tensor x)
{
	bool biased = below(d, 2);
	graph_tensor w[2] = { world_matrix(d->g, 16, (uint32_t)graph_width(d->g, x), 21),
		world_matrix(d->g, 16, (uint32_t)graph_width(d->g, x), 22) },
		     b[2] = { TNP_NONE, TNP_NONE };

	if (biased)
		b[0] = world_vector(d->g, 16, 23);
	if (biased && below(d, 2))
		b[1] = world_vector(d->g, 16, 24);
	return graph_glu(d->g, x, w, b, 1 + below(d, 4));
}

static graph_tensor plain(struct draw *d, graph_tensor x)
{
	uint32_t w = (uint32_t)graph_width(d->g, x);
	graph_tensor y;

	switch (below(d, 6)) {
	case 0:
		return graph_binary(d->g, TNP_OP_ADD, x, world_vector(d->g, w, below(d, 3)));
	case 1:
		return world_act(d->g, x, below(d, 5));
	case 2:
		return world_scale(d->g, x, below(d, 3) ? 0.5 : 1);
	case 3:
		y = graph_unary(d->g, TNP_OP_SOFTCAP, x);
		graph_attr_float(d->g, TNP_A_CAP, 2);
		return y;
	case 4:
		return graph_binary(d->g, TNP_OP_MUL, x, like(d, x));
	default:
		return graph_binary(d->g, TNP_OP_ADD, like(d, x), x);
	}
}

static graph_tensor next(struct draw *d)
{
	graph_tensor x = any(d);

	switch (below(d, 8)) {
	case 0:
	case 1:
		return world_linear(d->g, x, below(d, 2) ? 8 : 16, below(d, 4));
	case 2:
		return norm(d, x);
	case 3:
		return twisted(d, x);
	case 4:
		return attention(d, norm(d, x));
	case 5:
		return gated(d, x);
	default:
		return plain(d, x);
	}
}

void world_random(struct graph *g, uint64_t seed)
{
	struct draw d = { .g = g, .seed = seed * 77 + 1 };
	uint32_t steps = 4 + below(&d, 12), outs = 1 + below(&d, 3);
	bool taken[MOST] = { false };

	d.rows[d.n++] = world_input(g);
	for (uint32_t i = 0; i < steps; i++)
		d.rows[d.n++] = next(&d);
	graph_out(g, norm(&d, d.rows[d.n - 1]));
	for (uint32_t i = 1; i < outs; i++) {
		uint32_t k = 1 + below(&d, d.n - 1);

		if (!taken[k])
			graph_out(g, i == 2 ? graph_select(g, d.rows[k]) : d.rows[k]);
		taken[k] = true;
	}
}
