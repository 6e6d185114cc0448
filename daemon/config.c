/* SPDX-License-Identifier: Apache-2.0
 * config.h over libconfig: the table of keys, and a walk over a parsed file that accepts what is in the table and
 * nothing else. Loop thread, at start and on reload.
 */
#include "daemon/config_priv.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 20 };

static const char *const isolations[] = { "process", "thread", NULL };
static const char *const precisions[] = { "fast", "exact", NULL };
static const char *const kvs[] = { "f16", "f32", "q8_0", "q4_0", NULL };
static const char *const levels[] = { "error", "warn", "info", "debug", "trace", NULL };
static const char *const formats[] = { "text", "json", NULL };

#define C(m) offsetof(struct conf, m)
#define KEY_BOOL(n, m, d)                                                                                    \
	{                                                                                                    \
		.name = n, .kind = BOOL, .off = m, .def = d                                                  \
	}
#define KEY_U32(n, m, l, h, d)                                                                               \
	{                                                                                                    \
		.name = n, .kind = U32, .off = m, .lo = l, .hi = h, .unit = 1, .def = d                      \
	}
#define KEY_U64(n, m, l, h, u, d)                                                                            \
	{                                                                                                    \
		.name = n, .kind = U64, .off = m, .lo = l, .hi = h, .unit = u, .def = d                      \
	}
/* l, h, d in thousandths */
#define KEY_REAL(n, m, l, h, d)                                                                              \
	{                                                                                                    \
		.name = n, .kind = REAL, .off = m, .lo = l, .hi = h, .def = d                                \
	}
#define KEY_STRING(n, m, d)                                                                                  \
	{                                                                                                    \
		.name = n, .kind = STRING, .off = m, .text = d                                               \
	}
#define KEY_CHOICE(n, m, list, d)                                                                            \
	{                                                                                                    \
		.name = n, .kind = CHOICE, .off = m, .choices = list, .def = d                               \
	}
#define KEY_GROUP(n, keys)                                                                                   \
	{                                                                                                    \
		.name = n, .kind = GROUP, .group = keys                                                      \
	}
#define KEY_CUSTOM(n, fn)                                                                                    \
	{                                                                                                    \
		.name = n, .kind = CUSTOM, .read = fn                                                        \
	}
#define KIB 1024
#define MIB (1024 * 1024)

/* The keys a model takes, in an entry of `models` and, as its default, at the top. */
#define MODEL_KEYS(at)                                                                                       \
	KEY_CHOICE("precision", at(precision), precisions, PRECISION_FAST),                                  \
		KEY_CHOICE("kv", at(kv), kvs, KV_F16), KEY_U32("context", at(context), 0, 1 << 20, 0),       \
		KEY_U64("kv_mib", at(kv_bytes), 0, 1 << 20, MIB, 0),                                         \
		KEY_U32("kv_sessions", at(kv_sessions), 0, 65536, 0),                                        \
		KEY_U32("step_tokens", at(step_tokens), 0, 8192, 0),                                         \
		KEY_U32("step_seqs", at(step_seqs), 0, 256, 0),                                              \
		KEY_U32("page_tokens", at(page_tokens), 0, 256, 0), KEY_STRING("passes", at(passes), ""),    \
		KEY_U32("idle_unload_s", at(idle_unload_s), 0, 31536000, 600),                               \
		KEY_BOOL("preload", at(preload), false)
#define IN_MODEL(m) offsetof(struct conf_model, m)
#define AT_TOP(m)   C(model_defaults.m)

const struct key conf_model_keys[] = {
	KEY_STRING("name", IN_MODEL(name), NULL),
	KEY_STRING("path", IN_MODEL(path), NULL),
	KEY_STRING("backend", IN_MODEL(backend), NULL),
	MODEL_KEYS(IN_MODEL),
	{ .name = NULL },
};

static const struct key log_keys[] = {
	KEY_CHOICE("level", C(log.level), levels, LOG_INFO),
	KEY_CHOICE("format", C(log.format), formats, LOG_TEXT),
	KEY_STRING("file", C(log.file), ""),
	KEY_BOOL("prompts", C(log.prompts), false),
	{ .name = NULL },
};

