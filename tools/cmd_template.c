/* SPDX-License-Identifier: Apache-2.0
 * tenon template: chat messages to the text that a model's chat template makes of them, in this process, without a
 * daemon. Input lines are read by the template engine itself, which keeps integers of any length.
 */
#include "engine/chat.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include <errno.h>
#include <string.h>
#include <time.h>

struct job {
	const char *model, *file; /* -m, --template */
	bool raw, jsonl, spans;
	struct chat_template *t;
	struct buf bos, eos; /* text of the model's special tokens; empty: none */
};

static int help(void)
{
	(void)puts(
		"usage: tenon template (-m MODEL | --template FILE | --raw) [--spans] [--jsonl]\n\n"
		"Prints the prompt that a chat template makes of a request. The request is a JSON object on standard input:\n"
		"{\"messages\":[...],\"tools\"?,\"documents\"?,\"add_generation_prompt\"?,\"continue_final_message\"?,\n"
		"\"extra\"?:{...},\"special_tokens\"?:{...},\"now\"?:\"2026-11-30T09:05:07\"}.\n\n"
		"  -m, --model NAME|FILE  the template and special tokens of this model file\n"
		"      --template FILE    the template in this file\n"
		"      --raw              requests bring their template: {\"template\",\"context\":{...},\"now\"?}\n"
		"      --spans            with --jsonl: also [offset, bytes, trusted] of each stretch of the text; control\n"
		"                         tokens are only recognised where it is trusted\n"
		"      --jsonl            one request a line, one answer a line: {\"id\",\"text\"}\n"
		"  -h, --help             this text\n\n"
		"examples:\n"
		"  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true}' |\n"
		"      tenon template -m smollm2-135m\n"
		"  tenon template --template chatml.jinja --jsonl < requests.jsonl\n"
		"  echo '{\"id\":1,\"template\":\"{{ 2**100 }}\",\"context\":{}}' | tenon template --raw --jsonl");
	return CLI_OK;
}

