/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer as others see it: created from a model file, then asked. Encoding cuts the text at special tokens and
 * hands the stretches between them to the model; each stretch is one continuous text, whoever wrote its parts.
 */
#include "engine/tokenizer.h"
#include "engine/tokenizer_priv.h"
#include <stdlib.h>
#include <string.h>

int tokens_push(struct tokens *t, int32_t id)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 64, bytes;
		int32_t *p = checked_mul_size(cap, sizeof *p, &bytes)
			? mem_resize(MEM_TOKENIZER, t->id, bytes)
			: NULL;

		if (!p)
			return TENON_E_NOMEM;
		t->id = p;
		t->cap = cap;
	}
	t->id[t->n++] = id;
	return TENON_OK;
}

void tokens_finish(struct tokens *t)
{
	mem_free(t->id);
	*t = (struct tokens){ 0 };
}

/* ---- creating ---------------------------------------------------------------------------------------- */

static int get_name(
	const struct gguf *g, const char *key, const char *otherwise, struct gguf_str *out, struct error *e)
{
	*out = (struct gguf_str){ otherwise, strlen(otherwise) };
	return gguf_has(g, key) ? gguf_get_str(g, key, out, e) : TENON_OK;
}

static int get_flag(const struct gguf *g, const char *key, bool otherwise, bool *out, struct error *e)
{
	*out = otherwise;
	return gguf_has(g, key) ? gguf_get_bool(g, key, out, e) : TENON_OK;
}

static int get_model(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	static const struct {
		const char *name;
		enum tokenizer_model model;
	} models[] = { { "gpt2", MODEL_BYTES }, { "gemma4", MODEL_TEXT }, { "llama", MODEL_SPM },
		{ "bert", MODEL_WORDPIECE } };
	static const char key[] = "tokenizer.ggml.model";
	struct gguf_str name;
	int rc = gguf_get_str(g, key, &name, e);

	if (rc)
		return rc;
	for (size_t i = 0; i < COUNT_OF(models); i++)
		if (name.len == strlen(models[i].name) && !memcmp(name.s, models[i].name, name.len)) {
			t->model = models[i].model;
			t->model_name = mem_strdup(MEM_TOKENIZER, models[i].name);
			return t->model_name
				? TENON_OK
				: error_set(e, TENON_E_NOMEM, "tokenizer: no memory for its name");
		}
	return error_set(e, TENON_E_UNSUPPORTED,
		"key \"%s\": this kind of tokenizer is not supported (gpt2, llama, gemma4 and bert are); use another model",
		key);
}

/* Ids of the characters that stand for the 256 bytes. */
static void find_byte_characters(struct tokenizer *t)
{
	for (unsigned b = 0; b < 256; b++) {
		char c[4];

		t->byte_token[b] = vocab_find_text(&t->v, c, utf8_encode(unicode_byte_to_cp((uint8_t)b), c));
	}
}

static int create_bytes(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	struct gguf_str name;
	int rc = get_name(g, "tokenizer.ggml.pre", "default", &name, e);

	if (!rc)
		rc = pre_create(name, &t->pre, e);
	if (!rc)
		rc = merges_load(&t->merges, g, &t->v, e);
	if (rc)
		return rc;
	t->traits = *pre_get_traits(t->pre);
	find_byte_characters(t);
	return TENON_OK;
}

static int create_text(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	vocab_byte_tokens(&t->v, t->byte_token);
	spm_find_crossings(&t->v, t->crosses);
	return merges_load(&t->merges, g, &t->v, e);
}

static int create_spm(struct tokenizer *t, struct error *e)
{
	if (!t->v.scores)
		return error_set(e, TENON_E_FORMAT,
			"key \"tokenizer.ggml.scores\": not in the model file, but its kind of tokenizer needs it; take another file");
	vocab_byte_tokens(&t->v, t->byte_token);
	spm_find_crossings(&t->v, t->crosses);
	return specials_build(&t->escaped, &t->v, false, true, true, e);
}

