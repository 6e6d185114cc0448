/* SPDX-License-Identifier: Apache-2.0
 * Methods by the type that has them.
 */
#ifndef ENGINE_JINJA_METHODS_H
#define ENGINE_JINJA_METHODS_H
#include "engine/jinja_call.h"

const struct jbuiltin *jmethod_find_str(const struct jstr *self, const struct jstr *name);
/* str.isupper and str.islower, which are tests too. */
bool jstr_is_case(struct jinja *j, const struct jstr *s, bool upper);
#endif
