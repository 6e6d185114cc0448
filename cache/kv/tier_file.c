/* SPDX-License-Identifier: Apache-2.0
 * A tier in a file: a head, then segments of 64 records, the heads of a segment before its pages, so that a start reads
 * little. Pages are written before the head that vouches for them; a free place has a zeroed head. The file's size is
 * what counts against the limit: it ends with the last record, and has no bytes at all without one.
 * Everything in it is hostile until its checksum holds. Owner: the step thread.
 */
#include "cache/kv/tier_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_HEAD_BYTES = 256, SEGMENT = 64, FILE_VERSION = 1 };

struct file_head {
	char magic[8];
	uint32_t version, n_groups, page_tokens, head_bytes;
	uint64_t page_bytes[KV_MAX_GROUPS];
	uint8_t compat[32];
	uint8_t sum[TIER_SUM_BYTES]; /* of all before */
};
static const char MAGIC[8] = { 'T', 'E', 'N', 'O', 'N', 'K', 'V', '\n' };

/* ---- places -------------------------------------------------------------------------------------------------------- */
static uint64_t segment_at(const struct kv_tier *t, uint32_t slot)
{
	return FILE_HEAD_BYTES + slot / SEGMENT * (SEGMENT * (t->head_bytes + t->data_bytes));
}

static uint64_t head_at(const struct kv_tier *t, uint32_t slot)
{
	return segment_at(t, slot) + slot % SEGMENT * (uint64_t)t->head_bytes;
}

static uint64_t data_at(const struct kv_tier *t, uint32_t slot)
{
	return segment_at(t, slot) + SEGMENT * (uint64_t)t->head_bytes + slot % SEGMENT * t->data_bytes;
}

static uint64_t file_bytes(const struct kv_tier *t, uint32_t n_slots, uint32_t n_records, uint32_t cap)
{
	(void)n_records;
	(void)cap;
	return n_slots ? data_at(t, n_slots - 1) + t->data_bytes : 0;
}

