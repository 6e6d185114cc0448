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

check_PROGRAMS += tests/fuzz/fuzz_gguf
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz_gguf.c
tests_fuzz_fuzz_gguf_LDADD = $(GGUF_LIBS)
EXTRA_DIST += tests/data/fuzz/gguf
if FUZZERS
tests_fuzz_fuzz_gguf_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_gguf_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_gguf
endif
