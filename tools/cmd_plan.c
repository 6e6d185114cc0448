/* SPDX-License-Identifier: Apache-2.0
 * tenon plan: what a model takes at a context length and number of sessions, item by item, and whether that fits into a
 * budget; if not, what is missing and the largest settings that would fit. Nothing is loaded: sizes come from the ledger
 * (engine/ledger.h) by which the daemon refuses too. Exit status 1: it does not fit.
 */
#include "tools/commands.h"
#include "tools/options.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SESSIONS = 1 << 20 };

struct plan {
	struct open_options open;
	uint64_t ctx, sessions, budget, tier;
	bool json;
	const struct model *m;
	struct ledger ledger;
	uint32_t fit, most_ctx,
		most_sessions; /* sessions of ctx that fit; if the asked ones do not: what would */
};

static int help(void)
{
	(void)fputs(
		"usage: tenon plan -m MODEL [OPTION]...\n\n"
		"What a model takes in memory, item by item, and how many sessions fit. Nothing is loaded.\n"
		"Exit status 1: it does not fit; what is missing and the largest settings that fit are printed.\n\n" OPEN_MODEL_HELP
		"      --ctx N              tokens of a session (default: the model's own, at most 8192)\n"
		"      --sessions K         sessions held at the same time (default 1)\n"
		"      --budget SIZE        bytes, or with a suffix KiB, MiB, GiB, TiB (default: what the machine has left)\n"
		"      --host-tier SIZE     limit of the tier of pages in host memory (default 0)\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon plan -m smollm2-135m --ctx 4096 --sessions 16\n"
		"  tenon plan -m model.gguf --ctx 32768 --sessions 8 --kv q8_0 --budget 6GiB --json\n",
		stdout);
	return CLI_OK;
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

static bool parse_size(const char *cmd, const char *opt, const char *text, uint64_t *out)
{
	static const char *const suffix[] = { "", "KiB", "MiB", "GiB", "TiB" };
	char *end = NULL;
	double v;

	errno = 0;
	v = strtod(text, &end);
	for (size_t i = 0; i < COUNT_OF(suffix) && end != text && !errno; i++)
		if (!strcmp(end, suffix[i]) && v >= 0) {
			v *= (double)(UINT64_C(1) << (10 * i));
			if (v > 0x1p62)
				break;
			*out = (uint64_t)v;
			return true;
		}
	(void)cli_usage(cmd, "%s: '%s' is no size such as 800000000, 512MiB or 1.5GiB", opt, text);
	return false;
}

static uint64_t page_bytes(const struct plan *p, bool global_only)
{
	const struct model_info *i = model_info(p->m);
	uint64_t sum = 0;

	for (uint32_t g = 0; g < i->n_groups; g++)
		sum += global_only && i->window[g] ? 0 : i->page_bytes[g];
	return sum;
}

static uint64_t session_bytes(const struct plan *p)
{
	const struct model_info *i = model_info(p->m);
	uint64_t sum = 0;

	for (uint32_t g = 0; g < i->n_groups; g++)
		sum += ledger_pages(i, g, i->n_ctx, 1) * i->page_bytes[g];
	return sum;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

static int make(struct plan *p, struct error *e)
{
	struct ledger_ask a = { .n_ctx = model_info(p->m)->n_ctx,
		.n_sessions = (uint32_t)p->sessions,
		.host_tier_bytes = p->tier };
	int rc = ledger_make(p->m, &a, &p->ledger, e);

	if (rc)
		return rc;
	p->fit = ledger_most_sessions(p->m, &a, p->budget, false);
	p->most_sessions = p->fit;
	p->most_ctx = p->ledger.total > p->budget ? ledger_most_context(p->m, &a, p->budget, false) : a.n_ctx;
	return TENON_OK;
}

static json_t *items_json(const struct plan *p)
{
	json_t *items = json_object();

	for (uint32_t i = 0; i < LEDGER_N; i++)
		(void)json_object_set_new(
			items, ledger_key((enum ledger_item)i), json_integer((json_int_t)p->ledger.bytes[i]));
	return items;
}

static json_t *groups_json(const struct plan *p)
{
	const struct model_info *i = model_info(p->m);
	json_t *groups = json_array();

	for (uint32_t g = 0; g < i->n_groups; g++)
		(void)json_array_append_new(groups,
			json_pack("{s:i, s:I, s:I}", "window", (int)i->window[g], "pages",
				(json_int_t)p->ledger.n_pages[g], "page_bytes",
				(json_int_t)i->page_bytes[g]));
	return groups;
}

/* What each backend of a split model takes of the items that are theirs. */
static json_t *parts_json(const struct plan *p)
{
	json_t *list = json_array();

	for (uint32_t k = 0; k < model_n_parts(p->m); k++) {
		struct model_part part = model_part_at(p->m, k);
		const struct tnp_sizes *s = &p->ledger.part[k];

		(void)json_array_append_new(list,
			json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I}", "backend",
				backend_name(part.backend), "first_layer", (int)part.layer0, "n_layers",
				(int)part.n_layers, "weights_mapped", (json_int_t)s->weights_mapped,
				"weights_own", (json_int_t)s->weights_own, "workspace",
				(json_int_t)s->workspace, "kv", (json_int_t)p->ledger.part_kv[k]));
	}
	return list;
}

