/* SPDX-License-Identifier: Apache-2.0
 * What tenon profile gathers: steps, the operators in them as their backend timed them, and what each needs at least. An
 * operator is what a backend computes in one go: one node of the graph, or several that its plan fuses. One thread.
 */
#ifndef TOOLS_PROFILE_H
#define TOOLS_PROFILE_H
#include "tools/machine.h"
#include <jansson.h>

enum { PROFILE_NAME = 160 };

struct profile_cost {
	double weight_bytes, kv_bytes, activation_bytes, ops[MACHINE_UNITS];
};
struct profile_op {
	char name[PROFILE_NAME]; /* "attn: RMSNORM, LINEAR attn_q attn_k attn_v" */
	int layer;		 /* -1: outside the layers */
	uint32_t part, main;	 /* of the model; first node, or TNP_NONE */
	uint32_t calls;		 /* of this operator, or of all of its kind */
	double wall_ns; /* from its first lane's begin to its last one's end, without what lies between */
	double busy_ns; /* of all lanes */
	uint64_t covered_ns; /* in the step in work: it was counted up to here */
	struct profile_cost cost;
};
struct profile_span { /* for the trace */
	uint32_t op, phase, lane, part;
	uint64_t begin_ns, end_ns;
};
enum profile_host { PROFILE_COMPUTE, PROFILE_SAMPLE };
struct profile_event { /* of the host */
	enum profile_host what;
	uint32_t phase, step;
	uint64_t begin_ns, end_ns;
};

struct profile_phase { /* prefill or decode */
	const char *name;
	uint32_t n_seqs, tokens, steps; /* tokens: of each sequence, all steps */
	double step_ns, plain_ns;	/* sums over the steps: timed with the profile on, and without it */
	double inside_ns, gap_ns;	/* from the first operator to the last; of that, nobody computed */
	double sample_ns;		/* between steps */
	struct profile_op *op;		/* [n_ops] in the order of the graph */
	uint32_t n_ops, cap_ops;
};

struct profile { /* zero-initialise */
	struct model *model;
	uint32_t n_lanes;
	uint32_t *op_of[MODEL_MAX_PARTS]; /* [nodes] of the phase in work */
	struct tnp_timing *rows;
	uint32_t cap_rows;
	struct profile_span *order; /* [cap_rows] */
	struct buf spans,
		events; /* of all steps, when a trace is asked for; struct profile_span, struct profile_event */
	bool trace;
	struct profile_phase phase[2];
	uint32_t n_phases;
};

/* UNSUPPORTED: a backend of the model does not time its work. */
int profile_init(struct profile *p, struct model *m, bool trace, struct error *e);
void profile_finish(struct profile *p);
int profile_switch(struct profile *p, bool on, struct error *e);
struct profile_phase *profile_phase_begin(struct profile *p, const char *name, uint32_t n_seqs);
/* The step that ran from begin_ns to end_ns. */
int profile_take_step(
	struct profile *p, const struct machine_step *s, uint64_t begin_ns, uint64_t end_ns, struct error *e);
void profile_take_sample(struct profile *p, uint64_t begin_ns, uint64_t end_ns);

/* ---- shares of an operator (profile_report.c) ---- */
double profile_ops(const struct profile_cost *c);
double profile_bytes(const struct profile_cost *c);
double profile_read_share(const struct machine *m, const struct profile_op *o); /* 0: not known */
double profile_arith_share(const struct machine *m, const struct profile_op *o);
enum machine_unit profile_unit(const struct profile_op *o); /* of most of its arithmetic */
/* Operators of one kind in all layers together, most time first; mem_free. NULL: no memory. */
struct profile_op *profile_kinds(const struct profile_phase *ph, uint32_t *n);

void profile_print(const struct profile *p, const struct machine *m, bool layers);
json_t *profile_json(const struct profile *p, const struct machine *m, bool layers);
/* Chrome's JSON of events, as Perfetto reads it. */
int profile_trace(const struct profile *p, struct buf *out, struct error *e);
#endif
