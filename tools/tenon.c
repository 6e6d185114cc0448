/* SPDX-License-Identifier: Apache-2.0
 * tenon: the user's command. Picks the command from commands.def and hands it the rest of the line.
 */
#include "tools/cli.h"
#include "tools/commands.h"
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *line;
} commands[] = {
#define X(name, fn, line) { name, fn, line },
#include "tools/commands.def"
#undef X
	{ NULL, NULL, NULL }
};

static int help(FILE *to)
{
	(void)fputs("usage: tenon COMMAND [OPTION]...\n\nLocal language models: ask a running tenond, or work on a model file.\n\n", to);
	for (const struct command *c = commands; c->name; c++)
		(void)fprintf(to, "  %-12s %s\n", c->name, c->line);
	(void)fputs("\n'tenon COMMAND --help' shows options and examples.\n\n"
		    "examples:\n"
		    "  tenon run -m smollm2-135m \"Why is the sky blue?\"\n"
		    "  tenon tokenize -m smollm2-135m \"Hello, world\"\n", to);
	return to == stdout ? CLI_OK : CLI_USAGE;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(stdout);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))
		return puts("tenon " PACKAGE_VERSION) < 0 ? CLI_FAILED : CLI_OK;
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(argv[1], c->name))
			return c->run(argc - 1, argv + 1);
	return cli_usage("tenon", "unknown command '%s'", argv[1]);
}
