/* SPDX-License-Identifier: Apache-2.0
 * bench_mixed.h: figures, and whether they keep the limits that the project sets itself.
 */
#include "tools/bench_mixed.h"
#include <math.h>
#include <string.h>

const char *const mixed_names[MIXED_WHATS] = { "online alone", "online + offline", "offline alone",
	"with target" };

static double *samples(struct buf *b, size_t *n)
{
	*n = b->len / sizeof(double);
	return (double *)(void *)b->data;
}

void mixed_choose_target(struct mixed *m, const struct mixed_side *s)
{
	struct buf copy = s->kind[MIXED_ALONE].tpot;
	struct bench_stat st;
	size_t n;
	double *v = samples(&copy, &n);

	bench_stat_of(v, n, &st);
	m->target_ms = MAX_OF(rint(2 * st.median), 1.0);
}

static json_t *add(struct mixed *m, json_t *report, const char *name, const char *unit, struct buf *ours,
	struct buf *theirs, bool is_rate)
{
	size_t n;
	double *v = samples(ours, &n);
	json_t *r = n ? bench_add(report, name, unit, v, n) : NULL;

	v = samples(theirs, &n);
	if (r && n && m->n_sides > 1)
		bench_add_peer(r, "url", v, n, is_rate);
	return r;
}

static void add_one(json_t *report, const char *name, const char *unit, double v)
{
	(void)bench_add(report, name, unit, &v, 1);
}

static void add_kind(
	struct mixed *m, json_t *report, enum mixed_what what, const char *ttft, const char *tpot)
{
	struct mixed_kind *k = &m->side[0].kind[what], *p = &m->side[1].kind[what];

	(void)add(m, report, ttft, "ms", &k->ttft, &p->ttft, false);
	(void)add(m, report, tpot, "ms", &k->tpot, &p->tpot, false);
}

static double share(uint64_t part, uint64_t of) { return of ? (double)part / (double)of : 0; }

/* Of gaps between online tokens alone: what no scheduler of offline work can do anything about. */
static double alone_within(struct mixed *m)
{
	size_t n, within = 0;
	double *v = samples(&m->side[0].kind[MIXED_ALONE].gap, &n);

	for (size_t i = 0; i < n; i++)
		within += v[i] <= m->target_ms;
	return share(within, n);
}

static void add_gaps(struct mixed *m, json_t *report)
{
	static const struct {
		enum mixed_what what;
		const char *name;
	} gaps[] = { { MIXED_ALONE, "alone.online.gap" }, { MIXED_LOADED, "strict.online.gap" },
		{ MIXED_TARGET, "target.online.gap" } };

	for (size_t i = 0; i < COUNT_OF(gaps); i++)
		(void)add(m, report, gaps[i].name, "ms", &m->side[0].kind[gaps[i].what].gap,
			&m->side[1].kind[gaps[i].what].gap, false);
}

static void add_targets(struct mixed *m, json_t *report)
{
	struct mixed_kind *strict = &m->side[0].kind[MIXED_LOADED], *target = &m->side[0].kind[MIXED_TARGET];

	add_kind(m, report, MIXED_TARGET, "target.online.ttft", "target.online.tpot");
	add_one(report, "target.tpot", "ms", m->target_ms);
	add_one(report, "target.within", "share", share(target->n_within, target->n_gaps));
	add_one(report, "target.on_time", "share", share(target->n_on_time, target->n_gaps));
	add_one(report, "strict.within", "share", share(strict->n_within, strict->n_gaps));
	add_one(report, "alone.within", "share", alone_within(m));
	add_gaps(m, report);
	(void)add(m, report, "target.offline.rate", "tok/s", &target->rate,
		&m->side[1].kind[MIXED_TARGET].rate, true);
	(void)add(m, report, "strict.offline.rate", "tok/s", &strict->rate,
		&m->side[1].kind[MIXED_LOADED].rate, true);
	(void)add(m, report, "target.gain", "ratio", &m->side[0].gain, &m->side[1].gain, true);
}

static void add_results(struct mixed *m, json_t *report)
{
	struct mixed_side *us = &m->side[0], *peer = &m->side[1];

	add_kind(m, report, MIXED_ALONE, "online.alone.ttft", "online.alone.tpot");
	add_kind(m, report, MIXED_LOADED, "online.loaded.ttft", "online.loaded.tpot");
	(void)add(m, report, "online.busy", "share", &us->busy, &peer->busy, false);
	(void)add(m, report, "offline.alone.rate", "tok/s", &us->kind[MIXED_OFFLINE].rate,
		&peer->kind[MIXED_OFFLINE].rate, true);
	(void)add(m, report, "offline.loaded.rate", "tok/s", &us->kind[MIXED_LOADED].rate,
		&peer->kind[MIXED_LOADED].rate, true);
	(void)add(m, report, "offline.efficiency", "share", &us->efficiency, &peer->efficiency, true);
	(void)add(m, report, "offline.step", "ms", &us->step, &peer->step, false);
	if (m->targets && us->kind[MIXED_TARGET].n_sent)
		add_targets(m, report);
}

/* ---- limits ------------------------------------------------------------------------------------------------------- */

static double value(const json_t *report, const char *name, const char *key)
{
	const json_t *all = json_object_get(report, "results"), *r;

	for (size_t i = 0; i < json_array_size(all); i++) {
		r = json_array_get(all, i);
		if (!strcmp(json_string_value(json_object_get(r, "name")), name))
			return json_number_value(json_object_get(r, key));
	}
	return 0;
}

/* at_most: measured must not be above the limit, else not below it. A figure that is not there says nothing. */
static void check(json_t *checks, const char *name, double measured, double limit, bool at_most)
{
	if (measured > 0 && limit > 0)
		bench_check_add(checks, name, measured, at_most ? "at most" : "at least", limit,
			at_most ? measured <= limit : measured >= limit);
}

