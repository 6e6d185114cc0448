/* SPDX-License-Identifier: Apache-2.0
 * What `bench mixed` and `bench prefix` share: options, a daemon with room for the load, the text, the peer.
 */
#ifndef TOOLS_BENCH_LOAD_H
#define TOOLS_BENCH_LOAD_H
#include "tools/bench.h"
#include "tools/load.h"

struct bench_load_options {
	const char *model, *tokenizer, *text, *vs_url;
	struct session_options so;
	uint64_t seed, kv_mib; /* kv_mib 0: room for kv_tokens */
	uint64_t kv_tokens;
	bool json;
};
#define BENCH_LOAD_LONGS                                                                                         \
	SESSION_LONG_OPTIONS, { "text", 1, NULL, 1010 }, { "vs-url", 1, NULL, 1011 }, { "seed", 1, NULL, 1012 }, \
		{ "kv-mib", 1, NULL, 1013 }, { "tokenizer", 1, NULL, 1015 }, { "json", 0, NULL, 1014 }, { "help", 0, NULL, 'h' }
#define BENCH_LOAD_HELP                                                                                           \
	SESSION_HELP                                                                                              \
	"      --kv-mib N        memory for keys and values of a private daemon (default: room for the load)\n"  \
	"      --vs-url URL      llama.cpp's server with the same model: same prompts, same clients, in turn\n"   \
	"      --tokenizer M     with --socket: the model's file or name here, when -m is a name of the daemon's own\n"   \
	"      --text FILE       where prompts are cut from (default: the GPL-3 of Debian's common-licenses)\n"   \
	"      --seed N          of arrivals and prompts (default 1)\n"                                           \
	"      --json\n      --help\n"
/* Takes a shared option: 1; 0: not one of these; -1: a usage error was printed. */
int bench_load_option(const char *cmd, int c, const char *arg, struct bench_load_options *o);

/* After all options: --socket excludes what needs a private daemon. CLI_OK, or CLI_USAGE after a message. */
int bench_load_check(const char *cmd, const struct bench_load_options *o);

struct bench_load { /* zero-initialise */
	struct session session;
	struct load_text text;
	struct load_server ours, peer;
	const char *model; /* as requests name it */
	char path[4096], name[4096], kv[32];
};
/* Text, daemon (n_clients sessions) and peer; the model is loaded and has answered once. Close it in any case. */
int bench_load_open(struct bench_load *l, struct bench_load_options *o, uint32_t n_clients, struct error *e);
void bench_load_close(struct bench_load *l);
/* One answer, so that the model is loaded and its pages are mapped. */
int bench_load_wake(struct bench_load *l, struct load_server *s, struct error *e);
/* The daemon again, with --set options; tiers and other files stay. */
int bench_load_reopen(struct bench_load *l, const struct bench_load_options *o, uint32_t n_clients, struct error *e);
/* Limits that figures should keep: {"name","measured","limit","must_be","ok"}; must_be: "at most", "at least", "over". */
void bench_check_add(json_t *checks, const char *name, double measured, const char *must_be, double limit, bool ok);
/* Puts them into the report, prints it, and them below the table for people. Takes both over. */
void bench_load_print(json_t *report, json_t *checks, bool as_json);
json_t *bench_load_model_json(const struct bench_load *l);
#endif
