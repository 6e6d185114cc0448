/* SPDX-License-Identifier: Apache-2.0
 * Segments, rings and links inside one process: frames of every size, full rings, impossible indices, parking.
 */
#include "tests/unit/unit.h"
#include "ipc/ipc.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING WIRE_RING_MIN

struct pair {
	struct link a, b;
};

static int setup(void **st)
{
	struct pair *p = calloc(1, sizeof *p);

	assert_int_equal(link_pair(RING, &p->a, &p->b, NULL), 0);
	*st = p;
	return 0;
}

static int teardown(void **st)
{
	struct pair *p = *st;

	link_close(&p->a);
	link_close(&p->b);
	free(p);
	return 0;
}

/* What the peer could do with its own segment, for attacks. */
static struct wire_segment *forge(struct link *l) { return l->tx.head; }

static void put(struct link *l, uint64_t id, uint32_t bytes)
{
	bool bad;
	uint8_t *body = ring_put(&l->out, WIRE_DATA, 0, id, bytes, &bad);

	assert_non_null(body);
	for (uint32_t i = 0; i < bytes; i++)
		body[i] = (uint8_t)(id + i);
}

static void expect(struct link *l, uint64_t id, uint32_t bytes)
{
	static uint8_t body[RING];
	struct wire_head h;

	assert_int_equal(ring_take(&l->in, &h, body, sizeof body), TENON_OK);
	assert_int_equal(h.id, id);
	assert_int_equal(h.type, WIRE_DATA);
	assert_int_equal(h.bytes, bytes + sizeof h);
	for (uint32_t i = 0; i < bytes; i++)
		assert_int_equal(body[i], (uint8_t)(id + i));
	assert_int_equal(body[bytes], 0);
}

/* Sizes that make frames end at every distance from the ring's end, many laps. */
static void frames_of_every_size_pass(void **st)
{
	struct pair *p = *st;
	struct wire_head h;
	char none[1];

	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t bytes = i * 37 % 4099;

		put(&p->a, i, bytes);
		assert_int_equal(ring_take(&p->b.in, &h, none, 1), TENON_E_AGAIN);
		ring_publish(&p->a.out);
		expect(&p->b, i, bytes);
		ring_consumed(&p->b.in);
	}
}

static void largest_frame_fits_and_no_larger(void **st)
{
	struct pair *p = *st;
	uint32_t most = ring_max_frame(RING) - sizeof(struct wire_head);
	bool bad;

	for (int lap = 0; lap < 9; lap++) {
		assert_null(ring_put(&p->a.out, WIRE_DATA, 0, 1, most + 1, &bad));
		assert_null(ring_put(&p->a.out, WIRE_DATA, 0, 1, UINT32_MAX - 8, &bad));
		assert_false(bad);
		put(&p->a, 5, most);
		link_flush(&p->a);
		expect(&p->b, 5, most);
		ring_consumed(&p->b.in);
	}
}

static void full_ring_refuses_and_recovers(void **st)
{
	struct pair *p = *st;
	bool bad;
	uint32_t n = 0;

	while (ring_put(&p->a.out, WIRE_DATA, 0, n, 100, &bad))
		n++;
	assert_false(bad);
	assert_int_equal(n, RING / 120);
	assert_true(ring_room(&p->a.out, &bad) < 120);
	link_flush(&p->a);
	for (uint32_t i = 0; i < n; i++) {
		struct wire_head h;
		char body[128];

		assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_OK);
		assert_int_equal(h.id, i);
	}
	assert_null(ring_put(&p->a.out, WIRE_DATA, 0, n, 100, &bad));
	ring_consumed(&p->b.in);
	assert_int_equal(ring_room(&p->a.out, &bad), RING);
	put(&p->a, 1, 100);
}

static void body_over_room_is_not_copied(void **st)
{
	struct pair *p = *st;
	struct wire_head h;
	char body[8] = "intact";

	put(&p->a, 3, 9);
	link_flush(&p->a);
	assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_E_TOO_LONG);
	assert_int_equal(h.bytes, 25);
	assert_string_equal(body, "intact");
	expect(&p->b, 3, 9);
}

/* V2: a tail that is more than a ring ahead, behind, or no multiple of 8. */
static void impossible_tails_end_the_session(void **st)
{
	struct pair *p = *st;
	static const uint64_t bad[] = { RING + 8, 2 * RING, UINT64_MAX, UINT64_MAX - 7, 1, 4, 7, 1ull << 63,
		16 - 1 };
	struct wire_head h;
	char body[64];

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		forge(&p->a)->tail = bad[i];
		assert_true(ring_ready(&p->b.in));
		assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_E_PROTOCOL);
		assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_E_PROTOCOL);
	}
	forge(&p->a)->tail = 8;
	assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_E_PROTOCOL);
}

