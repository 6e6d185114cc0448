/* SPDX-License-Identifier: Apache-2.0
 * Embeddings of texts, for `tenon embed` and `tenon bench embed`: with a model in this process, many short texts in one
 * step, or through a daemon. Owner: one thread.
 */
#ifndef TOOLS_EMBED_H
#define TOOLS_EMBED_H
#include "tools/gen.h"
#include "tools/open_model.h"
#include "tools/session.h"

enum { EMBED_STEP_TOKENS = 512, EMBED_STEP_TEXTS = 64 }; /* of a step, unless asked otherwise */

struct embed_text {
	json_t *in;	   /* the entry as it came, with "text"; NULL: unreadable, e says why */
	struct tokens ids; /* filled by embedder_run */
	float *row;	   /* [n_row], mem_free */
	uint32_t n_row;
	struct error e;	  /* code 0: there is a row */
	uint64_t request; /* embed_session_run's */
};
void embed_text_finish(struct embed_text *t);

struct embedder {
	struct opened opened;
	struct model *m; /* opened.model */
	bool truncate;	 /* longer texts lose their end; else they fail with TOO_LONG */
	struct step_seq *seqs;
	uint32_t *index; /* [step_seqs] which text a sequence is */
	float *rows;	 /* [step_seqs][d_model] */
};
/* Loads the model; UNSUPPORTED when it is no encoder. embedder_close in any case. */
int embedder_open(struct open_options *o, bool truncate, struct embedder *out, struct error *e);
void embedder_close(struct embedder *m);
/* Fills rows; faults of a text stay with it. BACKEND: the device is lost. */
int embedder_run(struct embedder *m, struct embed_text *t, size_t n, struct error *e);

/* The same through a daemon, with at most `parallel` requests open. GONE: it has ended. */
int embed_session_run(struct session *s, const char *model, size_t parallel, struct embed_text *t, size_t n,
	struct error *e);
#endif