static int create_wordpiece(struct tokenizer *t, struct error *e)
{
	if (t->v.unk >= 0)
		return TENON_OK;
	t->v.unk = vocab_find(&t->v, "[UNK]", 5);
	return t->v.unk >= 0
		? TENON_OK
		: error_set(e, TENON_E_FORMAT,
			  "key \"tokenizer.ggml.unknown_token_id\": WordPiece needs an unknown token; take another file");
}

static int create_model(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	int rc = specials_build(&t->raw, &t->v, true, t->model != MODEL_SPM, false, e);

	if (rc)
		return rc;
	for (size_t b = 0; b < COUNT_OF(t->byte_token); b++)
		t->byte_token[b] = -1;
	switch (t->model) {
	case MODEL_BYTES:
		return create_bytes(t, g, e);
	case MODEL_TEXT:
		return create_text(t, g, e);
	case MODEL_SPM:
		return create_spm(t, e);
	default:
		return create_wordpiece(t, e);
	}
}

static int get_flags(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	bool wordpiece = t->model == MODEL_WORDPIECE, spm = t->model == MODEL_SPM;
	int rc = get_flag(
		g, "tokenizer.ggml.add_bos_token", wordpiece || spm || t->traits.adds_bos, &t->adds_bos, e);

	if (!rc)
		rc = get_flag(g, "tokenizer.ggml.add_eos_token", wordpiece, &t->adds_eos, e);
	if (!rc)
		rc = get_flag(g, "tokenizer.ggml.add_space_prefix", spm, &t->dummy_prefix, e);
	t->adds_bos = t->adds_bos && t->v.bos >= 0;
	t->adds_eos = t->adds_eos && t->v.eos >= 0;
	return rc;
}

static int copy_pre_name(struct tokenizer *t, const struct gguf *g, struct error *e)
{
	struct gguf_str name;
	int rc = get_name(g, "tokenizer.ggml.pre", "", &name, e);

	if (rc)
		return rc;
	t->pre_name = mem_strndup(MEM_TOKENIZER, name.s, name.len);
	return t->pre_name ? TENON_OK : error_set(e, TENON_E_NOMEM, "tokenizer: no memory for its name");
}

int tokenizer_create(const struct gguf *g, struct tokenizer **out, struct error *e)
{
	struct tokenizer *t = mem_zalloc(MEM_TOKENIZER, 1, sizeof *t);
	int rc;

	if (!t)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory");
	rc = get_model(t, g, e);
	if (!rc)
		rc = vocab_load(&t->v, g, e);
	if (!rc)
		rc = create_model(t, g, e);
	if (!rc)
		rc = get_flags(t, g, e);
	if (!rc)
		rc = copy_pre_name(t, g, e);
	if (!rc)
		rc = eog_load(t, g, e);
	if (rc)
		tokenizer_destroy(t);
	else
		*out = t;
	return rc;
}

void tokenizer_destroy(struct tokenizer *t)
{
	if (!t)
		return;
	vocab_finish(&t->v);
	specials_finish(&t->raw);
	specials_finish(&t->escaped);
	pre_destroy(t->pre);
	merges_finish(&t->merges);
	mem_free(t->eog);
	mem_free(t->model_name);
	mem_free(t->pre_name);
	mem_free(t);
}

/* ---- encoding ---------------------------------------------------------------------------------------- */

struct trust { /* walks the spans along with the text */
	const struct text_span *span;
	size_t n, at;
	size_t end; /* of the trusted run that was met last */
};

/* Bytes from `pos` on that are trusted without a gap. Positions only grow, so each span is looked at once. */
static size_t trusted_from(struct trust *tr, size_t pos)
{
	if (pos < tr->end)
		return tr->end - pos;
	while (tr->at < tr->n && tr->span[tr->at].off + tr->span[tr->at].len <= pos)
		tr->at++;
	for (tr->end = pos; tr->at < tr->n && (tr->span[tr->at].trusted || !tr->span[tr->at].len); tr->at++)
		tr->end = tr->span[tr->at].off + tr->span[tr->at].len;
	return tr->end - pos;
}

