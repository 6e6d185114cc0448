/* SPDX-License-Identifier: Apache-2.0
 * Which tokens end a generation: those that the file names under a key, and special tokens whose text is known to be
 * an end marker in some family. Only special tokens count, so ordinary text can never end an answer.
 */
#include "engine/tokenizer_priv.h"
#include <string.h>

static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
	"tokenizer.ggml.eom_token_id" };

static const char *const texts[] = { "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>",
	"<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|endofturn|>",
	"<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "<|end_of_role|>", "<|return|>", "<|call|>", "<|user|>",
	"<EOT>", "_<EOT>", "<end_of_utterance>",
	"<\xef\xbd\x9c"
	"end" U2581 "of" U2581 "sentence\xef\xbd\x9c>" };

static void add(struct tokenizer *t, int32_t id)
{
	if (id >= 0 && !tokenizer_is_eog(t, id))
		t->eog[t->n_eog++] = id;
}

/* The next user's turn is an end only for the families whose models write it themselves (GLM). */
static bool counts(const struct tokenizer *t, const char *text)
{
	return strcmp(text, "<|user|>") || strstr(t->pre_name, "glm");
}

int eog_load(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	t->eog = mem_zalloc(MEM_TOKENIZER, COUNT_OF(keys) + COUNT_OF(texts) + 1, sizeof *t->eog);
	if (!t->eog)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory");
	add(t, t->v.eos);
	for (size_t i = 0; i < COUNT_OF(keys); i++) {
		uint64_t id;

		if (gguf_has(g, keys[i])) {
			int rc = gguf_get_u64(g, keys[i], &id, e);

			if (rc)
				return rc;
			if (id < t->v.n)
				add(t, (int32_t)id);
		}
	}
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		int32_t id = vocab_find(&t->v, texts[i], strlen(texts[i]));

		if (id >= 0 && (t->v.type[id] == TOKEN_CONTROL || t->v.type[id] == TOKEN_USER) &&
			counts(t, texts[i]))
			add(t, id);
	}
	return TENON_OK;
}
