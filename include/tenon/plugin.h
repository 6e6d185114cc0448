/* SPDX-License-Identifier: Apache-2.0
 * plugin.h - contract between Tenon ("host") and a compute plugin: the only header a backend includes.
 * The long form of the rules stands in docs/plugin-abi.md.
 *
 * Holds for every declaration (rules R1..R12, plugin-abi.md):
 *  - fixed-width types; first member of a shared struct is `size`, written by whoever fills the
 *    struct; a reader treats a missing tail as zero and refuses (UNSUPPORTED) a non-zero tail it
 *    does not know. New members are appended; meanings never change inside a major. Elements of arrays
 *    carry no size: they are frozen for a major.
 *  - inputs are borrowed until the call returns; what `batch` names stays valid until its ticket
 *    is done. Whoever opens a handle closes it, children before parents; close accepts NULL.
 *  - the host calls one device from one thread at a time. [any] may be called from any thread at
 *    any time. "slow" may take seconds and polls host->stopping().
 *  - no function aborts, exits, forks, throws or longjmps across this line.
 */
#ifndef TENON_PLUGIN_H
#define TENON_PLUGIN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TNP_ABI_MAJOR 1u
#define TNP_ABI_MINOR 1u
#define TNP_OPSET     1u
#define TNP_MAX_RANK  4u
#define TNP_MAX_GROUPS 4u
#define TNP_HAS(p, type, m) ((p)->size >= offsetof(type, m) + sizeof((p)->m))

/* ---- status: the code decides what the scheduler does ---------------------------------- */
typedef int32_t tnp_rc;
enum {
	TNP_OK            = 0,
	TNP_E_INVALID     = -1, /* caller broke this contract: a bug, fails the request       */
	TNP_E_UNSUPPORTED = -2, /* never will: choose another plan                            */
	TNP_E_NOMEM       = -3, /* not now: evict something, then retry                       */
	TNP_E_BUSY        = -4, /* too many tickets in flight: retry after one is done        */
	TNP_E_CANCELLED   = -5,
	TNP_E_TIMEOUT     = -6,
	TNP_E_DEVICE      = -7, /* device lost: only a fresh process helps                    */
	TNP_E_INTERNAL    = -8
};
struct tnp_error {             /* caller's memory, last argument, may be NULL              */
	uint32_t size;
	tnp_rc   rc;
	int64_t  vendor_code;  /* cudaError_t, VkResult, errno ...                         */
	uint32_t item;         /* node, sequence or argument index                         */
	uint32_t reserved0;
	char     text[232];    /* always terminated                                        */
};

/* ---- services the host lends; [any]; none calls back into the plugin ------------------- */
struct tnp_graph;
struct tnp_host {
	uint32_t size, abi_major, abi_minor, reserved0;
	void *ctx;
	void        (*log)(void *ctx, uint32_t level, const char *topic, const char *text);
	const char *(*config)(void *ctx, const char *key);   /* this plugin's section, or NULL  */
	uint32_t    (*stopping)(void *ctx);                  /* 1: give up a slow call          */
	/* blobs kept across runs (pipeline caches, tuning); content is checked by the host     */
	tnp_rc      (*blob_get)(void *ctx, const char *key, void *out, uint64_t *len);
	tnp_rc      (*blob_put)(void *ctx, const char *key, const void *in, uint64_t len);
	/* since 1.1, see TNP_HAS. During model_open of graph g: so much of the work is done, in any
	 * unit. Cheap; often enough is some ten times a second.                                */
	void        (*progress)(void *ctx, const struct tnp_graph *g, uint64_t done, uint64_t total);
};

struct tnp_dev; struct tnp_model; struct tnp_kv;             /* opaque                     */

/* ---- element types: GGUF's numbers, so that sets of types are 64-bit masks ------------- */
enum {
	TNP_F32 = 0, TNP_F16 = 1, TNP_Q4_0 = 2, TNP_Q4_1 = 3, TNP_Q5_0 = 6, TNP_Q5_1 = 7, TNP_Q8_0 = 8,
	TNP_Q2_K = 10, TNP_Q3_K = 11, TNP_Q4_K = 12, TNP_Q5_K = 13, TNP_Q6_K = 14, TNP_IQ4_NL = 20,
	TNP_I32 = 26, TNP_BF16 = 30
};
#define TNP_TYPES(t) (1ull << (t))

/* ---- devices ---------------------------------------------------------------------------- */
enum { TNP_CPU = 1, TNP_GPU = 2, TNP_IGPU = 3, TNP_NPU = 4, TNP_OTHER = 5 };
#define TNP_F_INVARIANT (1ull << 0) /* same bits for a token whatever else is in the batch        */
#define TNP_F_ASYNC     (1ull << 1) /* batch returns before the work is done                      */
#define TNP_F_KV_IO     (1ull << 2) /* kv_read, kv_write                                          */
#define TNP_F_PROFILE   (1ull << 3)
#define TNP_F_FD        (1ull << 4) /* done_fd becomes readable when a ticket is done             */
#define TNP_F_CANCEL    (1ull << 5)
struct tnp_device {
	uint32_t size, kind;
	uint8_t  uuid[16];              /* equal across plugins for the same device              */
	char     name[64], driver[64], isa[32];
	uint64_t features;
	uint64_t mem_total, mem_max_alloc;
	int32_t  numa_node;
	uint32_t reserved0;
};

