/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "cache/kv/tier_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 4, PAGE_A = 100, PAGE_B = 52, MAX_RECORDS = 400 };

struct fixture {
	char path[64];
	struct kv_tier_config config;
	struct kv_tier *t;
	uint32_t slot_of[MAX_RECORDS]; /* by number; KV_TIER_NONE: not there */
	uint8_t a[PAGE_A], b[PAGE_B];
};

static bool on_disk;

/* Files in memory where there is such a place: thousands are made here. */
static const char *template_of(void)
{
	return access("/dev/shm", W_OK) ? "/tmp/tenon-tier-XXXXXX" : "/dev/shm/tenon-tier-XXXXXX";
}

static struct fixture *start(bool file, uint64_t limit)
{
	struct fixture *f = calloc(1, sizeof *f);
	int fd;

	assert_non_null(f);
	f->config = (struct kv_tier_config){
		.limit_bytes = limit, .n_groups = 2, .page_tokens = TOKENS, .page_bytes = { PAGE_A, PAGE_B }
	};
	memset(f->config.compat, 5, sizeof f->config.compat);
	memset(f->slot_of, 0xff, sizeof f->slot_of);
	if (file) {
		(void)snprintf(
			f->path, sizeof f->path, "%s", on_disk ? "/tmp/tenon-tier-XXXXXX" : template_of());
		fd = mkstemp(f->path);
		assert_true(fd >= 0);
		(void)close(fd);
		f->config.path = f->path;
	}
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_OK);
	return f;
}

static void finish(struct fixture *f)
{
	kv_tier_close(f->t);
	if (f->path[0])
		(void)unlink(f->path);
	free(f);
}

static void reopen(struct fixture *f)
{
	kv_tier_close(f->t);
	f->t = NULL;
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_OK);
}

static uint64_t size_of(const struct fixture *f)
{
	struct stat st;

	assert_int_equal(stat(f->path, &st), 0);
	return (uint64_t)st.st_size;
}

static uint64_t bytes_of(const struct fixture *f)
{
	struct kv_tier_status s;

	kv_tier_get_status(f->t, &s);
	if (f->path[0])
		assert_int_equal(s.bytes, size_of(f));
	assert_true(s.bytes <= s.limit_bytes);
	return s.bytes;
}

static uint64_t records_of(const struct fixture *f)
{
	struct kv_tier_status s;

	kv_tier_get_status(f->t, &s);
	return s.records;
}

/* Record k: everything in it follows from k. Every third lacks one group. */
static void record_make(struct kv_record *r, int32_t tokens[TOKENS], uint32_t k)
{
	*r = (struct kv_record){ .first = k * TOKENS,
		.n_tokens = 1 + k % TOKENS,
		.groups = k % 3 ? 3 : 1 + k % 2,
		.traffic_class = k % 2,
		.tokens = tokens };
	memset(r->chain, (int)k, sizeof r->chain);
	(void)snprintf(r->tenant, sizeof r->tenant, "tenant %u", k % 7);
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = (int32_t)(k * 100 + i);
}

static int put(struct fixture *f, uint32_t k)
{
	int32_t tokens[TOKENS];
	struct kv_record r;
	uint32_t slot;
	int rc;

	record_make(&r, tokens, k);
	memset(f->a, (int)(k + 1), sizeof f->a);
	memset(f->b, (int)(k + 2), sizeof f->b);
	rc = kv_tier_put(f->t, &r, (const void *[KV_MAX_GROUPS]){ f->a, f->b }, &slot, NULL);
	if (!rc)
		f->slot_of[k] = slot;
	return rc;
}

static bool all_are(const uint8_t *p, size_t n, uint32_t value)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (uint8_t)value)
			return false;
	return true;
}

