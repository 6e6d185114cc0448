/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, the program: arguments, one child a check, the table of results and the report in JSON. It opens
 * no plugin itself, so nothing a plugin does can stop it.
 */
#include "tools/conform.h"
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_LEVELS 7u

struct options {
	const char *plugin, *ref, *report;
	uint32_t level;	  /* highest one run */
	const char *only; /* name of one check */
	uint32_t limit_s; /* of one check */
	struct conform c;
};

static const struct conform_check *const levels[N_LEVELS] = { conform_l0, conform_l1, conform_l2, conform_l3,
	conform_l4, conform_l5, conform_l6 };

static const char help[] =
	"usage: plugin-conform [options] path/to/NAME.plugin | path/to/NAME.so\n"
	"Checks a Tenon backend plugin against the contract of tenon/plugin.h.\n"
	"  --level N      run levels 0 to N (default 5): 0 load, 1 memory, 2 operators, 3 models,\n"
	"                 4 paged KV, 5 behaviour, 6 speed\n"
	"  --seed S       seed of all random numbers (default 1)\n"
	"  --long         more cases and longer loops\n"
	"  --ref PATH     the reference plugin (default: beside the plugin, else the installed one)\n"
	"  --only NAME    one check\n"
	"  --config K=V   an option for the plugin (may be repeated; default threads=2)\n"
	"  --limit S      seconds a check may take (default 300)\n"
	"  --report FILE  results as JSON\n"
	"Exit: 0 all passed, 1 something failed, 2 wrong use.\n"
	"example: plugin-conform --level 2 build/acme.plugin\n";

/* ---- what checks call -------------------------------------------------------------------------------------- */
void conform_note(struct conform *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->result->where, sizeof c->result->where, fmt, ap);
	va_end(ap);
}

static _Noreturn void end_child(struct conform *c, uint32_t state, const char *fmt, va_list ap)
{
	(void)vsnprintf(c->result->text, sizeof c->result->text, fmt, ap);
	c->result->state = state;
	_exit(0);
}

void conform_fail(struct conform *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	end_child(c, CONFORM_FAIL, fmt, ap);
}

void conform_skip(struct conform *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	end_child(c, CONFORM_SKIP, fmt, ap);
}

/* ---- children ------------------------------------------------------------------------------------------------- */
static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits for the child; kills it after the limit. True when it ended by itself. */
static bool child_wait(pid_t pid, double limit_s, int *status)
{
	double end = now_s() + limit_s;
	const struct timespec nap = { .tv_nsec = 2000000 };

	for (;;) {
		pid_t got = waitpid(pid, status, WNOHANG);

		if (got == pid || (got < 0 && errno != EINTR))
			return true;
		if (now_s() > end)
			break;
		(void)nanosleep(&nap, NULL);
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, status, 0);
	return false;
}

static void child_judge(struct conform_result *r, bool ended, int status, uint32_t limit_s)
{
	if (!ended)
		(void)snprintf(r->text, sizeof r->text, "hangs: no end after %u s", limit_s);
	else if (WIFSIGNALED(status))
		(void)snprintf(r->text, sizeof r->text, "crashes: %s", strsignal(WTERMSIG(status)));
	else if (r->state == CONFORM_LOST)
		(void)snprintf(r->text, sizeof r->text, "ends the process (exit %d)", WEXITSTATUS(status));
	if (!ended || WIFSIGNALED(status) || r->state == CONFORM_LOST)
		r->state = CONFORM_FAIL;
}

static void check_run(struct options *o, const struct conform_check *k, struct conform_result *r)
{
	pid_t pid;
	int status = 0;
	bool ended;

	*r = (struct conform_result){ 0 };
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		o->c.result = r;
		k->run(&o->c);
		r->state = CONFORM_PASS;
		exit(0); /* not _exit: a leak checker may have something to say */
	}
	if (pid < 0) {
		r->state = CONFORM_FAIL;
		(void)snprintf(r->text, sizeof r->text, "fork: %s", strerror(errno));
		return;
	}
	ended = child_wait(pid, o->limit_s, &status);
	child_judge(r, ended, status, o->limit_s);
	if (r->state == CONFORM_PASS && WIFEXITED(status) && WEXITSTATUS(status)) {
		r->state = CONFORM_FAIL;
		(void)snprintf(r->text, sizeof r->text, "exit code %d at the end (leak checker?)",
			WEXITSTATUS(status));
	}
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
static const char *const state_names[] = { "lost", "ok", "FAIL", "skip" };

