/* SPDX-License-Identifier: Apache-2.0
 * From text to tokens: tokenizer and chat template of a model. Both are immutable once open, so any thread may call the
 * functions at the end while the model is open.
 */
#include "base/base.h"
#include "engine/model_priv.h"
#include <string.h>

/* Text of a control token; NULL when the model has none. */
static int token_text(const struct tokenizer *t, int32_t id, char **out, struct error *e)
{
	struct buf b;
	int rc;

	if (id < 0)
		return TENON_OK;
	buf_init(&b, MEM_ENGINE, 0);
	rc = tokenizer_piece(t, id, false, true, &b, e);
	if (!rc && buf_puts(&b, ""))
		*out = buf_take(&b, NULL);
	buf_finish(&b);
	return rc || *out ? rc : error_set(e, TENON_E_NOMEM, "tokenizer: no memory");
}

int model_text_open(struct model *m, struct error *e)
{
	int rc = tokenizer_create(m->file, &m->tokenizer, e);

	if (!rc)
		rc = token_text(m->tokenizer, tokenizer_bos(m->tokenizer), &m->bos, e);
	if (!rc)
		rc = token_text(m->tokenizer, tokenizer_eos(m->tokenizer), &m->eos, e);
	if (!rc)
		model_chat_open(m);
	return rc;
}

void model_text_close(struct model *m)
{
	model_chat_close(m);
	tokenizer_destroy(m->tokenizer);
	mem_free(m->bos);
	mem_free(m->eos);
}

int model_tokens_from_text(
	const struct model *m, const char *text, size_t len, struct tokens *out, struct error *e)
{
	const struct tokenizer *t = m->tokenizer;
	size_t before = out->n;
	int rc = TENON_OK;

	if (tokenizer_adds_bos(t))
		rc = tokens_push(out, tokenizer_bos(t));
	if (!rc)
		rc = tokenizer_encode(t, text, len, false, out, e);
	else
		(void)error_set(e, rc, "prompt: no memory");
	if (!rc && tokenizer_adds_eos(t) && tokens_push(out, tokenizer_eos(t)))
		rc = error_set(e, TENON_E_NOMEM, "prompt: no memory");
	if (rc)
		out->n = before;
	return rc;
}
