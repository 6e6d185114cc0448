/* SPDX-License-Identifier: Apache-2.0
 * Inside the planner: what plan.c, plan_experts.c and plan_memory.c share while a plan is made.
 */
#ifndef PLUGINS_CPU_PLAN_PRIV_H
#define PLUGINS_CPU_PLAN_PRIV_H
#include "plan.h"

struct builder {
	struct plan *p;
	struct tnp_error *e;
	uint32_t *glu_half; /* [n_tensors] half the width where a GLU reads it, else 0 */
	uint32_t *glu_node; /* [n_tensors] a GLU that reads it, or TNP_NONE */
	uint32_t *reads;    /* [n_tensors] inputs of nodes that name it, and outputs of the graph */
	uint8_t *done;	    /* [n_nodes] part of an earlier node's work */
	uint32_t sorted_by; /* numbers that the pairs of the last MOE_LINEAR were sorted by */
};

struct plan_phase *phase_last(struct plan *p);
struct plan_phase *phase_new(struct plan *p, uint32_t space, uint32_t node);
uint32_t phase_number(const struct plan *p, const struct plan_phase *ph);
void val_use(struct plan *p, uint32_t val, uint32_t phase);
void val_make(struct plan *p, uint32_t val, uint32_t phase);
/* A value that the graph does not know, shaped like `like`. */
uint32_t val_hidden(struct plan *p, uint32_t like);
void rows_place(struct plan *p, const struct plan_op *o);
/* Fills in where a segment's packed rows lie; it is the one behind the last. */
void seg_size(struct plan *p, struct plan_seg *s);
/* Puts segments [first, first + n) over v's first input into a phase. */
struct plan_phase *linear_join(struct plan *p, const struct node_view *v, uint32_t first, uint32_t n);

void route_place(struct builder *b, const struct node_view *v);
tnp_rc experts_place(struct builder *b, const struct node_view *v);
/* What the experts need of each class of prepared rows, if it is more than `bytes`. */
void experts_acts(const struct plan *p, uint64_t bytes[ACT_N_CLASSES]);
/* Places for them behind *at: of a thread, of the workspace. */
void experts_thread_plan(struct plan *p, uint64_t *at);
void experts_workspace_plan(struct plan *p, uint64_t *at);

/* plan_memory.c: outputs that nothing else reads are written to the caller's rows at once; the arena; all places. */
void binds_plan(struct plan *p);
tnp_rc arena_plan(struct builder *b);
void workspace_plan(struct plan *p);
/* The next place of so many bytes, aligned. */
uint64_t plan_take(uint64_t *at, uint64_t bytes);
#endif