static void print_json(const struct plan *p)
{
	const struct model_info *i = model_info(p->m);
	const struct ledger *l = &p->ledger;
	bool fits = l->total <= p->budget;
	json_t *o = json_pack(
		"{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:b, s:i}",
		"model", i->name, "backend", i->backend, "precision",
		i->precision == TNP_EXACT ? "exact" : "fast", "kv_type", gguf_type_name(i->kv_type), "ctx",
		(int)i->n_ctx, "sessions", (int)p->sessions, "page_tokens", (int)i->page_tokens, "bytes",
		items_json(p), "kv_token_bytes", (json_int_t)(page_bytes(p, false) / i->page_tokens),
		"kv_page_bytes", (json_int_t)page_bytes(p, false), "kv_session_bytes",
		(json_int_t)session_bytes(p), "groups", groups_json(p), "arena_bytes", (json_int_t)l->arena,
		"open_peak_bytes", (json_int_t)l->peak, "total_bytes", (json_int_t)l->total, "budget_bytes",
		(json_int_t)p->budget, "fits", fits, "sessions_that_fit", (int)p->fit);

	(void)json_object_set_new(o, "parts", parts_json(p));
	if (!fits)
		(void)json_object_update_new(o,
			json_pack("{s:I, s:i, s:i}", "shortfall_bytes", (json_int_t)(l->total - p->budget),
				"largest_ctx", (int)p->most_ctx, "most_sessions", (int)p->most_sessions));
	cli_print_json(o);
}

static void print_line(const char *what, uint64_t bytes)
{
	char text[32];

	memory_text(bytes, text, sizeof text);
	(void)printf("  %-40s %12s\n", what, text);
}

static void print_parts(const struct plan *p)
{
	for (uint32_t k = 0; k < model_n_parts(p->m) && model_n_parts(p->m) > 1; k++) {
		struct model_part part = model_part_at(p->m, k);
		const struct tnp_sizes *s = &p->ledger.part[k];
		char what[96];

		(void)snprintf(what, sizeof what, "of it layers %u to %u on %s", part.layer0,
			part.layer0 + part.n_layers - 1, backend_name(part.backend));
		print_line(what, s->weights_mapped + s->weights_own + s->workspace + p->ledger.part_kv[k]);
	}
}

