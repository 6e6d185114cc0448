/* SPDX-License-Identifier: Apache-2.0
 * tenon bench model: prefill, decode and batched decode of a model in this process, beside peers in the same run. Ours and
 * the peers' measurements alternate, so that a slow minute of the machine hits all; its limits are measured before
 * each figure.
 */
#include "tools/bench.h"
#include "tools/bench_model_items.h"
#include "tools/machine.h"
#include "tools/open_model.h"
#include "tools/peer.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench model [-m MODEL] [OPTION]...\n\n"
	"Tokens per second: prefill.N of one prompt, decode.N of one sequence, decode.batchS of S sequences in all; what\n"
	"the machine can do at most in the same run, and each figure's shares of it. Medians over the repeats, each kind\n"
	"warmed up once.\n\n"
	"options:\n" OPEN_MODEL_HELP
	"                           also a list, as in 1,2: all figures with each\n"
	"      --sweep              with 1, 2, 4, ... threads and with all processors\n"
	"      --vs LIST            of llama (xllamacpp), openvino (OpenVINO GenAI): run in turn with ours; ratios are\n"
	"                           ours / peer's. bench/make-venv installs them once\n"
	"      --reps N             repeats (default 5)\n"
	"      --only LIST          of prefill.N, decode.N, decode.batchS for any N and S (default: prefill.512,decode.128,\n"
	"                           decode.batch4, .batch8, .batch16, .batch32, prefill.4000)\n"
	"      --no-limits          do not measure the machine, which takes seconds: no shares of limits then\n"
	"      --json\n      --help\n\n"
	"examples:\n"
	"  tenon bench model --vs llama,openvino --threads 2\n"
	"  tenon bench model -m ./model.gguf --only prefill.256,decode.32 --json\n"
	"  tenon bench model -m ./model.gguf --sweep --only prefill.512,decode.128,decode.batch16\n";

enum {
	MAX_REPS = 101,
	BATCH_PROMPT = 128,
	BATCH_NEW = 64,
	DECODE_PROMPT = 8,
	STEP_TOKENS = 512,
	PEER_CTX = 8192,
	PEER_TOKENS = 512,
	MAX_PEERS = 2,
	POOL_SEQS = 32, /* that the default pool has room for */
	LIMIT_SAMPLES = ITEMS_MAX + 1
};

struct rival {
	const char *name;
	struct peer peer;
	bool on;		/* running with this number of threads */
	double tok_s[MAX_REPS]; /* of the figure in work */
};

struct run {
	struct opened l;
	struct drive d;
	struct items items;
	struct counts threads; /* none: what the backend takes */
	uint32_t n_threads;    /* in this round */
	struct rival rivals[MAX_PEERS];
	size_t n_rivals;
	uint64_t reps;
	struct machine_meter meter;
	struct machine limits[LIMIT_SAMPLES];
	size_t n_limits;
	json_t *report;
	bool wide, sweep, json, no_limits;
};

/* ---- our side --------------------------------------------------------------------------------------------------- */

static uint32_t item_seqs(const struct item *it) { return it->kind == ITEM_BATCH ? it->n : 1; }
static uint32_t item_past(const struct item *it)
{
	return it->kind == ITEM_BATCH ? BATCH_PROMPT : it->kind == ITEM_DECODE ? DECODE_PROMPT : 0;
}
static uint32_t item_new(const struct item *it) { return it->kind == ITEM_BATCH ? BATCH_NEW : it->n; }

/* Tokens per second of one measurement. */
static int measure(struct run *r, const struct item *it, double *out, struct error *e)
{
	uint32_t seqs = item_seqs(it), past = item_past(it), n = item_new(it);
	int rc = drive_prefill(&r->d, seqs, past, e);
	uint64_t t0 = clock_now_ns();

	if (!rc)
		rc = it->kind == ITEM_PREFILL ? drive_prefill(&r->d, 1, n, e)
					      : drive_decode(&r->d, seqs, past, n, e);
	*out = (double)seqs * n * 1e9 / (double)(clock_now_ns() - t0);
	return rc;
}

/* What the measured steps need at least. */
static struct machine_need need_of(const struct run *r, const struct item *it)
{
	uint32_t seqs = item_seqs(it), chunk = it->kind == ITEM_PREFILL ? drive_chunk(&r->d, 1) : 1,
		 n = item_new(it);
	struct machine_need need = { 0 };

