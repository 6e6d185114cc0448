/* SPDX-License-Identifier: Apache-2.0
 * The cost model as a Kalman filter over the heights of the curve at its knots and three slopes. Neighbouring knots
 * are correlated, so that what was measured at one shape also moves the shapes between; all of it may drift together,
 * since a machine becomes slower as a whole. What lies far outside the expected spread counts as that spread's edge.
 * Bytes: cost_save.c. Owner: one thread.
 */
#include "sched/cost_priv.h"
#include "base/base.h"
#include <math.h>
#include <string.h>

const uint32_t cost_knots[COST_KNOTS] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
	512, 768, 1024, 1536, 2048, 3072, 4096 };

#define FIRST_NS    10e6 /* a step of one row, before anything was measured */
#define ROW_SHARE   0.05 /* each further row, in steps of one row */
#define SPREAD	    1.2	 /* of the guesses */
#define OCTAVES	    4.0	 /* after so many doublings of rows little is left of the correlation */
#define NOISE	    0.05 /* of a measurement */
#define NOISE_NS    20e3
#define DRIFT	    0.007 /* of everything together, a step */
#define OWN_DRIFT   0.001 /* of one knot, a step */
#define SLOW_EDGE   3.0	  /* spreads; others stealing the machine make steps slow, nothing makes them fast */
#define FAST_EDGE   8.0
#define SMALLEST_NS 1e3

/* ---- create ------------------------------------------------------------------------------------------------------------ */

static double correlation(uint32_t i, uint32_t j)
{
	if (i >= COST_KNOTS || j >= COST_KNOTS)
		return i == j;
	return exp(-fabs(log2((double)cost_knots[i] / cost_knots[j])) / OCTAVES);
}

void cost_spread(struct cost_model *c, const double sd[COST_N])
{
	for (uint32_t i = 0; i < COST_N; i++)
		for (uint32_t j = 0; j < COST_N; j++)
			c->cov[i][j] = sd[i] * sd[j] * correlation(i, j);
}

int cost_create(struct cost_model **out, struct error *e)
{
	static const double slope[COST_N - COST_KNOTS] = { 0.01, 0.002, 0.01 },
					   slope_sd[] = { 0.03, 0.01, 0.04 };
	struct cost_model *c = mem_zalloc(MEM_SCHED, 1, sizeof *c);
	double sd[COST_N];

	if (!c)
		return error_set(e, TENON_E_NOMEM, "cost model: out of memory");
	for (uint32_t i = 0; i < COST_KNOTS; i++) {
		c->theta[i] = FIRST_NS * (1 + ROW_SHARE * (cost_knots[i] - 1));
		sd[i] = SPREAD * c->theta[i];
	}
	for (uint32_t i = COST_KNOTS; i < COST_N; i++) {
		c->theta[i] = FIRST_NS * slope[i - COST_KNOTS];
		sd[i] = FIRST_NS * slope_sd[i - COST_KNOTS];
	}
	cost_spread(c, sd);
	cost_smooth(c);
	c->error_mean = c->error_p90 = 0.2;
	*out = c;
	return TENON_OK;
}

void cost_destroy(struct cost_model *c) { mem_free(c); }

/* ---- predicting -------------------------------------------------------------------------------------------------------- */

void cost_shape_add(struct cost_shape *s, uint32_t past, uint32_t n, uint32_t n_out)
{
	s->n_tokens += n;
	s->n_seqs += n > 0;
	s->n_out += n_out;
	s->attended += (uint64_t)n * past + (uint64_t)n * (n + 1) / 2;
}

