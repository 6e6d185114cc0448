/* SPDX-License-Identifier: Apache-2.0
 * bench_prefix.h: timing probes between two tenants of one user, on a daemon of our own. For each pair the victim asks
 * for something; then the other tenant asks for that and for something nobody asked, in random order.
 */
#include "tools/bench_prefix.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char victim[] = "victim", prober[] = "prober";

static int write_config(struct prefix_bench *b, struct error *e)
{
	FILE *f;
	bool ok;

	(void)snprintf(b->config, sizeof b->config, "%s/conf", b->dir);
	f = fopen(b->config, "we");
	ok = f &&
		fprintf(f,
			"tenants = ( { name = \"%s\"; users = ( %u ); }, { name = \"%s\"; users = ( %u ); } );\n"
			"prefix = { share_tenants = %s; };\n",
			victim, (unsigned)geteuid(), prober, (unsigned)geteuid(),
			b->share_tenants ? "true" : "false") > 0;
	if (f && fclose(f))
		ok = false;
	return ok ? TENON_OK : error_errno(e, TENON_E_IO, errno, "probe: cannot write a configuration");
}

/* The whole prompt is the prefix here: who asks for the same asks for exactly the same. */
static int ask_as(struct prefix_bench *b, const char *tenant, uint64_t which, double *ttft, double *cached,
	struct error *e)
{
	uint64_t tails = which;
	struct load_item *it = prefix_item(b, which, &tails);
	int rc;

	if (it) {
		it->tenant = tenant;
		it->client = tenant == prober;
	}
	rc = prefix_ask(&b->l.ours, it, e);
	if (!rc) {
		*ttft = load_item_ttft_ms(it, 0);
		*cached = it->n_cached > it->n_ids / 2; /* a few tokens may begin alike by chance */
	}
	load_items_free(it);
	return rc;
}

struct pairs {
	double *used, *unused; /* ttft, ms */
	size_t n;
	double n_faster,
		n_cached; /* pairs in which the used one was faster; used ones that came from the cache */
};

static int one_pair(struct prefix_bench *b, struct pairs *p, uint64_t *order, struct error *e)
{
	uint64_t which = 2 * p->n;
	double ttft, cached, none;
	bool used_first = load_random(order) & 1;
	int rc = ask_as(b, victim, which, &ttft, &cached, e);

	if (!rc && !used_first)
		rc = ask_as(b, prober, which + 1, &p->unused[p->n], &none, e);
	rc = rc ? rc : ask_as(b, prober, which, &p->used[p->n], &cached, e);
	if (!rc && used_first)
		rc = ask_as(b, prober, which + 1, &p->unused[p->n], &none, e);
	if (rc)
		return rc;
	p->n_faster += p->used[p->n] < p->unused[p->n] ? 1 : p->used[p->n] == p->unused[p->n] ? 0.5 : 0;
	p->n_cached += cached;
	p->n++;
	return TENON_OK;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double prefix_auc(double *used, double *unused, size_t n)
{
	double wins = 0;
	size_t below = 0, upto = 0;

	qsort(used, n, sizeof *used, by_value);
	qsort(unused, n, sizeof *unused, by_value);
	for (size_t i = 0; i < n; i++) {
		while (below < n && unused[below] < used[i])
			below++;
		while (upto < n && unused[upto] <= used[i])
			upto++;
		wins += (double)(n - upto) + (double)(upto - below) / 2;
	}
	return n ? wins / ((double)n * (double)n) : 0.5;
}

static void add_one(json_t *report, const char *name, const char *unit, double v)
{
	(void)bench_add(report, name, unit, &v, 1);
}

/* A channel that tells by the longer time tells as much. */
static double either_way(double auc) { return MAX_OF(auc, 1 - auc); }

static void report_all(struct prefix_bench *b, struct pairs *p)
{
	json_t *report = bench_report("bench prefix", bench_load_model_json(&b->l)), *checks = json_array();
	double paired = p->n_faster / (double)p->n, auc = prefix_auc(p->used, p->unused, p->n),
	       worst = MAX_OF(either_way(auc), either_way(paired));

	(void)bench_add(report, "probe.used.ttft", "ms", p->used, p->n);
	(void)bench_add(report, "probe.unused.ttft", "ms", p->unused, p->n);
	add_one(report, "probe.auc", "share", auc);
	add_one(report, "probe.paired", "share", paired);
	add_one(report, "probe.cached", "share", p->n_cached / (double)p->n);
	if (b->share_tenants)
		bench_check_add(checks, "probe.auc or probe.paired with a shared cache", worst, "over", 0.55,
			worst > 0.55);
	else
		bench_check_add(checks, "probe.auc or probe.paired", worst, "at most", 0.55, worst <= 0.55);
	(void)json_object_set_new(report, "load",
		json_pack("{s:I, s:I, s:I, s:b, s:I}", "pairs", (json_int_t)p->n, "prefix",
			(json_int_t)b->prefix, "tail", (json_int_t)b->tail, "share_tenants", b->share_tenants,
			"seed", (json_int_t)b->o.seed));
	bench_load_print(report, checks, b->o.json);
}

int prefix_probe(struct prefix_bench *b, struct error *e)
{
	struct pairs p = { 0 };
	uint64_t order = b->o.seed + 99;
	int rc = write_config(b, e);

	b->o.so.config = b->config;
	b->n_new = 1;
	p.used = mem_zalloc(MEM_TOOL, b->pairs, sizeof *p.used);
	p.unused = mem_zalloc(MEM_TOOL, b->pairs, sizeof *p.unused);
	if (!rc && (!p.used || !p.unused))
		rc = error_set(e, TENON_E_NOMEM, "probe: out of memory");
	rc = rc ? rc : bench_load_open(&b->l, &b->o, 2, e);
	for (uint64_t i = 0; i < b->pairs && !rc; i++) {
		if (i % 64 == 0)
			cli_progress("probe", (double)i / (double)b->pairs);
		rc = one_pair(b, &p, &order, e);
	}
	cli_progress_end();
	if (p.n)
		report_all(b, &p);
	mem_free(p.used);
	mem_free(p.unused);
	return rc;
}
