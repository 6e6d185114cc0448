/* SPDX-License-Identifier: Apache-2.0
 * A backend whose KV can be checked. A slot of a page holds the hash of all tokens up to its own, so a step can tell for
 * every position that it looks at whether exactly the right prefix lies there: a page shared wrongly, stale, not copied,
 * or written by two is found in the step that reads it. Time moves by a cost that the scheduler does not know. Errors are
 * drawn; what a failed call leaves behind is garbage, as it may be on a device.
 */
#include "tests/sim/sim.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_NOISE = 11, STREAM_FAULTS = 12, STREAM_DEATH = 13 };
#define GARBAGE 0xdeadull

static const struct model_info *info_of(const struct fake *f) { return &f->sim->w.info; }

/* ---- life ------------------------------------------------------------------------------------------------------------ */

int fake_create(struct fake *f, struct sim *s, uint64_t seed)
{
	const struct model_info *m = &s->w.info;

	*f = (struct fake){ .sim = s,
		.now_ns = SIM_SEC,
		.noise = rng_of(seed, STREAM_NOISE),
		.faults = rng_of(seed, STREAM_FAULTS) };
	for (uint32_t g = 0; g < m->n_groups; g++) {
		f->slot[g] = calloc((size_t)m->n_pages[g] * m->page_tokens, sizeof(uint64_t));
		f->writer[g] = calloc(m->n_pages[g], sizeof(uint64_t));
		if (!f->slot[g] || !f->writer[g])
			return TENON_E_NOMEM;
	}
	return TENON_OK;
}

void fake_destroy(struct fake *f)
{
	for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
		free(f->slot[g]);
		free(f->writer[g]);
	}
}

void fake_forget(struct fake *f)
{
	const struct model_info *m = info_of(f);

	for (uint32_t g = 0; g < m->n_groups; g++)
		for (size_t i = 0; i < (size_t)m->n_pages[g] * m->page_tokens; i++)
			f->slot[g][i] = GARBAGE;
	f->died = false;
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

static uint64_t rows_ns(const struct sim_cost *c, uint32_t rows)
{
	static const uint32_t knot[] = { 1, 4, 16, 64, UINT32_MAX };
	uint64_t ns = c->base_ns;

	for (uint32_t k = 0; k < 4 && rows > knot[k]; k++)
		ns += (MIN_OF(rows, knot[k + 1]) - knot[k]) * c->row_ns[k];
	return ns;
}

static void spend(struct fake *f, uint64_t ns)
{
	const struct sim_cost *c = &f->sim->w.cost;

	ns += ns * rng_below(&f->noise, c->noise_permille + 1) / 1000;
	if (rng_chance(&f->noise, c->outlier_permille))
		ns *= c->outlier_factor;
	f->last_ns = ns;
	f->now_ns += ns;
}

static uint64_t now(void *ctx) { return ((struct fake *)ctx)->now_ns; }

/* ---- pages --------------------------------------------------------------------------------------------------------------- */

/* The slot of a position; NULL with a failure told: a hole, or no such page. */
static uint64_t *slot_of(struct fake *f, const struct step_seq *q, uint32_t g, uint32_t position)
{
	const struct model_info *m = info_of(f);
	uint32_t i = position / m->page_tokens, page;

	if (i >= q->n_pages[g]) {
		sim_fail(f->sim, "pages", "group %u: no page for position %u of a span [%u, +%u)", g,
			position, q->past, q->n_tokens);
		return NULL;
	}
	page = q->pages[g][i];
	if (page >= m->n_pages[g]) {
		sim_fail(f->sim, "pages", "group %u: position %u, in reach of [%u, +%u), lies in %s", g,
			position, q->past, q->n_tokens,
			page == KV_NO_PAGE ? "a hole" : "a page that does not exist");
		return NULL;
	}
	return &f->slot[g][(size_t)page * m->page_tokens + position % m->page_tokens];
}

static void write_token(
	struct fake *f, const struct step_seq *q, uint32_t k, uint32_t position, uint64_t hash)
{
	const struct model_info *m = info_of(f);
	uint64_t me = f->n_steps * SIM_SEQS + k;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint64_t *slot = slot_of(f, q, g, position), *w;

		if (!slot)
			return;
		w = &f->writer[g][q->pages[g][position / m->page_tokens]];
		if (*w / SIM_SEQS == f->n_steps && *w != me)
			sim_fail(f->sim, "pages", "group %u: page %u is written by two sequences of one step",
				g, q->pages[g][position / m->page_tokens]);
		*w = me;
		*slot = hash;
	}
}

/* Hash of the tokens before the span, as the first group with the place in reach has it. */
static uint64_t hash_before(struct fake *f, const struct step_seq *q)
{
	const uint64_t *slot = q->past ? slot_of(f, q, 0, q->past - 1) : NULL;

	return !q->past ? SIM_HASH_NOTHING : slot ? *slot : GARBAGE;
}

