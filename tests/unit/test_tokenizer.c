/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers on vocabularies made here, where each rule can be seen by itself, and on gpt-2's, where size and speed
 * matter. The recorded cases of real vocabularies are in test_tokenizer_cases.c.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/tokenizer.h"
#include "tests/unit/gguf_make.h"
#include "tests/unit/gz.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

struct tok { /* one line of a made vocabulary */
	const char *text;
	int32_t type;
	float score;
};

struct made {
	struct gguf_make m;
	struct gguf *file;
	struct tokenizer *tok;
};

/* Not the clock on the wall: other programs run beside this one. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- making vocabularies ----------------------------------------------------------------------------- */

static void put_vocab(struct gguf_make *m, const char *model, const struct tok *v, size_t n)
{
	struct gguf_str *text = mem_zalloc(MEM_TOOL, n, sizeof *text);
	int32_t *type = mem_zalloc(MEM_TOOL, n, sizeof *type);
	float *score = mem_zalloc(MEM_TOOL, n, sizeof *score);

	for (size_t i = 0; i < n; i++) {
		text[i] = (struct gguf_str){ v[i].text, strlen(v[i].text) };
		type[i] = v[i].type;
		score[i] = v[i].score;
	}
	gguf_make_init(m);
	gguf_make_str(m, "tokenizer.ggml.model", model);
	gguf_make_strs(m, "tokenizer.ggml.tokens", text, n);
	gguf_make_array(m, "tokenizer.ggml.token_type", GGUF_I32, type, n, n * sizeof *type);
	gguf_make_array(m, "tokenizer.ggml.scores", GGUF_F32, score, n, n * sizeof *score);
	mem_free(text);
	mem_free(type);
	mem_free(score);
}

static void put_merges(struct gguf_make *m, const char *const *merge, size_t n)
{
	struct gguf_str *s = mem_zalloc(MEM_TOOL, n, sizeof *s);

	for (size_t i = 0; i < n; i++)
		s[i] = (struct gguf_str){ merge[i], strlen(merge[i]) };
	gguf_make_strs(m, "tokenizer.ggml.merges", s, n);
	mem_free(s);
}

static int create(struct made *d, struct error *e)
{
	int rc;

	d->file = NULL;
	d->tok = NULL;
	assert_true(gguf_make_finish(&d->m));
	rc = gguf_open_memory(d->m.file.data, d->m.file.len, &d->file, e);
	return rc ? rc : tokenizer_create(d->file, &d->tok, e);
}

static void drop(struct made *d)
{
	tokenizer_destroy(d->tok);
	gguf_close(d->file);
	gguf_make_free(&d->m);
}

static void refused(struct made *d, int code, const char *part)
{
	struct error e = { 0 };

	assert_int_equal(create(d, &e), code);
	assert_null(d->tok);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" does not hold \"%s\"", e.text, part);
	drop(d);
}

/* Encodes and compares with ids that end with -1. */
static void expect(const struct tokenizer *t, const char *text, bool special, const int32_t *want)
{
	struct tokens got = { 0 };
	struct error e = { 0 };
	size_t n = 0;

	if (tokenizer_encode(t, text, strlen(text), special, &got, &e))
		fail_msg("%s: %s", text, e.text);
	while (want[n] >= 0)
		n++;
	if (got.n != n || (n && memcmp(got.id, want, n * sizeof *want))) {
		for (size_t i = 0; i < got.n; i++)
			print_error("%d ", got.id[i]);
		fail_msg("<- ids of \"%s\"", text);
	}
	tokens_finish(&got);
}

#define IDS(...) ((const int32_t[]){ __VA_ARGS__, -1 })
#define NO_IDS	 ((const int32_t[]){ -1 })

static void expect_text(const struct tokenizer *t, const int32_t *ids, const char *want)
{
	struct buf b;
	size_t n = 0;

	while (ids[n] >= 0)
		n++;
	buf_init(&b, MEM_TOOL, 0);
	assert_true(buf_puts(&b, ""));
	assert_int_equal(tokenizer_decode(t, ids, n, &b, NULL), TENON_OK);
	assert_string_equal(b.data, want);
	buf_finish(&b);
}

/* ---- SentencePiece ----------------------------------------------------------------------------------- */

#define SP "\xe2\x96\x81"

