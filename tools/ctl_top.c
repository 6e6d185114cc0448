/* SPDX-License-Identifier: Apache-2.0
 * tenonctl top: what a daemon does now. One page of text is made of two answers (status, queue) and shown by ncurses each
 * second, or printed once. A line that begins with HEAD is a heading. Single-threaded.
 */
#include "tools/ctl.h"
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 1, BAR_CELLS = 10, REDRAW_MS = 1000, ONCE_ROWS = 50 };

struct top {
	const char *path;
	int timeout_ms;
	char sort;		/* w, a, t, p */
	json_t *status, *queue; /* as last answered; NULL: not yet */
	json_t *before;		/* the status a redraw ago */
	struct error error;	/* why there is no newer answer */
};

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

static double real(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static const json_t *by_name(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(ctl_str(json_array_get(list, i), "name"), name))
			return json_array_get(list, i);
	return NULL;
}

static const json_t *models_of(const json_t *status)
{
	return json_object_get(json_object_get(status, "serving"), "models");
}

static double seconds_between(const struct top *t)
{
	return t->before ? (real(t->status, "uptime_ms") - real(t->before, "uptime_ms")) / 1000 : 0;
}

/* What a counter has grown by since the last redraw. */
static double grown(const json_t *now, const json_t *before, const char *key)
{
	double d = real(now, key) - (before ? real(before, key) : 0);

	return d > 0 ? d : 0;
}

static void set_text(json_t *o, const char *key, const char *text)
{
	(void)json_object_set_new(o, key, json_string(text));
}

static void set_share(json_t *o, const char *key, double part, double whole)
{
	char text[24] = "-";

	if (whole > 0)
		(void)snprintf(text, sizeof text, "%.0f%%", 100 * part / whole);
	set_text(o, key, text);
}

static void set_bar(json_t *o, const char *key, double used, double cached, double total)
{
	char text[BAR_CELLS + 16] = "[";
	int n = total > 0 ? (int)(used / total * BAR_CELLS + 0.5) : 0,
	    m = total > 0 ? (int)((used + cached) / total * BAR_CELLS + 0.5) : 0;

	for (int i = 0; i < BAR_CELLS; i++)
		text[1 + i] = i < n ? '#' : i < m ? '+' : '.';
	(void)snprintf(text + 1 + BAR_CELLS, 15, "] %.0f%%", total > 0 ? 100 * used / total : 0.0);
	set_text(o, key, text);
}

/* ---- parts of the page ------------------------------------------------------------------------------------------------- */

/* A table whose first line is a heading. */
static void put_table(struct buf *out, const json_t *rows, const char *const *columns)
{
	if (!json_array_size(rows))
		return;
	(void)buf_printf(out, "\n%c", HEAD);
	ctl_table(out, rows, columns, "");
}

static void put_daemon(struct buf *out, const struct top *t)
{
	const json_t *s = t->status, *w = json_object_get(s, "worker"), *r = json_object_get(s, "requests"),
		     *b = json_object_get(t->before, "requests"), *about = json_object_get(w, "about");
	double dt = seconds_between(t);
	char up[32];

	(void)buf_printf(out, "%ctenond %s, %s for %s; worker %s", HEAD, ctl_str(s, "version"),
		ctl_str(s, "state"), ctl_time_text(ctl_num(s, "uptime_ms"), up), ctl_str(w, "state"));
	if (about)
		(void)buf_printf(out, ", %s on %s", ctl_str(about, "backend"), ctl_str(about, "device"));
	(void)buf_printf(out, ", %s", ctl_str(w, "doing"));
	(void)buf_printf(out, "\nsessions %lld, requests %lld open, %lld done, %lld failed, %lld cancelled; ",
		ctl_num(json_object_get(s, "sessions"), "open"), ctl_num(r, "open"), ctl_num(r, "done"),
		ctl_num(r, "failed"), ctl_num(r, "cancelled"));
	(void)buf_printf(out, "%lld tokens", ctl_num(r, "tokens"));
	if (dt > 0)
		(void)buf_printf(out, ", %.0f a second", grown(r, b, "tokens") / dt);
	(void)buf_puts(out, "\n");
	if (json_object_get(json_object_get(s, "serving"), "unavailable"))
		(void)buf_printf(out, "%s\n", ctl_str(json_object_get(s, "serving"), "unavailable"));
}

