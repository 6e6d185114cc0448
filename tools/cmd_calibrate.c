/* SPDX-License-Identifier: Apache-2.0
 * tenon calibrate: runs a text through a model and writes what each column of each matrix is multiplied by, squared and
 * averaged. The activations come out of the graph as further outputs (MODEL_TAPS_LINEAR). Works in its own process.
 */
#include "engine/importance.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/score.h"
#include "tools/session.h"
#include "tools/text.h"
#include <signal.h>
#include <string.h>

enum { WINDOW = 512 };

struct calibrate {
	struct open_options open;
	const char *file, *out;
	uint64_t ctx, most_tokens;
	bool json;
	struct score score;
	struct tokens text;
	struct texts texts;		     /* of an encoder, in place of `text` */
	uint32_t n, window, n_windows, done; /* tokens; of a window; windows, or an encoder's texts */
	int32_t *ids;			     /* [window] */
	double **sum;			     /* [taps][width] of squares */
	uint64_t *n_rows;		     /* [taps] */
};

static int help(void)
{
	(void)fputs(
		"usage: tenon calibrate -m MODEL -f TEXT -o FILE [OPTION]...\n\n"
		"Measures over a text how much each column of each weight matrix matters (the mean square of what it multiplies)\n"
		"and writes that for tenon quantize --importance. Take text of the kind that the model will see;\n"
		"for an encoder each line is a text of its own.\n\n" OPEN_MODEL_HELP
		"  -f, --file TEXT          a file of UTF-8 text; - is standard input\n"
		"  -o, --output FILE        the file to write\n"
		"      --ctx N              tokens of a window (default: 512, or what the model has); encoders take whole lines\n"
		"      --tokens N           stop after so many tokens (default: the whole text)\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon calibrate -m model-f16.gguf -f book.txt -o model.imp\n"
		"  tenon calibrate -m model-f16.gguf -f book.txt -o model.imp --tokens 20000 --precision exact\n",
		stdout);
	return CLI_OK;
}

/* ---- text and memory -------------------------------------------------------------------------------------------------- */

static int take_texts(struct calibrate *c, struct error *e)
{
	int rc = texts_read(c->score.m, c->file, MIN_OF(c->most_tokens, (uint64_t)INT32_MAX), &c->texts, e);

	c->n = (uint32_t)c->texts.n_tokens;
	c->n_windows = (uint32_t)c->texts.n;
	return rc;
}

static int take_text(struct calibrate *c, struct error *e)
{
	int rc = text_tokens(c->score.m, c->file, &c->text, e);

	if (rc)
		return rc;
	c->n = (uint32_t)MIN_OF(MIN_OF((uint64_t)c->text.n, (uint64_t)INT32_MAX), c->most_tokens);
	c->window = MIN_OF(MIN_OF((uint32_t)c->ctx, model_info(c->score.m)->n_ctx), c->n);
	c->n_windows = c->n >= 2 ? (c->n + c->window - 1) / c->window : 0;
	return c->n >= 2 ? TENON_OK
			 : error_set(e, TENON_E_INVALID, "text: has %u tokens; at least 2 are needed", c->n);
}

static int take_memory(struct calibrate *c, struct error *e)
{
	size_t n = model_n_taps(c->score.m);
	bool ok;

	c->ids = mem_zalloc(MEM_TOOL, c->window, sizeof *c->ids);
	c->sum = mem_zalloc(MEM_TOOL, n, sizeof *c->sum);
	c->n_rows = mem_zalloc(MEM_TOOL, n, sizeof *c->n_rows);
	ok = c->ids && c->sum && c->n_rows;
	for (size_t i = 0; i < n && ok; i++) {
		c->sum[i] = mem_zalloc(MEM_TOOL, model_tap_at(c->score.m, i)->width, sizeof **c->sum);
		ok = c->sum[i];
	}
	return ok ? TENON_OK : error_set(e, TENON_E_NOMEM, "no memory for sums over columns");
}

static void finish(struct calibrate *c)
{
	for (size_t i = 0; c->sum && i < model_n_taps(c->score.m); i++)
		mem_free(c->sum[i]);
	mem_free(c->sum);
	mem_free(c->n_rows);
	mem_free(c->ids);
	tokens_finish(&c->text);
	texts_finish(&c->texts);
	score_close(&c->score);
}

/* ---- measuring -------------------------------------------------------------------------------------------------------- */

static int take_rows(void *ctx, uint32_t first, const float *rows, uint32_t n, struct error *e)
{
	struct calibrate *c = ctx;

	(void)first;
	(void)rows;
	(void)n;
	for (size_t i = 0; i < model_n_taps(c->score.m); i++) {
		const struct model_tap *t = model_tap_at(c->score.m, i);

		for (uint32_t r = 0; r < t->n_rows; r++)
			for (uint32_t j = 0; j < t->width; j++) {
				double v = t->rows[(size_t)r * t->width + j];

				c->sum[i][j] += v * v;
			}
		c->n_rows[i] += t->n_rows;
	}
	return session_interrupted() ? error_set(e, TENON_E_CANCELLED, "interrupted; nothing was written")
				     : TENON_OK;
}

