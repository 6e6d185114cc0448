/* SPDX-License-Identifier: Apache-2.0
 * Ground of the template interpreter: one struct jinja per parse or per render, with an arena under a byte
 * limit, a step and a depth budget, and one way to fail. Nothing below jinja_protect owns memory outside the
 * arena, so a failure is a single jump back there and freeing the arena is the whole clean-up.
 * Owner: the thread that parses or renders.
 */
#ifndef ENGINE_JINJA_CORE_H
#define ENGINE_JINJA_CORE_H
#include "base/error.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jinja_failure {
	JFAIL_NONE,
	JFAIL_SYNTAX,	 /* the template is malformed                    */
	JFAIL_RAISE,	 /* raise_exception: message is for the client   */
	JFAIL_UNDEFINED, /* an undefined value was used                  */
	JFAIL_TYPE,	 /* operands of the wrong type                   */
	JFAIL_VALUE,	 /* right type, impossible value                 */
	JFAIL_SECURITY,	 /* what the sandbox forbids                     */
	JFAIL_LIMIT,	 /* steps, depth, output, range, integer size... */
	JFAIL_NOMEM,
	JFAIL_JSON /* the input, not the template                  */
};

struct jinja_chunk;
struct jinja_run; /* jinja_eval.h: state of a render */

struct jinja {
	struct jinja_chunk *chunks;	/* newest first */
	char *at, *end;			/* free part of the newest chunk */
	size_t memory_used, memory_max; /* bytes of chunks */
	size_t text_max;		/* most bytes of one string */
	uint64_t steps, steps_max;
	uint32_t depth, depth_max;
	uint32_t line; /* of the template, where evaluation stands; 0: unknown */
	enum jinja_failure why;
	const char *message; /* whole text of a raise_exception; else NULL */
	size_t message_len;
	char text[320];
	jmp_buf *fail;
	struct jinja_run *run;
};

void jinja_init(struct jinja *j, size_t memory_max, uint64_t steps_max, uint32_t depth_max, size_t text_max);
void jinja_finish(struct jinja *j); /* frees the arena */

/* Runs fn; JFAIL_NONE, or why it failed (text and line are then filled). Not re-entrant. */
enum jinja_failure jinja_protect(struct jinja *j, void (*fn)(struct jinja *j, void *arg), void *arg);
_Noreturn void jinja_fail(struct jinja *j, enum jinja_failure why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Fails with a message of any length, which must live in the arena or longer. */
_Noreturn void jinja_fail_message(struct jinja *j, enum jinja_failure why, const char *text, size_t len);

/* Aligned to 16, not cleared; fails over the limit. Blocks live as long as the arena. */
void *jinja_alloc(struct jinja *j, size_t bytes);
void *jinja_alloc_n(struct jinja *j, size_t n, size_t bytes); /* [n][bytes], overflow-checked */
void *jinja_zalloc(struct jinja *j, size_t n, size_t bytes);  /* the same, cleared */
/* A block of new_bytes that begins with the old content; grows in place when it can. */
void *jinja_realloc(struct jinja *j, void *p, size_t old_bytes, size_t new_bytes);
/* Next capacity of a growing array of `bytes`-sized elements that must hold `need`; moves *items there. */
size_t jinja_grow(struct jinja *j, void *items_ptr, size_t cap, size_t need, size_t bytes);

_Noreturn void jinja_fail_steps(struct jinja *j);
_Noreturn void jinja_fail_depth(struct jinja *j);

/* Work done: one step is roughly one visited node; bulk work counts a step for every 32 bytes. */
static inline void jinja_step(struct jinja *j, uint64_t n)
{
	j->steps += n;
	if (j->steps > j->steps_max || j->steps < n)
		jinja_fail_steps(j);
}
static inline void jinja_work(struct jinja *j, size_t bytes) { jinja_step(j, bytes / 32); }

static inline void jinja_enter(struct jinja *j)
{
	if (++j->depth > j->depth_max)
		jinja_fail_depth(j);
}
static inline void jinja_leave(struct jinja *j) { j->depth--; }
#endif