static uint64_t write_span(struct fake *f, struct step_seq *q, uint32_t k)
{
	uint64_t h = hash_before(f, q);

	for (uint32_t i = 0; i < q->n_tokens && !f->sim->v.failed; i++) {
		if (q->tokens[i] < 0 || q->tokens[i] >= SIM_VOCAB)
			sim_fail(f->sim, "tokens", "token %d at %u", (int)q->tokens[i], q->past + i);
		h = sim_hash(h, q->tokens[i]);
		write_token(f, q, k, q->past + i, h);
		if (q->n_out && i + q->n_out >= q->n_tokens)
			sim_logits(h, q->out + (size_t)(i + q->n_out - q->n_tokens) * SIM_VOCAB);
	}
	return h;
}

/* Some open request that has this prefix: there is one unless pages were mixed up. */
static const struct sim_request *owner_of(const struct fake *f, uint64_t hash, uint32_t n)
{
	const struct sim_world *w = &f->sim->w;

	for (uint32_t i = 0; i < w->n_requests; i++) {
		const struct sim_request *r = &w->request[i];

		if (r->life == SIM_OPEN && n <= r->n_prompt + r->n_told && r->hash[n] == hash)
			return r;
	}
	return NULL;
}

/* Every position that a token of the span looks at holds what it should, after all have written. */
static void check_reach(struct fake *f, const struct step_seq *q, const struct fake_row *row)
{
	const struct model_info *m = info_of(f);
	uint32_t end = q->past + q->n_tokens;
	const struct sim_request *r = owner_of(f, row->end_hash, end);

	if (!r) {
		sim_fail(f->sim, "kv", "a step computes [%u, +%u) behind a prefix that no open request has",
			q->past, q->n_tokens);
		return;
	}
	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t from = m->window[g] && q->past + 1 > m->window[g] ? q->past + 1 - m->window[g] : 0;

		for (uint32_t p = from; p < end; p++) {
			const uint64_t *slot = slot_of(f, q, g, p);

			if (!slot)
				return;
			if (*slot == r->hash[p + 1])
				continue;
			sim_fail(f->sim, "kv",
				"request %llu, span [%u, +%u): group %u holds something else at position %u (page %u)",
				(unsigned long long)r->ask.id, q->past, q->n_tokens, g, p,
				q->pages[g][p / m->page_tokens]);
			return;
		}
	}
}

/* ---- a step ------------------------------------------------------------------------------------------------------------------ */

static void check_shape(struct fake *f, const struct step_seq *seqs, uint32_t n)
{
	const struct model_info *m = info_of(f);
	uint32_t tokens = 0, rows = 0;

	for (uint32_t i = 0; i < n; i++) {
		tokens += seqs[i].n_tokens;
		rows += seqs[i].n_out;
		if (!seqs[i].n_tokens || seqs[i].n_out > seqs[i].n_tokens ||
			seqs[i].past + seqs[i].n_tokens > m->n_ctx)
			sim_fail(f->sim, "shape", "a span of [%u, +%u) with %u rows; the context is %u",
				seqs[i].past, seqs[i].n_tokens, seqs[i].n_out, m->n_ctx);
	}
	if (!n || n > m->step_seqs || tokens > m->step_tokens || rows > m->step_out)
		sim_fail(f->sim, "shape", "a step of %u sequences, %u tokens, %u rows; limits %u, %u, %u", n,
			tokens, rows, m->step_seqs, m->step_tokens, m->step_out);
}

static void measure(struct fake *f, const struct step_seq *seqs, uint32_t n)
{
	const struct sim_cost *c = &f->sim->w.cost;
	uint64_t attended = 0;
	uint32_t tokens = 0, rows = 0;

	f->shape = (struct cost_shape){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		tokens += seqs[i].n_tokens;
		rows += seqs[i].n_out;
		attended += (uint64_t)seqs[i].n_tokens * seqs[i].past +
			(uint64_t)seqs[i].n_tokens * (seqs[i].n_tokens + 1) / 2;
	}
	spend(f, rows_ns(c, tokens) + n * c->seq_ns + rows * c->out_ns + attended * c->attended_ps / 1000);
}

/* The backend refuses one sequence: its part of the pages is garbage. */
static void fail_one(struct fake *f, struct step_seq *q, uint32_t k)
{
	q->rc = rng_chance(&f->faults, 500) ? TENON_E_NOMEM : TENON_E_INTERNAL;
	f->row[k].failed = true;
	for (uint32_t i = 0; i < q->n_tokens; i++)
		write_token(f, q, k, q->past + i, GARBAGE);
}

/* A fault of the fake itself, which some check has to notice. */
static void misbehave(struct fake *f, struct step_seq *seqs)
{
	if (sim_broken(f->sim, "token") && seqs[0].n_out)
		seqs[0].out[rng_below(&f->faults, SIM_VOCAB)] = 1e6f;
	if (sim_broken(f->sim, "slot") && f->n_steps % 16 == 7)
		*slot_of(f, &seqs[0], 0, seqs[0].past) ^= 2;
}

