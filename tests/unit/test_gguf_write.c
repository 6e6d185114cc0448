/* SPDX-License-Identifier: Apache-2.0
 * The GGUF writer: what it writes reads back, keys and all; a write that fails, is given up or killed leaves the folder
 * as it was. Importance files: written, read, and damaged ones refused.
 */
#include "base/base.h"
#include "engine/gguf_write.h"
#include "engine/importance.h"
#include "tests/unit/gguf_make.h"
#include "tests/unit/unit.h"
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tenon/plugin.h>
#include <unistd.h>

struct world {
	char dir[64], path[128];
};

static int setup(void **s)
{
	struct world *w = calloc(1, sizeof *w);

	(void)snprintf(w->dir, sizeof w->dir, "/tmp/tenon-write-XXXXXX");
	if (!mkdtemp(w->dir))
		return -1;
	(void)snprintf(w->path, sizeof w->path, "%s/out.gguf", w->dir);
	*s = w;
	return 0;
}

static int teardown(void **s)
{
	struct world *w = *s;

	(void)unlink(w->path);
	(void)rmdir(w->dir);
	free(w);
	return 0;
}

static int n_files(const struct world *w)
{
	DIR *d = opendir(w->dir);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2;
}

static struct gguf_str str(const char *s) { return (struct gguf_str){ s, strlen(s) }; }

/* A source with keys of several kinds and an alignment of its own. */
static struct gguf *source(struct gguf_make *m)
{
	static const struct gguf_str words[] = { { "one", 3 }, { "", 0 }, { "three\0x", 7 } };
	struct gguf *g = NULL;

	gguf_make_init(m);
	gguf_make_u32(m, "general.alignment", 64);
	m->align = 64;
	gguf_make_u32(m, "general.file_type", 1);
	gguf_make_strs(m, "some.words", words, 3);
	gguf_make_array(m, "some.numbers", GGUF_I16, (const int16_t[]){ -1, 2, -3 }, 3, 6);
	gguf_make_scalar(m, "some.small", GGUF_I64, &(int64_t){ -7 }, 8);
	gguf_make_bool(m, "last", true);
	assert_true(gguf_make_finish(m));
	assert_int_equal(gguf_open_memory(m->file.data, m->file.len, &g, NULL), 0);
	return g;
}

static void reads_back(void **s)
{
	struct world *w = *s;
	struct gguf_make m;
	struct gguf *from = source(&m), *g = NULL;
	struct gguf_write *out = NULL;
	struct gguf_array a;
	const struct gguf_tensor *t;
	struct error e = { 0 };
	uint64_t v = 0, bytes;
	uint8_t big[2 * 34 * 3];

	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (uint8_t)i;
	assert_int_equal(gguf_write_create(w->path, &out, &e), 0);
	gguf_write_u32(out, "general.file_type", 7);
	gguf_write_keys(out, from);
	gguf_write_u32(out, "general.file_type", 9); /* is there */
	gguf_write_tensor(out, str("a"), TNP_F32, 1, (const uint64_t[]){ 3 });
	gguf_write_tensor(out, str("b"), TNP_Q8_0, 2, (const uint64_t[]){ 3, 64 });
	gguf_write_tensor(out, str("c"), TNP_F16, 3, (const uint64_t[]){ 1, 2, 1 });
	assert_int_equal(gguf_write_begin(out, &e), 0);
	assert_int_equal(gguf_write_data(out, (const float[]){ 1, 2, 3 }, 12, &e), 0);
	assert_int_equal(gguf_write_data(out, big, 100, &e), 0); /* in pieces, over a tensor's end */
	assert_int_equal(gguf_write_data(out, big + 100, sizeof big - 100, &e), 0);
	assert_int_equal(gguf_write_commit(out, &e), TENON_E_INVALID); /* c is missing */
	assert_int_equal(gguf_write_data(out, "abcd", 4, &e), 0);
	assert_int_equal(gguf_write_data(out, "x", 1, &e), TENON_E_INVALID);
	assert_int_equal(n_files(w), 0);
	assert_int_equal(gguf_write_commit(out, &e), 0);
	gguf_write_destroy(out);
	assert_int_equal(n_files(w), 1);
	assert_int_equal(gguf_open(w->path, &g, &e), 0);
	assert_int_equal(gguf_version(g), 3);
	assert_int_equal(gguf_n_keys(g), 6);
	assert_int_equal(gguf_get_u64(g, "general.file_type", &v, NULL), 0);
	assert_int_equal(v, 7);
	assert_int_equal(gguf_get_array(g, "some.words", &a, NULL), 0);
	assert_true(a.n == 3 && a.strs[2].len == 7 && !memcmp(a.strs[2].s, "three\0x", 7));
	assert_int_equal(gguf_get_array(g, "some.numbers", &a, NULL), 0);
	assert_int_equal(gguf_array_i64(&a, 2), -3);
	t = gguf_tensor_find(g, "b");
	assert_true(t && t->rank == 2 && t->dim[0] == 3 && t->dim[1] == 64 && t->type == TNP_Q8_0 &&
		t->offset % 64 == 0);
	assert_memory_equal((const uint8_t *)gguf_map(g, &bytes) + t->offset, big, sizeof big);
	t = gguf_tensor_find(g, "c");
	assert_true(t && t->rank == 3 && t->dim[1] == 2);
	assert_memory_equal((const uint8_t *)gguf_map(g, &bytes) + t->offset, "abcd", 4);
	gguf_close(g);
	gguf_close(from);
	gguf_make_free(&m);
}

