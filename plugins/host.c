/* SPDX-License-Identifier: Apache-2.0
 * Services lent to a plugin [any thread]: log, configuration, the wish to stop, blobs that outlive the process,
 * how far a model_open is.
 * A blob is one file, CACHE_DIR/blobs/PLUGIN/HASH-OF-KEY, written beside and renamed; its head carries key, length
 * and BLAKE2b, so a damaged or foreign file is a miss. None of these calls back into the plugin.
 */
#include "plugins/plugins_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOB_KEY_BYTES = 128, BLOB_HASH_BYTES = 32 };
#define BLOB_MAX_BYTES (UINT64_C(256) << 20)
#define BLOB_MAGIC     UINT64_C(0x31424f4c424e5454) /* "TTNBLOB1" */

struct blob_head {
	uint64_t magic, len;
	char key[BLOB_KEY_BYTES];
	uint8_t hash[BLOB_HASH_BYTES];
};

static void host_log(void *ctx, uint32_t level, const char *topic, const char *text)
{
	struct plugin_host *h = ctx;

	(void)topic;
	if (text)
		log_write(h->log, level < LOG_N_LEVELS ? (enum log_level)level : LOG_INFO, h->name, "%.1000s",
			text);
}

static const char *host_config(void *ctx, const char *key)
{
	const struct plugin_host *h = ctx;

	for (size_t i = 0; key && i < h->n_options; i++)
		if (!strcmp(h->options[i].plugin, h->name) && !strcmp(h->options[i].key, key))
			return h->options[i].value;
	return NULL;
}

static uint32_t host_stopping(void *ctx)
{
	struct plugin_host *h = ctx;

	return atomic_load_explicit(&h->stopping, memory_order_relaxed);
}

static bool blob_path(const struct plugin_host *h, const char *key, char *path, size_t room)
{
	uint8_t hash[16];
	char hex[2 * sizeof hash + 1];

	if (!h->cache_dir || !key || !*key || strlen(key) >= BLOB_KEY_BYTES)
		return false;
	(void)crypto_generichash(hash, sizeof hash, (const uint8_t *)key, strlen(key), NULL, 0);
	(void)sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
	return (size_t)snprintf(path, room, "%s/blobs/%s/%s", h->cache_dir, h->name, hex) < room;
}

static bool read_all(int fd, void *out, uint64_t len, off_t at)
{
	for (uint64_t n = 0; n < len;) {
		ssize_t got = pread(fd, (char *)out + n, len - n, at + (off_t)n);

		if (got <= 0)
			return false;
		n += (uint64_t)got;
	}
	return true;
}

static bool write_all(int fd, const void *in, uint64_t len)
{
	for (uint64_t n = 0; n < len;) {
		ssize_t put = write(fd, (const char *)in + n, len - n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		n += (uint64_t)put;
	}
	return true;
}

static void blob_hash(const void *data, uint64_t len, uint8_t out[BLOB_HASH_BYTES])
{
	(void)crypto_generichash(out, BLOB_HASH_BYTES, data, len, NULL, 0);
}

/* A head that fits the key and the file, else a miss. */
static bool blob_head_ok(int fd, const char *key, struct blob_head *b)
{
	struct stat st;

	return read_all(fd, b, sizeof *b, 0) && b->magic == BLOB_MAGIC && b->len <= BLOB_MAX_BYTES &&
		!strncmp(b->key, key, sizeof b->key) && !fstat(fd, &st) &&
		(uint64_t)st.st_size == sizeof *b + b->len;
}

/* `*len` is the room on entry and the blob's length on return. `out` NULL asks for the length alone. UNSUPPORTED: no
 * such blob, or a damaged one. NOMEM: the room is too small. */
static tnp_rc host_blob_get(void *ctx, const char *key, void *out, uint64_t *len)
{
	struct plugin_host *h = ctx;
	struct blob_head b;
	uint8_t hash[BLOB_HASH_BYTES];
	char path[4096];
	tnp_rc rc = TNP_E_UNSUPPORTED;
	int fd;

	if (!len || !blob_path(h, key, path, sizeof path))
		return !len ? TNP_E_INVALID : TNP_E_UNSUPPORTED;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return TNP_E_UNSUPPORTED;
	if (blob_head_ok(fd, key, &b)) {
		rc = out && *len < b.len ? TNP_E_NOMEM : TNP_OK;
		if (out && !rc && read_all(fd, out, b.len, sizeof b))
			blob_hash(out, b.len, hash);
		else if (out && !rc)
			rc = TNP_E_UNSUPPORTED;
		if (out && !rc && memcmp(hash, b.hash, sizeof hash))
			rc = TNP_E_UNSUPPORTED;
		if (rc == TNP_OK || rc == TNP_E_NOMEM)
			*len = b.len;
	}
	(void)close(fd);
	return rc;
}

static bool make_dirs(const struct plugin_host *h)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof path, "%s/blobs/%s", h->cache_dir, h->name) >= sizeof path)
		return false;
	for (char *p = path + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			(void)mkdir(path, 0700);
			*p = '/';
		}
	return !mkdir(path, 0700) || errno == EEXIST;
}

