/* SPDX-License-Identifier: Apache-2.0
 * Every interleaving of producer and consumer over the ring + park protocol, as a model of ring.c, park.c and a bell:
 * 2 messages, a ring of 2 slots (and of 1, so that it fills), sleeps without a timeout. Each step is one access to
 * shared memory. Stores may wait in the core's store buffer, as on x86, unless they are sequentially consistent; so the
 * model can also show that the protocol would hang if one of its two stores were weaker. All messages must arrive in
 * order, and nobody may sleep while there is something to take and nobody left to ring.
 */
#include "tests/unit/unit.h"
#include <stdbool.h>
#include <string.h>

enum { MESSAGES = 2 };

struct rules {
	int slots;
	bool tail_seq_cst,
		asleep_seq_cst; /* false: the store may stay in its core's buffer while later loads are done */
	bool look_again;	/* park_begin looks at the ring after it set the flag */
	bool drain_first;	/* false: the consumer clears its bell after it looked again */
};

/* Where each side stands. */
enum { P_SPACE, P_WRITE, P_PUBLISH, P_WAKE, P_RING, P_END };
enum { C_LOOK, C_TAKE, C_CONSUMED, C_DRAIN, C_FLAG, C_AGAIN, C_LATE_DRAIN, C_SLEEP, C_AWAKE, C_END };

/* One state; bytes only, so that states compare as memory. */
struct state {
	uint8_t p, c;
	uint8_t sent, taken; /* private counters of either side */
	uint8_t head_seen, tail_seen;
	uint8_t tail, head, asleep;	  /* memory                          */
	uint8_t tail_waits, asleep_waits; /* 1: a store stands in the buffer */
	uint8_t tail_buffered, asleep_buffered;
	uint8_t asleep_private, rung, asleep_read;
	uint8_t bell; /* readable */
	uint8_t slot[2];
};

enum { MAX_STATES = 1 << 16 };

struct search {
	struct rules rules;
	struct state *seen;
	size_t n_seen, n_done;
	uint32_t *table; /* [2 * MAX_STATES] index + 1 */
	int deadlocks, disorders, ends;
};