static int run_texts(struct calibrate *c, struct error *e)
{
	int rc = TENON_OK;

	for (c->done = 0; c->done < c->n_windows && !rc; c->done++) {
		const struct tokens *t = &c->texts.t[c->done];

		cli_progress("calibrate", (double)c->done / c->n_windows);
		rc = score_embed(&c->score, t->id, (uint32_t)t->n, e);
		if (!rc)
			rc = take_rows(c, 0, NULL, 0, e);
	}
	cli_progress_end();
	return rc;
}

/* Windows as tenon perplexity has them; the last may be short. */
static int run_windows(struct calibrate *c, struct error *e)
{
	const struct tokenizer *t = model_tokenizer(c->score.m);
	int rc = TENON_OK;

	for (c->done = 0; c->done < c->n_windows && !rc; c->done++) {
		uint32_t at = c->done * c->window, n = MIN_OF(c->n - at, c->window);

		memcpy(c->ids, c->text.id + at, n * sizeof *c->ids);
		if (tokenizer_adds_bos(t))
			c->ids[0] = tokenizer_bos(t);
		cli_progress("calibrate", (double)c->done / c->n_windows);
		rc = score_run(&c->score, c->ids, n, n, take_rows, c, e);
	}
	cli_progress_end();
	return rc;
}

/* ---- the file --------------------------------------------------------------------------------------------------------- */

static bool written(const struct importance_row *rows, size_t n, const struct gguf_tensor *t)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].name.s == t->name.s)
			return true;
	return false;
}

static void rows_fill(const struct calibrate *c, struct importance_row *rows, float *values, size_t *n)
{
	for (size_t i = 0; i < model_n_taps(c->score.m); i++) {
		const struct model_tap *t = model_tap_at(c->score.m, i);

		for (uint32_t j = 0; j < t->width; j++)
			values[j] = (float)(c->sum[i][j] / (double)MAX_OF(c->n_rows[i], (uint64_t)1));
		for (uint32_t w = 0; w < t->n_weights; w++)
			if (!written(rows, *n, t->weight[w]))
				rows[(*n)++] =
					(struct importance_row){ t->weight[w]->name, t->width, values };
		values += t->width;
	}
}

static int write_file(const struct calibrate *c, size_t *n, struct error *e)
{
	size_t n_taps = model_n_taps(c->score.m), most = 0, width = 0;
	struct importance_row *rows;
	float *values;
	int rc;

	for (size_t i = 0; i < n_taps; i++) {
		most += model_tap_at(c->score.m, i)->n_weights;
		width += model_tap_at(c->score.m, i)->width;
	}
	rows = mem_zalloc(MEM_TOOL, most, sizeof *rows);
	values = mem_zalloc(MEM_TOOL, width, sizeof *values);
	*n = 0;
	if (rows && values) {
		rows_fill(c, rows, values, n);
		rc = importance_write(c->out, model_info(c->score.m)->name, c->n, rows, *n, e);
	} else {
		rc = error_set(e, TENON_E_NOMEM, "no memory for the columns' values");
	}
	mem_free(rows);
	mem_free(values);
	return rc;
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

static int parse(int argc, char **argv, struct calibrate *c)
{
	const struct option_row rows[] = {
		{ .name = "file", .letter = 'f', .needed = true, .text = &c->file },
		{ .name = "output", .letter = 'o', .needed = true, .text = &c->out },
		{ .name = "ctx", .number = &c->ctx, .lo = 2, .hi = INT32_MAX },
		{ .name = "tokens", .number = &c->most_tokens, .lo = 2, .hi = INT32_MAX },
		{ .name = "json", .flag = &c->json },
	};

	return options_parse("tenon calibrate", argc, argv, help, &c->open, rows, COUNT_OF(rows));
}

/* What could be known before hours of work is. */
static int check_output(const struct calibrate *c, struct error *e)
{
	int rc = cli_check_output(c->out, c->score.opened.path, e);

	if (!rc)
		rc = cli_check_output(c->out, c->file, e);
	return rc ? rc : importance_can_write(c->out, e);
}

int cmd_calibrate(int argc, char **argv)
{
	struct calibrate c = { .ctx = WINDOW, .most_tokens = UINT64_MAX };
	struct error e = { 0 };
	int status = parse(argc, argv, &c), rc;
	size_t n = 0;

	if (status)
		return status < 0 ? CLI_OK : status;
	session_catch_int();
	(void)signal(SIGXFSZ, SIG_IGN);
	c.open.o.taps = MODEL_TAPS_LINEAR;
	rc = score_open(&c.open, 0, SCORE_OUT, true, &c.score, &e);
	if (!rc)
		rc = check_output(&c, &e);
	if (!rc)
		rc = model_info(c.score.m)->is_encoder ? take_texts(&c, &e) : take_text(&c, &e);
	if (!rc)
		rc = take_memory(&c, &e);
	if (!rc)
		rc = model_info(c.score.m)->is_encoder ? run_texts(&c, &e) : run_windows(&c, &e);
	if (!rc)
		rc = write_file(&c, &n, &e);
	if (!rc && c.json)
		cli_print_json(json_pack("{s:s, s:I, s:I, s:i}", "output", c.out, "tokens", (json_int_t)c.n,
			"matrices", (json_int_t)n, "windows", (int)c.n_windows));
	else if (!rc)
		(void)printf("%s: %zu matrices over %u tokens\n", c.out, n, c.n);
	finish(&c);
	return rc ? cli_fail_error("calibrate", &e) : CLI_OK;
}
