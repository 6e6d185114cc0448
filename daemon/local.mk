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
