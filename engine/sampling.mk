# SPDX-License-Identifier: Apache-2.0
# engine: from logits to tokens to text (sampler.h, emit.h).
noinst_LTLIBRARIES += libsampling.la
libsampling_la_SOURCES = engine/sampler.c engine/sampler.h engine/logits.c engine/logits.h engine/emit.c engine/emit.h
libsampling_la_LIBADD = -lm

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_sampler tests/unit/test_emit
TESTS += tests/unit/test_sampler tests/unit/test_emit
tests_unit_test_sampler_SOURCES = tests/unit/test_sampler.c
tests_unit_test_sampler_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_sampler_LDADD = libsampling.la $(BASE_LIBS) $(CMOCKA_LIBS) -lm
# emit's test stands on a vocabulary of its own, so that no model file is needed
tests_unit_test_emit_SOURCES = tests/unit/test_emit.c
tests_unit_test_emit_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_emit_LDADD = libsampling.la $(BASE_LIBS) $(CMOCKA_LIBS)
endif
