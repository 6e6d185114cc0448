/* SPDX-License-Identifier: Apache-2.0
 * tenon ping: is the daemon there, and how long does a round trip through the rings take?
 */
#include "tools/commands.h"
#include "tools/session.h"
#include <stdlib.h>
#include <unistd.h>

static const char help[] =
	"usage: tenon ping [OPTION]...\n\n"
	"Sends pings through the rings; the daemon's loop answers.\n\n"
	"options:\n"
	"      --socket PATH   the daemon's attach socket (default: $TENON_SOCKET, then the standard places)\n"
	"  -c, --count N       how many (default 5)\n"
	"  -i, --interval MS   pause between them (default 200)\n"
	"      --eventfd       eventfd doorbells instead of ZeroMQ\n"
	"      --json\n      --help\n\n"
	"example:\n  tenon ping -c 100 -i 0 --json\n";

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* One round trip in ns; an error code below 0. */
static int64_t ping_once(struct tenon *t)
{
	struct tenon_event ev;
	uint64_t t0 = clock_now_ns();
	int rc = tenon_ping(t, "tenon", 5);

	while (!rc) {
		rc = tenon_next(t, &ev, 2000);
		if (!rc && ev.kind == TENON_EVENT_PONG)
			return (int64_t)(clock_now_ns() - t0);
	}
	return rc;
}

static void report(uint64_t *ns, uint64_t n, bool json)
{
	qsort(ns, n, sizeof *ns, by_size);
	if (json)
		cli_print_json(json_pack("{s:i, s:f, s:f, s:f, s:f}", "n", (int)n, "min_us", (double)ns[0] / 1e3, "median_us",
			(double)ns[n / 2] / 1e3, "p99_us", (double)ns[n * 99 / 100] / 1e3, "max_us", (double)ns[n - 1] / 1e3));
	else
		(void)printf("%llu pings: min %.1f us, median %.1f us, max %.1f us\n", (unsigned long long)n, (double)ns[0] / 1e3,
			(double)ns[n / 2] / 1e3, (double)ns[n - 1] / 1e3);
}

static int ping(const struct session_options *so, uint64_t count, uint64_t pause_ms, bool json)
{
	struct tenon_options to = { .size = sizeof to, .socket = so->socket, .eventfd_bell = so->eventfd_bell };
	struct tenon_error te = { 0 };
	uint64_t *ns = mem_zalloc(MEM_TOOL, count, sizeof *ns), n = 0;
	struct tenon *t = NULL;
	int rc = tenon_connect(&to, &t, &te);
	int64_t got = 0;

	if (rc || !ns) {
		mem_free(ns);
		tenon_close(t);
		return cli_fail("ping: %s", rc ? te.text : "out of memory");
	}
	session_catch_int();
	while (n < count && !session_interrupted() && (got = ping_once(t)) >= 0) {
		ns[n++] = (uint64_t)got;
		if (!json && count <= 100)
			(void)printf("pong %llu: %.1f us\n", (unsigned long long)n, (double)got / 1e3);
		if (pause_ms && n < count)
			(void)usleep((useconds_t)(pause_ms * 1000));
	}
	if (n)
		report(ns, n, json);
	tenon_close(t);
	mem_free(ns);
	return got < 0 ? cli_fail("ping: no answer (%s)", tenon_error_name((int)got)) : CLI_OK;
}

int cmd_ping(int argc, char **argv)
{
	static const struct option longs[] = { { "socket", 1, NULL, 1000 }, { "count", 1, NULL, 'c' }, { "interval", 1, NULL, 'i' },
		{ "eventfd", 0, NULL, 'e' }, { "json", 0, NULL, 'j' }, { "help", 0, NULL, 'h' }, { 0 } };
	struct session_options so = { 0 };
	uint64_t count = 5, pause_ms = 200;
	bool json = false;
	int c;

	while ((c = cli_getopt("tenon ping", argc, argv, ":c:i:h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (c == '?' || (c == 'c' && !cli_parse_u64("tenon ping", "--count", optarg, 1, 10000000, &count)) ||
			(c == 'i' && !cli_parse_u64("tenon ping", "--interval", optarg, 0, 60000, &pause_ms)))
			return CLI_USAGE;
		so.socket = c == 1000 ? optarg : so.socket;
		so.eventfd_bell |= c == 'e';
		json |= c == 'j';
	}
	if (optind < argc)
		return cli_usage("tenon ping", "'%s': nothing more is taken", argv[optind]);
	return ping(&so, count, pause_ms, json);
}
