/* SPDX-License-Identifier: Apache-2.0
 * Opening a model: file, then graph, what the backend says to it, the ledger, and only then memory. Tokenizer and
 * template are read on a second thread meanwhile: both are a good part of the time to the first token.
 */
#include "base/base.h"
#include "engine/model_priv.h"
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
	DEFAULT_CONTEXT = 8192,
	DEFAULT_STEP_TOKENS = 512,
	DEFAULT_STEP_SEQS = 32,
	DEFAULT_PAGE_TOKENS = 32,
	MAX_STEP_TOKENS = 1 << 16,
	MAX_STEP_SEQS = 1 << 14,
	MAX_PAGE_TOKENS = 1024,
	TEXT_BYTES = 120, /* of a token in tokenizer and tables of the file */
	TEXT_BASE_BYTES = 1 << 18
};

/* ---- what the options and the file ask for -------------------------------------------------------------------------- */

static int take_options(
	struct model *m, const struct model_options *o, const struct arch_params *p, struct error *e)
{
	struct model_info *i = &m->info;
	uint64_t n_ctx = o->n_ctx ? o->n_ctx : MIN_OF(p->n_ctx_train, (uint32_t)DEFAULT_CONTEXT);

	i->step_tokens = o->step_tokens ? o->step_tokens : DEFAULT_STEP_TOKENS;
	i->step_seqs = o->step_seqs ? o->step_seqs : DEFAULT_STEP_SEQS;
	if (p->encoder) /* a text is one step's, whole */
		i->step_tokens = MAX_OF(i->step_tokens, (uint32_t)MIN_OF(n_ctx, (uint64_t)p->n_ctx_train));
	i->step_out = o->step_out ? o->step_out : MIN_OF(i->step_seqs, i->step_tokens);
	i->page_tokens = o->page_tokens ? o->page_tokens : DEFAULT_PAGE_TOKENS;
	i->kv_type = o->kv_f32 ? TNP_F32 : o->kv_type ? o->kv_type : TNP_F16;
	i->precision = o->precision;
	if (i->step_tokens > MAX_STEP_TOKENS || i->step_seqs > MAX_STEP_SEQS || i->step_out > i->step_tokens)
		return error_set(e, TENON_E_INVALID,
			"model '%s': a step of %u tokens, %u sequences and %u rows is out of range", m->name,
			i->step_tokens, i->step_seqs, i->step_out);
	if (i->page_tokens > MAX_PAGE_TOKENS || (i->page_tokens & (i->page_tokens - 1)))
		return error_set(e, TENON_E_INVALID,
			"model '%s': pages of %u tokens; a power of two up to %d is needed", m->name,
			i->page_tokens, MAX_PAGE_TOKENS);
	if (n_ctx > p->n_ctx_train)
		return error_set(e, TENON_E_TOO_LONG,
			"model '%s': a context of %llu tokens; it was made for %u at most", m->name,
			(unsigned long long)n_ctx, p->n_ctx_train);
	i->n_ctx = (uint32_t)n_ctx;
	return TENON_OK;
}

static uint64_t count_of(const struct gguf_tensor *t)
{
	return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

static void take_info(struct model *m, const struct arch *a, const struct arch_params *p)
{
	struct model_info *i = &m->info;

	(void)snprintf(m->arch, sizeof m->arch, "%s", a->name);
	i->arch = m->arch;
	i->name = m->name;
	i->digest = gguf_digest(m->file);
	i->n_vocab = p->n_vocab;
	i->n_layers = p->n_layers;
	i->d_model = p->d_model;
	i->n_heads = p->n_heads;
	i->n_kv_heads = p->n_kv_heads;
	i->head_dim = p->head_dim;
	i->n_ctx_train = p->n_ctx_train;
	i->n_experts = p->n_experts;
	i->n_experts_used = p->n_experts_used;
	i->is_encoder = p->encoder;
	i->pooling = p->pooling;
	for (size_t t = 0; t < gguf_n_tensors(m->file); t++) {
		const struct gguf_tensor *x = gguf_tensor_at(m->file, t);

		i->n_params += count_of(x);
		i->n_params_active += p->n_experts && x->rank == 3 && x->dim[0] == p->n_experts
			? count_of(x) / p->n_experts * p->n_experts_used
			: count_of(x);
	}
}

/* general.name where it is printable text, else the file's own name. */
static void take_name(struct model *m, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct gguf_str s = { NULL, 0 };

	(void)snprintf(m->name, sizeof m->name, "%.100s", slash ? slash + 1 : path);
	if (gguf_get_str(m->file, "general.name", &s, NULL) || !s.len || s.len >= sizeof m->name ||
		!utf8_valid(s.s, s.len, NULL))
		return;
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.s[i] < 0x20)
			return;
	(void)snprintf(m->name, sizeof m->name, "%.*s", (int)s.len, s.s);
}

