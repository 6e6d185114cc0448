/* SPDX-License-Identifier: Apache-2.0
 * What the benchmarks share: statistics over samples, and the one JSON form of docs/cli.md ("Figures as JSON"):
 * {"tool","version","machine","model","results":[{"name","unit","n","median","p50","p99","min","max","peers"?}]}.
 * Single-threaded.
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H
#include "tools/cli.h"

struct bench_stat {
	size_t n;
	double median, p50, p99, min, max;
};

/* Sorts samples[n]. Median: mean of the middle two for even n; p50, p99: nearest rank. n 0 gives zeros. */
void bench_stat_of(double *samples, size_t n, struct bench_stat *out);

/* {"tool","version","machine"} and, when not NULL, "model" (taken over); "results" is empty. */
json_t *bench_report(const char *tool, json_t *model);

/* Appends a result over samples[n] (sorted by the call); returns it, borrowed, for bench_add_peer. */
json_t *bench_add(json_t *report, const char *name, const char *unit, double *samples, size_t n);

/* "peers":{peer:{"median","ratio"}}; ratio = ours / peer's for rates, peer's / ours for times: more is better. */
void bench_add_peer(json_t *result, const char *peer, double *samples, size_t n, bool is_rate);

/* Prints the report as JSON or as a table for people, and releases it. Returns CLI_OK. */
int bench_print(json_t *report, bool as_json);

/* Prototypes of all benchmarks. */
#define X(name, fn, line) int fn(int argc, char **argv);
#include "tools/benches.def"
#undef X
#endif
