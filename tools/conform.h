/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: does a backend plugin keep the contract of plugin.h (docs/plugin-abi.md)? Each check is a function
 * that runs in a child of its own; it says what it is about to try (conform_note), and ends the child with
 * conform_fail or by returning. A crash or a hang is a result: the last note tells where.
 * Thread: each child's only one. Sources: conform.c (program), conform_peer.c (loading, running), conform_models.c
 * (made-up models), conform_ops.c (one-node graphs), conform_l0.c ... conform_l6.c (the levels).
 */
#ifndef TOOLS_CONFORM_H
#define TOOLS_CONFORM_H
#include "base/base.h"
#include "tests/unit/tnp_make.h"

enum conform_state { CONFORM_LOST, CONFORM_PASS, CONFORM_FAIL, CONFORM_SKIP };
struct conform_result { /* in memory shared with the parent */
	uint32_t state;
	uint32_t n_cases, n_refused; /* comparisons made; graphs that the plugin did not take  */
	double worst;		     /* largest error met, as a share of its tolerance          */
	char where[256], text[512];  /* last note; why it failed or was skipped                 */
};

/* One loaded plugin with one device open. */
struct peer {
	const struct tnp_ops *ops;
	struct tnp_dev *dev;
	struct tnp_device info;
	void *so;
	bool borrowed; /* the other peer is the same module: it was started once */
};

struct conform {
	const char *path, *ref_path; /* shared objects, real paths */
	const char *name;	     /* what the table must call itself; NULL: any */
	uint64_t seed;
	bool thorough; /* more cases; off in `make check` */
	struct conform_result *result;
	struct peer sut, ref;	       /* opened by conform_open */
	uint64_t kv_types;	       /* what both peers can store in pages */
	uint32_t kv_type, page_tokens; /* the most exact of these; a small page that the plugin takes */
};

struct conform_check {
	uint32_t level;
	const char *name;
	void (*run)(struct conform *c);
};
extern const struct conform_check conform_l0[], conform_l1[], conform_l2[], conform_l3[], conform_l4[],
	conform_l5[], conform_l6[]; /* each ends with a NULL name */

