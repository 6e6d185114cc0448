/* SPDX-License-Identifier: Apache-2.0
 * See tnp_drive.h.
 */
#include "tests/unit/unit.h"
#include "tests/unit/tnp_drive.h"
#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* ---- a device ------------------------------------------------------------------------------- */
static const char *host_config(void *ctx, const char *key)
{
	const struct drive_dev *d = ctx;

	return !strcmp(key, "threads") ? d->threads : !strcmp(key, "isa") ? d->isa : NULL;
}

void drive_open(struct drive_dev *d, const char *name, const char *threads, const char *isa)
{
	static struct tnp_host host;
	const char *build = getenv("TENON_BUILDDIR");
	struct tnp_error e = { .size = sizeof e };
	char path[4096];
	tnp_entry_fn *entry;
	void *so;

	(void)snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", build ? build : ".", name, name);
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!so)
		fail_msg("%s", dlerror());
	*(void **)&entry = dlsym(so, TNP_ENTRY_NAME);
	assert_non_null(entry);
	*d = (struct drive_dev){ .ops = entry(1, 1), .threads = threads, .isa = isa };
	assert_non_null(d->ops);
	host = (struct tnp_host){ .size = sizeof host, .abi_major = 1, .ctx = d, .config = host_config };
	if (d->ops->start(&host, &e) || d->ops->dev_open(0, &d->dev, &e))
		fail_msg("%s", e.text);
}

void drive_close(struct drive_dev *d)
{
	d->ops->dev_close(d->dev);
	assert_int_equal(d->ops->stop(NULL), TNP_OK);
}

/* ---- the architecture ------------------------------------------------------------------------- */
struct arch {
	struct tnp_make *m;
	const struct drive_arch *a;
	uint32_t factors;
};

static uint32_t rows(struct arch *r, uint32_t width) { return tnp_make_rows(r->m, TNP_N_TOKENS, width); }

static uint32_t matrix(struct arch *r, uint32_t n, uint32_t k)
{
	return tnp_make_random(r->m, r->a->type, 1 / sqrt(k), n, k, 0);
}

static uint32_t vector(struct arch *r, uint32_t n, float mean)
{
	float *v = calloc(n, sizeof *v);
	uint64_t s = n + (uint64_t)(mean * 8);
	uint32_t w;

	for (uint32_t i = 0; i < n; i++)
		v[i] = mean + 0.2f * (float)tnp_rand_normal(&s);
	w = tnp_make_weight(r->m, TNP_F32, v, n, 0, 0);
	free(v);
	return w;
}

static uint32_t norm(struct arch *r, uint32_t x, uint32_t width, uint32_t group)
{
	uint32_t y = rows(r, width);

	tnp_make_node(r->m, TNP_OP_RMSNORM, TNP_LIST(x, vector(r, group ? group : width, 1)), TNP_LIST(y));
	tnp_make_float(r->m, TNP_A_EPS, 1e-5);
	if (group)
		tnp_make_int(r->m, TNP_A_GROUP, group);
	return y;
}

static uint32_t linear(struct arch *r, uint32_t x, uint32_t n, uint32_t k)
{
	uint32_t y = rows(r, n);

	if (r->a->biased)
		tnp_make_node(
			r->m, TNP_OP_LINEAR, TNP_LIST(x, matrix(r, n, k), vector(r, n, 0)), TNP_LIST(y));
	else
		tnp_make_node(r->m, TNP_OP_LINEAR, TNP_LIST(x, matrix(r, n, k)), TNP_LIST(y));
	return y;
}

static void rope_attrs(struct arch *r)
{
	tnp_make_int(r->m, TNP_A_ROPE_MODE, r->a->rope_mode);
	tnp_make_float(r->m, TNP_A_ROPE_BASE, 5000);
	if (r->a->rope_dims)
		tnp_make_int(r->m, TNP_A_ROPE_DIMS, r->a->rope_dims);
}

