/* SPDX-License-Identifier: Apache-2.0
 * cli.h: JSON in and out, one object a line.
 */
#include "tools/cli.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a character at which Unicode-minded readers would cut a line, and its number; else 0. */
static size_t line_separator(const char *s, size_t len, unsigned *cp)
{
	if (len >= 2 && !memcmp(s, "\xc2\x85", 2))
		return *cp = 0x85, 2;
	if (len >= 3 && (!memcmp(s, "\xe2\x80\xa8", 3) || !memcmp(s, "\xe2\x80\xa9", 3)))
		return *cp = 0x2000u + ((uint8_t)s[2] & 0x3f), 3;
	return 0;
}

void cli_json_string(struct buf *out, const char *s, size_t len)
{
	unsigned cp;
	size_t n;

	(void)buf_putc(out, '"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			(void)buf_printf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			(void)buf_printf(out, "\\u%04x", c);
		else if ((n = line_separator(s + i, len - i, &cp))) {
			(void)buf_printf(out, "\\u%04x", cp);
			i += n - 1;
		} else
			(void)buf_putc(out, (char)c);
	}
	(void)buf_putc(out, '"');
}

json_t *cli_json_error(const struct error *e)
{
	return json_pack("{s:s, s:s}", "code", error_name(e->code), "message", e->text);
}

void cli_print_json(json_t *obj)
{
	(void)json_dumpf(obj, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
	(void)fputc('\n', stdout);
	json_decref(obj);
}

static void flush_if_idle(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	if (poll(&p, 1, 0) <= 0)
		(void)fflush(stdout);
}

int cli_jsonl_raw(cli_line_fn *fn, void *ctx)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	struct buf out;
	bool failed = false;

	buf_init(&out, MEM_TOOL, 0);
	while ((len = getline(&line, &room, stdin)) >= 0) {
		while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
			line[--len] = 0;
		if (!len)
			continue;
		buf_clear(&out);
		failed |= !fn(ctx, line, (size_t)len, &out);
		(void)fwrite(out.data ? out.data : "", 1, out.len, stdout);
		(void)fputc('\n', stdout);
		flush_if_idle();
	}
	free(line);
	buf_finish(&out);
	return fflush(stdout) || failed ? CLI_FAILED : CLI_OK;
}

struct jsonl {
	cli_entry_fn *fn;
	void *ctx;
};

static bool jsonl_entry(void *ctx, const char *line, size_t len, struct buf *out)
{
	struct jsonl *j = ctx;
	struct error e = { 0 };
	json_error_t je;
	json_t *in = json_loadb(line, len, JSON_ALLOW_NUL, &je), *id = json_object_get(in, "id"), *body = json_object();
	json_t *res = json_object();
	char *text;
	int rc;

	if (!json_is_object(in))
		rc = error_set(&e, TENON_E_FORMAT, "not a JSON object: %.100s", in ? "another kind of value" : je.text);
	else
		rc = j->fn(j->ctx, in, line, len, body, &e);
	(void)json_object_set_new(res, "id", id ? json_incref(id) : json_null());
	if (rc)
		(void)json_object_set_new(res, "error", cli_json_error(&e));
	else
		(void)json_object_update(res, body);
	text = json_dumps(res, JSON_COMPACT | JSON_REAL_PRECISION(9));
	(void)buf_puts(out, text ? text : "{\"id\":null,\"error\":{\"code\":\"no_memory\",\"message\":\"\"}}");
	free(text);
	json_decref(in);
	json_decref(body);
	json_decref(res);
	return !rc;
}

int cli_jsonl(cli_entry_fn *fn, void *ctx)
{
	struct jsonl j = { .fn = fn, .ctx = ctx };

	return cli_jsonl_raw(jsonl_entry, &j);
}

int cli_json_ids(const json_t *arr, int32_t **ids, size_t *n, struct error *e)
{
	size_t count = json_array_size(arr);
	int32_t *out;

	if (!json_is_array(arr))
		return error_set(e, TENON_E_INVALID, "ids: expected an array of token ids");
	out = mem_zalloc(MEM_TOOL, count ? count : 1, sizeof *out);
	if (!out)
		return error_set(e, TENON_E_NOMEM, "ids: %zu ids do not fit into memory", count);
	for (size_t i = 0; i < count; i++) {
		const json_t *v = json_array_get(arr, i);

		if (!json_is_integer(v) || json_integer_value(v) < INT32_MIN || json_integer_value(v) > INT32_MAX) {
			mem_free(out);
			return error_set(e, TENON_E_INVALID, "ids[%zu]: not a token id", i);
		}
		out[i] = (int32_t)json_integer_value(v);
	}
	*ids = out;
	*n = count;
	return TENON_OK;
}