static const struct tok spm_vocab[] = {
	{ "<unk>", UNKNOWN, 0 }, { "<s>", CONTROL, 0 }, { "</s>", CONTROL, 0 },
	{ SP, NORMAL, -10 },									/* 0 .. 3  */
	{ "a", NORMAL, -11 }, { "b", NORMAL, -12 }, { "ab", NORMAL, -2 }, { "ba", NORMAL, -2 }, /* 4 .. 7  */
	{ SP "a", NORMAL, -1 }, { "aba", NORMAL, -0.f }, { "<u>", USER, 0 }, { "  ", USER, 0 }, /* 8 .. 11 */
	{ "<0x41>", BYTE, 0 }, { "<0xC3>", BYTE, 0 }, { "<0xA4>", BYTE, 0 },
	{ "<0x42>", NORMAL, -20 },					  /* 12 .. 15 */
	{ "<", NORMAL, -20 }, { "s", NORMAL, -20 }, { ">", NORMAL, -20 }, /* 16 .. 18 */
};

static void make_spm(struct made *d)
{
	put_vocab(&d->m, "llama", spm_vocab, COUNT_OF(spm_vocab));
	gguf_make_u32(&d->m, "tokenizer.ggml.bos_token_id", 1);
	gguf_make_u32(&d->m, "tokenizer.ggml.eos_token_id", 2);
	gguf_make_u32(&d->m, "tokenizer.ggml.unknown_token_id", 0);
}

static void spm_rules(void **st)
{
	struct made d;

	(void)st;
	make_spm(&d);
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "", false, NO_IDS);
	expect(d.tok, "a", false, IDS(8)); /* dummy prefix */
	expect(d.tok, "ba", false, IDS(3, 7));
	expect(d.tok, "bab", false, IDS(3, 7, 5)); /* equal scores: leftmost first */
	expect(d.tok, "bb a", false, IDS(3, 5, 5, 8));
	expect(d.tok, SP "a", false, IDS(11, 4)); /* U+2581 is a space: prefix and it make the double one */
	expect(d.tok, "a<u>a", false, IDS(8, 10, 4)); /* user-defined: matched always, no prefix after it */
	expect(d.tok, "a<s>a", true, IDS(8, 1, 8));   /* control: each stretch has its prefix */
	expect(d.tok, "a<s>a", false, IDS(8, 16, 17, 18, 4));
	expect(d.tok, "bA", false, IDS(3, 5, 12)); /* bytes */
	expect(d.tok, "b\xc3\xa4", false, IDS(3, 5, 13, 14));
	expect(d.tok, "bCDb", false, IDS(3, 5, 0, 5));	       /* no bytes: one unknown for the run */
	expect(d.tok, "b<0x41>", false, IDS(3, 5, 16, 0, 18)); /* a byte token's name is plain text */
	expect_text(d.tok, IDS(8, 8), "a a");
	expect_text(d.tok, IDS(1, 8, 2), "<s>a</s>");
	expect_text(d.tok, IDS(3, 13, 14, 10), "\xc3\xa4<u>");
	assert_true(tokenizer_adds_bos(d.tok));
	assert_false(tokenizer_adds_eos(d.tok));
	assert_true(tokenizer_is_eog(d.tok, 2));
	assert_false(tokenizer_is_eog(d.tok, 1));
	drop(&d);
}

static void spm_without_dummy_prefix(void **st)
{
	struct made d;

	(void)st;
	make_spm(&d);
	gguf_make_bool(&d.m, "tokenizer.ggml.add_space_prefix", false);
	gguf_make_bool(&d.m, "tokenizer.ggml.add_bos_token", false);
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "a", false, IDS(4));
	expect(d.tok, " a", false, IDS(8));
	expect(d.tok, "   a", false, IDS(11, 8));
	expect_text(d.tok, IDS(8, 8), " a a");
	assert_false(tokenizer_adds_bos(d.tok));
	drop(&d);
}

/* ---- BPE over characters ----------------------------------------------------------------------------- */

static void text_bpe_rules(void **st)
{
	static const struct tok v[] = { { "<bos>", CONTROL, 0 }, { SP, NORMAL, 0 }, { "a", NORMAL, 0 },
		{ "b", NORMAL, 0 }, { SP "a", NORMAL, 0 }, { "ab", NORMAL, 0 }, { "<0xC3>", BYTE, 0 },
		{ "<0xA4>", BYTE, 0 }, { "<unk>", UNKNOWN, 0 }, { "<u>", USER, 0 } };
	static const char *const merges[] = { "a b", SP " a" };
	struct made d;

	(void)st;
	put_vocab(&d.m, "gemma4", v, COUNT_OF(v));
	put_merges(&d.m, merges, COUNT_OF(merges));
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, " ab a", false, IDS(1, 5, 4)); /* the first merge goes first */
	expect(d.tok, "\xc3\xa4", false, IDS(6, 7));
	expect(d.tok, "azzb", false, IDS(2, 8, 3));
	expect(d.tok, "a<u>b<bos>", true, IDS(2, 9, 3, 0));
	expect_text(d.tok, IDS(4, 6, 7), " a\xc3\xa4");
	drop(&d);
}