static void result_print(const struct conform_check *k, const struct conform_result *r, double seconds)
{
	printf("%u  %-26s %-4s %6.2f s", k->level, k->name, state_names[r->state], seconds);
	if (r->n_cases)
		printf("  %u cases", r->n_cases);
	if (r->n_refused)
		printf(", %u refused", r->n_refused);
	if (r->worst > 0)
		printf(", error at most %.2g of what is allowed", r->worst);
	if (r->state == CONFORM_FAIL)
		printf("\n      %s%s%s", r->where, r->where[0] ? ": " : "", r->text);
	else if (r->text[0])
		printf("  %s", r->text);
	printf("\n");
}

static json_t *result_json(const struct conform_check *k, const struct conform_result *r, double seconds)
{
	return json_pack("{s:i,s:s,s:s,s:f,s:i,s:i,s:f,s:s,s:s}", "level", (int)k->level, "check", k->name,
		"result", state_names[r->state], "seconds", seconds, "cases", (int)r->n_cases, "refused",
		(int)r->n_refused, "worst", r->worst, "where", r->state == CONFORM_FAIL ? r->where : "",
		"text", r->text);
}

static int report_write(const struct options *o, json_t *checks, bool passed)
{
	json_t *all = json_pack("{s:s,s:i,s:i,s:i,s:b,s:o}", "plugin", o->plugin, "abi_major",
		(int)TNP_ABI_MAJOR, "abi_minor", (int)TNP_ABI_MINOR, "seed", (int)o->c.seed, "passed", passed,
		"checks", checks);
	int rc = all ? json_dump_file(all, o->report, JSON_INDENT(1)) : -1;

	json_decref(all);
	if (rc)
		fprintf(stderr, "plugin-conform: %s: cannot be written; choose another --report\n",
			o->report);
	return rc;
}

static int run_all(struct options *o)
{
	struct conform_result *r =
		mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	json_t *checks = json_array();
	uint32_t n = 0, failed = 0;

	if (r == MAP_FAILED)
		return 1;
	for (uint32_t l = 0; l <= (o->only ? N_LEVELS - 1 : o->level); l++)
		for (const struct conform_check *k = levels[l]; k->name; k++) {
			double t0 = now_s();

			if (o->only && strcmp(o->only, k->name))
				continue;
			check_run(o, k, r);
			result_print(k, r, now_s() - t0);
			(void)json_array_append_new(checks, result_json(k, r, now_s() - t0));
			n++;
			failed += r->state == CONFORM_FAIL;
		}
	(void)munmap(r, sizeof *r);
	printf("%s: %u of %u checks failed\n", failed || !n ? "FAIL" : "OK", failed, n);
	if (!o->report)
		json_decref(checks);
	else if (report_write(o, checks, !failed))
		return 1;
	return failed || !n ? 1 : 0;
}

/* ---- finding the shared objects -------------------------------------------------------------------------------------- */
static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* The value of `key = "..."` in a manifest, with the file's folder in front for `file`. Good enough for a vendor's own
 * manifest; the daemon's reader is strict (tenonctl backends tells what it thinks of one). */
static bool manifest_value(const char *path, const char *key, char *out, size_t room)
{
	FILE *f = fopen(path, "r");
	char line[512], value[256];
	bool found = false;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof line, f)) {
		char *p = line + strspn(line, " \t({");

		if (strncmp(p, key, strlen(key)) == 0 &&
			sscanf(p + strlen(key), " = \"%255[^\"]\"", value) == 1)
			found = (size_t)snprintf(out, room, "%s", value) < room;
	}
	(void)fclose(f);
	return found;
}