/* Pools neighbours that fall, weighted by how well they are known, until the curve rises. */
void cost_smooth(struct cost_model *c)
{
	double sum[COST_KNOTS], weight[COST_KNOTS];
	uint32_t len[COST_KNOTS], n = 0, at = 0;

	for (uint32_t i = 0; i < COST_KNOTS; i++) {
		double w = 1 / (c->cov[i][i] + 1);

		sum[n] = w * MAX_OF(c->theta[i], SMALLEST_NS);
		weight[n] = w;
		len[n++] = 1;
		for (; n > 1 && sum[n - 2] / weight[n - 2] > sum[n - 1] / weight[n - 1]; n--) {
			sum[n - 2] += sum[n - 1];
			weight[n - 2] += weight[n - 1];
			len[n - 2] += len[n - 1];
		}
	}
	for (uint32_t b = 0; b < n; b++)
		for (uint32_t k = 0; k < len[b]; k++)
			c->curve[at++] = sum[b] / weight[b];
}

/* Left knot of the stretch that `rows` lies in; the last stretch goes on for ever. */
static uint32_t stretch_of(uint32_t rows)
{
	uint32_t k = 0;

	while (k + 2 < COST_KNOTS && cost_knots[k + 1] <= rows)
		k++;
	return k;
}

static double along(uint32_t k, uint32_t rows)
{
	return ((double)rows - cost_knots[k]) / (cost_knots[k + 1] - cost_knots[k]);
}

static double predict(const struct cost_model *c, const struct cost_shape *s)
{
	uint32_t rows = MAX_OF(s->n_tokens, 1u), k = stretch_of(rows);
	double t = along(k, rows), ns = c->curve[k] + t * (c->curve[k + 1] - c->curve[k]);

	ns += MAX_OF(c->theta[COST_ATTENDED], 0) * (double)s->attended / COST_ATTENDED_UNIT;
	ns += MAX_OF(c->theta[COST_SEQS], 0) * s->n_seqs + MAX_OF(c->theta[COST_OUT], 0) * s->n_out;
	return MAX_OF(ns, SMALLEST_NS);
}

uint64_t cost_predict_ns(const struct cost_model *c, const struct cost_shape *s)
{
	return s->n_tokens ? (uint64_t)MIN_OF(predict(c, s), 1e18) : 0;
}

static bool fits(const struct cost_model *c, struct cost_shape s, uint32_t past, uint32_t n, bool out,
	uint64_t budget_ns)
{
	cost_shape_add(&s, past, n, out);
	return cost_predict_ns(c, &s) <= budget_ns;
}

uint32_t cost_fit_tokens(const struct cost_model *c, const struct cost_shape *with, uint32_t past,
	uint32_t max, uint64_t budget_ns)
{
	uint32_t lo = 0, hi = max;

	if (!max || fits(c, *with, past, max, true, budget_ns))
		return max;
	while (lo + 1 < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		*(fits(c, *with, past, mid, false, budget_ns) ? &lo : &hi) = mid;
	}
	return lo;
}

uint64_t cost_prefill_ns(const struct cost_model *c, uint32_t past, uint32_t n, uint32_t chunk)
{
	uint64_t sum = 0;

	chunk = chunk ? chunk : n;
	for (uint32_t at = 0; at < n;) {
		struct cost_shape s = { 0 };
		uint32_t k = MIN_OF(chunk, n - at);

		at += k;
		cost_shape_add(&s, past + at - k, k, at == n);
		sum += cost_predict_ns(c, &s);
	}
	return sum;
}

/* ---- learning ---------------------------------------------------------------------------------------------------------- */

static void rescale(struct cost_model *c, double by)
{
	for (uint32_t i = 0; i < COST_N; i++) {
		c->theta[i] *= by;
		for (uint32_t j = 0; j < COST_N; j++)
			c->cov[i][j] *= by * by;
	}
	cost_smooth(c);
}

/* Everything may have become slower or faster together, and each knot a little by itself; doubt has an end. */
static void drift(struct cost_model *c)
{
	for (uint32_t i = 0; i < COST_N; i++) {
		double most, f;

		for (uint32_t j = 0; j < COST_N; j++)
			c->cov[i][j] += DRIFT * DRIFT * c->theta[i] * c->theta[j];
		c->cov[i][i] += OWN_DRIFT * OWN_DRIFT * c->theta[i] * c->theta[i];
		most = i < COST_KNOTS ? c->curve[i] : c->curve[0];
		if (c->cov[i][i] <= most * most)
			continue;
		f = most / sqrt(c->cov[i][i]);
		for (uint32_t j = 0; j < COST_N; j++) {
			c->cov[i][j] *= f;
			c->cov[j][i] *= f;
		}
	}
}

