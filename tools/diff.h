/* SPDX-License-Identifier: Apache-2.0
 * Two ways to compute the same tokens, side by side: errors of the stream behind each part of each layer, and what that
 * does to the scores. Both are fed in step, so nothing but sums is kept. Owner: one thread.
 */
#ifndef TOOLS_DIFF_H
#define TOOLS_DIFF_H
#include "tools/score.h"
#include "tools/text.h"

struct diff_sum {	      /* of b against a */
	double signal, noise; /* a^2, (a - b)^2 */
	double most;	      /* largest |a - b| */
};

struct diff_part {
	int layer;
	const char *word;
	struct diff_sum sum;
};

struct diff_parting { /* a position where the best tokens differ */
	uint32_t at;  /* of the token behind which they differ */
	int32_t a, b;
	double margin; /* a's score of its own best above a's score of b's best */
};

struct diff {
	struct score side[2];	/* a is the reference */
	struct diff_part *part; /* [n_parts] */
	size_t n_parts;
	struct diff_sum logits;
	uint64_t n;	    /* positions, or texts, compared */
	double kl, kl_most; /* sum of KL(a || b) in nats, the largest */
	uint32_t kl_at;
	uint64_t n_same;		   /* best tokens equal */
	struct diff_parting first, widest; /* valid when n_same < n */
	uint32_t n_greedy, n_greedy_same;  /* tokens made behind the text; until they part */
	struct diff_parting greedy;	   /* valid when n_greedy_same < n_greedy */
	double cosine, cosine_least;	   /* encoders: sum over n texts, the least; `logits` are the embeddings */
	uint32_t cosine_at;
	uint64_t n_tokens; /* of encoders' texts */
};

/* Both sides are open (MODEL_TAPS_LAYERS). INVALID when they are not the same kind of model. */
int diff_begin(struct diff *d, struct error *e);
/* Compares over ids [n], then lets both go on greedily for at most n_greedy tokens. CANCELLED after Ctrl-C. */
int diff_run(struct diff *d, const int32_t *ids, uint32_t n, uint32_t n_greedy, struct error *e);
/* The same for encoders, text by text. */
int diff_run_texts(struct diff *d, const struct texts *t, struct error *e);
void diff_finish(struct diff *d);		/* not the sides */
double diff_relative(const struct diff_sum *s); /* root mean square of the difference over that of a */
#endif
