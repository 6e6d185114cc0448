/* SPDX-License-Identifier: Apache-2.0
 * Properties and case of code points as Python's str methods see them: libutf8proc for categories and simple
 * case, small tables here for what it lacks. Newer characters may differ by Unicode version.
 */
#ifndef ENGINE_JINJA_UNICODE_H
#define ENGINE_JINJA_UNICODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum junicode_case { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_FOLD };

/* Writes the 1..4 code points that cp becomes; final sigma is the caller's. */
size_t junicode_case(enum junicode_case to, uint32_t cp, uint32_t out[4]);
bool junicode_is_space(uint32_t cp);
bool junicode_is_line_end(uint32_t cp); /* what splitlines cuts at */
bool junicode_is_alpha(uint32_t cp);
bool junicode_is_upper(uint32_t cp);
bool junicode_is_lower(uint32_t cp);
bool junicode_is_title(uint32_t cp);
static inline bool junicode_is_cased(uint32_t cp)
{
	return junicode_is_upper(cp) || junicode_is_lower(cp) || junicode_is_title(cp);
}
bool junicode_is_case_ignorable(uint32_t cp);
int junicode_decimal(uint32_t cp);   /* 0..9, or -1 */
bool junicode_is_digit(uint32_t cp); /* decimals, superscripts, circled ... */
bool junicode_is_numeric(uint32_t cp);
bool junicode_is_printable(uint32_t cp);
bool junicode_is_name_start(uint32_t cp); /* of an identifier; '_' included */
bool junicode_is_name_part(uint32_t cp);
static inline bool junicode_is_alnum(uint32_t cp) { return junicode_is_alpha(cp) || junicode_is_numeric(cp); }
static inline bool junicode_is_word(uint32_t cp) { return cp == '_' || junicode_is_alnum(cp); }
#endif
