/* SPDX-License-Identifier: Apache-2.0
 * A worker's flight recorder: one sealed page that the worker writes and the daemon reads, also after the worker's
 * death. It tells what the worker does and since when (the watchdog's clock, and which model to blame) and when it last
 * published tokens. The daemon believes none of it further than a wrong blame.
 */
#ifndef DAEMON_BOX_H
#define DAEMON_BOX_H
#include "base/base.h"

enum box_phase { BOX_IDLE, BOX_START, BOX_LOAD, BOX_STEP, BOX_UNLOAD, BOX_N_PHASES };

struct box_page;
struct box {
	int fd; /* -1: inside one process */
	struct box_page *page;
};

struct box_reading { /* a copy, bounded and terminated */
	enum box_phase phase;
	uint64_t since_ns, published_ns;
	char model[132];
	uint32_t permille;  /* BOX_LOAD: of the weights taken */
	uint32_t beside_permille;
	char beside[132];   /* a model that is being loaded meanwhile, on a thread of its own; "" */
	uint64_t beside_ns; /* since when */
};

int box_create(struct box *b, struct error *e);
int box_open(struct box *b, int fd, struct error *e); /* takes the descriptor, also on failure */
void box_close(struct box *b);

/* Worker. box_begin is two stores when the model stays the same; `model` may be NULL. */
void box_begin(struct box *b, enum box_phase phase, const char *model);
void box_beside(struct box *b, const char *model); /* NULL: no load beside the steps any more */
void box_loaded(struct box *b, bool beside, uint32_t permille); /* [any thread] */
void box_published(struct box *b, uint64_t now_ns);

/* Daemon. */
void box_read(const struct box *b, struct box_reading *out);
uint64_t box_published_ns(const struct box *b);
const char *box_phase_name(enum box_phase phase);
#endif
