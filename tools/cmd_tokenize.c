/* SPDX-License-Identifier: Apache-2.0
 * tenon tokenize, tenon detokenize: text to token ids and back, in this process, without a daemon.
 */
#include "engine/tokenizer.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include <inttypes.h>
#include <string.h>

struct job {
	const char *cmd; /* for messages */
	const char *model;
	bool special, jsonl, json;
	struct gguf *file;
	struct tokenizer *tok;
};

static int help_tokenize(void)
{
	(void)puts(
		"usage: tenon tokenize -m MODEL [--special] [--json | --jsonl] [TEXT]\n\n"
		"Prints the token ids of TEXT, or of standard input. No special tokens are added.\n\n"
		"  -m, --model NAME|FILE  model file, or a name that scripts/fetch-model knows\n"
		"      --special          the text of control tokens becomes their ids\n"
		"      --json             one JSON object: {\"ids\":[...],\"pieces\":[...]}; a piece that is not UTF-8 is null\n"
		"      --jsonl            one object a line: {\"id\",\"text\"} or {\"id\",\"bytes_hex\"} to {\"id\",\"ids\"}\n"
		"  -h, --help             this text\n\n"
		"examples:\n"
		"  tenon tokenize -m smollm2-135m \"Hello, world\"\n"
		"  tenon tokenize -m smollm2-135m --special --json '<|im_start|>user' | jq .ids\n"
		"  tenon tokenize -m smollm2-135m < README.md | wc -l");
	return CLI_OK;
}

static int help_detokenize(void)
{
	(void)puts(
		"usage: tenon detokenize -m MODEL [--json | --jsonl] [ID]...\n\n"
		"Prints the text of token ids, given as arguments or on standard input, separated by spaces or commas.\n\n"
		"  -m, --model NAME|FILE  model file, or a name that scripts/fetch-model knows\n"
		"      --json             one JSON object: {\"bytes_hex\"} and, if it is UTF-8, \"text\"\n"
		"      --jsonl            one object a line: {\"id\",\"ids\":[...]} to {\"id\",\"bytes_hex\"}\n"
		"  -h, --help             this text\n\n"
		"examples:\n"
		"  tenon detokenize -m smollm2-135m 19556 28 905\n"
		"  echo '{\"id\":1,\"ids\":[19556]}' | tenon detokenize -m smollm2-135m --jsonl");
	return CLI_OK;
}

/* ---- shared ------------------------------------------------------------------------------------------ */

