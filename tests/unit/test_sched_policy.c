/* SPDX-License-Identifier: Apache-2.0
 * What the scheduler promises, one test a promise, over a backend with known costs: classes, places and pages, shares,
 * priority and aging, limits at the door, deadlines, cancel, slow readers, prefixes, what is listed. Times: test_sched_time.c.
 */
#include "tests/unit/sched_fake.h"

#define ONLINE	.traffic_class = WIRE_ONLINE
#define OFFLINE .traffic_class = WIRE_OFFLINE

/* ---- places and pages -------------------------------------------------------------------------------------------------- */

/* All places are taken by offline requests: an online prompt starts within one step, and the victim comes back. */
static void online_takes_an_offline_place_at_once(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 2 }, 256);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 20, .max_tokens = 30, OFFLINE);
	ASK(f, .id = 2, .n_prompt = 20, .max_tokens = 30, OFFLINE);
	steps(f, 12);
	ASK(f, .id = 3, .n_prompt = 40, .max_tokens = 5, ONLINE);
	one_step(f);
	assert_int_equal(rows_of(f, 3), 40);
	run_out(f);
	assert_int_equal(f->h[1].n_tokens + f->h[2].n_tokens + f->h[3].n_tokens, 65);
	assert_int_equal(f->h[1].n_preempted + f->h[2].n_preempted, 1);
	assert_int_equal(f->h[3].n_preempted, 0);
	fake_close(f);
}

/* Places are free and only memory is short: a high-priority online request still gets on, at once. */
static void short_memory_does_not_starve_online(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 16 }, 16);
	struct sched_status s;

	(void)st;
	for (uint32_t id = 1; id <= 4; id++)
		ASK(f, .id = id, .n_prompt = 40, .max_tokens = 20, OFFLINE);
	steps(f, 20);
	sched_get_status(f->s, &s);
	assert_true(s.class[WIRE_OFFLINE].running >= 3 && s.pages_free[0] < 8);
	ASK(f, .id = 9, .n_prompt = 120, .max_tokens = 20, ONLINE, .priority = 50);
	one_step(f);
	assert_true(rows_of(f, 9) > 0);
	run_out(f);
	for (uint32_t id = 1; id <= 4; id++)
		assert_int_equal(f->h[id].n_tokens, 20);
	assert_int_equal(f->h[9].n_tokens, 20);
	fake_close(f);
}

/* Who was preempted is the next to go on, before others of its class that never ran. */
static void a_preempted_request_keeps_its_place_in_the_queue(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 256);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 20, .max_tokens = 20, OFFLINE, .tenant = "a");
	steps(f, 8);
	for (uint32_t id = 2; id <= 5; id++)
		ASK(f, .id = id, .n_prompt = 20, .max_tokens = 20, OFFLINE, .tenant = "b");
	ASK(f, .id = 6, .n_prompt = 20, .max_tokens = 2, ONLINE);
	while (!f->h[6].n_done)
		one_step(f);
	while (!f->h[1].n_done) {
		one_step(f);
		for (uint32_t id = 2; id <= 5; id++)
			assert_int_equal(f->h[id].n_tokens, 0);
	}
	assert_int_equal(f->h[1].n_preempted, 1);
	run_out(f);
	fake_close(f);
}

static void nobody_is_the_victim_twice_in_a_row(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 3 }, 256);
	uint32_t most = 0, sum = 0;

	(void)st;
	for (uint32_t id = 1; id <= 3; id++)
		ASK(f, .id = id, .n_prompt = 16 * id, .max_tokens = 60, OFFLINE);
	steps(f, 10);
	for (uint32_t id = 10; id < 16; id++) {
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 3, ONLINE);
		while (!f->h[id].n_done)
			one_step(f);
		steps(f, 2);
	}
	run_out(f);
	for (uint32_t id = 1; id <= 3; id++) {
		most = MAX_OF(most, f->h[id].n_preempted);
		sum += f->h[id].n_preempted;
	}
	assert_int_equal(sum, 6);
	assert_true(most <= 3);
	fake_close(f);
}

