# SPDX-License-Identifier: Apache-2.0
# Model engine: graph builder, architectures, loading, steps. MODEL_LIBS is what a program links to run models.
noinst_LTLIBRARIES += libmodel.la
libmodel_la_SOURCES = engine/model.c engine/model.h engine/model_priv.h engine/model_memory.c engine/model_text.c \
	engine/model_chat.c engine/step.c engine/graph.c engine/graph.h engine/graph_priv.h engine/graph_plan.c \
	engine/arch.c engine/arch.h engine/arch_llama.c engine/chat.h
libmodel_la_LIBADD = -lpthread -lm
MODEL_LIBS = libmodel.la $(TOKENIZER_LIBS) libplugins.la $(GGUF_LIBS)
EXTRA_DIST += engine/README.md

# Built with Python, so that no model has to be fetched; tests skip without it.
TINY_MODEL = tests/data/tiny.gguf
tests/data/tiny.gguf: $(srcdir)/scripts/make-tiny-model
	$(AM_V_GEN)$(MKDIR_P) tests/data
	$(AM_V_at)$(PYTHON3) $(srcdir)/scripts/make-tiny-model --type Q4_1 --layers 3 $@.new && mv $@.new $@
CLEANFILES += tests/data/tiny.gguf
