/* SPDX-License-Identifier: Apache-2.0
 * profile.h: from rows of a backend (struct tnp_timing) to operators. Rows of one lane with the same times, one behind
 * the other, are one piece of work for several nodes, the main one first (docs/plugin-abi.md).
 */
#include "tools/profile.h"
#include "engine/graph.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 22, MAX_TRACE_BYTES = 512 << 20, FIRST_OPS = 256 };

/* ---- switching -------------------------------------------------------------------------------------------------------- */

int profile_init(struct profile *p, struct model *m, bool trace, struct error *e)
{
	*p = (struct profile){ .model = m, .trace = trace };
	buf_init(&p->spans, MEM_TOOL, MAX_TRACE_BYTES);
	buf_init(&p->events, MEM_TOOL, MAX_TRACE_BYTES);
	for (uint32_t i = 0; i < model_n_parts(m); i++) {
		struct model_part part = model_part_at(m, i);

		if (!backend_has(part.backend, TNP_F_PROFILE))
			return error_set(e, TENON_E_UNSUPPORTED,
				"backend '%s' does not time its operators; choose another with --backend",
				backend_name(part.backend));
		p->op_of[i] = mem_alloc(MEM_TOOL, (part.nodes->n_nodes + 1) * sizeof *p->op_of[i]);
		if (!p->op_of[i])
			return error_set(
				e, TENON_E_NOMEM, "no memory for a list of %u nodes", part.nodes->n_nodes);
	}
	return TENON_OK;
}

void profile_finish(struct profile *p)
{
	for (uint32_t i = 0; i < MODEL_MAX_PARTS; i++)
		mem_free(p->op_of[i]);
	for (uint32_t i = 0; i < p->n_phases; i++)
		mem_free(p->phase[i].op);
	mem_free(p->rows);
	mem_free(p->order);
	buf_finish(&p->spans);
	buf_finish(&p->events);
	*p = (struct profile){ 0 };
}

int profile_switch(struct profile *p, bool on, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i < model_n_parts(p->model) && !rc; i++)
		rc = backend_profile(model_part_at(p->model, i).compute, on, NULL, NULL, e);
	return rc;
}

struct profile_phase *profile_phase_begin(struct profile *p, const char *name, uint32_t n_seqs)
{
	struct profile_phase *ph = &p->phase[p->n_phases++];

	*ph = (struct profile_phase){ .name = name, .n_seqs = n_seqs };
	for (uint32_t i = 0; i < model_n_parts(p->model); i++)
		memset(p->op_of[i], 0xff,
			(model_part_at(p->model, i).nodes->n_nodes + 1) * sizeof *p->op_of[i]);
	return ph;
}

static struct profile_phase *current(struct profile *p) { return &p->phase[p->n_phases - 1]; }

/* ---- names -------------------------------------------------------------------------------------------------------------- */

static void name_add(char *name, const char *between, const char *text, size_t len)
{
	size_t at = strlen(name);

	if (at + strlen(between) + len < PROFILE_NAME)
		(void)snprintf(name + at, PROFILE_NAME - at, "%s%.*s", at ? between : "", (int)len, text);
}

/* "blk.3.attn_q.weight" as "attn_q". */
static void weight_add(char *name, const struct gguf_tensor *w)
{
	const char *s = w->name.s;
	size_t len = w->name.len, skip = 0;

	if (len > 4 && !memcmp(s, "blk.", 4))
		for (skip = 4; skip < len && s[skip] >= '0' && s[skip] <= '9'; skip++)
			;
	skip += skip && skip < len && s[skip] == '.';
	s += skip;
	len -= skip;
	if (len > 7 && !memcmp(s + len - 7, ".weight", 7))
		len -= 7;
	for (size_t i = 0; i < len; i++)
		if (s[i] < ' ' || s[i] > '~')
			return;
	name_add(name, " ", s, len);
}

/* "attn:" of the node that the backend calls the main one, and its layer. */
static void op_name_begin(struct profile_op *o, const struct model_part *part)
{
	char name[PROFILE_NAME];
	const char *scope = name, *colon, *comma;

	graph_node_name(part->graph, o->main, name, sizeof name);
	colon = strstr(name, ": ");
	comma = strstr(name, ", ");
	if (!strncmp(name, "layer ", 6))
		o->layer = atoi(name + 6);
	if (comma && colon && comma < colon)
		scope = comma + 2;
	name_add(o->name, "", scope, colon ? (size_t)(colon - scope) + 1 : strlen(scope));
}