/* What comes back as good is right. */
static int get(struct fixture *f, uint32_t k, uint32_t slot)
{
	int32_t tokens[TOKENS];
	struct kv_record r;
	int rc;

	record_make(&r, tokens, k);
	memset(f->a, 0xee, sizeof f->a);
	memset(f->b, 0xee, sizeof f->b);
	rc = kv_tier_get(f->t, slot, &r, (void *[KV_MAX_GROUPS]){ f->a, f->b }, NULL);
	if (!rc) {
		assert_true(all_are(f->a, sizeof f->a, r.groups & 1 ? k + 1 : 0xee));
		assert_true(all_are(f->b, sizeof f->b, r.groups & 2 ? k + 2 : 0xee));
	}
	return rc;
}

static void gone(void *ctx, uint32_t slot)
{
	struct fixture *f = ctx;

	for (uint32_t k = 0; k < MAX_RECORDS; k++)
		if (f->slot_of[k] == slot) {
			f->slot_of[k] = KV_TIER_NONE;
			return;
		}
	fail_msg("slot %u is nobody's", slot);
}

static void moved(void *ctx, uint32_t from, uint32_t to)
{
	struct fixture *f = ctx;

	for (uint32_t k = 0; k < MAX_RECORDS; k++)
		assert_int_not_equal(f->slot_of[k], to);
	for (uint32_t k = 0; k < MAX_RECORDS; k++)
		if (f->slot_of[k] == from) {
			f->slot_of[k] = to;
			return;
		}
	fail_msg("slot %u is nobody's", from);
}

static uint32_t check_all(struct fixture *f)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < MAX_RECORDS; k++)
		if (f->slot_of[k] != KV_TIER_NONE) {
			assert_int_equal(get(f, k, f->slot_of[k]), TENON_OK);
			n++;
		}
	assert_int_equal(n, records_of(f));
	return n;
}

/* ---- both kinds ---------------------------------------------------------------------------------------------------- */
static void only_the_very_record_comes_back(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		void *data[KV_MAX_GROUPS] = { f->a, f->b };
		int32_t tokens[TOKENS];
		struct kv_record r;

		for (uint32_t k = 0; k < 100; k++)
			assert_int_equal(put(f, k), TENON_OK);
		assert_int_equal(check_all(f), 100);
		assert_int_equal(get(f, 3, f->slot_of[4]), TENON_E_FORMAT);
		assert_int_equal(get(f, 3, 100), TENON_E_FORMAT);
		assert_int_equal(get(f, 3, KV_TIER_NONE), TENON_E_FORMAT);
		for (int i = 0; i < 6; i++) {
			record_make(&r, tokens, 7);
			assert_int_equal(kv_tier_get(f->t, f->slot_of[7], &r, data, NULL), TENON_OK);
			r.chain[31] ^= i == 0;
			r.tenant[3] ^= i == 1;
			tokens[2] ^= i == 2;
			r.first += i == 3 ? TOKENS : 0;
			r.n_tokens -= i == 4;
			r.groups ^= i == 5;
			assert_int_equal(kv_tier_get(f->t, f->slot_of[7], &r, data, NULL), TENON_E_FORMAT);
		}
		kv_tier_drop(f->t, f->slot_of[7]);
		kv_tier_drop(f->t, f->slot_of[7]);
		assert_int_equal(get(f, 7, f->slot_of[7]), TENON_E_FORMAT);
		f->slot_of[7] = KV_TIER_NONE;
		assert_int_equal(put(f, 200), TENON_OK); /* takes the free place */
		assert_int_equal(f->slot_of[200], 7);
		check_all(f);
		finish(f);
	}
}

static void odd_records_are_refused(void **st)
{
	struct fixture *f = start(false, 1 << 20);
	const void *data[KV_MAX_GROUPS] = { f->a, f->b };
	int32_t tokens[TOKENS];
	struct kv_record r;
	uint32_t slot;

	(void)st;
	for (int i = 0; i < 6; i++) {
		record_make(&r, tokens, 5);
		r.n_tokens = i == 0 ? 0 : i == 1 ? TOKENS + 1 : r.n_tokens;
		r.groups = i == 2 ? 0 : i == 3 ? 4 : r.groups;
		r.first += i == 4;
		if (i == 5)
			memset(r.tenant, 'x', sizeof r.tenant);
		assert_int_equal(kv_tier_put(f->t, &r, data, &slot, NULL), TENON_E_INVALID);
	}
	assert_int_equal(records_of(f), 0);
	finish(f);
}

