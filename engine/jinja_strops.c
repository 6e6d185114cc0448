/* SPDX-License-Identifier: Apache-2.0
 * Operations on strings (jinja_strops.h).
 */
#include "engine/jinja_strops.h"
#include "base/utf8.h"
#include <string.h>

static bool strips(const struct jstr *chars, uint32_t cp, const char *p, size_t n)
{
	return chars ? memmem(chars->p, chars->len, p, n) != NULL : junicode_is_space(cp);
}

struct jstr *jstr_strip(struct jinja *j, const struct jstr *s, const struct jstr *chars, int sides)
{
	size_t from = 0, to = s->len, n;
	uint32_t cp;

	while (sides & JSTRIP_LEFT && from < to) {
		n = utf8_decode(s->p + from, to - from, &cp);
		if (!strips(chars, cp, s->p + from, n))
			break;
		from += n;
		jinja_work(j, chars ? chars->len : 0);
	}
	while (sides & JSTRIP_RIGHT && to > from) {
		size_t at = to - 1;

		while (at > from && ((uint8_t)s->p[at] & 0xc0) == 0x80)
			at--;
		(void)utf8_decode(s->p + at, to - at, &cp);
		if (!strips(chars, cp, s->p + at, to - at))
			break;
		to = at;
		jinja_work(j, chars ? chars->len : 0);
	}
	jinja_step(j, (s->len - (to - from)) / 8);
	return jstr_sub(j, s, from, to - from);
}

/* ---- case ---- */

/* Is the capital sigma at c the last letter of a word? Then its lower case differs. */
static bool final_sigma(const struct jstr *s, const struct jcursor *c)
{
	size_t at = c->at;
	struct jcursor next = *c;
	uint32_t cp = 0;
	bool cased = false;

	while (at > 0) {
		size_t end = at--;

		while (at > 0 && ((uint8_t)s->p[at] & 0xc0) == 0x80)
			at--;
		(void)utf8_decode(s->p + at, end - at, &cp);
		if (junicode_is_case_ignorable(cp))
			continue;
		cased = junicode_is_cased(cp);
		break;
	}
	if (!cased)
		return false;
	while (jcursor_next(&next))
		if (!junicode_is_case_ignorable(next.cp))
			return !junicode_is_cased(next.cp);
	return true;
}

static void put_case(struct jinja *j, struct jtext *t, const struct jcursor *c, enum junicode_case to)
{
	uint32_t out[4];
	size_t n;

	if (to == JCASE_LOWER && c->cp == 0x3a3) {
		jinja_step(j, 4);
		jtext_put_cp(j, t, final_sigma(c->s, c) ? 0x3c2 : 0x3c3, c->trusted);
		return;
	}
	n = junicode_case(to, c->cp, out);
	for (size_t i = 0; i < n; i++)
		jtext_put_cp(j, t, out[i], c->trusted);
}

static struct jtext *begin(struct jinja *j, const struct jstr *s)
{
	jinja_step(j, s->len / 2);
	return jtext_new(j, s->len);
}

static struct jstr *end(struct jinja *j, struct jtext *t, const struct jstr *s)
{
	return jstr_with(j, jtext_str(j, t), s->markup);
}

/* The usual case, without looking at each character's trust. */
static struct jstr *case_ascii(struct jinja *j, const struct jstr *s, bool upper)
{
	char *p = jinja_alloc(j, s->len), from = upper ? 'a' : 'A', to = upper ? 'z' : 'Z';

	jinja_work(j, s->len * 4);
	for (size_t i = 0; i < s->len; i++)
		p[i] = s->p[i] >= from && s->p[i] <= to ? (char)(s->p[i] ^ 32) : s->p[i];
	return jstr_with(j, jstr_ref(j, p, s->len, jstr_trusted(s)), s->markup);
}

struct jstr *jstr_case(struct jinja *j, const struct jstr *s, enum junicode_case to)
{
	struct jtext *t;
	struct jcursor c = jcursor_of(s);

	if (s->n_cp == s->len && s->taint != JTAINT_MIXED && to != JCASE_TITLE)
		return case_ascii(j, s, to == JCASE_UPPER);
	t = begin(j, s);
	while (jcursor_next(&c))
		put_case(j, t, &c, to);
	return end(j, t, s);
}

struct jstr *jstr_capitalize(struct jinja *j, const struct jstr *s)
{
	struct jtext *t = begin(j, s);
	struct jcursor c = jcursor_of(s);

	while (jcursor_next(&c))
		put_case(j, t, &c, c.at ? JCASE_LOWER : JCASE_TITLE);
	return end(j, t, s);
}

struct jstr *jstr_title(struct jinja *j, const struct jstr *s)
{
	struct jtext *t = begin(j, s);
	struct jcursor c = jcursor_of(s);
	bool in_word = false;

