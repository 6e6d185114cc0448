# SPDX-License-Identifier: Apache-2.0
# cache/kv: page numbers and block tables (worker side); no device calls.
noinst_LTLIBRARIES += libcache_kv.la
libcache_kv_la_SOURCES = cache/kv/pages.c cache/kv/pages.h cache/kv/prefix.h cache/kv/tier.h

if HAVE_CMOCKA
check_PROGRAMS += tests/unit/test_pages
TESTS += tests/unit/test_pages
tests_unit_test_pages_SOURCES = tests/unit/test_pages.c
tests_unit_test_pages_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_test_pages_LDADD = libcache_kv.la $(BASE_LIBS) $(CMOCKA_LIBS)
endif
EXTRA_DIST += cache/README.md
