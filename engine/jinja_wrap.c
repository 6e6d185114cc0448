/* SPDX-License-Identifier: Apache-2.0
 * Text wrapping (jinja_wrap.h): the text is cut into chunks that may not be broken (white space, words, parts of
 * hyphenated words, dashes), and lines are filled with them.
 */
#include "engine/jinja_wrap.h"
#include "engine/jinja_unicode.h"
#include "base/utf8.h"
#include <string.h>

struct chars { /* the text by code point */
	const struct jstr *s;
	uint32_t *cp; /* [n] */
	uint32_t *at; /* [n + 1] byte offsets */
	size_t n;
};

struct chunk {
	size_t from, to; /* code points */
};

static bool is_blank(uint32_t cp) { return cp == ' ' || (cp >= 9 && cp <= 13); }
static bool is_punct(uint32_t cp)
{
	return junicode_is_word(cp) || (cp < 0x80 && cp && strchr("!\"'&.,?", (int)cp));
}
static bool is_letter(uint32_t cp) { return junicode_is_word(cp) && junicode_decimal(cp) < 0; }

static uint32_t at(const struct chars *c, size_t i) { return i < c->n ? c->cp[i] : 0; }

/* Dashes ("--" and more) at i that a word character follows: their number. */
static size_t dashes(const struct chars *c, size_t i)
{
	size_t n = 0;

	while (at(c, i + n) == '-')
		n++;
	return n >= 2 && i + n < c->n && junicode_is_word(c->cp[i + n]) ? n : 0;
}

/* May a hyphenated word that began at `from` be cut behind the hyphen at i? */
static bool hyphen_cut(const struct chars *c, size_t i)
{
	bool before = (i >= 2 && is_letter(c->cp[i - 1]) && is_letter(c->cp[i - 2])) ||
		(i >= 3 && is_punct(c->cp[i - 1]) && c->cp[i - 2] == '-' && is_letter(c->cp[i - 3]));
	size_t next = i + 1;

	if (!before || next >= c->n || !is_letter(c->cp[next]))
		return false;
	next += at(c, next + 1) == '-' ? 2 : 1;
	return next < c->n && is_letter(c->cp[next]);
}

static size_t word_end(const struct chars *c, size_t i)
{
	for (size_t e = i + 1; e <= c->n; e++) {
		if (e == c->n || is_blank(c->cp[e]))
			return e;
		if (c->cp[e] == '-' && hyphen_cut(c, e))
			return e + 1;
		if (is_punct(c->cp[e - 1]) && dashes(c, e))
			return e;
	}
	return c->n;
}

static size_t chunk_end(const struct chars *c, size_t i, bool hyphens)
{
	size_t e = i, n;

	if (is_blank(c->cp[i])) {
		while (e < c->n && is_blank(c->cp[e]))
			e++;
		return e;
	}
	if (!hyphens) {
		while (e < c->n && !is_blank(c->cp[e]))
			e++;
		return e;
	}
	n = i && is_punct(c->cp[i - 1]) ? dashes(c, i) : 0;
	return n ? i + n : word_end(c, i);
}

static struct chunk *chunks_of(struct jinja *j, const struct chars *c, bool hyphens, size_t *n)
{
	struct chunk *list = NULL;
	size_t cap = 0;

	*n = 0;
	for (size_t i = 0; i < c->n;) {
		size_t e = chunk_end(c, i, hyphens);

		jinja_step(j, 1 + (e - i) / 8);
		cap = jinja_grow(j, &list, cap, *n + 1, sizeof *list);
		list[(*n)++] = (struct chunk){ .from = i, .to = e };
		i = e;
	}
	return list;
}

static bool all_space(const struct chars *c, struct chunk k)
{
	for (size_t i = k.from; i < k.to; i++)
		if (!junicode_is_space(c->cp[i]))
			return false;
	return true;
}

/* Where a chunk that is too long for a line is cut, `left` characters being free. */
static size_t long_cut(const struct chars *c, struct chunk k, size_t left, bool hyphens)
{
	size_t end = k.from + left;
	bool other = false;

	if (!hyphens || k.to - k.from <= left)
		return end;
	for (size_t i = k.from; i < end; i++) {
		if (c->cp[i] != '-') {
			other = true;
			continue;
		}
		if (i > k.from && other && memchr(c->s->p + c->at[i], '-', c->at[end] - c->at[i])) {
			size_t last = end;

			while (c->cp[last - 1] != '-')
				last--;
			return last;
		}
	}
	return end;
}

static void push_line(struct jinja *j, struct jlist *lines, const struct chars *c, size_t from, size_t to)
{
	jlist_push(j, lines, jval_str(jstr_sub(j, c->s, c->at[from], c->at[to] - c->at[from])));
}

static struct chars chars_of(struct jinja *j, const struct jstr *s)
{
	struct chars c = { .s = s };
	struct jcursor cur = jcursor_of(s);

	c.cp = jinja_alloc_n(j, s->n_cp + 1, sizeof *c.cp);
	c.at = jinja_alloc_n(j, s->n_cp + 1, sizeof *c.at);
	while (jcursor_next(&cur) && c.n < s->n_cp) {
		c.at[c.n] = (uint32_t)cur.at;
		c.cp[c.n++] = cur.cp;
	}
	c.at[c.n] = (uint32_t)s->len;
	return c;
}

/* Fills one line from chunk *i on; [*from, *to) is what it holds. */
static void fill_line(struct jinja *j, const struct chars *c, struct chunk *k, size_t n, size_t *i,
	const struct jwrap *w, size_t *from, size_t *to)
{
	size_t width = (size_t)w->width, used = 0, before;

	*from = *to = before = k[*i].from;
	while (*i < n && used + (k[*i].to - k[*i].from) <= width) {
		before = k[*i].from;
		used += k[*i].to - k[*i].from;
		*to = k[(*i)++].to;
		jinja_step(j, 1);
	}
	if (*i < n && k[*i].to - k[*i].from > width) {
		if (w->break_long) {
			size_t cut = long_cut(c, k[*i], width - used, w->break_hyphens);

			before =
				k[*i].from; /* even when nothing fits: then the space before it stays, as in Python */
			*to = k[*i].from = cut;
		} else if (*to == *from) {
			before = k[*i].from;
			*to = k[(*i)++].to;
		}
	}
	if (*to > before && all_space(c, (struct chunk){ .from = before, .to = *to }))
		*to = before;
}

struct jlist *jwrap_lines(struct jinja *j, const struct jstr *s, const struct jwrap *w)
{
	struct chars c = chars_of(j, s);
	struct jlist *lines = jlist_new(j, 0);
	size_t n, i = 0, from, to;
	struct chunk *k = chunks_of(j, &c, w->break_hyphens, &n);

	if (w->width <= 0)
		jinja_fail(j, JFAIL_VALUE, "wordwrap: the width must be positive");
	while (i < n) {
		jinja_step(j, 1);
		if (lines->n && all_space(&c, k[i])) {
			i++;
			if (i >= n)
				break;
		}
		fill_line(j, &c, k, n, &i, w, &from, &to);
		if (to > from)
			push_line(j, lines, &c, from, to);
	}
	return lines;
}
