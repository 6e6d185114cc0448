/* SPDX-License-Identifier: Apache-2.0
 * A model driven by hand, for what measures it (bench model, profile): sequences of random tokens with pages of their
 * own, steps without a scheduler. Owner: one thread.
 */
#ifndef TOOLS_DRIVE_H
#define TOOLS_DRIVE_H
#include "engine/model.h"

struct drive {		     /* zero-initialise */
	struct model *model; /* borrowed */
	const struct model_info *info;
	uint32_t n_seqs;       /* most at once */
	int32_t *tokens;       /* [n_seqs][n_ctx + 1] */
	float *logits;	       /* [n_seqs][n_vocab] */
	uint32_t *pages;       /* [n_seqs][n_groups][seq_pages] */
	struct step_seq *seqs; /* [n_seqs] of the step */
	uint32_t seq_pages;
};
/* The model must have been opened for steps of n_seqs sequences. INVALID, NOMEM. */
int drive_init(struct drive *d, struct model *m, uint32_t n_seqs, struct error *e);
void drive_finish(struct drive *d);
/* Has the pool pages for n_seqs sequences of so many tokens, and the model the context? */
bool drive_fits(const struct drive *d, uint32_t n_seqs, uint32_t n_tokens);
/* Tokens [past, past + n) of each of the first n_seqs sequences; a row of logits each for the last one if `out`. */
int drive_step(struct drive *d, uint32_t n_seqs, uint32_t past, uint32_t n, bool out, struct error *e);
/* The most tokens of each sequence that a step takes. */
uint32_t drive_chunk(const struct drive *d, uint32_t n_seqs);
/* The best token of each row becomes its sequence's token `at`: what a server does between two steps, at the least. */
void drive_sample(struct drive *d, uint32_t n_seqs, uint32_t at);
/* A prompt of n tokens in as few steps as it takes; n tokens behind `past`, one by one. */
int drive_prefill(struct drive *d, uint32_t n_seqs, uint32_t n, struct error *e);
int drive_decode(struct drive *d, uint32_t n_seqs, uint32_t past, uint32_t n, struct error *e);
#endif
