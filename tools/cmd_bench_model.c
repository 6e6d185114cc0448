/* SPDX-License-Identifier: Apache-2.0
 * tenon bench model: prefill, decode and batched decode of a model in this process, beside a peer in the same run.
 * Ours and the peer's measurements alternate, so that a slow minute of the machine hits both.
 */
#include "tools/bench.h"
#include "tools/open_model.h"
#include "tools/peer.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon bench model [-m MODEL] [OPTION]...\n\n"
	"Tokens per second: prefill.N of one prompt, decode.N of one sequence, decode.batchS of S sequences in all; the\n"
	"machine's read bandwidth and decode's share of it.\n\n"
	"options:\n"
	OPEN_MODEL_HELP
	"      --vs llama           run llama.cpp (xllamacpp) in turn with ours; ratios are ours / peer's\n"
	"      --reps N             repeats (default 5)\n"
	"      --only LIST          of prefill.512, prefill.4000, decode.128, decode.batch4, .batch8, .batch16, .batch32\n"
	"      --json\n      --help\n\n"
	"examples:\n"
	"  tenon bench model --vs llama --threads 2\n"
	"  tenon bench model -m ./model.gguf --only prefill.512,decode.128 --json\n";

enum { MAX_REPS = 101, BATCH_PROMPT = 128, BATCH_NEW = 64, N_CTX = 8192, MAX_SEQS = 32 };

enum kind { PREFILL, DECODE, BATCH };
static const struct item {
	const char *name;
	enum kind kind;
	uint32_t n;
} items[] = {
	{ "prefill.512", PREFILL, 512 }, { "decode.128", DECODE, 128 }, { "decode.batch4", BATCH, 4 }, { "decode.batch8", BATCH, 8 },
	{ "decode.batch16", BATCH, 16 }, { "decode.batch32", BATCH, 32 }, { "prefill.4000", PREFILL, 4000 },
};

struct run {
	struct opened l;
	const struct model_info *info;
	int32_t *tokens;  /* [N_CTX] random ids */
	uint32_t *pages;  /* [all pages of group 0], in order */
	float *logits;    /* [MAX_SEQS][n_vocab] */
	struct peer peer;
	const char *only;
	uint64_t reps;
	bool vs;
};

/* ---- our side --------------------------------------------------------------------------------------------------- */

/* Sequence `i` of a step: pages of its own, one after the other. */
static struct step_seq seq_at(const struct run *r, uint32_t i, uint32_t past, uint32_t n, bool out)
{
	uint32_t per_seq = r->info->n_pages[0] / MAX_SEQS, first = past + n > per_seq * r->info->page_tokens ? 0 : i * per_seq;
	struct step_seq s = { .tokens = r->tokens + past, .n_tokens = n, .past = past, .n_out = out,
		.out = out ? r->logits + (size_t)i * r->info->n_vocab : NULL };

	for (uint32_t g = 0; g < r->info->n_groups; g++) {
		s.pages[g] = r->pages + first;
		s.n_pages[g] = (past + n + r->info->page_tokens - 1) / r->info->page_tokens;
	}
	return s;
}

static int step(struct run *r, uint32_t n_seqs, uint32_t past, uint32_t n, bool out, struct error *e)
{
	struct step_seq s[MAX_SEQS];
	int rc;

	for (uint32_t i = 0; i < n_seqs; i++)
		s[i] = seq_at(r, i, past, n, out);
	rc = model_step(r->l.model, s, n_seqs, e);
	for (uint32_t i = 0; i < n_seqs && !rc; i++)
		rc = s[i].rc ? error_set(e, s[i].rc, "sequence %u: refused by the backend", i) : 0;
	return rc;
}

static int prefill(struct run *r, uint32_t i_seqs, uint32_t n, struct error *e)
{
	uint32_t chunk = r->info->step_tokens / i_seqs;
	int rc = 0;

	for (uint32_t at = 0; at < n && !rc; at += chunk)
		rc = step(r, i_seqs, at, MIN_OF(chunk, n - at), at + chunk >= n, e);
	return rc;
}

/* Greedy, as a server would: the row is searched for its best token. */
static int decode(struct run *r, uint32_t n_seqs, uint32_t past, uint32_t n, struct error *e)
{
	int rc = 0;

	for (uint32_t k = 0; k < n && !rc; k++) {
		rc = step(r, n_seqs, past + k, 1, true, e);
		for (uint32_t i = 0; i < n_seqs && !rc; i++) {
			const float *row = r->logits + (size_t)i * r->info->n_vocab;
			uint32_t best = 0;

			for (uint32_t v = 1; v < r->info->n_vocab; v++)
				best = row[v] > row[best] ? v : best;
			r->tokens[past + k + 1] = (int32_t)best;
		}
	}
	return rc;
}

