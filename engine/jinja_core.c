/* SPDX-License-Identifier: Apache-2.0
 * Arena and failure of the template interpreter (jinja_core.h).
 */
#include "engine/jinja_core.h"
#include "base/checked.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)

struct jinja_chunk {
	struct jinja_chunk *next;
	size_t bytes;
};
_Static_assert(sizeof(struct jinja_chunk) % 16 == 0, "what follows the head is aligned");

void jinja_init(struct jinja *j, size_t memory_max, uint64_t steps_max, uint32_t depth_max, size_t text_max)
{
	memset(j, 0, sizeof *j);
	j->memory_max = memory_max;
	j->steps_max = steps_max;
	j->depth_max = depth_max;
	j->text_max = text_max;
}

void jinja_finish(struct jinja *j)
{
	while (j->chunks) {
		struct jinja_chunk *c = j->chunks;

		j->chunks = c->next;
		mem_free(c);
	}
	j->at = j->end = NULL;
	j->memory_used = 0;
}

enum jinja_failure jinja_protect(struct jinja *j, void (*fn)(struct jinja *j, void *arg), void *arg)
{
	jmp_buf back;

	j->why = JFAIL_NONE;
	j->fail = &back;
	if (!setjmp(back))
		fn(j, arg);
	j->fail = NULL;
	return j->why;
}

void jinja_fail_message(struct jinja *j, enum jinja_failure why, const char *text, size_t len)
{
	j->why = why;
	j->message = text;
	j->message_len = len;
	longjmp(*j->fail, 1);
}

void jinja_fail(struct jinja *j, enum jinja_failure why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(j->text, sizeof j->text, fmt, ap);
	va_end(ap);
	jinja_fail_message(j, why, NULL, 0);
}

void jinja_fail_steps(struct jinja *j)
{
	jinja_fail(j, JFAIL_LIMIT, "more than %llu steps; the template does too much work",
		(unsigned long long)j->steps_max);
}

void jinja_fail_depth(struct jinja *j)
{
	jinja_fail(j, JFAIL_LIMIT, "nested more than %u deep", j->depth_max);
}

static void chunk_add(struct jinja *j, size_t need)
{
	size_t bytes = j->chunks ? j->chunks->bytes * 2 : CHUNK_MIN, all;
	struct jinja_chunk *c;

	if (bytes > CHUNK_MAX)
		bytes = CHUNK_MAX;
	if (!checked_add_size(need, sizeof *c, &all))
		all = SIZE_MAX;
	if (bytes < all)
		bytes = all;
	if (j->memory_used >= j->memory_max || bytes > j->memory_max - j->memory_used)
		bytes = all;
	if (bytes > j->memory_max - j->memory_used)
		jinja_fail(j, JFAIL_LIMIT, "more than %zu bytes of memory", j->memory_max);
	c = mem_alloc(MEM_TEMPLATE, bytes);
	if (!c)
		jinja_fail(j, JFAIL_NOMEM, "out of memory");
	c->next = j->chunks;
	c->bytes = bytes;
	j->chunks = c;
	j->memory_used += bytes;
	j->at = (char *)(c + 1);
	j->end = (char *)c + bytes;
}

void *jinja_alloc(struct jinja *j, size_t bytes)
{
	uint64_t room;
	void *p;

	if (!checked_align_up(bytes, 16, &room) || room > j->memory_max)
		room = j->memory_max; /* refused in chunk_add: the head no longer fits */
	if ((size_t)(j->end - j->at) < room)
		chunk_add(j, (size_t)room);
	p = j->at;
	j->at += room;
	return p;
}

void *jinja_alloc_n(struct jinja *j, size_t n, size_t bytes)
{
	size_t all;

	if (!checked_mul_size(n, bytes, &all))
		all = SIZE_MAX;
	return jinja_alloc(j, all);
}

void *jinja_zalloc(struct jinja *j, size_t n, size_t bytes)
{
	void *p = jinja_alloc_n(j, n, bytes);

	return memset(p, 0, n * bytes);
}

void *jinja_realloc(struct jinja *j, void *p, size_t old_bytes, size_t new_bytes)
{
	size_t old_room = (old_bytes + 15) & ~(size_t)15, have;
	void *q;

	if (p && new_bytes >= old_bytes && (char *)p + old_room == j->at) {
		have = (size_t)(j->end - (char *)p);
		if (new_bytes <= have && ((new_bytes + 15) & ~(size_t)15) <= have) {
			j->at = (char *)p + ((new_bytes + 15) & ~(size_t)15);
			return p;
		}
	}
	q = jinja_alloc(j, new_bytes);
	if (old_bytes)
		memcpy(q, p, old_bytes < new_bytes ? old_bytes : new_bytes);
	return q;
}

size_t jinja_grow(struct jinja *j, void *items_ptr, size_t cap, size_t need, size_t bytes)
{
	void *items;
	size_t more = cap < 4 ? 4 : cap + cap / 2, all;

	if (need <= cap)
		return cap;
	if (more < need)
		more = need;
	if (!checked_mul_size(more, bytes, &all))
		all = SIZE_MAX;
	memcpy(&items, items_ptr, sizeof items);
	items = jinja_realloc(j, items, cap * bytes, all);
	memcpy(items_ptr, &items, sizeof items);
	return more;
}
