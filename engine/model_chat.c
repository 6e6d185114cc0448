/* SPDX-License-Identifier: Apache-2.0
 * From messages to tokens: the chat template of a model file. A missing or broken template does not keep a model from
 * opening; its fault is told when messages come. Rendering: any thread, while the model is open.
 */
#include "base/base.h"
#include "engine/model_priv.h"

void model_chat_open(struct model *m)
{
	(void)error_set(&m->template_error, TENON_E_UNSUPPORTED,
		"chat template: this build renders none; use a plain prompt");
}

void model_chat_close(struct model *m) { (void)m; }

int model_tokens_from_messages(const struct model *m, const char *json, size_t len, int64_t now_s,
	struct tokens *out, struct error *e)
{
	(void)json;
	(void)len;
	(void)now_s;
	(void)out;
	if (e)
		*e = m->template_error;
	return m->template_error.code;
}
