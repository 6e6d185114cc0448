/* SPDX-License-Identifier: Apache-2.0
 * tenon inspect graph: the graph as its architecture builds it and as the passes leave it for a backend, or for several: what
 * each pass did, what each node moves and computes for one token and for many, what is copied between backends, and the arena
 * against its lower bound. Nothing is loaded.
 */
#include "engine/arch.h"
#include "engine/graph_cost.h"
#include "engine/pass.h"
#include "tools/commands.h"
#include "tools/options.h"
#include <stdio.h>
#include <string.h>

enum { MAX_STEP = 8192, NAME_ROOM = 96 };

struct shown { /* a graph, or those of the parts one behind the other */
	const struct graph *g[MODEL_MAX_PARTS];
	const struct tnp_graph *t[MODEL_MAX_PARTS];
	uint32_t n;
};

struct inspect_graph {
	struct open_options open;
	uint64_t tokens, past, off;
	bool json, dot, before;
	struct opened m;
	struct graph *plain;
	struct shown builder, passed;
};

static int help(void)
{
	(void)fputs(
		"usage: tenon inspect graph -m MODEL [OPTION]...\n\n"
		"The model's graph before and behind the passes (docs/passes.md): nodes, bytes moved and arithmetic.\n\n" OPEN_MODEL_HELP
		"      --before             list the nodes as the architecture builds them\n"
		"      --after              list them as the backend gets them (default)\n"
		"      --tokens N           count a step of N tokens beside one of one token (default 512)\n"
		"      --past N             tokens before the step, for attention (default 0)\n"
		"      --dot                a drawing for graphviz instead\n"
		"      --json               one JSON object instead\n\n"
		"examples:\n"
		"  tenon inspect graph -m smollm2-135m\n"
		"  tenon inspect graph -m model.gguf --passes=-fuse_qkv --tokens 256 --json\n"
		"  tenon inspect graph -m model.gguf --backend cpu=15,ref\n"
		"  tenon inspect graph -m model.gguf --before --dot | dot -Tsvg >graph.svg\n",
		stdout);
	return CLI_OK;
}

static struct graph_step step_of(const struct inspect_graph *p, uint32_t tokens)
{
	return (struct graph_step){ .n_tokens = tokens,
		.n_seqs = 1,
		.n_out = 1,
		.past = p->past,
		.kv_type = model_info(p->m.model)->kv_type };
}

static struct graph_cost cost_of(
	const struct inspect_graph *p, const struct tnp_graph *t, uint32_t node, uint64_t tokens)
{
	struct graph_step s = step_of(p, (uint32_t)tokens);
	struct graph_cost c;

	graph_node_cost(t, node, &s, &c);
	return c;
}

static struct graph_cost total_of(const struct inspect_graph *p, const struct shown *s, uint64_t tokens)
{
	struct graph_step step = step_of(p, (uint32_t)tokens);
	struct graph_cost sum = { 0 };

	for (uint32_t k = 0; k < s->n; k++) {
		struct graph_cost c;

		graph_total_cost(s->t[k], &step, &c);
		sum.weight_bytes += c.weight_bytes;
		sum.activation_bytes += c.activation_bytes;
		sum.kv_bytes += c.kv_bytes;
		sum.operations += c.operations;
	}
	return sum;
}

struct sums {
	uint64_t arena, live;
	uint32_t n_nodes;
	double ratio;
};

static struct sums sums_of(const struct shown *s)
{
	struct sums x = { 0 };

	for (uint32_t k = 0; k < s->n; k++) {
		x.arena += s->t[k]->arena_bytes;
		x.live += graph_live_bytes(s->g[k]);
		x.n_nodes += s->t[k]->n_nodes;
	}
	x.ratio = x.live ? (double)x.arena / (double)x.live : 1;
	return x;
}

static uint64_t bytes_of(const struct graph_cost *c)
{
	return c->weight_bytes + c->activation_bytes + c->kv_bytes;
}

/* "[n][576]"; n tokens, s sequences, o rows asked for. */
static void shape_text(const struct tnp_tensor *x, char *out, size_t room)
{
	size_t at = 0;

	*out = 0;
	for (uint32_t d = 0; d < x->rank && at < room; d++)
		if (x->dim[d] < 0)
			at += (size_t)snprintf(out + at, room - at, "[%s]",
				x->dim[d] == TNP_N_TOKENS	  ? "n"
					: x->dim[d] == TNP_N_SEQS ? "s"
								  : "o");
		else
			at += (size_t)snprintf(out + at, room - at, "[%lld]", (long long)x->dim[d]);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *cost_json(const struct graph_cost *c)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "weight_bytes", (json_int_t)c->weight_bytes,
		"activation_bytes", (json_int_t)c->activation_bytes, "kv_bytes", (json_int_t)c->kv_bytes,
		"operations", (json_int_t)c->operations);
}

