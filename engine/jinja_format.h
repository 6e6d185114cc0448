/* SPDX-License-Identifier: Apache-2.0
 * Python's two ways to fill in a string: "%s" % x and "{}".format(x). What is filled in keeps its trust, the text
 * around it keeps that of the format.
 */
#ifndef ENGINE_JINJA_FORMAT_H
#define ENGINE_JINJA_FORMAT_H
#include "engine/jinja_call.h"

struct jspec {			 /* what stands behind '%' or ':' */
	const struct jstr *fill; /* NULL: a space */
	char align;		 /* '<', '>', '^', '='; 0: not said */
	char sign;		 /* '+', ' '; 0: only minus */
	bool alt, zero;
	char group;		  /* ',' or '_'; 0: none */
	int64_t width, precision; /* -1: not said */
	char type;		  /* 0: not said */
};

struct jstr *jformat_percent(struct jinja *j, struct jstr *fmt, struct jval arg);
/* fmt.format(*args, **kwargs); kwargs is NULL or a dictionary. */
struct jstr *jformat_braces(
	struct jinja *j, struct jstr *fmt, const struct jval *args, size_t n, struct jdict *kwargs);

/* One number by a spec (jinja_format_num.c): d i u o x X b c e E f F g G n %. */
void jformat_number(struct jinja *j, struct jtext *t, const struct jspec *s, struct jval v);
/* Text with fill and width. */
void jformat_put(
	struct jinja *j, struct jtext *t, const struct jspec *s, const struct jstr *text, char default_align);
#endif