/* Online sequences fill the pool: the oldest always gets on, all end. */
static void the_oldest_always_gets_on(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 8 }, 12);

	(void)st;
	for (uint32_t id = 1; id <= 8; id++)
		ASK(f, .id = id, .n_prompt = 30, .max_tokens = 100, ONLINE);
	run_out(f);
	for (uint32_t id = 1; id <= 8; id++)
		assert_int_equal(f->h[id].n_tokens, 100);
	assert_int_equal(f->h[1].n_preempted, 0);
	fake_close(f);
}

/* ---- order ------------------------------------------------------------------------------------------------------------- */

static void higher_priority_first_and_waiting_counts(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1, .aging_ns = 500 * MS }, 256);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 10, .max_tokens = 10);
	one_step(f);
	ASK(f, .id = 2, .n_prompt = 10, .max_tokens = 10, .tenant = "low");
	ASK(f, .id = 3, .n_prompt = 10, .max_tokens = 10, .priority = 5, .tenant = "high");
	one_step(f);
	assert_int_equal(entry_of(f, 3)->wait, SCHED_WAIT_PLACE);
	while (!f->h[3].n_tokens)
		one_step(f);
	assert_int_equal(f->h[2].n_tokens, 0);
	/* an endless stream of priority 5: the low one rises by one each half second */
	for (uint32_t id = 10; !f->h[2].n_tokens; id++) {
		assert_true(id < 40);
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 10, .priority = 5, .tenant = "high");
		while (!f->h[id].n_done && !f->h[2].n_tokens)
			one_step(f);
	}
	assert_true(f->now_ns > NS_PER_S + 5 * 500 * MS);
	run_out(f);
	fake_close(f);
}

/* Prompt and generated tokens of tenant `k`'s requests [from, to). */
static uint32_t served(const struct fake *f, uint32_t from, uint32_t to)
{
	uint32_t n = 0;

	for (uint32_t id = from; id < to; id++)
		n += f->h[id].n_tokens;
	return n;
}

/* One tenant floods, the other comes later with few: it gets its half at once, and by weight when weights differ. */
static void a_flood_costs_only_its_sender(void **st)
{
	static const uint32_t weights[] = { 1000, 3000 };

	(void)st;
	for (size_t k = 0; k < COUNT_OF(weights); k++) {
		struct fake *f = fake_open((struct sched_config){ .max_running = 2 }, 256);
		uint32_t flood, few;

		for (uint32_t id = 0; id < 200; id++)
			ASK(f, .id = 1 + id, .n_prompt = 10, .max_tokens = 6, OFFLINE, .tenant = "flood");
		steps(f, 100);
		flood = served(f, 1, 201);
		for (uint32_t id = 0; id < 60; id++)
			ASK(f, .id = 300 + id, .n_prompt = 10, .max_tokens = 6, OFFLINE, .tenant = "few",
				.weight = weights[k]);
		steps(f, 150);
		flood = served(f, 1, 201) - flood;
		few = served(f, 300, 360);
		assert_true(few * 1000 > flood * weights[k] * 7 / 10 &&
			few * 1000 < flood * weights[k] * 14 / 10);
		run_out(f);
		fake_close(f);
	}
}

/* Who was idle while others worked comes back at their level: no credit to flood with. */
static void idle_time_is_no_credit(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 256);
	uint32_t busy;

	(void)st;
	ASK(f, .id = 1, .n_prompt = 10, .max_tokens = 4, .tenant = "idler");
	while (!f->h[1].n_done)
		one_step(f);
	for (uint32_t id = 10; id < 110; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 4, .tenant = "busy");
	steps(f, 200);
	busy = served(f, 10, 110);
	for (uint32_t id = 200; id < 260; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 4, .tenant = "idler");
	steps(f, 80);
	busy = served(f, 10, 110) - busy;
	assert_true(busy >= 30 && served(f, 200, 260) >= 30);
	run_out(f);
	fake_close(f);
}

/* ---- the door ---------------------------------------------------------------------------------------------------------- */

static void refused_with_a_reason(struct fake *f, struct ask a, int code, const char *word)
{
	struct error e = { 0 };

	assert_int_equal(fake_ask(f, a, &e), code);
	if (!strstr(e.text, word))
		fail_msg("'%s' does not name '%s'", e.text, word);
}

