/* SPDX-License-Identifier: Apache-2.0
 * A plugin's shared object: loaded once, checked once, never unloaded (rule R8). What it says about itself is copied
 * and made safe: a table longer than ours is fine, a shorter one ends in zeros (R2, R5).
 */
#include "plugins/plugins_priv.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* All functions up to `wait` are required; they stand in one row behind the strings. */
static bool required_present(const struct tnp_ops *ops)
{
	const char *p = (const char *)&ops->start, *end = (const char *)&ops->kv_read;

	for (; p < end; p += sizeof(void (*)(void))) {
		void (*fn)(void);

		memcpy(&fn, p, sizeof fn);
		if (!fn)
			return false;
	}
	return true;
}

static int take_table(struct module *m, const struct tnp_ops *theirs, const char *name, struct error *e)
{
	struct tnp_ops ops = { 0 };
	size_t n = MIN_OF(theirs->size, sizeof ops);

	if (theirs->size < offsetof(struct tnp_ops, kv_read))
		return error_set(e, TENON_E_VERSION,
			"plugin '%s': its function table has %u bytes, %zu are required; rebuild it", name,
			theirs->size, offsetof(struct tnp_ops, kv_read));
	memcpy(&ops, theirs, n);
	if (ops.abi_major != TNP_ABI_MAJOR)
		return error_set(e, TENON_E_VERSION,
			"plugin '%s': speaks ABI %u, this host speaks %u; use a build for it", name,
			ops.abi_major, TNP_ABI_MAJOR);
	if (!required_present(&ops))
		return error_set(e, TENON_E_VERSION,
			"plugin '%s': a required function is missing; see docs/plugin-abi.md", name);
	if (!ops.name || strcmp(ops.name, name))
		return error_set(e, TENON_E_BACKEND,
			"plugin '%s': calls itself '%.40s'; manifest and plugin must agree", name,
			ops.name ? ops.name : "");
	ops.vendor = ops.vendor ? ops.vendor : "";
	ops.version = ops.version ? ops.version : "";
	m->ops = ops;
	return TENON_OK;
}

/* The dynamic loader takes two objects of the same path for one, and descriptor numbers come back. So the path is
 * spelled differently for each file: one "./" or "/" a bit of its identity, none of which changes where it leads. */
static bool object_path(int fd, char *path, size_t room)
{
	struct stat st;
	uint64_t id;
	size_t n;

	if (fstat(fd, &st))
		return false;
	id = (uint64_t)st.st_ino * UINT64_C(0x9e3779b97f4a7c15) ^
		(uint64_t)st.st_dev * UINT64_C(0xc2b2ae3d27d4eb4f) ^
		(uint64_t)st.st_mtim.tv_sec * UINT64_C(0x165667b19e3779f9) ^ (uint64_t)st.st_mtim.tv_nsec;
	id ^= id >> 32;
	n = (size_t)snprintf(path, room, "/proc/self/fd/");
	for (int bit = 0; bit < 32; bit++)
		n += (size_t)snprintf(path + n, room - n, "%s", id >> bit & 1 ? "./" : "/");
	return (size_t)snprintf(path + n, room - n, "%d", fd) < room - n;
}

int module_load(struct module *m, int fd, const char *name, struct error *e)
{
	const struct tnp_ops *theirs;
	tnp_entry_fn *entry;
	char path[128];
	void *dl, *sym;

	if (!object_path(fd, path, sizeof path))
		return error_errno(e, TENON_E_IO, errno, "plugin '%s'", name);
	dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!dl)
		return error_set(
			e, TENON_E_BACKEND, "plugin '%s': cannot be loaded: %.180s", name, dlerror());
	sym = dlsym(dl, TNP_ENTRY_NAME);
	if (!sym)
		return error_set(e, TENON_E_BACKEND,
			"plugin '%s': has no " TNP_ENTRY_NAME "; it is not a Tenon plugin", name);
	memcpy(&entry, &sym, sizeof entry);
	theirs = entry(TNP_ABI_MAJOR, TNP_ABI_MAJOR);
	if (!theirs)
		return error_set(e, TENON_E_VERSION, "plugin '%s': does not speak ABI %u; use a build for it",
			name, TNP_ABI_MAJOR);
	return take_table(m, theirs, name, e);
}

int module_start(struct module *m, struct plugin_host *h, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	int rc;

	if (m->ops.abi_minor < 1)
		h->table.size = offsetof(struct tnp_host, progress);
	rc = plugin_error(h->name, "start", m->ops.start(&h->table, &te), &te, e);
	m->started = !rc;
	return rc;
}

void module_stop(struct module *m)
{
	struct tnp_error te = TNP_ERROR_INIT;

	if (m->started)
		(void)m->ops.stop(&te);
	m->started = false;
}

int module_devices(struct module *m, uint32_t *n, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	uint32_t count = 0;
	int rc = plugin_error(m->ops.name, "dev_count", m->ops.dev_count(&count, &te), &te, e);

	if (!rc)
		*n = count;
	return rc;
}

/* A feature is a promise that its functions are there. */
static bool promises_kept(const struct tnp_ops *o, uint64_t features)
{
	return (!(features & TNP_F_KV_IO) || (o->kv_read && o->kv_write)) &&
		(!(features & TNP_F_FD) || o->done_fd) && (!(features & TNP_F_CANCEL) || o->cancel) &&
		(!(features & TNP_F_PROFILE) || o->profile);
}

int module_device(struct module *m, uint32_t i, struct tnp_device *out, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	struct tnp_device d = { .size = sizeof d };
	int rc = plugin_error(m->ops.name, "dev_info", m->ops.dev_info(i, &d, &te), &te, e);

	if (rc)
		return rc;
	d.name[sizeof d.name - 1] = d.driver[sizeof d.driver - 1] = d.isa[sizeof d.isa - 1] = 0;
	if (!promises_kept(&m->ops, d.features))
		return error_set(e, TENON_E_BACKEND,
			"plugin '%s': device %u reports a feature whose function is missing", m->ops.name, i);
	d.size = sizeof d;
	*out = d;
	return TENON_OK;
}
