/* SPDX-License-Identifier: Apache-2.0
 * GGUF reader: what a good file gives back, and that every kind of damage is refused with a text that names it.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/gguf.h"
#include "tenon/plugin.h"
#include "tests/unit/gguf_make.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

static const uint64_t dims_2x64[] = { 2, 64 };

/* One key of every kind, two tensors. */
static void make_good(struct gguf_make *m)
{
	static const struct gguf_str strs[] = { { "a", 1 }, { "", 0 }, { "x\0y", 3 } };

	gguf_make_init(m);
	gguf_make_str(m, "general.architecture", "llama");
	gguf_make_scalar(m, "k.u8", GGUF_U8, &(uint8_t){ 200 }, 1);
	gguf_make_scalar(m, "k.i8", GGUF_I8, &(int8_t){ -100 }, 1);
	gguf_make_scalar(m, "k.u16", GGUF_U16, &(uint16_t){ 60000 }, 2);
	gguf_make_scalar(m, "k.i16", GGUF_I16, &(int16_t){ -30000 }, 2);
	gguf_make_u32(m, "k.u32", 4000000000u);
	gguf_make_scalar(m, "k.i32", GGUF_I32, &(int32_t){ 7 }, 4);
	gguf_make_scalar(m, "k.u64", GGUF_U64, &(uint64_t){ UINT64_MAX }, 8);
	gguf_make_scalar(m, "k.i64", GGUF_I64, &(int64_t){ -7 }, 8);
	gguf_make_f32(m, "k.f32", 1.5f);
	gguf_make_scalar(m, "k.f64", GGUF_F64, &(double){ 2.25 }, 8);
	gguf_make_f32(m, "k.inf", HUGE_VALF);
	gguf_make_bool(m, "k.bool", true);
	gguf_make_strs(m, "k.strs", strs, COUNT_OF(strs));
	gguf_make_array(m, "k.ints", GGUF_I16, (int16_t[]){ 3, -4, 5 }, 3, 6);
	gguf_make_tensor(m, "blk.0.w", TNP_Q4_0, 2, dims_2x64, NULL, 2 * 36);
	gguf_make_tensor(m, "norm", TNP_F32, 1, (uint64_t[]){ 3 }, (float[]){ 1, 2, 3 }, 12);
	assert_true(gguf_make_finish(m));
}

static int open_made(struct gguf_make *m, struct gguf **g, struct error *e)
{
	assert_true(gguf_make_finish(m));
	return gguf_open_memory(m->file.data, m->file.len, g, e);
}

/* The made file must be refused with `code` and a text that holds `part`. Frees m. */
static void refused(struct gguf_make *m, int code, const char *part)
{
	struct error e = { 0 };
	struct gguf *g = NULL;

	assert_int_equal(open_made(m, &g, &e), code);
	assert_null(g);
	assert_int_equal(e.code, code);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" does not hold \"%s\"", e.text, part);
	gguf_make_free(m);
}

static void every_kind_of_key_reads_back(void **st)
{
	struct gguf_make m;
	struct gguf_array a;
	struct gguf_str s;
	struct gguf *g;
	uint64_t u;
	double d;
	bool b;

	(void)st;
	make_good(&m);
	assert_int_equal(open_made(&m, &g, NULL), TENON_OK);
	assert_int_equal(gguf_version(g), 3);
	assert_int_equal(gguf_n_keys(g), 15);
	assert_int_equal(gguf_get_str(g, "general.architecture", &s, NULL), TENON_OK);
	assert_int_equal(s.len, 5);
	assert_memory_equal(s.s, "llama", 5);
	assert_int_equal(gguf_get_u64(g, "k.u8", &u, NULL), TENON_OK);
	assert_int_equal(u, 200);
	assert_int_equal(gguf_get_u64(g, "k.u16", &u, NULL), TENON_OK);
	assert_int_equal(u, 60000);
	assert_int_equal(gguf_get_u64(g, "k.u32", &u, NULL), TENON_OK);
	assert_int_equal(u, 4000000000u);
	assert_int_equal(gguf_get_u64(g, "k.i32", &u, NULL), TENON_OK);
	assert_int_equal(u, 7);
	assert_int_equal(gguf_get_u64(g, "k.u64", &u, NULL), TENON_OK);
	assert_true(u == UINT64_MAX);
	assert_int_equal(gguf_get_f64(g, "k.f32", &d, NULL), TENON_OK);
	assert_true(d == 1.5);
	assert_int_equal(gguf_get_f64(g, "k.f64", &d, NULL), TENON_OK);
	assert_true(d == 2.25);
	assert_int_equal(gguf_get_f64(g, "k.u64", &d, NULL), TENON_OK);
	assert_true(d == 18446744073709551616.0);
	assert_int_equal(gguf_get_f64(g, "k.i16", &d, NULL), TENON_OK);
	assert_true(d == -30000);
	assert_int_equal(gguf_get_bool(g, "k.bool", &b, NULL), TENON_OK);
	assert_true(b);
	assert_int_equal(gguf_get_array(g, "k.strs", &a, NULL), TENON_OK);
	assert_int_equal(a.n, 3);
	assert_int_equal(a.kind, GGUF_STRING);
	assert_int_equal(a.strs[1].len, 0);
	assert_memory_equal(a.strs[2].s, "x\0y", 3);
	assert_int_equal(gguf_get_array(g, "k.ints", &a, NULL), TENON_OK);
	assert_int_equal(gguf_array_i64(&a, 1), -4);
	assert_true(gguf_array_f64(&a, 2) == 5);
	gguf_close(g);
	gguf_make_free(&m);
}

