/* SPDX-License-Identifier: Apache-2.0
 * tenon profile: where the time of a model's steps goes, operator by operator, beside what the machine could do at best in
 * the same run. Works in its own process. The model runs twice: as it is, then with its backends taking times.
 */
#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/profile.h"
#include "tools/roofline.h"
#include "tools/session.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { STEP_TOKENS = 512, SHORT_PROMPT = 8, MAX_SEQS = 256, POOL_SEQS = 32, LIMIT_SAMPLES = 3 };

struct profile_run {
	struct open_options open;
	uint64_t prompt, decode, seqs, repeats;
	const char *svg, *trace;
	bool layers, json, no_limits;
	struct opened m;
	struct drive d;
	struct profile p;
	struct machine_meter meter;
	struct machine limits;
};

static int help(void)
{
	(void)fputs(
		"usage: tenon profile -m MODEL [OPTION]...\n\n"
		"Where the time of prefill and decode goes: for each kind of operator its time and share of the step, bytes and\n"
		"arithmetic, the rates reached, their shares of what the machine can do at most (measured in the same run), which\n"
		"limit binds, how busy the threads are; then the gaps. What a backend computes in one go stands in one row.\n\n" OPEN_MODEL_HELP
		"      --prompt-tokens N    of each prompt (default 256; 0: decode only)\n"
		"      --decode N           tokens behind it, one a step (default 32; 0: prefill only)\n"
		"      --batch S            sequences at once (default 1)\n"
		"      --repeats N          of the prompt (default 3)\n"
		"      --layers             a row for each layer's operator in place of each kind\n"
		"      --svg FILE           a roofline picture\n"
		"      --trace FILE         all steps as events for Perfetto (ui.perfetto.dev) or chrome://tracing\n"
		"      --no-limits          do not measure the machine, which takes seconds: no shares of limits then\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon profile -m smollm2-135m --threads 2\n"
		"  tenon profile -m model.gguf --prompt-tokens 512 --decode 64 --svg roofline.svg --trace steps.json\n"
		"  tenon profile -m model.gguf --batch 16 --passes=-fuse_qkv --layers --json\n",
		stdout);
	return CLI_OK;
}

/* ---- steps ---------------------------------------------------------------------------------------------------------------- */

/* One step; taken into the profile unless ph is NULL. */
static int step(struct profile_run *r, struct profile_phase *ph, uint32_t past, uint32_t n, bool out,
	double *ns, struct error *e)
{
	uint32_t seqs = (uint32_t)r->seqs;
	struct machine_step s = { .n_seqs = seqs,
		.tokens = n,
		.past = past,
		.n_out = out ? seqs : 0,
		.kv_type = r->d.info->kv_type,
		.precision = r->d.info->precision };
	uint64_t t0 = clock_now_ns(), t1;
	int rc = drive_step(&r->d, seqs, past, n, out, e);

	t1 = clock_now_ns();
	*ns += (double)(t1 - t0);
	if (session_interrupted())
		return error_set(e, TENON_E_CANCELLED, "interrupted; nothing was written");
	return rc || !ph ? rc : profile_take_step(&r->p, &s, t0, t1, e);
}

static int prefill(struct profile_run *r, struct profile_phase *ph, uint32_t n, double *ns, struct error *e)
{
	uint32_t chunk = drive_chunk(&r->d, (uint32_t)r->seqs);
	int rc = TENON_OK;

	for (uint32_t at = 0; at < n && !rc; at += chunk)
		rc = step(r, ph, at, MIN_OF(chunk, n - at), at + chunk >= n, ns, e);
	return rc;
}

static int decode(struct profile_run *r, struct profile_phase *ph, uint32_t past, double *ns, struct error *e)
{
	int rc = TENON_OK;

	for (uint32_t k = 0; k < r->decode && !rc; k++) {
		uint64_t t0;

		cli_progress(ph ? "decode, timed" : "decode", (double)k / (double)r->decode);
		rc = step(r, ph, past + k, 1, true, ns, e);
		t0 = clock_now_ns();
		drive_sample(&r->d, (uint32_t)r->seqs, past + k + 1);
		if (ph && !rc)
			profile_take_sample(&r->p, t0, clock_now_ns());
	}
	return rc;
}

