/* SPDX-License-Identifier: Apache-2.0
 * tenon bench mixed: online requests beside offline work. Alone, loaded and offline-only run in turn in short blocks,
 * because machines drift, and both servers, if there are two, run each round. What blocks cut off counts by its
 * progress: prompt tokens computed and tokens generated. mixed_report.c makes the figures.
 */
#include "tools/bench_mixed.h"
#include "tools/plot.h"
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench mixed [-m MODEL] [OPTION]...\n\n"
	"Online requests arrive as a Poisson process; offline clients always have a request in flight. Prints times to first\n"
	"token (ttft) and per token (tpot) alone and loaded, offline rates alone and loaded, and offline.efficiency: the\n"
	"loaded rate over what the idle time of the online-only blocks allows. Prompts are token ids cut from a text behind\n"
	"four random ids, so that no two share a prefix.\n\n"
	"options:\n"
	"      --load 1|2        1: --rate arrivals a second; 2: so many that online alone keeps the device 60 % busy\n"
	"      --targets         also blocks with a target for the time per token, against strict ones\n"
	"      --tpot-ms N       that target (default: twice the median alone); without --targets: on all online requests\n"
	"      --ttft-ms N       wanted time to first token of online requests\n"
	"      --rate R          online arrivals a second (default 1)\n"
	"      --online-prompt N, --online-new N      tokens (default 67, 16)\n"
	"      --offline-clients N                    (default 4)\n"
	"      --offline-prompt WORDS, --offline-new N   words, tokens (default 1500, 64)\n"
	"      --seconds S       in all, for one server (default 90)\n"
	"      --blocks N        rounds (default 3)\n"
	"      --patience S      longest wait for online requests at a block's end (default 60)\n"
	"      --warmup S        load before the first block, and silence after it (default 3)\n"
	"      --plot FILE       times to first token over time, as SVG\n" BENCH_LOAD_HELP "\nexamples:\n"
	"  tenon bench mixed --plot ttft.svg\n"
	"  tenon bench mixed --load 2 --targets --json\n"
	"  bench/serve-llama -m smollm2-135m &  tenon bench mixed --vs-url http://127.0.0.1:8080\n";

enum { CALIBRATE_MOST = 6, ALONE_MOST = 4 };
enum {
	OPT_LOAD = 2000,
	OPT_TARGETS,
	OPT_TPOT,
	OPT_TTFT,
	OPT_RATE,
	OPT_ON_PROMPT,
	OPT_ON_NEW,
	OPT_CLIENTS,
	OPT_OFF_PROMPT,
	OPT_OFF_NEW,
	OPT_SECONDS,
	OPT_BLOCKS,
	OPT_PATIENCE,
	OPT_WARMUP,
	OPT_PLOT
};

static const char *const kind_colors[] = { "#e8f1fb", "#fdeedd", "#e7f5e4", "#eeeeee" };
static const struct plot_series series[] = { { "online", "#1f5fa8", PLOT_DOT },
	{ "offline", "#b5651d", PLOT_RING }, { "online, gave up", "#c02020", PLOT_CROSS } };

/* ---- a block and what is kept of it -------------------------------------------------------------------------------- */

static void keep(struct buf *b, double v) { (void)buf_append(b, &v, sizeof v); }

/* Gaps between tokens against the target: each gap, and each token against the line that the target draws from the
 * first one on. */
static void keep_gaps(struct mixed_kind *k, const struct load_item *it, double target_ms)
{
	for (uint32_t i = 1; i < it->n_tokens; i++) {
		double gap_ms = (double)(it->token_ns[i] - it->token_ns[i - 1]) / 1e6;

		keep(&k->gap, gap_ms);
		k->n_gaps++;
		k->n_within += gap_ms <= target_ms;
		k->n_on_time += (double)(it->token_ns[i] - it->first_ns) / 1e6 <= target_ms * i;
	}
}

static void keep_online(struct mixed_kind *k, const struct load_item *it, double target_ms)
{
	k->n_sent++;
	if (it->code && !it->cancelled) {
		k->n_failed++;
		(void)snprintf(k->why, sizeof k->why, "%s", it->why);
		return;
	}
	k->n_unfinished += it->cancelled;
	if (!it->first_ns || !it->cancelled)
		keep(&k->ttft, load_item_ttft_ms(it, it->end_ns));
	if (it->n_tokens > 1)
		keep(&k->tpot, load_item_tpot_ms(it));
	keep_gaps(k, it, target_ms);
}

