/* SPDX-License-Identifier: Apache-2.0
 * tenonctl: the administrator's command. One question to a running tenond, its answer as a table or as JSON.
 */
#include "tools/ctl.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DONE = 0,
	FAILED = 1,
	USAGE = 2,
	OPT_SOCKET = 256,
	OPT_JSON,
	OPT_TIMEOUT,
	OPT_FORCE,
	OPT_WAIT,
	OPT_ONCE,
	OPT_HOST,
	OPT_DISK,
	OPT_TENANT
};
enum {
	TAKES_UNLOAD = 1,
	TAKES_ONCE = 2,
	TAKES_LIMITS = 4,
	TAKES_TENANT = 8,
	TAKES_MODEL = 16
}; /* options of a command */

/* A command, its argument's key in the question, and who prints the answer. */
static const struct command {
	const char *name, *cmd, *key, *line;
	bool needs; /* the argument */
	unsigned takes;
	int timeout_ms;
	void (*show)(const json_t *answer); /* NULL: top */
} commands[] = {
	{ "status", "status", NULL, "what runs: sessions, requests, worker, models, classes, prefixes", false,
		0, 5000, ctl_show_status },
	{ "top", NULL, NULL, "the same and the queue, redrawn each second", false, TAKES_ONCE, 5000, NULL },
	{ "models", "models", NULL, "models and their state; also: models load NAME, models unload NAME",
		false, 0, 5000, ctl_show_models },
	{ "load", "load", "model", "load a model now, and put one back into service", true, 0, 600000,
		ctl_show_pairs },
	{ "unload", "unload", "model", "give a model's memory back (--wait SECONDS, --force)", true,
		TAKES_UNLOAD, 60000, ctl_show_pairs },
	{ "backends", "backends", NULL, "probe all backends and list their devices", false, 0, 60000,
		ctl_show_backends },
	{ "sessions", "sessions", NULL, "attached clients", false, 0, 5000, ctl_show_sessions },
	{ "queue", "queue", NULL, "open requests: whose, how far, and why each one waits", false, 0, 5000,
		ctl_show_queue },
	{ "jobs", "jobs", NULL, "durable requests, and answers that wait to be collected", false, 0, 5000,
		ctl_show_jobs },
	{ "jobs drop", "drop-job", "job", "end one and forget its answer (--tenant NAME)", true, TAKES_TENANT,
		5000, ctl_show_pairs },
	{ "memory", "memory", NULL, "memory by area, and the ledger of each loaded model", false, 0, 5000,
		ctl_show_memory },
	{ "prefix status", "status", NULL, "what the prefix caches hold", false, TAKES_MODEL, 35000,
		ctl_show_prefix },
	{ "prefix limits", "limits", NULL, "change the tiers' limits (--host-mib N, --disk-mib N)", false,
		TAKES_LIMITS | TAKES_MODEL, 35000, ctl_show_prefix },
	{ "prefix pins", "pins", NULL, "pinned prefixes", false, TAKES_MODEL, 35000, ctl_show_pins },
	{ "prefix unpin", "unpin", "id", "let one go, by its id", true, 0, 35000, ctl_show_pairs },
	{ "prefix purge", "purge", NULL, "drop what nobody uses (--tenant NAME), tiers included", false,
		TAKES_TENANT | TAKES_MODEL, 35000, ctl_show_prefix },
	{ "log-level", "log-level", "level", "tell or set the level: error, warn, info, debug, trace", false,
		0, 5000, ctl_show_pairs },
	{ "reload", "reload", NULL, "read the configuration again", false, 0, 5000, ctl_show_pairs },
	{ "drain", "drain", NULL, "take no new work and end when the last request has", false, 0, 5000,
		ctl_show_pairs },
	{ NULL, NULL, NULL, NULL, false, 0, 0, NULL },
};

static const struct option longs[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "force", no_argument, NULL, OPT_FORCE },
	{ "wait", required_argument, NULL, OPT_WAIT },
	{ "once", no_argument, NULL, OPT_ONCE },
	{ "host-mib", required_argument, NULL, OPT_HOST },
	{ "disk-mib", required_argument, NULL, OPT_DISK },
	{ "tenant", required_argument, NULL, OPT_TENANT },
	{ "model", required_argument, NULL, 'm' },
	{ NULL, 0, NULL, 0 },
};

