/* SPDX-License-Identifier: Apache-2.0
 * See sampler.h. Truncations (top-k, top-p, min-p) are all prefixes of the candidates in descending order, so a heap is
 * built once, of those that can be in the prefix, and popped only as far as the shortest one or the draw reaches.
 */
#include "engine/sampler.h"
#include "base/base.h"
#include "engine/logits.h"
#include <math.h>
#include <string.h>

enum { DEFAULT_WINDOW = 64, MAX_WINDOW = 1u << 20, MAX_LOGPROBS = 20 };

struct cand {
	float logit;
	int32_t token;
};

struct sampler {
	struct sampler_params p;
	struct sampler_bias *bias;
	uint32_t n_vocab;
	int32_t *recent, *sorted;  /* [window]: ring of the last tokens, and the same tokens in order */
	uint32_t window, n_recent; /* window 0: no penalty asked for */
	uint64_t n_accepted;
	struct cand *heap; /* [n_vocab], only when drawing */
	float *tops;	   /* [n_vocab / LOGITS_BLOCK + 1] scratch, only when drawing */
	struct cand *undo; /* [n_bias + window]: logits of this row as they were, first change first */
	uint32_t n_undo;
};

/* ---- random numbers --------------------------------------------------------------------------------------- */

/* Philox4x32-10: ten rounds over the counter, key = seed; first two words as a double in [0, 1). */
static double draw(uint64_t seed, uint64_t position)
{
	uint32_t c[4] = { (uint32_t)position, (uint32_t)(position >> 32), 0, 0 };
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int i = 0; i < 10; i++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
		uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;

		c[1] = (uint32_t)b;
		c[3] = (uint32_t)a;
		c[0] = n0;
		c[2] = n2;
	}
	return (double)(((uint64_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

/* ---- create ------------------------------------------------------------------------------------------------- */

static bool in_range(float v, float lo, float hi) { return v >= lo && v <= hi; } /* false for NaN */

static int check(const struct sampler_params *p, uint32_t n_vocab, struct error *e)
{
	if (!in_range(p->temperature, 0, 100))
		return error_set(e, TENON_E_INVALID, "temperature: must be from 0 to 100");
	if (!in_range(p->top_p, 0, 1) || !in_range(p->min_p, 0, 1))
		return error_set(e, TENON_E_INVALID, "top_p, min_p: must be from 0 to 1");
	if (!in_range(p->repeat_penalty, 0, 100))
		return error_set(e, TENON_E_INVALID, "repeat_penalty: must be from 0 to 100");
	if (!in_range(p->presence_penalty, -100, 100) || !in_range(p->frequency_penalty, -100, 100))
		return error_set(
			e, TENON_E_INVALID, "presence_penalty, frequency_penalty: must be from -100 to 100");
	if (p->penalty_window > MAX_WINDOW)
		return error_set(
			e, TENON_E_INVALID, "penalty_window: must be at most %u", (unsigned)MAX_WINDOW);
	if (p->n_logprobs > MAX_LOGPROBS)
		return error_set(e, TENON_E_INVALID, "logprobs: must be at most %d", MAX_LOGPROBS);
	for (uint32_t i = 0; i < p->n_bias; i++)
		if (p->bias[i].token < 0 || (uint32_t)p->bias[i].token >= n_vocab ||
			!isfinite(p->bias[i].bias))
			return error_set(e, TENON_E_INVALID,
				"logit_bias: token %d is not in the vocabulary of %u, or its bias is not finite",
				(int)p->bias[i].token, n_vocab);
	return TENON_OK;
}

static bool penalises(const struct sampler_params *p)
{
	return p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

int sampler_create(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out, struct error *e)
{
	struct sampler *s;
	int rc = check(p, n_vocab, e);

	if (rc)
		return rc;
	s = mem_zalloc(MEM_SCHED, 1, sizeof *s);
	if (!s)
		goto nomem;
	s->p = *p;
	s->n_vocab = n_vocab;
	s->p.top_p = p->top_p > 0 ? p->top_p : 1;
	s->p.repeat_penalty = p->repeat_penalty > 0 ? p->repeat_penalty : 1;
	s->bias = mem_zalloc(MEM_SCHED, p->n_bias + 1, sizeof *s->bias);
	if (!s->bias)
		goto nomem;
	if (p->n_bias)
		memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
	if (penalises(&s->p)) {
		s->window = p->penalty_window ? p->penalty_window : DEFAULT_WINDOW;
		s->recent = mem_zalloc(MEM_SCHED, s->window, sizeof *s->recent);
		s->sorted = mem_zalloc(MEM_SCHED, s->window, sizeof *s->sorted);
		if (!s->recent || !s->sorted)
			goto nomem;
	}
	s->undo = mem_zalloc(MEM_SCHED, (size_t)p->n_bias + s->window + 1, sizeof *s->undo);
	if (!s->undo)
		goto nomem;
	if (p->temperature > 0) {
		s->heap = mem_zalloc(MEM_SCHED, n_vocab, sizeof *s->heap);
		s->tops = mem_zalloc(MEM_SCHED, n_vocab / LOGITS_BLOCK + 1, sizeof *s->tops);
		if (!s->heap || !s->tops)
			goto nomem;
	}
	*out = s;
	return TENON_OK;
nomem:
	sampler_destroy(s);
	return error_set(e, TENON_E_NOMEM, "sampler: out of memory");
}

void sampler_destroy(struct sampler *s)
{
	if (!s)
		return;
	mem_free(s->bias);
	mem_free(s->recent);
	mem_free(s->sorted);
	mem_free(s->heap);
	mem_free(s->tops);
	mem_free(s->undo);
	mem_free(s);
}

/* ---- history ------------------------------------------------------------------------------------------------- */

/* First place in sorted[n] whose value is not below `token`. */
static uint32_t lower_bound(const int32_t *sorted, uint32_t n, int32_t token)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (sorted[mid] < token)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void sampler_accept(struct sampler *s, int32_t token)
{
	uint32_t slot, at;

	if (!s->window)
		return;
	slot = (uint32_t)(s->n_accepted++ % s->window);
	if (s->n_recent == s->window) {
		at = lower_bound(s->sorted, s->n_recent, s->recent[slot]);
		s->n_recent--;
		memmove(s->sorted + at, s->sorted + at + 1, (s->n_recent - at) * sizeof *s->sorted);
	}
	s->recent[slot] = token;
	at = lower_bound(s->sorted, s->n_recent, token);
	memmove(s->sorted + at + 1, s->sorted + at, (s->n_recent - at) * sizeof *s->sorted);
	s->sorted[at] = token;
	s->n_recent++;
}

static void change(struct sampler *s, float *logits, int32_t token, float to)
{
	s->undo[s->n_undo++] = (struct cand){ logits[token], token };
	logits[token] = to;
}

static void apply_bias(struct sampler *s, float *logits)
{
	for (uint32_t i = 0; i < s->p.n_bias; i++)
		change(s, logits, s->bias[i].token, logits[s->bias[i].token] + s->bias[i].bias);
}

static void apply_penalties(struct sampler *s, float *logits)
{
	for (uint32_t i = 0, n; i < s->n_recent; i += n) {
		int32_t t = s->sorted[i];

		for (n = 1; i + n < s->n_recent && s->sorted[i + n] == t; n++)
			;
		if (t < 0 || (uint32_t)t >= s->n_vocab)
			continue;
		change(s, logits, t,
			(logits[t] > 0 ? logits[t] / s->p.repeat_penalty : logits[t] * s->p.repeat_penalty) -
				s->p.presence_penalty - (float)n * s->p.frequency_penalty);
	}
}

/* ---- choice --------------------------------------------------------------------------------------------------- */

static bool above(struct cand a, struct cand b)
{
	return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift(struct cand *h, uint32_t n, uint32_t i)
{
	for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
		struct cand t = h[i];

		if (c + 1 < n && above(h[c + 1], h[c]))
			c++;
		if (!above(h[c], t))
			return;
		h[i] = h[c];
		h[c] = t;
	}
}

static void heapify(struct cand *h, uint32_t n)
{
	for (uint32_t i = n / 2; i-- > 0;)
		sift(h, n, i);
}

/* Moves the top of h[n] behind the heap: afterwards the popped ones stand at h[n - popped .. n) in reverse. */
static struct cand pop(struct cand *h, uint32_t *n)
{
	struct cand top = h[0];

	h[0] = h[--*n];
	h[*n] = top;
	sift(h, *n, 0);
	return top;
}

static double weight(const struct sampler *s, float logit, float top)
{
	return exp(((double)logit - top) / s->p.temperature);
}

/* The i-th best candidate; `left` is what still stands in the heap of n. */
static struct cand nth(struct cand *h, uint32_t n, uint32_t *left, uint32_t i)
{
	while (n - *left <= i)
		(void)pop(h, left);
	return h[n - 1 - i];
}

/* Finite candidates that reach `floor`, as a heap. */
static uint32_t gather(struct sampler *s, const float *logits, double floor)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_vocab; i++)
		if ((double)logits[i] >= floor && isfinite(logits[i]))
			s->heap[n++] = (struct cand){ logits[i], (int32_t)i };
	heapify(s->heap, n);
	return n;
}

/* The logit below which a weight cannot matter. All that are lighter than (1 - share) x total / (2 n_vocab) together weigh less
 * than half of 1 - share, so the heaviest that make up `share` of all are above. */
static double share_floor(const struct sampler *s, float top, double share, double total)
{
	return top + s->p.temperature * log((1 - share) * total / (2.0 * s->n_vocab));
}

/* The first of the candidates in descending order at which the sum of weights goes above `target`. */
static int32_t walk(struct sampler *s, uint32_t n, uint32_t left, uint32_t kept, float top, double target)
{
	double sum = 0;
	uint32_t i = 0;

	for (; i + 1 < kept; i++) {
		sum += weight(s, nth(s->heap, n, &left, i).logit, top);
		if (target < sum)
			break;
	}
	return nth(s->heap, n, &left, i).token;
}

/* Without a cut by rank or share no order is needed but that of the few before the target: candidates are those that min-p
 * leaves, or those that can come before it. */
static int32_t pick_of_all(struct sampler *s, const float *logits, float top, double total, double u)
{
	double sum = total;
	uint32_t n;

	if (s->p.min_p > 0) {
		n = gather(s, logits, top + s->p.temperature * log(s->p.min_p));
		sum = 0;
		for (uint32_t i = 0; i < n; i++)
			sum += weight(s, s->heap[i].logit, top);
	} else {
		n = gather(s, logits, MIN_OF(share_floor(s, top, u, total), top));
	}
	return walk(s, n, n, n, top, u * sum);
}

static int32_t pick_random(struct sampler *s, const float *logits, float top, uint64_t position)
{
	double total = 0, sum = 0, u = draw(s->p.seed, position);
	uint32_t n, left, kept = 0, most;

	if (!s->p.top_k) {
		total = logits_sum(logits, s->n_vocab, top, MIN_OF(1 / s->p.temperature, 1e30f));
		if (s->p.top_p >= 1)
			return pick_of_all(s, logits, top, total, u);
		n = gather(s, logits, MIN_OF(share_floor(s, top, s->p.top_p, total), top));
	} else {
		n = gather(s, logits, logits_floor(logits, s->n_vocab, s->p.top_k, s->tops));
	}
	left = n;
	most = s->p.top_k ? MIN_OF(s->p.top_k, n) : n;
	for (uint32_t i = 0; s->p.top_k && i < most; i++) /* top-p works on what top-k left */
		total += weight(s, nth(s->heap, n, &left, i).logit, top);
	while (kept < most && (!kept || sum < s->p.top_p * total)) {
		double w = weight(s, nth(s->heap, n, &left, kept).logit, top);

		if (kept && w < s->p.min_p)
			break;
		sum += w;
		kept++;
	}
	return walk(s, n, left, kept, top, u * sum);
}

/* logprobs[0] is filled once the choice is known; [1 ..] the best of the distribution as the model gave it. */
static double report_best(const struct sampler *s, const float *logits, float top, struct sampler_logprob *lp)
{
	double sum = 0, lse;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_vocab; i++) {
		uint32_t at = n;

		if (!isfinite(logits[i]))
			continue;
		sum += exp((double)logits[i] - top);
		while (at > 0 && logits[i] > lp[at].logprob)
			at--;
		if (at >= s->p.n_logprobs)
			continue;
		n = MIN_OF(n + 1, s->p.n_logprobs);
		memmove(lp + at + 2, lp + at + 1, (n - 1 - at) * sizeof *lp);
		lp[at + 1] = (struct sampler_logprob){ (int32_t)i, logits[i] };
	}
	lse = top + log(sum);
	for (uint32_t i = 1; i <= n; i++)
		lp[i].logprob = (float)(lp[i].logprob - lse);
	for (uint32_t i = n + 1; i <= s->p.n_logprobs; i++)
		lp[i] = (struct sampler_logprob){ -1, -INFINITY };
	return lse;
}

/* What the model gave for a token, before bias and penalties. */
static float raw_logit(const struct sampler *s, const float *logits, int32_t token)
{
	for (uint32_t i = 0; i < s->n_undo; i++)
		if (s->undo[i].token == token)
			return s->undo[i].logit;
	return logits[token];
}

int sampler_pick(struct sampler *s, float *logits, uint64_t position, int32_t *token,
	struct sampler_logprob *logprobs, struct error *e)
{
	int32_t top = logits_top(logits, s->n_vocab);
	double lse = 0;

	if (top < 0)
		return error_set(e, TENON_E_BACKEND,
			"logits: no finite value in the row; the backend computed garbage");
	if (logprobs)
		lse = report_best(s, logits, logits[top], logprobs);
	s->n_undo = 0;
	apply_bias(s, logits);
	apply_penalties(s, logits);
	top = s->n_undo ? logits_top(logits, s->n_vocab) : top;
	if (top < 0)
		return error_set(e, TENON_E_INVALID, "logit_bias: no token is left to choose");
	*token = s->heap ? pick_random(s, logits, logits[top], position) : top;
	if (logprobs)
		logprobs[0] = (struct sampler_logprob){ *token, (float)(raw_logit(s, logits, *token) - lse) };
	return TENON_OK;
}
