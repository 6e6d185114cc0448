/* SPDX-License-Identifier: Apache-2.0
 * Plays a scene: events at their times, steps between them, the daemon's part when the device dies (a new scheduler, all
 * open requests submitted again with the tokens that were told). The sink holds every word against the right answer.
 */
#include "tests/sim/sim.h"
#include "sched/cost_priv.h"  /* to keep a copy */
#include "sched/sched_priv.h" /* to leak one of its pages on purpose */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_DEATHS = 21, MAX_STEPS = 60000, STUCK_POLLS = 4000 };
#define POLL_NS (5 * SIM_MS)

void sim_fail(struct sim *s, const char *what, const char *fmt, ...)
{
	int n;
	va_list ap;

	if (s->v.failed)
		return;
	s->v.failed = true;
	(void)snprintf(s->v.what, sizeof s->v.what, "%s", what);
	n = snprintf(s->v.text, sizeof s->v.text, "step %llu, %.3f ms: ", (unsigned long long)s->fake.n_steps,
		(double)s->fake.now_ns / 1e6);
	va_start(ap, fmt);
	(void)vsnprintf(s->v.text + n, sizeof s->v.text - (size_t)n, fmt, ap);
	va_end(ap);
	sim_log(s, "FAILED %s: %s", s->v.what, s->v.text);
}

void sim_log(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->o.verbose)
		return;
	(void)printf("%10.3f %5llu  ", (double)s->fake.now_ns / 1e6, (unsigned long long)s->fake.n_steps);
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)putchar('\n');
}

bool sim_broken(const struct sim *s, const char *how) { return s->o.fault && !strcmp(s->o.fault, how); }

struct sim_request *sim_find(struct sim *s, uint64_t id)
{
	return id >= 1000 && id < 1000 + s->w.n_requests ? &s->w.request[id - 1000] : NULL;
}

/* ---- sink ------------------------------------------------------------------------------------------------------------ */

/* The open request that a word is about. */
static struct sim_request *told(struct sim *s, uint64_t id, const char *word)
{
	struct sim_request *r = sim_find(s, id);

	if (!r || r->life != SIM_OPEN) {
		sim_fail(s, "once", "%s for request %llu, which is %s", word, (unsigned long long)id,
			!r				? "unknown"
				: r->life == SIM_FUTURE ? "not submitted"
							: "over");
		return NULL;
	}
	if (r->heard != s->fake.n_steps)
		r->told_now = 0;
	r->heard = s->fake.n_steps;
	if (r->paused && s->stepping && strcmp(word, "error"))
		sim_fail(s, "pause", "%s for request %llu, which is paused", word, (unsigned long long)id);
	return r;
}

static void on_state(void *ctx, uint64_t id, uint32_t phase, uint32_t permille)
{
	struct sim *s = ctx;

	sim_log(s, "  %llu state %u %u", (unsigned long long)id, phase, permille);
	(void)told(s, id, "state");
	if (permille > 1000 || phase < WIRE_QUEUED || phase > WIRE_RESUMED)
		sim_fail(s, "state", "request %llu: phase %u, %u of 1000", (unsigned long long)id, phase,
			permille);
}

