/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kv_world.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOREVER = 1 << 30, ONE_RECORD = 256 + 32 }; /* about: head and a page of four places */

struct scene {
	struct world w;
	char path[64];
	struct kv_tier_config disk;
	uint32_t t;
	uint64_t restored; /* in lives before */
};

static void open_tiers(struct scene *s, uint64_t host_bytes, uint64_t disk_bytes)
{
	struct kv_tier_config host = world_tier(&s->w, NULL, host_bytes);

	if (host_bytes)
		assert_int_equal(kv_tier_open(&host, &s->w.config.host, NULL), TENON_OK);
	if (!disk_bytes)
		return;
	if (!s->path[0]) {
		int fd;

		(void)snprintf(s->path, sizeof s->path, "/tmp/tenon-prefix-XXXXXX");
		fd = mkstemp(s->path);
		assert_true(fd >= 0);
		(void)close(fd);
	}
	s->disk = world_tier(&s->w, s->path, disk_bytes);
	assert_int_equal(kv_tier_open(&s->disk, &s->w.config.disk, NULL), TENON_OK);
}

static void start(struct scene *s, uint64_t host_bytes, uint64_t disk_bytes)
{
	open_tiers(s, host_bytes, disk_bytes);
	world_open(&s->w);
	s->t = prefix_tenant(s->w.prefix, "t");
}

static void finish(struct scene *s)
{
	world_close(&s->w);
	kv_tier_close(s->w.config.host);
	kv_tier_close(s->w.config.disk);
	if (s->path[0])
		(void)unlink(s->path);
	assert_int_equal(mem_area_bytes(MEM_KV), 0);
}

static struct prefix_status status_of(const struct scene *s)
{
	struct prefix_status status;

	prefix_get_status(s->w.prefix, &status);
	return status;
}

/* As after a new start of the worker: pages and memory are gone, the file is there. */
static void restart(struct scene *s)
{
	s->restored += status_of(s).restored_pages;
	prefix_destroy(s->w.prefix);
	s->w.prefix = NULL;
	kv_tier_close(s->w.config.disk);
	s->w.config.disk = NULL;
	assert_int_equal(kv_tier_open(&s->disk, &s->w.config.disk, NULL), TENON_OK);
	world_reopen(&s->w);
	s->t = prefix_tenant(s->w.prefix, "t");
}

static uint32_t tiered(struct scene *s, const int32_t *a, uint32_t n, uint64_t *ns)
{
	struct prefix_hit hit;

	prefix_find(s->w.prefix, s->t, a, n, &hit);
	if (ns)
		*ns = prefix_restore_ns(s->w.prefix, &hit);
	return hit.n_tiered;
}

static uint32_t restore_all(struct scene *s, const int32_t *a, uint32_t n)
{
	uint32_t sum = 0, now;

	while ((now = prefix_restore(s->w.prefix, s->t, a, n, FOREVER, s->w.now_ns)))
		sum += now;
	return sum;
}

/* A text that was run and lies in the tiers alone. */
static void evicted_text(struct scene *s, int32_t *a, uint32_t n)
{
	text_make(a, n, 1);
	(void)seq_run(&s->w, s->t, 0, a, n);
	assert_true(world_evict(&s->w, (n + 3) / 4));
	assert_int_equal(world_found(&s->w, s->t, a, n), 0);
}

