/* SPDX-License-Identifier: Apache-2.0
 * tenon run and tenon chat: one answer, or a conversation, streamed to the terminal.
 */
#include "tools/commands.h"
#include "tools/gen.h"
#include "tools/session.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMON_HELP                                                                                           \
	"options:\n" SESSION_HELP                                                                              \
	"      --system TEXT     system message\n"                                                            \
	"      --max-tokens N    longest answer (default: until the model stops)\n"                           \
	"      --temperature T   0 (default) always takes the likeliest token\n"                              \
	"      --top-p P  --top-k K  --min-p P  --seed N  --repeat-penalty R\n"                               \
	"      --stop TEXT       ends the answer before this text; may be repeated\n"                         \
	"      --class C         online (default) or offline\n"                                               \
	"      --timeline        print where the time went, to stderr\n"                                      \
	"      --help\n"

static const char run_help[] =
	"usage: tenon run [-m MODEL] [OPTION]... [--] PROMPT\n\n"
	"Asks once and streams the answer. Without PROMPT the text comes from stdin. Ctrl-C ends the answer.\n\n" COMMON_HELP
	"      --raw             the prompt as it is, without the chat template\n"
	"      --json            print one JSON object instead of text\n\n"
	"examples:\n"
	"  tenon run \"Why is the sky blue?\"\n"
	"  tenon run -m ./model.gguf --temperature 0.7 --seed 1 --timeline \"A haiku about rain\"\n"
	"  git diff | tenon run --system \"Summarise this change in one line\"\n";
static const char chat_help[] =
	"usage: tenon chat [-m MODEL] [OPTION]...\n\n"
	"A conversation; each line you type is a message. /reset forgets it, /quit or Ctrl-D ends. Ctrl-C ends an answer.\n\n" COMMON_HELP
	"\nexample:\n  tenon chat -m smollm2-135m --system \"You answer in one sentence\"\n";

struct ask {
	const char *cmd, *model;
	struct session_options so;
	struct session session;
	json_t *params;   /* as an entry of `tenon generate` */
	json_t *messages; /* array */
	bool raw, json, timeline;
};

/* ---- options -------------------------------------------------------------------------------------------------- */

enum { O_SYSTEM = 1, O_MAX, O_TEMP, O_TOPP, O_TOPK, O_MINP, O_SEED, O_REPEAT, O_STOP, O_CLASS, O_TIMELINE, O_RAW, O_JSON };
static const struct option longs[] = { SESSION_LONG_OPTIONS, { "system", 1, NULL, O_SYSTEM }, { "max-tokens", 1, NULL, O_MAX },
	{ "temperature", 1, NULL, O_TEMP }, { "top-p", 1, NULL, O_TOPP }, { "top-k", 1, NULL, O_TOPK }, { "min-p", 1, NULL, O_MINP },
	{ "seed", 1, NULL, O_SEED }, { "repeat-penalty", 1, NULL, O_REPEAT }, { "stop", 1, NULL, O_STOP },
	{ "class", 1, NULL, O_CLASS }, { "timeline", 0, NULL, O_TIMELINE }, { "raw", 0, NULL, O_RAW }, { "json", 0, NULL, O_JSON },
	{ "help", 0, NULL, 'h' }, { 0 } };
static const char *const param_names[] = { [O_MAX] = "max_tokens", [O_TEMP] = "temperature", [O_TOPP] = "top_p", [O_TOPK] = "top_k",
	[O_MINP] = "min_p", [O_SEED] = "seed", [O_REPEAT] = "repeat_penalty" };

static bool set_number(struct ask *a, int c, const char *text)
{
	bool whole = c == O_MAX || c == O_TOPK || c == O_SEED;
	char *end;
	double v = strtod(text, &end);
	long long i = whole ? strtoll(text, &end, 10) : 0;

	if (*end || !*text) {
		(void)cli_usage(a->cmd, "%s: '%s' is not a number", param_names[c], text);
		return false;
	}
	(void)json_object_set_new(a->params, param_names[c], whole ? json_integer(i) : json_real(v));
	return true;
}

