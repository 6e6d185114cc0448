/* SPDX-License-Identifier: Apache-2.0
 * tenon bench prefix: time to first token of a prompt whose beginning is new, in the cache, in the cache for four
 * clients at once, and in the disk tier. Every repeat has a prefix of its own; both servers, if there are two, take
 * turns. The disk part has a second daemon, with a pool so small that other prompts push the prefixes out.
 */
#include "tools/bench_prefix.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench prefix [-m MODEL] [OPTION]...\n\n"
	"Time to first token of a long prefix with a few new tokens behind it: cold, warm, four clients at once (the slowest\n"
	"of them; how many reused the prefix), four clients at once on a new prefix, and from the disk tier. Prompts are token\n"
	"ids cut from a text behind four random ids.\n\n"
	"options:\n"
	"      --prefix N        tokens (default 2000)\n"
	"      --tail N          new tokens behind it (default 16)\n"
	"      --new N           tokens to generate (default 16)\n"
	"      --reps N          prefixes (default 5)\n"
	"      --no-disk         without the disk tier's part\n"
	"      --probe PAIRS     instead: two tenants, one asks, the other asks for the same and for something nobody asked;\n"
	"                        probe.auc says how well the time tells these apart (0.5: not at all)\n"
	"      --share-tenants   with --probe: one cache for all tenants, which must show\n" BENCH_LOAD_HELP
	"\nexamples:\n"
	"  tenon bench prefix\n"
	"  tenon bench prefix --prefix 4000 --vs-url http://127.0.0.1:8080 --json\n"
	"  tenon bench prefix -m tiny.gguf --prefix 200 --probe 10000\n";

enum { OPT_PREFIX = 2000, OPT_TAIL, OPT_NEW, OPT_REPS, OPT_NO_DISK, OPT_PROBE, OPT_SHARE };
enum { CLIENTS = 4, MAX_REPS = 1000, ASK_S = 300, DISK_MIB = 4096, SETTLE_MS = 500 };

struct seen { /* of one server: [MAX_REPS] each */
	double *cold, *warm, *warm_cached, *four, *reused, *four_new, *reused_new, *disk, *disk_cached;
	size_t n, n_disk;
};

/* ---- requests --------------------------------------------------------------------------------------------------------- */

struct load_item *prefix_item(struct prefix_bench *b, uint64_t which, uint64_t *tails)
{
	uint64_t state = (b->o.seed * 1000003 + which) * UINT64_C(0x5851f42d4c957f2d);
	uint32_t n = (uint32_t)(b->prefix + b->tail);
	int32_t *ids = load_prompt(&b->l.text, n, &state),
		*tail = load_prompt(&b->l.text, (uint32_t)b->tail, tails);

	if (ids && tail)
		memcpy(ids + b->prefix, tail, b->tail * sizeof *ids);
	else
		MEM_CLEAR(ids);
	mem_free(tail);
	return load_item_new(ids, n, (uint32_t)b->n_new);
}

static int failed(const struct load_item *it, struct error *e)
{
	if (session_interrupted())
		return error_set(e, TENON_E_CANCELLED, "interrupted");
	if (it->code || !it->first_ns)
		return error_set(e, it->code ? it->code : TENON_E_INTERNAL, "a request failed: %s", it->why);
	return TENON_OK;
}

int prefix_ask(struct load_server *s, struct load_item *it, struct error *e)
{
	int rc = it ? load_ask(s, it, clock_now_ns() + ASK_S * NS_PER_S, e)
		    : error_set(e, TENON_E_NOMEM, "load: out of memory");

	return rc ? rc : failed(it, e);
}

static int ask_one(struct prefix_bench *b, struct load_server *s, uint64_t which, uint64_t *tails,
	double *ttft, double *cached, struct error *e)
{
	struct load_item *it = prefix_item(b, which, tails);
	int rc = prefix_ask(s, it, e);

	if (!rc) {
		*ttft = load_item_ttft_ms(it, 0);
		*cached = it->n_cached;
	}
	load_items_free(it);
	return rc;
}

