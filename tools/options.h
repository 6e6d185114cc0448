/* SPDX-License-Identifier: Apache-2.0
 * Options of a command as a table, for commands that load a model themselves and take no other arguments. The options of
 * open_model.h and --help stand in front of the table's own.
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H
#include "tools/open_model.h"

struct option_row {	  /* exactly one of flag, text and number */
	const char *name; /* without the dashes */
	char letter;	  /* its short form, or 0 */
	bool needed;
	bool *flag;
	const char **text;
	uint64_t *number, lo, hi;
};

enum { OPTION_ROWS = 24 }; /* the most of a table */

/* CLI_OK; CLI_USAGE, and said why; -1 after --help. */
int options_parse(const char *cmd, int argc, char **argv, int help(void), struct open_options *open,
	const struct option_row *rows, size_t n);
#endif
