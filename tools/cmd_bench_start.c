/* SPDX-License-Identifier: Apache-2.0
 * tenon bench start: from starting tenond to the first streamed token, page cache warm, and the memory of all its
 * processes then. The peer is llama.cpp's server code inside xllamacpp, timed from inside its process, so that
 * Python's own start does not count against it; its memory counts from what Python held before.
 */
#include "tools/bench.h"
#include "tools/peer.h"
#include "tools/session.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench start [-m MODEL] [OPTION]...\n\n"
	"Starts a private tenond, asks for one token, ends it; several times. Prints the time until it listens\n"
	"(start.ready), until the first token (start.first_token) and the resident memory of all its processes.\n\n"
	"options:\n"
	"  -m, --model M    name or file (default: smollm2-135m)\n"
	"      --vs llama   run llama.cpp's server in turn with ours\n"
	"      --ctx N      context length for both (default 8192)\n"
	"      --reps N     repeats (default 5)\n"
	"      --json\n      --help\n\n"
	"example:\n  tenon bench start --vs llama\n";

enum { MAX_REPS = 101 };

struct start_run {
	const char *model, *ctx;
	uint64_t reps;
	bool vs;
};
struct start_sample {
	double ready_ms, first_ms, bytes;
};

/* Resident bytes of a process and all below it. */
static double resident_bytes(pid_t pid)
{
	char path[64];
	unsigned long pages = 0;
	double sum;
	int child;
	FILE *f;

	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	(void)fclose(f);
	sum = (double)pages * (double)sysconf(_SC_PAGESIZE);
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &child) == 1)
		sum += resident_bytes(child);
	if (f)
		(void)fclose(f);
	return sum;
}

static int first_token(const struct session *s, const char *model, struct error *e)
{
	struct tenon_request q = TENON_REQUEST_INIT;
	struct tenon_error te = { 0 };
	struct tenon_event ev;
	uint64_t id;
	int rc;

	q.model = model;
	q.messages = "[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]";
	q.max_tokens = 2;
	rc = tenon_submit(s->t, &q, &id, &te);
	if (rc)
		return error_set(e, rc, "%s", te.text);
	while (!(rc = tenon_next(s->t, &ev, 60000))) {
		if (ev.kind == TENON_EVENT_ERROR)
			return error_set(e, ev.code, "%.*s", (int)ev.text_len, ev.text);
		if (ev.kind == TENON_EVENT_TOKENS && ev.n_ids)
			return TENON_OK;
	}
	return error_set(e, rc, "the daemon did not answer");
}

static int start_once(const struct start_run *r, struct start_sample *out, struct error *e)
{
	struct session_options so = { .ctx = r->ctx };
	struct session s;
	char path[4096];
	const char *model;
	uint64_t t0 = clock_now_ns(), t1;
	int rc = session_open(&so, &s, e);

	if (rc)
		return rc;
	t1 = clock_now_ns();
	model = session_model(&s, r->model, path, sizeof path, e);
	rc = model ? first_token(&s, model, e) : e->code;
	out->ready_ms = (double)(t1 - t0) / 1e6;
	out->first_ms = (double)(clock_now_ns() - t0) / 1e6;
	out->bytes = resident_bytes(s.daemon);
	session_close(&s);
	return rc;
}

/* A fresh process of the peer for each sample. */
static int peer_once(const struct start_run *r, struct start_sample *out, struct error *e)
{
	struct peer p = { 0 };
	char path[4096];
	int rc = cli_model_path(r->model ? r->model : SESSION_DEFAULT_MODEL, path, sizeof path, e);

	rc = rc ? rc : peer_start(&p, "llama", path, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), (uint32_t)atoi(r->ctx), 1, e);
	rc = rc ? rc : peer_ask(&p, "start ready", "ms", &out->ready_ms, e);
	rc = rc ? rc : peer_ask(&p, "start first", "ms", &out->first_ms, e);
	rc = rc ? rc : peer_ask(&p, "start resident", "bytes", &out->bytes, e);
	peer_stop(&p);
	return rc;
}

static void report_one(json_t *report, const char *name, const char *unit, double *ours, double *theirs, uint64_t n, bool vs)
{
	json_t *res = bench_add(report, name, unit, ours, n);

	if (vs)
		bench_add_peer(res, "llama", theirs, n, false);
}

static int bench(const struct start_run *r, bool json)
{
	double ours[3][MAX_REPS], theirs[3][MAX_REPS];
	struct start_sample s = { 0 }, p = { 0 };
	struct error e = { 0 };
	json_t *report;
	int rc = start_once(r, &s, &e); /* warms the page cache */

	for (uint64_t k = 0; k < r->reps && !rc && !session_interrupted(); k++) {
		cli_progress("start", (double)k / (double)r->reps);
		rc = start_once(r, &s, &e);
		rc = rc || !r->vs ? rc : peer_once(r, &p, &e);
		ours[0][k] = s.ready_ms, ours[1][k] = s.first_ms, ours[2][k] = s.bytes;
		theirs[0][k] = p.ready_ms, theirs[1][k] = p.first_ms, theirs[2][k] = p.bytes;
	}
	cli_progress_end();
	if (rc || session_interrupted())
		return rc ? cli_fail_error("bench start", &e) : CLI_FAILED;
	report = bench_report("bench start", json_pack("{s:s, s:s}", "name", r->model ? r->model : SESSION_DEFAULT_MODEL, "context", r->ctx));
	report_one(report, "start.ready", "ms", ours[0], theirs[0], r->reps, r->vs);
	report_one(report, "start.first_token", "ms", ours[1], theirs[1], r->reps, r->vs);
	report_one(report, "memory.resident", "bytes", ours[2], theirs[2], r->reps, r->vs);
	return bench_print(report, json);
}

int cmd_bench_start(int argc, char **argv)
{
	static const struct option longs[] = { { "model", 1, NULL, 'm' }, { "vs", 1, NULL, 'v' }, { "ctx", 1, NULL, 'c' },
		{ "reps", 1, NULL, 'r' }, { "json", 0, NULL, 'j' }, { "help", 0, NULL, 'h' }, { 0 } };
	struct start_run r = { .ctx = "8192", .reps = 5 };
	bool json = false;
	uint64_t ctx;
	int c;

	while ((c = cli_getopt("tenon bench start", argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (c == '?' || (c == 'r' && !cli_parse_u64("tenon bench start", "--reps", optarg, 1, MAX_REPS, &r.reps)) ||
			(c == 'c' && !cli_parse_u64("tenon bench start", "--ctx", optarg, 64, 1 << 20, &ctx)))
			return CLI_USAGE;
		if (c == 'v' && strcmp(optarg, "llama"))
			return cli_usage("tenon bench start", "--vs: '%s' is not a peer that can be run; known: llama", optarg);
		r.vs |= c == 'v';
		json |= c == 'j';
		r.model = c == 'm' ? optarg : r.model;
		r.ctx = c == 'c' ? optarg : r.ctx;
	}
	if (optind < argc)
		return cli_usage("tenon bench start", "'%s': nothing more is taken", argv[optind]);
	session_catch_int();
	return bench(&r, json);
}
