/* SPDX-License-Identifier: Apache-2.0
 * config.h: the keys that hold lists (models, tenants, plugins), and who may speak for which tenant. Loop thread.
 */
#include "daemon/config_priv.h"
#include <pwd.h>
#include <stdio.h>
#include <string.h>

enum { MODELS_MAX = 256, TENANTS_MAX = 256, USERS_MAX = 4096, DIRS_MAX = 16, OPTIONS_MAX = 256 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

bool conf_name_ok(const char *name, size_t len)
{
	if (len < 1 || len > 128 || name[0] == '.' || name[0] == '-' || name[0] == '_')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '.' || c == '_' || c == '-'))
			return false;
	}
	return true;
}

static struct conf_model *model_slot(struct conf *c, struct error *e)
{
	struct conf_model *grown;

	if (c->n_models == MODELS_MAX) {
		(void)error_set(e, TENON_E_CONFIG, "models: more than %d entries", MODELS_MAX);
		return NULL;
	}
	grown = mem_resize(MEM_DAEMON, c->models, (c->n_models + 1) * sizeof *grown);
	if (!grown) {
		(void)conf_no_memory(e);
		return NULL;
	}
	c->models = grown;
	grown[c->n_models] = c->model_defaults;
	return &grown[c->n_models];
}

/* The entry is in place but not yet counted: a name that is already there takes its place. */
static int model_commit(struct conf *c, struct conf_model *m, struct error *e)
{
	if (!m->name || !conf_name_ok(m->name, strlen(m->name)))
		return error_set(e, TENON_E_CONFIG,
			"model name '%.40s': write letters, digits and . _ -, at most 128",
			m->name ? m->name : "");
	for (uint32_t i = 0; i < c->n_models; i++)
		if (!strcmp(c->models[i].name, m->name))
			return error_set(e, TENON_E_CONFIG, "model '%.40s': named twice", m->name);
	c->n_models++;
	return TENON_OK;
}

int conf_read_models(const struct reader *r, config_setting_t *s)
{
	if (config_setting_type(s) != CONFIG_TYPE_LIST)
		return conf_wrong_type(r, s, CONFIG_TYPE_LIST);
	for (int i = 0; i < config_setting_length(s); i++) {
		config_setting_t *entry = config_setting_get_elem(s, (unsigned)i);
		struct conf_model *m = model_slot(r->c, r->e);
		struct error why = { 0 };
		int rc = m ? conf_read_group(r, entry, conf_model_keys, m) : TENON_E_NOMEM;

		if (!rc && (rc = model_commit(r->c, m, &why)) != 0)
			(void)conf_fault(r, entry, "%s", why.text);
		if (rc)
			return rc;
	}
	return TENON_OK;
}

int conf_add_model(struct conf *c, const char *name, const char *path, struct error *e)
{
	struct conf_model *m = model_slot(c, e);
	int rc = m ? conf_set_string(c, &m->name, name, e) : TENON_E_NOMEM;

	if (!rc)
		rc = conf_set_string(c, &m->path, path, e);
	return rc ? rc : model_commit(c, m, e);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static int add_user(const struct reader *r, const config_setting_t *s, uint32_t uid)
{
	struct conf *c = r->c;
	struct conf_tenant_user *grown;

	if (c->n_tenant_users == USERS_MAX)
		return conf_fault(r, s, "tenants: more than %d users", USERS_MAX);
	grown = mem_resize(MEM_DAEMON, c->tenant_users, (c->n_tenant_users + 1) * sizeof *grown);
	if (!grown)
		return conf_no_memory(r->e);
	c->tenant_users = grown;
	grown[c->n_tenant_users++] = (struct conf_tenant_user){ .tenant = c->n_tenants, .uid = uid };
	return TENON_OK;
}

static int read_user(const struct reader *r, config_setting_t *s)
{
	int type = config_setting_type(s);
	const struct passwd *who;
	long long uid;

	if (type == CONFIG_TYPE_STRING) {
		who = getpwnam(config_setting_get_string(s));
		if (!who)
			return conf_fault(
				r, s, "users: no user '%.40s' on this machine", config_setting_get_string(s));
		return add_user(r, s, (uint32_t)who->pw_uid);
	}
	if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64)
		return conf_fault(r, s, "users: write names or numbers of users");
	uid = config_setting_get_int64(s);
	if (uid < 0 || uid >= UINT32_MAX)
		return conf_fault(r, s, "users: %lld is no number of a user", uid);
	return add_user(r, s, (uint32_t)uid);
}