static int check_spans(const struct text_span *span, size_t n, size_t len, struct error *e)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		if (span[i].off != at || span[i].len > len - at)
			return error_set(e, TENON_E_INVALID,
				"text: span %zu does not begin where the one before ends, or ends past the text; this is a fault of the caller",
				i);
		at += span[i].len;
	}
	return at == len
		? TENON_OK
		: error_set(e, TENON_E_INVALID,
			  "text: its spans end at byte %zu of %zu; this is a fault of the caller", at, len);
}

static int encode_stretch(struct encoder *x, const char *s, size_t len)
{
	if (!len)
		return TENON_OK;
	switch (x->t->model) {
	case MODEL_BYTES:
		return bpe_encode_bytes(x, s, len);
	case MODEL_TEXT:
		return bpe_encode_text(x, s, len);
	case MODEL_SPM:
		return spm_encode(x, s, len);
	default:
		return wordpiece_encode(x, s, len);
	}
}

static int encode_all(struct encoder *x, const char *s, size_t len, struct trust *trust)
{
	const struct specials *sp = &x->t->raw;
	size_t from = 0, n = 0;
	int rc = TENON_OK;

	for (size_t i = 0; i < len && !rc;) {
		uint8_t c = (uint8_t)s[i];
		int32_t id = -1;

		if (sp->first[c] < sp->first[c + 1])
			id = specials_match(sp, s + i, len - i, trusted_from(trust, i), &n);
		if (id < 0) {
			i++;
			continue;
		}
		rc = encode_stretch(x, s + from, i - from);
		if (!rc)
			rc = encoder_push(x, id);
		from = i += n;
	}
	return rc ? rc : encode_stretch(x, s + from, len - from);
}

static void finish_encoder(struct encoder *x)
{
	pre_scratch_finish(&x->pre);
	buf_finish(&x->text);
	buf_finish(&x->word);
	mem_free(x->symbol);
	mem_free(x->heap);
}

int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t len,
	const struct text_span *spans, size_t n_spans, struct tokens *out, struct error *e)
{
	struct encoder x = { .t = t, .out = out, .e = e };
	struct trust trust = { spans, n_spans, 0, 0 };
	size_t before = out->n, bad;
	int rc = check_spans(spans, n_spans, len, e);

	if (rc)
		return rc;
	if (len > TOKENIZER_MAX_TEXT_BYTES)
		return error_set(e, TENON_E_TOO_LONG,
			"text: %zu bytes are over the limit of %d; send it in parts", len,
			TOKENIZER_MAX_TEXT_BYTES);
	if (!utf8_valid(text, len, &bad))
		return error_set(e, TENON_E_UTF8, "text: not UTF-8 at byte %zu; send UTF-8", bad);
	buf_init(&x.text, MEM_TOKENIZER, 0);
	buf_init(&x.word, MEM_TOKENIZER, 0);
	rc = encode_all(&x, text, len, &trust);
	if (rc)
		out->n = before;
	finish_encoder(&x);
	return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
	struct tokens *out, struct error *e)
{
	const struct text_span all = { 0, len, parse_special };

	return tokenizer_encode_spans(t, text, len, &all, 1, out, e);
}

/* ---- asking ------------------------------------------------------------------------------------------ */

size_t tokenizer_n_vocab(const struct tokenizer *t) { return t->v.n; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->v.bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->v.eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->adds_bos; }
bool tokenizer_adds_eos(const struct tokenizer *t) { return t->adds_eos; }
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
	return vocab_find(&t->v, text, len);
}
const char *tokenizer_model_name(const struct tokenizer *t) { return t->model_name; }
const char *tokenizer_pre_name(const struct tokenizer *t) { return t->pre_name; }

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
	for (size_t i = 0; i < t->n_eog; i++)
		if (t->eog[i] == id)
			return true;
	return false;
}
