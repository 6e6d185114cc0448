/* SPDX-License-Identifier: Apache-2.0
 * Tiny models of the build tree (engine/model.mk) and copies of them with one thing changed.
 */
#ifndef TESTS_TINY_H
#define TESTS_TINY_H
#include "tests/unit/unit.h"
#include "plugins/plugins.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* "$TENON_BUILDDIR/tests/tiny/NAME.gguf" in a static buffer. */
static inline const char *tiny_path(const char *name)
{
	static char path[4096];
	const char *top = getenv("TENON_BUILDDIR");

	(void)snprintf(path, sizeof path, "%s/tests/tiny/%s.gguf", top ? top : ".", name);
	return path;
}

/* The backends of the build tree; 0, or -1 after a message. */
static inline int tiny_plugins(struct plugins **out)
{
	static char dir[4096];
	static const char *dirs[] = { dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1 };
	struct error e = { 0 };

	if (!plugins_default_dir(dir, sizeof dir, &e) && !plugins_open(&c, out, &e))
		return 0;
	(void)fprintf(stderr, "%s\n", e.text);
	return -1;
}

/* Token ids below 500, always the same for a seed. */
static inline void tiny_tokens(int32_t *t, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		t[i] = (int32_t)(seed >> 16) % 500;
	}
}

/* Root mean square error as a share of the spread of the right values. */
static inline double tiny_error(const float *got, const float *want, size_t n)
{
	double err = 0, sum = 0, square = 0;

	for (size_t i = 0; i < n; i++) {
		err += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		sum += want[i];
		square += (double)want[i] * want[i];
	}
	return sqrt(err / (double)n) / sqrt(square / (double)n - sum / (double)n * (sum / (double)n));
}

struct tiny { /* a file in memory; tiny_save writes it to `path` */
	unsigned char *data;
	size_t len;
	char path[64];
};

static inline void tiny_load(struct tiny *t, const char *name)
{
	FILE *f = fopen(tiny_path(name), "re");

	if (!f)
		fail_msg("%s: is missing; make builds it with scripts/make-tiny-model", tiny_path(name));
	t->data = malloc(4 << 20);
	t->len = fread(t->data, 1, 4 << 20, f);
	(void)fclose(f);
	(void)snprintf(t->path, sizeof t->path, "/tmp/tenon-tiny-XXXXXX");
	(void)close(mkstemp(t->path));
}

static inline void tiny_save(const struct tiny *t)
{
	FILE *f = fopen(t->path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(t->data, 1, t->len, f), t->len);
	assert_int_equal(fclose(f), 0);
}

static inline void tiny_free(struct tiny *t)
{
	(void)unlink(t->path);
	free(t->data);
}

/* Where the bytes behind a string of the header (a key, a tensor's name) begin. */
static inline unsigned char *tiny_behind(struct tiny *t, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 8; i + n < t->len; i++) {
		uint64_t len;

		memcpy(&len, t->data + i - 8, sizeof len);
		if (len == n && !memcmp(t->data + i, name, n))
			return t->data + i + n;
	}
	fail_msg("'%s' does not stand in the file", name);
	return NULL;
}

/* A key's 32-bit value (whole or float: its bits). */
static inline void tiny_set_u32(struct tiny *t, const char *key, uint32_t v)
{
	memcpy(tiny_behind(t, key) + 4, &v, sizeof v);
}

/* Another name of the same length for a key or a tensor. */
static inline void tiny_rename(struct tiny *t, const char *from, const char *to)
{
	assert_int_equal(strlen(from), strlen(to));
	memcpy(tiny_behind(t, from) - strlen(from), to, strlen(to));
}
#endif
