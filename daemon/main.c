/* SPDX-License-Identifier: Apache-2.0
 * tenond: parse the command line, run the loop, tear down. `tenond --worker` is the other program in this file.
 */
#include "daemon/daemon.h"
#include "daemon/worker.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	OVERRIDES_MAX = 128,
	OPT_CONFIG = 256,
	OPT_PRIVATE,
	OPT_READY,
	OPT_CHECK,
	OPT_SET,
	OPT_FOREGROUND,
	OPT_KEYS
};

static const struct option longs[] = {
	/* options that are a key of the config under their own name come last, see apply() */
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "private", no_argument, NULL, OPT_PRIVATE },
	{ "ready-fd", required_argument, NULL, OPT_READY },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "set", required_argument, NULL, OPT_SET },
	{ "socket", required_argument, NULL, OPT_KEYS },
	{ "model", required_argument, NULL, OPT_KEYS + 1 },
	{ "backend", required_argument, NULL, OPT_KEYS + 2 },
	{ "precision", required_argument, NULL, OPT_KEYS + 3 },
	{ "kv", required_argument, NULL, OPT_KEYS + 4 },
	{ "isolation", required_argument, NULL, OPT_KEYS + 5 },
	{ "log-level", required_argument, NULL, OPT_KEYS + 6 },
	{ "model-dir", required_argument, NULL, OPT_KEYS + 7 },
	{ NULL, 0, NULL, 0 },
};
static const char *const keys[] = { "socket", "model", "backend", "precision", "kv", "isolation", "log.level",
	"model_dir" };

static const char help_text[] =
	"usage: tenond [OPTION]...\n"
	"\n"
	"Serves language models to programs on this machine. Stays in the foreground; see tenond(8), tenond.conf(5).\n"
	"\n"
	"  --config FILE        read this configuration (default: " TENON_SYSCONFDIR
	"/tenond.conf, if it is there)\n"
	"  --check-config       read it, say what is wrong, and end\n"
	"  --socket PATH        socket for clients; its folder holds the other sockets\n"
	"  --model NAME=PATH    serve this model file under this name; may be repeated\n"
	"  --model-dir DIR      folder where other names are looked for as NAME.gguf\n"
	"  --backend LIST       backend, as `tenonctl backends` lists them, or several with the layers of each,\n"
	"                       as in cpu=15,ref; for every model\n"
	"  --precision P        fast or exact, for every model\n"
	"  --kv TYPE            f16, f32, q8_0 or q4_0, for every model\n"
	"  --isolation HOW      process or thread\n"
	"  --log-level LEVEL    error, warn, info, debug or trace\n"
	"  --set KEY=VALUE      any other key of the configuration, as in --set worker.step_timeout_ms=5000\n"
	"  --private            serve only whoever holds the other end of --ready-fd, from a folder of its own\n"
	"  --ready-fd N         write \"ready SOCKET\" to this descriptor once clients may attach\n"
	"  --foreground         accepted for scripts; tenond never goes to the background\n"
	"  --version, --help\n"
	"\n"
	"Signals: TERM or INT drain and end, a second one ends at once; HUP reads the configuration again.\n"
	"\n"
	"examples:\n"
	"  tenond --model smollm2=/models/smollm2-135m.gguf\n"
	"  tenond --config /etc/tenond.conf --check-config\n"
	"  tenond --socket /tmp/t/attach --isolation thread --log-level debug\n";

struct command_line {
	struct daemon_options o;
	struct override overrides[OVERRIDES_MAX];
	bool check, done;
	int status;
};

static int usage(const char *fmt, const char *what)
{
	(void)fputs("tenond: ", stderr);
	(void)fprintf(stderr, fmt, what);
	(void)fputs(" (see 'tenond --help')\n", stderr);
	return 2;
}

static int add_override(struct command_line *c, const char *key, const char *value)
{
	if (c->o.n_overrides == OVERRIDES_MAX)
		return usage("%s: too many options", key);
	c->overrides[c->o.n_overrides++] = (struct override){ .key = key, .value = value };
	return 0;
}

