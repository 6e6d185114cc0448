/* SPDX-License-Identifier: Apache-2.0
 * A peer of a benchmark: a script of bench/ in the throw-away virtual environment of bench/make-venv, spoken to in lines.
 */
#ifndef TOOLS_PEER_H
#define TOOLS_PEER_H
#include "tools/cli.h"
#include <sys/types.h>

struct peer { /* zero-initialise */
	pid_t pid;
	FILE *to, *from;
};
/* Makes the environment if needed, starts bench/peer_NAME.py and waits until it is ready. NOT_FOUND: no scripts (set
 * TENON_BENCH_DIR to the folder bench/ of the source). UNSUPPORTED: the peer refuses the file, the text says why; GONE: it
 * ended over it. */
int peer_start(struct peer *p, const char *name, const char *model, uint32_t threads, uint32_t n_ctx, uint32_t slots, struct error *e);
/* Sends a line, reads one JSON object, returns its number `key`. BACKEND: the peer answered with an error. */
int peer_ask(struct peer *p, const char *cmd, const char *key, double *out, struct error *e);
void peer_stop(struct peer *p);
/* The folder bench/ of the source tree: $TENON_BENCH_DIR, else where this build came from. */
const char *peer_bench_dir(void);
#endif
