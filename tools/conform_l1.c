/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 1: memory. What model_sizes says against what the process really takes (host memory; a
 * device's own memory is not seen from here), refusal when there is not enough, and no growth over many openings.
 */
#include "tools/conform.h"
#include "tools/conform_alloc.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of private memory that are really there. */
static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long long kib = 0;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	if (f)
		(void)fclose(f);
	return kib * 1024;
}

static uint32_t entries(const char *path)
{
	DIR *d = opendir(path);
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		(void)closedir(d);
	return n;
}

static struct tnp_make *some_model(struct conform *c, const struct tnp_graph **g)
{
	struct tnp_make *m = made_model_any(c, g);

	if (!m)
		conform_skip(c, "takes no whole model");
	return m;
}

/* A batch as large as the limits allow, so that everything is touched. */
static void full_batch(struct conform *c, struct run_model *m, uint32_t n)
{
	struct run_seq s = { .n = n, .n_out = n };
	struct tnp_error e = { .size = sizeof e };
	uint32_t page[64];
	tnp_rc rc;

	s.out[0] = calloc((uint64_t)n * run_width(m->g, m->g->out[0]), sizeof(float));
	s.n_page = (n + m->lim.page_tokens - 1) / m->lim.page_tokens;
	for (uint32_t i = 0; i < COUNT_OF(page); i++)
		page[i] = i;
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		s.page[g] = page;
	rc = run_batch(c, m, &s, 1, &e);
	if (rc || s.rc)
		conform_fail(c, "batch: %s: %s", conform_code(rc ? rc : s.rc), e.text);
	free(s.out[0]);
}

static void sizes(struct conform *c, struct tnp_make *make, const struct tnp_graph *g)
{
	struct run_limits r;
	struct tnp_sizes again = { .size = sizeof again };
	struct tnp_error e = { .size = sizeof e };
	struct run_model m;
	uint64_t before, taken, said = 0;

	r = conform_limits(c);
	r.max_tokens = 512;
	r.max_pages = 64;
	r.page_tokens = MAX_OF(c->page_tokens, 16u);
	before = resident();
	if (run_open(&m, &c->sut, g, &r, &e))
		conform_fail(c, "open: %s", e.text);
	full_batch(c, &m, 512);
	taken = resident() - MIN_OF(before, resident());
	if (c->sut.ops->model_sizes(c->sut.dev, g, &m.lim, &again, &e) ||
		memcmp(&again, &m.sizes, sizeof again))
		conform_fail(c, "model_sizes answers differently the second time");
	said = m.sizes.weights_own + m.sizes.workspace;
	for (uint32_t i = 0; i < m.n_groups; i++)
		said += m.sizes.kv_page[i] * m.n_pages;
	conform_note(c, "said %llu KiB, took %llu KiB", (unsigned long long)said >> 10,
		(unsigned long long)taken >> 10);
	if (!conform_sanitized() && taken > said + said / 8 + (6u << 20))
		conform_fail(c, "takes more than model_sizes says");
	run_close(&m);
	tnp_make_destroy(make);
}

static void check_sizes(struct conform *c)
{
	const struct tnp_graph *g;
	struct tnp_make *make;

	conform_open(c);
	make = some_model(c, &g);
	sizes(c, make, g);
	conform_close(c);
}

static void check_sizes_experts(struct conform *c)
{
	const struct tnp_graph *g;
	struct tnp_make *make;

	conform_open(c);
	make = made_model_for(c, made_model_find("experts"), &g);
	if (!make)
		conform_skip(c, "does not take model 'experts'");
	sizes(c, make, g);
	conform_close(c);
}

static void check_refusal(struct conform *c)
{
	const struct tnp_graph *g;
	struct run_limits r;
	struct run_model m;
	struct tnp_limits lim;
	struct tnp_model *none = NULL;
	struct tnp_error e = { .size = sizeof e };
	struct tnp_make *make;
	tnp_rc rc;

	conform_open(c);
	make = some_model(c, &g);
	r = conform_limits(c);
	conform_note(c, "a pool of 2^31 pages");
	r.n_pages = 1u << 31;
	rc = run_open(&m, &c->sut, g, &r, &e);
	if (!rc && !m.n_slots)
		run_close(&m);
	else if (rc != TNP_E_NOMEM)
		conform_fail(c, "%s, want TNP_E_NOMEM", conform_code(rc));
	conform_note(c, "workspace_limit of one byte");
	run_limits_set(&lim, &r);
	lim.workspace_limit = 1;
	rc = c->sut.ops->model_open(c->sut.dev, g, &lim, &none, &e);
	if (rc != TNP_E_NOMEM || none)
		conform_fail(c, "%s%s, want TNP_E_NOMEM", conform_code(rc), none ? " and a model" : "");
	tnp_make_destroy(make);
	conform_close(c);
}

static void open_once(struct conform *c, const struct tnp_graph *g, const struct run_limits *r)
{
	struct tnp_error e = { .size = sizeof e };
	struct run_model m;

	if (run_open(&m, &c->sut, g, r, &e))
		conform_fail(c, "open: %s", e.text);
	full_batch(c, &m, 3);
	run_close(&m);
}

static void check_growth(struct conform *c)
{
	uint32_t n = c->thorough ? 1000 : 150, files, threads;
	const struct tnp_graph *g;
	struct run_limits r;
	struct tnp_make *make;
	uint64_t first, last;

	conform_open(c);
	make = some_model(c, &g);
	r = conform_limits(c);
	for (uint32_t i = 0; i < 20; i++)
		open_once(c, g, &r);
	first = resident();
	files = entries("/proc/self/fd");
	threads = entries("/proc/self/task");
	for (uint32_t i = 0; i < n; i++) {
		conform_note(c, "opening %u of %u", i + 1, n);
		open_once(c, g, &r);
	}
	last = resident();
	if (!conform_sanitized() && last > first + (2u << 20) + (uint64_t)n * 64)
		conform_fail(c, "memory grew by %llu KiB", (unsigned long long)(last - first) >> 10);
	if (entries("/proc/self/fd") != files || entries("/proc/self/task") != threads)
		conform_fail(c, "descriptors or threads are left behind");
	tnp_make_destroy(make);
	conform_close(c);
}

const struct conform_check conform_l1[] = {
	{ 1, "memory.sizes", check_sizes },
	{ 1, "memory.sizes-experts", check_sizes_experts },
	{ 1, "memory.refusal", check_refusal },
	{ 1, "memory.growth", check_growth },
	{ 1, NULL, NULL },
};
