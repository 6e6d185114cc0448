/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"
#include "cache/kv/pages.h"
#include <string.h>

static struct kv_pages *make(uint32_t a, uint32_t b)
{
	struct kv_pages *p = NULL;

	assert_int_equal(kv_pages_create(2, (uint32_t[]){ a, b }, 16, &p, NULL), 0);
	return p;
}

static void tables_take_all_or_nothing(void **st)
{
	struct kv_pages *p = make(4, 3);
	struct block_table a = { 0 }, b = { 0 };

	(void)st;
	assert_int_equal(block_table_missing(&a, p, 33), 3);
	assert_int_equal(block_table_cover(&a, p, 33), 0);
	assert_int_equal(a.n_pages, 3);
	assert_int_equal(block_table_cover(&a, p, 48), 0);
	assert_int_equal(a.n_pages, 3);
	assert_int_equal(
		block_table_cover(&b, p, 1), TENON_E_NOMEM); /* group 1 is empty, group 0 must not lose one */
	assert_int_equal(kv_pages_free(p, 0), 1);
	block_table_release(&a, p);
	assert_int_equal(kv_pages_free(p, 0), 4);
	assert_int_equal(kv_pages_free(p, 1), 3);
	assert_int_equal(block_table_cover(&b, p, 48), 0);
	block_table_release(&b, p);
	block_table_release(&b, p);
	kv_pages_destroy(p);
}

static void shared_pages_are_freed_by_the_last(void **st)
{
	struct kv_pages *p = make(2, 2);
	uint32_t page = kv_page_take(p, 0), other;

	(void)st;
	kv_page_ref(p, 0, page);
	assert_int_equal(kv_page_refs(p, 0, page), 2);
	kv_page_unref(p, 0, page);
	assert_int_equal(kv_pages_free(p, 0), 1);
	other = kv_page_take(p, 0);
	assert_int_not_equal(other, page);
	assert_int_equal(kv_page_take(p, 0), KV_NO_PAGE);
	kv_page_unref(p, 0, page);
	kv_page_unref(p, 0, page); /* once too often: ignored */
	assert_int_equal(kv_pages_free(p, 0), 1);
	kv_page_unref(p, 0, other);
	kv_pages_destroy(p);
}

static void idle_pages_are_the_trees_alone(void **st)
{
	struct kv_pages *p = make(3, 1);
	uint32_t a = kv_page_take(p, 0), b = kv_page_take(p, 0);

	(void)st;
	kv_page_set_cached(p, 0, a, true);
	assert_true(kv_page_cached(p, 0, a));
	assert_false(kv_page_cached(p, 0, b));
	assert_int_equal(kv_pages_idle(p, 0), 1);
	kv_page_ref(p, 0, a);
	assert_int_equal(kv_page_refs(p, 0, a), 2);
	assert_int_equal(kv_pages_idle(p, 0), 0);
	kv_page_unref(p, 0, a);
	assert_int_equal(kv_pages_idle(p, 0), 1);
	kv_page_set_cached(p, 0, a, false);
	assert_int_equal(kv_pages_idle(p, 0), 0);
	kv_page_set_cached(p, 0, a, true);
	kv_page_unref(p, 0, a);
	assert_int_equal(kv_pages_idle(p, 0), 0);
	assert_int_equal(kv_page_take(p, 0), a); /* free again, and without the mark */
	assert_false(kv_page_cached(p, 0, a));
	kv_page_unref(p, 0, a);
	kv_page_unref(p, 0, b);
	assert_int_equal(kv_pages_free(p, 0), 3);
	kv_pages_destroy(p);
}

/* Random life of many tables: no page is ever in two tables, all come back. */
static void no_page_is_lost_or_doubled(void **st)
{
	enum { N = 64, TABLES = 9 };
	struct kv_pages *p = make(N, N);
	struct block_table t[TABLES] = { 0 };
	uint32_t seed = 1;

	(void)st;
	for (int round = 0; round < 20000; round++) {
		uint32_t k = (seed = seed * 1664525u + 1013904223u) >> 8;
		char used[N] = { 0 };

		if (k % 7 == 0)
			block_table_release(&t[k % TABLES], p);
		else
			(void)block_table_cover(&t[k % TABLES], p, k / TABLES % 300);
		for (int i = 0; i < TABLES; i++)
			for (uint32_t j = 0; j < t[i].n_pages; j++)
				assert_false(used[t[i].page[0][j]]++);
		assert_int_equal(memchr(used, 0, N) ? 1 : 0, kv_pages_free(p, 0) > 0);
	}
	for (int i = 0; i < TABLES; i++)
		block_table_release(&t[i], p);
	assert_int_equal(kv_pages_free(p, 0), N);
	kv_pages_destroy(p);
}

/* A window of 20 slides over 100 positions: its group holds the pages within reach, the other group keeps all. */
static void a_window_gives_back_what_it_left(void **st)
{
	struct kv_pages *p = make(8, 4);
	struct block_table t = { 0 };

	(void)st;
	assert_int_equal(block_table_trim(&t, p, 1, 1000), 0);
	for (uint32_t n = 1; n <= 100; n++) {
		uint32_t first = n > 20 ? n - 20 : 0;

		assert_int_equal(block_table_cover(&t, p, n), 0);
		(void)block_table_trim(&t, p, 1, first);
		for (uint32_t j = 0; j < t.n_pages; j++)
			assert_int_equal(t.page[1][j] == KV_NO_PAGE, (j + 1) * 16 <= first);
		assert_int_equal(kv_pages_free(p, 1), 4 - t.n_pages + first / 16);
		assert_int_equal(kv_pages_free(p, 0), 8 - t.n_pages);
	}
	assert_int_equal(
		block_table_trim(&t, p, 1, 96), 1); /* the page that ends there goes, the last one stays */
	assert_int_equal(block_table_trim(&t, p, 1, 96), 0);
	assert_int_not_equal(t.page[1][6], KV_NO_PAGE);
	assert_int_equal(block_table_trim(&t, p, 1, UINT64_MAX), 1);
	block_table_release(&t, p);
	assert_int_equal(kv_pages_free(p, 0), 8);
	assert_int_equal(kv_pages_free(p, 1), 4);
	kv_pages_destroy(p);
}

static void out_of_memory_is_answered(void **st)
{
	struct kv_pages *p = NULL;

	(void)st;
	for (uint64_t i = 1; i <= 5; i++) {
		mem_fail_at(i);
		assert_int_equal(kv_pages_create(2, (uint32_t[]){ 4, 4 }, 16, &p, NULL), TENON_E_NOMEM);
	}
	mem_fail_at(0);
	assert_int_equal(mem_area_bytes(MEM_KV), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_take_all_or_nothing),
		cmocka_unit_test(shared_pages_are_freed_by_the_last),
		cmocka_unit_test(idle_pages_are_the_trees_alone),
		cmocka_unit_test(no_page_is_lost_or_doubled),
		cmocka_unit_test(a_window_gives_back_what_it_left),
		cmocka_unit_test(out_of_memory_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