static void on_tokens(void *ctx, uint64_t id, const int32_t *ids, uint32_t n_ids, const char *text,
	size_t len, const struct sampler_logprob *lp, uint32_t n_lp)
{
	struct sim *s = ctx;
	struct sim_request *r = told(s, id, "tokens");

	if (!r)
		return;
	for (uint32_t i = 0; i < n_ids; i++) {
		sim_log(s, "  %llu token %u = %d", (unsigned long long)id, r->n_told, (int)ids[i]);
		if (r->n_told >= r->n_answer || r->tokens[r->n_prompt + r->n_told] != ids[i])
			sim_fail(s, "answer", "request %llu: token %u of %u is %d, not %d",
				(unsigned long long)id, r->n_told, r->n_answer, (int)ids[i],
				r->n_told < r->n_answer ? (int)r->tokens[r->n_prompt + r->n_told] : -1);
		r->n_told++;
		r->told_now++;
	}
	if (r->told_bytes + len > r->text.len || (len && memcmp(r->text.data + r->told_bytes, text, len)))
		sim_fail(s, "answer", "request %llu: text behind byte %zu is '%.*s', not what the tokens say",
			(unsigned long long)id, r->told_bytes, (int)MIN_OF(len, 40), text);
	r->told_bytes += len;
	if (n_lp && (lp[0].token != ids[0] || n_lp != r->ask.sampling.n_logprobs + 1))
		sim_fail(s, "answer", "request %llu: log-probabilities of another token",
			(unsigned long long)id);
	if (!n_ids)
		return;
	r->first_ns = r->first_ns ? r->first_ns : s->fake.now_ns;
	r->answered_in = r->answered_in ? r->answered_in : s->fake.n_steps;
	r->before_last_ns = r->last_ns;
	r->last_ns = s->fake.now_ns;
}

static void over(struct sim *s, struct sim_request *r, enum sim_life life)
{
	r->life = life;
	r->ended_ns = s->fake.now_ns;
	s->n_open--;
}

static void on_done(void *ctx, uint64_t id, const struct wire_done *d)
{
	struct sim *s = ctx;
	struct sim_request *r = told(s, id, "done");

	sim_log(s, "  %llu done: finish %u, %u tokens, %u cached, %u preempted, %u replayed",
		(unsigned long long)id, d->finish, d->n_generated, d->n_cached, d->n_preempted,
		d->n_replayed);
	if (!r || sim_broken(s, "lost"))
		return;
	if (d->finish != r->finish || r->n_told != r->n_answer || r->told_bytes != r->text.len)
		sim_fail(s, "answer",
			"request %llu ends by %u with %u tokens and %zu bytes, not by %u with %u and %zu",
			(unsigned long long)id, d->finish, r->n_told, r->told_bytes, r->finish, r->n_answer,
			r->text.len);
	if (d->n_prompt != r->n_prompt || d->n_generated != r->n_told ||
		d->n_cached >= r->n_prompt + (r->n_replays > 0) * r->n_answer)
		sim_fail(s, "done",
			"request %llu: says %u prompt tokens, %u generated, %u cached; %u and %u were",
			(unsigned long long)id, d->n_prompt, d->n_generated, d->n_cached, r->n_prompt,
			r->n_told);
	over(s, r, SIM_DONE);
	r->n_done++;
	s->v.preempted += d->n_preempted;
	s->v.hit_tokens += d->n_cached;
	if (sim_broken(s, "twice"))
		on_done(ctx, id, d);
}

static void on_error(void *ctx, uint64_t id, int code, const char *text)
{
	struct sim *s = ctx;
	struct sim_request *r = told(s, id, "error");

	sim_log(s, "  %llu error %s: %s", (unsigned long long)id, error_name(code), text);
	if (!r)
		return;
	r->code = code;
	r->n_error++;
	over(s, r, SIM_ERROR);
	if (code == TENON_E_CANCELLED		  ? !r->cancel
			: code == TENON_E_TIMEOUT ? !r->ask.deadline_ns || s->fake.now_ns < r->ask.deadline_ns
						  : !s->stepping)
		sim_fail(s, "error", "request %llu: %s (%s) without a cause", (unsigned long long)id,
			error_name(code), text);
	if (!text || !*text)
		sim_fail(s, "error", "request %llu: %s without a sentence", (unsigned long long)id,
			error_name(code));
}

/* ---- the scheduler's life ---------------------------------------------------------------------------------------------- */

/* Settings that the checks know nothing of (--break). */
static void break_config(struct sim *s, struct sched_config *c)
{
	if (sim_broken(s, "hog"))
		c->offline_min_share = 0.5;
	if (sim_broken(s, "budget"))
		c->slack = 2;
	if (sim_broken(s, "order"))
		c->aging_ns = 1;
	if (sim_broken(s, "stingy"))
		c->offline_min_share = 0;
	if (sim_broken(s, "greedy"))
		c->offline_min_share = 0.9;
}

