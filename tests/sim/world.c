/* SPDX-License-Identifier: Apache-2.0
 * Draws a scene from a seed: the model's shape, the machine's hidden costs, the scheduler's settings, who asks what and
 * when, who gives up, what breaks. Scenes by name put the weight on one thing; "mixed" lets everything happen at once.
 */
#include "tests/sim/sim.h"
#include <stdlib.h>
#include <string.h>

enum { N_TEMPLATES = 4, STREAM_WORLD = 1, STREAM_REQUESTS = 2 };

struct plan { /* how requests are drawn; permille where nothing else is said */
	uint32_t n, online, prefix, twin, chat, cancel, pause, deadline, bad, target, pin, no_reuse, sampled,
		stop, to_end;
	uint32_t prompt_lo, prompt_hi, answer_lo, answer_hi, burst;
	int32_t priority;
	uint64_t gap_ns, deadline_ns;
	uint32_t n_purges, n_limits, n_company, n_tends, n_unpins, n_configures;
	uint32_t template_n[N_TEMPLATES];
	int32_t template_tokens[N_TEMPLATES][SIM_CTX];
};

/* ---- the machine ------------------------------------------------------------------------------------------------------- */

static void draw_cost(struct sim_cost *c, struct rng *r)
{
	c->base_ns = rng_range(r, 500, 12000) * 1000ull;
	c->row_ns[0] = c->base_ns * rng_range(r, 2, 25) / 100;
	c->row_ns[1] = c->base_ns * rng_range(r, 5, 30) / 100;
	c->row_ns[2] = c->base_ns * rng_range(r, 4, 25) / 100;
	c->row_ns[3] = c->base_ns * rng_range(r, 2, 20) / 100;
	c->seq_ns = rng_below(r, 50000);
	c->out_ns = rng_below(r, 200000);
	c->attended_ps = rng_below(r, 300000);
	c->noise_permille = rng_below(r, 40);
	c->outlier_permille = rng_chance(r, 500) ? rng_below(r, 15) : 0;
	c->outlier_factor = rng_range(r, 2, 30);
}

/* A pool is anything from one full context to more than all places need. */
static void draw_model(struct model_info *m, struct rng *r)
{
	static const uint32_t sizes[] = { 4, 8, 16, 32 };
	uint32_t whole, n;

	*m = (struct model_info){ .arch = "fake",
		.name = "fake",
		.digest = (const uint8_t *)"0123456789abcdef0123456789abcdef",
		.n_vocab = SIM_VOCAB,
		.n_layers = 2,
		.d_model = 64,
		.n_heads = 1,
		.n_kv_heads = 1,
		.head_dim = 64,
		.kv_io = true,
		.invariant = rng_chance(r, 800) };
	m->page_tokens = sizes[rng_below(r, COUNT_OF(sizes))];
	m->n_ctx = m->n_ctx_train = rng_range(r, 48, SIM_CTX);
	m->step_tokens = rng_range(r, 16, 256);
	m->step_seqs = rng_range(r, 1, SIM_SEQS);
	m->step_out = rng_chance(r, 800) ? m->step_seqs : rng_range(r, 1, m->step_seqs);
	m->n_groups = rng_chance(r, 600) ? 1 : 2;
	whole = (m->n_ctx + m->page_tokens - 1) / m->page_tokens;
	n = rng_chance(r, 400) ? rng_range(r, whole, 2 * whole)
			       : rng_range(r, whole, (m->step_seqs + 2) * whole);
	for (uint32_t g = 0; g < m->n_groups; g++) {
		m->n_pages[g] = n;
		m->page_bytes[g] = m->page_tokens * sizeof(uint64_t);
	}
	if (m->n_groups == 2)
		m->window[rng_chance(r, 800)] = rng_range(r, 4, 128);
	memset(m->kv_compat, (int)m->page_tokens, sizeof m->kv_compat);
}

