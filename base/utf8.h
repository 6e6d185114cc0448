/* SPDX-License-Identifier: Apache-2.0
 * UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length 1..4 of the well-formed character at s; 0 when malformed or cut off by `len`. `cp` may be NULL. */
size_t utf8_decode(const char *s, size_t len, uint32_t *cp);
/* Writes 1..4 bytes; 0 for a surrogate or a number above U+10FFFF. */
size_t utf8_encode(uint32_t cp, char out[4]);
/* True when all `len` bytes are well formed; else *bad is the offset of the first fault (may be NULL). */
bool utf8_valid(const char *s, size_t len, size_t *bad);
/* Bytes at the end of s that begin a character but do not finish it (0..3): what a stream must hold back. */
size_t utf8_incomplete_tail(const char *s, size_t len);
#endif