static json_t *model_row(const struct top *t, const json_t *m)
{
	const json_t *b = by_name(models_of(t->before), ctl_str(m, "name")),
		     *cost = json_object_get(m, "cost"), *cost_b = json_object_get(b, "cost"),
		     *prefix = json_object_get(m, "prefix"), *pages = json_object_get(m, "pages");
	double total = 0, used = 0, cached = 0, reused = 0, computed = 0,
	       steps = grown(cost, cost_b, "observed"), dt = seconds_between(t);
	json_t *o = json_pack("{s:s, s:I, s:I}", "name", ctl_str(m, "name"), "running",
		(json_int_t)ctl_num(m, "running"), "waiting", (json_int_t)ctl_num(m, "waiting"));

	for (size_t g = 0; g < json_array_size(pages); g++) {
		const json_t *p = json_array_get(pages, g);

		total += real(p, "total");
		used += real(p, "total") - real(p, "free");
		cached += real(p, "cached");
	}
	cached = cached < total - used ? cached : total - used;
	set_bar(o, "kv", used, cached, total);
	for (int k = 0; k < 2; k++) {
		reused += real(json_object_get(m, k ? "offline" : "online"), "cached_tokens");
		computed += real(json_object_get(m, k ? "offline" : "online"), "prompt_tokens");
	}
	set_share(o, "reused", reused, reused + computed);
	set_share(o, "error", real(cost, "error_mean"), 1);
	if (steps > 0) {
		(void)json_object_set_new(
			o, "measured", json_real(grown(cost, cost_b, "measured_ms") / steps));
		(void)json_object_set_new(
			o, "predicted", json_real(grown(cost, cost_b, "predicted_ms") / steps));
	}
	if (dt > 0)
		(void)json_object_set_new(o, "rate",
			json_integer(
				(json_int_t)((grown(m, b, "decode_tokens") + grown(m, b, "prefill_tokens")) /
					dt)));
	(void)json_object_set(o, "host", json_object_get(prefix, "host_bytes"));
	(void)json_object_set(o, "disk", json_object_get(prefix, "disk_bytes"));
	return o;
}

static void put_models(struct buf *out, const struct top *t)
{
	static const char *const columns[] = { "MODEL:name:s", "RUN:running:n", "WAIT:waiting:n",
		"STEP ms:measured:r", "PREDICTED:predicted:r", "WRONG BY:error:s", "TOK/S:rate:n",
		"KV POOL:kv:s", "REUSED:reused:s", "MEMORY:host:b", "DISK:disk:b", NULL };
	json_t *rows = json_array();

	for (size_t i = 0; i < json_array_size(models_of(t->status)); i++)
		(void)json_array_append_new(rows, model_row(t, json_array_get(models_of(t->status), i)));
	put_table(out, rows, columns);
	json_decref(rows);
}

/* A class, all models together. */
static json_t *class_row(const struct top *t, const char *name)
{
	static const char *const sums[] = { "waiting", "running", "paused", "ended", "refused",
		"deadline_missed", "preempted", "recomputed_tokens", "prompt_tokens", "cached_tokens",
		"n_ttft", "generated_tokens" };
	double ttft_ms = 0, wait_ms = 0, n;
	json_t *o = json_pack("{s:s}", "class", name);

	for (size_t i = 0; i < json_array_size(models_of(t->status)); i++) {
		const json_t *c = json_object_get(json_array_get(models_of(t->status), i), name);

		for (size_t k = 0; k < COUNT_OF(sums); k++)
			(void)json_object_set_new(o, sums[k],
				json_integer((json_int_t)(ctl_num(o, sums[k]) + ctl_num(c, sums[k]))));
		ttft_ms += real(c, "ttft_ms");
		wait_ms += real(c, "wait_ms");
	}
	n = real(o, "n_ttft");
	set_share(o, "reused", real(o, "cached_tokens"), real(o, "cached_tokens") + real(o, "prompt_tokens"));
	if (n > 0) {
		(void)json_object_set_new(o, "ttft", json_integer((json_int_t)(ttft_ms / n)));
		(void)json_object_set_new(o, "wait", json_integer((json_int_t)(wait_ms / n)));
	}
	return o;
}

