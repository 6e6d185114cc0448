/* SPDX-License-Identifier: Apache-2.0
 * tenon-probe: the throw-away process in which a plugin is tried before anything else trusts it. Started by probe.c
 * with the checked shared object as descriptor 3 and a pipe as descriptor 4; not for people. Arguments: the plugin's
 * name, "check" or "skip" (the self check), then KEY=VALUE of its configuration. Whatever the plugin does here ends with this process.
 */
#include "plugins/plugins_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

enum { MAX_OPTIONS = 256 };

static void tell(const void *data, size_t len)
{
	for (size_t n = 0; n < len;) {
		ssize_t put = write(PROBE_FD_RESULT, (const char *)data + n, len - n);

		if (put <= 0)
			_exit(3);
		n += (size_t)put;
	}
}

static size_t take_options(const char *name, int argc, char **argv, struct plugin_option *o)
{
	size_t n = 0;

	for (int i = 0; i < argc && n < MAX_OPTIONS; i++) {
		char *eq = strchr(argv[i], '=');

		if (!eq)
			continue;
		*eq = 0;
		o[n++] = (struct plugin_option){ .plugin = name, .key = argv[i], .value = eq + 1 };
	}
	return n;
}

/* Opens each device and asks what it can do: drivers that are installed but broken show it here. */
static int check_device(struct module *m, uint32_t i, bool self_check, struct error *e)
{
	struct tnp_error te = TNP_ERROR_INIT;
	struct tnp_dev *d = NULL;
	uint64_t types = 0;
	uint32_t n = 0, lo = 0, hi = 0;
	int rc = plugin_error(m->ops.name, "dev_open", m->ops.dev_open(i, &d, &te), &te, e);

	if (rc)
		return rc;
	rc = plugin_error(m->ops.name, "op_caps", m->ops.op_caps(d, NULL, &n, &te), &te, e);
	if (!rc)
		rc = plugin_error(m->ops.name, "kv_caps", m->ops.kv_caps(d, &types, &lo, &hi, &te), &te, e);
	if (!rc && lo > hi)
		rc = error_set(e, TENON_E_BACKEND, "plugin '%s': pages of at least %u and at most %u tokens",
			m->ops.name, lo, hi);
	if (!rc && self_check)
		rc = probe_check(&m->ops, d, e);
	m->ops.dev_close(d);
	return rc;
}

static int try_plugin(const char *name, bool self_check, struct plugin_host *h, struct probe_result *r,
	struct error *e)
{
	struct module m = { 0 };
	uint32_t n = 0;
	int rc;

	tell(&PROBE_STAGES[0], 1);
	rc = module_load(&m, PROBE_FD_MODULE, name, e);
	if (!rc)
		rc = module_start(&m, h, e);
	tell(&PROBE_STAGES[1], 1);
	if (!rc)
		rc = module_devices(&m, &n, e);
	for (uint32_t i = 0; !rc && i < MIN_OF(n, (uint32_t)PLUGIN_MAX_DEVICES); i++)
		rc = module_device(&m, i, &r->device[r->n_devices++], e);
	tell(&PROBE_STAGES[2], 1);
	for (uint32_t i = 0; !rc && i < r->n_devices; i++)
		rc = check_device(&m, i, self_check, e);
	(void)snprintf(r->vendor, sizeof r->vendor, "%s", m.ops.vendor ? m.ops.vendor : "");
	(void)snprintf(r->version, sizeof r->version, "%s", m.ops.version ? m.ops.version : "");
	tell(&PROBE_STAGES[3], 1);
	module_stop(&m);
	return rc;
}

int main(int argc, char **argv)
{
	static struct plugin_option options[MAX_OPTIONS];
	static struct plugin_host host;
	static struct probe_result result = { .magic = PROBE_MAGIC, .bytes = sizeof result };
	const struct rlimit no_core = { 0, 0 };
	struct plugins_config c = { .options = options };
	struct error e = { 0 };

	if (argc < 3 || lseek(PROBE_FD_MODULE, 0, SEEK_CUR) < 0) {
		(void)fputs("tenon-probe: started by Tenon itself to try a plugin; see 'tenonctl backends'\n",
			stderr);
		return 2;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setrlimit(RLIMIT_CORE, &no_core);
	c.n_options = take_options(argv[1], argc - 3, argv + 3, options);
	result.code = plugin_host_init(&host, argv[1], &c, &e);
	if (!result.code)
		result.code = try_plugin(argv[1], !strcmp(argv[2], "check"), &host, &result, &e);
	if (result.code)
		(void)snprintf(result.text, sizeof result.text, "%s", e.text);
	tell(&result, sizeof result);
	_exit(0);
}
