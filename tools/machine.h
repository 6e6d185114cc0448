/* SPDX-License-Identifier: Apache-2.0
 * What the machine can do at most (limits.h) and what a step needs of it: the two sides of each share that bench model
 * and profile print. Measured with the threads and in the run of what is compared. One thread.
 */
#ifndef TOOLS_MACHINE_H
#define TOOLS_MACHINE_H
#include "engine/graph_cost.h"
#include "tools/drive.h"

enum machine_unit { MACHINE_INT8, MACHINE_INT16, MACHINE_F32, MACHINE_UNITS };
const char *machine_unit_name(enum machine_unit u); /* "int8" */

struct machine {			 /* 0: could not be measured here */
	double gops[MACHINE_UNITS];	 /* multiply and add count as two */
	const char *loop[MACHINE_UNITS]; /* which loop was the fastest */
	double read_gb_s;
};
struct machine_meter {	 /* zero-initialise */
	uint64_t *block; /* more than the caches hold */
};
/* `wide`: with the 512-bit instructions, where there are some. Takes about a second. NOMEM. */
int machine_measure(
	struct machine_meter *m, uint32_t threads, bool wide, struct machine *out, struct error *e);
void machine_meter_finish(struct machine_meter *m);
/* Does the choice of instructions of --isa (NULL: none made) allow 512 bits? */
bool machine_is_wide(const char *isa);

struct machine_step { /* every sequence has `tokens` of them behind `past` */
	uint32_t n_seqs, tokens, past, n_out, kv_type, precision;
};
/* The loop whose mixture of instructions the node's products could use. */
enum machine_unit machine_node_unit(const struct tnp_graph *t, uint32_t node, uint32_t precision);
void machine_node_cost(
	const struct tnp_graph *t, uint32_t node, const struct machine_step *s, struct graph_cost *out);

struct machine_need {
	double ops[MACHINE_UNITS], bytes; /* bytes: weights and pages; activations mostly stay in caches */
};
void machine_need_add(const struct tnp_graph *t, const struct machine_step *s, struct machine_need *n);
/* Seconds at the limits; 0 where one of them is not known. */
double machine_ops_s(const struct machine *m, const struct machine_need *n);
double machine_read_s(const struct machine *m, const struct machine_need *n);
#endif