static void getters_refuse_wrong_types_and_ranges(void **st)
{
	struct gguf_make m;
	struct gguf_array a;
	struct gguf_str s;
	struct error e;
	struct gguf *g;
	uint64_t u = 42;
	double d = 42;
	bool b = false;

	(void)st;
	make_good(&m);
	assert_int_equal(open_made(&m, &g, NULL), TENON_OK);
	assert_int_equal(gguf_get_u64(g, "k.none", &u, &e), TENON_E_NOT_FOUND);
	assert_non_null(strstr(e.text, "k.none"));
	assert_int_equal(gguf_get_u64(g, "k.i8", &u, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, "negative"));
	assert_int_equal(gguf_get_u64(g, "k.i64", &u, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_u64(g, "k.bool", &u, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, "bool"));
	assert_int_equal(gguf_get_u64(g, "k.strs", &u, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_f64(g, "k.inf", &d, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_f64(g, "k.bool", &d, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_bool(g, "k.u8", &b, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_str(g, "k.u8", &s, &e), TENON_E_FORMAT);
	assert_int_equal(gguf_get_array(g, "k.u8", &a, &e), TENON_E_FORMAT);
	assert_int_equal(u, 42);
	assert_true(d == 42);
	gguf_close(g);
	gguf_make_free(&m);
}

static void tensors_have_shape_and_place(void **st)
{
	const struct gguf_tensor *t;
	struct gguf_make m;
	struct gguf *g;
	uint64_t bytes;
	const uint8_t *map;

	(void)st;
	make_good(&m);
	assert_int_equal(open_made(&m, &g, NULL), TENON_OK);
	map = gguf_map(g, &bytes);
	assert_int_equal(bytes, m.file.len);
	assert_int_equal(gguf_n_tensors(g), 2);
	t = gguf_tensor_find(g, "blk.0.w");
	assert_ptr_equal(t, gguf_tensor_at(g, 0));
	assert_int_equal(t->rank, 2);
	assert_int_equal(t->dim[0], 2);
	assert_int_equal(t->dim[1], 64);
	assert_int_equal(t->dim[2], 1);
	assert_int_equal(t->bytes, 72);
	assert_int_equal(t->offset % 32, 0);
	t = gguf_tensor_find(g, "norm");
	assert_memory_equal(map + t->offset, ((float[]){ 1, 2, 3 }), 12);
	assert_null(gguf_tensor_find(g, "nor"));
	gguf_close(g);
	gguf_make_free(&m);
}

static void every_truncation_is_refused(void **st)
{
	struct gguf_make m;
	struct gguf *g = NULL;
	struct error e;

	(void)st;
	make_good(&m);
	for (size_t len = 0; len < m.file.len; len++) {
		/* a block of exactly that size, so that a sanitizer sees any read past it */
		char *copy = malloc(len ? len : 1);
		int rc;

		memcpy(copy, m.file.data, len);
		rc = gguf_open_memory(copy, len, &g, &e);
		assert_int_equal(rc, TENON_E_FORMAT);
		assert_true(e.text[0] != 0);
		free(copy);
	}
	gguf_make_free(&m);
}

/* Reads all that a file offers; the sanitizer builds see any reach beyond it. Returns a sum to keep it alive. */
static uint64_t touch(const struct gguf *g)
{
	uint64_t sum = gguf_digest(g)[0], bytes;
	const uint8_t *map = gguf_map(g, &bytes);

	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_kind kind;
		struct gguf_str s = gguf_key_at(g, i, &kind);

		for (size_t j = 0; j < s.len; j++)
			sum += (uint8_t)s.s[j];
	}
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);

		assert_true(checked_range(t->offset, t->bytes, bytes));
		sum += map[t->offset] + map[t->offset + t->bytes - 1];
	}
	return sum;
}

static void every_flipped_byte_is_survived(void **st)
{
	struct gguf_make m;
	size_t n_ok = 0, n_bad = 0;

	(void)st;
	make_good(&m);
	for (size_t i = 0; i < m.file.len; i++)
		for (int bit = 0; bit < 9; bit++) {
			struct error e = { 0 };
			struct gguf *g = NULL;
			char old = m.file.data[i];

			m.file.data[i] = bit < 8 ? (char)(old ^ (1 << bit)) : (char)~old;
			if (gguf_open_memory(m.file.data, m.file.len, &g, &e)) {
				assert_int_not_equal(e.code, TENON_OK);
				n_bad++;
			} else {
				(void)touch(g);
				gguf_close(g);
				n_ok++;
			}
			m.file.data[i] = old;
		}
	assert_true(n_bad > 1000);
	assert_true(n_ok > 1000);
	gguf_make_free(&m);
}

static void bad_headers_are_refused(void **st)
{
	struct gguf_make m;

	(void)st;
	make_good(&m);
	m.version = 1;
	refused(&m, TENON_E_UNSUPPORTED, "version 1");
	make_good(&m);
	m.version = 0x03000000;
	refused(&m, TENON_E_UNSUPPORTED, "little-endian");
	make_good(&m);
	m.n_keys = UINT64_MAX;
	refused(&m, TENON_E_FORMAT, "number of keys");
	make_good(&m);
	m.n_tensors = 65537;
	refused(&m, TENON_E_FORMAT, "number of tensors");
}

static void bad_keys_are_refused(void **st)
{
	static const uint32_t bad_align[] = { 0, 1, 4, 24, 131072 };
	struct gguf_make m;

	(void)st;
	make_good(&m);
	gguf_make_u32(&m, "k.u8", 1);
	refused(&m, TENON_E_FORMAT, "\"k.u8\"");
	make_good(&m);
	gguf_make_u32(&m, "", 1);
	refused(&m, TENON_E_FORMAT, "empty");
	make_good(&m);
	gguf_make_scalar(&m, "k.odd", (enum gguf_kind)13, "xxxxxxxx", 8);
	refused(&m, TENON_E_FORMAT, "k.odd");
	make_good(&m);
	gguf_make_scalar(&m, "k.odd", GGUF_BOOL, "\2", 1);
	refused(&m, TENON_E_FORMAT, "k.odd");
	make_good(&m);
	gguf_make_array(&m, "k.odd", GGUF_ARRAY, "", 0, 0);
	refused(&m, TENON_E_FORMAT, "arrays of arrays");
	make_good(&m);
	gguf_make_array(&m, "k.odd", GGUF_STRING, "", UINT64_MAX / 16, 0);
	refused(&m, TENON_E_FORMAT, "k.odd");
	make_good(&m);
	gguf_make_array(&m, "k.odd", GGUF_F64, "xxxxxxxx", UINT64_MAX / 8 + 2, 8);
	refused(&m, TENON_E_FORMAT, "k.odd");
	make_good(&m);
	gguf_make_array(&m, "k.odd", GGUF_BOOL, "\0\1\3", 3, 3);
	refused(&m, TENON_E_FORMAT, "k.odd");
	for (size_t i = 0; i < COUNT_OF(bad_align); i++) {
		make_good(&m);
		gguf_make_u32(&m, "general.alignment", bad_align[i]);
		refused(&m, TENON_E_FORMAT, "general.alignment");
	}
}

static void bad_tensors_are_refused(void **st)
{
	static const uint64_t zero[] = { 2, 0, 64 }, huge[] = { 1ull << 40, 1ull << 30 }, odd[] = { 4, 33 },
			      one[] = { 8 }, five[] = { 1, 1, 1, 1, 1 };
	struct gguf_make m;

	(void)st;
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 3, zero, 128);
	refused(&m, TENON_E_FORMAT, "\"t\"");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 2, huge, 128);
	refused(&m, TENON_E_FORMAT, "\"t\"");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_Q8_0, 2, odd, 128);
	refused(&m, TENON_E_FORMAT, "whole blocks");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 5, five, 128);
	refused(&m, TENON_E_FORMAT, "rank");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 0, five, 128);
	refused(&m, TENON_E_FORMAT, "rank");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", 23, 1, (uint64_t[]){ 256 }, 128);
	refused(&m, TENON_E_UNSUPPORTED, "IQ4_XS");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", 99, 1, one, 128);
	refused(&m, TENON_E_UNSUPPORTED, "99");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 1, (uint64_t[]){ 3 }, 96); /* "norm" lies at 96 */
	refused(&m, TENON_E_FORMAT, "overlaps");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 1, one, 100);
	refused(&m, TENON_E_FORMAT, "aligned");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 1, one, 1 << 20);
	refused(&m, TENON_E_FORMAT, "past the end");
	make_good(&m);
	gguf_make_tensor_at(&m, "t", TNP_F32, 1, one, UINT64_MAX - 31);
	refused(&m, TENON_E_FORMAT, "past the end");
	make_good(&m);
	gguf_make_tensor(&m, "norm", TNP_F32, 1, one, NULL, 32);
	refused(&m, TENON_E_FORMAT, "\"norm\"");
}