/* ---- WordPiece --------------------------------------------------------------------------------------- */

static void wordpiece_rules(void **st)
{
	static const struct tok v[] = { { "[UNK]", CONTROL, 0 }, { "[CLS]", CONTROL, 0 },
		{ "[SEP]", CONTROL, 0 }, { SP "un", NORMAL, 0 }, { "able", NORMAL, 0 }, { "s", NORMAL, 0 },
		{ SP "!", NORMAL, 0 }, { SP "e", NORMAL, 0 }, { SP "\xe4\xb8\xad", NORMAL, 0 },
		{ SP "[", NORMAL, 0 }, { "a", NORMAL, 0 }, { SP "a", NORMAL, 0 } };
	char word[102];
	struct made d;

	(void)st;
	put_vocab(&d.m, "bert", v, COUNT_OF(v));
	gguf_make_u32(&d.m, "tokenizer.ggml.unknown_token_id", 0);
	gguf_make_u32(&d.m, "tokenizer.ggml.cls_token_id", 1);
	gguf_make_u32(&d.m, "tokenizer.ggml.seperator_token_id", 2);
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "UNables!", false, IDS(3, 4, 5, 6));
	expect(d.tok, "un able", false, IDS(3, 0));	       /* "able" never begins a word */
	expect(d.tok, "\xc3\x89 e\xcc\x81", false, IDS(7, 7)); /* accents go, composed or not */
	expect(d.tok,
		"e\xe4\xb8\xad"
		"e",
		false, IDS(7, 8, 7));		    /* an ideograph is a word */
	expect(d.tok, "u\x01n", false, IDS(3));	    /* control characters go */
	expect(d.tok, "un" SP "un", false, IDS(0)); /* a user's U+2581 marks nothing */
	expect(d.tok, "e[CLS]e", true, IDS(7, 1, 7));
	expect(d.tok, "[", false, IDS(9));
	memset(word, 'a', sizeof word);
	word[100] = 0;
	assert_int_equal(strlen(word), 100);
	{
		struct tokens ids = { 0 };

		assert_int_equal(tokenizer_encode(d.tok, word, 100, false, &ids, NULL), TENON_OK);
		assert_int_equal(ids.n, 100);
		tokens_finish(&ids);
	}
	word[100] = 'a';
	word[101] = 0;
	expect(d.tok, word, false, IDS(0)); /* over 100 characters: unknown */
	expect_text(d.tok, IDS(3, 4, 6, 7), "unable! e");
	assert_true(tokenizer_adds_bos(d.tok) && tokenizer_bos(d.tok) == 1);
	assert_true(tokenizer_adds_eos(d.tok) && tokenizer_eos(d.tok) == 2);
	drop(&d);
}

/* ---- byte-level BPE, made ---------------------------------------------------------------------------- */

static const struct tok bytes_vocab[] = { { "a", NORMAL, 0 }, { "b", NORMAL, 0 }, { "c", NORMAL, 0 },
	{ "ab", NORMAL, 0 }, { "abc", NORMAL, 0 }, { "bc", NORMAL, 0 }, { "<|end|>", CONTROL, 0 },
	{ "\xc4\xa0", NORMAL, 0 }, { "aa", NORMAL, 0 }, { "<|end|>a", USER, 0 }, { "cab", NORMAL, 0 } };
static const char *const bytes_merges[] = { "b c", "a b", "a a", "c ab" };

static void make_bytes(struct made *d, const char *pre)
{
	put_vocab(&d->m, "gpt2", bytes_vocab, COUNT_OF(bytes_vocab));
	put_merges(&d->m, bytes_merges, COUNT_OF(bytes_merges));
	if (pre)
		gguf_make_str(&d->m, "tokenizer.ggml.pre", pre);
}

static void bytes_rules(void **st)
{
	struct made d;

	(void)st;
	make_bytes(&d, "gpt-2");
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "abc", false, IDS(0, 5)); /* merges decide, although abc is a token */
	expect(d.tok, "aaa", false, IDS(8, 0));
	expect(d.tok, "aXb", false, IDS(3)); /* a byte that is no token goes before merging */
	expect(d.tok, "a b", false, IDS(0, 7, 1));
	expect(d.tok, "a<|end|>", true, IDS(0, 6));
	expect(d.tok, "a<|end|>", false, IDS(0)); /* its bytes are no tokens here */
	drop(&d);
	make_bytes(&d, "llama-bpe");
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "abc", false, IDS(4)); /* the whole piece is a token */
	drop(&d);
}