static void what_was_evicted_comes_back(void **st)
{
	(void)st;
	for (int disk = 0; disk < 2; disk++) {
		struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
		struct prefix_status status;
		int32_t a[30], b[64];
		uint64_t ns;

		start(&s, disk ? 0 : 100000, disk ? 100000 : 0);
		text_make(a, 30, 1);
		text_make(b, 64, 500);
		(void)seq_run(&s.w, s.t, 0, a, 30);
		(void)seq_run(&s.w, s.t, 0, b, 64);
		assert_int_equal(world_found(&s.w, s.t, a, 30), 0);
		assert_int_equal(
			tiered(&s, a, 30, &ns), 28); /* seven whole pages; the eighth is partly filled */
		assert_true(ns > 0);
		assert_int_equal(prefix_restore(s.w.prefix, s.t, a, 29, 0, 0),
			1); /* at least one, from the start on */
		assert_int_equal(world_found(&s.w, s.t, a, 30), 4);
		assert_int_equal(tiered(&s, a, 30, NULL), 24);
		assert_int_equal(restore_all(&s, a, 29), 6);
		assert_int_equal(seq_run(&s.w, s.t, 0, a, 30), 28);
		assert_int_equal(restore_all(&s, a, 29), 0);
		status = status_of(&s);
		assert_int_equal(status.restored_pages, 7);
		assert_true(status.saved_pages >= 8 && status.tier_misses == 0 && status.save_ns &&
			status.restore_ns);
		assert_true(
			disk ? status.disk_bytes > 0 && status.disk_bytes <= 100000 : status.host_bytes > 0);
		finish(&s);
	}
}

/* A page that has its copy already leaves at once; nothing is written twice. */
static void idle_time_saves_ahead(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	struct prefix_status status;
	uint64_t reads;
	int32_t a[40];

	(void)st;
	start(&s, 100000, 0);
	text_make(a, 40, 1);
	assert_false(prefix_tend(s.w.prefix, FOREVER, 0));
	(void)seq_run(&s.w, s.t, 0, a, 40);
	assert_true(prefix_tend(s.w.prefix, 1, 0)); /* one at a time */
	assert_int_equal(s.w.n_reads, 1);
	assert_false(prefix_tend(s.w.prefix, FOREVER, 0));
	assert_false(prefix_tend(s.w.prefix, FOREVER, 0));
	reads = s.w.n_reads;
	assert_int_equal(reads, 10);
	assert_true(world_evict(&s.w, 10));
	assert_int_equal(s.w.n_reads, reads);
	assert_int_equal(restore_all(&s, a, 40), 10);
	assert_true(world_evict(&s.w, 5)); /* still saved */
	assert_int_equal(s.w.n_reads, reads);
	status = status_of(&s);
	assert_int_equal(status.saved_pages, 10);
	finish(&s);
}

/* More pages than a tier can take: idle time does not write in circles. */
static void a_small_tier_is_not_churned(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 64 } } };
	int32_t a[200];
	uint64_t saved;

	(void)st;
	start(&s, 8 * ONE_RECORD, 0);
	text_make(a, 200, 1);
	(void)seq_run(&s.w, s.t, 0, a, 200);
	for (int i = 0; i < 5; i++)
		(void)prefix_tend(s.w.prefix, FOREVER, 0);
	saved = status_of(&s).saved_pages;
	assert_true(saved >= 4 && saved <= 8);
	assert_true(world_evict(&s.w, 50));
	assert_true(tiered(&s, a, 200, NULL) >= 16); /* what went last: the beginning */
	finish(&s);
}

/* Offline work that goes on and on does not push from the disk what somebody waited for, nor write for ever. */
static void offline_work_takes_free_room_of_a_disk(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	uint64_t saved;
	int32_t a[40], b[40];

	(void)st;
	start(&s, 0, 24000);
	evicted_text(&s, a, 40);
	for (int32_t i = 1; i < 20; i++) {
		text_make(b, 40, i * 1000);
		(void)seq_run(&s.w, s.t, 1, b, 40);
	}
	saved = status_of(&s).saved_pages;
	assert_true(saved > 20 && saved < 250 - 16);
	for (int32_t i = 20; i < 30; i++) {
		text_make(b, 40, i * 1000);
		(void)seq_run(&s.w, s.t, 1, b, 40);
	}
	assert_int_equal(status_of(&s).saved_pages, saved);
	assert_int_equal(tiered(&s, a, 40, NULL), 40);
	for (int32_t i = 30; i < 60; i++) { /* online work does */
		text_make(b, 40, i * 1000);
		(void)seq_run(&s.w, s.t, 0, b, 40);
	}
	assert_true(status_of(&s).saved_pages > saved + 200);
	assert_int_equal(tiered(&s, a, 40, NULL), 0);
	finish(&s);
}