static void what_cannot_run_is_refused_with_a_reason(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 8);
	const int32_t token = 1;
	struct sched_request late = { .id = 2, .prompt = &token, .n_prompt = 1 };

	(void)st;
	refused_with_a_reason(
		f, (struct ask){ .id = 1, .n_prompt = 3, .traffic_class = 2 }, TENON_E_INVALID, "class 2");
	refused_with_a_reason(
		f, (struct ask){ .id = 1, .n_prompt = 3, .priority = -101 }, TENON_E_INVALID, "-100 to 100");
	refused_with_a_reason(f, (struct ask){ .id = 1, .n_prompt = 3, .priority = INT32_MAX },
		TENON_E_INVALID, "2147483647");
	refused_with_a_reason(f, (struct ask){ .id = 1, .n_prompt = 3, .deadline_ns = f->now_ns },
		TENON_E_INVALID, "deadline");
	refused_with_a_reason(
		f, (struct ask){ .id = 1, .n_prompt = 4000, .max_tokens = 200 }, TENON_E_TOO_LONG, "4096");
	refused_with_a_reason(f, (struct ask){ .id = 1, .n_prompt = 4000, .max_tokens = 200 },
		TENON_E_TOO_LONG, "ask for 96 or less");
	refused_with_a_reason(
		f, (struct ask){ .id = 1, .n_prompt = 4096 }, TENON_E_TOO_LONG, "shorten it to 4095 or less");
	refused_with_a_reason(f, (struct ask){ .id = 1, .n_prompt = 100, .max_tokens = 29 }, TENON_E_NOMEM,
		"holds 128; raise kv_mib or kv_sessions, or ask for max_tokens of 28 or less");
	refused_with_a_reason(f, (struct ask){ .id = 1, .n_prompt = 130 }, TENON_E_NOMEM,
		"shorten the prompt to 127 or less");
	ASK(f, .id = 1, .n_prompt = 100, .max_tokens = 28);
	run_out(f);
	assert_int_equal(f->h[1].n_tokens, 28);
	late.deadline_ns = f->now_ns;
	late.time.arrived_ns = f->now_ns - 1; /* it came in time */
	assert_int_equal(sched_submit(f->s, &late, NULL), TENON_E_TIMEOUT);
	fake_close(f);
}

static void the_queue_is_bounded_per_class_tenant_and_bytes(void **st)
{
	struct sched_config c = { .max_running = 1,
		.class[WIRE_OFFLINE] = { .max_waiting = 6, .max_waiting_tenant = 4 },
		.class[WIRE_ONLINE] = { .max_waiting_bytes = 4000 } };
	struct fake *f = fake_open(c, 256);
	struct sched_status s;

	(void)st;
	for (uint32_t id = 1; id <= 4; id++)
		ASK(f, .id = id, .n_prompt = 10, .max_tokens = 10, OFFLINE, .tenant = "a");
	refused_with_a_reason(f, (struct ask){ .id = 5, .n_prompt = 10, OFFLINE, .tenant = "a" },
		TENON_E_FULL, "limit is 4; try again in");
	ASK(f, .id = 6, .n_prompt = 10, .max_tokens = 10, OFFLINE, .tenant = "b");
	ASK(f, .id = 7, .n_prompt = 10, .max_tokens = 10, OFFLINE, .tenant = "b");
	refused_with_a_reason(f, (struct ask){ .id = 8, .n_prompt = 10, OFFLINE, .tenant = "c" },
		TENON_E_FULL, "limit is 6");
	ASK(f, .id = 11, .n_prompt = 10, .max_tokens = 10, OFFLINE, .tenant = "c",
		.again = true); /* taken in before a death */
	ASK(f, .id = 9, .n_prompt = 400, .max_tokens = 400, ONLINE);
	refused_with_a_reason(f, (struct ask){ .id = 10, .n_prompt = 400, .max_tokens = 400, ONLINE },
		TENON_E_FULL, "4000");
	sched_get_status(f->s, &s);
	assert_int_equal(s.class[WIRE_OFFLINE].refused, 2);
	assert_int_equal(s.class[WIRE_ONLINE].refused, 1);
	run_out(f);
	fake_close(f);
}

