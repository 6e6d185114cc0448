/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"
#include "tools/bench_prefix.h"
#include "tools/plot.h"
#include <string.h>

/* A server that answers every request in steps of wait(): half the prompt, all of it with a token, another token each. */
struct fake {
	struct load_item *open[512];
	uint32_t n_open, n_sent, n_cached;
	uint64_t lengths, first_id[512];
	bool hangs; /* never gives a token */
};

static int fake_submit(void *ctx, struct load_item *it, struct error *e)
{
	struct fake *f = ctx;

	(void)e;
	assert_true(f->n_open < COUNT_OF(f->open));
	f->first_id[f->n_sent++ % COUNT_OF(f->first_id)] = (uint64_t)it->ids[0] << 32 | (uint32_t)it->ids[1];
	f->lengths += it->n_ids;
	f->open[f->n_open++] = it;
	return TENON_OK;
}

static void fake_cancel(void *ctx, struct load_item *it)
{
	(void)ctx;
	assert_true(it->cancelled);
	load_item_saw_end(it, TENON_E_CANCELLED, "cancelled", 9, clock_now_ns());
}

static int fake_wait(void *ctx, uint64_t until_ns, struct error *e)
{
	struct fake *f = ctx;
	uint32_t kept = 0;

	(void)until_ns;
	(void)e;
	for (uint32_t i = 0; i < f->n_open; i++) {
		struct load_item *it = f->open[i];

		if (it->ended)
			continue;
		if (!it->n_prompt_done || f->hangs)
			load_item_saw_prompt(it, it->n_ids / 2);
		else
			load_item_saw_tokens(it, 1, clock_now_ns());
		if (it->n_tokens == it->n_new) {
			it->n_cached = f->n_cached;
			load_item_saw_end(it, TENON_OK, "", 0, clock_now_ns());
		} else {
			f->open[kept++] = it;
		}
	}
	f->n_open = kept;
	return TENON_OK;
}

static bool fake_counters(void *ctx, struct load_counters *out)
{
	(void)ctx;
	*out = (struct load_counters){ 0 };
	return false;
}

static int32_t text_ids[1000];

static struct load_text text(void)
{
	for (int32_t i = 0; i < 1000; i++)
		text_ids[i] = i;
	return (struct load_text){ .ids = text_ids, .n = 1000, .n_vocab = 50000, .tokens_per_word = 1.3 };
}

static struct load_server server_of(struct fake *f)
{
	return (struct load_server){ .ctx = f,
		.submit = fake_submit,
		.cancel = fake_cancel,
		.wait = fake_wait,
		.counters = fake_counters };
}

static const struct load_plan both = { .seconds = 0.2,
	.patience_s = 5,
	.arrivals = 3,
	.prompts = 4,
	.rate = 200,
	.n_online_prompt = 10,
	.n_online_new = 3,
	.n_offline_clients = 2,
	.n_offline_prompt = 40,
	.n_offline_new = 5 };

static void prompts_are_text_behind_a_mark(void **st)
{
	struct load_text t = text();
	uint64_t a = 1, b = 2;
	int32_t *p = load_prompt(&t, 1500, &a), *q = load_prompt(&t, 1500, &b);

	(void)st;
	assert_memory_not_equal(p, q, 4 * sizeof *p);
	for (uint32_t i = 0; i < 1500; i++)
		assert_in_range(p[i], 0, 49999);
	for (uint32_t i = 5; i < 1500; i++)
		assert_int_equal(p[i], (p[i - 1] + 1) % 1000);
	mem_free(p);
	mem_free(q);
}

static void a_block_ends_with_everything_answered(void **st)
{
	struct load_text t = text();
	struct fake f = { 0 };
	struct load_server s = server_of(&f);
	struct load_block b = { 0 };
	double sum = 0;
	uint32_t online = 0;

	(void)st;
	assert_int_equal(load_run(&s, &t, &both, &b, NULL), TENON_OK);
	for (const struct load_item *it = b.items; it; it = it->next) {
		assert_true(it->ended);
		if (it->traffic_class == TENON_ONLINE) {
			assert_true(!it->code && it->n_tokens == 3 && it->first_ns >= it->due_ns &&
				load_item_tpot_ms(it) >= 0);
			online++;
		} else {
			assert_true(it->n_ids == 40 ||
				(it->client == 1 && it->n_ids == 20)); /* the first ones by turns */
			sum += it->n_prompt_done + it->n_tokens;
		}
	}
	assert_true(online > 5);
	assert_true(b.offline_tokens > 0 && b.offline_tokens <= sum);
	assert_true(load_block_busy(&b) > 0 && load_block_busy(&b) <= 1);
	load_block_free(&b);
}