/* At every limit: as many as fit, never a byte more, and a refusal takes nothing. */
static void limits_hold_to_the_byte(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		uint32_t most = 0;

		for (uint64_t limit = 0; limit < 24000; limit += file ? 577 : 137) {
			struct fixture *f = start(file, limit);
			uint64_t allocs, before;
			uint32_t k = 0;
			bool room;
			int rc;

			do {
				before = bytes_of(f);
				allocs = mem_n_allocs();
				room = kv_tier_has_room(f->t);
				rc = put(f, k++);
				assert_int_equal(room, !rc);
				assert_true(bytes_of(f) <= limit);
			} while (!rc);
			assert_int_equal(rc, TENON_E_FULL);
			assert_int_equal(mem_n_allocs(), allocs);
			assert_int_equal(bytes_of(f), before);
			assert_false(kv_tier_has_room(f->t));
			assert_int_equal(check_all(f), k - 1);
			most = k - 1;
			finish(f);
		}
		assert_true(most > 20);
	}
}

/* The exact edge: a limit of just the bytes of n records takes n, one byte less takes n - 1. */
static void the_last_byte_counts(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		uint64_t bytes;

		for (uint32_t k = 0; k < 70; k++)
			assert_int_equal(put(f, k), TENON_OK);
		kv_tier_set_limit(f->t, 20000, gone, moved, f);
		bytes = bytes_of(f);
		kv_tier_set_limit(f->t, bytes, gone, moved, f);
		assert_int_equal(bytes_of(f), bytes);
		(void)records_of(f);
		for (uint32_t n = check_all(f); n > 0; n--) {
			kv_tier_set_limit(f->t, bytes_of(f), gone, moved, f);
			assert_int_equal(check_all(f), n);
			kv_tier_set_limit(f->t, bytes_of(f) - 1, gone, moved, f);
			if (check_all(f) == n) /* only the index had room to spare */
				n++;
		}
		assert_int_equal(bytes_of(f), 0);
		finish(f);
	}
}

static void the_latest_stay_when_a_limit_falls(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		uint32_t n;

		for (uint32_t k = 0; k < 200; k++)
			assert_int_equal(put(f, k), TENON_OK);
		for (uint32_t k = 0; k < 200; k += 3) {
			kv_tier_drop(f->t, f->slot_of[k]);
			f->slot_of[k] = KV_TIER_NONE;
		}
		for (uint32_t k = 200; k < 220; k++)
			assert_int_equal(put(f, k), TENON_OK); /* in places before older ones */
		kv_tier_set_limit(f->t, 20000, gone, moved, f);
		n = check_all(f);
		assert_true(n > 15 && n < 100);
		for (uint32_t k = 219, left = n; left; k--)
			if (k >= 200 || k % 3) {
				assert_int_not_equal(f->slot_of[k], KV_TIER_NONE);
				left--;
			}
		kv_tier_set_limit(f->t, 40000, gone, moved, f);
		assert_int_equal(check_all(f), n);
		assert_int_equal(put(f, 300), TENON_OK);
		if (file) {
			f->config.limit_bytes = 40000;
			reopen(f);
			assert_int_equal(check_all(f), n + 1);
		}
		kv_tier_set_limit(f->t, 0, gone, moved, f);
		assert_int_equal(bytes_of(f), 0);
		assert_int_equal(check_all(f), 0);
		assert_int_equal(put(f, 301), TENON_E_FULL);
		kv_tier_set_limit(f->t, 20000, gone, moved, f);
		assert_int_equal(put(f, 301), TENON_OK);
		finish(f);
	}
}

