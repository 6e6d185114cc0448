/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform: loads the plugin under test and the reference, opens graphs on them, runs batches from lists of
 * sequences. Everything raw: the conformance program must see what the daemon's dispatcher would hide.
 */
#include "tools/conform.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_FLOATS 5u
#define GUARD_VALUE  -7.25e22f

/* ---- host services ------------------------------------------------------------------------------------------- */
struct blob {
	char key[64];
	uint64_t len;
	uint8_t *data;
};

/* Plugins keep the host table until stop, so it outlives every function here. */
static struct {
	struct blob blob[16];
	uint32_t n;
	const char *config[16]; /* "key=value", the last of a key counts */
	uint32_t n_config;
} store;

static void host_log(void *ctx, uint32_t level, const char *topic, const char *text)
{
	(void)ctx, (void)level, (void)topic, (void)text;
}

static const char *host_config(void *ctx, const char *key)
{
	size_t n = strlen(key);

	(void)ctx;
	for (uint32_t i = store.n_config; i-- > 0;)
		if (!strncmp(store.config[i], key, n) && store.config[i][n] == '=')
			return store.config[i] + n + 1;
	return strcmp(key, "threads") ? NULL : "2";
}

bool conform_config_add(const char *key_value)
{
	if (!strchr(key_value, '=') || store.n_config == COUNT_OF(store.config))
		return false;
	store.config[store.n_config++] = key_value;
	return true;
}

static uint32_t host_stopping(void *ctx)
{
	(void)ctx;
	return 0;
}

static struct blob *blob_find(const char *key)
{
	for (uint32_t i = 0; i < store.n; i++)
		if (!strcmp(store.blob[i].key, key))
			return &store.blob[i];
	return NULL;
}

static tnp_rc host_blob_get(void *ctx, const char *key, void *out, uint64_t *len)
{
	const struct blob *b = blob_find(key);
	uint64_t room = *len;

	(void)ctx;
	*len = b ? b->len : 0;
	if (!b)
		return TNP_E_UNSUPPORTED;
	if (!out)
		return TNP_OK;
	if (room < b->len)
		return TNP_E_NOMEM;
	memcpy(out, b->data, b->len);
	return TNP_OK;
}

static tnp_rc host_blob_put(void *ctx, const char *key, const void *in, uint64_t len)
{
	struct blob *b = blob_find(key);
	void *data = malloc(len + 1);

	(void)ctx;
	if (!b && store.n < COUNT_OF(store.blob) && strlen(key) < sizeof b->key) {
		b = &store.blob[store.n++];
		strcpy(b->key, key);
	}
	if (!b || !data) {
		free(data);
		return TNP_E_NOMEM;
	}
	free(b->data);
	memcpy(data, in, len);
	b->data = data;
	b->len = len;
	return TNP_OK;
}

const struct tnp_host *conform_host(void)
{
	static const struct tnp_host host = { .size = sizeof host,
		.abi_major = TNP_ABI_MAJOR,
		.abi_minor = TNP_ABI_MINOR,
		.log = host_log,
		.config = host_config,
		.stopping = host_stopping,
		.blob_get = host_blob_get,
		.blob_put = host_blob_put };

	return &host;
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */
const char *conform_code(tnp_rc rc)
{
	static const char *const name[] = { "TNP_OK", "TNP_E_INVALID", "TNP_E_UNSUPPORTED", "TNP_E_NOMEM",
		"TNP_E_BUSY", "TNP_E_CANCELLED", "TNP_E_TIMEOUT", "TNP_E_DEVICE", "TNP_E_INTERNAL" };

	return rc <= 0 && rc > -(tnp_rc)COUNT_OF(name) ? name[-rc] : "a code outside the list";
}

const struct tnp_ops *conform_load(struct conform *c, const char *path, void **so)
{
	const struct tnp_ops *ops;
	tnp_entry_fn *entry;

	*so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*so)
		conform_fail(c, "%s", dlerror());
	*(void **)&entry = dlsym(*so, TNP_ENTRY_NAME);
	if (!entry)
		conform_fail(c, "%s: no symbol %s", path, TNP_ENTRY_NAME);
	ops = entry(TNP_ABI_MAJOR, TNP_ABI_MAJOR);
	if (!ops)
		conform_fail(c, "%s: speaks no ABI major %u", path, TNP_ABI_MAJOR);
	return ops;
}