static void keep_items(
	struct mixed_side *s, enum mixed_what what, const struct load_block *b, double target_ms)
{
	struct mixed_kind *k = &s->kind[what];

	for (const struct load_item *it = b->items; it; it = it->next) {
		bool online = it->traffic_class == TENON_ONLINE;

		if (online)
			keep_online(k, it, target_ms);
		else
			k->n_offline += it->ended && !it->code;
		k->n_preempted += it->n_preempted;
		if (it->first_ns || online)
			plot_add(&s->panel, (double)(it->due_ns - s->t0_ns) / 1e9,
				load_item_ttft_ms(it, it->end_ns),
				!online		       ? 1
					: it->first_ns ? 0
						       : 2);
	}
	plot_shade(&s->panel, (double)(b->start_ns - s->t0_ns) / 1e9, (double)(b->stop_ns - s->t0_ns) / 1e9,
		what);
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------- */

static struct load_plan plan_of(const struct mixed *m, enum mixed_what what, uint64_t round, double seconds)
{
	struct load_plan p = { .seconds = seconds,
		.patience_s = m->patience_s,
		.arrivals = m->o.seed * 1000003 + round,
		.prompts = (m->o.seed * 1000 + round * 8 + what + 1) * UINT64_C(0x5851f42d4c957f2d) };

	if (what != MIXED_OFFLINE) {
		p.rate = m->rate;
		p.n_online_prompt = (uint32_t)m->online_prompt;
		p.n_online_new = (uint32_t)m->online_new;
		p.online_ttft_ms = (uint32_t)m->ttft_ms;
		p.online_tpot_ms = (uint32_t)(what == MIXED_TARGET ? m->target_ms
				: m->targets			   ? 0
								   : m->tpot_ms);
	}
	if (what != MIXED_ALONE) {
		p.n_offline_clients = (uint32_t)m->clients;
		p.n_offline_prompt = m->offline_tokens;
		p.n_offline_new = (uint32_t)m->offline_new;
	}
	return p;
}

/* Only runs; what was measured is not kept yet. `again`: the same arrivals with other prompts, which no cache has seen. */
static int try_block(struct mixed *m, struct mixed_side *s, enum mixed_what what, uint64_t round,
	uint32_t again, double seconds, struct load_block *b, struct error *e)
{
	struct load_plan p = plan_of(m, what, round, seconds);
	int rc;

	p.prompts ^= again * UINT64_C(0x9e3779b97f4a7c15);
	p.progress = mixed_names[what];
	p.progress_from = m->n_done++ / m->n_total;
	p.progress_to = m->n_done / m->n_total;
	rc = load_run(s->server, &m->l.text, &p, b, e);
	cli_progress_end();
	return rc;
}

static int run_block(struct mixed *m, struct mixed_side *s, enum mixed_what what, uint64_t round,
	double seconds, struct load_block *b, struct error *e)
{
	int rc = try_block(m, s, what, round, 0, seconds, b, e);

	if (rc)
		return rc;
	keep_items(s, what, b, m->target_ms);
	if (load_block_seconds(b) > 0.5 * seconds)
		keep(&s->kind[what].rate, b->offline_tokens / load_block_seconds(b));
	return rc;
}

/* False: the rate may stay. */
static bool adjust_rate(struct mixed *m, double busy)
{
	if (busy >= MIXED_BUSY_LEAST && busy <= MIXED_BUSY_MOST)
		return false;
	m->rate *= busy > 0 ? MIN_OF(MAX_OF(MIXED_BUSY / busy, 0.25), 4.0) : 4.0;
	return true;
}

/* The round's arrivals alone. Load 2: machines drift and arrivals come in clumps, so each round finds its own rate: the same
 * pattern, drawn out or together, until it keeps the device as busy as wanted. Only the last block counts, and the pair
 * after it has the same arrivals. */
static int run_alone(
	struct mixed *m, struct mixed_side *s, uint64_t round, struct load_block *b, struct error *e)
{
	bool steer = m->load == 2 && s == &m->side[0];
	struct mixed_round r = { 0 };
	int rc;