static void hostile_names_stay_printable(void **st)
{
	char name[200];
	struct gguf_make m;
	struct error e;
	struct gguf *g;

	(void)st;
	memset(name, '\x1b', sizeof name - 1);
	name[sizeof name - 1] = 0;
	make_good(&m);
	gguf_make_tensor_at(&m, name, TNP_F32, 0, NULL, 0);
	assert_int_equal(open_made(&m, &g, &e), TENON_E_FORMAT);
	assert_null(strchr(e.text, '\x1b'));
	assert_non_null(strstr(e.text, "????..."));
	gguf_make_free(&m);
}

static void running_out_of_memory_is_an_error_everywhere(void **st)
{
	struct gguf_make m;
	struct gguf *g = NULL;
	struct error e;
	uint64_t before;
	int rc, n = 0;

	(void)st;
	make_good(&m);
	before = mem_area_bytes(MEM_ENGINE);
	do {
		mem_fail_at((uint64_t)++n);
		rc = gguf_open_memory(m.file.data, m.file.len, &g, &e);
		mem_fail_at(0);
		if (rc) {
			assert_int_equal(rc, TENON_E_NOMEM);
			assert_int_equal(mem_area_bytes(MEM_ENGINE), before);
		}
	} while (rc && n < 100);
	assert_in_range(n, 6, 20);
	gguf_close(g);
	assert_int_equal(mem_area_bytes(MEM_ENGINE), before);
	gguf_make_free(&m);
}

