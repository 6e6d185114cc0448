/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kv_world.h"
#include <string.h>

#define ONE_GROUP(pages_)                                                                                    \
	{                                                                                                    \
		.n_groups = 1, .page_tokens = 4, .n_pages = { pages_ }                                       \
	}

static void a_prefix_is_shared_to_the_last_token(void **st)
{
	struct world w = ONE_GROUP(64);
	struct prefix_status status;
	int32_t a[30], b[30];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 30, 100);
	assert_int_equal(seq_run(&w, t, 0, a, 21), 0);
	assert_int_equal(world_found(&w, t, a, 30), 21); /* five pages and one token of the sixth */
	assert_int_equal(world_found(&w, t, a, 19), 19);
	assert_int_equal(world_found(&w, t, a, 3), 3);
	assert_int_equal(world_found(&w, t, a, 0), 0);
	memcpy(b, a, sizeof b);
	b[14] = -1; /* in the middle of the fourth page */
	assert_int_equal(seq_run(&w, t, 0, b, 21), 14);
	assert_int_equal(w.n_copies, 1);
	assert_int_equal(world_found(&w, t, a, 30), 21);
	assert_int_equal(world_found(&w, t, b, 30), 21);
	b[0] = 7;
	assert_int_equal(world_found(&w, t, b, 30), 0);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.hits, 1);
	assert_int_equal(status.hit_tokens, 14);
	assert_int_equal(status.partial_copies, 1);
	assert_int_equal(status.pages[0], 6 + 3);
	world_close(&w);
}

/* Many children of one node, in any order of arrival: the nearest one is found among its neighbours. */
static void siblings_stay_sorted(void **st)
{
	struct world w = ONE_GROUP(512);
	int32_t text[9] = { 1, 2, 3, 4 };
	uint32_t t;

	(void)st;
	world_open(&w);
	t = prefix_tenant(w.prefix, "");
	for (uint32_t i = 0; i < 97; i++) {
		text[4] = (int32_t)(i * 31 % 97) - 40;
		text[5] = text[4] * 3;
		text[6] = 5;
		text[7] = text[8] = (int32_t)i;
		(void)seq_run(&w, t, 0, text, 9);
	}
	for (int32_t i = -40; i < 57; i++) {
		int32_t want[7] = { 1, 2, 3, 4, i, i * 3, 6 };

		assert_int_equal(world_found(&w, t, want, 7), 6);
		want[5]++;
		assert_int_equal(world_found(&w, t, want, 7), 5);
	}
	text[4] = 1000;
	assert_int_equal(world_found(&w, t, text, 9), 4);
	world_close(&w);
}

/* A partly filled last page gives way to the longer one; a shorter one beside a longer is not kept. */
static void a_longer_page_supersedes_a_shorter(void **st)
{
	struct world w = ONE_GROUP(64);
	struct prefix_status status;
	struct seq s;
	int32_t a[40];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 40, 1);
	(void)seq_run(&w, t, 0, a, 6);
	assert_int_equal(seq_run(&w, t, 0, a, 7), 6);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.nodes, 1 + 2);
	assert_int_equal(kv_pages_free(w.pages, 0), 62);
	assert_int_equal(seq_run(&w, t, 0, a, 30), 7);
	(void)seq_run(&w, t, 0, a, 6);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.nodes, 1 + 8);
	assert_int_equal(status.pages[0], 8);
	seq_begin(&w, &s, t, 0, a, 40); /* one that goes on behind its own offer of a partial page */
	assert_true(seq_compute(&w, &s, 38));
	seq_offer(&w, &s, true);
	assert_true(seq_compute(&w, &s, 39));
	seq_offer(&w, &s, true);
	assert_true(seq_compute(&w, &s, 40));
	seq_offer(&w, &s, true);
	seq_drop(&w, &s);
	assert_int_equal(world_found(&w, t, a, 40), 40);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.nodes, 1 + 10);
	assert_int_equal(kv_pages_free(w.pages, 0), 54);
	world_close(&w);
}

/* Two that computed the same: the second one's pages are exchanged for the first one's, if that cannot be seen. */
static void twins_are_exchanged(bool invariant)
{
	struct world w = ONE_GROUP(64);
	struct seq s[2];
	int32_t a[22];
	uint32_t t;

	w.config.invariant = invariant;
	t = world_begin(&w);
	text_make(a, 22, 1);
	for (int i = 0; i < 2; i++)
		seq_begin(&w, &s[i], t, 0, a, 22);
	for (int i = 0; i < 2; i++) {
		assert_true(seq_compute(&w, &s[i], 22));
		seq_offer(&w, &s[i], false);
	}
	assert_int_equal(kv_pages_free(w.pages, 0), 64 - (invariant ? 5 + 2 : 12));
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(s[0].table.page[0][i] == s[1].table.page[0][i], invariant);
	assert_int_not_equal(s[0].table.page[0][5], s[1].table.page[0][5]);
	for (int i = 0; i < 2; i++)
		seq_drop(&w, &s[i]);
	assert_int_equal(kv_pages_free(w.pages, 0), 59);
	world_close(&w);
}