static int ask_backend(void *ctx, const struct tnp_graph *g, struct tnp_verdict *v, struct error *e)
{
	return backend_model_check(ctx, g, v, e);
}

static void report_add(struct pass_report *sum, const struct pass_report *r)
{
	sum->rounds = MAX_OF(sum->rounds, r->rounds);
	sum->n_before += r->n_before;
	sum->n_after += r->n_after;
	for (uint32_t i = 0; i < PASS_N; i++) {
		sum->pass[i].changes += r->pass[i].changes;
		sum->pass[i].nodes += r->pass[i].nodes;
	}
}

/* Each part by what its backend takes, then what the passes left, finished. */
static int build_parts(struct model *m, const struct model_options *o, struct error *e)
{
	struct model_info *i = &m->info;
	int rc = pass_names_parse(o->passes, &m->passes_off, e);

	for (uint32_t k = 0; k < m->parts.n && !rc; k++) {
		struct part *part = &m->parts.part[k];
		struct pass_options p = { .off = m->passes_off, .ask = ask_backend, .ctx = part->backend };
		struct pass_report r;

		graph_passes_run(part->graph, &p, &r);
		report_add(&m->pass_report, &r);
		part->g = graph_finish(part->graph, i->step_tokens, i->step_seqs, i->step_out, e);
		rc = part->g ? TENON_OK : e ? e->code : TENON_E_FORMAT;
	}
	return rc;
}

static int cut(struct model *m, const struct model_options *o, struct error *e)
{
	struct model_place one = { .backend = o->backend };
	const struct model_place *place = o->n_places ? o->places : &one;
	uint32_t n = o->n_places ? o->n_places : 1;

	backends_text(place, n, m->backends);
	m->info.backend = m->backends;
	return partition_cut(&m->parts, m->graph, place, n, m->info.n_layers, m->name, e);
}

static int build_graph(struct model *m, const struct model_options *o, struct error *e)
{
	const struct arch *a;
	struct arch_params p;
	int rc = arch_find(m->file, &a, e);

	if (!rc)
		rc = arch_params_read(m->file, a, &p, e);
	if (!rc)
		rc = take_options(m, o, &p, e);
	if (!rc)
		rc = graph_create(m->file, &m->graph, e);
	if (rc)
		return rc;
	take_info(m, a, &p);
	a->build(m->file, &p, m->graph);
	rc = model_taps_open(m, o->taps, e);
	if (!rc)
		rc = cut(m, o, e);
	if (!rc)
		rc = build_parts(m, o, e);
	if (rc)
		return rc;
	m->g = graph_view(m->graph);
	rc = graph_slots(m->graph, &m->slots, e);
	if (!rc)
		rc = partition_slots(&m->parts, &m->slots, e);
	m->info.n_groups = m->slots.n_groups;
	memcpy(m->info.window, m->slots.window, sizeof m->info.window);
	m->out_width = (uint32_t)graph_width(m->graph, m->g->out[0]);
	m->text_bytes = (uint64_t)TEXT_BYTES * m->info.n_vocab + TEXT_BASE_BYTES;
	m->max_pages = (m->info.n_ctx + m->info.page_tokens - 1) / m->info.page_tokens;
	return rc;
}