/* Of the entry that is being read: the one behind the last. Names and numbers may be mixed, so a list as well as an array. */
int conf_read_users(const struct reader *r, config_setting_t *s)
{
	int type = config_setting_type(s), rc = TENON_OK;

	if (type != CONFIG_TYPE_ARRAY && type != CONFIG_TYPE_LIST)
		return conf_wrong_type(r, s, CONFIG_TYPE_LIST);
	for (int i = 0; i < config_setting_length(s) && !rc; i++)
		rc = read_user(r, config_setting_get_elem(s, (unsigned)i));
	return rc;
}

static int read_tenant(const struct reader *r, config_setting_t *s)
{
	struct conf *c = r->c;
	struct conf_tenant *grown, t = { .weight = 1 };
	int rc = conf_read_group(r, s, conf_tenant_keys, &t);

	if (rc)
		return rc;
	if (!t.name || strlen(t.name) > WIRE_MAX_TENANT_BYTES || !conf_name_ok(t.name, strlen(t.name)))
		return conf_fault(r, s, "tenant name '%.40s': write letters, digits and . _ -, at most %u",
			t.name ? t.name : "", WIRE_MAX_TENANT_BYTES);
	for (uint32_t i = 0; i < c->n_tenants; i++)
		if (!strcmp(c->tenants[i].name, t.name))
			return conf_fault(r, s, "tenant '%.40s': named twice", t.name);
	if (c->n_tenants == TENANTS_MAX)
		return conf_fault(r, s, "tenants: more than %d entries", TENANTS_MAX);
	grown = mem_resize(MEM_DAEMON, c->tenants, (c->n_tenants + 1) * sizeof *grown);
	if (!grown)
		return conf_no_memory(r->e);
	c->tenants = grown;
	grown[c->n_tenants++] = t;
	return TENON_OK;
}

int conf_read_tenants(const struct reader *r, config_setting_t *s)
{
	int rc = TENON_OK;

	if (config_setting_type(s) != CONFIG_TYPE_LIST)
		return conf_wrong_type(r, s, CONFIG_TYPE_LIST);
	for (int i = 0; i < config_setting_length(s) && !rc; i++)
		rc = read_tenant(r, config_setting_get_elem(s, (unsigned)i));
	return rc;
}

const struct conf_tenant *conf_tenant_of(const struct conf *c, uint32_t uid)
{
	for (uint32_t i = 0; i < c->n_tenant_users; i++)
		if (c->tenant_users[i].uid == uid)
			return &c->tenants[c->tenant_users[i].tenant];
	return NULL;
}

static bool speaks_for(const struct conf *c, uint32_t tenant, uint32_t uid, bool any)
{
	for (uint32_t i = 0; i < c->n_tenant_users && !any; i++)
		any = c->tenant_users[i].tenant == tenant && c->tenant_users[i].uid == uid;
	return any;
}

const struct conf_tenant *conf_tenant_named(
	const struct conf *c, const char *name, size_t len, uint32_t uid, bool any)
{
	for (uint32_t i = 0; i < c->n_tenants; i++)
		if (strlen(c->tenants[i].name) == len && !memcmp(c->tenants[i].name, name, len))
			return speaks_for(c, i, uid, any) ? &c->tenants[i] : NULL;
	return NULL;
}

void conf_tenants_allowed(const struct conf *c, uint32_t uid, bool any, char *out, size_t room)
{
	size_t n = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < c->n_tenants && n < room; i++)
		if (speaks_for(c, i, uid, any))
			n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", c->tenants[i].name);
	if (!n)
		(void)snprintf(out, room, "uid:%u", uid);
}

