/* SPDX-License-Identifier: Apache-2.0
 * What etc/tenond.conf says, checked. One table (config.c) lists every key with its type, range and default; unknown
 * keys and wrong types are errors that name file and line. Read by the loop thread at start and on SIGHUP; a
 * config is immutable once read and owns all its strings.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H
#include "base/base.h"
#include <tenon/wire.h>

enum conf_isolation { ISOLATION_PROCESS, ISOLATION_THREAD };
enum conf_precision { PRECISION_FAST, PRECISION_EXACT };
enum conf_kv { KV_F16, KV_F32, KV_Q8_0, KV_Q4_0 };

struct conf_model {
	const char *name, *path;		      /* path NULL: model_dir/NAME.gguf */
	uint32_t precision, kv;			      /* enum conf_precision, conf_kv */
	uint32_t context;			      /* tokens; 0: the model's own, at most 8192 */
	uint32_t step_tokens, step_seqs, page_tokens; /* 0: the engine's defaults */
	uint64_t kv_bytes;			      /* 0: the engine's default */
	uint32_t kv_sessions;			      /* sequences of `context` that the pool holds; 0: kv_bytes */
	const char *passes;			      /* graph passes off and on (engine/pass.h) */
	const char *backend;			      /* a list (engine/backends.h); "" or NULL: the daemon's */
	uint32_t idle_unload_s;			      /* 0: never */
	bool preload;
};

struct conf_class { /* zero: no target, no own limit */
	uint32_t ttft_ms, tpot_ms, max_waiting, max_waiting_tenant;
	uint64_t max_waiting_bytes;
};

struct conf_tenant {
	const char *name;
	double weight;
};
struct conf_tenant_user { /* in the order of the entries */
	uint32_t tenant, uid;
};

struct conf_plugin_option {
	const char *plugin, *key, *value;
};

struct conf {
	const char *runtime_dir, *socket, *socket_group;
	uint32_t isolation;
	const char *backend; /* a list (engine/backends.h) */
	uint32_t device;     /* of those in lists that name none */
	const char *model_dir, *default_model;
	bool allow_paths;
	uint32_t drain_s;
	struct conf_model
		model_defaults; /* the keys outside `models`: what a model takes that does not say itself */
	struct conf_model *models; /* [n_models] */
	uint32_t n_models;
	const char **plugin_dirs; /* [n_plugin_dirs]; none: the default folder */
	uint32_t n_plugin_dirs;
	const char *plugin_cache_dir;
	struct conf_plugin_option *plugin_options; /* [n_plugin_options] */
	uint32_t n_plugin_options;
	struct conf_tenant *tenants; /* [n_tenants] */
	uint32_t n_tenants;
	struct conf_tenant_user *tenant_users; /* [n_tenant_users] */
	uint32_t n_tenant_users;
	struct {
		uint32_t max_step_ms, max_prefill_ms, aging_s, slack_percent;
		double long_prompt_factor;
		bool calibrate;
	} scheduler;
	struct conf_class classes[2]; /* by enum wire_class */
	uint32_t offline_min_share_percent;
	struct {
		bool reuse, share_tenants;
		uint32_t pinned_percent;
		uint64_t host_bytes, disk_bytes;
		const char *disk_dir;
	} prefix;
	struct {
		uint64_t limit_bytes; /* of all models of the worker together; 0: what the machine leaves */
	} memory;
	struct {
		uint32_t max, keep_s;
		uint64_t bytes; /* of kept answers, running ones included */
	} durable;
	struct {
		uint32_t level, format; /* enum log_level, enum log_format */
		const char *file;	/* "": stderr */
		bool prompts;
	} log;
	struct {
		uint32_t sessions, sessions_per_uid, in_flight, in_flight_per_uid, attaches_per_s,
			pending_attaches;
		uint64_t shared_bytes_per_uid, ring_bytes, ring_max_bytes, prompt_bytes;
		bool allow_unknown_uid;
	} limits;
	struct {
		uint32_t pause_ms, cancel_s;
	} slow_reader;
	struct {
		uint32_t step_timeout_ms, load_timeout_s, backoff_ms, backoff_max_ms, deaths, deaths_window_s;
		uint64_t ring_bytes;
	} worker;
	struct {
		const char *group;
	} admin;
	/* owner of all of the above */
	char **strings; /* [n_strings] */
	size_t n_strings, cap_strings;
};

/* Defaults of every key. NOMEM. */
int conf_init(struct conf *c, struct error *e);
void conf_finish(struct conf *c);
/* Adds what a file or a text says. CONFIG with "FILE:LINE: ..."; IO; NOMEM. `where` names the text in messages. */
int conf_read_path(struct conf *c, const char *path, struct error *e);
int conf_read_text(struct conf *c, const char *text, const char *where, struct error *e);
/* One value as the command line gives it ("precision", "log.level"); keys of a model also change every entry of
 * `models` read so far. */
int conf_set(struct conf *c, const char *key, const char *value, struct error *e);
/* The same, but entries of `models` stay as they are. */
int conf_set_default(struct conf *c, const char *key, const char *value, struct error *e);
/* NAME=PATH: one more entry of `models`, with the defaults at that time. */
int conf_add_model(struct conf *c, const char *name, const char *path, struct error *e);
/* Cross-field checks and derived defaults (runtime_dir, model_dir from the environment): call once, last. */
int conf_complete(struct conf *c, struct error *e);

/* The tenant of a user who names none: the first entry that lists the user; NULL: none does. */
const struct conf_tenant *conf_tenant_of(const struct conf *c, uint32_t uid);
/* The entry of that name, if this user may speak for it (`any`: for all); NULL otherwise. */
const struct conf_tenant *conf_tenant_named(
	const struct conf *c, const char *name, size_t len, uint32_t uid, bool any);
/* The names that this user may use, for people. */
void conf_tenants_allowed(const struct conf *c, uint32_t uid, bool any, char *out, size_t room);

/* [A-Za-z0-9][A-Za-z0-9._-]{0,127}: what a model or a tenant may be called. */
bool conf_name_ok(const char *name, size_t len);
const char *conf_kv_name(uint32_t kv);
const char *conf_precision_name(uint32_t precision);
/* Prints "key  type  default" for every key, for tests that the documented file is complete. */
bool conf_print_keys(struct buf *out);
#endif
