# SPDX-License-Identifier: Apache-2.0
# plugins: host side of the backend ABI. Each backend has its folder with a local.mk of its own, which adds
#	plugin_LTLIBRARIES += plugins/NAME/NAME.la     plugin_DATA += plugins/NAME/NAME.plugin
# In the build tree both are copied flat into plugins/stage, which looks like
# the installed folder, so that the loader needs to know one shape only.
noinst_LTLIBRARIES += libplugins.la
pkglibexec_PROGRAMS += tenon-probe

libplugins_la_SOURCES = plugins/plugins.h plugins/plugins_priv.h plugins/load.c plugins/manifest.c plugins/isa.c \
	plugins/files.c plugins/host.c plugins/module.c plugins/probe.c plugins/call.c include/tenon/plugin.h
libplugins_la_CPPFLAGS = $(AM_CPPFLAGS) -DTENON_LIBEXECDIR='"$(pkglibexecdir)"'
libplugins_la_CFLAGS = $(AM_CFLAGS) $(CONFIG_CFLAGS) $(SODIUM_CFLAGS)
libplugins_la_LIBADD = $(CONFIG_LIBS) $(SODIUM_LIBS)
PLUGINS_LIBS = libplugins.la $(BASE_LIBS)

tenon_probe_SOURCES = plugins/probe_main.c plugins/probe_check.c
tenon_probe_LDADD = $(PLUGINS_LIBS) -lm

EXTRA_DIST += plugins/README.md

noinst_DATA += plugins/stage/.stamp
plugins/stage/.stamp: $(plugin_LTLIBRARIES) $(plugin_DATA)
	$(AM_V_GEN)$(MKDIR_P) plugins/stage
	$(AM_V_at)rm -f plugins/stage/*.so plugins/stage/*.plugin
	$(AM_V_at)for f in $(plugin_LTLIBRARIES); do \
		cp $$(dirname $$f)/.libs/$$(basename $$f .la).so plugins/stage/ || exit 1; done
	$(AM_V_at)for f in $(plugin_DATA); do \
		test -f $$f || f=$(srcdir)/$$f; cp $$f plugins/stage/ && chmod u+w plugins/stage/$$(basename $$f) || exit 1; done
	$(AM_V_at)touch $@
CLEANFILES += plugins/stage/*.so plugins/stage/*.plugin plugins/stage/.stamp

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_plugins
TESTS += tests/unit/test_plugins
tests_unit_test_plugins_SOURCES = tests/unit/test_plugins.c
tests_unit_test_plugins_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SODIUM_CFLAGS)
tests_unit_test_plugins_LDADD = $(PLUGINS_LIBS) $(CMOCKA_LIBS)

# The toy plugin of the tests, whole and with one part broken each.
TOY_LDFLAGS = $(AM_LDFLAGS) -module -shared -avoid-version -rpath /nowhere -Wl,--version-script=$(srcdir)/plugins/tnp.map
check_LTLIBRARIES += tests/unit/toy.la tests/unit/toy_nosym.la tests/unit/toy_refuse.la tests/unit/toy_short.la \
	tests/unit/toy_hole.la
tests_unit_toy_la_SOURCES = tests/unit/toy_plugin.c
tests_unit_toy_la_LDFLAGS = $(TOY_LDFLAGS)
tests_unit_toy_nosym_la_SOURCES = tests/unit/toy_plugin.c
tests_unit_toy_nosym_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_NOSYM
tests_unit_toy_nosym_la_LDFLAGS = $(TOY_LDFLAGS)
tests_unit_toy_refuse_la_SOURCES = tests/unit/toy_plugin.c
tests_unit_toy_refuse_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_REFUSE
tests_unit_toy_refuse_la_LDFLAGS = $(TOY_LDFLAGS)
tests_unit_toy_short_la_SOURCES = tests/unit/toy_plugin.c
tests_unit_toy_short_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_SHORT
tests_unit_toy_short_la_LDFLAGS = $(TOY_LDFLAGS)
tests_unit_toy_hole_la_SOURCES = tests/unit/toy_plugin.c
tests_unit_toy_hole_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_HOLE
tests_unit_toy_hole_la_LDFLAGS = $(TOY_LDFLAGS)
endif

check_PROGRAMS += tests/fuzz/fuzz_manifest
tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/fuzz_manifest.c
tests_fuzz_fuzz_manifest_LDADD = $(PLUGINS_LIBS)
if FUZZERS
tests_fuzz_fuzz_manifest_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_manifest_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_manifest
endif
EXTRA_DIST += tests/data/fuzz/manifest
