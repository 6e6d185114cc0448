/* SPDX-License-Identifier: Apache-2.0
 * The two halves of `tenon bench ipc`: what needs no daemon, and what measures one.
 */
#ifndef TOOLS_BENCH_IPC_H
#define TOOLS_BENCH_IPC_H
#include "tools/bench.h"
#include "tools/session.h"

enum { BENCH_IPC_BYTES = 64 }; /* of every message */

/* Appends hop.*, ring.awake, bell.* and baseline.*; `share` of 100 scales the numbers of round trips. Forks: call it
 * before anything starts a thread. */
int bench_ipc_local(json_t *report, uint64_t share, struct error *e);
/* Appends ping.*, attach and idle.*, against the daemon of `s`. */
int bench_ipc_daemon(json_t *report, uint64_t share, struct session *s, struct error *e);
#endif
