/* SPDX-License-Identifier: Apache-2.0
 * gemma3: layers with a sliding window between layers that see everything (five to one, or as the file says), each kind
 * with its own rotary base; norms over the heads of Q and K, in front of and behind each part; gate with GELU; embedding
 * scaled by the root of its width; soft caps on scores and logits where the file has them. GGUF stores norm weights with
 * their one already added.
 */
#include "base/base.h"
#include "engine/arch.h"
#include <math.h>
#include <stdio.h>

enum { PATTERN = 6, MAX_PATTERN = 1024, LAYERS_27B = 62 };

struct pattern {		/* which layers slide */
	struct gguf_array each; /* one truth value a layer; n 0: not given */
	uint64_t period;	/* every so manieth layer sees everything */
};

static void pattern_read(
	const struct gguf *f, const struct arch_params *p, struct graph *g, struct pattern *out)
{
	static const char key[] = "gemma3.attention.sliding_window_pattern";
	struct error e = { 0 };
	struct gguf_array each;
	uint64_t period = 0;
	int rc;

	*out = (struct pattern){ .period = PATTERN };
	if (!gguf_has(f, key))
		return;
	if (!gguf_get_array(f, key, &each, NULL)) {
		if (each.n < p->n_layers || each.kind == GGUF_STRING || each.kind == GGUF_F32 ||
			each.kind == GGUF_F64)
			graph_fail(g, TENON_E_FORMAT, "%s: is no list of a truth value for each of %u layers",
				key, p->n_layers);
		else
			out->each = each;
		return;
	}
	rc = gguf_get_u64(f, key, &period, &e);
	if (!rc && (period < 1 || period > MAX_PATTERN))
		rc = error_set(&e, TENON_E_FORMAT, "%s: is %llu, must be 1 to %d", key,
			(unsigned long long)period, MAX_PATTERN);
	if (rc)
		graph_fail(g, rc, "%s", e.text);
	else
		out->period = period;
}

static bool slides(const struct pattern *w, uint32_t layer)
{
	if (!w->each.n)
		return (layer + 1) % w->period != 0;
	return w->each.kind == GGUF_BOOL ? w->each.data[layer] != 0 : gguf_array_i64(&w->each, layer) != 0;
}

/* A number above 0, or `otherwise` where the file has none. */
static double real_or(const struct gguf *f, struct graph *g, const char *key, double otherwise)
{
	struct error e = { 0 };
	double v = otherwise;
	int rc = gguf_has(f, key) ? gguf_get_f64(f, key, &v, &e) : TENON_OK;

	if (!rc && !(v >= 0 && v <= 1e12))
		rc = error_set(&e, TENON_E_FORMAT, "%s: is %g, must be 0 to 1e12", key, v);
	if (rc)
		graph_fail(g, rc, "%s", e.text);
	return v > 0 ? v : otherwise;
}

static graph_tensor softcap(struct graph *g, graph_tensor x, double cap)
{
	graph_tensor y = graph_unary(g, TNP_OP_SOFTCAP, x);

	graph_attr_float(g, TNP_A_CAP, cap);
	return y;
}

void arch_gemma3_build(const struct gguf *f, const struct arch_params *p, struct graph *g)
{
	double local = real_or(f, g, "gemma3.rope.freq_base_swa", 10000),
	       cap = real_or(f, g, "gemma3.final_logit_softcapping", 0);
	struct arch_layer l = arch_layer_of(p, g);
	graph_tensor factors = arch_rope_factors(g, p), x;
	struct pattern w;

	pattern_read(f, p, g, &w);
	l.head_norms = l.post_norms = true;
	l.act = TNP_ACT_GELU_TANH;
	if (p->n_layers ==
		LAYERS_27B) /* no key says so, but that one model scales by its width's share of a head */
		l.scale = 1 / sqrt((double)p->d_model / p->n_heads);
	l.cap = real_or(f, g, "gemma3.attn_logit_softcapping", 0);
	x = graph_unary(g, TNP_OP_SCALE, arch_embedding(p, g));
	graph_attr_float(g, TNP_A_SCALE, sqrt(p->d_model));
	for (uint32_t i = 0; i < p->n_layers; i++) {
		bool near = p->window && slides(&w, i);

		l.window = near ? p->window : 0;
		l.rope_base = near ? local : p->rope_base;
		l.rope_scale = near ? 1 : p->rope_scale;
		l.factors = near ? TNP_NONE : factors;
		arch_layer_begin(&l, i);
		x = arch_feed_forward(&l, arch_attention(&l, x));
	}
	x = arch_head(p, g, x);
	graph_out(g, cap > 0 ? softcap(g, x, cap) : x);
}
