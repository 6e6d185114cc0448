/* SPDX-License-Identifier: Apache-2.0
 * tenon logits: feeds given token ids through a model and reports the scores of the next token at each position
 * ("teacher forced"). Works in its own process, without a daemon. Page numbers are used in a scattered order on purpose:
 * results must not depend on them.
 */
#include "tools/commands.h"
#include "tools/open_model.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	STEP_OUT = 64,
	STEP_TOKENS = 512,
	MAX_TOP = 1000,
	OPT_JSONL = 0x300,
	OPT_TOP,
	OPT_FULL,
	OPT_CHUNK,
	OPT_CTX
};

struct logits {
	struct model *m;
	uint64_t top, chunk;
	FILE *full;
	uint32_t *pages; /* [n_pages] in the order of use */
	float *rows;	 /* [STEP_OUT][n_vocab] */
	struct scored {
		float logit;
		int32_t id;
	} * best; /* [top] */
};

static int help(void)
{
	(void)fputs(
		"usage: tenon logits -m MODEL --jsonl [OPTION]... <IDS.jsonl\n\n"
		"Scores of the next token at each position of given token ids. No token is added to them.\n\n" OPEN_MODEL_HELP
		"      --jsonl              one JSON object a line: {\"id\",\"ids\",\"last\"?}; last: only the last so many positions\n"
		"      --top K              report the K best tokens of each position (default 10)\n"
		"      --full FILE          write all scores: int32 n, int32 vocabulary, float32[n][vocabulary] for each line\n"
		"      --chunk N            cut the ids into steps of N tokens (results must not change)\n"
		"      --ctx N              longest line, in tokens (default: the model's own, at most 8192)\n\n"
		"answers: {\"id\",\"top\":[[[id,score],...] for each position]}\n\n"
		"examples:\n"
		"  echo '{\"id\":1,\"ids\":[504,2988,314]}' | tenon logits -m smollm2-135m --jsonl --top 3\n"
		"  tenon logits -m model.gguf --jsonl --precision exact --full scores.bin <ids.jsonl\n",
		stdout);
	return CLI_OK;
}

/* The k best, best first; of equals the lower id first. */
static size_t best_of(const float *row, uint32_t n, size_t k, struct scored *out)
{
	size_t have = 0;

	for (uint32_t i = 0; i < n; i++) {
		size_t at = have < k ? have : k;

		if (have == k && !(row[i] > out[k - 1].logit))
			continue;
		if (at == k)
			at--;
		for (; at > 0 && row[i] > out[at - 1].logit; at--)
			out[at] = out[at - 1];
		out[at] = (struct scored){ row[i], (int32_t)i };
		have += have < k;
	}
	return have;
}

static json_t *top_json(const struct logits *l, const float *row)
{
	size_t n = best_of(row, model_info(l->m)->n_vocab, l->top, l->best);
	json_t *top = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(
			top, json_pack("[i, f]", l->best[i].id, (double)l->best[i].logit));
	return top;
}

static int write_rows(const struct logits *l, uint32_t n, struct error *e)
{
	size_t count = (size_t)n * model_info(l->m)->n_vocab;

	if (l->full && fwrite(l->rows, sizeof *l->rows, count, l->full) != count)
		return error_errno(e, TENON_E_IO, errno, "--full");
	return TENON_OK;
}

static int write_head(const struct logits *l, uint32_t n, struct error *e)
{
	int32_t head[2] = { (int32_t)n, (int32_t)model_info(l->m)->n_vocab };

	if (l->full && fwrite(head, sizeof head, 1, l->full) != 1)
		return error_errno(e, TENON_E_IO, errno, "--full");
	return TENON_OK;
}

/* Tokens of the next step from `past`: a chunk, and not more rows than there is room for. */
static uint32_t step_length(const struct logits *l, uint32_t past, uint32_t n, uint32_t first_row)
{
	uint32_t len = (uint32_t)MIN_OF((uint64_t)n - past, l->chunk);

	if (past + len > first_row && past + len - MAX_OF(first_row, past) > STEP_OUT)
		len = MAX_OF(first_row, past) - past + STEP_OUT;
	return len;
}

