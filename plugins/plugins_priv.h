/* SPDX-License-Identifier: Apache-2.0
 * Inside plugins/: manifests, CPU features, checked files, the shared record of a probe, modules in use.
 * Owner of every struct here: the one thread that uses its struct plugins; services lent to a plugin say otherwise.
 */
#ifndef PLUGINS_PRIV_H
#define PLUGINS_PRIV_H
#include "plugins/plugins.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- manifest.c: NAME.plugin, libconfig syntax (plugins/README.md) ------------------------------------------- */
enum {
	MANIFEST_MAX_BYTES = 65536,
	MANIFEST_MAX_VARIANTS = 16,
	MANIFEST_MAX_ISA = 16,
	MANIFEST_MAX_MAJORS = 16,
	MANIFEST_NAME_BYTES = 32
};

struct manifest_variant {
	char name[MANIFEST_NAME_BYTES];
	char file[64];			/* beside the manifest, no slash */
	char isa[MANIFEST_MAX_ISA][16]; /* needed features, isa.c */
	uint32_t n_isa;
	int32_t rank; /* the highest that can run is taken */
	bool has_sha256;
	uint8_t sha256[32];
};

struct manifest {
	bool no_self_check; /* computes nothing true: for tests of the host */
	char name[MANIFEST_NAME_BYTES], vendor[64], description[128];
	uint32_t major[MANIFEST_MAX_MAJORS], n_majors;
	int32_t rank; /* choice of a default backend; 0: only by name */
	struct manifest_variant variant[MANIFEST_MAX_VARIANTS];
	uint32_t n_variants;
};

/* `path` is for messages ("path:line: ..."). CONFIG: syntax, unknown key, wrong type or range. */
int manifest_parse(const char *path, const char *text, size_t len, struct manifest *out, struct error *e);
/* The variant of highest rank whose features this CPU and kernel have; NULL with the reason in why[room]. */
const struct manifest_variant *manifest_choose(const struct manifest *m, char *why, size_t room);

/* ---- isa.c --------------------------------------------------------------------------------------------------- */
/* True when the processor has the feature ("avx2", "neon", ...) and the kernel has switched it on. False for a name
 * that this version does not know: a variant for newer machines is not for this one. */
bool isa_has(const char *name);

/* ---- files.c: what is opened must belong to root or to us and nobody else may change it ----------------------- */
/* A folder. DENIED, NOT_FOUND, IO. */
int plugin_dir_open(const char *path, int *fd, struct error *e);
/* A regular file in the folder, never through a link. */
int plugin_file_open(int dir_fd, const char *dir, const char *name, int *fd, struct error *e);
int plugin_file_read(int fd, const char *name, size_t limit, char **text, size_t *len, struct error *e);
int plugin_file_sha256(int fd, const char *name, uint8_t out[32], struct error *e);

/* ---- host.c: services lent to one plugin; [any thread] -------------------------------------------------------- */
struct plugin_host {
	struct tnp_host table; /* table.ctx points here */
	char name[MANIFEST_NAME_BYTES];
	const struct plugin_option *options;
	size_t n_options;
	char *cache_dir; /* NULL: no blobs */
	struct log *log;
	_Atomic uint32_t stopping;
	pthread_mutex_t opens_lock;
	struct plugin_open *opens; /* model_open calls going on, each on its caller's stack */
};
struct plugin_open {
	const struct tnp_graph *g;
	const struct backend_progress *to; /* may be NULL */
	struct plugin_open *next;
};
void plugin_host_open_begin(struct plugin_host *h, struct plugin_open *o);
void plugin_host_open_end(struct plugin_host *h, struct plugin_open *o);
int plugin_host_init(
	struct plugin_host *h, const char *name, const struct plugins_config *c, struct error *e);
void plugin_host_finish(struct plugin_host *h);

/* ---- module.c: one loaded shared object ------------------------------------------------------------------------ */
struct module {
	struct tnp_ops ops; /* copy; a missing tail is zero */
	bool started;
	uint32_t n_open; /* backends */
};
/* Loads through the descriptor (which is closed by the caller), negotiates the version, checks the required set. Never
 * unloads. `name`: what the table must call itself. */
int module_load(struct module *m, int fd, const char *name, struct error *e);
/* A plugin of an older minor sees no more of the host's table than that minor had. */
int module_start(struct module *m, struct plugin_host *h, struct error *e);
void module_stop(struct module *m);
/* Devices with all strings terminated and features checked against the functions present. */
int module_devices(struct module *m, uint32_t *n, struct error *e);
int module_device(struct module *m, uint32_t i, struct tnp_device *out, struct error *e);

/* ---- probe_check.c: in tenon-probe only --------------------------------------------------------------------- */
/* A tiny graph on known numbers; OK too when the device does not claim it. */
int probe_check(const struct tnp_ops *o, struct tnp_dev *d, struct error *e);

/* ---- errors ---------------------------------------------------------------------------------------------------- */
/* A fresh record for a call. */
#define TNP_ERROR_INIT                                                                                       \
	{                                                                                                    \
		.size = sizeof(struct tnp_error)                                                             \
	}
/* Maps a plugin's code to ours and fills `e` with "backend NAME: WHAT: text". OK for OK. */
int plugin_error(const char *name, const char *what, tnp_rc rc, struct tnp_error *te, struct error *e);

/* ---- the list, and a probe's result ---------------------------------------------------------------------------- */
enum { PLUGIN_MAX_DEVICES = 16, PLUGIN_PROBE_MS = 10000 };

struct probe_result { /* crosses the pipe and lies in the cache: fixed, checked when read */
	uint32_t magic, bytes;
	int32_t code; /* TENON_OK or why not */
	uint32_t n_devices;
	char vendor[64], version[64], text[256];
	struct tnp_device device[PLUGIN_MAX_DEVICES];
};
#define PROBE_MAGIC 0x50525431u /* "PRT1" */
/* Stages told as single bytes before the result, so that a crash can be named. */
#define PROBE_STAGES "odcl" /* opening, devices, checking, leaving */
enum { PROBE_FD_MODULE = 3, PROBE_FD_RESULT = 4 };

struct plugin {
	struct plugin_info info; /* strings point into this struct */
	struct manifest manifest;
	const struct manifest_variant *variant;
	char *dir, *path, reason[256];
	struct probe_result probe;
	struct module module;
	struct plugin_host host;
	bool loaded, has_host;
};

struct plugins {
	struct plugins_config config;
	char *cache_dir;
	struct plugin *list[64];
	size_t n;
};

/* Opens the plugin's shared object after all checks (owner, mode, sha256 of the manifest). id: that hash; without one in the
 * manifest a hash of what the file system says (hashing megabytes would be a third of a start), which differs for another
 * object. */
int plugin_open_object(const struct plugin *p, int *fd, uint8_t id[32], struct error *e);
void plugin_set_state(struct plugin *p, enum plugin_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* From a result (probe or cache) to the entry's state. */
void plugin_take_result(struct plugin *p, const struct probe_result *r);
/* Root of the build tree when the running binary lies in one, else false. */
bool plugin_build_root(char *dir, size_t room);
#endif