/* ---- plugins ------------------------------------------------------------------------------------------------------ */

int conf_read_plugin_dirs(const struct reader *r, config_setting_t *s)
{
	int n = config_setting_length(s), type = config_setting_type(s);
	const char **dirs;

	if (type != CONFIG_TYPE_ARRAY && type != CONFIG_TYPE_LIST)
		return conf_wrong_type(r, s, CONFIG_TYPE_ARRAY);
	if (n > DIRS_MAX)
		return conf_fault(r, s, "plugin_dirs: more than %d folders", DIRS_MAX);
	dirs = mem_zalloc(MEM_DAEMON, (size_t)n + 1, sizeof *dirs);
	if (!dirs)
		return conf_no_memory(r->e);
	mem_free(r->c->plugin_dirs);
	r->c->plugin_dirs = dirs;
	r->c->n_plugin_dirs = (uint32_t)n;
	for (int i = 0; i < n; i++) {
		int rc = conf_read_string(r, config_setting_get_elem(s, (unsigned)i), &dirs[i]);

		if (rc)
			return rc;
	}
	return TENON_OK;
}

/* A plugin's options may be strings, numbers or booleans; the plugin gets them as text. */
static int option_text(const struct reader *r, config_setting_t *s, char *out, size_t room)
{
	switch (config_setting_type(s)) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		(void)snprintf(out, room, "%lld", config_setting_get_int64(s));
		return TENON_OK;
	case CONFIG_TYPE_FLOAT:
		(void)snprintf(out, room, "%.9g", config_setting_get_float(s));
		return TENON_OK;
	case CONFIG_TYPE_BOOL:
		(void)snprintf(out, room, "%s", config_setting_get_bool(s) ? "true" : "false");
		return TENON_OK;
	case CONFIG_TYPE_STRING:
		if (snprintf(out, room, "%s", config_setting_get_string(s)) < (int)room)
			return TENON_OK;
		return conf_fault(r, s, "%.40s: longer than %zu bytes", config_setting_name(s), room - 1);
	default:
		return conf_wrong_type(r, s, CONFIG_TYPE_STRING);
	}
}

static int add_option(struct conf *c, const char *plugin, const char *key, const char *value, struct error *e)
{
	struct conf_plugin_option *grown, o = { 0 };
	int rc;

	if (c->n_plugin_options == OPTIONS_MAX)
		return error_set(e, TENON_E_CONFIG, "plugins: more than %d options", OPTIONS_MAX);
	grown = mem_resize(MEM_DAEMON, c->plugin_options, (c->n_plugin_options + 1) * sizeof *grown);
	if (!grown)
		return conf_no_memory(e);
	c->plugin_options = grown;
	if ((rc = conf_set_string(c, &o.plugin, plugin, e)) || (rc = conf_set_string(c, &o.key, key, e)) ||
		(rc = conf_set_string(c, &o.value, value, e)))
		return rc;
	grown[c->n_plugin_options++] = o;
	return TENON_OK;
}

static int read_plugin(const struct reader *r, config_setting_t *s)
{
	if (config_setting_type(s) != CONFIG_TYPE_GROUP)
		return conf_wrong_type(r, s, CONFIG_TYPE_GROUP);
	for (int i = 0; i < config_setting_length(s); i++) {
		config_setting_t *o = config_setting_get_elem(s, (unsigned)i);
		char text[1024];
		int rc = option_text(r, o, text, sizeof text);

		if (!rc)
			rc = add_option(r->c, config_setting_name(s), config_setting_name(o), text, r->e);
		if (rc)
			return rc;
	}
	return TENON_OK;
}

int conf_read_plugins(const struct reader *r, config_setting_t *s)
{
	if (config_setting_type(s) != CONFIG_TYPE_GROUP)
		return conf_wrong_type(r, s, CONFIG_TYPE_GROUP);
	for (int i = 0; i < config_setting_length(s); i++) {
		int rc = read_plugin(r, config_setting_get_elem(s, (unsigned)i));

		if (rc)
			return rc;
	}
	return TENON_OK;
}