/* Appends a node: its operator, unless the one before was the same, and the matrices it multiplies with. */
static void op_name_add(struct profile_op *o, const struct model_part *part, uint32_t node, const char **last)
{
	const struct tnp_node *n = &part->nodes->nodes[node];
	const char *word = graph_op_name(n->op);

	if (!*o->name)
		op_name_begin(o, part);
	if (!*last || strcmp(*last, word))
		name_add(o->name, *last ? ", " : " ", word, strlen(word));
	*last = word;
	for (uint32_t i = 0; i < n->n_in; i++) {
		uint32_t t = part->nodes->edges[n->in0 + i];
		const struct gguf_tensor *w =
			part->nodes->tensors[t].rank > 1 ? graph_file_tensor(part->graph, t) : NULL;

		if (w)
			weight_add(o->name, w);
	}
}

/* ---- operators ---------------------------------------------------------------------------------------------------------- */

/* The operator that begins with this node; UINT32_MAX: no memory. */
static uint32_t op_new(struct profile_phase *ph, uint32_t part, uint32_t node)
{
	struct profile_op *grown;

	if (ph->n_ops == ph->cap_ops) {
		ph->cap_ops = ph->cap_ops ? 2 * ph->cap_ops : FIRST_OPS;
		grown = mem_resize(MEM_TOOL, ph->op, ph->cap_ops * sizeof *grown);
		if (!grown)
			return UINT32_MAX;
		ph->op = grown;
	}
	ph->op[ph->n_ops] = (struct profile_op){ .part = part, .main = node, .layer = -1 };
	return ph->n_ops++;
}

/* Rows [i, end) of one piece of work. */
static uint32_t piece_end(const struct tnp_timing *rows, uint32_t i, uint32_t n)
{
	uint32_t end = i + 1;

	while (end < n && rows[end].lane == rows[i].lane && rows[end].begin_ns == rows[i].begin_ns &&
		rows[end].end_ns == rows[i].end_ns)
		end++;
	return end;
}

/* The operator of a piece; a new one gets its nodes. The last place is that of work for no node. */
static uint32_t piece_op(struct profile *p, uint32_t part, uint32_t n_nodes, uint32_t i, uint32_t end)
{
	uint32_t main = MIN_OF(p->rows[i].node, n_nodes), *of = p->op_of[part], op = of[main];

	if (op == UINT32_MAX)
		op = op_new(current(p), part, main == n_nodes ? TNP_NONE : main);
	for (uint32_t k = i; k < end && op != UINT32_MAX; k++)
		if (of[MIN_OF(p->rows[k].node, n_nodes)] == UINT32_MAX)
			of[MIN_OF(p->rows[k].node, n_nodes)] = op;
	return op;
}

/* Nodes without a row of their own are part of an earlier one's work. Then all names can be made. */
static void ops_complete(struct profile *p, uint32_t number, uint32_t first_op)
{
	struct model_part part = model_part_at(p->model, number);
	struct profile_phase *ph = current(p);
	uint32_t *of = p->op_of[number], last = UINT32_MAX;

	for (uint32_t i = 0; i < part.nodes->n_nodes; i++) {
		if (of[i] == UINT32_MAX)
			of[i] = last;
		last = of[i];
	}
	for (uint32_t o = first_op; o < ph->n_ops; o++) {
		const char *word = NULL;

		for (uint32_t i = 0; i < part.nodes->n_nodes; i++)
			if (of[i] == o && ph->op[o].main != TNP_NONE)
				op_name_add(&ph->op[o], &part, i, &word);
		if (!*ph->op[o].name)
			(void)snprintf(ph->op[o].name, PROFILE_NAME, "tables for all layers");
	}
}

static void costs_add(struct profile *p, uint32_t number, const struct machine_step *s)
{
	struct model_part part = model_part_at(p->model, number);

	for (uint32_t i = 0; i < part.nodes->n_nodes; i++) {
		struct graph_cost c;
		struct profile_cost *to;

		if (p->op_of[number][i] == UINT32_MAX)
			continue;
		to = &current(p)->op[p->op_of[number][i]].cost;
		machine_node_cost(part.nodes, i, s, &c);
		to->weight_bytes += (double)c.weight_bytes;
		to->kv_bytes += (double)c.kv_bytes;
		to->activation_bytes += (double)c.activation_bytes;
		to->ops[machine_node_unit(part.nodes, i, s->precision)] += (double)c.operations;
	}
}

/* ---- a step ------------------------------------------------------------------------------------------------------------- */

