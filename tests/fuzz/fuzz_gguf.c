/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a GGUF file. Either it is refused with a code and a text, or every getter answers and
 * everything it returns lies inside the bytes.
 */
#include "base/checked.h"
#include "engine/gguf.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sink; /* keeps the reads below from being dropped */

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void touch_str(struct gguf_str s)
{
	for (size_t i = 0; i < s.len; i++)
		sink += (uint8_t)s.s[i];
}

static void touch_array(const struct gguf_array *a)
{
	for (uint64_t i = 0; i < a->n; i++)
		if (a->kind == GGUF_STRING)
			touch_str(a->strs[i]);
		else
			sink += (uint64_t)gguf_array_i64(a, i) + (gguf_array_f64(a, i) > 0);
}

static void touch_key(const struct gguf *g, struct gguf_str key, enum gguf_kind kind)
{
	char name[256];
	struct gguf_array a;
	struct gguf_str s;
	uint64_t u;
	double d;
	bool b;

	touch_str(key);
	if (key.len >= sizeof name || memchr(key.s, 0, key.len))
		return;
	memcpy(name, key.s, key.len);
	name[key.len] = 0;
	must(gguf_has(g, name));
	must(!gguf_get_str(g, name, &s, NULL) == (kind == GGUF_STRING));
	must(!gguf_get_array(g, name, &a, NULL) == (kind == GGUF_ARRAY));
	must(!gguf_get_bool(g, name, &b, NULL) == (kind == GGUF_BOOL));
	if (kind == GGUF_STRING)
		touch_str(s);
	if (kind == GGUF_ARRAY)
		touch_array(&a);
	if (!gguf_get_u64(g, name, &u, NULL))
		sink += u;
	if (!gguf_get_f64(g, name, &d, NULL))
		sink += d > 0;
}

static void touch_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
	uint64_t bytes, n = 1;
	const uint8_t *map = gguf_map(g, &bytes);
	uint32_t elements, block;

	must(t->rank >= 1 && t->rank <= 4 && gguf_type_block(t->type, &elements, &block) &&
		gguf_type_name(t->type));
	for (int i = 0; i < 4; i++)
		must(t->dim[i] >= 1 && checked_mul_u64(n, t->dim[i], &n));
	must(n % elements == 0 && t->bytes == n / elements * block &&
		checked_range(t->offset, t->bytes, bytes));
	sink += map[t->offset] + map[t->offset + t->bytes - 1];
	touch_str(t->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error e = { 0 };
	struct gguf *g = NULL;
	enum gguf_kind kind;
	int rc = gguf_open_memory(data, size, &g, &e);

	if (rc) {
		must(rc < 0 && e.code == rc && e.text[0] && !g);
		return 0;
	}
	sink += gguf_digest(g)[0];
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		struct gguf_str key = gguf_key_at(g, i, &kind);

		touch_key(g, key, kind);
	}
	for (size_t i = 0; i < gguf_n_tensors(g); i++)
		touch_tensor(g, gguf_tensor_at(g, i));
	gguf_close(g);
	return 0;
}