static void device_open(struct conform *c, struct peer *p, const char *path)
{
	struct tnp_error e = { .size = sizeof e };
	uint32_t n = 0;
	tnp_rc rc = p->ops->dev_count(&n, &e);

	if (!rc && !n)
		conform_skip(c, "no device here");
	p->info = (struct tnp_device){ .size = sizeof p->info };
	if (!rc)
		rc = p->ops->dev_info(0, &p->info, &e);
	if (!rc)
		rc = p->ops->dev_open(0, &p->dev, &e);
	if (rc)
		conform_fail(c, "%s: device 0: %s: %s", path, conform_code(rc), e.text);
}

static void peer_open(struct conform *c, struct peer *p, const char *path)
{
	struct tnp_error e = { .size = sizeof e };
	tnp_rc rc;

	p->ops = conform_load(c, path, &p->so);
	rc = p->ops->start(conform_host(), &e);
	if (rc)
		conform_fail(c, "%s: start: %s: %s", path, conform_code(rc), e.text);
	device_open(c, p, path);
}

/* What pages both can use; the reference takes any page size. */
static void kv_choose(struct conform *c)
{
	static const uint32_t order[] = { TNP_F32, TNP_F16, TNP_Q8_0, TNP_Q4_0 };
	uint64_t ours = 0, theirs = 0;
	uint32_t lo = 0, hi = 0, ref_lo, ref_hi;
	struct tnp_error e = { .size = sizeof e };

	if (c->sut.ops->kv_caps(c->sut.dev, &theirs, &lo, &hi, &e) ||
		c->ref.ops->kv_caps(c->ref.dev, &ours, &ref_lo, &ref_hi, &e))
		conform_fail(c, "kv_caps: %s", e.text);
	c->kv_types = ours & theirs;
	for (size_t i = COUNT_OF(order); i-- > 0;)
		if (c->kv_types >> order[i] & 1)
			c->kv_type = order[i];
	for (c->page_tokens = 4; c->page_tokens < lo; c->page_tokens *= 2)
		;
	c->page_tokens = MIN_OF(c->page_tokens, hi);
}

/* A module is started once, so when the reference checks itself both peers share it, each with a device handle. */
void conform_open(struct conform *c)
{
	conform_note(c, "opening the plugin");
	peer_open(c, &c->sut, c->path);
	conform_note(c, "opening the reference");
	c->ref.borrowed = !strcmp(c->path, c->ref_path);
	if (c->ref.borrowed) {
		c->ref.ops = c->sut.ops;
		device_open(c, &c->ref, c->ref_path);
	} else {
		peer_open(c, &c->ref, c->ref_path);
	}
	kv_choose(c);
}

static void peer_close(struct conform *c, struct peer *p)
{
	struct tnp_error e = { .size = sizeof e };

	p->ops->dev_close(p->dev);
	if (!p->borrowed && p->ops->stop(&e))
		conform_fail(c, "stop: %s", e.text);
}

void conform_close(struct conform *c)
{
	conform_note(c, "closing");
	peer_close(c, &c->ref);
	peer_close(c, &c->sut);
}

/* ---- slots of a graph --------------------------------------------------------------------------------------------- */
static int64_t attr_of(const struct tnp_graph *g, const struct tnp_node *n, uint32_t key, int64_t missing)
{
	for (uint32_t i = 0; i < n->n_attr; i++)
		if (g->attrs[n->attr0 + i].key == key)
			return g->attrs[n->attr0 + i].v.i;
	return missing;
}

static void slot_add(struct run_model *m, const struct tnp_node *n)
{
	int64_t at = attr_of(m->g, n, TNP_A_SLOT, -1);
	uint32_t window = (uint32_t)attr_of(m->g, n, TNP_A_WINDOW, 0);
	struct tnp_kv_slot *s;

	if (at < 0 || at >= (int64_t)COUNT_OF(m->slot) || !attr_of(m->g, n, TNP_A_CAUSAL, 1))
		return;
	s = &m->slot[at];
	if (!s->heads)
		s->window = window;
	else if (!window || (s->window && window > s->window))
		s->window = window;
	s->heads = (uint32_t)attr_of(m->g, n, TNP_A_KV_HEADS, 0);
	s->head_dim = (uint32_t)attr_of(m->g, n, TNP_A_HEAD_DIM, 0);
	m->n_slots = MAX_OF(m->n_slots, (uint32_t)at + 1);
}