static uint32_t rope(struct arch *r, uint32_t x, uint32_t heads)
{
	uint32_t y = rows(r, heads * r->a->head_dim);

	if (r->a->factors)
		tnp_make_node(r->m, TNP_OP_ROPE, TNP_LIST(x, r->factors), TNP_LIST(y));
	else
		tnp_make_node(r->m, TNP_OP_ROPE, TNP_LIST(x), TNP_LIST(y));
	tnp_make_int(r->m, TNP_A_HEADS, heads);
	tnp_make_int(r->m, TNP_A_HEAD_DIM, r->a->head_dim);
	rope_attrs(r);
	return y;
}

static uint32_t attend(struct arch *r, uint32_t layer, uint32_t q, uint32_t k, uint32_t v)
{
	const struct drive_arch *a = r->a;
	uint32_t y = rows(r, a->heads * a->head_dim);

	if (a->fused && a->factors)
		tnp_make_node(r->m, TNP_OP_ATTEND, TNP_LIST(q, k, v, r->factors), TNP_LIST(y));
	else
		tnp_make_node(r->m, TNP_OP_ATTEND, TNP_LIST(q, k, v), TNP_LIST(y));
	tnp_make_int(r->m, TNP_A_HEADS, a->heads);
	tnp_make_int(r->m, TNP_A_KV_HEADS, a->kv_heads);
	tnp_make_int(r->m, TNP_A_HEAD_DIM, a->head_dim);
	tnp_make_int(r->m, TNP_A_SLOT, layer);
	if (a->window && layer % 2)
		tnp_make_int(r->m, TNP_A_WINDOW, a->window);
	if (a->cap > 0)
		tnp_make_float(r->m, TNP_A_CAP, a->cap);
	if (a->fused)
		rope_attrs(r);
	return y;
}

/* Q, K and V as one node with one matrix for Q and one for K and V, or as three nodes. */
static uint32_t self_attention(struct arch *r, uint32_t layer, uint32_t x)
{
	const struct drive_arch *a = r->a;
	uint32_t nq = a->heads * a->head_dim, nk = a->kv_heads * a->head_dim, q, k, v;

	if (a->fused) {
		q = rows(r, nq), k = rows(r, nk), v = rows(r, nk);
		tnp_make_node(r->m, TNP_OP_LINEAR, TNP_LIST(x, matrix(r, nq, a->d), matrix(r, 2 * nk, a->d)),
			TNP_LIST(q, k, v));
	} else {
		q = linear(r, x, nq, a->d);
		k = linear(r, x, nk, a->d);
		v = linear(r, x, nk, a->d);
	}
	if (a->qk_norm) {
		q = norm(r, q, nq, a->head_dim);
		k = norm(r, k, nk, a->head_dim);
	}
	if (!a->fused) {
		q = rope(r, q, a->heads);
		k = rope(r, k, a->kv_heads);
	}
	return attend(r, layer, q, k, v);
}

static uint32_t feed_forward(struct arch *r, uint32_t x)
{
	const struct drive_arch *a = r->a;
	uint32_t h = rows(r, a->ff), g;

	if (a->fused) {
		g = rows(r, 2 * a->ff);
		tnp_make_node(r->m, TNP_OP_LINEAR,
			TNP_LIST(x, matrix(r, a->ff, a->d), matrix(r, a->ff, a->d)), TNP_LIST(g));
		tnp_make_node(r->m, TNP_OP_GLU, TNP_LIST(g), TNP_LIST(h));
		tnp_make_int(r->m, TNP_A_ACT, a->act);
	} else {
		uint32_t gate = linear(r, x, a->ff, a->d), up = linear(r, x, a->ff, a->d), s = rows(r, a->ff);

		tnp_make_node(r->m, TNP_OP_ACT, TNP_LIST(gate), TNP_LIST(s));
		tnp_make_int(r->m, TNP_A_ACT, a->act);
		tnp_make_node(r->m, TNP_OP_MUL, TNP_LIST(s, up), TNP_LIST(h));
	}
	return h;
}

static uint32_t of_each(struct arch *r, uint32_t type, int64_t width)
{
	return tnp_make_tensor(r->m, type, TNP_N_TOKENS, r->a->top_k, width, 0);
}

static uint32_t experts(struct arch *r, uint32_t type, uint32_t n, uint32_t k)
{
	return tnp_make_random(r->m, type, 1 / sqrt(k), r->a->experts, n, k);
}

