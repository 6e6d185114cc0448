/* SPDX-License-Identifier: Apache-2.0
 * Text to token ids and back, as the model file says: byte-level BPE (tokenizer.ggml.model "gpt2", pre-tokenizer
 * by tokenizer.ggml.pre), SentencePiece BPE with byte fallback ("llama"), BPE over text with U+2581 ("gemma4"),
 * WordPiece ("bert"). Id for id equal to the reference tokenizers on tests/data/tokenizer. The vocabulary is
 * hostile until checked. Immutable after create: any number of threads may encode and decode at once.
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H
#include "base/buf.h"
#include "base/error.h"
#include "engine/gguf.h"
#include <stdbool.h>

struct tokenizer;

struct tokens { /* growable; zero-initialise; tokens_finish frees */
	int32_t *id;
	size_t n, cap;
};
int tokens_push(struct tokens *t, int32_t id); /* OK or NOMEM */
void tokens_finish(struct tokens *t);

/* A stretch of text. Control tokens are only recognised in trusted stretches, so that text which came from a
 * user's message can never forge a turn; user-defined tokens are matched in both. */
struct text_span {
	size_t off, len;
	bool trusted;
};

/* `g` is borrowed and must outlive the tokenizer. FORMAT/UNSUPPORTED errors name the key. */
int tokenizer_create(const struct gguf *g, struct tokenizer **out, struct error *e);
void tokenizer_destroy(struct tokenizer *t);

/* Appends the ids of text[0, len); adds no BOS or EOS. parse_special: the text of control tokens becomes their
 * id, leftmost first, longest first. UTF8 (with the offset) for malformed input; on any error `out` is as before.
 * Time is O(len log len) in the worst case; memory O(len). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
	struct tokens *out, struct error *e);

/* The same for text made of spans (ascending, disjoint, covering it all): a rendered chat template. The result
 * equals encode with parse_special except that no control token is recognised in, or across the border of, an
 * untrusted span. */
int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t len, const struct text_span *spans,
	size_t n_spans, struct tokens *out, struct error *e);

/* Appends the text of all ids: plain concatenation of the tokens' bytes (SentencePiece: U+2581 to space, one
 * leading space dropped after a dummy prefix; WordPiece: see tests/data/tokenizer/README.md). INVALID for an id
 * outside the vocabulary. The result may end inside a character. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, struct buf *out, struct error *e);

/* Appends the bytes of one token as it stands in the middle of a text (for streaming; `first`: it begins the
 * answer). Control tokens append nothing unless `special`. INVALID for an id outside the vocabulary. */
int tokenizer_piece(const struct tokenizer *t, int32_t id, bool first, bool special, struct buf *out, struct error *e);

size_t tokenizer_n_vocab(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t); /* what the file asks for with a raw prompt; WordPiece: [CLS] */
bool tokenizer_adds_eos(const struct tokenizer *t); /* WordPiece: [SEP] */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id); /* ends a generation: eos, eot, <|im_end|>, <end_of_turn> ... */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len); /* id whose stored text equals; -1 */
const char *tokenizer_model_name(const struct tokenizer *t); /* "gpt2", "llama", "bert", ... */
const char *tokenizer_pre_name(const struct tokenizer *t);   /* "smollm", ... or "" */
#endif
