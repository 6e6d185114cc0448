/* SPDX-License-Identifier: Apache-2.0
 * Strings of the template interpreter (jinja_str.h).
 */
#include "engine/jinja_str.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void jtext_init(struct jinja *j, struct jtext *t, size_t cap)
{
	*t = (struct jtext){ .cap = cap, .data = cap ? jinja_alloc(j, cap) : NULL };
}

struct jtext *jtext_new(struct jinja *j, size_t cap)
{
	struct jtext *t = jinja_alloc(j, sizeof *t);

	jtext_init(j, t, cap);
	return t;
}

static char *text_room(struct jinja *j, struct jtext *t, size_t n)
{
	if (n > j->text_max || t->used > j->text_max - n)
		jinja_fail(j, JFAIL_LIMIT, "a text of more than %zu bytes", j->text_max);
	if (t->used + n > t->cap) {
		size_t cap = t->cap + t->cap / 2;

		if (cap < t->used + n)
			cap = t->used + n;
		if (cap < 32)
			cap = 32;
		t->data = jinja_realloc(j, t->data, t->used, cap);
		t->cap = cap;
	}
	return t->data + t->used;
}

static void text_mark(struct jinja *j, struct jtext *t, size_t n, bool trusted)
{
	t->used += n;
	if (t->n_runs && t->runs[t->n_runs - 1].trusted == trusted) {
		t->runs[t->n_runs - 1].end = t->used;
		return;
	}
	t->cap_runs = jinja_grow(j, &t->runs, t->cap_runs, t->n_runs + 1, sizeof *t->runs);
	t->runs[t->n_runs++] = (struct jrun){ .end = t->used, .trusted = trusted };
}

void jtext_put(struct jinja *j, struct jtext *t, const char *p, size_t n, bool trusted)
{
	if (!n)
		return;
	jinja_work(j, n);
	memcpy(text_room(j, t, n), p, n);
	text_mark(j, t, n, trusted);
}

void jtext_putc(struct jinja *j, struct jtext *t, char c, bool trusted) { jtext_put(j, t, &c, 1, trusted); }

void jtext_put_cp(struct jinja *j, struct jtext *t, uint32_t cp, bool trusted)
{
	char utf8[4];

	jtext_put(j, t, utf8, utf8_encode(cp, utf8), trusted);
}

void jtext_put_bytes(struct jinja *j, struct jtext *t, const struct jstr *s, size_t off, size_t len)
{
	while (len) {
		size_t n;
		bool trusted = jstr_run(s, off, &n);

		if (n > len)
			n = len;
		jtext_put(j, t, s->p + off, n, trusted);
		off += n;
		len -= n;
	}
}

void jtext_put_str(struct jinja *j, struct jtext *t, const struct jstr *s)
{
	jtext_put_bytes(j, t, s, 0, s->len);
}

void jtext_put_fill(struct jinja *j, struct jtext *t, const struct jstr *s, size_t times)
{
	size_t all, from, done;

	if (s->len && times > j->text_max / s->len)
		jinja_fail(j, JFAIL_LIMIT, "a text of more than %zu bytes", j->text_max);
	all = s->len * times;
	if (!all)
		return;
	(void)text_room(j, t, all);
	if (s->taint == JTAINT_MIXED) {
		while (times--)
			jtext_put_str(j, t, s);
		return;
	}
	from = t->used;
	jtext_put_str(j, t, s);
	for (done = s->len; done < all;
		done += done < all - done ? done : all - done) /* what is there, doubled */
		jtext_put(j, t, t->data + from, done < all - done ? done : all - done, jstr_trusted(s));
}

void jtext_printf(struct jinja *j, struct jtext *t, bool trusted, const char *fmt, ...)
{
	char small[512];
	va_list ap;
	int n;

	jinja_step(j, 2);
	va_start(ap, fmt);
	n = vsnprintf(small, sizeof small, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n >= sizeof small)
		n = sizeof small - 1;
	jtext_put(j, t, small, n > 0 ? (size_t)n : 0, trusted);
}

size_t jstr_cp_count(const char *p, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((uint8_t)p[i] & 0xc0) != 0x80;
	return n;
}

struct jstr *jtext_str(struct jinja *j, struct jtext *t)
{
	struct jstr *s = jinja_alloc(j, sizeof *s);

	jinja_work(j, t->used);
	*s = (struct jstr){ .p = t->used ? t->data : "",
		.len = t->used,
		.n_cp = jstr_cp_count(t->data, t->used),
		.text = t };
	s->taint = t->n_runs > 1		   ? JTAINT_MIXED
		: t->n_runs && !t->runs[0].trusted ? JTAINT_UNTRUSTED
						   : JTAINT_TRUSTED;
	return s;
}

