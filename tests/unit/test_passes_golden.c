/* SPDX-License-Identifier: Apache-2.0
 * What the passes make of each architecture's plain graph, node for node against tests/data/passes: those graphs were built
 * fused by hand before there were passes, so speed and bits of an architecture hang on them. fuse_residual_norm came later
 * and is left out there; gemma3, which it changes, is counted with it.
 */
#include "tests/unit/graph_text.h"
#include "tests/unit/tiny.h"
#include "engine/arch.h"
#include "engine/pass.h"

struct built {
	struct gguf *f;
	struct graph *g;
	const struct tnp_graph *t;
	struct pass_report report;
};

static void build(struct built *b, const char *name, const char *passes)
{
	struct pass_options o = { 0 };
	struct error e = { 0 };
	const struct arch *a;
	struct arch_params p;

	assert_int_equal(gguf_open(tiny_path(name), &b->f, &e), TENON_OK);
	assert_int_equal(arch_find(b->f, &a, &e), TENON_OK);
	assert_int_equal(arch_params_read(b->f, a, &p, &e), TENON_OK);
	assert_int_equal(graph_create(b->f, &b->g, &e), TENON_OK);
	a->build(b->f, &p, b->g);
	assert_int_equal(pass_names_parse(passes, &o.off, &e), TENON_OK);
	graph_passes_run(b->g, &o, &b->report);
	b->t = graph_finish(b->g, 64, 8, 4, &e);
	if (!b->t)
		fail_msg("%s: %s", name, e.text);
}

static void finish(struct built *b)
{
	graph_destroy(b->g);
	gguf_close(b->f);
}

static char *golden(const char *name)
{
	char rel[64], *text = calloc(1, 1 << 16);
	FILE *f;

	(void)snprintf(rel, sizeof rel, "tests/data/passes/%s.txt", name);
	f = fopen(unit_src(rel), "re");
	if (!f || !text)
		fail_msg("%s: cannot be read", rel);
	assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
	(void)fclose(f);
	return text;
}

/* The first line that differs. */
static void same_text(const char *name, const char *got, const char *want)
{
	uint32_t line = 1;

	while (*got || *want) {
		size_t n = strcspn(got, "\n"), m = strcspn(want, "\n");

		if (n != m || memcmp(got, want, n))
			fail_msg("%s, node %u:\n  got  %.*s\n  want %.*s", name, line, (int)n, got, (int)m,
				want);
		got += n + (got[n] == '\n');
		want += m + (want[m] == '\n');
		line++;
	}
}

static void optimised_graphs_are_as_built_by_hand(void **st)
{
	static const char *const names[] = { "f32", "q4_1", "scaled", "factors", "gemma3", "qwen2", "qwen3" };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct built b = { 0 };
		char *want = golden(names[i]);
		struct buf text;

		build(&b, names[i], "-fuse_residual_norm");
		buf_init(&text, MEM_TOOL, 0);
		graph_text(b.g, b.t, &text);
		assert_false(text.failed);
		same_text(names[i], text.data, want);
		buf_finish(&text);
		finish(&b);
		free(want);
	}
}

static uint32_t count(const struct tnp_graph *t, uint32_t op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n_nodes; i++)
		n += t->nodes[i].op == op;
	return n;
}

static void norms_behind_sums_take_them(void **st)
{
	struct built b = { 0 }, without = { 0 };

	(void)st;
	build(&b, "gemma3", NULL);
	build(&without, "gemma3", "-fuse_residual_norm");
	assert_int_equal(count(without.t, TNP_OP_ADD), 2 * 4);
	assert_int_equal(count(b.t, TNP_OP_ADD), 0);
	assert_int_equal(count(b.t, TNP_OP_RMSNORM), count(without.t, TNP_OP_RMSNORM));
	assert_int_equal(b.t->n_nodes + 2 * 4, without.t->n_nodes);
	finish(&b);
	finish(&without);
}

/* With everything off the graph is the builder's. */
static void off_is_off(void **st)
{
	struct built b = { 0 };

	(void)st;
	build(&b, "gemma3", "-all");
	assert_int_equal(b.report.n_before, b.report.n_after);
	assert_int_equal(b.report.rounds, 1);
	assert_int_equal(count(b.t, TNP_OP_ROPE), 2 * 4);
	assert_int_equal(count(b.t, TNP_OP_MUL), 4);
	assert_int_equal(count(b.t, TNP_OP_SCALE), 1);
	finish(&b);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(optimised_graphs_are_as_built_by_hand),
		cmocka_unit_test(norms_behind_sums_take_them),
		cmocka_unit_test(off_is_off),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
