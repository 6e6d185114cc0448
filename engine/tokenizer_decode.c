/* SPDX-License-Identifier: Apache-2.0
 * Ids back to bytes. A token's text means bytes in the way of its model: byte-level characters, U+2581 for spaces,
 * byte tokens, or words and their continuations; special tokens mean their text as it stands.
 */
#include "engine/tokenizer_priv.h"
#include <string.h>

static int check_id(const struct tokenizer *t, int32_t id, struct error *e)
{
	return id >= 0 && (uint32_t)id < t->v.n
		? TENON_OK
		: error_set(e, TENON_E_INVALID,
			  "token id %d: not below the vocabulary's size, %u; give ids of this model", id,
			  t->v.n);
}

static bool is_literal(const struct tokenizer *t, int32_t id)
{
	return t->v.type[id] == TOKEN_CONTROL || t->v.type[id] == TOKEN_UNKNOWN ||
		(t->v.type[id] == TOKEN_USER && (t->model == MODEL_BYTES || t->model == MODEL_TEXT));
}

/* Characters that stand for bytes; a text with any other character means itself. */
static void put_bytes(struct gguf_str s, struct buf *out)
{
	size_t start = out->len;

	if (!buf_reserve(out, s.len))
		return;
	for (size_t i = 0, n; i < s.len; i += n) {
		uint32_t cp = 0;
		int byte;

		n = utf8_decode(s.s + i, s.len - i, &cp);
		byte = n ? unicode_cp_to_byte(cp) : -1;
		if (byte < 0) {
			out->len = start;
			(void)buf_append(out, s.s, s.len);
			return;
		}
		(void)buf_putc(out, (char)byte);
	}
}

static void put_unescaped(struct gguf_str s, struct buf *out)
{
	for (size_t i = 0; i < s.len;) {
		bool space = s.len - i >= 3 && !memcmp(s.s + i, U2581, 3);

		(void)buf_putc(out, space ? ' ' : s.s[i]);
		i += space ? 3 : 1;
	}
}

/* The token as it stands in the middle of a text. */
static void put_token(const struct tokenizer *t, int32_t id, struct buf *out)
{
	struct gguf_str s = t->v.text[id];
	int byte = t->v.type[id] == TOKEN_BYTE ? vocab_byte_value(s) : -1;

	if (byte >= 0)
		(void)buf_putc(out, (char)byte);
	else if (is_literal(t, id))
		(void)buf_append(out, s.s, s.len);
	else if (t->model == MODEL_BYTES)
		put_bytes(s, out);
	else
		put_unescaped(s, out);
}

/* WordPiece: a word's first part has a space in front unless it begins the text; spaces before punctuation and
 * English endings are taken back. */
static void put_word(const struct tokenizer *t, int32_t id, bool first, struct buf *out)
{
	static const char *const tight[] = { ".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re" };
	struct gguf_str s = t->v.text[id];
	bool begins = s.len >= 3 && !memcmp(s.s, U2581, 3);

	if (begins)
		s = (struct gguf_str){ s.s + 3, s.len - 3 };
	if (!first && (begins || is_literal(t, id))) {
		bool space = true;

		for (size_t i = 0; i < COUNT_OF(tight); i++)
			space = space &&
				(s.len < strlen(tight[i]) || memcmp(s.s, tight[i], strlen(tight[i])));
		if (space)
			(void)buf_putc(out, ' ');
	}
	(void)buf_append(out, s.s, s.len);
}

/* `first`: the token begins a stretch that had a dummy prefix when it was encoded. */
static void put(const struct tokenizer *t, int32_t id, bool first, struct buf *out)
{
	size_t start = out->len;

	if (t->model == MODEL_WORDPIECE) {
		put_word(t, id, first, out);
		return;
	}
	put_token(t, id, out);
	if (first && t->dummy_prefix && !is_literal(t, id) && t->v.type[id] != TOKEN_BYTE &&
		out->len > start && out->data[start] == ' ') {
		memmove(out->data + start, out->data + start + 1, out->len - start);
		out->len--;
	}
}

static int finish(struct buf *out, size_t start, struct error *e)
{
	if (!out->failed)
		return TENON_OK;
	out->len = MIN_OF(out->len, start);
	return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for the text, or it is over its limit");
}

int tokenizer_decode(
	const struct tokenizer *t, const int32_t *ids, size_t n, struct buf *out, struct error *e)
{
	size_t start = out->len;
	bool first = true;

	for (size_t i = 0; i < n; i++) {
		int rc = check_id(t, ids[i], e);

		if (rc)
			return rc;
	}
	for (size_t i = 0; i < n; i++) {
		put(t, ids[i], first, out);
		first = t->model != MODEL_WORDPIECE && t->v.type[ids[i]] == TOKEN_CONTROL;
	}
	return finish(out, start, e);
}

int tokenizer_piece(
	const struct tokenizer *t, int32_t id, bool first, bool special, struct buf *out, struct error *e)
{
	size_t start = out->len;
	int rc = check_id(t, id, e);

	if (rc || (t->v.type[id] == TOKEN_CONTROL && !special))
		return rc;
	put(t, id, first, out);
	return finish(out, start, e);
}
