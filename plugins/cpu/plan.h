/* SPDX-License-Identifier: Apache-2.0
 * A plan: the graph as phases. A phase is
 *   rows   operators on whole rows (norms, rotary embedding, ...), then
 *   main   matrix products over one input, cut by output columns, or an attention, cut by heads and tokens, then
 *   cols   element operators on the columns just made.
 * All threads work on one phase at a time, so the number of phases is the price of a step. With few rows every
 * thread makes `rows` for itself (one of them in the arena, the others in shadows of their own): a layer of a
 * transformer then costs five stages; with many the rows are shared out as a stage of their own. Texts of an encoder go
 * in groups instead, see groups.c.
 *
 * Built once from graph and limits, before anything big is allocated: the sizes it holds are those that are taken.
 */
#ifndef PLUGINS_CPU_PLAN_H
#define PLUGINS_CPU_PLAN_H
#include "graph.h"

enum {
	PLAN_SMALL = 8, /* fewer rows than this: every thread for itself */
	PLAN_ROWS = 12, /* row operators of a phase */
	PLAN_SEGS = 16, /* products of a phase      */
	PLAN_COLS = 6,
	PLAN_ROPES = 8,
	PLAN_UNITS = 8,	    /* different ways to cut attention */
	PLAN_STAGES = 4,    /* most of a phase */
	GROUP_THREADS = 256 /* more do not work in groups */
};
enum {
	EXPERTS_SEGS = 5,   /* products of a MOE_LINEAR: its matrices, one of them cut for a GLU */
	EXPERTS_ROWS = 256, /* most rows of a group, */
	EXPERTS_COLS = 128  /* columns of a piece: together they stay in the L2 cache */
};
enum main_kind { MAIN_NONE, MAIN_LINEAR, MAIN_ATTEND, MAIN_EXPERTS };
enum bind_kind { BIND_ARENA, BIND_OUT, BIND_IN };

struct plan_val { /* an activation */
	uint32_t width, last_dim, space;
	uint32_t made, used; /* phases: first and last that need its memory; TNP_NONE: never made */
	uint32_t n_uses;
	bool is_out, in_cols;	   /* in_cols: made by a product or a column operator */
	uint32_t row_phase;	   /* phase whose rows make it, or TNP_NONE */
	uint32_t shadow;	   /* floats, in a thread's shadow of that phase */
	uint32_t bind, bind_index; /* enum bind_kind */
	uint64_t arena;		   /* floats */
	uint64_t group_arena;	   /* floats, in a thread's arena of a group */
};

struct plan_op { /* operator on rows or columns */
	uint32_t op, node, n_in, n_out;
	uint32_t in[2], out[2]; /* values */
	uint32_t vec[2];	/* floats in the constants, or TNP_NONE */
	uint32_t vec_len;
	uint32_t group, act, heads, head_dim, rope, mode, dims, index, pool, table, top_k;
	bool norm; /* shares add up to one */
	float eps, scale, cap;
};

struct plan_seg { /* rows [row0, row0 + w.n) of one matrix, or of one for each expert */
	uint32_t node, tensor, row0, act, bias; /* bias: floats in the constants, or TNP_NONE */
	uint32_t residual, out, col;
	uint32_t shares;	   /* earlier segment with the same rows, or TNP_NONE */
	uint64_t pack, pack_bytes; /* place among the packed weights; bytes of one matrix, 0: used in place */
	uint32_t n_experts;	   /* 1: a plain matrix */
	uint64_t stride, src_stride; /* bytes from one expert to the next: as used, in the file */
	struct linear_weight w;
};

struct plan_attend {
	uint32_t node, q, k, v, out, slot, units; /* k, v: TNP_NONE where the slot is only read */
	bool causal;
	struct attn_shape shape;
};

/* A MOE_LINEAR. Pairs (token, rank) are sorted by expert and cut into groups; a group's rows are gathered and
 * prepared together, then a product runs over them. */
struct plan_experts {
	uint32_t node, x, ids, out, top_k, k, act, classes;
	bool own_rows; /* x has a row for each pair, not for each token */
	bool sort;     /* pairs are not sorted by these numbers yet */
	bool glu;      /* of two products; then act(first) * second goes to `out` */
	uint32_t glu_act, n_segs, segs[EXPERTS_SEGS];
	uint32_t n_experts, max_pairs, max_groups, chunks; /* chunks: pieces of the columns of a group */
};