/* What the shape reads of each unknown; returns which unknowns are not zero. */
static uint32_t features(const struct cost_shape *s, uint32_t index[5], double x[5])
{
	uint32_t rows = MAX_OF(s->n_tokens, 1u), k = stretch_of(rows);
	double t = along(k, rows);

	memcpy(index, (uint32_t[5]){ k, k + 1, COST_ATTENDED, COST_SEQS, COST_OUT }, 5 * sizeof *index);
	memcpy(x, (double[5]){ 1 - t, t, (double)s->attended / COST_ATTENDED_UNIT, s->n_seqs, s->n_out },
		5 * sizeof *x);
	return 5;
}

static void learn(struct cost_model *c, const struct cost_shape *s, double ns)
{
	double x[5], px[COST_N], noise, spread, off = 0;
	uint32_t index[5], n = features(s, index, x);

	drift(c);
	noise = NOISE * predict(c, s) + NOISE_NS;
	spread = noise * noise;
	for (uint32_t i = 0; i < COST_N; i++) {
		px[i] = 0;
		for (uint32_t k = 0; k < n; k++)
			px[i] += c->cov[i][index[k]] * x[k];
	}
	for (uint32_t k = 0; k < n; k++) {
		spread += x[k] * px[index[k]];
		off += x[k] * c->theta[index[k]];
	}
	off = ns - off;
	off = MAX_OF(MIN_OF(off, SLOW_EDGE * sqrt(spread)), -FAST_EDGE * sqrt(spread));
	for (uint32_t i = 0; i < COST_N; i++) {
		c->theta[i] += px[i] / spread * off;
		for (uint32_t j = 0; j < COST_N; j++)
			c->cov[i][j] -= px[i] * px[j] / spread;
	}
	for (uint32_t i = 0; i < COST_N; i++) {
		double least = 1e-4 * c->curve[0];

		c->cov[i][i] = MAX_OF(c->cov[i][i], least * least);
		c->theta[i] = MAX_OF(c->theta[i], i < COST_KNOTS ? SMALLEST_NS : 0);
	}
	cost_smooth(c);
}

/* A percentile that follows by small steps, so that a slow minute is forgotten. */
static void follow(double *q, double percentile, double v)
{
	double step = MAX_OF(0.05 * *q, 1e-4);

	*q += v > *q ? percentile * step : (percentile - 1) * step;
}

static void note_error(struct cost_model *c, double predicted, double ns)
{
	double err = fabs(predicted - ns) / ns;

	c->error_mean += (MIN_OF(err, 2) - c->error_mean) / 64;
	follow(&c->error_p90, 0.9, err);
}

void cost_observe(struct cost_model *c, const struct cost_shape *s, uint64_t ns)
{
	double y = (double)MAX_OF(ns, 1u), predicted;

	if (!s->n_tokens || ns > 1000000000000000u)
		return;
	predicted = predict(c, s);
	if (!c->n_observed)
		rescale(c, MAX_OF(MIN_OF(y / predicted, 1e5), 1e-5));
	else
		note_error(c, predicted, y);
	learn(c, s, y);
	c->n_observed++;
	c->predicted_ns += (uint64_t)predicted;
	c->measured_ns += ns;
}

bool cost_calibrated(const struct cost_model *c) { return c->calibrated; }
void cost_set_calibrated(struct cost_model *c) { c->calibrated = true; }

void cost_get_status(const struct cost_model *c, struct cost_status *out)
{
	*out = (struct cost_status){ .n_observed = c->n_observed,
		.predicted_ns = c->predicted_ns,
		.measured_ns = c->measured_ns,
		.error_mean = c->error_mean,
		.error_p90 = c->error_p90,
		.calibrated = c->calibrated };
}