/* ---- what the backend says ------------------------------------------------------------------------------------------- */

/* Names the node, its first weight and the reason. */
static int refused(
	const struct model *m, const struct part *p, uint32_t i, const struct tnp_verdict *v, struct error *e)
{
	const struct tnp_node *n = &p->g->nodes[i];
	char node[96], weight[96] = "";

	graph_node_name(p->graph, i, node, sizeof node);
	for (uint32_t j = 0; j < n->n_in && !weight[0]; j++) {
		const struct gguf_tensor *t = graph_file_tensor(p->graph, p->g->edges[n->in0 + j]);

		if (t && t->type != TNP_F32)
			(void)snprintf(weight, sizeof weight, " with '%.*s' (%s)",
				(int)MIN_OF(t->name.len, 48), t->name.s,
				gguf_type_name(t->type) ? gguf_type_name(t->type) : "unknown type");
	}
	return error_set(e, TENON_E_UNSUPPORTED, "model '%.48s': backend %s does not take %s%s: %.56s%s",
		m->name, backend_name(p->backend), node, weight, v->text,
		m->parts.split ? "; give these layers to another backend" : "");
}

static int check_nodes(const struct model *m, const struct part *p, struct error *e)
{
	struct tnp_verdict *v = mem_zalloc(MEM_ENGINE, p->g->n_nodes, sizeof *v);
	int rc;

	if (!v)
		return error_set(e, TENON_E_NOMEM, "model '%s': no memory", m->name);
	rc = backend_model_check(p->backend, p->g, v, e);
	for (uint32_t i = 0; !rc && i < p->g->n_nodes; i++)
		if (!v[i].ok)
			rc = refused(m, p, i, &v[i], e);
	mem_free(v);
	return rc;
}

static int check_kv(const struct model *m, const struct part *p, struct error *e)
{
	uint64_t types = 0;
	uint32_t lo = 0, hi = 0;
	const char *name = gguf_type_name(m->info.kv_type);
	int rc = p->slots.n ? backend_kv_caps(p->backend, &types, &lo, &hi, e) : TENON_OK;

	if (rc || !p->slots.n)
		return rc;
	if (m->info.kv_type > 63 || !(types >> m->info.kv_type & 1))
		return error_set(e, TENON_E_UNSUPPORTED,
			"model '%s': backend %s cannot keep keys and values as %s", m->name,
			backend_name(p->backend), name ? name : "that type");
	if (m->info.page_tokens < lo || m->info.page_tokens > hi)
		return error_set(e, TENON_E_UNSUPPORTED,
			"model '%s': pages of %u tokens; backend %s takes %u to %u", m->name,
			m->info.page_tokens, backend_name(p->backend), lo, hi);
	return TENON_OK;
}

static int check_parts(const struct model *m, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i < m->parts.n && !rc; i++) {
		rc = check_nodes(m, &m->parts.part[i], e);
		if (!rc)
			rc = check_kv(m, &m->parts.part[i], e);
	}
	return rc;
}

struct tnp_limits model_limits(const struct model *m)
{
	const struct model_info *i = &m->info;

	return (struct tnp_limits){ .size = sizeof(struct tnp_limits),
		.precision = i->precision,
		.max_tokens = i->step_tokens,
		.max_seqs = i->step_seqs,
		.max_out = i->step_out,
		.max_pages_per_seq = m->max_pages,
		.kv_type = i->kv_type,
		.page_tokens = i->page_tokens };
}

/* ---- the ledger -------------------------------------------------------------------------------------------------------- */

