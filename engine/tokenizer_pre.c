/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizers: for each name that tokenizer.ggml.pre may carry, the published patterns that cut text into pieces
 * before merging. A pattern cuts its input into matches and the gaps between them; the next pattern works on each of
 * these pieces by itself, so that look-ahead never sees beyond a piece. All patterns here take time proportional to
 * the text (each alternative consumes the run it looked at); the match limit, scaled to the piece, is the guard.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer_priv.h"
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* White_Space. PCRE2's own \s would add U+180E. */
#define WS  "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S1  "[" WS "]"
#define NS1 "[^" WS "]"

#define ENDINGS	  "'s|'t|'re|'ve|'m|'ll|'d"
#define ENDINGS_I "(?i:" ENDINGS ")"
#define LINES	  S1 "*[\\r\\n]+"
#define SPACES	  S1 "+(?!" NS1 ")|" S1 "+"
/* only tried where a run begins: else a long run in mid-text would be looked at from each of its places */
#define TRAILING    "(?<!" S1 ")" S1 "++$"
#define SYMBOLS	    " ?[^" WS "\\p{L}\\p{N}]+"
#define WORD	    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define UPPER	    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER	    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED	    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
#define CASED2	    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"
#define ASCII_PUNCT "[!-/:-@\\[-`{-~]"

#define GPT2		 ENDINGS "| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACES
#define LLAMA3_N(digits) ENDINGS_I "|" WORD "|" digits "|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES
#define LLAMA3		 LLAMA3_N("\\p{N}{1,3}")
#define QWEN2		 LLAMA3_N("\\p{N}")
#define PUNCT_RUN	 "(?:[\\p{P}]|" ASCII_PUNCT ")+"
#define HAN_KANA	 "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK3                                                                                            \
	ASCII_PUNCT                                                                                          \
	"[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

/* The letters of DeepSeek's first models: scripts with case. */
#define DEEPSEEK_LETTERS                                                                                                   \
	"A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"   \
	"\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"     \
	"\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"       \
	"\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                  \
	"\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                  \
	"\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
	"\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                  \
	"\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
	"\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
	"\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}" \
	"\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                  \
	"\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                \
	"\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"        \
	"\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_PUNCT "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define DEEPSEEK_CJK   "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