static void equal_work_is_kept_once(void **st)
{
	(void)st;
	twins_are_exchanged(true);
	twins_are_exchanged(false);
}

/* Without that: the tree takes a twin that is in use for its own idle one, and does not hold what is not. */
static void idle_twins_give_way(void **st)
{
	struct world w = ONE_GROUP(15);
	struct seq s[2];
	int32_t a[24], b[8];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 24, 1);
	text_make(b, 8, 900);
	for (int i = 0; i < 2; i++)
		seq_begin(&w, &s[i], t, 0, a, 24);
	assert_true(seq_compute(&w, &s[0], 20));
	seq_offer(&w, &s[0], true);
	assert_true(seq_compute(&w, &s[1], 24));
	s[1].computed = 16;
	seq_offer(&w, &s[1], false); /* both in use: nothing is held for the second */
	assert_null(s[1].lease);
	s[1].computed = 24;
	seq_offer(&w, &s[1], false); /* the last page is its own: in the tree, but not to be evicted */
	assert_null(s[1].lease);
	assert_int_equal(world_found(&w, t, a, 24), 24);
	assert_int_equal(prefix_evictable(w.prefix, 0), 0);
	(void)seq_run(&w, t, 0, b, 8);
	assert_true(world_evict(&w, 1)); /* not the one that is in use, though it came before */
	assert_int_equal(world_found(&w, t, a, 24), 24);
	assert_int_equal(world_found(&w, t, b, 8), 4);
	assert_false(world_evict(&w, 12));
	assert_int_equal(world_found(&w, t, a, 24), 24);
	seq_drop(&w, &s[0]);
	assert_int_equal(prefix_evictable(w.prefix, 0), 5);
	seq_offer(&w, &s[1], false);
	assert_int_equal(prefix_evictable(w.prefix, 0), 0);
	assert_int_equal(kv_pages_free(w.pages, 0), 15 - 6);
	assert_false(world_evict(&w, 12));
	assert_int_equal(world_found(&w, t, a, 24), 24);
	seq_drop(&w, &s[1]);
	world_close(&w);
}

/* Two partly filled twins that go on apart never write into one page. */
static void partial_twins_stay_two(void **st)
{
	(void)st;
	for (int invariant = 0; invariant < 2; invariant++) {
		struct world w = ONE_GROUP(12);
		int32_t text[2][12];
		struct seq s[2];
		uint32_t t;

		w.config.invariant = invariant;
		t = world_begin(&w);
		for (int i = 0; i < 2; i++) {
			text_make(text[i], 12, 1);
			text[i][6] += i;
			seq_begin(&w, &s[i], t, 0, text[i], 12);
			assert_true(seq_compute(&w, &s[i], 6));
		}
		for (int i = 0; i < 2; i++)
			seq_offer(&w, &s[i], true);
		for (int i = 0; i < 2; i++)
			assert_true(seq_compute(&w, &s[i], 12));
		for (int i = 0; i < 2; i++) {
			seq_check(&w, &s[i]);
			seq_offer(&w, &s[i], true);
		}
		for (int i = 0; i < 2; i++) {
			seq_offer(&w, &s[i], true);
			assert_int_equal(world_found(&w, t, text[i], 12), 12);
			seq_drop(&w, &s[i]);
			assert_int_equal(seq_run(&w, t, 0, text[i], 12), 11);
		}
		world_close(&w);
	}
}

/* A page has one owner, whatever a caller does. */
static void a_page_is_not_taken_twice(void **st)
{
	struct world w = ONE_GROUP(12);
	struct prefix_node *lease = NULL;
	struct prefix_status status;
	int32_t a[12];
	struct seq s;
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 12, 1);
	seq_begin(&w, &s, t, 0, a, 12);
	assert_true(seq_compute(&w, &s, 12));
	seq_offer(&w, &s, true);
	prefix_offer(w.prefix, prefix_tenant(w.prefix, "u"), a, 12, true, 0, 0, &s.table, &lease);
	assert_null(lease);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.pages[0], 3);
	assert_int_equal(status.nodes, 2 + 3);
	seq_drop(&w, &s);
	world_close(&w);
}

