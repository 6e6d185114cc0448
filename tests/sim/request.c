/* SPDX-License-Identifier: Apache-2.0
 * Requests of the simulation and their right answers. The model is a hash of the whole prefix: it names the row of logits,
 * and the row, the request's own sampler and its own stop rules name the next token. Solving takes one request at a time,
 * so nothing that the scheduler shares, reorders or drops can reach it.
 */
#include "tests/sim/sim.h"
#include "tests/unit/gguf_make.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- vocabulary ------------------------------------------------------------------------------------------------------ */

enum { N_PLAIN = SIM_VOCAB - 4, CONTROL = 3 };

struct sim_vocab {
	struct gguf_make make;
	struct gguf *file;
	struct tokenizer *tokenizer;
};

/* Plain characters, the two bytes of U+00E9 apart (so that text is held back), a control token, an end of turn. */
int sim_vocab_create(struct sim_vocab **out)
{
	struct sim_vocab *v = calloc(1, sizeof *v);
	char plain[N_PLAIN][2] = { { 0 } };
	struct gguf_str text[SIM_VOCAB];
	int32_t type[SIM_VOCAB];
	struct error e;
	int rc;

	for (int i = 0; i < N_PLAIN; i++) {
		plain[i][0] = (char)('!' + i);
		text[i] = (struct gguf_str){ plain[i], 1 };
		type[i] = 1;
	}
	text[N_PLAIN] = (struct gguf_str){ "\xc3\x83", 2 };
	text[N_PLAIN + 1] = (struct gguf_str){ "\xc2\xa9", 2 };
	text[N_PLAIN + 2] = (struct gguf_str){ "<|tool|>", 8 };
	text[N_PLAIN + 3] = (struct gguf_str){ "<|im_end|>", 10 };
	type[N_PLAIN] = type[N_PLAIN + 1] = 1;
	type[N_PLAIN + 2] = type[N_PLAIN + 3] = CONTROL;
	gguf_make_init(&v->make);
	gguf_make_str(&v->make, "tokenizer.ggml.model", "gpt2");
	gguf_make_str(&v->make, "tokenizer.ggml.pre", "gpt-2");
	gguf_make_strs(&v->make, "tokenizer.ggml.tokens", text, SIM_VOCAB);
	gguf_make_array(&v->make, "tokenizer.ggml.token_type", GGUF_I32, type, SIM_VOCAB, sizeof type);
	gguf_make_strs(&v->make, "tokenizer.ggml.merges", &(struct gguf_str){ "A B", 3 }, 0);
	rc = gguf_make_finish(&v->make) ? gguf_open_memory(v->make.file.data, v->make.file.len, &v->file, &e)
					: TENON_E_NOMEM;
	if (!rc)
		rc = tokenizer_create(v->file, &v->tokenizer, &e);
	if (rc) {
		(void)fprintf(stderr, "sim: vocabulary: %s\n", e.text);
		sim_vocab_destroy(v);
		return rc;
	}
	*out = v;
	return TENON_OK;
}

void sim_vocab_destroy(struct sim_vocab *v)
{
	if (!v)
		return;
	tokenizer_destroy(v->tokenizer);
	gguf_close(v->file);
	gguf_make_free(&v->make);
	free(v);
}

const struct tokenizer *sim_vocab_tokenizer(const struct sim_vocab *v) { return v->tokenizer; }

/* ---- the model ---------------------------------------------------------------------------------------------------------- */

uint64_t sim_hash(uint64_t before, int32_t token) { return sim_mix(before, (uint64_t)(uint32_t)token) | 1; }

/* Steps of 1/64 in -4..4: equal values are common enough for ties to be seen, and every float is exact. */
void sim_logits(uint64_t hash, float *row)
{
	struct rng r = { hash };

	for (uint32_t i = 0; i < SIM_VOCAB; i += 4) {
		uint64_t v = rng_next(&r);

		for (uint32_t k = 0; k < 4; k++, v >>= 16)
			row[i + k] = (float)(v & 511) / 64 - 4;
	}
}

/* ---- requests ----------------------------------------------------------------------------------------------------------- */

void sim_request_prepare(struct sim_request *r, uint32_t n_ctx)
{
	r->tokens = calloc(n_ctx + 8u, sizeof *r->tokens);
	r->hash = calloc(n_ctx + 9u, sizeof *r->hash);
	buf_init(&r->text, MEM_TOOL, 0);
}

void sim_request_free(struct sim_request *r)
{
	free(r->tokens);
	free(r->hash);
	buf_finish(&r->text);
}

static int solve(
	struct sim_request *r, struct sampler *s, struct emitter *m, uint32_t n_total, struct error *e)
{
	enum emit_end end = EMIT_GO_ON;
	float row[SIM_VOCAB];
	uint32_t n = r->n_prompt;
	int rc = TENON_OK;

	for (; !rc && end == EMIT_GO_ON && n < n_total;) {
		int32_t token;

		sim_logits(r->hash[n], row);
		rc = sampler_pick(s, row, n, &token, NULL, e);
		if (!rc)
			rc = emitter_push(m, token, &r->text, &end, e);
		if (rc || end == EMIT_END_TOKEN)
			break;
		sampler_accept(s, token);
		r->tokens[n] = token;
		r->hash[n + 1] = sim_hash(r->hash[n], token);
		n++;
	}
	if (!rc && end == EMIT_GO_ON)
		rc = emitter_finish(m, &r->text, e);
	r->n_answer = n - r->n_prompt;
	r->finish = end == EMIT_END_TOKEN ? WIRE_FINISH_STOP
		: end == EMIT_END_STRING  ? WIRE_FINISH_STOP_STRING
		: r->ask.max_tokens	  ? WIRE_FINISH_LENGTH
					  : WIRE_FINISH_CONTEXT;
	return rc;
}

int sim_request_solve(struct sim_request *r, const struct tokenizer *t, uint32_t n_ctx, struct error *e)
{
	uint32_t n_total = r->ask.max_tokens ? MIN_OF(r->n_prompt + r->ask.max_tokens, n_ctx) : n_ctx;
	struct sampler *s = NULL;
	struct emitter *m = NULL;
	int rc;

	r->ask.prompt = r->tokens;
	r->ask.n_prompt = r->n_prompt;
	r->hash[0] = SIM_HASH_NOTHING;
	for (uint32_t i = 0; i < r->n_prompt; i++)
		r->hash[i + 1] = sim_hash(r->hash[i], r->tokens[i]);
	if (r->refusal)
		return TENON_OK;
	rc = sampler_create(&r->ask.sampling, SIM_VOCAB, &s, e);
	if (!rc)
		rc = emitter_create(t, &r->ask.emit, &m, e);
	for (uint32_t i = 0; i < r->n_prompt && !rc; i++)
		sampler_accept(s, r->tokens[i]);
	if (!rc)
		rc = solve(r, s, m, n_total, e);
	sampler_destroy(s);
	emitter_destroy(m);
	return rc;
}