/* CLI_OK to go on; -1 after --help; else the exit status. */
static int parse(struct job *job, int argc, char **argv)
{
	static const struct option longs[] = { { "model", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { "template", required_argument, NULL, 'T' },
		{ "raw", no_argument, NULL, 'R' }, { "spans", no_argument, NULL, 'S' },
		{ "jsonl", no_argument, NULL, 'L' }, { NULL, 0, NULL, 0 } };
	const char *cmd = "tenon template";
	int c;

	while ((c = cli_getopt(cmd, argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return help(), -1;
		if (c == '?')
			return CLI_USAGE;
		job->model = c == 'm' ? optarg : job->model;
		job->file = c == 'T' ? optarg : job->file;
		job->raw |= c == 'R';
		job->spans |= c == 'S';
		job->jsonl |= c == 'L';
	}
	if (optind < argc)
		return cli_usage(cmd, "'%s': requests are read from standard input", argv[optind]);
	if (job->raw ? job->file || job->model : !job->file && !job->model)
		return cli_usage(cmd, "give a template with -m, --template or, in each request, --raw");
	if (job->spans && !job->jsonl)
		return cli_usage(cmd, "--spans needs --jsonl");
	return CLI_OK;
}

static bool read_all(FILE *f, struct buf *out)
{
	char part[65536];
	size_t n;

	while ((n = fread(part, 1, sizeof part, f)) > 0)
		if (!buf_append(out, part, n))
			return false;
	return !ferror(f);
}

static int load_file(struct job *job, struct error *e)
{
	struct buf src;
	FILE *f = fopen(job->file, "rbe");
	int rc;

	if (!f)
		return error_errno(e, TENON_E_IO, errno, "%s", job->file);
	buf_init(&src, MEM_TOOL, 0);
	rc = read_all(f, &src) ? chat_template_parse(src.data ? src.data : "", src.len, NULL, &job->t, e)
			       : error_errno(e, TENON_E_IO, errno, "%s", job->file);
	(void)fclose(f);
	buf_finish(&src);
	return rc;
}

static int load_model(struct job *job, struct error *e)
{
	char path[4096];
	struct gguf *g = NULL;
	struct tokenizer *tok = NULL;
	struct gguf_str src;
	int rc = cli_model_path(job->model, path, sizeof path, e);

	if (!rc)
		rc = gguf_open(path, &g, e);
	if (!rc)
		rc = tokenizer_create(g, &tok, e);
	if (!rc && tokenizer_bos(tok) >= 0)
		rc = tokenizer_piece(tok, tokenizer_bos(tok), false, true, &job->bos, e);
	if (!rc && tokenizer_eos(tok) >= 0)
		rc = tokenizer_piece(tok, tokenizer_eos(tok), false, true, &job->eos, e);
	if (!rc && !job->file) {
		rc = gguf_get_str(g, "tokenizer.chat_template", &src, e);
		if (!rc)
			rc = chat_template_parse(src.s, src.len, NULL, &job->t, e);
	}
	tokenizer_destroy(tok);
	gguf_close(g);
	return rc;
}

/* ---- requests ---- */

/* A member that is a string; NULL if there is none. json_decref the result. */
static json_t *string_member(const char *line, size_t len, const char *key)
{
	const char *at;
	size_t n;
	json_t *v = NULL;

	if (chat_json_member(line, len, key, &at, &n))
		v = json_loadb(at, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (json_is_string(v))
		return v;
	json_decref(v);
	return NULL;
}

/* The request's clock, or the machine's, as local time: what templates print is a date on the wall. */
static int now_of(const char *line, size_t len, int64_t *now_s, struct error *e)
{
	json_t *text = string_member(line, len, "now");
	struct tm tm = { 0 };
	time_t now = time(NULL);
	bool ok = true;

	if (text)
		ok = strptime(json_string_value(text), "%Y-%m-%dT%H:%M:%S", &tm) != NULL;
	else
		ok = localtime_r(&now, &tm) != NULL;
	*now_s = (int64_t)timegm(&tm);
	json_decref(text);
	return ok ? TENON_OK : error_set(e, TENON_E_INVALID, "now: not of the form 2026-11-30T09:05:07");
}

static int render_raw(const char *line, size_t len, struct chat_input *in, struct chat_text *text,
	struct buf *full, struct error *e)
{
	json_t *src = string_member(line, len, "template");
	struct chat_template *t = NULL;
	int rc;

	in->raw_context = true;
	if (!chat_json_member(line, len, "context", &in->json, &in->json_len)) {
		in->json = "{}";
		in->json_len = 2;
	}
	if (!src)
		return error_set(e, TENON_E_FORMAT, "template: missing or no string");
	rc = chat_template_parse(json_string_value(src), json_string_length(src), NULL, &t, e);
	if (!rc)
		rc = chat_render(t, in, text, full, e);
	chat_template_free(t);
	json_decref(src);
	return rc;
}

static int render(const struct job *job, const char *line, size_t len, struct chat_text *text,
	struct buf *full, struct error *e)
{
	struct chat_input in = { .json = line, .json_len = len };
	int rc = now_of(line, len, &in.now_s, e);

	if (rc)
		return rc;
	if (job->raw)
		return render_raw(line, len, &in, text, full, e);
	in.bos = job->bos.len ? job->bos.data : NULL;
	in.eos = job->eos.len ? job->eos.data : NULL;
	return chat_render(job->t, &in, text, full, e);
}

static void put_spans(const struct chat_text *text, struct buf *out)
{
	(void)buf_puts(out, ",\"spans\":[");
	for (size_t i = 0; i < text->n_spans; i++)
		(void)buf_printf(out, "%s[%zu,%zu,%s]", i ? "," : "", text->spans[i].off, text->spans[i].len,
			text->spans[i].trusted ? "true" : "false");
	(void)buf_putc(out, ']');
}

/* The request's id as it stands there, if it is a JSON value. */
static void put_id(const char *line, size_t len, struct buf *out)
{
	const char *at;
	size_t n;
	json_t *v = NULL;

	if (chat_json_member(line, len, "id", &at, &n))
		v = json_loadb(at, n, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
	(void)buf_puts(out, "{\"id\":");
	(void)buf_append(out, v ? at : "null", v ? n : 4);
	json_decref(v);
}

static bool answer(void *ctx, const char *line, size_t len, struct buf *out)
{
	const struct job *job = ctx;
	struct chat_text text = { 0 };
	struct buf full;
	struct error e = { 0 };
	int rc;

	buf_init(&full, MEM_TOOL, 0);
	rc = render(job, line, len, &text, &full, &e);
	put_id(line, len, out);
	if (rc) {
		(void)buf_printf(out, ",\"error\":{\"code\":\"%s\",\"message\":", error_name(rc));
		cli_json_string(out, full.len ? full.data : e.text, full.len ? full.len : strlen(e.text));
		(void)buf_putc(out, '}');
	} else {
		(void)buf_puts(out, ",\"text\":");
		cli_json_string(out, text.text, text.len);
		if (job->spans)
			put_spans(&text, out);
	}
	(void)buf_putc(out, '}');
	chat_text_finish(&text);
	buf_finish(&full);
	return !rc;
}

static int run_one(const struct job *job)
{
	struct chat_text text = { 0 };
	struct buf line;
	struct error e;
	int rc = CLI_FAILED;

	buf_init(&line, MEM_TOOL, 0);
	if (!read_all(stdin, &line))
		(void)cli_fail("template: standard input: %s", strerror(errno));
	else if (render(job, line.data ? line.data : "", line.len, &text, NULL, &e))
		(void)cli_fail_error("template", &e);
	else
		rc = fwrite(text.text, 1, text.len, stdout) == text.len ? CLI_OK : CLI_FAILED;
	chat_text_finish(&text);
	buf_finish(&line);
	return rc;
}

int cmd_template(int argc, char **argv)
{
	struct job job = { 0 };
	struct error e;
	int rc = parse(&job, argc, argv);

	if (rc)
		return rc < 0 ? CLI_OK : rc;
	buf_init(&job.bos, MEM_TOOL, 0);
	buf_init(&job.eos, MEM_TOOL, 0);
	if ((job.model && load_model(&job, &e)) || (job.file && load_file(&job, &e)))
		rc = cli_fail_error("template", &e);
	else
		rc = job.jsonl ? cli_jsonl_raw(answer, &job) : run_one(&job);
	chat_template_free(job.t);
	buf_finish(&job.bos);
	buf_finish(&job.eos);
	return rc;
}
