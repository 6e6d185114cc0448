/* SPDX-License-Identifier: Apache-2.0
 * Streaming against every way of cutting a text into tokens. The tokenizer is replaced by the bytes themselves:
 * token t is one byte, 256 ends the generation, 257 is a control token.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/emit.h"
#include <string.h>

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
	(void)t;
	return id == 256;
}

int tokenizer_piece(const struct tokenizer *t, int32_t id, bool first, bool special, struct buf *out, struct error *e)
{
	(void)t;
	(void)first;
	(void)e;
	if (id >= 256)
		return !special || buf_puts(out, "<ctl>") ? 0 : TENON_E_NOMEM;
	return buf_putc(out, (char)id) ? 0 : TENON_E_NOMEM;
}

/* Streams `in` byte by byte; checks that every release is whole characters; returns all text in `all`. */
static enum emit_end stream(const char *in, const char *const *stops, size_t n_stops, struct buf *all)
{
	struct emit_stop st[4];
	struct emit_options o = { .stops = st, .n_stops = n_stops };
	struct emitter *m;
	struct error e;
	enum emit_end end = EMIT_GO_ON;

	for (size_t i = 0; i < n_stops; i++)
		st[i] = (struct emit_stop){ stops[i], strlen(stops[i]) };
	assert_int_equal(emitter_create(NULL, &o, &m, &e), 0);
	buf_clear(all);
	for (const char *p = in; *p && end == EMIT_GO_ON; p++) {
		size_t before = all->len;

		assert_int_equal(emitter_push(m, (uint8_t)*p, all, &end, &e), 0);
		assert_true(utf8_valid(all->data + before, all->len - before, NULL));
	}
	if (end == EMIT_GO_ON)
		assert_int_equal(emitter_finish(m, all, &e), 0);
	emitter_destroy(m);
	return end;
}

static void cases(void **st)
{
	static const struct {
		const char *in, *stops[3], *out;
		enum emit_end end;
	} t[] = {
		{ "plain", { NULL }, "plain", EMIT_GO_ON },
		{ "h\xc3\xa9 \xf0\x9f\x98\x80!", { NULL }, "h\xc3\xa9 \xf0\x9f\x98\x80!", EMIT_GO_ON },
		{ "cut \xf0\x9f\x98", { NULL }, "cut \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", EMIT_GO_ON },
		{ "bad \xff.", { NULL }, "bad \xef\xbf\xbd.", EMIT_GO_ON },
		{ "one STOP two", { "STOP" }, "one ", EMIT_END_STRING },
		{ "one STO", { "STOP" }, "one STO", EMIT_GO_ON },
		{ "aaab", { "aab" }, "a", EMIT_END_STRING },
		{ "abcabd", { "abd" }, "abc", EMIT_END_STRING },
		{ "xyz", { "yz", "xyz" }, "", EMIT_END_STRING },
		{ "say \xf0\x9f\x98\x80 ok", { "\xf0\x9f\x98\x80" }, "say ", EMIT_END_STRING },
	};
	struct buf all;

	(void)st;
	buf_init(&all, MEM_TOOL, 0);
	(void)buf_reserve(&all, 1);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		size_t n = 0;

		while (n < 3 && t[i].stops[n])
			n++;
		assert_int_equal(stream(t[i].in, t[i].stops, n, &all), t[i].end);
		assert_string_equal(all.data ? all.data : "", t[i].out);
	}
	buf_finish(&all);
}

static void end_tokens_and_control_tokens(void **st)
{
	struct emit_options o = { 0 };
	struct emitter *m;
	struct error e;
	struct buf out;
	enum emit_end end;

	(void)st;
	buf_init(&out, MEM_TOOL, 0);
	(void)buf_puts(&out, "");
	assert_int_equal(emitter_create(NULL, &o, &m, &e), 0);
	assert_int_equal(emitter_push(m, 257, &out, &end, &e), 0);
	assert_int_equal(out.len, 0);
	assert_int_equal(emitter_push(m, 256, &out, &end, &e), 0);
	assert_int_equal(end, EMIT_END_TOKEN);
	emitter_destroy(m);
	o.special = o.ignore_eos = true;
	assert_int_equal(emitter_create(NULL, &o, &m, &e), 0);
	assert_int_equal(emitter_push(m, 256, &out, &end, &e), 0);
	assert_int_equal(end, EMIT_GO_ON);
	assert_string_equal(out.data, "<ctl>");
	emitter_destroy(m);
	buf_finish(&out);
}

static void no_allocation_while_streaming(void **st)
{
	struct emit_stop stop = { "zzz", 3 };
	struct emit_options o = { .stops = &stop, .n_stops = 1 };
	struct emitter *m;
	struct error e;
	struct buf out;
	enum emit_end end;
	uint64_t before;

	(void)st;
	buf_init(&out, MEM_TOOL, 0);
	assert_true(buf_reserve(&out, 4096));
	assert_int_equal(emitter_create(NULL, &o, &m, &e), 0);
	before = mem_n_allocs();
	for (int i = 0; i < 3000; i++)
		assert_int_equal(emitter_push(m, i % 3 ? 'z' : 'a', &out, &end, &e), 0);
	assert_int_equal(mem_n_allocs(), before);
	emitter_destroy(m);
	buf_finish(&out);
}

static void bad_stops(void **st)
{
	struct emit_stop many[17];
	char long_one[300];
	struct emitter *m = NULL;
	struct error e;

	(void)st;
	memset(long_one, 'a', sizeof long_one);
	for (size_t i = 0; i < 17; i++)
		many[i] = (struct emit_stop){ "x", 1 };
	assert_int_equal(emitter_create(NULL, &(struct emit_options){ .stops = many, .n_stops = 17 }, &m, &e), TENON_E_INVALID);
	many[0].len = 0;
	assert_int_equal(emitter_create(NULL, &(struct emit_options){ .stops = many, .n_stops = 1 }, &m, &e), TENON_E_INVALID);
	many[0] = (struct emit_stop){ long_one, sizeof long_one };
	assert_int_equal(emitter_create(NULL, &(struct emit_options){ .stops = many, .n_stops = 1 }, &m, &e), TENON_E_INVALID);
	many[0] = (struct emit_stop){ "\xff", 1 };
	assert_int_equal(emitter_create(NULL, &(struct emit_options){ .stops = many, .n_stops = 1 }, &m, &e), TENON_E_INVALID);
	assert_null(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cases),
		cmocka_unit_test(end_tokens_and_control_tokens),
		cmocka_unit_test(no_allocation_while_streaming),
		cmocka_unit_test(bad_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
