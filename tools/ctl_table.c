/* SPDX-License-Identifier: Apache-2.0
 * ctl.h: rows of JSON objects as a table of text, and numbers for people. A member that is not there prints as "-".
 */
#include "tools/ctl.h"
#include <stdio.h>
#include <string.h>

enum { CELL_BYTES = 160, COLUMNS_MAX = 16, ROWS_MAX = 1024 };

struct table {
	size_t n_columns, n_rows;
	size_t width[COLUMNS_MAX];
	char (*cell)[COLUMNS_MAX][CELL_BYTES]; /* [n_rows + 1]; row 0: heads */
};

const char *ctl_str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s && *s ? s : "-";
}

long long ctl_num(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* "12.3 MiB" */
const char *ctl_bytes_text(long long n, char out[32])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)n;
	size_t u = 0;

	for (; v >= 1024 && u + 1 < COUNT_OF(units); u++)
		v /= 1024;
	(void)snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
	return out;
}

const char *ctl_time_text(long long ms, char out[32])
{
	long long s = ms / 1000;

	if (s < 60)
		(void)snprintf(out, 32, "%.1f s", (double)ms / 1000);
	else if (s < 3600)
		(void)snprintf(out, 32, "%lld min %lld s", s / 60, s % 60);
	else
		(void)snprintf(out, 32, "%lld h %lld min", s / 3600, s / 60 % 60);
	return out;
}

/* ---- tables: columns "HEAD:key:kind", kind s(tring), n(umber), b(ytes), t(ime in ms), r(eal), f(lag) ---------------------------- */

static void fill_cell(char *out, const json_t *o, const char *key, char kind)
{
	const json_t *v = json_object_get(o, key);
	char text[32];

	if (!v || json_is_null(v))
		(void)snprintf(out, CELL_BYTES, "-");
	else if (kind == 's')
		(void)snprintf(out, CELL_BYTES, "%s", ctl_str(o, key));
	else if (kind == 'b')
		(void)snprintf(out, CELL_BYTES, "%s", ctl_bytes_text(json_integer_value(v), text));
	else if (kind == 't')
		(void)snprintf(out, CELL_BYTES, "%s", ctl_time_text(json_integer_value(v), text));
	else if (kind == 'r')
		(void)snprintf(out, CELL_BYTES, "%.2f", json_number_value(v));
	else if (kind == 'f')
		(void)snprintf(out, CELL_BYTES, "%s", json_is_true(v) ? "yes" : "no");
	else
		(void)snprintf(out, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
}

static void split(const char *column, char head[32], char key[32], char *kind)
{
	const char *a = strchr(column, ':'), *b = a ? strchr(a + 1, ':') : NULL;

	(void)snprintf(head, 32, "%.*s", (int)(a - column), column);
	(void)snprintf(key, 32, "%.*s", (int)(b - a - 1), a + 1);
	*kind = b[1];
}

static void put_row(struct buf *out, const struct table *t, size_t row, const char *kinds)
{
	for (size_t c = 0; c < t->n_columns; c++) {
		bool left = kinds[c] == 's' || kinds[c] == 'f', last = c + 1 == t->n_columns;

		if (left)
			(void)buf_printf(out, "%-*s%s", last ? 0 : (int)t->width[c], t->cell[row][c],
				last ? "\n" : "  ");
		else
			(void)buf_printf(out, "%*s%s", (int)t->width[c], t->cell[row][c], last ? "\n" : "  ");
	}
}

void ctl_table(struct buf *out, const json_t *rows, const char *const *columns, const char *none)
{
	struct table t = { .n_rows = MIN_OF(json_array_size(rows), (size_t)ROWS_MAX) };
	char key[COLUMNS_MAX][32], kinds[COLUMNS_MAX];

	t.cell = t.n_rows ? mem_zalloc(MEM_TOOL, t.n_rows + 1, sizeof *t.cell) : NULL;
	if (!t.cell) {
		(void)buf_printf(out, "%s\n", none);
		return;
	}
	for (; columns[t.n_columns]; t.n_columns++)
		split(columns[t.n_columns], t.cell[0][t.n_columns], key[t.n_columns], &kinds[t.n_columns]);
	for (size_t r = 0; r < t.n_rows; r++)
		for (size_t c = 0; c < t.n_columns; c++)
			fill_cell(t.cell[r + 1][c], json_array_get(rows, r), key[c], kinds[c]);
	for (size_t r = 0; r <= t.n_rows; r++)
		for (size_t c = 0; c < t.n_columns; c++)
			t.width[c] = MAX_OF(t.width[c], strlen(t.cell[r][c]));
	for (size_t r = 0; r <= t.n_rows; r++)
		put_row(out, &t, r, kinds);
	mem_free(t.cell);
}