/* Pages of two loads may be exchanged when the weights, the layout of pages and whatever decides their bits are equal. */
static void take_compat(struct model *m, const uint8_t layout[32])
{
	crypto_generichash_state s;

	(void)crypto_generichash_init(&s, NULL, 0, sizeof m->info.kv_compat);
	(void)crypto_generichash_update(&s, gguf_digest(m->file), 32);
	(void)crypto_generichash_update(&s, layout, 32);
	for (uint32_t i = 0; i < m->parts.n; i++) {
		const char *name = backend_name(m->parts.part[i].backend);
		const struct tnp_device *d = backend_device(m->parts.part[i].backend);

		(void)crypto_generichash_update(&s, (const uint8_t *)name, strlen(name) + 1);
		(void)crypto_generichash_update(&s, (const uint8_t *)d->isa, strnlen(d->isa, sizeof d->isa));
	}
	(void)crypto_generichash_update(&s, (const uint8_t *)&m->info.precision, sizeof m->info.precision);
	if (m->passes_off)
		(void)crypto_generichash_update(&s, (const uint8_t *)&m->passes_off, sizeof m->passes_off);
	(void)crypto_generichash_final(&s, m->info.kv_compat, sizeof m->info.kv_compat);
}

/* Live bytes of what the text side and the graph allocate; other models' count too, so only differences mean something. */
static uint64_t text_areas(void)
{
	return mem_area_bytes(MEM_ENGINE) + mem_area_bytes(MEM_TOKENIZER) + mem_area_bytes(MEM_TEMPLATE);
}

/* In place of the guess. `step`: bytes that the step's arrays took of these areas. */
static void text_measured(struct model *m, uint64_t before, uint64_t step)
{
	uint64_t now = text_areas(), guess = m->text_bytes;

	m->text_bytes = now > before + step ? now - before - step : 0;
	m->ledger.bytes[LEDGER_TEXT] = m->text_bytes;
	m->ledger.loaded += m->text_bytes - guess;
	m->ledger.total += m->text_bytes - guess;
}

