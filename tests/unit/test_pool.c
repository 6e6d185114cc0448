/* SPDX-License-Identifier: Apache-2.0
 * The cpu plugin's threads: every piece once and in its stage, and neither a job nor an end that a sleeper misses. The
 * races are narrow, so pools are made, used and ended thousands of times, from threads without work to more than the
 * machine has CPUs.
 */
#include "plugins/cpu/pool.h"
#include "tests/unit/unit.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { STAGES = 4, PIECES = 7 };

struct job {
	_Atomic uint32_t done[STAGES], seen[STAGES][PIECES];
	const uint32_t *pieces;
	_Atomic uint32_t early; /* pieces begun before the stage in front was done */
};

static void piece(void *arg, uint32_t thread, uint32_t stage, uint32_t index)
{
	struct job *j = arg;

	(void)thread;
	for (uint32_t s = 0; s < stage; s++)
		if (atomic_load(&j->done[s]) != j->pieces[s])
			atomic_fetch_add(&j->early, 1);
	atomic_fetch_add(&j->seen[stage][index], 1);
	atomic_fetch_add(&j->done[stage], 1);
}

static void job_check(struct pool *p, const uint32_t *pieces)
{
	struct job j;

	memset(&j, 0, sizeof j);
	j.pieces = pieces;
	pool_run(p, piece, &j, pieces, STAGES);
	assert_int_equal(atomic_load(&j.early), 0);
	for (uint32_t s = 0; s < STAGES; s++)
		for (uint32_t i = 0; i < PIECES; i++)
			assert_int_equal(atomic_load(&j.seen[s][i]), i < pieces[s]);
}

static struct pool *pool_of(uint32_t threads)
{
	struct pool *p = NULL;

	assert_int_equal(pool_create(threads, false, &p), 0);
	assert_int_equal(pool_threads(p), threads);
	return p;
}

static void stages(void **state)
{
	static const uint32_t shapes[][STAGES] = { { 1, 7, 2, 3 }, { 0, 5, 0, 7 }, { 7, 0, 0, 0 },
		{ 0, 0, 0, 0 } };

	(void)state;
	for (uint32_t threads = 1; threads <= 5; threads += 2) {
		struct pool *p = pool_of(threads);

		for (uint32_t i = 0; i < 400; i++)
			job_check(p, shapes[i % 4]);
		pool_destroy(p);
	}
}

/* A worker looks for work between the end being said and being published, at another moment each round. */
static void ends(void **state)
{
	static const uint32_t pieces[STAGES] = { 2, 2, 2, 2 };
	uint32_t rounds = getenv("TENON_TEST_SHORT") ? 3000 : 12000;

	(void)state;
	for (uint32_t i = 0; i < rounds; i++) {
		struct pool *p = pool_of(2 + i % 3);

		if (i % 2)
			job_check(p, pieces);
		for (volatile uint32_t wait = 0; wait < i % 512 * 16; wait++)
			;
		pool_destroy(p);
	}
}

/* Workers asleep when the job comes. */
static void wakes(void **state)
{
	static const uint32_t pieces[STAGES] = { 7, 7, 7, 7 };
	struct pool *p = pool_of(3);

	(void)state;
	for (uint32_t i = 0; i < 200; i++) {
		struct timespec nap = { 0, (long)(i % 20) * 10000 };

		(void)nanosleep(&nap, NULL);
		job_check(p, pieces);
	}
	pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages),
		cmocka_unit_test(ends),
		cmocka_unit_test(wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