static void deadlines_end_what_waits_and_what_runs(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 256);
	struct sched_status s;

	(void)st;
	ASK(f, .id = 1, .n_prompt = 10, .max_tokens = 200, .deadline_ns = f->now_ns + 300 * MS);
	ASK(f, .id = 2, .n_prompt = 10, .max_tokens = 10, .deadline_ns = f->now_ns + 100 * MS);
	ASK(f, .id = 3, .n_prompt = 10, .max_tokens = 10);
	run_out(f);
	assert_int_equal(f->h[1].code, TENON_E_TIMEOUT);
	assert_true(f->h[1].n_tokens > 5);
	assert_int_equal(f->h[2].code, TENON_E_TIMEOUT);
	assert_int_equal(f->h[2].n_tokens, 0);
	assert_int_equal(f->h[3].n_tokens, 10);
	sched_get_status(f->s, &s);
	assert_int_equal(s.class[WIRE_ONLINE].deadline_missed, 2);
	fake_close(f);
}

/* ---- cancel, pause, faults --------------------------------------------------------------------------------------------- */

static void cancelling_a_queued_request_touches_nobody_else(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 2 }, 256);
	struct sched_status s;

	(void)st;
	for (uint32_t id = 1; id <= 6; id++)
		ASK(f, .id = id, .n_prompt = 30, .max_tokens = 10);
	steps(f, 3);
	assert_int_equal(sched_cancel(f->s, 5, TENON_E_CANCELLED, "gone"), 0);
	assert_int_equal(sched_cancel(f->s, 5, TENON_E_CANCELLED, "gone"), TENON_E_NOT_FOUND);
	assert_int_equal(sched_cancel(f->s, 1, TENON_E_CANCELLED, "gone"),
		0); /* decodes: its pages are free at once */
	sched_get_status(f->s, &s);
	assert_true(s.pages_free[0] >= 256 - 3);
	run_out(f);
	for (uint32_t id = 1; id <= 6; id++)
		assert_int_equal(f->h[id].n_done, id != 1 && id != 5);
	assert_int_equal(f->h[5].n_error, 1);
	fake_close(f);
}

/* A client that does not read: its sequence keeps its pages, not its place, and gives the pages up when they are short. */
static void a_slow_reader_stops_nobody(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 16);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 60, .max_tokens = 20, .no_reuse = true);
	steps(f, 5);
	assert_int_equal(sched_pause(f->s, 1), 0);
	ASK(f, .id = 2, .n_prompt = 60, .max_tokens = 20);
	while (!f->h[2].n_done)
		one_step(f);
	assert_int_equal(entry_of(f, 1)->wait, SCHED_WAIT_READER);
	assert_true(entry_of(f, 1)->past > 60);
	ASK(f, .id = 3, .n_prompt = 200, .max_tokens = 20);
	while (!f->h[3].n_done)
		one_step(f);
	assert_int_equal(entry_of(f, 1)->past, 0);
	assert_int_equal(sched_step(f->s, NULL), TENON_E_AGAIN);
	assert_int_equal(sched_wants(f->s), SCHED_WANT_NOTHING);
	assert_int_equal(sched_resume(f->s, 1), 0);
	assert_int_equal(sched_wants(f->s), SCHED_WANT_ONLINE);
	run_out(f);
	assert_int_equal(f->h[1].n_tokens, 20);
	fake_close(f);
}

static void a_lost_device_leaves_requests_open(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 64);

	(void)st;
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 5);
	f->fail = TENON_E_BACKEND;
	assert_int_equal(sched_step(f->s, NULL), TENON_E_BACKEND);
	assert_int_equal(f->h[1].n_error, 0);
	run_out(f); /* would be replayed elsewhere; here the fake lives on */
	f->fail = TENON_E_INTERNAL;
	ASK(f, .id = 2, .n_prompt = 30, .max_tokens = 5);
	one_step(f);
	assert_int_equal(f->h[2].code, TENON_E_INTERNAL);
	fake_close(f);
}

/* ---- shared prefixes --------------------------------------------------------------------------------------------------- */

