/* SPDX-License-Identifier: Apache-2.0
 * cli.h: messages, options, models, progress. The --jsonl loops stand in cli_jsonl.c.
 */
#include "tools/cli.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *fmt, va_list ap)
{
	(void)fputs("tenon: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
}

int cli_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	return CLI_FAILED;
}

int cli_fail_error(const char *what, const struct error *e) { return cli_fail("%s: %s", what, e->text); }

int cli_usage(const char *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, " (see '%s --help')\n", cmd);
	return CLI_USAGE;
}

int cli_getopt(const char *cmd, int argc, char **argv, const char *shorts, const struct option *longs)
{
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, shorts, longs, NULL);
	if (c == ':')
		(void)cli_usage(cmd, "option '%s': a value is missing", argv[optind - 1]);
	else if (c == '?' && optopt > 0 && optopt < 128)
		(void)cli_usage(cmd, "option '-%c': unknown", optopt);
	else if (c == '?')
		(void)cli_usage(cmd, "option '%s': unknown", argv[optind - 1]);
	return c == ':' ? '?' : c;
}

bool cli_parse_u64(const char *cmd, const char *opt, const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
	char *end = NULL;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || !*text || *end || strchr(text, '-') || v < lo || v > hi) {
		(void)cli_usage(cmd, "%s: '%s' is not a number from %llu to %llu", opt, text, (unsigned long long)lo,
			(unsigned long long)hi);
		return false;
	}
	*out = v;
	return true;
}

static bool model_dir(char *dir, size_t room)
{
	const char *own = getenv("TENON_MODELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (own && *own)
		return (size_t)snprintf(dir, room, "%s", own) < room;
	if (cache && *cache)
		return (size_t)snprintf(dir, room, "%s/tenon/models", cache) < room;
	return (size_t)snprintf(dir, room, "%s/.cache/tenon/models", home && *home ? home : "") < room;
}

int cli_model_path(const char *name, char *path, size_t room, struct error *e)
{
	char dir[3072];
	int n = -1;

	if (strchr(name, '/') || !access(name, F_OK))
		n = snprintf(path, room, "%s", name);
	else if (model_dir(dir, sizeof dir))
		n = snprintf(path, room, "%s/%s.gguf", dir, name);
	if (n < 0 || (size_t)n >= room)
		return error_set(e, TENON_E_TOO_LONG, "model '%.64s': the path is too long", name);
	if (access(path, R_OK))
		return error_errno(e, TENON_E_NOT_FOUND, errno,
			"model '%.64s': no such file, nor fetched yet (scripts/fetch-model --list shows names)", name);
	return TENON_OK;
}

int cli_check_output(const char *out, const char *in, struct error *e)
{
	struct stat a, b;

	if (!in || !strcmp(in, "-") || stat(out, &a) || stat(in, &b) || a.st_dev != b.st_dev ||
		a.st_ino != b.st_ino)
		return TENON_OK;
	return error_set(e, TENON_E_INVALID,
		"'%.128s': is the source itself ('%.128s'); name another output", out, in);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char *cli_hex_decode(const char *hex, size_t *len)
{
	size_t n = strlen(hex);
	char *out = n % 2 ? NULL : mem_alloc(MEM_TOOL, n / 2 + 1);

	if (!out)
		return NULL;
	for (size_t i = 0; i < n / 2; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

		if (hi < 0 || lo < 0) {
			mem_free(out);
			return NULL;
		}
		out[i] = (char)(hi << 4 | lo);
	}
	out[n / 2] = 0;
	*len = n / 2;
	return out;
}

bool cli_hex_encode(const void *data, size_t len, struct buf *out)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	if (!buf_reserve(out, 2 * len))
		return false;
	for (size_t i = 0; i < len; i++) {
		(void)buf_putc(out, digits[p[i] >> 4]);
		(void)buf_putc(out, digits[p[i] & 15]);
	}
	return !out->failed;
}

void cli_progress(const char *what, double share)
{
	if (isatty(STDERR_FILENO))
		(void)fprintf(stderr, "\r%s: %3.0f %%", what, 100 * share);
}

void cli_progress_end(void)
{
	if (isatty(STDERR_FILENO))
		(void)fputs("\r\033[K", stderr);
}
