# SPDX-License-Identifier: Apache-2.0
# The reference plugin; includes tenon/plugin.h and libc only.

if PLUGIN_REF
plugin_LTLIBRARIES += plugins/ref/ref.la
plugin_DATA += plugins/ref/ref.plugin
plugins_ref_ref_la_SOURCES = plugins/ref/ref.h plugins/ref/ref.c plugins/ref/ref_graph.c plugins/ref/ref_model.c \
	plugins/ref/ref_kv.c plugins/ref/ref_batch.c plugins/ref/ref_ops.c plugins/ref/ref_attend.c \
	plugins/ref/ref_types.c plugins/ref/ref_par.c
plugins_ref_ref_la_CFLAGS = $(AM_CFLAGS) -O3 -pthread
plugins_ref_ref_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-Wl,--version-script=$(srcdir)/plugins/tnp.map
plugins_ref_ref_la_LIBADD = -lm -lpthread
plugins_ref_ref_la_DEPENDENCIES = plugins/tnp.map

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_ref
TESTS += tests/unit/test_ref
tests_unit_test_ref_SOURCES = tests/unit/test_ref.c tests/unit/unit.h tests/unit/tnp_make.c tests/unit/tnp_make.h
tests_unit_test_ref_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_ref_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS) -lm
endif
endif
tenoninclude_HEADERS += include/tenon/plugin.h
EXTRA_DIST += plugins/tnp.map plugins/ref/ref.plugin