/* Reused: all of the prefix but for less than a page, or the server's own rounding. */
static int ask_four(struct prefix_bench *b, struct load_server *s, uint64_t which, uint64_t *tails,
	double *ttft, double *reused, struct error *e)
{
	const double rounding = 64;
	struct load_item *list = NULL, *it;
	int rc = TENON_OK;

	*ttft = *reused = 0;
	for (uint32_t c = 0; c < CLIENTS && !rc; c++) {
		it = prefix_item(b, which, tails);
		if (!it) {
			rc = error_set(e, TENON_E_NOMEM, "load: out of memory");
			break;
		}
		it->client = c;
		it->next = list;
		list = it;
		it->due_ns = clock_now_ns();
		rc = s->submit(s->ctx, it, e);
	}
	rc = rc ? rc : load_drain(s, list, clock_now_ns() + ASK_S * NS_PER_S, e);
	for (it = list; it && !rc; it = it->next) {
		rc = failed(it, e);
		*ttft = MAX_OF(*ttft, load_item_ttft_ms(it, 0));
		*reused += it->n_cached > 0 && it->n_cached + rounding > (double)b->prefix;
	}
	load_items_free(list);
	return rc;
}

/* ---- in memory --------------------------------------------------------------------------------------------------------- */

static int one_rep(
	struct prefix_bench *b, struct load_server *s, struct seen *v, uint64_t rep, struct error *e)
{
	uint64_t tails = b->o.seed * 7919 + rep * 64 + 1;
	double cached;
	int rc = ask_one(b, s, rep, &tails, &v->cold[v->n], &cached, e);

	rc = rc ? rc : ask_one(b, s, rep, &tails, &v->warm[v->n], &v->warm_cached[v->n], e);
	rc = rc ? rc : ask_four(b, s, rep, &tails, &v->four[v->n], &v->reused[v->n], e);
	rc = rc ? rc : ask_four(b, s, MAX_REPS + rep, &tails, &v->four_new[v->n], &v->reused_new[v->n], e);
	v->n += !rc;
	return rc;
}

static int measure(struct prefix_bench *b, struct seen *ours, struct seen *peer, struct error *e)
{
	int rc = TENON_OK;

	for (uint64_t r = 0; r < b->reps && !rc; r++) {
		cli_progress("prefix", (double)r / (double)(b->reps + 1));
		rc = one_rep(b, &b->l.ours, ours, r, e);
		if (!rc && b->l.peer.ctx)
			rc = one_rep(b, &b->l.peer, peer, r, e);
	}
	return rc;
}

/* ---- from disk ----------------------------------------------------------------------------------------------------------- */

static int make_dir(struct prefix_bench *b, struct error *e)
{
	const char *base = getenv("TMPDIR");

	if ((size_t)snprintf(b->dir, sizeof b->dir, "%s/tenon-bench-XXXXXX", base && *base ? base : "/tmp") >=
		sizeof b->dir)
		(void)snprintf(b->dir, sizeof b->dir, "/tmp/tenon-bench-XXXXXX");
	if (mkdtemp(b->dir))
		return TENON_OK;
	b->dir[0] = 0;
	return error_errno(e, TENON_E_IO, errno, "disk tier: no folder for it");
}

static void remove_dir(struct prefix_bench *b)
{
	DIR *d = b->dir[0] ? opendir(b->dir) : NULL;
	struct dirent *f;

	while (d && (f = readdir(d)) != NULL)
		if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
			(void)unlinkat(dirfd(d), f->d_name, 0);
	if (d)
		(void)closedir(d);
	if (b->dir[0])
		(void)rmdir(b->dir);
	b->dir[0] = 0;
}

/* A context of one prompt; the daemon's pool is then that, or 4096 tokens. */
static uint64_t context_tokens(const struct prefix_bench *b) { return b->prefix + b->tail + b->n_new + 64; }

/* More other prompts than the pool holds push everything out of it. */
static int flood(struct prefix_bench *b, uint64_t from, uint64_t *tails, struct error *e)
{
	uint64_t pool = MAX_OF(context_tokens(b), UINT64_C(4096)),
		 n = (pool * 3 / 2 + b->prefix - 1) / b->prefix;
	double ttft, cached;
	int rc = TENON_OK;

	for (uint64_t i = 0; i < n && !rc; i++)
		rc = ask_one(b, &b->l.ours, from + i, tails, &ttft, &cached, e);
	(void)usleep(SETTLE_MS * 1000);
	return rc;
}

