/* SPDX-License-Identifier: Apache-2.0
 * What the scheduler promises about time, one test a promise, over a backend with known costs: how long steps may take,
 * targets, long prompts, offline work's share, company.
 */
#include "tests/unit/sched_fake.h"

#define ONLINE	.traffic_class = WIRE_ONLINE
#define OFFLINE .traffic_class = WIRE_OFFLINE

static void offline_steps_are_cut_to_max_step(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_step_ns = 30 * MS }, 4000);

	(void)st;
	learn(f);
	for (uint32_t id = 1; id <= 40; id++)
		ASK(f, .id = id, .n_prompt = 300, .max_tokens = 20, OFFLINE);
	for (uint32_t k = 0; k < 200; k++) {
		one_step(f);
		assert_true(f->last_ns <= 33 * MS && f->last_ns >= 20 * MS);
	}
	run_out(f);
	fake_close(f);
}

/* Strict: next to an online decode offline work gets what fits into the slack: here nothing. */
static void strict_keeps_offline_out_of_online_steps(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 4000);

	(void)st;
	learn(f);
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 40, ONLINE);
	one_step(f);
	ASK(f, .id = 2, .n_prompt = 2000, .max_tokens = 20, OFFLINE);
	while (!f->h[1].n_done) {
		one_step(f);
		assert_int_equal(rows_of(f, 2), 0);
	}
	run_out(f);
	assert_int_equal(f->h[2].n_tokens, 20);
	fake_close(f);
}

/* With a target offline work rides along, and 99 of 100 online tokens stay within it. */
static void targets_let_offline_ride_along(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .class[WIRE_ONLINE].tpot_ns = 30 * MS }, 4000);
	uint32_t late = 0, n = 0, offline = 0;
	uint64_t last;

	(void)st;
	learn(f);
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 300, ONLINE);
	ASK(f, .id = 2, .n_prompt = 3500, .max_tokens = 500, OFFLINE);
	one_step(f);
	for (last = f->now_ns; !f->h[1].n_done; last = f->now_ns) {
		one_step(f);
		late += f->now_ns - last > 30 * MS;
		offline += rows_of(f, 2);
		n++;
	}
	assert_true(late * 100 <= n);
	assert_true(offline > n * 10);
	run_out(f);
	fake_close(f);
}

struct tally {
	uint32_t n, late, offline;
};

/* One online request after the other beside offline work, which is "done" at first: their tokens, those behind the target, offline rows beside them. */
static struct tally ride(struct fake *f, uint64_t target_ns, uint32_t n_tokens)
{
	static const struct ask offline = {
		.id = 2, .n_prompt = 3500, .max_tokens = 2, .no_reuse = true, OFFLINE
	};
	struct tally t = { 0 };

	for (uint32_t id = 3; t.n < n_tokens; id = id == 400 ? 3 : id + 1) {
		uint64_t last;

		f->h[id] = (struct heard){ 0 };
		ASK(f, .id = id, .n_prompt = 30, .max_tokens = 300, .no_reuse = true, ONLINE);
		while (!f->h[id].n_tokens)
			one_step(f);
		for (last = f->now_ns; !f->h[id].n_done; last = f->now_ns, t.n++) {
			if (f->h[2].n_done) {
				f->h[2] = (struct heard){ 0 };
				assert_int_equal(fake_ask(f, offline, NULL), 0);
			}
			one_step(f);
			t.late += f->now_ns - last > target_ns;
			t.offline += rows_of(f, 2);
		}
	}
	return t;
}

/* A machine whose steps vary, and then vary more: what is kept back from the target is learned from the tokens that missed
 * it, so that 99 of 100 are in time, and no more is kept back than that needs. */
static void targets_hold_on_a_noisy_machine(void **st)
{
	static const struct {
		uint32_t noise, slow, least; /* permille, permille, offline rows a token */
	} machines[] = { { 30, 0, 16 }, { 80, 5, 15 }, { 30, 0, 16 }, { 60, 30, 8 } };
	struct fake *f = fake_open((struct sched_config){ .class[WIRE_ONLINE].tpot_ns = 30 * MS }, 4000);

	(void)st;
	learn(f);
	f->h[2].n_done = 1;
	for (size_t i = 0; i < COUNT_OF(machines); i++) {
		struct tally t;

		f->noise_permille = machines[i].noise;
		f->slow_permille = machines[i].slow;
		(void)ride(f, 30 * MS, 1000);
		t = ride(f, 30 * MS, 6000);
		if (t.late * 100 > t.n || t.offline < t.n * machines[i].least)
			fail_msg("machine %zu: %u of %u tokens late, %u offline rows", i, t.late, t.n,
				t.offline);
	}
	(void)sched_cancel(f->s, 2, TENON_E_CANCELLED, "enough");
	fake_close(f);
}

