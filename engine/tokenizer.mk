# SPDX-License-Identifier: Apache-2.0
# Tokenizers: one file a noun. TOKENIZER_LIBS is what a program links to use them.
noinst_LTLIBRARIES += libtokenizer.la
libtokenizer_la_SOURCES = engine/tokenizer.c engine/tokenizer.h engine/tokenizer_priv.h engine/tokenizer_vocab.c \
	engine/tokenizer_special.c engine/tokenizer_pre.c engine/tokenizer_unicode.c engine/tokenizer_merge.c \
	engine/tokenizer_bpe.c engine/tokenizer_spm.c engine/tokenizer_wordpiece.c engine/tokenizer_decode.c \
	engine/tokenizer_eog.c
libtokenizer_la_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(UTF8PROC_CFLAGS)
libtokenizer_la_LIBADD = $(PCRE2_LIBS) $(UTF8PROC_LIBS)
TOKENIZER_LIBS = libtokenizer.la $(GGUF_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_tokenizer tests/unit/test_tokenizer_cases
TESTS += tests/unit/test_tokenizer tests/unit/test_tokenizer_cases
THREAD_TESTS += tests/unit/test_tokenizer
tests_unit_test_tokenizer_SOURCES = tests/unit/test_tokenizer.c tests/unit/gz.h $(GGUF_MAKE)
tests_unit_test_tokenizer_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_tokenizer_LDADD = $(TOKENIZER_LIBS) $(CMOCKA_LIBS) -lpthread
tests_unit_test_tokenizer_cases_SOURCES = tests/unit/test_tokenizer_cases.c tests/unit/gz.h
tests_unit_test_tokenizer_cases_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_tokenizer_cases_LDADD = $(TOKENIZER_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/data/tokenizer scripts/convert-minilm

check_PROGRAMS += tests/fuzz/fuzz_tokenizer
tests_fuzz_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c $(GGUF_MAKE)
tests_fuzz_fuzz_tokenizer_LDADD = $(TOKENIZER_LIBS)
EXTRA_DIST += tests/data/fuzz/tokenizer
if FUZZERS
tests_fuzz_fuzz_tokenizer_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_tokenizer_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_tokenizer
endif

dist_check_SCRIPTS += tests/cli/tokenize tests/cli/convert-minilm
TESTS += tests/cli/tokenize tests/cli/convert-minilm
