/* SPDX-License-Identifier: Apache-2.0
 * Chat templates: a Jinja interpreter without I/O (sandbox of jinja2 as Hugging Face transformers sets it up:
 * trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception, strftime_now, tojson), with
 * limits on source, steps, depth, range and output, that keeps track of which output bytes came from message
 * contents. Behaviour is fixed by tests/data/chat. A parsed template is immutable: any thread may render.
 */
#ifndef ENGINE_CHAT_H
#define ENGINE_CHAT_H
#include "base/buf.h"
#include "base/error.h"
#include "engine/tokenizer.h"
#include <stdbool.h>
#include <stdint.h>

struct chat_template;

struct chat_limits { /* zero members mean the defaults in chat.c */
	size_t source_bytes, output_bytes, memory_bytes;
	uint64_t steps;
	uint32_t depth;
};

/* TEMPLATE with line number on a syntax error, TOO_LONG over a limit. */
int chat_template_parse(const char *src, size_t len, const struct chat_limits *limits,
	struct chat_template **out, struct error *e);
void chat_template_free(struct chat_template *t);

struct chat_text { /* zero-initialise; chat_text_finish frees */
	char *text;
	size_t len;
	struct text_span *spans; /* [n_spans], covering text; trusted: written by the template or a special token */
	size_t n_spans;
};
void chat_text_finish(struct chat_text *t);

struct chat_input {
	/* A JSON array of messages, or an object: "messages" (array), "tools"?, "documents"?, "add_generation_prompt"?,
	 * "continue_final_message"?, "extra"? {further variables}, "special_tokens"? {"bos_token": ...}.
	 * Everything under messages, tools and documents is untrusted text. */
	const char *json;
	size_t json_len;
	const char *bos, *eos;   /* of the model, used unless special_tokens gives them; may be NULL */
	bool default_generation_prompt; /* used when the object does not say */
	bool raw_context;        /* the object itself is the context (tenon template --raw); all of it untrusted */
	int64_t now_s;           /* for strftime_now: seconds since 1970, rendered as UTC */
};

/* Renders. TEMPLATE: e->text carries raise_exception's text in full up to the record's size; `full` (may be
 * NULL) receives it whole. TOO_LONG: a limit. FORMAT: the JSON. */
int chat_render(const struct chat_template *t, const struct chat_input *in, struct chat_text *out,
	struct buf *full, struct error *e);

/* Where the value of member `key` stands in the text of a JSON object, numbers of any length left as they are; false
 * if it has none. The text need not be valid: chat_render tells. */
bool chat_json_member(const char *json, size_t len, const char *key, const char **value, size_t *value_len);
#endif