static void print_text(const struct plan *p)
{
	const struct model_info *i = model_info(p->m);
	const struct ledger *l = &p->ledger;
	char budget[32];

	memory_text(p->budget, budget, sizeof budget);
	if (i->is_encoder)
		(void)printf("%s: an encoder, texts of up to %u tokens (%s, %s)\n", i->name, i->n_ctx,
			i->backend, i->precision == TNP_EXACT ? "exact" : "fast");
	else
		(void)printf("%s: %llu sessions of %u tokens (%s, %s, keys and values as %s)\n", i->name,
			(unsigned long long)p->sessions, i->n_ctx, i->backend,
			i->precision == TNP_EXACT ? "exact" : "fast", gguf_type_name(i->kv_type));
	for (uint32_t k = 0; k < LEDGER_N; k++) {
		if (l->bytes[k])
			print_line(ledger_text((enum ledger_item)k), l->bytes[k]);
		if (k == LEDGER_WORKSPACE)
			print_line("  of it activations by lifetimes", l->arena);
		if (k != LEDGER_KV || !i->n_groups)
			continue;
		print_line("  a token", page_bytes(p, false) / i->page_tokens);
		if (page_bytes(p, true) != page_bytes(p, false))
			print_line("  a token behind all windows", page_bytes(p, true) / i->page_tokens);
		print_line("  a page", page_bytes(p, false));
		print_line("  a session", session_bytes(p));
	}
	print_line("in all", l->total);
	print_parts(p);
	if (l->total <= p->budget && i->is_encoder)
		(void)printf("fits into %s\n", budget);
	else if (l->total <= p->budget)
		(void)printf("fits into %s; at most %u sessions of %u tokens do\n", budget, p->fit, i->n_ctx);
}

static int too_large(const struct plan *p)
{
	char budget[32], lack[32];
	const uint32_t ctx = model_info(p->m)->n_ctx;

	memory_text(p->budget, budget, sizeof budget);
	memory_text(p->ledger.total - p->budget, lack, sizeof lack);
	if (!p->most_ctx && !p->most_sessions)
		return cli_fail("plan: does not fit into %s (%s too little); no context is short enough",
			budget, lack);
	return cli_fail(
		"plan: does not fit into %s (%s too little); at most %u tokens fit for %llu sessions, or %u sessions of %u tokens",
		budget, lack, p->most_ctx, (unsigned long long)p->sessions, p->most_sessions, ctx);
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct plan *p)
{
	const char *cmd = "tenon plan", *budget = NULL, *tier = NULL;
	const struct option_row rows[] = {
		{ .name = "json", .flag = &p->json },
		{ .name = "ctx", .number = &p->ctx, .lo = 1, .hi = UINT32_MAX },
		{ .name = "sessions", .number = &p->sessions, .lo = 1, .hi = MAX_SESSIONS },
		{ .name = "budget", .text = &budget },
		{ .name = "host-tier", .text = &tier },
	};
	int status = options_parse(cmd, argc, argv, help, &p->open, rows, COUNT_OF(rows));

	if (!status && budget && !parse_size(cmd, "--budget", budget, &p->budget))
		return CLI_USAGE;
	return !status && tier && !parse_size(cmd, "--host-tier", tier, &p->tier) ? CLI_USAGE : status;
}

int cmd_plan(int argc, char **argv)
{
	struct plan p = { .sessions = 1, .budget = memory_available() };
	struct opened m = { 0 };
	struct error e = { 0 };
	int status = parse(argc, argv, &p), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	p.open.o.n_ctx = (uint32_t)p.ctx;
	p.open.o.n_sessions = (uint32_t)p.sessions;
	p.open.o.measure_only = true;
	rc = open_model(&p.open, &m, &e);
	p.m = m.model;
	if (!rc)
		rc = make(&p, &e);
	if (rc)
		status = cli_fail_error("plan", &e);
	else if (p.json)
		print_json(&p);
	else
		print_text(&p);
	if (!rc && p.ledger.total > p.budget)
		status = too_large(&p);
	open_model_close(&m);
	return status;
}
