/* SPDX-License-Identifier: Apache-2.0
 * tenon bench embed: embeddings of many short texts with an encoder in this process, beside a peer in the same run. Text to
 * row: the tokenizer's time counts, on both sides. Ours and the peer's measurements alternate.
 */
#include "tools/bench.h"
#include "tools/embed.h"
#include "tools/peer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench embed [-m MODEL] [OPTION]...\n\n"
	"Texts and tokens per second of `tenon embed`, from text to row.\n\n"
	"options:\n" OPEN_MODEL_HELP
	"  -f FILE                  the texts, one a line (default: made-up short questions)\n"
	"      --texts N            how many (default 512)\n"
	"  -j, --parallel N         most texts of a step (default 64)\n"
	"      --step-tokens N      most tokens of a step (default 512)\n"
	"      --vs llama           run llama.cpp (xllamacpp) in turn with ours, in the fastest of several settings of slots and\n"
	"                           batch; ratios are ours / peer's\n"
	"      --peer-model FILE    the peer's file, where it is not to be ours\n"
	"      --reps N             repeats (default 5)\n"
	"      --json\n      --help\n\n"
	"example:\n"
	"  tenon bench embed -m minilm-l6-v2 --vs llama --threads 2\n"
	"  tenon bench embed -m minilm-q8_0.gguf --vs llama --peer-model minilm-f16.gguf --threads 2\n";

enum { MAX_REPS = 101, MAX_TEXTS = 65536, LINE_BYTES = 65536, PEER_SLOTS = 64 };

struct run {
	struct embedder m;
	struct open_options open;
	struct peer peer;
	struct embed_text *t; /* [n] */
	const char *file, *peer_model;
	char path[64]; /* of the texts, for the peer */
	uint64_t n, reps, n_tokens;
	bool vs, json;
};

/* ---- texts ---------------------------------------------------------------------------------------------------------- */

/* Question i: every pair of a form and a subject, then with a year behind the subject. */
static void question(uint64_t i, char *out, size_t room)
{
	static const char *const form[] = { "Why is * so important?", "How does * work in practice?",
		"What is the capital of the country best known for *?", "Who first wrote about *, and when?",
		"Explain * in one sentence.", "Can you compare * with its nearest alternative?",
		"Where can I learn more about *?", "List three facts about * that most people do not know." };
	static const char *const about[] = { "photosynthesis", "the stock market", "olive oil", "a heat pump",
		"public transport", "the French Revolution", "machine translation", "sourdough bread",
		"the immune system", "double-entry bookkeeping", "black holes", "a suspension bridge",
		"green tea", "vaccination", "chess openings", "the water cycle", "open source software",
		"earthquakes", "the printing press", "electric cars", "jazz music", "coral reefs",
		"compound interest" };
	size_t f = i % COUNT_OF(form), a = i / COUNT_OF(form) % COUNT_OF(about);
	uint64_t round = i / (COUNT_OF(form) * COUNT_OF(about));
	int head = (int)strcspn(form[f], "*");
	char when[32] = "";

	if (round)
		(void)snprintf(when, sizeof when, " in %llu", (unsigned long long)(1900 + round));
	(void)snprintf(out, room, "%.*s%s%s%s", head, form[f], about[a], when, form[f] + head + 1);
}

static bool put_text(struct run *r, size_t i, const char *text)
{
	r->t[i].in = json_pack("{s:s}", "text", text);
	return r->t[i].in;
}

static int texts_from_file(struct run *r, struct error *e)
{
	char *line = NULL;
	size_t room = 0, n = 0;
	ssize_t len;
	FILE *f = fopen(r->file, "re");

	if (!f)
		return error_errno(e, TENON_E_IO, errno, "-f '%s'", r->file);
	while (n < r->n && (len = getline(&line, &room, f)) >= 0) {
		line[strcspn(line, "\r\n")] = 0;
		if (*line && put_text(r, n, line))
			n++;
	}
	free(line);
	(void)fclose(f);
	r->n = n;
	return n ? TENON_OK : error_set(e, TENON_E_FORMAT, "-f '%s': has no line of text", r->file);
}