/* The default pool shrinks to one context before a model is refused. */
static int balance(struct model *m, const struct model_options *o, struct error *e)
{
	uint64_t available =
		o->memory_limit ? MIN_OF(o->memory_limit, memory_available()) : memory_available();
	struct ledger_ask ask = { .n_sessions = o->n_sessions, .kv_bytes = o->kv_bytes };
	struct model_info *i = &m->info;
	struct ledger *l = &m->ledger;
	int rc = ledger_make(m, &ask, l, e);

	if (!rc && l->loaded + l->peak > available && !ask.n_sessions && !ask.kv_bytes) {
		ask.least = true;
		rc = ledger_make(m, &ask, l, e);
	}
	if (rc)
		return rc;
	for (uint32_t g = 0; g < i->n_groups; g++) {
		i->n_pages[g] = (uint32_t)l->n_pages[g];
		i->page_bytes[g] = l->sizes.kv_page[g];
	}
	i->invariant = partition_has(&m->parts, TNP_F_INVARIANT);
	i->kv_io = partition_has(&m->parts, TNP_F_KV_IO);
	take_compat(m, l->sizes.kv_compat);
	i->weights_mapped_bytes = l->sizes.weights_mapped;
	i->weights_own_bytes = l->sizes.weights_own;
	i->workspace_bytes = l->sizes.workspace;
	i->open_peak_bytes = l->sizes.open_peak;
	i->kv_bytes = l->bytes[LEDGER_KV];
	return o->measure_only ? TENON_OK : ledger_check(m, &ask, l, available, e);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

static int open_compute(struct model *m, const struct model_options *o, struct error *e)
{
	struct tnp_limits lim;
	int rc = build_graph(m, o, e);

	if (!rc)
		rc = check_parts(m, e);
	if (!rc)
		rc = balance(m, o, e);
	if (rc || o->measure_only)
		return rc;
	lim = model_limits(m);
	rc = partition_open(&m->parts, &lim, m->ledger.part, m->info.n_pages, o->progress, e);
	if (!rc && m->info.weights_own_bytes)
		gguf_forget(
			m->file); /* the backend has copies: the file need not stay resident beside them */
	if (!rc)
		rc = model_step_open(m, e);
	m->opened = !rc;
	return rc;
}

struct text_job {
	struct model *m;
	struct error e;
	int rc;
};

static void *text_main(void *arg)
{
	struct text_job *j = arg;

	j->rc = model_text_open(j->m, &j->e);
	return NULL;
}

/* Ids that the tokenizer can give must have rows in the embedding. */
static int check_vocab(const struct model *m, struct error *e)
{
	size_t n = tokenizer_n_vocab(m->tokenizer);

	return n <= m->info.n_vocab
		? TENON_OK
		: error_set(e, TENON_E_FORMAT, "model '%s': %zu tokens, but the embedding has %u rows",
			  m->name, n, m->info.n_vocab);
}

/* Text beside computing; without a second thread one after the other. */
static int open_both(struct model *m, const struct model_options *o, struct error *e)
{
	struct text_job job = { .m = m };
	pthread_t thread;
	bool beside = !pthread_create(&thread, NULL, text_main, &job);
	int rc;

	if (!beside)
		(void)text_main(&job);
	rc = open_compute(m, o, e);
	if (beside)
		(void)pthread_join(thread, NULL);
	if (!rc && job.rc) {
		if (e)
			*e = job.e;
		rc = job.rc;
	}
	return rc ? rc : check_vocab(m, e);
}

int model_open(const struct model_options *o, struct model **out, struct error *e)
{
	uint64_t before = text_areas();
	struct model *m = mem_zalloc(MEM_ENGINE, 1, sizeof *m);
	int rc;

	if (!m)
		return error_set(e, TENON_E_NOMEM, "model: no memory");
	rc = gguf_open(o->path, &m->file, e);
	if (!rc) {
		take_name(m, o->path);
		rc = open_both(m, o, e);
	}
	if (rc) {
		model_close(m);
		return rc;
	}
	text_measured(m, before, m->step.bytes);
	*out = m;
	return TENON_OK;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	partition_finish(&m->parts);
	model_step_close(m);
	model_taps_close(m);
	model_text_close(m);
	mem_free(m->slots.slot);
	graph_destroy(m->graph);
	gguf_close(m->file);
	mem_free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
const struct ledger *model_ledger(const struct model *m) { return &m->ledger; }
const struct pass_report *model_pass_report(const struct model *m) { return &m->pass_report; }

uint32_t model_n_parts(const struct model *m) { return m->parts.n; }

struct model_part model_part_at(const struct model *m, uint32_t i)
{
	const struct part *p = &m->parts.part[i];

	return (struct model_part){ .backend = p->backend,
		.compute = p->bm,
		.graph = p->graph,
		.nodes = p->g,
		.layer0 = p->layer0,
		.n_layers = p->n_layers,
		.copied_bytes = p->in == TNP_NONE
			? 0
			: (uint32_t)(graph_row_width(m->graph, m->g->out[p->in]) * (int64_t)sizeof(float)) };
}

const struct gguf *model_file(const struct model *m) { return m->file; }
const struct tokenizer *model_tokenizer(const struct model *m) { return m->tokenizer; }
const struct chat_template *model_template(const struct model *m) { return m->template; }
int model_check_file(const struct model *m, struct error *e) { return gguf_check_unchanged(m->file, e); }

int model_kv_copy(
	struct model *m, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	const struct model_info *i = &m->info;

	if (!m->opened || group >= i->n_groups || from >= i->n_pages[group] || to >= i->n_pages[group] ||
		from == to || n_tokens > i->page_tokens)
		return error_set(e, TENON_E_INVALID, "copy of page %u to %u: out of range", from, to);
	return partition_kv_copy(&m->parts, group, from, to, n_tokens, e);
}

static int page_check(const struct model *m, uint32_t group, uint32_t page, struct error *e)
{
	return m->opened && group < m->info.n_groups && page < m->info.n_pages[group]
		? TENON_OK
		: error_set(e, TENON_E_INVALID, "page %u: out of range", page);
}

int model_kv_read(struct model *m, uint32_t group, uint32_t page, void *out, struct error *e)
{
	int rc = page_check(m, group, page, e);

	return rc ? rc : partition_kv_read(&m->parts, group, page, out, e);
}

int model_kv_write(struct model *m, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	int rc = page_check(m, group, page, e);

	return rc ? rc : partition_kv_write(&m->parts, group, page, in, e);
}
