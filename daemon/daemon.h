/* SPDX-License-Identifier: Apache-2.0
 * tenond as one object: what its parts share. Everything here belongs to the loop thread. Private to this folder.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H
#include "daemon/config.h"
#include "daemon/jobs.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/request.h"
#include "daemon/session.h"
#include "daemon/worker_link.h"

struct admin;

struct notify { /* systemd */
	int fd;
	struct timer watchdog;
	uint64_t interval_ns; /* 0: none wanted */
};

struct override {
	const char *key, *value;
}; /* from the command line; "model": NAME=PATH */

struct daemon_options {
	const char *config_path;    /* NULL: the installed one, if it is there */
	struct override *overrides; /* [n_overrides] */
	size_t n_overrides;
	bool private_mode;	/* own temporary runtime directory; ends with the reader of ready_fd */
	int ready_fd;		/* -1: none */
	worker_start_fn *start; /* NULL: as `isolation` says */
};

struct daemon {
	struct daemon_options options;
	struct conf conf;
	struct log *log;
	int log_fd;
	uint64_t started_ns;
	struct loop loop;
	uint8_t *
		frame; /* [frame_room]: the one copy of a frame that is checked and used, of clients and workers alike */
	uint32_t frame_room;
	struct sessions sessions;
	struct requests requests;
	struct jobs jobs;
	struct models models;
	struct worker_link worker;
	struct admin *admin;
	struct notify notify;
	struct watch signals, parent;
	struct timer drain;
	bool draining;
	int exit_status;
	char private_dir[128]; /* "" unless private */
};

/* Reads the config, opens sockets, starts the worker. CONFIG, BUSY, IO, NOMEM. */
int daemon_open(struct daemon *d, const struct daemon_options *o, struct error *e);
void daemon_close(struct daemon *d);
int daemon_check_config(const struct daemon_options *o, struct error *e); /* reads it, keeps nothing */
/* Takes no new work; ends when the last request has, or after drain_s. */
void daemon_drain(struct daemon *d);
void daemon_stop(struct daemon *d);
void daemon_reload(struct daemon *d);
/* queue.c: every open request; `reply`: the worker's list, NULL if there is none. */
json_t *queue_json(struct daemon *d, const json_t *reply);
/* What a worker must know of the configuration; a new reference. */
json_t *settings_json(const struct conf *c);
/* A request has ended: a draining daemon may be done. */
void daemon_request_gone(struct daemon *d);

int notify_open(struct daemon *d);
void notify_close(struct daemon *d);
void notify_send(struct daemon *d, const char *state);

int admin_open(struct daemon *d, struct error *e);
void admin_close(struct daemon *d);
/* A load or unload has ended: whoever asked for it gets an answer. */
void admin_model_settled(struct daemon *d, struct model_entry *m, const struct error *e);

#define TOPIC_LOG(d, level, topic, ...) log_write((d)->log, level, topic, __VA_ARGS__)
#endif