static void put_classes(struct buf *out, const struct top *t)
{
	static const char *const columns[] = { "CLASS:class:s", "WAIT:waiting:n", "RUN:running:n",
		"PAUSED:paused:n", "WAITED:wait:t", "TTFT:ttft:t", "ENDED:ended:n", "REFUSED:refused:n",
		"LATE:deadline_missed:n", "PREEMPTED:preempted:n", "REUSED:reused:s",
		"NEW TOKENS:generated_tokens:n", NULL };
	json_t *rows;

	if (!json_array_size(models_of(t->status)))
		return;
	rows = json_pack("[o, o]", class_row(t, "online"), class_row(t, "offline"));
	put_table(out, rows, columns);
	json_decref(rows);
}

static void add_tenants(json_t *rows, const json_t *model, double *all)
{
	const json_t *list = json_object_get(model, "tenants");

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *x = json_array_get(list, i);
		json_t *o = (json_t *)(uintptr_t)by_name(rows, ctl_str(x, "name"));

		if (!o) {
			o = json_pack("{s:s, s:O}", "name", ctl_str(x, "name"), "weight",
				json_object_get(x, "weight"));
			(void)json_array_append_new(rows, o);
		}
		(void)json_object_update_new(o,
			json_pack("{s:I, s:I, s:f}", "waiting",
				(json_int_t)(ctl_num(o, "waiting") + ctl_num(x, "waiting")), "running",
				(json_int_t)(ctl_num(o, "running") + ctl_num(x, "running")), "service",
				real(o, "service") + real(x, "service")));
		*all += real(x, "service");
	}
}

static void put_tenants(struct buf *out, const struct top *t)
{
	static const char *const columns[] = { "TENANT:name:s", "WEIGHT:weight:r", "SERVED:share:s",
		"RUN:running:n", "WAIT:waiting:n", NULL };
	json_t *rows = json_array();
	double all = 0;

	for (size_t i = 0; i < json_array_size(models_of(t->status)); i++)
		add_tenants(rows, json_array_get(models_of(t->status), i), &all);
	for (size_t i = 0; i < json_array_size(rows); i++)
		set_share(json_array_get(rows, i), "share", real(json_array_get(rows, i), "service"), all);
	put_table(out, rows, columns);
	json_decref(rows);
}

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

struct order {
	const json_t *row;
	double first, second;
};

static int by_order(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? 1 : -1;
	return x->second < y->second ? 1 : x->second > y->second ? -1 : 0;
}

/* Who waits comes first when sorted by waiting; else the largest value does. */
static struct order order_of(const struct top *t, const json_t *row)
{
	bool waits = !strcmp(ctl_str(row, "state"), "waiting");
	double age = real(row, "age_ms");

	switch (t->sort) {
	case 'a':
		return (struct order){ row, age, 0 };
	case 't':
		return (struct order){ row, real(row, "tokens"), age };
	case 'p':
		return (struct order){ row, real(row, "aged"), age };
	default:
		return (struct order){ row, waits, real(row, "waited_ms") };
	}
}

static void put_requests(struct buf *out, const struct top *t)
{
	static const char *const columns[] = { "REQUEST:name:s", "MODEL:model:s", "TENANT:tenant:s",
		"CLASS:class:s", "PRIO:aged:n", "STATE:state:s", "WAITED:waited_ms:t", "AGE:age_ms:t",
		"TOKENS:tokens:n", "CACHED:cached:n", "WHY IT WAITS:why:s", NULL };
	const json_t *all = json_object_get(t->queue, "requests");
	size_t n = json_array_size(all);
	struct order *o = mem_alloc(MEM_TOOL, MAX_OF(n, (size_t)1) * sizeof *o);
	json_t *rows = json_array();
	char name[48];

	for (size_t i = 0; o && i < n; i++)
		o[i] = order_of(t, json_array_get(all, i));
	if (o)
		qsort(o, n, sizeof *o, by_order);
	for (size_t i = 0; o && i < MIN_OF(n, (size_t)ONCE_ROWS); i++) {
		json_t *row = json_copy((json_t *)(uintptr_t)o[i].row);

		(void)snprintf(name, sizeof name, "%lld:%lld", ctl_num(row, "session"), ctl_num(row, "id"));
		set_text(row, "name", name);
		(void)json_array_append_new(rows, row);
	}
	put_table(out, rows, columns);
	if (n > ONCE_ROWS || ctl_num(t->queue, "omitted"))
		(void)buf_printf(out, "... and %lld more\n",
			(long long)(n > ONCE_ROWS ? n - ONCE_ROWS : 0) + ctl_num(t->queue, "omitted"));
	json_decref(rows);
	mem_free(o);
}

