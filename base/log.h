/* SPDX-License-Identifier: Apache-2.0
 * Structured log: one line a record, text or JSON, with level, topic and key=value fields. Never prompts or
 * answers. A process opens one log in main and passes it down; library code returns errors and does not log.
 * [any thread]: a record is formatted on the caller's stack and written with one write(2); a full or broken
 * sink drops the record and counts it, the caller never waits on a lock.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE, LOG_N_LEVELS };
enum log_format { LOG_TEXT, LOG_JSON };

struct log;

/* `fd` is borrowed and stays open. NULL when out of memory. */
struct log *log_create(int fd, enum log_format format, enum log_level level);
void log_destroy(struct log *l);
void log_set_level(struct log *l, enum log_level level); /* [any thread] */
enum log_level log_get_level(const struct log *l);
bool log_level_parse(const char *name, enum log_level *out); /* "error" .. "trace" */
const char *log_level_name(enum log_level level);
uint64_t log_n_dropped(const struct log *l);

/* `l` may be NULL (nothing is written). `topic` is a short constant such as "worker". */
void log_write(struct log *l, enum log_level level, const char *topic, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#endif
