# SPDX-License-Identifier: Apache-2.0
# Chat templates: the Jinja interpreter. Needs no other part of the engine.
noinst_LTLIBRARIES += libchat.la
libchat_la_SOURCES = engine/chat.c engine/chat.h engine/jinja_ast.h engine/jinja_call.c engine/jinja_call.h \
	engine/jinja_casing.h engine/jinja_core.c engine/jinja_core.h engine/jinja_eval.c engine/jinja_eval.h \
	engine/jinja_exec.c engine/jinja_expr.c engine/jinja_filters.c engine/jinja_filters.h engine/jinja_filters_lazy.c \
	engine/jinja_filters_seq.c engine/jinja_filters_text.c engine/jinja_float.c engine/jinja_format.c \
	engine/jinja_format.h engine/jinja_format_num.c engine/jinja_globals.c engine/jinja_int.c engine/jinja_int.h \
	engine/jinja_items.c engine/jinja_json.c engine/jinja_json.h engine/jinja_lexer.c engine/jinja_loop.c \
	engine/jinja_loop.h engine/jinja_member.c engine/jinja_methods.c engine/jinja_methods.h engine/jinja_methods_str.c \
	engine/jinja_num.c engine/jinja_parser.c engine/jinja_parser.h engine/jinja_pprint.c engine/jinja_repr.c engine/jinja_scope.c \
	engine/jinja_str.c engine/jinja_str.h engine/jinja_strops.c engine/jinja_strops.h engine/jinja_tests.c \
	engine/jinja_tojson.c engine/jinja_unicode.c engine/jinja_unicode.h engine/jinja_value.c engine/jinja_value.h \
	engine/jinja_wrap.c engine/jinja_wrap.h
libchat_la_CFLAGS = $(AM_CFLAGS) $(UTF8PROC_CFLAGS)
libchat_la_LIBADD = $(UTF8PROC_LIBS) -lm
CHAT_LIBS = libchat.la $(BASE_LIBS)

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_chat
TESTS += tests/unit/test_chat
tests_unit_test_chat_SOURCES = tests/unit/test_chat.c tests/unit/gz.h
tests_unit_test_chat_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_test_chat_LDADD = $(CHAT_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS) -lpthread
endif

check_PROGRAMS += tests/fuzz/fuzz_template
tests_fuzz_fuzz_template_SOURCES = tests/fuzz/fuzz_template.c
tests_fuzz_fuzz_template_LDADD = $(CHAT_LIBS)
EXTRA_DIST += tests/data/chat tests/data/fuzz/template
if FUZZERS
tests_fuzz_fuzz_template_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_template_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_template
endif