/* The prompts once to warm up, then without and with times. */
static int profile_prefill(struct profile_run *r, uint32_t n, struct error *e)
{
	struct profile_phase *ph = profile_phase_begin(&r->p, "prefill", (uint32_t)r->seqs);
	double cold = 0, timed = 0;
	int rc = prefill(r, NULL, n, &cold, e);

	for (uint64_t k = 0; k < r->repeats && !rc && r->prompt; k++) {
		cli_progress("prefill", (double)k / (double)r->repeats);
		rc = prefill(r, NULL, n, &ph->plain_ns, e);
	}
	rc = rc ? rc : profile_switch(&r->p, true, e);
	for (uint64_t k = 0; k < r->repeats && !rc && r->prompt; k++) {
		cli_progress("prefill, timed", (double)k / (double)r->repeats);
		rc = prefill(r, ph, n, &timed, e);
	}
	return rc ? rc : profile_switch(&r->p, false, e);
}

static int profile_decode(struct profile_run *r, uint32_t past, struct error *e)
{
	struct profile_phase *ph = profile_phase_begin(&r->p, "decode", (uint32_t)r->seqs);
	double timed = 0;
	int rc = decode(r, NULL, past, &ph->plain_ns, e);

	rc = rc ? rc : profile_switch(&r->p, true, e);
	rc = rc ? rc : decode(r, ph, past, &timed, e);
	return rc ? rc : profile_switch(&r->p, false, e);
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------ */

static int measure(struct profile_run *r, struct machine *out, struct error *e)
{
	uint32_t threads =
		(uint32_t)(r->open.threads ? r->open.threads : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));

	*out = (struct machine){ 0 };
	if (r->no_limits)
		return TENON_OK;
	cli_progress("limits of the machine", 0);
	return machine_measure(&r->meter, threads, machine_is_wide(r->open.isa), out, e);
}

/* Limits before, between and behind; the middle one of each counts. */
static int run(struct profile_run *r, struct error *e)
{
	struct machine sample[LIMIT_SAMPLES];
	uint32_t past = r->prompt ? (uint32_t)r->prompt : SHORT_PROMPT;
	double v[LIMIT_SAMPLES];
	struct bench_stat s;
	int rc = measure(r, &sample[0], e);

	rc = rc ? rc : profile_prefill(r, past, e);
	rc = rc ? rc : measure(r, &sample[1], e);
	rc = rc || !r->decode ? rc : profile_decode(r, past, e);
	rc = rc ? rc : measure(r, &sample[2], e);
	cli_progress_end();
	for (int u = 0; u <= MACHINE_UNITS && !rc; u++) {
		for (int i = 0; i < LIMIT_SAMPLES; i++)
			v[i] = u < MACHINE_UNITS ? sample[i].gops[u] : sample[i].read_gb_s;
		bench_stat_of(v, LIMIT_SAMPLES, &s);
		*(u < MACHINE_UNITS ? &r->limits.gops[u] : &r->limits.read_gb_s) = s.median;
	}
	return rc;
}

/* ---- what comes out --------------------------------------------------------------------------------------------------------- */

static int file_write(const char *path, const struct buf *b, struct error *e)
{
	FILE *f = fopen(path, "we");
	bool ok = f && fwrite(b->data, 1, b->len, f) == b->len;

	ok = f && !fclose(f) && ok;
	return ok ? TENON_OK : error_errno(e, TENON_E_IO, errno, "'%.200s'", path);
}

static int roofline_make(const struct profile_run *r, struct buf *out, struct error *e)
{
	struct profile_op *kinds[2] = { NULL, NULL };
	struct roofline line = { .read_gb_s = r->limits.read_gb_s };
	char title[256];
	uint32_t n;
	int rc;

	(void)snprintf(title, sizeof title, "%.100s on %.60s, %u threads, %u sequence%s", r->d.info->name,
		r->d.info->backend, r->p.n_lanes, (unsigned)r->seqs, r->seqs > 1 ? "s" : "");
	line.title = title;
	for (int u = 0; u < MACHINE_UNITS; u++)
		if (r->limits.gops[u] > 0) {
			line.roof_name[line.n_roofs] = machine_unit_name((enum machine_unit)u);
			line.roof_gop_s[line.n_roofs++] = r->limits.gops[u];
		}
	for (uint32_t k = 0; k < r->p.n_phases; k++) {
		const struct profile_phase *ph = &r->p.phase[k];

		kinds[k] = profile_kinds(ph, &n);
		line.series_name[k] = ph->name;
		for (uint32_t i = 0; kinds[k] && i < n; i++) {
			const struct profile_op *o = &kinds[k][i];

			roofline_add(&line,
				(struct roofline_point){ o->name,
					profile_ops(&o->cost) / profile_bytes(&o->cost),
					profile_ops(&o->cost) / o->wall_ns, o->wall_ns / ph->step_ns, k });
		}
	}
	rc = roofline_svg(&line, out, e);
	mem_free(kinds[0]);
	mem_free(kinds[1]);
	return rc;
}

