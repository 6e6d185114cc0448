/* SPDX-License-Identifier: Apache-2.0
 * arch.h: the table, and hyperparameters read from a hostile file. Limits are far above what models have and far below
 * what products of two could overflow.
 */
#include "engine/arch.h"
#include "base/base.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct arch archs[] = {
	{ "llama", false, arch_llama_build, ARCH_EXPERTS_MAY },
	{ "gemma3", false, arch_gemma3_build, ARCH_EXPERTS_NONE },
	{ "phi3", false, arch_phi3_build, ARCH_EXPERTS_NONE },
	{ "qwen2", false, arch_qwen2_build, ARCH_EXPERTS_NONE },
	{ "qwen3", false, arch_qwen3_build, ARCH_EXPERTS_NONE },
	{ "qwen3moe", false, arch_qwen3moe_build, ARCH_EXPERTS_MUST },
	{ "bert", true, arch_bert_build, ARCH_EXPERTS_NONE },
	{ "nomic-bert", true, arch_nomic_bert_build, ARCH_EXPERTS_NONE },
};

enum {
	MAX_LAYERS = 1024,
	MAX_WIDTH = 1 << 20,
	MAX_HEADS = 4096,
	MAX_HEAD_DIM = 4096,
	MAX_CONTEXT = 1 << 27,
	MAX_EXPERTS = 4096
};

static void names_list(char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < COUNT_OF(archs) && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", archs[i].name);
}

int arch_find(const struct gguf *f, const struct arch **out, struct error *e)
{
	struct gguf_str name;
	char all[128];
	int rc = gguf_get_str(f, "general.architecture", &name, e);

	if (rc)
		return rc;
	for (size_t i = 0; i < COUNT_OF(archs); i++)
		if (strlen(archs[i].name) == name.len && !memcmp(archs[i].name, name.s, name.len)) {
			*out = &archs[i];
			return TENON_OK;
		}
	for (size_t i = 0; i < name.len; i++)
		if ((unsigned char)name.s[i] < 0x20 || (unsigned char)name.s[i] > 0x7e)
			return error_set(
				e, TENON_E_FORMAT, "general.architecture: holds bytes that no name has");
	names_list(all, sizeof all);
	return error_set(e, TENON_E_UNSUPPORTED, "architecture '%.*s': not supported; supported: %s",
		(int)MIN_OF(name.len, 64), name.s, all);
}

struct reader {
	const struct gguf *f;
	const char *arch;
	struct error *e;
	int rc; /* the first fault */
};

static void key_name(const struct reader *r, const char *key, char *out, size_t room)
{
	(void)snprintf(out, room, "%s.%s", r->arch, key);
}

static bool has(const struct reader *r, const char *key)
{
	char name[96];

	key_name(r, key, name, sizeof name);
	return gguf_has(r->f, name);
}

/* A whole number in [lo, hi]. */
static uint32_t whole(struct reader *r, const char *key, uint32_t lo, uint32_t hi)
{
	uint64_t v = 0;
	char name[96];

	key_name(r, key, name, sizeof name);
	if (r->rc)
		return 0;
	r->rc = gguf_get_u64(r->f, name, &v, r->e);
	if (!r->rc && (v < lo || v > hi))
		r->rc = error_set(r->e, TENON_E_FORMAT, "%s: is %llu, must be %u to %u", name,
			(unsigned long long)v, lo, hi);
	return (uint32_t)v;
}

static uint32_t whole_or(struct reader *r, const char *key, uint32_t lo, uint32_t hi, uint32_t otherwise)
{
	return has(r, key) ? whole(r, key, lo, hi) : otherwise;
}

static double real(struct reader *r, const char *key, double lo, double hi)
{
	double v = 0;
	char name[96];

	key_name(r, key, name, sizeof name);
	if (r->rc)
		return 0;
	r->rc = gguf_get_f64(r->f, name, &v, r->e);
	if (!r->rc && !(v >= lo && v <= hi))
		r->rc = error_set(r->e, TENON_E_FORMAT, "%s: is %g, must be %g to %g", name, v, lo, hi);
	return v;
}

static double real_or(struct reader *r, const char *key, double lo, double hi, double otherwise)
{
	return has(r, key) ? real(r, key, lo, hi) : otherwise;
}