/* Tokens per second of one measurement. */
static int measure(struct run *r, const struct item *it, double *out, struct error *e)
{
	uint32_t seqs = it->kind == BATCH ? it->n : 1, past = it->kind == BATCH ? BATCH_PROMPT : 8;
	uint32_t n = it->kind == BATCH ? BATCH_NEW : it->n;
	int rc = it->kind == PREFILL ? 0 : prefill(r, seqs, past, e);
	uint64_t t0 = clock_now_ns();

	if (!rc)
		rc = it->kind == PREFILL ? prefill(r, 1, n, e) : decode(r, seqs, past, n, e);
	*out = (double)seqs * n * 1e9 / (double)(clock_now_ns() - t0);
	return rc;
}

/* ---- the machine -------------------------------------------------------------------------------------------------- */

enum { READ_BYTES = 256 << 20 };

struct reader {
	const uint64_t *p;
	size_t n;
	uint64_t sum;
};

static void *read_all(void *arg)
{
	struct reader *rd = arg;
	uint64_t s[8] = { 0 };

	for (size_t i = 0; i + 8 <= rd->n; i += 8)
		for (int k = 0; k < 8; k++)
			s[k] += rd->p[i + (size_t)k];
	rd->sum = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
	return NULL;
}

/* GB/s of reading a block that no cache holds, with as many threads as processors (at most 8). */
static double read_bandwidth(const uint64_t *block)
{
	struct reader rd[8];
	pthread_t th[8];
	long n = MIN_OF(sysconf(_SC_NPROCESSORS_ONLN), 8), made = 0;
	size_t part = READ_BYTES / sizeof(uint64_t) / (size_t)n;
	uint64_t t0 = clock_now_ns();

	for (long i = 0; i < n; i++) {
		rd[i] = (struct reader){ .p = block + part * (size_t)i, .n = part };
		if (!pthread_create(&th[i], NULL, read_all, &rd[i]))
			made++;
	}
	for (long i = 0; i < made; i++)
		(void)pthread_join(th[i], NULL);
	return (double)READ_BYTES * ((double)made / (double)n) / (double)(clock_now_ns() - t0);
}

static void add_bandwidth(struct run *r, json_t *report, double decode_rate)
{
	uint64_t *block = malloc(READ_BYTES);
	double gb[MAX_REPS], share;
	const struct model_info *i = r->info;

	if (!block)
		return;
	memset(block, 1, READ_BYTES);
	for (uint64_t k = 0; k < r->reps; k++)
		gb[k] = read_bandwidth(block);
	free(block);
	(void)bench_add(report, "bandwidth.read", "GB/s", gb, r->reps);
	share = decode_rate * (double)(i->weights_own_bytes ? i->weights_own_bytes : i->weights_mapped_bytes) / 1e9 / gb[r->reps / 2];
	if (decode_rate > 0)
		(void)bench_add(report, "decode.mbu", "share", &share, 1);
}

/* ---- the run ------------------------------------------------------------------------------------------------------- */

static bool wanted(const struct run *r, const struct item *it)
{
	const char *at = r->only;
	size_t n = strlen(it->name);

	for (; at && (at = strstr(at, it->name)); at += n)
		if ((at == r->only || at[-1] == ',') && (at[n] == ',' || !at[n]))
			return true;
	return !r->only;
}

/* Has the model the context and the pool the pages for it? The default context is N_CTX at most. */
static bool fits(const struct run *r, const struct item *it)
{
	uint32_t per_seq = r->info->n_pages[0] / MAX_SEQS * r->info->page_tokens;

	return it->kind == BATCH ? per_seq >= BATCH_PROMPT + BATCH_NEW : it->n + 8 <= r->info->n_ctx;
}

static int peer_measure(struct run *r, const struct item *it, double *out, struct error *e)
{
	char cmd[64];

	(void)snprintf(cmd, sizeof cmd, it->kind == BATCH ? "batch %u %d" : it->kind == PREFILL ? "prefill %u" : "decode %u", it->n,
		(int)BATCH_NEW);
	return peer_ask(&r->peer, cmd, "tok_s", out, e);
}

static int run_item(struct run *r, const struct item *it, json_t *report, double *median, struct error *e)
{
	double ours[MAX_REPS], theirs[MAX_REPS], warm;
	int rc = measure(r, it, &warm, e);
	json_t *res;

	if (!rc && r->vs)
		rc = peer_measure(r, it, &warm, e);
	for (uint64_t k = 0; k < r->reps && !rc; k++) {
		cli_progress(it->name, (double)k / (double)r->reps);
		rc = measure(r, it, &ours[k], e);
		if (!rc && r->vs)
			rc = peer_measure(r, it, &theirs[k], e);
	}
	cli_progress_end();
	if (rc)
		return rc;
	res = bench_add(report, it->name, "tok/s", ours, r->reps);
	*median = json_number_value(json_object_get(res, "median"));
	if (r->vs)
		bench_add_peer(res, "llama", theirs, r->reps, true);
	return rc;
}

