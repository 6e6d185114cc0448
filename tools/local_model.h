/* SPDX-License-Identifier: Apache-2.0
 * A model opened in this process, for commands that work on a file without a daemon.
 */
#ifndef TOOLS_LOCAL_MODEL_H
#define TOOLS_LOCAL_MODEL_H
#include "engine/model.h"
#include "tools/cli.h"

struct local_model_options { /* NULL and 0: defaults */
	const char *model;      /* name or path */
	const char *backend;    /* default: cpu */
	const char *precision;  /* fast (default), exact */
	const char *kv;         /* f32, f16 (default), q8_0, q4_0 */
	uint32_t threads, n_ctx, step_tokens, step_seqs, step_out;
};
struct local_model {
	struct plugins *plugins;
	struct backend *backend;
	struct model *m;
	struct plugin_option option; /* threads */
	char threads[16], path[4096];
};
/* INVALID for an unknown precision or KV type, else what the parts below say. */
int local_model_open(const struct local_model_options *o, struct local_model *l, struct error *e);
void local_model_close(struct local_model *l); /* zeroed is fine */
#endif
