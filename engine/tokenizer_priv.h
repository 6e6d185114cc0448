/* SPDX-License-Identifier: Apache-2.0
 * What the tokenizer's files share. A tokenizer is a vocabulary, a matcher for special tokens, and one of four
 * models; all of it is read-only once created. Whatever changes during a call lives in a `struct encoder` on the
 * caller's stack, so threads never meet.
 */
#ifndef ENGINE_TOKENIZER_PRIV_H
#define ENGINE_TOKENIZER_PRIV_H
#include "base/base.h"
#include "engine/tokenizer.h"

enum {
	TOKENIZER_MAX_VOCAB = 1 << 22,
	TOKENIZER_MAX_TOKEN_BYTES = 4096,   /* keeps every look-up short, whatever the file says */
	TOKENIZER_MAX_TEXT_BYTES = 1 << 28, /* positions are 32 bits wide after tripling (U+2581) */
	PRE_MAX_STAGES = 6
};

enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

enum tokenizer_model { MODEL_BYTES, MODEL_TEXT, MODEL_SPM, MODEL_WORDPIECE }; /* "gpt2", "gemma4", "llama", "bert" */

/* ---- vocabulary (tokenizer_vocab.c) ---- */

struct vocab {
	const struct gguf_str *text; /* [n], borrowed from the file                     */
	const uint8_t *scores;       /* [n] unaligned float, or NULL                    */
	uint8_t *type;               /* [n] enum token_type                             */
	uint32_t n;
	uint64_t seed;               /* of the hash: keeps a file from choosing collisions */
	uint64_t *slot;              /* [mask + 1] upper 40 bits of the hash, id + 1; 0: empty */
	uint32_t mask;
	size_t longest_bytes;
	int32_t bos, eos, unk; /* -1: none */
};

