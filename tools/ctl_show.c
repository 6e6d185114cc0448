/* SPDX-License-Identifier: Apache-2.0
 * ctl.h: answers of the daemon as tables. A member that is not there prints as "-".
 */
#include "tools/ctl.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CELL_BYTES = 96, COLUMNS_MAX = 12, ROWS_MAX = 256 };

struct table {
	size_t n_columns, n_rows;
	size_t width[COLUMNS_MAX];
	char cell[ROWS_MAX][COLUMNS_MAX][CELL_BYTES]; /* row 0: heads */
};

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s && *s ? s : "-";
}

static long long num(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* "12.3 MiB" */
static const char *bytes_text(long long n, char out[32])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)n;
	size_t u = 0;

	for (; v >= 1024 && u + 1 < COUNT_OF(units); u++)
		v /= 1024;
	(void)snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
	return out;
}

static const char *time_text(long long ms, char out[32])
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

/* ---- tables: columns "HEAD:key:kind", kind s(tring), n(umber), b(ytes), t(ime in ms), f(lag) ---------------------------- */

static void fill_cell(char *out, const json_t *o, const char *key, char kind)
{
	const json_t *v = json_object_get(o, key);
	char text[32];

	if (!v || json_is_null(v))
		(void)snprintf(out, CELL_BYTES, "-");
	else if (kind == 's')
		(void)snprintf(out, CELL_BYTES, "%s", str(o, key));
	else if (kind == 'b')
		(void)snprintf(out, CELL_BYTES, "%s", bytes_text(json_integer_value(v), text));
	else if (kind == 't')
		(void)snprintf(out, CELL_BYTES, "%s", time_text(json_integer_value(v), text));
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

static void print_row(const struct table *t, size_t row, const char *kinds)
{
	for (size_t c = 0; c < t->n_columns; c++) {
		bool left = kinds[c] == 's' || kinds[c] == 'f', last = c + 1 == t->n_columns;

		if (left)
			(void)printf(
				"%-*s%s", last ? 0 : (int)t->width[c], t->cell[row][c], last ? "\n" : "  ");
		else
			(void)printf("%*s%s", (int)t->width[c], t->cell[row][c], last ? "\n" : "  ");
	}
}

static void show_table(const json_t *rows, const char *const *columns, const char *none)
{
	struct table *t = mem_zalloc(MEM_TOOL, 1, sizeof *t);
	char key[COLUMNS_MAX][32], kinds[COLUMNS_MAX];

	if (!t)
		return;
	for (; columns[t->n_columns]; t->n_columns++)
		split(columns[t->n_columns], t->cell[0][t->n_columns], key[t->n_columns],
			&kinds[t->n_columns]);
	for (size_t r = 0; r < json_array_size(rows) && r + 1 < ROWS_MAX; r++, t->n_rows++)
		for (size_t c = 0; c < t->n_columns; c++)
			fill_cell(t->cell[r + 1][c], json_array_get(rows, r), key[c], kinds[c]);
	for (size_t r = 0; r <= t->n_rows; r++)
		for (size_t c = 0; c < t->n_columns; c++)
			t->width[c] = MAX_OF(t->width[c], strlen(t->cell[r][c]));
	for (size_t r = 0; r <= t->n_rows && t->n_rows; r++)
		print_row(t, r, kinds);
	if (!t->n_rows)
		(void)puts(none);
	mem_free(t);
}

/* ---- commands ---------------------------------------------------------------------------------------------------------------- */

void ctl_show_models(const json_t *a)
{
	static const char *const columns[] = { "NAME:name:s", "STATE:state:s", "REQUESTS:requests:n",
		"PRECISION:precision:s", "KV:kv:s", "LOADS:loads:n", "LOAD:load_ms:t", "IDLE:idle_ms:t",
		"DEATHS:deaths:n", "LAST ERROR:last_error:s", NULL };

	show_table(json_object_get(a, "models"), columns,
		"no models; name one in tenond.conf, or put NAME.gguf into the model folder");
}

static void show_worker(const json_t *w)
{
	(void)printf("worker      %s (%s, pid %lld), %s", str(w, "state"), str(w, "isolation"), num(w, "pid"),
		str(w, "doing"));
	if (json_object_get(w, "model"))
		(void)printf(" %s", str(w, "model"));
	(void)printf("; %lld steps, %lld running, %lld waiting; %lld starts, %lld deaths\n", num(w, "steps"),
		num(w, "running"), num(w, "waiting"), num(w, "starts"), num(w, "deaths"));
	if (json_object_get(w, "about"))
		(void)printf("backend     %s on %s\n", str(json_object_get(w, "about"), "backend"),
			str(json_object_get(w, "about"), "device"));
	if (json_object_get(w, "last_death"))
		(void)printf("last death  %s\n", str(w, "last_death"));
}

void ctl_show_status(const json_t *a)
{
	const json_t *s = json_object_get(a, "sessions"), *r = json_object_get(a, "requests");
	char up[32], shared[32];

	(void)printf("tenond %s, pid %lld, %s for %s, at %s\n", str(a, "version"), num(a, "pid"),
		str(a, "state"), time_text(num(a, "uptime_ms"), up), str(a, "socket"));
	(void)printf(
		"sessions    %lld open (%s shared), %lld so far, %lld refused, %lld broke the protocol\n",
		num(s, "open"), bytes_text(num(s, "shared_bytes"), shared), num(s, "attached"),
		num(s, "refused"), num(s, "violations"));
	(void)printf(
		"requests    %lld open, %lld done, %lld failed, %lld cancelled, %lld replayed; %lld tokens, first after %.1f ms on average\n",
		num(r, "open"), num(r, "done"), num(r, "failed"), num(r, "cancelled"), num(r, "replays"),
		num(r, "tokens"), json_real_value(json_object_get(r, "ttft_ms_mean")));
	show_worker(json_object_get(a, "worker"));
	(void)puts("");
	ctl_show_models(a);
}

void ctl_show_backends(const json_t *a)
{
	static const char *const columns[] = { "NAME:name:s", "STATE:state:s", "VERSION:version:s",
		"VARIANT:variant:s", "VENDOR:vendor:s", "REASON:reason:s", NULL };
	static const char *const devices[] = { "DEVICE:name:s", "ISA:isa:s", "MEMORY:memory:b", NULL };
	const json_t *all = json_object_get(a, "backends");

	show_table(all, columns, "no backends");
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *b = json_array_get(all, i);

		if (!json_array_size(json_object_get(b, "devices")))
			continue;
		(void)printf("\n%s%s\n", str(b, "name"),
			strcmp(str(b, "name"), str(a, "in_use")) ? "" : " (in use)");
		show_table(json_object_get(b, "devices"), devices, "");
	}
}

