/* SPDX-License-Identifier: Apache-2.0
 * A request becomes tokens: template, tokenizer, checks against the model. IO thread. The payload is a client's: errors
 * are typed and go back to it.
 */
#include "daemon/worker_priv.h"
#include <string.h>

static int ids_of(
	const struct model *m, const uint8_t *payload, uint64_t bytes, struct tokens *out, struct error *e)
{
	size_t n_vocab = tokenizer_n_vocab(model_tokenizer(m));

	for (uint64_t i = 0; i < bytes / 4; i++) {
		int32_t id;
		int rc;

		memcpy(&id, payload + 4 * i, sizeof id);
		if (id < 0 || (size_t)id >= n_vocab)
			return error_set(e, TENON_E_INVALID,
				"request: token %d at place %llu: outside the vocabulary of %zu", (int)id,
				(unsigned long long)i, n_vocab);
		rc = tokens_push(out, id);
		if (rc)
			return error_set(e, rc, "request: out of memory");
	}
	return TENON_OK;
}

static int tokens_of(const struct model *m, const struct frame_request *f, const uint8_t *payload,
	struct tokens *out, struct error *e)
{
	size_t bytes = (size_t)f->r.payload_bytes;
	int rc;

	switch (f->r.input) {
	case WIRE_TEXT:
		rc = model_tokens_from_text(m, (const char *)payload, bytes, out, e);
		break;
	case WIRE_MESSAGES:
		rc = model_tokens_from_messages(m, (const char *)payload, bytes, f->r.arrived_s, out, e);
		break;
	default:
		rc = ids_of(m, payload, bytes, out, e);
	}
	if (!rc && !out->n)
		rc = error_set(
			e, TENON_E_INVALID, "request: the prompt is empty and the model adds nothing to it");
	if (!rc && out->n > UINT32_MAX / 2)
		rc = error_set(e, TENON_E_TOO_LONG, "request: too many tokens");
	return rc;
}

static void fill_sampling(const struct frame_request *f, struct sampler_params *s)
{
	const struct wire_request *r = &f->r;

	*s = (struct sampler_params){ .temperature = r->temperature,
		.top_p = r->top_p,
		.min_p = r->min_p,
		.top_k = r->top_k,
		.repeat_penalty = r->repeat_penalty,
		.presence_penalty = r->presence_penalty,
		.frequency_penalty = r->frequency_penalty,
		.penalty_window = r->penalty_window,
		.seed = r->seed,
		.bias = (const struct sampler_bias *)(const void *)f->bias,
		.n_bias = r->n_bias,
		.n_logprobs = r->n_logprobs };
}
_Static_assert(sizeof(struct sampler_bias) == sizeof(struct wire_bias) &&
		offsetof(struct sampler_bias, bias) == offsetof(struct wire_bias, bias),
	"one layout");

static void fill_emit(const struct frame_request *f, struct prepared *p)
{
	for (uint32_t i = 0; i < f->r.n_stop; i++)
		p->stops[i] = (struct emit_stop){ .s = f->stop[i].s, .len = f->stop[i].len };
	p->request.emit = (struct emit_options){ .stops = p->stops,
		.n_stops = f->r.n_stop,
		.special = f->r.flags & WIRE_R_ECHO_SPECIAL,
		.ignore_eos = f->r.flags & WIRE_R_IGNORE_EOS };
}

static void fill(struct prepared *p, const struct frame_request *f, uint64_t id, uint64_t began_ns)
{
	uint64_t now_ns = clock_now_ns();
	struct sched_request *q = &p->request;

	q->id = id;
	q->prompt = p->tokens.id;
	q->n_prompt = (uint32_t)p->tokens.n;
	q->history = f->history;
	q->n_history = f->r.n_history;
	q->history_text_bytes = f->r.history_text_bytes;
	q->max_tokens = f->r.flags & WIRE_R_EMBED ? 0 : f->r.max_tokens;
	q->traffic_class = f->r.traffic_class;
	q->priority = f->r.priority;
	memcpy(p->tenant, f->tenant, f->r.tenant_bytes);
	q->tenant = p->tenant;
	q->tenant_weight = f->r.tenant_weight;
	q->ttft_ns = f->r.ttft_ms * NS_PER_MS;
	q->tpot_ns = f->r.tpot_ms * NS_PER_MS;
	q->no_reuse = f->r.flags & WIRE_R_NO_REUSE;
	q->again = f->r.flags & WIRE_R_AGAIN;
	q->pin = f->r.flags & WIRE_R_PIN;
	q->deadline_ns = f->r.deadline_ns ? now_ns + f->r.deadline_ns : 0;
	q->time.arrived_ns = began_ns;
	q->time.preprocess_ns = now_ns - began_ns;
	fill_sampling(f, &q->sampling);
	fill_emit(f, p);
}

/* An encoder answers with embeddings, all others with text. */
static int check_kind(const struct model *m, const struct frame_request *f, struct error *e)
{
	bool embed = f->r.flags & WIRE_R_EMBED;

	if (embed == model_info(m)->is_encoder)
		return TENON_OK;
	return error_set(e, TENON_E_UNSUPPORTED,
		embed ? "request: the model gives text, not embeddings; ask an encoder"
		      : "request: the model is an encoder and generates no text");
}

int worker_prepare(const struct model *m, const struct frame_request *f, uint64_t id, const uint8_t *payload,
	uint8_t *body, struct prepared **out, struct error *e)
{
	uint64_t began_ns = clock_now_ns();
	struct prepared *p = mem_zalloc(MEM_DAEMON, 1, sizeof *p);
	int rc;

	if (!p)
		return error_set(e, TENON_E_NOMEM, "request: out of memory");
	rc = check_kind(m, f, e);
	if (!rc)
		rc = tokens_of(m, f, payload, &p->tokens, e);
	if (rc) {
		prepared_free(p);
		return rc;
	}
	memcpy(p->model, f->model, f->r.model_bytes);
	p->body = body;
	fill(p, f, id, began_ns);
	*out = p;
	return TENON_OK;
}
