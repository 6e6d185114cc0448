/* SPDX-License-Identifier: Apache-2.0
 * The graph builder, the memory plan, and the llama graph of the tiny model.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/arch.h"
#include "engine/graph.h"
#include "engine/graph_cost.h"
#include "engine/pass.h"

struct built {
	struct gguf *f;
	struct graph *g;
	const struct tnp_graph *t;
	struct arch_params p;
};

static int build_passed(struct built *b, const char *path, uint32_t max_tokens,
	const struct pass_options *passes, struct error *e)
{
	const struct arch *a;
	int rc = gguf_open(path, &b->f, e);

	if (!rc)
		rc = arch_find(b->f, &a, e);
	if (!rc)
		rc = arch_params_read(b->f, a, &b->p, e);
	if (!rc)
		rc = graph_create(b->f, &b->g, e);
	if (rc)
		return rc;
	a->build(b->f, &b->p, b->g);
	if (passes)
		graph_passes_run(b->g, passes, NULL);
	b->t = graph_finish(b->g, max_tokens, 8, 4, e);
	return b->t ? TENON_OK : e->code;
}

static int build(struct built *b, const char *path, uint32_t max_tokens, struct error *e)
{
	return build_passed(b, path, max_tokens, NULL, e);
}

static void finish(struct built *b)
{
	graph_destroy(b->g);
	gguf_close(b->f);
	*b = (struct built){ 0 };
}

/* First and last node of a tensor's life, found again without the planner. */
static void life(const struct tnp_graph *t, uint32_t tensor, uint32_t *first, uint32_t *last)
{
	*first = UINT32_MAX;
	*last = 0;
	for (uint32_t i = 0; i < t->n_nodes; i++) {
		const struct tnp_node *n = &t->nodes[i];

		for (uint32_t j = 0; j < n->n_in; j++)
			if (t->edges[n->in0 + j] == tensor)
				*last = i;
		for (uint32_t j = 0; j < n->n_out; j++)
			if (t->edges[n->out0 + j] == tensor) {
				*first = i;
				*last = MAX_OF(*last, i);
			}
	}
	for (uint32_t i = 0; i < t->n_out; i++)
		if (t->out[i] == tensor)
			*last = t->n_nodes;
}

static void check_plan(const struct built *b)
{
	for (uint32_t i = 0; i < b->t->n_tensors; i++) {
		const struct tnp_tensor *x = &b->t->tensors[i];
		uint32_t f1, l1, f2, l2;

		if (x->buffer != TNP_NONE)
			continue;
		life(b->t, i, &f1, &l1);
		assert_int_equal(x->offset % 64, 0);
		assert_true(x->offset + x->bytes <= b->t->arena_bytes);
		for (uint32_t k = 0; k < i; k++) {
			const struct tnp_tensor *y = &b->t->tensors[k];

			life(b->t, k, &f2, &l2);
			if (y->buffer == TNP_NONE && f1 <= l2 && f2 <= l1)
				assert_true(x->offset + x->bytes <= y->offset ||
					y->offset + y->bytes <= x->offset);
		}
	}
	assert_true(b->t->arena_bytes >= graph_live_bytes(b->g));
	assert_true((double)b->t->arena_bytes <= 1.05 * (double)graph_live_bytes(b->g));
}

/* Every architecture, as built and behind the passes, for steps of any length. */
static void plans_are_sound_and_tight(void **st)
{
	static const char *const names[] = { "q4_1", "scaled", "gemma3", "gemma3_27b", "qwen2", "qwen3",
		"phi3", "bert", "nomic_bert" };
	static const uint32_t tokens[] = { 1, 5, 64, 512 };
	const struct pass_options all = { 0 };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(names) * COUNT_OF(tokens) * 2; i++) {
		struct built b = { 0 };
		struct error e = { 0 };

		assert_int_equal(build_passed(&b, tiny_path(names[i / 2 % COUNT_OF(names)]),
					 tokens[i / 2 / COUNT_OF(names)], i % 2 ? &all : NULL, &e),
			TENON_OK);
		check_plan(&b);
		finish(&b);
	}
}

static void every_edge_is_written_before_it_is_read(void **st)
{
	struct built b = { 0 };
	struct error e = { 0 };
	bool written[4096] = { false };

	(void)st;
	assert_int_equal(build(&b, tiny_path("q4_1"), 64, &e), TENON_OK);
	assert_true(b.t->n_tensors < COUNT_OF(written));
	for (uint32_t i = 0; i < b.t->n_nodes; i++) {
		const struct tnp_node *n = &b.t->nodes[i];
		bool weights = false;

		assert_string_not_equal(graph_op_name(n->op), "?");
		for (uint32_t j = 0; j < n->n_in; j++) {
			uint32_t x = b.t->edges[n->in0 + j];

			assert_true(b.t->tensors[x].buffer != TNP_NONE || written[x]);
			assert_false(
				weights && b.t->tensors[x].buffer == TNP_NONE); /* activations come first */
			weights |= b.t->tensors[x].buffer != TNP_NONE;
		}
		for (uint32_t j = 0; j < n->n_out; j++) {
			assert_false(written[b.t->edges[n->out0 + j]]);
			written[b.t->edges[n->out0 + j]] = true;
		}
	}
	assert_true(written[b.t->out[0]]);
	finish(&b);
}