static void fail(struct reader *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct reader *r, int code, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	if (r->rc)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	r->rc = error_set(r->e, code, "%s.%s", r->arch, text);
}

static void read_heads(struct reader *r, struct arch_params *p)
{
	p->n_heads = whole(r, "attention.head_count", 1, MAX_HEADS);
	p->n_kv_heads = whole_or(r, "attention.head_count_kv", 1, MAX_HEADS, p->n_heads);
	if (r->rc)
		return;
	if (p->n_heads % p->n_kv_heads)
		fail(r, TENON_E_FORMAT, "attention.head_count: %u heads cannot share %u KV heads evenly",
			p->n_heads, p->n_kv_heads);
	if (!has(r, "attention.key_length") && p->d_model % p->n_heads)
		fail(r, TENON_E_FORMAT, "attention.head_count: %u does not divide embedding_length %u",
			p->n_heads, p->d_model);
	p->head_dim = whole_or(r, "attention.key_length", 1, MAX_HEAD_DIM, p->d_model / p->n_heads);
	if (whole_or(r, "attention.value_length", 1, MAX_HEAD_DIM, p->head_dim) != p->head_dim)
		fail(r, TENON_E_UNSUPPORTED,
			"attention.value_length: keys and values of different length are not supported");
	if (!r->rc && p->head_dim > MAX_HEAD_DIM)
		fail(r, TENON_E_FORMAT, "attention.head_count: heads of %u numbers, at most %d are allowed",
			p->head_dim, MAX_HEAD_DIM);
}

/* Scaling by a factor for all positions; other kinds change the attention too and are refused by name. */
static void read_rope_scaling(struct reader *r, struct arch_params *p)
{
	struct gguf_str type = { "", 0 };
	char name[96];

	p->rope_scale = 1;
	key_name(r, "rope.scaling.type", name, sizeof name);
	if (!r->rc && gguf_has(r->f, name))
		r->rc = gguf_get_str(r->f, name, &type, r->e);
	if (r->rc || (type.len == 4 && !memcmp(type.s, "none", 4)))
		return;
	if (type.len && !(type.len == 6 && !memcmp(type.s, "linear", 6)))
		fail(r, TENON_E_UNSUPPORTED,
			"rope.scaling.type: '%.*s' is not supported, only none and linear",
			(int)MIN_OF(type.len, 16), type.s);
	if (type.len || has(r, "rope.scale_linear"))
		p->rope_scale = 1 /
			(has(r, "rope.scaling.factor") ? real(r, "rope.scaling.factor", 1e-3, 1e6)
						       : real_or(r, "rope.scale_linear", 1e-3, 1e6, 1));
}

static void read_rope(struct reader *r, struct arch_params *p)
{
	p->rope_dims = whole_or(r, "rope.dimension_count", 2, MAX_HEAD_DIM, p->head_dim);
	p->rope_base = real_or(r, "rope.freq_base", 1e-3, 1e12, 10000);
	if (!r->rc && (p->rope_dims > p->head_dim || p->rope_dims % 2))
		fail(r, TENON_E_FORMAT, "rope.dimension_count: %u must be even and at most the head's %u",
			p->rope_dims, p->head_dim);
	read_rope_scaling(r, p);
}

/* What becomes of the rows of a text's tokens. Files that do not say so mean the mean. */
static void read_encoder(struct reader *r, struct arch_params *p)
{
	enum { MEAN = 1, FIRST = 2, LAST = 3, RANK = 4 }; /* pooling_type in files */
	static const uint32_t kinds[] = {
		[MEAN] = TNP_POOL_MEAN, [FIRST] = TNP_POOL_FIRST, [LAST] = TNP_POOL_LAST
	};
	uint32_t kind = whole_or(r, "pooling_type", 0, RANK, MEAN);
	bool causal = false;
	char name[96];

	p->encoder = true;
	p->eps = real_or(r, "attention.layer_norm_epsilon", 0, 1, 1e-12);
	key_name(r, "attention.causal", name, sizeof name);
	if (!r->rc && gguf_has(r->f, name))
		r->rc = gguf_get_bool(r->f, name, &causal, r->e);
	if (causal)
		fail(r, TENON_E_UNSUPPORTED,
			"attention.causal: encoders that see earlier tokens only are not supported");
	if (kind == 0 || kind == RANK)
		fail(r, TENON_E_UNSUPPORTED, "pooling_type: %s is not supported, only mean, first and last",
			kind ? "ranking" : "a row for each token");
	else if (!r->rc)
		p->pooling = kinds[kind];
}

