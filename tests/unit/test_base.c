/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include <string.h>
#include <unistd.h>

static void utf8_table(void **st)
{
	static const struct {
		const char *s;
		size_t len;
		bool ok;
	} t[] = { { "", 0, true }, { "a\0b", 3, true }, { "\xc2\x80", 2, true }, { "\xc1\xbf", 2, false }, { "\xe0\x9f\xbf", 3, false },
		{ "\xe0\xa0\x80", 3, true }, { "\xed\xa0\x80", 3, false }, { "\xf0\x8f\xbf\xbf", 4, false }, { "\xf4\x8f\xbf\xbf", 4, true },
		{ "\xf4\x90\x80\x80", 4, false }, { "\xf5\x80\x80\x80", 4, false }, { "\xe2\x82", 2, false }, { "\x80", 1, false } };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++)
		assert_int_equal(utf8_valid(t[i].s, t[i].len, NULL), t[i].ok);
}

static void utf8_every_code_point_round_trips(void **st)
{
	char s[4];
	uint32_t back;

	(void)st;
	for (uint32_t cp = 0; cp < 0x110100; cp++) {
		size_t n = utf8_encode(cp, s);
		bool scalar = cp <= 0x10ffff && !(cp >= 0xd800 && cp <= 0xdfff);

		assert_int_equal(n != 0, scalar);
		if (!n)
			continue;
		assert_int_equal(utf8_decode(s, n, &back), n);
		assert_int_equal(back, cp);
		for (size_t cut = 1; cut < n; cut++)
			assert_int_equal(utf8_incomplete_tail(s, cut), cut);
		assert_int_equal(utf8_incomplete_tail(s, n), 0);
	}
}

static void buf_grows_and_obeys_its_limit(void **st)
{
	struct buf b;
	size_t len;
	char *p;

	(void)st;
	buf_init(&b, MEM_BASE, 10);
	assert_true(buf_puts(&b, "12345"));
	assert_true(buf_printf(&b, "%d", 67890));
	assert_string_equal(b.data, "1234567890");
	assert_false(buf_putc(&b, 'x'));
	assert_null(buf_take(&b, NULL));
	buf_init(&b, MEM_BASE, 0);
	for (int i = 0; i < 1000; i++)
		assert_true(buf_putc(&b, 'a'));
	p = buf_take(&b, &len);
	assert_int_equal(len, 1000);
	assert_int_equal(strlen(p), 1000);
	mem_free(p);
}

static void mem_counts_by_area_and_fails_on_request(void **st)
{
	uint64_t before = mem_area_bytes(MEM_TOOL);
	void *p = mem_alloc(MEM_TOOL, 100000);

	(void)st;
	assert_non_null(p);
	assert_true(mem_area_bytes(MEM_TOOL) >= before + 100000);
	p = mem_resize(MEM_TOOL, p, 200000);
	assert_true(mem_area_bytes(MEM_TOOL) >= before + 200000);
	mem_fail_at(1);
	assert_null(mem_resize(MEM_TOOL, p, 300000));
	mem_fail_at(0);
	mem_free(p);
	assert_int_equal(mem_area_bytes(MEM_TOOL), before);
	assert_null(mem_zalloc(MEM_TOOL, SIZE_MAX / 2, 3));
}

static void error_texts(void **st)
{
	struct error e;

	(void)st;
	assert_int_equal(error_set(&e, TENON_E_FORMAT, "tensor %s", "x"), TENON_E_FORMAT);
	error_prefix(&e, "file");
	assert_string_equal(e.text, "file: tensor x");
	assert_string_equal(error_name(TENON_E_TOO_LONG), "too_long");
	assert_string_equal(error_name(-999), "unknown");
	assert_int_equal(error_set(NULL, -3, "no record"), -3);
}

static void log_lines_stay_lines(void **st)
{
	int fd[2];
	char line[2048];
	struct log *l;
	ssize_t n;

	(void)st;
	assert_int_equal(pipe(fd), 0);
	l = log_create(fd[1], LOG_JSON, LOG_INFO);
	log_write(l, LOG_DEBUG, "t", "hidden");
	log_write(l, LOG_WARN, "t", "a \"b\"\nc");
	n = read(fd[0], line, sizeof line - 1);
	assert_true(n > 0);
	line[n] = 0;
	assert_non_null(strstr(line, "\"text\":\"a \\\"b\\\"\\u000ac\"}\n"));
	assert_ptr_equal(strchr(line, '\n'), line + n - 1);
	log_destroy(l);
	(void)close(fd[0]);
	(void)close(fd[1]);
}

static void checked_arithmetic(void **st)
{
	uint64_t v;

	(void)st;
	assert_true(checked_range(3, 4, 7));
	assert_false(checked_range(4, 4, 7));
	assert_false(checked_range(UINT64_MAX, 1, 7));
	assert_false(checked_align_up(UINT64_MAX - 3, 64, &v));
	assert_true(checked_align_up(65, 64, &v));
	assert_int_equal(v, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8_table),
		cmocka_unit_test(utf8_every_code_point_round_trips),
		cmocka_unit_test(buf_grows_and_obeys_its_limit),
		cmocka_unit_test(mem_counts_by_area_and_fails_on_request),
		cmocka_unit_test(error_texts),
		cmocka_unit_test(log_lines_stay_lines),
		cmocka_unit_test(checked_arithmetic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
