/* SPDX-License-Identifier: Apache-2.0
 * From token ids to streamed text: never half a UTF-8 character, never a byte of a stop string. Text that might
 * still become a stop string or a character is held back and comes with a later token or at the end. Owner: one
 * thread. No allocation after create as long as the caller's buffer has room.
 */
#ifndef ENGINE_EMIT_H
#define ENGINE_EMIT_H
#include "engine/tokenizer.h"

struct emit_stop { const char *s; size_t len; };
struct emit_options {
	const struct emit_stop *stops; /* [n_stops], copied; an empty string is INVALID */
	size_t n_stops;                /* at most 16, each 1..256 bytes */
	bool special;                  /* control tokens appear as their text */
	bool ignore_eos;               /* end-of-generation tokens do not end it */
};
enum emit_end { EMIT_GO_ON, EMIT_END_TOKEN, EMIT_END_STRING };

struct emitter;
int emitter_create(const struct tokenizer *t, const struct emit_options *o, struct emitter **out, struct error *e);
void emitter_destroy(struct emitter *m);
/* Adds one token; appends the text released by it to `out`. *end tells whether the generation ends here: by an
 * end-of-generation token (which gives no text) or a stop string (text before it has been released, the rest is
 * dropped). Bytes that can never become a character come out as U+FFFD. */
int emitter_push(struct emitter *m, int32_t token, struct buf *out, enum emit_end *end, struct error *e);
/* The generation ended for another reason: releases what is held (an unfinished character as U+FFFD). */
int emitter_finish(struct emitter *m, struct buf *out, struct error *e);
#endif
