/* SPDX-License-Identifier: Apache-2.0
 * Importance of a model's weight columns: the mean squared activation that each column of a matrix multiplies, measured
 * over a text (tenon calibrate). The file is a GGUF file (docs/quantize.md): key `general.type` = "importance",
 * `tenon.importance.version` = 1, and for each matrix an F32 vector of its columns under the matrix's name. It is read as
 * hostile: shape, type, signs and finiteness are checked. Owner: one thread; reading from several is fine.
 */
#ifndef ENGINE_IMPORTANCE_H
#define ENGINE_IMPORTANCE_H
#include "engine/gguf.h"

#define IMPORTANCE_VERSION 1

struct importance;
/* IO, FORMAT (names what is wrong), UNSUPPORTED (another version). */
int importance_open(const char *path, struct importance **out, struct error *e);
void importance_close(struct importance *i);
size_t importance_n(const struct importance *i);

/* Weights of an encoder for matrix `t`: [columns] in `out`, mean 1, none of them quite 0, since a short text says too
 * little to give a column up. NOT_FOUND: the file has none for it; FORMAT: it has another number of columns. */
int importance_weights(const struct importance *i, const struct gguf_tensor *t, float *out, struct error *e);

struct importance_row { /* what calibration found */
	struct gguf_str name;
	uint64_t n_columns;
	const float *mean_square;
};
/* Writes a file, whole or not at all. Errors of gguf_write. */
int importance_write(const char *path, const char *model, uint64_t n_tokens,
	const struct importance_row *rows, size_t n, struct error *e);
/* Whether it could begin to, asked before long work; leaves nothing. */
int importance_can_write(const char *path, struct error *e);
#endif