	while (jcursor_next(&c)) {
		put_case(j, t, &c, in_word ? JCASE_LOWER : JCASE_TITLE);
		in_word = junicode_is_cased(c.cp);
	}
	return end(j, t, s);
}

struct jstr *jstr_swapcase(struct jinja *j, const struct jstr *s)
{
	struct jtext *t = begin(j, s);
	struct jcursor c = jcursor_of(s);

	while (jcursor_next(&c)) {
		if (junicode_is_upper(c.cp))
			put_case(j, t, &c, JCASE_LOWER);
		else if (junicode_is_lower(c.cp))
			put_case(j, t, &c, JCASE_UPPER);
		else
			jtext_put(j, t, s->p + c.at, c.n, c.trusted);
	}
	return end(j, t, s);
}

/* ---- replacing and padding ---- */

/* An empty pattern matches before every character and at the end. */
static void replace_between(
	struct jinja *j, struct jtext *t, const struct jstr *s, const struct jstr *to, int64_t count)
{
	struct jcursor c = jcursor_of(s);

	while (jcursor_next(&c)) {
		if (count && count-- != 0)
			jtext_put_str(j, t, to);
		jtext_put(j, t, s->p + c.at, c.n, c.trusted);
		jinja_step(j, 1);
	}
	if (count)
		jtext_put_str(j, t, to);
}

struct jstr *jstr_replace(
	struct jinja *j, const struct jstr *s, const struct jstr *from, const struct jstr *to, int64_t count)
{
	struct jtext *t;
	size_t at = 0, hit;
	struct jstr *r;

	if (!count || (from->len && jstr_find(j, s, from, 0, s->len) == SIZE_MAX))
		return (struct jstr *)s;
	t = jtext_new(j, s->len);
	if (!from->len)
		replace_between(j, t, s, to, count);
	while (from->len && count && (hit = jstr_find(j, s, from, at, s->len)) != SIZE_MAX) {
		jtext_put_bytes(j, t, s, at, hit - at);
		jtext_put_str(j, t, to);
		at = hit + from->len;
		count -= count > 0;
		jinja_step(j, 1);
	}
	if (from->len)
		jtext_put_bytes(j, t, s, at, s->len - at);
	r = end(j, t, s);
	return jstr_trusted(from) ? r : jstr_retaint(j, r, false);
}

struct jstr *jstr_pad(
	struct jinja *j, const struct jstr *s, int64_t width, const struct jstr *fill, int where)
{
	struct jtext *t;
	size_t pad, left;

	if (width <= (int64_t)s->n_cp)
		return (struct jstr *)s;
	pad = (size_t)width - s->n_cp;
	left = where == JPAD_LEFT ? pad : where == JPAD_RIGHT ? 0 : pad / 2 + (pad & (size_t)width & 1);
	t = jtext_new(j, s->len);
	jtext_put_fill(j, t, fill, left);
	jtext_put_str(j, t, s);
	jtext_put_fill(j, t, fill, pad - left);
	return end(j, t, s);
}

/* ---- splitting ---- */

static void push_part(struct jinja *j, struct jlist *l, const struct jstr *s, size_t from, size_t to)
{
	jlist_push(j, l, jval_str(jstr_sub(j, s, from, to - from)));
}

static void reverse(struct jlist *l)
{
	for (size_t i = 0, k = l->n; i + 1 < k; i++, k--) {
		struct jval v = l->v[i];

		l->v[i] = l->v[k - 1];
		l->v[k - 1] = v;
	}
}

struct span { /* words of a string, in bytes */
	size_t from, to;
};

static struct span *words_of(struct jinja *j, const struct jstr *s, size_t *n)
{
	struct span *w = NULL;
	struct jcursor c = jcursor_of(s);
	size_t cap = 0;
	bool in_word = false;

	*n = 0;
	jinja_step(j, s->len / 8);
	while (jcursor_next(&c)) {
		bool space = junicode_is_space(c.cp);

		if (!space && !in_word) {
			cap = jinja_grow(j, &w, cap, *n + 1, sizeof *w);
			w[(*n)++].from = c.at;
		}
		if (!space)
			w[*n - 1].to = c.at + c.n;
		in_word = !space;
	}
	return w;
}

struct jlist *jstr_split_space(struct jinja *j, const struct jstr *s, int64_t max, bool from_right)
{
	size_t n, single;
	struct span *w = words_of(j, s, &n);
	struct jlist *l = jlist_new(j, n);

	single = max >= 0 && (uint64_t)max < n ? (size_t)max
					       : n; /* words that stand alone; the others stay together */
	if (from_right) {
		if (single < n)
			push_part(j, l, s, 0, w[n - single - 1].to);
		for (size_t i = n - single; i < n; i++)
			push_part(j, l, s, w[i].from, w[i].to);
		return l;
	}
	for (size_t i = 0; i < single; i++)
		push_part(j, l, s, w[i].from, w[i].to);
	if (single < n)
		push_part(j, l, s, w[single].from, s->len);
	return l;
}

