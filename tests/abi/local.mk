# SPDX-License-Identifier: Apache-2.0
# Released versions of the plugin ABI: frozen headers, their layout, toy plugins built against them.
dist_check_SCRIPTS += tests/abi/header
TESTS += tests/abi/header
EXTRA_DIST += tests/abi/1.0/tenon/plugin.h tests/abi/1.0/plugin.h.sha256 tests/abi/1.0/layout.def tests/abi/1.0/toy10.plugin

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_abi
TESTS += tests/unit/test_abi
tests_unit_test_abi_SOURCES = tests/unit/test_abi.c tests/unit/tnp_make.c tests/unit/tnp_make.h
tests_unit_test_abi_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_abi_LDADD = libabi_frozen.la $(PLUGINS_LIBS) $(CMOCKA_LIBS) -lm
EXTRA_tests_unit_test_abi_DEPENDENCIES = tests/abi/1.0/stage/toy10.so

check_LTLIBRARIES += libabi_frozen.la tests/abi/1.0/toy10.la
libabi_frozen_la_SOURCES = tests/abi/1.0/frozen.c
libabi_frozen_la_CPPFLAGS = -I$(srcdir)/tests/abi/1.0 -I$(top_srcdir)
tests_abi_1_0_toy10_la_SOURCES = tests/abi/1.0/toy.c
tests_abi_1_0_toy10_la_CPPFLAGS = -I$(srcdir)/tests/abi/1.0
tests_abi_1_0_toy10_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere \
	-Wl,--version-script=$(srcdir)/plugins/tnp.map

# A plugin folder as the loader wants it: regular files that nobody else may write.
tests/abi/1.0/stage/toy10.so: tests/abi/1.0/toy10.la $(srcdir)/tests/abi/1.0/toy10.plugin
	$(AM_V_GEN)$(MKDIR_P) tests/abi/1.0/stage
	$(AM_V_at)cp -f $(srcdir)/tests/abi/1.0/toy10.plugin tests/abi/1.0/stage/
	$(AM_V_at)chmod 644 tests/abi/1.0/stage/toy10.plugin
	$(AM_V_at)cp -f tests/abi/1.0/.libs/toy10.so $@
CLEANFILES += tests/abi/1.0/stage/toy10.so tests/abi/1.0/stage/toy10.plugin
endif