static void the_host_hands_down_to_the_disk(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 17 } } };
	int32_t a[8][64];

	(void)st;
	start(&s, 20 * ONE_RECORD, 200000);
	for (int32_t i = 0; i < 8; i++) {
		text_make(a[i], 64, i * 100);
		(void)seq_run(&s.w, s.t, 0, a[i], 64);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(world_found(&s.w, s.t, a[i], 64) + tiered(&s, a[i], 64, NULL), 64);
		(void)restore_all(&s, a[i], 64);
		assert_int_equal(seq_run(&s.w, s.t, 0, a[i], 64), 63);
	}
	assert_true(status_of(&s).host_bytes <= 20 * ONE_RECORD);
	assert_int_equal(status_of(&s).tier_misses, 0);
	finish(&s);
}

static void a_restart_finds_what_was_saved(void **st)
{
	struct scene s = {
		.w = { .n_groups = 2, .page_tokens = 4, .n_pages = { 32, 32 }, .window = { 0, 8 } }
	};
	int32_t a[50], b[50];

	(void)st;
	start(&s, 0, 200000);
	text_make(a, 50, 1);
	memcpy(b, a, sizeof b);
	b[21] = -1;
	(void)seq_run(&s.w, s.t, 0, a, 48);
	(void)seq_run(&s.w, s.t, 1, b, 48);
	(void)prefix_tend(s.w.prefix, FOREVER, 0);
	restart(&s);
	assert_int_equal(world_found(&s.w, s.t, a, 50), 0);
	assert_int_equal(tiered(&s, a, 50, NULL), 48);
	assert_int_equal(tiered(&s, b, 50, NULL), 48);
	(void)restore_all(&s, b, 50);
	assert_int_equal(seq_run(&s.w, s.t, 0, b, 50), 48);
	s.t = prefix_tenant(s.w.prefix, "other");
	assert_int_equal(tiered(&s, a, 50, NULL), 0);
	/* shared trees and separate ones never see each other's */
	s.w.config.share_tenants = true;
	restart(&s);
	assert_int_equal(tiered(&s, a, 50, NULL), 0);
	assert_int_equal(status_of(&s).disk_bytes, 0);
	finish(&s);
}

/* The same record twice in a file: one is dropped, or it would never make room. */
static void a_doubled_record_is_dropped(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	uint64_t page[4], bytes;
	void *data[KV_MAX_GROUPS] = { page };
	uint32_t slot = KV_TIER_NONE, again;
	int32_t a[40], tokens[4];
	struct kv_record r;

	(void)st;
	start(&s, 0, 200000);
	evicted_text(&s, a, 40);
	bytes = status_of(&s).disk_bytes;
	while (kv_tier_each(s.w.config.disk, &slot, &r, tokens) && r.first < 20)
		;
	assert_int_equal(kv_tier_get(s.w.config.disk, slot, &r, data, NULL), TENON_OK);
	assert_int_equal(
		kv_tier_put(s.w.config.disk, &r, (const void *[KV_MAX_GROUPS]){ page }, &again, NULL),
		TENON_OK);
	assert_true(status_of(&s).disk_bytes > bytes);
	restart(&s);
	assert_int_equal(status_of(&s).disk_bytes, bytes);
	assert_int_equal(restore_all(&s, a, 40), 10);
	assert_int_equal(seq_run(&s.w, s.t, 0, a, 40), 39);
	finish(&s);
}

static void a_purge_reaches_the_tiers(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	int32_t a[40];

	(void)st;
	start(&s, 0, 200000);
	evicted_text(&s, a, 40);
	assert_true(status_of(&s).disk_bytes > 0);
	assert_int_equal(prefix_purge(s.w.prefix, "t"), 0);
	assert_int_equal(status_of(&s).disk_bytes, 0);
	assert_int_equal(tiered(&s, a, 40, NULL), 0);
	assert_int_equal(status_of(&s).nodes, 1);
	finish(&s);
}

