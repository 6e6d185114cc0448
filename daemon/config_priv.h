/* SPDX-License-Identifier: Apache-2.0
 * What config.c (table and scalar values) and config_lists.c (lists of models, tenants, plugins) share. Loop thread.
 */
#ifndef DAEMON_CONFIG_PRIV_H
#define DAEMON_CONFIG_PRIV_H
#include "daemon/config.h"
#include <libconfig.h>

enum kind { BOOL, U32, U64, REAL, STRING, CHOICE, GROUP, CUSTOM };

struct reader {
	struct conf *c;
	const char *where; /* file or text, when libconfig does not know */
	struct error *e;
};

struct key {
	const char *name;
	enum kind kind;
	size_t off; /* in struct conf, or struct conf_model for keys of a model */
	uint64_t lo, hi, unit,
		def;	  /* numbers in the file's unit; unit: bytes in one of them; REAL: thousandths */
	const char *text; /* default of a STRING; NULL stays NULL                          */
	const char *const *choices; /* CHOICE: names, in the order of their enum                       */
	const struct key *group;
	int (*read)(const struct reader *r, config_setting_t *s);
};

extern const struct key conf_model_keys[], conf_tenant_keys[];

/* CONFIG with file and line of the setting. */
int conf_fault(const struct reader *r, const config_setting_t *s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int conf_wrong_type(const struct reader *r, const config_setting_t *s, int wanted);
int conf_no_memory(struct error *e);
int conf_set_string(struct conf *c, const char **at, const char *s, struct error *e);
int conf_read_string(const struct reader *r, config_setting_t *s, const char **at);
/* A group's settings by a table of keys; `base`: the struct that their offsets count from. */
int conf_read_group(const struct reader *r, config_setting_t *s, const struct key *keys, void *base);

int conf_read_models(const struct reader *r, config_setting_t *s);
int conf_read_tenants(const struct reader *r, config_setting_t *s);
int conf_read_users(const struct reader *r, config_setting_t *s);
int conf_read_plugin_dirs(const struct reader *r, config_setting_t *s);
int conf_read_plugins(const struct reader *r, config_setting_t *s);
#endif
