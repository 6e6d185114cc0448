/* SPDX-License-Identifier: Apache-2.0
 * profile.h: shares of the machine's limits, operators of a kind together, the table and the JSON object.
 */
#include "tools/profile.h"
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMN = 46 };
static const double far_below = 0.25; /* of both limits: something else binds */

double profile_ops(const struct profile_cost *c)
{
	return c->ops[MACHINE_INT8] + c->ops[MACHINE_INT16] + c->ops[MACHINE_F32];
}

double profile_bytes(const struct profile_cost *c)
{
	return c->weight_bytes + c->kv_bytes + c->activation_bytes;
}

double profile_read_share(const struct machine *m, const struct profile_op *o)
{
	return m->read_gb_s > 0 && o->wall_ns > 0 ? profile_bytes(&o->cost) / m->read_gb_s / o->wall_ns : 0;
}

double profile_arith_share(const struct machine *m, const struct profile_op *o)
{
	struct machine_need need = { 0 };

	memcpy(need.ops, o->cost.ops, sizeof need.ops);
	return o->wall_ns > 0 ? machine_ops_s(m, &need) * 1e9 / o->wall_ns : 0;
}

enum machine_unit profile_unit(const struct profile_op *o)
{
	enum machine_unit best = MACHINE_F32;

	for (int u = 0; u < MACHINE_UNITS; u++)
		best = o->cost.ops[u] > o->cost.ops[best] ? (enum machine_unit)u : best;
	return best;
}

static const char *binds(const struct machine *m, const struct profile_op *o)
{
	double read = profile_read_share(m, o), arith = profile_arith_share(m, o);

	if (m->read_gb_s <= 0)
		return "unknown";
	if (MAX_OF(read, arith) < far_below)
		return "neither";
	return read > arith ? "reading" : "arithmetic";
}

/* ---- kinds -------------------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct profile_op *x = a, *y = b;

	return (x->wall_ns < y->wall_ns) - (x->wall_ns > y->wall_ns);
}

static void op_add(struct profile_op *to, const struct profile_op *o)
{
	to->calls += o->calls;
	to->wall_ns += o->wall_ns;
	to->busy_ns += o->busy_ns;
	to->cost.weight_bytes += o->cost.weight_bytes;
	to->cost.kv_bytes += o->cost.kv_bytes;
	to->cost.activation_bytes += o->cost.activation_bytes;
	for (int u = 0; u < MACHINE_UNITS; u++)
		to->cost.ops[u] += o->cost.ops[u];
}

struct profile_op *profile_kinds(const struct profile_phase *ph, uint32_t *n)
{
	struct profile_op *kind = mem_alloc(MEM_TOOL, (ph->n_ops + 1) * sizeof *kind);

	*n = 0;
	for (uint32_t i = 0; kind && i < ph->n_ops; i++) {
		uint32_t k = 0;

		while (k < *n && strcmp(kind[k].name, ph->op[i].name))
			k++;
		if (k < *n)
			op_add(&kind[k], &ph->op[i]);
		else
			kind[(*n)++] = ph->op[i];
	}
	if (kind)
		qsort(kind, *n, sizeof *kind, by_time);
	return kind;
}

/* ---- for people ----------------------------------------------------------------------------------------------------------- */

static double ms_a_step(const struct profile_phase *ph, double ns)
{
	return ph->steps ? ns / ph->steps / 1e6 : 0;
}

static double rate(const struct profile_phase *ph, double ns)
{
	return ns > 0 ? (double)ph->n_seqs * ph->tokens * 1e9 / ns : 0;
}

static void print_name(const char *name, int layer)
{
	char text[PROFILE_NAME + 16];

	if (layer >= 0)
		(void)snprintf(text, sizeof text, "%d %s", layer, name);
	else
		(void)snprintf(text, sizeof text, "%s", name);
	(void)printf(strlen(text) > COLUMN ? "  %s\n  %-*s" : "  %.0s%-*s", text, COLUMN,
		strlen(text) > COLUMN ? "" : text);
}

static void print_op(const struct profile *p, const struct profile_phase *ph, const struct machine *m,
	const struct profile_op *o, bool layers)
{
	double ops = profile_ops(&o->cost), bytes = profile_bytes(&o->cost);

	print_name(o->name, layers ? o->layer : -1);
	(void)printf(" %6.1f %9.3f %5.1f%% %8.2f %7.1f %5.0f%% %9.2f %8.1f %5.0f%% %-5s %-10s %4.0f%%\n",
		(double)o->calls / ph->steps, ms_a_step(ph, o->wall_ns), 100 * o->wall_ns / ph->step_ns,
		bytes / ph->steps / 1e6, bytes / o->wall_ns, 100 * profile_read_share(m, o),
		ops / ph->steps / 1e6, ops / o->wall_ns, 100 * profile_arith_share(m, o),
		machine_unit_name(profile_unit(o)), binds(m, o),
		100 * o->busy_ns / (o->wall_ns * p->n_lanes));
}

static void print_gap(const struct profile_phase *ph, const char *name, double ns)
{
	print_name(name, -1);
	(void)printf(" %6s %9.3f %5.1f%%\n", "", ms_a_step(ph, ns), 100 * ns / ph->step_ns);
}