static uint32_t rnd(uint64_t *s, uint32_t below)
{
	*s = *s * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(*s >> 33) % below;
}

static void any_life_keeps_what_it_says(void **st)
{
	(void)st;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct fixture *f = start(seed % 2, 60000);
		uint64_t s = seed;

		for (int i = 0; i < 3000; i++) {
			uint32_t k = rnd(&s, MAX_RECORDS), what = rnd(&s, 200);

			if (what == 0)
				kv_tier_set_limit(f->t, rnd(&s, 100000), gone, moved, f);
			else if (what < 80 && f->slot_of[k] != KV_TIER_NONE) {
				kv_tier_drop(f->t, f->slot_of[k]);
				f->slot_of[k] = KV_TIER_NONE;
			} else if (f->slot_of[k] == KV_TIER_NONE)
				assert_true(put(f, k) == TENON_OK || !kv_tier_has_room(f->t));
			else
				assert_int_equal(get(f, k, f->slot_of[k]), TENON_OK);
			(void)bytes_of(f);
		}
		check_all(f);
		if (seed % 2) {
			struct kv_tier_status status;

			kv_tier_get_status(f->t, &status);
			f->config.limit_bytes = status.limit_bytes;
			reopen(f);
			check_all(f);
		}
		finish(f);
	}
	assert_int_equal(mem_area_bytes(MEM_KV), 0);
}

static void walking_gives_parents_first(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		int32_t tokens[TOKENS], want[TOKENS];
		uint32_t slot = KV_TIER_NONE, n = 0, before = 0;
		struct kv_record r, w;

		assert_false(kv_tier_each(f->t, &slot, &r, tokens));
		for (uint32_t k = 0; k < 150; k++)
			assert_int_equal(put(f, k * 77 % 150), TENON_OK);
		while (kv_tier_each(f->t, &slot, &r, tokens)) {
			uint32_t k = r.first / TOKENS;

			record_make(&w, want, k);
			assert_int_equal(slot, f->slot_of[k]);
			assert_true(r.first >= before && r.groups == w.groups &&
				r.traffic_class == w.traffic_class);
			assert_memory_equal(r.tokens, want, r.n_tokens * sizeof *want);
			assert_string_equal(r.tenant, w.tenant);
			before = r.first;
			n++;
			if (k % 2)
				kv_tier_drop(f->t, slot);
		}
		assert_int_equal(n, 150);
		assert_int_equal(records_of(f), 75);
		finish(f);
	}
}

static void out_of_memory_is_answered(void **st)
{
	(void)st;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		struct kv_tier *t = NULL;
		uint32_t refused = 0;

		for (uint32_t k = 0; k < 60; k++) {
			mem_fail_at(1 + k % 2);
			refused += put(f, k) == TENON_E_NOMEM;
			mem_fail_at(0);
			(void)bytes_of(f);
		}
		assert_true(refused > 0);
		check_all(f);
		kv_tier_close(f->t);
		for (uint64_t i = 1; i <= 4; i++) {
			mem_fail_at(i);
			if (!kv_tier_open(&f->config, &t, NULL)) {
				assert_true(i > 2);
				kv_tier_close(t);
			}
			mem_fail_at(0);
		}
		f->t = NULL;
		assert_int_equal(mem_area_bytes(MEM_KV), 0);
		finish(f);
	}
}

