/* SPDX-License-Identifier: Apache-2.0
 * Drives a compute plugin in tests: loads the built module, makes a language model by hand, opens it, runs steps of
 * several sequences whose pages are dealt out in any order. One thread. Every failure fails the test.
 */
#ifndef TESTS_TNP_DRIVE_H
#define TESTS_TNP_DRIVE_H
#include "tests/unit/tnp_make.h"
#include <stdbool.h>

/* ---- a device ------------------------------------------------------------------------------- */
struct drive_dev {
	const struct tnp_ops *ops;
	struct tnp_dev *dev;
	const char *threads, *isa; /* config values; NULL: not set */
};
/* name: "cpu", "ref". The plugin is started; one device of a plugin at a time. */
void drive_open(struct drive_dev *d, const char *name, const char *threads, const char *isa);
void drive_close(struct drive_dev *d);

/* ---- a made-up language model ----------------------------------------------------------------- */
struct drive_arch {
	uint32_t layers, d, heads, kv_heads, head_dim, ff, vocab;
	uint32_t type, type_down; /* of the matrices; type_down 0: the same */
	uint32_t window;	  /* of the odd layers; 0: none */
	uint32_t rope_mode, rope_dims, act;
	uint32_t experts, top_k; /* a mixture in each layer; 0: none */
	double cap;		 /* of scores and logits; 0: none */
	bool fused;		 /* stacked products, rope in ATTEND, norms with residual */
	bool qk_norm, biased, factors;
};
struct tnp_make *drive_arch_make(const struct drive_arch *a, uint64_t seed);

/* ---- a model with its pool ------------------------------------------------------------------------ */
enum { DRIVE_SEQS = 24, DRIVE_PAGES = 64 };
struct drive_seq { /* a sequence's history and pages (one list a group) */
	const int32_t *token;
	uint32_t past, n_pages;
	uint32_t page[TNP_MAX_GROUPS][DRIVE_PAGES];
};
struct drive_model {
	struct drive_dev *d;
	struct tnp_model *model;
	struct tnp_kv *kv;
	struct tnp_limits lim;
	uint32_t n_groups, vocab;
	uint32_t n_pages, used; /* of each group; pages given out so far */
	uint32_t *deal;		/* [n_pages] order in which pages are given out */
};
/* Pages are dealt out in an order that depends on `shuffle` (0: ascending). */
void drive_model_open(struct drive_model *m, struct drive_dev *d, struct tnp_make *g,
	const struct drive_arch *a, uint32_t precision, uint32_t kv_type, uint32_t page_tokens,
	uint64_t shuffle);
void drive_model_close(struct drive_model *m);

struct drive_part { /* n more tokens of a sequence; logits of the last n_out of them go to out [n_out][vocab] */
	struct drive_seq *seq;
	uint32_t n, n_out;
	float *out;
};
void drive_step(struct drive_model *m, const struct drive_part *part, uint32_t n_parts);
#endif