static void draw_config(struct sched_config *c, const struct model_info *m, struct rng *r)
{
	c->max_running = rng_chance(r, 500) ? 0 : rng_range(r, 1, m->step_seqs);
	c->max_step_ns = rng_chance(r, 600) ? 0 : rng_range(r, 2, 100) * SIM_MS;
	c->max_prefill_ns = rng_chance(r, 700) ? 0 : rng_range(r, 10, 300) * SIM_MS;
	c->aging_ns = rng_chance(r, 700) ? 0 : rng_range(r, 50, 5000) * SIM_MS;
	c->slack = rng_chance(r, 700) ? 0 : rng_range(r, 1, 200) / 1000.0;
	c->long_prompt_factor = rng_chance(r, 700) ? 0 : rng_range(r, 11, 40) / 10.0;
	c->no_prefix = rng_chance(r, 150);
	c->prefix.share_tenants = rng_chance(r, 200);
}

/* ---- requests -------------------------------------------------------------------------------------------------------------- */

static void random_tokens(struct rng *r, int32_t *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		t[i] = (int32_t)rng_below(r, SIM_VOCAB - 1);
}

static uint32_t copy_tokens(int32_t *to, const int32_t *from, uint32_t n, uint32_t most)
{
	n = MIN_OF(n, most);
	memcpy(to, from, n * sizeof *to);
	return n;
}

/* Fresh, or a template cut off anywhere and gone on with, or another one's prompt, or another one's whole talk. */
static void draw_prompt(struct sim_world *w, struct plan *p, struct sim_request *q, uint32_t i, struct rng *r)
{
	uint32_t most = w->info.n_ctx - 1, tail = rng_range(r, p->prompt_lo, p->prompt_hi), n = 0;
	const struct sim_request *old = i ? &w->request[rng_below(r, i)] : NULL;

	if (old && old->refusal)
		old = NULL;
	if (old && rng_chance(r, p->twin)) {
		n = copy_tokens(q->tokens, old->tokens, old->n_prompt, most);
		tail = rng_chance(r, 700) ? 0 : rng_range(r, 1, 4);
	} else if (old && rng_chance(r, p->chat)) {
		n = copy_tokens(q->tokens, old->tokens, old->n_prompt + old->n_answer, most);
	} else if (rng_chance(r, p->prefix)) {
		uint32_t k = rng_below(r, N_TEMPLATES);

		n = copy_tokens(q->tokens, p->template_tokens[k],
			rng_chance(r, 600) ? p->template_n[k] : rng_range(r, 1, p->template_n[k]), most);
	}
	tail = MIN_OF(tail, most - n);
	random_tokens(r, q->tokens + n, tail);
	q->n_prompt = n + tail;
}

static void draw_sampling(struct sim_request *q, const struct plan *p, struct rng *r)
{
	struct sampler_params *s = &q->ask.sampling;

	if (rng_chance(r, p->sampled)) {
		*s = (struct sampler_params){ .temperature = (float)rng_range(r, 1, 12) / 8,
			.seed = rng_next(r) };
		if (rng_chance(r, 300))
			s->top_k = rng_range(r, 1, 40);
		if (rng_chance(r, 300))
			s->top_p = (float)rng_range(r, 4, 8) / 8;
		if (rng_chance(r, 300))
			s->repeat_penalty = (float)rng_range(r, 8, 14) / 8;
		if (rng_chance(r, 200)) {
			q->bias = (struct sampler_bias){ (int32_t)rng_below(r, SIM_VOCAB),
				(float)rng_range(r, 0, 8) - 4 };
			s->bias = &q->bias;
			s->n_bias = 1;
		}
	}
	if (rng_chance(r, 100))
		s->n_logprobs = rng_range(r, 1, 5);
	q->ask.emit.ignore_eos = rng_chance(r, 600);
	q->ask.emit.special = rng_chance(r, 200);
	if (rng_chance(r, p->stop)) {
		q->stop_text[0] = (char)('!' + rng_below(r, 58));
		q->stop_text[1] = rng_chance(r, 500) ? (char)('!' + rng_below(r, 58)) : 0;
		q->stop = (struct emit_stop){ q->stop_text, strlen(q->stop_text) };
		q->ask.emit.stops = &q->stop;
		q->ask.emit.n_stops = 1;
	}
}