static int run_ids(
	struct logits *l, const int32_t *ids, uint32_t n, uint32_t n_rows, json_t *tops, struct error *e)
{
	const struct model_info *info = model_info(l->m);

	for (uint32_t past = 0, len; past < n; past += len) {
		struct step_seq s = { .tokens = ids + past, .past = past, .out = l->rows };
		uint32_t first_row = n - n_rows;
		int rc;

		s.n_tokens = len = step_length(l, past, n, first_row);
		s.n_out = past + len > first_row ? past + len - MAX_OF(first_row, past) : 0;
		for (uint32_t g = 0; g < info->n_groups; g++) {
			s.pages[g] = l->pages;
			s.n_pages[g] = (past + len + info->page_tokens - 1) / info->page_tokens;
		}
		rc = model_step(l->m, &s, 1, e);
		if (!rc && s.rc)
			rc = error_set(e, s.rc, "ids: %s", error_meaning(s.rc));
		if (!rc)
			rc = write_rows(l, s.n_out, e);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < s.n_out; i++)
			(void)json_array_append_new(tops, top_json(l, l->rows + (size_t)i * info->n_vocab));
	}
	return TENON_OK;
}

static int check_ids(const struct logits *l, const int32_t *ids, size_t n, struct error *e)
{
	const struct model_info *info = model_info(l->m);

	if (!n)
		return error_set(e, TENON_E_INVALID, "ids: is empty");
	if (n > info->n_ctx)
		return error_set(
			e, TENON_E_TOO_LONG, "ids: %zu tokens, the context holds %u", n, info->n_ctx);
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= info->n_vocab)
			return error_set(e, TENON_E_INVALID,
				"ids[%zu]: %d is no token of this model (0 to %u)", i, ids[i],
				info->n_vocab - 1);
	return TENON_OK;
}

static int count_rows(const json_t *in, size_t n, uint32_t *out, struct error *e)
{
	const json_t *last = json_object_get(in, "last");
	json_int_t v = last ? json_integer_value(last) : (json_int_t)n;

	if ((last && !json_is_integer(last)) || v < 0)
		return error_set(e, TENON_E_INVALID, "last: not a whole number from 0");
	*out = (uint32_t)MIN_OF((size_t)v, n);
	return TENON_OK;
}

static int entry(void *ctx, const json_t *in, const char *line, size_t len, json_t *out, struct error *e)
{
	struct logits *l = ctx;
	json_t *tops = json_array();
	int32_t *ids = NULL;
	uint32_t n_rows = 0;
	size_t n = 0;
	long start = l->full ? ftell(l->full) : 0;
	int rc = cli_json_ids(json_object_get(in, "ids"), &ids, &n, e);

	(void)line;
	(void)len;
	if (!rc)
		rc = check_ids(l, ids, n, e);
	if (!rc)
		rc = count_rows(in, n, &n_rows, e);
	if (!rc)
		rc = write_head(l, n_rows, e);
	if (!rc)
		rc = run_ids(l, ids, (uint32_t)n, n_rows, tops, e);
	mem_free(ids);
	if (!rc) {
		(void)json_object_set_new(out, "top", tops);
		return TENON_OK;
	}
	json_decref(tops);
	/* what was written of a failed entry makes way for n = 0 */
	if (l->full && (fseek(l->full, start, SEEK_SET) || write_head(l, 0, NULL)))
		return error_errno(e, TENON_E_IO, errno, "--full");
	return rc;
}

/* Scattered page numbers: odd ones from the top, then even ones. */
static bool pages_scatter(struct logits *l)
{
	uint32_t n = 0, at = 0;

	for (uint32_t g = 0; g < model_info(l->m)->n_groups; g++)
		n = g ? MIN_OF(n, model_info(l->m)->n_pages[g]) : model_info(l->m)->n_pages[g];
	l->pages = mem_zalloc(MEM_TOOL, n ? n : 1, sizeof *l->pages);
	for (uint32_t odd = 2; l->pages && odd-- > 0;)
		for (uint32_t i = n; i-- > 0;)
			if (i % 2 == odd)
				l->pages[at++] = i;
	return l->pages;
}

