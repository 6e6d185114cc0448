/* SPDX-License-Identifier: Apache-2.0
 * A request as JSON (docs/cli.md, `tenon generate`) and its answer as JSON, for generate, run and chat.
 */
#ifndef TOOLS_GEN_H
#define TOOLS_GEN_H
#include "tools/cli.h"
#include <tenon/client.h>

struct gen_request {
	struct tenon_request r;
	char *messages;           /* owned: the JSON object handed to the template */
	int32_t *ids;             /* owned */
	const char *stop[16];     /* borrowed from the JSON */
	struct tenon_bias *bias;  /* owned */
};
/* Reads prompt|messages|ids and every parameter; `in` must stay alive until submit. INVALID names the field. */
int gen_request_parse(const json_t *in, struct gen_request *g, struct error *e);
void gen_request_finish(struct gen_request *g);

struct gen_answer { /* collects the events of one request */
	struct buf text;
	json_t *ids, *logprobs;
	json_t *final; /* finish, usage, timeline; or error */
	bool failed;
};
int gen_answer_init(struct gen_answer *a);
void gen_answer_finish(struct gen_answer *a);
/* Adds an event; true when it was the last one. */
bool gen_answer_add(struct gen_answer *a, const struct tenon_event *ev);
/* The whole answer as {"ids","text","finish","usage","timeline"} or {"error"}; new reference. */
json_t *gen_answer_json(const struct gen_answer *a);
/* One event as a JSON object (for --stream), without an id; NULL for kinds that say nothing. */
json_t *gen_event_json(const struct tenon_event *ev);
/* The timeline as a table for people. */
void gen_print_timeline(const struct tenon_event *done, FILE *to);
const char *gen_finish_name(int finish);
#endif
