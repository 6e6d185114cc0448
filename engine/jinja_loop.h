/* SPDX-License-Identifier: Apache-2.0
 * The `loop` of a for block: position, peeking, cycle, changed, recursion.
 */
#ifndef ENGINE_JINJA_LOOP_H
#define ENGINE_JINJA_LOOP_H
#include "engine/jinja_call.h"

struct jloop {
	struct jval iterable;
	struct jiter *it;
	int64_t index0;	   /* -1 before the first round */
	int64_t length;	   /* -1: not known yet */
	struct jval after; /* taken early by last or nextitem; JV_MISSING: not */
	struct jval current, before;
	struct jlist *changed;	      /* arguments of the last changed(); NULL: never called */
	const struct jnode_for *node; /* when it may be called to recurse */
	struct jactivation *outer;
	int64_t depth0;
};

struct jloop *jloop_new(struct jinja *j, struct jval iterable);
bool jloop_next(struct jinja *j, struct jloop *l, struct jval *item);
int64_t jloop_length(struct jinja *j, struct jloop *l);
bool jloop_attribute(struct jinja *j, struct jval loop, const struct jstr *name, struct jval *out);
#endif
