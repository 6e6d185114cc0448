/* SPDX-License-Identifier: Apache-2.0
 * Lines of at most so many characters, broken where Python's textwrap breaks them.
 */
#ifndef ENGINE_JINJA_WRAP_H
#define ENGINE_JINJA_WRAP_H
#include "engine/jinja_value.h"

struct jwrap {
	int64_t width;
	bool break_long, break_hyphens;
};
struct jlist *jwrap_lines(struct jinja *j, const struct jstr *s, const struct jwrap *w);
#endif
