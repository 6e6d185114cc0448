/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 6: speed. Every step must come back with TNP_OK; times are printed, never judged: how a step's
 * time is spread, how it grows with its tokens and with its sequences, and what handing one over costs.
 */
#include "tools/conform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, SEQS = 8 }; /* pages, sequences */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct shape {
	uint32_t n_seqs, n_tokens, past; /* of each sequence */
};

static double us(const uint64_t *sorted, uint32_t n, uint32_t percent)
{
	return (double)sorted[(n - 1) * percent / 100] / 1e3;
}

/* n steps; the first part of each is `batch`, the second `wait`. */
static void run_steps(struct conform *c, struct run_model *m, struct run_arrays *a, uint32_t n,
	uint64_t *submit, uint64_t *total)
{
	struct tnp_error e = { .size = sizeof e };

	for (uint32_t i = 0; i < n; i++) {
		uint64_t t0 = clock_now_ns(), ticket = 0, t1;
		tnp_rc rc = m->p->ops->batch(m->model, m->kv, &a->b, &ticket, &e);

		t1 = clock_now_ns();
		if (!rc)
			rc = m->p->ops->wait(m->p->dev, ticket, UINT64_MAX, &e);
		for (uint32_t s = 0; !rc && s < a->b.n_seqs; s++)
			rc = a->seq_rc[s];
		if (rc)
			conform_fail(c, "step %u: %s: %s", i, conform_code(rc), e.text);
		submit[i] = t1 - t0;
		total[i] = clock_now_ns() - t0;
	}
	qsort(submit, n, sizeof *submit, by_value);
	qsort(total, n, sizeof *total, by_value);
}

/* Each sequence has pages of its own; the first step writes what `past` speaks of. */
static void measure(struct conform *c, struct run_model *m, const struct shape *x, char *line, size_t room)
{
	uint64_t submit[200], total[200];
	uint32_t page[SEQS][MOST], n = c->thorough ? 200 : 40;
	uint32_t pages = (x->past + x->n_tokens + m->lim.page_tokens - 1) / m->lim.page_tokens;
	struct run_seq s[SEQS] = { 0 };
	struct run_arrays a;

	for (uint32_t q = 0; q < x->n_seqs; q++) {
		for (uint32_t i = 0; i < pages; i++)
			page[q][i] = q * pages + i;
		s[q] = (struct run_seq){ .n = x->past ? x->past : x->n_tokens, .n_out = 1, .n_page = pages };
		for (uint32_t g = 0; g < TNP_MAX_GROUPS; g++)
			s[q].page[g] = page[q];
	}
	for (uint32_t q = 0; x->past && q < x->n_seqs; q++) {
		run_make(c, m, &s[q], 1, &a);
		run_steps(c, m, &a, 1, submit, total);
		run_free(&a);
		s[q].past = x->past;
		s[q].n = x->n_tokens;
	}
	run_make(c, m, s, x->n_seqs, &a);
	run_steps(c, m, &a, n, submit, total);
	run_free(&a);
	(void)snprintf(line, room, "%ux%u behind %u: %.0f us (least %.0f, p90 %.0f, p99 %.0f, submit %.1f)",
		x->n_seqs, x->n_tokens, x->past, us(total, n, 50), us(total, n, 0), us(total, n, 90),
		us(total, n, 99), us(submit, n, 50));
}

static void check_speed(struct conform *c)
{
	static const struct shape shapes[] = { { 1, 1, 0 }, { 1, 1, 48 }, { 1, 8, 0 }, { 1, 64, 0 },
		{ 8, 1, 7 } };
	struct tnp_error e = { .size = sizeof e };
	struct run_limits lim;
	const struct tnp_graph *g;
	struct tnp_make *make;
	struct run_model m;

	conform_open(c);
	make = made_model_any(c, &g);
	if (!make)
		conform_skip(c, "takes no whole model");
	lim = conform_limits(c);
	lim.precision = TNP_FAST;
	if (run_open(&m, &c->sut, g, &lim, &e))
		conform_fail(c, "open: %s", e.text);
	for (size_t i = 0; i < COUNT_OF(shapes); i++) {
		char line[128], *text = c->result->text;
		size_t at = strlen(text);

		conform_note(c, "%u x %u tokens", shapes[i].n_seqs, shapes[i].n_tokens);
		measure(c, &m, &shapes[i], line, sizeof line);
		(void)snprintf(text + at, sizeof c->result->text - at, "%s%s", i ? "; " : "", line);
	}
	run_close(&m);
	tnp_make_destroy(make);
	conform_close(c);
}

const struct conform_check conform_l6[] = {
	{ 6, "speed.steps", check_speed },
	{ 6, NULL, NULL },
};