static bool set_option(struct ask *a, int c, const char *arg)
{
	json_t *stop = json_object_get(a->params, "stop");

	switch (c) {
	case O_SYSTEM:
		(void)json_array_insert_new(a->messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", arg));
		return true;
	case O_STOP:
		if (!stop)
			(void)json_object_set_new(a->params, "stop", stop = json_array());
		(void)json_array_append_new(stop, json_string(arg));
		return true;
	case O_CLASS:
		(void)json_object_set_new(a->params, "class", json_string(arg));
		return true;
	case O_TIMELINE:
		return a->timeline = true;
	case O_RAW:
		return a->raw = true;
	case O_JSON:
		return a->json = true;
	default:
		return set_number(a, c, arg);
	}
}

/* CLI_OK to go on, or the status to leave with through *leave. */
static int parse(struct ask *a, int argc, char **argv, const char *help, bool *leave)
{
	int c;

	*leave = true;
	while ((c = cli_getopt(a->cmd, argc, argv, ":m:h", longs)) != -1) {
		if (session_option(c, optarg, &a->so, &a->model))
			continue;
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (c == '?' || !set_option(a, c, optarg))
			return CLI_USAGE;
	}
	*leave = false;
	return session_options_check(a->cmd, &a->so);
}

/* ---- one answer ------------------------------------------------------------------------------------------------ */

static int submit(struct ask *a, uint64_t *id, struct error *e)
{
	struct tenon_error te = { 0 };
	struct gen_request g;
	char path[4096];
	int rc = gen_request_parse(a->params, &g, e);

	if (rc)
		return rc;
	g.r.model = session_model(&a->session, a->model, path, sizeof path, e);
	rc = g.r.model ? tenon_submit_wait(a->session.t, &g.r, 5000, id, &te) : e->code;
	if (rc && g.r.model)
		(void)error_set(e, rc, "%s", te.text);
	gen_request_finish(&g);
	return rc;
}

static void show_state(const struct tenon_event *ev)
{
	if (ev->phase == 2 /* WIRE_LOADING */)
		cli_progress("loading", ev->permille / 1000.0);
	else
		cli_progress_end();
}

/* Streams until the last event. *last is valid until the next tenon_next. */
static int stream(struct ask *a, uint64_t id, struct gen_answer *ans, struct tenon_event *last)
{
	bool cancelled = false;
	int rc;

	for (;;) {
		if (session_interrupted() && !cancelled) {
			cancelled = true;
			(void)tenon_cancel(a->session.t, id);
		}
		rc = tenon_next(a->session.t, last, 100);
		if (rc == TENON_E_TIMEOUT || rc == TENON_E_AGAIN)
			continue;
		if (rc)
			return rc;
		if (last->request != id)
			continue;
		if (last->kind == TENON_EVENT_STATE && !a->json)
			show_state(last);
		if (last->kind == TENON_EVENT_TOKENS && !a->json) {
			cli_progress_end();
			(void)fwrite(last->text, 1, last->text_len, stdout);
			(void)fflush(stdout);
		}
		if (gen_answer_add(ans, last))
			return TENON_OK;
	}
}

static int answer(struct ask *a, struct gen_answer *ans)
{
	struct tenon_event last;
	struct error e = { 0 };
	uint64_t id;
	int rc = submit(a, &id, &e);

	if (rc)
		return cli_fail_error(a->cmd + 6, &e);
	rc = stream(a, id, ans, &last);
	cli_progress_end();
	if (rc)
		return cli_fail("%s: the daemon has ended (%s)", a->cmd + 6, tenon_error_name(rc));
	if (a->json)
		cli_print_json(gen_answer_json(ans));
	else if (ans->text.len && ans->text.data[ans->text.len - 1] != '\n')
		(void)putchar('\n');
	(void)fflush(stdout);
	if (last.kind == TENON_EVENT_ERROR && !a->json)
		return session_interrupted() ? CLI_FAILED : cli_fail("%s: %.*s", a->cmd + 6, (int)last.text_len, last.text);
	if (a->timeline && last.kind == TENON_EVENT_DONE)
		gen_print_timeline(&last, stderr);
	return last.kind == TENON_EVENT_DONE ? CLI_OK : CLI_FAILED;
}

static int ask_init(struct ask *a, const char *cmd)
{
	*a = (struct ask){ .cmd = cmd, .params = json_object(), .messages = json_array(), .session.ready_fd = -1 };
	return a->params && a->messages ? CLI_OK : cli_fail("out of memory");
}

static void ask_finish(struct ask *a)
{
	session_close(&a->session);
	json_decref(a->params);
	json_decref(a->messages);
}

static int ask_open(struct ask *a)
{
	struct error e = { 0 };

	session_catch_int();
	return session_open(&a->so, &a->session, &e) ? cli_fail_error(a->cmd + 6, &e) : CLI_OK;
}

/* ---- run -------------------------------------------------------------------------------------------------------- */

static char *prompt_text(int argc, char **argv)
{
	struct buf b;
	char chunk[4096];
	size_t n;

	buf_init(&b, MEM_TOOL, 64u << 20);
	for (int i = optind; i < argc; i++)
		(void)buf_printf(&b, "%s%s", i > optind ? " " : "", argv[i]);
	while (optind >= argc && (n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
		(void)buf_append(&b, chunk, n);
	return b.len || b.failed ? buf_take(&b, NULL) : NULL;
}

static int run_once(struct ask *a, const char *prompt)
{
	struct gen_answer ans;
	int rc;

	if (a->raw) {
		(void)json_object_set_new(a->params, "prompt", json_string(prompt));
	} else {
		(void)json_array_append_new(a->messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
		(void)json_object_set(a->params, "messages", a->messages);
		(void)json_object_set_new(a->params, "add_generation_prompt", json_true());
	}
	if (gen_answer_init(&ans))
		return cli_fail("out of memory");
	rc = ask_open(a);
	rc = rc ? rc : answer(a, &ans);
	gen_answer_finish(&ans);
	return rc;
}

int cmd_run(int argc, char **argv)
{
	struct ask a;
	char *prompt = NULL;
	bool leave;
	int rc = ask_init(&a, "tenon run");

	rc = rc ? rc : parse(&a, argc, argv, run_help, &leave);
	if (!rc && !leave) {
		prompt = prompt_text(argc, argv);
		if (!prompt || !utf8_valid(prompt, strlen(prompt), NULL))
			rc = cli_usage(a.cmd, "%s", prompt ? "prompt: not valid UTF-8" : "a prompt is missing");
		else
			rc = run_once(&a, prompt);
	}
	mem_free(prompt);
	ask_finish(&a);
	return rc;
}

/* ---- chat -------------------------------------------------------------------------------------------------------- */

static void forget(struct ask *a)
{
	const json_t *first = json_array_get(a->messages, 0);
	bool keep = first && !strcmp(json_string_value(json_object_get(first, "role")), "system");

	while (json_array_size(a->messages) > keep)
		(void)json_array_remove(a->messages, json_array_size(a->messages) - 1);
}

/* One turn; a failed or interrupted one is taken out of the conversation again. */
static void turn(struct ask *a, const char *line)
{
	struct gen_answer ans;

	if (!utf8_valid(line, strlen(line), NULL)) {
		(void)cli_fail("chat: the line is not valid UTF-8");
		return;
	}
	if (gen_answer_init(&ans))
		return;
	(void)json_array_append_new(a->messages, json_pack("{s:s, s:s}", "role", "user", "content", line));
	(void)json_object_set(a->params, "messages", a->messages);
	if (answer(a, &ans) == CLI_OK)
		(void)json_array_append_new(a->messages, json_pack("{s:s, s:o}", "role", "assistant", "content",
			json_stringn(ans.text.data, ans.text.len)));
	else
		(void)json_array_remove(a->messages, json_array_size(a->messages) - 1);
	gen_answer_finish(&ans);
}

static int converse(struct ask *a)
{
	bool tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	char *line = NULL;
	size_t room = 0;
	ssize_t n;

	for (;;) {
		session_catch_int();
		if (tty)
			(void)fputs("> ", stdout);
		(void)fflush(stdout);
		n = getline(&line, &room, stdin);
		if (n < 0 || !strcmp(line, "/quit\n"))
			break;
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
			line[--n] = 0;
		if (!strcmp(line, "/reset"))
			forget(a);
		else if (n)
			turn(a, line);
	}
	free(line);
	return CLI_OK;
}

int cmd_chat(int argc, char **argv)
{
	struct ask a;
	bool leave;
	int rc = ask_init(&a, "tenon chat");

	(void)json_object_set_new(a.params, "add_generation_prompt", json_true());
	rc = rc ? rc : parse(&a, argc, argv, chat_help, &leave);
	if (!rc && !leave && (a.raw || a.json || optind < argc))
		rc = cli_usage(a.cmd, "messages come from the terminal; --raw, --json and a prompt belong to 'tenon run'");
	if (!rc && !leave)
		rc = ask_open(&a);
	if (!rc && !leave)
		rc = converse(&a);
	ask_finish(&a);
	return rc;
}