static tnp_rc host_blob_put(void *ctx, const char *key, const void *in, uint64_t len)
{
	struct plugin_host *h = ctx;
	struct blob_head b = { .magic = BLOB_MAGIC, .len = len };
	char path[4096], temp[4128];
	bool ok;
	int fd;

	if ((!in && len) || !blob_path(h, key, path, sizeof path) || len > BLOB_MAX_BYTES)
		return TNP_E_UNSUPPORTED;
	(void)snprintf(b.key, sizeof b.key, "%s", key);
	blob_hash(in, len, b.hash);
	(void)snprintf(temp, sizeof temp, "%s.XXXXXX", path);
	fd = make_dirs(h) ? mkostemp(temp, O_CLOEXEC) : -1;
	if (fd < 0)
		return TNP_E_NOMEM;
	ok = write_all(fd, &b, sizeof b) && write_all(fd, in, len) && !fsync(fd);
	ok = !close(fd) && ok && !rename(temp, path);
	if (!ok)
		(void)unlink(temp);
	return ok ? TNP_OK : TNP_E_NOMEM;
}

/* ---- progress of model_open ---------------------------------------------------------------------------------------- */

void plugin_host_open_begin(struct plugin_host *h, struct plugin_open *o)
{
	(void)pthread_mutex_lock(&h->opens_lock);
	o->next = h->opens;
	h->opens = o;
	(void)pthread_mutex_unlock(&h->opens_lock);
}

void plugin_host_open_end(struct plugin_host *h, struct plugin_open *o)
{
	struct plugin_open **at = &h->opens;

	(void)pthread_mutex_lock(&h->opens_lock);
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	(void)pthread_mutex_unlock(&h->opens_lock);
}

/* A graph that nobody opens just now, or more done than there is: the plugin's mistake, not worth a word. */
static void host_progress(void *ctx, const struct tnp_graph *g, uint64_t done, uint64_t total)
{
	struct plugin_host *h = ctx;

	(void)pthread_mutex_lock(&h->opens_lock);
	for (const struct plugin_open *o = h->opens; o && total; o = o->next)
		if (o->g == g && o->to)
			o->to->tell(o->to->ctx, MIN_OF(done, total), total);
	(void)pthread_mutex_unlock(&h->opens_lock);
}

int plugin_host_init(struct plugin_host *h, const char *name, const struct plugins_config *c, struct error *e)
{
	memset(h, 0, sizeof *h);
	if (c->cache_dir) {
		h->cache_dir = mem_strdup(MEM_PLUGIN, c->cache_dir);
		if (!h->cache_dir)
			return error_set(e, TENON_E_NOMEM, "plugin '%s': no memory", name);
	}
	(void)snprintf(h->name, sizeof h->name, "%s", name);
	h->options = c->options;
	h->n_options = c->n_options;
	h->log = c->log;
	h->table = (struct tnp_host){ .size = sizeof h->table,
		.abi_major = TNP_ABI_MAJOR,
		.abi_minor = TNP_ABI_MINOR,
		.ctx = h,
		.log = host_log,
		.config = host_config,
		.stopping = host_stopping,
		.blob_get = host_blob_get,
		.blob_put = host_blob_put,
		.progress = host_progress };
	(void)pthread_mutex_init(&h->opens_lock, NULL);
	return TENON_OK;
}

void plugin_host_finish(struct plugin_host *h)
{
	if (h->table.size)
		(void)pthread_mutex_destroy(&h->opens_lock);
	MEM_CLEAR(h->cache_dir);
}
