/* SPDX-License-Identifier: Apache-2.0
 * How long will a step take? A model of one backend running one model file, fitted on line from measured steps:
 * piecewise linear in the rows of the step (a second decoding sequence is nearly free, a fiftieth is not), linear in
 * what attention reads, in sequences and in rows of logits. Starts from generic guesses, better from a calibration that
 * was kept. Pure numbers, no clock, no allocation after create. Owner: one thread.
 */
#ifndef SCHED_COST_H
#define SCHED_COST_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cost_shape { /* of a step */
	uint32_t n_tokens, n_seqs, n_out;
	uint64_t attended; /* sum over tokens of the positions they look at */
};
/* Adds a span of one sequence: tokens [past, past + n), n_out of them with rows of logits. */
void cost_shape_add(struct cost_shape *s, uint32_t past, uint32_t n, uint32_t n_out);

struct cost_model;
int cost_create(struct cost_model **out, struct error *e);
void cost_destroy(struct cost_model *c);

uint64_t cost_predict_ns(const struct cost_model *c, const struct cost_shape *s);
/* Most tokens n in 1..max of one more sequence at `past` (with `out` rows if it is its last chunk) such that the whole
 * step stays within budget_ns; 0: not even one. */
uint32_t cost_fit_tokens(const struct cost_model *c, const struct cost_shape *with, uint32_t past,
	uint32_t max, uint64_t budget_ns);
/* Predicted time of computing tokens [past, past + n) of one sequence in its own steps. */
uint64_t cost_prefill_ns(const struct cost_model *c, uint32_t past, uint32_t n, uint32_t chunk);

/* A measured step. Outliers (a machine that was busy elsewhere) are damped, not learned. */
void cost_observe(struct cost_model *c, const struct cost_shape *s, uint64_t ns);

bool cost_calibrated(const struct cost_model *c);
void cost_set_calibrated(struct cost_model *c);

/* As bytes, to keep for the next start: version and checksum inside; load refuses anything odd (FORMAT) and leaves c
 * as it was. */
enum { COST_SAVE_BYTES = 1024 };
size_t cost_save(const struct cost_model *c, void *out, size_t room); /* bytes written, 0: no room */
int cost_load(struct cost_model *c, const void *in, size_t len, struct error *e);

struct cost_status {
	uint64_t n_observed, predicted_ns, measured_ns; /* sums over all steps */
	double error_mean, error_p90; /* recent |predicted - measured| / measured, decayed */
	bool calibrated;
};
void cost_get_status(const struct cost_model *c, struct cost_status *out);
#endif