static uint32_t experts_linear(struct arch *r, uint32_t x, uint32_t ids, uint32_t w, uint32_t n)
{
	uint32_t y = of_each(r, TNP_F32, n);

	tnp_make_node(r->m, TNP_OP_MOE_LINEAR, TNP_LIST(x, ids, w), TNP_LIST(y));
	return y;
}

/* Gate and up as one node, in one matrix or in two, or as two nodes with ACT and MUL behind. */
static uint32_t experts_glu(struct arch *r, uint32_t x, uint32_t ids)
{
	const struct drive_arch *a = r->a;
	uint32_t h = of_each(r, TNP_F32, a->ff), s = of_each(r, TNP_F32, a->ff), both, gate, up;

	if (!a->fused) {
		gate = experts_linear(r, x, ids, experts(r, a->type, a->ff, a->d), a->ff);
		up = experts_linear(r, x, ids, experts(r, a->type, a->ff, a->d), a->ff);
		tnp_make_node(r->m, TNP_OP_ACT, TNP_LIST(gate), TNP_LIST(s));
		tnp_make_int(r->m, TNP_A_ACT, a->act);
		tnp_make_node(r->m, TNP_OP_MUL, TNP_LIST(s, up), TNP_LIST(h));
		return h;
	}
	if (a->qk_norm) {
		both = experts_linear(r, x, ids, experts(r, a->type, 2 * a->ff, a->d), 2 * a->ff);
	} else {
		both = of_each(r, TNP_F32, 2 * a->ff);
		gate = experts(r, a->type, a->ff, a->d);
		up = experts(r, a->type, a->ff, a->d);
		tnp_make_node(r->m, TNP_OP_MOE_LINEAR, TNP_LIST(x, ids, gate, up), TNP_LIST(both));
	}
	tnp_make_node(r->m, TNP_OP_GLU, TNP_LIST(both), TNP_LIST(h));
	tnp_make_int(r->m, TNP_A_ACT, a->act);
	return h;
}

/* x + the chosen experts' sum of h */
static uint32_t mixture(struct arch *r, uint32_t h, uint32_t x)
{
	const struct drive_arch *a = r->a;
	uint32_t ids = of_each(r, TNP_I32, 0), share = rows(r, a->top_k), sum = rows(r, a->d),
		 y = rows(r, a->d);
	uint32_t router = tnp_make_random(r->m, TNP_F32, 2 / sqrt(a->d), a->experts, a->d, 0);
	uint32_t type = a->type_down ? a->type_down : a->type, g;

	tnp_make_node(r->m, TNP_OP_MOE_ROUTE, TNP_LIST(h, router), TNP_LIST(ids, share));
	tnp_make_int(r->m, TNP_A_TOP_K, a->top_k);
	tnp_make_int(r->m, TNP_A_NORM, a->fused);
	g = experts_glu(r, h, ids);
	g = experts_linear(r, g, ids, experts(r, type, a->d, a->ff), a->d);
	tnp_make_node(r->m, TNP_OP_MOE_SUM, TNP_LIST(g, share), TNP_LIST(sum));
	tnp_make_node(r->m, TNP_OP_ADD, TNP_LIST(x, sum), TNP_LIST(y));
	return y;
}

/* x + W h: the residual inside the product, or as a node of its own. */
static uint32_t back(struct arch *r, uint32_t h, uint32_t x, uint32_t k, uint32_t type)
{
	uint32_t y = rows(r, r->a->d), w = tnp_make_random(r->m, type, 0.5 / sqrt(k), r->a->d, k, 0);

	if (r->a->fused) {
		tnp_make_node(r->m, TNP_OP_LINEAR, TNP_LIST(h, x, w), TNP_LIST(y));
	} else {
		uint32_t part = rows(r, r->a->d);

		tnp_make_node(r->m, TNP_OP_LINEAR, TNP_LIST(h, w), TNP_LIST(part));
		tnp_make_node(r->m, TNP_OP_ADD, TNP_LIST(x, part), TNP_LIST(y));
	}
	return y;
}

