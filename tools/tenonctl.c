/* SPDX-License-Identifier: Apache-2.0
 * tenonctl: the administrator's command. One question to a running tenond, its answer as a table or as JSON.
 */
#include "tools/ctl.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 0, FAILED = 1, USAGE = 2, OPT_SOCKET = 256, OPT_JSON, OPT_TIMEOUT };

/* A command, its argument's key in the question, and who prints the answer. */
static const struct command {
	const char *name, *cmd, *key, *line;
	bool needs; /* the argument */
	int timeout_ms;
	void (*show)(const json_t *answer);
} commands[] = {
	{ "status", "status", NULL, "what runs: sessions, requests, worker, models", false, 5000,
		ctl_show_status },
	{ "models", "models", NULL, "models and their state; also: models load NAME, models unload NAME",
		false, 5000, ctl_show_models },
	{ "load", "load", "model", "load a model now, and put one back into service", true, 600000,
		ctl_show_pairs },
	{ "unload", "unload", "model", "give a model's memory back", true, 60000, ctl_show_pairs },
	{ "backends", "backends", NULL, "probe all backends and list their devices", false, 60000,
		ctl_show_backends },
	{ "sessions", "sessions", NULL, "attached clients", false, 5000, ctl_show_sessions },
	{ "queue", "queue", NULL, "open requests, and what each model's scheduler does", false, 5000,
		ctl_show_queue },
	{ "memory", "memory", NULL, "memory by area, of daemon, worker and models", false, 5000,
		ctl_show_memory },
	{ "log-level", "log-level", "level", "tell or set the level: error, warn, info, debug, trace", false,
		5000, ctl_show_pairs },
	{ "reload", "reload", NULL, "read the configuration again", false, 5000, ctl_show_pairs },
	{ "drain", "drain", NULL, "take no new work and end when the last request has", false, 5000,
		ctl_show_pairs },
	{ NULL, NULL, NULL, NULL, false, 0, NULL },
};

static const struct option longs[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ NULL, 0, NULL, 0 },
};

struct line {
	const char *socket;
	bool json, done;
	int timeout_ms;
};

static int help(void)
{
	(void)puts(
		"usage: tenonctl [OPTION]... COMMAND [ARGUMENT]\n\nAsks a running tenond, or tells it what to do.\n");
	for (const struct command *c = commands; c->name; c++)
		(void)printf("  %-10s %s\n", c->name, c->line);
	(void)puts(
		"\n"
		"  --socket PATH   client socket of the daemon; the control socket lies beside it\n"
		"                  (default: $TENON_SOCKET, $XDG_RUNTIME_DIR/tenon/attach, /run/tenon/attach)\n"
		"  --json          the daemon's answer as one JSON object\n"
		"  --timeout MS    longest wait for the answer\n"
		"  --version, --help\n"
		"\n"
		"examples:\n"
		"  tenonctl status\n"
		"  tenonctl models load smollm2-135m\n"
		"  tenonctl memory --json\n"
		"  tenonctl log-level debug");
	return DONE;
}

static int usage(const char *fmt, const char *what)
{
	(void)fputs("tenonctl: ", stderr);
	(void)fprintf(stderr, fmt, what);
	(void)fputs(" (see 'tenonctl --help')\n", stderr);
	return USAGE;
}

static int parse_timeout(const char *text, int *out)
{
	char *end;
	long v = strtol(text, &end, 10);

	if (*end || !*text || v < 1 || v > 86400000)
		return usage("--timeout '%s': not a number of milliseconds from 1 to 86400000", text);
	*out = (int)v;
	return DONE;
}

static int parse(struct line *l, int argc, char **argv)
{
	int opt, status = DONE;

	opterr = 0;
	while (!status && !l->done && (opt = getopt_long(argc, argv, ":hV", longs, NULL)) != -1) {
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
		} else {
			status = parse_timeout(optarg, &l->timeout_ms);
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

static int run(const struct line *l, const struct command *c, const char *argument)
{
	json_t *question = json_pack("{s:s}", "cmd", c->cmd), *answer = NULL;
	struct error e = { 0 };
	char path[128];
	int rc;

	if (argument)
		(void)json_object_set_new(question, c->key, json_string(argument));
	rc = ctl_path(l->socket, path, sizeof path, &e);
	if (!rc)
		rc = ctl_ask(path, question, l->timeout_ms ? l->timeout_ms : c->timeout_ms, &answer, &e);
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

int main(int argc, char **argv)
{
	struct line l = { 0 };
	const struct command *c;
	int status = parse(&l, argc, argv), n;

	if (status || l.done)
		return status;
	argv += optind;
	n = argc - optind;
	if (!n)
		return usage("%s", "name a command");
	if (n > 1 && !strcmp(argv[0], "models") && strcmp(argv[1], "list")) { /* models load NAME */
		argv++;
		n--;
	} else if (n == 2 && !strcmp(argv[0], "models")) {
		n = 1;
	}
	c = find(argv[0]);
	if (!c)
		return usage("'%s': unknown command", argv[0]);
	if (n > 2 || (n == 2 && !c->key))
		return usage("'%s': one argument too many", argv[n - 1]);
	if (n == 1 && c->needs)
		return usage("'%s': names no model", c->name);
	return run(&l, c, n == 2 ? argv[1] : NULL);
}
