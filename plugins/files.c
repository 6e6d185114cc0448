/* SPDX-License-Identifier: Apache-2.0
 * Opening what will be trusted: a plugin's code runs with our rights, so its folder, manifest and shared object must
 * belong to root or to us, and nobody else may write to them. Links are never followed. Everything after the check
 * goes through the descriptor, so that a swap of names afterwards changes nothing.
 */
#include "plugins/plugins_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Only root and we may have made it or change it. */
static int check_owner(const struct stat *st, const char *what, const char *name, struct error *e)
{
	if (st->st_uid && st->st_uid != geteuid())
		return error_set(e, TENON_E_DENIED,
			"%s '%.128s': owned by uid %u; it must belong to root or to uid %u", what, name,
			(unsigned)st->st_uid, (unsigned)geteuid());
	if (st->st_mode & S_IWOTH)
		return error_set(e, TENON_E_DENIED, "%s '%.128s': writable by everybody; run chmod o-w on it",
			what, name);
	return TENON_OK;
}

static int open_errno(const char *what, const char *name, struct error *e)
{
	int err = errno, code = err == ENOENT || err == ENOTDIR ? TENON_E_NOT_FOUND : TENON_E_IO;

	if (err == ELOOP)
		return error_set(e, TENON_E_DENIED, "%s '%.128s': is a symbolic link; put the real one there",
			what, name);
	return error_errno(e, code, err, "%s '%.128s'", what, name);
}

int plugin_dir_open(const char *path, int *fd, struct error *e)
{
	int d = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	struct stat st;

	if (d < 0)
		return open_errno("plugin folder", path, e);
	if (fstat(d, &st)) {
		rc = open_errno("plugin folder", path, e);
		goto out;
	}
	rc = check_owner(&st, "plugin folder", path, e);
	if (!rc) {
		*fd = d;
		return TENON_OK;
	}
out:
	(void)close(d);
	return rc;
}

int plugin_file_open(int dir_fd, const char *dir, const char *name, int *fd, struct error *e)
{
	int f = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
	char full[256];
	struct stat st;

	(void)snprintf(full, sizeof full, "%.160s/%.80s", dir, name);
	if (f < 0)
		return open_errno("plugin file", full, e);
	if (fstat(f, &st))
		rc = open_errno("plugin file", full, e);
	else if (!S_ISREG(st.st_mode))
		rc = error_set(e, TENON_E_DENIED, "plugin file '%.128s': not a regular file", full);
	else
		rc = check_owner(&st, "plugin file", full, e);
	if (rc)
		(void)close(f);
	else
		*fd = f;
	return rc;
}

int plugin_file_read(int fd, const char *name, size_t limit, char **text, size_t *len, struct error *e)
{
	char *p = mem_alloc(MEM_PLUGIN, limit + 1);
	size_t n = 0;
	ssize_t got = 1;

	if (!p)
		return error_set(e, TENON_E_NOMEM, "plugin file '%.128s': no memory to read it", name);
	while (n <= limit && (got = pread(fd, p + n, limit + 1 - n, (off_t)n)) > 0)
		n += (size_t)got;
	if (got < 0 || n > limit) {
		int err = errno;

		mem_free(p);
		if (got < 0)
			return error_errno(e, TENON_E_IO, err, "plugin file '%.128s'", name);
		return error_set(
			e, TENON_E_TOO_LONG, "plugin file '%.128s': longer than %zu bytes", name, limit);
	}
	*text = p;
	*len = n;
	return TENON_OK;
}

int plugin_file_sha256(int fd, const char *name, uint8_t out[32], struct error *e)
{
	enum { CHUNK = 65536 };
	crypto_hash_sha256_state st;
	uint8_t *p = mem_alloc(MEM_PLUGIN, CHUNK);
	off_t at = 0;
	ssize_t got = 1;
	int err;

	if (!p)
		return error_set(e, TENON_E_NOMEM, "plugin file '%.128s': no memory to read it", name);
	(void)crypto_hash_sha256_init(&st);
	while ((got = pread(fd, p, CHUNK, at)) > 0) {
		(void)crypto_hash_sha256_update(&st, p, (unsigned long long)got);
		at += got;
	}
	err = errno;
	mem_free(p);
	if (got < 0)
		return error_errno(e, TENON_E_IO, err, "plugin file '%.128s'", name);
	(void)crypto_hash_sha256_final(&st, out);
	return TENON_OK;
}