/* ---- graph: flat arrays, indices, no pointers inside elements --------------------------- */
/* A dimension >= 0 is fixed; these are filled in at each step.                              */
#define TNP_N_TOKENS (-1)
#define TNP_N_SEQS   (-2)
#define TNP_N_OUT    (-3)
#define TNP_NONE     0xffffffffu
struct tnp_tensor {
	uint32_t type, rank;
	int64_t  dim[TNP_MAX_RANK];     /* outermost first, row-major                            */
	uint32_t buffer, flags;         /* weight: index into tnp_graph.buffers, else TNP_NONE   */
	uint64_t offset, bytes;         /* in that buffer; else a suggested place in the plugin's arena */
};
/* Operators of opset 1; inputs, weights and attributes of each stand in plugin-abi.md.      */
enum {
	TNP_OP_EMBED = 1, TNP_OP_LINEAR, TNP_OP_RMSNORM, TNP_OP_LAYERNORM, TNP_OP_ROPE, TNP_OP_ATTEND,
	TNP_OP_GLU, TNP_OP_ACT, TNP_OP_ADD, TNP_OP_MUL, TNP_OP_SCALE, TNP_OP_SOFTCAP, TNP_OP_SELECT,
	TNP_OP_POOL, TNP_OP_L2NORM, TNP_OP_MOE_ROUTE, TNP_OP_MOE_LINEAR, TNP_OP_MOE_SUM, TNP_OP_TRANSPOSE,
	TNP_OP_RESHAPE
};
enum {
	TNP_A_EPS = 1, TNP_A_ACT, TNP_A_SCALE, TNP_A_GROUP, TNP_A_HEADS, TNP_A_KV_HEADS, TNP_A_HEAD_DIM,
	TNP_A_SLOT, TNP_A_WINDOW, TNP_A_CAP, TNP_A_CAUSAL, TNP_A_ROPE_DIMS, TNP_A_ROPE_BASE,
	TNP_A_ROPE_MODE, TNP_A_POOL_KIND, TNP_A_TOP_K, TNP_A_NORM, TNP_A_INDEX, TNP_A_AXES
};
enum { TNP_ACT_NONE, TNP_ACT_SILU, TNP_ACT_GELU_TANH, TNP_ACT_GELU_ERF, TNP_ACT_RELU };
enum { TNP_ROPE_PAIRS, TNP_ROPE_HALVES };     /* (2i,2i+1) or (i,i+d/2)                       */
enum { TNP_POOL_MEAN, TNP_POOL_FIRST, TNP_POOL_LAST };
enum { TNP_INDEX_TOKEN, TNP_INDEX_POS };
struct tnp_attr { uint32_t key, is_float; union { int64_t i; double f; } v; };
struct tnp_node { uint32_t op, flags, in0, n_in, out0, n_out, attr0, n_attr; };
struct tnp_span { const void *data; uint64_t bytes; int32_t fd; uint32_t flags; uint64_t fd_offset; };
struct tnp_graph {
	uint32_t size, opset, n_tensors, n_nodes, n_edges, n_attrs, n_buffers, n_in, n_out, reserved0;
	const struct tnp_tensor *tensors;
	const struct tnp_node   *nodes;    /* in execution order                                  */
	const struct tnp_attr   *attrs;
	const uint32_t          *edges;    /* tensor indices, sliced by in0/out0 of the nodes     */
	const struct tnp_span   *buffers;  /* [0] the mapped model file, [1..] folded constants   */
	const uint32_t *in, *out;          /* tensors fed / read at each step (layer splits)      */
	uint64_t arena_bytes;              /* by lifetimes at max_tokens; a plugin may plan its own */
};
struct tnp_op_cap { uint32_t op, flags; uint64_t in_types, weight_types, out_types; };
struct tnp_verdict { uint32_t ok, reason; char text[56]; };   /* one a node                   */

/* ---- models and sizes known before anything is allocated -------------------------------- */
enum { TNP_FAST = 0, TNP_EXACT = 1 };  /* FAST may quantise activations; EXACT keeps floats    */
struct tnp_limits {
	uint32_t size, precision;
	uint32_t max_tokens, max_seqs, max_out, max_pages_per_seq;
	uint32_t kv_type, page_tokens;
	uint64_t workspace_limit;
};
struct tnp_sizes {
	uint32_t size, flags;
	uint64_t weights_mapped;           /* used in place                                       */
	uint64_t weights_own;              /* repacked or uploaded copies                         */
	uint64_t workspace;                /* all else while running, the arena included          */
	uint64_t open_peak;                /* most that model_open holds for a moment             */
	uint64_t kv_page[TNP_MAX_GROUPS];  /* bytes of one page of each group                     */
	uint8_t  kv_compat[32];            /* equal: pages may be exchanged through kv_read/write */
};