static void head(struct arch *r, uint32_t x)
{
	const struct drive_arch *a = r->a;
	uint32_t last = tnp_make_rows(r->m, TNP_N_OUT, a->d), h = tnp_make_rows(r->m, TNP_N_OUT, a->d);
	uint32_t y = tnp_make_rows(r->m, TNP_N_OUT, a->vocab), w = matrix(r, a->vocab, a->d);

	tnp_make_node(r->m, TNP_OP_SELECT, TNP_LIST(x), TNP_LIST(last));
	tnp_make_node(r->m, TNP_OP_RMSNORM, TNP_LIST(last, vector(r, a->d, 1)), TNP_LIST(h));
	tnp_make_float(r->m, TNP_A_EPS, 1e-5);
	tnp_make_node(r->m, TNP_OP_LINEAR, TNP_LIST(h, w), TNP_LIST(y));
	if (a->cap > 0) {
		uint32_t z = tnp_make_rows(r->m, TNP_N_OUT, a->vocab);

		tnp_make_node(r->m, TNP_OP_SOFTCAP, TNP_LIST(y), TNP_LIST(z));
		tnp_make_float(r->m, TNP_A_CAP, a->cap);
		y = z;
	}
	tnp_make_out(r->m, y);
}

struct tnp_make *drive_arch_make(const struct drive_arch *a, uint64_t seed)
{
	struct arch r = { .m = tnp_make_create(seed), .a = a };
	uint32_t table = tnp_make_random(r.m, a->type, 1, a->vocab, a->d, 0), x = rows(&r, a->d), h;

	if (a->factors)
		r.factors = vector(&r, (a->rope_dims ? a->rope_dims : a->head_dim) / 2, 2);
	tnp_make_node(r.m, TNP_OP_EMBED, TNP_LIST(table), TNP_LIST(x));
	tnp_make_float(r.m, TNP_A_SCALE, 1.5);
	for (uint32_t i = 0; i < a->layers; i++) {
		h = self_attention(&r, i, norm(&r, x, a->d, 0));
		x = back(&r, h, x, a->heads * a->head_dim, a->type);
		h = norm(&r, x, a->d, 0);
		x = a->experts
			? mixture(&r, h, x)
			: back(&r, feed_forward(&r, h), x, a->ff, a->type_down ? a->type_down : a->type);
	}
	head(&r, x);
	assert_non_null(tnp_make_graph(r.m));
	return r.m;
}

/* ---- a model with its pool ------------------------------------------------------------------------ */
static void deal_pages(struct drive_model *m, uint64_t shuffle)
{
	m->deal = calloc(m->n_pages, sizeof *m->deal);
	for (uint32_t i = 0; i < m->n_pages; i++)
		m->deal[i] = i;
	for (uint32_t i = m->n_pages; shuffle && i-- > 1;) {
		uint32_t j = (uint32_t)(tnp_rand(&shuffle) % (i + 1)), t = m->deal[i];

		m->deal[i] = m->deal[j];
		m->deal[j] = t;
	}
}

void drive_model_open(struct drive_model *m, struct drive_dev *d, struct tnp_make *g,
	const struct drive_arch *a, uint32_t precision, uint32_t kv_type, uint32_t page_tokens,
	uint64_t shuffle)
{
	struct tnp_error e = { .size = sizeof e };
	struct tnp_sizes sizes = { .size = sizeof sizes };
	struct tnp_kv_slot slot[64];
	struct tnp_kv_spec spec = { .size = sizeof spec,
		.type = kv_type,
		.page_tokens = page_tokens,
		.n_slots = a->layers,
		.slots = slot };

	*m = (struct drive_model){ .d = d,
		.vocab = a->vocab,
		.n_groups = a->window && a->layers > 1 ? 2 : 1,
		.n_pages = DRIVE_SEQS * DRIVE_PAGES / 4,
		.lim = { .size = sizeof m->lim,
			.precision = precision,
			.max_tokens = 1024,
			.max_seqs = DRIVE_SEQS,
			.max_out = 1024,
			.max_pages_per_seq = DRIVE_PAGES,
			.kv_type = kv_type,
			.page_tokens = page_tokens } };
	for (uint32_t i = 0; i < a->layers; i++)
		slot[i] = (struct tnp_kv_slot){ a->kv_heads, a->head_dim, i % 2 ? a->window : 0,
			a->window && i % 2 };
	for (uint32_t i = 0; i < m->n_groups; i++)
		spec.n_pages[i] = m->n_pages;
	if (d->ops->model_sizes(d->dev, tnp_make_graph(g), &m->lim, &sizes, &e) ||
		d->ops->model_open(d->dev, tnp_make_graph(g), &m->lim, &m->model, &e) ||
		d->ops->kv_open(m->model, &spec, &m->kv, &e))
		fail_msg("%s (item %u)", e.text, e.item);
	deal_pages(m, shuffle);
}