	for (;;) {
		rc = try_block(m, s, MIXED_ALONE, round, r.n_alone, m->block_s, b, e);
		if (rc)
			return rc;
		r = (struct mixed_round){ m->rate, load_block_busy(b), r.n_alone + 1 };
		if (!steer || session_interrupted() || r.n_alone == ALONE_MOST || !adjust_rate(m, r.busy))
			break;
		load_block_free(b);
		m->n_total++;
	}
	keep_items(s, MIXED_ALONE, b, m->target_ms);
	keep(&s->busy, r.busy);
	(void)buf_append(&s->rounds, &r, sizeof r);
	return rc;
}

static double offline_rate(const struct load_block *b) { return b->offline_tokens / load_block_seconds(b); }

/* What compares the blocks of one round. */
static void keep_round(struct mixed_side *s, const struct load_block *b, double busy)
{
	const struct load_block *alone = &b[MIXED_OFFLINE], *loaded = &b[MIXED_LOADED],
				*target = &b[MIXED_TARGET];

	if (busy < 1 && alone->offline_tokens > 0)
		keep(&s->efficiency, offline_rate(loaded) / (offline_rate(alone) * (1 - busy)));
	if (alone->has_used && alone->used.steps)
		keep(&s->step, (double)alone->used.step_ns / 1e6 / (double)alone->used.steps);
	if (target->items && loaded->offline_tokens > 0)
		keep(&s->gain, offline_rate(target) / offline_rate(loaded));
}

/* Blocks in which online and offline requests meet; with targets, both kinds take turns at being first. */
static int run_mixed(
	struct mixed *m, struct mixed_side *s, uint64_t round, struct load_block *b, struct error *e)
{
	const enum mixed_what order[2] = { round & 1 ? MIXED_TARGET : MIXED_LOADED,
		round & 1 ? MIXED_LOADED : MIXED_TARGET };
	int rc = TENON_OK;

