# SPDX-License-Identifier: Apache-2.0
# daemon: tenond. All but main.c is a convenience library, so that tests can drive its parts.
noinst_LTLIBRARIES += libdaemonconf.la
libdaemonconf_la_SOURCES = daemon/config.c daemon/config.h
libdaemonconf_la_CFLAGS = $(AM_CFLAGS) $(CONFIG_CFLAGS)
libdaemonconf_la_LIBADD = $(CONFIG_LIBS)

sysconf_DATA += etc/tenond.conf
EXTRA_DIST += etc/tenond.conf

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_config
TESTS += tests/unit/test_config
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_config_LDADD = libdaemonconf.la $(BASE_LIBS) $(CMOCKA_LIBS)
endif

check_PROGRAMS += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c
tests_fuzz_fuzz_config_LDADD = libdaemonconf.la $(BASE_LIBS)
EXTRA_DIST += tests/data/fuzz/config
if FUZZERS
tests_fuzz_fuzz_config_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
else
tests_fuzz_fuzz_config_SOURCES += tests/fuzz/replay_main.c
TESTS += tests/fuzz/fuzz_config
endif
