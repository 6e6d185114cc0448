/* SPDX-License-Identifier: Apache-2.0
 * Growable byte buffer. A failed growth sticks (`failed`), so that a run of appends needs one test at its end.
 * Owner: one thread. The bytes always have a terminating zero behind `len` once something was appended.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len, cap;
	size_t limit;       /* most bytes it may hold; 0: no limit */
	enum mem_area area;
	bool failed;        /* out of memory or over the limit since buf_init */
};

void buf_init(struct buf *b, enum mem_area area, size_t limit_bytes);
void buf_finish(struct buf *b);
bool buf_reserve(struct buf *b, size_t more); /* room for `more` bytes and a zero */
bool buf_append(struct buf *b, const void *data, size_t len);
bool buf_puts(struct buf *b, const char *s);
bool buf_putc(struct buf *b, char c);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(struct buf *b);               /* length 0, memory kept, `failed` cleared  */
char *buf_take(struct buf *b, size_t *len);  /* hands the block over (mem_free it); NULL when failed; len may be NULL */
#endif