static void tenants_are_apart(void **st)
{
	struct world w = ONE_GROUP(64);
	char name[200];
	int32_t a[20];
	uint32_t t[3];

	(void)st;
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = 0;
	text_make(a, 20, 1);
	for (int share = 0; share < 2; share++) {
		w.config.share_tenants = share;
		world_open(&w);
		t[0] = prefix_tenant(w.prefix, "ann");
		t[1] = prefix_tenant(w.prefix, "bob");
		t[2] = prefix_tenant(w.prefix, "aaa");
		assert_int_equal(prefix_tenant(w.prefix, "bob"), t[1]);
		assert_true(t[0] != t[1] && t[1] != t[2] && t[0] != t[2]);
		(void)seq_run(&w, t[0], 0, a, 20);
		assert_int_equal(world_found(&w, t[1], a, 20), share ? 20 : 0);
		assert_int_equal(seq_run(&w, t[2], 0, a, 20), share ? 19 : 0);
		assert_int_equal(prefix_purge(w.prefix, "bob"), 0);
		assert_int_equal(prefix_purge(w.prefix, "ann"), 5);
		assert_int_equal(world_found(&w, t[0], a, 20), 0);
		assert_int_equal(world_found(&w, t[2], a, 20), share ? 0 : 20);
		/* nothing is cached for who has no number: names are not cut to fit */
		assert_int_equal(prefix_tenant(w.prefix, name), PREFIX_NO_TENANT);
		assert_int_equal(seq_run(&w, PREFIX_NO_TENANT, 0, a, 20), 0);
		assert_int_equal(world_found(&w, PREFIX_NO_TENANT, a, 20), 0);
		world_close(&w);
	}
}

/* ---- giving way ---------------------------------------------------------------------------------------------------- */
static void the_least_worth_goes_first(void **st)
{
	struct world w = ONE_GROUP(32);
	int32_t a[4][17];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	for (int32_t i = 0; i < 4; i++) {
		text_make(a[i], 17, i * 1000);
		(void)seq_run(&w, t, i == 2 || i == 3, a[i], 16); /* 0, 1 online; 2, 3 offline */
	}
	assert_int_equal(prefix_evictable(w.prefix, 0), 16);
	(void)seq_run(&w, t, 1, a[0], 17); /* used again, by offline work: stays online */
	(void)seq_run(&w, t, 0, a[2], 17); /* an online hit makes it online */
	assert_int_equal(prefix_evictable(w.prefix, 0), 18);
	assert_true(world_evict(&w, 1)); /* the offline one, from its end */
	assert_int_equal(world_found(&w, t, a[3], 16), 12);
	assert_true(world_evict(&w, 3));
	assert_int_equal(world_found(&w, t, a[3], 16), 0);
	assert_true(world_evict(&w, 1)); /* what offline work put behind an online text */
	assert_int_equal(world_found(&w, t, a[0], 17), 16);
	assert_true(world_evict(&w, 4));
	assert_int_equal(world_found(&w, t, a[1], 16), 0);
	assert_int_equal(world_found(&w, t, a[0], 17), 16);
	assert_true(world_evict(&w, 2));
	assert_int_equal(world_found(&w, t, a[0], 17), 8);
	assert_int_equal(world_found(&w, t, a[2], 17), 17);
	assert_false(world_evict(&w, 100));
	assert_int_equal(kv_pages_free(w.pages, 0), 32);
	assert_int_equal(prefix_evictable(w.prefix, 0), 0);
	world_close(&w);
}

static void what_is_leased_stays(void **st)
{
	struct world w = ONE_GROUP(12);
	struct prefix_node *lease = NULL;
	struct block_table table = { 0 };
	struct prefix_hit hit;
	int32_t a[33];
	struct seq s;
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 33, 1);
	(void)seq_run(&w, t, 0, a, 32);
	seq_begin(&w, &s, t, 1, a, 18); /* four whole pages and a copy of the fifth */
	assert_int_equal(s.shared, 17);
	assert_int_equal(prefix_evictable(w.prefix, 0), 4);
	assert_false(world_evict(&w, 100));
	assert_int_equal(kv_pages_free(w.pages, 0), 12 - 5);
	seq_check(&w, &s);
	assert_int_equal(world_found(&w, t, a, 33), 16);
	assert_true(seq_compute(&w, &s, 18));
	seq_offer(&w, &s, true);
	assert_false(world_evict(&w, 100));
	seq_drop(&w, &s);
	assert_int_equal(prefix_evictable(w.prefix, 0), 5);
	/* a lease without a table of pages holds as well; one table cannot be filled twice */
	prefix_find(w.prefix, t, a, 8, &hit);
	assert_int_equal(prefix_share(w.prefix, &hit, 0, 0, &table, &lease), 8);
	assert_int_equal(prefix_share(w.prefix, &hit, 0, 0, &table, &lease), 0);
	block_table_release(&table, w.pages);
	assert_false(world_evict(&w, 100));
	assert_int_equal(world_found(&w, t, a, 33), 8);
	prefix_release(w.prefix, &lease);
	prefix_release(w.prefix, &lease);
	assert_int_equal(prefix_evictable(w.prefix, 0), 2);
	world_close(&w);
}