static void print_phase(
	const struct profile *p, const struct profile_phase *ph, const struct machine *m, bool layers)
{
	uint32_t n = ph->n_ops;
	struct profile_op *kinds = layers ? NULL : profile_kinds(ph, &n);
	const struct profile_op *ops = layers ? ph->op : kinds;

	(void)printf(
		"\n%s: %u sequence%s, %u steps of %.1f tokens each; %.3f ms a step, %.1f tok/s in all (%.3f ms without profiling)\n",
		ph->name, ph->n_seqs, ph->n_seqs > 1 ? "s" : "", ph->steps, (double)ph->tokens / ph->steps,
		ms_a_step(ph, ph->step_ns), rate(ph, ph->step_ns + ph->sample_ns),
		ms_a_step(ph, ph->plain_ns));
	(void)printf("  %-*s %6s %9s %6s %8s %7s %6s %9s %8s %6s %-5s %-10s %5s\n", COLUMN, "operator",
		"calls", "ms", "time", "MB", "GB/s", "limit", "Mop", "GOP/s", "limit", "unit", "binds",
		"busy");
	for (uint32_t i = 0; ops && i < n; i++)
		print_op(p, ph, m, &ops[i], layers);
	print_gap(ph, "between operators: barriers", ph->gap_ns);
	print_gap(ph, "host: before, behind and between backends", ph->step_ns - ph->inside_ns);
	print_gap(ph, "host: sampling, between steps", ph->sample_ns);
	mem_free(kinds);
}

void profile_print(const struct profile *p, const struct machine *m, bool layers)
{
	const struct model_info *i = model_info(p->model);

	(void)printf("%s (%s) on %s, %s, %u threads\nlimits of this run: ", i->name, i->arch, i->backend,
		i->precision == TNP_EXACT ? "exact" : "fast", p->n_lanes);
	(void)printf(m->read_gb_s > 0 ? "reading %.1f GB/s" : "not measured", m->read_gb_s);
	for (int u = 0; u < MACHINE_UNITS; u++)
		if (m->gops[u] > 0)
			(void)printf(", %s %.1f GOP/s", machine_unit_name((enum machine_unit)u), m->gops[u]);
	(void)putchar('\n');
	for (uint32_t k = 0; k < p->n_phases; k++)
		if (p->phase[k].steps)
			print_phase(p, &p->phase[k], m, layers);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------ */

static json_t *op_json(const struct profile *p, const struct profile_phase *ph, const struct machine *m,
	const struct profile_op *o, bool layers)
{
	double ops = profile_ops(&o->cost), bytes = profile_bytes(&o->cost), steps = ph->steps;
	json_t *j = json_pack(
		"{s:s, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f}, s:f, s:f, s:f, s:f, s:f, s:s, s:s}", "name",
		o->name, "calls", o->calls / steps, "ms", ms_a_step(ph, o->wall_ns), "share",
		o->wall_ns / ph->step_ns, "busy", o->busy_ns / (o->wall_ns * p->n_lanes), "bytes", "weights",
		o->cost.weight_bytes / steps, "kv", o->cost.kv_bytes / steps, "activations",
		o->cost.activation_bytes / steps, "operations", ops / steps, "gb_s", bytes / o->wall_ns,
		"gop_s", ops / o->wall_ns, "of_reading", profile_read_share(m, o), "of_arithmetic",
		profile_arith_share(m, o), "unit", machine_unit_name(profile_unit(o)), "binds", binds(m, o));

	if (layers && o->layer >= 0)
		(void)json_object_set_new(j, "layer", json_integer(o->layer));
	return j;
}

static json_t *phase_json(
	const struct profile *p, const struct profile_phase *ph, const struct machine *m, bool layers)
{
	uint32_t n = ph->n_ops;
	struct profile_op *kinds = layers ? NULL : profile_kinds(ph, &n);
	const struct profile_op *ops = layers ? ph->op : kinds;
	json_t *list = json_array();

	for (uint32_t i = 0; ops && i < n; i++)
		(void)json_array_append_new(list, op_json(p, ph, m, &ops[i], layers));
	mem_free(kinds);
	return json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:{s:f, s:f, s:f}}", "name", ph->name,
		"sequences", (int)ph->n_seqs, "steps", (int)ph->steps, "tokens", (int)ph->tokens, "step_ms",
		ms_a_step(ph, ph->step_ns), "unprofiled_ms", ms_a_step(ph, ph->plain_ns), "tok_s",
		rate(ph, ph->step_ns + ph->sample_ns), "operators", list, "gaps", "between_ms",
		ms_a_step(ph, ph->gap_ns), "host_ms", ms_a_step(ph, ph->step_ns - ph->inside_ns),
		"sampling_ms", ms_a_step(ph, ph->sample_ns));
}

json_t *profile_json(const struct profile *p, const struct machine *m, bool layers)
{
	json_t *phases = json_array(), *limits = json_object();
	char key[32];

	if (m->read_gb_s > 0)
		(void)json_object_set_new(limits, "reading_gb_s", json_real(m->read_gb_s));
	for (int u = 0; u < MACHINE_UNITS; u++) {
		(void)snprintf(key, sizeof key, "%s_gop_s", machine_unit_name((enum machine_unit)u));
		if (m->gops[u] > 0)
			(void)json_object_set_new(limits, key, json_real(m->gops[u]));
	}
	for (uint32_t k = 0; k < p->n_phases; k++)
		if (p->phase[k].steps)
			(void)json_array_append_new(phases, phase_json(p, &p->phase[k], m, layers));
	return json_pack("{s:i, s:o, s:o}", "threads", (int)p->n_lanes, "limits", limits, "phases", phases);
}