static int files_write(const struct profile_run *r, struct error *e)
{
	struct buf b;
	int rc = TENON_OK;

	buf_init(&b, MEM_TOOL, 0);
	if (r->svg)
		rc = roofline_make(r, &b, e);
	if (r->svg && !rc)
		rc = file_write(r->svg, &b, e);
	buf_clear(&b);
	if (r->trace && !rc)
		rc = profile_trace(&r->p, &b, e);
	if (r->trace && !rc)
		rc = file_write(r->trace, &b, e);
	buf_finish(&b);
	return rc;
}

static void print(const struct profile_run *r)
{
	const struct model_info *i = r->d.info;
	json_t *report, *own;

	if (!r->json) {
		profile_print(&r->p, &r->limits, r->layers);
		return;
	}
	report = bench_report("profile",
		json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "name", i->name, "arch", i->arch, "parameters",
			(json_int_t)i->n_params, "precision", i->precision == TNP_EXACT ? "exact" : "fast",
			"kv_type", gguf_type_name(i->kv_type), "backend", i->backend));
	own = profile_json(&r->p, &r->limits, r->layers);
	(void)json_object_del(report, "results");
	(void)json_object_update(report, own);
	json_decref(own);
	cli_print_json(report);
}

/* ---- the command ------------------------------------------------------------------------------------------------------------ */

static int parse(int argc, char **argv, struct profile_run *r)
{
	const struct option_row rows[] = {
		{ .name = "prompt-tokens", .number = &r->prompt, .lo = 0, .hi = INT32_MAX },
		{ .name = "decode", .number = &r->decode, .lo = 0, .hi = INT32_MAX / 2 },
		{ .name = "batch", .number = &r->seqs, .lo = 1, .hi = MAX_SEQS },
		{ .name = "repeats", .number = &r->repeats, .lo = 1, .hi = 1000 },
		{ .name = "layers", .flag = &r->layers },
		{ .name = "svg", .text = &r->svg },
		{ .name = "trace", .text = &r->trace },
		{ .name = "no-limits", .flag = &r->no_limits },
		{ .name = "json", .flag = &r->json },
	};
	int status = options_parse("tenon profile", argc, argv, help, &r->open, rows, COUNT_OF(rows));

	if (!status && !r->prompt && !r->decode)
		return cli_usage("tenon profile", "--prompt-tokens 0 --decode 0: nothing is left to profile");
	return status;
}

static int open_all(struct profile_run *r, struct error *e)
{
	uint64_t tokens = MAX_OF(r->prompt, (uint64_t)SHORT_PROMPT) + r->decode;
	int rc;

	r->open.o.step_tokens = MAX_OF((uint32_t)STEP_TOKENS, (uint32_t)r->seqs);
	r->open.o.step_seqs = r->open.o.step_out = (uint32_t)r->seqs;
	if (r->seqs > POOL_SEQS)
		r->open.o.n_sessions = ((uint32_t)r->seqs + POOL_SEQS - 1) / POOL_SEQS;
	rc = open_model(&r->open, &r->m, e);
	rc = rc ? rc : drive_init(&r->d, r->m.model, (uint32_t)r->seqs, e);
	if (!rc && (tokens > r->d.info->n_ctx || !drive_fits(&r->d, (uint32_t)r->seqs, (uint32_t)tokens)))
		rc = error_set(e, TENON_E_INVALID,
			"%llu sequences of %llu tokens: over the context of %u tokens or the pool of pages; choose fewer",
			(unsigned long long)r->seqs, (unsigned long long)tokens, r->d.info->n_ctx);
	return rc ? rc : profile_init(&r->p, r->m.model, r->trace != NULL, e);
}

int cmd_profile(int argc, char **argv)
{
	struct profile_run r = { .prompt = 256, .decode = 32, .seqs = 1, .repeats = 3 };
	struct error e = { 0 };
	int status = parse(argc, argv, &r), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	session_catch_int();
	rc = open_all(&r, &e);
	rc = rc ? rc : run(&r, &e);
	rc = rc ? rc : files_write(&r, &e);
	if (!rc)
		print(&r);
	else
		cli_progress_end();
	profile_finish(&r.p);
	drive_finish(&r.d);
	machine_meter_finish(&r.meter);
	open_model_close(&r.m);
	return rc ? cli_fail_error("profile", &e) : CLI_OK;
}
