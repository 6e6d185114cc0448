# SPDX-License-Identifier: Apache-2.0
# Encoders of weight types, the GGUF writer, importance files, quantising whole files. QUANT_LIBS is what a program links.
noinst_LTLIBRARIES += libquant.la
libquant_la_SOURCES = engine/quant.c engine/quant.h engine/quant_priv.h engine/quant_fit.c engine/quant_k.c \
	engine/quant_plan.c engine/quant_run.c engine/quant_file.h engine/importance.c engine/importance.h \
	engine/gguf_write.c engine/gguf_write.h plugins/cpu/dequant.c plugins/cpu/dequant.h plugins/cpu/half.h
# -O3: the sums in lanes become vectors; no option that changes results.
libquant_la_CFLAGS = $(AM_CFLAGS) -O3
libquant_la_LIBADD = -lpthread -lm
QUANT_LIBS = libquant.la $(GGUF_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_quant tests/unit/test_gguf_write
TESTS += tests/unit/test_quant tests/unit/test_gguf_write
tests_unit_test_quant_SOURCES = tests/unit/test_quant.c plugins/ref/ref_types.c plugins/ref/ref.h
tests_unit_test_quant_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_quant_LDADD = $(QUANT_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_gguf_write_SOURCES = tests/unit/test_gguf_write.c $(GGUF_MAKE)
tests_unit_test_gguf_write_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_gguf_write_LDADD = $(QUANT_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_taps
TESTS += tests/unit/test_taps
tests_unit_test_taps_SOURCES = tests/unit/test_taps.c tests/unit/tiny.h
tests_unit_test_taps_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_taps_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS) -lm
endif

check_PROGRAMS += tests/fuzz/fuzz_importance
tests_fuzz_fuzz_importance_SOURCES = tests/fuzz/fuzz_importance.c
tests_fuzz_fuzz_importance_LDADD = $(QUANT_LIBS) -lm
EXTRA_DIST += tests/data/fuzz/importance
if FUZZERS
tests_fuzz_fuzz_importance_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_importance_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_importance
endif
