/* SPDX-License-Identifier: Apache-2.0
 * sim_sched [--seed N] [--count N] [--first N] [--what SCENE] [--break FAULT] [--verbose]
 * Without --seed: histories first..first+count-1 (count from TENON_SIM_COUNT, else 1200, or 300 with TENON_TEST_SHORT), then every known fault of
 * the fake, each of which a check must name. See README.md.
 */
#include "tests/sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_COUNT = 1200, SHORT_COUNT = 300, FAULT_TRIES = 200 };

static const struct { /* what --break can do, which check must see it, and in which scene */
	const char *name, *seen_by, *scene;
} faults[] = { { "token", "answer", NULL }, { "slot", "kv", NULL }, { "copy", "kv", "prefix" },
	{ "twice", "once", NULL }, { "lost", "counts", NULL }, { "leak", "leak", NULL },
	{ "hog", "class", "strict" }, { "budget", "budget", "strict" }, { "order", "order", "strict" },
	{ "weights", "shares", "fair" }, { "stingy", "share", "share" }, { "greedy", "share", "share" },
	{ "tenants", "hit", "tree" }, { "limit", "limit", "tiers" } };

struct args {
	uint64_t first, count;
	bool one;
	struct sim_options o;
};

static void help(void)
{
	const char *const *names;
	size_t n = sim_world_names(&names);

	(void)printf(
		"sim_sched [--seed N] [--count N] [--first N] [--what SCENE] [--break FAULT] [--verbose]\nscenes:");
	for (size_t i = 0; i < n; i++)
		(void)printf(" %s", names[i]);
	(void)printf("\nfaults:");
	for (size_t i = 0; i < COUNT_OF(faults); i++)
		(void)printf(" %s", faults[i].name);
	(void)putchar('\n');
}

static bool parse(struct args *a, int argc, char **argv)
{
	const char *count = getenv("TENON_SIM_COUNT");

	a->count = count		     ? strtoull(count, NULL, 10)
		: getenv("TENON_TEST_SHORT") ? SHORT_COUNT
					     : DEFAULT_COUNT;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--verbose")) {
			a->o.verbose = true;
			continue;
		}
		if (!v)
			return false;
		if (!strcmp(argv[i], "--seed")) {
			a->one = true;
			a->first = strtoull(v, NULL, 10);
		} else if (!strcmp(argv[i], "--count"))
			a->count = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i], "--first"))
			a->first = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i], "--what"))
			a->o.what = v;
		else if (!strcmp(argv[i], "--break"))
			a->o.fault = v;
		else
			return false;
		i++;
	}
	if (a->one)
		a->count = 1;
	return true;
}

static void tell(const struct args *a, uint64_t seed, const struct sim_verdict *v)
{
	(void)printf("sim_sched: seed %llu: %s: %s\n  replay: tests/sim/sim_sched --seed %llu",
		(unsigned long long)seed, v->what, v->text, (unsigned long long)seed);
	if (a->o.what)
		(void)printf(" --what %s", a->o.what);
	if (a->o.fault)
		(void)printf(" --break %s", a->o.fault);
	(void)printf(" --verbose\n");
	(void)fflush(stdout);
}

/* Histories that failed. */
static uint64_t run_all(const struct args *a)
{
	struct sim_verdict sum = { 0 }, v;
	uint64_t n_failed = 0;

	for (uint64_t i = 0; i < a->count; i++) {
		sim_run(a->first + i, &a->o, &v);
		sum.steps += v.steps;
		sum.requests += v.requests;
		sum.preempted += v.preempted;
		sum.replays += v.replays;
		sum.hit_tokens += v.hit_tokens;
		sum.restored += v.restored;
		sum.evicted += v.evicted;
		sum.saved += v.saved;
		sum.fair_steps += v.fair_steps;
		sum.most_owed = MAX_OF(sum.most_owed, v.most_owed);
		if (!v.failed)
			continue;
		if (++n_failed <= 20)
			tell(a, a->first + i, &v);
	}
	(void)printf(
		"sim_sched: %llu histories, %llu failed: %llu requests, %llu steps, %llu preempted, %llu replayed, %llu tokens from "
		"the cache; pages: %llu evicted, %llu saved, %llu restored; shares held against each other in %llu steps; offline work "
		"at most %.1f steps behind its share\n",
		(unsigned long long)a->count, (unsigned long long)n_failed, (unsigned long long)sum.requests,
		(unsigned long long)sum.steps, (unsigned long long)sum.preempted,
		(unsigned long long)sum.replays, (unsigned long long)sum.hit_tokens,
		(unsigned long long)sum.evicted, (unsigned long long)sum.saved,
		(unsigned long long)sum.restored, (unsigned long long)sum.fair_steps, sum.most_owed);
	return n_failed;
}

/* The checks can fail: each fault is found, by the check that is there for it. */
static bool find_fault(const struct args *a, size_t k)
{
	struct sim_options o = { .what = faults[k].scene, .fault = faults[k].name, .vocab = a->o.vocab };
	struct sim_verdict v;
	char last[24] = "none";

	for (uint64_t seed = 0; seed < FAULT_TRIES; seed++) {
		sim_run(seed, &o, &v);
		if (v.failed && !strcmp(v.what, faults[k].seen_by))
			return true;
		if (v.failed)
			(void)snprintf(last, sizeof last, "%s", v.what);
	}
	(void)printf(
		"sim_sched: fault '%s' was not found by check '%s' in %d histories (failures seen: %s)\n",
		faults[k].name, faults[k].seen_by, FAULT_TRIES, last);
	return false;
}

int main(int argc, char **argv)
{
	struct args a = { 0 };
	struct sim_vocab *vocab;
	bool ok;

	if (!parse(&a, argc, argv)) {
		help();
		return 2;
	}
	if (sim_vocab_create(&vocab))
		return 1;
	a.o.vocab = vocab;
	ok = run_all(&a) == 0;
	for (size_t k = 0; k < COUNT_OF(faults) && ok && argc == 1; k++)
		ok = find_fault(&a, k);
	sim_vocab_destroy(vocab);
	return ok ? 0 : 1;
}