/* So many online sequences that they miss the target by themselves: that says nothing about what may ride along later. */
static void a_crowd_teaches_nothing_about_targets(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .class[WIRE_ONLINE].tpot_ns = 30 * MS }, 4000);
	struct tally before, after;

	(void)st;
	learn(f);
	f->noise_permille = 30;
	f->h[2].n_done = 1;
	before = ride(f, 30 * MS, 3000);
	(void)sched_cancel(f->s, 2, TENON_E_CANCELLED, "enough");
	for (uint32_t id = 440; id < 479; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 200, ONLINE);
	run_out(f);
	f->h[2] = (struct heard){ .n_done = 1 };
	after = ride(f, 30 * MS, 300);
	assert_true(after.offline * 10 > before.offline * 9 / 10);
	(void)sched_cancel(f->s, 2, TENON_E_CANCELLED, "enough");
	fake_close(f);
}

/* More online requests than their target allows beside each other: prompts wait for decodes to end, but not for ever. */
static void prompts_stand_back_while_targets_leave_no_time(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .class[WIRE_ONLINE].tpot_ns = 20 * MS }, 4000);
	uint64_t begin;
	uint32_t started = 0;

	(void)st;
	learn(f);
	ASK(f, .id = 440, .n_prompt = 10, .max_tokens = 200, ONLINE);
	one_step(f);
	begin = f->now_ns;
	for (uint32_t id = 441; id < 456; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 200, ONLINE);
	while (started < 16 && f->now_ns - begin < 2000 * MS) {
		one_step(f);
		assert_true(f->last_ns <= 20 * MS || f->now_ns - begin > 600 * MS);
		started = 0;
		for (uint32_t id = 440; id < 456; id++)
			started += f->h[id].n_tokens > 0;
	}
	assert_int_equal(started, 16);
	run_out(f);
	fake_close(f);
}

/* A long online prompt: others get a token in each step, and steps take no more than twice what they would alone. */
static void a_long_prompt_stretches_steps_by_a_set_factor(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .long_prompt_factor = 2 }, 4000);
	uint64_t sum = 0;
	uint32_t n = 0;

	(void)st;
	learn(f);
	for (uint32_t id = 1; id <= 4; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 300, ONLINE);
	steps(f, 4);
	ASK(f, .id = 9, .n_prompt = 1500, .max_tokens = 4, ONLINE);
	while (!f->h[9].n_tokens) {
		one_step(f);
		sum += f->last_ns;
		n++;
		for (uint32_t id = 1; id <= 4; id++)
			assert_int_equal(rows_of(f, id), 1);
		assert_true(f->last_ns <= 2.2 * 12 * MS);
	}
	assert_true(sum / n <= 2.05 * 12 * MS);
	run_out(f);
	fake_close(f);
}

/* Nobody decodes: a prompt goes on in steps that a newcomer can wait for. */
static void prompts_alone_are_cut_to_max_prefill(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_prefill_ns = 60 * MS }, 4000);

	(void)st;
	learn(f);
	ASK(f, .id = 1, .n_prompt = 2000, .max_tokens = 2, ONLINE);
	while (!f->h[1].n_tokens) {
		one_step(f);
		assert_true(f->last_ns <= 66 * MS);
	}
	run_out(f);
	fake_close(f);
}

static void earliest_deadline_first(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_prefill_ns = 60 * MS }, 4000);

	(void)st;
	learn(f);
	ASK(f, .id = 1, .n_prompt = 1000, .max_tokens = 2, .ttft_ns = 5000 * MS);
	one_step(f);
	ASK(f, .id = 2, .n_prompt = 100, .max_tokens = 2, .ttft_ns = 300 * MS);
	steps(f, 3);
	assert_true(f->h[2].n_tokens > 0);
	assert_int_equal(f->h[1].n_tokens, 0);
	run_out(f);
	fake_close(f);
}

/* Online work without end: offline still gets its share of the time, and no request waits for ever. */
static void offline_min_share_holds(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .offline_min_share = 0.3, .max_running = 4 }, 4000);
	struct sched_status before, after;
	double share;

	(void)st;
	learn(f);
	for (uint32_t id = 400; id < 410; id++)
		ASK(f, .id = id, .n_prompt = 100, .max_tokens = 20, OFFLINE);
	sched_get_status(f->s, &before);
	for (uint32_t k = 0, id = 1; k < 1500; k++) {
		sched_get_status(f->s, &after);
		while (id < 400 && after.class[WIRE_ONLINE].waiting + after.class[WIRE_ONLINE].running < 8) {
			ASK(f, .id = id, .n_prompt = 50, .max_tokens = 30, ONLINE);
			id++;
			after.class[WIRE_ONLINE].waiting++;
		}
		one_step(f);
		if (f->h[409].n_done)
			break;
	}
	sched_get_status(f->s, &after);
	assert_int_equal(f->h[409].n_done, 1);
	share = (double)(after.class[WIRE_OFFLINE].step_ns - before.class[WIRE_OFFLINE].step_ns) /
		(double)(after.step_ns - before.step_ns);
	assert_true(share > 0.25 && share < 0.4);
	run_out(f);
	fake_close(f);
}