static int measure_disk(struct prefix_bench *b, struct seen *v, struct error *e)
{
	struct bench_load_options o = b->o;
	char ctx[32], dir[96], mib[40];
	uint64_t tails = b->o.seed * 104729 + 5;
	double ttft, cached;
	int rc = make_dir(b, e);

	if (rc)
		return rc;
	(void)snprintf(ctx, sizeof ctx, "%llu", (unsigned long long)context_tokens(b));
	(void)snprintf(dir, sizeof dir, "prefix.disk_dir=%s", b->dir);
	(void)snprintf(mib, sizeof mib, "prefix.disk_mib=%d", DISK_MIB);
	o.so.ctx = ctx;
	o.so.set[0] = dir;
	o.so.set[1] = mib;
	o.so.set[2] = NULL;
	rc = bench_load_reopen(&b->l, &o, CLIENTS, e);
	for (uint64_t r = 0; r < b->reps && !rc; r++) {
		cli_progress(
			"prefix", (double)(b->reps + (double)r / (double)b->reps) / (double)(b->reps + 1));
		rc = ask_one(b, &b->l.ours, 10 * MAX_REPS + r, &tails, &ttft, &cached, e);
		rc = rc ? rc : flood(b, (uint64_t)(20 + r) * MAX_REPS, &tails, e);
		rc = rc ? rc
			: ask_one(b, &b->l.ours, 10 * MAX_REPS + r, &tails, &v->disk[v->n_disk],
				  &v->disk_cached[v->n_disk], e);
		v->n_disk += !rc;
	}
	if (rc)
		error_prefix(e, "disk tier");
	return rc;
}

/* ---- figures ----------------------------------------------------------------------------------------------------------------- */

static json_t *add(json_t *report, const char *name, const char *unit, double *ours, size_t n, double *theirs,
	size_t n_theirs, bool is_rate)
{
	json_t *r = n ? bench_add(report, name, unit, ours, n) : NULL;

	if (r && n_theirs)
		bench_add_peer(r, "url", theirs, n_theirs, is_rate);
	return r;
}

static double median(const json_t *result) { return json_number_value(json_object_get(result, "median")); }

static void add_memory(json_t *report, json_t *checks, struct seen *v, struct seen *p)
{
	json_t *cold = add(report, "prefix.cold.ttft", "ms", v->cold, v->n, p->cold, p->n, false);
	json_t *warm = add(report, "prefix.warm.ttft", "ms", v->warm, v->n, p->warm, p->n, false), *reused;

	(void)add(report, "prefix.warm.cached", "tokens", v->warm_cached, v->n, p->warm_cached, p->n, true);
	(void)add(report, "prefix.four_clients.ttft", "ms", v->four, v->n, p->four, p->n, false);
	reused = add(report, "prefix.four_clients.reused", "of 4", v->reused, v->n, p->reused, p->n, true);
	(void)add(report, "prefix.four_new.ttft", "ms", v->four_new, v->n, p->four_new, p->n, false);
	(void)add(report, "prefix.four_new.reused", "of 4", v->reused_new, v->n, p->reused_new, p->n, true);
	if (!v->n)
		return;
	bench_check_add(checks, "prefix.warm.ttft / prefix.cold.ttft", median(warm) / median(cold), "at most",
		0.03, median(warm) <= 0.03 * median(cold));
	bench_check_add(checks, "prefix.four_clients.reused, fewest",
		json_number_value(json_object_get(reused, "min")), "at least", CLIENTS,
		json_number_value(json_object_get(reused, "min")) >= CLIENTS);
}

/* Faster than cold, or not used. */
static void add_disk(json_t *report, json_t *checks, struct seen *v, struct seen *p)
{
	double cold = median(json_array_get(json_object_get(report, "results"), 0));
	json_t *disk = add(report, "prefix.disk.ttft", "ms", v->disk, v->n_disk, p->disk, 0, false);
	json_t *cached =
		add(report, "prefix.disk.cached", "tokens", v->disk_cached, v->n_disk, p->disk, 0, true);

	if (disk)
		bench_check_add(checks, "prefix.disk.ttft (or not used)", median(disk), "at most", cold,
			median(disk) <= cold || !median(cached));
}

