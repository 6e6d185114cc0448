/* SPDX-License-Identifier: Apache-2.0
 * Operations on strings that filters and methods share, with Python's results. Bytes keep their trust; what is put
 * between them takes it from the string that asked for it. The markup flag of the result is that of s.
 */
#ifndef ENGINE_JINJA_STROPS_H
#define ENGINE_JINJA_STROPS_H
#include "engine/jinja_unicode.h"
#include "engine/jinja_value.h"

enum { JSTRIP_LEFT = 1, JSTRIP_RIGHT = 2, JSTRIP_BOTH = 3 };
struct jstr *jstr_strip(struct jinja *j, const struct jstr *s, const struct jstr *chars,
	int sides); /* chars NULL: white space */
struct jstr *jstr_case(struct jinja *j, const struct jstr *s, enum junicode_case to);
struct jstr *jstr_capitalize(struct jinja *j, const struct jstr *s);
struct jstr *jstr_title(struct jinja *j, const struct jstr *s);
struct jstr *jstr_swapcase(struct jinja *j, const struct jstr *s);
/* count < 0: all. When `from` is not trusted, neither is the result. */
struct jstr *jstr_replace(
	struct jinja *j, const struct jstr *s, const struct jstr *from, const struct jstr *to, int64_t count);
enum { JPAD_LEFT = 1, JPAD_RIGHT = 2, JPAD_CENTER = 3 }; /* where the fill goes */
struct jstr *jstr_pad(
	struct jinja *j, const struct jstr *s, int64_t width, const struct jstr *fill, int where);
struct jlist *jstr_split_space(struct jinja *j, const struct jstr *s, int64_t max, bool from_right);
struct jlist *jstr_split(
	struct jinja *j, const struct jstr *s, const struct jstr *sep, int64_t max, bool from_right);
struct jlist *jstr_splitlines(struct jinja *j, const struct jstr *s, bool keep_ends);
struct jstr *jstr_join(
	struct jinja *j, const struct jstr *sep, const struct jlist *parts); /* parts are strings */
struct jstr *jstr_striptags(struct jinja *j, const struct jstr *s);
#endif
