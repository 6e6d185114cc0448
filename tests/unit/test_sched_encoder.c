/* SPDX-License-Identifier: Apache-2.0
 * The scheduler over an encoder, with known costs: texts go into steps whole, many together, and end with a row; classes,
 * shares, limits, cancelling and failures as for text.
 */
#include "tests/unit/sched_fake.h"

#define OFFLINE .traffic_class = WIRE_OFFLINE

static void expect_row(const struct fake *f, uint32_t id)
{
	assert_int_equal(f->h[id].n_embedded, 1);
	assert_int_equal(f->h[id].n_done, 1);
	assert_int_equal(f->h[id].n_error + f->h[id].n_tokens, 0);
}

static void texts_share_steps_and_stay_whole(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 0);
	struct sched_status s;
	uint32_t most = 0;

	(void)st;
	for (uint32_t id = 1; id <= 100; id++)
		ASK(f, .id = id, .n_prompt = 1 + id % 30);
	while (!sched_step(f->s, NULL)) {
		for (uint32_t i = 0; i < f->n_spans; i++) {
			assert_int_equal(f->span[i].past, 0);
			assert_int_equal(f->span[i].n, 1 + f->span[i].token % 30);
		}
		most = f->n_spans > most ? f->n_spans : most;
	}
	for (uint32_t id = 1; id <= 100; id++)
		expect_row(f, id);
	assert_true(most > 4 && f->n_steps < 50);
	sched_get_status(f->s, &s);
	assert_int_equal(s.class[WIRE_ONLINE].n_ttft, 100);
	assert_int_equal(s.decode_tokens + s.prefill_tokens, 1460);
	fake_close(f);
}

/* The budget of a step would cut a prompt of a decoder; a text of an encoder runs alone, over the budget. */
static void a_long_text_is_not_cut(void **st)
{
	struct fake *f =
		fake_open((struct sched_config){ .max_prefill_ns = 50 * MS, .max_step_ns = 20 * MS }, 0);

	(void)st;
	for (uint32_t k = 0; k < 30; k++) { /* the model of costs learns that it is slow */
		ASK(f, .id = 300 + k, .n_prompt = 200);
		run_out(f);
	}
	ASK(f, .id = 1, .n_prompt = 512);
	ASK(f, .id = 2, .n_prompt = 400, OFFLINE);
	one_step(f);
	assert_int_equal(f->n_spans, 1);
	assert_int_equal(rows_of(f, 1), 512);
	one_step(f);
	assert_int_equal(rows_of(f, 2), 400);
	expect_row(f, 1);
	expect_row(f, 2);
	fake_close(f);
}

static void too_long_is_refused_at_the_door(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 0);
	const int32_t history[] = { 5 };
	struct sched_request r = {
		.id = 2, .prompt = history, .n_prompt = 1, .history = history, .n_history = 1
	};
	struct error e = { 0 };

	(void)st;
	assert_int_equal(fake_ask(f, (struct ask){ .id = 1, .n_prompt = 513 }, &e), TENON_E_TOO_LONG);
	assert_non_null(strstr(e.text, "513") ? strstr(e.text, "512") : NULL);
	assert_int_equal(sched_submit(f->s, &r, &e), TENON_E_INVALID);
	ASK(f, .id = 3, .n_prompt = 1, .max_tokens = 4000, .pin = true);
	run_out(f);
	expect_row(f, 3);
	fake_close(f);
}

static void online_first_and_shares_between_tenants(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 4 }, 0);

	(void)st;
	for (uint32_t id = 1; id <= 60; id++)
		ASK(f, .id = id, .n_prompt = 20, .tenant = "flood", OFFLINE);
	for (uint32_t id = 101; id <= 106; id++)
		ASK(f, .id = id, .n_prompt = 20, .tenant = "few", OFFLINE);
	one_step(f);
	ASK(f, .id = 200, .n_prompt = 30);
	one_step(f);
	expect_row(f, 200);
	run_out(f);
	for (uint32_t id = 101; id <= 106; id++) {
		expect_row(f, id);
		assert_true(f->h[id].last_ns < f->h[40].last_ns);
	}
	for (uint32_t id = 1; id <= 60; id++)
		expect_row(f, id);
	fake_close(f);
}

static void cancel_pause_and_failures_touch_nobody_else(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 2 }, 0);

	(void)st;
	for (uint32_t id = 1; id <= 6; id++)
		ASK(f, .id = id, .n_prompt = 20);
	assert_int_equal(sched_cancel(f->s, 4, TENON_E_CANCELLED, "test"), 0);
	assert_int_equal(sched_pause(f->s, 5), 0);
	f->fail = TENON_E_INVALID;
	one_step(f); /* ends those that were part of it */
	assert_int_equal(f->h[1].n_error + f->h[2].n_error, 2);
	f->fail = TENON_E_BACKEND;
	assert_int_equal(sched_step(f->s, NULL), TENON_E_BACKEND);
	assert_int_equal(f->h[3].n_error + f->h[3].n_done, 0);
	run_out(f);
	expect_row(f, 3);
	expect_row(f, 6);
	assert_int_equal(f->h[5].n_done, 0);
	assert_int_equal(sched_resume(f->s, 5), 0);
	run_out(f);
	expect_row(f, 5);
	assert_int_equal(f->h[4].code, TENON_E_CANCELLED);
	fake_close(f);
}

/* Nothing of an encoder has a past: shapes with one are not tried. */
static void calibrates_with_whole_texts(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 0);
	struct sched_status s;
	uint32_t turns = 0;

	(void)st;
	ASK(f, .id = 1, .n_prompt = 10);
	run_out(f);
	while (sched_tend(f->s, MS) && turns++ < 200)
		for (uint32_t i = 0; i < f->n_spans; i++)
			assert_int_equal(f->span[i].past, 0);
	sched_get_status(f->s, &s);
	assert_true(s.cost.calibrated);
	fake_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_share_steps_and_stay_whole),
		cmocka_unit_test(a_long_text_is_not_cut),
		cmocka_unit_test(too_long_is_refused_at_the_door),
		cmocka_unit_test(online_first_and_shares_between_tenants),
		cmocka_unit_test(cancel_pause_and_failures_touch_nobody_else),
		cmocka_unit_test(calibrates_with_whole_texts),
	};

	return cmocka_run_group_tests(tests, fake_setup, fake_teardown);
}