/* Requests with an equal new prefix: the first computes, the others wait for it, then share. */
static void an_equal_prefix_is_computed_once(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_prefill_ns = 50 * MS }, 400);
	struct sched_status s;

	(void)st;
	for (uint32_t id = 1; id <= 4; id++)
		ASK(f, .id = id, .token = 77, .n_prompt = 325, .max_tokens = 3);
	one_step(f);
	assert_int_equal(f->n_spans, 1);
	for (uint32_t id = 2; id <= 4; id++) {
		assert_int_equal(entry_of(f, id)->wait, SCHED_WAIT_PREFIX);
		assert_int_equal(entry_of(f, id)->behind, 1);
	}
	run_out(f);
	for (uint32_t id = 1; id <= 4; id++)
		assert_int_equal(f->h[id].n_tokens, 3);
	assert_int_equal(f->h[1].n_cached, 0);
	for (uint32_t id = 2; id <= 4; id++)
		assert_true(f->h[id].n_cached >= 320 && f->h[id].n_cached < 325);
	sched_get_status(f->s, &s);
	assert_true(s.class[WIRE_ONLINE].prompt_tokens < 345);
	assert_true(s.class[WIRE_ONLINE].cached_tokens >= 960);
	fake_close(f);
}

/* Whatever happens to the one that computes, those behind it go on. */
static void followers_survive_their_leader(void **st)
{
	(void)st;
	for (int how = 0; how < 3; how++) {
		struct fake *f = fake_open((struct sched_config){ .max_prefill_ns = 50 * MS }, 400);

		for (uint32_t id = 1; id <= 3; id++)
			ASK(f, .id = id, .token = 77, .n_prompt = 325, .max_tokens = 3);
		steps(f, 2);
		assert_int_equal(entry_of(f, 2)->wait, SCHED_WAIT_PREFIX);
		if (how == 0)
			assert_int_equal(sched_cancel(f->s, 1, TENON_E_CANCELLED, "gone"), 0);
		if (how == 1)
			assert_int_equal(sched_pause(f->s, 1), 0);
		if (how == 2)
			f->fail = TENON_E_INTERNAL;
		run_out(f);
		for (uint32_t id = 2; id <= 3; id++)
			assert_int_equal(f->h[id].n_tokens, 3);
		if (how != 2)
			assert_true(f->h[2].n_cached > 0); /* what the leader had done was not lost */
		if (how == 1)
			assert_int_equal(sched_resume(f->s, 1), 0);
		run_out(f);
		fake_close(f);
	}
}

/* Somebody online waits for an offline prompt: that prompt is then as urgent as the waiter. */
static void nobody_online_waits_behind_an_offline_prefill(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 2 }, 400);

	(void)st;
	learn(f);
	ASK(f, .id = 1, .token = 77, .n_prompt = 800, .max_tokens = 3, OFFLINE);
	ASK(f, .id = 2, .token = 78, .n_prompt = 800, .max_tokens = 3, OFFLINE);
	one_step(f);
	ASK(f, .id = 3, .token = 77, .n_prompt = 790, .max_tokens = 3, ONLINE);
	one_step(f);
	assert_int_equal(entry_of(f, 3)->behind, 1);
	for (uint32_t k = 0; entry_of(f, 3)->wait == SCHED_WAIT_PREFIX; k++) {
		assert_true(rows_of(f, 77) > 0 && rows_of(f, 78) < 6 && k < 20);
		one_step(f);
	}
	run_out(f);
	assert_true(f->h[3].n_cached > 700);
	assert_true(f->h[3].last_ns < f->h[2].first_ns);
	fake_close(f);
}

static void no_reuse_neither_finds_nor_leaves(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 400),
		    *g = fake_open((struct sched_config){ .no_prefix = true }, 400);

	(void)st;
	ASK(f, .id = 1, .token = 77, .n_prompt = 100, .max_tokens = 3, .no_reuse = true);
	run_out(f);
	ASK(f, .id = 2, .token = 77, .n_prompt = 100, .max_tokens = 3);
	run_out(f);
	ASK(f, .id = 3, .token = 77, .n_prompt = 100, .max_tokens = 3, .no_reuse = true);
	run_out(f);
	ASK(f, .id = 4, .token = 77, .n_prompt = 100, .max_tokens = 3);
	ASK(f, .id = 5, .token = 77, .n_prompt = 100, .max_tokens = 3, .tenant = "other");
	run_out(f);
	assert_int_equal(f->h[2].n_cached + f->h[3].n_cached + f->h[5].n_cached, 0);
	assert_true(f->h[4].n_cached >= 96);
	fake_close(f);
	ASK(g, .id = 1, .n_prompt = 100, .max_tokens = 3);
	run_out(g);
	ASK(g, .id = 1, .n_prompt = 100, .max_tokens = 3);
	memset(g->h, 0, sizeof g->h);
	run_out(g);
	assert_int_equal(g->h[1].n_cached, 0);
	assert_null(sched_prefix(g->s));
	fake_close(g);
}

