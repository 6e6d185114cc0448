/* SPDX-License-Identifier: Apache-2.0
 * The ledger: what a refusal names fits and a little more does not, by context, sessions and bytes; pools of windowed
 * groups are small, and large enough for any way of cutting the work.
 */
#include "tests/unit/tiny.h"
#include "base/base.h"
#include "engine/model.h"

static struct plugins *plugins;
static struct backend *cpu;

static struct model_options options(const char *path)
{
	return (struct model_options){ .path = path,
		.backend = cpu,
		.n_ctx = 1024,
		.step_tokens = 128,
		.step_seqs = 4,
		.page_tokens = 16 };
}

/* TENON_OK and the bytes weighed; or the refusal's text. */
static int try_open(const struct model_options *o, uint64_t *loaded, struct error *e)
{
	struct model *m = NULL;
	int rc = model_open(o, &m, e);

	if (!rc && loaded)
		*loaded = model_ledger(m)->loaded + model_ledger(m)->peak;
	model_close(m);
	return rc;
}

static unsigned named(const char *text, const char *before)
{
	const char *at = strstr(text, before);
	unsigned v = 0;

	if (!at || sscanf(at + strlen(before), "%u", &v) != 1)
		fail_msg("'%s' does not name a number behind '%s'", text, before);
	return v;
}

static void sessions_that_do_not_fit(void **st)
{
	struct model_options o = options(tiny_path("q4_1"));
	struct error e = { 0 };
	uint64_t all;

	(void)st;
	o.n_sessions = 8;
	o.measure_only = true;
	assert_int_equal(try_open(&o, &all, &e), TENON_OK);
	o.measure_only = false;
	o.memory_limit = all * 3 / 4;
	assert_int_equal(try_open(&o, NULL, &e), TENON_E_NOMEM);
	o.n_ctx = named(e.text, "at most ");
	o.n_sessions = 8;
	assert_true(o.n_ctx > 64 && o.n_ctx < 1024);
	assert_int_equal(try_open(&o, NULL, NULL), TENON_OK);
	o.n_ctx += 16;
	assert_int_equal(try_open(&o, NULL, NULL), TENON_E_NOMEM);
	o.n_ctx = 1024;
	o.n_sessions = named(e.text, "sessions, or ");
	assert_true(o.n_sessions >= 1 && o.n_sessions < 8);
	assert_int_equal(try_open(&o, NULL, NULL), TENON_OK);
	o.n_sessions++;
	assert_int_equal(try_open(&o, NULL, NULL), TENON_E_NOMEM);
}

static void pool_bytes_that_do_not_fit(void **st)
{
	struct model_options o = options(tiny_path("q4_1"));
	struct error e = { 0 };
	double mib = 0;
	const char *at;
	uint64_t all;

	(void)st;
	o.measure_only = true;
	o.kv_bytes = 8 << 20;
	assert_int_equal(try_open(&o, &all, &e), TENON_OK);
	o.measure_only = false;
	o.memory_limit = all - (4 << 20);
	assert_int_equal(try_open(&o, NULL, &e), TENON_E_NOMEM);
	at = strstr(e.text, "at most ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "at most %lf MiB of keys and values fit", &mib), 1);
	assert_true(mib > 3 && mib < 5);
	o.kv_bytes = (uint64_t)((mib - 0.2) *
		(1 << 20)); /* the text is rounded; lists and nodes grow with pages */
	assert_int_equal(try_open(&o, NULL, NULL), TENON_OK);
	o.kv_bytes = (uint64_t)((mib + 0.2) * (1 << 20));
	assert_int_equal(try_open(&o, NULL, NULL), TENON_E_NOMEM);
}

static void pool_is_what_bytes_hold(void **st)
{
	static const uint64_t bytes[] = { 1, 1 << 20, 3000000, 1 << 26 };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(bytes); i++) {
		struct model_options o = options(tiny_path("q4_1"));
		struct model *m = NULL;
		const struct model_info *info;

		o.kv_bytes = bytes[i];
		o.measure_only = true;
		assert_int_equal(model_open(&o, &m, NULL), TENON_OK);
		info = model_info(m);
		assert_int_equal(info->n_pages[0], MAX_OF(bytes[i] / info->page_bytes[0], 1));
		assert_int_equal(info->kv_bytes, info->n_pages[0] * info->page_bytes[0]);
		model_close(m);
	}
}

/* Sequences advance by random chunks; pages behind the window are given back after each step. */
static uint64_t most_held(const struct model_info *i, uint32_t n_seqs, uint32_t seed)
{
	uint32_t past[8] = { 0 }, T = i->page_tokens, w = i->window[0];
	uint64_t most = 0;

	for (int step = 0; step < 400; step++) {
		uint32_t left = i->step_tokens;
		uint64_t held = 0;

		for (uint32_t s = 0; s < n_seqs; s++) {
			uint32_t n, first = past[s] + 1 > w ? (past[s] + 1 - w) / T : 0;

			seed = seed * 1664525 + 1013904223;
			n = seed >> 30 ? (seed >> 8) % 4 : (seed >> 8) % (left + 1);
			n = MIN_OF(MIN_OF(n, left), i->n_ctx - past[s]);
			left -= n;
			held += (past[s] + n + T - 1) / T - first;
			past[s] = past[s] + n == i->n_ctx ? 0 : past[s] + n;
		}
		most = MAX_OF(most, held);
	}
	return most;
}

static void windowed_pools_suffice(void **st)
{
	struct model_options o = options(tiny_path("scaled"));
	struct model *m = NULL;
	uint64_t most = 0;

	(void)st;
	o.measure_only = true;
	for (uint32_t n = 1; n <= 8; n *= 2) {
		const struct model_info *i;

		o.n_sessions = n;
		assert_int_equal(model_open(&o, &m, NULL), TENON_OK);
		i = model_info(m);
		assert_int_equal(i->window[0], 24);
		assert_int_equal(i->n_pages[0], n * (2 + 2) + 128 / 16);
		assert_int_equal(ledger_pages(i, 0, 1024, n), i->n_pages[0]);
		assert_int_equal(ledger_pages(i, 0, 17, 1), 2);
		for (uint32_t seed = 0; seed < 50; seed++)
			most = MAX_OF(most, most_held(i, n, seed));
		assert_true(most <= i->n_pages[0]);
		assert_true(most * 2 > i->n_pages[0]); /* and not wasteful */
		model_close(m);
	}
}

static void items_have_names(void **st)
{
	(void)st;
	assert_string_equal(ledger_key(LEDGER_KV), "kv");
	assert_string_equal(ledger_key(LEDGER_N), "?");
	assert_true(ledger_text(LEDGER_BASE)[0]);
}

static int open_all(void **st)
{
	(void)st;
	return tiny_plugins(&plugins) || backend_open(plugins, "cpu", 0, &cpu, NULL) ? -1 : 0;
}

static int close_all(void **st)
{
	(void)st;
	backend_close(cpu);
	plugins_close(plugins);
	return 0;
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(sessions_that_do_not_fit),
		cmocka_unit_test(pool_bytes_that_do_not_fit),
		cmocka_unit_test(pool_is_what_bytes_hold),
		cmocka_unit_test(windowed_pools_suffice),
		cmocka_unit_test(items_have_names),
	};

	return cmocka_run_group_tests(t, open_all, close_all);
}
