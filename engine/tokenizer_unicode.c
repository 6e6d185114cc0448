/* SPDX-License-Identifier: Apache-2.0
 * What the tokenizers need from Unicode beyond UTF-8. The character data is utf8proc's; its own reordering of
 * combining marks takes quadratic time on a long run of them, so that step is done here.
 */
#include "engine/tokenizer_priv.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool unicode_is_space(uint32_t cp)
{
	switch (cp) {
	case ' ':
	case 0x85:
	case 0xa0:
	case 0x1680:
	case 0x2028:
	case 0x2029:
	case 0x202f:
	case 0x205f:
	case 0x3000:
		return true;
	default:
		return (cp >= '\t' && cp <= '\r') || (cp >= 0x2000 && cp <= 0x200a);
	}
}

/* Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up, in order. */
static bool byte_is_itself(unsigned b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad); }

uint32_t unicode_byte_to_cp(uint8_t b)
{
	if (byte_is_itself(b))
		return b;
	if (b <= 0x20)
		return 0x100u + b;
	return b == 0xad ? 0x143 : 0x121u + (b - 0x7fu);
}

int unicode_cp_to_byte(uint32_t cp)
{
	if (cp < 0x100)
		return byte_is_itself(cp) ? (int)cp : -1;
	if (cp <= 0x120)
		return (int)(cp - 0x100);
	if (cp <= 0x142)
		return (int)(cp - 0x121 + 0x7f);
	return cp == 0x143 ? 0xad : -1;
}

size_t unicode_decompose(uint32_t cp, uint32_t out[4])
{
	utf8proc_int32_t parts[4] = { 0 };
	int boundary = 0;
	utf8proc_ssize_t n = utf8proc_decompose_char(
		(utf8proc_int32_t)cp, parts, 4, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);

	if (n < 1 || n > 4) {
		out[0] = cp;
		return 1;
	}
	for (utf8proc_ssize_t i = 0; i < n; i++)
		out[i] = (uint32_t)parts[i];
	return (size_t)n;
}

static unsigned combining_class(utf8proc_int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

/* A stable sort of cp[0, n) by combining class; tmp: [n]. */
static void sort_marks(utf8proc_int32_t *cp, utf8proc_int32_t *tmp, size_t n)
{
	size_t count[257] = { 0 };

	for (size_t i = 0; i < n; i++)
		count[combining_class(cp[i]) + 1]++;
	for (size_t c = 1; c < COUNT_OF(count); c++)
		count[c] += count[c - 1];
	for (size_t i = 0; i < n; i++)
		tmp[count[combining_class(cp[i])]++] = cp[i];
	memcpy(cp, tmp, n * sizeof *cp);
}

/* Puts every run of combining marks into canonical order. */
static void reorder(utf8proc_int32_t *cp, utf8proc_int32_t *tmp, size_t n)
{
	for (size_t i = 0, end; i < n; i = end) {
		bool sorted = true;

		end = i + 1;
		if (!combining_class(cp[i]))
			continue;
		for (; end < n && combining_class(cp[end]); end++)
			sorted = sorted && combining_class(cp[end - 1]) <= combining_class(cp[end]);
		if (!sorted)
			sort_marks(cp + i, tmp, end - i);
	}
}

/* No character below U+0300 changes, and none of them joins with another such. */
static bool is_nfc_already(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((uint8_t)s[i] >= 0xcc)
			return false;
	return true;
}

static size_t decompose_all(const char *s, size_t len, utf8proc_int32_t *out)
{
	size_t n = 0;
	uint32_t cp = 0;

	for (size_t i = 0, step; i < len; i += step) {
		uint32_t parts[4];
		size_t n_parts;

		step = utf8_decode(s + i, len - i, &cp);
		if (!step)
			return n;
		n_parts = unicode_decompose(cp, parts);
		for (size_t k = 0; k < n_parts; k++)
			out[n++] = (utf8proc_int32_t)parts[k];
	}
	return n;
}

int unicode_nfc(const char *s, size_t len, struct buf *out, struct error *e)
{
	utf8proc_int32_t *cp;
	utf8proc_ssize_t n;

	if (is_nfc_already(s, len))
		return buf_append(out, s, len)
			? TENON_OK
			: error_set(e, TENON_E_NOMEM, "tokenizer: no memory for the text");
	/* a character of 2 bytes has at most 4 parts, so 2 a byte are enough; the second half is for sorting */
	cp = mem_zalloc(MEM_TOKENIZER, len * 4 + 8, sizeof *cp);
	if (!cp)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for the text");
	n = (utf8proc_ssize_t)decompose_all(s, len, cp);
	reorder(cp, cp + len * 2 + 4, (size_t)n);
	n = utf8proc_normalize_utf32(cp, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	for (utf8proc_ssize_t i = 0; i < n; i++) {
		char bytes[4];

		(void)buf_append(out, bytes, utf8_encode((uint32_t)cp[i], bytes));
	}
	mem_free(cp);
	return out->failed ? error_set(e, TENON_E_NOMEM, "tokenizer: no memory for the text") : TENON_OK;
}