	for (uint32_t at = 0; at < n; at += chunk) {
		struct machine_step s = { .n_seqs = seqs,
			.tokens = MIN_OF(chunk, n - at),
			.past = item_past(it) + at,
			.n_out = it->kind != ITEM_PREFILL || at + chunk >= n ? seqs : 0,
			.kv_type = r->d.info->kv_type,
			.precision = r->d.info->precision };

		for (uint32_t k = 0; k < model_n_parts(r->l.model); k++)
			machine_need_add(model_part_at(r->l.model, k).nodes, &s, &need);
	}
	return need;
}

/* ---- peers -------------------------------------------------------------------------------------------------------- */

/* A peer that cannot go on is left out; why stands in the report. */
static void rival_drop(struct run *r, struct rival *v, const char *item, const struct error *why)
{
	json_t *all = json_object_get(r->report, "peers");

	if (!all) {
		all = json_object();
		(void)json_object_set_new(r->report, "peers", all);
	}
	(void)json_object_set_new(all, v->name,
		json_pack("{s:s, s:s*}", why->code == TENON_E_UNSUPPORTED ? "refused" : "failed", why->text,
			"at", item));
	peer_stop(&v->peer);
	v->on = false;
}

/* Only what is missing on our side (scripts, packages) ends the run. */
static int rivals_start(struct run *r, struct error *e)
{
	for (size_t i = 0; i < r->n_rivals; i++) {
		struct rival *v = &r->rivals[i];
		struct error why = { 0 };
		uint32_t seqs = items_seqs(&r->items),
			 ctx = MAX_OF(seqs * (BATCH_PROMPT + BATCH_NEW + 64), PEER_CTX);
		int rc;

		for (size_t k = 0; k < r->items.n; k++)
			if (r->items.at[k].kind != ITEM_BATCH)
				ctx = MAX_OF(ctx, r->items.at[k].n + PEER_TOKENS);
		rc = peer_start(&v->peer, v->name, r->l.path, r->n_threads, ctx, MAX_OF(seqs, 4), &why);
		v->on = !rc;
		if (rc == TENON_E_UNSUPPORTED || rc == TENON_E_GONE)
			rival_drop(r, v, NULL, &why);
		else if (rc)
			return error_set(e, rc, "%s", why.text);
	}
	return TENON_OK;
}

static void rivals_ask(struct run *r, const struct item *it, size_t k)
{
	char cmd[64];

	(void)snprintf(cmd, sizeof cmd,
		it->kind == ITEM_BATCH		   ? "batch %u %d"
			: it->kind == ITEM_PREFILL ? "prefill %u"
						   : "decode %u",
		it->n, (int)BATCH_NEW);
	for (size_t i = 0; i < r->n_rivals; i++) {
		struct rival *v = &r->rivals[i];
		struct error why = { 0 };

		if (v->on && peer_ask(&v->peer, cmd, "tok_s", &v->tok_s[k], &why))
			rival_drop(r, v, it->name, &why);
	}
}

/* ---- the machine -------------------------------------------------------------------------------------------------- */

static int limits_take(struct run *r, struct error *e)
{
	int rc;

	if (r->no_limits)
		return TENON_OK;
	rc = machine_measure(&r->meter, r->n_threads, r->wide, &r->limits[r->n_limits], e);

	r->n_limits += !rc;
	return rc;
}

/* The middle of what was measured before each figure and at the end. */
static struct machine limits_median(const struct run *r)
{
	struct machine m = { 0 };
	double v[LIMIT_SAMPLES];
	struct bench_stat s;

	for (int u = 0; u <= MACHINE_UNITS; u++) {
		for (size_t i = 0; i < r->n_limits; i++)
			v[i] = u < MACHINE_UNITS ? r->limits[i].gops[u] : r->limits[i].read_gb_s;
		bench_stat_of(v, r->n_limits, &s);
		*(u < MACHINE_UNITS ? &m.gops[u] : &m.read_gb_s) = s.median;
	}
	return m;
}

static json_t *add(struct run *r, const char *name, const char *unit, double *samples, size_t n)
{
	json_t *res = bench_add(r->report, name, unit, samples, n);

	(void)json_object_set_new(res, "threads", json_integer(r->n_threads));
	return res;
}

