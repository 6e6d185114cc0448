# SPDX-License-Identifier: Apache-2.0
# GGUF reader, and the writer that unit tests of any area build files with (GGUF_MAKE).
noinst_LTLIBRARIES += libgguf.la
libgguf_la_SOURCES = engine/gguf.c engine/gguf.h
libgguf_la_CFLAGS = $(AM_CFLAGS) $(SODIUM_CFLAGS)
libgguf_la_LIBADD = $(SODIUM_LIBS) -lm
GGUF_LIBS = libgguf.la $(BASE_LIBS)
GGUF_MAKE = tests/unit/gguf_make.c tests/unit/gguf_make.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_gguf
TESTS += tests/unit/test_gguf
tests_unit_test_gguf_SOURCES = tests/unit/test_gguf.c $(GGUF_MAKE)
tests_unit_test_gguf_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_gguf_LDADD = $(GGUF_LIBS) $(CMOCKA_LIBS)
endif