static const struct kind {
	const char *names; /* separated by spaces, with one at each end */
	const char *pattern[PRE_MAX_STAGES];
	struct pre_traits traits;
} kinds[] = {
	{ " gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe gigachat a.x-4.0 mellum"
	  " jais trillion granite-docling exaone4 ",
		{ GPT2 }, { 0 } },
	{ " mpt olmo modern-bert ", { GPT2 }, { .nfc = true } },
	{ " smollm starcoder refact codeshell exaone minerva-7b mellum2 ", { "\\p{N}", GPT2 }, { 0 } },
	{ " command-r ", { "\\p{N}", GPT2 }, { .nfc = true } },
	{ " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ", { LLAMA3 },
		{ .whole_first = true, .adds_bos = true } },
	{ " dbrx smaug-bpe chatglm-bpe ", { LLAMA3 }, { 0 } },
	{ " glm4 glm5 ", { LLAMA3 }, { .whole_first = true } },
	{ " minicpm5 ", { "\\p{N}{1,3}", LLAMA3_N("\\p{N}+") }, { .whole_first = true } },
	{ " qwen2 deepseek-r1-qwen megrez kormo f2llmv2 ", { QWEN2 }, { .nfc = true } },
	{ " stablelm2 hunyuan solar-open grok-2 ", { QWEN2 }, { 0 } },
	{ " qwen35 ",
		{ ENDINGS_I "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
			    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES },
		{ .nfc = true } },
	{ " falcon ", { PUNCT_RUN, GPT2 }, { .splits_digits = true } },
	{ " default ", { "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }, { 0 } },
	{ " deepseek-llm ",
		{ "[\\r\\n]", S1 "?[" DEEPSEEK_LETTERS "]+", S1 "?[" DEEPSEEK_PUNCT "]+", TRAILING,
			DEEPSEEK_CJK, "\\p{N}" },
		{ 0 } },
	{ " deepseek-coder ", { "[\\r\\n]", S1 "?\\p{L}+", S1 "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}" }, { 0 } },
	{ " deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", { "\\p{N}{1,3}", HAN_KANA, DEEPSEEK3 }, { 0 } },
	{ " tekken ", { CASED "|" CASED2 "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINES "|" SPACES },
		{ .whole_first = true, .adds_bos = true } },
	{ " gpt-4o llama4 kanana2 talkie minimax-m2 ",
		{ CASED ENDINGS_I "?|" CASED2 ENDINGS_I "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" LINES
				  "|" SPACES },
		{ 0 } },
	{ " seed-coder ", { ENDINGS_I "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES },
		{ 0 } },
	{ " bailingmoe bailingmoe2 llada-moe ",
		{ "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS
		  "\\p{L}\\p{N}]++[\\r\\n]*|" S1 "*[\\r\\n]|" SPACES },
		{ 0 } },
	{ " poro-chat bloom gpt3-finnish ", { BLOOM }, { 0 } },
	{ " viking ", { BLOOM, "\\p{N}" }, { 0 } },
};

struct pre {
	pcre2_general_context *memory;
	pcre2_code *code[PRE_MAX_STAGES];
	size_t n;
	struct pre_traits traits;
};

static void *allocate(PCRE2_SIZE bytes, void *unused)
{
	(void)unused;
	return mem_alloc(MEM_TOKENIZER, bytes);
}

static void release(void *p, void *unused)
{
	(void)unused;
	mem_free(p);
}

static const struct kind *find_kind(struct gguf_str name)
{
	char padded[66];

	if (!name.len || name.len > sizeof padded - 3 || memchr(name.s, ' ', name.len) ||
		memchr(name.s, 0, name.len))
		return NULL;
	(void)snprintf(padded, sizeof padded, " %.*s ", (int)name.len, name.s);
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		if (strstr(kinds[i].names, padded))
			return &kinds[i];
	return NULL;
}

/* How much of a name from a file may stand in an error text. */
static int printable(struct gguf_str s)
{
	int n = 0;

	while ((size_t)n < s.len && n < 40 && s.s[n] > ' ' && s.s[n] < 0x7f)
		n++;
	return n;
}

static int compile(struct pre *p, const struct kind *k, struct error *e)
{
	PCRE2_SIZE at;
	int rc;

	p->memory = pcre2_general_context_create(allocate, release, NULL);
	if (!p->memory)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for its patterns");
	for (; p->n < PRE_MAX_STAGES && k->pattern[p->n]; p->n++) {
		pcre2_compile_context *c = pcre2_compile_context_create(p->memory);

		p->code[p->n] = c ? pcre2_compile((PCRE2_SPTR)k->pattern[p->n], PCRE2_ZERO_TERMINATED,
					    PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &rc, &at, c)
				  : NULL;
		pcre2_compile_context_free(c);
		if (!p->code[p->n])
			return error_set(
				e, TENON_E_NOMEM, "tokenizer: its pattern %zu does not compile", p->n);
		/* without a JIT (other machines) the interpreter serves */
		(void)pcre2_jit_compile(p->code[p->n], PCRE2_JIT_COMPLETE);
	}
	return TENON_OK;
}

int pre_create(struct gguf_str name, struct pre **out, struct error *e)
{
	const struct kind *k = find_kind(name);
	struct pre *p;
	int rc;

	if (!k)
		return error_set(e, TENON_E_UNSUPPORTED,
			"key \"tokenizer.ggml.pre\": the pre-tokenizer \"%.*s\" is not known; use another model or a newer Tenon",
			printable(name), name.s);
	p = mem_zalloc(MEM_TOKENIZER, 1, sizeof *p);
	if (!p)
		return error_set(e, TENON_E_NOMEM, "tokenizer: no memory for its patterns");
	p->traits = k->traits;
	rc = compile(p, k, e);
	if (rc)
		pre_destroy(p);
	else
		*out = p;
	return rc;
}

void pre_destroy(struct pre *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < PRE_MAX_STAGES; i++)
		pcre2_code_free(p->code[i]);
	pcre2_general_context_free(p->memory);
	mem_free(p);
}

const struct pre_traits *pre_get_traits(const struct pre *p) { return &p->traits; }

/* ---- splitting --------------------------------------------------------------------------------------- */

struct split {
	const struct pre *p;
	struct pre_scratch *scratch;
	pre_piece_fn *fn;
	void *ctx;
	struct error *e;
};

static int prepare(struct split *sp, size_t stage)
{
	struct pre_scratch *s = sp->scratch;

	if (!s->context) {
		pcre2_match_context *c = pcre2_match_context_create(sp->p->memory);

		if (c)
			(void)pcre2_set_depth_limit(c, 1000000);
		s->context = c;
	}
	if (!s->match[stage])
		s->match[stage] = pcre2_match_data_create(1, sp->p->memory);
	return s->context && s->match[stage]
		? TENON_OK
		: error_set(sp->e, TENON_E_NOMEM, "tokenizer: no memory to split the text");
}

/* Next match at or after `at`: 1 and its place, 0 for none, or an error. */
static int next_match(struct split *sp, size_t stage, const char *s, size_t len, size_t at, size_t place[2])
{
	pcre2_match_context *context = sp->scratch->context;
	pcre2_match_data *data = sp->scratch->match[stage];
	const PCRE2_SIZE *o;
	int rc;

	(void)pcre2_set_match_limit(
		context, (uint32_t)MIN_OF(1000000 + 32 * (uint64_t)len, (uint64_t)UINT32_MAX));
	rc = pcre2_match(sp->p->code[stage], (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK, data, context);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(sp->p->code[stage], (PCRE2_SPTR)s, len, at,
			PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0)
		return error_set(sp->e, rc == PCRE2_ERROR_NOMEMORY ? TENON_E_NOMEM : TENON_E_TOO_LONG,
			"tokenizer: splitting the text hit a limit (PCRE2 error %d); send it in parts", rc);
	o = pcre2_get_ovector_pointer(data);
	place[0] = o[0];
	place[1] = o[1];
	return 1;
}

/* Depth: the number of stages. */
static int split(struct split *sp, size_t stage, const char *s, size_t len)
{
	int rc;

	if (stage == sp->p->n)
		return sp->fn(sp->ctx, s, len);
	rc = prepare(sp, stage);
	for (size_t at = 0; !rc && at < len;) {
		size_t place[2] = { 0, 0 };
		int found = next_match(sp, stage, s, len, at, place);

		if (found < 0)
			return found;
		if (!found || place[1] <= place[0])
			return split(sp, stage + 1, s + at, len - at);
		if (place[0] > at)
			rc = split(sp, stage + 1, s + at, place[0] - at);
		if (!rc)
			rc = split(sp, stage + 1, s + place[0], place[1] - place[0]);
		at = place[1];
	}
	return rc;
}

int pre_split(const struct pre *p, struct pre_scratch *scratch, const char *s, size_t len, pre_piece_fn *fn,
	void *ctx, struct error *e)
{
	struct split sp = { p, scratch, fn, ctx, e };

	return len ? split(&sp, 0, s, len) : TENON_OK;
}

void pre_scratch_finish(struct pre_scratch *s)
{
	for (size_t i = 0; i < PRE_MAX_STAGES; i++)
		pcre2_match_data_free(s->match[i]);
	pcre2_match_context_free(s->context);
}