static void limits_report(struct run *r)
{
	char name[32];
	double v[LIMIT_SAMPLES];

	if (!r->n_limits)
		return;
	for (int u = 0; u < MACHINE_UNITS; u++) {
		if (r->limits[0].gops[u] <= 0)
			continue;
		for (size_t i = 0; i < r->n_limits; i++)
			v[i] = r->limits[i].gops[u];
		(void)snprintf(name, sizeof name, "limit.%s", machine_unit_name((enum machine_unit)u));
		(void)json_object_set_new(
			add(r, name, "GOP/s", v, r->n_limits), "loop", json_string(r->limits[0].loop[u]));
	}
	for (size_t i = 0; i < r->n_limits; i++)
		v[i] = r->limits[i].read_gb_s;
	(void)add(r, "bandwidth.read", "GB/s", v, r->n_limits);
}

/* Time at the limits over the time it took; the weights' share alone is decode.mbu. */
static void shares_report(struct run *r, const struct item *it, const struct machine *m, json_t *res)
{
	const struct model_info *i = r->d.info;
	struct machine_need need = need_of(r, it);
	double rate = json_number_value(json_object_get(res, "median")),
	       took = (double)item_seqs(it) * item_new(it) / rate, share;

	(void)json_object_set_new(res, "shares",
		json_pack("{s:f, s:f}", "arithmetic", machine_ops_s(m, &need) / took, "reading",
			machine_read_s(m, &need) / took));
	if (it->kind != ITEM_DECODE || m->read_gb_s <= 0)
		return;
	share = rate * (double)(i->weights_own_bytes ? i->weights_own_bytes : i->weights_mapped_bytes) / 1e9 /
		m->read_gb_s;
	(void)add(r, "decode.mbu", "share", &share, 1);
}

/* ---- the run ------------------------------------------------------------------------------------------------------- */

static int run_item(struct run *r, const struct item *it, json_t **out, struct error *e)
{
	double ours[MAX_REPS], warm;
	int rc = measure(r, it, &warm, e);

	if (!rc)
		rivals_ask(r, it, 0);
	for (uint64_t k = 0; k < r->reps && !rc; k++) {
		cli_progress(it->name, (double)k / (double)r->reps);
		rc = measure(r, it, &ours[k], e);
		if (!rc)
			rivals_ask(r, it, k);
	}
	cli_progress_end();
	if (rc)
		return rc;
	*out = add(r, it->name, "tok/s", ours, r->reps);
	for (size_t i = 0; i < r->n_rivals; i++)
		if (r->rivals[i].on)
			bench_add_peer(*out, r->rivals[i].name, r->rivals[i].tok_s, r->reps, true);
	return rc;
}

/* 1: yes; 0: left out, as one of the default set may be. */
static int item_fits(const struct run *r, const struct item *it, struct error *e)
{
	if (drive_fits(&r->d, item_seqs(it), item_past(it) + item_new(it)))
		return 1;
	if (!r->items.asked)
		return 0;
	return error_set(e, TENON_E_INVALID,
		"%s: over the context of %u tokens or the pool of pages; choose a smaller one", it->name,
		r->d.info->n_ctx);
}

static int run_items(struct run *r, struct error *e)
{
	json_t *res[ITEMS_MAX] = { NULL };
	struct machine m;
	int rc = TENON_OK;

	for (size_t i = 0; i < r->items.n && rc >= 0; i++) {
		rc = item_fits(r, &r->items.at[i], e);
		if (rc <= 0)
			continue;
		rc = limits_take(r, e);
		rc = rc ? rc : run_item(r, &r->items.at[i], &res[i], e);
	}
	rc = rc < 0 ? rc : limits_take(r, e);
	if (rc)
		return rc;
	limits_report(r);
	m = limits_median(r);
	for (size_t i = 0; i < r->items.n && r->n_limits; i++)
		if (res[i])
			shares_report(r, &r->items.at[i], &m, res[i]);
	return rc;
}

static json_t *describe(const struct run *r)
{
	const struct model_info *i = r->d.info;

	return json_pack("{s:s, s:s, s:I, s:s, s:s}", "name", i->name, "arch", i->arch, "parameters",
		(json_int_t)i->n_params, "precision", i->precision == TNP_EXACT ? "exact" : "fast", "backend",
		i->backend);
}

static void round_finish(struct run *r)
{
	for (size_t i = 0; i < r->n_rivals; i++)
		peer_stop(&r->rivals[i].peer);
	drive_finish(&r->d);
	open_model_close(&r->l);
}

/* All figures with one number of threads. */
static int run_round(struct run *r, struct open_options lo, uint32_t threads, struct error *e)
{
	int rc;

	lo.threads = threads;
	r->n_threads = threads ? threads : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	r->n_limits = 0;
	rc = open_model(&lo, &r->l, e);
	rc = rc ? rc : drive_init(&r->d, r->l.model, items_seqs(&r->items), e);
	if (!rc && !r->report)
		r->report = bench_report("bench model", describe(r));
	rc = rc ? rc : rivals_start(r, e);
	rc = rc ? rc : run_items(r, e);
	round_finish(r);
	return rc;
}

