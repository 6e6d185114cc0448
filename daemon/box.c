/* SPDX-License-Identifier: Apache-2.0
 * box.h: every access to the shared page is one relaxed atomic; the memfd is sealed against any change of size.
 */
#include "daemon/box.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BOX_BYTES = 4096, NAME_BYTES = 128 };

struct box_page {
	_Atomic uint64_t since_ns, published_ns, beside_ns;
	_Atomic uint32_t phase, permille, beside_permille;
	_Atomic uint8_t model[NAME_BYTES], beside[NAME_BYTES]; /* zero-terminated unless full */
};
_Static_assert(sizeof(struct box_page) <= BOX_BYTES, "one page");

static int map_page(struct box *b, struct error *e)
{
	void *p = mmap(NULL, BOX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

	if (p == MAP_FAILED)
		return error_errno(e, TENON_E_NOMEM, errno, "flight recorder");
	b->page = p;
	return TENON_OK;
}

int box_create(struct box *b, struct error *e)
{
	int rc;

	*b = (struct box){ .fd = memfd_create("tenon-box", MFD_CLOEXEC | MFD_ALLOW_SEALING) };
	if (b->fd < 0)
		return error_errno(e, TENON_E_NOMEM, errno, "flight recorder");
	if (ftruncate(b->fd, BOX_BYTES) ||
		fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		rc = error_errno(e, TENON_E_NOMEM, errno, "flight recorder");
	else
		rc = map_page(b, e);
	if (rc)
		box_close(b);
	return rc;
}

int box_open(struct box *b, int fd, struct error *e)
{
	off_t size = lseek(fd, 0, SEEK_END);
	int rc;

	*b = (struct box){ .fd = fd };
	if (size != BOX_BYTES)
		rc = error_set(e, TENON_E_PROTOCOL, "flight recorder: not one page");
	else
		rc = map_page(b, e);
	if (rc)
		box_close(b);
	return rc;
}

void box_close(struct box *b)
{
	if (b->page)
		(void)munmap(b->page, BOX_BYTES);
	if (b->fd > 0)
		(void)close(b->fd);
	*b = (struct box){ .fd = -1 };
}

static void write_name(_Atomic uint8_t to[NAME_BYTES], const char *model)
{
	size_t n = model ? strnlen(model, NAME_BYTES - 1) : 0;

	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&to[i], (uint8_t)model[i], memory_order_relaxed);
	atomic_store_explicit(&to[n], 0, memory_order_relaxed);
}

/* Only printable ASCII comes out: the text goes into logs and replies. */
static void read_name(const _Atomic uint8_t from[NAME_BYTES], char *out)
{
	for (size_t i = 0; i < NAME_BYTES; i++) {
		uint8_t c = atomic_load_explicit(&from[i], memory_order_relaxed);

		if (c < 0x21 || c > 0x7e)
			break;
		out[i] = (char)c;
	}
}

static bool same_model(struct box_page *p, const char *model)
{
	size_t i = 0;

	for (; i < NAME_BYTES - 1 && model[i]; i++)
		if (atomic_load_explicit(&p->model[i], memory_order_relaxed) != (uint8_t)model[i])
			return false;
	return !atomic_load_explicit(&p->model[i], memory_order_relaxed);
}

void box_loaded(struct box *b, bool beside, uint32_t permille)
{
	atomic_store_explicit(
		beside ? &b->page->beside_permille : &b->page->permille, permille, memory_order_relaxed);
}

void box_begin(struct box *b, enum box_phase phase, const char *model)
{
	struct box_page *p = b->page;

	if (!same_model(p, model ? model : ""))
		write_name(p->model, model);
	atomic_store_explicit(&p->since_ns, clock_now_ns(), memory_order_relaxed);
	if (phase == BOX_LOAD)
		box_loaded(b, false, 0);
	atomic_store_explicit(&p->phase, (uint32_t)phase, memory_order_release);
}

void box_beside(struct box *b, const char *model)
{
	box_loaded(b, true, 0);
	write_name(b->page->beside, model);
	atomic_store_explicit(&b->page->beside_ns, model ? clock_now_ns() : 0, memory_order_release);
}

void box_published(struct box *b, uint64_t now_ns)
{
	atomic_store_explicit(&b->page->published_ns, now_ns, memory_order_relaxed);
}

uint64_t box_published_ns(const struct box *b)
{
	return atomic_load_explicit(&b->page->published_ns, memory_order_relaxed);
}

void box_read(const struct box *b, struct box_reading *out)
{
	const struct box_page *p = b->page;
	uint32_t phase = atomic_load_explicit(&p->phase, memory_order_acquire);

	*out = (struct box_reading){ .phase = phase < BOX_N_PHASES ? (enum box_phase)phase : BOX_IDLE,
		.since_ns = atomic_load_explicit(&p->since_ns, memory_order_relaxed),
		.published_ns = box_published_ns(b) };
	out->permille = MIN_OF(atomic_load_explicit(&p->permille, memory_order_relaxed), 1000u);
	out->beside_permille = MIN_OF(atomic_load_explicit(&p->beside_permille, memory_order_relaxed), 1000u);
	out->beside_ns = atomic_load_explicit(&p->beside_ns, memory_order_acquire);
	read_name(p->model, out->model);
	read_name(p->beside, out->beside);
}

const char *box_phase_name(enum box_phase phase)
{
	static const char *const names[BOX_N_PHASES] = { "idle", "start", "load", "step", "unload" };

	return phase < BOX_N_PHASES ? names[phase] : "unknown";
}