struct plan_group { /* pairs [first, first + n) of one expert; chunk0: pieces of gathering before it */
	uint32_t expert, first, n, chunk0;
};

struct plan_units { /* one way to cut attention: lists of it are made once a step */
	uint32_t window, kv_heads, block, n_split, max_units;
	uint32_t whole_tok; /* a shorter sequence is cut into halves of a block */
	bool causal;
	uint64_t offset; /* bytes in the workspace */
};

struct plan_rope {
	uint32_t dims, factors; /* factors: floats in the constants, or TNP_NONE */
	uint32_t tensor;	/* they come from, or TNP_NONE */
	double base, scale;
	uint64_t offset; /* bytes in the workspace: [max_tokens][dims] cosines, then sines */
};

struct plan_phase {
	uint32_t space, main;
	uint32_t n_rows, n_segs, n_cols;
	uint32_t rows[PLAN_ROWS], cols[PLAN_COLS], segs[PLAN_SEGS];
	uint32_t x, k, classes; /* of the products: input, its width, mask of enum act_class */
	uint32_t cols_n;	/* common columns when there are `cols` */
	uint32_t attend, experts, node;
	uint32_t shadow; /* floats used */
};

struct plan_vec { /* vector of floats converted at open */
	uint32_t tensor, at, n;
};

struct plan {
	const struct tnp_graph *g;
	const struct cpu_isa *isa;
	struct tnp_limits lim;
	uint32_t n_threads;
	uint32_t n_vals, n_ops, n_segs, n_attends, n_experts, n_phases, n_vecs, n_ropes, n_units;
	struct plan_val *vals;
	struct plan_op *ops;
	struct plan_seg *segs;
	struct plan_attend *attends;
	struct plan_experts *experts;
	struct plan_phase *phases;
	struct plan_vec *vecs;
	struct plan_rope ropes[PLAN_ROPES];
	struct plan_units units[PLAN_UNITS];
	struct graph_slots slots;
	uint64_t heap_bytes;	 /* of the arrays above */
	uint64_t n_consts;	 /* floats */
	uint32_t n_vocab, n_pos; /* smallest table read by token, by position; 0: none */
	/* places in the workspace, bytes */
	uint64_t arena, arena_bytes, acts[ACT_N_CLASSES], act_bytes[ACT_N_CLASSES];
	/* Sequences that share nothing (an encoder's) go through all phases in groups, a thread a group at a time, each in
	 * a part of its own of arena and prepared rows. */
	uint32_t group_tokens, max_groups;		 /* most tokens of a group; 0: not in groups */
	uint64_t group_bytes, group_acts[ACT_N_CLASSES]; /* a thread's part */
	uint64_t threads, thread_bytes, t_scratch, t_act[ACT_N_CLASSES], t_shadow, t_attend, t_tile, t_gather;
	uint64_t split, split_bytes, counters, step, pairs, groups, counts, workspace;
	uint64_t split_state; /* floats of one segment's states of one KV head, all layers' largest */
	uint32_t split_heads; /* most (sequence, KV head) pairs that may be split */
	uint32_t max_segments;
	uint64_t packed, mapped; /* bytes of packed weights; of weights used in place */
};

/* Rows of x that are gathered and prepared at a time. */
static inline uint32_t experts_gather_rows(const struct cpu_isa *isa)
{
	return (uint32_t)cpu_round_up(12, isa->linear->act_rows);
}
/* Where the prepared rows of group `group` begin, the first of which is row `first` of all; behind the last group:
 * what all take. */
uint64_t experts_act_at(
	const struct cpu_isa *isa, uint32_t class, uint32_t k, uint32_t first, uint32_t group);

/* UNSUPPORTED with the reason for what node_read refuses; NOMEM. Nothing is allocated but the plan. */
tnp_rc plan_build(const struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct plan **out, struct tnp_error *e);
void plan_free(struct plan *p);
uint64_t plan_page_bytes(const struct plan *p, uint32_t group, uint32_t type, uint32_t page_tokens);
tnp_rc limits_check(const struct tnp_limits *l, struct tnp_error *e);
/* Rows of a space that a step may have. */
static inline uint32_t plan_cap(const struct plan *p, uint32_t space)
{
	return space == SPACE_TOKENS  ? p->lim.max_tokens
		: space == SPACE_SEQS ? p->lim.max_seqs
				      : p->lim.max_out;
}
#endif