/* A chat: the next turn's prompt goes on behind the last answer. */
static void an_answer_serves_the_next_turn(void **st)
{
	struct fake *f = fake_open((struct sched_config){ 0 }, 400);

	(void)st;
	ASK(f, .id = 1, .token = 77, .n_prompt = 50, .max_tokens = 61);
	run_out(f);
	ASK(f, .id = 2, .token = 77, .n_prompt = 130, .max_tokens = 5);
	run_out(f);
	assert_int_equal(f->h[2].n_cached, 110); /* 50 + 61, but for the last one, which was never computed */
	fake_close(f);
}

static void pins_stay_and_a_full_share_is_no_error(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .prefix.max_pinned_pages = 8 }, 40);
	struct sched_status s;

	(void)st;
	ASK(f, .id = 1, .token = 77, .n_prompt = 100, .max_tokens = 3, .pin = true);
	ASK(f, .id = 2, .token = 78, .n_prompt = 100, .max_tokens = 3, .pin = true);
	run_out(f);
	sched_get_status(f->s, &s);
	assert_int_equal(s.prefix.pinned_pages, 6);
	ASK(f, .id = 3, .token = 79, .n_prompt = 500, .max_tokens = 12);
	run_out(f);
	ASK(f, .id = 4, .token = 77, .n_prompt = 100, .max_tokens = 3);
	run_out(f);
	assert_int_equal(f->h[2].n_tokens + f->h[3].n_tokens, 15);
	assert_true(f->h[4].n_cached >= 96);
	/* what the pins leave is not enough for this one: an error, not a wait without end */
	ASK(f, .id = 5, .token = 80, .n_prompt = 600, .max_tokens = 12);
	run_out(f);
	assert_int_equal(f->h[5].code, TENON_E_NOMEM);
	assert_non_null(strstr(f->h[5].text, "unpin"));
	fake_close(f);
}

/* Preempted for a place: nothing is computed again, since the cache keeps its pages. */
static void resuming_costs_nothing(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 400);
	struct sched_status s;

	(void)st;
	ASK(f, .id = 1, .n_prompt = 100, .max_tokens = 30, OFFLINE);
	steps(f, 20);
	ASK(f, .id = 2, .n_prompt = 100, .max_tokens = 3, ONLINE);
	run_out(f);
	assert_int_equal(f->h[1].n_preempted, 1);
	sched_get_status(f->s, &s);
	assert_int_equal(s.class[WIRE_OFFLINE].recomputed_tokens, 0);
	assert_int_equal(s.class[WIRE_OFFLINE].preempted, 1);
	fake_close(f);
}

/* ---- cost of deciding -------------------------------------------------------------------------------------------------- */

static void a_decision_is_cheap(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_step_ns = NS_PER_S }, 4000);
	static char name[50][8];
	uint64_t t0, ns = UINT64_MAX, sum = 0;

	(void)st;
	for (uint32_t id = 1; id <= 64; id++)
		ASK(f, .id = id, .n_prompt = 20, .max_tokens = 400, OFFLINE);
	while (f->n_spans < 64 || f->n_rows != 64)
		one_step(f);
	for (uint32_t i = 0; i < 1000; i++) {
		(void)snprintf(name[i % 50], sizeof name[0], "t%u", i % 50);
		ASK(f, .id = 100 + i, .token = 100 + (int32_t)(i % 300), .n_prompt = 300, .max_tokens = 100,
			OFFLINE, .tenant = name[i % 50]);
	}
	for (int i = 0; i < 200; i++) {
		t0 = clock_now_ns();
		one_step(f);
		ns = MIN_OF(ns, f->entered_ns - t0);
		sum += clock_now_ns() - t0 - f->engine_real_ns;
	}
	print_message(
		"1,000 waiting, 64 running: deciding takes %.1f us at best, with taking 64 tokens %.1f us in the mean\n",
		(double)ns / 1e3, (double)sum / 200e3);
	assert_true(ns < 2 * MS);
	for (uint32_t id = 1; id < 1100; id++)
		(void)sched_cancel(f->s, id, TENON_E_CANCELLED, "enough");
	fake_close(f);
}