static void limits_change_while_running(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	int32_t a[64], b[64];
	uint32_t n;

	(void)st;
	start(&s, 100000, 200000);
	text_make(a, 64, 1);
	text_make(b, 64, 900);
	(void)seq_run(&s.w, s.t, 0, a, 64);
	(void)seq_run(&s.w, s.t, 0, b, 64);
	assert_int_equal(tiered(&s, a, 64, NULL), 64);
	prefix_set_limits(s.w.prefix, 10 * ONE_RECORD, 200000);
	assert_true(status_of(&s).host_bytes <= 10 * ONE_RECORD);
	assert_int_equal(status_of(&s).host_limit_bytes, 10 * ONE_RECORD);
	n = tiered(&s, a, 64, NULL); /* the end of the text went first */
	assert_true(n >= 16 && n < 64);
	prefix_set_limits(s.w.prefix, 0, 0);
	assert_int_equal(status_of(&s).host_bytes + status_of(&s).disk_bytes, 0);
	assert_int_equal(tiered(&s, a, 64, NULL), 0);
	assert_int_equal(status_of(&s).nodes, 1 + 16);
	assert_true(world_evict(&s.w, 16));
	assert_int_equal(tiered(&s, b, 64, NULL), 0);
	prefix_set_limits(s.w.prefix, 0, 100000);
	(void)seq_run(&s.w, s.t, 0, a, 64);
	assert_true(world_evict(&s.w, 16));
	assert_int_equal(tiered(&s, a, 64, NULL), 64);
	finish(&s);
}

