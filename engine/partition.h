/* SPDX-License-Identifier: Apache-2.0
 * A model's layers on one backend or on several: a list of parts, behind which the rest of the engine does not see how many
 * there are. The builder's graph is cut in front of layers before any pass runs; exactly one tensor crosses each cut. It is made
 * an output of the graph, so its rows lie in host memory of the step (step.c), where one part leaves and the next one finds them.
 * Every part has a pool of its own for the KV slots of its layers, and all use the same page numbers: a page of a group is the
 * pages of that number in all parts that have slots of the group. Embedding goes with the first part, head or pooling with the
 * last. Not split: one part, whose graph is the model's. Inside the engine. Owner: the step thread.
 */
#ifndef ENGINE_PARTITION_H
#define ENGINE_PARTITION_H
#include "engine/backends.h"
#include "engine/graph.h"

struct part {
	struct backend *backend;   /* borrowed */
	struct backend_model *bm;  /* NULL: only measured */
	struct graph *graph;	   /* its own; of a model that is not split the model's */
	const struct tnp_graph *g; /* behind the passes */
	uint32_t layer0, n_layers;
	uint32_t in;	       /* output of the model's graph that it starts from; TNP_NONE: tokens */
	uint32_t *outs;	       /* [n_outs] outputs of the model's graph that are its own */
	struct tnp_rows *rows; /* [n_outs] of a step */
	uint32_t n_outs;
	struct graph_slots slots;
	uint32_t group[TNP_MAX_GROUPS];	     /* [slots.n_groups] the model's group */
	uint64_t page_bytes[TNP_MAX_GROUPS]; /* [slots.n_groups], once open */
};

struct partition {
	struct part part[MODEL_MAX_PARTS];
	uint32_t n;
	bool split; /* the parts own their graphs */
};

/* Cuts `whole`, behind its builder and before any pass; a graph that has failed stays one part, whose graph_finish tells of it.
 * `model`: for messages. INVALID: more layers asked for than there are. UNSUPPORTED: no cut is possible there. */
int partition_cut(struct partition *p, struct graph *whole, const struct model_place *place,
	uint32_t n_places, uint32_t n_layers, const char *model, struct error *e);
/* Slots of each part, whose groups are those of the model with the same window. */
int partition_slots(struct partition *p, const struct graph_slots *whole, struct error *e);
void partition_finish(struct partition *p);

/* What the backends say, and its sum: kv_page by the model's groups, kv_compat of all. TOO_LONG: a sum over 2^64. */
int partition_sizes(const struct partition *p, const struct tnp_limits *lim,
	struct tnp_sizes each[MODEL_MAX_PARTS], struct tnp_sizes *out, struct error *e);
/* A part's pages in a pool of so many of each of the model's groups. */
uint64_t partition_kv_bytes(
	const struct part *p, const struct tnp_sizes *s, const uint64_t n_pages[TNP_MAX_GROUPS]);
uint64_t partition_arena_bytes(const struct partition *p);
bool partition_has(const struct partition *p, uint64_t feature); /* all of its backends */

/* Models, then pools of so many pages of each of the model's groups; each: of partition_sizes. progress: over all parts, by
 * the weights of each; may be NULL. */
int partition_open(struct partition *p, const struct tnp_limits *lim,
	const struct tnp_sizes each[MODEL_MAX_PARTS], const uint32_t n_pages[TNP_MAX_GROUPS],
	const struct backend_progress *progress, struct error *e);
/* The parts in order. `b` is filled for the model's graph; part_rc: [n_seqs] for what each part says of a sequence, of which the
 * first fault is kept in b->seq_rc. */
int partition_batch(struct partition *p, const struct tnp_batch *b, tnp_rc *part_rc, struct error *e);
int partition_kv_copy(
	struct partition *p, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e);
int partition_kv_read(struct partition *p, uint32_t group, uint32_t page, void *out, struct error *e);
int partition_kv_write(struct partition *p, uint32_t group, uint32_t page, const void *in, struct error *e);
#endif