static void steady_decode_allocates_nothing(void **st)
{
	(void)st;
	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		struct fake *f = fake_open((struct sched_config){ .max_step_ns = NS_PER_S }, 4000);
		uint64_t before;

		for (uint32_t id = 1; id <= 8; id++)
			ASK(f, .id = id, .n_prompt = 20, .max_tokens = 100, .traffic_class = k);
		steps(f, 20);
		before = mem_n_allocs();
		steps(f, 60);
		assert_int_equal(mem_n_allocs() - before, 0);
		run_out(f);
		fake_close(f);
	}
}

/* ---- idle time and lists ----------------------------------------------------------------------------------------------- */

static void calibrates_when_idle_and_stops_for_work(void **st)
{
	struct cost_model *cost;
	struct sched_config c = { 0 };
	struct cost_shape s = { 0 };
	struct fake *f;
	uint32_t n = 0;

	(void)st;
	assert_int_equal(cost_create(&cost, NULL), 0);
	c.cost = cost;
	f = fake_open(c, 512);
	assert_false(sched_tend(f->s, 10 * MS));
	assert_int_equal(f->n_steps, 0); /* not before the first answer */
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 5);
	run_out(f);
	assert_true(sched_tend(f->s, MS));
	ASK(f, .id = 2, .n_prompt = 30, .max_tokens = 5);
	assert_false(sched_tend(f->s, MS));
	run_out(f);
	while (sched_tend(f->s, 10 * MS))
		assert_true(++n < 200);
	assert_true(cost_calibrated(cost) && n > 10);
	cost_shape_add(&s, 100, 16, 1);
	assert_true(cost_predict_ns(cost, &s) > 21 * MS && cost_predict_ns(cost, &s) < 27 * MS);
	fake_close(f);
	cost_destroy(cost);
}

static void the_list_says_why(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1 }, 256);
	struct sched_entry e[8];
	static const uint64_t order[] = { 1, 3, 2, 5, 4 };

	(void)st;
	ASK(f, .id = 1, .n_prompt = 30, .max_tokens = 5, .tenant = "a");
	one_step(f);
	ASK(f, .id = 2, .n_prompt = 30, .max_tokens = 5, .tenant = "a");
	ASK(f, .id = 3, .n_prompt = 30, .max_tokens = 5, .tenant = "b");
	ASK(f, .id = 4, .n_prompt = 30, .max_tokens = 5, OFFLINE);
	ASK(f, .id = 5, .n_prompt = 30, .max_tokens = 5, OFFLINE, .priority = 1);
	one_step(f);
	assert_int_equal(sched_list(f->s, e, 8), 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(e[i].id, order[i]);
	assert_int_equal(e[0].wait, SCHED_RUNS);
	assert_int_equal(e[1].wait, SCHED_WAIT_PLACE);
	assert_int_equal(e[2].wait, SCHED_WAIT_TURN);
	assert_int_equal(e[2].behind, 3);
	assert_int_equal(e[3].wait, SCHED_WAIT_ONLINE);
	assert_string_equal(e[1].tenant, "b");
	assert_int_equal(sched_list(f->s, e, 2), 5);
	assert_string_equal(sched_wait_name(e[1].wait), "place");
	run_out(f);
	fake_close(f);
}

/* One after the other, each to its end: they start in the order in which they were listed. */
static void starts_as_listed(uint32_t dice, uint64_t aging_ns)
{
	static const char *const tenants[] = { "a", "b", "c" };
	struct fake *f = fake_open((struct sched_config){ .max_running = 1, .aging_ns = aging_ns }, 256);
	struct sched_entry e[16];
	uint64_t n = 12;

	f->dice = dice;
	ASK(f, .id = 1, .n_prompt = 20, .max_tokens = 40, ONLINE);
	one_step(f);
	for (uint32_t id = 2; id < 2 + n; id++) {
		uint32_t t = fake_draw(f) % 3;

		ASK(f, .id = id, .n_prompt = 5 + fake_draw(f) % 60, .max_tokens = 1 + fake_draw(f) % 30,
			ONLINE, .priority = (int32_t)(fake_draw(f) % 3), .tenant = tenants[t],
			.weight = 1000 + 1000 * t, .no_reuse = true);
		one_step(f);
	}
	assert_int_equal(sched_list(f->s, e, 16), n + 1);
	assert_int_equal(sched_cancel(f->s, 1, TENON_E_CANCELLED, "test"), 0);
	for (uint64_t i = 1; i <= n; i++) {
		assert_int_equal(e[i].behind, i > 1 ? e[i - 1].id : 0);
		while (!f->h[e[i].id].n_done) {
			one_step(f);
			for (uint64_t k = i + 1; k <= n; k++)
				assert_int_equal(f->h[e[k].id].n_tokens, 0);
		}
	}
	fake_close(f);
}