static struct gguf_write *half(struct world *w)
{
	struct gguf_write *out = NULL;
	static const float x[1024];

	assert_int_equal(gguf_write_create(w->path, &out, NULL), 0);
	gguf_write_tensor(out, str("a"), TNP_F32, 1, (const uint64_t[]){ 4096 });
	assert_int_equal(gguf_write_begin(out, NULL), 0);
	assert_int_equal(gguf_write_data(out, x, sizeof x, NULL), 0);
	return out;
}

static void given_up(void **s)
{
	struct world *w = *s;

	gguf_write_destroy(half(w));
	assert_int_equal(n_files(w), 0);
}

static void what_was_there_stays(void **s)
{
	struct world *w = *s;
	FILE *f = fopen(w->path, "we");
	char text[8] = "";

	assert_non_null(f);
	(void)fputs("old", f);
	(void)fclose(f);
	gguf_write_destroy(half(w));
	assert_int_equal(n_files(w), 1);
	f = fopen(w->path, "re");
	assert_non_null(fgets(text, sizeof text, f));
	(void)fclose(f);
	assert_string_equal(text, "old");
}

/* Only where the file system can hold a file without a name. */
static void killed(void **s)
{
	struct world *w = *s;
	int status, pipes[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		(void)half(w);
		_exit(write(pipes[1], n_files(w) ? "n" : "k", 1) == 1 && pause() ? 1 : 2);
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	if (byte == 'k')
		assert_int_equal(n_files(w), 0);
}

/* A limit on file sizes stands for a full disk: both are found before the work begins. */
static void no_room(void **s)
{
	struct world *w = *s;
	struct rlimit old, small;
	struct gguf_write *out = NULL;
	struct error e = { 0 };
	int rc;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 10000;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(gguf_write_create(w->path, &out, NULL), 0);
	gguf_write_tensor(out, str("a"), TNP_F32, 1, (const uint64_t[]){ 4096 });
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = gguf_write_begin(out, &e);
	for (int i = 0; i < 4 && !rc; i++) {
		static const float x[1024];

		rc = gguf_write_data(out, x, sizeof x, &e);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	(void)signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(rc, TENON_E_IO);
	assert_non_null(strstr(e.text, "out.gguf"));
	gguf_write_destroy(out);
	assert_int_equal(n_files(w), 0);
}

static void bad_places(void **s)
{
	struct world *w = *s;
	struct gguf_write *out = NULL;
	struct error e = { 0 };

	assert_int_equal(gguf_write_create(w->dir, &out, &e), TENON_E_INVALID);
	assert_int_equal(gguf_write_create("/dev/null", &out, &e), TENON_E_INVALID);
	assert_int_equal(gguf_write_create("/nonexistent/x", &out, &e), TENON_E_IO);
	assert_int_equal(gguf_write_create("x/", &out, &e), TENON_E_INVALID);
	assert_null(out);
	assert_int_equal(gguf_write_create(w->path, &out, &e), 0);
	gguf_write_tensor(out, str("a"), TNP_Q8_0, 1, (const uint64_t[]){ 33 }); /* no whole blocks */
	assert_int_equal(gguf_write_begin(out, &e), TENON_E_INVALID);
	gguf_write_destroy(out);
	assert_int_equal(n_files(w), 0);
}

/* ---- importance -------------------------------------------------------------------------------------------------------- */

static void importance_reads_back(void **s)
{
	struct world *w = *s;
	const float v[4] = { 4, 0, 2, 2 };
	const struct importance_row row = { str("blk.0.x.weight"), 4, v };
	struct gguf_tensor t = { .name = str("blk.0.x.weight"), .rank = 2, .dim = { 8, 4, 1, 1 } };
	struct importance *i = NULL;
	struct error e = { 0 };
	float out[4];

	assert_int_equal(importance_write(w->path, "m", 100, &row, 1, &e), 0);
	assert_int_equal(importance_open(w->path, &i, &e), 0);
	assert_int_equal(importance_n(i), 1);
	assert_int_equal(importance_weights(i, &t, out, &e), 0);
	assert_true(fabsf((out[0] + out[1] + out[2] + out[3]) / 4 - 1) < 1e-5f);
	assert_true(out[0] > 1.9f && out[1] > 0 && out[1] < 0.03f && out[2] == out[3]);
	t.dim[1] = 5;
	assert_int_equal(importance_weights(i, &t, out, &e), TENON_E_FORMAT);
	t.name = str("other");
	assert_int_equal(importance_weights(i, &t, out, &e), TENON_E_NOT_FOUND);
	importance_close(i);
}

static int open_made(struct world *w, struct gguf_make *m, struct error *e)
{
	struct importance *i = NULL;
	FILE *f;
	int rc;

	assert_true(gguf_make_finish(m));
	f = fopen(w->path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(m->file.data, 1, m->file.len, f), m->file.len);
	(void)fclose(f);
	rc = importance_open(w->path, &i, e);
	importance_close(i);
	gguf_make_free(m);
	return rc;
}

static void begin(struct gguf_make *m, uint32_t version)
{
	gguf_make_init(m);
	gguf_make_str(m, "general.type", "importance");
	gguf_make_u32(m, "tenon.importance.version", version);
}

static void importance_is_hostile(void **s)
{
	struct world *w = *s;
	const float bad[][2] = { { 1, NAN }, { INFINITY, 1 }, { 1, -1e-9f } };
	struct error e = { 0 };
	struct gguf_make m;

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		begin(&m, 1);
		gguf_make_tensor(&m, "a", TNP_F32, 1, (const uint64_t[]){ 2 }, bad[i], sizeof bad[i]);
		assert_int_equal(open_made(w, &m, &e), TENON_E_FORMAT);
		assert_non_null(strstr(e.text, "column"));
	}
	begin(&m, 2);
	assert_int_equal(open_made(w, &m, &e), TENON_E_UNSUPPORTED);
	begin(&m, 1);
	gguf_make_tensor(&m, "a", TNP_F16, 1, (const uint64_t[]){ 2 }, NULL, 4);
	assert_int_equal(open_made(w, &m, &e), TENON_E_FORMAT);
	begin(&m, 1);
	gguf_make_tensor(&m, "a", TNP_F32, 2, (const uint64_t[]){ 2, 2 }, NULL, 16);
	assert_int_equal(open_made(w, &m, &e), TENON_E_FORMAT);
	gguf_make_init(&m);
	gguf_make_str(&m, "general.type", "model");
	assert_int_equal(open_made(w, &m, &e), TENON_E_FORMAT);
	assert_non_null(strstr(e.text, "calibrate"));
	assert_int_equal(
		importance_open("/nonexistent", &(struct importance *){ NULL }, &e), TENON_E_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(reads_back, setup, teardown),
		cmocka_unit_test_setup_teardown(given_up, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_there_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(killed, setup, teardown),
		cmocka_unit_test_setup_teardown(no_room, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_places, setup, teardown),
		cmocka_unit_test_setup_teardown(importance_reads_back, setup, teardown),
		cmocka_unit_test_setup_teardown(importance_is_hostile, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