struct line {
	const char *socket, *tenant, *model;
	bool json, done, force, once;
	unsigned given;				     /* TAKES_* of the options on it */
	long timeout_ms, wait_s, host_mib, disk_mib; /* the last two: -1 if not given */
};

static int help(void)
{
	(void)puts(
		"usage: tenonctl [OPTION]... COMMAND [ARGUMENT]\n\nAsks a running tenond, or tells it what to do.\n");
	for (const struct command *c = commands; c->name; c++)
		(void)printf("  %-13s %s\n", c->name, c->line);
	(void)puts(
		"\n"
		"  --socket PATH   client socket of the daemon; the control socket lies beside it\n"
		"                  (default: $TENON_SOCKET, $XDG_RUNTIME_DIR/tenon/attach, /run/tenon/attach)\n"
		"  --json          the daemon's answer as one JSON object\n"
		"  --timeout MS    longest wait for the answer\n"
		"  --wait S        unload: wait so long for open requests, taking no new ones\n"
		"  --force         unload: cancel open requests\n"
		"  --once          top: one snapshot as text\n"
		"  --host-mib N, --disk-mib N, --tenant NAME, -m, --model NAME   of the prefix commands\n"
		"  --version, --help\n"
		"\n"
		"examples:\n"
		"  tenonctl top\n"
		"  tenonctl models load smollm2-135m\n"
		"  tenonctl models unload smollm2-135m --wait 30\n"
		"  tenonctl prefix limits --disk-mib 4096\n"
		"  tenonctl memory --json");
	return DONE;
}

static int usage(const char *fmt, const char *what)
{
	(void)fputs("tenonctl: ", stderr);
	(void)fprintf(stderr, fmt, what);
	(void)fputs(" (see 'tenonctl --help')\n", stderr);
	return USAGE;
}

static int parse_number(const char *option, const char *text, long lo, long hi, long *out)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (*end || !*text || v < lo || v > hi) {
		(void)fprintf(stderr,
			"tenonctl: %s '%s': not a number from %ld to %ld (see 'tenonctl --help')\n", option,
			text, lo, hi);
		return USAGE;
	}
	*out = v;
	return DONE;
}

/* Options of one command or another; `given` remembers which kinds there were. */
static int take_special(struct line *l, int opt)
{
	switch (opt) {
	case OPT_FORCE:
		l->given |= TAKES_UNLOAD;
		l->force = true;
		return DONE;
	case OPT_WAIT:
		l->given |= TAKES_UNLOAD;
		return parse_number("--wait", optarg, 1, 86400, &l->wait_s);
	case OPT_ONCE:
		l->given |= TAKES_ONCE;
		l->once = true;
		return DONE;
	case OPT_HOST:
		l->given |= TAKES_LIMITS;
		return parse_number("--host-mib", optarg, 0, 1 << 24, &l->host_mib);
	case OPT_DISK:
		l->given |= TAKES_LIMITS;
		return parse_number("--disk-mib", optarg, 0, 1 << 24, &l->disk_mib);
	case OPT_TENANT:
		l->given |= TAKES_TENANT;
		l->tenant = optarg;
		return DONE;
	default:
		l->given |= TAKES_MODEL;
		l->model = optarg;
		return DONE;
	}
}

static int parse(struct line *l, int argc, char **argv)
{
	int opt, status = DONE;

	opterr = 0;
	while (!status && !l->done && (opt = getopt_long(argc, argv, ":hVm:", longs, NULL)) != -1) {
		if (opt == ':') {
			status = usage("option '%s': a value is missing", argv[optind - 1]);
		} else if (opt == '?') {
			status = usage("option '%s': unknown", argv[optind - 1]);
		} else if (opt == 'h') {
			l->done = true;
			status = help();
		} else if (opt == 'V') {
			l->done = true;
			(void)puts("tenonctl " PACKAGE_VERSION);
		} else if (opt == OPT_SOCKET) {
			l->socket = optarg;
		} else if (opt == OPT_JSON) {
			l->json = true;
		} else if (opt == OPT_TIMEOUT) {
			status = parse_number("--timeout", optarg, 1, 86400000, &l->timeout_ms);
		} else {
			status = take_special(l, opt);
		}
	}
	return status;
}

