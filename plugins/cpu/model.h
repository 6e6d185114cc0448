/* SPDX-License-Identifier: Apache-2.0
 * An opened model and its pool, and the state of one step. model.c opens and closes, batch.c checks what the host
 * hands in and cuts attention into units, exec.c walks the phases, rows.c and attend.c do the work in them.
 */
#ifndef PLUGINS_CPU_MODEL_H
#define PLUGINS_CPU_MODEL_H
#include "plan.h"
#include <stdatomic.h>

struct rows_ref { /* rows of a value: row r starts at p + r * ld */
	float *p;
	size_t ld;
};

struct counter {
	_Alignas(64) _Atomic uint32_t next;
};

/* Tokens [tok0, tok0 + n_tok) of a sequence and segments [seg0, seg0 + n_seg) of its keys, for one KV head.
 * split != TNP_NONE: one of n_parts units of a single token whose states are merged by the last to finish. */
struct unit {
	uint32_t seq, tok0, n_tok, seg0, n_seg, split, part, n_parts;
};

/* The sequences of a batch that passed its checks, packed. */
struct step {
	const struct tnp_batch *b;
	struct tnp_kv *kv;
	uint32_t n[N_SPACES];		       /* rows of each space */
	bool single;			       /* no sequence has more than one token */
	int32_t *token, *pos;		       /* [n_tokens] */
	uint32_t *seq_of;		       /* [n_tokens] */
	uint32_t *tok0, *past;		       /* [n_seqs + 1], [n_seqs] */
	uint32_t *out_tok;		       /* [n_out] */
	uint32_t *from[N_SPACES];	       /* number in the batch of each row that is left */
	const uint32_t **page[TNP_MAX_GROUPS]; /* [n_seqs] */
	uint32_t *n_pages[TNP_MAX_GROUPS];
	uint32_t n_units[PLAN_UNITS];
	struct unit *units[PLAN_UNITS];
};

enum stage_kind { STAGE_ROPES, STAGE_ROWS, STAGE_SORT, STAGE_GATHER, STAGE_MAIN, STAGE_GROUP };
struct stage { /* of a step */
	uint32_t phase;
	enum stage_kind kind;
	uint32_t size;	/* rows, panels or tiles of a piece */
	bool alone;	/* every thread makes the phase's rows for itself */
	uint32_t whole; /* pieces of this size; the others are smaller */
};

struct group { /* sequences [seq0, seq1) */
	uint32_t seq0, seq1;
};

struct lane;
struct profile;
struct tnp_model {
	struct tnp_dev *dev;
	struct tnp_graph g;
	struct plan *plan;
	uint8_t *weights, *ws; /* maps: packed weights and vectors of floats; workspace */
	uint64_t weights_bytes;
	const float *consts;
	struct rows_ref *ref;	      /* [n_vals] */
	const void **seg_data;	      /* [n_segs] */
	struct counter *counter;      /* [split_heads] parts delivered */
	struct lane *lane;	      /* [n_threads] */
	struct stage *stage;	      /* [PLAN_STAGES n_phases + 1] of this step */
	uint32_t *pieces;	      /* of each stage; a sort sets those that hang on it */
	uint32_t n_groups, n_gathers; /* of the last sort */
	struct group *group;	      /* [plan max_groups] of this step */
	uint32_t n_stages;
	uint64_t stage_base; /* stages of all steps before */
	struct step step;
	struct profile *profile; /* NULL: times are not taken */
};

struct tnp_kv {
	struct tnp_model *m;
	uint64_t n_pages[TNP_MAX_GROUPS], page_bytes[TNP_MAX_GROUPS], map_bytes[TNP_MAX_GROUPS];
	uint8_t *mem[TNP_MAX_GROUPS];	 /* [page][slot][KV head] */
	uint64_t *slot_off, *head_bytes; /* [slots] */
	uint8_t *seen[TNP_MAX_GROUPS]; /* [n_pages] scratch of the check that a written page is listed once */
};

