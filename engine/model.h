/* SPDX-License-Identifier: Apache-2.0
 * A loaded model: file, tokenizer, chat template, graph, the backend's copy of it and its KV pool. This is what
 * the scheduler and the commands that work on a file see of the engine. Owner: one thread (the step thread);
 * the tokenizer and the template may be used from any thread while the model is open.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H
#include "engine/backends.h"
#include "engine/chat.h"
#include "engine/gguf.h"
#include "engine/ledger.h"
#include "engine/tokenizer.h"
#include "plugins/plugins.h"

/* Activations that a model hands out beside its results, for calibration and comparison: what feeds each matrix product,
 * or the stream behind each part (attention, feed-forward) of each layer. They cost a copy of all of them each step. */
enum model_taps { MODEL_TAPS_NONE, MODEL_TAPS_LINEAR, MODEL_TAPS_LAYERS };

struct model_options { /* zero members mean defaults */
	const char *path;
	struct backend *backend;   /* borrowed, outlives the model: all layers */
	const struct model_place *places; /* [n_places] or in place of it: which backend computes which layers */
	uint32_t n_places;
	uint32_t precision;        /* TNP_FAST, TNP_EXACT */
	uint32_t kv_type;          /* TNP_F16 is the default (0 means default: F32 must be asked with kv_f32) */
	bool kv_f32;
	uint32_t n_ctx;            /* longest sequence, tokens; default: the model's own, at most 8192 */
	uint32_t step_tokens;      /* most tokens of one step; default 512 */
	uint32_t step_seqs;        /* most sequences of one step; default 32 */
	uint32_t step_out;         /* most rows of logits of one step; default step_seqs */
	uint32_t page_tokens;      /* default 32 */
	uint64_t kv_bytes;         /* KV pool budget; default: room for one full context, at least 4 x 1024 tokens. Groups
	                            * with a window get fewer pages: what step_seqs sequences need there (ledger.h) */
	uint32_t n_sessions;       /* sequences of n_ctx tokens that the pool must hold, in place of kv_bytes; 0: as kv_bytes says */
	uint64_t memory_limit;     /* most that the model may take in all; 0: what the machine and control groups leave */
	const char *passes;        /* graph passes to switch off or on, engine/pass.h; NULL: all run */
	enum model_taps taps;
	const struct backend_progress *progress; /* of the backends' taking the weights; NULL: nobody asks */
	bool measure_only;         /* fills model_info, takes no memory for weights and pages; no steps then */
};

struct model_info {
	const char *arch, *name;   /* "llama", general.name */
	const char *backend;       /* "cpu"; of a split model "cpu=15,ref" */
	const uint8_t *digest;     /* [32] */
	uint32_t n_vocab, n_layers, d_model, n_heads, n_kv_heads, head_dim, n_ctx_train, n_ctx;
	uint32_t precision, kv_type, page_tokens;
	uint32_t step_tokens, step_seqs, step_out;
	uint32_t n_groups;                    /* KV groups */
	uint32_t window[TNP_MAX_GROUPS];      /* reach in tokens, 0: all */
	uint32_t n_pages[TNP_MAX_GROUPS];
	uint64_t page_bytes[TNP_MAX_GROUPS];
	uint64_t weights_mapped_bytes, weights_own_bytes, workspace_bytes, kv_bytes, open_peak_bytes;
	uint64_t n_params, n_params_active;   /* of all weights; of those that one token's step reads */
	uint32_t n_experts, n_experts_used;   /* of each layer, and of those for a token; 0: no mixture */
	bool is_encoder;                      /* gives embeddings, not tokens */
	uint32_t pooling;                     /* TNP_POOL_* of an encoder */
	bool invariant, kv_io;                /* of the backends: equal bits in any company; pages can be read and written */
	uint8_t kv_compat[32];                /* of this file on these backends: equal means pages may be exchanged */
};