static json_t *costs_json(const struct graph_cost *one, const struct graph_cost *many)
{
	return json_pack("{s:o, s:o}", "one", cost_json(one), "many", cost_json(many));
}

/* Node i of part k. Numbers of tensors are the part's. */
static json_t *node_json(const struct inspect_graph *p, const struct shown *s, uint32_t k, uint32_t i)
{
	const struct tnp_graph *g = s->t[k];
	const struct tnp_node *n = &g->nodes[i];
	struct graph_cost one = cost_of(p, g, i, 1), many = cost_of(p, g, i, p->tokens);
	json_t *in = json_array(), *out = json_array(), *weights = json_array(), *o;
	char name[NAME_ROOM];

	for (uint32_t j = 0; j < n->n_in; j++) {
		uint32_t t = g->edges[n->in0 + j];
		const struct gguf_tensor *w = graph_file_tensor(s->g[k], t);

		if (g->tensors[t].buffer == TNP_NONE)
			(void)json_array_append_new(in, json_integer(t));
		else if (!w || json_array_append_new(weights, json_stringn(w->name.s, w->name.len)))
			(void)json_array_append_new(weights, json_string(w ? "(not text)" : "constant"));
	}
	for (uint32_t j = 0; j < n->n_out; j++)
		(void)json_array_append_new(out, json_integer(g->edges[n->out0 + j]));
	graph_node_name(s->g[k], i, name, sizeof name);
	o = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "op", graph_op_name(n->op), "name", name, "in", in,
		"weights", weights, "out", out, "cost", costs_json(&one, &many));
	if (s->n > 1)
		(void)json_object_set_new(o, "part", json_integer(k));
	return o;
}

static json_t *graph_json(const struct inspect_graph *p, const struct shown *s, bool nodes)
{
	struct graph_cost one = total_of(p, s, 1), many = total_of(p, s, p->tokens);
	struct sums x = sums_of(s);
	json_t *o = json_pack("{s:i, s:I, s:I, s:f, s:o}", "n_nodes", (int)x.n_nodes, "arena_bytes",
		(json_int_t)x.arena, "live_bytes", (json_int_t)x.live, "arena_ratio", x.ratio, "cost",
		costs_json(&one, &many));
	json_t *list = json_array();

	for (uint32_t k = 0; nodes && k < s->n; k++)
		for (uint32_t i = 0; i < s->t[k]->n_nodes; i++)
			(void)json_array_append_new(list, node_json(p, s, k, i));
	if (nodes)
		(void)json_object_set_new(o, "nodes", list);
	else
		json_decref(list);
	return o;
}

static json_t *passes_json(const struct inspect_graph *p)
{
	const struct pass_report *r = model_pass_report(p->m.model);
	json_t *list = json_array();

	for (uint32_t i = 0; i < PASS_N; i++)
		(void)json_array_append_new(list,
			json_pack("{s:s, s:b, s:i, s:i}", "name", pass_at(i)->name, "on", !(p->off >> i & 1),
				"changes", (int)r->pass[i].changes, "nodes", (int)r->pass[i].nodes));
	return list;
}

static json_t *parts_json(const struct inspect_graph *p)
{
	json_t *list = json_array();

	for (uint32_t k = 0; k < model_n_parts(p->m.model); k++) {
		struct model_part part = model_part_at(p->m.model, k);

		(void)json_array_append_new(list,
			json_pack("{s:s, s:i, s:i, s:i, s:I, s:I}", "backend", backend_name(part.backend),
				"first_layer", (int)part.layer0, "n_layers", (int)part.n_layers, "n_nodes",
				(int)part.nodes->n_nodes, "copied_bytes_one", (json_int_t)part.copied_bytes,
				"copied_bytes_many", (json_int_t)(part.copied_bytes * p->tokens)));
	}
	return list;
}

static void print_json(const struct inspect_graph *p)
{
	const struct model_info *i = model_info(p->m.model);

	cli_print_json(json_pack("{s:s, s:s, s:o, s:i, s:i, s:i, s:o, s:o, s:o}", "model", i->name, "backend",
		i->backend, "parts", parts_json(p), "tokens", (int)p->tokens, "past", (int)p->past, "rounds",
		(int)model_pass_report(p->m.model)->rounds, "passes", passes_json(p), "before",
		graph_json(p, &p->builder, p->before), "after", graph_json(p, &p->passed, !p->before)));
}

/* ---- for people, for graphviz --------------------------------------------------------------------------------------- */