struct jstr *jstr_ref(struct jinja *j, const char *p, size_t len, bool trusted)
{
	struct jstr *s = jinja_alloc(j, sizeof *s);

	jinja_work(j, len);
	*s = (struct jstr){ .p = p, .len = len, .n_cp = jstr_cp_count(p, len) };
	s->taint = trusted ? JTAINT_TRUSTED : JTAINT_UNTRUSTED;
	return s;
}

struct jstr *jstr_copy(struct jinja *j, const char *p, size_t len, bool trusted)
{
	struct jtext *t = jtext_new(j, len);

	jtext_put(j, t, p, len, trusted);
	return jtext_str(j, t);
}

struct jstr *jstr_lit(struct jinja *j, const char *s, bool trusted)
{
	return jstr_ref(j, s, strlen(s), trusted);
}

struct jstr *jstr_format(struct jinja *j, bool trusted, const char *fmt, ...)
{
	char small[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof small, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n >= sizeof small)
		n = sizeof small - 1;
	return jstr_copy(j, small, n > 0 ? (size_t)n : 0, trusted);
}

/* Index of the run that holds byte `at` of the text. */
static size_t run_find(const struct jtext *t, size_t at)
{
	size_t lo = 0, hi = t->n_runs - 1;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->runs[mid].end > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

bool jstr_run(const struct jstr *s, size_t at, size_t *len)
{
	size_t i, end;

	*len = s->len - at;
	if (s->taint != JTAINT_MIXED)
		return s->taint == JTAINT_TRUSTED;
	i = run_find(s->text, s->off + at);
	end = s->text->runs[i].end - s->off;
	if (end - at < *len)
		*len = end - at;
	return s->text->runs[i].trusted;
}

bool jstr_trusted_at(const struct jstr *s, size_t byte)
{
	size_t n;

	return jstr_run(s, byte, &n);
}

static struct jstr *str_view(struct jinja *j, const struct jstr *s, size_t off, size_t len, size_t n_cp)
{
	struct jstr *v;
	size_t n;
	bool trusted;

	if (off == 0 && len == s->len)
		return (struct jstr *)s;
	v = jinja_alloc(j, sizeof *v);
	*v = *s;
	v->p += off;
	v->off += off;
	v->len = len;
	v->n_cp = n_cp;
	v->hash = 0;
	if (s->taint != JTAINT_MIXED || !len) {
		if (!len)
			v->taint = JTAINT_TRUSTED;
		return v;
	}
	trusted = jstr_run(s, off, &n);
	if (n >= len)
		v->taint = trusted ? JTAINT_TRUSTED : JTAINT_UNTRUSTED;
	return v;
}

struct jstr *jstr_sub(struct jinja *j, const struct jstr *s, size_t off, size_t len)
{
	if (s->n_cp == s->len)
		return str_view(j, s, off, len, len);
	jinja_work(j, len);
	return str_view(j, s, off, len, jstr_cp_count(s->p + off, len));
}

struct jstr *jstr_sub_cp(struct jinja *j, const struct jstr *s, size_t from, size_t n)
{
	size_t off, end;

	if (s->n_cp == s->len)
		return str_view(j, s, from, n, n);
	jinja_work(j, s->len * 2);
	off = jstr_byte_of(s, from);
	end = off;
	for (size_t i = 0; i < n; i++)
		end += utf8_decode(s->p + end, s->len - end, NULL);
	return str_view(j, s, off, end - off, n);
}

/* Appends to the text that `a` ends, if nothing was appended since: building a string piece by piece stays linear. */
struct jstr *jstr_concat(struct jinja *j, const struct jstr *a, const struct jstr *b)
{
	struct jtext *t = a->text;
	struct jstr *s;
	size_t off = a->off;

	if (!a->len || !b->len)
		return (struct jstr *)(a->len ? a : b);
	if (!t || off + a->len != t->used || !t->cap) {
		size_t need = b->len < j->text_max && a->len < j->text_max ? a->len + b->len : 0;

		t = jtext_new(j, need + need / 2);
		jtext_put_str(j, t, a);
		off = 0;
	}
	jtext_put_str(j, t, b);
	s = jinja_alloc(j, sizeof *s);
	*s = (struct jstr){
		.p = t->data + off, .len = a->len + b->len, .n_cp = a->n_cp + b->n_cp, .text = t, .off = off
	};
	s->taint = a->taint == b->taint ? a->taint : JTAINT_MIXED;
	return s;
}

struct jstr *jstr_repeat(struct jinja *j, const struct jstr *s, int64_t n)
{
	struct jtext *t;

	if (n == 1 || !s->len)
		return (struct jstr *)s;
	t = jtext_new(j, 0);
	jtext_put_fill(j, t, s, n < 0 ? 0 : (size_t)n);
	return jtext_str(j, t);
}

struct jstr *jstr_with(struct jinja *j, const struct jstr *s, bool markup)
{
	struct jstr *c;

	if (s->markup == markup)
		return (struct jstr *)s;
	c = jinja_alloc(j, sizeof *c);
	*c = *s;
	c->markup = markup;
	return c;
}

struct jstr *jstr_retaint(struct jinja *j, const struct jstr *s, bool trusted)
{
	struct jstr *c;
	enum jtaint want = trusted ? JTAINT_TRUSTED : JTAINT_UNTRUSTED;

	if (s->taint == want)
		return (struct jstr *)s;
	c = jinja_alloc(j, sizeof *c);
	*c = *s;
	c->text = NULL;
	c->off = 0;
	c->taint = want;
	return c;
}

bool jstr_eq(const struct jstr *a, const struct jstr *b)
{
	return a->len == b->len && (a->p == b->p || !memcmp(a->p, b->p, a->len));
}

bool jstr_is(const struct jstr *s, const char *lit)
{
	size_t n = strlen(lit);

	return s->len == n && !memcmp(s->p, lit, n);
}

int jstr_cmp(const struct jstr *a, const struct jstr *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int c = memcmp(a->p, b->p, n);

	return c ? c : (a->len > b->len) - (a->len < b->len);
}

uint64_t jstr_hash(struct jstr *s)
{
	uint64_t h = 0xcbf29ce484222325u ^ s->len;

	if (s->hash)
		return s->hash;
	for (size_t i = 0; i < s->len; i++)
		h = (h ^ (uint8_t)s->p[i]) * 0x100000001b3u;
	h ^= h >> 29;
	s->hash = h ? h : 1;
	return s->hash;
}

size_t jstr_byte_of(const struct jstr *s, size_t cp_index)
{
	size_t at = 0;

	if (cp_index >= s->n_cp)
		return s->len;
	if (s->n_cp == s->len)
		return cp_index;
	while (cp_index--) {
		uint8_t lead = (uint8_t)s->p[at];

		at += lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
	}
	return at;
}

size_t jstr_cp_of(const struct jstr *s, size_t byte)
{
	return s->n_cp == s->len ? byte : jstr_cp_count(s->p, byte);
}

size_t jstr_find(struct jinja *j, const struct jstr *s, const struct jstr *needle, size_t from, size_t to)
{
	const char *hit;
	size_t seen;

	if (from > to || needle->len > to - from)
		return SIZE_MAX;
	if (!needle->len)
		return from;
	hit = memmem(s->p + from, to - from, needle->p, needle->len);
	seen = hit ? (size_t)(hit - s->p) - from : to - from;
	jinja_work(j, seen + seen / 16 * (needle->len < 256 ? needle->len : 256) + needle->len);
	return hit ? (size_t)(hit - s->p) : SIZE_MAX;
}

size_t jstr_rfind(struct jinja *j, const struct jstr *s, const struct jstr *needle, size_t from, size_t to)
{
	if (from > to || needle->len > to - from)
		return SIZE_MAX;
	if (!needle->len)
		return to;
	for (size_t at = to - needle->len + 1; at-- > from;) {
		if (s->p[at] == needle->p[0]) {
			jinja_step(j, 1 + needle->len / 32);
			if (!memcmp(s->p + at, needle->p, needle->len))
				return at;
		}
		if (at % 32 == 0)
			jinja_step(j, 1);
	}
	return SIZE_MAX;
}

bool jcursor_next(struct jcursor *c)
{
	c->at += c->n;
	if (c->at >= c->s->len) {
		c->n = 0;
		return false;
	}
	if (c->at >= c->run_end) {
		size_t n;

		c->trusted = jstr_run(c->s, c->at, &n);
		c->run_end = c->at + n;
	}
	c->n = utf8_decode(c->s->p + c->at, c->s->len - c->at, &c->cp);
	if (!c->n) { /* cannot be: strings are checked where they come in */
		c->n = 1;
		c->cp = 0xfffd;
	}
	return true;
}

const char *jstr_show(const struct jstr *s, char *out, size_t room)
{
	size_t n = s->len < room ? s->len : room - 1;

	while (n && n < s->len && ((uint8_t)s->p[n] & 0xc0) == 0x80)
		n--;
	memcpy(out, s->p, n);
	out[n] = 0;
	return out;
}