struct model;
/* Slow. Refuses before allocating what does not fit into memory (NOMEM: shortfall and the largest context, number of
 * sessions or kv_bytes that would fit). NOT_FOUND, FORMAT, UNSUPPORTED (architecture, type or operator, by name), NOMEM, BACKEND. */
int model_open(const struct model_options *o, struct model **out, struct error *e);
void model_close(struct model *m);
const struct model_info *model_info(const struct model *m);
const struct ledger *model_ledger(const struct model *m); /* as it was opened */
struct graph; /* engine/graph.h */
struct pass_report; /* engine/pass.h */
const struct pass_report *model_pass_report(const struct model *m);
const struct gguf *model_file(const struct model *m);
const struct tokenizer *model_tokenizer(const struct model *m);
const struct chat_template *model_template(const struct model *m); /* NULL: the file has none */
int model_check_file(const struct model *m, struct error *e);      /* FORMAT if the file changed on disk */

/* One sequence's part of a step: tokens [past, past + n_tokens) of its history, pages that cover them. */
struct step_seq {
	const int32_t *tokens; /* [n_tokens] */
	uint32_t n_tokens, past;
	uint32_t n_out;        /* rows wanted, for the last n_out of these tokens */
	float *out;            /* [n_out][n_vocab] (encoder: [1][d_model]) */
	const uint32_t *pages[TNP_MAX_GROUPS]; /* page numbers from position 0; TNP_PAGE_HOLE outside a window */
	uint32_t n_pages[TNP_MAX_GROUPS];
	int rc;                /* filled: OK or what this sequence alone failed with */
};
/* Runs one batch of 1..step_seqs sequences. INVALID: over a limit (nothing ran). BACKEND: the device is lost.
 * Rows of a sequence do not depend on the others, on chunking or on page numbers (invariant backends). Allocates
 * nothing after the first call of a size. */
int model_step(struct model *m, struct step_seq *seqs, uint32_t n_seqs, struct error *e);
int model_kv_copy(struct model *m, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e);
/* A page as bytes, info.page_bytes of its group (TNP_F_KV_IO). */
int model_kv_read(struct model *m, uint32_t group, uint32_t page, void *out, struct error *e);
int model_kv_write(struct model *m, uint32_t group, uint32_t page, const void *in, struct error *e);

/* What one backend computes: all, or some of the layers. A part behind the first one is handed the rows of all tokens that the
 * part before it made, through host memory. */
struct model_part {
	struct backend *backend;
	struct backend_model *compute; /* for its profile; NULL where only measured */
	const struct graph *graph;     /* behind the passes */
	const struct tnp_graph *nodes;
	uint32_t layer0, n_layers;
	uint32_t copied_bytes;         /* handed to it for each token of a step */
};
uint32_t model_n_parts(const struct model *m);
struct model_part model_part_at(const struct model *m, uint32_t i);

struct model_tap {
	int layer;             /* -1: outside the layers */
	const char *word;      /* "attn", "ffn", ... of the part */
	uint32_t width;
	uint32_t per_token;    /* rows of a token: 1, or one for each of its experts */
	bool chosen;           /* rows for each row asked for, not for each token: behind the last attention */
	bool of_seqs;          /* one row for each sequence: behind an encoder's pooling */
	uint32_t n_weights;    /* matrices that it feeds (MODEL_TAPS_LINEAR) */
	const struct gguf_tensor *weight[8];
	const float *rows;     /* [n_rows][width] of the last step */
	uint32_t n_rows;
};
size_t model_n_taps(const struct model *m);
const struct model_tap *model_tap_at(const struct model *m, size_t i);

/* Tokens of a request: chat_render + tokenizer for messages (`json`, engine/chat.h), with BOS as the template says;
 * plain text gets what the file asks for (BOS/EOS, or [CLS]/[SEP]). [any thread] */
int model_tokens_from_text(const struct model *m, const char *text, size_t len, struct tokens *out, struct error *e);
int model_tokens_from_messages(const struct model *m, const char *json, size_t len, int64_t now_s, struct tokens *out,
	struct error *e);
#endif