static int make_texts(struct run *r, struct error *e)
{
	char text[512];

	r->t = mem_zalloc(MEM_TOOL, r->n, sizeof *r->t);
	if (!r->t)
		return error_set(
			e, TENON_E_NOMEM, "bench embed: no memory for %llu texts", (unsigned long long)r->n);
	if (r->file)
		return texts_from_file(r, e);
	for (size_t i = 0; i < r->n; i++) {
		question(i, text, sizeof text);
		if (!put_text(r, i, text))
			return error_set(e, TENON_E_NOMEM, "bench embed: no memory for texts");
	}
	return TENON_OK;
}

/* The peer reads them from a file of its own. */
static int write_texts(struct run *r, struct error *e)
{
	const char *dir = getenv("TMPDIR");
	FILE *f;
	int fd;

	if ((size_t)snprintf(r->path, sizeof r->path, "%s/tenon-bench-XXXXXX", dir && *dir ? dir : "/tmp") >=
		sizeof r->path)
		(void)snprintf(r->path, sizeof r->path, "/tmp/tenon-bench-XXXXXX");
	fd = mkstemp(r->path);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		r->path[0] = 0;
		return error_errno(e, TENON_E_IO, errno, "bench embed: texts for the peer");
	}
	for (size_t i = 0; i < r->n; i++)
		(void)fprintf(f, "%s\n", json_string_value(json_object_get(r->t[i].in, "text")));
	return fclose(f) ? error_errno(e, TENON_E_IO, errno, "bench embed: texts for the peer") : TENON_OK;
}

/* ---- measuring ------------------------------------------------------------------------------------------------------- */

/* Texts per second of one pass. */
static int measure(struct run *r, double *out, struct error *e)
{
	uint64_t t0 = clock_now_ns();
	int rc = embedder_run(&r->m, r->t, r->n, e);

	*out = (double)r->n * 1e9 / (double)(clock_now_ns() - t0);
	r->n_tokens = 0;
	for (size_t i = 0; i < r->n; i++) {
		if (!rc && r->t[i].e.code)
			rc = error_set(e, r->t[i].e.code, "text %zu: %s", i + 1, r->t[i].e.text);
		r->n_tokens += r->t[i].ids.n;
		MEM_CLEAR(r->t[i].row);
	}
	return rc;
}

static int peer_measure(struct run *r, double *out, struct error *e)
{
	char cmd[80];

	(void)snprintf(cmd, sizeof cmd, "embed %s", r->path);
	return peer_ask(&r->peer, cmd, "texts_s", out, e);
}

static void add(struct run *r, json_t *report, const char *name, const char *unit, double by,
	const double *ours, const double *theirs)
{
	double v[MAX_REPS];
	json_t *res;

	for (uint64_t k = 0; k < r->reps; k++)
		v[k] = ours[k] * by;
	res = bench_add(report, name, unit, v, r->reps);
	for (uint64_t k = 0; k < r->reps && r->vs; k++)
		v[k] = theirs[k] * by;
	if (r->vs)
		bench_add_peer(res, "llama", v, r->reps, true);
}

static int measure_all(struct run *r, json_t *report, struct error *e)
{
	double ours[MAX_REPS], theirs[MAX_REPS], warm;
	int rc = measure(r, &warm, e);

	if (!rc && r->vs)
		rc = peer_measure(r, &warm, e);
	for (uint64_t k = 0; k < r->reps && !rc; k++) {
		cli_progress("embed", (double)k / (double)r->reps);
		rc = measure(r, &ours[k], e);
		if (!rc && r->vs)
			rc = peer_measure(r, &theirs[k], e);
	}
	cli_progress_end();
	if (rc)
		return rc;
	add(r, report, "embed.texts", "texts/s", 1, ours, theirs);
	add(r, report, "embed.tokens", "tok/s", (double)r->n_tokens / (double)r->n, ours, theirs);
	return TENON_OK;
}