struct jlist *jstr_split(
	struct jinja *j, const struct jstr *s, const struct jstr *sep, int64_t max, bool from_right)
{
	struct jlist *l = jlist_new(j, 0);
	size_t from = 0, to = s->len, hit;

	if (!sep->len)
		jinja_fail(j, JFAIL_VALUE, "split: the separator is empty");
	while (max < 0 || l->n < (size_t)max) {
		hit = from_right ? jstr_rfind(j, s, sep, 0, to) : jstr_find(j, s, sep, from, s->len);
		if (hit == SIZE_MAX)
			break;
		if (from_right) {
			push_part(j, l, s, hit + sep->len, to);
			to = hit;
		} else {
			push_part(j, l, s, from, hit);
			from = hit + sep->len;
		}
	}
	push_part(j, l, s, from, to);
	if (from_right)
		reverse(l);
	return l;
}

struct jlist *jstr_splitlines(struct jinja *j, const struct jstr *s, bool keep_ends)
{
	struct jlist *l = jlist_new(j, 0);
	struct jcursor c = jcursor_of(s);
	size_t from = 0;

	jinja_step(j, s->len / 8);
	while (jcursor_next(&c)) {
		size_t stop = c.at, next = c.at + c.n;

		if (!junicode_is_line_end(c.cp))
			continue;
		if (c.cp == '\r' && next < s->len && s->p[next] == '\n') {
			next++;
			c.n++;
		}
		push_part(j, l, s, from, keep_ends ? next : stop);
		from = next;
	}
	if (from < s->len)
		push_part(j, l, s, from, s->len);
	return l;
}

struct jstr *jstr_join(struct jinja *j, const struct jstr *sep, const struct jlist *parts)
{
	struct jtext *t;

	if (parts->n == 1)
		return parts->v[0].u.s;
	t = jtext_new(j, 0);
	for (size_t i = 0; i < parts->n; i++) {
		if (i)
			jtext_put_str(j, t, sep);
		jtext_put_str(j, t, parts->v[i].u.s);
		jinja_step(j, 1);
	}
	return jtext_str(j, t);
}

/* ---- HTML ---- */

/* Bytes of the tag or comment at p ('<'), or 0 when it is not closed. */
static size_t tag_len(struct jinja *j, const struct jstr *s, size_t at)
{
	struct jstr *comment_end = jstr_lit(j, "-->", true), *tag_end = jstr_lit(j, ">", true);
	bool comment = s->len - at >= 4 && !memcmp(s->p + at, "<!--", 4);
	size_t hit = jstr_find(j, s, comment ? comment_end : tag_end, comment ? at + 4 : at, s->len);

	return hit == SIZE_MAX ? 0 : hit + (comment ? 3 : 1) - at;
}

static struct jstr *unescape(struct jinja *j, const struct jstr *s)
{
	static const struct {
		const char *entity, *text;
	} known[] = { { "&lt;", "<" }, { "&gt;", ">" }, { "&amp;", "&" }, { "&quot;", "\"" },
		{ "&#34;", "\"" }, { "&#39;", "'" }, { "&apos;", "'" }, { "&nbsp;", "\xc2\xa0" } };
	struct jtext *t = begin(j, s);

	for (size_t at = 0; at < s->len;) {
		size_t i = 0, n = sizeof known / sizeof known[0];

		while (i < n &&
			(s->p[at] != '&' || s->len - at < strlen(known[i].entity) ||
				memcmp(s->p + at, known[i].entity, strlen(known[i].entity))))
			i++;
		jtext_put(j, t, i < n ? known[i].text : s->p + at, i < n ? strlen(known[i].text) : 1,
			jstr_trusted_at(s, at));
		at += i < n ? strlen(known[i].entity) : 1;
	}
	return jtext_str(j, t);
}

struct jstr *jstr_striptags(struct jinja *j, const struct jstr *s)
{
	struct jtext *t = begin(j, s);
	size_t at = 0, lt, n;
	struct jstr *open = jstr_lit(j, "<", true), *kept;

	while ((lt = jstr_find(j, s, open, at, s->len)) != SIZE_MAX && (n = tag_len(j, s, lt))) {
		jtext_put_bytes(j, t, s, at, lt - at);
		at = lt + n;
	}
	jtext_put_bytes(j, t, s, at, s->len - at);
	kept = jtext_str(j, t);
	kept = jstr_join(j, jstr_lit(j, " ", jstr_trusted(s)), jstr_split_space(j, kept, -1, false));
	return unescape(j, kept);
}