static void special_texts_longest_first(void **st)
{
	struct made d;

	(void)st;
	make_bytes(&d, "gpt-2");
	assert_int_equal(create(&d, NULL), TENON_OK);
	expect(d.tok, "<|end|>ab", true, IDS(9, 1));
	expect(d.tok, "<|end|>b", true, IDS(6, 1));
	expect(d.tok, "<|end|>ab", false, IDS(9, 1)); /* user-defined: always */
	expect(d.tok, "<|end<|end|>", true, IDS(6));
	drop(&d);
}

/* ---- against plain merging ---------------------------------------------------------------------------- */

enum { MAX_PARTS = 64 };

struct parts { /* a text cut into parts, for merging by the book */
	struct gguf_str part[MAX_PARTS];
	size_t n;
};

/* Index of the vocabulary's token that is the joined text of two neighbours, or -1. */
static int joined(const struct tok *v, size_t n_vocab, const struct parts *p, size_t i)
{
	size_t len = p->part[i].len + p->part[i + 1].len;

	for (size_t k = 0; k < n_vocab; k++)
		if (strlen(v[k].text) == len && !memcmp(v[k].text, p->part[i].s, len))
			return (int)k;
	return -1;
}

/* Merges the best pair, leftmost of equals, again and again; each step looks at all of them. */
static void merge_by_the_book(const struct tok *v, size_t n_vocab, struct parts *p)
{
	for (;;) {
		int best = -1;
		size_t at = 0;

		for (size_t i = 0; i + 1 < p->n; i++) {
			int k = joined(v, n_vocab, p, i);

			if (k >= 0 && (best < 0 || v[k].score > v[best].score)) {
				best = k;
				at = i;
			}
		}
		if (best < 0)
			return;
		p->part[at].len += p->part[at + 1].len;
		memmove(&p->part[at + 1], &p->part[at + 2], (p->n - at - 2) * sizeof p->part[0]);
		p->n--;
	}
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33) % below;
}

static const char *const letter[] = { "a", "b", SP };

/* A vocabulary over a, b and U+2581 in which tokens may run over the beginning of a word. */
static void random_vocab(struct tok *v, char (*text)[32], size_t n, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++) {
		text[i][0] = 0;
		for (uint32_t k = i < 3 ? 1 : 2 + draw(seed, 4); k; k--)
			strcat(text[i], letter[i < 3 ? i : draw(seed, 3)]);
		v[i] = (struct tok){ text[i], NORMAL, -(float)draw(seed, 9) };
		for (size_t k = 0; k < i; k++) /* equal texts: the first counts */
			if (!strcmp(text[k], text[i]))
				v[i].score = v[k].score;
	}
}

static void compare_on_random_text(
	const struct tokenizer *t, const struct tok *v, size_t n_vocab, uint64_t *seed)
{
	char escaped[MAX_PARTS * 3 + 1] = "", plain[MAX_PARTS + 1] = "";
	struct tokens ids = { 0 };
	struct parts p = { 0 };
	size_t at = 0;

	for (uint32_t n = 1 + draw(seed, MAX_PARTS - 1); n; n--) {
		uint32_t c = draw(seed, 3);

		strcat(escaped, letter[c]);
		strcat(plain, c == 2 ? " " : letter[c]);
		p.part[p.n++] = (struct gguf_str){ escaped + at, strlen(letter[c]) };
		at += strlen(letter[c]);
	}
	merge_by_the_book(v, n_vocab, &p);
	assert_int_equal(tokenizer_encode(t, plain, strlen(plain), false, &ids, NULL), TENON_OK);
	assert_int_equal(ids.n, p.n);
	for (size_t i = 0; i < p.n; i++) {
		const char *got = v[ids.id[i]].text;

		assert_int_equal(strlen(got), p.part[i].len);
		assert_memory_equal(got, p.part[i].s, p.part[i].len);
	}
	tokens_finish(&ids);
}

static void spm_equals_plain_merging(void **st)
{
	uint64_t seed = 3;

	(void)st;
	for (int round = 0; round < 60; round++) {
		char text[24][32];
		struct tok v[24];
		struct made d;

		random_vocab(v, text, COUNT_OF(v), &seed);
		put_vocab(&d.m, "llama", v, COUNT_OF(v));
		gguf_make_bool(&d.m, "tokenizer.ggml.add_space_prefix", false);
		assert_int_equal(create(&d, NULL), TENON_OK);
		for (int k = 0; k < 40; k++)
			compare_on_random_text(d.tok, v, COUNT_OF(v), &seed);
		drop(&d);
	}
}

/* ---- every pre-tokenizer ------------------------------------------------------------------------------ */

