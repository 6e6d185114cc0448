/* SPDX-License-Identifier: Apache-2.0
 * bench.h: order statistics and the JSON envelope.
 */
#include "tools/bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double nearest_rank(const double *sorted, size_t n, double share)
{
	size_t rank = (size_t)ceil(share * (double)n);

	return sorted[rank ? rank - 1 : 0];
}

void bench_stat_of(double *samples, size_t n, struct bench_stat *out)
{
	memset(out, 0, sizeof *out);
	if (!n)
		return;
	qsort(samples, n, sizeof *samples, by_value);
	*out = (struct bench_stat){ .n = n,
		.median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2,
		.p50 = nearest_rank(samples, n, 0.50),
		.p99 = nearest_rank(samples, n, 0.99),
		.min = samples[0],
		.max = samples[n - 1] };
}

/* "model name" of the first processor, "" where the kernel does not tell. */
static void cpu_name(char *out, size_t room)
{
	char line[512];
	FILE *f = fopen("/proc/cpuinfo", "re");
	size_t len;

	*out = 0;
	while (f && !*out && fgets(line, sizeof line, f)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		len = strcspn(colon, "\n");
		(void)snprintf(out, room, "%.*s", (int)len, colon);
	}
	if (f)
		(void)fclose(f);
}

json_t *bench_report(const char *tool, json_t *model)
{
	char cpu[256];
	struct utsname u = { 0 };
	json_t *report;

	cpu_name(cpu, sizeof cpu);
	(void)uname(&u);
	report = json_pack("{s:s, s:s, s:{s:s, s:i, s:I, s:s, s:s}}", "tool", tool, "version",
		PACKAGE_VERSION, "machine", "cpu", cpu, "processors", (int)sysconf(_SC_NPROCESSORS_ONLN),
		"memory_bytes", (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), "kernel",
		u.release, "arch", u.machine);
	if (model)
		(void)json_object_set_new(report, "model", model);
	(void)json_object_set_new(report, "results", json_array());
	return report;
}

json_t *bench_add(json_t *report, const char *name, const char *unit, double *samples, size_t n)
{
	struct bench_stat s;
	json_t *r;

	bench_stat_of(samples, n, &s);
	r = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "name", name, "unit", unit, "n",
		(json_int_t)s.n, "median", s.median, "p50", s.p50, "p99", s.p99, "min", s.min, "max", s.max);
	(void)json_array_append_new(json_object_get(report, "results"), r);
	return r;
}

void bench_add_peer(json_t *result, const char *peer, double *samples, size_t n, bool is_rate)
{
	double ours = json_number_value(json_object_get(result, "median"));
	json_t *peers = json_object_get(result, "peers"), *p;
	struct bench_stat s;

	bench_stat_of(samples, n, &s);
	if (!peers) {
		peers = json_object();
		(void)json_object_set_new(result, "peers", peers);
	}
	p = json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max);
	if (s.median > 0 && ours > 0)
		(void)json_object_set_new(p, "ratio", json_real(is_rate ? ours / s.median : s.median / ours));
	(void)json_object_set_new(peers, peer, p);
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }
static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* Do all results that name a number of threads name the same? */
static bool one_thread_count(const json_t *results)
{
	double seen = 0;

	for (size_t i = 0; i < json_array_size(results); i++) {
		double n = number(json_array_get(results, i), "threads");

		if (n > 0 && seen > 0 && n != seen)
			return false;
		seen = n > 0 ? n : seen;
	}
	return true;
}

static void print_row(const char *name, const json_t *v, const char *p99)
{
	(void)printf("%-24s %12.4g %12.4g %12.4g %12s", name, number(v, "median"), number(v, "min"),
		number(v, "max"), p99);
}

static void print_result(const json_t *r, bool with_threads)
{
	json_t *peers = json_object_get(r, "peers"), *shares = json_object_get(r, "shares"), *v;
	char name[64], p99[32];
	const char *peer;

	(void)snprintf(name, sizeof name, "%s", string(r, "name"));
	if (with_threads && json_object_get(r, "threads"))
		(void)snprintf(
			name, sizeof name, "%.40s, %.0f thr.", string(r, "name"), number(r, "threads"));
	(void)snprintf(p99, sizeof p99, "%.4g", number(r, "p99"));
	print_row(name, r, p99);
	(void)printf("  %-8s %.0f", string(r, "unit"), number(r, "n"));
	if (shares)
		(void)printf("  %.0f %% of the arithmetic limit, %.0f %% of the reading limit",
			100 * number(shares, "arithmetic"), 100 * number(shares, "reading"));
	(void)printf(json_object_get(r, "loop") ? "  (%s)\n" : "\n", string(r, "loop"));
	json_object_foreach(peers, peer, v)
	{
		(void)snprintf(name, sizeof name, "  %s", peer);
		print_row(name, v, "");
		(void)printf("  ratio %.2f\n", number(v, "ratio"));
	}
}

/* Peers that were left out, and why. */
static void print_dropped(json_t *report)
{
	const char *peer;
	json_t *v;

	json_object_foreach(json_object_get(report, "peers"), peer, v)(void) printf("%s %s%s%s\n", peer,
		json_object_get(v, "refused") ? string(v, "refused") : string(v, "failed"),
		json_object_get(v, "at") ? ", at " : "", string(v, "at"));
}

static void print_table(json_t *report)
{
	const json_t *machine = json_object_get(report, "machine"),
		     *results = json_object_get(report, "results");
	bool with_threads = !one_thread_count(results);

	(void)printf("%s %s on %s (%.0f processors), Linux %s\n", string(report, "tool"),
		string(report, "version"), string(machine, "cpu"), number(machine, "processors"),
		string(machine, "kernel"));
	(void)printf("%-24s %12s %12s %12s %12s  %-8s %s\n", "", "median", "min", "max", "p99", "unit", "n");
	for (size_t i = 0; i < json_array_size(results); i++)
		print_result(json_array_get(results, i), with_threads);
	print_dropped(report);
}

int bench_print(json_t *report, bool as_json)
{
	if (as_json) {
		cli_print_json(report);
		return CLI_OK;
	}
	print_table(report);
	json_decref(report);
	return CLI_OK;
}
