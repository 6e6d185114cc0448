# SPDX-License-Identifier: Apache-2.0
# tools: tenon (user), tenonctl (admin). Each command is tools/cmd_NAME.c; add it to tenon_SOURCES and commands.def.
bin_PROGRAMS += tenon
tenon_SOURCES = tools/tenon.c tools/commands.h tools/commands.def tools/cli.c tools/cli_jsonl.c tools/cli.h \
	tools/cmd_bench.c tools/bench.c tools/bench.h tools/benches.def
tenon_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) -DPACKAGE_VERSION='"$(PACKAGE_VERSION)"' \
	-DTENON_SOURCE_DIR='"$(abs_top_srcdir)"'
# Libraries of the folders that the commands need, dependents first.
TENON_LIBS =
tenon_SOURCES += tools/cmd_tokenize.c
TENON_LIBS += $(TOKENIZER_LIBS)
tenon_SOURCES += tools/cmd_template.c
tenon_SOURCES += tools/cmd_logits.c tools/cmd_perplexity.c tools/cmd_plan.c tools/score.c tools/score.h tools/open_model.c tools/open_model.h tools/options.c tools/options.h tools/cmd_inspect.c tools/inspect_graph.c
tenon_SOURCES += tools/cmd_quantize.c tools/cmd_calibrate.c tools/cmd_diff.c tools/diff.c tools/diff.h tools/text.c tools/text.h
TENON_LIBS += libquant.la $(MODEL_LIBS)
tenon_SOURCES += tools/cmd_embed.c tools/cmd_bench_embed.c tools/embed.c tools/embed.h tools/embed_session.c
tenon_SOURCES += tools/cmd_bench_model.c tools/peer.c tools/peer.h tools/drive.c tools/drive.h tools/machine.c tools/machine.h \
	tools/bench_model_items.c tools/bench_model_items.h
tenon_SOURCES += tools/cmd_profile.c tools/profile.c tools/profile.h tools/profile_report.c tools/profile_trace.c tools/roofline.c tools/roofline.h
tenon_SOURCES += tools/cmd_bench_ipc.c tools/bench_ipc.h tools/bench_ipc_local.c tools/bench_ipc_daemon.c
tenon_SOURCES += tools/session.c tools/session.h tools/gen.c tools/gen.h tools/cmd_generate.c tools/cmd_run.c tools/cmd_ping.c \
	tools/cmd_bench_start.c
tenon_SOURCES += tools/load.c tools/load.h tools/load_tenon.c tools/load_http.c tools/bench_load.c tools/bench_load.h tools/plot.c \
	tools/plot.h tools/ctl_ask.c tools/ctl.h tools/cmd_bench_mixed.c tools/mixed_report.c tools/bench_mixed.h \
	tools/cmd_bench_prefix.c tools/bench_probe.c tools/bench_prefix.h
TENON_LIBS += $(CLIENT_LIBS)
tenon_LDADD = $(TENON_LIBS) $(BASE_LIBS) $(JANSSON_LIBS) $(ZMQ_LIBS) -lm

if HOST_X86_64
# What the machine can do: loops of instructions, each in a file built for them.
noinst_LTLIBRARIES += liblimits.la liblimits_avx512.la
liblimits_avx512_la_SOURCES = tools/limits_avx512.c
liblimits_avx512_la_CFLAGS = $(AM_CFLAGS) -mavx512f -mavx512vnni
liblimits_la_SOURCES = tools/limits.c tools/limits.h
liblimits_la_CFLAGS = $(AM_CFLAGS) -mavx2 -mfma -pthread
liblimits_la_LIBADD = liblimits_avx512.la
tenon_CPPFLAGS += -DTENON_LIMITS=1
tenon_LDADD += liblimits.la libsampling.la -lpthread
endif

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_bench
TESTS += tests/unit/test_bench
tests_unit_test_bench_SOURCES = tests/unit/test_bench.c tools/bench.c tools/cli.c tools/cli_jsonl.c
tests_unit_test_bench_CPPFLAGS = $(tenon_CPPFLAGS)
tests_unit_test_bench_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_bench_LDADD = $(BASE_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_bench_ipc
TESTS += tests/unit/test_bench_ipc
tests_unit_test_bench_ipc_SOURCES = tests/unit/test_bench_ipc.c tools/bench_ipc_local.c tools/bench.c tools/cli.c tools/cli_jsonl.c
tests_unit_test_bench_ipc_CPPFLAGS = $(tenon_CPPFLAGS)
tests_unit_test_bench_ipc_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_bench_ipc_LDADD = $(IPC_LIBS) $(BASE_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm
check_PROGRAMS += tests/unit/test_load
TESTS += tests/unit/test_load
tests_unit_test_load_SOURCES = tests/unit/test_load.c tools/load.c tools/load_tenon.c tools/load_http.c tools/bench_load.c tools/plot.c \
	tools/bench_probe.c tools/cmd_bench_prefix.c tools/bench.c tools/cli.c tools/cli_jsonl.c tools/session.c tools/open_model.c tools/ctl_ask.c
tests_unit_test_load_CPPFLAGS = $(tenon_CPPFLAGS)
tests_unit_test_load_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_load_LDADD = $(MODEL_LIBS) $(CLIENT_LIBS) $(BASE_LIBS) $(JANSSON_LIBS) $(ZMQ_LIBS) $(CMOCKA_LIBS) -lm
endif
dist_check_SCRIPTS += tests/cli/bench-model tests/cli/profile
TESTS += tests/cli/bench-model tests/cli/profile
dist_check_SCRIPTS += tests/cli/generate
TESTS += tests/cli/generate
dist_check_SCRIPTS += tests/cli/bench-load tests/cli/bench-prefix
TESTS += tests/cli/bench-load tests/cli/bench-prefix
dist_check_SCRIPTS += tests/cli/quantize tests/cli/quantize-encoder tests/cli/quantize-failures tests/cli/hostile-weights
EXTRA_DIST += tests/cli/tenon_gguf.py tests/cli/tenon_encoder.py
TESTS += tests/cli/quantize tests/cli/quantize-encoder tests/cli/quantize-failures tests/cli/hostile-weights
