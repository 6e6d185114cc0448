/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: first byte below 0x80: text for one of the vocabularies made here, which hold every byte, so that what
 * is encoded must come back; else a whole GGUF file (its length in 3 bytes) and then text for it. Always: ids are in
 * range, an untrusted text gives what plain encoding gives, bad UTF-8 is refused.
 */
#include "base/base.h"
#include "engine/tokenizer.h"
#include "tests/unit/gguf_make.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_WORDS = 8, N_TOKENS = 256 + N_WORDS + 2, NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static const struct flavour {
	const char *model, *pre;
	bool comes_back; /* text equals its decoding */
} flavours[] = { { "gpt2", "gpt-2", true }, { "gpt2", "llama-bpe", true }, { "gpt2", "smollm", true },
	{ "gpt2", "falcon", true }, { "gpt2", "deepseek-llm", true }, { "gpt2", "deepseek-v3", true },
	{ "gpt2", "gpt-4o", true }, { "gpt2", "tekken", true }, { "gpt2", "default", true },
	{ "gpt2", "bailingmoe", true }, { "gpt2", "qwen2", false }, { "llama", NULL, false },
	{ "gemma4", NULL, false }, { "bert", NULL, false } };

struct made {
	struct gguf_make m;
	struct gguf *file;
	struct tokenizer *tok;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- vocabularies ------------------------------------------------------------------------------------ */

/* The character that stands for a byte in byte-level vocabularies. */
static size_t byte_char(unsigned b, char out[4])
{
	static const unsigned gaps[] = { 0, 0x21, 0x7f, 0xa1, 0xad, 0xae };
	unsigned before = 0; /* bytes below b that do not stand for themselves */
	bool itself = false;

	for (unsigned c = 0; c <= b; c++) {
		itself = (c >= gaps[1] && c < gaps[2]) || (c >= gaps[3] && c != gaps[4]);
		before += !itself && c < b;
	}
	return utf8_encode(itself ? b : 0x100 + before, out);
}

static const char *const words[N_WORDS] = { "in", "the", "\xe2\x96\x81", "\xe2\x96\x81t", "ab", "abab", "th",
	"11" };
static const char *const merges[] = { "i n", "t h", "th e", "a b", "ab ab", "1 1" };

static void put_tokens(struct gguf_make *m, const struct flavour *f)
{
	static char text[N_TOKENS][16];
	struct gguf_str s[N_TOKENS];
	int32_t type[N_TOKENS];
	float score[N_TOKENS];
	bool bytes = !strcmp(f->model, "gpt2");

	for (unsigned i = 0; i < N_TOKENS; i++) {
		type[i] = NORMAL;
		if (i < 256 && bytes)
			text[i][byte_char(i, text[i])] = 0;
		else if (i < 256)
			(void)snprintf(text[i], sizeof text[i], "<0x%02X>", i);
		else if (i < 256 + N_WORDS)
			(void)snprintf(text[i], sizeof text[i], "%s", words[i - 256]);
		else
			(void)snprintf(
				text[i], sizeof text[i], "%s", i == N_TOKENS - 1 ? "<|end|>" : "<user>");
		if (i < 256 && !bytes)
			type[i] = BYTE;
		if (i >= 256 + N_WORDS)
			type[i] = i == N_TOKENS - 1 ? CONTROL : USER;
		s[i] = (struct gguf_str){ text[i], strlen(text[i]) };
		score[i] = -(float)(i % 7);
	}
	gguf_make_strs(m, "tokenizer.ggml.tokens", s, N_TOKENS);
	gguf_make_array(m, "tokenizer.ggml.token_type", GGUF_I32, type, N_TOKENS, sizeof type);
	gguf_make_array(m, "tokenizer.ggml.scores", GGUF_F32, score, N_TOKENS, sizeof score);
}

static void make(struct made *d, const struct flavour *f)
{
	struct gguf_str s[COUNT_OF(merges)];

	for (size_t i = 0; i < COUNT_OF(merges); i++)
		s[i] = (struct gguf_str){ merges[i], strlen(merges[i]) };
	gguf_make_init(&d->m);
	gguf_make_str(&d->m, "tokenizer.ggml.model", f->model);
	if (f->pre)
		gguf_make_str(&d->m, "tokenizer.ggml.pre", f->pre);
	put_tokens(&d->m, f);
	/* over characters these merges have no tokens, an empty list does */
	gguf_make_strs(&d->m, "tokenizer.ggml.merges", s, strcmp(f->model, "gpt2") ? 0 : COUNT_OF(merges));
	gguf_make_u32(&d->m, "tokenizer.ggml.unknown_token_id", 0);
	must(gguf_make_finish(&d->m));
	must(!gguf_open_memory(d->m.file.data, d->m.file.len, &d->file, NULL));
	must(!tokenizer_create(d->file, &d->tok, NULL));
}

/* ---- checks ------------------------------------------------------------------------------------------ */

static void check_decoding(
	const struct tokenizer *t, const struct tokens *ids, const char *s, size_t len, bool comes_back)
{
	struct buf all, pieces;

	buf_init(&all, MEM_TOOL, 0);
	buf_init(&pieces, MEM_TOOL, 0);
	must(!tokenizer_decode(t, ids->id, ids->n, &all, NULL));
	for (size_t i = 0; i < ids->n; i++) {
		must(ids->id[i] >= 0 && (size_t)ids->id[i] < tokenizer_n_vocab(t));
		must(!tokenizer_piece(t, ids->id[i], i == 0, true, &pieces, NULL));
	}
	if (comes_back)
		must(all.len == len && (!len || !memcmp(all.data, s, len)) && pieces.len == len);
	buf_finish(&all);
	buf_finish(&pieces);
}

static bool same(const struct tokens *a, const struct tokens *b)
{
	return a->n == b->n && (!a->n || !memcmp(a->id, b->id, a->n * sizeof *a->id));
}

static void check_text(const struct tokenizer *t, const char *s, size_t len, bool comes_back)
{
	struct tokens plain = { 0 }, special = { 0 }, mixed = { 0 };
	struct error e = { 0 };
	size_t half = len / 2;
	struct text_span no[] = { { 0, half, false }, { half, len - half, false } },
			 yes[] = { { 0, half, true }, { half, 0, false }, { half, len - half, true } },
			 some[] = { { 0, half, true }, { half, len - half, false } };
	int rc = tokenizer_encode(t, s, len, false, &plain, &e);

	must(!rc == utf8_valid(s, len, NULL));
	if (rc) {
		must(rc == TENON_E_UTF8 && !plain.n && e.text[0]);
	} else {
		must(!tokenizer_encode(t, s, len, true, &special, NULL));
		must(!tokenizer_encode_spans(t, s, len, no, COUNT_OF(no), &mixed, NULL) &&
			same(&mixed, &plain));
		mixed.n = 0;
		must(!tokenizer_encode_spans(t, s, len, yes, COUNT_OF(yes), &mixed, NULL) &&
			same(&mixed, &special));
		mixed.n = 0;
		must(!tokenizer_encode_spans(t, s, len, some, COUNT_OF(some), &mixed, NULL));
		check_decoding(t, &plain, s, len, comes_back);
		check_decoding(t, &special, s, len, comes_back);
	}
	tokens_finish(&plain);
	tokens_finish(&special);
	tokens_finish(&mixed);
}

static void check_file(const char *s, size_t len)
{
	struct tokenizer *t = NULL;
	struct gguf *g = NULL;
	struct error e = { 0 };
	size_t file_len;
	char *copy;
	int rc;

	if (len < 3)
		return;
	file_len = (uint8_t)s[0] | (size_t)(uint8_t)s[1] << 8 | (size_t)(uint8_t)s[2] << 16;
	file_len = MIN_OF(file_len, len - 3);
	/* a block of its own, so that a sanitizer sees reads behind the file */
	copy = malloc(file_len ? file_len : 1);
	must(copy != NULL);
	memcpy(copy, s + 3, file_len);
	if (!gguf_open_memory(copy, file_len, &g, NULL)) {
		rc = tokenizer_create(g, &t, &e);
		must(rc ? rc < 0 && e.code == rc && e.text[0] && !t : t != NULL);
		if (t)
			check_text(t, s + 3 + file_len, len - 3 - file_len, false);
		tokenizer_destroy(t);
	}
	gguf_close(g);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct made made[COUNT_OF(flavours)];
	size_t which;

	if (!size)
		return 0;
	if (data[0] >= 0x80) {
		check_file((const char *)data + 1, size - 1);
		return 0;
	}
	which = data[0] % COUNT_OF(flavours);
	if (!made[which].tok)
		make(&made[which], &flavours[which]);
	check_text(made[which].tok, (const char *)data + 1, size - 1, flavours[which].comes_back);
	return 0;
}