static const struct key limit_keys[] = {
	KEY_U32("sessions", C(limits.sessions), 1, 65536, 1024),
	KEY_U32("sessions_per_uid", C(limits.sessions_per_uid), 1, 65536, 256),
	KEY_U32("in_flight", C(limits.in_flight), 1, 4095, 4095),
	KEY_U32("in_flight_per_uid", C(limits.in_flight_per_uid), 1, 4095, 1024),
	KEY_U32("attaches_per_s", C(limits.attaches_per_s), 1, 100000, 200),
	KEY_U32("pending_attaches", C(limits.pending_attaches), 1, 1024, 64),
	KEY_U64("shared_mib_per_uid", C(limits.shared_bytes_per_uid), 1, 1 << 20, MIB, 512),
	KEY_U64("ring_kib", C(limits.ring_bytes), 64, 65536, KIB, 1024),
	KEY_U64("ring_max_kib", C(limits.ring_max_bytes), 64, 65536, KIB, 16384),
	KEY_U64("prompt_kib", C(limits.prompt_bytes), 1, 65536, KIB, 1024),
	KEY_BOOL("allow_unknown_uid", C(limits.allow_unknown_uid), false),
	{ .name = NULL },
};

static const struct key slow_keys[] = {
	KEY_U32("pause_ms", C(slow_reader.pause_ms), 1, 60000, 100),
	KEY_U32("cancel_s", C(slow_reader.cancel_s), 1, 86400, 30),
	{ .name = NULL },
};

static const struct key worker_keys[] = {
	KEY_U32("step_timeout_ms", C(worker.step_timeout_ms), 100, 3600000, 30000),
	KEY_U32("load_timeout_s", C(worker.load_timeout_s), 1, 86400, 600),
	KEY_U32("backoff_ms", C(worker.backoff_ms), 1, 60000, 100),
	KEY_U32("backoff_max_ms", C(worker.backoff_max_ms), 1, 600000, 30000),
	KEY_U32("deaths", C(worker.deaths), 1, 16, 5),
	KEY_U32("deaths_window_s", C(worker.deaths_window_s), 1, 86400, 600),
	KEY_U64("ring_kib", C(worker.ring_bytes), 256, 65536, KIB, 1024),
	{ .name = NULL },
};

static const struct key admin_keys[] = {
	KEY_STRING("group", C(admin.group), ""),
	{ .name = NULL },
};

static const struct key scheduler_keys[] = {
	KEY_U32("max_step_ms", C(scheduler.max_step_ms), 1, 10000, 25),
	KEY_U32("max_prefill_ms", C(scheduler.max_prefill_ms), 1, 60000, 100),
	KEY_U32("aging_s", C(scheduler.aging_s), 1, 86400, 10),
	KEY_U32("slack_percent", C(scheduler.slack_percent), 1, 1000, 3),
	KEY_REAL("long_prompt_factor", C(scheduler.long_prompt_factor), 1000, 100000, 2000),
	KEY_BOOL("calibrate", C(scheduler.calibrate), true),
	{ .name = NULL },
};

/* The keys of both classes. */
#define CLASS_KEYS(k)                                                                                        \
	KEY_U32("ttft_ms", C(classes[k].ttft_ms), 0, 3600000, 0),                                            \
		KEY_U32("tpot_ms", C(classes[k].tpot_ms), 0, 3600000, 0),                                    \
		KEY_U32("max_waiting", C(classes[k].max_waiting), 1, 4095, 1024),                            \
		KEY_U32("max_waiting_per_tenant", C(classes[k].max_waiting_tenant), 0, 4095, 0),             \
		KEY_U64("max_waiting_mib", C(classes[k].max_waiting_bytes), 1, 1 << 20, MIB, 256)

static const struct key online_keys[] = {
	CLASS_KEYS(WIRE_ONLINE),
	{ .name = NULL },
};

static const struct key offline_keys[] = {
	CLASS_KEYS(WIRE_OFFLINE),
	KEY_U32("min_share_percent", C(offline_min_share_percent), 0, 90, 0),
	{ .name = NULL },
};

static const struct key prefix_keys[] = {
	KEY_BOOL("reuse", C(prefix.reuse), true),
	KEY_BOOL("share_tenants", C(prefix.share_tenants), false),
	KEY_U32("pinned_percent", C(prefix.pinned_percent), 1, 90, 25),
	KEY_U64("host_mib", C(prefix.host_bytes), 0, 1 << 24, MIB, 0),
	KEY_U64("disk_mib", C(prefix.disk_bytes), 0, 1 << 24, MIB, 0),
	KEY_STRING("disk_dir", C(prefix.disk_dir), ""),
	{ .name = NULL },
};