/* Two offline requests got kept places in a decision, and an online one then lacks a page: the second of them gives its own
 * back, though the cache gave it more than the first. */
static void places_are_given_back_last_in_first_out(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .offline_min_share = 0.3,
					   .max_running = 10,
					   .slack = 0.5,
					   .max_prefill_ns = NS_PER_S },
		24);

	(void)st;
	learn(f);
	ASK(f, .id = 3, .token = 1, .n_prompt = 2, .max_tokens = 1);
	ASK(f, .id = 4, .token = 2, .n_prompt = 6, .max_tokens = 1);
	run_out(f);
	ASK(f, .id = 1, .n_prompt = 40, .max_tokens = 3, OFFLINE);
	ASK(f, .id = 2, .n_prompt = 40, .max_tokens = 3, OFFLINE);
	ASK(f, .id = 9, .n_prompt = 23 * 16 - 1, .max_tokens = 1, ONLINE);
	one_step(f);
	assert_int_equal(rows_of(f, 9), 23 * 16 - 1);
	assert_true(rows_of(f, 1) > 0);
	assert_int_equal(rows_of(f, 2), 0);
	run_out(f);
	assert_int_equal(f->h[1].n_cached, 2);
	assert_int_equal(f->h[2].n_preempted, 0);
	fake_close(f);
}

/* With a single place it changes hands: offline work gets it when one online request ends, and gives it back. */
static void offline_min_share_holds_with_one_place(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .offline_min_share = 0.3, .max_running = 1 }, 256);

	(void)st;
	learn(f);
	ASK(f, .id = 400, .n_prompt = 100, .max_tokens = 20, OFFLINE);
	for (uint32_t id = 1; id < 400; id++)
		ASK(f, .id = id, .n_prompt = 50, .max_tokens = 10, ONLINE);
	while (!f->h[400].n_done)
		one_step(f);
	assert_int_equal(f->h[399].n_done, 0);
	run_out(f);
	assert_int_equal(f->h[399].n_tokens, 10);
	fake_close(f);
}

/* "To the end of the context" in a pool that holds less ends where the pool does, and says context. */
static void a_small_pool_ends_an_open_answer(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 4 }, 8);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 20, .max_tokens = 0, ONLINE);
	run_out(f);
	assert_int_equal(f->h[1].n_done, 1);
	assert_int_equal(f->h[1].n_tokens, 8 * f->info.page_tokens - 20);
	fake_close(f);
}

static void company_holds_offline_back(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 256),
		    *g = fake_open((struct sched_config){ .offline_min_share = 0.2 }, 256);
	uint64_t began;

	(void)st;
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 5, OFFLINE);
	assert_int_equal(sched_wants(f->s), SCHED_WANT_OFFLINE);
	sched_set_company(f->s, true);
	assert_int_equal(sched_wants(f->s), SCHED_WANT_NOTHING);
	assert_int_equal(sched_step(f->s, NULL), TENON_E_AGAIN);
	assert_int_equal(entry_of(f, 1)->wait, SCHED_WAIT_ONLINE);
	ASK(f, .id = 2, .n_prompt = 30, .max_tokens = 5, ONLINE);
	assert_int_equal(sched_wants(f->s), SCHED_WANT_ONLINE);
	run_out(f);
	assert_int_equal(f->h[2].n_done, 1);
	assert_int_equal(f->h[1].n_tokens, 0);
	sched_set_company(f->s, false);
	run_out(f);
	assert_int_equal(f->h[1].n_done, 1);
	fake_close(f);

	ASK(g, .id = 1, .n_prompt = 30, .max_tokens = 5, OFFLINE);
	sched_set_company(g->s, true);
	for (began = g->now_ns; !g->h[1].n_done; g->now_ns += 10 * MS) /* the other model's steps */
		if (sched_wants(g->s) == SCHED_WANT_OFFLINE || g->now_ns == began)
			(void)sched_step(g->s, NULL);
	assert_true(g->now_ns - began > 300 * MS && g->now_ns - began < 3000 * MS);
	fake_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offline_steps_are_cut_to_max_step),
		cmocka_unit_test(strict_keeps_offline_out_of_online_steps),
		cmocka_unit_test(targets_let_offline_ride_along),
		cmocka_unit_test(targets_hold_on_a_noisy_machine),
		cmocka_unit_test(a_crowd_teaches_nothing_about_targets),
		cmocka_unit_test(prompts_stand_back_while_targets_leave_no_time),
		cmocka_unit_test(a_long_prompt_stretches_steps_by_a_set_factor),
		cmocka_unit_test(prompts_alone_are_cut_to_max_prefill),
		cmocka_unit_test(earliest_deadline_first),
		cmocka_unit_test(offline_min_share_holds),
		cmocka_unit_test(places_are_given_back_last_in_first_out),
		cmocka_unit_test(offline_min_share_holds_with_one_place),
		cmocka_unit_test(a_small_pool_ends_an_open_answer),
		cmocka_unit_test(company_holds_offline_back),
	};

	return cmocka_run_group_tests(tests, fake_setup, fake_teardown);
}
