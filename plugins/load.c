/* SPDX-License-Identifier: Apache-2.0
 * The list of plugins: which manifests there are, which variant of each runs here, what the probe said. Knows no
 * plugin by name. One struct plugins belongs to one thread; its entries stay where they are until plugins_close.
 */
#include "plugins/plugins_priv.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".plugin"
#define STAGE                                                                                                \
	"plugins/stage" /* build tree: the same flat folder as an installed one, see plugins/README.md */

void plugin_set_state(struct plugin *p, enum plugin_state state, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(p->reason, sizeof p->reason, fmt, ap);
	va_end(ap);
	p->info.state = state;
	p->info.reason = p->reason;
}

void plugin_take_result(struct plugin *p, const struct probe_result *r)
{
	p->probe = *r;
	if (r->code) {
		plugin_set_state(p, PLUGIN_QUARANTINED, "%s", r->text);
		return;
	}
	p->info.version = p->probe.version;
	p->info.devices = p->probe.device;
	p->info.n_devices = p->probe.n_devices;
	if (r->n_devices)
		plugin_set_state(p, PLUGIN_USABLE, "%s", "");
	else
		plugin_set_state(p, PLUGIN_UNUSABLE, "no device of this kind in the machine");
}

/* Of one that the manifest tells no hash of: any change of it changes its inode's times too. */
static void file_identity(int fd, uint8_t out[32])
{
	struct stat st = { 0 };
	uint64_t v[6];

	(void)fstat(fd, &st);
	v[0] = (uint64_t)st.st_dev, v[1] = (uint64_t)st.st_ino, v[2] = (uint64_t)st.st_size;
	v[3] = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	v[4] = (uint64_t)st.st_ctim.tv_sec * NS_PER_S + (uint64_t)st.st_ctim.tv_nsec;
	v[5] = (uint64_t)st.st_uid;
	(void)crypto_generichash(out, 32, (const uint8_t *)v, sizeof v, NULL, 0);
}

int plugin_open_object(const struct plugin *p, int *fd, uint8_t id[32], struct error *e)
{
	int dir, rc = plugin_dir_open(p->dir, &dir, e);

	if (rc)
		return rc;
	rc = plugin_file_open(dir, p->dir, p->variant->file, fd, e);
	(void)close(dir);
	if (rc)
		return rc;
	if (p->variant->has_sha256)
		rc = plugin_file_sha256(*fd, p->variant->file, id, e);
	else
		file_identity(*fd, id);
	if (!rc && p->variant->has_sha256 && memcmp(id, p->variant->sha256, 32))
		rc = error_set(e, TENON_E_DENIED,
			"plugin '%s': %s does not have the sha256 that %s tells; install both again",
			p->info.name, p->variant->file, p->path);
	if (rc)
		(void)close(*fd);
	return rc;
}

static void plugin_free(struct plugin *p)
{
	if (!p)
		return;
	module_stop(&p->module);
	if (p->has_host)
		plugin_host_finish(&p->host);
	mem_free(p->dir);
	mem_free(p->path);
	mem_free(p);
}

/* Majors of both sides meet? */
static bool speaks(const struct manifest *m)
{
	for (uint32_t i = 0; i < m->n_majors; i++)
		if (m->major[i] == TNP_ABI_MAJOR)
			return true;
	return false;
}

static int read_manifest(struct plugin *p, int dir_fd, const char *file, struct error *e)
{
	char *text = NULL;
	size_t len = 0;
	int fd, rc = plugin_file_open(dir_fd, p->dir, file, &fd, e);

	if (rc)
		return rc;
	rc = plugin_file_read(fd, file, MANIFEST_MAX_BYTES, &text, &len, e);
	(void)close(fd);
	if (!rc)
		rc = manifest_parse(p->path, text, len, &p->manifest, e);
	mem_free(text);
	return rc;
}

/* From the manifest to the entry; whatever is wrong becomes the entry's reason. */
static void judge(struct plugin *p, int dir_fd, const char *file)
{
	struct error e = { 0 };
	char why[160] = "";

	if (read_manifest(p, dir_fd, file, &e)) {
		plugin_set_state(p, PLUGIN_UNUSABLE, "%s", e.text);
		return;
	}
	p->info.vendor = p->manifest.vendor;
	if (strcmp(p->manifest.name, p->host.name)) {
		plugin_set_state(p, PLUGIN_UNUSABLE, "%s: is named '%s' inside; file and name must agree",
			p->path, p->manifest.name);
		return;
	}
	if (!speaks(&p->manifest)) {
		plugin_set_state(p, PLUGIN_UNUSABLE, "is for other versions of the ABI; this host speaks %u",
			TNP_ABI_MAJOR);
		return;
	}
	p->variant = manifest_choose(&p->manifest, why, sizeof why);
	if (!p->variant) {
		plugin_set_state(p, PLUGIN_UNUSABLE, "%s", why);
		return;
	}
	p->info.variant = p->variant->name;
	p->info.file = p->variant->file;
}

