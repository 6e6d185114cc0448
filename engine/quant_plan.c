/* SPDX-License-Identifier: Apache-2.0
 * Which tensor gets which type: rules first, then the mix or the one type asked for; then what a tensor cannot have.
 */
#include "base/base.h"
#include "engine/quant_file.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <tenon/plugin.h>

enum { SMALL = 1024, MAX_NAME = 256 }; /* elements; bytes of a name that patterns see */
enum part { PART_OTHER, PART_EMBEDDING, PART_HEAD, PART_VALUES, PART_DOWN, PART_OUTPUT, N_PARTS };
enum spread { SPREAD_ALL, SPREAD_MANY, SPREAD_FEW }; /* layers in which values and down get their own type */

/* What people know by these names: a base, and more bits where errors cost most. */
static const struct mix {
	const char *name;
	uint32_t base, head, embedding, values, down, output;
	enum spread spread;
} mixes[] = {
	{ "q2_k_m", TNP_Q2_K, TNP_Q6_K, TNP_Q4_K, TNP_Q4_K, TNP_Q3_K, TNP_Q3_K, SPREAD_ALL },
	{ "q3_k_s", TNP_Q3_K, TNP_Q6_K, TNP_Q3_K, TNP_Q3_K, TNP_Q3_K, TNP_Q3_K, SPREAD_ALL },
	{ "q3_k_m", TNP_Q3_K, TNP_Q6_K, TNP_Q3_K, TNP_Q5_K, TNP_Q4_K, TNP_Q4_K, SPREAD_ALL },
	{ "q3_k_l", TNP_Q3_K, TNP_Q6_K, TNP_Q3_K, TNP_Q5_K, TNP_Q5_K, TNP_Q5_K, SPREAD_ALL },
	{ "q4_k_s", TNP_Q4_K, TNP_Q6_K, TNP_Q4_K, TNP_Q5_K, TNP_Q5_K, TNP_Q4_K, SPREAD_FEW },
	{ "q4_k_m", TNP_Q4_K, TNP_Q6_K, TNP_Q4_K, TNP_Q6_K, TNP_Q6_K, TNP_Q4_K, SPREAD_MANY },
	{ "q5_k_s", TNP_Q5_K, TNP_Q6_K, TNP_Q5_K, TNP_Q5_K, TNP_Q5_K, TNP_Q5_K, SPREAD_ALL },
	{ "q5_k_m", TNP_Q5_K, TNP_Q6_K, TNP_Q5_K, TNP_Q6_K, TNP_Q6_K, TNP_Q5_K, SPREAD_MANY },
};

struct plan {
	const struct quant_job *job;
	const struct mix *mix; /* NULL: one type */
	uint32_t type;
	uint64_t n_layers;
	bool tied; /* no head of its own: the embedding is the head too */
};

const char *quant_type_list(void)
{
	return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K to Q6_K, "
	       "q2_k_m, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m";
}

static const struct mix *mix_find(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(mixes); i++)
		if (!strcasecmp(mixes[i].name, name))
			return &mixes[i];
	return NULL;
}

bool quant_type_known(const char *type)
{
	uint32_t t;

	return mix_find(type) || quant_type_find(type, &t);
}

const char *quant_reason_text(enum quant_reason r)
{
	static const char *const text[] = { [QUANT_ASKED] = "asked",
		[QUANT_BY_RULE] = "rule",
		[QUANT_BY_MIX] = "mix",
		[QUANT_SMALL] = "small",
		[QUANT_FALLBACK] = "fallback",
		[QUANT_AS_IS] = "as_is" };

	return text[r];
}

/* ---- one tensor ------------------------------------------------------------------------------------------------------ */

static enum part part_of(const char *name)
{
	static const struct {
		const char *pattern;
		enum part part;
	} parts[] = { { "token_embd.weight", PART_EMBEDDING }, { "output.weight", PART_HEAD },
		{ "blk.*.attn_v.weight", PART_VALUES }, { "blk.*.attn_qkv.weight", PART_VALUES },
		{ "blk.*.ffn_down*.weight", PART_DOWN }, { "blk.*.attn_output.weight", PART_OUTPUT } };

	for (size_t i = 0; i < COUNT_OF(parts); i++)
		if (!fnmatch(parts[i].pattern, name, 0))
			return parts[i].part;
	return PART_OTHER;
}

/* FEW: the first eighth of the layers. MANY: the first and last eighth, and each third between. */
static bool in_spread(const struct plan *p, const char *name)
{
	unsigned long long layer = 0, edge = p->n_layers / 8;

	if (p->mix->spread == SPREAD_ALL || sscanf(name, "blk.%llu.", &layer) != 1)
		return true;
	if (p->mix->spread == SPREAD_FEW)
		return layer < MAX_OF(edge, 1ull);
	return layer < edge || layer + edge >= p->n_layers || (layer - edge) % 3 == 2;
}

/* One type for all, but the head (a tied embedding too) has at least six bits: its errors go straight into the scores. */
static uint32_t plain_type(const struct plan *p, const char *name)
{
	enum part part = part_of(name);
	uint32_t block = 1, bytes = 1;

	(void)gguf_type_block(p->type, &block, &bytes);
	if (p->job->pure || (part != PART_HEAD && !(part == PART_EMBEDDING && p->tied)) ||
		bytes * 8 >= 6 * block)
		return p->type;
	return TNP_Q6_K;
}

