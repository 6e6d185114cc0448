/* SPDX-License-Identifier: Apache-2.0
 * Feeds one sequence of token ids through a loaded model and hands out the rows of logits that are asked for, a few at
 * a time, so that memory does not grow with the text. Pages are used in a scattered order on purpose: results must not
 * depend on them. Groups with a window get only as many pages as their window needs, used in turn.
 */
#ifndef TOOLS_SCORE_H
#define TOOLS_SCORE_H
#include "tools/open_model.h"

enum { SCORE_OUT = 64, SCORE_TOKENS = 512 }; /* rows and tokens of a step */

struct score { /* owner: one thread */
	struct opened opened;
	struct model *m; /* opened.model */
	uint32_t chunk;	 /* tokens of a step, at most SCORE_TOKENS */
	float *rows;	 /* [SCORE_OUT][score_width] */
	uint32_t *order[TNP_MAX_GROUPS],
		*pages[TNP_MAX_GROUPS]; /* page numbers in the order of use; of a step */
};

/* Loads the model too; n_ctx 0: its own. score_close in any case. Errors of open_model; NOMEM; UNSUPPORTED for an encoder,
 * unless those are taken too. */
int score_open(struct open_options *o, uint64_t n_ctx, uint64_t chunk, bool encoders_too, struct score *s,
	struct error *e);
void score_close(struct score *s);

/* Width of a row: of scores, or of an encoder's embedding. */
uint32_t score_width(const struct score *s);
/* A whole text through an encoder: its embedding is the first row. INVALID, BACKEND. */
int score_embed(struct score *s, const int32_t *ids, uint32_t n, struct error *e);
/* One step by hand: ids [n] at positions past..past + n - 1, all before them having gone through; rows of the last n_out
 * (at most SCORE_OUT) in s->rows. INVALID, BACKEND. */
int score_step(
	struct score *s, const int32_t *ids, uint32_t past, uint32_t n, uint32_t n_out, struct error *e);

/* Rows of positions [first, first + n): row i scores what follows ids[first + i]. Another code than OK ends the run. */
typedef int score_fn(void *ctx, uint32_t first, const float *rows, uint32_t n, struct error *e);
/* ids [n], rows for the last n_rows of them. INVALID, BACKEND, or what fn returned. */
int score_run(struct score *s, const int32_t *ids, uint32_t n, uint32_t n_rows, score_fn *fn, void *ctx,
	struct error *e);
#endif