static uint32_t hash(const struct state *s)
{
	const uint8_t *p = (const void *)s;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof *s; i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static void visit(struct search *x, const struct state *s)
{
	uint32_t i = hash(s) % (2 * MAX_STATES);

	while (x->table[i]) {
		if (!memcmp(&x->seen[x->table[i] - 1], s, sizeof *s))
			return;
		i = (i + 1) % (2 * MAX_STATES);
	}
	assert_true(x->n_seen < MAX_STATES);
	x->seen[x->n_seen++] = *s;
	x->table[i] = (uint32_t)x->n_seen;
}

/* The producer's next access. False: it cannot move. */
static bool producer(const struct rules *r, struct state *s)
{
	switch (s->p) {
	case P_SPACE: /* ring_put: enough room by what is known, else load head */
		if (s->sent - s->head_seen >= r->slots) {
			s->head_seen = s->head;
			if (s->sent - s->head_seen >= r->slots)
				return false; /* room is polled: comes back when head moved */
		}
		s->p = P_WRITE;
		return true;
	case P_WRITE:
		s->slot[s->sent % r->slots] = (uint8_t)(s->sent + 1);
		s->sent++;
		s->p = P_PUBLISH;
		return true;
	case P_PUBLISH: /* ring_publish */
		if (r->tail_seq_cst) {
			s->tail = s->sent;
		} else {
			if (s->tail_waits)
				return false;
			s->tail_buffered = s->sent;
			s->tail_waits = 1;
		}
		s->p = P_WAKE;
		return true;
	case P_WAKE: /* peer_wake: load asleep */
		s->asleep_read = s->asleep;
		s->p = (s->asleep_read & 1) && s->asleep_read != s->rung ? P_RING
			: s->sent == MESSAGES				 ? P_END
									 : P_SPACE;
		return true;
	case P_RING:
		s->bell = 1;
		s->rung = s->asleep_read;
		s->p = s->sent == MESSAGES ? P_END : P_SPACE;
		return true;
	default:
		return false;
	}
}

static void set_asleep(const struct rules *r, struct state *s)
{
	if (r->asleep_seq_cst) {
		s->asleep = s->asleep_private;
	} else {
		s->asleep_buffered = s->asleep_private;
		s->asleep_waits = 1;
	}
}

static bool consumer(const struct rules *r, struct state *s, struct search *x)
{
	switch (s->c) {
	case C_LOOK: /* ring_look */
		s->tail_seen = s->tail;
		s->c = s->tail_seen != s->taken ? C_TAKE : C_DRAIN;
		return true;
	case C_TAKE:
		if (s->slot[s->taken % r->slots] != s->taken + 1)
			x->disorders++;
		s->taken++;
		s->c = C_CONSUMED;
		return true;
	case C_CONSUMED:
		s->head = s->taken;
		s->c = s->taken == MESSAGES ? C_END : s->taken != s->tail_seen ? C_TAKE : C_LOOK;
		return true;
	case C_DRAIN:
		if (r->drain_first)
			s->bell = 0;
		s->c = C_FLAG;
		return true;
	case C_FLAG: /* park_begin */
		if (s->asleep_waits)
			return false;
		s->asleep_private = (uint8_t)((s->asleep_private + 1) | 1);
		set_asleep(r, s);
		s->c = C_AGAIN;
		return true;
	case C_AGAIN:
		s->c = r->look_again && s->tail != s->taken ? C_AWAKE : C_LATE_DRAIN;
		return true;
	case C_LATE_DRAIN:
		if (!r->drain_first)
			s->bell = 0;
		s->c = C_SLEEP;
		return true;
	case C_SLEEP:
		if (!s->bell)
			return false;
		s->c = C_AWAKE;
		return true;
	case C_AWAKE: /* park_end; sleeps are few here, so the counter does not run over */
		if (s->asleep_waits)
			return false;
		s->asleep_private = (uint8_t)((s->asleep_private + 1) & ~1);
		set_asleep(r, s);
		s->c = C_LOOK;
		return true;
	default:
		return false;
	}
}

/* A store leaves its buffer. */
static bool drain_tail(struct state *s)
{
	if (!s->tail_waits)
		return false;
	s->tail = s->tail_buffered;
	s->tail_waits = s->tail_buffered = 0;
	return true;
}

static bool drain_asleep(struct state *s)
{
	if (!s->asleep_waits)
		return false;
	s->asleep = s->asleep_buffered;
	s->asleep_waits = s->asleep_buffered = 0;
	return true;
}

static void expand(struct search *x, struct state s)
{
	struct state next[4] = { s, s, s, s };
	bool moved[4] = { producer(&x->rules, &next[0]), consumer(&x->rules, &next[1], x),
		drain_tail(&next[2]), drain_asleep(&next[3]) };
	bool any = false;

	for (int i = 0; i < 4; i++) {
		if (moved[i])
			visit(x, &next[i]);
		any |= moved[i];
	}
	if (any)
		return;
	if (s.p == P_END && s.c == C_END)
		x->ends++;
	else
		x->deadlocks++;
}

static struct search explore(struct rules r)
{
	struct search x = { .rules = r,
		.seen = malloc(MAX_STATES * sizeof *x.seen),
		.table = calloc(2 * MAX_STATES, sizeof *x.table) };
	struct state first;

	memset(&first, 0, sizeof first);
	visit(&x, &first);
	while (x.n_done < x.n_seen)
		expand(&x, x.seen[x.n_done++]);
	free(x.seen);
	free(x.table);
	return x;
}

static const struct rules ours = { 2, true, true, true, true };

static void every_interleaving_delivers(void **st)
{
	(void)st;
	for (int slots = 1; slots <= 2; slots++) {
		struct rules r = ours;
		struct search x;

		r.slots = slots;
		x = explore(r);
		print_message("%d slots: %zu states\n", slots, x.n_seen);
		assert_true(x.n_seen > 100 && x.ends > 0);
		assert_int_equal(x.deadlocks, 0);
		assert_int_equal(x.disorders, 0);
	}
}

/* Each part of the protocol is needed: without it the model finds the hang (which the timeout of a real park ends). */
static void weaker_protocols_hang(void **st)
{
	struct rules r = ours;

	(void)st;
	r.tail_seq_cst = false;
	assert_true(explore(r).deadlocks > 0);
	r = ours;
	r.asleep_seq_cst = false;
	assert_true(explore(r).deadlocks > 0);
	r = ours;
	r.look_again = false;
	assert_true(explore(r).deadlocks > 0);
	r = ours;
	r.drain_first = false;
	assert_true(explore(r).deadlocks > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_interleaving_delivers),
		cmocka_unit_test(weaker_protocols_hang) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