/* ---- files --------------------------------------------------------------------------------------------------------- */
static void a_file_survives_and_is_private(void **st)
{
	struct fixture *f = start(true, 1 << 20);
	struct kv_tier *other = NULL;
	struct kv_tier_config c;
	struct stat s;

	(void)st;
	for (uint32_t k = 0; k < 130; k++)
		assert_int_equal(put(f, k), TENON_OK);
	assert_int_equal(kv_tier_open(&f->config, &other, NULL), TENON_E_BUSY);
	assert_int_equal(chmod(f->path, 0666), 0);
	reopen(f);
	assert_int_equal(check_all(f), 130);
	assert_int_equal(stat(f->path, &s), 0);
	assert_int_equal(s.st_mode & 0777, 0600);
	kv_tier_close(f->t);
	f->t = NULL;
	for (int i = 0; i < 4; i++) { /* another maker, another shape: begins empty, for good */
		c = f->config;
		c.compat[31] ^= i == 0;
		c.page_tokens += i == 1;
		c.page_bytes[1] += i == 2;
		c.n_groups -= i == 3;
		assert_int_equal(kv_tier_open(&c, &f->t, NULL), TENON_OK);
		assert_int_equal(records_of(f), 0);
		assert_int_equal(size_of(f), 0);
		kv_tier_close(f->t);
		assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_OK);
		assert_int_equal(records_of(f), 0);
		for (uint32_t k = 0; k < 10; k++)
			assert_int_equal(put(f, k), TENON_OK);
		kv_tier_close(f->t);
		f->t = NULL;
	}
	finish(f);
}

static void wrong_paths_are_left_alone(void **st)
{
	struct fixture *f = start(true, 1 << 20);
	struct error e;
	char link[80];
	FILE *file;

	(void)st;
	kv_tier_close(f->t);
	f->t = NULL;
	file = fopen(f->path, "w");
	assert_non_null(file);
	(void)fputs("my thesis", file);
	(void)fclose(file);
	assert_int_equal(chmod(f->path, 0644), 0);
	assert_int_equal(kv_tier_open(&f->config, &f->t, &e), TENON_E_IO);
	assert_non_null(strstr(e.text, "another path"));
	assert_int_equal(size_of(f), 9);
	memcpy(link, f->path, sizeof f->path);
	memcpy(link + strlen(link), "-link", sizeof "-link");
	assert_int_equal(symlink(f->path, link), 0);
	f->config.path = link;
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_IO);
	(void)unlink(link);
	assert_int_equal(mkfifo(link, 0600), 0);
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_IO);
	(void)unlink(link);
	f->config.path = "/tmp";
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_IO);
	f->config.path = "/no-such-folder/tier";
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_IO);
	f->config.path = f->path;
	f->config.page_bytes[0] = 0;
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_INVALID);
	f->config.page_bytes[0] = UINT64_MAX;
	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_E_INVALID);
	finish(f);
}

struct image {
	uint8_t *bytes;
	size_t n;
};

static struct image image_read(const struct fixture *f)
{
	struct image m = { .n = (size_t)size_of(f) };
	FILE *file = fopen(f->path, "r");

	m.bytes = malloc(m.n);
	assert_true(file && m.bytes && fread(m.bytes, 1, m.n, file) == m.n);
	(void)fclose(file);
	return m;
}

static void image_write(const struct fixture *f, const struct image *m, size_t n)
{
	FILE *file = fopen(f->path, "w");

	assert_true(file && fwrite(m->bytes, 1, n, file) == n);
	(void)fclose(file);
}

/* Every record that the tier says it has is whole. */
static void check_found(struct fixture *f)
{
	uint32_t slot = KV_TIER_NONE;
	int32_t tokens[TOKENS];
	struct kv_record r;

	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_OK);
	while (kv_tier_each(f->t, &slot, &r, tokens))
		assert_int_equal(get(f, r.first / TOKENS, slot), TENON_OK);
	kv_tier_close(f->t);
	f->t = NULL;
}

/* After any damage: what is found is right or refused. Returns how many are right. */
static uint32_t survivors(struct fixture *f, uint32_t n_records)
{
	uint32_t n = 0;

	assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), TENON_OK);
	for (uint32_t k = 0; k < n_records; k++)
		n += !get(f, k, f->slot_of[k]);
	(void)bytes_of(f);
	kv_tier_close(f->t);
	f->t = NULL;
	return n;
}

