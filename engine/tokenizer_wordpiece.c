/* SPDX-License-Identifier: Apache-2.0
 * WordPiece for uncased BERT vocabularies. Text is cleaned (control characters go, white space becomes a gap), CJK
 * ideographs and punctuation become words of their own, letters are decomposed, stripped of non-spacing marks and
 * lowered; each word is then cut greedily into the longest known parts. In the file a token that begins a word carries
 * U+2581 in front and one that continues a word carries nothing.
 */
#include "engine/tokenizer_priv.h"
#include <string.h>
#include <utf8proc.h>

enum { MAX_WORD_CHARS = 100 };

static bool is_ideograph(uint32_t c)
{
	static const uint32_t range[][2] = { { 0x4e00, 0x9fff }, { 0x3400, 0x4dbf }, { 0x20000, 0x2a6df },
		{ 0x2a700, 0x2b73f }, { 0x2b740, 0x2b81f }, { 0x2b920, 0x2ceaf }, { 0xf900, 0xfaff },
		{ 0x2f800, 0x2fa1f } };

	for (size_t i = 0; i < COUNT_OF(range); i++)
		if (c >= range[i][0] && c <= range[i][1])
			return true;
	return false;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

static bool is_removed(uint32_t c)
{
	switch (category(c)) {
	case UTF8PROC_CATEGORY_CC:
		return c != '\t' && c != '\n' && c != '\r';
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CS:
		return true;
	default:
		return c == 0xfffd;
	}
}

static bool is_punctuation(uint32_t c)
{
	if (c < 0x80)
		return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
			(c >= '{' && c <= '~');
	switch (category(c)) {
	case UTF8PROC_CATEGORY_PC:
	case UTF8PROC_CATEGORY_PD:
	case UTF8PROC_CATEGORY_PE:
	case UTF8PROC_CATEGORY_PF:
	case UTF8PROC_CATEGORY_PI:
	case UTF8PROC_CATEGORY_PO:
	case UTF8PROC_CATEGORY_PS:
		return true;
	default:
		return false;
	}
}

/* Longest part of word[at, len) that the vocabulary has; its end, or 0. The word begins with U+2581 at 0. */
static size_t longest_part(const struct vocab *v, const char *word, size_t at, size_t len, int32_t *id)
{
	size_t end = MIN_OF(len, at + v->longest_bytes);

	/* a continuation that itself begins with U+2581 would be taken for the beginning of a word */
	if (at && len - at >= 3 && !memcmp(word + at, U2581, 3))
		return 0;
	for (; end > at; end--) {
		if (end < len && ((uint8_t)word[end] & 0xc0) == 0x80)
			continue;
		*id = vocab_find_text(v, word + at, end - at);
		if (*id >= 0)
			return end;
	}
	return 0;
}

static int push_unknown(struct encoder *x)
{
	return x->t->v.unk < 0 ? TENON_OK : encoder_push(x, x->t->v.unk);
}

/* Ends the word in x->word, which holds U+2581 and the n_chars characters. */
static int end_word(struct encoder *x, size_t n_chars)
{
	size_t before = x->out->n;
	int rc = TENON_OK;

	if (x->word.failed)
		return encoder_no_memory(x);
	if (!n_chars)
		return TENON_OK;
	if (n_chars > MAX_WORD_CHARS)
		return push_unknown(x);
	for (size_t at = 0, end; at < x->word.len && !rc; at = end) {
		int32_t id;

		end = longest_part(&x->t->v, x->word.data, at, x->word.len, &id);
		if (!end || (!at && end == 3)) {
			x->out->n = before;
			return push_unknown(x);
		}
		rc = encoder_push(x, id);
	}
	return rc;
}

struct words {
	struct encoder *x;
	size_t n_chars; /* of the word that is being gathered */
};

static int cut(struct words *w)
{
	int rc = end_word(w->x, w->n_chars);

	w->n_chars = 0;
	buf_clear(&w->x->word);
	(void)buf_puts(&w->x->word, U2581);
	return rc;
}

static void gather(struct words *w, uint32_t cp)
{
	char bytes[4];

	w->n_chars++;
	if (w->n_chars <= MAX_WORD_CHARS)
		(void)buf_append(&w->x->word, bytes, utf8_encode(cp, bytes));
}

static int add_alone(struct words *w, uint32_t cp)
{
	int rc = cut(w);

	gather(w, cp);
	return rc ? rc : cut(w);
}

/* One character of the text after decomposition. */
static int add_part(struct words *w, uint32_t cp)
{
	if (category(cp) == UTF8PROC_CATEGORY_MN)
		return TENON_OK;
	cp = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
	if (unicode_is_space(cp))
		return cut(w);
	if (is_punctuation(cp))
		return add_alone(w, cp);
	gather(w, cp);
	return TENON_OK;
}

static int add_char(struct words *w, uint32_t cp)
{
	bool alone = is_ideograph(cp);
	uint32_t parts[4];
	size_t n;
	int rc;

	if (is_removed(cp))
		return TENON_OK;
	if (unicode_is_space(cp))
		return cut(w);
	n = unicode_decompose(cp, parts);
	rc = alone ? cut(w) : TENON_OK;
	for (size_t i = 0; i < n && !rc; i++)
		rc = add_part(w, parts[i]);
	return rc || !alone ? rc : cut(w);
}

int wordpiece_encode(struct encoder *x, const char *s, size_t len)
{
	struct words w = { x, 0 };
	int rc = cut(&w);

	for (size_t i = 0, n; i < len && !rc; i += n) {
		uint32_t cp = 0;

		n = utf8_decode(s + i, len - i, &cp);
		rc = add_char(&w, cp);
	}
	return rc ? rc : cut(&w);
}