static int run_all(struct logits *l, const char *full, struct error *e)
{
	int status;

	l->rows = mem_zalloc(MEM_TOOL, (size_t)STEP_OUT * model_info(l->m)->n_vocab, sizeof *l->rows);
	l->best = mem_zalloc(MEM_TOOL, l->top, sizeof *l->best);
	l->full = full ? fopen(full, "wbe") : NULL;
	if (full && !l->full)
		return cli_fail("--full '%s': %s", full, strerror(errno));
	if (!l->rows || !l->best || !pages_scatter(l))
		status = cli_fail_error("logits", (error_set(e, TENON_E_NOMEM, "no memory"), e));
	else
		status = cli_jsonl(entry, l);
	/* a failed last entry may leave bytes behind its n = 0 */
	if (l->full && (fflush(l->full) || ftruncate(fileno(l->full), ftell(l->full)) || fclose(l->full)))
		status = cli_fail("--full '%s': %s", full, strerror(errno));
	mem_free(l->rows);
	mem_free(l->best);
	mem_free(l->pages);
	return status;
}

struct args {
	struct open_options open;
	uint64_t top, chunk, ctx;
	const char *full;
	bool jsonl;
};

/* CLI_OK, CLI_USAGE, or -1 after --help. */
static int parse(int argc, char **argv, struct args *a)
{
	static const struct option longs[] = { OPEN_MODEL_LONGS, { "jsonl", no_argument, NULL, OPT_JSONL },
		{ "top", required_argument, NULL, OPT_TOP }, { "full", required_argument, NULL, OPT_FULL },
		{ "chunk", required_argument, NULL, OPT_CHUNK }, { "ctx", required_argument, NULL, OPT_CTX },
		{ "help", no_argument, NULL, 'h' }, { 0 } };
	const char *cmd = "tenon logits";
	bool ok = true;
	int c;

	while (ok && (c = cli_getopt(cmd, argc, argv, ":m:h", longs)) != -1) {
		int taken = c == '?' ? -1 : open_model_option(cmd, c, optarg, &a->open);

		if (taken)
			ok = taken > 0;
		else if (c == OPT_TOP)
			ok = cli_parse_u64(cmd, "--top", optarg, 1, MAX_TOP, &a->top);
		else if (c == OPT_CHUNK)
			ok = cli_parse_u64(cmd, "--chunk", optarg, 1, STEP_TOKENS, &a->chunk);
		else if (c == OPT_CTX)
			ok = cli_parse_u64(cmd, "--ctx", optarg, 1, UINT32_MAX, &a->ctx);
		else if (c == OPT_FULL)
			a->full = optarg;
		else if (c == OPT_JSONL)
			a->jsonl = true;
		else
			return help() - 1;
	}
	if (!ok)
		return CLI_USAGE;
	if (optind < argc)
		return cli_usage(cmd, "unexpected argument '%s'", argv[optind]);
	return a->open.model && a->jsonl ? CLI_OK
					 : cli_usage(cmd, a->jsonl ? "-m is missing" : "--jsonl is missing");
}

int cmd_logits(int argc, char **argv)
{
	struct args a = { .top = 10, .chunk = STEP_TOKENS };
	struct logits l = { 0 };
	struct opened m;
	struct error e = { 0 };
	int status = parse(argc, argv, &a);

	if (status)
		return status < 0 ? CLI_OK : status;
	a.open.o.step_tokens = STEP_TOKENS;
	a.open.o.step_seqs = 1;
	a.open.o.step_out = STEP_OUT;
	a.open.o.n_ctx = (uint32_t)a.ctx;
	if (open_model(&a.open, &m, &e)) {
		open_model_close(&m);
		return cli_fail_error("logits", &e);
	}
	l = (struct logits){ .m = m.model, .top = a.top, .chunk = a.chunk };
	status = run_all(&l, a.full, &e);
	open_model_close(&m);
	return status;
}