static const struct key memory_keys[] = {
	KEY_U64("limit_mib", C(memory.limit_bytes), 0, 1 << 24, MIB, 0),
	{ .name = NULL },
};

static const struct key durable_keys[] = {
	KEY_U32("max", C(durable.max), 0, 4095, 1000),
	KEY_U64("mib", C(durable.bytes), 1, 1 << 20, MIB, 64),
	KEY_U32("keep_s", C(durable.keep_s), 0, 31536000, 86400),
	{ .name = NULL },
};

const struct key conf_tenant_keys[] = {
	KEY_STRING("name", offsetof(struct conf_tenant, name), NULL),
	KEY_CUSTOM("users", conf_read_users),
	KEY_REAL("weight", offsetof(struct conf_tenant, weight), 1, 1000000, 1000),
	{ .name = NULL },
};

static const struct key top_keys[] = {
	KEY_STRING("runtime_dir", C(runtime_dir), ""),
	KEY_STRING("socket", C(socket), ""),
	KEY_STRING("socket_group", C(socket_group), ""),
	KEY_CHOICE("isolation", C(isolation), isolations, ISOLATION_PROCESS),
	KEY_STRING("backend", C(backend), ""),
	KEY_U32("device", C(device), 0, 255, 0),
	KEY_STRING("model_dir", C(model_dir), ""),
	KEY_STRING("default_model", C(default_model), ""),
	KEY_BOOL("allow_paths", C(allow_paths), false),
	KEY_U32("drain_s", C(drain_s), 0, 86400, 30),
	MODEL_KEYS(AT_TOP),
	KEY_CUSTOM("models", conf_read_models),
	KEY_CUSTOM("plugin_dirs", conf_read_plugin_dirs),
	KEY_STRING("plugin_cache_dir", C(plugin_cache_dir), ""),
	KEY_CUSTOM("plugins", conf_read_plugins),
	KEY_CUSTOM("tenants", conf_read_tenants),
	KEY_GROUP("scheduler", scheduler_keys),
	KEY_GROUP("online", online_keys),
	KEY_GROUP("offline", offline_keys),
	KEY_GROUP("prefix", prefix_keys),
	KEY_GROUP("memory", memory_keys),
	KEY_GROUP("durable", durable_keys),
	KEY_GROUP("log", log_keys),
	KEY_GROUP("limits", limit_keys),
	KEY_GROUP("slow_reader", slow_keys),
	KEY_GROUP("worker", worker_keys),
	KEY_GROUP("admin", admin_keys),
	{ .name = NULL },
};

/* ---- strings and values ------------------------------------------------------------------------------------ */

static const char *keep(struct conf *c, const char *s)
{
	char *copy;

	if (c->n_strings == c->cap_strings) {
		size_t cap = c->cap_strings ? 2 * c->cap_strings : 32;
		char **grown = mem_resize(MEM_DAEMON, c->strings, cap * sizeof *grown);

		if (!grown)
			return NULL;
		c->strings = grown;
		c->cap_strings = cap;
	}
	copy = mem_strdup(MEM_DAEMON, s);
	if (copy)
		c->strings[c->n_strings++] = copy;
	return copy;
}

int conf_no_memory(struct error *e) { return error_set(e, TENON_E_NOMEM, "configuration: no memory"); }

int conf_set_string(struct conf *c, const char **at, const char *s, struct error *e)
{
	const char *copy = keep(c, s);

	if (!copy)
		return conf_no_memory(e);
	*at = copy;
	return TENON_OK;
}

/* `base` is the struct that the key's offset counts from. */
static void set_number(const struct key *k, void *base, uint64_t v)
{
	void *at = (char *)base + k->off;

	if (k->kind == BOOL)
		*(bool *)at = v != 0;
	else if (k->kind == U64)
		*(uint64_t *)at = v * k->unit;
	else if (k->kind == REAL)
		*(double *)at = (double)v / 1000;
	else
		*(uint32_t *)at = (uint32_t)v;
}

static int set_default(struct conf *c, const struct key *k, void *base, struct error *e)
{
	switch (k->kind) {
	case STRING:
		if (!k->text)
			return TENON_OK;
		return conf_set_string(c, (const char **)(void *)((char *)base + k->off), k->text, e);
	case GROUP:
	case CUSTOM:
		return TENON_OK;
	default:
		set_number(k, base, k->def);
		return TENON_OK;
	}
}

