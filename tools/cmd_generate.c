/* SPDX-License-Identifier: Apache-2.0
 * tenon generate: requests from stdin as JSON lines, answers in the order of the input. At most --parallel are in
 * flight; an answer that is ready early waits for those before it.
 */
#include "tools/commands.h"
#include "tools/gen.h"
#include "tools/session.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon generate -m MODEL --jsonl [OPTION]... < requests\n\n"
	"Answers one JSON object a line: {\"id\", \"prompt\"|\"messages\"|\"ids\", \"max_tokens\", \"temperature\", \"top_p\", \"top_k\",\n"
	"\"min_p\", \"seed\", \"stop\", \"logprobs\", \"logit_bias\", \"repeat_penalty\", \"presence_penalty\", \"frequency_penalty\",\n"
	"\"class\": \"online\"|\"offline\", \"priority\", \"tenant\", \"deadline_ms\",\n"
	"\"ttft_ms\", \"tpot_ms\", \"reuse\": bool, \"pin\": bool, \"ignore_eos\",\n"
	"\"durable\": bool, \"job\": name; or \"collect\": true, \"job\": name} with\n"
	"{\"id\", \"ids\", \"text\", \"finish\", \"usage\", \"timeline\"} or {\"id\", \"error\": {\"code\", \"message\"}}.\n\n"
	"options:\n" SESSION_HELP
	"      --jsonl           one request a line from stdin (required)\n"
	"      --parallel N      most requests in flight (default 32)\n"
	"      --stream          one line per event, as they come, instead of whole answers\n"
	"      --help\n\n"
	"example:\n"
	"  echo '{\"id\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":20}' | tenon generate -m smollm2-135m --jsonl\n";

struct entry {
	struct entry *next; /* in the order of the input */
	json_t *id;
	uint64_t request;
	struct gen_answer answer;
	bool ended;
};

struct run {
	struct session session;
	const char *model;
	struct entry *first, *last;
	struct buf in;
	size_t parallel, in_flight;
	bool stream, eof, failed;
};

static json_t *with_id(const struct entry *en, json_t *body)
{
	json_t *o = json_object();

	(void)json_object_set(o, "id", en->id);
	(void)json_object_update(o, body);
	json_decref(body);
	return o;
}

/* Prints what stands complete at the head of the list. */
static void print_ready(struct run *r)
{
	while (r->first && r->first->ended) {
		struct entry *en = r->first;

		if (!r->stream)
			cli_print_json(with_id(en, gen_answer_json(&en->answer)));
		r->failed |= en->answer.failed;
		r->first = en->next;
		json_decref(en->id);
		gen_answer_finish(&en->answer);
		mem_free(en);
	}
	if (!r->first)
		r->last = NULL;
	(void)fflush(stdout);
}

static void entry_fail(struct run *r, struct entry *en, const struct error *e)
{
	struct tenon_event ev = { .kind = TENON_EVENT_ERROR, .last = 1, .code = e->code, .text = e->text, .text_len = strlen(e->text) };

	(void)gen_answer_add(&en->answer, &ev);
	if (r->stream)
		cli_print_json(with_id(en, gen_event_json(&ev)));
	en->ended = true;
}

/* Submits; false when the ring has no room now (the same line is tried again after an event). */
static bool submit(struct run *r, const json_t *in, struct entry *en)
{
	struct error e = { 0 };
	struct tenon_error te = { 0 };
	struct gen_request g;
	int rc = gen_request_parse(in, &g, &e);

	if (rc) {
		entry_fail(r, en, &e);
		return true;
	}
	g.r.model = r->model;
	rc = tenon_submit(r->session.t, &g.r, &en->request, &te);
	gen_request_finish(&g);
	if (rc == TENON_E_FULL && r->in_flight)
		return false;
	if (rc) {
		(void)error_set(&e, rc, "%s", te.text);
		entry_fail(r, en, &e);
		return true;
	}
	r->in_flight++;
	return true;
}

static struct entry *entry_create(struct run *r, json_t *in)
{
	struct entry *en = mem_zalloc(MEM_TOOL, 1, sizeof *en);

	if (!en || gen_answer_init(&en->answer)) {
		mem_free(en);
		return NULL;
	}
	en->id = json_object_get(in, "id") ? json_incref(json_object_get(in, "id")) : json_null();
	*(r->last ? &r->last->next : &r->first) = en;
	r->last = en;
	return en;
}

/* Takes one line of `in`; false when it must be tried again later. */
static bool take_line(struct run *r, const char *line, size_t len)
{
	struct error e = { 0 };
	json_error_t je;
	json_t *in = json_loadb(line, len, JSON_ALLOW_NUL, &je);
	struct entry *last = r->last, *en = entry_create(r, in);
	bool done = true;

	if (!en) {
		(void)cli_fail("generate: out of memory");
		r->failed = true;
	} else if (!json_is_object(in)) {
		(void)error_set(&e, TENON_E_FORMAT, "not a JSON object: %.100s", in ? "another kind of value" : je.text);
		entry_fail(r, en, &e);
	} else {
		done = submit(r, in, en);
	}
	if (!done) {
		json_decref(en->id);
		gen_answer_finish(&en->answer);
		mem_free(en);
		*(last ? &last->next : &r->first) = NULL;
		r->last = last;
	}
	json_decref(in);
	return done;
}

