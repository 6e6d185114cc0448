/* SPDX-License-Identifier: Apache-2.0
 * The reference plugin: the meaning of every operator of opset 1 as plain loops in double precision. Read
 * ref_ops.c and ref_attend.c as the text of the specification; all else here is what a plugin needs around them.
 *
 *   ref.c         the table: start, devices, what it can do         ref_types.c  stored types <-> double
 *   ref_graph.c   is this graph well formed, is each node taken     ref_ops.c    operators but attention
 *   ref_model.c   plans memory, opens models                       ref_attend.c rotary embedding, attention
 *   ref_batch.c   checks a step, runs it, hands the rows out        ref_kv.c     pages
 *   ref_par.c     threads: a loop over rows cut into equal parts
 *
 * Thread: one per device calls in (rule R7); the pool's threads run inside ref_par_rows only.
 */
#ifndef PLUGINS_REF_H
#define PLUGINS_REF_H
#include <tenon/plugin.h>
#include <stdbool.h>

/* ---- stored types ------------------------------------------------------------------------ */
#define REF_WEIGHT_TYPES                                                                                     \
	(TNP_TYPES(TNP_F32) | TNP_TYPES(TNP_F16) | TNP_TYPES(TNP_BF16) | TNP_TYPES(TNP_Q8_0) |               \
		TNP_TYPES(TNP_Q4_0) | TNP_TYPES(TNP_Q4_1) | TNP_TYPES(TNP_Q5_0) | TNP_TYPES(TNP_Q5_1) |      \
		TNP_TYPES(TNP_Q2_K) | TNP_TYPES(TNP_Q3_K) | TNP_TYPES(TNP_Q4_K) | TNP_TYPES(TNP_Q5_K) |      \
		TNP_TYPES(TNP_Q6_K) | TNP_TYPES(TNP_IQ4_NL))
#define REF_KV_TYPES (TNP_TYPES(TNP_F32) | TNP_TYPES(TNP_F16) | TNP_TYPES(TNP_Q8_0) | TNP_TYPES(TNP_Q4_0))

/* Bytes of a row of n elements; 0 when the type is unknown or its blocks do not divide n. */
uint64_t ref_row_bytes(uint32_t type, uint64_t n);
void ref_row_load(uint32_t type, const void *src, uint64_t n, double *out); /* exact                */
void ref_row_store(uint32_t type, const double *x, uint64_t n, void *dst);  /* REF_KV_TYPES only    */

/* ---- threads ------------------------------------------------------------------------------- */
struct ref_pool;
typedef void ref_rows_fn(void *arg, uint32_t thread, uint64_t row0, uint64_t row1);
struct ref_pool *ref_pool_create(uint32_t n_threads); /* NULL: no memory or no threads */
void ref_pool_destroy(struct ref_pool *p);
uint32_t ref_pool_threads(const struct ref_pool *p);
void ref_par_rows(struct ref_pool *p, uint64_t n, ref_rows_fn *fn, void *arg); /* returns when all are done */

/* ---- operators ------------------------------------------------------------------------------ */
#define REF_MAX_IN  8u
#define REF_MAX_OUT 4u

struct ref_attrs {	/* a node's attributes with their defaults filled in */
	uint32_t given; /* bit per TNP_A_* key present */
	double eps, scale, cap, rope_base;
	int64_t act, group, heads, kv_heads, head_dim, slot, window, causal, rope_dims, rope_mode, pool_kind,
		top_k, norm, index, axes;
};
#define REF_GIVEN(a, key) (((a)->given >> (key)) & 1u)

/* A tensor as an operator sees it: [rows][cols], where cols is the last dimension and rows all others
 * multiplied. An activation has v, a weight has w. Expert numbers are whole numbers in v. */
struct ref_view {
	uint64_t rows, cols, dim[TNP_MAX_RANK];
	uint32_t rank, type;
	double *v;
	const uint8_t *w;
};

struct ref_step;
struct ref_call { /* one node of one step */
	struct ref_step *step;
	const struct ref_attrs *a;
	uint32_t n_x, n_w, n_y;
	struct ref_view x[REF_MAX_IN], w[REF_MAX_IN], y[REF_MAX_OUT]; /* activations, weights, outputs */
};
typedef void ref_op_fn(struct ref_call *c);

ref_op_fn ref_op_embed, ref_op_linear, ref_op_rmsnorm, ref_op_layernorm, ref_op_rope, ref_op_attend,
	ref_op_glu, ref_op_act, ref_op_add, ref_op_mul, ref_op_scale, ref_op_softcap, ref_op_select,
	ref_op_pool, ref_op_l2norm, ref_op_moe_route, ref_op_moe_linear, ref_op_moe_sum, ref_op_transpose,
	ref_op_reshape;

