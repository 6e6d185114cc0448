/* SPDX-License-Identifier: Apache-2.0
 * A daemon with a worker by hand and clients by hand, turned by the test itself: what the tests of the daemon share. One
 * thread, but for the handshake of a client.
 */
#ifndef TESTS_DAEMON_WORLD_H
#define TESTS_DAEMON_WORLD_H
#include "tests/unit/fake_worker.h"
#include "tests/unit/unit.h"
#include <string.h>
#include <unistd.h>

struct world {
	struct daemon *d;
	char dir[64];
	struct override o[16];
};

struct peer { /* a client, by hand */
	struct link link;
	struct wire_welcome w;
	struct daemon *d;
	int rc;
	pthread_t thread;
	_Atomic bool done;
	uint64_t ring;
	uint64_t id;
	_Alignas(8) uint8_t body[64 << 10];
	struct wire_head h;
};

/* ---- turning the crank ------------------------------------------------------------------------------------------------------- */

static inline void turn(struct daemon *d, int n)
{
	for (int i = 0; i < n; i++) {
		fake_take();
		loop_turn(&d->loop, 1);
	}
}

static inline void turn_for(struct daemon *d, uint64_t ms)
{
	uint64_t until = clock_now_ns() + ms * NS_PER_MS;

	while (clock_now_ns() < until)
		turn(d, 1);
}