static void print_passes(const struct inspect_graph *p)
{
	const struct pass_report *r = model_pass_report(p->m.model);
	const struct model_info *m = model_info(p->m.model);

	(void)printf("%s for backend %s: %u nodes, %u behind the passes (%u rounds)\n", m->name, m->backend,
		r->n_before, r->n_after, r->rounds);
	for (uint32_t i = 0; i < PASS_N; i++)
		(void)printf("  %-24s %5d nodes  %s\n", pass_at(i)->name, (int)r->pass[i].nodes,
			p->off >> i & 1 ? "(off)" : pass_at(i)->line);
}

static void print_cost(const struct graph_cost *c)
{
	(void)printf(" %10.1f %10.1f %12.3f", (double)c->weight_bytes / 1024,
		(double)(c->activation_bytes + c->kv_bytes) / 1024, (double)c->operations / 1e6);
}

static void print_node(const struct inspect_graph *p, const struct shown *s, uint32_t k, uint32_t i)
{
	const struct tnp_graph *g = s->t[k];
	const struct tnp_node *n = &g->nodes[i];
	struct graph_cost one = cost_of(p, g, i, 1), many = cost_of(p, g, i, p->tokens);
	char name[NAME_ROOM], shape[64] = "";

	graph_node_name(s->g[k], i, name, sizeof name);
	if (n->n_out)
		shape_text(&g->tensors[g->edges[n->out0]], shape, sizeof shape);
	(void)printf("%4u %-30s %-14s", i, name, shape);
	print_cost(&one);
	print_cost(&many);
	(void)puts("");
}

static void print_totals(const struct inspect_graph *p, const char *what, const struct shown *s)
{
	struct graph_cost one = total_of(p, s, 1), many = total_of(p, s, p->tokens);
	struct sums x = sums_of(s);

	(void)printf("%4u %-45s", x.n_nodes, what);
	print_cost(&one);
	print_cost(&many);
	(void)printf("\n     %-45s arena %.1f KiB, at least %.1f KiB: %.3f times\n", "",
		(double)x.arena / 1024, (double)x.live / 1024, x.ratio);
}

/* Of a model on several backends: where part k begins and what is copied to it. */
static void print_part(const struct inspect_graph *p, uint32_t k)
{
	struct model_part part = model_part_at(p->m.model, k);

	(void)printf("---- layers %u to %u on %s", part.layer0, part.layer0 + part.n_layers - 1,
		backend_name(part.backend));
	if (part.copied_bytes)
		(void)printf("; copied to it: %.1f KiB, %.1f KiB", part.copied_bytes / 1024.0,
			(double)(part.copied_bytes * p->tokens) / 1024);
	(void)puts("");
}

static void print_text(const struct inspect_graph *p)
{
	const struct shown *s = p->before ? &p->builder : &p->passed;
	char many[32];

	print_passes(p);
	(void)snprintf(many, sizeof many, "%llu tokens", (unsigned long long)p->tokens);
	(void)printf("\n%-50s %34s %34s\n", "", "one token", many);
	(void)printf("%4s %-30s %-14s %10s %10s %12s %10s %10s %12s\n", "", "node", "result", "weights KiB",
		"other KiB", "Mop", "weights KiB", "other KiB", "Mop");
	for (uint32_t k = 0; k < s->n; k++) {
		if (s->n > 1)
			print_part(p, k);
		for (uint32_t i = 0; i < s->t[k]->n_nodes; i++)
			print_node(p, s, k, i);
	}
	print_totals(p, "before the passes", &p->builder);
	print_totals(p, "behind the passes", &p->passed);
}

/* maker: node of part k that writes a tensor; TNP_NONE: it comes from outside. */
static void print_dot_edges(const struct shown *s, uint32_t k, uint32_t i, const uint32_t *maker)
{
	const struct tnp_graph *g = s->t[k];
	const struct tnp_node *n = &g->nodes[i];
	char shape[64];

	for (uint32_t j = 0; j < n->n_in; j++) {
		uint32_t t = g->edges[n->in0 + j];

		if (g->tensors[t].buffer != TNP_NONE)
			continue;
		shape_text(&g->tensors[t], shape, sizeof shape);
		if (maker[t] == TNP_NONE)
			(void)printf("\tin%u -> p%un%u [label=\"%s\"];\n", k, k, i, shape);
		else
			(void)printf("\tp%un%u -> p%un%u [label=\"%s\"];\n", k, maker[t], k, i, shape);
	}
}

/* Part k begins with a copy of what the last part has made: `from`, a node of it. */
static void print_dot_copy(const struct inspect_graph *p, uint32_t k, uint32_t from)
{
	struct model_part part = model_part_at(p->m.model, k);

	(void)printf("\tin%u [shape=ellipse, label=\"copy to %s\\n%u bytes a token\"];\n\tp%un%u -> in%u;\n",
		k, backend_name(part.backend), part.copied_bytes, k - 1, from, k);
}

