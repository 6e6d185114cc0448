/* SPDX-License-Identifier: Apache-2.0
 * gguf_write.h. Where the file system can, the file has no name at all while it is written (O_TMPFILE) and vanishes
 * even when the process is killed; elsewhere it is a hidden file beside the wanted one that destroy removes.
 */
#include "engine/gguf_write.h"
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 3, HEADER_LIMIT = 1 << 30, DEFAULT_ALIGN = 32 };

struct slot {			/* a tensor */
	uint64_t offset, bytes; /* offset from the start of the data */
};

struct gguf_write {
	char *path, *dir, *temp; /* temp: a name in dir, used when the file needs one */
	int fd;
	bool named, failed, begun;	 /* named: temp exists */
	struct buf keys, tensors, names; /* names: of the keys, each with a zero behind */
	uint64_t n_keys, n_tensors, cap, align;
	struct slot *slot;
	uint64_t data0, bytes, at, current, in_slot; /* file offsets; tensor in work and what it has got */
};

/* ---- opening ---------------------------------------------------------------------------------------------------------- */

static int names_make(struct gguf_write *w, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t room = strlen(path) + 64;

	w->path = mem_strdup(MEM_ENGINE, path);
	w->dir = slash ? mem_strndup(MEM_ENGINE, path, slash == path ? 1 : (size_t)(slash - path))
		       : mem_strdup(MEM_ENGINE, ".");
	w->temp = mem_alloc(MEM_ENGINE, room);
	if (!w->path || !w->dir || !w->temp)
		return TENON_E_NOMEM;
	(void)snprintf(w->temp, room, "%s/.%.200s.%ld.new", w->dir, base, (long)getpid());
	return *base ? TENON_OK : TENON_E_INVALID;
}

