/* SPDX-License-Identifier: Apache-2.0
 * Graphs of mixtures of experts: what builders make, what the passes make of it, and how layout cuts it again for a backend
 * that takes one matrix at a time.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/arch.h"
#include "engine/pass.h"
#include <string.h>

struct built {
	struct gguf *f;
	struct graph *g;
	const struct tnp_graph *t;
	struct arch_params p;
};

static void build(struct built *b, const char *name, const char *passes, pass_ask_fn *ask)
{
	struct pass_options o = { .ask = ask };
	struct error e = { 0 };
	const struct arch *a;

	assert_int_equal(gguf_open(tiny_path(name), &b->f, &e), TENON_OK);
	assert_int_equal(arch_find(b->f, &a, &e), TENON_OK);
	assert_int_equal(arch_params_read(b->f, a, &b->p, &e), TENON_OK);
	assert_int_equal(graph_create(b->f, &b->g, &e), TENON_OK);
	a->build(b->f, &b->p, b->g);
	assert_int_equal(pass_names_parse(passes, &o.off, &e), TENON_OK);
	graph_passes_run(b->g, &o, NULL);
	b->t = graph_finish(b->g, 64, 8, 4, &e);
	if (!b->t)
		fail_msg("%s: %s", name, e.text);
}

static void finish(struct built *b)
{
	graph_destroy(b->g);
	gguf_close(b->f);
}

static uint32_t count(const struct built *b, uint32_t op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->t->n_nodes; i++)
		n += b->t->nodes[i].op == op;
	return n;
}

static const struct tnp_tensor *input(const struct built *b, const struct tnp_node *n, uint32_t i)
{
	return &b->t->tensors[b->t->edges[n->in0 + i]];
}

/* Every MOE_LINEAR: matrices of all experts, as many as `matrices` says, rows for as many as are used. */
static void check_products(const struct built *b, uint32_t least, uint32_t most)
{
	for (uint32_t i = 0; i < b->t->n_nodes; i++) {
		const struct tnp_node *n = &b->t->nodes[i];
		const struct tnp_tensor *y = &b->t->tensors[b->t->edges[n->out0]];
		int64_t rows = 0;

		if (n->op != TNP_OP_MOE_LINEAR)
			continue;
		assert_true(n->n_in - 2 >= least && n->n_in - 2 <= most);
		assert_int_equal(input(b, n, 1)->type, TNP_I32);
		for (uint32_t j = 2; j < n->n_in; j++) {
			assert_int_equal(input(b, n, j)->rank, 3);
			assert_int_equal(input(b, n, j)->dim[0], b->p.n_experts);
			rows += input(b, n, j)->dim[1];
		}
		assert_int_equal(y->rank, 3);
		assert_int_equal(y->dim[1], b->p.n_experts_used);
		assert_int_equal(y->dim[2], rows);
	}
}

static const struct {
	const char *name;
	uint32_t experts, used, ff;
} models[] = { { "mixtral", 4, 2, 96 }, { "qwen3moe", 16, 5, 32 } };

static void builders_emit_plain_nodes(void **st)
{
	(void)st;
	for (size_t i = 0; i < COUNT_OF(models); i++) {
		struct built b = { 0 };

		build(&b, models[i].name, "-all", NULL);
		assert_int_equal(b.p.n_experts, models[i].experts);
		assert_int_equal(b.p.n_experts_used, models[i].used);
		assert_int_equal(b.p.n_ff_expert, models[i].ff);
		assert_true(b.p.experts_norm);
		assert_int_equal(count(&b, TNP_OP_MOE_ROUTE), b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_MOE_LINEAR), 3 * b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_MOE_SUM), b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_GLU), 0);
		check_products(&b, 1, 1);
		finish(&b);
	}
}

static void gate_and_up_become_one(void **st)
{
	(void)st;
	for (size_t i = 0; i < COUNT_OF(models); i++) {
		struct built b = { 0 };

		build(&b, models[i].name, NULL, NULL);
		assert_int_equal(count(&b, TNP_OP_MOE_LINEAR), 2 * b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_GLU), b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_ACT), 0);
		assert_int_equal(count(&b, TNP_OP_MUL), 0);
		assert_int_equal(count(&b, TNP_OP_ADD), 0); /* all in norms and products */
		check_products(&b, 1, 2);
		finish(&b);
	}
}

/* A backend that takes one matrix of experts at a time. */
static int one_matrix(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	(void)ctx, (void)e;
	for (uint32_t i = 0; i < g->n_nodes; i++)
		v[i].ok = g->nodes[i].op != TNP_OP_MOE_LINEAR || g->nodes[i].n_in <= 3;
	return TENON_OK;
}

static void layout_cuts_them_again(void **st)
{
	(void)st;
	for (size_t i = 0; i < COUNT_OF(models); i++) {
		struct built b = { 0 };

		build(&b, models[i].name, NULL, one_matrix);
		assert_int_equal(count(&b, TNP_OP_MOE_LINEAR), 3 * b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_GLU), 0);
		assert_int_equal(count(&b, TNP_OP_ACT), b.p.n_layers);
		assert_int_equal(count(&b, TNP_OP_MUL), b.p.n_layers);
		check_products(&b, 1, 1);
		finish(&b);
	}
}

/* Keys of the file that cannot be; each takes the place of one of equal length. */
static void numbers_are_checked(void **st)
{
	static const struct {
		const char *from, *to, *want;
	} t[] = {
		{ "llama.expert_used_count", "llama.expert_used_kount", "llama.expert_used_count" },
		{ "blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_imp.weight",
			"tensor 'blk.1.ffn_gate_inp.weight': is missing" },
		{ "blk.0.ffn_down_exps.weight", "blk.0.ffn_down_exbs.weight",
			"tensor 'blk.0.ffn_down_exps.weight': is missing" },
	};

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct built b = { 0 };
		struct error e = { 0 };
		const struct arch *a;
		struct tiny f;
		int rc;

		assert_int_equal(strlen(t[i].from), strlen(t[i].to));
		tiny_load(&f, "mixtral");
		memcpy(tiny_behind(&f, t[i].from) - strlen(t[i].from), t[i].to, strlen(t[i].from));
		tiny_save(&f);
		rc = gguf_open(f.path, &b.f, &e);
		if (!rc)
			rc = arch_find(b.f, &a, &e);
		if (!rc)
			rc = arch_params_read(b.f, a, &b.p, &e);
		if (!rc)
			rc = graph_create(b.f, &b.g, &e);
		if (!rc) {
			a->build(b.f, &b.p, b.g);
			b.t = graph_finish(b.g, 64, 8, 4, &e);
			rc = b.t ? TENON_OK : e.code;
		}
		assert_int_not_equal(rc, TENON_OK);
		if (!strstr(e.text, t[i].want))
			fail_msg("%s: '%s', want '%s'", t[i].from, e.text, t[i].want);
		finish(&b);
		tiny_free(&f);
	}
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(builders_emit_plain_nodes),
		cmocka_unit_test(gate_and_up_become_one),
		cmocka_unit_test(layout_cuts_them_again),
		cmocka_unit_test(numbers_are_checked),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