/* The copy of a part needs a page: old ones leave for it, but not what was just found. */
static void room_is_made_for_a_copy(void **st)
{
	struct world w = ONE_GROUP(4);
	int32_t a[16], b[16];
	struct seq s;
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 16, 1);
	text_make(b, 16, 900);
	(void)seq_run(&w, t, 0, a, 8);
	(void)seq_run(&w, t, 0, b, 8);
	assert_int_equal(kv_pages_free(w.pages, 0), 0);
	seq_begin(&w, &s, t, 0, a, 7);
	assert_int_equal(s.shared, 6);
	assert_int_equal(world_found(&w, t, b, 8), 4);
	seq_drop(&w, &s);
	w.fail_copy = 1; /* a copy that fails costs the part only */
	seq_begin(&w, &s, t, 0, a, 7);
	assert_int_equal(s.shared, 4);
	assert_int_equal(s.table.n_pages, 1);
	seq_drop(&w, &s);
	seq_begin(&w, &s, t, 0, a, 5); /* nothing but this text in the pool, all of it in use */
	assert_true(seq_compute(&w, &s, 16));
	assert_int_equal(s.table.n_pages, 4);
	seq_drop(&w, &s);
	world_close(&w);
}

static void old_nodes_make_room_for_new(void **st)
{
	struct world w = ONE_GROUP(600);
	struct prefix_status status;
	int32_t a[17];
	uint32_t t;

	(void)st;
	w.config.max_node_bytes = 20000;
	t = world_begin(&w);
	for (int32_t i = 0; i < 200; i++) {
		text_make(a, 17, i * 100);
		(void)seq_run(&w, t, 0, a, 16);
		prefix_get_status(w.prefix, &status);
		assert_true(status.node_bytes <= 20000);
		assert_int_equal(world_found(&w, t, a, 16), 16);
	}
	assert_true(status.nodes > 50);
	text_make(a, 17, 0);
	assert_int_equal(world_found(&w, t, a, 16), 0);
	world_close(&w);
}

/* ---- pins ------------------------------------------------------------------------------------------------------------ */
static void pins_hold_and_are_limited(void **st)
{
	struct world w = ONE_GROUP(32);
	struct prefix_status status;
	struct prefix_pin pins[4];
	struct error e;
	int32_t a[60], b[60];
	uint64_t id[3];
	uint32_t t, u;

	(void)st;
	w.config.max_pinned_pages = 5;
	t = world_begin(&w);
	u = prefix_tenant(w.prefix, "u");
	text_make(a, 60, 1);
	memcpy(b, a, sizeof b);
	b[12] = -1;
	assert_int_equal(prefix_pin(w.prefix, t, a, 18, id, &e), TENON_E_NOT_FOUND);
	(void)seq_run(&w, t, 1, a, 30);
	(void)seq_run(&w, t, 1, b, 30);
	assert_int_equal(prefix_pin(w.prefix, u, a, 18, id, &e), TENON_E_NOT_FOUND);
	assert_int_equal(prefix_pin(w.prefix, t, a, 18, &id[0], &e), 0); /* four whole pages */
	assert_int_equal(prefix_pin(w.prefix, t, a, 24, &id[1], &e), TENON_E_FULL);
	assert_non_null(strstr(e.text, "5"));
	assert_int_equal(prefix_pin(w.prefix, t, b, 17, &id[1], &e), 0); /* three of four are paid already */
	assert_int_equal(prefix_pin(w.prefix, t, b, 16, &id[2], &e), 0); /* the same one */
	assert_int_equal(id[1], id[2]);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.pinned_pages, 5);
	assert_int_equal(prefix_pins(w.prefix, pins, 4), 2);
	assert_int_equal(pins[0].n_tokens, 16);
	assert_int_equal(pins[0].n_pages, 4);
	assert_string_equal(pins[1].tenant, "t");
	assert_false(world_evict(&w, 100));
	(void)prefix_purge(w.prefix, NULL);
	assert_int_equal(world_found(&w, t, a, 30), 16);
	assert_int_equal(world_found(&w, t, b, 30), 16);
	assert_int_equal(prefix_unpin(w.prefix, id[1], &e), 0);
	assert_int_equal(prefix_unpin(w.prefix, id[0], &e), 0);
	assert_false(world_evict(&w, 100));
	assert_int_equal(world_found(&w, t, a, 30), 12);
	assert_int_equal(world_found(&w, t, b, 30), 16);
	assert_int_equal(prefix_unpin(w.prefix, id[1], &e), 0);
	assert_int_equal(prefix_unpin(w.prefix, id[1], &e), TENON_E_NOT_FOUND);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.pinned_pages, 0);
	assert_int_equal(prefix_evictable(w.prefix, 0), 4);
	assert_int_equal(prefix_purge(w.prefix, "t"), 4);
	world_close(&w);
}

