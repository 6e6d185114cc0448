/* SPDX-License-Identifier: Apache-2.0
 * What the control socket (admin.c) and its commands (admin_commands.c) share. Loop thread.
 */
#ifndef DAEMON_ADMIN_PRIV_H
#define DAEMON_ADMIN_PRIV_H
#include "daemon/daemon.h"

enum { ID_MAX_BYTES = 64 };

struct waiter {		  /* one question on its way */
	struct node node; /* in admin.waiters */
	struct admin *a;
	uint8_t id[ID_MAX_BYTES];
	size_t id_len;
	bool delimiter;		   /* asked by a REQ socket */
	json_t *answer;		   /* what the daemon itself knows of it */
	struct model_entry *model; /* load, unload: waits for this one */
};

struct admin {
	struct daemon *d;
	void *ctx, *sock;
	char path[112];
	struct watch watch;
	struct timer soon;
	struct task again; /* a send may have swallowed the descriptor's edge */
	struct list waiters;
	uint32_t n_waiters;
	uint64_t n_questions;
};

/* The last word to a question: takes both references. */
void admin_answer(struct waiter *w, json_t *o);
void admin_answer_error(struct waiter *w, const struct error *e);
/* Finds and runs the command that the text names; the answer comes now or later. */
void admin_dispatch(struct waiter *w, const char *text, size_t len);
#endif