static json_t *describe(const struct run *r)
{
	const struct model_info *i = model_info(r->m.m);

	return json_pack("{s:s, s:s, s:I, s:s, s:s}", "name", i->name, "arch", i->arch, "parameters",
		(json_int_t)i->n_params, "precision", i->precision == TNP_EXACT ? "exact" : "fast", "backend",
		i->backend);
}

static int bench(struct run *r)
{
	struct error e = { 0 };
	json_t *report = NULL;
	uint32_t threads =
		(uint32_t)(r->open.threads ? r->open.threads : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	int rc = embedder_open(&r->open, false, &r->m, &e);

	rc = rc ? rc : make_texts(r, &e);
	if (!rc && r->vs)
		rc = write_texts(r, &e);
	if (!rc && r->vs)
		rc = peer_start(&r->peer, "llama_embed", r->peer_model ? r->peer_model : r->m.opened.path,
			threads, model_info(r->m.m)->n_ctx, PEER_SLOTS, &e);
	if (!rc)
		rc = measure_all(r, report = bench_report("bench embed", describe(r)), &e);
	peer_stop(&r->peer);
	if (r->path[0])
		(void)unlink(r->path);
	for (size_t i = 0; r->t && i < r->n; i++)
		embed_text_finish(&r->t[i]);
	mem_free(r->t);
	embedder_close(&r->m);
	if (!rc)
		return bench_print(report, r->json);
	json_decref(report);
	return cli_fail_error("bench embed", &e);
}

/* False: wrong use, and said so. */
static bool option(struct run *r, int c, const char *arg)
{
	static const char cmd[] = "tenon bench embed";
	uint64_t n = 0;
	bool ok = true;

	switch (c) {
	case 'f':
		r->file = arg;
		break;
	case 'n':
		ok = cli_parse_u64(cmd, "--texts", arg, 1, MAX_TEXTS, &r->n);
		break;
	case 'j':
		ok = cli_parse_u64(cmd, "--parallel", arg, 1, 4096, &n);
		r->open.o.step_seqs = (uint32_t)n;
		break;
	case 's':
		ok = cli_parse_u64(cmd, "--step-tokens", arg, 1, 65536, &n);
		r->open.o.step_tokens = (uint32_t)n;
		break;
	case 'r':
		ok = cli_parse_u64(cmd, "--reps", arg, 1, MAX_REPS, &r->reps);
		break;
	case 'v':
		r->vs = ok = !strcmp(arg, "llama");
		if (!ok)
			(void)cli_usage(cmd, "--vs: '%s' is not a peer that can be run; known: llama", arg);
		break;
	case 'P':
		r->peer_model = arg;
		break;
	case 'J':
		r->json = true;
		break;
	default:
		return false;
	}
	return ok;
}

int cmd_bench_embed(int argc, char **argv)
{
	static const struct option longs[] = { OPEN_MODEL_LONGS, { "vs", 1, NULL, 'v' },
		{ "peer-model", 1, NULL, 'P' }, { "reps", 1, NULL, 'r' }, { "texts", 1, NULL, 'n' },
		{ "parallel", 1, NULL, 'j' }, { "step-tokens", 1, NULL, 's' }, { "json", 0, NULL, 'J' },
		{ "help", 0, NULL, 'h' }, { 0 } };
	struct run r = { .open = { .model = "minilm-l6-v2",
				 .o = { .step_tokens = EMBED_STEP_TOKENS, .step_seqs = EMBED_STEP_TEXTS } },
		.n = 512,
		.reps = 5 };
	int c, taken;

	while ((c = cli_getopt("tenon bench embed", argc, argv, ":m:f:j:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		taken = c == '?' ? -1 : open_model_option("tenon bench embed", c, optarg, &r.open);
		if (taken < 0 || (!taken && !option(&r, c, optarg)))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage("tenon bench embed", "'%s': nothing more is taken", argv[optind]);
	return bench(&r);
}
