/* SPDX-License-Identifier: Apache-2.0
 * tenon logits: feeds given token ids through a model and reports the scores of the next token at each position
 * ("teacher forced"). Works in its own process, without a daemon.
 */
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/score.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TOP = 1000 };

struct logits {
	struct score score;
	uint64_t top;
	FILE *full;
	json_t *tops; /* of the line in work */
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
	size_t n = best_of(row, model_info(l->score.m)->n_vocab, l->top, l->best);
	json_t *top = json_array();

	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(
			top, json_pack("[i, f]", l->best[i].id, (double)l->best[i].logit));
	return top;
}

static int write_head(const struct logits *l, uint32_t n, struct error *e)
{
	int32_t head[2] = { (int32_t)n, (int32_t)model_info(l->score.m)->n_vocab };

	if (l->full && fwrite(head, sizeof head, 1, l->full) != 1)
		return error_errno(e, TENON_E_IO, errno, "--full");
	return TENON_OK;
}

static int take_rows(void *ctx, uint32_t first, const float *rows, uint32_t n, struct error *e)
{
	struct logits *l = ctx;
	size_t width = model_info(l->score.m)->n_vocab;

	(void)first;
	if (l->full && fwrite(rows, sizeof *rows, n * width, l->full) != n * width)
		return error_errno(e, TENON_E_IO, errno, "--full");
	for (uint32_t i = 0; i < n; i++)
		(void)json_array_append_new(l->tops, top_json(l, rows + i * width));
	return TENON_OK;
}

static int check_ids(const struct logits *l, const int32_t *ids, size_t n, struct error *e)
{
	const struct model_info *info = model_info(l->score.m);

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
	int32_t *ids = NULL;
	uint32_t n_rows = 0;
	size_t n = 0;
	long start = l->full ? ftell(l->full) : 0;
	int rc = cli_json_ids(json_object_get(in, "ids"), &ids, &n, e);

	(void)line;
	(void)len;
	l->tops = json_array();
	if (!rc)
		rc = check_ids(l, ids, n, e);
	if (!rc)
		rc = count_rows(in, n, &n_rows, e);
	if (!rc)
		rc = write_head(l, n_rows, e);
	if (!rc)
		rc = score_run(&l->score, ids, (uint32_t)n, n_rows, take_rows, l, e);
	mem_free(ids);
	if (!rc) {
		(void)json_object_set_new(out, "top", l->tops);
		return TENON_OK;
	}
	json_decref(l->tops);
	/* what was written of a failed entry makes way for n = 0 */
	if (l->full && (fseek(l->full, start, SEEK_SET) || write_head(l, 0, NULL)))
		return error_errno(e, TENON_E_IO, errno, "--full");
	return rc;
}

static int run_all(struct logits *l, const char *full, struct error *e)
{
	int status;

	if (full && cli_check_output(full, l->score.opened.path, e))
		return cli_fail_error("logits", e);
	l->best = mem_zalloc(MEM_TOOL, l->top, sizeof *l->best);
	l->full = full ? fopen(full, "wbe") : NULL;
	if (full && !l->full)
		return cli_fail("--full '%s': %s", full, strerror(errno));
	if (!l->best)
		status = cli_fail_error("logits", (error_set(e, TENON_E_NOMEM, "no memory"), e));
	else
		status = cli_jsonl(entry, l);
	/* a failed last entry may leave bytes behind its n = 0 */
	if (l->full && (fflush(l->full) || ftruncate(fileno(l->full), ftell(l->full)) || fclose(l->full)))
		status = cli_fail("--full '%s': %s", full, strerror(errno));
	mem_free(l->best);
	return status;
}

struct args {
	struct open_options open;
	uint64_t top, chunk, ctx;
	const char *full;
	bool jsonl;
};

static int parse(int argc, char **argv, struct args *a)
{
	const struct option_row rows[] = {
		{ .name = "jsonl", .needed = true, .flag = &a->jsonl },
		{ .name = "top", .number = &a->top, .lo = 1, .hi = MAX_TOP },
		{ .name = "full", .text = &a->full },
		{ .name = "chunk", .number = &a->chunk, .lo = 1, .hi = SCORE_TOKENS },
		{ .name = "ctx", .number = &a->ctx, .lo = 1, .hi = UINT32_MAX },
	};

	return options_parse("tenon logits", argc, argv, help, &a->open, rows, COUNT_OF(rows));
}

int cmd_logits(int argc, char **argv)
{
	struct args a = { .top = 10, .chunk = SCORE_TOKENS };
	struct logits l = { 0 };
	struct error e = { 0 };
	int status = parse(argc, argv, &a);

	if (status)
		return status < 0 ? CLI_OK : status;
	l.top = a.top;
	status = score_open(&a.open, a.ctx, a.chunk, false, &l.score, &e) ? cli_fail_error("logits", &e)
									   : run_all(&l, a.full, &e);
	score_close(&l.score);
	return status;
}