void run_slots(struct run_model *m)
{
	m->n_slots = m->n_groups = 0;
	memset(m->slot, 0, sizeof m->slot);
	for (uint32_t i = 0; i < m->g->n_nodes; i++)
		if (m->g->nodes[i].op == TNP_OP_ATTEND)
			slot_add(m, &m->g->nodes[i]);
	for (uint32_t i = 0; i < m->n_slots; i++) {
		uint32_t g = 0;

		while (g < m->n_groups && m->window[g] != m->slot[i].window)
			g++;
		if (g == m->n_groups && g < TNP_MAX_GROUPS)
			m->window[m->n_groups++] = m->slot[i].window;
		m->slot[i].group = g;
	}
}

/* ---- opening graphs ----------------------------------------------------------------------------------------------- */
struct run_limits conform_limits(const struct conform *c)
{
	return (struct run_limits){ .precision = TNP_EXACT,
		.kv_type = c->kv_type,
		.page_tokens = c->page_tokens,
		.n_pages = 64,
		.max_tokens = 64,
		.max_seqs = 24,
		.max_pages = 32 };
}

void run_limits_set(struct tnp_limits *l, const struct run_limits *r)
{
	*l = (struct tnp_limits){ .size = sizeof *l,
		.precision = r->precision,
		.max_tokens = r->max_tokens,
		.max_seqs = r->max_seqs,
		.max_out = r->max_tokens,
		.max_pages_per_seq = r->max_pages,
		.kv_type = r->kv_type,
		.page_tokens = r->page_tokens };
}

bool run_taken(struct peer *p, const struct tnp_graph *g)
{
	struct tnp_verdict *v = calloc(g->n_nodes, sizeof *v);
	bool ok = v && !p->ops->model_check(p->dev, g, v, NULL);

	for (uint32_t i = 0; ok && i < g->n_nodes; i++)
		ok = v[i].ok;
	free(v);
	return ok;
}

static tnp_rc pool_open(struct run_model *m, struct tnp_error *e)
{
	struct tnp_kv_spec s = { .size = sizeof s,
		.type = m->lim.kv_type,
		.page_tokens = m->lim.page_tokens,
		.n_slots = m->n_slots,
		.slots = m->slot };

	for (uint32_t g = 0; g < m->n_groups; g++)
		s.n_pages[g] = m->n_pages;
	return m->n_slots ? m->p->ops->kv_open(m->model, &s, &m->kv, e) : TNP_OK;
}

tnp_rc run_open(struct run_model *m, struct peer *p, const struct tnp_graph *g, const struct run_limits *r,
	struct tnp_error *e)
{
	tnp_rc rc;

	*m = (struct run_model){
		.p = p, .g = g, .n_pages = r->n_pages, .sizes = { .size = sizeof m->sizes }
	};
	run_limits_set(&m->lim, r);
	run_slots(m);
	rc = p->ops->model_sizes(p->dev, g, &m->lim, &m->sizes, e);
	if (!rc)
		rc = p->ops->model_open(p->dev, g, &m->lim, &m->model, e);
	if (rc)
		return rc;
	rc = pool_open(m, e);
	if (rc)
		p->ops->model_close(m->model);
	return rc;
}

void run_close(struct run_model *m)
{
	m->p->ops->kv_close(m->kv);
	m->p->ops->model_close(m->model);
}

/* ---- batches --------------------------------------------------------------------------------------------------------- */
uint64_t run_width(const struct tnp_graph *g, uint32_t tensor)
{
	uint64_t n = 1;

	for (uint32_t i = 1; i < g->tensors[tensor].rank; i++)
		n *= (uint64_t)g->tensors[tensor].dim[i];
	return n;
}

static uint32_t rows_of(int64_t symbol, const struct run_seq *s)
{
	return symbol == TNP_N_TOKENS ? s->n : symbol == TNP_N_SEQS ? 1 : s->n_out;
}

static void *array(struct conform *c, uint64_t n, size_t bytes)
{
	void *p = calloc(n + 1, bytes);

	if (!p)
		conform_fail(c, "plugin-conform itself is out of memory");
	return p;
}

static void make_tokens(const struct run_seq *s, uint32_t n_seqs, struct run_arrays *a)
{
	uint32_t t = 0, o = 0;

	for (uint32_t i = 0; i < n_seqs; i++) {
		a->past[i] = s[i].past;
		a->tok0[i] = t;
		for (uint32_t k = 0; k < s[i].n; k++, t++) {
			a->token[t] = s[i].token ? s[i].token[k] : 0;
			a->pos[t] = (int32_t)(s[i].past + k);
			if (k + s[i].n_out >= s[i].n)
				a->out_tok[o++] = t;
		}
	}
	a->tok0[n_seqs] = t;
	a->b.n_tokens = t;
	a->b.n_out = o;
}