static int bench(struct run *r, struct open_options *lo)
{
	uint32_t seqs = items_seqs(&r->items);
	struct error e = { 0 };
	int rc = TENON_OK;

	lo->o.step_tokens = MAX_OF((uint32_t)STEP_TOKENS, seqs);
	lo->o.step_seqs = lo->o.step_out = seqs;
	for (size_t i = 0; i < r->items.n; i++)
		if (r->items.asked && r->items.at[i].kind != ITEM_BATCH &&
			r->items.at[i].n + DECODE_PROMPT > PEER_CTX)
			lo->o.n_ctx = MAX_OF(lo->o.n_ctx, r->items.at[i].n + DECODE_PROMPT);
	if (seqs > POOL_SEQS)
		lo->o.n_sessions = (seqs + POOL_SEQS - 1) / POOL_SEQS;
	for (size_t i = 0; i < MAX_OF(r->threads.n, (size_t)1) && !rc; i++)
		rc = run_round(r, *lo, r->threads.n ? r->threads.at[i] : 0, &e);
	machine_meter_finish(&r->meter);
	if (rc) {
		json_decref(r->report);
		return cli_fail_error("bench model", &e);
	}
	return bench_print(r->report, r->json);
}

/* ---- options -------------------------------------------------------------------------------------------------------- */

enum { OPT_VS = 0x300, OPT_REPS, OPT_ONLY, OPT_SWEEP, OPT_NO_LIMITS, OPT_JSON };
static const char *const cmd = "tenon bench model";

static bool parse_vs(struct run *r, const char *list)
{
	static const char *const known[MAX_PEERS] = { "llama", "openvino" };

	r->n_rivals = 0;
	for (const char *at = list;; at++) {
		size_t len = strcspn(at, ","), k = 0;

		while (k < MAX_PEERS && (strlen(known[k]) != len || strncmp(at, known[k], len)))
			k++;
		for (size_t i = 0; i < r->n_rivals && k < MAX_PEERS; i++)
			k = r->rivals[i].name == known[k] ? MAX_PEERS : k;
		if (k == MAX_PEERS) {
			(void)cli_usage(cmd,
				"--vs: '%.*s' is not a peer that can be run, or named twice; known: llama, openvino",
				(int)MIN_OF(len, 64), at);
			return false;
		}
		r->rivals[r->n_rivals++].name = known[k];
		at += len;
		if (!*at)
			return true;
	}
}

static bool take(struct run *r, struct open_options *lo, int c)
{
	switch (c) {
	case OPT_THREADS:
		return counts_parse(cmd, optarg, &r->threads);
	case OPT_VS:
		return parse_vs(r, optarg);
	case OPT_REPS:
		return cli_parse_u64(cmd, "--reps", optarg, 1, MAX_REPS, &r->reps);
	case OPT_ONLY:
		return items_parse(cmd, optarg, &r->items);
	case OPT_SWEEP:
		return r->sweep = true;
	case OPT_NO_LIMITS:
		return r->no_limits = true;
	case OPT_JSON:
		return r->json = true;
	}
	return c != '?' && open_model_option(cmd, c, optarg, lo) > 0;
}

int cmd_bench_model(int argc, char **argv)
{
	static const struct option longs[] = { OPEN_MODEL_LONGS, { "vs", 1, NULL, OPT_VS },
		{ "reps", 1, NULL, OPT_REPS }, { "only", 1, NULL, OPT_ONLY }, { "sweep", 0, NULL, OPT_SWEEP },
		{ "no-limits", 0, NULL, OPT_NO_LIMITS }, { "json", 0, NULL, OPT_JSON },
		{ "help", 0, NULL, 'h' }, { 0 } };
	struct open_options lo = { .model = "smollm2-135m" };
	struct run r = { .reps = 5 };
	int c;

	items_default(&r.items);
	while ((c = cli_getopt(cmd, argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (!take(&r, &lo, c))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage(cmd, "'%s': nothing more is taken", argv[optind]);
	if (r.sweep && r.threads.n)
		return cli_usage(cmd, "--sweep and --threads are two ways to say the same; one of them");
	if (r.sweep)
		counts_sweep((uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &r.threads);
	r.wide = machine_is_wide(lo.isa);
	return bench(&r, &lo);
}