/* ---- windows --------------------------------------------------------------------------------------------------------- */
static void windows_count_what_the_next_token_sees(void **st)
{
	struct world w = { .n_groups = 2, .page_tokens = 4, .n_pages = { 64, 64 }, .window = { 0, 10 } };
	struct seq s;
	int32_t a[60], b[60];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	text_make(a, 60, 1);
	seq_begin(&w, &s, t, 0, a, 41);
	assert_true(seq_compute(
		&w, &s, 40)); /* in one step: pages before 40 - 10 + 1 are holes when it is offered */
	seq_offer(&w, &s, true);
	seq_drop(&w, &s);
	assert_int_equal(kv_pages_free(w.pages, 0), 54);
	assert_int_equal(kv_pages_free(w.pages, 1), 61); /* 28..39 */
	assert_int_equal(world_found(&w, t, a, 41), 40);
	assert_int_equal(world_found(&w, t, a, 36), 0); /* 27 is not there */
	assert_int_equal(world_found(&w, t, a, 37), 37);
	memcpy(b, a, sizeof b);
	b[39] = -1;
	assert_int_equal(world_found(&w, t, b, 60), 39);
	seq_begin(&w, &s, t, 0, a, 60);
	assert_int_equal(s.shared, 40);
	assert_int_equal(s.table.page[1][6], KV_NO_PAGE);
	assert_int_not_equal(s.table.page[1][7], KV_NO_PAGE);
	assert_true(seq_compute(&w, &s, 58));
	seq_offer(&w, &s, true);
	seq_drop(&w, &s);
	assert_int_equal(world_found(&w, t, a, 60), 58); /* 49.. is there, but 47 for a token at 56 is not */
	assert_int_equal(world_found(&w, t, a, 56), 40);
	w.fail_copy = 2;
	seq_begin(&w, &s, t, 0, a, 60);
	assert_int_equal(s.shared, 40);
	seq_drop(&w, &s);
	seq_begin(&w, &s, t, 0, a, 60);
	assert_int_equal(s.shared, 58);
	seq_drop(&w, &s);
	/* another run of the same text fills the holes */
	seq_begin(&w, &s, t, 0, b, 30);
	for (uint32_t n = s.computed + 1; n <= 30; n++) {
		assert_true(seq_compute(&w, &s, n));
		seq_offer(&w, &s, false);
	}
	seq_drop(&w, &s);
	assert_int_equal(world_found(&w, t, b, 30), 30);
	assert_int_equal(world_found(&w, t, a, 33), 33);
	for (uint32_t n = 1; n <= 40; n++) {
		seq_begin(&w, &s, t, 0, a, n);
		seq_check(&w, &s);
		seq_drop(&w, &s);
	}
	world_close(&w);
}

/* Pages that a long text's window left behind are given to others while it runs; its own window is not. */
static void windows_give_back_while_in_use(void **st)
{
	struct world w = { .n_groups = 2, .page_tokens = 4, .n_pages = { 64, 8 }, .window = { 0, 10 } };
	struct prefix_status status;
	int32_t a[200], b[12];
	struct seq s;
	uint32_t t;
	uint64_t id;

	(void)st;
	w.config.max_pinned_pages = 16; /* of 64; of the window's 8 in proportion: 2 */
	t = world_begin(&w);
	text_make(a, 200, 1);
	text_make(b, 12, 900);
	(void)seq_run(&w, t, 0, b, 12);
	assert_int_equal(prefix_pin(w.prefix, t, b, 12, &id, NULL), TENON_E_FULL); /* three of eight pages */
	assert_int_equal(prefix_pin(w.prefix, t, b, 8, &id, NULL), 0);
	seq_begin(&w, &s, t, 0, a, 200);
	for (uint32_t n = 1; n <= 200; n++) {
		assert_true(seq_compute(&w, &s, n));
		if (n % 4 == 0)
			seq_offer(&w, &s, false);
	}
	seq_check(&w, &s);
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.pages[0], 50 + 2 + 1);
	assert_true(status.evicted_pages >= 50 - 8);
	assert_int_equal(world_found(&w, t, a, 200), 200);
	assert_int_equal(world_found(&w, t, b, 8), 8);
	assert_true(prefix_evictable(w.prefix, 1) <= 8 - 3 - 2);
	seq_drop(&w, &s);
	assert_int_equal(seq_run(&w, t, 0, b, 12), 8);
	world_close(&w); /* pinned or not, every page comes back */
}

