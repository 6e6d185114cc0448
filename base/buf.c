/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/checked.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, enum mem_area area, size_t limit_bytes)
{
	*b = (struct buf){ .area = area, .limit = limit_bytes };
}

void buf_finish(struct buf *b)
{
	MEM_CLEAR(b->data);
	b->len = b->cap = 0;
}

bool buf_reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	char *p;

	if (b->failed || !checked_add_size(b->len, more, &need) || (b->limit && need > b->limit) ||
		!checked_add_size(need, 1, &need)) {
		b->failed = true;
		return false;
	}
	if (need <= b->cap)
		return true;
	cap = b->cap + b->cap / 2 < need ? need : b->cap + b->cap / 2;
	if (cap < 64)
		cap = 64;
	p = mem_resize(b->area, b->data, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	return true;
}

bool buf_append(struct buf *b, const void *data, size_t len)
{
	if (!buf_reserve(b, len))
		return false;
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = 0;
	return true;
}

bool buf_puts(struct buf *b, const char *s) { return buf_append(b, s, strlen(s)); }
bool buf_putc(struct buf *b, char c) { return buf_append(b, &c, 1); }

bool buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !buf_reserve(b, (size_t)n))
		return false;
	va_start(ap, fmt);
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return true;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = 0;
}

char *buf_take(struct buf *b, size_t *len)
{
	char *p = NULL;

	if (!b->failed && buf_reserve(b, 0)) {
		p = b->data;
		p[b->len] = 0;
		if (len)
			*len = b->len;
		b->data = NULL;
	}
	buf_finish(b);
	return p;
}
