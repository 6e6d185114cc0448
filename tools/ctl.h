/* SPDX-License-Identifier: Apache-2.0
 * tenonctl: asking the daemon's control socket (ctl_ask.c) and printing answers for people (ctl_show.c, ctl_top.c).
 */
#ifndef TOOLS_CTL_H
#define TOOLS_CTL_H
#include "base/base.h"
#include <jansson.h>

/* The control socket beside the client socket `socket` (NULL: the default places). */
int ctl_path(const char *socket, char *path, size_t room, struct error *e);
/* One question, one answer. GONE: nobody listens there; TIMEOUT; FORMAT; else the code that the daemon answered. */
int ctl_ask(const char *path, const json_t *question, int timeout_ms, json_t **answer, struct error *e);

/* ctl_table.c. Columns "HEAD:key:kind", kind s(tring), n(umber), b(ytes), t(ime in ms), r(eal), f(lag). */
void ctl_table(struct buf *out, const json_t *rows, const char *const *columns, const char *none);
const char *ctl_str(const json_t *o, const char *key); /* "-" where there is none */
long long ctl_num(const json_t *o, const char *key);
const char *ctl_bytes_text(long long n, char out[32]); /* "12.3 MiB" */
const char *ctl_time_text(long long ms, char out[32]);

/* ctl_top.c: what runs, redrawn each second until q; `once`, or when stdout is no terminal: one snapshot as text. Returns
 * the exit status. */
int ctl_top(const char *path, int timeout_ms, bool once);

void ctl_show_status(const json_t *a);
void ctl_show_models(const json_t *a);
void ctl_show_backends(const json_t *a);
void ctl_show_sessions(const json_t *a);
void ctl_show_queue(const json_t *a);
void ctl_show_memory(const json_t *a);
void ctl_show_prefix(const json_t *a);
void ctl_show_jobs(const json_t *a);
void ctl_show_pins(const json_t *a);
void ctl_show_pairs(const json_t *a); /* any flat object */
/* ctl_term.c: asked before newterm, which keeps what it took when it fails. */
bool ctl_terminal_known(void);
#endif