static json_t *describe(const struct run *r)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:s}", "name", r->info->name, "arch", r->info->arch, "parameters",
		(json_int_t)r->info->n_params, "precision", r->info->precision == TNP_EXACT ? "exact" : "fast", "backend",
		r->info->backend);
}

static int prepare(struct run *r, struct error *e)
{
	uint32_t seed = 1, n = 0;

	r->info = model_info(r->l.model);
	for (uint32_t g = 0; g < r->info->n_groups; g++)
		n = MAX_OF(n, r->info->n_pages[g]);
	r->tokens = mem_zalloc(MEM_TOOL, N_CTX + 1, sizeof *r->tokens);
	r->pages = mem_zalloc(MEM_TOOL, n, sizeof *r->pages);
	r->logits = mem_zalloc(MEM_TOOL, (size_t)MAX_SEQS * r->info->n_vocab, sizeof *r->logits);
	if (!r->tokens || !r->pages || !r->logits)
		return error_set(e, TENON_E_NOMEM, "bench: out of memory");
	for (uint32_t i = 0; i < n; i++)
		r->pages[i] = i;
	for (uint32_t i = 0; i <= N_CTX; i++) {
		seed = seed * 1664525u + 1013904223u;
		r->tokens[i] = (int32_t)((seed >> 8) % r->info->n_vocab);
	}
	return TENON_OK;
}

static void run_finish(struct run *r)
{
	peer_stop(&r->peer);
	mem_free(r->tokens);
	mem_free(r->pages);
	mem_free(r->logits);
	open_model_close(&r->l);
}

static int bench(struct run *r, struct open_options *lo, bool json)
{
	struct error e = { 0 };
	json_t *report = NULL;
	double decode_rate = 0, median = 0;
	int rc = open_model(lo, &r->l, &e);

	if (!rc && model_info(r->l.model)->is_encoder)
		rc = error_set(&e, TENON_E_UNSUPPORTED, "an encoder gives embeddings, not text; see tenon bench embed");
	rc = rc ? rc : prepare(r, &e);
	if (!rc && r->vs)
		rc = peer_start(&r->peer, "llama", r->l.path, (uint32_t)(lo->threads ? lo->threads : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN)),
			16384, MAX_SEQS, &e);
	if (!rc)
		report = bench_report("bench model", describe(r));
	for (size_t i = 0; i < COUNT_OF(items) && !rc; i++) {
		if (!wanted(r, &items[i]) || !fits(r, &items[i]))
			continue;
		rc = run_item(r, &items[i], report, &median, &e);
		decode_rate = items[i].kind == DECODE ? median : decode_rate;
	}
	if (!rc)
		add_bandwidth(r, report, decode_rate);
	run_finish(r);
	if (rc) {
		json_decref(report);
		return cli_fail_error("bench model", &e);
	}
	return bench_print(report, json);
}

int cmd_bench_model(int argc, char **argv)
{
	static const struct option longs[] = { OPEN_MODEL_LONGS, { "vs", 1, NULL, 'v' }, { "reps", 1, NULL, 'r' },
		{ "only", 1, NULL, 'o' }, { "json", 0, NULL, 'j' }, { "help", 0, NULL, 'h' }, { 0 } };
	struct open_options lo = { .model = "smollm2-135m",
		.o = { .step_tokens = 512, .step_seqs = MAX_SEQS, .step_out = MAX_SEQS } };
	struct run r = { .reps = 5 };
	bool json = false;
	int c, taken;

	while ((c = cli_getopt("tenon bench model", argc, argv, ":m:h", longs)) != -1) {
		taken = open_model_option("tenon bench model", c, optarg, &lo);
		if (taken > 0)
			continue;
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (taken < 0 || c == '?' || (c == 'r' && !cli_parse_u64("tenon bench model", "--reps", optarg, 1, MAX_REPS, &r.reps)))
			return CLI_USAGE;
		if (c == 'v' && strcmp(optarg, "llama"))
			return cli_usage("tenon bench model", "--vs: '%s' is not a peer that can be run; known: llama", optarg);
		r.vs |= c == 'v';
		json |= c == 'j';
		r.only = c == 'o' ? optarg : r.only;
	}
	if (optind < argc)
		return cli_usage("tenon bench model", "'%s': nothing more is taken", argv[optind]);
	return bench(&r, &lo, json);
}
