/* SPDX-License-Identifier: Apache-2.0
 * GGUF v2/v3 files (format: ggml's docs/gguf.md), mapped read-only and treated as hostile: every count, length,
 * offset and product is checked before use, so whatever a getter returns lies inside the map. Limits: 65,536
 * keys, 65,536 tensors, rank 1..4, dimensions >= 1, strings <= 1 MiB, arrays <= the bytes left, nesting 1,
 * alignment a power of two 8..65,536, no duplicate keys or tensor names, tensors ascending and disjoint.
 * Owner: whoever opened it. Reading from several threads is fine. A file that shrinks under the map raises
 * SIGBUS in the worker; the daemon replaces it.
 */
#ifndef ENGINE_GGUF_H
#define ENGINE_GGUF_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

enum gguf_kind { /* value types, numbered as in the file */
	GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
	GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_N_KINDS
};

struct gguf_str { /* borrowed from the map, not terminated */
	const char *s;
	size_t len;
};

/* A name from a file as it may stand in a message: short and printable. */
struct gguf_shown {
	char s[72];
};
struct gguf_shown gguf_show(struct gguf_str n);

struct gguf_array {
	enum gguf_kind kind;         /* of the elements, never GGUF_ARRAY            */
	uint64_t n;
	const uint8_t *data;         /* packed scalars, unaligned (strings: use gguf_str_at) */
	const struct gguf_str *strs; /* [n] when kind is GGUF_STRING                 */
};

struct gguf_tensor {
	struct gguf_str name;
	uint32_t type;      /* TNP_F32 ... ; a number outside the table is refused at open */
	uint32_t rank;
	uint64_t dim[4];    /* outermost first (GGUF stores innermost first); 1 beyond rank */
	uint64_t offset;    /* from the start of the file */
	uint64_t bytes;
};

/* Errors: IO, FORMAT (names key or tensor and byte position), UNSUPPORTED (tensor type: names both), NOMEM. */
int gguf_open(const char *path, struct gguf **out, struct error *e);
/* Parses bytes that the caller keeps alive; for tests and fuzzing. gguf_map then returns `data`. */
int gguf_open_memory(const void *data, size_t len, struct gguf **out, struct error *e);
void gguf_close(struct gguf *g);

/* OK while the file still has the size and modification time it had when it was opened, else FORMAT. */
int gguf_check_unchanged(const struct gguf *g, struct error *e);

const void *gguf_map(const struct gguf *g, uint64_t *bytes); /* the whole file */
void gguf_forget(const struct gguf *g); /* drops the map's resident pages; touching one brings it back from the file */
int gguf_fd(const struct gguf *g);                           /* -1 for memory  */
const char *gguf_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
const uint8_t *gguf_digest(const struct gguf *g); /* [32] BLAKE2b over header, tensor table and a sample of each tensor: identifies the model for caches */

/* Keys. Getters are type-checked: NOT_FOUND if absent, FORMAT (naming key and type) on a wrong type or range. */
size_t gguf_n_keys(const struct gguf *g);
struct gguf_str gguf_key_at(const struct gguf *g, size_t i, enum gguf_kind *kind);
/* The key as it lies in the file: length and name, kind, value. For writing it to another file. */
const void *gguf_key_bytes(const struct gguf *g, size_t i, size_t *len);
bool gguf_has(const struct gguf *g, const char *key);
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct error *e); /* any integer kind, >= 0 */
int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *e);   /* any number kind; finite */
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *e);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct error *e);
int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out, struct error *e);
int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i); /* integer kinds; i < n is the caller's */
double gguf_array_f64(const struct gguf_array *a, uint64_t i);  /* number kinds */

/* Tensors. */
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* NULL if absent */

/* Element types (TNP_*): elements and bytes of a block; false for a type that Tenon does not know. */
bool gguf_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes);
const char *gguf_type_name(uint32_t type); /* "Q4_1"; "type 37" has no name: NULL */
#endif
