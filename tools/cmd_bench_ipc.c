/* SPDX-License-Identifier: Apache-2.0
 * tenon bench ipc: what a message costs, awake and parked, in this process, to a daemon and beside other ways.
 */
#include "tools/bench_ipc.h"
#include <string.h>

static const char help[] =
	"usage: tenon bench ipc [OPTION]...\n\n"
	"Round trips of 64 bytes. ring.awake: both sides look at the ring. bell.*: both sleep before every message and are\n"
	"rung. hop.*: between two processes over a worker's link, which is what a worker adds to a request. ping.*: answered\n"
	"by the daemon's loop; but for ping.awake, both processes rest for 3 ms before each, as they do for\n"
	"baseline.*.idle, which is what the machine takes for that with nothing of Tenon in it. attach: connecting. idle.*: the daemon and its workers with 64 idle sessions.\n\n"
	"options:\n"
	"      --socket PATH   a running tenond (default: $TENON_SOCKET, the standard places, else a private one)\n"
	"      --no-daemon     only what needs none\n"
	"      --share N       per cent of the usual number of round trips (default 100)\n"
	"      --json\n      --help\n\n"
	"examples:\n  tenon bench ipc\n  tenon bench ipc --no-daemon --share 10 --json\n";

/* Without a daemon the rest is printed all the same. */
static int bench(const struct session_options *so, bool daemon, uint64_t share, bool json)
{
	json_t *report = bench_report("bench ipc", NULL);
	struct error e = { 0 };
	struct session s;
	int rc = bench_ipc_local(report, share, &e);

	if (!rc && daemon) {
		rc = session_open(so, &s, &e);
		if (!rc) {
			rc = bench_ipc_daemon(report, share, &s, &e);
			session_close(&s);
		}
	}
	(void)bench_print(report, json);
	return rc ? cli_fail_error("bench ipc", &e) : CLI_OK;
}

int cmd_bench_ipc(int argc, char **argv)
{
	static const struct option longs[] = { { "socket", 1, NULL, 1000 }, { "no-daemon", 0, NULL, 'n' },
		{ "share", 1, NULL, 's' }, { "json", 0, NULL, 'j' }, { "help", 0, NULL, 'h' }, { 0 } };
	struct session_options so = { 0 };
	bool json = false, daemon = true;
	uint64_t share = 100;
	int c;

	while ((c = cli_getopt("tenon bench ipc", argc, argv, ":h", longs)) != -1) {
		if (c == 'h')
			return fputs(help, stdout) < 0 ? CLI_FAILED : CLI_OK;
		if (c == '?' ||
			(c == 's' && !cli_parse_u64("tenon bench ipc", "--share", optarg, 1, 10000, &share)))
			return CLI_USAGE;
		so.socket = c == 1000 ? optarg : so.socket;
		daemon &= c != 'n';
		json |= c == 'j';
	}
	if (optind < argc)
		return cli_usage("tenon bench ipc", "'%s': nothing more is taken", argv[optind]);
	return bench(&so, daemon, share, json);
}
