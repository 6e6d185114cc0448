# SPDX-License-Identifier: Apache-2.0
# base: what every folder may use. libbase.la needs libc only (libtenon links it); the allocator behind
# base/mem.h is a library of its own: mem_libc for the client library and sanitizer builds, mem_je else.
noinst_LTLIBRARIES += libbase.la libmem_libc.la libmem.la

libbase_la_SOURCES = base/base.h base/error.c base/error.h base/log.c base/log.h base/clock.c base/clock.h \
	base/buf.c base/buf.h base/slice.c base/slice.h base/utf8.c base/utf8.h base/checked.h base/mem.h base/mem_common.h include/tenon/error.h
libmem_libc_la_SOURCES = base/mem_libc.c
if JEMALLOC
libmem_la_SOURCES = base/mem_je.c
libmem_la_LIBADD = $(JEMALLOC_LIBS)
else
libmem_la_SOURCES = base/mem_libc.c
endif
BASE_LIBS = libbase.la libmem.la

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_base
TESTS += tests/unit/test_base
tests_unit_test_base_SOURCES = tests/unit/test_base.c
tests_unit_test_base_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_base_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)
endif
tenoninclude_HEADERS += include/tenon/error.h