/* ---- paged KV: the host chooses page numbers, the plugin owns what is inside ------------ */
/* Slots with the same reach (all tokens, or one window) form a group with pages of its own, so
 * that windowed layers can give pages back while the others keep theirs.                     */
struct tnp_kv_slot { uint32_t heads, head_dim, window, group; };
struct tnp_kv_spec {
	uint32_t size, type, page_tokens, n_slots;
	uint64_t n_pages[TNP_MAX_GROUPS];
	const struct tnp_kv_slot *slots;   /* layers may share a slot (TNP_A_SLOT)                */
};

/* ---- one step for many sequences: ragged arrays ----------------------------------------- */
/* Positions below past[s] are valid before and stay valid whatever happens, so a step that was
 * cancelled, failed or lost with its process can be repeated. A page may be shared by any
 * number of sequences for reading; a page written in this step belongs to one sequence only.
 * Attention reads K and V as stored, also for the tokens of this very step.                  */
#define TNP_PAGE_HOLE 0xffffffffu      /* page outside the window, dropped                    */
struct tnp_pages { const uint32_t *page0, *page; };       /* [n_seqs+1] slices; page numbers   */
struct tnp_rows  { float *data; uint64_t stride; };       /* stride in floats                  */
struct tnp_batch {
	uint32_t size, n_seqs, n_tokens, n_out;
	const int32_t  *token;             /* [n_tokens]; NULL if the graph starts at `in`        */
	const int32_t  *pos;               /* [n_tokens]                                          */
	const uint32_t *tok0;              /* [n_seqs+1] slice of token                           */
	const uint32_t *past;              /* [n_seqs]                                            */
	const struct tnp_pages *pages;     /* [groups]                                            */
	const uint32_t *out_tok;           /* [n_out] ascending indices into token (SELECT)       */
	const float    *in;                /* [n_tokens][width of graph->in[0]], host memory      */
	const struct tnp_rows *out;        /* [graph->n_out], host memory                         */
	tnp_rc         *seq_rc;            /* [n_seqs] written when done                          */
};
struct tnp_timing { uint32_t node, lane; uint64_t begin_ns, end_ns; };

/* ---- the table --------------------------------------------------------------------------- */
struct tnp_ops {
	uint32_t size, abi_major, abi_minor, reserved0;
	const char *name, *vendor, *version;
	tnp_rc (*start)(const struct tnp_host *h, struct tnp_error *e);                 /* slow */
	tnp_rc (*stop)(struct tnp_error *e);                                            /* slow */
	tnp_rc (*dev_count)(uint32_t *n, struct tnp_error *e);
	tnp_rc (*dev_info)(uint32_t i, struct tnp_device *o, struct tnp_error *e);
	tnp_rc (*dev_open)(uint32_t i, struct tnp_dev **o, struct tnp_error *e);        /* slow */
	void   (*dev_close)(struct tnp_dev *d);                                         /* slow */
	tnp_rc (*dev_memory)(struct tnp_dev *d, uint64_t *free_bytes, struct tnp_error *e);
	/* what it can do; no side effects. n: in room, out rows there are                      */
	tnp_rc (*op_caps)(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e);
	tnp_rc (*kv_caps)(struct tnp_dev *d, uint64_t *types, uint32_t *page_min, uint32_t *page_max,
	                  struct tnp_error *e);
	tnp_rc (*model_check)(struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v,
	                      struct tnp_error *e);
	tnp_rc (*model_sizes)(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	                      struct tnp_sizes *o, struct tnp_error *e);
	/* g and its buffers stay valid until model_close                                        */
	tnp_rc (*model_open)(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	                     struct tnp_model **o, struct tnp_error *e);                /* slow */
	void   (*model_close)(struct tnp_model *m);
	tnp_rc (*kv_open)(struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o,
	                  struct tnp_error *e);
	void   (*kv_close)(struct tnp_kv *k);
	/* first n_tokens positions of page `from` into page `to`                                */
	tnp_rc (*kv_copy)(struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens,
	                  struct tnp_error *e);
	tnp_rc (*batch)(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	                struct tnp_error *e);      /* k NULL: no attention over the past (encoders) */
	tnp_rc (*wait)(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e); /* [any] */
	/* optional, each behind its feature bit */
	tnp_rc (*kv_read)(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e);
	tnp_rc (*kv_write)(struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e);
	tnp_rc (*done_fd)(struct tnp_dev *d, int32_t *fd, struct tnp_error *e);
	tnp_rc (*cancel)(struct tnp_dev *d, uint64_t ticket);                           /* [any] */
	tnp_rc (*profile)(struct tnp_model *m, uint32_t on, struct tnp_timing *rows, uint32_t *n,
	                  struct tnp_error *e);
};

/* The only exported symbol. `want` is the major the host prefers, `least` the oldest it still
 * speaks; NULL when none of these is spoken here. Touches no device, thread or file: real work
 * begins in start(), and the host table given there stays valid until stop() returns.          */
#define TNP_ENTRY_NAME "tnp_entry"
typedef const struct tnp_ops *tnp_entry_fn(uint32_t want_major, uint32_t least_major);

#ifdef __cplusplus
}
#endif
#endif
