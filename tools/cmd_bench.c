/* SPDX-License-Identifier: Apache-2.0
 * tenon bench: picks the benchmark from benches.def and hands it the rest of the line.
 */
#include "tools/bench.h"
#include "tools/commands.h"
#include <string.h>

static const struct bench {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *line;
} benches[] = {
#define X(name, fn, line) { "tenon bench " name, fn, line },
#include "tools/benches.def"
#undef X
	{ NULL, NULL, NULL }
};

static const char *short_name(const struct bench *b) { return b->name + strlen("tenon bench "); }

static int help(FILE *to)
{
	(void)fputs(
		"usage: tenon bench NAME [OPTION]...\n\nMeasures, and prints figures with their spread.\n\n",
		to);
	for (const struct bench *b = benches; b->name; b++)
		(void)fprintf(to, "  %-12s %s\n", short_name(b), b->line);
	(void)fputs("\n'tenon bench NAME --help' shows options and examples.\n\n"
		    "examples:\n"
		    "  tenon bench model -m smollm2-135m\n"
		    "  tenon bench model -m smollm2-135m --json >figures.json\n",
		to);
	return to == stdout ? CLI_OK : CLI_USAGE;
}

int cmd_bench(int argc, char **argv)
{
	if (argc < 2)
		return help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help(stdout);
	for (const struct bench *b = benches; b->name; b++)
		if (!strcmp(argv[1], short_name(b))) {
			argv[1] = (char *)b->name;
			return b->run(argc - 1, argv + 1);
		}
	return cli_usage("tenon bench", "unknown benchmark '%s'", argv[1]);
}