static struct plugin *find(const struct plugins *list, const char *name)
{
	for (size_t i = 0; i < list->n; i++)
		if (!strcmp(list->list[i]->info.name, name))
			return list->list[i];
	return NULL;
}

static int add(struct plugins *list, int dir_fd, const char *dir, const char *file, struct error *e)
{
	struct plugin *p = mem_zalloc(MEM_PLUGIN, 1, sizeof *p), *other;
	char name[MANIFEST_NAME_BYTES];
	size_t len = strlen(file) - strlen(SUFFIX);
	int rc;

	if (!p)
		return error_set(e, TENON_E_NOMEM, "plugins: no memory for the list");
	(void)snprintf(name, sizeof name, "%.*s", (int)MIN_OF(len, sizeof name - 1), file);
	rc = plugin_host_init(&p->host, name, &list->config, e);
	p->has_host = !rc;
	p->dir = mem_strdup(MEM_PLUGIN, dir);
	p->path = mem_alloc(MEM_PLUGIN, strlen(dir) + strlen(file) + 2);
	if (rc || !p->dir || !p->path) {
		plugin_free(p);
		return error_set(e, TENON_E_NOMEM, "plugins: no memory for the list");
	}
	(void)sprintf(p->path, "%s/%s", dir, file);
	p->info = (struct plugin_info){
		.name = p->host.name, .vendor = "", .version = "", .file = "", .variant = ""
	};
	plugin_set_state(p, PLUGIN_LISTED, "%s", "");
	other = find(list, p->info.name);
	if (other)
		plugin_set_state(p, PLUGIN_UNUSABLE, "%s has the same name and comes first", other->path);
	else
		judge(p, dir_fd, file);
	list->list[list->n++] = p;
	return TENON_OK;
}

static int is_manifest(const struct dirent *d)
{
	size_t len = strlen(d->d_name);

	return len > strlen(SUFFIX) && d->d_name[0] != '.' &&
		!strcmp(d->d_name + len - strlen(SUFFIX), SUFFIX);
}

static int scan(struct plugins *list, const char *dir, struct error *e)
{
	struct dirent **names = NULL;
	int fd, n, rc = plugin_dir_open(dir, &fd, e);

	if (rc)
		return rc;
	n = scandirat(fd, ".", &names, is_manifest, alphasort);
	if (n < 0)
		rc = error_errno(e, TENON_E_IO, errno, "plugin folder '%.128s'", dir);
	for (int i = 0; i < n; i++) {
		if (!rc && list->n == COUNT_OF(list->list))
			rc = error_set(e, TENON_E_TOO_LONG, "plugin folder '%.128s': more than %zu plugins",
				dir, COUNT_OF(list->list));
		if (!rc)
			rc = add(list, fd, dir, names[i]->d_name, e);
		free(names[i]);
	}
	free(names);
	(void)close(fd);
	return rc;
}

int plugins_open(const struct plugins_config *c, struct plugins **out, struct error *e)
{
	struct plugins *list = mem_zalloc(MEM_PLUGIN, 1, sizeof *list);
	int rc = TENON_OK;

	if (!list || sodium_init() < 0) {
		mem_free(list);
		return error_set(e, TENON_E_NOMEM, "plugins: no memory for the list");
	}
	list->config = *c;
	for (size_t i = 0; !rc && i < c->n_dirs; i++)
		rc = scan(list, c->dirs[i], e);
	if (rc)
		plugins_close(list);
	else
		*out = list;
	return rc;
}

void plugins_close(struct plugins *list)
{
	if (!list)
		return;
	for (size_t i = 0; i < list->n; i++)
		plugin_free(list->list[i]);
	mem_free(list);
}

size_t plugins_count(const struct plugins *list) { return list->n; }

const struct plugin_info *plugins_at(const struct plugins *list, size_t i)
{
	return i < list->n ? &list->list[i]->info : NULL;
}

/* The build tree is known by config.status beside the staging folder; binaries stand at its root, in tests/unit or in
 * libtool's .libs below these. */
bool plugin_build_root(char *dir, size_t room)
{
	char self[4096], probe[4200];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	for (int up = 0; up < 4; up++) {
		char *slash = strrchr(self, '/');

		if (!slash || slash == self)
			return false;
		*slash = 0;
		(void)snprintf(probe, sizeof probe, "%s/config.status", self);
		if (!access(probe, F_OK))
			return (size_t)snprintf(dir, room, "%s", self) < room;
	}
	return false;
}

int plugins_default_dir(char *dir, size_t room, struct error *e)
{
	const char *own = getenv("TENON_PLUGINS");
	char root[4000];
	int n;

	if (own && *own)
		n = snprintf(dir, room, "%s", own);
	else if (plugin_build_root(root, sizeof root))
		n = snprintf(dir, room, "%s/%s", root, STAGE);
	else
		n = snprintf(dir, room, "%s", TENON_PLUGINDIR);
	if (n < 0 || (size_t)n >= room)
		return error_set(e, TENON_E_TOO_LONG, "plugin folder: the path is too long");
	return TENON_OK;
}
