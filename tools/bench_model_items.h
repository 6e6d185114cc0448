/* SPDX-License-Identifier: Apache-2.0
 * What bench model measures: prefill.N, decode.N, decode.batchS, and thread counts, from text. One thread.
 */
#ifndef TOOLS_BENCH_MODEL_ITEMS_H
#define TOOLS_BENCH_MODEL_ITEMS_H
#include "tools/cli.h"

enum { ITEMS_MAX = 32, ITEM_MAX_SEQS = 256, ITEM_MAX_TOKENS = 1 << 20 };
enum item_kind { ITEM_PREFILL, ITEM_DECODE, ITEM_BATCH };
struct item {
	char name[32];
	enum item_kind kind;
	uint32_t n; /* tokens; sequences of a batch */
};
struct items {
	struct item at[ITEMS_MAX];
	size_t n;
	bool asked; /* by name, not by default */
};
/* The default set, in the order of docs/cli.md. */
void items_default(struct items *out);
/* "prefill.256,decode.batch4"; false after a usage error was printed. */
bool items_parse(const char *cmd, const char *list, struct items *out);
/* Most sequences at once. */
uint32_t items_seqs(const struct items *s);

struct counts {
	uint32_t at[ITEMS_MAX];
	size_t n;
};
/* "1,2,4" of --threads. */
bool counts_parse(const char *cmd, const char *list, struct counts *out);
/* 1, 2, 4, ... and `most` itself. */
void counts_sweep(uint32_t most, struct counts *out);
#endif
