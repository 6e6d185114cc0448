/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary: texts, types and scores as the file has them, and a hash table from text to id. The texts stay in
 * the mapped file. The hash is keyed with random bits, so that no file can be built to collide, and 40 of its bits stand
 * beside each id. No two texts of a table agree in them and meet: else another key is taken. So a text that is known to
 * be a token is found without looking at any text, which is what makes loading half a million merges quick.
 */
#include "engine/tokenizer_priv.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { ID_BITS = 24, MAX_KEYS_TRIED = 8 };

static uint64_t load64(const char *s)
{
	uint64_t w;

	memcpy(&w, s, sizeof w);
	return w;
}

static uint64_t load32(const char *s)
{
	uint32_t w;

	memcpy(&w, s, sizeof w);
	return w;
}

/* Up to 8 bytes as one word; with the length, which the hash takes in too, it tells all of them apart. */
static uint64_t load_tail(const char *s, size_t len)
{
	if (len >= 4)
		return load32(s) | load32(s + len - 4) << 32;
	return len ? (uint64_t)(uint8_t)s[0] | (uint64_t)(uint8_t)s[len / 2] << 8 |
			(uint64_t)(uint8_t)s[len - 1] << 16
		   : 0;
}

static uint64_t hash(uint64_t seed, const char *s, size_t len)
{
	static const uint64_t odd1 = 0x9e3779b97f4a7c15u, odd2 = 0xd6e8feb86659fd93u;
	uint64_t h = vocab_mix(seed ^ len, odd1);

	for (; len > 8; s += 8, len -= 8)
		h = vocab_mix(h ^ load64(s), seed ^ odd2);
	return vocab_mix(vocab_mix(h ^ load_tail(s, len), seed ^ odd1), odd2);
}

static uint64_t slot_of(uint64_t h, uint32_t id) { return h >> ID_BITS << ID_BITS | (id + 1); }
static uint32_t slot_id(uint64_t slot) { return (uint32_t)(slot & ((1u << ID_BITS) - 1)) - 1; }
static bool slot_matches(uint64_t slot, uint64_t h) { return slot >> ID_BITS == h >> ID_BITS; }

static bool same_text(struct gguf_str a, const char *s, size_t len)
{
	return a.len == len && !memcmp(a.s, s, len);
}

/* The only token that s can be, or -1. */
static int32_t find_candidate(const struct vocab *v, const char *s, size_t len)
{
	uint64_t h;

	if (len > v->longest_bytes)
		return -1;
	h = hash(v->seed, s, len);
	for (uint32_t i = (uint32_t)h & v->mask; v->slot[i]; i = (i + 1) & v->mask)
		if (slot_matches(v->slot[i], h))
			return (int32_t)slot_id(v->slot[i]);
	return -1;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t len)
{
	int32_t id = find_candidate(v, s, len);

	return id >= 0 && same_text(v->text[id], s, len) ? id : -1;
}

static bool is_text(const struct vocab *v, int32_t id)
{
	return v->type[id] == TOKEN_NORMAL || v->type[id] == TOKEN_USER || v->type[id] == TOKEN_UNUSED;
}

int32_t vocab_find_text(const struct vocab *v, const char *s, size_t len)
{
	int32_t id = vocab_find(v, s, len);

	return id >= 0 && is_text(v, id) ? id : -1;
}

int32_t vocab_find_known(const struct vocab *v, const char *s, size_t len)
{
	int32_t id = find_candidate(v, s, len);

	return id >= 0 && is_text(v, id) ? id : -1;
}

float vocab_score(const struct vocab *v, int32_t id)
{
	float f;

	memcpy(&f, v->scores + (size_t)id * sizeof f, sizeof f);
	return f;
}

int vocab_byte_value(struct gguf_str t)
{
	static const char digits[] = "0123456789ABCDEF";
	const char *hi, *lo;

	if (t.len != 6 || memcmp(t.s, "<0x", 3) || t.s[5] != '>')
		return -1;
	hi = memchr(digits, t.s[3], 16);
	lo = memchr(digits, t.s[4], 16);
	return hi && lo ? (int)((hi - digits) * 16 + (lo - digits)) : -1;
}

