/* SPDX-License-Identifier: Apache-2.0
 * From messages to tokens: the chat template of a model file. A missing or broken template does not keep a model from
 * opening; its fault is told when messages come. Rendering: any thread, while the model is open.
 */
#include "base/base.h"
#include "engine/chat.h"
#include "engine/model_priv.h"

void model_chat_open(struct model *m)
{
	struct gguf_str src;

	if (!gguf_has(m->file, "tokenizer.chat_template")) {
		(void)error_set(&m->template_error, TENON_E_UNSUPPORTED,
			"chat template: the model file has none; use a plain prompt");
		return;
	}
	if (gguf_get_str(m->file, "tokenizer.chat_template", &src, &m->template_error))
		return;
	(void)chat_template_parse(src.s, src.len, NULL, &m->template, &m->template_error);
}

void model_chat_close(struct model *m)
{
	chat_template_free(m->template);
	m->template = NULL;
}

int model_tokens_from_messages(const struct model *m, const char *json, size_t len, int64_t now_s,
	struct tokens *out, struct error *e)
{
	struct chat_input in = { .json = json,
		.json_len = len,
		.bos = m->bos,
		.eos = m->eos,
		.default_generation_prompt = true,
		.now_s = now_s };
	struct chat_text text = { 0 };
	int rc;

	if (!m->template) {
		if (e)
			*e = m->template_error;
		return m->template_error.code;
	}
	rc = chat_render(m->template, &in, &text, NULL, e);
	if (!rc)
		rc = tokenizer_encode_spans(
			m->tokenizer, text.text, text.len, text.spans, text.n_spans, out, e);
	chat_text_finish(&text);
	return rc;
}