static uint32_t count_ops(const struct tnp_graph *t, uint32_t op)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n_nodes; i++)
		n += t->nodes[i].op == op;
	return n;
}

static void llama_has_the_nodes_it_should(void **st)
{
	struct built b = { 0 };
	struct error e = { 0 };
	char name[64];

	(void)st;
	assert_int_equal(build(&b, tiny_path("q4_1"), 64, &e), TENON_OK);
	assert_int_equal(b.p.n_layers, 3);
	assert_int_equal(count_ops(b.t, TNP_OP_ATTEND), 3);
	assert_int_equal(count_ops(b.t, TNP_OP_RMSNORM), 7);
	assert_int_equal(count_ops(b.t, TNP_OP_SELECT), 2);
	assert_int_equal(count_ops(b.t, TNP_OP_LINEAR), 7 * 3 + 1); /* plain: the passes come later */
	assert_int_equal(count_ops(b.t, TNP_OP_ROPE), 2 * 3);
	assert_int_equal(b.t->n_buffers, 1);
	assert_int_equal(graph_symbol(b.g, b.t->out[0]), TNP_N_OUT);
	assert_int_equal(graph_width(b.g, b.t->out[0]), b.p.n_vocab);
	graph_node_name(b.g, 1, name, sizeof name);
	assert_string_equal(name, "layer 0, attn: RMSNORM");
	finish(&b);
}

static void untied_head_is_another_tensor(void **st)
{
	struct built b = { 0 };
	struct error e = { 0 };
	const struct tnp_node *head, *embed;

	(void)st;
	assert_int_equal(build(&b, tiny_path("q8_0"), 64, &e), TENON_OK);
	embed = &b.t->nodes[0];
	head = &b.t->nodes[b.t->n_nodes - 1];
	assert_int_not_equal(b.t->edges[embed->in0], b.t->edges[head->in0 + 1]);
	finish(&b);
	assert_int_equal(build(&b, tiny_path("q4_1"), 64, &e), TENON_OK);
	head = &b.t->nodes[b.t->n_nodes - 1];
	assert_int_equal(b.t->edges[b.t->nodes[0].in0], b.t->edges[head->in0 + 1]);
	finish(&b);
}

/* A builder's fault sticks, and the first one is told. */
static void the_first_fault_is_told(void **st)
{
	struct built b = { 0 };
	struct error e = { 0 };
	graph_tensor x;

	(void)st;
	assert_int_equal(gguf_open(tiny_path("q4_1"), &b.f, &e), TENON_OK);
	assert_int_equal(graph_create(b.f, &b.g, &e), TENON_OK);
	x = graph_weight(b.g, 512, 64, "token_embd.weight");
	assert_int_equal(x, TNP_NONE);
	x = graph_embed(b.g, x, TNP_INDEX_TOKEN);
	graph_out(b.g, graph_linear(b.g, x, graph_weight(b.g, 1, 1, "nothing"), TNP_NONE, TNP_NONE));
	assert_null(graph_finish(b.g, 1, 1, 1, &e));
	assert_int_equal(e.code, TENON_E_FORMAT);
	assert_string_equal(
		e.text, "tensor 'token_embd.weight': has shape [512, 128], the metadata asks for [512, 64]");
	finish(&b);
}

static void attend(struct graph *g, graph_tensor x, int64_t slot, int64_t window, graph_tensor *y)
{
	graph_tensor in[] = { x, x, x };

	*y = graph_rows(g, TNP_N_TOKENS, 128);
	graph_node(g, TNP_OP_ATTEND, in, 3, y, 1);
	graph_attr_int(g, TNP_A_SLOT, slot);
	graph_attr_int(g, TNP_A_HEADS, 2);
	graph_attr_int(g, TNP_A_KV_HEADS, 2);
	graph_attr_int(g, TNP_A_HEAD_DIM, 64);
	if (window)
		graph_attr_int(g, TNP_A_WINDOW, window);
}

