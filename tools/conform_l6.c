/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 6: speed. Printed, never judged: how a step's time grows with its tokens, and what handing
 * one over costs.
 */
#include "tools/conform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64u

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Median and 99th percentile of n steps of `tokens` tokens; the first part of each is `batch`, the second `wait`. */
static void measure(struct conform *c, struct run_model *m, uint32_t tokens, char *line, size_t room)
{
	uint64_t submit[200], total[200];
	struct tnp_error e = { .size = sizeof e };
	uint32_t page[MOST], n = c->thorough ? 200 : 40;
	struct run_seq s = {
		.n = tokens, .n_out = 1, .n_page = (tokens + m->lim.page_tokens - 1) / m->lim.page_tokens
	};
	struct run_arrays a;

	for (uint32_t i = 0; i < MOST; i++)
		page[i] = i;
	for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
		s.page[g] = page;
	run_make(c, m, &s, 1, &a);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t t0 = clock_now_ns(), ticket = 0, t1;
		tnp_rc rc = m->p->ops->batch(m->model, m->kv, &a.b, &ticket, &e);

		t1 = clock_now_ns();
		if (!rc)
			rc = m->p->ops->wait(m->p->dev, ticket, UINT64_MAX, &e);
		if (rc)
			conform_fail(c, "%s: %s", conform_code(rc), e.text);
		submit[i] = t1 - t0;
		total[i] = clock_now_ns() - t0;
	}
	run_free(&a);
	qsort(submit, n, sizeof *submit, by_value);
	qsort(total, n, sizeof *total, by_value);
	(void)snprintf(line, room, "%u tokens: %.0f us (p99 %.0f), submit %.1f us; ", tokens,
		(double)total[n / 2] / 1e3, (double)total[n * 99 / 100] / 1e3, (double)submit[n / 2] / 1e3);
}

static void check_speed(struct conform *c)
{
	static const uint32_t tokens[] = { 1, 8, 64 };
	struct tnp_error e = { .size = sizeof e };
	struct run_limits lim;
	const struct tnp_graph *g;
	struct tnp_make *make;
	struct run_model m;
	size_t at = 0;

	conform_open(c);
	make = made_model_any(c, &g);
	if (!make)
		conform_skip(c, "takes no whole model");
	lim = conform_limits(c);
	lim.precision = TNP_FAST;
	if (run_open(&m, &c->sut, g, &lim, &e))
		conform_fail(c, "open: %s", e.text);
	for (size_t i = 0; i < COUNT_OF(tokens); i++) {
		measure(c, &m, tokens[i], c->result->text + at, sizeof c->result->text - at);
		at += strlen(c->result->text + at);
	}
	run_close(&m);
	tnp_make_destroy(make);
	conform_close(c);
}

const struct conform_check conform_l6[] = {
	{ 6, "speed.steps", check_speed },
	{ 6, NULL, NULL },
};
