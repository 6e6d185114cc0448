/* SPDX-License-Identifier: Apache-2.0
 * open_model.h. The plugins' answers to probes are not kept here: a command tries nothing out, it loads what it was
 * told to, in its own process.
 */
#include "tools/open_model.h"
#include "engine/pass.h"
#include <string.h>

int open_model_option(const char *cmd, int c, const char *arg, struct open_options *o)
{
	struct error e = { 0 };
	struct backends_list list;
	uint64_t off;

	switch (c) {
	case 'm':
		o->model = arg;
		return 1;
	case OPT_BACKEND:
		o->backend = arg;
		if (!backends_parse(arg, 0, &list, &e))
			return 1;
		(void)cli_usage(cmd, "--%s", e.text);
		return -1;
	case OPT_PRECISION:
		o->precision = arg;
		if (!strcmp(arg, "fast") || !strcmp(arg, "exact"))
			return 1;
		(void)cli_usage(cmd, "--precision: '%s' is neither fast nor exact", arg);
		return -1;
	case OPT_KV:
		o->kv = arg;
		if (!strcmp(arg, "f32") || !strcmp(arg, "f16") || !strcmp(arg, "q8_0") ||
			!strcmp(arg, "q4_0"))
			return 1;
		(void)cli_usage(cmd, "--kv: '%s' is none of f32, f16, q8_0, q4_0", arg);
		return -1;
	case OPT_THREADS:
		return cli_parse_u64(cmd, "--threads", arg, 1, 1024, &o->threads) ? 1 : -1;
	case OPT_ISA:
		o->isa = arg;
		return 1;
	case OPT_PASSES:
		o->passes = arg;
		if (!pass_names_parse(arg, &off, &e))
			return 1;
		(void)cli_usage(cmd, "--%s", e.text);
		return -1;
	}
	return 0;
}

static void take_types(const struct open_options *o, struct model_options *m)
{
	if (o->precision)
		m->precision = !strcmp(o->precision, "exact") ? TNP_EXACT : TNP_FAST;
	if (!o->kv)
		return;
	m->kv_f32 = !strcmp(o->kv, "f32");
	m->kv_type = !strcmp(o->kv, "q8_0") ? TNP_Q8_0 : !strcmp(o->kv, "q4_0") ? TNP_Q4_0 : TNP_F16;
}

/* The options that the command line has for backends, for each of them. */
static size_t take_plugin_options(const struct open_options *o, struct opened *out)
{
	size_t n = 0;

	(void)snprintf(out->threads, sizeof out->threads, "%llu", (unsigned long long)o->threads);
	for (uint32_t i = 0; i < out->list.n; i++) {
		const char *name = *out->list.part[i].name ? out->list.part[i].name : "cpu";

		if (o->threads)
			out->options[n++] = (struct plugin_option){ name, "threads", out->threads };
		if (o->isa)
			out->options[n++] = (struct plugin_option){ name, "isa", o->isa };
	}
	return n;
}

static int open_backends(const struct open_options *o, struct opened *out, struct error *e)
{
	struct plugins_config c = { .dirs = out->dirs, .n_dirs = 1, .options = out->options };
	int rc = backends_parse(o->backend, 0, &out->list, e);

	if (!rc)
		rc = plugins_default_dir(out->dir, sizeof out->dir, e);
	if (rc)
		return rc;
	out->dirs[0] = out->dir;
	c.n_options = take_plugin_options(o, out);
	rc = plugins_open(&c, &out->plugins, e);
	return rc ? rc : backends_open(out->plugins, &out->list, &out->backends, e);
}

int open_model(struct open_options *o, struct opened *out, struct error *e)
{
	int rc;

	memset(out, 0, sizeof *out);
	rc = cli_model_path(o->model, out->path, sizeof out->path, e);
	if (!rc)
		rc = open_backends(o, out, e);
	if (rc)
		return rc;
	o->o.path = out->path;
	o->o.places = out->backends.place;
	o->o.n_places = out->backends.n;
	o->o.passes = o->passes;
	take_types(o, &o->o);
	return model_open(&o->o, &out->model, e);
}

void open_model_close(struct opened *m)
{
	model_close(m->model);
	backends_close(&m->backends);
	plugins_close(m->plugins);
	m->model = NULL;
	m->plugins = NULL;
}
