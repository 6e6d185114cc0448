/* SPDX-License-Identifier: Apache-2.0
 * Keys, tensor table and data grow in three buffers and are joined at the end. A failed append sticks in its
 * buffer, so gguf_make_finish reports it once.
 */
#include "tests/unit/gguf_make.h"
#include <string.h>

static void put_u32(struct buf *b, uint32_t v) { (void)buf_append(b, &v, sizeof v); }
static void put_u64(struct buf *b, uint64_t v) { (void)buf_append(b, &v, sizeof v); }

static void put_str(struct buf *b, const char *s, size_t len)
{
	put_u64(b, len);
	(void)buf_append(b, s, len);
}

static void put_zeros(struct buf *b, size_t n)
{
	while (n--)
		(void)buf_putc(b, 0);
}

static void pad(struct buf *b, size_t align) { put_zeros(b, (align - b->len % align) % align); }

static void begin_key(struct gguf_make *m, const char *key, enum gguf_kind kind)
{
	put_str(&m->keys, key, strlen(key));
	put_u32(&m->keys, kind);
	m->n_keys++;
}

void gguf_make_init(struct gguf_make *m)
{
	memset(m, 0, sizeof *m);
	m->version = 3;
	m->align = 32;
	buf_init(&m->keys, MEM_TOOL, 0);
	buf_init(&m->tensors, MEM_TOOL, 0);
	buf_init(&m->data, MEM_TOOL, 0);
	buf_init(&m->file, MEM_TOOL, 0);
}

void gguf_make_free(struct gguf_make *m)
{
	buf_finish(&m->keys);
	buf_finish(&m->tensors);
	buf_finish(&m->data);
	buf_finish(&m->file);
}

void gguf_make_scalar(struct gguf_make *m, const char *key, enum gguf_kind kind, const void *v, size_t bytes)
{
	begin_key(m, key, kind);
	(void)buf_append(&m->keys, v, bytes);
}

void gguf_make_u32(struct gguf_make *m, const char *key, uint32_t v)
{
	gguf_make_scalar(m, key, GGUF_U32, &v, sizeof v);
}

void gguf_make_f32(struct gguf_make *m, const char *key, float v)
{
	gguf_make_scalar(m, key, GGUF_F32, &v, sizeof v);
}

void gguf_make_bool(struct gguf_make *m, const char *key, bool v)
{
	gguf_make_scalar(m, key, GGUF_BOOL, &(uint8_t){ v }, 1);
}

void gguf_make_str(struct gguf_make *m, const char *key, const char *v)
{
	begin_key(m, key, GGUF_STRING);
	put_str(&m->keys, v, strlen(v));
}

void gguf_make_strs(struct gguf_make *m, const char *key, const struct gguf_str *v, size_t n)
{
	begin_key(m, key, GGUF_ARRAY);
	put_u32(&m->keys, GGUF_STRING);
	put_u64(&m->keys, n);
	for (size_t i = 0; i < n; i++)
		put_str(&m->keys, v[i].s, v[i].len);
}

void gguf_make_array(
	struct gguf_make *m, const char *key, enum gguf_kind kind, const void *v, size_t n, size_t bytes)
{
	begin_key(m, key, GGUF_ARRAY);
	put_u32(&m->keys, kind);
	put_u64(&m->keys, n);
	(void)buf_append(&m->keys, v, bytes);
}

void gguf_make_tensor_at(struct gguf_make *m, const char *name, uint32_t type, uint32_t rank,
	const uint64_t *dim, uint64_t offset)
{
	put_str(&m->tensors, name, strlen(name));
	put_u32(&m->tensors, rank);
	for (uint32_t i = rank; i-- > 0;)
		put_u64(&m->tensors, dim[i]);
	put_u32(&m->tensors, type);
	put_u64(&m->tensors, offset);
	m->n_tensors++;
}

void gguf_make_tensor(struct gguf_make *m, const char *name, uint32_t type, uint32_t rank,
	const uint64_t *dim, const void *data, size_t bytes)
{
	pad(&m->data, m->align);
	gguf_make_tensor_at(m, name, type, rank, dim, m->data.len);
	if (data)
		(void)buf_append(&m->data, data, bytes);
	else
		put_zeros(&m->data, bytes);
}

bool gguf_make_finish(struct gguf_make *m)
{
	buf_clear(&m->file);
	(void)buf_puts(&m->file, "GGUF");
	put_u32(&m->file, m->version);
	put_u64(&m->file, m->n_tensors);
	put_u64(&m->file, m->n_keys);
	(void)buf_append(&m->file, m->keys.data, m->keys.len);
	(void)buf_append(&m->file, m->tensors.data, m->tensors.len);
	pad(&m->file, m->align);
	(void)buf_append(&m->file, m->data.data, m->data.len);
	return !m->keys.failed && !m->tensors.failed && !m->data.failed && !m->file.failed;
}
