/* SPDX-License-Identifier: Apache-2.0
 * The daemon against a worker by hand: for whom requests are, durable ones, models that leave, settings.
 */
#include "daemon/worker_priv.h"
#include "tests/unit/daemon_world.h"

static void workers_are_told_for_whom(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	char own[24];

	(void)snprintf(own, sizeof own, "uid:%u", (unsigned)getuid());
	begin(c, "mine", (struct wire_request){ .flags = WIRE_R_NO_REUSE });
	assert_string_equal(fake_find("mine")->tenant, own);
	assert_int_equal(fake_find("mine")->tenant_weight, 1000);
	assert_int_equal(fake_find("mine")->flags, WIRE_R_NO_REUSE);
	fake_done(fake_find("mine")->id);
	fake_flush();
	turn(d, 4);
	assert_int_equal(skip_states(c), WIRE_DONE);
	detach(c);
}

/* Ids and text of all TOKENS frames up to another one, which is returned. */
static uint16_t gather(struct peer *c, char *text, size_t room, uint32_t *n_ids)
{
	size_t len = 0;
	uint16_t type;

	for (*n_ids = 0; (type = skip_states(c)) == WIRE_TOKENS;) {
		struct wire_tokens t;

		memcpy(&t, c->body, sizeof t);
		assert_true(len + t.text_bytes < room);
		memcpy(text + len, c->body + sizeof t + 4 * t.n_tokens, t.text_bytes);
		len += t.text_bytes;
		*n_ids += t.n_tokens;
	}
	text[len] = 0;
	return type;
}

static void collect(struct peer *c, const char *job)
{
	begin_job(c, "", job, (struct wire_request){ .flags = WIRE_R_COLLECT });
}

static void durable_requests_outlive_their_session(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct fake_request *r;
	char text[64];
	uint32_t n, starts;

	begin_job(c, "long work", "night",
		(struct wire_request){ .flags = WIRE_R_DURABLE, .traffic_class = WIRE_OFFLINE });
	r = fake_find("long work");
	assert_int_equal(r->flags | r->job_bytes, 0); /* nothing of it is the worker's affair */
	fake_tokens(r->id, 1, 2, "ab");
	fake_flush();
	turn(d, 3);
	detach(c);
	assert_false(r->cancelled);
	assert_int_equal(d->requests.n_open, 1);
	assert_int_equal(d->requests.n_orphans, 0);
	fake_tokens(r->id, 3, 1, "c");
	starts = fake.n_starts;
	fake_die(); /* and the worker's death */
	TURN_UNTIL(d, fake.n_starts > starts && fake_find("long work"));
	r = fake_find("long work");
	assert_int_equal(r->n_history, 3);
	c = attach(d);
	collect(c, "other");
	expect_error(c, 1, TENON_E_NOT_FOUND);
	collect(c, "night");
	assert_int_equal(gather(c, text, sizeof text, &n), 0);
	assert_string_equal(text, "abc");
	fake_tokens(r->id, 4, 1, "d");
	fake_done(r->id);
	fake_flush();
	turn(d, 4);
	assert_int_equal(gather(c, text, sizeof text, &n), WIRE_DONE);
	assert_string_equal(text, "d");
	assert_calm(d);
	collect(c, "night");
	assert_int_equal(gather(c, text, sizeof text, &n), WIRE_DONE);
	assert_string_equal(text, "abcd");
	assert_int_equal(n, 4);
	begin_job(c, "again", "night",
		(struct wire_request){ .flags = WIRE_R_DURABLE, .traffic_class = WIRE_OFFLINE });
	expect_error(c, c->id, TENON_E_BUSY);
	assert_calm(d);
	detach(c);
}

static void leaving_models_end_in_time(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct model_entry *m = models_lookup(d, "m");
	struct error e = { 0 };

	begin(c, "a", (struct wire_request){ 0 });
	assert_int_equal(model_unload(m, &e), TENON_E_BUSY);
	assert_int_equal(model_leave(m, false, 0, &e), TENON_E_BUSY);
	assert_int_equal(model_leave(m, false, 300, &e), TENON_OK);
	begin(c, "b", (struct wire_request){ 0 });
	expect_error(c, 2, TENON_E_BUSY);
	TURN_UNTIL(d, !m->leaving); /* its time is over: it serves on */
	begin(c, "c", (struct wire_request){ 0 });
	assert_non_null(fake_find("c"));
	assert_int_equal(m->state, MODEL_LOADED);
	assert_int_equal(model_leave(m, true, 0, &e), TENON_OK);
	turn(d, 10);
	expect_error(c, 1, TENON_E_CANCELLED);
	expect_error(c, 3, TENON_E_CANCELLED);
	assert_int_equal(fake.n_unloads, 1);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_calm(d);
	detach(c);
}

/* What the configuration says arrives in the scheduler's configuration. */
static void settings_go_through(void **state)
{
	const struct override o[] = { { "scheduler.max_step_ms", "40" }, { "scheduler.slack_percent", "7" },
		{ "scheduler.long_prompt_factor", "3.5" }, { "scheduler.calibrate", "false" },
		{ "online.tpot_ms", "12" }, { "offline.max_waiting", "9" },
		{ "offline.max_waiting_mib", "2" }, { "offline.min_share_percent", "20" },
		{ "prefix.reuse", "false" }, { "prefix.share_tenants", "true" }, { "prefix.host_mib", "3" },
		{ "prefix.disk_dir", "/x" }, { "memory.limit_mib", "5" } };
	struct settings s;
	struct error e = { 0 };
	struct conf c;
	json_t *json;

	(void)state;
	assert_int_equal(conf_init(&c, &e), TENON_OK);
	for (size_t i = 0; i < COUNT_OF(o); i++)
		assert_int_equal(conf_set(&c, o[i].key, o[i].value, &e), TENON_OK);
	json = settings_json(&c);
	assert_int_equal(settings_parse(json, &s, &e), TENON_OK);
	json_decref(json);
	conf_finish(&c);
	assert_true(s.sched.max_step_ns == 40 * NS_PER_MS && s.sched.max_prefill_ns == 100 * NS_PER_MS);
	assert_true(s.sched.aging_ns == 10 * NS_PER_S && s.sched.slack == 0.07 &&
		s.sched.long_prompt_factor == 3.5);
	assert_true(s.sched.offline_min_share == 0.2 && !s.calibrate && s.sched.no_prefix &&
		s.sched.prefix.share_tenants);
	assert_int_equal(s.sched.class[WIRE_ONLINE].tpot_ns, 12 * NS_PER_MS);
	assert_int_equal(s.sched.class[WIRE_ONLINE].max_waiting, 1024);
	assert_int_equal(s.sched.class[WIRE_OFFLINE].max_waiting, 9);
	assert_int_equal(s.sched.class[WIRE_OFFLINE].max_waiting_bytes, 2 << 20);
	assert_int_equal(s.host_bytes, 3 << 20);
	assert_int_equal(s.memory_limit, 5 << 20);
	assert_int_equal(s.pinned_percent, 25);
	assert_string_equal(s.disk_dir, "/x");
	settings_finish(&s);
	assert_int_equal(settings_parse(NULL, &s, &e), TENON_OK); /* nothing said: all defaults */
	assert_true(!s.sched.max_step_ns && !s.host_bytes && !s.disk_dir && !s.sched.no_prefix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_go_through),
		cmocka_unit_test_setup_teardown(workers_are_told_for_whom, setup, teardown),
		cmocka_unit_test_setup_teardown(durable_requests_outlive_their_session, setup, teardown),
		cmocka_unit_test_setup_teardown(leaving_models_end_in_time, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