static const struct command *find(const char *name)
{
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

static void put_mib(json_t *o, const char *key, long mib)
{
	if (mib >= 0)
		(void)json_object_set_new(o, key, json_integer((json_int_t)mib << 20));
}

static json_t *question_of(const struct line *l, const struct command *c, const char *argument)
{
	bool prefix = !strncmp(c->name, "prefix ", 7);
	json_t *q = json_pack("{s:s}", "cmd", prefix ? "prefix" : c->cmd);

	if (prefix)
		(void)json_object_set_new(q, "do", json_string(c->cmd));
	if (argument)
		(void)json_object_set_new(q, c->key, json_string(argument));
	if (l->model)
		(void)json_object_set_new(q, "model", json_string(l->model));
	if (l->tenant)
		(void)json_object_set_new(q, "tenant", json_string(l->tenant));
	put_mib(q, "host_bytes", l->host_mib);
	put_mib(q, "disk_bytes", l->disk_mib);
	if (l->force)
		(void)json_object_set_new(q, "force", json_true());
	if (l->wait_s)
		(void)json_object_set_new(q, "wait_s", json_integer(l->wait_s));
	return q;
}

static int run(const struct line *l, const struct command *c, const char *argument)
{
	int rc, timeout_ms = l->timeout_ms ? (int)l->timeout_ms : c->timeout_ms + (int)l->wait_s * 1000;
	json_t *question, *answer = NULL;
	struct error e = { 0 };
	char path[128];

	rc = ctl_path(l->socket, path, sizeof path, &e);
	if (!rc && !c->show)
		return ctl_top(path, timeout_ms, l->once || l->json);
	question = c->show ? question_of(l, c, argument) : NULL;
	if (!rc)
		rc = ctl_ask(path, question, timeout_ms, &answer, &e);
	json_decref(question);
	if (rc && l->json && rc != TENON_E_GONE)
		answer = json_pack("{s:{s:s, s:s}}", "error", "code", error_name(rc), "message", e.text);
	if (rc)
		(void)fprintf(stderr, "tenonctl: %s\n", e.text);
	if (answer && l->json) {
		(void)json_dumpf(answer, stdout, JSON_COMPACT);
		(void)puts("");
	} else if (answer) {
		c->show(answer);
	}
	json_decref(answer);
	return rc ? FAILED : DONE;
}

/* "models load NAME" is "load NAME"; "prefix X" and "jobs drop" are commands of two words. Returns how many words it is. */
static int find_words(int n, char **argv, const struct command **out)
{
	char two[64];

	if (n > 1 && (!strcmp(argv[0], "prefix") || !strcmp(argv[0], "jobs"))) {
		(void)snprintf(two, sizeof two, "%.8s %.40s", argv[0], argv[1]);
		*out = find(two);
		return 2;
	}
	if (n > 1 && !strcmp(argv[0], "models")) {
		*out = strcmp(argv[1], "list") ? find(argv[1]) : find("models");
		return 2;
	}
	*out = find(argv[0]);
	return 1;
}

int main(int argc, char **argv)
{
	struct line l = { .host_mib = -1, .disk_mib = -1 };
	const struct command *c;
	int status = parse(&l, argc, argv), n, words;

	if (status || l.done)
		return status;
	argv += optind;
	n = argc - optind;
	if (!n)
		return usage("%s", "name a command");
	words = find_words(n, argv, &c);
	if (!c)
		return usage("'%s': unknown command", argv[words - 1]);
	argv += words;
	n -= words;
	if (n > 1 || (n && !c->key))
		return usage("'%s': one argument too many", argv[n - 1]);
	if (!n && c->needs)
		return usage("'%s': its argument is missing", c->name);
	if (l.given & ~c->takes)
		return usage("'%s': takes none of these options", c->name);
	if ((c->takes & TAKES_LIMITS) && !(l.given & TAKES_LIMITS))
		return usage("'%s': name --host-mib, --disk-mib or both", c->name);
	return run(&l, c, n ? argv[0] : NULL);
}