static void report_all(struct prefix_bench *b, struct seen *ours, struct seen *peer)
{
	json_t *report = bench_report("bench prefix", bench_load_model_json(&b->l)), *checks = json_array();

	add_memory(report, checks, ours, peer);
	add_disk(report, checks, ours, peer);
	(void)json_object_set_new(report, "load",
		json_pack("{s:I, s:I, s:I, s:I, s:s}", "prefix", (json_int_t)b->prefix, "tail",
			(json_int_t)b->tail, "new", (json_int_t)b->n_new, "seed", (json_int_t)b->o.seed,
			"text", b->l.text.path));
	bench_load_print(report, checks, b->o.json);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------------------- */

static bool seen_init(struct seen *v)
{
	double **const rest[] = { &v->warm, &v->warm_cached, &v->four, &v->reused, &v->four_new,
		&v->reused_new, &v->disk, &v->disk_cached };
	double *all = mem_zalloc(MEM_TOOL, (1 + COUNT_OF(rest)) * MAX_REPS, sizeof *all);

	*v = (struct seen){ .cold = all };
	if (!all)
		return false;
	for (size_t i = 0; i < COUNT_OF(rest); i++)
		*rest[i] = all + (i + 1) * MAX_REPS;
	return true;
}

static int bench(struct prefix_bench *b)
{
	struct seen ours = { 0 }, peer = { 0 };
	struct error e = { 0 };
	bool ok = seen_init(&ours) && seen_init(&peer);
	int rc = ok ? bench_load_open(&b->l, &b->o, CLIENTS, &e)
		    : error_set(&e, TENON_E_NOMEM, "out of memory");

	rc = rc ? rc : measure(b, &ours, &peer, &e);
	if (!rc && !b->no_disk && !b->o.so.socket)
		rc = measure_disk(b, &ours, &e);
	cli_progress_end();
	if (ours.n)
		report_all(b, &ours, &peer);
	bench_load_close(&b->l);
	remove_dir(b);
	mem_free(ours.cold);
	mem_free(peer.cold);
	return rc ? cli_fail_error("bench prefix", &e) : CLI_OK;
}

static int probe(struct prefix_bench *b)
{
	struct error e = { 0 };
	int rc = make_dir(b, &e);

	rc = rc ? rc : prefix_probe(b, &e);
	bench_load_close(&b->l);
	remove_dir(b);
	return rc ? cli_fail_error("bench prefix", &e) : CLI_OK;
}

/* ---- the command line --------------------------------------------------------------------------------------------------------- */

static bool take_option(struct prefix_bench *b, int c, const char *arg)
{
	const struct {
		int opt;
		const char *name;
		uint64_t lo, hi, *to;
	} numbers[] = {
		{ OPT_PREFIX, "--prefix", 8, 1000000, &b->prefix },
		{ OPT_TAIL, "--tail", 1, 100000, &b->tail },
		{ OPT_NEW, "--new", 1, 100000, &b->n_new },
		{ OPT_REPS, "--reps", 1, MAX_REPS, &b->reps },
		{ OPT_PROBE, "--probe", 1, 10000000, &b->pairs },
	};

	for (size_t i = 0; i < COUNT_OF(numbers); i++)
		if (c == numbers[i].opt)
			return cli_parse_u64("tenon bench prefix", numbers[i].name, arg, numbers[i].lo,
				numbers[i].hi, numbers[i].to);
	b->no_disk |= c == OPT_NO_DISK;
	b->share_tenants |= c == OPT_SHARE;
	return true;
}

static int parse(struct prefix_bench *b, int argc, char **argv)
{
	static const struct option longs[] = { BENCH_LOAD_LONGS, { "prefix", 1, NULL, OPT_PREFIX },
		{ "tail", 1, NULL, OPT_TAIL }, { "new", 1, NULL, OPT_NEW }, { "reps", 1, NULL, OPT_REPS },
		{ "no-disk", 0, NULL, OPT_NO_DISK }, { "probe", 1, NULL, OPT_PROBE },
		{ "share-tenants", 0, NULL, OPT_SHARE }, { 0 } };
	int c, shared;

	while ((c = cli_getopt("tenon bench prefix", argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : -1;
		if (c == '?')
			return CLI_USAGE;
		shared = bench_load_option("tenon bench prefix", c, optarg, &b->o);
		if (shared < 0 || (!shared && !take_option(b, c, optarg)))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage("tenon bench prefix", "'%s': nothing more is taken", argv[optind]);
	if (b->pairs && (b->o.so.socket || b->o.vs_url))
		return cli_usage("tenon bench prefix",
			"--probe: needs a daemon of its own; leave --socket and --vs-url out");
	if (b->share_tenants && !b->pairs)
		return cli_usage("tenon bench prefix", "--share-tenants: only with --probe");
	return bench_load_check("tenon bench prefix", &b->o);
}

int cmd_bench_prefix(int argc, char **argv)
{
	struct prefix_bench *b = mem_zalloc(MEM_TOOL, 1, sizeof *b);
	int rc;

	if (!b)
		return cli_fail("bench prefix: out of memory");
	*b = (struct prefix_bench){ .o.seed = 1, .prefix = 2000, .tail = 16, .n_new = 16, .reps = 5 };
	rc = parse(b, argc, argv);
	if (rc == CLI_OK) {
		b->o.kv_tokens = 12 * (b->prefix + b->tail + b->n_new + 64);
		session_catch_int();
		rc = b->pairs ? probe(b) : bench(b);
	}
	mem_free(b);
	return rc < 0 ? CLI_OK : rc;
}