static void slots_form_groups_by_reach(void **st)
{
	static const int64_t window[] = { 512, 0, 512, 64, 0 };
	struct built b = { 0 };
	struct graph_slots s;
	struct error e = { 0 };
	graph_tensor x;

	(void)st;
	assert_int_equal(gguf_open(tiny_path("q4_1"), &b.f, &e), TENON_OK);
	assert_int_equal(graph_create(b.f, &b.g, &e), TENON_OK);
	x = graph_embed(b.g, graph_weight(b.g, 512, 128, "token_embd.weight"), TNP_INDEX_TOKEN);
	for (uint32_t i = 0; i < COUNT_OF(window); i++)
		attend(b.g, x, i, window[i], &x);
	attend(b.g, x, 3, 256, &x); /* a second reader of slot 3 looks back further */
	graph_out(b.g, x);
	assert_non_null(graph_finish(b.g, 16, 1, 1, &e));
	assert_int_equal(graph_slots(b.g, &s, &e), TENON_OK);
	assert_int_equal(s.n, 5);
	assert_int_equal(s.n_groups, 3);
	assert_true(s.window[0] == 512 && s.window[1] == 0 && s.window[2] == 256);
	assert_true(s.slot[0].group == 0 && s.slot[1].group == 1 && s.slot[2].group == 0 &&
		s.slot[3].group == 2 && s.slot[4].group == 1);
	mem_free(s.slot);
	finish(&b);
}

static void no_memory_at_any_point(void **st)
{
	struct built b = { 0 };
	struct error e = { 0 };
	uint64_t before = mem_area_bytes(MEM_ENGINE);
	int rc = TENON_E_NOMEM;

	(void)st;
	for (uint64_t n = 1; rc; n++) {
		mem_fail_at(n);
		rc = build(&b, tiny_path("q4_1"), 64, &e);
		mem_fail_at(0);
		assert_true(rc == TENON_OK || rc == TENON_E_NOMEM);
		finish(&b);
		assert_true(n < 1000);
	}
	assert_int_equal(mem_area_bytes(MEM_ENGINE), before);
}

/* Counted by hand: 128 wide, 4 heads of 32 on 2 KV heads, 3 layers, feed-forward 256, vocabulary 512, Q4_1. */
static void costs_are_as_counted_by_hand(void **st)
{
	struct graph_step one = { .n_tokens = 1, .n_seqs = 1, .n_out = 1, .kv_type = TNP_F16 }, many = one;
	const struct pass_options all = { 0 };
	struct built b = { 0 };
	struct error e = { 0 };
	struct graph_cost c;

	(void)st;
	many.n_tokens = 8;
	many.past = 100;
	assert_int_equal(build_passed(&b, tiny_path("q4_1"), 64, &all, &e), TENON_OK);
	graph_node_cost(b.t, 0, &many, &c); /* EMBED: eight rows, not the table */
	assert_int_equal(c.activation_bytes, 8 * 128 * 4);
	assert_int_equal(c.weight_bytes, 8 * (b.t->tensors[b.t->edges[b.t->nodes[0].in0]].bytes / 512));
	assert_int_equal(b.t->nodes[2].op, TNP_OP_LINEAR); /* Q, K, V: [128 + 64 + 64][128] */
	graph_node_cost(b.t, 2, &one, &c);
	assert_int_equal(c.operations, 2 * 256 * 128);
	assert_int_equal(c.activation_bytes, (128 + 256) * 4);
	assert_int_equal(b.t->nodes[3].op, TNP_OP_ATTEND);
	graph_node_cost(b.t, 3, &many, &c); /* the i-th token sees 100 + i + 1 places */
	assert_int_equal(c.operations, 4 * 128 * (8 * 100 + 36));
	assert_int_equal(c.kv_bytes, 2 * 64 * 2 * (108 + 8));
	graph_total_cost(b.t, &one, &c);
	assert_true(c.operations > 2 * 3 * (256 * 128 + 128 * 128 + 3 * 256 * 128) + 2 * 512 * 128);
	finish(&b);
}

/* A token behind a window of 32 sees 32 places; one before its end sees what there is. */
static void windows_bound_what_attention_costs(void **st)
{
	struct graph_step s = { .n_tokens = 10, .n_seqs = 1, .n_out = 1, .past = 27, .kv_type = TNP_F32 };
	const struct pass_options all = { 0 };
	struct built b = { 0 };
	struct error e = { 0 };
	struct graph_cost c;
	uint32_t i = 0;

	(void)st;
	assert_int_equal(build_passed(&b, tiny_path("gemma3"), 64, &all, &e), TENON_OK);
	while (b.t->nodes[i].op != TNP_OP_ATTEND)
		i++;
	graph_node_cost(b.t, i, &s, &c); /* 28, 29, 30, 31, then 32 six times */
	assert_int_equal(c.operations, 4 * 128 * (28 + 29 + 30 + 31 + 6 * 32));
	finish(&b);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(plans_are_sound_and_tight),
		cmocka_unit_test(every_edge_is_written_before_it_is_read),
		cmocka_unit_test(llama_has_the_nodes_it_should),
		cmocka_unit_test(untied_head_is_another_tensor),
		cmocka_unit_test(the_first_fault_is_told),
		cmocka_unit_test(slots_form_groups_by_reach),
		cmocka_unit_test(costs_are_as_counted_by_hand),
		cmocka_unit_test(windows_bound_what_attention_costs),
		cmocka_unit_test(no_memory_at_any_point),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
