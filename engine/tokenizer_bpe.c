/* SPDX-License-Identifier: Apache-2.0
 * BPE by merge list, in two dresses: over bytes written as printable characters, after the pre-tokenizer ("gpt2"); and
 * over characters with U+2581 for space, falling back to byte tokens, in one go ("gemma4").
 */
#include "engine/tokenizer_priv.h"
#include <string.h>

int encoder_push(struct encoder *x, int32_t id)
{
	return tokens_push(x->out, id) ? encoder_no_memory(x) : TENON_OK;
}

static int push_symbols(struct encoder *x)
{
	for (uint32_t i = x->n_symbols ? 0 : UINT32_MAX; i != UINT32_MAX; i = x->symbol[i].next) {
		int rc = encoder_push(x, x->symbol[i].id);

		if (rc)
			return rc;
	}
	return TENON_OK;
}

/* A byte that the vocabulary lacks goes before merging, so its neighbours meet. */
static int merge_bytes(struct encoder *x, const char *s, size_t len)
{
	int rc;

	x->n_symbols = 0;
	for (size_t i = 0; i < len; i++) {
		int32_t id = x->t->byte_token[(uint8_t)s[i]];

		if (id >= 0 && !encoder_add_symbol(x, (uint32_t)i, 1, id))
			return encoder_no_memory(x);
	}
	rc = merge_by_rank(x, &x->t->merges);
	return rc ? rc : push_symbols(x);
}

/* The token that is the whole piece, or -1. */
static int32_t whole_piece(struct encoder *x, const char *s, size_t len)
{
	if (len > x->t->v.longest_bytes)
		return -1;
	buf_clear(&x->word);
	for (size_t i = 0; i < len; i++) {
		char c[4];

		(void)buf_append(&x->word, c, utf8_encode(unicode_byte_to_cp((uint8_t)s[i]), c));
	}
	return x->word.failed ? -1 : vocab_find_text(&x->t->v, x->word.data, x->word.len);
}

static int encode_piece(struct encoder *x, const char *s, size_t len)
{
	int32_t id = x->t->traits.whole_first ? whole_piece(x, s, len) : -1;

	return id >= 0 ? encoder_push(x, id) : merge_bytes(x, s, len);
}

/* Among the characters that stand for bytes these are numbers: 0-9 and the bytes of the Latin-1 fractions and powers. */
static bool is_digit_byte(uint8_t b)
{
	return (b >= '0' && b <= '9') || b == 0xb2 || b == 0xb3 || b == 0xb9 || (b >= 0xbc && b <= 0xbe);
}

static bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

/* Cuts a run of digit bytes at each three ASCII digits in a row. */
static int encode_digits(struct encoder *x, const char *s, size_t len)
{
	size_t from = 0;
	int rc = TENON_OK;

	for (size_t i = 0; i + 3 <= len && !rc;) {
		if (!is_ascii_digit(s[i]) || !is_ascii_digit(s[i + 1]) || !is_ascii_digit(s[i + 2])) {
			i++;
			continue;
		}
		if (i > from)
			rc = encode_piece(x, s + from, i - from);
		if (!rc)
			rc = encode_piece(x, s + i, 3);
		from = i += 3;
	}
	return rc || from == len ? rc : encode_piece(x, s + from, len - from);
}

static int split_digits(struct encoder *x, const char *s, size_t len)
{
	int rc = TENON_OK;

	for (size_t i = 0, end; i < len && !rc; i = end) {
		bool digits = is_digit_byte((uint8_t)s[i]);

		for (end = i + 1; end < len && is_digit_byte((uint8_t)s[end]) == digits;)
			end++;
		rc = digits ? encode_digits(x, s + i, end - i) : encode_piece(x, s + i, end - i);
	}
	return rc;
}

static int on_piece(void *ctx, const char *s, size_t len)
{
	struct encoder *x = ctx;

	return x->t->traits.splits_digits ? split_digits(x, s, len) : encode_piece(x, s, len);
}

int bpe_encode_bytes(struct encoder *x, const char *s, size_t len)
{
	const struct tokenizer *t = x->t;

	if (t->traits.nfc) {
		int rc;

		buf_clear(&x->text);
		rc = unicode_nfc(s, len, &x->text, x->e);
		if (rc)
			return rc;
		s = x->text.data;
		len = x->text.len;
	}
	return pre_split(t->pre, &x->pre, s, len, on_piece, x, x->e);
}

/* ---- over characters --------------------------------------------------------------------------------- */

/* Adds a character that has no token as the tokens of its bytes; else as one unknown token for a whole run. */
static bool add_unknown(struct encoder *x, const char *s, uint32_t off, uint32_t len)
{
	const int32_t *byte_token = x->t->byte_token;
	bool all = true;

	for (uint32_t i = 0; i < len; i++)
		all = all && byte_token[(uint8_t)s[off + i]] >= 0;
	if (!all) {
		bool again = x->unknown_last;

		x->unknown_last = true;
		return again || x->t->v.unk < 0 || encoder_add_symbol(x, off, len, x->t->v.unk);
	}
	x->unknown_last = false;
	for (uint32_t i = 0; i < len; i++)
		if (!encoder_add_symbol(x, off + i, 1, byte_token[(uint8_t)s[off + i]]))
			return false;
	return true;
}

static int encode_word(struct encoder *x, const char *s, size_t len)
{
	int rc;

	x->n_symbols = 0;
	for (size_t i = 0, n; i < len; i += n) {
		int32_t id;
		bool ok;

		n = utf8_decode(s + i, len - i, NULL);
		id = vocab_find_text(&x->t->v, s + i, n);
		if (id >= 0)
			x->unknown_last = false;
		ok = id >= 0 ? encoder_add_symbol(x, (uint32_t)i, (uint32_t)n, id)
			     : add_unknown(x, s, (uint32_t)i, (uint32_t)n);
		if (!ok)
			return encoder_no_memory(x);
	}
	rc = merge_by_rank(x, &x->t->merges);
	return rc ? rc : push_symbols(x);
}

int bpe_encode_text(struct encoder *x, const char *s, size_t len)
{
	x->unknown_last = false;
	buf_clear(&x->text);
	if (!spm_escape(s, len, x->t->dummy_prefix, &x->text))
		return encoder_no_memory(x);
	return spm_each_word(x, x->text.data, x->text.len, encode_word);
}
