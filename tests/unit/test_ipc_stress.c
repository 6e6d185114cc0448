/* SPDX-License-Identifier: Apache-2.0
 * Two threads over a pair of links: a million frames with parking and with bells lost, forged and flooded; a peer
 * whose memory changes at random while it is read. Run under TSan (honest peers) and ASan (mutator). The number of
 * frames follows IPC_STRESS (default 1; longer soaks: 1000).
 */
#include "tests/unit/unit.h"
#include "ipc/ipc.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static uint64_t scale(uint64_t n)
{
	const char *s = getenv("IPC_STRESS");

	return n * (s ? strtoull(s, NULL, 10) : 1);
}

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* What one end does wrong on purpose. */
enum fault { NONE, LOSE_BELLS, FORGE_BELLS };

struct end {
	struct link *l;
	uint64_t seed, n;
	enum fault fault;
	uint32_t n_lost; /* bells that never came */
	int rc;
};

static void end_flush(struct end *e, uint64_t *rng)
{
	if (e->fault == LOSE_BELLS && next_random(rng) % 64 == 0) {
		ring_publish(&e->l->out);
		return;
	}
	link_flush(e->l);
	if (e->fault == FORGE_BELLS && next_random(rng) % 16 == 0)
		(void)bell_ring(e->l->bell);
}

/* Frames of random size whose bytes follow from id and size; a pause now and then, so that the reader parks. */
static void *produce(void *arg)
{
	struct end *e = arg;
	uint64_t rng = e->seed;

	for (uint64_t id = 1; id <= e->n;) {
		uint32_t bytes = (uint32_t)(next_random(&rng) % 16 ? next_random(&rng) % 64
								   : next_random(&rng) % 5000);
		bool bad;
		uint8_t *at = ring_put(&e->l->out, WIRE_DATA, 0, id, bytes, &bad);

		if (bad) {
			e->rc = 1;
			return NULL;
		}
		if (!at) {
			link_flush(e->l);
			(void)usleep(50);
			continue;
		}
		memset(at, (int)(id & 255), bytes);
		if (id % 3 == 0 || id == e->n)
			end_flush(e, &rng);
		if (next_random(&rng) % 4096 == 0) {
			end_flush(e, &rng);
			(void)usleep(300);
		}
		id++;
	}
	link_flush(e->l);
	return NULL;
}

static int check(const struct wire_head *h, const uint8_t *body, uint64_t id)
{
	uint32_t n = h->bytes - (uint32_t)sizeof *h;

	if (h->id != id || h->type != WIRE_DATA || h->flags)
		return 2;
	return n && (body[0] != (id & 255) || body[n - 1] != (id & 255)) ? 3 : 0;
}

/* Where no bell is lost on purpose the park is longer than any machine is slow: its end would be a bell we lost. */
static void sleep_until_rung(struct end *e)
{
	struct pollfd p = { .fd = bell_fd(e->l->bell), .events = POLLIN };
	bool loses = e->fault == LOSE_BELLS;

	bell_drain(e->l->bell);
	if (!park_begin(&e->l->tx, &e->l->in))
		return;
	if (!poll(&p, 1, loses ? IPC_PARK_MAX_MS : 60000) && !loses)
		e->n_lost++;
	park_end(&e->l->tx);
}

static void *consume(void *arg)
{
	static _Thread_local uint8_t body[16384];
	struct end *e = arg;
	struct wire_head h;
	uint64_t id = 1;

	while (id <= e->n && !e->rc) {
		int rc = ring_take(&e->l->in, &h, body, sizeof body);

		if (rc == TENON_E_AGAIN) {
			sleep_until_rung(e);
			continue;
		}
		e->rc = rc ? rc : check(&h, body, id++);
		ring_consumed(&e->l->in);
	}
	return NULL;
}

static void run(uint64_t n, enum fault fault)
{
	struct link a, b;
	struct end p = { .l = &a, .seed = n + fault, .n = n, .fault = fault },
		   c = { .l = &b, .n = n, .fault = fault };
	pthread_t th;

	assert_int_equal(link_pair(WIRE_RING_MIN, &a, &b, NULL), 0);
	assert_int_equal(pthread_create(&th, NULL, produce, &p), 0);
	(void)consume(&c);
	assert_int_equal(pthread_join(th, NULL), 0);
	assert_int_equal(p.rc, 0);
	assert_int_equal(c.rc, 0);
	assert_int_equal(c.n_lost, 0);
	assert_false(ring_ready(&b.in));
	link_close(&a);
	link_close(&b);
}

static void every_frame_arrives_in_order(void **st)
{
	(void)st;
	run(scale(200000), NONE);
}

static void lost_bells_cost_time_only(void **st)
{
	(void)st;
	run(scale(30000), LOSE_BELLS);
}

static void forged_bells_cost_time_only(void **st)
{
	(void)st;
	run(scale(100000), FORGE_BELLS);
}

/* A flood: one thread rings for nothing while frames pass. */
struct flood {
	struct bell *bell;
	_Atomic bool stop;
	uint64_t n;
};

static void *flood_main(void *arg)
{
	struct flood *f = arg;

	for (; !f->stop; f->n++)
		(void)bell_ring(f->bell);
	return NULL;
}