/* Real path of the shared object that `path` (a manifest or the object itself) stands for. */
static char *object_path(const char *path, char *name, size_t name_room)
{
	char file[256], full[4096];
	const char *slash = strrchr(path, '/');

	*name = 0;
	if (!ends_with(path, ".plugin"))
		return realpath(path, NULL);
	if (!manifest_value(path, "file", file, sizeof file) ||
		!manifest_value(path, "name", name, name_room))
		return NULL;
	(void)snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, file);
	return realpath(full, NULL);
}

static char *ref_find(const struct options *o, const char *plugin_so)
{
	char name[64], beside[4096];
	const char *slash = strrchr(plugin_so, '/');
	char *ref;

	if (o->ref)
		return object_path(o->ref, name, sizeof name);
	(void)snprintf(beside, sizeof beside, "%.*s/ref.so", (int)(slash - plugin_so), plugin_so);
	ref = realpath(beside, NULL);
	return ref ? ref : realpath(TENON_PLUGINDIR "/ref.so", NULL);
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */
static int wrong_use(const char *why)
{
	fprintf(stderr, "plugin-conform: %s; see plugin-conform --help\n", why);
	return 2;
}

static bool number(const char *s, uint64_t most, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 10);
	return !errno && end != s && !*end && *s != '-' && *out <= most;
}

static int option_take(struct options *o, int opt)
{
	uint64_t v = 0;
	bool ok = true;

	switch (opt) {
	case 'l':
		ok = number(optarg, N_LEVELS - 1, &v);
		o->level = (uint32_t)v;
		break;
	case 's':
		ok = number(optarg, INT32_MAX, &v);
		o->c.seed = v;
		break;
	case 't':
		ok = number(optarg, 86400, &v) && v;
		o->limit_s = (uint32_t)v;
		break;
	case 'L':
		o->c.thorough = true;
		break;
	case 'r':
		o->ref = optarg;
		break;
	case 'c':
		ok = conform_config_add(optarg);
		break;
	case 'o':
		o->only = optarg;
		break;
	case 'j':
		o->report = optarg;
		break;
	default:
		return wrong_use("unknown option");
	}
	return ok ? 0 : wrong_use("an option's value is malformed or out of range");
}

static int options_read(struct options *o, int argc, char **argv)
{
	static const struct option known[] = { { "level", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 's' }, { "long", no_argument, NULL, 'L' },
		{ "ref", required_argument, NULL, 'r' }, { "only", required_argument, NULL, 'o' },
		{ "config", required_argument, NULL, 'c' }, { "limit", required_argument, NULL, 't' },
		{ "report", required_argument, NULL, 'j' }, { "help", no_argument, NULL, 'h' }, { 0 } };
	int opt, rc = 0;

	while (!rc && (opt = getopt_long(argc, argv, "h", known, NULL)) != -1) {
		if (opt == 'h') {
			(void)fputs(help, stdout);
			exit(0);
		}
		rc = option_take(o, opt);
	}
	if (!rc && optind + 1 != argc)
		rc = wrong_use("one plugin is wanted");
	o->plugin = rc ? NULL : argv[optind];
	return rc;
}

int main(int argc, char **argv)
{
	struct options o = { .level = 5, .limit_s = 300, .c = { .seed = 1 } };
	char name[64];
	char *so, *ref = NULL;
	int rc = options_read(&o, argc, argv);

	(void)signal(
		SIGCHLD, SIG_DFL); /* whoever started us may ignore it, and then children have no status */
	if (rc)
		return rc;
	so = object_path(o.plugin, name, sizeof name);
	if (so)
		ref = ref_find(&o, so);
	if (!so || !ref) {
		fprintf(stderr, "plugin-conform: %s: %s\n", so ? "ref" : o.plugin,
			so ? "the reference plugin was not found; name it with --ref"
			   : "no such plugin, or its manifest has no name or file");
		free(so);
		return 2;
	}
	o.c.path = so;
	o.c.ref_path = ref;
	o.c.name = name[0] ? name : NULL;
	rc = run_all(&o);
	free(so);
	free(ref);
	return rc;
}