/* ---- reading and writing ------------------------------------------------------------------------------------------- */
static bool read_all(struct kv_tier *t, void *out, size_t n, uint64_t at)
{
	uint8_t *p = out;

	while (n) {
		ssize_t k = t->io.read(t->fd, p, n, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
		at += (uint64_t)k;
	}
	return true;
}

static bool write_all(struct kv_tier *t, const void *in, size_t n, uint64_t at)
{
	const uint8_t *p = in;

	while (n) {
		ssize_t k = t->io.write(t->fd, p, n, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
		at += (uint64_t)k;
	}
	return true;
}

static void make_file_head(const struct kv_tier *t, uint8_t out[FILE_HEAD_BYTES])
{
	struct file_head h = { .version = FILE_VERSION,
		.n_groups = t->n_groups,
		.page_tokens = t->page_tokens,
		.head_bytes = t->head_bytes };

	memcpy(h.magic, MAGIC, sizeof MAGIC);
	memcpy(h.page_bytes, t->page_bytes, sizeof h.page_bytes);
	memcpy(h.compat, t->compat, sizeof h.compat);
	tier_sum(t, (const uint8_t *)&h, offsetof(struct file_head, sum), h.sum);
	memset(out, 0, FILE_HEAD_BYTES);
	memcpy(out, &h, sizeof h);
}

static bool write_file_head(struct kv_tier *t)
{
	uint8_t head[FILE_HEAD_BYTES];

	make_file_head(t, head);
	t->has_head = t->has_head || write_all(t, head, sizeof head, 0);
	return t->has_head;
}

static bool write_data(
	struct kv_tier *t, uint32_t slot, const void *const data[KV_MAX_GROUPS], uint32_t groups)
{
	uint64_t at = data_at(t, slot);

	for (uint32_t g = 0; g < t->n_groups; g++) {
		if (groups & 1u << g && !write_all(t, data[g], t->page_bytes[g], at))
			return false;
		at += t->page_bytes[g];
	}
	return true;
}

/* Writing past the process's own limit would raise a signal. */
static bool within_rlimit(uint64_t bytes)
{
	struct rlimit r;

	return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur;
}

/* The file gets its new size first: a hole at the end of the last page (a group that is missing) still counts. */
static int file_write(struct kv_tier *t, uint32_t slot, const uint8_t *head,
	const void *const data[KV_MAX_GROUPS], uint32_t groups)
{
	uint64_t end = file_bytes(t, slot + 1, 0, 0);

	if (slot >= t->n_slots && (!within_rlimit(end) || t->io.truncate(t->fd, (off_t)end)))
		return TENON_E_IO;
	if (!write_file_head(t) || !write_data(t, slot, data, groups) ||
		!write_all(t, head, t->head_bytes, head_at(t, slot)))
		return TENON_E_IO;
	return TENON_OK;
}

static bool file_read_head(struct kv_tier *t, uint32_t slot, uint8_t *head)
{
	return read_all(t, head, t->head_bytes, head_at(t, slot));
}

static bool file_read_data(struct kv_tier *t, uint32_t slot, void *const data[KV_MAX_GROUPS], uint32_t groups)
{
	uint64_t at = data_at(t, slot);

	for (uint32_t g = 0; g < t->n_groups; g++) {
		if (groups & 1u << g && !read_all(t, data[g], t->page_bytes[g], at))
			return false;
		at += t->page_bytes[g];
	}
	return true;
}

/* If this fails the record may be found again after a restart: it is a true one then, only not wanted. */
static void file_erase(struct kv_tier *t, uint32_t slot)
{
	memset(t->head, 0, t->head_bytes);
	(void)write_all(t, t->head, t->head_bytes, head_at(t, slot));
}

static bool file_move(struct kv_tier *t, uint32_t from, uint32_t to)
{
	uint8_t some[16384];
	uint64_t done = 0;

	while (done < t->data_bytes) {
		size_t n = (size_t)MIN_OF(t->data_bytes - done, sizeof some);

		if (!read_all(t, some, n, data_at(t, from) + done) ||
			!write_all(t, some, n, data_at(t, to) + done))
			return false;
		done += n;
	}
	return file_read_head(t, from, t->head) && write_all(t, t->head, t->head_bytes, head_at(t, to));
}

static void file_cut(struct kv_tier *t, uint32_t n_slots)
{
	if (!n_slots)
		t->has_head = false;
	(void)t->io.truncate(t->fd, (off_t)file_bytes(t, n_slots, 0, 0));
}

const struct tier_media tier_file = { .checked = true,
	.bytes = file_bytes,
	.write = file_write,
	.read_head = file_read_head,
	.read_data = file_read_data,
	.erase = file_erase,
	.move = file_move,
	.cut = file_cut };

/* ---- opening ------------------------------------------------------------------------------------------------------- */
/* Records of one segment, as far as they lie in the file and within the limit. */
static int scan_segment(struct kv_tier *t, uint32_t first, uint32_t n, uint8_t *heads, struct error *e)
{
	if (!read_all(t, heads, (size_t)n * t->head_bytes, head_at(t, first)))
		return TENON_OK;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *head = heads + (size_t)i * t->head_bytes;

		if (tier_head_check(t, head) && !tier_found(t, first + i, head))
			return error_set(e, TENON_E_NOMEM, "tier: out of memory for the index");
	}
	return TENON_OK;
}

static int scan(struct kv_tier *t, uint64_t bytes, struct error *e)
{
	uint8_t *heads = mem_alloc(MEM_KV, (size_t)SEGMENT * t->head_bytes);
	uint64_t end = MIN_OF(bytes, t->status.limit_bytes);
	int rc = TENON_OK;

	if (!heads)
		return error_set(e, TENON_E_NOMEM, "tier: out of memory");
	for (uint32_t first = 0; !rc && first < TIER_MAX_SLOTS - SEGMENT; first += SEGMENT) {
		uint64_t start = data_at(t, first), n = end > start ? (end - start) / t->data_bytes : 0;

		if (n)
			rc = scan_segment(t, first, (uint32_t)MIN_OF(n, SEGMENT), heads, e);
		if (n < SEGMENT)
			break;
	}
	mem_free(heads);
	return rc;
}

/* What is not a tier's file and readable by others was hardly made by one: somebody gave the wrong path. */
static int adopt(struct kv_tier *t, const char *path, struct error *e)
{
	uint8_t want[FILE_HEAD_BYTES], have[FILE_HEAD_BYTES] = { 0 };
	struct stat st;
	int rc = TENON_OK;

	if (fstat(t->fd, &st))
		return error_errno(e, TENON_E_IO, errno, "tier file '%s'", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return error_set(
			e, TENON_E_IO, "tier file '%s': not a file of this user; give another path", path);
	make_file_head(t, want);
	if (!read_all(t, have, sizeof have, 0) || memcmp(have, want, sizeof want)) {
		if (st.st_size && st.st_mode & 077 && memcmp(have, MAGIC, sizeof MAGIC))
			return error_set(e, TENON_E_IO,
				"tier file '%s': holds something else; give another path", path);
	} else {
		t->has_head = true;
		rc = scan(t, (uint64_t)st.st_size, e);
	}
	if (rc)
		return rc;
	if (fchmod(t->fd, 0600) || t->io.truncate(t->fd, (off_t)file_bytes(t, t->n_slots, 0, 0)))
		return error_errno(e, TENON_E_IO, errno, "tier file '%s'", path);
	t->has_head = t->n_slots != 0;
	return TENON_OK;
}

int tier_file_open(struct kv_tier *t, const char *path, struct error *e)
{
	t->io = (struct tier_io){ .read = pread, .write = pwrite, .truncate = ftruncate };
	t->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (t->fd < 0)
		return error_errno(e, TENON_E_IO, errno, "tier file '%s'", path);
	if (flock(t->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK
			? error_set(e, TENON_E_BUSY,
				  "tier file '%s': in use by another process; give another path", path)
			: error_errno(e, TENON_E_IO, errno, "tier file '%s'", path);
	return adopt(t, path, e);
}

void tier_file_close(struct kv_tier *t)
{
	if (t->fd >= 0)
		(void)close(t->fd);
}

/* ---- the kernel's cache -------------------------------------------------------------------------------------------- */
void kv_tier_hint(struct kv_tier *t, const uint32_t *slots, uint32_t n)
{
	for (uint32_t i = 0; t->fd >= 0 && i < n; i++)
		if (slots[i] < t->n_slots)
			(void)posix_fadvise(t->fd, (off_t)data_at(t, slots[i]), (off_t)t->data_bytes,
				POSIX_FADV_WILLNEED);
}

void kv_tier_make_cold(struct kv_tier *t, uint32_t slot)
{
	off_t at;

	if (t->fd < 0 || slot >= t->n_slots)
		return;
	at = (off_t)data_at(t, slot);
	(void)sync_file_range(t->fd, at, (off_t)t->data_bytes,
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	(void)posix_fadvise(t->fd, at, (off_t)t->data_bytes, POSIX_FADV_DONTNEED);
}