void conform_note(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void conform_fail(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void conform_skip(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- conform_peer.c: loading ----------------------------------------------------------------------------- */
const struct tnp_ops *conform_load(
	struct conform *c, const char *path, void **so); /* dlopen and tnp_entry(1, 1) */
const struct tnp_host *conform_host(void);		 /* services: config, blobs in memory, no log */
bool conform_config_add(const char *key_value); /* "key=value" for the plugin; false: malformed or too many */
void conform_open(struct conform *c);		/* both peers; ends the child when one does not come up */
void conform_close(struct conform *c);
const char *conform_code(tnp_rc rc); /* "TNP_E_NOMEM" */

/* ---- conform_peer.c: running ------------------------------------------------------------------------------- */
#define RUN_OUTS 4u

struct run_model { /* a graph opened on a peer, with its pool if it attends over the past */
	struct peer *p;
	const struct tnp_graph *g;
	struct tnp_limits lim;
	struct tnp_sizes sizes;
	struct tnp_model *model;
	struct tnp_kv *kv;
	uint32_t n_pages, n_slots, n_groups, window[TNP_MAX_GROUPS];
	struct tnp_kv_slot slot[64];
};

struct run_seq {
	const int32_t *token;	 /* [n]; NULL: zeros                       */
	const float *in;	 /* [n][width of graph->in[0]], if there is one; NULL: something */
	uint32_t n, past, n_out; /* rows for the last n_out tokens          */
	uint32_t n_page;
	const uint32_t *page[TNP_MAX_GROUPS]; /* [n_page] */
	float *out[RUN_OUTS];		      /* rows of this sequence, [rows][width]    */
	tnp_rc rc;
};

struct run_limits {
	uint32_t precision, kv_type, page_tokens, n_pages, max_tokens, max_seqs, max_pages;
};

/* EXACT, the plugin's KV type and page size, 64 pages, 64 tokens, 24 sequences, 32 pages a list. */
struct run_limits conform_limits(const struct conform *c);
void run_limits_set(struct tnp_limits *l, const struct run_limits *r);
/* Slots and groups as the graph's ATTEND nodes ask for them. */
void run_slots(struct run_model *m);
bool run_taken(struct peer *p, const struct tnp_graph *g); /* every node has the verdict yes */
/* Opens model and pool; the code of the first call that fails, all closed again. */
tnp_rc run_open(struct run_model *m, struct peer *p, const struct tnp_graph *g, const struct run_limits *r,
	struct tnp_error *e);
void run_close(struct run_model *m);
/* One batch, waited for; a whole-batch code or OK, and each sequence's own in s[i].rc. Output rows lie in guarded
 * memory first: writing beyond a row, or rows of a sequence that failed, ends the child. */
tnp_rc run_batch(
	struct conform *c, struct run_model *m, struct run_seq *s, uint32_t n_seqs, struct tnp_error *e);
/* The same in three parts, for checks that bend the batch before it is handed over. */
struct run_arrays {
	struct tnp_batch b;
	struct tnp_pages pages[TNP_MAX_GROUPS];
	struct tnp_rows out[RUN_OUTS];
	uint64_t out_rows[RUN_OUTS], out_width[RUN_OUTS];
	int32_t *token, *pos;
	uint32_t *tok0, *past, *out_tok, *page0[TNP_MAX_GROUPS], *page[TNP_MAX_GROUPS];
	float *in;
	tnp_rc *seq_rc;
};
void run_make(struct conform *c, struct run_model *m, const struct run_seq *s, uint32_t n_seqs,
	struct run_arrays *a);
tnp_rc run_call(struct run_model *m, struct run_arrays *a, struct tnp_error *e); /* batch and wait */
void run_take(
	struct conform *c, struct run_model *m, struct run_seq *s, uint32_t n_seqs, struct run_arrays *a);
void run_free(struct run_arrays *a);
uint64_t run_width(const struct tnp_graph *g, uint32_t tensor); /* all dimensions but the first */
/* The graph's outputs of a whole sequence, alone, in one step over pages 0, 1, 2 ...; ends the child on failure. */
void run_alone(struct conform *c, struct run_model *m, struct run_seq *s);

/* ---- comparing ------------------------------------------------------------------------------------------------ */
/* Ends the child when `got` is further from `want` than tol times its root mean square, or not finite. */
void conform_near(
	struct conform *c, const char *what, const float *got, const float *want, uint64_t n, double tol);
double conform_tolerance(uint32_t precision, uint32_t kv_type);

/* ---- conform_models.c -------------------------------------------------------------------------------------------- */
struct made_model {
	const char *name;
	void (*build)(struct tnp_make *m, uint32_t type);
	bool encoder;		 /* no pool; one row a sequence */
	uint32_t n_vocab, block; /* block: largest block that its widths divide into */
};
extern const struct made_model made_models[]; /* ends with a NULL name */
const struct made_model *made_model_find(const char *name);
/* The fullest model that the plugin takes: a language model, at least a chain of two products; NULL for neither. */
struct tnp_make *made_model_any(struct conform *c, const struct tnp_graph **g);
/* A graph of the named model that the plugin takes, with weights of the best type it claims; NULL when there is none. */
struct tnp_make *made_model_for(struct conform *c, const struct made_model *mm, const struct tnp_graph **g);

/* ---- conform_ops.c --------------------------------------------------------------------------------------------------- */
struct op_shape { /* what a one-node graph is made with */
	uint64_t *seed;
	bool plain;	       /* no optional input or attribute */
	uint32_t type, helper; /* of the weight under test, of matrices that only feed it */
	uint32_t block;	       /* elements of a block of `type` */
};
struct op_case {
	uint32_t op;
	const char *name;
	bool weight;	 /* takes weights of any claimed type */
	bool exact_only; /* no matrix product inside: FAST is no excuse */
	bool pool;	 /* needs KV pages */
	bool variant;    /* a form of the operator that a plugin may leave out */
	void (*build)(struct tnp_make *m, struct op_shape *s);
};
extern const struct op_case op_cases[]; /* ends with a NULL name */
extern const uint32_t conform_types[];	/* stored types, ends with UINT32_MAX */
uint32_t conform_block(uint32_t type);
/* Types that the device claims for weights of the operator; 0: the operator is not claimed. */
uint64_t conform_claims(struct conform *c, struct peer *p, uint32_t op, bool *claimed);
const char *conform_type_name(uint32_t type);
#endif
