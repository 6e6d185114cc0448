/* SPDX-License-Identifier: Apache-2.0
 * tenonctl: asking the daemon's control socket (ctl_ask.c) and printing answers for people (ctl_show.c).
 */
#ifndef TOOLS_CTL_H
#define TOOLS_CTL_H
#include "base/base.h"
#include <jansson.h>

/* The control socket beside the client socket `socket` (NULL: the default places). */
int ctl_path(const char *socket, char *path, size_t room, struct error *e);
/* One question, one answer. GONE: nobody listens there; TIMEOUT; FORMAT; else the code that the daemon answered. */
int ctl_ask(const char *path, const json_t *question, int timeout_ms, json_t **answer, struct error *e);

void ctl_show_status(const json_t *a);
void ctl_show_models(const json_t *a);
void ctl_show_backends(const json_t *a);
void ctl_show_sessions(const json_t *a);
void ctl_show_queue(const json_t *a);
void ctl_show_memory(const json_t *a);
void ctl_show_pairs(const json_t *a); /* any flat object */
#endif