/* Turns until `condition` holds; long enough for any machine, since only a defect makes it wait to the end. */
#define TURN_UNTIL(d, condition)                                                                             \
	do {                                                                                                 \
		uint64_t end_ns_ = clock_now_ns() + 60 * NS_PER_S;                                           \
		bool met_;                                                                                   \
                                                                                                             \
		while (!(met_ = (condition)) && clock_now_ns() < end_ns_)                                    \
			turn(d, 1);                                                                          \
		if (!met_)                                                                                   \
			fail_msg("not within a minute: %s", #condition);                                     \
	} while (0)

static inline void *connect_main(void *p)
{
	struct peer *c = p;
	struct error e = { 0 };
	char path[80];

	(void)snprintf(path, sizeof path, "%s/attach", c->d->conf.runtime_dir);
	c->rc = attach_connect(path, c->ring, c->ring, WIRE_BELL_EVENTFD, 5000, &c->link, &c->w, &e);
	c->done = true;
	return NULL;
}

static inline struct peer *attach(struct daemon *d)
{
	struct peer *c = calloc(1, sizeof *c);

	c->d = d;
	c->ring = WIRE_RING_MIN;
	assert_int_equal(pthread_create(&c->thread, NULL, connect_main, c), 0);
	while (!c->done)
		turn(d, 1);
	(void)pthread_join(c->thread, NULL);
	assert_int_equal(c->rc, TENON_OK);
	return c;
}

static inline void detach(struct peer *c)
{
	struct daemon *d = c->d;

	link_close(&c->link);
	free(c);
	turn(d, 5);
}

static inline void begin_job(struct peer *c, const char *payload, const char *job, struct wire_request r)
{
	struct frame_request f = { .r = r, .job = job };
	uint8_t body[2048];
	uint32_t n;
	bool bad;
	void *at;

	f.r.input = WIRE_TEXT;
	f.r.payload_bytes = strlen(payload);
	f.r.job_bytes = (uint32_t)strlen(job);
	if (!f.r.top_p)
		f.r.top_p = f.r.repeat_penalty = 1;
	n = frame_request_write(&f, body, sizeof body);
	memcpy(body + n, payload, strlen(payload));
	n += (uint32_t)strlen(payload);
	at = ring_put(&c->link.out, WIRE_BEGIN, WIRE_LAST, ++c->id, n, &bad);
	assert_non_null(at);
	memcpy(at, body, n);
	link_flush(&c->link);
	turn(c->d, 6);
}

static inline void begin(struct peer *c, const char *payload, struct wire_request r)
{
	begin_job(c, payload, "", r);
}

static inline void send_frame(struct peer *c, uint16_t type, uint64_t id)
{
	bool bad;

	assert_non_null(ring_put(&c->link.out, type, 0, id, 0, &bad));
	link_flush(&c->link);
	turn(c->d, 4);
}

/* Next frame for the client; 0 when there is none. */
static inline uint16_t next(struct peer *c)
{
	int rc = ring_take(&c->link.in, &c->h, c->body, sizeof c->body - 1);

	ring_consumed(&c->link.in);
	if (rc == TENON_E_AGAIN)
		return 0;
	assert_int_equal(rc, TENON_OK);
	return c->h.type;
}

static inline uint16_t skip_states(struct peer *c)
{
	uint16_t type;

	while ((type = next(c)) == WIRE_STATE)
		;
	return type;
}

static inline void expect_error(struct peer *c, uint64_t id, int code)
{
	struct wire_error w;

	assert_int_equal(skip_states(c), WIRE_ERROR);
	memcpy(&w, c->body, sizeof w);
	assert_int_equal(w.code, code);
	assert_int_equal(c->h.id, id);
	c->body[sizeof w + w.text_bytes] = 0;
}

static inline const char *error_text(const struct peer *c)
{
	return (const char *)c->body + sizeof(struct wire_error);
}

/* ---- world ---------------------------------------------------------------------------------------------------------------------- */

static inline int start_with(void **state, const char *key, const char *value)
{
	struct world *w = calloc(1, sizeof *w);
	struct daemon_options o = { .ready_fd = -1, .start = worker_start_fake, .config_path = "/dev/null" };
	struct error e = { 0 };
	size_t n = 0;
	static char model[128], empty[128];
	FILE *f;

	fake = (struct fake_worker){ .answer_cancel = true };
	(void)snprintf(w->dir, sizeof w->dir, "/tmp/tenon-ud-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	(void)snprintf(empty, sizeof empty, "%s/empty.conf", w->dir);
	(void)snprintf(model, sizeof model, "m=%s/m.gguf", w->dir);
	for (int i = 0; i < 2; i++) {
		f = fopen(i ? model + 2 : empty, "w");
		assert_non_null(f);
		(void)fclose(f);
	}
	o.config_path = empty;
	w->o[n++] = (struct override){ "runtime_dir", w->dir };
	w->o[n++] = (struct override){ "model", model };
	w->o[n++] = (struct override){ "log.level", "error" };
	w->o[n++] = (struct override){ "log.file", "/dev/null" };
	w->o[n++] = (struct override){ "worker.backoff_ms", "5" };
	w->o[n++] = (struct override){ "worker.step_timeout_ms", "100" };
	w->o[n++] = (struct override){ "slow_reader.pause_ms", "20" };
	if (key)
		w->o[n++] = (struct override){ key, value };
	o.overrides = w->o;
	o.n_overrides = n;
	w->d = calloc(1, sizeof *w->d);
	if (daemon_open(w->d, &o, &e))
		fail_msg("%s", e.text);
	turn(w->d, 10);
	*state = w;
	return 0;
}

static inline int setup(void **state) { return start_with(state, NULL, NULL); }
static inline int setup_slow(void **state) { return start_with(state, "slow_reader.cancel_s", "1"); }
static inline int setup_few(void **state) { return start_with(state, "limits.in_flight_per_uid", "2"); }
static inline int setup_brief(void **state) { return start_with(state, "idle_unload_s", "1"); }

static inline int teardown(void **state)
{
	struct world *w = *state;
	char cmd[128];

	/* the daemon asks its worker to stop and waits: this one answers from another thread's place */
	if (fake.ends)
		fake_die();
	daemon_close(w->d);
	assert_int_equal(mem_area_bytes(MEM_DAEMON), 0);
	free(w->d);
	(void)snprintf(cmd, sizeof cmd, "rm -rf %s", w->dir);
	assert_int_equal(system(cmd), 0);
	free(w);
	return 0;
}

static inline void assert_calm(struct daemon *d)
{
	assert_int_equal(d->requests.n_open, 0);
	assert_int_equal(d->requests.n_at_worker, 0);
	assert_int_equal(d->requests.n_orphans, 0);
}
#endif
