/* SPDX-License-Identifier: Apache-2.0
 * tenon embed: texts to rows of unit length, in this process or through a daemon. Lines that are there already are taken
 * together; answers come in the order of the input.
 */
#include "tools/commands.h"
#include "tools/embed.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon embed -m MODEL [OPTION]... TEXT...\n"
	"       tenon embed -m MODEL --jsonl [OPTION]... <TEXTS.jsonl\n\n"
	"Embeddings of texts by an encoder: pooled as the model file says, of unit length, so that the scalar product of two is\n"
	"their cosine. What a text gets does not depend on the texts beside it.\n\n" OPEN_MODEL_HELP
	"      --jsonl              one JSON object a line: {\"id\",\"text\"} -> {\"id\",\"embedding\":[...]}; without it one array a TEXT\n"
	"      --truncate           cut texts that are longer than the model takes; else they fail with too_long\n"
	"  -j, --parallel N         most texts of a step (default 64); with --socket: most requests in flight (default 32)\n"
	"      --socket PATH        ask a running tenond; lines may then carry class, priority, tenant and deadline_ms\n"
	"      --help\n\n"
	"examples:\n"
	"  tenon embed -m minilm-l6-v2 \"Why is the sky blue?\"\n"
	"  echo '{\"id\":1,\"text\":\"Why is the sky blue?\"}' | tenon embed -m minilm-l6-v2 --jsonl\n";

enum { OPT_JSONL = 0x300, OPT_TRUNCATE, OPT_SOCKET, BATCH = 512, CHUNK = 65536, IN_FLIGHT = 32 };

struct run {
	struct embedder local;
	struct session session;
	const char *model; /* what the daemon calls it; NULL: `local` works */
	size_t parallel, n;
	struct embed_text t[BATCH];
	struct buf in, out;
	bool eof, failed;
};

/* ---- output --------------------------------------------------------------------------------------------------------- */

static void put_row(struct buf *out, const struct embed_text *t)
{
	for (uint32_t i = 0; i < t->n_row; i++)
		(void)buf_printf(out, "%c%.9g", i ? ',' : '[', (double)t->row[i]);
	(void)buf_putc(out, ']');
}

static void put_line(struct buf *out, const struct embed_text *t)
{
	const json_t *id = json_object_get(t->in, "id");
	char *text = id ? json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;

	(void)buf_printf(out, "{\"id\":%s,", text ? text : "null");
	free(text);
	if (t->e.code) {
		(void)buf_printf(out, "\"error\":{\"code\":\"%s\",\"message\":", error_name(t->e.code));
		cli_json_string(out, t->e.text, strlen(t->e.text));
		(void)buf_puts(out, "}}\n");
		return;
	}
	(void)buf_puts(out, "\"embedding\":");
	put_row(out, t);
	(void)buf_puts(out, "}\n");
}

/* ---- the work ------------------------------------------------------------------------------------------------------- */

/* What was taken in so far; afterwards there is room again. */
static int run_batch(struct run *r, struct error *e)
{
	int rc = r->model ? embed_session_run(&r->session, r->model, r->parallel, r->t, r->n, e)
			  : embedder_run(&r->local, r->t, r->n, e);

	for (size_t i = 0; i < r->n; i++) {
		if (rc && !r->t[i].row && !r->t[i].e.code)
			r->t[i].e = *e;
		r->failed |= r->t[i].e.code != 0;
	}
	return rc;
}

static int flush_lines(struct run *r, struct error *e)
{
	int rc = r->n ? run_batch(r, e) : TENON_OK;

	for (size_t i = 0; i < r->n; i++) {
		buf_clear(&r->out);
		put_line(&r->out, &r->t[i]);
		(void)fwrite(r->out.data ? r->out.data : "", 1, r->out.len, stdout);
		embed_text_finish(&r->t[i]);
	}
	r->n = 0;
	if (fflush(stdout) && !rc)
		rc = error_errno(e, TENON_E_IO, errno, "standard output");
	return rc;
}

