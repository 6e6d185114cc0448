/* SPDX-License-Identifier: Apache-2.0
 * Durable requests: they outlive their session, and their answers wait here, in memory, for a session of the same tenant
 * that collects them by name; bounded by `durable` of the configuration. They do not outlive the daemon. Owner: the
 * loop thread.
 *
 *   running (with or without a session) -> ended, kept -> dropped (keep_s, or to make room)
 */
#ifndef DAEMON_JOBS_H
#define DAEMON_JOBS_H
#include "daemon/list.h"
#include "ipc/ipc.h"
#include <jansson.h>

struct daemon;
struct job;
struct request;
struct session;

struct jobs {
	struct list all; /* oldest first */
	uint32_t n;
	uint64_t bytes; /* of answers */
};

void jobs_init(struct jobs *t);
void jobs_finish(struct daemon *d);
/* The name is taken for r's tenant. BUSY: it has one of that name; FULL: durable.max; NOMEM. */
int job_create(struct request *r, const char *name, uint32_t len, struct job **out, struct error *e);
/* What the worker tells of a running one. False: no room for it (durable.mib), even when nothing else is kept. */
bool job_add(struct job *j, const int32_t *ids, uint32_t n_ids, const char *text, uint32_t text_bytes);
void job_done(struct job *j, const struct wire_done *d);
void job_failed(struct job *j, int code, const char *text);
/* From BEGIN with WIRE_R_COLLECT: events so far now, the rest as it comes. NOT_FOUND; BUSY: another session reads it. */
int job_collect(
	struct session *s, uint64_t id, const char *tenant, const char *name, uint32_t len, struct error *e);
/* Ends it if it runs, and forgets its answer. tenant NULL: whosoever, if only one has a job of that name. NOT_FOUND;
 * INVALID: several tenants have one. */
int job_drop(struct daemon *d, const char *tenant, const char *name, struct error *e);
json_t *jobs_json(struct daemon *d);
#endif
