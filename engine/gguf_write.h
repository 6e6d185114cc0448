/* SPDX-License-Identifier: Apache-2.0
 * Writes a GGUF v3 file: keys, then the table of tensors, then their data in order. What is written has no name until
 * gguf_write_commit gives it the wanted one in a single step, so nothing half-written can be found under it, whatever
 * happens in between. Use: create, keys and tensors, begin, data, commit; destroy in any case. Owner: one thread.
 */
#ifndef ENGINE_GGUF_WRITE_H
#define ENGINE_GGUF_WRITE_H
#include "engine/gguf.h"

struct gguf_write;

int gguf_write_create(const char *path, struct gguf_write **out, struct error *e);
void gguf_write_destroy(struct gguf_write *w); /* without a commit: leaves nothing */

/* Faults (no memory) stick and are told by begin. A key that is already there is left as it is. */
void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t v);
void gguf_write_str(struct gguf_write *w, const char *key, const char *v);
/* All keys of a file; data then lies as that file aligns it. */
void gguf_write_keys(struct gguf_write *w, const struct gguf *from);
/* dim: [rank], outermost first. */
void gguf_write_tensor(
	struct gguf_write *w, struct gguf_str name, uint32_t type, uint32_t rank, const uint64_t *dim);

/* Writes the header and takes the room for the whole file. IO (disk full, no permission), NOMEM, INVALID. */
int gguf_write_begin(struct gguf_write *w, struct error *e);
uint64_t gguf_write_bytes(const struct gguf_write *w); /* of the whole file; after begin */
/* The next bytes of the tensors' data, in the order of the table; padding is put between by itself. */
int gguf_write_data(struct gguf_write *w, const void *data, size_t bytes, struct error *e);
/* To the disk, then under its name, in place of what was there. INVALID if data is missing. */
int gguf_write_commit(struct gguf_write *w, struct error *e);
#endif
