/* SPDX-License-Identifier: Apache-2.0
 * embed.h: texts are put into steps in their order, as many as tokens and places allow.
 */
#include "tools/embed.h"
#include "tools/text.h"
#include <string.h>

void embed_text_finish(struct embed_text *t)
{
	json_decref(t->in);
	tokens_finish(&t->ids);
	mem_free(t->row);
	*t = (struct embed_text){ 0 };
}

int embedder_open(struct open_options *o, bool truncate, struct embedder *out, struct error *e)
{
	const struct model_info *i;
	int rc;

	*out = (struct embedder){ .truncate = truncate };
	rc = open_model(o, &out->opened, e);
	if (rc)
		return rc;
	out->m = out->opened.model;
	i = model_info(out->m);
	if (!i->is_encoder)
		return error_set(e, TENON_E_UNSUPPORTED,
			"model '%s': %s gives text, not embeddings; take an encoder such as minilm-l6-v2",
			i->name, i->arch);
	out->seqs = mem_zalloc(MEM_TOOL, i->step_seqs, sizeof *out->seqs);
	out->index = mem_zalloc(MEM_TOOL, i->step_seqs, sizeof *out->index);
	out->rows = mem_zalloc(MEM_TOOL, (size_t)i->step_seqs * i->d_model, sizeof *out->rows);
	return out->seqs && out->index && out->rows
		? TENON_OK
		: error_set(e, TENON_E_NOMEM, "embed: no memory for rows");
}

void embedder_close(struct embedder *m)
{
	mem_free(m->seqs);
	mem_free(m->index);
	mem_free(m->rows);
	open_model_close(&m->opened);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------- */

static void tokenise(const struct embedder *m, struct embed_text *t)
{
	const json_t *text = json_object_get(t->in, "text");
	uint32_t most = model_info(m->m)->n_ctx;

	t->ids.n = 0;
	if (model_tokens_from_text(m->m, json_string_value(text), json_string_length(text), &t->ids, &t->e))
		return;
	if (!t->ids.n)
		(void)error_set(&t->e, TENON_E_INVALID, "text: is empty, and the model adds no token to it");
	else if (t->ids.n > most && m->truncate)
		text_cut(m->m, &t->ids);
	else if (t->ids.n > most)
		(void)error_set(&t->e, TENON_E_TOO_LONG,
			"text: %zu tokens, the model takes %u; shorten it, or ask for --truncate", t->ids.n,
			most);
}

/* ---- steps -------------------------------------------------------------------------------------------------------- */

static void take_row(const struct embedder *m, struct embed_text *t, const struct step_seq *s)
{
	uint32_t n = model_info(m->m)->d_model;

	if (s->rc) {
		(void)error_set(&t->e, s->rc, "text: %s", error_meaning(s->rc));
		return;
	}
	t->row = mem_alloc(MEM_TOOL, n * sizeof *t->row);
	if (!t->row) {
		(void)error_set(&t->e, TENON_E_NOMEM, "embed: no memory for a row");
		return;
	}
	memcpy(t->row, s->out, n * sizeof *t->row);
	t->n_row = n;
}

/* Texts from *at on as one step. */
static int run_step(struct embedder *m, struct embed_text *t, size_t n, size_t *at, struct error *e)
{
	const struct model_info *i = model_info(m->m);
	uint32_t n_seqs = 0, n_tokens = 0;
	int rc;

	for (; *at < n && n_seqs < i->step_seqs; ++*at) {
		struct embed_text *x = &t[*at];

		if (x->e.code)
			continue;
		if (n_tokens + x->ids.n > i->step_tokens)
			break;
		m->seqs[n_seqs] = (struct step_seq){ .tokens = x->ids.id,
			.n_tokens = (uint32_t)x->ids.n,
			.n_out = 1,
			.out = m->rows + (size_t)n_seqs * i->d_model };
		m->index[n_seqs++] = (uint32_t)*at;
		n_tokens += (uint32_t)x->ids.n;
	}
	rc = n_seqs ? model_step(m->m, m->seqs, n_seqs, e) : TENON_OK;
	for (uint32_t k = 0; k < n_seqs && !rc; k++)
		take_row(m, &t[m->index[k]], &m->seqs[k]);
	return rc;
}

int embedder_run(struct embedder *m, struct embed_text *t, size_t n, struct error *e)
{
	size_t at = 0;
	int rc = TENON_OK;

	for (size_t k = 0; k < n; k++)
		if (!t[k].e.code)
			tokenise(m, &t[k]);
	while (at < n && !rc)
		rc = run_step(m, t, n, &at, e);
	return rc;
}