static void take_line(struct run *r, const char *line, size_t len)
{
	struct embed_text *t = &r->t[r->n];
	json_error_t je;

	while (len && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (!len)
		return;
	*t = (struct embed_text){ .in = json_loadb(line, len, JSON_ALLOW_NUL, &je) };
	if (!json_is_object(t->in))
		(void)error_set(&t->e, TENON_E_FORMAT, "not a JSON object: %.100s",
			t->in ? "another kind of value" : je.text);
	else if (!json_is_string(json_object_get(t->in, "text")))
		(void)error_set(&t->e, TENON_E_INVALID, "text: expected a string");
	r->n++;
}

/* Complete lines until the batch is full; true: there may be more. */
static bool take_lines(struct run *r)
{
	size_t at = 0;

	while (r->n < BATCH && at < r->in.len) {
		const char *line = r->in.data + at, *nl = memchr(line, '\n', r->in.len - at);

		if (!nl && !r->eof)
			break;
		take_line(r, line, nl ? (size_t)(nl - line) : r->in.len - at);
		at = nl ? (size_t)(nl - r->in.data) + 1 : r->in.len;
	}
	if (at) {
		r->in.len -= at;
		memmove(r->in.data, r->in.data + at, r->in.len);
	}
	return r->n == BATCH;
}

/* False: out of memory. */
static bool read_more(struct run *r)
{
	ssize_t n;

	if (!buf_reserve(&r->in, CHUNK))
		return false;
	n = read(STDIN_FILENO, r->in.data + r->in.len, CHUNK);
	if (n > 0)
		r->in.len += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		r->eof = true;
	return true;
}

static bool input_waits(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static int jsonl(struct run *r, struct error *e)
{
	int rc = TENON_OK;

	while (!rc && !session_interrupted() && (!r->eof || r->in.len || r->n)) {
		bool full = take_lines(r);

		if (full || r->eof || !input_waits())
			rc = flush_lines(r, e);
		if (!rc && !full && !r->eof && !read_more(r))
			rc = error_set(e, TENON_E_NOMEM, "embed: no memory for a line");
	}
	return rc;
}

static int words(struct run *r, char **text, int n, struct error *e)
{
	int rc = TENON_OK;

	for (int i = 0; i < n && !rc; i++) {
		struct embed_text *t = &r->t[0];

		r->n = 1;
		*t = (struct embed_text){ .in = json_pack("{s:s}", "text", text[i]) };
		if (!t->in)
			(void)error_set(&t->e, TENON_E_INVALID, "text %d: is not valid UTF-8", i + 1);
		rc = run_batch(r, e);
		buf_clear(&r->out);
		put_row(&r->out, t);
		if (t->e.code && !rc)
			(void)cli_fail_error("embed", &t->e);
		else if (!rc)
			(void)printf("%s\n", r->out.data);
		embed_text_finish(t);
	}
	return rc;
}

/* ---- options ---------------------------------------------------------------------------------------------------------- */

struct args {
	struct open_options open;
	const char *socket;
	uint64_t parallel;
	bool jsonl, truncate;
};

/* CLI_OK, CLI_USAGE, or -1 after --help. */
static int parse(int argc, char **argv, struct args *a)
{
	static const struct option longs[] = { OPEN_MODEL_LONGS, { "jsonl", no_argument, NULL, OPT_JSONL },
		{ "truncate", no_argument, NULL, OPT_TRUNCATE }, { "parallel", required_argument, NULL, 'j' },
		{ "socket", required_argument, NULL, OPT_SOCKET }, { "help", no_argument, NULL, 'h' },
		{ 0 } };
	const char *cmd = "tenon embed";
	bool ok = true, own = false;
	int c;

	while (ok && (c = cli_getopt(cmd, argc, argv, ":m:j:h", longs)) != -1) {
		int taken = c == '?' ? -1 : open_model_option(cmd, c, optarg, &a->open);

		own |= taken > 0 && c != 'm';
		if (taken)
			ok = taken > 0;
		else if (c == 'j')
			ok = cli_parse_u64(cmd, "--parallel", optarg, 1, 4096, &a->parallel);
		else if (c == OPT_SOCKET)
			a->socket = optarg;
		else if (c == OPT_JSONL)
			a->jsonl = true;
		else if (c == OPT_TRUNCATE)
			a->truncate = true;
		else
			return fputs(help, stdout) < 0 ? CLI_FAILED : -1;
	}
	if (!ok)
		return CLI_USAGE;
	if (!a->open.model)
		return cli_usage(cmd, "-m is missing");
	if (a->socket && (own || a->truncate))
		return cli_usage(cmd, "--socket: the daemon decides about backend, precision and cutting");
	if (a->jsonl != (optind == argc))
		return cli_usage(cmd,
			a->jsonl ? "unexpected argument '%s'" : "texts are missing, or --jsonl%s",
			a->jsonl ? argv[optind] : "");
	return CLI_OK;
}

static int open_remote(struct args *a, struct run *r, char *path, size_t room, struct error *e)
{
	struct session_options so = { .socket = a->socket };
	int rc;

	session_catch_int();
	rc = session_open(&so, &r->session, e);
	if (rc)
		return rc;
	r->model = session_model(&r->session, a->open.model, path, room, e);
	return r->model ? TENON_OK : e->code;
}

static int open_local(struct args *a, struct run *r, struct error *e)
{
	a->open.o.step_seqs = (uint32_t)(a->parallel ? a->parallel : EMBED_STEP_TEXTS);
	a->open.o.step_tokens = EMBED_STEP_TOKENS;
	return embedder_open(&a->open, a->truncate, &r->local, e);
}

int cmd_embed(int argc, char **argv)
{
	struct args a = { 0 };
	struct error e = { 0 };
	struct run *r;
	char path[4096];
	int status = parse(argc, argv, &a), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	r = mem_zalloc(MEM_TOOL, 1, sizeof *r);
	if (!r)
		return cli_fail("embed: out of memory");
	r->parallel = a.parallel ? a.parallel : IN_FLIGHT;
	buf_init(&r->in, MEM_TOOL, 0);
	buf_init(&r->out, MEM_TOOL, 0);
	rc = a.socket ? open_remote(&a, r, path, sizeof path, &e) : open_local(&a, r, &e);
	if (!rc)
		rc = a.jsonl ? jsonl(r, &e) : words(r, argv + optind, argc - optind, &e);
	status = rc ? cli_fail_error("embed", &e) : r->failed || session_interrupted() ? CLI_FAILED : CLI_OK;
	embedder_close(&r->local);
	if (a.socket)
		session_close(&r->session);
	buf_finish(&r->in);
	buf_finish(&r->out);
	mem_free(r);
	return status;
}
