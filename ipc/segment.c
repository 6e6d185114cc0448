/* SPDX-License-Identifier: Apache-2.0
 * Segments: memfds that nobody can shrink under us. Made by the daemon (or the parent of a worker), populated before
 * use so that a lack of memory is an errno and not a SIGBUS, mapped with the ring twice in a row.
 * Owner: whoever holds the link; no thread of its own.
 */
#include "ipc/shared.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

_Static_assert(sizeof(struct wire_segment) == 256, "layout of the header page is the protocol");
_Static_assert(offsetof(struct wire_segment, tail) == 64 && offsetof(struct wire_segment, head) == 128 &&
		offsetof(struct wire_segment, asleep) == 192,
	"tail, head and asleep own a cache line each");
_Static_assert(sizeof(struct wire_head) == 16 && sizeof(struct wire_hello) == 128 &&
		sizeof(struct wire_request) == 136,
	"layout of frames is the protocol");

static const int seals_size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static size_t segment_span(uint64_t ring_bytes) { return WIRE_RING_OFFSET + 2 * (size_t)ring_bytes; }
static off_t segment_file(uint64_t ring_bytes) { return (off_t)(WIRE_RING_OFFSET + ring_bytes); }

static bool segment_size_valid(uint64_t ring_bytes)
{
	return ring_bytes >= WIRE_RING_MIN && ring_bytes <= WIRE_RING_MAX && !(ring_bytes & (ring_bytes - 1));
}

static int segment_map(struct segment *s, int prot, struct error *e)
{
	size_t span = segment_span(s->ring_bytes), first = (size_t)segment_file(s->ring_bytes);
	uint8_t *at = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return error_errno(e, TENON_E_NOMEM, errno, "segment: cannot reserve addresses");
	s->head = (void *)at;
	s->ring = at + WIRE_RING_OFFSET;
	if (mmap(at, first, prot, MAP_SHARED | MAP_FIXED, s->fd, 0) == MAP_FAILED ||
		mmap(at + first, (size_t)s->ring_bytes, prot, MAP_SHARED | MAP_FIXED, s->fd,
			WIRE_RING_OFFSET) == MAP_FAILED ||
		madvise(at, span, MADV_DONTFORK))
		return error_errno(e, TENON_E_NOMEM, errno, "segment: cannot map");
	(void)madvise(at, span, MADV_DONTDUMP);
	return TENON_OK;
}

/* Backs every page now. Kernels before 5.14 know fallocate only, which does the same without page tables. */
static int segment_populate(struct segment *s, struct error *e)
{
	size_t span = segment_span(s->ring_bytes);

	if (!madvise(s->head, span, MADV_POPULATE_WRITE))
		return TENON_OK;
	if (errno == EINVAL && !fallocate(s->fd, 0, 0, segment_file(s->ring_bytes)))
		return TENON_OK;
	return error_errno(e, TENON_E_NOMEM, errno, "segment: no memory for a ring of %llu bytes",
		(unsigned long long)s->ring_bytes);
}

static int segment_memfd(void)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create("tenon", flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create("tenon", flags) : fd;
}

static int segment_build(struct segment *s, bool peer_writes, struct error *e)
{
	int rc, seals = seals_size | (peer_writes ? 0 : F_SEAL_FUTURE_WRITE);

	s->fd = segment_memfd();
	if (s->fd < 0)
		return error_errno(e, TENON_E_NOMEM, errno, "segment: cannot create a memfd");
	if (ftruncate(s->fd, segment_file(s->ring_bytes)))
		return error_errno(e, TENON_E_NOMEM, errno, "segment: cannot size a memfd");
	rc = segment_map(s, PROT_READ | PROT_WRITE, e);
	if (!rc)
		rc = segment_populate(s, e);
	if (rc)
		return rc;
	shared_init(s->head, s->ring_bytes);
	if ((peer_writes && mprotect(s->head, segment_span(s->ring_bytes), PROT_READ)) ||
		fchmod(s->fd, peer_writes ? 0600 : 0400) || fcntl(s->fd, F_ADD_SEALS, seals))
		return error_errno(e, TENON_E_IO, errno, "segment: cannot seal");
	return TENON_OK;
}

int segment_create(struct segment *s, uint64_t ring_bytes, bool peer_writes, struct error *e)
{
	int rc;

	*s = (struct segment){ .fd = -1, .writable = !peer_writes, .ring_bytes = ring_bytes };
	if (!segment_size_valid(ring_bytes))
		return error_set(e, TENON_E_INVALID,
			"segment: ring size %llu is not a power of two in %u..%u",
			(unsigned long long)ring_bytes, WIRE_RING_MIN, WIRE_RING_MAX);
	rc = segment_build(s, peer_writes, e);
	if (rc)
		segment_close(s);
	return rc;
}

/* A descriptor that comes from outside: only a memfd of the right size that nobody can change in size any more. */
static int segment_check(const struct segment *s, struct error *e)
{
	int need = seals_size | (s->writable ? 0 : F_SEAL_FUTURE_WRITE), got = fcntl(s->fd, F_GET_SEALS);
	struct stat st;

	if (got < 0 || (got & need) != need)
		return error_set(e, TENON_E_PROTOCOL,
			"segment: descriptor is not a memfd with the seals it must have");
	if (fstat(s->fd, &st) || !S_ISREG(st.st_mode) || st.st_size != segment_file(s->ring_bytes))
		return error_set(e, TENON_E_PROTOCOL, "segment: size differs from the one agreed");
	return TENON_OK;
}

int segment_open(struct segment *s, int fd, uint64_t ring_bytes, bool writable, struct error *e)
{
	int rc;

	*s = (struct segment){ .fd = fd, .writable = writable, .ring_bytes = ring_bytes };
	rc = segment_size_valid(ring_bytes) ? segment_check(s, e)
					    : error_set(e, TENON_E_PROTOCOL, "segment: impossible ring size");
	if (!rc)
		rc = segment_map(s, writable ? PROT_READ | PROT_WRITE : PROT_READ, e);
	if (!rc && !shared_valid(s->head, ring_bytes))
		rc = error_set(e, TENON_E_PROTOCOL, "segment: wrong magic, version or size in its header");
	if (rc) {
		segment_close(s);
		return rc;
	}
	(void)madvise(s->head, segment_span(ring_bytes), writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	return TENON_OK;
}

void segment_close(struct segment *s)
{
	if (s->head)
		(void)munmap(s->head, segment_span(s->ring_bytes));
	if (s->fd > 0)
		(void)close(s->fd);
	*s = (struct segment){ .fd = -1 };
}