static void flooded_bell_harms_nobody(void **st)
{
	struct link a, b;
	struct end p = { .l = &a, .seed = 3, .n = scale(20000) }, c = { .l = &b, .n = p.n };
	struct flood f = { .n = 0 };
	pthread_t th, fl;

	(void)st;
	assert_int_equal(link_pair(WIRE_RING_MIN, &a, &b, NULL), 0);
	f.bell = a.bell;
	assert_int_equal(pthread_create(&fl, NULL, flood_main, &f), 0);
	assert_int_equal(pthread_create(&th, NULL, produce, &p), 0);
	(void)consume(&c);
	f.stop = true;
	assert_int_equal(pthread_join(th, NULL), 0);
	assert_int_equal(pthread_join(fl, NULL), 0);
	assert_int_equal(c.rc, 0);
	assert_true(f.n > 0);
	link_close(&a);
	link_close(&b);
}

/* ---- mutator ------------------------------------------------------------------------------------------------ */

#ifndef __SANITIZE_THREAD__

/* The peer as an attacker: a thread that flips bits of its indices, its flag and of the frames in use. */
struct mutator {
	struct segment *s;
	_Atomic bool stop;
	_Atomic uint64_t n;
	uint64_t seed;
};

static void *mutate(void *arg)
{
	struct mutator *m = arg;
	volatile uint8_t *bytes = (volatile uint8_t *)m->s->head;

	for (; !m->stop; m->n++) {
		uint64_t r = next_random(&m->seed);
		uint64_t at = r % 8 ? WIRE_RING_OFFSET + r / 8 % 1536 : 64 + r / 8 % 192;

		bytes[at] ^= (uint8_t)(1u << (r >> 60));
	}
	return NULL;
}

/* What the daemon does with whatever it finds: copy once, check the copy. */
static void digest(const struct wire_head *h, const void *body, uint64_t *n_good)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;
	struct frame_request f;
	uint8_t out[16384];

	*n_good += !frame_event_check(h, body, NULL);
	if (frame_request_parse(body, bytes, h->flags, false, 1 << 20, &f, NULL))
		return;
	++*n_good;
	if (!frame_request_write(&f, out, sizeof out))
		fail_msg("a checked request could not be written");
}

static void put_random(struct link *l, uint64_t *rng)
{
	struct frame_request f = { .r = { .input = WIRE_TEXT,
					   .payload_bytes = 8,
					   .model_bytes = 3,
					   .top_p = 1,
					   .repeat_penalty = 1,
					   .n_stop = 1 },
		.model = "abc",
		.stop[0] = { "end", 3 } };
	struct wire_state s = { WIRE_PREFILL, 3 };
	bool bad, request = next_random(rng) % 2;
	uint32_t n = request ? frame_request_bytes(&f) : sizeof s;
	uint8_t *at = ring_put(&l->out, request ? WIRE_BEGIN : WIRE_STATE, request ? WIRE_LAST : 0, 1,
		n + (request ? 8 : 0), &bad);

	if (!at)
		return;
	if (request)
		(void)frame_request_write(&f, at, n);
	else
		memcpy(at, &s, sizeof s);
	if (request)
		memset(at + n, 'x', 8);
}

static void memory_that_changes_while_read_does_no_harm(void **st)
{
	struct link a, b;
	struct mutator m = { .seed = 77 };
	uint64_t rng = 5, good = 0, ended = 0, rounds = scale(30000);
	_Alignas(8) static uint8_t body[WIRE_RING_MIN / 4];
	pthread_t th;

	(void)st;
	assert_int_equal(link_pair(WIRE_RING_MIN, &a, &b, NULL), 0);
	m.s = &a.tx;
	assert_int_equal(pthread_create(&th, NULL, mutate, &m), 0);
	while (!m.n)
		(void)usleep(100);
	for (uint64_t i = 0; i < rounds; i++) {
		struct ring_in fresh;
		struct ring_out reply;
		struct wire_head h;
		bool bad;
		int rc;

		ring_out_init(&a.out, &a.tx, &a.rx);
		ring_in_init(&fresh, &b.rx, &b.tx);
		ring_out_init(&reply, &b.tx, &b.rx);
		for (int k = 0; k < 8; k++)
			put_random(&a, &rng);
		ring_publish(&a.out);
		for (int k = 0; k < 64 && !(rc = ring_take(&fresh, &h, body, sizeof body)); k++)
			digest(&h, body, &good);
		ended += rc == TENON_E_PROTOCOL;
		for (int k = 0; k < 8; k++)
			(void)ring_put(&reply, WIRE_DATA, 0, 1, 512, &bad);
		ring_publish(&reply);
		(void)ring_room(&reply, &bad);
		(void)peer_wake(&b.rx, b.bell);
	}
	m.stop = true;
	assert_int_equal(pthread_join(th, NULL), 0);
	print_message("%llu flips, %llu good frames, %llu sessions ended\n", (unsigned long long)m.n,
		(unsigned long long)good, (unsigned long long)ended);
	assert_true(good > 0 && ended > 0);
	link_close(&a);
	link_close(&b);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_frame_arrives_in_order),
		cmocka_unit_test(lost_bells_cost_time_only),
		cmocka_unit_test(forged_bells_cost_time_only),
		cmocka_unit_test(flooded_bell_harms_nobody),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(memory_that_changes_while_read_does_no_harm),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
