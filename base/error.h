/* SPDX-License-Identifier: Apache-2.0
 * An error is a code plus one sentence for people: "<what>: <why>; <what to do>". Functions return the code
 * (0 or negative, include/tenon/error.h) and fill the caller's record, which may be NULL. Libraries never log
 * and never exit; they return. Text never holds prompts, addresses or another client's data.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H
#include "tenon/error.h"

struct error {
	int code;
	char text[256]; /* always terminated */
};

/* Fills `e` (may be NULL) and returns `code`, so that `return error_set(e, CODE, "...")` reads well. */
int error_set(struct error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same with ": strerror(err)" behind the text. */
int error_errno(struct error *e, int code, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Puts "context: " in front of what is there. */
void error_prefix(struct error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *error_name(int code);    /* "too_long"; "unknown" for a number outside the table */
const char *error_meaning(int code); /* the sentence of the table                              */
#endif