/* Something that submit must refuse at once. */
static void spoil(struct sim_world *w, struct sim_request *q, struct rng *r)
{
	uint32_t ctx = w->info.n_ctx;

	q->refusal = TENON_E_INVALID;
	switch (rng_below(r, 5)) {
	case 0:
		q->ask.max_tokens = ctx + 1 - q->n_prompt + rng_below(r, 1000);
		q->refusal = TENON_E_TOO_LONG;
		break;
	case 1:
		q->tokens[rng_below(r, q->n_prompt)] =
			rng_chance(r, 500) ? -1 - (int32_t)rng_below(r, 9) : SIM_VOCAB;
		break;
	case 2:
		q->ask.traffic_class = 2 + rng_below(r, 100);
		break;
	case 3:
		q->ask.priority = rng_chance(r, 500) ? 101 : -101;
		break;
	default:
		random_tokens(r, q->tokens, ctx + 4);
		q->n_prompt = ctx + rng_below(r, 4);
		q->refusal = TENON_E_TOO_LONG;
	}
}

static const char *const tenant_names[SIM_TENANTS] = { "", "anna", "bert", "cleo", "dora", "emil" };

/* Where an answer "to the end of the context" ends: the pool may hold less. */
static uint32_t most_tokens(const struct model_info *m, uint32_t n_prompt)
{
	uint32_t most = m->n_ctx;

	for (uint32_t g = 0; g < m->n_groups; g++)
		if (!m->window[g])
			most = MIN_OF(most, m->n_pages[g] * m->page_tokens);
	return MAX_OF(most, n_prompt + 1);
}

static int draw_request(
	struct sim_world *w, struct plan *p, uint32_t i, struct rng *r, const struct tokenizer *t)
{
	struct sim_request *q = &w->request[i];
	struct error e;

	sim_request_prepare(q, w->info.n_ctx);
	draw_prompt(w, p, q, i, r);
	draw_sampling(q, p, r);
	q->tenant = rng_below(r, w->n_tenants);
	q->ask.id = 1000 + i;
	q->ask.tenant = rng_chance(r, 100) && !q->tenant ? NULL : tenant_names[q->tenant];
	q->ask.tenant_weight = w->weight[q->tenant];
	q->ask.traffic_class = rng_chance(r, p->online) ? WIRE_ONLINE : WIRE_OFFLINE;
	q->ask.priority = (int32_t)rng_below(r, (uint32_t)p->priority * 2 + 1) - p->priority;
	q->ask.no_reuse = rng_chance(r, p->no_reuse);
	q->ask.pin = rng_chance(r, p->pin);
	q->ask.max_tokens = rng_range(r, p->answer_lo, p->answer_hi);
	q->ask.max_tokens = MIN_OF(q->ask.max_tokens, w->info.n_ctx - q->n_prompt);
	if (rng_chance(r, p->to_end))
		q->ask.max_tokens = 0;
	if (rng_chance(r, p->target)) {
		q->ask.ttft_ns = rng_range(r, 20, 1000) * SIM_MS;
		q->ask.tpot_ns = rng_range(r, 10, 200) * SIM_MS;
	}
	if (rng_chance(r, p->bad))
		spoil(w, q, r);
	return sim_request_solve(
		q, t, q->ask.max_tokens ? w->info.n_ctx : most_tokens(&w->info, q->n_prompt), &e);
}

/* ---- events --------------------------------------------------------------------------------------------------------------------- */