int vocab_load(struct vocab *v, const struct gguf *g, struct error *e);
void vocab_finish(struct vocab *v);
/* Id whose stored text equals s; -1. Of equal texts a normal token wins, then the lowest id. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t len);
/* The same for what plain text may become: never a control, unknown or byte token. */
int32_t vocab_find_text(const struct vocab *v, const char *s, size_t len);
/* The same for a text that is a token in any sound file; of another text it may, very rarely, say yes. */
int32_t vocab_find_known(const struct vocab *v, const char *s, size_t len);
float vocab_score(const struct vocab *v, int32_t id);
/* [256] ids of the tokens <0x00> .. <0xFF>, -1 where there is none. */
void vocab_byte_tokens(const struct vocab *v, int32_t *out);
/* 0..255 for the text of a byte token, else -1. */
int vocab_byte_value(struct gguf_str text);
static inline uint64_t vocab_mix(uint64_t a, uint64_t b)
{
	__uint128_t p = (__uint128_t)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* ---- special tokens (tokenizer_special.c) ---- */

struct special {
	struct gguf_str text;
	int32_t id;
	bool control;
};

struct specials {
	struct special *item; /* [n] sorted by text, so that the texts with one beginning are neighbours */
	size_t n;
	uint32_t first[257];  /* item[first[c]] .. item[first[c + 1] - 1] begin with byte c */
	char *escaped;        /* holds texts with U+2581 for space, or NULL */
};

/* Collects control (and unknown) and/or user-defined tokens. `escape`: with U+2581 in place of spaces. */
int specials_build(struct specials *sp, const struct vocab *v, bool control, bool user, bool escape, struct error *e);
void specials_finish(struct specials *sp);
/* Longest match at s: any user-defined token, or a control token of at most `trusted` bytes. -1: none. */
int32_t specials_match(const struct specials *sp, const char *s, size_t len, size_t trusted, size_t *match_len);

/* ---- pre-tokenizer patterns (tokenizer_pre.c) ---- */

struct pre; /* compiled patterns; read-only */

struct pre_traits {
	bool nfc;          /* text is brought to NFC first                                 */
	bool whole_first;  /* a piece that is a token is taken as it is ("ignore_merges")  */
	bool adds_bos;     /* when the file does not say                                   */
	bool splits_digits; /* falcon: runs of digits, then threes, among the mapped bytes */
};

struct pre_scratch {
	void *match[PRE_MAX_STAGES]; /* pcre2_match_data */
	void *context;               /* pcre2_match_context */
};

typedef int pre_piece_fn(void *ctx, const char *s, size_t len);

int pre_create(struct gguf_str name, struct pre **out, struct error *e);
void pre_destroy(struct pre *p);
const struct pre_traits *pre_get_traits(const struct pre *p);
/* Calls fn for each piece of s in turn; together they are s. */
int pre_split(const struct pre *p, struct pre_scratch *scratch, const char *s, size_t len, pre_piece_fn *fn, void *ctx,
	struct error *e);
void pre_scratch_finish(struct pre_scratch *s);

/* ---- Unicode (tokenizer_unicode.c) ---- */

bool unicode_is_space(uint32_t cp); /* White_Space */
/* Appends s in NFC. Time n log n at worst, also for long runs of combining marks. */
int unicode_nfc(const char *s, size_t len, struct buf *out, struct error *e);
/* Canonical decomposition of one code point, at most 4 of them; returns how many. */
size_t unicode_decompose(uint32_t cp, uint32_t out[4]);
/* The 256 characters that stand for bytes in byte-level vocabularies: byte to code point, and back (-1: none). */
uint32_t unicode_byte_to_cp(uint8_t b);
int unicode_cp_to_byte(uint32_t cp);

/* ---- merging (tokenizer_merge.c) ---- */

struct merge { /* one line of the pair table; rank UINT32_MAX: empty */
	int32_t left, right;
	uint32_t rank;
	int32_t id;
};

struct merges {
	struct merge *slot; /* [mask + 1] */
	uint32_t mask;
	uint64_t seed;
};

int merges_load(struct merges *m, const struct gguf *g, const struct vocab *v, struct error *e);
void merges_finish(struct merges *m);

struct symbol { /* one part of the text under merging; a list within an array */
	uint32_t off, len; /* bytes; len 0: merged away */
	int32_t id;
	uint32_t prev, next; /* UINT32_MAX: none */
};

struct candidate {
	uint64_t key; /* what goes first << 32 | position of the left symbol */
	uint32_t a, b;
};

struct encoder {
	const struct tokenizer *t;
	struct tokens *out;
	struct error *e;
	struct pre_scratch pre;
	struct buf text, word; /* normalised text; a word under work */
	struct symbol *symbol;
	size_t n_symbols, symbols_cap;
	struct candidate *heap;
	size_t heap_n, heap_cap;
	bool unknown_last; /* the last token came from text that the vocabulary lacks */
};

bool encoder_add_symbol(struct encoder *x, uint32_t off, uint32_t len, int32_t id);
/* Merges the symbols by pair table (BPE) or by the score of the joined text at `base` (SentencePiece). */
int merge_by_rank(struct encoder *x, const struct merges *m);
int merge_by_score(struct encoder *x, const char *base);
int encoder_no_memory(const struct encoder *x);

/* ---- the four models: text between special tokens to ids ---- */

int bpe_encode_bytes(struct encoder *x, const char *s, size_t len);
int bpe_encode_text(struct encoder *x, const char *s, size_t len);
int spm_encode(struct encoder *x, const char *s, size_t len);
int wordpiece_encode(struct encoder *x, const char *s, size_t len);
/* Text with U+2581 for each space, `prefix` with one more in front. */
bool spm_escape(const char *s, size_t len, bool prefix, struct buf *out);
int encoder_push(struct encoder *x, int32_t id);
/* Marks the bytes that stand in front of U+2581 inside some token. Behind any other byte U+2581 begins a word which no
 * merge reaches across. */
void spm_find_crossings(const struct vocab *v, bool crosses[256]);
/* Calls fn for each part of escaped text that merges stay inside of: words, mostly. */
int spm_each_word(struct encoder *x, const char *s, size_t len, int (*fn)(struct encoder *, const char *, size_t));

struct tokenizer {
	enum tokenizer_model model;
	char *model_name, *pre_name;
	struct vocab v;
	struct specials raw;      /* matched in the text as it comes                          */
	struct specials escaped;  /* SentencePiece: user-defined tokens, in the escaped text  */
	struct pre *pre;          /* MODEL_BYTES  */
	struct pre_traits traits;
	struct merges merges;     /* MODEL_BYTES, MODEL_TEXT */
	int32_t byte_token[256];  /* of each byte, in whichever way the model writes it; -1: none */
	bool crosses[256];        /* see spm_find_crossings */
	bool dummy_prefix, adds_bos, adds_eos;
	int32_t *eog; /* [n_eog] */
	size_t n_eog;
};

/* Collects the ids that end a generation. */
int eog_load(struct tokenizer *t, const struct gguf *g, struct error *e);

#define U2581 "\xe2\x96\x81"
#endif
