/* SPDX-License-Identifier: Apache-2.0
 * options.h.
 */
#include "tools/options.h"
#include "base/base.h"
#include <string.h>

enum { FIRST_VALUE = 0x300, SHARED_LONGS = 16 };

/* getopt's two tables: long names, whose value is FIRST_VALUE and the row, and letters. */
struct tables {
	struct option longs[SHARED_LONGS + OPTION_ROWS + 2];
	char shorts[8 + 2 * OPTION_ROWS];
};

static void tables_make(struct tables *t, const struct option_row *rows, size_t n)
{
	static const struct option shared[] = { OPEN_MODEL_LONGS, { "help", no_argument, NULL, 'h' } };
	size_t at = COUNT_OF(shared), len = 4;

	_Static_assert(COUNT_OF(shared) <= SHARED_LONGS, "room for the shared options");
	memset(t, 0, sizeof *t);
	memcpy(t->longs, shared, sizeof shared);
	memcpy(t->shorts, ":m:h", len);
	for (size_t i = 0; i < n; i++) {
		int takes = rows[i].flag ? no_argument : required_argument;

		t->longs[at++] = (struct option){ rows[i].name, takes, NULL, FIRST_VALUE + (int)i };
		if (!rows[i].letter)
			continue;
		t->shorts[len++] = rows[i].letter;
		if (takes == required_argument)
			t->shorts[len++] = ':';
	}
}

static const struct option_row *row_find(const struct option_row *rows, size_t n, int c)
{
	if (c >= FIRST_VALUE)
		return &rows[c - FIRST_VALUE];
	for (size_t i = 0; i < n; i++)
		if (rows[i].letter == c)
			return &rows[i];
	return NULL;
}

static bool row_take(const char *cmd, const struct option_row *r, const char *arg)
{
	char name[64];

	if (r->flag)
		return *r->flag = true;
	if (r->text)
		return *r->text = arg, true;
	(void)snprintf(name, sizeof name, "--%s", r->name);
	return cli_parse_u64(cmd, name, arg, r->lo, r->hi, r->number);
}

static int check_needed(
	const char *cmd, const struct open_options *open, const struct option_row *rows, size_t n)
{
	if (!open->model)
		return cli_usage(cmd, "-m is missing");
	for (size_t i = 0; i < n; i++)
		if (rows[i].needed && !(rows[i].flag ? *rows[i].flag : *rows[i].text != NULL))
			return rows[i].letter ? cli_usage(cmd, "-%c is missing", rows[i].letter)
					      : cli_usage(cmd, "--%s is missing", rows[i].name);
	return CLI_OK;
}

int options_parse(const char *cmd, int argc, char **argv, int help(void), struct open_options *open,
	const struct option_row *rows, size_t n)
{
	struct tables t;
	int c;

	tables_make(&t, rows, MIN_OF(n, (size_t)OPTION_ROWS));
	while ((c = cli_getopt(cmd, argc, argv, t.shorts, t.longs)) != -1) {
		int taken = c == '?' ? -1 : open_model_option(cmd, c, optarg, open);

		if (c == 'h')
			return help() - 1;
		if (taken < 0 || (!taken && !row_take(cmd, row_find(rows, n, c), optarg)))
			return CLI_USAGE;
	}
	return optind < argc ? cli_usage(cmd, "unexpected argument '%s'", argv[optind])
			     : check_needed(cmd, open, rows, n);
}
