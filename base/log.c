/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/clock.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048, TEXT_MAX_BYTES = 1024 };

struct log {
	int fd;
	enum log_format format;
	_Atomic int level;
	_Atomic uint64_t dropped;
};

static const char *const level_names[LOG_N_LEVELS] = { "error", "warn", "info", "debug", "trace" };

struct log *log_create(int fd, enum log_format format, enum log_level level)
{
	struct log *l = mem_zalloc(MEM_BASE, 1, sizeof *l);

	if (!l)
		return NULL;
	l->fd = fd;
	l->format = format;
	atomic_init(&l->level, (int)level);
	return l;
}

void log_destroy(struct log *l) { mem_free(l); }
void log_set_level(struct log *l, enum log_level level) { atomic_store_explicit(&l->level, (int)level, memory_order_relaxed); }
enum log_level log_get_level(const struct log *l) { return (enum log_level)atomic_load_explicit(&l->level, memory_order_relaxed); }
uint64_t log_n_dropped(const struct log *l) { return atomic_load_explicit(&l->dropped, memory_order_relaxed); }
const char *log_level_name(enum log_level level) { return (unsigned)level < LOG_N_LEVELS ? level_names[level] : "unknown"; }

bool log_level_parse(const char *name, enum log_level *out)
{
	for (int i = 0; i < LOG_N_LEVELS; i++)
		if (!strcmp(name, level_names[i])) {
			*out = (enum log_level)i;
			return true;
		}
	return false;
}

/* Escapes for a JSON string; control characters become \u00XX, so that a line stays a line. */
static size_t escape(char *out, size_t room, const char *s)
{
	size_t n = 0;

	for (; *s && n + 7 < room; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < 0x20) {
			n += (size_t)snprintf(out + n, room - n, "\\u%04x", c);
		} else {
			out[n++] = (char)c;
		}
	}
	out[n] = 0;
	return n;
}

static size_t stamp(char *out, size_t room)
{
	uint64_t now = clock_wall_ns();
	time_t s = (time_t)(now / NS_PER_S);
	struct tm tm;
	size_t n;

	(void)gmtime_r(&s, &tm);
	n = strftime(out, room, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(out + n, room - n, ".%03uZ", (unsigned)(now % NS_PER_S / NS_PER_MS));
}

void log_write(struct log *l, enum log_level level, const char *topic, const char *fmt, ...)
{
	char text[TEXT_MAX_BYTES], esc[LINE_MAX_BYTES - 256], when[40], line[LINE_MAX_BYTES];
	va_list ap;
	int n;

	if (!l || (int)level > atomic_load_explicit(&l->level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	(void)stamp(when, sizeof when);
	(void)escape(esc, sizeof esc, text);
	if (l->format == LOG_JSON)
		n = snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"%s\",\"topic\":\"%s\",\"pid\":%d,\"text\":\"%s\"}\n",
			when, log_level_name(level), topic, (int)getpid(), esc);
	else
		n = snprintf(line, sizeof line, "%s %-5s %-8s %s\n", when, log_level_name(level), topic, esc);
	if (n >= (int)sizeof line)
		n = (int)sizeof line - 1;
	if (n < 0 || write(l->fd, line, (size_t)n) != n)
		atomic_fetch_add_explicit(&l->dropped, 1, memory_order_relaxed);
}