static void a_model_of_windows_only(void **st)
{
	struct world w = { .n_groups = 1, .page_tokens = 4, .n_pages = { 12 }, .window = { 16 } };
	struct prefix_status status;
	int32_t a[400];
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	for (int32_t i = 0; i < 20; i++) {
		text_make(a, 400, i * 1000);
		(void)seq_run(&w, t, 0, a, 400);
		assert_int_equal(world_found(&w, t, a, 400), 400);
		assert_int_equal(seq_run(&w, t, 0, a, 400), 399);
	}
	prefix_get_status(w.prefix, &status);
	assert_true(status.pages[0] <= 12);
	assert_true(status.nodes < 400); /* what lost its pages is not kept either */
	world_close(&w);
}

/* ---- failures ------------------------------------------------------------------------------------------------------ */
/* A scene with every kind of change; whatever allocation fails, only less is cached. */
static void scene(struct world *w)
{
	int32_t a[40], b[40];
	uint64_t id;
	uint32_t t = prefix_tenant(w->prefix, "t"), u = prefix_tenant(w->prefix, "u");

	text_make(a, 40, 1);
	memcpy(b, a, sizeof b);
	b[10] = -1;
	(void)seq_run(w, t, 0, a, 22);
	(void)seq_run(w, t, 1, b, 22);
	(void)seq_run(w, u, 0, a, 40);
	b[9] = -2;
	(void)seq_run(w, t, 0, b, 30);
	b[9] = -3;
	(void)seq_run(w, t, 0, b, 30);
	if (!prefix_pin(w->prefix, t, a, 16, &id, NULL))
		assert_int_equal(prefix_unpin(w->prefix, id, NULL), 0);
	(void)world_evict(w, 3);
	(void)prefix_purge(w->prefix, "u");
}

static void every_allocation_may_fail(void **st)
{
	struct world w = {
		.n_groups = 2, .page_tokens = 4, .n_pages = { 64, 64 }, .window = { 0, 10 }, .starving = true
	};
	struct prefix *p = NULL;
	uint64_t calls;

	(void)st;
	w.config.invariant = true;
	world_open(&w);
	calls = mem_n_allocs();
	scene(&w);
	calls = mem_n_allocs() - calls;
	world_close(&w);
	assert_true(calls > 40 && calls < 2000);
	for (uint64_t i = 1; i <= calls; i++) {
		world_open(&w);
		mem_fail_at(i);
		scene(&w);
		mem_fail_at(0);
		world_close(&w);
		assert_int_equal(mem_area_bytes(MEM_KV), 0);
	}
	world_open(&w);
	for (uint64_t i = 1; i <= 2; i++) {
		mem_fail_at(i);
		assert_int_equal(prefix_create(&w.config, &p, NULL), TENON_E_NOMEM);
		mem_fail_at(0);
	}
	world_close(&w);
	assert_int_equal(mem_area_bytes(MEM_KV), 0);
}

/* ---- a naive model ------------------------------------------------------------------------------------------------- */
enum { TEXTS = 400, LONGEST = 40, LIVE = 6, TENANTS = 3 };

struct model { /* every text ever offered, as long as it was offered */
	int32_t text[TEXTS][LONGEST];
	uint32_t n[TEXTS], tenant[TEXTS], count;
};

static void model_add(struct model *m, const struct seq *s, uint32_t n)
{
	uint32_t at = m->count++ % TEXTS;

	memcpy(m->text[at], s->tokens, n * sizeof *s->tokens);
	m->n[at] = n;
	m->tenant[at] = s->tenant;
}

static uint32_t model_longest(const struct model *m, uint32_t tenant, const int32_t *tokens, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < MIN_OF(m->count, TEXTS); i++) {
		uint32_t k = 0;

		while (m->tenant[i] == tenant && k < MIN_OF(n, m->n[i]) && m->text[i][k] == tokens[k])
			k++;
		best = MAX_OF(best, k);
	}
	return best;
}

static void random_text(int32_t *tokens, uint64_t *seed)
{
	for (uint32_t i = 0; i < LONGEST; i++)
		tokens[i] = i % 5 ? 7 : (int32_t)next_random(seed, 3); /* few choices: much in common */
}

struct life {
	struct world w;
	struct seq s[LIVE];
	int32_t text[LIVE][LONGEST];
	uint32_t tenant[TENANTS];
	struct model *model;
	uint64_t seed, pins[8];
	bool exact; /* nothing is ever evicted: what the model has is found */
};

static void life_begin(struct life *l, uint32_t i)
{
	uint32_t tenant = l->tenant[next_random(&l->seed, TENANTS)], want, n;

	random_text(l->text[i], &l->seed);
	n = 2 + next_random(&l->seed, LONGEST - 2);
	want = model_longest(l->model, tenant, l->text[i], n - 1);
	seq_begin(&l->w, &l->s[i], tenant, next_random(&l->seed, 2), l->text[i], n);
	assert_true(!l->exact || l->s[i].shared == want);
}

