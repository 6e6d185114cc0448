/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	return code;
}

int error_errno(struct error *e, int code, int err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!e)
		return code;
	e->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	(void)snprintf(e->text + n, sizeof e->text - n, ": %s", strerror(err));
	return code;
}

void error_prefix(struct error *e, const char *fmt, ...)
{
	char old[sizeof e->text];
	va_list ap;
	size_t n;

	if (!e)
		return;
	memcpy(old, e->text, sizeof old);
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	(void)snprintf(e->text + n, sizeof e->text - n, ": %s", old);
}

const char *error_name(int code)
{
	switch (code) {
#define TENON_X(sym, num, name, text)                                                                        \
	case num:                                                                                            \
		return name;
		TENON_ERRORS(TENON_X)
#undef TENON_X
	}
	return "unknown";
}

const char *error_meaning(int code)
{
	switch (code) {
#define TENON_X(sym, num, name, text)                                                                        \
	case num:                                                                                            \
		return text;
		TENON_ERRORS(TENON_X)
#undef TENON_X
	}
	return "unknown code";
}