static int rows_read(struct profile *p, struct backend_model *m, uint32_t *n, struct error *e)
{
	int rc;

	*n = 0;
	rc = backend_profile(m, 1, NULL, n, e);
	if (!rc && *n > MAX_ROWS)
		return error_set(e, TENON_E_TOO_LONG,
			"the backend gives %u rows for one step; at most %d are read", *n, MAX_ROWS);
	if (!rc && *n > p->cap_rows) {
		mem_free(p->rows);
		mem_free(p->order);
		p->cap_rows = *n;
		p->rows = mem_alloc(MEM_TOOL, *n * sizeof *p->rows);
		p->order = mem_alloc(MEM_TOOL, *n * sizeof *p->order);
		if (!p->rows || !p->order) {
			p->cap_rows = 0;
			return error_set(e, TENON_E_NOMEM, "no memory for %u rows of times", *n);
		}
	}
	if (!rc && *n) {
		*n = p->cap_rows;
		rc = backend_profile(m, 1, p->rows, n, e);
		*n = MIN_OF(*n, p->cap_rows);
	}
	return rc;
}

static int by_begin(const void *a, const void *b)
{
	const struct profile_span *x = a, *y = b;

	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Spans in order of time: what an operator, and all of them, cover. */
static void spans_count(struct profile *p, uint32_t n)
{
	struct profile_phase *ph = current(p);
	uint64_t end;

	qsort(p->order, n, sizeof *p->order, by_begin);
	end = p->order[0].begin_ns;
	for (uint32_t i = 0; i < ph->n_ops; i++)
		ph->op[i].covered_ns = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct profile_span *s = &p->order[i];
		struct profile_op *o = &ph->op[s->op];
		uint64_t from = MAX_OF(s->begin_ns, o->covered_ns);

		ph->gap_ns += s->begin_ns > end ? (double)(s->begin_ns - end) : 0;
		end = MAX_OF(end, s->end_ns);
		o->calls += !o->covered_ns;
		o->wall_ns += s->end_ns > from ? (double)(s->end_ns - from) : 0;
		o->busy_ns += (double)(s->end_ns - s->begin_ns);
		o->covered_ns = MAX_OF(o->covered_ns, s->end_ns);
		p->n_lanes = MAX_OF(p->n_lanes, s->lane + 1);
	}
	ph->inside_ns += (double)(end - p->order[0].begin_ns);
}

static int take_part(struct profile *p, uint32_t number, const struct machine_step *s, struct error *e)
{
	struct model_part part = model_part_at(p->model, number);
	uint32_t n, n_spans = 0, first_op = current(p)->n_ops;
	int rc = rows_read(p, part.compute, &n, e);

	if (rc)
		return rc;
	for (uint32_t i = 0, end; i < n; i = end) {
		uint32_t op;

		end = piece_end(p->rows, i, n);
		op = piece_op(p, number, part.nodes->n_nodes, i, end);
		if (op == UINT32_MAX)
			return error_set(
				e, TENON_E_NOMEM, "no memory for %u operators", current(p)->n_ops + 1);
		if (p->rows[i].end_ns >= p->rows[i].begin_ns)
			p->order[n_spans++] = (struct profile_span){ op, p->n_phases - 1, p->rows[i].lane,
				number, p->rows[i].begin_ns, p->rows[i].end_ns };
	}
	if (!n_spans)
		return error_set(e, TENON_E_BACKEND, "backend '%s' timed nothing in a step",
			backend_name(part.backend));
	if (current(p)->n_ops > first_op)
		ops_complete(p, number, first_op);
	spans_count(p, n_spans);
	costs_add(p, number, s);
	if (p->trace)
		(void)buf_append(&p->spans, p->order, n_spans * sizeof *p->order);
	return TENON_OK;
}

static void event_add(struct profile *p, enum profile_host what, uint64_t begin_ns, uint64_t end_ns)
{
	const struct profile_event ev = { what, p->n_phases - 1, current(p)->steps, begin_ns, end_ns };

	if (p->trace)
		(void)buf_append(&p->events, &ev, sizeof ev);
}

int profile_take_step(
	struct profile *p, const struct machine_step *s, uint64_t begin_ns, uint64_t end_ns, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t i = 0; i < model_n_parts(p->model) && !rc; i++)
		rc = take_part(p, i, s, e);
	event_add(p, PROFILE_COMPUTE, begin_ns, end_ns);
	current(p)->step_ns += (double)(end_ns - begin_ns);
	current(p)->tokens += s->tokens;
	current(p)->steps++;
	return rc;
}

void profile_take_sample(struct profile *p, uint64_t begin_ns, uint64_t end_ns)
{
	current(p)->sample_ns += (double)(end_ns - begin_ns);
	event_add(p, PROFILE_SAMPLE, begin_ns, end_ns);
}
