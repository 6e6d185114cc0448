/* SPDX-License-Identifier: Apache-2.0
 * What the commands of `tenon` and `tenonctl` share: messages, exit codes, help, --jsonl loops, where models lie.
 * The contract towards scripts is docs/cli.md. Single-threaded unless a function says otherwise.
 */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H
#include "base/base.h"
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Prints "tenon: <text>\n" to stderr; returns CLI_FAILED. */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_fail_error(const char *what, const struct error *e); /* "tenon: what: text" */
/* The same with " (see 'CMD --help')"; returns CLI_USAGE. */
int cli_usage(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* getopt_long without its own messages (let `shorts` begin with ':'): returns the option, -1 at the end, or '?'
 * after having printed the usage error (then return CLI_USAGE). */
int cli_getopt(const char *cmd, int argc, char **argv, const char *shorts, const struct option *longs);

/* Parses a number in [lo, hi]; false after printing a usage error that names `opt`. */
bool cli_parse_u64(const char *cmd, const char *opt, const char *text, uint64_t lo, uint64_t hi, uint64_t *out);

/* -m: a path that exists (or contains '/'), else NAME.gguf in $TENON_MODELS, else in
 * ${XDG_CACHE_HOME:-$HOME/.cache}/tenon/models. NOT_FOUND tells which command fetches it. */
int cli_model_path(const char *name, char *path, size_t room, struct error *e);

/* INVALID when the file to write is, through whatever name, the file `in` that is read ("-" and NULL: none). */
int cli_check_output(const char *out, const char *in, struct error *e);

/* ---- --jsonl: one JSON object a line from stdin, one a line to stdout, same order, same id ---- */

/* Called for each entry. Fill `out` (an empty object; "id" is added by the loop); or fail with a code and text,
 * which become {"id","error":{"code","message"}}. `line` is the raw text. */
typedef int cli_entry_fn(void *ctx, const json_t *in, const char *line, size_t len, json_t *out, struct error *e);
/* Runs to the end of stdin; each answer is flushed when no more input is waiting. Returns CLI_OK, or CLI_FAILED
 * if any entry failed. Malformed lines give an error entry with id null. */
int cli_jsonl(cli_entry_fn *fn, void *ctx);

/* The same for commands that parse the line themselves (numbers of any length): append the whole answer, without
 * a newline, to `out`, the error object included. Returns false if the entry failed. */
typedef bool cli_line_fn(void *ctx, const char *line, size_t len, struct buf *out);
int cli_jsonl_raw(cli_line_fn *fn, void *ctx);

/* Appends s[0, len) as a JSON string with quotes; valid UTF-8 stays as it is, except the separators U+0085, U+2028
 * and U+2029, at which some readers would cut the line. */
void cli_json_string(struct buf *out, const char *s, size_t len);
/* {"code":name,"message":text} as a new object. */
json_t *cli_json_error(const struct error *e);
/* Prints one object (compact, key order kept) and a newline to stdout, and releases it. */
void cli_print_json(json_t *obj);

/* Bytes from hex and back; NULL/false on an odd length or a digit outside 0-9a-fA-F. mem_free the result. */
char *cli_hex_decode(const char *hex, size_t *len);
bool cli_hex_encode(const void *data, size_t len, struct buf *out);

/* ids from a JSON array of integers; INVALID names the index. mem_free(*ids). */
int cli_json_ids(const json_t *arr, int32_t **ids, size_t *n, struct error *e);

/* Progress on stderr, only on a terminal: "what: 42 %", redrawn in place. */
void cli_progress(const char *what, double share);
void cli_progress_end(void);
#endif