void drive_model_close(struct drive_model *m)
{
	m->d->ops->kv_close(m->kv);
	m->d->ops->model_close(m->model);
	free(m->deal);
}

static void pages_grow(struct drive_model *m, struct drive_seq *s, uint32_t n_tokens)
{
	while (s->n_pages * m->lim.page_tokens < n_tokens) {
		assert_true(s->n_pages < DRIVE_PAGES && m->used < m->n_pages);
		for (uint32_t g = 0; g < m->n_groups; g++)
			s->page[g][s->n_pages] = m->deal[(m->used + 7 * g) % m->n_pages];
		m->used++;
		s->n_pages++;
	}
}

void drive_step(struct drive_model *m, const struct drive_part *part, uint32_t n_parts)
{
	static int32_t token[1024], pos[1024];
	static uint32_t list[TNP_MAX_GROUPS][DRIVE_SEQS * DRIVE_PAGES], out_tok[1024];
	uint32_t tok0[DRIVE_SEQS + 1] = { 0 }, past[DRIVE_SEQS], page0[DRIVE_SEQS + 1] = { 0 }, n_out = 0;
	struct tnp_pages pages[TNP_MAX_GROUPS];
	struct tnp_error e = { .size = sizeof e };
	struct tnp_rows rows = { NULL, m->vocab };
	float *logits;
	tnp_rc rc[DRIVE_SEQS];
	uint64_t ticket;
	struct tnp_batch b = { .size = sizeof b,
		.n_seqs = n_parts,
		.token = token,
		.pos = pos,
		.tok0 = tok0,
		.past = past,
		.pages = pages,
		.out_tok = out_tok,
		.out = &rows,
		.seq_rc = rc };

	for (uint32_t i = 0; i < n_parts; i++) {
		struct drive_seq *s = part[i].seq;

		pages_grow(m, s, s->past + part[i].n);
		for (uint32_t j = 0; j < part[i].n; j++) {
			token[tok0[i] + j] = s->token[s->past + j];
			pos[tok0[i] + j] = (int32_t)(s->past + j);
		}
		past[i] = s->past;
		tok0[i + 1] = tok0[i] + part[i].n;
		page0[i + 1] = page0[i] + s->n_pages;
		for (uint32_t g = 0; g < m->n_groups; g++)
			memcpy(list[g] + page0[i], s->page[g], s->n_pages * sizeof list[g][0]);
		for (uint32_t j = 0; j < part[i].n_out; j++)
			out_tok[n_out++] = tok0[i + 1] - part[i].n_out + j;
	}
	for (uint32_t g = 0; g < m->n_groups; g++)
		pages[g] = (struct tnp_pages){ page0, list[g] };
	rows.data = logits = calloc(n_out + 1, m->vocab * sizeof *logits);
	b.n_tokens = tok0[n_parts];
	b.n_out = n_out;
	if (m->d->ops->batch(m->model, m->kv, &b, &ticket, &e) ||
		m->d->ops->wait(m->d->dev, ticket, UINT64_MAX, &e))
		fail_msg("%s", e.text);
	n_out = 0;
	for (uint32_t i = 0; i < n_parts; i++) {
		assert_int_equal(rc[i], TNP_OK);
		if (part[i].n_out)
			memcpy(part[i].out, logits + (size_t)n_out * m->vocab,
				(size_t)part[i].n_out * m->vocab * sizeof *logits);
		n_out += part[i].n_out;
		part[i].seq->past += part[i].n;
	}
	free(logits);
}
