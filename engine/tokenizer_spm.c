/* SPDX-License-Identifier: Apache-2.0
 * SentencePiece BPE: spaces become U+2581 (with a dummy one in front where the model wants it), user-defined tokens
 * are cut out, and in between the two neighbours whose joined text has the best score merge, until none has one.
 */
#include "engine/tokenizer_priv.h"
#include <string.h>

bool spm_escape(const char *s, size_t len, bool prefix, struct buf *out)
{
	const char *end = s + len;

	if (prefix && len)
		(void)buf_puts(out, U2581);
	while (s < end) {
		const char *space = memchr(s, ' ', (size_t)(end - s));

		(void)buf_append(out, s, (size_t)((space ? space : end) - s));
		if (space)
			(void)buf_puts(out, U2581);
		s = space ? space + 1 : end;
	}
	return !out->failed;
}

/* Next place in (from, end) where U+2581 stands behind another character, or `end`. */
static const char *next_word(const char *from, const char *end)
{
	for (const char *p = from + 1; p < end && (p = memchr(p, U2581[0], (size_t)(end - p))); p++)
		if (end - p >= 3 && !memcmp(p, U2581, 3) && (p - from < 3 || memcmp(p - 3, U2581, 3)))
			return p;
	return end;
}

void spm_find_crossings(const struct vocab *v, bool crosses[256])
{
	for (uint32_t i = 0; i < v->n; i++) {
		const char *s = v->text[i].s, *end = s + v->text[i].len;

		if (v->type[i] != TOKEN_NORMAL && v->type[i] != TOKEN_UNUSED)
			continue;
		for (s = v->text[i].len ? next_word(s, end) : end; s < end; s = next_word(s, end))
			crosses[(uint8_t)s[-1]] = true;
	}
}

int spm_each_word(
	struct encoder *x, const char *s, size_t len, int (*fn)(struct encoder *, const char *, size_t))
{
	const char *end = s + len, *next = s;
	int rc = TENON_OK;

	while (next < end && !rc) {
		next = next_word(next, end);
		if (next < end && x->t->crosses[(uint8_t)next[-1]])
			continue;
		rc = fn(x, s, (size_t)(next - s));
		s = next;
	}
	return rc;
}

/* Text that has no token: the tokens of its bytes, else one unknown token for a whole run of such. */
static int push_unknown(struct encoder *x, const char *s, size_t len)
{
	const int32_t *byte_token = x->t->byte_token;
	bool again = x->unknown_last;
	int rc = TENON_OK;

	for (size_t i = 0; i < len; i++)
		if (byte_token[(uint8_t)s[i]] < 0) {
			x->unknown_last = true;
			return again || x->t->v.unk < 0 ? TENON_OK : encoder_push(x, x->t->v.unk);
		}
	x->unknown_last = false;
	for (size_t i = 0; i < len && !rc; i++)
		rc = encoder_push(x, byte_token[(uint8_t)s[i]]);
	return rc;
}

static int push_merged(struct encoder *x, const char *s)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i != UINT32_MAX && !rc; i = x->symbol[i].next) {
		const struct symbol *sym = &x->symbol[i];

		if (sym->id < 0) {
			rc = push_unknown(x, s + sym->off, sym->len);
			continue;
		}
		x->unknown_last = false;
		rc = encoder_push(x, sym->id);
	}
	return rc;
}

static int encode_word(struct encoder *x, const char *s, size_t len)
{
	int rc;

	x->n_symbols = 0;
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_decode(s + i, len - i, NULL);
		if (!encoder_add_symbol(x, (uint32_t)i, (uint32_t)n, vocab_find_text(&x->t->v, s + i, n)))
			return encoder_no_memory(x);
	}
	rc = merge_by_score(x, s);
	return rc ? rc : push_merged(x, s);
}

int spm_encode(struct encoder *x, const char *s, size_t len)
{
	const struct specials *user = &x->t->escaped;
	size_t from = 0, n = 0;
	int rc = TENON_OK;

	x->unknown_last = false;
	buf_clear(&x->text);
	if (!spm_escape(s, len, x->t->dummy_prefix, &x->text))
		return encoder_no_memory(x);
	s = x->text.data;
	len = x->text.len;
	for (size_t i = 0; i < len && !rc;) {
		int32_t id = specials_match(user, s + i, len - i, 0, &n);

		if (id < 0) {
			i++;
			continue;
		}
		if (i > from)
			rc = spm_each_word(x, s + from, i - from, encode_word);
		x->unknown_last = false;
		if (!rc)
			rc = encoder_push(x, id);
		from = i += n;
	}
	return rc || from == len ? rc : spm_each_word(x, s + from, len - from, encode_word);
}