static void digest_tells_models_apart(void **st)
{
	struct gguf_make m;
	uint8_t first[32];
	struct gguf *g;

	(void)st;
	make_good(&m);
	assert_int_equal(open_made(&m, &g, NULL), TENON_OK);
	memcpy(first, gguf_digest(g), sizeof first);
	assert_memory_equal(first, gguf_digest(g), sizeof first);
	gguf_close(g);
	m.data.data[40] ^= 1; /* same header, other weights */
	assert_int_equal(open_made(&m, &g, NULL), TENON_OK);
	assert_memory_not_equal(first, gguf_digest(g), sizeof first);
	gguf_close(g);
	gguf_make_free(&m);
}

static void files_are_mapped_and_watched(void **st)
{
	char path[] = "/tmp/tenon-test-gguf-XXXXXX";
	int fd = mkstemp(path);
	struct gguf_make m;
	struct gguf *g = NULL;
	struct error e;

	(void)st;
	assert_true(fd >= 0);
	make_good(&m);
	assert_int_equal(gguf_open(path, &g, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, "empty"));
	assert_int_equal(write(fd, m.file.data, m.file.len), m.file.len);
	assert_int_equal(gguf_open(path, &g, &e), TENON_OK);
	assert_string_equal(gguf_path(g), path);
	assert_true(gguf_fd(g) >= 0);
	assert_int_equal(gguf_check_unchanged(g, &e), TENON_OK);
	assert_int_equal(ftruncate(fd, (off_t)m.file.len - 1), 0);
	assert_int_equal(gguf_check_unchanged(g, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, path));
	gguf_close(g);
	g = NULL;
	assert_int_equal(gguf_open(path, &g, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(gguf_open("/nonexistent/file", &g, &e), TENON_E_NOT_FOUND);
	assert_int_equal(gguf_open("/tmp", &g, &e), TENON_E_IO);
	assert_null(g);
	(void)close(fd);
	(void)unlink(path);
	gguf_make_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_key_reads_back),
		cmocka_unit_test(getters_refuse_wrong_types_and_ranges),
		cmocka_unit_test(tensors_have_shape_and_place),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(every_flipped_byte_is_survived),
		cmocka_unit_test(bad_headers_are_refused),
		cmocka_unit_test(bad_keys_are_refused),
		cmocka_unit_test(bad_tensors_are_refused),
		cmocka_unit_test(hostile_names_stay_printable),
		cmocka_unit_test(running_out_of_memory_is_an_error_everywhere),
		cmocka_unit_test(digest_tells_models_apart),
		cmocka_unit_test(files_are_mapped_and_watched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