static int set_defaults(struct conf *c, const struct key *keys, struct error *e)
{
	for (const struct key *k = keys; k->name; k++) {
		int rc = k->kind == GROUP ? set_defaults(c, k->group, e) : set_default(c, k, c, e);

		if (rc)
			return rc;
	}
	return TENON_OK;
}

int conf_init(struct conf *c, struct error *e)
{
	int rc;

	*c = (struct conf){ 0 };
	rc = set_defaults(c, top_keys, e);
	if (rc)
		conf_finish(c);
	return rc;
}

void conf_finish(struct conf *c)
{
	for (size_t i = 0; i < c->n_strings; i++)
		mem_free(c->strings[i]);
	mem_free(c->strings);
	mem_free(c->models);
	mem_free(c->tenants);
	mem_free(c->tenant_users);
	mem_free(c->plugin_dirs);
	mem_free(c->plugin_options);
	*c = (struct conf){ 0 };
}

static const struct key *find_key(const struct key *keys, const char *name, size_t len)
{
	for (const struct key *k = keys; k->name; k++)
		if (strlen(k->name) == len && !memcmp(k->name, name, len))
			return k;
	return NULL;
}

static int find_choice(const struct key *k, const char *name)
{
	for (int i = 0; k->choices[i]; i++)
		if (!strcmp(k->choices[i], name))
			return i;
	return -1;
}

static void list_choices(const struct key *k, char *out, size_t room)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; k->choices[i] && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", k->choices[i]);
}

/* ---- the file ------------------------------------------------------------------------------------------------ */

static const char *type_name(int type)
{
	switch (type) {
	case CONFIG_TYPE_GROUP:
		return "a group { }";
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return "a whole number";
	case CONFIG_TYPE_FLOAT:
		return "a number with a fraction";
	case CONFIG_TYPE_STRING:
		return "a \"string\"";
	case CONFIG_TYPE_BOOL:
		return "true or false";
	case CONFIG_TYPE_ARRAY:
		return "an array [ ]";
	default:
		return "a list ( )";
	}
}

int conf_fault(const struct reader *r, const config_setting_t *s, const char *fmt, ...)
{
	const char *file = config_setting_source_file(s);
	char text[192];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return error_set(r->e, TENON_E_CONFIG, "%s:%u: %s", file ? file : r->where,
		config_setting_source_line(s), text);
}

int conf_wrong_type(const struct reader *r, const config_setting_t *s, int wanted)
{
	return conf_fault(r, s, "%.40s: is %s; write %s",
		config_setting_name(s) ? config_setting_name(s) : "entry", type_name(config_setting_type(s)),
		type_name(wanted));
}

int conf_read_string(const struct reader *r, config_setting_t *s, const char **at)
{
	if (config_setting_type(s) != CONFIG_TYPE_STRING)
		return conf_wrong_type(r, s, CONFIG_TYPE_STRING);
	return conf_set_string(r->c, at, config_setting_get_string(s), r->e);
}

static int read_number(const struct reader *r, config_setting_t *s, const struct key *k, void *base)
{
	int type = config_setting_type(s);
	long long v;

	if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64)
		return conf_wrong_type(r, s, CONFIG_TYPE_INT);
	v = config_setting_get_int64(s);
	if (v < 0 || (uint64_t)v < k->lo || (uint64_t)v > k->hi)
		return conf_fault(r, s, "%s: %lld is out of range; write %llu to %llu", k->name, v,
			(unsigned long long)k->lo, (unsigned long long)k->hi);
	set_number(k, base, (uint64_t)v);
	return TENON_OK;
}

static int read_real(const struct reader *r, config_setting_t *s, const struct key *k, void *base)
{
	double lo = (double)k->lo / 1000, hi = (double)k->hi / 1000, v;

	switch (config_setting_type(s)) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		v = (double)config_setting_get_int64(s);
		break;
	case CONFIG_TYPE_FLOAT:
		v = config_setting_get_float(s);
		break;
	default:
		return conf_wrong_type(r, s, CONFIG_TYPE_FLOAT);
	}
	if (!(v >= lo && v <= hi))
		return conf_fault(r, s, "%s: %g is out of range; write %g to %g", k->name, v, lo, hi);
	*(double *)(void *)((char *)base + k->off) = v;
	return TENON_OK;
}

