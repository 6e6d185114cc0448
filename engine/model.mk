# SPDX-License-Identifier: Apache-2.0
# Model engine: graph builder, architectures, loading, steps. MODEL_LIBS is what a program links to run models.
noinst_LTLIBRARIES += libmodel.la
libmodel_la_SOURCES = engine/model.c engine/model.h engine/model_priv.h engine/ledger.c engine/ledger.h engine/model_memory.c engine/model_text.c \
	engine/model_chat.c engine/step.c engine/taps.c engine/backends.c engine/backends.h engine/partition.c engine/partition_run.c engine/partition.h engine/graph.c engine/graph.h engine/graph_priv.h engine/graph_plan.c \
	engine/arch.c engine/arch.h engine/arch_parts.c engine/arch_llama.c engine/arch_gemma3.c \
	engine/arch_bert.c engine/arch_experts.c engine/arch_mixtral.c engine/arch_qwen3moe.c engine/arch_phi3.c engine/arch_qwen2.c engine/arch_qwen3.c engine/chat.h
libmodel_la_SOURCES += engine/graph_cost.c engine/graph_cost.h engine/pass.c engine/pass.h engine/passes.def engine/pass_edit.c engine/pass_edit.h engine/pass_fold_constants.c \
	engine/pass_transpose_reshape.c engine/pass_common_subexpressions.c engine/pass_dead_code.c engine/pass_fuse_qkv.c \
	engine/pass_fuse_glu.c engine/pass_fuse_bias_act.c engine/pass_fuse_residual_norm.c engine/pass_fuse_rope_kv.c engine/pass_layout.c
libmodel_la_LIBADD = -lpthread -lm
MODEL_LIBS = libmodel.la libchat.la $(TOKENIZER_LIBS) libplugins.la $(GGUF_LIBS)
EXTRA_DIST += engine/README.md tests/reference/decoder.py tests/reference/expected.json tests/reference/llama-files

# Tiny models for tests, made with Python so that none has to be fetched: $TENON_BUILDDIR/tests/tiny/TYPE.gguf.
TINY_MODELS = tests/tiny/f32.gguf tests/tiny/f16.gguf tests/tiny/q8_0.gguf tests/tiny/q4_0.gguf tests/tiny/q4_1.gguf \
	tests/tiny/scaled.gguf tests/tiny/factors.gguf tests/tiny/gemma3.gguf tests/tiny/gemma3_27b.gguf \
	tests/tiny/phi3.gguf tests/tiny/qwen2.gguf tests/tiny/qwen3.gguf tests/tiny/bert.gguf tests/tiny/nomic_bert.gguf \
	tests/tiny/mixtral.gguf tests/tiny/qwen3moe.gguf tests/tiny/mixtral_q8.gguf
TINY_MAKE = $(AM_V_GEN)$(MKDIR_P) tests/tiny && $(PYTHON3) $(srcdir)/scripts/make-tiny-model
tests/tiny/f32.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type F32 --seed 2 --kv-heads 4 $@.new && mv $@.new $@
tests/tiny/f16.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type F16 --seed 3 --kv-heads 1 $@.new && mv $@.new $@
tests/tiny/q8_0.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type Q8_0 --seed 4 --untied $@.new && mv $@.new $@
tests/tiny/q4_0.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type Q4_0 --seed 5 $@.new && mv $@.new $@
tests/tiny/q4_1.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type Q4_1 --layers 3 $@.new && mv $@.new $@
tests/tiny/scaled.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --seed 6 --bias --window 24 --rope-scale 2 $@.new && mv $@.new $@
tests/tiny/factors.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --seed 6 --bias --window 24 --rope-factors 2 $@.new && mv $@.new $@
# Groups with and without a window; a head size of its own; caps; position scaling in the layers that see everything.
tests/tiny/gemma3.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch gemma3 --type F32 --seed 7 --layers 4 --width 96 --head-dim 32 --heads 4 --kv-heads 2 --ff 160 --window 32 \
		--pattern 2 --rope-base 100000 --rope-scale 2 --attn-cap 20 --logit-cap 8 $@.new && mv $@.new $@
tests/tiny/gemma3_27b.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch gemma3 --type F32 --seed 10 --layers 62 --width 32 --head-dim 8 --heads 2 --kv-heads 1 --ff 32 --window 16 \
		$@.new && mv $@.new $@
