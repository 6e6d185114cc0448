/* SPDX-License-Identifier: Apache-2.0
 * JSON text to values and back, as Python's json module does it: integers of any length, key order kept, the last of
 * equal keys wins, NaN and Infinity known. Unlike Python, a lone surrogate escape is an error: text here is UTF-8.
 */
#ifndef ENGINE_JINJA_JSON_H
#define ENGINE_JINJA_JSON_H
#include "engine/jinja_value.h"

/* All strings untrusted; they refer to `text` where they have no escapes. Fails with JFAIL_JSON or a limit. */
struct jval jjson_parse(struct jinja *j, const char *text, size_t len);

struct jjson_style { /* of json.dumps */
	bool ensure_ascii, sort_keys;
	const struct jstr *indent; /* NULL: all on one line */
	const struct jstr *item_sep, *key_sep;
};
void jjson_dump(struct jinja *j, struct jtext *t, struct jval v, const struct jjson_style *s);

/* Where member `key` of the JSON object stands in text: its value as text. The last of equal keys; keys with escapes
 * are not seen. The text need not be valid. */
bool jjson_member(const char *text, size_t len, const char *key, const char **value, size_t *value_len);
#endif