/* Long uniform texts, and runs that end in something else, must not be quadratic under any pattern. */
static void patterns_take_time_in_proportion(void **st)
{
	static const char *const names[] = { "gpt-2", "mpt", "smollm", "command-r", "llama-bpe", "dbrx",
		"glm4", "minicpm5", "qwen2", "stablelm2", "qwen35", "falcon", "default", "deepseek-llm",
		"deepseek-coder", "deepseek-v3", "tekken", "gpt-4o", "seed-coder", "bailingmoe", "bloom",
		"viking" };
	static const char *const unit[] = { " ", "A", "a", "Aa", "1", "!", "'", " \n", "\r", "\xcc\x81",
		"\xe4\xb8\xad", "\xc2\x85", "\x01", "\xc7\x85", "'s", " 1" };

	(void)st;
	for (size_t n = 0; n < COUNT_OF(names); n++) {
		uint64_t start = cpu_ns();
		struct made d;

		make_bytes(&d, names[n]);
		assert_int_equal(create(&d, NULL), TENON_OK);
		for (size_t i = 0; i < COUNT_OF(unit); i++) {
			struct tokens ids = { 0 };
			struct buf text;

			buf_init(&text, MEM_TOOL, 0);
			while (text.len < 50000)
				assert_true(buf_puts(&text, unit[i]));
			assert_true(buf_puts(&text, i % 2 ? "x" : "\xe4\xb8\xad"));
			assert_int_equal(
				tokenizer_encode(d.tok, text.data, text.len, false, &ids, NULL), TENON_OK);
			buf_finish(&text);
			tokens_finish(&ids);
		}
		if (cpu_ns() - start > 10 * NS_PER_S)
			fail_msg("%s took %llu ms", names[n],
				(unsigned long long)((cpu_ns() - start) / NS_PER_MS));
		drop(&d);
	}
}

/* ---- what is refused --------------------------------------------------------------------------------- */

static void bad_vocabularies_are_refused(void **st)
{
	static const char *const lost[] = { "a b", "b zz" }, *const flat[] = { "ab" };
	struct made d;

	(void)st;
	gguf_make_init(&d.m);
	refused(&d, TENON_E_NOT_FOUND, "tokenizer.ggml.model");
	put_vocab(&d.m, "t5", spm_vocab, COUNT_OF(spm_vocab));
	refused(&d, TENON_E_UNSUPPORTED, "tokenizer.ggml.model");
	gguf_make_init(&d.m);
	gguf_make_str(&d.m, "tokenizer.ggml.model", "gpt2");
	refused(&d, TENON_E_NOT_FOUND, "tokenizer.ggml.tokens");
	make_bytes(&d, "no-such-thing");
	refused(&d, TENON_E_UNSUPPORTED, "\"no-such-thing\"");
	make_bytes(&d, "gpt-2 phi-2"); /* two names of the table at once */
	refused(&d, TENON_E_UNSUPPORTED, "tokenizer.ggml.pre");
	put_vocab(&d.m, "gpt2", bytes_vocab, COUNT_OF(bytes_vocab));
	put_merges(&d.m, lost, COUNT_OF(lost));
	refused(&d, TENON_E_FORMAT, "merge 1");
	put_vocab(&d.m, "gpt2", bytes_vocab, COUNT_OF(bytes_vocab));
	put_merges(&d.m, flat, COUNT_OF(flat));
	refused(&d, TENON_E_FORMAT, "merge 0");
	put_vocab(&d.m, "gpt2", bytes_vocab, COUNT_OF(bytes_vocab));
	refused(&d, TENON_E_NOT_FOUND, "tokenizer.ggml.merges");
	make_spm(&d);
	gguf_make_u32(&d.m, "tokenizer.ggml.eot_token_id", 4);
	gguf_make_str(&d.m, "tokenizer.ggml.add_bos_token", "yes");
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.add_bos_token");
	put_vocab(&d.m, "llama", spm_vocab, COUNT_OF(spm_vocab));
	gguf_make_u32(&d.m, "tokenizer.ggml.bos_token_id", COUNT_OF(spm_vocab));
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.bos_token_id");
}