/* ---- devices, models, pools ----------------------------------------------------------------- */
struct tnp_dev {
	struct ref_pool *pool;
	uint64_t ticket; /* last one given out; a step is done when batch returns */
};

struct ref_slot {
	uint32_t heads, head_dim, window, group;
	bool used;
};
struct ref_slots { /* what the graph's ATTEND nodes say about the pool they need */
	uint32_t n, n_groups;
	uint32_t window[TNP_MAX_GROUPS]; /* reach of each group, 0: everything */
	struct ref_slot *slot;		 /* [n] */
};

struct ref_node {
	ref_op_fn *run;
	struct ref_attrs a;
};

struct ref_buf {
	double *v;
	uint64_t n;
	bool busy;
};

struct tnp_model {
	struct tnp_dev *dev;
	struct tnp_graph g;
	struct tnp_limits lim;
	struct ref_node *node; /* [n_nodes] */
	struct ref_slots slots;
	uint32_t n_vocab, n_pos; /* smallest table that EMBED reads by token, by position; 0: none */
	uint32_t n_bufs;
	struct ref_buf *buf; /* [n_bufs] memory of activations, shared by lifetimes */
	uint32_t *buf_of;    /* [n_tensors] */
	double *row;	     /* [threads][row_len] a weight row, scores, a head     */
	uint64_t row_len;
	uint32_t *index; /* what the arrays of a step are cut from              */
	uint64_t n_index;
};

struct tnp_kv {
	struct tnp_model *m;
	uint32_t type, page_tokens;
	uint64_t n_pages[TNP_MAX_GROUPS], page_bytes[TNP_MAX_GROUPS];
	uint64_t *slot_off;	      /* [slots] place of a slot inside a page of its group */
	uint8_t *mem[TNP_MAX_GROUPS]; /* [n_pages][page_bytes] */
	uint8_t *seen
		[TNP_MAX_GROUPS]; /* [n_pages] lists of the batch at hand that name the page; 0 between steps */
};

/* The sequences of a batch that passed the checks, packed: what the operators work on. */
struct ref_step {
	struct tnp_model *m;
	struct tnp_kv *kv;
	const struct tnp_batch *b;
	uint32_t n_seqs, n_tokens, n_out;
	int32_t *token, *pos;			  /* [n_tokens]                                          */
	uint32_t *tok0;				  /* [n_seqs + 1]                                        */
	uint32_t *seq_of;			  /* [n_tokens] packed sequence of a token               */
	uint32_t *past;				  /* [n_seqs]                                            */
	uint32_t *out_tok;			  /* [n_out] index into the packed tokens                */
	uint32_t *from_tok, *from_seq, *from_out; /* index in the batch of each packed item */
};

/* ref_graph.c */
tnp_rc ref_graph_take(struct tnp_graph *out, const struct tnp_graph *g, struct tnp_error *e);
bool ref_node_check(const struct tnp_graph *g, uint32_t i, struct ref_node *out, struct tnp_verdict *v);
tnp_rc ref_slots_find(const struct tnp_graph *g, struct ref_slots *out, struct tnp_error *e);
void ref_slots_finish(struct ref_slots *s);
int64_t ref_width(const struct tnp_tensor *t); /* dimensions after the first, multiplied */
int64_t ref_last(const struct tnp_tensor *t);  /* last dimension                         */
bool ref_is_weight(const struct tnp_tensor *t);

uint32_t ref_op_caps(struct tnp_op_cap *rows, uint32_t room); /* number of rows there are */

/* ref_model.c */
tnp_rc ref_model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e);
tnp_rc ref_model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e);
tnp_rc ref_model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e);
void ref_model_close(struct tnp_model *m);

/* ref_kv.c */
#define REF_PAGE_MAX 4096u /* tokens in a page */
uint64_t ref_page_bytes(const struct ref_slots *s, uint32_t group, uint32_t type, uint32_t page_tokens,
	uint64_t *slot_off); /* 0: a head is no whole number of blocks; slot_off may be NULL */
void ref_kv_compat(const struct tnp_model *m, uint8_t out[32]);
tnp_rc ref_kv_open(struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e);
void ref_kv_close(struct tnp_kv *k);
tnp_rc ref_kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct tnp_error *e);
tnp_rc ref_kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e);
tnp_rc ref_kv_write(struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e);

/* ref_batch.c */
tnp_rc ref_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	struct tnp_error *e);

/* ref.c */
uint64_t ref_mem_total(void);
tnp_rc ref_fail(struct tnp_error *e, tnp_rc rc, uint32_t item, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
tnp_rc ref_take(void *own, uint32_t own_bytes, const void *theirs, const char *what, struct tnp_error *e);
#endif
