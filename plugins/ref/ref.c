/* SPDX-License-Identifier: Apache-2.0
 * The table of the reference plugin: start and stop, the one device (the host's processor), what it can do.
 * Config keys: `threads` (default: the processors this process may run on).
 */
#include "ref.h"
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 64u

/* The ABI has no handle for the plugin itself; this is what lives between start and stop. */
static struct {
	struct tnp_host host;
	bool on;
} started;

/* ---- helpers of all files ------------------------------------------------------------------- */
tnp_rc ref_fail(struct tnp_error *e, tnp_rc rc, uint32_t item, const char *fmt, ...)
{
	va_list ap;

	if (!e || e->size < sizeof *e)
		return rc;
	e->rc = rc;
	e->vendor_code = 0;
	e->item = item;
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	return rc;
}

/* Rules R2 and R3: the missing tail is zero, an unknown tail must be. */
tnp_rc ref_take(void *own, uint32_t own_bytes, const void *theirs, const char *what, struct tnp_error *e)
{
	uint32_t size;

	if (!theirs)
		return ref_fail(e, TNP_E_INVALID, 0, "%s: NULL", what);
	memcpy(&size, theirs, sizeof size);
	if (size < sizeof size)
		return ref_fail(e, TNP_E_INVALID, 0, "%s: size %u", what, size);
	for (uint32_t i = own_bytes; i < size; i++)
		if (((const uint8_t *)theirs)[i])
			return ref_fail(
				e, TNP_E_UNSUPPORTED, i, "%s: byte %u is from a newer header", what, i);
	memset(own, 0, own_bytes);
	memcpy(own, theirs, size < own_bytes ? size : own_bytes);
	return TNP_OK;
}

uint64_t ref_mem_total(void) { return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE); }

/* ---- start and stop --------------------------------------------------------------------------- */
static tnp_rc ref_start(const struct tnp_host *h, struct tnp_error *e)
{
	tnp_rc rc = ref_take(&started.host, sizeof started.host, h, "host", e);

	if (rc == TNP_OK && started.on)
		return ref_fail(e, TNP_E_INVALID, 0, "start: called twice");
	started.on = rc == TNP_OK;
	return rc;
}

static tnp_rc ref_stop(struct tnp_error *e)
{
	if (!started.on)
		return ref_fail(e, TNP_E_INVALID, 0, "stop: not started");
	started.on = false;
	return TNP_OK;
}

static tnp_rc device_ok(uint32_t i, struct tnp_error *e)
{
	if (!started.on)
		return ref_fail(e, TNP_E_INVALID, i, "device: start was not called");
	return i == 0 ? TNP_OK : ref_fail(e, TNP_E_INVALID, i, "device %u: there is one, number 0", i);
}

static tnp_rc ref_dev_count(uint32_t *n, struct tnp_error *e)
{
	tnp_rc rc = device_ok(0, e);

	if (rc == TNP_OK)
		*n = 1;
	return rc;
}

static tnp_rc ref_dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	struct tnp_device d = { .kind = TNP_CPU,
		.uuid = "tenon-host-cpu",
		.name = "reference (double precision)",
		.driver = "tenon",
		.isa = "any",
		.features = TNP_F_INVARIANT | TNP_F_KV_IO,
		.numa_node = -1 };
	tnp_rc rc = device_ok(i, e);

	if (rc)
		return rc;
	d.mem_total = d.mem_max_alloc = ref_mem_total();
	d.size = o->size < sizeof d ? o->size : sizeof d;
	memcpy(o, &d, d.size);
	return TNP_OK;
}

static uint32_t thread_count(void)
{
	const char *want = started.host.config ? started.host.config(started.host.ctx, "threads") : NULL;
	long n = want ? strtol(want, NULL, 10) : 0;
	cpu_set_t set;

	if (n < 1)
		n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
	return n > (long)MAX_THREADS ? MAX_THREADS : (uint32_t)n;
}

static tnp_rc ref_dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	tnp_rc rc = device_ok(i, e);
	struct tnp_dev *d;

	if (rc)
		return rc;
	d = calloc(1, sizeof *d);
	if (d)
		d->pool = ref_pool_create(thread_count());
	if (!d || !d->pool) {
		free(d);
		return ref_fail(e, TNP_E_NOMEM, i, "device: no memory or threads");
	}
	*o = d;
	return TNP_OK;
}

static void ref_dev_close(struct tnp_dev *d)
{
	if (!d)
		return;
	ref_pool_destroy(d->pool);
	free(d);
}

static tnp_rc ref_dev_memory(struct tnp_dev *d, uint64_t *free_bytes, struct tnp_error *e)
{
	(void)d;
	(void)e;
	*free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return TNP_OK;
}

/* ---- what it can do --------------------------------------------------------------------------- */
static tnp_rc caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	(void)d;
	(void)e;
	*n = ref_op_caps(rows, rows ? *n : 0);
	return TNP_OK;
}

static tnp_rc kv_caps(
	struct tnp_dev *d, uint64_t *types, uint32_t *page_min, uint32_t *page_max, struct tnp_error *e)
{
	(void)d;
	(void)e;
	*types = REF_KV_TYPES;
	*page_min = 1;
	*page_max = REF_PAGE_MAX;
	return TNP_OK;
}

/* A step is done when batch returns, so every ticket given out is. */
static tnp_rc ref_wait(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	(void)timeout_ns;
	if (ticket == 0 || ticket > d->ticket)
		return ref_fail(e, TNP_E_INVALID, 0, "wait: ticket %llu was never given out",
			(unsigned long long)ticket);
	return TNP_OK;
}

static const struct tnp_ops table = {
	.size = sizeof table,
	.abi_major = TNP_ABI_MAJOR,
	.abi_minor = TNP_ABI_MINOR,
	.name = "ref",
	.vendor = "Tenon",
	.version = "1",
	.start = ref_start,
	.stop = ref_stop,
	.dev_count = ref_dev_count,
	.dev_info = ref_dev_info,
	.dev_open = ref_dev_open,
	.dev_close = ref_dev_close,
	.dev_memory = ref_dev_memory,
	.op_caps = caps,
	.kv_caps = kv_caps,
	.model_check = ref_model_check,
	.model_sizes = ref_model_sizes,
	.model_open = ref_model_open,
	.model_close = ref_model_close,
	.kv_open = ref_kv_open,
	.kv_close = ref_kv_close,
	.kv_copy = ref_kv_copy,
	.batch = ref_batch,
	.wait = ref_wait,
	.kv_read = ref_kv_read,
	.kv_write = ref_kv_write,
};

__attribute__((visibility("default"))) tnp_entry_fn tnp_entry;

const struct tnp_ops *tnp_entry(uint32_t want_major, uint32_t least_major)
{
	return want_major >= TNP_ABI_MAJOR && least_major <= TNP_ABI_MAJOR ? &table : NULL;
}