static void put_page(struct buf *out, const struct top *t)
{
	if (t->error.code)
		(void)buf_printf(out, "%c%s\n", HEAD, t->error.text);
	if (!t->status)
		return;
	put_daemon(out, t);
	put_models(out, t);
	put_classes(out, t);
	put_tenants(out, t);
	put_requests(out, t);
}

/* ---- asking and showing -------------------------------------------------------------------------------------------------- */

static int ask(struct top *t, const char *cmd, json_t **out)
{
	json_t *q = json_pack("{s:s}", "cmd", cmd);
	int rc = ctl_ask(t->path, q, t->timeout_ms, out, &t->error);

	json_decref(q);
	return rc;
}

/* What was known stays on the screen when nobody answers. */
static int refresh_answers(struct top *t)
{
	json_t *status = NULL, *queue = NULL;
	int rc;

	t->error = (struct error){ 0 };
	rc = ask(t, "status", &status);
	if (!rc)
		rc = ask(t, "queue", &queue);
	if (rc) {
		json_decref(status);
		return rc;
	}
	json_decref(t->before);
	json_decref(t->queue);
	t->before = t->status;
	t->status = status;
	t->queue = queue;
	return TENON_OK;
}

static int print_once(struct top *t)
{
	int rc = refresh_answers(t);
	struct buf page;

	if (rc) {
		(void)fprintf(stderr, "tenonctl: %s\n", t->error.text);
		return 1;
	}
	buf_init(&page, MEM_TOOL, 0);
	put_page(&page, t);
	for (size_t i = 0; i < page.len; i++)
		if (page.data[i] != HEAD)
			(void)putchar(page.data[i]);
	buf_finish(&page);
	return 0;
}

static void draw(const struct top *t)
{
	struct buf page;
	int row = 0;

	buf_init(&page, MEM_TOOL, 0);
	put_page(&page, t);
	(void)erase();
	for (size_t at = 0; at < page.len && row < LINES - 1; row++) {
		const char *line = page.data + at, *end = memchr(line, '\n', page.len - at);
		size_t len = end ? (size_t)(end - line) : page.len - at;
		bool head = len && line[0] == HEAD;

		at += len + 1;
		(void)(head ? attron(A_BOLD) : attroff(A_BOLD));
		(void)mvaddnstr(row, 0, line + head, (int)MIN_OF(len - head, (size_t)COLS));
	}
	(void)attroff(A_BOLD);
	(void)attron(A_REVERSE);
	(void)mvaddnstr(
		LINES - 1, 0, "q quit   sort requests by: w waiting  a age  t tokens  p priority ", COLS);
	(void)attroff(A_REVERSE);
	(void)refresh();
	buf_finish(&page);
}

static int watch(struct top *t)
{
	int key = 0;

	(void)cbreak();
	(void)noecho();
	(void)keypad(stdscr, TRUE);
	(void)curs_set(0);
	timeout(REDRAW_MS);
	while (key != 'q' && key != 'Q') {
		if (key == 'w' || key == 'a' || key == 't' || key == 'p')
			t->sort = (char)key;
		else
			(void)refresh_answers(t);
		draw(t);
		key = getch();
	}
	return 0;
}

int ctl_top(const char *path, int timeout_ms, bool once)
{
	struct top t = { .path = path, .timeout_ms = timeout_ms, .sort = 'w' };
	SCREEN *screen = NULL;
	int status;

	(void)setlocale(LC_ALL, "");
	if (!once && ctl_terminal_known())
		screen = newterm(NULL, stdout, stdin);
	status = screen ? watch(&t) : print_once(&t);
	if (screen) {
		(void)endwin();
		delscreen(screen);
	}
	json_decref(t.status);
	json_decref(t.before);
	json_decref(t.queue);
	return status;
}
