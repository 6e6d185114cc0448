/* SPDX-License-Identifier: Apache-2.0
 * tenon perplexity: how well a model predicts a text. Windows, what is counted and the error estimate are those that
 * people know from llama.cpp's perplexity tool, so that numbers can be compared; docs/cli.md has the exact rule.
 * Works in its own process. Scores come a few rows at a time; their softmax is taken in double precision.
 */
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/score.h"
#include "tools/session.h"
#include "tools/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 512 };

struct perplexity {
	struct open_options open;
	const char *file;
	uint64_t ctx, stride;
	bool json;
	struct score score;
	struct tokens text;
	uint32_t window, step, skip; /* tokens of a window, from one to the next, not counted at its start */
	uint32_t n_windows, done;    /* windows */
	uint64_t n;		     /* tokens counted */
	double sum, squares;	     /* of -log(probability) */
	int32_t *ids;		     /* [window] of the window in work */
};

static int help(void)
{
	(void)fputs(
		"usage: tenon perplexity -m MODEL -f TEXT [OPTION]...\n\n"
		"How well a model predicts a text: exp(mean of -log p(token | the tokens before it in its window)).\n"
		"Less is better. Windows and counting are those of llama.cpp's perplexity tool (docs/cli.md).\n\n" OPEN_MODEL_HELP
		"  -f, --file TEXT          a file of UTF-8 text; - is standard input\n"
		"      --ctx N              tokens of a window (default: 512, or what the model or the text has);\n"
		"                           the first half of each window is context, the rest is counted\n"
		"      --stride N           a window each N tokens; the last N of each are counted\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon perplexity -m smollm2-135m -f book.txt\n"
		"  tenon perplexity -m model.gguf -f book.txt --ctx 2048 --kv q8_0 --json\n",
		stdout);
	return CLI_OK;
}

/* ---- the text ------------------------------------------------------------------------------------------------------- */

static int take_text(struct perplexity *p, struct error *e)
{
	int rc = text_tokens(p->score.m, p->file, &p->text, e);

	if (!rc && p->text.n > INT32_MAX)
		rc = error_set(e, TENON_E_TOO_LONG, "text: has %zu tokens", p->text.n);
	return rc;
}

/* ---- windows -------------------------------------------------------------------------------------------------------- */

/* A text shorter than a window is one window. */
static int cut(struct perplexity *p, struct error *e)
{
	uint32_t n = (uint32_t)p->text.n, most = model_info(p->score.m)->n_ctx;

	p->window = MIN_OF(MIN_OF(p->ctx ? (uint32_t)p->ctx : WINDOW, most), n);
	if (p->window < 4)
		return error_set(
			e, TENON_E_INVALID, "text: %u tokens in a window; at least 4 are needed", p->window);
	if (p->stride >= p->window)
		return error_set(e, TENON_E_INVALID,
			"--stride: %llu is not less than the window of %u tokens",
			(unsigned long long)p->stride, p->window);
	p->step = p->stride ? (uint32_t)p->stride : p->window;
	p->skip = p->stride ? p->window - (uint32_t)p->stride : p->window / 2 + 1;
	p->n_windows = (n - p->window) / p->step + 1;
	p->ids = mem_zalloc(MEM_TOOL, p->window, sizeof *p->ids);
	return p->ids ? TENON_OK
		      : error_set(e, TENON_E_NOMEM, "no memory for a window of %u tokens", p->window);
}

/* -log of the softmax of a row at `id`. */
static double surprise(const float *row, uint32_t n, int32_t id)
{
	double top = row[0], sum = 0;

	for (uint32_t i = 1; i < n; i++)
		top = row[i] > top ? row[i] : top;
	for (uint32_t i = 0; i < n; i++)
		sum += exp(row[i] - top);
	return log(sum) + top - row[id];
}

static int take_rows(void *ctx, uint32_t first, const float *rows, uint32_t n, struct error *e)
{
	struct perplexity *p = ctx;
	uint32_t width = model_info(p->score.m)->n_vocab;

	for (uint32_t i = 0; i < n; i++) {
		double s = surprise(rows + (size_t)i * width, width, p->ids[first + i + 1]);

		p->sum += s;
		p->squares += s * s;
	}
	p->n += n;
	return session_interrupted() ? error_set(e, TENON_E_CANCELLED, "interrupted") : TENON_OK;
}

