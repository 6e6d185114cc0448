/* SPDX-License-Identifier: Apache-2.0
 * Filters, by file: jinja_filters.c (table, conversions, numbers), jinja_filters_seq.c (sequences),
 * jinja_filters_lazy.c (those that give generators), jinja_filters_text.c, jinja_pprint.c, jinja_tojson.c. `self` is what is filtered.
 */
#ifndef ENGINE_JINJA_FILTERS_H
#define ENGINE_JINJA_FILTERS_H
#include "engine/jinja_call.h"

#define JFILTER(name)                                                                                        \
	struct jval jfilter_##name(                                                                          \
		struct jinja *j, struct jval self, struct jval *argv, const struct jcall *call)

JFILTER(tojson);
JFILTER(pprint);
/* sequences */
JFILTER(dictsort);
JFILTER(first);
JFILTER(groupby);
JFILTER(join);
JFILTER(last);
JFILTER(list);
JFILTER(max);
JFILTER(min);
JFILTER(random);
JFILTER(reverse);
JFILTER(sort);
JFILTER(sum);
/* generators */
JFILTER(batch);
JFILTER(items);
JFILTER(map);
JFILTER(reject);
JFILTER(rejectattr);
JFILTER(select);
JFILTER(selectattr);
JFILTER(slice);
JFILTER(unique);
/* text */
JFILTER(capitalize);
JFILTER(center);
JFILTER(escape);
JFILTER(filesizeformat);
JFILTER(forceescape);
JFILTER(format);
JFILTER(indent);
JFILTER(lower);
JFILTER(replace);
JFILTER(safe);
JFILTER(string);
JFILTER(striptags);
JFILTER(title);
JFILTER(trim);
JFILTER(truncate);
JFILTER(upper);
JFILTER(urlencode);
JFILTER(wordcount);
JFILTER(wordwrap);
JFILTER(xmlattr);

static inline bool jarg_given(struct jval v) { return v.kind != JV_MISSING; }
bool jarg_bool(struct jinja *j, struct jval v, bool otherwise);
/* The same where Python insists on an integer: none, strings and lists are type errors. */
bool jarg_flag(struct jinja *j, struct jval v, const char *what);
int64_t jarg_int(struct jinja *j, struct jval v, int64_t otherwise, const char *what);
/* Strings in lower case, anything else as it is: how sorting and comparing filters see values by default. */
struct jval jval_fold(struct jinja *j, struct jval v);
#endif