static void open_sched(struct sim *s)
{
	const struct sched_sink sink = {
		.ctx = s, .state = on_state, .tokens = on_tokens, .done = on_done, .error = on_error
	};
	struct sched_config c = s->w.config;
	struct error e = { 0 };

	if (!sim_open_tiers(s))
		return;
	c.prefix.host = s->host;
	c.prefix.disk = s->disk;
	c.cost = s->cost;

	c.engine = fake_engine(&s->fake, sim_vocab_tokenizer(s->o.vocab));
	break_config(s, &c);
	if (sched_create(&c, &sink, &s->sched, &e))
		sim_fail(s, "create", "scheduler: %s", e.text);
}

/* Adds what only this scheduler's cache counted. */
static void close_sched(struct sim *s)
{
	struct sched_status st;

	if (s->sched) {
		sched_get_status(s->sched, &st);
		s->v.evicted += st.prefix.evicted_pages;
		s->v.restored += st.prefix.restored_pages;
		s->v.saved += st.prefix.saved_pages;
	}
	sched_destroy(s->sched);
	sim_close_tiers(s);
	s->sched = NULL;
}

static void submit(struct sim *s, struct sim_request *r)
{
	struct error e = { 0 };
	int rc;

	r->ask.history = r->n_told ? r->tokens + r->n_prompt : NULL;
	r->ask.n_history = r->n_told;
	r->ask.history_text_bytes = r->told_bytes;
	r->ask.time.arrived_ns = r->submitted_ns;
	r->open_ns = s->fake.now_ns;
	r->life = SIM_OPEN;
	r->started = false;
	r->answered_in = 0;
	s->n_open++;
	if (sim_broken(s, "weights"))
		r->ask.tenant_weight = 1000;
	rc = sched_submit(s->sched, &r->ask, &e);
	sim_log(s, "submit %llu: class %u, priority %d, tenant %u, prompt %u, answer %u/%u, told %u: %s",
		(unsigned long long)r->ask.id, r->ask.traffic_class, (int)r->ask.priority, r->tenant,
		r->n_prompt, r->n_answer, r->ask.max_tokens, r->n_told, rc ? e.text : "ok");
	if (rc && r->life != SIM_OPEN)
		sim_fail(s, "submit", "request %llu: refused, and the sink heard of it",
			(unsigned long long)r->ask.id);
	if (rc) {
		r->code = rc;
		over(s, r, SIM_REFUSED);
	}
	check_submit(s, r, rc, &e);
}