static double mean(const struct perplexity *p) { return p->sum / (double)p->n; }

/* Standard error of the mean. */
static double mean_error(const struct perplexity *p)
{
	double m = mean(p), v = p->squares / (double)p->n - m * m;

	return p->n > 1 && v > 0 ? sqrt(v / (double)(p->n - 1)) : 0;
}

/* Where the model asks for BOS each window begins with it, in place of the token that stands there. */
static int run_windows(struct perplexity *p, struct error *e)
{
	const struct tokenizer *t = model_tokenizer(p->score.m);
	char what[64] = "perplexity";
	int rc = TENON_OK;

	for (p->done = 0; p->done < p->n_windows && !rc; p->done += !rc) {
		memcpy(p->ids, p->text.id + (size_t)p->done * p->step, p->window * sizeof *p->ids);
		if (tokenizer_adds_bos(t))
			p->ids[0] = tokenizer_bos(t);
		cli_progress(what, (double)p->done / p->n_windows);
		rc = score_run(&p->score, p->ids, p->window - 1, p->window - p->skip, take_rows, p, e);
		(void)snprintf(what, sizeof what, "perplexity %.4f after %llu tokens", exp(mean(p)),
			(unsigned long long)p->n);
	}
	cli_progress_end();
	if (rc == TENON_E_CANCELLED && p->n)
		(void)error_set(e, rc, "interrupted in window %u of %u; %.4f +- %.4f over %llu tokens so far",
			p->done + 1, p->n_windows, exp(mean(p)), exp(mean(p)) * mean_error(p),
			(unsigned long long)p->n);
	return rc;
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static void report(const struct perplexity *p)
{
	const struct model_info *i = model_info(p->score.m);
	double ppl = exp(mean(p)), error = ppl * mean_error(p);
	const char *kv = gguf_type_name(i->kv_type),
		   *precision = i->precision == TNP_EXACT ? "exact" : "fast";

	if (p->json)
		cli_print_json(json_pack("{s:f, s:f, s:I, s:f, s:I, s:i, s:i, s:i, s:s, s:s, s:s}", "nll",
			mean(p), "ppl", ppl, "tokens", (json_int_t)p->n, "ppl_error", error, "text_tokens",
			(json_int_t)p->text.n, "windows", (int)p->n_windows, "ctx", (int)p->window, "stride",
			(int)p->step, "model", i->name, "kv_type", kv, "precision", precision));
	else
		(void)printf("perplexity %.4f +- %.4f (%llu tokens counted, %u windows of %u, KV %s, %s)\n",
			ppl, error, (unsigned long long)p->n, p->n_windows, p->window, kv, precision);
}

static int parse(int argc, char **argv, struct perplexity *p)
{
	const struct option_row rows[] = {
		{ .name = "file", .letter = 'f', .needed = true, .text = &p->file },
		{ .name = "ctx", .number = &p->ctx, .lo = 4, .hi = INT32_MAX },
		{ .name = "stride", .number = &p->stride, .lo = 1, .hi = INT32_MAX },
		{ .name = "json", .flag = &p->json },
	};

	return options_parse("tenon perplexity", argc, argv, help, &p->open, rows, COUNT_OF(rows));
}

int cmd_perplexity(int argc, char **argv)
{
	struct perplexity p = { 0 };
	struct error e = { 0 };
	int status = parse(argc, argv, &p), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	session_catch_int();
	rc = score_open(&p.open, p.ctx, SCORE_TOKENS, false, &p.score, &e);
	if (!rc)
		rc = take_text(&p, &e);
	if (!rc)
		rc = cut(&p, &e);
	if (!rc)
		rc = run_windows(&p, &e);
	if (!rc)
		report(&p);
	score_close(&p.score);
	tokens_finish(&p.text);
	mem_free(p.ids);
	return rc ? cli_fail_error("perplexity", &e) : CLI_OK;
}
