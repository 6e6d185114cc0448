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
#endif