void vocab_byte_tokens(const struct vocab *v, int32_t *out)
{
	for (int b = 0; b < 256; b++) {
		char name[8];

		(void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
		out[b] = vocab_find(v, name, 6);
		if (out[b] >= 0 && v->type[out[b]] != TOKEN_BYTE)
			out[b] = -1;
	}
}

/* ---- loading ----------------------------------------------------------------------------------------- */

/* False: another text has the same 40 bits and lies in the way. */
static bool insert(struct vocab *v, uint32_t id)
{
	struct gguf_str t = v->text[id];
	uint64_t h = hash(v->seed, t.s, t.len);
	uint32_t i = (uint32_t)h & v->mask;

	for (; v->slot[i]; i = (i + 1) & v->mask) {
		uint32_t other = slot_id(v->slot[i]);

		if (!slot_matches(v->slot[i], h))
			continue;
		if (!same_text(v->text[other], t.s, t.len))
			return false;
		if (v->type[id] == TOKEN_NORMAL && v->type[other] != TOKEN_NORMAL)
			v->slot[i] = slot_of(h, id);
		return true;
	}
	v->slot[i] = slot_of(h, id);
	return true;
}

static bool insert_all(struct vocab *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (!insert(v, i))
			return false;
	return true;
}

static int index_texts(struct vocab *v, struct error *e)
{
	uint32_t size = 16;

	while (size < v->n * 2)
		size *= 2;
	v->mask = size - 1;
	for (int i = 0; i < MAX_KEYS_TRIED; i++) {
		mem_free(v->slot);
		v->slot = mem_zalloc(MEM_TOKENIZER, size, sizeof *v->slot);
		if (!v->slot)
			return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for %u tokens", v->n);
		if (getrandom(&v->seed, sizeof v->seed, 0) != (ssize_t)sizeof v->seed)
			return error_set(e, TENON_E_IO, "tokenizer: no random number for its hash table");
		if (insert_all(v))
			return TENON_OK;
	}
	return error_set(e, TENON_E_INTERNAL,
		"tokenizer: its hash table cannot be built; please report the model file");
}

static int load_texts(struct vocab *v, const struct gguf *g, struct error *e)
{
	static const char key[] = "tokenizer.ggml.tokens";
	struct gguf_array a;
	int rc = gguf_get_array(g, key, &a, e);

	if (rc)
		return rc;
	if (a.kind != GGUF_STRING || !a.n || a.n > TOKENIZER_MAX_VOCAB)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": it is not a list of 1 to %d strings; take another file", key,
			TOKENIZER_MAX_VOCAB);
	v->text = a.strs;
	v->n = (uint32_t)a.n;
	for (uint32_t i = 0; i < v->n; i++) {
		if (v->text[i].len > TOKENIZER_MAX_TOKEN_BYTES)
			return error_set(e, TENON_E_FORMAT,
				"key \"%s\": token %u is longer than %d bytes; take another file", key, i,
				TOKENIZER_MAX_TOKEN_BYTES);
		v->longest_bytes = MAX_OF(v->longest_bytes, v->text[i].len);
	}
	return TENON_OK;
}

static int load_types(struct vocab *v, const struct gguf *g, struct error *e)
{
	static const char key[] = "tokenizer.ggml.token_type";
	struct gguf_array a;
	int rc;

	v->type = mem_alloc(MEM_TOKENIZER, v->n);
	if (!v->type)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for %u tokens", v->n);
	memset(v->type, TOKEN_NORMAL, v->n);
	if (!gguf_has(g, key))
		return TENON_OK;
	rc = gguf_get_array(g, key, &a, e);
	if (rc)
		return rc;
	if ((a.kind != GGUF_I32 && a.kind != GGUF_U32) || a.n != v->n)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": it is not one integer for each token; take another file", key);
	for (uint32_t i = 0; i < v->n; i++) {
		int64_t type = gguf_array_i64(&a, i);

		if (type < 0 || type > TOKEN_BYTE)
			return error_set(e, TENON_E_FORMAT,
				"key \"%s\": token %u has the unknown type %lld; take another file", key, i,
				(long long)type);
		v->type[i] = type ? (uint8_t)type : TOKEN_NORMAL;
	}
	return TENON_OK;
}

static int load_scores(struct vocab *v, const struct gguf *g, struct error *e)
{
	static const char key[] = "tokenizer.ggml.scores";
	struct gguf_array a;
	int rc;

	if (!gguf_has(g, key))
		return TENON_OK;
	rc = gguf_get_array(g, key, &a, e);
	if (rc)
		return rc;
	if (a.kind != GGUF_F32 || a.n != v->n)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": it is not one f32 for each token; take another file", key);
	v->scores = a.data;
	return TENON_OK;
}

/* An id under `key`; else that of the control token `text`; else -1. */
static int load_id(const struct vocab *v, const struct gguf *g, const char *key, const char *text,
	int32_t *out, struct error *e)
{
	uint64_t id;
	int rc;

	*out = -1;
	if (!gguf_has(g, key)) {
		int32_t found = text ? vocab_find(v, text, strlen(text)) : -1;

		if (found >= 0 && v->type[found] != TOKEN_NORMAL)
			*out = found;
		return TENON_OK;
	}
	rc = gguf_get_u64(g, key, &id, e);
	if (rc)
		return rc;
	if (id == UINT32_MAX) /* how some writers say "none" */
		return TENON_OK;
	if (id >= v->n)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": %llu is not below the number of tokens, %u; take another file", key,
			(unsigned long long)id, v->n);
	*out = (int32_t)id;
	return TENON_OK;
}

static int load_ids(struct vocab *v, const struct gguf *g, struct error *e)
{
	bool cls = gguf_has(g, "tokenizer.ggml.cls_token_id");
	const char *sep = gguf_has(g, "tokenizer.ggml.separator_token_id")
		? "tokenizer.ggml.separator_token_id"
		: "tokenizer.ggml.seperator_token_id";
	int rc = load_id(v, g, cls ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id",
		cls ? NULL : "<s>", &v->bos, e);

	if (!rc)
		rc = load_id(
			v, g, cls ? sep : "tokenizer.ggml.eos_token_id", cls ? "[SEP]" : "</s>", &v->eos, e);
	return rc ? rc : load_id(v, g, "tokenizer.ggml.unknown_token_id", "<unk>", &v->unk, e);
}

int vocab_load(struct vocab *v, const struct gguf *g, struct error *e)
{
	int rc = load_texts(v, g, e);

	if (!rc)
		rc = load_types(v, g, e);
	if (!rc)
		rc = load_scores(v, g, e);
	if (!rc)
		rc = index_texts(v, e);
	return rc ? rc : load_ids(v, g, e);
}

void vocab_finish(struct vocab *v)
{
	MEM_CLEAR(v->type);
	MEM_CLEAR(v->slot);
}