/* What a thread carries through a step. */
struct lane {
	_Alignas(64) struct tnp_model *m;
	uint8_t *own; /* its part of the workspace */
	uint32_t index;
	uint64_t ready;			       /* stage whose rows it made for itself last */
	uint32_t first[N_SPACES], n[N_SPACES]; /* the rows it works on: of the whole step, or of a group */
	uint32_t phase;
	bool grouped; /* values lie in its own arena */
	bool alone,
		shadowed; /* rows of this phase are the thread's own; they lie in its shadow, not in the arena */
};

static inline struct rows_ref lane_rows(const struct lane *l, uint32_t val)
{
	const struct plan_val *v = &l->m->plan->vals[val];

	if (l->alone && l->shadowed && v->row_phase == l->phase)
		return (struct rows_ref){ (float *)(l->own + l->m->plan->t_shadow) + v->shadow,
			cpu_round_up(v->width, 16) };
	if (l->grouped && v->bind == BIND_ARENA) {
		uintptr_t row0 =
			(uintptr_t)(l->m->ws + l->m->plan->arena + l->index * l->m->plan->group_bytes);

		row0 += v->group_arena * sizeof(float) -
			(uintptr_t)l->first[v->space] * v->width * sizeof(float);
		return (struct rows_ref){ (float *)row0, v->width };
	}
	return l->m->ref[val];
}

/* groups.c: cuts the step into groups; 0: it goes phase by phase, all threads in one */
uint32_t groups_make(struct tnp_model *m);

/* batch.c */
tnp_rc batch_check(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, struct tnp_error *e);
void batch_units(struct tnp_model *m); /* after a check that succeeded */

/* rows.c: rows [r0, r1), columns [j0, j1) of element operators */
void rows_run(const struct lane *l, const struct plan_op *o, uint32_t r0, uint32_t r1);
void cols_run(
	const struct lane *l, const struct plan_op *o, uint32_t r0, uint32_t r1, uint32_t j0, uint32_t j1);
void rope_table(const struct tnp_model *m, const struct plan_rope *r, uint32_t t0, uint32_t t1);

/* attend.c */
void attend_store(const struct lane *l, const struct plan_attend *a, uint32_t t0, uint32_t t1);
void attend_unit(const struct lane *l, const struct plan_attend *a, const struct unit *u, uint32_t kv_head,
	bool store);

/* experts.c: n_rows tokens by expert; rows prepared for a piece; products [item, item + n), or fewer at the end */
void experts_sort(struct tnp_model *m, const struct plan_experts *x, uint32_t n_rows);
void experts_gather(const struct lane *l, const struct plan_experts *x, uint32_t piece, uint32_t rows);
void experts_run(const struct lane *l, const struct plan_experts *x, uint32_t item, uint32_t n);
/* ids: int32 [top_k]. */
void route_row(const float *logits, uint32_t n, uint32_t top_k, bool norm, void *ids, float *share);
void experts_sum_row(
	const struct elem_ops *ops, const float *x, const float *share, uint32_t top_k, uint32_t n, float *y);

/* exec.c */
tnp_rc exec_step(struct tnp_model *m, struct tnp_error *e);

/* profile.c: around the stages of a step, around a thread's pieces of a stage */
void profile_start(struct profile *p);
void profile_finish(struct profile *p);
void profile_begin(struct profile *p, uint32_t lane, uint32_t stage);
void profile_end(struct profile *p, uint32_t lane, uint32_t stage);

/* model.c, kv.c, profile.c: functions of the table */
tnp_rc model_check(struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e);
tnp_rc model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e);
tnp_rc model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e);
void model_close(struct tnp_model *m);
tnp_rc model_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	struct tnp_error *e);
tnp_rc model_profile(
	struct tnp_model *m, uint32_t on, struct tnp_timing *rows, uint32_t *n, struct tnp_error *e);
tnp_rc kv_open(struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e);
void kv_close(struct tnp_kv *k);
tnp_rc kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct tnp_error *e);
tnp_rc kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e);
tnp_rc kv_write(struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e);

static inline uint8_t *kv_head_at(
	const struct tnp_kv *k, uint32_t group, uint32_t page, uint32_t slot, uint32_t head)
{
	return k->mem[group] + page * k->page_bytes[group] + k->slot_off[slot] + head * k->head_bytes[slot];
}
#endif
