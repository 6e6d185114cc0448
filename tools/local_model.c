/* SPDX-License-Identifier: Apache-2.0
 * See local_model.h.
 */
#include "tools/local_model.h"
#include <string.h>

static int parse_types(const struct local_model_options *o, struct model_options *mo, struct error *e)
{
	static const struct { const char *name; uint32_t type; } kv[] = { { "f32", TNP_F32 }, { "f16", TNP_F16 },
		{ "q8_0", TNP_Q8_0 }, { "q4_0", TNP_Q4_0 } };
	size_t i = 1;

	if (o->precision && strcmp(o->precision, "fast") && strcmp(o->precision, "exact"))
		return error_set(e, TENON_E_INVALID, "--precision: '%.32s' is neither fast nor exact", o->precision);
	mo->precision = o->precision && !strcmp(o->precision, "exact") ? TNP_EXACT : TNP_FAST;
	for (i = 0; o->kv && i < COUNT_OF(kv) && strcmp(o->kv, kv[i].name); i++)
		;
	if (i == COUNT_OF(kv))
		return error_set(e, TENON_E_INVALID, "--kv: '%.32s' is none of f32, f16, q8_0, q4_0", o->kv);
	mo->kv_type = o->kv ? kv[i].type : TNP_F16;
	mo->kv_f32 = mo->kv_type == TNP_F32;
	return TENON_OK;
}

static int open_backend(const struct local_model_options *o, struct local_model *l, struct error *e)
{
	char dir[4096];
	const char *dirs[1] = { dir };
	const char *name = o->backend ? o->backend : "cpu";
	struct plugins_config pc = { .dirs = dirs, .n_dirs = 1 };
	int rc = plugins_default_dir(dir, sizeof dir, e);

	if (rc)
		return rc;
	if (o->threads) {
		(void)snprintf(l->threads, sizeof l->threads, "%u", o->threads);
		l->option = (struct plugin_option){ name, "threads", l->threads };
		pc.options = &l->option;
		pc.n_options = 1;
	}
	rc = plugins_open(&pc, &l->plugins, e);
	return rc ? rc : backend_open(l->plugins, name, 0, &l->backend, e);
}

int local_model_open(const struct local_model_options *o, struct local_model *l, struct error *e)
{
	struct model_options mo = { .path = l->path, .n_ctx = o->n_ctx, .step_tokens = o->step_tokens, .step_seqs = o->step_seqs,
		.step_out = o->step_out };
	int rc;

	memset(l, 0, sizeof *l);
	rc = parse_types(o, &mo, e);
	rc = rc ? rc : cli_model_path(o->model ? o->model : "smollm2-135m", l->path, sizeof l->path, e);
	rc = rc ? rc : open_backend(o, l, e);
	mo.backend = l->backend;
	rc = rc ? rc : model_open(&mo, &l->m, e);
	if (rc)
		local_model_close(l);
	return rc;
}

void local_model_close(struct local_model *l)
{
	model_close(l->m);
	backend_close(l->backend);
	plugins_close(l->plugins);
	memset(l, 0, sizeof *l);
}
