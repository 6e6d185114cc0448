/* SPDX-License-Identifier: Apache-2.0
 * How commands reach a daemon: a running one (--socket, or the default socket if somebody listens there), else a
 * private one that lives as long as the command. Also Ctrl-C: SIGINT sets a flag, the command cancels and ends.
 */
#ifndef TOOLS_SESSION_H
#define TOOLS_SESSION_H
#include "tools/cli.h"
#include <sys/types.h>
#include <tenon/client.h>

struct session_options { /* NULL members: the daemon's defaults */
	const char *socket;   /* asked for: fail if nobody listens there */
	const char *backend, *precision, *kv; /* any of them forces a private daemon */
	const char *ctx;      /* context length; forces a private daemon too */
	int eventfd_bell;
	const char *config;   /* file for a private daemon; forces one */
	const char *set[8];   /* KEY=VALUE of tenond's --set, up to a NULL; forces a private daemon too */
};
struct session {
	struct tenon *t;
	pid_t daemon; /* of a private one, else 0 */
	int ready_fd; /* our end of its life line, else -1 */
	char socket[112]; /* where it listens; "": the default place */
};
/* A private daemon is started with `--private --ready-fd N`: it writes "ready SOCKET" (or "error TEXT") and a newline
 * to N, and ends when the other end of N is closed. */
int session_open(const struct session_options *o, struct session *s, struct error *e);
void session_close(struct session *s); /* ends a private daemon and waits for it */

#define SESSION_DEFAULT_MODEL "smollm2-135m"
/* What to call the model in a request: a running daemon knows names of its own, a private one takes paths. NULL: not
 * found (error filled). */
const char *session_model(const struct session *s, const char *m, char *path, size_t room, struct error *e);

/* SIGINT: the first sets a flag, the second ends the process as usual. */
void session_catch_int(void);
int session_interrupted(void);

/* Options that `run`, `chat` and `generate` share. */
#define SESSION_LONG_OPTIONS                              \
	{ "model", required_argument, NULL, 'm' },         \
	{ "socket", required_argument, NULL, 1000 },       \
	{ "backend", required_argument, NULL, 1001 },      \
	{ "precision", required_argument, NULL, 1002 },    \
	{ "kv", required_argument, NULL, 1003 },           \
	{ "ctx", required_argument, NULL, 1004 }
/* Takes one of them: true if `c` was one. */
bool session_option(int c, const char *arg, struct session_options *o, const char **model);
/* The contract's rule: --socket together with an option that forces a private daemon is wrong use. */
int session_options_check(const char *cmd, const struct session_options *o);
#define SESSION_HELP                                                                                      \
	"  -m, --model M         a name that scripts/fetch-model knows, or a GGUF file (default: smollm2-135m)\n" \
	"      --socket PATH     a running tenond (default: $TENON_SOCKET, the standard places, else a private one)\n" \
	"      --backend LIST    compute backend, or several with their layers as in cpu=15,ref; starts a private daemon\n" \
	"      --precision P     fast or exact; starts a private daemon\n"                                \
	"      --kv TYPE         f32, f16, q8_0 or q4_0; starts a private daemon\n"                       \
	"      --ctx N           context length; starts a private daemon\n"
#endif