static uint32_t mix_type(const struct plan *p, const char *name)
{
	const struct mix *m = p->mix;

	switch (part_of(name)) {
	case PART_EMBEDDING:
		return p->tied ? m->head : m->embedding;
	case PART_HEAD:
		return m->head;
	case PART_VALUES:
		return in_spread(p, name) ? m->values : m->base;
	case PART_DOWN:
		return in_spread(p, name) ? m->down : m->base;
	case PART_OUTPUT:
		return m->output;
	default:
		return m->base;
	}
}

/* What stays in floats: cheap, or read in ways that other programs do only in floats. */
static const char *const floats[] = { "*ffn_gate_inp*", "position_embd.weight", "token_types.weight" };

/* Types with blocks of 32 for rows that are no multiple of 256: at least as many bits; F16 for the rest. */
static uint32_t fallback_of(uint32_t type, uint64_t columns)
{
	if (columns % 32)
		return TNP_F16;
	switch (type) {
	case TNP_Q4_K:
		return TNP_Q5_0;
	case TNP_Q5_K:
		return TNP_Q5_1;
	case TNP_Q6_K:
		return TNP_Q8_0;
	}
	return TNP_IQ4_NL; /* Q2_K, Q3_K */
}

static uint64_t count_of(const struct gguf_tensor *t)
{
	return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

static bool is_small(const struct gguf_tensor *t, const char *name)
{
	for (size_t i = 0; i < COUNT_OF(floats); i++)
		if (!fnmatch(floats[i], name, 0))
			return true;
	return t->rank < 2 || count_of(t) < SMALL;
}

static void choose(struct plan *p, struct quant_row *r, const char *name)
{
	uint64_t columns = r->t->dim[r->t->rank - 1];
	uint32_t block, bytes;

	r->type = p->mix ? mix_type(p, name) : plain_type(p, name);
	r->reason = r->type != (p->mix ? p->mix->base : p->type) ? QUANT_BY_MIX : QUANT_ASKED;
	for (size_t i = 0; i < p->job->n_rules; i++)
		if (!fnmatch(p->job->rules[i].pattern, name, 0)) {
			r->type = p->job->rules[i].type;
			r->reason = QUANT_BY_RULE;
			p->job->rules[i].hits++;
			break;
		}
	r->wanted = r->type;
	if (gguf_type_block(r->type, &block, &bytes) && columns % block) {
		r->type = fallback_of(r->type, columns);
		r->reason = QUANT_FALLBACK;
	}
}

static bool is_float(uint32_t type) { return type == TNP_F32 || type == TNP_F16 || type == TNP_BF16; }

static int plan_tensor(struct plan *p, struct quant_row *r, struct error *e)
{
	const struct gguf_tensor *t = r->t;
	uint32_t block = 1, bytes = 1;
	char name[MAX_NAME];

	(void)snprintf(name, sizeof name, "%.*s", (int)MIN_OF(t->name.len, sizeof name - 1), t->name.s);
	if (!quant_can(t->type)) {
		r->type = r->wanted = t->type;
		r->reason = QUANT_AS_IS;
	} else if (is_small(t, name)) {
		r->type = r->wanted = TNP_F32;
		r->reason = QUANT_SMALL;
	} else {
		choose(p, r, name);
	}
	r->copied = r->type == t->type;
	(void)gguf_type_block(r->type, &block, &bytes);
	r->bytes = count_of(t) / block * bytes;
	if (!r->copied && !is_float(t->type) && !p->job->requantize)
		return error_set(e, TENON_E_INVALID,
			"tensor '%s': is %s already, and what was lost stays lost; take an F32, F16 or BF16 file, or say --allow-requantize",
			gguf_show(t->name).s, gguf_type_name(t->type));
	return TENON_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

/* A key of the architecture: "llama.block_count". */
static void arch_key(const struct gguf *g, const char *name, char *out, size_t room)
{
	struct gguf_str arch = { NULL, 0 };

	if (gguf_get_str(g, "general.architecture", &arch, NULL) || arch.len > 64)
		arch.len = 0;
	(void)snprintf(out, room, "%.*s.%s", (int)arch.len, arch.s ? arch.s : "", name);
}

static uint64_t layers_of(const struct gguf *g)
{
	uint64_t n = 0;
	char key[128];

	arch_key(g, "block_count", key, sizeof key);
	return gguf_get_u64(g, key, &n, NULL) ? 0 : n;
}

/* Encoders have no head at all. */
static bool is_tied(const struct gguf *g)
{
	char key[128];

	arch_key(g, "pooling_type", key, sizeof key);
	return !gguf_tensor_find(g, "output.weight") && !gguf_has(g, key);
}

static int rules_met(const struct quant_job *job, struct error *e)
{
	for (size_t i = 0; i < job->n_rules; i++)
		if (!job->rules[i].hits)
			return error_set(e, TENON_E_INVALID,
				"--tensor '%.96s': is the first match of no tensor that can be quantised; see the names with tenon inspect",
				job->rules[i].pattern);
	return TENON_OK;
}

int quant_plan(const struct quant_job *job, struct quant_row *rows, struct error *e)
{
	struct plan p = { .job = job, .mix = mix_find(job->type), .n_layers = layers_of(job->in) };
	int rc = TENON_OK;

	if (!p.mix && !quant_type_find(job->type, &p.type))
		return error_set(e, TENON_E_INVALID, "type '%.32s': is unknown; there are %s", job->type,
			quant_type_list());
	p.tied = is_tied(job->in);
	for (size_t i = 0; i < job->n_rules; i++)
		job->rules[i].hits = 0;
	for (size_t i = 0; i < gguf_n_tensors(job->in) && !rc; i++) {
		rows[i] = (struct quant_row){ .t = gguf_tensor_at(job->in, i) };
		rc = plan_tensor(&p, &rows[i], e);
	}
	return rc ? rc : rules_met(job, e);
}
