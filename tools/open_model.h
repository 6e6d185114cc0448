/* SPDX-License-Identifier: Apache-2.0
 * Options of commands that load a model themselves (logits, perplexity, bench model, inspect), and the loading.
 */
#ifndef TOOLS_OPEN_MODEL_H
#define TOOLS_OPEN_MODEL_H
#include "engine/model.h"
#include "tools/cli.h"

struct open_options {		/* zero-initialise; NULL and 0 mean defaults */
	const char *model;	/* -m: path or name */
	const char *backend;	/* --backend: a list, engine/backends.h */
	const char *precision;	/* --precision fast|exact */
	const char *kv;		/* --kv f32|f16|q8_0|q4_0 */
	uint64_t threads;	/* --threads: the backend's "threads" option */
	const char *isa;	/* --isa: the backend's "isa" option */
	const char *passes;	/* --passes: graph passes off and on, engine/pass.h */
	struct model_options o; /* everything else; path and backend are filled here */
};

struct opened {
	struct plugins *plugins;
	struct backends_list list;
	struct backends backends;
	struct model *model;
	char dir[4096], path[4096], threads[24];
	const char *dirs[1];
	struct plugin_option options[2 * MODEL_MAX_PARTS];
};

/* The long options above, for a command's table; values beyond any character. */
enum { OPT_BACKEND = 0x200, OPT_PRECISION, OPT_KV, OPT_THREADS, OPT_ISA, OPT_PASSES };
#define OPEN_MODEL_LONGS                                                                                     \
	{ "model", required_argument, NULL, 'm' }, { "backend", required_argument, NULL, OPT_BACKEND },      \
		{ "precision", required_argument, NULL, OPT_PRECISION },                                     \
		{ "kv", required_argument, NULL, OPT_KV }, { "isa", required_argument, NULL, OPT_ISA },      \
		{ "passes", required_argument, NULL, OPT_PASSES },                                           \
	{                                                                                                    \
		"threads", required_argument, NULL, OPT_THREADS                                              \
	}
#define OPEN_MODEL_HELP                                                                                      \
	"  -m, --model MODEL        a GGUF file, or a name that scripts/fetch-model knows\n"                 \
	"      --backend LIST       compute backend (default: the best there is, cpu), or backends with the layers\n"       \
	"                           of each, as in cpu=15,ref: the first 15 on cpu, the others on ref\n"       \
	"      --precision P        fast (activations may be quantised; default) or exact (floats)\n"        \
	"      --kv TYPE            keys and values as f32, f16 (default), q8_0 or q4_0\n"                   \
	"      --isa NAME           instructions the backend may use (cpu: baseline, avx2, avx512vnni, ...)\n" \
	"      --threads N          compute threads of the backend (default: what this process may use)\n"       \
	"      --passes LIST        graph passes off and on, as in -fuse_qkv,-layout (default: all on)\n"

/* 1: the option was taken; 0: not one of these; -1: a usage error was printed. */
int open_model_option(const char *cmd, int c, const char *arg, struct open_options *o);
/* Fills `out`; closed by open_model_close also after a failure. */
int open_model(struct open_options *o, struct opened *out, struct error *e);
void open_model_close(struct opened *m);
#endif