static int step(void *ctx, struct step_seq *seqs, uint32_t n, struct error *e)
{
	struct fake *f = ctx;

	f->n_steps++;
	f->ran = true;
	f->n_rows = 0;
	f->whole_failed = false;
	check_shape(f, seqs, n);
	if (f->sim->v.failed)
		return error_set(e, TENON_E_INVALID, "fake: a check failed");
	for (uint32_t i = 0; i < n; i++)
		f->row[i] = (struct fake_row){
			.past = seqs[i].past, .n = seqs[i].n_tokens, .n_out = seqs[i].n_out, .request = -1
		};
	f->n_rows = n;
	measure(f, seqs, n);
	if (f->died || (f->die_at && f->n_steps >= f->die_at)) {
		f->died = true;
		f->die_at = 0;
		return error_set(e, TENON_E_BACKEND, "fake: the device is lost");
	}
	for (uint32_t i = 0; i < n; i++)
		f->row[i].end_hash = write_span(f, &seqs[i], i);
	for (uint32_t i = 0; i < n && !f->sim->v.failed && !f->tending; i++)
		check_reach(f, &seqs[i], &f->row[i]);
	if (f->sim->v.failed)
		return error_set(e, TENON_E_INVALID, "fake: a check failed");
	f->whole_failed = rng_chance(&f->faults, f->sim->w.faults.step);
	for (uint32_t i = 0; i < n; i++) {
		seqs[i].rc = TENON_OK;
		if (f->whole_failed || rng_chance(&f->faults, f->sim->w.faults.seq))
			fail_one(f, &seqs[i], i);
	}
	misbehave(f, seqs);
	return f->whole_failed ? error_set(e, TENON_E_NOMEM, "fake: nothing of this step counts") : TENON_OK;
}

/* ---- copies, reads, writes ----------------------------------------------------------------------------------------------------- */

static uint64_t *page_of(struct fake *f, uint32_t group, uint32_t page)
{
	const struct model_info *m = info_of(f);

	if (group >= m->n_groups || page >= m->n_pages[group]) {
		sim_fail(f->sim, "store", "no page %u in group %u", page, group);
		return NULL;
	}
	return f->slot[group] + (size_t)page * m->page_tokens;
}

static int copy(void *ctx, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	struct fake *f = ctx;
	uint32_t page_tokens = info_of(f)->page_tokens;
	uint64_t *a = page_of(f, group, from), *b = page_of(f, group, to);
	bool fails = rng_chance(&f->faults, f->sim->w.faults.copy);

	if (a == b || !n_tokens || n_tokens > page_tokens)
		sim_fail(f->sim, "store", "copy of %u tokens from page %u to %u of group %u", n_tokens, from,
			to, group);
	if (f->sim->v.failed)
		return error_set(e, TENON_E_INVALID, "fake: a check failed");
	f->now_ns += 2000;
	for (uint32_t i = 0; i < page_tokens; i++)
		b[i] = fails || i >= n_tokens ? GARBAGE : a[i];
	if (sim_broken(f->sim, "copy"))
		b[n_tokens - 1] = GARBAGE;
	return fails ? error_set(e, TENON_E_NOMEM, "fake: copy failed") : TENON_OK;
}

static int read_page(void *ctx, uint32_t group, uint32_t page, void *out, struct error *e)
{
	struct fake *f = ctx;
	const uint64_t *a = page_of(f, group, page);
	uint64_t bytes = info_of(f)->page_bytes[group];

	if (!a)
		return error_set(e, TENON_E_INVALID, "fake: a check failed");
	f->now_ns += 1000 + bytes;
	memcpy(out, a, bytes);
	if (!rng_chance(&f->faults, f->sim->w.faults.read))
		return TENON_OK;
	memset(out, 0xdd, bytes / 2);
	return error_set(e, TENON_E_IO, "fake: read failed");
}

static int write_page(void *ctx, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	struct fake *f = ctx;
	uint64_t *a = page_of(f, group, page), bytes = info_of(f)->page_bytes[group];

	if (!a)
		return error_set(e, TENON_E_INVALID, "fake: a check failed");
	f->now_ns += 1000 + bytes;
	memcpy(a, in, bytes);
	if (!rng_chance(&f->faults, f->sim->w.faults.write))
		return TENON_OK;
	a[0] = GARBAGE;
	return error_set(e, TENON_E_IO, "fake: write failed");
}

struct sched_engine fake_engine(struct fake *f, const struct tokenizer *t)
{
	return (struct sched_engine){ .ctx = f,
		.info = info_of(f),
		.tokenizer = t,
		.step = step,
		.store = { .ctx = f, .copy = copy, .read = read_page, .write = write_page, .now_ns = now },
		.now_ns = now };
}