/* Submits as many complete lines as places allow. */
static void take_lines(struct run *r)
{
	size_t at = 0;

	while (r->in_flight < r->parallel && at < r->in.len) {
		char *line = r->in.data + at, *nl = memchr(line, '\n', r->in.len - at);
		size_t len = nl ? (size_t)(nl - line) : r->in.len - at;

		if (!nl && !r->eof)
			break;
		if (len && !take_line(r, line, len))
			break;
		at += len + (nl != NULL);
	}
	if (at) {
		r->in.len -= at;
		memmove(r->in.data, r->in.data + at, r->in.len);
	}
}

static void read_stdin(struct run *r)
{
	ssize_t n;

	if (!buf_reserve(&r->in, 65536)) {
		r->eof = r->failed = true;
		return;
	}
	n = read(STDIN_FILENO, r->in.data + r->in.len, 65536);
	if (n > 0)
		r->in.len += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		r->eof = true;
}

static struct entry *find_request(const struct run *r, uint64_t id)
{
	struct entry *en = r->first;

	while (en && (en->ended || en->request != id))
		en = en->next;
	return en;
}

static void take_event(struct run *r, const struct tenon_event *ev)
{
	struct entry *en = find_request(r, ev->request);

	if (!en)
		return;
	if (r->stream) {
		json_t *o = gen_event_json(ev);

		if (o)
			cli_print_json(with_id(en, o));
	}
	if (gen_answer_add(&en->answer, ev)) {
		en->ended = true;
		r->in_flight--;
	}
}

/* All events that are there; GONE ends every open request. */
static int drain(struct run *r)
{
	struct tenon_event ev;
	int rc;

	while (!(rc = tenon_next(r->session.t, &ev, 0)))
		take_event(r, &ev);
	print_ready(r);
	return rc == TENON_E_AGAIN ? TENON_OK : rc;
}

static void cancel_all(struct run *r)
{
	for (struct entry *en = r->first; en; en = en->next)
		if (!en->ended)
			(void)tenon_cancel(r->session.t, en->request);
	r->eof = true;
	r->in.len = 0;
}

static int loop(struct run *r)
{
	bool cancelled = false;
	int rc = TENON_OK;

	while (!rc && (r->in_flight || !r->eof || r->in.len)) {
		bool want_input = !r->eof && r->in_flight < r->parallel && !cancelled;
		struct pollfd p[2] = { { .fd = tenon_fd(r->session.t), .events = POLLIN },
			{ .fd = want_input ? STDIN_FILENO : -1, .events = POLLIN } };

		if (session_interrupted() && !cancelled) {
			cancelled = r->failed = true;
			cancel_all(r);
		}
		take_lines(r);
		rc = drain(r);
		if (rc || (!r->in_flight && r->eof && !r->in.len))
			break;
		if (tenon_poll_arm(r->session.t))
			continue;
		(void)poll(p, 2, 200);
		if (p[1].revents)
			read_stdin(r);
	}
	return rc;
}

static void lose_open(struct run *r, int rc)
{
	struct error e;

	(void)error_set(&e, rc, "the daemon has ended");
	for (struct entry *en = r->first; en; en = en->next)
		if (!en->ended)
			entry_fail(r, en, &e);
	print_ready(r);
}

static int generate(struct session_options *so, const char *model, struct run *r)
{
	struct error e = { 0 };
	char path[4096];
	int rc;

	session_catch_int();
	if (session_open(so, &r->session, &e))
		return cli_fail_error("generate", &e);
	r->model = session_model(&r->session, model, path, sizeof path, &e);
	if (!r->model) {
		session_close(&r->session);
		return cli_fail_error("generate", &e);
	}
	buf_init(&r->in, MEM_TOOL, 0);
	rc = loop(r);
	if (rc)
		lose_open(r, rc);
	buf_finish(&r->in);
	session_close(&r->session);
	return rc || r->failed ? CLI_FAILED : CLI_OK;
}

int cmd_generate(int argc, char **argv)
{
	static const struct option longs[] = { SESSION_LONG_OPTIONS, { "jsonl", no_argument, NULL, 'j' },
		{ "parallel", required_argument, NULL, 'p' }, { "stream", no_argument, NULL, 's' }, { "help", no_argument, NULL, 'h' },
		{ 0 } };
	struct session_options so = { 0 };
	struct run r = { .parallel = 32 };
	const char *model = NULL;
	uint64_t parallel = 32;
	bool jsonl = false;
	int c;

	while ((c = cli_getopt("tenon generate", argc, argv, ":m:h", longs)) != -1) {
		if (session_option(c, optarg, &so, &model))
			continue;
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (c == '?' || (c == 'p' && !cli_parse_u64("tenon generate", "--parallel", optarg, 1, 65536, &parallel)))
			return CLI_USAGE;
		jsonl |= c == 'j';
		r.stream |= c == 's';
	}
	if (!jsonl || optind < argc)
		return cli_usage("tenon generate", "requests come from stdin: --jsonl is required and nothing else is taken");
	c = session_options_check("tenon generate", &so);
	r.parallel = (size_t)parallel;
	return c ? c : generate(&so, model, &r);
}
