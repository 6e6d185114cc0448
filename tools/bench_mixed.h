/* SPDX-License-Identifier: Apache-2.0
 * `tenon bench mixed` in two parts: blocks that are run (cmd_bench_mixed.c), figures made of them (mixed_report.c).
 */
#ifndef TOOLS_BENCH_MIXED_H
#define TOOLS_BENCH_MIXED_H
#include "tools/bench_load.h"
#include "tools/plot.h"

enum mixed_what { MIXED_ALONE, MIXED_LOADED, MIXED_OFFLINE, MIXED_TARGET, MIXED_WHATS };
extern const char *const mixed_names[MIXED_WHATS]; /* for people */

struct mixed_kind {			  /* of all blocks of one kind */
	struct buf ttft, tpot, gap, rate; /* of doubles: ms, ms, ms between two tokens, tok/s */
	uint64_t n_sent, n_failed, n_unfinished, n_offline, n_preempted;
	uint64_t n_gaps, n_within, n_on_time; /* of online tokens, against the target */
	char why[96];			      /* of the last failure */
};
struct mixed_round {
	double rate, busy; /* online arrivals a second, and how busy they kept the device alone */
	uint32_t n_alone;  /* alone blocks that it took to find the rate; the last one counts */
};
struct mixed_side { /* a server */
	struct load_server *server;
	struct mixed_kind kind[MIXED_WHATS];
	struct buf efficiency, busy, step, gain; /* of doubles, one a round */
	struct buf rounds;			 /* of struct mixed_round */
	struct plot_panel panel;
	uint64_t t0_ns;
};
struct mixed {
	struct bench_load_options o;
	struct bench_load l;
	struct mixed_side side[2]; /* ours, the peer */
	int n_sides;
	const char *plot;
	bool targets;
	uint64_t load, online_prompt, online_new, clients, offline_words, offline_new, blocks, tpot_ms,
		ttft_ms;
	uint64_t seconds_u, patience_u, warmup_u;
	double seconds, patience_s, warmup_s, rate, target_ms, block_s, n_done, n_total;
	uint32_t offline_tokens;
};
/* Load 2: where online alone must keep the device busy. */
#define MIXED_BUSY	 0.60
#define MIXED_BUSY_LEAST 0.55
#define MIXED_BUSY_MOST	 0.65
/* Twice the median time per token alone, whole ms. */
void mixed_choose_target(struct mixed *m, const struct mixed_side *s);
/* Prints everything that was measured. */
void mixed_report(struct mixed *m);
#endif