tests/tiny/phi3.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch phi3 --type F32 --seed 11 --width 96 --heads 3 --kv-heads 3 --ff 160 --window 40 --untied $@.new && mv $@.new $@
tests/tiny/qwen2.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch qwen2 --type F32 --seed 8 --width 96 --heads 3 --kv-heads 1 --ff 160 --rope-base 1000000 $@.new && mv $@.new $@
tests/tiny/qwen3.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch qwen3 --type F32 --seed 9 --width 96 --head-dim 32 --heads 4 --kv-heads 2 --ff 160 --untied $@.new && mv $@.new $@
# Rows of whole super-blocks: what the K types are tested with.
tests/tiny/wide.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type F32 --seed 11 --width 256 --heads 4 --kv-heads 2 --ff 512 --layers 2 --untied $@.new && mv $@.new $@
check_DATA += tests/tiny/wide.gguf
tests/tiny/bert.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch bert --type F32 --seed 12 --layers 3 --width 96 --heads 3 --ff 160 --ctx 64 $@.new && mv $@.new $@
tests/tiny/nomic_bert.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch nomic-bert --type F32 --seed 13 --width 64 --heads 2 --ff 96 --ctx 96 --pooling 2 $@.new && mv $@.new $@
tests/tiny/mixtral.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type F32 --seed 14 --width 64 --heads 4 --kv-heads 2 --ff 96 --experts 4 --window 40 $@.new && mv $@.new $@
tests/tiny/qwen3moe.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --arch qwen3moe --type F32 --seed 15 --width 64 --head-dim 32 --heads 4 --kv-heads 2 --ff 32 --experts 16 \
		--experts-used 5 --untied $@.new && mv $@.new $@
tests/tiny/mixtral_q8.gguf: $(srcdir)/scripts/make-tiny-model
	$(TINY_MAKE) --type Q8_0 --seed 16 --width 64 --heads 4 --kv-heads 2 --ff 96 --experts 6 $@.new && mv $@.new $@
check_DATA += $(TINY_MODELS)
CLEANFILES += tests/tiny/*.gguf tests/tiny/*.new

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_graph tests/unit/test_encoder tests/unit/test_model tests/unit/test_ledger tests/unit/test_windows tests/unit/test_kv_types tests/unit/test_partition
TESTS += tests/unit/test_graph tests/unit/test_encoder tests/unit/test_model tests/unit/test_ledger tests/unit/test_windows tests/unit/test_kv_types tests/unit/test_partition
tests_unit_test_encoder_SOURCES = tests/unit/test_encoder.c tests/unit/tiny.h
tests_unit_test_encoder_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_encoder_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
tests_unit_test_windows_SOURCES = tests/unit/test_windows.c tests/unit/tiny.h
tests_unit_test_windows_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_windows_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
tests_unit_test_kv_types_SOURCES = tests/unit/test_kv_types.c tests/unit/tiny.h
tests_unit_test_kv_types_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_kv_types_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
tests_unit_test_partition_SOURCES = tests/unit/test_partition.c tests/unit/tiny.h
tests_unit_test_partition_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_partition_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
EXTRA_tests_unit_test_partition_DEPENDENCIES = tests/abi/1.0/stage/toy10.so
tests_unit_test_ledger_SOURCES = tests/unit/test_ledger.c tests/unit/tiny.h
tests_unit_test_ledger_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ledger_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
tests_unit_test_graph_SOURCES = tests/unit/test_graph.c tests/unit/tiny.h
tests_unit_test_graph_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_graph_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
tests_unit_test_model_SOURCES = tests/unit/test_model.c tests/unit/tiny.h
tests_unit_test_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_model_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
endif
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_passes tests/unit/test_passes_golden
TESTS += tests/unit/test_passes tests/unit/test_passes_golden
tests_unit_test_passes_SOURCES = tests/unit/test_passes.c tests/unit/pass_world.c tests/unit/pass_world.h tests/unit/tnp_make.c \
	tests/unit/tnp_make.h tests/unit/tiny.h
tests_unit_test_passes_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_passes_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS) -lm
tests_unit_test_passes_golden_SOURCES = tests/unit/test_passes_golden.c tests/unit/graph_text.c tests/unit/graph_text.h tests/unit/tiny.h
tests_unit_test_passes_golden_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_passes_golden_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
endif
if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_experts
TESTS += tests/unit/test_experts
tests_unit_test_experts_SOURCES = tests/unit/test_experts.c tests/unit/tiny.h
tests_unit_test_experts_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_experts_LDADD = $(MODEL_LIBS) $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/data/passes
dist_check_SCRIPTS += tests/cli/model tests/cli/perplexity tests/cli/plan tests/cli/reference tests/cli/experts tests/cli/embed
TESTS += tests/cli/model tests/cli/perplexity tests/cli/plan tests/cli/reference tests/cli/experts tests/cli/embed

check_PROGRAMS += tests/fuzz/fuzz_graph
tests_fuzz_fuzz_graph_SOURCES = tests/fuzz/fuzz_graph.c
tests_fuzz_fuzz_graph_LDADD = $(MODEL_LIBS)
EXTRA_DIST += tests/data/fuzz/graph
if FUZZERS
tests_fuzz_fuzz_graph_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_graph_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_graph
endif

# Quantised files against llama.cpp, for whoever has it (bench/make-venv): minutes, so no part of `make check`.
check-llama: tenon tests/tiny/wide.gguf
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) $(PYTHON3) $(srcdir)/tests/reference/llama-files; r=$$?; [ $$r = 77 ] || exit $$r
.PHONY: check-llama