static void bad_tables_are_refused(void **st)
{
	static const struct gguf_str words[] = { { "a", 1 }, { "b", 1 } };
	struct made d;

	(void)st;
	gguf_make_init(&d.m);
	gguf_make_str(&d.m, "tokenizer.ggml.model", "llama");
	gguf_make_strs(&d.m, "tokenizer.ggml.tokens", words, 2);
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.scores");
	gguf_make_init(&d.m);
	gguf_make_str(&d.m, "tokenizer.ggml.model", "llama");
	gguf_make_strs(&d.m, "tokenizer.ggml.tokens", words, 2);
	gguf_make_array(&d.m, "tokenizer.ggml.scores", GGUF_F32, (float[]){ 0 }, 1, 4);
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.scores");
	gguf_make_init(&d.m);
	gguf_make_str(&d.m, "tokenizer.ggml.model", "llama");
	gguf_make_strs(&d.m, "tokenizer.ggml.tokens", words, 2);
	gguf_make_array(&d.m, "tokenizer.ggml.token_type", GGUF_I32, (int32_t[]){ 1, 7 }, 2, 8);
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.token_type");
	gguf_make_init(&d.m);
	gguf_make_str(&d.m, "tokenizer.ggml.model", "llama");
	gguf_make_array(&d.m, "tokenizer.ggml.tokens", GGUF_I32, (int32_t[]){ 1, 7 }, 2, 8);
	refused(&d, TENON_E_FORMAT, "tokenizer.ggml.tokens");
}

static void bad_calls_are_refused(void **st)
{
	static const struct text_span gap[] = { { 0, 1, true }, { 2, 1, true } }, past[] = { { 0, 9, true } },
				      few[] = { { 0, 2, true } };
	struct tokens ids = { 0 };
	struct error e = { 0 };
	struct made d;
	struct buf b;

	(void)st;
	make_spm(&d);
	assert_int_equal(create(&d, NULL), TENON_OK);
	assert_int_equal(tokens_push(&ids, 7), TENON_OK);
	assert_int_equal(tokenizer_encode(d.tok, "ab\xff", 3, false, &ids, &e), TENON_E_UTF8);
	assert_non_null(strstr(e.text, "byte 2"));
	assert_int_equal(tokenizer_encode_spans(d.tok, "abc", 3, gap, 2, &ids, &e), TENON_E_INVALID);
	assert_int_equal(tokenizer_encode_spans(d.tok, "abc", 3, past, 1, &ids, &e), TENON_E_INVALID);
	assert_int_equal(tokenizer_encode_spans(d.tok, "abc", 3, few, 1, &ids, &e), TENON_E_INVALID);
	assert_true(ids.n == 1 && ids.id[0] == 7);
	buf_init(&b, MEM_TOOL, 0);
	assert_true(buf_puts(&b, "x"));
	assert_int_equal(tokenizer_decode(d.tok, (int32_t[]){ 4, -1 }, 2, &b, &e), TENON_E_INVALID);
	assert_int_equal(
		tokenizer_decode(d.tok, (int32_t[]){ 4, COUNT_OF(spm_vocab) }, 2, &b, &e), TENON_E_INVALID);
	assert_int_equal(tokenizer_piece(d.tok, INT32_MAX, false, false, &b, &e), TENON_E_INVALID);
	assert_string_equal(b.data, "x");
	assert_int_equal(
		tokenizer_piece(d.tok, 2, false, false, &b, &e), TENON_OK); /* control, not asked for */
	assert_string_equal(b.data, "x");
	assert_int_equal(tokenizer_piece(d.tok, 2, false, true, &b, &e), TENON_OK);
	assert_string_equal(b.data, "x</s>");
	buf_finish(&b);
	tokens_finish(&ids);
	drop(&d);
}

static void memory_may_fail_at_any_point(void **st)
{
	uint64_t base = mem_area_bytes(MEM_TOKENIZER);
	struct tokens ids = { 0 };
	struct error e;
	struct made d;
	int n = 0, rc;

	(void)st;
	make_bytes(&d, "qwen2");
	assert_true(gguf_make_finish(&d.m));
	assert_int_equal(gguf_open_memory(d.m.file.data, d.m.file.len, &d.file, NULL), TENON_OK);
	do {
		d.tok = NULL;
		mem_fail_at((uint64_t)++n);
		rc = tokenizer_create(d.file, &d.tok, &e);
		mem_fail_at(0);
		if (rc) {
			assert_int_equal(rc, TENON_E_NOMEM);
			assert_int_equal(mem_area_bytes(MEM_TOKENIZER), base);
		}
	} while (rc && n < 200);
	assert_in_range(n, 8, 60);
	base = mem_area_bytes(MEM_TOKENIZER);
	n = 0;
	do {
		mem_fail_at((uint64_t)++n);
		rc = tokenizer_encode(d.tok, "abcabc a\xcc\x88", 10, true, &ids, &e);
		mem_fail_at(0);
		if (rc) {
			assert_int_equal(rc, TENON_E_NOMEM);
			assert_int_equal(ids.n, 0);
			assert_true(mem_area_bytes(MEM_TOKENIZER) <= base + 1024);
		}
	} while (rc && n < 200);
	assert_in_range(n, 5, 60);
	tokens_finish(&ids);
	drop(&d);
}