static void add(
	struct sim_world *w, uint64_t at, enum sim_event_kind kind, uint32_t who, uint64_t a, uint64_t b)
{
	if (w->n_events < SIM_EVENTS) {
		w->event[w->n_events] = (struct sim_event){ at, kind, w->n_events, who, a, b };
		w->n_events++;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct sim_event *x = a, *y = b;

	return x->at_ns != y->at_ns ? (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns)
				    : (x->order > y->order) - (x->order < y->order);
}

static void draw_life(struct sim_world *w, const struct plan *p, uint32_t i, uint64_t at, struct rng *r)
{
	uint64_t stay = p->gap_ns * 3 + w->cost.base_ns * 30;

	add(w, at, EV_SUBMIT, i, 0, 0);
	if (rng_chance(r, p->deadline))
		w->request[i].ask.deadline_ns = SIM_SEC + at + rng_wait(r, p->deadline_ns);
	if (rng_chance(r, p->cancel))
		add(w, at + rng_wait(r, stay), EV_CANCEL, i, 0, 0);
	if (rng_chance(r, p->pause)) {
		uint64_t from = at + rng_wait(r, stay), to = from + rng_wait(r, stay);

		add(w, from, EV_PAUSE, i, 0, 0);
		add(w, to, rng_chance(r, 800) ? EV_RESUME : EV_CANCEL, i, 0, 0);
	}
}

static void draw_rest(struct sim_world *w, const struct plan *p, uint64_t end, struct rng *r)
{
	for (uint32_t i = 0; i < p->n_purges; i++)
		add(w, rng_next(r) % (end + 1), EV_PURGE, rng_below(r, w->n_tenants + 1), 0, 0);
	for (uint32_t i = 0; i < p->n_limits; i++)
		add(w, rng_next(r) % (end + 1), EV_LIMITS, 0,
			rng_chance(r, 300) ? 0 : rng_next(r) % (2 * w->host_bytes + 1),
			rng_chance(r, 300) ? 0 : rng_next(r) % (2 * w->disk_bytes + 1));
	for (uint32_t i = 0; i < p->n_unpins; i++)
		add(w, rng_next(r) % (end + 1), EV_UNPIN, 0, 0, 0);
	for (uint32_t i = 0; i < p->n_tends; i++)
		add(w, rng_next(r) % (end + 1), EV_TEND, 0, rng_below(r, 20) * SIM_MS, 0);
	for (uint32_t i = 0; i < p->n_configures; i++)
		add(w, rng_next(r) % (end + 1), EV_CONFIGURE, 0, rng_next(r), 0);
	for (uint32_t i = 0; i < p->n_company; i++) {
		uint64_t at = rng_next(r) % (end + 1);

		add(w, at, EV_COMPANY, 1, 0, 0);
		add(w, at + rng_wait(r, 200 * SIM_MS), EV_COMPANY, 0, 0, 0);
	}
	qsort(w->event, w->n_events, sizeof *w->event, by_time);
}

static bool draw_requests(struct sim_world *w, struct plan *p, uint64_t seed, const struct tokenizer *t)
{
	struct rng r = rng_of(seed, STREAM_REQUESTS);
	uint64_t at = 0;

	for (uint32_t k = 0; k < N_TEMPLATES; k++) {
		p->template_n[k] = rng_range(&r, 1, w->info.n_ctx * 3 / 4);
		random_tokens(&r, p->template_tokens[k], p->template_n[k]);
		if (k && rng_chance(&r, 500))
			(void)copy_tokens(p->template_tokens[k], p->template_tokens[k - 1],
				p->template_n[k - 1], rng_range(&r, 1, p->template_n[k]));
	}
	p->n = MIN_OF(p->n, SIM_REQUESTS);
	for (uint32_t i = 0; i < p->n; i++) {
		w->n_requests = i + 1;
		if (draw_request(w, p, i, &r, t))
			return false;
		if (!rng_chance(&r, p->burst))
			at += rng_wait(&r, p->gap_ns);
		draw_life(w, p, i, at, &r);
	}
	draw_rest(w, p, at + p->gap_ns * 4, &r);
	return true;
}

/* ---- scenes ---------------------------------------------------------------------------------------------------------------------- */

static void plan_mixed(struct plan *p, const struct sim_world *w, struct rng *r)
{
	*p = (struct plan){ .n = rng_range(r, 4, 50),
		.online = rng_range(r, 0, 1000),
		.prefix = rng_chance(r, 500) ? rng_below(r, 1000) : 0,
		.twin = rng_chance(r, 500) ? rng_below(r, 300) : 0,
		.chat = rng_chance(r, 500) ? rng_below(r, 400) : 0,
		.cancel = rng_chance(r, 500) ? rng_below(r, 400) : 0,
		.pause = rng_chance(r, 400) ? rng_below(r, 400) : 0,
		.deadline = rng_chance(r, 300) ? rng_below(r, 500) : 0,
		.bad = rng_chance(r, 300) ? rng_below(r, 100) : 0,
		.target = rng_chance(r, 300) ? rng_below(r, 1000) : 0,
		.pin = rng_chance(r, 200) ? rng_below(r, 200) : 0,
		.no_reuse = rng_chance(r, 300) ? rng_below(r, 300) : 0,
		.sampled = rng_below(r, 1000),
		.stop = rng_chance(r, 300) ? rng_below(r, 300) : 0,
		.to_end = rng_chance(r, 200) ? rng_below(r, 200) : 0,
		.prompt_lo = 1,
		.prompt_hi = rng_range(r, 2, w->info.n_ctx / 2),
		.answer_lo = 1,
		.answer_hi = rng_range(r, 2, 60),
		.burst = rng_below(r, 900),
		.priority = rng_chance(r, 500) ? 0 : (int32_t)rng_range(r, 1, 100),
		.gap_ns = (1ull << rng_range(r, 0, 9)) * SIM_MS,
		.deadline_ns = rng_range(r, 10, 3000) * SIM_MS,
		.n_purges = rng_chance(r, 200) ? rng_below(r, 4) : 0,
		.n_unpins = rng_below(r, 3),
		.n_tends = rng_below(r, 10) };
}

static void set_tiers(struct sim_world *w, struct plan *p, struct rng *r)
{
	uint64_t pool = 0;

	for (uint32_t g = 0; g < w->info.n_groups; g++)
		pool += (w->info.page_bytes[g] + 300) * w->info.n_pages[g];
	w->host_tier = rng_chance(r, 600);
	w->disk_tier = !w->host_tier || rng_chance(r, 600);
	w->host_bytes = w->host_tier ? rng_next(r) % (2 * pool) : 0;
	w->disk_bytes = w->disk_tier ? rng_next(r) % (4 * pool) : 0;
	p->n_limits = rng_chance(r, 500) ? rng_below(r, 8) : 0;
	p->n_tends += rng_below(r, 20);
}

static void scene_mixed(struct sim_world *w, struct plan *p, struct rng *r)
{
	if (rng_chance(r, 200))
		p->n_configures = rng_below(r, 4);
	if (rng_chance(r, 200))
		w->config.offline_min_share = rng_range(r, 1, 9) / 10.0;
	if (rng_chance(r, 250))
		set_tiers(w, p, r);
	if (rng_chance(r, 250))
		w->faults.deaths = rng_range(r, 1, 3);
	if (rng_chance(r, 200))
		p->n_company = rng_below(r, 5);
	if (rng_chance(r, 200))
		w->faults = (struct sim_faults){ .seq = rng_below(r, 20),
			.copy = rng_below(r, 300),
			.read = rng_below(r, 200),
			.write = rng_below(r, 200),
			.deaths = w->faults.deaths };
}

/* Online requests now and then, offline ones without end. */
static void scene_strict(struct sim_world *w, struct plan *p, struct rng *r)
{
	w->steady_cost = true;
	w->cost.outlier_permille = 0;
	w->cost.noise_permille = rng_below(r, 10);
	p->online = rng_range(r, 50, 500);
	p->target = p->bad = 0;
	p->burst = rng_range(r, 100, 700);
	p->n = rng_range(r, 20, 70);
	p->n_configures = rng_chance(r, 200) ? rng_below(r, 4) : 0;
}

static void scene_targets(struct sim_world *w, struct plan *p, struct rng *r)
{
	scene_strict(w, p, r);
	p->target = 1000;
	w->config.class[WIRE_ONLINE].tpot_ns = rng_range(r, 10, 100) * SIM_MS;
	w->config.class[WIRE_ONLINE].ttft_ns = rng_range(r, 50, 500) * SIM_MS;
}

/* Online requests without end, and offline ones that must still get on. */
static void scene_share(struct sim_world *w, struct plan *p, struct rng *r)
{
	p->online = rng_range(r, 700, 950);
	p->n = rng_range(r, 30, 90);
	p->burst = rng_range(r, 400, 900);
	p->priority = 0;
	w->config.offline_min_share = rng_range(r, 1, 5) / 10.0;
	w->cost.outlier_permille = 0;
	if (rng_chance(r, 600)) {
		uint32_t whole = w->info.n_ctx / w->info.page_tokens + 2;

		for (uint32_t g = 0; g < w->info.n_groups; g++)
			w->info.n_pages[g] = whole * (w->info.step_seqs + 2);
	}
	p->n_configures = rng_chance(r, 200) ? rng_below(r, 4) : 0;
}

/* Every tenant has a queue from the start, or floods later; nothing else distinguishes the requests. */
static void scene_fair(struct sim_world *w, struct plan *p, struct rng *r)
{
	*p = (struct plan){ .n = rng_range(r, 60, SIM_REQUESTS),
		.online = rng_chance(r, 500) ? 1000 : 0,
		.prompt_lo = 1,
		.prompt_hi = rng_range(r, 2, w->info.n_ctx / 4),
		.answer_lo = 1,
		.answer_hi = rng_range(r, 1, 30),
		.burst = rng_range(r, 900, 1000),
		.gap_ns = SIM_MS,
		.deadline_ns = 1 };
	w->fair = true;
	w->cost.outlier_permille = 0;
	w->config.aging_ns = 1000 * SIM_SEC;
	w->n_tenants = rng_range(r, 2, 4);
	for (uint32_t k = 0; k < w->n_tenants; k++)
		w->weight[k] = rng_range(r, 1, 6) * 500;
	w->config.max_running = rng_range(r, 1, MIN_OF(4, w->info.step_seqs));
}

static void scene_memory(struct sim_world *w, struct plan *p, struct rng *r)
{
	uint32_t whole = (w->info.n_ctx + w->info.page_tokens - 1) / w->info.page_tokens;
	uint32_t n = rng_chance(r, 200) ? rng_range(r, 1, whole) : rng_range(r, whole, whole + whole / 2);

	for (uint32_t g = 0; g < w->info.n_groups; g++)
		w->info.n_pages[g] = n;
	p->answer_hi = rng_range(r, 20, w->info.n_ctx);
	p->burst = rng_range(r, 500, 950);
	p->pause = rng_below(r, 300);
}

static void scene_prefix(struct sim_world *w, struct plan *p, struct rng *r)
{
	w->config.no_prefix = false;
	p->prefix = rng_range(r, 300, 1000);
	p->twin = rng_below(r, 500);
	p->chat = rng_below(r, 500);
	p->pin = rng_chance(r, 500) ? rng_below(r, 300) : 0;
	p->n_purges = rng_below(r, 4);
	w->n_tenants = rng_range(r, 1, 3);
	if (rng_chance(r, 200))
		w->config.prefix.max_node_bytes = rng_range(r, 500, 20000);
	if (rng_chance(r, 300))
		w->config.prefix.max_pinned_pages = rng_range(r, 1, 40);
}

static void scene_tiers(struct sim_world *w, struct plan *p, struct rng *r)
{
	scene_memory(w, p, r);
	scene_prefix(w, p, r);
	set_tiers(w, p, r);
	p->n = rng_range(r, 20, 60);
	if (rng_chance(r, 300))
		w->faults = (struct sim_faults){
			.read = rng_below(r, 300), .write = rng_below(r, 300), .tier = rng_below(r, 100)
		};
	if (rng_chance(r, 200))
		w->faults.deaths = rng_range(r, 1, 2);
}

static void scene_deaths(struct sim_world *w, struct plan *p, struct rng *r)
{
	scene_mixed(w, p, r);
	p->n = rng_range(r, 10, 40);
	w->faults.deaths = rng_range(r, 1, 6);
}

static void scene_faults(struct sim_world *w, struct plan *p, struct rng *r)
{
	scene_prefix(w, p, r);
	w->faults = (struct sim_faults){
		.seq = rng_below(r, 60), .step = rng_below(r, 20), .copy = rng_below(r, 1000)
	};
}

static void scene_limits(struct sim_world *w, struct plan *p, struct rng *r)
{
	p->bad = rng_range(r, 50, 500);
	p->burst = rng_range(r, 500, 950);
	for (uint32_t k = 0; k < SCHED_CLASSES; k++) {
		w->config.class[k].max_waiting = rng_range(r, 1, 20);
		w->config.class[k].max_waiting_tenant = rng_chance(r, 500) ? rng_range(r, 1, 8) : 0;
		w->config.class[k].max_waiting_bytes = rng_chance(r, 300) ? rng_range(r, 200, 8000) : 0;
	}
}

/* No requests: tree.c makes its own sequences. */
static void scene_tree(struct sim_world *w, struct plan *p, struct rng *r)
{
	p->n = 0;
	if (rng_chance(r, 500))
		set_tiers(w, p, r);
	if (rng_chance(r, 200))
		w->faults = (struct sim_faults){
			.copy = rng_below(r, 500), .read = rng_below(r, 300), .write = rng_below(r, 300)
		};
	if (rng_chance(r, 100))
		w->config.prefix.max_node_bytes = rng_range(r, 500, 20000);
	if (rng_chance(r, 300))
		w->config.prefix.max_pinned_pages = rng_range(r, 1, 40);
	p->n_limits = p->n_tends = p->n_purges = p->n_unpins = 0;
}

static const char *const names[] = { "mixed", "strict", "targets", "share", "fair", "memory", "prefix",
	"tiers", "deaths", "faults", "limits", "tree" };
static void (*const scenes[])(struct sim_world *, struct plan *, struct rng *) = { scene_mixed, scene_strict,
	scene_targets, scene_share, scene_fair, scene_memory, scene_prefix, scene_tiers, scene_deaths,
	scene_faults, scene_limits, scene_tree };

size_t sim_world_names(const char *const **out)
{
	*out = names;
	return COUNT_OF(names);
}

static bool choose(uint64_t seed, const char *name, uint32_t *k)
{
	*k = (uint32_t)(seed % COUNT_OF(names));
	for (uint32_t i = 0; name && i < COUNT_OF(names); i++)
		if (!strcmp(name, names[i])) {
			*k = i;
			return true;
		}
	return !name;
}

bool sim_world_make(struct sim_world *w, uint64_t seed, const char *name, const struct tokenizer *t)
{
	struct rng r = rng_of(seed, STREAM_WORLD);
	struct plan *p = calloc(1, sizeof *p);
	uint32_t k;
	bool ok = p && choose(seed, name, &k);

	*w = (struct sim_world){ 0 };
	if (ok) {
		w->name = names[k];
		draw_model(&w->info, &r);
		draw_cost(&w->cost, &r);
		draw_config(&w->config, &w->info, &r);
		w->n_tenants = rng_range(&r, 1, SIM_TENANTS);
		for (uint32_t i = 0; i < w->n_tenants; i++)
			w->weight[i] = rng_chance(&r, 500) ? 0 : rng_range(&r, 1, 8) * 250;
		plan_mixed(p, w, &r);
		scenes[k](w, p, &r);
		memcpy(w->tenant_name, tenant_names, sizeof tenant_names);
		ok = draw_requests(w, p, seed, t);
	}
	free(p);
	return ok;
}

void sim_world_reconfigure(struct sim_world *w, uint64_t seed)
{
	struct rng r = rng_of(seed, STREAM_WORLD);
	struct sched_config c = w->config;

	draw_config(&c, &w->info, &r);
	w->config.max_step_ns = c.max_step_ns;
	w->config.max_prefill_ns = c.max_prefill_ns;
	w->config.slack = c.slack;
	w->config.long_prompt_factor = c.long_prompt_factor;
	if (rng_chance(&r, 300))
		w->config.offline_min_share = rng_range(&r, 0, 9) / 10.0;
	for (uint32_t k = 0; k < SCHED_CLASSES && rng_chance(&r, 300); k++) {
		w->config.class[k].ttft_ns = rng_below(&r, 2) * 100 * SIM_MS;
		w->config.class[k].tpot_ns = rng_below(&r, 2) * 50 * SIM_MS;
	}
}

void sim_world_free(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->n_requests; i++)
		sim_request_free(&w->request[i]);
}