static void damage_is_a_miss(void **st)
{
	struct fixture *f = start(true, 1 << 20);
	struct image m;
	uint32_t n;

	(void)st;
	for (uint32_t k = 1; k < 8; k++) /* 1..7, of which 3 and 6 lack a group */
		assert_int_equal(put(f, k), TENON_OK);
	f->slot_of[0] = 99;
	kv_tier_close(f->t);
	m = image_read(f);
	for (size_t cut = 0; cut <= m.n; cut += cut < 300 ? 1 : 13) {
		image_write(f, &m, cut);
		n = survivors(f, 8);
		assert_true(n <= 7 && (cut >= 256 || !n));
	}
	for (size_t at = 0; at < m.n; at += at < 300 ? 1 : 7) {
		m.bytes[at] ^= 1u << at % 8;
		image_write(f, &m, m.n);
		n = survivors(f, 8);
		assert_true(at < 256 ? n == 0 || (at >= 120 && n == 7) : n >= 6);
		m.bytes[at] ^= 1u << at % 8;
	}
	image_write(f, &m, m.n);
	assert_int_equal(survivors(f, 8), 7);
	free(m.bytes);
	finish(f);
}

/* Writing goes wrong at the n-th call, or from it on for ever: as after a crash in the middle. */
static uint64_t fail_at;
static bool fail_for_ever, fail_short, has_failed;

static int bad_truncate(int fd, off_t bytes)
{
	return fail_for_ever && has_failed ? -1 : ftruncate(fd, bytes);
}

static ssize_t bad_write(int fd, const void *p, size_t n, off_t at)
{
	if (fail_at && !--fail_at) {
		fail_at = fail_for_ever;
		has_failed = true;
		if (n > 1 && fail_short) {
			(void)!pwrite(fd, p, n / 2, at);
			errno = ENOSPC;
			return -1;
		}
		errno = ENOSPC;
		return -1;
	}
	return pwrite(fd, p, MIN_OF(n, 64), at); /* never all at once */
}

static void a_half_record_is_not_believed(void **st)
{
	(void)st;
	fail_short = true;
	for (int for_ever = 0; for_ever < 2; for_ever++)
		for (uint64_t at = 1; at < 60; at++) {
			struct fixture *f = start(true, 1 << 20);
			uint32_t n_ok = 0;

			f->t->io.write = bad_write;
			f->t->io.truncate = bad_truncate;
			f->t->refuse_ns = 0;
			fail_at = at;
			fail_for_ever = for_ever;
			has_failed = false;
			for (uint32_t k = 0; k < 6 && !(for_ever && has_failed); k++) {
				int rc = put(f, k);

				assert_true(rc == TENON_OK || rc == TENON_E_IO);
				n_ok += rc == TENON_OK;
				if (k == 3 && f->slot_of[1] != KV_TIER_NONE) {
					kv_tier_drop(f->t, f->slot_of[1]);
					f->slot_of[1] = KV_TIER_NONE;
					n_ok--;
				}
				if (!for_ever)
					(void)bytes_of(f);
			}
			fail_at = 0;
			assert_int_equal(check_all(f), n_ok);
			kv_tier_close(f->t);
			f->t = NULL;
			check_found(f);
			assert_true(survivors(f, 6) >= n_ok);
			finish(f);
		}
}

static void a_full_disk_is_left_in_peace_for_a_while(void **st)
{
	struct fixture *f = start(true, 1 << 20);
	struct kv_tier_status s;

	(void)st;
	assert_int_equal(put(f, 1), TENON_OK);
	f->t->io.write = bad_write;
	fail_at = 1;
	fail_for_ever = fail_short = has_failed = false;
	assert_int_equal(put(f, 2), TENON_E_IO);
	assert_int_equal(put(f, 2), TENON_E_IO); /* it would succeed now, but is not tried */
	kv_tier_get_status(f->t, &s);
	assert_int_equal(s.io_errors, 1);
	assert_int_equal(s.records, 1);
	f->t->refuse_until_ns = 0;
	assert_int_equal(put(f, 2), TENON_OK);
	check_all(f);
	finish(f);
}