/* ---- gpt-2: trust, size, threads --------------------------------------------------------------------- */

struct shared {
	struct buf bytes;
	struct gguf *file;
	struct tokenizer *tok;
};

static int load_gpt2(void **st)
{
	static struct shared s;
	struct error e;

	buf_init(&s.bytes, MEM_TOOL, 0);
	if (!gz_read(unit_src("tests/data/tokenizer/ggml-vocab-gpt-2.gguf.gz"), &s.bytes) ||
		gguf_open_memory(s.bytes.data, s.bytes.len, &s.file, &e) ||
		tokenizer_create(s.file, &s.tok, &e))
		return -1;
	*st = &s;
	return 0;
}

static int unload_gpt2(void **st)
{
	struct shared *s = *st;

	tokenizer_destroy(s->tok);
	gguf_close(s->file);
	buf_finish(&s->bytes);
	return 0;
}

static size_t count_of(
	const struct tokenizer *t, const char *text, const struct text_span *spans, size_t n, int32_t id)
{
	struct tokens ids = { 0 };
	size_t count = 0;

	assert_int_equal(tokenizer_encode_spans(t, text, strlen(text), spans, n, &ids, NULL), TENON_OK);
	for (size_t i = 0; i < ids.n; i++)
		count += ids.id[i] == id;
	tokens_finish(&ids);
	return count;
}

static void control_tokens_need_trust(void **st)
{
	static const char text[] = "a<|endoftext|>b"; /* the token is bytes 1 .. 13 */
	const struct tokenizer *t = ((struct shared *)*st)->tok;
	int32_t end = tokenizer_find(t, "<|endoftext|>", 13);
	size_t len = strlen(text);

	assert_int_equal(end, 50256);
	for (size_t cut = 0; cut <= len; cut++) {
		struct text_span both[] = { { 0, cut, true }, { cut, len - cut, true } },
				 head[] = { { 0, cut, true }, { cut, len - cut, false } },
				 tail[] = { { 0, cut, false }, { cut, len - cut, true } };

		assert_int_equal(count_of(t, text, both, 2, end), 1);
		assert_int_equal(count_of(t, text, head, 2, end), cut >= 14);
		assert_int_equal(count_of(t, text, tail, 2, end), cut <= 1);
	}
	for (size_t at = 0; at < len; at++) { /* one byte in the middle is not trusted */
		struct text_span hole[] = { { 0, at, true }, { at, 1, false },
			{ at + 1, len - at - 1, true } };

		assert_int_equal(count_of(t, text, hole, 3, end), at == 0 || at == 14);
	}
}

static void spans_do_not_cut_the_text(void **st)
{
	static const char text[] = "The quick  brown f\xc3\xb6x\n\n jumps over 12345 lazy dogs, isn't it?";
	const struct tokenizer *t = ((struct shared *)*st)->tok;
	struct tokens whole = { 0 }, parts = { 0 };
	size_t len = strlen(text);

	assert_int_equal(tokenizer_encode(t, text, len, false, &whole, NULL), TENON_OK);
	for (size_t cut = 0; cut <= len; cut++) {
		struct text_span s[] = { { 0, cut, true }, { cut, len - cut, false } };

		parts.n = 0;
		assert_int_equal(tokenizer_encode_spans(t, text, len, s, 2, &parts, NULL), TENON_OK);
		assert_int_equal(parts.n, whole.n);
		assert_memory_equal(parts.id, whole.id, whole.n * sizeof *whole.id);
	}
	tokens_finish(&whole);
	tokens_finish(&parts);
}

/* A megabyte of one thing must take time in proportion: none may take 30 times as long as prose does. */
static void uniform_text_is_not_slow(void **st)
{
	static const char *const unit[] = { "The harbour was quiet, and 12 boats lay still. ", "a", " ", "\n",
		"0", "'", "\t ", "\xcc\x81", "\xcc\x81\xcc\xa7", "<|endoftext|", "<", "\xe4\xb8\xad", "!a" };
	const struct tokenizer *t = ((struct shared *)*st)->tok;
	uint64_t prose_ns = 0;

	for (size_t i = 0; i < COUNT_OF(unit); i++) {
		struct tokens ids = { 0 };
		uint64_t start, took;
		struct buf text, back;

		buf_init(&text, MEM_TOOL, 0);
		buf_init(&back, MEM_TOOL, 0);
		while (text.len < 300000)
			assert_true(buf_puts(&text, unit[i]));
		start = cpu_ns();
		assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &ids, NULL), TENON_OK);
		took = cpu_ns() - start;
		prose_ns = i ? prose_ns : took;
		if (took > 30 * prose_ns + NS_PER_S)
			fail_msg("\"%s\" took %llu us, prose %llu us", unit[i],
				(unsigned long long)(took / 1000), (unsigned long long)(prose_ns / 1000));
		assert_int_equal(tokenizer_decode(t, ids.id, ids.n, &back, NULL), TENON_OK);
		assert_int_equal(back.len, text.len);
		assert_memory_equal(back.data, text.data, text.len);
		buf_finish(&text);
		buf_finish(&back);
		tokens_finish(&ids);
	}
}

