/* SPDX-License-Identifier: Apache-2.0
 * Strings of the template interpreter: immutable views of UTF-8 bytes that know their length in code points and,
 * byte range by byte range, whether the template wrote them (trusted) or they came with the request. Lengths and
 * indices that templates see are code points; functions here that take bytes say so.
 */
#ifndef ENGINE_JINJA_STR_H
#define ENGINE_JINJA_STR_H
#include "engine/jinja_core.h"

struct jrun { /* bytes from the end of the run before up to `end` */
	size_t end;
	bool trusted;
};

/* Bytes that grow at the end only, so that strings made of their beginning stay valid. */
struct jtext {
	char *data;
	size_t used, cap;
	struct jrun *runs; /* [n_runs], neighbours differ, the last ends at `used` */
	size_t n_runs, cap_runs;
};

enum jtaint { JTAINT_TRUSTED, JTAINT_UNTRUSTED, JTAINT_MIXED };

struct jstr {
	const char *p;	    /* not terminated */
	size_t len, n_cp;   /* bytes, code points; equal for ASCII */
	struct jtext *text; /* holder of p's bytes from `off` on, or NULL; never NULL when taint is mixed */
	size_t off;
	uint64_t hash; /* 0: not computed yet */
	uint8_t taint;
	bool markup; /* marked as safe HTML: other strings are escaped when they meet it */
};

/* ---- building ---- */
void jtext_init(struct jinja *j, struct jtext *t, size_t cap);
struct jtext *jtext_new(struct jinja *j, size_t cap);
void jtext_put(struct jinja *j, struct jtext *t, const char *p, size_t n, bool trusted);
void jtext_putc(struct jinja *j, struct jtext *t, char c, bool trusted);
void jtext_put_cp(struct jinja *j, struct jtext *t, uint32_t cp, bool trusted);
void jtext_put_fill(struct jinja *j, struct jtext *t, const struct jstr *s, size_t times);
void jtext_put_str(struct jinja *j, struct jtext *t, const struct jstr *s);
void jtext_put_bytes(
	struct jinja *j, struct jtext *t, const struct jstr *s, size_t off, size_t len); /* a part of s */
void jtext_printf(struct jinja *j, struct jtext *t, bool trusted, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
struct jstr *jtext_str(struct jinja *j, struct jtext *t); /* all of it, as it is now */

struct jstr *jstr_ref(
	struct jinja *j, const char *p, size_t len, bool trusted); /* keeps p, which must be valid UTF-8 */
struct jstr *jstr_copy(struct jinja *j, const char *p, size_t len, bool trusted);
struct jstr *jstr_lit(struct jinja *j, const char *s, bool trusted); /* a C string constant */
struct jstr *jstr_format(struct jinja *j, bool trusted, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
struct jstr *jstr_sub(
	struct jinja *j, const struct jstr *s, size_t off, size_t len); /* bytes [off, off + len) */
struct jstr *jstr_sub_cp(struct jinja *j, const struct jstr *s, size_t from, size_t n); /* code points */
struct jstr *jstr_concat(struct jinja *j, const struct jstr *a, const struct jstr *b);
struct jstr *jstr_repeat(struct jinja *j, const struct jstr *s, int64_t n);
struct jstr *jstr_with(struct jinja *j, const struct jstr *s, bool markup); /* the same text, marked or not */
/* All of it trusted or all of it untrusted, whatever it was. */
struct jstr *jstr_retaint(struct jinja *j, const struct jstr *s, bool trusted);

/* ---- reading ---- */
static inline bool jstr_trusted(const struct jstr *s) { return s->taint == JTAINT_TRUSTED; }
bool jstr_trusted_at(const struct jstr *s, size_t byte);
/* The run that holds byte `at`: its trust; *len: bytes from `at` to its end. */
bool jstr_run(const struct jstr *s, size_t at, size_t *len);
bool jstr_eq(const struct jstr *a, const struct jstr *b);
bool jstr_is(const struct jstr *s, const char *lit);
int jstr_cmp(const struct jstr *a, const struct jstr *b); /* by code point */
uint64_t jstr_hash(struct jstr *s);
size_t jstr_byte_of(
	const struct jstr *s, size_t cp_index);	      /* offset of a code point; len when past the end */
size_t jstr_cp_of(const struct jstr *s, size_t byte); /* code points before a byte */
size_t jstr_cp_count(const char *p, size_t len);
/* Byte offset of the first (last) needle in bytes [from, to) of s; SIZE_MAX if none. An empty needle is found. */
size_t jstr_find(struct jinja *j, const struct jstr *s, const struct jstr *needle, size_t from, size_t to);
size_t jstr_rfind(struct jinja *j, const struct jstr *s, const struct jstr *needle, size_t from, size_t to);

/* Walks code points. */
struct jcursor {
	const struct jstr *s;
	size_t at, run_end; /* bytes */
	uint32_t cp;	    /* the current one */
	size_t n;	    /* its bytes */
	bool trusted;
};
static inline struct jcursor jcursor_of(const struct jstr *s) { return (struct jcursor){ .s = s }; }
bool jcursor_next(struct jcursor *c); /* false at the end */

/* Writes s into a C string, cut at room, for messages. */
const char *jstr_show(const struct jstr *s, char *out, size_t room);
#define JSTR_SHOW(s) jstr_show((s), (char[96]){ 0 }, 96)
#endif
