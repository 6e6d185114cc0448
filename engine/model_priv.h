/* SPDX-License-Identifier: Apache-2.0
 * Inside the model: what opening (model.c), memory (model_memory.c), text (model_text.c) and stepping (step.c) share.
 */
#ifndef ENGINE_MODEL_PRIV_H
#define ENGINE_MODEL_PRIV_H
#include "engine/arch.h"
#include "engine/graph.h"
#include "engine/ledger.h"
#include "engine/model.h"
#include "engine/partition.h"
#include "engine/pass.h"

struct step_arrays { /* one block, cut by step.c; sizes follow from the limits */
	void *block;
	uint64_t bytes;			 /* of the block */
	int32_t *token, *pos;		 /* [step_tokens] */
	uint32_t *tok0, *past;		 /* [step_seqs + 1], [step_seqs] */
	uint32_t *page0[TNP_MAX_GROUPS]; /* [step_seqs + 1] */
	uint32_t *page[TNP_MAX_GROUPS];	 /* [step_seqs * max_pages] */
	uint32_t *out_tok;		 /* [step_out] */
	tnp_rc *seq_rc, *part_rc;	 /* [step_seqs] */
	uint32_t *seq_of;		 /* [step_seqs] index in the caller's array */
	float *rows;			 /* [step_out][width]: where callers' rows do not lie in one piece */
	struct tnp_rows
		*out; /* [outputs of the graph]: the rows wanted, then taps and what goes from part to part */
};

struct model {
	struct gguf *file;
	struct tokenizer *tokenizer;
	struct chat_template *template;
	struct error template_error; /* why there is no template */
	char *bos, *eos;	     /* texts for the template; NULL: none */
	struct graph *graph;	     /* all layers: behind the passes, of a split model before them */
	const struct tnp_graph *g;
	struct graph_slots slots;
	struct partition parts;
	bool opened; /* the parts are, and the step's arrays */
	char backends[BACKENDS_TEXT_BYTES];
	struct model_info info;
	char name[128], arch[32];
	uint64_t passes_off; /* graph passes that did not run */
	struct pass_report pass_report;
	uint32_t max_pages; /* of a sequence */
	uint32_t out_width; /* floats of a row of the output */
	uint64_t
		text_bytes; /* tokenizer, template, graph, tables: a guess first, measured once they are there */
	struct ledger ledger;
	struct step_arrays step;
	struct model_tap *taps; /* [n_taps]; output i + 1 of the graph, unless two share one */
	uint32_t *tap_out;	/* [n_taps] that output */
	uint32_t n_taps;
};

struct tnp_limits model_limits(const struct model *m);
uint64_t model_step_bytes(const struct model *m, uint32_t max_pages); /* without rows of logits */

/* Tokenizer, template, texts of BOS and EOS. */
int model_text_open(struct model *m, struct error *e);
void model_text_close(struct model *m);
void model_chat_open(struct model *m); /* a missing or broken template is kept as an error for later */
void model_chat_close(struct model *m);

/* Makes outputs of a graph that is built, before it is finished. */
int model_taps_open(struct model *m, enum model_taps kind, struct error *e);
void model_taps_close(struct model *m);

int model_step_open(struct model *m, struct error *e);
void model_step_close(struct model *m);
#endif
