/* SPDX-License-Identifier: Apache-2.0
 * pass.h: the table, names, and the order in which passes run.
 */
#include "engine/pass.h"
#include "engine/pass_edit.h"
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 16 };

static const struct graph_pass passes[PASS_N] = {
#define PASS(name, line) [PASS_##name] = { #name, line, pass_##name },
#include "engine/passes.def"
#undef PASS
};

const struct graph_pass *pass_at(enum pass_id id) { return &passes[id]; }

/* ---- names --------------------------------------------------------------------------------------------------------- */

static void names_list(char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < PASS_N && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", passes[i].name);
}

/* The bits of a name; 0: there is none such. */
static uint64_t name_bits(const char *s, size_t len)
{
	if (len == 3 && !memcmp(s, "all", len))
		return (UINT64_C(1) << PASS_N) - 1;
	for (size_t i = 0; i < PASS_N; i++)
		if (strlen(passes[i].name) == len && !memcmp(passes[i].name, s, len))
			return UINT64_C(1) << i;
	return 0;
}

int pass_names_parse(const char *text, uint64_t *off, struct error *e)
{
	uint64_t bits = 0;
	char all[256];

	for (const char *s = text ? text : ""; *s;) {
		size_t len = strcspn(s, ",");
		uint64_t one = len && (*s == '-' || *s == '+') ? name_bits(s + 1, len - 1) : 0;

		if (!one) {
			names_list(all, sizeof all);
			return error_set(e, TENON_E_INVALID,
				"passes: '%.*s' is none; a '-' (off) or '+' (on) in front of one of %s, all",
				(int)MIN_OF(len, (size_t)40), s, all);
		}
		bits = *s == '-' ? bits | one : bits & ~one;
		s += len + (s[len] == ',');
	}
	*off = bits;
	return TENON_OK;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void run_one(struct pass_edit *x, enum pass_id id, struct pass_report *r)
{
	uint32_t before = x->g->g.n_nodes;

	x->changes = 0;
	passes[id].run(x);
	if (!x->changes || x->g->e.code)
		return;
	pass_rebuild(x, NULL, NULL);
	r->pass[id].changes += x->changes;
	r->pass[id].nodes += (int32_t)(x->g->g.n_nodes - before);
}

/* True when something changed. */
static bool run_round(struct pass_edit *x, struct pass_report *r)
{
	bool changed = false;

	for (uint32_t id = 0; id < PASS_layout && !x->g->e.code; id++)
		if (!(x->o->off >> id & 1)) {
			run_one(x, id, r);
			changed |= x->changes != 0;
		}
	return changed;
}

/* Tensors that nobody names any more go; the others keep their order. */
static void tidy(struct graph *g)
{
	uint32_t *to = mem_zalloc(MEM_ENGINE, g->g.n_tensors, sizeof *to), n = 0;

	if (!to) {
		graph_fail(g, TENON_E_NOMEM, "graph: no memory for the passes");
		return;
	}
	for (uint32_t i = 0; i < g->g.n_edges; i++)
		to[g->edges[i]] = 1;
	for (uint32_t i = 0; i < g->g.n_in; i++)
		to[g->in[i]] = 1;
	for (uint32_t i = 0; i < g->g.n_out; i++)
		to[g->out[i]] = 1;
	for (uint32_t i = 0; i < g->g.n_tensors; i++)
		if (to[i]) {
			g->tensors[n] = g->tensors[i];
			g->sources[n] = g->sources[i];
			to[i] = n++;
		}
	g->g.n_tensors = n;
	for (uint32_t i = 0; i < g->g.n_edges; i++)
		g->edges[i] = to[g->edges[i]];
	for (uint32_t i = 0; i < g->g.n_in; i++)
		g->in[i] = to[g->in[i]];
	for (uint32_t i = 0; i < g->g.n_out; i++)
		g->out[i] = to[g->out[i]];
	mem_free(to);
}

void graph_passes_run(struct graph *g, const struct pass_options *o, struct pass_report *report)
{
	struct pass_report ours, *r = report ? report : &ours;
	struct pass_edit x = { .g = g, .o = o };
	bool changed;

	*r = (struct pass_report){ .n_before = g->g.n_nodes };
	changed = !g->e.code && pass_index(&x);
	for (; changed && r->rounds < ROUNDS; r->rounds++)
		changed = run_round(&x, r);
	if (!g->e.code && !(o->off >> PASS_layout & 1))
		run_one(&x, PASS_layout, r);
	mem_free(x.maker);
	mem_free(x.uses);
	mem_free(x.same);
	if (!g->e.code)
		tidy(g);
	r->n_after = g->g.n_nodes;
}