/* ---- what goes wrong ------------------------------------------------------------------------------------------------- */
static void flip(const struct scene *s, off_t at)
{
	int fd = open(s->path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	(void)close(fd);
}

/* One damaged record in the middle of a path: what lies before it comes back, it itself is a miss, once. */
static void damage_costs_what_lies_behind_it(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	struct prefix_status status;
	struct stat file;
	int32_t a[40];

	(void)st;
	start(&s, 0, 200000);
	evicted_text(&s, a, 40);
	assert_int_equal(stat(s.path, &file), 0);
	flip(&s,
		file.st_size - 3 * 32 -
			5); /* pages lie from the text's end to its beginning: the fourth last is page 3 */
	assert_int_equal(restore_all(&s, a, 40), 3);
	status = status_of(&s);
	assert_int_equal(status.tier_misses, 1);
	assert_int_equal(kv_pages_free(s.w.pages, 0), 16 - 3);
	assert_int_equal(world_found(&s.w, s.t, a, 40), 12);
	assert_int_equal(tiered(&s, a, 40, NULL), 0);
	assert_int_equal(restore_all(&s, a, 40), 0);
	assert_int_equal(status_of(&s).tier_misses, 1);
	/* computed again, the rest is of use again */
	assert_int_equal(seq_run(&s.w, s.t, 0, a, 17), 12);
	assert_int_equal(tiered(&s, a, 40, NULL), 24);
	assert_int_equal(restore_all(&s, a, 40), 6);
	assert_int_equal(seq_run(&s.w, s.t, 0, a, 40), 39);
	/* at the very end of a text nothing of it stays */
	(void)prefix_purge(s.w.prefix, NULL);
	evicted_text(&s, a, 4);
	assert_int_equal(status_of(&s).nodes, 2);
	s.w.fail_write = 1;
	assert_int_equal(prefix_restore(s.w.prefix, s.t, a, 4, FOREVER, 0), 0);
	assert_int_equal(status_of(&s).nodes, 1);
	assert_int_equal(status_of(&s).disk_bytes, 0);
	finish(&s);
}

static void a_restore_that_fails_leaves_nothing(void **st)
{
	struct scene s = { .w = { .n_groups = 2, .page_tokens = 4, .n_pages = { 16, 16 } } };
	int32_t a[40];
	struct seq other;

	(void)st;
	start(&s, 200000, 0);
	for (uint64_t at = 1; at <= 4; at++) { /* the at-th write: two pages a node */
		(void)prefix_purge(s.w.prefix, NULL);
		evicted_text(&s, a, 40);
		s.w.fail_write = at;
		assert_int_equal(prefix_restore(s.w.prefix, s.t, a, 40, FOREVER, 0), (at - 1) / 2 * 2);
		assert_int_equal(status_of(&s).tier_misses, at);
		for (uint32_t g = 0; g < 2; g++)
			assert_int_equal(kv_pages_free(s.w.pages, g), 16 - (at - 1) / 2);
		assert_int_equal(world_found(&s.w, s.t, a, 40), (at - 1) / 2 * 4);
	}
	/* no pages: nothing is restored, nothing lost either */
	(void)prefix_purge(s.w.prefix, NULL);
	evicted_text(&s, a, 40);
	seq_begin(&s.w, &other, prefix_tenant(s.w.prefix, "u"), 0, a, 40);
	other.tokens = a;
	assert_true(block_table_cover(&other.table, s.w.pages, 60) == 0);
	assert_int_equal(
		prefix_restore(s.w.prefix, s.t, a, 40, FOREVER, 0), 2); /* one page was left in each group */
	assert_int_equal(prefix_restore(s.w.prefix, s.t, a, 40, FOREVER, 0), 0);
	assert_int_equal(status_of(&s).tier_misses, 4);
	assert_int_equal(world_found(&s.w, s.t, a, 40), 4); /* it did not give way to its own continuation */
	seq_drop(&s.w, &other);
	assert_int_equal(restore_all(&s, a, 40), 18);
	assert_int_equal(seq_run(&s.w, s.t, 0, a, 40), 39);
	finish(&s);
}

static void a_page_that_cannot_be_read_is_only_not_saved(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	int32_t a[40];

	(void)st;
	start(&s, 200000, 0);
	text_make(a, 40, 1);
	(void)seq_run(&s.w, s.t, 0, a, 40);
	s.w.fail_read = 3;
	assert_true(world_evict(&s.w, 10));
	assert_int_equal(tiered(&s, a, 40, NULL), 28);
	assert_int_equal(restore_all(&s, a, 40), 7);
	assert_int_equal(seq_run(&s.w, s.t, 0, a, 40), 28);
	finish(&s);
}

/* The tier's figure before, and after, its first reads: never a guess that makes it look quick. */
static void predictions_come_from_reads(void **st)
{
	struct scene s = { .w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 16 } } };
	uint64_t guess_ns, ns;
	int32_t a[40];

	(void)st;
	start(&s, 0, 200000);
	evicted_text(&s, a, 40);
	assert_int_equal(tiered(&s, a, 40, &guess_ns), 40);
	assert_true(guess_ns > 10 * NS_PER_MS);
	(void)prefix_tend(
		s.w.prefix, FOREVER, 0); /* reads one: the world's clock goes on by a microsecond a look */
	assert_int_equal(s.w.n_writes, 0);
	assert_int_equal(tiered(&s, a, 40, &ns), 40);
	assert_true(ns >= 10 * 1000 && ns < 10 * 5000);
	finish(&s);
}

static void everything(struct scene *s)
{
	int32_t a[40], b[40];

	text_make(a, 40, 1);
	memcpy(b, a, sizeof b);
	b[10] = -1;
	(void)seq_run(&s->w, s->t, 0, a, 40);
	(void)seq_run(&s->w, s->t, 1, b, 40);
	(void)prefix_tend(s->w.prefix, FOREVER, 0);
	(void)world_evict(&s->w, 12);
	(void)restore_all(s, b, 40);
	(void)seq_run(&s->w, s->t, 1, b, 40);
	(void)restore_all(s, a, 40);
	prefix_set_limits(s->w.prefix, 8 * ONE_RECORD, 24000);
	(void)seq_run(&s->w, s->t, 0, a, 40);
	prefix_destroy(s->w.prefix);
	s->w.prefix = NULL;
	if (prefix_create(&s->w.config, &s->w.prefix, NULL))
		return;
	s->t = prefix_tenant(s->w.prefix, "t");
	(void)restore_all(s, a, 40);
	(void)seq_run(&s->w, s->t, 0, a, 40);
}