/* maker: [tensors] room. */
static void print_dot_part(const struct inspect_graph *p, const struct shown *s, uint32_t k, uint32_t *maker)
{
	const struct tnp_graph *g = s->t[k];
	char name[NAME_ROOM];

	memset(maker, 0xff, g->n_tensors * sizeof *maker);
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct tnp_node *n = &g->nodes[i];
		struct graph_cost one = cost_of(p, g, i, 1);

		graph_node_name(s->g[k], i, name, sizeof name);
		(void)printf("\tp%un%u [label=\"%s\\n%.1f KiB, %.3f Mop a token\"];\n", k, i, name,
			(double)bytes_of(&one) / 1024, (double)one.operations / 1e6);
		print_dot_edges(s, k, i, maker);
		for (uint32_t j = 0; j < n->n_out; j++)
			maker[g->edges[n->out0 + j]] = i;
	}
	if (k + 1 < s->n)
		print_dot_copy(p, k + 1, maker[g->out[0]]);
}

static int print_dot(const struct inspect_graph *p)
{
	const struct shown *s = p->before ? &p->builder : &p->passed;
	uint32_t most = 0, *maker;

	for (uint32_t k = 0; k < s->n; k++)
		most = MAX_OF(most, s->t[k]->n_tensors);
	maker = mem_alloc(MEM_TOOL, most * sizeof *maker);
	if (!maker)
		return cli_fail("inspect: no memory");
	(void)puts(
		"digraph tenon {\n\tnode [shape=box, fontname=sans];\n\tedge [fontname=sans, fontsize=9];");
	for (uint32_t k = 0; k < s->n; k++)
		print_dot_part(p, s, k, maker);
	(void)puts("}");
	mem_free(maker);
	return CLI_OK;
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */

/* The builder's graph, planned for the same steps. */
static int build_plain(struct inspect_graph *p, struct error *e)
{
	const struct model_info *i = model_info(p->m.model);
	const struct gguf *f = model_file(p->m.model);
	const struct arch *a;
	struct arch_params ap;
	int rc = arch_find(f, &a, e);

	if (!rc)
		rc = arch_params_read(f, a, &ap, e);
	if (!rc)
		rc = graph_create(f, &p->plain, e);
	if (rc)
		return rc;
	a->build(f, &ap, p->plain);
	p->builder = (struct shown){ .g = { p->plain },
		.t = { graph_finish(p->plain, i->step_tokens, i->step_seqs, i->step_out, e) },
		.n = 1 };
	p->passed.n = model_n_parts(p->m.model);
	for (uint32_t k = 0; k < p->passed.n; k++) {
		struct model_part part = model_part_at(p->m.model, k);

		p->passed.g[k] = part.graph;
		p->passed.t[k] = part.nodes;
	}
	return p->builder.t[0] ? TENON_OK : e->code;
}

static int parse(int argc, char **argv, struct inspect_graph *p)
{
	bool after = false;
	const struct option_row rows[] = {
		{ .name = "json", .flag = &p->json },
		{ .name = "dot", .flag = &p->dot },
		{ .name = "before", .flag = &p->before },
		{ .name = "after", .flag = &after },
		{ .name = "tokens", .number = &p->tokens, .lo = 1, .hi = MAX_STEP },
		{ .name = "past", .number = &p->past, .lo = 0, .hi = INT32_MAX },
	};
	const char *cmd = "tenon inspect graph";
	int status = options_parse(cmd, argc, argv, help, &p->open, rows, COUNT_OF(rows));

	if (!status && p->json && p->dot)
		return cli_usage(cmd, "--dot and --json are two forms; one of them");
	return !status && p->before && after
		? cli_usage(cmd, "--before and --after are two lists; one of them")
		: status;
}

int cmd_inspect_graph(int argc, char **argv)
{
	struct inspect_graph p = { .tokens = 512 };
	struct error e = { 0 };
	int status = parse(argc, argv, &p), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	p.open.o.measure_only = true;
	rc = pass_names_parse(p.open.passes, &p.off, &e);
	if (!rc)
		rc = open_model(&p.open, &p.m, &e);
	if (!rc)
		rc = build_plain(&p, &e);
	if (rc)
		status = cli_fail_error("inspect", &e);
	else if (p.dot)
		status = print_dot(&p);
	else if (p.json)
		print_json(&p);
	else
		print_text(&p);
	graph_destroy(p.plain);
	open_model_close(&p.m);
	return status;
}