static int open_file(struct gguf_write *w, struct error *e)
{
	struct stat st;

	if (!stat(w->path, &st) && !S_ISREG(st.st_mode))
		return error_set(
			e, TENON_E_INVALID, "'%.128s': is no plain file; name another output", w->path);
	w->fd = open(w->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (w->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
		(void)unlink(w->temp); /* of a process that had our number and was killed */
		w->fd = open(w->temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
		w->named = w->fd >= 0;
	}
	return w->fd >= 0 ? TENON_OK
			  : error_errno(e, TENON_E_IO, errno, "'%.128s': cannot be written", w->path);
}

int gguf_write_create(const char *path, struct gguf_write **out, struct error *e)
{
	struct gguf_write *w = mem_zalloc(MEM_ENGINE, 1, sizeof *w);
	int rc;

	if (!w)
		return error_set(e, TENON_E_NOMEM, "'%.128s': no memory", path);
	w->fd = -1;
	w->align = DEFAULT_ALIGN;
	buf_init(&w->keys, MEM_ENGINE, HEADER_LIMIT);
	buf_init(&w->tensors, MEM_ENGINE, HEADER_LIMIT);
	buf_init(&w->names, MEM_ENGINE, HEADER_LIMIT);
	rc = names_make(w, path);
	if (rc)
		(void)error_set(
			e, rc, "'%.128s': %s", path, rc == TENON_E_NOMEM ? "no memory" : "is no file name; name a file in that folder");
	else
		rc = open_file(w, e);
	if (rc) {
		gguf_write_destroy(w);
		return rc;
	}
	*out = w;
	return TENON_OK;
}

void gguf_write_destroy(struct gguf_write *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		(void)close(w->fd);
	if (w->named)
		(void)unlink(w->temp);
	buf_finish(&w->keys);
	buf_finish(&w->tensors);
	buf_finish(&w->names);
	mem_free(w->slot);
	mem_free(w->path);
	mem_free(w->dir);
	mem_free(w->temp);
	mem_free(w);
}

/* ---- the header ------------------------------------------------------------------------------------------------------- */

static void put(struct gguf_write *w, struct buf *b, const void *p, size_t n)
{
	if (!buf_append(b, p, n))
		w->failed = true;
}

static void put_u32(struct gguf_write *w, struct buf *b, uint32_t v) { put(w, b, &v, sizeof v); }
static void put_u64(struct gguf_write *w, struct buf *b, uint64_t v) { put(w, b, &v, sizeof v); }

static void put_str(struct gguf_write *w, struct buf *b, const char *s, size_t n)
{
	put_u64(w, b, n);
	put(w, b, s, n);
}

/* Takes the name; false if the key is there. Few keys are set by hand, so a walk over names will do. */
static bool key_new(struct gguf_write *w, const char *s, size_t n, bool remember)
{
	for (size_t at = 0; at < w->names.len; at += strlen(w->names.data + at) + 1)
		if (strlen(w->names.data + at) == n && !memcmp(w->names.data + at, s, n))
			return false;
	if (remember) {
		put(w, &w->names, s, n);
		put(w, &w->names, "", 1);
	}
	w->n_keys++;
	return true;
}

void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t v)
{
	if (!key_new(w, key, strlen(key), true))
		return;
	put_str(w, &w->keys, key, strlen(key));
	put_u32(w, &w->keys, GGUF_U32);
	put_u32(w, &w->keys, v);
}

void gguf_write_str(struct gguf_write *w, const char *key, const char *v)
{
	if (!key_new(w, key, strlen(key), true))
		return;
	put_str(w, &w->keys, key, strlen(key));
	put_u32(w, &w->keys, GGUF_STRING);
	put_str(w, &w->keys, v, strlen(v));
}

void gguf_write_keys(struct gguf_write *w, const struct gguf *from)
{
	uint64_t align = DEFAULT_ALIGN;

	if (!gguf_get_u64(from, "general.alignment", &align, NULL))
		w->align = align;
	for (size_t i = 0; i < gguf_n_keys(from); i++) {
		enum gguf_kind kind;
		struct gguf_str name = gguf_key_at(from, i, &kind);
		size_t n = 0;
		const void *p = gguf_key_bytes(from, i, &n);

		if (key_new(w, name.s, name.len, false))
			put(w, &w->keys, p, n);
	}
}

static bool slots_grow(struct gguf_write *w)
{
	uint64_t cap = w->cap ? 2 * w->cap : 64;
	void *p = w->n_tensors < w->cap ? w->slot : mem_resize(MEM_ENGINE, w->slot, cap * sizeof *w->slot);

	if (!p)
		return false;
	w->slot = p;
	w->cap = w->n_tensors < w->cap ? w->cap : cap;
	return true;
}

void gguf_write_tensor(
	struct gguf_write *w, struct gguf_str name, uint32_t type, uint32_t rank, const uint64_t *dim)
{
	uint64_t n = 1, at = 0;
	uint32_t block, bytes;

	if (w->n_tensors)
		at = w->slot[w->n_tensors - 1].offset + w->slot[w->n_tensors - 1].bytes;
	w->failed = w->failed || !slots_grow(w) || !gguf_type_block(type, &block, &bytes) ||
		!checked_align_up(at, w->align, &at);
	for (uint32_t i = 0; i < rank && !w->failed; i++)
		w->failed = !checked_mul_u64(n, dim[i], &n);
	if (w->failed || dim[rank - 1] % block || !checked_mul_u64(n / block, bytes, &n)) {
		w->failed = true;
		return;
	}
	put_str(w, &w->tensors, name.s, name.len);
	put_u32(w, &w->tensors, rank);
	for (uint32_t i = rank; i-- > 0;)
		put_u64(w, &w->tensors, dim[i]);
	put_u32(w, &w->tensors, type);
	put_u64(w, &w->tensors, at);
	w->slot[w->n_tensors++] = (struct slot){ at, n };
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static int write_all(struct gguf_write *w, const void *data, uint64_t n, struct error *e)
{
	const uint8_t *p = data;

	while (n) {
		ssize_t got = write(w->fd, p, MIN_OF(n, (uint64_t)1 << 30));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return error_errno(
				e, TENON_E_IO, got ? errno : ENOSPC, "'%.128s': cannot be written", w->path);
		p += got;
		n -= (uint64_t)got;
		w->at += (uint64_t)got;
	}
	return TENON_OK;
}

static int pad_to(struct gguf_write *w, uint64_t offset, struct error *e)
{
	static const uint8_t zeros[4096];
	int rc = TENON_OK;

	while (!rc && w->at < offset)
		rc = write_all(w, zeros, MIN_OF(offset - w->at, sizeof zeros), e);
	return rc;
}

/* Asks for the room at once: a full disk is told before the work, not after it. */
static int room_take(const struct gguf_write *w, struct error *e)
{
	int rc;

	do
		rc = fallocate(w->fd, 0, 0, (off_t)w->bytes);
	while (rc && errno == EINTR);
	if (!rc || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
		return TENON_OK;
	return error_errno(e, TENON_E_IO, errno, "'%.128s': no room for its %llu bytes", w->path,
		(unsigned long long)w->bytes);
}

int gguf_write_begin(struct gguf_write *w, struct error *e)
{
	struct buf head;
	uint64_t end = w->n_tensors ? w->slot[w->n_tensors - 1].offset + w->slot[w->n_tensors - 1].bytes : 0;
	int rc;

	buf_init(&head, MEM_ENGINE, HEADER_LIMIT);
	put(w, &head, "GGUF", 4);
	put_u32(w, &head, VERSION);
	put_u64(w, &head, w->n_tensors);
	put_u64(w, &head, w->n_keys);
	put(w, &head, w->keys.data, w->keys.len);
	put(w, &head, w->tensors.data, w->tensors.len);
	w->failed = w->failed || !checked_align_up(head.len, w->align, &w->data0) ||
		!checked_add_u64(w->data0, end, &w->bytes) ||
		!checked_align_up(w->bytes, w->align, &w->bytes) || w->bytes > INT64_MAX;
	rc = w->failed ? error_set(e, TENON_E_INVALID,
				 "'%.128s': no memory, or a tensor that cannot be written", w->path)
		       : room_take(w, e);
	if (!rc)
		rc = write_all(w, head.data, head.len, e);
	buf_finish(&head);
	w->begun = !rc;
	return rc;
}

uint64_t gguf_write_bytes(const struct gguf_write *w) { return w->bytes; }

int gguf_write_data(struct gguf_write *w, const void *data, size_t bytes, struct error *e)
{
	const uint8_t *p = data;
	int rc = w->begun ? TENON_OK
			  : error_set(e, TENON_E_INVALID, "'%.128s': data before its header", w->path);

	while (!rc && bytes) {
		const struct slot *s = &w->slot[w->current];
		uint64_t n;

		if (w->current == w->n_tensors)
			return error_set(
				e, TENON_E_INVALID, "'%.128s': more data than its tensors have", w->path);
		n = MIN_OF(bytes, s->bytes - w->in_slot);
		rc = pad_to(w, w->data0 + s->offset, e);
		if (!rc)
			rc = write_all(w, p, n, e);
		p += n;
		bytes -= n;
		w->in_slot += n;
		if (w->in_slot == s->bytes) {
			w->current++;
			w->in_slot = 0;
		}
	}
	return rc;
}

static int name_give(struct gguf_write *w, struct error *e)
{
	char self[64];

	(void)snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
	if (!w->named)
		(void)unlink(w->temp);
	if (!w->named && linkat(AT_FDCWD, self, AT_FDCWD, w->temp, AT_SYMLINK_FOLLOW))
		return error_errno(e, TENON_E_IO, errno, "'%.128s': cannot be named", w->path);
	w->named = true;
	if (rename(w->temp, w->path))
		return error_errno(e, TENON_E_IO, errno, "'%.128s': cannot be named", w->path);
	w->named = false;
	return TENON_OK;
}

/* The name itself reaches the disk too; a folder that cannot be synced is no failure of the file. */
static void dir_sync(const struct gguf_write *w)
{
	int fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		(void)fsync(fd);
		(void)close(fd);
	}
}

int gguf_write_commit(struct gguf_write *w, struct error *e)
{
	int rc;

	if (!w->begun || w->current != w->n_tensors)
		return error_set(e, TENON_E_INVALID, "'%.128s': data is missing", w->path);
	rc = pad_to(w, w->bytes, e);
	if (!rc && fsync(w->fd))
		rc = error_errno(e, TENON_E_IO, errno, "'%.128s': cannot be written", w->path);
	if (!rc)
		rc = name_give(w, e);
	if (!rc)
		dir_sync(w);
	return rc;
}
