/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* Unicode 15, table 3-7: lead byte gives the length and the range of the second byte. */
static size_t lead(uint8_t c, uint8_t *lo, uint8_t *hi)
{
	*lo = 0x80;
	*hi = 0xbf;
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef) {
		*lo = c == 0xe0 ? 0xa0 : 0x80;
		*hi = c == 0xed ? 0x9f : 0xbf;
		return 3;
	}
	if (c >= 0xf0 && c <= 0xf4) {
		*lo = c == 0xf0 ? 0x90 : 0x80;
		*hi = c == 0xf4 ? 0x8f : 0xbf;
		return 4;
	}
	return 0;
}

/* Length of the character if the bytes present fit it; *have: how many of them are there. 0: malformed. */
static size_t scan(const char *s, size_t len, size_t *have)
{
	const uint8_t *p = (const uint8_t *)s;
	uint8_t lo, hi;
	size_t n;

	if (!len)
		return 0;
	n = lead(p[0], &lo, &hi);
	*have = n < len ? n : len;
	for (size_t i = 1; i < *have; i++, lo = 0x80, hi = 0xbf)
		if (p[i] < lo || p[i] > hi)
			return 0;
	return n;
}

size_t utf8_decode(const char *s, size_t len, uint32_t *cp)
{
	static const uint8_t mask[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	size_t have = 0, n = scan(s, len, &have);
	uint32_t v;

	if (!n || have < n)
		return 0;
	v = (uint8_t)s[0] & mask[n];
	for (size_t i = 1; i < n; i++)
		v = v << 6 | ((uint8_t)s[i] & 0x3f);
	if (cp)
		*cp = v;
	return n;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
	static const uint8_t first[5] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;

	if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	for (size_t i = n; i-- > 1; cp >>= 6)
		out[i] = (char)(0x80 | (cp & 0x3f));
	out[0] = (char)(first[n] | cp);
	return n;
}

bool utf8_valid(const char *s, size_t len, size_t *bad)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_decode(s + i, len - i, NULL);
		if (!n) {
			if (bad)
				*bad = i;
			return false;
		}
	}
	return true;
}

size_t utf8_incomplete_tail(const char *s, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		size_t have = 0, n = scan(s + len - back, back, &have);

		if (((uint8_t)s[len - back] & 0xc0) != 0x80)
			return n > have ? back : 0;
	}
	return 0;
}