/* Equal seeds: the same first prompt of each client and the same times between arrivals. */
static void blocks_repeat(void **st)
{
	struct load_text t = text();
	uint64_t gap[2] = { 0 }, mark[2];

	(void)st;
	for (int i = 0; i < 2; i++) {
		struct fake f = { 0 };
		struct load_server s = server_of(&f);
		struct load_block b = { 0 };
		struct load_plan p = both;

		p.n_offline_clients = 0;
		assert_int_equal(load_run(&s, &t, &p, &b, NULL), TENON_OK);
		assert_true(b.items && b.items->next);
		gap[i] = b.items->next->due_ns - b.items->due_ns;
		mark[i] = f.first_id[0];
		assert_true(b.offline_tokens == 0);
		load_block_free(&b);
	}
	assert_true(gap[0] == gap[1] && mark[0] == mark[1]);
}

static void who_never_answers_is_cancelled(void **st)
{
	struct load_text t = text();
	struct fake f = { .hangs = true };
	struct load_server s = server_of(&f);
	struct load_block b = { 0 };
	struct load_plan p = both;

	(void)st;
	p.patience_s = 0.05;
	assert_int_equal(load_run(&s, &t, &p, &b, NULL), TENON_OK);
	for (const struct load_item *it = b.items; it; it = it->next)
		assert_true(it->ended && it->cancelled && load_item_ttft_ms(it, 0) >= 0);
	assert_true(b.offline_tokens == 10 + 20); /* half of each prompt, counted once */
	load_block_free(&b);
}

static void cached_tokens_are_no_progress(void **st)
{
	struct load_text t = text();
	struct fake f = { .n_cached = 40 };
	struct load_server s = server_of(&f);
	struct load_block b = { 0 };
	double most = 0;

	(void)st;
	assert_int_equal(load_run(&s, &t, &both, &b, NULL), TENON_OK);
	for (const struct load_item *it = b.items; it; it = it->next)
		if (it->traffic_class == TENON_OFFLINE)
			most += it->n_tokens + (it->code ? it->n_prompt_done : 0);
	assert_true(b.offline_tokens <= most + 80);
	load_block_free(&b);
}

static void auc_is_the_share_of_won_pairs(void **st)
{
	double used[] = { 3, 1, 2 }, unused[] = { 6, 5, 4 }, same[] = { 2, 2, 2 }, equal[] = { 2, 2, 2 },
	       a[] = { 1, 3 }, b[] = { 2, 4 };

	(void)st;
	assert_true(prefix_auc(used, unused, 3) == 1);
	assert_true(prefix_auc(unused, used, 3) == 0);
	assert_true(prefix_auc(same, equal, 3) == 0.5);
	assert_true(prefix_auc(a, b, 2) == 0.75);
}

static void plots_are_whole(void **st)
{
	static const struct plot_series series[] = { { "a < b & c", "#123456", PLOT_DOT },
		{ "cross", "#654321", PLOT_CROSS } };
	static const char *const bands[] = { "shade" }, *const colors[] = { "#eeeeee" };
	struct plot_panel p = { .title = "t",
		.x_label = "x",
		.y_label = "y",
		.series = series,
		.n_series = 2,
		.band_name = bands,
		.band_color = colors,
		.n_bands_kinds = 1 };
	struct buf out;

	(void)st;
	plot_panel_init(&p);
	buf_init(&out, MEM_TOOL, 0);
	assert_int_equal(plot_svg(&p, 1, &out, NULL), TENON_OK); /* nothing to draw is no error */
	buf_clear(&out);
	plot_shade(&p, 0, 5, 0);
	plot_add(&p, 1, 10, 0);
	plot_add(&p, 2, 0, 0); /* no place on a logarithmic scale */
	plot_add(&p, 3, 2000, 1);
	assert_int_equal(plot_svg(&p, 1, &out, NULL), TENON_OK);
	assert_non_null(strstr(out.data, "a &lt; b &amp; c"));
	assert_non_null(strstr(out.data, ">10000<"));
	assert_non_null(strstr(out.data, "</svg>"));
	assert_null(strstr(out.data, "nan"));
	assert_null(strstr(out.data, "inf"));
	buf_finish(&out);
	plot_panel_finish(&p);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(prompts_are_text_behind_a_mark),
		cmocka_unit_test(a_block_ends_with_everything_answered),
		cmocka_unit_test(blocks_repeat),
		cmocka_unit_test(who_never_answers_is_cancelled),
		cmocka_unit_test(cached_tokens_are_no_progress),
		cmocka_unit_test(auc_is_the_share_of_won_pairs),
		cmocka_unit_test(plots_are_whole),
	};

	return cmocka_run_group_tests(t, NULL, NULL);
}