	for (int i = 0; i < 2 && !rc && !session_interrupted(); i++)
		if (m->targets || order[i] == MIXED_LOADED)
			rc = run_block(m, s, order[i], round, m->block_s, &b[order[i]], e);
	return rc;
}

/* Offline-only blocks are shorter by the busy share, so that both kinds do the same mix of prompts and answers. */
static int run_round(struct mixed *m, struct mixed_side *s, uint64_t round, struct error *e)
{
	struct load_block b[MIXED_WHATS] = { { 0 } };
	int rc = run_alone(m, s, round, &b[MIXED_ALONE], e);
	double busy = load_block_busy(&b[MIXED_ALONE]);

	if (!rc && m->targets && !m->tpot_ms)
		mixed_choose_target(m, s);
	rc = rc ? rc : run_mixed(m, s, round, b, e);
	if (!rc && !session_interrupted())
		rc = run_block(
			m, s, MIXED_OFFLINE, round, m->block_s * MAX_OF(1 - busy, 0.2), &b[MIXED_OFFLINE], e);
	if (!rc && !session_interrupted())
		keep_round(s, b, busy);
	for (int i = 0; i < MIXED_WHATS; i++)
		load_block_free(&b[i]);
	return rc;
}

/* Load 2: about the rate at which online alone keeps the device as busy as wanted, from short blocks. */
static int calibrate(struct mixed *m, struct error *e)
{
	double seconds = MIN_OF(m->block_s, 8.0);
	bool again = true;
	int rc = TENON_OK;

	for (uint64_t i = 0; i < CALIBRATE_MOST && again && !rc && !session_interrupted(); i++) {
		struct load_plan p = plan_of(m, MIXED_ALONE, 1000 + i, seconds);
		struct load_block b = { 0 };

		rc = load_run(&m->l.ours, &m->l.text, &p, &b, e);
		again = adjust_rate(m, load_block_busy(&b));
		load_block_free(&b);
	}
	return rc;
}

/* Silence in which the daemon measures steps for its cost model, if it can say when it has. */
static void settle(const struct mixed *m, struct load_server *s)
{
	uint64_t t0 = clock_now_ns(), least_ns = (uint64_t)(m->warmup_s * 1e9);
	struct load_counters c;

	do
		(void)usleep(200000);
	while (!session_interrupted() &&
		(clock_now_ns() - t0 < least_ns ||
			(clock_now_ns() - t0 < 5 * least_ns && s->counters(s->ctx, &c) && !c.calibrated)));
}

static int warm_up(struct mixed *m, struct load_server *s, struct error *e)
{
	struct load_plan p = plan_of(m, MIXED_LOADED, 2000, m->warmup_s);
	struct load_block b = { 0 };
	int rc;

	if (m->warmup_s <= 0)
		return TENON_OK;
	p.progress = "warm-up";
	rc = load_run(s, &m->l.text, &p, &b, e);
	load_block_free(&b);
	if (!rc)
		settle(m, s);
	return rc;
}

static int measure(struct mixed *m, struct error *e)
{
	int rc = warm_up(m, &m->l.ours, e);

	rc = rc || !m->l.peer.ctx ? rc : warm_up(m, &m->l.peer, e);
	if (!rc && m->load == 2)
		rc = calibrate(m, e);
	for (int i = 0; i < m->n_sides; i++)
		m->side[i].t0_ns = clock_now_ns();
	for (uint64_t k = 0; k < m->blocks && !rc && !session_interrupted(); k++)
		for (int i = 0; i < m->n_sides && !rc && !session_interrupted(); i++)
			rc = run_round(m, &m->side[i], k, e);
	cli_progress_end();
	return rc;
}

/* ---- begin and end --------------------------------------------------------------------------------------------------- */

static void side_init(
	struct mixed_side *s, struct load_server *server, const char *title, const struct mixed *m)
{
	*s = (struct mixed_side){ .server = server };
	s->panel = (struct plot_panel){ .title = title,
		.x_label = "seconds",
		.y_label = "time to first token, ms",
		.series = series,
		.n_series = COUNT_OF(series),
		.band_name = mixed_names,
		.band_color = kind_colors,
		.n_bands_kinds = m->targets ? 4 : 3 };
	plot_panel_init(&s->panel);
	buf_init(&s->efficiency, MEM_TOOL, 0);
	buf_init(&s->busy, MEM_TOOL, 0);
	buf_init(&s->gain, MEM_TOOL, 0);
	buf_init(&s->step, MEM_TOOL, 0);
	buf_init(&s->rounds, MEM_TOOL, 0);
	for (int i = 0; i < MIXED_WHATS; i++) {
		buf_init(&s->kind[i].ttft, MEM_TOOL, 0);
		buf_init(&s->kind[i].tpot, MEM_TOOL, 0);
		buf_init(&s->kind[i].gap, MEM_TOOL, 0);
		buf_init(&s->kind[i].rate, MEM_TOOL, 0);
	}
}

static void side_finish(struct mixed_side *s)
{
	plot_panel_finish(&s->panel);
	buf_finish(&s->efficiency);
	buf_finish(&s->busy);
	buf_finish(&s->gain);
	buf_finish(&s->step);
	buf_finish(&s->rounds);
	for (int i = 0; i < MIXED_WHATS; i++) {
		buf_finish(&s->kind[i].ttft);
		buf_finish(&s->kind[i].tpot);
		buf_finish(&s->kind[i].gap);
		buf_finish(&s->kind[i].rate);
	}
}

static int open_all(struct mixed *m, struct error *e)
{
	double words = (double)m->offline_words, per_block;
	int rc;

	/* The daemon wants its room before the text is known: a word has rarely more than two tokens. */
	m->o.kv_tokens = m->clients * (2 * m->offline_words + m->offline_new + 64) +
		16 * (m->online_prompt + m->online_new + 64);
	rc = bench_load_open(&m->l, &m->o, (uint32_t)m->clients + 1, e);
	if (rc)
		return rc;
	m->offline_tokens = (uint32_t)MAX_OF(words * m->l.text.tokens_per_word, 1.0);
	m->n_sides = m->l.peer.ctx ? 2 : 1;
	side_init(&m->side[0], &m->l.ours, "tenond: time to first token", m);
	side_init(&m->side[1], &m->l.peer, "peer: time to first token", m);
	per_block = m->seconds / (double)m->blocks;
	m->block_s = per_block / (m->targets ? 3.6 : 2.75);
	m->n_total = (double)m->blocks * m->n_sides * (m->targets ? 4 : 3);
	return TENON_OK;
}

static int bench(struct mixed *m)
{
	struct plot_panel panels[2];
	struct error e = { 0 };
	int rc = open_all(m, &e);
	bool opened = !rc;

	rc = rc ? rc : measure(m, &e);
	if (!rc && m->plot) {
		panels[0] = m->side[0].panel;
		panels[1] = m->side[1].panel;
		rc = plot_write(panels, (size_t)m->n_sides, m->plot, &e);
	}
	if (opened && m->side[0].busy.len)
		mixed_report(m);
	bench_load_close(&m->l);
	for (int i = 0; i < 2 && opened; i++)
		side_finish(&m->side[i]);
	if (rc)
		return cli_fail_error("bench mixed", &e);
	return session_interrupted() ? CLI_FAILED : CLI_OK;
}

/* ---- the command line --------------------------------------------------------------------------------------------------- */

static bool parse_rate(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (!*end && *text && *out >= 0.001 && *out <= 10000)
		return true;
	(void)cli_usage("tenon bench mixed", "--rate: '%s' is not a number from 0.001 to 10000", text);
	return false;
}

static bool take_option(struct mixed *m, int c, const char *arg)
{
	const struct {
		int opt;
		const char *name;
		uint64_t lo, hi, *to;
	} numbers[] = {
		{ OPT_LOAD, "--load", 1, 2, &m->load },
		{ OPT_TPOT, "--tpot-ms", 1, 1000000, &m->tpot_ms },
		{ OPT_TTFT, "--ttft-ms", 1, 1000000, &m->ttft_ms },
		{ OPT_ON_PROMPT, "--online-prompt", 1, 1000000, &m->online_prompt },
		{ OPT_ON_NEW, "--online-new", 2, 100000, &m->online_new },
		{ OPT_CLIENTS, "--offline-clients", 1, LOAD_MAX_OFFLINE, &m->clients },
		{ OPT_OFF_PROMPT, "--offline-prompt", 1, 1000000, &m->offline_words },
		{ OPT_OFF_NEW, "--offline-new", 1, 100000, &m->offline_new },
		{ OPT_SECONDS, "--seconds", 1, 86400, &m->seconds_u },
		{ OPT_BLOCKS, "--blocks", 1, 10000, &m->blocks },
		{ OPT_PATIENCE, "--patience", 1, 3600, &m->patience_u },
		{ OPT_WARMUP, "--warmup", 0, 600, &m->warmup_u },
	};

	for (size_t i = 0; i < COUNT_OF(numbers); i++)
		if (c == numbers[i].opt)
			return cli_parse_u64("tenon bench mixed", numbers[i].name, arg, numbers[i].lo,
				numbers[i].hi, numbers[i].to);
	if (c == OPT_RATE)
		return parse_rate(arg, &m->rate);
	m->targets |= c == OPT_TARGETS;
	m->plot = c == OPT_PLOT ? arg : m->plot;
	return true;
}

static int parse(struct mixed *m, int argc, char **argv)
{
	static const struct option longs[] = { BENCH_LOAD_LONGS, { "load", 1, NULL, OPT_LOAD },
		{ "targets", 0, NULL, OPT_TARGETS }, { "tpot-ms", 1, NULL, OPT_TPOT },
		{ "ttft-ms", 1, NULL, OPT_TTFT }, { "rate", 1, NULL, OPT_RATE },
		{ "online-prompt", 1, NULL, OPT_ON_PROMPT }, { "online-new", 1, NULL, OPT_ON_NEW },
		{ "offline-clients", 1, NULL, OPT_CLIENTS }, { "offline-prompt", 1, NULL, OPT_OFF_PROMPT },
		{ "offline-new", 1, NULL, OPT_OFF_NEW }, { "seconds", 1, NULL, OPT_SECONDS },
		{ "blocks", 1, NULL, OPT_BLOCKS }, { "patience", 1, NULL, OPT_PATIENCE },
		{ "warmup", 1, NULL, OPT_WARMUP }, { "plot", 1, NULL, OPT_PLOT }, { 0 } };
	int c, shared;

	while ((c = cli_getopt("tenon bench mixed", argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : -1;
		if (c == '?')
			return CLI_USAGE;
		shared = bench_load_option("tenon bench mixed", c, optarg, &m->o);
		if (shared < 0 || (!shared && !take_option(m, c, optarg)))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage("tenon bench mixed", "'%s': nothing more is taken", argv[optind]);
	return bench_load_check("tenon bench mixed", &m->o);
}

int cmd_bench_mixed(int argc, char **argv)
{
	struct mixed *m = mem_zalloc(MEM_TOOL, 1, sizeof *m);
	int rc;

	if (!m)
		return cli_fail("bench mixed: out of memory");
	*m = (struct mixed){ .o.seed = 1,
		.load = 1,
		.rate = 1,
		.online_prompt = 67,
		.online_new = 16,
		.clients = 4,
		.offline_words = 1500,
		.offline_new = 64,
		.seconds_u = 90,
		.blocks = 3,
		.patience_u = 60,
		.warmup_u = 3 };
	rc = parse(m, argc, argv);
	if (rc == CLI_OK) {
		m->seconds = (double)m->seconds_u;
		m->patience_s = (double)m->patience_u;
		m->warmup_s = (double)m->warmup_u;
		m->target_ms = (double)m->tpot_ms;
		session_catch_int();
		rc = bench(m);
	}
	mem_free(m);
	return rc < 0 ? CLI_OK : rc;
}
