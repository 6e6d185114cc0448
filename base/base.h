/* SPDX-License-Identifier: Apache-2.0
 * base - what every other folder may use: errors, log, clock, time slices, memory areas, byte buffers, UTF-8 and checked
 * arithmetic. Depends on libc alone (mem_je.c on jemalloc). Nothing here starts a thread by itself.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H
#include "base/buf.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/slice.h"
#include "base/utf8.h"

#define COUNT_OF(a)  (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
#endif
