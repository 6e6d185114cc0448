/* SPDX-License-Identifier: Apache-2.0
 * Reads a file that may be compressed with gzip (test data over 1 MB is), through gzip(1), which is everywhere.
 */
#ifndef TESTS_GZ_H
#define TESTS_GZ_H
#include "base/buf.h"
#include <stdio.h>
#include <string.h>

static inline bool gz_append_all(FILE *f, struct buf *out)
{
	char part[65536];
	size_t n;

	while ((n = fread(part, 1, sizeof part, f)) > 0)
		if (!buf_append(out, part, n))
			return false;
	return !ferror(f);
}

/* Appends the contents of `path`, decompressed if it ends in .gz; false if it cannot be read. */
static inline bool gz_read(const char *path, struct buf *out)
{
	size_t len = strlen(path);
	char cmd[4200];
	bool ok;
	FILE *f;

	if (len < 3 || strcmp(path + len - 3, ".gz")) {
		f = fopen(path, "rb");
		ok = f && gz_append_all(f, out);
		return f ? !fclose(f) && ok : false;
	}
	if (strchr(path, '\'') || snprintf(cmd, sizeof cmd, "gzip -dc '%s'", path) >= (int)sizeof cmd)
		return false;
	f = popen(cmd, "r");
	ok = f && gz_append_all(f, out);
	return f ? !pclose(f) && ok : false;
}
#endif