/* Random characters of random ranges. */
static void random_text(struct buf *out, uint64_t *seed, size_t n_chars)
{
	static const uint32_t top[] = { 0x80, 0x80, 0x800, 0x3100, 0x10000, 0x20000, 0x110000 };

	buf_clear(out);
	assert_true(buf_puts(out, ""));
	for (size_t i = 0; i < n_chars; i++) {
		char c[4];

		*seed = *seed * 6364136223846793005u + 1442695040888963407u;
		assert_true(buf_append(out, c,
			utf8_encode((uint32_t)(*seed >> 32) % top[(*seed >> 20) % COUNT_OF(top)], c)));
	}
}

static void random_text_comes_back(void **st)
{
	const struct tokenizer *t = ((struct shared *)*st)->tok;
	uint64_t seed = 7;
	struct buf text, back;

	buf_init(&text, MEM_TOOL, 0);
	buf_init(&back, MEM_TOOL, 0);
	for (size_t n = 0; n < 400; n++) {
		struct tokens ids = { 0 };

		random_text(&text, &seed, n);
		buf_clear(&back);
		assert_true(buf_puts(&back, ""));
		assert_int_equal(tokenizer_encode(t, text.data, text.len, false, &ids, NULL), TENON_OK);
		assert_int_equal(tokenizer_decode(t, ids.id, ids.n, &back, NULL), TENON_OK);
		assert_int_equal(back.len, text.len);
		assert_memory_equal(back.data, text.data, text.len);
		tokens_finish(&ids);
	}
	buf_finish(&text);
	buf_finish(&back);
}

struct worker {
	const struct tokenizer *tok;
	uint64_t sum;
};

static void *encode_much(void *arg)
{
	struct worker *w = arg;
	struct tokens ids = { 0 };
	struct buf text;
	uint64_t seed = 99;

	buf_init(&text, MEM_TOOL, 0);
	for (int round = 0; round < 50; round++) {
		random_text(&text, &seed, 300);
		ids.n = 0;
		if (tokenizer_encode(w->tok, text.data, text.len, true, &ids, NULL))
			break;
		for (size_t i = 0; i < ids.n; i++)
			w->sum = w->sum * 31 + (uint64_t)ids.id[i];
	}
	buf_finish(&text);
	tokens_finish(&ids);
	return NULL;
}

static void threads_share_a_tokenizer(void **st)
{
	struct worker w[4];
	pthread_t thread[4];

	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){ ((struct shared *)*st)->tok, 1 };
		assert_int_equal(pthread_create(&thread[i], NULL, encode_much, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_true(w[0].sum != 1);
	for (int i = 1; i < 4; i++)
		assert_true(w[i].sum == w[0].sum);
}

int main(void)
{
	const struct CMUnitTest made[] = {
		cmocka_unit_test(spm_rules),
		cmocka_unit_test(spm_without_dummy_prefix),
		cmocka_unit_test(text_bpe_rules),
		cmocka_unit_test(wordpiece_rules),
		cmocka_unit_test(bytes_rules),
		cmocka_unit_test(special_texts_longest_first),
		cmocka_unit_test(spm_equals_plain_merging),
		cmocka_unit_test(patterns_take_time_in_proportion),
		cmocka_unit_test(bad_vocabularies_are_refused),
		cmocka_unit_test(bad_tables_are_refused),
		cmocka_unit_test(bad_calls_are_refused),
		cmocka_unit_test(memory_may_fail_at_any_point),
	};
	const struct CMUnitTest gpt2[] = {
		cmocka_unit_test(control_tokens_need_trust),
		cmocka_unit_test(spans_do_not_cut_the_text),
		cmocka_unit_test(uniform_text_is_not_slow),
		cmocka_unit_test(random_text_comes_back),
		cmocka_unit_test(threads_share_a_tokenizer),
	};
	int failed = cmocka_run_group_tests_name("made vocabularies", made, NULL, NULL);

	return failed + cmocka_run_group_tests_name("gpt-2", gpt2, load_gpt2, unload_gpt2);
}