static int add_set(struct command_line *c, char *arg)
{
	char *eq = strchr(arg, '=');

	if (!eq)
		return usage("--set '%s': write KEY=VALUE", arg);
	*eq = 0;
	return add_override(c, arg, eq + 1);
}

static int set_ready_fd(struct command_line *c, const char *arg)
{
	char *end;
	long fd = strtol(arg, &end, 10);

	if (*end || !*arg || fd < 1 || fd > 65535)
		return usage("--ready-fd '%s': not a descriptor", arg);
	c->o.ready_fd = (int)fd;
	return 0;
}

static int finish_with(struct command_line *c, const char *text)
{
	c->done = true;
	return fputs(text, stdout) < 0;
}

static int apply(struct command_line *c, int opt, char *arg)
{
	if (opt >= OPT_KEYS)
		return add_override(c, keys[opt - OPT_KEYS], arg);
	switch (opt) {
	case 'h':
		return finish_with(c, help_text);
	case 'V':
		return finish_with(c, "tenond " PACKAGE_VERSION "\n");
	case OPT_CONFIG:
		c->o.config_path = arg;
		return 0;
	case OPT_PRIVATE:
		c->o.private_mode = true;
		return 0;
	case OPT_READY:
		return set_ready_fd(c, arg);
	case OPT_CHECK:
		c->check = true;
		return 0;
	case OPT_SET:
		return add_set(c, arg);
	default:
		return 0;
	}
}

static void parse(struct command_line *c, int argc, char **argv)
{
	int opt;

	opterr = 0;
	while (!c->done && !c->status && (opt = getopt_long(argc, argv, ":hV", longs, NULL)) != -1) {
		if (opt == ':')
			c->status = usage("option '%s': a value is missing", argv[optind - 1]);
		else if (opt == '?')
			c->status = usage("option '%s': unknown", argv[optind - 1]);
		else
			c->status = apply(c, opt, optarg);
	}
	if (!c->done && !c->status && optind < argc)
		c->status = usage("'%s': no arguments are taken", argv[optind]);
	if (!c->done && !c->status && c->o.private_mode && c->o.ready_fd < 0)
		c->status = usage("%s needs --ready-fd", "--private");
	if (c->o.private_mode && !c->status)
		c->status = add_override(c, "allow_paths", "true");
}

static int fail(const struct error *e)
{
	(void)fprintf(stderr, "tenond: %s\n", e->text);
	return e->code == TENON_E_CONFIG ? 2 : 1;
}

/* The reason goes to whoever waits for readiness, too. */
static int fail_start(const struct command_line *c, const struct error *e)
{
	if (c->o.ready_fd >= 0)
		(void)dprintf(c->o.ready_fd, "error %s\n", e->text);
	return fail(e);
}

static int serve(struct command_line *c)
{
	struct daemon *d = mem_zalloc(MEM_DAEMON, 1, sizeof *d);
	struct error e = { 0 };

	if (!d) {
		(void)error_set(&e, TENON_E_NOMEM, "out of memory");
		return fail_start(c, &e);
	}
	slice_ask(SLICE_DELIVER_NS);
	if (daemon_open(d, &c->o, &e)) {
		mem_free(d);
		return fail_start(c, &e);
	}
	loop_run(&d->loop);
	daemon_close(d);
	mem_free(d);
	return 0;
}

int main(int argc, char **argv)
{
	struct command_line c = { .o.ready_fd = -1 };
	struct error e = { 0 };

	if (argc == 3 && !strcmp(argv[1], "--worker"))
		return worker_main(argv[2]);
	c.o.overrides = c.overrides;
	parse(&c, argc, argv);
	if (c.done || c.status)
		return c.status;
	if (!c.check)
		return serve(&c);
	return daemon_check_config(&c.o, &e) ? fail(&e) : finish_with(&c, "configuration: ok\n");
}