/* CLI_OK to go on; -1 after --help; else the exit status. */
static int parse(struct job *j, int argc, char **argv, bool tokenize)
{
	static const struct option longs[] = { { "model", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { "json", no_argument, NULL, 'J' },
		{ "jsonl", no_argument, NULL, 'L' }, { "special", no_argument, NULL, 'S' },
		{ NULL, 0, NULL, 0 } };
	int c;

	while ((c = cli_getopt(j->cmd, argc, argv, ":m:h", longs)) != -1) {
		if (c == 'h')
			return tokenize ? help_tokenize(), -1 : (help_detokenize(), -1);
		if (c == 'S' && !tokenize)
			return cli_usage(j->cmd, "option '--special': only for tokenize");
		if (c == '?')
			return CLI_USAGE;
		j->model = c == 'm' ? optarg : j->model;
		j->json |= c == 'J';
		j->jsonl |= c == 'L';
		j->special |= c == 'S';
	}
	if (!j->model)
		return cli_usage(j->cmd, "no model: give one with -m");
	if (j->json && j->jsonl)
		return cli_usage(j->cmd, "--json and --jsonl exclude each other");
	if (j->jsonl && optind < argc)
		return cli_usage(j->cmd, "'%s': --jsonl reads standard input only", argv[optind]);
	return CLI_OK;
}

static int load(struct job *j, struct error *e)
{
	char path[4096];
	int rc = cli_model_path(j->model, path, sizeof path, e);

	if (!rc)
		rc = gguf_open(path, &j->file, e);
	return rc ? rc : tokenizer_create(j->file, &j->tok, e);
}

static void finish(struct job *j)
{
	tokenizer_destroy(j->tok);
	gguf_close(j->file);
}

static bool read_stdin(struct buf *out)
{
	char part[65536];
	size_t n;

	while ((n = fread(part, 1, sizeof part, stdin)) > 0)
		if (!buf_append(out, part, n))
			return false;
	return !ferror(stdin);
}

static int run(
	struct job *j, int (*plain)(struct job *, int, char **), cli_entry_fn *entry, int argc, char **argv)
{
	struct error e;
	int rc;

	if (load(j, &e))
		rc = cli_fail_error(j->cmd + strlen("tenon "), &e);
	else if (j->jsonl)
		rc = cli_jsonl(entry, j);
	else
		rc = plain(j, argc, argv);
	finish(j);
	return rc;
}

/* ---- tokenize ---------------------------------------------------------------------------------------- */

static json_t *ids_to_json(const struct tokens *ids)
{
	json_t *a = json_array();

	for (size_t i = 0; i < ids->n; i++)
		(void)json_array_append_new(a, json_integer(ids->id[i]));
	return a;
}

static int encode_hex(const struct job *j, const char *hex, struct tokens *ids, struct error *e)
{
	size_t len;
	char *bytes = cli_hex_decode(hex, &len);
	int rc;

	if (!bytes)
		return error_set(e, TENON_E_INVALID, "bytes_hex: not an even number of hexadecimal digits");
	rc = tokenizer_encode(j->tok, bytes, len, j->special, ids, e);
	mem_free(bytes);
	return rc;
}

static int tokenize_entry(
	void *ctx, const json_t *in, const char *line, size_t len, json_t *out, struct error *e)
{
	const json_t *text = json_object_get(in, "text"), *hex = json_object_get(in, "bytes_hex");
	const struct job *j = ctx;
	struct tokens ids = { 0 };
	int rc;

	(void)line;
	(void)len;
	if (json_is_string(text))
		rc = tokenizer_encode(
			j->tok, json_string_value(text), json_string_length(text), j->special, &ids, e);
	else if (json_is_string(hex))
		rc = encode_hex(j, json_string_value(hex), &ids, e);
	else
		rc = error_set(e, TENON_E_INVALID,
			"entry: neither \"text\" nor \"bytes_hex\" is a string; give one of them");
	if (!rc)
		(void)json_object_set_new(out, "ids", ids_to_json(&ids));
	tokens_finish(&ids);
	return rc;
}

static bool piece_of(const struct job *j, int32_t id, struct buf *b)
{
	buf_clear(b);
	return !tokenizer_piece(j->tok, id, false, true, b, NULL);
}

static void print_tokens_json(const struct job *j, const struct tokens *ids)
{
	json_t *pieces = json_array(), *all = json_object();
	struct buf b;

	buf_init(&b, MEM_TOOL, 0);
	for (size_t i = 0; i < ids->n; i++) {
		bool text = piece_of(j, ids->id[i], &b) && utf8_valid(b.data ? b.data : "", b.len, NULL);

		(void)json_array_append_new(
			pieces, text ? json_stringn(b.data ? b.data : "", b.len) : json_null());
	}
	(void)json_object_set_new(all, "ids", ids_to_json(ids));
	(void)json_object_set_new(all, "pieces", pieces);
	cli_print_json(all);
	buf_finish(&b);
}

/* Text in quotes; what is not printable as \xNN. */
static void print_quoted(const char *s, size_t len)
{
	(void)fputc('"', stdout);
	for (size_t i = 0, n; i < len; i += n) {
		uint32_t cp = 0;
		bool control;

		n = utf8_decode(s + i, len - i, &cp);
		control = cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
		if (!n || control) {
			n = 1;
			(void)printf("\\x%02x", (uint8_t)s[i]);
		} else {
			(void)printf("%s%.*s", cp == '"' || cp == '\\' ? "\\" : "", (int)n, s + i);
		}
	}
	(void)puts("\"");
}

/* One token a line: its id and its text. */
static void print_tokens(const struct job *j, const struct tokens *ids)
{
	struct buf b;

	buf_init(&b, MEM_TOOL, 0);
	for (size_t i = 0; i < ids->n; i++) {
		(void)printf("%7" PRId32 "  ", ids->id[i]);
		(void)piece_of(j, ids->id[i], &b);
		print_quoted(b.data, b.len);
	}
	buf_finish(&b);
}

static int tokenize_plain(struct job *j, int argc, char **argv)
{
	struct tokens ids = { 0 };
	struct error e;
	struct buf text;
	int rc;

	if (optind + 1 < argc)
		return cli_usage(j->cmd, "'%s': more than one text; quote it", argv[optind + 1]);
	buf_init(&text, MEM_TOOL, 0);
	if (optind < argc ? !buf_puts(&text, argv[optind]) : !read_stdin(&text))
		rc = cli_fail("tokenize: standard input: cannot be read, or no memory for it");
	else if (tokenizer_encode(j->tok, text.data ? text.data : "", text.len, j->special, &ids, &e))
		rc = cli_fail_error("tokenize", &e);
	else {
		if (j->json)
			print_tokens_json(j, &ids);
		else
			print_tokens(j, &ids);
		rc = fflush(stdout) ? CLI_FAILED : CLI_OK;
	}
	tokens_finish(&ids);
	buf_finish(&text);
	return rc;
}

int cmd_tokenize(int argc, char **argv)
{
	struct job j = { .cmd = "tenon tokenize" };
	int rc = parse(&j, argc, argv, true);

	return rc == CLI_OK ? run(&j, tokenize_plain, tokenize_entry, argc, argv) : rc < 0 ? CLI_OK : rc;
}

/* ---- detokenize -------------------------------------------------------------------------------------- */

static int decode_hex(
	const struct job *j, const int32_t *ids, size_t n, struct buf *text, struct buf *hex, struct error *e)
{
	int rc = tokenizer_decode(j->tok, ids, n, text, e);

	if (rc)
		return rc;
	return cli_hex_encode(text->data, text->len, hex) && buf_puts(hex, "")
		? TENON_OK
		: error_set(e, TENON_E_NOMEM, "detokenize: no memory for the text");
}

static int detokenize_entry(
	void *ctx, const json_t *in, const char *line, size_t len, json_t *out, struct error *e)
{
	const struct job *j = ctx;
	struct buf text, hex;
	int32_t *ids = NULL;
	size_t n = 0;
	int rc;

	(void)line;
	(void)len;
	buf_init(&text, MEM_TOOL, 0);
	buf_init(&hex, MEM_TOOL, 0);
	rc = cli_json_ids(json_object_get(in, "ids"), &ids, &n, e);
	if (!rc)
		rc = decode_hex(j, ids, n, &text, &hex, e);
	if (!rc)
		(void)json_object_set_new(out, "bytes_hex", json_stringn(hex.data, hex.len));
	mem_free(ids);
	buf_finish(&text);
	buf_finish(&hex);
	return rc;
}

/* Ids in s, separated by white space or commas. */
static int parse_ids(const char *s, struct tokens *ids, struct error *e)
{
	for (;;) {
		char *end;
		long v;

		s += strspn(s, " \t\r\n,");
		if (!*s)
			return TENON_OK;
		v = strtol(s, &end, 10);
		if (end == s || v < 0 || v > INT32_MAX || !strchr(" \t\r\n,", *end))
			return error_set(e, TENON_E_INVALID, "'%.20s': not a token id", s);
		if (tokens_push(ids, (int32_t)v))
			return error_set(e, TENON_E_NOMEM, "no memory for the ids");
		s = end;
	}
}

static int gather_ids(int argc, char **argv, struct tokens *ids, struct error *e)
{
	struct buf in;
	int rc = TENON_OK;

	if (optind < argc) {
		for (int i = optind; i < argc && !rc; i++)
			rc = parse_ids(argv[i], ids, e);
		return rc;
	}
	buf_init(&in, MEM_TOOL, 0);
	rc = read_stdin(&in)
		? parse_ids(in.data ? in.data : "", ids, e)
		: error_set(e, TENON_E_IO, "standard input: cannot be read, or no memory for it");
	buf_finish(&in);
	return rc;
}

static void print_text(const struct job *j, const struct buf *text, const struct buf *hex)
{
	json_t *all;

	if (!j->json) {
		(void)fwrite(text->data ? text->data : "", 1, text->len, stdout);
		(void)fputc('\n', stdout);
		return;
	}
	all = json_object();
	(void)json_object_set_new(all, "bytes_hex", json_stringn(hex->data, hex->len));
	if (utf8_valid(text->data ? text->data : "", text->len, NULL))
		(void)json_object_set_new(all, "text", json_stringn(text->data ? text->data : "", text->len));
	cli_print_json(all);
}

static int detokenize_plain(struct job *j, int argc, char **argv)
{
	struct tokens ids = { 0 };
	struct buf text, hex;
	struct error e;
	int rc = CLI_OK;

	buf_init(&text, MEM_TOOL, 0);
	buf_init(&hex, MEM_TOOL, 0);
	if (gather_ids(argc, argv, &ids, &e) || decode_hex(j, ids.id, ids.n, &text, &hex, &e))
		rc = cli_fail_error("detokenize", &e);
	else
		print_text(j, &text, &hex);
	tokens_finish(&ids);
	buf_finish(&text);
	buf_finish(&hex);
	return rc || !fflush(stdout) ? rc : CLI_FAILED;
}

int cmd_detokenize(int argc, char **argv)
{
	struct job j = { .cmd = "tenon detokenize" };
	int rc = parse(&j, argc, argv, false);

	return rc == CLI_OK ? run(&j, detokenize_plain, detokenize_entry, argc, argv) : rc < 0 ? CLI_OK : rc;
}