static json_t *checks_of(const struct mixed *m, const json_t *report)
{
	double alone = value(report, "online.alone.ttft", "p99"),
	       step = value(report, "offline.step", "median");
	json_t *checks = json_array();

	if (!m->targets && m->tpot_ms)
		return checks;
	if (m->load == 1) {
		check(checks, "online.loaded.ttft p99 (1.1 x alone + one offline step)",
			value(report, "online.loaded.ttft", "p99"), 1.1 * alone + step, true);
		check(checks, "online.loaded.tpot p99 (1.1 x alone)",
			value(report, "online.loaded.tpot", "p99"),
			1.1 * value(report, "online.alone.tpot", "p99"), true);
		check(checks, "offline.efficiency", value(report, "offline.efficiency", "median"), 0.9,
			false);
	}
	if (m->load == 2) {
		check(checks, "online.busy, least of all rounds", value(report, "online.busy", "min"),
			MIXED_BUSY_LEAST, false);
		check(checks, "online.busy, most of all rounds", value(report, "online.busy", "max"),
			MIXED_BUSY_MOST, true);
	}
	check(checks, "target.within", value(report, "target.within", "median"), 0.99, false);
	check(checks, "target.gain", value(report, "target.gain", "median"), 1.3, false);
	return checks;
}

static json_t *counts_of(const struct mixed_side *s)
{
	static const char *const keys[MIXED_WHATS] = { "alone", "loaded", "offline", "target" };
	json_t *all = json_object();

	for (int i = 0; i < MIXED_WHATS; i++) {
		const struct mixed_kind *k = &s->kind[i];

		if (k->n_sent || k->rate.len)
			(void)json_object_set_new(all, keys[i],
				json_pack("{s:I, s:I, s:I, s:I, s:I}", "online_sent", (json_int_t)k->n_sent,
					"online_failed", (json_int_t)k->n_failed, "online_unfinished",
					(json_int_t)k->n_unfinished, "offline_finished",
					(json_int_t)k->n_offline, "preempted", (json_int_t)k->n_preempted));
	}
	return all;
}

/* In their order: how busy online alone kept the device, and at which rate. */
static json_t *rounds_of(const struct mixed_side *s)
{
	const struct mixed_round *r = (const void *)s->rounds.data;
	json_t *all = json_array();

	for (size_t i = 0; i < s->rounds.len / sizeof *r; i++)
		(void)json_array_append_new(all,
			json_pack("{s:f, s:f, s:i}", "rate", r[i].rate, "busy", r[i].busy, "alone_blocks",
				(int)r[i].n_alone));
	return all;
}

static json_t *load_of(const struct mixed *m)
{
	return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:s, s:s}", "load",
		(json_int_t)m->load, "rate", m->rate, "online_prompt", (json_int_t)m->online_prompt,
		"online_new", (json_int_t)m->online_new, "offline_clients", (json_int_t)m->clients,
		"offline_prompt", (json_int_t)m->offline_tokens, "offline_new", (json_int_t)m->offline_new,
		"blocks", (json_int_t)m->blocks, "block_s", m->block_s, "seed", (json_int_t)m->o.seed, "text",
		m->l.text.path, "prompts", "token ids: four random ones, then the text from a random place");
}

static void print_rounds(const struct mixed_side *s)
{
	const struct mixed_round *r = (const void *)s->rounds.data;

	for (size_t i = 0; i < s->rounds.len / sizeof *r; i++)
		(void)printf(
			"busy    round %zu: online alone %.1f %% of the time at %.3g requests a second%s\n",
			i + 1, 100 * r[i].busy, r[i].rate,
			r[i].n_alone > 1 ? " (the rate was found anew)" : "");
}

static void print_notes(const struct mixed *m)
{
	static const char *const who[] = { "tenond", "peer" };

	(void)printf(
		"load    %.3g online requests a second, %u + %u tokens; %u offline clients, %u + %u tokens; blocks of %.1f s\n",
		m->rate, (unsigned)m->online_prompt, (unsigned)m->online_new, (unsigned)m->clients,
		(unsigned)m->offline_tokens, (unsigned)m->offline_new, m->block_s);
	if (m->load == 2)
		print_rounds(&m->side[0]);
	for (int i = 0; i < m->n_sides; i++)
		for (int w = 0; w < MIXED_WHATS; w++) {
			const struct mixed_kind *k = &m->side[i].kind[w];

			if (k->n_unfinished)
				(void)printf(
					"note    %s, %s: %u of %u online requests had not ended after %.0f s; they count with what they waited\n",
					who[i], mixed_names[w], (unsigned)k->n_unfinished,
					(unsigned)k->n_sent, m->patience_s);
			if (k->n_failed)
				(void)printf("note    %s, %s: %u of %u online requests failed: %s\n", who[i],
					mixed_names[w], (unsigned)k->n_failed, (unsigned)k->n_sent, k->why);
		}
}

void mixed_report(struct mixed *m)
{
	json_t *report = bench_report("bench mixed", bench_load_model_json(&m->l));

	add_results(m, report);
	(void)json_object_set_new(report, "load", load_of(m));
	(void)json_object_set_new(report, "rounds", rounds_of(&m->side[0]));
	(void)json_object_set_new(report, "counts", counts_of(&m->side[0]));
	if (m->n_sides > 1)
		(void)json_object_set_new(report, "counts_peer", counts_of(&m->side[1]));
	if (m->l.ours.ctx && m->l.ours.about)
		(void)json_object_set_new(report, "daemon", m->l.ours.about(m->l.ours.ctx));
	bench_load_print(report, checks_of(m, report), m->o.json);
	if (!m->o.json)
		print_notes(m);
}