static void the_list_is_in_the_order_of_starting(void **st)
{
	(void)st;
	for (uint32_t dice = 1; dice <= 40; dice++)
		starts_as_listed(dice, 1000 * NS_PER_S);
}

/* Waiting lifts a tenant's old request up to the best that another tenant has, in the list as in the queue. */
static void the_list_knows_of_aging(void **st)
{
	struct fake *f = fake_open((struct sched_config){ .max_running = 1, .aging_ns = 10 * MS }, 256);
	struct sched_entry e[4];

	(void)st;
	ASK(f, .id = 1, .n_prompt = 20, .max_tokens = 200, ONLINE, .tenant = "c");
	one_step(f);
	ASK(f, .id = 2, .n_prompt = 20, .max_tokens = 5, ONLINE, .tenant = "a");
	steps(f, 40);
	ASK(f, .id = 3, .n_prompt = 20, .max_tokens = 5, ONLINE, .tenant = "b", .priority = 3);
	assert_int_equal(sched_list(f->s, e, 4), 3);
	assert_int_equal(e[1].id, 2);
	assert_int_equal(e[1].aged_priority, 3); /* though it has waited for more */
	assert_int_equal(e[2].id, 3);
	assert_int_equal(sched_cancel(f->s, 1, TENON_E_CANCELLED, "test"), 0);
	while (!f->h[2].n_done)
		one_step(f);
	assert_int_equal(f->h[3].n_tokens, 0);
	run_out(f);
	fake_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(online_takes_an_offline_place_at_once),
		cmocka_unit_test(short_memory_does_not_starve_online),
		cmocka_unit_test(a_preempted_request_keeps_its_place_in_the_queue),
		cmocka_unit_test(nobody_is_the_victim_twice_in_a_row),
		cmocka_unit_test(the_oldest_always_gets_on),
		cmocka_unit_test(higher_priority_first_and_waiting_counts),
		cmocka_unit_test(a_flood_costs_only_its_sender),
		cmocka_unit_test(idle_time_is_no_credit),
		cmocka_unit_test(what_cannot_run_is_refused_with_a_reason),
		cmocka_unit_test(the_queue_is_bounded_per_class_tenant_and_bytes),
		cmocka_unit_test(deadlines_end_what_waits_and_what_runs),
		cmocka_unit_test(cancelling_a_queued_request_touches_nobody_else),
		cmocka_unit_test(a_slow_reader_stops_nobody),
		cmocka_unit_test(a_lost_device_leaves_requests_open),
		cmocka_unit_test(an_equal_prefix_is_computed_once),
		cmocka_unit_test(followers_survive_their_leader),
		cmocka_unit_test(nobody_online_waits_behind_an_offline_prefill),
		cmocka_unit_test(no_reuse_neither_finds_nor_leaves),
		cmocka_unit_test(an_answer_serves_the_next_turn),
		cmocka_unit_test(pins_stay_and_a_full_share_is_no_error),
		cmocka_unit_test(resuming_costs_nothing),
		cmocka_unit_test(a_decision_is_cheap),
		cmocka_unit_test(steady_decode_allocates_nothing),
		cmocka_unit_test(calibrates_when_idle_and_stops_for_work),
		cmocka_unit_test(the_list_says_why),
		cmocka_unit_test(the_list_is_in_the_order_of_starting),
		cmocka_unit_test(the_list_knows_of_aging),
	};

	return cmocka_run_group_tests(tests, fake_setup, fake_teardown);
}