static void tail_that_goes_back_ends_the_session(void **st)
{
	struct pair *p = *st;
	struct wire_head h;
	char body[64];

	put(&p->a, 1, 8);
	put(&p->a, 2, 8);
	link_flush(&p->a);
	expect(&p->b, 1, 8);
	expect(&p->b, 2, 8);
	forge(&p->a)->tail = 24;
	assert_int_equal(ring_take(&p->b.in, &h, body, sizeof body), TENON_E_PROTOCOL);
}

/* V2 on the producer's side: a head past what was published, or going back. */
static void impossible_heads_end_the_session(void **st)
{
	struct pair *p = *st;
	bool bad;

	put(&p->a, 1, 8);
	put(&p->a, 2, 8);
	link_flush(&p->a);
	put(&p->a, 3, 8);
	forge(&p->b)->head = 49;
	assert_int_equal(ring_room(&p->a.out, &bad), 0);
	assert_true(bad);
	forge(&p->b)->head = 72;
	(void)ring_room(&p->a.out, &bad);
	assert_true(bad);
	forge(&p->b)->head = 48;
	(void)ring_room(&p->a.out, &bad);
	assert_false(bad);
	forge(&p->b)->head = 24;
	(void)ring_room(&p->a.out, &bad);
	assert_true(bad);
	forge(&p->b)->head = UINT64_MAX;
	(void)ring_room(&p->a.out, &bad);
	assert_true(bad);
}

/* V3: lengths at and around every limit, with exactly `avail` bytes published. */
static void impossible_lengths_end_the_session(void **st)
{
	struct pair *p = *st;
	static const struct {
		uint32_t bytes, avail;
		int rc;
	} t[] = { { 0, 64, TENON_E_PROTOCOL }, { 1, 64, TENON_E_PROTOCOL }, { 15, 64, TENON_E_PROTOCOL },
		{ 65, 64, TENON_E_PROTOCOL }, { 72, 64, TENON_E_PROTOCOL },
		{ RING / 4 + 1, RING, TENON_E_PROTOCOL }, { RING, RING, TENON_E_PROTOCOL },
		{ UINT32_MAX, RING, TENON_E_PROTOCOL }, { UINT32_MAX - 7, RING, TENON_E_PROTOCOL },
		{ 0x80000000u, RING, TENON_E_PROTOCOL }, { 16, 8, TENON_E_PROTOCOL },
		{ 17, 16, TENON_E_PROTOCOL }, { 57, 64, TENON_OK }, { 16, 16, TENON_OK } };
	static uint8_t body[RING];
	struct wire_head h;

	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct ring_in fresh;
		struct wire_head lie = { .bytes = t[i].bytes, .type = WIRE_DATA };

		ring_in_init(&fresh, &p->b.rx, &p->b.tx);
		memcpy(p->a.tx.ring, &lie, sizeof lie);
		forge(&p->a)->tail = t[i].avail;
		assert_int_equal(ring_take(&fresh, &h, body, sizeof body), t[i].rc);
	}
}

static void nothing_allocates_or_rings_while_awake(void **st)
{
	struct pair *p = *st;
	uint64_t before = mem_n_allocs();
	struct pollfd f = { .fd = bell_fd(p->b.bell), .events = POLLIN };

	for (uint32_t i = 0; i < 1000; i++) {
		put(&p->a, i, 64);
		link_flush(&p->a);
		expect(&p->b, i, 64);
		ring_consumed(&p->b.in);
	}
	assert_int_equal(mem_n_allocs(), before);
	assert_int_equal(poll(&f, 1, 0), 0);
}

static void sleeper_is_rung_once_for_each_sleep(void **st)
{
	struct pair *p = *st;
	struct pollfd f = { .fd = bell_fd(p->b.bell), .events = POLLIN };

	for (int i = 0; i < 3; i++) {
		assert_true(park_begin(&p->b.tx, &p->b.in));
		assert_int_equal(poll(&f, 1, 0), 0);
		put(&p->a, 1, 8);
		link_flush(&p->a);
		assert_int_equal(poll(&f, 1, 0), 1);
		bell_drain(p->b.bell);
		put(&p->a, 2, 8);
		link_flush(&p->a);
		assert_int_equal(poll(&f, 1, 0), 0);
		assert_false(park_begin(&p->b.tx, &p->b.in));
		park_end(&p->b.tx);
		expect(&p->b, 1, 8);
		expect(&p->b, 2, 8);
		ring_consumed(&p->b.in);
	}
}

