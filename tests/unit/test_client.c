/* SPDX-License-Identifier: Apache-2.0
 * libtenon against a small daemon in another thread, with both kinds of doorbell. main runs the list twice.
 */
#include "tests/unit/fake_daemon.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tenon/client.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 }; /* only a defect waits so long */

static int eventfd_bell;

struct world {
	struct fake_daemon d;
	struct tenon *t;
};

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static struct tenon *attach(struct world *w, uint64_t ring_bytes)
{
	struct tenon_options o = { .size = sizeof o,
		.socket = w->d.path,
		.submit_bytes = ring_bytes,
		.events_bytes = ring_bytes,
		.eventfd_bell = eventfd_bell };
	struct tenon_error e;
	struct tenon *t = NULL;

	if (tenon_connect(&o, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

static int setup(void **st)
{
	struct world *w = calloc(1, sizeof *w);

	fake_daemon_start(&w->d);
	w->t = attach(w, 0);
	*st = w;
	return 0;
}

static int teardown(void **st)
{
	struct world *w = *st;

	tenon_close(w->t);
	if (!w->d.stop)
		fake_daemon_stop(&w->d);
	fake_daemon_clean(&w->d);
	free(w);
	return 0;
}

static uint64_t submit(struct tenon *t, const char *prompt)
{
	struct tenon_request r = TENON_REQUEST_INIT;
	struct tenon_error e;
	uint64_t id = 0;

	r.prompt = prompt;
	if (tenon_submit_wait(t, &r, PATIENCE_MS, &id, &e))
		fail_msg("%s", e.text);
	return id;
}

static struct tenon_event next(struct tenon *t)
{
	struct tenon_event ev;

	assert_int_equal(tenon_next(t, &ev, PATIENCE_MS), 0);
	return ev;
}

/* Reads one request to its end; text is compared. */
static void expect_echo(struct tenon *t, uint64_t id, const char *text, size_t len)
{
	struct tenon_event ev;
	size_t got = 0;
	bool state = false;

	do {
		ev = next(t);
		assert_int_equal(ev.request, id);
		state |= ev.kind == TENON_EVENT_STATE && ev.phase == WIRE_PREFILL && ev.permille == 500;
		if (ev.kind != TENON_EVENT_TOKENS)
			continue;
		assert_int_equal(ev.n_ids, 2);
		assert_int_equal(ev.ids[0], got);
		assert_int_equal(ev.ids[1], id);
		assert_true(ev.text_len <= 7 && got + ev.text_len <= len);
		assert_int_equal(ev.text[ev.text_len], 0);
		assert_memory_equal(ev.text, text + got, ev.text_len);
		got += ev.text_len;
	} while (!ev.last);
	assert_true(state);
	assert_int_equal(got, len);
	assert_int_equal(ev.kind, TENON_EVENT_DONE);
	assert_int_equal(ev.finish, TENON_FINISH_STOP);
	assert_int_equal(ev.n_prompt, len);
	assert_int_equal(ev.time.total_ns, 5);
}

static void answer_streams_back(void **st)
{
	struct world *w = *st;

	for (int i = 0; i < 20; i++) {
		uint64_t id = submit(w->t, "echo of a prompt");

		assert_int_equal(id, i + 1);
		expect_echo(w->t, id, "echo of a prompt", 16);
	}
}

static void every_kind_of_input_arrives(void **st)
{
	struct world *w = *st;
	static const int32_t ids[] = { 1, 2, 3 };
	static const char *const stop[] = { "stop", "\n\n" };
	static const struct tenon_bias bias[] = { { 5, -3.5f } };
	struct tenon_request r = TENON_REQUEST_INIT;
	uint64_t id;

	r.ids = ids;
	r.n_ids = 3;
	r.stop = stop;
	r.n_stop = 2;
	r.bias = bias;
	r.n_bias = 1;
	r.model = "a model";
	r.temperature = 0.7f;
	assert_int_equal(tenon_submit(w->t, &r, &id, NULL), 0);
	expect_echo(w->t, id, (const char *)ids, sizeof ids);
	r.ids = NULL;
	r.messages = "[]";
	assert_int_equal(tenon_submit(w->t, &r, &id, NULL), 0);
	expect_echo(w->t, id, "[]", 2);
	r.messages = NULL;
	r.prompt = "zero\0inside";
	r.prompt_len = 11;
	assert_int_equal(tenon_submit(w->t, &r, &id, NULL), 0);
	expect_echo(w->t, id, "zero\0inside", 11);
}

static void long_payload_goes_in_pieces(void **st)
{
	struct world *w = *st;
	struct tenon *t = attach(w, WIRE_RING_MIN);
	static const size_t sizes[] = { 16000, 16200, 16256, 16384, 65536, 70001, 1 << 20 };
	char *text = malloc(1 << 20);

	for (size_t i = 0; i < 1 << 20; i++)
		text[i] = (char)('a' + i % 23);
	for (size_t k = 0; k < COUNT_OF(sizes); k++) {
		struct tenon_request r = TENON_REQUEST_INIT;
		uint64_t id;

		r.prompt = text;
		r.prompt_len = sizes[k];
		assert_int_equal(tenon_submit(t, &r, &id, NULL), 0);
		expect_echo(t, id, text, sizes[k]);
	}
	assert_int_equal(w->d.n_violations, 0);
	free(text);
	tenon_close(t);
}

static void many_requests_interleave(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	int open = 0, done = 0;

	for (int i = 0; i < 30; i++, open++)
		(void)submit(w->t, i % 3 ? "echo" : "fail");
	while (open) {
		ev = next(w->t);
		if (ev.last) {
			open--;
			done += ev.kind == TENON_EVENT_DONE;
			assert_true(ev.kind == TENON_EVENT_DONE || ev.code == TENON_E_BACKEND);
		}
	}
	assert_int_equal(done, 20);
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
	assert_int_equal(tenon_next(w->t, &ev, 10), TENON_E_TIMEOUT);
}

static void cancel_ends_a_request(void **st)
{
	struct world *w = *st;
	uint64_t id = submit(w->t, "wait");
	struct tenon_event ev;

	assert_int_equal(tenon_cancel(w->t, id + 1), TENON_E_NOT_FOUND);
	assert_int_equal(tenon_cancel(w->t, 0), TENON_E_NOT_FOUND);
	assert_int_equal(tenon_next(w->t, &ev, 20), TENON_E_TIMEOUT);
	assert_int_equal(tenon_cancel(w->t, id), 0);
	ev = next(w->t);
	assert_int_equal(ev.kind, TENON_EVENT_ERROR);
	assert_int_equal(ev.code, TENON_E_CANCELLED);
	assert_string_equal(ev.text, "cancelled");
	assert_int_equal(ev.last, 1);
	assert_int_equal(tenon_cancel(w->t, id), TENON_E_NOT_FOUND);
}

static void ping_comes_back(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	char data[65] = "01234567890123456789012345678901234567890123456789012345678901234";

	assert_int_equal(tenon_ping(w->t, data, 65), TENON_E_TOO_LONG);
	for (size_t n = 0; n <= 64; n += 16) {
		assert_int_equal(tenon_ping(w->t, data, n), 0);
		ev = next(w->t);
		assert_int_equal(ev.kind, TENON_EVENT_PONG);
		assert_int_equal(ev.text_len, n);
		assert_memory_equal(ev.text, data, n);
		assert_int_equal(ev.last, 0);
	}
}

static void logprobs_belong_to_the_next_tokens(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;

	(void)submit(w->t, "logprobs");
	ev = next(w->t);
	assert_int_equal(ev.kind, TENON_EVENT_TOKENS);
	assert_int_equal(ev.n_logprobs, 2);
	assert_int_equal(ev.logprobs[1].token, 8);
	ev = next(w->t);
	assert_int_equal(ev.n_logprobs, 0);
	assert_int_equal(next(w->t).kind, TENON_EVENT_DONE);
}

/* The request is refused with `code` and a text that holds `word`; then it is a good one again. */
static void refused(struct tenon *t, struct tenon_request *r, int code, const char *word)
{
	struct tenon_error e;

	assert_int_equal(tenon_submit(t, r, NULL, &e), code);
	assert_int_equal(e.code, code);
	if (!strstr(e.text, word))
		fail_msg("'%s' does not name %s", e.text, word);
	*r = (struct tenon_request)TENON_REQUEST_INIT;
	r->prompt = "x";
}

static void wrong_requests_are_refused_before_anything_is_sent(void **st)
{
	struct world *w = *st;
	struct tenon_request r = TENON_REQUEST_INIT;
	static const char *const empty[] = { "" }, *const latin[] = { "\xe9" };
	static const int32_t ids[] = { 1 };
	char name[300];

	refused(w->t, &r, TENON_E_INVALID, "exactly one");
	r.ids = ids;
	refused(w->t, &r, TENON_E_INVALID, "exactly one");
	r.size = 8;
	refused(w->t, &r, TENON_E_INVALID, "TENON_REQUEST_INIT");
	r.size = sizeof r + 8;
	refused(w->t, &r, TENON_E_INVALID, "TENON_REQUEST_INIT");
	r.temperature = -1;
	refused(w->t, &r, TENON_E_INVALID, "temperature");
	r.top_p = 0;
	refused(w->t, &r, TENON_E_INVALID, "top_p");
	r.min_p = 1.5f;
	refused(w->t, &r, TENON_E_INVALID, "min_p");
	r.repeat_penalty = 0;
	refused(w->t, &r, TENON_E_INVALID, "repeat_penalty");
	r.n_logprobs = 21;
	refused(w->t, &r, TENON_E_INVALID, "n_logprobs");
	r.priority = 101;
	refused(w->t, &r, TENON_E_INVALID, "priority");
	r.traffic_class = 2;
	refused(w->t, &r, TENON_E_INVALID, "traffic_class");
	r.stop = empty;
	r.n_stop = 1;
	refused(w->t, &r, TENON_E_INVALID, "stop");
	r.stop = latin;
	r.n_stop = 1;
	refused(w->t, &r, TENON_E_INVALID, "stop");
	r.stop = empty;
	r.n_stop = 17;
	refused(w->t, &r, TENON_E_INVALID, "stop");
	memset(name, 'm', 256);
	name[256] = 0;
	r.model = name;
	refused(w->t, &r, TENON_E_INVALID, "model");
	r.model = "a\nb";
	refused(w->t, &r, TENON_E_INVALID, "model");
	r.prompt = NULL;
	r.ids = ids;
	refused(w->t, &r, TENON_E_INVALID, "ids");
	r.prompt_len = w->d.limits.max_payload_bytes + 1;
	refused(w->t, &r, TENON_E_TOO_LONG, "over the limit");
	r.embed = 1;
	r.n_logprobs = 1;
	refused(w->t, &r, TENON_E_INVALID, "embed");
	assert_int_equal(w->d.n_frames, 0);
	assert_int_equal(submit(w->t, "echo"), 1);
	expect_echo(w->t, 1, "echo", 4);
}

static void options_are_checked(void **st)
{
	struct world *w = *st;
	struct tenon_options o = { .size = 0, .socket = w->d.path };
	struct tenon_error e;
	struct tenon *t = NULL;

	assert_int_equal(tenon_connect(&o, &t, &e), TENON_E_INVALID);
	o.size = sizeof o;
	o.submit_bytes = 100000;
	assert_int_equal(tenon_connect(&o, &t, &e), TENON_E_GONE);
	o.submit_bytes = 0;
	o.socket = "/tmp/tenon-nobody/attach";
	assert_int_equal(tenon_connect(&o, &t, &e), TENON_E_GONE);
	assert_non_null(strstr(e.text, "/tmp/tenon-nobody/attach"));
	assert_null(t);
}

static void full_ring_answers_full_at_once(void **st)
{
	struct world *w = *st;
	struct tenon *t = attach(w, WIRE_RING_MIN);
	struct tenon_request r = TENON_REQUEST_INIT;
	char text[12001];
	uint64_t best = UINT64_MAX, last = 0, id;
	int n = 0, rc;

	memset(text, 'e', 12000);
	text[12000] = 0;
	memcpy(text, "fail", 4);
	r.prompt = text;
	w->d.deaf = 1;
	while (!(rc = tenon_submit(t, &r, &id, NULL))) {
		assert_int_equal(id, ++last);
		n++;
	}
	assert_int_equal(rc, TENON_E_FULL);
	assert_int_equal(n, 5);
	for (int i = 0; i < 2000; i++) {
		uint64_t t0 = clock_now_ns(), took;

		assert_int_equal(tenon_submit(t, &r, &id, NULL), TENON_E_FULL);
		took = clock_now_ns() - t0;
		best = MIN_OF(best, took);
	}
	print_message("FULL in %llu ns\n", (unsigned long long)best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(best <= 50000); /* far below what waiting would take */
#endif
	assert_int_equal(tenon_submit_wait(t, &r, 30, &id, NULL), TENON_E_FULL);
	w->d.deaf = 0;
	assert_int_equal(tenon_submit_wait(t, &r, 5000, &id, NULL), 0);
	assert_int_equal(id, n + 1);
	for (uint64_t k = 1; k <= id; k++) {
		struct tenon_event ev = next(t);

		assert_int_equal(ev.request, k);
		assert_int_equal(ev.code, TENON_E_BACKEND);
	}
	tenon_close(t);
}

static void too_many_open_requests_answer_full(void **st)
{
	struct world *w = *st;
	struct tenon_request r = TENON_REQUEST_INIT;

	for (uint32_t i = 0; i < w->d.limits.max_in_flight; i++)
		(void)submit(w->t, "wait");
	r.prompt = "echo";
	assert_int_equal(tenon_submit(w->t, &r, NULL, NULL), TENON_E_FULL);
	assert_int_equal(tenon_cancel(w->t, 3), 0);
	assert_int_equal(next(w->t).code, TENON_E_CANCELLED);
	assert_int_equal(submit(w->t, "echo"), w->d.limits.max_in_flight + 1);
}

/* A payload that gets stuck: the daemon stops reading for ever. It is given up, and the session goes on. */
static void stuck_payload_is_given_up(void **st)
{
	struct world *w = *st;
	struct tenon_options o = { .size = sizeof o,
		.socket = w->d.path,
		.submit_bytes = WIRE_RING_MIN,
		.timeout_ms = 1000,
		.eventfd_bell = eventfd_bell };
	struct tenon_request r = TENON_REQUEST_INIT;
	char *text = malloc(200001);
	struct tenon *t;
	uint64_t id = 77;

	memset(text, 's', 200000);
	text[200000] = 0;
	r.prompt = text;
	assert_int_equal(tenon_connect(&o, &t, NULL), 0);
	w->d.deaf = 1;
	assert_int_equal(tenon_submit(t, &r, &id, NULL), TENON_E_TIMEOUT);
	assert_int_equal(id, 77);
	w->d.deaf = 0;
	id = submit(t, "echo");
	assert_int_equal(id, 2);
	expect_echo(t, 2, "echo", 4);
	assert_int_equal(w->d.n_violations, 0);
	tenon_close(t);
	free(text);
}

static void submit_and_next_neither_allocate_nor_ring_while_awake(void **st)
{
	struct world *w = *st;
	struct tenon_request r = TENON_REQUEST_INIT;
	struct tenon_event ev;
	uint64_t before;

	r.prompt = "echo";
	w->d.deaf = 1;
	before = mem_n_allocs();
	for (int i = 0; i < 30; i++)
		assert_int_equal(tenon_submit(w->t, &r, NULL, NULL), 0);
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
	assert_int_equal(mem_n_allocs(), before);
	w->d.deaf = 0;
	for (int i = 0; i < 30;)
		i += next(w->t).last;
}

/* ---- ends --------------------------------------------------------------------------------------------------- */

static void *stop_soon(void *arg)
{
	(void)usleep(60000);
	fake_daemon_stop(arg);
	return NULL;
}

static void death_is_noticed_while_parked(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	pthread_t th;

	(void)submit(w->t, "wait");
	assert_int_equal(pthread_create(&th, NULL, stop_soon, &w->d), 0);
	assert_int_equal(tenon_next(w->t, &ev, PATIENCE_MS), TENON_E_GONE);
	assert_int_equal(pthread_join(th, NULL), 0);
	assert_int_equal(tenon_next(w->t, &ev, -1), TENON_E_GONE);
	assert_int_equal(tenon_cancel(w->t, 1), TENON_E_GONE);
	assert_int_equal(tenon_ping(w->t, "", 0), TENON_E_GONE);
}

static void death_is_noticed_by_one_who_never_parks(void **st)
{
	struct world *w = *st;
	struct tenon_request r = TENON_REQUEST_INIT;
	struct tenon_event ev;
	uint64_t until;
	int rc;

	fake_daemon_stop(&w->d);
	until = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
	while ((rc = tenon_next(w->t, &ev, 0)) == TENON_E_AGAIN && clock_now_ns() < until)
		;
	assert_int_equal(rc, TENON_E_GONE);
	r.prompt = "echo";
	assert_int_equal(tenon_submit(w->t, &r, NULL, NULL), TENON_E_GONE);
}

/* What was sent before the end is read first. */
static void last_words_are_read(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	int rc, done = 0;

	(void)submit(w->t, "echo");
	while (!w->d.n_frames)
		(void)usleep(1000);
	(void)usleep(20000);
	fake_daemon_stop(&w->d);
	while (!(rc = tenon_next(w->t, &ev, PATIENCE_MS)))
		done += ev.last;
	assert_int_equal(done, 1);
	assert_int_equal(rc, TENON_E_GONE);
}

static void session_error_ends_the_session(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;

	(void)submit(w->t, "expel");
	assert_int_equal(tenon_next(w->t, &ev, 5000), TENON_E_DRAINING);
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_DRAINING);
	assert_int_equal(tenon_ping(w->t, "", 0), TENON_E_DRAINING);
}

static void daemon_that_breaks_the_protocol_is_left(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;

	(void)submit(w->t, "garbage");
	assert_int_equal(tenon_next(w->t, &ev, 5000), TENON_E_PROTOCOL);
	assert_int_equal(tenon_next(w->t, &ev, 5000), TENON_E_PROTOCOL);
}

static void client_attaches_again_after_a_restart(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	struct tenon *t;

	fake_daemon_stop(&w->d);
	assert_int_equal(tenon_next(w->t, &ev, 1000), TENON_E_GONE);
	fake_daemon_start(&w->d);
	t = attach(w, 0);
	expect_echo(t, submit(t, "echo"), "echo", 4);
	tenon_close(t);
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

struct later {
	struct tenon *t;
	uint64_t id;
};

static void *cancel_later(void *arg)
{
	struct later *l = arg;

	(void)usleep(5000);
	return tenon_cancel(l->t, l->id) ? arg : NULL;
}

/* Each request is ended from another thread while this one sleeps in its own poll. */
static void poll_loop_sleeps_and_wakes(void **st)
{
	struct world *w = *st;
	struct pollfd p = { .fd = tenon_fd(w->t), .events = POLLIN };
	struct tenon_event ev = { 0 };
	int slept = 0;

	for (int round = 0; round < 20; round++) {
		struct later l = { w->t, submit(w->t, "wait") };
		pthread_t th;
		void *bad;

		assert_int_equal(pthread_create(&th, NULL, cancel_later, &l), 0);
		for (ev.last = 0; !ev.last;) {
			int rc = tenon_next(w->t, &ev, 0);

			assert_true(!rc || rc == TENON_E_AGAIN);
			if (!rc || tenon_poll_arm(w->t))
				continue;
			slept++;
			assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		}
		assert_int_equal(pthread_join(th, &bad), 0);
		assert_null(bad);
	}
	assert_true(slept > 0);
}

static void idle_poll_fd_is_quiet(void **st)
{
	struct world *w = *st;
	struct pollfd p = { .fd = tenon_fd(w->t), .events = POLLIN };
	struct tenon_event ev;

	expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
	while (tenon_poll_arm(w->t))
		assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
	assert_int_equal(poll(&p, 1, 150), 0);
}

static void poll_fd_tells_of_the_daemons_end(void **st)
{
	struct world *w = *st;
	struct pollfd p = { .fd = tenon_fd(w->t), .events = POLLIN };
	struct tenon_event ev;

	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
	while (tenon_poll_arm(w->t))
		;
	fake_daemon_stop(&w->d);
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	(void)tenon_poll_arm(w->t);
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_GONE);
}

/* A daemon whose bells are all lost costs time, 50 ms a park, and nothing else: nobody waits for one. */
static void lost_bells_cost_time_only(void **st)
{
	struct world *w = *st;
	struct pollfd p = { .fd = tenon_fd(w->t), .events = POLLIN };
	struct tenon_event ev;

	w->d.silent = 1;
	expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
	(void)submit(w->t, "wait");
	while (!tenon_next(w->t, &ev, 0))
		;
	while (tenon_poll_arm(w->t))
		;
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

/* Its own sleep is long, and the bell is lost: whoever waits for an answer rings again. */
static void a_lost_bell_is_rung_again(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;

	w->d.loses = 2;
	while (w->d.loses) /* one that it did not sleep for is no loss */
		expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
	w->d.loses = 1;
	while (w->d.loses) {
		struct pollfd p = { .fd = tenon_fd(w->t), .events = POLLIN };

		(void)submit(w->t, "echo");
		for (bool last = false; !last;) {
			int rc = tenon_next(w->t, &ev, 0);

			last = !rc && ev.last;
			if (rc == TENON_E_AGAIN && !tenon_poll_arm(w->t))
				assert_int_equal(poll(&p, 1, FAKE_DEAF_MS / 4), 1);
		}
	}
}

static void *next_main(void *arg)
{
	struct tenon_event ev;

	do
		ev = next(arg);
	while (!ev.last);
	return ev.kind == TENON_EVENT_DONE ? arg : NULL;
}

static void submit_goes_on_while_another_thread_waits(void **st)
{
	struct world *w = *st;
	struct tenon_event ev;
	pthread_t th;
	void *ok;

	for (int i = 0; i < 20; i++) {
		assert_int_equal(pthread_create(&th, NULL, next_main, w->t), 0);
		(void)usleep(i % 4 * 1000);
		(void)submit(w->t, "echo");
		assert_int_equal(pthread_join(th, &ok), 0);
		assert_ptr_equal(ok, w->t);
	}
	assert_int_equal(tenon_next(w->t, &ev, 0), TENON_E_AGAIN);
}

static void *hammer_main(void *arg)
{
	struct tenon *t = arg;

	for (int i = 0; i < 100; i++) {
		uint64_t id = submit(t, i % 5 ? "echo from many threads" : "wait");
		int rc = i % 5 ? 0 : tenon_cancel(t, id);

		if (rc)
			return arg;
	}
	return NULL;
}

static void threads_share_a_handle(void **st)
{
	struct world *w = *st;
	pthread_t th[3];
	struct tenon_event ev;
	int ends = 0;
	void *bad;

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&th[i], NULL, hammer_main, w->t), 0);
	while (ends < 300) {
		int rc = tenon_next(w->t, &ev, PATIENCE_MS);

		assert_int_equal(rc, 0);
		ends += ev.last;
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(th[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(w->d.n_violations, 0);
}

/* The daemon's folder seen under another name, as in a container; its own name for the bell leads nowhere. A connect that
 * does not find the bell waits 200 ms for it: so would the quickest of several. */
static void daemon_is_reached_through_another_mount(void **st)
{
	struct world *w = *st;
	char other[128], path[160], bell[160], hidden[160];
	struct tenon_options o = { .size = sizeof o, .socket = path, .eventfd_bell = eventfd_bell };
	uint64_t best = UINT64_MAX, t0;
	struct tenon *t;

	(void)snprintf(other, sizeof other, "%s/other", w->d.dir);
	(void)snprintf(path, sizeof path, "%s/attach", other);
	(void)snprintf(bell, sizeof bell, "%s/bell", other);
	(void)snprintf(hidden, sizeof hidden, "%s/run/bell", w->d.dir);
	assert_int_equal(mkdir(other, 0750), 0);
	assert_int_equal(link(w->d.path, path), 0);
	assert_int_equal(rename(hidden, bell), 0);
	for (int i = 0; i < 50 && best > 150 * NS_PER_MS; i++) {
		t0 = clock_now_ns();
		assert_int_equal(tenon_connect(&o, &t, NULL), 0);
		best = MIN_OF(best, clock_now_ns() - t0);
		expect_echo(t, submit(t, "echo"), "echo", 4);
		tenon_close(t);
	}
	assert_true(best < 150 * NS_PER_MS);
}

/* ---- fork --------------------------------------------------------------------------------------------------- */

static int child_checks(struct tenon *t)
{
	struct tenon_request r = TENON_REQUEST_INIT;
	struct tenon_event ev;
	struct tenon_error e;

	r.prompt = "echo";
	if (tenon_submit(t, &r, NULL, &e) != TENON_E_FORKED || e.code != TENON_E_FORKED)
		return 1;
	if (tenon_next(t, &ev, -1) != TENON_E_FORKED || tenon_cancel(t, 1) != TENON_E_FORKED)
		return 2;
	if (tenon_ping(t, "", 0) != TENON_E_FORKED || tenon_fd(t) != TENON_E_FORKED ||
		tenon_poll_arm(t) != TENON_E_FORKED)
		return 3;
	tenon_close(t);
	return 0;
}

static void forked_child_is_refused_and_the_parent_goes_on(void **st)
{
	struct world *w = *st;
	int status;
	pid_t pid;

	expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
	pid = fork();
	if (!pid)
		_exit(child_checks(w->t));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
}

/* ---- resources ---------------------------------------------------------------------------------------------- */

static void failed_allocations_are_typed_and_leave_nothing(void **st)
{
	struct world *w = *st;
	struct tenon_options o = { .size = sizeof o, .socket = w->d.path, .eventfd_bell = eventfd_bell };
	struct tenon *t = NULL;
	uint64_t n = 1;
	int before, rc;

	expect_echo(w->t, submit(w->t, "echo"), "echo", 4);
	before = count_fds();
	do {
		mem_fail_at(n++);
		rc = tenon_connect(&o, &t, NULL);
		mem_fail_at(0);
		assert_true(!rc || rc == TENON_E_NOMEM || rc == TENON_E_GONE);
		for (int tries = 0; rc && count_fds() != before && tries < 500; tries++)
			(void)usleep(1000);
		if (rc)
			assert_int_equal(count_fds(), before);
	} while (rc);
	assert_true(n > 4);
	for (n = 1; n <= 3; n++) {
		struct tenon_request r = TENON_REQUEST_INIT;
		uint64_t id;

		r.prompt = "fail";
		mem_fail_at(n + 1000);
		assert_int_equal(tenon_submit(t, &r, &id, NULL), 0);
		mem_fail_at(0);
		assert_int_equal(next(t).code, TENON_E_BACKEND);
	}
	tenon_close(t);
	tenon_close(NULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(answer_streams_back), T(every_kind_of_input_arrives),
		T(long_payload_goes_in_pieces), T(many_requests_interleave), T(cancel_ends_a_request),
		T(ping_comes_back), T(logprobs_belong_to_the_next_tokens),
		T(wrong_requests_are_refused_before_anything_is_sent), T(options_are_checked),
		T(full_ring_answers_full_at_once), T(too_many_open_requests_answer_full),
		T(stuck_payload_is_given_up), T(submit_and_next_neither_allocate_nor_ring_while_awake),
		T(death_is_noticed_while_parked), T(death_is_noticed_by_one_who_never_parks),
		T(last_words_are_read), T(session_error_ends_the_session),
		T(daemon_that_breaks_the_protocol_is_left), T(client_attaches_again_after_a_restart),
		T(poll_loop_sleeps_and_wakes), T(idle_poll_fd_is_quiet), T(poll_fd_tells_of_the_daemons_end),
		T(lost_bells_cost_time_only), T(a_lost_bell_is_rung_again),
		T(submit_goes_on_while_another_thread_waits), T(threads_share_a_handle),
		T(daemon_is_reached_through_another_mount), T(forked_child_is_refused_and_the_parent_goes_on),
		T(failed_allocations_are_typed_and_leave_nothing) };
	int rc = cmocka_run_group_tests_name("ZeroMQ bell", tests, NULL, NULL);

	eventfd_bell = 1;
	return rc + cmocka_run_group_tests_name("eventfd bell", tests, NULL, NULL);
}