static int read_choice(const struct reader *r, config_setting_t *s, const struct key *k, void *base)
{
	char all[96];
	int i;

	if (config_setting_type(s) != CONFIG_TYPE_STRING)
		return conf_wrong_type(r, s, CONFIG_TYPE_STRING);
	i = find_choice(k, config_setting_get_string(s));
	list_choices(k, all, sizeof all);
	if (i < 0)
		return conf_fault(r, s, "%s: \"%.32s\" is unknown; write one of %s", k->name,
			config_setting_get_string(s), all);
	set_number(k, base, (uint64_t)i);
	return TENON_OK;
}

static int read_value(const struct reader *r, config_setting_t *s, const struct key *k, void *base)
{
	switch (k->kind) {
	case BOOL:
		if (config_setting_type(s) != CONFIG_TYPE_BOOL)
			return conf_wrong_type(r, s, CONFIG_TYPE_BOOL);
		set_number(k, base, (uint64_t)config_setting_get_bool(s));
		return TENON_OK;
	case U32:
	case U64:
		return read_number(r, s, k, base);
	case REAL:
		return read_real(r, s, k, base);
	case STRING:
		return conf_read_string(r, s, (const char **)(void *)((char *)base + k->off));
	case CHOICE:
		return read_choice(r, s, k, base);
	case GROUP:
		return conf_read_group(r, s, k->group, base);
	default:
		return k->read(r, s);
	}
}

/* `models` come last, since their entries start from what the other keys say. */
int conf_read_group(const struct reader *r, config_setting_t *s, const struct key *keys, void *base)
{
	config_setting_t *models = NULL;

	if (config_setting_type(s) != CONFIG_TYPE_GROUP)
		return conf_wrong_type(r, s, CONFIG_TYPE_GROUP);
	for (int i = 0; i < config_setting_length(s); i++) {
		config_setting_t *m = config_setting_get_elem(s, (unsigned)i);
		const char *name = config_setting_name(m);
		const struct key *k = find_key(keys, name, strlen(name));
		int rc = TENON_OK;

		if (!k)
			return conf_fault(r, m, "%.48s: unknown key; see tenond.conf(5)", name);
		if (k->read == conf_read_models)
			models = m;
		else
			rc = read_value(r, m, k, base);
		if (rc)
			return rc;
	}
	return models ? conf_read_models(r, models) : TENON_OK;
}

/* ---- entry points -------------------------------------------------------------------------------------------- */

static int read_parsed(struct conf *c, config_t *lc, int parsed, const char *where, struct error *e)
{
	struct reader r = { .c = c, .where = where, .e = e };

	if (parsed != CONFIG_TRUE)
		return error_set(e, TENON_E_CONFIG, "%s:%d: %s; see tenond.conf(5)",
			config_error_file(lc) ? config_error_file(lc) : where, config_error_line(lc),
			config_error_text(lc) ? config_error_text(lc) : "cannot be read");
	return conf_read_group(&r, config_root_setting(lc), top_keys, c);
}

/* Past a string or comment that begins at s; s itself if none does. */
static const char *skip_quiet(const char *s)
{
	const char *end;

	if (*s == '"') {
		for (s++; *s && *s != '"'; s++)
			if (*s == '\\' && s[1])
				s++;
		return *s ? s + 1 : s;
	}
	if (*s == '#' || (s[0] == '/' && s[1] == '/'))
		return s + strcspn(s, "\n");
	if (s[0] != '/' || s[1] != '*')
		return s;
	end = strstr(s + 2, "*/");
	return end ? end + 2 : s + strlen(s);
}

/* libconfig cuts a number over 31 bits without a word unless it ends in L: such a number is a fault. Returns its
 * line, 0 when there is none. */
static unsigned find_cut_number(const char *text)
{
	unsigned line = 1;

	for (const char *s = text, *next; *s; s = next) {
		char *end;

		next = skip_quiet(s);
		if (next == s && *s >= '0' && *s <= '9') {
			unsigned long long v = (errno = 0, strtoull(s, &end, 0));

			if ((errno || v > INT32_MAX) && !strchr("Ll.eE", *end ? *end : ' '))
				return line;
			next = end > s ? end : s + 1;
			next += strspn(next, "0123456789");
		} else if (next == s) {
			next += (size_t)strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
			next += next > s ? strspn(next, "0123456789-_*") : 1;
		}
		for (const char *p = s; p < next; p++)
			line += *p == '\n';
	}
	return 0;
}

