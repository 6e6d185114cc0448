/* SPDX-License-Identifier: Apache-2.0
 * Texts that commands work on: a file, or standard input.
 */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H
#include "engine/model.h"

enum { TEXT_LIMIT_BYTES = 1 << 30 };

/* Appends the file's bytes ("-": standard input) to a buffer of that limit. NOT_FOUND, IO, TOO_LONG; CANCELLED after
 * Ctrl-C. */
int text_read(const char *path, struct buf *b, struct error *e);
/* The tokens of such a file. Errors of text_read and of model_tokens_from_text. */
int text_tokens(const struct model *m, const char *path, struct tokens *out, struct error *e);

/* For encoders, which take a text whole: each line is one. */
struct texts {		  /* zero-initialise */
	struct tokens *t; /* [n] */
	size_t n, room;
	uint64_t n_tokens;
};
/* Lines of s[0, len) that have tokens, too long ones cut, until there are `most_tokens`, but one at least. INVALID: no
 * line has tokens; NOMEM. */
int texts_from(const struct model *m, const char *s, size_t len, uint64_t most_tokens, struct texts *out,
	struct error *e);
int texts_read(
	const struct model *m, const char *path, uint64_t most_tokens, struct texts *out, struct error *e);
void texts_finish(struct texts *t);
/* A text longer than the context becomes its first tokens; what the tokenizer puts behind a text stays there. */
void text_cut(const struct model *m, struct tokens *ids);
#endif
