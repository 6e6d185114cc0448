/* SPDX-License-Identifier: Apache-2.0
 * `tenon bench prefix` in two parts: what reuse is worth (cmd_bench_prefix.c), and what it tells another tenant
 * (bench_probe.c).
 */
#ifndef TOOLS_BENCH_PREFIX_H
#define TOOLS_BENCH_PREFIX_H
#include "tools/bench_load.h"

struct prefix_bench {
	struct bench_load_options o;
	struct bench_load l;
	uint64_t prefix, tail, n_new, reps, pairs;
	bool no_disk, share_tenants;
	char ctx[16], dir[64], config[80];
};
/* n tokens of a prefix (equal for equal `which`), then `tail` tokens that nobody had before. */
struct load_item *prefix_item(struct prefix_bench *b, uint64_t which, uint64_t *tails);
/* Asks and waits; a failed request is an error. */
int prefix_ask(struct load_server *s, struct load_item *it, struct error *e);

/* --probe: two tenants, and how well the time to first token tells one of them what the other has asked; prints it.
 * b->dir is a folder for the daemon's configuration. */
int prefix_probe(struct prefix_bench *b, struct error *e);
/* How well "smaller means used" tells used[n] from unused[n]: 0.5 is chance. Sorts both. */
double prefix_auc(double *used, double *unused, size_t n);
#endif