void ctl_show_sessions(const json_t *a)
{
	static const char *const columns[] = { "SESSION:session:n", "UID:uid:n", "PID:pid:n", "AGE:age_ms:t",
		"OPEN:open:n", "REQUESTS:requests:n", "TOKENS:tokens:n", "BACKLOG:backlog_bytes:b",
		"PAUSED:paused:f", "BELL:bell:s", NULL };

	show_table(json_object_get(a, "sessions"), columns, "no sessions");
	if (num(a, "omitted"))
		(void)printf("... and %lld more\n", num(a, "omitted"));
}

void ctl_show_queue(const json_t *a)
{
	static const char *const columns[] = { "SESSION:session:n", "ID:id:n", "MODEL:model:s",
		"STATE:state:s", "CLASS:class:s", "PROMPT:prompt_bytes:b", "TOKENS:tokens:n", "AGE:age_ms:t",
		"PAUSED:paused:f", "REPLAYED:replayed:n", NULL };
	static const char *const models[] = { "MODEL:name:s", "WAITING:waiting:n", "RUNNING:running:n",
		"PAUSED:paused:n", "STEPS:steps:n", "PREFILL:prefill_tokens:n", "DECODE:decode_tokens:n",
		NULL };
	const json_t *worker = json_object_get(a, "worker");

	show_table(json_object_get(a, "requests"), columns, "no requests");
	if (json_object_get(worker, "unavailable"))
		(void)printf("\nworker: %s\n", str(worker, "unavailable"));
	else if (json_array_size(json_object_get(worker, "models")))
		(void)puts("");
	if (json_array_size(json_object_get(worker, "models")))
		show_table(json_object_get(worker, "models"), models, "");
}

static void show_areas(const char *who, const json_t *m)
{
	const json_t *areas = json_object_get(m, "areas"), *v;
	const char *key;
	char text[32];

	if (!areas) {
		(void)printf("%-10s %s\n", who, str(m, "unavailable"));
		return;
	}
	(void)printf("%-10s %s resident\n", who, bytes_text(num(m, "resident"), text));
	json_object_foreach((json_t *)(uintptr_t)areas, key, v) if (json_integer_value(v))(void)
		printf("  %-12s %12s\n", key, bytes_text(json_integer_value(v), text));
}

void ctl_show_memory(const json_t *a)
{
	static const char *const parts[] = { "weights_mapped", "weights_own", "workspace", "kv" };
	const json_t *models = json_object_get(a, "models"), *m;
	const char *name;
	char text[32];

	show_areas("daemon", json_object_get(a, "daemon"));
	if (!json_is_true(json_object_get(a, "one_process")))
		show_areas("worker", json_object_get(a, "worker"));
	(void)printf("%-10s %s\n", "sessions",
		bytes_text(num(json_object_get(a, "daemon"), "sessions_shared"), text));
	json_object_foreach((json_t *)(uintptr_t)models, name, m)
	{
		(void)printf("model %s\n", name);
		for (size_t i = 0; i < COUNT_OF(parts); i++)
			(void)printf("  %-14s %10s\n", parts[i], bytes_text(num(m, parts[i]), text));
	}
}

void ctl_show_pairs(const json_t *a)
{
	const json_t *v;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)a, key, v)
	{
		if (json_is_string(v))
			(void)printf("%s: %s\n", key, json_string_value(v));
		else if (json_is_integer(v))
			(void)printf("%s: %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(v));
	}
}