static void every_allocation_may_fail(void **st)
{
	uint64_t calls = 1;

	(void)st;
	for (uint64_t i = 0; i <= calls; i++) {
		struct scene s = { .w = { .n_groups = 2,
					   .page_tokens = 4,
					   .n_pages = { 24, 24 },
					   .window = { 0, 10 },
					   .starving = true } };
		uint64_t before;

		start(&s, 20 * ONE_RECORD, 100000);
		before = mem_n_allocs();
		mem_fail_at(i);
		everything(&s);
		mem_fail_at(0);
		calls = i ? calls : mem_n_allocs() - before;
		finish(&s);
	}
	assert_true(calls > 50);
}

/* Random lives with two tiers, windows, restarts and damage: what a sequence gets is right (seq_begin checks it), every page
 * and byte comes back. */
static void any_life_gives_right_pages(void **st)
{
	enum { LONGEST = 48 };

	(void)st;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct scene s = { .w = { .n_groups = 1 + seed % 2,
					   .page_tokens = 4,
					   .n_pages = { 24, 20 },
					   .window = { 0, 9 } } };
		uint64_t r = seed;
		int32_t a[LONGEST];

		start(&s, seed % 3 ? 20 * ONE_RECORD : 0, 60000);
		s.w.config.invariant = seed % 2;
		for (int i = 0; i < 1500; i++) {
			uint32_t what = next_random(&r, 100), n = 2 + next_random(&r, LONGEST - 2);

			for (uint32_t k = 0; k < LONGEST; k++)
				a[k] = k % 7 ? 5 : (int32_t)next_random(&r, 3);
			if (what < 30)
				(void)prefix_restore(
					s.w.prefix, s.t, a, n - 1, next_random(&r, 20000), s.w.now_ns);
			else if (what < 35)
				(void)prefix_tend(s.w.prefix, next_random(&r, 20000), s.w.now_ns);
			else if (what < 37)
				prefix_set_limits(
					s.w.prefix, next_random(&r, 30) * ONE_RECORD, next_random(&r, 80000));
			else if (what < 39)
				restart(&s);
			else if (what < 42 && status_of(&s).disk_bytes)
				flip(&s, next_random(&r, (uint32_t)status_of(&s).disk_bytes));
			else if (what < 44)
				s.w.fail_write = 1 + next_random(&r, 3);
			(void)seq_run(&s.w, s.t, what % 2, a, n);
		}
		assert_true(s.restored + status_of(&s).restored_pages > 100);
		assert_true(status_of(&s).host_bytes <= status_of(&s).host_limit_bytes);
		assert_true(status_of(&s).disk_bytes <= status_of(&s).disk_limit_bytes);
		finish(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_evicted_comes_back),
		cmocka_unit_test(idle_time_saves_ahead),
		cmocka_unit_test(a_small_tier_is_not_churned),
		cmocka_unit_test(offline_work_takes_free_room_of_a_disk),
		cmocka_unit_test(the_host_hands_down_to_the_disk),
		cmocka_unit_test(a_restart_finds_what_was_saved),
		cmocka_unit_test(a_doubled_record_is_dropped),
		cmocka_unit_test(a_purge_reaches_the_tiers),
		cmocka_unit_test(limits_change_while_running),
		cmocka_unit_test(damage_costs_what_lies_behind_it),
		cmocka_unit_test(a_restore_that_fails_leaves_nothing),
		cmocka_unit_test(a_page_that_cannot_be_read_is_only_not_saved),
		cmocka_unit_test(predictions_come_from_reads),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(any_life_gives_right_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
