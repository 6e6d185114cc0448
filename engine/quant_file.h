/* SPDX-License-Identifier: Apache-2.0
 * Quantising a model file: which tensor gets which type (quant_plan), and the writing of the new file (quant_run). The
 * rules are in docs/quantize.md. Owner: one thread; quant_run starts threads of its own.
 */
#ifndef ENGINE_QUANT_FILE_H
#define ENGINE_QUANT_FILE_H
#include "engine/importance.h"
#include "engine/quant.h"

struct quant_rule {	     /* --tensor PATTERN=TYPE */
	const char *pattern; /* fnmatch, on the tensor's name */
	uint32_t type;
	uint64_t hits; /* filled: tensors that took their type from it */
};

enum quant_reason {  /* why a tensor has the type it has */
	QUANT_ASKED, /* the type of the file or of the mix */
	QUANT_BY_RULE,
	QUANT_BY_MIX,	/* raised by the mix, or the head */
	QUANT_SMALL,	/* vectors, small matrices and routers stay floats */
	QUANT_FALLBACK, /* its rows are no whole blocks of the type it should have */
	QUANT_AS_IS	/* no weight type: copied */
};

struct quant_row { /* one tensor */
	const struct gguf_tensor *t;
	uint32_t type, wanted; /* differ after a fallback */
	enum quant_reason reason;
	bool copied;	/* has this type already: bytes as they are */
	bool weighted;	/* importance was used */
	uint64_t bytes; /* in the new file */
	struct quant_error error;
};

struct quant_job {
	const struct gguf *in;
	const char *type; /* "Q4_K", or a mix: "q4_k_m" */
	struct quant_rule *rules;
	size_t n_rules;
	const struct importance *importance; /* NULL: none */
	bool pure;	    /* the head gets the type asked for too, even if it has few bits */
	bool requantize;    /* quantised sources are taken too */
	uint32_t n_threads; /* 0: 1 */
	bool (*progress)(void *ctx, double share); /* false ends the work; NULL: none */
	void *ctx;
};

/* Fills rows [gguf_n_tensors(in)]. INVALID: type unknown; a rule that meets no tensor it could change; a quantised source
 * without `requantize`. FORMAT: importance of another model. */
int quant_plan(const struct quant_job *job, struct quant_row *rows, struct error *e);
/* Writes the file; rows' errors are filled. INVALID: values that the type cannot hold; CANCELLED; IO; NOMEM. In all these
 * cases nothing is left and what stood at `path` is as it was. */
int quant_run(const struct quant_job *job, struct quant_row *rows, const char *path, struct error *e);

const char *quant_reason_text(enum quant_reason r);
bool quant_type_known(const char *type); /* type or mix */
const char *quant_type_list(void);	 /* for messages */
#endif