static void make_pages(struct conform *c, const struct run_model *m, const struct run_seq *s, uint32_t n_seqs,
	struct run_arrays *a)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < n_seqs; i++)
		all += s[i].n_page;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t at = 0;

		a->page0[g] = array(c, n_seqs + 1, sizeof *a->page0[g]);
		a->page[g] = array(c, all, sizeof *a->page[g]);
		for (uint32_t i = 0; i < n_seqs; i++) {
			for (uint32_t k = 0; k < s[i].n_page; k++)
				a->page[g][at++] = s[i].page[g][k];
			a->page0[g][i + 1] = at;
		}
		a->pages[g] = (struct tnp_pages){ a->page0[g], a->page[g] };
	}
}

static void make_in(struct conform *c, const struct run_model *m, const struct run_seq *s, uint32_t n_seqs,
	struct run_arrays *a)
{
	uint64_t width, at = 0;

	if (!m->g->n_in)
		return;
	width = run_width(m->g, m->g->in[0]);
	a->in = array(c, a->b.n_tokens * width, sizeof *a->in);
	for (uint32_t i = 0; i < n_seqs; i++) {
		for (uint64_t k = 0; k < s[i].n * width; k++)
			a->in[at + k] = s[i].in ? s[i].in[k] : (float)((s[i].past * width + k) % 17) / 16;
		at += s[i].n * width;
	}
}

static void make_out(struct conform *c, const struct run_model *m, const struct run_seq *s, uint32_t n_seqs,
	struct run_arrays *a)
{
	for (uint32_t o = 0; o < m->g->n_out; o++) {
		uint64_t stride;

		a->out_rows[o] = 0;
		for (uint32_t i = 0; i < n_seqs; i++)
			a->out_rows[o] += rows_of(m->g->tensors[m->g->out[o]].dim[0], &s[i]);
		a->out_width[o] = run_width(m->g, m->g->out[o]);
		stride = a->out_width[o] + GUARD_FLOATS;
		a->out[o] = (struct tnp_rows){ array(c, a->out_rows[o] * stride, sizeof(float)), stride };
		for (uint64_t k = 0; k < a->out_rows[o] * stride; k++)
			a->out[o].data[k] = GUARD_VALUE;
	}
}

void run_make(struct conform *c, struct run_model *m, const struct run_seq *s, uint32_t n_seqs,
	struct run_arrays *a)
{
	uint64_t n = 0;

	*a = (struct run_arrays){ 0 };
	for (uint32_t i = 0; i < n_seqs; i++)
		n += s[i].n;
	a->token = array(c, n, sizeof *a->token);
	a->pos = array(c, n, sizeof *a->pos);
	a->out_tok = array(c, n, sizeof *a->out_tok);
	a->tok0 = array(c, n_seqs + 1, sizeof *a->tok0);
	a->past = array(c, n_seqs, sizeof *a->past);
	a->seq_rc = array(c, n_seqs, sizeof *a->seq_rc);
	make_tokens(s, n_seqs, a);
	make_pages(c, m, s, n_seqs, a);
	make_in(c, m, s, n_seqs, a);
	make_out(c, m, s, n_seqs, a);
	for (uint32_t i = 0; i < n_seqs; i++)
		a->seq_rc[i] = TNP_E_INTERNAL; /* must be overwritten */
	a->b.size = sizeof a->b;
	a->b.n_seqs = n_seqs;
	a->b.token = a->token;
	a->b.pos = a->pos;
	a->b.tok0 = a->tok0;
	a->b.past = a->past;
	a->b.pages = a->pages;
	a->b.out_tok = a->out_tok;
	a->b.in = a->in;
	a->b.out = a->out;
	a->b.seq_rc = a->seq_rc;
}

tnp_rc run_call(struct run_model *m, struct run_arrays *a, struct tnp_error *e)
{
	uint64_t ticket = 0;
	tnp_rc rc = m->p->ops->batch(m->model, m->kv, &a->b, &ticket, e);

	return rc ? rc : m->p->ops->wait(m->p->dev, ticket, 60000000000ull, e);
}

static bool row_guarded(const float *row, uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++)
		if (row[k] != GUARD_VALUE)
			return false;
	return true;
}