/* A peer that shares the eventfd may fill it and make it blocking; ringing it must not wait even then. */
static void hostile_eventfd_never_blocks_the_ringer(void **st)
{
	struct pair *p = *st;
	struct link_fds theirs = link_export(&p->b);
	uint64_t most = UINT64_MAX - 3, n;

	assert_int_equal(write(theirs.wait, &most, sizeof most), 8);
	assert_int_equal(fcntl(theirs.wait, F_SETFL, 0), 0);
	assert_int_equal(bell_ring(p->a.bell), TENON_OK);
	assert_int_equal(read(theirs.wait, &n, sizeof n), 8);
	assert_int_equal(bell_ring(p->a.bell), TENON_OK);
	assert_int_equal(fcntl(theirs.ring, F_SETFL, 0), 0);
	bell_drain(p->a.bell);
	bell_drain(p->a.bell);
}

/* 64 rings for nothing: not heard for a while, then heard again, what came meanwhile included. */
static void futile_bells_are_muted_for_a_while(void **st)
{
	struct pair *p = *st;
	struct pollfd f = { .fd = bell_fd(p->b.bell), .events = POLLIN };
	uint64_t t0;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 64; i++) {
			assert_int_equal(bell_ring(p->a.bell), 0);
			assert_int_equal(poll(&f, 1, 0), 1);
			bell_drain(p->b.bell);
			bell_found(p->b.bell, false);
		}
		t0 = clock_now_ns();
		assert_int_equal(bell_ring(p->a.bell), 0);
		assert_int_equal(poll(&f, 1, 5000), 1);
		assert_true(clock_now_ns() - t0 > BELL_MUTE_MS * NS_PER_MS / 2);
		bell_drain(p->b.bell);
		assert_int_equal(poll(&f, 1, 0), 1);
		bell_drain(p->b.bell);
		bell_found(p->b.bell, true);
	}
}

/* A bell that rings for something now and then is never muted. */
static void useful_bells_are_always_heard(void **st)
{
	struct pair *p = *st;
	struct pollfd f = { .fd = bell_fd(p->b.bell), .events = POLLIN };

	for (int i = 0; i < 1000; i++) {
		assert_int_equal(bell_ring(p->a.bell), 0);
		assert_int_equal(poll(&f, 1, 0), 1);
		bell_drain(p->b.bell);
		bell_found(p->b.bell, i % 60 == 0);
	}
}

static void link_is_rebuilt_from_descriptors(void **st)
{
	struct pair *p = *st;
	struct link_fds f = link_export(&p->b), copy = f;
	struct link c;

	copy.tx = dup(f.tx);
	copy.rx = dup(f.rx);
	copy.ring = dup(f.ring);
	copy.wait = dup(f.wait);
	assert_int_equal(link_import(&copy, &c, NULL), 0);
	put(&p->a, 9, 77);
	link_flush(&p->a);
	expect(&c, 9, 77);
	put(&c, 10, 78);
	link_flush(&c);
	expect(&p->a, 10, 78);
	link_close(&c);
}

/* Rung again only where the peer sleeps on what was published. */
static void a_sleeper_on_unread_frames_is_reminded(void **st)
{
	struct pair *p = *st;
	struct pollfd f = { .fd = bell_fd(p->b.bell), .events = POLLIN };

	assert_false(peer_remind(&p->a.out, p->a.bell)); /* awake */
	assert_true(park_begin(&p->b.tx, &p->b.in));
	assert_false(peer_remind(&p->a.out, p->a.bell)); /* asleep, but nothing was published */
	put(&p->a, 1, 8);
	link_flush(&p->a);
	bell_drain(p->b.bell); /* and lost */
	link_flush(&p->a);
	assert_int_equal(poll(&f, 1, 0), 0);
	assert_true(peer_remind(&p->a.out, p->a.bell));
	assert_int_equal(poll(&f, 1, 0), 1);
	expect(&p->b, 1, 8);
	ring_consumed(&p->b.in);
	assert_false(peer_remind(&p->a.out, p->a.bell)); /* read, though it never rose */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(frames_of_every_size_pass), T(largest_frame_fits_and_no_larger),
		T(full_ring_refuses_and_recovers), T(body_over_room_is_not_copied),
		T(impossible_tails_end_the_session), T(tail_that_goes_back_ends_the_session),
		T(impossible_heads_end_the_session), T(impossible_lengths_end_the_session),
		T(nothing_allocates_or_rings_while_awake), T(sleeper_is_rung_once_for_each_sleep),
		T(a_sleeper_on_unread_frames_is_reminded), T(hostile_eventfd_never_blocks_the_ringer),
		T(link_is_rebuilt_from_descriptors), T(futile_bells_are_muted_for_a_while),
		T(useful_bells_are_always_heard) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
