/* SPDX-License-Identifier: Apache-2.0
 * The cost model's own state, shared by cost.c (predicts and learns) and cost_save.c (bytes).
 */
#ifndef SCHED_COST_PRIV_H
#define SCHED_COST_PRIV_H
#include "sched/cost.h"

enum { COST_KNOTS = 24, COST_ATTENDED = COST_KNOTS, COST_SEQS, COST_OUT, COST_N };
#define COST_ATTENDED_UNIT 1024.0

struct cost_model {
	double theta
		[COST_N]; /* ns at each knot; ns per 1024 positions attended, per sequence, per row of logits */
	double cov[COST_N][COST_N]; /* how sure we are of them */
	double curve[COST_KNOTS];   /* the knots made rising: what predictions use */
	double error_mean, error_p90;
	uint64_t n_observed, predicted_ns, measured_ns;
	bool calibrated;
};
extern const uint32_t cost_knots[COST_KNOTS]; /* rows */

void cost_spread(struct cost_model *c, const double sd[COST_N]); /* fills cov from standard deviations */
void cost_smooth(struct cost_model *c);				 /* fills curve */
#endif