int conf_read_text(struct conf *c, const char *text, const char *where, struct error *e)
{
	unsigned line = find_cut_number(text);
	config_t lc;
	int rc;

	if (line)
		return error_set(e, TENON_E_CONFIG, "%s:%u: a number is too large; append L if it is meant",
			where, line);
	config_init(&lc);
	rc = read_parsed(c, &lc, config_read_string(&lc, text), where, e);
	config_destroy(&lc);
	return rc;
}

static int load_file(const char *path, struct buf *out, struct error *e)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	size_t n;

	if (!f)
		return error_errno(e, TENON_E_IO, errno, "configuration %.150s", path);
	if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
		(void)fclose(f);
		return error_set(
			e, TENON_E_CONFIG, "configuration %.150s: not a file of at most 1 MiB", path);
	}
	if (!buf_reserve(out, (size_t)st.st_size + 1)) {
		(void)fclose(f);
		return conf_no_memory(e);
	}
	n = fread(out->data, 1, (size_t)st.st_size, f);
	out->data[n] = 0;
	(void)fclose(f);
	if (strlen(out->data) != n)
		return error_set(e, TENON_E_CONFIG, "configuration %.150s: holds a zero byte", path);
	return TENON_OK;
}

int conf_read_path(struct conf *c, const char *path, struct error *e)
{
	struct buf text;
	int rc;

	buf_init(&text, MEM_DAEMON, FILE_MAX_BYTES + 2);
	rc = load_file(path, &text, e);
	if (!rc)
		rc = conf_read_text(c, text.data, path, e);
	buf_finish(&text);
	return rc;
}

static int set_text(
	struct conf *c, const struct key *k, void *base, const char *key, const char *value, struct error *e)
{
	unsigned long long v;
	char all[96], *end;
	double x;
	int i;

	switch (k->kind) {
	case STRING:
		return conf_set_string(c, (const char **)(void *)((char *)base + k->off), value, e);
	case BOOL:
		if (strcmp(value, "true") && strcmp(value, "false"))
			return error_set(
				e, TENON_E_CONFIG, "%s: '%.32s' is neither true nor false", key, value);
		set_number(k, base, !strcmp(value, "true"));
		return TENON_OK;
	case CHOICE:
		list_choices(k, all, sizeof all);
		i = find_choice(k, value);
		if (i < 0)
			return error_set(e, TENON_E_CONFIG, "%s: '%.32s' is unknown; write one of %s", key,
				value, all);
		set_number(k, base, (uint64_t)i);
		return TENON_OK;
	case REAL:
		x = strtod(value, &end);
		if (*end || !*value || !(x >= (double)k->lo / 1000 && x <= (double)k->hi / 1000))
			return error_set(e, TENON_E_CONFIG, "%s: '%.32s' is no number from %g to %g", key,
				value, (double)k->lo / 1000, (double)k->hi / 1000);
		*(double *)(void *)((char *)base + k->off) = x;
		return TENON_OK;
	default:
		errno = 0;
		v = strtoull(value, &end, 10);
		if (errno || *end || !*value || strchr(value, '-') || v < k->lo || v > k->hi)
			return error_set(e, TENON_E_CONFIG, "%s: '%.32s' is no number from %llu to %llu", key,
				value, (unsigned long long)k->lo, (unsigned long long)k->hi);
		set_number(k, base, v);
		return TENON_OK;
	}
}

int conf_set_default(struct conf *c, const char *key, const char *value, struct error *e)
{
	const char *dot = strchr(key, '.');
	const struct key *k = find_key(top_keys, key, dot ? (size_t)(dot - key) : strlen(key));

	if (dot && k)
		k = k->kind == GROUP ? find_key(k->group, dot + 1, strlen(dot + 1)) : NULL;
	if (!k || k->kind == GROUP || k->kind == CUSTOM)
		return error_set(
			e, TENON_E_CONFIG, "%.48s: unknown key, or not one value; see tenond.conf(5)", key);
	return set_text(c, k, c, key, value, e);
}

int conf_set(struct conf *c, const char *key, const char *value, struct error *e)
{
	const struct key *k = find_key(conf_model_keys, key, strlen(key));
	int rc = conf_set_default(c, key, value, e);

	for (uint32_t i = 0; k && !rc && i < c->n_models; i++)
		rc = set_text(c, k, &c->models[i], key, value, e);
	return rc;
}

