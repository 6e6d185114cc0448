/* SPDX-License-Identifier: Apache-2.0
 * A tiny GGUF writer for tests: builds a file in memory, key by key and tensor by tensor, and can be told to write
 * nonsense. Use: gguf_make_init, keys and tensors in any order, gguf_make_finish, then `file` holds the bytes.
 */
#ifndef TESTS_GGUF_MAKE_H
#define TESTS_GGUF_MAKE_H
#include "base/buf.h"
#include "engine/gguf.h"

struct gguf_make {
	struct buf keys, tensors, data, file;
	uint64_t n_keys, n_tensors;
	uint32_t version, align;
};

void gguf_make_init(struct gguf_make *m); /* version 3, alignment 32 */
void gguf_make_free(struct gguf_make *m);

void gguf_make_u32(struct gguf_make *m, const char *key, uint32_t v);
void gguf_make_f32(struct gguf_make *m, const char *key, float v);
void gguf_make_bool(struct gguf_make *m, const char *key, bool v);
void gguf_make_str(struct gguf_make *m, const char *key, const char *v);
void gguf_make_strs(struct gguf_make *m, const char *key, const struct gguf_str *v, size_t n);
/* Any scalar, or an array of scalars, from its bytes. */
void gguf_make_scalar(struct gguf_make *m, const char *key, enum gguf_kind kind, const void *v, size_t bytes);
void gguf_make_array(struct gguf_make *m, const char *key, enum gguf_kind kind, const void *v, size_t n, size_t bytes);

/* dim: [rank], outermost first. NULL data: zeros. */
void gguf_make_tensor(struct gguf_make *m, const char *name, uint32_t type, uint32_t rank, const uint64_t *dim,
	const void *data, size_t bytes);
/* A line of the tensor table with an offset of the caller's choice and no data. */
void gguf_make_tensor_at(struct gguf_make *m, const char *name, uint32_t type, uint32_t rank, const uint64_t *dim,
	uint64_t offset);

bool gguf_make_finish(struct gguf_make *m); /* false: out of memory */
#endif
