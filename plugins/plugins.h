/* SPDX-License-Identifier: Apache-2.0
 * plugins - the host's side of the backend ABI (include/tenon/plugin.h): which backends there are (manifest, probe in
 * a throw-away process), opening one, and the one dispatcher through which every call goes. Nobody else includes
 * a struct tnp_ops. Lives in the worker and in tools; the daemon only reads the list. Errors map as: INVALID and
 * INTERNAL -> TENON_E_INTERNAL, UNSUPPORTED -> UNSUPPORTED, NOMEM -> NOMEM, BUSY -> BUSY, CANCELLED, TIMEOUT,
 * DEVICE -> TENON_E_BACKEND (only a fresh process helps).
 */
#ifndef PLUGINS_PLUGINS_H
#define PLUGINS_PLUGINS_H
#include "base/base.h"
#include <tenon/plugin.h>

/* ---- the list --------------------------------------------------------------------------------------------- */
struct plugin_option { const char *plugin, *key, *value; }; /* from the config: what host->config answers */

struct plugins_config {
	const char *const *dirs; /* [n_dirs] folders with NAME.plugin manifests; owner root or us, not world-writable */
	size_t n_dirs;
	const struct plugin_option *options; /* [n_options], borrowed until plugins_close */
	size_t n_options;
	const char *cache_dir; /* probe results and blobs; NULL: none kept */
	struct log *log;       /* may be NULL */
};

enum plugin_state { PLUGIN_LISTED, PLUGIN_USABLE, PLUGIN_UNUSABLE, PLUGIN_QUARANTINED };
struct plugin_info {
	const char *name, *vendor, *version, *file; /* version: known after the probe */
	const char *variant; /* ISA variant chosen */
	enum plugin_state state;
	const char *reason;  /* why not usable, else "" */
	const struct tnp_device *devices; /* [n_devices] as the probe saw them */
	uint32_t n_devices;
};

struct plugins;
/* Reads all manifests and picks variants; opens nothing. A bad manifest is an entry with a reason, not an error. */
int plugins_open(const struct plugins_config *c, struct plugins **out, struct error *e);
void plugins_close(struct plugins *p);
size_t plugins_count(const struct plugins *p);
const struct plugin_info *plugins_at(const struct plugins *p, size_t i);
/* Probes entry i in a child process (open, negotiate, list devices); crash, hang (10 s) or breach: quarantined
 * with the reason. Safe in a process with threads. */
int plugins_probe(struct plugins *p, size_t i, struct error *e);
/* The folders to look in by default: $TENON_PLUGINS, else the build tree beside the running binary, else the installed one.
 * Fills dir[room]. */
int plugins_default_dir(char *dir, size_t room, struct error *e);

/* ---- one opened device --------------------------------------------------------------------------------------- */
struct backend;
/* dlopen(RTLD_NOW|RTLD_LOCAL) through a checked descriptor, tnp_entry, required functions, start, dev_open.
 * name NULL: the best usable of "cpu" and others. Never dlcloses. */
int backend_open(struct plugins *p, const char *name, uint32_t device, struct backend **out, struct error *e);
void backend_close(struct backend *b);
const char *backend_name(const struct backend *b);
const struct tnp_device *backend_device(const struct backend *b);
bool backend_has(const struct backend *b, uint64_t feature); /* TNP_F_*: bit reported, function present */
void backend_stop_slow_calls(struct backend *b);             /* [any thread] host->stopping answers 1 from now */

/* ---- the dispatcher: thin, checked, one line of meaning each (see plugin.h) ----------------------------------- */
int backend_memory(struct backend *b, uint64_t *free_bytes, struct error *e);
int backend_op_caps(struct backend *b, struct tnp_op_cap *rows, uint32_t *n, struct error *e);
int backend_kv_caps(struct backend *b, uint64_t *types, uint32_t *page_min, uint32_t *page_max, struct error *e);
int backend_model_check(struct backend *b, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e);
int backend_model_sizes(struct backend *b, const struct tnp_graph *g, const struct tnp_limits *l, struct tnp_sizes *o,
	struct error *e);

/* Hears how far a slow call is: from any thread, never at the same time as itself; must return at once. */
struct backend_progress {
	void (*tell)(void *ctx, uint64_t done, uint64_t total); /* done <= total, total > 0 */
	void *ctx;
};

struct backend_model; /* an opened model with its KV pool */
/* `progress` may be NULL, is borrowed until the call returns and may hear nothing: plugins need not tell. */
int backend_model_open(struct backend *b, const struct tnp_graph *g, const struct tnp_limits *l,
	const struct backend_progress *progress, struct backend_model **out, struct error *e);
int backend_kv_open(struct backend_model *m, const struct tnp_kv_spec *s, struct error *e);
void backend_model_close(struct backend_model *m); /* pool, then model */
int backend_kv_copy(struct backend_model *m, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e);
int backend_kv_read(struct backend_model *m, uint32_t group, uint32_t page, void *out, struct error *e);
int backend_kv_write(struct backend_model *m, uint32_t group, uint32_t page, const void *in, struct error *e);
/* batch, then wait for its ticket. seq_rc of the batch carries tnp codes. */
int backend_batch(struct backend_model *m, const struct tnp_batch *b, struct error *e);
int backend_profile(struct backend_model *m, uint32_t on, struct tnp_timing *rows, uint32_t *n, struct error *e);
#endif