/* The process's own limit of file size: no signal, an error. */
static void a_file_size_limit_is_a_full_disk(void **st)
{
	struct fixture *f = start(true, 1 << 20);
	struct rlimit old, r;
	uint64_t bytes;

	(void)st;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	for (uint32_t k = 0; k < 20; k++)
		assert_int_equal(put(f, k), TENON_OK);
	bytes = bytes_of(f);
	r = (struct rlimit){ .rlim_cur = bytes + 100, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
	assert_int_equal(put(f, 20), TENON_E_IO);
	assert_int_equal(bytes_of(f), bytes);
	kv_tier_drop(f->t, f->slot_of[5]);
	f->slot_of[5] = KV_TIER_NONE;
	f->t->refuse_until_ns = 0;
	assert_int_equal(put(f, 21), TENON_OK); /* into the free place */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(check_all(f), 20);
	finish(f);
}

/* Printed only: what a record of the default model costs (32 tokens, 737 kB) in each kind. */
static void what_a_record_costs(void **st)
{
	enum { BYTES = 737280, N = 40 };
	uint8_t *page = malloc(BYTES), *back = malloc(BYTES);

	(void)st;
	assert_true(page && back);
	on_disk = true;
	for (int file = 0; file < 2; file++) {
		struct fixture *f = start(file, 1 << 20);
		int32_t tokens[32] = { 0 };
		struct kv_record r = { .n_tokens = 32, .groups = 1, .tokens = tokens };
		uint64_t start_ns, put_ns, get_ns;
		uint32_t slot[N];

		kv_tier_close(f->t);
		f->config.n_groups = 1;
		f->config.page_tokens = 32;
		f->config.page_bytes[0] = BYTES;
		f->config.limit_bytes = (uint64_t)BYTES * 2 * N;
		assert_int_equal(kv_tier_open(&f->config, &f->t, NULL), 0);
		memset(page, 1, BYTES);
		start_ns = clock_now_ns();
		for (int i = 0; i < N; i++)
			assert_int_equal(
				kv_tier_put(f->t, &r, (const void *[KV_MAX_GROUPS]){ page }, &slot[i], NULL),
				0);
		put_ns = clock_now_ns() - start_ns;
		for (int i = 0; i < N; i++)
			kv_tier_make_cold(f->t, slot[i]);
		start_ns = clock_now_ns();
		for (int i = 0; i < N; i++)
			assert_int_equal(
				kv_tier_get(f->t, slot[i], &r, (void *[KV_MAX_GROUPS]){ back }, NULL), 0);
		get_ns = clock_now_ns() - start_ns;
		assert_memory_equal(page, back, BYTES);
		print_message("%s: a record of 737 kB: put %.2f ms, get %.2f ms (%s)\n",
			file ? "file" : "memory", (double)put_ns / N / 1e6, (double)get_ns / N / 1e6,
			file ? "cold" : "no checksum");
		finish(f);
	}
	free(page);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_very_record_comes_back),
		cmocka_unit_test(odd_records_are_refused),
		cmocka_unit_test(limits_hold_to_the_byte),
		cmocka_unit_test(the_last_byte_counts),
		cmocka_unit_test(the_latest_stay_when_a_limit_falls),
		cmocka_unit_test(any_life_keeps_what_it_says),
		cmocka_unit_test(walking_gives_parents_first),
		cmocka_unit_test(out_of_memory_is_answered),
		cmocka_unit_test(a_file_survives_and_is_private),
		cmocka_unit_test(wrong_paths_are_left_alone),
		cmocka_unit_test(damage_is_a_miss),
		cmocka_unit_test(a_half_record_is_not_believed),
		cmocka_unit_test(a_full_disk_is_left_in_peace_for_a_while),
		cmocka_unit_test(a_file_size_limit_is_a_full_disk),
		cmocka_unit_test(what_a_record_costs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