static void life_step(struct life *l)
{
	uint32_t i = next_random(&l->seed, LIVE), what = next_random(&l->seed, 100);
	struct seq *s = &l->s[i];

	if (!s->tokens) {
		life_begin(l, i);
	} else if (what < 60 && s->computed < s->n) {
		uint32_t n = s->computed + 1 + next_random(&l->seed, s->n - s->computed);
		bool last = next_random(&l->seed, 3) == 0;

		if (!seq_compute(&l->w, s, n))
			return;
		seq_offer(&l->w, s, last);
		if (l->exact)
			model_add(l->model, s, last ? n : n / l->w.page_tokens * l->w.page_tokens);
	} else {
		if (what % 2) {
			seq_offer(&l->w, s, true);
			if (l->exact)
				model_add(l->model, s, s->computed);
		}
		seq_drop(&l->w, s);
		s->tokens = NULL;
	}
}

static void life_disturb(struct life *l)
{
	uint32_t what = next_random(&l->seed, 100), i = next_random(&l->seed, COUNT_OF(l->pins));
	int32_t text[LONGEST];

	if (what < 4) {
		(void)world_evict(&l->w, next_random(&l->seed, 5));
	} else if (what < 6) {
		random_text(text, &l->seed);
		if (l->pins[i])
			assert_int_equal(prefix_unpin(l->w.prefix, l->pins[i], NULL), 0);
		if (prefix_pin(l->w.prefix, l->tenant[what % TENANTS], text, LONGEST, &l->pins[i], NULL))
			l->pins[i] = 0;
	} else if (what < 7) {
		(void)prefix_purge(l->w.prefix, what % 2 ? "1" : NULL);
	}
}

static void live(struct life *l, uint32_t n_operations)
{
	static const char *const names[TENANTS] = { "0", "1", "2" };

	world_open(&l->w);
	for (uint32_t i = 0; i < TENANTS; i++)
		l->tenant[i] = prefix_tenant(l->w.prefix, names[i]);
	for (uint32_t i = 0; i < n_operations; i++) {
		life_step(l);
		if (!l->exact)
			life_disturb(l);
	}
	for (uint32_t i = 0; i < LIVE; i++)
		if (l->s[i].tokens)
			seq_drop(&l->w, &l->s[i]);
	for (size_t i = 0; i < COUNT_OF(l->pins); i++)
		if (l->pins[i])
			assert_int_equal(prefix_unpin(l->w.prefix, l->pins[i], NULL), 0);
	(void)prefix_purge(l->w.prefix, NULL);
	for (uint32_t g = 0; g < l->w.n_groups; g++)
		assert_int_equal(kv_pages_free(l->w.pages, g), l->w.n_pages[g]);
	world_close(&l->w);
	assert_int_equal(mem_area_bytes(MEM_KV), 0);
}

/* Nothing lost: exactly the longest common beginning with anything offered is found. */
static void nothing_is_found_that_was_not_offered(void **st)
{
	struct model *m = calloc(1, sizeof *m);

	(void)st;
	for (uint32_t seed = 1; seed <= 40; seed++) {
		struct life l = { .w = ONE_GROUP(4096), .model = m, .seed = seed, .exact = true };

		m->count = 0;
		l.w.config.invariant = seed % 2;
		live(&l, 390);
	}
	free(m);
}

/* Little room, windows, pins, purges, leases: contents are right at all times and every page comes back. */
static void no_page_is_wrong_or_lost(void **st)
{
	struct model *m = calloc(1, sizeof *m);

	(void)st;
	for (uint32_t seed = 1; seed <= 12; seed++) {
		struct life l = { .w = { .n_groups = 1 + seed % 3,
					  .page_tokens = 4,
					  .n_pages = { 40, 30, 25 },
					  .window = { 0, 10, 5 } },
			.model = m,
			.seed = seed };

		l.w.config.invariant = seed % 2;
		l.w.config.share_tenants = seed % 4 == 3;
		l.w.config.max_node_bytes = seed % 5 ? 0 : 8000;
		if (seed % 6 == 5)
			l.w.window[0] = 7;
		live(&l, 8000);
	}
	free(m);
}

/* ---- speed --------------------------------------------------------------------------------------------------------- */
static double us_since(uint64_t start_ns, uint32_t n)
{
	return (double)(clock_now_ns() - start_ns) / n / 1000;
}