/* The folder follows from the socket, or the socket from the folder. */
static int derive_socket(struct conf *c, struct error *e)
{
	const char *run = getenv("XDG_RUNTIME_DIR"), *slash = strrchr(c->socket, '/');
	char path[4096];
	int rc = TENON_OK;

	if (*c->socket && (c->socket[0] != '/' || slash == c->socket || !slash[1]))
		return error_set(
			e, TENON_E_CONFIG, "socket %.80s: write a full path inside a folder", c->socket);
	if (!*c->runtime_dir) {
		if (*c->socket)
			(void)snprintf(path, sizeof path, "%.*s", (int)(slash - c->socket), c->socket);
		else
			(void)snprintf(path, sizeof path, "%s/tenon", run && *run ? run : "/run");
		rc = conf_set_string(c, &c->runtime_dir, path, e);
	}
	if (rc || *c->socket)
		return rc;
	(void)snprintf(path, sizeof path, "%s/attach", c->runtime_dir);
	return conf_set_string(c, &c->socket, path, e);
}

/* Where scripts/fetch-model puts models, of a user or of the system. */
static int derive_models(struct conf *c, struct error *e)
{
	const char *own = getenv("TENON_MODELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char path[4096];

	if (*c->model_dir)
		return TENON_OK;
	if (own && *own)
		(void)snprintf(path, sizeof path, "%s", own);
	else if (cache && *cache)
		(void)snprintf(path, sizeof path, "%s/tenon/models", cache);
	else if (home && *home)
		(void)snprintf(path, sizeof path, "%s/.cache/tenon/models", home);
	else
		(void)snprintf(path, sizeof path, "/var/lib/tenon/models");
	return conf_set_string(c, &c->model_dir, path, e);
}

/* Pages of prefixes, among what may be thrown away. */
static int derive_disk_dir(struct conf *c, struct error *e)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char path[4096];

	if (*c->prefix.disk_dir && c->prefix.disk_dir[0] != '/')
		return error_set(
			e, TENON_E_CONFIG, "prefix.disk_dir %.80s: write a full path", c->prefix.disk_dir);
	if (*c->prefix.disk_dir)
		return TENON_OK;
	if (cache && *cache)
		(void)snprintf(path, sizeof path, "%s/tenon/kv", cache);
	else if (home && *home)
		(void)snprintf(path, sizeof path, "%s/.cache/tenon/kv", home);
	else
		(void)snprintf(path, sizeof path, "/var/cache/tenon/kv");
	return conf_set_string(c, &c->prefix.disk_dir, path, e);
}

static bool power_of_two(uint64_t v) { return v && !(v & (v - 1)); }

int conf_complete(struct conf *c, struct error *e)
{
	if (!power_of_two(c->limits.ring_bytes) || !power_of_two(c->limits.ring_max_bytes) ||
		!power_of_two(c->worker.ring_bytes))
		return error_set(e, TENON_E_CONFIG, "ring_kib, ring_max_kib: write a power of two");
	if (c->limits.ring_bytes > c->limits.ring_max_bytes)
		return error_set(e, TENON_E_CONFIG, "limits.ring_kib: is over limits.ring_max_kib");
	if (*c->default_model && !conf_name_ok(c->default_model, strlen(c->default_model)))
		return error_set(
			e, TENON_E_CONFIG, "default_model '%.40s': not a model name", c->default_model);
	if (c->worker.backoff_ms > c->worker.backoff_max_ms)
		return error_set(e, TENON_E_CONFIG, "worker.backoff_ms: is over worker.backoff_max_ms");
	if (derive_socket(c, e) || derive_models(c, e))
		return e->code;
	return derive_disk_dir(c, e);
}

const char *conf_kv_name(uint32_t kv) { return kvs[kv < COUNT_OF(kvs) - 1 ? kv : 0]; }
const char *conf_precision_name(uint32_t p) { return precisions[p < COUNT_OF(precisions) - 1 ? p : 0]; }

static bool print_keys(struct buf *out, const char *prefix, const struct key *keys)
{
	for (const struct key *k = keys; k->name; k++) {
		if (k->kind == GROUP)
			(void)print_keys(out, k->name, k->group);
		else
			(void)buf_printf(out, "%s%s%s\n", prefix, *prefix ? "." : "", k->name);
	}
	return !out->failed;
}

bool conf_print_keys(struct buf *out)
{
	return print_keys(out, "", top_keys) && print_keys(out, "models", conf_model_keys) &&
		print_keys(out, "tenants", conf_tenant_keys);
}