/* Choosing in another way than by softmax over all, or experts that every token has: refused by name. */
static void read_experts_kind(struct reader *r, struct arch_params *p)
{
	enum { SOFTMAX = 1 };
	static const char *const none[] = { "expert_shared_count", "expert_group_count",
		"leading_dense_block_count" };
	double scale = real_or(r, "expert_weights_scale", 0, 1e6, 1);
	char name[96];

	if (whole_or(r, "expert_gating_func", 0, UINT32_MAX, SOFTMAX) != SOFTMAX)
		fail(r, TENON_E_UNSUPPORTED, "expert_gating_func: only softmax is supported");
	for (size_t i = 0; i < COUNT_OF(none); i++)
		if (whole_or(r, none[i], 0, UINT32_MAX, 0))
			fail(r, TENON_E_UNSUPPORTED, "%s: is not supported", none[i]);
	if (scale != 0 && scale != 1) /* files say 0 for none */
		fail(r, TENON_E_UNSUPPORTED, "expert_weights_scale: is not supported");
	p->experts_norm = true;
	key_name(r, "expert_weights_norm", name, sizeof name);
	if (!r->rc && gguf_has(r->f, name))
		r->rc = gguf_get_bool(r->f, name, &p->experts_norm, r->e);
}

static void read_experts(struct reader *r, const struct arch *a, struct arch_params *p)
{
	uint32_t most = a->experts == ARCH_EXPERTS_NONE ? UINT32_MAX : MAX_EXPERTS;

	p->n_experts = a->experts == ARCH_EXPERTS_MUST ? whole(r, "expert_count", 1, most)
						       : whole_or(r, "expert_count", 0, most, 0);
	if (r->rc || !p->n_experts)
		return;
	if (a->experts == ARCH_EXPERTS_NONE) {
		fail(r, TENON_E_UNSUPPORTED,
			"expert_count: mixtures of experts are not supported for this architecture");
		return;
	}
	p->n_experts_used = whole(r, "expert_used_count", 1, p->n_experts);
	p->n_ff_expert = whole_or(r, "expert_feed_forward_length", 1, 4 * MAX_WIDTH, p->n_ff);
	if (!r->rc && !p->n_ff_expert)
		fail(r, TENON_E_FORMAT,
			"expert_feed_forward_length: is missing, and so is feed_forward_length");
	read_experts_kind(r, p);
}

int arch_params_read(const struct gguf *f, const struct arch *a, struct arch_params *out, struct error *e)
{
	struct reader r = { .f = f, .arch = a->name, .e = e };
	const struct gguf_tensor *embd = gguf_tensor_find(f, "token_embd.weight");
	struct arch_params p = { 0 };

	p.n_layers = whole(&r, "block_count", 1, MAX_LAYERS);
	p.d_model = whole(&r, "embedding_length", 1, MAX_WIDTH);
	p.n_ff = a->experts == ARCH_EXPERTS_MUST ? whole_or(&r, "feed_forward_length", 0, 4 * MAX_WIDTH, 0)
						 : whole(&r, "feed_forward_length", 1, 4 * MAX_WIDTH);
	p.n_ctx_train = whole(&r, "context_length", 1, MAX_CONTEXT);
	p.eps = real_or(&r, "attention.layer_norm_rms_epsilon", 0, 1, 1e-5);
	p.window = whole_or(&r, "attention.sliding_window", 0, MAX_CONTEXT, 0);
	read_heads(&r, &p);
	read_rope(&r, &p);
	if (a->encoder)
		read_encoder(&r, &p);
	read_experts(&r, a, &p);
	if (r.rc)
		return r.rc;
	if (!embd || embd->rank != 2)
		return error_set(e, TENON_E_FORMAT, "tensor 'token_embd.weight': %s",
			embd ? "is no matrix" : "is missing from the file");
	if (embd->dim[0] > INT32_MAX)
		return error_set(
			e, TENON_E_FORMAT, "tensor 'token_embd.weight': has more rows than token ids");
	p.n_vocab = (uint32_t)embd->dim[0];
	*out = p;
	return TENON_OK;
}