static int compare_double(const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

enum { BIG_TEXT = 8000, BIG_STEP = 32, BIG_CHAINS = 200, BIG_PAGES = 110000, ROUNDS = 200 };

/* 200 texts of 500 pages that grow side by side, so that a text's nodes lie far apart. Microseconds an offer of two pages. */
static double big_tree_grow(struct world *w, uint32_t t, int32_t *text)
{
	struct seq *s = calloc(BIG_CHAINS, sizeof *s);
	uint64_t start_ns = clock_now_ns();
	uint32_t n_offers = 0;

	for (uint32_t n = BIG_STEP; n <= BIG_TEXT; n += BIG_STEP)
		for (uint32_t i = 0; i < BIG_CHAINS; i++, n_offers++) {
			text_make(text + (size_t)i * BIG_TEXT + n - BIG_STEP, BIG_STEP, (int32_t)(i * 3 + n));
			assert_int_equal(block_table_cover(&s[i].table, w->pages, n), 0);
			prefix_offer(w->prefix, t, text + (size_t)i * BIG_TEXT, n, true, 0, 0, &s[i].table,
				&s[i].lease);
		}
	for (uint32_t i = 0; i < BIG_CHAINS; i++)
		seq_drop(w, &s[i]);
	free(s);
	return us_since(start_ns, n_offers);
}

/* Printed, and only absurd times fail: machines differ. */
static void a_big_tree_is_quick(void **st)
{
	struct world w = { .n_groups = 1, .page_tokens = 16, .n_pages = { BIG_PAGES } };
	int32_t *text = calloc(BIG_CHAINS, BIG_TEXT * sizeof *text);
	double look[ROUNDS], look_us, share_us = 0, release_us = 0, offer_us = 0, evict_us;
	struct prefix_status status;
	struct prefix_hit hit;
	uint64_t start_ns, seed = 1;
	struct seq s;
	uint32_t t;

	(void)st;
	t = world_begin(&w);
	offer_us = big_tree_grow(&w, t, text);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		start_ns = clock_now_ns();
		prefix_find(w.prefix, t, text + (size_t)next_random(&seed, BIG_CHAINS) * BIG_TEXT, BIG_TEXT,
			&hit);
		look[i] = us_since(start_ns, 1);
		assert_int_equal(hit.n_whole, BIG_TEXT);
	}
	qsort(look, ROUNDS, sizeof *look, compare_double);
	look_us = look[ROUNDS / 2];
	for (uint32_t i = 0; i < ROUNDS; i++) {
		s = (struct seq){ 0 };
		prefix_find(w.prefix, t, text + (size_t)next_random(&seed, BIG_CHAINS) * BIG_TEXT, BIG_TEXT,
			&hit);
		start_ns = clock_now_ns();
		assert_int_equal(prefix_share(w.prefix, &hit, 0, 0, &s.table, &s.lease), BIG_TEXT);
		share_us += us_since(start_ns, ROUNDS);
		start_ns = clock_now_ns();
		seq_drop(&w, &s);
		release_us += us_since(start_ns, ROUNDS);
	}
	prefix_get_status(w.prefix, &status);
	assert_int_equal(status.pages[0], BIG_CHAINS * BIG_TEXT / 16);
	start_ns = clock_now_ns();
	assert_true(world_evict(&w, 50000));
	evict_us = us_since(start_ns, 50000);
	print_message(
		"%u pages, %.1f MB of nodes: look-up of 8,000 tokens %.1f us (median), share %.1f us, release %.1f us, "
		"offer of two pages more %.1f us, evict %.2f us a page\n",
		(unsigned)status.pages[0], (double)status.node_bytes / 1e6, look_us, share_us, release_us,
		offer_us, evict_us);
	assert_true(look_us < 5000);
	free(text);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prefix_is_shared_to_the_last_token),
		cmocka_unit_test(siblings_stay_sorted),
		cmocka_unit_test(a_longer_page_supersedes_a_shorter),
		cmocka_unit_test(equal_work_is_kept_once),
		cmocka_unit_test(idle_twins_give_way),
		cmocka_unit_test(partial_twins_stay_two),
		cmocka_unit_test(a_page_is_not_taken_twice),
		cmocka_unit_test(tenants_are_apart),
		cmocka_unit_test(the_least_worth_goes_first),
		cmocka_unit_test(what_is_leased_stays),
		cmocka_unit_test(room_is_made_for_a_copy),
		cmocka_unit_test(old_nodes_make_room_for_new),
		cmocka_unit_test(pins_hold_and_are_limited),
		cmocka_unit_test(windows_count_what_the_next_token_sees),
		cmocka_unit_test(windows_give_back_while_in_use),
		cmocka_unit_test(a_model_of_windows_only),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(nothing_is_found_that_was_not_offered),
		cmocka_unit_test(no_page_is_wrong_or_lost),
		cmocka_unit_test(a_big_tree_is_quick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