/* What the daemon does when the worker's device is lost. A new scheduler knows of no debts. */
static void replay_all(struct sim *s)
{
	sim_log(s, "device lost; everything open again");
	close_sched(s);
	fake_forget(&s->fake);
	s->last_victim = 0;
	s->owed_ns = s->may_owe_ns = 0;
	s->owes = false;
	open_sched(s);
	if (!s->v.failed)
		sched_set_company(s->sched, s->company);
	for (uint32_t i = 0; i < s->w.n_requests && !s->v.failed; i++) {
		struct sim_request *r = &s->w.request[i];

		if (r->life != SIM_OPEN)
			continue;
		s->n_open--;
		r->n_replays++;
		s->v.replays++;
		submit(s, r);
		if (r->life == SIM_OPEN && r->paused && sched_pause(s->sched, r->ask.id))
			sim_fail(s, "pause", "request %llu: cannot be paused after its replay",
				(unsigned long long)r->ask.id);
	}
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */

static void cancel(struct sim *s, struct sim_request *r)
{
	bool open = r->life == SIM_OPEN;
	int rc;

	r->cancel = true;
	rc = sched_cancel(s->sched, r->ask.id, TENON_E_CANCELLED, "request: cancelled by the simulation");
	if (rc != (open ? TENON_OK : TENON_E_NOT_FOUND) || r->life == SIM_OPEN)
		sim_fail(s, "cancel", "request %llu, which was %s: %s, %s", (unsigned long long)r->ask.id,
			open ? "open" : "not there", error_name(rc),
			r->life == SIM_OPEN ? "and it lives on" : "and it is over");
}

static void set_paused(struct sim *s, struct sim_request *r, bool paused)
{
	bool open = r->life == SIM_OPEN;
	int rc = paused ? sched_pause(s->sched, r->ask.id) : sched_resume(s->sched, r->ask.id);

	r->paused = paused;
	if (rc != (open ? TENON_OK : TENON_E_NOT_FOUND))
		sim_fail(s, "pause", "request %llu, which is %s: %s", (unsigned long long)r->ask.id,
			open ? "open" : "not there", error_name(rc));
}

static void unpin_all(struct sim *s)
{
	struct prefix *p = sched_prefix(s->sched);
	struct prefix_pin pin;
	struct error e = { 0 };

	while (p && !s->v.failed && prefix_pins(p, &pin, 1))
		if (prefix_unpin(p, pin.id, &e))
			sim_fail(s, "pin", "pin %llu is listed and cannot be taken away: %s",
				(unsigned long long)pin.id, e.text);
}

static void purge(struct sim *s, uint32_t tenant)
{
	if (sched_prefix(s->sched))
		(void)prefix_purge(
			sched_prefix(s->sched), tenant < s->w.n_tenants ? s->w.tenant_name[tenant] : NULL);
}

static bool tend(struct sim *s, uint64_t budget_ns)
{
	bool more;

	s->fake.tending = true;
	more = sched_tend(s->sched, budget_ns);
	s->fake.tending = false;
	check_limits(s, sched_prefix(s->sched));
	return more;
}

static void play(struct sim *s, const struct sim_event *ev)
{
	struct sim_request *r = &s->w.request[ev->who];

	if (ev->kind != EV_SUBMIT)
		sim_log(s, "event %d about %u", (int)ev->kind, ev->who);
	switch (ev->kind) {
	case EV_SUBMIT:
		r->submitted_ns = s->fake.now_ns;
		submit(s, r);
		break;
	case EV_CANCEL:
		cancel(s, r);
		break;
	case EV_PAUSE:
	case EV_RESUME:
		set_paused(s, r, ev->kind == EV_PAUSE);
		break;
	case EV_PURGE:
		purge(s, ev->who);
		break;
	case EV_LIMITS:
		if (sched_prefix(s->sched))
			sim_set_limits(s, sched_prefix(s->sched), ev->a, ev->b);
		break;
	case EV_COMPANY:
		s->company = ev->who;
		sched_set_company(s->sched, s->company);
		break;
	case EV_UNPIN:
		unpin_all(s);
		break;
	case EV_TEND:
		(void)tend(s, ev->a);
		break;
	case EV_CONFIGURE:
		sim_world_reconfigure(&s->w, ev->a);
		sched_configure(s->sched, &s->w.config);
		s->owed_ns = 0;
		break;
	}
}

static void play_due(struct sim *s)
{
	while (s->next_event < s->w.n_events && s->w.event[s->next_event].at_ns + SIM_SEC <= s->fake.now_ns &&
		!s->v.failed)
		play(s, &s->w.event[s->next_event++]);
}

/* ---- the loop ----------------------------------------------------------------------------------------------------------------- */

/* Nothing runs: time goes on to the next event, at most to the worker's next look. False: nothing is left to wait for. */
static bool wait_for_more(struct sim *s, uint32_t *polls)
{
	uint64_t next =
		s->next_event < s->w.n_events ? s->w.event[s->next_event].at_ns + SIM_SEC : UINT64_MAX;

	if (!s->n_open && next == UINT64_MAX)
		return false;
	if (s->n_open)
		next = MIN_OF(next, s->fake.now_ns + POLL_NS);
	for (uint32_t i = 0; i < 4 && s->fake.now_ns < next && !s->v.failed && tend(s, 10 * SIM_MS); i++)
		;
	s->fake.now_ns = MAX_OF(s->fake.now_ns, next);
	if (!s->n_open || s->next_event < s->w.n_events)
		*polls = 0;
	else if (++*polls > STUCK_POLLS)
		sim_fail(s, "stuck", "%u requests are open, nothing runs and nothing comes", s->n_open);
	return !s->v.failed;
}

/* The list in one line: request, class, why it waits, tokens with KV of tokens. */
static void log_view(struct sim *s, const struct sim_view *v)
{
	char line[4096];
	size_t n = 0;

	if (!s->o.verbose)
		return;
	for (size_t i = 0; i < v->n && n < sizeof line - 80; i++) {
		const struct sched_entry *e = &v->seen[i].e;

		n += (size_t)snprintf(line + n, sizeof line - n, " %llu%s%s:%s:%u/%u",
			(unsigned long long)e->id, e->traffic_class == WIRE_ONLINE ? "on" : "off",
			v->seen[i].placed ? "*" : "", sched_wait_name(e->wait), e->past, e->n_tokens);
	}
	line[n] = 0;
	sim_log(s, "  free %u,%u of %u:%s", v->status.pages_free[0], v->status.pages_free[1],
		v->status.pages_total[0], line);
}

/* What sched_step may say: a step ran; instead of one pages came back from a tier, a request failed or began anew; nothing to do; the device is lost. */
static void check_word(struct sim *s, int rc, const struct error *e)
{
	const struct sched_status *a = &s->before->status, *b = &s->after->status;
	bool moved = b->prefix.restored_pages != a->prefix.restored_pages || b->failed != a->failed;

	for (uint32_t k = 0; k < SCHED_CLASSES; k++)
		moved |= b->class[k].preempted != a->class[k].preempted;
	if (s->fake.ran ? rc != (s->fake.died ? TENON_E_BACKEND : TENON_OK)
			: rc != TENON_E_AGAIN && (rc != TENON_OK || !moved))
		sim_fail(s, "step", "sched_step says %s (%s) after %s", error_name(rc), e->text,
			!s->fake.ran	       ? "none"
				: s->fake.died ? "a step that lost the device"
					       : "a step");
}

static int one_step(struct sim *s)
{
	struct error e = { 0 };
	int rc;

	check_view(s, s->before);
	if (sim_broken(s, "leak") && s->fake.n_steps == 3)
		(void)kv_page_take(s->sched->pages, 0);
	s->fake.ran = false;
	s->fake.n_rows = 0;
	*s->cost_then = *s->cost;
	s->step_began_ns = s->fake.now_ns;
	s->wants = sched_wants(s->sched);
	s->stepping = true;
	rc = sched_step(s->sched, &e);
	s->stepping = false;
	if (!s->v.failed)
		check_view(s, s->after);
	log_view(s, s->after);
	if (!s->v.failed)
		check_word(s, rc, &e);
	if (s->v.failed)
		return rc;
	if (s->fake.ran && s->fake.died)
		replay_all(s);
	else
		check_step(s, rc);
	return rc;
}

static void plan_death(struct sim *s, struct rng *r, uint32_t *left)
{
	if (*left && !s->fake.die_at) {
		s->fake.die_at = s->fake.n_steps + 1 + rng_wait(r, 40);
		(*left)--;
	}
}

static void loop(struct sim *s, uint64_t seed)
{
	struct rng r = rng_of(seed, STREAM_DEATHS);
	uint32_t deaths = s->w.faults.deaths, polls = 0;

	while (!s->v.failed) {
		plan_death(s, &r, &deaths);
		play_due(s);
		if (s->v.failed)
			break;
		if (one_step(s) != TENON_E_AGAIN)
			polls = 0;
		else if (!s->v.failed && !wait_for_more(s, &polls))
			break;
		if (s->fake.n_steps > MAX_STEPS)
			sim_fail(s, "stuck", "%u requests are still open after %d steps", s->n_open,
				MAX_STEPS);
	}
}

/* All is over: what the cache holds is let go, too. */
static void wind_up(struct sim *s)
{
	check_idle(s);
	unpin_all(s);
	check_idle(s);
	purge(s, UINT32_MAX);
	if (!s->v.failed)
		check_end(s);
}

static void open_all(struct sim *s, uint64_t seed, const struct sim_options *o)
{
	struct error e = { 0 };

	if (!sim_world_make(&s->w, seed, o->what, sim_vocab_tokenizer(o->vocab)) ||
		fake_create(&s->fake, s, seed) || cost_create(&s->cost, &e) || cost_create(&s->cost_then, &e))
		sim_fail(s, "world", "no scene '%s', or out of memory", o->what ? o->what : "");
	s->host_limit = s->w.host_bytes;
	s->disk_limit = s->w.disk_bytes;
	for (uint32_t i = 0; i < s->w.n_requests; i++)
		s->largest = MAX_OF(s->largest, s->w.request[i].n_prompt + 2.0 * s->w.request[i].n_answer);
}

static void close_all(struct sim *s)
{
	close_sched(s);
	cost_destroy(s->cost);
	cost_destroy(s->cost_then);
	sim_remove_tiers(s);
	fake_destroy(&s->fake);
	sim_world_free(&s->w);
}

static void log_world(struct sim *s)
{
	const struct sched_config *c = &s->w.config;
	const struct model_info *m = &s->w.info;

	sim_log(s,
		"%s: pages of %u: %u, windows %u %u, context %u, invariant %d; a step: %u tokens, %u sequences, %u rows; places %u",
		s->w.name, m->page_tokens, m->n_pages[0], m->window[0], m->window[1], m->n_ctx, m->invariant,
		m->step_tokens, m->step_seqs, m->step_out, c->max_running);
	sim_log(s,
		"  no_prefix %d, share_tenants %d, min_share %.2f, slack %.3f, factor %.1f, aging %llu ms, step %llu ms, prefill %llu ms",
		c->no_prefix, c->prefix.share_tenants, c->offline_min_share, c->slack, c->long_prompt_factor,
		(unsigned long long)(c->aging_ns / SIM_MS), (unsigned long long)(c->max_step_ns / SIM_MS),
		(unsigned long long)(c->max_prefill_ns / SIM_MS));
	sim_log(s,
		"  host tier %d, disk tier %d; faults: %u seq, %u step, %u copy, %u read, %u write, %u deaths",
		s->w.host_tier, s->w.disk_tier, s->w.faults.seq, s->w.faults.step, s->w.faults.copy,
		s->w.faults.read, s->w.faults.write, s->w.faults.deaths);
}

/* Everything of the scheduler's and the cache's is given back. */
static void check_memory(struct sim *s, uint64_t sched_bytes, uint64_t kv_bytes)
{
	uint64_t a = mem_area_bytes(MEM_SCHED), b = mem_area_bytes(MEM_KV);

	if (!s->v.failed && (a != sched_bytes || b != kv_bytes))
		sim_fail(s, "memory",
			"%lld bytes of the scheduler's and %lld of the cache's memory are not given back",
			(long long)(a - sched_bytes), (long long)(b - kv_bytes));
}

void sim_run(uint64_t seed, const struct sim_options *o, struct sim_verdict *out)
{
	uint64_t sched_bytes = mem_area_bytes(MEM_SCHED), kv_bytes = mem_area_bytes(MEM_KV);
	struct sim *s = calloc(1, sizeof *s);
	struct sim_view *views = calloc(2, sizeof *views);

	if (!s || !views) {
		(void)fprintf(stderr, "sim: out of memory\n");
		exit(2);
	}
	s->o = *o;
	s->before = views;
	s->after = views + 1;
	open_all(s, seed, o);
	log_world(s);
	if (!s->v.failed && !strcmp(s->w.name, "tree")) {
		sim_tree_play(s, seed);
	} else if (!s->v.failed) {
		open_sched(s);
		loop(s, seed);
		if (!s->v.failed)
			wind_up(s);
	}
	s->v.steps = s->fake.n_steps;
	s->v.requests = s->w.n_requests;
	close_all(s);
	check_memory(s, sched_bytes, kv_bytes);
	*out = s->v;
	free(views);
	free(s);
}
