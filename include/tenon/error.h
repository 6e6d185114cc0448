/* SPDX-License-Identifier: Apache-2.0
 * error.h - the codes that Tenon's functions, frames and JSON replies carry. Zero is success, failures
 * are negative, numbers are never reused. The table is the one place where code, name and meaning meet.
 */
#ifndef TENON_ERROR_H
#define TENON_ERROR_H

/* X(symbol, number, name in JSON and logs, what it means to the caller) */
#define TENON_ERRORS(X)                                                                            \
	X(TENON_OK, 0, "ok", "success")                                                            \
	X(TENON_E_INVALID, -1, "invalid", "a value is out of range or malformed")                  \
	X(TENON_E_NOMEM, -2, "no_memory", "memory or a quota is used up; less or later may work")  \
	X(TENON_E_IO, -3, "io", "a system call failed")                                            \
	X(TENON_E_NOT_FOUND, -4, "not_found", "no such model, file, backend or request")           \
	X(TENON_E_FORMAT, -5, "format", "a file or message does not follow its format")            \
	X(TENON_E_UNSUPPORTED, -6, "unsupported", "known, but this build or backend cannot do it") \
	X(TENON_E_UTF8, -7, "invalid_utf8", "the text is not valid UTF-8")                         \
	X(TENON_E_TOO_LONG, -8, "too_long", "over a limit that the message names")                 \
	X(TENON_E_TEMPLATE, -9, "template", "the chat template failed or refused the messages")    \
	X(TENON_E_FULL, -10, "full", "a queue or ring is full; try again after an event")          \
	X(TENON_E_AGAIN, -11, "again", "nothing to read now")                                      \
	X(TENON_E_TIMEOUT, -12, "timeout", "the time allowed has passed")                          \
	X(TENON_E_CANCELLED, -13, "cancelled", "cancelled by the client or an administrator")      \
	X(TENON_E_PROTOCOL, -14, "protocol", "a peer broke the protocol; the session has ended")   \
	X(TENON_E_VERSION, -15, "version", "no common version")                                    \
	X(TENON_E_DENIED, -16, "denied", "not allowed for this user")                              \
	X(TENON_E_GONE, -17, "gone", "the daemon or session has ended")                            \
	X(TENON_E_BACKEND, -18, "backend", "the compute backend failed")                           \
	X(TENON_E_CONFIG, -19, "config", "the configuration is wrong; the message names file and line") \
	X(TENON_E_SLOW_READER, -20, "slow_reader", "the client did not read its events in time")   \
	X(TENON_E_FORKED, -21, "forked", "the handle belongs to the parent process")               \
	X(TENON_E_INTERNAL, -22, "internal", "a fault in Tenon; please report it")                 \
	X(TENON_E_BUSY, -23, "busy", "in use; try again later")                                    \
	X(TENON_E_DRAINING, -24, "draining", "the daemon is shutting down and takes no new work")

enum tenon_rc {
#define TENON_X(sym, num, name, text) sym = num,
	TENON_ERRORS(TENON_X)
#undef TENON_X
};

#endif