static void take_rows(struct conform *c, const struct run_arrays *a, uint32_t o, uint64_t *row, uint32_t n,
	const struct run_seq *s)
{
	for (uint32_t k = 0; k < n; k++, ++*row) {
		const float *from = a->out[o].data + *row * a->out[o].stride;

		if (!row_guarded(from, a->out_width[o], a->out[o].stride))
			conform_fail(c, "wrote past the end of row %llu of output %u",
				(unsigned long long)*row, o);
		if (s->rc && !row_guarded(from, 0, a->out_width[o]))
			conform_fail(c, "wrote rows of a sequence that failed");
		if (!s->rc && s->out[o])
			memcpy(s->out[o] + k * a->out_width[o], from, a->out_width[o] * sizeof *from);
	}
}

void run_take(
	struct conform *c, struct run_model *m, struct run_seq *s, uint32_t n_seqs, struct run_arrays *a)
{
	uint64_t row[RUN_OUTS] = { 0 };

	for (uint32_t i = 0; i < n_seqs; i++) {
		s[i].rc = a->seq_rc[i];
		for (uint32_t o = 0; o < m->g->n_out; o++)
			take_rows(
				c, a, o, &row[o], rows_of(m->g->tensors[m->g->out[o]].dim[0], &s[i]), &s[i]);
	}
}

void run_free(struct run_arrays *a)
{
	free(a->token);
	free(a->pos);
	free(a->out_tok);
	free(a->tok0);
	free(a->past);
	free(a->seq_rc);
	free(a->in);
	for (uint32_t i = 0; i < TNP_MAX_GROUPS; i++) {
		free(a->page0[i]);
		free(a->page[i]);
	}
	for (uint32_t i = 0; i < RUN_OUTS; i++)
		free(a->out[i].data);
}

tnp_rc run_batch(
	struct conform *c, struct run_model *m, struct run_seq *s, uint32_t n_seqs, struct tnp_error *e)
{
	struct run_arrays a;
	tnp_rc rc;

	run_make(c, m, s, n_seqs, &a);
	rc = run_call(m, &a, e);
	if (!rc)
		run_take(c, m, s, n_seqs, &a);
	run_free(&a);
	return rc;
}

void run_alone(struct conform *c, struct run_model *m, struct run_seq *s)
{
	struct tnp_error e = { .size = sizeof e };
	uint32_t page[1024];
	tnp_rc rc;

	s->past = 0;
	s->n_page = (s->n + m->lim.page_tokens - 1) / m->lim.page_tokens;
	for (uint32_t i = 0; i < s->n_page && i < COUNT_OF(page); i++)
		page[i] = i;
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		s->page[g] = page;
	rc = run_batch(c, m, s, 1, &e);
	if (rc || s->rc)
		conform_fail(c, "a sequence of %u tokens alone: %s: %s", s->n, conform_code(rc ? rc : s->rc),
			e.text);
}

/* ---- comparing --------------------------------------------------------------------------------------------------------- */
double conform_tolerance(uint32_t precision, uint32_t kv_type)
{
	double tol = precision == TNP_FAST ? 0.05 : 1e-3;

	if (kv_type == TNP_Q8_0)
		tol = fmax(tol, 0.03);
	else if (kv_type == TNP_Q4_0)
		tol = fmax(tol, 0.3);
	return tol;
}

void conform_near(
	struct conform *c, const char *what, const float *got, const float *want, uint64_t n, double tol)
{
	double square = 0, error = 0, worst = 0;

	for (uint64_t i = 0; i < n; i++) {
		double d = (double)got[i] - (double)want[i];

		if (!isfinite(got[i]) || !isfinite(want[i]))
			conform_fail(c, "%s: element %llu is %g, want %g", what, (unsigned long long)i,
				(double)got[i], (double)want[i]);
		square += (double)want[i] * want[i];
		error += d * d;
		worst = fmax(worst, fabs(d));
	}
	square = sqrt(square / (double)MAX_OF(n, 1u)) + 1e-30;
	error = sqrt(error / (double)MAX_OF(n, 1u));
	c->result->n_cases++;
	c->result->worst = fmax(c->result->worst, fmax(error / square / tol, worst / square / tol / 8));
	if (error > tol * square || worst > 8 * tol * square)
		conform_fail(c,
			"%s: error %.3g, worst element %.3g of the values' root mean square, allowed %.3g",
			what, error / square, worst / square, tol);
}
