/* SPDX-License-Identifier: Apache-2.0
 * From a row of logits to a token. Order: logit bias, penalties over the last `window` tokens (repeat as in CTRL,
 * arXiv:1909.05858; presence and frequency as OpenAI documents them), then greedy, or temperature, top-k, top-p
 * (arXiv:1904.09751), min-p (arXiv:2407.01082) and one draw. Draws come from Philox4x32-10 (Salmon et al., SC'11)
 * keyed by (seed, position), so that a resumed or replayed request draws the same numbers. Ties go to the lower id.
 * Owner: one thread. No allocation after create.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H
#include "base/error.h"
#include <stdint.h>
#include <stddef.h>

struct sampler_bias { int32_t token; float bias; };
struct sampler_params { /* zero: greedy, everything off */
	float temperature, top_p, min_p; /* top_p 0 counts as 1 */
	uint32_t top_k;
	float repeat_penalty, presence_penalty, frequency_penalty; /* repeat 0 counts as 1 */
	uint32_t penalty_window; /* 0: 64 */
	uint64_t seed;
	const struct sampler_bias *bias; /* [n_bias], copied */
	uint32_t n_bias;
	uint32_t n_logprobs; /* alternatives to report, 0..20; 0 with logprobs off */
};
struct sampler_logprob { int32_t token; float logprob; };

struct sampler;
/* INVALID: a value out of range, a bias token outside the vocabulary. */
int sampler_create(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out, struct error *e);
void sampler_destroy(struct sampler *s);
/* Tells it a token of the history (prompt or generated), oldest first. */
void sampler_accept(struct sampler *s, int32_t token);
/* Picks the token for `position` (index in the whole history) from logits[n_vocab], which it may change. NaN counts
 * as minus infinity; BACKEND when no logit is finite. logprobs (may be NULL) gets [1 + n_logprobs]: the chosen
 * token, then the best ones, of the unmodified distribution. */
int sampler_pick(struct sampler *s, float *logits, uint64_t position, int32_t *token, struct sampler_logprob *logprobs,
	struct error *e);
#endif
